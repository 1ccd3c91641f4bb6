"""Saving while training goes on (tf.estimator.CheckpointSaverHook)."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

from .. import errors
from .._run_metadata import RunOptions
from . import summary as _summary
from .basic_session_run_hooks import SecondOrStepTimer, step_of_default_graph, writer_of
from .graph import GraphKeys, get_collection, get_default_graph
from .session_run_hook import SessionRunArgs, SessionRunContext, SessionRunHook, SessionRunValues

_log = logging.getLogger("sidereal")

#: How often what waits for a checkpoint says so, in seconds.
_SAY_EVERY_S = 30


class CheckpointSaverListener:
    """Is told of checkpoints (tf.estimator.CheckpointSaverListener); all methods are called on the
    thread that trains."""

    def begin(self) -> None:
        """Called when the graph may still be added to."""

    def before_save(self, session: Any, global_step_value: int) -> None:
        """Called before a checkpoint is begun."""

    def after_save(self, session: Any, global_step_value: int) -> bool | None:
        """Called when one is on disk, at the next run, or at the end. True ends the training."""

    def end(self, session: Any, global_step_value: int) -> None:
        """Called at the end."""


class _Save:
    """A checkpoint that a thread writes."""

    def __init__(self, save: Callable[[], Any], path: str, step: int) -> None:
        self.path = f"{path}-{step}"
        self.step = step
        self.error: BaseException | None = None
        self._thread = threading.Thread(
            target=self._run, args=(save,), daemon=True, name=f"CheckpointSaverHook-{self.path}"
        )
        self._thread.start()

    def _run(self, save: Callable[[], Any]) -> None:
        try:
            save()
        except BaseException as error:  # noqa: BLE001 - the training thread raises it.
            self.error = error

    @property
    def has_ended(self) -> bool:
        return not self._thread.is_alive()

    def wait(self, seconds: float) -> None:
        """Until it has ended: its run has a deadline, which is this one."""
        left = seconds
        while True:
            self._thread.join(min(left, _SAY_EVERY_S))
            if self.has_ended:
                return
            left -= _SAY_EVERY_S
            if left <= 0:
                raise errors.DeadlineExceededError(
                    f"checkpoint '{self.path}' has not been written within {seconds:g} seconds; "
                    "raise save_timeout_secs of the CheckpointSaverHook if the disk is slow"
                )
            _log.info("waiting for checkpoint %s to be written", self.path)

    def check(self) -> None:
        """Raises what kept it from being written, with its path."""
        if self.error is None:
            return
        what = f"checkpoint '{self.path}' could not be written: "
        if isinstance(self.error, errors.Error):
            raise type(self.error)(what + self.error.message) from self.error
        raise RuntimeError(what + repr(self.error)) from self.error


class CheckpointSaverHook(SessionRunHook):
    """Saves checkpoints (tf.estimator.CheckpointSaverHook): when the session is made, every
    `save_secs` seconds or `save_steps` steps, and at the end, if there were steps since.

    A thread writes them, with a run of its own: training goes on meanwhile, and a checkpoint has
    what variables are at one instant on each lane, of its step or a little later. The next one is
    begun when it is on disk. What keeps it from being written is raised by the next run, or at the
    end. The first one and the last are waited for; so is each of a saver that saves iterators or
    tables too, which then are as they are between two runs.

    checkpoint_dir: made when it is not there. checkpoint_basename: files are called BASENAME-STEP.
    saver, scaffold: what saves; else what the collection SAVERS has.
    listeners: CheckpointSaverListeners.
    save_graph_def: whether the graph is written beside each.
    save_timeout_secs: how long one may take.
    incremental_save_secs: how often it saves what has changed since the last checkpoint, between
        those of save_secs or save_steps, which are whole; needs a saver that was made with
        incremental_save_restore=True. Never, if absent.
    """

    def __init__(
        self,
        checkpoint_dir: str,
        save_secs: float | None = None,
        save_steps: int | None = None,
        saver: Any = None,
        checkpoint_basename: str = "model.ckpt",
        scaffold: Any = None,
        listeners: Sequence[CheckpointSaverListener] | None = None,
        save_graph_def: bool = True,
        *,
        save_timeout_secs: float = 3600,
        incremental_save_secs: float | None = None,
    ) -> None:
        if saver is not None and scaffold is not None:
            raise ValueError("You cannot provide both saver and scaffold.")
        self._saver = saver
        self._scaffold = scaffold
        self._directory = os.fspath(checkpoint_dir)
        self._path = os.path.join(self._directory, checkpoint_basename)
        self._timer = SecondOrStepTimer(every_secs=save_secs, every_steps=save_steps)
        self._increments: SecondOrStepTimer | None = None
        if incremental_save_secs is not None:
            self._increments = SecondOrStepTimer(every_secs=incremental_save_secs)
        if saver is not None:
            self._check(saver)
        self._listeners = list(listeners or [])
        self._save_graph_def = save_graph_def
        self._timeout_s = save_timeout_secs
        self._save: _Save | None = None
        self._writer: Any = None
        #: What was last read of the global step, by the latest run that ended.
        self.last_step: int | None = None

    def _check(self, saver: Any) -> None:
        if self._increments is not None and not getattr(saver, "_is_incremental", False):
            raise ValueError(
                "incremental_save_secs needs a Saver that was made with "
                "incremental_save_restore=True"
            )

    def begin(self) -> None:
        self._step = step_of_default_graph(self)
        os.makedirs(self._directory, exist_ok=True)
        self._writer = writer_of(self._directory)
        for listener in self._listeners:
            listener.begin()

    def after_create_session(self, session: Any, coord: Any) -> None:
        self._forget()
        self._check(self._get_saver())
        if self._save_graph_def:
            path = os.path.join(self._directory, "graph.txt")
            with open(path, "w") as file:
                file.write(get_default_graph().native.text())
        step = self.last_step = int(session.run(self._step))
        self._begin_save(session, step)
        self._finish_save(session)

    def _forget(self) -> None:
        """What was being written when the session was lost is of no use any more."""
        save, self._save = self._save, None
        if save is not None:
            save.wait(self._timeout_s)
            if save.error is not None:
                _log.info("checkpoint %s was not written: %s", save.path, save.error)

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        save = self._save
        if save is not None and save.has_ended and save.error is not None:
            self._save = None
            save.check()
        return SessionRunArgs(self._step)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        session = run_context.session
        self.last_step = int(run_values.results)
        if self._save is not None:
            if not self._save.has_ended:
                return
            if self._finish_save(session):
                run_context.request_stop()
        if not self._is_due(self.last_step + 1):
            return
        # The run may have counted after it was read, and others count as well.
        step = self.last_step = int(session.run(self._step))
        if not self._is_due(step):
            return
        self._begin_save(session, step, not self._timer.should_trigger_for_step(step))
        is_exact = getattr(self._get_saver(), "_has_objects", False)
        if is_exact and self._finish_save(session):
            run_context.request_stop()

    def _is_due(self, step: int) -> bool:
        """Whether a checkpoint is, or what has changed since the last one."""
        timers = (self._timer, self._increments)
        return any(each is not None and each.should_trigger_for_step(step) for each in timers)

    def end(self, session: Any) -> None:
        if self._save is not None:
            self._finish_save(session)
        step = int(session.run(self._step))
        if step != (self._increments or self._timer).last_triggered_step():
            self._begin_save(session, step)
            self._finish_save(session)
        for listener in self._listeners:
            listener.end(session, step)

    def wait(self) -> None:
        """Until the checkpoint that is being written, if any, has ended well or not."""
        if self._save is not None:
            self._save.wait(self._timeout_s)

    def _begin_save(self, session: Any, step: int, is_increment: bool = False) -> None:
        for timer in (self._increments, None if is_increment else self._timer):
            if timer is not None:
                timer.update_last_triggered_step(step)
        for listener in self._listeners:
            listener.before_save(session, step)
        options = RunOptions(timeout_in_ms=max(1, int(self._timeout_s * 1000)))
        saver, with_graph = self._get_saver(), self._save_graph_def

        def save() -> None:
            if is_increment:
                saver.incremental_save(session, self._path, step, options=options)
            else:
                saver.save(session, self._path, step, write_meta_graph=with_graph, options=options)

        self._save = _Save(save, self._path, step)

    def _finish_save(self, session: Any) -> bool:
        """Waits for the checkpoint that is being written; whether a listener ends the training."""
        save, self._save = self._save, None
        assert save is not None
        save.wait(self._timeout_s)
        save.check()
        if self._writer is not None:
            log = _summary.SessionLog(
                status=_summary.SessionLog.CHECKPOINT, checkpoint_path=self._path
            )
            self._writer.add_session_log(log, save.step)
        stops = [bool(one.after_save(session, save.step)) for one in self._listeners]
        return any(stops)

    def _get_saver(self) -> Any:
        if self._saver is None and self._scaffold is not None:
            return self._scaffold.saver
        if self._saver is None:
            found = get_collection(GraphKeys.SAVERS)
            if len(found) != 1:
                how = "No items" if not found else "More than one item"
                raise RuntimeError(
                    f"{how} in collection {GraphKeys.SAVERS}: give the hook a saver or a scaffold"
                )
            self._saver = found[0]
        return self._saver
