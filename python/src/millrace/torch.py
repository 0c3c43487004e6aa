# SPDX-License-Identifier: Apache-2.0
# pyright: reportAttributeAccessIssue=false
# It takes `import torch` for this package's module, where the other is not installed.
"""Millrace for PyTorch.

    import millrace as mr
    from millrace.torch import DataLoader

    ds = mr.image_folder("train").shuffle(10_000).map(prepare).batch(64, drop_remainder=True).prefetch(2)
    loader = DataLoader(ds, device="cuda")
    for epoch in range(10):
        loader.set_epoch(epoch)
        for images, labels in loader:
            ...
            torch.save({"model": model.state_dict(), "loader": loader.state_dict()}, path)

The dataset makes the batches; the loader divides them among the ranks of a job, makes tensors of
them, and copies them to the device.
"""

from __future__ import annotations

import logging
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from . import _distribute, _formats, _hints
from ._dataset import INFINITE, UNKNOWN, Dataset, dataset_at
from ._errors import (
    Aborted,
    Error,
    FailedPrecondition,
    InvalidArgument,
    check,
    without_secrets,
)
from ._ffi import ffi, lib
from ._iterator import MOST_EPOCHS, Shared
from ._iterator import Iterator as Elements
from ._types import Ragged, Spec, TensorSpec

try:
    import torch  # type: ignore[import-not-found,unused-ignore]
    import torch.distributed as dist  # type: ignore[import-not-found,unused-ignore]
    from torch.utils.data import (  # type: ignore[import-not-found,unused-ignore]
        IterableDataset,
        get_worker_info,
    )
except ImportError as e:
    raise ImportError("millrace.torch needs PyTorch: pip install 'millrace-data[torch]'") from e

__all__ = ["DataLoader", "join_states"]

logger = logging.getLogger("millrace")
VERSION = 1  # of state_dict()
JOB_SEED = 0  # of ops without a seed, in a job of several ranks: they must draw alike
EVEN_STEPS = ("drop", "pad", "empty")
ALL = (1 << 63) - 1


class DataLoader(IterableDataset[Any]):  # type: ignore[misc,unused-ignore]
    """The elements of a dataset as tensors: each rank of a job reads its share.

        loader = DataLoader(ds.batch(64))
        for images, labels in loader:
            ...

    It takes the place of a `torch.utils.data.DataLoader`: the batches are those of the dataset, so
    `batch(64)` is the batch size of each rank, and the work is done by Millrace's threads, without
    worker processes. Each pass over it is the next epoch. It is also an IterableDataset: inside
    `torch.utils.data.DataLoader(loader, batch_size=None, num_workers=n)` each worker reads its share
    once (call `set_epoch`, since the copies in new workers know of no earlier epoch).

    Tensors may be modified in place. Strings are bytes in numpy arrays, and ragged columns are
    `mr.Ragged`, whose `to_torch()` is a nested tensor.

    Args:
        ds: a dataset whose elements are the batches of one rank.
        device: where tensors go: "cuda", a torch.device, ...; None: they stay on the CPU.
        pin_memory: tensors of the CPU are in page-locked memory. None: if device is a GPU.
        prefetch_to_device: how many batches are copied to a GPU ahead, on a separate stream.
        rank, world_size: which share to read, and how many there are. None: those of
            torch.distributed where it is initialized, else of the variables RANK and WORLD_SIZE,
            else one share with everything.
        shard: how the data are divided, as in `with_options(auto_shard_policy=...)`: "auto" (the
            dataset's option; else by file where the sources are files, else by element), "file",
            "data" (every rank reads everything and keeps its elements), "range", "hint", "off".
        even_steps: what happens if ranks have unequal numbers of batches. "drop": all end with the
            one that ends first. "pad": a rank repeats its first batches until all have as many.
            "empty": it gets batches with no rows; each element is used exactly once.
        elastic: cuts the data into this number of streams, so that a job can continue with another
            number of ranks, up to that: `mr.distribute_dataset` says how. A batch of the dataset is then
            that of all ranks together, of which each gets its rows, at times none; all ranks take the
            same number of steps, and `shard` and `even_steps` have no effect. `load_state_dict` takes the
            state of the whole job: `job_state_dict()`, or `join_states` of those of all ranks. None: what
            the dataset's `with_options(elastic_streams=...)` says, else the job is not elastic.
        collate: a function that is called with each element, and returns what the loop gets.
    """

    # What accelerate and others look for on a loader.
    batch_size = None
    drop_last = False
    num_workers = 0
    collate_fn = None
    prefetch_factor = None

    @_hints.arguments("DataLoader", _hints.OF_LOADER)
    def __init__(
        self,
        ds: Dataset,
        *,
        device: Any = None,
        pin_memory: bool | None = None,
        prefetch_to_device: int = 2,
        rank: int | None = None,
        world_size: int | None = None,
        shard: str = "auto",
        even_steps: Literal["drop", "pad", "empty"] = "drop",
        elastic: int | None = None,
        collate: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(ds, Dataset):
            raise TypeError(f"expected a millrace.Dataset, not {type(ds).__name__}")
        if elastic is not None and (isinstance(elastic, bool) or not isinstance(elastic, int)):
            raise TypeError(f"elastic is a number of streams, not {elastic!r}")
        if elastic is not None and elastic < 1:
            raise InvalidArgument(f"elastic is the number of streams of the job, at least 1, not {elastic}")
        if even_steps not in EVEN_STEPS:
            raise InvalidArgument(f"even_steps is 'drop', 'pad' or 'empty', not {even_steps!r}")
        if isinstance(prefetch_to_device, bool) or not isinstance(prefetch_to_device, int) or prefetch_to_device < 0:
            raise InvalidArgument(f"prefetch_to_device is a number of batches, not {prefetch_to_device!r}")
        if (rank is None) != (world_size is None):
            raise InvalidArgument("rank and world_size go together: give both, or neither")
        if rank is not None and world_size is not None:
            _check_place(rank, world_size, "rank and world_size")
        if collate is not None and not callable(collate):
            raise TypeError(f"collate is a function, not {type(collate).__name__}")
        self.ds = ds
        self.device = None if device is None else torch.device(device)
        self.pin_memory = pin_memory
        self.prefetch_to_device = prefetch_to_device
        self.shard = shard
        self.even_steps = even_steps
        self.elastic = _elastic_of(ds) if elastic is None else elastic
        self.collate = collate
        self._place = (rank, world_size)
        self._policy = _policy_of(ds, shard)
        self._sources: dict[tuple[int, int], _Source] = {}
        self._jobs: dict[tuple[int, int], _distribute.DistributedDataset] = {}
        self._epoch = 0  # of the next iterator
        self._named = False  # set_epoch named it
        self._restored: dict[str, Any] | None = None
        self._current: _Epoch | None = None

    # ---- the share

    @property
    def rank(self) -> int:
        return self._rank_and_world()[0]

    @property
    def world_size(self) -> int:
        return self._rank_and_world()[1]

    @property
    def dataset(self) -> DataLoader:
        """The loader itself, which is an IterableDataset."""
        return self

    def _rank_and_world(self) -> tuple[int, int]:
        rank, world = self._place
        if rank is not None and world is not None:
            return rank, world
        if dist.is_available() and dist.is_initialized():
            return dist.get_rank(), dist.get_world_size()
        if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
            try:
                rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
            except ValueError:
                raise InvalidArgument(
                    f"the variables RANK and WORLD_SIZE are numbers, not {os.environ['RANK']!r} and "
                    f"{os.environ['WORLD_SIZE']!r}"
                ) from None
            _check_place(rank, world, "the variables RANK and WORLD_SIZE")
            return rank, world
        return 0, 1

    def _source(self, rank: int, world: int, worker: int = 0, workers: int = 1) -> _Source:
        """The elements of a rank; those of a worker in a job of one rank."""
        part = (worker, workers) if world == 1 else (rank, world)
        if part not in self._sources:
            self._sources[part] = _Source(self.ds, self._policy, *part)
        return self._sources[part]

    def _job(self, rank: int, world: int) -> _distribute.DistributedDataset:
        """The share of a rank of an elastic job."""
        if (rank, world) not in self._jobs:
            cluster = {"cluster": {"worker": [f"rank-{i}:1" for i in range(world)]}} if world > 1 else {}
            self._jobs[rank, world] = _distribute.distribute_dataset(
                self.ds, 1, cluster, rank if world > 1 else None, elastic=self.elastic
            )
        return self._jobs[rank, world]

    # ---- epochs and positions

    def set_epoch(self, epoch: int) -> None:
        """The next iterator is that epoch, from 0. Epochs follow each other without this call.

        After `load_state_dict` the call with the epoch that was saved keeps the position in it.
        """
        if isinstance(epoch, bool) or not isinstance(epoch, (int, np.integer)) or not 0 <= epoch < MOST_EPOCHS:
            raise InvalidArgument(f"an epoch is a number from 0, not {epoch!r}")
        if self._restored is not None and self._restored["epoch"] != epoch:
            self._restored = None
        self._epoch = int(epoch)
        self._named = True

    def state_dict(self) -> dict[str, Any]:
        """The position after the last batch that the loop got, of this rank. It can be stored as JSON.

        A rank may load the state of another one: where that is not a position in its own share, it
        passes over the batches of the epoch that are done.
        """
        if self._restored is not None:
            return dict(self._restored)
        if self._current is not None:
            if self._current.previous is not None and _lightning_is_ahead():
                return self._current.previous
            return self._current.state()
        rank, world = self._rank_and_world()
        worker, workers = _worker()
        return {
            "version": VERSION,
            "epoch": self._epoch,
            "step": 0,
            "done": False,
            "place": [rank, world, worker, workers],
            "turns": None,
            "own": None,
            "iterator": None,
            **({} if self.elastic is None else {"elastic": self.elastic}),
        }

    def job_state_dict(self) -> dict[str, Any]:
        """The position of an elastic job, of the states that all ranks of torch.distributed have now. All
        of them must call it after the same step, and all get it: let the first one save it."""
        mine = self.state_dict()
        rank, world = self._rank_and_world()
        if world == 1:
            return mine
        if not _are_all_ranks(rank, world):
            raise FailedPrecondition(
                "the ranks of the job are not those of torch.distributed, which would gather their states; call "
                "join_states with the state_dict() of each"
            )
        states: list[Any] = [None] * world
        dist.all_gather_object(states, mine, group=_group())
        return join_states(states)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes to a position that `state_dict` returned, of a loader of an equal dataset in a job with
        as many ranks; of an elastic job, to one that `job_state_dict` or `join_states` returned. The next
        iterator continues there; if the epoch was over, it is the next one."""
        if not isinstance(state, dict) or "version" not in state or "place" not in state:
            raise InvalidArgument(f"not what state_dict() returns: {state!r:.80}")
        if state["version"] != VERSION:
            raise InvalidArgument(
                f"the position has version {state['version']!r}, and this package reads version {VERSION}"
            )
        epoch = state.get("epoch")
        if isinstance(epoch, bool) or not isinstance(epoch, int) or not 0 <= epoch < MOST_EPOCHS:
            raise InvalidArgument(f"the position is damaged: it is in epoch {epoch!r}")
        saved = state["place"][1], state["place"][3]
        here = self._rank_and_world()[1], _worker()[1]
        if state["step"] and state.get("elastic") != self.elastic:
            raise FailedPrecondition(
                f"the position is of {_kind_of_job(state.get('elastic'))}, and this is {_kind_of_job(self.elastic)}; resume "
                "with the same number of streams, or at the beginning of an epoch"
            )
        if state["step"] and saved != here and self.elastic is None:
            raise FailedPrecondition(
                f"the position is of a job with {_of_job(*saved)}, and this one has {_of_job(*here)}; resume with as "
                "many, or at the beginning of an epoch; the next job can be elastic: DataLoader(..., elastic=64)"
            )
        self.close()
        self._restored = dict(state)
        self._epoch = epoch
        self._named = False

    def close(self) -> None:
        """Ends the threads of the current iterator, whose position is kept for state_dict."""
        if self._current is not None:
            self._current.close()

    def __iter__(self) -> Iterator[Any]:
        self.close()
        restored, self._restored = self._restored, None
        if restored is None and not self._named:
            self._epoch = _epoch_of_trainer(self._epoch)
        epoch = self._epoch
        if restored is not None and restored["done"] and not self._named:
            epoch, restored = int(restored["epoch"]) + 1, None
        self._epoch, self._named = epoch + 1, False
        self._current = (_Epoch if self.elastic is None else _ElasticEpoch)(self, epoch, restored)
        return self._current

    def __len__(self) -> int:
        """The number of batches of this rank in an epoch.

        Raises TypeError where it is not known without running."""
        rank, world = self._rank_and_world()
        n = self._known_steps(rank, world)
        if n is None:
            len(self.ds)  # says why
            hint = "; shard='data' makes it known" if self.elastic is None else ""
            raise TypeError(f"the number of batches of each rank is not known without running{hint}")
        if n == ALL:
            raise TypeError("this dataset has no end; take(n) is its first n elements")
        return n

    def _known_steps(self, rank: int, world: int) -> int | None:
        """The batches of each rank in an epoch, ALL where there is no end; None: not known."""
        if self.elastic is not None:
            n = self._job(rank, world).cardinality()
            return None if n == UNKNOWN else ALL if n == INFINITE else n
        source = self._source(rank, world) if world > 1 else None
        if source is None or source.turns or source.everything:
            n = self.ds.cardinality()
            if n == UNKNOWN:
                return None
            if n == INFINITE:
                return ALL
            if source is None or source.everything:
                return n
            return n // world if self.even_steps == "drop" else -(-n // world)
        counts = [self._source(r, world).ds.cardinality() for r in range(world)]
        return None if UNKNOWN in counts else self._even([ALL if n == INFINITE else n for n in counts])

    def _even(self, counts: list[int]) -> int:
        if self.even_steps == "pad" and min(counts) == 0 < max(counts):
            raise FailedPrecondition(_nothing_to_repeat(counts.index(0)))
        return min(counts) if self.even_steps == "drop" else max(counts)

    def __getstate__(self) -> dict[str, Any]:
        """For workers that are spawned: they are in the process group of no one."""
        state = dict(self.__dict__)
        state["_place"] = self._rank_and_world()
        state["_restored"] = self.state_dict() if self._restored is not None else None
        state["_current"] = None
        state["_sources"], state["_jobs"] = {}, {}
        return state

    def __repr__(self) -> str:
        rank, world = self._rank_and_world()
        return f"<millrace.torch.DataLoader of {without_secrets(str(self.ds))}, rank {rank} of {world}>"


def _check_place(rank: int, world: int, what: str) -> None:
    for n in (rank, world):
        if isinstance(n, bool) or not isinstance(n, (int, np.integer)):
            raise InvalidArgument(f"{what} must be numbers, not {n!r}")
    if not 0 <= rank < world:
        raise InvalidArgument(f"{what}: rank {rank} is not one of 0 to {world - 1}")


def _kind_of_job(elastic: int | None) -> str:
    return "a job that is not elastic" if elastic is None else f"an elastic job of {elastic} streams"


def _of_job(world: int, workers: int) -> str:
    ranks = "1 rank" if world == 1 else f"{world} ranks"
    return ranks if workers == 1 else f"{ranks} and {workers} workers"


def _nothing_to_repeat(rank: int) -> str:
    return (
        f"even_steps='pad': rank {rank} has no element to repeat, because there are fewer elements than ranks; use "
        "'drop', 'empty', or smaller batches"
    )


def _epoch_of_trainer(otherwise: int) -> int:
    """The epoch that the Trainer of transformers is in. It calls set_epoch, but not when it resumes in
    the middle of an epoch: then the loader is within accelerate's SkipDataLoader, which has no
    set_epoch, and the batches that are passed over would be of epoch 0."""
    if "transformers.trainer" not in sys.modules:
        return otherwise
    frame: Any = sys._getframe(2)
    while frame is not None:
        if frame.f_globals.get("__name__") == "transformers.trainer" and "epochs_trained" in frame.f_locals:
            epoch = frame.f_locals.get("epoch")
            return epoch if isinstance(epoch, int) else otherwise
        frame = frame.f_back
    return otherwise


def _lightning_is_ahead() -> bool:
    """True while Lightning saves a checkpoint and has got one batch more than its model: where the
    length is not known, it needs that to tell which batch is the last."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.endswith(".loops.fit_loop") and "self" in frame.f_locals:
            return bool(getattr(getattr(frame.f_locals["self"], "_data_fetcher", None), "batches", None))
        frame = frame.f_back
    return False


def _worker() -> tuple[int, int]:
    """Which worker of a torch.utils.data.DataLoader this process is, of how many."""
    info = get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)


def _policy_of(ds: Dataset, name: str) -> int:
    out, st = ffi.new("mr_shard_policy *"), ffi.new("mr_status *")
    if not isinstance(name, str):
        raise TypeError(f"shard is the name of a policy, such as 'auto', not {type(name).__name__}")
    check(lib.mr_shard_policy_parse(name.encode(), out, st), st)
    if out[0] == lib.MR_SHARD_AUTO:
        check(lib.mr_shard_policy_of(ds._pointer(), out, st), st)
    return int(out[0])


def _elastic_of(ds: Dataset) -> int | None:
    """What the dataset says about it."""
    if "elastic_streams=" not in str(ds):
        return None
    job = _distribute.distribute_dataset(ds, 1, {})
    return int(lib.mr_dist_dataset_elastic_streams(job._pointer())) or None


class _Source:
    """What part `part` of `parts` reads.

    turns: the elements of all parts, of which part p takes p, p + parts, ...: all of them know from
    the stream itself which part ends when, and a position is that of all parts.
    everything: each part has all elements.
    """

    def __init__(self, ds: Dataset, policy: int, part: int, parts: int) -> None:
        self.turns = self.everything = False
        self.by_file = False
        self.part, self.parts = part, parts
        self.whole = ds
        if parts == 1:
            self.ds = _own(ds)
            return
        opts, st = ffi.new("mr_auto_shard_opts *"), ffi.new("mr_status *")
        out, chosen = ffi.new("mr_dataset **"), ffi.new("mr_shard_policy *")
        explanation = ffi.gc(ffi.new("mr_explanation *"), lib.mr_explanation_reset)
        opts.num_workers, opts.index, opts.policy = parts, part, policy
        check(lib.mr_auto_shard(ds._pointer(), opts, out, chosen, explanation, st), st)
        made = ffi.gc(out[0], lib.mr_dataset_unref)
        self.by_file = chosen[0] == lib.MR_SHARD_FILE
        self.everything = chosen[0] == lib.MR_SHARD_OFF
        if chosen[0] == lib.MR_SHARD_DATA:
            self.take_turns()
        else:
            self.ds = dataset_at(int(ffi.cast("intptr_t", made)))

    def take_turns(self) -> None:
        self.turns = True
        self.ds = _own(self.whole)


def _own(ds: Dataset) -> Dataset:
    """The same dataset, whose epochs are counted apart."""
    return dataset_at(int(ffi.cast("intptr_t", ds._pointer())))


class _Reader:
    """The elements of one part in one epoch."""

    def __init__(self, source: _Source, epoch: int, seed: int | None) -> None:
        if source.ds._shared is None:
            source.ds._shared = Shared()
        source.ds._shared.epochs = epoch
        self.source = source
        self.it = Elements(source.ds, format="torch", seed=seed)
        self._at = 0  # in the round, where parts take turns
        self._own: Any = None

    def read(self, mine: bool = True) -> tuple[Any, int]:
        """The next element of this part, and how many parts have one at this step; in the last round
        of turns that may be fewer than all. Without turns: how many of this part, 0 or 1. At the
        end, and for steps that are not `mine`, it returns None instead of an element."""
        if not self.source.turns:
            x, found = self._one(mine)
            return x, int(found)
        while self._at < self.source.parts:
            own = self._at == self.source.part
            try:
                x, found = self._one(mine and own)
            except Error:
                self._pass_round()
                raise
            if not found:
                break
            self._at += 1
            if own:
                self._own = x
        out, self._own, self._at = (self._own, self._at), None, 0
        return out

    def _one(self, mine: bool) -> tuple[Any, bool]:
        if not mine:
            return None, self.it._skip(1) == 1
        x = next(self.it, None)
        return x, x is not None

    def _pass_round(self) -> None:
        """A round with an error counts for no rank: all continue with the next one."""
        self._at += 1
        while self._at < self.source.parts:
            try:
                if self.it._skip(1) == 0:
                    break
            except Error:
                pass
            self._at += 1
        self._at, self._own = 0, None

    def close(self) -> None:
        self.it.close()


class _Epoch:
    """The steps of one worker of one rank in one epoch."""

    def __init__(self, loader: DataLoader, epoch: int, restored: dict[str, Any] | None) -> None:
        self.epoch = epoch
        self.rank, self.world = loader._rank_and_world()
        self.worker, self.workers = _worker()
        self.even_steps = loader.even_steps
        self.collate = loader.collate
        self.step = 0  # of the rank; without `dealt`, of this worker
        self.done = False
        self.total: int | None = None
        self.previous: dict[str, Any] | None = None  # the state one step earlier, for Lightning
        self.own: int | None = None  # the steps of the rank until its elements ended
        self.dealt = self.world > 1 and self.workers > 1  # the steps of the rank, to its workers in turn
        self.seed = self._job_seed()
        self.source = loader._source(self.rank, self.world, *(() if self.dealt else (self.worker, self.workers)))
        self.may_take_turns = (
            self.world == 1 and self.workers > 1 and loader._policy == lib.MR_SHARD_AUTO and self.source.by_file
        )
        self.reader: _Reader | None = None
        self._padder: tuple[_Reader, int] | None = None
        self._copier = _Copier.of(loader)
        self._queue: deque[tuple[Any, dict[str, Any]]] = deque()
        self._before: dict[str, Any] | None = None  # the state before what is in the queue
        if restored is not None and restored["done"]:
            self.done = True
            return
        if restored is not None and restored["turns"] and not self.source.turns and self.may_take_turns:
            self.source.take_turns()
        self.together = False  # the ranks agree on each step
        self.total = self._total(loader)
        if self.world > 1 and self.even_steps == "empty":
            _empty(loader.ds.element_spec)  # an error now rather than at the end
        self.reader = _Reader(self.source, epoch, self.seed)
        if restored is not None and restored["step"]:
            self._restore(restored)

    def _job_seed(self) -> int | None:
        info = get_worker_info()
        if self.world > 1:
            return JOB_SEED
        return None if info is None else info.seed - info.id  # equal in all workers

    def _total(self, loader: DataLoader) -> int | None:
        """The number of steps; None: the elements themselves, or the other ranks, tell."""
        if self.world == 1:
            if self.source.turns:
                n = loader.ds.cardinality()
                return max(0, -(-(n - self.worker) // self.workers)) if n >= 0 else None
            n = self.source.ds.cardinality()
            return n if n >= 0 else None
        known = loader._known_steps(self.rank, self.world)
        if known is not None or self.source.turns or self.source.everything:
            return known
        if self.workers == 1 and _are_all_ranks(self.rank, self.world):
            self.together = True
            return None
        logger.info(
            "DataLoader: counts the elements of all %d ranks by reading them, because torch.distributed is not "
            "initialized; assert_cardinality(n) states their number, shard='data' needs none",
            self.world,
        )
        counts = []
        for rank in range(self.world):
            reader = _Reader(loader._source(rank, self.world), self.epoch, self.seed)
            counts.append(reader.it._skip(ALL))
            reader.close()
        return loader._even(counts)

    # ---- positions

    def state(self) -> dict[str, Any]:
        if self._before is not None:
            return self._before
        ended = self.done or self.reader is None or self.own is not None
        return {
            "version": VERSION,
            "epoch": self.epoch,
            "step": self.step,
            "done": self.done,
            "place": [self.rank, self.world, self.worker, self.workers],
            "turns": self.source.turns,
            "own": self.own,
            "iterator": self.reader.it.state_dict() if self.reader is not None and not ended else None,
        }

    def _restore(self, state: dict[str, Any]) -> None:
        assert self.reader is not None
        here = [self.rank, self.world, self.worker, self.workers]
        alike = state["turns"] == self.source.turns
        if alike and state["iterator"] and (state["place"] == here or self.source.turns or self.source.everything):
            if state["place"][2] == self.worker or not self.dealt:
                self.reader.it.load_state_dict(state["iterator"])
                self.step = state["step"]
                return
        if state["place"] == here and state["own"] is not None:
            self.step, self.own = state["step"], state["own"]
            return
        for step in range(state["step"]):
            if self.own is None and self.reader.read(mine=False)[1] == 0:
                self.own = step
        self.step = state["step"]

    # ---- steps

    def __iter__(self) -> _Epoch:
        return self

    def __next__(self) -> Any:
        if self.total is None and ("lightning" in sys.modules or "pytorch_lightning" in sys.modules):
            self.previous = self.state()
        if self._copier is None:
            return self._advance()
        return self._ahead(self._copier)

    def _ahead(self, copier: _Copier) -> Any:
        """The next batch on the device, on which further ones are on their way."""
        if self._before is None:
            self._before = self.state()
        while len(self._queue) <= copier.depth and not self.done:
            try:
                x = copier.start(self._advance())
            except StopIteration:
                break
            except Error as e:
                x = e
            before, self._before = self._before, None
            state = self.state()
            self._before = before
            self._queue.append((x, state))
            if isinstance(x, Error):
                break
        if not self._queue:
            self._before = None
            raise StopIteration
        x, self._before = self._queue.popleft()
        if isinstance(x, Error):
            raise x
        return copier.finish(x)

    def _advance(self) -> Any:
        while True:
            x = self._one_step()
            if x is not None:
                return x if self.collate is None else self.collate(x)

    def _one_step(self) -> Any:
        """The next step of the rank; None: it is another worker's."""
        i = self.step
        mine = not self.dealt or i % self.workers == self.worker
        if self.done or (self.total is not None and i >= self.total):
            self._finish()
            raise StopIteration
        x, ready = self._read(mine)
        if self.together:
            ready = self._agree(ready)
        has_own = ready > self.source.part if self.source.turns else self._found
        needed = self.source.parts if self.world > 1 else 1
        if self.world == 1 or self.source.everything:
            over = not has_own
        elif self.source.turns or self.together:
            over = ready < needed if self.even_steps == "drop" else ready == 0
        else:
            over = not has_own and self.even_steps == "drop"
        if over:
            self._finish()
            raise StopIteration
        if self.source.turns and self.world > 1 and i == 0 and ready < needed and self.even_steps == "pad":
            raise FailedPrecondition(_nothing_to_repeat(ready))
        if not has_own and not self.source.turns and self.own is None:
            self.own = i
        if not has_own and mine:
            x = self._repeated(i) if self.even_steps == "pad" else _empty(self.source.whole.element_spec)
        self._count_step()
        return x

    def _count_step(self) -> None:
        self.step += 1
        if self.total is None:
            return
        after = self.step
        if self.dealt:
            after += (self.worker - after) % self.workers
        if after >= self.total:
            self._finish()

    _found = False  # the rank itself has an element in this step

    def _read(self, mine: bool) -> tuple[Any, int]:
        assert self.reader is not None
        if self.own is not None:
            self._found = False
            return None, 0
        try:
            x, ready = self.reader.read(mine)
        except Error as e:
            if self.together:
                self._agree(FAILED)
            elif self.may_take_turns and self.step == 0 and isinstance(e, InvalidArgument):
                # There are fewer files than workers.
                self.may_take_turns = False
                self.reader.close()
                self.source.take_turns()
                self.reader = _Reader(self.source, self.epoch, self.seed)
                return self._read(mine)
            raise
        self._found = ready > 0
        return x, ready

    def _agree(self, status: int) -> int:
        """How many ranks have an element in this step."""
        every = torch.zeros(self.world, dtype=torch.int32)
        every[self.rank] = status
        dist.all_reduce(every, group=_group())
        statuses = every.tolist()
        if status != FAILED and FAILED in statuses:
            raise Aborted(
                f"rank {statuses.index(FAILED)} has an error at step {self.step} of epoch {self.epoch}; its own message "
                "says which"
            )
        return int(statuses.count(1))

    def _repeated(self, step: int) -> Any:
        """The element that stands in for a missing one."""
        own = step if self.own is None else self.own
        if own == 0:
            raise FailedPrecondition(_nothing_to_repeat(self.rank))
        want = (step - own) % own
        reader, at = self._padder if self._padder is not None else (None, 0)
        if reader is None or at > want:
            if reader is not None:
                reader.close()
            reader, at = _Reader(self.source, self.epoch, self.seed), 0
        while at < want:
            reader.read(mine=False)
            at += 1
        self._padder = reader, at + 1
        return reader.read()[0]

    def _finish(self) -> None:
        self.done = True
        self._close_readers()

    def _close_readers(self) -> None:
        if self.reader is not None:
            self.reader.close()
        if self._padder is not None:
            self._padder[0].close()
            self._padder = None

    def close(self) -> None:
        """Ends the threads; the position is kept."""
        if self.reader is not None and self.reader.it._foreign:
            self.reader = self._padder = self._copier = None  # of the parent process
            self.done = True
            return
        if self._before is None and not self.done:
            self._before = self.state()
        self._queue.clear()
        self.done = True
        self._copier = None
        self._close_readers()


class _ElasticReader:
    """What an elastic job has in place of a `_Reader`."""

    def __init__(self, it: _distribute.DistributedIterator) -> None:
        self.it = it

    def close(self) -> None:
        self.it.close()


class _ElasticEpoch(_Epoch):
    """The steps of a rank of an elastic job in one epoch."""

    def __init__(self, loader: DataLoader, epoch: int, restored: dict[str, Any] | None) -> None:
        self.epoch = epoch
        self.rank, self.world = loader._rank_and_world()
        self.worker, self.workers = _worker()
        if self.workers > 1:
            raise FailedPrecondition(
                "an elastic loader reads with threads of the process that trains, so it cannot be divided among "
                f"{self.workers} workers of torch.utils.data.DataLoader; iterate it itself, or with num_workers=0"
            )
        self.collate = loader.collate
        self.elastic = loader.elastic
        self.step = 0
        self.done = restored is not None and bool(restored["done"])
        self.total: int | None = None
        self.previous: dict[str, Any] | None = None
        self._copier = _Copier.of(loader)
        self._queue: deque[tuple[Any, dict[str, Any]]] = deque()
        self._before: dict[str, Any] | None = None
        self._padder = None
        self.reader: Any = None
        if self.done:
            return
        self.total = loader._known_steps(self.rank, self.world)
        job = loader._job(self.rank, self.world)
        if job._shared is None:
            job._shared = Shared()
        job._shared.epochs = epoch
        self.reader = _ElasticReader(job.iterator(format="torch", seed=JOB_SEED))
        if restored is not None and restored["step"]:
            self.reader.it.load_state_dict(restored["iterator"])
            self.step = restored["step"]

    def state(self) -> dict[str, Any]:
        if self._before is not None:
            return self._before
        return {
            "version": VERSION,
            "epoch": self.epoch,
            "step": self.step,
            "done": self.done,
            "place": [self.rank, self.world, self.worker, self.workers],
            "turns": None,
            "own": None,
            "iterator": None if self.done or self.reader is None else self.reader.it.state_dict(),
            "elastic": self.elastic,
        }

    def _one_step(self) -> Any:
        try:
            step = None if self.done else next(self.reader.it, None)
        except Error:
            self.step += 1  # it is the step of all ranks
            raise
        if step is None:
            self._finish()
            raise StopIteration
        self.step += 1
        if self.total is not None and self.step >= self.total:
            self._finish()
        return step[0]


def join_states(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The state of an elastic job, of the `state_dict()` of the loaders of all its ranks after the same
    step. A job with another number of ranks can load it.

    Raises InvalidArgument for states of different jobs or steps, and if one is missing."""
    if not states:
        raise InvalidArgument("there are no states to join")
    if any(not isinstance(s, Mapping) or s.get("elastic") is None for s in states):
        raise InvalidArgument("these are not states of elastic loaders: DataLoader(..., elastic=64)")
    first = dict(states[0])
    for name, what in (("elastic", "streams"), ("epoch", "epochs"), ("step", "steps")):
        found = sorted({s[name] for s in states})
        if len(found) > 1:
            raise InvalidArgument(f"the states are of different {what}, {found}; join those of one step")
    if first["iterator"] is not None:
        first["iterator"] = _distribute.join_states([s["iterator"] for s in states])
    return first


FAILED = 2


def _are_all_ranks(rank: int, world: int) -> bool:
    """The ranks are those of torch.distributed."""
    if not dist.is_available() or not dist.is_initialized():
        return False
    return bool(dist.get_world_size() == world and dist.get_rank() == rank)


_groups: list[tuple[Any, Any]] = []  # of torch.distributed: all ranks, and those on the CPU


def _group() -> Any:
    """A group of all ranks whose messages do not mix with those of training."""
    if not _groups or _groups[0][0] is not dist.group.WORLD:
        _groups[:] = [(dist.group.WORLD, dist.new_group(backend="gloo"))]
    return _groups[0][1]


def _empty(spec: Spec) -> Any:
    """A batch without rows."""
    if isinstance(spec, tuple):
        return tuple(_empty(s) for s in spec)
    if isinstance(spec, dict):
        return {name: _empty(s) for name, s in spec.items()}
    if not isinstance(spec, TensorSpec) or not spec.shape:
        raise FailedPrecondition(
            f"even_steps='empty' needs batches, and a component is {spec!r}; batch the dataset first"
        )
    if spec.ragged:
        values = TensorSpec((None, *spec.shape[2:]), spec.dtype)
        return Ragged(_empty(values), np.zeros(1, np.int64))
    shape = (0, *(0 if n is None else n for n in spec.shape[1:]))
    if spec.dtype.number == lib.MR_STRING:
        return np.empty(shape, object)
    bits = np.uint16 if spec.dtype.number == lib.MR_BFLOAT16 else spec.dtype.dtype
    return _formats.to_torch(np.empty(shape, bits), spec.dtype.number)


# ---- to the device


class _Copier:
    """Copies batches to a device. On a GPU: through page-locked memory, on a separate stream."""

    def __init__(self, device: Any, pin_memory: bool, depth: int) -> None:
        self.device, self.pin_memory, self.depth = device, pin_memory, depth
        self.stream: Any = None
        if device is not None and device.type == "cuda":
            self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call,unused-ignore]

    @classmethod
    def of(cls, loader: DataLoader) -> _Copier | None:
        """What the loader needs; None: its tensors stay as they are."""
        device = loader.device
        if device is not None and device.type == "cuda" and device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        on_gpu = device is not None and device.type == "cuda"
        pin = on_gpu if loader.pin_memory is None else loader.pin_memory
        if pin and not torch.cuda.is_available():
            logger.warning("DataLoader: pin_memory has no effect, because there is no GPU")
            pin = False
        if device is not None and device.type == "cpu":
            device = None
        if device is None and not pin:
            return None
        return cls(device, pin, loader.prefetch_to_device if on_gpu else 0)

    def start(self, x: Any) -> Any:
        """Begins to copy."""
        if self.pin_memory:
            x = _mapped(x, lambda t: t if t.is_cuda else t.pin_memory())
        if self.device is None:
            return x
        if self.stream is None:
            return _mapped(x, lambda t: t.to(self.device))
        with torch.cuda.stream(self.stream):
            copy = _mapped(x, lambda t: t.to(self.device, non_blocking=True))
            done = torch.cuda.Event()  # type: ignore[no-untyped-call,unused-ignore]
            done.record(self.stream)
        return copy, done, x  # x: the copy may still be reading it

    def finish(self, started: Any) -> Any:
        """What `start` began, for the current stream."""
        if self.stream is None:
            return started
        copy, done, _ = started
        current = torch.cuda.current_stream(self.device)
        current.wait_event(done)
        if not self.pin_memory:
            done.synchronize()

        def used_here(t: Any) -> Any:
            t.record_stream(current)
            return t

        return _mapped(copy, used_here)


def _mapped(x: Any, f: Callable[[Any], Any]) -> Any:
    """A structure with f of its tensors."""
    if isinstance(x, torch.Tensor):
        return f(x)
    if isinstance(x, Ragged):
        return Ragged(_mapped(x.values, f), x.row_splits)
    if isinstance(x, dict):
        return type(x)((k, _mapped(v, f)) for k, v in x.items())
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(_mapped(v, f) for v in x))
    if isinstance(x, (tuple, list)):
        return type(x)(_mapped(v, f) for v in x)
    return x
