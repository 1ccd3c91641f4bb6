"""Click models of layers of Keras for bench/keras_quality.py. Each takes ids [batch, width], whose
columns a Columns explains, and gives logits [batch, 1]."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sidereal as sr
from _quality_data import Columns
from sidereal import keras

layers = keras.layers


@dataclass(frozen=True)
class Shape:
    """How large a model is and what keeps it from learning by heart. l2: times the sum of squares
    of all embeddings; l2_linear: of the weights of the linear part."""

    dim: int = 10
    hidden: tuple[int, ...] = (400, 400, 400)
    dropout: float = 0.0
    l2: float = 0.0
    l2_linear: float = 0.0
    crosses: int = 3


class Bias(layers.Layer):
    """A number that is added."""

    def build(self, input_shape: Any) -> None:
        self.bias = self.add_weight((1,), "zeros", name="bias")

    def call(self, inputs: Any) -> Any:
        return inputs + self.bias


class CrossOfVectors(layers.Layer):
    """x0 * (x @ vector) + bias + x: the cross of the first DCN (Wang et al., 2017)."""

    def build(self, input_shape: Any) -> None:
        width = input_shape[0][-1]
        self.vector = self.add_weight((width, 1), "glorot_uniform", name="vector")
        self.bias = self.add_weight((width,), "zeros", name="bias")

    def call(self, inputs: Any) -> Any:
        x0, x = inputs
        return x0 * sr.matmul(x, self.vector) + self.bias + x


class Parts:
    """What models are made of, for one input."""

    def __init__(self, columns: Columns, shape: Shape) -> None:
        self._columns, self._shape = columns, shape
        self.ids = keras.Input((columns.width,), dtype="int64", name="ids")
        self._tables: dict[int, Any] = {}

    def table(self, dim: int) -> Any:
        """The embeddings of all ids."""
        if dim not in self._tables:
            l2 = self._shape.l2_linear if dim == 1 else self._shape.l2
            self._tables[dim] = layers.Embedding(
                self._columns.id_space, dim, keras.initializers.RandomNormal(stddev=0.01),
                embeddings_regularizer=keras.regularizers.L2(l2) if l2 else None,
            )  # fmt: skip
        return self._tables[dim]

    def rows(self, dim: int) -> Any:
        """[batch, fields, dim]: of several ids in a field, the mean of theirs."""
        columns, table = self._columns, self.table(dim)
        rows = table(self.ids[:, : columns.single])
        if not columns.several:
            return rows
        ids = self.ids[:, columns.single : columns.fields]
        is_one = sr.expand_dims(sr.cast(ids > 0, "float32"), -1)
        total = sr.reduce_sum(table(ids) * is_one, axis=1, keepdims=True)
        count = sr.maximum(sr.reduce_sum(is_one, axis=1, keepdims=True), 1.0)
        return layers.Concatenate(axis=1)([rows, total / count])

    def linear(self) -> Any:
        return Bias()(sr.reduce_sum(self.rows(1), axis=1))

    def tower(self, x: Any) -> Any:
        for units in self._shape.hidden:
            x = layers.Dense(units)(x)
            x = layers.ReLU()(layers.BatchNormalization(momentum=0.9, epsilon=1e-5)(x))
            x = layers.Dropout(self._shape.dropout)(x)
        return x

    def flat(self) -> Any:
        return layers.Flatten()(self.rows(self._shape.dim))

    def crossed(self, x0: Any) -> Any:
        x = x0
        for _ in range(self._shape.crosses):
            x = CrossOfVectors()([x0, x])
        return x

    def interest(self) -> Any:
        """The history as the candidate has it matter: [batch, dim]."""
        columns, table = self._columns, self.table(self._shape.dim)
        middle = columns.fields + columns.history
        before = self.ids[:, columns.fields : middle]
        candidate = table(self.ids[:, columns.candidate])
        keys = table(before) + table(self.ids[:, middle:])
        return layers.AttentionPooling()([candidate, keys], mask=before > 0)


def _lr(parts: Parts, shape: Shape) -> Any:
    return parts.linear()


def _fm(parts: Parts, shape: Shape) -> Any:
    return parts.linear() + layers.FM()(parts.rows(shape.dim))


def _deepfm(parts: Parts, shape: Shape) -> Any:
    return _fm(parts, shape) + layers.Dense(1)(parts.tower(parts.flat()))


def _dcn(parts: Parts, shape: Shape) -> Any:
    flat = parts.flat()
    return layers.Dense(1)(layers.Concatenate()([parts.crossed(flat), parts.tower(flat)]))


def _din(parts: Parts, shape: Shape) -> Any:
    x = layers.Concatenate()([parts.flat(), parts.interest()])
    return layers.Dense(1)(parts.tower(x))


MODELS: dict[str, Callable[[Parts, Shape], Any]] = {
    "lr": _lr, "fm": _fm, "deepfm": _deepfm, "dcn": _dcn, "din": _din
}  # fmt: skip


def build(name: str, columns: Columns, shape: Shape) -> Any:
    """A keras.Model. A model without a history takes ids without these columns too."""
    parts = Parts(columns, shape)
    return keras.Model(parts.ids, MODELS[name](parts, shape))
