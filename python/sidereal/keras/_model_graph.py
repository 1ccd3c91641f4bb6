"""Layers that are called on values of a sidereal.Model: their weights are variables of the model,
on the parameter servers of the cluster that it is trained on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import _native, dtypes, errors
from .._dispatch import apply, state
from .._graphs import graph_of
from .._native import Output, Tensor
from .._tensor import install_shared
from ..ops import math
from . import initializers, regularizers


class WhileTraining:
    """What layers of a model are told as `training`: the graph is one for both, and Dropout is in
    it what it is while steps train, and nothing where they predict."""

    def __bool__(self) -> bool:
        raise errors.FailedPreconditionError(
            "whether a sidereal.Model is in training is known when its steps run, not when layers "
            "are called: pass `training` on to a layer like Dropout, or call the layer with "
            "training=True or training=False"
        )

    def __repr__(self) -> str:
        return "while training"


WHILE_TRAINING = WhileTraining()


class Parts:
    """What a model knows of the layers that are part of it."""

    def __init__(self) -> None:
        self.layers: set[str] = set()
        self.variables: set[str] = set()
        #: The masks of values that layers gave, by (node, index).
        self.masks: dict[tuple[int, int], Any] = {}

    def name(self, kind: str) -> str:
        """A name for a layer that was given none: its kind, then kind_1, kind_2, ..."""
        number, name = 0, kind
        while name in self.layers:
            number += 1
            name = f"{kind}_{number}"
        return name


def parts_of(model: _native.Model) -> Parts:
    """What a model knows of its layers."""
    made: Parts = model.__dict__.setdefault("parts", Parts())
    return made


def model_of(leaves: Sequence[Any]) -> _native.Model | None:
    """The model that is being built, if some of these are values of one, or a branch or loop of it
    is being traced."""
    graph = state.graph
    if graph is None:
        for leaf in leaves:
            if type(leaf) is Output and isinstance(leaf.graph, _native.Model):
                return leaf.graph
        return None
    while graph is not None:
        if isinstance(graph.native, _native.Model):
            return graph.native
        graph = graph.outer
    return None


class ModelVariable:
    """A weight of a layer of a sidereal.Model. It stands for its value in the graph of the model;
    model.get_variable(name) reads what that is."""

    regularizer = constraint = _home = None

    def __init__(
        self, name: str, shape: tuple[int, ...], dtype: Any, trainable: bool, handle: Output
    ) -> None:
        self._describe(name, shape, dtype, trainable, handle)
        attrs = {"dtype": dtype, "shape": shape}
        self._value: Any = graph_of(handle).add("VariableRead", [handle], attrs, f"{name}/read")

    def _describe(
        self, name: str, shape: tuple[int, ...], dtype: Any, trainable: bool, handle: Output
    ) -> None:
        self.name, self.shape, self.dtype = name, shape, dtype
        self._trainable, self._handle = trainable, handle

    @property
    def trainable(self) -> bool:
        """Whether steps change it."""
        return self._trainable

    @trainable.setter
    def trainable(self, value: bool) -> None:
        if value != self._trainable and dtypes.is_floating(self.dtype):
            raise errors.FailedPreconditionError(
                f"variable '{self.name}' is part of a sidereal.Model already; say what is "
                "`trainable` of a layer before it is called"
            )

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def _as_tensor(self) -> Any:
        return self._value

    def value(self) -> Any:
        """Its value in the graph of the model."""
        return self._as_tensor()

    read_value = value

    def _elsewhere(self, *_: Any) -> Any:
        raise errors.FailedPreconditionError(
            f"variable '{self.name}' is one of a sidereal.Model and lives on its parameter servers:"
            f" get_variable('{self.name}') of the model reads it, and fit() alone changes it"
        )

    numpy = assign = assign_add = assign_sub = __array__ = _elsewhere

    def __iter__(self) -> Any:
        return iter(self._as_tensor())

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} '{self.name}' shape={self.shape} "
            f"dtype={dtypes.name_of(self.dtype)}>"
        )


install_shared(ModelVariable)


class ModelTable(ModelVariable):
    """One of which rows are read: it is spread over all parameter servers."""

    def __init__(
        self, name: str, shape: tuple[int, ...], dtype: Any, trainable: bool, handle: Output
    ) -> None:
        self._describe(name, shape, dtype, trainable, handle)

    def _as_tensor(self) -> Any:
        raise errors.UnimplementedError(
            f"table '{self.name}' of a sidereal.Model is not read whole: look rows of it up, or "
            "have a layer of your own that makes a weight by add_weight()"
        )

    def _gather(self, indices: Any, name: str | None) -> Any:
        """For gather() along the first dimension."""
        rows, dim = self.shape
        ids = math.cast(indices, "int64")
        return apply("EmbeddingLookup", (ids, self._handle), {"rows": rows, "dim": dim}, name=name)


def add_variable(
    model: _native.Model, name: str, shape: tuple[int, ...], dtype: Any,
    make: Callable[..., Any], trainable: bool, regularizer: Any, constraint: Any, is_table: bool,
) -> ModelVariable:  # fmt: skip
    """A variable of a model, which starts as an initializer says."""
    parts = parts_of(model)
    if name in parts.variables:
        raise errors.AlreadyExistsError(
            f"the model has a variable '{name}' already: give one of the layers another name, or "
            "call one layer twice to share its weights"
        )
    if constraint is not None:
        raise errors.UnimplementedError(
            f"weight '{name}': constraints are not kept in a sidereal.Model; leave it out"
        )
    l2 = _penalty(name, regularizer)
    start, value = _start(model, make, shape, dtype)
    kind = dtypes.name_of(dtype)
    handle = model.variable(name, shape, kind, start, value, l2, is_table, trainable)
    parts.variables.add(name)
    return (ModelTable if is_table else ModelVariable)(name, shape, dtype, trainable, handle)


def check_home(name: str, weights: Sequence[Any], model: _native.Model | None) -> None:
    """FailedPreconditionError for a layer that is called with values of `model` (None: others),
    and has its weights elsewhere."""
    if any(isinstance(each, ModelVariable) for each in weights):
        raise errors.FailedPreconditionError(
            f"layer '{name}' is part of a sidereal.Model and has its weights there; it is called "
            f"with {'tensors' if model is None else 'values of another model'}. Make a layer for "
            "each"
        )
    # Those of layers of preprocessing are numbers to them by now.
    if model is not None and any(getattr(each, "trainable", False) for each in weights):
        raise errors.FailedPreconditionError(
            f"layer '{name}' has its weights in this process, since it was built or called before; "
            "it cannot be part of a sidereal.Model, whose variables live on parameter servers. "
            "Make another layer for that"
        )


def _penalty(name: str, regularizer: Any) -> float:
    """What is added to gradients, times the weight: the gradient of l2 sum(x^2)."""
    if regularizer is None:
        return 0.0
    l1 = getattr(regularizer, "l1", 0.0)
    if not isinstance(regularizer, (regularizers.L2, regularizers.L1L2)) or l1:
        raise errors.UnimplementedError(
            f"weight '{name}': {type(regularizer).__name__} is no penalty of a sidereal.Model; "
            "take keras.regularizers.L2, or add it to the loss that compile() is given"
        )
    return 2.0 * float(regularizer.l2)


def _start(
    model: _native.Model, make: Any, shape: tuple[int, ...], dtype: Any
) -> tuple[_native.Initializer, Tensor | None]:
    """How a variable starts: by what servers can make themselves, else by a value."""
    known = isinstance(make, initializers.Initializer)
    native = make._on_servers(shape, dtype) if known else None
    if native is not None:
        return native, None
    if known and "seed" in make._arguments and make._arguments["seed"] is None:
        # The seed of the model decides, as of those that servers make.
        make = type(make).from_config({**make.get_config(), "seed": model.next_seed() >> 32})
    with state.at_once():
        value = make(shape, dtype)
    return _native.Initializer(), value


__all__ = [
    "WHILE_TRAINING", "ModelTable", "ModelVariable", "Parts", "add_variable", "check_home",
    "model_of", "parts_of",
]  # fmt: skip
