#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small network of PyTorch on a folder of JPEG files, with one folder for each class, saves
the model and the position in the data every few steps, and continues there when it is started again.

    pip install './python[torch]'
    torch_images.py [--folder DIR] [--checkpoint FILE] [--epochs N] [--stop-after STEPS]

Without --folder it makes one, of circles and squares. Under torchrun each process reads its share:

    torchrun --nproc-per-node 2 torch_images.py
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

import millrace as mr
from millrace.torch import DataLoader

SIZE, BATCH = 32, 16


def make_images(folder: Path, images: int = 64) -> None:
    """Gray circles and squares on noise."""
    noise = np.random.default_rng(0)
    y, x = np.mgrid[:48, :48] - 24
    shapes = {"circle": x * x + y * y < 200, "square": np.maximum(abs(x), abs(y)) < 13}
    encode = mr.from_tensor_slices(
        np.stack(
            [
                np.repeat((noise.integers(0, 90, (48, 48, 1)) + 150 * shape[..., None]).astype(np.uint8), 3, axis=2)
                for _ in range(images // 2)
                for shape in shapes.values()
            ]
        )
    ).map(mr.fn.encode_jpeg)
    for i, jpeg in enumerate(encode):
        name = list(shapes)[i % 2]
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / f"{i:03}.jpg").write_bytes(jpeg)


def pipeline(folder: Path) -> mr.Dataset:
    """Batches of (images of [BATCH, 3, SIZE, SIZE], labels)."""

    def prepare(e: Any) -> Any:
        image = mr.fn.resize(mr.fn.decode_image(e["image"], channels=3), [SIZE, SIZE]) / 255.0
        return mr.fn.transpose(image, [2, 0, 1]), e["label"]

    return (
        mr.image_folder(folder)
        .shuffle(1000, seed=1)
        .map(prepare, num_parallel_calls=mr.AUTO)
        .batch(BATCH, drop_remainder=True)
        .prefetch(2)
    )


def network() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 5, stride=2),
        torch.nn.ReLU(),
        torch.nn.Conv2d(8, 16, 5, stride=2),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.LazyLinear(2),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains on a folder of JPEG files.")
    parser.add_argument("--folder", type=Path, help="has a folder with JPEG files for each class")
    parser.add_argument("--checkpoint", type=Path, default=Path("torch_images.pt"))
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--stop-after", type=int, help="stop after that many steps, as if interrupted")
    options = parser.parse_args()
    if options.folder is None:
        options.folder = Path(tempfile.gettempdir()) / f"millrace-shapes-{os.getuid()}"
        if not options.folder.exists():
            with tempfile.TemporaryDirectory(dir=options.folder.parent) as made:
                make_images(Path(made) / "shapes")
                (Path(made) / "shapes").rename(options.folder)

    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        torch.distributed.init_process_group("gloo" if device == "cpu" else "nccl")
    loader = DataLoader(pipeline(options.folder), device=device)
    net = network().to(device)
    net(torch.zeros(1, 3, SIZE, SIZE, device=device))  # makes the lazy layer
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    first, step = 0, 0
    if options.checkpoint.exists():
        saved = torch.load(options.checkpoint)
        net.load_state_dict(saved["net"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
        first, step = saved["epoch"], saved["step"]
        print(f"continues after step {step}")
    model: Any = torch.nn.parallel.DistributedDataParallel(net) if ranks > 1 else net

    for epoch in range(first, options.epochs):
        loader.set_epoch(epoch)
        for images, labels in loader:
            loss: Any = torch.nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if loader.rank == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.6f}", flush=True)
                state: dict[str, Any] = {"net": net.state_dict(), "optimizer": optimizer.state_dict()}
                state |= {"loader": loader.state_dict(), "epoch": epoch, "step": step}
                part = options.checkpoint.with_suffix(".part")
                torch.save(state, part)
                part.replace(options.checkpoint)  # there is always a whole one
            if step == options.stop_after:
                return
    if ranks > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
