# SPDX-License-Identifier: Apache-2.0
"""Datasets: immutable graphs of the library."""

from __future__ import annotations

import os
from collections.abc import Callable
from operator import index
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar, overload

from . import _fast, _hints, _trace
from ._errors import Error, FailedPrecondition, TraceError, check, without_secrets
from ._ffi import ffi, lib
from ._generated import Methods
from ._iterator import Iterator, Options, Shared, interruptible
from ._lookup import Lookup, look_up
from ._python import PythonMethods
from ._report import Bench, Explanation, bench, explain
from ._types import DatasetSpec, Spec, pointer_of, spec_of
from ._values import Names

_D = TypeVar("_D", bound="Dataset")
INFINITE: int = lib.MR_INFINITE
UNKNOWN: int = lib.MR_UNKNOWN_COUNT


class Dataset(PythonMethods, Methods, metaclass=_hints.Kind):
    """A pipeline: a source and the operations on its elements. It runs when it is iterated.

        >>> import millrace as mr
        >>> ds = mr.from_text("range(5).batch(2)")
        >>> for x in ds:
        ...     print(x)
        [0 1]
        [2 3]
        [4]

    Each iterator of a Dataset object is its next epoch: shuffles draw another order, and memory
    caches keep what the first epoch read. Datasets cannot be changed; they can be hashed, compared,
    pickled, and printed: `str(ds)` is the text of the pipeline.
    """

    __slots__ = ("_ds", "_spec", "_shared", "_lookup", "_open", "_written", "__weakref__")
    _ds: Any  # an mr_dataset *
    _spec: Any
    _shared: Shared | None
    _lookup: Lookup | None  # for ds[i]
    _open: str | None  # its text, if it uses parameters of a function that is being recorded
    _written: str | None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise TypeError(
            "datasets are made by sources, as in millrace.range(10), or by millrace.from_text('range(10)')"
        )

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            _hints.missing(self, "a Dataset", name, _hints.OF_DATASET)

    @property
    def element_spec(self) -> Any:
        """The structure of an element: TensorSpec, or tuples and dicts of them.

            >>> import millrace as mr
            >>> mr.from_text("range(5).batch(2)").element_spec
            TensorSpec(shape=(None,), dtype=mr.int64)
        """
        if self._spec is None:
            self._spec = spec_of(lib.mr_dataset_spec(self._pointer()))
        return self._spec

    def cardinality(self) -> int:
        """The number of elements, `mr.INFINITE`, or `mr.UNKNOWN` where only running would show it."""
        return interruptible(lambda: lib.mr_dataset_cardinality(self._pointer()), UNKNOWN)

    def __len__(self) -> int:
        n = self.cardinality()
        if n == INFINITE:
            raise TypeError("this dataset has no end; take(n) is its first n elements")
        if n == UNKNOWN and interruptible(lambda: lib.mr_dataset_indexed(self._pointer(), ffi.NULL)) == lib.MR_OK:
            try:
                return look_up(self, Lookup.count)
            except Error as why:  # list() asks too, of datasets that it can iterate over
                raise TypeError(f"the number of elements is not known without running: {why}") from why
        if n == UNKNOWN:
            raise TypeError(
                "the number of elements is not known without running; assert_cardinality(n) states it"
            )
        return n

    def __iter__(self) -> Iterator:
        return Iterator(self)

    def iterator(
        self,
        *,
        format: str = "numpy",
        strings: str = "bytes",
        seed: int | None = None,
        threads: int | None = None,
        memory_limit: int | str | None = None,
        ledger: str | os.PathLike[str] | None = None,
        progress: bool = False,
        on_mismatch: str = "refuse",
    ) -> Iterator:
        """An iterator, with options.

        Args:
            format: what elements are made of: "numpy", "torch", "jax" or "arrow".
            strings: "bytes", "str" (UTF-8 is decoded) or "arrow".
            seed: the job's seed: ops and functions without a seed draw from it.
            threads: how many the library starts; 0: all work is done by the thread that calls next.
                None: the number of processors that this process may use.
            memory_limit: most resident memory of this process, in bytes or as "2G". None: that of the
                graph, or of the control group.
            ledger: a file that records which records each element was made of, for `millrace why`.
            progress: shows a bar, if tqdm is installed.
            on_mismatch: "by_name": `load_state_dict` takes a position of a dataset with other sources
                and weights of `mix`. Each source continues where the position has its name, new ones
                begin at their beginning, and the places of removed ones are kept, so that they can
                come back. "refuse": it must be of an equal dataset.
        """
        kind: type[Iterator] = Iterator
        if progress:
            from ._progress import ProgressIterator as kind
        return kind(
            self,
            format=format,
            strings=strings,
            seed=seed,
            threads=threads,
            memory_limit=memory_limit,
            ledger=ledger,
            on_mismatch=on_mismatch,
        )

    def __bool__(self) -> bool:
        return True

    @overload
    def __getitem__(self, part: slice) -> Dataset: ...
    @overload
    def __getitem__(self, part: SupportsIndex) -> Any: ...
    def __getitem__(self, part: slice | SupportsIndex) -> Any:
        """`ds[:100]` is take(100), `ds[10:]` skip(10).

        `ds[i]` is element i of an indexed dataset (docs/random_access.md), `ds[-1]` the last one. Its
        files stay open as long as the Dataset object.

            >>> import millrace as mr
            >>> mr.range(10, 20).map(lambda x: x * 2)[3]
            26

        Raises FailedPrecondition for other datasets, and names the op.
        """
        if not isinstance(part, slice):
            if not hasattr(part, "__index__"):
                raise TypeError(
                    f"ds[i] is an element and ds[:n] the first ones, not {part!r:.60}; "
                    "for a component of each element, ds.map(lambda e: e['name'])"
                )
            return look_up(self, lambda x: x.at(index(part)))
        start, stop, step = part.start or 0, part.stop, 1 if part.step is None else part.step
        if step != 1 or start < 0 or (stop is not None and stop < 0):
            raise ValueError("slices of datasets go forward in steps of 1 from the beginning: ds[10:20]")
        out: Dataset = self
        if stop is not None:
            out = out.take(stop)
        return out.skip(start) if start else out

    def explain(
        self,
        *,
        replicas: int | None = None,
        workers: int | None = None,
        worker: int | None = None,
        auto_shard: str | None = None,
    ) -> Explanation:
        """The ops of the pipeline: how many elements each emits, what one looks like, and how many are
        held; in notebooks a table. With replicas or workers, also how the graph is distributed, as
        `millrace explain` prints it.

            >>> import millrace as mr
            >>> print(mr.range(100).batch(8).explain().ops[1].elements)
            13
        """
        return explain(self, replicas, workers, worker, auto_shard)

    def bench(
        self,
        *,
        limit: int | None = None,
        seconds: float | None = None,
        warmup: int = 0,
        threads: int | None = None,
        seed: int | None = None,
        memory_limit: int | str | None = None,
    ) -> Bench:
        """Runs the pipeline without making Python objects of its elements, and tells where the time
        goes.

        Args:
            limit: at most that many elements.
            seconds: at most that long.
            warmup: epochs before the one that is measured.
            threads: as for `iterator`.
            seed: as for `iterator`.
            memory_limit: as for `iterator`.
        """
        return bench(self, Options(seed, threads, memory_limit), limit, seconds, warmup)

    def as_tf_dataset(self) -> Any:
        """The elements as a `tf.data.Dataset`: the same structure, types and shapes, sizes that vary
        as None, strings as tf.string, ragged tensors as tf.RaggedTensor. Each iteration is the next epoch.

        Example:
            model.fit(ds.batch(32).as_tf_dataset(), epochs=3)
        """
        from ._tensorflow import as_tf_dataset

        return as_tf_dataset(self)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The elements as an Arrow stream of structs, for pyarrow, polars, duckdb and others.

        Each stream has the elements of the first epoch and counts as none, as a consumer may ask for
        several in one query; nothing is shared with iterators or other streams, neither caches.
        """
        stream, st = ffi.new("struct ArrowArrayStream *"), ffi.new("mr_status *")
        check(lib.mrpy_arrow_stream(stream, self._pointer(), st), st)
        return _fast.stream_capsule(int(ffi.cast("intptr_t", stream)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Dataset):
            return NotImplemented
        if self is other or (self._ds is not None and self._ds == other._ds):
            return True
        mine, others = self._canonical(), other._canonical()
        return mine is not None and mine == others and 'callback("' not in mine

    def __hash__(self) -> int:
        text = self._canonical()
        return hash(self._ds) if text is None or 'callback("' in text else hash(text)

    def __copy__(self) -> Dataset:
        return self

    def __deepcopy__(self, memo: Any) -> Dataset:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_proto, (self.to_proto(),)

    def to_proto(self) -> bytes:
        """The protobuf form (pipeline/graph/graph.proto), which has the values of its arrays too;
        pickling uses it.

        Raises FailedPrecondition for a graph that exists in this process alone, such as one of a
        generator."""
        out, size, st = ffi.new("void **"), ffi.new("size_t *"), ffi.new("mr_status *")
        code = lib.mr_dataset_to_proto(self._pointer(), out, size, st)
        _, found, rest = (self._canonical() or "").partition('callback("')
        if code == lib.MR_FAILED_PRECONDITION and found:
            raise FailedPrecondition(
                f"{rest.partition(chr(34))[0]} is a Python object of this process, so the dataset cannot be pickled or "
                "sent; @mr.register gives a function a name, by which processes that register it find it"
            )
        check(code, st)
        data = bytes(ffi.buffer(out[0], size[0]))
        lib.mr_free(out[0])
        return data

    def __str__(self) -> str:
        text = self._open if self._open is not None else self._canonical()
        return f"<no text: elements of {self.element_spec!r}>" if text is None else text

    def __repr__(self) -> str:
        return f"<millrace.Dataset {without_secrets(str(self))}>"

    def _canonical(self) -> str | None:
        """The canonical text; None: it has none."""
        if self._written is None:
            try:
                self._written = text_of_dataset(self._pointer())
            except FailedPrecondition:
                self._written = ""
        return self._written or None

    def _pointer(self) -> Any:
        if self._open is not None:
            raise TraceError(
                "a dataset within a recorded function has no elements yet: it is an expression; return it, or "
                "call methods of it"
            )
        return self._ds

    # ---- within recorded functions (_trace.py)

    def _text(self) -> str:
        """Text for recorded functions: a name, where arrays or generators have no text to parse."""
        if self._open is not None:
            return self._open
        text = self._canonical()
        return f"ds_{id(self):x}" if text is None or _has_reference(text) else text

    @property
    def _arrays(self) -> dict[str, Any]:
        """The values of the names in _text()."""
        name = self._text()
        return {name: self} if name == f"ds_{id(self):x}" else {}


def _has_reference(text: str) -> bool:
    return 'array("' in text or 'callback("' in text


class Sequence(Dataset):
    """The items of a sequence: see `millrace.from_sequence`."""

    __slots__ = ("_source", "_look_up")
    _source: Dataset  # of the numbers of items
    _look_up: Callable[[Dataset], Dataset]

    @classmethod
    def _of(cls, source: Dataset, look_up: Callable[[Dataset], Dataset]) -> Sequence:
        out: Sequence = _fresh(cls, lib.mr_dataset_ref(look_up(source)._ds))
        out._source, out._look_up = source, look_up
        return out

    def global_shuffle(
        self, seed: int | None = None, reshuffle_each_iteration: bool | None = None, window: int | None = None
    ) -> Dataset:
        """All items in one random order, without a buffer: their numbers are permuted.

        Args:
            seed: fixes the order; drawn at random if absent.
            reshuffle_each_iteration: draws a new order in each epoch. Default: True.
            window: permutes blocks of this number of neighbours, and the items within each; None: all items.
        """
        return self._look_up(self._source.global_shuffle(seed, reshuffle_each_iteration, window))

    def skip(self, count: int) -> Dataset:
        """Leaves out the first items, without looking them up.

        Args:
            count: items to leave out; negative: all.
        """
        return Sequence._of(self._source.skip(count), self._look_up)

    def split(self, fractions: Any = None, index: int = 0, seed: int = 0) -> Dataset:
        """Emits one part of a random cut of the items; those of other parts are not looked up.

        Args:
            fractions: the share of each part, together at most 1. Default: [0.9, 0.1].
            index: the part to emit, from 0.
            seed: determines the cut, which all parts must have in common.
        """
        return Sequence._of(self._source.split(fractions, index, seed), self._look_up)


def new_dataset(pointer: Any) -> Dataset:
    """A Dataset of an `mr_dataset *` that the caller owns."""
    return _fresh(Dataset, pointer)


def _fresh(kind: type[_D], pointer: Any) -> _D:
    ds: _D = object.__new__(kind)
    ds._ds = ffi.gc(pointer, lib.mr_dataset_unref)
    ds._spec = None
    ds._shared = None
    ds._lookup = None
    ds._open = None
    ds._written = None
    return ds


def open_dataset(text: str, spec: Spec | None = None) -> Dataset:
    """A dataset within a function that is being recorded."""
    if spec is None:
        found = _trace.spec_of_text(text)
        assert isinstance(found, DatasetSpec)
        spec = found.element_spec
    ds = new_dataset(ffi.NULL)
    ds._ds = None
    ds._spec = spec
    ds._open = text
    return ds


class _Recording:
    """What recording needs of the library."""

    def infer(self, text: str, spec: Spec) -> Spec:
        pointer = pointer_of(spec)
        given = new_dataset(lib.mrpy_given(pointer))
        lib.mr_spec_unref(pointer)
        names = Names()
        receiver = names.dataset(given)
        arrays = _trace._state.arrays or {}
        names.add_all({k: v for k, v in arrays.items() if not k.endswith("!")})
        found: Spec = parse(f"{receiver}.map({text})", names, call=True).element_spec
        return found

    def dataset(self, text: str, spec: Spec) -> Dataset:
        return open_dataset(text, spec)


_trace.use_engine(_Recording())


def dataset_at(pointer: int) -> Dataset:
    """The Dataset at an address, with its own reference."""
    return new_dataset(lib.mr_dataset_ref(ffi.cast("mr_dataset *", pointer)))


def text_of_dataset(pointer: Any) -> str:
    out, st = ffi.new("char **"), ffi.new("mr_status *")
    check(lib.mr_dataset_to_text(pointer, out, st), st)
    text: str = ffi.string(out[0]).decode("utf-8", "surrogateescape")
    lib.mr_free(out[0])
    return text


def parse(text: str, names: Names | None = None, *, call: bool = False) -> Dataset:
    """The dataset that a text describes. call: the text was made of a call in Python."""
    data = text.encode("utf-8", "surrogateescape")
    out, st = ffi.new("mr_dataset **"), ffi.new("mr_status *")
    env = names.env() if names is not None and names.names else ffi.NULL

    def build() -> int:
        return int(lib.mr_dataset_from_text(data, len(data), env, out, st))

    code = interruptible(build)
    if code == lib.MR_INVALID_ARGUMENT and b"distribute" in data and _service_loads():
        code = interruptible(build)
    check(code, st, call=call)
    return new_dataset(out[0])


def _service_loads() -> bool:
    """Whether the data service's library, which has the op distribute, was not loaded before, and is
    now."""
    from . import _service

    if _service.is_loaded():
        return False
    _service.library()
    return True


def from_text(text: str) -> Dataset:
    """The dataset that a text describes, in the grammar of the command line.

        >>> import millrace as mr
        >>> list(mr.from_text("range(3).map(x => x * x)"))
        [0, 1, 4]
    """
    if not isinstance(text, str):
        raise TypeError(f"a pipeline's text is a str, not {type(text).__name__}")
    return parse(text)


def _from_proto(data: bytes) -> Dataset:
    out, st = ffi.new("mr_dataset **"), ffi.new("mr_status *")

    def build() -> int:
        return int(lib.mr_dataset_from_proto(data, len(data), out, st))

    code = interruptible(build)
    if code == lib.MR_INVALID_ARGUMENT and b"distribute" in data and _service_loads():
        code = interruptible(build)
    check(code, st)
    return new_dataset(out[0])
