#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What Millrace writes and exports, read by numpy and pyarrow, and what they export, read by Millrace.

    exchange.py BUILD_DIR

Columns cross by DLPack and by the Arrow C interfaces, through ctypes: no code of a binding is between.
torch is tried where it is installed. TAP goes to $TAP_FILE.
"""
import ctypes
import gc
import itertools
import json
import os
import re
import subprocess
import sys

import numpy
import pyarrow
import pyarrow.parquet

import kit
import nested
from kit import Failure, equal

build = os.path.abspath(sys.argv[1])
mr = ctypes.CDLL(f"{build}/libmillrace.so")
for name in ("mr_from_arrow", "mr_from_arrays", "mr_batch", "mr_shuffle", "mr_block_column", "mr_dataset_spec"):
    getattr(mr, name).restype = ctypes.c_void_p
mr.mr_status_init.argtypes = [ctypes.c_void_p]
END = 1
BIG = 4096  # bytes that any struct of the interface fits in


def room():
    return ctypes.create_string_buffer(BIG)


class Status:
    """An mr_status: code and message through mr_status_format."""

    def __init__(self):
        self.bytes = room()
        mr.mr_status_init(self.bytes)

    def check(self, code, good=(0,)):
        if code not in good:
            text = ctypes.create_string_buffer(2048)
            mr.mr_status_format(self.bytes, text, ctypes.c_size_t(2048))
            raise Failure(text.value.decode(errors="replace"))
        return code


def dataset(text):
    out, st, data = ctypes.c_void_p(), Status(), text.encode()
    st.check(mr.mr_dataset_from_text(data, ctypes.c_size_t(len(data)), None, ctypes.byref(out), st.bytes))
    return out.value


def blocks(ds, want=1 << 20):
    """Blocks of the dataset, which is taken over: each is valid until the next one."""
    it, st, block = ctypes.c_void_p(), Status(), room()
    try:
        st.check(mr.mr_iterator_open(ctypes.byref(it), ctypes.c_void_p(ds), None, st.bytes))
        while st.check(mr.mr_iterator_next(it, ctypes.c_size_t(want), block, st.bytes), (0, END)) != END:
            yield block
    finally:
        mr.mr_block_reset(block)
        mr.mr_iterator_close(it)
        mr.mr_dataset_unref(ctypes.c_void_p(ds))


def column(block, name):
    found = mr.mr_block_column(block, name.encode())
    if not found:
        raise Failure(f"there is no column '{name}'")
    return ctypes.c_void_p(found)


def to_arrow(col, name="x"):
    array, schema, st = room(), room(), Status()
    st.check(mr.mr_export_arrow(array, schema, col, name.encode(), st.bytes))
    return pyarrow.Array._import_from_c(ctypes.addressof(array), ctypes.addressof(schema))


def as_ragged(col):
    ragged, st = room(), Status()
    st.check(mr.mr_array_to_ragged(ragged, col, st.bytes))
    return ragged


def arrow_of(text, ragged=False):
    """Component 0 of all elements as one Arrow array; the graph is gone when they are looked at."""
    parts = []
    for b in blocks(dataset(text)):
        col = as_ragged(column(b, "0")) if ragged else column(b, "0")
        parts.append(to_arrow(col))
        if ragged:
            mr.mr_array_reset(col)
    made = pyarrow.concat_arrays(parts)
    gc.collect()
    made.validate(full=True)
    return made


class Tensor:
    """What numpy.from_dlpack and torch.from_dlpack take: a column as a capsule."""

    def __init__(self, col):
        self.managed, st = ctypes.c_void_p(), Status()
        st.check(mr.mr_export_dlpack(ctypes.byref(self.managed), col, st.bytes))

    def __dlpack__(self, **_):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(self.managed, b"dltensor", None)

    def __dlpack_device__(self):
        return (1, 0)


def tensor_column(array):
    """The column of an object with __dlpack__, in an mr_array."""
    get, name = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_SetName
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    name.argtypes = [ctypes.py_object, ctypes.c_char_p]
    capsule, col, st = array.__dlpack__(), room(), Status()
    st.check(mr.mr_import_dlpack(col, ctypes.c_void_p(get(capsule, b"dltensor")), st.bytes))
    name(capsule, b"used_dltensor")  # the column deletes the tensor
    return col


def from_arrow(reader):
    stream = room()
    reader._export_to_c(ctypes.addressof(stream))
    return mr.mr_from_arrow(stream)


# ---- files

def write(folder, out, kind, expr, *more):
    subprocess.run([f"{build}/millrace", "write", "--out", f"{folder}/{out}", "--format", kind, "--expr", expr, *more],
                   check=True, stdout=subprocess.DEVNULL)


def npy_files_are_arrays(folder):
    write(folder, "plain", "npy", "range(10).map(x => [cast(x, \"float32\") / 2, 1.0])", "--shards", "3")
    parts = [numpy.load(f"{folder}/plain-0000{i}-of-00003.npy", mmap_mode="r") for i in range(3)]
    equal([p.shape for p in parts], [(4, 2), (3, 2), (3, 2)])
    equal(parts[0].dtype, numpy.dtype("float32"))
    equal(parts[1][:, 0].tolist(), [0.5, 2.0, 3.5])
    write(folder, "none", "npy", "range(3).filter(x => x > 5)")
    equal(numpy.load(f"{folder}/none-00000-of-00001.npy").shape, (0,))


def npy_files_of_every_type(folder):
    for name in ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
                 "float32", "float64"):
        write(folder, name, "npy", f"range(3).map(x => cast(x, \"{name}\"))")
        loaded = numpy.load(f"{folder}/{name}-00000-of-00001.npy")
        equal(loaded.dtype, numpy.dtype(name))
        equal(loaded.tolist(), numpy.arange(3).astype(name).tolist())


def npy_files_of_components_are_structured(folder):
    write(folder, "rec", "npy", "range(4).map(x => {\"image\": zeros([2, 3], \"uint8\"), \"it's \\u00e9\": x, \"b\": [x, x]})")
    loaded = numpy.load(f"{folder}/rec-00000-of-00001.npy")
    equal(loaded.dtype.names, ("b", "image", "it's \u00e9"))
    equal(loaded["image"].shape, (4, 2, 3))
    equal(loaded["it's \u00e9"].tolist(), [0, 1, 2, 3])
    equal(loaded["b"][2].tolist(), [2, 2])


# ---- out

def numbers_reach_arrow(_):
    for name in ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64"):
        got = arrow_of(f"range(5).map(x => (cast(x, \"{name}\"), x))")
        equal(got.to_pylist(), numpy.arange(5).astype(name).tolist())
    equal(arrow_of("range(2).map(x => (cast(x, \"float16\"), x))").type, pyarrow.float16())


def shapes_reach_arrow(_):
    got = arrow_of("range(3).map(x => ([[x, 1, 2], [3, 4, x]], x))")
    equal((got.type.list_size, got.type.value_type.list_size), (2, 3))
    equal(got.to_pylist()[2], [[2, 1, 2], [3, 4, 2]])
    got = arrow_of("range(4).map(x => (ones([x]), x))", ragged=True)
    equal(got.to_pylist(), [[1.0] * i for i in range(4)])
    got = arrow_of("range(4).map(x => ones([x])).ragged_batch(2).map(x => (x, 1))")
    equal(got.to_pylist(), [[[], [1.0]], [[1.0, 1.0], [1.0, 1.0, 1.0]]])


def strings_reach_arrow(_):
    got = arrow_of("from_tensor_slices([\"a\", \"\", \"\\xff\\x00\"]).map(x => (x, 1))")
    equal(got.to_pylist(), [b"a", b"", b"\xff\x00"])
    got = arrow_of("from_tensor_slices([\"a b\", \"c\"]).map(x => (split(x), 1))", ragged=True)
    equal(got.to_pylist(), [[b"a", b"b"], [b"c"]])


def columns_are_tensors(_):
    libraries = [(numpy.from_dlpack, lambda x: x)]
    try:
        import torch
        libraries.append((torch.from_dlpack, lambda x: x.numpy()))
    except ImportError:
        pass
    for load, plain in libraries:
        for name in ("bool", "int8", "int32", "int64", "uint8", "float16", "float32", "float64"):
            got = [plain(load(Tensor(column(b, "0")))) for b in
                   blocks(dataset(f"range(6).map(x => (cast([[x], [1]], \"{name}\"), x)).batch(3)"))]
            gc.collect()
            whole = numpy.concatenate(got)
            equal((whole.shape, str(whole.dtype)), ((2, 3, 2, 1), name))
            equal(whole[1, 2].tolist(), numpy.array([[5], [1]]).astype(name).tolist())


# ---- in

def table():
    return pyarrow.table({
        "n": pyarrow.array(range(10), pyarrow.int32()),
        "s": pyarrow.array([f"row {i}" for i in range(10)]),
        "l": pyarrow.array([[j / 2 for j in range(i % 3)] for i in range(10)], pyarrow.list_(pyarrow.float32())),
        "ll": pyarrow.array([[[i], [], [1, 2]] for i in range(10)], pyarrow.list_(pyarrow.large_list(pyarrow.int64()))),
        "f": pyarrow.array([[i, i] for i in range(10)], pyarrow.list_(pyarrow.uint8(), 2)),
        "b": pyarrow.array([i % 3 == 0 for i in range(10)]),
        "d": pyarrow.array([f"kind {i % 2}" for i in range(10)]).dictionary_encode(),
        "t": pyarrow.array(range(10), pyarrow.timestamp("us", tz="UTC")),
        "in": pyarrow.array([{"x": i, "y": {"z": b"%d" % i}} for i in range(10)]),
    })


def check_table(ds):
    """Rows of the dataset against those of table()."""
    got = {}
    for b in blocks(ds, want=4):
        for name in ("n", "s", "l", "ll", "f", "b", "d", "t", "in/x", "in/y/z"):
            got.setdefault(name, []).append(to_arrow(column(b, name)))
    got = {name: pyarrow.concat_arrays(parts).to_pylist() for name, parts in got.items()}
    want = table().to_pylist()
    for name in ("n", "l", "ll", "f", "b"):
        equal(got[name], [row[name] for row in want])
    for name in ("s", "d"):
        equal(got[name], [row[name].encode() for row in want])
    equal(got["t"], list(range(10)))
    equal(got["in/x"], [row["in"]["x"] for row in want])
    equal(got["in/y/z"], [row["in"]["y"]["z"] for row in want])


def shown(text):
    done = subprocess.run([f"{build}/millrace", "show", text], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failure(done.stderr)
    return done.stdout


def arrow_files_become_datasets(folder):
    """Of every codec and version, as streams and as files, in batches that end anywhere."""
    kinds = {"file": pyarrow.ipc.new_file, "stream": pyarrow.ipc.new_stream}
    for (kind, new), packing, version in itertools.product(kinds.items(), (None, "lz4", "zstd"), ("V4", "V5")):
        if packing and version == "V4":
            continue  # which has no compression
        options = pyarrow.ipc.IpcWriteOptions(compression=packing, use_legacy_format=version == "V4",
                                              metadata_version=getattr(pyarrow.ipc.MetadataVersion, version))
        for rows in (3, 10):
            with new(f"{folder}/t.arrow", table().schema, options=options) as out:
                out.write_table(table(), max_chunksize=rows)
            try:
                check_table(dataset(f'arrow("{folder}/t.arrow")'))
                got = [to_arrow(column(b, "n")).to_pylist() for b in blocks(dataset(f'arrow("{folder}/t.arrow", columns=["n"]).skip(7)'))]
                equal(sum(got, []), [7, 8, 9])
            except Failure as why:
                raise Failure(f"{kind}, {packing}, {version}, {rows} rows: {why}") from why


def arrow_types():
    numbers = {name: pyarrow.array([0, 1, 100], name) for name in
               ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64")}
    times = {str(t): pyarrow.array([0, 1, 86400000 * 3], pyarrow.int64()).cast(t) for t in
             (pyarrow.date64(), pyarrow.timestamp("ns"), pyarrow.timestamp("s", "UTC"), pyarrow.duration("ms"))}
    short = {str(t): pyarrow.array([0, 1, 3600], pyarrow.int32()).cast(t) for t in
             (pyarrow.date32(), pyarrow.time32("s"), pyarrow.time32("ms"))}
    return pyarrow.table({
        **numbers, **times, **short,
        "half": pyarrow.array(numpy.array([0, 1.5, -2], "float16")),
        "bool": pyarrow.array([True, False, True]),
        "utf8": pyarrow.array(["", "a", "\u00e9" * 9]),
        "large_utf8": pyarrow.array(["x", "", "yz"], pyarrow.large_utf8()),
        "binary": pyarrow.array([b"\xff", b"", b"00"], pyarrow.binary()),
        "large_binary": pyarrow.array([b"", b"1", b"22"], pyarrow.large_binary()),
        "views": pyarrow.array(["", "exactly 12 b", "more than twelve bytes"], pyarrow.string_view()),
        "binary_views": pyarrow.array([b"\xff" * 13, b"\xfe" * 4000, b""], pyarrow.binary_view()),
        "views": pyarrow.array(["", "exactly 12 b", "more than twelve bytes"], pyarrow.string_view()),
        "binary_views": pyarrow.array([b"\xff" * 13, b"\xfe" * 4000, b""], pyarrow.binary_view()),
        "fixed": pyarrow.array([b"abc", b"def", b"ghi"], pyarrow.binary(3)),
        "strings": pyarrow.array([["a"], [], ["b", ""]]),
        "pairs": pyarrow.array([["a", "b"]] * 3, pyarrow.list_(pyarrow.utf8(), 2)),
        "days": pyarrow.array([[1], [], [2, 3]], pyarrow.list_(pyarrow.int32())).cast(pyarrow.list_(pyarrow.date32())),
        "codes": pyarrow.DictionaryArray.from_arrays(pyarrow.array([2, 0, 2], pyarrow.uint16()), pyarrow.array([1.5, 2, 3])),
    })


def plain(value):
    """A value as Millrace has it: times are numbers, text is bytes."""
    if isinstance(value, list):
        return [plain(v) for v in value]
    return value.encode() if isinstance(value, str) else value


def arrow_files_of_every_type(folder):
    whole = arrow_types()
    with pyarrow.ipc.new_file(f"{folder}/t.arrow", whole.schema) as out:
        out.write_table(whole)
    for block, name in ((b, n) for b in blocks(dataset(f'arrow("{folder}/t.arrow")')) for n in whole.column_names):
        want = whole[name]
        if want.type in (pyarrow.date32(), pyarrow.time32("s"), pyarrow.time32("ms")):
            want = want.cast(pyarrow.int32())
        elif pyarrow.types.is_temporal(want.type):
            want = want.cast(pyarrow.int64())
        elif name == "days":
            want = want.cast(pyarrow.list_(pyarrow.int32()))
        try:
            equal(to_arrow(column(block, name)).to_pylist(), plain(want.to_pylist()))
        except Failure as why:
            raise Failure(f"{name}: {why}") from why


def arrow_streams_of_pipes(folder):
    with pyarrow.ipc.new_stream(f"{folder}/t.arrows", table().schema) as out:
        out.write_table(table(), max_chunksize=4)
    whole = shown(f'arrow("{folder}/t.arrows")')
    with open(f"{folder}/t.arrows", "rb") as stream:
        piped = subprocess.run(["sh", "-c", f"cat | {build}/millrace show 'arrow(\"-\")'"], stdin=stream,
                               capture_output=True, text=True, check=True)
    equal(piped.stdout, whole)
    equal(len(whole.splitlines()), 10)


def arrow_dictionaries_grow_and_change(folder):
    def batch(indices, values):
        return pyarrow.RecordBatch.from_pydict(
            {"s": pyarrow.DictionaryArray.from_arrays(pyarrow.array(indices, pyarrow.int8()), pyarrow.array(values))})
    grown = [batch([0, 1], ["a", "b"]), batch([2, 0], ["a", "b", "c"]), batch([3], ["a", "b", "c", "d"])]
    changed = [batch([0, 1], ["a", "b"]), batch([0, 1], ["x", "y"])]
    options = pyarrow.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    for new, batches, want in ((pyarrow.ipc.new_stream, grown, "abcad"), (pyarrow.ipc.new_file, grown, "abcad"),
                               (pyarrow.ipc.new_stream, changed, "abxy")):
        with new(f"{folder}/t.arrow", batches[0].schema, options=options) as out:
            for one in batches:
                out.write_batch(one)
        equal(shown(f'arrow("{folder}/t.arrow").map(r => r["s"])').split(), [f'"{c}"' for c in want])


def arrow_files_are_tables(folder):
    expr = ('range(10).map(x => {"n": cast(x, "int32"), "s": format("row {}", x), "l": ones([x % 3]), "u": x % 2 == 0, '
            '"f": [[x, 1], [2, x]], "h": cast(x, "float16"), "lists": split(join(split("a b", " "), "-") , "-")})')
    for more in ((), ("--compress", "ZSTD")):
        write(folder, "t", "arrow", expr, "--shards", "3", *more)
        parts = [pyarrow.ipc.open_file(f"{folder}/t-0000{i}-of-00003.arrow").read_all() for i in range(3)]
        for part in parts:
            part.validate(full=True)
        equal([part.num_rows for part in parts], [4, 3, 3])
        rows = [row for group in itertools.zip_longest(*(part.to_pylist() for part in parts)) for row in group if row]
        want = [{"f": [[x, 1], [2, x]], "h": float(x), "l": [1.0] * (x % 3), "lists": [b"a", b"b"], "n": x,
                 "s": b"row %d" % x, "u": x % 2 == 0} for x in range(10)]
        equal(rows, want)
        equal(str(parts[0].schema.field("f").type), "fixed_size_list<item: fixed_size_list<item: int64 not null>[2] not null>[2]")
    write(folder, "none", "arrow", 'range(3).filter(x => x > 5)')
    none = pyarrow.ipc.open_file(f"{folder}/none-00000-of-00001.arrow").read_all()
    equal((none.num_rows, none.schema.names), (0, ["value"]))


def arrow_files_of_many_batches(folder):
    write(folder, "t", "arrow", 'range(150000).map(x => {"x": x})')
    file = pyarrow.ipc.open_file(f"{folder}/t-00000-of-00001.arrow")
    equal([file.get_batch(i).num_rows for i in range(file.num_record_batches)], [65536, 65536, 18928])
    equal(file.read_all()["x"].to_pylist() == list(range(150000)), True)
    equal(shown(f'arrow("{folder}/t-*").skip(149998)').split("\n")[:2], ['{"x": 149998}', '{"x": 149999}'])


def rows_shown(expr):
    done = subprocess.run([f"{build}/millrace", "show", expr], capture_output=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def structs_in_lists_maps_and_deep_lists_of_files(folder):
    t, path = nested.table(200), f"{folder}/t.arrow"
    want = nested.rows_of(t)
    large = t.cast(pyarrow.schema([pyarrow.field(f.name, pyarrow.large_list(f.type.value_type)) if f.name in ("pairs", "both")
                                   else f for f in t.schema]))
    for new, packing, table in itertools.product((pyarrow.ipc.new_file, pyarrow.ipc.new_stream), (None, "zstd"), (t, large)):
        with new(path, table.schema, options=pyarrow.ipc.IpcWriteOptions(compression=packing)) as out:
            out.write_table(table, max_chunksize=60)
        equal(rows_shown(f'arrow("{path}")'), (want, ""))
        equal(rows_shown(f'arrow("{path}").skip(59)'), (want[59:], ""))
        schema = '{"pairs": {"b": bytes[]}, "within": {"x": {"l": {"q": float32[none, none]}}}, "maps": {"value": {"key": int32[none, none]}}}'
        equal(rows_shown(f'arrow("{path}", schema={schema})')[0],
              [{"pairs": {"b": r["pairs"]["b"]}, "within": {"x": {"l": {"q": r["within"]["x"]["l"]["q"]}}},
                "maps": {"value": {"key": r["maps"]["value"]["key"]}}} for r in want])
        got = [{"within": {"x": {"k": r["within"]["x"]["k"]}}, "pairs": {"a": r["pairs"]["a"]}, "i": r["i"]} for r in want]
        equal(rows_shown(f'arrow("{path}", columns=["within.x.k", "i", "pairs.a"])')[0], got)
        equal(rows_shown(f'arrow("{path}", columns=["maps.value.value.v"]).take(1)')[0],
              [{"maps": {"value": {"value": {"v": want[0]["maps"]["value"]["value"]["v"]}}}}])
    dotted = pyarrow.table({"x.a": [1], "x": [{"a": 3, "b": 5}], "some": pyarrow.array([{"no": 1, "yes": 2}], pyarrow.struct(
        [("no", pyarrow.decimal128(5, 2)), ("yes", pyarrow.int64())]))})
    with pyarrow.ipc.new_file(f"{folder}/dotted.arrow", dotted.schema) as out:
        out.write_table(dotted)
    for columns, row in ('"x.a"', {"x.a": 1}), ('"x"', {"x": {"a": 3, "b": 5}}), ('"x.b", "x.a", "some.yes"', {
            "x": {"b": 5}, "x.a": 1, "some": {"yes": 2}}):
        equal(rows_shown(f'arrow("{folder}/dotted.arrow", columns=[{columns}])'), ([row], ""))
    said = rows_shown(f'arrow("{path}", schema={{"pairs": {{"c": int64[]}}}})')[1]
    if "column 'pairs' has no field 'c'" not in said:
        raise Failure(said)


def nulls_and_uneven_rows_of_files(folder):
    t, path = nested.nulls(), f"{folder}/n.arrow"
    tables = [(t.select([name]), [0, 1], "has a null") for name in t.column_names]
    for one, good, why in tables + [(nested.uneven(), [0, 2, 4], "from the third level on differ")]:
        with pyarrow.ipc.new_stream(path, one.schema) as out:
            out.write_table(one)
        equal(rows_shown(f'arrow("{path}").ignore_errors()')[0], nested.rows_of(one.take(good)), one.column_names[0])
        said = rows_shown(f'arrow("{path}")')[1]
        bad = min(set(range(one.num_rows)) - set(good))
        # The refusal names the field, inside of structs too.
        named = re.search(rf"column '{one.column_names[0]}(\.\w+)*': the row", said)
        if f"record {bad}: " not in said or not named or why not in said:
            raise Failure(said)


def fields_that_are_left_out_of_lists_are_not_looked_at(folder):
    coded = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0, 1, 0], pyarrow.int8()), ["a", "b"])
    entries = pyarrow.StructArray.from_arrays([pyarrow.array([1, 2, 3]), coded, pyarrow.array(["x"] * 3, pyarrow.string_view())],
                                              ["a", "code", "view"])
    t = pyarrow.table({"x": pyarrow.ListArray.from_arrays([0, 2, 3], entries)})
    with pyarrow.ipc.new_file(f"{folder}/t.arrow", t.schema) as out:
        out.write_table(t)
    equal(rows_shown(f'arrow("{folder}/t.arrow", schema={{"x": {{"a": int64[]}}}})')[0], [{"x": {"a": [1, 2]}}, {"x": {"a": [3]}}])
    said = rows_shown(f'arrow("{folder}/t.arrow")')[1]
    if "column 'x' cannot be read: it holds lists of a dictionary's values" not in said:
        raise Failure(said)


def leaves(row, path=""):
    for name, value in row.items():
        yield from leaves(value, f"{path}{name}/") if isinstance(value, dict) else [(path + name, value)]


def structs_in_lists_become_datasets(_):
    t = nested.table(100)
    want = [dict(leaves(r)) for r in nested.rows_of(t)]
    sliced = pyarrow.table({n: pyarrow.chunked_array([t.column(n).combine_chunks()[:3], t.column(n).combine_chunks()[3:]])
                            for n in t.column_names})
    for reader in (t.to_reader(), t.to_reader(max_chunksize=7), sliced.to_reader()):
        got = [[] for _ in want[0]]
        for block in blocks(from_arrow(reader)):
            for values, name in zip(got, want[0]):
                values.extend(plain(to_arrow(column(block, name)).to_pylist()))
        for values, name in zip(got, want[0]):
            equal(values, [plain(r[name]) for r in want], name)
    for bad, why in ((nested.uneven(), "from the third level on differ"), (nested.nulls().select(["pairs"]), "null")):
        try:
            list(blocks(from_arrow(bad.to_reader())))
        except Failure as said:
            if why not in str(said):
                raise
        else:
            raise Failure(f"no error: {why}")


def tables_become_datasets(_):
    check_table(from_arrow(table().to_reader()))
    check_table(from_arrow(table().to_reader(max_chunksize=3)))  # arrays with offsets


def parquet_files_become_datasets(folder):
    pyarrow.parquet.write_table(table(), f"{folder}/t.parquet", row_group_size=4)
    # Arrow's own schema is kept in the file, dictionaries and the width of offsets with it.
    reader = pyarrow.parquet.ParquetFile(f"{folder}/t.parquet")
    check_table(from_arrow(pyarrow.RecordBatchReader.from_batches(reader.schema_arrow, reader.iter_batches(batch_size=3))))


def nulls_are_errors(_):
    reader = pyarrow.table({"n": pyarrow.array([1, None, 3])}).to_reader()
    try:
        list(blocks(from_arrow(reader)))
    except Failure as why:
        if not re.search("record 1: .*column 'n': the row has a null", str(why)):
            raise
    else:
        raise Failure("a null was read as a number")


def batches_go_through_ops(_):
    ds = mr.mr_shuffle(ctypes.c_void_p(from_arrow(table().select(["n", "s"]).to_reader())), ctypes.c_int64(4), None)
    ds = mr.mr_batch(ctypes.c_void_p(ds), ctypes.c_int64(5), None)
    rows = []
    for b in blocks(ds):
        for n, s in zip(to_arrow(column(b, "n")).to_pylist(), to_arrow(column(b, "s")).to_pylist()):
            rows += list(zip(n, s))
    equal(sorted(rows), [(i, b"row %d" % i) for i in range(10)])


def tensors_become_columns(_):
    whole = numpy.arange(24, dtype="float32").reshape(4, 3, 2)
    for array in (whole, whole[::2], whole.transpose(2, 0, 1), whole[:, ::-1], numpy.zeros((0, 2), "int8")):
        col = tensor_column(array)
        got = to_arrow(col)
        mr.mr_array_reset(col)
        equal(got.to_pylist(), array.tolist())


def tensors_become_datasets(_):
    col = tensor_column(numpy.arange(6, dtype="int64").reshape(3, 2))
    ds = mr.mr_from_arrays(col, None, ctypes.c_size_t(1))
    mr.mr_array_reset(col)
    gc.collect()
    got = [to_arrow(column(b, "")).to_pylist() for b in blocks(ds)]
    equal(got, [[[0, 1], [2, 3], [4, 5]]])


TESTS = (npy_files_are_arrays, npy_files_of_every_type, npy_files_of_components_are_structured, numbers_reach_arrow,
         shapes_reach_arrow, strings_reach_arrow, columns_are_tensors, tables_become_datasets,
         parquet_files_become_datasets, nulls_are_errors, batches_go_through_ops, tensors_become_columns,
         tensors_become_datasets, arrow_files_become_datasets, arrow_files_of_every_type, arrow_streams_of_pipes,
         arrow_dictionaries_grow_and_change, arrow_files_are_tables, arrow_files_of_many_batches,
         structs_in_lists_maps_and_deep_lists_of_files, nulls_and_uneven_rows_of_files,
         fields_that_are_left_out_of_lists_are_not_looked_at, structs_in_lists_become_datasets)

if __name__ == "__main__":
    kit.main("exchange", TESTS)
