"""Workers of monitored sessions that are at most so many steps ahead of each other."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from session_servers import PATIENCE_S, addresses

import sidereal as sr
import sidereal.v1 as tf

WORKERS, BOUND = 3, 2
PROTOCOLS = ["grpc", "grpc++", "star_server", "star_server_lite"]


@pytest.fixture(params=PROTOCOLS)
def servers(request: pytest.FixtureRequest) -> Iterator[list[Any]]:
    """Two ps and a server for each worker, in this process."""
    hosts = addresses(2 + WORKERS)
    cluster = {"ps": hosts[:2], "worker": hosts[2:]}
    made = [
        tf.train.Server(cluster, job, task, protocol=request.param)
        for job, tasks in cluster.items()
        for task in range(len(tasks))
    ]
    yield made[2:]
    for server in made:
        server.stop()


class Worker:
    """Its graph, and a session in a thread that takes a step whenever it may."""

    def __init__(self, task: int, target: str, **options: Any) -> None:
        self.target, self.task = target, task
        self.options = {"consistency": f"bounded({BOUND})", **options}
        self.steps = 0
        self.may = threading.Semaphore(0)
        self.took = threading.Semaphore(0)
        self.ends = False
        self.error: BaseException | None = None
        self.seen: list[np.ndarray[Any, Any]] = []
        self.graph = tf.Graph()
        with self.graph.as_default():
            with tf.device("/job:ps/task:0"):
                step = tf.train.get_or_create_global_step()
            counts = []
            for worker in range(WORKERS):
                with tf.device(f"/job:ps/task:{worker % 2}"):
                    zero = tf.zeros_initializer()
                    counts.append(tf.get_variable(f"count{worker}", [], initializer=zero))
            with tf.device(f"/job:worker/task:{task}"):
                now = tf.stack([count.read_value() for count in counts])
                with tf.control_dependencies([now]):
                    self.run = tf.group(counts[task].assign_add(1.0), step.assign_add(1))
                self.now = now
        self.thread = threading.Thread(target=self._train, daemon=True)
        self.thread.start()

    def _train(self) -> None:
        try:
            with self.graph.as_default():
                session = tf.train.MonitoredTrainingSession(
                    self.target, self.task == 0, log_step_count_steps=0, recovery_wait_secs=0.1,
                    **self.options,
                )  # fmt: skip
            with session:
                self.took.release()
                while True:
                    self.may.acquire()
                    if self.ends:
                        return
                    self.seen.append(session.run([self.now, self.run])[0])
                    self.steps += 1
                    self.took.release()
        except (sr.errors.Error, ValueError, RuntimeError) as error:
            self.error = error
            self.took.release()

    def takes(self, steps: int = 1) -> None:
        """It may, and does."""
        self.may.release(steps)
        for _ in range(steps):
            assert self.took.acquire(timeout=PATIENCE_S), "it waits"
        assert self.error is None, self.error

    def end(self) -> None:
        self.ends = True
        self.may.release()
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()


def started(servers: list[Any], **options: Any) -> list[Worker]:
    """The chief first: the others wait for it."""
    workers = [Worker(task, servers[task].target, **options) for task in range(WORKERS)]
    for worker in workers:
        assert worker.took.acquire(timeout=PATIENCE_S)
        assert worker.error is None, worker.error
    return workers


def test_a_worker_is_so_many_steps_ahead_and_no_more(servers: list[Any]) -> None:
    first, second, slow = workers = started(servers)
    first.takes(BOUND + 1)
    second.takes(BOUND + 1)
    first.may.release(2)
    assert not first.took.acquire(timeout=0.3)
    slow.takes()
    assert first.took.acquire(timeout=PATIENCE_S), "the slow one has ended a step"
    assert not first.took.acquire(timeout=0.3)
    # One that has ended is not waited for.
    slow.end()
    assert first.took.acquire(timeout=PATIENCE_S)
    second.takes()
    for worker in (first, second):
        worker.end()
    assert [worker.error for worker in workers] == [None] * WORKERS


def test_a_step_sees_all_but_the_latest_of_others(servers: list[Any]) -> None:
    workers = started(servers)
    steps = 40
    for worker in workers:
        worker.may.release(steps)
    for worker in workers:
        for _ in range(steps):
            assert worker.took.acquire(timeout=PATIENCE_S)
            assert worker.error is None, worker.error
    for worker in workers:
        worker.end()
        for step, seen in enumerate(worker.seen):
            assert seen[worker.task] == step, "its own, all of them"
            assert seen.min() >= step - BOUND - 1


def test_one_that_may_have_died_is_left_behind_until_it_is_heard_of(
    servers: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    workers = [
        Worker(
            task, servers[task].target, consistency="async",
            hooks=[tf.train.BoundedStalenessHook(BOUND, f"w{task}", replica_timeout_secs=1)],
        )
        for task in range(WORKERS)
    ]  # fmt: skip
    for worker in workers:
        assert worker.took.acquire(timeout=PATIENCE_S)
        assert worker.error is None, worker.error
    first, second, silent = workers
    with caplog.at_level(logging.WARNING, "sidereal"):
        second.takes(BOUND + 1)
        first.takes(BOUND + 2)
    assert "goes on without w2, which may have died" in caplog.text
    silent.takes()
    second.takes(BOUND + 1)
    first.may.release(3 * BOUND)
    taken = sum(first.took.acquire(timeout=0.3) for _ in range(3 * BOUND))
    assert taken < 3 * BOUND, "the one that was silent is waited for again"
    for worker in (silent, second, first):
        worker.end()


def test_one_that_is_started_again_has_its_place(servers: list[Any]) -> None:
    first, second, killed = started(servers)
    first.takes(BOUND + 1)
    second.takes(BOUND + 1)
    # As one whose process is killed it does not leave.
    again = Worker(killed.task, killed.target)
    assert again.took.acquire(timeout=PATIENCE_S)
    first.takes()
    killed.may.release()
    killed.thread.join(PATIENCE_S)
    assert isinstance(killed.error, sr.errors.FailedPreconditionError)
    assert "another worker has joined" in str(killed.error)
    for worker in (again, first, second):
        worker.end()


@pytest.mark.parametrize(("consistency", "said"), [
    ("bounded(0)", "SyncReplicasOptimizer"),
    ("sync", "SyncReplicasOptimizer"),
    ("sync(2 of 3)", "SyncReplicasOptimizer"),
    ("hybrid", r"SyncReplicasOptimizer\(optimizer, workers, hybrid=True\)"),
])  # fmt: skip
def test_what_sessions_cannot_be_is_refused(consistency: str, said: str) -> None:
    with tf.Graph().as_default():
        tf.train.get_or_create_global_step()
        with pytest.raises(ValueError, match=said):
            tf.train.MonitoredTrainingSession(consistency=consistency)


def test_what_is_no_consistency_is_refused() -> None:
    with pytest.raises(sr.errors.InvalidArgumentError, match="is no consistency"):
        tf.train.MonitoredTrainingSession(consistency="bound(3)")
    with pytest.raises(ValueError, match="bound is 0"):
        tf.train.BoundedStalenessHook(0)
    with pytest.raises(ValueError, match="replica_timeout_secs is 0"):
        tf.train.BoundedStalenessHook(1, replica_timeout_secs=0)
    with tf.Graph().as_default():
        tf.train.get_or_create_global_step()
        with pytest.raises(ValueError, match="on no device"):
            tf.train.BoundedStalenessHook(1).begin()


def test_all_workers_say_the_same(servers: list[Any]) -> None:
    workers = started(servers)
    other = Worker(1, servers[1].target, consistency=f"bounded({BOUND + 1})", worker="one more")
    assert other.took.acquire(timeout=PATIENCE_S)
    assert isinstance(other.error, sr.errors.InvalidArgumentError)
    assert "with a bound of 3, and that of others is 2" in str(other.error)
    for worker in workers:
        worker.end()
