"""Rows that did not happen, beside those that did: a transform of datasets of batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from . import errors, ops
from ._datasets import Dataset
from .ops.indexing import boolean_mask, gather
from .tensors import constant

SAMPLERS = ("uniform", "log_uniform", "in_batch")


def sample_negatives(
    num_negatives: int, column: str, num_items: int, *, field: int | None = None, first: int = 0,
    sampler: str = "log_uniform", label: str = "label", seed: int | None = None,
) -> Callable[[Dataset], Dataset]:  # fmt: skip
    """What Dataset.apply() takes to put rows into each batch that did not happen: for each row
    whose label is above 0, `num_negatives` copies of it with another item and the label 0, behind
    the rows of the batch.

        items = features.data.fields()[2]                  # (name, first id, how many)
        dataset = sr.data.Dataset.from_spec(spec, 256).apply(
            sr.data.experimental.sample_negatives(4, "ids", items[2], field=2, first=items[1]))

    Elements are dicts of columns, or tuples (dict of inputs, labels[, weights]), as
    Dataset.from_spec() and Features.dataset() give them.

    column: which has the items, [batch], or [batch, n] of which `field` is the item. num_items,
        first: items are ids from `first` on.
    sampler: "log_uniform", items of small numbers more often, for numbers in the order of
        popularity, as those of a vocabulary are; "uniform"; "in_batch": the items of other rows,
        popular ones as often as they are there.
    """
    if num_negatives < 1:
        raise errors.InvalidArgumentError(
            f"num_negatives is {num_negatives}; it must be positive"
        )
    if sampler not in SAMPLERS:
        raise errors.InvalidArgumentError(
            f"sampler is {sampler!r}; it must be one of {', '.join(SAMPLERS)}"
        )
    if num_items < 2:
        raise errors.InvalidArgumentError(
            f"num_items is {num_items}; another item than that of a row must be there"
        )

    def drawn(count: Any, there: Any) -> Any:
        shape = ops.array.reshape(count, [1])
        if sampler == "in_batch":
            part = ops.random.uniform(shape, dtype="float64", seed=seed)
            size = ops.array.shape(there)[0]
            place = ops.math.floor(ops.math.multiply(part, ops.basic.cast(size, "float64")))
            return gather(there, ops.math.minimum(ops.basic.cast(place, "int32"), size - 1))
        part = ops.random.uniform(shape, dtype="float64", seed=seed)
        if sampler == "log_uniform":
            part = ops.math.expm1(ops.math.multiply(part, math.log1p(num_items)))
        else:
            part = ops.math.multiply(part, float(num_items))
        found = ops.basic.cast(ops.math.floor(part), "int64")
        found = ops.math.minimum(found, constant(np.int64(num_items - 1)))
        return ops.math.add(found, constant(np.int64(first)))

    def replaced(ids: Any, originals: Any) -> Any:
        """Rows of the column with another item."""
        count = ops.array.shape(ids)[0]
        if field is None:
            items, there = ids, originals
        else:
            items, there = ids[:, field], originals[:, field]
        made = drawn(count, there)
        # The item of the row itself is no negative of it: the next one is.
        following = ops.math.subtract(made, constant(np.int64(first - 1)))
        other = ops.math.add(
            ops.math.floormod(following, constant(np.int64(num_items))), constant(np.int64(first))
        )
        made = ops.math.where(ops.math.equal(made, items), other, made)
        if field is None:
            return made
        parts = [ids[:, :field], ops.array.expand_dims(made, 1), ids[:, field + 1 :]]
        return ops.array.concat(parts, 1)

    def of_batch(columns: Mapping[str, Any], labels: Any) -> tuple[dict[str, Any], Any]:
        is_positive = ops.math.greater(labels, 0.0)
        made: dict[str, Any] = {}
        for name, value in columns.items():
            copies = ops.array.repeat(boolean_mask(value, is_positive), num_negatives, axis=0)
            if name == column:
                copies = replaced(copies, value)
            made[name] = ops.array.concat([value, copies], 0)
        zeros = ops.array.repeat(boolean_mask(labels, is_positive), num_negatives, axis=0)
        return made, ops.array.concat([labels, ops.array.zeros_like(zeros)], 0)

    def of_element(*element: Any) -> Any:
        if len(element) == 1 and isinstance(element[0], Mapping):
            (batch,) = element
            rest = {name: value for name, value in batch.items() if name != label}
            _check(rest)
            made, labels = of_batch(rest, batch[label])
            return {**made, label: labels}
        inputs, labels, *weights = element
        _check(inputs)
        named = {f"weight_{i}": value for i, value in enumerate(weights)}
        made, labels = of_batch({**inputs, **named}, labels)
        return ({name: made[name] for name in inputs}, labels, *(made[name] for name in named))

    def _check(columns: Mapping[str, Any]) -> None:
        if column not in columns:
            raise errors.InvalidArgumentError(
                f"batches have no column '{column}' of items; they have {', '.join(columns)}"
            )

    return lambda dataset: dataset.map(of_element)


__all__ = ["sample_negatives"]
