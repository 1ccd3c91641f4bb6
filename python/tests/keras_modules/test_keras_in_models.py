"""Layers of keras as parts of a sidereal.Model: the numbers are those of the layer in this process,
and what cannot be part of one is said."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sidereal as sr
from sidereal import errors, keras
from sidereal.keras import initializers, layers, regularizers

RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(6, 4)).astype(np.float32)
ROWS = RANDOM.normal(size=(6, 3, 4)).astype(np.float32)
FOR_EACH = np.concatenate([ROWS, ROWS[:, :, :2]], 2)
IDS = RANDOM.integers(0, 9, (6, 3))
MASK = np.arange(3)[None, :] < np.array([3, 1, 2, 3, 1, 2])[:, None]
WORDS = np.array(["a", "b", "c"])[RANDOM.integers(0, 3, (6, 2))]


class Residual(layers.Layer):
    """A layer of one's own, with layers inside and a weight that is not trained."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.inner = layers.Dense(4, "tanh")
        self.dropout = layers.Dropout(0.5)

    def build(self, input_shape: Any) -> None:
        self.inner.build(input_shape)
        self.scale = self.add_weight((), "ones", trainable=False, name="scale")

    def call(self, inputs: Any, training: bool = False) -> Any:
        return inputs + self.dropout(self.inner(inputs), training=training) * self.scale


def masked(**options: Any) -> Any:
    """Ids whose mask a layer behind is told."""
    return keras.Sequential([layers.Embedding(9, 4, mask_zero=True), layers.GRU(3, **options)])


#: By name: a function that makes the layer, what it is called with (arrays, or a list of them), and
#: keyword arguments.
LAYERS: dict[str, tuple[Callable[[], Any], Any, dict[str, Any]]] = {
    "Activation": (lambda: layers.Activation("gelu"), X, {}),
    "Add": (layers.Add, [X, X], {}),
    "AUGRU": (lambda: layers.AUGRU(3), [ROWS, np.abs(ROWS[:, :, 0])], {}),
    "AdditiveAttention": (layers.AdditiveAttention, [ROWS, ROWS], {}),
    "Attention": (lambda: layers.Attention(use_scale=True), [ROWS, ROWS], {}),
    "AttentionPooling": (lambda: layers.AttentionPooling((5,)), [X, ROWS], {"mask": MASK}),
    "AttentionPooling, softmax": (
        lambda: layers.AttentionPooling((5, 3), softmax=True), [X, ROWS], {"mask": MASK},
    ),
    "Average": (layers.Average, [X, X + 1], {}),
    "BatchNormalization": (layers.BatchNormalization, X, {"training": False}),
    "Bias": (layers.Bias, X, {}),
    "CategoryEncoding": (lambda: layers.CategoryEncoding(9, "count"), IDS, {}),
    "CIN": (lambda: layers.CIN((4, 2)), ROWS, {}),
    "Concatenate": (layers.Concatenate, [X, X], {}),
    "Cross": (layers.Cross, X, {}),
    "Cross of low rank": (lambda: layers.Cross(2, diag_scale=0.1), X, {}),
    "Dense": (lambda: layers.Dense(3, "relu"), X, {}),
    "Dense of rows": (lambda: layers.Dense(3, use_bias=False), ROWS, {}),
    "Discretization": (lambda: layers.Discretization([-0.5, 0.5]), X, {}),
    "Dot": (lambda: layers.Dot(1), [X, X], {}),
    "Dropout": (lambda: layers.Dropout(0.5), X, {}),
    "Embedding": (lambda: layers.Embedding(9, 4), IDS, {}),
    "Embedding, mean": (lambda: layers.Embedding(9, 4, combiner="mean"), IDS, {}),
    "Embedding of one id": (lambda: layers.Embedding(9, 4), IDS[:, 0].astype(np.int32), {}),
    "Embedding, weighted": (
        lambda: Of(layers.Embedding(9, 4, combiner="sqrtn")), [IDS, np.abs(ROWS[:, :, 0])], {},
    ),
    "FM": (layers.FM, ROWS, {}),
    "FieldAwareFM": (layers.FieldAwareFM, FOR_EACH, {}),
    "Flatten": (layers.Flatten, ROWS, {}),
    "GRU": (lambda: layers.GRU(3, return_sequences=True), ROWS, {"mask": MASK}),
    "GRU, backwards": (lambda: layers.GRU(3, dropout=0.3, go_backwards=True), ROWS, {}),
    "GRU behind a mask": (masked, IDS, {}),
    "GlobalAveragePooling1D": (layers.GlobalAveragePooling1D, ROWS, {"mask": MASK}),
    "GlobalMaxPooling1D": (layers.GlobalMaxPooling1D, ROWS, {}),
    "Hashing": (lambda: layers.Hashing(7), WORDS, {}),
    "Identity": (layers.Identity, X, {}),
    "Interacting": (lambda: layers.Interacting(3), ROWS, {}),
    "IntegerLookup": (lambda: layers.IntegerLookup(vocabulary=[1, 2, 3]), IDS, {}),
    "LSTM": (lambda: layers.LSTM(3), ROWS, {"mask": MASK}),
    "LSTM without bias": (lambda: layers.LSTM(3, use_bias=False), ROWS, {}),
    "Lambda": (lambda: layers.Lambda(lambda x: x * 2.0), X, {}),
    "LayerNormalization": (layers.LayerNormalization, X, {}),
    "LayerNormalization of two": (lambda: layers.LayerNormalization([1, 2]), ROWS, {}),
    "ELU": (lambda: layers.ELU(0.7), X, {}),
    "LeakyReLU": (layers.LeakyReLU, X, {}),
    "PReLU": (lambda: layers.PReLU("ones"), X, {}),
    "MMoE": (lambda: layers.MMoE(5, 3, 2), X, {}),
    "Maximum": (layers.Maximum, [X, -X], {}),
    "Minimum": (layers.Minimum, [X, -X], {}),
    "MultiHeadAttention": (
        lambda: Of(layers.MultiHeadAttention(2, 3, dropout=0.4)), [ROWS, ROWS], {},
    ),
    "Multiply": (layers.Multiply, [X, X], {}),
    "Normalization": (lambda: layers.Normalization(mean=1.0, variance=4.0), X, {}),
    "PLE": (lambda: layers.PLE(5, 2), X, {}),
    "Permute": (lambda: layers.Permute((2, 1)), ROWS, {}),
    "ReLU": (lambda: layers.ReLU(max_value=0.5), X, {}),
    "RepeatVector": (lambda: layers.RepeatVector(2), X, {}),
    "Rescaling": (lambda: layers.Rescaling(3.0, 1.0), X, {}),
    "Reshape": (lambda: layers.Reshape((2, -1)), ROWS, {}),
    "Residual": (Residual, X, {}),
    "Sequential": (lambda: keras.Sequential([layers.Dense(3), layers.Dense(2)]), X, {}),
    "Softmax": (layers.Softmax, X, {}),
    "StringLookup": (lambda: layers.StringLookup(vocabulary=["b", "c"]), WORDS, {}),
    "Subtract": (layers.Subtract, [X, X * 2], {}),
    "VectorCross": (layers.VectorCross, X, {}),
}  # fmt: skip


class Of(layers.Layer):
    """A layer of two arguments, called with a list of them."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer

    def call(self, inputs: Any, training: bool = False) -> Any:
        return self.layer(*inputs, training=training)


def inputs_of(model: sr.Model, arrays: Any) -> tuple[Any, dict[str, Any]]:
    """Inputs of a model for arrays, and these as data."""
    several = arrays if isinstance(arrays, list) else [arrays]
    data = {f"x{i}": each for i, each in enumerate(several)}
    made = [
        model.input(name, sr.string if each.dtype.kind == "U" else each.dtype, each.shape[1:])
        for name, each in data.items()
    ]
    return (made if isinstance(arrays, list) else made[0]), data


@pytest.fixture(scope="module")
def cluster() -> Any:
    with sr.LocalCluster(ps=2, workers=1, in_process=True) as running:
        yield running


@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_a_model_give_the_numbers_of_this_process(
    name: str, cluster: sr.LocalCluster
) -> None:
    make, arrays, options = LAYERS[name]
    model = sr.Model(seed=3)
    inputs, data = inputs_of(model, arrays)
    layer = make()
    made = layer(inputs, **{
        key: sr.gather(value, sr.range(6)) if isinstance(value, np.ndarray) else value
        for key, value in options.items()
    })  # fmt: skip
    parts = [sr.reshape(sr.cast(each, "float32"), [6, -1]) for each in sr.nest.flatten(made)]
    # Of what has no weights as well.
    trained = layers.Dense(1, name="trained")(model.input("y", sr.float32, (1,)))
    out = sr.concat(parts, 1)
    model.compile(out, loss=sr.reduce_sum(out) + sr.reduce_sum(trained))
    model.initialize(cluster)
    got = model.predict(data | {"y": np.zeros((6, 1), np.float32)})

    peer = make()
    want = peer(arrays, **options)
    names = [each.name for each in layer.weights]
    assert set(names) == {each.name for each in model.variables()} - {
        "trained/kernel", "trained/bias"
    }
    peer.set_weights([model.get_variable(name) for name in names])
    want = peer(arrays, **options)
    flat = [np.reshape(each.numpy(), (6, -1)) for each in sr.nest.flatten(want)]
    np.testing.assert_allclose(got, np.concatenate(flat, 1), rtol=1e-5, atol=1e-6)


def test_every_layer_is_in_the_table() -> None:
    known = {re.split("[ ,]", name)[0] for name in LAYERS}
    made = {name for name in layers.__all__ if isinstance(getattr(layers, name), type)}
    # Bases, what is only in models of Keras, and what is told by other arguments or tested on
    # text, in test_preprocessing_cluster.py and test_feature_definitions.py, or by feature columns,
    # in test_feature_column.py.
    others = {
        "CategoryCrossing", "CategoryHashing", "DenseFeatures", "HashedCrossing", "Input",
        "InputLayer", "Layer", "SequenceFeatures", "SplitText", "TextVectorization",
    }  # fmt: skip
    assert made - others == known - {"Residual", "Sequential"}


def test_a_layer_that_is_called_twice_shares_its_weights(cluster: sr.LocalCluster) -> None:
    rng = np.random.default_rng(6)
    model = sr.Model(seed=1)
    ids = model.input("ids", sr.int64, (3,))
    other = model.input("other", sr.int64, (2,))
    table, dense = layers.Embedding(9, 4), layers.Dense(4)
    first, second = dense(table(ids)), dense(table(other))
    out = sr.concat([first, second], axis=1)
    target = model.input("y", sr.float32, (5, 4))
    model.compile(out, sr.optimizers.SGD(0.1), loss=sr.reduce_mean(sr.square(out - target)))
    assert [each.name for each in model.variables()] == [
        "embedding/embeddings", "dense/kernel", "dense/bias"
    ]
    data = {"ids": IDS, "other": IDS[:, 1:], "y": rng.normal(size=(6, 5, 4)).astype("f")}
    model.initialize(cluster)
    weights = [sr.Variable(model.get_variable(each.name)) for each in model.variables()]
    model.fit(data, batch_size=6, shuffle=False, epochs=3, verbose=False)
    for _ in range(3):
        with sr.GradientTape() as tape:
            rows = sr.concat([sr.gather(weights[0], IDS), sr.gather(weights[0], IDS[:, 1:])], 1)
            off = sr.matmul(sr.reshape(rows, [-1, 4]), weights[1]) + weights[2]
            loss = sr.reduce_mean(sr.square(off - data["y"].reshape(-1, 4)))
        for weight, gradient in zip(weights, tape.gradient(loss, weights)):
            weight.assign_sub(0.1 * sr.convert_to_tensor(gradient))
    for info, weight in zip(model.variables(), weights):
        np.testing.assert_allclose(model.get_variable(info.name), weight.numpy(), atol=1e-5)


def test_the_id_minus_one_is_a_row_of_zeros(cluster: sr.LocalCluster) -> None:
    model = sr.Model()
    rows = layers.Embedding(9, 4, "ones")(model.input("ids", sr.int64, (2,)))
    model.compile(rows, loss=sr.reduce_sum(rows))
    model.initialize(cluster)
    got = model.predict({"ids": np.array([[3, -1]])})
    np.testing.assert_array_equal(got[0], [[1.0] * 4, [0.0] * 4])


def test_names_are_unique_in_a_model() -> None:
    model = sr.Model()
    x = model.input("x", sr.float32, (3,))
    for _ in range(2):
        x = layers.Dense(3, use_bias=False)(x)
    x = Residual()(layers.Dense(4, use_bias=False, name="dense_7")(x))
    model.compile(layers.Dense(1)(x))
    assert [each.name for each in model.variables()] == [
        "dense/kernel", "dense_1/kernel", "dense_7/kernel", "dense_2/kernel", "dense_2/bias",
        "residual/scale", "dense_3/kernel", "dense_3/bias",
    ]
    again = sr.Model()
    layers.Dense(2, name="one")(again.input("x", sr.float32, (3,)))
    with pytest.raises(errors.AlreadyExistsError, match="has a variable 'one/kernel' already"):
        layers.Dense(2, name="one")(again.input("y", sr.float32, (3,)))


INITIALIZERS: dict[str, tuple[Any, Callable[[np.ndarray], bool]]] = {
    "zeros": ("zeros", lambda w: (w == 0).all()),
    "ones": ("ones", lambda w: (w == 1).all()),
    "constant": (initializers.Constant(2.5), lambda w: (w == 2.5).all()),
    "array": (np.arange(30.0, dtype="f")[:, None] * np.ones(20, "f"), lambda w: w[7, 3] == 7),
    "identity": ("identity", lambda w: (w == np.eye(30, 20)).all()),
    "uniform": (initializers.RandomUniform(1.0, 2.0), lambda w: 1 <= w.min() < 1.1 < 1.9 < w.max()),
    "normal": (
        initializers.RandomNormal(3.0, 0.5),
        lambda w: abs(w.mean() - 3) < 0.1 and abs(w.std() - 0.5) < 0.1 and w.max() > 4,
    ),
    "truncated": (
        initializers.TruncatedNormal(3.0, 0.5), lambda w: 3.8 < w.max() < 4.0 and w.min() > 2.0,
    ),
    "glorot": (
        "glorot_uniform", lambda w: 0.9 < np.abs(w).max() / np.sqrt(6 / 50) <= 1
    ),
    "he": ("he_normal", lambda w: abs(w.std() - np.sqrt(2 / 30)) < 0.05),
    "orthogonal": (
        "orthogonal", lambda w: np.allclose(w.T @ w, np.eye(20), atol=1e-5)
    ),
    "function": (lambda shape, dtype: sr.ones(shape, dtype) * 7.0, lambda w: (w == 7).all()),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["weight", "table"])
@pytest.mark.parametrize("name", INITIALIZERS)
def test_weights_start_as_initializers_say(
    name: str, kind: str, cluster: sr.LocalCluster
) -> None:
    start, is_right = INITIALIZERS[name]
    values = []
    for seed in (1, 1, 2):
        model = sr.Model(seed=seed)
        if kind == "weight":
            inputs = model.input("x", sr.float32, (30,))
            made = layers.Dense(20, kernel_initializer=start)(inputs)
        else:
            made = layers.Embedding(30, 20, start)(model.input("ids", sr.int64))
        model.compile(layers.Dense(1)(made))
        model.initialize(cluster)
        values.append(model.get_variable(model.variables()[0].name))
    assert values[0].shape == (30, 20)
    assert is_right(values[0])
    # The seed of the model decides where an initializer has none.
    np.testing.assert_array_equal(values[0], values[1])
    drawn = name in ("uniform", "normal", "truncated", "glorot", "he", "orthogonal")
    assert (values[0] != values[2]).any() == drawn


def test_a_seed_of_an_initializer_decides_alone(cluster: sr.LocalCluster) -> None:
    values = []
    for seed in (1, 2):
        model = sr.Model(seed=seed)
        start = initializers.RandomNormal(seed=0)
        model.compile(layers.Dense(1, kernel_initializer=start)(model.input("x", "float32", (9,))))
        model.initialize(cluster)
        values.append(model.get_variable("dense/kernel"))
    np.testing.assert_array_equal(values[0], values[1])


def test_the_penalty_is_that_of_keras(cluster: sr.LocalCluster) -> None:
    model = sr.Model(seed=1)
    x = model.input("x", sr.float32, (4,))
    dense = layers.Dense(2, kernel_regularizer=regularizers.L2(0.3), use_bias=False)
    out = dense(x)
    model.compile(out, sr.optimizers.SGD(0.1), loss=sr.reduce_mean(sr.square(out)))
    model.initialize(cluster)
    kernel = sr.Variable(model.get_variable("dense/kernel"))
    model.fit({"x": X}, batch_size=6, shuffle=False, verbose=False)
    with sr.GradientTape() as tape:
        loss = sr.reduce_mean(sr.square(X @ kernel)) + regularizers.L2(0.3)(kernel)
    kernel.assign_sub(0.1 * tape.gradient(loss, kernel))
    np.testing.assert_allclose(model.get_variable("dense/kernel"), kernel.numpy(), atol=1e-6)


@pytest.mark.parametrize("noise_shape", [None, (None, 1)])
def test_dropout_is_on_while_steps_train_alone(
    noise_shape: Any, cluster: sr.LocalCluster
) -> None:
    model = sr.Model(seed=1)
    x = model.input("x", sr.float32, (40,))
    dropped = layers.Dropout(0.5, noise_shape)(x)
    w = layers.Dense(1, kernel_initializer="zeros", use_bias=False)
    model.compile(w(dropped), sr.optimizers.SGD(1.0), loss=-sr.reduce_mean(w(dropped)))
    model.fit({"x": np.ones((1, 40), "f")}, cluster=cluster, batch_size=1, verbose=False)
    # The gradient is what came through: 0, or 1 / (1 - rate).
    kernel = model.get_variable("dense/kernel")
    seen = set(np.unique(kernel))
    assert seen <= {0.0, 2.0}
    assert len(seen) == (2 if noise_shape is None else 1)
    np.testing.assert_allclose(
        model.predict({"x": np.ones((3, 40), "f")}).ravel(), [kernel.sum()] * 3
    )


def test_a_model_may_begin_without_inputs() -> None:
    model = sr.Model()
    with model.as_default():
        made = layers.Dense(1, name="d")(sr.ones([2, 3]))
    model.compile(made)
    assert [each.name for each in model.variables()] == ["d/kernel", "d/bias"]


def test_a_layer_that_could_not_be_built_is_free() -> None:
    layer = layers.Dense(2, kernel_constraint="non_neg")
    with pytest.raises(errors.UnimplementedError, match="constraints"):
        layer(sr.Model().input("x", sr.float32, (4,)))
    assert layer(X).shape == (6, 2)
    assert isinstance(layer.kernel, sr.Variable)


def test_masks_go_from_layer_to_layer() -> None:
    model = sr.Model()
    ids = model.input("ids", sr.int64, (3,))
    rows = layers.Embedding(9, 4, mask_zero=True)(ids)
    told = []

    class Asking(layers.Layer):
        def call(self, inputs: Any, mask: Any = None) -> Any:
            told.append(mask)
            return inputs

    Asking()(layers.Dense(2)(rows))
    assert [each.shape for each in told] == [(-1, 3)]


def in_process() -> Any:
    """A layer with weights of this process."""
    layer = layers.Dense(2, name="d")
    layer(X)
    return layer


def part(name: str = "d") -> Any:
    """A layer of another model."""
    layer = layers.Dense(2, name=name)
    layer(sr.Model().input("x", sr.float32, (4,)))
    return layer


class Branching(layers.Layer):
    def call(self, inputs: Any, training: bool = False) -> Any:
        return inputs * 2.0 if training else inputs


class Losing(layers.Layer):
    def call(self, inputs: Any) -> Any:
        self.add_loss(sr.reduce_sum(inputs))
        return inputs


MISTAKES: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "two models": (
        lambda x: part()(x), errors.FailedPreconditionError, "'d' is part of .*of another model",
    ),
    "tensors afterwards": (
        lambda x: part()(X), errors.FailedPreconditionError, "'d' is part of .*called with tensors",
    ),
    "tensors before": (
        lambda x: in_process()(x), errors.FailedPreconditionError, "'d' has its weights in this pr",
    ),
    "moving averages": (
        lambda x: layers.BatchNormalization(name="b")(x), errors.UnimplementedError,
        "'b': BatchNormalization keeps moving averages.*training=False",
    ),
    "training as a condition": (
        lambda x: Branching()(x), errors.FailedPreconditionError, "pass `training` on to a layer",
    ),
    "losses": (lambda x: Losing(name="l")(x), errors.UnimplementedError, "'l': losses of layers"),
    "activity": (
        lambda x: layers.Dense(2, activity_regularizer="l2", name="d")(x),
        errors.UnimplementedError, "'d': losses of layers",
    ),
    "a penalty": (
        lambda x: layers.Dense(2, kernel_regularizer="l1", name="d")(x),
        errors.UnimplementedError, "'d/kernel': L1 is no penalty of a sidereal.Model",
    ),
    "a constraint": (
        lambda x: layers.Dense(2, kernel_constraint="non_neg", name="d")(x),
        errors.UnimplementedError, "'d/kernel': constraints are not kept",
    ),
    "a table as a whole": (
        lambda x: (e := layers.Embedding(9, 4, name="e"), e(sr.cast(x, "int64")),
                   sr.reduce_sum(e.embeddings)),
        errors.UnimplementedError, "table 'e/embeddings' .*is not read whole",
    ),
    "trainable later": (
        lambda x: (d := layers.Dense(2, name="d"), d(x), setattr(d, "trainable", False)),
        errors.FailedPreconditionError, "'d/kernel' is part of .* already",
    ),
    "dropping all": (
        lambda x: layers.Dropout(1.0)(x), errors.InvalidArgumentError, "rate is 1; it must be",
    ),
    "a model of symbolic tensors": (
        lambda x: keras.Model(i := keras.Input((4,)), layers.Dense(1, name="d")(i))(x),
        errors.FailedPreconditionError, "'d' has its weights in this process",
    ),
    "values of weights": (
        lambda x: (d := layers.Dense(2, name="d"), d(x), d.get_weights()),
        errors.FailedPreconditionError, r"get_variable\('d/kernel'\) of the model reads it",
    ),
    "an initializer's shape": (
        lambda x: layers.Dense(2, kernel_initializer=lambda *_: sr.zeros([3]), name="d")(x),
        errors.InvalidArgumentError, r"'d/kernel' is float32\[4,2\] and would start as .*\[3\]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_said(name: str) -> None:
    call, kind, message = MISTAKES[name]
    with pytest.raises(kind, match=message):
        call(sr.Model().input("x", sr.float32, (4,)))


def test_layers_that_are_not_trained_keep_their_weights(cluster: sr.LocalCluster) -> None:
    model = sr.Model(seed=2)
    x = model.input("x", sr.float32, (4,))
    first = layers.Dense(3, trainable=False)
    last = layers.Dense(1)
    model.compile(last(first(x)), sr.optimizers.SGD(1.0))
    assert first.trainable_variables == []
    assert [each.name for each in last.trainable_variables] == ["dense_1/kernel", "dense_1/bias"]
    model.initialize(cluster)
    before = [model.get_variable(each.name) for each in model.variables()]
    model.fit({"x": X, "label": np.ones(6, "f")}, batch_size=6, verbose=False)
    after = [model.get_variable(each.name) for each in model.variables()]
    changed = [bool((a != b).any()) for a, b in zip(before, after)]
    assert changed == [False, False, True, True]
