"""Helpers of models (keras.utils)."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from .._datasets import Dataset
from ._sidecar import SidecarEvaluator

__all__ = ["SidecarEvaluator", "experimental"]


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
