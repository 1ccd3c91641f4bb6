"""How old what steps compute with is: what parameter servers count, over the protocols whose
sessions differ most, and the hook that writes it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from event_files import accumulated, values_of
from strategies import cluster_fixture

import sidereal.v1 as tf
from sidereal import SecurityOptions
from sidereal._native import StatusClient

cluster = cluster_fixture(1, 1, ["grpc", "star_server"])

PATIENCE_S = 60.0


class Model:
    """A table, and two steps that pull rows and push: one waits between for the program."""

    def __init__(self, name: str) -> None:
        with tf.device("/job:ps/task:0"):
            self.table = tf.get_variable(name, [10, 4], initializer=tf.zeros_initializer())
        with tf.device("/job:worker/task:0"):
            self.pulled = tf.FIFOQueue(10, tf.float32, [[]])
            self.goes_on = tf.FIFOQueue(10, tf.float32, [[]])
            optimizer = tf.train.AdagradOptimizer(0.1)
            self.step = tf.train.get_or_create_global_step()
            rows = tf.nn.embedding_lookup(self.table, [1, 2])
            self.fast = self._push(optimizer, rows, self.step)
            rows = tf.nn.embedding_lookup(self.table, [2, 3])
            with tf.control_dependencies([rows]):
                told = self.pulled.enqueue(1.0)
            with tf.control_dependencies([told]):
                one = self.goes_on.dequeue()
            self.slow = self._push(optimizer, rows + one)
            self.let = self.goes_on.enqueue(1.0)
            self.wait = self.pulled.dequeue()

    def _push(self, optimizer: Any, rows: Any, step: Any = None) -> Any:
        loss = tf.reduce_sum(rows * rows)
        [grad] = tf.gradients(loss, [self.table])
        return optimizer.apply_gradients([(grad, self.table)], step)


def counted(cluster: dict[str, list[str]], table: str) -> tuple[int, list[Any]]:
    """The sum, and how many there were of which size."""
    client = StatusClient.create(
        f"grpc://{cluster['worker'][0]}", SecurityOptions()._to_native(), PATIENCE_S
    )
    found = {name: (total, buckets) for name, total, buckets in client.staleness(PATIENCE_S)}
    return found.get(table, (0, []))


def test_pushes_of_others_since_the_pull_are_counted(cluster: dict[str, list[str]]) -> None:
    target = f"grpc://{cluster['worker'][0]}"
    with tf.Graph().as_default():
        model = Model("counted")
        with tf.Session(target) as session:
            session.run(tf.global_variables_initializer())
            session.run(model.fast)  # Nobody had counted before.
            assert counted(cluster, "counted") == (0, [])
            slow = threading.Thread(target=lambda: session.run(model.slow))
            slow.start()
            session.run(model.wait)
            for _ in range(3):
                session.run(model.fast)
            session.run(model.let)
            slow.join(PATIENCE_S)
            assert not slow.is_alive()
            session.run(model.fast)
    # The last one has pulled after all of them.
    assert counted(cluster, "counted") == (3, [(0, 0, 4), (3, 3, 1)])


def test_a_hook_writes_what_came_since_the_last_time(
    cluster: dict[str, list[str]], tmp_path: Path
) -> None:
    target = f"grpc://{cluster['worker'][0]}"
    with tf.Graph().as_default():
        model = Model("hooked")
        hook = tf.train.StalenessHook(target, every_n_steps=4, output_dir=str(tmp_path))
        with tf.train.MonitoredSession(
            tf.train.ChiefSessionCreator(master=target), hooks=[hook]
        ) as session:
            for _ in range(10):
                session.run(model.fast)
    tf.summary.FileWriterCache.clear()
    found = accumulated(tmp_path)
    assert values_of(found, "staleness/hooked") == [(5, 0.0), (9, 0.0), (10, 0.0)]
    histograms = values_of(found, "histogram_of_staleness/hooked")
    assert [(step, rows.tolist()) for step, rows in histograms] == [
        (5, [[0, 1, 4]]), (9, [[0, 1, 4]]), (10, [[0, 1, 1]]),
    ]  # fmt: skip


def test_what_a_hook_cannot_be() -> None:
    for wrong in ({"every_n_secs": 1.0}, {"every_n_steps": None}):
        with pytest.raises(ValueError, match="exactly one of every_n_steps and every_n_secs"):
            tf.train.StalenessHook("grpc://x", output_dir="logs", **wrong)
    with pytest.raises(ValueError, match="exactly one of output_dir and summary_writer"):
        tf.train.StalenessHook("grpc://x")
