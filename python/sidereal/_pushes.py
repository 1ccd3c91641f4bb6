"""What the servers of a cluster count of pushes: how much would be lost with a parameter server, or
was, and how old what steps compute with is."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from . import _tensorboard, errors
from ._looking import look_after
from ._lost import LostPushes
from ._native import CheckpointReader, StatusClient
from .security import SecurityOptions

_log = logging.getLogger("sidereal")

#: How long a cluster is looked for.
_REACH_S = 2.0

# --- What is lost.

#: How often servers are asked, and how long they have to answer.
_PERIOD_S, _ANSWER_S = 1.0, 2.0
#: Every how many times all tasks are asked, and not only those with variables.
_ALL_EVERY = 10
#: How long one that is back has to answer, and how often it is asked.
_BACK_S, _AGAIN_S = 5.0, 0.1
#: Lives of a server that were not restored, of which is known what they had.
_LIVES_MAX = 16

#: What a life of a server had, by table: pushes and rows. "": variables that are no tables.
_Tables = dict[str, tuple[int, int]]


class _Asked:
    """The cluster of the server at `target`, which is found when it is first asked."""

    def __init__(self, target: str, security: SecurityOptions | None) -> None:
        self.target = target
        self._security = SecurityOptions.from_environment() if security is None else security
        self._client: StatusClient | None = None

    def client(self) -> StatusClient:
        """Errors: those of StatusClient.create()."""
        if self._client is None:
            self._client = StatusClient.create(self.target, self._security._to_native(), _REACH_S)
        return self._client


@dataclass(frozen=True)
class TakenCopy:
    """What a life of a server has from the standby of another one."""

    life: int
    standby: str  #: The task that had it.
    seconds: float
    variables: int
    rows: int
    bytes: int
    #: Life, pushes and rows that are in it, by lane.
    pushed: list[tuple[int, int, int]]

    def pushed_of(self, life: int) -> _Tables:
        of = [one[1:] for one in self.pushed if one[0] == life]
        return {"": (sum(pushes for pushes, _ in of), sum(rows for _, rows in of))}


def _of_checkpoint(prefix: str) -> Callable[[int], _Tables]:
    return CheckpointReader(prefix).pushed


class UnsavedPushes:
    """Knows what was pushed to the servers of some jobs, so that it can be said what was lost with
    one. Who pushes has it from the answers how much a server has so far, and is asked after a
    loss. For those that are lost too, the servers are asked once a second. Ends with close(), or
    with who holds it. The server at `target` says who is in the cluster.
    Thread: any."""

    def __init__(
        self, target: str, jobs: Iterable[str], security: SecurityOptions | None = None
    ) -> None:
        self._asked, self._jobs = _Asked(target, security), sorted(set(jobs))
        self._lock = threading.Lock()
        #: By task, the latest life last: its incarnation, and what it said last that it had.
        self._lives: dict[str, dict[int, _Tables]] = {}
        #: Lives whose own sessions have pushed: what those know is lost with them.
        self._own: set[int] = set()
        #: The incarnations of tasks that may push, as they were last known; and whether one of
        #: these has gone since the last loss, with what was answered to it.
        self._pushers: dict[str, int] = {}
        self._has_gone = False
        self._looks = 0
        self._ended = threading.Event()
        self._looking = look_after(self, UnsavedPushes.look, _PERIOD_S, "unsaved", self._ended)

    def close(self) -> None:
        """Asks no more."""
        self._ended.set()

    def look(self) -> dict[str, int]:
        """Asks now: which life of each server answers."""
        with self._lock:
            # All tasks now and then, so that all pushers are known.
            asks_all = not self._pushers or self._looks % _ALL_EVERY == 0
            said = self._ask([""] if asks_all else self._jobs)
            self._looks += 1
            now = {}
            for task, life, tables, answered in said:
                if not life or not self._is_watched(task):
                    continue
                now[task] = life
                lives = self._lives.setdefault(task, {})
                lives[life] = {table: (pushes, rows) for table, pushes, rows in tables}
                if any(of == life for of, *_ in answered):
                    self._own.add(life)
                if len(lives) > _LIVES_MAX:
                    del lives[next(iter(lives))]
            return now

    def _ask(self, jobs: Iterable[str]) -> list[Any]:
        try:
            said = [one for job in jobs for one in self._asked.client().pushed(_ANSWER_S, job)]
        except errors.Error as error:
            # The training meets it too, and says so.
            _log.debug("%s does not say what is not saved: %s", self._asked.target, error)
            return []
        for task, life, _, answered in said:
            pushes = not self._is_watched(task) or any(of != life for of, *_ in answered)
            if life and pushes and self._pushers.setdefault(task, life) != life:
                self._pushers[task], self._has_gone = life, True
        return said

    def _is_watched(self, task: str) -> bool:
        return any(task.startswith(f"/job:{job}/") for job in self._jobs)

    def taken(self, task: str) -> TakenCopy | None:
        """What `task` has from the standby of another life. None: nothing, or it does not
        answer."""
        job = task.split("/")[1].removeprefix("job:")
        until = time.monotonic() + _BACK_S
        while True:
            try:
                said = self._asked.client().taken(_ANSWER_S, job)
            except errors.Error as error:
                _log.debug("%s does not say what standbys gave: %s", self._asked.target, error)
                said = []
            found = next((TakenCopy(*one[1:]) for one in said if one[0] == task), None)
            if found is not None:
                return found if found.standby else None
            # A channel takes a while to see that a task is back.
            if time.monotonic() > until or self._ended.wait(_AGAIN_S):
                return None

    def take_lost(self, task: str, saved: str | TakenCopy) -> LostPushes | None:
        """What went with the lives of `task`, "/job:ps/replica:0/task:1", before the one that has
        the variables of the checkpoint of this prefix, or of a standby, now; forgets it. None: they
        were never asked, or it does not answer."""
        now, until = self.look().get(task), time.monotonic() + _BACK_S
        while now is None and time.monotonic() < until:  # A channel takes a while to see it.
            if self._ended.wait(_AGAIN_S):
                break
            now = self.look().get(task)
        with self._lock:
            if now is None:  # Later, the lives that were lost now are not told apart.
                self._lives.pop(task, None)
                return None
            lives = self._lives.get(task, {})
            lost = {life: lives.pop(life) for life in list(lives) if life != now}
            if not lost:
                return None
            answered, are_all = self._answers()
            pushed_of = saved.pushed_of if isinstance(saved, TakenCopy) else _of_checkpoint(saved)
            sum_of = _sum_of(
                _lost_with(said, pushed_of(life), answered.get(life),
                           are_all and life not in self._own)
                for life, said in lost.items()
            )  # fmt: skip
            # Of which tables they are the lanes of a task do not say.
            return replace(sum_of, rows_of={}) if isinstance(saved, TakenCopy) else sum_of

    def _answers(self) -> tuple[dict[int, tuple[int, int]], bool]:
        """By life, the pushes and rows that it has answered, as those say that are there; and
        whether these are all that there were."""
        said = self._ask([""])
        latest: dict[tuple[int, int], tuple[int, int, int]] = {}
        for _, _, _, answered in said:
            for life, lane, *numbers in answered:
                latest[life, lane] = max(latest.get((life, lane), (0, 0, 0)), tuple(numbers))
        sums: dict[int, tuple[int, int]] = {}
        for (life, _), (_, pushes, rows) in latest.items():
            before = sums.get(life, (0, 0))
            sums[life] = before[0] + pushes, before[1] + rows
        found = {task: life for task, life, _, _ in said}
        # A task that never answered is in the cluster's description alone.
        are_all = bool(found) and not self._has_gone and self._pushers.items() <= found.items()
        self._has_gone = False
        return sums, are_all


def _lost_with(
    said: _Tables, saved: _Tables, answered: tuple[int, int] | None, are_all: bool
) -> LostPushes:
    """Of a life: `said` is what it had when it was last asked, `answered` what it had when it last
    answered a push, both with what is `saved`."""
    last = sum(pushes for pushes, _ in said.values()), sum(rows for _, rows in said.values())
    is_exact = are_all and (answered or (0, 0)) >= last
    pushes, rows = max(answered or (0, 0), last)
    rows_of = {}
    for table in sorted(said.keys() | saved.keys()):
        rows_then = said.get(table, (0, 0))[1] - saved.get(table, (0, 0))[1]
        if table and rows_then > 0:
            rows_of[table] = rows_then
    rows -= sum(of for _, of in saved.values())
    tables = {table for table in said.keys() | saved.keys() if table}
    if len(tables) == 1 and rows > 0:
        rows_of = {tables.pop(): rows}
    pushes -= sum(of for of, _ in saved.values())
    return LostPushes(max(pushes, 0), max(rows, 0), rows_of, is_exact)


def _sum_of(lives: Iterable[LostPushes]) -> LostPushes:
    pushes, rows, is_exact = 0, 0, True
    rows_of: dict[str, int] = {}
    for life in lives:
        pushes, rows, is_exact = pushes + life.pushes, rows + life.rows, is_exact and life.is_exact
        for table, of in life.rows_of.items():
            rows_of[table] = rows_of.get(table, 0) + of
    return LostPushes(pushes, rows, rows_of, is_exact)


# --- How old what steps compute with is.

#: How long tasks have to say it.
_GLANCE_S = 1.0

#: How many there were by the bounds of buckets.
_Counts = dict[tuple[int, int], int]


class Staleness:
    """Asks the cluster of the server at `target` how many changes of others came between what
    steps pulled of tables and what they pushed to them, since the last time."""

    def __init__(self, target: str, security: SecurityOptions | None = None) -> None:
        self._asked = _Asked(target, security)
        #: By table and worker: the sum, and how many of which size.
        self._before: dict[tuple[str, str], tuple[int, _Counts]] = {}

    def summaries(self) -> Iterator[Any]:
        """The mean and a histogram of each table and worker that had something; nothing where the
        cluster does not answer, which is logged."""
        try:
            found = self._asked.client().staleness(_GLANCE_S)
        except errors.Error as error:
            _log.warning("%s does not say how stale its tables are: %s", self._asked.target, error)
            return
        now = {
            (table, worker): (total, {(least, most): count for least, most, count in buckets})
            for table, worker, total, buckets in found
        }
        before, self._before = self._before, now
        for (table, worker), (total, counts) in now.items():
            earlier = before.get((table, worker), (0, {}))
            if not worker:
                # What was counted of workers that have gone since was theirs before.
                with_gone = _sum_with_gone(earlier, table, before, now)
                if not _is_another(with_gone, (total, counts)):
                    earlier = with_gone
            if _is_another(earlier, (total, counts)):
                earlier = 0, {}
            lately = {where: count - earlier[1].get(where, 0) for where, count in counts.items()}
            number = sum(lately.values())
            if not number:
                continue
            tag = f"staleness/{table or 'other_variables'}/{_short(worker)}"
            yield _tensorboard.scalar(tag, (total - earlier[0]) / number)
            rows = [(least, most + 1, count) for (least, most), count in lately.items() if count]
            yield _tensorboard.counted(f"histogram_of_{tag}", rows)


def _is_another(before: tuple[int, _Counts], now: tuple[int, _Counts]) -> bool:
    """Whether it was counted from nothing: by another server, or of a worker that is back."""
    fewer = any(now[1].get(where, 0) < number for where, number in before[1].items())
    return fewer or now[0] < before[0]


def _sum_with_gone(
    others: tuple[int, _Counts], table: str, before: dict[tuple[str, str], tuple[int, _Counts]],
    now: dict[tuple[str, str], tuple[int, _Counts]],
) -> tuple[int, _Counts]:  # fmt: skip
    """What was counted of others, and of the workers that are among them now."""
    total, counts = others[0], dict(others[1])
    for (of, worker), then in before.items():
        if of != table or not worker or not _is_another(then, now.get((of, worker), (0, {}))):
            continue
        total += then[0]
        for where, count in then[1].items():
            counts[where] = counts.get(where, 0) + count
    return total, counts


def _short(worker: str) -> str:
    """As in "worker_0"; "others": workers that have gone, or are too many."""
    parts = dict(part.split(":", 1) for part in worker.strip("/").split("/") if ":" in part)
    return f"{parts['job']}_{parts['task']}" if {"job", "task"} <= parts.keys() else "others"
