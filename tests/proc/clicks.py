"""Small click logs with a planted truth."""

import math
import pathlib
import random

FIELDS = ("site", "device", "hour")
VALUES = 20

#: Arguments of `sidereal train` for such logs: a model of no size.
SMALL = ["--label", "click", "--numeric", "price", "--hash-buckets", "1000", "--model", "lr",
         "--batch-size", "128", "--lr", "0.05"]


def auc(scores: list[float], labels: list[int]) -> float:
    """Area under the ROC curve (no ties expected)."""
    ranked = sorted(zip(scores, labels, strict=True))
    ones = sum(labels)
    below = sum(rank for rank, (_, label) in enumerate(ranked) if label)
    return (below - ones * (ones - 1) / 2) / (ones * (len(labels) - ones))


def write_clicks(path: pathlib.Path, rows: int, seed: int) -> float:
    """A CSV of `rows` rows; returns the AUC of the true probabilities, the best there is."""
    truth = random.Random(11)
    weights = [[truth.gauss(0, 1.2) for _ in range(VALUES)] for _ in FIELDS]
    draw = random.Random(seed)
    scores, labels = [], []
    with path.open("w") as file:
        file.write("click,price," + ",".join(FIELDS) + "\n")
        for _ in range(rows):
            ids = [draw.randrange(VALUES) for _ in FIELDS]
            price = draw.random()
            logit = price - 0.5 + sum(w[i] for w, i in zip(weights, ids, strict=True))
            label = int(draw.random() < 1 / (1 + math.exp(-logit)))
            scores.append(logit)
            labels.append(label)
            words = ",".join(f"v{i}" for i in ids)
            file.write(f"{label},{price:.4f},{words}\n")
    return auc(scores, labels)
