# SPDX-License-Identifier: Apache-2.0
"""Batches as global arrays of JAX.

    import jax
    import millrace as mr
    from jax.sharding import NamedSharding, PartitionSpec
    from millrace.jax import DataLoader

    mesh = jax.sharding.Mesh(jax.devices(), ("data",))
    local = ds.shard(jax.process_count(), jax.process_index()).batch(32, drop_remainder=True)
    loader = DataLoader(local, sharding=NamedSharding(mesh, PartitionSpec("data")))
    for batch in loader:
        state = train_step(state, batch)
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Callable

import jax  # type: ignore[import-not-found,unused-ignore]
import numpy as np

from ._agreement import BATCH, END, Agreement, Closed
from ._errors import FailedPrecondition, ForkError, InvalidArgument, without_secrets
from ._formats import narrowed
from ._trail import Trail, go_to
from ._types import DatasetSpec, TensorSpec, dtype_of_numpy
from ._types import bytes as _bytes

if TYPE_CHECKING:
    from ._dataset import Dataset
    from ._orbax import CheckpointHandler as CheckpointHandler
    from ._orbax import CheckpointRestore as CheckpointRestore
    from ._orbax import CheckpointSave as CheckpointSave

__all__ = ["CheckpointHandler", "CheckpointRestore", "CheckpointSave", "DataIterator", "DataLoader"]


def __getattr__(name: str) -> Any:
    if name not in ("CheckpointHandler", "CheckpointRestore", "CheckpointSave"):
        raise AttributeError(f"module 'millrace.jax' has no attribute {name!r}")
    from . import _orbax

    return getattr(_orbax, name)


class DataLoader:
    """The batches of a dataset as global `jax.Array`s.

    Each process runs its own dataset, whose batches are the part of the global ones that lies on its
    devices: with `PartitionSpec("data")` over all devices, the global batch is those of the processes,
    one after the other. Give each process its share of the data, as in
    `ds.shard(jax.process_count(), jax.process_index())`, and as many batches of one size:
    `batch(n, drop_remainder=True)`. Where a process has fewer batches than the others, or fails, all of
    them get an error in place of the batch, since a step of some processes would never end. For this,
    the processes iterate over loaders of global arrays in the same order.

    Args:
        ds: its elements are process-local batches.
        sharding: a `jax.sharding.Sharding` for all arrays, or a structure of them like that of the
            elements.
        prefetch: how many batches are on the devices before they are asked for, moved there by a
            thread; 0: none, and no thread.

    Each iterator is the dataset's next epoch. `get_state()` is the position after the last batch that
    the program has got, for `set_state()` of a loader of an equal dataset; `CheckpointSave` and
    `CheckpointRestore` are for Orbax.
    """

    def __init__(self, ds: Dataset, *, sharding: Any, prefetch: int = 2) -> None:
        if isinstance(prefetch, bool) or not isinstance(prefetch, int) or prefetch < 0:
            raise InvalidArgument(f"prefetch is a number of batches, not {prefetch!r}")
        self.dataset = ds
        self.sharding = sharding
        self.prefetch = prefetch
        self._put = _plan(ds.element_spec, sharding, "")
        self._store = _store_of(sharding)
        self._name = f"millrace/{next(_loaders)}" if self._store else ""
        self._epochs = itertools.count()
        self._next: DataIterator | None = None  # what iter() returns next, where it exists already
        self._last: DataIterator | None = None

    def __iter__(self) -> DataIterator:
        self._last, self._next = self._next or DataIterator(self), None
        return self._last

    def __len__(self) -> int:
        return len(self.dataset)

    def get_state(self) -> dict[str, Any]:
        """The position of the iterator made last, which can be stored as JSON."""
        it = self._next or self._last
        if it is None:
            it = self._next = DataIterator(self)
        return it.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        """The next iterator continues from there."""
        self._next = DataIterator(self, state)

    def __repr__(self) -> str:
        return f"<millrace.jax.DataLoader of {without_secrets(str(self.dataset))}>"


_BEGINNING: Any = object()
_loaders = itertools.count()  # of global arrays


def _store_of(sharding: Any) -> Any:
    """By which the processes that make global arrays agree; None: there is only one."""
    if jax.process_count() == 1:
        return None
    if isinstance(sharding, (tuple, list, dict)):
        parts = sharding.values() if isinstance(sharding, dict) else sharding
        return next((s for s in map(_store_of, parts) if s is not None), None)
    if sharding.is_fully_addressable:
        return None
    from jax._src import distributed  # type: ignore[import-not-found,unused-ignore]

    return distributed.global_state.client


class DataIterator:
    """`iter(loader)`: one epoch."""

    def __init__(self, loader: DataLoader, state: Any = _BEGINNING) -> None:
        self._loader = loader
        self._it = loader.dataset.iterator()
        self._count = 0  # batches and errors that the program has got
        self._ahead: _Ahead | None = None
        self._pull: _Pull | None = None
        self._finalizer: Any = None
        if state is not _BEGINNING:
            go_to(self._it, state)
        self._trail = Trail(self._it, loader.prefetch + 2)

    def __iter__(self) -> DataIterator:
        return self

    def __next__(self) -> Any:
        if self._it._foreign:
            raise ForkError(
                "this iterator was made in the parent process, and its threads are not in this one; make a new "
                "iterator after the fork"
            )
        if self._pull is None:
            self._pull = _Pull(self._loader, self._trail)
        if self._loader.prefetch == 0:
            outcome = self._pull()
        else:
            if self._ahead is None:
                self._ahead = _Ahead(self._pull, self._loader.prefetch)
                self._finalizer = weakref.finalize(self, _Ahead.stop, self._ahead)
            outcome = self._ahead.take()
        if isinstance(outcome, StopIteration):
            raise StopIteration
        if isinstance(outcome, FailedPrecondition):  # the processes do not continue together
            raise outcome
        self._count += 1
        if isinstance(outcome, _Failure):
            raise outcome.error
        return outcome

    def get_state(self) -> dict[str, Any]:
        """The position after the last batch, which can be stored as JSON."""
        return self._trail.state_at(self._count)

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes to a position that `get_state` returned."""
        again = DataIterator(self._loader, state)
        self.close()
        self._it, self._trail, self._count = again._it, again._trail, 0
        self._ahead = self._pull = None

    def close(self) -> None:
        """Ends its threads."""
        if self._finalizer is not None:
            self._finalizer()
        self._it.close()

    def __enter__(self) -> DataIterator:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class _Failure:
    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Pull:
    """The next batch on the devices, a _Failure, a StopIteration, or a FailedPrecondition, after which
    nothing comes: not all processes have this batch."""

    def __init__(self, loader: DataLoader, trail: Trail) -> None:
        self.trail = trail
        self.put = loader._put
        self.closed = False
        self.over = False
        self.agreement: Agreement | None = None
        if loader._store is not None:
            name = f"{loader._name}/{next(loader._epochs)}"
            self.agreement = Agreement(loader._store, name, jax.process_index(), jax.process_count())

    def __call__(self) -> Any:
        if self.over:
            return StopIteration()
        outcome = self.outcome()
        if self.agreement is None:
            return outcome
        failed = isinstance(outcome, _Failure)
        has = str(outcome.error) or "it failed" if failed else END if isinstance(outcome, StopIteration) else BATCH
        try:
            verdict = self.agreement.settle(has, lambda: self.closed)
        except Closed:
            self.over = True
            return StopIteration()
        except Exception as e:
            verdict = f"this process cannot agree with the others on batch {self.agreement.turn}: {e}"
        self.over = bool(verdict) or isinstance(outcome, StopIteration)
        return FailedPrecondition(verdict) if verdict and not failed else outcome

    def outcome(self) -> Any:
        try:
            return self.put(next(self.trail))
        except StopIteration as e:
            return e
        except Exception as e:
            return _Failure(e)


class _Ahead:
    """A thread that moves batches to the devices before they are asked for."""

    def __init__(self, pull: _Pull, depth: int) -> None:
        self.pull = pull
        self.depth = depth
        self.ready: deque[Any] = deque()
        self.changed = threading.Condition()
        self.stopped = False
        self.thread = threading.Thread(target=self.run, name="millrace.jax", daemon=True)
        self.thread.start()

    def run(self) -> None:
        outcome: Any = None
        while not isinstance(outcome, StopIteration):
            with self.changed:
                self.changed.wait_for(lambda: self.stopped or len(self.ready) < self.depth)
                if self.stopped:
                    return
            outcome = self.pull()
            with self.changed:
                self.ready.append(outcome)
                self.changed.notify_all()

    def take(self) -> Any:
        with self.changed:
            self.changed.wait_for(lambda: self.stopped or self.ready)
            if self.stopped:
                return StopIteration()
            if isinstance(self.ready[0], StopIteration):
                return self.ready[0]
            outcome = self.ready.popleft()
            self.changed.notify_all()
            return outcome

    def stop(self) -> None:
        if self.pull.trail.it._foreign:
            return  # the thread is in the parent process
        with self.changed:
            self.stopped = self.pull.closed = True
            self.ready.clear()
            self.changed.notify_all()
        self.pull.trail.it.close()  # ends a wait of the thread
        if self.thread is not threading.current_thread():
            self.thread.join()


# ---- arrays


def _plan(spec: Any, sharding: Any, path: str) -> Callable[[Any], Any]:
    """What puts elements of the spec on devices."""
    if isinstance(spec, TensorSpec):
        return _Leaf(spec, sharding, path or "the element")
    if isinstance(spec, DatasetSpec):
        raise InvalidArgument(
            f"{path or 'the element'} is a dataset, which cannot be an array; flat_map(lambda d: d) makes elements of "
            "its elements"
        )
    if isinstance(spec, tuple):
        if isinstance(sharding, (tuple, list)) and len(sharding) != len(spec):
            raise InvalidArgument(f"{path or 'an element'} has {len(spec)} parts, and there are {len(sharding)} shardings")
        one = not isinstance(sharding, (tuple, list))
        parts = tuple(_plan(s, sharding if one else sharding[i], _join(path, str(i))) for i, s in enumerate(spec))
        return lambda x: tuple(put(v) for put, v in zip(parts, x))
    names = sharding if isinstance(sharding, dict) else dict.fromkeys(spec, sharding)
    if set(names) != set(spec):
        raise InvalidArgument(
            f"{path or 'an element'} has the components {', '.join(map(repr, spec))}, and there are shardings for "
            f"{', '.join(map(repr, names)) or 'none'}"
        )
    fields = {k: _plan(s, names[k], _join(path, k)) for k, s in spec.items()}
    return lambda x: {k: put(x[k]) for k, put in fields.items()}


def _join(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name


class _Leaf:
    """Makes global arrays of the batches of a component."""

    def __init__(self, spec: TensorSpec, sharding: Any, path: str) -> None:
        if not isinstance(sharding, jax.sharding.Sharding):
            raise InvalidArgument(f"sharding is a jax.sharding.Sharding, or a structure of them, not {sharding!r:.80}")
        if spec.dtype == _bytes:
            raise InvalidArgument(
                f"{path} has strings, which JAX has no arrays of; leave it out, as in map(lambda x: ...), or make "
                "numbers of it"
            )
        if spec.ragged:
            raise InvalidArgument(f"{path} is ragged, which arrays of JAX cannot be; use padded_batch")
        self.sharding = sharding
        self.path = path

    def __call__(self, x: Any) -> Any:
        array = np.asarray(x)
        kind = dtype_of_numpy(array.dtype)
        assert kind is not None
        array = narrowed(array, kind.number)
        try:
            if jax.process_count() == 1:
                return jax.device_put(array, self.sharding)
            return jax.make_array_from_process_local_data(self.sharding, array)  # type: ignore[no-untyped-call,unused-ignore]
        except ValueError as e:
            raise InvalidArgument(
                f"{self.path}: a batch of shape {array.shape} cannot be laid out on the devices as the sharding says; "
                f"batch(n, drop_remainder=True) makes batches of one size: {e}"
            ) from e
