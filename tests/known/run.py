#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tier known: plain=quick asan=full
# tier known_identities: plain=full
"""Runs graphs whose output is known against the program.

    run.py MILLRACE [CASES.jsonl...] [--only PART_OF_ID] [--sanitized] [--emulator COMMAND] [--jobs N]
           [--identities HELD]

A case is one JSON object a line:
    id, expr        the expression for `millrace show`
    args            further options
    files           name -> {"tfrecord": [records]} | {"text": "..."} | {"bytes_b64": "..."}, with
                    "compression": "GZIP" | "ZLIB", "truncate": bytes, "flip": [offsets]
    lines           the values expected, one a line
    exit            the status expected (0), stderr_contains: words expected there

Each case runs with several of --threads {0, 1, 4} x --block-rows {1, 3, 1024}, which must not change
anything; sampled cases are also saved and restored after each (sampled) element. MR_TEST_TIER=long
leaves no sampling. TAP goes to $TAP_FILE, one test a case.

With --gateway PORT only the cases that read files run, with their files in the bucket "known" of the store that
tests/remote/gateway.py started there: names in their expressions are URLs, s3://known/ID/NAME. With --prefix, which
begins these URLs, it is one of the stores that tests/remote imitates: gs://known/ or hf://datasets/known/all/.

With --identities all cases that can run go through one process of that program (tests/oracle/held.c)
instead, which looks only at where elements came from: for all threads and blocks, restored at sampled
places (MR_TEST_SEED draws them; MR_TEST_TIER=long: at all), and shared by two workers.
"""
import argparse
import base64
import concurrent.futures
import copy
import fnmatch
import gzip
import http.client
import itertools
import json
import math
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
import urllib.parse
import zlib

THREADS = (0, 1, 4)
BLOCK_ROWS = (1, 3, 1024)
# Ops of the grammar that may be missing: a case that uses one is skipped while it is.
LATER = {
    "snapshot", "save", "load",
}
# What only the command line knows, from --worker and its like.
OF_WORKERS = re.compile(r"\b(num_input_pipelines|input_pipeline_id|per_replica_batch_size)\b")
# Some cases drawn from the seed beyond these counts are not saved and restored in the short run.
RESUMED = 60
RESUMED_SANITIZED = 10
POSITIONS = 5
# Places at which each run of a case's identities is restored in the short run.
PLACES = 3


def crc32c_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


CRC32C = crc32c_table()


def masked_crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC32C[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def record_bytes(record):
    if isinstance(record, str):
        return record.encode()
    if isinstance(record, dict):
        return base64.b64decode(record["b64"])
    return bytes(record)


def file_bytes(spec):
    if "tfrecord" in spec:
        data = b""
        for record in map(record_bytes, spec["tfrecord"]):
            length = struct.pack("<Q", len(record))
            data += length + struct.pack("<I", masked_crc32c(length))
            data += record + struct.pack("<I", masked_crc32c(record))
    elif "text" in spec:
        data = spec["text"].encode()
    else:
        data = base64.b64decode(spec["bytes_b64"])
    compression = spec.get("compression", "").upper()
    if compression == "GZIP":
        data = gzip.compress(data, mtime=0)
    elif compression == "ZLIB":
        data = zlib.compress(data)
    data = bytearray(data[: spec.get("truncate", len(data))])
    flips = spec.get("flip", [])
    for at in flips if isinstance(flips, list) else [flips]:
        data[at] ^= 0xFF
    return bytes(data)


def make_files(case, folder):
    for name, spec in case.get("files", {}).items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as out:
            out.write(file_bytes(spec))


def to_store(case, port, head):
    """The case with its files in the store, and URLs of them in its expression."""
    prefix = case["id"].replace("/", "-")
    put = put_in_gateway(port) if head == "s3://known/" else put_in_imitation(port, head)
    for name, spec in case["files"].items():
        put(f"{prefix}/{name}", file_bytes(spec))

    def url(found):
        name = found[1]
        return f'"{head}{prefix}/{name}"' if any(fnmatch.fnmatch(f, name) for f in case["files"]) else found[0]

    moved = copy.deepcopy(case)
    moved["expr"] = re.sub(r'"([^"\\]+)"', url, case["expr"])
    moved["prefix"] = f"{head}{prefix}/"
    return moved


def put_in_gateway(port):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "remote"))
    import gateway  # pylint: disable=import-outside-toplevel
    store = gateway.Gateway.__new__(gateway.Gateway)
    store.port = port
    return lambda key, data: store.put("known", key, data)


def put_in_imitation(port, head):
    def put(key, data):
        path = "/" + head.split("://")[1].removeprefix("datasets/") + key
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        connection.request("PUT", urllib.parse.quote(path), body=data)
        connection.getresponse().read()
        connection.close()
    return put


def same(a, b):
    """1, 1.0 and true are three values; floats agree to float32 rounding."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return a == b or math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-7)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return a == b


class Failure(Exception):
    pass


def show(program, folder, case, extra):
    """Runs the case's expression; (exit status, values printed, stderr)."""
    command = [*program, "show", *extra, *case.get("args", []), case["expr"]]
    try:
        run = subprocess.run(command, cwd=folder, capture_output=True, timeout=1200, check=False)
    except subprocess.TimeoutExpired:
        raise Failure("ran longer than 120 s: " + " ".join(extra)) from None
    err = run.stderr.decode(errors="replace").strip()
    try:
        output = run.stdout.decode().replace(case.get("prefix", "\0"), "")
        values = [json.loads(line) for line in output.splitlines()]
    except ValueError as why:
        raise Failure(f"{' '.join(extra)}: output is not lines of JSON ({why})") from None
    return run.returncode, values, err


def check_status(case, status, err, how):
    want = case.get("exit", 0)
    if status != want:
        raise Failure(f"{how}: exit status {status} instead of {want}: {err[:300]}")


def check_values(values, want, how):
    for i, (a, b) in enumerate(itertools.zip_longest(values, want, fillvalue="(nothing)")):
        if not same(a, b):
            raise Failure(f"{how}: line {i + 1} is {json.dumps(a)[:200]} instead of {json.dumps(b)[:200]}")


def run_plain(program, folder, case, extra):
    how = " ".join(extra)
    status, values, err = show(program, folder, case, extra)
    check_status(case, status, err, how)
    for part in case.get("stderr_contains", []):
        if part.lower() not in err.lower():
            raise Failure(f"{how}: stderr lacks {part!r}: {err[:300]}")
    if "lines" in case:
        check_values(values, case["lines"], how)


def run_resumed(program, folder, case, extra, n):
    """The first n lines, and the others from a second process."""
    how = f"{' '.join(extra)} --save-after {n}"
    want = case["lines"]
    state = os.path.join(folder, "state")
    status, values, err = show(program, folder, case, [*extra, "--save-after", str(n), "--state", state])
    if status != 0:
        raise Failure(f"{how}: exit status {status}: {err[:300]}")
    check_values(values, want[:n], how)
    how += ", then --restore"
    status, values, err = show(program, folder, case, [*extra, "--restore", state])
    check_status(case, status, err, how)
    check_values(values, want[n:], how)


def configurations(draw, sanitized, everything):
    """Pairs of options; three of them still meet every value of each."""
    pairs = list(itertools.product(THREADS, BLOCK_ROWS))
    if not everything:
        pairs = list(zip(draw.sample(THREADS, 3), draw.sample(BLOCK_ROWS, 3)))
        if sanitized:
            pairs = pairs[:1]
    return [["--threads", str(t), "--block-rows", str(b)] for t, b in pairs]


def resumable(case):
    """Whether a position of it can be saved: it runs, and what it prints is known."""
    return case.get("lines") is not None and case.get("exit", 0) != 2


def run_case(program, case, options, resumed, everything):
    draw = random.Random(f"{options['seed']}/{case['id']}")
    pairs = configurations(draw, options["sanitized"], everything)
    with tempfile.TemporaryDirectory(prefix="millrace-known-") as folder:
        if options["gateway"]:
            case = to_store(case, options["gateway"], options["prefix"])
        else:
            make_files(case, folder)
        for extra in pairs:
            run_plain(program, folder, case, extra)
        if resumed:
            # After the last line of a case that fails there is the error, not the end.
            last = len(case["lines"]) + (1 if case.get("exit", 0) == 0 else 0)
            places = list(range(last))
            if not everything and last > POSITIONS:
                places = sorted(draw.sample(places, POSITIONS))
            for n in places:
                run_resumed(program, folder, case, draw.choice(pairs), n)


def same_identities(held, cases, seed, everything, tap):
    """Whether all cases have the same identities however they run."""
    with tempfile.TemporaryDirectory(prefix="millrace-known-") as root:
        text = []
        for i, case in enumerate(cases):
            folder = os.path.join(root, str(i))
            os.mkdir(folder)
            make_files(case, folder)
            text.append(f"case {i}\nfolder {folder}\nsame {0 if everything else PLACES} {seed}\ngraph {case['expr']}\n")
        run = subprocess.run([held], input="".join(text).encode(), capture_output=True, check=False)
    output, bad, done = run.stdout.decode(errors="replace").splitlines(), {}, 0
    for line in output:
        word, _, rest = line.partition(" ")
        if word == "FAIL":
            number, _, why = rest.partition(": ")
            bad[int(number)] = why
        elif word == "start":
            done += 1
    for i, case in enumerate(cases):
        if i in bad:
            print(f"FAIL {case['id']}: {case['expr']}\n     {bad[i]}")
        print("not ok" if i in bad or i >= done else "ok", "-", f"identities::{case['id']}", file=tap)
    if run.returncode not in (0, 1):
        print(f"the process ended with {run.returncode} in {cases[done - 1]['id']}: {run.stderr.decode()[-2000:]}")
    print(f"{done - len(bad)} graphs with the same identities, {len(bad)} others, seed {seed}; {output[-1] if output else ''}")
    return done == len(cases) and not bad and run.returncode == 0


def missing_ops(program):
    run = subprocess.run([*program, "ops", "--names"], capture_output=True, text=True, check=True)
    return LATER - set(run.stdout.split())


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description="Runs graphs whose output is known.")
    parser.add_argument("program")
    parser.add_argument("cases", nargs="*", default=[os.path.join(here, "known_answers.jsonl")])
    parser.add_argument("--only", default="")
    parser.add_argument("--sanitized", action="store_true")
    parser.add_argument("--emulator", help="runs the program of another architecture, as qemu-aarch64")
    parser.add_argument("--identities", metavar="HELD", help="looks at identities, with this program")
    parser.add_argument("--gateway", type=int, metavar="PORT", help="files are in a store, see above")
    parser.add_argument("--prefix", default="s3://known/", help="of the URLs of these files")
    parser.add_argument("--sample", type=int, metavar="N", help="only N cases, which MR_TEST_SEED draws")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    program = [os.path.abspath(options.program)]
    if options.emulator:
        program.insert(0, options.emulator)
    everything = os.environ.get("MR_TEST_TIER") == "long"
    seed = os.environ.get("MR_TEST_SEED", "1")

    cases = []
    for path in options.cases:
        with open(path, encoding="utf-8") as lines:
            cases += [json.loads(line) for line in lines if line.strip()]
    cases = [case for case in cases if options.only in case["id"] and ("files" in case or not options.gateway)]
    if options.sample and not everything:
        cases = random.Random(seed).sample(cases, min(options.sample, len(cases)))
    missing = missing_ops(program)
    n_resumed = RESUMED_SANITIZED if options.sanitized else RESUMED
    lacking = {}
    for case in cases:
        for op in sorted(missing):
            if re.search(rf"\b{op}\s*\(", case["expr"]):
                lacking.setdefault(case["id"], op)
    if options.identities:
        runs = [case for case in cases if case["id"] not in lacking and case.get("exit", 0) != 2
                and not OF_WORKERS.search(case["expr"])]
        with open(os.environ.get("TAP_FILE", os.devnull), "w", encoding="utf-8") as tap:
            return 0 if same_identities(os.path.abspath(options.identities), runs, seed, everything, tap) else 1
    can_resume = [case for case in cases if case["id"] not in lacking and resumable(case)]
    chosen = can_resume
    if not everything:
        chosen = random.Random(seed).sample(can_resume, min(n_resumed, len(can_resume)))
    resumed = {case["id"] for case in chosen}

    def outcome(case):
        if case["id"] in lacking:
            return "skip", f"op {lacking[case['id']]} is not built"
        try:
            shared = {"seed": seed, "sanitized": options.sanitized, "gateway": options.gateway,
                      "prefix": options.prefix}
            run_case(program, case, shared, case["id"] in resumed, everything)
        except Failure as why:
            return "fail", str(why)
        return "pass", ""

    tap = open(os.environ.get("TAP_FILE", os.devnull), "w", encoding="utf-8")
    counts = {"pass": 0, "fail": 0, "skip": 0}
    with tap, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for case, (result, why) in zip(cases, pool.map(outcome, cases)):
            counts[result] += 1
            if result == "fail":
                print(f"FAIL {case['id']}: {' '.join(case.get('args', []))} {case['expr']}\n     {why}")
            print("not ok" if result == "fail" else "ok", "-", f"known::{case['id']}",
                  f"# SKIP {why}" if result == "skip" else "", file=tap)
    print(f"{counts['pass']} passed, {counts['fail']} failed, {counts['skip']} skipped; "
          f"{len(resumed)} of {len(can_resume)} resumed")
    return 1 if counts["fail"] else 0


if __name__ == "__main__":
    sys.exit(main())
