"""BatchNormalization and LayerNormalization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import errors, optimizers
from ..._dispatch import apply
from ...ops import array, math, nn
from .. import constraints, initializers, regularizers
from .._layer import Layer, check_features, current_model, shards_of
from ._shapes import rank_of


class _Normalization(Layer):
    """What both have: a scale `gamma` and an offset `beta`."""

    supports_masking = True

    def __init__(
        self, epsilon: float, center: bool, scale: bool, beta_initializer: Any,
        gamma_initializer: Any, beta_regularizer: Any, gamma_regularizer: Any,
        beta_constraint: Any, gamma_constraint: Any, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        self.epsilon, self.center, self.scale = float(epsilon), center, scale
        self.beta_initializer = initializers.get(beta_initializer)
        self.gamma_initializer = initializers.get(gamma_initializer)
        self.beta_regularizer = regularizers.get(beta_regularizer)
        self.gamma_regularizer = regularizers.get(gamma_regularizer)
        self.beta_constraint = constraints.get(beta_constraint)
        self.gamma_constraint = constraints.get(gamma_constraint)

    def _add_scales(self, shape: Sequence[int]) -> None:
        self.gamma = self.beta = None
        if self.scale:
            self.gamma = self.add_weight(
                shape, self.gamma_initializer, regularizer=self.gamma_regularizer,
                constraint=self.gamma_constraint, name="gamma",
            )  # fmt: skip
        if self.center:
            self.beta = self.add_weight(
                shape, self.beta_initializer, regularizer=self.beta_regularizer,
                constraint=self.beta_constraint, name="beta",
            )  # fmt: skip

    def _scales(self, shape: Sequence[int]) -> tuple[Any, Any]:
        """Both, ones and zeros where there is none."""
        gamma = array.ones(list(shape), self.dtype) if self.gamma is None else self.gamma
        return gamma, array.zeros(list(shape), self.dtype) if self.beta is None else self.beta


class BatchNormalization(_Normalization):
    """Inputs brought to mean 0 and variance 1 for each place of dimension `axis`, then times gamma
    plus beta. In training by the mean and variance of the batch, of which moving ones are kept
    (moving * momentum + new * (1 - momentum)); else, and when it is not `trainable`, by these. With
    a mask, those of the steps where it is true."""

    def __init__(
        self, axis: int = -1, momentum: float = 0.99, epsilon: float = 0.001, center: bool = True,
        scale: bool = True, beta_initializer: Any = "zeros", gamma_initializer: Any = "ones",
        moving_mean_initializer: Any = "zeros", moving_variance_initializer: Any = "ones",
        beta_regularizer: Any = None, gamma_regularizer: Any = None, beta_constraint: Any = None,
        gamma_constraint: Any = None, renorm: bool = False, synchronized: bool = False,
        **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(
            epsilon, center, scale, beta_initializer, gamma_initializer, beta_regularizer,
            gamma_regularizer, beta_constraint, gamma_constraint, **kwargs,
        )  # fmt: skip
        if renorm or synchronized:
            raise errors.UnimplementedError(
                f"layer '{self.name}': renorm and synchronized are not there"
            )
        self.axis, self.momentum = axis, float(momentum)
        self.moving_mean_initializer = initializers.get(moving_mean_initializer)
        self.moving_variance_initializer = initializers.get(moving_variance_initializer)

    def build(self, input_shape: Any) -> None:
        width = check_features(self, input_shape, self.axis)
        self._add_scales((width,))
        self.moving_mean = self.add_weight(
            (width,), self.moving_mean_initializer, trainable=False, name="moving_mean"
        )
        self.moving_variance = self.add_weight(
            (width,), self.moving_variance_initializer, trainable=False, name="moving_variance"
        )

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        rank = rank_of(self.name, inputs)
        axis = self.axis % rank
        gamma, beta = self._scales(self.moving_mean.shape)

        def placed(x: Any) -> Any:
            shape = [-1 if i == axis else 1 for i in range(rank)]
            return x if axis == rank - 1 else array.reshape(x, shape)

        self._check_moving(training)
        if not self.trainable or not training:
            mean, variance = self.moving_mean, self.moving_variance
        elif mask is None and axis == rank - 1:
            attrs = {"epsilon": self.epsilon}
            outputs, mean, variance = apply("BatchNorm", (inputs, gamma, beta), attrs)
            self._move(mean, variance)
            return outputs
        else:
            mean, variance = self._moments(inputs, axis, mask)
            self._move(mean, variance)
        return nn.batch_normalization(
            inputs, placed(mean), placed(variance), placed(beta), placed(gamma), self.epsilon
        )

    def _check_moving(self, training: Any) -> None:
        in_model = current_model() is not None
        if in_model and self.trainable and training is not None and training is not False:
            raise errors.UnimplementedError(
                f"layer '{self.name}': BatchNormalization keeps moving averages, which no step of a"
                " sidereal.Model does; call it with training=False, or take LayerNormalization"
            )

    def _moments(self, inputs: Any, axis: int, mask: Any) -> tuple[Any, Any]:
        axes = [i for i in range(len(inputs.shape)) if i != axis]
        if mask is None:
            return nn.moments(inputs, axes)
        weights = math.cast(mask, inputs.dtype)
        for _ in range(len(inputs.shape) - len(weights.shape)):
            weights = array.expand_dims(weights, -1)
        weights = math.multiply(weights, array.ones_like(inputs))
        count = math.reduce_sum(weights, axes, keepdims=True)
        # As Keras, which keeps divisions from 0.
        count = math.maximum(count, 1e-7)
        mean = math.divide(math.reduce_sum(math.multiply(inputs, weights), axes, True), count)
        squares = math.multiply(math.squared_difference(inputs, mean), weights)
        variance = math.divide(math.reduce_sum(squares, axes, True), count)
        return array.reshape(mean, [-1]), array.reshape(variance, [-1])

    def _move(self, mean: Any, variance: Any) -> None:
        for moving, new in ((self.moving_mean, mean), (self.moving_variance, variance)):
            shards = shards_of(moving)
            if hasattr(shards[0], "_update_in_place"):
                # On parameter servers, as one change: moving -= (1 - momentum) * (moving - new).
                # What a worker has read is old when it writes, as others have written since.
                step = optimizers.SGD(l2_penalty=1.0)
                for shard, part in zip(shards, array.split(new, [v.shape[0] for v in shards])):
                    step._update(math.negative(part), shard, 1, 1.0 - self.momentum)
            else:
                kept = math.multiply(moving, self.momentum)
                moving.assign(math.add(kept, math.multiply(new, 1.0 - self.momentum)))


class LayerNormalization(_Normalization):
    """Each example brought to mean 0 and variance 1 over the dimensions `axis`, then times gamma
    plus beta."""

    def __init__(
        self, axis: Any = -1, epsilon: float = 0.001, center: bool = True, scale: bool = True,
        beta_initializer: Any = "zeros", gamma_initializer: Any = "ones",
        beta_regularizer: Any = None, gamma_regularizer: Any = None, beta_constraint: Any = None,
        gamma_constraint: Any = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(
            epsilon, center, scale, beta_initializer, gamma_initializer, beta_regularizer,
            gamma_regularizer, beta_constraint, gamma_constraint, **kwargs,
        )  # fmt: skip
        self.axis = axis

    def _axes(self, rank: int) -> list[int]:
        given = [self.axis] if isinstance(self.axis, int) else list(self.axis)
        return sorted(axis % rank for axis in given)

    def build(self, input_shape: Any) -> None:
        axes = self._axes(len(input_shape))
        self._add_scales([check_features(self, input_shape, axis) for axis in axes])

    def call(self, inputs: Any) -> Any:
        rank = rank_of(self.name, inputs)
        axes = self._axes(rank)
        extents = [inputs.shape[axis] for axis in axes]
        gamma, beta = self._scales(extents)
        if axes == [rank - 1]:
            return nn.layer_norm(inputs, gamma, beta, self.epsilon)
        _, variance = nn.moments(inputs, axes, keepdims=True)
        shape = [inputs.shape[i] if i in axes else 1 for i in range(rank)]
        mean = math.reduce_mean(inputs, axes, keepdims=True)
        return nn.batch_normalization(
            inputs, mean, variance, array.reshape(beta, shape), array.reshape(gamma, shape),
            self.epsilon,
        )  # fmt: skip
