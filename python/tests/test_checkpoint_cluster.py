"""Checkpoints of variables on parameter servers: who writes what, other numbers of servers and
shards, models and optimizers, and training that goes on meanwhile; over the protocols whose
sessions differ most."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from strategies import Servers, cluster_fixture, strategy_of

import sidereal as sr
from sidereal import errors, keras
from sidereal.distribute.cluster_resolver import TFConfigClusterResolver
from sidereal.distribute.coordinator import ClusterCoordinator, get_current_worker_index
from sidereal.distribute.experimental.partitioners import FixedShardsPartitioner
from sidereal.train import (
    Checkpoint,
    CheckpointManager,
    CheckpointOptions,
    latest_checkpoint,
    list_variables,
    load_variable,
)

VALUE = ".ATTRIBUTES/VARIABLE_VALUE"
PROTOCOLS = ("grpc", "star_server")
cluster = cluster_fixture(2, 2, PROTOCOLS)


@pytest.fixture(scope="module")
def other_cluster() -> Iterator[dict[str, list[str]]]:
    """Three parameter servers."""
    servers = Servers(3, 1)
    yield servers.cluster
    servers.stop()


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    return str(tmp_path / "ckpt")


def numbers(*shape: int) -> np.ndarray:
    return np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)


def made(strategy: Any, value: Any, **options: Any) -> Any:
    with strategy.scope():
        return sr.Variable(value, **options)


def data_files(path: str) -> list[Path]:
    whole = Path(path)
    return sorted(whole.parent.glob(f"{whole.name}.data-*"))


def test_each_parameter_server_writes_a_file(cluster: Any, prefix: str) -> None:
    strategy = strategy_of(cluster)
    values = [numbers(n + 1) for n in range(4)]
    checkpoint = Checkpoint(v=[made(strategy, value) for value in values], here=sr.Variable(3.0))
    path = checkpoint.save(prefix)
    # One of this process, for what it has itself.
    assert len(data_files(path)) == 3
    for number, value in enumerate(values):
        np.testing.assert_array_equal(load_variable(path, f"v/{number}/{VALUE}"), value)
    for v in checkpoint.v:
        v.assign(sr.zeros_like(v))
    checkpoint.here.assign(0.0)
    checkpoint.restore(path).assert_consumed()
    for v, value in zip(checkpoint.v, values):
        np.testing.assert_array_equal(v.numpy(), value)
    assert float(checkpoint.here) == 3.0


def test_this_process_may_write_all(cluster: Any, prefix: str) -> None:
    strategy = strategy_of(cluster, FixedShardsPartitioner(2))
    checkpoint = Checkpoint(v=made(strategy, 5.0), table=made(strategy, numbers(7, 2)))
    options = CheckpointOptions(experimental_io_device="/job:localhost")
    path = checkpoint.write(prefix, options)
    assert len(data_files(path)) == 1
    np.testing.assert_array_equal(load_variable(path, f"table/{VALUE}"), numbers(7, 2))
    checkpoint.v.assign(0.0)
    checkpoint.table.assign(np.zeros([7, 2], np.float32))
    checkpoint.read(path, options).assert_consumed()
    assert float(checkpoint.v.numpy()) == 5.0
    np.testing.assert_array_equal(checkpoint.table.numpy(), numbers(7, 2))


@pytest.mark.parametrize(("saved", "restored"), [(2, 3), (3, 2), (5, 1), (1, 4)])
def test_shards_become_others(
    cluster: Any, other_cluster: Any, prefix: str, saved: int, restored: int
) -> None:
    whole = numbers(11, 3)
    first = strategy_of(cluster, FixedShardsPartitioner(saved))
    second = strategy_of(other_cluster, FixedShardsPartitioner(restored))
    path = Checkpoint(table=made(first, whole)).write(prefix)
    assert list_variables(path)[1] == (f"table/{VALUE}", [11, 3])
    np.testing.assert_array_equal(load_variable(path, f"table/{VALUE}"), whole)
    there = made(second, np.zeros_like(whole))
    Checkpoint(table=there).read(path).assert_consumed()
    np.testing.assert_array_equal(there.numpy(), whole)
    here = sr.Variable(np.zeros_like(whole))
    Checkpoint(table=here).read(path).assert_consumed()
    np.testing.assert_array_equal(here.numpy(), whole)


def test_a_table_of_one_process_is_cut(cluster: Any, prefix: str) -> None:
    whole = numbers(11, 3)
    path = Checkpoint(table=sr.Variable(whole)).write(prefix)
    checkpoint = Checkpoint()
    status = checkpoint.read(path)
    checkpoint.table = made(strategy_of(cluster, FixedShardsPartitioner(3)), np.zeros_like(whole))
    np.testing.assert_array_equal(checkpoint.table.numpy(), whole)
    status.assert_consumed()


def test_what_does_not_fit_changes_nothing(cluster: Any, prefix: str) -> None:
    strategy = strategy_of(cluster)
    path = Checkpoint(a=made(strategy, [1.0]), b=made(strategy, [1.0, 2.0])).write(prefix)
    checkpoint = Checkpoint(a=made(strategy, [7.0]), b=made(strategy, [7.0]))
    with pytest.raises(errors.InvalidArgumentError, match=r"float32\[2\].*float32\[1\]"):
        checkpoint.read(path)
    assert checkpoint.a.numpy() == 7.0


def test_variables_of_each_worker_are_not_saved(cluster: Any, prefix: str) -> None:
    strategy = strategy_of(cluster)
    seen = made(strategy, 0, per_worker_variable=True)
    with pytest.raises(ValueError, match=r"Checkpoint\(seen=...\)"):
        Checkpoint(seen=seen)
    path = Checkpoint(v=[made(strategy, 1.0), seen]).write(prefix)
    assert [name for name, _ in list_variables(path)][1:] == [f"v/0/{VALUE}"]


@pytest.mark.parametrize("kind", ["Adam", "RowWiseAdagrad"])
def test_optimizers_of_tables_go_on_elsewhere(
    cluster: Any, other_cluster: Any, prefix: str, kind: str
) -> None:
    make = getattr(sr.optimizers, kind)

    def trained(table: Any, optimizer: Any) -> np.ndarray:
        @sr.function
        def step() -> None:
            rows = sr.convert_to_tensor([0, 4, 4, 10])
            with sr.GradientTape() as tape:
                loss = sr.reduce_sum(sr.nn.embedding_lookup(table, rows) ** 2)
            shards = getattr(table, "variables", [table])
            optimizer.apply_gradients(zip(tape.gradient(loss, shards), shards))

        step()
        step()
        found: np.ndarray = table.numpy()
        return found

    first = strategy_of(cluster, FixedShardsPartitioner(2))
    second = strategy_of(other_cluster, FixedShardsPartitioner(3))
    table, optimizer = made(first, numbers(11, 3)), make(0.1)
    trained(table, optimizer)
    path = Checkpoint(table=table, optimizer=optimizer).save(prefix)
    wanted = trained(table, optimizer)
    there, fresh = made(second, np.zeros([11, 3], np.float32)), make(0.1)
    Checkpoint(table=there, optimizer=fresh).restore(path).assert_consumed()
    assert int(fresh.iterations.numpy()) == 2
    np.testing.assert_allclose(trained(there, fresh), wanted, rtol=1e-6)
    here, local = sr.Variable(np.zeros([11, 3], np.float32)), make(0.1)
    Checkpoint(table=here, optimizer=local).restore(path).assert_consumed()
    np.testing.assert_allclose(trained(here, local), wanted, rtol=1e-6)


def test_a_model_goes_on_on_another_cluster(cluster: Any, other_cluster: Any, prefix: str) -> None:
    rng = np.random.default_rng(0)
    data = {"ids": rng.integers(0, 11, (32, 2)), "x": rng.normal(size=(32, 3)).astype("f")}
    y = rng.integers(0, 2, (32, 1)).astype("f")

    def model(strategy: Any) -> Any:
        with strategy.scope():
            ids, x = keras.Input((2,), dtype="int64", name="ids"), keras.Input((3,), name="x")
            rows = keras.layers.Flatten()(keras.layers.Embedding(11, 2)(ids))
            hidden = keras.layers.Dense(4, "relu")(keras.layers.Concatenate()([rows, x]))
            outputs = keras.layers.Dense(1, "sigmoid")(hidden)
            made = keras.Model({"ids": ids, "x": x}, outputs)
            made.compile(keras.optimizers.Adam(0.05), "binary_crossentropy")
            return made

    fit: dict[str, Any] = {"batch_size": 32, "epochs": 3, "verbose": 0, "shuffle": False}
    first = model(strategy_of(cluster, FixedShardsPartitioner(2)))
    first.fit(data, y, **fit)
    first.save_weights(prefix)
    wanted = first.fit(data, y, **fit).history["loss"]
    for other in (strategy_of(other_cluster, FixedShardsPartitioner(3)), strategy_of(cluster)):
        there = model(other)
        there.load_weights(prefix).assert_consumed()
        np.testing.assert_allclose(there.fit(data, y, **fit).history["loss"], wanted, rtol=1e-4)


def test_callbacks_have_parameter_servers_write(cluster: Any, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(32, 3)).astype("f")
    with strategy_of(cluster, FixedShardsPartitioner(2)).scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4), keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(0.05), "mse")
    told = keras.callbacks.ModelCheckpoint(
        tmp_path / "w-{epoch}", "loss", save_best_only=True, save_weights_only=True
    )
    model.fit(x, x[:, :1], batch_size=16, epochs=2, verbose=0, callbacks=[told])
    newest = latest_checkpoint(tmp_path)
    assert newest is not None and len(data_files(newest)) == 3
    here = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4), keras.layers.Dense(1)])
    here.load_weights(newest)
    for one, two in zip(here.get_weights(), model.get_weights()):
        np.testing.assert_array_equal(one, two)


def test_a_model_that_is_built_later(cluster: Any, prefix: str) -> None:
    x = np.random.default_rng(0).normal(size=(32, 3)).astype("f")
    fit: dict[str, Any] = {"batch_size": 32, "epochs": 2, "verbose": 0, "shuffle": False}

    def model(partitioner: Any) -> Any:
        with strategy_of(cluster, partitioner).scope():
            made = keras.Sequential([keras.layers.Dense(4, "tanh"), keras.layers.Dense(1)])
            made.compile(keras.optimizers.Adam(0.05), "mse")
            return made

    first = model(FixedShardsPartitioner(2))
    first.fit(x, x[:, :1], **fit)
    first.save_weights(prefix)
    wanted = first.fit(x, x[:, :1], **fit).history["loss"]
    there = model(FixedShardsPartitioner(3))
    status = there.load_weights(prefix)
    assert not there.built
    # They are restored while the step of workers is traced.
    np.testing.assert_allclose(there.fit(x, x[:, :1], **fit).history["loss"], wanted, rtol=1e-4)
    status.assert_consumed()


def test_after_join_all_is_of_one_instant(cluster: Any, tmp_path: Path) -> None:
    strategy = strategy_of(cluster)
    coordinator = ClusterCoordinator(strategy)
    with strategy.scope():
        counters = [sr.Variable(0) for _ in range(4)]

    @sr.function
    def step() -> None:
        for each in counters:
            each.assign_add(1)

    checkpoint = Checkpoint(counters=counters)
    manager = CheckpointManager(checkpoint, tmp_path, max_to_keep=2)
    for count in (10, 20, 30):
        for _ in range(10):
            coordinator.schedule(step)
        coordinator.join()
        manager.save()
        newest = latest_checkpoint(tmp_path)
        assert newest is not None
        found = [load_variable(newest, f"counters/{i}/{VALUE}") for i in range(4)]
        assert found == [count] * 4
    assert len(manager.checkpoints) == 2
    assert len(list(tmp_path.glob("*.index"))) == 2


def test_training_goes_on_while_it_is_saved(cluster: Any, prefix: str) -> None:
    strategy = strategy_of(cluster)
    coordinator = ClusterCoordinator(strategy)
    counter = made(strategy, 0)

    @sr.function
    def step() -> None:
        counter.assign_add(1)

    checkpoint = Checkpoint(counter=counter)
    for _ in range(200):
        coordinator.schedule(step)
    paths = [checkpoint.save(prefix) for _ in range(3)]
    coordinator.join()
    found = [int(load_variable(path, f"counter/{VALUE}")) for path in paths]
    assert found == sorted(found) and found[0] >= 0 and found[-1] <= 200
    assert int(counter.numpy()) == 200


def test_a_folder_that_cannot_be_written(cluster: Any, tmp_path: Path) -> None:
    strategy = strategy_of(cluster)
    checkpoint = Checkpoint(v=made(strategy, 1.0))
    (tmp_path / "file").write_text("")
    with pytest.raises((errors.Error, OSError)):
        checkpoint.write(tmp_path / "file" / "ckpt")
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_a_coordinator_that_comes_back(cluster: Any, tmp_path: Path) -> None:
    def run(steps: int) -> tuple[str | None, int]:
        strategy = strategy_of(cluster)
        coordinator = ClusterCoordinator(strategy)
        with strategy.scope():
            w, step = sr.Variable([0.0, 0.0]), sr.Variable(0, dtype="int64")
        manager = CheckpointManager(Checkpoint(w=w, step=step), tmp_path, max_to_keep=1)
        begun = manager.restore_or_initialize()

        @sr.function
        def train() -> None:
            w.assign_add([1.0, 2.0])
            step.assign_add(1)

        while int(step.numpy()) < steps:
            coordinator.schedule(train)
            coordinator.join()
            manager.save()
        np.testing.assert_array_equal(w.numpy(), [steps, 2 * steps])
        return begun, int(checkpointed(manager))

    def checkpointed(manager: CheckpointManager) -> Any:
        assert manager.latest_checkpoint is not None
        return load_variable(manager.latest_checkpoint, f"step/{VALUE}")

    assert run(3) == (None, 3)
    begun, steps = run(5)
    assert begun == str(tmp_path / "ckpt-3") and steps == 5


def test_iterators_of_workers_go_on(cluster: Any, prefix: str) -> None:
    strategy = strategy_of(cluster)
    coordinator = ClusterCoordinator(strategy)
    dataset = coordinator.create_per_worker_dataset(sr.data.Dataset.range(1000))

    @sr.function
    def step(iterator: Any) -> Any:
        return get_current_worker_index(), next(iterator)

    def taken(iterator: Any) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {0: [], 1: []}
        for value in [coordinator.schedule(step, (iterator,)) for _ in range(20)]:
            worker, number = value.fetch(60.0)
            found[int(worker)].append(int(number))
        return {worker: sorted(numbers) for worker, numbers in found.items()}

    iterator = iter(dataset)
    taken(iterator)
    coordinator.join()
    path = Checkpoint(iterator=iterator).write(prefix)
    first = taken(iterator)
    other = iter(dataset)
    Checkpoint(iterator=other).read(path).assert_consumed()
    second = taken(other)
    for worker in (0, 1):
        count = min(len(first[worker]), len(second[worker]))
        assert first[worker][:count] == second[worker][:count]


@pytest.mark.parametrize("save_freq", ["epoch", 2])
def test_a_fit_of_workers_goes_on(
    cluster: Any, other_cluster: Any, tmp_path: Path, save_freq: Any
) -> None:
    x = np.random.default_rng(0).normal(size=(48, 3)).astype("f")

    def fit(cluster: Any, shards: int, *callbacks: Any) -> Any:
        with strategy_of(cluster, FixedShardsPartitioner(shards)).scope():
            model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
            model.compile(keras.optimizers.Adam(0.05), "mse")
        told = keras.callbacks.BackupAndRestore(tmp_path / "backup", save_freq)
        data = sr.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(8)
        history = model.fit(
            data, epochs=3, steps_per_epoch=6, callbacks=[told, *callbacks], verbose=0
        )
        return model, history

    class CutOffError(Exception):
        pass

    def cut(epoch: int, logs: Any) -> None:
        if epoch == 1:
            raise CutOffError

    with pytest.raises(CutOffError):
        fit(cluster, 2, keras.callbacks.LambdaCallback(on_epoch_end=cut))
    model, history = fit(other_cluster, 3)
    # The end of epoch 1 was not heard of where only batches were saved.
    assert history.epoch == [2]
    assert model.optimizer.iterations.numpy() == 18
    assert not (tmp_path / "backup").exists()


def test_an_evaluator_evaluates_what_the_cluster_saves(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task `evaluator` of TF_CONFIG: nobody waits for it, and it asks nobody."""
    x = np.random.default_rng(0).normal(size=(32, 3)).astype("f")
    y = (x[:, :1] > 0).astype("f")

    def model() -> Any:
        made = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, "sigmoid")])
        made.compile(keras.optimizers.Adam(0.05), "binary_crossentropy")
        return made

    named = {**cluster, "evaluator": ["localhost:1"]}
    found: list[Any] = []

    def evaluate() -> None:
        data = sr.data.Dataset.from_tensor_slices((x, y)).batch(8)
        evaluator = keras.SidecarEvaluator(
            model(), data, tmp_path, final_step=12, max_wait_secs=120
        )
        found.append(evaluator.start())

    config = {"cluster": named, "task": {"type": "evaluator", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    resolver = TFConfigClusterResolver()
    assert (resolver.task_type, resolver.task_id) == ("evaluator", 0)
    running = threading.Thread(target=evaluate)
    running.start()
    with strategy_of(named).scope():
        trained = model()
    manager = CheckpointManager(
        Checkpoint(model=trained, optimizer=trained.optimizer), tmp_path, max_to_keep=1
    )
    for _ in range(3):
        trained.fit(x, y, batch_size=8, verbose=0)
        manager.save()
    wanted = trained.evaluate(x, y, batch_size=8, verbose=0)
    running.join(120)
    assert not running.is_alive()
    np.testing.assert_allclose(found[0]["loss"], wanted, rtol=1e-5)
