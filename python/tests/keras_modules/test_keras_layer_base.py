"""The base of layers and the functional API of sidereal.keras: weights, sublayers, masks, training,
what is recorded, arguments beside Keras', and messages."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from keras_peer import QUIET, parameters, peer

import sidereal as sr
from sidereal import keras
from sidereal.keras import layers

pytestmark = QUIET

X = np.random.default_rng(0).normal(size=(4, 3)).astype("f")

#: Arguments of Keras that are not there, by layer.
LEFT_OUT = {
    "Dense": {"lora_rank", "lora_alpha", "quantization_config"},
    "Embedding": {"lora_rank", "lora_alpha", "quantization_config"},
    "BatchNormalization": {"renorm_clipping", "renorm_momentum"},
    "MultiHeadAttention": {"sliding_window", "flash_attention", "use_gate"},
}
#: Layers with other arguments, or of TensorFlow alone; GRU and LSTM share theirs.
OTHERS = {
    "AUGRU", "AttentionPooling", "Bias", "CIN", "CategoryCrossing", "CategoryHashing", "Cross",
    "DenseFeatures", "FM", "FieldAwareFM", "GRU", "InputLayer", "Interacting", "LSTM", "Layer",
    "MMoE", "PLE", "SequenceFeatures", "SplitText", "VectorCross",
}  # fmt: skip
CLASSES = sorted(
    name for name in layers.__all__
    if inspect.isclass(getattr(layers, name)) and name not in OTHERS
)  # fmt: skip


@pytest.mark.parametrize("name", CLASSES)
def test_arguments_and_defaults_are_those_of_keras(name: str) -> None:
    ours = dict(parameters(getattr(layers, name)))
    theirs = dict(parameters(getattr(peer().layers, name)))
    theirs = {key: value for key, value in theirs.items() if key not in LEFT_OUT.get(name, set())}
    own = {"combiner"} if name == "Embedding" else set()
    assert [key for key in ours if key not in own] == list(theirs)
    assert {key: value for key, value in ours.items() if key not in own} == theirs


@pytest.mark.parametrize("name", ["GRU", "LSTM"])
def test_arguments_of_recurrent_layers(name: str) -> None:
    theirs = [key for key, _ in parameters(getattr(peer().layers, name)) if key != "use_cudnn"]
    layer = getattr(layers, name)(4)
    for key in theirs:
        if key in ("units", "recurrent_dropout", "stateful"):
            continue
        value = layer.get_config().get(key, getattr(layer, key, None))
        getattr(layers, name)(4, **{key: value})


class Pair(layers.Layer):
    """Sublayers in a list and in a dict, and weights of its own."""

    def __init__(self, units: int = 2, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units = units
        self.listed = [layers.Dense(units), layers.Dense(units)]
        self.named = {"norm": layers.BatchNormalization()}

    def build(self, input_shape: Any) -> None:
        self.shape = input_shape
        self.count = self.add_weight((), "zeros", trainable=False, name="count")
        self.scale = self.add_weight(shape=(self.units,), initializer="ones", name="scale")

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        self.told = training
        if training:
            self.count.assign_add(1.0)
        x = self.listed[0](inputs) + self.listed[1](inputs)
        return self.named["norm"](x) * self.scale


def test_weights_of_sublayers_are_found() -> None:
    layer = Pair()
    assert layer.weights == []
    layer(X)
    assert layer.shape == (4, 3)
    names = [each.name.split("/")[-1] for each in layer.weights]
    assert names == ["scale", "count", "kernel", "bias", "kernel", "bias", "gamma", "beta",
                     "moving_mean", "moving_variance"]  # fmt: skip
    assert len(layer.trainable_weights) == 7
    assert len(layer.non_trainable_weights) == 3
    assert layer.count_params() == 2 + 1 + 2 * 8 + 8
    layer.trainable = False
    assert layer.trainable_weights == []
    assert not layer.listed[0].trainable
    assert len(layer.non_trainable_weights) == 10
    layer.listed[1].trainable = True
    assert layer.trainable_weights == []
    layer.trainable = True
    layer.listed[0].trainable = False
    assert len(layer.trainable_weights) == 5


def test_sublayers_are_told_of_training() -> None:
    layer = Pair()
    layer(X)
    assert layer.told is None
    layer(X, training=True)
    assert layer.told is True
    assert float(layer.count) == 1.0
    assert (layer.named["norm"].moving_mean.numpy() != 0).all()
    outer = keras.Sequential([layer])
    outer(X, training=True)
    assert float(layer.count) == 2.0
    outer(X)
    assert float(layer.count) == 2.0


def test_dropout_is_random_in_training_alone() -> None:
    layer = layers.Dropout(0.5)
    x = np.ones((40, 50), "f")
    assert (layer(x).numpy() == 1).all()
    run = sr.function(lambda: layer(x, training=True))
    first, second = run().numpy(), run().numpy()
    assert set(np.unique(first)) == {0.0, 2.0}
    assert 0.4 < (first == 0).mean() < 0.6
    assert (first != second).any()
    rows = layers.Dropout(0.5, noise_shape=(None, 1))(x, training=True).numpy()
    assert (rows == rows[:, :1]).all() and len(np.unique(rows)) == 2
    symbol = keras.Input((50,))
    model = keras.Model(symbol, layers.Dropout(0.5, (None, 1))(symbol))
    assert len(np.unique(model(x, training=True).numpy())) == 2
    assert (layers.GRU(2, dropout=0.5)(np.ones((3, 4, 5), "f"), training=True)).shape == (3, 2)


def test_floats_are_cast_to_the_dtype_of_a_layer() -> None:
    assert layers.Dense(2)(X.astype("d")).dtype == sr.float32
    assert layers.Dense(2, dtype="float64")(X).dtype == sr.float64
    assert layers.Dense(2, dtype="bfloat16")(X).dtype == sr.bfloat16
    assert layers.Dense(2)(X.astype("i")).dtype == sr.float32
    assert layers.Identity(autocast=False)(X.astype("d")).dtype == sr.float64


def test_masks_go_from_layer_to_layer() -> None:
    seen = []

    class Look(layers.Layer):
        supports_masking = True

        def call(self, inputs: Any, mask: Any = None) -> Any:
            seen.append(None if mask is None else mask.numpy().tolist())
            return inputs

    ids = np.array([[1, 2, 0], [3, 0, 0]])
    wanted = [[True, True, False], [True, False, False]]
    model = keras.Sequential([layers.Embedding(5, 2, mask_zero=True), layers.Dense(3), Look(),
                              layers.GRU(2), Look()])  # fmt: skip
    model(ids)
    assert seen == [wanted, None]
    assert layers.Embedding(5, 2, mask_zero=True).compute_mask(sr.constant(ids)).numpy().tolist()
    seen.clear()
    Look()(np.ones((1, 2), "f"), mask=np.array([[True, False]]))
    assert seen == [[[True, False]]]


def test_losses_are_those_of_the_last_call() -> None:
    class Penalty(layers.Layer):
        def call(self, inputs: Any) -> Any:
            self.add_loss(sr.reduce_sum(inputs))
            return inputs

    model = keras.Sequential([Penalty(), layers.Dense(1, kernel_regularizer="l1"), Penalty()])
    for _ in range(2):
        model(X)
        assert len(model.losses) == 3
    np.testing.assert_allclose(model.losses[0], X.sum(), rtol=1e-5)


def test_what_is_made_from_a_config_has_its_arguments() -> None:
    layer = Pair(5, name="mine")
    again = Pair.from_config(layer.get_config())
    assert (again.units, again.name) == (5, "mine")
    dense = layers.Dense.from_config(layers.Dense(3, "relu", name="d").get_config())
    assert (dense.units, dense.name, dense.activation.__name__) == (3, "d", "relu")


# --- The functional API.


def test_ops_constants_and_variables_are_recorded() -> None:
    factor = sr.Variable([1.0, 2.0, 3.0])
    x = keras.Input((3,))
    y = sr.concat([x * factor, sr.constant([[1.0]]) + sr.reduce_sum(x, 1, keepdims=True)], 1)
    a, b = sr.split(y, 2, axis=1)
    model = keras.Model(x, [a, {"b": b[:, ::-1]}])
    whole = np.concatenate([X * [1, 2, 3], 1 + X.sum(1, keepdims=True)], 1)
    first, second = model(X)
    np.testing.assert_allclose(first, whole[:, :2], rtol=1e-6)
    np.testing.assert_allclose(second["b"], whole[:, :1:-1], rtol=1e-5)
    assert [each is factor for each in model.weights] == [True]
    factor.assign([0.0, 0.0, 0.0])
    assert (model(X)[0].numpy() == 0).all()


def test_variables_that_ops_read_are_trained() -> None:
    factor = sr.Variable([1.0, 1.0, 1.0])
    x = keras.Input((3,))
    dense = layers.Dense(1)
    model = keras.Model(x, dense(x * factor) + dense.bias)
    assert len(model.trainable_weights) == 3
    model.compile("sgd", "mse")
    model.fit(X, np.ones((4, 1)), verbose=0)
    assert (factor.numpy() != 1).all()


def test_a_function_that_was_traced_is_inlined() -> None:
    double = sr.function(lambda v: v * 2.0)
    x = keras.Input((3,))
    np.testing.assert_allclose(keras.Model(x, double(x))(X), X * 2)


def test_text_may_be_an_input() -> None:
    words = keras.Input((2,), dtype="string")
    rows = layers.Embedding(50, 3)(sr.strings.to_hash_bucket_fast(words, 50))
    model = keras.Sequential([keras.Model(words, rows), layers.Flatten(), layers.Dense(1)])
    model.compile("sgd", "mse")
    given = np.array([["a", "b"], ["c", "a"], ["bb", ""]], dtype=object)
    model.fit(given, np.ones(3), verbose=0, batch_size=2)
    assert model.predict(given, verbose=0).shape == (3, 1)


def test_parts_of_a_model_are_models() -> None:
    x = keras.Input((3,), name="x")
    hidden = layers.Dense(4, "relu", name="hidden")(x)
    model = keras.Model(x, layers.Dense(1, name="head")(hidden))
    part = keras.Model(model.input, model.get_layer("hidden").output)
    np.testing.assert_allclose(part(X), model.get_layer("hidden")(X), rtol=1e-6)
    top = keras.Model(hidden, model.output)
    np.testing.assert_allclose(top(part(X)), model(X), rtol=1e-5)
    assert [layer.name for layer in model.layers] == ["x", "hidden", "head"]
    assert model.get_layer(index=-1).name == "head"
    assert (model.input_names, model.output_names) == (["x"], ["head"])
    assert model.input_shape == (None, 3)


def test_inputs_are_brought_to_the_shape_that_was_said() -> None:
    x = keras.Input((1,))
    model = keras.Model(x, x * 2.0)
    assert model(np.ones(4, "f")).shape == (4, 1)
    y = keras.Input(())
    assert keras.Model(y, y * 2.0)(np.ones((4, 1), "f")).shape == (4,)
    assert keras.Model(y, y * 2.0)(np.ones(4, "i")).dtype == sr.float32
    named = keras.Model({"a": x, "b": y}, x + 1.0)
    assert named({"b": np.ones(4), "a": np.ones(4), "more": None}).shape == (4, 1)


def test_lambda_knows_training_and_arguments() -> None:
    layer = layers.Lambda(lambda x, n, training=None: x * n if training else x, arguments={"n": 3})
    assert (layer(X, training=True).numpy() == X * 3).all()
    assert (layer(X).numpy() == X).all()
    assert layer.compute_output_shape((None, 3)) == (None, 3)


def test_sequential_grows_and_shrinks() -> None:
    model = keras.Sequential(name="stack")
    model.add(layers.Dense(4, input_shape=(3,)))
    model.add(layers.Dense(2))
    assert model.output_shape == (None, 2)
    model.pop()
    assert model(X).shape == (4, 4)
    late = keras.Sequential([layers.Dense(4), layers.Dense(2)])
    assert late.weights == []
    late.build((None, 3))
    assert [tuple(each.shape) for each in late.weights] == [(3, 4), (4,), (4, 2), (2,)]


def _no_init() -> Any:
    class Forgot(layers.Layer):
        def __init__(self) -> None:
            self.x = 1

    return Forgot()(X)


def _disconnected() -> Any:
    a, b = keras.Input((3,), name="a"), keras.Input((3,), name="b")
    return keras.Model(a, layers.Add()([a, b]))


def _used() -> Any:
    x = keras.Input((3,))
    return keras.Model(x, sr.cond(sr.reduce_sum(x) > 0, lambda: x, lambda: -x))


def _assigned() -> Any:
    return sr.Variable(np.zeros(3, "f"), name="v").assign(sr.reduce_sum(keras.Input((3,)), 0))


def _wide() -> Any:
    layer = layers.Dense(2)
    layer(X)
    return layer(X[:, :2])


MESSAGES: dict[str, tuple[Any, type[Exception], str]] = {
    "super": (_no_init, RuntimeError, "has not called super"),
    "no call": (lambda: layers.Layer()(X), NotImplementedError, "Layer has no call"),
    "no call of a model": (lambda: keras.Model()(X), NotImplementedError, "Model has no call"),
    "arguments": (lambda: layers.Dense(2, activaton="relu"), ValueError, "no argument activaton"),
    "units": (lambda: layers.Dense(0), ValueError, "units is 0; it must be a positive"),
    "width": (_wide, ValueError, r"of shape \(..., 3\); these have \(4, 2\)"),
    "unknown width": (
        lambda: layers.Dense(2)(keras.Input((None,))), ValueError, "dimension -1.*must be known",
    ),
    "weights": (
        lambda: layers.Dense(2).set_weights([X]), ValueError, "has 0 weights; .* is given 1",
    ),
    "shape of a weight": (
        lambda: (d := layers.Dense(2), d(X), d.set_weights([X, X])), ValueError, "has shape .3, 2.",
    ),
    "count": (lambda: layers.Dense(2).count_params(), ValueError, "no weights yet"),
    "output": (lambda: layers.Dense(2).output, AttributeError, "has no output: it was never"),
    "disconnected": (_disconnected, ValueError, "need the input 'b', which is not among.*a"),
    "a name twice": (
        lambda: keras.Model(x := keras.Input((3,)),
                            layers.Dense(1, name="d")(layers.Dense(2, name="d")(x))),
        ValueError, "2 layers called 'd'",
    ),
    "no symbol": (lambda: keras.Model(keras.Input((3,)), X), ValueError, "must be symbolic"),
    "half": (lambda: keras.Model(keras.Input((3,))), ValueError, "give inputs and outputs"),
    "value": (lambda: keras.Input((3,)).numpy(), sr.errors.SymbolicError, "no array"),
    "control flow": (_used, sr.errors.UnimplementedError, "write a layer whose call.. has them"),
    "assignment": (_assigned, sr.errors.UnimplementedError, "cannot be assigned to"),
    "shapes": (
        lambda: layers.Add()([keras.Input((3,)), keras.Input((4,))]), ValueError, "3.*4",
    ),
    "merging nothing": (lambda: layers.Add()([]), ValueError, "one at least"),
    "no list": (lambda: layers.Attention()(X), ValueError, "called on a list .* Tensor of shape"),
    "axes": (lambda: layers.Dot(0), ValueError, "axis 0 is that of the examples"),
    "rate": (lambda: layers.Dropout(1.5), ValueError, "rate is 1.5; it must be a number from 0"),
    "rank": (lambda: layers.GRU(2)(X), ValueError, "takes .batch, time, features.; .* .4, 3."),
    "gate": (
        lambda: layers.GRU(2, reset_after=False).build((None, 2, 3)), NotImplementedError,
        "reset_after=False",
    ),
    "no layer": (lambda: keras.Sequential([3]), ValueError, "3 is no layer"),
    "same names": (
        lambda: keras.Sequential([layers.Dense(1, name="d"), layers.Dense(1, name="d")]),
        ValueError, "a layer called 'd' already",
    ),
    "no such layer": (
        lambda: keras.Sequential([layers.Dense(1, name="d")]).get_layer("e"), ValueError,
        "has no layer 'e'; its layers are: d",
    ),
    "not built": (lambda: keras.Sequential().summary(), ValueError, "no weights yet; build"),
    "nothing known": (lambda: keras.Input(), ValueError, "give one of shape and batch_shape"),
    "ragged": (lambda: keras.Input((3,), ragged=True), ValueError, "must begin with None"),
}  # fmt: skip


@pytest.mark.parametrize("which", MESSAGES)
def test_messages(which: str) -> None:
    call, error, message = MESSAGES[which]
    with pytest.raises(error, match=message):
        call()


def test_a_layer_in_a_function_makes_its_weights_once() -> None:
    layer = layers.Dense(2)
    run = sr.function(lambda x: layer(x))
    first = run(X)
    assert len(layer.weights) == 2
    np.testing.assert_allclose(first, layer(X), rtol=1e-6)
    run(X[:3])
    assert len(layer.weights) == 2
