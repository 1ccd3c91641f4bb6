"""Objects saved and restored (tf.train.Checkpoint), and what is read of checkpoints by name.

A checkpoint has a tensor for each variable, named by the way from the root to it,
"model/layer-0/kernel/.ATTRIBUTES/VARIABLE_VALUE", and the graph of the objects (_object_graph), by
which restore() finds the way: not by the names of variables.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from . import _object_graph, _tensor_files, dtypes, errors
from ._dispatch import convert, state
from ._object_graph import Attribute, Child, Node, Slot
from ._trackable import VARIABLE_VALUE, Restored, attribute_of, children_of, is_trackable
from .checkpoint_management import (
    latest_checkpoint,
    remove_checkpoint,
    update_checkpoint_state,
)
from .dtypes import name_of
from .ops import array
from .variable import CutVariable, SaveSliceInfo, Variable, together

_log = logging.getLogger("sidereal")

#: How many objects an error names.
_SHOWN = 10


@dataclass
class CheckpointOptions:
    """How checkpoints are written and read (tf.train.CheckpointOptions).

    experimental_io_device: "/job:localhost": this process writes all files, and fetches variables
        of parameter servers for it. None: each parameter server writes a file of its own, to a file
        system that all reach.
    experimental_write_callbacks: functions that are called when a checkpoint is there, with its
        prefix if they take an argument.
    experimental_enable_async_checkpoint, enable_async: change nothing: save() returns when the
        checkpoint is there, and functions of workers go on meanwhile.
    experimental_skip_slot_variables: what optimizers keep for variables is left out, of what is
        written and of what is restored.
    """

    experimental_io_device: str | None = None
    experimental_enable_async_checkpoint: bool = False
    experimental_write_callbacks: Sequence[Callable[..., Any]] | None = None
    enable_async: bool = False
    experimental_skip_slot_variables: bool = False

    @property
    def is_local(self) -> bool:
        """Whether this process alone writes and reads."""
        device = self.experimental_io_device
        return device is not None and "localhost" in device


class _CutSlot(CutVariable):
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


def _parts_of(variable: Any) -> list[tuple[Any, str]]:
    """The variables that one is made of, and which part of it each is."""
    if isinstance(variable, _CutSlot):
        return list(zip(variable.variables, variable.slices))
    if isinstance(variable, CutVariable):
        return [(shard, shard._get_save_slice_info().spec) for shard in variable.variables]
    return [(variable, "")]


def _shards_of(variable: Any) -> list[Any]:
    return variable.variables if isinstance(variable, CutVariable) else [variable]


def _home_of(variable: Any) -> Any:
    """What reads and changes a variable that is elsewhere; None: it is here."""
    return _shards_of(variable)[0]._home


class _Slots:
    """What optimizers keep, each for a whole variable one object."""

    def __init__(self) -> None:
        self._cut: dict[tuple[int, str], _CutSlot] = {}

    def of(self, optimizer: Any, variable: Any) -> dict[str, Any]:
        """What an optimizer keeps for a variable, by name; made if it is not there."""
        shards = _shards_of(variable)
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
                self._cut[key] = _CutSlot(full, name, shards, parts)
            found[name] = self._cut[key]
        return found


class _Tree:
    """The objects that are reached from a root, each once, by the shortest way. Number 0 is the
    root, which has `attached` beside what it has itself."""

    def __init__(self, root: Any, attached: dict[str, Any], slots: _Slots | None = None) -> None:
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

    def _add_slots(self, slots: _Slots) -> None:
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
                if not any(id(shard) in kept for shard in _shards_of(variable)):
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


# --- Writing.


def _tensor_of(thing: Any) -> Any:
    """The value of something that this process writes."""
    if attribute_of(thing) != VARIABLE_VALUE:
        return convert(thing.save())
    values = [each._present() for each in _shards_of(thing)]
    return values[0] if len(values) == 1 else array.concat(values, 0)


def _write(prefix: str, tree: _Tree, options: CheckpointOptions) -> None:
    folder = os.path.dirname(prefix)
    os.makedirs(folder or ".", exist_ok=True)
    graph = _object_graph.encode(tree.nodes)
    away: dict[int, tuple[Any, list[tuple[str, str, Any]]]] = {}
    here: list[tuple[str, Any]] = []
    for key, thing in tree.valued():
        home = _home_of(thing) if attribute_of(thing) == VARIABLE_VALUE else None
        if home is None or options.is_local:
            here.append((key, thing))
        else:
            parts = [(key, part, variable) for variable, part in _parts_of(thing)]
            away.setdefault(id(home), (home, []))[1].extend(parts)
    shards = 1 + sum(home._count_files_of(parts) for home, parts in away.values())
    was_there = os.path.exists(prefix + ".index")
    try:
        _write_files(prefix, graph, here, list(away.values()), shards)
    except BaseException:
        if not was_there:
            remove_checkpoint(prefix)  # What was written of it.
        raise


def parts_elsewhere(checkpoint: Checkpoint, home: Any) -> list[tuple[str, str, Any]]:
    """The entries of a checkpoint that are of variables which `home` has, which part of an entry
    each variable is, and the variable."""
    return [
        (key, part, variable)
        for key, thing in checkpoint._tree(_Slots()).valued()
        if attribute_of(thing) == VARIABLE_VALUE and _home_of(thing) is home
        for variable, part in _parts_of(thing)
    ]


def _write_files(
    prefix: str, graph: bytes, here: Sequence[tuple[str, Any]],
    away: Sequence[tuple[Any, list[tuple[str, str, Any]]]], shards: int,
) -> None:  # fmt: skip
    with state.at_once():
        read = [thing for _, thing in here if attribute_of(thing) == VARIABLE_VALUE]
        with together(read, "VariableRead"):
            tensors = [(key, _tensor_of(thing)) for key, thing in here]
        tensors.append((_object_graph.ENTRY, convert(graph)))
        written = [_tensor_files.write(prefix, tensors, 0, shards)]
        for home, parts in away:
            written += home._save_variables(prefix, parts, len(written), shards)
        _tensor_files.commit(prefix, written)


# --- Restoring.


class _Restoration:
    """What is being restored from a checkpoint: which object of the program each of its objects is,
    as far as they are there yet."""

    def __init__(
        self, prefix: str, root: Any, attached: Callable[[], dict[str, Any]],
        options: CheckpointOptions,
    ) -> None:  # fmt: skip
        self.prefix = prefix
        self.reader = _tensor_files.opened(prefix)
        self._names = set(self.reader.names())
        if _object_graph.ENTRY not in self._names:
            raise errors.InvalidArgumentError(
                f"{prefix} has tensors by name and no graph of objects, by which a Checkpoint "
                "restores: a Saver wrote it. Read it with sidereal.train.load_checkpoint(), or "
                "restore it with a Saver"
            )
        graph = _tensor_files.as_python(self.reader.read(_object_graph.ENTRY))
        self.nodes = _object_graph.decode(graph, prefix)
        self.is_partial = False
        self._root, self._attached, self._options = root, attached, options
        self.slots = _Slots()
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
            if not options.experimental_skip_slot_variables
        ]
        self._is_busy = False
        #: Objects that are several in the program.
        self._doubted: set[int] = set()

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
            home = _home_of(thing) if attribute_of(thing) == VARIABLE_VALUE else None
            if home is None or self._options.is_local:
                here.append((key, thing))
            else:
                parts = [(key, part, variable) for variable, part in _parts_of(thing)]
                away.setdefault(id(home), (home, []))[1].extend(parts)
        values = [self.reader.read(key) for key, _ in here]
        variables = [each for _, each in here if attribute_of(each) == VARIABLE_VALUE]
        with together(variables, "VariableAssign"):
            for (_, thing), value in zip(here, values):
                _give(thing, value)
        for home, parts in away.values():
            home._restore_variables(self.prefix, parts)
        self.done.update(due)

    def _checked_key(self, node: Node, thing: Any) -> str:
        """The entry of an object's value; InvalidArgumentError when that is none for it."""
        attribute = attribute_of(thing)
        names = [each for each in node.attributes if each.name == attribute] or node.attributes
        key = names[0].key
        if key not in self._names:
            raise errors.DataLossError(
                f"{self.prefix}: its graph of objects names {key}, which it has not; restore "
                "another checkpoint"
            )
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
        return [
            attribute.key
            for number, node in enumerate(self.nodes)
            if number not in self.done
            for attribute in node.attributes
        ]

    def is_whole(self) -> bool:
        """Whether all of it was restored."""
        return not self._left and all(
            number in self.done for number, node in enumerate(self.nodes) if node.attributes
        )

    def present(self) -> list[tuple[str, Any]]:
        """What the program has now that has a value."""
        return list(_Tree(self._root, self._attached(), self.slots).valued())

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
                self.prefix, _some(unused),
            )  # fmt: skip


def _give(thing: Any, value: Any) -> None:
    """Gives an object the value that was restored."""
    if attribute_of(thing) != VARIABLE_VALUE:
        thing.restore(_tensor_files.as_python(value))
        return
    shards = _shards_of(thing)
    if len(shards) == 1:
        shards[0].assign(value)
        return
    begin = 0
    for shard in shards:
        shard.assign(value[begin : begin + shard.shape[0]])
        begin += shard.shape[0]


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


class CheckpointLoadStatus:
    """What restore() gives: says whether what was to be restored has been. Objects of the program
    that are not there yet are restored when they are made; all checks look at what there is when
    they are called."""

    def __init__(self, restoration: _Restoration) -> None:
        self._restoration = restoration

    def assert_consumed(self) -> CheckpointLoadStatus:
        """AssertionError unless all of the checkpoint was restored, and all objects were."""
        self.assert_existing_objects_matched()
        unused = self._restoration.unused()
        if unused:
            raise AssertionError(
                f"{self._restoration.prefix} has what the program has no object for: "
                f"{_some(unused)}"
            )
        return self

    def assert_existing_objects_matched(self) -> CheckpointLoadStatus:
        """AssertionError unless all objects with values were restored; the checkpoint may have
        more."""
        self._restoration.run()
        lost = [
            key
            for key, thing in self._restoration.present()
            if self._restoration.number_of(thing) not in self._restoration.done
        ]
        if lost:
            raise AssertionError(
                f"{self._restoration.prefix} has nothing for {len(lost)} objects of the program: "
                f"{_some(lost)}"
            )
        return self

    def assert_nontrivial_match(self) -> CheckpointLoadStatus:
        """AssertionError when nothing but the root was found in the checkpoint."""
        self._restoration.run()
        if set(self._restoration.objects) <= {0} and not self._restoration.done:
            names = [key for key, _ in self._restoration.present()]
            raise AssertionError(
                f"{self._restoration.prefix} has nothing but its root in common with the program, "
                f"which has: {_some(names) or 'nothing with a value'}"
            )
        return self

    def expect_partial(self) -> CheckpointLoadStatus:
        """There is no warning of what was restored to nothing."""
        self._restoration.is_partial = True
        return self

    def initialize_or_restore(self, session: Any = None) -> None:
        """As run_restore_ops()."""

    def run_restore_ops(self, session: Any = None) -> None:
        """Nothing is left to be run: values are restored when their objects are there."""


class InitializationOnlyStatus(CheckpointLoadStatus):
    """What restore(None) gives: nothing is restored, and checks say so."""

    def __init__(self) -> None:
        pass

    def _refuse(self) -> Any:
        raise AssertionError("no checkpoint was given (save_path=None): nothing was restored")

    assert_consumed = assert_existing_objects_matched = assert_nontrivial_match = _refuse

    def expect_partial(self) -> CheckpointLoadStatus:
        return self


# --- Checkpoint.


def counter(name: str) -> Variable:
    """A variable of this process, whatever scope it is made in, that counts."""
    with state.at_once():
        made: Variable = type.__call__(Variable, 0, trainable=False, name=name, dtype="int64")
    return made


class Checkpoint(Restored):
    """Objects that are saved and restored together (tf.train.Checkpoint).

        checkpoint = sidereal.train.Checkpoint(model=model, optimizer=optimizer)
        path = checkpoint.save("folder/ckpt")
        checkpoint.restore(path).assert_consumed()

    Objects are variables, variables in shards, layers, models, optimizers, iterators of datasets,
    other Checkpoints, and lists, tuples, dicts and objects of one's own that have such. They are
    found by what they are called in what has them, so that variables may have other names where
    they are restored. What is not there yet is restored when it is made.

    Variables on parameter servers are written by these, each to a file of its own, on a file system
    that all reach; they may be restored to other numbers of servers and of shards.

    root: an object whose members are members of this one.
    """

    def __init__(self, root: Any = None, **kwargs: Any) -> None:
        if root is not None and not is_trackable(root) and not _is_container(root):
            raise ValueError(f"root is {root!r}, which has nothing that could be saved")
        self._root = root
        self._save_counter: Variable | None = None
        for name, value in kwargs.items():
            if not is_trackable(value) and not _is_container(value):
                raise ValueError(
                    f"Checkpoint({name}=...) is given {value!r}, which has nothing that could be "
                    "saved: give variables, layers, models, optimizers, iterators, or objects that "
                    "have such; a number as a sidereal.Variable"
                )
            there = children_of(root).get(name) if root is not None else None
            if there is not None and there is not value:
                raise ValueError(
                    f"Checkpoint(root, {name}=...): the root has another object called '{name}'"
                )
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name != "_restorations":
            self._has_grown()

    def _has_grown(self) -> None:
        for each in self._restorations:
            each.go_on_at(self._top)

    @property
    def _top(self) -> Any:
        return self if self._root is None else self._root

    def _own(self) -> dict[str, Any]:
        """What it has beside what the root has."""
        found = {
            name: value
            for name, value in sorted(vars(self).items())
            if not name.startswith("_") and is_trackable(value)
        }
        if self._save_counter is not None:
            found["save_counter"] = self._save_counter
        return found

    def _trackable_children(self) -> dict[str, Any]:
        return (children_of(self._root) if self._root is not None else {}) | self._own()

    @property
    def save_counter(self) -> Variable:
        """How many checkpoints save() has written: the number in their names."""
        if self._save_counter is None:
            self._save_counter = counter("save_counter")
        return self._save_counter

    def save(self, file_prefix: Any, options: CheckpointOptions | None = None) -> str:
        """Writes "FILE_PREFIX-NUMBER", says in its folder's file `checkpoint` that it is the
        newest, and gives the prefix. See write()."""
        prefix = os.fspath(file_prefix)
        self.save_counter.assign_add(1)
        written = self.write(f"{prefix}-{int(self.save_counter)}", options)
        update_checkpoint_state(os.path.dirname(written) or ".", written, [written])
        return written

    def write(self, file_prefix: Any, options: CheckpointOptions | None = None) -> str:
        """Writes a checkpoint of that prefix, which is there whole or not at all, and gives the
        prefix. Of variables that functions of workers change meanwhile, each lane of a parameter
        server writes those of one instant; ClusterCoordinator.join() before it for one of all.

        Errors: PermissionDeniedError and ResourceExhaustedError of the file system; those of the
        cluster.
        """
        _check_eager("write")
        prefix = os.fspath(file_prefix)
        chosen = options or CheckpointOptions()
        slots = None if chosen.experimental_skip_slot_variables else _Slots()
        _write(prefix, self._tree(slots), chosen)
        for callback in chosen.experimental_write_callbacks or ():
            _call_back(callback, prefix)
        return prefix

    def _tree(self, slots: _Slots | None) -> _Tree:
        return _Tree(self._top, self._own() if self._root is not None else {}, slots)

    def restore(
        self, save_path: Any, options: CheckpointOptions | None = None
    ) -> CheckpointLoadStatus:
        """Gives objects the values that they had in a checkpoint of save() or write(), the number
        of the last save() among them. See read(). None: restores nothing.

        Errors: NotFoundError without the checkpoint; InvalidArgumentError for values of another
        dtype or shape than the program has; DataLossError.
        """
        if save_path is None:
            return InitializationOnlyStatus()
        _ = self.save_counter
        return self.read(save_path, options)

    def read(
        self, save_path: Any, options: CheckpointOptions | None = None
    ) -> CheckpointLoadStatus:
        """restore(), but for the number of the last save(), which stays as it is if there was none
        in this program."""
        _check_eager("read")
        prefix = os.fspath(save_path)
        if os.path.isdir(prefix):
            raise errors.NotFoundError(
                f"{prefix} is a folder: give the prefix of a checkpoint in it, as "
                f"sidereal.train.latest_checkpoint({prefix!r}) does"
            )

        def attached() -> dict[str, Any]:
            return self._own() if self._root is not None else {}

        made = _Restoration(prefix, self._top, attached, options or CheckpointOptions())
        object.__setattr__(self, "_restorations", (made,))
        try:
            made.run()
        except BaseException:
            made.give_up()
            object.__setattr__(self, "_restorations", ())
            raise
        return CheckpointLoadStatus(made)


def _is_container(value: Any) -> bool:
    return isinstance(value, (list, tuple, dict))


def _check_eager(method: str) -> None:
    if state.graph is not None:
        raise errors.FailedPreconditionError(
            f"Checkpoint.{method}() is called while a function is traced or a graph is built: call "
            "it outside"
        )


def _call_back(callback: Callable[..., Any], prefix: str) -> None:
    code = getattr(callback, "__code__", None)
    takes = 1 if code is None else code.co_argcount - hasattr(callback, "__self__")
    callback(prefix) if takes else callback()


# --- By name.


class CheckpointReader:
    """What a checkpoint has, by name (tf.train.load_checkpoint): values are read when they are
    asked for."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._reader = _tensor_files.opened(prefix)
        self._names = set(self._reader.names())

    def has_tensor(self, tensor_name: str) -> bool:
        """Whether it has something of that name."""
        return tensor_name in self._names

    def get_tensor(self, tensor_name: str) -> Any:
        """A value as an array, that of a variable in shards whole; strings as bytes."""
        self._check(tensor_name)
        return self._reader.read(tensor_name).numpy()

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        """The shapes of all, by name."""
        return {name: list(self._reader.shape(name)) for name in sorted(self._names)}

    def get_variable_to_dtype_map(self) -> dict[str, Any]:
        """The dtypes of all, by name."""
        return {name: dtypes.as_dtype(self._reader.dtype(name)) for name in sorted(self._names)}

    def _check(self, name: str) -> None:
        if name not in self._names:
            raise errors.NotFoundError(
                f"{self.prefix} has no tensor '{name}'; list_variables() says what it has: "
                f"{_some(sorted(self._names))}"
            )

    def debug_string(self) -> str:
        """A line for each tensor."""
        shapes, types = self.get_variable_to_shape_map(), self.get_variable_to_dtype_map()
        return "".join(f"{name} ({name_of(types[name])}) {shapes[name]}\n" for name in shapes)


def load_checkpoint(ckpt_dir_or_file: Any) -> CheckpointReader:
    """What a checkpoint has (tf.train.load_checkpoint): that of a prefix, or the newest one of a
    folder. NotFoundError where there is none."""
    given = os.fspath(ckpt_dir_or_file)
    prefix = latest_checkpoint(given) if os.path.isdir(given) else given
    if prefix is None:
        raise errors.NotFoundError(
            f"no checkpoint is named by {os.path.join(given, 'checkpoint')}: give the prefix of one"
        )
    return CheckpointReader(prefix)


def load_variable(ckpt_dir_or_file: Any, name: str) -> Any:
    """A value of a checkpoint (tf.train.load_variable). `name` may end with ":0"."""
    return load_checkpoint(ckpt_dir_or_file).get_tensor(name.removesuffix(":0"))


def list_variables(ckpt_dir_or_file: Any) -> list[tuple[str, list[int]]]:
    """Names and shapes of all that a checkpoint has (tf.train.list_variables)."""
    shapes = load_checkpoint(ckpt_dir_or_file).get_variable_to_shape_map()
    return sorted(shapes.items())


__all__ = [
    "Checkpoint", "CheckpointLoadStatus", "CheckpointOptions", "CheckpointReader",
    "InitializationOnlyStatus", "list_variables", "load_checkpoint", "load_variable",
]  # fmt: skip
