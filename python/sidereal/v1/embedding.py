"""Lookups of rows with the arguments of TensorFlow 1 (tf.compat.v1.nn): a table of several parts is
laid out as `partition_strategy` says."""

from __future__ import annotations

from typing import Any

from ..ops import embedding
from ..ops.embedding import SparseTensor
from .graph import in_default_graph


@in_default_graph
def embedding_lookup(
    params: Any, ids: Any, partition_strategy: str = "mod", name: str | None = None,
    validate_indices: bool = True, max_norm: float | None = None,
) -> Any:  # fmt: skip
    """The rows of a table at `ids`; see sidereal.nn.embedding_lookup(). Of n parts, 'mod': row i is
    row i // n of part i % n; 'div': the parts lie one behind the other, as as_tensor() of a
    PartitionedVariable joins them."""
    return embedding.lookup(params, ids, partition_strategy, max_norm, name)


@in_default_graph
def embedding_lookup_sparse(
    params: Any, sp_ids: SparseTensor, sp_weights: SparseTensor | None,
    partition_strategy: str = "mod", name: str | None = None, combiner: str | None = None,
    max_norm: float | None = None,
) -> Any:  # fmt: skip
    """Rows of a table, combined; see sidereal.nn.embedding_lookup_sparse()."""
    return embedding.lookup_sparse(
        params, sp_ids, sp_weights, partition_strategy, combiner, max_norm, name
    )


@in_default_graph
def safe_embedding_lookup_sparse(
    embedding_weights: Any, sparse_ids: SparseTensor, sparse_weights: SparseTensor | None = None,
    combiner: str | None = "mean", default_id: int | None = None, name: str | None = None,
    partition_strategy: str = "div", max_norm: float | None = None,
) -> Any:  # fmt: skip
    """Rows of a table, combined, that forgives; see sidereal.nn.safe_embedding_lookup_sparse()."""
    return embedding.safe_lookup_sparse(
        embedding_weights, sparse_ids, sparse_weights, partition_strategy, combiner, default_id,
        max_norm, name,
    )  # fmt: skip
