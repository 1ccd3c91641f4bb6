"""Models that are written once and made of sidereal.keras and of Keras alike: each is a function of
the package that gives a model, and what it is trained on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

ROWS = 50
Data = tuple[Any, Any]


def _vectors(outputs: int = 1, width: int = 6) -> Data:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, width)).astype("f")
    return x, (x[:, :outputs] + 0.3 * rng.normal(size=(ROWS, outputs)) > 0).astype("f")


def mlp(k: Any) -> Any:
    return k.Sequential([k.Input((6,)), k.layers.Dense(8, "relu"), k.layers.Dense(1, "sigmoid")])


def deferred(k: Any) -> Any:
    return k.Sequential([k.layers.Dense(8, "tanh"), k.layers.Dense(1, "sigmoid")])


def normalized(k: Any) -> Any:
    inputs = k.Input((6,))
    x = k.layers.BatchNormalization()(k.layers.Dense(8, use_bias=False)(inputs))
    x = k.layers.LayerNormalization()(k.layers.Activation("relu")(x))
    return k.Model(inputs, k.layers.Dense(1, "sigmoid")(x))


def residual(k: Any) -> Any:
    """Ops on symbolic tensors beside layers, and a layer that is called twice."""
    inputs = k.Input((6,))
    shared = k.layers.Dense(6, "tanh", name="shared")
    x = shared(inputs)
    x = shared(x * 0.5 + inputs) - inputs / 3.0
    x = k.layers.Concatenate()([x, inputs, -x])
    return k.Model(inputs, k.layers.Dense(1, "sigmoid")(x))


def subclassed(k: Any) -> Any:
    class Tower(k.Model):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = [k.layers.Dense(8, "relu"), k.layers.Dense(4, "relu")]
            self.head = k.layers.Dense(1, "sigmoid")

        def call(self, inputs: Any, training: Any = None) -> Any:
            for layer in self.hidden:
                inputs = layer(inputs)
            return self.head(inputs)

    return Tower()


def regularized(k: Any) -> Any:
    class Penalty(k.layers.Layer):
        def call(self, inputs: Any) -> Any:
            self.add_loss((inputs[:, 0] * inputs[:, 0])[0] * 0.01)
            return inputs

    inputs = k.Input((6,))
    x = k.layers.Dense(
        8, "tanh", kernel_regularizer="l2", bias_regularizer="l1",
        activity_regularizer=k.regularizers.L2(0.02), kernel_constraint=k.constraints.MaxNorm(0.8),
    )(inputs)  # fmt: skip
    return k.Model(inputs, k.layers.Dense(1, "sigmoid")(Penalty()(x)))


def scale_layer(k: Any) -> Any:
    """A layer of one's own whose config is that of its arguments."""

    class Scale(k.layers.Layer):
        def __init__(self, factor: float = 1.0, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.factor = factor

        def build(self, input_shape: Any) -> None:
            self.w = self.add_weight(shape=(input_shape[-1],), initializer="ones", name="w")

        def call(self, inputs: Any) -> Any:
            return inputs * self.w * self.factor

    return Scale


def own_layer(k: Any) -> Any:
    Scale = scale_layer(k)  # noqa: N806 - a class.
    inner = k.Sequential([k.layers.Dense(5, "relu"), Scale(2.0)])
    inputs = k.Input((6,))
    return k.Model(inputs, k.layers.Dense(1, "sigmoid")(inner(Scale(0.5)(inputs))))


def frozen(k: Any) -> Any:
    model = mlp(k)
    model.layers[0].trainable = False
    return model


def nested(k: Any) -> Any:
    """A model that is a layer of another one, twice."""
    a = k.Input((3,))
    tower = k.Model(a, k.layers.Dense(4, "relu")(a))
    inputs = k.Input((6,))
    halves = [tower(inputs[:, :3]), tower(inputs[:, 3:])]
    return k.Model(inputs, k.layers.Dense(1, "sigmoid")(k.layers.Multiply()(halves)))


def classifier(k: Any) -> Any:
    return k.Sequential([k.Input((6,)), k.layers.Dense(8, "relu"), k.layers.Dense(3, "softmax")])


def classes() -> Data:
    x, _ = _vectors()
    return x, np.abs(x[:, :3]).argmax(1)


def recommender(k: Any) -> Any:
    """Ids and numbers, by name."""
    ids = k.Input((3,), dtype="int32", name="ids")
    numbers = k.Input((4,), name="numbers")
    rows = k.layers.Flatten()(k.layers.Embedding(20, 4)(ids))
    x = k.layers.Dense(8, "relu")(k.layers.Concatenate()([rows, numbers]))
    return k.Model({"ids": ids, "numbers": numbers}, k.layers.Dense(1, "sigmoid")(x))


def columns() -> Data:
    rng = np.random.default_rng(1)
    ids = rng.integers(0, 20, size=(ROWS, 3)).astype("i")
    numbers = rng.normal(size=(ROWS, 4)).astype("f")
    return {"ids": ids, "numbers": numbers}, (ids[:, :1] > 9).astype("f")


def masked(k: Any) -> Any:
    """Padding that an embedding tells a recurrent layer of."""
    ids = k.Input((5,), dtype="int32")
    x = k.layers.Embedding(12, 4, mask_zero=True)(ids)
    x = k.layers.GRU(6, return_sequences=True)(x)
    return k.Model(ids, k.layers.Dense(1, "sigmoid")(k.layers.LSTM(4)(x)))


def translator(k: Any) -> Any:
    """States of one recurrent layer that another one begins with, and attention."""
    first, second = k.Input((5, 3), name="first"), k.Input((4, 3), name="second")
    seen, h, c = k.layers.LSTM(6, return_sequences=True, return_state=True)(first)
    said = k.layers.LSTM(6, return_sequences=True)(second, initial_state=[h, c])
    met = k.layers.Attention()([said, seen])
    x = k.layers.Concatenate()([said, met])
    return k.Model([first, second], k.layers.Dense(2)(k.layers.Flatten()(x)))


def sentences() -> Data:
    rng = np.random.default_rng(4)
    x = [rng.normal(size=(ROWS, n, 3)).astype("f") for n in (5, 4)]
    return x, x[0][:, 0, :2] - x[1][:, 0, :2]


def interests(k: Any) -> Any:
    """A class with inputs by name, sublayers that build() makes, and a metric of its own."""

    class Interest(k.Model):
        def __init__(self) -> None:
            super().__init__()
            self.table = k.layers.Embedding(12, 4)
            self.size = k.metrics.Mean(name="size")

        def build(self, input_shape: Any) -> None:
            self.tower = [k.layers.Dense(6, "relu"), k.layers.Dropout(0.0)]
            self.head = k.layers.Dense(1, "sigmoid")

        def call(self, inputs: Any, training: Any = None) -> Any:
            rows = self.table(inputs["history"])
            x = k.layers.Flatten()(rows)
            for layer in self.tower:
                x = layer(x, training=training)
            return self.head(x)

    return Interest()


def histories() -> Data:
    ids, y = padded()
    return {"history": ids}, y


def labelled(k: Any) -> Any:
    """An output for each step, of which padding does not count."""
    ids = k.Input((5,), dtype="int32")
    table = k.layers.Embedding(12, 4, mask_zero=True)
    x = k.layers.Add()([table(ids), k.layers.Dense(4)(table(ids))])
    x = k.layers.Concatenate()([x, k.layers.LayerNormalization()(x)])
    x = k.layers.MultiHeadAttention(2, 3)(x, x)
    return k.Model(ids, k.layers.Dense(1, "sigmoid")(k.layers.GRU(3, return_sequences=True)(x)))


def steps() -> Data:
    ids, _ = padded()
    return ids, (ids[..., None] > 5).astype("f")


def padded() -> Data:
    rng = np.random.default_rng(2)
    ids = rng.integers(1, 12, size=(ROWS, 5))
    ids[np.arange(5) >= rng.integers(1, 6, size=(ROWS, 1))] = 0
    return ids.astype("i"), (ids[:, :1] > 5).astype("f")


def two_outputs(k: Any) -> Any:
    a, b = k.Input((6,), name="a"), k.Input((2,), name="b")
    x = k.layers.Concatenate()([k.layers.Dense(8, "relu")(a), b])
    click = k.layers.Dense(1, "sigmoid", name="click")(x)
    price = k.layers.Dense(1, name="price")(x)
    return k.Model([a, b], [click, price])


def two_targets() -> Data:
    x, y = _vectors()
    rng = np.random.default_rng(3)
    b = rng.normal(size=(ROWS, 2)).astype("f")
    return [x, b], [y, b[:, :1] * 2 + 1]


def two_outputs_by_name(k: Any) -> Any:
    model = two_outputs(k)
    click, price = model.outputs
    return k.Model(model.inputs, {"click": click, "price": price})


def two_targets_by_name() -> Data:
    x, (click, price) = two_targets()
    return x, {"click": click, "price": price}


BINARY: dict[str, Any] = {"loss": "binary_crossentropy", "metrics": ["accuracy", "AUC", "mse"]}
#: Adam would change all rows of tables in Keras, here those of the batch.
OF_ROWS = {**BINARY, "optimizer": "sgd"}
OF_CLASSES = {"loss": "sparse_categorical_crossentropy", "metrics": ["accuracy"]}
OF_TWO = {
    "loss": ["binary_crossentropy", "mse"], "loss_weights": [1.0, 0.3],
    "metrics": [["accuracy", "AUC"], ["mae"]],
}  # fmt: skip
BY_NAME = {
    "loss": {"click": "binary_crossentropy", "price": "mse"},
    "metrics": {"click": ["accuracy"], "price": "mae"}, "weighted_metrics": {"price": ["mae"]},
}  # fmt: skip

#: By name: the model, its data, and what compile() is told.
MODELS: dict[str, tuple[Callable[[Any], Any], Callable[[], Data], dict[str, Any]]] = {
    "mlp": (mlp, _vectors, BINARY),
    "deferred": (deferred, _vectors, BINARY),
    "normalized": (normalized, _vectors, BINARY),
    "residual": (residual, _vectors, BINARY),
    "subclassed": (subclassed, _vectors, BINARY),
    "regularized": (regularized, _vectors, BINARY),
    "own_layer": (own_layer, _vectors, BINARY),
    "frozen": (frozen, _vectors, BINARY),
    "nested": (nested, _vectors, BINARY),
    "classifier": (classifier, classes, OF_CLASSES),
    "recommender": (recommender, columns, OF_ROWS),
    "masked": (masked, padded, OF_ROWS),
    "translator": (translator, sentences, {"loss": "mse", "metrics": ["mae"]}),
    "interests": (interests, histories, OF_ROWS),
    "labelled": (labelled, steps, {"optimizer": "sgd", "loss": "binary_crossentropy"}),
    "two_outputs": (two_outputs, two_targets, OF_TWO),
    "one_loss_for_two": (two_outputs, two_targets, {"loss": "mse"}),
    "two_outputs_by_name": (two_outputs_by_name, two_targets_by_name, BY_NAME),
}


def pair(name: str, ours: Any, theirs: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
    """The model of both packages with equal weights, x, y, and what compile() is told."""
    build, data, told = MODELS[name]
    x, y = data()
    # Both begin with weights of Keras, which are the same in every run.
    theirs.utils.set_random_seed(7)
    made = [build(k) for k in (ours, theirs)]
    for model in made:
        if not model.built:
            if name == "deferred":
                model.build((None, 6))
            else:
                model({key: x[key][:2] for key in x} if isinstance(x, dict) else x[:2])
    made[0].set_weights([np.asarray(each) for each in made[1].get_weights()])
    return made[0], made[1], x, y, told
