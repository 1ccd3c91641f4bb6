"""Parameter servers keep standbys of each other: one that is killed has what it had when it is
started again, without a checkpoint."""

from __future__ import annotations

import logging
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from counting import Counting
from followed import Cluster
from leftovers import tasks_of
from session_servers import PATIENCE_S, PROGRAM, addresses
from test_ps_recovery import Training

import sidereal as sr
import sidereal.v1 as tf
from sidereal import errors

PS, WORKERS, KILLS = 3, 3, 3

pytestmark = pytest.mark.usefixtures("fresh_graph")


def wait_until_in_sync(target: str, *, streams: int, copies: int = 1) -> None:
    """Each ps has `streams` that pushes wait for, and `copies` of others."""
    end = time.monotonic() + PATIENCE_S
    while True:
        found = [
            (task["figures"].get("sidereal_standbys"), task["figures"]["sidereal_standby_copies"])
            for task in tasks_of(target)
            if "/job:ps" in task["task"] and "sidereal_standby_copies" in task.get("figures", {})
        ]
        if found == [(streams, copies)] * PS:
            return
        assert time.monotonic() < end, found


def workers_of(cluster: Cluster, seed: int, others: int = 1) -> list[Counting]:
    workers = [Counting(cluster.target, seed + i, PS) for i in range(WORKERS)]
    workers[0].session.run(workers[0].initialize)
    wait_until_in_sync(cluster.target, streams=2 * others, copies=others)
    return workers


@pytest.mark.parametrize(
    ("protocol", "others"), [("grpc", 1), ("grpc++", 2), ("star_server", 1), ("star_server", 2)]
)
def test_no_push_that_was_answered_is_lost_or_made_twice(protocol: str, others: int) -> None:
    random = np.random.default_rng(sum(map(ord, protocol)) + others)
    in_sync = {"streams": 2 * others, "copies": others}
    with Cluster(protocol, ps=PS, replicas=1 + others) as cluster:
        workers = workers_of(cluster, 1, others)
        for _ in range(KILLS):
            threads = [threading.Thread(target=worker.run) for worker in workers]
            for thread in threads:
                thread.start()
            for _ in range(random.integers(1, 60)):
                assert workers[0].many.acquire(timeout=PATIENCE_S)
            killed = random.permutation(PS)[:others].tolist()
            for task in killed:
                cluster.kill_ps(task)
            for thread in threads:
                thread.join(PATIENCE_S)
                assert not thread.is_alive()
            for task in killed:
                cluster.start_ps(task)
            for worker in workers:
                worker.close()
                worker.connect()
            counts = workers[0].now()
            assert (counts >= sum(worker.answered for worker in workers)).all()
            assert (counts <= sum(worker.sent for worker in workers)).all()
            wait_until_in_sync(cluster.target, **in_sync)
        assert sum(worker.answered.sum() for worker in workers) > 0
        # Nothing changes now: each copy is what it is of.
        for task in range(PS):
            before = workers[0].now()
            cluster.restart_ps(task)
            workers[0].close()
            workers[0].connect()
            assert (workers[0].now() == before).all()
            wait_until_in_sync(cluster.target, **in_sync)


@pytest.mark.parametrize("protocol", ["grpc", "star_server"])
def test_one_that_is_killed_before_its_standby_is_back_has_answered_nothing_alone(
    protocol: str,
) -> None:
    with Cluster(protocol, ps=PS, replicas=2, min_insync_replicas=2) as cluster:
        workers = workers_of(cluster, 5)
        for _ in range(3 * KILLS):
            threads = [threading.Thread(target=worker.run) for worker in workers]
            for thread in threads:
                thread.start()
            # Answered by a standby that has just come back, and by nothing else.
            assert workers[0].many.acquire(timeout=PATIENCE_S)
            cluster.restart_ps(1)
            for worker in workers:
                worker.ends.set()
            for worker, thread in zip(workers, threads):
                thread.join(PATIENCE_S)
                assert not thread.is_alive()
                worker.ends.clear()
                worker.close()
                worker.connect()
            counts = workers[0].now()
            assert (counts >= sum(worker.answered for worker in workers)).all()
            assert (counts <= sum(worker.sent for worker in workers)).all()


def test_one_that_is_lost_with_its_standby_begins_with_nothing(tmp_path: Path) -> None:
    with Cluster("star_server", ps=PS, replicas=2) as cluster:
        (worker, *_) = workers_of(cluster, 2)
        worker.session.run(worker.set_ones)
        path = worker.saver.save(worker.session, str(tmp_path / "model"))
        wait_until_in_sync(cluster.target, streams=2)
        cluster.kill_ps(1)
        cluster.kill_ps(2)
        cluster.start_ps(1)
        cluster.start_ps(2)
        worker.close()
        worker.connect()
        assert worker.session.run(worker.uninitialized).tolist() == [b"counts1"]
        worker.saver.restore(worker.session, path)
        assert (worker.now()[1] == 1).all()


@contextmanager
def counting_on_ps1(cluster: Cluster, folder: Path) -> Iterator[Callable[[], int]]:
    """A monitored session: a call adds one to the global step, which is on ps 1."""
    with tf.device("/job:ps/task:1"):
        step = tf.train.get_or_create_global_step()
    add = tf.assign_add(step, 1)
    with tf.train.MonitoredTrainingSession(
        cluster.target, True, str(folder), save_checkpoint_secs=None,
        save_checkpoint_steps=10_000, on_ps_loss="restore",
    ) as session:  # fmt: skip
        wait_until_in_sync(cluster.target, streams=2)
        yield lambda: int(session.run(add))


def line_of(caplog: pytest.LogCaptureFixture) -> str:
    (line,) = [one.message for one in caplog.records if "was lost and is back" in one.message]
    return line


def test_a_monitored_session_says_that_nothing_was_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Cluster("star_server", ps=PS, replicas=2) as cluster:
        with counting_on_ps1(cluster, tmp_path) as add:
            assert [add() for _ in range(7)] == [1, 2, 3, 4, 5, 6, 7]
            with caplog.at_level(logging.WARNING):
                cluster.restart_ps(1)
                assert add() == 8
    assert "from its standby /job:ps/replica:0/task:2 in" in line_of(caplog)
    assert line_of(caplog).endswith("; no push was lost")


def test_what_a_standby_has_missed_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Cluster("star_server", ps=PS, replicas=2) as cluster:
        with counting_on_ps1(cluster, tmp_path) as add:
            assert [add() for _ in range(3)] == [1, 2, 3]
            cluster.pause_ps(2)
            assert [add() for _ in range(4)] == [4, 5, 6, 7]
            cluster.kill_ps(1)
            cluster.resume_ps(2)
            cluster.start_ps(1)
            with caplog.at_level(logging.WARNING):
                now = add()
    assert now in (4, 5), "it had what was sent before it was let go"
    assert line_of(caplog).endswith(f"; lost is what the standby did not have: {8 - now} pushes")


@pytest.mark.parametrize("protocol", ["grpc", "star_server"])
def test_a_coordinator_changes_each_variable_once(protocol: str, tmp_path: Path) -> None:
    it = Training(
        protocol, tmp_path / "model", ("--option", "replicas=2"), effectively_once=True
    )
    target = f"grpc://{it.cluster['worker'][0]}"
    try:
        it.run(5)
        total = 5
        for task in (1, 0, 2):
            wait_until_in_sync(target, streams=2, copies=2)
            for number in range(60):
                it.coordinator.schedule(it.step)
                if number == 30:
                    it.kill(task)
            it.start("ps", task)
            it.coordinator.join(PATIENCE_S)
            total += 60
            assert it.values() == [float(total)] * PS
        assert [one.standby[-1] for one in it.coordinator.restored] == ["2", "1", "0"]
        assert "no push" in str(it.coordinator.restored[0])
    finally:
        it.processes.end()


def test_more_replicas_than_servers_are_refused() -> None:
    spec = f'{{"ps": ["{addresses(1)[0]}"]}}'
    command = [PROGRAM, "serve", "--job", "ps", "--task", "0", "--cluster", spec]
    done = subprocess.run(
        [*command, "--option", "replicas=2"], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode != 0
    assert "replicas is 2, and job 'ps' has 1 tasks" in done.stderr
    with pytest.raises(errors.InvalidArgumentError, match="the number of ps, which is 1"):
        sr.LocalCluster(ps=1, replicas=2)
