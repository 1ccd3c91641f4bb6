"""What this program adds to the event log of its cluster, which `sidereal events` tells."""

from __future__ import annotations

import json
import logging
import numbers
import os
from typing import Any

from . import _native

_log = logging.getLogger("sidereal")

#: The file that a task of `sidereal launch` writes events to.
VARIABLE = "SIDEREAL_EVENT_LOG"
LAUNCHER = "launcher"


def _own_name() -> str:
    """By which this program's events are told: "client", and of which task it is the program."""
    try:
        task = json.loads(os.environ["TF_CONFIG"])["task"]
        return f"client of /job:{task['type']}/task:{int(task['index'])}"
    except (KeyError, TypeError, ValueError):
        return "client"


class _Program:
    """What is made for the first event of this process."""

    def __init__(self) -> None:
        self.name = _own_name()
        path = os.environ.get(VARIABLE, "")
        self.file = _native.write_events(path) if path else None


_program = _Program()


def _plain(value: Any) -> bool | int | float | str:
    """As the engine takes it: a path may have bytes that are no text."""
    if isinstance(value, bool):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    return str(value).encode(errors="backslashreplace").decode()


def _full_name(task: str) -> str:
    """As servers call themselves: "/job:ps/replica:0/task:1"."""
    return task if "/replica:" in task else task.replace("/task:", "/replica:0/task:", 1)


def emit(
    event: str, said: str = "", *, level: int = logging.INFO, by: str = "", **fields: Any
) -> None:
    """Adds an event with its fields, of which those that are None are left out. said: the line of
    the log that says the same. by: what tells of it, if that is not this program."""
    if said:
        _log.log(level, "%s", said)
    if "task" in fields:
        fields["task"] = _full_name(fields["task"])
    known = [(name, _plain(value)) for name, value in fields.items() if value is not None]
    _native.emit_event(by or _program.name, event, known)
