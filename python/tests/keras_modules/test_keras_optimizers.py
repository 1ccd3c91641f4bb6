"""sidereal.keras.optimizers beside Keras: several steps of each, dense and of rows, at once and in
a function."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from keras_peer import QUIET, array_of, parameters, peer, public

import sidereal as sr
from sidereal.keras import constraints, optimizers

pytestmark = QUIET

#: What Keras does not have.
ROWS = ["AdagradDecay", "AdamAsync", "Lars", "RowWiseAdagrad"]
NAMES = sorted(public(optimizers) - {"Optimizer", "schedules", *ROWS})
OWN: dict[str, list[dict[str, Any]]] = {
    "SGD": [{"momentum": 0.9}, {"momentum": 0.8, "nesterov": True}],
    "Adam": [{"amsgrad": True}, {"beta_1": 0.5, "beta_2": 0.9, "epsilon": 1e-2}],
    "AdamW": [{"amsgrad": True}],
    "Adagrad": [{"initial_accumulator_value": 0.0}, {"epsilon": 0.1}],
    "RMSprop": [{"momentum": 0.9}, {"centered": True}, {"epsilon": 0.1, "rho": 0.5}],
    "Ftrl": [
        {"l1_regularization_strength": 0.02, "l2_regularization_strength": 0.1},
        {"l2_shrinkage_regularization_strength": 0.1, "learning_rate_power": -0.6},
        {"beta": 0.3},
    ],
}
SHARED: list[dict[str, Any]] = [
    {}, {"learning_rate": 0.05}, {"weight_decay": 0.02}, {"clipnorm": 0.5}, {"clipvalue": 0.3},
    {"global_clipnorm": 0.7},
]  # fmt: skip
CASES = [(name, arguments) for name in NAMES for arguments in [*SHARED, *OWN.get(name, [])]]
IDS = ["-".join([name, *(f"{k}={v}" for k, v in given.items())]) for name, given in CASES]
STEPS = 6


def gradients(step: int) -> list[np.ndarray]:
    rng = np.random.default_rng(step)
    return [rng.normal(size=(4, 3)).astype("f"), rng.normal(size=(5,)).astype("f") / 10]


def starts() -> list[np.ndarray]:
    rng = np.random.default_rng(99)
    return [rng.normal(size=(4, 3)).astype("f"), rng.normal(size=(5,)).astype("f")]


def trained_by_keras(optimizer: Any) -> list[np.ndarray]:
    keras = peer()
    variables = [keras.Variable(value) for value in starts()]
    for step in range(STEPS):
        grads = [keras.ops.convert_to_tensor(each) for each in gradients(step)]
        optimizer.apply_gradients(zip(grads, variables))
    return [array_of(each.value) for each in variables]


def trained(optimizer: Any, traced: bool = False) -> list[np.ndarray]:
    variables = [sr.Variable(value) for value in starts()]

    def step(grads: Any) -> None:
        optimizer.apply_gradients(zip(grads, variables))

    run = sr.function(step) if traced else step
    for number in range(STEPS):
        run([sr.constant(each) for each in gradients(number)])
    return [each.numpy() for each in variables]


@pytest.mark.parametrize("name, arguments", CASES, ids=IDS)
def test_optimizers_equal_keras(name: str, arguments: dict[str, Any]) -> None:
    theirs = trained_by_keras(getattr(peer().optimizers, name)(**arguments))
    for traced in (False, True):
        ours = trained(getattr(optimizers, name)(**arguments), traced)
        for mine, other in zip(ours, theirs):
            np.testing.assert_allclose(mine, other, rtol=5e-6, atol=2e-6)


@pytest.mark.parametrize("name", NAMES)
def test_arguments_and_defaults_are_those_of_keras(name: str) -> None:
    ours = inspect.signature(getattr(optimizers, name)).parameters
    found = [(each.name, each.default) for each in ours.values()]
    assert found == parameters(getattr(peer().optimizers, name))


@pytest.mark.parametrize("name", ROWS)
def test_other_rows_are_there_by_their_names(name: str) -> None:
    ours = trained(getattr(optimizers, name)(0.1), traced=True)
    for mine, other in zip(ours, trained(getattr(sr.optimizers, name)(0.1))):
        np.testing.assert_allclose(mine, other, rtol=5e-6, atol=2e-6)
    assert type(optimizers.get(name)).__name__ == name


@pytest.mark.parametrize("name", NAMES)
def test_rows_alone_are_updated(name: str) -> None:
    optimizer = getattr(optimizers, name)()
    variable = sr.Variable(starts()[0])
    rows = sr.IndexedSlices(np.ones((2, 3), "f"), np.array([2, 0]), (4, 3))
    optimizer.apply_gradients([(rows, variable)])
    changed = (variable.numpy() != starts()[0]).any(1)
    assert changed.tolist() == [True, False, True, False]


def test_a_changed_learning_rate_is_followed_without_tracing_again() -> None:
    optimizer = optimizers.SGD(1.0)
    variable = sr.Variable(0.0)
    step = sr.function(lambda g: optimizer.apply_gradients([(g, variable)]))
    step(sr.constant(1.0))
    optimizer.learning_rate = 0.5
    step(sr.constant(1.0))
    optimizer.learning_rate.assign(0.25)
    step(sr.constant(1.0))
    assert float(variable) == -1.75
    assert step.trace_count == 1
    assert float(optimizer.learning_rate) == 0.25
    assert int(optimizer.iterations) == 3


@pytest.mark.parametrize("name, arguments", [
    ("Adam", {}), ("SGD", {"momentum": 0.9}), ("SGD", {"momentum": 0.9, "nesterov": True}),
    ("SGD", {"momentum": 0.9, "weight_decay": 0.1}), ("RMSprop", {"momentum": 0.9}),
])  # fmt: skip
def test_schedules_follow_the_iterations(name: str, arguments: dict[str, Any]) -> None:
    rates = [k.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5) for k in (sr.keras, peer())]
    ours = getattr(optimizers, name)(rates[0], **arguments)
    theirs = getattr(peer().optimizers, name)(rates[1], **arguments)
    for mine, other in zip(trained(ours, traced=True), trained_by_keras(theirs)):
        np.testing.assert_allclose(mine, other, rtol=5e-6, atol=2e-6)
    np.testing.assert_allclose(float(ours.learning_rate), float(theirs.learning_rate), rtol=1e-6)
    with pytest.raises(TypeError, match="cannot be set"):
        ours.learning_rate = 0.1


@pytest.mark.parametrize("name", ["AdamW", "SGD", "Lamb"])
@pytest.mark.parametrize("how", ["variables", "names"])
def test_weight_decay_leaves_alone_what_it_is_told(name: str, how: str) -> None:
    keras = peer()
    made = []
    for k in (sr.keras, keras):
        kernel, bias = starts()
        if k is keras:
            variables = [keras.Variable(kernel, name="kernel"), keras.Variable(bias, name="bias")]
        else:
            variables = [sr.Variable(kernel, name="kernel"), sr.Variable(bias, name="bias")]
        optimizer = getattr(k.optimizers, name)(0.1, weight_decay=0.3)
        if how == "names":
            optimizer.exclude_from_weight_decay(var_names=["bias"])
        else:
            optimizer.exclude_from_weight_decay(var_list=[variables[1]])
        grads = [sr.constant(each) if k is not keras else keras.ops.convert_to_tensor(each)
                 for each in gradients(0)]  # fmt: skip
        optimizer.apply_gradients(zip(grads, variables))
        made.append([np.asarray(each.numpy()) for each in variables])
    for mine, other in zip(*made):
        np.testing.assert_allclose(mine, other, rtol=5e-6, atol=2e-6)


SCHEDULES: list[tuple[str, dict[str, Any]]] = [
    ("ExponentialDecay", {"decay_steps": 4, "decay_rate": 0.5, "staircase": True}),
    ("InverseTimeDecay", {"decay_steps": 4, "decay_rate": 0.5}),
    ("PolynomialDecay", {"decay_steps": 7, "power": 0.5, "cycle": True}),
    ("CosineDecay", {"decay_steps": 9, "alpha": 0.1, "warmup_target": 0.3, "warmup_steps": 3}),
    ("CosineDecayRestarts", {"first_decay_steps": 3}),
    ("CosineDecayRestarts", {"first_decay_steps": 4, "t_mul": 1.0, "m_mul": 0.8}),
    ("CosineDecayRestarts", {"first_decay_steps": 2, "t_mul": 1.7, "m_mul": 0.9, "alpha": 0.2}),
]


@pytest.mark.parametrize("name, arguments", SCHEDULES)
def test_schedules_equal_keras(name: str, arguments: dict[str, Any]) -> None:
    ours = getattr(optimizers.schedules, name)(0.1, **arguments)
    theirs = getattr(peer().optimizers.schedules, name)(0.1, **arguments)
    for step in range(1, 25):
        np.testing.assert_allclose(float(ours(step)), float(theirs(step)), rtol=2e-4, atol=1e-7)
    again = optimizers.deserialize(optimizers.serialize(optimizers.SGD(ours)))
    np.testing.assert_allclose(again._rate(5), ours(5), rtol=1e-6)
    names = [key for key, _ in parameters(getattr(peer().optimizers.schedules, name))]
    assert [key for key, _ in parameters(getattr(optimizers.schedules, name))] == names


def test_constraints_hold_after_an_update() -> None:
    variable = sr.Variable([0.1, 1.0])
    variable.constraint = constraints.NonNeg()
    optimizers.SGD(1.0).apply_gradients([(sr.constant([0.5, 0.5]), variable)])
    assert variable.numpy().tolist() == [0.0, 0.5]


def test_what_is_kept_is_listed() -> None:
    variable = sr.Variable([1.0])
    optimizer = optimizers.SGD(momentum=0.9)
    optimizer.build([variable])
    optimizer.apply([sr.constant([1.0])])
    names = [each.name for each in optimizer.variables]
    assert names[:2] == ["iterations", "learning_rate"]
    assert len(names) == 3


def test_get_knows_names_classes_and_configs() -> None:
    for name in NAMES:
        assert type(optimizers.get(name)).__name__ == name
        assert type(optimizers.get(name.lower())).__name__ == name
    made = optimizers.Adam(0.5, beta_1=0.7, clipnorm=1.0)
    assert optimizers.get(made) is made
    assert isinstance(optimizers.get(optimizers.Ftrl), optimizers.Ftrl)
    again = optimizers.deserialize(optimizers.serialize(made))
    assert again.get_config() == made.get_config()
    assert again.beta_1 == 0.7
    assert float(again.learning_rate) == 0.5


def test_errors_say_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="there are: SGD, Adam"):
        optimizers.get("sgdd")
    with pytest.raises(ValueError, match="models take those of keras.optimizers"):
        optimizers.get(sr.optimizers.Adam())
    with pytest.raises(ValueError, match="give one of clipnorm"):
        optimizers.Adam(clipnorm=1.0, clipvalue=1.0)
    with pytest.raises(sr.errors.UnimplementedError, match="use_ema is not there"):
        optimizers.Adam(use_ema=True)
    with pytest.raises(ValueError, match="no gradient is given for any variable of: w"):
        optimizers.Adam().apply_gradients([(None, sr.Variable(1.0, name="w"))])
    with pytest.raises(AttributeError, match="no optimizer Adm"):
        _ = optimizers.Adm
    with pytest.raises(TypeError, match="make one of those"):
        optimizers.Optimizer()
