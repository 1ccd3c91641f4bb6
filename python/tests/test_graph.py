"""Models under construction: layers, operators, mistakes. No cluster."""

from __future__ import annotations

import numpy as np
import pytest

import sidereal as sr
from conftest import FIELDS, IDS, small_model
from sidereal import errors, ops
from sidereal.keras import layers


def test_an_input_knows_its_dtype_and_shape() -> None:
    model = sr.Model()
    x = model.input("dense", sr.float32, (3,))
    assert x.dtype == np.float32
    assert x.shape == (-1, 3)
    assert "float32[?,3]" in repr(x)
    assert model.input("ids", "int64", (2,)).dtype == sr.int64


def test_layers_give_the_documented_shapes() -> None:
    model = sr.Model()
    ids = model.input("ids", sr.int64, (5,))
    rows = layers.Embedding(10, 4)(ids)
    assert rows.shape == (-1, 5, 4)
    assert layers.Embedding(10, 4, combiner="sum")(ids).shape == (-1, 4)
    assert layers.FM()(rows).shape == (-1, 1)
    flat = layers.Flatten()(rows)
    assert flat.shape == (-1, 20)
    assert layers.Dense(3, activation="relu")(flat).shape == (-1, 3)
    assert layers.Dropout(0.5)(flat).shape == (-1, 20)
    assert layers.Cross()(flat).shape == (-1, 20)
    assert layers.Concatenate()([flat, flat]).shape == (-1, 40)
    assert layers.Add()([flat, flat]).shape == (-1, 20)


def test_operators_and_ops_broadcast() -> None:
    model = sr.Model()
    x = model.input("x", sr.float32, (3,))
    for y in (x + x, x - 1, 1 - x, 2.0 * x, x / 3, 3 / x, -x, np.float32(2) * x, ops.relu(x)):
        assert y.shape == (-1, 3)
    square = ops.reshape(ops.reduce_sum(x, [0]), [3, 1])
    assert (x @ square).shape == (-1, 1)
    assert ops.mat_mul(x, x, transpose_x=True).shape == (3, 3)
    assert ops.reduce_mean(x, [-1], keep_dims=True).shape == (-1, 1)
    assert ops.slice_axis(x, 1, 1, 2).shape == (-1, 2)
    assert ops.cast(x, sr.float64).dtype == np.float64


def test_variables_are_called_after_their_layer() -> None:
    variables = {v.name: v.shape for v in small_model().variables()}
    assert variables == {
        "weights/embeddings": (IDS, 1),
        "vectors/embeddings": (IDS, 8),
        "hidden/kernel": (FIELDS * 8, 16),
        "hidden/bias": (16,),
        "head/kernel": (16, 1),
        "head/bias": (1,),
    }
    assert [v.name for v in small_model().inputs] == ["ids", "label"]
    assert "ids int64[?,4]" in repr(small_model())


@pytest.mark.parametrize("kind", sr.models.names())
def test_every_click_model_can_be_built(kind: str) -> None:
    schema = sr.data.Schema(fields=3, rows=50, dense_width=2)
    model = sr.models.build(kind, schema, hidden=[8], optimizer="ftrl")
    assert {v.name for v in model.inputs} == {"ids", "dense", "label"}


def test_every_optimizer_can_be_compiled_with() -> None:
    for optimizer in (
        sr.optimizers.SGD(0.1),
        sr.optimizers.Momentum(0.1, nesterov=True),
        sr.optimizers.Adagrad(weight_decay=1e-5),
        sr.optimizers.Adam(0.01, beta_1=0.8),
        sr.optimizers.Ftrl(l1_regularization_strength=0.1),
        "adam",
    ):
        model = sr.Model()
        model.compile(layers.Dense(1)(model.input("x", sr.float32, (3,))), optimizer)


def test_a_wrong_optimizer_is_named() -> None:
    model = sr.Model()
    logit = layers.Dense(1)(model.input("x", sr.float32, (3,)))
    with pytest.raises(ValueError, match="'adm'.*sgd, momentum, adagrad, rowwise_adagrad"):
        model.compile(logit, "adm")
    with pytest.raises(errors.InvalidArgumentError, match="learning_rate is -1"):
        model.compile(logit, sr.optimizers.Adam(-1))
    model.compile(logit, sr.optimizers.Adam())


def test_a_mistake_in_a_layer_is_raised_where_it_is_made() -> None:
    model = sr.Model()
    x = model.input("x", sr.float32, (3,))
    with pytest.raises(ValueError, match="units is 0"):
        layers.Dense(0)(x)
    with pytest.raises(errors.InvalidArgumentError, match="of the inputs must be known"):
        layers.Dense(1)(sr.reshape(x, sr.stack([-1, sr.shape(x)[1]])))


@pytest.mark.parametrize(
    "build",
    [
        lambda x: layers.Dense(2, activation="swisch")(x),
        lambda x: layers.Dropout(1.5)(x),
        lambda x: layers.FM()(x),
        lambda x: layers.Concatenate()([]),
        lambda x: x @ ops.reshape(ops.reduce_sum(x, [0]), [1, 3]),
        lambda x: x + sr.Model().input("y", sr.float32, (3,)),
    ],
)
def test_wrong_layers_raise_value_errors(build: object) -> None:
    with pytest.raises(ValueError):
        build(sr.Model().input("x", sr.float32, (3,)))


def test_outputs_do_not_combine_with_other_types() -> None:
    x = sr.Model().input("x", sr.float32, (3,))
    with pytest.raises(TypeError):
        x + "one"
    assert (np.zeros(3) + x).dtype == np.float32


def test_a_logit_has_one_column() -> None:
    model = sr.Model()
    with pytest.raises(errors.InvalidArgumentError, match="the logit is"):
        model.compile(layers.Dense(2)(model.input("x", sr.float32, (3,))))


def test_a_compiled_model_takes_no_more_layers() -> None:
    model = sr.Model()
    x = model.input("x", sr.float32, (3,))
    logit = layers.Dense(1)(x)
    model.compile(logit)
    with pytest.raises(errors.FailedPreconditionError, match="compiled"):
        layers.Dense(1)(x)
    with pytest.raises(errors.FailedPreconditionError, match="compiled"):
        model.input("y", sr.float32, (3,))
    with pytest.raises(errors.FailedPreconditionError, match="compiled"):
        model.compile(logit)
    assert "compiled" in repr(x)
