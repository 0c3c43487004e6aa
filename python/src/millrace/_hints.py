# SPDX-License-Identifier: Apache-2.0
"""What to say of names that Millrace does not have but other libraries do."""

from __future__ import annotations

from typing import NoReturn

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
}
OF_DATASET = {
    "apply": "call the function with the dataset: f(ds)",
    "as_numpy_iterator": "loop over the dataset: its elements are numpy arrays",
    "batched": "use batch(n)",
    "from_list": "use millrace.from_tensor_slices",
    "get_single_element": "use next(iter(ds))",
    "reduce": "loop over the dataset, or use scan",
    "select": "use filter(fn)",
    "state_dict": "an iterator has it: it = ds.iterator(), then it.state_dict()",
    "load_state_dict": "an iterator has it: it = ds.iterator(), then it.load_state_dict(state)",
    "to_tuple": "return a tuple from map",
}


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
