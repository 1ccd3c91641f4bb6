"""A variable in shards: consecutive rows, each in a variable of its own, that are one tensor to
programs (tensorflow/python/distribute/sharded_variable.py)."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .. import errors
from .._dispatch import convert
from .._native import Output, Tensor
from .._tensor import install_shared
from ..dtypes import DType, name_of
from ..indexed_slices import IndexedSlices
from ..ops import array, embedding
from ..ops._arguments import index_tensor
from ..tensor_shape import TensorShape
from ..variable import CutVariable, SaveSliceInfo, Variable, fitting

__all__ = ["ShardedVariable"]


class ShardedVariable(CutVariable):
    """Variables that are the rows of one, one behind the other (TensorFlow's ShardedVariable).

        table = ShardedVariable([sr.Variable(first_rows), sr.Variable(other_rows)])
        rows = sr.nn.embedding_lookup(table, ids)
        grads = tape.gradient(loss, table.variables)

    Stands wherever a tensor can, as all shards joined, which reads all of them; look-ups and slices
    read the shards that they need. Changes are made shard by shard: each at once, all of them not.
    A sidereal.function that takes one is traced once for all that are cut alike.

    variables: of one dtype, and one shape but for the number of rows. Each can be a shard of one
        variable only.
    Errors: TypeError when they are no list of Variables, or an empty one; ValueError when they do
    not fit together.
    """

    #: How look-ups find a row, whatever they are asked for.
    _layout = "div"

    def __init__(self, variables: Sequence[Variable], name: str = "ShardedVariable") -> None:
        is_list = isinstance(variables, Sequence) and len(variables) > 0
        if not is_list or not all(isinstance(variable, Variable) for variable in variables):
            raise TypeError(f"a ShardedVariable is made of a list of Variables, not {variables!r}")
        self._variables = list(variables)
        _check_alike(self._variables)
        sizes = [variable.shape[0] for variable in variables]
        self.name = name
        self.dtype: DType = variables[0].dtype
        self.shape = TensorShape((sum(sizes), *variables[0].shape[1:]))
        self._sizes = sizes
        #: The first row of each shard.
        self._begins = [0, *itertools.accumulate(sizes)][:-1]
        for variable, begin in zip(self._variables, self._begins):
            offset = [begin] + [0] * (self.ndim - 1)
            variable._set_save_slice_info(SaveSliceInfo(name, self.shape, offset, variable.shape))

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def trainable(self) -> bool:
        """Whether tapes watch the shards; all of them are as they are told here."""
        return all(variable.trainable for variable in self._variables)

    @trainable.setter
    def trainable(self, value: bool) -> None:
        for variable in self._variables:
            variable.trainable = value

    @property
    def variables(self) -> list[Variable]:  # type: ignore[override]
        """The shards."""
        return list(self._variables)

    def __iter__(self) -> Iterator[Variable]:
        """Over the shards."""
        return iter(self._variables)

    def __bool__(self) -> bool:
        return bool(self._as_tensor())

    def __repr__(self) -> str:
        return (
            f"<ShardedVariable '{self.name}' shape={self.shape} dtype={name_of(self.dtype)} "
            f"shards={len(self._variables)}>"
        )

    # --- What functions, tapes and look-ups ask for.

    def _spec(self) -> tuple[Any, ...]:
        """Equal for all that one trace of a function serves."""
        return tuple(
            (name_of(v.dtype), v.shape, v.trainable, v.device != Variable.device)
            for v in self._variables
        )

    def _with_variables(self, variables: Sequence[Variable]) -> ShardedVariable:
        """One of other shards."""
        return ShardedVariable(variables, self.name)

    def _as_tables(self) -> list[Variable]:
        return self.variables

    def _gather(self, indices: Any, name: str | None) -> Any:
        """For gather() along the first dimension."""
        return embedding.embedding_lookup(self, indices, name=name)

    def _as_tensor(self) -> Any:
        return _joined([variable._as_tensor() for variable in self._variables])

    # --- Reading.

    def numpy(self) -> np.ndarray:
        """All shards, joined, as an array."""
        parts = [variable.numpy() for variable in self._variables]
        return np.concatenate(parts) if len(parts) > 1 else parts[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.numpy(), dtype=dtype)

    def sparse_read(self, indices: Any, name: str | None = None) -> Any:
        """The rows at `indices`, a vector, in its order. Errors as of scatter_add()."""
        return embedding.embedding_lookup(self, self._checked(indices), name=name)

    # --- Changing.

    def assign(
        self, value: Any, use_locking: bool | None = None, name: str | None = None,
        read_value: bool = True,
    ) -> ShardedVariable:  # fmt: skip
        """Gives each shard its rows of a value."""
        return self._each("assign", value)

    def assign_add(
        self, delta: Any, use_locking: bool | None = None, name: str | None = None,
        read_value: bool = True,
    ) -> ShardedVariable:  # fmt: skip
        """Adds to each shard its rows of a value."""
        return self._each("assign_add", delta)

    def assign_sub(
        self, delta: Any, use_locking: bool | None = None, name: str | None = None,
        read_value: bool = True,
    ) -> ShardedVariable:  # fmt: skip
        """Subtracts from each shard its rows of a value."""
        return self._each("assign_sub", delta)

    def _each(self, method: str, value: Any) -> ShardedVariable:
        for variable, part in zip(self._variables, array.split(fitting(self, value), self._sizes)):
            getattr(variable, method)(part)
        return self

    def scatter_add(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> ShardedVariable:
        """Adds rows, each to the shard that has it. Errors: ValueError for indices that are no
        vector; UnimplementedError where shards are not as even as can be, the longer ones first;
        InvalidArgumentError for what is no row."""
        return self._scatter("scatter_add", sparse_delta)

    def scatter_sub(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> ShardedVariable:
        """Subtracts rows; see scatter_add()."""
        return self._scatter("scatter_sub", sparse_delta)

    def scatter_mul(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> ShardedVariable:
        """Multiplies by rows; see scatter_add()."""
        return self._scatter("scatter_mul", sparse_delta)

    def scatter_div(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> ShardedVariable:
        """Divides by rows; see scatter_add()."""
        return self._scatter("scatter_div", sparse_delta)

    def scatter_min(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> ShardedVariable:
        """Takes the smaller elements; see scatter_add()."""
        return self._scatter("scatter_min", sparse_delta)

    def scatter_max(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> ShardedVariable:
        """Takes the greater elements; see scatter_add()."""
        return self._scatter("scatter_max", sparse_delta)

    def scatter_update(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> ShardedVariable:
        """Replaces rows; see scatter_add()."""
        return self._scatter("scatter_update", sparse_delta)

    def batch_scatter_update(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> ShardedVariable:
        """Replaces rows, as scatter_update(): indices of shards are vectors."""
        return self._scatter("batch_scatter_update", sparse_delta)

    def _scatter(self, method: str, rows: IndexedSlices) -> ShardedVariable:
        if not isinstance(rows, IndexedSlices):
            kind = type(rows).__name__
            raise TypeError(f"rows of a ShardedVariable are changed by IndexedSlices, not {kind}")
        indices, values = self._checked(rows.indices), convert(rows.values, self.dtype)
        self._check_rows(values)
        part, wanted = embedding.routed(self._sizes, indices, self._layout)
        parts = array.dynamic_partition(values, part, len(self._variables))
        for variable, values, indices in zip(self._variables, parts, wanted):
            getattr(variable, method)(IndexedSlices(values, indices))
        return self

    def _checked(self, indices: Any) -> Any:
        """Indices of rows, if they are a vector and say where the rows are."""
        indices = index_tensor(indices)
        if indices.shape is not None and len(indices.shape) != 1:
            raise ValueError(f"indices of rows are a vector, but have the shape {indices.shape}")
        if not embedding.is_div(self._sizes):
            raise errors.UnimplementedError(
                f"shards of {self._sizes} rows are not as 'div' cuts: all have equally many, the "
                "first ones maybe one more; rows of others cannot be read or changed by index"
            )
        return indices

    def _check_rows(self, values: Any) -> None:
        """Before the first shard changes."""
        if values.shape is None:
            return
        known = [extent for extent in values.shape[1:] if extent >= 0]
        if len(known) == len(values.shape) - 1 and tuple(known) != self.shape[1:]:
            raise errors.InvalidArgumentError(
                f"rows of '{self.name}' have the shape {self.shape[1:]}; those given have "
                f"{tuple(known)}"
            )

    # --- Slices.

    def __getitem__(self, key: Any) -> Any:
        """What the joined shards have at a key, read from the shards that have it."""
        terms = key if isinstance(key, tuple) else (key,)
        if len(terms) == 1 and getattr(getattr(terms[0], "dtype", None), "kind", "") == "b":
            return array.boolean_mask(self._as_tensor(), terms[0])
        _check_no_tensor(terms)
        if not terms:
            return self._as_tensor()
        first, others = terms[0], terms[1:]
        if first is None:
            return array.expand_dims(self[others], 0)
        if first is Ellipsis:
            if sum(term is not None for term in others) < self.ndim:
                # It stands for the rows at least.
                return self._rows(range(self.shape[0]), terms)
            return self[others]
        if isinstance(first, slice):
            return self._rows(range(self.shape[0])[first], others)
        return self._row(first, others)

    def _row(self, term: Any, others: tuple[Any, ...]) -> Any:
        number = _integer(term)
        row = number + self.shape[0] if number < 0 else number
        if not 0 <= row < self.shape[0]:
            raise IndexError(f"row {number} of '{self.name}', which has {self.shape[0]} rows")
        shard = next(i for i, begin in enumerate(self._begins) if row < begin + self._sizes[i])
        place = row - self._begins[shard]
        return array.getitem(self._variables[shard], (place, *others))

    def _rows(self, wanted: range, others: tuple[Any, ...]) -> Any:
        """Parts of some rows, each shard's by one slice."""
        upwards = wanted if wanted.step > 0 else wanted[::-1]
        found = []
        for variable, begin in zip(self._variables, self._begins):
            mine = _between(upwards, begin, begin + variable.shape[0])
            if not mine:
                continue
            first, last = mine[0] - begin, mine[-1] - begin
            if wanted.step > 0:
                rows = slice(first, last + 1, wanted.step)
            else:
                rows = slice(last, first - 1 if first else None, wanted.step)
            found.append(array.getitem(variable, (rows, *others)))
        if not found:
            return array.getitem(self._variables[0], (slice(0, 0), *others))
        return _joined(found if wanted.step > 0 else found[::-1])


install_shared(ShardedVariable)


def _check_alike(variables: Sequence[Variable]) -> None:
    """ValueError when variables are not the rows of one."""
    first = variables[0]
    for variable in variables:
        if variable.dtype != first.dtype:
            raise ValueError(
                "shards have one dtype, but there are "
                f"{[name_of(variable.dtype) for variable in variables]}"
            )
        if not variable.shape or variable.shape[1:] != first.shape[1:]:
            raise ValueError(
                "shards have the same dimensions but the first, but there are "
                f"{[variable.shape for variable in variables]}"
            )
        if variable._get_save_slice_info() is not None:
            raise ValueError(f"'{variable.name}' is a part of another variable already")
    if len({id(variable) for variable in variables}) < len(variables):
        raise ValueError("one variable is given as several shards")


def _joined(parts: list[Any]) -> Any:
    return array.concat(parts, 0) if len(parts) > 1 else parts[0]


def _between(numbers: range, begin: int, end: int) -> range:
    """Those of ascending numbers from `begin` up to but without `end`."""
    before = -(-(begin - numbers.start) // numbers.step)
    behind = -(-(end - numbers.start) // numbers.step)
    return numbers[max(before, 0) : max(behind, 0)]


def _check_no_tensor(terms: Sequence[Any]) -> None:
    for term in terms:
        for bound in (term.start, term.stop, term.step) if isinstance(term, slice) else (term,):
            if isinstance(bound, (Tensor, Output)) or hasattr(bound, "_as_tensor"):
                raise TypeError(
                    "a ShardedVariable is not sliced by tensors: use numbers, sparse_read() or "
                    "sidereal.nn.embedding_lookup()"
                )


def _integer(term: Any) -> int:
    if isinstance(term, (bool, np.bool_)):
        raise TypeError(f"{term!r} is no index")
    return operator.index(term)
