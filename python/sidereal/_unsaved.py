"""What parameter servers have that no checkpoint has: what would be lost with them."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Iterable

from . import errors
from ._lost import LostPushes
from ._native import StatusClient
from .security import SecurityOptions

_log = logging.getLogger("sidereal")

#: How often servers are asked.
_PERIOD_S = 1.0
#: How long a cluster is looked for, and how long its servers have to answer.
_REACH_S, _ANSWER_S = 2.0, 2.0
#: How long one that is back has to answer, and how often it is asked.
_BACK_S, _AGAIN_S = 5.0, 0.1
#: Lives of a server that were not restored, of which is known what they had.
_LIVES_MAX = 16

#: What a life of a server had, by table: pushes and rows. "": variables that are no tables.
_Tables = dict[str, tuple[int, int]]


class UnsavedPushes:
    """Asks the servers of some jobs, once a second, what was pushed to them since their variables
    were last saved: a server that is lost cannot be asked any more. Ends with close(), or with who
    holds it. The server at `target` says who is in the cluster.
    Thread: any."""

    def __init__(
        self, target: str, jobs: Iterable[str], security: SecurityOptions | None = None
    ) -> None:
        self._target, self._jobs = target, sorted(set(jobs))
        self._security = SecurityOptions.from_environment() if security is None else security
        self._client: StatusClient | None = None
        self._lock = threading.Lock()
        #: By task, the latest life last: its incarnation, and what it said last.
        self._lives: dict[str, dict[int, _Tables]] = {}
        self._ended = threading.Event()
        thread = threading.Thread(
            target=_ask_on, args=(weakref.ref(self), self._ended), daemon=True, name="unsaved"
        )
        thread.start()
        # At the exit of the program too: a thread that comes back from a call of the engine when
        # there is no interpreter any more ends the process.
        weakref.finalize(self, _end, self._ended, thread)

    def close(self) -> None:
        """Asks no more."""
        self._ended.set()

    def look(self) -> dict[str, int]:
        """Asks now: which life of each server answers."""
        with self._lock:
            try:
                if self._client is None:
                    self._client = StatusClient.create(
                        self._target, self._security._to_native(), _REACH_S
                    )
                said = [one for job in self._jobs for one in self._client.unsaved(_ANSWER_S, job)]
            except errors.Error as error:
                # The training meets it too, and says so.
                _log.debug("%s does not say what is not saved: %s", self._target, error)
                return {}
            now: dict[tuple[str, int], _Tables] = {}
            for task, incarnation, table, pushes, rows in said:
                now.setdefault((task, incarnation), {})[table] = pushes, rows
            for (task, incarnation), tables in now.items():
                lives = self._lives.setdefault(task, {})
                lives[incarnation] = tables
                if len(lives) > _LIVES_MAX:
                    del lives[next(iter(lives))]
            return dict(now.keys())

    def take_lost(self, task: str) -> LostPushes | None:
        """What went with the lives of `task`, "/job:ps/replica:0/task:1", before the one that has
        its variables again now; forgets it. None: they were never asked, or it does not answer."""
        now, until = self.look().get(task), time.monotonic() + _BACK_S
        while now is None and time.monotonic() < until:  # A channel takes a while to see it.
            if self._ended.wait(_AGAIN_S):
                break
            now = self.look().get(task)
        with self._lock:
            if now is None:  # Nobody can say later which of them were lost now.
                self._lives.pop(task, None)
                return None
            lives = self._lives.get(task, {})
            if len(lives) < 2:
                return None
            lost = [lives.pop(incarnation) for incarnation in list(lives) if incarnation != now]
        tables: _Tables = {}
        for life in lost:
            for table, (pushes, rows) in life.items():
                before = tables.get(table, (0, 0))
                tables[table] = before[0] + pushes, before[1] + rows
        return LostPushes(
            sum(pushes for pushes, _ in tables.values()),
            {table: rows for table, (_, rows) in sorted(tables.items()) if table and rows},
        )


def _end(ended: threading.Event, thread: threading.Thread) -> None:
    ended.set()
    if thread is not threading.current_thread():
        thread.join()  # What it asks has a deadline.


def _ask_on(unsaved: weakref.ref[UnsavedPushes], ended: threading.Event) -> None:
    while True:
        one = unsaved()
        if one is None:
            return
        one.look()
        del one
        if ended.wait(_PERIOD_S):
            return
