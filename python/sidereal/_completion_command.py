"""`sidereal completion`: what completes the program's commands in a shell.

All of it is made of one table: the options that the C++ program tells of (`sidereal options`), with
those of the commands that are Python's in their places.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ._usage import Parser
from .cluster import program_path

SHELLS = ("bash", "zsh", "fish")
#: Values that are names of files. Folders are a kind of them.
FILE_KINDS = ("FILE", "DIR", "PATH", "SCRIPT", "M", "RUN", "SRC", "DST")
PROGRAM_S = 60.0


class Option(NamedTuple):
    names: tuple[str, ...]
    #: What a value is called; "" for a flag.
    value: str
    choices: tuple[str, ...]
    about: str

    @property
    def is_file(self) -> bool:
        return any(part in FILE_KINDS for part in self.value.split("|"))


class Command(NamedTuple):
    path: str  #: As it is written: "sidereal ckpt ls".
    about: str
    options: tuple[Option, ...]
    commands: tuple[Command, ...]

    @property
    def name(self) -> str:
        return self.path.rpartition(" ")[2]

    def all(self) -> Iterator[Command]:
        """It, and all below it."""
        yield self
        for command in self.commands:
            yield from command.all()


def _line(text: str) -> str:
    return " ".join(text.split())


def _of_program(row: Mapping[str, Any], above: str, parsers: Parsers) -> Command:
    path = f"{above} {row['name']}".strip()
    if above and row["name"] in parsers:
        return _of_parser(path, _line(row["about"]), parsers[row["name"]]())
    options = tuple(
        Option(tuple(one["names"]), one["value"], tuple(one["choices"]), _line(one["about"]))
        for one in row["options"] if one["names"]
    )  # fmt: skip
    commands = tuple(_of_program(one, path, parsers) for one in row["commands"])
    return Command(path, _line(row["about"]), options, commands)


def _of_parser(path: str, about: str, parser: argparse.ArgumentParser) -> Command:
    options = []
    for action in parser._actions:
        if not action.option_strings or action.help == argparse.SUPPRESS:
            continue
        takes_value = action.nargs != 0
        value = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
        choices = tuple(str(choice) for choice in action.choices or ())
        options.append(
            Option(tuple(action.option_strings), value if takes_value else "", choices,
                   _line((action.help or "").replace("%%", "%")))
        )  # fmt: skip
    return Command(path, about, tuple(options), ())


Parsers = Mapping[str, Callable[[], argparse.ArgumentParser]]


def table(parsers: Parsers) -> Command:
    """All commands; `parsers` are those of Python's, by name."""
    done = subprocess.run(
        [program_path(), "options"], capture_output=True, text=True, timeout=PROGRAM_S, check=True
    )
    return _of_program(json.loads(done.stdout), "", parsers)


def _quoted(words: Sequence[str]) -> str:
    return " ".join(shlex.quote(word) for word in words)


def _values(root: Command) -> Iterator[tuple[str, Option]]:
    """("sidereal train --protocol", the option) of each that takes a value."""
    for command in root.all():
        for option in command.options:
            if option.value:
                for name in option.names:
                    yield f"{command.path} {name}", option


def _by_value(root: Command) -> tuple[list[tuple[str, Option]], list[str], list[str]]:
    """The places of _values() whose value is one of a few, is a file, and is anything else."""
    values = list(_values(root))
    chosen = [(subject, option) for subject, option in values if option.choices]
    files = [subject for subject, option in values if option.is_file and not option.choices]
    others = [subject for subject, option in values if not option.is_file and not option.choices]
    return chosen, files, others


def _case(subjects: Sequence[str], what: str) -> list[str]:
    """One arm of a case."""
    if not subjects:
        return []
    return ["    " + " | ".join(shlex.quote(one) for one in subjects) + f") {what} ;;"]


def _walk(root: Command) -> list[str]:
    """Arms that know the commands: those that stand before the word are in `at`. (zsh has a `path`
    of its own.)"""
    known = [command.path for command in root.all() if command is not root]
    return _case(known, 'at="$at $word"')


def bash(root: Command) -> str:
    chosen, files, others = _by_value(root)
    lines = [
        "# Completes sidereal in bash, made by: sidereal completion bash",
        "_sidereal() {",
        "  local current=${COMP_WORDS[COMP_CWORD]} at=sidereal word i last=$((COMP_CWORD - 1))",
        "  # bash takes --name=value for three words.",
        '  if [ "$current" = "=" ]; then current=""',
        '  elif [ "${COMP_WORDS[last]}" = "=" ]; then last=$((last - 1)); fi',
        "  local before=${COMP_WORDS[last]}",
        "  for ((i = 1; i < COMP_CWORD; ++i)); do",
        "    word=${COMP_WORDS[i]}",
        '    case "$at $word" in',
        *_walk(root),
        "    esac",
        "  done",
        "  COMPREPLY=()",
        '  case "$at $before" in',
    ]
    for subject, option in chosen:
        choices = shlex.quote(_quoted(option.choices))
        lines += _case([subject], f'COMPREPLY=($(compgen -W {choices} -- "$current")); return')
    take_files = 'compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return'
    lines += [*_case(files, take_files), *_case(others, "return"), "  esac", '  case "$at" in']
    for command in root.all():
        words = [one.name for one in command.commands]
        words += [name for option in command.options for name in option.names]
        lines += _case(
            [command.path],
            f'COMPREPLY=($(compgen -W {shlex.quote(_quoted(words))} -- "$current"))',
        )
    lines += [
        "  esac",
        '  if [ ${#COMPREPLY[@]} -eq 0 ] && [ "${current#-}" = "$current" ]; then',
        "    compopt -o filenames 2>/dev/null",
        '    COMPREPLY=($(compgen -f -- "$current"))',
        "  fi",
        "}",
        "complete -F _sidereal sidereal",
    ]
    return "\n".join(lines) + "\n"


def _described(name: str, about: str) -> str:
    """For _describe of zsh, which ends a name at a colon."""
    return shlex.quote(name.replace(":", "\\:") + ":" + about)


def zsh(root: Command) -> str:
    chosen, files, others = _by_value(root)
    lines = [
        "#compdef sidereal",
        "# Completes sidereal in zsh, made by: sidereal completion zsh",
        "_sidereal() {",
        "  local at=sidereal word before=${words[CURRENT-1]}",
        "  local -a rows",
        "  for word in ${words[2,CURRENT-1]}; do",
        '    case "$at $word" in',
        *_walk(root),
        "    esac",
        "  done",
        '  case "$at $before" in',
    ]
    for subject, option in chosen:
        lines += _case([subject], f"compadd -- {_quoted(option.choices)}; return")
    lines += [*_case(files, "_files; return"), *_case(others, "return"), "  esac"]
    lines += ['  case "$at" in']
    for command in root.all():
        rows = [_described(one.name, one.about) for one in command.commands]
        rows += [_described(name, one.about) for one in command.options for name in one.names]
        lines += _case([command.path], f"rows=({' '.join(rows)})")
    lines += [
        "  esac",
        "  _describe sidereal rows",
        '  [[ "$at" == sidereal ]] || _files',
        "}",
        "compdef _sidereal sidereal",
    ]
    return "\n".join(lines) + "\n"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def fish(root: Command) -> str:
    known = " ".join(_fish_quoted(one.path) for one in root.all() if one is not root)
    lines = [
        "# Completes sidereal in fish, made by: sidereal completion fish",
        "function __sidereal_at --argument-names wanted",
        "    set -l path sidereal",
        "    for word in (commandline -opc)[2..]",
        f'        contains -- "$path $word" {known}; and set path "$path $word"',
        "    end",
        '    test "$path" = "$wanted"',
        "end",
        "complete -c sidereal -e",
        "complete -c sidereal -n '__sidereal_at sidereal' -f",
    ]
    for command in root.all():
        condition = f"__sidereal_at {_fish_quoted(command.path)}"
        at = f"complete -c sidereal -n {_fish_quoted(condition)}"
        for one in command.commands:
            lines.append(f"{at} -a {one.name} -d {_fish_quoted(one.about)}")
        for option in command.options:
            words = []
            for name in option.names:
                words.append(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}")
            if option.choices:
                words.append(f"-xa {_fish_quoted(' '.join(option.choices))}")
            elif option.value:
                words.append("-rF" if option.is_file else "-x")
            lines.append(f"{at} {' '.join(words)} -d {_fish_quoted(option.about)}")
    return "\n".join(lines) + "\n"


def parser() -> argparse.ArgumentParser:
    out = Parser(
        prog="sidereal completion",
        description="Prints what completes sidereal's commands and options in a shell.",
        epilog="bash: source <(sidereal completion bash) in ~/.bashrc. zsh: the same with zsh in "
        "~/.zshrc, after compinit. fish: sidereal completion fish | source in config.fish.",
    )
    out.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))
    return out


def main(arguments: Sequence[str], parsers: Parsers) -> int:
    """`sidereal completion ARGUMENTS`: the exit code."""
    options = parser().parse_args(arguments)
    makers = {"bash": bash, "zsh": zsh, "fish": fish}
    sys.stdout.write(makers[options.shell](table(parsers)))
    return 0
