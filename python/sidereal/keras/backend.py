"""Functions on tensors with the names of Keras' backend (tf.keras.backend), for layers and losses
that are written with them. All are those of `sidereal` under other names."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from .. import ops
from ..ops import control, math, nn, random
from ..ops.array import (
    concat,
    expand_dims,
    fill,
    gather,
    one_hot,
    ones_like,
    reshape,
    shape,
    squeeze,
    stack,
    tile,
    transpose,
    zeros_like,
)
from ..ops.basic import cast, stop_gradient
from ..ops.math import (
    abs,  # noqa: A004
    argmax,
    argmin,
    cumprod,
    cumsum,
    equal,
    exp,
    greater,
    greater_equal,
    l2_normalize,
    less,
    less_equal,
    log,
    maximum,
    minimum,
    not_equal,
    pow,  # noqa: A004
    round,  # noqa: A004
    sigmoid,
    sign,
    sqrt,
    square,
    tanh,
)
from ..ops.nn import relu, softmax, softplus
from ..tensors import constant, is_tensor
from ..variable import Variable
from . import losses
from ._inputs import EPSILON
from .utils import clear_session

__all__ = [
    "abs", "all", "any", "argmax", "argmin", "batch_dot", "binary_crossentropy", "cast",
    "cast_to_floatx", "categorical_crossentropy", "clear_session", "clip", "concatenate",
    "constant", "cumprod", "cumsum", "dot", "epsilon", "equal", "eval", "exp", "expand_dims",
    "flatten", "floatx", "gather", "get_value", "greater", "greater_equal", "int_shape",
    "is_tensor", "l2_normalize", "less", "less_equal", "log", "logsumexp", "max", "maximum", "mean",
    "min", "minimum", "ndim", "not_equal", "one_hot", "ones", "ones_like", "permute_dimensions",
    "pow", "prod", "random_normal", "random_uniform", "relu", "repeat_elements", "reshape",
    "round", "set_value", "shape", "sigmoid", "sign", "softmax", "softplus",
    "sparse_categorical_crossentropy", "sqrt", "square", "squeeze", "stack", "std", "stop_gradient",
    "sum", "switch", "tanh", "tile", "transpose", "var", "variable", "zeros", "zeros_like",
]  # fmt: skip

# ruff: noqa: A001 - the names are Keras'.


def epsilon() -> float:
    """What is added where a division by 0 could be: 1e-7."""
    return EPSILON


def floatx() -> str:
    """The dtype of weights where nobody says one: "float32"."""
    return "float32"


def cast_to_floatx(x: Any) -> Any:
    """As float32: an array of an array or list, a tensor of a tensor."""
    return cast(x, floatx()) if is_tensor(x) else np.asarray(x, floatx())


def _reduced(name: str, call: Any, text: str) -> Any:
    def function(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        return call(x, axis, keepdims)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{text}, over axes."
    return function


all = _reduced("all", math.reduce_all, "Whether all are true")
any = _reduced("any", math.reduce_any, "Whether one is true")
logsumexp = _reduced("logsumexp", math.reduce_logsumexp, "log(sum(exp(x)))")
max = _reduced("max", math.reduce_max, "The greatest element")
mean = _reduced("mean", math.reduce_mean, "The mean")
min = _reduced("min", math.reduce_min, "The least element")
prod = _reduced("prod", math.reduce_prod, "The product")
std = _reduced("std", math.reduce_std, "The standard deviation")
sum = _reduced("sum", math.reduce_sum, "The sum")
var = _reduced("var", math.reduce_variance, "The variance")


def clip(x: Any, min_value: Any, max_value: Any) -> Any:
    """Elements brought into a range."""
    return math.clip_by_value(x, min_value, max_value)


def concatenate(tensors: Any, axis: int = -1) -> Any:
    """Tensors one behind another along an axis."""
    return concat(tensors, axis)


def dot(x: Any, y: Any) -> Any:
    """The product of matrices; of more dimensions over the last of x and the last but one of y."""
    if len(x.shape) > 2 or len(y.shape) > 2:
        return ops.tensordot(x, y, [[len(x.shape) - 1], [builtins.max(len(y.shape) - 2, 0)]])
    return math.matmul(x, y)


def batch_dot(x: Any, y: Any, axes: Any = None) -> Any:
    """The sums of products of each example's part of x with that of y, over one axis of each: of
    x the last and of y the last but one, if `axes` does not say."""
    ranks = len(x.shape), len(y.shape)
    if axes is None:
        axes = (ranks[0] - 1, builtins.max(ranks[1] - 2, 1))
    pair = (axes, axes) if isinstance(axes, int) else axes
    own, other = (axis % rank for axis, rank in zip(pair, ranks))
    if 0 in (own, other):
        raise ValueError(f"axes is {axes!r}; axis 0 is that of the examples")
    letters = [chr(ord("a") + i) for i in range(builtins.sum(ranks))]
    of_x, of_y = letters[: ranks[0]], letters[ranks[0] :]
    of_y[0], of_y[other] = of_x[0], of_x[own]
    kept = [each for each in of_x + of_y[1:] if each != of_x[own]]
    result = ops.einsum(f"{''.join(of_x)},{''.join(of_y)}->{''.join(kept)}", x, y)
    return expand_dims(result, 1) if len(kept) == 1 else result


def flatten(x: Any) -> Any:
    """All elements in one dimension."""
    return reshape(x, [-1])


def int_shape(x: Any) -> tuple[int | None, ...] | None:
    """The extents, None for one that is not known."""
    return None if x.shape is None else tuple(x.shape.as_list())


def ndim(x: Any) -> int:
    """The number of dimensions."""
    return len(x.shape)


def permute_dimensions(x: Any, pattern: Any) -> Any:
    """The dimensions in another order."""
    return transpose(x, pattern)


def repeat_elements(x: Any, rep: int, axis: int) -> Any:
    """Each element along an axis so many times."""
    return ops.repeat(x, rep, axis)


def ones(shape: Any, dtype: Any = None, name: str | None = None) -> Any:
    """A variable of ones."""
    return Variable(fill(shape, constant(1, dtype or floatx())), name=name)


def zeros(shape: Any, dtype: Any = None, name: str | None = None) -> Any:
    """A variable of zeros."""
    return Variable(fill(shape, constant(0, dtype or floatx())), name=name)


def variable(value: Any, dtype: Any = None, name: str | None = None) -> Any:
    """A variable with a value."""
    return Variable(constant(value, dtype or floatx()), name=name)


def get_value(x: Any) -> Any:
    """The value of a variable as an array."""
    return x.numpy() if hasattr(x, "numpy") else x


def set_value(x: Any, value: Any) -> None:
    """Gives a variable a value."""
    x.assign(np.asarray(value, dtype=x.dtype))


eval = get_value


def random_normal(shape: Any, mean: float = 0.0, stddev: float = 1.0, dtype: Any = None,
                  seed: int | None = None) -> Any:  # fmt: skip
    """Normally distributed numbers."""
    return random.normal(shape, mean, stddev, dtype or floatx(), seed)


def random_uniform(shape: Any, minval: float = 0.0, maxval: float = 1.0, dtype: Any = None,
                   seed: int | None = None) -> Any:  # fmt: skip
    """Numbers that are equally likely in a range."""
    return random.uniform(shape, minval, maxval, dtype or floatx(), seed)


def switch(condition: Any, then_expression: Any, else_expression: Any) -> Any:
    """One value or another by a condition: a scalar, or of each element."""
    if callable(then_expression):
        return control.cond(condition, then_expression, else_expression)
    return math.where(condition, then_expression, else_expression)


def binary_crossentropy(target: Any, output: Any, from_logits: bool = False) -> Any:
    """The cross entropy of each element."""
    if from_logits:
        return nn.sigmoid_cross_entropy_with_logits(labels=target, logits=output)
    output = clip(output, EPSILON, 1 - EPSILON)
    return -(target * log(output + EPSILON) + (1 - target) * log(1 - output + EPSILON))


def categorical_crossentropy(target: Any, output: Any, from_logits: bool = False, axis: int = -1
                             ) -> Any:  # fmt: skip
    """The cross entropy of each example with one-hot targets."""
    return losses.categorical_crossentropy(target, output, from_logits=from_logits, axis=axis)


def sparse_categorical_crossentropy(target: Any, output: Any, from_logits: bool = False,
                                    axis: int = -1) -> Any:  # fmt: skip
    """The cross entropy of each example with the numbers of classes as targets."""
    call = losses.sparse_categorical_crossentropy
    return call(target, output, from_logits=from_logits, axis=axis)
