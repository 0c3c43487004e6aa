# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
"""Positions of streams that no message can carry are errors at once: clients and workers do not connect again and
again."""
import subprocess

import kit
from kit import result

d = kit.Dispatcher("--any-user")
w = kit.Daemon("worker", "--dispatcher", d.at, "--any-user", name="worker")


def read(least, streams):
    """A graph whose position has the least power of two bytes that is not below this."""
    graph = f'range(0, 90, 1).scan("x", (s, x) => (where(length(s) < {least}, join([s, s], ""), s), x))'
    return subprocess.run([kit.millrace, "show", f'{graph}.distribute("{d.at}", streams={streams})'], cwd=kit.directory,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=kit.PATIENCE)


def fails(name, p, text):
    result(name, p.returncode == 1 and "resource exhausted" in p.stderr and text in p.stderr and
           "is lost" not in p.stderr, f"{p.returncode}: {p.stderr[-1000:]}{w.log()[-500:]}{d.log()[-500:]}")


p = read(4 << 20, 2)
result("positions_that_fit", p.returncode == 0 and p.stdout.count("\n") == 90 and not p.stderr, p.stderr)
fails("a_position_that_is_too_large", read(16 << 20, 1),
      "the position of a stream has 1677")
fails("positions_that_are_too_large_together", read(8 << 20, 3),
      "use fewer streams, or let operations hold less data")
p = read(1000, 4)
result("others_are_read", p.returncode == 0 and p.stdout.count("\n") == 90 and not p.stderr, p.stderr)
result("all_end_well", w.stop() == 0 and d.stop() == 0, w.log()[-1000:] + d.log()[-1000:])
kit.end()
