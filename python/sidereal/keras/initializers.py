"""What weights are made by (keras.initializers): functions of (shape, dtype).

One that is given a seed, or draws one when it is made, gives the same value for the same shape at
every call. Those that take `shard_info` make a shard of a variable of that shape, which random
numbers have of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import _initial_values, _native, dtypes
from .._dispatch import convert, state
from .._initial_values import Distribution
from ..ops import array, math, random
from ..tensors import is_tensor
from ._configs import Configured, Registry, one_of

Shape = Sequence[int]


class Initializer(Configured):
    """Base of the initializers."""

    #: Whether it is made of ops alone, of little data: strategies run it where the variable is.
    _runs_anywhere: Any = False

    def __call__(self, shape: Shape, dtype: Any = None) -> Any:
        """A tensor of that shape, float32 unless another dtype is said."""
        raise NotImplementedError(f"{type(self).__name__} has no __call__(shape, dtype)")

    def _on_servers(self, shape: Shape, dtype: Any) -> _native.Initializer | None:
        """What parameter servers make a first value of that shape by, if they can."""
        return None

    def clone(self) -> Any:
        """Another one like it."""
        return type(self).from_config(self.get_config())


def _extents(shape: Shape, shard_info: Any) -> list[int]:
    """Of the value, or of a shard of it."""
    return list(shape if shard_info is None else shard_info.shape)


class Zeros(Initializer):
    """Zeros."""

    _runs_anywhere = True

    def __call__(self, shape: Shape, dtype: Any = None, shard_info: Any = None) -> Any:
        return array.zeros(_extents(shape, shard_info), dtype or "float32")

    def _on_servers(self, shape: Shape, dtype: Any) -> _native.Initializer | None:
        return _native.Initializer("zeros")


class Ones(Initializer):
    """Ones."""

    _runs_anywhere = True

    def __call__(self, shape: Shape, dtype: Any = None, shard_info: Any = None) -> Any:
        return array.ones(_extents(shape, shard_info), dtype or "float32")

    def _on_servers(self, shape: Shape, dtype: Any) -> _native.Initializer | None:
        return _native.Initializer("constant", 1.0)


class Constant(Initializer):
    """A number, or an array that broadcasts to the shape."""

    def __init__(self, value: Any = 0.0) -> None:
        self.value = value

    def __call__(self, shape: Shape, dtype: Any = None) -> Any:
        value = math.cast(convert(self.value), dtype or "float32")
        return array.broadcast_to(value, list(shape))

    def _on_servers(self, shape: Shape, dtype: Any) -> _native.Initializer | None:
        if dtype != dtypes.float32 or not isinstance(self.value, (int, float)):
            return None
        return _native.Initializer("constant", float(self.value))


class Identity(Initializer):
    """`gain` on the diagonal of a matrix, zeros elsewhere."""

    def __init__(self, gain: float = 1.0) -> None:
        self.gain = gain

    def __call__(self, shape: Shape, dtype: Any = None) -> Any:
        if len(shape) != 2:
            raise ValueError(f"Identity makes matrices; the shape is {tuple(shape)}")
        return math.multiply(array.eye(shape[0], shape[1], dtype or "float32"), self.gain)


class _Random(Initializer):
    """Base of those with a seed. `seed`: an integer; None: drawn when it is made."""

    _runs_anywhere = True

    def __init__(self, seed: int | None) -> None:
        if seed is not None and not isinstance(seed, (int, np.integer)):
            raise ValueError(f"{type(self).__name__}: seed is {seed!r}; it must be an integer")
        self.seed = random.new_seed() if seed is None else int(seed)

    def _distribution(self, shape: Shape) -> Distribution:
        raise NotImplementedError

    def __call__(self, shape: Shape, dtype: Any = None, shard_info: Any = None) -> Any:
        extents = _extents(shape, shard_info)
        stream = 0 if shard_info is None else shard_info.offset[0]
        return self._distribution(shape).draw_same(extents, dtype or "float32", self.seed, stream)

    def _on_servers(self, shape: Shape, dtype: Any) -> _native.Initializer | None:
        kind, first, second = self._distribution(shape)
        # 0 is a seed of the model's.
        given = self._arguments.get("seed")
        seed = 0 if given is None else int(given) % (2**63 - 1) + 1
        return _native.Initializer(kind, first, second, seed)


class RandomUniform(_Random):
    """Even from `minval` to `maxval`."""

    def __init__(
        self, minval: float = -0.05, maxval: float = 0.05, seed: int | None = None
    ) -> None:
        super().__init__(seed)
        self.minval, self.maxval = minval, maxval

    def _distribution(self, shape: Shape) -> Distribution:
        return Distribution("uniform", self.minval, self.maxval)


class RandomNormal(_Random):
    """Normal."""

    _kind = "normal"

    def __init__(self, mean: float = 0.0, stddev: float = 0.05, seed: int | None = None) -> None:
        super().__init__(seed)
        self.mean, self.stddev = mean, stddev

    def _distribution(self, shape: Shape) -> Distribution:
        return Distribution(self._kind, self.mean, self.stddev)


class TruncatedNormal(RandomNormal):
    """Normal, without what is more than two standard deviations away."""

    _kind = "truncated_normal"


class VarianceScaling(_Random):
    """Around 0 with variance scale / n, n being the number of inputs of the weight ("fan_in"), of
    outputs ("fan_out") or the mean of both ("fan_avg"). `distribution`: "truncated_normal" (also
    "normal"), "untruncated_normal" or "uniform". `input_axes` and `output_axes`: the dimensions
    that are inputs and outputs, if they are not the last two."""

    def __init__(
        self, scale: float = 1.0, mode: str = "fan_in", distribution: str = "truncated_normal",
        seed: int | None = None, input_axes: Sequence[int] | None = None,
        output_axes: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(seed)
        self.axes = None
        if input_axes is not None and output_axes is not None:
            self.axes = (tuple(input_axes), tuple(output_axes))
        if not scale > 0:
            raise ValueError(f"VarianceScaling: scale is {scale}; it must be more than 0")
        self.scale = scale
        self.mode = one_of("VarianceScaling", "mode", mode, ("fan_in", "fan_out", "fan_avg"))
        kinds = ("normal", "truncated_normal", "untruncated_normal", "uniform")
        self.distribution = one_of("VarianceScaling", "distribution", distribution, kinds)

    def _distribution(self, shape: Shape) -> Distribution:
        return _initial_values.variance_scaling(
            list(shape), self.scale, self.mode, self.distribution, self.axes
        )


def _scaled(
    class_name: str, scale: float, mode: str, distribution: str, source: str
) -> type[VarianceScaling]:
    def init(
        self: Any, seed: int | None = None, input_axes: Sequence[int] | None = None,
        output_axes: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        VarianceScaling.__init__(
            self, scale, mode, distribution, seed, input_axes, output_axes
        )

    text = f"VarianceScaling({scale}, {mode!r}, {distribution!r}): {source}."
    members = {"__init__": init, "__doc__": text, "__module__": __name__}
    return type(class_name, (VarianceScaling,), members)


_GLOROT, _HE, _LECUN = "Glorot and Bengio, 2010", "He et al., 2015", "LeCun et al., 1998"
GlorotUniform = _scaled("GlorotUniform", 1.0, "fan_avg", "uniform", _GLOROT)
GlorotNormal = _scaled("GlorotNormal", 1.0, "fan_avg", "truncated_normal", _GLOROT)
HeUniform = _scaled("HeUniform", 2.0, "fan_in", "uniform", _HE)
HeNormal = _scaled("HeNormal", 2.0, "fan_in", "truncated_normal", _HE)
LecunUniform = _scaled("LecunUniform", 1.0, "fan_in", "uniform", _LECUN)
LecunNormal = _scaled("LecunNormal", 1.0, "fan_in", "truncated_normal", _LECUN)


class Orthogonal(_Random):
    """A matrix whose rows or columns, whichever are fewer, are orthogonal and of length `gain`: all
    dimensions but the last together are its rows (Saxe et al., 2013)."""

    _runs_anywhere = False

    def __init__(self, gain: float = 1.0, seed: int | None = None) -> None:
        super().__init__(seed)
        self.gain = gain

    def _on_servers(self, shape: Shape, dtype: Any) -> _native.Initializer | None:
        return None

    def __call__(self, shape: Shape, dtype: Any = None) -> Any:  # type: ignore[override]
        if len(shape) < 2:
            raise ValueError(
                f"Orthogonal makes tensors of two dimensions or more; the shape is {tuple(shape)}"
            )
        rows, columns = int(np.prod(shape[:-1])), int(shape[-1])
        tall = [max(rows, columns), min(rows, columns)]
        with state.at_once():
            drawn = Distribution("normal", 0.0, 1.0).draw_same(tall, "float64", self.seed).numpy()
        q, r = np.linalg.qr(drawn)
        # With these signs all orthogonal matrices are as likely.
        q = q * np.sign(np.diag(r))
        value = self.gain * (q.T if rows < columns else q)
        return math.cast(convert(value.reshape(shape)), dtype or "float32")


zeros, ones, constant, identity = Zeros, Ones, Constant, Identity
random_uniform, random_normal, truncated_normal = RandomUniform, RandomNormal, TruncatedNormal
variance_scaling, orthogonal = VarianceScaling, Orthogonal
glorot_uniform, glorot_normal = GlorotUniform, GlorotNormal
he_uniform, he_normal = HeUniform, HeNormal
lecun_uniform, lecun_normal = LecunUniform, LecunNormal

_registry = Registry(
    "keras.initializers",
    (
        Zeros, Ones, Constant, Identity, RandomUniform, RandomNormal, TruncatedNormal,
        VarianceScaling, GlorotUniform, GlorotNormal, HeUniform, HeNormal, LecunUniform,
        LecunNormal, Orthogonal,
    ),
    {"IdentityInitializer": Identity, "OrthogonalInitializer": Orthogonal},
)  # fmt: skip
serialize, deserialize = _registry.serialize, _registry.deserialize


def get(identifier: Any) -> Any:
    """An initializer from its name, its class, a config or itself; Constant from an array."""
    if isinstance(identifier, np.ndarray) or is_tensor(identifier):
        return Constant(identifier)
    return _registry.get(identifier)


__all__ = [
    "Constant", "GlorotNormal", "GlorotUniform", "HeNormal", "HeUniform", "Identity",
    "Initializer", "LecunNormal", "LecunUniform", "Ones", "Orthogonal", "RandomNormal",
    "RandomUniform", "TruncatedNormal", "VarianceScaling", "Zeros", "constant", "deserialize",
    "get", "glorot_normal", "glorot_uniform", "he_normal", "he_uniform", "identity",
    "lecun_normal", "lecun_uniform", "ones", "orthogonal", "random_normal", "random_uniform",
    "serialize", "truncated_normal", "variance_scaling", "zeros",
]  # fmt: skip
