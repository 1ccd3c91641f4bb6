"""`sidereal ...` and `python -m sidereal ...`: `launch`, which starts Python scripts, `plot`, which
draws learning curves, and the C++ program of the package for all else."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from . import _plot, launch
from .cluster import program_path


def main() -> NoReturn:
    """Does what is Python's, or becomes the program, with the same arguments."""
    if sys.argv[1:2] == ["launch"]:
        sys.exit(launch.main(sys.argv[2:]))
    if sys.argv[1:2] == ["plot"]:
        sys.exit(_plot.main(sys.argv[2:]))
    program = program_path()
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    main()
