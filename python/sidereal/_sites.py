"""Lines of the user's program, for messages."""

from __future__ import annotations

import linecache
import os
import sys
import types

from . import errors

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def user_line() -> str:
    """"model.py:12" of the innermost frame outside of this package; "" when there is none."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_PACKAGE):
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def describe(site: str) -> str:
    """"file "model.py", line 12: y = x + z"."""
    file, _, line = site.rpartition(":")
    source = linecache.getline(file, int(line)).strip()
    where = f'file "{file}", line {line}'
    return f"{where}: {source}" if source else where


def add_line(error: errors.Error, site: str | None = None) -> None:
    """Puts the line of the program (by default, the one running) into an error that has none."""
    if error.site:
        return
    site = user_line() if site is None else site
    if site:
        error.site = site
        error.message += f"\n  at {describe(site)}"
