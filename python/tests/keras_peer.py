"""Keras itself, which tests compare sidereal with. It runs on PyTorch (conftest.py)."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

#: Members of modules that find and write objects.
FINDERS = {"deserialize", "get", "serialize"}
#: For modules that give arrays to Keras on PyTorch.
QUIET = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def peer() -> Any:
    """The package keras; skips the test without it."""
    why = "{} is not installed (./dev setup --peers)"
    torch = pytest.importorskip("torch", reason=why.format("PyTorch"))
    # Its ops are small here: several threads would wait for each other, and for other tests.
    torch.set_num_threads(1)
    return pytest.importorskip("keras", reason=why.format("Keras"))


@contextmanager
def keras64() -> Iterator[Any]:
    """Keras that computes in float64."""
    keras = peer()
    before = keras.config.floatx()
    keras.config.set_floatx("float64")
    try:
        yield keras
    finally:
        keras.config.set_floatx(before)


def array_of(value: Any) -> np.ndarray:
    """A tensor of Keras, or a number, as an array."""
    return np.asarray(peer().ops.convert_to_numpy(value))


def close(ours: Any, theirs: Any, rtol: float = 1e-6) -> None:
    """Both are of one shape and within `rtol`, or where numbers of 1 and more cancel, which Keras
    adds up in float32, within rtol / 5 of each other."""
    ours, theirs = np.asarray(ours), array_of(theirs)
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=rtol / 5)


def parameters(cls: Any) -> list[tuple[str, Any]]:
    """The names and defaults of a constructor's arguments."""
    return [
        (name, parameter.default)
        for name, parameter in inspect.signature(cls).parameters.items()
        if parameter.kind == inspect.Parameter.POSITIONAL_OR_KEYWORD
    ]


def described(case: tuple[str, dict[str, Any], Any]) -> str:
    """The id of a case (name, arguments, ...)."""
    return "-".join([case[0], *(f"{key}={value}" for key, value in case[1].items())])


def public(module: Any) -> set[str]:
    """What a module has but for its finders."""
    return set(module.__all__) - FINDERS
