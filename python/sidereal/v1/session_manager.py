"""Sessions that are ready for training: initialised or restored by the chief, waited for by others
(tf.compat.v1.train.SessionManager)."""

from __future__ import annotations

import contextlib
import copy
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .. import checkpoint_management as _checkpoints
from .. import errors
from .config import ConfigProto
from .graph import Graph, get_default_graph
from .session import Session

_log = logging.getLogger("sidereal")

#: Errors of a cluster whose tasks do not all run yet, or again.
_NOT_THERE_YET = (errors.AbortedError, errors.DeadlineExceededError, errors.UnavailableError)
#: How long the first wait between two looks is, in seconds; each is twice as long as the one before
#: it, up to `recovery_wait_secs`.
_FIRST_WAIT_S = 0.1


class SessionManager:
    """Makes sessions whose model is ready (tf.compat.v1.train.SessionManager).

    local_init_op: is run in each new session, for what belongs to this task alone, with
        `local_init_feed_dict` and `local_init_run_options`.
    ready_op: names of what is not ready: a vector of strings, empty when all is.
    ready_for_local_init_op: of the same kind: what local_init_op needs.
    graph: the default graph, if absent.
    recovery_wait_secs: how often, at least, others look whether the chief is ready.
    """

    def __init__(
        self,
        local_init_op: Any = None,
        ready_op: Any = None,
        ready_for_local_init_op: Any = None,
        graph: Graph | None = None,
        recovery_wait_secs: float = 30,
        local_init_run_options: Any = None,
        local_init_feed_dict: Mapping[Any, Any] | None = None,
    ) -> None:
        if ready_for_local_init_op is not None and local_init_op is None:
            raise ValueError(
                "If you pass a ready_for_local_init_op you must also pass a local_init_op"
            )
        self._local_init_op = local_init_op
        self._ready_op = ready_op
        self._ready_for_local_init_op = ready_for_local_init_op
        self._graph = graph if graph is not None else get_default_graph()
        self._recovery_wait_secs = recovery_wait_secs
        self._local_init_run_options = local_init_run_options
        self._local_init_feed_dict = local_init_feed_dict

    # --- The chief's.

    def prepare_session(
        self,
        master: str,
        init_op: Any = None,
        saver: Any = None,
        checkpoint_dir: str | None = None,
        checkpoint_filename_with_path: str | None = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        config: ConfigProto | None = None,
        init_feed_dict: Mapping[Any, Any] | None = None,
        init_fn: Callable[[Any], object] | None = None,
    ) -> Session:
        """A session whose variables have the values of the latest checkpoint in `checkpoint_dir`,
        or of `checkpoint_filename_with_path`; without one, those that `init_op` and `init_fn`
        give. RuntimeError when that leaves something that is not ready."""
        session, is_restored = self._restored(
            master, saver, checkpoint_dir, checkpoint_filename_with_path, wait_for_checkpoint,
            max_wait_secs, config,
        )  # fmt: skip
        try:
            if not is_restored:
                if init_op is None and init_fn is None and self._local_init_op is None:
                    raise RuntimeError(
                        "Model is not initialized and no init_op or init_fn or local_init_op was "
                        "given"
                    )
                if init_op is not None:
                    session.run(init_op, feed_dict=init_feed_dict)
                if init_fn is not None:
                    init_fn(session)
            message, what = self._local_init(session), "model ready for local_init"
            if message is None:
                message, what = self._not_ready(session), "model ready"
            if message is not None:
                raise RuntimeError(
                    f"Init operations did not make {what}. Init op: {init_op!r}, init fn: "
                    f"{init_fn!r}, local_init_op: {self._local_init_op!r}, error: {message}"
                )
        except BaseException:
            _close_quietly(session)
            raise
        return session

    def recover_session(
        self,
        master: str,
        saver: Any = None,
        checkpoint_dir: str | None = None,
        checkpoint_filename_with_path: str | None = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        config: ConfigProto | None = None,
    ) -> tuple[Session, bool]:
        """(session, whether it is ready), restored from a checkpoint if there is one."""
        session, is_restored = self._restored(
            master, saver, checkpoint_dir, checkpoint_filename_with_path, wait_for_checkpoint,
            max_wait_secs, config,
        )  # fmt: skip
        try:
            # Without a checkpoint, what others have initialised is as good.
            message = self._local_init(session) or self._not_ready(session)
        except BaseException:
            _close_quietly(session)
            raise
        if message is not None:
            _log.info("the model is not ready%s: %s", " though it is restored" if is_restored
                      else "", message)  # fmt: skip
        return session, message is None

    def _restored(
        self, master: str, saver: Any, directory: str | None, path: str | None,
        wait_for_checkpoint: bool, max_wait_secs: float, config: ConfigProto | None,
    ) -> tuple[Session, bool]:  # fmt: skip
        """A new session, and whether its variables are those of a checkpoint."""
        if directory and path:
            raise ValueError(
                "Can not provide both checkpoint_dir and checkpoint_filename_with_path."
            )
        session = Session(master, graph=self._graph, config=config)
        try:
            if saver is None or not (directory or path):
                return session, False
            if path:
                saver.restore(session, path)
                return session, True
            assert directory is not None
            state = self._state_in(directory, max_wait_secs if wait_for_checkpoint else 0)
            if state is None:
                return session, False
            saver.restore(session, state.model_checkpoint_path)
            saver.recover_last_checkpoints(state.all_model_checkpoint_paths)
        except BaseException:
            _close_quietly(session)
            raise
        return session, True

    def _state_in(self, directory: str, max_wait_secs: float) -> Any:
        """What the state file of a directory says of checkpoints, None if there are none."""
        pauses = _Pauses(self._recovery_wait_secs, max_wait_secs)
        while True:
            state = _checkpoints.get_checkpoint_state(directory)
            if state is not None and state.model_checkpoint_path:
                return state
            if not pauses.wait():
                return None
            _log.info("waiting for a checkpoint in %s", directory)

    # --- What the others do.

    def wait_for_session(
        self, master: str, config: ConfigProto | None = None, max_wait_secs: float | None = None
    ) -> Session:
        """A session whose model the chief has made ready. DeadlineExceededError, which says what
        is missing, when that is not so after `max_wait_secs`."""
        limit = float("inf") if max_wait_secs is None else max_wait_secs
        pauses = _Pauses(self._recovery_wait_secs, limit)
        # What the last session that could be made has said: the very last one may have had no time.
        said: str | None = None
        while True:
            session = Session(
                master, graph=self._graph, config=_connecting_within(config, pauses.left())
            )
            try:
                missing = self._local_init(session)
                if missing is None:
                    missing = self._not_ready(session)
                    if missing is None:
                        return session
            except _NOT_THERE_YET as error:
                missing = error.message
                _close_quietly(session)
            except BaseException:
                _close_quietly(session)
                raise
            else:
                said = missing
                _close_quietly(session)
            _log.info("waiting for the chief to make the model ready: %s", missing)
            if not pauses.wait():
                if said not in (None, missing):
                    missing = f"{said}. At last: {missing}"
                raise errors.DeadlineExceededError(
                    f"Session was not ready after waiting {limit:g} secs for the chief. {missing}"
                )

    # --- What is ready.

    def _local_init(self, session: Session) -> str | None:
        """Runs local_init_op, if what it needs is there; else what is missing."""
        if self._local_init_op is None:
            return None
        missing = _missing(self._ready_for_local_init_op, session)
        if missing is None:
            session.run(
                self._local_init_op, feed_dict=self._local_init_feed_dict,
                options=self._local_init_run_options,
            )  # fmt: skip
        return missing

    def _not_ready(self, session: Session) -> str | None:
        return _missing(self._ready_op, session)


def _missing(op: Any, session: Session) -> str | None:
    """What `op`, which says what is not ready, says; None when all is."""
    if op is None:
        return None
    try:
        found = session.run(op)
    except errors.FailedPreconditionError as error:
        return error.message
    if found is None or found.dtype == np.int32 or found.size == 0:
        return None
    names = [one.decode() if isinstance(one, bytes) else str(one) for one in np.ravel(found)]
    return "Variables not initialized: " + ", ".join(names)


class _Pauses:
    """Ever longer pauses up to `longest`, with an end after `limit` seconds."""

    def __init__(self, longest: float, limit: float) -> None:
        self._longest = longest
        self._next = min(_FIRST_WAIT_S, longest)
        self._end = time.monotonic() + limit

    def left(self) -> float:
        """Seconds until the end."""
        return self._end - time.monotonic()

    def wait(self) -> bool:
        """Waits for a while; False, without waiting, when the end has come."""
        left = self.left()
        if left <= 0:
            return False
        threading.Event().wait(min(self._next, left))
        self._next = min(2 * self._next, self._longest)
        return True


def _connecting_within(config: ConfigProto | None, seconds: float) -> ConfigProto | None:
    """`config`, with no longer a time for connecting than `seconds`."""
    if seconds == float("inf"):
        return config
    given = ConfigProto() if config is None else config
    limit = max(1, min(given.connect_timeout_in_ms, int(seconds * 1000)))
    limited = copy.copy(given)
    limited.connect_timeout_in_ms = limit
    return limited


def _close_quietly(session: Session) -> None:
    """Closes a session that is of no use; what went wrong with it is known."""
    with contextlib.suppress(errors.Error, RuntimeError):
        session.close()
