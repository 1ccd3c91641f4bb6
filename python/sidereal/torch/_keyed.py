"""Values of several features in one tensor, with TorchRec's names. What is given to collections may
be TorchRec's own: only these methods are called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor


def _offsets_of(lengths: Tensor) -> Tensor:
    out = lengths.new_zeros(lengths.numel() + 1)
    torch.cumsum(lengths, 0, out=out[1:])
    return out


def _weights_of(parts: Sequence[Any]) -> Tensor | None:
    """The weights of several, one behind the other; ValueError where only some have them."""
    found = [part.weights() for part in parts if part.weights_or_none() is not None]
    if found and len(found) < len(parts):
        raise ValueError("some of what is put together has weights, and some has none")
    return torch.cat(found) if found else None


class _Jagged:
    """Values of rows that are not equally long, behind one another, perhaps with weights."""

    def __init__(
        self, values: Tensor, weights: Tensor | None, lengths: Tensor | None,
        offsets: Tensor | None,
    ) -> None:  # fmt: skip
        if lengths is None and offsets is None:
            raise ValueError(f"a {type(self).__name__} is given lengths or offsets")
        self._values, self._weights = values, weights
        self._lengths, self._offsets = lengths, offsets

    def values(self) -> Tensor:
        """All values, row after row."""
        return self._values

    def weights(self) -> Tensor:
        """A weight for each value; ValueError without any."""
        if self._weights is None:
            raise ValueError(f"this {type(self).__name__} doesn't have weights")
        return self._weights

    def weights_or_none(self) -> Tensor | None:
        """A weight for each value, or None."""
        return self._weights

    def lengths(self) -> Tensor:
        """How many values each row has."""
        if self._lengths is None:
            assert self._offsets is not None
            self._lengths = self._offsets.diff()
        return self._lengths

    def offsets(self) -> Tensor:
        """Where each row begins, and the end of the last."""
        if self._offsets is None:
            assert self._lengths is not None
            self._offsets = _offsets_of(self._lengths)
        return self._offsets


class JaggedTensor(_Jagged):
    """Values of one feature: those of row i are values[offsets[i]:offsets[i + 1]]
    (torchrec.JaggedTensor)."""

    def __init__(
        self, values: Tensor, weights: Tensor | None = None, lengths: Tensor | None = None,
        offsets: Tensor | None = None,
    ) -> None:  # fmt: skip
        super().__init__(values, weights, lengths, offsets)

    def to_dense(self) -> list[Tensor]:
        """The values of each row."""
        bounds = self.offsets().tolist()
        return [self._values[a:b] for a, b in pairwise(bounds)]

    def __repr__(self) -> str:
        return f"JaggedTensor({self.to_dense()})"


class KeyedJaggedTensor(_Jagged):
    """Values of several features of one batch, feature after feature
    (torchrec.KeyedJaggedTensor).

        #             row 0   row 1
        # "user"      [3]     [7]
        # "movies"    []      [1, 5]
        KeyedJaggedTensor(["user", "movies"], torch.tensor([3, 7, 1, 5]),
                          lengths=torch.tensor([1, 1, 0, 2]))

    keys: names of the features. values: ids. weights: one for each value. lengths or offsets: of
    each row of the first feature, then of the second, and so on. stride: how many rows there are;
    if absent, as lengths or offsets say."""

    def __init__(
        self, keys: Sequence[str], values: Tensor, weights: Tensor | None = None,
        lengths: Tensor | None = None, offsets: Tensor | None = None, stride: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(values, weights, lengths, offsets)
        self._keys = list(keys)
        if lengths is not None:
            count = lengths.numel()
        else:
            assert offsets is not None
            count = offsets.numel() - 1
        if stride is None:
            stride = count // len(self._keys) if self._keys else 0
        if stride * len(self._keys) != count:
            raise ValueError(
                f"{count} lengths are no whole number of rows for the {len(self._keys)} features "
                f"{', '.join(self._keys)}"
            )
        if weights is not None and weights.numel() != values.numel():
            raise ValueError(f"{weights.numel()} weights are given for {values.numel()} values")
        self._stride = stride
        self._offset_per_key: list[int] | None = None

    @staticmethod
    def from_lengths_sync(
        keys: Sequence[str], values: Tensor, lengths: Tensor, weights: Tensor | None = None,
        stride: int | None = None,
    ) -> KeyedJaggedTensor:  # fmt: skip
        """Of lengths; ValueError when they do not add up to the number of values."""
        made = KeyedJaggedTensor(keys, values, weights, lengths=lengths, stride=stride)
        return made._checked()

    @staticmethod
    def from_offsets_sync(
        keys: Sequence[str], values: Tensor, offsets: Tensor, weights: Tensor | None = None,
        stride: int | None = None,
    ) -> KeyedJaggedTensor:  # fmt: skip
        """Of offsets; ValueError when they do not end with the number of values."""
        made = KeyedJaggedTensor(keys, values, weights, offsets=offsets, stride=stride)
        return made._checked()

    @staticmethod
    def from_jt_dict(features: Mapping[str, JaggedTensor]) -> KeyedJaggedTensor:
        """Of a JaggedTensor for each feature, all of as many rows."""
        parts = list(features.values())
        if len({part.lengths().numel() for part in parts}) > 1:
            raise ValueError("the features have different numbers of rows")
        return KeyedJaggedTensor(
            list(features), torch.cat([part.values() for part in parts]), _weights_of(parts),
            torch.cat([part.lengths() for part in parts]),
        )  # fmt: skip

    @staticmethod
    def concat(kjt_list: Sequence[Any]) -> KeyedJaggedTensor:
        """The features of several, of as many rows, behind one another."""
        if len({kjt.stride() for kjt in kjt_list}) != 1:
            strides = [kjt.stride() for kjt in kjt_list]
            raise ValueError(f"what is concatenated has different numbers of rows: {strides}")
        return KeyedJaggedTensor(
            [key for kjt in kjt_list for key in list(kjt.keys())],
            torch.cat([kjt.values() for kjt in kjt_list]),
            _weights_of(kjt_list),
            torch.cat([kjt.lengths() for kjt in kjt_list]),
            stride=kjt_list[0].stride(),
        )

    def _checked(self) -> KeyedJaggedTensor:
        end = self.offset_per_key()[-1]
        if end != self._values.numel():
            raise ValueError(
                f"the lengths of {', '.join(self._keys)} add up to {end}; there are "
                f"{self._values.numel()} values"
            )
        return self

    def keys(self) -> list[str]:
        """Names of the features."""
        return self._keys

    def stride(self) -> int:
        """How many rows there are."""
        return self._stride

    def offset_per_key(self) -> list[int]:
        """Where the values of each feature begin, and the end."""
        if self._offset_per_key is None:
            at = torch.arange(len(self._keys) + 1, device=self._values.device) * self._stride
            self._offset_per_key = self.offsets().index_select(0, at).tolist()
        return self._offset_per_key

    def length_per_key(self) -> list[int]:
        """How many values each feature has."""
        bounds = self.offset_per_key()
        return [b - a for a, b in pairwise(bounds)]

    def __getitem__(self, key: str) -> JaggedTensor:
        at = self._keys.index(key)
        begin, end = self.offset_per_key()[at : at + 2]
        rows = slice(at * self._stride, (at + 1) * self._stride)
        weights = None if self._weights is None else self._weights[begin:end]
        return JaggedTensor(self._values[begin:end], weights, self.lengths()[rows])

    def to_dict(self) -> dict[str, JaggedTensor]:
        """The values of each feature."""
        return {key: self[key] for key in self._keys}

    def permute(self, indices: Sequence[int]) -> KeyedJaggedTensor:
        """The features at `indices`, in that order."""
        return KeyedJaggedTensor.from_jt_dict(
            {self._keys[index]: self[self._keys[index]] for index in indices}
        )

    def to(self, device: Any, non_blocking: bool = False) -> KeyedJaggedTensor:
        """The same on another device."""

        def moved(part: Tensor | None) -> Tensor | None:
            return None if part is None else part.to(device, non_blocking=non_blocking)

        return KeyedJaggedTensor(
            self._keys, self._values.to(device, non_blocking=non_blocking), moved(self._weights),
            moved(self._lengths), moved(self._offsets), self._stride,
        )  # fmt: skip

    def __repr__(self) -> str:
        rows = {key: one.to_dense() for key, one in self.to_dict().items()}
        return f"KeyedJaggedTensor({rows})"


class KeyedTensor:
    """Vectors of several features, side by side in one matrix (torchrec.KeyedTensor)."""

    def __init__(
        self, keys: Sequence[str], length_per_key: Sequence[int], values: Tensor, key_dim: int = 1
    ) -> None:
        self._keys, self._lengths = list(keys), list(length_per_key)
        self._values, self._key_dim = values, key_dim

    @staticmethod
    def from_tensor_list(
        keys: Sequence[str], tensors: Sequence[Tensor], key_dim: int = 1, cat_dim: int = 1
    ) -> KeyedTensor:
        """Of a matrix for each feature."""
        lengths = [one.shape[key_dim] for one in tensors]
        return KeyedTensor(keys, lengths, torch.cat(list(tensors), cat_dim), key_dim)

    def keys(self) -> list[str]:
        """Names of the features."""
        return self._keys

    def values(self) -> Tensor:
        """The matrix."""
        return self._values

    def key_dim(self) -> int:
        """Along which dimension the features lie."""
        return self._key_dim

    def length_per_key(self) -> list[int]:
        """How long the vector of each feature is."""
        return self._lengths

    def offset_per_key(self) -> list[int]:
        """Where each feature begins, and the end."""
        out = [0]
        for length in self._lengths:
            out.append(out[-1] + length)
        return out

    def __getitem__(self, key: str) -> Tensor:
        at = self._keys.index(key)
        return self._values.narrow(self._key_dim, self.offset_per_key()[at], self._lengths[at])

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def to_dict(self) -> dict[str, Tensor]:
        """The matrix of each feature."""
        parts = self._values.split(self._lengths, self._key_dim)
        return dict(zip(self._keys, parts))

    @staticmethod
    def regroup(
        keyed_tensors: Sequence[KeyedTensor], groups: Sequence[Sequence[str]]
    ) -> list[Tensor]:
        """For each group of names, the vectors of these features side by side."""
        found: dict[str, Tensor] = {}
        for one in keyed_tensors:
            found |= one.to_dict()
        return [torch.cat([found[key] for key in group], 1) for group in groups]

    def __repr__(self) -> str:
        return f"KeyedTensor({dict(zip(self._keys, self._lengths))})"
