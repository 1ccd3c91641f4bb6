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
    command = _COMMANDS.get(sys.argv[1]) if len(sys.argv) > 1 else None
    if command is not None:
        sys.exit(command(sys.argv[2:]))
    program = program_path()
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    main()
