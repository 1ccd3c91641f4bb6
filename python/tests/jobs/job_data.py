"""What the jobs of test_jobs_go_on.py have in common: a part of Frappe, and what they print."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np

FEATURES, FIELDS = 5382, 10
ROWS, TEST_ROWS = 24_000, 12_000
BATCH, EPOCHS = 200, 2
STEPS = ROWS * EPOCHS // BATCH
RATE = 5.0


def cut(source: Path, folder: Path) -> Path:
    """Writes the part of Frappe that jobs train and test with, as arrays, and for the command line
    as train.csv and test.csv beside them."""
    found = {}
    for name, count in (("train", ROWS), ("test", TEST_ROWS)):
        with gzip.open(source / f"{name}.csv.gz", "rt") as file:
            header, *lines = file.read().splitlines()
        chosen = [lines[i] for i in np.random.default_rng(1).permutation(len(lines))[:count]]
        (folder / f"{name}.csv").write_text("\n".join([header, *chosen, ""]))
        rows = np.array([line.split(",") for line in chosen], np.int32)
        found[f"{name}_label"], found[f"{name}_ids"] = rows[:, :1].astype(np.float32), rows[:, 1:]
    path = folder / "frappe.npz"
    np.savez(path, **found)
    return path


def training(path: str) -> tuple[np.ndarray, np.ndarray]:
    """ids and labels of all rows to train with."""
    with np.load(path) as data:
        return data["train_ids"], data["train_label"]


def say_step(step: Any) -> None:
    """Tells the test of a step that has ended."""
    print(f"step {int(step)}", flush=True)


def say_result(path: str, rows: Any, table: Any, bias: Any) -> None:
    """Tells the test how many rows were counted, and how good the regression is."""
    with np.load(path) as data:
        ids, label = data["test_ids"], data["test_label"][:, 0] > 0
    score = np.asarray(table).reshape(FEATURES)[ids].sum(1, dtype=np.float64) + float(
        np.asarray(bias).reshape(())
    )
    print(f"rows {int(np.asarray(rows).reshape(()))} auc {_auc(score, label):.6f}", flush=True)


def _auc(score: np.ndarray, label: np.ndarray) -> float:
    _, places, counts = np.unique(score, return_inverse=True, return_counts=True)
    # The mean rank of those that are equal.
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
    ones, zeros = label.sum(), (~label).sum()
    return float((ranks[label].sum() - ones * (ones + 1) / 2) / (ones * zeros))
