"""Helpers of models (keras.utils)."""

from __future__ import annotations

import random
import types
from collections import abc
from collections.abc import Callable
from typing import Any

import numpy as np

from .._datasets import Dataset
from ..ops.random import set_seed
from ._configs import (
    CustomObjectScope,
    custom_object_scope,
    get_custom_objects,
    get_registered_name,
    get_registered_object,
    register_keras_serializable,
)
from ._configs import deserialize as deserialize_keras_object
from ._configs import serialize as serialize_keras_object
from ._sidecar import SidecarEvaluator

__all__ = [
    "CustomObjectScope", "PyDataset", "Sequence", "SidecarEvaluator", "clear_session",
    "custom_object_scope", "deserialize_keras_object", "experimental", "get_custom_objects",
    "get_registered_name", "get_registered_object", "normalize", "pad_sequences",
    "register_keras_serializable", "serialize_keras_object", "set_random_seed", "to_categorical",
]  # fmt: skip


def set_random_seed(seed: int) -> None:
    """The seed of all that draws numbers: Python's random, NumPy, and this package."""
    if not isinstance(seed, int) or not 0 <= seed < 1 << 32:
        raise ValueError(f"seed is {seed!r}; it must be an integer from 0 to {(1 << 32) - 1}")
    random.seed(seed)
    np.random.seed(seed)
    set_seed(seed)


def to_categorical(x: Any, num_classes: int | None = None) -> np.ndarray:
    """One-hot rows, float64, of class numbers, an array with or without a last axis of 1. Without
    `num_classes` there are as many as the greatest number says. ValueError for one below 0, or not
    below `num_classes`."""
    numbers = np.asarray(x, dtype=np.int64)
    shape = numbers.shape
    if len(shape) > 1 and shape[-1] == 1:
        shape = shape[:-1]
    numbers = numbers.reshape(-1)
    classes = int(numbers.max(initial=-1)) + 1 if num_classes is None else int(num_classes)
    if numbers.size and (numbers.min() < 0 or numbers.max() >= classes):
        raise ValueError(
            f"class numbers are {numbers.min()} to {numbers.max()}; with {classes} classes they "
            f"are 0 to {classes - 1}"
        )
    return (numbers[:, None] == np.arange(classes)).astype(np.float64).reshape(*shape, classes)


def clear_session() -> None:
    """Nothing: layers and models hold what they have, and nothing else does."""


def normalize(x: Any, axis: int = -1, order: int = 2) -> np.ndarray:
    """An array divided by the length of its vectors along an axis; those of length 0 stay."""
    array = np.asarray(x)
    length = np.atleast_1d(np.linalg.norm(array, order, axis))
    length[length == 0] = 1
    return array / np.expand_dims(length, axis)


def pad_sequences(
    sequences: abc.Sequence[abc.Sequence[Any]], maxlen: int | None = None, dtype: Any = "int32",
    padding: str = "pre", truncating: str = "pre", value: Any = 0.0,
) -> np.ndarray:  # fmt: skip
    """Sequences as rows of one array, as long as the longest or `maxlen`: filled up with `value`,
    or cut, at their beginning ("pre") or end ("post")."""
    for name, given in (("padding", padding), ("truncating", truncating)):
        if given not in ("pre", "post"):
            raise ValueError(f"{name} is {given!r}; it must be 'pre' or 'post'")
    lengths = [len(each) for each in sequences]
    width = max(lengths, default=0) if maxlen is None else maxlen
    inner = next((np.shape(each)[1:] for each in sequences if len(each)), ())
    if isinstance(value, str) and np.dtype(dtype) != np.dtype(object):
        raise ValueError(f"dtype {dtype} has no text; padding with {value!r} needs dtype=object")
    found = np.full((len(lengths), width, *inner), value, dtype=dtype)
    for row, each in zip(found, sequences):
        kept = each[max(0, len(each) - width) :] if truncating == "pre" else each[:width]
        if len(kept) == 0:
            continue
        if np.shape(kept)[1:] != inner:
            raise ValueError(
                f"elements of sequences have shapes {np.shape(kept)[1:]} and {inner}; one is wanted"
            )
        if padding == "post":
            row[: len(kept)] = kept
        else:
            row[width - len(kept) :] = kept
    return found


class PyDataset:
    """Base of batches that Python code makes: len() says how many there are in an epoch, self[i] is
    one of them, (x, y) or (x, y, sample_weight). They are made as they are needed, one after
    another: `workers` and the rest change nothing."""

    def __init__(
        self, workers: int = 1, use_multiprocessing: bool = False, max_queue_size: int = 10
    ) -> None:
        self.workers, self.use_multiprocessing = workers, use_multiprocessing
        self.max_queue_size = max_queue_size

    @property
    def num_batches(self) -> int:
        """How many there are in an epoch."""
        return len(self)

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} has no __len__, the number of batches")

    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no __getitem__, which gives a batch")

    def on_epoch_end(self) -> None:
        """Called when an epoch has had all batches."""


#: What Keras 2 called it.
Sequence = PyDataset


class DatasetCreator:
    """A function of an InputContext that makes the dataset which fit(), evaluate() and predict() of
    a model of a strategy are given (tf.keras.utils.experimental.DatasetCreator).

    input_options: changes nothing; workers read ahead as the dataset says.
    Errors: TypeError for what is no function, and when it gives no Dataset.
    """

    def __init__(self, dataset_fn: Callable[[Any], Any], input_options: Any = None) -> None:
        if not callable(dataset_fn):
            raise TypeError(
                f"`dataset_fn` for `DatasetCreator` must be a `callable`, and not {dataset_fn!r}"
            )
        self.dataset_fn, self.input_options = dataset_fn, input_options

    def __call__(self, *args: Any, **kwargs: Any) -> Dataset:
        dataset = self.dataset_fn(*args, **kwargs)
        if not isinstance(dataset, Dataset):
            raise TypeError(
                "The `callable` provided to `DatasetCreator` must return a Dataset, and not "
                f"{dataset!r}"
            )
        return dataset


experimental = types.SimpleNamespace(DatasetCreator=DatasetCreator)
