# SPDX-License-Identifier: Apache-2.0
"""Models that the library trains, on one device or on several, with Keras's names.

    from millrace.trainer import Model

    model = Model("flatten().dense(128, activation='relu').dense(10)", replicas=2)
    model.fit(train, loss="sparse_categorical_crossentropy", optimizer="adam", metrics=["accuracy"], epochs=3)
    model.evaluate(test)
    model.save("digits")

The texts of models, losses, optimizers, metrics and callbacks are those of `millrace train`, which
computes the same numbers with the same seed; `millrace components` lists what they are made of.
"""

from __future__ import annotations

import atexit
import math
import os
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Union

import numpy as np

from . import _fast
from ._callbacks import callback, close_all, finalizer
from ._dataset import Dataset
from ._errors import FailedPrecondition, ForkError, InvalidArgument, check, text_of
from ._ffi import lib as core
from ._iterator import _address
from ._python import fail
from ._trainer_ffi import ffi, lib

_Path = Union[str, "os.PathLike[str]"]
Array = np.ndarray[Any, Any]


def _chars(text: str) -> Any:
    return ffi.new("char[]", text.encode("utf-8", "surrogateescape"))


def _text(name: str, x: Any) -> str:
    if not isinstance(x, str):
        raise TypeError(f"{name} is a text, as of millrace train --{name}, not {x!r:.80}")
    return x


def _texts(name: str, x: str | Iterable[str]) -> tuple[str, ...]:
    return (x,) if isinstance(x, str) else tuple(_text(name, m) for m in x)


def _number(name: str, x: Any, least: int) -> int:
    if isinstance(x, bool) or not isinstance(x, (int, np.integer)):
        raise TypeError(f"{name} is a number, not {x!r:.80}")
    if x < least:
        raise InvalidArgument(f"{name} is at least {least}, not {x}")
    return int(x)


def _dataset(name: str, x: Any) -> Any:
    if not isinstance(x, Dataset):
        hint = "; mr.from_tensor_slices((x, y)).batch(32) makes one of arrays" if isinstance(x, (tuple, np.ndarray)) else ""
        raise TypeError(f"{name} is a Dataset, not {type(x).__name__}{hint}")
    return x._pointer()


def _parsed(kind: str, text: str) -> Any:
    """A loss, an optimizer, or a metric."""
    out, st = ffi.new(f"mr_{kind} **"), ffi.new("mr_status *")
    check(getattr(lib, f"mr_{kind}_parse")(out, _chars(text), st), st)
    return ffi.gc(out[0], getattr(lib, f"mr_{kind}_free"))


class History:
    """What `fit` returns.

    Attributes:
        history: for each name ("loss", "accuracy", "val_loss", "learning_rate") a list with a value for
            each epoch.
        epoch: the numbers of the epochs, from 0.
        steps, seconds: of all epochs.
    """

    def __init__(self, history: dict[str, list[float]], epoch: list[int], steps: int, seconds: float) -> None:
        self.history = history
        self.epoch = epoch
        self.steps = steps
        self.seconds = seconds

    def __repr__(self) -> str:
        last = ", ".join(f"{k} {v[-1]:.4g}" for k, v in self.history.items() if v)
        return f"<millrace.trainer.History of {len(self.epoch)} epochs: {last}>"


class Optimizer:
    """The optimizer of a running `fit`, for callbacks: `self.model.optimizer`."""

    def __init__(self, pointer: Any) -> None:
        self._pointer = pointer

    def _check(self) -> Any:
        if self._pointer is None:
            raise FailedPrecondition("the fit that this optimizer belongs to has ended")
        return self._pointer

    @property
    def learning_rate(self) -> float:
        """Of the next update. Setting it ends a schedule."""
        return float(lib.mr_optimizer_learning_rate(self._check()))

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        lib.mr_optimizer_set_learning_rate(self._check(), float(rate))

    @property
    def iterations(self) -> int:
        """Updates so far."""
        return int(lib.mr_optimizer_iterations(self._check()))


# ---- callbacks ----

_EVENTS = ("train_begin", "epoch_begin", "batch_begin", "batch_end", "epoch_end", "train_end")
_METHODS = {e: (f"on_{e}",) if "batch" not in e else (f"on_train_{e}", f"on_{e}") for e in _EVENTS}


def _method(callback: Any, names: Sequence[str]) -> Callable[..., Any] | None:
    """The first of these methods that does something: Keras's Callback has all of them, empty."""
    for name in names:
        found = getattr(callback, name, None)
        if not callable(found):
            continue
        owner = next((c for c in type(callback).__mro__ if name in vars(c)), None)
        if owner is None or not (owner.__name__ == "Callback" and owner.__module__.startswith(("keras.", "tensorflow."))):
            return found  # type: ignore[no-any-return]
    return None


class _Callback:
    """An object with Keras's methods, as the library calls it."""

    def __init__(self, run: _Run, callback: Any) -> None:
        if isinstance(callback, type):
            raise TypeError(f"a callback is an object, not a class: write {callback.__name__}()")
        self.run = run
        self.callback = callback
        self.methods = {e: m for e in _EVENTS if (m := _method(callback, _METHODS[e])) is not None}
        if not self.methods:
            names = ", ".join(n[0] for n in _METHODS.values())
            raise TypeError(
                f"callbacks are texts, as in 'early_stopping(patience=3)', or objects with methods such as {names}; "
                f"{callback!r:.80} has none of them"
            )
        self.handle: Any = ffi.new_handle(self)

    def prepare(self, params: dict[str, Any]) -> None:
        if hasattr(self.callback, "set_model"):
            self.callback.set_model(self.run.model)
        else:
            self.callback.model = self.run.model
        if hasattr(self.callback, "set_params"):
            self.callback.set_params(params)
        if getattr(self.callback, "stop_training", False):
            self.callback.stop_training = False  # of an earlier fit

    def fill(self, c: Any) -> None:
        c.ctx = self.handle
        for e in self.methods:
            setattr(c, e, getattr(lib, f"mrpy_{e}"))
        c.wants_loss = "batch_end" in self.methods

    def call(self, event: str, e: Any) -> bool:
        """Whether training stops."""
        logs = {} if event.endswith("begin") else _logs(e)
        if event.startswith("train"):
            self.methods[event](logs)
        else:
            self.methods[event](int(e.epoch if event.startswith("epoch") else e.epoch_step) - 1, logs)
        return bool(self.run.model.stop_training or getattr(self.callback, "stop_training", False))


def _logs(e: Any) -> dict[str, float]:
    out = {}
    name, value = ffi.new("char[]", 256), ffi.new("double *")
    i = 0
    while lib.mr_train_value_name(e, i, name, 256):
        if lib.mr_train_value(e, name, value):
            out[text_of(name)] = float(value[0])
        i += 1
    return out


class _Progress:
    """Prints a line for each epoch, as `millrace train` does."""

    def __init__(self, epochs: int) -> None:
        self.epochs = epochs

    def on_epoch_end(self, epoch: int, logs: dict[str, float]) -> None:
        values = "  ".join(f"{k} {v:.3g}" if k == "learning_rate" else f"{k} {v:.4f}" for k, v in logs.items())
        print(f"epoch {epoch + 1}/{self.epochs}  {values}", flush=True)


def _event(name: str) -> Callable[[Any, Any, Any], int]:
    def call(ctx: Any, e: Any, st: Any) -> int:
        callback: _Callback = ffi.from_handle(ctx)
        try:
            return int(lib.MR_END if callback.call(name, e) else lib.MR_OK)
        except BaseException as why:  # raised again by _Run
            return callback.run.failed(why, st)

    return call


for _name in _EVENTS:
    callback(f"mrpy_{_name}", ffi=ffi)(_event(_name))


@callback(ffi=ffi)
def mrpy_print(ctx: Any, text: Any, json: Any) -> None:
    print(text_of(text), flush=True)


@callback(ffi=ffi)
def mrpy_predicted(ctx: Any, predictions: Any, st: Any) -> int:
    run: _Run = ffi.from_handle(ctx)
    try:
        for i, parts in enumerate(run.predicted):
            a = predictions[i]
            shape = tuple(int(a.shape[k]) for k in range(a.rank))
            size = math.prod(shape) * 4
            values = np.frombuffer(bytes(ffi.buffer(a.data, size)) if size else b"", np.float32)
            parts.append(values.reshape(shape))
        return int(lib.MR_OK)
    except BaseException as why:
        return run.failed(why, st)


class _Run:
    """A call of fit, evaluate or predict: its options, and what keeps them alive."""

    def __init__(self, model: Model, metrics: Sequence[str] = ()) -> None:
        self.model = model
        self.raised: BaseException | None = None
        self.predicted: list[list[Array]] = []
        self.handle: Any = ffi.new_handle(self)
        made, st = ffi.new("mr_cancel **"), ffi.new("mr_status *")
        check(core.mr_cancel_new(ffi.NULL, made, st), st)
        self.cancel = ffi.gc(made[0], core.mr_cancel_unref)
        self.iterator = ffi.new("mr_iterator_opts *")
        self.iterator.cancel = self.cancel
        if model.seed is not None:
            self.iterator.has_seed, self.iterator.seed = True, model.seed & 0xFFFFFFFFFFFFFFFF
        self.opts = ffi.new("mr_fit_opts *")
        self.opts.iterator = self.iterator
        self.opts.seed = self.iterator.seed
        if len(metrics) > lib.MR_MAX_METRICS:
            raise InvalidArgument(f"at most {lib.MR_MAX_METRICS} metrics, not {len(metrics)}")
        for m in metrics:
            _parsed("metric", m)
        self.metrics = [_chars(m) for m in metrics]
        self.names = ffi.new("const char *[]", self.metrics or [ffi.NULL])
        self.opts.metrics, self.opts.n_metrics = self.names, len(metrics)

    def failed(self, why: BaseException, st: Any) -> int:
        if self.raised is None:
            self.raised = why
        return fail(st, "ABORTED", f"a Python function raised {type(why).__name__}: {why}")

    def __call__(self, call: Callable[[Any], int]) -> None:
        """Ctrl-C ends it; what a callback raised is raised."""
        model = self.model
        if model._running:
            raise FailedPrecondition("the model is at work: its callbacks cannot call fit, evaluate or predict")
        model._running = True
        st = ffi.new("mr_status *")

        def run() -> None:
            code = call(st)
            if code < 0 and self.raised is not None:
                raise self.raised
            check(code, st)

        try:
            _fast.guarded(0, _address(self.cancel), run)
        finally:
            model._running = False
            self.raised = self.handle = None  # a handle refers to its object: a circle

    def values(self, result: Any) -> dict[str, float]:
        out = {"loss": float(result.loss)}
        for i in range(result.outputs.n):
            out[text_of(result.outputs.names[i]) + "_loss"] = float(result.outputs.values[i])
        name = ffi.new("char[]", 256)
        for i in range(len(self.metrics)):
            lib.mr_metric_value_name(self.names, i, name, 256)
            out[text_of(name)] = float(result.metrics[i])
        return out


# ---- models ----


class Model:
    """A model from text, in Keras's names, whose replicas are trained as one.

        >>> import millrace as mr
        >>> from millrace.trainer import Model
        >>> model = Model("input(1).dense(1, kernel_initializer=zeros)", replicas=2)
        >>> ds = mr.from_tensor_slices(([[1.0], [2.0]], [[2.0], [4.0]])).batch(2)
        >>> h = model.fit(ds, loss="mse", optimizer="sgd(0.1)", epochs=20, verbose=0)
        >>> h.history["loss"][0], model.predict(ds).shape
        (10.0, (2, 1))

    Args:
        text: for example "flatten().dense(128, activation='relu').dense(10)".
        strategy: how replicas share variables: "mirrored", "one_device", "central_storage",
            "multi_worker_mirrored" (the processes that TF_CONFIG, torchrun, Slurm or MPI describe),
            "parameter_server" or "default".
        replicas: how many; None: one for each accelerator, or one.
        devices: a replica on each of these, such as ["cuda:0", "cuda:1"].
        seed: of initial values, dropout, and the random operations of data; None: 0, and data at random.

    Raises InvalidArgument for a text that is not a model, NotFound for a missing device.

    Attributes:
        text, seed: as given.
        stop_training: a callback that sets it ends `fit` after the step.
    """

    def __init__(
        self,
        text: str,
        *,
        strategy: str = "mirrored",
        replicas: int | None = None,
        devices: str | Sequence[str] | None = None,
        seed: int | None = None,
    ) -> None:
        self._owned: Any = ffi.gc(ffi.new("mrpy_model *"), lib.mrpy_model_free)  # None: closed
        self._owned.process = os.getpid()
        self._generation = _fast.generation()
        self._running = False
        self._loss: str | None = None
        self._optimizer: str | None = None
        self._metrics: tuple[str, ...] = ()
        self._current: Optimizer | None = None
        self.stop_training = False
        self.text = _text("model", text)
        self.seed = None if seed is None else _number("seed", seed, -(1 << 63))
        st = ffi.new("mr_status *")
        _models.add(self)
        check(lib.mr_model_parse(ffi.addressof(self._owned, "model"), _chars(text), st), st)
        self._open(strategy, replicas, devices)
        rank, shape = ffi.new("int *"), ffi.new("const int64_t **")
        lib.mr_model_input_shape(self._model, rank, shape)
        if rank[0] >= 0:
            opts = ffi.new("mr_model_opts *")
            opts.seed = (self.seed or 0) & 0xFFFFFFFFFFFFFFFF
            sizes = ffi.new("int64_t[]", [shape[0][i] for i in range(rank[0])] or [0])
            check(lib.mr_model_build(self._model, self._strategy, rank[0], sizes, opts, st), st)

    def _open(self, strategy: str, replicas: int | None, devices: str | Sequence[str] | None) -> None:
        if replicas is not None and devices is not None:
            raise InvalidArgument("replicas and devices exclude each other: there is a replica on each device")
        opts = ffi.new("mr_strategy_opts *")
        names = [] if devices is None else devices.split(",") if isinstance(devices, str) else list(devices)
        kept = [_chars(_text("devices", d)) for d in names]
        list_ = ffi.new("const char *[]", kept or [ffi.NULL])
        if devices is not None:
            opts.devices, opts.n_devices = list_, len(kept)
        if replicas is not None:
            opts.num_replicas = _number("replicas", replicas, 1)
        cluster = ffi.gc(ffi.new("mr_cluster *"), core.mr_cluster_reset)
        st = ffi.new("mr_status *")
        check(core.mr_cluster_from_launcher(cluster, st), st)
        facts = ffi.new("mr_job_fact[]", 2)
        texts = [_chars(x) for x in ("model", self.text, "seed", "none" if self.seed is None else str(self.seed))]
        facts[0].name, facts[0].value, facts[1].name, facts[1].value = texts
        made = ffi.new("mr_cancel **")
        check(core.mr_cancel_new(ffi.NULL, made, st), st)
        cancel = ffi.gc(made[0], core.mr_cancel_unref)
        workers = ffi.new("mr_workers_opts *")
        workers.cluster, workers.facts, workers.n_facts, workers.cancel = cluster, facts, 2, cancel
        out = ffi.addressof(self._owned, "strategy")
        name = _chars(_text("strategy", strategy))
        _fast.guarded(
            0, _address(cancel), lambda: check(lib.mr_strategy_by_name(out, name, opts, workers, st), st)
        )

    @classmethod
    def load(
        cls,
        path: _Path,
        *,
        strategy: str = "mirrored",
        replicas: int | None = None,
        devices: str | Sequence[str] | None = None,
        seed: int | None = None,
    ) -> Model:
        """A saved model with its weights: a folder that `save` or `millrace train --save` wrote, a
        checkpoint, or a folder of checkpoints, of which it is the latest.

        Raises NotFound without such a folder, DataLoss if a file is damaged."""
        out, st = ffi.new("mr_saved **"), ffi.new("mr_status *")
        check(lib.mr_saved_open(out, os.fsencode(path), st), st)
        saved = ffi.gc(out[0], lib.mr_saved_close)
        model = cls(
            text_of(lib.mr_saved_model_text(saved)), strategy=strategy, replicas=replicas, devices=devices, seed=seed
        )
        check(lib.mr_saved_build(saved, model._model, model._strategy, ffi.NULL, st), st)
        loss, optimizer = lib.mr_saved_loss(saved), lib.mr_saved_optimizer(saved)
        model._loss = None if loss == ffi.NULL else text_of(loss)
        model._optimizer = None if optimizer == ffi.NULL else text_of(optimizer)
        model._metrics = tuple(text_of(lib.mr_saved_metric(saved, i)) for i in range(lib.mr_saved_n_metrics(saved)))
        return model

    @property
    def _model(self) -> Any:
        return self._owned.model

    @property
    def _strategy(self) -> Any:
        return self._owned.strategy

    def _pointer(self) -> Any:
        if self._owned is None:
            raise FailedPrecondition("the model is closed")
        if self._generation != _fast.generation():
            raise ForkError(
                "this model was made in the parent process, and its threads are not in this one; "
                "make it after the fork, or load it from a saved one"
            )
        return self._model

    def _built(self) -> Any:
        model = self._pointer()
        if not lib.mr_model_is_built(model):
            raise FailedPrecondition(
                "the model has no weights yet, as its text does not say the shape of an example: begin it with "
                "input(28, 28), or call fit first"
            )
        return model

    # ---- training

    def fit(
        self,
        data: Dataset,
        *,
        loss: str,
        optimizer: str,
        metrics: str | Iterable[str] = (),
        epochs: int = 1,
        validation: Dataset | None = None,
        callbacks: Iterable[Any] = (),
        steps_per_epoch: int | None = None,
        validation_steps: int | None = None,
        class_weight: Mapping[int, float] | Sequence[float] | None = None,
        verbose: int = 1,
        elastic: int | None = None,
        resume_changed: bool = False,
        restart_epoch: bool = False,
    ) -> History:
        """Trains, beginning with the weights that the model has and with a new optimizer.

        Args:
            data: (features, labels), or (features, labels, weights of the examples), batched with the
                rows of all replicas in a step.
            loss: for example "sparse_categorical_crossentropy"; of several outputs {"a": mse, "b": mae}.
            optimizer: for example "adam(learning_rate=0.001)".
            metrics: for example ["accuracy", "top_k(k=5)"].
            epochs: passes over the data, or as many times steps_per_epoch.
            validation: evaluated after each epoch; its values are named val_loss and so on.
            callbacks: texts such as "early_stopping(patience=3)", or objects with Keras's methods:
                on_epoch_end(epoch, logs) and on_epoch_begin, with epochs from 0, on_train_batch_begin
                and _end(batch, logs), on_train_begin and _end(logs). They have `self.model`, and may
                set `self.stop_training` or `self.model.stop_training`. on_train_batch_end waits for
                each step, which costs speed.
            steps_per_epoch: None: an epoch is one pass.
            validation_steps: batches of validation; None: all.
            class_weight: by which the losses of a class are multiplied: {3: 2.0}, or a list from class
                0 on; others count 1.
            verbose: 0: prints nothing; else a line for each epoch.
            elastic: cuts the data into this number of streams, as of `mr.distribute_dataset`: with the
                callback "backup_and_restore(...)" the job continues with any number of processes and
                replicas up to that. None: what the graph's `with_options(elastic_streams=...)` says,
                else the job is not elastic.
            resume_changed: "backup_and_restore(...)" continues a backup of a run with another seed, or
                other settings of the model, the loss or the optimizer, and logs the differences; otherwise
                the backup is refused.
            restart_epoch: begin the interrupted epoch again, with the weights of the backup: needed
                where the rest of the epoch cannot be read in its order.

        Raises what the data or callbacks raise, and InvalidArgument for shapes and types that do not
        fit. Ctrl-C ends it at once; the weights are those of the last step that began its update. On
        GPUs and in jobs of several processes the steps that have begun end first, at most three.
        """
        run = _Run(self, _texts("metrics", metrics))
        losses, opt = _parsed("loss", _text("loss", loss)), _parsed("optimizer", _text("optimizer", optimizer))
        opts, pointer, st = run.opts, _dataset("data", data), ffi.new("mr_status *")
        opts.epochs = _number("epochs", epochs, 1)
        if elastic is not None:
            opts.elastic_streams = _number("elastic", elastic, 1)
        if steps_per_epoch is not None:
            opts.steps_per_epoch = _number("steps_per_epoch", steps_per_epoch, 1)
        if validation_steps is not None:
            opts.validation_steps = _number("validation_steps", validation_steps, 1)
        opts.resume_changed, opts.restart_epoch = bool(resume_changed), bool(restart_epoch)
        if validation is not None:
            opts.validation = _dataset("validation", validation)
        weights = _class_weights(class_weight)
        if weights is not None:
            opts.class_weights, opts.n_class_weights = weights, len(weights)
        made = ffi.new("mr_history **")
        check(lib.mr_history_new(made, st), st)
        history = opts.history = ffi.gc(made[0], lib.mr_history_free)
        opts.print = lib.mrpy_print
        if not isinstance(callbacks, (str, Iterable)):
            raise TypeError(f"callbacks is a list of texts and objects, not {callbacks!r:.80}")
        wanted: list[Any] = [callbacks] if isinstance(callbacks, str) else list(callbacks)
        if verbose:
            wanted.insert(0, _Progress(epochs))
        parsed = ffi.new("mr_callback[]", max(len(wanted), 1))
        objects: list[_Callback] = []
        model, strategy = self._pointer(), self._strategy
        result = ffi.new("mr_fit_result *")

        def work(st: Any) -> int:
            check(lib.mr_check_data(strategy, pointer, opts, st), st)
            if opts.validation != ffi.NULL:
                code = lib.mr_check_data(strategy, opts.validation, opts, st)
                if code:
                    lib.mr_status_prefix(st, b"validation")
                check(code, st)
            return int(lib.mr_fit(strategy, model, pointer, losses, opt, opts, result, st))

        self.stop_training = False
        current = self._current = Optimizer(opt)
        try:
            for c, x in zip(parsed, wanted):
                if isinstance(x, str):
                    check(lib.mr_callback_parse(ffi.addressof(c), _chars(x), st), st)
                else:
                    objects.append(_Callback(run, x))
                    objects[-1].fill(c)
            params = {"epochs": epochs, "steps": steps_per_epoch, "verbose": verbose}
            for o in objects:
                o.prepare(params)
            opts.callbacks, opts.n_callbacks = parsed, len(wanted)
            run(work)
        finally:
            self._current = current._pointer = None
            for c in parsed:
                lib.mr_callback_reset(ffi.addressof(c))
            for o in objects:
                o.handle = None
            ffi.release(opt)  # it has memory of the strategy's devices, which an exception must not keep
        self._loss, self._optimizer, self._metrics = loss, optimizer, tuple(_texts("metrics", metrics))
        return _history_of(history, result)

    @property
    def optimizer(self) -> Optimizer | None:
        """That of the running `fit`, for callbacks; None: it does not run."""
        return self._current

    def evaluate(
        self,
        data: Dataset,
        *,
        loss: str | None = None,
        metrics: str | Iterable[str] = (),
        elastic: int | None = None,
    ) -> dict[str, float]:
        """Loss and metrics over data, without training.

        Args:
            data: as for `fit`.
            loss: None: that of training, as of a saved model.
            metrics: if empty, those of training.
            elastic: as for `fit`.
        """
        names = _texts("metrics", metrics) or self._metrics
        text = self._loss if loss is None else _text("loss", loss)
        if text is None:
            raise InvalidArgument("the model was not trained, or saved without a loss: give loss=")
        run, losses, pointer = _Run(self, names), _parsed("loss", text), _dataset("data", data)
        if elastic is not None:
            run.opts.elastic_streams = _number("elastic", elastic, 1)
        model, strategy = self._pointer(), self._strategy
        result = ffi.new("mr_fit_result *")
        run(lambda st: int(lib.mr_evaluate(strategy, model, pointer, losses, run.opts, result, st)))
        return run.values(result)

    def predict(self, data: Dataset) -> Any:
        """The outputs for all of data, in its order: a float32 array [rows, ...], which is yours; of
        several outputs a dict of arrays by their names. In a job of several processes only the first
        gets them.

        Args:
            data: features, or tuples that begin with them, batched.
        """
        run, pointer = _Run(self), _dataset("data", data)
        model, strategy = self._pointer(), self._strategy
        handle = run.handle
        n = int(lib.mr_model_n_outputs(model))
        run.predicted = [[] for _ in range(n)]
        run(lambda st: int(lib.mr_predict(strategy, model, pointer, lib.mrpy_predicted, handle, run.opts, st)))
        arrays = [np.concatenate(p) if p else self._no_output(i) for i, p in enumerate(run.predicted)]
        if n == 1:
            return arrays[0]
        return {text_of(lib.mr_model_output_name(model, i)): a for i, a in enumerate(arrays)}

    def _no_output(self, i: int) -> Array:
        rank, shape = ffi.new("int *"), ffi.new("const int64_t **")
        lib.mr_model_output_shape_of(self._model, i, rank, shape)
        return np.empty((0, *(int(shape[0][k]) for k in range(max(rank[0], 0)))), np.float32)

    # ---- weights

    def _variables(self) -> dict[str, tuple[Any, tuple[int, ...]]]:
        model = self._built()
        out = {}
        for i in range(lib.mr_model_n_variables(model)):
            v = lib.mr_model_variable(model, i)
            shape = tuple(int(lib.mr_variable_shape(v)[k]) for k in range(lib.mr_variable_rank(v)))
            out[text_of(lib.mr_variable_name(v))] = (v, shape)
        return out

    @property
    def weights(self) -> dict[str, Array]:
        """Copies of all variables, float32, by their names: "dense/kernel". Those of a saved model are
        the same.

        Raises FailedPrecondition before a model whose text has no input() is trained."""
        out, st = {}, ffi.new("mr_status *")
        for name, (v, shape) in self._variables().items():
            array = np.empty(shape, np.float32)
            check(lib.mr_variable_read(v, ffi.cast("float *", array.ctypes.data), st), st)
            out[name] = array
        return out

    def set_weights(self, weights: Mapping[str, Any]) -> None:
        """Sets all variables to the values of a dict like `weights`. If names or shapes differ, none is
        changed.

        Raises InvalidArgument that names the difference."""
        variables, values = self._variables(), {}
        if not isinstance(weights, Mapping):
            raise TypeError(f"weights are a dict of arrays by name, as model.weights is, not {type(weights).__name__}")
        for name in weights:
            if name not in variables:
                raise InvalidArgument(f"the model has no variable {name!r}; its variables are {', '.join(variables)}")
        for name, (_, shape) in variables.items():
            if name not in weights:
                raise InvalidArgument(f"there is no value for the variable {name!r}")
            values[name] = np.ascontiguousarray(weights[name], np.float32)
            if values[name].shape != shape:
                raise InvalidArgument(f"{name!r} has the shape {shape}, and its value {values[name].shape}")
        st = ffi.new("mr_status *")
        for name, (v, _) in variables.items():
            check(lib.mr_variable_assign(v, ffi.cast("float *", values[name].ctypes.data), st), st)

    def save(self, path: _Path) -> None:
        """Saves the model in a folder, with the texts of the loss, the optimizer and the metrics that it
        was trained with. A saved model that is there is replaced at once; a folder with anything else is
        an error.

        Raises AlreadyExists for such a folder, FailedPrecondition as `weights`."""
        model, st = self._built(), ffi.new("mr_status *")
        if lib.mr_strategy_worker(self._strategy) > 0:
            return  # the first process writes it
        opts = ffi.new("mr_save_opts *")
        kept: list[Any] = [_chars(m) for m in self._metrics]
        names = ffi.new("const char *[]", kept or [ffi.NULL])
        opts.metrics, opts.n_metrics = names, len(kept)
        if self._loss is not None:
            kept.append(_parsed("loss", self._loss))
            opts.loss = kept[-1]
        if self._optimizer is not None:
            kept.append(_parsed("optimizer", self._optimizer))
            opts.optimizer = kept[-1]
        check(lib.mr_model_save(model, os.fsencode(path), opts, st), st)

    # ---- the end

    def close(self) -> None:
        """Ends its threads and frees its memory, as dropping it does."""
        owned, self._owned = self._owned, None
        if owned is not None:
            ffi.release(owned)

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @finalizer
    def __del__(self) -> None:
        if getattr(self, "_owned", None) is not None:
            self.close()

    def __reduce__(self) -> Any:
        raise TypeError("models cannot be pickled; save the model, or pickle its text and weights")

    def __repr__(self) -> str:
        if self._owned is None or self._strategy == ffi.NULL:
            return "<closed millrace.trainer.Model>"
        n = lib.mr_strategy_num_replicas_in_sync(self._strategy)
        return f"<millrace.trainer.Model {self.text}: {text_of(lib.mr_strategy_name(self._strategy))}, {n} replicas>"


def _class_weights(x: Mapping[int, float] | Sequence[float] | None) -> Any:
    if x is None:
        return None
    if not isinstance(x, (Mapping, Sequence, np.ndarray)) or isinstance(x, (str, bytes)):
        raise TypeError(f"class_weight is a dict of weights by class, or a list of them, not {x!r:.80}")
    given = x if isinstance(x, Mapping) else dict(enumerate(x))
    for k in given:
        if _number("a class", k, 0) >= lib.MR_MAX_CLASS_WEIGHTS:
            raise InvalidArgument(f"a class is below {lib.MR_MAX_CLASS_WEIGHTS}, not {k}")
    values = [1.0] * (max(given, default=-1) + 1)
    for k, v in given.items():
        values[k] = float(v)
    return ffi.new("double[]", values) if values else None


def _history_of(h: Any, result: Any) -> History:
    n = lib.mr_history_epochs(h)
    numbers = lib.mr_history_epoch_numbers(h)
    history = {}
    for i in range(lib.mr_history_n_names(h)):
        name = lib.mr_history_name(h, i)
        values = lib.mr_history_values(h, name)
        history[text_of(name)] = [float(values[k]) for k in range(n)]
    return History(history, [int(numbers[k]) - 1 for k in range(n)], int(result.steps), float(result.seconds))


def _at_exit() -> None:
    close_all(_models, Model.close)


_models: weakref.WeakSet[Model] = weakref.WeakSet()
atexit.register(_at_exit)
