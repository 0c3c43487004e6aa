# SPDX-License-Identifier: Apache-2.0
"""zip of structures of datasets, as in tf.data."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Mapping
from typing import Any

from . import _generated
from ._dataset import Dataset


def _leaves(x: Any) -> Iterator[Dataset]:
    if isinstance(x, Mapping):
        for v in x.values():
            yield from _leaves(v)
    elif isinstance(x, (tuple, list)):
        for v in x:
            yield from _leaves(v)
    else:
        yield x


def _like(x: Any, leaves: Iterator[Any]) -> Any:
    if isinstance(x, Mapping):
        return {k: _like(v, leaves) for k, v in x.items()}
    if isinstance(x, (tuple, list)):
        return tuple([_like(v, leaves) for v in x])
    return next(leaves)


def zip(*datasets: Any) -> Dataset:
    """Combines one element of each dataset; ends with the shortest. Of datasets in a tuple or dict,
    also a nested one, elements have its structure.

        >>> import millrace as mr
        >>> list(mr.zip(mr.range(3), mr.range(10, 20)))
        [(0, 10), (1, 11), (2, 12)]
        >>> list(mr.zip({"x": mr.range(2), "y": mr.range(5, 9)}))
        [{'x': 0, 'y': 5}, {'x': 1, 'y': 6}]

    Order: of each input kept. Memory: a block of each input. State: that of its inputs. Elements:
    that of the shortest input.
    """
    structure: Any = datasets[0] if len(datasets) == 1 else datasets
    flat = tuple(_leaves(structure))
    zipped = _generated.zip(*flat)
    if isinstance(structure, (tuple, list)) and len(flat) == len(structure):
        if all(s is f for s, f in builtins.zip(structure, flat)):
            return zipped
    return zipped.map(lambda *x: _like(structure, iter(x)))
