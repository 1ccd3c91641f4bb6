"""What tests of monitored sessions have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sidereal as sr
import sidereal.v1 as tf


def counting(by: int = 1) -> tuple[Any, Any]:
    """(global step, operation that counts it) in the default graph."""
    step = tf.train.get_or_create_global_step()
    return step, step.assign_add(by).op


class Recorder(tf.train.SessionRunHook):
    """Writes down which of its methods are called; `request` is what before_run() gives."""

    def __init__(self, request: Any = None) -> None:
        self.request = request
        self.calls: list[str] = []
        self.contexts: list[Any] = []
        self.values: list[Any] = []
        self.stop_at: int | None = None

    def begin(self) -> None:
        self.calls.append("begin")

    def after_create_session(self, session: Any, coord: Any) -> None:
        self.calls.append("after_create_session")

    def before_run(self, run_context: Any) -> Any:
        self.calls.append("before_run")
        self.contexts.append(run_context)
        return self.request

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.calls.append("after_run")
        self.values.append(run_values)
        if self.stop_at is not None and len(self.values) >= self.stop_at:
            run_context.request_stop()

    def end(self, session: Any) -> None:
        self.calls.append("end")


class FailsOnce(tf.train.SessionRunHook):
    """Raises an error before the run of a number, counted from 0, as often as there are numbers."""

    def __init__(self, make: Callable[[], BaseException], *at: int) -> None:
        self._make = make
        self._at = set(at)
        self.runs = 0
        self.sessions = 0

    def after_create_session(self, session: Any, coord: Any) -> None:
        self.sessions += 1

    def before_run(self, run_context: Any) -> None:
        self.runs += 1
        if self.runs - 1 in self._at:
            raise self._make()


def saved(where: Any, name: str = "global_step") -> Any:
    """A tensor of a checkpoint, or of a folder's newest one."""
    found = sr.train.load_checkpoint(str(where)).get_tensor(name)
    return found.numpy() if isinstance(found, sr.Tensor) else found
