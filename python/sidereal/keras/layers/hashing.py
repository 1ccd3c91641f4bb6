"""Layers that hash: Hashing, HashedCrossing, and CategoryCrossing of older Keras."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import errors
from ..._dispatch import convert
from ...ops import array, math, strings
from ...ops.ragged import RaggedTensor
from ...ops.sparse import CROSS_KEY, fingerprints, joined_fingerprints, word
from ._preprocessing import MODES, Preprocessing, each_element, encoded, is_string, tensor_of
from ._shapes import extents_of, rank_of, reshaped


def _check_bins(where: str, num_bins: Any) -> int:
    if num_bins is None or num_bins <= 0:
        raise ValueError(f"layer '{where}': num_bins is {num_bins}; it must be a positive integer")
    return int(num_bins)


def key_of_salt(where: str, salt: Any) -> list[int] | None:
    """The two words of a key that a salt stands for."""
    if salt is None:
        return None
    words = list(salt) if isinstance(salt, (list, tuple, np.ndarray)) else [salt, salt]
    if len(words) != 2 or any(not isinstance(each, (int, np.integer)) for each in words):
        raise ValueError(
            f"layer '{where}': salt is {salt!r}; it must be an integer, or two of them"
        )
    return [int(each) for each in words]


def bucket(texts: Any, num_bins: int, key: list[int] | None) -> Any:
    """The number of the bin of each text: FarmHash's, or under a key SipHash's."""
    if key is None:
        return strings.to_hash_bucket_fast(texts, num_bins)
    return strings.to_hash_bucket_strong(texts, num_bins, key)


class Hashing(Preprocessing):
    """A number below `num_bins` for each text or integer, TensorFlow's: by FarmHash, or with a
    `salt`, an integer or two, by SipHash under that key. With a `mask_value` that value alone has
    the number 0. `output_mode`: see CategoryEncoding."""

    _dtype_of_inputs = "string"

    def __init__(
        self, num_bins: int, mask_value: Any = None, salt: Any = None, output_mode: str = "int",
        sparse: bool = False, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        self.num_bins = _check_bins(self.name, num_bins)
        self.mask_value, self.salt = mask_value, salt
        self._key = key_of_salt(self.name, salt)
        self.output_mode = self._check_modes(output_mode, sparse, MODES[:4])

    def call(self, inputs: Any) -> Any:
        ids = each_element(self._hashed, inputs)
        return encoded(self.name, ids, self.output_mode, self.num_bins, self.dtype)

    def _hashed(self, values: Any) -> Any:
        # Keras drops the fraction of numbers.
        numbers = not is_string(values)
        values = math.cast(values, "int64") if numbers else values
        texts = strings.as_string(values)
        masked = self.mask_value is not None and self.num_bins > 1
        if not masked:
            return bucket(texts, self.num_bins, self._key)
        if isinstance(self.mask_value, (str, bytes)) is numbers:
            raise ValueError(
                f"layer '{self.name}': mask_value is {self.mask_value!r}, but inputs are "
                f"{values.dtype}; both must be text or numbers"
            )
        found = bucket(texts, self.num_bins - 1, self._key)
        hidden = math.equal(values, convert(self.mask_value, values.dtype))
        return math.where(hidden, array.zeros_like(found), math.add(found, 1))


class CategoryHashing(Preprocessing):
    """A number below `num_bins` for each text, by the hash that `sidereal train` and
    sidereal.data.csv() have for the field of that number, which Keras does not have."""

    _dtype_of_inputs = "string"

    def __init__(self, num_bins: int, field: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_bins, self.field = _check_bins(self.name, num_bins), int(field)

    def call(self, inputs: Any) -> Any:
        return each_element(self._hashed, inputs)

    def _hashed(self, values: Any) -> Any:
        found = strings.category_id(values, self.field, self.num_bins)
        first = convert(np.int64(self.field * self.num_bins))
        return math.subtract(found, first)


class _Crossing(Preprocessing):
    """What both have: several inputs."""

    _dtype_of_inputs = "string"

    def _prepared(self, inputs: Any) -> Any:
        if not isinstance(inputs, (list, tuple)) or isinstance(inputs, RaggedTensor):
            raise ValueError(
                f"layer '{self.name}' is called on a list of inputs, not on a "
                f"{type(inputs).__name__}"
            )
        if len(inputs) < 2:
            raise ValueError(
                f"layer '{self.name}' crosses two inputs or more; {len(inputs)} are given"
            )
        values = [tensor_of(each) for each in inputs]
        for place, value in enumerate(values):
            if isinstance(value, tuple):
                raise ValueError(
                    f"layer '{self.name}': input {place} is a {type(value).__name__}; give tensors"
                )
            if value.dtype.kind not in "iu" and not is_string(value):
                raise ValueError(
                    f"layer '{self.name}' crosses text and integers; input {place} is "
                    f"{value.dtype}"
                )
        return values


class HashedCrossing(_Crossing):
    """A number below `num_bins` for what several features are together, the number that TensorFlow
    has for it: inputs of text or integers, [], [batch] or [batch, 1]. output_mode: "int", or
    "one_hot" vectors of num_bins elements."""

    def __init__(
        self, num_bins: int, output_mode: str = "int", sparse: bool = False,
        name: str | None = None, dtype: Any = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(name=name, dtype=dtype, **kwargs)
        self.num_bins = _check_bins(self.name, num_bins)
        self.output_mode = self._check_modes(output_mode, sparse, MODES[:2])

    def call(self, inputs: Sequence[Any]) -> Any:
        ranks = {rank_of(self.name, each) for each in inputs}
        wide = any(len(each.shape) == 2 and each.shape[1] not in (1, -1) for each in inputs)
        if len(ranks) != 1 or max(ranks) > 2 or wide:
            raise ValueError(
                f"layer '{self.name}' takes inputs that are all [], [batch] or [batch, 1]; these "
                f"have shapes {[tuple(each.shape) for each in inputs]}"
            )
        found: Any = word(CROSS_KEY)
        for each in inputs:
            words = fingerprints(each) if is_string(each) else math.cast(each, "uint64")
            found = joined_fingerprints(found, words)
        ids = math.cast(math.floormod(found, word(self.num_bins)), "int64")
        return encoded(self.name, ids, self.output_mode, self.num_bins, self.dtype)


class CategoryCrossing(_Crossing):
    """Text for what several features are together, their values joined by `separator` (of older
    Keras; HashedCrossing gives numbers at once): of inputs [batch, n], [batch, m], ... all pairs,
    triples, ... [batch, n * m * ...]. depth: how many features are joined: None all; an integer,
    1 up to so many; a tuple, as many as are in it."""

    def __init__(
        self, depth: Any = None, separator: str | None = "_X_", name: str | None = None,
        **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(name=name, **kwargs)
        self.depth = depth
        self.separator = "_X_" if separator is None else separator
        sizes = () if depth is None else (depth,) if isinstance(depth, int) else tuple(depth)
        if any(not isinstance(each, int) or each < 1 for each in sizes):
            raise ValueError(
                f"layer '{self.name}': depth is {depth!r}; it must be positive integers"
            )
        self._sizes = tuple(range(1, depth + 1)) if isinstance(depth, int) else sizes

    def call(self, inputs: Sequence[Any]) -> Any:
        texts = [strings.as_string(each) for each in inputs]
        if any(rank_of(self.name, each) not in (1, 2) for each in texts):
            raise ValueError(
                f"layer '{self.name}' takes inputs [batch] or [batch, n]; these have shapes "
                f"{[tuple(each.shape) for each in texts]}"
            )
        texts = [array.expand_dims(each, -1) if len(each.shape) == 1 else each for each in texts]
        made = []
        for size in self._sizes or (len(texts),):
            made += [self._crossed(some) for some in itertools.combinations(texts, size)]
        if not made:
            raise errors.InvalidArgumentError(
                f"layer '{self.name}': depth is {self.depth}, but there are {len(texts)} inputs"
            )
        return made[0] if len(made) == 1 else array.concat(made, 1)

    def _crossed(self, texts: Sequence[Any]) -> Any:
        found = texts[0]
        for each in texts[1:]:
            (rows, left), (_, right) = extents_of(found), extents_of(each)
            pairs = strings.join(
                [array.expand_dims(found, 2), array.expand_dims(each, 1)], self.separator
            )
            width = left * right if isinstance(left, int) and isinstance(right, int) else -1
            found = array.reshape(pairs, [-1, width]) if width >= 0 else reshaped(
                pairs, [rows, math.multiply(left, right)]
            )  # fmt: skip
        return found
