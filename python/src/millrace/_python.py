# SPDX-License-Identifier: Apache-2.0
"""Python code in graphs: map_py and its kind, generators, sequences, registered functions.

The library calls back into this module with blocks of elements. It keeps their order, their
positions and the places of errors; here rows become Python objects and results become columns.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import inspect
import json
import re
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from . import _fast, _types
from ._callbacks import callback
from ._errors import Error, InvalidArgument, Unimplemented, check
from ._ffi import ffi, lib
from ._log import logger
from ._types import DatasetSpec, Spec, TensorSpec, as_spec, plan_of, pointer_of, spec_of
from ._values import AUTO, Auto
from ._worker import Column, Leaf, Mismatch, Task, as_array, describe, ends_program, flatten, generator, pack

if TYPE_CHECKING:
    from ._dataset import Dataset
    from ._processes import Pool

Parallel = Literal["thread", "process", "inline"]
_F = TypeVar("_F", bound=Callable[..., Any])
MOST_BYTES, MOST_ROWS = 256 << 10, 1 << 16  # of a block of a generator
LACKS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ENOSPC)  # of descriptors, memory, processes
MOST_SECONDS = 2e-3  # that a generator runs before its elements are delivered


# ---- specs


def ordered(spec: Spec) -> Spec:
    """The spec with its components in the library's order."""
    pointer = pointer_of(spec)
    out: Spec = spec_of(pointer)
    lib.mr_spec_unref(pointer)
    return out


def leaves_of(spec: Spec) -> list[Leaf]:
    if isinstance(spec, TensorSpec):
        strings = spec.dtype == _types.bytes
        dtype = None if strings else _types.numpy_dtype(spec.dtype.number)
        if spec.dtype == _types.bfloat16 and dtype == np.float32:
            raise Unimplemented("results of bfloat16 need the package ml_dtypes")
        return [Leaf(spec.dtype.name, dtype, spec.shape, bool(spec.ragged))]
    if isinstance(spec, DatasetSpec):
        raise Unimplemented("Python functions cannot return datasets; flat_map records a function that does")
    parts = spec.values() if isinstance(spec, dict) else spec
    return [leaf for p in parts for leaf in leaves_of(p)]


def spec_of_result(x: Any) -> Spec:
    """The type of the elements that are like x."""
    if isinstance(x, dict):
        for name in x:
            if not isinstance(name, str):
                raise Mismatch(f"the names of a record are str, not {type(name).__name__} {name!r:.60}")
        return {name: spec_of_result(v) for name, v in x.items()}
    if isinstance(x, tuple):
        return tuple(spec_of_result(v) for v in x)
    if isinstance(x, _types.Ragged):
        values = as_array(x.values, None)
        return TensorSpec((len(x), None, *values.shape[1:]), _dtype_of(values), ragged=True)
    a = as_array(x, None)
    return TensorSpec(a.shape, _dtype_of(a))


def _dtype_of(a: np.ndarray[Any, Any]) -> _types.DType:
    if a.dtype == object:
        return _types.bytes
    found = _types.dtype_of_numpy(a.dtype)
    if found is None:
        raise Mismatch(f"there is no type for arrays of {a.dtype}")
    return found


class Structure:
    """What is needed to make Python objects of the rows of a spec."""

    def __init__(self, spec: Any) -> None:
        """spec: an `mr_spec *`."""
        self.plan = plan_of(spec)
        self.ragged = [bool(lib.mr_spec_leaf(spec, i).ragged) for i in range(lib.mr_spec_n_leaves(spec))]
        self.components = len(self.plan) if isinstance(self.plan, tuple) else 1


# ---- columns


def fill(block: Any, columns: list[Column], leaves: list[Leaf], numbers: list[int], rows: int, st: Any) -> None:
    """Makes `rows` rows of the columns."""
    check(lib.mr_block_prepare(block, len(leaves), st), st)
    for i, column in enumerate(columns):
        array, leaf = block.columns + i, leaves[i]
        if isinstance(column, list):
            _fill_varying(array, column, leaf, numbers[i], st)
            continue
        shape = ffi.new("int64_t[]", list(column.shape[1:]) or [0])
        check(lib.mr_array_alloc(array, numbers[i], column.ndim - 1, shape, rows, st), st)
        if leaf.dtype is None:
            _fill_strings(array.data, array.owner, column.reshape(-1).tolist(), st)
        elif column.size:
            to = np.frombuffer(ffi.buffer(array.data, column.nbytes), np.uint8).view(leaf.dtype)
            to.reshape(column.shape)[...] = column
    block.rows = rows


def _fill_strings(data: Any, owner: Any, values: list[bytes], st: Any) -> None:
    """Writes views of the strings to data; owner keeps their bytes."""
    joined = b"".join(values)
    if not values:
        return
    sizes = np.fromiter(map(len, values), np.uint64, len(values))
    views = np.frombuffer(ffi.buffer(data, 16 * len(values)), np.uint64).reshape(-1, 2)
    views[:, 1] = sizes
    views[:, 0] = 0
    if not joined:
        return
    memory = _copy(joined, len(joined), owner, st)
    views[:, 0] = int(ffi.cast("uintptr_t", memory)) + np.concatenate(([0], np.cumsum(sizes)[:-1])).astype(np.uint64)


def _copy(data: Any, size: int, owner: Any, st: Any) -> Any:
    """The address of a copy that owner keeps."""
    out = ffi.new("mr_buffer **")
    check(lib.mr_buffer_alloc(out, max(size, 1), st), st)
    memory = lib.mr_buffer_data(out[0])
    if size:
        ffi.memmove(memory, data, size)
    code = lib.mr_buffer_hold(owner, out[0], st)
    lib.mr_buffer_unref(out[0])
    check(code, st)
    return memory


def _fill_varying(array: Any, column: list[Any], leaf: Leaf, number: int, st: Any) -> None:
    """Rows that differ in shape, or that are ragged themselves: (values, row_splits)."""
    shapes = [(len(v[1]) - 1, -1, *v[0].shape[1:]) if isinstance(v, tuple) else v.shape for v in column]
    rank = len(shapes[0])
    if any(len(s) != rank for s in shapes):
        raise InvalidArgument("the results differ in their number of axes")
    check(lib.mr_array_alloc_ragged(array, number, rank, len(column), st), st)
    rows = ffi.cast("mr_row *", array.data)
    for i, v in enumerate(column):
        values = v[0] if isinstance(v, tuple) else v
        slot = lib.mr_array_shape_slot(array, i)
        for k, n in enumerate(shapes[i]):
            slot[k] = n
        rows[i].shape = slot
        if isinstance(v, tuple):
            splits = np.ascontiguousarray(v[1], np.int64)
            rows[i].splits = ffi.cast("int64_t *", _copy(ffi.from_buffer(splits), splits.nbytes, array.owner, st))
        if leaf.dtype is None:
            strings = values.reshape(-1).tolist()
            views = _copy(b"\0" * (16 * len(strings)), 16 * len(strings), array.owner, st)
            _fill_strings(views, array.owner, strings, st)
            rows[i].data = views
        else:
            dense = np.ascontiguousarray(values)
            data = ffi.from_buffer(dense.reshape(-1).view(np.uint8)) if dense.size else b""
            rows[i].data = _copy(data, dense.nbytes, array.owner, st)


# ---- what the library calls

_kept: dict[Any, Any] = {}  # objects that it has, by their addresses


def keep(x: Any) -> Any:
    handle = ffi.new_handle(x)
    _kept[handle] = handle
    return handle


def fail(st: Any, code: str, message: str) -> int:
    number: int = getattr(lib, "MR_" + code, lib.MR_UNKNOWN)
    lib.mrpy_fail(st, number, message.encode("utf-8", "surrogateescape"))
    return number


def _fail_with(st: Any, e: BaseException) -> int:
    """The error of a whole call."""
    if ends_program(e):
        # The function raised this in the main thread, as a rule in the handler of a signal.
        _fast.raise_later(e)
        return fail(st, "CANCELLED", "interrupted")
    if isinstance(e, Error):
        return fail(st, e.code, str(e))
    code, message = describe(e)
    if isinstance(e, OSError) and e.errno in LACKS:
        code = "RESOURCE_EXHAUSTED"
    return fail(st, code, message)


@callback(error=lib.MR_INTERNAL)
def mrpy_call(ctx: Any, call: Any, rows: Any, out: Any, errors: Any, st: Any) -> int:
    try:
        function: Function = ffi.from_handle(ctx)
        return function.call(call, rows, out, errors, st)
    except BaseException as e:
        return _fail_with(st, e)


@callback(error=lib.MR_INTERNAL)
def mrpy_begin(ctx: Any, run: Any, st: Any) -> int:
    try:
        function: Function = ffi.from_handle(ctx)
        run[0] = keep(function.begin())
        return int(lib.MR_OK)
    except BaseException as e:
        return _fail_with(st, e)


@callback()
def mrpy_end(ctx: Any, run: Any) -> None:
    pool: Pool = ffi.from_handle(run)
    pool.close()
    _kept.pop(run, None)


@callback()
def mrpy_forget(ctx: Any) -> None:
    _kept.pop(ctx, None)


class Function:
    """A Python function of elements, which the library calls with blocks."""

    def __init__(
        self, task: Task, given: Structure | None, numbers: list[int], seed: int, payload: Any = None, workers: int = 0
    ) -> None:
        """given: of the elements; None: that of the call."""
        self.task, self.given, self.numbers, self.seed = task, given, numbers, seed
        self.payload, self.workers = payload, workers

    def begin(self) -> Pool:
        from ._processes import Pool

        return Pool(self.payload, self.workers, self.task.function)

    def call(self, call: Any, block: Any, out: Any, errors: Any, st: Any) -> int:
        task, n = self.task, int(block.rows)
        given = self.given or Structure(getattr(call, "in"))
        # What filter drops or passes on must not be changed by its function.
        columns = _fast.columns(int(ffi.cast("intptr_t", block)), given.ragged, task.kind != "filter")
        keys = [lib.mr_rows_key(call, i, self.seed) for i in range(n)] if task.rng else []
        if call.run == ffi.NULL:
            made, failures = task.run(columns, n, keys, given.plan)
            self._deliver(made, n, failures, out, errors, st)
        else:
            pool: Pool = ffi.from_handle(call.run)
            with pool.run(columns, n, keys, call.cancel) as (made, failures):
                self._deliver(made, n, failures, out, errors, st)
        return int(lib.MR_OK)

    def _deliver(self, columns: list[Column], n: int, failures: Any, out: Any, errors: Any, st: Any) -> None:
        good = n - len(failures)
        if good:
            fill(out, columns, self.task.leaves, self.numbers, good, st)
        if failures:
            why = ffi.new("mr_status *")
            for row, code, message in failures:
                fail(why, code, message)
                check(lib.mr_row_errors_add(errors, row, why, st), st)


# ---- map_py, filter_py, flat_map_py


class _Signature:
    """How a function wants an element."""

    def __init__(self, fn: Callable[..., Any], op: str, plan: Any) -> None:
        if not callable(fn):
            raise TypeError(f"{op}: expected a function, not {type(fn).__name__}")
        if inspect.iscoroutinefunction(fn):
            raise TypeError(f"{op}: a coroutine function is not called; wrap it: lambda x: asyncio.run(f(x))")
        tuples = isinstance(plan, tuple)
        self.rng, self.several = False, tuples
        try:
            parameters = inspect.signature(fn).parameters.values()
        except (TypeError, ValueError):
            return  # of C
        self.rng = any(p.name == "rng" and p.kind != p.VAR_KEYWORD for p in parameters)
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        positional = [p for p in parameters if p.kind in kinds and p.name != "rng"]
        required = sum(p.default is p.empty for p in positional)
        variadic = any(p.kind == p.VAR_POSITIONAL for p in parameters)
        if plan is None:
            self.several = len(positional) > 1 or variadic
            return
        parts = len(plan) if tuples else 1
        if len(positional) == 1 or required == 1 and parts == 1:
            self.several = False
        elif parts < required or (parts > len(positional) and not variadic):
            raise TypeError(
                f"{op}: the function has {len(positional)} parameters and the elements have {parts} "
                f"component{'' if parts == 1 else 's'}: as many are needed, or a single parameter that takes the "
                "whole element"
            )


def label_of(fn: Any) -> str:
    name = getattr(fn, "__qualname__", None) or type(fn).__qualname__
    return f"{getattr(fn, '__module__', None) or '?'}.{name}"


def _results(ds: Dataset, task: Task) -> Generator[Any, None, None]:
    """What the function returns for the first elements, one after the other."""
    from ._dataset import new_dataset

    again = new_dataset(lib.mr_dataset_ref(ds._pointer()))  # not an epoch of ds
    with again.iterator(threads=0) as it:
        for x in it:
            if task.batched:
                yield task.function(*_as_batch(x), **_one_rng(task)) if task.several else task.function(
                    _as_batch(x), **_one_rng(task)
                )
            else:
                yield task.call(x, 0)


def _one_rng(task: Task) -> dict[str, Any]:
    return {"rng": [generator(0)]} if task.rng else {}


def _as_batch(x: Any) -> Any:
    """An element as a batch of one."""
    if isinstance(x, tuple):
        return tuple(map(_as_batch, x))
    if isinstance(x, dict):
        return {k: _as_batch(v) for k, v in x.items()}
    if isinstance(x, _types.Ragged):
        return [x]
    if isinstance(x, bytes):
        out = np.empty(1, object)
        out[0] = x
        return out
    return np.asarray(x)[None]


def _without_axis(spec: Spec) -> Spec:
    if isinstance(spec, TensorSpec):
        if not spec.shape:
            raise Mismatch("with batched=True the function returns arrays whose axis 0 are the elements")
        return TensorSpec(spec.shape[1:], spec.dtype)
    if isinstance(spec, dict):
        return {k: _without_axis(v) for k, v in spec.items()}
    assert isinstance(spec, tuple)
    return tuple(map(_without_axis, spec))


def _inferred(op: str, ds: Dataset, task: Task) -> Spec:
    """The type of the results, which the first element shows."""
    try:
        with contextlib.closing(_results(ds, task)) as results:
            for result in results:
                if task.kind != "flat_map":
                    spec = spec_of_result(result)
                    return _without_axis(spec) if task.batched else spec
                for x in result:
                    return spec_of_result(x)
    except Mismatch as e:
        raise InvalidArgument(f"{op}: of the first element, {e}") from None
    raise InvalidArgument(
        f"{op}: there are no elements that would show the type of the results; state it: output=mr.float32[3]"
    )


def joined_spec(spec: Spec) -> Spec:
    """Of several elements along a new axis 0."""
    if isinstance(spec, TensorSpec):
        assert spec.shape is not None
        return TensorSpec((None, *spec.shape), spec.dtype, ragged=bool(spec.shape) and spec.shape[0] is None)
    if isinstance(spec, dict):
        return {k: joined_spec(v) for k, v in spec.items()}
    assert isinstance(spec, tuple)
    return tuple(map(joined_spec, spec))


def _depth(ds: Any) -> int:
    """The number of ops with functions below: each draws other random numbers."""
    n = 0
    while True:
        n += ffi.string(lib.mr_dataset_op(ds).name) in (b"map", b"filter")
        if not lib.mr_dataset_n_inputs(ds):
            return n
        ds = lib.mr_dataset_input(ds, 0)


def new_rows(function: Function, out: Any, label: str, alias: str | None, may_block: bool, name: str | None) -> Any:
    """An `mr_fn *` that calls the function. out: an `mr_spec *`."""
    f = ffi.new("mr_rows_fn *")
    f.ctx = keep(function)
    f.call, f.release = lib.mrpy_call, lib.mrpy_forget
    if function.payload is not None:
        f.begin, f.end = lib.mrpy_begin, lib.mrpy_end
    texts = [ffi.NULL if t is None else ffi.new("char[]", t.encode()) for t in (label, alias, name)]
    f.label, f.alias, f.name = texts
    f.out, f.may_block, f.draws = out, may_block, function.task.rng
    # A call costs about 0.1 ms. One of another process costs more, and much of its time it waits:
    # for the call before it, and for a processor where others want them.
    f.seconds = 2e-3 if function.payload is None else 40e-3
    fn = lib.mr_fn_rows(f)
    if fn == ffi.NULL:
        raise MemoryError("a function")
    return fn


def _workers(op: str, num_workers: int | Auto, parallel: str) -> int:
    """0: as needed."""
    if parallel not in ("thread", "process", "inline"):
        raise InvalidArgument(f"{op}: parallel is 'thread', 'process' or 'inline', not {parallel!r}")
    if isinstance(num_workers, Auto):
        return int(lib.mr_usable_cpus()) if parallel == "process" else 0
    if isinstance(num_workers, bool) or not isinstance(num_workers, (int, np.integer)) or num_workers < 1:
        raise InvalidArgument(f"{op}: num_workers is at least 1, or mr.AUTO, not {num_workers!r}")
    return int(num_workers)


def apply(
    op: str,
    ds: Dataset,
    fn: Callable[..., Any],
    kind: str,
    output: Any,
    batched: bool,
    parallel: str,
    num_workers: int | Auto,
    deterministic: bool,
    many: Callable[[list[int]], Sequence[Any]] | None = None,
    label: str | None = None,
) -> Dataset:
    """The dataset of a method, or of from_sequence."""
    from ._dataset import new_dataset, parse
    from ._values import Names

    workers = _workers(op, num_workers, parallel)
    alias: str | None = None
    if isinstance(fn, Registered):
        alias, output, fn = fn.name, fn.output if output is None else output, fn.__wrapped__
        if kind != "map":
            alias = None
    structure = Structure(lib.mr_dataset_spec(ds._pointer()))
    signature = _Signature(fn, op, structure.plan)
    task = Task(fn, many, kind, batched, signature.several, signature.rng, structure.plan, 0, [])
    element: Spec
    if kind == "filter":
        element = TensorSpec((), _types.bool)
    else:
        element = ordered(as_spec(output) if output is not None else _inferred(op, ds, task))
    of_results = element if kind != "flat_map" else joined_spec(element)
    pointer = pointer_of(of_results)
    try:
        leaves = leaves_of(element)
        task = task._replace(out_plan=plan_of(pointer), leaves=leaves)
        payload = None
        if parallel == "process":
            from ._processes import payload_of

            payload = payload_of(op, task)
        numbers = [int(lib.mr_spec_leaf(pointer, i).dtype) for i in range(len(leaves))]
        function = Function(task, structure, numbers, _depth(ds._pointer()), payload, workers)
        f = new_rows(function, pointer, label or label_of(fn), alias, parallel != "inline", None)
    finally:
        lib.mr_spec_unref(pointer)
    opts = ffi.new("mr_map_opts *")
    # Of two calls for a worker process, one waits while the other's results are delivered.
    opts.num_parallel_calls = (
        0 if parallel == "inline" else 2 * workers if parallel == "process" else workers or lib.MR_AUTO
    )
    opts.deterministic = lib.MR_YES if deterministic else lib.MR_NO
    made = lib.mr_filter if kind == "filter" else lib.mr_map
    out = new_dataset(made(lib.mr_dataset_ref(ds._pointer()), f, opts))
    st = ffi.new("mr_status *")
    check(lib.mr_dataset_check(out._ds, st), st, call=True)
    if kind != "flat_map":
        return out
    names = Names()
    return parse(f"{names.dataset(out)}.unbatch()", names, call=True)


class PythonMethods:
    """Methods of datasets that run Python functions."""

    __slots__ = ()

    def map_py(
        self,
        fn: Callable[..., Any],
        *,
        output: Any = None,
        batched: bool = False,
        parallel: Parallel = "thread",
        num_workers: int | Auto = AUTO,
        deterministic: bool = True,
    ) -> Dataset:
        """Replaces each element with what a Python function returns for it. Unlike that of `map` the
        function is not recorded but called for every element, with numpy arrays, and may do anything.

        Args:
            fn: the function. A tuple comes as several arguments if it has several parameters. A
                parameter named `rng` gets a numpy.random.Generator: the same for an element with any
                number of workers, another one in each epoch.
            output: the type of the results, such as `mr.float32[3]` or a dict or tuple of types. None:
                that of the first element's result, for which the function is called here.
            batched: the function gets many elements at once, as arrays with one more axis 0, and
                returns such arrays. How many is not defined. `rng` is a list then.
            parallel: "thread": in threads of this process, which suits functions that release the GIL
                (numpy, PIL, tokenizers); "process": in worker processes, to which the function is
                sent by cloudpickle; "inline": one call at a time.
            num_workers: threads or processes; AUTO: as many threads as help, or a process for each CPU.
            deterministic: keeps the order; False: emits results as they are finished.

        An exception is the error of its element, with the traceback in the message; so is a result of
        another type or shape. `ignore_errors()` drops such elements.

            >>> import millrace as mr
            >>> list(mr.range(3).map_py(lambda x: f"{x:02}"))
            [b'00', b'01', b'02']
        """
        return apply(
            "map_py", self, fn, "map", output, batched, parallel, num_workers, deterministic  # type: ignore[arg-type]
        )

    def filter_py(
        self,
        fn: Callable[..., Any],
        *,
        parallel: Parallel = "thread",
        num_workers: int | Auto = AUTO,
        deterministic: bool = True,
    ) -> Dataset:
        """Keeps the elements for which a Python function returns True.

        Args:
            fn: the function, which returns a bool. See `map_py`, also for the other arguments.

            >>> import millrace as mr
            >>> list(mr.range(6).filter_py(lambda x: x % 3 == 0))
            [0, 3]
        """
        return apply(
            "filter_py", self, fn, "filter", None, False, parallel, num_workers, deterministic  # type: ignore[arg-type]
        )

    def flat_map_py(
        self,
        fn: Callable[..., Iterable[Any]],
        *,
        output: Any = None,
        parallel: Parallel = "thread",
        num_workers: int | Auto = AUTO,
        deterministic: bool = True,
    ) -> Dataset:
        """Concatenates what a Python function returns for the elements: for each of them a list or
        another iterable of elements, such as a generator, which is read to its end.

        Args:
            fn: the function. See `map_py`, also for the other arguments.
            output: the type of one of the elements that it returns.

        The elements that come of one element have one shape; where `output` says that axis 0 varies
        they may differ in that. An exception is one error in their place.

            >>> import millrace as mr
            >>> list(mr.range(4).flat_map_py(lambda n: [n] * n))
            [1, 2, 2, 3, 3, 3]
        """
        return apply(
            "flat_map_py", self, fn, "flat_map", output, False, parallel, num_workers, deterministic  # type: ignore[arg-type]
        )


# ---- registered functions


class Registered:
    """A function that graphs call by its name: what `mr.register` makes of it."""

    def __init__(self, name: str, function: Callable[..., Any], output: Any) -> None:
        self.name, self.output, self.__wrapped__ = name, output, function
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", name)
        self.__qualname__ = getattr(function, "__qualname__", name)
        self.__module__ = function.__module__
        self.__millrace_name__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__wrapped__(*args, **kwargs)

    def __reduce__(self) -> Any:
        return self.__qualname__

    def __repr__(self) -> str:
        return f"<{self.__module__}.{self.__qualname__}, registered as {self.name!r}>"


def register(name: str, *, output: Any) -> Callable[[_F], _F]:
    """Registers a Python function under a name, so that graphs with it can be printed, pickled, saved
    and sent to other processes that register it too.

    Args:
        name: letters, digits and underscores. Texts of graphs have it: `range(3).map(tokenize)`.
        output: the type of the results, as for `Dataset.map_py`.

    Workers of the data service that run such graphs import the module that registers the function:
    `millrace worker --python MODULE`. Registering a name again replaces its function in this process.

    Example:
        @mr.register("tokenize", output=mr.int64[...])
        def tokenize(text):
            return tokenizer.encode(text.decode()).ids

        mr.text_line("a.txt").map_py(tokenize)
    """
    spec = ordered(as_spec(output))

    def mark(function: _F) -> _F:
        known = _registered.get(name)
        if known is not None:
            known.task = _task_of(name, function, spec, known.plan)
        else:
            _register(name, function, spec)
        return Registered(name, function, output)  # type: ignore[return-value]

    return mark


class _Entry(Function):
    plan: Any


_registered: dict[str, _Entry] = {}


def runs_python(ds: Dataset) -> bool:
    """Whether its graph calls functions of Python: those without a name, or words of its text that are
    names of registered ones."""
    text = ds._canonical()
    return text is None or 'callback("' in text or any(re.search(rf"\b{name}\b", text) for name in _registered)


def _task_of(name: str, function: Callable[..., Any], spec: Spec, plan: Any) -> Task:
    signature = _Signature(function, f"register({name!r})", None)
    return Task(function, None, "map", False, signature.several, signature.rng, None, plan, leaves_of(spec))


def _register(name: str, function: Callable[..., Any], spec: Spec) -> None:
    pointer = pointer_of(spec)
    try:
        plan = plan_of(pointer)
        task = _task_of(name, function, spec, plan)
        numbers = [int(lib.mr_spec_leaf(pointer, i).dtype) for i in range(len(task.leaves))]
        entry = _Entry(task, None, numbers, 0)
        entry.plan = plan
        f = new_rows(entry, pointer, name, None, True, None)
    finally:
        lib.mr_spec_unref(pointer)
    st = ffi.new("mr_status *")
    code = lib.mr_fn_register(name.encode(), f, st)
    lib.mr_fn_unref(f)
    check(code, st)
    _registered[name] = entry


# ---- generators


class _Generator:
    """What from_generator was given."""

    def __init__(self, make: Callable[[], Any], leaves: list[Leaf], plan: Any, numbers: list[int]) -> None:
        self.make, self.leaves, self.plan, self.numbers = make, leaves, plan, numbers
        self.texts: list[Any] = []


class _Pass:
    """One iterator of it."""

    def __init__(self, generator: _Generator) -> None:
        self.generator = generator
        self.iterator = _iterator_of(generator.make)
        self.error: tuple[str, str] | None = None  # to be delivered next
        self.at = 0  # elements delivered, and errors
        # Elements of a block: the last one may be long in coming, and the others would wait for it.
        self.most = 1

    def next(self, want: int, out: Any, st: Any) -> int:
        g = self.generator
        if self.error is not None:
            (code, message), self.error = self.error, None
            number = fail(st, code, message)
            st.element = self.at
            self.at += 1
            return number
        columns: list[list[Any]] = [[] for _ in g.leaves]
        n, want, until = 0, min(want, self.most), time.monotonic() + MOST_SECONDS
        while n < want:
            try:
                values = flatten(next(self.iterator), g.plan, g.leaves)
            except StopIteration:
                break
            except BaseException as e:
                if ends_program(e):
                    raise
                self.error = describe(e)
                break
            for column, value in zip(columns, values):
                column.append(value)
            n += 1
            if n == 1:
                size = sum(getattr(v, "nbytes", 64) for v in values)
                want = min(want, max(1, MOST_BYTES // max(size, 1)))
            if time.monotonic() > until:
                self.most = max(1, n - 1)
                break
        else:
            self.most = min(2 * self.most, MOST_ROWS)
        if n == 0:
            return self.next(want, out, st) if self.error is not None else int(lib.MR_END)
        fill(out, [pack(c, leaf) for c, leaf in zip(columns, g.leaves)], g.leaves, g.numbers, n, st)
        self.at += n
        return int(lib.MR_OK)

    def save(self) -> bytes:
        state = {"state": as_json(self.iterator.state_dict()), "error": self.error, "at": self.at}
        return json.dumps(state, separators=(",", ":")).encode()

    def restore(self, data: bytes) -> None:
        state = json.loads(data)
        self.iterator.load_state_dict(from_json(state["state"]))
        self.at = int(state["at"])
        self.error = None if state["error"] is None else (str(state["error"][0]), str(state["error"][1]))

    def close(self) -> None:
        close = getattr(self.iterator, "close", None)
        if close is not None:
            close()


def _iterator_of(make: Callable[[], Any]) -> Any:
    made = make()
    return made if hasattr(made, "__next__") else iter(made)


def as_json(x: Any) -> Any:
    """A state as JSON."""
    if x is None or isinstance(x, (bool, int, float, str)) and not isinstance(x, np.generic):
        return x
    if isinstance(x, list):
        return [as_json(v) for v in x]
    if isinstance(x, dict) and all(isinstance(k, str) for k in x) and "$" not in x:
        return {k: as_json(v) for k, v in x.items()}
    if isinstance(x, dict):
        return {"$": "dict", "items": [[as_json(k), as_json(v)] for k, v in x.items()]}
    if isinstance(x, tuple):
        return {"$": "tuple", "items": [as_json(v) for v in x]}
    if isinstance(x, (bytes, bytearray)):
        return {"$": "bytes", "base64": base64.b64encode(x).decode()}
    if isinstance(x, (np.ndarray, np.generic)) and x.dtype.kind in "biuf":
        a = np.asarray(x)
        return {"$": "array", "dtype": a.dtype.str, "shape": a.shape, "base64": base64.b64encode(a.tobytes()).decode()}
    raise InvalidArgument(
        f"the generator's state_dict() has {type(x).__name__} {x!r:.60}; positions keep dicts, lists, tuples, "
        "numbers, str, bytes and numpy arrays of numbers"
    )


def from_json(x: Any) -> Any:
    if isinstance(x, list):
        return [from_json(v) for v in x]
    if not isinstance(x, dict):
        return x
    kind = x.get("$")
    if kind == "dict":
        return {from_json(k): from_json(v) for k, v in x["items"]}
    if kind == "tuple":
        return tuple(from_json(v) for v in x["items"])
    if kind == "bytes":
        return base64.b64decode(x["base64"])
    if kind == "array":
        a = np.frombuffer(base64.b64decode(x["base64"]), np.dtype(x["dtype"])).reshape(x["shape"])
        return a.copy() if a.shape else a[()]
    return {k: from_json(v) for k, v in x.items()}


@callback(error=lib.MR_INTERNAL)
def mrpy_open_pass(ctx: Any, out: Any, st: Any) -> int:
    try:
        out[0] = keep(_Pass(ffi.from_handle(ctx)))
        return int(lib.MR_OK)
    except BaseException as e:
        return _fail_with(st, e)


@callback(error=lib.MR_INTERNAL)
def mrpy_next(ctx: Any, handle: Any, want: int, out: Any, st: Any) -> int:
    try:
        p: _Pass = ffi.from_handle(handle)
        return p.next(want, out, st)
    except BaseException as e:
        return _fail_with(st, e)


@callback()
def mrpy_close_pass(ctx: Any, handle: Any) -> None:
    p: _Pass = ffi.from_handle(handle)
    try:
        p.close()
    except Exception:
        logger.exception("close() of %s failed", type(p.iterator).__qualname__)
    _kept.pop(handle, None)


@callback(error=lib.MR_INTERNAL)
def mrpy_save(ctx: Any, handle: Any, out: Any, size: Any, st: Any) -> int:
    try:
        p: _Pass = ffi.from_handle(handle)
        data = p.save()
        memory = lib.mr_malloc(len(data))
        if memory == ffi.NULL:
            raise MemoryError("a position")
        ffi.memmove(memory, data, len(data))
        out[0], size[0] = memory, len(data)
        return int(lib.MR_OK)
    except BaseException as e:
        return _fail_with(st, e)


@callback(error=lib.MR_INTERNAL)
def mrpy_restore(ctx: Any, handle: Any, data: Any, size: int, st: Any) -> int:
    try:
        p: _Pass = ffi.from_handle(handle)
        p.restore(bytes(ffi.buffer(data, size)))
        return int(lib.MR_OK)
    except BaseException as e:
        return _fail_with(st, e)


def from_generator(make: Callable[[], Iterable[Any]], output: Any = None) -> Dataset:
    """The elements that a Python iterator returns.

    Args:
        make: called for each pass; returns an iterator, or what `iter` makes one of. A generator
            function is one.
        output: the type of the elements, such as `mr.float32[3]`, or a dict or tuple of types. None:
            that of the first element; `make` is then called one more time, here.

    If the iterators have `state_dict()` and `load_state_dict(state)`, positions are exact: the state is
    made of dicts, lists, tuples, numbers, str, bytes and arrays. Otherwise `state_dict()` of a millrace
    iterator over them is an error. An exception is the error of an element.

        >>> import millrace as mr
        >>> def squares():
        ...     for i in range(4):
        ...         yield i * i
        >>> list(mr.from_generator(squares).batch(2))
        [array([0, 1]), array([4, 9])]
    """
    from ._dataset import new_dataset

    if not callable(make):
        raise TypeError(
            f"from_generator: expected a function that returns an iterator, as in lambda: iter(x), not {type(make).__name__}"
        )
    probe = _iterator_of(make)
    try:
        stateful = hasattr(probe, "state_dict") and hasattr(probe, "load_state_dict")
        spec = ordered(as_spec(output) if output is not None else _spec_of_first(probe))
    finally:
        if hasattr(probe, "close"):
            probe.close()
    pointer = pointer_of(spec)
    leaves = leaves_of(spec)
    numbers = [int(lib.mr_spec_leaf(pointer, i).dtype) for i in range(len(leaves))]
    generator = _Generator(make, leaves, plan_of(pointer), numbers)
    g = ffi.new("mr_generator *")
    g.ctx = keep(generator)
    g.open, g.next, g.close, g.release = lib.mrpy_open_pass, lib.mrpy_next, lib.mrpy_close_pass, lib.mrpy_forget
    g.may_block = True
    kind = type(probe).__qualname__
    if stateful:
        g.save, g.restore = lib.mrpy_save, lib.mrpy_restore
    else:
        why = (
            f"the generator {label_of(make)} has no positions: its iterators ({kind}) lack state_dict and load_state_dict"
        )
        generator.texts.append(ffi.new("char[]", why.encode("utf-8", "surrogateescape")))
        g.no_position = generator.texts[-1]
    label = ffi.new("char[]", label_of(make).encode("utf-8", "surrogateescape"))
    g.label = label
    ds = new_dataset(lib.mr_from_generator(g, pointer))
    lib.mr_spec_unref(pointer)
    st = ffi.new("mr_status *")
    check(lib.mr_dataset_check(ds._ds, st), st)
    return ds


def _spec_of_first(probe: Iterator[Any]) -> Spec:
    try:
        for x in probe:
            return spec_of_result(x)
    except Mismatch as e:
        raise InvalidArgument(f"from_generator: of the first element, {str(e).replace('the result', 'the value')}") from None
    raise InvalidArgument("from_generator: there are no elements that would show the type; state it: output=mr.float32[3]")


# ---- sequences


class _Items:
    """Looks up the items of a sequence: a function of their numbers."""

    def __init__(self, sequence: Any) -> None:
        self.sequence = sequence

    def __call__(self, i: Any) -> Any:
        return self.sequence[int(i)]


class _Batches(_Items):
    """The same, several at once."""

    def __call__(self, numbers: list[int]) -> Any:
        return self.sequence.__getitems__(numbers)


def from_sequence(
    obj: Any, parallel: Parallel = "thread", num_workers: int | Auto = AUTO, *, output: Any = None
) -> Dataset:
    """The items of anything with `__len__` and `__getitem__`: datasets of torchvision and Hugging Face,
    numpy.memmap, lists. They are looked up in parallel and delivered in order.

    Args:
        obj: the sequence. If it has `__getitems__(numbers)`, several items are looked up at once.
        parallel, num_workers: as for `Dataset.map_py`; for "process" the sequence is sent by
            cloudpickle.
        output: the type of the items. None: that of item 0.

    Positions are numbers of items. `.global_shuffle(seed)` delivers all items in a random order, for
    which only their numbers are permuted: there is no buffer.

        >>> import millrace as mr
        >>> list(mr.from_sequence(["a", "b", "c"]).global_shuffle(seed=1).take(2))
        [b'a', b'c']
    """
    from ._dataset import Sequence

    if not hasattr(obj, "__len__") or not hasattr(obj, "__getitem__"):
        raise TypeError(f"from_sequence: expected an object with __len__ and __getitem__, not {type(obj).__name__}")
    from ._generated import range as numbers

    source = numbers(len(obj))
    if output is None:
        if not len(obj):
            raise InvalidArgument("from_sequence: there are no items that would show the type; state it: output=")
        try:
            output = spec_of_result(obj[0])
        except Mismatch as e:
            raise InvalidArgument(f"from_sequence: of item 0, {str(e).replace('the result', 'the value')}") from None
    spec = as_spec(output)
    many = _Batches(obj) if hasattr(obj, "__getitems__") else None

    def look_up(ds: Dataset) -> Dataset:
        label = f"{type(obj).__module__}.{type(obj).__qualname__}"
        return apply(
            "from_sequence", ds, _Items(obj), "map", spec, False, parallel, num_workers, True, many, label=label
        )

    return Sequence._of(source, look_up)
