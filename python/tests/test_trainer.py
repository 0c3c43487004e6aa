# SPDX-License-Identifier: Apache-2.0
# tier: plain=full asan=long
"""millrace.trainer: the same numbers as `millrace train`, callbacks, weights, saved models."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from typing import Any

import numpy as np

import kit
import millrace as mr

try:
    from millrace.trainer import History, Model
except ImportError:  # built without oneDNN
    HAVE = False
else:
    HAVE = True

DATA = 'range(60).map(i => ([cast(i % 7, "float32"), cast(i % 5, "float32")] / 7.0, i % 3)).shuffle(60).batch(8)'
MODEL = 'input(2).dense(8, activation="relu").dropout(0.2).dense(3)'
LOSS = "sparse_categorical_crossentropy(from_logits=true)"


def lines(*arguments: str) -> list[Any]:
    """What a command prints, a JSON object on each line."""
    out = subprocess.run([kit.MILLRACE, *arguments], check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in out.splitlines()]


@unittest.skipUnless(HAVE, "built without the trainer, which needs oneDNN")
class Case(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def at(self, name: str) -> str:
        return os.path.join(self.folder, name)


def line_model(**more: Any) -> Model:
    return Model("input(1).dense(1, kernel_initializer=zeros)", **more)


def line_data(n: int = 8) -> mr.Dataset:
    x = np.arange(n, dtype=np.float32).reshape(n, 1) / n
    return mr.from_tensor_slices((x, 2 * x)).batch(4)


def fit(model: Model, ds: mr.Dataset | None = None, **more: Any) -> History:
    given: dict[str, Any] = {"loss": "mse", "optimizer": "sgd(0.1)", "verbose": 0} | more
    return model.fit(ds if ds is not None else line_data(), **given)


class Numbers(Case):
    def test_they_are_those_of_the_command_line(self) -> None:
        flags = ["--data", DATA, "--model", MODEL, "--loss", LOSS, "--optimizer", "adam(0.01)", "--metrics", "accuracy"]
        flags += ["--epochs", "3", "--validation", DATA, "--log", "json", "--class-weights", "0:2.0"]
        for replicas, seed in ((1, 7), (2, 7), (3, None)):
            with self.subTest(replicas=replicas, seed=seed):
                data = DATA if seed is not None else DATA.replace("shuffle(60)", "shuffle(60, seed=1)")
                mine = [data if x == DATA else x for x in flags] + ["--replicas", str(replicas)]
                mine += ["--seed", str(seed)] if seed is not None else []
                wanted = [x for x in lines("train", *mine) if "step" not in x]
                model = Model(MODEL, replicas=replicas, seed=seed)
                ds = mr.from_text(data)
                h = model.fit(
                    ds, loss=LOSS, optimizer="adam(0.01)", metrics=["accuracy"], epochs=3, validation=ds, verbose=0,
                    class_weight={0: 2.0},
                ).history
                self.assertEqual(sorted(h), ["accuracy", "learning_rate", "loss", "val_accuracy", "val_loss"])
                for i, line in enumerate(wanted):
                    for name, values in h.items():
                        self.assertAlmostEqual(values[i], line[name], delta=1e-6 * abs(line[name]) + 1e-9)

    def test_replicas_change_nothing(self) -> None:
        losses = [fit(line_model(replicas=n), epochs=4).history["loss"] for n in (1, 2, 4)]
        np.testing.assert_allclose(losses[1:], [losses[0]] * 2, rtol=1e-5)

    def test_evaluate_and_predict(self) -> None:
        model = line_model(replicas=2)
        model.set_weights({"dense/kernel": [[2.0]], "dense/bias": [0.5]})
        self.assertAlmostEqual(model.evaluate(line_data(), loss="mse", metrics=["mae"])["loss"], 0.25, places=6)
        self.assertEqual(sorted(model.evaluate(line_data(), loss="mse", metrics=["mae"])), ["loss", "mae"])
        y = model.predict(line_data())
        self.assertEqual((y.shape, y.dtype, y.flags.writeable), ((8, 1), np.dtype(np.float32), True))
        np.testing.assert_allclose(y, 2 * np.arange(8).reshape(8, 1) / 8 + 0.5, rtol=1e-6)
        features = line_data().map(lambda x, y: x)
        np.testing.assert_array_equal(model.predict(features), y)
        self.assertEqual(model.predict(line_data().take(0)).shape, (0, 1))

    def test_several_outputs(self) -> None:
        model = Model("x = input(1); h = x.dense(2); a = h.dense(1); b = h.dense(2)")
        ds = mr.range(8).map(lambda i: ([mr.fn.cast(i, "float32")], {"a": [1.0], "b": [0.0, 1.0]})).batch(4)
        h = fit(model, ds, loss="mse", metrics=["a.mae"]).history
        self.assertEqual({"loss", "a_loss", "b_loss", "a_mae"} - set(h), set())
        self.assertEqual(model.evaluate(ds).keys(), {"loss", "a_loss", "b_loss", "a_mae"})
        self.assertEqual({k: v.shape for k, v in model.predict(ds).items()}, {"a": (8, 1), "b": (8, 2)})

    def test_steps_per_epoch(self) -> None:
        h = fit(line_model(), line_data().repeat(), epochs=3, steps_per_epoch=5)
        self.assertEqual((h.steps, h.epoch), (15, [0, 1, 2]))

    def test_a_second_fit_continues(self) -> None:
        once, twice = line_model(), line_model()
        whole = fit(once, epochs=4).history["loss"]
        parts = fit(twice, epochs=2).history["loss"] + fit(twice, epochs=2).history["loss"]
        self.assertEqual(parts, whole)

    def test_data_of_python_functions(self) -> None:
        ds = mr.range(8).map_py(lambda i: (np.float32([i]), np.float32([2 * i])), parallel="thread").batch(4)
        model = line_model()
        fit(model, ds, optimizer="sgd(0.01)", epochs=2)
        self.assertEqual(model.predict(ds).shape, (8, 1))


class Callbacks(Case):
    def test_methods_of_keras_are_called_in_order(self) -> None:
        calls: list[Any] = []

        class Listener:
            model: Any = None

            def on_train_begin(self, logs: Any = None) -> None:
                calls.append(("train_begin", logs))

            def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
                calls.append(("epoch_begin", epoch))

            def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
                calls.append(("batch_begin", batch))

            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                calls.append(("batch_end", batch, sorted(logs)))

            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                calls.append(("epoch_end", epoch, logs["loss"]))

            def on_train_end(self, logs: Any = None) -> None:
                calls.append(("train_end",))

        listener = Listener()
        model = line_model()
        h = fit(model, epochs=2, callbacks=[listener])
        self.assertIs(listener.model, model)
        self.assertEqual([c[0] for c in calls], ["train_begin"] + (
            ["epoch_begin"] + ["batch_begin", "batch_end"] * 2 + ["epoch_end"]
        ) * 2 + ["train_end"])
        self.assertEqual([c[1] for c in calls if c[0] == "epoch_begin"], [0, 1])
        self.assertEqual([c[1] for c in calls if c[0].startswith("batch")], [0, 0, 1, 1] * 2)
        self.assertEqual([c[2] for c in calls if c[0] == "epoch_end"], h.history["loss"])
        self.assertIn("loss", next(c for c in calls if c[0] == "batch_end")[2])

    def test_stop_training(self) -> None:
        class OfCallback:
            stop_training = False

            def on_epoch_end(self, epoch: int, logs: Any) -> None:
                self.stop_training = epoch == 1

        class OfModel:
            model: Any

            def on_epoch_end(self, epoch: int, logs: Any) -> None:
                if epoch == 2:
                    self.model.stop_training = True

        model, c = line_model(), OfCallback()
        for _ in range(2):
            self.assertEqual(fit(model, epochs=9, callbacks=[c]).epoch, [0, 1])
            self.assertEqual(fit(model, epochs=9, callbacks=[OfModel()]).epoch, [0, 1, 2])

    def test_an_exception_is_raised_by_fit(self) -> None:
        class Mine(Exception):
            pass

        class Fails:
            def __init__(self, method: str) -> None:
                setattr(self, method, self.fail)

            def fail(self, *arguments: Any) -> None:
                raise Mine("here")

        model = line_model()
        for method in ("on_train_begin", "on_epoch_begin", "on_train_batch_end", "on_epoch_end", "on_train_end"):
            with self.subTest(method=method), self.assertRaisesRegex(Mine, "here"):
                fit(model, callbacks=[Fails(method)])
        self.assertEqual(len(fit(model).epoch), 1)

    def test_callbacks_see_and_set_the_model(self) -> None:
        seen: list[Any] = []

        class Reader:
            model: Any

            def on_epoch_end(self, epoch: int, logs: Any) -> None:
                seen.append(self.model.weights["dense/kernel"].item())
                self.model.optimizer.learning_rate = 0.0
                seen.append(self.model.optimizer.iterations)

        model = line_model()
        fit(model, epochs=3, callbacks=[Reader()])
        self.assertEqual(seen[0::2], [seen[0]] * 3)
        self.assertEqual(seen[1::2], [2, 4, 6])
        self.assertIsNone(model.optimizer)

        class Nested:
            model: Any

            def on_epoch_end(self, epoch: int, logs: Any) -> None:
                self.model.evaluate(line_data(), loss="mse")

        with self.assertRaisesRegex(mr.FailedPrecondition, "at work"):
            fit(model, callbacks=[Nested()])

    def test_texts(self) -> None:
        path = self.at("log.csv")
        h = fit(line_model(), epochs=50, callbacks=[f'csv_logger("{path}")', "early_stopping(monitor='loss', min_delta=1.0)"])
        self.assertLess(len(h.epoch), 50)
        with open(path) as f:
            self.assertEqual(len(f.read().splitlines()), 1 + len(h.epoch))
        with self.assertRaisesRegex(mr.InvalidArgument, "early_stoping"):
            fit(line_model(), callbacks=["early_stoping()"])
        with self.assertRaisesRegex(TypeError, "on_epoch_end"):
            fit(line_model(), callbacks=[object()])
        with self.assertRaisesRegex(TypeError, r"not a class: write Case\(\)"):
            fit(line_model(), callbacks=[Case])

    def test_verbose_prints_a_line_for_each_epoch(self) -> None:
        code = (
            "import millrace as mr\nfrom millrace.trainer import Model\n"
            "m = Model('input(1).dense(1)')\nds = mr.from_tensor_slices(([[1.0]], [[1.0]])).batch(1)\n"
            "m.fit(ds, loss='mse', optimizer='sgd', epochs=2)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        self.assertRegex(done.stdout, r"^epoch 1/2  loss \d.*\nepoch 2/2  loss \d.*\n$")


class Weights(Case):
    def test_weights_are_copies_by_name(self) -> None:
        model = Model("input(2).dense(3).dense(1)", seed=1)
        w = model.weights
        self.assertEqual(
            {k: v.shape for k, v in w.items()},
            {"dense/kernel": (2, 3), "dense/bias": (3,), "dense_1/kernel": (3, 1), "dense_1/bias": (1,)},
        )
        w["dense/kernel"][:] = 5
        self.assertFalse((model.weights["dense/kernel"] == 5).any())
        other = Model("input(2).dense(3).dense(1)", replicas=2, seed=2)
        other.set_weights(w)
        for name, value in w.items():
            np.testing.assert_array_equal(other.weights[name], value)

    def test_wrong_weights_change_nothing(self) -> None:
        model = Model("input(2).dense(3)")
        before = model.weights
        for kind, message, weights in (
            (mr.InvalidArgument, "no variable 'kernel'", {"kernel": 1}),
            (mr.InvalidArgument, "no value for the variable 'dense/bias'", {"dense/kernel": np.ones((2, 3))}),
            (mr.InvalidArgument, r"'dense/bias' has the shape \(3,\)", before | {"dense/bias": [1.0]}),
            (TypeError, "dict", [1]),
        ):
            with self.subTest(message=message), self.assertRaisesRegex(kind, message):
                model.set_weights(weights)  # type: ignore[arg-type]
        np.testing.assert_array_equal(model.weights["dense/kernel"], before["dense/kernel"])
        with self.assertRaisesRegex(mr.FailedPrecondition, "input"):
            Model("dense(3)").weights

    def test_saved_models(self) -> None:
        model = line_model()
        fit(model, epochs=3, metrics=["mae"])
        model.save(self.at("saved"))
        loaded = Model.load(self.at("saved"), replicas=2)
        self.assertEqual(loaded.text, model.text)
        for name, value in model.weights.items():
            np.testing.assert_array_equal(loaded.weights[name], value)
        for name, x in model.evaluate(line_data()).items():
            self.assertAlmostEqual(loaded.evaluate(line_data())[name], x, places=6)
        self.assertEqual(sorted(loaded.evaluate(line_data())), ["loss", "mae"])
        # The command line reads it, and the package reads the command line's.
        data = 'range(8).map(i => ([cast(i, "float32") / 8.0], [cast(i, "float32") / 4.0])).batch(4)'
        (line,) = lines("evaluate", "--saved", self.at("saved"), "--data", data)
        self.assertAlmostEqual(line["eval_loss"], model.evaluate(line_data())["loss"], places=6)
        lines("train", "--data", data, "--model", model.text, "--loss", "mse", "--optimizer", "sgd(0.1)", "--epochs", "3",
              "--save", self.at("other"), "--log", "json")
        np.testing.assert_allclose(
            Model.load(self.at("other")).weights["dense/kernel"], model.weights["dense/kernel"], rtol=1e-6
        )
        with self.assertRaises(mr.NotFound):
            Model.load(self.at("none"))
        os.mkdir(self.at("full"))
        with open(self.at("full/file"), "w"):
            pass
        with self.assertRaises(mr.AlreadyExists):
            model.save(self.at("full"))


class Errors(Case):
    def test_bad_arguments_say_what_to_do(self) -> None:
        model: Any = line_model()
        wrong: Any = Model
        for kind, message, call in (
            (mr.InvalidArgument, "dens", lambda: Model("dens(1)")),
            (TypeError, "model is a text", lambda: wrong(3)),
            (mr.InvalidArgument, "exclude", lambda: Model("dense(1)", replicas=2, devices=["cpu:0"])),
            (mr.InvalidArgument, "replicas is at least 1", lambda: Model("dense(1)", replicas=0)),
            (mr.Error, "nonsense", lambda: Model("dense(1)", devices=["nonsense:0"])),
            (mr.InvalidArgument, "sideways", lambda: Model("dense(1)", strategy="sideways")),
            (mr.Unimplemented, "tpu|TPU", lambda: Model("dense(1)", strategy="tpu")),
            (TypeError, "data is a Dataset.*from_tensor_slices", lambda: fit(model, (1, 2))),  # type: ignore[arg-type]
            (mr.InvalidArgument, "mze", lambda: fit(model, loss="mze")),
            (mr.InvalidArgument, "sgdd", lambda: fit(model, optimizer="sgdd")),
            (mr.InvalidArgument, "accurac", lambda: fit(model, metrics=["accurac"])),
            (mr.InvalidArgument, "epochs is at least 1", lambda: fit(model, epochs=0)),
            (TypeError, "epochs is a number", lambda: fit(model, epochs=1.5)),
            (mr.InvalidArgument, "at most", lambda: fit(model, metrics=["mae"] * 17)),
            (mr.FailedPrecondition, "^the data are empty", lambda: fit(model, line_data().take(0))),
            (mr.FailedPrecondition, "^validation: the data are empty", lambda: fit(model, validation=line_data().take(0))),
            (mr.InvalidArgument, "1 component;", lambda: fit(model, mr.from_tensor_slices([[1.0]]).batch(1))),
            (TypeError, "class_weight is a dict.*not 'balanced'", lambda: fit(model, class_weight="balanced")),
            (mr.InvalidArgument, "a class is below 65536", lambda: fit(model, class_weight={65536: 1.0})),
            (mr.InvalidArgument, "the weight of class 1 is 1e\\+39", lambda: fit(model, class_weight=[1.0, 1e39])),
            (TypeError, "callbacks is a list", lambda: fit(model, callbacks=None)),
            (mr.NotFound, "not a saved model: it has no training.json", lambda: Model.load("/")),
            (mr.InvalidArgument, "loss=", lambda: line_model().evaluate(line_data())),
            (mr.Error, "", lambda: fit(model, mr.range(4).batch(2))),
            (TypeError, "pickled", lambda: pickle.dumps(model)),
        ):
            with self.subTest(message=message), self.assertRaisesRegex(kind, message):
                call()
        self.assertEqual(len(fit(model).epoch), 1)

    def test_an_error_of_the_data(self) -> None:
        ds = mr.range(8).map(lambda i: ([mr.fn.cast(10 // (i - 6), "float32")], [1.0])).batch(2)
        with self.assertRaises(mr.InvalidArgument) as caught:
            fit(line_model(), ds)
        self.assertIn("map", str(caught.exception))

    def test_a_closed_model(self) -> None:
        with line_model() as model:
            fit(model)
        with self.assertRaisesRegex(mr.FailedPrecondition, "closed"):
            fit(model)
        self.assertIn("closed", repr(model))

    def test_a_forked_child_is_refused(self) -> None:
        model = line_model(replicas=2)
        fit(model)
        kit.settle()
        pid = os.fork()
        if pid == 0:
            signal.alarm(60)
            try:
                fit(model)
            except mr.ForkError:
                del model
                os._exit(3)
            os._exit(4)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 3)
        fit(model)

    def test_interrupts_at_exit_leave_no_model(self) -> None:
        code = """
import atexit, os, signal, time
threads = lambda: len(os.listdir('/proc/self/task'))
def last():  # registered first: runs last
    for _ in range(3000):
        if threads() == 1:
            break
        time.sleep(0.02)
    print(threads(), repr(models[0]))
atexit.register(last)
import millrace as mr
from millrace import trainer
data = mr.from_tensor_slices(([[1.0], [2.0]], [[2.0], [4.0]])).batch(2)
models = [trainer.Model("input(1).dense(1)", replicas=2) for _ in range(3)]
for m in models:
    m.fit(data, loss="mse", optimizer="sgd(0.0)", verbose=0)
assert threads() > 1
def close(self, closed=trainer.Model.close):
    global left
    left -= 1
    if left > 2:
        signal.raise_signal(signal.SIGINT)
    closed(self)
    if left >= 0:
        signal.raise_signal(signal.SIGINT)
left = 5
trainer.Model.close = close
"""
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
        )
        self.assertEqual(
            (done.returncode, done.stdout, done.stderr), (0, "1 <closed millrace.trainer.Model>\n", "")
        )

    def test_ctrl_c_ends_fit(self) -> None:
        code = """
import os, signal, sys, threading, time
import millrace as mr
from millrace.trainer import Model
w = os.open(sys.argv[1], os.O_RDWR)
waiting = mr.text_line(sys.argv[1]).map(lambda s: ([mr.fn.to_number(s, "float32")],) * 2).batch(1)
endless = mr.range(10).map(lambda i: ([mr.fn.cast(i, "float32")],) * 2).repeat().batch(2)
for ds in (waiting, endless):
    model = Model("input(1).dense(1)", replicas=2)
    began = []
    def press():
        time.sleep(0.5)
        began.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)
    try:
        threading.Thread(target=press).start()
        model.fit(ds, loss="mse", optimizer="sgd(0.0)", verbose=0, steps_per_epoch=10**9)
    except KeyboardInterrupt:
        print("interrupted", time.monotonic() - began[0] < 60)
    print(model.fit(endless.take(3), loss="mse", optimizer="sgd(0.0)", verbose=0).steps)
"""
        os.mkfifo(self.at("pipe"))
        done = subprocess.run(
            [sys.executable, "-c", code, self.at("pipe")], capture_output=True, text=True, timeout=120, check=False
        )
        self.assertEqual(done.stdout.splitlines(), ["interrupted True", "3"] * 2, done.stderr)


class Interrupts(Case):
    def test_what_callbacks_met_is_raised(self) -> None:
        """Steps take long, so that Ctrl-C comes in one, and its handler runs as the callback begins."""

        class Callback:
            def on_train_batch_end(self, batch: int, logs: dict[str, float]) -> None:
                pass

        n = 512 if not kit.SANITIZED else 128
        model = Model(f"input({n})" + f".dense({n})" * 8 + ".dense(1)")
        ds = mr.range(10).map(lambda i: (mr.fn.ones([n]) * mr.fn.cast(i, "float32") * 1e-3, [0.0])).repeat().batch(256)
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        with self.assertRaises(KeyboardInterrupt):
            model.fit(ds, loss="mse", optimizer="sgd(0.0)", steps_per_epoch=10**9, verbose=0, callbacks=[Callback()])
        self.assertEqual(model.predict(ds.take(1)).shape, (256, 1))

    def test_a_step_is_applied_in_whole_or_not_at_all(self) -> None:
        """Steps take longer than the bound; what one has computed is dropped, unless it has begun its update."""
        n = 512 if not kit.SANITIZED else 128
        text = f"input({n})" + f".dense({n}, activation='relu')" * 6 + ".dense(1)"
        rows = mr.range(4).map(lambda i: (mr.fn.ones([n]) * mr.fn.cast(i, "float32") * 1e-3, [1.0])).repeat()

        class Steps:
            done = 0

            def on_train_batch_end(self, batch: int, logs: dict[str, float]) -> None:
                Steps.done += 1

        def train(replicas: int, **more: Any) -> dict[str, Any]:
            model = Model(text, replicas=replicas, seed=5)
            with contextlib.suppress(KeyboardInterrupt):
                model.fit(rows.batch(512), loss="mse", optimizer="adam", verbose=0, **more)
            return model.weights

        for replicas in (1, 2):
            for wait in (0.1, 0.4):
                Steps.done = 0
                timer = threading.Timer(wait, lambda: os.kill(os.getpid(), signal.SIGINT))
                timer.start()
                got = train(replicas, steps_per_epoch=10**6, callbacks=[Steps()])
                timer.join()
                wanted = [train(replicas, steps_per_epoch=k) for k in (Steps.done, Steps.done + 1) if k > 0]
                wanted += [] if Steps.done else [Model(text, replicas=replicas, seed=5).weights]
                same = [all(np.array_equal(got[k], w[k]) for k in w) for w in wanted]
                self.assertIn(True, same, f"{replicas} replicas, {Steps.done} steps")

    def test_fit_ends_within_a_step(self) -> None:
        """One step takes much longer than the bound."""
        n = 1024 if not kit.SANITIZED else 256
        model = Model(f"input({n})" + f".dense({n})" * 60 + ".dense(1)")
        ds = mr.range(10).map(lambda i: (mr.fn.ones([n]) * mr.fn.cast(i, "float32") * 1e-3, [0.0])).repeat().batch(1024)
        began = time.process_time()
        model.fit(ds, loss="mse", optimizer="sgd(0.0)", steps_per_epoch=1, verbose=0)
        step = time.process_time() - began
        spent: list[float] = []

        def interrupt() -> None:
            spent.append(time.process_time())
            os.kill(os.getpid(), signal.SIGINT)

        timer = threading.Timer(0.5, interrupt)
        with self.assertRaises(KeyboardInterrupt):
            timer.start()
            model.fit(ds, loss="mse", optimizer="sgd(0.0)", steps_per_epoch=10**9, verbose=0)
        # Processor time, which a busy machine does not stretch; three steps were in flight.
        self.assertLess(time.process_time() - spent[0], step / 2)
        timer.join()


class Elastic(Case):
    def test_it_continues_with_other_replicas(self) -> None:
        rows = mr.range(60).map(lambda i: ([mr.fn.cast(i, "float32") / 60], [mr.fn.cast(i, "float32") / 30]))
        ds = rows.shuffle(20, seed=1).batch(12)

        class Stop:
            def on_train_batch_end(self, batch: int, logs: dict[str, float]) -> None:
                if batch == 2:
                    raise KeyboardInterrupt

        def train(replicas: int, *callbacks: Any) -> dict[str, Any]:
            model = line_model(replicas=replicas, seed=3)
            fit(model, ds, epochs=2, elastic=6, callbacks=callbacks)
            return model.weights

        backup = f'backup_and_restore("{self.at("backup")}", save_freq=1)'
        want = train(1)
        with self.assertRaises(KeyboardInterrupt):
            train(2, backup, Stop())
        with self.assertRaisesRegex(mr.FailedPrecondition, "elastic"):
            fit(line_model(replicas=2, seed=3), ds, epochs=2, callbacks=[backup])
        got = train(3, backup)
        for name, values in want.items():
            np.testing.assert_allclose(got[name], values, rtol=1e-5)

    def test_numbers_are_checked(self) -> None:
        for bad, error, message in ((0, mr.InvalidArgument, "at least 1"), ("4", TypeError, "elastic is a number")):
            with self.subTest(elastic=bad), self.assertRaisesRegex(error, message):
                fit(line_model(), elastic=bad)
        with self.assertRaisesRegex(mr.InvalidArgument, "3 replicas cannot share 2"):
            fit(line_model(replicas=3), elastic=2)
        model = line_model(replicas=2)
        fit(model)
        plain, elastic = (model.evaluate(line_data(), elastic=n)["loss"] for n in (None, 2))
        self.assertAlmostEqual(plain, elastic, places=6)


class Resumes(Case):
    def test_changed_settings_and_epochs_that_begin_again(self) -> None:
        class Stop:
            def on_train_batch_end(self, batch: int, logs: dict[str, float]) -> None:
                if batch == 2:
                    raise KeyboardInterrupt

        backup = f'backup_and_restore("{self.at("backup")}", save_freq=1)'
        steps: list[int] = []

        class Count:
            def on_train_batch_end(self, batch: int, logs: dict[str, float]) -> None:
                steps.append(batch)

        with self.assertRaises(KeyboardInterrupt):
            fit(line_model(seed=3), line_data(16), callbacks=[backup, Stop()])
        with self.assertRaisesRegex(mr.FailedPrecondition, "optimizer/learning_rate is 0.2, was 0.1"):
            fit(line_model(seed=3), line_data(16), callbacks=[backup], optimizer="sgd(0.2)")
        again = {"optimizer": "sgd(0.2)", "resume_changed": True, "restart_epoch": True}
        fit(line_model(seed=3), line_data(16), callbacks=[backup, Count()], **again)
        self.assertEqual(steps, [0, 1, 2, 3])

    def test_validation_may_be_a_part(self) -> None:
        for steps, rows in ((1, 4), (None, 8)):
            history = fit(line_model(), validation=line_data(), validation_steps=steps, optimizer="sgd(0.0)").history
            self.assertAlmostEqual(history["val_loss"][0], float(np.mean((2 * np.arange(rows) / 8) ** 2)), places=6)
        with self.assertRaisesRegex(mr.InvalidArgument, "validation_steps is at least 1"):
            fit(line_model(), validation=line_data(), validation_steps=0)


class Ends(Case):
    def test_nothing_is_left(self) -> None:
        def once() -> None:
            model = line_model(replicas=2)
            fit(model)
            model.predict(line_data())

        once()
        threads, descriptors = kit.threads(), kit.descriptors()
        for _ in range(3):
            once()
        self.assertLessEqual(kit.wait_for_threads(threads), threads)
        self.assertLessEqual(kit.wait_for_descriptors(descriptors), descriptors)

    def test_an_interpreter_ends_with_models(self) -> None:
        code = "from millrace.trainer import Model\nm = Model('input(1).dense(1)', replicas=2)\nprint('made')"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, "made\n"), done.stderr)

    def test_the_library_is_loaded_when_it_is_needed(self) -> None:
        code = "import sys, millrace as mr\nprint('millrace.trainer' in sys.modules, 'libmillrace-trainer' in open('/proc/self/maps').read())"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "False False\n")


class Workers(Case):
    def test_two_processes_train_as_one(self) -> None:
        code = """
import json, sys
import millrace as mr
from millrace.trainer import Model
model = Model("input(1).dense(1, kernel_initializer=zeros)", strategy="multi_worker_mirrored", replicas=1)
ds = mr.range(8).map(lambda i: ([mr.fn.cast(i, "float32") / 8.0], [mr.fn.cast(i, "float32") / 4.0])).batch(4)
ds = ds.with_options(auto_shard_policy="DATA")
h = model.fit(ds, loss="mse", optimizer="sgd(0.1)", epochs=3, verbose=0)
model.save(sys.argv[1])
print(json.dumps([h.history["loss"], model.evaluate(ds)["loss"]]))
"""
        with open(self.at("token"), "w") as f:
            f.write("token of the test\n")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
                        "/CN=test", "-keyout", self.at("key"), "-out", self.at("cert")], check=True, capture_output=True)
        secured = {"MILLRACE_TLS_CERT": self.at("cert"), "MILLRACE_TLS_KEY": self.at("key"),
                   "MILLRACE_TLS_CA": self.at("cert"), "MILLRACE_CLUSTER_TOKEN_FILE": self.at("token")}
        for more in {}, secured:
            self.train_as_one(code, more)
        cluster = json.dumps({"cluster": {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}, "task": {"type": "worker", "index": 0}})
        done = subprocess.run([sys.executable, "-c", code, self.at("saved")], capture_output=True, text=True,
                              env=os.environ | {"TF_CONFIG": cluster, "MILLRACE_CLUSTER_TOKEN_FILE": self.at("none")})
        self.assertIn("NotFound: " + self.at("none"), done.stderr)

    def train_as_one(self, code: str, more: dict[str, str]) -> None:
        cluster = {"worker": [f"127.0.0.1:{kit.free_port()}" for _ in range(2)]}
        running = []
        for i in range(2):
            env = os.environ | more | {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": i}})}
            command = [sys.executable, "-c", code, self.at("saved")]
            running.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        outputs = [p.communicate(timeout=120) for p in running]
        self.assertEqual([p.returncode for p in running], [0, 0], outputs)
        got = [json.loads(out) for out, _ in outputs]
        alone = line_model()
        h = fit(alone, epochs=3)
        for losses, loss in got:
            np.testing.assert_allclose(losses, h.history["loss"], rtol=1e-5)
            self.assertAlmostEqual(loss, alone.evaluate(line_data())["loss"], places=5)
        np.testing.assert_allclose(Model.load(self.at("saved")).weights["dense/kernel"], alone.weights["dense/kernel"], rtol=1e-5)


if __name__ == "__main__":
    kit.main()
