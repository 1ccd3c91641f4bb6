"""Synchronous standbys: what a parameter server has answered is in them when it is killed."""

from __future__ import annotations

import threading
from contextlib import suppress

import numpy as np
import pytest
from followed import Cluster
from session_servers import PATIENCE_S

import sidereal as sr
import sidereal.v1 as tf
from sidereal import errors

KEYS, PUSHED = 500, 16
WORKERS, KILLS = 3, 3

pytestmark = pytest.mark.usefixtures("fresh_graph")


class Counting:
    """A table of counts on two ps, and a worker that adds one to some: what it has sent, and what
    was answered."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self.sent, self.answered = np.zeros((2, KEYS)), np.zeros((2, KEYS))
        self.many = threading.Semaphore(0)
        self.ends = threading.Event()
        graph = tf.Graph()
        with graph.as_default():
            counts = []
            for ps in range(2):
                with tf.device(f"/job:ps/task:{ps}"):
                    counts.append(
                        tf.get_variable(
                            f"counts{ps}", [KEYS, 1], initializer=tf.zeros_initializer()
                        )
                    )
            self._ids = tf.placeholder(tf.int64, [PUSHED])
            ones = tf.ones([PUSHED, 1])
            self._push = tf.group(*(tf.scatter_add(part, self._ids, ones) for part in counts))
            self.initialize = tf.global_variables_initializer()
            self.session = tf.Session(cluster.target)

    def run(self) -> None:
        with suppress(errors.Error):
            while not self.ends.is_set():
                ids = self._random.permutation(KEYS)[:PUSHED]
                self.sent[:, ids] += 1
                self.session.run(self._push, {self._ids: ids})
                self.answered[:, ids] += 1
                self.many.release()


@pytest.mark.parametrize("protocol", ["grpc", "grpc++", "star_server"])
def test_no_push_that_was_answered_is_lost(protocol: str) -> None:
    random = np.random.default_rng(sum(map(ord, protocol)))
    with (
        Cluster(protocol) as cluster,
        sr.Follower(cluster.target, tables=["counts0", "counts1"], synchronous=True) as standby,
    ):
        for kill in range(KILLS):
            workers = [Counting(cluster, 10 * kill + i) for i in range(WORKERS)]
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
        worker = Counting(cluster, 1)
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
