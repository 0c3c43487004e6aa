# SPDX-License-Identifier: Apache-2.0
"""What to say of names that Millrace does not have but other libraries do."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])

OF_MODULE = {
    "AUTOTUNE": "use mr.AUTO",
    "CsvDataset": "use mr.csv(files, features)",
    "FixedLengthRecordDataset": "use mr.fixed_length_record(files, record_bytes)",
    "INFINITE_CARDINALITY": "use mr.INFINITE",
    "TFRecordDataset": "use mr.tfrecord(files)",
    "TextLineDataset": "use mr.text_line(files)",
    "UNKNOWN_CARDINALITY": "use mr.UNKNOWN",
    "DataLoader": "loop over a dataset; its batches are those of ds.batch(n)",
    "ImageFolder": "use mr.image_folder(dir)",
    "WebDataset": "use mr.tar(files)",
    "json": "use mr.jsonl(files, features)",
    "read_csv": "use mr.csv(files, features)",
    "read_parquet": "use mr.parquet(files)",
    "text": "use mr.text_line(files)",
}
OF_DATASET = {
    "apply": "call the function with the dataset: f(ds)",
    "as_numpy_iterator": "loop over the dataset: its elements are numpy arrays",
    "batched": "use batch(n)",
    "dtype": "element_spec has the types and shapes of elements",
    "dtypes": "element_spec has the types and shapes of elements",
    "features": "element_spec has the types and shapes of elements",
    "column_names": "element_spec has the types and shapes of elements",
    "shape": "element_spec has the types and shapes of elements",
    "from_list": "use millrace.from_tensor_slices",
    "get_single_element": "use next(iter(ds))",
    "reduce": "loop over the dataset, or use scan",
    "select": "use filter(fn)",
    "state_dict": "an iterator has it: it = ds.iterator(), then it.state_dict()",
    "load_state_dict": "an iterator has it: it = ds.iterator(), then it.load_state_dict(state)",
    "to_tuple": "return a tuple from map",
}


OF_EXPR = {  # methods of tensors elsewhere
    "bool": 'write x.astype("bool")',
    "decode": "strings are bytes here; strings='str' of ds.iterator decodes them",
    "double": 'write x.astype("float64")',
    "endswith": "write x.ends_with(ending)",
    "flatten": "write np.ravel(x)",
    "float": 'write x.astype("float32")',
    "get": 'write x["name"]',
    "half": 'write x.astype("float16")',
    "int": 'write x.astype("int32")',
    "long": 'write x.astype("int64")',
    "permute": "write x.transpose([...])",
    "replace": "write x.regex_replace(pattern, rewrite)",
    "startswith": "write x.starts_with(beginning)",
    "to": 'write x.astype("float32"); a device is chosen where batches are loaded',
    "type": 'write x.astype("float32")',
    "unsqueeze": "write x.expand_dims(axis)",
    "view": "write x.reshape([...])",
}


OF_LOADER = {  # arguments of torch.utils.data.DataLoader
    "batch_sampler": "batch the dataset: ds.batch(n)",
    "batch_size": "batch the dataset: ds.batch(n)",
    "collate_fn": "collate=f gets the batches; ds.padded_batch(n) and ds.ragged_batch(n) make them of rows that differ",
    "drop_last": "use ds.batch(n, drop_remainder=True)",
    "generator": "give seed= to ds.shuffle",
    "num_workers": "the library's threads run the pipeline: num_parallel_calls of ds.map",
    "persistent_workers": "the library's threads run the pipeline: num_parallel_calls of ds.map",
    "prefetch_factor": "use ds.prefetch(n) at the end of the dataset",
    "sampler": "shuffle the dataset, ds.shuffle(buffer_size), and give rank and world_size for a part of it",
    "shuffle": "shuffle the dataset before it is batched: ds.shuffle(buffer_size).batch(n)",
    "worker_init_fn": "random functions depend on the element and seed=",
}


def arguments(what: str, hints: dict[str, str]) -> Callable[[_F], _F]:
    """For a function whose callers know that of another library: says what to do instead of its
    arguments."""

    def wrap(function: _F) -> _F:
        own = inspect.signature(function).parameters

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            for name in kwargs:
                if name in hints and name not in own:
                    raise TypeError(f"{what}: there is no argument {name!r}; {hints[name]}")
            return function(*args, **kwargs)

        return call  # type: ignore[return-value]

    return wrap


def missing(owner: object, what: str, name: str, hints: dict[str, str]) -> NoReturn:
    """Raises AttributeError, from which the interpreter also finds similar names."""
    hint = f"; {hints[name]}" if name in hints else ""
    raise AttributeError(f"{what} has no attribute {name!r}{hint}", name=name, obj=owner)


class Kind(type):
    """The class of Dataset: tf.data's sources are functions of its class."""

    def _missing(cls, name: str) -> NoReturn:
        import millrace

        hints = OF_DATASET
        if not name.startswith("_") and hasattr(millrace, name):
            hints = {name: f"sources are functions of the module: millrace.{name}"}
        missing(cls, f"type object {cls.__name__!r}", name, hints)


# Hidden from type checkers, which would allow any name.
setattr(Kind, "__getattr__", Kind._missing)  # noqa: B010
