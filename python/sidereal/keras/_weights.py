"""The weights of a model, and what its optimizer keeps of them, as arrays by names that say where
they are: those of two models of one architecture are equal, whatever their layers are called.

    layers/dense_1/kernel
    optimizer/iterations
    optimizer/slots/layers/dense_1/kernel/m

A weight that is in shards is one array, so that it may be in others where it is read.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import dtypes
from .._dispatch import convert
from ..ops import math
from ..variable import together
from ._configs import snake_case
from ._layer import Layer, shards_of

Arrays = dict[str, np.ndarray]


def tree_of(root: Layer) -> list[tuple[str, Layer]]:
    """A layer and all below it by their paths, each once: classes, numbered among siblings."""
    found: list[tuple[str, Layer]] = []
    known: set[int] = set()

    def visit(path: str, layer: Layer) -> None:
        if id(layer) in known:
            return
        known.add(id(layer))
        found.append((path, layer))
        counts: Counter[str] = Counter()
        for child in layer._children():
            name = snake_case(type(child).__name__).lstrip("_")
            number = counts[name]
            counts[name] += 1
            visit(f"{path}/{name}_{number}" if number else f"{path}/{name}", child)

    visit("layers", root)
    return found


def _weights_of(root: Layer) -> dict[str, tuple[Layer, Any]]:
    """The layer and the variable, whole, of each name."""
    found: dict[str, tuple[Layer, Any]] = {}
    known: set[int] = set()
    for path, layer in tree_of(root):
        for variable in layer._own_variables():
            if id(variable) in known:
                continue
            known.add(id(variable))
            base = f"{path}/" + re.sub(r"[^\w.-]|^\.+", "_", variable.name.rsplit("/", 1)[-1])
            name, number = base, 0
            while name in found:
                number += 1
                name = f"{base}_{number}"
            found[name] = layer, variable
    return found


def _array(variable: Any) -> np.ndarray:
    """The value; one of a dtype that NumPy does not have as float32."""
    if dtypes.name_of(variable.dtype) == "bfloat16":
        return np.asarray(math.cast(convert(variable), "float32").numpy())
    return np.asarray(variable.numpy())


def _slots_of(optimizer: Any, variable: Any) -> list[tuple[Any, dict[str, Any]]]:
    """Each shard of a variable with what the optimizer keeps for it; empty if there is nothing."""
    kept = optimizer._kept().slots
    shards = shards_of(variable)
    if not any(id(shard) in kept for shard in shards):
        return []
    return [(shard, optimizer.slots(shard)) for shard in shards]


def arrays_of(model: Any) -> Arrays:
    """All that is to be saved of a model."""
    weights = _weights_of(model)
    with together([variable for _, variable in weights.values()], "VariableRead"):
        found = {name: _array(variable) for name, (_, variable) in weights.items()}
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        return found
    with together(optimizer.variables, "VariableRead"):
        found["optimizer/iterations"] = _array(optimizer.iterations)
        if optimizer._rate_variable is not None:
            found["optimizer/learning_rate"] = _array(optimizer._rate_variable)
        for name, (_, variable) in weights.items():
            slots = _slots_of(optimizer, variable)
            for slot in slots[0][1] if slots else ():
                parts = [_array(each[slot]) for _, each in slots]
                joined = parts[0] if len(parts) == 1 else np.concatenate(parts)
                found[f"optimizer/slots/{name}/{slot}"] = joined
    return found


def _problem(wanted: Mapping[str, tuple[Layer, Any]], name: str, arrays: Arrays) -> str | None:
    """What is wrong with the array of a weight; None: nothing."""
    if name not in wanted:
        return (
            f"it has a weight {name} of shape {arrays[name].shape}, which the model has not, or not"
            " yet: models have weights when they are called or built"
        )
    layer, variable = wanted[name]
    if name not in arrays:
        return f"it has nothing for weight '{variable.name}' of layer '{layer.name}' ({name})"
    if tuple(arrays[name].shape) != tuple(variable.shape):
        return (
            f"weight '{variable.name}' of layer '{layer.name}' has shape {tuple(variable.shape)}; "
            f"that of the file has {arrays[name].shape}"
        )
    return None


def _value(array: np.ndarray, variable: Any) -> Any:
    return math.cast(convert(array), variable.dtype)


def load_arrays(where: str, model: Any, arrays: Arrays, skip_mismatch: bool = False) -> None:
    """Gives a model what arrays_of() gave; nothing is changed when something does not fit.
    `skip_mismatch`: warns of weights that do not, and leaves them.

    Errors: ValueError.
    """
    wanted = _weights_of(model)
    given = {name: each for name, each in arrays.items() if name.startswith("layers/")}
    fitting = dict(wanted)
    for name in sorted({*wanted, *given}):
        problem = _problem(wanted, name, given)
        if problem is None:
            continue
        if not skip_mismatch:
            raise ValueError(f"{where} does not fit model '{model.name}': {problem}")
        warnings.warn(f"{where}: a weight is left out: {problem}", stacklevel=3)
        fitting.pop(name, None)
    with together([variable for _, variable in fitting.values()], "VariableAssign"):
        for name, (_, variable) in fitting.items():
            variable.assign(_value(given[name], variable))
    rest = {name: each for name, each in arrays.items() if name.startswith("optimizer/")}
    if rest and getattr(model, "optimizer", None) is not None:
        _load_optimizer(where, model.optimizer, rest, wanted)


def _load_optimizer(
    where: str, optimizer: Any, given: Arrays, weights: Mapping[str, tuple[Layer, Any]]
) -> None:
    """Gives an optimizer what was kept; warns if it is of another kind, and leaves it then."""
    changes: list[tuple[Any, np.ndarray]] = []
    left = dict(given)

    def change(variable: Any, array: np.ndarray) -> bool:
        changes.append((variable, array))
        return tuple(variable.shape) == tuple(array.shape)

    fits = True
    for name, variable in (
        ("iterations", optimizer.iterations), ("learning_rate", optimizer._rate_variable),
    ):  # fmt: skip
        array = left.pop(f"optimizer/{name}", None)
        if array is not None and variable is not None:
            fits = change(variable, array) and fits
    for name, (_, variable) in weights.items():
        prefix = f"optimizer/slots/{name}/"
        named = {each.removeprefix(prefix) for each in left if each.startswith(prefix)}
        if not named:
            continue
        begin = 0
        for shard in shards_of(variable):
            slots = optimizer.slots(shard)
            fits = fits and set(slots) == named
            is_whole = shard is variable
            rows = shard.shape[0] if shard.shape else 1
            for slot in named & set(slots):
                array = left[prefix + slot]
                part = array if is_whole else array[begin : begin + rows]
                fits = change(slots[slot], part) and fits
            begin += rows
        for slot in named:
            del left[prefix + slot]
    if left or not fits:
        warnings.warn(
            f"{where}: what it has of an optimizer does not fit {type(optimizer).__name__}, which "
            "begins anew",
            stacklevel=4,
        )
        return
    with together([variable for variable, _ in changes], "VariableAssign"):
        for variable, array in changes:
            variable.assign(_value(array, variable))
