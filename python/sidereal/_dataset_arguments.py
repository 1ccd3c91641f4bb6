"""Arguments of datasets: numbers, shapes, options, and what generators give."""

from __future__ import annotations

import enum
import types
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import dtypes, nest
from ._elements import as_value, flatten, map_leaves
from ._native import Tensor
from ._pipelines import parameter
from ._resources import component_attrs
from .function import TensorSpec
from .ops.basic import cast


class AutoShardPolicy(enum.IntEnum):
    """How a dataset would be divided among workers (tf.data.experimental.AutoShardPolicy); here
    programs do it, by shard()."""

    OFF = -1
    AUTO = 0
    FILE = 1
    DATA = 2
    HINT = 3


class Options:
    """Settings of a dataset (tf.data.Options), which are kept and change nothing: elements come in
    order and are made by as many threads as the dataset says."""

    def __init__(self) -> None:
        self.deterministic: bool | None = None
        self.autotune = types.SimpleNamespace()
        self.experimental_distribute = types.SimpleNamespace(auto_shard_policy=AutoShardPolicy.OFF)
        self.experimental_optimization = types.SimpleNamespace()
        self.threading = types.SimpleNamespace()


def thread_count(num_parallel_calls: Any) -> int:
    return 0 if num_parallel_calls is None else int(num_parallel_calls)


def count_of(value: Any) -> Any:
    """An int64 scalar parameter."""
    if isinstance(value, (Tensor, np.ndarray, np.generic)):
        value = int(value)
    if getattr(value, "dtype", dtypes.int64) != dtypes.int64:
        return parameter(_cast(value))
    return parameter(value, dtypes.int64)


def _cast(value: Any) -> Any:
    return cast(value, dtypes.int64)


def zeros_of(spec: TensorSpec) -> Any:
    shape = [max(0, extent) for extent in spec.shape or ()]
    if spec.dtype is dtypes.string:
        return np.full(shape, b"", object)
    return np.zeros(shape, spec.dtype)


def to_arguments(args: Any) -> Sequence[Any]:
    """What from_generator() calls the generator with: NumPy arrays."""
    if args is None:
        return ()
    return [as_value(arg).numpy()[()] for arg in args]


def signature_of(types: Any, shapes: Any) -> Any:
    """TensorSpecs of output_types and output_shapes."""
    leaves = flatten(types)
    given = [None] * len(leaves) if shapes is None else shapes_like(types, shapes)
    if len(given) != len(leaves):
        raise TypeError(f"output_shapes {shapes!r} is nested otherwise than output_types {types!r}")
    specs = iter([TensorSpec(shape, dtype) for dtype, shape in zip(leaves, given)])
    return nest.pack(map_leaves(lambda _: 0, types), list(specs))


def shapes_like(structure: Any, shapes: Any) -> list[Any]:
    """The shapes that stand in the places of a structure's leaves."""
    if isinstance(structure, Mapping):
        return [one for key in sorted(structure) for one in shapes_like(structure[key],
                                                                          shapes[key])]
    if isinstance(structure, tuple):
        if len(structure) != len(shapes):
            raise ValueError(f"{len(shapes)} shapes are given for {len(structure)} values")
        return [one for part, shape in zip(structure, shapes) for one in shapes_like(part, shape)]
    return [shapes]


def extents_of(shape: Any) -> list[int]:
    return [-1 if extent is None else int(extent) for extent in shape]


def leaves_like(structure: Any, element: Any) -> list[Any]:
    """The values of a generator's element in the places of a structure's leaves."""
    if isinstance(structure, Mapping):
        if not isinstance(element, Mapping) or set(element) != set(structure):
            raise TypeError(f"the generator yields {element!r:.60}, where a dict with "
                            f"{sorted(structure)} is expected")
        return [leaf for key in sorted(structure)
                for leaf in leaves_like(structure[key], element[key])]
    if isinstance(structure, tuple):
        if not isinstance(element, (list, tuple)) or len(element) != len(structure):
            raise TypeError(f"the generator yields {element!r:.60}, where {len(structure)} values "
                            "are expected")
        return [leaf for part, item in zip(structure, element)
                for leaf in leaves_like(part, item)]
    return [element]


def attrs_of_specs(specs: Sequence[TensorSpec]) -> dict[str, Any]:
    return component_attrs((spec.dtype for spec in specs), (spec.shape for spec in specs))
