"""MonitoredTrainingSession on real servers: workers wait for the chief, and training goes on after
a parameter server or a worker was killed."""

from __future__ import annotations

import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from monitored import saved
from session_servers import PATIENCE_S, Processes, addresses

import sidereal.v1 as tf
from sidereal import errors
from sidereal.v1 import session_manager

TRAINER = Path(__file__).parent / "monitored_trainer.py"

pytestmark = pytest.mark.usefixtures("fresh_graph")


@pytest.fixture
def processes() -> Iterator[Processes]:
    made = Processes()
    yield made
    made.end()


@pytest.fixture(params=["grpc", "star_server"])
def cluster(request: pytest.FixtureRequest, processes: Processes) -> Cluster:
    """Two ps and three workers, of which the ps and worker 0 run."""
    return Cluster(processes, request.param)


class Cluster:
    def __init__(self, processes: Processes, protocol: str) -> None:
        ports = addresses(5)
        self.jobs = {"ps": ports[:2], "worker": ports[2:]}
        self.protocol = protocol
        self.consistency = "async"
        self._processes = processes
        self.ps = [self.serve("ps", task) for task in range(2)]
        self.serve("worker", 0)
        self.target = f"grpc://{ports[2]}"

    def serve(self, job: str, task: int) -> subprocess.Popen[str]:
        return self._processes.serve(self.jobs, job, task, "--protocol", self.protocol)

    def kill_ps(self, task: int, then: Callable[[], None] | None = None) -> None:
        """Kills a ps and starts it again."""
        self.ps[task].send_signal(signal.SIGKILL)
        self.ps[task].wait(PATIENCE_S)
        self.ps[task] = self.serve("ps", task)

    def trainer(self, task: int, folder: Path) -> subprocess.Popen[str]:
        """A worker that trains until there is a file `stop` in the folder."""
        options = (self.protocol, folder, self.consistency)
        return self._processes.script(self.jobs, "worker", task, TRAINER, *options)


def model(worker: int = 0) -> tuple[Any, Any, Any]:
    """(global step, what trains, the variables), the variables on both ps."""
    with tf.device(
        tf.train.replica_device_setter(2, worker_device=f"/job:worker/task:{worker}")
    ):
        step = tf.train.get_or_create_global_step()
        a, b = tf.Variable(np.zeros(3, np.float32), name="a"), tf.Variable(0.0, name="b")
        loss = tf.reduce_sum(a) + b
        train = tf.train.GradientDescentOptimizer(1.0).minimize(loss, step)
    return step, train, [a, b]


def test_a_worker_waits_for_the_chief(cluster: Cluster) -> None:
    step, train, _variables = model()
    found: list[Any] = []

    def work() -> None:
        with tf.Graph().as_default():
            cluster.serve("worker", 1)
            mine, run, _ = model(1)
            target = f"grpc://{cluster.jobs['worker'][1]}"
            with tf.train.MonitoredTrainingSession(
                target, is_chief=False, recovery_wait_secs=0.2, max_wait_secs=PATIENCE_S
            ) as session:
                found.append(session.run(mine))
                session.run(run)

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    worker.join(1)
    assert worker.is_alive() and not found
    with tf.train.MonitoredTrainingSession(cluster.target) as session:
        session.run(train)
        worker.join(PATIENCE_S)
        assert found and 0 <= found[0] <= 1 and session.run(step) == 2


class FastClock:
    """In the place of the module time: on which a minute passes whenever it is looked at."""

    now = 0.0

    def monotonic(self) -> float:
        self.now += 60
        return self.now


def test_a_worker_does_not_wait_for_ever(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    model()
    monkeypatch.setattr(session_manager, "time", FastClock())
    with pytest.raises(
        errors.DeadlineExceededError,
        match="was not ready after waiting 300 secs for the chief.*not initialized: global_s",
    ):
        tf.train.MonitoredTrainingSession(
            cluster.target, is_chief=False, recovery_wait_secs=0.2, max_wait_secs=300
        )


def test_a_worker_does_not_wait_for_ever_for_a_ps_that_is_not_there(processes: Processes) -> None:
    ports = addresses(3)
    jobs = {"ps": ports[:2], "worker": ports[2:]}
    processes.serve(jobs, "ps", 0)
    processes.serve(jobs, "worker", 0)
    model()
    with pytest.raises(errors.DeadlineExceededError, match="after waiting 5 secs.*ps/.*task:1"):
        tf.train.MonitoredTrainingSession(
            f"grpc://{ports[2]}", is_chief=False, recovery_wait_secs=0.2, max_wait_secs=5
        )


def test_saver_on_servers(cluster: Cluster, tmp_path: Path) -> None:
    with tf.device(tf.train.replica_device_setter(2, worker_device="/job:worker/task:0")):
        table = tf.get_variable(
            "table", [7, 2], partitioner=tf.fixed_size_partitioner(4),
            initializer=tf.random_normal_initializer(seed=1),
        )  # fmt: skip
        words = tf.Variable([b"one", b"two"], name="words")
        saver = tf.train.Saver(sharded=True)
    for kind in ("SaveVariables", "RestoreVariables"):
        ops = [op for op in tf.get_default_graph().get_operations() if op.type == kind]
        assert {op.device for op in ops} == {"/job:ps/task:0", "/job:ps/task:1"}
    with tf.Session(cluster.target) as session:
        session.run(tf.global_variables_initializer())
        before = session.run(table)
        path = saver.save(session, str(tmp_path / "m"), 3)
        session.run(table.assign(before * 2))
        saver.restore(session, path)
        np.testing.assert_array_equal(session.run(table), before)
        assert session.run(words).tolist() == [b"one", b"two"]
    np.testing.assert_array_equal(saved(path, "table"), before)
    # A graph of this process reads what servers wrote, whole.
    with tf.Graph().as_default(), tf.Session() as session:
        whole = tf.get_variable("table", [7, 2])
        tf.train.Saver().restore(session, path)
        np.testing.assert_array_equal(session.run(whole), before)


@pytest.mark.parametrize("task", [0, 1])
def test_a_ps_that_was_killed_comes_back_with_the_latest_checkpoint(
    cluster: Cluster, tmp_path: Path, task: int
) -> None:
    step, train, variables = model()
    with tf.train.MonitoredTrainingSession(
        cluster.target, checkpoint_dir=str(tmp_path), save_checkpoint_steps=5,
        log_step_count_steps=0, save_summaries_steps=0,
    ) as session:  # fmt: skip
        (saving,) = session._hooks
        for _ in range(7):
            session.run(train)
            saving.wait()
        kept = session.run(step)
        assert kept == 7
        cluster.kill_ps(task)
        session.run(train)
        # What came after the checkpoint of step 5 is lost, on both.
        found = session.run([step, *variables])
        assert found[0] == 6 and found[1].tolist() == [-6] * 3 and found[2] == -6
    assert saved(tmp_path) == 6


def test_steps_go_on_while_servers_write_a_checkpoint(cluster: Cluster, tmp_path: Path) -> None:
    _step, train, _ = model()
    with tf.device("/job:ps/task:0"):
        large = tf.Variable(lambda: tf.ones([16_000_000]), trainable=False, name="large")
    with tf.train.MonitoredTrainingSession(
        cluster.target, checkpoint_dir=str(tmp_path), save_checkpoint_steps=1,
        log_step_count_steps=0, save_summaries_steps=0,
    ) as session:  # fmt: skip
        (saving,) = session._hooks
        meanwhile = 0
        # A machine with other work may let the servers write one before a step comes to its end.
        for _ in range(50):
            session.run(train)
            begun, meanwhile = saving._save.step, 0
            while not saving._save.has_ended and saving._save.step == begun:
                session.run(train)
                meanwhile += 1
            if meanwhile >= 2:
                break
        assert meanwhile >= 2
    assert (saved(tmp_path, "large") == 1).all() and large.shape == (16_000_000,)


def test_without_a_checkpoint_it_begins_anew(cluster: Cluster) -> None:
    step, train, variables = model()
    with tf.train.MonitoredTrainingSession(cluster.target) as session:
        for _ in range(3):
            session.run(train)
        cluster.kill_ps(1)
        session.run(train)
        found = session.run([step, *variables])
        assert found[0] == 1 and found[1].tolist() == [-1] * 3 and found[2] == -1


def test_a_ps_that_is_killed_while_a_checkpoint_is_written(
    cluster: Cluster, tmp_path: Path
) -> None:
    step, train, _ = model()
    with tf.train.MonitoredTrainingSession(
        cluster.target, checkpoint_dir=str(tmp_path), save_checkpoint_steps=1,
        log_step_count_steps=0, save_summaries_steps=0,
    ) as session:  # fmt: skip
        for _ in range(5):
            session.run(train)
        cluster.kill_ps(0)
        for _ in range(5):
            session.run(train)
        last = session.run(step)
        assert 5 <= last <= 10
    assert saved(tmp_path) == last
    with tf.Graph().as_default():
        again, _, variables = model()
        with tf.train.MonitoredTrainingSession(
            cluster.target, checkpoint_dir=str(tmp_path), log_step_count_steps=0
        ) as session:
            found = session.run([again, *variables])
            # The one that was restored after the kill may have been written during all of the five
            # steps before it: not every variable is of the same step.
            assert found[0] == last and abs(found[2] + last) <= 5


def line_of(process: subprocess.Popen[str], pattern: str) -> re.Match[str]:
    """The next line of a process that matches."""
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        match = re.search(pattern, line)
        if match:
            return match
    raise AssertionError("".join(seen))


@pytest.mark.parametrize("consistency", ["async", "geo(8)"])
def test_workers_and_the_chief_may_be_killed(
    cluster: Cluster, tmp_path: Path, consistency: str
) -> None:
    cluster.consistency = consistency
    chief = cluster.trainer(1, tmp_path)
    line_of(chief, r"step \d+$")
    doomed = cluster.trainer(2, tmp_path)
    line_of(doomed, r"step \d+$")
    doomed.send_signal(signal.SIGKILL)
    line_of(chief, r"step \d+$")
    # Nobody waits for it, nor for the chief, which comes back with its checkpoint.
    late = cluster.trainer(2, tmp_path)
    line_of(late, r"step \d+$")
    chief.send_signal(signal.SIGKILL)
    chief.wait(PATIENCE_S)
    line_of(late, r"step \d+$")
    again = cluster.trainer(1, tmp_path)
    assert int(line_of(again, r"began at (\d+)$")[1]) > 0
    cluster.kill_ps(1)
    for process in (again, late):
        line_of(process, "came back$")
        line_of(process, r"step \d+$")
    (tmp_path / "stop").touch()
    last = max(int(line_of(process, r"ended at (\d+)$")[1]) for process in (again, late))
    assert [process.wait(PATIENCE_S) for process in (again, late)] == [0, 0]
    assert abs(int(saved(tmp_path)) - last) <= 5
