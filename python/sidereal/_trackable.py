"""What objects say of themselves to be saved in a checkpoint and restored from it.

Something with values is a class with `_checkpoint_attribute`: "VARIABLE_VALUE" of what is a
variable to programs; of anything else, whose save() gives bytes, or a list of such, that restore()
takes, another name. With `_checkpoint_parts`, save() gives as many tensors, which restore() takes,
and the names of their entries end with these.
What is made of others has a method _trackable_children(): these, by what they are called. So have,
without saying so, lists, tuples, dicts, and objects of classes that are not this package's.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from typing import Any

#: The attribute of variables.
VARIABLE_VALUE = "VARIABLE_VALUE"

#: Objects of these packages have no members to be looked at.
_FOREIGN = {
    "_thread", "asyncio", "builtins", "collections", "concurrent", "functools", "io", "logging",
    "multiprocessing", "numpy", "pathlib", "sidereal", "socket", "subprocess", "threading", "tqdm",
    "weakref",
}  # fmt: skip
_NO_OBJECTS = (type, types.ModuleType, types.FunctionType, types.MethodType)


class Restored:
    """Base of what may get more members after it was restored, which are restored then."""

    #: Restorations that have something for it, the newest.
    _restorations: tuple[Any, ...] = ()

    def _has_grown(self) -> None:
        """To be called when there are new members."""
        for each in self._restorations:
            each.go_on_at(self)


def attribute_of(value: Any) -> str | None:
    """What the value of an object is called in a checkpoint; None: it has none."""
    return getattr(type(value), "_checkpoint_attribute", None)


def parts_of_value(value: Any) -> tuple[str, ...]:
    """What the names of the entries of an object's value end with, of each of its tensors."""
    return getattr(type(value), "_checkpoint_parts", ("",))


def _members(value: Any) -> Iterable[tuple[Any, Any]]:
    """What an object has, without knowing of what kind that is, with its names."""
    if attribute_of(value) is not None or isinstance(value, (*_NO_OBJECTS, str, bytes)):
        return ()
    if isinstance(value, (list, tuple)):
        return enumerate(value)
    if isinstance(value, Mapping):
        return value.items()
    if type(value).__module__.split(".")[0] in _FOREIGN:
        return ()
    return getattr(value, "__dict__", {}).items()


def is_trackable(value: Any, seen: set[int] | None = None) -> bool:
    """Whether an object, or one that it has, has something to be saved."""
    if attribute_of(value) is not None or hasattr(type(value), "_trackable_children"):
        return True
    seen = set() if seen is None else seen
    if id(value) in seen:
        return False
    seen.add(id(value))
    return any(is_trackable(each, seen) for _, each in _members(value))


def children_of(value: Any) -> dict[str, Any]:
    """What an object has that is to be saved, by its names."""
    if hasattr(type(value), "_trackable_children"):
        found: dict[str, Any] = value._trackable_children()
        return found
    return {str(name): each for name, each in _members(value) if is_trackable(each)}
