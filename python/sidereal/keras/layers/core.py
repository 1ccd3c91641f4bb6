"""Dense, Activation, Dropout, Embedding, Lambda, Input."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import Any

from ... import dtypes, errors
from ..._conversion import inside
from ..._dispatch import apply, state
from ..._graphs import graph_of
from ...function import TensorSpec
from ...ops import array, math, nn
from ...ops.embedding import SparseTensor, embedding_lookup, safe_embedding_lookup_sparse
from ...ops.ragged import RaggedTensor
from .. import activations, constraints, initializers, regularizers
from .._configs import is_registered, one_of
from .._layer import Layer, check_features, current_model
from .._model_graph import WHILE_TRAINING
from .._recording import Recording
from ._shapes import by_rows, extents_of, like_rows, positive, rank_of


class InputLayer(Layer):
    """What symbolic tensors of an Input come from."""

    def __init__(
        self, shape: Any = None, batch_size: int | None = None, dtype: Any = None,
        batch_shape: Any = None, ragged: bool = False, name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(name=name, dtype=dtype)
        if (shape is None) == (batch_shape is None):
            raise ValueError("keras.Input(): give one of shape and batch_shape")
        whole = (batch_size, *_extents(shape)) if batch_shape is None else _extents(batch_shape)
        self.batch_shape = whole
        self.ragged = ragged
        self.built = True
        spec: Any = TensorSpec(whole, self._dtype)
        if ragged:
            if len(whole) < 2 or whole[1] is not None:
                raise ValueError(
                    f"keras.Input(): rows of a ragged input differ in length; shape is {whole[1:]},"
                    " it must begin with None"
                )
            spec = RaggedTensor(
                TensorSpec((None, *whole[2:]), self._dtype), TensorSpec((None,), dtypes.int64)
            )
        node = Recording().record(self, ((), {}), spec)
        self._nodes.append(node)

    def get_config(self) -> dict[str, Any]:
        return {
            "batch_shape": list(self.batch_shape), "dtype": self.dtype, "ragged": self.ragged,
            "name": self.name,
        }  # fmt: skip

    def call(self) -> Any:
        raise errors.FailedPreconditionError(
            f"input '{self.name}' has no value; call the model with one"
        )


def _extents(shape: Any) -> tuple[int | None, ...]:
    if isinstance(shape, int):
        shape = (shape,)
    if not all(n is None or isinstance(n, Integral) for n in shape):
        raise ValueError(f"keras.Input(): shape is {shape!r}; give a tuple of integers and None")
    return tuple(None if n is None or n < 0 else int(n) for n in shape)


def Input(  # noqa: N802 - Keras' name
    shape: Any = None, batch_size: int | None = None, dtype: Any = None, sparse: bool = False,
    batch_shape: Any = None, name: str | None = None, ragged: bool = False,
) -> Any:  # fmt: skip
    """A symbolic tensor that models begin with. `shape`: that of an example, None for an extent
    that may differ; `ragged`: its values are RaggedTensors, shape being (None, ...)."""
    if sparse:
        raise errors.UnimplementedError("keras.Input(): sparse inputs are not there; use ragged")
    layer = InputLayer(shape, batch_size, dtype, batch_shape, ragged, name)
    return layer.output


class Dense(Layer):
    """activation(inputs @ kernel + bias) over the last dimension."""

    supports_masking = True

    def __init__(
        self, units: int, activation: Any = None, use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform", bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None, bias_regularizer: Any = None,
        activity_regularizer: Any = None, kernel_constraint: Any = None,
        bias_constraint: Any = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(activity_regularizer=activity_regularizer, **kwargs)
        positive(self.name, "units", units)
        self.units = units
        self.activation = activations.get(activation)
        self.use_bias = use_bias
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.bias_initializer = initializers.get(bias_initializer)
        self.kernel_regularizer = regularizers.get(kernel_regularizer)
        self.bias_regularizer = regularizers.get(bias_regularizer)
        self.kernel_constraint = constraints.get(kernel_constraint)
        self.bias_constraint = constraints.get(bias_constraint)

    def build(self, input_shape: Any) -> None:
        width = check_features(self, input_shape)
        self.kernel = self.add_weight(
            (width, self.units), self.kernel_initializer, regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint, name="kernel",
        )  # fmt: skip
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(
                (self.units,), self.bias_initializer, regularizer=self.bias_regularizer,
                constraint=self.bias_constraint, name="bias",
            )  # fmt: skip

    def call(self, inputs: Any) -> Any:
        width = self.kernel.shape[0]
        if rank_of(self.name, inputs) < 2 or inputs.shape[-1] not in (-1, width):
            raise ValueError(
                f"layer '{self.name}' was built for inputs of shape (..., {width}); these have "
                f"{tuple(inputs.shape)}"
            )
        if inputs.dtype != self.kernel.dtype:
            inputs = math.cast(inputs, self.kernel.dtype)
        flat = math.matmul(by_rows(inputs, width), self.kernel)
        if self.bias is not None:
            flat = nn.bias_add(flat, self.bias)
        return self.activation(like_rows(flat, inputs))


class Bias(Layer):
    """A weight for each feature of the inputs that is added."""

    def __init__(self, bias_initializer: Any = "zeros", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.bias_initializer = initializers.get(bias_initializer)

    def build(self, input_shape: Any) -> None:
        width = check_features(self, input_shape)
        self.bias = self.add_weight((width,), self.bias_initializer, name="bias")

    def call(self, inputs: Any) -> Any:
        return nn.bias_add(inputs, self.bias)


class Activation(Layer):
    """An activation of the inputs."""

    supports_masking = True

    def __init__(self, activation: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.activation = activations.get(activation)

    def call(self, inputs: Any) -> Any:
        return self.activation(inputs)


class ReLU(Layer):
    """activations.relu()."""

    supports_masking = True

    def __init__(
        self, max_value: float | None = None, negative_slope: float = 0.0, threshold: float = 0.0,
        **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        self.max_value, self.negative_slope, self.threshold = max_value, negative_slope, threshold

    def call(self, inputs: Any) -> Any:
        return activations.relu(inputs, self.negative_slope, self.max_value, self.threshold)


class LeakyReLU(Layer):
    """activations.leaky_relu()."""

    supports_masking = True

    def __init__(self, negative_slope: float = 0.3, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.negative_slope = negative_slope

    def call(self, inputs: Any) -> Any:
        return activations.leaky_relu(inputs, self.negative_slope)


class ELU(Layer):
    """activations.elu()."""

    supports_masking = True

    def __init__(self, alpha: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.alpha = alpha

    def call(self, inputs: Any) -> Any:
        return activations.elu(inputs, self.alpha)


class PReLU(Layer):
    """x where it is above 0, else alpha * x, with an alpha that is trained for each element of an
    example, or for all along `shared_axes`."""

    supports_masking = True

    def __init__(
        self, alpha_initializer: Any = "Zeros", alpha_regularizer: Any = None,
        alpha_constraint: Any = None, shared_axes: Any = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        self.alpha_initializer = initializers.get(alpha_initializer)
        self.alpha_regularizer = regularizers.get(alpha_regularizer)
        self.alpha_constraint = constraints.get(alpha_constraint)
        self.shared_axes = [shared_axes] if isinstance(shared_axes, int) else shared_axes

    def build(self, input_shape: Any) -> None:
        shape = [*input_shape[1:]]
        for axis in self.shared_axes or ():
            shape[axis - 1] = 1
        if None in shape:
            raise ValueError(
                f"layer '{self.name}': inputs have the shape {tuple(input_shape)}; name the axes "
                "that are not known in shared_axes"
            )
        self.alpha = self.add_weight(
            tuple(shape), self.alpha_initializer, name="alpha", regularizer=self.alpha_regularizer,
            constraint=self.alpha_constraint,
        )  # fmt: skip

    def call(self, inputs: Any) -> Any:
        return activations.relu(inputs) - self.alpha * activations.relu(-inputs)


class Softmax(Layer):
    """activations.softmax(); where a mask is false, the result is 0."""

    supports_masking = True

    def __init__(self, axis: Any = -1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.axis = axis

    def call(self, inputs: Any, mask: Any = None) -> Any:
        if mask is not None:
            hidden = math.subtract(1.0, math.cast(mask, inputs.dtype))
            inputs = math.subtract(inputs, math.multiply(hidden, 3e4))
        return activations.softmax(inputs, self.axis)


class Identity(Layer):
    """The inputs."""

    supports_masking = True

    def call(self, inputs: Any) -> Any:
        return inputs


class Dropout(Layer):
    """In training, each element is 0 with probability `rate`, else divided by 1 - rate.
    `noise_shape` broadcasts to the inputs: elements with one place in it live or die together; None
    in it is the extent of the inputs."""

    supports_masking = True

    def __init__(
        self, rate: float, noise_shape: Sequence[int | None] | None = None,
        seed: int | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 <= rate <= 1:
            raise ValueError(
                f"layer '{self.name}': rate is {rate!r}; it must be a number from 0 to 1"
            )
        self.rate, self.noise_shape, self.seed = rate, noise_shape, seed

    def call(self, inputs: Any, training: Any = False) -> Any:
        if self.rate == 0 or (training is not WHILE_TRAINING and not training):
            return inputs
        model = current_model()
        if self.rate == 1 and model is None:
            return array.zeros_like(inputs)
        noise: Any = self.noise_shape
        if noise is not None and any(n is None for n in noise):
            noise = [m if n is None else n for n, m in zip(noise, extents_of(inputs))]
            if not all(isinstance(n, int) for n in noise):
                noise = array.stack(noise)
        if model is None:
            return nn.dropout(inputs, self.rate, noise, self.seed)
        seed = model.next_seed() if self.seed is None else self.seed % 2**63
        attrs = {"rate": float(self.rate), "seed": seed, "training": True}
        if noise is None:
            return apply("Dropout", (inputs,), attrs)
        graph = state.graph or graph_of(inputs)
        kept = apply("Dropout", (graph.enter(array.ones(noise, inputs.dtype)),), attrs)
        return math.multiply(inputs, kept)


class Lambda(Layer):
    """A function of the inputs; `arguments` are further arguments of it. It has no weights of its
    own: a layer of one's own has."""

    def __init__(
        self, function: Callable[..., Any], output_shape: Any = None, mask: Any = None,
        arguments: Mapping[str, Any] | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        self.function = function
        self.mask = mask
        self.arguments = dict(arguments or {})
        taken = inspect.signature(function).parameters
        self._told = [name for name in ("training", "mask") if name in taken]

    def call(self, inputs: Any, mask: Any = None, training: bool | None = None) -> Any:
        known = {"mask": mask, "training": training}
        told = {name: known[name] for name in self._told}
        return inside(self.function)(inputs, **{**self.arguments, **told})

    def _check_saved(self) -> None:
        for what, function in (("function", self.function), ("mask", self.mask)):
            if callable(function) and not is_registered(function):
                raise ValueError(
                    f"layer '{self.name}' cannot be saved: its {what} is Python code, which is not "
                    "written. Register it with @keras.saving.register_keras_serializable(), and "
                    "have it registered where the model is loaded; or write a layer with call()"
                )

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        return self.mask(inputs, previous_mask) if callable(self.mask) else self.mask


class Embedding(Layer):
    """Rows of a table of `input_dim` rows of `output_dim` elements, by their numbers.

    ids of any shape: [...] -> [..., output_dim]; of a RaggedTensor rows in its place. With a
    `combiner`, "sum", "mean" or "sqrtn", the rows of an example become one: those of the last
    dimension of ids, of a row of a RaggedTensor, or of a SparseTensor, weighted by `weights` of the
    same places if they are given. An example without ids gives zeros.

    mask_zero: 0 is not an id but stands for none: layers behind are told by a mask.

    In a sidereal.Model the table is spread over all parameter servers, and only the rows of the ids
    in a batch are read and updated, penalties being of these; a negative id gives zeros.
    """

    _has_table = True

    def __init__(
        self, input_dim: int, output_dim: int, embeddings_initializer: Any = "uniform",
        embeddings_regularizer: Any = None, embeddings_constraint: Any = None,
        mask_zero: bool = False, weights: Any = None, combiner: str | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        self.input_dim = positive(self.name, "input_dim", input_dim)
        self.output_dim = positive(self.name, "output_dim", output_dim)
        if isinstance(embeddings_initializer, str) and embeddings_initializer == "uniform":
            embeddings_initializer = "random_uniform"
        self.embeddings_initializer = initializers.get(embeddings_initializer)
        self.embeddings_regularizer = regularizers.get(embeddings_regularizer)
        self.embeddings_constraint = constraints.get(embeddings_constraint)
        self.mask_zero = mask_zero
        self.supports_masking = mask_zero
        self.combiner = combiner
        if combiner is not None:
            self.combiner = one_of(
                f"layer '{self.name}'", "combiner", combiner, ("sum", "mean", "sqrtn")
            )
        if weights is not None:
            self.build()
            self.set_weights(weights if isinstance(weights, (list, tuple)) else [weights])

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        del config["weights"]  # They are saved as the weights that they are.
        return config

    def build(self, input_shape: Any = None) -> None:
        self.embeddings = self.add_weight(
            (self.input_dim, self.output_dim), self.embeddings_initializer,
            regularizer=self.embeddings_regularizer, constraint=self.embeddings_constraint,
            name="embeddings",
        )  # fmt: skip

    def call(self, inputs: Any, weights: Any = None) -> Any:
        if weights is not None and self.combiner is None:
            raise ValueError(f"layer '{self.name}': weights are of rows that a combiner joins")
        if isinstance(inputs, SparseTensor):
            return self._of_sparse(inputs, weights)
        if isinstance(inputs, RaggedTensor):
            if self.combiner is not None:
                weights = weights.to_sparse() if isinstance(weights, RaggedTensor) else weights
                return self._of_sparse(inputs.to_sparse(), weights)
            return RaggedTensor(self.call(inputs.values), inputs.row_splits)
        rows = embedding_lookup(self.embeddings, self._ids(inputs))
        return rows if self.combiner is None else self._combined(rows, weights)

    def _ids(self, inputs: Any) -> Any:
        if inputs.dtype == dtypes.string:
            raise TypeError(
                f"layer '{self.name}': its ids are text; make numbers of it first, as StringLookup "
                "and Hashing do"
            )
        return inputs if inputs.dtype.kind in "iu" else math.cast(inputs, "int32")

    def _of_sparse(self, ids: SparseTensor, weights: SparseTensor | None) -> Any:
        ids = SparseTensor(ids.indices, self._ids(ids.values), ids.dense_shape)
        combiner = self.combiner or "mean"
        return safe_embedding_lookup_sparse(self.embeddings, ids, weights, combiner)

    def _combined(self, rows: Any, weights: Any) -> Any:
        """Rows [..., n, d] of an example each as one."""
        if weights is None and self.combiner == "sum":
            return math.reduce_sum(rows, axis=-2)
        if weights is None:
            weights = array.ones_like(rows[..., :1])
        else:
            weights = array.expand_dims(math.cast(weights, rows.dtype), -1)
        total = math.reduce_sum(math.multiply(rows, weights), axis=-2)
        if self.combiner == "sum":
            return total
        if self.combiner == "mean":
            return math.divide_no_nan(total, math.reduce_sum(weights, axis=-2))
        size = math.sqrt(math.reduce_sum(math.square(weights), axis=-2))
        return math.divide_no_nan(total, size)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        if not self.mask_zero or isinstance(inputs, (RaggedTensor, SparseTensor)):
            return None
        return math.not_equal(inputs, 0)
