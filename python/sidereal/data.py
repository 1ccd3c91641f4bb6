"""Data to train on: pipelines of elements with TensorFlow's names (tf.data), and specs of files for
Model.fit() (table, csv, criteo, libsvm, synthetic)."""

from __future__ import annotations

import types

from ._data_spec import (
    SHUFFLE_ROWS,
    Bucketized,
    DataSpec,
    LabelRule,
    MultiHot,
    Negatives,
    NumericTransform,
    Schema,
    Sequence,
    SyntheticSpec,
    TableFormat,
    Vocabulary,
    criteo,
    csv,
    libsvm,
    synthetic,
    table_formats,
)
from ._dataset_arguments import AutoShardPolicy, Options
from ._datasets import (
    AUTOTUNE,
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    Dataset,
    make_one_shot_iterator,
)
from ._elements import DatasetSpec
from ._file_datasets import CsvDataset, TextLineDataset, TFRecordDataset
from ._iterators import DatasetIterator, GraphIterator
from ._negatives import sample_negatives
from ._tables import TableDataset, table

#: Under these names too, as in TensorFlow.
experimental = types.SimpleNamespace(
    AUTOTUNE=AUTOTUNE,
    INFINITE_CARDINALITY=INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY=UNKNOWN_CARDINALITY,
    AutoShardPolicy=AutoShardPolicy,
    CsvDataset=CsvDataset,
    cardinality=Dataset.cardinality,
    sample_negatives=sample_negatives,
)

#: As tf.data.Iterator, for annotations and isinstance().
Iterator = DatasetIterator

__all__ = [
    "AUTOTUNE",
    "INFINITE_CARDINALITY",
    "SHUFFLE_ROWS",
    "UNKNOWN_CARDINALITY",
    "AutoShardPolicy",
    "Bucketized",
    "CsvDataset",
    "DataSpec",
    "Dataset",
    "DatasetIterator",
    "DatasetSpec",
    "GraphIterator",
    "Iterator",
    "LabelRule",
    "MultiHot",
    "Negatives",
    "NumericTransform",
    "Options",
    "Schema",
    "Sequence",
    "SyntheticSpec",
    "TFRecordDataset",
    "TableDataset",
    "TableFormat",
    "TextLineDataset",
    "Vocabulary",
    "criteo",
    "csv",
    "experimental",
    "libsvm",
    "make_one_shot_iterator",
    "synthetic",
    "table",
    "table_formats",
]  # fmt: skip
