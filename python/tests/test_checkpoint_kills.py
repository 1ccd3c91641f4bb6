"""Clusters that are killed wholly while they save: what is restored is a cut, and the pushes that
are sent again after it make exactly all of them."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import numpy as np
import pytest
from session_servers import PATIENCE_S, Processes, addresses

import sidereal as sr
from sidereal import v1
from sidereal._dispatch import apply
from sidereal._native import CheckpointReader
from sidereal.launch import PROTOCOLS

ROWS, DIM, PS = 20_000, 16, 2
#: With each protocol: a hundred together.
KILLS = 25


class Counting:
    """A table on each ps that counts pushes, each of which is to other rows."""

    def __init__(self, graph: v1.Graph) -> None:
        with graph.as_default():
            self.prefix = v1.placeholder(np.str_, [], "prefix")
            self.number = v1.placeholder(np.int64, [], "number")
            # The same rows when it is sent again.
            ids = sr.range(self.number % 97, sr.constant(ROWS, sr.int64), 97)
            grads = sr.ones([sr.shape(ids)[0], DIM])
            self.tables, self.pushes, self.restores, parts = [], [], [], []
            for ps in range(PS):
                with v1.device(f"/job:ps/task:{ps}"):
                    table = v1.get_variable(
                        f"w_{ps}", [ROWS, DIM], initializer=v1.zeros_initializer()
                    )
                    self.tables.append(table)
                    self.pushes.append(v1.scatter_add(table, ids, grads).op)
                    parts.append(
                        apply(
                            "SaveVariables",
                            [self.prefix, sr.constant(""), table.handle],
                            {"names": [f"w_{ps}"], "shard": ps, "shards": PS},
                        )
                    )
                    self.restores.append(
                        apply(
                            "RestoreVariables", [self.prefix, table.handle], {"names": [f"w_{ps}"]}
                        )
                    )
            with v1.device("/job:ps/task:0"):
                self.save = apply("CommitCheckpoint", [self.prefix, sr.constant(""), *parts], {})


def expected(pushes: int) -> np.ndarray:
    out = np.zeros(ROWS, np.float32)
    for number in range(pushes):
        out[number % 97 :: 97] += 1
    return out


def pushes_in(table: np.ndarray) -> int:
    """How many pushes, the first ones, make the table; fails if none do."""
    total = int(table[:, 0].sum())
    pushes = 0
    while total > 0:
        total -= len(range(pushes % 97, ROWS, 97))
        pushes += 1
    np.testing.assert_array_equal(table, expected(pushes)[:, None] * np.ones((1, DIM)))
    return pushes


class Incarnation:
    """A cluster, and its client, from their start until all is killed."""

    def __init__(self, counting: Counting, graph: v1.Graph, prefix: str) -> None:
        self.counting, self.graph, self.prefix = counting, graph, prefix
        self.saved = threading.Event()  #: Whether one of them has saved.

    def run(self, session: v1.Session, acknowledged: int, kill: threading.Event) -> int:
        """Restores, sends again, then pushes and saves until it is killed. Pushes acknowledged."""
        counting = self.counting
        with self.graph.as_default():
            session.run(v1.global_variables_initializer())
        done = [0] * PS
        if Path(self.prefix + ".index").exists():
            session.run(counting.restores, {counting.prefix: self.prefix})
            done = [pushes_in(table) for table in session.run(counting.tables)]
        # One that was not acknowledged may be in the cut.
        assert max(done) <= acknowledged + 1
        acknowledged = max(acknowledged, *done)
        for ps in range(PS):
            for number in range(done[ps], acknowledged):
                session.run(counting.pushes[ps], {counting.number: number})
        for table in session.run(counting.tables):
            assert pushes_in(table) == acknowledged
        kill.set()
        saver = threading.Thread(target=self._save, args=[session])
        saver.start()
        try:
            while True:
                session.run(counting.pushes, {counting.number: acknowledged})
                acknowledged += 1
        except sr.errors.Error:
            return acknowledged
        finally:
            saver.join()

    def _save(self, session: v1.Session) -> None:
        try:
            while True:
                session.run(self.counting.save, {self.counting.prefix: self.prefix})
                self.saved.set()
        except sr.errors.Error:
            pass  # Its cluster was killed.


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_of_a_cluster_that_is_killed(protocol: str, tmp_path: Path) -> None:
    rng = random.Random(protocol)
    cluster = {"worker": addresses(1), "ps": addresses(PS)}
    graph = v1.Graph()
    prefix = str(tmp_path / "model.ckpt")
    incarnation = Incarnation(Counting(graph), graph, prefix)
    acknowledged = 0
    for number in range(KILLS):
        processes = Processes()
        begins, ended = threading.Event(), threading.Event()

        def kill(
            number: int, processes: Processes, begins: threading.Event, ended: threading.Event
        ) -> None:
            assert begins.wait(PATIENCE_S)
            ended.wait(rng.uniform(0.0, 0.3))
            if number == KILLS - 1:  # A loaded machine may have had no time to save.
                incarnation.saved.wait(PATIENCE_S)
            for process in processes.all:
                process.kill()

        killer = threading.Thread(target=kill, args=[number, processes, begins, ended])
        try:
            for job, tasks in cluster.items():
                for task in range(len(tasks)):
                    processes.serve(cluster, job, task, "--protocol", protocol, "--lanes", 2)
            killer.start()
            # What a push has changed is there when its step ends.
            config = v1.ConfigProto(pull_prefetch_ms=0)
            session = v1.Session(f"grpc://{cluster['worker'][0]}", graph=graph, config=config)
            acknowledged = incarnation.run(session, acknowledged, begins)
        finally:
            begins.set()
            ended.set()
            if number == KILLS - 1:
                incarnation.saved.set()
            killer.join()
            processes.end()
    assert acknowledged > KILLS
    reader = CheckpointReader(prefix)
    for name in reader.names():
        assert pushes_in(reader.read(name).numpy()) > 0
