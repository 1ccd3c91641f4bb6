"""Optimizers with Keras' names, arguments and defaults (keras.optimizers): each is a row of the
table of sidereal.optimizers, by whose formulas it updates variables.

    optimizer = keras.optimizers.Adam(learning_rate=1e-2)
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
    optimizer.learning_rate = 1e-3

A learning rate that is a number is held in a variable, so that functions that were traced follow
when it is changed; a schedule (keras.optimizers.schedules) is computed from `iterations`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from .. import errors, optimizers, schedules
from .._dispatch import convert, state
from ..indexed_slices import IndexedSlices
from ..ops import math
from ..variable import CutVariable, Variable, creating
from . import _configs
from ._configs import Registry, get_registered_object, parameter

Values = dict[str, Any]

#: Arguments that all have, with what Keras takes them to be. Those of the second group stand here
#: for their defaults alone.
_SHARED = {"weight_decay": None, "clipnorm": None, "clipvalue": None, "global_clipnorm": None}
_NOT_THERE = {
    "use_ema": False, "ema_momentum": 0.99, "ema_overwrite_frequency": None,
    "loss_scale_factor": None, "gradient_accumulation_steps": None,
}  # fmt: skip


class Optimizer(optimizers.Optimizer):
    """Base of the optimizers. Their arguments are those of Keras; averages of weights (use_ema),
    loss scaling and accumulation of gradients are not there."""

    #: From Keras' own arguments to parameters of the row, those left out being standard.
    _translate: ClassVar[Callable[[Values], Values]]
    #: Whether the row's weight_decay is another one than Keras'.
    _decays_first = False
    #: Whether Keras sums steps where the row sums gradients.
    _sums_steps = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not self.kind:
            raise TypeError("Optimizer is the base of SGD, Adam and so on: make one of those")
        try:
            given = self.__signature__.bind(*args, **kwargs)
        except TypeError as error:
            known = ", ".join(self.__signature__.parameters)
            raise TypeError(f"{type(self).__name__}(): {error}; it takes {known}") from None
        given.apply_defaults()
        self._values = dict(given.arguments)
        for name, standard in _NOT_THERE.items():
            if self._values[name] != standard:
                raise errors.UnimplementedError(
                    f"{type(self).__name__}: {name} is not there; leave it {standard!r}"
                )
        self.name = self._values.pop("name") or type(self).__name__.lower()
        self._scheduled: Any = None
        self._rate_variable: Variable | None = None
        for name, value in self._values.items():
            if name != "learning_rate" and isinstance(value, (str, bytes)):
                raise ValueError(f"{type(self).__name__}: {name} is {value!r}; give a number")
            setattr(self, name, value)
        if creating.creators:
            self._kept()  # The variables of a scope are those made in it.
        limits = {name: self._values[name] for name in _SHARED if name.startswith(("clip", "glo"))}
        if sum(limit is not None for limit in limits.values()) > 1:
            raise ValueError(
                f"{type(self).__name__}: give one of {', '.join(limits)} at most"
            )
        if self._values.get("amsgrad"):
            self.kind = "adam"
        if self.kind == "sgd" and self._values["momentum"]:
            self._sums_steps = self._decays_first = True

    @property
    def learning_rate(self) -> Any:
        """The learning rate: a variable, or the value of a schedule now. Set to a number, the
        variable gets it; a schedule may be given as its config."""
        if self._rate_variable is not None:
            return self._rate_variable
        rate = self._scheduled
        return rate(self.iterations) if self._is_scheduled() else rate()

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        if isinstance(value, Mapping):
            value = _configs.deserialize({"module": _SCHEDULES.module, **value})
        if isinstance(value, (str, bytes)) or value is None:
            raise ValueError(
                f"{type(self).__name__}: learning_rate is {value!r}; give a number, a "
                "LearningRateSchedule, or a function"
            )
        if isinstance(value, schedules.LearningRateSchedule) or (
            callable(value) and not isinstance(value, Variable)
        ):
            self._scheduled, self._rate_variable = value, None
        elif self._scheduled is not None:
            raise TypeError(
                f"{self.name} computes its learning rate from the steps, by a schedule or a "
                "function; it cannot be set to a number"
            )
        elif self._rate_variable is not None:
            self._rate_variable.assign(math.cast(convert(value), "float32"))
        else:
            with state.at_once():
                first = math.cast(convert(value), "float32")
            self._rate_variable = Variable(first, trainable=False, name="learning_rate")

    def _given_rate(self) -> Any:
        return self._scheduled if self._rate_variable is None else self._rate_variable

    def _parameters(self) -> dict[str, float]:
        if state.graph is not None and self._rate_variable is not None:
            # It is an input of the updates.
            return {name: float(x) for name, x in self._of_row().items() if x is not None}
        with state.at_once():
            return super()._parameters()

    def _of_row(self) -> dict[str, Any]:
        found = type(self)._translate(self._values)
        if self.weight_decay is not None and not self._decays_first:
            found["weight_decay"] = self.weight_decay
        return found

    weight_decay: float | None

    def apply_gradients(self, grads_and_vars: Iterable[tuple[Any, Variable]]) -> None:
        """Updates variables by pairs (gradient, variable), and then brings those that have a
        constraint to it. Pairs with None are left out; all None is a ValueError."""
        is_one = hasattr(grads_and_vars, "dtype")
        given: list[Any] = [grads_and_vars] if is_one else list(grads_and_vars)
        for each in given:
            if not isinstance(each, (tuple, list)) or len(each) != 2:
                raise TypeError(
                    f"{type(self).__name__}.apply_gradients() takes pairs (gradient, variable), as "
                    f"zip(gradients, variables) gives them, and not {each!r}"
                )
        super().apply_gradients([(grad, variable) for grad, variable in given])

    def _update_all(
        self, pairs: Sequence[tuple[Any, Variable]], clips: bool = True, counts: bool = True
    ) -> None:
        super()._update_all(pairs, clips, counts)
        for _, variable in pairs:
            if variable.constraint is not None:
                variable.assign(variable.constraint(variable))

    def apply(self, grads: Sequence[Any], trainable_variables: Any = None) -> None:
        """apply_gradients() of the variables that are given, or those of build()."""
        variables = self._built if trainable_variables is None else list(trainable_variables)
        if len(grads) != len(variables):
            raise ValueError(f"{len(grads)} gradients are given for {len(variables)} variables")
        self.apply_gradients(zip(grads, variables))

    def exclude_from_weight_decay(
        self, var_list: Iterable[Variable] | None = None, var_names: Iterable[str] | None = None
    ) -> None:
        """Variables, and parts of names of variables, that weight_decay leaves alone."""
        self._excluded = {
            id(shard)
            for each in var_list or ()
            for shard in (each.variables if isinstance(each, CutVariable) else [each])
        }
        self._excluded_names = tuple(var_names or ())

    def _has_decay(self, variable: Variable) -> bool:
        return id(variable) not in self._excluded and not any(
            name in variable.name for name in self._excluded_names
        )

    _excluded: set[int] = set()
    _excluded_names: tuple[str, ...] = ()
    _built: Sequence[Variable] = ()

    def build(self, variables: Iterable[Variable]) -> None:
        """Makes what is kept for each variable, which the first update does otherwise."""
        self._built = list(variables)
        for variable in self._built:
            self._slots_of(variable)

    def _update(self, grad: Any, variable: Variable, step: Any, rate: Any) -> None:
        decay = self.weight_decay
        if not self._has_decay(variable):
            self.weight_decay = None
        try:
            self._update_one(grad, variable, step, rate)
        finally:
            self.weight_decay = decay

    def _update_one(self, grad: Any, variable: Variable, step: Any, rate: Any) -> None:
        if self._decays_first and self.weight_decay is not None:
            lost = math.multiply(math.cast(convert(rate), variable.dtype), self.weight_decay)
            variable.assign_sub(math.multiply(variable, lost))
        if self._sums_steps:
            # Steps are gradients times the rate, of which the row's sum is taken as it is.
            grad, rate = _scaled(grad, rate), 1.0
        super()._update(grad, variable, step, rate)

    @property
    def variables(self) -> list[Variable]:
        """What it keeps: iterations, the learning rate, and the slots of variables."""
        kept = self._kept()
        rate = [] if self._rate_variable is None else [self._rate_variable]
        slots = [slot for _, slots in kept.slots.values() for slot in slots]
        return [kept.iterations, *rate, *slots]

    def get_config(self) -> dict[str, Any]:
        """Its name and the arguments it was made with, the learning rate as it is now."""
        rate = self._given_rate()
        rate = float(rate) if isinstance(rate, Variable) else rate
        if isinstance(rate, schedules.LearningRateSchedule):
            rate = _configs.serialize(rate)
        return {"name": self.name, **self._values, "learning_rate": rate}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Any:
        """An optimizer like the one that gave this config."""
        return cls(**config)

    def __repr__(self) -> str:
        values = self.get_config()
        shown = (f"{name}={values[name]!r}" for name in ("learning_rate", *self._own))
        return f"{type(self).__name__}({', '.join(shown)})"

    _own: ClassVar[Sequence[str]] = ()


def _scaled(grad: Any, rate: Any) -> Any:
    if isinstance(grad, IndexedSlices):
        return IndexedSlices(_scaled(grad.values, rate), grad.indices, grad.dense_shape)
    grad = convert(grad)
    return math.multiply(grad, math.cast(convert(rate), grad.dtype))


class _Like(NamedTuple):
    """How an optimizer of Keras is made of a row.

    row: its name. own: Keras' arguments in its order, those in `differing` with another default
    than the row's. translate: see Optimizer.
    """

    row: str
    own: Sequence[str]
    differing: Mapping[str, Any]
    translate: Callable[[Values], Values] | None = None
    decays_first: bool = False


def _adam(values: Values) -> Values:
    names = ("beta_1", "beta_2", "epsilon", "amsgrad")
    # The row of the plain formula has no amsgrad.
    return {name: values[name] for name in names if name != "amsgrad" or values[name]}


def _nadam(values: Values) -> Values:
    return {**{name: values[name] for name in ("beta_1", "beta_2", "epsilon")}, "momentum_decay": 1}


def _adagrad(values: Values) -> Values:
    # Keras' root is of the sum and epsilon.
    first = values["initial_accumulator_value"] + values["epsilon"]
    return {"initial_accumulator_value": first, "epsilon": 0.0}


def _rmsprop(values: Values) -> Values:
    kept = {name: values[name] for name in ("rho", "momentum", "centered")}
    return {**kept, "epsilon_inside": values["epsilon"], "epsilon": 0.0}


_BETAS = ("beta_1", "beta_2", "epsilon")
_TABLE = {
    "SGD": _Like("sgd", ("momentum", "nesterov"), {}),
    "Adam": _Like("adam_async", (*_BETAS, "amsgrad"), {"epsilon": 1e-7, "amsgrad": False}, _adam),
    "AdamW": _Like(
        "adam_async", ("weight_decay", *_BETAS, "amsgrad"),
        {"weight_decay": 0.004, "epsilon": 1e-7, "amsgrad": False}, _adam,
    ),
    "Adamax": _Like("adamax", _BETAS, {"epsilon": 1e-7}),
    "Nadam": _Like("nadam", _BETAS, {"epsilon": 1e-7}, _nadam),
    "Adagrad": _Like(
        "adagrad", ("initial_accumulator_value", "epsilon"), {"learning_rate": 0.001}, _adagrad
    ),
    "Adadelta": _Like("adadelta", ("rho", "epsilon"), {}),
    "RMSprop": _Like("rmsprop", ("rho", "momentum", "epsilon", "centered"), {}, _rmsprop),
    "Ftrl": _Like(
        "ftrl",
        (
            "learning_rate_power", "initial_accumulator_value", "l1_regularization_strength",
            "l2_regularization_strength", "l2_shrinkage_regularization_strength", "beta",
        ),
        {"learning_rate": 0.001},
    ),
    "Lion": _Like("lion", ("beta_1", "beta_2"), {}),
    "Lamb": _Like("lamb", _BETAS, {"epsilon": 1e-7}, decays_first=True),
}  # fmt: skip


def _others() -> dict[str, _Like]:
    """The rows that Keras does not have, under their own names and with their own defaults."""
    found = {}
    taken = {*_TABLE, "Momentum"}
    for row in optimizers.rows().values():
        names = [each[0] for each in row.parameters]
        own = [each for each in names if each not in (*_SHARED, "learning_rate", "l2_penalty")]
        if row.class_name not in taken:
            found[row.class_name] = _Like(row.name, own, {})
    return found


def _class_of(name: str, like: _Like) -> type[Optimizer]:
    row = optimizers.rows()[like.row]
    standard: Values = {
        each: bool(value) if is_flag else value for each, value, is_flag, _, _ in row.parameters
    }
    standard |= like.differing
    arguments = {each: standard[each] for each in ("learning_rate", *like.own)}
    arguments |= {each: value for each, value in _SHARED.items() if each not in like.own}
    arguments |= _NOT_THERE

    def same(values: Values) -> Values:
        return {each: values[each] for each in like.own}

    members = {
        "kind": like.row,
        "_own": like.own,
        "_translate": staticmethod(like.translate or same),
        "_decays_first": like.decays_first,
        "__doc__": f"keras.optimizers.{name}: the row `{like.row}` of sidereal.optimizers, "
        f"{row.doc[:1].lower()}{row.doc[1:]}. {row.formula}.",
        "__module__": __name__,
        "__signature__": inspect.Signature(
            [*(parameter(each, value) for each, value in arguments.items()),
             parameter("name", None)]
        ),
    }  # fmt: skip
    return type(name, (Optimizer,), members)


_CLASSES = {name: _class_of(name, like) for name, like in (_TABLE | _others()).items()}
globals().update(_CLASSES)
Registry("keras.optimizers", _CLASSES.values())
_SCHEDULES = Registry(
    "keras.optimizers.schedules",
    [
        each for each in vars(schedules).values()
        if isinstance(each, type) and issubclass(each, schedules.LearningRateSchedule)
    ],
)  # fmt: skip

__all__ = ["Optimizer", "deserialize", "get", "schedules", "serialize", *_CLASSES]


def __getattr__(name: str) -> Any:
    if name == "legacy":  # What Keras 2 had before: the same rules.
        return sys.modules[__name__]
    raise AttributeError(f"no optimizer {name}; the classes are: {', '.join(_CLASSES)}")


def serialize(optimizer: Optimizer) -> dict[str, Any]:
    """An optimizer as the name of its class and its config."""
    made: dict[str, Any] = _configs.serialize(optimizer)
    return made


def deserialize(config: Mapping[str, Any], custom_objects: Any = None) -> Any:
    """The optimizer that serialize() gave this for."""
    if config.get("registered_name"):
        return _configs.deserialize(config, custom_objects)
    made = get_registered_object(config["class_name"], custom_objects, _CLASSES)
    if made is None:
        raise ValueError(
            f"keras.optimizers has nothing called {config['class_name']!r}; there are: "
            f"{', '.join(_CLASSES)}"
        )
    return made.from_config(config.get("config") or {})


def get(identifier: Any) -> Any:
    """An optimizer from itself, a name ("adam"), its class or a config."""
    if isinstance(identifier, Optimizer):
        return identifier
    if isinstance(identifier, Mapping):
        return deserialize(identifier)
    if inspect.isclass(identifier) and issubclass(identifier, Optimizer):
        return identifier()
    for name, cls in _CLASSES.items():
        if isinstance(identifier, str) and identifier.lower() == name.lower():
            return cls()
    if isinstance(identifier, optimizers.Optimizer):
        raise ValueError(
            f"{identifier!r} is one of sidereal.optimizers, whose learning rate is a constant of "
            "functions; models take those of keras.optimizers"
        )
    raise ValueError(f"{identifier!r} is no optimizer; there are: {', '.join(_CLASSES)}")
