"""Workers of sessions that are at most so many steps ahead of each other: `consistency` of a
MonitoredTrainingSession."""

from __future__ import annotations

import logging
import time
from typing import Any

from .. import errors
from .._dispatch import convert
from .._resources import Resource, done
from .._run_metadata import RunOptions
from .basic_session_run_hooks import step_of_default_graph
from .graph import building, get_default_graph, no_op, placeholder
from .session_run_hook import SessionRunArgs, SessionRunContext, SessionRunHook, SessionRunValues

_log = logging.getLogger("sidereal")


class _StepBarrier(Resource):
    """Counts the steps that workers have ended, beside the global step, and holds back those that
    are ahead."""

    def __init__(self) -> None:
        super().__init__("StepBarrier", {}, "step_barrier", "bounded_staleness/barrier")

    def join(self, name: str, bound: int) -> Any:
        """The number of one more replica, int64 []."""
        inputs = (convert(name, "string"), convert(bound, "int64"))
        return self._apply("StepBarrierJoin", inputs)

    def wait(self, replica: Any) -> Any:
        """Until the replica may begin its next step."""
        return done(self._apply("StepBarrierAwait", (replica,)))

    def advance(self, replica: Any) -> Any:
        """The replica has ended a step."""
        return done(self._apply("StepBarrierAdvance", (replica,)))

    def leave(self, replica: Any) -> Any:
        """The replica is not waited for any more."""
        return done(self._apply("StepBarrierLeave", (replica, convert(0, "int64"))))

    def expel(self, replica: Any) -> Any:
        """Those that the replica waits for are not waited for until they are heard of; their
        names."""
        return self._apply("StepBarrierExpel", (replica,))


class BoundedStalenessHook(SessionRunHook):
    """Holds back a worker that is ahead of others (stale synchronous parallel: Ho et al., More
    Effective Distributed ML via a Stale Synchronous Parallel Parameter Server, 2013).

    Before its run c a worker waits until each other one has ended its run c - bound - 1, with all
    that it changes. Workers join when their session is made, from where the slowest is, and leave
    at the end; one that is started again has the place of the one of its name. One that does not
    end a run for `replica_timeout_secs` while another waits for it may have died: it is not waited
    for until it is heard of, which is logged.

    bound: at least 1, the same for all workers: InvalidArgumentError in the session otherwise.
    name: of this worker, which no other has; the device of its ops if absent. ValueError where
    these have none.
    """

    def __init__(
        self, bound: int, name: str | None = None, *, replica_timeout_secs: float = 60
    ) -> None:
        if bound < 1:
            raise ValueError(
                f"bound is {bound}; it must be 1 or more: to train in step is what "
                "SyncReplicasOptimizer is for"
            )
        if not replica_timeout_secs > 0:
            raise ValueError(f"replica_timeout_secs is {replica_timeout_secs}; it must be above 0")
        self._bound = bound
        self._name = name
        self._timeout_s = replica_timeout_secs
        self._number: int | None = None

    def begin(self) -> None:
        """Adds what waits to the graph. RuntimeError without a global step."""
        step = step_of_default_graph(self)
        graph = get_default_graph()
        with building():
            name = self._name or no_op(name="worker").device
            if not name:
                raise ValueError(
                    "ops of this worker are on no device of their own, by which others would know "
                    "it: build them in tf.device(), or give BoundedStalenessHook a name"
                )
            with graph.device(None), graph.colocate_with(step.op, ignore_existing=True):
                self._replica = placeholder("int64", [], "bounded_staleness/replica")
                barrier = _StepBarrier()
                self._join = barrier.join(name, self._bound)
                self._wait = barrier.wait(self._replica)
                self._advance = barrier.advance(self._replica)
                self._leave = barrier.leave(self._replica)
                self._expel = barrier.expel(self._replica)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Joins."""
        self._number = int(session.run(self._join))

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Waits until this worker may go on."""
        began = time.monotonic()
        limit = RunOptions(timeout_in_ms=max(1, int(self._timeout_s * 1000)))
        while True:
            try:
                self._run(run_context.session, self._wait, limit)
                return SessionRunArgs(None, options=RunOptions(waits_for_pushes=True))
            except errors.DeadlineExceededError:
                late = self._run(run_context.session, self._expel)
                if len(late):
                    _log.warning(
                        "this worker has waited for %.0f s, and goes on without %s, which may have "
                        "died", time.monotonic() - began,
                        ", ".join(name.decode(errors="replace") for name in late),
                    )  # fmt: skip

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Says that a step has ended."""
        self._run(run_context.session, self._advance)

    def end(self, session: Any) -> None:
        """Leaves."""
        self._run(session, self._leave)

    def _run(self, session: Any, what: Any, options: RunOptions | None = None) -> Any:
        return session.run(what, {self._replica: self._number}, options)
