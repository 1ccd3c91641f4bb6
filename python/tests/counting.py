"""A worker that counts what it pushes, for tests of what is lost with parameter servers."""

from __future__ import annotations

import threading
from contextlib import suppress

import numpy as np

import sidereal.v1 as tf
from sidereal import errors

KEYS, PUSHED = 500, 16


class Counting:
    """A table of counts on each of some ps, and a worker that adds one to some: what it has sent,
    and what was answered."""

    def __init__(self, target: str, seed: int, ps: int = 2) -> None:
        self._random = np.random.default_rng(seed)
        self._target = target
        self.sent, self.answered = np.zeros((ps, KEYS)), np.zeros((ps, KEYS))
        self.many = threading.Semaphore(0)
        self.ends = threading.Event()
        self._graph = tf.Graph()
        with self._graph.as_default():
            self.counts = []
            for task in range(ps):
                with tf.device(f"/job:ps/task:{task}"):
                    self.counts.append(
                        tf.get_variable(
                            f"counts{task}", [KEYS, 1], initializer=tf.zeros_initializer()
                        )
                    )
            self._ids = tf.placeholder(tf.int64, [PUSHED])
            ones = tf.ones([PUSHED, 1])
            self._push = tf.group(*(tf.scatter_add(part, self._ids, ones) for part in self.counts))
            self.set_ones = tf.group(*(part.assign(tf.ones([KEYS, 1])) for part in self.counts))
            self.initialize = tf.global_variables_initializer()
            self.uninitialized = tf.report_uninitialized_variables()
            self.saver = tf.train.Saver()
        self.connect()

    def connect(self) -> None:
        """Another session."""
        self.session = tf.Session(self._target, graph=self._graph)

    def close(self) -> None:
        with suppress(errors.Error):
            self.session.close()

    def push(self) -> None:
        """Once, to each of the ps."""
        ids = self._random.permutation(KEYS)[:PUSHED]
        self.sent[:, ids] += 1
        self.session.run(self._push, {self._ids: ids})
        self.answered[:, ids] += 1

    def run(self) -> None:
        with suppress(errors.Error):
            while not self.ends.is_set():
                self.push()
                self.many.release()

    def now(self) -> np.ndarray:
        """The counts, by ps."""
        return np.stack([part[:, 0] for part in self.session.run(self.counts)])
