#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints N ports of this machine that are free, for tasks that know each other's addresses beforehand.

  free_ports.py N

They lie below those that the kernel gives to connections, which could take them before the tasks do."""
import random
import socket
import sys

sockets = []
while len(sockets) < int(sys.argv[1]):
    s = socket.socket()
    try:
        s.bind(("127.0.0.1", random.randrange(10000, 16000)))
        sockets.append(s)
    except OSError:
        pass
print(*[s.getsockname()[1] for s in sockets])
