"""What fit(), evaluate() and predict() of sidereal.keras take and tell: kinds of data, callbacks
beside Keras', steps of one's own, and messages."""

from __future__ import annotations

import csv
import pathlib
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from keras_peer import QUIET, parameters, peer

import sidereal as sr
from sidereal import keras
from sidereal.keras import callbacks, layers

pytestmark = QUIET

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 3)).astype("f")
Y = (X @ np.array([[1.0], [-2.0], [0.5]])).astype("f")
FIT: dict[str, Any] = {"epochs": 2, "shuffle": False, "verbose": 0, "batch_size": 6}


def linear(k: Any = keras, **told: Any) -> Any:
    model = k.Sequential([k.Input((3,)), k.layers.Dense(1, kernel_initializer="ones")])
    model.compile(**{"optimizer": "sgd", "loss": "mse", **told})
    return model


def batches(epochs: int = 1, weights: Any = None) -> Iterator[Any]:
    for _ in range(epochs):
        for begin in range(0, 24, 6):
            part = slice(begin, begin + 6)
            yield (X[part], Y[part]) if weights is None else (X[part], Y[part], weights[part])


def test_no_epochs_change_nothing() -> None:
    model = linear()
    before = model.get_weights()
    history = model.fit(X, Y, epochs=0, verbose=0)
    assert history.history == {}
    assert model.history is history
    np.testing.assert_array_equal(model.get_weights()[0], before[0])


class Batches:
    """Batches again and again, of tensors, as a data set gives them."""

    element_spec = (sr.TensorSpec((None, 3)), sr.TensorSpec((None, 1)))

    def __iter__(self) -> Iterator[Any]:
        return (tuple(map(sr.constant, each)) for each in batches())


class Indexed:
    """Batches by their numbers."""

    ended = 0

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return list(batches())[index]

    def on_epoch_end(self) -> None:
        self.ended += 1


def expected(**options: Any) -> tuple[Any, Any]:
    model = linear()
    history = model.fit(X, Y, **{**FIT, **options})
    return model.get_weights(), history.history


def same(model: Any, history: Any, wanted: tuple[Any, Any]) -> None:
    for mine, other in zip(model.get_weights(), wanted[0]):
        np.testing.assert_allclose(mine, other, rtol=1e-6)
    np.testing.assert_allclose(history.history["loss"], wanted[1]["loss"], rtol=1e-6)


KINDS = {
    "tensors": (sr.constant(X), sr.constant(Y)),
    "float64": (X.astype("d"), Y.astype("d")),
    "variables": (sr.Variable(X), sr.Variable(Y)),
    "list of one": ([X], [Y]),
    "flat targets": (X, Y[:, 0]),
    "lists of numbers": (X.tolist(), Y.tolist()),
    "tensors again and again": (Batches(), None),
    "by number": (Indexed(), None),
}


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_data(kind: str) -> None:
    model = linear()
    x, y = KINDS[kind]
    same(model, model.fit(x, y, **FIT), expected())
    values = model.evaluate(x, y, verbose=0, batch_size=6)
    np.testing.assert_allclose(values, model.evaluate(X, Y, verbose=0, batch_size=6), rtol=1e-6)
    np.testing.assert_allclose(model.predict(x, verbose=0), model.predict(X, verbose=0), rtol=1e-6)


def test_a_generator_goes_on_from_epoch_to_epoch() -> None:
    model = linear()
    same(model, model.fit(batches(2), steps_per_epoch=4, epochs=2, verbose=0), expected())
    with pytest.warns(UserWarning, match="ended after 3 steps; the epoch was to have 4"):
        model.fit(iter(list(batches())[:3]), steps_per_epoch=4, verbose=0)
    with pytest.raises(ValueError, match="gave no batch"):
        model.fit(iter([]), verbose=0)


def test_batches_may_have_weights() -> None:
    weights = np.linspace(0, 2, 24).astype("f")
    model = linear()
    history = model.fit(batches(weights=weights), verbose=0)
    same(model, history, expected(epochs=1, sample_weight=weights))


def test_data_by_name_and_ragged_rows() -> None:
    rows = [[1, 2], [3], [], [4, 5, 6], [7], [8, 8]]
    ragged = sr.RaggedTensor.from_row_lengths(
        np.concatenate([np.array(row, np.int64) for row in rows]), [len(row) for row in rows]
    )
    ids = keras.Input((None,), dtype="int64", ragged=True, name="ids")
    number = keras.Input((1,), name="number")
    pooled = layers.Embedding(9, 4, combiner="sum")(ids)
    outputs = layers.Dense(1)(layers.Concatenate()([pooled, number]))
    model = keras.Model({"ids": ids, "number": number}, outputs)
    model.compile("sgd", "mse")
    given = {"ids": ragged, "number": np.arange(6.0)}
    before = model.predict(given, batch_size=4, verbose=0)
    history = model.fit(given, np.ones(6), batch_size=2, epochs=3, verbose=0)
    assert history.history["loss"][-1] < history.history["loss"][0]
    assert before.shape == (6, 1)
    kernel, bias = model.layers[-1].get_weights()
    after = model.predict(given, verbose=0)
    np.testing.assert_allclose(after[2], kernel[4] * 2 + bias, rtol=1e-5)


def test_batches_of_sparse_ids() -> None:
    class Bag(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.table = layers.Embedding(9, 4, combiner="mean")
            self.head = layers.Dense(1)

        def call(self, ids: Any) -> Any:
            return self.head(self.table(ids))

    ids = sr.RaggedTensor.from_row_lengths(np.array([1, 2, 3, 8]), [2, 0, 1, 1]).to_sparse()
    model = Bag()
    model.compile("sgd", "mse")
    model.fit(iter([(ids, np.ones(4))]), verbose=0)
    assert model.predict(iter([ids]), verbose=0).shape == (4, 1)
    with pytest.raises(sr.errors.UnimplementedError, match="give a RaggedTensor, or batches"):
        model.fit(ids, np.ones(4))


def test_shuffled_epochs_follow_numpys_seed() -> None:
    runs = []
    for _ in range(2):
        np.random.seed(3)
        model = linear()
        runs.append(model.fit(X, Y, epochs=2, batch_size=5, verbose=0).history["loss"])
    assert runs[0] == runs[1]
    assert runs[0] != expected(batch_size=5)[1]["loss"]


METHODS = [
    "compile", "fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch",
    "summary", "save", "save_weights", "load_weights", "export", "get_config", "from_config",
    "compile_from_config", "build_from_config",
]  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_arguments_of_methods_are_those_of_keras(name: str) -> None:
    assert parameters(getattr(keras.Model, name)) == parameters(getattr(peer().Model, name))


@pytest.mark.parametrize("name", sorted(set(callbacks.__all__) - {"CallbackList"}))
def test_arguments_of_callbacks_are_those_of_keras(name: str) -> None:
    theirs = parameters(getattr(peer().callbacks, name))
    assert parameters(getattr(callbacks, name)) == theirs


# --- Callbacks.

def _noting(name: str) -> Any:
    def method(self: Any, *args: Any, logs: Any = None) -> None:
        self.seen.append((name, *[each for each in args if isinstance(each, int)]))

    return method


EVENTS = [
    name for name in dir(callbacks.Callback)
    if name.startswith("on_") and not name.startswith("on_batch")
]  # fmt: skip


def test_events_come_as_in_keras() -> None:
    seen = []
    for k, base in ((keras, callbacks.Callback), (peer(), peer().callbacks.Callback)):
        told = type("Told", (base,), {name: _noting(name) for name in EVENTS})()
        told.seen = []
        model = linear(k)
        model.fit(X, Y, validation_split=0.5, callbacks=[told], **FIT)
        model.evaluate(X, Y, callbacks=[told], verbose=0, batch_size=12)
        seen.append(list(told.seen))
        told.seen.clear()
        model.predict(X, callbacks=told, verbose=0, batch_size=12)
        # Keras on PyTorch begins batches before it has ended others.
        seen[-1] += sorted(told.seen)
    assert seen[0] == seen[1]
    assert len(seen[0]) > 30


def made(k: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    return getattr(k.callbacks, name)(*args, **kwargs)


LISTED = {
    "EarlyStopping": {"monitor": "loss", "min_delta": 0.4, "patience": 1},
    "EarlyStopping best": {"monitor": "val_mae", "mode": "min", "min_delta": 0.3, "patience": 2,
                           "restore_best_weights": True},
    "EarlyStopping late": {"monitor": "val_loss", "min_delta": 1.0, "start_from_epoch": 3},
    "EarlyStopping baseline": {"monitor": "loss", "baseline": 0.1, "patience": 2},
    "EarlyStopping auto": {"monitor": "val_acc", "patience": 1},
    "ReduceLROnPlateau": {"monitor": "loss", "factor": 0.5, "patience": 1, "min_delta": 0.6},
    "ReduceLROnPlateau cool": {"monitor": "loss", "factor": 0.1, "patience": 1, "min_delta": 2.0,
                               "cooldown": 2, "min_lr": 0.002},
}  # fmt: skip


@pytest.mark.parametrize("which", LISTED)
def test_callbacks_that_look_at_a_number(which: str) -> None:
    histories = []
    for k in (keras, peer()):
        model = linear(k, metrics=["mae", "acc"], optimizer=k.optimizers.SGD(0.05))
        callback = made(k, which.split()[0], **LISTED[which])
        histories.append(
            model.fit(X, Y, validation_split=0.25, callbacks=[callback], **{**FIT, "epochs": 8})
        )
        histories[-1].weights = model.get_weights()
    ours, theirs = histories
    assert sorted(ours.history) == sorted(theirs.history)
    for name, values in theirs.history.items():
        np.testing.assert_allclose(ours.history[name], values, rtol=3e-5, atol=1e-6)
    for mine, other in zip(ours.weights, theirs.weights):
        np.testing.assert_allclose(mine, other, rtol=1e-5)


@pytest.mark.parametrize("schedule", [
    lambda epoch: 0.1 / (epoch + 1), lambda epoch, rate: rate * 0.5,
])  # fmt: skip
def test_learning_rates_of_epochs(schedule: Any) -> None:
    histories = []
    for k in (keras, peer()):
        model = linear(k)
        told = made(k, "LearningRateScheduler", schedule)
        histories.append(model.fit(X, Y, callbacks=[told], **{**FIT, "epochs": 4}).history)
    assert sorted(histories[0]) == sorted(histories[1])
    for name in histories[1]:
        np.testing.assert_allclose(histories[0][name], histories[1][name], rtol=3e-5)
    with pytest.raises(ValueError, match="must give a number"):
        linear().fit(X, Y, callbacks=made(keras, "LearningRateScheduler", lambda epoch: "x"), **FIT)


def test_logs_in_a_file(tmp_path: pathlib.Path) -> None:
    tables = []
    for name, k in (("ours", keras), ("theirs", peer())):
        told = made(k, "CSVLogger", tmp_path / name, separator=";")
        linear(k).fit(X, Y, validation_split=0.5, callbacks=[told], **FIT)
        told = made(k, "CSVLogger", tmp_path / name, separator=";", append=True)
        linear(k).fit(X, Y, validation_split=0.5, callbacks=[told], **FIT)
        with open(tmp_path / name, newline="") as file:
            tables.append(list(csv.reader(file, delimiter=";")))
    assert tables[0][0] == tables[1][0]
    rows = [[[float(cell) for cell in row] for row in table[1:]] for table in tables]
    np.testing.assert_allclose(*rows, rtol=3e-5)


def test_training_ends_when_the_loss_is_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    x = X.copy()
    x[8] = np.nan
    model = linear()
    history = model.fit(x, Y, callbacks=[callbacks.TerminateOnNaN()], **FIT)
    assert len(history.epoch) == 1
    assert "Batch 1: the loss is nan" in capsys.readouterr().out
    with pytest.raises(RuntimeError, match="the loss is nan"):
        model.fit(x, Y, callbacks=[callbacks.TerminateOnNaN(raise_error=True)], **FIT)


def test_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    model = linear(metrics=["mae"])
    model.fit(X, Y, **{**FIT, "verbose": 2})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Epoch 1/2"
    assert lines[1].startswith("4/4 - ")
    assert "loss: " in lines[1] and "mae: " in lines[1]
    model.fit(X, Y, **FIT)
    assert capsys.readouterr().out == ""


# --- Steps of one's own.


def test_a_model_may_have_another_step() -> None:
    class Scaled(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = layers.Dense(1, use_bias=False, kernel_initializer="ones")
            self.tracker = keras.metrics.Mean(name="tenth")

        def call(self, inputs: Any) -> Any:
            return self.dense(inputs)

        def train_step(self, data: Any) -> Any:
            x, y = data[:2]
            with sr.GradientTape() as tape:
                loss = sr.reduce_mean(sr.square(self(x) - y))
            variables = self.trainable_variables
            self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
            self.tracker.update_state(loss / 10.0)
            return {"tenth": self.tracker.result()}

    model = Scaled()
    model.compile("sgd")
    history = model.fit(X, Y, **FIT).history
    assert list(history) == ["tenth"]
    assert history["tenth"][1] < history["tenth"][0]


def test_stop_training_and_initial_epoch() -> None:
    model = linear()

    def stop(batch: int, logs: Any) -> None:
        model.stop_training = batch == 1

    told = callbacks.LambdaCallback(on_train_batch_end=stop)
    history = model.fit(X, Y, callbacks=[told], **FIT)
    assert history.epoch == [0]
    assert model.fit(X, Y, initial_epoch=1, **FIT).epoch == [1]


def test_a_step_is_traced_once_and_once_more_for_a_rest() -> None:
    model = linear()
    model.fit(X, Y, **{**FIT, "epochs": 3})
    assert model._step_functions["train"].trace_count == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X, Y, **{**FIT, "batch_size": 7, "epochs": 3})


# --- Messages.


def two() -> Any:
    a, b = keras.Input((3,), name="a"), keras.Input((2,), name="b")
    model = keras.Model([a, b], layers.Dense(1, name="out")(layers.Concatenate()([a, b])))
    model.compile("sgd", "mse")
    return model


def twice() -> Any:
    a = keras.Input((3,))
    model = keras.Model(a, [layers.Dense(1, name="p")(a), layers.Dense(1, name="q")(a)])
    model.compile("sgd", {"p": "mse", "r": "mse"})
    return model


MESSAGES: dict[str, tuple[Any, type[Exception], str]] = {
    "not compiled": (
        lambda: keras.Sequential([layers.Dense(1)]).fit(X, Y), ValueError, "is not compiled",
    ),
    "no loss": (lambda: linear(loss=None).fit(X, Y, **FIT), ValueError, "there is no loss"),
    "no targets": (lambda: linear().fit(X, **FIT), ValueError, "needs targets"),
    "rows": (lambda: linear().fit(X, Y[:5], **FIT), ValueError, "numbers of examples: 24, 5"),
    "width": (
        lambda: linear().predict(X[:, :2], verbose=0), ValueError, "shape .None, 3.; .* .24, 2.",
    ),
    "too few inputs": (
        lambda: two().predict([X], verbose=0), ValueError, "has 2 inputs .a, b.; 1 are given",
    ),
    "a missing name": (
        lambda: two().predict({"a": X}, verbose=0), ValueError, "given for the input 'b'",
    ),
    "a name of no output": (
        lambda: twice().fit(X, [Y, Y], **FIT), ValueError, "given for r; the outputs.* p, q",
    ),
    "targets for one of two": (
        lambda: (m := twice(), m.compile("sgd", "mse"), m.fit(X, Y, **FIT)), ValueError,
        "y is one value; the model has 2 outputs",
    ),
    "no data": (lambda: linear().fit(X[:0], Y[:0], **FIT), ValueError, "no examples"),
    "what is no data": (lambda: linear().fit(3.5), ValueError, "give arrays, tensors"),
    "targets beside batches": (
        lambda: linear().fit(batches(), Y), ValueError, "leave y and sample_weight out",
    ),
    "both weights": (
        lambda: linear().fit(X, Y, sample_weight=Y[:, 0], class_weight={0: 1.0}, **FIT), ValueError,
        "cannot be given both",
    ),
    "split": (
        lambda: linear().fit(X, Y, validation_split=1.5, **FIT), ValueError, "between 0 and 1",
    ),
    "split of batches": (
        lambda: linear().fit(batches(), validation_split=0.5), ValueError, "not for batches",
    ),
    "an unknown loss": (
        lambda: linear(loss="msee").fit(X, Y, **FIT), ValueError, "nothing called 'msee'",
    ),
    "an unknown optimizer": (lambda: linear(optimizer="sgdd"), ValueError, "sgdd' is no opt"),
    "a callback": (
        lambda: linear().fit(X, Y, callbacks=[print], **FIT), ValueError, "is no callback",
    ),
    "an event": (
        lambda: callbacks.LambdaCallback(on_epoch=print), ValueError, "no event on_epoch",
    ),
    "nothing to train": (
        lambda: (m := keras.Sequential([keras.Input((3,)), layers.Activation("relu")]),
                 m.compile("sgd", "mse"), m.fit(X, X, **FIT)),
        ValueError, "no weights to train",
    ),
}  # fmt: skip


@pytest.mark.parametrize("which", MESSAGES)
def test_messages(which: str) -> None:
    call, error, message = MESSAGES[which]
    with pytest.raises(error, match=message):
        call()


def test_a_number_that_is_not_there_or_has_no_direction() -> None:
    with pytest.warns(UserWarning, match="looks at val_x, which is not in the logs"):
        linear().fit(X, Y, callbacks=[callbacks.EarlyStopping("val_x")], **FIT)

    def gap(y: Any, p: Any) -> Any:
        return y - p

    with pytest.raises(ValueError, match="more or less of gap is better is not known"):
        linear(metrics=[gap]).fit(X, Y, callbacks=[callbacks.EarlyStopping("gap")], **FIT)
