#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training on the double with one call that fails, or one kernel: the n-th, for many n.

    faults.py MILLRACE [N]      N runs of each kind (default 60), spread over all calls

Such a run ends with status 1 and an error of ours that names what could not be done, or, where the
failure does not matter, with the losses of an undisturbed one. It never hangs, crashes, misuses a
library or leaves anything allocated. The environment is double.sh's."""
import json
import os
import subprocess
import sys
import tempfile

CASES = {
    "an MLP on two GPUs": [
        "--data", 'range(96).map(i => (cast([i % 7, i % 11, i % 13], "float32") / 10.0, i % 3)).batch(32)',
        "--model", 'dense(8, activation="relu").dropout(0.2).dense(3)',
        "--devices", "cuda:0,cuda:1", "--optimizer", "adam(0.003)"],
    "a CNN": [
        "--data", 'range(16).map(i => (reshape(sin(cumsum(ones([300])) * cast(i % 13 + 1, "float32")), [10, 10, 3]), i % 3))'
        ".batch(8)",
        "--model", 'conv2d(16, 3, activation="relu").max_pool(2).conv2d(5, 3, padding="same").batch_norm().flatten().dense(3)',
        "--devices", "cuda:1", "--optimizer", "sgd(0.1, momentum=0.9)"],
}
REST = ["--loss", "sparse_categorical_crossentropy(from_logits=true)", "--metrics", "accuracy", "--seed", "5",
        "--log", "json"]


def train(program, case, **env):
    try:
        p = subprocess.run([program, "train", *case, *REST], env=dict(os.environ, MR_DOUBLE_DELAY="0", **env),
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
        return p.returncode, p.stdout, p.stderr
    except subprocess.TimeoutExpired as e:
        return "hangs", "", (e.stderr or b"").decode()


def same(a, b):
    """To rounding: where a library does not start, kernels of our own do its part."""
    a, b = ([json.loads(line) for line in text.splitlines()] for text in (a, b))
    return len(a) == len(b) and all(abs(x["loss"] - y["loss"]) < 1e-5 * (1 + abs(x["loss"])) for x, y in zip(a, b))


def wrong(outcome, undisturbed):
    rc, out, err = outcome
    if "cuda double:" in err:
        return "the double objects"
    if rc == 0:
        return None if same(out, undisturbed) else "other losses"
    if rc != 1:
        return f"status {rc}"
    return None if "millrace" in err and len(err) > 20 else "no message"


def spread(total, n):
    """The first third of all, then every k-th."""
    first = min(total, n // 3)
    rest = total - first
    return list(range(1, first + 1)) + [first + 1 + i * rest // (n - first) for i in range(min(rest, n - first))]


def main():
    program, n, failed = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 60, 0
    for name, case in CASES.items():
        with tempfile.NamedTemporaryFile() as f:
            rc, undisturbed, err = train(program, case, MR_DOUBLE_COUNT=f.name)
            assert rc == 0 and undisturbed, err
            calls, kernels = map(int, open(f.name).read().split()[:2])
        for kind, total in (("any", calls), ("kernel", kernels)):
            errors = 0
            for k in spread(total, n):
                outcome = train(program, case, MR_DOUBLE_FAIL=f"{kind}:{k}")
                why = wrong(outcome, undisturbed)
                errors += outcome[0] == 1
                if why:
                    failed += 1
                    print(f"{name}, MR_DOUBLE_FAIL={kind}:{k}: {why} (status {outcome[0]}):\n{outcome[2]}")
            print(f"{name}: {total} of kind {kind}; {errors} of the runs ended with an error")
            failed += errors == 0
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
