# SPDX-License-Identifier: Apache-2.0
"""Datasets as those of tf.data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ._errors import InvalidArgument
from ._types import DatasetSpec, Ragged, Spec, TensorSpec

if TYPE_CHECKING:
    from ._dataset import Dataset


def as_tf_dataset(ds: Dataset) -> Any:
    try:
        import tensorflow as tf  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        raise ImportError("as_tf_dataset needs TensorFlow: pip install tensorflow") from None

    from ._dataset import INFINITE, UNKNOWN

    spec = ds.element_spec
    signature = _signature(tf, spec, "")

    def elements() -> Any:
        for element in ds:
            yield _given(tf, element, spec)

    out = tf.data.Dataset.from_generator(elements, output_signature=signature)
    n = ds.cardinality()
    if n != UNKNOWN:
        out = out.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY if n == INFINITE else n))
    return out


def _signature(tf: Any, spec: Spec, path: str) -> Any:
    if isinstance(spec, tuple):
        return tuple(_signature(tf, s, f"{path}/{i}".lstrip("/")) for i, s in enumerate(spec))
    if isinstance(spec, dict):
        return {k: _signature(tf, s, f"{path}/{k}".lstrip("/")) for k, s in spec.items()}
    if isinstance(spec, DatasetSpec):
        raise InvalidArgument(
            f"{path or 'the element'} is a dataset, which elements of tf.data are not made of here; "
            "flat_map(lambda d: d) makes elements of its elements"
        )
    dtype = _dtype(tf, spec)
    if spec.ragged:
        assert spec.shape is not None
        return tf.RaggedTensorSpec((spec.shape[0], None) + spec.shape[2:], dtype, 1, tf.int64)
    return tf.TensorSpec(spec.shape, dtype)


def _dtype(tf: Any, spec: TensorSpec) -> Any:
    return tf.string if spec.dtype.name == "bytes" else tf.as_dtype(spec.dtype.name)


def _given(tf: Any, x: Any, spec: Any) -> Any:
    """The element without shared memory: TensorFlow takes arrays over without a copy, and may write them."""
    if isinstance(x, tuple):
        return tuple(_given(tf, v, s) for v, s in zip(x, spec))
    if isinstance(x, dict):
        return {k: _given(tf, v, spec[k]) for k, v in x.items()}
    if isinstance(x, Ragged):
        values = tf.constant(x.values, _dtype(tf, spec))
        return tf.RaggedTensor.from_row_splits(values, np.array(x.row_splits), validate=False)
    return x.copy() if isinstance(x, np.ndarray) and not x.flags.writeable else x
