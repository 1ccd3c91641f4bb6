"""Hooks: what is called around the runs of a MonitoredSession (tf.estimator.SessionRunHook).

    class Printer(tf.train.SessionRunHook):
        def before_run(self, run_context):
            return tf.train.SessionRunArgs(loss)

        def after_run(self, run_context, run_values):
            print(run_values.results)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from .._run_metadata import RunMetadata, RunOptions


class SessionRunArgs(NamedTuple):
    """What a hook adds to a run (tf.estimator.SessionRunArgs): `fetches` and `feed_dict` as of
    Session.run(), and `options`, a RunOptions."""

    fetches: Any
    feed_dict: Mapping[Any, Any] | None = None
    options: RunOptions | None = None


class SessionRunValues(NamedTuple):
    """What a run gave (tf.estimator.SessionRunValues): `results` of what the hook fetched, None
    when it fetched nothing; the `options` and `run_metadata` of the run."""

    results: Any
    options: RunOptions
    run_metadata: RunMetadata


class SessionRunContext:
    """What a hook knows of a run, and how it asks for an end (tf.estimator.SessionRunContext)."""

    def __init__(self, original_args: SessionRunArgs, session: Any) -> None:
        self._original_args = original_args
        self._session = session
        self._stop_requested = False

    @property
    def original_args(self) -> SessionRunArgs:
        """What the caller of run() asked for."""
        return self._original_args

    @property
    def session(self) -> Any:
        """The Session that runs, without hooks."""
        return self._session

    @property
    def stop_requested(self) -> bool:
        """Whether a hook has asked for an end."""
        return self._stop_requested

    def request_stop(self) -> None:
        """Makes should_stop() of the monitored session True after this run."""
        self._stop_requested = True


class SessionRunHook:
    """Base of hooks (tf.estimator.SessionRunHook), whose methods do nothing here."""

    def begin(self) -> None:
        """Called once, before the session is made; the graph may still be added to."""

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Called with each new session, also after a recovery, when its variables have values. The
        graph is final."""

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Called before each run; gives what is to be added to it, if anything."""
        return None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Called after each run that ended well."""

    def end(self, session: Any) -> None:
        """Called at the end, unless an error other than OutOfRangeError or StopIteration ended the
        training."""
