#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What Millrace writes, as other programs read it. readers.py MILLRACE; TAP goes to $TAP_FILE."""
import json
import os
import subprocess
import sys
import tempfile
import traceback

import numpy as np

MILLRACE = os.path.abspath(sys.argv[1])
DATA = 'range(24).map(i => ([cast(i, "float32") / 8.0, 1.0, cast(i % 3, "float32")], [cast(i, "float32")])).batch(4)'
MODEL = 'dense(5, activation="relu").dense(1)'


def millrace(*args):
    return subprocess.run([MILLRACE, *args], check=True, capture_output=True, text=True).stdout


def train(*args, model=MODEL, data=DATA):
    return [json.loads(line) for line in millrace(
        "train", "--data", data, "--model", model, "--loss", "mse", "--optimizer", "adam(0.01)",
        "--seed", "3", "--log", "json", *args).splitlines()]


def features(n=24):
    i = np.arange(n, dtype=np.float32)
    return np.stack([i / 8, np.ones_like(i), i % 3], axis=1)


def test_safetensors_reads_the_weights():
    from safetensors import safe_open
    train("--epochs", "2", "--save", "m")
    with safe_open("m/weights.safetensors", framework="numpy") as f:
        metadata = f.metadata()
        assert set(metadata) == {"format", "crc32c"} and metadata["format"] == "millrace 2", metadata
        w = {k: f.get_tensor(k) for k in f.keys()}
    assert {k: v.shape for k, v in w.items()} == {
        "dense/kernel": (3, 5), "dense/bias": (5,), "dense_1/kernel": (5, 1), "dense_1/bias": (1,)}
    assert all(v.dtype == np.float32 for v in w.values())
    hidden = np.maximum(features() @ w["dense/kernel"] + w["dense/bias"], 0)
    want = hidden @ w["dense_1/kernel"] + w["dense_1/bias"]
    got = np.array([json.loads(x) for x in millrace("predict", "--saved", "m", "--data", DATA).splitlines()])
    assert np.abs(got - want).max() < 1e-5, np.abs(got - want).max()


def test_weights_of_safetensors_are_read():
    from safetensors.numpy import load_file, save_file
    train("--save", "n")
    w = load_file("n/weights.safetensors")
    for v in w.values():
        v += np.float32(1)
    save_file(w, "n/weights.safetensors", metadata={"from": "numpy"})
    got = np.array([json.loads(x) for x in millrace("predict", "--saved", "n", "--data", DATA).splitlines()])
    hidden = np.maximum(features() @ w["dense/kernel"] + w["dense/bias"], 0)
    want = hidden @ w["dense_1/kernel"] + w["dense_1/bias"]
    assert np.abs(got - want).max() < 1e-5 * np.abs(want).max()


def test_tensorboard_reads_every_scalar():
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    log = train("--epochs", "3", "--metrics", "mse", "--validation", DATA, "--callback",
                'tensorboard("logs", update_freq="batch")', "learning_rate_schedule([[0, 0.01], [2, 0.001]])")

    def scalars(where):
        a = EventAccumulator(where)
        a.Reload()
        return {tag: [(e.step, e.value) for e in a.Scalars(tag)] for tag in a.Tags()["scalars"]}

    epochs = [x for x in log if "step" not in x]
    f = np.float32
    assert scalars("logs/train") == {
        "batch_loss": [(x["step"], f(x["loss"])) for x in log if "step" in x],
        "epoch_loss": [(i, f(x["loss"])) for i, x in enumerate(epochs)],
        "epoch_mse": [(i, f(x["mse"])) for i, x in enumerate(epochs)],
        "epoch_learning_rate": [(0, f(0.01)), (1, f(0.01)), (2, f(0.001))]}, scalars("logs/train")
    assert scalars("logs/validation") == {
        "epoch_loss": [(i, f(x["val_loss"])) for i, x in enumerate(epochs)],
        "epoch_mse": [(i, f(x["val_mse"])) for i, x in enumerate(epochs)]}, scalars("logs/validation")


def test_checkpoints_are_read():
    from safetensors.numpy import load_file
    train("--epochs", "2", "--callback", 'checkpoint("runs/ckpt_{epoch}")')
    slots = load_file("runs/ckpt_2/optimizer.safetensors")
    assert sorted(slots) == sorted(f"{v}/slot_{k}" for v in load_file("runs/ckpt_2/weights.safetensors")
                                   for k in range(2)), slots.keys()
    listed = [json.loads(x) for x in millrace("checkpoints", "runs", "--json").splitlines()]
    assert [(x["name"], x["epoch"], x["whole"], x["latest"]) for x in listed] == [
        ("ckpt_1", 1, True, False), ("ckpt_2", 2, True, True)], listed


# Every layer and activation, at odd sizes, strides and paddings.
ONNX_MODELS = {
    "dense": ("dense(7, use_bias=false).dense(4, activation=\"softmax\")", (5,)),
    "dense over the last axis": ("dense(7).dense(3)", (2, 5)),
    "flatten and reshape": ("reshape(2, 3, 4).flatten().dense(3).reshape(1, 3)", (24,)),
    "dropout": ("dense(4).dropout(0.5).dense(2)", (6,)),
    "conv2d": ('conv2d(5, 3, padding="same", activation="relu").conv2d(4, 2, strides=2).flatten().dense(2)', (7, 9, 3)),
    "conv2d, even and strided": ('conv2d(5, 4, strides=3, padding="same", use_bias=false)', (10, 11, 2)),
    "conv2d, dilated groups": ("conv2d(6, [3, 2], dilation_rate=2, groups=2)", (9, 8, 4)),
    "depthwise_conv2d": ('depthwise_conv2d(3, depth_multiplier=2, padding="same")', (6, 5, 3)),
    "max_pool": ('max_pool(2).max_pool(3, strides=2, padding="same")', (11, 13, 2)),
    "average_pool": ('average_pool(3, strides=2, padding="same").average_pool(2)', (11, 13, 2)),
    "global_average_pool": ("global_average_pool()", (5, 4, 3)),
    "global_average_pool, kept": ("global_average_pool(keepdims=true)", (5, 4, 3)),
    "batch_norm": ("conv2d(4, 3).batch_norm().dense(3)", (6, 6, 2)),
    "batch_norm without scale": ("batch_norm(scale=false, center=false)", (5,)),
    "layer_norm": ("dense(8).layer_norm().dense(2)", (5,)),
    "layer_norm without center": ("layer_norm(center=false).layer_norm(scale=false)", (3, 6)),
    "residual": ('residual(conv2d(3, 3, padding="same").batch_norm()).flatten().dense(2)', (5, 6, 3)),
    "residual with a projection": ('residual(conv2d(4, 3, strides=2, padding="same"), projection=true)', (7, 6, 3)),
    "residuals in residuals": ("residual(dense(5).residual(dense(5)).residual(dense(5), projection=true)).dense(2)", (5,)),
    "residual of one layer, of views": ('reshape(2, 3).residual(activation("relu")).residual(reshape(2, 3))', (6,)),
    "rescaling": ("rescaling(0.25, offset=-1.5).dense(2)", (4,)),
    "cast": ("cast().dense(2)", (4,)),
    "normalization": ("normalization([0.5, -1.0, 2.0], [4.0, 0.25, 1.0])", (2, 3)),
    "normalization by one": ("normalization([0.5], [4.0])", (2, 3)),
    "discretization": ("discretization([-1.0, 0.0, 1.5]).category_encoding(4).dense(2)", (3,)),
    "discretization, embedding": ("discretization([-1.0, 0.0, 1.5]).embedding(4, 3).flatten()", (3,)),
    "discretization, lookup": ("discretization([-1.0, 0.0, 1.5]).lookup([0, 3, 1]).embedding(4, 3).flatten()", (3,)),
    **{a: (f'dense(6).activation("{a}")', (5,)) for a in (
        "linear", "relu", "sigmoid", "tanh", "softmax", "elu", "selu", "relu6", "leaky_relu", "softplus", "softsign",
        "exponential")},
}


def test_onnxruntime_gives_the_chief_alones():
    import onnx
    import onnxruntime
    for i, (name, (model, shape)) in enumerate(ONNX_MODELS.items()):
        values = int(np.prod(shape))
        x = np.random.default_rng(i).uniform(-2, 2, (6, values)).astype(np.float32)
        rows = ", ".join("[" + ", ".join(repr(float(v)) for v in row) + "]" for row in x)
        data = f'from_tensor_slices([{rows}]).map(v => reshape(cast(v, "float32"), {list(shape)}))'
        out = f"onnx{i}"
        text = json.loads(millrace("summary", model, "--input", ",".join(map(str, shape)), "--json"))
        given = text["layers"][-1]["shape"]
        zeros = f"zeros({given})"
        train("--save", out, "--metrics", "mse", model=model, data=data + f".map(x => (x, {zeros})).batch(3)")
        predicted = np.array([json.loads(line) for line in millrace(
            "predict", "--saved", out, "--data", data + ".batch(4)").splitlines()], dtype=np.float32)
        millrace("export", "--saved", out, "--onnx", out + ".onnx")
        onnx.checker.check_model(onnx.load(out + ".onnx"), full_check=True)
        session = onnxruntime.InferenceSession(out + ".onnx", providers=["CPUExecutionProvider"])
        (inp,), (outp,) = session.get_inputs(), session.get_outputs()
        assert (inp.name, inp.shape, outp.name, outp.shape) == (
            "input", ["batch", *shape], "output", ["batch", *given]), (name, inp, outp)
        (got,) = session.run(None, {"input": x.reshape(6, *shape)})
        assert got.shape == predicted.shape, (name, got.shape, predicted.shape)
        assert np.abs(got - predicted).max() <= 1e-5 * max(1, np.abs(predicted).max()), (
            name, np.abs(got - predicted).max())


def test_onnxruntime_takes_several_inputs_and_shared_layers():
    import onnx
    import onnxruntime
    model = ('a = input(3); b = input(3); t = dense(4, activation="tanh").batch_norm(); u = t(a); v = t(b);'
             'add(u, v, u).concat(multiply(u, v), average(a, b).dense(2), axis=1).concat(subtract(u, v)).dense(2)')
    x = np.random.default_rng(7).uniform(-2, 2, (6, 6)).astype(np.float32)
    rows = ", ".join("[" + ", ".join(repr(float(v)) for v in row) + "]" for row in x)
    data = f'from_tensor_slices([{rows}]).map(v => cast(v, "float32")).map(v => ((v[:3], v[3:]), v[:2])).batch(3)'
    train("--save", "graph", model=model, data=data)
    predicted = np.array([json.loads(line) for line in millrace(
        "predict", "--saved", "graph", "--data", data).splitlines()], dtype=np.float32)
    millrace("export", "--saved", "graph", "--onnx", "graph.onnx")
    onnx.checker.check_model(onnx.load("graph.onnx"), full_check=True)
    session = onnxruntime.InferenceSession("graph.onnx", providers=["CPUExecutionProvider"])
    assert [(i.name, i.shape) for i in session.get_inputs()] == [("a", ["batch", 3]), ("b", ["batch", 3])]
    (got,) = session.run(None, {"a": x[:, :3], "b": x[:, 3:]})
    assert np.abs(got - predicted).max() <= 1e-5 * max(1, np.abs(predicted).max()), np.abs(got - predicted).max()


def test_onnxruntime_gives_every_output_by_its_name():
    import onnx
    import onnxruntime
    model = ('x = input(4); h = x.dense(6, activation="tanh"); kind = h.dense(3, activation="softmax"); hidden = h;'
             'shaped = h.reshape(2, 3); same = x; sum = add(h, h.dense(6))')
    x = np.random.default_rng(7).uniform(-2, 2, (6, 4)).astype(np.float32)
    rows = ", ".join("[" + ", ".join(repr(float(v)) for v in row) + "]" for row in x)
    data = f'from_tensor_slices([{rows}]).map(v => cast(v, "float32")).map(v => (v, {{"kind": v[:3]}})).batch(4)'
    millrace("train", "--model", model, "--data", data, "--loss", '{"kind": mse}', "--optimizer", "adam", "--epochs", "2",
             "--save", "outputs", "--seed", "3")
    predicted = [json.loads(line) for line in millrace("predict", "--saved", "outputs", "--data", data).splitlines()]
    millrace("export", "--saved", "outputs", "--onnx", "outputs.onnx")
    onnx.checker.check_model(onnx.load("outputs.onnx"), full_check=True)
    session = onnxruntime.InferenceSession("outputs.onnx", providers=["CPUExecutionProvider"])
    assert [(o.name, o.shape) for o in session.get_outputs()] == [
        ("kind", ["batch", 3]), ("hidden", ["batch", 6]), ("shaped", ["batch", 2, 3]), ("same", ["batch", 4]),
        ("sum", ["batch", 6])]
    for out, got in zip(session.get_outputs(), session.run(None, {"input": x})):
        want = np.array([p[out.name] for p in predicted], dtype=np.float32)
        assert got.shape == want.shape and np.abs(got - want).max() <= 1e-5, (out.name, got, want)


# Text and class numbers: model, features of one example each.
ONNX_TOKENS = {
    "embedding": ("embedding(5, 3).flatten().dense(2)", [[0, 4], [2, 2], [1, 3]]),
    "embedding of a shape": ("reshape(1, 2).embedding(5, 3)", [[0, 4], [2, 2], [1, 3]]),
    **{mode: (f'category_encoding(5, output_mode="{mode}").dense(2)', [[0, 4], [2, 2], [1, 3]])
       for mode in ("multi_hot", "count", "one_hot")},
    "one_hot of one": ('category_encoding(5, output_mode="one_hot").dense(2)', [[4], [2]]),
    "lookup": ('lookup(["a", "b", "\\xc3\\xa4", ""]).embedding(5, 3).flatten()', [["b", "x"], ["", "ä"], ["a", "a"]]),
    "lookup of integers": ("lookup([7, -2, 9]).category_encoding(4)", [[9, 1], [-2, 7]]),
    "lookup in a file": ('lookup("tokens.txt").embedding(4, 3).flatten()', [["b", "x"], ["c", "a"]]),
}


def test_onnxruntime_takes_text_and_class_numbers():
    import onnx
    import onnxruntime
    with open("tokens.txt", "w") as f:
        f.write("a\nb\nc\n")
    for i, (name, (model, rows)) in enumerate(ONNX_TOKENS.items()):
        out = f"tokens{i}"
        data = f"from_tensor_slices({json.dumps(rows, ensure_ascii=False)})"
        text = json.loads(millrace("summary", model, "--input", str(len(rows[0])), "--json"))
        zeros = f'zeros({text["layers"][-1]["shape"]})'
        train("--save", out, model=model, data=data + f".map(x => (x, {zeros})).batch(2)")
        predicted = np.array([json.loads(line) for line in millrace(
            "predict", "--saved", out, "--data", data + ".batch(2)").splitlines()], dtype=np.float32)
        millrace("export", "--saved", out, "--onnx", out + ".onnx")
        onnx.checker.check_model(onnx.load(out + ".onnx"), full_check=True)
        session = onnxruntime.InferenceSession(out + ".onnx", providers=["CPUExecutionProvider"])
        x = np.array(rows, dtype=object if isinstance(rows[0][0], str) else np.int64)
        (got,) = session.run(None, {"input": x})
        assert got.shape == predicted.shape, (name, got.shape, predicted.shape)
        assert np.abs(got - predicted).max() <= 1e-5, (name, got, predicted)


def test_what_onnx_cannot_say_is_refused_by_name():
    for model, word in (('text_vectorization(["a"], 2).category_encoding(3).flatten().dense(1)', "text_vectorization"),
                        ("hashing(5).category_encoding(5).dense(1)", "hashing"),
                        ('lookup(["a"], oov=2).category_encoding(5).dense(1)', "oov=1")):
        train("--save", "refused", model=model, data='from_tensors(["a", "b"]).map(x => (x, [1.0])).batch(1)')
        done = subprocess.run([MILLRACE, "export", "--saved", "refused", "--onnx", "refused.onnx"], capture_output=True,
                              text=True)
        assert done.returncode == 1 and word in done.stderr, done.stderr
        assert not os.path.exists("refused.onnx")


def main():
    tests = [(k[5:], v) for k, v in sorted(globals().items()) if k.startswith("test_")]
    failed = 0
    with tempfile.TemporaryDirectory() as d, open(os.environ.get("TAP_FILE", os.devnull), "w") as tap:
        os.chdir(d)
        for i, (name, fn) in enumerate(tests, 1):
            try:
                fn()
                tap.write(f"ok {i} - {name}\n")
            except Exception as e:
                failed += 1
                tap.write(f"not ok {i} - {name}\n")
                print(f"FAILED {name}")
                traceback.print_exc(file=sys.stdout)
                if isinstance(e, subprocess.CalledProcessError):
                    print(e.stderr)
        tap.write(f"1..{len(tests)}\n")
        os.chdir("/")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
