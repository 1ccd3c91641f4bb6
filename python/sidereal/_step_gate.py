"""Holds up steps of this process while variables are handed over."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from . import errors

#: How often it is looked whether it still makes sense to wait.
_LOOK_S = 0.05


class _Depth(threading.local):
    """How many steps of a thread are within one another."""

    value = 0


def _go_on() -> None:
    """Has nothing against waiting."""


class StepGate:
    """Lets steps pass, of any thread, or one who wants that none runs. `what`: what they are, for
    errors."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._changed = threading.Condition()
        self._running = 0
        self._is_closed = False
        self._depth = _Depth()

    @contextmanager
    def passing(self, check: Callable[[], object] = _go_on) -> Iterator[None]:
        """A step runs in the context; it begins when the gate is open. Who closes it opens it
        again in time. `check` is called before it begins, and now and then while it waits, and may
        raise; what it waits for itself it waits for within the step."""
        if self._depth.value == 0:
            while True:
                with self._changed:
                    if not self._is_closed:
                        self._running += 1
                        break
                    self._changed.wait(_LOOK_S)
                check()
        self._depth.value += 1
        try:
            yield
        finally:
            self._depth.value -= 1
            if self._depth.value == 0:
                with self._changed:
                    self._running -= 1
                    self._changed.notify_all()

    @contextmanager
    def closed(self, limit_s: float, check: Callable[[], object]) -> Iterator[None]:
        """No step runs in the context; for one thread at a time, which runs none itself. `check` is
        called now and then while those that run are waited for, and may raise. Errors:
        DeadlineExceededError when they have not ended within `limit_s`."""
        with self._changed:
            self._is_closed = True
        try:
            self._wait(time.monotonic() + limit_s, limit_s, check)
            yield
        finally:
            with self._changed:
                self._is_closed = False
                self._changed.notify_all()

    def _wait(self, until: float, limit_s: float, check: Callable[[], object]) -> None:
        while True:
            with self._changed:
                if self._changed.wait_for(lambda: self._running == 0, _LOOK_S):
                    return
            check()
            if time.monotonic() >= until:
                raise errors.DeadlineExceededError(
                    f"{self._running} {self._what} have not ended within {limit_s:g} s"
                )
