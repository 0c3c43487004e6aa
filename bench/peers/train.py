#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps of training on one core, compared with PyTorch's (eager, and compiled where that works) and TensorFlow's (Keras's
layers and Adam in a tf.function): the same model, batch, float32 and optimizer, one thread, the input in memory
already. All are processes that wait for each other: rounds of each in turn, medians of the time a step takes by the
clock and of the processor.
   train.py [--program FILE] [--rounds N] [--seconds S]
--program: Millrace's side (default: build/bench/train). The packages are those of the Python that runs this; without
torch and tensorflow their lines are left out, aloud."""
import argparse
import importlib.util
import os
import statistics
import subprocess
import sys
import time

WORK = [("mlp", 128), ("cnn", 64), ("cnn", 128)]  # the quickstart's model; the Keras guide's
PEERS = {"PyTorch": "torch", "PyTorch, compiled": "torch", "TensorFlow": "tensorflow"}
os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")


def torch_step(model, batch, compiled):
    import torch
    from torch import nn
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    if model == "mlp":
        m = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    else:
        m = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(5408, 64), nn.ReLU(),
                          nn.Linear(64, 10))
    x, y = torch.rand(batch, 1, 28, 28), torch.arange(batch) % 10
    if model == "cnn":  # faster so
        m, x = m.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    if compiled:
        optimizer, loss = torch.optim.Adam(m.parameters()), nn.CrossEntropyLoss()
    else:
        optimizer, loss = torch.optim.Adam(m.parameters(), fused=True), nn.CrossEntropyLoss()

    def forward(x, y):
        return loss(m(x), y)
    if compiled:
        forward = torch.compile(forward)
    update = torch.compile(optimizer.step) if compiled else optimizer.step

    def step():
        optimizer.zero_grad()
        forward(x, y).backward()
        update()
    return step


def tensorflow_step(model, batch):
    import tensorflow as tf
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    layers = tf.keras.layers
    if model == "mlp":
        m = tf.keras.Sequential([layers.Flatten(), layers.Dense(128, "relu"), layers.Dense(10)])
    else:
        m = tf.keras.Sequential([layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(), layers.Flatten(),
                                 layers.Dense(64, "relu"), layers.Dense(10)])
    x, y = tf.random.uniform([batch, 28, 28, 1]), tf.range(batch) % 10
    m(x)
    optimizer, loss = tf.keras.optimizers.Adam(), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer.build(m.trainable_variables)

    @tf.function
    def train():
        with tf.GradientTape() as tape:
            value = loss(y, m(x, training=True))
        optimizer.apply_gradients(zip(tape.gradient(value, m.trainable_variables), m.trainable_variables))
        return value
    return lambda: train().numpy()


def serve(peer, model, batch):
    """For each line N of standard input: N steps, and a line of the seconds they took by the clock and of the processor."""
    step = tensorflow_step(model, batch) if peer == "TensorFlow" else torch_step(model, batch, peer != "PyTorch")
    for _ in range(20):
        step()
    print("ready", flush=True)
    for line in sys.stdin:
        began, cpu = time.perf_counter(), time.process_time()
        for _ in range(int(line)):
            step()
        print(time.perf_counter() - began, time.process_time() - cpu, flush=True)


class Side:
    def __init__(self, command, core, ready):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True, preexec_fn=lambda: os.sched_setaffinity(0, {core}))
        self.ok = not ready or self.process.stdout.readline() == "ready\n"
        self.steps, self.rounds = 20, []

    def run(self):
        self.process.stdin.write(f"{self.steps}\n")
        self.process.stdin.flush()
        return [float(x) / self.steps for x in self.process.stdout.readline().split()]

    def end(self):
        self.process.stdin.close()
        error = self.process.stderr.read().strip()
        self.process.wait()
        return error.splitlines()[-1] if error else ""


def compare(model, batch, o, core):
    sides = {"Millrace": Side([o.program, "--serve", model, str(batch), "1"], core, False)}
    for name, package in PEERS.items():
        if importlib.util.find_spec(package):
            sides[name] = Side([sys.executable, __file__, "--serve", name, model, str(batch)], core, True)
            if not sides[name].ok:
                print(f"    {name} does not run here: {sides.pop(name).end()}")
    for side in sides.values():
        side.steps = max(1, int(o.seconds / max(side.run()[0], 1e-6)))
    for _ in range(o.rounds):
        for side in sides.values():
            side.rounds.append(side.run())
    for side in sides.values():
        side.end()
    took = {name: [statistics.median(r[k] for r in side.rounds) for k in (0, 1)] for name, side in sides.items()}
    for name, (wall, cpu) in took.items():
        print(f"{model}, batch {batch:<4} {name:<18} {1 / cpu:8.0f} steps/s of the processor, {1 / wall:8.0f} by the clock")
    if len(took) > 1:
        best = [min(t[k] for name, t in took.items() if name != "Millrace") / took["Millrace"][k] for k in (0, 1)]
        print(f"{model}, batch {batch:<4} of the best peer's rate: {best[1]:.2f} times of the processor, {best[0]:.2f} by the clock",
              flush=True)


def main():
    if len(sys.argv) == 5 and sys.argv[1] == "--serve":
        serve(sys.argv[2], sys.argv[3], int(sys.argv[4]))
        return
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--program", default="build/bench/train")
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--seconds", type=float, default=0.3)
    o = p.parse_args()
    for package in sorted(set(PEERS.values())):
        if not importlib.util.find_spec(package):
            print(f"{package} is not installed in this Python: its lines are left out")
    core = max(os.sched_getaffinity(0))
    print(f"on core {core}; load {os.getloadavg()[0]:.1f}")
    for model, batch in WORK:
        compare(model, batch, o, core)


main()
