"""Layers of graphs (tf.compat.v1.layers): batch_normalization, dense, dropout, flatten."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sidereal as _sr

from .._dispatch import apply, convert
from .graph import GraphKeys, add_to_collection, in_default_graph
from .initializers import ones_initializer, zeros_initializer
from .scopes import get_variable, variable_scope


@in_default_graph
def batch_normalization(
    inputs: Any, axis: int = -1, momentum: float = 0.99, epsilon: float = 1e-3,
    center: bool = True, scale: bool = True, beta_initializer: Any = None,
    gamma_initializer: Any = None, moving_mean_initializer: Any = None,
    moving_variance_initializer: Any = None, beta_regularizer: Any = None,
    gamma_regularizer: Any = None, beta_constraint: Any = None, gamma_constraint: Any = None,
    training: Any = False, trainable: bool = True, name: str | None = None,
    reuse: bool | None = None,
) -> Any:  # fmt: skip
    """Inputs brought to mean 0 and variance 1 for each place of dimension `axis`, then times gamma
    plus beta (tf.compat.v1.layers.batch_normalization): while `training`, a bool or a scalar of the
    graph, by the mean and variance of the batch, else by moving ones. What moves these, to
    moving * momentum + new * (1 - momentum), is put into GraphKeys.UPDATE_OPS; a step has to run
    it. The variables are called name/gamma, beta, moving_mean and moving_variance."""
    x = convert(inputs)
    rank = 0 if x.shape is None else len(x.shape)
    if not rank or not -rank <= axis < rank or x.shape[axis] < 0:
        raise ValueError(
            f"batch_normalization() needs inputs whose dimension {axis} is known; they have "
            f"{'no shape' if x.shape is None else tuple(x.shape)}"
        )
    place, width = axis % rank, x.shape[axis]
    with variable_scope(name, default_name="batch_normalization", reuse=reuse) as scope:
        # What is updated together is one variable each.
        scope.set_partitioner(None)

        def variable(
            name: str, initializer: Any, trainable: bool, regularizer: Any = None,
            constraint: Any = None,
        ) -> Any:  # fmt: skip
            return get_variable(
                name, [width], x.dtype, initializer, regularizer, trainable, constraint=constraint
            )

        gamma = beta = None
        if scale:
            gamma = variable(
                "gamma", gamma_initializer or ones_initializer(), trainable, gamma_regularizer,
                gamma_constraint,
            )  # fmt: skip
        if center:
            beta = variable(
                "beta", beta_initializer or zeros_initializer(), trainable, beta_regularizer,
                beta_constraint,
            )  # fmt: skip
        moving = [
            variable("moving_mean", moving_mean_initializer or zeros_initializer(), False),
            variable("moving_variance", moving_variance_initializer or ones_initializer(), False),
        ]
        is_known = isinstance(training, (bool, int))
        used = [convert(each) for each in moving]
        if not is_known or training:
            others = [i for i in range(rank) if i != place]
            batch = _sr.nn.moments(x, others)
            for kept, old, new in zip(moving, used, batch):
                step = (old - new) * (1.0 - momentum)
                if not is_known:
                    step = _sr.where(training, step, _sr.zeros_like(step))
                add_to_collection(GraphKeys.UPDATE_OPS, kept.assign_sub(step))
            used = [
                new if is_known else _sr.where(training, new, old) for old, new in zip(used, batch)
            ]

        def placed(value: Any) -> Any:
            shape = [-1 if i == place else 1 for i in range(rank)]
            return value if value is None or place == rank - 1 else _sr.reshape(value, shape)

        mean, variance = used
        return _sr.nn.batch_normalization(
            x, placed(mean), placed(variance), placed(beta), placed(gamma), epsilon
        )


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


__all__ = ["batch_normalization", "dense", "dropout", "flatten"]
