#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
"""The table of docs/sharding.md: a training job that is cut within an epoch and started again with something
changed either continues in the order of that epoch, or is refused and says what to do. resized.py MILLRACE

A job stops at a step, its checkpoint becomes the backup, and the ledger of the run that continues shows which
records every epoch has. TAP goes to $TAP_FILE."""
import collections
import faulthandler
import json
import os
import shutil
import subprocess
import sys
import tempfile
import traceback

sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(__file__), "..")))
from ports import ports  # noqa: E402

MILLRACE = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.environ["MR_BUILD"], "millrace"))
ROWS, EPOCHS = 48, 3
ROW = 'map(s => ([cast(decode_raw(s, "uint8"), "float32") / 64.0], [1.0]))'
FILES = f'text_line("part-*").shuffle(20).{ROW}.batch(6)'  # of 6 files with 8 lines
NUMBERS = 'range(48).shuffle(20).map(i => ([cast(i, "float32") / 48.0], [1.0])).batch(6)'
CACHED = NUMBERS.replace(".map(", ".cache().map(").replace(".batch", ".shuffle(7).batch")
RECORDS = FILES.replace('text_line("part-*")', 'tfrecord("rec-*")')
TAIL = '.map(i => ([cast(i, "float32") / 48.0], [1.0])).batch(6)'
ZIPPED = 'zip(range(48).shuffle(20), range(48).shuffle(9)).map((i, k) => ([cast(i, "float32") / 48.0], [cast(k, "float32")])).batch(6)'
GRAPHS = [ZIPPED,  # two records a row; and some that draw when they open their inputs
    "range(48).shuffle(9).take(30).concatenate(range(18).shuffle(5))" + TAIL,
    "range(16).shuffle(16).repeat(3).shuffle(7)" + TAIL,
    'list_files("part-*").flat_map(f => text_line(f).shuffle(4)).' + ROW + ".batch(6)",
]
HINTED = NUMBERS.replace("range(48)", "range(48).shard(-1, 0)")
FUNCTION = ('range(48).shard(num_input_pipelines, input_pipeline_id).shuffle(20)'
            '.map(i => ([cast(i, "float32") / 48.0], [1.0])).batch(per_replica_batch_size(6))')
TRAIN = ["train", "--model", "dense(1)", "--loss", "mse", "--optimizer", "sgd(0.01)", "--epochs", str(EPOCHS), "--log", "json"]
WAYS_OUT = "--restart-epoch"


def job(data, policy="auto", workers=1, replicas=1, more=()):
    """(exit statuses, all of standard error) of a job with its processes on this host."""
    args = [MILLRACE, *TRAIN, "--data", data, "--replicas", str(replicas), "--ledger", "ledger", *more]
    args += ["--from-function"] if policy == "function" else ["--auto-shard", policy]
    port = ports(1)[0]
    started = []
    for i in range(workers):
        env = dict(os.environ)
        if workers > 1:
            env.update(RANK=str(i), WORLD_SIZE=str(workers), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        started.append(subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env))
    ended = [p.communicate(timeout=600) for p in started]
    return [p.returncode for p in started], "".join(e for _, e in ended), ended[0][0]


def ledger():
    """The records of each step, as (file, number of the record)."""
    p = subprocess.run([MILLRACE, "why", "ledger"], stdout=subprocess.PIPE, check=True, text=True)
    lines = [json.loads(line) for line in p.stdout.splitlines()]
    assert [x["step"] for x in lines] == list(range(len(lines)))
    return [[(r["file"], r["ordinal"]) for r in x["records"]] for x in lines]


def cut(step, *args, **kwargs):
    """Leaves the backup of a job at a step, and the ledger of some steps more."""
    for name in "saved", "backup":
        shutil.rmtree(name, ignore_errors=True)
    more = ["--steps", str(step + 2), "--callback", f'checkpoint("saved/{{step}}", save_freq={step})', *kwargs.pop("more", [])]
    codes, err, _ = job(*args, more=more, **kwargs)
    assert set(codes) == {0}, err
    shutil.copytree(f"saved/{step}", "backup/backup")
    done = ledger()
    assert len(done) == step + 2
    return done[:step]


def go_on(*args, **kwargs):
    more = ["--callback", 'backup_and_restore("backup", save_freq=1000)', *kwargs.pop("more", [])]
    return job(*args, more=more, **kwargs)


def counts(steps):
    return collections.Counter(r for s in steps for r in s)


def all_rows(n, times=1):
    return {r: times for r in counts(n)}


def check_refused(words, *args, **kwargs):
    before = open("ledger", "rb").read(), sorted(os.listdir("backup/backup"))
    codes, err, out = go_on(*args, **kwargs)
    assert set(codes) == {1} and not out, (codes, err)
    for word in [*words, WAYS_OUT]:
        assert word in err, (word, err)
    assert before == (open("ledger", "rb").read(), sorted(os.listdir("backup/backup"))), "something was changed"


def check_begins_again(done, first, *args, times=1, **kwargs):
    """With --restart-epoch: what was done remains in the ledger, then come whole epochs from `first` on."""
    kwargs["more"] = ["--restart-epoch", *kwargs.get("more", [])]
    codes, err, out = go_on(*args, **kwargs)
    assert set(codes) == {0}, err
    steps = ledger()
    assert steps[:len(done)] == done
    n = counts(steps[len(done):])
    assert len(n) == ROWS and set(n.values()) == {times * (EPOCHS - first)}, n
    lines = [json.loads(line) for line in out.splitlines()]
    assert lines[0]["step"] == len(done) + 1 and lines[0]["epoch"] == first + 1, lines[0]
    assert [x["epoch"] for x in lines if "step" not in x] == list(range(first + 1, EPOCHS + 1))
    assert not os.path.exists("backup")


SEED = ["--seed", "5"]
# (policy, data, steps of an epoch in one process): those that continue with other numbers
EXACT = [("data", FILES), ("data", NUMBERS), ("auto", NUMBERS), ("data", CACHED)]


def test_data_continues_with_any_numbers():
    """Also of a seed that was drawn; in any epoch; the ledger is that of the uninterrupted job."""
    for policy, data in EXACT:
        for step in 3, 13, 22:
            cuts = [((1, 1), (2, 1)), ((2, 1), (1, 1)), ((2, 1), (3, 2)), ((1, 2), (1, 3)), ((3, 1), (1, 2))]
            for before, after in cuts if step == 13 else cuts[step % 5:][:2]:
                done = cut(step, data, policy, *before)
                codes, err, out = go_on(data, policy, *after)
                assert set(codes) == {0}, (before, after, err)
                steps = ledger()
                assert steps[:step] == done and len(steps) == 8 * EPOCHS, (policy, data, before, after)
                for k in range(EPOCHS):
                    assert counts(steps[8 * k:8 * k + 8]) == all_rows(steps), (policy, before, after, k)
                if "cache" in data:  # what the first epoch read is what all have
                    continue
                assert json.loads(out.splitlines()[0])["step"] == step + 1


def test_data_continue_in_the_order_of_the_uninterrupted_job():
    for data in FILES, NUMBERS, CACHED, *GRAPHS:
        codes, err, out = job(data, "data", 1, 1, SEED)
        assert codes == [0], err
        whole, losses = ledger(), [json.loads(x) for x in out.splitlines()]
        for step, before, after in (3, (1, 1), (2, 1)), (10, (2, 1), (1, 1)), (21, (2, 2), (3, 1)), (21, (1, 1), (1, 2)):
            done = cut(step, data, "data", *before, more=SEED)
            assert done == whole[:step], (data, step, before)
            codes, err, out = go_on(data, "data", *after, more=SEED)
            assert set(codes) == {0}, err
            assert ledger() == whole, (data, step, before, after)
            for line in map(json.loads, out.splitlines()):
                same = [x for x in losses if x.get("step") == line.get("step") and x["epoch"] == line["epoch"]]
                assert len(same) == 1 and abs(same[0]["loss"] - line["loss"]) <= 1e-5 * abs(line["loss"]), (line, same)


def test_off_continues_after_whole_batches():
    """Every process has every record, so each comes W times; W steps are a batch."""
    for data in NUMBERS, FILES:
        for batches, before, after in (3, (2, 1), (1, 1)), (11, (2, 1), (3, 1)), (5, (1, 1), (2, 1)), (4, (2, 1), (2, 2)):
            w, v = before[0], after[0]
            done = cut(batches * w, data, "off", *before)
            codes, err, _ = go_on(data, "off", *after)
            assert set(codes) == {0}, err
            steps, epoch = ledger(), batches // 8
            assert steps[:len(done)] == done
            rest = steps[len(done):]
            left = 8 * (epoch + 1) - batches  # batches of the interrupted epoch
            first, later = counts(done[8 * w * epoch:]), counts(rest[:left * v])
            assert set(first.values()) <= {w} and set(later.values()) == {v} and not set(first) & set(later), (first, later)
            assert len(first) + len(later) == ROWS
            assert counts(rest[left * v:]) == all_rows(steps, v * (EPOCHS - epoch - 1))
    cut(7, NUMBERS, "off", 2, 1)
    check_refused(["in the middle of a batch", "2 processes"], NUMBERS, "off", 1, 1)


def test_others_are_refused_and_begin_again():
    for policy, data, before, after in (
            ("file", FILES, (2, 1), (1, 1)), ("file", FILES, (1, 1), (2, 1)), ("file", FILES, (2, 1), (2, 2)),
            ("auto", FILES, (3, 1), (2, 1)), ("hint", HINTED, (2, 1), (1, 1)), ("hint", HINTED, (1, 1), (3, 1)),
            ("range", RECORDS, (2, 1), (3, 1)), ("function", FUNCTION, (2, 1), (1, 1)), ("function", FUNCTION, (1, 1), (1, 2))):
        done = cut(3, data, policy, *before)
        check_refused([f"from {before[0]} process", f"has {after[0]} and"], data, policy, *after)
        check_begins_again(done, 0, data, policy, *after)


def test_one_process_continues_under_every_policy():
    for policy, data in ("file", FILES), ("auto", FILES), ("off", NUMBERS), ("hint", HINTED):
        done = cut(11, data, policy, 1, 2)
        codes, err, _ = go_on(data, policy, 1, 3)
        assert codes == [0], err
        steps = ledger()
        assert steps[:11] == done
        for k in range(EPOCHS):
            assert counts(steps[8 * k:8 * k + 8]) == all_rows(steps)


def test_the_same_numbers_continue_under_every_policy():
    for policy, data in (("file", FILES), ("data", FILES), ("auto", FILES), ("range", RECORDS), ("off", NUMBERS),
                         ("hint", HINTED), ("function", FUNCTION)):
        codes, err, _ = job(data, policy, 2, 1)
        assert codes == [0, 0], err
        whole = ledger()
        for step in 5, len(whole) // 2:
            done = cut(step, data, policy, 2, 1)
            assert done == whole[:step]
            codes, err, _ = go_on(data, policy, 2, 1)
            assert codes == [0, 0], err
            assert ledger() == whole, (policy, step)


CHANGES = {
    "batch": (lambda d: d.replace("batch(6)", "batch(8)"), "'8)"),
    "shuffle": (lambda d: d.replace("shuffle(20)", "shuffle(21)"), "'21"),
}


def test_another_batch_size_or_graph_is_refused():
    for data in NUMBERS, FILES:
        for numbers in (1, 1), (2, 1), (1, 2):
            done = cut(3, data, "data", 1, 1)
            for change, word in CHANGES.values():
                check_refused([word], change(data), "data", *numbers)
            check_begins_again(done, 0, CHANGES["batch"][0](data), "data", *numbers)
    done = cut(3, NUMBERS, "off", 2, 1)
    check_refused(["'8)"], CHANGES["batch"][0](NUMBERS), "off", 2, 1)
    cut(3, FILES, "file", 2, 1)
    check_refused(["'21"], CHANGES["shuffle"][0](FILES), "file", 2, 1)


class Added:
    """A file that the data match too, which was not there before."""

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        with open(self.name, "w") as f:
            f.write("zz\n" * 4)

    def __exit__(self, *_):
        os.remove(self.name)


def test_added_files():
    """With the same numbers those that come last are not read by this job; others are refused."""
    for policy, before, after in (("data", (1, 1), (1, 1)), ("data", (1, 1), (2, 1)), ("file", (2, 1), (2, 1)),
                                  ("file", (1, 1), (1, 2)), ("off", (1, 1), (1, 1))):
        done = cut(3, FILES, policy, *before)
        with Added("part-2.5"):
            check_refused(["files"], FILES, policy, *after)
        with Added("part-9"):
            if before != after:
                check_refused(["files"], FILES, policy, *after)
            else:
                codes, err, _ = go_on(FILES, policy, *after)
                assert set(codes) == {0}, err
                assert ledger()[:3] == done and counts(ledger()) == all_rows(ledger(), EPOCHS) and len(counts(ledger())) == ROWS


def test_another_policy_or_seed_is_refused():
    done = cut(3, FILES, "data", 2, 1)
    check_refused([], FILES, "file", 2, 1)
    check_refused(["DATA", "OFF"], FILES, "off", 1, 1)
    check_begins_again(done, 0, FILES, "file", 2, 1)
    for numbers in (1, 1), (2, 1):
        done = cut(3, NUMBERS, "data", 1, 1, more=SEED)
        other = ["--seed", "6", "--resume-changed"]
        check_refused(["seed 5"], NUMBERS, "data", *numbers, more=other)
        check_begins_again(done, 0, NUMBERS, "data", *numbers, more=other)


def test_a_second_epoch_begins_again():
    for policy, after in ("data", (2, 1)), ("file", (2, 1)), ("data", (1, 1)):
        done = cut(11, FILES, policy, 1, 1)
        check_begins_again(done, 1, FILES, policy, *after)


def test_between_epochs_any_numbers_continue():
    for policy, data in ("file", FILES), ("data", NUMBERS), ("function", FUNCTION), ("hint", HINTED):
        shutil.rmtree("saved", ignore_errors=True)
        shutil.rmtree("backup", ignore_errors=True)
        codes, err, _ = job(data, policy, 2, 1, ["--epochs", "2", "--callback", 'checkpoint("saved/{epoch}")'])
        assert codes == [0, 0], err
        shutil.copytree("saved/1", "backup/backup")
        whole = ledger()
        n = len(whole) // 2
        codes, err, _ = go_on(data, policy, 1, 1)
        assert codes == [0], err
        steps = ledger()
        assert steps[:n] == whole[:n]
        assert counts(steps[:n]) == all_rows(steps) and counts(steps[n:n + 8]) == all_rows(steps), policy
        assert counts(steps[n + 8:]) == all_rows(steps), policy
        if policy != "function":
            shutil.copytree("saved/1", "backup/backup")
            check_refused([], data.replace("batch(6)", "batch(4)"), policy, 1, 1)
            check_refused([], data.replace("batch(6)", "batch(4)"), policy, 2, 1)


def test_steps_per_epoch_within_a_pass():
    """The second epoch begins in the middle of what repeat() made of the data."""
    data = NUMBERS.replace(".batch", ".repeat().batch")
    more = ["--steps-per-epoch", "5", *SEED]
    codes, err, _ = job(data, "data", 1, 1, more)
    assert codes == [0], err
    whole = ledger()
    for after in (1, 1), (2, 1):
        assert cut(8, data, "data", 1, 1, more=more) == whole[:8]
        codes, err, _ = go_on(data, "data", *after, more=more)
        assert set(codes) == {0}, err
        assert ledger() == whole
        cut(8, data, "data", 1, 1, more=more)
        codes, err, _ = go_on(data, "data", *after, more=[*more, "--restart-epoch"])
        assert set(codes) == {0}, err
        assert ledger() == whole[:8] + whole[5:], after


def test_data_that_cannot_be_read_again_are_refused():
    data = NUMBERS.replace(".map(", ".map(", 1).replace("])).batch", "]), num_parallel_calls=2, deterministic=false).batch")
    done = cut(3, data, "data", 1, 1)
    check_refused(["cannot be read a second time"], data, "data", 1, 2)
    check_begins_again(done, 0, data, "data", 1, 2)


def test_a_backup_that_does_not_say_how_its_data_were_shared():
    """Of an earlier version."""
    def forget():
        with open("backup/backup/state.json") as f:
            state = json.load(f)
        state["format"] = 1
        del state["data"], state["crc32c"], state["checksums"]
        with open("backup/backup/state.json", "w") as f:
            json.dump(state, f)
    done = cut(11, NUMBERS, "data", 2, 1, more=SEED)
    forget()
    check_refused(["an earlier version wrote it"], NUMBERS, "data", 1, 1, more=SEED)
    check_begins_again(done, 1, NUMBERS, "data", 1, 1, more=SEED)
    done = cut(11, NUMBERS, "data", 2, 1, more=SEED)
    forget()
    codes, err, _ = go_on(NUMBERS, "data", 2, 1, more=SEED)
    assert codes == [0, 0], err
    steps = ledger()
    assert steps[:11] == done and len(steps) == 8 * EPOCHS
    for k in range(EPOCHS):
        assert counts(steps[8 * k:8 * k + 8]) == all_rows(steps)


def test_a_ledger_is_refused_if_it_is_not_the_jobs():
    cut(3, NUMBERS, "data", 1, 1)
    kept = open("ledger", "rb").read()
    job(NUMBERS, "data", 1, 1)  # another job, which replaces the file
    other = open("ledger", "rb").read()
    codes, err, _ = go_on(NUMBERS, "data", 1, 1)
    assert codes == [1] and "ledger is of another job" in err, err
    assert open("ledger", "rb").read() == other
    with open("ledger", "wb") as f:
        f.write(kept[:60])
    codes, err, _ = go_on(NUMBERS, "data", 2, 1)
    assert set(codes) == {1} and "continues after step 3" in err, err
    os.remove("ledger")
    codes, err, _ = go_on(NUMBERS, "data", 1, 1)
    assert codes == [1] and "continues after step 3" in err and not os.path.exists("ledger"), err
    with open("ledger", "wb") as f:
        f.write(kept)
    codes, err, _ = go_on(NUMBERS, "data", 1, 1)
    assert codes == [0], err
    assert not [x for x in os.listdir(".") if "partial" in x or x == "backup"]


def main():
    faulthandler.dump_traceback_later(1500, exit=True)
    only = sys.argv[2:]
    tests = [(k[5:], v) for k, v in sorted(globals().items()) if k.startswith("test_") and (not only or k[5:] in only)]
    failed = 0
    with tempfile.TemporaryDirectory() as d, open(os.environ.get("TAP_FILE", os.devnull), "w") as tap:
        os.chdir(d)
        for i in range(6):
            with open(f"part-{i}", "w") as f:
                f.write("".join(chr(65 + i) + chr(65 + k) + "\n" for k in range(8)))
        lines = [MILLRACE, "write", "--out", "rec", "--shards", "3", "--expr", 'text_line("part-*")']
        subprocess.run(lines, stdout=subprocess.DEVNULL, check=True)
        subprocess.run([MILLRACE, "index", *(f"rec-0000{i}-of-00003.tfrecord" for i in range(3))], stdout=subprocess.DEVNULL,
                       check=True)
        for i, (name, fn) in enumerate(tests, 1):
            try:
                fn()
                tap.write(f"ok {i} - {name}\n")
            except Exception:
                failed += 1
                tap.write(f"not ok {i} - {name}\n")
                print(f"FAILED {name}")
                traceback.print_exc(file=sys.stdout)
        tap.write(f"1..{len(tests)}\n")
        os.chdir("/")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
