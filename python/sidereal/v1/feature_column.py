"""Feature columns in graphs (tf.compat.v1.feature_column): input_layer and linear_model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sidereal as _sr

from .._dispatch import apply, convert
from ..feature_column._base import (
    CategoricalColumn,
    DenseColumn,
    FeatureColumn,
    Features,
    checked_columns,
    checked_dense,
    flat_rows,
)
from ..feature_column._embedding import SharedEmbeddingColumn
from ..ops import array, embedding, math
from ..ops.embedding import SparseTensor
from .graph import GraphKeys, get_default_graph, in_default_graph
from .initializers import truncated_normal_initializer, zeros_initializer
from .partitioned import PartitionedVariable
from .scopes import get_variable, variable_scope


class _Scopes:
    """Makes variables of columns by get_variable(), in the scope that lasts."""

    def __init__(self, collections: Sequence[str] | None, trainable: bool) -> None:
        self._collections = list(
            dict.fromkeys(
                [*(collections or ()), GraphKeys.GLOBAL_VARIABLES, GraphKeys.MODEL_VARIABLES]
            )
        )
        self._trainable = trainable
        #: What the last column has made.
        self.made: list[Any] = []

    def table(
        self, column: Any, name: str, shape: Sequence[int], initializer: Any, stddev: float,
        trainable: bool,
    ) -> Any:  # fmt: skip
        """See feature_column's Variables."""

        def make() -> Any:
            start = initializer or truncated_normal_initializer(mean=0.0, stddev=stddev)
            self.made.append(self.variable(name, shape, start, trainable))
            return self.made[-1]

        if isinstance(column, SharedEmbeddingColumn):
            return column.shared.get(get_default_graph(), make)
        return make()

    def variable(
        self, name: str, shape: Sequence[int], initializer: Any, trainable: bool = True
    ) -> Any:
        """A variable of the scope."""
        return get_variable(
            name, tuple(shape), "float32", initializer, trainable=trainable and self._trainable,
            collections=self._collections,
        )  # fmt: skip

    def take(self) -> list[Any]:
        """What has been made since it was asked last; of variables that are cut the parts."""
        made, self.made = self.made, []
        return [
            each
            for variable in made
            for each in (variable if isinstance(variable, PartitionedVariable) else [variable])
        ]


@in_default_graph
def input_layer(
    features: Mapping[str, Any], feature_columns: Any,
    weight_collections: Sequence[str] | None = None, trainable: bool = True,
    cols_to_vars: dict[Any, Any] | None = None,
    cols_to_output_tensors: dict[Any, Any] | None = None,
) -> Any:  # fmt: skip
    """The dense columns of features, joined (tf.compat.v1.feature_column.input_layer): [batch, n],
    columns in the order of their names. Variables are called
    input_layer/COLUMN/embedding_weights, in the scope that lasts; its partitioner cuts them."""
    columns = checked_dense(feature_columns)
    scopes, given = _Scopes(weight_collections, trainable), Features(features)
    outputs = []
    with variable_scope(None, default_name="input_layer"):
        for column in columns:
            with variable_scope(None, default_name=column.scope_name):
                made = flat_rows(column, column.dense_tensor(given, scopes))
            if cols_to_vars is not None:
                cols_to_vars[column] = scopes.take()
            if cols_to_output_tensors is not None:
                cols_to_output_tensors[column] = made
            outputs.append(made)
        return array.concat(outputs, 1)


@in_default_graph
def linear_model(
    features: Mapping[str, Any], feature_columns: Any, units: int = 1, sparse_combiner: str = "sum",
    weight_collections: Sequence[str] | None = None, trainable: bool = True,
    cols_to_vars: dict[Any, Any] | None = None,
) -> Any:  # fmt: skip
    """A linear prediction of features (tf.compat.v1.feature_column.linear_model), [batch, units]:
    dense columns times their weights, the weights of categories combined, and a bias. Variables
    start as zeros and are called linear_model/COLUMN/weights and linear_model/bias_weights.

    sparse_combiner: "sum", "mean" or "sqrtn" of the weights of an example's categories.
    cols_to_vars: gets lists of variables by column, and by "bias".
    """
    columns = checked_columns(feature_columns)
    for column in columns:
        if not isinstance(column, (DenseColumn, CategoricalColumn)):
            raise ValueError(
                "Items of feature_columns must be either a DenseColumn or CategoricalColumn. "
                f"Given: {column}"
            )
    scopes, given = _Scopes(weight_collections, trainable), Features(features)
    sums = []
    with variable_scope(None, default_name="linear_model"):
        for column in sorted(columns, key=lambda each: each.name):
            with variable_scope(None, default_name=column.scope_name):
                sums.append(_weighted_sum(column, given, scopes, units, sparse_combiner))
            if cols_to_vars is not None:
                cols_to_vars[column] = scopes.take()
        without_bias = _sr.add_n(sums, name="weighted_sum_no_bias")
        bias = scopes.variable("bias_weights", [units], zeros_initializer())
        scopes.made = [bias]
        if cols_to_vars is not None:
            cols_to_vars["bias"] = scopes.take()
        return apply("BiasAdd", (without_bias, convert(bias)), None, name="weighted_sum")


def _weighted_sum(
    column: FeatureColumn, features: Features, scopes: _Scopes, units: int, combiner: str
) -> Any:
    if isinstance(column, CategoricalColumn):
        shape = (column.num_buckets, units)
        weights = scopes.variable("weights", shape, zeros_initializer())
        scopes.made.append(weights)
        ids, of_ids = column.ids_and_weights(features)
        return embedding.safe_embedding_lookup_sparse(
            weights, _in_rows(ids), None if of_ids is None else _in_rows(of_ids), combiner,
            name="weighted_sum",
        )  # fmt: skip
    assert isinstance(column, DenseColumn)
    dense = flat_rows(column, column.dense_tensor(features, scopes))
    weights = scopes.variable("weights", (column.num_elements, units), zeros_initializer())
    scopes.made.append(weights)
    return _sr.matmul(dense, weights, name="weighted_sum")


def _in_rows(sparse: SparseTensor) -> SparseTensor:
    """[batch, ...] as [batch, n]: a row has all that an example has."""
    extents = convert(sparse.dense_shape)
    rank = None if extents.shape is None else extents.shape[0]
    if rank is None or rank <= 2:
        return sparse
    indices = convert(sparse.indices)
    column = indices[:, 1]
    width = extents[1]
    for axis in range(2, rank):
        column = math.add(math.multiply(column, extents[axis]), indices[:, axis])
        width = math.multiply(width, extents[axis])
    places = array.stack([indices[:, 0], column], 1)
    return SparseTensor(places, sparse.values, array.stack([extents[0], width], 0))
