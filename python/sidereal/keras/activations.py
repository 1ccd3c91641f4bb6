"""Activations: functions of a tensor, element by element but for the softmaxes (keras.activations).
Integers are taken as float32."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..ops import math, nn
from ._configs import Registry
from ._inputs import floating


def linear(x: Any) -> Any:
    """x."""
    return x


def relu(
    x: Any, negative_slope: float = 0.0, max_value: float | None = None, threshold: float = 0.0
) -> Any:
    """x above `threshold`, at most `max_value`; below it negative_slope (x - threshold)."""
    x = floating(x)
    above = nn.relu(x) if threshold == 0 else math.where(math.greater(x, threshold), x, 0.0)
    if max_value is not None:
        above = math.clip_by_value(above, 0.0, max_value)
    if negative_slope == 0:
        return above
    below = nn.relu(math.subtract(threshold, x))
    return math.subtract(above, math.multiply(below, negative_slope))


def leaky_relu(x: Any, negative_slope: float = 0.2) -> Any:
    """x, and negative_slope x below 0."""
    return nn.leaky_relu(floating(x), negative_slope)


def elu(x: Any, alpha: float = 1.0) -> Any:
    """x, and alpha (exp(x) - 1) below 0."""
    x = floating(x)
    if alpha == 1:
        return nn.elu(x)
    return math.add(nn.relu(x), math.multiply(math.expm1(math.minimum(x, 0.0)), alpha))


def gelu(x: Any, approximate: bool = False) -> Any:
    """x Phi(x), Phi being the normal distribution; `approximate`: through tanh."""
    return nn.gelu(floating(x), approximate)


def _over_axes(op: Callable[..., Any], x: Any, axis: int | Sequence[int]) -> Any:
    x = floating(x)
    if isinstance(axis, int):
        return op(x, axis)
    logs = math.subtract(x, math.reduce_logsumexp(x, axis, keepdims=True))
    return math.exp(logs) if op is math.softmax else logs


def softmax(x: Any, axis: int | Sequence[int] = -1) -> Any:
    """exp(x) / sum(exp(x)) along an axis, or several together."""
    return _over_axes(math.softmax, x, axis)


def log_softmax(x: Any, axis: int | Sequence[int] = -1) -> Any:
    """The logarithm of softmax(x), without overflow."""
    return _over_axes(math.log_softmax, x, axis)


def _of_one(name: str, op: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        return op(floating(x))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = op.__doc__
    return function


exponential = _of_one("exponential", math.exp)
hard_sigmoid = _of_one("hard_sigmoid", nn.hard_sigmoid)
hard_silu = _of_one("hard_silu", nn.hard_swish)
mish = _of_one("mish", nn.mish)
relu6 = _of_one("relu6", nn.relu6)
selu = _of_one("selu", nn.selu)
sigmoid = _of_one("sigmoid", math.sigmoid)
silu = _of_one("silu", nn.silu)
softplus = _of_one("softplus", math.softplus)
softsign = _of_one("softsign", math.softsign)
tanh = _of_one("tanh", math.tanh)
hard_swish, swish = hard_silu, silu

_registry = Registry(
    "keras.activations",
    (
        linear, relu, leaky_relu, relu6, elu, selu, gelu, silu, mish, exponential, hard_sigmoid,
        hard_silu, sigmoid, tanh, softmax, log_softmax, softplus, softsign,
    ),
    {"swish": silu, "hard_swish": hard_silu},
)  # fmt: skip
serialize = _registry.serialize


def get(identifier: Any) -> Any:
    """An activation from its name, a config or itself; linear() from None."""
    return linear if identifier is None else _registry.get(identifier)


def deserialize(config: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """The activation that serialize() gave this for."""
    return _registry.deserialize(config, custom_objects)


__all__ = [
    "deserialize", "elu", "exponential", "gelu", "get", "hard_sigmoid", "hard_silu", "hard_swish",
    "leaky_relu", "linear", "log_softmax", "mish", "relu", "relu6", "selu", "serialize", "sigmoid",
    "silu", "softmax", "softplus", "softsign", "swish", "tanh",
]  # fmt: skip
