"""Tables of a cluster that trains, kept current in this process, for programs that serve.

    with sr.Follower("grpc://10.0.0.7:2222", group="*", parts="modulo") as follower:
        follower.wait_until_current()
        rows = follower.lookup("item", [7, 7, 123])

docs/guide/following.md says what is where, and what it costs.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _native, errors
from .cluster_spec import ClusterDict, ClusterSpec
from .security import SecurityOptions
from .table_file import numbers_of

#: Seconds in which servers say where the tasks of the job are.
_REACH_S = 10.0


@dataclass(frozen=True)
class FollowedTask:
    """How far behind a task its copy is."""

    task: str  #: "/job:ps/replica:0/task:0".
    is_whole: bool  #: Whether all of it is here.
    cuts_behind: int  #: Changes that are known of, and not here.
    behind: float  #: It was the task so many seconds ago, at the latest.
    broken: str  #: What broke last, since it was asked for before, or is broken; or "".
    is_in_sync: bool = False  #: Whether pushes to it are answered when they are here.


def _behind(tasks: Sequence[FollowedTask]) -> float:
    return max((one.behind if one.is_whole else math.inf for one in tasks), default=math.inf)


class Follower:
    """A copy of the tables of parameter servers, kept current while they train; the training does
    not wait for it. A context manager; any thread may look up.

    cluster: "grpc://host:port" of a server, which says who is in the cluster; a ClusterSpec or what
        one is made of; or the addresses of the tasks of `job`.
    tables: names that wait_until_current() waits for as well.
    job: whose tasks are followed.
    group: the group of sessions whose variables are followed; "*": the only one, as of a training
        by `sidereal train` or fit(); "": variables that sessions share.
    parts: what NAME/part_0, NAME/part_1 ... are: "apart", tables of their own; "modulo", NAME,
        whose rows they have by turns, as of `sidereal train`; "blocks", NAME, each a piece of its
        rows, as of partitioners.
    cut: seconds in which changes are collected.
    synchronous: a synchronous standby: while it is in sync, tasks answer pushes when they are
        here, so that none that was answered is lost with a task. One that is late for
        `standby_timeout_ms` of a server is let go, until it has caught up again.
    security: what the servers want of who calls them; None: the secret of the environment
        (SIDEREAL_SECRET_FILE, SIDEREAL_SECRET), or nothing.

    Errors: InvalidArgumentError for a cluster without such a job; of a target, UnavailableError or
    DeadlineExceededError where no server answers.
    """

    def __init__(
        self,
        cluster: str | ClusterSpec | ClusterDict | Sequence[str],
        *,
        tables: Sequence[str] = (),
        job: str = "ps",
        group: str = "",
        parts: str = "apart",
        cut: float = 0.02,
        synchronous: bool = False,
        security: SecurityOptions | None = None,
    ) -> None:
        options = SecurityOptions.from_environment() if security is None else security
        if not 0.001 <= cut <= 10.0:
            raise errors.InvalidArgumentError(f"cut is 0.001 to 10 seconds, and not {cut}")
        if isinstance(tables, str):
            raise errors.InvalidArgumentError(f"tables are names in a list: [{tables!r}]")
        rest = (
            job, options._to_native(), _REACH_S, group, parts, list(tables), float(cut),
            bool(synchronous),
        )  # fmt: skip
        if isinstance(cluster, str):
            self._native = _native.Follower.of_target(cluster, *rest)
        else:
            if not isinstance(cluster, (ClusterSpec, Mapping)):
                cluster = {job: list(cluster)}
            native = _native.ClusterSpec.from_json(ClusterSpec(cluster).to_json())
            self._native = _native.Follower.of_cluster(native, *rest)
        self._is_closed = False
        # Its threads end when the object or the program ends, whether or not close() was called.
        self._finalizer = weakref.finalize(self, self._native.stop)

    def wait_until_current(self, timeout: float = 60.0) -> None:
        """Waits until all that was pushed before is here, and the tables of `tables`; a synchronous
        one also until pushes wait for it.

        Errors, after `timeout` seconds: UnavailableError naming a task that is not here as a whole,
        DeadlineExceededError naming one that does not say what it has, NotFoundError for a table.
        """
        self._check_open()
        self._native.wait_until_current(max(0.0, min(timeout, 1e6)))

    def lookup(self, table: str, ids: npt.ArrayLike) -> npt.NDArray[Any]:
        """Rows by number, [ids..., dim]; zeros for a negative one, as in a model.

        A row is as one push left it; rows of one call may be some milliseconds apart. While a task
        is away its rows are as they were last.

        Errors: NotFoundError naming the tables that are here; InvalidArgumentError for a number
        that is not below the number of rows; UnavailableError naming a task that is not here as a
        whole, as after its start.
        """
        self._check_open()
        numbers = numbers_of(ids)
        dtype, _, dim = self._native.table(table)
        found = np.empty((*numbers.shape, dim), dtype)
        flat = found.reshape(-1).view(np.uint8) if found.size else np.empty(0, np.uint8)
        self._native.look_up(table, numbers.reshape(-1), flat)
        return found

    @property
    def tables(self) -> dict[str, tuple[int, int]]:
        """The tables that are here: rows, and elements of a row, by name."""
        self._check_open()
        return {name: (rows, dim) for name, (_, rows, dim) in self._native.tables().items()}

    @property
    def tasks(self) -> list[FollowedTask]:
        """How far behind each task its copy is."""
        self._check_open()
        return [FollowedTask(*one) for one in self._native.tasks()]

    @property
    def behind(self) -> float:
        """What is here is what the tasks had so many seconds ago, at the latest: up to 0.25 while
        nothing changes. Infinite while one of them is not here as a whole."""
        return _behind(self.tasks)

    def close(self) -> None:
        """Follows no more."""
        self._is_closed = True
        self._finalizer()

    def _check_open(self) -> None:
        if self._is_closed:
            raise errors.FailedPreconditionError("this follower was closed")

    def __enter__(self) -> Follower:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class LookupClient:
    """Looks up rows that another process keeps current: `sidereal follow --listen`. Any thread may.

    address: "host:port", as it says.
    timeout: seconds for an answer.
    security: what that process wants of its callers; None: the secret of the environment
        (SIDEREAL_SECRET_FILE, SIDEREAL_SECRET), or nothing.

    Errors of all calls: UnavailableError and DeadlineExceededError where nothing answers.
    """

    def __init__(
        self, address: str, *, timeout: float = 10.0, security: SecurityOptions | None = None
    ) -> None:
        options = SecurityOptions.from_environment() if security is None else security
        self._native = _native.LookupClient.create(address, options._to_native())
        self.timeout = max(0.0, min(timeout, 1e6))

    def lookup(self, table: str, ids: npt.ArrayLike) -> npt.NDArray[Any]:
        """As Follower.lookup(). Rows of more than 65,536 ids, or of more than 4,000,000 bytes, come
        by several requests, all in the time for an answer. Errors: its, and AbortedError where a
        table gets rows of another form meanwhile."""
        numbers = numbers_of(ids)
        dtype, dim, found = self._native.look_up(table, numbers.reshape(-1), self.timeout)
        return np.frombuffer(bytearray(found), dtype).reshape(*numbers.shape, dim)

    @property
    def tables(self) -> dict[str, tuple[int, int]]:
        """The tables that can be looked up: rows, and elements of a row, by name."""
        found, _ = self._native.tables(self.timeout)
        return {name: (rows, dim) for name, (_, rows, dim) in found.items()}

    @property
    def tasks(self) -> list[FollowedTask]:
        """How far behind each task the copy is."""
        return [FollowedTask(*one) for one in self._native.tables(self.timeout)[1]]

    @property
    def behind(self) -> float:
        """As Follower.behind."""
        return _behind(self.tasks)


__all__ = ["FollowedTask", "Follower", "LookupClient"]
