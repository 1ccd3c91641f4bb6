"""The callback TensorBoard (keras.callbacks), as TensorBoard's own EventAccumulator reads what it
writes; in this process and on parameter servers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from event_files import accumulated, values_of
from strategies import cluster_fixture, strategy_of

import sidereal as sr
from sidereal import errors, keras
from sidereal.distribute.experimental.partitioners import FixedShardsPartitioner
from sidereal.keras import layers
from sidereal.keras.callbacks import TensorBoard

RNG = np.random.default_rng(0)
X = {"x": RNG.normal(size=(64, 3)).astype("f"), "ids": RNG.integers(0, 10, 64).astype("i")}
Y = (X["x"].sum(1, keepdims=True) > 0).astype("f")

cluster = cluster_fixture(2, 2)


def network() -> Any:
    x, ids = keras.Input((3,), name="x"), keras.Input((), dtype="int32", name="ids")
    rows = layers.Embedding(10, 2, name="table")(ids)
    hidden = layers.Dense(4, "relu", name="hidden")(layers.Concatenate()([x, rows]))
    model = keras.Model({"x": x, "ids": ids}, layers.Dense(1, "sigmoid", name="head")(hidden))
    model.compile(keras.optimizers.Adam(0.01), "binary_crossentropy", metrics=["accuracy"])
    return model


def figures(folder: Path, tag: str) -> list[tuple[int, float]]:
    return values_of(accumulated(folder), tag)


def fit(model: Any, callback: Any, epochs: int = 2, **options: Any) -> Any:
    return model.fit(X, Y, batch_size=16, epochs=epochs, verbose=0, callbacks=callback, **options)


def test_epochs_have_the_figures_of_the_history(tmp_path: Path) -> None:
    model = network()
    history = fit(
        model, TensorBoard(tmp_path, write_steps_per_second=True), validation_split=0.25
    ).history
    train, validation = accumulated(tmp_path / "train"), accumulated(tmp_path / "validation")
    for name in ("loss", "accuracy"):
        want = pytest.approx(history[name])
        assert [value for _, value in values_of(train, f"epoch_{name}")] == want
        want = pytest.approx(history[f"val_{name}"])
        assert [value for _, value in values_of(validation, f"epoch_{name}")] == want
    assert [step for step, _ in values_of(train, "epoch_loss")] == [0, 1]
    assert values_of(train, "epoch_learning_rate")[1][1] == pytest.approx(0.01)
    assert all(value > 0 for _, value in values_of(train, "epoch_steps_per_second"))
    at = [step for step, _ in values_of(validation, "evaluation_loss_vs_iterations")]
    assert at == [3, 6]
    assert not [tag for tag in train.Tags()["tensors"] if tag.startswith("batch_")]


def test_batches_have_figures_as_often_as_said(tmp_path: Path) -> None:
    model, seen = network(), []
    callback = TensorBoard(tmp_path / "3", update_freq=3, write_steps_per_second=True)
    listen = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: seen.append(logs["loss"])
    )
    fit(model, [callback, listen], validation_data=(X, Y))
    fit(model, [callback, listen], epochs=1)
    got = [figures(tmp_path / "3" / "train", tag) for tag in ("batch_loss", "batch_accuracy")]
    assert [step for step, _ in got[0]] == [3, 6, 9, 12] == [step for step, _ in got[1]]
    assert [value for _, value in got[0]] == pytest.approx([seen[at] for at in (2, 5, 8, 11)])
    assert [step for step, _ in figures(tmp_path / "3" / "validation", "batch_loss")] == [3, 6]
    assert len(figures(tmp_path / "3" / "train", "batch_steps_per_second")) == 4
    model.compile("sgd", "mse", steps_per_execution=2)
    fit(model, TensorBoard(tmp_path / "all", update_freq="batch"), epochs=1)
    assert [step for step, _ in figures(tmp_path / "all" / "train", "batch_loss")] == [2, 4]


def test_evaluation_alone_is_written(tmp_path: Path) -> None:
    model = network()
    loss, _ = model.evaluate(X, Y, verbose=0, callbacks=[TensorBoard(tmp_path)])
    [(step, value)] = figures(tmp_path / "validation", "evaluation_loss_vs_iterations")
    assert step == 0 and value == pytest.approx(loss)


def test_weights_are_histograms_and_images(tmp_path: Path) -> None:
    model = network()
    fit(model, TensorBoard(tmp_path, histogram_freq=2, write_images=True), epochs=3)
    found = accumulated(tmp_path / "train")
    for weight in model.weights:
        rows = values_of(found, f"{weight.name}/histogram")
        assert [step for step, _ in rows] == [0, 2]
        last = rows[-1][1]
        assert last[:, 2].sum() == weight.numpy().size
        np.testing.assert_allclose(
            [last[0, 0], last[-1, 1]], [weight.numpy().min(), weight.numpy().max()], rtol=1e-6
        )
    assert values_of(found, "hidden/kernel/image")[0][1][:2].tolist() == [b"5", b"4"]
    assert values_of(found, "hidden/bias/image")[0][1][:2].tolist() == [b"4", b"1"]


def test_weights_that_are_no_numbers_end_no_training(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((1,)), layers.Dense(2, use_bias=False, name="d")])
    model.compile("sgd", "mse")
    model.set_weights([np.array([[np.nan, 1.0]], "f")])
    callback = TensorBoard(tmp_path, histogram_freq=1)
    model.fit(np.ones((4, 1), "f"), np.ones((4, 2), "f"), verbose=0, callbacks=callback)
    [(_, rows)] = figures(tmp_path / "train", "d/kernel/histogram")
    assert rows[:, 2].sum() == 1


def test_the_graph_of_layers_is_what_tensorboard_reads(tmp_path: Path) -> None:
    from tensorboard.plugins.graph.keras_util import keras_model_to_graph_def

    def drawn(model: Any, name: str) -> dict[str, list[str]]:
        callback = TensorBoard(tmp_path / name)
        callback.set_model(model)
        callback.on_train_begin()
        callback.on_train_end()
        found = accumulated(tmp_path / name / "train")
        assert found.SummaryMetadata("keras").plugin_data.plugin_name == "graph_keras_model"
        config = json.loads(values_of(found, "keras")[0][1].item())
        nodes = {node.name: list(node.input) for node in keras_model_to_graph_def(config).node}
        shown = {node.name: node for node in found.Graph().node}
        assert {name: list(node.input) for name, node in shown.items()} == nodes
        assert {node.op for node in shown.values()} <= {
            "Concatenate", "Dense", "Embedding", "InputLayer"
        }  # fmt: skip
        return nodes

    model = network()
    nodes = drawn(model, "functional")
    at = f"{model.name}/"
    assert nodes[at + "x"] == [] and nodes[at + "ids"] == []
    assert nodes[at + "table"] == [at + "ids"] and nodes[at + "head"] == [at + "hidden"]
    joined = next(name for name in nodes if "concatenate" in name)
    assert nodes[joined] == [at + "x", at + "table"]
    inner = keras.Sequential([layers.Dense(2, name="a"), layers.Dense(1, name="b")], name="inner")
    x = keras.Input((3,), name="x")
    outer = keras.Model(x, layers.Dense(1, name="last")(inner(x)), name="outer")
    nodes = drawn(outer, "nested")
    assert nodes["outer/inner/b"] == ["outer/inner/a"]
    assert nodes["outer/last"] == ["outer/inner/b"]


def test_a_model_of_ones_own_class_is_trained_without_a_graph(tmp_path: Path) -> None:
    class Own(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = layers.Dense(1)

        def call(self, x: Any) -> Any:
            return self.dense(x)

    model = Own()
    model.compile("sgd", "mse")
    model.fit(X["x"], Y, verbose=0, callbacks=[TensorBoard(tmp_path)])
    assert accumulated(tmp_path / "train").Tags()["tensors"] == [
        "epoch_loss", "epoch_learning_rate"
    ]  # fmt: skip


def test_tables_are_for_the_projector(tmp_path: Path) -> None:
    from google.protobuf import text_format
    from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig

    model = network()
    fit(model, TensorBoard(tmp_path, embeddings_freq=1, embeddings_metadata={"table": "n.tsv"}))
    config = text_format.Parse(
        (tmp_path / "train" / "projector_config.pbtxt").read_text(), ProjectorConfig()
    )
    [table] = config.embeddings
    assert (table.tensor_name, table.metadata_path) == ("table", "n.tsv")
    np.testing.assert_allclose(
        np.loadtxt(tmp_path / "train" / table.tensor_path),
        model.get_layer("table").embeddings.numpy(), rtol=1e-4,
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"names \['other'\].*are \['table'\]"):
        fit(model, TensorBoard(tmp_path, embeddings_freq=1, embeddings_metadata={"other": "n"}))


def test_batches_are_traced(tmp_path: Path) -> None:
    fit(network(), TensorBoard(tmp_path, profile_batch=(2, 3)))
    traced = json.loads((tmp_path / "train" / "batch_2.trace.json").read_text())
    calls = [event for event in traced["traceEvents"] if event.get("name") == "train_step"]
    assert len(calls) == 2, {event.get("name") for event in traced["traceEvents"]}
    # One that was to be longer than the training ends with it.
    fit(network(), TensorBoard(tmp_path, profile_batch="5,500"))
    assert (tmp_path / "train" / "batch_5.trace.json").exists()


@pytest.mark.parametrize("given", [-1, (3, 2), "x", (1, 2, 3), None])
def test_batches_to_trace_are_checked(given: Any) -> None:
    with pytest.raises(ValueError, match="profile_batch must be a non-negative integer"):
        TensorBoard(profile_batch=given)


def test_how_often_is_checked() -> None:
    for given in (0, -3, "step", True):
        with pytest.raises(ValueError, match="update_freq is"):
            TensorBoard(update_freq=given)


def test_without_the_package_training_does_not_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tensorboard.summary.writer", None)
    with pytest.raises(errors.UnavailableError, match="pip install"):
        fit(network(), TensorBoard(tmp_path))


def test_figures_of_workers_are_written_without_a_join(
    cluster: dict[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy = strategy_of(cluster, FixedShardsPartitioner(2))
    with strategy.scope():
        model = network()
    coordinator = model._cluster.coordinator
    waited: list[str] = []
    read: list[str] = []
    join, numpy = coordinator.join, sr.Variable.numpy
    monkeypatch.setattr(coordinator, "join", lambda: (waited.append("join"), join())[1])
    monkeypatch.setattr(
        sr.Variable, "numpy", lambda self: (read.append(self.name), numpy(self))[1]
    )
    during: list[int] = []
    callback = TensorBoard(tmp_path, update_freq=1, histogram_freq=1)
    watched = callback.on_train_batch_end

    def ended(batch: int, logs: Any = None) -> None:
        before = len(waited), len(read)
        watched(batch, logs)
        assert (len(waited), len(read)) == before
        during.append(len(waited))

    monkeypatch.setattr(callback, "on_train_batch_end", ended)
    data = sr.data.Dataset.from_tensor_slices((X, Y)).batch(8).repeat()
    model.fit(data, steps_per_epoch=60, epochs=1, verbose=0, callbacks=callback)
    assert during == [0] * 60
    steps = figures(tmp_path / "train", "batch_loss")
    assert [step for step, _ in steps] == list(range(1, 61))
    assert all(np.isfinite(value) for _, value in steps)
    [(_, rows)] = figures(tmp_path / "train", "table/embeddings/histogram")
    assert rows[:, 2].sum() == 20
    assert stale_pushes(tmp_path / "train") >= 60


def stale_pushes(folder: Path) -> int:
    """How many pushes to the table were told of, whose means are checked."""
    tags = [tag for tag in accumulated(folder).Tags()["tensors"]
            if tag.startswith("staleness/table/embeddings/")]  # fmt: skip
    total = 0
    for tag in tags:
        means = dict(figures(folder, tag))
        for step, rows in figures(folder, f"histogram_of_{tag}"):
            assert (rows[:, 0] < rows[:, 1]).all() and (rows[:, 2] > 0).all()
            assert rows[0, 0] <= means[step] <= rows[-1, 1]
            total += int(rows[:, 2].sum())
    return total


def test_staleness_is_left_out_where_nobody_wants_it(
    cluster: dict[str, list[str]], tmp_path: Path
) -> None:
    strategy = strategy_of(cluster, FixedShardsPartitioner(2))
    with strategy.scope():
        model = network()
    data = sr.data.Dataset.from_tensor_slices((X, Y)).batch(8).repeat()
    for write in (True, False):
        callback = TensorBoard(tmp_path / str(write), write_staleness=write)
        model.fit(data, steps_per_epoch=5, epochs=2, verbose=0, callbacks=callback)
    assert stale_pushes(tmp_path / "True" / "train") > 0
    told = accumulated(tmp_path / "False" / "train").Tags()["tensors"]
    assert not [tag for tag in told if "staleness" in tag]
