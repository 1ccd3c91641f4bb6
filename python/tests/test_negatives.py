"""Rows that did not happen: drawn from all items, or from those of a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sidereal as sr

ITEMS, FIRST = 20, 100
sample_negatives = sr.data.experimental.sample_negatives


def batches(sampler: str, rows: int = 400, count: int = 3, **options: Any) -> list[Any]:
    rng = np.random.default_rng(0)
    data = {
        "ids": np.stack([rng.integers(0, 9, rows), FIRST + rng.integers(0, 5, rows)], 1),
        "dense": rng.normal(size=(rows, 2)).astype(np.float32),
        "label": (rng.random(rows) < 0.4).astype(np.float32),
    }
    dataset = sr.data.Dataset.from_tensor_slices(data).batch(100)
    how = sample_negatives(count, "ids", ITEMS, field=1, first=FIRST, sampler=sampler, **options)
    return list(zip(dataset, dataset.apply(how)))


@pytest.mark.parametrize("sampler", ["uniform", "log_uniform", "in_batch"])
def test_each_positive_row_gets_negatives_with_another_item(sampler: str) -> None:
    items = []
    for given, made in batches(sampler):
        before = {name: value.numpy() for name, value in given.items()}
        after = {name: value.numpy() for name, value in made.items()}
        positive = np.flatnonzero(before["label"] > 0)
        source = np.repeat(positive, 3)
        for name, value in before.items():
            np.testing.assert_array_equal(after[name][:100], value)
            assert after[name].dtype == value.dtype
        negatives = after["ids"][100:]
        assert len(negatives) == len(source) and (after["label"][100:] == 0).all()
        np.testing.assert_array_equal(negatives[:, 0], before["ids"][source, 0])
        np.testing.assert_array_equal(after["dense"][100:], before["dense"][source])
        assert (negatives[:, 1] != before["ids"][source, 1]).all()
        assert negatives[:, 1].min() >= FIRST and negatives[:, 1].max() < FIRST + ITEMS
        items.append(negatives[:, 1] - FIRST)
    share = np.bincount(np.concatenate(items), minlength=ITEMS) / sum(map(len, items))
    if sampler == "in_batch":
        # Of the five that are there, and the next one where it was the row's own.
        assert share[:6].sum() == pytest.approx(1)
    elif sampler == "uniform":
        assert share[5:].min() > 0.01 and share[5:].max() < 0.12
    else:
        wanted = np.log((np.arange(ITEMS) + 2) / (np.arange(ITEMS) + 1)) / np.log(ITEMS + 1)
        np.testing.assert_allclose(share[8:], wanted[8:], atol=0.03)
        assert share[:5].sum() > 0.45


def test_weights_go_with_their_rows_and_items_may_be_a_column_of_their_own() -> None:
    data = ({"item": np.arange(6)}, np.float32([1, 0, 1, 0, 0, 0]), np.float32([1, 2, 3, 4, 5, 6]))
    dataset = sr.data.Dataset.from_tensor_slices(data).batch(6)
    (made,) = list(dataset.apply(sample_negatives(2, "item", 6, sampler="uniform")))
    inputs, labels, weights = made
    np.testing.assert_array_equal(labels.numpy(), [1, 0, 1, 0, 0, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(weights.numpy()[6:], [1, 1, 3, 3])
    assert (inputs["item"].numpy()[6:] != [0, 0, 2, 2]).all()


@pytest.mark.parametrize(("options", "said"), [
    ({"num_negatives": 0}, "must be positive"), ({"sampler": "best"}, "one of uniform"),
    ({"num_items": 1}, "another item"), ({"column": "items"}, "no column 'items'"),
])  # fmt: skip
def test_what_cannot_be_sampled_is_told(options: dict[str, Any], said: str) -> None:
    given = {"num_negatives": 2, "column": "ids", "num_items": 5, **options}
    dataset = sr.data.Dataset.from_tensor_slices({"ids": [1, 2], "label": [1.0, 0.0]}).batch(2)
    with pytest.raises(sr.errors.InvalidArgumentError, match=said):
        dataset.apply(sample_negatives(**given))
