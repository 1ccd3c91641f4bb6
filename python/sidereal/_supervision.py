"""Which tasks of `sidereal launch` are started again, and which of them hang."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from . import _native

#: Between questions to tasks whether they are there.
ASK_S = 1.0


class Restarts:
    """Says whether a task that was lost is started again. Each of its lives is counted once, when
    it ends: what an earlier one has left behind cannot end a later one."""

    def __init__(self, limit: int, window_s: float, supervised: Mapping[str, bool]) -> None:
        """supervised: by job, or by the name of a task, as "worker 0"."""
        self._limit = limit
        self._window_s = window_s
        self._supervised = supervised
        self._lost: dict[str, deque[float]] = {}

    def is_supervised(self, job: str, name: str) -> bool:
        return self._supervised.get(name, self._supervised.get(job, False))

    def take(self, name: str, now: float) -> int | None:
        """The number of a restart within the window; None: there were too many."""
        lost = self._lost.setdefault(name, deque())
        while lost and now - lost[0] > self._window_s:
            lost.popleft()
        if len(lost) >= self._limit:
            return None
        lost.append(now)
        return len(lost)


@dataclass(frozen=True)
class Hang:
    """A task that answered, and answers no more."""

    index: int
    heard: float  #: The latest answer, by time.monotonic().
    silent_s: float


class HangWatch:
    """Asks the tasks of a job, in a thread, and has something to read at `handle` when one hangs.
    A task that has not answered yet is starting, or has no server."""

    def __init__(self, job: str, addresses: list[str], secret: str, silence_s: float) -> None:
        cluster = _native.ClusterSpec.from_json(json.dumps({job: addresses}))
        security = _native.SecurityOptions(secret=secret)
        self._watch = _native.watch_silence(cluster, security, silence_s)
        self.handle, self._told = os.pipe()
        self._found: deque[Hang] = deque()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._ask, name="hang watch", daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        while not self._ends.wait(ASK_S):
            for task, _, silent_s in self._watch.look():
                index = int(task.rpartition(":")[2])
                self._found.append(Hang(index, time.monotonic() - silent_s, silent_s))
                os.write(self._told, b"x")

    def take(self) -> list[Hang]:
        """Those that were found since, when `handle` can be read."""
        count = len(os.read(self.handle, 64))
        return [self._found.popleft() for _ in range(count)]

    def close(self) -> None:
        self._ends.set()
        self._thread.join()
        os.close(self.handle)
        os.close(self._told)
