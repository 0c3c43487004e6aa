# SPDX-License-Identifier: Apache-2.0
"""Whether all processes of a job have a batch, before one of them delivers it.

A step that not all processes take never ends: those that take it wait for the others. The processes
tell each other what they have by the key-value store of `jax.distributed`, on the thread that reads
ahead."""

from __future__ import annotations

from typing import Any, Callable

BATCH, END = "batch", "end"
WAIT_MS = 500  # for a key, before looking whether the iterator was closed


class Closed(Exception):
    """The iterator was closed while it waited for other processes."""


class Agreement:
    """The turns of one iterator, which all processes take in the same order.

    Args:
        store: the client of `jax.distributed`.
        name: of this iterator, the same in all processes.
    """

    def __init__(self, store: Any, name: str, process: int, processes: int) -> None:
        self.store = store
        self.name = name
        self.process = process
        self.processes = processes
        self.turn = 0

    def settle(self, mine: str, closed: Callable[[], bool]) -> str:
        """Says what this process has: BATCH, END or the text of an error. Returns why the processes
        cannot continue together, or "" if all have the same."""
        turn = f"{self.name}/{self.turn}"
        self.store.key_value_set(f"{turn}/{self.process}", mine)
        if self.process == 0:
            all_have = [mine] + [self._get(f"{turn}/{i}", closed) for i in range(1, self.processes)]
            self.store.key_value_set(f"{turn}/all", self._judge(all_have))
            if self.turn:  # all have read what was settled there
                self.store.key_value_delete(f"{self.name}/{self.turn - 1}/")
        verdict = self._get(f"{turn}/all", closed)
        self.turn += 1
        return verdict[1:]

    def _judge(self, all_have: list[str]) -> str:
        for i, has in enumerate(all_have):
            if has not in (BATCH, END):
                return f":process {i} failed at batch {self.turn}, counted from 0: {has}"
        if BATCH in all_have and END in all_have:
            return (
                f":process {all_have.index(END)} has {self.turn} batches, and process {all_have.index(BATCH)} has more; "
                "the steps of all processes need the same number of batches: divide the data evenly, with "
                "batch(n, drop_remainder=True), and end with take(n)"
            )
        return ":"  # the store has no empty values

    def _get(self, key: str, closed: Callable[[], bool]) -> str:
        while True:
            try:
                return str(self.store.blocking_key_value_get(key, WAIT_MS))
            except Exception as e:
                if "DEADLINE_EXCEEDED" not in str(e):
                    raise
            if closed():
                raise Closed
