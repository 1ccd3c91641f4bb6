"""Arithmetic, comparison, logic and reductions, with TensorFlow's names and argument names.

Ops of two values broadcast as NumPy does and want one dtype: Python numbers, lists and arrays take
that of the tensor beside them, two tensors of different dtypes are an error that says what to cast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import dtypes, errors
from .._dispatch import align, apply, binary, convert
from .indexing import (  # noqa: F401 - members of sidereal.math
    segment_max,
    segment_mean,
    segment_min,
    segment_prod,
    segment_sum,
    unsorted_segment_max,
    unsorted_segment_mean,
    unsorted_segment_min,
    unsorted_segment_prod,
    unsorted_segment_sqrt_n,
    unsorted_segment_sum,
)
from .sorting import bincount, cumprod, cumsum, in_top_k, top_k  # noqa: F401

# ruff: noqa: A001 - the names are TensorFlow's.

#: What `sidereal` exports too; the others are reached as sidereal.math.
__all__ = [
    "abs", "acos", "acosh", "add", "add_n", "argmax", "argmin", "asin", "asinh", "atan", "atan2",
    "atanh", "cast", "clip_by_value", "cos", "cosh", "divide", "equal", "exp", "floor", "greater",
    "greater_equal", "less", "less_equal", "logical_and", "logical_not", "logical_or", "matmul",
    "maximum", "minimum", "multiply", "negative", "not_equal", "pow", "reduce_all", "reduce_any",
    "reduce_logsumexp", "reduce_max", "reduce_mean", "reduce_min", "reduce_prod", "reduce_sum",
    "round", "sigmoid", "sign", "sin", "sinh", "sqrt", "square", "subtract", "tan", "tanh",
    "truediv", "where",
]


def _unary(op: str, symbol: str, text: str) -> Callable[..., Any]:
    def function(x: Any, name: str | None = None) -> Any:
        return apply(op, (x,), None, name=name)

    function.__name__ = function.__qualname__ = symbol.rsplit(".", 1)[-1]
    function.__doc__ = (
        f"{text}\n\nElement by element; the shape and dtype of `x`. TensorFlow: {symbol}."
    )
    return function


def _binary(op: str, symbol: str, text: str) -> Callable[..., Any]:
    def function(x: Any, y: Any, name: str | None = None) -> Any:
        return binary(op, x, y, name)

    function.__name__ = function.__qualname__ = symbol.rsplit(".", 1)[-1]
    function.__doc__ = f"{text}\n\nElement by element, broadcasting. TensorFlow: {symbol}."
    return function


def _predicate(op: str, symbol: str, text: str) -> Callable[..., Any]:
    function = _unary(op, symbol, text)
    function.__doc__ = f"{text}\n\nOf floats; bool of the shape of `x`. TensorFlow: {symbol}."
    return function


add = _binary("Add", "tf.add", "x + y; integers wrap around, strings are joined.")
subtract = _binary("Sub", "tf.subtract", "x - y; integers wrap around.")
multiply = _binary("Mul", "tf.multiply", "x * y; integers wrap around.")
maximum = _binary("Maximum", "tf.maximum", "The greater of x and y; NaN when one is.")
minimum = _binary("Minimum", "tf.minimum", "The smaller of x and y; NaN when one is.")
floordiv = _binary(
    "FloorDiv", "tf.math.floordiv", "floor(x / y), as //. An error where an integer y is 0."
)
floormod = _binary(
    "FloorMod",
    "tf.math.floormod",
    "x - y floor(x / y), as %: the sign is that of y. An error where an integer y is 0.",
)
mod = floormod
squared_difference = _binary(
    "SquaredDifference", "tf.math.squared_difference", "(x - y) squared."
)
atan2 = _binary("Atan2", "tf.math.atan2", "The angle of the point with ordinate x, abscissa y.")
divide_no_nan = _binary("DivNoNan", "tf.math.divide_no_nan", "x / y of floats; 0 where y is 0.")
xlogy = _binary("Xlogy", "tf.math.xlogy", "x log(y) of floats; 0 where x is 0.")
xlog1py = _binary("Xlog1py", "tf.math.xlog1py", "x log(1 + y) of floats; 0 where x is 0.")
equal = _binary("Equal", "tf.equal", "x == y, as bool; NaN equals nothing.")
not_equal = _binary("NotEqual", "tf.not_equal", "x != y, as bool.")
less = _binary("Less", "tf.less", "x < y of numbers, as bool.")
less_equal = _binary("LessEqual", "tf.less_equal", "x <= y of numbers, as bool.")
greater = _binary("Greater", "tf.greater", "x > y of numbers, as bool.")
greater_equal = _binary("GreaterEqual", "tf.greater_equal", "x >= y of numbers, as bool.")
logical_and = _binary("LogicalAnd", "tf.logical_and", "x and y, of bools.")
logical_or = _binary("LogicalOr", "tf.logical_or", "x or y, of bools.")
logical_xor = _binary("LogicalXor", "tf.math.logical_xor", "Either x or y, of bools.")
bitwise_and = _binary("BitwiseAnd", "tf.bitwise.bitwise_and", "x & y, of integers.")
bitwise_or = _binary("BitwiseOr", "tf.bitwise.bitwise_or", "x | y, of integers.")
bitwise_xor = _binary("BitwiseXor", "tf.bitwise.bitwise_xor", "x ^ y, of integers.")
left_shift = _binary(
    "LeftShift", "tf.bitwise.left_shift", "x << y, of integers; 0 where y is out of range."
)
right_shift = _binary(
    "RightShift", "tf.bitwise.right_shift", "x >> y, of integers, keeping the sign."
)

logical_not = _unary("LogicalNot", "tf.logical_not", "not x, of bools.")
invert = _unary("Invert", "tf.bitwise.invert", "All bits of integers flipped.")
negative = _unary("Neg", "tf.negative", "-x, of signed numbers.")
square = _unary("Square", "tf.square", "x * x.")
abs = _unary("Abs", "tf.abs", "Absolute value; its gradient at 0 is 0.")
sign = _unary("Sign", "tf.sign", "-1, 0 or 1; its gradient is 0.")
exp = _unary("Exp", "tf.exp", "e to the power x.")
expm1 = _unary("Expm1", "tf.math.expm1", "e to the power x, less 1; exact near 0.")
log = _unary("Log", "tf.math.log", "Natural logarithm.")
log1p = _unary("Log1p", "tf.math.log1p", "Natural logarithm of 1 + x; exact near 0.")
sqrt = _unary("Sqrt", "tf.sqrt", "Square root.")
rsqrt = _unary("Rsqrt", "tf.math.rsqrt", "1 / sqrt(x).")
reciprocal = _unary("Reciprocal", "tf.math.reciprocal", "1 / x.")
floor = _unary("Floor", "tf.floor", "The greatest integer not above x, as a float.")
ceil = _unary("Ceil", "tf.math.ceil", "The smallest integer not below x, as a float.")
round = _unary("Round", "tf.round", "The nearest integer, ties to even, as a float.")
trunc = _unary("Trunc", "tf.math.trunc", "x without its fraction, as a float.")
sin = _unary("Sin", "tf.sin", "Sine of radians.")
cos = _unary("Cos", "tf.cos", "Cosine of radians.")
tan = _unary("Tan", "tf.tan", "Tangent of radians.")
asin = _unary("Asin", "tf.asin", "Inverse of sin, in [-pi/2, pi/2].")
acos = _unary("Acos", "tf.acos", "Inverse of cos, in [0, pi].")
atan = _unary("Atan", "tf.atan", "Inverse of tan, in [-pi/2, pi/2].")
sinh = _unary("Sinh", "tf.sinh", "Hyperbolic sine.")
cosh = _unary("Cosh", "tf.cosh", "Hyperbolic cosine.")
tanh = _unary("Tanh", "tf.tanh", "Hyperbolic tangent.")
asinh = _unary("Asinh", "tf.asinh", "Inverse of sinh.")
acosh = _unary("Acosh", "tf.acosh", "Inverse of cosh; NaN below 1.")
atanh = _unary("Atanh", "tf.atanh", "Inverse of tanh; NaN outside [-1, 1].")
erf = _unary("Erf", "tf.math.erf", "The error function.")
erfc = _unary("Erfc", "tf.math.erfc", "1 - erf(x), exact for large x.")
lgamma = _unary("Lgamma", "tf.math.lgamma", "Logarithm of |gamma(x)|.")
digamma = _unary("Digamma", "tf.math.digamma", "Derivative of lgamma.")
sigmoid = _unary("Sigmoid", "tf.math.sigmoid", "1 / (1 + exp(-x)).")
softplus = _unary("Softplus", "tf.math.softplus", "log(1 + exp(x)), without overflow.")
is_nan = _predicate("IsNan", "tf.math.is_nan", "Whether x is not a number.")
is_inf = _predicate("IsInf", "tf.math.is_inf", "Whether x is infinite.")
is_finite = _predicate("IsFinite", "tf.math.is_finite", "Whether x is neither infinite nor NaN.")


def cast(x: Any, dtype: Any, name: str | None = None) -> Any:
    """`x` with elements of `dtype`. Floats to integers round toward zero and stop at the bounds; to
    bool: x != 0; gradients flow between floats. TensorFlow: tf.cast."""
    x, to = convert(x), dtypes.as_dtype(dtype)
    return x if x.dtype == to else apply("Cast", (x,), {"dtype": to}, name=name)


def divide(x: Any, y: Any, name: str | None = None) -> Any:
    """x / y with Python's meaning: integers are cast first, int8, uint8, int16 and uint16 to
    float32 and wider ones to float64. TensorFlow: tf.divide, tf.truediv."""
    x, y = align(x, y)
    if x.dtype == y.dtype and x.dtype.kind in "iu":
        narrow = x.dtype.itemsize <= 2
        wide = dtypes.float32 if narrow else dtypes.float64
        x, y = cast(x, wide), cast(y, wide)
    return binary("Div", x, y, name)


truediv = divide


def pow(x: Any, y: Any, name: str | None = None) -> Any:
    """x to the power y. An error where an integer y is negative. Nothing flows to y where x is not
    positive. TensorFlow: tf.pow."""
    return binary("Pow", x, y, name)


def multiply_no_nan(x: Any, y: Any, name: str | None = None) -> Any:
    """x * y of floats, 0 where y is 0 even if x is infinite or NaN. TensorFlow:
    tf.math.multiply_no_nan."""
    x, y = align(x, y)
    zero = convert(0, y.dtype)
    return where(equal(y, zero), zero, multiply(x, y), name=name)


def log_sigmoid(x: Any, name: str | None = None) -> Any:
    """log(sigmoid(x)), without overflow. TensorFlow: tf.math.log_sigmoid."""
    return apply("Neg", (softplus(negative(x)),), None, name=name)


def softsign(x: Any, name: str | None = None) -> Any:
    """x / (1 + |x|). TensorFlow: tf.math.softsign."""
    x = convert(x)
    return binary("Div", x, add(abs(x), 1.0), name)


def clip_by_value(t: Any, clip_value_min: Any, clip_value_max: Any, name: str | None = None) -> Any:
    """`t` limited to [clip_value_min, clip_value_max], which broadcast; the gradient flows to `t`
    inside the limits (ends included). TensorFlow: tf.clip_by_value."""
    t = convert(t)
    return minimum(maximum(t, clip_value_min), clip_value_max, name=name)


def where(condition: Any, x: Any = None, y: Any = None, name: str | None = None) -> Any:
    """`x` where the bool `condition` holds, else `y`; the three broadcast. With `condition` alone:
    the indices where it holds, int64[n, rank]. TensorFlow: tf.where."""
    if x is None and y is None:
        return apply("Where", (condition,), None, name=name)
    if x is None or y is None:
        raise errors.InvalidArgumentError("where() takes both x and y, or neither")
    x, y = align(x, y)
    return apply("Select", (condition, x, y), None, name=name)


def add_n(inputs: Sequence[Any], name: str | None = None) -> Any:
    """The sum of tensors of one shape and dtype, from the first to the last. TensorFlow:
    tf.add_n."""
    return apply("AddN", align(*inputs), None, name=name)


accumulate_n = add_n


def _axes(axis: Any) -> list[int] | None:
    """The axes of a reduction as a list; None when nothing is to be reduced."""
    if axis is None:
        return []
    if isinstance(axis, (list, tuple)):
        return [int(a) for a in axis] or None
    if getattr(axis, "shape", ()) != ():
        return [int(a) for a in axis] or None
    return [int(axis)]


def _reduce(op: str, x: Any, axis: Any, keepdims: bool, name: str | None) -> Any:
    axes = _axes(axis)
    if axes is None:
        return apply("Identity", (x,), None, name=name)
    return apply(op, (x,), {"axes": axes, "keep_dims": bool(keepdims)}, name=name)


def _reduction(op: str, symbol: str, text: str) -> Callable[..., Any]:
    def function(
        input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None
    ) -> Any:
        return _reduce(op, input_tensor, axis, keepdims, name)

    function.__name__ = function.__qualname__ = symbol.rsplit(".", 1)[-1]
    function.__doc__ = (
        f"{text}\n\n`axis`: an integer or several, negative ones counted from the end; None: all; "
        f"(): none. `keepdims` leaves them with extent 1. TensorFlow: {symbol}."
    )
    return function


reduce_sum = _reduction("ReduceSum", "tf.reduce_sum", "Sum of numbers over axes.")
reduce_mean = _reduction(
    "ReduceMean", "tf.reduce_mean", "Mean of numbers over axes; of integers truncated."
)
reduce_prod = _reduction("ReduceProd", "tf.reduce_prod", "Product of numbers over axes.")
reduce_max = _reduction(
    "ReduceMax",
    "tf.reduce_max",
    "Greatest numbers over axes, NaN when one is; equal ones share the gradient.",
)
reduce_min = _reduction(
    "ReduceMin",
    "tf.reduce_min",
    "Smallest numbers over axes, NaN when one is; equal ones share the gradient.",
)
reduce_any = _reduction("ReduceAny", "tf.reduce_any", "Whether one of the bools over axes holds.")
reduce_all = _reduction("ReduceAll", "tf.reduce_all", "Whether all bools over axes hold.")


def reduce_variance(
    input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None
) -> Any:
    """Variance of floats over axes: the mean squared distance from the mean (divided by n).
    TensorFlow: tf.math.reduce_variance."""
    x = convert(input_tensor)
    mean = reduce_mean(x, axis, keepdims=True)
    return reduce_mean(squared_difference(x, mean), axis, keepdims, name=name)


def reduce_std(
    input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None
) -> Any:
    """Standard deviation of floats over axes, the root of reduce_variance(). TensorFlow:
    tf.math.reduce_std."""
    return apply("Sqrt", (reduce_variance(input_tensor, axis, keepdims),), None, name=name)


def reduce_euclidean_norm(
    input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None
) -> Any:
    """Root of the sum of squares over axes. TensorFlow: tf.math.reduce_euclidean_norm."""
    squares = reduce_sum(square(input_tensor), axis, keepdims)
    return apply("Sqrt", (squares,), None, name=name)


def reduce_logsumexp(
    input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None
) -> Any:
    """log(sum(exp(x))) of floats over axes, without overflow. TensorFlow: tf.reduce_logsumexp."""
    x = convert(input_tensor)
    if _axes(axis) is None:
        return apply("Identity", (x,), None, name=name)
    top = reduce_max(x, axis, keepdims=True)
    # An infinite maximum must not be subtracted from itself.
    top = apply("StopGradient", (where(is_finite(top), top, 0.0),))
    result = log(reduce_sum(exp(subtract(x, top)), axis, keepdims))
    if not keepdims:
        top = apply("ReshapeLike", (top, result))
    return add(result, top, name=name)


logsumexp = reduce_logsumexp


def argmax(
    input: Any, axis: int | None = None, output_type: Any = None, name: str | None = None
) -> Any:
    """Index of the first greatest element along `axis` (0 when None), int64 unless `output_type` is
    int32. NaN counts as greatest. An empty axis is an error. TensorFlow: tf.argmax."""
    return _arg("ArgMax", input, axis, output_type, name)


def argmin(
    input: Any, axis: int | None = None, output_type: Any = None, name: str | None = None
) -> Any:
    """Index of the first smallest element along `axis` (0 when None), int64 unless `output_type` is
    int32. NaN counts as smallest. An empty axis is an error. TensorFlow: tf.argmin."""
    return _arg("ArgMin", input, axis, output_type, name)


def _arg(op: str, x: Any, axis: int | None, output_type: Any, name: str | None) -> Any:
    attrs: dict[str, Any] = {"axis": 0 if axis is None else int(axis)}
    if output_type is not None:
        attrs["output_dtype"] = dtypes.as_dtype(output_type)
    return apply(op, (x,), attrs, name=name)


def matmul(
    a: Any,
    b: Any,
    transpose_a: bool = False,
    transpose_b: bool = False,
    output_type: Any = None,
    name: str | None = None,
) -> Any:
    """Product of matrices: [..., m, k] times [..., k, n] is [..., m, n]. `transpose_a` and
    `transpose_b` swap the last two dimensions first; those in front broadcast. Floats, int32 and
    int64. The product of bfloat16 is summed in float32; `output_type` float32 gives it unrounded.
    Errors: inner extents that differ, fewer than 2 dimensions. TensorFlow: tf.matmul."""
    a, b = align(a, b)
    attrs: dict[str, Any] = {"transpose_a": bool(transpose_a), "transpose_b": bool(transpose_b)}
    if output_type is not None:
        attrs["out_type"] = dtypes.as_dtype(output_type)
    return apply("MatMul", (a, b), attrs, name=name)


def matvec(a: Any, b: Any, transpose_a: bool = False, name: str | None = None) -> Any:
    """Product of matrices and vectors: [..., m, k] times [..., k] is [..., m]. TensorFlow:
    tf.linalg.matvec."""
    a, b = align(a, b)
    column = apply("ExpandDims", (b,), {"axis": -1})
    product = matmul(a, column, transpose_a=transpose_a)
    return apply("Squeeze", (product,), {"axes": [-1]}, name=name)


def l2_normalize(
    x: Any, axis: Any = None, epsilon: float = 1e-12, name: str | None = None
) -> Any:
    """x / sqrt(max(sum(x^2), epsilon)) over `axis`. TensorFlow: tf.math.l2_normalize."""
    x = convert(x)
    squares = reduce_sum(square(x), axis, keepdims=True)
    return multiply(x, rsqrt(maximum(squares, epsilon)), name=name)


def zero_fraction(value: Any, name: str | None = None) -> Any:
    """The share of elements that are 0, float32. TensorFlow: tf.math.zero_fraction."""
    value = convert(value)
    zeros = cast(equal(value, convert(0, value.dtype)), dtypes.float32)
    return reduce_mean(zeros, name=name)


def log_softmax(logits: Any, axis: int = -1, name: str | None = None) -> Any:
    """logits - log(sum(exp(logits))) along `axis`, without overflow. TensorFlow:
    tf.nn.log_softmax."""
    return apply("LogSoftmax", (logits,), {"axis": int(axis)}, name=name)


def softmax(logits: Any, axis: int = -1, name: str | None = None) -> Any:
    """exp(logits) / sum(exp(logits)) along `axis`, without overflow. TensorFlow: tf.nn.softmax."""
    return apply("Softmax", (logits,), {"axis": int(axis)}, name=name)


def count_nonzero(
    input: Any, axis: Any = None, keepdims: bool | None = None, dtype: Any = "int64",
    name: str | None = None,
) -> Any:  # fmt: skip
    """How many elements are not 0, over axes (tf.math.count_nonzero)."""
    x = convert(input)
    return reduce_sum(cast(not_equal(x, cast(0, x.dtype)), dtype), axis, bool(keepdims), name)


def reciprocal_no_nan(x: Any, name: str | None = None) -> Any:
    """1 / x, and 0 where x is 0 (tf.math.reciprocal_no_nan)."""
    x = convert(x)
    return divide_no_nan(cast(1, x.dtype), x, name)


def xdivy(x: Any, y: Any, name: str | None = None) -> Any:
    """x / y, and 0 where x is 0 (tf.math.xdivy)."""
    x, y = align(x, y)
    zero = equal(x, cast(0, x.dtype))
    return where(zero, cast(0, x.dtype), divide(x, where(zero, cast(1, y.dtype), y)), name)


def scalar_mul(scalar: Any, x: Any, name: str | None = None) -> Any:
    """A tensor times a number (tf.math.scalar_mul)."""
    return multiply(scalar, x, name)


def polyval(coeffs: Sequence[Any], x: Any, name: str | None = None) -> Any:
    """A polynomial at x, the coefficient of the highest power first (tf.math.polyval)."""
    if not isinstance(coeffs, (list, tuple)):
        raise ValueError(f"coeffs is {coeffs!r:.60}; it must be a list")
    x = convert(x)
    total = cast(0, x.dtype)
    for each in coeffs:
        total = add(multiply(total, x), each)
    return total


def confusion_matrix(
    labels: Any, predictions: Any, num_classes: int | None = None, weights: Any = None,
    dtype: Any = "int32", name: str | None = None,
) -> Any:  # fmt: skip
    """How often each class (rows) was taken for each class (columns) (tf.math.confusion_matrix).
    `num_classes` must be given where labels have no values yet."""
    labels, predictions = cast(labels, "int64"), cast(predictions, "int64")
    if num_classes is None:
        top = maximum(reduce_max(labels), reduce_max(predictions))
        num_classes = int(top) + 1
    ones = cast(labels * 0 + 1 if weights is None else convert(weights), dtype)
    cells = unsorted_segment_sum(ones, labels * num_classes + predictions, num_classes**2)
    return apply("Reshape", (cells,), {"shape": [num_classes, num_classes]}, name=name)
