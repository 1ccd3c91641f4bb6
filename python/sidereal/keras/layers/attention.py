"""Attentions: layers that weigh what a sequence has, step by step."""

from __future__ import annotations

import math as _numbers
from collections.abc import Sequence
from typing import Any

from ... import errors
from ..._dispatch import apply
from ...ops import array, linalg, math, nn
from .. import activations, constraints, initializers, regularizers
from .._layer import Layer, check_features
from ._shapes import by_rows, extents_of, positive, rank_of, reshaped
from .core import Dropout


def _said(inputs: Any) -> str:
    if isinstance(inputs, (list, tuple)):
        return f"one of {len(inputs)}"
    return f"{type(inputs).__name__} of shape {getattr(inputs, 'shape', None)}"


class Attention(Layer):
    """Values weighted by the products of queries and keys, of inputs [query, value] or [query,
    value, key]: query [batch, n, d], value and key [batch, m, d] -> [batch, n, d].

    use_scale: products are multiplied by a weight. score_mode "concat": sum(tanh(query + key)) in
    the place of products. Masks [query_mask, value_mask] are bools [batch, n] and [batch, m].
    """

    def __init__(
        self, use_scale: bool = False, score_mode: str = "dot", dropout: float = 0.0,
        seed: int | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        if score_mode not in ("dot", "concat"):
            raise ValueError(
                f"layer '{self.name}': score_mode is {score_mode!r}; it must be dot or concat"
            )
        self.use_scale, self.score_mode, self.dropout = use_scale, score_mode, dropout
        self._dropout = Dropout(dropout, seed=seed, dtype=self.dtype)

    def build(self, input_shape: Any) -> None:
        self.scale = self.concat_score_weight = None
        if self.use_scale:
            self.scale = self.add_weight((), "ones", name="scale")
        if self.score_mode == "concat":
            self.concat_score_weight = self.add_weight((), "ones", name="concat_score_weight")

    def _scores(self, query: Any, key: Any) -> Any:
        if self.score_mode == "dot":
            scores = math.matmul(query, key, transpose_b=True)
            return scores if self.scale is None else math.multiply(scores, self.scale)
        both = math.add(array.expand_dims(query, -2), array.expand_dims(key, -3))
        both = both if self.scale is None else math.multiply(both, self.scale)
        return math.multiply(math.reduce_sum(math.tanh(both), axis=-1), self.concat_score_weight)

    def call(
        self, inputs: Any, mask: Any = None, training: bool = False,
        return_attention_scores: bool = False, use_causal_mask: bool = False,
    ) -> Any:  # fmt: skip
        if not isinstance(inputs, (list, tuple)) or len(inputs) not in (2, 3):
            raise ValueError(
                f"layer '{self.name}' is called on a list [query, value] or [query, value, key], "
                f"not on {_said(inputs)}"
            )
        query, value = inputs[:2]
        scores = self._scores(query, inputs[-1] if len(inputs) == 3 else value)
        shown = None
        if mask is not None and mask[1] is not None:
            shown = array.expand_dims(mask[1], -2)
        if use_causal_mask:
            before = causal_mask(scores)
            shown = before if shown is None else math.logical_and(shown, before)
        if shown is not None:
            scores = math.where(shown, scores, math.subtract(scores, 1e9))
        weights = self._dropout(math.softmax(scores), training=training)
        result = math.matmul(weights, value)
        if mask is not None and mask[0] is not None:
            result = math.where(array.expand_dims(mask[0], -1), result, 0.0)
        return (result, weights) if return_attention_scores else result

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        return None if previous_mask is None else previous_mask[0]


class AdditiveAttention(Attention):
    """Attention by sum(scale * tanh(query + key)) (Bahdanau et al., 2015)."""

    def __init__(self, use_scale: bool = True, dropout: float = 0.0, **kwargs: Any) -> None:
        super().__init__(use_scale=use_scale, dropout=dropout, **kwargs)

    def build(self, input_shape: Any) -> None:
        self.scale = None
        if self.use_scale:
            width = check_features(self, input_shape[0])
            self.scale = self.add_weight((width,), "glorot_uniform", name="scale")

    def _scores(self, query: Any, key: Any) -> Any:
        both = math.add(array.expand_dims(query, -2), array.expand_dims(key, -3))
        seen = math.tanh(both)
        seen = seen if self.scale is None else math.multiply(seen, self.scale)
        return math.reduce_sum(seen, axis=-1)


def causal_mask(scores: Any) -> Any:
    """True where a key [..., n, m] is not behind its query."""
    one = array.ones_like(scores, "float32")
    return math.greater(linalg.band_part(one, -1, 0), 0.0)


class MultiHeadAttention(Layer):
    """Several attentions beside each other, of projections of their own (Vaswani et al., 2017):
    query [batch, n, d], value and key [batch, m, d] -> [batch, n, d], or `output_shape` wide.

    key_dim, value_dim: the size of a head. attention_mask: bools [batch, n, m], or with a dimension
    of heads [batch, heads, n, m].
    """

    supports_masking = True

    def __init__(
        self, num_heads: int, key_dim: int, value_dim: int | None = None, dropout: float = 0.0,
        use_bias: bool = True, output_shape: int | None = None, attention_axes: Any = None,
        kernel_initializer: Any = "glorot_uniform", bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None, bias_regularizer: Any = None,
        activity_regularizer: Any = None, kernel_constraint: Any = None,
        bias_constraint: Any = None, seed: int | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(activity_regularizer=activity_regularizer, **kwargs)
        if attention_axes not in (None, 1, (1,), [1]):
            raise errors.UnimplementedError(
                f"layer '{self.name}': attention_axes is {attention_axes}; it must be that of time"
            )
        self.num_heads = positive(self.name, "num_heads", num_heads)
        self.key_dim = positive(self.name, "key_dim", key_dim)
        self.value_dim = value_dim or key_dim
        self.use_bias = use_bias
        self._width = output_shape[0] if isinstance(output_shape, (list, tuple)) else output_shape
        self._kernels = {
            "initializer": initializers.get(kernel_initializer),
            "regularizer": regularizers.get(kernel_regularizer),
            "constraint": constraints.get(kernel_constraint),
        }
        self._biases = {
            "initializer": initializers.get(bias_initializer),
            "regularizer": regularizers.get(bias_regularizer),
            "constraint": constraints.get(bias_constraint),
        }
        self.dropout = dropout
        self._dropout = Dropout(dropout, seed=seed, dtype=self.dtype)

    def build(  # type: ignore[override]
        self, query_shape: Any, value_shape: Any, key_shape: Any = None
    ) -> None:
        width = check_features(self, query_shape)
        of_value = check_features(self, value_shape)
        of_key = of_value if key_shape is None else check_features(self, key_shape)
        heads = self.num_heads
        out = self._width or width
        self._projections = {
            "query": self._projection("query", (width, heads, self.key_dim), 1),
            "key": self._projection("key", (of_key, heads, self.key_dim), 1),
            "value": self._projection("value", (of_value, heads, self.value_dim), 1),
            "output": self._projection("attention_output", (heads, self.value_dim, out), 2),
        }

    def _projection(self, name: str, shape: tuple[int, ...], inputs: int) -> list[Any]:
        made = [self.add_weight(shape, name=f"{name}/kernel", **self._kernels)]
        if self.use_bias:
            made.append(self.add_weight(shape[inputs:], name=f"{name}/bias", **self._biases))
        return made

    def _heads(self, x: Any, name: str) -> Any:
        """[batch, time, features] as [batch, heads, time, size]."""
        kernel, *bias = self._projections[name]
        features, heads, size = kernel.shape
        flat = math.matmul(
            by_rows(x, features), array.reshape(kernel, [features, heads * size])
        )
        if bias:
            flat = nn.bias_add(flat, array.reshape(bias[0], [heads * size]))
        batch, time = extents_of(x)[:2]
        return array.transpose(reshaped(flat, [batch, time, heads, size]), [0, 2, 1, 3])

    def _joined(self, x: Any) -> Any:
        """The reverse, and the last projection."""
        kernel, *bias = self._projections["output"]
        heads, size, width = kernel.shape
        batch, _, time, _ = extents_of(x)
        flat = array.reshape(array.transpose(x, [0, 2, 1, 3]), [-1, heads * size])
        flat = math.matmul(flat, array.reshape(kernel, [heads * size, width]))
        flat = nn.bias_add(flat, bias[0]) if bias else flat
        return reshaped(flat, [batch, time, width])

    def call(
        self, query: Any, value: Any, key: Any = None, query_mask: Any = None,
        value_mask: Any = None, key_mask: Any = None, attention_mask: Any = None,
        return_attention_scores: bool = False, training: bool = False,
        use_causal_mask: bool = False,
    ) -> Any:  # fmt: skip
        for x in (query, value):
            if rank_of(self.name, x) != 3:
                raise ValueError(
                    f"layer '{self.name}' takes [batch, time, features]; an input has shape "
                    f"{tuple(x.shape)}"
                )
        q = math.multiply(self._heads(query, "query"), 1.0 / _numbers.sqrt(self.key_dim))
        k = self._heads(value if key is None else key, "key")
        v = self._heads(value, "value")
        scores = math.matmul(q, k, transpose_b=True)
        masks = [
            None if query_mask is None else array.expand_dims(query_mask, -1),
            None if value_mask is None else array.expand_dims(value_mask, -2),
            None if key_mask is None else array.expand_dims(key_mask, -2),
            attention_mask,
        ]
        for mask in masks:
            if mask is not None:
                shown = math.cast(mask, "bool")
                shown = array.expand_dims(shown, 1) if len(shown.shape) == 3 else shown
                scores = math.where(shown, scores, math.subtract(scores, 1e9))
        if use_causal_mask:
            scores = math.where(causal_mask(scores), scores, math.subtract(scores, 1e9))
        weights = math.softmax(scores)
        result = self._joined(math.matmul(self._dropout(weights, training=training), v))
        return (result, weights) if return_attention_scores else result


class AttentionPooling(Layer):
    """The activation unit of the Deep Interest Network (Zhou et al., 2018), of inputs [query,
    keys]: the candidate [batch, d] and the behaviours [batch, time, d]. These are summed, each
    weighted by what a small network with layers of `hidden` units makes of (query, key, query -
    key, query * key): -> [batch, d]. `mask`: bools [batch, time], false for padding; `softmax`
    makes the weights of an example sum to 1, which the paper does not. Weights: kernel_0, bias_0,
    kernel_1, ...
    """

    def __init__(
        self, hidden: Sequence[int] = (80, 40), activation: Any = "sigmoid", softmax: bool = False,
        kernel_initializer: Any = "glorot_uniform", bias_initializer: Any = "zeros", **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        self.hidden, self.softmax = tuple(hidden), softmax
        self.activation = activations.get(activation)
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.bias_initializer = initializers.get(bias_initializer)

    def build(self, input_shape: Any) -> None:
        width = 4 * check_features(self, input_shape[1])
        self._network = []
        for index, units in enumerate((*self.hidden, 1)):
            kernel = self.add_weight(
                (width, units), self.kernel_initializer, name=f"kernel_{index}"
            )
            bias = self.add_weight((units,), self.bias_initializer, name=f"bias_{index}")
            self._network.append((kernel, bias))
            width = units

    def call(self, inputs: Any, mask: Any = None) -> Any:
        if not isinstance(inputs, (list, tuple)) or len(inputs) != 2:
            raise ValueError(
                f"layer '{self.name}' is called on a list [query, keys], not on {_said(inputs)}"
            )
        query, keys = inputs
        wide = math.add(array.expand_dims(query, 1), array.zeros_like(keys))
        both = [wide, keys, math.subtract(wide, keys), math.multiply(wide, keys)]
        x = by_rows(array.concat(both, -1), self._network[0][0].shape[0])
        for kernel, bias in self._network[:-1]:
            x = self.activation(nn.bias_add(math.matmul(x, kernel), bias))
        kernel, bias = self._network[-1]
        x = nn.bias_add(math.matmul(x, kernel), bias)
        # [batch, time, 1], whatever of it is known.
        scores = apply("ReshapeLike", (x, keys[:, :, :1]))
        of_keys = mask[1] if isinstance(mask, (list, tuple)) else mask
        return math.reduce_sum(math.multiply(self._weights_of(scores, of_keys), keys), axis=1)

    def _weights_of(self, scores: Any, mask: Any) -> Any:
        """Weights of the behaviours, 0 for padding."""
        if mask is not None:
            mask = math.cast(array.expand_dims(mask, -1), scores.dtype)
        if self.softmax:
            if mask is not None:
                hidden = math.multiply(math.subtract(mask, 1.0), 1e9)
                scores = math.add(math.multiply(scores, mask), hidden)
            scores = math.softmax(scores, 1)
        return scores if mask is None else math.multiply(scores, mask)
