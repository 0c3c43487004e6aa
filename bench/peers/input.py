#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Input pipelines compared with those of tf.data, Grain and PyTorch's DataLoader: the same elements in the same batches, on one
core, rounds of each in turn. Rates are examples a second of processor time, medians. Each peer's form is the fastest
that its own documentation knows on one core: vectorised after batching in tf.data, batch samplers in the DataLoader.
   input.py [--program FILE] [--rounds N] [--work NAME] [--data DIR]
--program: millrace (default: build/millrace). --data: where files are made (default: a temporary folder). The packages
are those of the Python that runs this; lines of what is not installed are left out, aloud."""
import argparse
import importlib.util
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile

from peer import Peer, make_idx, serve

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
PEERS = {"tf.data": "tensorflow", "Grain": "grain", "PyTorch": "torch"}
IMAGES, ROWS, NUMBERS, JPEGS, SHUFFLED = 60000, 20000, 200000, 200, 100000
# For each task: the number of examples in a pass, and Millrace's pipeline; {d} is the data directory.
WORK = {
    "tfrecord": (IMAGES, 'tfrecord("{d}/all-00000-of-00001.tfrecord").batch(256)'),
    "map": (50 * NUMBERS, f"range({50 * NUMBERS}).map(x => x * 2).batch(1000)"),
    "filter": (50 * NUMBERS, f"range({50 * NUMBERS}).filter(x => x % 2 == 0).batch(1000)"),
    "interleave": (IMAGES, 'list_files("{d}/part-*", shuffle=false)'
                           ".interleave(tfrecord, cycle_length=16, block_length=1).batch(256)"),
    "padded_batch": (5 * ROWS, f"range({ROWS}).map(x => ones([x * 7919 % 61 + 4])).cache().repeat(5).padded_batch(64)"),
    "parse_example": (IMAGES, 'tfrecord("{d}/all-00000-of-00001.tfrecord")'
                              ".map(r => parse_example(r, image=bytes, label=int64)).batch(256)"),
    "shuffle": (3 * SHUFFLED, f'range({SHUFFLED}).map(x => zeros([784], "uint8")).cache().repeat(3)'
                              f".shuffle({SHUFFLED}).batch(256)"),
    "jpeg": (JPEGS, 'list_files("{d}/*.jpg", shuffle=false).map(f => decode_jpeg(read_file(f))).batch(20)'),
}


def length(x):
    return x * 7919 % 61 + 4


def tf_data(work, d):
    import tensorflow as tf
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    data, record = tf.data.Dataset, f"{d}/all-00000-of-00001.tfrecord"
    features = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
    if work == "tfrecord":
        ds = tf.data.TFRecordDataset(record).batch(256)
    elif work == "map":
        ds = data.range(NUMBERS).batch(1000).map(lambda x: x * 2)
    elif work == "filter":
        ds = data.range(NUMBERS).filter(lambda x: x % 2 == 0).batch(1000)
    elif work == "interleave":
        ds = data.list_files(f"{d}/part-*", shuffle=False).interleave(
            tf.data.TFRecordDataset, cycle_length=16, block_length=1).batch(256)
    elif work == "padded_batch":
        ds = data.range(ROWS).map(lambda x: tf.ones([length(x)])).cache().repeat(5).padded_batch(64)
    elif work == "parse_example":
        ds = tf.data.TFRecordDataset(record).batch(256).map(lambda r: tf.io.parse_example(r, features))
    elif work == "shuffle":
        ds = data.from_tensor_slices(tf.zeros([SHUFFLED, 784], tf.uint8)).repeat(3).shuffle(SHUFFLED).batch(256)
    else:
        ds = data.list_files(f"{d}/*.jpg", shuffle=False).map(lambda f: tf.io.decode_jpeg(tf.io.read_file(f))).batch(20)
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    options.threading.max_intra_op_parallelism = 1
    return ds.with_options(options)


def grain(work, d):
    import glob
    import numpy as np
    from grain import MapDataset, ReadOptions
    from grain.experimental import InterleaveIterDataset, TFRecordIterDataset
    record = f"{d}/all-00000-of-00001.tfrecord"

    def alone(ds):
        """In the calling thread: separate threads make it slower on one core."""
        return ds.to_iter_dataset(ReadOptions(num_threads=0, prefetch_buffer_size=0))

    def pad(rows):
        out = np.zeros([len(rows), max(map(len, rows))], np.float32)
        for i, r in enumerate(rows):
            out[i, :len(r)] = r
        return out
    if work == "tfrecord":
        return TFRecordIterDataset(record).batch(256)
    if work == "map":
        return alone(MapDataset.range(NUMBERS).map(lambda x: x * 2).batch(1000))
    if work == "filter":
        return alone(MapDataset.range(NUMBERS).filter(lambda x: x % 2 == 0)).batch(1000)
    if work == "interleave":
        return InterleaveIterDataset([TFRecordIterDataset(f) for f in sorted(glob.glob(f"{d}/part-*"))],
                                     cycle_length=16).batch(256)
    if work == "padded_batch":
        rows = [np.ones([length(x)], np.float32) for x in range(ROWS)]
        return alone(MapDataset.source(rows).repeat(5).batch(64, batch_fn=pad))
    if work == "shuffle":
        return alone(MapDataset.source(np.zeros([SHUFFLED, 784], np.uint8)).shuffle(seed=1).repeat(3).batch(256))
    if work == "jpeg":
        from PIL import Image
        return alone(MapDataset.source(sorted(glob.glob(f"{d}/*.jpg"))).map(lambda f: np.asarray(Image.open(f))).batch(20))
    raise NotImplementedError


def pytorch(work, d):
    import glob
    import torch
    from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, SequentialSampler
    torch.set_num_threads(1)

    class Rows:
        """A map-style dataset of n rows that makes a batch of a list of indices."""

        def __init__(self, n, batch):
            self.n, self.batch = n, batch

        def __len__(self):
            return self.n

        def __getitem__(self, indices):
            return self.batch(indices)

    def load(rows, size, random=False):
        order = RandomSampler(rows) if random else SequentialSampler(rows)
        return DataLoader(rows, sampler=BatchSampler(order, size, drop_last=False), batch_size=None)
    if work == "map":
        return load(Rows(NUMBERS, lambda i: torch.tensor(i) * 2), 1000)
    if work == "filter":
        class Even(IterableDataset):
            def __iter__(self):
                return (x for x in range(NUMBERS) if x % 2 == 0)
        return DataLoader(Even(), batch_size=1000)
    if work == "padded_batch":
        rows = [torch.ones(length(x)) for x in range(ROWS)]
        return load(Rows(5 * ROWS, lambda i: torch.nn.utils.rnn.pad_sequence([rows[k % ROWS] for k in i], True)), 64)
    if work == "shuffle":
        values = torch.zeros(SHUFFLED, 784, dtype=torch.uint8)
        return load(Rows(3 * SHUFFLED, lambda i: values[torch.tensor(i) % SHUFFLED]), 256, True)
    if work == "jpeg":
        from torchvision.io import decode_jpeg, read_file
        files = sorted(glob.glob(f"{d}/*.jpg"))
        return load(Rows(JPEGS, lambda i: torch.stack([decode_jpeg(read_file(files[k])) for k in i])), 20)
    raise NotImplementedError  # it reads no TFRecords


def serve_peer(peer, work, d):
    ds = {"tf.data": tf_data, "Grain": grain, "PyTorch": pytorch}[peer](work, d)
    for _ in ds:
        pass
    serve(lambda: ds)


def make_files(program, d):
    """60,000 records of an image of 784 bytes and a label, in one file and in 16; JPEG images."""
    idx = make_idx(d, IMAGES)
    for name, shards in (("all", 1), ("part", 16)):
        subprocess.run([program, "write", "--out", f"{d}/{name}", "--shards", str(shards), *idx],
                       check=True, stdout=subprocess.DEVNULL)
    # Blurred noise plus some sharp noise: about the bits per pixel of photographs.
    smooth = 'resize(random_uniform([24, 32, 3], high=230.0), [375, 500]) + random_uniform([375, 500, 3], high=12.0, seed=1)'
    subprocess.run([program, "write", "--out", f"{d}/jpeg", "--seed", "1", "--expr",
                    f'range({JPEGS}).map(i => encode_jpeg(cast({smooth}, "uint8"), quality=88))'], check=True,
                   stdout=subprocess.DEVNULL)
    with open(f"{d}/jpeg-00000-of-00001.tfrecord", "rb") as f:
        for i in range(JPEGS):
            size, _ = struct.unpack("<QI", f.read(12))
            with open(f"{d}/{i:04}.jpg", "wb") as out:
                out.write(f.read(size))
            f.read(4)


def millrace(program, work, d):
    p = subprocess.run([program, "bench", "--json", "--threads", "0", WORK[work][1].replace("{d}", d)],
                       stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(p.stdout)["cpu_seconds"]


def compare(work, o, d):
    of_mine, mine, peers, rounds = WORK[work][0], [], {}, {}
    examples = NUMBERS if work in ("map", "filter") else of_mine  # slower by far, they are given fewer
    for name, package in PEERS.items():
        if importlib.util.find_spec(package):
            peers[name] = Peer(name, work, d)
            if not peers[name].ok:
                why = peers.pop(name).end()
                print(f"{work:<14} {name}: " + ("has no such source" if "NotImplemented" in why else why))
    for _ in range(o.rounds):
        mine.append(millrace(o.program, work, d))
        for name, p in peers.items():
            rounds.setdefault(name, []).append(p.run())
    for p in peers.values():
        p.end()
    rate = of_mine / statistics.median(mine) / 1e3
    theirs = {name: examples / statistics.median(r) / 1e3 for name, r in rounds.items()}
    print(f"{work:<14} {rate:10.1f} thousand/s   "
          + ", ".join(f"{name} {r:.1f} ({rate / r:.1f})" for name, r in theirs.items()), flush=True)


def main():
    if len(sys.argv) == 5 and sys.argv[1] == "--serve":
        serve_peer(*sys.argv[2:])
        return
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--program", default="build/millrace")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--work", choices=WORK)
    p.add_argument("--data")
    o = p.parse_args()
    o.program = os.path.abspath(o.program)
    for name, package in PEERS.items():
        if not importlib.util.find_spec(package):
            print(f"{package} is not installed in this Python: {name} is left out")
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    print(f"on one core; load {os.getloadavg()[0]:.1f}; in brackets Millrace's rate over the peer's")
    with tempfile.TemporaryDirectory() as made:
        d = o.data or made
        make_files(o.program, d)
        for work in [o.work] if o.work else WORK:
            compare(work, o, d)


main()
