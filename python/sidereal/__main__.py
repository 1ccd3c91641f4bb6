"""`sidereal ...` and `python -m sidereal ...`: the C++ program of the package."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from .cluster import program_path


def main() -> NoReturn:
    """Becomes the program, with the same arguments."""
    program = program_path()
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    main()
