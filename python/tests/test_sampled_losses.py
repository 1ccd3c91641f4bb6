"""Losses over many classes of which a few are sampled, over the items of a batch, and over pairs of
rows: their numbers beside those of NumPy and torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sidereal as sr
from sidereal import keras

torch = pytest.importorskip("torch")

CLASSES, DIM, ROWS = 60, 5, 7


def drawn(seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "weights": rng.normal(size=(CLASSES, DIM)).astype(np.float32),
        "biases": rng.normal(size=CLASSES).astype(np.float32),
        "inputs": rng.normal(size=(ROWS, DIM)).astype(np.float32),
    }


def log_uniform(classes: np.ndarray, range_max: int) -> np.ndarray:
    return np.log((classes + 2.0) / (classes + 1.0)) / np.log(range_max + 1.0)


@pytest.mark.parametrize("in_function", [False, True])
def test_log_uniform_candidates_are_distributed_and_told_as_expected(in_function: bool) -> None:
    true = np.array([[0], [7], [99]])

    def draw() -> Any:
        return sr.random.log_uniform_candidate_sampler(true, 1, 20000, False, 100, seed=5)

    called = sr.function(draw) if in_function else draw
    ids, of_true, of_sampled = (x.numpy() for x in called())
    assert ids.dtype == np.int64 and ids.min() >= 0 and ids.max() < 100
    share = np.bincount(ids, minlength=100) / len(ids)
    np.testing.assert_allclose(share, log_uniform(np.arange(100), 100), atol=0.01)
    np.testing.assert_allclose(of_true, 20000 * log_uniform(true, 100), rtol=1e-5)
    np.testing.assert_allclose(of_sampled, 20000 * log_uniform(ids, 100), rtol=1e-5)


@pytest.mark.parametrize("in_function", [False, True])
@pytest.mark.parametrize("sampler", ["log_uniform", "uniform"])
def test_unique_candidates_differ_and_their_counts_are_below_1(
    sampler: str, in_function: bool
) -> None:
    draw = getattr(sr.random, f"{sampler}_candidate_sampler")

    def unique() -> Any:
        return draw(np.array([[3, 4]]), 2, 20, True, 50, seed=2)

    called = sr.function(unique) if in_function else unique
    ids, of_true, of_sampled = (x.numpy() for x in called())
    assert len(set(ids.tolist())) == 20 and of_true.shape == (1, 2)
    assert (of_sampled > 0).all() and (of_sampled <= 1).all()
    share = log_uniform(ids, 50) if sampler == "log_uniform" else np.full(20, 1 / 50)
    of_sampled, share = of_sampled[of_sampled < 0.99], share[of_sampled < 0.99]
    # One number of tries explains all of them.
    tries = np.log1p(-of_sampled.astype(np.float64)) / np.log1p(-share)
    np.testing.assert_allclose(tries, np.round(np.median(tries)), rtol=1e-3)
    assert np.median(tries) >= 20


def test_the_chance_to_be_among_unique_candidates_is_as_told() -> None:
    """The mean of expected counts over many draws is how often a class was there."""
    there, told = np.zeros(20), np.zeros(20)
    every = np.arange(20).reshape(20, 1)
    for _ in range(300):
        ids, of_true, _ = sr.random.log_uniform_candidate_sampler(every, 1, 5, True, 20)
        there[ids.numpy()] += 1
        told += of_true.numpy().ravel()
    np.testing.assert_allclose(there / 300, told / 300, atol=0.1)


@pytest.mark.parametrize(("arguments", "said"), [
    ((np.zeros((2, 1)), 1, 11, True, 10), "only 10 classes"),
    ((np.zeros((2, 1)), 1, 0, True, 10), "must be positive"),
    ((np.zeros((2, 3)), 1, 5, True, 10), "num_true is 1"),
])  # fmt: skip
def test_candidates_that_cannot_be_are_told(arguments: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        sr.random.log_uniform_candidate_sampler(*arguments)


def sampled_logits(
    given: dict[str, Any], labels: np.ndarray, values: Any, removes_hits: bool
) -> tuple[Any, Any]:
    """TensorFlow's _compute_sampled_logits, in torch."""
    sampled, of_true, of_sampled = (torch.tensor(np.asarray(v)) for v in values)
    true = torch.tensor(labels)
    true_logits = (given["weights"][true] * given["inputs"][:, None]).sum(-1)
    true_logits = true_logits + given["biases"][true]
    logits = given["inputs"] @ given["weights"][sampled].T + given["biases"][sampled]
    if removes_hits:
        hits = (true[:, :, None] == sampled[None, None]).any(1)
        logits = torch.where(hits, torch.tensor(-1e30), logits)
    both = torch.cat([true_logits - of_true.log(), logits - of_sampled.log()], 1)
    ones = torch.full(labels.shape, 1 / labels.shape[1])
    return both, torch.cat([ones, torch.zeros_like(logits)], 1)


@pytest.mark.parametrize("num_true", [1, 2])
@pytest.mark.parametrize("kind", ["sampled_softmax", "nce"])
def test_losses_and_gradients_are_those_of_torch(kind: str, num_true: int) -> None:
    given = drawn()
    labels = np.random.default_rng(1).integers(0, 12, (ROWS, num_true))
    draw = sr.random.log_uniform_candidate_sampler
    values = [x.numpy() for x in draw(labels, num_true, 10, True, CLASSES, seed=1)]
    there = {name: torch.tensor(value, requires_grad=True) for name, value in given.items()}
    removes = kind == "sampled_softmax"
    logits, targets = sampled_logits(there, labels, values, removes)
    if kind == "nce":
        wanted = torch.nn.functional.binary_cross_entropy_with_logits(
            logits, (targets > 0).float() / num_true, reduction="none"
        ).sum(1)
    else:
        wanted = -(targets * logits.log_softmax(1)).sum(1)
    wanted.sum().backward()
    variables = {name: sr.Variable(value) for name, value in given.items()}
    function = sr.nn.sampled_softmax_loss if removes else sr.nn.nce_loss
    with sr.GradientTape() as tape:
        losses = function(
            variables["weights"], variables["biases"], labels, variables["inputs"].value(), 10,
            CLASSES, num_true=num_true, sampled_values=tuple(map(sr.constant, values)),
        )  # fmt: skip
        total = sr.reduce_sum(losses)
    np.testing.assert_allclose(losses.numpy(), wanted.detach().numpy(), rtol=1e-4)
    names = list(variables)
    for name, grad in zip(names, tape.gradient(total, [variables[n] for n in names])):
        found = sr.convert_to_tensor(grad).numpy()
        np.testing.assert_allclose(found, there[name].grad.numpy(), rtol=1e-3, atol=1e-4)


def test_accidental_hits_have_their_places() -> None:
    rows, places, weights = sr.nn.compute_accidental_hits(
        np.array([[1, 5], [2, 9]]), np.array([5, 2, 7, 1]), 2
    )
    assert list(zip(rows.numpy().tolist(), places.numpy().tolist())) == [(0, 0), (0, 3), (1, 1)]
    assert (weights.numpy() == np.finfo(np.float32).min).all()


def test_a_softmax_is_learned_from_samples() -> None:
    """Trained by samples, all logits tell the classes apart."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(CLASSES, DIM)).astype(np.float32)
    weights, biases = sr.Variable(np.zeros((CLASSES, DIM), np.float32)), sr.Variable(
        np.zeros(CLASSES, np.float32)
    )
    optimizer = sr.optimizers.Adam(0.1)

    @sr.function
    def step(x: Any, y: Any) -> Any:
        with sr.GradientTape() as tape:
            loss = sr.reduce_mean(
                sr.nn.sampled_softmax_loss(weights, biases, y, x, 15, CLASSES, seed=3)
            )
        pairs = zip(tape.gradient(loss, [weights, biases]), [weights, biases])
        optimizer.apply_gradients(list(pairs))
        return loss

    for _ in range(150):
        y = rng.integers(0, CLASSES, (64, 1))
        x = centers[y[:, 0]] + 0.05 * rng.normal(size=(64, DIM)).astype(np.float32)
        step(sr.constant(x.astype(np.float32)), sr.constant(y))
    logits = centers @ weights.numpy().T + biases.numpy()
    assert (logits.argmax(1) == np.arange(CLASSES)).mean() > 0.9


def test_in_batch_softmax_is_corrected_by_popularity() -> None:
    rng = np.random.default_rng(2)
    queries, items = rng.normal(size=(2, 4, 3)).astype(np.float32)
    share, ids = np.array([0.5, 0.1, 0.5, 0.2], np.float32), np.array([7, 1, 7, 3])
    found = sr.nn.in_batch_softmax_loss(
        queries, items, share, ids, sample_weight=[1.0, 2.0, 0.0, 1.0], temperature=0.5
    ).numpy()
    logits = queries @ items.T / 0.5 - np.log(share)
    logits[0, 2] = logits[2, 0] = -np.inf
    wanted = -np.diag(logits - np.log(np.exp(logits).sum(1, keepdims=True)))
    np.testing.assert_allclose(found, wanted * [1, 2, 0, 1], rtol=1e-5)
    plain = torch.nn.functional.cross_entropy(
        torch.tensor(queries @ items.T), torch.arange(4), reduction="none"
    )
    np.testing.assert_allclose(
        sr.nn.in_batch_softmax_loss(queries, items).numpy(), plain.numpy(), rtol=1e-5
    )


def pairwise(labels: Any, scores: Any, groups: Any = None, weights: Any = None) -> float:
    total, count = 0.0, 0
    for i, label in enumerate(labels):
        for j, other in enumerate(labels):
            if label > other and (groups is None or groups[i] == groups[j]):
                weight = 1.0 if weights is None else weights[i]
                total += weight * np.log1p(np.exp(scores[j] - scores[i]))
                count += 1
    return total / max(count, 1)


def test_pairs_are_of_one_group_and_count_by_the_higher_row() -> None:
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 3, 12).astype(np.float32)
    scores = rng.normal(size=12).astype(np.float32)
    groups, weights = rng.integers(0, 3, 12), rng.random(12).astype(np.float32)
    for options in ({}, {"groups": groups}, {"groups": groups, "weights": weights}):
        found = float(sr.nn.pairwise_logistic_loss(labels, scores, **options))
        assert found == pytest.approx(pairwise(labels, scores, **options), rel=1e-5)
    assert float(sr.nn.pairwise_logistic_loss([1.0, 1.0], [3.0, 5.0])) == 0


def test_keras_ranks_lists() -> None:
    rng = np.random.default_rng(4)
    labels, scores = rng.integers(0, 3, (5, 6)), rng.normal(size=(5, 6)).astype(np.float32)
    labels[0, 4:] = -1
    wanted = [
        pairwise(y[y >= 0], s[y >= 0]) for y, s in zip(labels, scores)
    ]  # fmt: skip
    found = keras.losses.pairwise_logistic(labels.astype(np.float32), scores).numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    loss = keras.losses.get("pairwise_logistic")
    assert loss is keras.losses.pairwise_logistic
    weighted = keras.losses.PairwiseLogistic()(labels, scores, sample_weight=[1, 0, 0, 0, 0])
    assert float(weighted) == pytest.approx(wanted[0] / 5, rel=1e-5)
