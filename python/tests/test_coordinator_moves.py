"""Variables of a strategy go from one parameter server to another while its coordinator has workers
train: each function counts once, whatever the protocol."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from strategies import Tasks, ps

import sidereal as sr
from sidereal import _native, errors, keras
from sidereal.distribute import ParameterServerStrategy, _moves
from sidereal.distribute.coordinator import ClusterCoordinator
from sidereal.distribute.experimental.partitioners import FixedShardsPartitioner
from sidereal.launch import PROTOCOLS
from sidereal.v1 import moving

pytestmark = pytest.mark.usefixtures("time_to_answer")

PATIENCE_S = 120.0
ROWS = 60


@pytest.fixture
def made() -> Iterator[list[Tasks]]:
    """Tasks that end with the test."""
    found: list[Tasks] = []
    yield found
    for servers in found:
        servers.processes.end()


def servers_of(made: list[Tasks], protocol: str = "grpc", *not_yet: int) -> Tasks:
    made.append(Tasks(3, 2, protocol, not_yet))
    return made[-1]


class Counting:
    """A table whose rows, and a variable, that a function adds one to."""

    def __init__(self, strategy: ParameterServerStrategy, **options: Any) -> None:
        self.coordinator = ClusterCoordinator(strategy, **options)
        with strategy.scope():
            self.table = sr.Variable(np.zeros((ROWS, 4), np.float32), name="table")
            self.whole = sr.Variable(0.0, name="whole")
        table, whole = self.table, self.whole
        self.scheduled = 0
        ids = sr.constant(np.arange(ROWS))

        def half(i: Any) -> Any:
            whole.assign_add(0.5)
            return (i + 1,)

        @sr.function
        def step() -> Any:
            rows = sr.ones([ROWS, 4])
            table.scatter_add(sr.IndexedSlices(rows, ids))
            sr.while_loop(lambda i: i < 2, half, (sr.constant(0),))
            return sr.reduce_sum(sr.nn.embedding_lookup(table, ids[:3]))

        self.step = step
        self._stops = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Counting:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stops.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stops.is_set():
            for _ in range(20):
                self.coordinator.schedule(self.step)
                self.scheduled += 1
            self.coordinator.join(PATIENCE_S)

    def check(self) -> None:
        """Each function has counted once."""
        assert self.scheduled > 0
        assert self.whole.numpy() == self.scheduled
        np.testing.assert_array_equal(self.table.numpy(), np.full((ROWS, 4), self.scheduled))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_function_counts_once_while_variables_move(
    made: list[Tasks], protocol: str
) -> None:
    servers = servers_of(made, protocol, 2)
    strategy = servers.strategy(variable_partitioner=FixedShardsPartitioner(6), start_ps=2)
    with Counting(strategy) as counting:
        servers.start("ps", 2)
        said = servers.well("scale", "--ps", "3")
        assert "from 2 to 3 parameter servers" in said
        assert {each.device for each in counting.table.variables} == {ps(0), ps(1), ps(2)}
        servers.well("drain", "ps:1")
        # It is of no use any more, and a worker that comes back does without it.
        servers.kill("ps", 1)
        servers.kill("worker", 0)
        servers.start("worker", 0)
        before = counting.scheduled
        until = time.monotonic() + PATIENCE_S
        while counting.scheduled < before + 200 and time.monotonic() < until:
            threading.Event().wait(0.05)
        assert {each.device for each in counting.table.variables} == {ps(0), ps(2)}
        servers.start("ps", 1)
        assert "from 2 to 2" not in servers.well("scale", "--ps", "2")
    assert counting.coordinator.metrics()["moves"] == 3
    assert {each.device for each in counting.table.variables} == {ps(0), ps(1)}
    assert strategy.extended.parameter_devices == (ps(0), ps(1))
    # What the worker that was killed ran may have run twice.
    assert counting.whole.numpy() >= counting.scheduled


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_variables_are_kept_where_no_function_has_run(made: list[Tasks], protocol: str) -> None:
    servers = servers_of(made, protocol)
    strategy = servers.strategy(variable_partitioner=FixedShardsPartitioner(6), start_ps=2)
    coordinator = ClusterCoordinator(strategy)
    values = np.arange(ROWS * 4, dtype=np.float32).reshape(ROWS, 4)
    with strategy.scope():
        table = sr.Variable(values, name="table")
    for words in ("scale --ps 3", "drain ps:1", "scale --ps 1", "scale --ps 3", "scale --ps 2"):
        servers.well(*words.split())
        np.testing.assert_array_equal(table.numpy(), values)
    servers.well("scale", "--ps", "3")  # With nothing in between.
    servers.well("scale", "--ps", "1")
    np.testing.assert_array_equal(table.numpy(), values)
    assert coordinator.metrics()["moves"] == 7


@pytest.mark.parametrize("protocol", ["grpc", "star_server", "star_server_lite"])
def test_moved_variables_have_standbys_where_they_are(made: list[Tasks], protocol: str) -> None:
    servers = Tasks(3, 1, protocol, of_ps=("--option", "replicas=2"))
    made.append(servers)
    strategy = servers.strategy(variable_partitioner=FixedShardsPartitioner(6), start_ps=2)
    coordinator = ClusterCoordinator(strategy, on_ps_loss="restore")
    values = np.arange(ROWS * 4, dtype=np.float32).reshape(ROWS, 4)
    with strategy.scope():
        table = sr.Variable(values, name="table")
    for words, used, lost in (
        ("scale --ps 3", (0, 1, 2), 2), ("drain ps:1", (0, 2), 2), ("scale --ps 3", (0, 1, 2), 1),
        ("scale --ps 2", (0, 1), 0),
    ):  # fmt: skip
        servers.well(*words.split())
        servers.wait_for_standbys(used)
        servers.kill("ps", lost)
        servers.start("ps", lost)
        np.testing.assert_array_equal(table.numpy(), values)
    assert [one.standby[-1] for one in coordinator.restored] == ["0", "0", "2", "1"]


def test_what_is_made_after_a_move_is_where_the_variables_are(made: list[Tasks]) -> None:
    servers = servers_of(made, "star_server")
    strategy = servers.strategy(variable_partitioner=FixedShardsPartitioner(6), start_ps=2)
    coordinator = ClusterCoordinator(strategy)
    with strategy.scope():
        table = sr.Variable(np.ones((ROWS, 4), np.float32), name="table")
    ids = sr.constant(np.arange(ROWS))

    def train(optimizer: keras.optimizers.Optimizer) -> None:
        @sr.function
        def step() -> Any:
            with sr.GradientTape() as tape:
                loss = sr.reduce_sum(sr.nn.embedding_lookup(table, ids))
            weights = table.variables
            optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
            return loss

        coordinator.schedule(step)
        coordinator.join(PATIENCE_S)

    first = keras.optimizers.Adagrad(0.1)
    servers.well("scale", "--ps", "3")
    train(first)  # Its slots are made now, for tables that have moved.
    for slot in first.variables[2:]:
        assert slot.device in {ps(0), ps(1), ps(2)}
    servers.well("drain", "ps:1")
    assert {each.device for each in first.variables if each.shape} == {ps(0), ps(2)}
    train(first)
    train(keras.optimizers.Adam(0.1))
    with strategy.scope():
        other = sr.Variable(np.full((ROWS, 4), 2.0, np.float32), name="other")
    servers.well("scale", "--ps", "1")
    train(first)
    slot = np.concatenate([each.numpy() for each in first.variables if each.shape])
    np.testing.assert_allclose(slot, np.full((ROWS, 4), 3.1), rtol=1e-6)
    np.testing.assert_array_equal(other.numpy(), np.full((ROWS, 4), 2.0))


def test_nothing_is_lost_or_made_twice(made: list[Tasks]) -> None:
    servers = servers_of(made, "star_server_lite")
    strategy = servers.strategy(variable_partitioner=FixedShardsPartitioner(6), start_ps=2)
    with Counting(strategy, closures_per_worker=3) as counting:
        for words in ("scale --ps 3", "drain ps:1", "scale --ps 1", "scale --ps 3", "rebalance"):
            servers.well(*words.split())
    counting.check()


def train(strategy: ParameterServerStrategy, servers: Tasks | None) -> list[np.ndarray]:
    """The weights of a model that is trained by one worker."""
    drawn = np.random.default_rng(1)
    ids = drawn.integers(0, ROWS, (512, 5))
    labels = drawn.integers(0, 2, (512, 1)).astype(np.float32)
    first = keras.initializers.Constant(0.05)
    with strategy.scope():
        model = keras.Sequential([
            keras.layers.Embedding(ROWS, 8, embeddings_initializer=first),
            keras.layers.Flatten(),
            keras.layers.Dense(1, "sigmoid", kernel_initializer=first),
        ])  # fmt: skip
        model.compile(keras.optimizers.Adam(0.01), "binary_crossentropy")
    data = sr.data.Dataset.from_tensor_slices((ids, labels)).batch(16).repeat()
    said: list[str] = []

    class Moves(keras.callbacks.Callback):
        """Gives a command while the second epoch is trained."""

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if servers is not None and epoch in (1, 3):
                words = ("scale", "--ps", "3") if epoch == 1 else ("drain", "ps:1")
                said.append(servers.well(*words))

    model.fit(data, epochs=5, steps_per_epoch=40, verbose=0, callbacks=[Moves()])
    assert len(said) == (0 if servers is None else 2)
    evaluated = model.evaluate(data.take(10), verbose=0)
    return [np.asarray(evaluated), *model.get_weights()]


def test_a_keras_model_learns_what_it_would_have_learned(made: list[Tasks]) -> None:
    found = []
    for moves in (False, True):
        servers = servers_of(made, "star_server")
        del servers.cluster["worker"][1]
        strategy = servers.strategy(variable_partitioner=FixedShardsPartitioner(5), start_ps=2)
        found.append(train(strategy, servers if moves else None))
    for without, moved in zip(*found):
        np.testing.assert_allclose(without, moved, rtol=1e-5, atol=1e-7)


def test_workers_keep_what_is_theirs(made: list[Tasks]) -> None:
    servers = servers_of(made)
    del servers.cluster["worker"][1]
    strategy = servers.strategy(start_ps=2)
    coordinator = ClusterCoordinator(strategy)
    with strategy.scope():
        counts = [sr.Variable(0, dtype=sr.int64) for _ in range(2)]
    data = iter(coordinator.create_per_worker_dataset(sr.data.Dataset.range(100)))

    @sr.function
    def step(iterator: Any) -> Any:
        for count in counts:
            count.assign_add(1)
        return next(iterator)

    seen = []
    for number in range(100):
        if number == 50:
            servers.well("scale", "--ps", "3")
            servers.well("drain", "ps:1")
        seen.append(coordinator.schedule(step, args=(data,)).fetch())
    assert seen == list(range(100))
    assert [int(count.numpy()) for count in counts] == [100, 100]


def test_checkpoints_have_what_has_moved(made: list[Tasks], tmp_path: Path) -> None:
    servers = servers_of(made)
    strategy = servers.strategy(variable_partitioner=FixedShardsPartitioner(6), start_ps=2)
    counting = Counting(strategy, on_ps_loss="restore")
    checkpoint = sr.train.Checkpoint(table=counting.table, whole=counting.whole)
    manager = sr.train.CheckpointManager(checkpoint, tmp_path, max_to_keep=5)
    counting.coordinator.restore_from(manager)

    def run(count: int) -> None:
        for _ in range(count):
            counting.coordinator.schedule(counting.step)
        counting.coordinator.join(PATIENCE_S)
        counting.scheduled += count

    run(3)
    manager.save()
    servers.well("scale", "--ps", "3")
    run(2)
    manager.save()
    run(4)
    checkpoint.restore(manager.latest_checkpoint).assert_consumed()
    counting.scheduled = 5
    counting.check()
    servers.kill("ps", 2)
    servers.start("ps", 2)
    run(1)
    whole = float(counting.whole.numpy())
    lost = counting.coordinator.restored
    assert [each.task for each in lost] == ["/job:ps/replica:0/task:2"]
    assert whole in (5.0, 6.0)


def test_what_cannot_be_is_refused_and_changes_nothing(
    made: list[Tasks], monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = servers_of(made, "grpc", 2)
    strategy = servers.strategy(start_ps=2)
    with Counting(strategy) as counting:
        for words, reason in (
            ("scale --ps 4", "the cluster has 3 parameter servers, and not 4"),
            ("drain ps:2", "the model is not on /job:ps/task:2, which may be stopped"),
            ("drain ps:0", "grants the leases of jobs"),
            ("scale --ps 3", "/job:ps/replica:0/task:2"),
        ):
            ended = servers.command(*words.split())
            assert ended.returncode != 0, ended.stdout
            assert reason in ended.stderr
    counting.check()
    assert counting.coordinator.metrics()["moves"] == 0
    assert "evenly" in servers.well("rebalance")

    monkeypatch.setattr(_moves, "HOLD_S", 0.3)
    with strategy.scope():
        flag = sr.Variable(0.0)

    @sr.function
    def wait() -> Any:
        return sr.while_loop(lambda _: flag < 1.0, lambda count: (count + 1,), (sr.constant(0),))

    servers.start("ps", 2)
    value = counting.coordinator.schedule(wait)
    while counting.coordinator.metrics()["in_flight"] == 0:
        threading.Event().wait(0.01)
    refused = servers.command("scale", "--ps", "3")
    assert refused.returncode != 0
    assert "what runs to end: 0 are queued, 1 run" in refused.stderr
    flag.assign(1.0)
    assert value.fetch()[0] > 0
    with pytest.raises(ValueError, match="start_ps is 4; the cluster has 3 parameter servers"):
        servers.strategy(start_ps=4)


def test_a_strategy_scales_by_itself(made: list[Tasks], monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[list[float]] = []

    class Rules:
        """Wants one more as soon as it has seen something, in the place of half a minute."""

        def __init__(self, text: str, ps: int) -> None:
            assert (text, ps) == ("1-3", 3)

        def look(self, now_s: float, busy: list[float]) -> int | None:
            looks.append(busy)
            return len(busy) + 1 if len(busy) < 3 else None

        def moved(self, now_s: float) -> None:
            pass

    monkeypatch.setattr(_native, "Autoscale", Rules)
    monkeypatch.setattr(moving, "_AUTOSCALE_LOOK_S", 0.3)
    servers = servers_of(made)
    strategy = servers.strategy(
        variable_partitioner=FixedShardsPartitioner(6), start_ps=1, autoscale="1-3"
    )
    with Counting(strategy) as counting:
        until = time.monotonic() + PATIENCE_S
        while counting.coordinator.metrics()["moves"] < 2 and time.monotonic() < until:
            threading.Event().wait(0.05)
    counting.check()
    assert strategy.extended.parameter_devices == (ps(0), ps(1), ps(2))
    assert [len(busy) for busy in looks[:2]] == [1, 2]
    assert all(0 < share < 1.5 for share in looks[0])


def test_autoscale_needs_the_servers_that_it_names(made: list[Tasks]) -> None:
    servers = servers_of(made)
    for wrong, said in (("2-9", "the cluster has 3 parameter servers"), ("many", "as in 2-8")):
        with pytest.raises(errors.InvalidArgumentError, match=said):
            servers.strategy(autoscale=wrong)
