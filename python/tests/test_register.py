# SPDX-License-Identifier: Apache-2.0
# tier: plain=full asan=no
"""Registered functions in workers of the data service: `millrace worker --python MODULE`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import unittest
from typing import Any

import kit
import millrace as mr

MODULE = """
import millrace as mr

@mr.register("times_ten_here", output=mr.int64)
def times_ten_here(x):
    if x == 3:
        raise ValueError("not three")
    return x * 10
"""


class Workers(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        with open(os.path.join(self.folder, "functions_here.py"), "w") as f:
            f.write(MODULE)

    def start(self, *arguments: str) -> tuple[Any, str]:
        path = os.environ.get("PYTHONPATH", "")
        environment = {
            **os.environ,
            "MILLRACE_PYTHON": sys.executable,
            "PYTHONPATH": f"{self.folder}:{path}",
        }
        p = subprocess.Popen(
            [kit.MILLRACE, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )

        def end() -> None:
            p.kill()
            p.communicate()

        self.addCleanup(end)
        assert p.stdout is not None
        line = p.stdout.readline()
        return p, line.strip().removeprefix("ready ")

    def test_a_worker_runs_functions_of_a_module(self) -> None:
        _, address = self.start("dispatcher", "--listen", "127.0.0.1:0")
        worker, its_address = self.start("worker", "--dispatcher", address, "--python", "functions_here",
                                         "--threads", "2", "--tag", "here")  # fmt: skip
        self.assertIn(":", its_address)
        sys.path.insert(0, self.folder)
        try:
            import functions_here  # type: ignore[import-not-found]
        finally:
            sys.path.remove(self.folder)
        ds = mr.range(6).map_py(functions_here.times_ten_here).distribute(address)
        it, got = iter(ds), []
        while True:
            try:
                got.append(int(next(it)))
            except StopIteration:
                break
            except mr.InvalidArgument as e:
                self.assertIn("not three", str(e))
        self.assertEqual(sorted(got), [0, 10, 20, 40, 50])
        del it
        worker.send_signal(signal.SIGTERM)
        self.assertEqual(worker.wait(60), 0)

    def test_a_module_that_is_not_there(self) -> None:
        worker, _ = self.start("worker", "--dispatcher", "127.0.0.1:1", "--python", "no_such_module_here")
        self.assertEqual(worker.wait(60), 1)
        assert worker.stderr is not None
        self.assertIn("no_such_module_here", worker.stderr.read())


if __name__ == "__main__":
    kit.main()
