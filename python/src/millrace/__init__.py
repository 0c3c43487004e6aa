# SPDX-License-Identifier: Apache-2.0
"""Input pipelines for training on several devices.

    import millrace as mr

    ds = mr.from_text('range(1000).shuffle(100, seed=1).batch(32)')
    for batch in ds:
        ...                     # a numpy array

Sources are functions of this module, transformations methods of `mr.Dataset`. The functions that
`map`, `filter` and others take are called once and recorded; `mr.fn` has what they can call.
"""

from __future__ import annotations

import atexit as _atexit
import sys as _sys
import types as _types_of_python
import typing as _typing

import numpy as _np

from . import _dataset, _errors, _fast, _ffi, _hints, _iterator, _log, _trace, _types, _values
from . import fn as fn
from ._dataset import INFINITE as INFINITE
from ._dataset import UNKNOWN as UNKNOWN
from ._dataset import Dataset as Dataset
from ._dataset import from_text as from_text
from ._distribute import DistributedDataset as DistributedDataset
from ._distribute import DistributedIterator as DistributedIterator
from ._distribute import InputContext as InputContext
from ._distribute import ValueContext as ValueContext
from ._distribute import distribute_dataset as distribute_dataset
from ._distribute import distribute_datasets_from_function as distribute_datasets_from_function
from ._distribute import distribute_values_from_function as distribute_values_from_function
from ._distribute import join_states as join_states
from ._errors import Aborted as Aborted
from ._errors import AlreadyExists as AlreadyExists
from ._errors import Cancelled as Cancelled
from ._errors import DataLoss as DataLoss
from ._errors import DeadlineExceeded as DeadlineExceeded
from ._errors import Error as Error
from ._errors import FailedPrecondition as FailedPrecondition
from ._errors import ForkError as ForkError
from ._errors import Internal as Internal
from ._errors import InvalidArgument as InvalidArgument
from ._errors import NotFound as NotFound
from ._errors import OutOfRange as OutOfRange
from ._errors import PermissionDenied as PermissionDenied
from ._errors import ResourceExhausted as ResourceExhausted
from ._errors import TraceError as TraceError
from ._errors import Unavailable as Unavailable
from ._errors import Unimplemented as Unimplemented
from ._generated import arrow as arrow
from ._generated import choose_from_datasets as choose_from_datasets
from ._generated import counter as counter
from ._generated import csv as csv
from ._generated import distributed_dataset as distributed_dataset
from ._generated import files as files
from ._generated import fixed_length_record as fixed_length_record
from ._generated import image_folder as image_folder
from ._generated import jsonl as jsonl
from ._generated import list_files as list_files
from ._generated import load as load
from ._generated import mix as mix
from ._generated import npy as npy
from ._generated import npz as npz
from ._generated import parquet as parquet
from ._generated import random as random
from ._generated import range as range
from ._generated import sample_from_datasets as sample_from_datasets
from ._generated import tar as tar
from ._generated import text_line as text_line
from ._generated import tfrecord as tfrecord
from ._iterator import Iterator as Iterator
from ._memory import from_arrow as from_arrow
from ._memory import from_tensor_slices as from_tensor_slices
from ._memory import from_tensors as from_tensors
from ._plugin import load_plugin as load_plugin
from ._progress import progress as progress
from ._python import from_generator as from_generator
from ._python import from_sequence as from_sequence
from ._python import register as register
from ._trace import Expr as Expr
from ._types import DatasetSpec as DatasetSpec
from ._types import DType as DType
from ._types import Ragged as Ragged
from ._types import ShapedType as ShapedType
from ._types import TensorSpec as TensorSpec
from ._types import bfloat16 as bfloat16
from ._types import bool as bool
from ._types import bytes as bytes
from ._types import float16 as float16
from ._types import float32 as float32
from ._types import float64 as float64
from ._types import int8 as int8
from ._types import int16 as int16
from ._types import int32 as int32
from ._types import int64 as int64
from ._types import string as string
from ._types import uint8 as uint8
from ._types import uint16 as uint16
from ._types import uint32 as uint32
from ._types import uint64 as uint64
from ._values import AUTO as AUTO
from ._write import Written as Written
from ._write import write as write
from ._zip import zip as zip

if not _typing.TYPE_CHECKING:  # which would allow any name

    def __getattr__(name: str) -> object:
        _hints.missing(_sys.modules[__name__], f"module {__name__!r}", name, _hints.OF_MODULE)


__version__: str = _errors.text_of(_ffi.lib.mr_version())

_fast.setup(
    _np.ndarray,
    _np.empty,
    _np.dtype(object),
    Ragged,
    _dataset.dataset_at,
    ForkError,
    _types.bfloat16_array,
    _types.fast_types(),
)
_log.start()


def _at_exit() -> None:
    try:
        _iterator.at_exit()
    finally:
        _log.stop()


_atexit.register(_at_exit)
for _kind in list(globals().values()):  # they are shown by the names that users know
    if isinstance(_kind, type) and _kind.__module__.startswith("millrace."):
        _kind.__module__ = "millrace"
for _member in (*vars(Dataset).values(), *vars(Iterator).values(), *list(globals().values())):
    if isinstance(_member, _types_of_python.FunctionType):
        _trace.unquote(getattr(_member, "__wrapped__", _member))
del annotations  # of __future__
