"""The beginning of a program: sidereal.v1.app (tf.compat.v1.app), and its flags, which are those of
the package absl-py, where that is installed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

__all__ = ["run"]


def run(main: Callable[[list[str]], Any] | None = None, argv: Sequence[str] | None = None
        ) -> NoReturn:  # fmt: skip
    """Calls `main`, or that of the program, with the words of the command line that are no flags,
    and ends the process with what it returns."""
    call: Callable[[list[str]], Any] = main or sys.modules["__main__"].main
    words = list(sys.argv if argv is None else argv)
    if "absl.flags" in sys.modules:
        from absl import app  # noqa: PLC0415 - a program without flags does not need it.

        app.run(call, words)
    sys.exit(call(words))


def __getattr__(name: str) -> Any:
    if name != "flags":
        raise AttributeError(f"module 'sidereal.v1.app' has no attribute '{name}'")
    try:
        from absl import flags  # noqa: PLC0415 - as above.
    except ModuleNotFoundError:
        raise AttributeError(
            "flags need the package absl-py: install it, or use argparse"
        ) from None
    return flags
