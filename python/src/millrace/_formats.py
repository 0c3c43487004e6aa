# SPDX-License-Identifier: Apache-2.0
"""What arrays become in the formats of iterators."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np

from ._errors import Unimplemented
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
    if format == "torch":
        _import_torch()
    return {"numpy": None, "torch": to_torch, "jax": _jax, "arrow": None}[format], strings == "str"


def _import_torch() -> None:
    try:
        import torch  # type: ignore[import-not-found,unused-ignore]  # noqa: F401
    except ImportError as e:
        raise ImportError("format='torch' needs PyTorch: pip install 'millrace-data[torch]'") from e


def to_torch(array: np.ndarray[Any, Any], number: int) -> Any:
    """A tensor that may be modified in place: of memory that has no other user, else of a copy.
    number: of the dtype; arrays of bfloat16 are the bits as uint16."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    if not array.flags.writeable:
        array = array.copy()
    if number == lib.MR_BFLOAT16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    try:
        return torch.from_numpy(array)
    except TypeError:
        if array.dtype.kind != "u":
            raise
        raise Unimplemented(
            f"PyTorch {torch.__version__} has no tensors of {array.dtype}; cast them, or use PyTorch 2.3 or later"
        ) from None


def _jax(array: np.ndarray[Any, Any], number: int) -> Any:
    import jax.numpy as jnp  # type: ignore[import-not-found,unused-ignore]

    if number == lib.MR_BFLOAT16:
        array = array.view(jnp.bfloat16)
    return jnp.asarray(array)
