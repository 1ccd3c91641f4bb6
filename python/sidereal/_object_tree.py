"""The objects that are saved: what is reached from a root, and how it is called."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from . import _object_graph
from ._object_graph import Attribute, Child, Node, Slot
from ._trackable import VARIABLE_VALUE, attribute_of, children_of
from .variable import CutVariable, SaveSliceInfo

#: What a Checkpoint calls the number of checkpoints that save() has written.
SAVE_COUNTER = "save_counter"
#: How many objects an error names.
_SHOWN = 10


def some(names: Sequence[str], count: int = _SHOWN) -> str:
    """The first so many names, for a message."""
    more = f" and {len(names) - count} more" if len(names) > count else ""
    return ", ".join(names[:count]) + more


class CutSlot(CutVariable):
    """What an optimizer keeps for the shards of a variable, as one."""

    _checkpoint_attribute = VARIABLE_VALUE

    def __init__(self, name: str, slot: str, shards: Sequence[Any], parts: Sequence[Any]) -> None:
        self.name = f"{name}/{slot}"
        self.variables = list(parts)
        self.dtype = parts[0].dtype
        rank = len(parts[0].shape)
        infos: list[SaveSliceInfo] = [shard._get_save_slice_info() for shard in shards]
        self.slices = [info.of_slot(slot, rank).spec for info in infos]
        self.shape = tuple(infos[0].full_shape[:rank])


def parts_of(variable: Any) -> list[tuple[Any, str]]:
    """The variables that one is made of, and which part of it each is."""
    if isinstance(variable, CutSlot):
        return list(zip(variable.variables, variable.slices))
    if isinstance(variable, CutVariable):
        return [(shard, shard._get_save_slice_info().spec) for shard in variable.variables]
    return [(variable, "")]


def shards_of(variable: Any) -> list[Any]:
    return variable.variables if isinstance(variable, CutVariable) else [variable]


def home_of(variable: Any) -> Any:
    """What reads and changes a variable of other processes; None for one of this process."""
    return shards_of(variable)[0]._home


class Slots:
    """What optimizers keep, each for a whole variable one object."""

    def __init__(self) -> None:
        self._cut: dict[tuple[int, str], CutSlot] = {}

    def of(self, optimizer: Any, variable: Any) -> dict[str, Any]:
        """What an optimizer keeps for a variable, by name; made if it is not there."""
        shards = shards_of(variable)
        with shards[0]._in_scope():
            kept = [optimizer.slots(shard) for shard in shards]
        if not isinstance(variable, CutVariable):
            return dict(kept[0])
        found = {}
        for name in kept[0]:
            key = (id(kept[0][name]), name)
            if key not in self._cut:
                parts = [each[name] for each in kept]
                full = shards[0]._get_save_slice_info().full_name
                self._cut[key] = CutSlot(full, name, shards, parts)
            found[name] = self._cut[key]
        return found


class Tree:
    """The objects that are reached from a root, each once, by the shortest way. Number 0 is the
    root, which has `attached` beside what it has itself."""

    def __init__(self, root: Any, attached: dict[str, Any], slots: Slots | None = None) -> None:
        self.objects: list[Any] = [root]
        self.paths = [""]
        self.nodes: list[Node] = []
        self._ids = {id(root): 0}
        number = 0
        while number < len(self.objects):
            node = Node()
            self.nodes.append(node)
            self._describe(number, node)
            found = children_of(self.objects[number])
            for name, child in (found | attached if number == 0 else found).items():
                node.children.append(Child(self._number(child, number, name), name))
            number += 1
        if slots is not None:
            self._add_slots(slots)

    def _describe(self, number: int, node: Node) -> None:
        attribute = attribute_of(self.objects[number])
        if attribute is not None:
            full = getattr(self.objects[number], "name", "")
            key = _object_graph.key_of(self.paths[number], attribute)
            node.attributes.append(Attribute(attribute, full, key))

    def _number(self, child: Any, parent: int, name: str) -> int:
        if id(child) not in self._ids:
            self._ids[id(child)] = len(self.objects)
            path = self.paths[parent]
            part = _object_graph.escaped(name)
            self.objects.append(child)
            self.paths.append(f"{path}/{part}" if path else part)
        return self._ids[id(child)]

    def _add_slots(self, slots: Slots) -> None:
        variables = [
            (number, each)
            for number, each in enumerate(self.objects)
            if attribute_of(each) == VARIABLE_VALUE
        ]
        for number, optimizer in enumerate(list(self.objects)):
            if not hasattr(type(optimizer), "_kept_for"):
                continue
            kept = optimizer._kept_for()
            for place, variable in variables:
                if not any(id(shard) in kept for shard in shards_of(variable)):
                    continue
                for name, slot in slots.of(optimizer, variable).items():
                    self._add_slot(number, place, name, slot)

    def _add_slot(self, optimizer: int, variable: int, name: str, slot: Any) -> None:
        number = self._ids.get(id(slot))
        if number is None:
            self._ids[id(slot)] = number = len(self.objects)
            self.objects.append(slot)
            where = _object_graph.slot_path(self.paths[variable], self.paths[optimizer], name)
            self.paths.append(where)
            self.nodes.append(Node())
            self._describe(number, self.nodes[number])
        self.nodes[optimizer].slots.append(Slot(variable, name, number))

    def valued(self) -> Iterator[tuple[str, Any]]:
        """What has a value: its entry, and the object."""
        for node, thing in zip(self.nodes, self.objects):
            for attribute in node.attributes:
                yield attribute.key, thing
