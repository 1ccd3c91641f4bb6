"""What is made of features: numbers, categories and vectors for them (tf.feature_column).

    age = sr.feature_column.numeric_column("age")
    city = sr.feature_column.categorical_column_with_hash_bucket("city", 1000)
    columns = [age, sr.feature_column.embedding_column(city, 8)]

Layers of columns are `sidereal.keras.layers.DenseFeatures`, and in graphs of `sidereal.v1`
`feature_column.input_layer()` and `linear_model()`.
"""

from collections.abc import Iterable as _Iterable
from typing import Any as _Any

from ._base import CategoricalColumn, DenseColumn, FeatureColumn
from ._categorical import (
    categorical_column_with_hash_bucket,
    categorical_column_with_identity,
    categorical_column_with_vocabulary_file,
    categorical_column_with_vocabulary_list,
    crossed_column,
    weighted_categorical_column,
)
from ._embedding import embedding_column, indicator_column, shared_embeddings
from ._numeric import bucketized_column, numeric_column
from ._sequence import (
    sequence_categorical_column_with_hash_bucket,
    sequence_categorical_column_with_identity,
    sequence_categorical_column_with_vocabulary_file,
    sequence_categorical_column_with_vocabulary_list,
    sequence_numeric_column,
)


def make_parse_example_spec(feature_columns: _Iterable[FeatureColumn]) -> dict[str, _Any]:
    """What parse_example() has to read for columns (tf.feature_column.make_parse_example_spec):
    features by key. ValueError when two columns ask for one key in different ways."""
    found: dict[str, _Any] = {}
    for column in feature_columns:
        if not isinstance(column, FeatureColumn):
            raise ValueError(
                f"All feature_columns must be FeatureColumn instances. Given: {column}"
            )
        for key, value in column.parse_example_spec.items():
            if key in found and found[key] != value:
                raise ValueError(
                    f"feature_columns contain different parse_spec for key {key}. Given {value} "
                    f"and {found[key]}"
                )
            found[key] = value
    return found


__all__ = [
    "CategoricalColumn", "DenseColumn", "FeatureColumn", "bucketized_column",
    "categorical_column_with_hash_bucket", "categorical_column_with_identity",
    "categorical_column_with_vocabulary_file", "categorical_column_with_vocabulary_list",
    "crossed_column", "embedding_column", "indicator_column", "make_parse_example_spec",
    "numeric_column", "sequence_categorical_column_with_hash_bucket",
    "sequence_categorical_column_with_identity",
    "sequence_categorical_column_with_vocabulary_file",
    "sequence_categorical_column_with_vocabulary_list", "sequence_numeric_column",
    "shared_embeddings", "weighted_categorical_column",
]  # fmt: skip
