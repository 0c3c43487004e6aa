# SPDX-License-Identifier: Apache-2.0
"""What comparisons with peers share: a peer's process, which makes passes on request, and images to read."""
import struct
import subprocess
import sys
import time


def make_idx(d, n):
    """n images of 784 bytes and their labels, for `millrace write --idx`: the options."""
    with open(f"{d}/images", "wb") as f:
        f.write(struct.pack(">4I", 0x803, n, 28, 28) + bytes(range(256)) * (n * 784 // 256))
    with open(f"{d}/labels", "wb") as f:
        f.write(struct.pack(">2I", 0x801, n) + bytes(range(10)) * (n // 10))
    return "--idx", f"{d}/images", f"{d}/labels"


def serve(begin):
    """In the peer's process, once it is ready: for each line of standard input a pass over what begin() returns,
    and a line with the seconds of the processor that it took."""
    print("ready", flush=True)
    for _ in sys.stdin:
        began = time.process_time()
        for _ in begin():
            pass
        print(time.process_time() - began, flush=True)


class Peer:
    """A process of this program with the arguments --serve and those given, which calls serve()."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen([sys.executable, sys.argv[0], "--serve", *arguments], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.ok = self.process.stdout.readline() == "ready\n"

    def run(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def end(self):
        _, error = self.process.communicate()
        return (error.strip().splitlines() or [""])[-1]
