"""Optimizers, applied to every variable on the parameter server where it lives, or, by
apply_gradients(), to variables of this process. Rows of embeddings change only in steps that touch
them, after the gradients of equal ids have been added.

`weight_decay` is an L2 penalty: weight_decay * w is added to the gradient of what is updated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from . import _native, errors
from ._dispatch import apply, convert, state
from .dtypes import float32, float64
from .gradients import GradientTape
from .indexed_slices import IndexedSlices
from .ops import array
from .ops import math as math_ops
from .variable import Variable


class _Slots:
    """What an optimizer keeps for one variable: how often it was updated, and its slots."""

    def __init__(self, rule: _native.UpdateRule, variable: Variable) -> None:
        self.variable = variable
        self.step = Variable(0.0, trainable=False, dtype=float64, name=f"{variable.name}/step")
        self.values = [
            Variable(
                lambda i=i: apply("Add", (
                    apply("ZerosLike", (variable._present(),)),
                    convert(rule.initial_slot(i), variable.dtype),
                )),
                trainable=False,
                name=f"{variable.name}/{rule.slot_name(i)}",
            )
            for i in range(rule.num_slots)
        ]


@dataclass(frozen=True)
class Optimizer:
    """Base of the optimizers."""

    kind: ClassVar[str] = ""

    def _parameters(self) -> dict[str, float]:
        return {key: float(value) for key, value in asdict(self).items()}

    def _native(self) -> _native.Optimizer:
        return _native.make_optimizer(self.kind, self._parameters())

    def apply_gradients(self, grads_and_vars: Iterable[tuple[Any, Variable]]) -> None:
        """Updates variables of this process by pairs (gradient, variable). A gradient is a tensor
        or IndexedSlices, whose rows alone are then updated; pairs with None are left out. The
        formulas are those of the parameter servers. Works inside of a sidereal.function as well."""
        pairs = list(grads_and_vars)
        reached = [(grad, variable) for grad, variable in pairs if grad is not None]
        if not reached:
            names = ", ".join(variable.name for _, variable in pairs)
            raise errors.InvalidArgumentError(
                f"no gradient is given for any variable of: {names or 'an empty list'}"
            )
        for grad, variable in reached:
            if not isinstance(variable, Variable):
                raise TypeError(
                    f"apply_gradients() updates Variables, not {type(variable).__name__}"
                )
            self._update(grad, variable, self._slots_of(variable))

    def minimize(
        self,
        loss: Callable[[], Any],
        var_list: Sequence[Variable],
        tape: GradientTape | None = None,
    ) -> None:
        """One step down: the gradients of loss() by `var_list`, applied. With a `tape`, `loss` is a
        value that was computed under it."""
        if tape is None:
            with GradientTape() as tape:
                loss = loss()
        self.apply_gradients(zip(tape.gradient(loss, list(var_list)), var_list))

    def slots(self, variable: Variable) -> dict[str, Variable]:
        """What is kept for a variable, by name ("momentum", "m", "v", ...)."""
        rule = _native.UpdateRule(self.kind, self._parameters())
        kept = self._slots_of(variable)
        return {rule.slot_name(i): value for i, value in enumerate(kept.values)}

    def _slots_of(self, variable: Variable) -> _Slots:
        known: dict[int, _Slots] = self.__dict__.setdefault("_local", {})
        if id(variable) not in known:
            rule = _native.UpdateRule(self.kind, self._parameters())
            known[id(variable)] = _Slots(rule, variable)
        return known[id(variable)]

    def _update(self, grad: Any, variable: Variable, slots: _Slots) -> None:
        if state.graph is not None or variable.dtype != float32:
            _update_by_ops(self, grad, variable, slots)
            return
        rule = _native.UpdateRule(self.kind, self._parameters())
        slots.step.assign_add(1)
        cells = [slot._cell for slot in slots.values]
        for changed in (variable, *slots.values):
            changed._read = None
        step = int(slots.step)
        if isinstance(grad, IndexedSlices):
            values = convert(grad.values, variable.dtype)
            rule.apply_rows(step, variable._cell, cells, grad.indices, values)
        else:
            rule.apply(step, variable._cell, cells, convert(grad, variable.dtype))


def _update_by_ops(optimizer: Any, grad: Any, variable: Variable, slots: _Slots) -> None:
    """One update in ops: in graphs, and in float64."""
    step = apply("Add", (slots.step._quietly(), convert(1.0, float64)))
    slots.step.assign(step)
    if variable.dtype == float32:
        _update_by_rule(optimizer, grad, variable, slots, step)
        return
    w = variable._quietly()
    old = [slot._quietly() for slot in slots.values]
    if not isinstance(grad, IndexedSlices):
        delta, new = change(optimizer, convert(grad, variable.dtype), w, old, step)
        for slot, value in zip(slots.values, new):
            slot.assign(value)
        variable.assign(w - delta)
        return
    rows, place = array.unique(grad.indices)
    sums = math_ops.unsorted_segment_sum(
        convert(grad.values, variable.dtype), place, array.size(rows)
    )
    w_rows = array.gather(w, rows)
    delta, new = change(
        optimizer, sums, w_rows, [array.gather(slot, rows) for slot in old], step
    )
    where = array.expand_dims(rows, -1)
    for slot, before, value in zip(slots.values, old, new):
        slot.assign(array.tensor_scatter_nd_update(before, where, value))
    variable.assign(array.tensor_scatter_nd_update(w, where, w_rows - delta))


def _update_by_rule(
    optimizer: Any, grad: Any, variable: Variable, slots: _Slots, step: Any
) -> None:
    """One update as a node, which changes the memory of the variables in place."""
    parameters = optimizer._parameters()
    attrs = {name: value for name, value in parameters.items() if name in RULE_ATTRS}
    attrs |= {"kind": optimizer.kind, "nesterov": bool(parameters.get("nesterov", False))}
    if isinstance(grad, IndexedSlices):
        op, change = "UpdateRows", [grad.indices, convert(grad.values, float32)]
    else:
        op, change = "UpdateDense", [convert(grad, float32)]
    kept = [variable, *slots.values]
    old = [changed._quietly() for changed in kept]
    new = apply(op, (old[0], *change, step, *old[1:]), attrs)
    for changed, value in zip(kept, [new] if len(kept) == 1 else new):
        changed.assign(value)


#: Parameters of optimizers that are attributes of UpdateDense and UpdateRows.
RULE_ATTRS = {
    "learning_rate", "weight_decay", "momentum", "beta1", "beta2", "epsilon", "l1", "l2",
    "lr_power",
}  # fmt: skip


def change(o: Any, g: Any, w: Any, old: list[Any], step: Any) -> tuple[Any, list[Any]]:
    """What is subtracted from w, and the new slots: the formulas of kernels/optimizer.h."""
    if o.weight_decay:
        g = g + o.weight_decay * w
    if o.kind == "sgd":
        return o.learning_rate * g, []
    if o.kind == "momentum":
        m = o.momentum * old[0] + g
        return o.learning_rate * (g + o.momentum * m if o.nesterov else m), [m]
    if o.kind == "adagrad":
        total = old[0] + g * g
        return o.learning_rate * g / (_op("Sqrt", total) + o.epsilon), [total]
    if o.kind == "adam":
        m = o.beta1 * old[0] + (1 - o.beta1) * g
        v = o.beta2 * old[1] + (1 - o.beta2) * g * g
        root = _as(_op("Sqrt", 1.0 - _power(o.beta2, step)), w)
        rate = _as(o.learning_rate / (1.0 - _power(o.beta1, step)), w)
        return rate * m / (_op("Sqrt", v) / root + o.epsilon), [m, v]
    n = old[0] + g * g
    rooted = _ftrl_power(n, o.lr_power)
    z = old[1] + g - (rooted - _ftrl_power(old[0], o.lr_power)) / o.learning_rate * w
    shrunk = _op("Sign", z) * _op("Relu", _op("Abs", z) - o.l1)
    return w + shrunk / (rooted / o.learning_rate + 2 * o.l2), [n, z]


def _as(x: Any, like: Any) -> Any:
    return apply("Cast", (x,), {"dtype": like.dtype})


def _op(name: str, x: Any) -> Any:
    return apply(name, (x,))


def _power(base: float, exponent: Any) -> Any:
    """base ** exponent of a float64 tensor; 0 for base 0."""
    return _op("Exp", math.log(base) * exponent) if base > 0 else 0.0 * exponent


def _ftrl_power(n: Any, lr_power: float) -> Any:
    return _op("Sqrt", n) if lr_power == -0.5 else _op("Exp", -lr_power * _op("Log", n))


@dataclass(frozen=True)
class Sgd(Optimizer):
    """w -= learning_rate * g."""

    kind: ClassVar[str] = "sgd"
    learning_rate: float = 0.01
    weight_decay: float = 0.0


@dataclass(frozen=True)
class Momentum(Optimizer):
    """SGD with momentum, Nesterov's if asked for."""

    kind: ClassVar[str] = "momentum"
    learning_rate: float = 0.01
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 0.0


@dataclass(frozen=True)
class Adagrad(Optimizer):
    """Duchi et al., 2011."""

    kind: ClassVar[str] = "adagrad"
    learning_rate: float = 0.05
    initial_accumulator: float = 0.1
    epsilon: float = 1e-7
    weight_decay: float = 0.0


@dataclass(frozen=True)
class Adam(Optimizer):
    """Kingma and Ba, 2015; on embeddings for the touched rows only."""

    kind: ClassVar[str] = "adam"
    learning_rate: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0


@dataclass(frozen=True)
class Ftrl(Optimizer):
    """McMahan et al., 2013."""

    kind: ClassVar[str] = "ftrl"
    learning_rate: float = 0.05
    l1: float = 0.0
    l2: float = 0.0
    lr_power: float = -0.5
    initial_accumulator: float = 0.1
    weight_decay: float = 0.0


def get(optimizer: Optimizer | str) -> Optimizer:
    """The optimizer itself, or the one of that name ("adam") with its defaults."""
    if isinstance(optimizer, Optimizer):
        return optimizer
    for cls in (Sgd, Momentum, Adagrad, Adam, Ftrl):
        if optimizer == cls.kind:
            return cls()
    names = ", ".join(_native.optimizer_names())
    raise ValueError(f"no optimizer {optimizer!r}; the optimizers are: {names}")
