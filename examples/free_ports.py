#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints N ports of this machine that are free, for tasks that know each other's addresses beforehand.

  free_ports.py [N]   (1)

A port that the kernel chose is free again once its socket is closed: any connection may get it before the
task listens, or while it is being restarted. These are below the range that the kernel chooses from, and a
counter shared by all callers on this machine repeats none within thousands."""
import fcntl
import os
import socket
import sys
import tempfile


def ports(n=1):
    with open("/proc/sys/net/ipv4/ip_local_port_range") as f:
        end = int(f.read().split()[0])
    first = max(1024, end - 16384)
    found = []
    at = os.open(os.path.join(tempfile.gettempdir(), f"millrace-ports.{os.getuid()}"), os.O_RDWR | os.O_CREAT, 0o600)
    with open(at, "r+") as counter:
        fcntl.flock(counter, fcntl.LOCK_EX)
        last = int(counter.read() or os.getpid())
        while len(found) < n:
            last += 1
            port = first + last % (end - first)
            with socket.socket() as s:
                try:
                    s.bind(("", port))
                    found.append(port)
                except OSError:
                    pass
        counter.seek(0)
        counter.truncate()
        counter.write(str(last))
    return found


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        sys.exit()
    print(*ports(int(sys.argv[1]) if len(sys.argv) > 1 else 1))
