"""A parameter server of a strategy that was lost comes back with its variables, and who trains goes
on."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .. import _events, _native, errors, v1
from .._lost import RestoredTask, size_of
from .._pushes import UnsavedPushes
from ..checkpoint import parts_elsewhere
from ..checkpoint_manager import CheckpointManager
from ..device_spec import ps_name
from . import _cluster_checkpoint
from ._resolver import Life

if TYPE_CHECKING:
    from .parameter_server_strategy import ParameterServerStrategy

#: What a session ends with that a task of it was lost for, or that was closed since.
_LOST = (errors.AbortedError, errors.CancelledError, errors.UnavailableError)
#: Sessions that are made, and servers that are restored, before it is given up.
_TRIES = 10
#: How often a thread looks whether workers have met a server that has lost its variables.
LOOK_S = 0.1


class RecoveringSession:
    """The session of a strategy, made anew when a parameter server was lost: what only reads, or
    gives variables values that are known, is run again then."""

    def __init__(self, inner: v1.Session, recovery: Recovery) -> None:
        self.inner = inner
        self._recovery = recovery

    def _run(self, values: Any, targets: Any, places: Any, tensors: Any) -> Any:
        return self._tried(not targets, values, targets, places, tensors)

    def _run_again(self, *what: Any) -> Any:
        """As _run(), of what may be done twice."""
        return self._tried(True, *what)

    def _tried(self, is_repeatable: bool, *what: Any) -> Any:
        for left in reversed(range(_TRIES)):
            inner = self.inner
            try:
                return inner._run(*what)
            except _LOST as error:
                if not self._recovery.recover(inner, error) or not left:
                    raise
                if not is_repeatable:
                    if hasattr(error, "add_note"):
                        error.add_note(
                            "the parameter server is back with its variables; whether this step "
                            "has changed others is not known"
                        )
                    raise
        raise AssertionError("the last try returns or raises")

    def list_devices(self) -> Any:
        return self.inner.list_devices()

    def close(self) -> None:
        self.inner.close()


class Recovery:
    """Restores what parameter servers have lost that were started again.

    Variables belong to the strategy's group of sessions, and go with the last of them. So that the
    servers that live keep theirs while all sessions are made anew, each holds a session of its own.
    """

    def __init__(self, strategy: ParameterServerStrategy, patience_s: float) -> None:
        self._strategy = strategy
        self._patience_ms = int(patience_s * 1000)
        self._native: _native.ClusterCoordinator | None = None
        self._manager: CheckpointManager | None = None
        #: What checkpoints have of the strategy's variables. Not looked up after a loss, as objects
        #: may read variables when they say what they have.
        self._parts: list[_cluster_checkpoint.Part] = []
        self._is_recovering = False
        #: Of each checkpoint, how many functions had ended when it was begun.
        self._done: dict[str, int] = {}
        self._holders: dict[int, v1.Session] = {}
        self.use(strategy._used_ps)
        self._unsaved = UnsavedPushes(strategy._target_of_status(), ["ps"])
        #: All that came back, the latest last.
        self.restored: list[RestoredTask] = []
        before = strategy._session
        inner = before.inner if isinstance(before, RecoveringSession) else before
        strategy._session = RecoveringSession(inner, self)

    def coordinate(self, native: _native.ClusterCoordinator) -> None:
        """Says whose workers wait for what is restored."""
        self._native = native

    def look_for_lost(self) -> None:
        """Restores what workers have met, if anything."""
        lost = None if self._native is None else self._native.next_lost_ps()
        if lost is not None:
            self.look(lost)

    def end(self) -> None:
        """Restores nothing any more: losses are raised."""
        self._native = None
        self._unsaved.close()
        strategy = self._strategy
        if isinstance(strategy._session, RecoveringSession):
            strategy._session = strategy._session.inner
        for holder in self._holders.values():
            with contextlib.suppress(errors.Error):
                holder.close()

    def use(self, tasks: Sequence[int]) -> None:
        """Variables are, or are going to be, on these parameter servers, and on no others."""
        for task in set(self._holders) - set(tasks):
            with contextlib.suppress(errors.Error):
                self._holders.pop(task).close()
        for task in set(tasks) - set(self._holders):
            self._holders[task] = self._holder(task)

    def restore_from(self, manager: CheckpointManager) -> None:
        """Says what has the checkpoints."""
        self._manager = manager
        self._parts = parts_elsewhere(manager.checkpoint, self._strategy)
        manager.before_save(self._note_save)

    def _note_save(self, prefix: str) -> None:
        self._done = {each: count for each, count in self._done.items()
                      if each in self._manager_of_all().checkpoints}  # fmt: skip
        self._done[prefix] = self._count_done()
        self._parts = parts_elsewhere(self._manager_of_all().checkpoint, self._strategy)

    def _count_done(self) -> int:
        return 0 if self._native is None else self._native.figures()[4]

    def _manager_of_all(self) -> CheckpointManager:
        if self._manager is None:
            raise errors.FailedPreconditionError(
                "nobody said where its variables could be restored from: call "
                "ClusterCoordinator.restore_from() with a CheckpointManager"
            )
        return self._manager

    def _holder(self, task: int) -> v1.Session:
        """A session at a parameter server that no other task has a part in."""
        return self._strategy._session_at(task, self._patience_ms)

    # --- After a loss.

    def look(self, lost: tuple[int, Life]) -> None:
        """Restores a parameter server that workers have met in another life, (number, life). The
        job has failed if that cannot be."""
        place, life = lost
        strategy = self._strategy
        session = strategy._session
        assert isinstance(session, RecoveringSession)
        error = errors.AbortedError(f"{ps_name(strategy._ps[place])} was started again")
        if strategy._lives[place] != life:
            try:
                self.recover(session.inner, error)
            except Exception as why:  # noqa: BLE001 - the coordinator raises it.
                self._fail(place, why)

    def _fail(self, place: int, why: BaseException) -> None:
        if self._native is not None:
            text = f"it was started again, and is not restored: {errors.reason_of(why)}"
            self._native.ps_failed(place, text)

    def recover(self, failed: v1.Session, error: errors.Error) -> bool:
        """Has the strategy a session in which all parameter servers have their variables, unless
        it has another one than `failed` already. False: nothing was lost, and none was made.
        Errors: why that cannot be."""
        strategy = self._strategy
        with strategy._lock:
            session = strategy._session
            assert isinstance(session, RecoveringSession)
            if session.inner is not failed:
                return True
            if isinstance(error, errors.CancelledError) or self._is_recovering:
                return False
            self._is_recovering = True
            try:
                session.inner = self._made_anew(error)
            finally:
                self._is_recovering = False
            with contextlib.suppress(errors.Error):
                failed.close()
            return True

    def _made_anew(self, error: errors.Error) -> v1.Session:
        strategy = self._strategy
        last: errors.Error = error
        for _ in range(_TRIES):
            session = strategy._new_session(self._patience_ms)
            try:
                met = strategy._connect(session)
                lost = [place for place, life in enumerate(met) if life != strategy._lives[place]]
                for place in lost:
                    self._restore(session, place)
                    strategy._lives[place] = met[place]
                    if self._native is not None:
                        self._native.ps_restored(place, met[place])
                return session
            except (errors.AbortedError, errors.UnavailableError) as again:
                last = again  # It was lost again.
                with contextlib.suppress(errors.Error):
                    session.close()
            except BaseException:
                with contextlib.suppress(errors.Error):
                    session.close()
                raise
        raise last

    def _restore(self, session: v1.Session, place: int) -> None:
        strategy = self._strategy
        task = strategy._ps[place]
        name, device = ps_name(task), strategy._ps_device(task)
        begin = time.monotonic()
        self._holders[task] = self._holder(task)
        if self._is_back(session, place, begin):
            return
        manager = self._manager_of_all()
        prefix = manager.latest_checkpoint
        if prefix is None:
            raise errors.FailedPreconditionError(
                f"there is no checkpoint in {manager.directory}: save as soon as variables are made"
            )
        _events.emit("restore_begun", task=name, prefix=prefix)
        parts = [part for part in self._parts if part[2].device == device]
        anew = self._not_in(parts, strategy._variables_on(device), prefix)
        variables = [variable for _, _, variable in parts]
        if parts:
            _cluster_checkpoint.restore(strategy, prefix, parts, session)
        if anew:
            session._run([], [variable._first_value for variable in anew], [], [])
        rows, size = size_of([variable.shape for variable in variables],
                             [variable.dtype.itemsize for variable in variables])  # fmt: skip
        saved = self._done.get(prefix)
        done = RestoredTask(
            name, tuple(variable.name for variable in variables), rows, size, prefix,
            time.monotonic() - begin, None if saved is None else self._count_done(), saved,
            tuple(variable.name for variable in anew), pushed=self._unsaved.take_lost(name, prefix),
        )  # fmt: skip
        self.restored.append(done)
        done.say()

    def _is_back(self, session: v1.Session, place: int, begin: float) -> bool:
        """Whether the server has taken all from its standby, and nothing is to be restored."""
        strategy = self._strategy
        task = strategy._ps[place]
        name, device = ps_name(task), strategy._ps_device(task)
        taken = self._unsaved.taken(name)
        variables = strategy._variables_on(device)
        if taken is None or not _cluster_checkpoint.have_values(strategy, variables, session):
            return False
        done = RestoredTask(
            name, tuple(variable.name for variable in variables), taken.rows, taken.bytes, "",
            time.monotonic() - begin, pushed=self._unsaved.take_lost(name, taken),
            standby=taken.standby,
        )  # fmt: skip
        self.restored.append(done)
        done.say()
        return True

    @staticmethod
    def _not_in(parts: Sequence[Any], living: Sequence[Any], prefix: str) -> list[Any]:
        """Variables that are in no checkpoint, and may begin anew: nothing is learned in them, as
        in those of metrics."""
        saved = {id(variable) for _, _, variable in parts}
        others = [variable for variable in living if id(variable) not in saved]
        missing = [variable.name for variable in others
                   if variable.trainable or variable._first_value is None]  # fmt: skip
        if missing:
            raise errors.FailedPreconditionError(
                f"{', '.join(missing[:10])} were on it and are not in checkpoint {prefix}: give "
                "all variables to the Checkpoint"
            )
        return others
