"""Layers of click models: factorization machines, crosses, attention of fields, mixtures of
experts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..._dispatch import apply
from ...ops import array, math, nn
from .. import activations, constraints, initializers, regularizers
from .._layer import Layer, check_features
from ._shapes import positive, rank_of


def _fields(layer: Layer, inputs: Any) -> Any:
    """Embeddings of fields [batch, fields, d]; of a list of inputs [batch, d] each is a field."""
    if isinstance(inputs, (list, tuple)):
        inputs = array.stack(list(inputs), axis=1)
    if rank_of(layer.name, inputs) != 3:
        raise ValueError(
            f"layer '{layer.name}' takes [batch, fields, d]; the inputs have shape "
            f"{tuple(inputs.shape)}"
        )
    return inputs


def _fields_and_width(layer: Layer, shape: Any) -> tuple[int, int]:
    """How many fields there are, and of how many elements each is."""
    if shape and isinstance(shape[0], (list, tuple)):
        return len(shape), check_features(layer, shape[0])
    return check_features(layer, shape, axis=1), check_features(layer, shape)


class FM(Layer):
    """The sum of the inner products of all pairs of fields (Rendle, 2010): [batch, fields, d] ->
    [batch, 1]; of a list of inputs [batch, d] each is a field."""

    def call(self, inputs: Any) -> Any:
        return apply("FmInteraction", (_fields(self, inputs),))


class FieldAwareFM(Layer):
    """A factorization machine in which a field has an embedding for each other field (FFM, Juan et
    al., 2016): [batch, fields, fields * d], which are the d elements for the first field, for the
    second, ... -> [batch, 1], the sum of <v[i, j], v[j, i]> over all pairs of fields."""

    def build(self, input_shape: Any) -> None:
        fields, width = _fields_and_width(self, input_shape)
        if width % fields:
            raise ValueError(
                f"layer '{self.name}': the embeddings of {fields} fields have {width} elements; "
                f"they must be as many for each field"
            )
        self._fields, self._dim = fields, width // fields
        self._pairs = np.triu(np.ones((fields, fields), np.float32), 1)

    def call(self, inputs: Any) -> Any:
        by_field = [-1, self._fields, self._fields, self._dim]
        rows = array.reshape(_fields(self, inputs), by_field)
        products = math.reduce_sum(rows * array.transpose(rows, [0, 2, 1, 3]), axis=-1)
        pairs = math.cast(self._pairs, products.dtype)
        return math.reduce_sum(products * pairs, axis=[1, 2])[:, None]


class CIN(Layer):
    """The compressed interaction network of xDeepFM (Lian et al., 2018): [batch, fields, d] ->
    [batch, the sum of what its layers give], products of fields, element by element, of a degree
    more in each layer.

    layer_size: feature maps of each layer. split_half: half of the maps of each layer but the last
    are its result, the other half goes to the next one; else all do both.
    Weights: kernel_0 [fields * fields, maps], bias_0, kernel_1, ...
    """

    def __init__(
        self, layer_size: Sequence[int] = (128, 128), activation: Any = "relu",
        split_half: bool = True, kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros", kernel_regularizer: Any = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        self.layer_size = tuple(positive(self.name, "layer_size", size) for size in layer_size)
        if not self.layer_size:
            raise ValueError(f"layer '{self.name}': layer_size is empty")
        if split_half and any(size % 2 for size in self.layer_size[:-1]):
            raise ValueError(
                f"layer '{self.name}': layer_size is {self.layer_size}; with split_half all but "
                "the last must be even"
            )
        self.split_half = split_half
        self.activation = activations.get(activation)
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.bias_initializer = initializers.get(bias_initializer)
        self.kernel_regularizer = regularizers.get(kernel_regularizer)

    def build(self, input_shape: Any) -> None:
        fields, _ = _fields_and_width(self, input_shape)
        before = fields
        self._maps = []
        for index, size in enumerate(self.layer_size):
            kernel = self.add_weight(
                (before * fields, size), self.kernel_initializer,
                regularizer=self.kernel_regularizer, name=f"kernel_{index}",
            )  # fmt: skip
            bias = self.add_weight((size,), self.bias_initializer, name=f"bias_{index}")
            self._maps.append((kernel, bias))
            before = size // 2 if self.split_half else size

    def call(self, inputs: Any) -> Any:
        # [batch, d, fields]: a layer is one product of matrices for all elements.
        x0 = array.transpose(_fields(self, inputs), [0, 2, 1])
        width, fields = x0.shape[1], x0.shape[2]
        x, results = x0, []
        for index, (kernel, bias) in enumerate(self._maps):
            pairs = array.expand_dims(x, 3) * array.expand_dims(x0, 2)
            flat = array.reshape(pairs, [-1, x.shape[2] * fields])
            made = self.activation(nn.bias_add(math.matmul(flat, kernel), bias))
            maps = kernel.shape[1]
            made = array.reshape(made, [-1, width, maps])
            is_last = index + 1 == len(self._maps)
            kept = maps // 2 if self.split_half and not is_last else 0
            x = made[:, :, :kept] if kept else made
            results.append(math.reduce_sum(made[:, :, kept:], axis=1))
        return array.concat(results, -1)


class Interacting(Layer):
    """Fields that attend to each other (AutoInt, Song et al., 2019): [batch, fields, d] ->
    [batch, fields, num_heads * att_embedding_size].

    use_res: a product of the inputs is added, as in the paper. scaling: of scores, by the root of
    att_embedding_size, which the paper does not.
    Weights: query, key, value and, with use_res, residual, each [d, num_heads *
    att_embedding_size].
    """

    def __init__(
        self, att_embedding_size: int = 8, num_heads: int = 2, use_res: bool = True,
        scaling: bool = False, kernel_initializer: Any = "glorot_uniform",
        kernel_regularizer: Any = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        self.att_embedding_size = positive(self.name, "att_embedding_size", att_embedding_size)
        self.num_heads = positive(self.name, "num_heads", num_heads)
        self.use_res, self.scaling = use_res, scaling
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.kernel_regularizer = regularizers.get(kernel_regularizer)

    def build(self, input_shape: Any) -> None:
        self._extent, width = _fields_and_width(self, input_shape)
        made = [
            self.add_weight(
                (width, self.num_heads * self.att_embedding_size), self.kernel_initializer,
                regularizer=self.kernel_regularizer, name=name,
            )
            for name in ("query", "key", "value", *(("residual",) if self.use_res else ()))
        ]  # fmt: skip
        self._projections, self._residual = made[:3], made[3] if self.use_res else None

    def call(self, inputs: Any) -> Any:
        x = _fields(self, inputs)
        flat = array.reshape(x, [-1, x.shape[2]])
        shape = [-1, self._extent, self.num_heads, self.att_embedding_size]
        heads = [
            array.transpose(array.reshape(math.matmul(flat, kernel), shape), [0, 2, 1, 3])
            for kernel in self._projections
        ]
        query, key, value = heads
        scores = math.matmul(query, key, transpose_b=True)
        if self.scaling:
            scores = scores / float(np.sqrt(self.att_embedding_size))
        mixed = array.transpose(math.matmul(math.softmax(scores, -1), value), [0, 2, 1, 3])
        out = array.reshape(mixed, [-1, self.num_heads * self.att_embedding_size])
        if self._residual is not None:
            out = out + math.matmul(flat, self._residual)
        return array.reshape(nn.relu(out), [-1, self._extent, out.shape[1]])


class VectorCross(Layer):
    """x0 * (x @ vector) + bias + x: a cross of the first DCN (Wang et al., 2017), of inputs
    [x0, x], both [batch, d], as Cross; of x0 alone in the first layer."""

    def __init__(
        self, kernel_initializer: Any = "glorot_uniform", bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.bias_initializer = initializers.get(bias_initializer)
        self.kernel_regularizer = regularizers.get(kernel_regularizer)

    def build(self, input_shape: Any) -> None:
        width = check_features(self, input_shape)
        self.vector = self.add_weight(
            (width, 1), self.kernel_initializer, regularizer=self.kernel_regularizer, name="vector"
        )
        self.bias = self.add_weight((width,), self.bias_initializer, name="bias")

    def call(self, x0: Any, x: Any = None) -> Any:
        x = x0 if x is None else x
        return nn.bias_add(x0 * math.matmul(x, self.vector), self.bias) + x


class Cross(Layer):
    """x0 * (x @ kernel + bias) + x (DCN-V2, Wang et al., 2021), of x0, the inputs of the first such
    layer, and x, what the one before gave; both are [batch, d], and x is x0 in the first layer.

    projection_dim: the rank of the kernel, which is then the product of two matrices. diag_scale is
    added to the diagonal of it. preactivation: of x @ kernel + bias.
    """

    def __init__(
        self, projection_dim: int | None = None, diag_scale: float = 0.0, use_bias: bool = True,
        preactivation: Any = None, kernel_initializer: Any = "truncated_normal",
        bias_initializer: Any = "zeros", kernel_regularizer: Any = None,
        bias_regularizer: Any = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        if diag_scale < 0:
            raise ValueError(
                f"layer '{self.name}': diag_scale is {diag_scale}; it must be at least 0"
            )
        self.projection_dim, self.diag_scale, self.use_bias = projection_dim, diag_scale, use_bias
        self.preactivation = activations.get(preactivation)
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.bias_initializer = initializers.get(bias_initializer)
        self.kernel_regularizer = regularizers.get(kernel_regularizer)
        self.bias_regularizer = regularizers.get(bias_regularizer)

    def build(self, input_shape: Any) -> None:
        width = check_features(self, input_shape)
        middle = self.projection_dim
        shapes = [(width, width)] if middle is None else [(width, middle), (middle, width)]
        names = ("kernel",) if middle is None else ("kernel_u", "kernel_v")
        self._kernels = [
            self.add_weight(
                shape, self.kernel_initializer, regularizer=self.kernel_regularizer, name=name
            )
            for shape, name in zip(shapes, names)
        ]
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(
                (width,), self.bias_initializer, regularizer=self.bias_regularizer, name="bias"
            )

    def call(self, x0: Any, x: Any = None) -> Any:
        x = x0 if x is None else x
        if x0.shape[-1] != x.shape[-1]:
            raise ValueError(
                f"layer '{self.name}': x0 is {x0.shape[-1]} wide and x {x.shape[-1]}; they must be "
                "equally wide"
            )
        product = x
        for kernel in self._kernels:
            product = math.matmul(product, kernel)
        product = product if self.bias is None else nn.bias_add(product, self.bias)
        product = self.preactivation(product)
        if self.diag_scale:
            product = math.add(product, math.multiply(x, self.diag_scale))
        return math.add(math.multiply(x0, product), x)


class MMoE(Layer):
    """Experts that several tasks share, mixed for each by a gate of its own (Ma et al., 2018):
    [batch, d] -> a list of `num_tasks` tensors [batch, units].

    Weights: expert_kernels [d, units, num_experts] and expert_bias [units, num_experts], then for
    each task gate_kernel [d, num_experts] and gate_bias [num_experts].
    """

    def __init__(
        self, units: int, num_experts: int, num_tasks: int, expert_activation: Any = "relu",
        gate_activation: Any = "softmax", use_expert_bias: bool = True, use_gate_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform", bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None, kernel_constraint: Any = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        self.units = positive(self.name, "units", units)
        self.num_experts = positive(self.name, "num_experts", num_experts)
        self.num_tasks = positive(self.name, "num_tasks", num_tasks)
        self.expert_activation = activations.get(expert_activation)
        self.gate_activation = activations.get(gate_activation)
        self.use_expert_bias, self.use_gate_bias = use_expert_bias, use_gate_bias
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.bias_initializer = initializers.get(bias_initializer)
        self.kernel_regularizer = regularizers.get(kernel_regularizer)
        self.kernel_constraint = constraints.get(kernel_constraint)

    def _kernel(self, shape: tuple[int, ...], name: str) -> Any:
        return self.add_weight(
            shape, self.kernel_initializer, regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint, name=name,
        )  # fmt: skip

    def _bias(self, shape: tuple[int, ...], name: str, used: bool) -> Any:
        return self.add_weight(shape, self.bias_initializer, name=name) if used else None

    def build(self, input_shape: Any) -> None:
        width, experts = check_features(self, input_shape), self.num_experts
        self.expert_kernels = self._kernel((width, self.units, experts), "expert_kernels")
        self.expert_bias = self._bias((self.units, experts), "expert_bias", self.use_expert_bias)
        self._gates = [
            (
                self._kernel((width, experts), f"gate_kernel_{task}"),
                self._bias((experts,), f"gate_bias_{task}", self.use_gate_bias),
            )
            for task in range(self.num_tasks)
        ]

    def call(self, inputs: Any) -> list[Any]:
        width, units, experts = self.expert_kernels.shape
        flat = math.matmul(inputs, array.reshape(self.expert_kernels, [width, units * experts]))
        if self.expert_bias is not None:
            flat = nn.bias_add(flat, array.reshape(self.expert_bias, [units * experts]))
        made = array.reshape(self.expert_activation(flat), [-1, units, experts])
        results = []
        for kernel, bias in self._gates:
            gate = math.matmul(inputs, kernel)
            gate = self.gate_activation(gate if bias is None else nn.bias_add(gate, bias))
            mixed = math.multiply(made, array.expand_dims(gate, 1))
            results.append(math.reduce_sum(mixed, axis=-1))
        return results


class PLE(Layer):
    """Progressive layered extraction (Tang et al., 2020): experts that tasks share and experts of
    one task, in levels: [batch, d] -> a list of `num_tasks` tensors [batch, units].

    units: of an expert; one number for all levels. Weights of each level: of each task, and of what
    tasks share but in the last level, kernels [d, units, experts], biases and gates.
    """

    def __init__(
        self, units: int, num_tasks: int, num_levels: int = 2, shared_expert_num: int = 1,
        specific_expert_num: int = 1, expert_activation: Any = "relu",
        kernel_initializer: Any = "glorot_uniform", bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        self.units = positive(self.name, "units", units)
        self.num_tasks = positive(self.name, "num_tasks", num_tasks)
        self.num_levels = positive(self.name, "num_levels", num_levels)
        self.shared_expert_num = positive(self.name, "shared_expert_num", shared_expert_num)
        self.specific_expert_num = positive(self.name, "specific_expert_num", specific_expert_num)
        self.expert_activation = activations.get(expert_activation)
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.bias_initializer = initializers.get(bias_initializer)
        self.kernel_regularizer = regularizers.get(kernel_regularizer)

    def build(self, input_shape: Any) -> None:
        width = check_features(self, input_shape)
        shared, own = self.shared_expert_num, self.specific_expert_num
        self._levels = []
        for level in range(self.num_levels):
            is_last = level + 1 == self.num_levels
            experts = [
                self._experts(width, own if task < self.num_tasks else shared, f"{level}_{task}")
                for task in range(self.num_tasks + 1)
            ]
            # What tasks share looks at all experts; nobody asks it after the last level.
            seen = [own + shared] * self.num_tasks
            seen += [] if is_last else [own * self.num_tasks + shared]
            gates = [
                self.add_weight(
                    (width, experts), self.kernel_initializer,
                    regularizer=self.kernel_regularizer, name=f"gate_{level}_{task}",
                )
                for task, experts in enumerate(seen)
            ]  # fmt: skip
            self._levels.append((experts, gates))
            width = self.units

    def _experts(self, width: int, count: int, name: str) -> tuple[Any, Any]:
        kernel = self.add_weight(
            (width, self.units, count), self.kernel_initializer,
            regularizer=self.kernel_regularizer, name=f"expert_kernels_{name}",
        )  # fmt: skip
        bias = self.add_weight(
            (self.units, count), self.bias_initializer, name=f"expert_bias_{name}"
        )
        return kernel, bias

    def _made(self, x: Any, experts: tuple[Any, Any]) -> Any:
        """[batch, units, experts]"""
        kernel, bias = experts
        width, units, count = kernel.shape
        flat = math.matmul(x, array.reshape(kernel, [width, units * count]))
        flat = nn.bias_add(flat, array.reshape(bias, [units * count]))
        return array.reshape(self.expert_activation(flat), [-1, units, count])

    def call(self, inputs: Any) -> list[Any]:
        # Of each task, and of what they share.
        states = [inputs] * (self.num_tasks + 1)
        for experts, gates in self._levels:
            made = [self._made(x, each) for x, each in zip(states, experts)]
            sights = [array.concat([own, made[-1]], -1) for own in made[:-1]]
            sights += [] if len(gates) == self.num_tasks else [array.concat(made, -1)]
            states = [
                math.reduce_sum(
                    sight * array.expand_dims(math.softmax(math.matmul(x, gate), -1), 1), axis=-1
                )
                for x, sight, gate in zip(states, sights, gates)
            ]
        return states[: self.num_tasks]
