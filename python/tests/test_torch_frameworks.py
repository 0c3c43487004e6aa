# SPDX-License-Identifier: Apache-2.0
# tier: plain=long
"""millrace.torch.DataLoader in Lightning, Accelerate and the Trainer of Transformers: each trains a
small model in one process and in two, and resumes with the losses of the run without a break.

Each job is a run of this file, as torchrun starts it: its rank and the others are in the environment."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import unittest
from typing import Any

import kit
import millrace as mr

try:
    import torch

    from millrace.torch import DataLoader
except ImportError as e:
    print(e)
    sys.exit(77)

EPOCHS = 2
SETS = ("elements", "unknown", "files")  # the kind of dataset


def dataset(kind: str, folder: str) -> mr.Dataset:
    """Batches of two, in an order that is new in each epoch: 11 in an epoch, of files 12 or so."""

    def features(x: Any) -> Any:
        return {"x": mr.fn.ones([4]) * mr.fn.cast(x, "float32") / 22, "labels": mr.fn.cast(x, "float32") / 7}

    if kind == "files":
        lines = mr.text_line(os.path.join(folder, "*.txt"))
        ds = lines.shuffle(6, seed=2).map(lambda s: mr.fn.to_number(s, "int64"))
    else:
        ds = mr.range(44 if os.environ.get("WORLD_SIZE") == "2" else 22).shuffle(22, seed=1)
    if kind == "unknown":
        ds = ds.filter(lambda x: x >= 0)
    return ds.map(features).batch(2, drop_remainder=True)


class Net(torch.nn.Module):  # type: ignore[misc,unused-ignore]
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.losses: list[float] = []

    def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
        loss = ((self.layer(x)[:, 0] - labels) ** 2).mean()
        self.losses.append(loss.item())
        return {"loss": loss}


# ---- what each framework does: all losses, checkpoints on the way


def lightning(make: Any, folder: str, resume: int | None) -> list[float]:
    import lightning as L

    class Module(L.LightningModule):  # type: ignore[misc,unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def training_step(self, batch: Any, index: int) -> Any:
            return self.net(**batch)["loss"]

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.01)

    callbacks: list[Any] = []
    if resume is None:
        saved = L.pytorch.callbacks.ModelCheckpoint(folder, save_top_k=-1, every_n_train_steps=1, filename="{step}")
        callbacks.append(saved)
    world = int(os.environ["WORLD_SIZE"])
    trainer = L.Trainer(
        accelerator="cpu",
        devices=world,
        strategy="ddp" if world > 1 else "auto",
        max_epochs=EPOCHS,
        callbacks=callbacks,
        enable_checkpointing=resume is None,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module = Module()
    checkpoint = None if resume is None else os.path.join(folder, f"step={resume}.ckpt")
    trainer.fit(module, make(), ckpt_path=checkpoint, weights_only=False)
    return module.net.losses


def accelerate(make: Any, folder: str, resume: int | None) -> list[float]:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    net = Net()
    model, optimizer, loader = accelerator.prepare(net, torch.optim.SGD(net.parameters(), 0.01), make())
    accelerator.register_for_checkpointing(loader)
    start = 0
    if resume is not None:
        accelerator.load_state(os.path.join(folder, str(resume)))
        start = loader.state_dict()["epoch"]
    step = resume or 0
    for epoch in range(start, EPOCHS):
        loader.set_epoch(epoch)
        for batch in loader:
            loss = model(**batch)["loss"]
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if resume is None:
                accelerator.save_state(os.path.join(folder, str(step)))
    return net.losses


def transformers(make: Any, folder: str, resume: int | None) -> list[float]:
    from transformers import Trainer, TrainingArguments

    class Ours(Trainer):  # type: ignore[misc,unused-ignore]
        def get_train_dataloader(self) -> Any:
            return make()

    arguments = TrainingArguments(
        folder,
        num_train_epochs=EPOCHS,
        save_strategy="steps" if resume is None else "no",
        save_steps=1,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        learning_rate=0.01,
        seed=0,
    )
    net = Net()
    checkpoint = None if resume is None else os.path.join(folder, f"checkpoint-{resume}")
    Ours(net, arguments).train(resume_from_checkpoint=checkpoint)
    return net.losses


def job(framework: str, root: str) -> None:
    """Trains on each kind of dataset, then resumes from some of the checkpoints."""
    torch.set_num_threads(1)
    if os.environ["WORLD_SIZE"] != "1":
        torch.distributed.init_process_group("gloo")  # where PyTorch has MPI too, Accelerate prefers that
    results: dict[str, Any] = {}
    kinds = SETS if framework != "transformers" else ("elements",)  # the others have no length
    for kind in kinds:
        folder = os.path.join(root, kind)
        train = globals()[framework]

        def run(resume: int | None) -> list[float]:
            torch.manual_seed(0)
            losses: list[float] = train(lambda: DataLoader(dataset(kind, root)), folder, resume)
            return losses

        full = run(None)
        per_epoch = len(full) // EPOCHS
        resumed = {step: run(step) for step in (3, per_epoch, per_epoch + 4)}
        results[kind] = [full, resumed]
    with open(os.path.join(root, f"rank{os.environ['RANK']}.json"), "w") as f:
        json.dump(results, f)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


class Frameworks(unittest.TestCase):
    def check(self, framework: str, world: int) -> None:
        try:
            importlib.import_module(framework)
        except ImportError as e:
            self.skipTest(str(e))
        port = kit.free_port()
        with tempfile.TemporaryDirectory() as root:
            for i, n in enumerate((22, 26) if world == 2 else (22,)):
                with open(os.path.join(root, f"{i}.txt"), "w") as f:
                    f.write("".join(f"{(7 * j + i) % 22}\n" for j in range(n)))
            processes = [self.start(framework, root, rank, world, port) for rank in range(world)]
            try:
                outputs = [p.communicate(timeout=900)[0] for p in processes]
            finally:
                for p in processes:
                    p.kill()
                    p.wait()
            for p, output in zip(processes, outputs):
                self.assertEqual(p.returncode, 0, output[-4000:])
            seen = []
            for rank in range(world):
                with open(os.path.join(root, f"rank{rank}.json")) as f:
                    results = json.load(f)
                for kind, (full, resumed) in results.items():
                    self.assertEqual(len(full), 11 * EPOCHS, kind)
                    for step, losses in resumed.items():
                        self.assertEqual(losses, full[int(step) :], (kind, rank, step))
                seen.append(results["elements"][0])
            if world == 2:
                self.assertNotEqual(seen[0], seen[1])  # each has its share

    def start(self, framework: str, root: str, rank: int, world: int, port: int) -> Any:
        # Debian's PyTorch has no libuv.
        environment = {
            **os.environ,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(world),
            "LOCAL_WORLD_SIZE": str(world),
            "GROUP_RANK": "0",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "TORCHELASTIC_RUN_ID": "test",
            "USE_LIBUV": "0",
            "HF_HUB_OFFLINE": "1",
        }
        words = [sys.executable, __file__, "--job", framework, root]
        return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def test_lightning(self) -> None:
        self.check("lightning", 1)

    def test_lightning_with_two_processes(self) -> None:
        self.check("lightning", 2)

    def test_accelerate(self) -> None:
        self.check("accelerate", 1)

    def test_accelerate_with_two_processes(self) -> None:
        self.check("accelerate", 2)

    def test_trainer_of_transformers(self) -> None:
        self.check("transformers", 1)

    def test_trainer_of_transformers_with_two_processes(self) -> None:
        self.check("transformers", 2)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--job"]:
        job(*sys.argv[2:4])
    else:
        kit.main()
