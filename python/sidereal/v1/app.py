"""The beginning of a program: sidereal.v1.app (tf.compat.v1.app). Flags are argparse's here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

__all__ = ["run"]


def run(main: Callable[[list[str]], Any] | None = None, argv: Sequence[str] | None = None
        ) -> NoReturn:  # fmt: skip
    """Calls `main`, or that of the program, with the words of the command line, and ends the
    process with what it returns."""
    call: Callable[[list[str]], Any] = main or sys.modules["__main__"].main
    sys.exit(call(list(sys.argv if argv is None else argv)))
