"""What has to be read of examples that have labels and weights
(tf.estimator.classifier_parse_example_spec and the like)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..feature_column import make_parse_example_spec, numeric_column
from ..feature_column._numeric import NumericColumn
from ..ops.parsing import FixedLenFeature


def classifier_parse_example_spec(
    feature_columns: Iterable[Any], label_key: str, label_dtype: Any = "int64",
    label_default: Any = None, weight_column: Any = None,
) -> dict[str, Any]:  # fmt: skip
    """What parse_example() has to read for a classifier
    (tf.estimator.classifier_parse_example_spec): features of columns, one label for each example
    under `label_key`, and the weights of `weight_column`, a key or a numeric_column.

    label_dtype: "string" of labels that the classifier has a label_vocabulary for.
    label_default: the label of examples without one; they are an error if absent.
    """
    label = FixedLenFeature((1,), label_dtype, label_default)
    return _spec(feature_columns, label_key, label, weight_column)


def regressor_parse_example_spec(
    feature_columns: Iterable[Any], label_key: str, label_dtype: Any = "float32",
    label_default: Any = None, label_dimension: int = 1, weight_column: Any = None,
) -> dict[str, Any]:  # fmt: skip
    """As classifier_parse_example_spec(), for a regressor, with `label_dimension` labels for each
    example (tf.estimator.regressor_parse_example_spec)."""
    label = FixedLenFeature((label_dimension,), label_dtype, label_default)
    return _spec(feature_columns, label_key, label, weight_column)


def _spec(columns: Iterable[Any], label_key: str, label: Any, weight: Any) -> dict[str, Any]:
    spec = make_parse_example_spec(columns)
    if label_key is None:
        raise ValueError("label_key must be the name of the label in examples, not None")
    if label_key in spec:
        raise ValueError(
            f"label should not be used as feature. label_key: {label_key}, features: {[*spec]}"
        )
    spec[label_key] = label
    if weight is None:
        return spec
    column = numeric_column(weight) if isinstance(weight, str) else weight
    if not isinstance(column, NumericColumn):
        raise ValueError(f"weight_column must be a key or a numeric_column, given: {weight!r}")
    if column.key in spec:
        raise ValueError(
            "weight_column should not be used as feature. weight_column: "
            f"{column.key}, features: {[*spec]}"
        )
    return spec | column.parse_example_spec
