"""Synchronous standbys: what a parameter server has answered is in them when it is killed."""

from __future__ import annotations

import threading
from contextlib import suppress

import numpy as np
import pytest
from counting import KEYS, Counting
from followed import Cluster
from session_servers import PATIENCE_S

import sidereal as sr
from sidereal import errors

WORKERS, KILLS = 3, 3

pytestmark = pytest.mark.usefixtures("fresh_graph")


@pytest.mark.parametrize("protocol", ["grpc", "grpc++", "star_server"])
def test_no_push_that_was_answered_is_lost(protocol: str) -> None:
    random = np.random.default_rng(sum(map(ord, protocol)))
    with (
        Cluster(protocol) as cluster,
        sr.Follower(cluster.target, tables=["counts0", "counts1"], synchronous=True) as standby,
    ):
        for kill in range(KILLS):
            workers = [Counting(cluster.target, 10 * kill + i) for i in range(WORKERS)]
            workers[0].session.run(workers[0].initialize)
            standby.wait_until_current(PATIENCE_S)
            assert all(one.is_in_sync for one in standby.tasks)
            threads = [threading.Thread(target=worker.run) for worker in workers]
            for thread in threads:
                thread.start()
            for _ in range(random.integers(1, 60)):
                assert workers[0].many.acquire(timeout=PATIENCE_S)
            killed = kill % 2
            cluster.kill_ps(killed)
            for thread in threads:
                thread.join(PATIENCE_S)
                assert not thread.is_alive()
            counts = standby.lookup(f"counts{killed}", np.arange(KEYS))[:, 0]
            answered = sum(worker.answered[killed] for worker in workers)
            assert (counts >= answered).all()
            assert (counts <= sum(worker.sent[killed] for worker in workers)).all()
            assert answered.sum() > 0
            for worker in workers:
                with suppress(errors.Error):
                    worker.session.close()
            cluster.restart_ps(killed)


def test_a_standby_that_has_gone_is_not_waited_for() -> None:
    with Cluster("star_server", "--option", "standby_timeout_ms=100") as cluster:
        worker = Counting(cluster.target, 1)
        with worker.session as session:
            session.run(worker.initialize)
            with sr.Follower(cluster.target, synchronous=True) as standby:
                standby.wait_until_current(PATIENCE_S)
            training = threading.Thread(target=worker.run, daemon=True)
            training.start()
            for _ in range(20):
                assert worker.many.acquire(timeout=PATIENCE_S)
            with sr.Follower(cluster.target, synchronous=True) as standby:
                standby.wait_until_current(PATIENCE_S)
                assert all(one.is_in_sync for one in standby.tasks)
                for _ in range(20):
                    assert worker.many.acquire(timeout=PATIENCE_S)
            worker.ends.set()
            training.join(PATIENCE_S)
            assert not training.is_alive()
