"""Layers of click models: factorization machines, crosses, mixtures of experts."""

from __future__ import annotations

from typing import Any

from ..._dispatch import apply
from ...ops import array, math, nn
from .. import activations, constraints, initializers, regularizers
from .._layer import Layer, check_features
from ._shapes import rank_of


class FM(Layer):
    """The sum of the inner products of all pairs of fields (Rendle, 2010): [batch, fields, d] ->
    [batch, 1]; of a list of inputs [batch, d] each is a field."""

    def call(self, inputs: Any) -> Any:
        if isinstance(inputs, (list, tuple)):
            inputs = array.stack(list(inputs), axis=1)
        if rank_of(self.name, inputs) != 3:
            raise ValueError(
                f"layer '{self.name}' takes [batch, fields, d]; the inputs have shape "
                f"{tuple(inputs.shape)}"
            )
        return apply("FmInteraction", (inputs,))


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
        for name, value in (
            ("units", units), ("num_experts", num_experts), ("num_tasks", num_tasks)
        ):  # fmt: skip
            if not isinstance(value, int) or value <= 0:
                raise ValueError(
                    f"layer '{self.name}': {name} is {value!r}; it must be a positive integer"
                )
        self.units, self.num_experts, self.num_tasks = units, num_experts, num_tasks
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
