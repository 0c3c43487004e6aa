# SPDX-License-Identifier: Apache-2.0
"""What arrays become in the formats of iterators."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np

from ._ffi import lib

FORMATS = ("numpy", "torch", "jax", "arrow")
STRINGS = ("bytes", "str", "arrow")


def converter(format: str, strings: str) -> tuple[Callable[[Any, int], Any] | None, bool]:
    """What is called with each array and the number of its dtype (None: nothing), and whether strings
    are decoded."""
    if format not in FORMATS:
        raise ValueError(f"format is one of {', '.join(map(repr, FORMATS))}, not {format!r}")
    if strings not in STRINGS:
        raise ValueError(f"strings is one of {', '.join(map(repr, STRINGS))}, not {strings!r}")
    return {"numpy": None, "torch": _torch, "jax": _jax, "arrow": None}[format], strings == "str"


def _torch(array: np.ndarray[Any, Any], number: int) -> Any:
    """A tensor that may be modified in place: its memory is not shared, or was copied."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
    return tensor.view(torch.bfloat16) if number == lib.MR_BFLOAT16 else tensor


def _jax(array: np.ndarray[Any, Any], number: int) -> Any:
    import jax.numpy as jnp  # type: ignore[import-not-found,unused-ignore]

    if number == lib.MR_BFLOAT16:
        array = array.view(jnp.bfloat16)
    return jnp.asarray(array)
