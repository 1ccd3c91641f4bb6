"""The distributions that first values of variables are drawn from: what the initializers of
sidereal.v1 and of sidereal.keras have in common."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from .ops import random

#: The deviation of a normal distribution that was cut at two of its own.
_CUT = 0.87962566103423978


class Distribution(NamedTuple):
    """A distribution, named after the function of sidereal.random that draws from it, and its two
    numbers: the limits of "uniform", else the mean and the standard deviation."""

    kind: str
    first: float
    second: float

    def draw(self, shape: Sequence[int], dtype: Any, seed: int | None) -> Any:
        """A value of that shape by sidereal.random's rules for seeds: another one at each call."""
        call = getattr(random, self.kind)
        return call(shape, self.first, self.second, dtype, seed=seed)

    def draw_same(self, shape: Sequence[int], dtype: Any, seed: int, stream: int = 0) -> Any:
        """The value of that shape, seed and stream: the same one at each call."""
        call = getattr(random, f"stateless_{self.kind}")
        return call(shape, [seed, stream], self.first, self.second, dtype)


#: Dimensions of a weight that are its inputs, and those that are its outputs.
Axes = tuple[Sequence[int], Sequence[int]]


def fans(shape: Sequence[int], axes: Axes | None = None) -> tuple[int, int]:
    """How many inputs and outputs a weight of this shape has: without `axes`, by the last two
    dimensions, each of which counts all elements of those before."""
    if axes is not None:
        inputs, outputs = (math.prod(shape[axis] for axis in group) for group in axes)
        return inputs, outputs
    if len(shape) < 2:
        both = shape[0] if shape else 1
        return both, both
    field = math.prod(shape[:-2])
    return shape[-2] * field, shape[-1] * field


def variance_scaling(
    shape: Sequence[int], scale: float, mode: str, distribution: str, axes: Axes | None = None
) -> Distribution:
    """The distribution around 0 of variance scale / n, n being the inputs ("fan_in") or outputs
    ("fan_out") of a weight of this shape or the mean of both ("fan_avg")."""
    inputs, outputs = fans(shape, axes)
    n = {"fan_in": inputs, "fan_out": outputs, "fan_avg": (inputs + outputs) / 2}[mode]
    variance = scale / max(1.0, n)
    if distribution == "uniform":
        limit = math.sqrt(3.0 * variance)
        return Distribution("uniform", -limit, limit)
    if distribution == "untruncated_normal":
        return Distribution("normal", 0.0, math.sqrt(variance))
    return Distribution("truncated_normal", 0.0, math.sqrt(variance) / _CUT)
