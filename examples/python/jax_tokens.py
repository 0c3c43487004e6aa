#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Token packing for JAX: documents of any length become rows of one length without padding, and a small
language model is trained on them, on all devices. Stopped at any step, it continues where it was.

    pip install './python[jax]'
    python3 jax_tokens.py [--steps N] [--work DIR] FILE...

Each line of the files is a document, and each of its bytes a token. DIR (default: tokens) keeps the
weights and the position; more devices on a CPU: XLA_FLAGS=--xla_force_host_platform_device_count=4."""

import argparse
import json
import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import millrace as mr
from millrace.jax import DataLoader

END, LENGTH, BATCH, WIDTH = 256, 64, 16, 32


def packed(files: list[str]) -> mr.Dataset:
    """Rows of LENGTH + 1 tokens: the documents one after the other, each followed by END."""
    return (
        mr.text_line(files)
        .shard(jax.process_count(), jax.process_index())
        .shuffle(10_000, seed=1)
        .map(lambda line: mr.fn.cast(mr.fn.decode_raw(line, "uint8"), "int32"))
        .map(lambda tokens: mr.fn.concat(tokens, mr.fn.cast([END], "int32")))
        .unbatch()
        .batch(LENGTH + 1, drop_remainder=True)
        .shuffle(1000, seed=2)
        .map(lambda row: {"input": row[:-1], "target": row[1:]})
        .batch(BATCH, drop_remainder=True)
        .repeat()
        .prefetch(2)
    )


def new_weights() -> dict[str, jax.Array]:
    """Of a model that sees the last two tokens."""
    one, two, three = jax.random.split(jax.random.key(0), 3)
    return {
        "embedding": jax.random.normal(one, (END + 1, WIDTH)) * 0.1,
        "before": jax.random.normal(two, (WIDTH, WIDTH)) * 0.1,
        "out": jax.random.normal(three, (WIDTH, END + 1)) * 0.1,
    }


def loss_of(weights: dict[str, jax.Array], batch: dict[str, jax.Array]) -> jax.Array:
    x = weights["embedding"][batch["input"]]
    before = jnp.pad(x, ((0, 0), (1, 0), (0, 0)))[:, :-1]
    logits = jnp.tanh(x + before @ weights["before"]) @ weights["out"]
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), batch["target"][..., None], axis=-1)
    return -jnp.mean(chosen)


@jax.jit  # type: ignore[untyped-decorator,unused-ignore]
def step(weights: dict[str, jax.Array], batch: dict[str, jax.Array]) -> tuple[dict[str, jax.Array], jax.Array]:
    loss, gradient = jax.value_and_grad(loss_of)(weights, batch)
    return jax.tree.map(lambda w, g: w - 1.0 * g, weights, gradient), loss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--work", default="tokens", metavar="DIR")
    options = parser.parse_args()
    os.makedirs(options.work, exist_ok=True)
    saved = os.path.join(options.work, f"state-{jax.process_index()}.npz")

    sharding = NamedSharding(Mesh(np.array(jax.devices()), ("data",)), PartitionSpec("data"))  # type: ignore[no-untyped-call,unused-ignore]
    loader = DataLoader(packed(options.files), sharding=sharding)
    weights, first = new_weights(), 0
    if os.path.exists(saved):
        with np.load(saved) as state:
            weights = {name: jnp.asarray(state[name]) for name in weights}
            position = json.loads(str(state["position"]))
        first = position["step"]
        loader.set_state(position["loader"])
    batches = iter(loader)
    for n in range(first, options.steps):
        weights, loss = step(weights, next(batches))
        print(f"step {n}: loss {float(loss):.4f}")
    position = {"step": max(first, options.steps), "loader": batches.get_state()}
    arrays: dict[str, Any] = {name: np.asarray(w) for name, w in weights.items()}
    np.savez(saved, position=json.dumps(position), **arrays)


if __name__ == "__main__":
    main()
