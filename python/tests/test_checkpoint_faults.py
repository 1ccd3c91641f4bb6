"""Parameter servers that are killed: what was saved is there, and training goes on from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from session_servers import Tasks
from strategies import strategy_of

import sidereal as sr
from sidereal import errors
from sidereal.distribute.coordinator import ClusterCoordinator, PSUnavailableError
from sidereal.distribute.experimental.partitioners import FixedShardsPartitioner
from sidereal.train import Checkpoint, CheckpointManager, latest_checkpoint

PATIENCE_S = 90.0
ROWS = np.arange(1, 34, dtype=np.float32).reshape(11, 3)


@pytest.fixture(params=["grpc", "star_server"])
def tasks(request: pytest.FixtureRequest) -> Iterator[Tasks]:
    made = Tasks(request.param)
    yield made
    made.processes.end()


def update(table: Any, optimizer: Any) -> None:
    """A step of training."""
    rows = sr.convert_to_tensor([0, 4, 4, 10])
    with sr.GradientTape() as tape:
        loss = sr.reduce_sum(sr.nn.embedding_lookup(table, rows) ** 2)
    shards = getattr(table, "variables", [table])
    optimizer.apply_gradients(zip(tape.gradient(loss, shards), shards))


class Job:
    """A coordinator's program."""

    def __init__(self, cluster: Any, folder: Path, shards: int) -> None:
        self.strategy = strategy_of(cluster, FixedShardsPartitioner(shards))
        self.coordinator = ClusterCoordinator(self.strategy)
        with self.strategy.scope():
            self.table = sr.Variable(ROWS)
        self.optimizer = sr.optimizers.Adam(0.1)
        self.manager = CheckpointManager(
            Checkpoint(table=self.table, optimizer=self.optimizer), folder, max_to_keep=2
        )
        self.begun = self.manager.restore_or_initialize()
        self._step = sr.function(lambda: update(self.table, self.optimizer))

    def run(self, saves: int, then: Callable[[], None] = lambda: None) -> None:
        for _ in range(saves):
            self.coordinator.schedule(self._step)
            self.coordinator.join(PATIENCE_S)
            self.manager.save()
            then()


def test_training_goes_on_after_a_parameter_server_was_lost(tasks: Tasks, tmp_path: Path) -> None:
    job = Job(tasks.cluster, tmp_path, 2)
    job.run(3)
    assert job.begun is None
    tasks.kill(1)
    tasks.start(1)  # empty
    with pytest.raises(PSUnavailableError, match="ps"):
        job.run(1)
    assert latest_checkpoint(tmp_path) == str(tmp_path / "ckpt-3")
    again = Job(tasks.cluster, tmp_path, 3)  # in other shards
    assert again.begun == str(tmp_path / "ckpt-3")
    assert again.optimizer.iterations.numpy() == 3
    again.run(2)
    table, optimizer = sr.Variable(ROWS), sr.optimizers.Adam(0.1)
    for _ in range(5):
        update(table, optimizer)
    np.testing.assert_allclose(again.table.numpy(), table.numpy(), rtol=1e-6)
    assert latest_checkpoint(tmp_path) == str(tmp_path / "ckpt-5")


@pytest.mark.parametrize("killed", [0, 1])
def test_a_save_that_a_parameter_server_does_not_survive(
    tasks: Tasks, tmp_path: Path, killed: int
) -> None:
    job = Job(tasks.cluster, tmp_path, 2)
    job.run(2)
    before = sorted(path.name for path in tmp_path.iterdir())
    tasks.kill(killed)
    with pytest.raises(errors.UnavailableError):
        job.manager.save()
    assert latest_checkpoint(tmp_path) == str(tmp_path / "ckpt-2")
    assert sorted(path.name for path in tmp_path.iterdir()) == before
