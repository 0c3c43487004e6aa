#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tier: plain=long
"""A process that stops while it fetches a piece: another one waits half a minute, and takes over."""
import os
import signal
import subprocess
import threading

import kit
from kit import directory, millrace, result, show

if not kit.has_libcurl():
    kit.skip_all("built without libcurl")
server = kit.Server()
data = b"".join(b"%099d\n" % i for i in range(40_000))
lines = [b'"' + x + b'"' for x in data.splitlines()]
url = server.put("/a.txt", data)
cache = os.path.join(directory.name, "cache")
stopped = threading.Event()
first = []


def stop(s, h, path):
    if h.headers.get("Range") == "bytes=0-0" or stopped.is_set():
        s.send(h, path)
        return
    first[0].send_signal(signal.SIGSTOP)
    stopped.set()
    s.send(h, path)


server.always["/a.txt"] = stop
server.take()
first.append(subprocess.Popen([millrace, "show", f'text_line("{url}")', "--cache-dir", cache], stdout=subprocess.PIPE, stderr=subprocess.PIPE))
stopped.wait(300)
second = show(f'text_line("{url}")', "--cache-dir", cache)
seen = [span for _, span, _, _ in server.take() if span != "bytes=0-0"]
result("another_process_takes_over", second.stdout.splitlines() == lines and len(seen) == 2 and "no progress" in second.stderr, f"{second}\n{seen}")
first[0].send_signal(signal.SIGCONT)
out, err = first[0].communicate(timeout=300)
result("the_first_one_continues", first[0].returncode == 0 and out.splitlines() == lines, str(err))
again = show(f'text_line("{url}")', "--cache-dir", cache, "--offline")
left = [n for n in os.listdir(os.path.join(cache, "objects")) if n.endswith(".part")]
result("the_piece_is_whole", again.stdout.splitlines() == lines and again.stderr == "" and not left, f"{again} {left}")
kit.end()
