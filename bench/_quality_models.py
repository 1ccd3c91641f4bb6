"""Click models of keras.applications for bench/keras_quality.py: their ids are the columns of one
input [batch, width], which a Columns explains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sidereal as sr
from _quality_data import Columns, Data
from sidereal import keras

layers = keras.layers
applications = keras.applications

#: Models that read what came before, and those that know users and items alone.
OF_HISTORY, OF_PAIRS = ("pooling", "din", "dien"), ("ncf", "matrix_factorization")
#: Models of several tasks, of which they have one output each.
OF_TASKS = ("mmoe", "ple")


@dataclass(frozen=True)
class Shape:
    """How large a model is and what keeps it from learning by heart. l2: times the sum of squares
    of all embeddings; l2_linear: of the weights of the linear part. attention: layers, their width
    and heads; cin: feature maps of each layer."""

    dim: int = 10
    hidden: tuple[int, ...] = (400, 400, 400)
    dropout: float = 0.0
    l2: float = 0.0
    l2_linear: float = 0.0
    crosses: int = 3
    attention: tuple[int, int, int] = (3, 32, 2)
    cin: tuple[int, ...] = (64,)


def seen(data: Data, model: str) -> Data:
    """What a model reads of a set."""
    columns = data.columns
    if model in OF_HISTORY:
        return data
    if model in OF_PAIRS:
        return data.of((0, columns.candidate), Columns(columns.id_space, 2))
    without = Columns(columns.id_space, columns.single, columns.several, 0, columns.candidate)
    return data.of(range(columns.fields), without)


class Features(applications.Features):
    """Of several ids in a field the mean of theirs; the history and what its items are of lie in
    columns of the ids."""

    def __init__(self, columns: Columns, shape: Shape) -> None:
        super().__init__(
            columns.width, columns.id_space, embedding_dim=shape.dim, l2_embedding=shape.l2,
            l2_linear=shape.l2_linear,
        )  # fmt: skip
        self._columns = columns
        self.fields = columns.single + (1 if columns.several else 0)

    def looked_up(self, table: Any) -> Any:
        columns = self._columns
        rows = table(self.ids[:, : columns.single])
        if not columns.several:
            return rows
        ids = self.ids[:, columns.single : columns.fields]
        mean = _mean(table(ids), ids > 0)
        return layers.Concatenate(axis=1)([rows, sr.expand_dims(mean, 1)])

    def history(self, candidate: int) -> tuple[Any, Any, Any]:
        columns, table = self._columns, self.table()
        middle = columns.fields + columns.history
        before = self.ids[:, columns.fields : middle]
        keys = table(before) + table(self.ids[:, middle:])
        return table(self.ids[:, candidate]), keys, before > 0


def _mean(rows: Any, there: Any) -> Any:
    """Of rows [batch, n, d] those that are there."""
    is_one = sr.expand_dims(sr.cast(there, "float32"), -1)
    count = sr.maximum(sr.reduce_sum(is_one, axis=1), 1.0)
    return sr.reduce_sum(rows * is_one, axis=1) / count


def _normalization() -> Any:
    return layers.BatchNormalization(momentum=0.9, epsilon=1e-5)


def _pooling(features: Features, shape: Shape, candidate: int) -> Any:
    """DIN, but that all of the history matters as much."""
    _, before, there = features.history(candidate)
    x = layers.Concatenate()([features.flat(), _mean(before, there)])
    for units in shape.hidden:
        x = layers.ReLU()(_normalization()(layers.Dense(units)(x)))
        x = layers.Dropout(shape.dropout)(x) if shape.dropout else x
    return keras.Model(features.inputs, layers.Dense(1)(x), name="pooling")


def build(name: str, columns: Columns, shape: Shape) -> Any:
    """A keras.Model that gives logits [batch, 1], or a list of them, of the columns it has seen."""
    features, candidate = Features(columns, shape), columns.candidate
    plain: dict[str, Any] = {"classifier_activation": None}
    deep = {**plain, "dropout": shape.dropout, "batch_normalization": _normalization}
    layers_, size, heads = shape.attention
    attention = {"attention_layers": layers_, "att_embedding_size": size, "num_heads": heads}
    made: dict[str, Callable[[], Any]] = {
        "lr": lambda: applications.LR(features, **plain),
        "fm": lambda: applications.FM(features, **plain),
        "ffm": lambda: applications.FFM(features, **plain),
        "wide_deep": lambda: applications.WideDeep(features, shape.hidden, **deep),
        "deepfm": lambda: applications.DeepFM(features, shape.hidden, **deep),
        "dcn": lambda: applications.DCN(features, shape.hidden, cross_layers=shape.crosses, **deep),
        "dcn_v2": lambda: applications.DCNV2(
            features, shape.hidden, cross_layers=shape.crosses, **deep
        ),
        "xdeepfm": lambda: applications.XDeepFM(
            features, shape.hidden, cin_layer_size=shape.cin, **deep
        ),
        "autoint": lambda: applications.AutoInt(features, **attention, **plain),
        "autoint_plus": lambda: applications.AutoInt(features, shape.hidden, **attention, **deep),
        "pooling": lambda: _pooling(features, shape, candidate),
        "din": lambda: applications.DIN(
            features, shape.hidden, candidate=candidate, attention_softmax=True, **deep
        ),
        "dien": lambda: applications.DIEN(features, shape.hidden, candidate=candidate, **deep),
        "mmoe": lambda: applications.MMoE(features, shape.hidden, num_tasks=2, **deep),
        "ple": lambda: applications.PLE(features, shape.hidden, num_tasks=2, **deep),
        "two_tower": lambda: applications.TwoTower(
            features, shape.hidden, user_fields=candidate, **deep
        ),
        "ncf": lambda: applications.NCF(features, shape.hidden, **deep),
        "matrix_factorization": lambda: applications.MatrixFactorization(features, **plain),
    }
    return made[name]()
