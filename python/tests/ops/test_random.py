"""Seeds of random ops: TensorFlow's rules."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import sidereal as sr


@pytest.fixture(autouse=True)
def no_seed() -> Iterator[None]:
    sr.random.set_seed(None)
    yield
    sr.random.set_seed(None)


def draw(seed: int | None = None) -> np.ndarray:
    return sr.random.uniform([4], seed=seed).numpy()


def test_without_seeds_every_call_differs() -> None:
    assert not np.array_equal(draw(), draw())


def test_the_programs_seed_repeats_the_sequence_and_tells_ops_apart() -> None:
    sr.random.set_seed(5)
    first = [draw(), draw(), draw(3), draw(3)]
    sr.random.set_seed(5)
    again = [draw(), draw(), draw(3), draw(3)]
    for one, other in zip(first, again):
        np.testing.assert_array_equal(one, other)
    assert len({x.tobytes() for x in first}) == 4
    sr.random.set_seed(6)
    assert not np.array_equal(draw(), first[0])


def test_the_seed_of_an_op_alone_repeats_after_the_program_begins_anew() -> None:
    sr.random.set_seed(None)
    first = [draw(9), draw(9)]
    sr.random.set_seed(None)
    np.testing.assert_array_equal(first, [draw(9), draw(9)])
    assert not np.array_equal(*first)


def test_a_function_draws_anew_in_every_call() -> None:
    sr.random.set_seed(1)
    function = sr.function(lambda x: x + sr.random.normal([3]))
    x = sr.constant(np.zeros(3, np.float32))
    assert not np.array_equal(function(x).numpy(), function(x).numpy())


@pytest.mark.parametrize("seed", [None, 9])
def test_equal_functions_draw_the_same_whatever_ran_before(seed: int | None) -> None:
    """As TensorFlow's: each function counts its calls."""
    sr.random.set_seed(None if seed is not None else 1)

    def draw(x: sr.Tensor) -> sr.Tensor:
        return x + sr.random.normal([3], seed=seed)

    x = sr.constant(np.zeros(3, np.float32))
    one, other = sr.function(draw), sr.function(draw)
    first = [one(x).numpy(), one(x).numpy()]
    np.testing.assert_array_equal(first, [other(x).numpy(), other(x).numpy()])
    assert not np.array_equal(*first)


def test_stateless_ops_depend_on_their_seed_only() -> None:
    one = sr.random.stateless_uniform([5], [1, 2]).numpy()
    np.testing.assert_array_equal(one, sr.random.stateless_uniform([5], [1, 2]).numpy())
    assert not np.array_equal(one, sr.random.stateless_uniform([5], [1, 3]).numpy())
    whole = sr.random.stateless_uniform([100], [1, 2], 3, 5, dtype="int32").numpy()
    assert set(whole) == {3, 4}
    assert abs(sr.random.stateless_normal([4000], [0, 0], 5.0, 0.1).numpy().mean() - 5) < 0.02
    wide = sr.random.stateless_uniform([1000], [1, 2], -2.0, 3.0, dtype="float64").numpy()
    assert wide.min() >= -2 and 2.9 < wide.max() < 3 and wide.dtype == np.float64
    cut = sr.random.stateless_truncated_normal([1000], [1, 2], 1.0, 0.5, "float64").numpy()
    assert 1.9 < cut.max() <= 2.0001 and abs(cut.mean() - 1) < 0.1
    again = sr.random.stateless_truncated_normal([1000], [1, 2], 1.0, 0.5, "float64").numpy()
    np.testing.assert_array_equal(cut, again)


def test_limits_and_dtypes() -> None:
    x = sr.random.uniform([1000], -2.0, 3.0).numpy()
    assert x.min() >= -2 and x.max() < 3 and x.dtype == np.float32
    assert sr.random.uniform([2], 0, 10, dtype=sr.int64).numpy().dtype == np.int64
    assert sr.random.normal([2, 3], dtype=sr.float64).dtype == sr.float64
    assert sr.random.truncated_normal([1000], 1.0, 0.5).numpy().max() <= 2.0001
    with pytest.raises(sr.errors.InvalidArgumentError, match="needs maxval"):
        sr.random.uniform([2], dtype=sr.int32)
    with pytest.raises(sr.errors.InvalidArgumentError, match="must be less than maxval"):
        sr.random.uniform([2], 5, 5, dtype=sr.int32)


def test_bernoulli_and_categorical_have_the_probabilities_asked_for() -> None:
    sr.random.set_seed(4)
    assert abs(sr.random.bernoulli([5000], 0.3, dtype="float32").numpy().mean() - 0.3) < 0.04
    logits = np.log(np.array([[0.2, 0.5, 0.3]], np.float32))
    counts = np.bincount(sr.random.categorical(logits, 5000).numpy()[0], minlength=3) / 5000
    np.testing.assert_allclose(counts, [0.2, 0.5, 0.3], atol=0.04)


def test_dropout_drops_the_same_in_the_gradient_and_repeats_with_seeds() -> None:
    x = sr.constant(np.ones((50, 40), np.float32))
    sr.random.set_seed(2)
    with sr.GradientTape() as tape:
        tape.watch(x)
        y = sr.nn.dropout(x, 0.4)
    np.testing.assert_array_equal(tape.gradient(y, x).numpy(), y.numpy())
    assert 0.5 < (y.numpy() != 0).mean() < 0.7
    other = sr.nn.dropout(x, 0.4).numpy()
    assert not np.array_equal(other, y.numpy())
    sr.random.set_seed(2)
    np.testing.assert_array_equal(sr.nn.dropout(x, 0.4).numpy(), y.numpy())


def test_unseeded_dropout_drops_the_same_in_the_gradient() -> None:
    x = sr.constant(np.ones((50, 40), np.float32))
    with sr.GradientTape() as tape:
        tape.watch(x)
        y = sr.nn.dropout(x, 0.4)
    np.testing.assert_array_equal(tape.gradient(y, x).numpy(), y.numpy())


def test_noise_shape_drops_together() -> None:
    y = sr.nn.dropout(np.ones((40, 8), np.float32), 0.5, noise_shape=[40, 1]).numpy()
    assert all(len(set(row)) == 1 for row in y)
    assert sorted(set(y.reshape(-1))) == [0, 2]
    with pytest.raises(sr.errors.InvalidArgumentError, match="rate is 1"):
        sr.nn.dropout(np.ones(3), 1.0)
