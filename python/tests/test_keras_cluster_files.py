"""Models on parameter servers are saved whole, and loaded in one process or on another cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from strategies import Servers, strategy_of

from sidereal import keras
from sidereal._native import CheckpointReader
from sidereal.distribute.experimental.partitioners import FixedShardsPartitioner
from sidereal.keras import layers
from sidereal.keras.callbacks import BackupAndRestore, ModelCheckpoint
from sidereal.train import latest_checkpoint

RNG = np.random.default_rng(0)
DATA = {"x": RNG.normal(size=(40, 3)).astype("f"), "word": RNG.choice(["a", "b", "c", "?"], 40)}
Y = DATA["x"] @ np.array([[1.0], [-2.0], [0.5]], "f")
FIT: dict[str, Any] = {"batch_size": 8, "verbose": 0, "shuffle": False}
OPTIMIZERS = {
    "adam": lambda: keras.optimizers.Adam(0.05),
    "rows": lambda: keras.optimizers.RowWiseAdagrad(0.05),
}


@pytest.fixture(scope="module")
def clusters() -> Iterator[list[dict[str, list[str]]]]:
    """Two ps and a worker, three ps and a worker."""
    servers = [Servers(2, 1), Servers(3, 1)]
    yield [each.cluster for each in servers]
    for each in servers:
        each.stop()


@pytest.fixture
def strategies(clusters: list[dict[str, list[str]]]) -> list[Any]:
    """Their strategies, whose shards are others."""
    return [strategy_of(each, FixedShardsPartitioner(n)) for n, each in enumerate(clusters, 2)]


def network(optimizer: Any) -> Any:
    x, word = keras.Input((3,), name="x"), keras.Input((), dtype="string", name="word")
    lookup = layers.StringLookup()
    lookup.adapt(np.array(["a", "b", "c"]))
    rows = layers.Embedding(7, 2, name="table")(lookup(word))
    hidden = layers.Dense(4, "relu")(layers.BatchNormalization()(layers.Concatenate()([x, rows])))
    model = keras.Model({"x": x, "word": word}, layers.Dense(1)(hidden))
    model.compile(optimizer, "mse", metrics=["mae"])
    return model


def check_same(model: Any, other: Any) -> None:
    for one, two in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(one, two)
    assert model.optimizer.iterations.numpy() == other.optimizer.iterations.numpy()


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_training_goes_on_elsewhere(strategies: list[Any], tmp_path: Path, kind: str) -> None:
    first, second = strategies
    with first.scope():
        model = network(OPTIMIZERS[kind]())
    model.fit(DATA, Y, epochs=2, **FIT)
    file = tmp_path / "m.keras"
    model.save(file)
    here = keras.models.load_model(file)
    with second.scope():
        there = keras.models.load_model(file)
    table = [each.name for each in there.weights if each.name.startswith("table/")]
    assert table == [f"table/embeddings/part_{i}" for i in range(3)]
    for each in (here, there):
        check_same(each, model)
    # One process writes what a cluster has written, and a cluster the same.
    for place, each in enumerate((here, there)):
        each.save(tmp_path / f"{place}.keras")
        assert (tmp_path / f"{place}.keras").read_bytes() == file.read_bytes()
    wanted = model.fit(DATA, Y, epochs=3, **FIT).history
    for each in (here, there):
        found = each.fit(DATA, Y, epochs=3, **FIT).history
        for name, values in wanted.items():
            np.testing.assert_allclose(found[name], values, rtol=1e-4)


def test_weights_of_one_process_are_loaded_on_a_cluster(
    strategies: list[Any], tmp_path: Path
) -> None:
    here = network("adam")
    here.fit(DATA, Y, **FIT)
    here.save_weights(tmp_path / "a.weights.npz")
    with strategies[1].scope():
        there = network("adam")
    there.load_weights(tmp_path / "a.weights.npz")
    check_same(there, here)
    there.save_weights(tmp_path / "b.weights.npz")
    assert (tmp_path / "a.weights.npz").read_bytes() == (tmp_path / "b.weights.npz").read_bytes()


def test_callbacks_save_models_of_a_cluster(strategies: list[Any], tmp_path: Path) -> None:
    told = [
        ModelCheckpoint(tmp_path / "best.keras", "loss", save_best_only=True),
        BackupAndRestore(tmp_path / "backup", delete_checkpoint=False),
    ]
    with strategies[0].scope():
        model = network("adam")
    model.fit(DATA, Y, epochs=2, callbacks=told, **FIT)
    check_same(keras.models.load_model(tmp_path / "best.keras"), model)
    with strategies[1].scope():
        again = network("adam")
    history = again.fit(DATA, Y, epochs=3, callbacks=told[1:], **FIT)
    assert history.epoch == [2]
    assert again.optimizer.iterations.numpy() == 15


def test_checkpoints_of_callbacks_have_what_has_changed_alone(
    strategies: list[Any], tmp_path: Path
) -> None:
    told = ModelCheckpoint(tmp_path / "w" / "{epoch}", save_weights_only=True, full_every=3)
    with strategies[0].scope():
        model = network("adam")
    model.fit(DATA, Y, epochs=5, callbacks=[told], **FIT)
    assert bases_in(tmp_path / "w") == {"1": "", "2": "1", "3": "2", "4": "", "5": "4"}
    newest = latest_checkpoint(tmp_path / "w")
    assert newest == str(tmp_path / "w" / "5")
    here = network("adam")
    here.load_weights(newest)
    for one, two in zip(model.get_weights(), here.get_weights(), strict=True):
        np.testing.assert_array_equal(one, two)


def bases_in(folder: Path) -> dict[str, str]:
    """What each checkpoint of a folder stands on."""
    prefixes = [each.with_suffix("") for each in sorted(folder.glob("*.index"))]
    return {each.name: CheckpointReader(str(each)).base for each in prefixes}


def test_backups_have_what_has_changed_alone(strategies: list[Any], tmp_path: Path) -> None:
    told = BackupAndRestore(tmp_path, delete_checkpoint=False, full_every=4)
    with strategies[0].scope():
        model = network("adam")
    model.fit(DATA, Y, epochs=3, callbacks=[told], **FIT)  # Of 5 steps each.
    assert bases_in(tmp_path) == {"backup-1": "", "backup-2": "backup-1", "backup-3": "backup-2"}
    with strategies[1].scope():
        again = network("adam")
    history = again.fit(DATA, Y, epochs=5, callbacks=[told], **FIT)
    assert history.epoch == [3, 4]
    assert again.optimizer.iterations.numpy() == 25
    assert bases_in(tmp_path) == {"backup-4": "", "backup-5": "backup-4"}
    told.delete_checkpoint = True
    again.fit(DATA, Y, epochs=6, callbacks=[told], **FIT)
    assert not tmp_path.exists()
