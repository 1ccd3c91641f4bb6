"""What the programs of one training tell one another while variables move: a table beside the first
parameter server's variables, which says where all are."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from .. import errors
from .._dispatch import convert
from .._resources import Resource
from .._run_metadata import RunOptions
from ..lookup import experimental as _lookup
from .config import ConfigProto
from .graph import Graph, placeholder
from .session import Session

#: How long the parameter server has for an answer.
_ANSWER_MS = 5000
#: Keys beside those of programs, which begin with "program/".
_HEAD, CHIEF = "head", "program/chief"


@dataclass(frozen=True)
class Head:
    """What all do.

    placement: which of those that were told is current. chief: which one has said so last.
    closing: which hand-over it is that no step may begin for; "": steps run. turn: of the
    hand-over, see Board.turn(). hurries: a hand-over comes soon.
    """

    placement: str
    chief: str = ""
    closing: str = ""
    turn: int = 0
    hurries: bool = False


@dataclass(frozen=True)
class Placement:
    """Where variables are, by name, and the parameter servers that the training is on."""

    devices: dict[str, str]
    used: list[int]


@dataclass(frozen=True)
class Program:
    """A program of the training.

    name: as it is called in errors. beat: another one each time that it is heard of. held: the
    hand-over that it runs no step for. fixed: what it has that does not move, by task.
    """

    name: str
    beat: int = 0
    held: str = ""
    fixed: dict[int, list[str]] = field(default_factory=dict)


class _Turns(Resource):
    """Gives numbers, one after the other: the barrier of bounded staleness, at which nobody
    waits."""

    def __init__(self) -> None:
        super().__init__("StepBarrier", {}, "turns", "moves/turns")

    def next(self) -> Any:
        inputs = (convert("turn", "string"), convert(0, "int64"))
        return self._apply("StepBarrierJoin", inputs)


class Board:
    """Reads and writes it, by a session of its own, which is made again when it was lost.

    target: the master of the session. task: the parameter server. Thread: any.
    Errors of all methods: UnavailableError and DeadlineExceededError when it does not answer, and
    others of Session.run().
    """

    def __init__(self, target: str, task: int, config: ConfigProto) -> None:
        self._target, self._config = target, config
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._graph = Graph()
        with (
            self._graph.as_default(), self._graph.building(),
            self._graph.device(f"/job:ps/task:{task}"),
        ):  # fmt: skip
            table = _lookup.MutableHashTable(
                "string", "string", "", shared_name="moves/programs", checkpoint=False
            )
            places = _lookup.MutableHashTable(
                "string", "string", "", shared_name="moves/placements", checkpoint=False
            )
            self._key = placeholder("string", [None], "keys")
            self._value = placeholder("string", [None], "values")
            self._insert = table.insert(self._key, self._value)
            with self._graph.control_dependencies([self._insert]):
                self._heard = table.lookup(convert([_HEAD, CHIEF], "string"))
                self._all = table.export()
            self._remove = table.remove(self._key)
            self._place = places.insert(self._key, self._value)
            self._placed = places.lookup(self._key)
            self._displace = places.remove(self._key)
            self._turn = _Turns().next()

    def hear(self, key: str, program: Program) -> tuple[Head | None, str]:
        """Tells of a program, and what all do then; None: nobody has said it. What the chief says
        of itself, too."""
        head, chief = self._run(self._heard, self._of(key, program))
        return _head_of(head), chief.decode()

    def hear_all(
        self, key: str, program: Program
    ) -> tuple[Head | None, dict[str, Program]]:
        """Tells of a program, and gives all that have told of themselves."""
        keys, values = self._run(self._all, self._of(key, program))
        found = {name.decode(): value for name, value in zip(keys, values)}
        head = _head_of(found.pop(_HEAD, b""))
        return head, {name: _program_of(value) for name, value in found.items()}

    def say(self, head: Head) -> None:
        """What all do from now on."""
        self._run(self._insert, {self._key: [_HEAD], self._value: [json.dumps(asdict(head))]})

    def chief(self) -> str:
        """What the chief said last of itself, "" where there is none."""
        return self._run(self._heard, {self._key: [], self._value: []})[1].decode()

    def forget(self, keys: Sequence[str]) -> None:
        """Programs that are not there any more."""
        self._run(self._remove, {self._key: list(keys)})

    def placement(self, name: str) -> Placement | None:
        """One that was told."""
        (found,) = self._run(self._placed, {self._key: [name]})
        return Placement(**json.loads(found)) if found else None

    def tell(self, name: str, placement: Placement) -> None:
        """Tells of a placement, before it is the current one."""
        text = json.dumps(asdict(placement))
        self._run(self._place, {self._key: [name], self._value: [text]})

    def drop(self, name: str) -> None:
        """A placement that is of no use any more."""
        self._run(self._displace, {self._key: [name]})

    def turn(self) -> int:
        """A number, one more than who came before got: of those who want to end a hand-over, the
        one that is next after who began it may."""
        return int(self._run(self._turn, {}))

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _of(self, key: str, program: Program) -> Mapping[Any, Any]:
        return {self._key: [key], self._value: [json.dumps(asdict(program))]}

    def _run(self, what: Any, feeds: Mapping[Any, Any]) -> Any:
        with self._lock:
            if self._session is None:
                self._session = Session(self._target, self._graph, self._config)
            try:
                return self._session.run(what, feeds, RunOptions(timeout_in_ms=_ANSWER_MS))
            except errors.DeadlineExceededError:
                raise
            except BaseException:
                self._drop()
                raise

    def _drop(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            with contextlib.suppress(errors.Error):
                session.close()


def config_of(given: ConfigProto) -> ConfigProto:
    """Options of sessions beside those that train: they share what these have."""
    return ConfigProto(
        state_group=given.state_group, security=given.security, pull_prefetch_ms=0,
        connect_timeout_in_ms=_ANSWER_MS,
    )  # fmt: skip


def _head_of(text: bytes) -> Head | None:
    return Head(**json.loads(text)) if text else None


def _program_of(text: bytes) -> Program:
    said = json.loads(text)
    said["fixed"] = {int(task): things for task, things in said["fixed"].items()}
    return Program(**said)
