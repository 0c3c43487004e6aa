#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
"""Elastic training that other programs start: processes with Slurm's variables, mpirun, and torchrun with
--max-restarts. Ranks are killed, and the job is started again with other numbers of processes: the ledger has the steps of a run
that was left alone, and so have the losses to float32 rounding.

    launched_elastic.py [MILLRACE]

$MR_TORCHRUN is the command of torchrun; without it, torchrun on PATH. If it is not there, its test is skipped.
TAP goes to $TAP_FILE."""
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(1, os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..")))
from killed import MILLRACE, PAIR, narrow, ranks_of  # noqa: E402
from ports import ports  # noqa: E402

DATA = f"range(720).shuffle(100).map(i => {PAIR}).batch(18)"
TRAIN = [MILLRACE, "train", "--model", "dense(3).dropout(0.2).dense(1)", "--loss", "mse", "--optimizer", "sgd(0.01)", "--epochs",
         "2", "--log", "json", "--seed", "3", "--ledger", "ledger", "--elastic", "12", "--data", DATA]
BACKED_UP = [*TRAIN, "--callback", 'backup_and_restore("backup", save_freq=2)']


class Skipped(Exception):
    pass


def losses(lines):
    return {x["step"]: x["loss"] for x in lines if "step" in x}


def ledger():
    out = subprocess.run([MILLRACE, "why", "ledger"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True).stdout
    return [[(r["file"], r["ordinal"]) for r in json.loads(x)["records"]] for x in out.splitlines()]


def alone():
    p = subprocess.run([*TRAIN, "--replicas", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=600)
    assert p.returncode == 0, p.stderr
    return losses(map(json.loads, p.stdout.splitlines())), ledger()


def compare(lines, want, told):
    for n, loss in losses(lines).items():
        assert math.isclose(loss, want[n], rel_tol=1e-4, abs_tol=1e-6), (told, n, loss, want[n])


def follow(out, at, act):
    """The lines of a job; at its step `at`, act is called. 0: never."""
    lines = []
    for text in out:
        if text.startswith("{"):
            lines.append(json.loads(text))
            if at and lines[-1].get("step") == at:
                act()
    return lines


# ---- Slurm ----

def slurm(tasks, at, killed):
    """A step of Slurm with this number of tasks, of which one is killed: exit statuses and lines."""
    port, ranks = ports(1)[0], []
    for rank in range(tasks):
        env = {**os.environ, "SLURM_PROCID": str(rank), "SLURM_NTASKS": str(tasks), "SLURM_STEP_NUM_TASKS": str(tasks),
               "SLURM_STEP_NODELIST": "localhost", "SLURM_JOB_ID": "17", "SLURM_LOCALID": str(rank), "MILLRACE_PORT": str(port)}
        with open(f"err-{rank}", "w") as err:
            command = [*BACKED_UP, "--replicas", "1"]
            ranks.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=err, env=env) if rank
                         else narrow(command, stderr=err, env=env))
    lines = follow(ranks[0].stdout, at, lambda: ranks[killed].kill())
    ranks[0].stdout.close()
    return [p.wait(timeout=600) for p in ranks], lines


def messages(tasks):
    said = ""
    for rank in range(tasks):
        with open(f"err-{rank}") as f:
            said += f"rank {rank}: {f.read()}"
    return said


def test_slurm_starts_it_again_with_other_tasks():
    want, records = alone()
    for tasks, at, killed in ((3, 11, 1), (4, 29, 3), (1, 41, 0), (2, 0, 0)):
        codes, lines = slurm(tasks, at, killed)
        compare(lines, want, (tasks, at))
        for rank, code in enumerate(codes):
            expected = 0 if not at else -signal.SIGKILL if rank == killed else 75
            assert code == expected, (tasks, at, codes, messages(tasks))
    assert ledger() == records
    assert not os.path.exists("backup")


# ---- mpirun ----

MODULE = os.path.join(os.path.dirname(MILLRACE), "millrace-mpi.so")
# mpirun would lose the lines of a process that it ends.
KEPT = 'echo $$ >"pid-$OMPI_COMM_WORLD_RANK"; exec "$@" >"out-$OMPI_COMM_WORLD_RANK" 2>"err-$OMPI_COMM_WORLD_RANK"'


def by_mpi(tasks, replicas, at, killed, communication):
    """A job of mpirun, of which one rank is killed at a step: whether it ended well, and its lines."""
    env = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "MILLRACE_MPI_MODULE": MODULE}
    if os.path.exists("out-0"):
        os.remove("out-0")
    with open("err-mpirun", "w") as err:
        p = subprocess.Popen([os.environ.get("MPIRUN", "mpirun"), "--oversubscribe", "-n", str(tasks), "bash", "-c", KEPT, "-", *BACKED_UP,
                              "--replicas", str(replicas), "--communication", communication], stdin=subprocess.DEVNULL, stderr=err, env=env)
    lines, hit, ended, end = [], not at, False, time.monotonic() + 300
    try:
        while not ended and time.monotonic() < end:
            ended = p.poll() is not None
            if os.path.exists("out-0"):
                with open("out-0") as out:
                    lines = [json.loads(x) for x in out.read().split("\n")[:-1]]
            if not hit and not ended and any(x.get("step", 0) >= at for x in lines):
                hit = True
                with open(f"pid-{killed}") as f:
                    os.kill(int(f.read()), signal.SIGKILL)
            time.sleep(0.002)
    finally:
        if p.poll() is None:
            p.kill()
        p.wait()
    return p.returncode == 0, lines, hit


def test_mpirun_starts_it_again_with_other_processes():
    if not os.path.exists(MODULE) or not shutil.which(os.environ.get("MPIRUN", "mpirun")):
        raise Skipped("no Open MPI here")
    want, records = alone()
    for _ in range(10):  # a job of mpirun can end before it is seen how far it is: then from the beginning
        for tasks, replicas, at, killed, communication in ((3, 1, 9, 1, "mpi"), (2, 2, 25, 0, "mpi"), (4, 1, 41, 2, "ring"),
                                                           (2, 1, 0, 0, "mpi")):
            good, lines, hit = by_mpi(tasks, replicas, at, killed, communication)
            assert good == (not at or not hit), (tasks, at, messages(tasks))
            compare(lines, want, (tasks, at))
            if not hit:
                break
        if hit:
            break
    assert hit, "each ended before a rank was killed"
    assert ledger() == records
    assert not os.path.exists("backup")


# ---- torchrun ----

def torchrun():
    given = os.environ.get("MR_TORCHRUN")
    found = given.split() if given else [shutil.which("torchrun")]
    if not found[0]:
        raise Skipped("there is no torchrun; install torch (pip install --no-deps torch), or name it in MR_TORCHRUN")
    return found


def launched(per_node, restarts, hits):
    """A job of torchrun; hits: (step, what to do with the process)."""
    command = [*torchrun(), "--nnodes", "1", "--nproc-per-node", str(per_node), "--max-restarts", str(restarts), "--master-port",
               str(ports(1)[0]), "--no-python", "--", *BACKED_UP, "--replicas", "1"]
    with open("err", "w") as err:
        p = narrow(command, stderr=err)
    lines, hits = [], list(hits)
    for text in p.stdout:
        if text.startswith("{"):
            lines.append(json.loads(text))
            if hits and lines[-1].get("step") == hits[0][0]:
                hits.pop(0)[1](p)
    p.stdout.close()
    return p.wait(timeout=600), lines


def kill_rank(rank):
    return lambda p: os.kill(ranks_of(p)[rank], signal.SIGKILL)


def test_torchrun_starts_it_again_with_other_processes():
    torchrun()
    want, records = alone()
    for per_node, restarts, hits, ends in ((3, 2, [(9, kill_rank(1)), (21, kill_rank(0)), (33, lambda p: p.terminate())], False),
                                           (2, 0, [(51, kill_rank(1))], False), (4, 0, [], True)):
        code, lines = launched(per_node, restarts, hits)
        with open("err") as f:
            assert (code == 0) == ends, (per_node, code, f.read())
        compare(lines, want, per_node)
    assert ledger() == records
    assert not os.path.exists("backup")


def main():
    tests = [v for k, v in sorted(globals().items()) if k.startswith("test_")]
    failed = 0
    with open(os.environ.get("TAP_FILE", os.devnull), "w") as tap:
        print(f"1..{len(tests)}", file=tap)
        for t in tests:
            with tempfile.TemporaryDirectory() as d:
                os.chdir(d)
                try:
                    t()
                    print(f"ok - launched_elastic::{t.__name__}", file=tap, flush=True)
                except Skipped as why:
                    print(f"SKIPPED {t.__name__}: {why}")
                    print(f"ok - launched_elastic::{t.__name__} # SKIP {why}", file=tap, flush=True)
                except Exception:
                    failed += 1
                    traceback.print_exc()
                    print(f"not ok - launched_elastic::{t.__name__}", file=tap, flush=True)
                os.chdir("/")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
