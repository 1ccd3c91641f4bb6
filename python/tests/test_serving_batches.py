"""Requests that wait at once run as one call, and each gets its own answer."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from sidereal import _native, errors
from sidereal.serving._batching import Batcher, BatchOptions, Waiting, model_of_callable


class Calls:
    """A model that gives 10 x, and the rows of each call. It refuses negative numbers."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def __call__(self, columns: Any) -> dict[str, np.ndarray]:
        x = columns["x"]
        self.rows.append(len(x))
        if (x < 0).any():
            raise errors.InvalidArgumentError("x is negative")
        return {"y": x * 10}


class Asked:
    """Requests and their answers, by place."""

    def __init__(self, batcher: Batcher) -> None:
        self._batcher = batcher
        self.answers: dict[int, Any] = {}
        self.all: list[Waiting] = []

    def ask(self, x: Any, rows: int | None = -1, seconds: float = 100) -> Waiting:
        array, place = np.asarray(x), len(self.all)

        def done(outputs: Any, error: BaseException | None) -> None:
            assert place not in self.answers
            self.answers[place] = error if outputs is None else outputs["y"].tolist()

        made = self._batcher.submit(
            {"x": array}, len(array) if rows == -1 else rows, time.monotonic() + seconds, done
        )
        self.all.append(made)
        return made


def run(test: Callable[[Asked, Batcher], Awaitable[None]], call: Any, **options: Any) -> Asked:
    """Runs a test with a batcher, until all is answered."""

    async def body() -> Asked:
        model = model_of_callable(call, ["x"], ["y"])
        batcher = Batcher(
            "f", model, ["x"], ["y"], BatchOptions(**options), _native.BatchFigures.make()
        )
        asked = Asked(batcher)
        await test(asked, batcher)
        await batcher.close()
        return asked

    async def within_a_minute() -> Asked:
        return await asyncio.wait_for(body(), 60)

    return asyncio.run(within_a_minute())


async def turn() -> None:
    """Lets the loop do what is due."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    loop.call_soon(future.set_result, None)
    await future


def test_each_gets_its_own_rows_of_a_call() -> None:
    calls = Calls()

    async def test(asked: Asked, batcher: Batcher) -> None:
        for number in range(100):
            asked.ask(np.arange(number % 4) + number)

    asked = run(test, calls)
    assert calls.rows == [150]
    assert asked.answers == {
        number: [10 * (number + k) for k in range(number % 4)] for number in range(100)
    }


def test_a_call_has_as_many_rows_as_it_may_and_larger_requests_are_alone() -> None:
    calls = Calls()

    async def test(asked: Asked, batcher: Batcher) -> None:
        for rows in (3, 3, 3, 20, 1, 8):
            asked.ask(np.ones(rows))

    asked = run(test, calls, max_rows=8)
    assert calls.rows == [6, 3, 20, 1, 8] and len(asked.answers) == 6
    calls = Calls()
    asked = run(test, calls, max_rows=1)
    assert calls.rows == [3, 3, 3, 20, 1, 8]


def test_requests_of_other_shapes_and_without_rows_go_apart_and_in_order() -> None:
    calls = Calls()

    async def test(asked: Asked, batcher: Batcher) -> None:
        for x, rows in (
            ([[1, 2]], 1), ([[3, 4]], 1), ([[5, 6, 7]], 1), ([[8, 9]], 1), ([1, 2], None), ([1], 1)
        ):  # fmt: skip
            asked.ask(x, rows)

    asked = run(test, calls)
    assert calls.rows == [2, 1, 1, 2, 1]
    assert asked.answers[1] == [[30, 40]] and asked.answers[4] == [10, 20]
    assert list(asked.answers) == list(range(6))


def test_one_that_spoils_a_call_is_refused_alone() -> None:
    calls = Calls()

    async def test(asked: Asked, batcher: Batcher) -> None:
        for x in (1, -1, 2):
            asked.ask([x])

    asked = run(test, calls)
    assert calls.rows == [3, 1, 1, 1]
    assert asked.answers[0] == [10] and asked.answers[2] == [20]
    assert isinstance(asked.answers[1], errors.InvalidArgumentError)


def test_what_is_not_by_rows_is_computed_for_each() -> None:
    async def test(asked: Asked, batcher: Batcher) -> None:
        for x in ([1], [2, 3], [4]):
            asked.ask(x)

    asked = run(test, lambda columns: {"y": columns["x"].sum()})
    assert asked.answers == {0: 1, 1: 5, 2: 4}


def test_it_waits_for_others_as_long_as_it_is_told_or_until_there_are_enough() -> None:
    calls = Calls()

    async def test(asked: Asked, batcher: Batcher) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        asked.ask([1])
        while not asked.answers:
            await turn()
        assert loop.time() - began >= 0.05
        for _ in range(4):
            asked.ask([1])
        while len(asked.answers) < 5:
            await turn()

    run(test, calls, timeout_s=0.05, max_rows=4)
    assert calls.rows == [1, 4]


def test_what_is_too_much_is_refused_at_once() -> None:
    calls = Calls()

    async def test(asked: Asked, batcher: Batcher) -> None:
        asked.ask(np.ones(6))
        with pytest.raises(errors.ResourceExhaustedError, match="6 rows wait for 'f', and 8 may"):
            asked.ask(np.ones(3))
        asked.ask(np.ones(2))
        assert batcher.waiting_rows == 8

    asked = run(test, calls, queue_max=8)
    assert calls.rows == [8] and len(asked.answers) == 2
    # Larger than what may wait, but nothing else does.
    assert run(lambda a, b: _ask_much(a), Calls(), queue_max=8).answers[0] == [10.0] * 20


async def _ask_much(asked: Asked) -> None:
    asked.ask(np.ones(20))


def test_whose_time_is_over_is_told_and_not_computed() -> None:
    calls = Calls()

    async def test(asked: Asked, batcher: Batcher) -> None:
        asked.ask([1], seconds=0)
        gone = asked.ask([2])
        asked.ask([3])
        gone.cancel()
        batcher._sweep()
        assert isinstance(asked.answers[0], errors.DeadlineExceededError)

    asked = run(test, calls)
    assert calls.rows == [1] and asked.answers[2] == [30] and 1 not in asked.answers


def test_a_long_call_leaves_the_loop_free_and_is_waited_for() -> None:
    """What comes meanwhile is the next call."""
    calls, release = Calls(), threading.Event()

    def call(columns: Any) -> dict[str, np.ndarray]:
        assert release.wait(60)
        return calls(columns)

    async def test(asked: Asked, batcher: Batcher) -> None:
        asked.ask([1])
        while not batcher.native.is_running:
            await turn()
        asked.ask([2])
        asked.ask([3])
        asked.ask([4], seconds=0)
        batcher._sweep()
        assert isinstance(asked.answers[3], errors.DeadlineExceededError)
        assert 0 not in asked.answers
        release.set()

    asked = run(test, call)
    assert calls.rows == [1, 2]
    assert {k: asked.answers[k] for k in range(3)} == {0: [10], 1: [20], 2: [30]}
