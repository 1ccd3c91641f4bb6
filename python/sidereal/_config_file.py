"""Options of Python's commands in a file: `--config FILE`, as `sidereal train` takes it."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import _native, errors
from ._usage import did_you_mean


def read_toml(path: Path) -> tuple[dict[str, Any], str]:
    """What a file says, and its text. Errors name it, and the line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise errors.NotFoundError(f"{path}: this file cannot be read: {error}") from None
    try:
        read: dict[str, Any] = json.loads(_native.parse_toml(text))
    except errors.InvalidArgumentError as error:
        at = re.match(r"line (\d+): ", error.message)
        rest = error.message[at.end() :] if at else error.message
        place = f"{path}:{at[1]}" if at else str(path)
        raise errors.InvalidArgumentError(f"{place}: {rest}") from None
    return read, text


def _line_of(key: str, text: str) -> int:
    begins = re.compile(rf"\s*(?:\[\s*)?[\"']?{re.escape(key)}[\"']?\s*[=.\]]")
    for number, line in enumerate(text.splitlines(), 1):
        if begins.match(line):
            return number
    return 1


def add_config_option(parser: argparse.ArgumentParser) -> None:
    """Adds --config, which parse() takes."""
    parser.add_argument(
        "--config", metavar="FILE",
        help="a file of options by their long names (TOML); what the command line says counts more",
    )  # fmt: skip


def _words(name: str, action: argparse.Action, value: Any) -> list[str]:
    """What a value of a file is as words of a command line."""
    if action.nargs == 0:
        if not isinstance(value, bool):
            raise ValueError(f"'{name}' must be true or false")
        return [f"--{name}"] if value else []
    several = isinstance(action, argparse._AppendAction)
    if isinstance(value, list) and several:
        texts = value
    elif isinstance(value, list):
        # Lists of an option are names with commas between them.
        texts = [",".join(str(one) for one in value)]
    else:
        texts = [value]
    if any(isinstance(text, (bool, dict, list)) for text in texts):
        raise ValueError(f"'{name}' must be a text or a number")
    return [f"--{name}={text}" for text in texts if text != ""]


def with_config(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> list[str]:
    """`arguments` with what the file of --config says that they do not say themselves.
    InvalidArgumentError, with file and line, for what no option is, or no value of it."""
    own = list(arguments)
    finder = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    finder.add_argument("--config")
    path = finder.parse_known_args(own)[0].config
    if path is None:
        return own
    read, text = read_toml(Path(path))
    known = {
        name[2:]: action
        for name, action in parser._option_string_actions.items()
        if name.startswith("--") and name not in ("--help", "--config")
    }
    given = {
        id(parser._option_string_actions[word.partition("=")[0]])
        for word in own
        if word.partition("=")[0] in parser._option_string_actions
    }
    words = []
    for name, value in read.items():
        place = f"{path}:{_line_of(name, text)}"
        if name not in known:
            meant = did_you_mean(name, known)
            raise errors.InvalidArgumentError(
                f"{place}: {parser.prog} has no option '{name}'{meant} (see {parser.prog} --help)"
            )
        if id(known[name]) in given:
            continue
        try:
            words += _words(name, known[name], value)
        except ValueError as error:
            raise errors.InvalidArgumentError(f"{place}: {error}") from None
    return [*words, *own]


def parse(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """The options of a command line and of the file that it names; the program ends with what is
    wrong of them, as argparse has it."""
    try:
        words = with_config(parser, arguments)
    except errors.Error as error:
        parser.error(error.message)
    return parser.parse_args(words)
