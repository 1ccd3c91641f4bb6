"""Variables of graphs that a user has placed go to other parameter servers while monitored sessions
train them, each worker its own (MonitoredTrainingSession(movable=True))."""

from __future__ import annotations

import contextlib
import copy
import logging
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

from .. import _native, errors
from .._looking import look_after
from .._native import Output
from .._step_gate import StepGate
from ..device_spec import ps_device, ps_name
from ..security import SecurityOptions
from .config import ConfigProto
from .graph import Graph, get_default_graph
from .movable import PS, MovableGraph, has_savers_that_tie, named, ps_task_of
from .move_board import CHIEF, Board, Head, Placement, Program, config_of
from .moving import HOLD_S, LOOK_S, REACH_S, Group, Move, Mover, locked
from .remote import RemoteRunner
from .session_run_hook import SessionRunHook

_T = TypeVar("_T")

_log = logging.getLogger("sidereal")

#: How often programs ask what is to be done, and while a hand-over is near.
_ASK_S, _ASK_SOON_S = 0.5, 0.02
#: A program that was not heard of for so long has died: servers have given up what it ran, as they
#: do after half of that.
_SILENT_S = 20.0
#: How long it is looked whether another chief is heard of.
_LOOK_FOR_CHIEF_S = 1.5
#: Who has not heard for so long where variables are begins no run.
_STALE_S = 10.0
#: How long a run waits to hear it before a new session is made.
_ANSWER_S = 60.0
#: Errors of servers that do not run yet, or again.
_NOT_THERE_YET = (errors.AbortedError, errors.DeadlineExceededError, errors.UnavailableError)


def _refuse_what_cannot_move(graph: Graph, master: str, config: ConfigProto | None) -> None:
    """ValueError for a training whose variables cannot go elsewhere, with what to do."""
    what = None
    native = graph.native
    if not master:
        what = "it has no master: sessions of this process have no parameter servers"
    elif config is not None and config.isolate_session_state:
        what = "isolate_session_state gives each session variables of its own: leave it out"
    elif config is not None and config.lease_name:
        what = "it is a job by itself, to which commands are given: leave lease_name out"
    elif any(native.node_op(node).startswith("Accumulator") for node in range(len(native))):
        what = (
            "its steps wait for one another in accumulators, which do not move: leave "
            "SyncReplicasOptimizer out, or movable"
        )
    if what is not None:
        raise ValueError(f"movable is True, and this training cannot move: {what}")
    if has_savers_that_tie(graph):
        _log.warning(
            "a Saver that was made before the session has all variables of a parameter server move "
            "as one: make it with tf.train.Saver(movable=True)"
        )


class Places:
    """Where the sessions of this process have their variables: it hears that from parameter server
    0, and holds up runs while variables are handed over.

    master: of the sessions. name: of this worker, in errors. limit_s: how long runs wait for a
    chief that has gone in the middle of a hand-over. autoscale: see MonitoredTrainingSession.
    Thread: any.
    """

    def __init__(
        self, master: str, is_chief: bool, name: str, config: ConfigProto, limit_s: float,
        autoscale: str,
    ) -> None:  # fmt: skip
        self.master, self.config, self._limit_s = master, config, limit_s
        self.autoscale = autoscale
        self.is_chief, self.name = is_chief, name
        self.own = secrets.token_hex(8)
        self.key = CHIEF if is_chief else f"program/{name}/{self.own}"
        #: No run that uses what moves.
        self.gate = StepGate("runs of sessions")
        #: Held by who makes a session, and by who hands variables over.
        self.making = threading.RLock()
        self.ended = threading.Event()
        #: Where variables are, as sessions are told.
        self.overrides: tuple[dict[str, str], dict[str, str]] = ({}, {})
        #: The name of that placement, and what it says.
        self.current = ""
        self.placement = Placement({}, [])
        #: Whether a session of the chief has begun to train.
        self.is_ready = False
        self.cluster = _native.ClusterSpec()
        self.graph: MovableGraph | None = None
        self.board: Board | None = None
        #: Whether this process is handing variables over.
        self.is_closing = False
        #: Whether another chief has come in the place of this one.
        self.is_deposed = False
        self._master_task = ""
        self._fixed: tuple[str, dict[int, list[str]]] = ("", {})
        self._attaching = threading.Lock()
        self._runners: weakref.WeakSet[RemoteRunner] = weakref.WeakSet()
        self._following = threading.RLock()
        self._fresh_until = 0.0
        self._beat = 0
        #: What the chief said last of itself, and when it was another thing for the first time.
        self._chief: tuple[str, float] = ("", 0.0)
        self._asked_at = 0.0
        self._mover: SessionMover | None = None
        self._looking: list[Callable[[], None]] = []

    # --- Sessions.

    def join(self, graph: Graph, limit_s: float) -> None:
        """Before a session is made: knows where variables are, which the chief says.
        Errors: DeadlineExceededError when it has not said so after `limit_s`; AlreadyExistsError
        for a second chief; those of servers that are not there."""
        until = time.monotonic() + limit_s
        connecting_s = min(limit_s, self.config.connect_timeout_in_ms / 1000)
        with locked(self._following, limit_s, "variables have been being handed over"):
            self._until_there(connecting_s, lambda: self._find(graph))
            while not self._until_there(connecting_s, self._has_joined):
                if time.monotonic() > until:
                    raise errors.DeadlineExceededError(
                        f"the chief has not said where variables are for {limit_s:g} s: is its "
                        "session movable, as this one is?"
                    )
                self.ended.wait(_ASK_SOON_S)
        if not self._looking:
            mover = SessionMover(self) if self.is_chief else None
            self._looking.append(
                look_after(self, Places.look, _ASK_S, "where variables are", self.ended)
            )
            if mover is not None:
                self._mover = mover
                self._looking.append(
                    look_after(mover, SessionMover.look, LOOK_S, "moves", self.ended)
                )

    def _has_joined(self) -> bool:
        """Whether it is known where variables are."""
        head = self._hear()
        if self.is_chief and (head is None or head.closing or not self.current):
            head = self._begin(head)
        elif self.is_chief and head is not None and head.chief != self.own:
            self.is_deposed = True
            return True  # Its first run says so.
        elif head is not None and head.closing:
            head = self._hold(head)
        if head is None or head.closing:
            return False
        self._take(head)
        return True

    def _until_there(self, limit_s: float, ask: Callable[[], _T]) -> _T:
        """What servers say when they are there."""
        until = time.monotonic() + limit_s
        while True:
            try:
                return ask()
            except _NOT_THERE_YET:
                if time.monotonic() > until or self.ended.wait(_ASK_S):
                    raise

    def _find(self, graph: Graph) -> None:
        """Looks at cluster and graph, once."""
        if self.board is not None:
            return
        given = self.config.security
        security = SecurityOptions.from_environment() if given is None else given
        client = _native.StatusClient.create(self.master, security._to_native(), REACH_S)
        self.cluster = client.cluster
        if PS not in self.cluster.jobs:
            raise ValueError(
                f"movable is True, and the cluster of {self.master} has no job '{PS}', whose tasks "
                "variables move between"
            )
        address = self.master.removeprefix("grpc://")
        masters = [
            f"/job:{job}/replica:0/task:{task}"
            for job in self.cluster.jobs for task, at in self.cluster.tasks(job).items()
            if at == address
        ]  # fmt: skip
        self._master_task = masters[0] if masters else ""
        soft = self.config.allow_soft_placement
        self.graph = MovableGraph(graph, self.cluster, self._master_task, soft)
        board = Board(self.master, min(self.ps()), config_of(self.config))
        if self.is_chief:
            self._refuse_second_chief(board)
        self.board = board

    def _refuse_second_chief(self, board: Board) -> None:
        said, until = board.chief(), time.monotonic() + _LOOK_FOR_CHIEF_S
        while said and time.monotonic() < until:
            if board.chief() not in ("", said):
                raise errors.AlreadyExistsError(
                    "the chief of another training whose variables move runs on these servers: "
                    "give each such training a state_group of its own, in its ConfigProto"
                )
            self.ended.wait(_ASK_S / 5)

    def ps(self) -> list[int]:
        """The parameter servers of the cluster."""
        return sorted(self.cluster.tasks(PS))

    def attach(self, runner: RemoteRunner) -> None:
        """The runner of a session, which is told when variables have moved."""
        with self._attaching:
            self._runners.add(runner)

    def _attached(self) -> list[RemoteRunner]:
        with self._attaching:
            return list(self._runners)

    def device_of(self, variable: str, otherwise: str) -> str:
        """Where a variable is."""
        return self.placement.devices.get(variable, otherwise)

    def passing(
        self, values: Sequence[Output], targets: Sequence[int]
    ) -> AbstractContextManager[None]:
        """The context of a run: variables stay where they are."""
        if self.graph is None or not self.graph.uses(values, targets):
            return contextlib.nullcontext()
        return self._passing()

    @contextmanager
    def _passing(self) -> Iterator[None]:
        began = time.monotonic()

        def check() -> None:
            if time.monotonic() - began > self._limit_s:
                raise errors.DeadlineExceededError(
                    f"variables have been being handed over for {self._limit_s:g} s: the chief, "
                    "which does it, may have died, and ends it when it is started again"
                )

        while True:
            while time.monotonic() > self._fresh_until:
                if self.is_deposed:
                    raise errors.FailedPreconditionError(
                        "another chief has been started in the place of this one, which was not "
                        "heard of: end this program"
                    )
                if time.monotonic() - began > _ANSWER_S:
                    raise errors.UnavailableError(
                        f"{ps_name(min(self.ps()))} has not said where variables are for "
                        f"{_ANSWER_S:g} s"
                    )
                if self.ended.wait(_ASK_SOON_S):
                    raise errors.CancelledError("the session has been closed")
            with self.gate.passing(check):
                # It may have been closed for long.
                if time.monotonic() <= self._fresh_until:
                    yield
                    return

    def close(self) -> None:
        """No session is made any more."""
        self.ended.set()
        for end in self._looking:
            end()
        if self._mover is not None:
            self._mover.end()
        if self.board is not None:
            with contextlib.suppress(errors.Error):
                self.board.forget([self.key])
            self.board.close()

    # --- What the chief says.

    def look(self) -> None:
        """Asks what is to be done, and does it."""
        while True:
            try:
                with self._following:
                    before = self.current
                    head = self._hear()
                    # What the chief hands over itself it has not heard of when it asked.
                    if self.current == before:
                        head = self._follow(head)
            except errors.Error as why:
                _log.debug("where variables are is not heard: %s", why)
                return
            if head is None or not head.hurries or self.is_chief or self._has_no_chief():
                return
            if self.ended.wait(_ASK_SOON_S):
                return

    def _has_no_chief(self) -> bool:
        return time.monotonic() - self._chief[1] > _SILENT_S

    def fixed(self) -> dict[int, list[str]]:
        """What this process has that does not move, by task: the chief may not know of it."""
        assert self.graph is not None
        if self._fixed[0] == self.current != "":
            return self._fixed[1]
        found = {task: list(things) for task, things in self.graph.fixed.items()}
        for group in self.graph.groups:
            unknown = [
                each.name for each in group.variables if each.name not in self.placement.devices
            ]
            if self.current and unknown:
                found.setdefault(group.task, []).append(f"variable '{unknown[0]}'")
        master = ps_task_of(self._master_task) if self._master_task else None
        if master is not None:
            found.setdefault(master, []).append("the master of sessions")
        self._fixed = (self.current, found)
        return found

    def program(self, held: str = "") -> Program:
        """What is told of this process."""
        self._beat += 1
        return Program(self.name, self._beat, held, self.fixed())

    def _hear(self, held: str = "") -> Head | None:
        assert self.board is not None
        asked_at = time.monotonic()
        head, chief = self.board.hear(self.key, self.program(held))
        self._asked_at = asked_at
        if chief != self._chief[0]:
            self._chief = (chief, time.monotonic())
        return head

    def _follow(self, head: Head | None) -> Head | None:
        """Does as all do; what is the case then."""
        if head is None:
            # The server has lost what it was told.
            return self._begin(None) if self.is_chief else self._hold(None)
        if self.is_chief:
            return self._of_chief(head)
        if head.closing or head.placement != self.current:
            return self._hold(head)
        self._fresh_until = self._asked_at + _STALE_S
        return head

    def _of_chief(self, head: Head) -> Head:
        if head.chief != self.own:
            self.is_deposed, self._fresh_until = True, 0.0
        elif head.closing and not self.is_closing:
            # What it could not end has ended: where variables are it knows.
            return self._begin(head)
        elif not head.closing:
            self._fresh_until = self._asked_at + _STALE_S
        return head

    def _hold(self, head: Head | None) -> Head | None:
        """No run begins until those that run have ended, and all goes on."""
        if head is None or head.placement != self.current:
            self._fresh_until = 0.0

        def given_up() -> None:
            if time.monotonic() - self._asked_at < _ASK_S / 2:
                return
            now = self._hear()
            if now != head and self.current == ("" if now is None else now.placement):
                raise _GivenUp
            if self.ended.is_set():
                raise _GivenUp

        until = time.monotonic() + self._limit_s
        try:
            with self.gate.closed(HOLD_S, given_up):
                while head is None or head.closing:
                    if self.ended.wait(_ASK_SOON_S) or time.monotonic() > until:
                        return head
                    with contextlib.suppress(errors.Error):
                        head = self._hear("" if head is None else head.closing)
                        self._go_on_without_chief(head)
                if head.placement != self.current:
                    self._take(head)
                self._fresh_until = self._asked_at + _STALE_S
        except _GivenUp:
            return self._hear()
        except errors.DeadlineExceededError as why:
            _log.warning("variables stay where they are: %s", why.message)
        return head

    def _go_on_without_chief(self, head: Head | None) -> None:
        """Ends a hand-over whose chief has died before it: variables are where they were."""
        assert self.board is not None
        if head is None or not head.closing or not self._has_no_chief():
            return
        self._chief = (self._chief[0], time.monotonic())
        if self.board.turn() == head.turn + 1:
            self.board.say(Head(head.placement, head.chief))
            _log.warning(
                "the chief was not heard of for %.0f s while variables were handed over; they stay "
                "where they were", _SILENT_S,
            )  # fmt: skip

    def _begin(self, head: Head | None) -> Head:
        """The chief says where variables are: where it or an earlier one has said, or the graph."""
        assert self.board is not None and self.graph is not None
        known, places = self.placement, self.graph.places()
        if head is not None and head.closing:
            self.board.turn()  # Who began it may not end it any more.
        if head is not None and not self.current:
            known = self.board.placement(head.placement) or known
        devices = {name: known.devices.get(name, device) for name, device in places.items()}
        tasks = {task for task in map(ps_task_of, devices.values()) if task is not None}
        used = sorted({min(self.ps()), *known.used, *tasks, *self.graph.fixed})
        name, now = secrets.token_hex(8), Placement(devices, used)
        if now == known:
            name = self.current or (head.placement if head is not None else name)
        made = Head(name, self.own)
        self.board.tell(made.placement, now)
        self.board.say(made)
        return made

    def _take(self, head: Head) -> None:
        """Sessions have variables where that says."""
        assert self.board is not None
        if head.placement == self.current:
            self._fresh_until = self._asked_at + _STALE_S
            return
        self._fresh_until = 0.0
        placement = self.board.placement(head.placement)
        if placement is None:
            raise errors.UnavailableError(f"placement {head.placement} is not told any more")
        self.use(head.placement, placement)

    def use(self, name: str, placement: Placement) -> None:
        """Sessions have variables there; one that cannot runs nothing any more."""
        self.current, self.placement = name, placement
        self.overrides = self.overrides_of(placement)
        for runner in self._attached():
            try:
                runner.place(self.overrides)
            except errors.Error as why:
                runner.end_with(errors.AbortedError(
                    "variables have moved, and the session cannot use them where they are: "
                    f"{why.message}"
                ))  # fmt: skip
        self._fresh_until = self._asked_at + _STALE_S

    def place(self, placement: Placement) -> None:
        """Sessions have variables there from now on: those that have begun. Errors: of one that
        cannot."""
        overrides = self.overrides_of(placement)
        for runner in self._attached():
            runner.place(overrides)

    def overrides_of(self, placement: Placement) -> tuple[dict[str, str], dict[str, str]]:
        """Where sessions have variables, and which parameter servers they do without, with another
        one in the place of each."""
        kept = {*placement.used, *self.fixed()}
        left = [task for task in self.ps() if task not in kept]
        instead = ps_name(min(placement.used))
        return dict(placement.devices), {ps_name(task): instead for task in left}


class _GivenUp(Exception):  # noqa: N818 - nothing is wrong.
    """Those who wanted to hand variables over do not any more."""


class SessionMover(Mover):
    """Moves the variables of monitored sessions; it is the chief's."""

    def __init__(self, places: Places) -> None:
        autoscale = None
        if places.autoscale != "off":
            autoscale = _native.Autoscale(places.autoscale, len(places.ps()))
        super().__init__(places.ended, autoscale)
        given = places.config.security
        if given is not None:
            self._security = given._to_native()
        self._places = places
        #: What programs said last, and when it was another thing for the first time.
        self._heard_at: dict[str, tuple[Program, float]] = {}
        #: The hand-over.
        self._head: Head | None = None
        self._looked_at = 0.0
        #: Variables that move and have no value yet.
        self._empty: set[str] = set()

    def look(self) -> None:
        """See Mover.look(). Nothing before the first session trains."""
        if not self._places.is_ready or self._places.is_deposed:
            return
        if time.monotonic() - self._looked_at > _SILENT_S / 4:
            with contextlib.suppress(errors.Error):
                self._programs()
            self._looked_at = time.monotonic()
        super().look()

    # --- What it has.

    def _cluster(self) -> _native.ClusterSpec:
        return self._places.cluster

    def _state_group(self) -> str:
        return self._places.config.state_group

    def _config_at(self, task: int | None, timeout_ms: int) -> ConfigProto:
        config = config_of(self._places.config)
        config.connect_timeout_in_ms = timeout_ms
        if task is not None:
            config.device_filters = [f"/job:{PS}/task:{task}"]
        return config

    def _used(self) -> list[int]:
        return self._places.placement.used

    def _groups(self) -> list[Group]:
        assert self._places.graph is not None
        found = []
        for group in self._places.graph.groups:
            device = self._places.device_of(group.variables[0].name, ps_device(group.task))
            task = ps_task_of(device)
            found.append(Group(group.name, group.task if task is None else task, group.variables))
        if not found:
            fixed = named(one for things in self._fixed().values() for one in things)
            raise errors.FailedPreconditionError(
                "the graph has nothing that can move: variables on tasks of the job ps do, unless "
                "they are in a container or beside a queue, a table or a barrier"
                + (f"; it has {fixed}" if fixed else "")
            )
        return found

    def _fixed(self) -> dict[int, list[str]]:
        """What does not move, by task, of all programs."""
        found = {task: list(things) for task, things in self._places.fixed().items()}
        for program in self._programs().values():
            for task, things in program.fixed.items():
                known = found.setdefault(task, [])
                known += [f"{one} of {program.name}" for one in things if one not in known]
        return found

    def _check_used(self, used: Sequence[int]) -> None:
        for task, things in sorted(self._fixed().items()):
            if task not in used:
                raise errors.FailedPreconditionError(
                    f"{ps_name(task)} has {named(things)}, which cannot move: have that on "
                    f"/job:{PS}/task:{min(self._places.ps())}, which no command leaves, and start "
                    "the training again"
                )

    # --- The other programs.

    def _programs(self) -> dict[str, Program]:
        """Those that live. Those that have died are forgotten, which is logged."""
        places = self._places
        assert places.board is not None
        _, programs = places.board.hear_all(places.key, places.program())
        now, dead = time.monotonic(), []
        for key, program in programs.items():
            before = self._heard_at.get(key)
            if before is None or before[0] != program:
                self._heard_at[key] = (program, now)
            elif now - before[1] > _SILENT_S and key != places.key:
                dead.append(key)
        self._heard_at = {key: self._heard_at[key] for key in programs if key not in dead}
        if dead:
            places.board.forget(dead)
            _log.warning(
                "%s: not heard of for %.0f s, and not waited for: it has died",
                named(programs[key].name for key in dead), _SILENT_S,
            )  # fmt: skip
        return {key: program for key, program in programs.items() if key not in dead}

    def _wait_for_programs(
        self, is_there: Callable[[str, Program], bool], check: Callable[[], object]
    ) -> None:
        """Until it is so of each that lives, but the chief."""
        until = time.monotonic() + HOLD_S
        while True:
            check()
            late = [
                program.name for key, program in self._programs().items()
                if key != self._places.key and not is_there(key, program)
            ]  # fmt: skip
            if not late:
                return
            if time.monotonic() > until:
                raise errors.DeadlineExceededError(
                    f"runs of {named(late)} have not ended within {HOLD_S:g} s: give the command "
                    "again when no run takes so long"
                )
            self._ended.wait(_ASK_SOON_S)

    # --- A move.

    def _without_values(self, moves: Sequence[Move]) -> set[str]:
        self._empty = set()
        for task in {move.from_task for move in moves}:
            variables = [
                each for move in moves if move.from_task == task for each in move.group.variables
            ]
            has_value = self._run_at(task, "VariableIsInitialized", variables)
            self._empty |= {each.name for each, has in zip(variables, has_value) if not has}
        return self._empty

    def _check_groups(self, moves: Sequence[Move], used: Sequence[int]) -> None:
        empty = self._empty
        if empty and self._without_values(moves) != empty:
            raise errors.AbortedError(
                f"one of {named(sorted(empty))} got its first value meanwhile: give the command "
                "again"
            )

    def _make_room(self, moves: Sequence[Move]) -> None:
        # What a move has left that was given up, or a program that died.
        for task in {move.to_task for move in moves}:
            self._destroy(task, [
                each for move in moves if move.to_task == task for each in move.group.variables
            ])  # fmt: skip

    def _gather(self, check: Callable[[], object]) -> None:
        places = self._places
        assert places.board is not None
        places.board.say(Head(places.current, places.own, hurries=True))
        try:
            before = {key: program.beat for key, program in self._programs().items()}
            self._wait_for_programs(
                lambda key, program: program.beat > before.get(key, -1) + 1, check
            )
        except BaseException:
            with contextlib.suppress(errors.Error):
                places.board.say(Head(places.current, places.own))
            raise

    @contextmanager
    def _held(self, check: Callable[[], object]) -> Iterator[None]:
        places = self._places
        board = places.board
        assert board is not None
        with contextlib.ExitStack() as stack:
            stack.callback(self._go_on)
            places.is_closing = True
            self._head = Head(places.current, places.own, hurries=True)
            stack.enter_context(locked(places.making, HOLD_S, "a session was being made"))
            stack.enter_context(places.gate.closed(HOLD_S, check))
            closing = secrets.token_hex(8)
            self._head = Head(places.current, places.own, closing, board.turn(), hurries=True)
            board.say(self._head)
            self._wait_for_programs(lambda _, program: program.held == closing, check)
            yield

    def _go_on(self) -> None:
        """Runs of all begin again where variables were, unless they have moved."""
        head, board = self._head, self._places.board
        self._head = None
        try:
            if head is not None and board is not None and self._may_end(head):
                board.say(Head(head.placement, head.chief))
        except errors.Error as why:
            _log.warning("workers wait until it is heard again: %s", errors.reason_of(why))
        finally:
            self._places.is_closing = False

    def _may_end(self, head: Head) -> bool:
        board = self._places.board
        return board is not None and (not head.closing or board.turn() == head.turn + 1)

    def _after(self, moves: Sequence[Move], used: Sequence[int]) -> Placement:
        devices = dict(self._places.placement.devices)
        for move in moves:
            for variable in move.group.variables:
                devices[variable.name] = ps_device(move.to_task)
        return Placement(devices, list(used))

    def _place(self, moves: Sequence[Move], used: list[int]) -> None:
        self._places.place(self._after(moves, used))

    def _place_back(self) -> None:
        self._places.use(self._places.current, self._places.placement)

    def _settle(self, moves: Sequence[Move], used: list[int]) -> None:
        places, head = self._places, self._head
        board = places.board
        assert board is not None and head is not None
        before, name, placement = places.current, secrets.token_hex(8), self._after(moves, used)
        board.tell(name, placement)
        if board.turn() != head.turn + 1:
            self._head = None
            raise errors.AbortedError(
                f"workers went on without it, as nothing was heard of it for {_SILENT_S:g} s: give "
                "the command again"
            )
        # It is decided: what is not heard now is said again.
        self._head = None
        places.use(name, placement)
        with contextlib.suppress(errors.Error):
            board.say(Head(name, places.own))
            board.drop(before)


class _MovesHook(SessionRunHook):
    """Lets the graph be one that moves, and commands be heard when it is trained."""

    def __init__(self, places: Places) -> None:
        self._places = places

    def begin(self) -> None:
        """Savers are built for it from here on."""
        get_default_graph().movable = True

    def after_create_session(self, session: Any, coord: Any) -> None:
        """All variables have values."""
        self._places.is_ready = True


def movable_of(
    master: str, is_chief: bool, name: str, config: ConfigProto | None, limit_s: float,
    autoscale: str,
) -> tuple[ConfigProto, SessionRunHook]:
    """The options of a worker's sessions whose variables may move, and its hook. A run ends when
    all that it has changed is there: else variables could be handed over before it. ValueError for
    a training of the default graph that cannot, with what to do."""
    _refuse_what_cannot_move(get_default_graph(), master, config)
    config = copy.copy(config or ConfigProto())
    config.pull_prefetch_ms = 0
    places = Places(master, is_chief, name, config, limit_s, autoscale)
    config._places = places
    return config, _MovesHook(places)
