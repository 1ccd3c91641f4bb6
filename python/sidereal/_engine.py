"""The engine that ops of this process run on, and what each thread is doing with it."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from . import _native
from ._sites import user_line

if TYPE_CHECKING:
    from ._graphs import Graph

ENGINE = _native.Engine()
ENGINE.set_site(user_line)
ENGINE.watch_signals()
ENGINE.wait_unlocked()
_native.read_datasets(ENGINE, secrets.randbits(63))


class _State(threading.local):
    """What a thread is doing. `graph`: the graph being built, None: ops run at once. `tapes`: the
    GradientTapes that listen, outermost first. `collector`: what takes the gradients that
    optimizers are given, None: they update variables."""

    graph: Graph | None = None
    tapes: tuple[Any, ...] = ()
    collector: Any = None

    @contextmanager
    def collecting(self, collector: Any) -> Iterator[None]:
        """Optimizers give their gradients to `collector`; None: they update variables."""
        before, self.collector = self.collector, collector
        try:
            yield
        finally:
            self.collector = before

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Ops run at once while the context lasts, whatever graph is being built."""
        before, self.graph = self.graph, None
        try:
            yield
        finally:
            self.graph = before


state = _State()
