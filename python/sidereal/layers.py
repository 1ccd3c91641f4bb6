"""Layers: each is a value that says what to build, and a call that adds it to a model:

    x = Dense(10, activation="relu")(features)

A layer without a name gets one of its own ("dense", "dense_1", ...); variables are called after
their layer ("mlp/0/kernel"). Calling a layer twice makes two sets of variables. Names and defaults
are those of the C++ header sidereal/train/layers.h, and follow tf.keras.layers where one exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from . import _native
from ._native import Initializer, Output
from .dtypes import name_of

_layers = _native.layers


def normal_initializer(stddev: float = 0.01) -> Initializer:
    """Normal with mean 0."""
    return _layers.normal_initializer(stddev)


def glorot_uniform_initializer() -> Initializer:
    """As named in Glorot and Bengio, 2010; what kernels start with."""
    return _layers.glorot_uniform_initializer()


def zeros_initializer() -> Initializer:
    """All zeros."""
    return _layers.zeros_initializer()


@dataclass(frozen=True)
class Embedding:
    """A table with one row per id, split over all parameter servers; only the rows of the ids in a
    batch are read and updated. ids int64 [b, f] -> float32 [b, f, dim]. Id -1 is "none": zeros.
    Variable: <name>/table. `l2` is a penalty on the rows read."""

    rows: int
    dim: int
    initializer: Initializer = field(default_factory=normal_initializer)
    name: str = ""
    l2: float = 0.0

    def __call__(self, ids: Output) -> Output:
        return _layers.embedding(ids, self.rows, self.dim, self.initializer, self.name, self.l2)


@dataclass(frozen=True)
class Dense:
    """activation(x @ kernel + bias). x float32 [b, n] -> [b, units].
    Activations: linear, relu, sigmoid, tanh, softplus.
    Variables: <name>/kernel [n, units], <name>/bias [units]. `l2` is a penalty on the kernel."""

    units: int
    activation: str = ""
    use_bias: bool = True
    initializer: Initializer = field(default_factory=glorot_uniform_initializer)
    name: str = ""
    l2: float = 0.0

    def __call__(self, x: Output) -> Output:
        return _layers.dense(
            x, self.units, self.activation, self.use_bias, self.initializer, self.name, self.l2
        )


@dataclass(frozen=True)
class Bias:
    """A trained vector added to the last dimension of x; starts at zero. Variable: <name>/bias."""

    name: str = ""

    def __call__(self, x: Output) -> Output:
        return _layers.bias(x, self.name)


@dataclass(frozen=True)
class Dropout:
    """Sets a share `rate` of the elements to zero while training and scales the others by
    1 / (1 - rate)."""

    rate: float

    def __call__(self, x: Output) -> Output:
        return _layers.dropout(x, self.rate)


@dataclass(frozen=True)
class Mlp:
    """Dense layers one after the other, each followed by dropout. x [b, n] -> [b, hidden[-1]].
    Variables: <name>/0/kernel, <name>/0/bias, <name>/1/kernel, ..."""

    hidden: Sequence[int]
    activation: str = "relu"
    dropout: float = 0.0
    name: str = ""
    l2: float = 0.0

    def __call__(self, x: Output) -> Output:
        hidden = list(self.hidden)
        return _layers.mlp(x, hidden, self.activation, self.dropout, self.name, self.l2)


@dataclass(frozen=True)
class Flatten:
    """All dimensions but the first in one. x [b, n, m] -> [b, n * m]."""

    def __call__(self, x: Output) -> Output:
        return _layers.flatten(x)


@dataclass(frozen=True)
class Concatenate:
    """The inputs beside each other along `axis`."""

    axis: int = -1

    def __call__(self, inputs: Sequence[Output]) -> Output:
        return _layers.concatenate(list(inputs), self.axis)


@dataclass(frozen=True)
class Add:
    """The sum of all inputs, which have one shape."""

    def __call__(self, inputs: Sequence[Output]) -> Output:
        return _layers.add_all(list(inputs))


@dataclass(frozen=True)
class Weight:
    """A variable of `shape`, whole, for what is put together of ops; the argument is any value of
    the model. float32 or float64, and int32 or int64 where it is not trained. Variable: <name>.
    `l2` is a penalty."""

    shape: Sequence[int]
    name: str
    initializer: Initializer = field(default_factory=glorot_uniform_initializer)
    l2: float = 0.0
    dtype: Any = "float32"
    trainable: bool = True

    def __call__(self, like: Output) -> Output:
        return _layers.weight(
            like, tuple(self.shape), self.initializer, self.name, self.l2, name_of(self.dtype),
            self.trainable,
        )  # fmt: skip


@dataclass(frozen=True)
class Weighted:
    """Each row of x times its weight. x [b, f, d], weights [b, f] -> [b, f, d]."""

    def __call__(self, x: Output, weights: Output) -> Output:
        return _layers.weighted(x, weights)


@dataclass(frozen=True)
class WeightedSum:
    """The sum over fields, with weights if given (a bag of embeddings).
    x [b, f, d], weights [b, f] -> [b, d]."""

    def __call__(self, x: Output, weights: Output | None = None) -> Output:
        return _layers.weighted_sum(x, weights)


@dataclass(frozen=True)
class FactorizationMachine:
    """The sum of the inner products of all pairs of fields (Rendle, 2010).
    x [b, f, d] -> [b, 1]."""

    def __call__(self, x: Output) -> Output:
        return _layers.factorization_machine(x)


@dataclass(frozen=True)
class CrossNetwork:
    """x[l+1] = x[0] * (x[l] @ kernel[l]) + bias[l] + x[l] (Wang et al., 2017). x [b, n] -> [b, n].
    Variables: <name>/0/kernel [n, 1], <name>/0/bias [n], <name>/1/kernel, ..."""

    layers: int = 3
    name: str = ""
    l2: float = 0.0

    def __call__(self, x: Output) -> Output:
        return _layers.cross_network(x, self.layers, self.name, self.l2)
