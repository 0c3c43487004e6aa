# SPDX-License-Identifier: Apache-2.0
"""Typical use, for mypy and pyright: tests/python/lint.sh checks that they find nothing to say of it. It
runs too, in test_package.py."""

from __future__ import annotations

from typing import assert_type

import numpy as np

import millrace as mr


def parse(record: mr.Expr) -> tuple[mr.Expr, mr.Expr]:
    example = mr.fn.parse_example(record, image=mr.bytes, label=mr.int64)
    image = mr.fn.resize(mr.fn.decode_image(example["image"], channels=3), [224, 224]) / 255.0
    return image, example["label"]


def images(pattern: str) -> mr.Dataset:
    return (
        mr.tfrecord(pattern, num_parallel_reads=mr.AUTO)
        .shuffle(100_000, seed=1, reshuffle_each_iteration=True)
        .map(parse, num_parallel_calls=4, deterministic=False)
        .batch(256, drop_remainder=True)
        .prefetch(2)
    )


def evens(n: int) -> mr.Dataset:
    ds = mr.range(n).filter(lambda x: x % 2 == 0)
    ds = ds.map(lambda x: {"x": x, "root": mr.fn.sqrt(mr.fn.cast(x, mr.float32)), "sign": mr.fn.where(x > 3, 1, -1)})
    return ds.interleave(lambda e: mr.from_tensors(e).repeat(2), cycle_length=2)[:10]


def read(ds: mr.Dataset) -> int:
    """Positions, options, errors."""
    count = 0
    with ds.iterator(format="numpy", threads=2, seed=7, memory_limit="1G") as it:
        assert_type(it, mr.Iterator)
        try:
            for element in it:
                count += int(element["x"])
        except mr.DataLoss as e:
            print(e.code, e.op, e.element, e.file, e.record, e.offset)
        state = it.state_dict()
        it.load_state_dict(state)
    return count


def main() -> None:
    ds = evens(20)
    assert_type(ds, mr.Dataset)
    assert_type(ds.cardinality(), int)
    assert_type(str(ds), str)
    assert read(ds) == 0 + 2 + 0 + 2 + 4 + 6 + 4 + 6 + 8 + 10
    text: str = str(mr.from_text("range(3).batch(2)"))
    assert mr.from_text(text) == mr.from_text(text)
    slices = mr.from_tensor_slices({"a": np.arange(4), "b": [1.0, 2.0, 3.0, 4.0]})
    spec = slices.element_spec
    assert isinstance(spec["a"], mr.TensorSpec)
    zipped = mr.zip(slices, mr.range(4)).batch(2)
    for _batch in zipped:
        pass
    if ds.cardinality() not in (mr.UNKNOWN, mr.INFINITE):
        assert len(ds) == 10


if __name__ == "__main__":
    main()
