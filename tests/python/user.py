# SPDX-License-Identifier: Apache-2.0
"""What install.sh and wheel.sh do with an installed package, in an empty working directory: each
format whose library is opened on first use, through the program and through the module."""

import ctypes
import io
import os
import struct
import subprocess
import sys
import tarfile
import zlib

import numpy as np

import millrace as mr

PACKAGE = os.path.dirname(os.path.abspath(mr.__file__))


def millrace(*arguments: str) -> str:
    program = os.path.join(os.path.dirname(sys.executable), "millrace")
    return subprocess.run([program, *arguments], check=True, capture_output=True, text=True).stdout


def write(prefix: str, expression: str, *options: str) -> None:
    millrace("write", "--out", prefix, "--expr", expression, *options)


def png(pixels: np.ndarray) -> bytes:
    height, width = pixels.shape
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(b"".join(b"\0" + row.tobytes() for row in pixels))),
        (b"IEND", b""),
    )
    out = b"\x89PNG\r\n\x1a\n"
    for name, data in parts:
        out += struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    return out


# The program, and those that it starts.
assert millrace("show", "range(3).map(x => x / 2)") == "0.0\n0.5\n1.0\n"
assert "loss" in millrace(
    "train", "--data", 'range(64).map(i => (cast(i % 7, "float32"), 2.0 * cast(i % 7, "float32"))).batch(16)',
    "--model", "reshape([1]).dense(1)", "--loss", "mse", "--optimizer", "sgd(learning_rate=0.01)", "--steps", "2",
    "--log", "json",
)  # fmt: skip
assert "usage" in millrace("dispatcher", "--help")

# Records, plain and compressed: read, written, parsed.
record = 'range(10).map(x => {"number": x, "half": x / 2})'
for codec in (None, "GZIP", "ZSTD", "zstd-record"):
    prefix = f"records-{codec}"
    write(prefix, record, "--shards", "2", *(["--compress", codec] if codec else []))
    if codec == "zstd-record":
        ds = mr.tfrecord(f"{prefix}-*.tfrecord", record_compression="ZSTD")
    else:
        ds = mr.tfrecord(f"{prefix}-*.tfrecord", compression=codec or "")
    ds = ds.map(lambda r: mr.fn.parse_example(r, number=mr.int64, half=mr.float32)).batch(10)
    batch = next(iter(ds))
    assert sorted(batch["number"].tolist()) == list(range(10)), batch
    assert sorted(batch["half"].tolist()) == [x / 2 for x in range(10)], batch

# Columns, compressed with ZSTD.
write("columns", record, "--format", "parquet")
columns = next(iter(mr.parquet("columns-*.parquet").batch(10)))
assert columns["number"].tolist() == list(range(10)), columns
with open("columns-00000-of-00001.parquet", "rb") as f:
    assert b"\x28\xb5\x2f\xfd" in f.read(), "not compressed with ZSTD"

# Images.
ramp = np.arange(64, dtype=np.uint8).reshape(8, 8)
jpegs = mr.from_tensors(np.stack([ramp * 4] * 3, axis=-1)).map(lambda x: mr.fn.encode_jpeg(x, quality=100))
pixels = next(iter(jpegs.map(lambda x: mr.fn.decode_image(x, channels=1))))
assert pixels.shape == (8, 8, 1) and abs(pixels[..., 0].astype(int) - ramp * 4).max() <= 8, pixels
assert (next(iter(mr.from_tensors(png(ramp)).map(lambda x: mr.fn.decode_png(x))))[..., 0] == ramp).all()

# Archives, arrays, regular expressions, graphs in protobuf form.
with tarfile.open("two.tar.gz", "w:gz") as tar:
    for name in ("0.txt", "1.txt"):
        member = tarfile.TarInfo(name)
        member.size = len(name)
        tar.addfile(member, io.BytesIO(name.encode()))
assert len(list(mr.tar("two.tar.gz"))) == 2
np.savez_compressed("arrays.npz", x=np.arange(5))
assert [int(e["x"]) for e in mr.npz("arrays.npz")] == list(range(5))
assert [bool(x) for x in mr.from_tensor_slices(["a1", "b"]).map(lambda x: mr.fn.regex_search(x, "[a-z][0-9]"))] == [True, False]
assert mr.from_text("range(3).batch(2)").__reduce__()[1][0]

# Every copy of a library finds what it needs, and nothing of ours is from anywhere else.
lib = os.path.join(PACKAGE, "lib")
for name in sorted(os.listdir(lib)):
    if ".so" in name:
        ctypes.CDLL(os.path.join(lib, name))
with open("/proc/self/maps") as maps:
    mapped = {line.split(maxsplit=5)[5].strip() for line in maps if "millrace" in line}
elsewhere = {path for path in mapped if not path.startswith(PACKAGE + os.sep)}
assert mapped and not elsewhere, elsewhere
print("the package works")
