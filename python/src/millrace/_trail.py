# SPDX-License-Identifier: Apache-2.0
"""Positions of loaders that read ahead of the program."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from ._errors import InvalidArgument

if TYPE_CHECKING:
    from ._iterator import Iterator

VERSION = 1


class Trail:
    """An iterator that tells the position after any of its last `kept` outcomes: elements, and errors
    of elements.

    Positions are saved as often as that takes little of the time; one between two of them is the
    earlier one, with the number of outcomes to skip."""

    SHARE = 0.02  # of the time, for saving positions

    def __init__(self, it: Iterator, kept: int) -> None:
        self.it = it
        self.kept = kept
        self.count = 0  # outcomes so far
        self._lock = threading.Lock()
        self._spent = 0.0
        self._began = time.perf_counter()
        self._known: deque[tuple[int, dict[str, Any]]] = deque([(0, it.state_dict())])

    def __next__(self) -> Any:
        try:
            element = next(self.it)
        except StopIteration:
            raise
        except Exception:
            self._passed()
            raise
        self._passed()
        return element

    def _passed(self) -> None:
        began = time.perf_counter()
        known = None
        if self._spent <= self.SHARE * (began - self._began):
            known = self.it.state_dict()
            self._spent += time.perf_counter() - began
        with self._lock:
            self.count += 1
            if known is not None:
                self._known.append((self.count, known))
            while len(self._known) > 1 and self._known[1][0] <= self.count - self.kept:
                self._known.popleft()

    def state_at(self, count: int) -> dict[str, Any]:
        """The position after the first `count` outcomes, which can be stored as JSON."""
        with self._lock:
            known = list(self._known)
        for before, state in reversed(known):
            if before <= count:
                return {"version": VERSION, "iterator": state, "skip": count - before}
        raise InvalidArgument(f"the position after element {count} is no longer known; {self.count} were read")


def go_to(it: Iterator, state: Any) -> None:
    """Goes to a position that `Trail.state_at` returned."""
    if not isinstance(state, dict) or not {"version", "iterator", "skip"} <= set(state):
        raise InvalidArgument(f"not a position of a loader: {state!r:.80}")
    if state["version"] != VERSION:
        raise InvalidArgument(
            f"the position has version {state['version']!r}, and this package reads version {VERSION}"
        )
    it.load_state_dict(state["iterator"])
    for _ in range(int(state["skip"])):
        try:
            next(it)
        except StopIteration:
            return
        except Exception:
            pass  # it was reported before
