"""What people are told who use a function, a class or a command wrongly: what is wrong, and what
may have been meant."""

from __future__ import annotations

import argparse
import difflib
import functools
import inspect
import operator
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")
_T = TypeVar("_T")

#: Control characters but the tab, and bytes of files that were no UTF-8.
_UNPRINTABLE = re.compile("[\\x00-\\x08\\x0a-\\x1f\\x7f-\\x9f\\udc80-\\udcff]")


def did_you_mean(name: str, known: Iterable[str], mark: str = "") -> str:
    """What a message about an unknown name goes on with, `mark` standing before names; "" if none
    is like it."""
    near = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {mark}{near[0]}?" if near else ""


def explains(positional: str = "", **meant: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Makes a function say, of arguments that it does not take, what to write instead: `meant` by
    the names that other libraries have for them, `positional` for too many without a name."""

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            try:
                signature.bind(*args, **kwargs)
            except TypeError as error:
                hints = _hints(list(signature.parameters), positional, meant, kwargs)
                raise TypeError(f"{function.__qualname__}(): {error}{hints}") from None
            return function(*args, **kwargs)

        return checked

    return decorate


def _hints(known: list[str], positional: str, meant: dict[str, str], given: dict[str, Any]) -> str:
    unknown = [name for name in given if name not in known]
    if not unknown:
        return f"; {positional}" if positional else ""
    return "".join(
        f"; {meant[name]}" if name in meant else did_you_mean(name, known) for name in unknown
    )


def lacks(**instead: str) -> Callable[[type[_T]], type[_T]]:
    """Makes objects of a class say, of attributes that they do not have, what to write instead, by
    the names that other libraries have for them."""

    def missing(self: Any, name: str) -> NoReturn:
        hint = f"; {instead[name]}" if name in instead else ""
        text = f"'{type(self).__name__}' object has no attribute '{name}'{hint}"
        raise AttributeError(text, name=name, obj=self)

    def decorate(made: type[_T]) -> type[_T]:
        setattr(made, "__getattr__", missing)
        return made

    return decorate


def whole(function: str, name: str, value: Any) -> int:
    """`value` as an int, or TypeError naming the argument of the function."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{function}(): {name} is {value!r}; it must be a whole number") from None


def real(function: str, name: str, value: Any) -> float:
    """`value` as a float, or TypeError naming the argument of the function."""
    if isinstance(value, str | bytes):
        raise TypeError(f"{function}(): {name} is {value!r}; it must be a number")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{function}(): {name} is {value!r}; it must be a number") from None


def printable(text: str) -> str:
    """`text` as a terminal may get it: control characters, which could move its cursor or change
    its colours, and bytes that were no UTF-8, are written as \\xHH."""

    def escaped(found: re.Match[str]) -> str:
        return "".join(f"\\x{byte:02x}" for byte in found[0].encode("utf-8", "surrogateescape"))

    return _UNPRINTABLE.sub(escaped, text)


def say(command: str, text: str) -> None:
    """What a command has to say, as a line on standard error."""
    line = printable(text.replace("\n", " "))
    print(f"sidereal {command}: {line}", file=sys.stderr, flush=True)


class Parser(argparse.ArgumentParser):
    """The parser of a command. An option that there is not is named before anything else that is
    wrong, with the one that may have been meant."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        words = sys.argv[1:] if args is None else args
        unknown = self._unknown(words)
        if unknown is not None:
            known = [name[2:] for name in self._option_string_actions if name.startswith("--")]
            meant = did_you_mean(unknown[2:], known, "--")
            self.error(f"there is no option {unknown}{meant} (see {self.prog} --help)")
        return super().parse_known_args(words, namespace)

    def _unknown(self, words: Sequence[str]) -> str | None:
        """The first long option that is none, nor the beginning of one."""
        is_prefix = any(action.nargs == argparse.REMAINDER for action in self._actions)
        left = iter(words)
        for word in left:
            if word == "--" or (is_prefix and not word.startswith("-")):
                return None  # What follows is another program's.
            if not word.startswith("--"):
                continue
            name, equals, _ = word.partition("=")
            meant = [known for known in self._option_string_actions if known.startswith(name)]
            if not meant:
                return name
            if not equals and self._option_string_actions[meant[0]].nargs is None:
                next(left, None)  # Its value.
        return None

    def error(self, message: str) -> NoReturn:
        super().error(printable(message))
