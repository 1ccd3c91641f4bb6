"""Who makes the sessions of a training: a chief gives variables values, the others wait for it
(tf.compat.v1.train.ChiefSessionCreator, WorkerSessionCreator)."""

from __future__ import annotations

import copy
from collections.abc import Callable

from .config import ConfigProto
from .graph import building, get_default_graph
from .lost_variables import LostVariables
from .scaffold import Scaffold
from .session import Session
from .session_manager import SessionManager


class SessionCreator:
    """Makes sessions: one at the beginning, and one after each failure."""

    #: How long failures in a row are tried to be recovered from, in seconds.
    max_wait_secs: float = 7200

    def create_session(self) -> Session:
        """A session that is ready for training."""
        raise NotImplementedError(f"{type(self).__name__}.create_session()")

    def _end(self) -> None:
        """No session is made any more."""


class ChiefSessionCreator(SessionCreator):
    """Makes sessions of the chief (tf.compat.v1.train.ChiefSessionCreator): their variables have
    the values of the latest checkpoint, or else initial ones.

    scaffold: what says how; a default Scaffold if absent.
    master: the target of the sessions. config: their ConfigProto.
    checkpoint_dir, checkpoint_filename_with_path: where checkpoints are, or the prefix of one.
    on_ps_loss: "restore_all": sessions after the first give all variables the values of the latest
        checkpoint, as in TensorFlow; "restore": those alone that a parameter server has lost.
    """

    def __init__(
        self,
        scaffold: Scaffold | None = None,
        master: str = "",
        config: ConfigProto | None = None,
        checkpoint_dir: str | None = None,
        checkpoint_filename_with_path: str | None = None,
        *,
        on_ps_loss: str = "restore_all",
    ) -> None:
        checkpoint = checkpoint_filename_with_path or checkpoint_dir
        if on_ps_loss not in ("restore", "restore_all"):
            raise ValueError(f"on_ps_loss is {on_ps_loss!r}; it is 'restore' or 'restore_all'")
        if on_ps_loss == "restore" and not checkpoint:
            raise ValueError("on_ps_loss='restore' needs a checkpoint_dir to restore from")
        self._checkpoint = checkpoint
        self._restores_lost = on_ps_loss == "restore"
        self._lost: LostVariables | None = None
        self._scaffold = scaffold or Scaffold()
        self._master = master
        self._config = config
        self._checkpoint_dir = checkpoint_dir
        self._checkpoint_filename_with_path = checkpoint_filename_with_path
        self._session_manager: SessionManager | None = None
        #: Whether it has given all variables values.
        self._has_begun = False
        #: Says what was last read of the global step.
        self._last_step: Callable[[], int | None] = lambda: None

    def create_session(self) -> Session:
        """Initialises or restores all variables; after the first session perhaps only those that
        were lost."""
        if self._restores_lost and self._lost is None:
            with building():
                self._lost = LostVariables(self._scaffold.saver, target=self._master)
        scaffold = self._scaffold.finalize()
        if self._session_manager is None:
            self._session_manager = _manager_for(scaffold)
        places = None if self._config is None else self._config._places
        if places is None:
            return self._created(scaffold, self._session_manager)
        with places.making:
            places.join(get_default_graph(), self.max_wait_secs)
            return self._created(scaffold, self._session_manager)

    def _created(self, scaffold: Scaffold, manager: SessionManager) -> Session:
        if self._has_begun and self._lost is not None:
            return manager.prepare_session(
                self._master, config=self._config, init_fn=self._restore_lost
            )
        init_fn = scaffold.init_fn
        session = manager.prepare_session(
            self._master,
            init_op=scaffold.init_op,
            saver=scaffold.saver,
            checkpoint_dir=self._checkpoint_dir,
            checkpoint_filename_with_path=self._checkpoint_filename_with_path,
            config=self._config,
            init_feed_dict=scaffold.init_feed_dict,
            init_fn=None if init_fn is None else lambda session: init_fn(scaffold, session),
        )
        self._has_begun = True
        self._config = _without_taking_over(self._config)
        return session

    def _end(self) -> None:
        _leave(self._config)
        if self._lost is not None:
            self._lost._close()

    def _restore_lost(self, session: Session) -> None:
        assert self._lost is not None and self._checkpoint is not None
        self._lost.restore(session, self._checkpoint, last_step=self._last_step())


class WorkerSessionCreator(SessionCreator):
    """Makes sessions of workers (tf.compat.v1.train.WorkerSessionCreator), which wait until the
    chief has given the variables values.

    max_wait_secs: for how long. recovery_wait_secs: how often, at least, they look.
    """

    def __init__(
        self,
        scaffold: Scaffold | None = None,
        master: str = "",
        config: ConfigProto | None = None,
        max_wait_secs: float = 30 * 60,
        *,
        recovery_wait_secs: float = 30,
    ) -> None:
        self._scaffold = scaffold or Scaffold()
        self._master = master
        self._config = config
        self.max_wait_secs = max_wait_secs
        self._recovery_wait_secs = recovery_wait_secs
        self._session_manager: SessionManager | None = None

    def create_session(self) -> Session:
        """Waits for the chief; DeadlineExceededError when it does not come."""
        scaffold = self._scaffold.finalize()
        if self._session_manager is None:
            self._session_manager = _manager_for(scaffold, self._recovery_wait_secs)
        if self._config is not None and self._config._places is not None:
            self._config._places.join(get_default_graph(), self.max_wait_secs)
        session = self._session_manager.wait_for_session(
            self._master, config=self._config, max_wait_secs=self.max_wait_secs
        )
        self._config = _without_taking_over(self._config)
        return session

    def _end(self) -> None:
        _leave(self._config)


def _leave(config: ConfigProto | None) -> None:
    """Sessions of this process are not told any more where variables are."""
    if config is not None and config._places is not None:
        config._places.close()


def _without_taking_over(config: ConfigProto | None) -> ConfigProto | None:
    """For the next sessions: a job that has taken over from this program since may keep it."""
    if config is None or not config.take_over:
        return config
    config = copy.copy(config)
    config.take_over = False
    return config


def _manager_for(scaffold: Scaffold, recovery_wait_secs: float = 30) -> SessionManager:
    return SessionManager(
        local_init_op=scaffold.local_init_op,
        ready_op=scaffold.ready_op,
        ready_for_local_init_op=scaffold.ready_for_local_init_op,
        graph=get_default_graph(),
        recovery_wait_secs=recovery_wait_secs,
        local_init_feed_dict=scaffold.local_init_feed_dict,
    )
