"""Rows at indices, and tensors of few elements: sidereal.sparse."""

from __future__ import annotations

from .embedding import SparseTensor
from .indexing import sparse_segment_mean as segment_mean
from .indexing import sparse_segment_sqrt_n as segment_sqrt_n
from .indexing import sparse_segment_sum as segment_sum

__all__ = ["SparseTensor", "segment_mean", "segment_sqrt_n", "segment_sum"]
