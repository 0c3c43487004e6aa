#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records as numpy batches, on one core: what the Python package adds to the library, and the same TFRecords with
tf.data's iterator and Grain.
   records_numpy.py [--program FILE] [--rounds N] [--data DIR]
The package is found by PYTHONPATH=build/python, or is installed. --program: millrace, which writes the records (default:
build/millrace). --data: where they are (default: a temporary folder). Times are of the processor, medians of rounds
of each in turn; peers that are not installed are left out, aloud. Goals are in brackets."""
import argparse
import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time

from peer import Peer, make_idx, serve

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
RECORDS, BATCH, SMALL = 60000, 256, 200000
GOALS = {"tf.data": 3, "Grain": 20}
PACKAGES = {"tf.data": ("tensorflow",), "Grain": ("grain", "tensorflow")}  # Grain cannot parse them


def dataset(path):
    import millrace as mr
    return (mr.tfrecord(path)
            .map(lambda r: mr.fn.parse_example(r, image=mr.bytes, label=mr.int64))
            .map(lambda e: (mr.fn.decode_raw(e["image"], "uint8"), e["label"]))
            .batch(BATCH))


def tf_data(path):
    import tensorflow as tf
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    features = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}

    def parse(records):  # of a batch: the fastest form
        e = tf.io.parse_example(records, features)
        return tf.io.decode_raw(e["image"], tf.uint8), e["label"]
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    options.threading.max_intra_op_parallelism = 1
    ds = tf.data.TFRecordDataset(path).batch(BATCH).map(parse).with_options(options)
    return lambda: ds.as_numpy_iterator()


def grain(path):
    import numpy as np
    import tensorflow as tf
    from grain.experimental import TFRecordIterDataset

    def parse(record):
        e = tf.train.Example.FromString(record).features.feature
        return np.frombuffer(e["image"].bytes_list.value[0], np.uint8), e["label"].int64_list.value[0]
    ds = TFRecordIterDataset(path).map(parse).batch(BATCH)
    return lambda: iter(ds)


def serve_peer(peer, path):
    begin = {"tf.data": tf_data, "Grain": grain}[peer](path)
    images = [b[0] for b in begin()]
    assert sum(map(len, images)) == RECORDS and images[0].shape == (BATCH, 784), images[0].shape
    serve(begin)


def make_records(program, d):
    """60,000 records of an image of 784 bytes and a label."""
    subprocess.run([program, "write", "--out", f"{d}/all", "--shards", "1", *make_idx(d, RECORDS)],
                   check=True, stdout=subprocess.DEVNULL)
    return f"{d}/all-00000-of-00001.tfrecord"


def passes(ds):
    """Seconds of the processor for a pass with arrays, and for one without."""
    began = time.process_time()
    for _ in ds.iterator(threads=0):
        pass
    return time.process_time() - began, ds.bench(threads=0).cpu_seconds


def main():
    if len(sys.argv) == 4 and sys.argv[1] == "--serve":
        serve_peer(*sys.argv[2:])
        return
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--program", default="build/millrace")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--data")
    o = p.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    import millrace as mr
    print(f"on one core; load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as made:
        path = make_records(os.path.abspath(o.program), o.data or made)
        ds, small = dataset(path), mr.range(SMALL)
        peers = {}
        for name, packages in PACKAGES.items():
            absent = [q for q in packages if not importlib.util.find_spec(q)]
            if absent:
                print(f"{', '.join(absent)} not installed in this Python: {name} is left out")
                continue
            peers[name] = Peer(name, path)
            if not peers[name].ok:
                print(f"{name} is left out: {peers.pop(name).end()}")
        passes(ds)
        with_arrays, without, nexts, rounds = [], [], [], {name: [] for name in peers}
        for _ in range(o.rounds):
            a, b = passes(ds)
            with_arrays.append(a)
            without.append(b)
            nexts.append(passes(small)[0])
            for name, peer in peers.items():
                rounds[name].append(peer.run())
        for peer in peers.values():
            peer.end()
        batches = -(-RECORDS // BATCH)
        above = statistics.median(a - b for a, b in zip(with_arrays, without)) / batches * 1e6
        mine = statistics.median(with_arrays)
        print(f"batches of {BATCH} records as numpy: {mine / batches * 1e6:.1f} us a batch, {above:.1f} us above the "
              "library (at most 8)")
        print(f"one next of a small element: {statistics.median(nexts) / SMALL * 1e6:.2f} us (at most 5)")
        for name, seconds in rounds.items():
            times = statistics.median(seconds) / mine
            print(f"{name}: {statistics.median(seconds) / batches * 1e6:.1f} us a batch, {times:.1f} times Millrace's "
                  f"(at least {GOALS[name]})")


main()
