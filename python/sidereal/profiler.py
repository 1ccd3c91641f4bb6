"""Traces of what runs in this process (tf.profiler.experimental), for Chrome's trace viewer.

    with sidereal.profiler.trace("trace.json"):
        step(x)

Open the file at chrome://tracing or ui.perfetto.dev. It has one event for every op that ran, with
the name of its node, the shapes and bytes of its inputs and outputs; calls of functions and the
loops in them are events around those of their bodies. Without a trace nothing is measured.
`sidereal train --trace FILE` and Model.fit(trace=...) trace the workers of a cluster.
"""

from __future__ import annotations

import json
import os
import threading
import time
import types
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import errors
from ._dispatch import ENGINE

#: Memory that events are written to; an op takes about 200 bytes of it.
DEFAULT_BYTES = 64 << 20

_path: Path | None = None
_regions: list[dict[str, Any]] | None = None


def start(logdir: str | os.PathLike[str], *, memory_bytes: int = DEFAULT_BYTES) -> None:
    """Begins to write down what runs (tf.profiler.experimental.start).

    logdir: the file to write in the end; "trace.json" in it when it is a folder.
    memory_bytes: taken at once; what happens when it is full is left out, and stop() warns.
    Errors: AlreadyExistsError when a trace is on.
    """
    global _path, _regions
    if _path is not None:
        raise errors.AlreadyExistsError(f"a trace is being written to {_path}; stop() it first")
    path = Path(logdir)
    if path.is_dir():
        path = path / "trace.json"
    if not path.parent.is_dir():
        raise errors.NotFoundError(f"{path.parent} is no folder: the trace could not be written")
    ENGINE.start_trace(int(memory_bytes))
    _path, _regions = path, []


def stop(save: bool = True) -> None:
    """Ends the trace and writes its file (tf.profiler.experimental.stop); `save` False forgets it.

    Errors: UnavailableError when no trace is on.
    """
    global _path, _regions
    if _path is None:
        raise errors.UnavailableError("no trace is on; start() one first")
    path, regions = _path, _regions or []
    _path, _regions = None, None
    stopped = ENGINE.stop_trace()
    assert stopped is not None
    text, _, dropped = stopped
    if not save:
        return
    parts = [part for part in (text, *(json.dumps(region) for region in regions)) if part]
    body = ",\n".join(parts)
    path.write_text('{"displayTimeUnit": "ns", "traceEvents": [\n' + body + "\n]}\n")
    if dropped:
        warnings.warn(
            f"{dropped} events found no room in the trace and are missing at the end of {path}; "
            "trace less, or give start() more memory_bytes",
            stacklevel=2,
        )


@contextmanager
def trace(
    logdir: str | os.PathLike[str], *, memory_bytes: int = DEFAULT_BYTES
) -> Iterator[None]:
    """Traces what runs in the context (tf.profiler.experimental.Profile); see start()."""
    start(logdir, memory_bytes=memory_bytes)
    try:
        yield
    finally:
        if _path is not None:
            stop()


Profile = trace


class Trace:
    """Marks a part of the program in the trace (tf.profiler.experimental.Trace).

        with sidereal.profiler.Trace("step", step_num=i):
            train_step(batch)

    What is given by keyword is shown with it. Costs next to nothing while no trace is on.
    """

    def __init__(self, name: str, **kwargs: Any) -> None:
        self.name = name
        self._metadata = kwargs
        self._began = 0

    def __enter__(self) -> Trace:
        self._began = time.monotonic_ns()
        return self

    def set_metadata(self, **kwargs: Any) -> None:
        """More to be shown."""
        self._metadata.update(kwargs)

    def __exit__(self, *_: object) -> None:
        if _regions is None:
            return
        ended = time.monotonic_ns()
        _regions.append(
            {
                "ph": "X",
                "pid": 1,
                # Ops of all threads are on track 0, as they run one at a time.
                "tid": 0 if threading.current_thread() is threading.main_thread() else 1,
                "ts": self._began / 1000,
                "dur": (ended - self._began) / 1000,
                "name": self.name,
                "cat": "region",
                "args": {key: _shown(value) for key, value in self._metadata.items()},
            }
        )


def _shown(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float, str)) else repr(value)


experimental = types.SimpleNamespace(start=start, stop=stop, Profile=Profile, Trace=Trace)

__all__ = ["DEFAULT_BYTES", "Profile", "Trace", "experimental", "start", "stop", "trace"]
