"""Training loops that come back after failures: sessions with hooks, made by a chief and waited for
by others (tf.compat.v1.train.MonitoredTrainingSession).

    with tf.train.MonitoredTrainingSession(
            master=server.target, is_chief=index == 0, checkpoint_dir="model",
            hooks=[tf.train.StopAtStepHook(last_step=100000)]) as session:
        while not session.should_stop():
            session.run(train_op)
"""

from __future__ import annotations

import inspect
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import errors
from .._run_metadata import RunMetadata, RunOptions
from .basic_session_run_hooks import StepCounterHook, SummarySaverHook
from .checkpoint_saver_hook import CheckpointSaverHook
from .config import ConfigProto
from .consistency import geo_of, hooks_of
from .coordinator import Coordinator, start_queue_runners
from .geo import GeoListener
from .graph import GraphKeys, get_collection, get_default_graph
from .scaffold import Scaffold
from .session import Session
from .session_creator import ChiefSessionCreator, SessionCreator, WorkerSessionCreator
from .session_moves import movable_of
from .session_run_hook import SessionRunArgs, SessionRunContext, SessionRunHook, SessionRunValues

_log = logging.getLogger("sidereal")

#: Errors after which a new session goes on: a task was lost, or has been started anew.
_PREEMPTION_ERRORS = (errors.AbortedError, errors.UnavailableError)
#: Stands for what TensorFlow takes when nothing is said.
USE_DEFAULT: Any = object()
#: How long the first pause between two recoveries in a row is, and the longest, in seconds.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0


# --- What runs: each of these adds something to the one inside of it.


class StepContext:
    """What a function of run_step_fn() runs with."""

    def __init__(self, session: Session, run_with_hooks: Callable[..., Any]) -> None:
        self._session = session
        self._run_with_hooks = run_with_hooks

    @property
    def session(self) -> Session:
        """The session without hooks."""
        return self._session

    def run_with_hooks(self, *args: Any, **kwargs: Any) -> Any:
        """As run() of the monitored session. It may not be called twice in one step."""
        return self._run_with_hooks(*args, **kwargs)

    def request_stop(self) -> None:
        """Ends the training: should_stop() is True from now on."""
        raise StopIteration("step_fn has requested the iterations to stop.")


class _HookedSession:
    """Calls hooks around the runs of a session."""

    def __init__(self, session: Session, hooks: Sequence[SessionRunHook]) -> None:
        self.session = session
        self._hooks = hooks
        self.should_stop = False

    def run(
        self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None
    ) -> Any:
        if self.should_stop:
            raise RuntimeError("Run called even after should_stop requested.")
        args = SessionRunArgs(fetches, feed_dict)
        context = SessionRunContext(args, self.session)
        merged = RunOptions() if options is None else _copy_of(options)
        asked: list[Any] = [fetches]
        places: dict[int, int] = {}
        fed: dict[Any, Any] = {}
        for number, hook in enumerate(self._hooks):
            request = hook.before_run(context)
            if request is None:
                continue
            if request.fetches is not None:
                places[number] = len(asked)
                asked.append(request.fetches)
            if request.feed_dict:
                self._feed(fed, request.feed_dict, "Same tensor is fed by two hooks.")
            if request.options is not None:
                _merge_options(merged, request.options)
        if feed_dict:
            self._feed(fed, feed_dict, "Same tensor is fed by a SessionRunHook and user.")
        metadata = RunMetadata() if run_metadata is None else run_metadata
        results = self.session.run(asked, fed or None, merged, metadata)
        for number, hook in enumerate(self._hooks):
            value = results[places[number]] if number in places else None
            hook.after_run(context, SessionRunValues(value, merged, metadata))
        self.should_stop = self.should_stop or context.stop_requested
        return results[0]

    def _feed(self, fed: dict[Any, Any], more: Mapping[Any, Any], error: str) -> None:
        """Adds `more` to what is fed; a value of a graph that is named in two ways is one place."""
        taken = {self._key(place) for place in fed}
        for place, value in more.items():
            if self._key(place) in taken:
                raise RuntimeError(f"{error} It is {place!r}.")
            fed[place] = value

    def _key(self, place: Any) -> Any:
        if isinstance(place, tuple):
            return tuple(self._key(part) for part in place)
        try:
            found = self.session.graph.as_graph_element(place, allow_operation=False)
        except (KeyError, TypeError, ValueError):
            return place  # run() says what is wrong with it.
        return found.node, found.index


def _copy_of(options: RunOptions) -> RunOptions:
    made = RunOptions()
    vars(made).update(vars(options))
    return made


def _merge_options(options: RunOptions, more: RunOptions) -> None:
    """Adds the options of a hook: of numbers the larger one, of conditions either, of lists
    both."""
    for name, value in vars(more).items():
        own = getattr(options, name, None)
        if own is None:
            merged = value
        elif isinstance(value, bool):
            merged = own or value
        elif isinstance(value, list):
            merged = [*own, *value]
        else:
            merged = max(own, value)
        setattr(options, name, merged)


class _CoordinatedSession:
    """A session with hooks whose threads end with it, and whose errors end it."""

    def __init__(self, hooked: _HookedSession, coord: Coordinator, grace_secs: float) -> None:
        self.hooked = hooked
        self._coord = coord
        self._grace_secs = grace_secs

    @property
    def session(self) -> Session:
        return self.hooked.session

    def should_stop(self) -> bool:
        # What went wrong in a thread is raised here, where somebody sees it.
        self._coord.raise_requested_exception()
        return self._coord.should_stop() or self.hooked.should_stop

    def run(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self.hooked.run(*args, **kwargs)
        except _PREEMPTION_ERRORS:
            raise
        except Exception as error:
            # A run may fail because a thread lost its task first: that is where it began.
            try:
                self._coord.raise_requested_exception()
            except _PREEMPTION_ERRORS:
                raise
            except Exception:  # noqa: BLE001 - the error of the run goes before it.
                raise error from None
            raise

    def run_step_fn(self, step_fn: Callable[..., Any]) -> Any:
        return step_fn(StepContext(self.session, self.run))

    def close(self) -> None:
        self._coord.request_stop()
        try:
            self._coord.join(stop_grace_period_secs=self._grace_secs, ignore_live_threads=True)
        finally:
            try:
                self.session.close()
            except Exception as error:  # noqa: BLE001 - join() has raised what was first.
                _log.info("closing the session: %s", error)


class _CoordinatedSessionCreator:
    """Makes coordinated sessions with hooks."""

    def __init__(
        self, creator: SessionCreator, hooks: Sequence[SessionRunHook], grace_secs: float
    ) -> None:
        self._creator = creator
        self._hooks = hooks
        self._grace_secs = grace_secs
        self.session: Session | None = None
        self.coord: Coordinator | None = None

    @property
    def max_wait_secs(self) -> float:
        return getattr(self._creator, "max_wait_secs", SessionCreator.max_wait_secs)

    def end(self) -> None:
        """No session is made any more."""
        if isinstance(self._creator, SessionCreator):
            self._creator._end()

    def create_session(self) -> _CoordinatedSession:
        self.session = session = self._creator.create_session()
        # No error of a thread is a good end: who runs decides that.
        self.coord = coord = Coordinator(clean_stop_exception_types=())
        made = _CoordinatedSession(_HookedSession(session, self._hooks), coord, self._grace_secs)
        try:
            if get_collection(GraphKeys.QUEUE_RUNNERS):
                start_queue_runners(sess=session, coord=coord)
            for hook in self._hooks:
                hook.after_create_session(session, coord)
        except BaseException:
            try:
                made.close()
            except Exception as error:  # noqa: BLE001 - the one that is raised goes before.
                _log.info("closing a session that did not begin well: %s", error)
            raise
        return made


class _RecoverableSession:
    """Makes a new session when a task was lost, and goes on with it."""

    def __init__(self, creator: _CoordinatedSessionCreator) -> None:
        self._creator = creator
        #: When the failures in a row began, and the pause before the next session; None: it runs.
        self._failing_since: float | None = None
        self._pause = _FIRST_PAUSE_S
        self._inner: _CoordinatedSession | None = None
        self._inner = self._created()

    @property
    def session(self) -> Session | None:
        return None if self._inner is None else self._inner.session

    def _created(self) -> _CoordinatedSession:
        while True:
            try:
                return self._creator.create_session()
            except _PREEMPTION_ERRORS as error:
                self._failed(error, "while a session was being created")

    def _failed(self, error: errors.Error, when: str) -> None:
        """Notes a failure, and waits a little when it is not the first one in a row. Raises it when
        they have gone on for too long."""
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since, self._pause = now, _FIRST_PAUSE_S
            _log.warning("a task was lost %s; a new session goes on: %s", when, error)
            return
        limit = self._creator.max_wait_secs
        if now - self._failing_since > limit:
            raise errors.DeadlineExceededError(
                f"no session has worked for {limit:g} seconds; the latest one failed {when}: "
                f"{error.message}"
            ) from error
        _log.warning("the new session failed %s; trying again for %.0f s: %s", when,
                     limit - (now - self._failing_since), error)  # fmt: skip
        threading.Event().wait(self._pause)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_S)

    def _drop(self) -> None:
        """Ends what is left of a session that failed."""
        inner, self._inner = self._inner, None
        if inner is None:
            return
        try:
            inner.close()
        except _PREEMPTION_ERRORS as error:
            _log.info("closing the session that failed: %s", error)

    def should_stop(self) -> bool:
        if self._inner is None:
            return True
        try:
            return self._inner.should_stop()
        except _PREEMPTION_ERRORS as error:
            self._failed(error, "in a thread beside the training")
            self._drop()
            self._inner = self._created()
            return False
        except Exception as error:  # noqa: BLE001 - close() raises it.
            _log.info("training stops: %s", error)
            return True

    def run(self, *args: Any, **kwargs: Any) -> Any:
        return self._retried(lambda inner: inner.run(*args, **kwargs))

    def run_step_fn(self, step_fn: Callable[..., Any]) -> Any:
        return self._retried(lambda inner: inner.run_step_fn(step_fn))

    def _retried(self, run: Callable[[_CoordinatedSession], Any]) -> Any:
        while True:
            try:
                if self._inner is None:
                    self._inner = self._created()
                done = run(self._inner)
            except _PREEMPTION_ERRORS as error:
                self._failed(error, "in a run")
                self._drop()
                continue
            self._failing_since = None
            return done

    def close(self) -> None:
        if self._inner is not None:
            inner, self._inner = self._inner, None
            try:
                inner.close()
            except _PREEMPTION_ERRORS as error:
                _log.warning(
                    "a task was lost when the session was being closed, and nothing more is "
                    "trained: %s", error,
                )  # fmt: skip


# --- What users have.


class _MonitoredSession:
    """See MonitoredSession and SingularMonitoredSession."""

    def __init__(
        self,
        session_creator: SessionCreator | None,
        hooks: Sequence[SessionRunHook] | None,
        should_recover: bool,
        stop_grace_period_secs: float = 120,
    ) -> None:
        self._graph = get_default_graph()
        self._graph_was_finalized = self._graph.finalized
        self._hooks = list(hooks or [])
        for hook in self._hooks:
            hook.begin()
        self._creator = _CoordinatedSessionCreator(
            session_creator or ChiefSessionCreator(), self._hooks, stop_grace_period_secs
        )
        self._inner: _RecoverableSession | _CoordinatedSession | None
        try:
            if should_recover:
                self._inner = _RecoverableSession(self._creator)
            else:
                self._inner = self._creator.create_session()
        except BaseException:
            self._creator.end()
            raise

    @property
    def graph(self) -> Any:
        """The graph that it runs; None when it is closed."""
        session = self._creator.session
        return None if session is None else session.graph

    def run(
        self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None
    ) -> Any:
        """As Session.run(), with what hooks add. RuntimeError after should_stop() was True."""
        return self._open().run(fetches, feed_dict, options, run_metadata)

    def run_step_fn(self, step_fn: Callable[..., Any]) -> Any:
        """Runs `step_fn(step_context)`, again when a task was lost meanwhile: its StepContext has
        the `session` without hooks, `run_with_hooks()` and `request_stop()`. ValueError for a
        function of other arguments."""
        names = tuple(inspect.signature(step_fn).parameters)
        if names not in (("step_context",), ("self", "step_context")):
            raise ValueError(
                "`step_fn` may either have one `step_context` argument, or `self` and "
                f"`step_context` arguments if it's an instance method. Got {names} instead."
            )
        return self._open().run_step_fn(step_fn)

    def _open(self) -> _RecoverableSession | _CoordinatedSession:
        if self._inner is None:
            raise RuntimeError("Session is already closed.")
        return self._inner

    def should_stop(self) -> bool:
        """Whether a hook, a thread or close() has ended the training."""
        return self._inner is None or self._inner.should_stop()

    def close(self) -> None:
        """Calls end() of hooks, and ends the session and its threads. RuntimeError the second
        time."""
        self._close(None)

    def _close(self, kind: type[BaseException] | None) -> None:
        try:
            if kind is None:
                session = self._creator.session
                if self._inner is None or session is None:
                    raise RuntimeError("Session is already closed.")
                for hook in self._hooks:
                    hook.end(session)
        finally:
            try:
                if self._inner is None:
                    raise RuntimeError("Session is already closed.")
                self._inner.close()
            finally:
                self._inner = None
                self._creator.end()
                self._creator.session = None
                self._creator.coord = None
                if not self._graph_was_finalized:
                    self._graph.finalized = False

    def _is_closed(self) -> bool:
        return self._creator.session is None

    def __enter__(self) -> Any:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        if kind is not None and issubclass(kind, (errors.OutOfRangeError, StopIteration)):
            kind = None
        self._close(kind)
        return kind is None


class MonitoredSession(_MonitoredSession):
    """A session with hooks that comes back after failures (tf.compat.v1.train.MonitoredSession).

    begin() of hooks is called first, then the graph is final; a session is made; what starts queues
    runs; after_create_session() is called; before_run() and after_run() are, around each run();
    end() is, at the end. After an AbortedError or an UnavailableError of a run there is a new
    session, whose variables the chief has restored from the latest checkpoint or initialised, and
    the run is made again.

    As a context, OutOfRangeError and StopIteration end it well and are not raised further.

    session_creator: a ChiefSessionCreator if absent. stop_grace_period_secs: how long threads may
    take to end.
    """

    def __init__(
        self,
        session_creator: SessionCreator | None = None,
        hooks: Sequence[SessionRunHook] | None = None,
        stop_grace_period_secs: float = 120,
    ) -> None:
        super().__init__(session_creator, hooks, True, stop_grace_period_secs)

    StepContext = StepContext


class SingularMonitoredSession(_MonitoredSession):
    """A session with hooks that ends with the first failure
    (tf.compat.v1.train.SingularMonitoredSession). For the arguments see ChiefSessionCreator."""

    StepContext = StepContext

    def __init__(
        self,
        hooks: Sequence[SessionRunHook] | None = None,
        scaffold: Scaffold | None = None,
        master: str = "",
        config: ConfigProto | None = None,
        checkpoint_dir: str | None = None,
        stop_grace_period_secs: float = 120,
        checkpoint_filename_with_path: str | None = None,
    ) -> None:
        creator = ChiefSessionCreator(
            scaffold, master, config, checkpoint_dir, checkpoint_filename_with_path
        )
        super().__init__(creator, hooks, False, stop_grace_period_secs)

    def raw_session(self) -> Session | None:
        """The session without hooks."""
        return self._creator.session


def MonitoredTrainingSession(  # noqa: N802 - TensorFlow's name.
    master: str = "",
    is_chief: bool = True,
    checkpoint_dir: str | None = None,
    scaffold: Scaffold | None = None,
    hooks: Sequence[SessionRunHook] | None = None,
    chief_only_hooks: Sequence[SessionRunHook] | None = None,
    save_checkpoint_secs: Any = USE_DEFAULT,
    save_summaries_steps: Any = USE_DEFAULT,
    save_summaries_secs: Any = USE_DEFAULT,
    config: ConfigProto | None = None,
    stop_grace_period_secs: float = 120,
    log_step_count_steps: int | None = 100,
    max_wait_secs: float = 7200,
    save_checkpoint_steps: Any = USE_DEFAULT,
    summary_dir: str | None = None,
    save_graph_def: bool = True,
    save_incremental_checkpoint_secs: float | None = None,
    *,
    recovery_wait_secs: float = 30,
    on_ps_loss: str = "restore_all",
    consistency: str = "async",
    worker: str | None = None,
    movable: bool = False,
    autoscale: str = "off",
) -> MonitoredSession:
    """A MonitoredSession for training (tf.compat.v1.train.MonitoredTrainingSession). The chief
    gives variables values and saves them; the others wait for it.

    checkpoint_dir: where the chief saves, and restores from.
    chief_only_hooks: hooks that the others have not.
    save_checkpoint_secs, save_checkpoint_steps: how often it saves; every 600 s if nothing is said,
        not at all if 0 or None.
    save_summaries_secs, save_summaries_steps: the same of summaries; every 100 steps if nothing is
        said.
    log_step_count_steps: how often the steps in a second are logged.
    max_wait_secs: how long others wait for the chief. recovery_wait_secs: how often, at least, they
        look for it.
    summary_dir: where summaries are written; checkpoint_dir if absent.
    save_graph_def: whether a checkpoint has the graph beside it.
    save_incremental_checkpoint_secs: how often it saves what has changed since the last checkpoint,
        between those above, which are whole; never, if None.
    on_ps_loss: "restore": after the loss of a parameter server the chief restores what that has
        lost and nothing else, and says what is lost; see ChiefSessionCreator.
    consistency: "bounded(3)": a worker is at most 4 runs ahead of the slowest, and misses what the
        latest 3 of others have changed at most; see BoundedStalenessHook. "geo(8)": a worker trains
        copies of dense variables, and adds what 8 runs changed in them to those on parameter
        servers; see GeoHook. All workers say the same.
    worker: with "bounded(s)" the name of this one, which no other has; `master`, its own server, if
        absent.
    movable: variables on parameter servers go to others while it trains, as `sidereal scale`,
        `drain` and `rebalance` say. All workers say the same. ValueError for a training that
        cannot, with what to do.
    autoscale: "2-8": the least and the most parameter servers that variables are on, as these are
        busy; the rules are those of `sidereal train --autoscale`. The chief's, and with `movable`
        only.
    """
    hooks = [*hooks_of(consistency, worker or master or "worker"), *(hooks or [])]
    geo, config = geo_of(consistency, master, is_chief, config)
    first: list[SessionRunHook] = [] if geo is None else [geo]
    if movable:
        name = worker or master or "worker"
        config, moves = movable_of(master, is_chief, name, config, max_wait_secs, autoscale)
        first.append(moves)
    elif autoscale != "off":
        raise ValueError(f"autoscale is '{autoscale}', and variables move with movable=True only")
    summaries = _steps_and_secs(save_summaries_steps, save_summaries_secs, (100, None))
    checkpoints = _steps_and_secs(save_checkpoint_steps, save_checkpoint_secs, (None, 600))
    scaffold = scaffold or Scaffold()
    if not is_chief:
        creator = WorkerSessionCreator(
            scaffold, master, config, max_wait_secs, recovery_wait_secs=recovery_wait_secs
        )
        return MonitoredSession(creator, [*first, *hooks], stop_grace_period_secs)
    every = list(chief_only_hooks or [])
    if save_incremental_checkpoint_secs is not None:
        if checkpoints == (None, None):
            raise ValueError(
                "save_incremental_checkpoint_secs saves what has changed since whole checkpoints: "
                "give save_checkpoint_secs or save_checkpoint_steps for these"
            )
        scaffold.incremental_save_restore = True
    chief = ChiefSessionCreator(
        scaffold, master, config, checkpoint_dir, on_ps_loss=on_ps_loss
    )
    chief.max_wait_secs = max_wait_secs
    summary_dir = summary_dir or checkpoint_dir
    if summary_dir:
        if log_step_count_steps and log_step_count_steps > 0:
            every.append(
                StepCounterHook(every_n_steps=log_step_count_steps, output_dir=summary_dir)
            )
        if summaries != (None, None):
            steps, secs = summaries
            every.append(
                SummarySaverHook(
                    save_steps=steps, save_secs=secs, output_dir=summary_dir, scaffold=scaffold
                )
            )
    if checkpoint_dir and checkpoints != (None, None):
        steps, secs = checkpoints
        saver_hook = CheckpointSaverHook(
            checkpoint_dir, save_secs=secs, save_steps=steps, scaffold=scaffold,
            save_graph_def=save_graph_def, incremental_save_secs=save_incremental_checkpoint_secs,
        )  # fmt: skip
        chief._last_step = lambda: saver_hook.last_step
        every.append(saver_hook)
    every += hooks
    if geo is not None:
        for hook in every:
            if isinstance(hook, CheckpointSaverHook):
                hook._listeners.append(GeoListener(geo))
    return MonitoredSession(chief, [*first, *every], stop_grace_period_secs)


def _steps_and_secs(steps: Any, secs: Any, default: tuple[Any, Any]) -> tuple[Any, Any]:
    """(steps, seconds) between two savings; `default` when nothing is said of either."""
    if steps is USE_DEFAULT and secs is USE_DEFAULT:
        return default
    steps, secs = (None if given is USE_DEFAULT else given for given in (steps, secs))
    return (steps if steps and steps > 0 else None), (secs if secs and secs > 0 else None)
