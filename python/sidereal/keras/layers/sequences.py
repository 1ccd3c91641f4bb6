"""Layers over sequences: GRU, LSTM, and the attentions."""

from __future__ import annotations

import math as _numbers
from collections.abc import Sequence
from typing import Any

from ... import errors, recurrent
from ...ops import array, linalg, math, nn
from .. import activations, constraints, initializers, regularizers
from .._layer import Layer, check_features
from ._shapes import by_rows, extents_of, rank_of, reshaped
from .core import Dropout


class _Recurrent(Layer):
    """What GRU and LSTM share: weights, options, and the loop of sidereal.recurrent.

    return_sequences: the outputs of all steps, not of the last. return_state: the states after the
    last step as well. go_backwards: from the last step to the first. dropout: the part of the
    features that is left out, in training.
    """

    supports_masking = True
    _loop: Any
    _gates: int
    #: The argument that one of them alone has, with its default.
    _own_option: tuple[str, bool]

    def __init__(
        self, units: int, activation: Any = "tanh", recurrent_activation: Any = "sigmoid",
        use_bias: bool = True, kernel_initializer: Any = "glorot_uniform",
        recurrent_initializer: Any = "orthogonal", bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None, recurrent_regularizer: Any = None,
        bias_regularizer: Any = None, activity_regularizer: Any = None,
        kernel_constraint: Any = None, recurrent_constraint: Any = None,
        bias_constraint: Any = None, dropout: float = 0.0, recurrent_dropout: float = 0.0,
        seed: int | None = None, return_sequences: bool = False, return_state: bool = False,
        go_backwards: bool = False, stateful: bool = False, unroll: bool = False, **kwargs: Any,
    ) -> None:  # fmt: skip
        option, standard = self._own_option
        given = kwargs.pop(option, standard)
        super().__init__(activity_regularizer=activity_regularizer, **kwargs)
        setattr(self, option, bool(given))
        if not isinstance(units, int) or units <= 0:
            raise ValueError(
                f"layer '{self.name}': units is {units!r}; it must be a positive integer"
            )
        if recurrent_dropout or stateful:
            raise errors.UnimplementedError(
                f"layer '{self.name}': recurrent_dropout and stateful are not there"
            )
        self.units, self.use_bias, self.unroll = units, use_bias, unroll
        self.return_sequences, self.return_state = return_sequences, return_state
        self.go_backwards, self.dropout = go_backwards, dropout
        self.activation = activations.get(activation)
        self.recurrent_activation = activations.get(recurrent_activation)
        self._made = {
            "kernel": (kernel_initializer, kernel_regularizer, kernel_constraint),
            "recurrent_kernel": (
                recurrent_initializer, recurrent_regularizer, recurrent_constraint
            ),
            "bias": (bias_initializer, bias_regularizer, bias_constraint),
        }  # fmt: skip
        self._input_dropout = None
        if dropout:
            self._input_dropout = Dropout(dropout, (None, 1, None), seed, dtype=self.dtype)
        self._steps = self._loop(
            units, self.activation, self.recurrent_activation, use_bias, return_sequences,
            return_state, go_backwards, dtype=self.dtype, name=self.name,
        )  # fmt: skip

    def _bias_shape(self) -> tuple[int, ...]:
        return (self._gates * self.units,)

    def _first_bias(self, initializer: Any) -> Any:
        return initializer

    def build(self, input_shape: Any) -> None:
        features = check_features(self, input_shape)
        width = self._gates * self.units
        shapes: dict[str, tuple[int, ...]] = {
            "kernel": (features, width), "recurrent_kernel": (self.units, width)
        }  # fmt: skip
        if self.use_bias:
            shapes["bias"] = self._bias_shape()
        for name, shape in shapes.items():
            start, regularizer, constraint = self._made[name]
            start = initializers.get(start)
            made = self.add_weight(
                shape, self._first_bias(start) if name == "bias" else start,
                regularizer=regularizers.get(regularizer), constraint=constraints.get(constraint),
                name=name,
            )  # fmt: skip
            setattr(self, name, made)
            setattr(self._steps, name, made)
            # Its own are not made then.
            self._steps._weights.append(made)

    def call(
        self, sequences: Any, initial_state: Any = None, mask: Any = None, training: bool = False
    ) -> Any:
        if rank_of(self.name, sequences) != 3:
            raise ValueError(
                f"layer '{self.name}' takes [batch, time, features]; the inputs have shape "
                f"{tuple(sequences.shape)}"
            )
        if self._input_dropout is not None:
            sequences = self._input_dropout(sequences, training=training)
        return self._steps(sequences, mask, initial_state)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        mask = previous_mask if self.return_sequences else None
        return [mask, *[None] * self._steps._states] if self.return_state else mask


class GRU(_Recurrent):
    """Gated recurrent unit (Cho et al., 2014), the reset gate behind the product of matrices
    (reset_after=True, the only one there is)."""

    _loop = recurrent.GRU
    _gates = 3
    _own_option = ("reset_after", True)
    reset_after: bool

    def build(self, input_shape: Any) -> None:
        if not self.reset_after:
            raise errors.UnimplementedError(
                f"layer '{self.name}': reset_after=False, the reset gate before the product of "
                "matrices, is not there"
            )
        super().build(input_shape)

    def _bias_shape(self) -> tuple[int, ...]:
        return (2, 3 * self.units)


class LSTM(_Recurrent):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997). unit_forget_bias: the bias of the
    forget gate starts at 1."""

    _loop = recurrent.LSTM
    _gates = 4
    _own_option = ("unit_forget_bias", True)
    unit_forget_bias: bool

    def _first_bias(self, initializer: Any) -> Any:
        if not self.unit_forget_bias:
            return initializer

        def first(shape: Any, dtype: Any) -> Any:
            parts = [
                initializer((self.units,), dtype), array.ones([self.units], dtype),
                initializer((2 * self.units,), dtype),
            ]  # fmt: skip
            return array.concat(parts, 0)

        return first


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
        for name, value in (("num_heads", num_heads), ("key_dim", key_dim)):
            if not isinstance(value, int) or value <= 0:
                raise ValueError(
                    f"layer '{self.name}': {name} is {value!r}; it must be a positive integer"
                )
        self.num_heads, self.key_dim = num_heads, key_dim
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
    weighted by what a small network with layers of `hidden` units makes of it and the candidate:
    -> [batch, d]. `mask`: bools [batch, time], false for padding; `softmax` makes the weights of an
    example sum to 1, which the paper does not."""

    def __init__(
        self, hidden: Sequence[int] = (80, 40), activation: Any = "sigmoid", softmax: bool = False,
        kernel_initializer: Any = "glorot_uniform", bias_initializer: Any = "zeros", **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        self.hidden, self.softmax = tuple(hidden), softmax
        self.activation = activations.get(activation)
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.bias_initializer = initializers.get(bias_initializer)
        self._unit = recurrent.AttentionPooling(
            self.hidden, self.activation, softmax, dtype=self.dtype, name=self.name
        )

    def build(self, input_shape: Any) -> None:
        width = 4 * check_features(self, input_shape[1])
        for index, units in enumerate((*self.hidden, 1)):
            self._unit._weights += [
                self.add_weight((width, units), self.kernel_initializer, name=f"kernel_{index}"),
                self.add_weight((units,), self.bias_initializer, name=f"bias_{index}"),
            ]
            width = units

    def call(self, inputs: Any, mask: Any = None) -> Any:
        if not isinstance(inputs, (list, tuple)) or len(inputs) != 2:
            raise ValueError(
                f"layer '{self.name}' is called on a list [query, keys], not on {_said(inputs)}"
            )
        of_keys = mask[1] if isinstance(mask, (list, tuple)) else mask
        return self._unit(inputs[0], inputs[1], of_keys)
