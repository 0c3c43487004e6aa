#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes files of the corpora of fuzz_arrow_ipc.c and fuzz_parquet.c, which tests of the ops read too: small Arrow and
Parquet files as pyarrow writes them.

    pyarrow_files.py        needs pyarrow; it was run with 26.0.1
"""
import io
import os

import pyarrow as pa
import pyarrow.parquet as pq

V4 = pa.ipc.IpcWriteOptions(metadata_version=pa.ipc.MetadataVersion.V4, use_legacy_format=True)
DELTAS = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")
ZSTD = pa.ipc.IpcWriteOptions(compression="zstd")


def written(batches, new=pa.ipc.new_stream, options=None):
    sink = io.BytesIO()
    with new(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def batch(**columns):
    return pa.RecordBatch.from_pydict(columns)


def coded(indices, values):
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int8()), pa.array(values))


def times(unit, values, kind):
    return pa.array(values, pa.int32() if unit == 32 else pa.int64()).cast(kind)


# columns of the type that has no values, next to a
all_null = pa.table({
    "a": pa.array([1, 2, 3]),
    "n": pa.nulls(3),
    "s": pa.array([{"n": None, "x": 4}, None, {"n": None, "x": None}], pa.struct([("n", pa.null()), ("x", pa.int64())])),
    "l": pa.array([[], [None], None], pa.list_(pa.null())),
})
arrow_files = {
    # dictionary s: b a - b, then with c added c b; n: 0 - 2 3, 4 5
    "deltas": written([batch(s=coded([1, 0, None, 1], ["a", "b"]), n=pa.array([0, None, 2, 3])),
                       batch(s=coded([2, 1], ["a", "b", "c"]), n=pa.array([4, 5]))], options=DELTAS),
    # dictionary s: a b, then another one: x x; in a null value: y -
    "replaced": written([batch(s=coded([0, 1], ["a", "b"])), batch(s=coded([0, 0], ["x"])),
                         batch(s=coded([0, 1], ["y", None]))]),
    "lz4": written([batch(x=pa.array([7] * 100), s=pa.array(["same"] * 100))], pa.ipc.new_file, LZ4),
    "zstd": written([batch(x=pa.array([i // 10 for i in range(100)], pa.int16()))], pa.ipc.new_file, ZSTD),
    # V4 without marks
    "legacy": written([batch(
        days=times(32, [-1, 20000], pa.date32()),
        seconds=times(32, [1, 2], pa.time32("s")),
        ts=times(64, [-5, 1 << 40], pa.timestamp("us", "UTC")),
        half=pa.array([0.5, -2.0], pa.float32()).cast(pa.float16()),
        bits=pa.array([True, False]),
        fixed=pa.array([b"abc", b"xyz"], pa.binary(3)))], options=V4),
    "nulls": written([batch(
        l=pa.array([[1], None, [2, None], [3]], pa.list_(pa.int32())),
        p=pa.array([{"x": 1}, {"x": 2}, {"x": 3}, {"x": 4}]),
        q=pa.array([{"x": 1}, None, {"x": None}, {"x": 4}]))]),
    "structs": written([batch(
        x=pa.array([[{"a": 1, "b": "p"}, {"a": 2, "b": "q"}], [], [{"a": 3, "b": "r"}], [{"a": 4, "b": None}], [None], None],
                   pa.list_(pa.struct([("a", pa.int64()), ("b", pa.string())]))),
        y=pa.array([[[{"a": 1, "s": ["t"]}], []], [], [[]], [[], [{"a": 2, "s": ["u", "v"]}] * 2], [], []],
                   pa.list_(pa.list_(pa.struct([("a", pa.int16()), ("s", pa.list_(pa.string()))])))),
        m=pa.array([[("k", 1)], [], [("l", 2), ("m", 3)], [], [], [("n", None)]], pa.map_(pa.string(), pa.int64())),
        d=pa.array([[[[1, 2], [3, 4]], [], [[5, 6]]], [], [[[]]], [[[1], [2, 3]]], [[[], [1]]], [[[7]], [[8], [9]]]],
                   pa.list_(pa.list_(pa.list_(pa.int64())))))]),
    # columns that elements cannot have, next to a, map, structs and z
    "odd": written([batch(
        a=pa.array([1, 2]),
        decimal=pa.array([1, 2]).cast(pa.decimal128(20, 1)),
        map=pa.array([[("k", 1)], []], pa.map_(pa.utf8(), pa.int64())),
        none=pa.nulls(2),
        union=pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([1, 2])]),
        view=pa.array(["short", "longer than twelve bytes"], pa.string_view()),
        runs=pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int32()), pa.array([5])),
        structs=pa.array([[{"x": 1}], []]),
        z=pa.array([3, 4]))]),
    "all_null": written(all_null.to_batches()),
}

nulls = pa.table({
    "a": pa.array([1, None, 3, 4, None, 6], pa.int32()),
    "b": pa.array([[1], [], None, [None], [2, 3], [4]], pa.list_(pa.int64())),
})
values = pa.table({
    "i": pa.array([7, -1, 1 << 20, 5, 5, -(1 << 31)], pa.int32()),
    "f": pa.array([0.5, -1.5, 2.0, 0.0, 1e30, 3.25], pa.float64()),
    "s": pa.array(["abc", "abd", "", "abdominal", "b", "bc"]),
    "x": pa.array([b"12345", b"12346", b"12346", b"00000", b"abcde", b"abcdf"], pa.binary(5)),
    "t": pa.array([True, True, True, False, True, True]),
    "l": pa.array([["x", "y"], [], ["x"], ["zz", "zz", "zz"], [], ["y"]], pa.list_(pa.string())),
})
groups = pa.table({"g": pa.array([{"a": 1, "b": "p"}, {"a": 2, "b": "q"}]), "h": pa.array([3, 4], pa.uint16())})
lists = pa.table({
    "i": pa.array([[[1, 2], []], [], [[3]], [[], [4], [5, 6, 7]], [[8]] * 9], pa.list_(pa.list_(pa.int16()))),
    "s": pa.array([{"l": [["a"], ["b", ""]]}, {"l": []}, {"l": [[]]}, {"l": [["c"]] * 4}, {"l": [["d"]]}],
                  pa.struct([("l", pa.list_(pa.list_(pa.string())))])),
})
pair = pa.struct([("a", pa.int32()), ("b", pa.string())])
structs = pa.table({
    "x": pa.array([[{"a": 1, "b": "p"}, {"a": 2, "b": "q"}], [], [{"a": 3, "b": "r"}], [{"a": 4, "b": None}], [None],
                   None, [{"a": 5, "b": "s"}] * 3], pa.list_(pair)),
    "y": pa.array([[[{"a": 1, "b": "p"}], []], [], [[]], [[{"a": 2, "b": "q"}] * 2, [{"a": 3, "b": "r"}]], [], [], [None]],
                  pa.list_(pa.list_(pair))),
    "m": pa.array([[("k", 1)], [], [("l", 2), ("m", 3)], [], [], [], [("n", 4)]], pa.map_(pa.string(), pa.int64())),
})
deep = pa.table({
    "x": pa.array([[[[1, 2], [3, 4]], [], [[5, 6]]], [], [[[]]], [[[1], [2, 3]]], [[[], [1]]], [[[7]], [[8], [9]]]],
                  pa.list_(pa.list_(pa.list_(pa.int64())))),
    "s": pa.array([{"l": [[[["a"]], [["b"]]]]}, {"l": []}, {"l": [[[]]]}, {"l": [[[["c"], ["d"]]]]}, {"l": [[], [[]]]},
                   {"l": [[[["e", "f"]]]]}], pa.struct([("l", pa.list_(pa.list_(pa.list_(pa.list_(pa.string())))))])),
})
refused = pa.table({
    "m": pa.array([[(1, 2)]], pa.map_(pa.int32(), pa.int32())),
    "n": pa.array([[[1]]], pa.list_(pa.list_(pa.int32()))),
    "d": pa.array([1], pa.decimal128(5, 2)),
    "p": pa.array([1], pa.decimal128(5, 0)),
    "k": [1],
})
delta = {"i": "DELTA_BINARY_PACKED", "f": "BYTE_STREAM_SPLIT", "s": "DELTA_BYTE_ARRAY", "x": "DELTA_BYTE_ARRAY",
         "t": "RLE", "l.list.element": "DELTA_LENGTH_BYTE_ARRAY"}
parquet_files = {
    "nulls": (nulls, dict(row_group_size=4, compression="NONE")),
    "nulls_v2": (nulls, dict(row_group_size=4, compression="NONE", data_page_version="2.0")),
    "dictionary": (values, dict(compression="SNAPPY", row_group_size=4)),
    "plain": (values, dict(compression="GZIP", use_dictionary=False, data_page_size=1, write_batch_size=2)),
    "delta": (values, dict(compression="LZ4", use_dictionary=False, column_encoding=delta)),
    "delta_v2": (values, dict(compression="BROTLI", use_dictionary=False, column_encoding=delta,
                              data_page_version="2.0", data_page_size=1, write_batch_size=2)),
    "lists": (lists, dict(compression="NONE", data_page_size=1, write_batch_size=2)),
    "lists_v2": (lists, dict(compression="NONE", data_page_size=1, write_batch_size=2, data_page_version="2.0")),
    "groups": (groups, dict(compression="ZSTD")),
    "structs": (structs, dict(compression="NONE", row_group_size=3)),
    "structs_v2": (structs, dict(compression="NONE", data_page_size=1, write_batch_size=2, data_page_version="2.0")),
    "deep": (deep, dict(compression="NONE", use_dictionary=False)),
    "deep_v2": (deep, dict(compression="NONE", data_page_size=1, write_batch_size=2, data_page_version="2.0")),
    "refused": (refused, dict(compression="NONE")),
    "all_null": (all_null, dict(compression="NONE")),
    "no_rows": (values.slice(0, 0), dict(compression="NONE")),
}


def write(corpus, name, data):
    with open(os.path.join(os.path.dirname(__file__), "corpus", corpus, name), "wb") as f:
        f.write(data)




def unlike():
    """A list of structs whose two columns say different lengths: [1, 2], [3] and [1], [2, 3]."""
    files = []
    for rows in ([[1, 2], [3], [4]], [[1], [2, 3], [4]]):
        out = io.BytesIO()
        pq.write_table(pa.table({"x": pa.array([[{"a": v, "b": v} for v in row] for row in rows])}), out, store_schema=False,
                       write_statistics=False, compression="NONE", use_dictionary=False)
        files.append(out.getvalue())
    chunk = pq.ParquetFile(io.BytesIO(files[0])).metadata.row_group(0).column(1)
    begin, end = chunk.data_page_offset, chunk.data_page_offset + chunk.total_compressed_size
    return files[0][:begin] + files[1][begin:end] + files[0][end:]


for name, data in arrow_files.items():
    write("arrow_ipc", name, data)
for name, (table, options) in parquet_files.items():
    out = io.BytesIO()
    # Without checksums, but for one file: changed bytes are to reach what reads them.
    pq.write_table(table, out, store_schema=False, write_page_checksum=name == "nulls", write_statistics=False, **options)
    write("parquet", name, out.getvalue())
write("parquet", "unlike", unlike())
