"""Settings of this process: sidereal.config."""

from __future__ import annotations

from ._dispatch import ENGINE

__all__ = ["set_operation_timeout"]


def set_operation_timeout(seconds: float) -> None:
    """How long an op waits at a queue or an accumulator that nobody changes, before it ends with
    DeadlineExceededError; 600 at first (operation_timeout_in_ms of tf.compat.v1.ConfigProto)."""
    if not seconds > 0:
        raise ValueError(f"the timeout is {seconds!r}; it must be above 0")
    ENGINE.set_operation_timeout(float(seconds))
