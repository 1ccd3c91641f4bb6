"""Ops under the names and with the arguments that TensorFlow 1 had for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sidereal as _sr

from .._dispatch import convert
from ..ops import math as _math
from .graph import control_dependencies, in_default_graph
from .initializers import glorot_normal_initializer, glorot_uniform_initializer

# ruff: noqa: A001, N802 - the names are TensorFlow's.

__all__ = [
    "Print", "div", "l1_regularizer", "l2_regularizer", "placeholder_with_default", "py_func",
    "reduce_all", "reduce_any", "reduce_logsumexp", "reduce_max", "reduce_mean", "reduce_min",
    "reduce_prod", "reduce_sum", "softmax_cross_entropy_with_logits_v2", "to_bfloat16", "to_double",
    "to_float", "to_int32", "to_int64", "tuple", "xavier_initializer", "xw_plus_b",
]  # fmt: skip


def _reduction(name: str) -> Callable[..., Any]:
    call = getattr(_math, name)

    def function(
        input_tensor: Any, axis: Any = None, keepdims: bool | None = None, name: str | None = None,
        reduction_indices: Any = None, keep_dims: bool | None = None,
    ) -> Any:  # fmt: skip
        axis = reduction_indices if axis is None else axis
        keepdims = keep_dims if keepdims is None else keepdims
        return call(input_tensor, axis, bool(keepdims), name=name)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = (
        f"sidereal.{name}(); `reduction_indices` and `keep_dims` are what `axis` and `keepdims` "
        "were called."
    )
    return in_default_graph(function)


reduce_all = _reduction("reduce_all")
reduce_any = _reduction("reduce_any")
reduce_logsumexp = _reduction("reduce_logsumexp")
reduce_max = _reduction("reduce_max")
reduce_mean = _reduction("reduce_mean")
reduce_min = _reduction("reduce_min")
reduce_prod = _reduction("reduce_prod")
reduce_sum = _reduction("reduce_sum")


def _cast_to(dtype: str, name: str) -> Callable[..., Any]:
    def function(x: Any, name: str | None = None) -> Any:
        return _sr.cast(x, dtype, name=name)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"As {dtype} (tf.{name})."
    return in_default_graph(function)


to_bfloat16 = _cast_to("bfloat16", "to_bfloat16")
to_double = _cast_to("float64", "to_double")
to_float = _cast_to("float32", "to_float")
to_int32 = _cast_to("int32", "to_int32")
to_int64 = _cast_to("int64", "to_int64")


@in_default_graph
def div(x: Any, y: Any, name: str | None = None) -> Any:
    """The quotient, of integers rounded down (tf.div)."""
    x = convert(x)
    call = _sr.math.floordiv if x.dtype.kind in "iu" else _sr.math.divide
    return call(x, y, name)


@in_default_graph
def xw_plus_b(x: Any, weights: Any, biases: Any, name: str | None = None) -> Any:
    """matmul(x, weights) + biases (tf.nn.xw_plus_b)."""
    return _sr.add(_sr.matmul(x, weights), biases, name)


@in_default_graph
def softmax_cross_entropy_with_logits_v2(
    labels: Any, logits: Any, axis: int | None = None, name: str | None = None,
    dim: int | None = None,
) -> Any:  # fmt: skip
    """sidereal.nn.softmax_cross_entropy_with_logits(); `dim` is what `axis` was called."""
    along = next((one for one in (axis, dim) if one is not None), -1)
    return _sr.nn.softmax_cross_entropy_with_logits(labels, logits, along, name)


@in_default_graph
def placeholder_with_default(input: Any, shape: Any, name: str | None = None) -> Any:
    """A value that may be fed, and is `input` where it is not. What is fed has its dtype."""
    value = _sr.identity(convert(input), name)
    value.set_shape(shape)
    return value


@in_default_graph
def py_func(
    func: Callable[..., Any], inp: Sequence[Any], Tout: Any, stateful: bool = True,
    name: str | None = None,
) -> Any:  # fmt: skip
    """What a Python function makes of arrays: sidereal.numpy_function()."""
    return _sr.numpy_function(func, inp, Tout, stateful, name)


@in_default_graph
def Print(
    input_: Any, data: Sequence[Any], message: str | None = None, first_n: int | None = None,
    summarize: int | None = None, name: str | None = None,
) -> Any:  # fmt: skip
    """`input_`; when it is computed, `message` and `data` are printed, `summarize` elements of
    each (3)."""
    if first_n is not None:
        raise ValueError("first_n is not there: lines are printed each time")
    said = _sr.print(*([message] if message else []), *data, summarize=summarize or 3)
    with control_dependencies([said]):
        return _sr.identity(convert(input_), name)


@in_default_graph
def tuple(
    tensors: Sequence[Any], name: str | None = None, control_inputs: Sequence[Any] | None = None
) -> list[Any]:
    """The tensors, each of which has a value when all have been computed."""
    kept = [one for one in tensors if one is not None]
    with control_dependencies([*kept, *(control_inputs or ())]):
        return [None if one is None else _sr.identity(one) for one in tensors]


def _regularizer(scale: float, norm: Callable[[Any], Any]) -> Callable[[Any], Any]:
    if not isinstance(scale, (int, float)) or not scale >= 0:
        raise ValueError(f"scale is {scale!r}; it must be a number from 0")
    return in_default_graph(lambda weights: _sr.multiply(norm(convert(weights)), float(scale)))


def l1_regularizer(scale: float, scope: str | None = None) -> Callable[[Any], Any]:
    """The penalty scale * sum(abs(weights)) (tf.contrib.layers.l1_regularizer)."""
    return _regularizer(scale, lambda weights: _math.reduce_sum(_math.abs(weights)))


def l2_regularizer(scale: float, scope: str | None = None) -> Callable[[Any], Any]:
    """The penalty scale * sum(weights ** 2) / 2 (tf.contrib.layers.l2_regularizer)."""
    return _regularizer(scale, _sr.nn.l2_loss)


def xavier_initializer(
    uniform: bool = True, seed: int | None = None, dtype: Any = "float32"
) -> Any:
    """The glorot initializers (tf.contrib.layers.xavier_initializer)."""
    kind = glorot_uniform_initializer if uniform else glorot_normal_initializer
    return kind(seed, dtype)
