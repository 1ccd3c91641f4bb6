"""Models of sidereal.keras on parameter servers: loops of one's own, and fit(), evaluate() and
predict(), against the same in one process, over every protocol."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from strategies import Servers, strategy_of

import sidereal as sr
from sidereal import errors, keras
from sidereal.distribute import ParameterServerStrategy
from sidereal.distribute.coordinator import ClusterCoordinator
from sidereal.distribute.experimental.partitioners import FixedShardsPartitioner
from sidereal.keras import layers
from sidereal.launch import PROTOCOLS

RNG = np.random.default_rng(0)
X = RNG.normal(size=(46, 3)).astype("f")
IDS = RNG.integers(0, 10, 46).astype("i")
Y = (X @ np.array([[1.0], [-2.0], [0.5]]) + (IDS[:, None] > 4)).astype("f")
DATA = ({"x": X, "ids": IDS}, Y)


@pytest.fixture(scope="module", params=PROTOCOLS)
def cluster(request: pytest.FixtureRequest) -> Iterator[dict[str, list[str]]]:
    """Two ps and two workers."""
    servers = Servers(2, 2, request.param)
    yield servers.cluster
    servers.stop()


@pytest.fixture
def strategy(cluster: dict[str, list[str]]) -> ParameterServerStrategy:
    return strategy_of(cluster, FixedShardsPartitioner(2))


def network() -> Any:
    x, ids = keras.Input((3,), name="x"), keras.Input((), dtype="int32", name="ids")
    rows = layers.Embedding(10, 2, embeddings_regularizer="l2", name="table")(ids)
    hidden = layers.Dense(4, "relu", name="hidden")(layers.Concatenate()([x, rows]))
    return keras.Model({"x": x, "ids": ids}, layers.Dense(1, name="head")(hidden))


def same_weights(model: Any) -> Any:
    """A model of this process with the weights of another one."""
    made = network()
    made.set_weights(model.get_weights())
    return made


def dataset(batch: int = 8) -> Any:
    return sr.data.Dataset.from_tensor_slices(DATA).batch(batch)


# --- Variables, and loops of one's own.


def test_variables_of_the_scope_are_on_parameter_servers(strategy: ParameterServerStrategy) -> None:
    with strategy.scope():
        model = network()
        optimizer = keras.optimizers.Adam(0.01)
        metric = keras.metrics.AUC()
    optimizer.build(model.trainable_variables)
    devices = strategy.extended.parameter_devices
    kept = [*model.weights, *optimizer.variables, *metric.variables]
    assert {each.device for each in kept} == set(devices)
    table = [each for each in model.weights if each.name.startswith("table/")]
    assert [each.name for each in table] == ["table/embeddings/part_0", "table/embeddings/part_1"]
    assert [each.device for each in table] == list(devices)
    for variable in model.trainable_variables:
        for slot in optimizer.slots(variable).values():
            assert slot.device == variable.device
    shapes = [(10, 2), (5, 4), (4,), (4, 1), (1,)]
    assert [each.shape for each in model.get_weights()] == shapes
    assert model.count_params() == 49
    model.set_weights([np.full(shape, 2.0, "f") for shape in shapes])
    np.testing.assert_allclose(np.concatenate([each.numpy() for each in table]), 2.0)


def test_a_constraint_of_a_variable_in_shards(strategy: ParameterServerStrategy) -> None:
    with strategy.scope():
        with pytest.raises(errors.UnimplementedError, match="variable_partitioner"):
            layers.Embedding(10, 2, embeddings_constraint="max_norm").build((None,))
        layer = layers.Embedding(10, 2, embeddings_constraint="non_neg")
        layer.build((None,))
        optimizer = keras.optimizers.SGD(1.0)
    optimizer.apply_gradients((sr.ones((5, 2)), each) for each in layer.trainable_variables)
    np.testing.assert_array_equal(layer.get_weights()[0], 0)


OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    "adam": lambda: keras.optimizers.Adam(0.05),
    "schedule": lambda: keras.optimizers.RMSprop(
        keras.optimizers.schedules.ExponentialDecay(0.05, 2, 0.5)
    ),
}


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_loop_of_ones_own(strategy: ParameterServerStrategy, kind: str) -> None:
    with strategy.scope():
        model, optimizer = network(), OPTIMIZERS[kind]()
        mean, auc = keras.metrics.Mean(), keras.metrics.AUC()
    coordinator = ClusterCoordinator(strategy)
    local, other = same_weights(model), OPTIMIZERS[kind]()
    local_mean, local_auc = keras.metrics.Mean(), keras.metrics.AUC()

    def made(model: Any, optimizer: Any, mean: Any, auc: Any) -> Any:
        @sr.function
        def step(iterator: Any) -> Any:
            x, y = next(iterator)
            with sr.GradientTape() as tape:
                pred = model(x, training=True)
                loss = sr.reduce_mean(sr.square(pred - y)) + sr.math.add_n(model.losses)
            variables = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
            mean.update_state(loss)
            auc.update_state(sr.math.cast(y > 0.0, "float32"), sr.math.sigmoid(pred))
            return loss

        return step

    step = made(model, optimizer, mean, auc)
    iterator = iter(coordinator.create_per_worker_dataset(dataset().take(1).repeat()))
    losses = []
    for _ in range(6):
        losses.append(coordinator.schedule(step, (iterator,)))
        coordinator.join()
    step, steps = made(local, other, local_mean, local_auc), iter(dataset().take(1).repeat())
    expected = [float(step(steps)) for _ in range(6)]
    np.testing.assert_allclose(coordinator.fetch(losses), expected, rtol=1e-5)
    np.testing.assert_allclose(mean.result(), local_mean.result(), rtol=1e-5)
    np.testing.assert_allclose(auc.result(), local_auc.result(), rtol=1e-5)
    assert optimizer.iterations.numpy() == 6
    for mine, wanted in zip(model.get_weights(), local.get_weights()):
        np.testing.assert_allclose(mine, wanted, rtol=1e-4, atol=1e-5)
    mean.reset_state()
    assert mean.result() == 0


def test_metrics_of_concurrent_workers_lose_nothing(strategy: ParameterServerStrategy) -> None:
    with strategy.scope():
        metrics = [keras.metrics.Sum(), keras.metrics.MeanSquaredError(), keras.metrics.AUC()]
    coordinator = ClusterCoordinator(strategy)

    @sr.function
    def step(x: Any) -> None:
        metrics[0].update_state(x)
        metrics[1].update_state(x, x - 2.0)
        metrics[2].update_state([0.0, 1.0], [0.1, 0.9])

    for _ in range(60):
        coordinator.schedule(step, (sr.constant([1.0, 2.0]),))
    coordinator.join()
    assert metrics[0].result() == 180
    assert metrics[1].result() == 4
    assert metrics[2].result() == 1
    assert sum(metrics[2].variables[0].numpy()) > 0


def test_a_layer_may_be_built_by_a_function(strategy: ParameterServerStrategy) -> None:
    with strategy.scope():
        model = keras.Sequential([layers.Dense(4, "relu"), layers.BatchNormalization()])
        optimizer = keras.optimizers.SGD(0.1)
    coordinator = ClusterCoordinator(strategy)

    @sr.function
    def step(x: Any) -> Any:
        with sr.GradientTape() as tape:
            loss = sr.reduce_mean(sr.square(model(x, training=True) - 1.0))
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss

    first = coordinator.schedule(step, (X[:8],)).fetch()
    for _ in range(20):
        last = coordinator.schedule(step, (X[:8],))
    coordinator.join()
    assert last.fetch() < first
    assert {each.device for each in model.weights} == set(strategy.extended.parameter_devices)


def test_an_optimizer_of_the_scope_counts_there(strategy: ParameterServerStrategy) -> None:
    with strategy.scope():
        optimizer = keras.optimizers.SGD(0.5)
        weight = sr.Variable([1.0, 2.0, 3.0])
    assert optimizer.iterations.numpy() == 0
    optimizer.learning_rate = 0.25
    optimizer.apply_gradients([(sr.ones(each.shape), each) for each in weight.variables])
    np.testing.assert_allclose(weight.numpy(), [0.75, 1.75, 2.75])
    assert optimizer.iterations.numpy() == 1
    assert optimizer.iterations.device in strategy.extended.parameter_devices


# --- fit(), evaluate() and predict().

FIT: dict[str, Any] = {"epochs": 3, "verbose": 0, "shuffle": False}


def compiled(model: Any, **options: Any) -> Any:
    told = {
        "optimizer": keras.optimizers.Adam(0.05), "loss": "mse",
        "metrics": ["mae", keras.metrics.AUC(from_logits=True, name="auc")],
    }  # fmt: skip
    model.compile(**{**told, **options})
    return model


def pair(strategy: ParameterServerStrategy, **options: Any) -> tuple[Any, Any]:
    """A model on the cluster, and an equal one of this process."""
    with strategy.scope():
        model = compiled(network(), **options)
    return model, compiled(same_weights(model), **options)


TARGET = (Y > 0).astype("f")


class InOrder(keras.callbacks.Callback):
    """Has one step at a time run."""

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        ClusterCoordinator(self.model.distribute_strategy).join()


KINDS: dict[str, Any] = {
    "arrays": (lambda: DATA, {"batch_size": 8}),
    "dataset": (lambda: (dataset(),), {}),
    "workers": (lambda: (dataset().take(1).repeat(),), {"steps_per_epoch": 5}),
    "finite": (lambda: (dataset(46),), {"steps_per_epoch": 2}),
}


@pytest.mark.parametrize("at_once", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_steps_in_order_train_as_one_process(
    strategy: ParameterServerStrategy, kind: str, at_once: int
) -> None:
    data, options = KINDS[kind]
    model, local = pair(strategy, steps_per_execution=at_once)
    history = model.fit(*data(), **FIT, **options, callbacks=[InOrder()])
    wanted = local.fit(*data(), **FIT, **options)
    assert list(history.history) == list(wanted.history)
    for name, values in wanted.history.items():
        np.testing.assert_allclose(history.history[name], values, rtol=1e-5, atol=1e-5)
    for mine, other in zip(model.get_weights(), local.get_weights()):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)
    assert model.optimizer.iterations.numpy() == local.optimizer.iterations.numpy()
