"""Feature columns against those of TensorFlow: the same names, and the same numbers."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from feature_columns import CATEGORICAL, DENSE, Module, run

import sidereal.v1 as sr

tensorflow = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")


@pytest.fixture
def vocabulary(tmp_path: Path) -> str:
    file = tmp_path / "colors.txt"
    file.write_text("red\nblue\nyellow\n")
    return str(file)


def same(layer: str, make: Any, file: str, **options: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = run(tensorflow.compat.v1, layer, make, file, **options)
    ours = run(sr, layer, make, file, **options)
    assert ours[:2] == theirs[:2]
    np.testing.assert_allclose(ours[2], theirs[2], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", DENSE)
def test_input_layer(name: str, vocabulary: str) -> None:
    same("input_layer", DENSE[name], vocabulary)


@pytest.mark.parametrize("name", CATEGORICAL)
def test_linear_model(name: str, vocabulary: str) -> None:
    def columns(fc: Any, file: str) -> list[Any]:
        return [CATEGORICAL[name](fc, file), fc.numeric_column("pair", 2)]

    same("linear_model", columns, vocabulary, units=2)


@pytest.mark.parametrize("combiner", ["mean", "sqrtn"])
def test_linear_model_combines(combiner: str, vocabulary: str) -> None:
    def columns(fc: Any, file: str) -> list[Any]:
        return [CATEGORICAL["weighted by a tensor"](fc, file), fc.numeric_column("n")]

    same("linear_model", columns, vocabulary, sparse_combiner=combiner)


@pytest.mark.parametrize("name", [*DENSE, *CATEGORICAL])
def test_parse_example_spec(name: str, vocabulary: str) -> None:
    def spec(tf: Any) -> dict[str, Any]:
        fc = Module(tf)
        with tf.Graph().as_default():
            made = (DENSE | CATEGORICAL)[name](fc, vocabulary)
        return fc.make_parse_example_spec(made if isinstance(made, list) else [made])

    theirs, ours = spec(tensorflow.compat.v1), spec(sr)
    assert sorted(ours) == sorted(theirs)
    for key, feature in theirs.items():
        assert type(ours[key]).__name__ == type(feature).__name__
        assert sr.dtypes.as_dtype(ours[key].dtype).name == feature.dtype.name
        if hasattr(feature, "shape"):
            assert tuple(ours[key].shape) == tuple(feature.shape)
