"""Sessions on servers: what runs those of a target "grpc://host:port"."""

from __future__ import annotations

import contextlib
import copy
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from .. import _native, _run_metadata, errors
from .._dispatch import ENGINE
from .._native import Output, Tensor
from .._run_metadata import RunMetadata, RunOptions
from ..security import SecurityOptions
from ..server import session_options
from .config import ConfigProto
from .graph import Graph
from .loops import Loop, OnValues, Raw


def _security(config: ConfigProto) -> _native.SecurityOptions:
    given = config.security
    return (SecurityOptions.from_environment() if given is None else given)._to_native()


class RemoteRunner:
    """Runs a graph on the tasks of a cluster, with the server of the target as master. Connects at
    the first run, and gives the master what was added to the graph before each."""

    def __init__(self, target: str, graph: Graph, config: ConfigProto) -> None:
        self._target = target
        self._graph = graph
        #: Of sessions whose variables move; each has options of its own then.
        self._places = config._places
        self._config = config if self._places is None else copy.copy(config)
        self._session: _native.RemoteSession | None = None
        self._version = 0
        self._closed = False
        self._broken: errors.Error | None = None
        self._lock = threading.Lock()
        if self._places is not None:
            self._places.attach(self)

    def _connected(self) -> _native.RemoteSession:
        graph, config = self._graph, self._config
        with self._lock:
            self._check_open()
            if self._session is None:
                # Others may add to it while this waits for tasks: it comes when nobody does.
                first = _native.Graph(ENGINE) if graph.changing else graph.native
                if self._places is not None:
                    config._overrides = self._places.overrides
                self._version = len(first)
                self._session = _native.RemoteSession.create(
                    self._target, self._defined(first), session_options(config), _security(config)
                )
        with graph.changing or contextlib.nullcontext(), self._lock:
            self._check_open()
            version = graph.version
            if version != self._version:
                self._session.extend(self._defined(graph.native))
            self._version = version
            if config.log_device_placement:
                print(self._session.take_placement(), end="", file=sys.stderr)
            return self._session

    def _defined(self, graph: _native.GraphBase) -> _native.GraphBase:
        """As servers get it."""
        redirected = self._config._redirected
        return graph if redirected is None or len(graph) == 0 else redirected(graph)

    def place(self, overrides: tuple[dict[str, str], dict[str, str]]) -> None:
        """Variables have moved: those of sessions to come, and of the one there is, are where the
        first of `overrides` says, by device; the second has tasks that are left, and others in
        their places. Nothing runs that uses what is elsewhere then."""
        graph = self._graph
        with graph.changing or contextlib.nullcontext(), self._lock:
            self._config._overrides = overrides
            if self._session is not None and not self._closed:
                self._session.place(self._defined(graph.native), overrides)
                self._version = graph.version

    def end_with(self, error: errors.Error) -> None:
        """Whatever is to run from now on ends with an error."""
        self._broken = error

    def _passing(self, values: list[Output], targets: list[int]) -> AbstractContextManager[None]:
        """The context of a run: its variables stay where they are."""
        if self._places is None:
            return contextlib.nullcontext()
        return self._places.passing(values, targets)

    def _check_open(self) -> None:
        if self._closed:
            raise errors.CancelledError("Session::Close was called")
        if self._broken is not None:
            raise self._broken

    def run(
        self,
        values: list[Output],
        targets: list[int],
        places: list[Output],
        tensors: list[Tensor],
        options: RunOptions | None = None,
        run_metadata: RunMetadata | None = None,
    ) -> list[Tensor]:
        """See Runner.run()."""
        traced = _run_metadata.is_traced(options)
        with self._passing(values, targets):
            outputs, trace = self._connected().run(
                ENGINE,
                [place.name for place in places],
                tensors,
                [value.name for value in values],
                [self._graph.native.node_name(target) for target in targets],
                options.timeout_in_ms if options else 0,
                traced,
                options is not None and options.waits_for_pushes,
            )
        if traced and run_metadata is not None:
            _run_metadata.fill(run_metadata, trace)
        return outputs

    def run_loop(
        self,
        loop: Loop,
        on_progress: Callable[[dict[str, Any]], object] | None,
        on_values: OnValues,
    ) -> Raw:
        """See Runner.run_loop()."""
        options = {
            **loop.numbers,
            "fetches": [(value.name, keep) for value, keep in zip(loop.values, loop.keeps)],
            "targets": [self._graph.native.node_name(target) for target in loop.targets],
            "source": loop.source,
            "columns": [(place.name, column) for place, column in loop.columns],
            "constants": [place.name for place in loop.places],
            "kept_columns": loop.kept_columns,
        }
        with self._passing(loop.values, loop.targets):
            session = self._connected()
            return _native.run_loop(session, ENGINE, options, loop.tensors, on_progress, on_values)

    def list_devices(self) -> list[tuple[str, str, int, int, int]]:
        """See Runner.list_devices()."""
        return self._connected().list_devices()

    def close(self) -> None:
        """See Runner.close()."""
        # Not under the lock: a run that waits for tasks would hold up its own end.
        self._closed = True
        if self._session is not None:
            self._session.close()

    def __del__(self) -> None:
        # Not left to the core, which ends under Python's lock: the server may be in this process.
        with contextlib.suppress(Exception):
            self.close()


def reset(target: str, containers: list[str], config: ConfigProto) -> None:
    """Forgets what lies in `containers` (none: the default one) on every task of the cluster, and
    ends all sessions of the server `target`."""
    _native.RemoteSession.reset(target, containers, session_options(config), _security(config))
