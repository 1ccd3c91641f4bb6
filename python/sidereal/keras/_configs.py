"""Objects that can be written as a config and made again from it, or found by a name."""

from __future__ import annotations

import difflib
import inspect
import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

_counts: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)


def snake_case(name: str) -> str:
    """ "MeanSquaredError" as "mean_squared_error"."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def own_name(of: object, kind: str = "") -> str:
    """A name for an object that was given none: that of its class, or of its `kind`, with a number
    if it is not the first one."""
    base = snake_case(kind or type(of).__name__)
    number = next(_counts[base])
    return base if number == 0 else f"{base}_{number}"


class Configured:
    """Base of what can be made again from the arguments it was made with."""

    _arguments: dict[str, Any]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        self = super().__new__(cls)
        if cls.__init__ is object.__init__ and (args or kwargs):
            raise TypeError(f"{cls.__name__}() takes no arguments")
        signature = inspect.signature(cls.__init__)
        try:
            given = signature.bind(self, *args, **kwargs)
        except TypeError:
            return self  # __init__ says what is wrong, or it is a copy that is being made.
        given.apply_defaults()
        arguments = dict(given.arguments)
        del arguments[next(iter(signature.parameters))]
        for name, parameter in signature.parameters.items():
            if parameter.kind == inspect.Parameter.VAR_KEYWORD:
                arguments |= arguments.pop(name)
            elif parameter.kind == inspect.Parameter.VAR_POSITIONAL:
                arguments.pop(name, None)
        self._arguments = arguments
        return self

    def get_config(self) -> dict[str, Any]:
        """The arguments it was made with, as numbers, text and lists where these can say it."""
        present = {
            name: getattr(self, name)
            for name in ("name", "dtype")
            if name in self._arguments and hasattr(self, name)
        }
        return {name: _plain(value) for name, value in (self._arguments | present).items()}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Any:
        """An object like the one that gave this config."""
        return cls(**config)


def names_like(name: str, known: Iterable[str]) -> str:
    """What a message says of the names there are: those that are like one that is not known, or all
    of them, each in one spelling."""
    by_word: dict[str, str] = {}
    for each in known:
        by_word.setdefault(snake_case(each), each)
    near = difflib.get_close_matches(snake_case(name), by_word)
    if near:
        return f"names like it: {', '.join(by_word[each] for each in near)}"
    return f"there are: {', '.join(by_word.values())}"


def one_of(where: str, name: str, value: Any, allowed: Sequence[str]) -> str:
    """The text in `allowed` that an argument is, in whatever case; ValueError if it is none."""
    for each in allowed:
        if str(value).lower() == each.lower():
            return each
    raise ValueError(f"{where}: {name} is {value!r}; it must be one of {', '.join(allowed)}")


def parameter(name: str, default: Any) -> inspect.Parameter:
    """An argument that has a default."""
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default)


def own_parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The arguments of a function of (y_true, y_pred, ...) behind these two."""
    return list(inspect.signature(function).parameters.values())[2:]


def constructor(
    parameters: Iterable[inspect.Parameter], init: Callable[[Any, dict[str, Any]], None]
) -> Callable[..., None]:
    """An __init__ of these parameters that ends in init(self, arguments), `arguments` having a
    value for each of them."""
    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    signature = inspect.Signature([first, *parameters])

    def bound(*args: Any, **kwargs: Any) -> None:
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{type(args[0]).__name__}(): {error}") from None
        given.apply_defaults()
        arguments = dict(given.arguments)
        init(arguments.pop("self"), arguments)

    bound.__signature__ = signature  # type: ignore[attr-defined]
    return bound


def _plain(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


class Registry:
    """What is known of one kind by name, and get(), serialize() and deserialize() of its module.

    `module`: the module of Keras that has it. `named`: classes and functions that have a name of
    their own, classes that in snake case too; `aliases`: other names.
    """

    def __init__(
        self, module: str, named: Iterable[Any], aliases: Mapping[str, Any] | None = None
    ) -> None:
        self.module = module
        self._kind = module.rsplit(".", 1)[-1]
        self._named = {each.__name__: each for each in named}
        in_snake_case = {snake_case(name): each for name, each in self._named.items()}
        self._known = {**in_snake_case, **self._named, **(aliases or {})}

    def get(self, identifier: Any) -> Any:
        """An object from itself, its class, a name or a config; None from None."""
        if identifier is None:
            return None
        if isinstance(identifier, Mapping):
            return self.deserialize(identifier)
        found = identifier
        if isinstance(identifier, str):
            found = self._find(identifier, {})
        elif not callable(identifier):
            raise ValueError(
                f"keras.{self._kind}.get(): {identifier!r} is none of them; give a name, a config, "
                "or something that can be called"
            )
        return found() if inspect.isclass(found) else found

    def _find(self, name: str, custom_objects: Mapping[str, Any]) -> Any:
        found = custom_objects.get(name, self._known.get(name))
        if found is None:
            raise ValueError(
                f"keras.{self._kind} has nothing called {name!r}; {names_like(name, self._known)}"
            )
        return found

    def serialize(self, what: Any) -> Any:
        """A function as its name, an object as the names of its module and class and its config."""
        if what is None or isinstance(what, str):
            return what
        if inspect.isfunction(what) or not hasattr(what, "get_config"):
            name = getattr(what, "__name__", "")
            if not name.isidentifier():
                raise ValueError(f"keras.{self._kind}.serialize(): {what!r} has no name")
            return name
        cls = type(what)
        known = self._named.get(cls.__name__) is cls
        return {
            "module": self.module if known else cls.__module__,
            "class_name": cls.__name__,
            "config": what.get_config(),
            "registered_name": None if known else cls.__name__,
        }

    def deserialize(self, config: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
        """The reverse of serialize(); `custom_objects` has by name what is not known here."""
        if not isinstance(config, Mapping):
            named = isinstance(config, str)
            return self.get(self._find(config, custom_objects or {}) if named else config)
        if "class_name" not in config:
            raise ValueError(
                f"keras.{self._kind}.deserialize(): a config has class_name and config; this has: "
                f"{', '.join(map(str, config)) or 'nothing'}"
            )
        made = self._find(config["class_name"], custom_objects or {})
        if not isinstance(made, type):
            return made
        cls: Any = made
        return cls.from_config(config.get("config") or {})
