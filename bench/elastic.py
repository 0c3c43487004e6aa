#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Elastic streams and random access: each figure with what it is compared to, measured in turn in the same run.

elastic.py [--build DIR] [--runs N]. Everything is read from the page cache. All are processor times, which other work
on the machine hardly changes."""
import argparse
import base64
import json
import os
import pickle
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time

arguments = argparse.ArgumentParser()
arguments.add_argument("--build", default="build")
arguments.add_argument("--runs", type=int, default=5)
options = arguments.parse_args()
build = os.path.abspath(options.build)
sys.path.insert(0, os.path.join(build, "python"))
import millrace as mr  # noqa: E402

millrace = os.path.join(build, "millrace")
CLASSES, IMAGES, RECORDS, STREAMS = 8, 250, 1000000, 64


def processor(*command):
    """Seconds of processor time of a process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([millrace, *command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def in_turn(a, b):
    """The medians of two measurements."""
    pairs = [(a(), b()) for _ in range(options.runs)]
    return statistics.median(x for x, _ in pairs), statistics.median(y for _, y in pairs)


def timed(fn):
    """Seconds of processor time of this process."""
    began = time.process_time()
    fn()
    return time.process_time() - began


def line(what, figure, compared, ratio, goal):
    print(f"{what:62} {figure:>12}   {compared:44} {ratio:>16}" + (f"   goal {goal}" if goal else ""), flush=True)


def make_records(folder):
    records = f"range({RECORDS}).map(x => format('record {{}} of many, each as long as the sentence of a hundred bytes or so of which it is made here', x))"
    run = {"check": True, "cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([millrace, "write", "--out", "r", "--shards", "8", "--expr", records], **run)
    subprocess.run([millrace, "index", "r-*"], **run)


def make_images(folder):
    """JPEGs of 256 x 256, of noise with large patches."""
    noise = "range(1).map(i => encode_jpeg(cast(resize(random_uniform(shape=[32, 32, 3], seed=1), [256, 256]) * 255, 'uint8')))"
    shown = subprocess.run([millrace, "show", noise], stdout=subprocess.PIPE, check=True, text=True).stdout
    image = base64.b64decode(json.loads(shown)["b64"])
    for c in range(CLASSES):
        os.makedirs(os.path.join(folder, "images", f"class-{c}"))
        for i in range(IMAGES):
            with open(os.path.join(folder, "images", f"class-{c}", f"{i}.jpg"), "wb") as f:
                f.write(image)


def streams_of_records(folder):
    graph = f"tfrecord('{folder}/r-*').shuffle(1000).batch(256)"
    common = ["show", "--replicas", "1", "--workers", "1", "--seed", "1"]
    ours, plain = in_turn(lambda: processor(*common, "--elastic", str(STREAMS), graph), lambda: processor(*common, graph))
    line("show --elastic 64 of TFRecord.shuffle.batch", f"{ours:.2f} s", f"without --elastic: {plain:.2f} s", f"{plain / ours:.2f} of its speed", "0.9")


def positions(folder):
    ds = mr.tfrecord(f"{folder}/r-*").shuffle(1000).batch(256)

    def opened():
        return iter(mr.distribute_dataset(ds, cluster={}, elastic=STREAMS))

    def begin(state):
        it = opened()
        if state:
            it.load_state_dict(state)
        next(it)

    it = opened()
    for _ in range(RECORDS // 256 // 2):
        next(it)
    state = it.state_dict()
    size = len(pickle.dumps(state))
    saved = statistics.median(timed(it.state_dict) for _ in range(20 * options.runs))
    copied = bytearray(size)
    compared = statistics.median(timed(lambda: bytes(copied)) for _ in range(20 * options.runs))
    line(f"position of {STREAMS} streams, size", f"{size / 1024:.1f} KiB", "", "", "32 KiB")
    line("  saved in", f"{saved * 1e3:.2f} ms", f"a copy of as many bytes: {compared * 1e3:.4f} ms", "", "5 ms")
    restored, fresh = in_turn(lambda: timed(lambda: begin(state)), lambda: timed(lambda: begin(None)))
    line("  restored, and a step made, in", f"{restored * 1e3:.0f} ms", f"a first step: {fresh * 1e3:.0f} ms", "", "500 ms")


def workers_of_images(folder):
    graph = f"image_folder('{folder}/images').map(x => (mean(cast(decode_jpeg(x['image'], channels=3), 'float32')), x['label'])).batch(20)"
    job = ["show", "--replicas", "1", "--threads", "1"]
    four, alone = in_turn(lambda: processor(*job, "--workers", "4", "--worker", "1", graph), lambda: processor(*job, "--workers", "1", graph))
    line("one of 4 workers of image_folder", f"{four:.2f} s", f"one worker alone: {alone:.2f} s", f"{four / alone:.3f} of it", "0.27")


def trainers_of_images(folder):
    """Elastic: the processes agree on which streams have ended, so that each runs its own ones only. What a process
    takes to start and make one step is not counted. Four agree in each step, whatever their work is: no less than a
    quarter of the work and the steps of a job without any is left for one of them."""
    one = f"image_folder('{folder}/images').map(x => ([mean(cast(decode_jpeg(x['image'], channels=3), 'float32'))], [1.0]))"
    mixture = f"mix({{'a': {one}, 'b': {one}}}, weights={{'a': 0.7, 'b': 0.3}}, stop='all')"
    none, times = "range(ROWS).map(x => ([1.0], [1.0]))", 20

    def steps(rows):
        """Of a process of four, and of one alone."""
        train = ["train", "--elastic", "8", "--seed", "1", "--model", "input(1).dense(1)", "--loss", "mse", "--optimizer", "sgd(0.0)",
                 "--threads", "1", "--data", rows + ".batch(20)"]
        starts = in_turn(lambda: processor(*train, "--processes", "4", "--steps", "1") / 4, lambda: processor(*train, "--steps", "1"))
        four, alone = in_turn(lambda: processor(*train, "--processes", "4") / 4, lambda: processor(*train))
        return four - starts[0], alone - starts[1]

    for what, rows, n in ((" of image_folder", one, CLASSES * IMAGES), (" of a mixture of two", mixture, 2 * CLASSES * IMAGES)):
        four, alone = steps(rows)
        agreeing = steps(none.replace("ROWS", str(times * n)))[0] / times
        line(f"one of 4 processes of train --elastic 8,{what}", f"{four:.2f} s", f"one alone: {alone:.2f} s", f"{four / alone:.3f} of it", "0.27")
        line("  least: a quarter, and the steps of a job without work", f"{agreeing:.3f} s", "", f"{0.25 + agreeing / alone:.3f} of it", "")


def lookups(folder):
    path = sorted(f for f in os.listdir(folder) if f.endswith(".tfrecord"))
    ds = mr.tfrecord(f"{folder}/r-*")
    d = random.Random(1)
    numbers = [d.randrange(RECORDS) for _ in range(20000)]
    file = os.open(os.path.join(folder, path[0]), os.O_RDONLY)
    size = os.fstat(file).st_size
    places = [d.randrange(size - 64) for _ in numbers]

    def look_up():
        for i in numbers:
            ds[i]

    def read():
        for at in places:
            os.pread(file, 32, at)

    ds[0]
    ours, ceiling = in_turn(lambda: timed(look_up), lambda: timed(read))
    os.close(file)
    line("ds[i] of an indexed TFRecord, in Python", f"{ours / len(numbers) * 1e6:.2f} us", f"os.pread: {ceiling / len(numbers) * 1e6:.2f} us",
         f"{ours / ceiling:.1f} times it", "5 us")


with tempfile.TemporaryDirectory(prefix="millrace-bench-") as where:
    make_records(where)
    streams_of_records(where)
    positions(where)
    lookups(where)
    make_images(where)
    workers_of_images(where)
    trainers_of_images(where)
