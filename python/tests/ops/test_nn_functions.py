"""Functions of sidereal.math, nn and debugging that are made of several ops, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sidereal as sr

RNG = np.random.default_rng(8)
X = RNG.normal(size=(3, 4))
Y = RNG.normal(size=(3, 4))
P = RNG.uniform(0.05, 0.95, size=(3, 4))
LABELS = RNG.integers(0, 2, size=(3, 4)).astype(np.float64)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x**2).sum(-1, keepdims=True))


FUNCTIONS: list[tuple[str, Callable[[], Any], Any]] = [
    ("log_sigmoid", lambda: sr.math.log_sigmoid(X), np.log(sigmoid(X))),
    ("softsign", lambda: sr.math.softsign(X), X / (1 + np.abs(X))),
    ("clip", lambda: sr.clip_by_value(X, -0.5, 0.25), np.clip(X, -0.5, 0.25)),
    ("where", lambda: sr.where(X > 0, X, 0.0), np.where(X > 0, X, 0)),
    ("divide_ints", lambda: sr.divide([1, 2], [2, 4]), np.array([0.5, 0.5])),
    ("floordiv", lambda: sr.constant([-7, 7]) // 2, np.array([-4, 3])),
    ("mod", lambda: sr.constant([-7, 7]) % 3, np.array([2, 1])),
    ("power", lambda: sr.constant([2.0, 3.0]) ** 2, np.array([4.0, 9.0])),
    ("multiply_no_nan", lambda: sr.math.multiply_no_nan([np.inf, 2.0], [0.0, 3.0]),
     np.array([0.0, 6.0])),
    ("variance", lambda: sr.math.reduce_variance(X, 1), X.var(1)),
    ("std", lambda: sr.math.reduce_std(X, [0, 1], keepdims=True), X.std(keepdims=True)),
    ("norm", lambda: sr.math.reduce_euclidean_norm(X, -1), np.linalg.norm(X, axis=-1)),
    ("no_axes", lambda: sr.reduce_sum(X, axis=()), X),
    ("logsumexp", lambda: sr.reduce_logsumexp(X, 1), np.log(np.exp(X).sum(1))),
    ("logsumexp_inf", lambda: sr.reduce_logsumexp([[-np.inf, -np.inf], [np.inf, 0.0]], 1),
     np.array([-np.inf, np.inf])),
    ("logsumexp_large", lambda: sr.reduce_logsumexp([1000.0, 1000.0]), 1000 + np.log(2)),
    ("l2_normalize", lambda: sr.math.l2_normalize(X, -1), unit(X)),
    ("zero_fraction", lambda: sr.math.zero_fraction([0.0, 1.0, 0.0, 2.0]), np.array(0.5)),
    ("add_n", lambda: sr.add_n([X, Y, X]), X + Y + X),
    ("leaky_relu", lambda: sr.nn.leaky_relu(X, 0.1), np.where(X > 0, X, 0.1 * X)),
    ("hard_sigmoid", lambda: sr.nn.hard_sigmoid(X), np.clip(X / 6 + 0.5, 0, 1)),
    ("hard_swish", lambda: sr.nn.hard_swish(X), X * np.clip(X / 6 + 0.5, 0, 1)),
    ("mish", lambda: sr.nn.mish(X), X * np.tanh(np.log1p(np.exp(X)))),
    ("swish_beta", lambda: sr.nn.swish(X, beta=2.0), X * sigmoid(2 * X)),
    ("gelu_approximate", lambda: sr.nn.gelu(X, approximate=True),
     0.5 * X * (1 + np.tanh(np.sqrt(2 / np.pi) * (X + 0.044715 * X**3)))),
    ("crelu", lambda: sr.nn.crelu(X), np.maximum(np.concatenate([X, -X], -1), 0)),
    ("mse", lambda: sr.nn.mean_squared_error(X, Y), ((X - Y) ** 2).mean(-1)),
    ("mae", lambda: sr.nn.mean_absolute_error(X, Y), np.abs(X - Y).mean(-1)),
    ("log_loss", lambda: sr.nn.log_loss(LABELS, P),
     -LABELS * np.log(P + 1e-7) - (1 - LABELS) * np.log(1 - P + 1e-7)),
    ("huber", lambda: sr.nn.huber(X, Y, 0.7),
     np.where(np.abs(X - Y) <= 0.7, (X - Y) ** 2 / 2, 0.7 * (np.abs(X - Y) - 0.35)).mean(-1)),
    ("hinge", lambda: sr.nn.hinge(LABELS, X), np.maximum(1 - (2 * LABELS - 1) * X, 0).mean(-1)),
    ("hinge_signs", lambda: sr.nn.hinge(2 * LABELS - 1, X),
     np.maximum(1 - (2 * LABELS - 1) * X, 0).mean(-1)),
    ("hinge_parts", lambda: sr.nn.hinge(P, X), np.maximum(1 - P * X, 0).mean(-1)),
    ("cosine", lambda: sr.nn.cosine_similarity(X, Y), -(unit(X) * unit(Y)).sum(-1)),
    ("l2_loss", lambda: sr.nn.l2_loss(X), (X**2).sum() / 2),
    ("average_loss", lambda: sr.nn.compute_average_loss(X, global_batch_size=24), X.sum() / 24),
    ("weighted_ce", lambda: sr.nn.weighted_cross_entropy_with_logits(LABELS, X, 2.5),
     -2.5 * LABELS * np.log(sigmoid(X)) - (1 - LABELS) * np.log(1 - sigmoid(X))),
    ("softmax_ce_axis", lambda: sr.nn.softmax_cross_entropy_with_logits(P, X, axis=0),
     -(P * (X - np.log(np.exp(X).sum(0)))).sum(0)),
    ("moments", lambda: sr.nn.moments(X, [0])[1], X.var(0)),
    ("batch_normalization",
     lambda: sr.nn.batch_normalization(X, X.mean(0), X.var(0), 0.5, 2.0, 1e-3),
     (X - X.mean(0)) / np.sqrt(X.var(0) + 1e-3) * 2 + 0.5),
    ("fused_inference",
     lambda: sr.nn.fused_batch_norm(X, np.ones(4), np.zeros(4), np.zeros(4), np.ones(4),
                                    is_training=False)[0], X / np.sqrt(1.001)),
    ("fused_variance", lambda: sr.nn.fused_batch_norm(X, np.ones(4), np.zeros(4))[2],
     X.var(0, ddof=1)),
]


@pytest.mark.parametrize(("call", "want"), [pytest.param(c, w, id=n) for n, c, w in FUNCTIONS])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_values(call: Callable[[], Any], want: Any) -> None:
    got = call().numpy()
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)
    assert got.shape == np.shape(want)


def test_integer_division_by_zero_is_an_error() -> None:
    for call in (lambda: sr.constant([1, 2]) // [1, 0], lambda: sr.constant([1, 2]) % 0):
        with pytest.raises(sr.errors.InvalidArgumentError, match="integer division by zero"):
            call()
    with pytest.raises(sr.errors.InvalidArgumentError, match="negative power"):
        sr.pow(sr.constant([2]), -1)


def test_dtypes_that_do_not_fit_are_named() -> None:
    refused = sr.errors.InvalidArgumentError
    with pytest.raises(refused, match="input 0 is int32, which is not a float"):
        sr.exp(sr.constant([1]))
    with pytest.raises(refused, match="float32 and float64; cast"):
        sr.add(sr.constant([1.0]), sr.constant([1.0], dtype="float64"))


def test_labels_out_of_range_are_named() -> None:
    wanted = r"label 3 at position 1 is not in \[0, 3\)"
    with pytest.raises(sr.errors.InvalidArgumentError, match=wanted):
        sr.nn.sparse_softmax_cross_entropy_with_logits([0, 3], np.zeros((2, 3)))


def test_checks() -> None:
    sr.debugging.assert_equal([1, 2], [1, 2])
    sr.debugging.assert_near([1.0], [1.0 + 1e-8])
    sr.debugging.assert_positive([1.0])
    with pytest.raises(sr.errors.InvalidArgumentError, match=r"less than y.*\[1 5\], \[2 3\]"):
        sr.debugging.assert_less([1, 5], [2, 3])
    with pytest.raises(sr.errors.InvalidArgumentError, match="loss: 1 of 3 elements are NaN, 1"):
        sr.debugging.check_numerics([1.0, np.nan, np.inf], "loss")
    wanted = r"does not hold: \[1 2 3 \.\.\. 8 9 10\]"
    with pytest.raises(sr.errors.InvalidArgumentError, match=wanted):
        sr.debugging.Assert(False, [np.arange(1, 11)])


def test_print_writes_to_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    sr.debugging.print("x is", sr.constant([[1.5, 2.0], [3.0, 4.0]]), True)
    assert capfd.readouterr().err == "x is [[1.5 2] [3 4]] True\n"


def test_checks_and_prints_run_in_functions(capfd: pytest.CaptureFixture[str]) -> None:
    @sr.function
    def checked(x: sr.Tensor) -> sr.Tensor:
        sr.debugging.print("got", x)
        sr.debugging.assert_positive(x, message="x must be positive")
        return sr.debugging.check_numerics(sr.math.log(x), "log") * 2.0

    np.testing.assert_allclose(checked(sr.constant([1.0])).numpy(), [0.0])
    assert capfd.readouterr().err == "got [1]\n"
    with pytest.raises(sr.errors.InvalidArgumentError, match=r"x must be positive: \[-1\]"):
        checked(sr.constant([-1.0]))
