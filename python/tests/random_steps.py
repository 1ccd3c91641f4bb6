"""Random graphs of steps on parameter servers, for tests of protocols. Accesses to one variable are
ordered by edges, so that every way to run a step must give the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import sidereal.v1 as tf

STEPS, SIZE = 3, 3
WORKER = "/job:worker/task:0"


@dataclass
class _Cell:
    """A variable, and what was last done to it."""

    variable: tf.Variable
    #: What changed it last: whoever comes later waits for it.
    changes: list[Any] = field(default_factory=list)
    #: What has read it since: the next change waits for it.
    reads: list[Any] = field(default_factory=list)

    def touched(self, by: Any, changed: bool) -> None:
        if changed:
            self.changes, self.reads = [by], []
        else:
            self.reads.append(by)


class RandomSteps:
    """A graph whose run is a step: reads and changes of variables, conditionals, loops, scans and
    a queue, on the worker and on `ps` parameter servers. The same for every `seed`."""

    def __init__(self, seed: int, ps: int) -> None:
        self._rng = np.random.default_rng(seed)
        #: Whether bodies touch a variable several times, in the order of the program.
        self._repeated = bool(self._rng.integers(2))
        self._devices = [WORKER, *(f"/job:ps/task:{i}" for i in range(ps))]
        self._scope = f"seed{seed}_{ps}"
        self.graph = tf.Graph()
        with self.graph.as_default(), tf.name_scope(self._scope):
            self._build()
        self._feeds = [self._vector() for _ in range(STEPS)]

    def results(self, session: tf.Session) -> dict[str, np.ndarray]:
        """All that was fetched, by step, and all variables after the last one."""
        session.run(self._initializer)
        out = {}
        for step, feed in enumerate(self._feeds):
            values = session.run([self._fetches, self._targets], {self._input: feed})[0]
            out |= {f"step {step}, {name}": value for name, value in values.items()}
        return out | session.run({cell.variable.op.name: cell.variable for cell in self._cells})

    # --- Building.

    def _build(self) -> None:
        with tf.device(WORKER):
            self._input = tf.placeholder(tf.float32, [SIZE], name="input")
        self._cells = [_Cell(self._variable(i)) for i in range(self._rng.integers(2, 6))]
        self._queue_place = self._place()
        with tf.device(self._queue_place):
            self._queue = tf.FIFOQueue(2, [tf.float32], [(SIZE,)], shared_name=self._scope)
        self._queued: list[Any] = []
        self._values = [self._input]
        ways: list[tuple[int, Callable[[], Any]]] = [
            (6, self._computed), (3, self._read), (4, self._changed), (2, self._scattered),
            (2, self._branched), (2, self._looped), (1, self._scanned), (1, self._passed),
        ]  # fmt: skip
        weights = np.array([weight for weight, _ in ways], float)
        for _ in range(self._rng.integers(8, 24)):
            way = ways[self._rng.choice(len(ways), p=weights / weights.sum())][1]
            with tf.device(self._place()):
                self._values.append(way())
        self._targets = [op for cell in self._cells for op in (*cell.changes, *cell.reads)]
        self._targets += self._queued
        fetched = self._rng.permutation(len(self._values))[: self._rng.integers(1, 5)]
        self._fetches = {str(i): self._values[i] for i in fetched}
        self._initializer = tf.variables_initializer([cell.variable for cell in self._cells])

    def _variable(self, number: int) -> tf.Variable:
        with tf.device(self._place()):
            return tf.Variable(self._vector(), name=f"v{number}")

    def _vector(self) -> np.ndarray:
        return self._rng.uniform(-1, 1, SIZE).astype("f")

    def _place(self) -> str:
        return self._devices[self._rng.integers(len(self._devices))]

    def _one(self) -> Any:
        """A value made before, late ones more often."""
        return self._values[-1 - min(self._rng.geometric(0.3), len(self._values)) + 1]

    def _some(self) -> list[_Cell]:
        count = self._rng.integers(1, 3)
        return [self._cells[i] for i in self._rng.permutation(len(self._cells))[:count]]

    # --- Kinds of nodes.

    def _formula(self) -> Callable[[Any, Any], Any]:
        """A function of two vectors into (-1, 1)."""
        return [
            lambda a, b: tf.tanh(a + b),
            lambda a, b: tf.sin(a * 3.0 - b),
            lambda a, b: a * b,
            lambda a, b: tf.where(a > b, tf.sigmoid(a), b * 0.5),
            lambda a, b: tf.tanh(tf.reshape(tf.matmul(tf.reshape(a, [SIZE, 1]) * b,
                                                      tf.reshape(b, [SIZE, 1])), [SIZE])),
        ][self._rng.integers(5)]  # fmt: skip

    def _computed(self) -> Any:
        return self._formula()(self._one(), self._one())

    def _read(self) -> Any:
        cell = self._some()[0]
        with tf.control_dependencies(cell.changes):
            value = cell.variable.read_value()
        cell.touched(value, changed=False)
        return value

    def _changed(self) -> Any:
        cell, value = self._some()[0], self._one()
        how = ("assign", "assign_add", "assign_sub")[self._rng.integers(3)]
        with tf.control_dependencies([*cell.changes, *cell.reads]):
            made = getattr(cell.variable, how)(tf.tanh(value))
        cell.touched(made, changed=True)
        return made

    def _scattered(self) -> Any:
        cell, value = self._some()[0], self._one()
        rows = tf.IndexedSlices(tf.gather(value, [0, 1, 1]) * 0.1, tf.constant([2, 0, 2]))
        with tf.control_dependencies([*cell.changes, *cell.reads]):
            made = cell.variable.scatter_add(rows)
        cell.touched(made, changed=True)
        return made

    def _inside(self, cells: list[_Cell], far: list[str], change: int) -> Callable[[Any], Any]:
        """What a body does: touches each of `cells`, the one numbered `change` by adding."""
        order = list(range(len(cells)))
        if self._repeated:
            order = [int(i) for i in self._rng.integers(len(cells), size=4)]
        formulas = [self._formula() for _ in order]

        def run(value: Any) -> Any:
            for i, formula in zip(order, formulas):
                variable = cells[i].variable
                if i == change:
                    seen = variable.assign_add(value * 0.1)
                    if self._repeated:
                        variable.assign_sub(tf.tanh(seen * value))
                        seen = variable.read_value()
                else:
                    seen = variable.read_value()
                with tf.device(far[i]):
                    value = formula(value, seen)
            return value

        return run

    def _controlled(self, make: Callable[[Callable[[Any], Any], Callable[[Any], Any]], Any]) -> Any:
        """What `make` makes of two bodies, after what was done to the variables they touch."""
        cells, far = self._some(), [self._place() for _ in range(2)]
        change = int(self._rng.integers(-1, len(cells)))
        bodies = [self._inside(cells, far, change), self._inside(cells, far[::-1], change)]
        earlier = [op for cell in cells for op in (*cell.changes, *cell.reads)]
        with tf.control_dependencies(earlier):
            made = make(*bodies)
        for i, cell in enumerate(cells):
            cell.touched(made, changed=i == change)
        return made

    def _branched(self) -> Any:
        a, b = self._one(), self._one()
        return self._controlled(lambda yes, no: tf.cond(
            tf.reduce_sum(a) > tf.reduce_sum(b), lambda: yes(a), lambda: no(b)))  # fmt: skip

    def _looped(self) -> Any:
        first, times = self._one(), int(self._rng.integers(0, 4))
        nested = bool(self._rng.integers(2))
        limit = tf.constant(times) + tf.cast(first[0] > 0.0, tf.int32)

        def make(body: Callable[[Any], Any], other: Callable[[Any], Any]) -> Any:
            def step(i: Any, value: Any) -> tuple[Any, Any]:
                if nested:
                    return i + 1, tf.cond(value[0] > 0.0, lambda: body(value), lambda: other(value))
                return i + 1, body(value)

            return tf.while_loop(lambda i, _: i < limit, step, [tf.constant(0), first])[1]

        return self._controlled(make)

    def _scanned(self) -> Any:
        first, rows = self._one(), tf.stack([self._one() for _ in range(self._rng.integers(1, 4))])

        def make(body: Callable[[Any], Any], other: Callable[[Any], Any]) -> Any:
            del other
            return tf.scan(lambda state, row: body(tf.tanh(state - row)), rows, first)[-1]

        return self._controlled(make)

    def _passed(self) -> Any:
        """In at the end of the queue, and out."""
        value = self._one()
        with tf.device(self._queue_place):
            with tf.control_dependencies(self._queued):
                put = self._queue.enqueue(value)
            with tf.control_dependencies([put]):
                taken = self._queue.dequeue()
        self._queued = [taken]
        return taken
