"""Requests that wait at once run as one call of the model.

The native batcher queues, joins, calls and cuts, without Python; here it meets an event loop. What
the loop asks for is computed on the loop while calls are short, else on a thread of the batcher.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import _native, errors
from .._dispatch import ENGINE, to_tensor
from ..dtypes import string

Columns = Mapping[str, npt.NDArray[Any]]
#: Called once: with outputs, or with an error.
Done = Callable[[dict[str, npt.NDArray[Any]] | None, BaseException | None], None]

#: How often deadlines are looked at while something waits.
_SWEEP_S = 0.05
#: How long a look at whether everything was answered takes.
_IDLE_S = 0.1


@dataclass(frozen=True)
class BatchOptions:
    """max_rows: rows of one call at most, 1: each request is a call of its own. timeout_s: how long
    a request waits for others. queue_max: rows that may wait."""

    max_rows: int = 1024
    timeout_s: float = 0.0
    queue_max: int = 8192


def model_of_callable(
    call: Callable[[Columns], Mapping[str, Any]], inputs: Sequence[str], outputs: Sequence[str]
) -> _native.ServedModel:
    """The model of a function that takes arrays by input and gives arrays by output."""

    def run(tensors: Sequence[Any]) -> list[Any]:
        found = call({name: tensor.numpy() for name, tensor in zip(inputs, tensors)})
        return [_tensor(np.asarray(found[name])) for name in outputs]

    return _native.ServedModel.of_callable(run, ENGINE)


def _tensor(column: npt.NDArray[Any]) -> Any:
    if column.dtype.kind in "OSU":
        return to_tensor(column.tolist(), string)
    return to_tensor(column)


class Waiting:
    """A request that waits for its outputs."""

    __slots__ = ("_done", "_native", "_token")

    def __init__(self, native: _native.Waiting, token: int, done: dict[int, Done]) -> None:
        self._native, self._token, self._done = native, token, done

    def cancel(self) -> None:
        """Nobody waits for it any more."""
        self._native.cancel()
        self._done.pop(self._token, None)


class Batcher:
    """The calls of one signature, one at a time, each for as many requests as wait. It is the event
    loop's, but for `native`, which gRPC's thread has too."""

    def __init__(
        self,
        name: str,
        model: _native.ServedModel,
        inputs: Sequence[str],
        outputs: Sequence[str],
        options: BatchOptions,
        figures: _native.BatchFigures,
    ) -> None:
        self.native = _native.Batcher.make(
            name, model, options.max_rows, options.timeout_s, options.queue_max, figures
        )
        self._inputs, self._outputs = tuple(inputs), tuple(outputs)
        self._loop = asyncio.get_running_loop()
        self._answers = _native.Answers.make()
        self._loop.add_reader(self._answers.fileno(), self._deliver)
        self._done: dict[int, Done] = {}
        self._tokens = itertools.count()
        self._is_flushing = False
        self._sweeper: asyncio.TimerHandle | None = None

    @property
    def waiting_rows(self) -> int:
        return self.native.waiting_rows

    def submit(self, columns: Columns, rows: int | None, deadline: float, done: Done) -> Waiting:
        """Has a request answered, by `done` at the deadline (of time.monotonic()) at the latest.

        rows: the first extent of all inputs; None when they have none in common.

        Errors: ResourceExhaustedError when too many rows wait.
        """
        tensors = [_tensor(columns[name]) for name in self._inputs]
        token = next(self._tokens)
        native = self.native.submit(
            tensors, -1 if rows is None else rows, deadline - time.monotonic(), token,
            self._answers,
        )  # fmt: skip
        self._done[token] = done
        if not self._is_flushing:
            # Behind what has come with it.
            self._is_flushing = True
            self._loop.call_soon(self._flush)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(_SWEEP_S, self._sweep)
        return Waiting(native, token, self._done)

    def _flush(self) -> None:
        self._is_flushing = False
        self.native.flush()
        self._deliver()

    def _deliver(self) -> None:
        """Hands out the answers that there are."""
        for token, tensors, code, message in self._answers.take(ENGINE):
            done = self._done.pop(token, None)
            if done is None:
                continue
            if tensors is None:
                done(None, errors.from_code(code, message))
            else:
                done({name: one.numpy() for name, one in zip(self._outputs, tensors)}, None)

    def _sweep(self) -> None:
        """Tells those whose time is over."""
        self._sweeper = None
        is_busy = self.native.sweep()
        self._deliver()
        if is_busy:
            self._sweeper = self._loop.call_later(_SWEEP_S, self._sweep)

    async def close(self) -> None:
        """Ends when all that waits was answered. What is submitted from now on is refused."""
        self.native.close()
        while not await self._loop.run_in_executor(None, self.native.wait_idle, _IDLE_S):
            pass
        self._deliver()
        self._loop.remove_reader(self._answers.fileno())
        if self._sweeper is not None:
            self._sweeper.cancel()


__all__ = ["BatchOptions", "Batcher", "Columns", "Done", "Waiting", "model_of_callable"]
