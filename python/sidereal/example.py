"""tf.train.Example messages as objects with the fields of TensorFlow's, without protobuf.

    example = sidereal.train.Example(features=sidereal.train.Features(feature={
        "id": sidereal.train.Feature(int64_list=sidereal.train.Int64List(value=[3])),
    }))
    writer.write(example.SerializeToString())

sidereal.io.encode_example({"id": 3}) gives the same bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

from . import errors
from ._object_graph import fields_of, read_varint
from .records import encode_example

__all__ = ["BytesList", "Example", "Feature", "Features", "FloatList", "Int64List"]

# ruff: noqa: N802 - names of methods are protobuf's.


class _List:
    """Values of one kind."""

    def __init__(self, value: Iterable[Any] = ()) -> None:
        self.value: list[Any] = [self._checked(each) for each in value]

    def _checked(self, value: Any) -> Any:
        return value

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.value == getattr(other, "value", None)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value!r})"


class BytesList(_List):
    """Values that are bytes."""

    def _checked(self, value: Any) -> Any:
        if not isinstance(value, (bytes, bytearray)):
            raise TypeError(f"{value!r:.60} has type {type(value).__name__}, but expected: bytes")
        return bytes(value)


class FloatList(_List):
    """Values that are float32."""

    def _checked(self, value: Any) -> Any:
        return float(value)


class Int64List(_List):
    """Values that are int64."""

    def _checked(self, value: Any) -> Any:
        if isinstance(value, (float, str, bytes)) and not isinstance(value, np.integer):
            raise TypeError(f"{value!r:.60} has type {type(value).__name__}, but expected: int")
        return int(value)


class Feature:
    """One of three lists: what is set last is what it has."""

    _KINDS: ClassVar[dict[str, type[_List]]] = {
        "bytes_list": BytesList, "float_list": FloatList, "int64_list": Int64List
    }  # fmt: skip

    def __init__(
        self, bytes_list: BytesList | None = None, float_list: FloatList | None = None,
        int64_list: Int64List | None = None,
    ) -> None:  # fmt: skip
        self._lists: dict[str, _List] = {}
        given = {"bytes_list": bytes_list, "float_list": float_list, "int64_list": int64_list}
        for name, found in given.items():
            if found is not None:
                self._set(name, found)

    def _set(self, name: str, found: _List) -> None:
        if not isinstance(found, self._KINDS[name]):
            wanted = self._KINDS[name].__name__
            raise TypeError(f"{name} is {found!r:.60}; it must be a {wanted}")
        self._lists = {name: found}

    def _get(self, name: str) -> Any:
        return self._lists.setdefault(name, self._KINDS[name]())

    bytes_list = property(lambda self: self._get("bytes_list"))
    float_list = property(lambda self: self._get("float_list"))
    int64_list = property(lambda self: self._get("int64_list"))

    def WhichOneof(self, group: str = "kind") -> str | None:
        """The name of the list that has values."""
        return next((name for name, found in self._lists.items() if found.value), None)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Feature) and self._values() == other._values()

    __hash__ = None  # type: ignore[assignment]

    def _values(self) -> Any:
        kind = self.WhichOneof()
        if kind == "bytes_list":
            return np.array(self._lists[kind].value, dtype=object)
        if kind == "float_list":
            return np.array(self._lists[kind].value, dtype=np.float32)
        return np.array(self._lists[kind].value, dtype=np.int64) if kind else []

    def __repr__(self) -> str:
        kind = self.WhichOneof()
        return f"Feature({kind}={self._lists[kind]!r})" if kind else "Feature()"


class _Map(dict[str, Feature]):
    """Features by name, which come to be when they are asked for."""

    def __missing__(self, name: str) -> Feature:
        self[name] = found = Feature()
        return found


class Features:
    """Features by their names."""

    def __init__(self, feature: Mapping[str, Feature] | None = None) -> None:
        for name, each in (feature or {}).items():
            if not isinstance(each, Feature):
                raise TypeError(f"feature '{name}' is {each!r:.60}; it must be a Feature")
        self.feature: dict[str, Feature] = _Map(feature or {})

    def __repr__(self) -> str:
        return f"Features({dict(self.feature)!r})"


class Example:
    """What a file of records has of one example."""

    def __init__(self, features: Features | None = None) -> None:
        self.features = features if features is not None else Features()

    def SerializeToString(self) -> bytes:
        """The message, features sorted by name."""
        return encode_example(
            {name: each._values() for name, each in self.features.feature.items()}
        )

    def ParseFromString(self, serialized: bytes) -> int:
        """Takes what a message has; how many bytes those were. InvalidArgumentError for bytes that
        are none."""
        self.features = Features(_read(bytes(serialized)))
        return len(serialized)

    @classmethod
    def FromString(cls, s: bytes) -> Example:
        """The message of these bytes."""
        made = cls()
        made.ParseFromString(s)
        return made

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Example) and self.SerializeToString() == other.SerializeToString()
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Example({self.features!r})"


def _read(message: bytes) -> dict[str, Feature]:
    found = {}
    try:
        for _, features in _only(message, 1):
            for _, entry in _only(features, 1):
                parts = dict(_only(entry, 1, 2))
                found[parts.get(1, b"").decode()] = _feature(parts.get(2, b""))
    except (IndexError, ValueError, struct.error) as error:
        raise errors.InvalidArgumentError(f"these bytes are no Example: {error}") from None
    return found


def _only(message: bytes, *numbers: int) -> Iterable[tuple[int, bytes]]:
    for number, content in fields_of(message):
        if number in numbers:
            if not isinstance(content, bytes):
                raise ValueError(f"field {number} is a number")
            yield number, content


def _feature(message: bytes) -> Feature:
    out = Feature()
    for number, content in _only(message, 1, 2, 3):
        if number == 1:
            out._set("bytes_list", BytesList(value for _, value in _only(content, 1)))
        elif number == 2:
            floats: list[float] = []
            for _, packed in _only(content, 1):
                floats += [one for (one,) in struct.iter_unpack("<f", packed)]
            out._set("float_list", FloatList(floats))
        else:
            out._set("int64_list", Int64List(_integers(content)))
    return out


def _integers(message: bytes) -> Iterable[int]:
    for place, content in fields_of(message):
        if place != 1:
            continue
        for value in [content] if isinstance(content, int) else _varints(content):
            yield value - (1 << 64) if value >= 1 << 63 else value


def _varints(packed: bytes) -> Iterable[int]:
    at = 0
    while at < len(packed):
        value, at = read_varint(packed, at)
        yield value
