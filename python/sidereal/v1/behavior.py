"""What programs of TensorFlow 1 switch on and off at their beginning: here graphs of this package
are graphs, variables are resources, and nothing is to be switched."""

from __future__ import annotations

from typing import Any

__all__ = [
    "disable_eager_execution", "disable_v2_behavior", "enable_eager_execution",
    "enable_resource_variables", "enable_v2_behavior",
]  # fmt: skip


def disable_eager_execution() -> None:
    """Nothing: what sidereal.v1 calls adds to a graph."""


def disable_v2_behavior() -> None:
    """Nothing: sidereal.v1 is TensorFlow 1's way."""


def enable_resource_variables() -> None:
    """Nothing: variables are always resources."""


def enable_eager_execution(config: Any = None, device_policy: Any = None, execution_mode: Any = None
                           ) -> None:  # fmt: skip
    """RuntimeError: ops of `sidereal` itself run at once, those of sidereal.v1 do not."""
    raise RuntimeError("ops of sidereal.v1 add to a graph; those of 'import sidereal' run at once")


def enable_v2_behavior() -> None:
    """RuntimeError, as of enable_eager_execution()."""
    enable_eager_execution()
