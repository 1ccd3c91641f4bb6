"""Restoring objects from a checkpoint, now and as they come."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

from . import _object_graph, _tensor_files, errors
from ._dispatch import state
from ._object_graph import Node
from ._object_tree import SAVE_COUNTER, Slots, Tree, home_of, parts_of, shards_of, some
from ._trackable import VARIABLE_VALUE, Restored, attribute_of, children_of, parts_of_value
from .dtypes import name_of
from .variable import together

_log = logging.getLogger("sidereal")


class Restoration:
    """What is being restored from a checkpoint: which object of the program each of its objects is,
    as far as they are there yet.

    attached: gives what the root has beside its own members.
    is_local: this process reads for parameter servers too.
    has_slots: what optimizers keep for variables is restored too.
    """

    def __init__(
        self, prefix: str, root: Any, attached: Callable[[], dict[str, Any]], is_local: bool,
        has_slots: bool,
    ) -> None:  # fmt: skip
        self.prefix = prefix
        self.reader = _tensor_files.opened(prefix)
        self._names = set(self.reader.names())
        #: Entries that no object has.
        self._others: list[str] = []
        if _object_graph.ENTRY in self._names:
            graph = _tensor_files.as_python(self.reader.read(_object_graph.ENTRY))
            self.nodes = _object_graph.decode(graph, prefix)
        else:
            self.nodes = self._nodes_by_names(Tree(root, attached()))
        self.is_partial = False
        self._root, self._attached, self._is_local = root, attached, is_local
        self.slots = Slots()
        #: What each object of the checkpoint is, by its number.
        self.objects: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}
        #: Objects that have their values, and those that wait for them.
        self.done: set[int] = set()
        self._due: list[int] = []
        self._left = [
            (number, slot)
            for number, node in enumerate(self.nodes)
            for slot in node.slots
            if has_slots
        ]
        self._is_busy = False
        #: Objects that are several in the program.
        self._doubted: set[int] = set()

    def _nodes_by_names(self, tree: Tree) -> list[Node]:
        """Objects as the program has them, for a checkpoint that has none, as a Saver writes it:
        its entries are of variables and tables of these names."""
        left = set(self._names)
        for node, thing in zip(tree.nodes, tree.objects):
            parts = parts_of_value(thing)
            node.attributes = [
                each._replace(key=each.full_name)
                for each in node.attributes
                if self._names.issuperset(each.full_name + part for part in parts)
            ]
            left.difference_update(each.key + part for each in node.attributes for part in parts)
        self._others = sorted(left)
        return tree.nodes

    def number_of(self, thing: Any) -> int | None:
        """The number of the checkpoint's object that one of the program is."""
        return self._numbers.get(id(thing))

    def run(self) -> None:
        """Restores all that is there now."""
        self._bind(0, self._root)
        self._restore_below(0)

    def go_on_at(self, thing: Any) -> None:
        """Restores what an object has since run()."""
        number = self.number_of(thing)
        if number is not None:
            self._restore_below(number)

    def _restore_below(self, start: int) -> None:
        if self._is_busy:
            return
        self._is_busy = True
        try:
            with state.at_once():
                self._walk(start)
                if self._bind_slots():  # The optimizer has perhaps more now.
                    self._walk(0)
                self._restore_due()
        finally:
            self._is_busy = False
        if self.is_whole():
            self._forget()

    def _walk(self, start: int) -> None:
        """Finds the program's objects below one of the checkpoint."""
        seen, waiting = {start}, [start]
        while waiting:
            number = waiting.pop()
            found = children_of(self.objects[number])
            if number == 0:
                found = found | self._attached()
            for child in self.nodes[number].children:
                if child.name in found:
                    self._bind(child.node, found[child.name])
                    if child.node not in seen:
                        seen.add(child.node)
                        waiting.append(child.node)

    def _bind(self, number: int, thing: Any) -> None:
        known = self.objects.get(number)
        if known is thing:
            return
        if known is not None and not isinstance(thing, (list, tuple, dict)):
            if number not in self._doubted:
                self._doubted.add(number)
                _log.warning(
                    "%s: %r and %r are one object in the checkpoint; the first of them is restored",
                    self.prefix, known, thing,
                )  # fmt: skip
            return
        if known is not None:  # A list that was made anew.
            self._numbers.pop(id(known), None)
        self.objects[number] = thing
        self._numbers.setdefault(id(thing), number)
        if isinstance(thing, Restored):
            thing._restorations = (self,)
        if self.nodes[number].attributes and attribute_of(thing) is not None:
            self._due.append(number)

    def _bind_slots(self) -> bool:
        """Finds what optimizers keep, which is made if it is not there; True if some was found."""
        left = []
        for number, slot in self._left:
            optimizer, variable = self.objects.get(number), self.objects.get(slot.variable)
            found = None
            if variable is not None and hasattr(type(optimizer), "_kept_for"):
                found = self.slots.of(optimizer, variable).get(slot.name)
            if found is None:
                left.append((number, slot))
            else:
                self._bind(slot.slot, found)
        is_new, self._left = len(left) < len(self._left), left
        return is_new

    def _restore_due(self) -> None:
        due, self._due = self._due, []
        here: list[tuple[str, Any]] = []
        away: dict[int, tuple[Any, list[tuple[str, str, Any]]]] = {}
        for number in due:
            thing, node = self.objects[number], self.nodes[number]
            key = self._checked_key(node, thing)
            home = home_of(thing) if attribute_of(thing) == VARIABLE_VALUE else None
            if home is None or self._is_local:
                here.append((key, thing))
            else:
                parts = [(key, part, variable) for variable, part in parts_of(thing)]
                away.setdefault(id(home), (home, []))[1].extend(parts)
        values = [
            [self.reader.read(key + part) for part in parts_of_value(thing)] for key, thing in here
        ]
        variables = [each for _, each in here if attribute_of(each) == VARIABLE_VALUE]
        with together(variables, "VariableAssign"):
            for (_, thing), value in zip(here, values):
                _give(thing, *value)
        for home, parts in away.values():
            home._restore_variables(self.prefix, parts)
        self.done.update(due)

    def _checked_key(self, node: Node, thing: Any) -> str:
        """The entry of an object's value; InvalidArgumentError when that is none for it."""
        attribute = attribute_of(thing)
        names = [each for each in node.attributes if each.name == attribute] or node.attributes
        key = names[0].key
        for part in parts_of_value(thing):
            if key + part not in self._names:
                raise errors.DataLossError(
                    f"{self.prefix}: its graph of objects names {key}, and it has no {key + part}; "
                    "restore another checkpoint"
                )
        if parts_of_value(thing) != ("",):
            return key  # restore() says what does not fit.
        found = (name_of(self.reader.dtype(key)), tuple(self.reader.shape(key)))
        wanted = ("string", found[1])
        if attribute == VARIABLE_VALUE:
            wanted = (name_of(thing.dtype), tuple(thing.shape))
        if wanted != found:
            raise errors.InvalidArgumentError(
                f"{self.prefix}: {key} is {found[0]}{list(found[1])}; what it is to be restored to "
                f"in the program, '{getattr(thing, 'name', type(thing).__name__)}', is "
                f"{wanted[0]}{list(wanted[1])}. Restore it to an object made as it was saved"
            )
        return key

    # --- What is left.

    def unused(self) -> list[str]:
        """Entries that were restored to nothing."""
        return self._others + [
            attribute.key
            for number, node in enumerate(self.nodes)
            if number not in self.done
            for attribute in node.attributes
        ]

    def is_whole(self) -> bool:
        """Whether all of it was restored."""
        valued = [number for number, node in enumerate(self.nodes) if node.attributes]
        return not self._left and not self._others and self.done >= set(valued)

    def present(self) -> list[tuple[str, Any]]:
        """What the program has now that has a value, but for the number of the last save() where
        write() or a Saver made the checkpoint, which then have none."""
        found = Tree(self._root, self._attached(), self.slots).valued()
        counted = any(
            child.name == SAVE_COUNTER and self.nodes[child.node].attributes
            for child in self.nodes[0].children
        )
        own = _object_graph.key_of(SAVE_COUNTER, VARIABLE_VALUE)
        return [(key, thing) for key, thing in found if counted or key != own]

    def give_up(self) -> None:
        """An error says what is wrong; nothing is restored later."""
        self.is_partial = True
        self._forget()

    def _forget(self) -> None:
        """Nothing comes any more."""
        for thing in self.objects.values():
            if isinstance(thing, Restored) and thing._restorations == (self,):
                thing._restorations = ()

    def __del__(self) -> None:
        nodes = getattr(self, "nodes", None)
        if nodes is None or self.is_partial or sys.is_finalizing():
            return
        unused = self.unused()
        if unused:
            _log.warning(
                "values of %s were restored to nothing: %s. Call expect_partial() of what restore()"
                " gives where this is meant, assert_consumed() to have it be an error",
                self.prefix, some(unused),
            )  # fmt: skip


def _give(thing: Any, *values: Any) -> None:
    """Gives an object the value that was restored."""
    value = values[0]
    if parts_of_value(thing) != ("",):
        thing.restore(*values)
        return
    if attribute_of(thing) != VARIABLE_VALUE:
        thing.restore(_tensor_files.as_python(value))
        return
    shards = shards_of(thing)
    if len(shards) == 1:
        shards[0].assign(value)
        return
    begin = 0
    for shard in shards:
        shard.assign(value[begin : begin + shard.shape[0]])
        begin += shard.shape[0]
