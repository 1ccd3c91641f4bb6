"""Targets and predictions of each kind for the losses and metrics."""

from __future__ import annotations

import numpy as np

ROWS, CLASSES = 12, 5
Pair = tuple[np.ndarray, np.ndarray]


def _softmax(x: np.ndarray) -> np.ndarray:
    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)


def targets(kind: str, seed: int = 0, rows: int = ROWS) -> Pair:
    """(y_true, y_pred), of float64 or integers. A kind may end in a shape: "real (n,)"."""
    rng = np.random.default_rng(seed)
    kind, _, shape_text = kind.partition(" ")
    shape = {
        "": (rows, CLASSES), "(n,)": (rows,), "(n,1)": (rows, 1), "(n,3,k)": (rows, 3, CLASSES),
    }[shape_text]  # fmt: skip
    x = rng.normal(size=shape)
    classes = rng.integers(0, shape[-1], size=shape[:-1])
    if kind == "real":
        return rng.normal(size=shape), x
    if kind == "positive":
        return rng.uniform(0.1, 3.0, size=shape), np.exp(x)
    if kind == "signs":
        return np.sign(rng.normal(size=shape)), x
    if kind == "binary":
        return rng.integers(0, 2, size=shape).astype(np.float64), 1 / (1 + np.exp(-2 * x))
    if kind == "binary_logits":
        return rng.integers(0, 2, size=shape), 4 * x
    if kind == "one_hot":
        return np.eye(shape[-1])[classes], _softmax(x)
    if kind == "one_hot_logits":
        return np.eye(shape[-1])[classes], 3 * x
    if kind == "distribution":
        return _softmax(rng.normal(size=shape)), _softmax(x)
    if kind == "unnormalized":
        return np.eye(shape[-1])[classes], np.exp(x)
    if kind == "classes":
        return classes, _softmax(x)
    if kind == "classes_logits":
        return classes, 3 * x
    if kind == "guessed":
        # Classes and guesses of them, often right.
        return classes, np.where(rng.random(classes.shape) < 0.6, classes, 0)
    raise AssertionError(kind)
