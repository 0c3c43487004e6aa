#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Parquet files that pyarrow writes, read by Millrace, and those that Millrace writes, read by pyarrow.

    parquet.py BUILD_DIR

TAP goes to $TAP_FILE.
"""
import base64
import glob
import itertools
import json
import os
import subprocess
import sys

import numpy
import pyarrow as pa
import pyarrow.parquet as pq

import kit
import nested
from kit import Failure, equal

millrace = os.path.join(os.path.abspath(sys.argv[1]), "millrace")
ROWS = 1200


def run(*args, good=True):
    done = subprocess.run([millrace, *args], capture_output=True, text=True)
    if good and done.returncode:
        raise Failure(f"{args}: {done.stderr}")
    return done.stdout if good else done.stderr


def table():
    rng = numpy.random.default_rng(7)
    n = ROWS

    def ints(low, high, dtype):
        return pa.array(rng.integers(low, high, n), dtype)

    return pa.table({
        "b": pa.array(rng.integers(0, 2, n).astype(bool)),
        "i8": ints(-128, 128, pa.int8()),
        "u8": ints(0, 256, pa.uint8()),
        "i16": ints(-30000, 30000, pa.int16()),
        "u16": ints(0, 65536, pa.uint16()),
        "i32": ints(-2**31, 2**31, pa.int32()),
        "u32": ints(0, 2**32, pa.uint32()),
        "i64": ints(-2**62, 2**62, pa.int64()),
        "u64": pa.array(rng.integers(0, 2**63, n).astype(numpy.uint64) * 2, pa.uint64()),
        "f16": pa.array((rng.integers(-64, 64, n) / 8).astype(numpy.float16), pa.float16()),
        "f32": pa.array(rng.integers(-2**20, 2**20, n) / 4, pa.float32()),
        "f64": pa.array(rng.standard_normal(n), pa.float64()),
        "s": pa.array([f"word {x % 100}" for x in rng.integers(0, 1000, n)]),
        "bin": pa.array([b"x" * (i % 13) + bytes([i % 256]) for i in range(n)], pa.binary()),
        "flba": pa.array([bytes([i % 256]) * 5 for i in range(n)], pa.binary(5)),
        "date": pa.array(range(n), pa.date32()),
        "time": pa.array(range(n), pa.time64("us")),
        "stamp": pa.array(range(n), pa.timestamp("us")),
        "li": pa.array([list(range(i % 5)) for i in range(n)], pa.list_(pa.int32())),
        "ls": pa.array([[f"a{j}" for j in range(i % 4)] for i in range(n)], pa.list_(pa.string())),
        "ll": pa.array([[list(range(j)) for j in range(i % 4)] for i in range(n)], pa.list_(pa.list_(pa.int16()))),
        "lls": pa.array([[[f"{i}"] * (i % 3), []][:i % 5] for i in range(n)], pa.list_(pa.list_(pa.string()))),
        "g": pa.array([{"a": i, "b": str(i), "in": {"l": [i % 100] * (i % 3), "a": i % 2 == 0}} for i in range(n)], pa.struct(
            [("a", pa.int32()), ("b", pa.string()), ("in", pa.struct([("l", pa.list_(pa.int8())), ("a", pa.bool_())]))])),
    })


def plain(v):
    """A value as both sides give it: strings as bytes."""
    if isinstance(v, dict) and set(v) == {"b64"}:
        return base64.b64decode(v["b64"])
    if isinstance(v, str):
        return v.encode()
    if isinstance(v, list):
        return [plain(x) for x in v]
    if isinstance(v, dict):
        return {name: plain(x) for name, x in v.items()}
    return v


def columns_of(t):
    out = {}
    for name, column in zip(t.column_names, t.columns):
        kind = column.type
        if pa.types.is_date32(kind) or pa.types.is_time32(kind):
            column = column.cast(pa.int32())
        elif pa.types.is_temporal(kind):
            column = column.cast(pa.int64())
        out[name] = [plain(v) for v in column.to_pylist()]
    return out


def shown(text, *more):
    return [json.loads(line) for line in run("show", *more, text).splitlines()]


def same(path, t, more=""):
    want = columns_of(t)
    got = shown(f'parquet("{path}"{more})')
    equal(len(got), t.num_rows, "rows")
    for name in want:
        equal([plain(r[name]) for r in got], want[name], name)
    if got:
        equal(set(got[0]), set(want), "columns")


# ---- files of pyarrow

def every_codec_version_and_dictionary(folder):
    t, path = table(), f"{folder}/t.parquet"
    for codec, version, dictionary, size in itertools.product(
            ("NONE", "SNAPPY", "GZIP", "ZSTD", "BROTLI", "LZ4"), ("1.0", "2.0"), (True, False), (1000, 1 << 20)):
        pq.write_table(t, path, compression=codec, data_page_version=version, use_dictionary=dictionary,
                       data_page_size=size, row_group_size=500, write_page_checksum=True)
        same(path, t)


def every_encoding(folder):
    t, path = table(), f"{folder}/t.parquet"
    integers, strings = ("DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"), ("DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY")
    encodings = {"i32": integers, "i64": integers, "u8": integers, "u64": integers, "f16": integers[1:],
                 "f32": integers[1:], "f64": integers[1:], "s": strings, "bin": strings, "stamp": integers,
                 "flba": ("DELTA_BYTE_ARRAY", "BYTE_STREAM_SPLIT"), "b": ("RLE",),
                 "li.list.element": integers, "ls.list.element": strings, "lls.list.element.list.element": strings,
                 "ll.list.element.list.element": integers, "g.in.l.list.element": integers}
    for column, names in encodings.items():
        for encoding, version, size in itertools.product(names, ("1.0", "2.0"), (500, 1 << 20)):
            one = t.select([column.split(".")[0]])
            pq.write_table(one, path, use_dictionary=False, column_encoding={column: encoding}, row_group_size=700,
                           data_page_version=version, data_page_size=size)
            same(path, one)


def required_columns_and_other_types_of_lists(folder):
    t, path = table(), f"{folder}/t.parquet"
    required = t.cast(pa.schema([pa.field(f.name, f.type, nullable=False) for f in t.schema]))
    for version in ("1.0", "2.0"):
        pq.write_table(required, path, data_page_size=1000, data_page_version=version, use_compliant_nested_type=False)
        same(path, t)
    large = t.select(["s", "ls"]).cast(pa.schema([("s", pa.large_string()), ("ls", pa.large_list(pa.large_string()))]))
    pq.write_table(large, path)
    same(path, large)


def long_lists_lie_in_many_pages(folder):
    t = pa.table({"x": pa.array([list(range(i * 37 % 3000)) for i in range(100)], pa.list_(pa.int64()))})
    for version in ("1.0", "2.0"):
        pq.write_table(t, f"{folder}/t.parquet", data_page_size=1000, row_group_size=30, data_page_version=version)
        same(f"{folder}/t.parquet", t)
        got = shown(f'parquet("{folder}/t.parquet").skip(77)')
        equal([r["x"] for r in got], t.column("x").to_pylist()[77:])
        rows = [[list(range(j * i % 60)) for j in range(i * 7 % 90)] for i in range(60)]
        t = pa.table({"x": pa.array(rows, pa.list_(pa.list_(pa.int64()))), "i": range(60)})
        pq.write_table(t, f"{folder}/t.parquet", data_page_size=1000, row_group_size=25, data_page_version=version)
        same(f"{folder}/t.parquet", t)
        for skip in (1, 24, 25, 59):
            equal([r["x"] for r in shown(f'parquet("{folder}/t.parquet").skip({skip})')], rows[skip:])
        t = t.drop_columns(["i"])


def pages_of_lists_that_miscount_their_rows(folder):
    rows, path = [[i, -i] for i in range(100)], f"{folder}/t.parquet"
    t = pa.table({"x": pa.array(rows, pa.list_(pa.int64())), "i": range(100)})
    pq.write_table(t, path, data_page_size=160, write_batch_size=10, use_dictionary=False, data_page_version="2.0",
                   compression="NONE", write_statistics=False)
    good = open(path, "rb").read()
    head = b"\x5c\x15\x28\x15\x00\x15"  # of version 2: 20 values, no nulls; then the rows, twice as large
    equal(good.count(head + b"\x14"), 10, "pages")

    def read(rows_of_page, which, *more):
        parts = good.split(head + b"\x14")
        for i, part in enumerate(parts[1:], 1):
            parts[i] = head + (bytes([2 * rows_of_page]) if i in which else b"\x14") + part
        open(path, "wb").write(b"".join(parts))
        return [r["x"] for r in shown(f'parquet("{path}")' + "".join(more))]

    for skip in (0, 5, 10, 15, 49, 90, 99):  # as Arrow before 12 counted, in all pages and in some
        equal(read(20, range(1, 11), f".skip({skip})"), rows[skip:], f"skip({skip})")
        equal(read(20, (3, 10), f".skip({skip})"), rows[skip:], f"skip({skip})")
    for wrong, many, why in ((9, 29, "more"), (11, 29, "fewer")):
        equal(read(wrong, (3,), ".ignore_errors()")[:20], rows[:20])
        said = run("show", f'parquet("{path}")', good=False)
        if f"a damaged page: it has {why} rows than its header says" not in said:
            raise Failure(said)


def several_row_groups_and_files(folder):
    t = table()
    for i in range(3):
        pq.write_table(t.slice(400 * i, 400), f"{folder}/t-{i}.parquet", row_group_size=150)
    same(f"{folder}/t-*.parquet", t)
    two = t.select(["i64", "ls"])
    same(f"{folder}/t-*.parquet", two, ', columns=["ls", "i64"]')
    same(f"{folder}/t-*.parquet", t.select(["g", "lls"]), ', columns=["lls", "g"]')
    got = shown(f'parquet("{folder}/t-*.parquet", schema={{"g": {{"in": {{"l": int8[]}}, "b": bytes}}, "ll": int16[none, none]}})')
    equal(got, [{"g": {"b": r["b"], "in": {"l": r["in"]["l"]}}, "ll": ll} for r, ll in
                zip(t.column("g").to_pylist(), t.column("ll").to_pylist())])
    for skip in (0, 1, 149, 150, 399, 400, 401, 1199, 1200):
        got = shown(f'parquet("{folder}/t-*.parquet", columns=["i64"]).skip({skip})')
        equal([r["i64"] for r in got], t.column("i64").to_pylist()[skip:], f"skip({skip})")
    sharded = [[r["i64"] for r in shown(
        f'from_tensor_slices(["{folder}/t-0.parquet", "{folder}/t-1.parquet", "{folder}/t-2.parquet"]).shard(2, {w})'
        '.interleave(f => parquet(f, schema={"i64": int64}), cycle_length=1)')] for w in range(2)]
    equal(sharded[0], t.column("i64").to_pylist()[:400] + t.column("i64").to_pylist()[800:])
    equal(sharded[1], t.column("i64").to_pylist()[400:800])


def nulls_are_errors_of_their_rows(folder):
    t = pa.table({"a": pa.array([1, None, 3, 4, None, 6]), "b": pa.array([[1], [], None, [None], [2, 3], [4]])})
    for version, size in itertools.product(("1.0", "2.0"), (1, 1 << 20)):
        pq.write_table(t, f"{folder}/n.parquet", data_page_version=version, data_page_size=size, write_batch_size=1)
        equal(shown(f'parquet("{folder}/n.parquet").ignore_errors()'), [{"a": 1, "b": [1]}, {"a": 6, "b": [4]}])
        equal([r["a"] for r in shown(f'parquet("{folder}/n.parquet", columns=["a"]).ignore_errors()')], [1, 3, 4, 6])
        nested = [[[1], []], [], None, [None], [[None]], [[2], None], [[3, 4], [5]], [[6, None]]]
        groups = [{"x": {"y": i}} for i in range(8)]
        groups[1] = {"x": None}
        for column, good in ((pa.array(nested, pa.list_(pa.list_(pa.int64()))), [0, 1, 6]),
                             (pa.array(groups), [0, 2, 3, 4, 5, 6, 7])):
            pq.write_table(pa.table({"c": column, "i": range(8)}), f"{folder}/l.parquet", data_page_version=version,
                           data_page_size=size, write_batch_size=1)
            got = shown(f'parquet("{folder}/l.parquet").ignore_errors()')
            equal(got, [{"c": column.to_pylist()[i], "i": i} for i in good])
        said = run("show", f'parquet("{folder}/n.parquet")', good=False)
        if "record 1" not in said or "row group 0, column 'a'" not in said:
            raise Failure(said)


def damage_is_found_by_checksums(folder):
    t = pa.table({"x": pa.array(range(3000), pa.int64())})
    path = f"{folder}/c.parquet"
    pq.write_table(t, path, compression="NONE", use_dictionary=False, write_page_checksum=True, row_group_size=1000)
    data = bytearray(open(path, "rb").read())
    at = data.index((1500).to_bytes(8, "little"))
    data[at] ^= 1
    open(path, "wb").write(data)
    got = [r["x"] for r in shown(f'parquet("{path}").ignore_errors()')]
    equal(got, list(range(1000)))
    said = run("show", f'parquet("{path}")', good=False)
    if "checksum" not in said or "record 1000" not in said:
        raise Failure(said)


def structs_in_lists_maps_and_deep_lists(folder):
    t, path = nested.table(500), f"{folder}/t.parquet"
    want = nested.rows_of(t)
    for version, dictionary, size, required in itertools.product(("1.0", "2.0"), (True, False), (300, 1 << 20), (True, False)):
        written = t.cast(pa.schema([pa.field(f.name, f.type, nullable=not required) for f in t.schema]))
        pq.write_table(written, path, data_page_version=version, use_dictionary=dictionary, data_page_size=size,
                       row_group_size=200, compression="NONE", write_page_checksum=True)
        equal(shown(f'parquet("{path}")'), want)
        for skip in (1, 199, 200, 333, 499):
            equal(shown(f'parquet("{path}").skip({skip})'), want[skip:], f"skip({skip})")
    equal(shown(f'parquet("{path}", columns=["maps", "deep"])'), [{k: r[k] for k in ("maps", "deep")} for r in want])
    schema = '{"pairs": {"b": bytes[]}, "within": {"x": {"l": {"q": float32[none, none]}}}, "four": int16[none, none, none, none]}'
    equal(shown(f'parquet("{path}", schema={schema})'),
          [{"pairs": {"b": r["pairs"]["b"]}, "within": {"x": {"l": {"q": r["within"]["x"]["l"]["q"]}}}, "four": r["four"]} for r in want])
    batched = shown(f'parquet("{path}", columns=["pairs"]).ragged_batch(250)')
    equal([b["pairs"]["a"] for b in batched], [[r["pairs"]["a"] for r in want][i:i + 250] for i in (0, 250)])
    shuffled = shown(f'parquet("{path}").shuffle(50, seed=1)')
    equal(sorted(shuffled, key=lambda r: r["i"]), want)
    for kind, source in itertools.product(("parquet", "arrow"), ("pairs", "deep", "within", "map", "maps", "cubes", "four", "both")):
        run("write", "--out", f"{folder}/w", "--format", kind, "--overwrite", "--expr", f'parquet("{path}", columns=["{source}"])')
        equal(shown(f'{kind}("{folder}/w-*")'), [{source: r[source]} for r in want], f"{kind} of {source}")


def columns_within_columns_are_those_of_pyarrow(folder):
    t, path = nested.table(9), f"{folder}/c.parquet"
    no = pa.array([1] * 9, pa.decimal128(5, 2)) # of which there is no column
    t = t.append_column("some", pa.StructArray.from_arrays([no, t["i"].combine_chunks()], ["no", "yes"]))
    pq.write_table(t, path, row_group_size=4)
    for ours, theirs in ((["within.x.k"], None), (["within.x", "i"], None), (["some.yes"], None),
                         (["within.x.l.q", "within.x.k"], ["within.x.l.list.element.q", "within.x.k"]),
                         (["pairs.a", "one"], ["pairs.list.element.a", "one"])):
        want = pq.ParquetFile(path).read(theirs or ours)
        columns = ", ".join(f'"{name}"' for name in ours)
        equal(shown(f'parquet("{path}", columns=[{columns}])'), nested.rows_of(want), columns)
    t = pa.table({"x.a": [1, 2], "x": [{"a": 3, "b": 5}, {"a": 4, "b": 6}], "x.b.c": [7, 8]})
    pq.write_table(t, path)
    equal(shown(f'parquet("{path}", columns=["x.a"])'), [{"x.a": 1}, {"x.a": 2}])
    equal(shown(f'parquet("{path}", columns=["x"])'), [{"x": r} for r in t["x"].to_pylist()])
    equal(shown(f'parquet("{path}", columns=["x.b"])'), [{"x": {"b": 5}}, {"x": {"b": 6}}])
    equal(shown(f'parquet("{path}", columns=["x.b.c", "x.b"])'), [{"x": {"b": 5}, "x.b.c": 7}, {"x": {"b": 6}, "x.b.c": 8}])


def nulls_in_structs_and_deep_lists(folder):
    t, path = nested.nulls(), f"{folder}/n.parquet"
    for name, version, size in itertools.product(t.column_names, ("1.0", "2.0"), (1, 1 << 20)):
        one = t.select([name]).append_column("i", pa.array(range(t.num_rows)))
        pq.write_table(one, path, data_page_version=version, data_page_size=size, write_batch_size=1, row_group_size=4)
        equal(shown(f'parquet("{path}").ignore_errors()'), nested.rows_of(one.slice(0, 2)), name)
        said = run("show", f'parquet("{path}")', good=False)
        if "record 2: " not in said or f"row group 0, column '{name}" not in said or "has a null" not in said:
            raise Failure(said)


def lengths_of_deep_lists_that_differ_are_errors_of_their_rows(folder):
    t, path = nested.uneven(), f"{folder}/u.parquet"
    for version, size in itertools.product(("1.0", "2.0"), (1, 1 << 20)):
        pq.write_table(t, path, data_page_version=version, data_page_size=size, write_batch_size=1)
        equal(shown(f'parquet("{path}").ignore_errors()'), nested.rows_of(t.take([0, 2, 4])))
        said = run("show", f'parquet("{path}")', good=False)
        if "record 1: " not in said or "column 'x': the row's lists from the third level on differ" not in said:
            raise Failure(said)


def types_that_are_no_columns_are_refused(folder):
    refused = {"lists": pa.array([[[[[[[[[[1]]]]]]]]]]), "decimal": pa.array([1], pa.decimal128(5, 2)),
               "in_list": pa.array([[{"a": 1}]], pa.list_(pa.struct([("a", pa.decimal128(5, 2))])))}
    for name, column in refused.items():
        pq.write_table(pa.table({name: column, "k": [1]}), f"{folder}/r.parquet")
        said = run("show", f'parquet("{folder}/r.parquet")', good=False)
        if f"column '{name}" not in said or "cannot be read" not in said:
            raise Failure(said)
        equal(shown(f'parquet("{folder}/r.parquet", columns=["k"])'), [{"k": 1}])
    pq.write_table(pa.table({"t": pa.array([1], pa.timestamp("ns"))}), f"{folder}/r.parquet",
                   use_deprecated_int96_timestamps=True)
    said = run("show", f'parquet("{folder}/r.parquet")', good=False)
    if "INT96" not in said:
        raise Failure(said)


# ---- files of Millrace

def written(folder, out, *more):
    run("write", "--out", f"{folder}/{out}", "--format", "parquet", *more)
    return sorted(glob.glob(f"{folder}/{out}-*.parquet"))


def what_millrace_writes_is_read(folder):
    t = table()
    pq.write_table(t, f"{folder}/t.parquet", row_group_size=500)
    want = columns_of(t)
    for more in ([], ["--compress", "ZSTD"], ["--compress", "GZIP"], ["--shards", "3"]):
        files = written(folder, "w", "--overwrite", "--expr", f'parquet("{folder}/t.parquet")', *more)
        n = len(files)
        for i, path in enumerate(files):
            got = pq.read_table(path, page_checksum_verification=True)
            equal(set(got.column_names), set(want), "columns")
            for name in want:
                equal([plain(v) for v in got.column(name).to_pylist()], want[name][i::n], name)
        for name, kind in (("i8", pa.int8()), ("u16", pa.uint16()), ("u32", pa.uint32()), ("u64", pa.uint64()),
                           ("f16", pa.float16()), ("s", pa.binary()), ("b", pa.bool_())):
            equal(got.schema.field(name).type, kind, name)


def tensors_are_lists_and_records_groups(folder):
    files = written(folder, "l", "--expr", 'range(4).map(x => (x, [x, x + 1], {"a": "b", "c": {"d": zeros([x])}}))')
    got = pq.read_table(files[0])
    equal(got.column_names, ["0", "1", "2"])
    equal(got.column("1").to_pylist(), [[0, 1], [1, 2], [2, 3], [3, 4]])
    equal(got.column("2").to_pylist(), [{"a": b"b", "c": {"d": [0.0] * i}} for i in range(4)])
    files = written(folder, "n", "--expr", "range(6).map(x => zeros([x % 3, 2 + x, x % 2], \"int8\"))")
    equal(pq.read_table(files[0]).column("value").to_pylist(),
          [[[[0] * (x % 2)] * (2 + x)] * (x % 3) for x in range(6)])
    graph = "range(9).map(x => ones([x % 4])).ragged_batch(4).map(x => {\"x\": x, \"r\": {\"y\": x}})"
    files = written(folder, "r", "--expr", graph)
    want = [[[1.0] * (x % 4) for x in range(9)][i:i + 4] for i in (0, 4, 8)]
    equal(pq.read_table(files[0]).column("x").to_pylist(), want)
    equal(run("show", f'parquet("{files[0]}")'), run("show", graph))


def large_files_have_several_row_groups(folder):
    files = written(folder, "g", "--expr", "range(3000000)")
    meta = pq.ParquetFile(files[0]).metadata
    equal((meta.num_rows, meta.num_row_groups), (3000000, 3))
    equal(pq.read_table(files[0]).column("value").to_pylist(), list(range(3000000)))
    equal(shown(f'parquet("{files[0]}").skip(2999999)'), [{"value": 2999999}])
    files = written(folder, "g", "--expr", "range(300000)", "--row-group", "1M")
    meta = pq.ParquetFile(files[0]).metadata
    equal([meta.row_group(i).num_rows for i in range(meta.num_row_groups)], [131072, 131072, 37856])
    equal(pq.read_table(files[0]).column("value").to_pylist(), list(range(300000)))


def files_without_rows_have_columns(folder):
    files = written(folder, "e", "--shards", "2", "--expr", 'range(0).map(x => {"a": x, "b": ["s"]})')
    for path in files:
        got = pq.read_table(path)
        equal((got.num_rows, got.column_names), (0, ["a", "b"]))


TESTS = (every_codec_version_and_dictionary, every_encoding, required_columns_and_other_types_of_lists,
         long_lists_lie_in_many_pages, pages_of_lists_that_miscount_their_rows, several_row_groups_and_files,
         structs_in_lists_maps_and_deep_lists, columns_within_columns_are_those_of_pyarrow, nulls_in_structs_and_deep_lists,
         lengths_of_deep_lists_that_differ_are_errors_of_their_rows, nulls_are_errors_of_their_rows, damage_is_found_by_checksums, types_that_are_no_columns_are_refused,
         what_millrace_writes_is_read, tensors_are_lists_and_records_groups, large_files_have_several_row_groups, files_without_rows_have_columns)

if __name__ == "__main__":
    kit.main("parquet", TESTS)
