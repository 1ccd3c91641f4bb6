"""Callbacks that save models while they are trained, and have training go on that was cut off."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras_models
import numpy as np
import pytest
from keras_models import MODELS
from keras_peer import QUIET, parameters, peer

import sidereal as sr
from sidereal import errors, keras, train
from sidereal.keras.callbacks import BackupAndRestore, LambdaCallback, ModelCheckpoint

X, Y = MODELS["mlp"][1]()
FIT: dict[str, Any] = {"batch_size": 8, "verbose": 0, "shuffle": False}


def mlp(values: Any = None) -> Any:
    model = keras_models.mlp(keras)
    model.compile(keras.optimizers.Adam(0.05), "binary_crossentropy", metrics=["accuracy"])
    if values is not None:
        model.set_weights(values)
    return model


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def test_a_model_of_each_epoch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = mlp()
    told = ModelCheckpoint(tmp_path / "in" / "{epoch:02d}-{accuracy:.1f}.keras", verbose=1)
    history = model.fit(X, Y, epochs=2, callbacks=[told], **FIT).history
    assert names(tmp_path / "in") == [
        f"{epoch:02d}-{value:.1f}.keras" for epoch, value in enumerate(history["accuracy"], 1)
    ]
    assert "Epoch 2: the model is saved to" in capsys.readouterr().out
    made = keras.models.load_model(tmp_path / "in" / names(tmp_path / "in")[1])
    for one, other in zip(made.get_weights(), model.get_weights()):
        np.testing.assert_array_equal(one, other)


@QUIET
@pytest.mark.parametrize(
    "options",
    [{}, {"initial_value_threshold": 0.4}, {"monitor": "accuracy"}, {"mode": "max"}],
    ids=["loss", "threshold", "accuracy", "max"],
)
def test_the_best_epochs_are_those_of_keras(tmp_path: Path, options: dict[str, Any]) -> None:
    logs = [{"loss": 0.5, "accuracy": 0.3}, {"loss": 0.6, "accuracy": 0.5},
            {"loss": 0.3, "accuracy": 0.5}, {"loss": 0.3, "accuracy": 0.9}]  # fmt: skip
    found = []
    for k in (keras, peer()):
        folder = tmp_path / k.__name__
        model = keras_models.mlp(k)
        model.compile("sgd", "binary_crossentropy", metrics=["accuracy"])
        model.train_on_batch(X, Y)
        told = k.callbacks.ModelCheckpoint(
            str(folder / "{epoch}.keras"), save_best_only=True, **{"monitor": "loss", **options}
        )
        told.set_model(model)
        for epoch, each in enumerate(logs):
            told.on_epoch_begin(epoch)
            told.on_epoch_end(epoch, dict(each))
        found.append(names(folder) if folder.exists() else [])
    assert found[0] == found[1]


def test_weights_every_so_many_batches(tmp_path: Path) -> None:
    file = tmp_path / "{epoch}-{batch}.weights.npz"
    told = ModelCheckpoint(file, save_weights_only=True, save_freq=5)
    mlp().fit(X, Y, epochs=2, callbacks=[told], **FIT)
    assert names(tmp_path) == ["1-5.weights.npz", "2-3.weights.npz"]
    model = mlp()
    model.load_weights(tmp_path / "2-3.weights.npz")
    assert model.optimizer.iterations.numpy() == 10


def test_what_is_not_in_the_logs(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match=r"\{nothing\}.*'nothing'.*accuracy"):
        mlp().fit(X, Y, callbacks=[ModelCheckpoint(tmp_path / "{nothing}.keras")], **FIT)
    with pytest.warns(UserWarning, match="looks at val_loss"):
        mlp().fit(X, Y, callbacks=[ModelCheckpoint(tmp_path / "a.keras", save_best_only=True)],
                  **FIT)  # fmt: skip


class CutOffError(Exception):
    pass


def cut_off_at(epoch: int, batch: int) -> Any:
    """Ends training with an error after a batch."""
    now = [0]

    def begin(number: int, logs: Any) -> None:
        now[0] = number

    def end(number: int, logs: Any) -> None:
        if (now[0], number) == (epoch, batch):
            raise CutOffError

    return LambdaCallback(on_epoch_begin=begin, on_train_batch_end=end)


def test_training_goes_on_that_was_cut_off(tmp_path: Path) -> None:
    whole = mlp()
    start = whole.get_weights()
    wanted = whole.fit(X, Y, epochs=4, **FIT).history["loss"]
    folder = tmp_path / "backup"
    for epoch in (1, 3):
        with pytest.raises(CutOffError):
            mlp(start).fit(
                X, Y, epochs=4, callbacks=[BackupAndRestore(folder), cut_off_at(epoch, 2)], **FIT
            )
        backup = train.latest_checkpoint(folder)
        assert backup is not None
        assert train.load_variable(backup, "epoch/.ATTRIBUTES/VARIABLE_VALUE") == epoch
        assert len(list(folder.glob("*.index"))) == 1
    model = mlp(start)
    history = model.fit(X, Y, epochs=4, callbacks=[BackupAndRestore(folder)], **FIT)
    assert (history.epoch, history.history["loss"]) == ([3], wanted[3:])
    for one, other in zip(model.get_weights(), whole.get_weights()):
        np.testing.assert_array_equal(one, other)
    assert not folder.exists()
    # Another fit() begins with its first epoch.
    assert model.fit(X, Y, **FIT).epoch == [0]


def test_backups_every_so_many_batches(tmp_path: Path) -> None:
    whole = mlp()
    start = whole.get_weights()
    whole.fit(X, Y, epochs=2, **FIT)
    told = BackupAndRestore(tmp_path / "b", save_freq=3)
    with pytest.raises(CutOffError):
        mlp(start).fit(X, Y, epochs=2, callbacks=[told, cut_off_at(1, 5)], **FIT)
    batches: list[int] = []
    again = mlp()
    seen = LambdaCallback(on_train_batch_end=lambda batch, _: batches.append(batch))
    told = BackupAndRestore(tmp_path / "b", save_freq=3)
    history = again.fit(X, Y, epochs=2, callbacks=[told, seen], **FIT)
    steps = -(-len(Y) // FIT["batch_size"])
    done = (steps + 6) // 3 * 3 - steps
    assert history.epoch == [1] and batches == list(range(done, steps))
    for one, other in zip(again.get_weights(), whole.get_weights()):
        np.testing.assert_array_equal(one, other)
    assert not (tmp_path / "b").exists()


def test_a_backup_at_the_end_of_an_epoch(tmp_path: Path) -> None:
    steps = -(-len(Y) // FIT["batch_size"])
    told = BackupAndRestore(tmp_path, save_freq=steps)
    with pytest.raises(CutOffError):
        mlp().fit(X, Y, epochs=3, callbacks=[told, cut_off_at(0, steps - 1)], **FIT)
    model = mlp()
    told = BackupAndRestore(tmp_path, save_freq=steps)
    assert model.fit(X, Y, epochs=3, callbacks=[told], **FIT).epoch == [1, 2]
    assert model.optimizer.iterations.numpy() == 3 * steps


@pytest.mark.parametrize("steps_per_epoch", [None, 3])
@pytest.mark.parametrize("save_freq", ["epoch", 2, 5])  # Where it is cut off: 5 steps are a pass.
@pytest.mark.parametrize("as_iterator", [False, True])
def test_a_dataset_goes_on_where_it_was(
    tmp_path: Path, steps_per_epoch: int | None, save_freq: Any, as_iterator: bool
) -> None:
    dataset = sr.data.Dataset.from_tensor_slices((X[:40], Y[:40]))
    dataset = dataset.shuffle(40, seed=5, reshuffle_each_iteration=False).batch(8)
    if steps_per_epoch:
        dataset = dataset.repeat()
    if as_iterator and not steps_per_epoch:
        dataset = dataset.repeat(3)

    def data() -> Any:
        return iter(dataset) if as_iterator else dataset

    epochs = 1 if as_iterator and not steps_per_epoch else 3
    fit = {"epochs": epochs, "steps_per_epoch": steps_per_epoch, "verbose": 0}
    whole = mlp()
    start = whole.get_weights()
    whole.fit(data(), **fit)
    cut_at = cut_off_at(*((1, 2) if epochs > 1 else (0, 8)))
    with pytest.raises(CutOffError):
        mlp(start).fit(
            data(), callbacks=[BackupAndRestore(tmp_path, save_freq), cut_at], **fit
        )
    again = mlp(start)
    again.fit(data(), callbacks=[BackupAndRestore(tmp_path, save_freq)], **fit)
    assert again.optimizer.iterations.numpy() == whole.optimizer.iterations.numpy()
    for one, other in zip(again.get_weights(), whole.get_weights()):
        np.testing.assert_array_equal(one, other)


def test_other_data_than_a_backup_is_of(tmp_path: Path) -> None:
    dataset = sr.data.Dataset.from_tensor_slices((X, Y)).batch(8)
    with pytest.raises(CutOffError):
        mlp().fit(
            dataset, epochs=2, callbacks=[BackupAndRestore(tmp_path, 2), cut_off_at(0, 4)],
            verbose=0,
        )  # fmt: skip
    with pytest.raises(errors.InvalidArgumentError, match="arrays have no position"):
        mlp().fit(X, Y, callbacks=[BackupAndRestore(tmp_path)], **FIT)


def test_weights_that_are_made_later_are_those_of_the_backup(tmp_path: Path) -> None:
    def model() -> Any:
        made = keras_models.deferred(keras)
        made.compile(keras.optimizers.Adam(0.05), "mse")
        return made

    x, y = X, Y
    first = model()
    with pytest.raises(CutOffError):
        first.fit(x, y, epochs=2, callbacks=[BackupAndRestore(tmp_path), cut_off_at(1, 0)], **FIT)
    again = model()
    told = BackupAndRestore(tmp_path, delete_checkpoint=False)
    again.fit(x, y, epochs=1, callbacks=[told], **FIT)  # The epoch that is done.
    assert not again.built
    again(x[:8])
    backup = train.latest_checkpoint(tmp_path)
    assert backup is not None
    for name, shape in train.list_variables(backup):
        if "layer" in name and "SLOT" not in name:
            value = train.load_variable(backup, name)
            assert any(
                np.array_equal(value, each) for each in again.get_weights()
            ), (name, shape)


def test_backups_that_cannot_be_read(tmp_path: Path) -> None:
    told = BackupAndRestore(tmp_path, delete_checkpoint=False)
    mlp().fit(X, Y, callbacks=[told], **FIT)
    wrong = keras.Sequential([keras.Input((X.shape[1],)), keras.layers.Dense(3)])
    wrong.compile("sgd", "mse")
    with pytest.raises(errors.InvalidArgumentError, match="made as it was saved"):
        wrong.fit(X, Y, callbacks=[BackupAndRestore(tmp_path)], **FIT)


# --- Weights as checkpoints.


def test_weights_to_a_checkpoint(tmp_path: Path) -> None:
    model = mlp()
    model.fit(X, Y, **FIT)
    model.save_weights(tmp_path / "w")
    assert train.latest_checkpoint(tmp_path) == str(tmp_path / "w")
    names = [name for name, _ in train.list_variables(tmp_path / "w")]
    assert "layer_with_weights-0/kernel/.ATTRIBUTES/VARIABLE_VALUE" in names
    assert "optimizer/iter/.ATTRIBUTES/VARIABLE_VALUE" in names
    other = mlp()
    other.load_weights(tmp_path / "w").assert_consumed()
    for one, two in zip(model.get_weights(), other.get_weights()):
        np.testing.assert_array_equal(one, two)
    assert other.fit(X, Y, **FIT).history == model.fit(X, Y, **FIT).history
    with pytest.raises(ValueError, match="overwrite is False"):
        model.save_weights(tmp_path / "w", overwrite=False)
    with pytest.raises(ValueError, match="skip_mismatch"):
        model.load_weights(tmp_path / "w", skip_mismatch=True)
    with pytest.raises(errors.NotFoundError):
        model.load_weights(tmp_path / "nothing")


def test_weights_of_a_checkpoint_come_when_layers_are_built(tmp_path: Path) -> None:
    model = keras_models.deferred(keras)
    model.compile(keras.optimizers.Adam(0.05), "mse")
    model.fit(X, Y, **FIT)
    model.save_weights(tmp_path / "w")
    other = keras_models.deferred(keras)
    other.compile(keras.optimizers.Adam(0.05), "mse")
    status = other.load_weights(tmp_path / "w")
    np.testing.assert_array_equal(other.predict(X, verbose=0), model.predict(X, verbose=0))
    status.assert_consumed()
    assert other.fit(X, Y, **FIT).history == model.fit(X, Y, **FIT).history


def test_checkpoints_of_weights_of_each_epoch(tmp_path: Path) -> None:
    told = ModelCheckpoint(tmp_path / "w-{epoch}", save_weights_only=True)
    model = mlp()
    model.fit(X, Y, epochs=2, callbacks=[told], **FIT)
    assert sorted(each.stem for each in tmp_path.glob("*.index")) == ["w-1", "w-2"]
    assert train.latest_checkpoint(tmp_path) == str(tmp_path / "w-2")
    other = mlp()
    other.load_weights(tmp_path / "w-2")
    for one, two in zip(model.get_weights(), other.get_weights()):
        np.testing.assert_array_equal(one, two)


def test_layers_of_a_class_are_called_as_it_calls_them(tmp_path: Path) -> None:
    class Net(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.towers = [keras.layers.Dense(2), keras.layers.Dense(3)]
            self.norm = keras.layers.BatchNormalization()
            self.scale = self.add_weight((), "ones", name="scale")

        def call(self, inputs: Any) -> Any:
            return self.norm(self.towers[1](self.towers[0](inputs))) * self.scale

    net = Net()
    net(X[:4])
    path = train.Checkpoint(net=net).write(tmp_path / "w")
    names = {name.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE")
             for name, _ in train.list_variables(path)}  # fmt: skip
    assert {"net/towers/0/kernel", "net/towers/1/bias", "net/norm/gamma", "net/scale"} <= names
    other = Net()
    status = train.Checkpoint(net=other).read(path)
    np.testing.assert_array_equal(other(X[:4]).numpy(), net(X[:4]).numpy())
    status.assert_consumed()


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "model": (lambda: ModelCheckpoint("a.h5"), r"\.keras"),
    "weights": (lambda: ModelCheckpoint("a.keras", save_weights_only=True), r"\.weights\.npz"),
    "freq": (lambda: ModelCheckpoint("a.keras", save_freq="batch"), "save_freq"),
    "zero": (lambda: BackupAndRestore("a", save_freq=0), "save_freq"),
    "folder": (lambda: BackupAndRestore(""), "backup_dir"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_arguments_that_cannot_be(kind: str) -> None:
    make, message = WRONG[kind]
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("name", ["clone_model", "load_model", "model_from_json"])
def test_arguments_of_functions_are_those_of_keras(name: str) -> None:
    assert parameters(getattr(keras.models, name)) == parameters(getattr(peer().models, name))


def test_layers_that_a_model_gets_later_are_restored_then(tmp_path: Path) -> None:
    class Net(keras.Model):
        def call(self, inputs: Any) -> Any:
            return self.head(inputs)

    net = Net()
    net.head = keras.layers.Dense(2)
    net(X[:4])
    net.save_weights(tmp_path / "w")
    other = Net()
    status = train.Checkpoint(other).read(tmp_path / "w")
    built = keras.layers.Dense(2)
    built(X[:4])
    other.head = built
    np.testing.assert_array_equal(built.get_weights()[0], net.get_weights()[0])
    status.assert_consumed()


def test_a_variable_may_be_a_member_before_the_layer_is_one() -> None:
    class Early(keras.layers.Layer):
        def __init__(self) -> None:
            self.w = sr.Variable(2.0)
            super().__init__()

        def call(self, inputs: Any) -> Any:
            return inputs * self.w

    layer = Early()
    assert float(layer(sr.constant(3.0))) == 6.0
    assert [variable is layer.w for variable in layer.variables] == [True]


def test_a_backup_that_lacks_a_file_is_no_reason_to_begin_anew(tmp_path: Path) -> None:
    with pytest.raises(CutOffError):
        mlp().fit(X, Y, epochs=3, callbacks=[BackupAndRestore(tmp_path), cut_off_at(1, 0)], **FIT)
    (lost,) = tmp_path.glob("*.data-*")
    kept = lost.read_bytes()
    lost.unlink()
    with pytest.raises(errors.NotFoundError, match=re.escape(str(lost))):
        mlp().fit(X, Y, epochs=3, callbacks=[BackupAndRestore(tmp_path)], **FIT)
    lost.write_bytes(kept)
    assert mlp().fit(X, Y, epochs=3, callbacks=[BackupAndRestore(tmp_path)], **FIT).epoch == [1, 2]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda at: ModelCheckpoint(at / "{epoch}", save_weights_only=True, full_every=0),
         "full_every is 0"),
        (lambda at: ModelCheckpoint(at / "{epoch}.keras", full_every=2), "prefix of a checkpoint"),
        (lambda at: ModelCheckpoint(at / "w", save_weights_only=True, full_every=2), "{epoch}"),
        (lambda at: BackupAndRestore(at, full_every=1.5), "full_every is 1.5"),
    ],
)  # fmt: skip
def test_what_full_every_cannot_be(tmp_path: Path, make: Callable[[Path], Any], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        make(tmp_path)
