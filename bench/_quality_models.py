"""Click models of keras.applications for bench/keras_quality.py: their ids are the columns of one
input [batch, width], which a Columns explains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sidereal as sr
from _quality_data import Columns
from sidereal import keras

layers = keras.layers
applications = keras.applications


MODELS: dict[str, Callable[..., Any]] = {
    "lr": applications.LR, "fm": applications.FM, "deepfm": applications.DeepFM,
    "dcn": applications.DCN, "din": applications.DIN,
}  # fmt: skip


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


class Features(applications.Features):
    """Of several ids in a field the mean of theirs; the history and what its items are of lie in
    columns of the ids."""

    def __init__(self, columns: Columns, shape: Shape) -> None:
        super().__init__(
            columns.width, columns.id_space, embedding_dim=shape.dim, l2_embedding=shape.l2,
            l2_linear=shape.l2_linear,
        )  # fmt: skip
        self._columns = columns

    def looked_up(self, table: Any) -> Any:
        columns = self._columns
        rows = table(self.ids[:, : columns.single])
        if not columns.several:
            return rows
        ids = self.ids[:, columns.single : columns.fields]
        is_one = sr.expand_dims(sr.cast(ids > 0, "float32"), -1)
        total = sr.reduce_sum(table(ids) * is_one, axis=1, keepdims=True)
        count = sr.maximum(sr.reduce_sum(is_one, axis=1, keepdims=True), 1.0)
        return layers.Concatenate(axis=1)([rows, total / count])

    def history(self, candidate: int) -> tuple[Any, Any, Any]:
        columns, table = self._columns, self.table()
        middle = columns.fields + columns.history
        before = self.ids[:, columns.fields : middle]
        keys = table(before) + table(self.ids[:, middle:])
        return table(self.ids[:, candidate]), keys, before > 0


def _normalization() -> Any:
    return layers.BatchNormalization(momentum=0.9, epsilon=1e-5)


def build(name: str, columns: Columns, shape: Shape) -> Any:
    """A keras.Model that gives logits [batch, 1]. One without a history takes ids without these
    columns too."""
    features = Features(columns, shape)
    options: dict[str, Any] = {"classifier_activation": None}
    if name in ("lr", "fm"):
        return MODELS[name](features, **options)
    options.update(dropout=shape.dropout, batch_normalization=_normalization)
    if name == "dcn":
        options["cross_layers"] = shape.crosses
    if name == "din":
        options["candidate"] = columns.candidate
    return MODELS[name](features, shape.hidden, **options)
