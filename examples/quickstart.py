"""Clicks on ids, planted and found again, on two parameter servers and two workers.

The program of the README with names for its sizes: quickstart.py [ROWS] [EPOCHS]
"""

import sys

import numpy as np

import sidereal as sr
from sidereal.keras import layers

FIELDS, IDS = 8, 10_000


def planted_clicks(rows: int, seed: int) -> dict[str, np.ndarray]:
    """Each id has a score; the scores of a row decide how likely its label is 1."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, IDS, size=(rows, FIELDS))
    probability = 1 / (1 + np.exp(-np.sin(ids).sum(axis=1)))
    return {"ids": ids, "label": (rng.random(rows) < probability).astype(np.float32)}


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    epochs = int(sys.argv[2]) if len(sys.argv) > 2 else 3

    model = sr.Model(seed=7)
    ids = model.input("ids", sr.int64, (FIELDS,))
    linear = layers.Embedding(IDS, 1, combiner="sum", name="weights")(ids)
    vectors = layers.Embedding(IDS, 16, name="vectors")(ids)
    hidden = layers.Flatten()(vectors)
    for units in (64, 64):
        hidden = layers.Dense(units, activation="relu")(hidden)
    logit = linear + layers.FM()(vectors) + layers.Dense(1)(hidden)
    model.compile(logit, optimizer=sr.optimizers.Adagrad(0.3))
    print(model)

    with sr.LocalCluster(ps=2, workers=2) as cluster:
        model.fit(planted_clicks(rows, seed=7), cluster=cluster, epochs=epochs, batch_size=256)
        print(model.evaluate(planted_clicks(rows // 10, seed=8)))


if __name__ == "__main__":
    main()
