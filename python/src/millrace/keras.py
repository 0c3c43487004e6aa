# SPDX-License-Identifier: Apache-2.0
# pyright: reportAttributeAccessIssue=false
# It takes `import keras` for this package's module, where the other is not installed.
"""Datasets for `fit`, `evaluate` and `predict` of Keras 3, with any back end.

    import keras
    import millrace as mr
    from millrace.keras import PyDataset

    model.fit(PyDataset(ds), validation_data=PyDataset(test), epochs=3)
"""

from __future__ import annotations

import inspect
import sys
import threading
from typing import TYPE_CHECKING, Any

import keras  # type: ignore[import-not-found,import-untyped,unused-ignore]
import numpy as np

from ._dataset import INFINITE, UNKNOWN
from ._errors import FailedPrecondition, InvalidArgument, without_secrets
from ._log import logger
from ._trail import Trail, go_to
from ._types import DatasetSpec, Spec, TensorSpec

if TYPE_CHECKING:
    from ._dataset import Dataset

__all__ = ["PyDataset"]

HELD = 2  # batches that Keras may look at before it begins, and then asks for again
LOOKED_AT = 16  # most of them
KEPT = 64  # batches back, up to which positions are known: back ends read ahead


class PyDataset(keras.utils.PyDataset):  # type: ignore[misc,unused-ignore]
    """The batches of a dataset: (inputs, targets), (inputs, targets, sample_weights), or inputs alone.

    Args:
        ds: its elements are batches, for example of `batch(32)`.

    Batches come in the dataset's order, and each epoch of Keras is the dataset's next one; `shuffle` of
    `fit` has no effect, `ds.shuffle(...)` has. Where the number of batches is unknown, it is counted when it is
    asked for, which reads the data once; `ds.assert_cardinality(n)` saves that. For a dataset
    without end `fit` needs `steps_per_epoch`. The library works on its own threads, so there is no
    `workers`.

    To resume within an epoch, save `state_dict(batch + 1)` in a callback's `on_train_batch_end(batch, logs)`;
    later, after `load_state_dict(state)`, `fit(data, initial_epoch=e, epochs=e + 1)` trains the rest
    of the epoch e, and the next `fit` those after it.
    """

    def __init__(self, ds: Dataset) -> None:
        super().__init__()
        _check(ds.element_spec, "")
        self.dataset = ds
        self._lock = threading.Lock()
        self._trail: Trail | None = None  # of the current epoch
        self._held: list[Any] = []  # its first batches, as long as no other was read
        self._pass: Any = None  # what reads: a generator's frame
        self._at = 0  # batches that it has got
        self._base = 0  # those before the epoch of Keras, where it has several in a pass
        self._count: int | None = None
        self._skipped = 0  # batches of this epoch before the position that was loaded
        self._copy = keras.backend.backend() in ("torch", "tensorflow")

    @property
    def num_batches(self) -> int | None:
        """The number of batches in the epoch; None: there is no end. After `load_state_dict`, those that
        are left."""
        with self._lock:
            left = self._left()
            return left if left is None or self._at != left else left + self._skipped  # of the next epoch

    def _left(self) -> int | None:
        """The batches of this epoch, without those before the position that was loaded."""
        n = self.dataset.cardinality()
        if n == INFINITE:
            return None
        if n == UNKNOWN:
            if self._count is None:
                logger.info("counting the batches of %s, as Keras needs their number", self.dataset)
                self._count = self.dataset.bench().elements
            n = self._count
        return n - self._skipped

    # Keras asks for batches by number, in a random order if fit's `shuffle` is true; what it wants is
    # each batch once. Its adapter reads a pass in a generator, may look at two batches before, and may
    # leave a pass after the first batch to begin again. So it matters who asks, not for which number.
    def __getitem__(self, index: int) -> Any:
        frame = sys._getframe(1)
        with self._lock:
            if not frame.f_code.co_flags & inspect.CO_GENERATOR:
                return self._look(index)
            if frame is not self._pass:
                if self._at and (self._read() > HELD or self._at == self._left()):
                    self._next_epoch()
                self._pass, self._at, self._base = frame, 0, 0
            if self._at < len(self._held):
                batch = self._held[self._at]
            else:
                batch = self._pull()
                if self._read() <= HELD and self._read() == len(self._held) + 1:
                    self._held.append(batch)
                else:
                    self._held.clear()
            self._at += 1
            return batch

    def _look(self, index: int) -> Any:
        """A batch at the beginning, which comes again in the pass that follows."""
        if self._at:
            if self._read() > len(self._held) or self._at == self._left():
                self._next_epoch()
            self._pass, self._at = None, 0
        if not 0 <= index < LOOKED_AT:
            raise InvalidArgument(f"batches are read in order, and {index} is not near the beginning; iterate over them")
        while len(self._held) <= index:
            self._held.append(self._pull())
        return self._held[index]

    def _read(self) -> int:
        return 0 if self._trail is None else self._trail.count

    def _pull(self) -> Any:
        if self._trail is None:
            self._trail = Trail(self.dataset.iterator(), KEPT)
        try:
            return self._ready(next(self._trail))
        except StopIteration:
            raise FailedPrecondition(
                f"the epoch ended after {self._read() + self._skipped} batches, earlier than expected; if its "
                "length varies, repeat() the dataset and give fit steps_per_epoch"
            ) from None

    def _next_epoch(self) -> None:
        trail, self._trail = self._trail, None
        if trail is not None:
            trail.it.close()
        self._held.clear()
        self._pass, self._at, self._base, self._skipped = None, 0, 0, 0

    def on_epoch_begin(self) -> None:
        """Called by Keras."""
        with self._lock:
            self._base = self._at

    def _ready(self, batch: Any) -> Any:
        return _writable(batch) if self._copy else batch

    def state_dict(self, batches: int | None = None) -> dict[str, Any]:
        """A position in the epoch, which can be stored as JSON: after its first `batches` batches that Keras
        has trained on, which is `batch + 1` in a callback's `on_train_batch_end`; None: after the last
        one that was read, which may be ahead of the training."""
        with self._lock:
            if self._trail is None:
                self._trail = Trail(self.dataset.iterator(), KEPT)
            count = self._at if batches is None else self._base + batches
            if not 0 <= count <= self._trail.count:
                raise InvalidArgument(f"{batches} batches: only {self._trail.count - self._base} were read in this epoch")
            state = self._trail.state_at(count)
            state["batches"] = self._skipped + count
            return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes to a position that `state_dict` returned."""
        if not isinstance(state, dict) or not isinstance(state.get("batches"), int):
            raise InvalidArgument(f"not a position of a PyDataset: {state!r:.80}")
        with self._lock:
            it = self.dataset.iterator()
            go_to(it, state)
            self._next_epoch()
            self._trail = Trail(it, KEPT)
            self._skipped = state["batches"]

    def __repr__(self) -> str:
        return f"<millrace.keras.PyDataset of {without_secrets(str(self.dataset))}>"


def _writable(x: Any) -> Any:
    """The batch, with arrays that are not shared: these back ends take the memory over, and may
    write it."""
    if isinstance(x, tuple):
        return tuple(_writable(v) for v in x)
    if isinstance(x, dict):
        return {k: _writable(v) for k, v in x.items()}
    return x if not isinstance(x, np.ndarray) or x.flags.writeable else x.copy()


def _check(spec: Spec, path: str) -> None:
    if isinstance(spec, tuple):
        if not path and len(spec) not in (1, 2, 3):
            raise InvalidArgument(
                f"Keras takes (inputs, targets, sample_weights), the last two may be missing, not {len(spec)} components"
            )
        for i, s in enumerate(spec):
            _check(s, f"{path}/{i}".lstrip("/"))
    elif isinstance(spec, dict):
        for k, s in spec.items():
            _check(s, f"{path}/{k}".lstrip("/"))
    elif isinstance(spec, DatasetSpec):
        raise InvalidArgument(f"{path or 'the element'} is a dataset, which Keras cannot take as a batch")
    elif isinstance(spec, TensorSpec) and spec.ragged:
        raise InvalidArgument(
            f"{path or 'the element'} is ragged: use padded_batch, or as_tf_dataset() for layers that take ragged tensors"
        )
    elif isinstance(spec, TensorSpec) and spec.shape == ():
        raise InvalidArgument(f"{path or 'the element'} is a scalar, and Keras takes batches: batch(32)")
