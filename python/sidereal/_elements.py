"""Elements of datasets: how they are nested, and what is known of their tensors.

Tuples, named tuples and dicts are structure; lists are tensors, as in TensorFlow's tf.data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from . import nest
from ._dispatch import convert, state, to_tensor
from ._native import Output, Tensor
from .function import TensorSpec


@dataclass(frozen=True)
class DatasetSpec:
    """What is known of a dataset that is a component of an element: a window
    (tf.data.DatasetSpec)."""

    element_spec: Any


def map_leaves(function: Callable[[Any], Any], structure: Any) -> Any:
    """`structure` with `function` of each leaf in its place; a list is a leaf."""
    if isinstance(structure, Mapping):
        kind: Any = type(structure)
        return kind((key, map_leaves(function, structure[key])) for key in structure)
    if isinstance(structure, tuple):
        items = [map_leaves(function, item) for item in structure]
        return type(structure)(*items) if hasattr(structure, "_fields") else type(structure)(items)
    return function(structure)


def flatten(structure: Any) -> list[Any]:
    """The leaves in nest's order; a list is a leaf."""
    leaves: list[Any] = []

    def keep(leaf: Any) -> int:
        leaves.append(leaf)
        return len(leaves) - 1

    numbers = nest.flatten(map_leaves(keep, structure))
    return [leaves[number] for number in numbers]


def has_output(value: Any) -> bool:
    """Whether a value, or one in a list, is of a graph that is being built."""
    if isinstance(value, (list, tuple)):
        return any(has_output(item) for item in value)
    return isinstance(value, Output)


def as_value(value: Any, dtype: Any = None) -> Any:
    """A Tensor, or an Output where it is made of one: constants stay values while functions are
    traced."""
    if has_output(value):
        return convert(value, dtype)
    as_tensor = getattr(value, "_as_tensor", None)
    if as_tensor is not None:
        with state.at_once():
            value = as_tensor()
    return to_tensor(value, dtype)


def spec_of(value: Any) -> TensorSpec:
    """What is known of a tensor."""
    return TensorSpec(value.shape, value.dtype)


def accepted(spec: TensorSpec, value: Any) -> Tensor:
    """`value` as a tensor of a spec; ValueError when it has another shape, TypeError for another
    dtype."""
    try:
        tensor = to_tensor(value, spec.dtype)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{value!r:.60} cannot be {spec}: {error}") from None
    if not spec.accepts(tensor):
        raise ValueError(f"a tensor of shape {tensor.shape} is given where {spec} is expected")
    return tensor
