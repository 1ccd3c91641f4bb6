"""sidereal.keras.activations beside Keras: values and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from keras_peer import QUIET, close, described, keras64, peer, public

import sidereal as sr
from sidereal.keras import activations

pytestmark = QUIET

X = np.random.default_rng(3).normal(scale=3.0, size=(5, 7, 2))
WEIGHTS = np.random.default_rng(4).normal(size=X.shape)
INTEGERS = np.array([[-3, 0, 2, 7]])

CASES: list[tuple[str, dict[str, Any]]] = [
    ("linear", {}),
    ("relu", {}),
    ("relu", {"negative_slope": 0.1}),
    ("relu", {"max_value": 2.5}),
    ("relu", {"max_value": 6}),
    ("relu", {"threshold": 0.7}),
    ("relu", {"threshold": -0.7, "negative_slope": 0.3}),
    ("relu", {"negative_slope": 0.2, "max_value": 3.0, "threshold": 0.5}),
    ("relu", {"threshold": -1.5, "max_value": 2.0}),
    ("leaky_relu", {}),
    ("leaky_relu", {"negative_slope": 0.05}),
    ("relu6", {}),
    ("elu", {}),
    ("elu", {"alpha": 0.5}),
    ("selu", {}),
    ("gelu", {}),
    ("gelu", {"approximate": True}),
    ("silu", {}),
    ("swish", {}),
    ("mish", {}),
    ("exponential", {}),
    ("hard_sigmoid", {}),
    ("hard_silu", {}),
    ("hard_swish", {}),
    ("sigmoid", {}),
    ("tanh", {}),
    ("softplus", {}),
    ("softsign", {}),
    ("softmax", {}),
    ("softmax", {"axis": 1}),
    ("softmax", {"axis": (1, 2)}),
    ("log_softmax", {}),
    ("log_softmax", {"axis": 0}),
]
IDS = [described((*case, None)) for case in CASES]


def test_every_activation_has_a_case() -> None:
    assert {name for name, _ in CASES} == public(activations)


@pytest.mark.parametrize("name, arguments", CASES, ids=IDS)
def test_values_and_gradients_equal_keras(name: str, arguments: dict[str, Any]) -> None:
    ours = getattr(activations, name)
    x = sr.constant(X)
    with sr.GradientTape() as tape:
        tape.watch(x)
        y = ours(x, **arguments)
        total = sr.reduce_sum(y * WEIGHTS)
    with keras64() as keras:
        import torch

        theirs = torch.tensor(X, requires_grad=True)
        made = getattr(keras.activations, name)(theirs, **arguments)
        (made * torch.tensor(WEIGHTS)).sum().backward()
        assert y.dtype == sr.float64
        close(y, made.detach())
        close(tape.gradient(total, x), theirs.grad)


@pytest.mark.parametrize("name, arguments", CASES, ids=IDS)
def test_functions_give_the_same(name: str, arguments: dict[str, Any]) -> None:
    ours = getattr(activations, name)
    x = sr.constant(X)
    traced = sr.function(lambda x: ours(x, **arguments))
    np.testing.assert_allclose(traced(x), ours(x, **arguments), rtol=1e-12)


def test_integers_become_float32() -> None:
    for name in sorted(public(activations) - {"linear"}):
        assert getattr(activations, name)(INTEGERS).dtype == sr.float32
    assert activations.relu([-1, 2]).numpy().tolist() == [0, 2]


def test_names_are_found_and_written_as_by_keras() -> None:
    keras = peer()
    assert activations.get(None) is activations.linear
    for name in sorted(public(activations)):
        found = activations.get(name)
        assert found is getattr(activations, name)
        assert activations.serialize(found) == keras.activations.serialize(
            keras.activations.get(name)
        )
        assert activations.deserialize(activations.serialize(found)) is found
    assert activations.get(np.tanh) is np.tanh


def test_what_is_no_activation_is_named() -> None:
    with pytest.raises(ValueError, match="has nothing called 'rleu'; names like it: relu"):
        activations.get("rleu")
    with pytest.raises(ValueError, match=r"keras.activations.get\(\): 3 is none of them"):
        activations.get(3)
    own = activations.deserialize("own", custom_objects={"own": np.cos})
    assert own is np.cos
