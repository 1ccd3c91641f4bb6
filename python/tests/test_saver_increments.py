"""Savers and hooks that save what has changed since the last checkpoint: values, which checkpoints
are deleted, and what makes the next one a whole one."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from session_servers import Processes, addresses

import sidereal.v1 as tf
from sidereal import errors
from sidereal._native import CheckpointReader

ROWS, DIM = 3000, 4

pytestmark = pytest.mark.usefixtures("fresh_graph")


class Cluster:
    """Two ps and a worker."""

    def __init__(self, protocol: str) -> None:
        ports = addresses(3)
        self._jobs = {"ps": ports[:2], "worker": ports[2:]}
        self._protocol = protocol
        self.processes = Processes()
        self._ps = [self._serve("ps", 0), self._serve("ps", 1)]
        self._serve("worker", 0)
        self.target = f"grpc://{ports[2]}"

    def _serve(self, job: str, task: int) -> subprocess.Popen[str]:
        return self.processes.serve(self._jobs, job, task, "--protocol", self._protocol)

    def restart_ps(self, task: int) -> None:
        self._ps[task].kill()
        self._ps[task].wait()
        self._ps[task] = self._serve("ps", task)


@pytest.fixture(params=["grpc", "star_server"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    made = Cluster(request.param)
    yield made
    made.processes.end()


class Tables:
    """A table in two parts with its slots, on two ps, and what trains some of its rows."""

    def __init__(self, device: Any = None) -> None:
        with tf.device(device):
            self.step = tf.train.get_or_create_global_step()
            self.table = tf.get_variable(
                "table", [ROWS, DIM], partitioner=tf.fixed_size_partitioner(2),
                initializer=tf.zeros_initializer(),
            )  # fmt: skip
            self.ids = tf.placeholder(tf.int64, [None])
            rows = tf.nn.embedding_lookup(self.table, self.ids)
            loss = tf.reduce_sum((rows - 1.0) ** 2)
            self.train = tf.train.AdagradOptimizer(0.5).minimize(loss, self.step)
        self._random = np.random.default_rng(5)

    def push(self, session: Any) -> None:
        session.run(self.train, {self.ids: self._random.integers(0, ROWS, 20)})

    def now(self, session: Any) -> list[np.ndarray]:
        found: list[np.ndarray] = session.run(tf.global_variables())
        return found


def on_ps() -> Any:
    return tf.train.replica_device_setter(2, worker_device="/job:worker/task:0")


def base_of(path: str | Path) -> str:
    return CheckpointReader(str(path)).base


def size_of(path: str) -> int:
    whole = Path(path)
    return sum(file.stat().st_size for file in whole.parent.glob(f"{whole.name}.data-*"))


def files_of(folder: Path) -> set[str]:
    return {file.stem for file in folder.glob("*.index")}


def check_same(found: list[np.ndarray], wanted: list[np.ndarray]) -> None:
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


def test_twenty_increments_and_a_ps_that_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    tables = Tables(on_ps())
    saver = tf.train.Saver(max_to_keep=None, incremental_save_restore=True)
    first = str(tmp_path / "m")
    saved: list[tuple[str, list[np.ndarray]]] = []
    with tf.Session(cluster.target) as session:
        session.run(tf.global_variables_initializer())
        for number in range(21):
            tables.push(session)
            save = saver.incremental_save if number else saver.save
            path = save(session, first, global_step=number)
            saved.append((path, tables.now(session)))
            assert base_of(path) == (f"m-{number - 1}" if number else "")
        for path, _ in saved[1:]:
            assert size_of(path) < size_of(saved[0][0]) / 2
        for path, values in (saved[20], saved[9], saved[0]):
            saver.restore(session, path)
            check_same(tables.now(session), values)
        # All of it is written of what was restored.
        path = saver.incremental_save(session, first, global_step=21)
        saver.restore(session, saved[20][0])
        saver.restore(session, path)
        check_same(tables.now(session), saved[0][1])
    cluster.restart_ps(1)
    with tf.Session(cluster.target) as session:
        saver.restore(session, saved[13][0])
        check_same(tables.now(session), saved[13][1])
        tables.push(session)
        path, values = saver.incremental_save(session, first, global_step=22), tables.now(session)
        tables.push(session)
        saver.restore(session, path)
        check_same(tables.now(session), values)


def test_a_session_saves_what_has_changed(cluster: Cluster, tmp_path: Path) -> None:
    tables = Tables(on_ps())
    wanted: list[np.ndarray] = []

    class Values(tf.train.SessionRunHook):
        """Those at the end are those at the next beginning."""

        def after_create_session(self, session: Any, coord: Any) -> None:
            if wanted:
                check_same(tables.now(session), wanted)

        def end(self, session: Any) -> None:
            wanted[:] = tables.now(session)

    def train(steps: int) -> None:
        with tf.train.MonitoredTrainingSession(
            cluster.target, checkpoint_dir=str(tmp_path), save_checkpoint_steps=4,
            save_incremental_checkpoint_secs=0.0, save_summaries_steps=0, log_step_count_steps=0,
            hooks=[tf.train.StopAtStepHook(num_steps=steps), Values()],
        ) as session:  # fmt: skip
            while not session.should_stop():
                tables.push(session)

    train(10)
    steps = sorted(int(name.rpartition("-")[2]) for name in files_of(tmp_path))
    bases = [base_of(tmp_path / f"model.ckpt-{step}") for step in steps]
    assert steps[-1] == 10 and any(bases)
    for step, base in zip(steps, bases):
        assert base == "" or f"{base}.index" in os.listdir(tmp_path), step
    train(3)
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-13")


def test_what_a_newer_one_stands_on_is_not_deleted(tmp_path: Path) -> None:
    tables = Tables()
    saver = tf.train.Saver(max_to_keep=2, incremental_save_restore=True)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        values = {}
        for number in range(8):
            tables.push(session)
            save = saver.incremental_save if number % 4 else saver.save
            path = save(session, str(tmp_path / "m"), number)
            values[path] = tables.now(session)
            first = max(0, number - 1) // 4 * 4
            assert files_of(tmp_path) == {f"m-{n}" for n in range(first, number + 1)}
            assert saver.last_checkpoints == [
                str(tmp_path / f"m-{n}") for n in range(first, number + 1)
            ]
        assert not list(tmp_path.glob("m-0.*"))
        # Who goes on knows them.
        again = tf.train.Saver(max_to_keep=2, incremental_save_restore=True)
        state = tf.train.get_checkpoint_state(str(tmp_path))
        again.recover_last_checkpoints(state.all_model_checkpoint_paths)
        again.restore(session, str(tmp_path / "m-7"))
        check_same(tables.now(session), values[str(tmp_path / "m-7")])
        assert base_of(again.incremental_save(session, str(tmp_path / "m"), 8)) == ""
        assert files_of(tmp_path) == {"m-4", "m-5", "m-6", "m-7", "m-8"}
        assert base_of(again.incremental_save(session, str(tmp_path / "m"), 9)) == "m-8"
        assert files_of(tmp_path) == {"m-8", "m-9"}


def test_one_that_could_not_be_written_makes_the_next_a_whole_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tables = Tables()
    saver = tf.train.Saver(incremental_save_restore=True)
    path = str(tmp_path / "m")
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        saver.save(session, path, 1)
        (tmp_path / "m-2.index" / "held").mkdir(parents=True)
        with caplog.at_level(logging.WARNING, "sidereal"), pytest.raises((errors.Error, OSError)):
            saver.incremental_save(session, path, 2)
        assert "m-2 could not be written; the next checkpoint is a whole one" in caplog.text
        tables.push(session)
        assert base_of(saver.incremental_save(session, path, 3)) == ""
        assert base_of(saver.incremental_save(session, path, 4)) == "m-3"
        tf.train.remove_checkpoint(str(tmp_path / "m-3"))
        with pytest.raises(ValueError, match=r"m-3.index is not there"):
            saver.restore(session, str(tmp_path / "m-4"))
        caplog.clear()
        with caplog.at_level(logging.WARNING, "sidereal"):
            assert base_of(saver.incremental_save(session, path, 5)) == ""
        assert "m-3.index is missing" in caplog.text


def test_a_saver_from_a_meta_graph(tmp_path: Path) -> None:
    tables = Tables()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        saver = tf.train.Saver(incremental_save_restore=True)
        path = saver.save(session, str(tmp_path / "m"), 1)
        tables.push(session)
        wanted = tables.now(session)
        newest = saver.incremental_save(session, str(tmp_path / "m"), 2)
    with tf.Graph().as_default():
        again = tf.train.import_meta_graph(f"{path}.meta", import_scope="there")
        with tf.Session() as session:
            again.restore(session, newest)
            check_same(session.run(tf.global_variables()), wanted)
            again.save(session, str(tmp_path / "n"), 1)
            assert base_of(again.incremental_save(session, str(tmp_path / "n"), 2)) == "n-1"


def test_it_is_to_be_asked_for(tmp_path: Path) -> None:
    tf.get_variable("v", [], initializer=tf.zeros_initializer())
    tf.train.get_or_create_global_step()
    saver = tf.train.Saver()
    with tf.Session() as session, pytest.raises(RuntimeError, match="incremental_save_restore"):
        saver.incremental_save(session, str(tmp_path / "m"))
    with pytest.raises(ValueError, match="incremental_save_restore=True"):
        tf.train.CheckpointSaverHook(
            str(tmp_path), save_steps=5, saver=saver, incremental_save_secs=1
        )
    with pytest.raises(ValueError, match="give save_checkpoint_secs or save_checkpoint_steps"):
        tf.train.MonitoredTrainingSession(
            checkpoint_dir=str(tmp_path), save_checkpoint_secs=None,
            save_incremental_checkpoint_secs=5,
        )  # fmt: skip
    scaffold = tf.train.Scaffold(incremental_save_restore=True)
    assert tf.train.Scaffold(copy_from_scaffold=scaffold).incremental_save_restore
