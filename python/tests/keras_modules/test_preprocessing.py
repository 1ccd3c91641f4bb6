"""Layers of preprocessing beside Keras' own: outputs, what adapt() finds, configs, and messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from keras_peer import QUIET, array_of, peer

import sidereal as sr
from sidereal import keras
from sidereal.keras import layers

pytest.importorskip("tensorflow", reason="Keras' layers of preprocessing need TensorFlow")
pytestmark = QUIET

RNG = np.random.default_rng(0)
WORDS = np.array([["a", "b", "a"], ["", "zz", "b"], ["ü", "x", "some longer text, 64 bytes?"]])
NUMBERS = np.array([[0, 2, 2], [1, 3, 0]])
FLOATS = RNG.normal(size=(6, 3)).astype("f") * [1, 5, 0.1] + [0, 2, 1]
INTEGERS = np.array([[5, -3], [2**40, 0]])

#: Layer, arguments, inputs.
CASES: list[tuple[str, dict[str, Any], Any]] = [
    ("Rescaling", {"scale": 2.0}, FLOATS),
    ("Rescaling", {"scale": 1 / 255, "offset": -1.0}, NUMBERS),
    ("Rescaling", {"scale": [1.0, 2.0, 3.0], "offset": [0.5, 0.0, 1.0]}, FLOATS),
    ("Normalization", {"mean": 1.5, "variance": 4.0, "axis": None}, FLOATS),
    ("Normalization", {"mean": [1.0, 2.0, 0.0], "variance": [1.0, 4.0, 0.0]}, FLOATS),
    ("Normalization", {"mean": [1.0, 2.0, 0.0], "variance": [1.0, 4.0, 1.0], "invert": True},
     FLOATS),
    ("Normalization", {"mean": np.ones((2, 3)), "variance": np.full((2, 3), 4.0), "axis": (1, 2)},
     RNG.normal(size=(4, 2, 3)).astype("f")),
    ("CategoryEncoding", {"num_tokens": 4}, NUMBERS),
    ("CategoryEncoding", {"num_tokens": 4}, NUMBERS[0]),
    ("CategoryEncoding", {"num_tokens": 4, "output_mode": "count"}, NUMBERS),
    ("CategoryEncoding", {"num_tokens": 4, "output_mode": "one_hot"}, NUMBERS[0]),
    ("CategoryEncoding", {"num_tokens": 4, "output_mode": "one_hot"}, NUMBERS[0][:, None]),
    ("CategoryEncoding", {"num_tokens": 4, "output_mode": "multi_hot", "dtype": "float64"},
     NUMBERS),
    *(("Discretization", {"bin_boundaries": [-1.0, 0.5, 2.0], "output_mode": mode}, x)
      for mode in ("int", "one_hot", "multi_hot", "count")
      for x in (FLOATS, np.array([-1.0, 0.5, 2.0, 2.5, -9], "f"), np.array([[-1], [7]]))),
    ("Discretization", {"bin_boundaries": [1.0]}, np.array([[[0.0, 1.0], [2.0, 1.0]]], "f")),
    *(("Hashing", {"num_bins": 7, **more}, x)
      for more in ({}, {"salt": 133}, {"salt": [133, 137]}, {"output_mode": "one_hot"},
                   {"output_mode": "multi_hot"}, {"output_mode": "count"})
      for x in (WORDS, INTEGERS, WORDS[:, :1])),
    ("Hashing", {"num_bins": 5, "mask_value": ""}, WORDS),
    ("Hashing", {"num_bins": 5, "mask_value": 0}, INTEGERS),
    ("Hashing", {"num_bins": 1, "mask_value": 0}, INTEGERS),
    ("Hashing", {"num_bins": 5}, np.array([1.5, 2.25, -7.75])),
    *(("HashedCrossing", {"num_bins": bins, "output_mode": mode}, x)
      for bins, mode in ((1 << 40, "int"), (5, "int"), (5, "one_hot"))
      for x in ((WORDS[:, 0], WORDS[:, 1]), (WORDS[:, :1], WORDS[:, 2:]),
                (INTEGERS[:, 0], INTEGERS[:, 1]),
                (INTEGERS[:, 0], WORDS[:2, 1], WORDS[:2, 2], INTEGERS[:, 1].astype("i4")))),
    ("HashedCrossing", {"num_bins": 50}, (np.array("a"), np.array(3))),
]  # fmt: skip


def case_id(case: tuple[str, dict[str, Any], Any]) -> str:
    name, arguments, x = case
    shapes = [np.shape(each) for each in (x if isinstance(x, (tuple, list)) else [x])]
    said = [f"{key}={value}" for key, value in arguments.items() if np.size(value) < 4]
    return "-".join([name, *said, *map(str, shapes)]).replace("::", ":")


def same(ours: Any, theirs: Any, rtol: float = 2e-6) -> None:
    theirs = array_of(theirs)
    ours = ours.numpy()
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=1e-6)


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_outputs_are_those_of_keras(case: tuple[str, dict[str, Any], Any]) -> None:
    name, arguments, x = case
    theirs = getattr(peer().layers, name)(**arguments)(x)
    layer = getattr(layers, name)(**arguments)
    same(layer(x), theirs)
    again = type(layer).from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    same(again(x), theirs)
    # In a function whose inputs have no known extents, and in a model.
    parts = list(x) if isinstance(x, tuple) else [x]
    tensors = [sr.constant(part) for part in parts]
    # What is built, and what replaces a last extent of 1, must know extents.
    known = name == "Normalization" or arguments.get("output_mode") == "one_hot"
    specs = [
        sr.TensorSpec([None, *part.shape[1:]] if known else [None] * part.ndim, part.dtype)
        if part.ndim else sr.TensorSpec([], part.dtype)
        for part in tensors
    ]  # fmt: skip
    call = (lambda *xs: layer(list(xs))) if isinstance(x, tuple) else layer
    same(sr.function(call, input_signature=specs)(*tensors), theirs)
    if parts[0].ndim < 1 or (parts[0].ndim == 1 and arguments.get("output_mode") in ("multi_hot",
                                                                                     "count")):
        return
    symbols = [keras.Input(part.shape[1:], dtype=part.dtype) for part in tensors]
    model = keras.Model(symbols, call(*symbols))
    if parts[0].ndim > 1 or name not in ("CategoryEncoding", "Discretization"):
        same(model(tensors), theirs)
