"""Callbacks that save models while they are trained, and have training go on that was cut off."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras_models
import numpy as np
import pytest
from keras_models import MODELS
from keras_peer import QUIET, parameters, peer

from sidereal import errors, keras
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
        assert json.loads((folder / "training_metadata.json").read_text())["epoch"] == epoch
        assert len(names(folder)) == 2
    model = mlp(start)
    history = model.fit(X, Y, epochs=4, callbacks=[BackupAndRestore(folder)], **FIT)
    assert (history.epoch, history.history["loss"]) == ([3], wanted[3:])
    for one, other in zip(model.get_weights(), whole.get_weights()):
        np.testing.assert_array_equal(one, other)
    assert not folder.exists()
    # Another fit() begins with its first epoch.
    assert model.fit(X, Y, **FIT).epoch == [0]


def test_backups_every_so_many_batches(tmp_path: Path) -> None:
    told = BackupAndRestore(tmp_path / "b", save_freq=3, delete_checkpoint=False)
    model = mlp()
    model.fit(X, Y, epochs=2, callbacks=[told], **FIT)
    assert names(tmp_path / "b") == ["4.weights.npz", "training_metadata.json"]
    again = mlp()
    history = again.fit(X, Y, epochs=2, callbacks=[BackupAndRestore(tmp_path / "b")], **FIT)
    assert history.epoch == [1]
    assert again.optimizer.iterations.numpy() == 12 + 7


def test_backups_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "training_metadata.json").write_text("{}")
    with pytest.raises(errors.DataLossError, match="damaged"):
        mlp().fit(X, Y, callbacks=[BackupAndRestore(tmp_path)], **FIT)
    (tmp_path / "training_metadata.json").write_text('{"epoch": 1, "number": 2}')
    with pytest.raises(errors.NotFoundError, match="2.weights.npz"):
        mlp().fit(X, Y, callbacks=[BackupAndRestore(tmp_path)], **FIT)
    model = keras_models.deferred(keras)
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match="build it"):
        model.fit(X, Y, callbacks=[BackupAndRestore(tmp_path)], **FIT)


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
