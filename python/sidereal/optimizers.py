"""Optimizers, applied to every variable on the parameter server where it lives, or, by
apply_gradients(), to variables of this process. Rows of embeddings change only in steps that touch
them, after the gradients of equal ids have been added.

There is a class for each row of the core's table (docs/guide/optimizers.md): SGD, Momentum,
Adagrad, Adam and so on. Their arguments are the row's parameters in its order, all of which have a
standard value, and those of every optimizer:

weight_decay: the weight loses learning_rate * weight_decay of itself (tf.keras; AdamW).
l2_penalty: l2_penalty * w is added to the gradient.
clipvalue, clipnorm, global_clipnorm: limits of each number of a gradient, of the norm of the
    gradient of each variable, and of the norm of all gradients; one of them at most.
learning_rate: a number, a value, a schedule, or a function of no arguments that gives one.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from . import _native, errors, schedules
from ._dispatch import apply, convert, state
from ._trackable import Restored
from .dtypes import float32, float64
from .gradients import GradientTape
from .indexed_slices import IndexedSlices
from .ops import clipping
from .variable import Variable

#: Arguments of all optimizers that are no parameters of their rows.
_CLIPS = ("clipnorm", "clipvalue", "global_clipnorm")
_ROWS = {row.name: row for row in _native.optimizer_rows()}


def rows() -> dict[str, _native.OptimizerRow]:
    """The core's table by the names of its rows."""
    return dict(_ROWS)


def _slot(rule: _native.UpdateRule, i: int, variable: Variable) -> Variable:
    def first() -> Any:
        shape = variable.shape[:1] if rule.slot_is_of_row(i) else variable.shape
        start = convert(rule.initial_slot(i), variable.dtype)
        return apply("Fill", (start,), {"shape": list(shape)})

    # Of numbers alone, and so the same wherever it runs.
    setattr(first, "_runs_anywhere", True)
    with variable._in_scope(), variable._beside():
        return Variable(first, trainable=False, name=f"{variable.name}/{rule.slot_name(i)}")


class _Kept:
    """What an optimizer keeps: how many steps it has made, and the slots of each variable."""

    def __init__(self) -> None:
        self.iterations = Variable(0, trainable=False, dtype="int64", name="iterations")
        self.slots: dict[int, tuple[Variable, list[Variable]]] = {}


class Optimizer(Restored):
    """Base of the optimizers."""

    #: Its row in the table.
    kind: str = ""
    __signature__: ClassVar[inspect.Signature]

    learning_rate: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not self.kind:
            raise TypeError("Optimizer is the base of SGD, Adam and so on: make one of those")
        try:
            given = self.__signature__.bind(*args, **kwargs)
        except TypeError as error:
            takes = ", ".join(self.__signature__.parameters)
            raise TypeError(f"{type(self).__name__}(): {error}; it takes {takes}") from None
        given.apply_defaults()
        values = dict(given.arguments)
        self.name = values.pop("name") or self.kind
        for name, value in values.items():
            setattr(self, name, value)
        if sum(getattr(self, name) is not None for name in _CLIPS) > 1:
            raise ValueError(f"give one of {', '.join(_CLIPS)} at most")
        for name in _CLIPS:
            limit = getattr(self, name)
            if limit is not None and not limit > 0:
                raise ValueError(f"{name} is {limit}; it must be more than 0")

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._names())
        return f"{type(self).__name__}({values})"

    @property
    def uses_step(self) -> bool:
        """Whether its updates depend on the number of the step."""
        return self._is_scheduled() or _ROWS[self.kind].uses_step

    @property
    def uses_norms(self) -> bool:
        """Whether a dense update depends on norms of the whole variable."""
        return _ROWS[self.kind].uses_norms

    @classmethod
    def _names(cls) -> list[str]:
        return [parameter[0] for parameter in _ROWS[cls.kind].parameters]

    def _given_rate(self) -> Any:
        """The learning rate as it was given: a number, a value, a schedule or a function."""
        return self.learning_rate

    def _is_scheduled(self) -> bool:
        return isinstance(self._given_rate(), schedules.LearningRateSchedule)

    def _of_row(self) -> dict[str, Any]:
        """What it says of the parameters of its row but for the learning rate."""
        return {name: getattr(self, name) for name in self._names() if name != "learning_rate"}

    def _parameters(self) -> dict[str, float]:
        """Its numbers; the learning rate is left out where it is none."""
        rate = self._given_rate()
        found = {"learning_rate": rate, **self._of_row()}
        if callable(rate) or not isinstance(rate, (bool, int, float)):
            try:
                found["learning_rate"] = None if callable(rate) else float(rate)
            except TypeError:
                found["learning_rate"] = None
        # TensorFlow says None where there is no decay.
        return {name: float(value) for name, value in found.items() if value is not None}

    def _of_model(self) -> _native.Optimizer:
        """As models take it; a schedule comes beside it."""
        parameters = self._parameters()
        if "learning_rate" not in parameters and not self._is_scheduled():
            raise errors.InvalidArgumentError(
                f"the learning rate is {self._given_rate()!r}; a Model takes a number or a schedule"
            )
        clips = {name: getattr(self, name) or 0.0 for name in _CLIPS}
        return _native.make_optimizer(self.kind, parameters, **clips)

    def _rule(self) -> _native.UpdateRule:
        return _native.UpdateRule(self.kind, self._parameters())

    def _attrs(self) -> dict[str, Any]:
        """The attributes of UpdateDense and UpdateRows."""
        parameters = self._parameters()
        parameters.pop("learning_rate", None)
        flags = {parameter[0] for parameter in _ROWS[self.kind].parameters if parameter[2]}
        return {"kind": self.kind} | {
            name: bool(value) if name in flags else value for name, value in parameters.items()
        }

    def _rate(self, step: Any) -> Any:
        """The learning rate of the step after `step` others."""
        rate = self._given_rate()
        if isinstance(rate, schedules.LearningRateSchedule):
            return rate(step)
        return rate() if callable(rate) else rate

    def _clipped(self, pairs: Sequence[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        """Pairs (gradient, variable) with smaller gradients."""
        grads = [grad for grad, _ in pairs]
        if self.clipvalue is not None:
            grads = [clipping.clip_values(grad, self.clipvalue) for grad in grads]
        if self.clipnorm is not None:
            grads = [clipping.clip_by_norm(grad, self.clipnorm) for grad in grads]
        if self.global_clipnorm is not None:
            grads = clipping.clip_by_global_norm(grads, self.global_clipnorm)[0]
        return [(grad, variable) for grad, (_, variable) in zip(grads, pairs)]

    clipnorm: float | None
    clipvalue: float | None
    global_clipnorm: float | None

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
        for _, variable in reached:
            if not isinstance(variable, Variable):
                raise TypeError(
                    f"apply_gradients() updates Variables, not {type(variable).__name__}"
                )
        if state.collector is not None and state.graph is not None:
            state.collector.contribute(self, reached)
        else:
            self._update_all(reached)

    def _update_all(
        self, pairs: Sequence[tuple[Any, Variable]], clips: bool = True, counts: bool = True
    ) -> None:
        """Updates variables by pairs, in one step. clips: gradients are made smaller first, as the
        optimizer says. counts: the step is counted."""
        with pairs[0][1]._in_scope():
            iterations = self.iterations
        step: Any = 1.0
        done: Any = 0
        if self.uses_step:  # It is perhaps on another task.
            done = iterations._quietly()
            step = apply("Cast", (done + 1,), {"dtype": float64})
        rate = self._rate(done)
        for grad, variable in self._clipped(pairs) if clips else pairs:
            self._update(grad, variable, step, rate)
        if counts:
            iterations.assign_add(1)

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

    @property
    def iterations(self) -> Variable:
        """How many steps it has made."""
        return self._kept().iterations

    def slots(self, variable: Variable) -> dict[str, Variable]:
        """What is kept for a variable, by name ("momentum", "m", "v", ...)."""
        rule = self._rule()
        kept = self._slots_of(variable)
        return {rule.slot_name(i): value for i, value in enumerate(kept)}

    def _kept(self) -> _Kept:
        kept = self.__dict__.get("_local")
        if kept is None:
            kept = self.__dict__["_local"] = _Kept()
            self._has_grown()
        return kept

    # --- In checkpoints.

    def _trackable_children(self) -> dict[str, Any]:
        # Variables that are made by the first update are made where it is.
        kept = self.__dict__.get("_local")
        found = {} if kept is None else {"iter": kept.iterations}
        rate = self._given_rate()
        return found | ({"learning_rate": rate} if isinstance(rate, Variable) else {})

    def _kept_for(self) -> set[int]:
        """The variables that it keeps something for, by id()."""
        kept = self.__dict__.get("_local")
        return set() if kept is None else set(kept.slots)

    def _slots_of(self, variable: Variable) -> list[Variable]:
        known = self._kept().slots
        if id(variable) not in known:
            rule = self._rule()
            slots = [_slot(rule, i, variable) for i in range(rule.num_slots)]
            known[id(variable)] = (variable, slots)
        return known[id(variable)][1]

    def _update(self, grad: Any, variable: Variable, step: Any, rate: Any) -> None:
        slots = self._slots_of(variable)
        is_wide = variable.dtype in (float32, float64)
        elsewhere = getattr(variable, "_update_in_place", None)
        if elsewhere is not None and is_wide:
            elsewhere(self._attrs(), grad, slots, step, rate)
            return
        if elsewhere is not None or state.graph is not None or not is_wide:
            _update_by_op(self, grad, variable, slots, step, rate)
            return
        for changed in (variable, *slots):
            changed._read = None
        rule = self._rule()
        now, size = float(step), float(rate)
        cells = [slot._cell for slot in slots]
        if isinstance(grad, IndexedSlices):
            values = convert(grad.values, variable.dtype)
            rule.apply_rows(now, size, variable._cell, cells, grad.indices, values)
        else:
            rule.apply(now, size, variable._cell, cells, convert(grad, variable.dtype))


def _as(value: Any, dtype: Any) -> Any:
    value = convert(value)
    return value if value.dtype == dtype else apply("Cast", (value,), {"dtype": dtype})


def as_float64(value: Any) -> Any:
    """A number, or a scalar of any dtype, as updates take the step and the learning rate."""
    return convert(value, float64) if isinstance(value, (int, float)) else _as(value, float64)


def _inputs_of_update(grad: Any, values: Sequence[Any], step: Any, rate: Any) -> list[Any]:
    """What ops take that update `values`: weights and slots. Those of 16 bits are float32."""
    wide = values[0].dtype if values[0].dtype in (float32, float64) else float32
    if isinstance(grad, IndexedSlices):
        change = [grad.indices, _as(grad.values, wide)]
    else:
        change = [_as(grad, wide)]
    weights, *slots = [_as(value, wide) for value in values]
    return [weights, *change, as_float64(step), as_float64(rate), *slots]


def update_values(
    optimizer: Optimizer, grad: Any, values: Sequence[Any], step: Any, rate: Any,
    norms: Sequence[Any] = (),
) -> list[Any]:  # fmt: skip
    """Weights and slots after an update of `values`, which they were; `norms`: maybe those of what
    they are a part of."""
    op = "UpdateRows" if isinstance(grad, IndexedSlices) else "UpdateDense"
    inputs = [*_inputs_of_update(grad, values, step, rate), *norms]
    new = apply(op, inputs, optimizer._attrs())
    return [_as(value, values[0].dtype) for value in ([new] if len(values) == 1 else new)]


def norms_of_values(
    optimizer: Optimizer, grad: Any, values: Sequence[Any], step: Any, rate: Any
) -> Any:
    """Squares of the norms that a dense update of `values` would use."""
    inputs = _inputs_of_update(grad, values, step, rate)
    return apply("UpdateNorms", inputs, optimizer._attrs())


def _update_by_op(
    optimizer: Optimizer, grad: Any, variable: Variable, slots: list[Variable], step: Any, rate: Any
) -> None:
    """One update as a node, which changes the memory of float32 and float64 variables in place."""
    kept = [variable, *slots]
    old = [changed._quietly() for changed in kept]
    for changed, value in zip(kept, update_values(optimizer, grad, old, step, rate)):
        changed.assign(value)


def _signature(row: _native.OptimizerRow) -> inspect.Signature:
    """The row's learning rate, then what it alone has, then what all have."""
    shared = ("weight_decay", "l2_penalty")
    own = [parameter for parameter in row.parameters if parameter[0] not in shared]
    rest = [parameter for parameter in row.parameters if parameter[0] in shared]
    made = [
        inspect.Parameter(
            name, inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=bool(standard) if is_flag else standard,
        )
        for name, standard, is_flag, _, _ in [*own, *rest]
    ]  # fmt: skip
    made += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None)
        for name in (*_CLIPS, "name")
    ]
    return inspect.Signature(made)


def _class_of(row: _native.OptimizerRow) -> type[Optimizer]:
    lines = [f"{row.doc}.", "", f"{row.formula}.", ""]
    for name, standard, is_flag, values, doc in row.parameters:
        shown = bool(standard) if is_flag else standard
        lines.append(f"{name}: {doc} {values}; {shown} if absent.")
    members = {
        "kind": row.name,
        "__doc__": "\n".join(lines),
        "__module__": __name__,
        "__signature__": _signature(row),
    }
    return type(row.class_name, (Optimizer,), members)


_CLASSES = {row.class_name: _class_of(row) for row in _ROWS.values()}
globals().update(_CLASSES)

__all__ = ["Optimizer", "get", "schedules", *_CLASSES]


def __getattr__(name: str) -> Any:
    raise AttributeError(f"no optimizer {name}; the classes are: {', '.join(_CLASSES)}")


def __dir__() -> list[str]:
    return list(__all__)


def get(optimizer: Optimizer | str) -> Optimizer:
    """The optimizer itself, or the one of that name ("adam", or its class, "Adam") with its
    defaults."""
    if isinstance(optimizer, Optimizer):
        return optimizer
    wanted = str(optimizer).lower()
    for made in _CLASSES.values():
        if wanted in (made.kind, made.__name__.lower()):
            return made()
    names = _native.optimizer_names()
    near = difflib.get_close_matches(wanted, names, 1)
    meant = f", perhaps {near[0]!r}" if near else ""
    raise ValueError(f"no optimizer {optimizer!r}{meant}; the optimizers are: {', '.join(names)}")
