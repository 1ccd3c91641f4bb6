"""How long a parameter server with a standby is away that is killed, for bench/replication.py."""

from __future__ import annotations

import json
import subprocess
import time
from contextlib import suppress
from typing import Any

import numpy as np

import sidereal as sr
import sidereal.v1 as tf
from common import BIN, Server, local_cluster, tasks_of
from sidereal import errors

PS = 2
PATIENCE_S = 60.0


class Failover:
    """Two ps that are standbys of each other, with a table of counts on each, and a session that
    adds to both."""

    def __init__(self, protocol: str, rows: int, pushed: int) -> None:
        self._jobs, self._protocol = local_cluster(PS, 1), protocol
        self._servers = {(job, task): self._serve(job, task) for job, task in tasks_of(self._jobs)}
        self._target = f"grpc://{self._jobs['worker'][0]}"
        self._random = np.random.default_rng(1)
        self._rows, self._pushed = rows, pushed
        self._answered = np.zeros(rows)
        self._sent = np.zeros(rows)
        with tf.Graph().as_default() as self._graph:
            self._tables = []
            for task in range(PS):
                with tf.device(f"/job:ps/task:{task}"):
                    self._tables.append(
                        tf.get_variable(f"counts{task}", [rows, 16], trainable=False,
                                        initializer=tf.zeros_initializer())
                    )  # fmt: skip
            self._ids = tf.placeholder("int64", [pushed])
            ones = sr.ones([pushed, 16])
            self._push = tf.group(*(tf.scatter_add(one, self._ids, ones) for one in self._tables))
            self._initialize = tf.global_variables_initializer()
        self._session = tf.Session(self._target, self._graph)
        self._session.run(self._initialize)

    def _serve(self, job: str, task: int) -> Server:
        options = ["--option", "replicas=2"] if job == "ps" else []
        return Server(self._jobs, job, task, self._protocol, options=options)

    def kill(self, task: int) -> float:
        """Seconds from SIGKILL until the first push is answered again, with the start of the
        process, which a supervisor would see to."""
        self._wait_until_in_sync()
        for _ in range(20):
            self._add()
        begin = time.perf_counter()
        self._servers["ps", task].close()
        self._servers["ps", task] = self._serve("ps", task)
        while True:
            try:
                self._add()
                away = time.perf_counter() - begin
                break
            except errors.Error:
                if time.perf_counter() - begin > PATIENCE_S:
                    raise
                with suppress(errors.Error):
                    self._session.close()
                self._session = tf.Session(self._target, self._graph)
        for name, found in zip(("0", "1"), self._session.run(self._tables), strict=True):
            if (found[:, 0] < self._answered).any() or (found[:, 0] > self._sent).any():
                raise RuntimeError(f"counts{name} is not what was pushed")
        return away

    def _add(self) -> None:
        ids = self._random.choice(self._rows, self._pushed, replace=False)
        self._sent[ids] += 1
        self._session.run(self._push, {self._ids: ids})
        self._answered[ids] += 1

    def _wait_until_in_sync(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        command = [str(BIN / "sidereal"), "top", "--once", "--json", "--interval", "0.1"]
        command += ["--target", self._target]
        while True:
            done = subprocess.run(command, capture_output=True, check=True, text=True)
            found: list[dict[str, Any]] = json.loads(done.stdout)["tasks"]
            figures = [task.get("figures", {}) for task in found if "/job:ps" in task["task"]]
            if all(figure.get("sidereal_standby_copies") == 1 for figure in figures):
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"no standby is in sync after {PATIENCE_S:g} s")

    def close(self) -> None:
        with suppress(errors.Error):
            self._session.close()
        for server in self._servers.values():
            server.close()


def away_seconds(protocol: str, kills: int, rows: int, pushed: int) -> list[float]:
    """Of so many kills, of each ps in turn."""
    it = Failover(protocol, rows, pushed)
    try:
        return [it.kill(number % PS) for number in range(kills)]
    finally:
        it.close()
