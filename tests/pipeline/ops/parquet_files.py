#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/pipeline/ops/parquet_files.h and the corpus of tests/fuzz/fuzz_parquet.c: small Parquet files as pyarrow writes them.

    parquet_files.py ROOT      ROOT: that of the source tree. Needs pyarrow; it was run with 26.0.1.
"""
import io
import os
import sys

import pyarrow as pa
import pyarrow.parquet as pq

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
refused = pa.table({
    "m": pa.array([[(1, 2)]], pa.map_(pa.int32(), pa.int32())),
    "n": pa.array([[[1]]], pa.list_(pa.list_(pa.int32()))),
    "d": pa.array([1], pa.decimal128(5, 2)),
    "p": pa.array([1], pa.decimal128(5, 0)),
    "k": [1],
})
delta = {"i": "DELTA_BINARY_PACKED", "f": "BYTE_STREAM_SPLIT", "s": "DELTA_BYTE_ARRAY", "x": "DELTA_BYTE_ARRAY",
         "t": "RLE", "l.list.element": "DELTA_LENGTH_BYTE_ARRAY"}
files = {
    "nulls": (nulls, dict(row_group_size=4, compression="NONE")),
    "nulls_v2": (nulls, dict(row_group_size=4, compression="NONE", data_page_version="2.0")),
    "dictionary": (values, dict(compression="SNAPPY", row_group_size=4)),
    "plain": (values, dict(compression="GZIP", use_dictionary=False, data_page_size=1, write_batch_size=2)),
    "delta": (values, dict(compression="LZ4", use_dictionary=False, column_encoding=delta)),
    "delta_v2": (values, dict(compression="BROTLI", use_dictionary=False, column_encoding=delta,
                              data_page_version="2.0", data_page_size=1, write_batch_size=2)),
    "groups": (groups, dict(compression="ZSTD")),
    "refused": (refused, dict(compression="NONE")),
    "no_rows": (values.slice(0, 0), dict(compression="NONE")),
}


def main(root):
    lines = ["/* SPDX-License-Identifier: Apache-2.0 */",
             "#ifndef MR_TESTS_PARQUET_FILES_H",
             "#define MR_TESTS_PARQUET_FILES_H",
             "/* Made by parquet_files.py. */",
             "#include <stddef.h>",
             ""]
    names = []
    corpus = os.path.join(root, "tests/fuzz/corpus/parquet")
    os.makedirs(corpus, exist_ok=True)
    for name, (table, options) in files.items():
        out = io.BytesIO()
        # Without checksums, but for one file: changed bytes are to reach what reads them.
        pq.write_table(table, out, store_schema=False, write_page_checksum=name == "nulls", write_statistics=False,
                       **options)
        data = out.getvalue()
        with open(os.path.join(corpus, name), "wb") as f:
            f.write(data)
        lines.append("/* clang-format off */" if not names else "")
        lines.append(f"static const unsigned char parquet_{name}[] = {{")
        for i in range(0, len(data), 20):
            lines.append("    " + "".join(f"{b}," for b in data[i:i + 20]))
        lines.append("};")
        names.append(name)
    lines += ["/* clang-format on */", "",
              "static const struct parquet_file {", "    const char *name;", "    const unsigned char *data;",
              "    size_t size;", "} parquet_files[] = {"]
    lines += [f'    {{"{n}", parquet_{n}, sizeof parquet_{n}}},' for n in names]
    lines += ["};", "#endif"]
    with open(os.path.join(root, "tests/pipeline/ops/parquet_files.h"), "w") as f:
        f.write("\n".join(lines) + "\n")


main(sys.argv[1])
