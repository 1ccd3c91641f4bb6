"""The default sessions of each thread, innermost last (tf.compat.v1.get_default_session)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .session import BaseSession


class _Local(threading.local):
    def __init__(self) -> None:
        self.sessions: list[BaseSession] = []


_local = _Local()


class AsDefault:
    """Makes a session the default one while the context lasts."""

    def __init__(self, session: BaseSession) -> None:
        self._session = session

    def __enter__(self) -> BaseSession:
        _local.sessions.append(self._session)
        return self._session

    def __exit__(self, *_: object) -> None:
        _local.sessions.remove(self._session)


def need_session() -> BaseSession:
    """The default session; ValueError when there is none."""
    if not _local.sessions:
        raise ValueError("there is no default session; use `with Session():` or session.run()")
    return _local.sessions[-1]


def get_default_session() -> BaseSession | None:
    """The innermost session whose context lasts."""
    return _local.sessions[-1] if _local.sessions else None
