"""Activations, losses and normalisation: sidereal.nn, with TensorFlow's names and arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import errors
from .._dispatch import align, apply, binary, convert
from . import math as _math
from . import random
from .embedding import (
    embedding_lookup,
    embedding_lookup_sparse,
    safe_embedding_lookup_sparse,
)
from .math import (
    l2_normalize,
    log_sigmoid,
    log_softmax,
    sigmoid,
    softmax,
    softplus,
    softsign,
    tanh,
    zero_fraction,
)
from .nn_spatial import *  # noqa: F403
from .nn_spatial import __all__ as _spatial
from .sampled_losses import (
    compute_accidental_hits,
    in_batch_softmax_loss,
    nce_loss,
    pairwise_logistic_loss,
    sampled_softmax_loss,
)
from .sorting import in_top_k, top_k

__all__ = [
    "batch_normalization", "bias_add", "compute_accidental_hits", "compute_average_loss",
    "cosine_similarity", "crelu", "dropout", "elu", "fused_batch_norm", "gelu", "hard_sigmoid",
    "hard_swish", "hinge", "huber", "in_batch_softmax_loss", "l2_loss", "l2_normalize",
    "layer_norm", "leaky_relu", "log_loss", "log_sigmoid", "log_softmax", "mean_absolute_error",
    "mean_squared_error", "mish", "moments", "nce_loss", "normalize_moments",
    "pairwise_logistic_loss", "relu", "relu6", "sampled_softmax_loss", "selu", "sigmoid",
    "sigmoid_cross_entropy_with_logits", "silu", "softmax", "softmax_cross_entropy_with_logits",
    "softplus", "softsign", "sparse_softmax_cross_entropy_with_logits", "swish", "tanh",
    "weighted_cross_entropy_with_logits", "zero_fraction", "embedding_lookup",
    "embedding_lookup_sparse", "in_top_k", "safe_embedding_lookup_sparse", "top_k", *_spatial,
]


def _activation(op: str, symbol: str, text: str) -> Callable[..., Any]:
    def function(features: Any, name: str | None = None) -> Any:
        return apply(op, (features,), None, name=name)

    function.__name__ = function.__qualname__ = symbol.rsplit(".", 1)[-1]
    function.__doc__ = (
        f"{text}\n\nElement by element; the shape and dtype of `features`. TensorFlow: {symbol}."
    )
    return function


relu = _activation("Relu", "tf.nn.relu", "max(x, 0); its gradient at 0 is 0.")
relu6 = _activation("Relu6", "tf.nn.relu6", "min(max(x, 0), 6).")
elu = _activation("Elu", "tf.nn.elu", "x, and exp(x) - 1 below 0.")
selu = _activation("Selu", "tf.nn.selu", "Elu scaled to keep mean 0 and variance 1.")


def silu(features: Any, beta: float = 1.0, name: str | None = None) -> Any:
    """x sigmoid(beta x), also called swish. TensorFlow: tf.nn.silu."""
    features = convert(features)
    if isinstance(beta, (int, float)) and beta == 1:
        return apply("Silu", (features,), None, name=name)
    return binary("Mul", features, sigmoid(_math.multiply(features, beta)), name)


swish = silu


def gelu(features: Any, approximate: bool = False, name: str | None = None) -> Any:
    """x Phi(x), Phi being the normal distribution; `approximate`: through tanh. TensorFlow:
    tf.nn.gelu."""
    x = convert(features)
    if not approximate:
        return apply("Gelu", (x,), None, name=name)
    cube = _math.multiply(_math.multiply(x, x), x)
    inner = _math.multiply(_math.add(x, _math.multiply(cube, 0.044715)), 0.7978845608028654)
    return binary("Mul", _math.multiply(x, 0.5), _math.add(tanh(inner), 1.0), name)


def leaky_relu(features: Any, alpha: float = 0.2, name: str | None = None) -> Any:
    """x, and alpha x below 0. TensorFlow: tf.nn.leaky_relu."""
    x = convert(features)
    positive = _math.greater(x, convert(0, x.dtype))
    return _math.where(positive, x, _math.multiply(x, alpha), name=name)


def crelu(features: Any, axis: int = -1, name: str | None = None) -> Any:
    """relu of x and of -x, joined along `axis`. TensorFlow: tf.nn.crelu."""
    x = convert(features)
    both = apply("Concat", (x, _math.negative(x)), {"axis": int(axis)})
    return relu(both, name=name)


def hard_sigmoid(x: Any, name: str | None = None) -> Any:
    """relu6(x + 3) / 6. TensorFlow: tf.keras.activations.hard_sigmoid."""
    return binary("Mul", relu6(_math.add(x, 3.0)), 1 / 6, name)


def hard_swish(x: Any, name: str | None = None) -> Any:
    """x hard_sigmoid(x)."""
    x = convert(x)
    return binary("Mul", x, hard_sigmoid(x), name)


def mish(x: Any, name: str | None = None) -> Any:
    """x tanh(softplus(x)). TensorFlow: tf.keras.activations.mish."""
    x = convert(x)
    return binary("Mul", x, tanh(softplus(x)), name)


def bias_add(value: Any, bias: Any, name: str | None = None) -> Any:
    """value[..., n] + bias[n]. TensorFlow: tf.nn.bias_add."""
    return apply("BiasAdd", align(value, bias), None, name=name)


def dropout(
    x: Any,
    rate: float,
    noise_shape: Sequence[int] | None = None,
    seed: int | None = None,
    name: str | None = None,
) -> Any:
    """Each element is 0 with probability `rate`, else divided by 1 - rate. `noise_shape` broadcasts
    to the shape of x: elements with one place in it live or die together. Which, depends on the
    seeds (see random.set_seed), the step and the place only. An error unless 0 <= rate < 1.
    TensorFlow: tf.nn.dropout."""
    x = convert(x)
    rate = float(rate)
    if not 0 <= rate < 1:
        raise errors.InvalidArgumentError(f"rate is {rate}; it must be at least 0 and less than 1")
    if rate == 0:
        return apply("Identity", (x,), None, name=name)
    if noise_shape is None:
        key, stream = random.key_of(seed)
        return apply("Dropout", (x, *stream), {"rate": rate, "seed": key, "training": True},
                     name=name)
    noise = random.uniform(noise_shape, dtype=x.dtype, seed=seed)
    kept = _math.greater_equal(noise, rate)
    zero = convert(0, x.dtype)
    return _math.where(kept, _math.multiply(x, 1 / (1 - rate)), zero, name=name)


def sigmoid_cross_entropy_with_logits(
    labels: Any = None, logits: Any = None, name: str | None = None
) -> Any:
    """The log loss of sigmoid(logits) against `labels` in [0, 1], element by element, without
    overflow. TensorFlow: tf.nn.sigmoid_cross_entropy_with_logits."""
    logits, labels = align(logits, labels)
    return apply("SigmoidCrossEntropyWithLogits", (logits, labels), None, name=name)


def weighted_cross_entropy_with_logits(
    labels: Any, logits: Any, pos_weight: Any, name: str | None = None
) -> Any:
    """As sigmoid_cross_entropy_with_logits(), positive labels counting `pos_weight` times.
    TensorFlow: tf.nn.weighted_cross_entropy_with_logits."""
    logits, labels, pos_weight = align(logits, labels, pos_weight)
    weight = _math.add(_math.multiply(labels, _math.subtract(pos_weight, 1.0)), 1.0)
    tail = _math.add(
        _math.log1p(_math.exp(_math.negative(_math.abs(logits)))), relu(_math.negative(logits))
    )
    rest = _math.multiply(_math.subtract(1.0, labels), logits)
    return _math.add(rest, _math.multiply(weight, tail), name=name)


def softmax_cross_entropy_with_logits(
    labels: Any, logits: Any, axis: int = -1, name: str | None = None
) -> Any:
    """-sum(labels log softmax(logits)) along `axis`, labels being distributions; gradients flow to
    both. TensorFlow: tf.nn.softmax_cross_entropy_with_logits."""
    logits, labels = align(logits, labels)
    rank = None if logits.shape is None else len(logits.shape)
    if axis not in (-1, None if rank is None else rank - 1):
        losses = _math.multiply(labels, log_softmax(logits, axis))
        return apply("Neg", (_math.reduce_sum(losses, axis),), None, name=name)
    return apply("SoftmaxCrossEntropyWithLogits", (logits, labels), None, name=name)[0]


def sparse_softmax_cross_entropy_with_logits(
    labels: Any, logits: Any, name: str | None = None
) -> Any:
    """-log softmax(logits)[label]: labels[...] are int32 or int64 in [0, n), logits[..., n]. A
    label outside is an error. TensorFlow: tf.nn.sparse_softmax_cross_entropy_with_logits."""
    logits, labels = convert(logits), convert(labels)
    return apply("SparseSoftmaxCrossEntropyWithLogits", (logits, labels), None, name=name)[0]


def l2_loss(t: Any, name: str | None = None) -> Any:
    """sum(t^2) / 2. TensorFlow: tf.nn.l2_loss."""
    return binary("Mul", _math.reduce_sum(_math.square(t)), 0.5, name)


def mean_squared_error(y_true: Any, y_pred: Any) -> Any:
    """The mean of (y_true - y_pred)^2 over the last dimension. TensorFlow:
    tf.keras.losses.mean_squared_error."""
    y_pred, y_true = align(y_pred, y_true)
    return _math.reduce_mean(_math.squared_difference(y_pred, y_true), axis=-1)


def mean_absolute_error(y_true: Any, y_pred: Any) -> Any:
    """The mean of |y_true - y_pred| over the last dimension. TensorFlow:
    tf.keras.losses.mean_absolute_error."""
    y_pred, y_true = align(y_pred, y_true)
    return _math.reduce_mean(_math.abs(_math.subtract(y_pred, y_true)), axis=-1)


def log_loss(y_true: Any, y_pred: Any, epsilon: float = 1e-7) -> Any:
    """-y log(p + epsilon) - (1 - y) log(1 - p + epsilon), element by element. TensorFlow:
    tf.compat.v1.losses.log_loss, not reduced."""
    p, y = align(y_pred, y_true)
    hit = _math.multiply(y, _math.log(_math.add(p, epsilon)))
    rest = _math.log(_math.add(_math.subtract(1.0, p), epsilon))
    return _math.negative(_math.add(hit, _math.multiply(_math.subtract(1.0, y), rest)))


def huber(y_true: Any, y_pred: Any, delta: float = 1.0) -> Any:
    """The mean over the last dimension of d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2).
    TensorFlow: tf.keras.losses.huber."""
    y_pred, y_true = align(y_pred, y_true)
    distance = _math.abs(_math.subtract(y_pred, y_true))
    near = _math.multiply(_math.square(distance), 0.5)
    far = _math.multiply(_math.subtract(distance, 0.5 * delta), delta)
    return _math.reduce_mean(_math.where(_math.less_equal(distance, delta), near, far), axis=-1)


def signed_labels(labels: Any) -> Any:
    """2 y - 1 of labels that are all 0 or 1, others as they are: what Keras' hinge losses take."""
    y = convert(labels)
    binary_ones = _math.logical_or(_math.equal(y, 0.0), _math.equal(y, 1.0))
    signs = _math.subtract(_math.multiply(y, 2.0), 1.0)
    return _math.where(_math.reduce_all(binary_ones), signs, y)


def hinge(y_true: Any, y_pred: Any) -> Any:
    """The mean over the last dimension of max(1 - y p, 0); labels that are all 0 or 1 stand for -1
    and 1. TensorFlow: tf.keras.losses.hinge."""
    p, y = align(y_pred, y_true)
    product = _math.multiply(signed_labels(y), p)
    return _math.reduce_mean(relu(_math.subtract(1.0, product)), axis=-1)


def cosine_similarity(y_true: Any, y_pred: Any, axis: int = -1) -> Any:
    """-sum(x y) of both brought to length 1 along `axis`: -1 for equal directions. TensorFlow:
    tf.keras.losses.cosine_similarity."""
    x, y = align(y_pred, y_true)
    # Keras divides by a length of at least 1e-7.
    product = _math.multiply(l2_normalize(x, axis, 1e-14), l2_normalize(y, axis, 1e-14))
    return _math.negative(_math.reduce_sum(product, axis=axis))


def compute_average_loss(
    per_example_loss: Any, sample_weight: Any = None, global_batch_size: int | None = None
) -> Any:
    """The sum of losses (times weights) over the number of examples. TensorFlow:
    tf.nn.compute_average_loss."""
    losses = convert(per_example_loss)
    if sample_weight is not None:
        losses = _math.multiply(losses, sample_weight)
    if global_batch_size is None:
        return _math.reduce_mean(losses)
    return _math.multiply(_math.reduce_sum(losses), 1 / global_batch_size)


def moments(
    x: Any, axes: Sequence[int] | int, keepdims: bool = False, name: str | None = None
) -> tuple[Any, Any]:
    """Mean and variance (divided by n) over `axes`, differentiable. TensorFlow: tf.nn.moments."""
    x = convert(x)
    center = _math.reduce_mean(x, axes, keepdims=True)
    variance = _math.reduce_mean(_math.squared_difference(x, center), axes, keepdims)
    mean = _math.reduce_mean(x, axes, keepdims, name=name)
    return mean, variance


def normalize_moments(
    counts: Any, mean_ss: Any, variance_ss: Any, shift: Any, name: str | None = None
) -> tuple[Any, Any]:
    """Mean and variance of sums of values less `shift`, and of their squares. TensorFlow:
    tf.nn.normalize_moments."""
    divisor = _math.reciprocal(counts)
    shifted = _math.multiply(mean_ss, divisor)
    mean = shifted if shift is None else _math.add(shifted, shift)
    square = _math.multiply(variance_ss, divisor)
    return mean, _math.subtract(square, _math.square(shifted), name=name)


def batch_normalization(
    x: Any,
    mean: Any,
    variance: Any,
    offset: Any,
    scale: Any,
    variance_epsilon: float,
    name: str | None = None,
) -> Any:
    """(x - mean) / sqrt(variance + epsilon) * scale + offset; scale and offset may be None. All
    broadcast to x and take gradients: the form for inference, or with moments() for training.
    TensorFlow: tf.nn.batch_normalization."""
    x = convert(x)
    factor = _math.rsqrt(_math.add(variance, variance_epsilon))
    if scale is not None:
        factor = _math.multiply(factor, scale)
    shift = _math.multiply(mean, factor)
    shift = _math.negative(shift) if offset is None else _math.subtract(offset, shift)
    return _math.add(_math.multiply(x, factor), shift, name=name)


def fused_batch_norm(
    x: Any,
    scale: Any,
    offset: Any,
    mean: Any = None,
    variance: Any = None,
    epsilon: float = 0.001,
    is_training: bool = True,
    exponential_avg_factor: float = 1.0,
    name: str | None = None,
) -> tuple[Any, Any, Any]:
    """Batch norm of x[..., n] by columns: (y, mean, variance). In training the statistics are those
    of x (the variance that is returned is divided by m - 1, the one used by m), mixed into `mean`
    and `variance` by `exponential_avg_factor` when that is below 1; else `mean` and `variance` are
    used. One pass over x each way; no gradient flows through the statistics.
    TensorFlow: tf.compat.v1.nn.fused_batch_norm (channels last)."""
    x, scale, offset = align(x, scale, offset)
    if not is_training:
        if mean is None or variance is None:
            raise errors.InvalidArgumentError(
                "fused_batch_norm() needs mean and variance when it is not training"
            )
        y = batch_normalization(x, mean, variance, offset, scale, epsilon, name)
        return y, convert(mean), convert(variance)
    y, own, spread = apply("BatchNorm", (x, scale, offset), {"epsilon": float(epsilon)}, name=name)
    spread = _unbiased(x, spread)
    if exponential_avg_factor != 1.0 and mean is not None and variance is not None:
        keep = 1.0 - exponential_avg_factor
        own = _math.add(_math.multiply(mean, keep), _math.multiply(own, exponential_avg_factor))
        spread = _math.add(
            _math.multiply(variance, keep), _math.multiply(spread, exponential_avg_factor)
        )
    return y, own, spread


def _unbiased(x: Any, variance: Any) -> Any:
    """A variance that was divided by m, divided by m - 1."""
    rows = _rows(x)
    if rows is not None:
        return _math.multiply(variance, rows / max(rows - 1, 1))
    ones = _math.cast(apply("OnesLike", (x,)), variance.dtype)
    count = _math.divide(
        _math.reduce_sum(ones), _math.reduce_sum(apply("OnesLike", (variance,)))
    )
    less = _math.maximum(_math.subtract(count, 1.0), 1.0)
    return _math.multiply(variance, _math.divide(count, less))


def _rows(x: Any) -> int | None:
    """The number of elements per column; None when it is not known yet."""
    shape = x.shape
    if shape is None or any(extent is None or extent < 0 for extent in shape[:-1]):
        return None
    count = 1
    for extent in shape[:-1]:
        count *= extent
    return count


def layer_norm(
    x: Any, scale: Any, offset: Any, epsilon: float = 0.001, name: str | None = None
) -> Any:
    """Each row of the last dimension brought to mean 0 and variance 1, then times scale[n] plus
    offset[n]. TensorFlow: tf.keras.layers.LayerNormalization with axis -1."""
    inputs = align(x, scale, offset)
    return apply("LayerNorm", inputs, {"epsilon": float(epsilon)}, name=name)[0]
