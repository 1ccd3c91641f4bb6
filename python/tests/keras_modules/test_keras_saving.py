"""Configs of models, layers and what they are made of, and names of one's own."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from typing import Any

import keras_models
import numpy as np
import pytest
from keras_models import MODELS, scale_layer

import sidereal as sr
from sidereal import keras
from sidereal.keras import layers, saving

X = np.random.default_rng(5).normal(size=(4, 6)).astype("f")


@pytest.fixture
def registered() -> Iterator[dict[str, Any]]:
    """What is registered, and is not any more after the test."""
    known = saving.get_custom_objects()
    before = dict(known)
    yield known
    known.clear()
    known.update(before)


def again(thing: Any) -> Any:
    """What is made of the text that is written for something."""
    return saving.deserialize_keras_object(
        json.loads(json.dumps(saving.serialize_keras_object(thing)))
    )


def predictions(model: Any, x: Any) -> list[np.ndarray]:
    return [each.numpy() for each in sr.nest.flatten(model(x, training=False))]


def check_equal(model: Any, made: Any, x: Any) -> None:
    made.set_weights(model.get_weights())
    for found, wanted in zip(predictions(made, x), predictions(model, x)):
        np.testing.assert_array_equal(found, wanted)


#: Models of symbolic tensors and of layers that Keras has.
GRAPHS = sorted({"mlp", "normalized", "residual", "frozen", "nested", "classifier", "recommender",
                 "masked", "translator", "labelled", "two_outputs", "two_outputs_by_name",
                 "deferred"})  # fmt: skip


@pytest.mark.parametrize("name", GRAPHS)
def test_models_are_made_again_of_text(name: str) -> None:
    build, data, _ = MODELS[name]
    model, (x, _) = build(keras), data()
    predictions(model, x)
    made = keras.models.model_from_json(model.to_json(indent=1))
    assert [each.name for each in made.layers] == [each.name for each in model.layers]
    assert [each.name for each in made.weights] == [each.name for each in model.weights]
    assert [each.trainable for each in made.weights] == [each.trainable for each in model.weights]
    assert made.to_json() == model.to_json()
    check_equal(model, made, x)
    cloned = keras.models.clone_model(model)
    predictions(cloned, x)
    check_equal(model, cloned, x)
    assert not {id(each) for each in cloned.weights} & {id(each) for each in model.weights}


Scale = saving.register_keras_serializable("tests")(scale_layer(keras))


@saving.register_keras_serializable("tests", "twice")
def doubled(x: Any) -> Any:
    return x * 2.0


@saving.register_keras_serializable("tests")
class Tower(keras.Model):
    """A model of a class of one's own."""

    def __init__(self, units: list[int], inner: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.inner = inner
        self.hidden = [layers.Dense(each, doubled) for each in units]

    def call(self, inputs: Any, training: Any = None) -> Any:
        if self.inner is not None:
            inputs = self.inner(inputs)
        for layer in self.hidden:
            inputs = layer(inputs)
        return inputs


def test_ops_constants_and_variables_are_parts_of_configs() -> None:
    table = layers.Embedding(7, 4)
    ids, x = keras.Input((2,), dtype="int32"), keras.Input((6,))
    own = sr.Variable(np.ones((6, 4), "f"), name="own")
    rows = table(ids)
    y = sr.matmul(sr.math.log(sr.abs(x)[:, ::-1] + 1.0), own)
    y = sr.concat([sr.matmul(y, sr.transpose(table.embeddings)), sr.reduce_sum(rows, 1)], 1)
    y = sr.cast(sr.cast(y, "float64") * np.linspace(0, 1, 11), "float32")
    model = keras.Model([ids, x], {"y": y, "parts": sr.split(y, 11, 1)[3]})
    made = again(model)
    assert [each.shape for each in made.weights] == [(6, 4), (7, 4)]
    assert made.weights[0].trainable and made.weights[0].name == "own"
    check_equal(model, made, [np.array([[1, 2], [3, 4]]), X[:2]])
    assert made.to_json() == model.to_json()


def test_ragged_inputs_and_layers_in_the_middle() -> None:
    ids = keras.Input((None,), ragged=True, dtype="int64")
    rows = layers.Embedding(9, 3, combiner="sum")(ids)
    hidden = layers.Dense(4)(rows)
    model = keras.Model(ids, layers.Dense(2)(hidden))
    check_equal(model, again(model), sr.RaggedTensor.from_row_lengths([1, 2, 3], [1, 0, 2]))
    upper = keras.Model(hidden, model.outputs)
    check_equal(upper, again(upper), X[:, :4])


def test_a_layer_of_several_models_is_made_once() -> None:
    table = layers.Embedding(9, 3)
    towers = []
    for _ in range(2):
        ids = keras.Input((2,), dtype="int32")
        towers.append(keras.Model(ids, layers.Dense(2)(layers.Flatten()(table(ids)))))
    ids = keras.Input((2,), dtype="int32")
    model = keras.Model(ids, layers.Add()([tower(ids) for tower in towers]))
    assert len(model.weights) == 5
    x = np.array([[1, 2], [3, 4]])
    for made in (again(model), keras.Model.from_config(model.get_config()),
                 keras.models.clone_model(model)):  # fmt: skip
        assert len(made.weights) == 5
        check_equal(model, made, x)


def test_layers_and_models_of_ones_own(registered: Any) -> None:
    layer = again(Scale(3.0, name="s", dtype="float64"))
    assert (layer.factor, layer.name, layer.dtype) == (3.0, "s", "float64")
    inputs = keras.Input((6,))
    tower = Tower([3, 2], inner=Scale(0.5), name="tower")
    model = keras.Model(inputs, layers.Lambda(doubled)(tower(inputs)))
    check_equal(model, again(model), X)
    alone = Tower([3, 2])
    alone(X)
    # Its weights are made by the shapes that it was called with.
    made = again(alone)
    assert [each.shape for each in made.weights] == [each.shape for each in alone.weights]
    check_equal(alone, made, X)
    entry = saving.serialize_keras_object(tower)
    assert entry["registered_name"] == "tests>Tower"
    del registered["tests>Scale"]
    with pytest.raises(TypeError, match=r"'Scale'.*register_keras_serializable"):
        again(model)
    with saving.custom_object_scope({"Scale": Scale}):
        check_equal(model, again(model), X)
    text = model.to_json()
    keras.models.model_from_json(text, {"Scale": Scale})


def test_names(registered: Any) -> None:
    assert saving.get_registered_name(doubled) == "tests>twice"
    assert saving.get_registered_name(again) == "again"
    assert saving.get_registered_object("tests>twice") is doubled
    assert saving.get_registered_object("nothing") is None
    assert saving.get_registered_object("a", {"a": 1}, {"a": 2}) == 1
    with saving.CustomObjectScope({"a": 1}), saving.custom_object_scope({"a": 3}):
        assert saving.get_registered_object("a") == 3
    assert keras.activations.get({"class_name": "function", "config": "twice",
                                  "registered_name": "tests>twice"}) is doubled  # fmt: skip
    with saving.custom_object_scope({"mine": again}):
        assert keras.activations.get("mine") is again
    with pytest.raises(ValueError, match=r"no get_config\(\)"):
        saving.register_keras_serializable()(int)


VALUES: dict[str, Any] = {
    "numbers": [1, 2.5, True, None, "text"],
    "bytes": b"\xff\x00a",
    "tuple": {"a": (1, [2, (3,)])},
    "array": np.arange(6, dtype="int16").reshape(2, 3),
    "op": sr.math.log,
    "class": keras.layers.Dense,
    "loss": keras.losses.mean_squared_error,
    "initializer": keras.initializers.VarianceScaling(2.0, seed=3),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_are_written_and_read(name: str) -> None:
    value = VALUES[name]
    found = again(value)
    if name == "array":
        np.testing.assert_array_equal(found, value)
        assert found.dtype == value.dtype
    elif name == "initializer":
        assert found.get_config() == value.get_config()
    else:
        assert found == value and type(found) is type(value)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "string"])
def test_tensors_are_written_and_read(dtype: str) -> None:
    value = sr.constant(["a", "b"]) if dtype == "string" else sr.cast([[1.5], [-2.0]], dtype)
    found = again(value)
    assert (found.dtype, found.shape) == (value.dtype, value.shape)
    assert bool(sr.reduce_all(sr.equal(found, value)).numpy())


BASES = {"Constraint", "Initializer", "Loss", "Metric", "Optimizer", "Regularizer"}


def _objects() -> list[Any]:
    """One of each class of what models are compiled with."""
    found: list[Any] = []
    for module in (keras.losses, keras.metrics, keras.optimizers, keras.initializers,
                   keras.regularizers, keras.constraints):  # fmt: skip
        for name in module.__all__:
            cls = getattr(module, name)
            if not inspect.isclass(cls) or not hasattr(cls, "get_config"):
                continue
            taken = inspect.signature(cls).parameters.values()
            needed = [
                each for each in taken
                if each.default is each.empty and each.kind == each.POSITIONAL_OR_KEYWORD
            ]  # fmt: skip
            if not needed and name not in BASES:
                found.append(cls())
    return found


def test_what_models_are_compiled_with_is_written_and_read() -> None:
    found = _objects()
    assert len(found) > 80
    for each in found:
        made = again(each)
        assert type(made) is type(each)
        assert made.get_config() == each.get_config()
    schedules = keras.optimizers.schedules
    rate = schedules.ExponentialDecay(0.1, 10, 0.5)
    made = again(keras.optimizers.Adam(rate))
    assert made._given_rate().get_config() == rate.get_config()
    parts = schedules.PiecewiseConstantDecay([1, 2], [0.1, 0.2, 0.3])
    assert again(parts).get_config() == parts.get_config()


def test_clones_of_other_layers() -> None:
    model = keras_models.residual(keras)

    def narrow(layer: Any) -> Any:
        config = layer.get_config()
        if isinstance(layer, layers.Dense):
            config["use_bias"] = False
        return type(layer).from_config(config)

    for each in (model, keras_models.mlp(keras)):
        made = keras.models.clone_model(each, clone_function=narrow)
        assert len(made.weights) == len(each.weights) // 2
    nested, called = keras_models.nested(keras), []

    def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        called.append(type(layer).__name__)
        return layer(*args, **kwargs)

    made = keras.models.clone_model(
        nested, clone_function=narrow, call_function=call, recursive=True
    )
    assert len(made.weights) == 2
    assert called.count("Model") == 2 and called.count("Dense") == 2
    # What cannot be written can be cloned.
    inputs = keras.Input((6,))
    model = keras.Model(inputs, layers.Lambda(lambda x: x + 1.0)(inputs))
    np.testing.assert_array_equal(keras.models.clone_model(model)(X), X + 1)
    with pytest.raises(ValueError, match="made by its class"):
        keras.models.clone_model(Tower([2]), clone_function=narrow)
    with pytest.raises(ValueError, match="takes a model"):
        keras.models.clone_model(layers.Dense(2))


class Unregistered(keras.Model):
    def __init__(self, thing: Any) -> None:
        super().__init__()
        self.thing = thing


def _wrong_config(change: Any) -> Any:
    config = keras_models.residual(keras).get_config()
    change(config)
    return keras.Model.from_config(config)


def _op(config: Any, op: str) -> None:
    """Has something else in the place of the first op."""
    entry = next(each for each in config["layers"] if each["class_name"] == "__op__")
    entry["config"]["op"] = op


WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "lambda": (lambda: again(layers.Lambda(lambda x: x, name="fn")), ValueError,
               "'fn'.*Python code.*register"),
    "named function": (lambda: again(layers.Lambda(again)), ValueError, "Register it"),
    "activation": (lambda: again(layers.Dense(2, lambda x: x)), ValueError, "has no name"),
    "object": (lambda: again([object()]), TypeError, "no get_config"),
    "keys": (lambda: again({1: 2}), TypeError, "keys of dicts"),
    "model": (lambda: Unregistered(object()).get_config(), NotImplementedError, "get_config"),
    "no model": (lambda: keras.models.model_from_json("[3]"), ValueError, "no model"),
    "module": (lambda: saving.deserialize_keras_object(
        {"module": "os", "class_name": "function", "config": "system"}), TypeError, "'system'"),
    "private": (lambda: saving.deserialize_keras_object(
        {"module": "ops.math", "class_name": "function", "config": "apply"}), TypeError, "'apply'"),
    "no class": (lambda: saving.deserialize_keras_object(
        {"module": "ops.math", "class_name": "log", "config": {}}), TypeError, "from_config"),
    "op": (lambda: _wrong_config(lambda c: _op(c, "Nothing")), ValueError, "no op"),
    "stateful op": (lambda: _wrong_config(lambda c: _op(c, "Recv")), ValueError, "outside"),
    "order": (lambda: _wrong_config(lambda c: c["layers"].reverse() or [
        node.update(order=-node["order"]) for each in c["layers"] for node in each["inbound_nodes"]
    ]), ValueError, "before it is made"),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
def test_what_cannot_be_written_or_read(kind: str) -> None:
    do, error, message = WRONG[kind]
    with pytest.raises(error, match=message):
        do()


def test_a_table_is_a_part_of_a_config() -> None:
    pairs = sr.lookup.KeyValueTensorInitializer(sr.constant(["a"]), sr.constant([1], "int64"))
    table = sr.lookup.StaticHashTable(pairs, -1)
    text = keras.Input((), dtype="string")
    made = again(keras.Model(text, table.lookup(text)))
    np.testing.assert_array_equal(made(np.array(["a", "b"])).numpy(), [1, -1])
