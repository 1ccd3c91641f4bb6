"""`sidereal ...` and `python -m sidereal ...`: the commands that are Python's, and the C++ program
of the package for all else."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from . import (
    _evaluate_command,
    _export_command,
    _plot,
    _predict_command,
    _serve_model_command,
    launch,
)
from .cluster import program_path

#: `launch` starts Python scripts, `plot` draws learning curves; the others make and run what models
#: are exported to.
_COMMANDS = {
    "evaluate": _evaluate_command.main,
    "export": _export_command.main,
    "launch": launch.main,
    "plot": _plot.main,
    "predict": _predict_command.main,
    "serve-model": _serve_model_command.main,
}


def main() -> NoReturn:
    """Does what is Python's, or becomes the program, with the same arguments."""
    words = sys.argv[1:]
    if len(words) > 1 and words[0] == "help" and words[1] in _COMMANDS:
        words = [words[1], "--help"]
    command = _COMMANDS.get(words[0]) if words else None
    if command is not None:
        sys.exit(command(words[1:]))
    program = program_path()
    # Formats that the program does not read itself are read by this Python.
    os.environ.setdefault("SIDEREAL_PYTHON", sys.executable)
    os.execv(program, [program, *words])


if __name__ == "__main__":
    main()
