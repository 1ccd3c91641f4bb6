"""`sidereal ...` and `python -m sidereal ...`: the commands that are Python's, and the C++ program
of the package for all else."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from . import (
    _compare_command,
    _completion_command,
    _evaluate_command,
    _export_command,
    _plot,
    _predict_command,
    _runs_command,
    _serve_model_command,
    launch,
)
from .cluster import program_path

#: `launch` starts Python scripts, `plot` draws learning curves, `runs` and `compare` look at
#: trainings; the others make and run what models are exported to.
_MODULES = {
    "compare": _compare_command,
    "evaluate": _evaluate_command,
    "export": _export_command,
    "launch": launch,
    "plot": _plot,
    "predict": _predict_command,
    "runs": _runs_command,
    "serve-model": _serve_model_command,
}


def _complete(words: Sequence[str]) -> int:
    parsers = {name: module.parser for name, module in _MODULES.items()}
    return _completion_command.main(words, {**parsers, "completion": _completion_command.parser})


_COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    **{name: module.main for name, module in _MODULES.items()},
    "completion": _complete,
}


def main() -> NoReturn:
    """Does what is Python's, or becomes the program, with the same arguments."""
    words = sys.argv[1:]
    if len(words) > 1 and words[0] == "help" and words[1] in _COMMANDS:
        words = [words[1], "--help"]
    command = _COMMANDS.get(words[0]) if words else None
    if command is not None and words[1:] == ["--version"]:
        words = words[1:]  # All are of one version.
    elif command is not None:
        sys.exit(command(words[1:]))
    program = program_path()
    os.execv(program, [program, *words])


if __name__ == "__main__":
    main()
