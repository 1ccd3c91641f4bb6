"""Layers over sequences: GRU, LSTM, and attention pooling as in the Deep Interest Network.

    gru = sidereal.recurrent.GRU(32)
    state = gru(inputs)  # [batch, time, features] -> [batch, 32]

Their weights are sidereal.Variables of this process; on the values of a Model they are variables of
the model, which live on its parameter servers: <name>/kernel and so on. At once, and in a
sidereal.function, they give the
same numbers; a function runs the steps as a loop of its program, whatever the length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import _native, dtypes, errors, nest
from ._dispatch import apply, convert
from ._native import Output
from .layers import Weight
from .ops import array, control
from .variable import Variable

Activation = Callable[[Any], Any]


def _op(name: str) -> Activation:
    return lambda x: apply(name, (x,))


_ACTIVATIONS: dict[Any, Activation] = {
    None: lambda x: x,
    "linear": lambda x: x,
    "relu": _op("Relu"),
    "sigmoid": _op("Sigmoid"),
    "softplus": _op("Softplus"),
    "tanh": _op("Tanh"),
}


def _activation(value: Any) -> Activation:
    if callable(value):
        return value
    if value not in _ACTIVATIONS:
        names = ", ".join(repr(name) for name in _ACTIVATIONS if name is not None)
        raise ValueError(
            f"there is no activation {value!r}; give a function, None, or one of {names}"
        )
    return _ACTIVATIONS[value]


def _matmul(x: Any, w: Any) -> Any:
    return apply("MatMul", (x, convert(w)))


class _Layer:
    """Weights that are made when the first input is seen."""

    def __init__(self, kind: str, name: str | None, seed: int, dtype: Any) -> None:
        self.name = name or kind
        self._named = name is not None
        self._dtype: Any = dtypes.as_dtype(dtype)
        self._random = np.random.default_rng(seed)
        self._weights: list[Any] = []
        self._like: Output | None = None

    @property
    def weights(self) -> list[Any]:
        """The variables, in the order of get_weights(); none before the first call. In a Model,
        their values."""
        return list(self._weights)

    trainable_variables = weights

    def get_weights(self) -> list[np.ndarray]:
        """The values of the variables."""
        return [np.array(weight.numpy()) for weight in self._weights]

    def set_weights(self, values: Sequence[Any]) -> None:
        """Gives the variables other values, of their shapes."""
        if len(values) != len(self._weights):
            raise ValueError(
                f"{self.name} has {len(self._weights)} weights; {len(values)} are given"
            )
        for weight, value in zip(self._weights, values):
            weight.assign(value)

    def _enter(self, x: Any) -> None:
        """Makes the layer one of the model that `x` belongs to, if it does and it is not one
        yet."""
        if self._weights or type(x) is not Output or not isinstance(x.graph, _native.Model):
            return
        if self._dtype != dtypes.float32:
            raise errors.InvalidArgumentError(f"{self.name}: variables of a model are float32")
        self._like = x
        if not self._named:
            self.name = _native.layers.layer_name(x, self.name)

    def _variable(self, name: str, value: np.ndarray) -> Any:
        """A weight that starts as `value`; a matrix of a model starts by its own random numbers."""
        made: Any
        if self._like is None:
            made = Variable(value.astype(self._dtype), name=f"{self.name}/{name}")
        else:
            matrix = name.startswith(("kernel", "recurrent_kernel"))
            start = (
                _native.layers.glorot_uniform_initializer()
                if matrix
                else _native.layers.zeros_initializer()
            )
            made = Weight(value.shape, f"{self.name}/{name}", start)(self._like)
            if not matrix and value.any():
                made = made + value.astype(self._dtype)
        self._weights.append(made)
        return made

    def _glorot(self, rows: int, columns: int) -> np.ndarray:
        limit = np.sqrt(6.0 / (rows + columns))
        return self._random.uniform(-limit, limit, (rows, columns))

    def _orthogonal(self, rows: int, columns: int) -> np.ndarray:
        tall = self._random.standard_normal((max(rows, columns), min(rows, columns)))
        q, r = np.linalg.qr(tall)
        q = q * np.sign(np.diag(r))
        return q if rows >= columns else q.T

    def _features(self, x: Any) -> int:
        if x.shape is None or x.shape[-1] < 0:
            raise errors.InvalidArgumentError(
                f"{self.name}: the number of features must be known; the input has shape {x.shape}"
            )
        return int(x.shape[-1])


class _Recurrent(_Layer):
    """The loop over time, and the options that GRU and LSTM share."""

    _gates: int
    _states: int

    def __init__(
        self,
        units: int,
        activation: Any = "tanh",
        recurrent_activation: Any = "sigmoid",
        use_bias: bool = True,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        time_major: bool = False,
        dtype: Any = "float32",
        seed: int = 0,
        name: str | None = None,
    ) -> None:
        super().__init__(type(self).__name__.lower(), name, seed, dtype)
        if units < 1:
            raise ValueError(f"units is {units}; there must be at least one")
        self.units = int(units)
        self.use_bias = use_bias
        self.return_sequences = return_sequences
        self.return_state = return_state
        self.go_backwards = go_backwards
        self.time_major = time_major
        self._activation = _activation(activation)
        self._recurrent_activation = _activation(recurrent_activation)

    def build(self, features: int) -> None:
        """Makes the weights for inputs of so many features; the first call does."""
        if self._weights:
            return
        width = self._gates * self.units
        self.kernel = self._variable("kernel", self._glorot(features, width))
        self.recurrent_kernel = self._variable(
            "recurrent_kernel", self._orthogonal(self.units, width)
        )
        if self.use_bias:
            self.bias = self._variable("bias", self._first_bias())

    def _first_bias(self) -> np.ndarray:
        raise NotImplementedError

    def _projected(self, x: Any) -> Any:
        """The part of all steps that does not depend on the state, in one product of matrices."""
        raise NotImplementedError

    def _step(self, x: Any, states: list[Any]) -> list[Any]:
        """The next states; the first one is the output."""
        raise NotImplementedError

    def __call__(self, inputs: Any, mask: Any = None, initial_state: Any = None) -> Any:
        """inputs: [batch, time, features] (with time_major, [time, batch, features]).
        mask: bool [batch, time]; where it is false the state stays as it was.
        initial_state: a tensor [batch, units], or a list of as many as the layer has; zeros by
        default.

        Returns the last output [batch, units] or, with return_sequences, all of them, with time
        where the inputs have it; with return_state a list of that and the last states.
        """
        x = convert(inputs)
        if x.shape is not None and len(x.shape) != 3:
            raise errors.InvalidArgumentError(
                f"{self.name}: the inputs have shape {x.shape}; they must be [batch, time,"
                " features]"
            )
        self._enter(x)
        self.build(self._features(x))
        if not self.time_major:
            x = array.transpose(x, [1, 0, 2])
        features = int(x.shape[-1])
        if features != self.kernel.shape[0]:
            raise errors.InvalidArgumentError(
                f"{self.name}: the inputs have {features} features; the weights were made for "
                f"{self.kernel.shape[0]}"
            )
        flat = self._projected(apply("Reshape", (x,), {"shape": [-1, features]}))
        x = self._under_time(flat, x)
        elements: Any = [x]
        if mask is not None:
            elements.append(self._mask(mask))
        states = self._initial(x, initial_state)
        return self._finish(self._run(elements, states))

    def _under_time(self, flat: Any, like: Any) -> Any:
        """[time * batch, n] as [time, batch, n]."""
        time, batch = like.shape[0], like.shape[1]
        if time >= 0:
            return apply("Reshape", (flat,), {"shape": [time, batch, flat.shape[-1]]})
        if batch >= 0:
            return apply("Reshape", (flat,), {"shape": [-1, batch, flat.shape[-1]]})
        return array.reshape(flat, array.concat([array.shape(like)[:2], [flat.shape[-1]]], 0))

    def _mask(self, mask: Any) -> Any:
        mask = convert(mask)
        if not self.time_major:
            mask = array.transpose(mask, [1, 0])
        return array.expand_dims(apply("Cast", (mask,), {"dtype": self._dtype}), -1)

    def _initial(self, x: Any, given: Any) -> list[Any]:
        if given is not None:
            states = [convert(state) for state in nest.flatten(given)]
            if len(states) != self._states:
                raise ValueError(f"{self.name} has {self._states} states; {len(states)} are given")
            return states
        # Zeros of [batch, units], whose batch is perhaps not known yet.
        one = apply("SliceAxis", (x[0],), {"axis": 1, "begin": 0, "size": self.units})
        return [apply("ZerosLike", (one,))] * self._states

    def _run(self, elements: list[Any], states: list[Any]) -> tuple[list[Any], list[Any]]:
        """All states after every step, and after the last."""

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

    def _finish(self, result: tuple[list[Any], list[Any]]) -> Any:
        every, last = result
        output = last[0]
        if self.return_sequences:
            output = every[0]
            if self.go_backwards:
                output = array.reverse(output, 0)
            if not self.time_major:
                output = array.transpose(output, [1, 0, 2])
        return [output, *last] if self.return_state else output


class GRU(_Recurrent):
    """Gated recurrent unit (Cho et al., 2014), with the reset gate behind the product of matrices,
    as in tf.keras.layers.GRU(reset_after=True) and torch.nn.GRU:

        z, r = sigmoid(x W + h U + b)    n = tanh(x W + r * (h U + c))    h' = z * h + (1 - z) * n

    Weights as Keras has them: kernel [features, 3 units] (z, r, n), recurrent_kernel [units, 3
    units], bias [2, 3 units] (of the inputs, of the state). Options as of tf.keras.layers.GRU.
    """

    _gates = 3
    _states = 1

    def _first_bias(self) -> np.ndarray:
        return np.zeros((2, 3 * self.units))

    def _projected(self, x: Any) -> Any:
        made = _matmul(x, self.kernel)
        return made + self.bias[0] if self.use_bias else made

    def _step(self, x: Any, states: list[Any]) -> list[Any]:
        h = states[0]
        inner = _matmul(h, self.recurrent_kernel)
        if self.use_bias:
            inner = inner + self.bias[1]
        xz, xr, xn = array.split(x, 3, axis=-1)
        hz, hr, hn = array.split(inner, 3, axis=-1)
        z = self._recurrent_activation(xz + hz)
        r = self._recurrent_activation(xr + hr)
        n = self._activation(xn + r * hn)
        return [z * h + (1.0 - z) * n]


class LSTM(_Recurrent):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997), as tf.keras.layers.LSTM and
    torch.nn.LSTM have it:

        i, f, o = sigmoid(x W + h U + b)    g = tanh(...)    c' = f * c + i * g    h' = o * tanh(c')

    Weights as Keras has them: kernel [features, 4 units] (i, f, g, o), recurrent_kernel
    [units, 4 units], bias [4 units]; the bias of f starts at 1 with `unit_forget_bias`. States are
    h and c. Options as of tf.keras.layers.LSTM.
    """

    _gates = 4
    _states = 2

    def __init__(
        self, units: int, *args: Any, unit_forget_bias: bool = True, **options: Any
    ) -> None:
        super().__init__(units, *args, **options)
        self.unit_forget_bias = unit_forget_bias

    def _first_bias(self) -> np.ndarray:
        bias = np.zeros(4 * self.units)
        if self.unit_forget_bias:
            bias[self.units : 2 * self.units] = 1
        return bias

    def _projected(self, x: Any) -> Any:
        made = _matmul(x, self.kernel)
        return made + self.bias if self.use_bias else made

    def _step(self, x: Any, states: list[Any]) -> list[Any]:
        h, c = states
        gates = x + _matmul(h, self.recurrent_kernel)
        i, f, g, o = array.split(gates, 4, axis=-1)
        c = self._recurrent_activation(f) * c + self._recurrent_activation(i) * self._activation(g)
        return [self._recurrent_activation(o) * self._activation(c), c]


class AttentionPooling(_Layer):
    """The activation unit of the Deep Interest Network (Zhou et al., 2018): behaviours are summed,
    each weighted by what a small network makes of it and the candidate.

        pooled = AttentionPooling()(query, keys, mask)

    query: [batch, d], the candidate. keys: [batch, time, d], the behaviours. mask: bool [batch,
    time], false for padding. Returns [batch, d]. The network sees (query, key, query - key, query *
    key), has
    layers of `hidden` units and one output. `softmax` makes the weights of a row sum to 1; the
    paper does not. Weights: kernel and bias of every layer.
    """

    def __init__(
        self,
        hidden: Sequence[int] = (80, 40),
        activation: Any = "sigmoid",
        softmax: bool = False,
        dtype: Any = "float32",
        seed: int = 0,
        name: str | None = None,
    ) -> None:
        super().__init__("attention_pooling", name, seed, dtype)
        self.hidden = tuple(int(units) for units in hidden)
        self.softmax = softmax
        self._activation = _activation(activation)

    def build(self, features: int) -> None:
        """Makes the weights for vectors of so many elements; the first call does."""
        if self._weights:
            return
        width = 4 * features
        for index, units in enumerate((*self.hidden, 1)):
            self._variable(f"kernel_{index}", self._glorot(width, units))
            self._variable(f"bias_{index}", np.zeros(units))
            width = units

    def __call__(self, query: Any, keys: Any, mask: Any = None) -> Any:
        query, keys = convert(query), convert(keys)
        features = self._features(keys)
        self._enter(keys)
        self.build(features)
        wide = array.expand_dims(query, 1) + apply("ZerosLike", (keys,))
        seen = array.concat([wide, keys, wide - keys, wide * keys], -1)
        x = apply("Reshape", (seen,), {"shape": [-1, 4 * features]})
        last = len(self.hidden)
        for index in range(last + 1):
            kernel, bias = self._weights[2 * index : 2 * index + 2]
            x = _matmul(x, kernel) + bias
            x = x if index == last else self._activation(x)
        # [batch, time, 1], whatever of it is known.
        one = apply("SliceAxis", (keys,), {"axis": 2, "begin": 0, "size": 1})
        scores = apply("ReshapeLike", (x, one))
        scores = self._weights_of(scores, mask)
        return apply("ReduceSum", (scores * keys,), {"axes": [1], "keep_dims": False})

    def _weights_of(self, scores: Any, mask: Any) -> Any:
        """Weights of the behaviours, 0 for padding."""
        if mask is not None:
            mask = array.expand_dims(convert(mask), -1)
            mask = apply("Cast", (mask,), {"dtype": self._dtype})
        if self.softmax:
            if mask is not None:
                scores = scores * mask + (mask - 1.0) * 1e9
            scores = array.transpose(scores, [0, 2, 1])
            scores = array.transpose(apply("Softmax", (scores,)), [0, 2, 1])
        return scores if mask is None else scores * mask


__all__ = ["GRU", "LSTM", "AttentionPooling"]
