# SPDX-License-Identifier: Apache-2.0
# tier: plain=long
"""Keras 3 with each back end that is installed, and tf.data."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import unittest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np

import kit
import millrace as mr


def missing(*names: str) -> str:
    """Why a test cannot run."""
    absent = [n for n in names if importlib.util.find_spec(n) is None]
    return f"not installed: {', '.join(absent)}" if absent else ""


FIT = """
import json, sys
import numpy as np
import keras
import millrace as mr
from millrace.keras import PyDataset

x = np.random.default_rng(0).normal(size=(100, 2)).astype(np.float32)
y = (3 * x[:, 0] - 2 * x[:, 1] + 1).astype(np.float32)


def make():
    return mr.from_tensor_slices((x, y)).shuffle(64, seed=1).batch(8)


def model():
    keras.utils.set_random_seed(0)
    m = keras.Sequential([keras.layers.Dense(1)])
    m.compile(loss="mse", optimizer=keras.optimizers.SGD(0.05))
    m.build((None, 2))
    return m


class Watch(keras.callbacks.Callback):
    def __init__(self, data, stop=None):
        self.data, self.stop, self.losses, self.state, self.total = data, stop, [], None, 0.0

    def on_epoch_begin(self, epoch, logs=None):
        self.total = 0.0

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(logs["loss"])
        if len(self.losses) == self.stop:
            self.state = json.dumps(self.data.state_dict(batch + 1))
            self.model.stop_training = True


# A run, and another one that is stopped in its second epoch, after 13 + 5 batches, and resumed.
data = PyDataset(make())
whole = model()
whole.fit(data, epochs=3, verbose=0)
final = [np.asarray(w) for w in whole.get_weights()]
losses = whole.evaluate(x, y, verbose=0)
assert losses < 0.2, losses

data = PyDataset(make())
watch = Watch(data, 18)
stopped = model()
stopped.fit(data, epochs=3, verbose=0, callbacks=[watch])
assert len(watch.losses) == 18, watch.losses
weights = [np.asarray(w) for w in stopped.get_weights()]

data = PyDataset(make())
data.load_state_dict(json.loads(watch.state))
assert data.num_batches == 8, data.num_batches
resumed = model()
resumed.set_weights(weights)
rest = Watch(data)
resumed.fit(data, initial_epoch=1, epochs=2, verbose=0, callbacks=[rest])
resumed.fit(data, initial_epoch=2, epochs=3, verbose=0, callbacks=[rest])
assert len(rest.losses) == 8 + 13, len(rest.losses)
for a, b in zip(resumed.get_weights(), final, strict=True):
    np.testing.assert_allclose(np.asarray(a), b, rtol=1e-6)
assert resumed.evaluate(x, y, verbose=0) == losses

# evaluate and predict see each batch once, in order, as often as they are called.
plain = PyDataset(mr.from_tensor_slices((x, y)).batch(8))
want = whole.evaluate(x, y, verbose=0, batch_size=8)
for _ in range(2):
    np.testing.assert_allclose(whole.evaluate(plain, verbose=0), want, rtol=1e-6)
first = whole.evaluate(x[:8], y[:8], verbose=0)
for _ in range(2):
    np.testing.assert_allclose(whole.evaluate(plain, steps=1, verbose=0), first, rtol=1e-6)
inputs = PyDataset(mr.from_tensor_slices(x).batch(8))
np.testing.assert_allclose(whole.predict(inputs, verbose=0), whole.predict(x, verbose=0), rtol=1e-5)

# An unknown number of batches is counted; one epoch in several parts; no end; weights of samples.
some = PyDataset(mr.from_tensor_slices((x, y)).filter(lambda a, b: b > 0).batch(8))
assert some.num_batches == -(-int((y > 0).sum()) // 8)
model().fit(some, epochs=2, verbose=0)
trained = model()
data = PyDataset(mr.from_tensor_slices((x, y)).batch(4))
trained.fit(data, steps_per_epoch=5, epochs=5, verbose=0, shuffle=False)
once = model()
once.fit(PyDataset(mr.from_tensor_slices((x, y)).batch(4)), verbose=0, shuffle=False)
for a, b in zip(trained.get_weights(), once.get_weights(), strict=True):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-6)
endless = PyDataset(make().repeat())
assert not endless.num_batches
model().fit(endless, epochs=2, steps_per_epoch=5, verbose=0)
weighted = mr.from_tensor_slices((x, y, (y > 0).astype(np.float32))).batch(10)
model().fit(PyDataset(weighted), verbose=0)
model().fit(PyDataset(make()), validation_data=plain, epochs=2, verbose=0)

# Inputs and targets by name.
a, b = keras.Input((1,), name="a"), keras.Input((1,), name="b")
two = keras.Model({"a": a, "b": b}, {"sum": keras.layers.Dense(1, name="sum")(keras.layers.Concatenate()([a, b]))})
two.compile(loss="mse", optimizer="sgd")
named = mr.from_tensor_slices(({"a": x[:, :1], "b": x[:, 1:]}, {"sum": y[:, None]})).batch(10)
two.fit(PyDataset(named), verbose=0)

# Constants and caches keep their values, whatever a back end does with its memory.
cached = mr.from_tensor_slices((x, y)).batch(25).cache()
keeps = PyDataset(cached)
model().fit(keeps, epochs=4, verbose=0)
np.testing.assert_array_equal(np.concatenate([e[0] for e in cached]), x)
print("fine")
"""


class Fit(unittest.TestCase):
    def fit(self, backend: str) -> None:
        env = {**os.environ, "KERAS_BACKEND": backend}
        out = subprocess.run([sys.executable, "-c", FIT], capture_output=True, text=True, env=env, timeout=600)
        self.assertEqual((out.returncode, out.stdout.strip()[-4:]), (0, "fine"), out.stderr[-3000:])

    @unittest.skipIf(missing("keras", "tensorflow"), missing("keras", "tensorflow"))
    def test_tensorflow(self) -> None:
        self.fit("tensorflow")

    @unittest.skipIf(missing("keras", "jax"), missing("keras", "jax"))
    def test_jax(self) -> None:
        self.fit("jax")

    @unittest.skipIf(missing("keras", "torch"), missing("keras", "torch"))
    def test_torch(self) -> None:
        self.fit("torch")


@unittest.skipIf(missing("keras"), missing("keras"))
class Batches(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        if not os.environ.get("KERAS_BACKEND"):
            os.environ["KERAS_BACKEND"] = next((n for n in ("jax", "torch", "tensorflow") if not missing(n)), "")
        if not os.environ["KERAS_BACKEND"]:
            raise unittest.SkipTest("Keras has no back end here")

    def test_passes_see_each_batch_once(self) -> None:
        from millrace.keras import PyDataset

        data = PyDataset(mr.range(12).shuffle(12, seed=1).batch(2))
        whole = mr.range(12).shuffle(12, seed=1).batch(2)
        want = [[x.tolist() for x in whole] for _ in range(3)]
        self.assertEqual([data[0].tolist(), data[1].tolist(), data[0].tolist()], [want[0][0], want[0][1], want[0][0]])
        for epoch in want:
            self.assertEqual([b.tolist() for b in data], epoch)
        with self.assertRaises(mr.InvalidArgument):
            data[100]

    def test_what_keras_cannot_take_is_named(self) -> None:
        from millrace.keras import PyDataset

        for ds, what in (
            (mr.range(4), "batch\\(32\\)"),
            (mr.range(4).map(lambda x: (x, x, x, x)).batch(2), "4 components"),
            (mr.range(4).map(lambda x: (mr.fn.ones([x]), x)).ragged_batch(2), "0 is ragged"),
            (mr.range(4).window(2), "dataset"),
        ):
            with self.assertRaisesRegex(mr.InvalidArgument, what):
                PyDataset(ds)
        data = PyDataset(mr.range(8).batch(2))
        for wrong in (None, {}, {"batches": 1}):
            with self.assertRaises(mr.InvalidArgument):
                data.load_state_dict(wrong)  # type: ignore[arg-type]
        with self.assertRaisesRegex(mr.InvalidArgument, "only 0 were read"):
            data.state_dict(3)

    def test_a_shorter_epoch_is_an_error(self) -> None:
        from millrace.keras import PyDataset

        data = PyDataset(mr.range(8).batch(2).assert_cardinality(5))
        with self.assertRaises(mr.Error):
            list(data)


@unittest.skipIf(missing("tensorflow"), missing("tensorflow"))
class TfData(unittest.TestCase):
    def test_structure_and_types(self) -> None:
        import tensorflow as tf

        ds = mr.from_text('range(4).map(x => {"a": x, "b": (ones([x]), ["s", "t"]), "c": zeros([2, 3], "float16")})')
        t = ds.as_tf_dataset()
        self.assertIsInstance(t, tf.data.Dataset)
        self.assertEqual(
            t.element_spec,
            {
                "a": tf.TensorSpec((), tf.int64),
                "b": (tf.TensorSpec((None,), tf.float32), tf.TensorSpec((2,), tf.string)),
                "c": tf.TensorSpec((2, 3), tf.float16),
            },
        )
        self.assertEqual(t.cardinality().numpy(), 4)
        for x, y in zip(t, ds, strict=True):
            self.assertEqual(int(x["a"]), y["a"])
            np.testing.assert_array_equal(x["b"][0], y["b"][0])
            self.assertEqual(x["b"][1].numpy().tolist(), [b"s", b"t"])
            np.testing.assert_array_equal(x["c"], y["c"])

    def test_every_type(self) -> None:
        import tensorflow as tf

        names = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64".split()
        for name in names:
            for graph in (f'range(2).map(x => cast(x, "{name}"))', f'range(2).map(x => cast(x, "{name}")).batch(2)'):
                values = [x.numpy() for x in mr.from_text(graph).as_tf_dataset()]
                self.assertEqual(tf.as_dtype(values[0].dtype), tf.as_dtype(name))
                np.testing.assert_array_equal(np.asarray(values).reshape(-1).astype(float), [0, 1])
        (x,) = mr.from_tensors(b"\x00\xff").as_tf_dataset()
        self.assertEqual(x.numpy(), b"\x00\xff")

    def test_ragged_tensors(self) -> None:
        import tensorflow as tf

        ds = mr.range(6).map(lambda x: (mr.fn.ones([x]), mr.fn.ones([x, 2]), "s")).ragged_batch(3)
        t = ds.as_tf_dataset()
        self.assertEqual(t.element_spec[0], tf.RaggedTensorSpec((None, None), tf.float32, 1, tf.int64))
        got = list(t)
        self.assertIsInstance(got[1][0], tf.RaggedTensor)
        self.assertEqual(got[1][0].to_list(), [[1] * 3, [1] * 4, [1] * 5])
        self.assertEqual([len(r) for r in got[0][1].to_list()], [0, 1, 2])
        self.assertEqual(got[0][2].numpy().tolist(), [b"s"] * 3)
        summed = list(t.map(lambda a, b, c: tf.reduce_sum(a, axis=1)))
        self.assertEqual(summed[1].numpy().tolist(), [3, 4, 5])

    def test_counts(self) -> None:
        import tensorflow as tf

        self.assertEqual(mr.range(3).repeat().as_tf_dataset().cardinality(), tf.data.INFINITE_CARDINALITY)
        unknown = mr.range(5).filter(lambda x: x > 2).as_tf_dataset()
        self.assertEqual(unknown.cardinality(), tf.data.UNKNOWN_CARDINALITY)
        self.assertEqual([int(x) for x in unknown], [3, 4])
        self.assertEqual([int(x) for x in mr.range(100).repeat().as_tf_dataset().take(3)], [0, 1, 2])
        with self.assertRaisesRegex(mr.InvalidArgument, "dataset"):
            mr.range(3).window(2).as_tf_dataset()

    def test_each_iteration_is_an_epoch(self) -> None:
        ds = mr.range(20).shuffle(20, seed=1)
        want = [[int(x) for x in ds] for _ in range(3)]
        t = mr.range(20).shuffle(20, seed=1).as_tf_dataset()
        self.assertEqual([[int(x) for x in t] for _ in range(3)], want)

    def test_tensorflow_does_not_change_shared_memory(self) -> None:
        ds = mr.range(8).map(lambda x: mr.fn.zeros([1024]) + 1.0).batch(4).cache()
        t = ds.as_tf_dataset().map(lambda x: x * 2 + 1)
        for _ in range(3):
            for x in t:
                np.testing.assert_array_equal(x, np.full((4, 1024), 3.0))
        for x in ds:
            np.testing.assert_array_equal(x, np.ones((4, 1024)))

    def test_errors_say_what_happened(self) -> None:
        t = mr.range(3).map(lambda x: 10 // x).as_tf_dataset()
        with self.assertRaisesRegex(Exception, "zero"):
            list(t)

    @unittest.skipIf(missing("keras"), missing("keras"))
    def test_keras_fits_it(self) -> None:
        code = (
            "import keras, numpy as np, millrace as mr\n"
            "x = np.random.default_rng(0).normal(size=(96, 2)).astype('float32')\n"
            "y = x.sum(1)\n"
            "m = keras.Sequential([keras.layers.Dense(1)])\n"
            "m.compile(loss='mse', optimizer=keras.optimizers.SGD(0.1))\n"
            "h = m.fit(mr.from_tensor_slices((x, y)).shuffle(96).batch(8).as_tf_dataset(), epochs=8, verbose=0)\n"
            "assert h.history['loss'][-1] < 0.01, h.history\n"
        )
        env = {**os.environ, "KERAS_BACKEND": "tensorflow"}
        out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=300)
        self.assertEqual(out.returncode, 0, out.stderr[-3000:])


if __name__ == "__main__":
    kit.main()
