"""A training loop's session, saving and summaries in the hands of threads
(tf.compat.v1.train.Supervisor), for programs that have no hooks."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .. import errors
from . import summary as _summary
from .basic_session_run_hooks import writer_of
from .config import ConfigProto
from .coordinator import Coordinator, start_queue_runners
from .graph import Graph, get_default_graph
from .scaffold import Scaffold
from .session import Session
from .session_manager import SessionManager
from .training import get_global_step

_log = logging.getLogger("sidereal")

USE_DEFAULT: Any = object()


class Supervisor:
    """Makes a session, saves and writes summaries in threads, and ends all together
    (tf.compat.v1.train.Supervisor).

        supervisor = tf.train.Supervisor(is_chief=index == 0, logdir="model")
        with supervisor.managed_session(server.target) as session:
            while not supervisor.should_stop():
                session.run(train_op)

    MonitoredTrainingSession does the same with hooks, and comes back after failures.

    graph: the default graph, if absent; it is final from now on.
    is_chief: whether this is the one that initialises, restores and saves; the others wait for it.
    logdir: where checkpoints, called `checkpoint_basename`-STEP, and summaries are.
    init_op, ready_op, ready_for_local_init_op, local_init_op, init_feed_dict, init_fn, saver,
        summary_op: see Scaffold; of init_fn the session is the only argument.
    summary_writer: what writes summaries; one for logdir, if absent.
    save_model_secs, save_summaries_secs: how often; 0: never.
    recovery_wait_secs: how often, at least, the others look whether the chief is ready.
    stop_grace_secs: how long threads may take to end.
    """

    USE_DEFAULT = USE_DEFAULT

    def __init__(
        self,
        graph: Graph | None = None,
        ready_op: Any = USE_DEFAULT,
        ready_for_local_init_op: Any = USE_DEFAULT,
        is_chief: bool = True,
        init_op: Any = USE_DEFAULT,
        init_feed_dict: Any = None,
        local_init_op: Any = USE_DEFAULT,
        logdir: str | None = None,
        summary_op: Any = USE_DEFAULT,
        saver: Any = USE_DEFAULT,
        global_step: Any = USE_DEFAULT,
        save_summaries_secs: float = 120,
        save_model_secs: float = 600,
        recovery_wait_secs: float = 30,
        stop_grace_secs: float = 120,
        checkpoint_basename: str = "model.ckpt",
        session_manager: SessionManager | None = None,
        summary_writer: Any = USE_DEFAULT,
        init_fn: Callable[[Any], object] | None = None,
        local_init_run_options: Any = None,
    ) -> None:
        self._graph = graph if graph is not None else get_default_graph()
        self._is_chief = is_chief
        self._logdir = logdir
        self._coord = Coordinator()
        self._stop_grace_secs = stop_grace_secs
        self._init_fn = init_fn
        self._intervals = save_model_secs, save_summaries_secs
        self._save_path = os.path.join(logdir, checkpoint_basename) if logdir else None

        def given(value: Any) -> Any:
            return None if value is USE_DEFAULT else value

        with self._graph.as_default():
            scaffold = Scaffold(
                given(init_op), init_feed_dict, None, given(ready_op),
                given(ready_for_local_init_op), given(local_init_op), given(summary_op),
                given(saver),
            )  # fmt: skip
            self._global_step = get_global_step() if global_step is USE_DEFAULT else global_step
            self._scaffold = scaffold.finalize()
            self._writer = given(summary_writer)
            if summary_writer is USE_DEFAULT and logdir and is_chief:
                os.makedirs(logdir, exist_ok=True)
                self._writer = writer_of(logdir)
        # What was said to be None is left out.
        self._saver = None if saver is None else scaffold.saver
        self._summary_op = None if summary_op is None else scaffold.summary_op
        self._manager = session_manager or SessionManager(
            local_init_op=None if local_init_op is None else scaffold.local_init_op,
            ready_op=None if ready_op is None else scaffold.ready_op,
            ready_for_local_init_op=(
                None if None in (ready_for_local_init_op, local_init_op)
                else scaffold.ready_for_local_init_op
            ),
            graph=self._graph, recovery_wait_secs=recovery_wait_secs,
            local_init_run_options=local_init_run_options,
        )  # fmt: skip
        self._init_op = None if init_op is None else scaffold.init_op

    # --- Parts.

    @property
    def is_chief(self) -> bool:
        """Whether it initialises, restores and saves."""
        return self._is_chief

    @property
    def coord(self) -> Coordinator:
        """What its threads end with."""
        return self._coord

    @property
    def saver(self) -> Any:
        """The Saver; None when nothing is saved."""
        return self._saver

    @property
    def summary_writer(self) -> Any:
        """What writes summaries; None when nothing does."""
        return self._writer

    @property
    def summary_op(self) -> Any:
        """The summaries."""
        return self._summary_op

    @property
    def global_step(self) -> Any:
        """What counts steps; None when nothing does."""
        return self._global_step

    @property
    def save_path(self) -> str | None:
        """What names of checkpoints begin with."""
        return self._save_path

    @property
    def session_manager(self) -> SessionManager:
        """What makes sessions."""
        return self._manager

    # --- The session.

    @contextlib.contextmanager
    def managed_session(
        self, master: str = "", config: ConfigProto | None = None,
        start_standard_services: bool = True, close_summary_writer: bool = True,
    ) -> Iterator[Session]:  # fmt: skip
        """A session that is ready; at the end its threads end, and their first error is raised. An
        OutOfRangeError ends it well."""
        session = self.prepare_or_wait_for_session(
            master, config, start_standard_services=start_standard_services
        )
        try:
            yield session
        except Exception as error:  # noqa: BLE001 - stop() raises it.
            self.request_stop(error)
        finally:
            try:
                self.stop(close_summary_writer=close_summary_writer)
            finally:
                with contextlib.suppress(errors.Error, RuntimeError):
                    session.close()

    def prepare_or_wait_for_session(
        self, master: str = "", config: ConfigProto | None = None,
        wait_for_checkpoint: bool = False, max_wait_secs: float = 7200,
        start_standard_services: bool = True,
    ) -> Session:  # fmt: skip
        """A session that is ready: made so, or waited for, for `max_wait_secs`."""
        self._coord.clear_stop()
        if self._writer is not None:
            self._writer.reopen()
        if not self._is_chief:
            session = self._manager.wait_for_session(
                master, config=config, max_wait_secs=max_wait_secs
            )
        else:
            session = self._manager.prepare_session(
                master, init_op=self._init_op, saver=self._saver, checkpoint_dir=self._logdir,
                wait_for_checkpoint=wait_for_checkpoint, max_wait_secs=max_wait_secs, config=config,
                init_feed_dict=self._scaffold.init_feed_dict, init_fn=self._init_fn,
            )  # fmt: skip
        if start_standard_services:
            self.start_queue_runners(session)
            if self._is_chief:
                self.start_standard_services(session)
        return session

    def start_queue_runners(
        self, sess: Any, queue_runners: Sequence[Any] | None = None
    ) -> list[threading.Thread]:
        """The threads that fill queues, started."""
        if queue_runners is None:
            with self._graph.as_default():
                return start_queue_runners(sess, self._coord)
        return [
            thread
            for runner in queue_runners
            for thread in runner.create_threads(sess, self._coord, daemon=True, start=True)
        ]

    def start_standard_services(self, sess: Any) -> list[threading.Thread]:
        """The chief's threads: one saves, one writes summaries, as far as there is where to."""
        if not self._is_chief:
            raise RuntimeError("Only chief supervisor can start standard services.")
        every_save, every_summary = self._intervals
        made = []
        if self._logdir and self._saver is not None and every_save:
            made.append(self.loop(every_save, self._save, (sess,)))
        if self._writer is not None and self._summary_op is not None and every_summary:
            made.append(self.loop(every_summary, self.summary_computed, (sess, None)))
        return made

    def _save(self, sess: Any) -> None:
        assert self._saver is not None
        self._saver.save(sess, self._save_path, global_step=self._global_step)

    def summary_computed(
        self, sess: Any, summary: Any = None, global_step: int | None = None
    ) -> None:
        """Writes a summary; None: a new one of summary_op."""
        if self._writer is None:
            raise RuntimeError("Writing a summary requires a summary writer.")
        if summary is None:
            summary = sess.run(self._summary_op)
        if global_step is None and self._global_step is not None:
            global_step = int(sess.run(self._global_step))
        self._writer.add_summary(summary, global_step)

    # --- Threads.

    def loop(
        self, timer_interval_secs: float | None, target: Callable[..., Any],
        args: Sequence[Any] = (), kwargs: Any = None,
    ) -> threading.Thread:  # fmt: skip
        """A thread that calls a function every so many seconds until all are to stop, and once more
        then if it has not just done it; None: without a pause."""
        coord, named = self._coord, dict(kwargs or {})

        def run() -> None:
            with coord.stop_on_exception():
                while True:
                    target(*args, **named)
                    if coord.wait_for_stop(timer_interval_secs or 0):
                        return

        thread = threading.Thread(target=run, daemon=True, name=f"Supervisor-{target.__name__}")
        coord.register_thread(thread)
        thread.start()
        return thread

    Loop = loop

    def should_stop(self) -> bool:
        """Whether all are to stop."""
        return self._coord.should_stop()

    def request_stop(self, ex: Any = None) -> None:
        """Tells all to stop; `ex` is raised by stop()."""
        self._coord.request_stop(ex)

    def stop_on_exception(self) -> Any:
        """An error in the context stops all."""
        return self._coord.stop_on_exception()

    def wait_for_stop(self) -> None:
        """Waits until all are to stop; a thread that ends with an error makes it so."""
        self._coord.wait_for_stop()

    def stop(
        self, threads: Sequence[threading.Thread] | None = None, close_summary_writer: bool = True,
        ignore_live_threads: bool = False,
    ) -> None:  # fmt: skip
        """Ends the threads, and raises the first error of one."""
        self._coord.request_stop()
        try:
            self._coord.join(
                threads, stop_grace_period_secs=self._stop_grace_secs,
                ignore_live_threads=ignore_live_threads,
            )  # fmt: skip
        finally:
            if close_summary_writer and self._writer is not None:
                log = _summary.SessionLog(status=_summary.SessionLog.STOP)
                self._writer.add_session_log(log)
                self._writer.close()


def basic_train_loop(
    supervisor: Supervisor, train_step_fn: Callable[..., Any], args: Sequence[Any] = (),
    kwargs: Any = None, master: str = "",
) -> None:  # fmt: skip
    """Calls `train_step_fn(session, *args, **kwargs)` in a managed session until it is to stop
    (tf.compat.v1.train.basic_train_loop)."""
    with supervisor.managed_session(master) as session:
        while not supervisor.should_stop():
            train_step_fn(session, *args, **dict(kwargs or {}))
