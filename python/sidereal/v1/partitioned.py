"""Variables cut into parts (tf.compat.v1.get_variable(partitioner=...))."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import sidereal as _sr

from .._native import Output
from .._tensor import Reference, install_shared
from ..dtypes import DType, name_of
from ..partitioners import PartitionFunction
from .graph import get_default_graph, in_default_graph
from .variables import Variable


class PartitionInfo:
    """Which part of a variable an initializer makes: its argument `partition_info`
    (tf.compat.v1's _PartitionInfo)."""

    def __init__(self, full_shape: Sequence[int], var_offset: Sequence[int]) -> None:
        if len(full_shape) != len(var_offset) or any(
            not 0 <= offset < extent for offset, extent in zip(var_offset, full_shape)
        ):
            raise ValueError(
                f"var_offset must be inside of full_shape: {list(var_offset)} and "
                f"{list(full_shape)}"
            )
        #: Of the whole variable.
        self.full_shape = list(full_shape)
        #: Where the part begins, by dimension.
        self.var_offset = list(var_offset)

    def single_slice_dim(self, shape: Sequence[int]) -> int | None:
        """The dimension that a part of `shape` is cut along; None when it is the whole variable. A
        ValueError when it is cut along several, or does not lie in the variable."""
        if len(shape) != len(self.full_shape):
            raise ValueError(
                f"Expected equal length, but received shape={list(shape)} of length {len(shape)} "
                f"while self.full_shape={self.full_shape} is of length {len(self.full_shape)}."
            )
        found = None
        for i, (extent, offset, full) in enumerate(zip(shape, self.var_offset, self.full_shape)):
            if offset + extent > full:
                raise ValueError(
                    f"With self.var_offset={self.var_offset}, a partition of "
                    f"shape={list(shape)} would exceed self.full_shape={self.full_shape} in "
                    f"dimension {i}."
                )
            if extent == full:
                continue
            if found is not None:
                raise ValueError(
                    f"Cannot use single_slice_dim() with shape={list(shape)} and "
                    f"self.full_shape={self.full_shape} since slice dim could be either "
                    f"dimension {i} or {found}."
                )
            found = i
        return found

    def single_offset(self, shape: Sequence[int]) -> int:
        """Where a part of `shape` begins along the dimension it is cut along."""
        axis = self.single_slice_dim(shape)
        return 0 if axis is None else self.var_offset[axis]


class PartitionedVariable:
    """Variables that are the parts of one along a dimension (tf.compat.v1's PartitionedVariable),
    called name/part_0, name/part_1, ... What get_variable(partitioner=...) gives.

        with sr.device(sr.train.replica_device_setter(ps_tasks=4)):
            table = sr.get_variable("table", [10_000_000, 16],
                                    partitioner=sr.fixed_size_partitioner(4))
        rows = sr.nn.embedding_lookup(table, ids, partition_strategy="div")

    Each part lies where the scopes of devices put it, and those on one task are spread over its
    lanes. Collections and optimizers know the parts. Stands wherever a tensor can, as all parts
    joined, which reads all of them; look-ups read rows.
    """

    def __init__(
        self, name: str, shape: Sequence[int], dtype: DType, variable_list: Sequence[Variable],
        partitions: Sequence[int],
    ) -> None:  # fmt: skip
        if len(partitions) != len(shape) or not variable_list:
            raise ValueError(f"partitions {list(partitions)} do not fit the shape {list(shape)}")
        self.name = name
        self.shape = tuple(shape)
        self.dtype = dtype
        self._parts = list(variable_list)
        self._partitions = list(partitions)
        self._whole: Output | None = None

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def get_shape(self) -> tuple[int, ...]:
        """Of all parts together."""
        return self.shape

    def _get_variable_list(self) -> list[Variable]:
        return list(self._parts)

    def _get_partitions(self) -> list[int]:
        return list(self._partitions)

    def _axis(self) -> int:
        """The dimension that it is cut along."""
        return _sliced(self._partitions)[0]

    def __iter__(self) -> Iterator[Variable]:
        """Over the parts."""
        return iter(self._parts)

    def __len__(self) -> int:
        """Number of parts."""
        return len(self._parts)

    def __bool__(self) -> bool:
        raise TypeError(f"{self!r} has no truth value while a graph is built")

    def __repr__(self) -> str:
        return (
            f"<PartitionedVariable '{self.name}' shape={self.shape} dtype={name_of(self.dtype)} "
            f"parts={len(self)}>"
        )

    def ref(self) -> Any:
        """A key for dicts and sets."""
        return Reference(self)

    # --- Reading.

    @in_default_graph
    def as_tensor(self) -> Any:
        """All parts, joined."""
        values, graph = [part.value() for part in self._parts], get_default_graph()
        with graph.name_scope(self.name + "/ConcatPartitions/"):
            joined = _sr.concat(values, self._axis(), name="concat") if len(self) > 1 else values[0]
        with graph.name_scope(None):
            return _sr.identity(joined, name=self.name)

    def _as_tensor(self) -> Any:
        return self.as_tensor()

    def _as_graph_element(self) -> Output:
        """What a fetch of it is: made once."""
        graph = self._parts[0].graph
        if self._whole is None:
            with graph.as_default(), graph.init_scope(), graph.device(None):
                self._whole = self.as_tensor()
        return self._whole

    def _as_tables(self) -> list[Variable]:
        """Its parts, for look-ups of rows."""
        if self._axis() != 0:
            raise ValueError(
                f"rows of '{self.name}' cannot be looked up: it is cut along axis {self._axis()}; "
                "use a partitioner along axis 0"
            )
        return list(self._parts)

    # --- Changing.

    def assign(
        self, value: Any, use_locking: bool = False, name: str | None = None,
        read_value: bool = True,
    ) -> list[Any]:  # fmt: skip
        """Gives each part its part of a value: a list of what Variable.assign() gives. A list, or
        another PartitionedVariable, has a value for each part."""
        return self._each(value, lambda part, x: part.assign(x, use_locking, name, read_value))

    def assign_add(
        self, value: Any, use_locking: bool = False, name: str | None = None,
        read_value: bool = True,
    ) -> list[Any]:  # fmt: skip
        """Adds to each part its part of a value, at once for each part but not for all."""
        return self._each(value, lambda part, x: part.assign_add(x, use_locking, name, read_value))

    def assign_sub(
        self, value: Any, use_locking: bool = False, name: str | None = None,
        read_value: bool = True,
    ) -> list[Any]:  # fmt: skip
        """Subtracts from each part its part of a value, at once for each part but not for all."""
        return self._each(value, lambda part, x: part.assign_sub(x, use_locking, name, read_value))

    def _each(self, value: Any, change: Callable[[Variable, Any], Any]) -> list[Any]:
        return [change(part, x) for part, x in zip(self._parts, self._values(value))]

    @in_default_graph
    def _values(self, value: Any) -> list[Any]:
        """A value for each part."""
        if not isinstance(value, (list, PartitionedVariable)):
            axis, slices = self._axis(), slices_of(self.shape, self._partitions)
            sizes = [extents[axis] for _, extents in slices]
            return _sr.split(_sr.convert_to_tensor(value, self.dtype), sizes, axis)
        if len(value) != len(self):
            raise ValueError(f"{len(value)} values for the {len(self)} parts of '{self.name}'")
        return list(value)


install_shared(PartitionedVariable)
# Equal to itself only, as Variables are.
PartitionedVariable.__eq__ = object.__eq__  # type: ignore[method-assign]
PartitionedVariable.__ne__ = object.__ne__  # type: ignore[method-assign]
PartitionedVariable.__hash__ = object.__hash__  # type: ignore[method-assign]


def flat(variables: Sequence[Any]) -> list[Variable]:
    """Variables, with the parts of those that have some."""
    out: list[Variable] = []
    for variable in variables:
        out.extend(variable if isinstance(variable, PartitionedVariable) else [variable])
    return out


def partitions_of(
    partitioner: PartitionFunction, shape: Sequence[Any] | None, dtype: DType
) -> list[int]:
    """What a partitioner says of a variable, checked."""
    if shape is None or any(extent is None or extent < 0 for extent in shape):
        raise ValueError(
            f"Shape of a new partitioned variable must be fully defined, but instead was {shape}."
        )
    if len(shape) < 1:
        raise ValueError(f"A partitioned Variable must have rank at least 1, shape: {tuple(shape)}")
    found = partitioner(shape=tuple(shape), dtype=dtype)
    if not isinstance(found, Sequence):
        raise ValueError(f"Partitioner must return a sequence, but saw: {found}")
    if len(found) != len(shape):
        raise ValueError(
            "Partitioner returned a partition list that does not match the Variable's rank: "
            f"{list(found)} vs. {tuple(shape)}"
        )
    if any(parts < 1 for parts in found):
        raise ValueError(f"Partitioner returned zero partitions for some axes: {list(found)}")
    if sum(parts > 1 for parts in found) > 1:
        raise ValueError(
            f"Can only slice a variable along one dimension: shape: {tuple(shape)}, "
            f"partitioning: {list(found)}"
        )
    return list(found)


def _sliced(partitions: Sequence[int]) -> tuple[int, int]:
    """The dimension that is cut, the first when none is, and into how many parts."""
    return next(((i, parts) for i, parts in enumerate(partitions) if parts > 1), (0, 1))


def slices_of(shape: Sequence[int], partitions: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Offset and shape of every part: as even as can be, the first ones a row longer."""
    axis, parts = _sliced(partitions)
    shortest, longer = divmod(shape[axis], parts)
    out, first = [], 0
    for i in range(parts):
        extents, offset = list(shape), [0] * len(shape)
        extents[axis] = shortest + (i < longer)
        offset[axis] = first
        first += extents[axis]
        out.append((offset, extents))
    return out
