"""sidereal.keras.regularizers and constraints beside Keras."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from keras_peer import QUIET, close, described, keras64, parameters, peer, public

import sidereal as sr
from sidereal.keras import constraints, regularizers

pytestmark = QUIET

W = np.random.default_rng(6).normal(size=(4, 6))
WIDE = np.random.default_rng(7).normal(size=(3, 2, 4, 5))

CASES: list[tuple[str, dict[str, Any], np.ndarray]] = [
    ("regularizers.L1", {}, W),
    ("regularizers.L1", {"l1": 0.3}, WIDE),
    ("regularizers.L2", {}, W),
    ("regularizers.L2", {"l2": 2}, WIDE),
    ("regularizers.L1L2", {}, W),
    ("regularizers.L1L2", {"l1": 0.1, "l2": 0.2}, W),
    ("regularizers.OrthogonalRegularizer", {}, W),
    ("regularizers.OrthogonalRegularizer", {"factor": 0.5, "mode": "columns"}, W),
    ("constraints.NonNeg", {}, W),
    ("constraints.MaxNorm", {}, W),
    ("constraints.MaxNorm", {"max_value": 0.7, "axis": 1}, W),
    ("constraints.MaxNorm", {"max_value": 1.5, "axis": [0, 1, 2]}, WIDE),
    ("constraints.UnitNorm", {}, W),
    ("constraints.UnitNorm", {"axis": [0, 1]}, WIDE),
    ("constraints.MinMaxNorm", {}, W),
    ("constraints.MinMaxNorm", {"min_value": 1.4, "max_value": 2.0, "rate": 0.8, "axis": 1}, W),
]
IDS = [described(case) for case in CASES]
MODULES = {"regularizers": regularizers, "constraints": constraints}


def both(name: str) -> tuple[Any, Any]:
    """Our class and Keras'."""
    module, _, cls = name.partition(".")
    return getattr(MODULES[module], cls), getattr(getattr(peer(), module), cls)


def test_every_class_has_a_case_and_a_second_name() -> None:
    for kind, module in MODULES.items():
        classes = {name for name in public(module) if name[0].isupper()}
        cased = {case[0].partition(".")[2] for case in CASES if case[0].startswith(kind)}
        assert classes - {"Regularizer", "Constraint"} == cased
        for name in public(module) - classes:
            assert isinstance(module.get(name), getattr(module, name))


@pytest.mark.parametrize("name, arguments, w", CASES, ids=IDS)
def test_values_and_gradients_equal_keras(
    name: str, arguments: dict[str, Any], w: np.ndarray
) -> None:
    ours, theirs = both(name)
    x = sr.constant(w)
    scale = np.random.default_rng(1).normal(size=w.shape)
    with sr.GradientTape() as tape:
        tape.watch(x)
        value = ours(**arguments)(x)
        total = sr.reduce_sum(value * scale)
    traced = sr.function(ours(**arguments))
    np.testing.assert_allclose(traced(x), value, rtol=1e-12)
    with keras64():
        import torch

        y = torch.tensor(w, requires_grad=True)
        made = theirs(**arguments)(y)
        close(value, made)
        if made.requires_grad:
            (made * torch.tensor(scale)).sum().backward()
            close(tape.gradient(total, x), y.grad)


def test_a_variable_is_taken() -> None:
    w = sr.Variable(W.astype(np.float32))
    with sr.GradientTape() as tape:
        penalty = regularizers.L2(0.5)(w)
    np.testing.assert_allclose(tape.gradient(penalty, w), W, rtol=1e-6)
    w.assign(constraints.UnitNorm(axis=1)(w))
    np.testing.assert_allclose(np.linalg.norm(w.numpy(), axis=1), 1.0, rtol=1e-5)


def test_arguments_and_configs_equal_keras() -> None:
    for name, arguments, _ in CASES:
        ours, theirs = both(name)
        assert parameters(ours) == parameters(theirs)
        config = ours(**arguments).get_config()
        # Keras rounds numbers to float32.
        wanted = theirs(**arguments).get_config()
        assert config.keys() == wanted.keys()
        for key, value in config.items():
            assert value == (pytest.approx(wanted[key]) if type(value) is float else wanted[key])
        module = MODULES[name.partition(".")[0]]
        again = module.deserialize(module.serialize(ours(**arguments)))
        assert type(again) is ours and again.get_config() == config


def test_one_of_ones_own() -> None:
    class Third(regularizers.Regularizer):
        def __init__(self, power: int = 3) -> None:
            self.power = power

        def __call__(self, x: Any) -> Any:
            return sr.reduce_sum(sr.abs(x) ** self.power)

    written = regularizers.serialize(Third(power=1))
    assert written["config"] == {"power": 1} and written["registered_name"] == "Third"
    again = regularizers.deserialize(written, custom_objects={"Third": Third})
    np.testing.assert_allclose(again(W), np.abs(W).sum())


def test_what_is_wrong_is_named() -> None:
    cases: list[tuple[Any, str]] = [
        (lambda: regularizers.L1(-0.1), "l1 is -0.1; it must be a number of at least 0"),
        (lambda: regularizers.L2("a"), "l2 is 'a'; it must be a number"),
        (lambda: regularizers.L1L2(l2=float("nan")), "l2 is nan"),
        (lambda: regularizers.OrthogonalRegularizer(mode="both"), "mode is 'both'"),
        (lambda: regularizers.OrthogonalRegularizer()(WIDE), r"shape \(3, 2, 4, 5\)"),
        (lambda: regularizers.get("l3"), "keras.regularizers has nothing called 'l3'"),
        (lambda: constraints.get("positive"), "keras.constraints has nothing called 'positive'"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()
