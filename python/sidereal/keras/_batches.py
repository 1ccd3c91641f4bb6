"""Data for Model.fit(), evaluate() and predict(): batches (x, y, sample_weight)."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping
from numbers import Integral
from typing import Any

import numpy as np

from .. import errors, nest
from .._datasets import INFINITE_CARDINALITY, Dataset
from .._dispatch import to_tensor
from .._iterators import DatasetIterator
from .._native import Output, Tensor
from ..ops.embedding import SparseTensor
from ..ops.ragged import RaggedTensor
from ..variable import Variable

Batch = tuple[Any, ...]


def unpack(data: Any) -> tuple[Any, Any, Any]:
    """x, y and sample_weight of a batch, None for what it does not have."""
    if isinstance(data, list):
        data = tuple(data)
    if not isinstance(data, tuple) or isinstance(data, RaggedTensor):
        return data, None, None
    if not 1 <= len(data) <= 3:
        raise ValueError(
            f"a batch is x, (x,), (x, y) or (x, y, sample_weight), not a tuple of {len(data)}"
        )
    x, y, weight = (*data, None, None)[:3]
    return x, y, weight


def pack(x: Any, y: Any, weight: Any) -> Any:
    """As Keras gives a batch to the steps of a model: x alone, (x, y) or (x, y, sample_weight)."""
    if weight is not None:
        return x, y, weight
    if y is not None:
        return x, y
    return (x,) if isinstance(x, (list, tuple)) else x


def _is_number(leaf: Any) -> bool:
    return isinstance(leaf, (bool, int, float, str, bytes, np.generic))


def _map(function: Callable[[Any], Any], structure: Any) -> Any:
    """`function` of what stands for tensors in nested lists, tuples and dicts; a list of numbers is
    one, and so are RaggedTensors and SparseTensors."""
    if isinstance(structure, Mapping):
        return {key: _map(function, each) for key, each in structure.items()}
    if isinstance(structure, (RaggedTensor, SparseTensor)):
        return function(structure)
    if isinstance(structure, (list, tuple)):
        leaves = nest.flatten(structure)
        if leaves and all(_is_number(leaf) for leaf in leaves):
            return function(np.asarray(structure))
        if hasattr(structure, "_fields"):
            return type(structure)(*(_map(function, each) for each in structure))
        return type(structure)(_map(function, each) for each in structure)
    return None if structure is None else function(structure)


def _tensor(value: Any) -> Any:
    if isinstance(value, RaggedTensor):
        return RaggedTensor(_tensor(value.values), _tensor(value.row_splits))
    if isinstance(value, SparseTensor):
        return SparseTensor(*map(_tensor, value))
    if isinstance(value, (Tensor, Output)):
        return value
    return value.value() if isinstance(value, Variable) else to_tensor(value)


def tensors(structure: Any) -> Any:
    """Nested arrays, numbers and the like as nested tensors."""
    return _map(_tensor, structure)


def count(name: str, value: Any, least: int = 1) -> int:
    """A number of things; ValueError unless it is an integer and at least `least`."""
    if not isinstance(value, Integral) or value < least:
        raise ValueError(f"{name} is {value!r}; it must be an integer, and at least {least}")
    return int(value)


class _Rows:
    """An array, of which rows are taken."""

    def __init__(self, value: Any) -> None:
        array = value.to_numpy() if hasattr(value, "to_numpy") else value
        array = array.numpy() if isinstance(array, (Tensor, Variable)) else np.asarray(array)
        # Keras' floatx; the layers would cast it batch by batch.
        self._array = array.astype(np.float32) if array.dtype == np.float64 else array
        if self._array.ndim == 0:
            raise ValueError(f"a single number is no data: {value!r}; give arrays of examples")

    def __len__(self) -> int:
        return len(self._array)

    def take(self, which: Any) -> Any:
        return self._array[which]


class _RaggedRows:
    """A RaggedTensor, of which rows are taken."""

    def __init__(self, value: RaggedTensor) -> None:
        if isinstance(value.values, RaggedTensor):
            self._values: Any = _RaggedRows(value.values)
        else:
            self._values = _Rows(value.values)
        self._splits = np.asarray(_Rows(value.row_splits).take(slice(None)))

    def __len__(self) -> int:
        return len(self._splits) - 1

    def take(self, which: Any) -> Any:
        rows = np.arange(len(self))[which]
        begins, ends = self._splits[:-1][rows], self._splits[1:][rows]
        places = [np.arange(begin, end) for begin, end in zip(begins, ends)]
        inner = np.concatenate(places) if places else np.zeros(0, np.int64)
        splits = np.concatenate([[0], np.cumsum(ends - begins)]).astype(np.int64)
        return RaggedTensor(self._values.take(inner), splits)


def _rows(value: Any) -> Any:
    if isinstance(value, SparseTensor):
        raise errors.UnimplementedError(
            "rows of a SparseTensor cannot be taken; give a RaggedTensor, or batches"
        )
    return _RaggedRows(value) if isinstance(value, RaggedTensor) else _Rows(value)


class Arrays:
    """Batches of arrays. `steps`: how many there are in a pass."""

    def __init__(
        self, x: Any, y: Any, sample_weight: Any, batch_size: int | None, shuffle: bool
    ) -> None:
        self._parts = [_map(_rows, part) for part in (x, y, sample_weight)]
        leaves = [leaf for part in self._parts for leaf in nest.flatten(part) if leaf is not None]
        sizes = [len(leaf) for leaf in leaves]
        if len(set(sizes)) > 1:
            raise ValueError(
                "the arrays have different numbers of examples: " + ", ".join(map(str, sizes))
            )
        self.rows = sizes[0] if sizes else 0
        if self.rows == 0:
            raise ValueError("the data has no examples")
        self._batch = 32 if batch_size is None else count("batch_size", batch_size)
        self._shuffle = shuffle
        self.steps: int | None = -(-self.rows // self._batch)

    def cut(self, fraction: float) -> tuple[Any, Any]:
        """What is for training, and the last part of the examples, which is for validation."""
        if not 0 < fraction < 1:
            raise ValueError(f"validation_split is {fraction}; it must be between 0 and 1")
        first = int(self.rows * (1.0 - fraction))
        if first == 0 or first == self.rows:
            raise ValueError(
                f"validation_split={fraction} leaves nothing of {self.rows} examples for training, "
                "or for validation"
            )
        return tuple(
            tuple(_map_rows(part, slice(*place)) for part in self._parts)
            for place in ((0, first), (first, self.rows))
        )  # type: ignore[return-value]

    def batches(self) -> Iterator[Batch]:
        order = np.random.permutation(self.rows) if self._shuffle else None
        for begin in range(0, self.rows, self._batch):
            end = min(begin + self._batch, self.rows)
            which = slice(begin, end) if order is None else order[begin:end]
            yield tuple(_map_rows(part, which) for part in self._parts)

    def position(self) -> bytes | None:
        """Where the pass is, for go_on_at(); None: that is not known."""
        return None

    def go_on_at(self, position: bytes) -> None:
        """The next batches are those behind a position."""
        raise errors.InvalidArgumentError("arrays have no position, and a backup has one")


def _map_rows(part: Any, which: Any) -> Any:
    return nest.map_structure(lambda leaf: None if leaf is None else leaf.take(which), part)


class Iterated:
    """Batches that something gives which can be iterated, once or again and again."""

    #: Whether it is known that there is no end.
    is_endless = False

    def __init__(self, data: Any) -> None:
        self._data = data
        self._once = hasattr(data, "__next__")
        #: What reads a dataset, and where it is to begin.
        self._iterator = data if isinstance(data, DatasetIterator) else None
        self._position: bytes | None = None
        self.steps: int | None = None
        if isinstance(data, Dataset):
            self.is_endless = int(data.cardinality()) == INFINITE_CARDINALITY
        if not self._once and hasattr(data, "__len__"):
            try:
                self.steps = len(data)
            except TypeError:  # It is not known, or there is no end.
                self.steps = None

    def batches(self) -> Iterator[Batch]:
        if self.steps is not None and not hasattr(type(self._data), "__iter__"):
            for index in range(self.steps):
                yield unpack(self._data[index])
            if hasattr(self._data, "on_epoch_end"):
                self._data.on_epoch_end()
            return
        data = self._data
        if isinstance(data, Dataset):
            data = self._iterator = iter(data)
        position, self._position = self._position, None
        if position is not None and self._iterator is not None:
            self._iterator.restore(position)
        for each in data:
            yield unpack(each)

    def position(self) -> bytes | None:
        """See Arrays.position()."""
        return None if self._iterator is None else self._iterator.save()

    def go_on_at(self, position: bytes) -> None:
        """See Arrays.go_on_at()."""
        if not isinstance(self._data, (Dataset, DatasetIterator)):
            raise errors.InvalidArgumentError(
                f"{type(self._data).__name__} has no position, and a backup has one: give fit() "
                "the dataset that it was given before"
            )
        self._position = position


def is_arrays(x: Any) -> bool:
    """Whether data is arrays, nested perhaps, and not something that gives batches."""
    if isinstance(x, (np.ndarray, Tensor, Variable, list, tuple, Mapping)):
        return True
    return hasattr(x, "__dlpack__") or hasattr(x, "to_numpy")


def data_of(
    x: Any, y: Any = None, sample_weight: Any = None, batch_size: int | None = None,
    shuffle: bool = False,
) -> Arrays | Iterated:  # fmt: skip
    """The batches of what fit(), evaluate() and predict() are given."""
    if is_arrays(x):
        return Arrays(x, y, sample_weight, batch_size, shuffle)
    if not hasattr(x, "__iter__") and not hasattr(x, "__getitem__"):
        raise ValueError(
            f"x is {type(x).__name__}; give arrays, tensors, lists or dicts of them, or something "
            "that can be iterated and gives batches (x, y) or (x, y, sample_weight)"
        )
    if y is not None or sample_weight is not None:
        raise ValueError(
            f"x is {type(x).__name__}, which gives batches (x, y, sample_weight) itself; leave y "
            "and sample_weight out"
        )
    return Iterated(x)


class Epochs:
    """Goes through data epoch by epoch, `steps` batches in each; None: all there are."""

    def __init__(self, data: Arrays | Iterated, steps: int | None) -> None:
        if steps is None and isinstance(data, Iterated) and data.is_endless:
            raise ValueError(
                "When providing an infinite dataset, you must specify the number of steps to run: "
                "give fit() `steps_per_epoch`, evaluate() and predict() `steps`, and for "
                "validation_data `validation_steps`"
            )
        self._data, self._steps = data, None if steps is None else count("steps", steps)
        self._pass: Iterator[Batch] | None = None
        self.steps = steps if steps is not None else data.steps
        #: The first step of the next epoch, and how many batches come before it.
        self._first = self._passed_over = 0

    def position(self, step: int) -> bytes | None:
        """Where the data is after so many steps of an epoch, for begin_at(); None: that is not
        known, or the next epoch begins from its beginning."""
        if self._steps is None and step in (0, self.steps):
            return None
        return self._data.position()

    def begin_at(self, step: int, position: Any) -> None:
        """The next epoch begins with a step that is not its first: at a position, or behind so many
        batches, which are passed over. The position of workers is none of this data."""
        self._first = step
        if not isinstance(position, bytes):
            self._passed_over = step
        else:
            self._data.go_on_at(position)

    def epoch(self) -> Iterator[Batch]:
        first, over = self._first, self._passed_over
        self._first = self._passed_over = 0
        if self._steps is None:
            yield from itertools.islice(self._data.batches(), over, None)
            return
        for _ in range(over):
            self._next()
        for step in range(first, self._steps):
            batch = self._next()
            if batch is None:
                warnings.warn(
                    f"the data ended after {step} steps; the epoch was to have {self._steps}. An "
                    "iterator must give as many batches as all epochs have",
                    stacklevel=3,
                )
                return
            yield batch

    def _next(self) -> Batch | None:
        """The batch after the last one, of another pass when a pass is over."""
        for _ in range(2):
            if self._pass is None:
                self._pass = self._data.batches()
            batch = next(self._pass, None)
            if batch is not None:
                return batch
            self._pass = None
        return None

    def groups(self, size: int) -> Iterator[tuple[int, list[Batch]]]:
        """The batches of an epoch, `size` at a time, with the number of the first of them."""
        group: list[Batch] = []
        step = self._first
        for batch in self.epoch():
            group.append(tuple(tensors(part) for part in batch))
            if len(group) == size:
                yield step, group
                step, group = step + size, []
        if group:
            yield step, group


def class_weights(y: Any, weights: Mapping[int, float]) -> np.ndarray:
    """The weight of each example by its class, of numbers or one-hot targets."""
    is_map = isinstance(weights, Mapping)
    if not is_map or not all(isinstance(label, Integral) for label in weights):
        raise ValueError(
            f"class_weight is {weights!r}; give a dict from the number of a class to its weight"
        )
    labels = np.asarray(y.numpy() if isinstance(y, Tensor) else y)
    if labels.ndim > 1:
        labels = labels.argmax(-1) if labels.shape[-1] > 1 else labels[..., 0]
    if labels.ndim > 1:
        raise ValueError("class_weight is for targets of one class for each example")
    found = np.ones(labels.shape, np.float32)
    for label, weight in weights.items():
        found[labels.astype(np.int64) == label] = weight
    return found
