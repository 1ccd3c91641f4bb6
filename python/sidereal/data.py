"""Data to train on: pipelines of elements with TensorFlow's names (tf.data), and specs of files for
Model.fit() (csv, criteo, libsvm, synthetic)."""

from __future__ import annotations

from ._data_spec import (
    SHUFFLE_ROWS,
    DataSpec,
    Schema,
    SyntheticSpec,
    criteo,
    csv,
    libsvm,
    synthetic,
)
from ._datasets import (
    AUTOTUNE,
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    Dataset,
    DatasetIterator,
    Options,
    TextLineDataset,
    TFRecordDataset,
)
from ._elements import DatasetSpec

#: As tf.data.Iterator, for annotations and isinstance().
Iterator = DatasetIterator

__all__ = [
    "AUTOTUNE", "INFINITE_CARDINALITY", "SHUFFLE_ROWS", "UNKNOWN_CARDINALITY", "DataSpec",
    "Dataset", "DatasetIterator", "DatasetSpec", "Iterator", "Options", "Schema", "SyntheticSpec",
    "TFRecordDataset", "TextLineDataset", "criteo", "csv", "libsvm", "synthetic",
]  # fmt: skip
