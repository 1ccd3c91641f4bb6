"""Shapes with TensorFlow's methods: sidereal.TensorShape (tf.TensorShape)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

__all__ = ["TensorShape"]


class Dimension(int):
    """One extent, an integer that has TensorFlow 1's `value` besides."""

    @property
    def value(self) -> int | None:
        """The extent; None for one that is not known."""
        return None if self < 0 else int(self)


class TensorShape(tuple[int, ...]):
    """The extents of a tensor, as a tuple that has TensorFlow's methods besides. An extent that is
    not known before the graph runs is -1 in it, or None where somebody has made it so, and always
    None in as_list(). Where not even the number of extents is known there is None in place of a
    shape, and so TensorShape(None) is None."""

    __slots__ = ()

    def __new__(cls, dims: Any = ()) -> Any:
        if dims is None:
            return None
        if not isinstance(dims, Iterable):
            dims = (dims,)
        return super().__new__(cls, dims)

    @property
    def rank(self) -> int:
        """How many extents there are."""
        return len(self)

    ndims = rank

    def as_list(self) -> list[int | None]:
        """The extents, None for one that is not known."""
        return [None if extent is None or extent < 0 else int(extent) for extent in self]

    @property
    def dims(self) -> list[int | None]:
        """As as_list()."""
        return self.as_list()

    def is_fully_defined(self) -> bool:
        """Whether all extents are known."""
        return None not in self.as_list()

    def num_elements(self) -> int | None:
        """How many elements such a tensor has; None where an extent is not known."""
        extents = self.as_list()
        return None if None in extents else math.prod(each for each in extents if each is not None)

    def is_compatible_with(self, other: Any) -> bool:
        """Whether a tensor may have both shapes."""
        if other is None:
            return True
        theirs = TensorShape(other).as_list()
        return len(theirs) == len(self) and all(
            one is None or another is None or one == another
            for one, another in zip(self.as_list(), theirs)
        )

    def assert_is_compatible_with(self, other: Any) -> None:
        """ValueError when no tensor may have both shapes."""
        if not self.is_compatible_with(other):
            raise ValueError(f"shapes {self} and {other} are not compatible")

    def assert_has_rank(self, rank: int) -> None:
        """ValueError for another number of extents."""
        if len(self) != rank:
            raise ValueError(f"shape {self} must have rank {rank}")

    def with_rank(self, rank: int) -> TensorShape:
        """The shape itself. ValueError for another number of extents."""
        self.assert_has_rank(rank)
        return self

    def with_rank_at_least(self, rank: int) -> TensorShape:
        """The shape itself. ValueError for fewer extents."""
        if len(self) < rank:
            raise ValueError(f"shape {self} must have rank {rank} or more")
        return self

    def merge_with(self, other: Any) -> TensorShape:
        """What is known of a tensor that has both shapes. ValueError when there is none."""
        self.assert_is_compatible_with(other)
        if other is None:
            return self
        pairs = zip(self.as_list(), TensorShape(other).as_list())
        merged: TensorShape = TensorShape(one if one is not None else two for one, two in pairs)
        return merged

    def concatenate(self, other: Any) -> TensorShape:
        """These extents, and then those of the other shape."""
        joined: TensorShape = TensorShape((*self, *TensorShape(other)))
        return joined

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        if isinstance(key, slice):
            return tuple.__new__(TensorShape, found)
        return None if found is None else Dimension(found)

    def __add__(self, other: Any) -> Any:
        return tuple.__new__(TensorShape, super().__add__(tuple(other)))

    def __reduce__(self) -> Any:
        return tuple, (tuple(self),)
