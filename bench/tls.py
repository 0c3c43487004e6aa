#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Processor time per GB of blocks from a worker to a client, by TLS and in the clear, in turn, and of AES alone.

    python3 bench/tls.py MILLRACE [GB [ROUNDS]]

Prints for each way the seconds of worker and client together, the least of all rounds, and then what TLS costs
more in units of encrypting and decrypting the same bytes with AES-128-GCM. docs/tls.md has the bound."""
import atexit
import os
import re
import subprocess
import sys
import tempfile

millrace = os.path.abspath(sys.argv[1])
gigabytes = float(sys.argv[2]) if len(sys.argv) > 2 else 4
rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
folder = tempfile.mkdtemp()
ROW = 1 << 20  # bytes of a row, whose values are a constant: nothing else costs much


def start(*words):
    p = subprocess.Popen([millrace, *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    atexit.register(p.kill)
    return p, p.stdout.readline().split()[1]


def seconds(pid):
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days",
                "30", "-subj", "/CN=bench", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out",
                "cert.pem"], cwd=folder, check=True, stderr=subprocess.DEVNULL)
ways = {"in the clear": ([], []),
        "TLS": (["--tls-cert", "cert.pem", "--tls-key", "key.pem"], ["--tls-ca", "cert.pem"])}
services = {}
for name, (own, ca) in ways.items():
    d, at = start("dispatcher", "--listen", "127.0.0.1:0", "--any-user", *own)
    w, _ = start("worker", "--dispatcher", at, "--any-user", *own, *ca)
    services[name] = d, w, at
rows = int(gigabytes * 1e9 / ROW)
graph = f'from_tensors(zeros([{ROW}], "uint8")).repeat({rows}).distribute("%s", streams=1, transfer="tcp")'
least = {}


def aes():
    """Seconds to encrypt a GB and to decrypt it."""
    spent = 0
    for way in ([], ["-decrypt"]):
        text = subprocess.run(["openssl", "speed", "-seconds", "1", "-bytes", "16384", *way, "-evp", "aes-128-gcm"],
                              capture_output=True, text=True, check=True).stdout
        spent += 1e6 / float(re.findall(r"([\d.]+)k\s*$", text)[-1])
    return spent


for _ in range(rounds):
    least["AES twice"] = min(least.get("AES twice", 1e9), aes())
    for name, (d, w, at) in services.items():
        before = seconds(w.pid)
        p = subprocess.Popen([millrace, "reduce", *ways[name][1], graph % at, "--init", "0", "--fn", "(n, x) => n + 1"], cwd=folder,
                             stdout=subprocess.DEVNULL)
        usage = os.wait4(p.pid, 0)
        if usage[1]:
            sys.exit("the reader failed")
        spent = (seconds(w.pid) - before + usage[2].ru_utime + usage[2].ru_stime) / (rows * ROW / 1e9)
        least[name] = min(least.get(name, spent), spent)
for d, w, at in services.values():
    for p in (w, d):
        p.terminate()
        p.wait()
for name, spent in least.items():
    print(f"{name:>14}: {spent:.3f} s/GB")
cost = (least["TLS"] - least["in the clear"]) / least["AES twice"]
print(f"TLS costs {cost:.2f} times AES for both sides")
