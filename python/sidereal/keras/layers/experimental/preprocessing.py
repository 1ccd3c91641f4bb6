"""Layers of preprocessing with the defaults that TensorFlow 2.4 gave them
(tf.keras.layers.experimental.preprocessing)."""

from __future__ import annotations

from typing import Any

from .. import lookups
from ..hashing import CategoryCrossing, Hashing
from ..numeric_features import CategoryEncoding, Discretization, Normalization, Rescaling
from ..text import TextVectorization

__all__ = [
    "CategoryCrossing", "CategoryEncoding", "Discretization", "Hashing", "IntegerLookup",
    "Normalization", "Rescaling", "StringLookup", "TextVectorization",
]  # fmt: skip


class StringLookup(lookups.StringLookup):
    """As keras.layers.StringLookup, with a number, 0, for the empty text."""

    def __init__(
        self, max_tokens: int | None = None, num_oov_indices: int = 1, mask_token: Any = "",
        **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(max_tokens, num_oov_indices, mask_token, **kwargs)


class IntegerLookup(lookups.IntegerLookup):
    """As keras.layers.IntegerLookup, with a number, 0, for 0."""

    def __init__(
        self, max_tokens: int | None = None, num_oov_indices: int = 1, mask_token: Any = 0,
        **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(max_tokens, num_oov_indices, mask_token, **kwargs)
