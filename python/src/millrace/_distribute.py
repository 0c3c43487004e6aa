# SPDX-License-Identifier: Apache-2.0
"""Distributed datasets: the batches of one dataset, in equal parts for the replicas of a job."""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Callable, cast

from . import _fast
from ._callbacks import callback
from ._dataset import Dataset, dataset_at
from ._errors import Cancelled, InvalidArgument, check, text_of, without_secrets
from ._ffi import ffi, lib
from ._formats import arrow_maker
from ._iterator import (
    AGAIN,
    CHANGE,
    DONE,
    WOKEN,
    Iterator,
    Ledger,
    OpenIterator,
    Options,
    Shared,
    _address,
    _engines,
    check_end,
    guarded,
    parse_state,
)
from ._python import fail
from ._report import stats_of
from ._types import plan_of, spec_of


@dataclass(frozen=True)
class InputContext:
    """The argument of an input function: which pipeline of the job to make, and for how many replicas.

        >>> import millrace as mr
        >>> mr.InputContext(num_replicas_in_sync=4).get_per_replica_batch_size(64)
        16

    Attributes:
        num_input_pipelines: workers of the job; each has one pipeline.
        input_pipeline_id: the one to make, from 0.
        num_replicas_in_sync: replicas of all workers together.
    """

    num_input_pipelines: int = 1
    input_pipeline_id: int = 0
    num_replicas_in_sync: int = 1

    def __post_init__(self) -> None:
        st = ffi.new("mr_status *")
        check(lib.mr_input_context_check(self._c(), st), st)

    def _c(self) -> Any:
        return ffi.new(
            "mr_input_context *", (self.num_input_pipelines, self.input_pipeline_id, self.num_replicas_in_sync)
        )

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        """The rows of a replica's batch.

        Raises FailedPrecondition if the replicas do not divide the global batch size."""
        out, st = ffi.new("int64_t *"), ffi.new("mr_status *")
        check(lib.mr_input_context_get_per_replica_batch_size(self._c(), global_batch_size, out, st), st)
        return int(out[0])


@dataclass(frozen=True)
class ValueContext:
    """The argument of the function of `distribute_values_from_function`.

    Attributes:
        replica_id_in_sync_group: the replica that the value is for, from 0 over all workers.
        num_replicas_in_sync: replicas of all workers together.
    """

    replica_id_in_sync_group: int = 0
    num_replicas_in_sync: int = 1


# ---- jobs ----


def _count(name: str, x: Any) -> int:
    if isinstance(x, bool) or not isinstance(x, int):
        raise TypeError(f"{name} is a number, not {x!r:.80}")
    return x


def _with_task(cluster: Mapping[str, Any], worker: int) -> dict[str, Any]:
    """The same job, seen by input worker `worker`: the chief comes before the workers."""
    tasks = cluster.get("cluster")
    if not isinstance(tasks, Mapping):
        return dict(cluster)
    chiefs, workers = (tasks.get(kind) for kind in ("chief", "worker"))
    n_chiefs = len(chiefs) if isinstance(chiefs, (list, tuple)) else 0
    n = n_chiefs + (len(workers) if isinstance(workers, (list, tuple)) else 0)
    if not 0 <= worker < n:
        raise InvalidArgument(f"the worker's index must be 0 to {n - 1}, not {worker}")
    kind, index = ("chief", worker) if worker < n_chiefs else ("worker", worker - n_chiefs)
    return {**cluster, "task": {"type": kind, "index": index}}


def _cluster(cluster: Mapping[str, Any] | None, worker: int | None) -> Any:
    """An `mr_cluster *`: of the dict, else of the environment."""
    out = ffi.gc(ffi.new("mr_cluster *"), lib.mr_cluster_reset)
    st = ffi.new("mr_status *")
    if cluster is None:
        check(lib.mr_cluster_from_launcher(out, st), st)
        return out
    if not isinstance(cluster, Mapping):
        raise TypeError(
            "cluster is a dict as in TF_CONFIG, "
            '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}, '
            f"or None for the environment's, not {cluster!r:.80}"
        )
    if cluster and "cluster" not in cluster:
        raise InvalidArgument(
            "cluster has no entry 'cluster'; the form is that of TF_CONFIG: "
            '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}'
        )
    if worker is not None:
        cluster = _with_task(cluster, worker)
    try:
        text = json.dumps(cluster, default=lambda x: list(x) if isinstance(x, tuple) else dict(x)).encode()
    except (TypeError, ValueError) as why:
        raise InvalidArgument(f"cluster cannot be written as JSON: {why}") from None
    check(lib.mr_cluster_from_tf_config(out, text, len(text), st), st)
    return out


class _Job:
    """Which part of which job this process has."""

    def __init__(
        self,
        replicas: int,
        cluster: Mapping[str, Any] | None,
        worker: int | None,
        policy: str | None,
        elastic: Any,
    ) -> None:
        self.elastic = 0 if elastic is None else _count("elastic", elastic)
        if elastic is not None and self.elastic < 1:
            raise InvalidArgument(f"elastic is the number of streams of the job, at least 1, not {elastic}")
        st = ffi.new("mr_status *")
        worker = None if worker is None else _count("worker", worker)
        self.cluster = _cluster(cluster, worker)
        self.workers = int(lib.mr_cluster_num_workers(self.cluster))
        self.replicas = _count("replicas", replicas)
        if self.replicas < 1:
            raise InvalidArgument(f"replicas is the number on each worker, at least 1, not {replicas}")
        if worker is None:
            rank = ffi.new("int64_t *")
            check(lib.mr_cluster_worker(self.cluster, rank, st), st)
            worker = int(rank[0])
        self.worker = worker
        self.policy: int | None = None
        if policy is not None:
            if not isinstance(policy, str):
                raise TypeError(f"policy is one of 'auto', 'file', 'data', 'off', 'hint' and 'range', not {policy!r:.80}")
            found = ffi.new("mr_shard_policy *")
            check(lib.mr_shard_policy_parse(policy.encode(), found, st), st)
            self.policy = int(found[0])

    def fill(self, opts: Any, seed: int | None) -> None:
        # Without a seed the library makes the job's of the cluster, which it must therefore see.
        opts.cluster = self.cluster
        opts.num_workers, opts.worker = self.workers, self.worker
        opts.replicas = self.replicas
        opts.elastic_streams = self.elastic
        if self.policy is not None:
            opts.has_policy, opts.policy = True, self.policy
        if seed is not None:
            opts.has_seed, opts.seed = True, seed & 0xFFFFFFFFFFFFFFFF


# ---- input functions ----


class _Input:
    """An input function, as the library calls it."""

    def __init__(self, fn: Callable[[InputContext], Dataset]) -> None:
        if not callable(fn):
            raise TypeError(f"an input function takes an InputContext and returns a Dataset, not {fn!r:.80}")
        self.fn = fn
        self.raised: BaseException | None = None
        self.made: Dataset | None = None  # by the last call

    def call(self, c: Any) -> Any:
        made = self.fn(InputContext(int(c.num_input_pipelines), int(c.input_pipeline_id), int(c.num_replicas_in_sync)))
        if not isinstance(made, Dataset):
            raise TypeError(f"the input function returned {made!r:.80}, which is not a Dataset")
        self.made = made
        return lib.mr_dataset_ref(made._pointer())

    def check(self, code: int, st: Any) -> None:
        """As `check`, but what the function has raised is raised again."""
        raised, self.raised = self.raised, None
        if code < 0 and raised is not None:
            raise raised
        check(code, st)


@callback()
def mrpy_input(ctx: Any, c: Any, out: Any, st: Any) -> int:
    made: _Input = ffi.from_handle(ctx)
    try:
        out[0] = made.call(c[0])
        return int(lib.MR_OK)
    except BaseException as e:  # raised again by _Input.check
        made.raised = e
        text = f"the input function raised {type(e).__name__}: {e}"
        return fail(st, "FAILED_PRECONDITION", text)


# ---- datasets ----


class DistributedDataset:
    """A dataset of which each replica of a job gets a part; made by `mr.distribute_dataset` and
    `mr.distribute_datasets_from_function`.

    An element is a step: a tuple with a batch for each replica of this process. Each iterator is the
    next epoch, as of a Dataset.

    Attributes:
        num_workers, worker: processes of the job that read data, and the number of this one.
        num_replicas_in_sync: replicas of all workers together.
        num_local_replicas: those of this worker: the length of the tuples.
        policy: how the workers share the data: "FILE", "DATA", ...; what "AUTO" chose.
    """

    def __init__(self, source: Dataset | None, fn: _Input | None, job: _Job) -> None:
        self._source = source
        self._fn = fn
        self._handle = None if fn is None else ffi.new_handle(fn)
        self._job = job
        self._shared: Shared | None = None
        self._made: Any = None
        made = self._distributed(None)
        self.num_workers = int(lib.mr_dist_dataset_num_workers(made))
        self.worker = int(lib.mr_dist_dataset_worker(made))
        self.num_replicas_in_sync = int(lib.mr_dist_dataset_num_replicas_in_sync(made))
        self.num_local_replicas = job.replicas
        self.policy = text_of(lib.mr_shard_policy_name(lib.mr_dist_dataset_policy(made)))

    def _distributed(self, seed: int | None) -> Any:
        """The `mr_dist_dataset *` of a job with this seed."""
        if seed is None and self._made is not None:
            return self._made
        opts, out, st = ffi.new("mr_distribute_opts *"), ffi.new("mr_dist_dataset **"), ffi.new("mr_status *")
        self._job.fill(opts, seed)
        if self._fn is not None:
            self._fn.check(lib.mr_distribute_from_function(lib.mrpy_input, self._handle, opts, out, st), st)
        else:
            assert self._source is not None
            check(lib.mr_distribute_dataset(self._source._pointer(), opts, out, st), st)
        made = ffi.gc(out[0], lib.mr_dist_dataset_free)
        if seed is None:
            self._made = made
        return made

    def _pointer(self) -> Any:
        return self._distributed(None)

    @property
    def element_spec(self) -> Any:
        """The structure of a replica's batch, whose number of rows varies."""
        return spec_of(lib.mr_dist_dataset_spec(self._pointer()))

    def cardinality(self) -> int:
        """The number of steps, `mr.INFINITE`, or `mr.UNKNOWN` where only running would show it."""
        return int(lib.mr_dist_dataset_cardinality(self._pointer()))

    def __len__(self) -> int:
        n = self.cardinality()
        if n == lib.MR_INFINITE:
            raise TypeError("this dataset has no end")
        if n == lib.MR_UNKNOWN_COUNT:
            raise TypeError("the number of steps is not known without running")
        return n

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> DistributedIterator:
        return DistributedIterator(self)

    def iterator(
        self,
        *,
        format: str = "numpy",
        strings: str = "bytes",
        seed: int | None = None,
        threads: int | None = None,
        memory_limit: int | str | None = None,
        ledger: str | os.PathLike[str] | None = None,
        on_mismatch: str = "refuse",
    ) -> DistributedIterator:
        """An iterator, with options, as of `Dataset.iterator`. A ledger has an entry for each step. All
        processes of a job must give the same seed."""
        return DistributedIterator(
            self,
            format=format,
            strings=strings,
            seed=seed,
            threads=threads,
            memory_limit=memory_limit,
            ledger=ledger,
            on_mismatch=on_mismatch,
        )

    @property
    def decisions(self) -> list[str]:
        """How the graph was distributed, and why: a sentence for each decision."""
        e = lib.mr_dist_dataset_explanation(self._pointer())
        return [f"{text_of(d.what)}: {text_of(d.detail)}" for d in (e.v[i] for i in range(e.n))]

    @property
    def graph(self) -> Dataset:
        """The dataset that this worker runs: its elements are the batches of one replica after the
        other."""
        return dataset_at(_address(lib.mr_dist_dataset_graph(self._pointer(), 0)))

    def __str__(self) -> str:
        return str(self._source if self._source is not None else self.graph)

    def __repr__(self) -> str:
        return (
            f"<millrace.DistributedDataset of {without_secrets(str(self))}: worker {self.worker} of {self.num_workers}, "
            f"{self.num_local_replicas} of {self.num_replicas_in_sync} replicas>"
        )

    def __reduce__(self) -> Any:
        raise TypeError("distributed datasets cannot be pickled; pickle the dataset, and distribute it in each process")


def distribute_dataset(
    ds: Dataset,
    replicas: int = 1,
    cluster: Mapping[str, Any] | None = None,
    worker: int | None = None,
    policy: str | None = None,
    elastic: int | None = None,
) -> DistributedDataset:
    """Divides the batches of a dataset among replicas, as tf.distribute's
    experimental_distribute_dataset does.

        >>> import millrace as mr
        >>> for first, second in mr.distribute_dataset(mr.range(6).batch(4), replicas=2, cluster={}):
        ...     print(first, second)
        [0 1] [2 3]
        [4] [5]

    Args:
        ds: batched with the global batch size: the rows of all replicas in a step.
        replicas: on each worker.
        cluster: the job, a dict in the form of TF_CONFIG; {}: this process alone; None: what the
            environment says (TF_CONFIG, torchrun, Slurm, MPI), else this process alone.
        worker: which of the job's workers this process is, from 0; the chief comes first. None: as
            the cluster says.
        policy: how workers share the data: "auto", "file", "data", "off", "hint" or "range"; None:
            what the graph's with_options says, else "auto".
        elastic: cuts the data into this number of streams, which any number of replicas up to that may share.
            The rows of each step are then the same for any number of workers and replicas, and a
            position continues with another number: join the states of all workers (`mr.join_states`)
            and load the result on each. The policy has no effect. None: what the graph's
            `with_options(elastic_streams=...)` says, else the job is not elastic.

    Every worker takes the same number of steps; a replica without data gets a batch of no rows.

    Raises InvalidArgument for a bad cluster, number or policy, FailedPrecondition if ds is not
    batched, NotFound for the policy "file" without files.
    """
    if not isinstance(ds, Dataset):
        raise TypeError(f"expected a Dataset, not {ds!r:.80}")
    return DistributedDataset(ds, None, _Job(replicas, cluster, worker, policy, elastic))


def join_states(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The state of an elastic job, of those that all of its workers returned after the same step.

        >>> import millrace as mr
        >>> def begin(workers):
        ...     cluster = {"cluster": {"worker": [f"host:{i}" for i in range(workers)]}}
        ...     ds = mr.range(12).batch(6)
        ...     return [iter(mr.distribute_dataset(ds, 1, cluster, i, elastic=6)) for i in range(workers)]
        >>> two, three = begin(2), begin(3)
        >>> print([next(it)[0].tolist() for it in two])
        [[0, 1, 2], [3, 4, 5]]
        >>> state = mr.join_states([it.state_dict() for it in two])
        >>> for it in three:
        ...     it.load_state_dict(state)
        >>> print([next(it)[0].tolist() for it in three])
        [[6, 7], [8, 9], [10, 11]]

    Raises InvalidArgument for states of different jobs or steps, and if one is missing.
    """
    if not states:
        raise InvalidArgument("there are no states to join")
    parsed = [parse_state(state) for state in states]
    epochs = {epoch for epoch, _ in parsed}
    if len(epochs) > 1:
        raise InvalidArgument(f"the states are of different epochs, {sorted(epochs)}; join those of one step")
    parts = ffi.new("mr_position_part[]", len(parsed))
    alive = [ffi.from_buffer(position) for _, position in parsed]
    for part, position in zip(parts, alive, strict=True):
        part.bytes, part.size = position, len(position)
    out, size, st = ffi.new("void **"), ffi.new("size_t *"), ffi.new("mr_status *")
    check(lib.mr_dist_position_join(parts, len(parsed), out, size, st), st)
    whole = bytes(ffi.buffer(out[0], size[0]))
    lib.mr_free(out[0])
    return {**states[0], "position": f"{parsed[0][0]}:{base64.b64encode(whole).decode()}"}


def distribute_datasets_from_function(
    fn: Callable[[InputContext], Dataset],
    replicas: int = 1,
    cluster: Mapping[str, Any] | None = None,
    worker: int | None = None,
    elastic: int | None = None,
) -> DistributedDataset:
    """The dataset that a function makes for each worker, batched by the size of a replica's batch.
    Nothing is added to it: it shards by itself.

        >>> import millrace as mr
        >>> def make(ctx):
        ...     ds = mr.range(8).shard(ctx.num_input_pipelines, ctx.input_pipeline_id)
        ...     return ds.batch(ctx.get_per_replica_batch_size(4))
        >>> for first, second in mr.distribute_datasets_from_function(make, replicas=2, cluster={}):
        ...     print(first, second)
        [0 1] [2 3]
        [4 5] [6 7]

    Args:
        fn: is called with an `mr.InputContext` and returns a Dataset. It may be called again, also
            for other workers, to learn how many steps they take.
        replicas, cluster, worker: as for `distribute_dataset`.
        elastic: must be None: an input function shards by itself.

    What fn raises is raised here.
    """
    return DistributedDataset(None, _Input(fn), _Job(replicas, cluster, worker, None, elastic))


def distribute_values_from_function(
    fn: Callable[[ValueContext], Any],
    replicas: int = 1,
    cluster: Mapping[str, Any] | None = None,
    worker: int | None = None,
) -> tuple[Any, ...]:
    """A value for each replica of this process, which a function makes.

        >>> import millrace as mr
        >>> mr.distribute_values_from_function(lambda ctx: ctx.replica_id_in_sync_group, replicas=3, cluster={})
        (0, 1, 2)

    Args:
        fn: is called with an `mr.ValueContext`.
        replicas, cluster, worker: as for `distribute_dataset`.
    """
    job = _Job(replicas, cluster, worker, None, None)
    if not 0 <= job.worker < job.workers:
        raise InvalidArgument(f"the worker's index must be 0 to {job.workers - 1}, not {job.worker}")
    first, n = job.worker * job.replicas, job.workers * job.replicas
    return tuple(fn(ValueContext(first + i, n)) for i in range(job.replicas))


# ---- iterators ----


class _Engine(OpenIterator):
    """An `mr_dist_iterator`, with what `_iterator.Engine` has of an `mr_iterator`."""

    def __init__(self, ds: DistributedDataset, options: Options, ledger: Ledger | None) -> None:
        self.out = ffi.new("mr_dist_iterator **")  # closed by whatever ends the constructor
        self.ds = ds._distributed(options.key[0])
        self.fn = ds._fn
        self.options = options
        self.ledger = ledger
        self.generation = _fast.generation()
        self.epochs = 0
        self.cut = False  # a wait was ended: it must be resumed
        self.interrupted = False  # by what the handler of a signal raised
        self.lock = threading.RLock()
        check_end()
        _engines.add(self)
        opts = ffi.new("mr_dist_iterator_opts *")
        options.fill(opts.run)
        opts.run.ledger = ledger.pointer if ledger is not None else ffi.NULL
        made, st = ffi.new("mr_cancel **"), ffi.new("mr_status *")
        while True:
            check(lib.mr_cancel_new(ffi.NULL, made, st), st)
            opts.run.cancel = cancel = ffi.gc(made[0], lib.mr_cancel_unref)
            try:
                if self._guarded(lambda st: lib.mr_dist_iterator_open(self.out, self.ds, opts, st), cancel) == DONE:
                    break
            except BaseException:
                self._free()
                raise
            self._free()
        self.step = ffi.new("mr_step *")
        self.epochs = 1

    def _close_it(self, it: Any) -> None:
        lib.mr_dist_iterator_close(it)

    def _check(self, code: int, st: Any) -> None:
        if self.fn is not None:
            self.fn.check(code, st)
        else:
            check(code, st)

    def _guarded(self, call: Callable[[Any], int], cancel: Any = ffi.NULL) -> int:
        return guarded(ffi.NULL, cancel, call, self.it, self._check)

    def next(self) -> Any:
        """The `mr_step *`; None: the end."""
        if self.cut:
            self.resume()
        self.cut, self.interrupted = True, False
        code = 0

        def call(st: Any) -> int:
            nonlocal code
            code = int(lib.mr_dist_iterator_next(self.it, ffi.NULL, self.step, st))
            return code

        try:
            end = self._guarded(call)
            if end == AGAIN:
                raise Cancelled("interrupted")
        except Cancelled:
            raise
        except Exception:
            self.cut = False
            raise
        except BaseException:
            self.interrupted = True
            raise
        self.cut = False
        return None if code == lib.MR_END else self.step

    def begin(self, epoch: int) -> None:
        if self.epochs <= epoch:
            self.rest()
        while self.epochs <= epoch:
            end = self._guarded(lambda st: lib.mr_dist_iterator_rewind(self.it, st))
            if end == AGAIN:
                self.rest()
                continue
            self.epochs += 1
            if end == WOKEN:
                self.resume()

    def resume(self) -> None:
        while self._guarded(lambda st: lib.mr_dist_iterator_resume(self.it, st)) != DONE:
            pass

    def save(self, undelivered: Any = None) -> bytes:
        out, size, st = ffi.new("void **"), ffi.new("size_t *"), ffi.new("mr_status *")
        check(lib.mr_dist_iterator_save(self.it, out, size, st), st)
        data = bytes(ffi.buffer(out[0], size[0]))
        lib.mr_free(out[0])
        return data

    def restore(self, position: bytes) -> None:
        size = len(position)
        while self._guarded(lambda st: lib.mr_dist_iterator_restore(self.it, position, size, st)) != DONE:
            self.rest()

    def rest(self) -> None:
        st = ffi.new("mr_status *")
        check(lib.mr_dist_iterator_rest(self.it, st), st)
        self.cut = self.interrupted = False

    @property
    def pipeline(self) -> Any:
        return lib.mr_dist_iterator_worker(self.it, 0)


class DistributedIterator(Iterator):
    """Runs a distributed dataset; each element is a tuple with a batch for each replica of this
    process. It has what `mr.Iterator` has: positions, statistics, close()."""

    def __init__(self, ds: DistributedDataset, **options: Any) -> None:
        super().__init__(cast(Any, ds), **options)

    def __next__(self) -> tuple[Any, ...]:
        return cast("tuple[Any, ...]", self._locked(self._take, CHANGE))

    def _take(self) -> tuple[Any, ...]:
        while not self._closed and not self._done:
            if self._engine is None:
                self._open()
                continue
            try:
                step = cast(_Engine, self._engine).next()
            except Cancelled:
                continue  # by close() in another thread, or a handler of the signal that raised nothing
            if step is None:
                self._ended()
                break
            first, size = _address(step.replicas), ffi.sizeof("mr_block")
            return tuple([self._element(first + r * size) for r in range(step.n_replicas)])
        raise StopIteration

    def _make_engine(self, ledger: str | os.PathLike[str] | None) -> Any:
        made = None if ledger is None else Ledger(ledger, steps=True)
        return _Engine(cast(DistributedDataset, self.dataset), self._options, made)

    def _attach_engine(self, engine: Any) -> None:
        self._engine = engine
        self._before = stats_of(engine.pipeline)
        spec = lib.mr_dist_dataset_spec(engine.ds)
        n = lib.mr_spec_n_leaves(spec)
        ragged = [bool(lib.mr_spec_leaf(spec, i).ragged) for i in range(n)]
        arrow = None if self._arrow is None else arrow_maker(spec, self._str)
        self._attach(0, plan_of(spec), ragged, self._convert, self._str, arrow, self._arrow == "all")

    def _cancel(self) -> None:
        engine = self._engine
        if engine is not None and engine.it != ffi.NULL:
            lib.mr_dist_iterator_cancel(engine.it)

    def _was_interrupted(self) -> bool:
        return self._engine is not None and cast(_Engine, self._engine).interrupted

    def _graph(self) -> Dataset:
        return cast(DistributedDataset, self.dataset).graph
