"""Click models, ready to be trained, and what is exported of models and checkpoints."""

from __future__ import annotations

import os
from collections.abc import Sequence

from . import _exporting, _native, onnx, optimizers, schedules
from ._data_spec import DataSpec, Schema
from ._description import ModelDescription
from .errors import InvalidArgumentError
from .model import Model


def names() -> list[str]:
    """What build() takes: "lr", "fm", "wdl", "deepfm", "dcn", "mmoe"."""
    return _native.model_names()


def build(
    kind: str,
    schema: DataSpec | Schema,
    *,
    optimizer: optimizers.Optimizer | str = "adam",
    embedding_dim: int = 16,
    embedding_stddev: float = 0.01,
    hidden: Sequence[int] = (400, 400, 400),
    dropout: float = 0.0,
    cross_layers: int = 3,
    seed: int = 0,
    l2_embedding: float = 0.0,
    l2_linear: float = 0.0,
    l2_dense: float = 0.0,
    loss: str = "binary_crossentropy",
    classes: int = 0,
    experts: int = 4,
) -> Model:
    """A compiled model for data of that schema, or for the data of that spec.

    lr: logistic regression. fm: lr and a factorization machine over embeddings (Rendle, 2010).
    wdl: lr and a tower (Cheng et al., 2016). deepfm: fm and wdl with shared embeddings (Guo et al.,
    2017). dcn: a cross network beside a tower (Wang et al., 2017). mmoe: several labels, "label"
    and the schema's `targets`, that share `experts` of hidden[0] units, with a tower of the other
    hidden layers each (Ma et al., 2018).

    loss: "binary_crossentropy", of labels 0 and 1; "mse", of numbers;
    "sparse_categorical_crossentropy", of labels below `classes`; "pairwise_logistic", of each two
    rows of a query (the input "group", if the schema has it) or of a batch, of which one has the
    higher label. Of several labels the sum.

    For arrays: build("deepfm", Schema(fields=8, rows=10_000)) has the inputs "ids" int64 [b, 8],
    with ids below `rows`, and "label"; with dense_width=n also "dense" float32 [b, n].
    """
    data = None
    if isinstance(schema, DataSpec):
        # The sizes of vocabularies are those of tables.
        data = schema.with_statistics() if schema.vocabularies else None
        schema = (data or schema).inspect()
    by = optimizers.get(optimizer)
    if isinstance(by.learning_rate, schedules.LearningRateSchedule):
        raise InvalidArgumentError(
            f"the learning rate is {by.learning_rate!r}; models.build() takes a number, and "
            "Model.compile() schedules"
        )
    compiled = _native.build_model(
        kind=kind,
        schema=schema,
        optimizer=by._of_model(),
        embedding_dim=embedding_dim,
        embedding_stddev=embedding_stddev,
        hidden=list(hidden),
        dropout=dropout,
        cross_layers=cross_layers,
        seed=seed,
        l2_embedding=l2_embedding,
        l2_linear=l2_linear,
        l2_dense=l2_dense,
        loss=loss,
        classes=classes,
        experts=experts,
    )
    model = Model._from_compiled(compiled, seed)
    model._known = data
    return model


def export(
    description: ModelDescription | str | os.PathLike[str],
    checkpoint: str | os.PathLike[str],
    path: str | os.PathLike[str],
    format: str = "saved_model",
    *,
    inputs: str = "ids",
    tables: Sequence[str] | None = None,
    external_data_bytes: int = onnx.EXTERNAL_DATA_BYTES,
) -> None:
    """What Model.export() does, of a checkpoint and without a cluster.

    description: what Model.describe() wrote: a file, or a folder with model.json.
    checkpoint: a prefix, or a folder, of which its newest is meant.
    """
    if not isinstance(description, ModelDescription):
        description = ModelDescription.load(description)
    _exporting.export(
        description, description.reader(checkpoint), path, format, inputs=inputs, tables=tables,
        external_data_bytes=external_data_bytes,
    )  # fmt: skip


__all__ = ["ModelDescription", "build", "export", "names"]
