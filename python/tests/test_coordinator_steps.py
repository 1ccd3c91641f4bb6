"""Functions of a coordinator that train in step, over every protocol: variables change once by the
mean of what as many functions gave as there are workers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from strategies import Servers, cluster_fixture, strategy_of

import sidereal as sr
from sidereal import errors, keras
from sidereal.distribute import ParameterServerStrategy
from sidereal.distribute.coordinator import ClusterCoordinator
from sidereal.distribute.experimental.partitioners import FixedShardsPartitioner

PATIENCE_S = 60.0
WORKERS = 3
ROWS, DIM, BATCH = 12, 4, 8

cluster = cluster_fixture(2, WORKERS)


@pytest.fixture
def strategy(cluster: dict[str, list[str]]) -> Iterator[ParameterServerStrategy]:
    yield strategy_of(cluster, FixedShardsPartitioner(2))


def batches(count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(5)
    return [
        (
            rng.integers(0, ROWS, BATCH).astype("int64"),
            rng.standard_normal(BATCH).astype("float32"),
        )
        for _ in range(count)
    ]


class Net:
    """A look-up and a dense layer: by gradients of rows and of all."""

    def __init__(self, scope: Any, optimizer: Any) -> None:
        rng = np.random.default_rng(7)
        with scope:
            self.table = sr.Variable(rng.standard_normal((ROWS, DIM)).astype("f"), name="table")
            self.kernel = sr.Variable(rng.standard_normal((DIM, 1)).astype("f"), name="kernel")
            self.optimizer = optimizer()

    def gradients(self, ids: Any, labels: Any) -> tuple[Any, list[Any], list[Any]]:
        variables = [*getattr(self.table, "variables", [self.table]),
                     *getattr(self.kernel, "variables", [self.kernel])]  # fmt: skip
        with sr.GradientTape() as tape:
            rows = sr.nn.embedding_lookup(self.table, ids)
            found = sr.reshape(sr.matmul(rows, self.kernel), [-1])
            loss = sr.reduce_mean(sr.square(found - labels))
        return loss, tape.gradient(loss, variables), variables

    def step(self, ids: Any, labels: Any) -> Any:
        loss, grads, variables = self.gradients(ids, labels)
        self.optimizer.apply_gradients(zip(grads, variables))
        return loss

    def weights(self) -> list[np.ndarray]:
        return [np.concatenate([v.numpy() for v in getattr(w, "variables", [w])])
                for w in (self.table, self.kernel)]  # fmt: skip


def by_mean_in_this_process(
    optimizer: Any, data: Sequence[Any], size: int, rows_apart: bool = False
) -> list[np.ndarray]:
    """The weights when each `size` batches make one update by the mean of their gradients."""
    net = Net(contextlib.nullcontext(), optimizer)
    for first in range(0, len(data), size):
        part = data[first : first + size]
        found = [net.gradients(*one) for one in part]
        rows = [grads[0] for _, grads, _ in found]
        table, kernel = found[0][2]
        if rows_apart:
            for one in rows:
                net.optimizer._update_all([(one, table)], counts=False)
        dense = sum(grads[1].numpy() for _, grads, _ in found) / np.float32(len(part))
        joined = sr.IndexedSlices(
            sr.constant(np.concatenate([one.values.numpy() for one in rows]) / len(part)),
            sr.constant(np.concatenate([one.indices.numpy() for one in rows])),
            (ROWS, DIM),
        )
        pairs = [(sr.constant(dense), kernel)]
        net.optimizer.apply_gradients(pairs if rows_apart else [(joined, table), *pairs])
    return net.weights()


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: keras.optimizers.SGD(0.1),
    "adagrad": lambda: keras.optimizers.Adagrad(0.1),
    "adam": lambda: keras.optimizers.Adam(0.05),
    "clipped": lambda: keras.optimizers.SGD(0.1, global_clipnorm=0.5),
}


def train(coordinator: ClusterCoordinator, net: Net, data: Sequence[Any]) -> list[float]:
    step = sr.function(net.step)
    losses = [coordinator.schedule(step, (sr.constant(ids), sr.constant(labels)))
              for ids, labels in data]  # fmt: skip
    coordinator.join(PATIENCE_S)
    return [float(loss) for loss in coordinator.fetch(losses)]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_sync_trains_as_one_process_with_all_batches_of_a_step(
    strategy: ParameterServerStrategy, name: str
) -> None:
    coordinator = ClusterCoordinator(strategy, consistency="sync")
    net = Net(strategy.scope(), OPTIMIZERS[name])
    data = batches(4 * WORKERS)
    train(coordinator, net, data)
    for found, wanted in zip(
        net.weights(), by_mean_in_this_process(OPTIMIZERS[name], data, WORKERS)
    ):
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6)
    assert coordinator.metrics()["steps"] == 4
    assert int(net.optimizer.iterations.numpy()) == 4


def test_hybrid_updates_tables_at_once_and_the_rest_in_step(
    strategy: ParameterServerStrategy,
) -> None:
    coordinator = ClusterCoordinator(strategy, consistency="hybrid")
    net = Net(strategy.scope(), OPTIMIZERS["sgd"])
    # Functions of a step run at once: all of them look up rows that no other one has.
    data = []
    for first in range(0, 4 * WORKERS, WORKERS):
        for i, (ids, labels) in enumerate(batches(4 * WORKERS)[first : first + WORKERS]):
            data.append((ids // WORKERS * WORKERS + i, labels))
    train(coordinator, net, data)
    wanted = by_mean_in_this_process(OPTIMIZERS["sgd"], data, WORKERS, rows_apart=True)
    for found, one in zip(net.weights(), wanted):
        np.testing.assert_allclose(found, one, rtol=2e-5, atol=2e-6)
    assert int(net.optimizer.iterations.numpy()) == 4


class Counted:
    """A variable that says which functions have contributed to it: each gives the gradient of one
    of its elements, and a step of n functions takes 1/n off each of these."""

    def __init__(self, strategy: ParameterServerStrategy, count: int) -> None:
        with strategy.scope():
            shard_free = sr.Variable(np.zeros(count, "f"), name="counted")
            self.optimizer = keras.optimizers.SGD(1.0)
        self.parts = getattr(shard_free, "variables", [shard_free])
        self.count = count

        @sr.function
        def give(i: Any) -> Any:
            grad = sr.one_hot(i, count)
            pieces, begin = [], 0
            for part in self.parts:
                pieces.append((grad[begin : begin + part.shape[0]], part))
                begin += part.shape[0]
            self.optimizer.apply_gradients(pieces)
            return i

        self.give = give

    def values(self) -> np.ndarray:
        return -np.concatenate([part.numpy() for part in self.parts])


def test_the_last_step_ends_with_the_functions_that_there_are(
    strategy: ParameterServerStrategy,
) -> None:
    coordinator = ClusterCoordinator(strategy, consistency="sync")
    counted = Counted(strategy, WORKERS + 1)
    for i in range(WORKERS + 1):
        coordinator.schedule(counted.give, (sr.constant(i),))
    coordinator.join(PATIENCE_S)
    np.testing.assert_allclose(counted.values(), [1 / WORKERS] * WORKERS + [1], rtol=1e-6)


def test_who_waits_for_a_value_ends_its_step_and_sees_it(
    strategy: ParameterServerStrategy,
) -> None:
    coordinator = ClusterCoordinator(strategy, consistency="bounded(0)")
    counted = Counted(strategy, 3)
    for i in range(3):
        assert coordinator.schedule(counted.give, (sr.constant(i),)).fetch(PATIENCE_S) == i
        np.testing.assert_allclose(counted.values()[i], 1)
    value = coordinator.schedule(counted.give, (sr.constant(0),))
    until = time.monotonic() + PATIENCE_S
    while not value.is_ready:  # Nobody waits, and no other function comes.
        assert time.monotonic() < until
    assert coordinator.schedule(counted.give, (sr.constant(0),)).get(PATIENCE_S) is not None
    coordinator.schedule(counted.give, (sr.constant(1),))
    while not coordinator.done():
        assert time.monotonic() < until
    np.testing.assert_allclose(counted.values(), [3, 2, 1])


def test_functions_that_apply_nothing_run_beside_steps(strategy: ParameterServerStrategy) -> None:
    coordinator = ClusterCoordinator(strategy, consistency="sync")
    counted = Counted(strategy, WORKERS)
    with strategy.scope():
        other = sr.Variable(0.0)

    @sr.function
    def add() -> Any:
        other.assign_add(1.0)
        return counted.parts[0].read_value()[0]

    coordinator.schedule(counted.give, (sr.constant(0),))
    # The step waits for more, and this does not wait for it.
    assert coordinator.schedule(add).fetch(PATIENCE_S) in (0, -1)
    for i in range(1, WORKERS):
        coordinator.schedule(counted.give, (sr.constant(i),))
        coordinator.schedule(add)
    coordinator.join(PATIENCE_S)
    assert other.numpy() == WORKERS


def test_spares_are_not_waited_for_and_what_they_give_is_dropped(
    strategy: ParameterServerStrategy,
) -> None:
    coordinator = ClusterCoordinator(strategy, consistency=f"sync(2 of {WORKERS})")
    counted = Counted(strategy, 9)
    with strategy.scope():
        gate = sr.Variable(0.0, trainable=False)

    @sr.function
    def slow(i: Any) -> Any:
        (turns,) = sr.while_loop(
            lambda _: gate.read_value() < 1.0, lambda n: [n + 1], [sr.constant(0)]
        )
        return counted.give(i + 0 * turns)

    late = coordinator.schedule(slow, (sr.constant(0),))
    others = [coordinator.schedule(counted.give, (sr.constant(i),)) for i in range(1, 9)]
    coordinator.fetch(others)
    assert not late.is_ready
    gate.assign(1.0)
    coordinator.join(PATIENCE_S)
    # Two by two; the slow one's gradient was one of step 1.
    np.testing.assert_allclose(counted.values(), [0] + [0.5] * 8)
    assert late.fetch() == 0


def test_an_error_cancels_the_step_and_the_next_one_begins_without_it(
    strategy: ParameterServerStrategy,
) -> None:
    coordinator = ClusterCoordinator(strategy, consistency="sync")
    counted = Counted(strategy, WORKERS)

    @sr.function
    def wrong(i: Any) -> Any:
        sr.debugging.Assert(i < 0, [i])
        return counted.give(i)

    coordinator.schedule(counted.give, (sr.constant(0),))
    coordinator.schedule(wrong, (sr.constant(1),))
    with pytest.raises(errors.InvalidArgumentError):
        coordinator.join(PATIENCE_S)
    before = counted.values().sum()
    for i in range(WORKERS):
        coordinator.schedule(counted.give, (sr.constant(i),))
    coordinator.join(PATIENCE_S)
    np.testing.assert_allclose(counted.values().sum(), before + 1, rtol=1e-6)


def test_a_concrete_function_contributes_as_well(strategy: ParameterServerStrategy) -> None:
    coordinator = ClusterCoordinator(strategy, consistency="sync")
    counted = Counted(strategy, WORKERS)
    concrete = counted.give.get_concrete_function(sr.TensorSpec([], "int32"))
    for i in range(WORKERS):
        coordinator.schedule(concrete, (sr.constant(i),))
    coordinator.join(PATIENCE_S)
    np.testing.assert_allclose(counted.values(), [1 / WORKERS] * WORKERS, rtol=1e-6)
    # Called here, it updates at once.
    counted.give(sr.constant(0))
    np.testing.assert_allclose(counted.values()[0], 1 + 1 / WORKERS, rtol=1e-6)


def test_what_cannot_be_in_step_is_refused(strategy: ParameterServerStrategy) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=f"has {WORKERS} workers: write sync"):
        ClusterCoordinator(strategy, consistency=f"sync(2 of {WORKERS + 1})")
    coordinator = ClusterCoordinator(strategy, consistency="hybrid")
    counted = Counted(strategy, 3)

    @sr.function
    def twice(i: Any) -> None:
        counted.give(i)
        counted.give(i)

    @sr.function
    def maybe(i: Any) -> None:
        def give() -> Any:
            counted.give(i)
            return 0

        sr.cond(i > 0, give, lambda: 0)

    with strategy.scope():
        table = sr.Variable(np.zeros((4, 2), "f"), name="rows")

    @sr.function
    def rows(i: Any) -> None:
        part = table.variables[0]
        grad = sr.IndexedSlices(sr.ones([1, 2]), sr.reshape(i, [1]), part.shape)
        counted.optimizer.apply_gradients([(grad, part)])

    for function, said in (
        (twice, "applied twice in a function"),
        (maybe, "applied in a conditional or loop"),
        (rows, "has nothing to update in step"),
    ):
        with pytest.raises((errors.UnimplementedError, errors.InvalidArgumentError), match=said):
            coordinator.schedule(function, (sr.constant(1),))


def test_a_keras_model_of_two_workers_has_the_weights_of_twice_the_batch() -> None:
    def model() -> Any:
        made = keras.Sequential([
            keras.Input((4,)),
            keras.layers.Dense(8, "relu", kernel_initializer=keras.initializers.GlorotUniform(3)),
            keras.layers.Dense(1, kernel_initializer=keras.initializers.GlorotUniform(4)),
        ])  # fmt: skip
        made.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
        return made

    rng = np.random.default_rng(2)
    x, y = rng.standard_normal((128, 4)).astype("f"), rng.standard_normal((128, 1)).astype("f")
    alone = model()
    alone.fit(x, y, batch_size=32, epochs=3, shuffle=False, verbose=0)
    servers = Servers(2, 2, "star_server")
    try:
        strategy = strategy_of(servers.cluster, consistency="sync")
        with strategy.scope():
            together = model()
        history = together.fit(x, y, batch_size=16, epochs=3, shuffle=False, verbose=0)
        for found, wanted in zip(together.get_weights(), alone.get_weights()):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
        assert history.history["loss"][-1] < history.history["loss"][0]
        assert ClusterCoordinator(strategy).metrics()["steps"] == 3 * 128 // 32
        together.compile(keras.optimizers.Adam(0.01), "mse", steps_per_execution=2)
        with pytest.raises(errors.UnimplementedError, match="leave steps_per_execution=1"):
            together.fit(x, y, batch_size=16, verbose=0)
    finally:
        servers.stop()
