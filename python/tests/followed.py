"""Clusters that are followed, and what trains there, for tests."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import Any

import numpy as np
from session_servers import Processes, addresses

import sidereal.v1 as tf

ROWS, DIM = 3001, 4


class Cluster:
    """Some ps of two lanes and a worker, and programs that follow them."""

    def __init__(
        self, protocol: str, *options: Any, ps: int = 2, replicas: int = 1,
        min_insync_replicas: int = 1, **process: Any,
    ) -> None:  # fmt: skip
        ports = addresses(ps + 1)
        self.jobs = {"ps": ports[:ps], "worker": ports[ps:]}
        self._options = ["--protocol", protocol, "--lanes", "2", *options]
        self._copies = [
            *("--option", f"replicas={replicas}"),
            *("--option", f"min_insync_replicas={min_insync_replicas}"),
        ]
        self._process = process
        self.processes = Processes()
        self.ps = [self._serve("ps", task) for task in range(ps)]
        self._serve("worker", 0)
        self.target = f"grpc://{ports[ps]}"

    def _serve(self, job: str, task: int) -> subprocess.Popen[str]:
        copies = self._copies if job == "ps" else []
        return self.processes.serve(self.jobs, job, task, *self._options, *copies, **self._process)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.processes.end()

    def restart_ps(self, task: int) -> None:
        self.kill_ps(task)
        self.start_ps(task)

    def start_ps(self, task: int) -> None:
        self.ps[task] = self._serve("ps", task)

    def pause_ps(self, task: int) -> None:
        """It does nothing any more when this returns."""
        self.ps[task].send_signal(signal.SIGSTOP)
        os.waitpid(self.ps[task].pid, os.WUNTRACED)

    def resume_ps(self, task: int) -> None:
        self.ps[task].send_signal(signal.SIGCONT)

    def kill_ps(self, task: int) -> None:
        self.ps[task].kill()
        self.ps[task].wait()


class Tables:
    """A table in two parts with its slots, on two ps, one that is not in parts, and what trains
    some of their rows."""

    def __init__(self) -> None:
        with tf.device(tf.train.replica_device_setter(2, worker_device="/job:worker/task:0")):
            self.step = tf.train.get_or_create_global_step()
            self.table = tf.get_variable(
                "table", [ROWS, DIM], partitioner=tf.fixed_size_partitioner(2),
                initializer=tf.random_uniform_initializer(seed=1),
            )  # fmt: skip
            self.other = tf.get_variable("other", [7, 3], initializer=tf.zeros_initializer())
            self.ids = tf.placeholder(tf.int64, [None])
            rows = tf.nn.embedding_lookup(self.table, self.ids)
            some = tf.nn.embedding_lookup(self.other, self.ids % 7)
            loss = tf.reduce_sum((rows - 1.0) ** 2) + tf.reduce_sum((some - 2.0) ** 2)
            self.train = tf.train.AdagradOptimizer(0.5).minimize(loss, self.step)
        self._random = np.random.default_rng(5)

    def push(self, session: Any, times: int = 1) -> None:
        for _ in range(times):
            session.run(self.train, {self.ids: self._random.integers(0, ROWS, 20)})

    def now(self, session: Any) -> np.ndarray:
        return np.concatenate(session.run(list(self.table)))
