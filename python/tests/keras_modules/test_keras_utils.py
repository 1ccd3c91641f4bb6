"""Helpers of keras.utils, as Keras has them."""

from __future__ import annotations

import random

import numpy as np
import pytest
from keras_peer import peer

import sidereal as sr
from sidereal import keras


@pytest.mark.parametrize("x", [[0, 2, 1], [[0], [3]], [[0, 1], [2, 2]], 1])
@pytest.mark.parametrize("num_classes", [None, 5])
def test_class_numbers_become_rows_as_in_keras(x: object, num_classes: int | None) -> None:
    found = keras.utils.to_categorical(np.asarray(x), num_classes)
    wanted = peer().utils.to_categorical(np.asarray(x), num_classes)
    np.testing.assert_array_equal(found, wanted)
    assert found.dtype == wanted.dtype


@pytest.mark.parametrize("x", [[-1, 0], [0, 3]])
def test_class_numbers_that_there_are_not_are_refused(x: list[int]) -> None:
    with pytest.raises(ValueError, match="with 3 classes they are 0 to 2"):
        keras.utils.to_categorical(x, 3)


def test_a_seed_is_of_all_that_draws_numbers() -> None:
    drawn = []
    for _ in range(2):
        keras.utils.set_random_seed(7)
        drawn.append((random.random(), np.random.rand(), float(sr.random.normal(())),
                      keras.layers.Dense(1)(sr.ones([1, 2])).numpy().item()))  # fmt: skip
    assert drawn[0] == drawn[1]
    with pytest.raises(ValueError, match="-1"):
        keras.utils.set_random_seed(-1)
