"""What both sides have in common: they take orders from bench graph by lines on standard input."""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
import time
from collections.abc import Callable
from typing import Any

#: Losses of the first steps, by which the sides are compared.
LOSSES = 5


def arguments(doc: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--case", required=True)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--bfloat16", action="store_true", help="products in bfloat16")
    return parser.parse_args()


def say(**values: Any) -> None:
    print(json.dumps(values), flush=True)


class Allocations:
    """Calls of malloc() and its like since this was made; nothing when nobody counts (see
    count_allocations.cc)."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        self._counts = hasattr(self._library, "allocations_so_far")
        self._first = self._so_far()

    def _so_far(self) -> int:
        if not self._counts:
            return 0
        self._library.allocations_so_far.restype = ctypes.c_uint64
        return self._library.allocations_so_far()

    def by_caller(self) -> dict[str, int]:
        """All, and those that the engine and oneDNN made."""
        if not self._counts:
            return {}
        out = {"all": self._so_far() - self._first}
        count = self._library.allocations_from
        count.restype = ctypes.c_uint64
        for name, part in (("engine", b"/_native."), ("oneDNN", b"/libdnnl.")):
            out[name] = count(part, ctypes.c_uint64(self._first))
        return out


def serve(step: Callable[[int], Any], loss: Callable[[Any], float], warm: int = 3) -> None:
    """Runs `step(i)` for i = 0, 1, ... as often as each line says, and answers with the seconds
    that took. The first line says "ready" and the first losses."""
    started = time.perf_counter()
    losses = [loss(step(i)) for i in range(LOSSES)]
    for i in range(warm):
        step(LOSSES + i)
    done = LOSSES + warm
    say(ready=True, losses=losses, seconds=time.perf_counter() - started)
    for line in sys.stdin:
        count = int(line)
        taken = Allocations()
        begin = time.perf_counter()
        processor = time.process_time()
        for i in range(done, done + count):
            last = step(i)
        loss(last)
        processor = time.process_time() - processor
        seconds = time.perf_counter() - begin
        say(seconds=seconds, processor_seconds=processor, allocations=taken.by_caller())
        done += count
