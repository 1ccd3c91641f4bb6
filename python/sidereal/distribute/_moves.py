"""Variables of a strategy go to other parameter servers while its coordinator has workers train, as
`sidereal scale`, `drain` and `rebalance` say."""

from __future__ import annotations

import contextlib
import logging
import math
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from .. import _events, _native, errors, v1
from .._dispatch import apply
from ..security import SecurityOptions
from ..server import job_user, session_options
from ._cluster_variable import ClusterVariable
from ._resolver import ps_name

if TYPE_CHECKING:
    from ._recovery import Recovery
    from .parameter_server_strategy import ParameterServerStrategy

_log = logging.getLogger("sidereal")

#: How often commands are looked for.
LOOK_S = 0.1
#: How long it takes to be tried again to be heard of, at first and at most.
_AGAIN_S, _AGAIN_MAX_S = 1.0, 60.0
#: How often it is looked whether all is copied.
_COPIED_S = 0.02
#: How long functions on workers, and steps of the coordinator, may take to end; then the command is
#: not carried out.
_HOLD_S = 60.0
#: For the last changes, which are few.
_TAKE_S = 60.0
#: How long a server has to answer before variables move to it.
_REACH_S = 10.0
#: How long servers have to say what they did.
_ANSWER_S = 2.0
#: How often the rules of autoscaling are asked.
_AUTOSCALE_LOOK_S = 5.0
_BUSY = "sidereal_lane_busy_seconds_total"


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


class Group:
    """Variables that are together: one, and those that were made beside it."""

    def __init__(self, first: ClusterVariable) -> None:
        self.first = first
        self.variables: list[ClusterVariable] = []

    @property
    def name(self) -> str:
        return _name_of(self.first)

    @property
    def bytes(self) -> int:
        return sum(math.prod(each.shape) * each.dtype.itemsize for each in self.variables)


class Mover:
    """Hears of commands to the job of a coordinator, and carries them out: servers copy variables
    while functions run; when all is there nothing begins until the last changes are there too, and
    all goes on with sessions that find the variables where they are then. What fails before has
    changed nothing."""

    def __init__(
        self, strategy: ParameterServerStrategy, native: _native.ClusterCoordinator,
        ended: threading.Event, recovery: Recovery | None,
    ) -> None:  # fmt: skip
        self._strategy = strategy
        self._native = native
        self._ended = ended
        self._recovery = recovery
        #: Its job, as the cluster shows it.
        self.job = f"job-{secrets.token_hex(4)}"
        #: Commands that were carried out.
        self.moves = 0
        self._lease: _native.JobLease | None = None
        self._next_try, self._pause_s = 0.0, _AGAIN_S
        self._security = SecurityOptions.from_environment()._to_native()
        self._busy: dict[str, float] = {}
        #: Without a command.
        self._autoscale = strategy._autoscale
        #: When it was asked last, and what servers had done until then.
        self._asked: tuple[float, dict[str, float]] | None = None

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
        names = [ps_name(task) for task in self._strategy._used_ps]
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
        config = self._strategy._session_config()
        config.connect_timeout_in_ms = int(_ANSWER_S * 1000)
        with contextlib.suppress(errors.Error):
            self._lease = _native.JobLease.create(
                self._cluster(), self.job, job_user(), session_options(config), self._security
            )
        return self._lease

    def _cluster(self) -> _native.ClusterSpec:
        return self._strategy._resolver.cluster_spec()._native

    # --- A command.

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

    def _planned(self, kind: str, ps: int) -> tuple[list[int], dict[int, tuple[Group, int, int]]]:
        """The servers to be used, and the groups that move: by the id() of the first variable,
        from which task and to which."""
        strategy = self._strategy
        strategy._give_first_values()
        groups = self._groups()
        task_of = {strategy._ps_device(task): task for task in strategy._ps}
        used, moves = _native.spread(
            kind, ps, max(strategy._ps) + 1, strategy._used_ps,
            [(group.name, group.bytes, task_of[group.first.device]) for group in groups.values()],
            self._loads() if kind == "rebalance" else [],
        )  # fmt: skip
        by_name = {group.name: group for group in groups.values()}
        found = {}
        for name, from_task, to_task in moves:
            group = by_name[name]
            found[id(group.first)] = (group, from_task, to_task)
        return used, found

    def _groups(self) -> dict[int, Group]:
        with self._strategy._lock:
            variables = list(self._strategy._all.values())
        groups: dict[int, Group] = {}
        for variable in variables:
            first = variable
            while first._made_beside is not None:
                first = first._made_beside
            groups.setdefault(id(first), Group(first)).variables.append(variable)
        return groups

    def _loads(self) -> list[float]:
        """By task what each server has done since variables last moved, in seconds of a lane; []
        where one does not say it."""
        now = self._busy_now()
        if now is None:
            return []
        loads = [0.0] * (max(self._strategy._ps) + 1)
        for task in self._strategy._used_ps:
            name = ps_name(task)
            loads[task] = now.get(name, 0.0) - self._busy.get(name, 0.0)
        return loads

    def _busy_now(self) -> dict[str, float] | None:
        target = self._strategy._target_of_status()
        try:
            client = _native.StatusClient.create(target, self._security, _ANSWER_S)
            figures = client.figure(_ANSWER_S, "ps", _BUSY)
        except errors.Error:
            return None
        return {
            task: value / max(lanes, 1) / 1e9 for task, value, lanes in figures if value is not None
        }

    def _moved(
        self, lease: _Asks, text: str, used: list[int],
        moves: Mapping[int, tuple[Group, int, int]], begin: float,
    ) -> str:  # fmt: skip
        """Has variables move: what was done, in a sentence."""
        strategy = self._strategy
        before = list(strategy._used_ps)
        if not moves and used == before:
            return _native.moved_text(0, 0, len(before), len(used), 0.0, 0.0)
        routes = [
            (_name_of(variable), from_task, to_task)
            for group, from_task, to_task in moves.values() for variable in group.variables
        ]  # fmt: skip
        size = sum(group.bytes for group, _, _ in moves.values())
        about: dict[str, Any] = {
            "job": self.job, "command": text, "parts": len(moves), "bytes": size, "ps": len(used),
        }  # fmt: skip
        _events.emit("move_begun", **about)
        reached: list[v1.Session] = []
        strategy._placing_ps = [task for task in before if task in used]
        try:
            reached += [self._reached(task) for task in used if task not in before]
            # A server keeps variables while a session is there. That of the coordinator, the only
            # one before functions run, goes before the last changes are taken.
            left = {from_task for _, from_task, _ in moves.values()} - set(used)
            reached += [self._reached(task) for task in sorted(left)]
            if self._recovery is not None:
                self._recovery.use([*before, *(task for task in used if task not in before)])
            paused = self._hand_over(lease, used, moves, routes, size)
        finally:
            strategy._placing_ps = list(strategy._used_ps)
            for session in reached:
                with contextlib.suppress(errors.Error):
                    session.close()
            if self._recovery is not None:
                self._recovery.use(strategy._used_ps)
        self.moves += 1
        self._forget(moves)
        self._busy = self._busy_now() or {}
        seconds = time.monotonic() - begin
        said = _native.moved_text(len(moves), size, len(before), len(used), seconds, paused)
        _events.emit("move_done", said, **about, seconds=seconds, paused_s=paused)
        return said

    def _reached(self, task: int) -> v1.Session:
        """A session at a server: nothing waits for it later, and it keeps what it has. Errors:
        UnavailableError, naming it."""
        try:
            return self._strategy._session_at(task, int(_REACH_S * 1000))
        except errors.Error as why:
            raise errors.UnavailableError(
                f"{ps_name(task)} cannot be used: {why.message.splitlines()[0]}"
            ) from None

    def _hand_over(
        self, lease: _Asks, used: list[int],
        moves: Mapping[int, tuple[Group, int, int]], routes: Sequence[tuple[str, int, int]],
        size: int,
    ) -> float:  # fmt: skip
        """How long training stood still, in seconds."""
        strategy = self._strategy
        copies: _native.VariableMoves | None = None

        def check() -> None:
            if lease.is_cancelled():
                raise errors.CancelledError("it was cancelled")
            if self._ended.is_set():
                raise errors.CancelledError("the coordinator has ended")
            if copies is not None:
                copies.progress()

        try:
            if routes:
                copies = _native.VariableMoves.begin(
                    self._cluster(), strategy._group, routes, self._security
                )
                self._wait_for(copies, lease, check, size)
            begin = time.monotonic()
            with self._held(check):
                moved = dict(strategy._moved)
                for group, _, to_task in moves.values():
                    for variable in group.variables:
                        moved[_name_of(variable)] = strategy._ps_device(to_task)
                self._check_groups(moves, used)
                overrides = strategy._overrides_of(moved, used)
                self._place(overrides)
                try:
                    if copies is not None:
                        copies.take(_TAKE_S)
                        copies.commit()
                except BaseException:
                    self._place(strategy._overrides_of(strategy._moved, strategy._used_ps))
                    raise
                strategy._take_places(moved, used)
                for group, _, to_task in moves.values():
                    for variable in group.variables:
                        variable.device = strategy._ps_device(to_task)
                self._native.place(overrides)
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

    @contextmanager
    def _held(self, check: Callable[[], None]) -> Iterator[None]:
        """Nothing uses variables in the context: no function, and no step of the coordinator."""
        why: list[BaseException] = []

        def goes_on() -> bool:
            try:
                check()
            except BaseException as error:  # noqa: BLE001 - raised below.
                why.append(error)
            return not why

        try:
            self._native.hold(int(_HOLD_S * 1000), goes_on)
        except errors.CancelledError:
            if why:
                raise why[0] from None
            raise
        try:
            strategy = self._strategy
            if not strategy._lock.acquire(timeout=_HOLD_S):
                raise errors.DeadlineExceededError(
                    f"a function was being traced for more than {_HOLD_S:g} s"
                )
            try:
                with strategy._gate.closed(_HOLD_S, check):
                    yield
            finally:
                strategy._lock.release()
        finally:
            if not self._ended.is_set():
                self._native.go_on()

    def _check_groups(self, moves: Mapping[int, tuple[Group, int, int]], used: list[int]) -> None:
        """AbortedError when variables were made meanwhile that would have to move as well."""
        devices = [self._strategy._ps_device(task) for task in used]
        for key, group in self._groups().items():
            if key in moves:
                is_known = len(group.variables) == len(moves[key][0].variables)
            else:
                is_known = group.first.device in devices
            if not is_known:
                raise errors.AbortedError(
                    f"variables were made beside '{group.name}' meanwhile: give the command again"
                )

    def _place(self, overrides: tuple[dict[str, str], dict[str, str]]) -> None:
        """The coordinator's session has variables where these say."""
        session = self._strategy._session
        getattr(session, "inner", session)._runner.place(overrides)

    def _forget(self, moves: Mapping[int, tuple[Group, int, int]]) -> None:
        """Destroys what is where variables have been. What cannot be destroyed takes memory only,
        and goes with the strategy."""
        strategy = self._strategy
        for task in {from_task for _, from_task, _ in moves.values()}:
            graph, device = v1.Graph(), strategy._ps_device(task)
            with graph.as_default(), graph.device(device):
                nodes = []
                for group, from_task, _ in moves.values():
                    for variable in group.variables if from_task == task else ():
                        attrs = {"shared_name": _name_of(variable), "dtype": variable.dtype,
                                 "shape": tuple(variable.shape)}  # fmt: skip
                        handle = graph.add("Variable", (), attrs, None)
                        nodes.append(apply("DestroyResource", (handle,)))
            config = strategy._config_at(task, int(_ANSWER_S * 1000))
            try:
                with v1.Session(strategy._target("ps", task), graph, config) as session:
                    session.run(nodes)
            except errors.Error as why:
                _log.warning(
                    "%s keeps copies of variables that are elsewhere until the program ends: %s",
                    ps_name(task), why.message,
                )  # fmt: skip


def _name_of(variable: ClusterVariable) -> str:
    """As tasks know it."""
    return variable._handle.node_name
