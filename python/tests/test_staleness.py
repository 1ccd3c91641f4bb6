"""How old what steps compute with is: what parameter servers count, over the protocols whose
sessions differ most, and the hook that writes it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from event_files import accumulated, values_of
from strategies import cluster_fixture

import sidereal.v1 as tf
from sidereal import SecurityOptions
from sidereal._native import StatusClient
from sidereal._pushes import Staleness

cluster = cluster_fixture(1, 2, ["grpc", "star_server"])

PATIENCE_S = 60.0


class Model:
    """A table, and two steps that pull rows and push: one waits between for the program."""

    def __init__(self, name: str, worker: int = 0) -> None:
        with tf.device("/job:ps/task:0"):
            self.table = tf.get_variable(name, [10, 4], initializer=tf.zeros_initializer())
        with tf.device(f"/job:worker/task:{worker}"):
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


def client_of(cluster: dict[str, list[str]]) -> StatusClient:
    target = f"grpc://{cluster['worker'][0]}"
    return StatusClient.create(target, SecurityOptions()._to_native(), PATIENCE_S)


def counted(cluster: dict[str, list[str]], table: str) -> dict[str, tuple[int, list[Any]]]:
    """By worker, the sum and how many there were of which size."""
    return {
        worker: (total, buckets)
        for name, worker, total, buckets in client_of(cluster).staleness(PATIENCE_S)
        if name == table
    }


def wait_for(told: Callable[[], Any], wanted: Any) -> None:
    """Until servers, which hear a little later that a session was closed, say what is wanted."""
    until = time.monotonic() + PATIENCE_S
    while (found := told()) != wanted:
        assert time.monotonic() < until, found


ONE, OTHER = (f"/job:worker/replica:0/task:{task}" for task in range(2))


def test_pushes_of_others_since_the_pull_are_counted(cluster: dict[str, list[str]]) -> None:
    target = f"grpc://{cluster['worker'][0]}"
    with tf.Graph().as_default():
        model = Model("counted")
        with tf.Session(target) as session:
            session.run(tf.global_variables_initializer())
            session.run(model.fast)  # Nobody had counted before.
            assert counted(cluster, "counted") == {}
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
            assert counted(cluster, "counted") == {ONE: (3, [(0, 0, 4), (3, 3, 1)])}


def test_who_pushes_is_told_apart_as_long_as_it_is_there(cluster: dict[str, list[str]]) -> None:
    targets = [f"grpc://{address}" for address in cluster["worker"]]
    models, initializers = [], []
    graphs = [tf.Graph(), tf.Graph()]
    for worker, graph in enumerate(graphs):
        with graph.as_default():
            models.append(Model("shared", worker))
            initializers.append(tf.global_variables_initializer())
    one, other = (tf.Session(target, graph) for target, graph in zip(targets, graphs))
    with other:
        other.run(initializers[1])
        with one:
            one.run(initializers[0])
            one.run(models[0].fast)  # Nobody had counted before.
            slow = threading.Thread(target=lambda: one.run(models[0].slow))
            slow.start()
            one.run(models[0].wait)
            for _ in range(2):
                other.run(models[1].fast)
            one.run(models[0].let)
            slow.join(PATIENCE_S)
            assert not slow.is_alive()
            assert counted(cluster, "shared") == {
                ONE: (2, [(2, 2, 1)]),
                OTHER: (0, [(0, 0, 2)]),
            }
        # What it counted that has gone is others'.
        wait_for(
            lambda: counted(cluster, "shared"), {"": (2, [(2, 2, 1)]), OTHER: (0, [(0, 0, 2)])}
        )
    wait_for(lambda: counted(cluster, "shared"), {"": (2, [(0, 0, 2), (2, 2, 1)])})
    # It is told apart again when it comes back.
    with tf.Session(targets[0], graphs[0]) as again:
        again.run(models[0].fast)
        assert counted(cluster, "shared")[ONE] == (0, [(0, 0, 1)])


def test_pushes_and_rows_that_are_in_no_checkpoint_are_counted(
    cluster: dict[str, list[str]], tmp_path: Path
) -> None:
    def unsaved() -> dict[str, tuple[int, int]]:
        return {
            table: (pushes, rows)
            for task, _, table, pushes, rows in client_of(cluster).unsaved(PATIENCE_S, "ps")
            if table == "kept" and task == "/job:ps/replica:0/task:0"
        }

    with tf.Graph().as_default():
        model = Model("kept")
        saver = tf.train.Saver()
        prefix = tf.placeholder(tf.string, [])
        with tf.device("/job:ps/task:0"):
            attributes = {"names": ["kept"], "slices": [""], "shard": 0, "shards": 2}
            part = tf.get_default_graph().add(
                "SaveVariables", [prefix, tf.constant(""), model.table.handle], attributes, "part"
            )
        with tf.Session(f"grpc://{cluster['worker'][0]}") as session:
            session.run(tf.global_variables_initializer())
            assert unsaved() == {}, "values are no pushes"
            for pushes in (1, 2, 3):
                session.run(model.fast)
                assert unsaved() == {"kept": (pushes, 2 * pushes)}
            saver.save(session, str(tmp_path / "model"))
            assert unsaved() == {"kept": (0, 0)}
            session.run(model.fast)
            assert unsaved() == {"kept": (1, 2)}
            # What was written and did not become a checkpoint has nothing.
            session.run(part, {prefix: str(tmp_path / "never")})
            assert unsaved() == {"kept": (1, 2)}
    # The counter of steps is on a worker, and no table.
    of_workers = client_of(cluster).unsaved(PATIENCE_S, "worker")
    assert [(task, table, rows) for task, _, table, _, rows in of_workers] == [
        (ONE, "", 0), (OTHER, "", 0),
    ]  # fmt: skip


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
    assert values_of(found, "staleness/hooked/worker_0") == [(5, 0.0), (9, 0.0), (10, 0.0)]
    histograms = values_of(found, "histogram_of_staleness/hooked/worker_0")
    assert [(step, rows.tolist()) for step, rows in histograms] == [
        (5, [[0, 1, 4]]), (9, [[0, 1, 4]]), (10, [[0, 1, 1]]),
    ]  # fmt: skip


def test_what_a_hook_cannot_be() -> None:
    for wrong in ({"every_n_secs": 1.0}, {"every_n_steps": None}):
        with pytest.raises(ValueError, match="exactly one of every_n_steps and every_n_secs"):
            tf.train.StalenessHook("grpc://x", output_dir="logs", **wrong)
    with pytest.raises(ValueError, match="exactly one of output_dir and summary_writer"):
        tf.train.StalenessHook("grpc://x")


def means_of(summaries: Iterable[Any]) -> list[float]:
    values = [value for summary in summaries for value in summary.value]
    return [
        float(np.frombuffer(value.tensor.tensor_content, "f4")[0])
        for value in values
        if not value.tag.startswith("histogram_of_")
    ]


class Said:
    """A client whose cluster has these figures."""

    figures: list[Any]

    def staleness(self, _: float) -> list[Any]:
        return self.figures


def staleness_said() -> tuple[Staleness, Said]:
    """What asks, and what is said to it."""
    staleness, said = Staleness("grpc://localhost:1"), Said()
    staleness._asked._client = said  # type: ignore[assignment]
    return staleness, said


def test_the_mean_is_that_of_the_same_worker() -> None:
    """A worker whose session begins anew is counted from nothing, and not below it."""

    staleness, said = staleness_said()
    said.figures = [("w", "/job:worker/task:0", 300, [(3, 3, 100)])]
    assert means_of(staleness.summaries()) == [3.0]
    said.figures = [("w", "/job:worker/task:0", 8, [(2, 2, 4)])]
    assert means_of(staleness.summaries()) == [2.0]


def test_what_a_worker_had_counted_that_has_gone_is_not_new_of_the_others() -> None:
    staleness, said = staleness_said()
    said.figures = [("w", "", 5, [(5, 5, 1)]), ("w", "/job:worker/task:0", 300, [(3, 3, 100)])]
    assert means_of(staleness.summaries()) == [5.0, 3.0]
    # It has gone, after one more push.
    said.figures = [("w", "", 312, [(3, 3, 100), (5, 5, 1), (7, 7, 1)])]
    assert means_of(staleness.summaries()) == [7.0]
    assert means_of(staleness.summaries()) == []
    # The server is another one, and so are its others.
    said.figures = [("w", "", 4, [(4, 4, 1)])]
    assert means_of(staleness.summaries()) == [4.0]
