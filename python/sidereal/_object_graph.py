"""The graph of objects that a checkpoint has beside its tensors: TensorFlow's message
TrackableObjectGraph, its fields by their numbers.

    nodes = 1                   repeated
        children = 1            repeated; node_id = 1, local_name = 2
        attributes = 2          repeated; name = 1, full_name = 2, checkpoint_key = 3
        slot_variables = 3      repeated; original_variable_node_id = 1, slot_name = 2,
                                slot_variable_node_id = 3
        has_checkpoint_values = 5   value = 1
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from . import errors

#: The entry of a checkpoint that has the graph.
ENTRY = "_CHECKPOINTABLE_OBJECT_GRAPH"


class Child(NamedTuple):
    """An object that another one has, and what it is called there."""

    node: int
    name: str


class Attribute(NamedTuple):
    """A value of an object: what kind of value, the name of the variable, and its entry."""

    name: str
    full_name: str
    key: str


class Slot(NamedTuple):
    """What an optimizer keeps for a variable."""

    variable: int
    name: str
    slot: int


@dataclass
class Node:
    """An object."""

    children: list[Child] = field(default_factory=list)
    attributes: list[Attribute] = field(default_factory=list)
    slots: list[Slot] = field(default_factory=list)


# --- Keys.


def escaped(name: str) -> str:
    """A name as a part of a key."""
    return name.replace(".", "..").replace("/", ".S")


def key_of(path: str, attribute: str) -> str:
    """The entry of an attribute of the object at a path."""
    return f"{path}/.ATTRIBUTES/{escaped(attribute)}"


def slot_path(variable: str, optimizer: str, name: str) -> str:
    """The path of what the optimizer at a path keeps for the variable at another one."""
    return f"{variable}/.OPTIMIZER_SLOT/{optimizer}/{escaped(name)}"


# --- Bytes.


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _number(place: int, value: int) -> bytes:
    return _varint(place << 3) + _varint(value) if value else b""


def _bytes(place: int, value: bytes) -> bytes:
    return _varint(place << 3 | 2) + _varint(len(value)) + value


def _text(place: int, value: str) -> bytes:
    return _bytes(place, value.encode()) if value else b""


def encode(nodes: list[Node]) -> bytes:
    """The message."""
    out = []
    for node in nodes:
        parts = [_bytes(1, _number(1, child.node) + _text(2, child.name))
                 for child in node.children]  # fmt: skip
        parts += [
            _bytes(2, _text(1, each.name) + _text(2, each.full_name) + _text(3, each.key))
            for each in node.attributes
        ]
        parts += [
            _bytes(3, _number(1, each.variable) + _text(2, each.name) + _number(3, each.slot))
            for each in node.slots
        ]
        parts.append(_bytes(5, _number(1, int(bool(node.attributes)))))
        out.append(_bytes(1, b"".join(parts)))
    return b"".join(out)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


def fields_of(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message: their places, and numbers or bytes."""
    at = 0
    while at < len(data):
        tag, at = read_varint(data, at)
        kind = tag & 7
        if kind == 0:
            number, at = read_varint(data, at)
            yield tag >> 3, number
            continue
        if kind == 2:
            length, at = read_varint(data, at)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise ValueError(f"a field of kind {kind}")
        if length > len(data) - at:
            raise ValueError("a field is longer than the message")
        yield tag >> 3, data[at : at + length]
        at += length


def _values(data: int | bytes, *places: int) -> list[int | str]:
    """The fields at these places, which are numbers where the first of them says 0."""
    found: dict[int, int | str] = {}
    if isinstance(data, int):
        raise ValueError("a number in the place of a message")
    for place, value in fields_of(data):
        found[place] = value if isinstance(value, int) else value.decode()
    return [found.get(place, "") for place in places]


def _node(data: int | bytes) -> Node:
    if isinstance(data, int):
        raise ValueError("a number in the place of a node")
    made = Node()
    for place, value in fields_of(data):
        if place == 1:
            node, name = _values(value, 1, 2)
            made.children.append(Child(int(node or 0), str(name)))
        elif place == 2:
            made.attributes.append(Attribute(*map(str, _values(value, 1, 2, 3))))
        elif place == 3:
            variable, name, slot = _values(value, 1, 2, 3)
            made.slots.append(Slot(int(variable or 0), str(name), int(slot or 0)))
    return made


def decode(data: bytes, where: str) -> list[Node]:
    """The nodes of a message; DataLossError for one that was damaged."""
    try:
        nodes = [_node(value) for place, value in fields_of(data) if place == 1]
        if not nodes:
            raise ValueError("it has no objects")
        for node in nodes:
            named = [child.node for child in node.children]
            named += [number for slot in node.slots for number in (slot.variable, slot.slot)]
            if any(number >= len(nodes) for number in named):
                raise ValueError("an object is named that is not there")
    except (IndexError, ValueError) as error:
        raise errors.DataLossError(
            f"{where}: the graph of its objects, {ENTRY}, was damaged ({error}); restore another "
            "checkpoint"
        ) from None
    return nodes
