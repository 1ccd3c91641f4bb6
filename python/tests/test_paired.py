"""Figures of two models on the same rows: what `sidereal compare --data` computes."""

from __future__ import annotations

import numpy as np
import pytest

from sidereal import _paired


def rows(count: int, seed: int, skill: tuple[float, float]) -> tuple[np.ndarray, list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    labels = (rng.random(count) < 0.4).astype(np.float32)
    common = rng.normal(size=count)
    scores = [
        1 / (1 + np.exp(-(s * (labels - 0.5) + common + 0.3 * rng.normal(size=count))))
        for s in skill
    ]
    # Ties, as tables of few rows have them.
    return labels, [np.round(one, 2).astype(np.float32) for one in scores]


def pairwise_delong(labels: np.ndarray, scores: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """By the definition: all pairs of a row of label 1 and one of label 0."""
    areas, above, below = [], [], []
    for one in scores:
        ones, zeros = one[labels > 0.5][:, None], one[labels < 0.5][None, :]
        right = (ones > zeros) + 0.5 * (ones == zeros)
        areas.append(right.mean())
        above.append(right.mean(axis=1))
        below.append(right.mean(axis=0))
    m, n = len(above[0]), len(below[0])
    return np.array(areas), np.cov(above) / m + np.cov(below) / n


def test_delong_by_ranks_is_delong_by_pairs() -> None:
    for seed in range(5):
        labels, scores = rows(200, seed, (1.0, 0.7))
        areas, covariance = _paired.delong(labels, np.asarray(scores, np.float64))
        wanted_areas, wanted_covariance = pairwise_delong(labels, scores)
        np.testing.assert_allclose(areas, wanted_areas, rtol=1e-12)
        np.testing.assert_allclose(covariance, wanted_covariance, rtol=1e-9)


def test_delong_agrees_with_the_bootstrap() -> None:
    labels, scores = rows(1500, 1, (1.2, 1.0))
    (auc, _) = _paired.compare(labels, scores[0], scores[1], True)
    rng = np.random.default_rng(0)
    differences = []
    for _ in range(400):
        at = rng.integers(0, len(labels), len(labels))
        areas, _covariance = _paired.delong(
            labels[at], np.asarray([one[at] for one in scores], np.float64)
        )
        differences.append(areas[1] - areas[0])
    half = (auc.interval[1] - auc.interval[0]) / 2
    assert half == pytest.approx(1.96 * np.std(differences), rel=0.15)


def test_a_worse_model_is_told_and_equal_ones_are_not() -> None:
    labels, scores = rows(4000, 2, (1.5, 0.5))
    found = _paired.compare(labels, scores[0], scores[1], True)
    assert [one.name for one in found] == ["auc", "log_loss"]
    for one in found:
        assert one.verdict == "worse"
        assert one.p_value < 1e-6
        assert one.interval[0] <= one.difference <= one.interval[1]
        assert one.a_interval[0] < one.a < one.a_interval[1]
    back = _paired.compare(labels, scores[1], scores[0], True)
    assert [one.verdict for one in back] == ["better", "better"]
    assert back[0].difference == pytest.approx(-found[0].difference)
    for one in _paired.compare(labels, scores[0], scores[0], True):
        assert (one.verdict, one.difference, one.p_value) == ("no difference", 0.0, 1.0)


def test_the_interval_has_the_truth_as_often_as_it_says() -> None:
    held = 0
    for seed in range(200):
        labels, scores = rows(300, 100 + seed, (1.0, 1.0))
        auc = _paired.compare(labels, scores[0], scores[1], True, confidence=0.9)[0]
        held += auc.interval[0] <= 0 <= auc.interval[1]
    assert 0.84 < held / 200 < 0.96


def test_log_loss_is_paired() -> None:
    labels = np.array([1, 0, 1, 0], np.float32)
    a = np.array([0.9, 0.2, 0.6, 0.4], np.float32)
    b = np.array([0.8, 0.1, 0.7, 0.5], np.float32)
    loss = _paired.compare(labels, a, b, True)[1]
    of_rows = [
        -np.log(np.where(labels > 0.5, one, 1 - one).astype(np.float64)) for one in (a, b)
    ]
    differences = of_rows[1] - of_rows[0]
    half = 1.959964 * differences.std(ddof=1) / 2
    assert loss.difference == pytest.approx(differences.mean(), abs=1e-6)
    assert loss.interval[1] - loss.difference == pytest.approx(half, rel=1e-4)


def test_rows_of_one_label_have_no_auc_and_other_models_errors() -> None:
    ones = np.ones(3, np.float32)
    half = np.full(3, 0.5, np.float32)
    assert [one.name for one in _paired.compare(ones, half, half, True)] == ["log_loss"]
    found = _paired.compare(np.array([1.0, 2.0, 4.0]), np.zeros(3), np.ones(3), False)
    assert {one.name: one.a for one in found} == {"mse": 7.0, "mae": pytest.approx(7 / 3)}
    assert found[0].difference == pytest.approx(10 / 3 - 7)
