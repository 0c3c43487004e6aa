#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the files that a version of the program leaves on disk; compat.py reads them with later versions.

  make.py BUILD_DIR [DIR]

runs the programs in BUILD_DIR and writes DIR/VERSION (default: tests/compat/0.1 and so on). The folder
must not exist. Once a version is released, its folder never changes: a later version gets its own.

    data/       input files of the graphs, with indexes
    kept/       files of elements: cache, save, snapshot
    positions/  of show --save-after and of mr_iterator_save_at
    ledgers/    of show and train
    sets/       files left by a write that was killed while it renamed them, with its journal
    learned/    of adapt
    models/     of train --save
    checkpoints/, backups/    of the callbacks; a backup is of training that was killed
    service/    the account of a dispatcher, and positions of its clients
    cases.jsonl what the program printed when it read them

The first line of cases.jsonl has the arguments of a dispatcher and of its workers. Each other line is a
case, in the order of running:

    name        of the test
    args        of millrace, run in a copy of the folder
    exit, out   exit status, lines of standard output
    says        words on standard error
    sorted      the order of the lines does not matter
    close       numbers may differ by CLOSE (compat.py): other processors add in another order
    workers     number of processes that train together
    dispatcher  needs the running dispatcher
    concurrent  may run at the same time as later cases
    long        takes 30 s, runs with MR_TEST_LONG=1
    needs       part of the build: trainer or service

Before a position, a backup or a job is kept, make.py checks that what came before it and what comes
after it are together the output of an uninterrupted run.

All paths in the files are relative. A position of distribute stores the working directory of its
client, but not one whose name is too long for getcwd; so these clients run in such a directory.

Running make.py again writes other bytes where a graph draws without a seed and where a process is killed."""
import contextlib
import gzip
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import compat  # noqa: E402
from cases import (BACKUPS, DAEMONS, DISPATCHER, JOBS, KEPT, LEDGERS, MODELS, PAIRS, POSITIONS,  # noqa: E402
                   POSITIONS_OF_BLOCKS, READ, SOME_PAIRS, WORKER)

BUILD = os.path.abspath(sys.argv[1])
MILLRACE = os.path.join(BUILD, "millrace")
MAKER = ""  # maker.c, compiled
NAMELESS = ""  # see nameless()
cases = []


def rows(table):
    """The fields of each row; fields missing at the end of a row are empty."""
    lines = table.strip().splitlines()
    n = max(line.count("|") for line in lines)
    return [[*map(str.strip, line.split("|")), *[""] * (n - line.count("|"))] for line in lines]


def graph(text):
    return text.replace("UNORDERED", "map(x => x, num_parallel_calls=2, deterministic=false)")


def millrace(words, directory=".", status=0, env=None):
    """Standard output of the program."""
    p = subprocess.run([MILLRACE, *words], cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, text=True, env={**compat.ENVIRONMENT, **(env or {})})
    if p.returncode != status:
        sys.exit(f"{words}\nended with status {p.returncode}, not {status}: {p.stderr}")
    return p.stdout


def case(name, args, **more):
    if "distribute(" in str(args):
        more.setdefault("needs", "service")
    cases.append({"name": name, "args": args, **more})


@contextlib.contextmanager
def a_copy():
    """A copy of all files made so far, for programs that write."""
    with tempfile.TemporaryDirectory() as directory:
        compat.copy(".", directory)
        yield directory


@contextlib.contextmanager
def nameless(folders):
    """A copy of the folders in a directory whose name is too long for getcwd; yields a path to it."""
    start = os.open(".", os.O_RDONLY)
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        for _ in range(18):
            os.mkdir("d" * 250)
            os.chdir("d" * 250)
        end = os.open(".", os.O_RDONLY)
        os.fchdir(start)
        for folder in folders:
            compat.copy(folder, f"/proc/self/fd/{end}/{folder}")
        yield f"/proc/{os.getpid()}/fd/{end}"
        os.close(end)
    os.close(start)


# ---- sources


def write_file(name, content):
    os.makedirs(os.path.dirname(name), exist_ok=True)
    with open(name, "wb") as f:
        f.write(content if isinstance(content, bytes) else content.encode())


def make_sources():
    names = "ash beech cedar elm fir gum hazel ivy juniper kapok larch maple".split()
    for i in range(3):
        write_file(f"data/words-{i}.txt", "".join(f"{w} {i}\n" for w in names[4 * i:4 * i + 7]))
    write_file("data/words.gz", gzip.compress("".join(w + "\n" for w in names).encode(), mtime=0))
    for i in range(2):
        write_file(f"data/fixed-{i}.bin", b"HH" + bytes(range(i * 12, i * 12 + 12)) + b"F")
        write_file(f"data/set-{i}.tar", archive({f"s/{i}{k}.{ext}": f"{ext} {i + k}" for k in range(2)
                                                 for ext in ("txt", "cls")}))
    for name in "cat/a.png", "cat/b.jpg", "dog/c.png", "eel/d.png":
        write_file(f"data/pets/{name}", f"picture {name}")
    write_file("data/people-0.csv", 'id,name\n1,Ann\n2,"Bob, jr"\n3,"Cy\nof two lines"\n\n4,Di\n')
    write_file("data/people-1.csv", "name,age,id\nEd,7,5\nFi,8,6\n")
    write_file("data/numbers.csv", "1,2.5\n2,\n3,-1\n4,1e3\n")
    write_file("data/people-0.jsonl", '{"name": "Ann", "at": [1, 2.5], "l": []}\n'
               '{"name": "Bob", "at": [0, 0], "age": 7, "l": [1, 2]}\n')
    write_file("data/people-1.jsonl", "".join(f'{{"name": "p{i}", "at": [{i}, 1], "l": [{i}]}}\n' for i in range(4)))
    for name, shards, *options in (("plain", 3), ("indexed", 3), ("gzip", 2, "--compress", "GZIP"),
                                   ("zstd", 2, "--compress", "ZSTD")):
        millrace(["write", "--out", f"data/{name}", "--shards", str(shards), *options, "--expr",
                  f'range(14).map(x => format("{name} {{}}", x))'])
    millrace(["index", "data/indexed-00000-of-00003.tfrecord"])
    millrace(["index", "--compact", "data/indexed-00001-of-00003.tfrecord", "data/indexed-00002-of-00003.tfrecord"])
    millrace(["write", "--out", "data/frames", "--shards", "2", "--compress", "zstd-record", "--expr",
              'range(100).map(x => format("the word {} of {} in a sentence that others resemble", x, x % 7))'])
    songs = 'range(14).map(i => {"id": i, "title": format("song {}", i), "bars": ones([i % 3]), "in": {"a": i % 2 == 0}})'
    for form in "arrow", "parquet":
        millrace(["write", "--out", f"data/{form}", "--format", form, "--shards", "2", "--expr", songs])
    with open("data/plain-00000-of-00003.tfrecord", "rb") as f:
        damaged = bytearray(f.read())
    damaged[40] ^= 1
    write_file("data/damaged.tfrecord", bytes(damaged))


def archive(members):
    tarfile.RECORDSIZE = tarfile.BLOCKSIZE  # no padding to 10 KiB
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as t:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            t.addfile(info, io.BytesIO(content.encode()))
    return out.getvalue()


# ---- files of elements


def make_kept():
    write_file("kept/gone.txt", "one\ntwo\nthree\n")
    for name, writes, reads in rows(KEPT):
        millrace(["show", writes])
        if name != "whole":
            case(f"kept/{name}", ["show", reads or writes])
    os.remove("kept/gone.txt")


# ---- positions


def options_of(text):
    """Options of show for saving, those for restoring, fields of the case."""
    more = {}
    words = re.match(r"(?:(.*?) ?)(?:says (.*))?$", text)
    options = words[1].split()
    if words[2]:
        more["says"] = words[2]
    if "sorted" in options:
        options.remove("sorted")
        more["sorted"] = True
    draws = "--draws" in options
    if draws:
        options.remove("--draws")
    limit = options.index("--limit") if "--limit" in options else len(options)
    saving = options[:limit] + options[limit + 2:] + (["--seed", "7"] if draws else [])
    return saving, options, more


def check_position(name, before, after, whole, n, more):
    before, after, whole = (x.splitlines() for x in (before, after, whole))
    if len(before) != n or not after and "says" not in more and name != "at_the_end":
        sys.exit(f"{name}: {len(before)} elements before the position, {len(after)} after it")
    if before + after != whole and not ("sorted" in more and sorted(before + after) == sorted(whole)):
        sys.exit(f"{name}: {before}, then {after}, but without a stop {whole}")


def make_positions():
    os.mkdir("positions")
    for name, n, options, text in rows(POSITIONS):
        text, (saving, reading, more) = graph(text), options_of(options)
        directory = NAMELESS if "distribute(" in text else "."
        file = f"positions/{name}"
        before = millrace(["show", *saving, "--save-after", n, "--state", os.path.abspath(file), text], directory)
        status = 1 if name in ("map_before_an_error", "prefetch_with_an_error") else 0
        args = ["show", *reading, "--restore", file, text]
        where = a_copy if "kept/" in text else contextlib.nullcontext
        with where() as d:
            after = millrace(args, d or ".", status)
        with where() as d:
            limit = ["--limit", str(int(n) + int(reading[-1]))] if "--limit" in reading else []
            whole = millrace(["show", *saving, *limit, text], d or ".", status)
        check_position(name, before, after, whole, int(n), more)
        case(file, args, **more)
    for name, calls, want, taken, options, text in rows(POSITIONS_OF_BLOCKS):
        text, (_, reading, more) = graph(text), options_of(options)
        file = f"positions/{name}"
        n = millrace(["show", "--load", MAKER, "range(1)"], env={
            "SAVE_EXPRESSION": text, "SAVE_CALLS": calls, "SAVE_WANT": want, "SAVE_ROWS": taken, "SAVE_FILE": file})
        case(file, ["show", *reading, "--restore", file, text], **more)
        if "says" not in more:
            whole = millrace(["show", *reading, text + ".ignore_errors()"])
            check_position(name, "\n".join(whole.splitlines()[:int(n)]), millrace(cases[-1]["args"]), whole, int(n), more)


# ---- ledgers


def make_ledgers():
    os.makedirs("ledgers")
    for name, n, options, text in rows(LEDGERS):
        text, options, file, again = graph(text), options.split(), f"ledgers/{name}", f"ledgers/continued_{name}"
        millrace(["show", *options, "--ledger", file, text])
        case(file, ["why", file])
        millrace(["show", *options, "--ledger", "unused", "--save-after", n, "--state", f"positions/{name}", text])
        os.remove("unused")
        case(f"positions/{name}", ["show", *options, "--ledger", again, "--restore", f"positions/{name}", text])
        case(again, ["why", again])
        # An uninterrupted run of a later version writes an equal ledger.
        case(f"{file}_again", ["show", *options, "--ledger", again, text])
        case(f"{file}_compared", ["why", file, again])
    case("ledgers/one_element", ["why", "ledgers/of_a_shuffle", "--element", "3"])
    case("ledgers/one_record", ["why", "ledgers/of_a_shuffle", "--record", "words-1.txt:2"])
    with open("ledgers/of_passes", "rb") as f:
        content = f.read()
    write_file("ledgers/cut_short", content[:-8])  # as by a run that was killed
    case("ledgers/cut_short", ["why", "ledgers/cut_short"])
    millrace(["train", "--data", SOME_PAIRS, "--model", "dense(1)", "--loss", "mse", "--optimizer", "sgd", "--replicas", "2",
              "--ledger", "ledgers/of_training"])
    case("ledgers/of_training", ["why", "ledgers/of_training"])


# ---- sets of files


def make_sets():
    """Sets that replace older ones: write dies before the journal has its name, when one new file has its
    name, when one old file of a set with fewer files is moved away."""
    os.makedirs("sets")
    for name, old, last in ("prepared", "3", 1), ("begun", "3", 3), ("replaced", "2", 3):
        prefix = f"sets/{name}"
        write = ["write", "--out", prefix, "--overwrite", "--expr"]
        millrace([*write, f'range(7).map(x => format("old {name} {{}}", x))', "--shards", old])
        millrace([*write, f'range(9).map(x => format("new {name} {{}}", x))', "--shards", "3"], status=-signal.SIGKILL,
                 env={"LD_PRELOAD": MAKER, "KILL_AT_RENAME": str(last)})
        read = ["show", f'tfrecord("{prefix}-*")']
        case(f"{prefix}_unfinished", read)
        case(f"{prefix}_recovered", ["write", "--recover", "--out", prefix])
        case(f"{prefix}_complete", read)


# ---- files of adapt, models, checkpoints


def make_learned():
    for name, layer, data in (
            ("words", "lookup(max_tokens=9)", 'from_tensor_slices(["d", "a", "d", "c", "c", "d"]).map(x => [x]).batch(2)'),
            ("texts", "text_vectorization()", 'from_tensor_slices(["The cat and the dog", "a dog, a cat!"]).batch(2)'),
            ("moments", "normalization()", 'range(12).map(i => [cast(i, "float32"), cast(i * i, "float32")]).batch(4)'),
            ("bins", "discretization(4)", "range(12).map(i => [i]).batch(4)")):
        millrace(["adapt", "--data", data, "--layer", layer, "--out", f"learned/{name}"])


def train(*words, status=0):
    return millrace(["train", "--seed", "3", "--log", "json", *words], status=status)


def make_models():
    fields = {"close": True, "needs": "trainer"}
    for name, data, some, args in MODELS:
        saved = f"models/{name}"
        train("--data", data, "--epochs", "2", "--optimizer", "adam(0.01)", "--save", saved, *args)
        for command in "evaluate", "predict":
            case(f"{saved}_{command}", [command, "--saved", saved, "--data", some], **fields)
        case(f"{saved}_summary", ["summary", "--json", "--saved", saved], **fields)
        if "--mixed-precision" not in args:
            case(f"{saved}_init", ["train", "--log", "json", "--seed", "3", "--init", saved, "--data", some, "--optimizer",
                                   "sgd(0.01)", *args], **fields)
    for name, options in ("finished", ["--epochs", "4"]), ("begun", ["--epochs", "4", "--steps", "30"]):
        point = f"checkpoints/{name}"
        train("--data", PAIRS, "--model", "dense(2).dense(1)", "--loss", "mse", "--optimizer", "adam(0.01)", *options,
              "--callback", f'checkpoint("{point}/at_{{epoch}}", keep=2)')
        case(f"{point}_listed", ["checkpoints", "--json", point], **fields)
        case(f"{point}_evaluated", ["evaluate", "--saved", point, "--data", SOME_PAIRS], **fields)
        case(f"{point}_init", ["train", "--log", "json", "--seed", "3", "--init", point, "--data", SOME_PAIRS, "--model",
                               "dense(2).dense(1)", "--loss", "mse", "--optimizer", "sgd(0.01)"], **fields)


# ---- backups


def kill_at(args, step, workers):
    """Trains until a step is printed, then kills all processes."""
    processes = [subprocess.Popen(["stdbuf", "-oL", MILLRACE, *args], stdout=subprocess.PIPE, text=True, env=env)
                 for env in compat.tasks(workers)]
    for line in processes[0].stdout:
        if json.loads(line).get("step") == step:
            break
    for p in processes:
        p.kill()
        p.communicate()


def make_backups():
    for name, workers, step, frequency, args in BACKUPS:
        directory, log = f"backups/{name}", f"backups/{name}.csv"
        args = [a.replace("log.csv", log) for a in args]
        plain = ["train", "--seed", "3", "--log", "json", *args]
        fields = {"close": True, "needs": "trainer", **({"workers": workers} if workers > 1 else {})}
        with a_copy() as d:
            os.makedirs(os.path.join(d, "backups"), exist_ok=True)
            status, whole, err = compat.run(MILLRACE, {"args": plain, **fields}, d)
            if status:
                sys.exit(f"{name}: {err}")
        os.makedirs("backups", exist_ok=True)
        again = [*plain, "--callback", f'backup_and_restore("{directory}", {frequency})']
        while not os.path.exists(f"{directory}/backup/state.json"):  # again, if it ended before the signal came
            shutil.rmtree(directory, ignore_errors=True)
            if os.path.exists(log):
                os.remove(log)
            kill_at(again, step, workers)
        shutil.rmtree(f"{directory}/.backup.partial", ignore_errors=True)
        with a_copy() as d:
            status, rest, err = compat.run(MILLRACE, {"args": again, **fields}, d)
        if status or not rest or rest != whole[-len(rest):] or len(rest) > len(whole) - 3:
            sys.exit(f"{name}: {rest} after the backup, but without a stop {whole}\n{err}")
        case(directory, [*again, "--save", f"{directory}_trained"], **fields)
        data = args[args.index("--data") + 1].replace(".repeat()", "")
        case(f"{directory}_trained", ["evaluate", "--saved", f"{directory}_trained", "--data", data],
             **{**fields, "workers": 1})
        if os.path.exists(log):
            case(f"{directory}_log", ["show", f'text_line("{log}")'], **fields)


# ---- the data service


def leave_a_drain(worker):
    """A drain stays in the account if its worker does not end before the dispatcher does."""
    worker.send_signal(signal.SIGSTOP)
    millrace(["service", "drain", WORKER, "--dispatcher", DISPATCHER, "--timeout", "1"], status=1)
    worker.kill()


def make_service():
    os.makedirs("service")
    fields = {"dispatcher": True, "needs": "service"}

    def client(name, n, text, options, how, resume=False):
        """Reads n elements of a job and leaves. The case continues at the position, or resumes without one."""
        ours = f'{text}.distribute("{DISPATCHER}", job_name="{name}", {options})'
        state = f"service/{name}"
        before = millrace(["show", "--save-after", n, "--state", os.path.abspath(state), ours], NAMELESS).splitlines()
        whole = millrace(["show", f'{text}.distribute("local", {options})']).splitlines()
        args = ["show", *(how.split() if how != "long" else []), "--restore", state, ours]
        if resume:
            os.remove(state)
            args = [*args[:-3], ours[:-1] + ", resume=true)"]
        case(state, args, sorted="dynamic" in options, concurrent=True, long=resume and how == "long", before=before,
             whole=whole, **fields)

    with compat.service(MILLRACE, DAEMONS, ".") as (_, worker):
        for name, n, text, options, how in rows(JOBS):
            client(f"{name}_restored", n, text, options, how)
            client(f"{name}_resumed", n, text, options, how, resume=True)
        tool = ["service", "register", "range(7).map(x => x * x).batch(2)", "--dispatcher", DISPATCHER]
        registered = millrace(tool).strip()
        case("service/registered", ["show", f'distributed_dataset("{DISPATCHER}", "{registered}", streams=2)'],
             concurrent=True, **fields)
        leave_a_drain(worker)
    # A position of a job that is not in the account.
    with tempfile.TemporaryDirectory() as other:
        os.mkdir(os.path.join(other, "service"))
        with compat.service(MILLRACE, DAEMONS, other):
            client("forgotten", "5", "range(20).shuffle(6).batch(2)", "streams=3, seed=1", "")
    # First: the others read on, and these are the numbers in the account.
    cases.insert(0, {"name": "service/jobs", "args": ["service", "jobs", "--dispatcher", DISPATCHER], "sorted": True,
                     **fields})


# ---- everything


def record(path):
    """Runs the cases as compat.py does, and stores what they print."""
    with a_copy() as d, compat.service(MILLRACE, DAEMONS, d):
        for c, (c["exit"], c["out"], err) in compat.run_all(MILLRACE, cases, d):
            silent = c["exit"] == 1 or c["name"].endswith(("at_the_end", "_compared", "_recovered"))
            if c["exit"] not in (0, 1) or not (c["out"] or silent) or c.get("says", "") not in err:
                sys.exit(f"{c}\n{err}")
            parts, whole = sorted(c.get("before", []) + c["out"]), sorted(c.get("whole", []))
            if whole and parts != whole and not ("--limit" in c["args"] and set(parts) < set(whole) and
                                                 len(parts) == len(set(parts))):
                sys.exit(f"{c['name']}: {parts}, but without a stop {whole}")
    with open(path, "w") as f:
        print(json.dumps(DAEMONS), file=f)
        for c in cases:
            print(json.dumps({k: v for k, v in c.items() if v is not False and k not in ("before", "whole")}), file=f)


def main():
    global MAKER, NAMELESS
    version = millrace(["--version"]).split()[1]
    out = os.path.join(os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else HERE, ".".join(version.split(".")[:2]))
    if os.path.exists(out):
        sys.exit(f"{out} exists; remove it first")
    with tempfile.TemporaryDirectory(prefix="millrace-make-") as directory:
        MAKER = os.path.join(directory, "maker.so")
        subprocess.run(["cc", "-shared", "-fPIC", f"-I{BUILD}/include", f"-I{BUILD}/generated", f"{HERE}/maker.c",
                        "-o", MAKER, "-ldl"], check=True)
        work = os.path.join(directory, "work")
        os.mkdir(work)
        os.chdir(work)
        make_sources()
        with nameless(["data"]) as NAMELESS:
            make_service()
            make_kept()
            make_positions()
        make_ledgers()
        make_sets()
        make_learned()
        for name, how, words in rows(READ):
            case(name, shlex.split(words), **({"close": True} if how else {}))
        make_models()
        make_backups()
        record("cases.jsonl")
        for place, _, files in os.walk("."):
            for name in files:
                if name.endswith((".lock", ".log")):
                    os.remove(os.path.join(place, name))
        shutil.copytree(".", out)
        os.chdir("/")


main()
