#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
"""Training that is killed at any step continues as if it had not been. resume.py MILLRACE

Each case trains once without a stop; then, for every step (a sample of them without MR_TEST_TIER=long), a
run is killed when it has printed that step, started again, and every line that it prints then must be
the line of the whole run. TAP goes to $TAP_FILE."""
import faulthandler
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import traceback

sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..")))
from ports import ports  # noqa: E402

# Under AddressSanitizer stdbuf comes before it.
os.environ["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
MILLRACE = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.environ["MR_BUILD"], "millrace"))
LINES = ["stdbuf", "-oL"]  # a step is seen when it is printed
LONG = os.environ.get("MR_TEST_TIER") == "long"
RNG = random.Random(int(os.environ.get("MR_TEST_SEED") or "1"))
PAIR = '([cast(i, "float32") / 8.0, {}], [cast(i, "float32")])'
SHUFFLED = "range(12).shuffle(12).map(i => " + PAIR.format("1.0") + ").batch(2).prefetch(2)"
RANDOM = "zip(range(12).shuffle(12), random().take(12)).map((i, r) => " + PAIR.format(
    'cast(r % 100, "float32") / 100.0') + ").batch(2)"
ENDLESS = "range(9).shuffle(9).repeat().map(i => " + PAIR.format("1.0") + ").batch(2).prefetch(1)"
FILES = 'text_line("letters-*").map(s => cast(decode_raw(s, "uint8"), "float32") / 64.0).map(x => (x, [1.0])).shuffle(5).batch(3)'
TRAIN = ["train", "--model", "dense(3).dropout(0.2).dense(1)", "--loss", "mse", "--optimizer", "adam(0.01)",
         "--metrics", "mse", "--log", "json", "--seed", "3", "--epochs", "3"]


def backup(freq):
    return ["--callback", f'backup_and_restore("backup", save_freq={freq})']


def key(line):
    if "learning_rate" in line and "loss" not in line:  # of print_learning_rate
        return "rate", line["epoch"]
    return ("step", line["step"]) if "step" in line else ("epoch", line["epoch"])


def lines_of(text):
    return [json.loads(line) for line in text.splitlines()]


def start(args, workers):
    """One process, or one a worker; their outputs are pipes."""
    if workers == 1:
        return [subprocess.Popen([*LINES, MILLRACE, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)]
    addresses = [f"127.0.0.1:{p}" for p in ports(workers)]
    config = {"cluster": {"worker": addresses}}
    return [subprocess.Popen([*LINES, MILLRACE, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             env={**os.environ, "TF_CONFIG": json.dumps(
                                 {**config, "task": {"type": "worker", "index": i}})}) for i in range(workers)]


def finish(processes):
    ended = [p.communicate(timeout=1200) for p in processes]
    return [lines_of(out) for out, _ in ended], [p.returncode for p in processes], "".join(e for _, e in ended)


def run(args, workers=1):
    return finish(start(args, workers))


def stop_at(args, step, sig, workers=1):
    """Sends the signal when the first process has printed the step; the ends, and what the first has printed."""
    processes = start(args, workers)
    printed = []
    for line in processes[0].stdout:
        printed.append(key(json.loads(line)))
        if json.loads(line).get("step") == step:
            break
    if sig == signal.SIGKILL:
        for p in processes:
            p.send_signal(sig)
    else:
        processes[-1].send_signal(sig)
    ended = []
    for i, p in enumerate(processes):
        rest = p.stdout.read().rpartition("\n")[0]
        if i == 0:
            printed += map(key, lines_of(rest))
        p.stderr.read()
        ended.append(p.wait(timeout=1200))
        p.stdout.close()
        p.stderr.close()
    return ended, printed


def leave_backup(args, step):
    """The backup of a run that was killed at the step; one that had ended before the signal came leaves none."""
    while True:
        remove_backup()
        stop_at(args, step, signal.SIGKILL)
        if os.path.exists("backup/backup/state.json"):
            return


def remove_backup():
    subprocess.run(["rm", "-rf", "backup"], check=True)


def saved_weights(args):
    if "--save" not in args:
        return None
    with open(args[args.index("--save") + 1] + "/weights.safetensors", "rb") as f:
        return f.read()


def check_case(args, freq, workers=1, sig=signal.SIGKILL, sample=3):
    """With --save the weights at the end are compared too."""
    remove_backup()
    outs, codes, err = run(args, workers)
    assert codes == [0] * workers, err
    whole = {key(line): line for line in outs[0]}
    last = max(k[1] for k in whole if k[0] == "step")
    epochs = max(k[1] for k in whole if k[0] == "epoch")
    weights = saved_weights(args)
    steps = range(1, last + 1)
    if not LONG:
        steps = sorted(RNG.sample(steps, sample))
    for step in steps:
        remove_backup()
        ended, printed = stop_at(args + backup(freq), step, sig, workers)
        if 0 in ended or ("epoch", epochs) in printed:
            continue  # it had ended, or nearly so, before the signal came
        if sig == signal.SIGTERM:
            assert ended == [143] * workers, ended
            assert os.path.exists("backup/backup/state.json")
        outs, codes, err = run(args + backup(freq), workers)
        assert codes == [0] * workers, err
        if sig == signal.SIGTERM:  # every line once, of one run or the other
            assert printed + list(map(key, outs[0])) == list(whole), (step, printed, outs[0])
        for out in outs:
            assert out, f"killed at {step}: no line"
            for line in out:
                assert line == whole[key(line)], f"killed at {step}: {line} instead of {whole[key(line)]}"
            assert ("epoch", epochs) in map(key, out), out[-1]
        assert saved_weights(args) == weights, f"killed at {step}: other weights"
        # After the last step the backup is removed: nothing may be left of it, or a part.
        if freq != '"epoch"' and sig == signal.SIGKILL and step < last:
            first = min(k[1] for k in map(key, outs[0]) if k[0] == "step") if any(
                key(x)[0] == "step" for x in outs[0]) else last + 1
            assert first > step - 2 * int(freq), f"killed at {step}, went on at {first}"
        assert not os.path.exists("backup"), os.listdir("backup")


def test_shuffled_data():
    check_case(TRAIN + ["--data", SHUFFLED], 1, sample=6)


def test_every_fourth_step():
    check_case(TRAIN + ["--data", SHUFFLED], 4)


def test_at_the_end_of_epochs():
    check_case(TRAIN + ["--data", SHUFFLED], '"epoch"')


def test_several_replicas():
    check_case(TRAIN + ["--data", SHUFFLED, "--replicas", "3"], 1)


def test_random_data():
    check_case(TRAIN + ["--data", RANDOM], 2)


def test_a_schedule_of_the_learning_rate():
    args = [a.replace("adam(0.01)", "sgd(exponential_decay(0.02, decay_steps=5, decay_rate=0.5), momentum=0.9)")
            for a in TRAIN]
    check_case(args + ["--data", SHUFFLED], 2)


def test_a_callback_that_sets_the_learning_rate():
    check_case(TRAIN + ["--data", SHUFFLED, "--callback", "learning_rate_schedule([[0, 0.02], [2, 0.01]])"], 2)


def test_convolutions_and_moving_means():
    args = [a.replace("dense(3).dropout(0.2).dense(1)",
                      "reshape(2, 1, 1).conv2d(3, 1).batch_norm().flatten().dropout(0.3).dense(1)") for a in TRAIN]
    check_case(args + ["--data", SHUFFLED], 2)


def test_steps_per_epoch_of_endless_data():
    check_case(TRAIN + ["--data", ENDLESS, "--steps-per-epoch", "4"], 3)


def test_files():
    for i in range(3):
        with open(f"letters-{i}", "w") as f:
            f.write("".join(chr(65 + i) + chr(65 + k) + "\n" for k in range(7)))
    check_case(TRAIN + ["--data", FILES], 2)


def test_validation():
    check_case(TRAIN + ["--data", SHUFFLED, "--validation", SHUFFLED.replace(".shuffle(12)", "")], 2)


STOPS = 'early_stopping(monitor="loss", mode="max", patience=4, restore_best_weights=true)'
LOWERS = 'reduce_lr_on_plateau(monitor="loss", mode="max", factor=0.5, patience=2)'


def test_callbacks_remember_wherever_they_stand():
    """The loss falls, so the first epoch is the best: the rate is lowered after two more, training ends after four."""
    args = TRAIN + ["--data", SHUFFLED, "--epochs", "9", "--save", "model", "--callback", STOPS, LOWERS]
    check_case(args, 2)
    check_case(args, '"epoch"', sample=4)
    i = args.index(STOPS)
    for freq in (3, '"epoch"'):  # the backup comes before them
        remove_backup()
        outs, codes, err = run(args)
        assert codes == [0], err
        whole, weights = {key(line): line for line in outs[0]}, saved_weights(args)
        assert ("rate", 3) in whole and ("epoch", 5) in whole and ("epoch", 6) not in whole
        first = args[:i] + backup(freq)[1:] + args[i:]
        leave_backup(first, 19)
        outs, codes, err = run(first)
        assert codes == [0], err
        for line in outs[0]:
            assert line == whole[key(line)], (line, whole[key(line)])
        assert ("epoch", 5) in map(key, outs[0]) and saved_weights(args) == weights


FILES_OF = ["--callback", 'csv_logger("log.csv")', 'tensorboard("logs", update_freq=2)', 'checkpoint("ck/c_{epoch}", keep=2)',
            'checkpoint("best/c_{epoch}", save_best_only=true, monitor="loss", keep=1)',
            'checkpoint("steps/s_{step}", save_freq=2, keep=2)']


def files_in(directory):
    """What each file holds, hidden ones too; of event files, which have times, only the size. state.json has their
    names, and positions of prefetched data depend on how far was read."""
    found = {}
    for path, _, names in os.walk(directory):
        for name in names:
            with open(os.path.join(path, name), "rb") as f:
                data = f.read()
            event = name.startswith("events.")
            key = os.path.relpath(os.path.join(path, "events" if event else name), directory)
            assert key not in found, f"two files of events in {path}"
            if not name.endswith(".run"):  # it has a random name of the run
                found[key] = len(data) if event else b"" if name == "state.json" or name.startswith("position-") else data
    return found


def check_files(args, workers, chains):
    home = os.getcwd()
    with tempfile.TemporaryDirectory() as d:
        for i in range(chains + 1):
            os.mkdir(os.path.join(d, str(i)))
            os.chdir(os.path.join(d, str(i)))
            more, told = backup(RNG.choice([1, 3, '"epoch"', 100])), []
            for step in RNG.sample(range(1, 17), 3 if i else 0):  # of 18
                ended, _ = stop_at(args + more, step, RNG.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]), workers)
                told.append((step, ended))
                if 0 in ended:
                    break
            else:
                _, codes, err = run(args + more, workers)
                assert codes == [0] * workers, (told, err)
            if i == 0:
                whole = files_in(".")
            else:
                got = files_in(".")
                other = [k for k in whole.keys() | got.keys() if whole.get(k) != got.get(k)]
                assert not other, f"{more[1]}, stopped at {told}: {other}"
            os.chdir(home)


def test_chains_of_kills_leave_the_files_of_a_whole_run():
    check_files(TRAIN + ["--data", SHUFFLED] + FILES_OF, 1, 40 if LONG else 2)
    if LONG:
        two = ["--data", SHUFFLED.replace("batch(2)", "batch(4)"), "--epochs", "6", "--auto-shard", "data"]
        check_files(TRAIN + two + FILES_OF, 2, 20)


def test_two_workers():
    check_case(TRAIN + ["--data", SHUFFLED.replace("batch(2)", "batch(4)"), "--auto-shard", "data"], 2, workers=2,
               sample=2)


def daemon(*words):
    p = subprocess.Popen([MILLRACE, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return p, p.stdout.readline().split()[-1]


def test_a_named_job_of_a_data_service():
    """Killed within the second epoch or the third, whose job of the service was then read in part."""
    dispatcher, at = daemon("dispatcher", "--listen", "127.0.0.1:0")
    worker, _ = daemon("worker", "--dispatcher", at, "--listen", "127.0.0.1:0")
    try:
        def args(job):
            return TRAIN + ["--data", SHUFFLED.replace(".prefetch(2)", f'.distribute("{at}", job_name="{job}").prefetch(2)')]
        outs, codes, err = run(args("whole"))
        assert codes == [0], err
        whole = {key(line): line for line in outs[0]}
        epoch = max(k[1] for k in whole if k[0] == "step") // 3
        for freq, first in (('"epoch"', epoch + 1), (1, epoch + 1), (epoch + 3, epoch + 4)):  # something was saved before
            for step in RNG.sample(range(first, 3 * epoch), 2):
                remove_backup()
                job = args(f"from-{first}-every-{str(freq).strip(chr(34))}-to-{step}") + backup(freq)
                ended, printed = stop_at(job, step, signal.SIGKILL)
                if 0 in ended or ("epoch", 3) in printed:
                    continue
                outs, codes, err = run(job)
                assert codes == [0] and outs[0], (freq, step, err)
                for line in outs[0]:
                    assert line == whole[key(line)], (freq, step, line, whole[key(line)])
                assert ("epoch", 3) in map(key, outs[0]), (freq, step)
    finally:
        for p in (worker, dispatcher):
            p.terminate()
            p.wait()
            p.stdout.close()


def test_streams_of_this_process():
    """In any epoch, with ops above that note the place of their input when they are opened."""
    streams = SHUFFLED.replace(".shuffle(12)", '.shuffle(12).distribute("local", streams=2).shuffle(5)')
    check_case(TRAIN + ["--data", streams], 1, sample=6)
    check_case(TRAIN + ["--data", streams.replace(".prefetch(2)", ""), "--replicas", "3"], '"epoch"', sample=4)


def test_termination_saves_and_ends_with_143():
    check_case(TRAIN + ["--data", SHUFFLED, "--epochs", "3"], '"epoch"', sig=signal.SIGTERM)


def test_termination_of_one_worker_ends_both():
    check_case(TRAIN + ["--data", SHUFFLED.replace("batch(2)", "batch(4)"), "--auto-shard", "data"], '"epoch"',
               workers=2, sig=signal.SIGTERM, sample=2)


def test_workers_compare_their_callbacks():
    addresses = [f"127.0.0.1:{p}" for p in ports(2)]
    both = [subprocess.Popen([MILLRACE, *TRAIN, "--data", SHUFFLED, "--auto-shard", "data", *(backup(1) if i else [])],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             env={**os.environ, "TF_CONFIG": json.dumps(
                                 {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": i}})})
            for i in range(2)]
    outs, codes, err = finish(both)
    assert codes == [1, 1] and "callbacks" in err, (codes, err)


def test_another_number_of_replicas():
    """The same global batches, whose losses agree to float32 rounding."""
    data = SHUFFLED.replace(".shuffle(12)", "")
    remove_backup()
    outs, codes, err = run(TRAIN + ["--data", data])
    whole = {key(line): line for line in outs[0]}
    leave_backup(TRAIN + ["--data", data] + backup(1), 8)
    outs, codes, err = run(TRAIN + ["--data", data, "--replicas", "2"] + backup(1))
    assert codes == [0], err
    assert "read again" in err, err
    for line in outs[0]:
        want = whole[key(line)]
        assert abs(line["loss"] - want["loss"]) < 1e-4 * want["loss"], (line, want)


def test_another_model_is_refused_and_nothing_is_touched():
    leave_backup(TRAIN + ["--data", SHUFFLED] + backup(1), 5)
    for change, word in ((("dense(3).dropout(0.2).dense(1)", "dense(4).dense(1)"), "dense/units is 4, was 3"),
                         (("adam(0.01)", "sgd(0.01)"), "optimizer is sgd, was adam")):
        args = [a.replace(*change) for a in TRAIN]
        outs, codes, err = run(args + ["--data", SHUFFLED] + backup(1))
        assert codes == [1] and word in err and outs == [[]], (codes, err)
    outs, codes, err = run(TRAIN + ["--data", SHUFFLED] + backup(1))
    assert codes == [0], err


def test_changed_settings_are_taken_if_asked_for():
    args = ["--data", SHUFFLED, "--resume-changed"] + backup(1)
    leave_backup(TRAIN + ["--data", SHUFFLED] + backup(1), 5)
    outs, codes, err = run([a.replace("adam(0.01)", "adam(0.02)").replace("0.2", "0.3") for a in TRAIN] + args)
    assert codes == [0], err
    assert "dropout/rate is 0.3, was 0.2" in err and "optimizer/learning_rate is 0.02, was 0.01" in err, err


def test_a_second_run_in_the_directory_is_refused():
    remove_backup()
    args = TRAIN + ["--data", SHUFFLED, "--epochs", "1000000"] + backup(100)
    first = start(args, 1)[0]
    try:
        first.stdout.readline()
        outs, codes, err = run(args)
        assert codes == [1] and outs == [[]] and "another run" in err and "backup" in err, (codes, err)
        assert first.poll() is None
    finally:
        first.kill()
        first.communicate()
    assert os.path.exists("backup/lock")  # which locks nothing any more
    outs, codes, err = run(args[:-4] + ["--epochs", "1"] + backup(100))
    assert codes == [0] and not os.path.exists("backup"), (codes, err)


def main():
    faulthandler.dump_traceback_later(30000 if LONG else 1500, exit=True)  # less than tests/run.sh gives it
    tests = [(k[5:], v) for k, v in sorted(globals().items()) if k.startswith("test_")]
    failed = 0
    with tempfile.TemporaryDirectory() as d, open(os.environ.get("TAP_FILE", os.devnull), "w") as tap:
        os.chdir(d)
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
