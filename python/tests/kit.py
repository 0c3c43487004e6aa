# SPDX-License-Identifier: Apache-2.0
"""What the tests of the package share. A test file ends with `kit.main()`, which runs its unittest
cases, and writes TAP to the file that $TAP_FILE names."""

from __future__ import annotations

import base64
import importlib.util
import logging
import math
import os
import subprocess
import sys
import threading
import time
import unittest
from collections.abc import Callable
from typing import Any

import numpy as np

SOURCE = os.environ.get("MR_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("MR_BUILD") or os.path.join(SOURCE, "build")
MILLRACE = os.path.join(BUILD, "millrace")
logging.getLogger("millrace").addHandler(logging.NullHandler())
LONG = os.environ.get("MR_TEST_TIER") == "long"
SANITIZED = "MR_SANITIZED" in os.environ
# What an interpreter needs to load a library built with AddressSanitizer, and programs built with it
# must not have.
PRELOAD = {k: os.environ.pop(k) for k in ("LD_PRELOAD", "PYTHONMALLOC") if SANITIZED and k in os.environ}
if SANITIZED:
    # Freed memory is kept for a while: less of it than tests of memory that does not grow allow.
    PRELOAD["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":malloc_context_size=3:quarantine_size_mb=16"
    PRELOAD["LSAN_OPTIONS"] = (
        os.environ.get("LSAN_OPTIONS", "")
        + ":print_suppressions=0:suppressions="
        + os.path.join(os.path.dirname(os.path.abspath(__file__)), "lsan.supp")
    )


class Popen(subprocess.Popen[Any]):
    """Interpreters get PRELOAD, those that the package starts too."""

    def __init__(self, args: Any, *more: Any, env: Any = None, **options: Any) -> None:
        if not isinstance(args, str) and args[0] == sys.executable and "LD_PRELOAD" not in (env or ()):
            env = {**(os.environ if env is None else env), **PRELOAD}
        super().__init__(args, *more, env=env, **options)


if SANITIZED:
    subprocess.Popen = Popen  # type: ignore[misc]


def load(path: str) -> Any:
    """A Python file of the repository as a module."""
    name = os.path.splitext(os.path.basename(path))[0] + "_of_repository"
    spec = importlib.util.spec_from_file_location(name, os.path.join(SOURCE, path))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def free_port() -> int:
    """One that no other test gets, and no connection before it is used."""
    return int(load(os.path.join("tests", "ports.py")).ports(1)[0])


def as_json(x: Any) -> Any:
    """An element as `millrace show` prints it."""
    import millrace as mr

    if isinstance(x, bytes):
        try:
            return x.decode()
        except UnicodeDecodeError:
            return {"b64": base64.b64encode(x).decode()}
    if isinstance(x, mr.Dataset):
        return {"dataset": [as_json(e) for e in x]}
    if isinstance(x, mr.Ragged):
        return [as_json(row) for row in x]
    if isinstance(x, dict):
        return {k: as_json(v) for k, v in x.items()}
    if isinstance(x, tuple):
        return {str(i): as_json(v) for i, v in enumerate(x)}
    if isinstance(x, np.ndarray):
        return [as_json(v) for v in x]
    if isinstance(x, (bool, np.bool_)):
        return bool(x)
    if isinstance(x, (int, np.integer)):
        return int(x)
    value = float(x)
    if math.isnan(value):
        return "nan"
    return ("inf" if value > 0 else "-inf") if math.isinf(value) else value


def threads() -> int:
    """Threads of this process, those of the system too, and for a moment those that have just ended."""
    return len(thread_ids())


def thread_ids() -> set[str]:
    return set(os.listdir("/proc/self/task"))


def settle() -> None:
    """Before a fork under AddressSanitizer: waits until no other thread runs. One that is in its allocator
    at the fork leaves that locked in the child, for good."""
    calm, tries = 0, 3000 if "MR_SANITIZED" in os.environ else 0
    while calm < 3 and tries:
        running = False
        for task in os.listdir("/proc/self/task"):
            try:
                with open(f"/proc/self/task/{task}/stat") as f:
                    running |= f.read().rpartition(")")[2].split()[0] != "S" and int(task) != threading.get_native_id()
            except OSError:
                running = True  # it has ended
        calm, tries = 0 if running else calm + 1, tries - 1
        time.sleep(0.01)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def resident() -> int:
    """Resident memory of this process, in bytes."""
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def python_environment() -> dict[str, str]:
    """The environment of an interpreter that imports millrace."""
    return {**os.environ, **PRELOAD}


def _begin_with(variables: dict[str, str]) -> None:
    """Starts this program again with these variables and PRELOAD, once."""
    if "MR_TEST_BEGUN" not in os.environ and (variables or PRELOAD):
        environment = {**python_environment(), **variables, "MR_TEST_BEGUN": "1"}
        os.execve(sys.executable, [sys.executable, *sys.argv], environment)
    os.environ.pop("MR_TEST_BEGUN", None)


class Result(unittest.TextTestResult):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lines: list[str] = []

    def _line(self, test: Any, ok: bool, more: str = "") -> None:
        name = test.id().replace("__main__.", "") if hasattr(test, "id") else str(test)
        self.lines.append(f"{'ok' if ok else 'not ok'} - {name}{more}")

    def addSuccess(self, test: Any) -> None:
        super().addSuccess(test)
        self._line(test, True)

    def addFailure(self, test: Any, err: Any) -> None:
        super().addFailure(test, err)
        self._line(test, False)

    def addError(self, test: Any, err: Any) -> None:
        super().addError(test, err)
        self._line(test, False)

    def addSkip(self, test: Any, reason: str) -> None:
        super().addSkip(test, reason)
        self._line(test, True, f" # SKIP {reason}")

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._line(subtest, False)


def main(**variables: str) -> None:
    """Runs the tests of the calling file, with these environment variables; a name or a part of one may
    be given."""
    _begin_with(variables)
    arguments = [a for a in sys.argv if not a.startswith("--tap")]
    runner = unittest.TextTestRunner(resultclass=Result, verbosity=1)
    program = unittest.main(argv=arguments, exit=False, testRunner=runner)
    result = program.result
    path = os.environ.get("TAP_FILE")
    if path:
        with open(path, "w") as f:
            f.write("".join(line + "\n" for line in result.lines))
    if result.testsRun and len(result.skipped) == result.testsRun:
        print(result.skipped[0][1])
        sys.exit(77)
    sys.exit(0 if result.wasSuccessful() else 1)


def wait_for(count: Callable[[], int], before: int) -> int:
    until = time.monotonic() + 100
    while count() > before and time.monotonic() < until:
        time.sleep(0.02)
    return count()


def wait_for_threads(before: int) -> int:
    """The number of threads once those that are ending have ended."""
    return wait_for(threads, before)


def wait_for_descriptors(before: int) -> int:
    """Their number once threads that nothing waits for, such as those that look up a name, have ended."""
    return wait_for(descriptors, before)
