"""Writes tests/golden/saved_model_N.srsm, and what it computes beside it.

    python python/tests/golden_saved_model.py tests/golden/saved_model_2

Files of earlier versions of the format stay as they are: test_saved_model.py loads all of them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import sidereal as sr
from sidereal import keras


class Ranker:
    """A small model with most of what the format holds."""

    def __init__(self) -> None:
        random = np.random.default_rng(7)

        def variable(name, *shape, dtype=np.float32):
            value = random.normal(size=shape).astype(np.float32) / 2
            return sr.Variable(sr.cast(sr.constant(value), dtype), name=name)

        self.table = variable("table", 20, 4)
        self.gru = keras.layers.GRU(3, return_sequences=True, return_state=True)
        self.gru(np.zeros((1, 1, 4), np.float32))
        self.layers = {
            "hidden": [variable("w", 7, 5), variable("b", 5)],
            "last": (variable("last", 5, 1, dtype=sr.bfloat16),),
        }
        self.calls = sr.Variable(np.int64(0), name="calls")
        self.offsets = sr.constant(np.array([0, 5], np.int32))

    @sr.function(
        input_signature=[
            sr.TensorSpec([None, 2], sr.int32, "ids"),
            sr.TensorSpec([None, 6], sr.int64, "history"),
        ]
    )
    def score(self, ids, history):
        rows = sr.gather(self.table, sr.reshape(ids[:, :1] + self.offsets[1], [-1]))
        outputs, state = self.gru(sr.gather(self.table, history))
        x = sr.concat([rows, state], axis=1)
        w, b = self.layers["hidden"]
        x = sr.nn.relu(sr.matmul(x, w) + b)
        logit = sr.matmul(x, sr.cast(self.layers["last"][0], sr.float32))
        total = sr.while_loop(
            lambda i, s: i < 3, lambda i, s: [i + 1, s * 0.5 + sr.tanh(s)], [sr.constant(0), logit]
        )[1]
        picked = sr.cond(
            sr.reduce_max(total) > 100.0, lambda: total, lambda: sr.nn.sigmoid(total)
        )
        self.calls.assign_add(1)
        best, places = sr.math.top_k(picked[:, 0], 2)
        return {"probability": picked, "best": best, "places": places, "long": outputs}


def main(path: Path) -> None:
    ranker = Ranker()
    random = np.random.default_rng(3)
    inputs = {
        "ids": random.integers(0, 15, (4, 2)).astype(np.int32),
        "history": random.integers(0, 20, (4, 6)),
    }
    sr.saved_model.save(ranker, path.with_suffix(".srsm"))
    out = ranker.score(inputs["ids"], inputs["history"])
    np.savez(path.with_suffix(".npz"), **inputs, **{k: v.numpy() for k, v in out.items()})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
