"""Errors that name the argument of a call that is wrong, and what may have been meant."""

from __future__ import annotations

import difflib
import functools
import inspect
import operator
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


def explains(positional: str = "", **meant: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Makes a function say, of arguments that it does not take, what to write instead: `meant` by
    the names that other libraries have for them, `positional` for too many without a name."""

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            try:
                signature.bind(*args, **kwargs)
            except TypeError as error:
                hints = _hints(list(signature.parameters), positional, meant, kwargs)
                text = "; ".join([f"{function.__qualname__}(): {error}", *hints])
                raise TypeError(text) from None
            return function(*args, **kwargs)

        return checked

    return decorate


def _hints(
    known: list[str], positional: str, meant: dict[str, str], given: dict[str, Any]
) -> list[str]:
    unknown = [name for name in given if name not in known]
    if not unknown:
        return [positional] if positional else []
    hints = []
    for name in unknown:
        near = difflib.get_close_matches(name, known, 1)
        if name in meant:
            hints.append(meant[name])
        elif near:
            hints.append(f"did you mean {near[0]}?")
    return hints


def whole(function: str, name: str, value: Any) -> int:
    """`value` as an int, or TypeError naming the argument of the function."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{function}(): {name} is {value!r}; it must be a whole number") from None


def real(function: str, name: str, value: Any) -> float:
    """`value` as a float, or TypeError naming the argument of the function."""
    if isinstance(value, str | bytes):
        raise TypeError(f"{function}(): {name} is {value!r}; it must be a number")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{function}(): {name} is {value!r}; it must be a number") from None
