"""Recurrent layers: GRU and LSTM. A function runs their steps as a loop of its program, whatever
the length."""

from __future__ import annotations

from typing import Any

from ... import errors, nest
from ..._dispatch import apply, convert
from ...ops import array, control, math, nn
from .. import activations, constraints, initializers, regularizers
from .._layer import Layer, check_features
from ._shapes import extents_of, positive, rank_of, reshaped
from .core import Dropout


class _Recurrent(Layer):
    """What GRU and LSTM share: weights as Keras has them, options, and the loop over time.

    return_sequences: the outputs of all steps, not of the last. return_state: the states after the
    last step as well. go_backwards: from the last step to the first. dropout: the part of the
    features that is left out, in training.
    """

    supports_masking = True
    kernel: Any
    recurrent_kernel: Any
    bias: Any
    _gates: int
    _states: int
    #: How many columns of the inputs are no features.
    _extra = 0
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
        positive(self.name, "units", units)
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
        self._input_dropout: Any = None
        if dropout:
            self._input_dropout = Dropout(dropout, (None, 1, None), seed, dtype=self.dtype)

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

    def call(
        self, sequences: Any, initial_state: Any = None, mask: Any = None, training: bool = False
    ) -> Any:
        if rank_of(self.name, sequences) != 3:
            raise ValueError(
                f"layer '{self.name}' takes [batch, time, features]; the inputs have shape "
                f"{tuple(sequences.shape)}"
            )
        features = self.kernel.shape[0] + self._extra
        if sequences.shape[-1] not in (-1, features):
            raise errors.InvalidArgumentError(
                f"layer '{self.name}': the inputs have {sequences.shape[-1]} features; the weights "
                f"were made for {features}"
            )
        if self._input_dropout is not None:
            sequences = self._dropped(sequences, training)
        x = array.transpose(sequences, [1, 0, 2])
        flat = self._projected(array.reshape(x, [-1, features]))
        x = reshaped(flat, [*extents_of(x)[:2], flat.shape[-1]])
        elements = [x]
        if mask is not None:
            mask = array.expand_dims(array.transpose(mask, [1, 0]), -1)
            elements.append(math.cast(mask, x.dtype))
        return self._finished(*self._run(elements, self._first_states(x, initial_state)))

    def _dropped(self, sequences: Any, training: bool) -> Any:
        return self._input_dropout(sequences, training=training)

    def _projected(self, x: Any) -> Any:
        """The part of all steps that does not depend on the state, in one product of matrices."""
        raise NotImplementedError

    def _step(self, x: Any, states: list[Any]) -> list[Any]:
        """The next states; the first one is the output."""
        raise NotImplementedError

    def _first_states(self, x: Any, given: Any) -> list[Any]:
        if given is not None:
            states = [convert(state) for state in nest.flatten(given)]
            if len(states) != self._states:
                raise ValueError(
                    f"layer '{self.name}' has {self._states} states; {len(states)} are given"
                )
            return states
        # Zeros of [batch, units], whose batch is perhaps not known yet.
        one = apply("SliceAxis", (x[0],), {"axis": 1, "begin": 0, "size": self.units})
        return [array.zeros_like(one)] * self._states

    def _run(self, elements: list[Any], states: list[Any]) -> tuple[list[Any], list[Any]]:
        """All states after every step, if they are wanted, and those after the last."""

        def step(now: list[Any], element: list[Any]) -> list[Any]:
            after = self._step(element[0], now)
            if len(element) == 1:
                return after
            kept = element[1]
            return [new * kept + old * (1.0 - kept) for new, old in zip(after, now)]

        if not self.return_sequences:
            fold = control.foldr if self.go_backwards else control.foldl
            return [], fold(step, elements, states, name=self.name)
        every = control.scan(step, elements, states, reverse=self.go_backwards, name=self.name)
        at = 0 if self.go_backwards else -1
        return every, [state[at] for state in every]

    def _finished(self, every: list[Any], last: list[Any]) -> Any:
        output = last[0]
        if self.return_sequences:
            output = array.reverse(every[0], 0) if self.go_backwards else every[0]
            output = array.transpose(output, [1, 0, 2])
        return [output, *last] if self.return_state else output

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        mask = previous_mask if self.return_sequences else None
        return [mask, *[None] * self._states] if self.return_state else mask


class GRU(_Recurrent):
    """Gated recurrent unit (Cho et al., 2014), the reset gate behind the product of matrices
    (reset_after=True, the only one there is), as torch.nn.GRU has it:

        z, r = sigmoid(x W + h U + b)    n = tanh(x W + r * (h U + c))    h' = z * h + (1 - z) * n

    Weights: kernel [features, 3 units] (z, r, n), recurrent_kernel [units, 3 units], bias
    [2, 3 units] (of the inputs, of the state).
    """

    _gates, _states = 3, 1
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

    def _projected(self, x: Any) -> Any:
        made = math.matmul(x, self.kernel)
        return made + self.bias[0] if self.use_bias else made

    def _step(self, x: Any, states: list[Any]) -> list[Any]:
        h = states[0]
        inner = math.matmul(h, self.recurrent_kernel)
        if self.use_bias:
            inner = inner + self.bias[1]
        xz, xr, xn = array.split(x, 3, axis=-1)
        hz, hr, hn = array.split(inner, 3, axis=-1)
        z = self.recurrent_activation(xz + hz)
        r = self.recurrent_activation(xr + hr)
        n = self.activation(xn + r * hn)
        return [z * h + (1.0 - z) * n]


class AUGRU(GRU):
    """A GRU whose update gate is scaled by attention (the interest evolution of DIEN, Zhou et al.,
    2019), of inputs [sequences, scores]: [batch, time, features] and [batch, time]. A step of score
    0 leaves the state as it is; one of score 1 is GRU's. Weights are those of GRU."""

    _extra = 1

    def build(self, input_shape: Any) -> None:
        super().build(input_shape[0])

    def call(
        self, inputs: Any, initial_state: Any = None, mask: Any = None, training: bool = False
    ) -> Any:
        if not isinstance(inputs, (list, tuple)) or len(inputs) != 2:
            raise ValueError(f"layer '{self.name}' is called on a list [sequences, scores]")
        both = array.concat([inputs[0], array.expand_dims(inputs[1], -1)], -1)
        mask = mask[0] if isinstance(mask, (list, tuple)) else mask
        return super().call(both, initial_state, mask, training)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        several = isinstance(previous_mask, (list, tuple))
        return super().compute_mask(inputs, previous_mask[0] if several else previous_mask)

    def _dropped(self, sequences: Any, training: bool) -> Any:
        kept = super()._dropped(sequences[:, :, : self.kernel.shape[0]], training)
        return array.concat([kept, sequences[:, :, self.kernel.shape[0] :]], -1)

    def _projected(self, x: Any) -> Any:
        features = self.kernel.shape[0]
        return array.concat([super()._projected(x[:, :features]), x[:, features:]], -1)

    def _step(self, x: Any, states: list[Any]) -> list[Any]:
        gates = 3 * self.units
        (after,) = super()._step(x[:, :gates], states)
        score = x[:, gates:]
        return [states[0] + score * (after - states[0])]


class LSTM(_Recurrent):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997), as torch.nn.LSTM has it:

        i, f, o = sigmoid(x W + h U + b)    g = tanh(...)    c' = f * c + i * g    h' = o * tanh(c')

    Weights: kernel [features, 4 units] (i, f, g, o), recurrent_kernel [units, 4 units], bias
    [4 units]; unit_forget_bias: the bias of f starts at 1. States are h and c.
    """

    _gates, _states = 4, 2
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

    def _projected(self, x: Any) -> Any:
        made = math.matmul(x, self.kernel)
        return nn.bias_add(made, self.bias) if self.use_bias else made

    def _step(self, x: Any, states: list[Any]) -> list[Any]:
        h, c = states
        gates = x + math.matmul(h, self.recurrent_kernel)
        i, f, g, o = array.split(gates, 4, axis=-1)
        c = self.recurrent_activation(f) * c + self.recurrent_activation(i) * self.activation(g)
        return [self.recurrent_activation(o) * self.activation(c), c]
