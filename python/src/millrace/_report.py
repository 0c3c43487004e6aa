# SPDX-License-Identifier: Apache-2.0
"""What runs took, and what graphs consist of: objects that print as the command line does, and are
tables in notebooks."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from . import _programs
from ._errors import FailedPrecondition, InvalidArgument, check, text_of, without_secrets
from ._ffi import ffi, lib

if TYPE_CHECKING:
    from ._dataset import Dataset


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """HTML."""
    import html  # which only notebooks need

    cells = "".join(f"<th>{html.escape(h)}</th>" for h in head)
    lines = ["<tr>" + "".join(f"<td>{html.escape(str(c))}</td>" for c in row) + "</tr>" for row in rows]
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


# ---- statistics ----


@dataclass(frozen=True)
class OpStats:
    """Statistics of an op.

    Attributes:
        op, path: its name, and its place in the graph, the last op first: "batch/map/range".
        elements, bytes, blocks: what it has delivered.
        busy_seconds: in its own code, on any thread.
        wait_seconds: asleep until a task, a file, a pipe or a producer was ready.
        queued_elements: read ahead now.
        dropped: failed elements that it left out.
    """

    op: str
    path: str
    elements: int
    bytes: int
    blocks: int
    busy_seconds: float
    wait_seconds: float
    queued_elements: int
    dropped: int


class Stats(Sequence[OpStats]):
    """Statistics of the ops of an iterator, the last op of the graph first."""

    def __init__(self, ops: Sequence[OpStats]) -> None:
        self.ops = tuple(ops)

    def __getitem__(self, i: Any) -> Any:
        return self.ops[i]

    def __len__(self) -> int:
        return len(self.ops)

    def _is_source(self, op: OpStats) -> bool:
        return not any(o.path.startswith(op.path + "/") for o in self.ops)

    def _takes(self, op: OpStats) -> float:
        return op.busy_seconds + (op.wait_seconds if self._is_source(op) else 0)

    @property
    def slowest(self) -> str:
        """The path of the op that takes the most time while others may run; "" without ops."""
        return max(self.ops, key=self._takes).path if self.ops else ""

    def _rows(self) -> Iterator[tuple[OpStats, str]]:
        slow = self.slowest
        for o in self.ops:
            mark = ""
            if o.path == slow:
                waits = self._is_source(o) and o.wait_seconds > o.busy_seconds
                mark = "<- slowest: waits for its data" if waits else "<- slowest"
            yield o, mark

    def __str__(self) -> str:
        lines = [f"  {'op':<40} {'elements':>12} {'MB':>12} {'busy s':>9} {'wait s':>9}"]
        for o, mark in self._rows():
            line = f"  {o.path:<40} {o.elements:>12} {o.bytes * 1e-6:>12.3f} {o.busy_seconds:>9.3f} {o.wait_seconds:>9.3f}"
            line += f"  {o.dropped} dropped" if o.dropped else ""
            lines.append(line + (f"  {mark}" if mark else ""))
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = [
            (o.path, o.elements, f"{o.bytes * 1e-6:.3f}", f"{o.busy_seconds:.3f}", f"{o.wait_seconds:.3f}", mark)
            for o, mark in self._rows()
        ]
        return _table(("op", "elements", "MB", "busy s", "wait s", ""), rows)


def stats_of(it: Any) -> Stats:
    """The statistics of an `mr_iterator *` since it was opened."""
    n = lib.mr_iterator_stats(it, ffi.NULL, 0)
    ops = ffi.new("mr_op_stats[]", n + 8)
    n = min(lib.mr_iterator_stats(it, ops, n + 8), n + 8)
    return Stats(
        [
            OpStats(
                text_of(o.op),
                text_of(o.path),
                o.elements,
                o.bytes,
                o.blocks,
                o.busy_seconds,
                o.wait_seconds,
                o.queued_elements,
                o.dropped,
            )
            for o in (ops[i] for i in range(n))
        ]
    )


def since(now: Stats, before: Stats) -> Stats:
    """What was counted between two readings."""
    old = {o.path: o for o in before}
    out = []
    for o in now:
        b = old.get(o.path)
        if b is not None:
            o = OpStats(
                o.op,
                o.path,
                o.elements - b.elements,
                o.bytes - b.bytes,
                o.blocks - b.blocks,
                o.busy_seconds - b.busy_seconds,
                o.wait_seconds - b.wait_seconds,
                o.queued_elements,
                o.dropped - b.dropped,
            )
        out.append(o)
    return Stats(out)


def write_trace(it: Any, path: str | os.PathLike[str]) -> None:
    """Writes the spans of an `mr_iterator *` for Perfetto and chrome://tracing."""
    left_out = ffi.new("double *")
    n = lib.mr_iterator_trace(it, ffi.NULL, 0, left_out)
    spans = ffi.new("mr_op_span[]", n + 64)
    n = min(lib.mr_iterator_trace(it, spans, n + 64, left_out), n + 64)
    process = os.getpid()
    events: list[dict[str, Any]] = []
    for i in range(n):
        s = spans[i]
        op = text_of(s.op)
        events.append(
            {
                "name": f"{op} waits" if s.waiting else op,
                "cat": "wait" if s.waiting else "busy",
                "ph": "X",
                "ts": s.begin_seconds * 1e6,
                "dur": s.seconds * 1e6,
                "pid": process,
                "tid": s.thread,
                "args": {"path": text_of(s.path)},
            }
        )
    events.sort(key=lambda e: e["ts"])
    with open(path, "w") as f:
        json.dump({"displayTimeUnit": "ms", "traceEvents": events}, f)


# ---- bench ----


class Bench:
    """What a run took, as `millrace bench` measures it.

    Attributes:
        elements, bytes: what came out.
        seconds, cpu_seconds, first_element_seconds: elapsed, of the processor, until the first element.
        peak_rss_bytes: the most resident memory of this process so far.
        ops: Stats of each op.
    """

    def __init__(self, run: Any, ops: Stats, threads: int | None) -> None:
        self.elements: int = run.elements
        self.bytes: int = run.bytes
        self.seconds: float = run.seconds
        self.cpu_seconds: float = run.cpu_seconds
        self.first_element_seconds: float = run.first_element_seconds
        self.peak_rss_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        self.ops = ops
        self._threads = threads != 0

    @property
    def slowest(self) -> str:
        """The path of the op that takes the most time."""
        return self.ops.slowest

    def _helps(self) -> tuple[OpStats | None, float]:
        best, saves = None, 0.0
        for o in self.ops:
            own = self.ops._takes(o) if self._threads else o.busy_seconds + o.wait_seconds
            half = min(own, self.seconds) / 2
            if half > saves:
                best, saves = o, half
        return best, saves

    def _head(self) -> str:
        s = self.seconds or 1e-9
        return (
            f"{self.elements} elements in {self.seconds:.3f} s: {self.elements / s:.4g} elements/s, "
            f"{self.bytes / s * 1e-6:.4g} MB/s, {self.cpu_seconds:.3f} CPU seconds, first element after "
            f"{self.first_element_seconds * 1e3:.2f} ms, peak memory {self.peak_rss_bytes / (1 << 20):.1f} MiB"
        )

    def _advice(self) -> str:
        op, saves = self._helps()
        if op is None:
            return ""
        most = "at most " if self._threads else ""
        share = saves / (self.seconds or 1e-9) * 100
        return f"{op.path} twice as fast would save {most}{saves:.3f} s ({share:.0f} %)"

    def __str__(self) -> str:
        advice = self._advice()
        return f"{self._head()}\n\n{self.ops}\n" + (f"\n{advice}\n" if advice else "")

    __repr__ = __str__

    def _repr_html_(self) -> str:
        import html

        return f"<p>{html.escape(self._head())}</p>{self.ops._repr_html_()}<p>{html.escape(self._advice())}</p>"


def bench(ds: Dataset, options: Any, limit: int | None, seconds: float | None, warmup: int) -> Bench:
    from ._iterator import Engine, guarded

    if limit is not None and limit < 0:
        raise InvalidArgument(f"limit is a number of elements, not {limit}")
    if seconds is not None and seconds <= 0:
        raise InvalidArgument(f"seconds is a time above 0, not {seconds}")
    engine = Engine(ds, options, None)
    try:
        run = ffi.new("mrpy_run *")

        def drain(st: Any) -> int:
            return int(lib.mrpy_drain(engine.it, -1 if limit is None else limit, seconds or 0.0, run, st))

        for epoch in range(warmup):
            guarded(engine.it, ffi.NULL, drain)
            engine.begin(epoch + 1)
        before = stats_of(engine.it)
        guarded(engine.it, ffi.NULL, drain)
        return Bench(run, since(stats_of(engine.it), before), options.key[1])
    finally:
        engine.close()


# ---- explain ----


@dataclass(frozen=True)
class OpLine:
    """An op of a graph: its text, the elements that it emits and holds. None is unknown."""

    op: str
    depth: int
    element: str
    elements: int
    held_elements: int
    held_bytes: int

    @property
    def count(self) -> str:
        if self.elements >= 0:
            return str(self.elements)
        return "without end" if self.elements == lib.MR_INFINITE else "unknown"

    @property
    def memory(self) -> str:
        n = self.held_elements
        if n == 0:
            return "a block"
        if n == lib.MR_UNKNOWN_COUNT:
            return "tuned while running"
        if n == lib.MR_INFINITE:
            return "all elements"
        text = f"{n} element{'' if n == 1 else 's'}"
        return text if self.held_bytes < 0 else f"{text}, {_bytes(self.held_bytes)}"


def _bytes(n: int) -> str:
    if n < 1024:
        return f"{n} B"
    value = n / 1024
    for unit in ("KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


class Explanation:
    """A graph as a table of its ops, as `millrace explain` prints it.

    Attributes:
        text: the canonical text.
        ops: a list of OpLine.
        memory_needed: the least memory_limit with which it runs, in bytes.
        holds_unknown: an op that holds elements whose size the types do not determine, which
            memory_needed leaves out, or None.
        distributed: what the program prints of the graph of each worker; "" if it was not asked.
    """

    def __init__(self, ds: Dataset, distributed: str = "") -> None:
        self.text = without_secrets(str(ds))
        self.ops: list[OpLine] = []
        self._add(ds._pointer(), 0)
        needed, unknown, st = ffi.new("int64_t *"), ffi.new("const char **"), ffi.new("mr_status *")
        check(lib.mr_memory_needed(ds._pointer(), ffi.NULL, needed, unknown, st), st)
        self.memory_needed: int = needed[0]
        self.holds_unknown: str | None = None if unknown[0] == ffi.NULL else text_of(unknown[0])
        self.distributed = distributed

    def _add(self, ds: Any, depth: int) -> None:
        from ._iterator import interruptible

        chain = [ds]
        while lib.mr_dataset_n_inputs(chain[-1]) == 1:
            chain.append(lib.mr_dataset_input(chain[-1], 0))
        for i in range(lib.mr_dataset_n_inputs(chain[-1])):
            self._add(lib.mr_dataset_input(chain[-1], i), depth + 1)
        before = ""
        for node in reversed(chain):
            whole = _node_text(node)
            op = whole[len(before) :] if before and whole.startswith(before) else whole
            held, size = ffi.new("int64_t *"), ffi.new("int64_t *")
            lib.mr_dataset_held(node, held, size)
            room = ffi.new("char[]", 4096)
            lib.mr_spec_format(lib.mr_dataset_spec(node), room, 4096)
            count = interruptible(partial(lib.mr_dataset_cardinality, node), lib.MR_UNKNOWN_COUNT)
            self.ops.append(OpLine(op, depth, text_of(room), count, held[0], size[0]))
            before = whole

    def __str__(self) -> str:
        if self.distributed:
            return self.distributed
        shown = [("  " * o.depth + o.op, o) for o in self.ops]
        wide = max(len("op"), *(min(len(t), WIDEST_OP) for t, _ in shown))
        counts = max(len("elements"), *(len(o.count) for o in self.ops))
        specs = max(len("element"), *(min(len(o.element), WIDEST_SPEC) for o in self.ops))
        lines = [self.text, f"  {'op':<{wide}}  {'elements':>{counts}}  {'element':<{specs}}  memory"]
        for t, o in shown:
            lines.append(
                f"  {_cut(t, WIDEST_OP):<{wide}}  {o.count:>{counts}}  {_cut(o.element, WIDEST_SPEC):<{specs}}  {o.memory}"
            )
        mib = (self.memory_needed + (1 << 20) - 1) >> 20
        last = f"memory limit: at least {self.memory_needed} ({mib}M)"
        if self.holds_unknown:
            last += f", and what '{self.holds_unknown}' holds: elements whose size the types do not determine"
        return "\n".join(lines) + "\n" + last

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = [("\u2003" * o.depth + o.op, o.count, o.element, o.memory) for o in self.ops]
        table = _table(("op", "elements", "element", "memory"), rows)
        import html

        more = f"<pre>{html.escape(self.distributed)}</pre>" if self.distributed else ""
        return f"<p><code>{html.escape(self.text)}</code></p>{table}{more}"


WIDEST_OP = 60
WIDEST_SPEC = 50


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _node_text(node: Any) -> str:
    from ._dataset import text_of_dataset

    try:
        return without_secrets(text_of_dataset(node))
    except FailedPrecondition:
        return text_of(lib.mr_dataset_op(node).name) + "(...)"


def explain(
    ds: Dataset, replicas: int | None, workers: int | None, worker: int | None, auto_shard: str | None
) -> Explanation:
    flags = {"--replicas": replicas, "--workers": workers, "--worker": worker, "--auto-shard": auto_shard}
    given = [f"{k}={v}" for k, v in flags.items() if v is not None]
    if not given:
        return Explanation(ds)
    import subprocess

    run = subprocess.run([_programs.path(), "explain", *given, ds._text()], capture_output=True, text=True)
    if run.returncode:
        raise InvalidArgument(run.stderr.strip().removeprefix("millrace: "))
    return Explanation(ds, run.stdout)
