#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Processor time per GB of blocks from a worker to a client, by TLS and in the clear, and what limits it.

    python3 bench/tls.py MILLRACE [GB [ROUNDS]]

Each round measures, one after the other, the service in the clear and with TLS, `openssl speed` encrypting and
decrypting with the same cipher, and bench/tls_bare.c, which sends the same rows with OpenSSL alone. The figures are
seconds of both processes together; ratios are computed in each round, and medians printed. `openssl speed` works on
16 KiB that stay in the first cache, so the cost of AES is a lower bound: rows, copies and sockets do not fit there.
docs/tls.md has the result."""
import atexit
import os
import re
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading

millrace = os.path.abspath(sys.argv[1])
gigabytes = float(sys.argv[2]) if len(sys.argv) > 2 else 4
rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
folder = tempfile.mkdtemp()
ROW = 1 << 20  # bytes of a row, whose values are a constant: nothing else costs much; as in tls_bare.c
BARE = ("plain", "socket", "memory 8", "memory 24")  # ways of tls_bare
AES_128_GCM = 0x1301
CIPHERS = {AES_128_GCM: "TLS_AES_128_GCM_SHA256"}


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
GRAPH = f'from_tensors(zeros([{ROW}], "uint8")).repeat(%d).distribute("%s", streams=1, transfer="tcp")'


def read(name, rows, at):
    """Processor seconds of a client that reads this number of rows."""
    p = subprocess.Popen([millrace, "reduce", *ways[name][1], GRAPH % (rows, at), "--init", "0", "--fn",
                          "(n, x) => n + 1"], cwd=folder, stdout=subprocess.DEVNULL)
    usage = os.wait4(p.pid, 0)
    if usage[1]:
        sys.exit("the reader failed")
    return usage[2].ru_utime + usage[2].ru_stime


def negotiated():
    """The cipher suite of a client's connection to the dispatcher, read from the ServerHello, which is in the clear.
    Workers have the same list of ciphers."""
    at, heard = services["TLS"][2].rsplit(":", 1), bytearray()
    listener = socket.create_server(("127.0.0.1", 0))

    def copy(source, to, keep):
        while data := source.recv(1 << 16):
            if keep:
                heard.extend(data)
            to.sendall(data)
        to.shutdown(socket.SHUT_WR)

    def serve():
        while True:
            client, _ = listener.accept()
            server = socket.create_connection((at[0], int(at[1])))
            threading.Thread(target=copy, args=(client, server, False), daemon=True).start()
            threading.Thread(target=copy, args=(server, client, not heard), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    read("TLS", 2, f"127.0.0.1:{listener.getsockname()[1]}")
    if heard[0] != 22 or heard[5] != 2:
        sys.exit("the dispatcher's first record is not a ServerHello")
    session_id = heard[5 + 4 + 2 + 32]
    return struct.unpack_from(">H", heard, 5 + 4 + 2 + 32 + 1 + session_id)[0]


def aes():
    """Seconds to encrypt a GB and to decrypt it."""
    spent = 0
    for way in ([], ["-decrypt"]):
        text = subprocess.run(["openssl", "speed", "-seconds", "1", "-bytes", "16384", *way, "-evp", "aes-128-gcm"],
                              capture_output=True, text=True, check=True).stdout
        spent += 1e6 / float(re.findall(r"([\d.]+)k\s*$", text)[-1])
    return spent


def bare(way):
    text = subprocess.run([os.path.join(os.path.dirname(millrace), "bench", "tls_bare"), "cert.pem", "key.pem", str(gigabytes), *way.split()], cwd=folder,
                          capture_output=True, text=True, check=True).stdout.split()
    if text[1] != (CIPHERS[AES_128_GCM] if way != "plain" else "none"):
        sys.exit(f"tls_bare used {text[1]}")
    return float(text[0])


if negotiated() != AES_128_GCM:
    sys.exit("the service does not use AES-128-GCM, whose cost is measured")
figures = {}
for _ in range(rounds):
    this = {"AES twice": aes()}
    for name, (d, w, at) in services.items():
        before = seconds(w.pid)
        spent = read(name, rows, at)
        this[name] = (seconds(w.pid) - before + spent) / (rows * ROW / 1e9)
    for way in BARE:
        this["bare " + way] = bare(way)
    this["bare TLS"] = min(this["bare " + way] for way in BARE[1:])
    this["bound"] = this["in the clear"] + 1.25 * this["AES twice"]
    for name, spent in this.items():
        figures.setdefault(name, []).append(spent)
for d, w, at in services.values():
    for p in (w, d):
        p.terminate()
        p.wait()


def ratio(f):
    return statistics.median(f({name: v[i] for name, v in figures.items()}) for i in range(rounds))


for name, spent in figures.items():
    print(f"{name:>14}: {statistics.median(spent):.3f} s/GB, {min(spent):.3f} to {max(spent):.3f}")
cost = ratio(lambda r: (r["TLS"] - r["in the clear"]) / r["AES twice"])
bare_cost = ratio(lambda r: (r["bare TLS"] - r["bare plain"]) / r["AES twice"])
print(f"TLS costs {cost:.2f} times AES for both sides; with OpenSSL alone {bare_cost:.2f} times")
print(f"{ratio(lambda r: r['bound'] / r['TLS']):.2f} of the bound (in the clear, and 1.25 times AES)")
print(f"{ratio(lambda r: r['bare TLS'] / r['TLS']):.2f} of OpenSSL alone")
