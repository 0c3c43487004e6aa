#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints arrow_fixtures.h: small Arrow files as pyarrow writes them, in base64.

    arrow_fixtures.py > arrow_fixtures.h        (made with pyarrow 26)
"""
import base64
import io

import pyarrow as pa

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


FIXTURES = {
    "deltas": (
        "dictionary s: b a - b, then with c added c b; n: 0 - 2 3, 4 5",
        written(
            [
                batch(s=coded([1, 0, None, 1], ["a", "b"]), n=pa.array([0, None, 2, 3])),
                batch(s=coded([2, 1], ["a", "b", "c"]), n=pa.array([4, 5])),
            ],
            options=DELTAS,
        ),
    ),
    "replaced": (
        "dictionary s: a b, then another one: x x; in a null value: y -",
        written([batch(s=coded([0, 1], ["a", "b"])), batch(s=coded([0, 0], ["x"])), batch(s=coded([0, 1], ["y", None]))]),
    ),
    "lz4": (
        "file, LZ4: x: 100 times 7, s: 100 times 'same'",
        written([batch(x=pa.array([7] * 100), s=pa.array(["same"] * 100))], pa.ipc.new_file, LZ4),
    ),
    "zstd": (
        "file, zstd: x: 0 .. 99 // 10",
        written([batch(x=pa.array([i // 10 for i in range(100)], pa.int16()))], pa.ipc.new_file, ZSTD),
    ),
    "legacy": (
        "V4 without marks: days, seconds, times, half, bits, fixed",
        written(
            [
                batch(
                    days=times(32, [-1, 20000], pa.date32()),
                    seconds=times(32, [1, 2], pa.time32("s")),
                    ts=times(64, [-5, 1 << 40], pa.timestamp("us", "UTC")),
                    half=pa.array([0.5, -2.0], pa.float32()).cast(pa.float16()),
                    bits=pa.array([True, False]),
                    fixed=pa.array([b"abc", b"xyz"], pa.binary(3)),
                )
            ],
            options=V4,
        ),
    ),
    "nulls": (
        "lists with nulls: [1] - [2, -] [3]; struct: {x: 1} - {x: -} {x: 4}",
        written(
            [
                batch(
                    l=pa.array([[1], None, [2, None], [3]], pa.list_(pa.int32())),
                    p=pa.array([{"x": 1}, {"x": 2}, {"x": 3}, {"x": 4}]),
                    q=pa.array([{"x": 1}, None, {"x": None}, {"x": 4}]),
                )
            ]
        ),
    ),
    "odd": (
        "columns that elements cannot have beside a: 1 2 and z: 3 4",
        written(
            [
                batch(
                    a=pa.array([1, 2]),
                    decimal=pa.array([1, 2]).cast(pa.decimal128(20, 1)),
                    map=pa.array([[("k", 1)], []], pa.map_(pa.utf8(), pa.int64())),
                    none=pa.nulls(2),
                    union=pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([1, 2])]),
                    view=pa.array(["short", "longer than twelve bytes"], pa.string_view()),
                    runs=pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int32()), pa.array([5])),
                    structs=pa.array([[{"x": 1}], []]),
                    z=pa.array([3, 4]),
                )
            ]
        ),
    ),
}

print("/* SPDX-License-Identifier: Apache-2.0 */")
print("#ifndef MR_TESTS_ARROW_FIXTURES_H\n#define MR_TESTS_ARROW_FIXTURES_H")
print("/* Printed by arrow_fixtures.py: small Arrow streams and files of pyarrow's, in base64. */")
for name, (what, data) in FIXTURES.items():
    text = base64.b64encode(data).decode()
    print(f"\n/* {what} */\nstatic const char arrow_{name}[] =")
    lines = [text[i : i + 88] for i in range(0, len(text), 88)]
    print("\n".join(f'    "{line}"' for line in lines) + ";")
print("#endif")
