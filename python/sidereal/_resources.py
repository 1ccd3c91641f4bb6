"""What the classes of queues, accumulators and tables have in common: a name, a handle, and
results of ops that are run for what they do."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from . import dtypes
from ._dispatch import ENGINE, apply, state
from ._native import Output, Tensor

_counter = itertools.count(1)


def component_attrs(types: Iterable[Any], shapes: Iterable[Any] | None) -> dict[str, Any]:
    """Attributes "dtypes" and "shapes" of an op with these components."""
    attrs: dict[str, Any] = {"dtypes": [dtypes.name_of(dtype) for dtype in types]}
    if shapes is not None:
        numbers: list[int] = []
        for shape in shapes:
            if shape is None:
                numbers.append(-1)
                continue
            numbers += [len(shape), *(-1 if extent is None else int(extent) for extent in shape)]
        attrs["shapes"] = numbers
    return attrs


def done(value: Any) -> Any:
    """What a method gives back whose op is run for what it does: None, in a sidereal.v1 graph the
    operation to run, in that of a model what its add_update() takes."""
    if state.graph is not None and not isinstance(value, Tensor):
        return state.graph.operation(value)
    return value if type(value) is Output else None


def _own_name(name: str) -> str:
    made = None if state.graph is None else state.graph.resource_name(name)
    return made or f"{name}_{next(_counter)}"


class Resource:
    """Something of a name that ops share. `handle` is a scalar string tensor: the name. Without a
    shared name, it goes when this object does."""

    def __init__(
        self, op: str, attrs: Mapping[str, Any], name: str, shared_name: str | None,
        inputs: Sequence[Any] = (),
    ) -> None:  # fmt: skip
        self.name = shared_name or _own_name(name)
        container = None if state.graph is None else state.graph.container_name or None
        attrs = {**attrs, "shared_name": self.name, "container": container}
        self.handle = apply(op, inputs, attrs, name=name)
        if not shared_name and isinstance(self.handle, Tensor):
            weakref.finalize(self, ENGINE.erase_resource, self.name).atexit = False

    def _apply(
        self, op: str, inputs: Sequence[Any] = (), attrs: Any = None, name: str | None = None
    ) -> Any:
        return apply(op, (self.handle, *inputs), attrs, name=name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} '{self.name}'>"
