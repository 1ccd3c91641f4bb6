"""Models of sidereal.keras beside Keras: the same models, data and training give the same logs,
weights and predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from keras_models import MODELS, ROWS, pair
from keras_peer import QUIET, peer

from sidereal import keras

pytestmark = QUIET

FIT: dict[str, Any] = {"epochs": 3, "shuffle": False, "verbose": 0, "batch_size": 16}


def logs_equal(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert sorted(ours) == sorted(theirs)
    for name in theirs:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=3e-5, atol=3e-6, err_msg=name)


def weights_equal(ours: Any, theirs: Any) -> None:
    pairs = list(zip(ours.get_weights(), theirs.get_weights(), strict=True))
    for mine, other in pairs:
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=5e-6)


def compiled(name: str, **more: Any) -> tuple[Any, Any, Any, Any]:
    ours, theirs, x, y, told = pair(name, keras, peer())
    for model in (ours, theirs):
        model.compile(**{"optimizer": "adam", **told, **more})
    return ours, theirs, x, y


@pytest.mark.parametrize("name", MODELS)
def test_training_equals_keras(name: str) -> None:
    ours, theirs, x, y = compiled(name)
    mine, other = (model.fit(x, y, **FIT) for model in (ours, theirs))
    logs_equal(mine.history, other.history)
    weights_equal(ours, theirs)
    found = [model.evaluate(x, y, verbose=0, return_dict=True) for model in (ours, theirs)]
    logs_equal(*found)
    flat = [model.evaluate(x, y, verbose=0) for model in (ours, theirs)]
    np.testing.assert_allclose(*flat, rtol=3e-5, atol=3e-6)
    predicted = [model.predict(x, verbose=0) for model in (ours, theirs)]
    if isinstance(predicted[1], dict):
        assert sorted(predicted[0]) == sorted(predicted[1])
        predicted = [[each[key] for key in sorted(each)] for each in predicted]
    elif not isinstance(predicted[1], list):
        predicted = [[each] for each in predicted]
    for one, two in zip(*predicted, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=5e-6)


@pytest.mark.parametrize("name", MODELS)
def test_steps_at_once_are_those_of_the_program(name: str) -> None:
    histories = []
    for eagerly in (False, True):
        model, _, x, y = compiled(name, run_eagerly=eagerly)
        histories.append(model.fit(x, y, validation_split=0.2, **FIT).history)
    logs_equal(*histories)


@pytest.mark.parametrize("name", MODELS)
def test_models_are_described_as_in_keras(name: str) -> None:
    ours, theirs, *_ = pair(name, keras, peer())
    for what in ("weights", "trainable_weights", "non_trainable_weights"):
        shapes = [[tuple(each.shape) for each in getattr(m, what)] for m in (ours, theirs)]
        assert shapes[0] == shapes[1], what
    assert ours.count_params() == theirs.count_params()
    kinds = [[type(layer).__name__ for layer in model.layers] for model in (ours, theirs)]
    if name not in ("residual", "nested"):  # Keras' ops are layers as well.
        assert kinds[0] == kinds[1]
    classes = ("subclassed", "deferred", "interests")
    if name not in classes:
        assert len(ours.inputs) == len(theirs.inputs)
    if name not in (*classes, "two_outputs_by_name"):
        assert ours.output_shape == theirs.output_shape
    lines: list[str] = []
    ours.summary(print_fn=lines.append)
    assert lines[-3] == f"Total params: {theirs.count_params():,}"


@pytest.mark.parametrize("options", [
    {"run_eagerly": True}, {"optimizer": "sgd"}, {"loss": "mse"}, {"metrics": None},
    {"metrics": ["acc", "mae", "mae"]}, {"weighted_metrics": ["accuracy", "mse"]},
], ids=str)  # fmt: skip
def test_options_of_compile(options: dict[str, Any]) -> None:
    ours, theirs, x, y = compiled("mlp", **options)
    weights = np.linspace(0.0, 2.0, ROWS).astype("f")
    given = {**FIT, "sample_weight": weights}
    mine, other = (model.fit(x, y, **given) for model in (ours, theirs))
    logs_equal(mine.history, other.history)
    weights_equal(ours, theirs)


@pytest.mark.parametrize("options", [
    {"validation_split": 0.3},
    {"class_weight": {0: 0.5, 1: 2.0}},
    {"batch_size": ROWS},
    {"initial_epoch": 1},
    {"validation_split": 0.2, "validation_freq": 2, "validation_batch_size": 3},
    {"validation_split": 0.2, "validation_freq": [1]},
    {"steps_per_epoch": 2},
], ids=str)  # fmt: skip
def test_options_of_fit(options: dict[str, Any]) -> None:
    ours, theirs, x, y = compiled("mlp")
    mine, other = (model.fit(x, y, **{**FIT, **options}) for model in (ours, theirs))
    logs_equal(mine.history, other.history)
    assert mine.epoch == other.epoch
    weights_equal(ours, theirs)


def test_data_for_validation_may_have_weights() -> None:
    ours, theirs, x, y = compiled("mlp", weighted_metrics=["mae"])
    weights = np.linspace(0.0, 2.0, ROWS).astype("f")
    given = {**FIT, "validation_data": (x[:20], y[:20], weights[:20])}
    mine, other = (model.fit(x, y, **given) for model in (ours, theirs))
    logs_equal(mine.history, other.history)


def test_a_loss_of_classes_takes_class_weights() -> None:
    ours, theirs, x, y = compiled("classifier")
    given = {**FIT, "class_weight": {0: 1.0, 1: 2.0, 2: 0.1}}
    mine, other = (model.fit(x, y, **given) for model in (ours, theirs))
    logs_equal(mine.history, other.history)


@pytest.mark.parametrize("weights", ["one", "each", "by name"])
def test_several_outputs_take_weights_of_examples(weights: str) -> None:
    ours, theirs, x, y = compiled("two_outputs_by_name")
    one = np.linspace(0.0, 2.0, ROWS).astype("f")
    given = {
        "one": one, "each": {"click": one, "price": 1 - one / 2}, "by name": {"click": one,
                                                                             "price": one * 2},
    }[weights]  # fmt: skip
    mine = ours.fit(x, y, sample_weight=given, **FIT)
    if weights == "one":
        # Keras wants them for each.
        given = {"click": one, "price": one}
    other = theirs.fit(x, y, sample_weight=given, **FIT)
    logs_equal(mine.history, other.history)
    weights_equal(ours, theirs)


def test_weights_of_steps_beside_a_mask() -> None:
    ours, theirs, x, y = compiled("labelled")
    weights = np.random.default_rng(5).uniform(size=(ROWS, 5)).astype("f")
    mine, other = (model.fit(x, y, sample_weight=weights, **FIT) for model in (ours, theirs))
    logs_equal(mine.history, other.history)
    weights_equal(ours, theirs)


def test_losses_of_examples_and_functions() -> None:
    def ours_loss(y: Any, p: Any) -> Any:
        return (y - p) * (y - p) * 0.5

    ours, theirs, x, y = compiled("mlp", loss=ours_loss, metrics=[ours_loss])
    mine, other = (model.fit(x, y, **FIT) for model in (ours, theirs))
    logs_equal(mine.history, other.history)
    # Keras on PyTorch takes no losses of examples; their mean is what counts.
    ours.compile("sgd", keras.losses.MeanSquaredError(reduction="none"))
    theirs.compile("sgd", "mse")
    mine, other = (model.fit(x, y, **FIT) for model in (ours, theirs))
    np.testing.assert_allclose(mine.history["loss"], other.history["loss"], rtol=3e-5)
    weights_equal(ours, theirs)


@pytest.mark.parametrize("steps", [2, 3, 10])
def test_several_steps_in_one_program(steps: int) -> None:
    ours, theirs, x, y = compiled("normalized")
    ours.compile("adam", **MODELS["normalized"][2], steps_per_execution=steps)
    seen: list[int] = []
    told = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: seen.append(batch))
    mine = ours.fit(x, y, validation_split=0.2, callbacks=[told], **{**FIT, "batch_size": 8})
    other = theirs.fit(x, y, validation_split=0.2, **{**FIT, "batch_size": 8})
    logs_equal(mine.history, other.history)
    weights_equal(ours, theirs)
    assert seen == [min(n + steps, 5) - 1 for n in range(0, 5, steps)] * 3


def test_one_batch_at_a_time() -> None:
    ours, theirs, x, y = compiled("mlp")
    for begin in (0, 16):
        part = slice(begin, begin + 16)
        found = [m.train_on_batch(x[part], y[part], return_dict=True) for m in (ours, theirs)]
        logs_equal(*found)
    for model in (ours, theirs):
        model.reset_metrics()
    weights = np.ones(ROWS, "f") * 0.5
    np.testing.assert_allclose(
        *(model.test_on_batch(x, y, weights) for model in (ours, theirs)), rtol=3e-5
    )
    np.testing.assert_allclose(
        *(model.predict_on_batch(x) for model in (ours, theirs)), rtol=1e-5, atol=1e-6
    )
    weights_equal(ours, theirs)
