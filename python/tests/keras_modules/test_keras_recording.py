"""Random programs of ops and layers on symbolic tensors give as models what they give at once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import sidereal as sr
from sidereal import keras
from sidereal.keras import layers

WIDTH = 4


@pytest.fixture(autouse=True)
def same_weights() -> Iterator[None]:
    """Layers begin with the same weights in every run."""
    sr.random.set_seed(1)
    yield
    sr.random.set_seed(None)


def two_layers() -> Any:
    return keras.Sequential([layers.Dense(3), layers.Dense(WIDTH)])


def program(seed: int) -> Any:
    """A function of a list of [batch, 4] to another one; its layers and constants are the same in
    every call."""
    rng = random.Random(seed)
    made: dict[int, Any] = {}

    def kept(place: int, make: Any) -> Any:
        return made.setdefault(place, make())

    plan = [(rng.randrange(12), rng.random(), rng.random()) for _ in range(rng.randrange(4, 16))]

    def run(inputs: list[Any]) -> list[Any]:
        values = list(inputs)
        for place, (kind, one, other) in enumerate(plan):
            x = values[int(one * len(values))]
            y = values[int(other * len(values))]
            if kind == 0:
                made_here = kept(place, lambda: layers.Dense(WIDTH, "tanh"))(x)
            elif kind == 1:
                before = [made[key] for key in sorted(made) if key < place]
                shared = [layer for layer in before if isinstance(layer, layers.Dense)]
                made_here = shared[0](y) if shared else x - y
            elif kind == 2:
                made_here = layers.concatenate([x, y])[:, 2:-2]
            elif kind == 3:
                a, b = sr.split(x, 2, axis=1)
                made_here = sr.concat([b, a * 0.5], axis=1)
            elif kind == 4:
                made_here = x * kept(place, lambda: sr.Variable([0.0, 0.5, 1.0, -2.0]))
            elif kind == 5:
                made_here = kept(place, layers.LayerNormalization)(x + y)
            elif kind == 6:
                made_here = x / (1.0 + sr.reduce_sum(sr.square(y), axis=1, keepdims=True))
            elif kind == 7:
                made_here = sr.where(x > y, x, -y)
            elif kind == 8:
                made_here = kept(place, two_layers)(y)
            elif kind == 9:
                made_here = layers.Dot(1)([x, y]) * np.float32(0.1) + x
            elif kind == 10:
                made_here = sr.matmul(x, sr.constant(np.eye(WIDTH, dtype="f")[::-1].copy()))
            else:
                made_here = sr.maximum(x, y)
            values.append(made_here)
        return values[-3:]

    return run


@pytest.mark.parametrize("seed", range(30))
def test_models_of_random_programs(seed: int) -> None:
    run = program(seed)
    given = [np.random.default_rng(seed + i).normal(size=(5, WIDTH)).astype("f") for i in range(3)]
    at_once = run([sr.constant(x) for x in given])
    symbols = [keras.Input((WIDTH,)) for _ in given]
    model = keras.Model(symbols, run(symbols))
    traced = sr.function(lambda xs: model(xs))
    for made in (model(given), traced(given)):
        for mine, other in zip(made, at_once, strict=True):
            np.testing.assert_allclose(mine, other, rtol=2e-5, atol=2e-6, err_msg=f"seed {seed}")
