"""Lines in the log of this process: sidereal.v1.logging (tf.compat.v1.logging). They go to the
logger "sidereal" of Python's logging, as sidereal's own."""

from __future__ import annotations

import logging
from typing import Any

__all__ = [
    "DEBUG", "ERROR", "FATAL", "INFO", "WARN", "debug", "error", "fatal", "get_verbosity", "info",
    "log", "set_verbosity", "warn", "warning",
]  # fmt: skip

DEBUG, INFO, WARN = logging.DEBUG, logging.INFO, logging.WARNING
ERROR, FATAL = logging.ERROR, logging.CRITICAL
_log = logging.getLogger("sidereal")


def set_verbosity(v: int) -> None:
    """Lines below this level are left out. Where nobody has said where lines go, they go to the
    standard error."""
    logging.basicConfig(format="%(levelname)s:%(name)s:%(message)s")
    _log.setLevel(v)


def get_verbosity() -> int:
    """The level below which lines are left out."""
    return _log.getEffectiveLevel()


def log(level: int, msg: str, *args: Any) -> None:
    """A line of a level."""
    _log.log(level, msg, *args)


def debug(msg: str, *args: Any) -> None:
    """A line for who looks for a fault."""
    _log.debug(msg, *args)


def info(msg: str, *args: Any) -> None:
    """A line that says how things go."""
    _log.info(msg, *args)


def warning(msg: str, *args: Any) -> None:
    """A line that says what may be wrong."""
    _log.warning(msg, *args)


def error(msg: str, *args: Any) -> None:
    """A line that says what is wrong."""
    _log.error(msg, *args)


def fatal(msg: str, *args: Any) -> None:
    """A line that says why there is no going on. The process goes on."""
    _log.critical(msg, *args)


warn = warning
