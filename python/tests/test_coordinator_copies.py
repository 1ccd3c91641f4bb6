"""Functions of a coordinator that train copies of dense variables, over every protocol: workers
send what so many functions have changed together."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from strategies import Servers, Tasks, cluster_fixture, strategy_of

import sidereal as sr
from sidereal import errors, keras
from sidereal.distribute import ParameterServerStrategy
from sidereal.distribute.coordinator import ClusterCoordinator
from sidereal.distribute.experimental.partitioners import FixedShardsPartitioner

pytestmark = pytest.mark.usefixtures("time_to_answer")

PATIENCE_S = 60.0
WORKERS = 2
ROWS, DIM, BATCH = 12, 4, 8
RATE = 0.25

cluster = cluster_fixture(2, WORKERS)
alone = cluster_fixture(2, 1)


class Net:
    """A look-up and a dense layer: by gradients of rows and of all."""

    def __init__(self, scope: Any, optimizer: Callable[[], Any]) -> None:
        rng = np.random.default_rng(7)
        with scope:
            self.table = sr.Variable(rng.standard_normal((ROWS, DIM)).astype("f"), name="table")
            self.kernel = sr.Variable(rng.standard_normal((DIM, 2)).astype("f"), name="kernel")
            self.optimizer = optimizer()

    def step(self, ids: Any, labels: Any) -> Any:
        variables = [each for weight in (self.table, self.kernel)
                     for each in getattr(weight, "variables", [weight])]  # fmt: skip
        with sr.GradientTape() as tape:
            rows = sr.nn.embedding_lookup(self.table, ids)
            found = sr.reduce_sum(sr.matmul(rows, sr.convert_to_tensor(self.kernel)), axis=1)
            loss = sr.reduce_mean(sr.square(found - labels))
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss

    def state(self) -> list[np.ndarray]:
        """Of weights, and of slots of the dense one."""
        kernels = getattr(self.kernel, "variables", [self.kernel])
        slots = [slot.numpy() for each in kernels for slot in self.optimizer._slots_of(each)]
        weights = [np.concatenate([one.numpy() for one in getattr(each, "variables", [each])])
                   for each in (self.table, self.kernel)]  # fmt: skip
        return [*weights, *slots]


def batches(count: int) -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(5)
    return [
        (
            sr.constant(rng.integers(0, ROWS, BATCH).astype("int64")),
            sr.constant(rng.standard_normal(BATCH).astype("float32")),
        )
        for _ in range(count)
    ]


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: keras.optimizers.SGD(0.1),
    "adagrad": lambda: keras.optimizers.Adagrad(0.1),
    "adam": lambda: keras.optimizers.Adam(0.05),
    "clipped": lambda: keras.optimizers.SGD(0.1, momentum=0.9, global_clipnorm=0.5),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("window", [1, 3, 100])
def test_a_worker_alone_trains_as_one_process(
    alone: dict[str, list[str]], name: str, window: int
) -> None:
    strategy = strategy_of(alone)
    coordinator = ClusterCoordinator(strategy, consistency=f"geo({window})")
    net = Net(strategy.scope(), OPTIMIZERS[name])
    here = Net(contextlib.nullcontext(), OPTIMIZERS[name])
    step = sr.function(net.step)
    for count in (7, 1):  # What was sent last is gone on from.
        data = batches(count)
        losses = [coordinator.schedule(step, args) for args in data]
        coordinator.join(PATIENCE_S)
        wanted = [float(here.step(*args)) for args in data]
        np.testing.assert_allclose(coordinator.fetch(losses), wanted, rtol=1e-4)
        for found, value in zip(net.state(), here.state(), strict=True):
            np.testing.assert_allclose(found, value, rtol=1e-4, atol=1e-6)
        assert int(net.optimizer.iterations.numpy()) == int(here.optimizer.iterations.numpy())


class Line:
    """A variable whose gradient is one in each element."""

    def __init__(self, strategy: ParameterServerStrategy, size: int = 3) -> None:
        with strategy.scope():
            self.weight = sr.Variable(np.zeros(size, np.float32), name="weight")
            self.optimizer = sr.optimizers.SGD(RATE)

    def step(self) -> Any:
        """The weight before, where it runs."""
        before = sr.identity(self.weight)
        variables = getattr(self.weight, "variables", [self.weight])
        with sr.GradientTape() as tape:
            loss = sum(sr.reduce_sum(each) for each in variables)
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return before

    def value(self) -> np.ndarray:
        return np.concatenate([v.numpy() for v in getattr(self.weight, "variables", [self.weight])])


def test_changes_are_sent_after_so_many_functions_and_when_all_are_joined(
    alone: dict[str, list[str]],
) -> None:
    strategy = strategy_of(alone)
    coordinator = ClusterCoordinator(strategy, consistency="geo(4)")
    line = Line(strategy)
    step = sr.function(line.step)
    sent = []
    for made in range(1, 10):
        before = coordinator.schedule(step).get(PATIENCE_S)
        # The worker sees its own changes.
        np.testing.assert_array_equal(before.numpy(), np.full(3, -RATE * (made - 1), np.float32))
        sent.append(float(line.value()[0]) / -RATE)
    assert sent == [0, 0, 0, 4, 4, 4, 4, 8, 8]
    coordinator.join(PATIENCE_S)
    np.testing.assert_array_equal(line.value(), np.full(3, -RATE * 9, np.float32))
    # What the coordinator assigns is seen with the next exchange, and what was learned is added.
    line.weight.assign(np.full(3, 10.0, np.float32))
    for _ in range(5):
        before = coordinator.schedule(step).get(PATIENCE_S)
    np.testing.assert_array_equal(before.numpy(), np.full(3, 10 - RATE * 4, np.float32))


@pytest.mark.parametrize("shards", [1, 3])
def test_what_each_function_changes_is_added_once(
    cluster: dict[str, list[str]], shards: int
) -> None:
    strategy = strategy_of(cluster, FixedShardsPartitioner(shards))
    coordinator = ClusterCoordinator(strategy, consistency="geo(3)")
    line = Line(strategy)
    step = sr.function(line.step)
    for count in (31, 62):
        for _ in range(31):
            coordinator.schedule(step)
        coordinator.join(PATIENCE_S)
        np.testing.assert_array_equal(line.value(), np.full(3, -RATE * count, np.float32))
        assert int(line.optimizer.iterations.numpy()) == count


def test_functions_that_train_nothing_read_what_parameter_servers_have(
    alone: dict[str, list[str]],
) -> None:
    strategy = strategy_of(alone)
    coordinator = ClusterCoordinator(strategy, consistency="geo(4)")
    line = Line(strategy)
    read = sr.function(lambda: line.weight.value())
    coordinator.schedule(sr.function(line.step)).get(PATIENCE_S)
    assert coordinator.schedule(read).fetch()[0] == 0
    coordinator.join(PATIENCE_S)
    assert coordinator.schedule(read).fetch()[0] == -RATE


def test_functions_that_train_different_variables_have_windows_of_their_own(
    alone: dict[str, list[str]],
) -> None:
    strategy = strategy_of(alone)
    coordinator = ClusterCoordinator(strategy, consistency="geo(2)")
    lines = [Line(strategy), Line(strategy)]
    steps = [sr.function(line.step) for line in lines]
    seen = []
    for _ in range(4):
        for step in steps:
            coordinator.schedule(step).get(PATIENCE_S)
        seen.append([float(line.value()[0]) / -RATE for line in lines])
    assert seen == [[0, 0], [2, 2], [2, 2], [4, 4]]


def test_steps_that_a_function_packs_count(alone: dict[str, list[str]]) -> None:
    strategy = strategy_of(alone)
    coordinator = ClusterCoordinator(strategy, consistency="geo(6)")
    line = Line(strategy)

    @sr.function
    def steps() -> None:
        for _ in range(3):
            line.step()

    coordinator.schedule(steps).get(PATIENCE_S)
    assert line.value()[0] == 0
    coordinator.schedule(steps).get(PATIENCE_S)
    assert line.value()[0] == -RATE * 6


def test_an_optimizer_may_be_applied_in_a_conditional(alone: dict[str, list[str]]) -> None:
    strategy = strategy_of(alone)
    coordinator = ClusterCoordinator(strategy, consistency="geo(2)")
    line = Line(strategy)

    @sr.function
    def step(is_wanted: Any) -> None:
        def train() -> Any:
            line.step()
            return 0

        sr.cond(is_wanted, train, lambda: 0)

    for wanted in (True, False, True, True):
        coordinator.schedule(step, (sr.constant(wanted),))
    coordinator.join(PATIENCE_S)
    assert line.value()[0] == -RATE * 3


@pytest.mark.parametrize("workers", [1, 2])
def test_a_keras_model_of_a_strategy_trains_so(protocol: str, workers: int) -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((256, 4)).astype("float32")
    y = (x @ np.array([[1.0], [-2.0], [0.5], [0.0]], np.float32)).astype("float32")

    def fit(scope: Any) -> Any:
        keras.utils.set_random_seed(11)
        with scope:
            model = keras.Sequential([keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
            model.compile(keras.optimizers.Adam(0.01), "mse")
        model.fit(x, y, batch_size=16, epochs=8, shuffle=False, verbose=0)
        return model

    servers = Servers(1, workers, protocol)
    try:
        strategy = strategy_of(servers.cluster, consistency="geo(4)")
        model, here = fit(strategy.scope()), fit(contextlib.nullcontext())
        steps = int(model.optimizer.iterations.numpy())
        assert steps == int(here.optimizer.iterations.numpy())
        loss, loss_here = (each.evaluate(x, y, verbose=0) for each in (model, here))
        if workers == 1:
            np.testing.assert_allclose(loss, loss_here, rtol=1e-3)
        assert loss < 0.3 * float(np.mean(np.square(y)))
    finally:
        servers.stop()


@pytest.fixture(params=["grpc", "star_server"])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_what_a_killed_worker_has_not_sent_is_lost_and_no_more(
    tasks_of: Callable[..., Tasks], protocol: str
) -> None:
    tasks = tasks_of(1, 2, protocol)
    coordinator = tasks.coordinator(consistency="geo(5)")
    tasks.found_by(coordinator)
    line = Line(coordinator.strategy)
    step = sr.function(line.step)
    for _ in range(3):
        for _ in range(40):
            coordinator.schedule(step)
        tasks.kill("worker", 1)
        coordinator.join(PATIENCE_S)
        tasks.start("worker", 1)
        tasks.found_by(coordinator)
    made = float(line.value()[0]) / -RATE
    # Of each life up to four that it had not sent, and one that it had sent and not told of.
    assert 120 - 3 * 4 <= made <= 120 + 3


def test_copies_are_sent_to_where_variables_have_moved(tasks_of: Callable[..., Tasks]) -> None:
    tasks = tasks_of(3, 2, "star_server", not_yet=[2])
    strategy = tasks.strategy(
        variable_partitioner=FixedShardsPartitioner(6), start_ps=2, consistency="geo(4)"
    )
    coordinator = ClusterCoordinator(strategy)
    line = Line(strategy, 6)
    step = sr.function(line.step)

    def train() -> int:
        for _ in range(30):
            coordinator.schedule(step)
        coordinator.join(PATIENCE_S)
        return 30

    made = tasks.moves_while(train)
    np.testing.assert_array_equal(line.value(), np.full(6, -RATE * made, np.float32))


def test_a_ps_that_is_restored_gets_what_workers_learn_from_then_on(
    tasks_of: Callable[..., Tasks], tmp_path: Path
) -> None:
    tasks = tasks_of(1, 1)
    coordinator = tasks.coordinator(consistency="geo(4)", on_ps_loss="restore")
    line = Line(coordinator.strategy)
    step = sr.function(line.step)
    manager = sr.train.CheckpointManager(
        sr.train.Checkpoint(weight=line.weight, optimizer=line.optimizer), tmp_path, 2
    )
    coordinator.restore_from(manager)

    def run(count: int) -> float:
        for _ in range(count):
            coordinator.schedule(step)
        coordinator.join(PATIENCE_S)
        return float(line.value()[0]) / -RATE

    assert run(6) == 6
    manager.save()
    assert run(8) == 14
    tasks.kill("ps", 0)
    tasks.start("ps", 0)
    # What the worker had sent since is lost with the ps; what it learns is added.
    assert run(8) == 14
    assert len(coordinator.restored) == 1


def test_what_is_on_no_parameter_server_is_not_trained(
    alone: dict[str, list[str]],
) -> None:
    coordinator = ClusterCoordinator(strategy_of(alone), consistency="geo(2)")
    own = sr.Variable(1.0, name="own")
    optimizer = sr.optimizers.SGD(0.1)

    @sr.function
    def step() -> None:
        optimizer.apply_gradients([(sr.constant(1.0), own)])

    with pytest.raises(errors.InvalidArgumentError, match=r"'own' is not on a parameter server"):
        coordinator.schedule(step)
