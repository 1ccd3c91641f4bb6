"""Requests that wait at once run as one call of the model.

All of a batcher is the event loop's, so nothing here is locked. A call that was short so far runs
there, between two looks at the sockets; a longer one on the batcher's thread.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import errors

Columns = Mapping[str, npt.NDArray[Any]]
#: Called once: with outputs, or with an error.
Done = Callable[[dict[str, npt.NDArray[Any]] | None, BaseException | None], None]

#: A call that took less at its last time runs on the event loop.
_INLINE_S = 0.002
#: How often deadlines are looked at while something waits.
_SWEEP_S = 0.05


@dataclass(frozen=True)
class BatchOptions:
    """max_rows: rows of one call at most, 1: each request is a call of its own. timeout_s: how long
    a request waits for others. queue_max: rows that may wait."""

    max_rows: int = 1024
    timeout_s: float = 0.0
    queue_max: int = 8192


class Waiting:
    """A request that waits for its outputs."""

    __slots__ = ("columns", "deadline", "done", "rows", "shapes")

    def __init__(
        self, columns: Columns, rows: int | None, deadline: float, done: Done
    ) -> None:
        self.columns = columns
        #: None: not by rows, so it has a call of its own.
        self.rows = rows
        self.deadline = deadline
        self.done: Done | None = done
        #: Requests of the same extents go together.
        self.shapes = (
            None if rows is None else [array.shape[1:] for array in columns.values()]
        )

    def finish(self, outputs: Any, error: BaseException | None = None) -> None:
        """Answers, if it was not answered or cancelled before."""
        done, self.done = self.done, None
        if done is not None:
            done(outputs, error)

    def cancel(self) -> None:
        """Nobody waits for it any more."""
        self.done = None


class Batcher:
    """The calls of one signature, one at a time, each for as many requests as wait."""

    def __init__(
        self,
        name: str,
        call: Callable[[Columns], dict[str, npt.NDArray[Any]]],
        options: BatchOptions,
        observe: Callable[[int, float], None] = lambda rows, seconds: None,
    ) -> None:
        self._name = name
        self._call = call
        self._options = options
        self._observe = observe
        self._loop = asyncio.get_running_loop()
        self._queue: deque[Waiting] = deque()
        self._rows = 0
        self._running: list[Waiting] = []
        self._flushing: asyncio.Handle | None = None
        self._is_timed = False
        self._sweeper: asyncio.TimerHandle | None = None
        self._seconds: dict[int, float] = {}
        self._thread: ThreadPoolExecutor | None = None
        self._idle: list[asyncio.Future[None]] = []

    @property
    def waiting_rows(self) -> int:
        return self._rows

    def submit(self, columns: Columns, rows: int | None, deadline: float, done: Done) -> Waiting:
        """Has a request answered, by `done` at the deadline (of time.monotonic()) at the latest.

        rows: the first extent of all inputs; None when they have none in common.

        Errors: ResourceExhaustedError when too many rows wait.
        """
        count = 1 if rows is None else rows
        if self._rows and self._rows + count > self._options.queue_max:
            raise errors.ResourceExhaustedError(
                f"{self._rows} rows wait for '{self._name}', and {self._options.queue_max} may "
                "(--queue-rows); ask again later, or more servers"
            )
        waiting = Waiting(columns, rows, deadline, done)
        self._queue.append(waiting)
        self._rows += count
        if not self._running:
            self._schedule()
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(_SWEEP_S, self._sweep)
        return waiting

    def _schedule(self) -> None:
        """Has flush() called: at once when there is enough for a call, else when it is time."""
        is_due = not self._options.timeout_s or self._rows >= self._options.max_rows
        if self._flushing is not None:
            if not (is_due and self._is_timed):
                return
            self._flushing.cancel()
        self._is_timed = not is_due
        if is_due:
            self._flushing = self._loop.call_soon(self._flush)
        else:
            self._flushing = self._loop.call_later(self._options.timeout_s, self._flush)

    def _take(self) -> list[Waiting]:
        """The requests of the next call."""
        taken: list[Waiting] = []
        rows = 0
        while self._queue:
            first = self._queue[0]
            count = 1 if first.rows is None else first.rows
            if taken and (
                first.rows is None
                or first.shapes != taken[0].shapes
                or rows + count > self._options.max_rows
            ):
                break
            self._queue.popleft()
            self._rows -= count
            if first.done is None:
                continue
            taken.append(first)
            rows += count
            if first.rows is None or rows >= self._options.max_rows:
                break
        return taken

    def _flush(self) -> None:
        self._flushing = None
        self._running = taken = self._take()
        if not taken:
            self._rest()
            return
        rows = sum(1 if one.rows is None else one.rows for one in taken)
        if self._seconds.get(rows.bit_length(), _INLINE_S) < _INLINE_S:
            self._answer(taken, rows, *self._timed(taken))
            return
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, f"serve {self._name}")
        future = self._loop.run_in_executor(self._thread, self._timed, taken)
        future.add_done_callback(lambda done: self._answer(taken, rows, *done.result()))

    def _timed(
        self, taken: list[Waiting]
    ) -> tuple[dict[str, npt.NDArray[Any]] | None, Exception | None, float]:
        """What the model says to some requests together: outputs, or an error, and seconds."""
        began = time.perf_counter()
        try:
            if len(taken) == 1:
                columns = taken[0].columns
            else:
                columns = {
                    name: np.concatenate([one.columns[name] for one in taken])
                    for name in taken[0].columns
                }
            return self._call(columns), None, time.perf_counter() - began
        except Exception as error:  # noqa: BLE001 - whoever asked is told.
            return None, error, time.perf_counter() - began

    def _answer(
        self, taken: list[Waiting], rows: int,
        outputs: dict[str, npt.NDArray[Any]] | None, error: Exception | None, seconds: float,
    ) -> None:  # fmt: skip
        self._running = []
        self._seconds[rows.bit_length()] = seconds
        self._observe(rows, seconds)
        if outputs is None:
            self._failed(taken, error)
        elif len(taken) == 1:
            taken[0].finish(outputs)
        elif any(not out.ndim or len(out) != rows for out in outputs.values()):
            # What it gives is not by rows: each request is a call of its own.
            self._separately(taken)
        else:
            begin = 0
            for one in taken:
                end = begin + (one.rows or 0)
                one.finish({name: out[begin:end] for name, out in outputs.items()})
                begin = end
        if self._queue:
            self._schedule()
        else:
            self._rest()

    def _failed(self, taken: list[Waiting], error: Exception | None) -> None:
        """One request can spoil a call: the others are not to be refused for it."""
        if len(taken) == 1:
            taken[0].finish(None, error)
        else:
            self._separately(taken)

    def _separately(self, taken: list[Waiting]) -> None:
        for one in reversed(taken):
            if one.done is not None:
                one.rows, count = None, 1
                self._rows += count
                self._queue.appendleft(one)

    def _sweep(self) -> None:
        """Tells those whose time is over."""
        self._sweeper = None
        now = time.monotonic()
        for one in (*self._running, *self._queue):
            if one.done is not None and one.deadline <= now:
                one.finish(
                    None,
                    errors.DeadlineExceededError(
                        f"'{self._name}' gave no answer in the time the request had"
                    ),
                )
        if self._queue or self._running:
            self._sweeper = self._loop.call_later(_SWEEP_S, self._sweep)

    def _rest(self) -> None:
        """There is nothing to do; whoever waits for that is told."""
        if self._running or self._queue:
            return
        for future in self._idle:
            if not future.done():
                future.set_result(None)
        self._idle.clear()

    async def close(self) -> None:
        """Ends when all that waits was answered. Nothing may be submitted any more."""
        if self._running or self._queue:
            future = self._loop.create_future()
            self._idle.append(future)
            await future
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._thread is not None:
            self._thread.shutdown(wait=False)


__all__ = ["BatchOptions", "Batcher", "Columns", "Waiting"]
