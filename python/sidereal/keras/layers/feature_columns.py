"""Layers of feature columns: DenseFeatures and SequenceFeatures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..._dispatch import convert
from ...feature_column._base import Features, checked_columns, checked_dense, flat_rows
from ...feature_column._configs import read, written
from ...feature_column._embedding import SharedEmbeddingColumn
from ...ops import array
from .. import initializers
from .._layer import Layer


def _columns_of(given: Any) -> Any:
    """Columns, also as a layer has written them."""
    return read(given) if isinstance(given, (list, tuple)) else given


class _Columns(Layer):
    """What both have: the tables of columns."""

    _has_table = True
    _feature_columns: list[Any]

    def __init__(self, trainable: bool = True, name: str | None = None, **kwargs: Any) -> None:
        super().__init__(trainable=trainable, name=name, **kwargs)
        self._made: dict[Any, Any] = {}

    def get_config(self) -> dict[str, Any]:
        columns = [written(column) for column in self._feature_columns]
        return {**super().get_config(), "feature_columns": columns}

    def table(
        self, column: Any, name: str, shape: Sequence[int], initializer: Any, stddev: float,
        trainable: bool,
    ) -> Any:  # fmt: skip
        """See feature_column's Variables."""

        def make() -> Any:
            start = initializer or initializers.TruncatedNormal(0.0, stddev)
            return self.add_weight(
                tuple(shape), start, trainable=trainable, name=f"{column.scope_name}/{name}"
            )

        if column not in self._made:
            if isinstance(column, SharedEmbeddingColumn):
                owner = column.shared if self._home is None else self._home
                self._made[column] = column.shared.get(owner, make)
            else:
                self._made[column] = make()
        return self._made[column]


class DenseFeatures(_Columns):
    """The dense columns of features, joined (tf.keras.layers.DenseFeatures): called with a dict of
    tensors by key it gives [batch, n], columns in the order of their names.

    feature_columns: of sidereal.feature_column; categorical ones in an embedding_column or
        indicator_column. Called with a dict `cols_to_output_tensors` it puts there what each column
        gave.
    """

    def __init__(
        self, feature_columns: Any, trainable: bool = True, name: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(trainable, name, **kwargs)
        self._feature_columns = checked_dense(_columns_of(feature_columns))

    def build(self, input_shape: Any) -> None:
        for column in self._feature_columns:
            column.make_variables(self)

    def __call__(
        self, features: Any, cols_to_output_tensors: dict[Any, Any] | None = None, **kwargs: Any
    ) -> Any:
        made = super().__call__(features, **kwargs)
        if cols_to_output_tensors is not None:
            begin = 0
            for column in self._feature_columns:
                end = begin + column.num_elements
                cols_to_output_tensors[column] = made[:, begin:end]
                begin = end
        return made

    def call(self, features: Mapping[str, Any]) -> Any:
        given = Features(features)
        return array.concat(
            [
                flat_rows(column, column.dense_tensor(given, self))
                for column in self._feature_columns
            ],
            -1,
        )


class SequenceFeatures(_Columns):
    """The columns of sequences of features, joined (tf.keras.experimental.SequenceFeatures): called
    with a dict of SparseTensors by key it gives ([batch, steps, n], lengths [batch]), columns in
    the order of their names."""

    def __init__(
        self, feature_columns: Any, trainable: bool = True, name: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(trainable, name, **kwargs)
        columns = checked_columns(_columns_of(feature_columns))
        for column in columns:
            if not hasattr(column, "sequence_tensor"):
                raise ValueError(
                    "Items of feature_columns must be of sequences: sequence_numeric_column, or an "
                    "embedding_column or indicator_column of a sequence_categorical_column_with_*. "
                    f"Given: {column}"
                )
        self._feature_columns = sorted(columns, key=lambda column: column.name)

    def build(self, input_shape: Any) -> None:
        for column in self._feature_columns:
            column.make_variables(self)

    def call(self, features: Mapping[str, Any]) -> Any:
        given = Features(features)
        outputs, lengths = [], None
        for column in self._feature_columns:
            made, lengths = column.sequence_tensor(given, self)
            rows = array.shape(made, "int64")[:2]
            width = convert([column.num_elements], "int64")
            outputs.append(array.reshape(made, array.concat([rows, width], 0)))
        return array.concat(outputs, -1), lengths
