"""Layers of graphs (tf.compat.v1.layers): dense, dropout, flatten."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sidereal as _sr

from .._dispatch import apply, convert
from .graph import in_default_graph
from .initializers import zeros_initializer
from .scopes import get_variable, variable_scope


@in_default_graph
def dense(
    inputs: Any, units: int, activation: Callable[[Any], Any] | None = None, use_bias: bool = True,
    kernel_initializer: Any = None, bias_initializer: Any = None, kernel_regularizer: Any = None,
    bias_regularizer: Any = None, activity_regularizer: Any = None, kernel_constraint: Any = None,
    bias_constraint: Any = None, trainable: bool = True, name: str | None = None,
    reuse: bool | None = None,
) -> Any:  # fmt: skip
    """activation(inputs @ kernel + bias) (tf.compat.v1.layers.dense) of inputs [..., n]. The
    variables are called name/kernel and name/bias; name is dense, dense_1, ... if absent."""
    x = convert(inputs)
    if x.shape is None or not x.shape or x.shape[-1] < 0:
        raise ValueError(
            "The last dimension of the inputs to `Dense` should be defined. Found "
            f"{'no shape' if x.shape is None else tuple(x.shape)}."
        )
    with variable_scope(name, default_name="dense", reuse=reuse):
        kernel = get_variable(
            "kernel", [x.shape[-1], units], x.dtype, kernel_initializer, kernel_regularizer,
            trainable, constraint=kernel_constraint,
        )  # fmt: skip
        if len(x.shape) == 2:
            made = _sr.matmul(x, kernel)
        else:
            made = _sr.tensordot(x, kernel, [[len(x.shape) - 1], [0]])
        if use_bias:
            bias = get_variable(
                "bias", [units], x.dtype, bias_initializer or zeros_initializer(),
                bias_regularizer, trainable, constraint=bias_constraint,
            )  # fmt: skip
            made = apply("BiasAdd", (made, convert(bias)))
        return made if activation is None else activation(made)


@in_default_graph
def dropout(
    inputs: Any, rate: float = 0.5, noise_shape: Any = None, seed: int | None = None,
    training: Any = False, name: str | None = None,
) -> Any:  # fmt: skip
    """Elements that are zero at random while `training`, a Python bool
    (tf.compat.v1.layers.dropout); the others are larger by 1 / (1 - rate)."""
    if noise_shape is not None or not isinstance(training, (bool, int)):
        raise _sr.errors.UnimplementedError(
            "dropout() takes no noise_shape, and `training` as a Python bool"
        )
    if not training:
        return apply("Identity", (convert(inputs),), None, name=name)
    return _sr.nn.dropout(inputs, rate=rate, seed=seed, name=name)


@in_default_graph
def flatten(inputs: Any, name: str | None = None) -> Any:
    """[batch, ...] as [batch, n] (tf.compat.v1.layers.flatten)."""
    x = convert(inputs)
    if x.shape is None or any(extent < 0 for extent in x.shape[1:]):
        raise ValueError("flatten() needs inputs whose extents but the first are known")
    width = 1
    for extent in x.shape[1:]:
        width *= extent
    return _sr.reshape(x, [-1, width], name=name)


__all__ = ["dense", "dropout", "flatten"]
