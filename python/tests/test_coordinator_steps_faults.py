"""Steps of a coordinator while its tasks are killed, and while variables move: what each function
gives is in one mean, whatever the protocol."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from strategies import PATIENCE_S, Tasks

import sidereal as sr
from sidereal import keras
from sidereal.distribute.coordinator import ClusterCoordinator
from sidereal.distribute.experimental.partitioners import FixedShardsPartitioner
from sidereal.launch import PROTOCOLS

pytestmark = pytest.mark.usefixtures("time_to_answer")


class Marks:
    """Variables that say which functions have contributed to them: each gives the gradient of one
    element, and a step of n functions takes 1/n off each of these. One is a table."""

    def __init__(self, coordinator: ClusterCoordinator, count: int) -> None:
        self.coordinator = coordinator
        with coordinator.strategy.scope():
            self.optimizer = keras.optimizers.SGD(1.0)
            dense = [sr.Variable(np.zeros(count, "f"), name=f"dense_{i}") for i in range(2)]
            rows = sr.Variable(np.zeros((count, 2), "f"), name="rows")
        self.all = [getattr(one, "variables", [one]) for one in (*dense, rows)]

        @sr.function
        def give(i: Any) -> Any:
            pairs = []
            for parts in self.all:
                begin = 0
                for part in parts:
                    grad = sr.one_hot(i - begin, part.shape[0])
                    if len(part.shape) == 2:
                        is_here = sr.reshape(sr.reduce_sum(grad), [1, 1])
                        row = sr.minimum(sr.maximum(i - begin, 0), part.shape[0] - 1)
                        grad = sr.IndexedSlices(
                            sr.ones([1, 2]) * is_here, sr.reshape(row, [1]), part.shape
                        )
                    pairs.append((grad, part))
                    begin += part.shape[0]
            # What takes a while, in which tasks are killed.
            x = sr.ones([60, 60])
            for _ in range(10):
                x = sr.matmul(x, x) / 60.0
            self.optimizer.apply_gradients(pairs)
            return i + sr.cast(x[0, 0] * 0.0, "int32")

        self.give = give

    def schedule(self, numbers: range) -> list[Any]:
        return [self.coordinator.schedule(self.give, (sr.constant(i),)) for i in numbers]

    def values(self) -> list[np.ndarray]:
        found = [-np.concatenate([part.numpy() for part in parts]) for parts in self.all]
        return [one if one.ndim == 1 else one[:, 0] for one in found]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_a_killed_worker_gave_is_in_one_mean(
    tasks_of: Callable[..., Tasks], protocol: str
) -> None:
    cluster = tasks_of(2, 3, protocol)
    coordinator = cluster.coordinator(consistency="sync")
    count = 240
    marks = Marks(coordinator, count)
    cluster.found_by(coordinator)
    values = marks.schedule(range(count))
    for at, worker in ((30, 0), (80, 1), (130, 2), (180, 0)):
        values[at].get(PATIENCE_S)
        cluster.kill("worker", worker)
        cluster.start("worker", worker)
    coordinator.join(PATIENCE_S)
    assert coordinator.metrics()["retried"] > 0
    assert coordinator.fetch(values) == list(range(count))
    assert coordinator.metrics()["steps"] == count / 3
    for found in marks.values():
        np.testing.assert_allclose(found, 1 / 3, rtol=1e-6)


def test_steps_go_on_while_variables_move(tasks_of: Callable[..., Tasks]) -> None:
    cluster = tasks_of(3, 2, "star_server", not_yet=[2])
    strategy = cluster.strategy(
        variable_partitioner=FixedShardsPartitioner(6), start_ps=2, consistency="sync"
    )
    marks = Marks(ClusterCoordinator(strategy), 20000)
    scheduled = 0

    def train() -> int:
        nonlocal scheduled
        marks.coordinator.fetch(marks.schedule(range(scheduled, scheduled + 40)))
        scheduled += 40
        return 40

    cluster.moves_while(train)
    for found in marks.values():
        given = found[:scheduled]
        # A step that is ended early, as variables are handed over, is of fewer functions.
        assert set(np.round(1 / given, 3)) <= {1, 2}, given
        np.testing.assert_allclose(given.sum(), marks.coordinator.metrics()["steps"], rtol=1e-4)
        assert not found[scheduled:].any()


def test_a_parameter_server_that_comes_back_has_its_step_done_again(
    tasks_of: Callable[..., Tasks], tmp_path: Path
) -> None:
    cluster = tasks_of(2, 2)
    coordinator = cluster.coordinator(consistency="sync", on_ps_loss="restore")
    count = 400
    marks = Marks(coordinator, count)
    variables = {f"{i}_{k}": part for i, parts in enumerate(marks.all)
                 for k, part in enumerate(parts)}  # fmt: skip
    checkpoint = sr.train.Checkpoint(optimizer=marks.optimizer, **variables)
    manager = sr.train.CheckpointManager(checkpoint, tmp_path, max_to_keep=2)
    coordinator.restore_from(manager)
    marks.coordinator.fetch(marks.schedule(range(2)))
    manager.save()
    values = marks.schedule(range(2, count))
    for at, task in ((60, 1), (200, 0)):
        values[at].get(PATIENCE_S)
        cluster.kill("ps", task)
        cluster.start("ps", task)
    coordinator.join(PATIENCE_S)
    assert coordinator.fetch(values) == list(range(2, count))
    assert len(coordinator.restored) == 2
    for found in marks.values():
        assert set(np.round(found, 3)) <= {0, 0.5, 1.0}, found
        np.testing.assert_allclose(found[-100:], 0.5)
