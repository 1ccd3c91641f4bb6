"""Control flow of Python that depends on tensors (tf.autograph): what sidereal.function does with
the functions that it traces, and how to see it."""

from __future__ import annotations

import builtins
import types
from typing import Any

from .. import _conversion
from .._conversion import AutographWarning, with_status
from ..function import Function
from . import experimental


def _function_of(entity: Any) -> types.FunctionType:
    if isinstance(entity, Function):
        entity = entity.python_function
    found = getattr(entity, "__func__", entity)
    if not isinstance(found, types.FunctionType):
        raise TypeError(f"autograph takes functions and methods, and not {entity!r:.80}")
    return found


def _rewritten(entity: Any) -> Any:
    found = _function_of(entity)
    try:
        return _conversion.rewrite(found)
    except Exception as error:
        raise ValueError(f"{found.__qualname__}() cannot be converted: {error}") from error


def to_graph(
    entity: Any, recursive: bool = True, experimental_optional_features: Any = None
) -> Any:
    """A function whose control flow, and that of what it calls, may depend on values of graphs
    (tf.autograph.to_graph). `recursive` and the features change nothing. ValueError, with the
    cause, when it cannot be converted."""
    del recursive, experimental_optional_features
    _rewritten(entity)
    return with_status(entity.python_function if isinstance(entity, Function) else entity, True)


def to_code(entity: Any, recursive: bool = True, experimental_optional_features: Any = None) -> str:
    """The code that to_graph() would run, as text (tf.autograph.to_code)."""
    del recursive, experimental_optional_features
    return str(_rewritten(entity).source)


def set_verbosity(level: int, alsologtostdout: bool = False) -> None:
    """Nothing: what cannot be converted is told of by warnings (AutographWarning), and nothing else
    is told (tf.autograph.set_verbosity)."""


def trace(*args: Any) -> None:
    """Prints while a function is traced (tf.autograph.trace)."""
    builtins.print(*args)


__all__ = ["AutographWarning", "experimental", "set_verbosity", "to_code", "to_graph", "trace"]
