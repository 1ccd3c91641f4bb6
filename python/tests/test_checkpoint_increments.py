"""Checkpoints that have what has changed since the one before: values, which of them are deleted,
and what makes the next one a whole one; over the protocols whose sessions differ most."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from session_servers import Tasks
from strategies import strategy_of

import sidereal as sr
from sidereal import _tensor_files, checkpoint_management, errors
from sidereal._native import CheckpointReader
from sidereal.distribute.experimental.partitioners import FixedShardsPartitioner
from sidereal.train import Checkpoint, CheckpointManager, latest_checkpoint, load_variable

ROWS, DIM = 3000, 4
TABLE = "table/.ATTRIBUTES/VARIABLE_VALUE"


@pytest.fixture(params=["grpc", "star_server"])
def tasks(request: pytest.FixtureRequest) -> Iterator[Tasks]:
    made = Tasks(request.param)
    yield made
    made.processes.end()


class Job:
    """A coordinator's program with a table in two shards and a number, and what it saves."""

    def __init__(self, cluster: Any, folder: Path, **options: Any) -> None:
        self.strategy = strategy_of(cluster, FixedShardsPartitioner(2))
        with self.strategy.scope():
            self.table = sr.Variable(np.zeros([ROWS, DIM], np.float32))
            self.step = sr.Variable(np.int64(0))
        self.optimizer = sr.optimizers.Adagrad(0.5)
        checkpoint = Checkpoint(table=self.table, step=self.step, optimizer=self.optimizer)
        self.manager = CheckpointManager(checkpoint, folder, **{"max_to_keep": None} | options)
        self._random = np.random.default_rng(7)

    def train(self) -> None:
        """Changes some rows."""
        rows = sr.convert_to_tensor(self._random.integers(0, ROWS, 20))
        with sr.GradientTape() as tape:
            loss = sr.reduce_sum((sr.nn.embedding_lookup(self.table, rows) - 1.0) ** 2)
        shards = self.table.variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, shards), shards))
        self.step.assign_add(1)

    def save(self) -> str:
        path = self.manager.save()
        assert path is not None
        return path

    def now(self) -> list[np.ndarray]:
        slots = [
            slot.numpy() for each in self.table.variables
            for slot in self.optimizer.slots(each).values()
        ]  # fmt: skip
        return [self.table.numpy(), np.asarray(self.step.numpy()), *slots]


def base_of(path: str) -> str:
    return CheckpointReader(path).base


def size_of(path: str) -> int:
    whole = Path(path)
    return sum(file.stat().st_size for file in whole.parent.glob(f"{whole.name}.*"))


def files_of(folder: Path) -> set[str]:
    """Names of the checkpoints that are there."""
    return {file.stem for file in folder.glob("*.index")}


def check_same(found: list[np.ndarray], wanted: list[np.ndarray]) -> None:
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


def test_twenty_increments_are_the_values_at_their_cuts(tasks: Tasks, tmp_path: Path) -> None:
    job = Job(tasks.cluster, tmp_path, full_every=21)
    saved = []
    for _ in range(22):
        job.train()
        saved.append((job.save(), job.now()))
    assert [base_of(path) for path, _ in saved] == [
        "" if i % 21 == 0 else f"ckpt-{i}" for i in range(22)
    ]
    for path, _ in saved[1:21]:
        assert size_of(path) < size_of(saved[0][0]) / 2
    assert size_of(saved[21][0]) >= ROWS * DIM * 4 * 2
    # By name, by the program that wrote them, and by another one that cuts the table otherwise.
    for path, values in saved:
        np.testing.assert_array_equal(load_variable(path, TABLE), values[0])
    for path, values in (saved[20], saved[7], saved[0], saved[21]):
        job.manager.checkpoint.restore(path).assert_consumed()
        check_same(job.now(), values)
    here = sr.Variable(np.zeros([ROWS, DIM], np.float32))
    Checkpoint(table=here).read(saved[20][0]).expect_partial()
    np.testing.assert_array_equal(here.numpy(), saved[20][1][0])


def test_what_was_restored_is_in_the_next_increment(tasks: Tasks, tmp_path: Path) -> None:
    job = Job(tasks.cluster, tmp_path, full_every=10)
    for _ in range(3):
        job.train()
        job.save()
    job.manager.checkpoint.restore(str(tmp_path / "ckpt-1"))
    job.train()
    # Its name is that of one in the chain, which goes with what stands on it.
    assert base_of(job.save()) == ""
    assert files_of(tmp_path) == {"ckpt-1", "ckpt-2"}
    assert job.manager.checkpoints == [str(tmp_path / "ckpt-1"), str(tmp_path / "ckpt-2")]
    job.train()
    path, values = job.save(), job.now()
    assert base_of(path) == "ckpt-2"
    job.train()
    job.manager.checkpoint.restore(path).assert_consumed()
    check_same(job.now(), values)


def test_what_a_newer_one_stands_on_is_not_deleted(tasks: Tasks, tmp_path: Path) -> None:
    job = Job(tasks.cluster, tmp_path, full_every=4, max_to_keep=2)
    values = {}
    for number in range(1, 12):
        job.train()
        values[job.save()] = job.now()[0]
        first = (max(1, number - 1) - 1) // 4 * 4 + 1  # the whole one of the oldest that is kept
        assert files_of(tmp_path) == {f"ckpt-{n}" for n in range(first, number + 1)}
        assert [os.path.basename(path) for path in job.manager.checkpoints] == [
            f"ckpt-{n}" for n in range(first, number + 1)
        ]
        for path in job.manager.checkpoints:
            np.testing.assert_array_equal(load_variable(path, TABLE), values[path])
    # Who goes on knows which are there, and begins with a whole one.
    again = Job(tasks.cluster, tmp_path, full_every=4, max_to_keep=2)
    assert again.manager.restore_or_initialize() == str(tmp_path / "ckpt-11")
    np.testing.assert_array_equal(again.now()[0], values[str(tmp_path / "ckpt-11")])
    assert base_of(again.save()) == ""
    assert files_of(tmp_path) == {"ckpt-9", "ckpt-10", "ckpt-11", "ckpt-12"}
    assert base_of(again.save()) == "ckpt-12"
    assert files_of(tmp_path) == {"ckpt-12", "ckpt-13"}


def test_after_a_parameter_server_was_killed(
    tasks: Tasks, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = Job(tasks.cluster, tmp_path, full_every=50)
    for _ in range(3):
        job.train()
        job.save()
    kept = job.now()
    tasks.restart(1)
    with caplog.at_level(logging.WARNING, "sidereal"), pytest.raises(errors.UnavailableError):
        job.save()
    assert "ckpt-4 could not be written; the next checkpoint is a whole one" in caplog.text
    assert latest_checkpoint(tmp_path) == str(tmp_path / "ckpt-3")
    again = Job(tasks.cluster, tmp_path, full_every=50)
    assert again.manager.restore_or_initialize() == str(tmp_path / "ckpt-3")
    check_same(again.now(), kept)
    again.train()
    assert base_of(again.save()) == ""
    again.train()
    path, values = again.save(), again.now()
    assert base_of(path) == "ckpt-4"
    again.train()
    again.manager.checkpoint.restore(path).assert_consumed()
    check_same(again.now(), values)


def test_one_that_could_not_be_written_makes_the_next_a_whole_one(
    tasks: Tasks, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(tasks.cluster, tmp_path, full_every=10)
    job.save()
    job.train()

    def refuse(prefix: str, parts: Any, base: str) -> None:
        assert base == str(tmp_path / "ckpt-1")
        raise errors.ResourceExhaustedError("no room")

    # The variables have been written by then, and count from there.
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "sidereal"):
        patch.setattr(_tensor_files, "commit", refuse)
        with pytest.raises(errors.ResourceExhaustedError, match="no room; make room on that disk"):
            job.save()
    assert "ckpt-2 could not be written; the next checkpoint is a whole one" in caplog.text
    assert not list(tmp_path.glob("ckpt-2*"))
    path, values = job.save(), job.now()
    assert base_of(path) == ""
    job.train()
    assert base_of(job.save()) == "ckpt-3"
    job.manager.checkpoint.restore(path).assert_consumed()
    check_same(job.now(), values)


def test_one_whose_base_is_missing_is_none(
    tasks: Tasks, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = Job(tasks.cluster, tmp_path, full_every=10)
    for _ in range(3):
        job.train()
        path = job.save()
    checkpoint_management.remove_checkpoint(str(tmp_path / "ckpt-2"))
    lacking = str(tmp_path / "ckpt-2.index")
    with caplog.at_level(logging.WARNING, "sidereal"):
        assert latest_checkpoint(tmp_path) is None
        assert lacking in caplog.text
        caplog.clear()
        assert base_of(job.save()) == ""  # nor does anything stand on it
        assert lacking in caplog.text
    assert latest_checkpoint(tmp_path) == str(tmp_path / "ckpt-4")
    with pytest.raises(errors.NotFoundError, match="ckpt-2"):
        job.manager.checkpoint.restore(path)


def test_write_with_a_base(tasks: Tasks, tmp_path: Path) -> None:
    job = Job(tasks.cluster, tmp_path)
    checkpoint = job.manager.checkpoint
    base = checkpoint.write(tmp_path / "a", tracks_changes=True)
    job.train()
    path, values = checkpoint.write(tmp_path / "b", base=base), job.now()
    assert base_of(path) == "a"
    # A base that no note was kept since gives a whole one.
    assert base_of(checkpoint.write(tmp_path / "c", base=base)) == ""
    job.train()
    checkpoint.read(path).assert_consumed()
    check_same(job.now(), values)
    with pytest.raises(errors.InvalidArgumentError, match="in another folder"):
        checkpoint.write(tmp_path / "deep" / "d", base=base)
    with pytest.raises(errors.InvalidArgumentError, match="which stands on it"):
        checkpoint.write(base, base=path)
    with pytest.raises(errors.NotFoundError, match="nothing"):
        checkpoint.write(tmp_path / "e", base=tmp_path / "nothing")


def test_variables_of_this_process_are_saved_whole(tmp_path: Path) -> None:
    v = sr.Variable([1.0, 2.0])
    manager = CheckpointManager(Checkpoint(v=v), tmp_path, 2, full_every=3)
    for number in range(4):
        v.assign_add([1.0, 0.0])
        path = manager.save()
        assert path is not None and base_of(path) == ""
        assert load_variable(path, "v/.ATTRIBUTES/VARIABLE_VALUE")[0] == number + 2.0
    assert files_of(tmp_path) == {"ckpt-3", "ckpt-4"}


def test_full_every_is_a_positive_number(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="full_every is 0"):
        CheckpointManager(Checkpoint(v=sr.Variable(1.0)), tmp_path, 2, full_every=0)
