"""Helpers of models (keras.utils)."""

from __future__ import annotations

import random
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from .._datasets import Dataset
from ..ops.random import set_seed
from ._sidecar import SidecarEvaluator

__all__ = ["SidecarEvaluator", "experimental", "set_random_seed", "to_categorical"]


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
