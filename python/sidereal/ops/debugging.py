"""Checks of values while ops run: sidereal.debugging, with TensorFlow's names; and print."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

from .. import errors
from .._dispatch import align, apply, convert
from . import math as _math

# ruff: noqa: A001, N802 - the names are TensorFlow's.

__all__ = [
    "Assert",
    "assert_all_finite",
    "assert_equal",
    "assert_greater",
    "assert_greater_equal",
    "assert_less",
    "assert_less_equal",
    "assert_near",
    "assert_negative",
    "assert_non_negative",
    "assert_non_positive",
    "assert_none_equal",
    "assert_positive",
    "check_numerics",
    "print",
]


def checked(value: Any, condition: Any, message: str, shown: Any) -> Any:
    """`value`; InvalidArgumentError that shows elements when a step has it and the bool scalar
    `condition` does not hold."""
    made = apply("Assert", (condition, shown), {"message": message, "summarize": 5})
    # Functions run every check; graphs of sidereal.v1 what is fetched, and what that waits for.
    graph = getattr(made, "graph", None)
    if graph is None:
        return value
    with graph.control_dependencies([made]):
        return apply("Identity", (value,))


def check_numerics(tensor: Any, message: str = "", name: str | None = None) -> Any:
    """`tensor`; InvalidArgumentError, beginning with `message`, when an element is NaN or infinite.
    Its gradient is checked as well. TensorFlow: tf.debugging.check_numerics."""
    return apply("CheckNumerics", (tensor,), {"message": message}, name=name)


def assert_all_finite(x: Any, message: str = "", name: str | None = None) -> Any:
    """As check_numerics(). TensorFlow: tf.debugging.assert_all_finite."""
    return check_numerics(x, message, name)


def Assert(
    condition: Any, data: Sequence[Any] = (), summarize: int = 3, name: str | None = None
) -> Any:
    """InvalidArgumentError that shows `data` unless all elements of the bool `condition` hold. In a
    function, the check is made whenever it runs; in a graph of sidereal.v1 it is an operation.
    TensorFlow: tf.debugging.Assert."""
    return check(condition, "", list(data), summarize, name)


def check(condition: Any, message: str, data: list[Any], summarize: int | None = None,
          name: str | None = None) -> Any:
    """Assert() with a message."""
    attrs: dict[str, Any] = {"summarize": 3 if summarize is None else int(summarize)}
    if message:
        attrs["message"] = message
    return apply("Assert", (condition, *data), attrs, name=name)


def _comparison(word: str, call: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def function(
        x: Any, y: Any, message: str | None = None, summarize: int | None = None,
        name: str | None = None,
    ) -> Any:
        x, y = align(x, y)
        text = message or f"x is not {word} y everywhere; x and y"
        return check(call(x, y), text, [x, y], summarize, name)

    function.__doc__ = (
        f"InvalidArgumentError unless x is {word} y, element by element, broadcasting. "
        "TensorFlow: tf.debugging."
    )
    return function


def _sign(word: str, call: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def function(
        x: Any, message: str | None = None, summarize: int | None = None, name: str | None = None
    ) -> Any:
        x = convert(x)
        text = message or f"x is not {word} everywhere; x"
        return check(call(x, convert(0, x.dtype)), text, [x], summarize, name)

    function.__doc__ = f"InvalidArgumentError unless all of x is {word}. TensorFlow: tf.debugging."
    return function


assert_equal = _comparison("equal to", _math.equal)
assert_none_equal = _comparison("different from", _math.not_equal)
assert_less = _comparison("less than", _math.less)
assert_less_equal = _comparison("at most", _math.less_equal)
assert_greater = _comparison("greater than", _math.greater)
assert_greater_equal = _comparison("at least", _math.greater_equal)
assert_positive = _sign("positive", _math.greater)
assert_non_negative = _sign("0 or positive", _math.greater_equal)
assert_negative = _sign("negative", _math.less)
assert_non_positive = _sign("0 or negative", _math.less_equal)
for _name in __all__:
    _function = globals().get(_name)
    if _name.startswith("assert_") and _function is not None and _function.__name__ == "function":
        _function.__name__ = _function.__qualname__ = _name
        _function.__doc__ = (_function.__doc__ or "") + _name + "."


def assert_near(
    x: Any, y: Any, rtol: float | None = None, atol: float | None = None,
    message: str | None = None, summarize: int | None = None, name: str | None = None,
) -> Any:
    """InvalidArgumentError unless |x - y| <= atol + rtol |y|; both 10 times the dtype's epsilon by
    default. TensorFlow: tf.debugging.assert_near."""
    x, y = align(x, y)
    epsilon = {"float64": 2.2e-16, "float32": 1.2e-7, "float16": 9.8e-4}.get(str(x.dtype), 7.9e-3)
    rtol = 10 * epsilon if rtol is None else rtol
    atol = 10 * epsilon if atol is None else atol
    allowed = _math.add(_math.multiply(_math.abs(y), rtol), atol)
    near = _math.less_equal(_math.abs(_math.subtract(x, y)), allowed)
    text = message or "x and y are not near each other; x and y"
    return check(near, text, [x, y], summarize, name)


def print(*inputs: Any, summarize: int = 3, sep: str = " ", name: str | None = None) -> Any:
    """Writes the values to standard error, one line per call: at once, or whenever the function it
    is in runs; in a graph of sidereal.v1 it is an operation. Strings stay text; `summarize`
    elements are shown at each end of a dimension, -1 shows all. TensorFlow: tf.print."""
    parts: list[str] = []
    values: list[Any] = []
    for value in inputs:
        if isinstance(value, str):
            if "{}" in value:
                raise errors.InvalidArgumentError("text with {} cannot be printed")
            parts.append(value)
        else:
            parts.append("{}")
            values.append(value)
    attrs = {"template": sep.join(parts), "summarize": builtins.int(summarize)}
    return apply("Print", values, attrs, name=name)
