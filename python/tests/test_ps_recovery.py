"""A parameter server of a coordinator's cluster is killed, comes back with its variables, and who
trains goes on."""

from __future__ import annotations

import logging
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from session_servers import Processes, addresses
from strategies import strategy_of

import sidereal as sr
from sidereal import errors, keras
from sidereal.distribute.coordinator import ClusterCoordinator, PSUnavailableError

pytestmark = pytest.mark.usefixtures("time_to_answer")

PATIENCE_S = 120.0
PS = 3


class Training:
    """Three ps and two workers in processes of their own, a variable of each ps, and a function
    that adds one to all."""

    def __init__(
        self, protocol: str, folder: Path, serve: tuple[str, ...] = (), **options: Any
    ) -> None:
        self.cluster = {"ps": addresses(PS), "worker": addresses(2)}
        self._protocol, self._serve = protocol, serve
        self.processes = Processes()
        self._all: dict[tuple[str, int], subprocess.Popen[str]] = {}
        for job, members in self.cluster.items():
            for task in range(len(members)):
                self.start(job, task)
        self.coordinator = ClusterCoordinator(
            strategy_of(self.cluster), on_ps_loss="restore", **options
        )
        with self.coordinator.strategy.scope():
            counts = [sr.Variable(0.0, name=f"count{task}") for task in range(PS)]
        self.counts = counts
        checkpoint = sr.train.Checkpoint(counts=self.counts)
        self.manager = sr.train.CheckpointManager(checkpoint, folder, max_to_keep=2)

        @sr.function
        def step() -> None:
            for count in counts:
                count.assign_add(1.0)

        self.step = step

    def start(self, job: str, task: int) -> None:
        self._all[job, task] = self.processes.serve(
            self.cluster, job, task, "--protocol", self._protocol,
            *(self._serve if job == "ps" else ()),
        )  # fmt: skip

    def kill(self, task: int) -> None:
        self._all["ps", task].kill()
        self._all["ps", task].wait()

    def replace(self, task: int) -> None:
        self.kill(task)
        self.start("ps", task)

    def run(self, count: int) -> None:
        for _ in range(count):
            self.coordinator.schedule(self.step)
        self.coordinator.join(PATIENCE_S)

    def values(self) -> list[float]:
        return [float(count.numpy()) for count in self.counts]


@pytest.fixture(params=["grpc", "star_server"])
def train(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Training]]:
    made: list[Training] = []

    def make(**options: Any) -> Training:
        made.append(Training(request.param, tmp_path / "model", **options))
        return made[-1]

    yield make
    for one in made:
        one.processes.end()


@pytest.mark.parametrize("task", [0, 1])
def test_a_ps_killed_under_load_comes_back_with_the_cut(
    train: Any, task: int, caplog: pytest.LogCaptureFixture
) -> None:
    it = train(effectively_once=True)
    it.coordinator.restore_from(it.manager)
    it.run(40)
    it.manager.save()
    # What was known of it before it was saved may be more than what is lost.
    assert it.coordinator._recovery._unsaved.look()
    with caplog.at_level(logging.WARNING):
        for number in range(400):
            it.coordinator.schedule(it.step)
            if number == 200:
                it.kill(task)
        it.start("ps", task)
        it.coordinator.join(PATIENCE_S)
    found = it.values()
    # Nothing of the others is lost, or done twice.
    assert [found[i] for i in range(PS) if i != task] == [440.0] * (PS - 1)
    assert 40 <= found[task] <= 440
    (line,) = [each.message for each in caplog.records if "was lost and is back" in each.message]
    assert f"/job:ps/replica:0/task:{task} was lost and is back: 1 variables of 1 rows" in line
    (back,) = it.coordinator.restored
    assert back.step_in_checkpoint == 40 and back.lost_steps is not None
    # Each function pushes once; what had been is not more than what is counted at last.
    assert back.lost_pushes is not None and 0 <= back.lost_pushes <= back.lost_steps + 2
    # What ended before it was lost, and was not in the checkpoint.
    assert found[task] >= 440 - back.lost_steps
    assert it.coordinator.metrics()["retried"] >= 0


def test_pushes_and_rows_that_are_lost_are_said(
    train: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    it = train()
    strategy = it.coordinator.strategy
    with strategy.scope():
        table = sr.Variable(sr.ones([30, 4]), name="table")  # After three others: on ps 0.
        optimizer = keras.optimizers.SGD(0.1)
    everything = sr.train.Checkpoint(counts=it.counts, table=table, optimizer=optimizer)
    manager = sr.train.CheckpointManager(everything, tmp_path / "tables", max_to_keep=2)

    @sr.function
    def step() -> None:
        with sr.GradientTape() as tape:
            loss = sr.reduce_sum(sr.nn.embedding_lookup(table, [1, 2, 7]))
        optimizer.apply_gradients([(tape.gradient(loss, table), table)])
        it.counts[0].assign_add(1.0)

    def run(count: int) -> None:
        for _ in range(count):
            it.coordinator.schedule(step)
        it.coordinator.join(PATIENCE_S)

    it.coordinator.restore_from(manager)
    it.coordinator._recovery._unsaved.look()  # Which lives there are, and nothing of what comes.
    run(2)
    manager.save()
    run(5)
    pushed = [table, it.counts[0], optimizer.iterations]
    on_it = [variable for variable in pushed if variable.device == table.device]
    with caplog.at_level(logging.WARNING):
        it.replace(0)
        assert it.values()[0] == 2.0
    (back,) = it.coordinator.restored
    assert back.lost_steps == 5 and back.pushed is not None
    assert list(back.pushed.rows_of.values()) == [15] and back.lost_rows == 15
    assert back.pushed.is_exact and back.lost_pushes == 5 * len(on_it) >= 10
    (line,) = [each.message for each in caplog.records if "was lost and is back" in each.message]
    assert re.search(
        rf"what 5 steps pushed to them, 2 to 7: {back.lost_pushes} pushes, with 15 rows of tables "
        r"\(table[^ ]*: 15\); others", line
    ), line  # fmt: skip


def test_the_coordinator_restores_a_ps_that_it_reads(train: Any) -> None:
    it = train()
    it.coordinator.restore_from(it.manager)
    it.run(5)
    it.manager.save()
    it.run(2)
    it.replace(1)
    assert it.values() == [7.0, 5.0, 7.0]
    it.replace(0)
    assert it.values() == [5.0, 5.0, 7.0]
    it.run(1)
    assert it.values() == [6.0, 6.0, 8.0]


def test_a_ps_that_all_have_given_up_is_restored_though_it_goes_on(train: Any) -> None:
    it = train()
    it.coordinator.restore_from(it.manager)
    it.run(3)
    it.manager.save()
    it.run(2)
    it._all["ps", 1].send_signal(signal.SIGSTOP)
    threading.Event().wait(20.0)
    it._all["ps", 1].send_signal(signal.SIGCONT)
    it.run(4)
    restored = [one.task for one in it.coordinator.restored]
    assert restored in ([], ["/job:ps/replica:0/task:1"])
    # One that somebody has not given up yet, when it goes on, has all.
    assert it.values() == [9, 7 if restored else 9, 9]


def test_each_ps_may_be_lost_again_and_again(train: Any) -> None:
    it = train()
    it.coordinator.restore_from(it.manager)
    it.run(3)
    it.manager.save()
    for task in (1, 1, 2, 0):
        it.replace(task)
        it.run(1)
    found = it.values()
    assert found[0] == 4 and found[1] == 6 and found[2] == 5
    assert len(it.coordinator.restored) == 4


def test_what_may_be_done_twice_is_and_other_writes_say_that_they_failed(train: Any) -> None:
    it = train()
    it.coordinator.restore_from(it.manager)
    it.manager.save()
    it.replace(1)
    it.counts[1].assign(7.0)
    assert it.values() == [0.0, 7.0, 0.0]
    it.manager.save()
    it.replace(1)
    with pytest.raises((errors.AbortedError, errors.UnavailableError)) as caught:
        it.counts[1].assign_add(1.0)
    if sys.version_info >= (3, 11):
        assert "is back with its variables" in " ".join(caught.value.__notes__)
    it.counts[1].assign_add(1.0)
    assert it.values() == [0.0, 8.0, 0.0]


def test_a_ps_may_be_killed_while_it_is_restored(train: Any, tmp_path: Path) -> None:
    it = train()
    with it.coordinator.strategy.scope():
        tables = [sr.Variable(sr.ones([500_000, 8]), name=f"table{task}") for task in range(PS)]
    everything = sr.train.Checkpoint(counts=it.counts, tables=tables)
    manager = sr.train.CheckpointManager(everything, tmp_path / "tables", max_to_keep=1)
    it.coordinator.restore_from(manager)
    it.run(2)
    manager.save()
    for delay in (0.0, 0.02, 0.1):
        it.replace(1)
        killer = threading.Timer(delay, it.replace, [1])
        killer.start()
        it.run(1)
        killer.join(PATIENCE_S)
    assert it.values()[0] >= 5
    assert 2 <= it.values()[1] <= 5
    assert float(sr.reduce_sum(tables[1].value())) == 4_000_000


def test_iterators_of_workers_are_made_anew(train: Any) -> None:
    it = train()
    it.coordinator.restore_from(it.manager)
    data = it.coordinator.create_per_worker_dataset(
        lambda: sr.data.Dataset.from_tensor_slices([1.0, 2.0]).repeat()
    )
    iterator = iter(data)
    count = it.counts[1]

    @sr.function
    def step(numbers: Any) -> None:
        count.assign_add(next(numbers) * 0.0 + 1.0)

    for number in range(40):
        if number == 20:
            it.coordinator.join(PATIENCE_S)
            it.manager.save()
            it.replace(1)
        it.coordinator.schedule(step, args=(iterator,))
    it.coordinator.join(PATIENCE_S)
    assert it.values()[1] >= 40


def test_fit_of_a_keras_model_goes_on(train: Any, tmp_path: Path) -> None:
    it = train()
    with it.coordinator.strategy.scope():
        model = keras.Sequential([keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])
        model.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse", metrics=["mae"])
        model.build((None, 4))
    checkpoint = sr.train.Checkpoint(model=model, optimizer=model.optimizer, counts=it.counts)
    manager = sr.train.CheckpointManager(checkpoint, tmp_path / "keras", max_to_keep=2)
    it.coordinator.restore_from(manager)
    x = np.random.default_rng(0).normal(size=(256, 4)).astype(np.float32)
    data = sr.data.Dataset.from_tensor_slices((x, x.sum(axis=1, keepdims=True)))

    class Killer(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            manager.save()
            if epoch in (1, 3):
                it.replace(epoch % PS)

    history = model.fit(
        data.batch(16).repeat(), epochs=6, steps_per_epoch=20, callbacks=[Killer()], verbose=0
    ).history
    losses = history["loss"]
    assert len(losses) == 6 and losses[5] < losses[2] < losses[0]
    restored = it.coordinator.restored
    assert [task.task[-1] for task in restored] == ["1", "0"]
    assert "/kernel" in " ".join(restored[0].variables + restored[1].variables)
    assert int(model.optimizer.iterations) >= 100
    # Metrics are in no checkpoint, and it is said.
    anew = [name for task in restored for name in task.begun_anew]
    assert anew and all("mean_absolute_error" in name or "loss" in name for name in anew)
    assert "begun anew, as they are in no checkpoint: " in " ".join(map(str, restored))


def test_a_ps_that_does_not_come_back_ends_the_job(train: Any) -> None:
    it = train(ps_timeout=2.0)
    it.coordinator.restore_from(it.manager)
    it.run(1)
    it.manager.save()
    it.kill(1)
    begin = time.monotonic()
    with pytest.raises(PSUnavailableError, match="/job:ps/replica:0/task:1"):
        it.run(10)
    assert time.monotonic() - begin < PATIENCE_S


def test_what_cannot_be_restored_ends_the_job_and_says_why(train: Any) -> None:
    it = train()
    it.run(1)
    it.replace(1)
    with pytest.raises(PSUnavailableError, match="call ClusterCoordinator.restore_from"):
        it.run(10)


def test_without_a_checkpoint_the_job_ends_and_says_so(train: Any) -> None:
    it = train()
    it.coordinator.restore_from(it.manager)
    it.run(1)
    it.replace(1)
    with pytest.raises(PSUnavailableError, match="there is no checkpoint in .*model"):
        it.run(10)


def test_a_variable_that_is_in_no_checkpoint_is_named(train: Any) -> None:
    it = train()
    it.coordinator.restore_from(it.manager)
    with it.coordinator.strategy.scope():
        others = [sr.Variable(1.0, name=f"other{task}") for task in range(PS)]
    it.run(1)
    it.manager.save()
    it.replace(1)
    with pytest.raises(PSUnavailableError, match="other1.* not in checkpoint.*give all variables"):
        it.run(10)
    assert len(others) == PS


def test_options_are_checked() -> None:
    processes = Processes()
    cluster = {"ps": addresses(1), "worker": addresses(1)}
    try:
        processes.serve(cluster, "ps", 0)
        with pytest.raises(ValueError, match="on_ps_loss is 'go on'"):
            ClusterCoordinator(strategy_of(cluster), on_ps_loss="go on")
        coordinator = ClusterCoordinator(strategy_of(cluster))
        with pytest.raises(errors.FailedPreconditionError, match="on_ps_loss='restore'"):
            coordinator.restore_from(None)  # type: ignore[arg-type]
        assert coordinator.restored == []
    finally:
        processes.end()
