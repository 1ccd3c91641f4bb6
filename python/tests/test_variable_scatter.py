"""Rows of a sidereal.Variable that are changed by indices, at once and inside of functions, against
NumPy and TensorFlow."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import sidereal as sr

NUMPY: dict[str, Any] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "min": np.minimum,
    "max": np.maximum,
}  # fmt: skip
HOW = [*NUMPY, "update"]


def scattered(how: str, start: np.ndarray, indices: np.ndarray, values: np.ndarray) -> np.ndarray:
    """What NumPy makes of it, one row after the other."""
    out = start.copy()
    for place, row in zip(indices.reshape(-1), values.reshape(-1, *start.shape[1:])):
        out[place] = row if how == "update" else NUMPY[how](out[place], row)
    return out


def at_once(change: Callable[[], Any]) -> None:
    change()


def in_a_function(change: Callable[[], Any]) -> None:
    @sr.function
    def step() -> None:
        change()

    step()


@pytest.mark.parametrize("run", [at_once, in_a_function])
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("shape", [(7, 3), (5,), (4, 2, 2)])
def test_rows_are_combined_as_numpy_does(
    how: str, shape: tuple[int, ...], run: Callable[..., None]
) -> None:
    rng = np.random.default_rng(seed := 3)
    print("seed", seed)
    for indices in ([1, 0, 1, 1, 3], [2], [[0, 1], [1, 3]]):
        start = rng.normal(size=shape).astype(np.float32)
        places = np.array(indices)
        values = rng.uniform(0.5, 2, size=(*places.shape, *shape[1:])).astype(np.float32)
        v = sr.Variable(start)
        rows = sr.IndexedSlices(values, places)
        run(partial(getattr(v, f"scatter_{how}"), rows))
        wanted = scattered(how, start, places, values)
        np.testing.assert_allclose(v.numpy(), wanted, rtol=1e-6, atol=1e-6)


def test_integers_are_divided_towards_zero() -> None:
    v = sr.Variable([7, -7, 100])
    assert v.scatter_div(sr.IndexedSlices([2, 2, 3], [0, 1, 1])) is v
    assert v.numpy().tolist() == [3, -1, 100]
    v.scatter_mul(sr.IndexedSlices([2, 2], [2, 2]))
    v.scatter_max(sr.IndexedSlices([5], [0]))
    v.scatter_min(sr.IndexedSlices([-5], [1]))
    assert v.numpy().tolist() == [5, -5, 400]


@pytest.mark.parametrize("run", [at_once, in_a_function])
def test_every_example_of_a_batch_has_indices_of_its_own(run: Callable[..., None]) -> None:
    start = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
    indices, values = np.array([[3, 0], [1, 2]]), -np.ones((2, 2, 3), np.float32)
    v = sr.Variable(start)
    run(lambda: v.batch_scatter_update(sr.IndexedSlices(values, indices)))
    wanted = start.copy()
    for b in range(2):
        wanted[b, indices[b]] = values[b]
    np.testing.assert_array_equal(v.numpy(), wanted)
    rows = sr.Variable(start[0])
    run(lambda: rows.batch_scatter_update(sr.IndexedSlices(values[0], indices[0])))
    np.testing.assert_array_equal(rows.numpy(), scattered("update", start[0], indices[0], values))


@pytest.mark.parametrize("how", [f"scatter_{how}" for how in HOW] + ["batch_scatter_update"])
def test_what_is_no_row_is_refused_and_nothing_changes(how: str) -> None:
    v = sr.Variable([[1.0, 2.0], [3.0, 4.0]])
    with pytest.raises(TypeError, match="IndexedSlices"):
        getattr(v, how)([[1.0, 1.0]])
    for index in (2, -1):
        with pytest.raises(sr.errors.InvalidArgumentError, match=str(index)):
            getattr(v, how)(sr.IndexedSlices([[5.0, 5.0]], [index]))
    with pytest.raises(sr.errors.InvalidArgumentError):
        getattr(v, how)(sr.IndexedSlices([[5.0, 5.0, 5.0]], [0]))
    assert v.numpy().tolist() == [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None,
    reason="TensorFlow is not installed; run ./dev setup --peers",
)
@pytest.mark.parametrize("how", [f"scatter_{how}" for how in HOW] + ["batch_scatter_update"])
def test_rows_are_combined_as_tensorflow_does(how: str) -> None:
    import tensorflow as tf

    start = np.arange(1, 9, dtype=np.float32).reshape(4, 2)
    indices, values = np.array([0, 3, 1]), np.array([[4, 1], [2, 20], [0.5, 3]], np.float32)
    ours, theirs = sr.Variable(start), tf.Variable(start)
    getattr(ours, how)(sr.IndexedSlices(values, indices))
    getattr(theirs, how)(tf.IndexedSlices(values, indices))
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6)
