"""Objects that have variables: sidereal.Module (tf.Module)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from ._trackable import is_trackable
from .variable import Variable

__all__ = ["Module"]

_Method = TypeVar("_Method", bound=Callable[..., Any])


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _parts(value: Any) -> Iterator[Any]:
    """What an attribute is made of, as far as that may have variables."""
    if isinstance(value, Mapping):
        for key in value:
            yield from _parts(value[key])
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _parts(each)
    else:
        yield value


class Module:
    """Base of classes whose attributes are variables, layers and other modules; lists, tuples and
    dicts of them count. Checkpoints and saved models take an object of any class; what a module has
    besides is `variables`, `trainable_variables` and `submodules`."""

    def __init__(self, name: str | None = None) -> None:
        if name is not None and not name.isidentifier():
            raise ValueError(f"'{name}' is no name of a module: it must be a name of Python")
        self._name = name or _snake(type(self).__name__)

    @property
    def name(self) -> str:
        """That it was given, or that of its class in snake_case."""
        return getattr(self, "_name", None) or _snake(type(self).__name__)

    def _trackable_children(self) -> dict[str, Any]:
        return {name: each for name, each in vars(self).items() if is_trackable(each)}

    def _attributes(self) -> Iterator[Any]:
        for name in sorted(vars(self)):
            yield from _parts(vars(self)[name])

    def _walk(self) -> Iterator[Module]:
        """This module and those in it, each once."""
        seen: set[int] = set()
        waiting = [self]
        while waiting:
            module = waiting.pop(0)
            if id(module) in seen:
                continue
            seen.add(id(module))
            yield module
            waiting += [each for each in module._attributes() if isinstance(each, Module)]

    def _found(self, of_layer: str, wanted: Callable[[Any], bool]) -> tuple[Any, ...]:
        found: dict[int, Any] = {}
        for module in self._walk():
            for each in module._attributes():
                if isinstance(each, Variable):
                    variables = [each]
                elif isinstance(each, Module):
                    variables = []
                else:  # A layer, or a model.
                    variables = list(getattr(each, of_layer, None) or ())
                found |= {id(one): one for one in variables if wanted(one)}
        return tuple(found.values())

    @property
    def variables(self) -> tuple[Any, ...]:
        """The variables of it and of all that it has, in the order of attributes' names."""
        return self._found("variables", lambda one: True)

    @property
    def trainable_variables(self) -> tuple[Any, ...]:
        """Those that are trained."""
        return self._found("trainable_variables", lambda one: bool(one.trainable))

    @property
    def non_trainable_variables(self) -> tuple[Any, ...]:
        """Those that are not."""
        trained = {id(one) for one in self.trainable_variables}
        return tuple(one for one in self.variables if id(one) not in trained)

    @property
    def submodules(self) -> tuple[Module, ...]:
        """The modules in it, without itself."""
        return tuple(self._walk())[1:]

    @classmethod
    def with_name_scope(cls, method: _Method) -> _Method:
        """`method` itself: names of variables are those that they are given."""
        return method
