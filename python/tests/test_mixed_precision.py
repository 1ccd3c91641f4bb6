"""compute_dtype="bfloat16": the same models, as far as bfloat16 goes, on any processor."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sidereal as sr
import sidereal.v1 as tf
from conftest import planted, small_model

Array = np.ndarray


def random(*shape: int, seed: int = 0) -> Array:
    made = np.random.default_rng(seed).standard_normal(shape) / np.sqrt(shape[0])
    return made.astype(np.float32)


def tower(x: Any, weights: list[tuple[Any, Any]]) -> Any:
    for i, (w, b) in enumerate(weights):
        x = sr.nn.bias_add(x @ w, b)
        x = sr.nn.relu(x) if i + 1 < len(weights) else x
    return x


def weights_of(*widths: int) -> list[tuple[sr.Variable, sr.Variable]]:
    return [
        (sr.Variable(random(n, m, seed=i)), sr.Variable(np.zeros(m, np.float32)))
        for i, (n, m) in enumerate(itertools.pairwise(widths))
    ]


def distance(a: Any, b: Any) -> float:
    a, b = np.asarray(a), np.asarray(b)
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def test_gradients_of_a_tower_are_those_of_float32_to_the_precision_of_bfloat16() -> None:
    weights = weights_of(40, 64, 48, 1)
    variables = [variable for pair in weights for variable in pair]
    x, y = random(96, 40), random(96, 1)

    def of(compute_dtype: str) -> list[Array]:
        @sr.function(compute_dtype=compute_dtype)
        def gradients(x: Any, y: Any) -> Any:
            with sr.GradientTape() as tape:
                loss = sr.reduce_mean(sr.square(tower(x, weights) - y))
            return [loss, *tape.gradient(loss, variables)]

        return gradients(x, y)

    wide, narrow = of("float32"), of("bfloat16")
    for got, want in zip(narrow, wide):
        assert got.dtype == np.float32
        assert distance(got, want) < 0.05


def test_a_tape_around_a_function_works_as_well() -> None:
    w = sr.Variable(random(30, 20))
    x = random(50, 30)
    functions = [
        sr.function(lambda x: sr.tanh(x @ w), compute_dtype=dtype)
        for dtype in ("float32", "bfloat16")
    ]
    grads = []
    for function in functions:
        with sr.GradientTape() as tape:
            loss = sr.reduce_sum(sr.square(function(x)))
        grads.append(tape.gradient(loss, w))
    assert distance(grads[1], grads[0]) < 0.05


def test_the_function_says_what_it_computes_in() -> None:
    @sr.function(compute_dtype=sr.bfloat16)
    def product(x: Any) -> Any:
        return x @ x

    concrete = product.get_concrete_function(sr.TensorSpec([4, 4], sr.float32))
    lowered = "bfloat16" in concrete.program_text()
    assert concrete.compute_dtype == ("bfloat16" if lowered else "float32")
    assert "bfloat16" not in concrete.graph_text()
    assert product(np.eye(4, dtype=np.float32)).dtype == np.float32


def test_another_compute_dtype_is_refused() -> None:
    with pytest.raises(ValueError, match="is float64; it must be float32 or bfloat16"):
        sr.function(lambda x: x, compute_dtype="float64")
    with pytest.raises(ValueError, match="compute_dtype is int32"):
        tf.ConfigProto(compute_dtype=sr.int32)
    with pytest.raises(TypeError, match="ConfigProto"):
        tf.Session(config={"compute_dtype": "bfloat16"})


def test_a_session_takes_it_from_its_config() -> None:
    results = []
    for dtype in ("float32", "bfloat16"):
        with tf.Graph().as_default():
            x = tf.placeholder(tf.float32, [None, 16])
            y = tf.matmul(x, tf.constant(random(16, 8)))
            with tf.Session(config=tf.ConfigProto(compute_dtype=dtype)) as session:
                results.append(session.run(y, {x: random(32, 16, seed=1)}))
    assert distance(results[1], results[0]) < 0.01


def test_float64_and_integers_are_computed_as_written() -> None:
    x = np.random.default_rng(0).standard_normal((5, 5))
    product = sr.function(lambda x: x @ x, compute_dtype="bfloat16")
    np.testing.assert_allclose(product(x), x @ x, rtol=1e-12)


def test_a_deepfm_reaches_the_loss_it_reaches_in_float32() -> None:
    fields, ids, dim = 6, 500, 8
    rng = np.random.default_rng(3)
    scores = rng.standard_normal(ids).astype(np.float32)

    def train(compute_dtype: str) -> tuple[list[float], int]:
        table = sr.Variable(random(ids, dim, seed=5) * 0.1)
        linear = sr.Variable(np.zeros((ids, 1), np.float32))
        weights = weights_of(fields * dim, 32, 32, 1)
        variables = [table, linear, *(variable for pair in weights for variable in pair)]
        adam = sr.optimizers.Adam(0.01)

        @sr.function(compute_dtype=compute_dtype)
        def step(rows: Any, labels: Any) -> Any:
            with sr.GradientTape() as tape:
                vectors = sr.nn.embedding_lookup(table, rows)
                first = sr.reduce_sum(sr.nn.embedding_lookup(linear, rows), 1)
                total = sr.square(sr.reduce_sum(vectors, 1)) - sr.reduce_sum(sr.square(vectors), 1)
                second = 0.5 * sr.reduce_sum(total, 1, keepdims=True)
                deep = tower(sr.reshape(vectors, (-1, fields * dim)), weights)
                loss = sr.reduce_mean(
                    sr.nn.sigmoid_cross_entropy_with_logits(labels, first + second + deep)
                )
            adam.apply_gradients(zip(tape.gradient(loss, variables), variables))
            return loss

        batches = np.random.default_rng(4)
        losses = []
        for _ in range(150):
            rows = batches.integers(0, ids, (128, fields))
            labels = (scores[rows].sum(1, keepdims=True) > 0).astype(np.float32)
            losses.append(float(step(rows, labels)))
        return losses, step.trace_count

    (wide, _), (narrow, traces) = train("float32"), train("bfloat16")
    assert traces == 1
    assert np.mean(wide[-20:]) < 0.6 * wide[0]
    assert np.mean(narrow[-20:]) == pytest.approx(np.mean(wide[-20:]), abs=0.02)
    # The same bits again.
    assert train("bfloat16")[0] == narrow


def test_a_model_of_a_cluster_takes_it_in_fit(clusters: Callable[..., sr.LocalCluster]) -> None:
    aucs, losses = [], []
    for dtype in ("float32", "bfloat16"):
        model = small_model()
        fit = model.fit(
            planted(20_000), cluster=clusters(in_process=True), epochs=2, batch_size=64,
            compute_dtype=dtype, record_losses=True,
        )  # fmt: skip
        losses.append(np.asarray(fit.losses))
        aucs.append(model.evaluate(planted(4000, seed=1)).auc)
    assert aucs[0] > 0.85
    assert aucs[1] == pytest.approx(aucs[0], abs=0.01)
    assert losses[1][0] == pytest.approx(losses[0][0], rel=1e-3)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_layer_with_relu_passes_nan_on(dtype: str) -> None:
    @sr.function(compute_dtype=dtype)
    def layer(x: Any, w: Any, b: Any) -> Any:
        return sr.nn.relu(sr.nn.bias_add(sr.matmul(x, w), b))

    x = np.ones((20, 40), np.float32)
    x[3, 5] = np.nan
    out = np.asarray(layer(x, -np.ones((40, 24), np.float32), np.ones(24, np.float32)))
    assert np.isnan(out[3]).all()
    assert (np.delete(out, 3, axis=0) == 0).all()
