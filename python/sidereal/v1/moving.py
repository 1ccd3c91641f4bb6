"""Who trains on parameter servers hears of `sidereal scale`, `drain` and `rebalance`, and has its
variables go to others meanwhile."""

from __future__ import annotations

import contextlib
import logging
import math
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from .. import _events, _native, errors
from .._dispatch import apply
from ..device_spec import ps_device, ps_name
from ..dtypes import DType
from ..security import SecurityOptions
from ..server import job_user, session_options
from .config import ConfigProto
from .graph import Graph, no_op
from .session import Session

_log = logging.getLogger("sidereal")

#: How often commands are looked for.
LOOK_S = 0.1
#: How long it takes to be tried again to be heard of, at first and at most.
_AGAIN_S, _AGAIN_MAX_S = 1.0, 60.0
#: How often it is looked whether all is copied.
_COPIED_S = 0.02
#: How long steps may take to end before variables are handed over; then the command is not carried
#: out.
HOLD_S = 60.0
#: For the last changes, which are few.
_TAKE_S = 60.0
#: How long a server has to answer before variables move to it.
REACH_S = 10.0
#: How long servers have to say what they did.
_ANSWER_S = 2.0
#: How often the rules of autoscaling are asked.
_AUTOSCALE_LOOK_S = 5.0
_BUSY = "sidereal_lane_busy_seconds_total"
#: Of a text, and of what has no shape of its own.
_BYTES_UNKNOWN = 8


class _Asks(Protocol):
    """Who has given a command, and is told what becomes of it."""

    def is_cancelled(self) -> bool: ...
    def tell(self, bytes: int, bytes_all: int) -> None: ...
    def end(self, text: str) -> None: ...
    def fail(self, error: Exception) -> None: ...


class _Nobody:
    """Gives commands without wanting to know."""

    def is_cancelled(self) -> bool:
        return False

    def tell(self, bytes: int, bytes_all: int) -> None:
        pass

    def end(self, text: str) -> None:
        pass

    def fail(self, error: Exception) -> None:
        pass


_NOBODY = _Nobody()


@dataclass(frozen=True)
class HeldVariable:
    """A variable, as tasks know it. `shape`: None where it may be any."""

    name: str
    dtype: DType
    shape: tuple[int, ...] | None

    @property
    def bytes(self) -> int:
        extents = self.shape if self.shape is not None else ()
        size = math.prod(extents) * (self.dtype.itemsize or _BYTES_UNKNOWN)
        return size if size >= 0 else _BYTES_UNKNOWN

    def attrs(self) -> dict[str, Any]:
        """Of the node of its handle."""
        found: dict[str, Any] = {"shared_name": self.name, "dtype": self.dtype}
        return found if self.shape is None else {**found, "shape": self.shape}


@dataclass
class Group:
    """Variables that are together on one parameter server: one, and those that were made beside
    it."""

    name: str
    task: int
    variables: list[HeldVariable] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.variables)


@dataclass(frozen=True)
class Move:
    """A group that goes from one parameter server to another."""

    group: Group
    from_task: int
    to_task: int


class Mover:
    """Hears of commands to a job, and carries them out: servers copy variables while steps run;
    when all is there no step begins until the last changes are there too, and all goes on with
    sessions that find the variables where they are then. What fails before has changed nothing.

    Who trains says in a class of its own what it has, and how its steps are held up. All methods
    are called by one thread.
    """

    def __init__(
        self, ended: threading.Event, autoscale: _native.Autoscale | None = None
    ) -> None:
        self._ended = ended
        #: Its job, as the cluster shows it.
        self.job = f"job-{secrets.token_hex(4)}"
        #: Commands that were carried out.
        self.moves = 0
        self._lease: _native.JobLease | None = None
        self._next_try, self._pause_s = 0.0, _AGAIN_S
        self._security = SecurityOptions.from_environment()._to_native()
        self._busy: dict[str, float] = {}
        #: Without a command.
        self._autoscale = autoscale
        #: When it was asked last, and what servers had done until then.
        self._asked: tuple[float, dict[str, float]] | None = None

    # --- What is said of who trains.

    def _cluster(self) -> _native.ClusterSpec:
        """Where its variables are."""
        raise NotImplementedError

    def _cluster_ps(self) -> int:
        """The number of the cluster's last parameter server, and one."""
        return max(self._cluster().tasks("ps")) + 1

    def _state_group(self) -> str:
        """That of the sessions that have the variables."""
        raise NotImplementedError

    def _config_at(self, task: int | None, timeout_ms: int) -> ConfigProto:
        """Options of a session at one parameter server, which uses what is there alone; None: of
        one that has no variables."""
        raise NotImplementedError

    def _used(self) -> list[int]:
        """The parameter servers that it is on."""
        raise NotImplementedError

    def _groups(self) -> list[Group]:
        """What may move."""
        raise NotImplementedError

    def _check_used(self, used: Sequence[int]) -> None:
        """Raises an error where it cannot be on these alone, which says why."""

    def _prepared(self, used: Sequence[int]) -> AbstractContextManager[object]:
        """Variables that are made in the context are on servers that it is on before and after."""
        return contextlib.nullcontext()

    def _without_values(self, moves: Sequence[Move]) -> set[str]:
        """Those of the variables that there is nothing to be copied of."""
        return set()

    def _make_room(self, moves: Sequence[Move]) -> None:
        """Nothing is where variables will go, before they are copied."""

    def _gather(self, check: Callable[[], object]) -> None:
        """Those whose steps are to be held up know that it is soon. `check` as of _held()."""

    def _held(self, check: Callable[[], object]) -> AbstractContextManager[object]:
        """Nothing uses variables in the context. `check` is called now and then, and may raise."""
        raise NotImplementedError

    def _check_groups(self, moves: Sequence[Move], used: Sequence[int]) -> None:
        """AbortedError when there is more by now that would have to move; while it is held."""

    def _place(self, moves: Sequence[Move], used: list[int]) -> None:
        """Its own sessions find variables where they are after the moves; while it is held."""
        raise NotImplementedError

    def _place_back(self) -> None:
        """They find them where they were."""
        raise NotImplementedError

    def _settle(self, moves: Sequence[Move], used: list[int]) -> None:
        """The variables are there; while it is held. From here on nothing is taken back."""
        raise NotImplementedError

    # --- Commands.

    def look(self) -> None:
        """Carries out a command, if one has come, or what the rules of autoscaling want."""
        lease = self._heard()
        command = None if lease is None else lease.next_command()
        if lease is not None and command is not None:
            self._carry_out(lease, *command)
        elif self._autoscale is not None:
            wanted = self._wanted(self._autoscale)
            if wanted is not None:
                self._carry_out(_NOBODY, "scale", wanted, f"scale --ps {wanted}, by autoscale")

    def _wanted(self, autoscale: _native.Autoscale) -> int | None:
        """On how many servers it should be, if on others: looked at now and then."""
        now = time.monotonic()
        if self._asked is not None and now - self._asked[0] < _AUTOSCALE_LOOK_S:
            return None
        busy, before = self._busy_now(), self._asked
        self._asked = (now, busy or {})
        if busy is None or before is None:
            return None
        names = [ps_name(task) for task in self._used()]
        return autoscale.look(now, [
            max(busy.get(name, 0.0) - before[1].get(name, 0.0), 0.0) / (now - before[0])
            for name in names
        ])  # fmt: skip

    def end(self) -> None:
        """Hears of nothing any more."""
        if self._lease is not None:
            self._lease.close()

    def _heard(self) -> _native.JobLease | None:
        """The lease, taken again when the server that granted it has gone."""
        try:
            if self._lease is not None:
                self._lease.check()
                self._pause_s = _AGAIN_S
                return self._lease
        except errors.Error:
            self._lease = None
        if time.monotonic() < self._next_try:
            return None
        self._next_try = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, _AGAIN_MAX_S)
        config = self._config_at(None, int(_ANSWER_S * 1000))
        with contextlib.suppress(errors.Error):
            self._lease = _native.JobLease.create(
                self._cluster(), self.job, job_user(), session_options(config), self._security
            )
        return self._lease

    def _carry_out(self, lease: _Asks, kind: str, ps: int, text: str) -> None:
        begin = time.monotonic()
        if self._autoscale is not None:
            self._autoscale.moved(begin)
        try:
            used, moves = self._planned(kind, ps)
            said = self._moved(lease, text, used, moves, begin)
        except Exception as why:  # noqa: BLE001 - who gave the command is told.
            reason = errors.reason_of(why)
            _events.emit(
                "move_failed",
                f"{text} was not carried out, and training goes on as before: {reason}",
                level=logging.WARNING, job=self.job, command=text, why=reason,
            )  # fmt: skip
            lease.fail(why)
        else:
            lease.end(said)
        self._asked = None
        if self._autoscale is not None:
            self._autoscale.moved(time.monotonic())

    def _planned(self, kind: str, ps: int) -> tuple[list[int], list[Move]]:
        """The servers to be used, and the groups that move."""
        groups = {group.name: group for group in self._groups()}
        used, moves = _native.spread(
            kind, ps, self._cluster_ps(), self._used(),
            [(group.name, group.bytes, group.task) for group in groups.values()],
            self._loads() if kind == "rebalance" else [],
        )  # fmt: skip
        self._check_used(used)
        return used, [Move(groups[name], from_task, to) for name, from_task, to in moves]

    def _loads(self) -> list[float]:
        """By task what each server has done since variables last moved, in seconds of a lane; []
        where one does not say it."""
        now = self._busy_now()
        if now is None:
            return []
        loads = [0.0] * self._cluster_ps()
        for task in self._used():
            name = ps_name(task)
            loads[task] = now.get(name, 0.0) - self._busy.get(name, 0.0)
        return loads

    def _busy_now(self) -> dict[str, float] | None:
        try:
            target = self._target(min(self._cluster().tasks("ps")))
            client = _native.StatusClient.create(target, self._security, _ANSWER_S)
            figures = client.figure(_ANSWER_S, "ps", _BUSY)
        except errors.Error:
            return None
        return {
            task: value / max(lanes, 1) / 1e9 for task, value, lanes in figures if value is not None
        }

    def _target(self, task: int) -> str:
        """Of a session whose master is that parameter server."""
        return f"grpc://{self._cluster().tasks('ps')[task]}"

    # --- Moves.

    def _moved(
        self, lease: _Asks, text: str, used: list[int], moves: Sequence[Move], begin: float
    ) -> str:
        """Has variables move: what was done, in a sentence."""
        before = list(self._used())
        if not moves and used == before:
            return _native.moved_text(0, 0, len(before), len(used), 0.0, 0.0)
        size = sum(move.group.bytes for move in moves)
        about: dict[str, Any] = {
            "job": self.job, "command": text, "parts": len(moves), "bytes": size, "ps": len(used),
        }  # fmt: skip
        _events.emit("move_begun", **about)
        reached: list[Session] = []
        try:
            reached += [self._reached(task) for task in used if task not in before]
            # A server keeps variables while a session is there. That of who moves them, the only
            # one before steps run, goes before the last changes are taken.
            left = {move.from_task for move in moves} - set(used)
            reached += [self._reached(task) for task in sorted(left)]
            with self._prepared(used):
                paused = self._hand_over(lease, used, moves, size)
        finally:
            for session in reached:
                with contextlib.suppress(errors.Error):
                    session.close()
        self.moves += 1
        self._forget(moves)
        self._busy = self._busy_now() or {}
        seconds = time.monotonic() - begin
        said = _native.moved_text(len(moves), size, len(before), len(used), seconds, paused)
        _events.emit("move_done", said, **about, seconds=seconds, paused_s=paused)
        return said

    def _reached(self, task: int) -> Session:
        """A session at a server: nothing waits for it later, and it keeps what it has. Errors:
        UnavailableError, naming it."""
        graph = Graph()
        with graph.as_default(), graph.device(ps_device(task)):
            node = no_op("reach")
        session = Session(self._target(task), graph, self._config_at(task, int(REACH_S * 1000)))
        try:
            session.run(node)
        except errors.Error as why:
            raise errors.UnavailableError(
                f"{ps_name(task)} cannot be used: {why.message.splitlines()[0]}"
            ) from None
        return session

    def _hand_over(
        self, lease: _Asks, used: list[int], moves: Sequence[Move], size: int
    ) -> float:
        """How long training stood still, in seconds."""
        copies: _native.VariableMoves | None = None

        def check() -> None:
            if lease.is_cancelled():
                raise errors.CancelledError("it was cancelled")
            if self._ended.is_set():
                raise errors.CancelledError("the training has ended")
            if copies is not None:
                copies.progress()

        without = self._without_values(moves)
        routes = [
            (variable.name, move.from_task, move.to_task)
            for move in moves for variable in move.group.variables if variable.name not in without
        ]  # fmt: skip
        try:
            if routes:
                self._make_room(moves)
                copies = _native.VariableMoves.begin(
                    self._cluster(), self._state_group(), routes, self._security
                )
                self._wait_for(copies, lease, check, size)
            self._gather(check)
            begin = time.monotonic()
            with self._held(check):
                self._check_groups(moves, used)
                self._place(moves, used)
                try:
                    if copies is not None:
                        copies.take(_TAKE_S)
                        copies.commit()
                    self._settle(moves, used)
                except BaseException:
                    self._place_back()
                    raise
            return time.monotonic() - begin
        finally:
            if copies is not None:
                copies.close()

    def _wait_for(
        self, copies: _native.VariableMoves, lease: _Asks, check: Callable[[], None],
        size: int,
    ) -> None:  # fmt: skip
        """Until all is there, but for what changed lately."""
        while True:
            check()
            there, is_current = copies.progress()
            lease.tell(there, max(size, there))
            if is_current:
                return
            self._ended.wait(_COPIED_S)

    def _forget(self, moves: Sequence[Move]) -> None:
        """Destroys what is where variables have been. What cannot be destroyed takes memory only,
        until variables come there again."""
        for task in {move.from_task for move in moves}:
            variables = [
                each for move in moves if move.from_task == task for each in move.group.variables
            ]
            try:
                self._destroy(task, variables)
            except errors.Error as why:
                _log.warning(
                    "%s keeps copies of variables that are elsewhere: %s", ps_name(task),
                    why.message,
                )  # fmt: skip

    def _destroy(self, task: int, variables: Sequence[HeldVariable]) -> None:
        """Has a server forget variables, where they are there."""
        self._run_at(task, "DestroyResource", variables)

    def _run_at(self, task: int, op: str, variables: Sequence[HeldVariable]) -> Any:
        """Runs an op of a handle for each of them, on a server."""
        graph = Graph()
        with graph.as_default(), graph.device(ps_device(task)):
            handles = [graph.add("Variable", (), each.attrs(), None) for each in variables]
            nodes = [apply(op, (handle,)) for handle in handles]
        config = self._config_at(task, int(_ANSWER_S * 1000))
        with Session(self._target(task), graph, config) as session:
            return session.run(nodes)


@contextmanager
def locked(lock: Any, limit_s: float, who: str) -> Iterator[None]:
    """Holds a lock in the context. DeadlineExceededError, which says who has it, when that lasts
    too long."""
    if not lock.acquire(timeout=limit_s):
        raise errors.DeadlineExceededError(f"{who} for more than {limit_s:g} s")
    try:
        yield
    finally:
        lock.release()
