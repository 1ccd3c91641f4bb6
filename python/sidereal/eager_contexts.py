"""Where code runs, and what TensorFlow is told about the order and the place of ops: in
programs that run op by op, and in functions, with TensorFlow's names. Graphs of sidereal.v1 have
their own."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from . import errors
from ._engine import state
from .device_spec import DeviceSpec

__all__ = [
    "control_dependencies", "device", "executing_eagerly", "get_logger", "group", "init_scope",
    "inside_function", "name_scope", "no_op",
]  # fmt: skip


def executing_eagerly() -> bool:
    """Whether ops run at once here, rather than become part of a graph."""
    return state.graph is None


def inside_function() -> bool:
    """Whether this code is being traced for a graph."""
    return state.graph is not None


def get_logger() -> logging.Logger:
    """Where this package's lines go in Python's logging."""
    return logging.getLogger("sidereal")


@contextlib.contextmanager
def init_scope() -> Iterator[None]:
    """Ops in it run at once, though the code around it is being traced."""
    graph, state.graph = state.graph, None
    try:
        yield
    finally:
        state.graph = graph


@contextlib.contextmanager
def control_dependencies(control_inputs: Sequence[Any] | None) -> Iterator[None]:
    """Nothing: at once, and in a function, what changes variables or prints happens in the order of
    the code."""
    yield


def group(*inputs: Any, name: str | None = None) -> None:
    """Nothing: ops that have been called have been done, or will be in a function in any case."""


def no_op(name: str | None = None) -> None:
    """Nothing."""


class name_scope:  # noqa: N801 - the name is TensorFlow's.
    """Takes a name, which variables and ops do not begin with: they have those that they are
    given."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> str:
        return self.name

    def __exit__(self, *args: Any) -> None:
        pass


def device(device_name: str | Callable[..., Any] | None) -> contextlib.AbstractContextManager[None]:
    """Ops in it run on this process's processors, where they run anyway. InvalidArgumentError for
    another device: those of a cluster are chosen by the scope of a strategy, or, for the nodes of a
    graph, by sidereal.v1.device()."""
    if device_name is None or callable(device_name):
        return contextlib.nullcontext()
    spec = DeviceSpec.from_string(device_name)
    if spec.job not in (None, "localhost"):
        raise errors.InvalidArgumentError(
            f"'{device_name}' is a device of a cluster: make variables in the scope of a "
            "ParameterServerStrategy, which places them, or a graph with sidereal.v1.device()"
        )
    if spec.device_type not in (None, "CPU"):
        raise errors.InvalidArgumentError(
            f"'{device_name}' is not there: everything runs on processors (CPU:0)"
        )
    return contextlib.nullcontext()
