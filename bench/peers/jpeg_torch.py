#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Images per second of processor time, of a folder of JPEG files as batches of tensors: decoded, resized to 224 x 224,
64 in a batch. Millrace's loader for PyTorch, and PyTorch's DataLoader over torchvision's ImageFolder with each number of
workers, of which the best counts. Rounds of each in turn; medians. Time of all threads and worker processes counts.
   jpeg_torch.py [--images N] [--rounds N] [--workers N,N,...] [--data DIR]
--data: where the files are made (default: a temporary folder). Needs torch; without torchvision Millrace alone is
measured, aloud."""
import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

BATCH, SIZE = 64, 224


def cpu():
    t = os.times()
    return t.user + t.system + t.children_user + t.children_system


def make(folder, n):
    """Photograph-like files of 500 x 375: smooth colours with noise."""
    import numpy as np

    import millrace as mr

    noise = np.random.default_rng(0)
    y, x = np.mgrid[:375, :500]
    for i in range(n):
        a, b, c = noise.uniform(0.005, 0.05, 3)
        image = np.stack([np.sin(a * x + i), np.cos(b * y), np.sin(c * (x + y))], axis=2) * 90 + 128
        image = (image + noise.normal(0, 8, image.shape)).clip(0, 255).astype(np.uint8)
        name = os.path.join(folder, str(i % 4))
        os.makedirs(name, exist_ok=True)
        (jpeg,) = mr.from_tensors(image).map(lambda x: mr.fn.encode_jpeg(x, quality=85))
        with open(os.path.join(name, f"{i:05}.jpg"), "wb") as f:
            f.write(jpeg)


def millrace(folder, workers):
    import millrace as mr
    from millrace.torch import DataLoader

    def prepare(e):
        image = mr.fn.resize(mr.fn.decode_jpeg(e["image"], channels=3), [SIZE, SIZE]) / 255.0
        return mr.fn.transpose(image, [2, 0, 1]), e["label"]

    return DataLoader(mr.image_folder(folder).map(prepare).batch(BATCH).prefetch(2))


def torchvision(folder, workers):
    import torch
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    prepare = transforms.Compose([transforms.Resize((SIZE, SIZE)), transforms.ToTensor()])
    # The time of workers counts if they are children of this process, which those of a fork server are not.
    start = "fork" if workers else None
    return torch.utils.data.DataLoader(ImageFolder(folder, prepare), batch_size=BATCH, num_workers=workers,
                                       multiprocessing_context=start)


def one(which, folder, workers):
    """Warms up with a pass, and prints what the next one took."""
    import torch

    torch.set_num_threads(1)
    loader = {"millrace": millrace, "torchvision": torchvision}[which](folder, workers)
    for _ in range(2):
        n, before, began = 0, cpu(), time.perf_counter()
        for images, labels in loader:
            n += len(images)
            assert tuple(images.shape[1:]) == (3, SIZE, SIZE) and images.dtype == torch.float32
        seconds, spent = time.perf_counter() - began, cpu() - before
    print(json.dumps({"images": n, "seconds": seconds, "cpu": spent}))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--images", type=int, default=512)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--workers", default=f"0,1,{os.cpu_count()}")
    p.add_argument("--data")
    p.add_argument("--one", nargs=3)
    o = p.parse_args()
    if o.one:
        return one(o.one[0], o.one[1], int(o.one[2]))
    if not importlib.util.find_spec("torch"):
        print("jpeg_torch.py: torch is not installed: nothing is measured")
        return None
    runs = [("millrace", 0)]
    if importlib.util.find_spec("torchvision"):
        runs += [("torchvision", int(w)) for w in dict.fromkeys(o.workers.split(","))]
    else:
        print("jpeg_torch.py: torchvision is not installed: Millrace alone is measured")
    with tempfile.TemporaryDirectory() as made:
        folder = o.data or made
        if not any(os.scandir(folder)):
            make(folder, o.images)
        results = {run: [] for run in runs}
        for _ in range(o.rounds):
            for which, workers in runs:
                words = [sys.executable, __file__, "--one", which, folder, str(workers)]
                got = subprocess.run(words, stdout=subprocess.PIPE, check=True, text=True).stdout
                results[which, workers].append(json.loads(got.splitlines()[-1]))
    rates = {}
    for (which, workers), rows in results.items():
        rates[which, workers] = statistics.median(r["images"] / r["cpu"] for r in rows)
        wall = statistics.median(r["images"] / r["seconds"] for r in rows)
        name = which if which == "millrace" else f"DataLoader, torchvision, {workers} workers"
        print(f"{name:40} {rates[which, workers]:8.0f} images per CPU second {wall:8.0f} per second")
    peers = [rate for (which, _), rate in rates.items() if which != "millrace"]
    if peers:
        print(f"millrace / best DataLoader: {rates['millrace', 0] / max(peers):.2f} (goal 1.80)")
    return None


if __name__ == "__main__":
    main()
