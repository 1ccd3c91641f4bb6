"""What a Saver saves: variables, and objects that say what of them is to be saved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from .._iterators import GraphIterator
from .._native import Output
from .._resources import component_attrs
from ..device_spec import DeviceSpec
from ..lookup import experimental as _lookup
from .graph import Graph, GraphKeys, get_default_graph
from .movable import together
from .partitioned import PartitionedVariable
from .variables import Variable, global_variables

_Thing = TypeVar("_Thing")


@dataclass(frozen=True)
class Entry:
    """A variable, or a part of one that was cut, and how files call it."""

    name: str
    variable: Variable
    #: Which part of the whole it is; "": all of it.
    slices: str


@dataclass(frozen=True)
class SaveSpec:
    """A value that is saved, and how files call it."""

    tensor: Output
    name: str


class SaveableObject:
    """Something beside variables that a Saver saves and restores, of which it saves `specs`
    (TensorFlow's SaveableObject). It is written by the task that has it.

    op: what it is of.
    """

    def __init__(self, op: Any, specs: Sequence[SaveSpec], name: str) -> None:
        self.op, self.specs, self.name = op, list(specs), name

    @property
    def device(self) -> str:
        """Where it is."""
        return self.specs[0].tensor.op.device or ""

    def restore(self, restored_tensors: Sequence[Any], restored_shapes: Any) -> Any:
        """The operation that gives it the values of its specs."""
        raise NotImplementedError(f"{type(self).__name__}.restore()")


class _ResourceSaveable(SaveableObject):
    """What the task of an iterator or a table writes of it."""

    def __init__(self, resource: Any, name: str, save: Callable[[], Sequence[SaveSpec]]) -> None:
        graph = get_default_graph()
        with graph.init_scope(), graph.building():
            with graph.colocate_with(resource.handle.op, ignore_existing=True):
                super().__init__(resource, save(), name)

    @property
    def device(self) -> str:
        found: str = self.op.handle.op.device or ""
        return found


class _IteratorSaveable(_ResourceSaveable):
    """Where an iterator is."""

    def __init__(self, iterator: GraphIterator, name: str) -> None:
        super().__init__(iterator, name, lambda: [SaveSpec(iterator.save(), f"{name}_STATE")])

    def restore(self, restored_tensors: Sequence[Any], restored_shapes: Any) -> Any:
        return self.op.restore(restored_tensors[0])


class _TableSaveable(_ResourceSaveable):
    """Keys and values of a table."""

    def __init__(self, table: Any, name: str) -> None:
        def save() -> list[SaveSpec]:
            keys, values = table.export()
            return [SaveSpec(keys, f"{name}-keys"), SaveSpec(values, f"{name}-values")]

        super().__init__(table, name, save)

    def restore(self, restored_tensors: Sequence[Any], restored_shapes: Any) -> Any:
        return self.op._import(*restored_tensors)


def make_saveable_from_iterator(
    iterator: Any, external_state_policy: str | None = None
) -> SaveableObject:
    """What a Saver saves of an iterator of a graph, where it is
    (tf.data.experimental.make_saveable_from_iterator):

        saveable = tf.data.experimental.make_saveable_from_iterator(iterator)
        tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, saveable)

    external_state_policy: "fail", "warn" or "ignore"; what an iterator holds is part of where it
        is in any case.
    """
    if external_state_policy not in (None, "fail", "warn", "ignore"):
        raise ValueError(
            f"external_state_policy is {external_state_policy!r}; it is 'fail', 'warn' or 'ignore'"
        )
    if not isinstance(iterator, GraphIterator):
        raise ValueError(
            f"make_saveable_from_iterator() takes an iterator of a graph, as "
            f"data.make_one_shot_iterator() gives it, and not {iterator!r}"
        )
    return _IteratorSaveable(iterator, iterator.handle.name)


def saved_of(var_list: Any) -> tuple[list[Entry], list[SaveableObject]]:
    """Variables and other objects that are saved, in the order of names; None: the global ones, and
    what is in the collection SAVEABLE_OBJECTS."""
    if var_list is None:
        var_list = global_variables()
        var_list += get_default_graph().get_collection(GraphKeys.SAVEABLE_OBJECTS)
    entries: list[Entry] = []
    objects: list[SaveableObject] = []
    named: Iterable[tuple[str | None, Any]]
    if isinstance(var_list, Mapping):
        named = var_list.items()
    else:
        named = ((None, given) for given in var_list)
    for name, given in named:
        made = _object(given, name)
        if made is not None:
            objects.append(made)
            continue
        parts = _parts(given)
        is_part = name is not None and len(parts) > 1
        entries += [_entry(part, name, is_part) for part in parts]
    _check_names(entries, objects)
    return (
        sorted(entries, key=lambda entry: entry.name), sorted(objects, key=lambda one: one.name)
    )  # fmt: skip


def _object(given: Any, name: str | None) -> SaveableObject | None:
    if isinstance(given, SaveableObject):
        return given
    if isinstance(given, _lookup.MutableHashTable):
        return _TableSaveable(given, name or given.handle.op.name)
    return None


def _check_names(entries: Sequence[Entry], objects: Sequence[SaveableObject]) -> None:
    seen: set[tuple[str, str]] = set()
    once: dict[int, str] = {}
    for name, part, thing in [
        *((entry.name, entry.slices, entry.variable) for entry in entries),
        *((spec.name, "", spec) for each in objects for spec in each.specs),
    ]:
        if (name, part) in seen:
            raise ValueError(f"At least two variables have the same name: {name}")
        if id(thing) in once:
            raise ValueError(f"The same variable is saved as {once[id(thing)]} and as {name}")
        seen.add((name, part))
        once[id(thing)] = name


def _parts(given: Any) -> list[Variable]:
    if isinstance(given, (PartitionedVariable, list, tuple)):
        return list(given)
    return [given]


def _entry(variable: Any, name: str | None = None, is_part: bool = False) -> Entry:
    if not isinstance(variable, Variable):
        raise TypeError(
            f"Variable to save is not a Variable: {variable!r}; a Saver takes variables, tables "
            "and SaveableObjects of a graph"
        )
    info = variable._get_save_slice_info()
    if info is None:
        if is_part:
            raise ValueError(f"'{variable.op.name}' is no part of a variable that was cut")
        return Entry(name or variable.op.name, variable, "")
    return Entry(name or info.full_name, variable, info.spec)


def by_task(
    things: Sequence[_Thing], device_of: Callable[[_Thing], str]
) -> dict[str, list[_Thing]]:
    """What each task has, "" for any: what one node saves."""
    groups: dict[str, list[_Thing]] = {}
    for thing in things:
        spec = DeviceSpec.from_string(device_of(thing))
        task = spec.replace(device_type=None, device_index=None).to_string()
        groups.setdefault(task, []).append(thing)
    return groups


def by_group(entries: Sequence[Entry], graph: Graph) -> list[list[Entry]]:
    """Variables that are always on one task: what one node saves where they may move."""
    roots = together(graph)
    groups: dict[int, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(roots[entry.variable.handle.node], []).append(entry)
    return list(groups.values())


# --- Nodes.


def save_objects(
    graph: Graph, prefix: Any, objects: Sequence[SaveableObject], shard: int, shards: int
) -> Any:
    """What writes objects of one task, as data file `shard` of so many."""
    specs = [spec for each in objects for spec in each.specs]
    attrs = {"names": [spec.name for spec in specs], "shard": shard, "shards": shards}
    with graph.colocate_with(specs[0].tensor.op, ignore_existing=True):
        tensors = [spec.tensor for spec in specs]
        return graph.add("SaveTensors", [prefix, *tensors], attrs, "SaveTensors")


def restore_objects(graph: Graph, prefix: Any, objects: Sequence[SaveableObject]) -> list[Any]:
    """What reads objects of one task, and gives them what they had."""
    specs = [spec for each in objects for spec in each.specs]
    attrs = {"names": [spec.name for spec in specs]}
    attrs |= component_attrs((spec.tensor.dtype for spec in specs), [None] * len(specs))
    with graph.colocate_with(specs[0].tensor.op, ignore_existing=True):
        read = graph.add("RestoreTensors", [prefix], attrs, "RestoreTensors")
        values = list(read) if isinstance(read, (list, tuple)) else [read]
        restored = []
        for each in objects:
            own, values = values[: len(each.specs)], values[len(each.specs) :]
            restored.append(each.restore(own, None))
    return restored


__all__ = [
    "Entry", "SaveSpec", "SaveableObject", "by_group", "by_task", "make_saveable_from_iterator",
    "restore_objects", "save_objects", "saved_of",
]  # fmt: skip
