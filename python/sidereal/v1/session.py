"""Sessions: they run parts of a graph (tf.compat.v1.Session)."""

from __future__ import annotations

import contextlib
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from .. import _native, _run_metadata, errors, nest
from .._bodies import flatten_like
from .._data_spec import DataSpec
from .._dispatch import ENGINE, state, to_tensor
from .._graphs import locate, nodes_named
from .._native import Output, Tensor
from .._run_metadata import RunMetadata, RunOptions
from .._sites import add_line, user_line
from ..device_spec import HERE
from ..dtypes import as_dtype
from ..function import _accepts, _text
from ..indexed_slices import IndexedSlices
from ..ops import host
from . import loops, remote
from .config import ConfigProto
from .default_session import AsDefault
from .graph import Graph, get_default_graph
from .operation import Operation
from .partial import PartialRun

_T = TypeVar("_T")


@dataclass(frozen=True)
class DeviceAttributes:
    """A device of a cluster (_DeviceAttributes of tf.Session.list_devices())."""

    name: str
    device_type: str
    memory_limit_bytes: int
    #: Different each time its server starts.
    incarnation: int
    #: Of what holds the session's variables there, which are gone when it is another one; 0: it has
    #: none there.
    _state: int = 0


class Runner(Protocol):
    """What runs the graph of a session."""

    def run(
        self,
        values: list[Output],
        targets: list[int],
        places: list[Output],
        tensors: list[Tensor],
        options: RunOptions | None = None,
        run_metadata: RunMetadata | None = None,
    ) -> list[Tensor]:
        """`values`, with `tensors` in the place of `places`, when the nodes `targets` have run."""

    def run_loop(
        self,
        loop: loops.Loop,
        on_progress: Callable[[dict[str, Any]], object] | None,
        on_values: loops.OnValues,
    ) -> loops.Raw:
        """Runs steps one after another; what is told of them."""

    def list_devices(self) -> list[tuple[str, str, int, int, int]]:
        """(name, type, bytes of memory, incarnation, state) of every device."""

    def close(self) -> None:
        """Ends what runs with CancelledError."""


class LocalRunner:
    """Runs a graph in this process, with variables, queues and tables of its own."""

    def __init__(self, graph: Graph, config: ConfigProto) -> None:
        self._graph = graph
        self._config = config
        self._engine = _native.Engine()
        self._engine.set_site(user_line)
        self._engine.watch_signals()
        self._engine.wait_unlocked()
        self._engine.set_host_functions(host.call_registered)
        _native.read_datasets(self._engine, secrets.randbits(63))
        threads = config.intra_op_parallelism_threads or ENGINE.intra_op_threads
        self._engine.set_intra_op_threads(min(threads, ENGINE.INTRA_OP_THREADS_MAX))
        self._functions: dict[Any, _native.LocalFunction] = {}
        self._logged = 0

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
        function = self._function(values, targets, places)
        traced = _run_metadata.is_traced(options)
        if traced:
            _run_metadata.begin(self._engine)
        try:
            return function.call_within(self._engine, tensors, self._limit(options))
        finally:
            if traced:
                _run_metadata.finish(self._engine, run_metadata)

    def run_loop(
        self,
        loop: loops.Loop,
        on_progress: Callable[[dict[str, Any]], object] | None,
        on_values: loops.OnValues,
    ) -> loops.Raw:
        """See Runner.run_loop()."""
        options = RunOptions(timeout_in_ms=loop.numbers["step_timeout_ms"])
        if loop.auc is not None:
            raise errors.UnimplementedError("sessions of this process give no AUC of a loop")
        raw = loops.run_here(
            loop,
            lambda values, targets, places, tensors: self.run(
                values, targets, places, tensors, options
            ),
            on_values,
        )
        if on_progress is not None:
            on_progress(raw[0])
        return raw

    def _limit(self, options: RunOptions | None) -> float:
        """Seconds that a run may wait."""
        limits = [self._config.operation_timeout_in_ms, options.timeout_in_ms if options else 0]
        given = [limit / 1000 for limit in limits if limit > 0]
        return min(given) if given else ENGINE.operation_timeout

    def _function(
        self, values: list[Output], targets: list[int], places: list[Output]
    ) -> _native.LocalFunction:
        key = (
            tuple((value.node, value.index) for value in values),
            tuple(targets),
            tuple((place.node, place.index) for place in places),
        )
        function = self._functions.get(key)
        if function is None:
            if self._config.log_device_placement:
                self._log_placement()
            function = self._functions[key] = self._graph.native.function(
                "session", places, values, self._config.compute_dtype, targets
            )
        return function

    def _log_placement(self) -> None:
        """Says on standard error where nodes run that were added since it did."""
        nodes, self._logged = range(self._logged, self._graph.version), self._graph.version
        for node in nodes:
            op = Operation(self._graph, node)
            print(f"{op.name}: ({op.type}): {HERE}", file=sys.stderr)

    def list_devices(self) -> list[tuple[str, str, int, int, int]]:
        """See Runner.list_devices()."""
        return [(HERE, "CPU", 0, 0, 0)]

    def close(self) -> None:
        """See Runner.close()."""
        self._engine.clear_resources()
        self._functions.clear()


class BaseSession:
    """Runs parts of a graph. See Session."""

    def __init__(self, target: str = "", graph: Graph | None = None, config: Any = None) -> None:
        if config is not None and not isinstance(config, ConfigProto):
            raise TypeError(f"config is {config!r}; it must be a sidereal.v1.ConfigProto")
        if graph is not None and not isinstance(graph, Graph):
            raise TypeError(f"graph must be a sidereal.v1.Graph, but got {type(graph).__name__}")
        self.graph = graph if graph is not None else get_default_graph()
        self.sess_str = target
        self._closed = False
        self._config = config or ConfigProto()
        self._runner = make_runner(target, self.graph, self._config)
        self._partial_runs: dict[str, PartialRun] = {}

    @property
    def graph_def(self) -> str:
        """The graph as text."""
        return self.graph.native.text()

    def close(self) -> None:
        """Ends the session: its variables, queues and tables are gone, and what waits for them ends
        with CancelledError. On servers, what lies there stays; over star_server_lite it raises what
        a step did not wait for and no other step has raised."""
        if not self._closed:
            self._closed = True
            self._runner.close()

    def run(
        self,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None = None,
        options: RunOptions | None = None,
        run_metadata: RunMetadata | None = None,
    ) -> Any:
        """Computes `fetches`: a value, an Operation (gives None), a variable, the name of one of
        these ("y:0", "train"), or nested lists, tuples and dicts of them.

        `feed_dict` gives values: by placeholder, by any other value of the graph, which is then not
        computed, by name, or by tuples of these. With RunOptions(trace_level=FULL_TRACE),
        `run_metadata` gets what ran, and when.

        Errors: InvalidArgumentError naming a placeholder that is needed and not fed, a value
        that does not fit, or one fed twice; NotFoundError or KeyError for an unknown name;
        FailedPreconditionError for a variable without a value; DeadlineExceededError when it
        waited for too long; CancelledError when the session was closed meanwhile; RuntimeError when
        it was closed before.
        """
        if self._closed:
            raise RuntimeError("Attempted to use a closed Session.")
        if self.graph.version == 0:
            raise RuntimeError("The Session graph is empty. Add operations to the graph before "
                               "calling run().")  # fmt: skip
        leaves = [self._fetch(leaf) for leaf in nest.flatten(fetches)]
        values, targets = self._asked(leaves)
        places, tensors = self._feeds(feed_dict or {})
        outputs = iter(self._run(values, targets, places, tensors, options, run_metadata))
        return nest.pack(fetches, [_result(leaf, outputs) for leaf in leaves])

    def run_loop(
        self,
        fetches: Any,
        source: DataSpec | str | None = None,
        columns: Mapping[Any, str] | None = None,
        feed_dict: Mapping[Any, Any] | None = None,
        *,
        keep: str | Sequence[str] = "mean",
        kept_columns: Sequence[str] = (),
        batch_size: int = 1024,
        drop_partial: bool = False,
        epochs: int = 1,
        first_epoch: int = 0,
        part: tuple[int, int] = (0, 1),
        steps: int = 0,
        steps_in_flight: int = 1,
        lanes: int = 1,
        first_step: int = 0,
        trace_steps: tuple[int, int] = (0, 0),
        auc: tuple[Any, str] | None = None,
        on_progress: Callable[[loops.LoopProgress], object] | None = None,
        on_values: loops.OnValues | None = None,
        options: RunOptions | None = None,
    ) -> loops.LoopResult:
        """Runs `fetches` again and again with batches of `source`, until the data ends or there
        were `steps` steps. On servers, the session's master reads the data and drives the steps.

        columns: columns of the data by the placeholder, or other value, that each is fed to:
            "label", "dense", "ids", "weights", "truth", or the name of an array.
        feed_dict: values that are the same in all steps, as of run().
        keep: what the result has of each value of `fetches`, one word or a list: "mean" or
            "series", all of them, of numbers; "each" or "last" of any value.
        kept_columns: columns that the result has as well, of each step.
        part: which part of the rows, of how many.
        steps_in_flight: steps that compute at once. With 1 each sees all that the one before it
            changed; with more, steps wait less.
        lanes: of the master, each with a part of the rows; 0: all.
        first_step: number of the first step, for random ops; 0: the next of the session.
        trace_steps: from which number on, and before which one, steps are traced.
        auc: a value with a probability for each row, one of `fetches`, and the column of labels.
        on_progress: gets a LoopProgress a few times a second.
        on_values: gets (lane, step, rows, [(number of a value, Tensor)]) of what is kept as "each"
            and of kept columns, which the result then has not.
        options: the timeout of each step.

        Errors: those of run(); InvalidArgumentError for a column that is not there or does not fit.
        """
        if self._closed:
            raise RuntimeError("Attempted to use a closed Session.")
        leaves = [self._fetch(leaf) for leaf in nest.flatten(fetches)]
        values, targets = self._asked(leaves)
        places, tensors = self._feeds(feed_dict or {})
        at = -1 if auc is None else self._number_of(auc[0], values)
        loop = loops.Loop(
            values=values,
            keeps=loops.keeps_of(keep, len(values)),
            targets=targets,
            source=loops.text_of(source),
            columns=[(self._place(place), name) for place, name in (columns or {}).items()],
            places=places,
            tensors=tensors,
            kept_columns=list(kept_columns),
            auc=None if auc is None else (at, auc[1]),
            numbers={
                "batch_size": batch_size, "drop_partial": drop_partial, "epochs": epochs,
                "first_epoch": first_epoch, "part_index": part[0], "part_count": part[1],
                "steps": steps, "steps_in_flight": steps_in_flight, "lanes": lanes,
                "first_step": first_step, "trace_first": trace_steps[0],
                "trace_end": trace_steps[1], "auc_fetch": at,
                "auc_labels": "label" if auc is None else auc[1],
                "step_timeout_ms": options.timeout_in_ms if options else 0,
            },
        )  # fmt: skip
        kept = loops.Kept(loop)
        tell = None
        if on_progress is not None:
            hear = on_progress
            tell = lambda given: hear(loops.LoopProgress(**given))  # noqa: E731
        raw = self._guarded(lambda: self._runner.run_loop(loop, tell, on_values or kept.take))
        told, parts = loops.result_of(loop, raw, kept)
        outputs = iter(parts)
        packed = [
            None
            if isinstance(leaf, Operation)
            else _one_or_all([next(outputs) for _ in leaf])
            for leaf in leaves
        ]
        return loops.LoopResult(**told, fetches=nest.pack(fetches, packed))

    def _number_of(self, fetch: Any, values: Sequence[Output]) -> int:
        place = self._place(fetch)
        for number, value in enumerate(values):
            if (value.node, value.index) == (place.node, place.index):
                return number
        raise errors.InvalidArgumentError(f"the AUC is of '{place.name}', which is not fetched")

    # --- Runs in parts.

    def partial_run_setup(self, fetches: Any, feeds: Sequence[Any] | None = None) -> str:
        """Begins a run in several parts: partial_run() asks for some of `fetches` at a time and
        gives some of `feeds`. What one part computed is not computed again in the next."""
        if self._closed:
            raise RuntimeError("Attempted to use a closed Session.")
        values, targets = self._asked([self._fetch(leaf) for leaf in nest.flatten(fetches)])
        places = [self._place(place) for place in nest.flatten(list(feeds or []))]
        handle = f"partial_run_{len(self._partial_runs)}"
        self._partial_runs[handle] = PartialRun(self.graph, self._run, values, targets, places)
        return handle

    def partial_run(
        self, handle: str, fetches: Any, feed_dict: Mapping[Any, Any] | None = None
    ) -> Any:
        """The next part of the run that partial_run_setup() began: see run(). What it needs must
        have been fed in this or an earlier part."""
        if handle not in self._partial_runs:
            raise errors.InvalidArgumentError(
                f"'{handle}' is no run of this session: Must run 'setup' before performing partial "
                "runs!"
            )
        leaves = [self._fetch(leaf) for leaf in nest.flatten(fetches)]
        values, targets = self._asked(leaves)
        places, tensors = self._feeds(feed_dict or {})
        outputs = iter(self._partial_runs[handle].run(values, targets, places, tensors))
        return nest.pack(fetches, [_result(leaf, outputs) for leaf in leaves])

    # --- The cluster.

    def list_devices(self) -> list[DeviceAttributes]:
        """The devices of all tasks of the cluster."""
        return [DeviceAttributes(*device) for device in self._runner.list_devices()]

    @staticmethod
    def reset(
        target: str, containers: Sequence[str] | None = None, config: ConfigProto | None = None
    ) -> None:
        """Forgets what lies in `containers` (none: the default one) on every task of the cluster of
        the server `target`, and ends all its sessions: their runs are AbortedError. NotFoundError
        when there is no such server; DeadlineExceededError when it does not answer."""
        if not target:
            raise errors.NotFoundError("sessions of this process have nothing in common to reset")
        remote.reset(target, list(containers or []), config or ConfigProto())

    def make_callable(
        self, fetches: Any, feed_list: Sequence[Any] = (), accept_options: bool = False
    ) -> Callable[..., Any]:
        """A function of the values of `feed_list` that runs `fetches`."""

        def call(*args: Any, **kwargs: Any) -> Any:
            if len(args) != len(feed_list):
                raise TypeError(f"{len(feed_list)} values are to be fed; {len(args)} are given")
            return self.run(fetches, dict(zip(feed_list, args)), **kwargs)

        return call

    # --- Fetches.

    def _fetch(self, leaf: Any) -> Any:
        """An Operation, or the values that make up one result."""
        if isinstance(leaf, IndexedSlices):
            return [leaf.values, leaf.indices]
        if leaf is None:
            raise TypeError("Fetch argument None has invalid type NoneType")
        try:
            found = self.graph.as_graph_element(leaf)
        except TypeError:
            raise TypeError(
                f"{leaf!r} ({type(leaf).__name__}) cannot be fetched; fetches are values of the "
                "graph, their names, operations and variables"
            ) from None
        return found if isinstance(found, Operation) else [found]

    @staticmethod
    def _asked(leaves: Sequence[Any]) -> tuple[list[Output], list[int]]:
        """Values and targets of a run."""
        values: list[Output] = []
        targets: list[int] = []
        for leaf in leaves:
            if isinstance(leaf, Operation):
                targets.append(leaf.node)
            else:
                values += leaf
        return values, list(dict.fromkeys(targets))

    # --- Feeds.

    def _feeds(self, feed_dict: Mapping[Any, Any]) -> tuple[list[Output], list[Tensor]]:
        places: dict[tuple[int, int], Output] = {}
        tensors = []
        for key, given in feed_dict.items():
            for place, value in zip(*_pairs(key, given)):
                place = self._place(place)
                at = (place.node, place.index)
                if at in places:
                    raise errors.InvalidArgumentError(f"'{place.name}' is fed twice")
                places[at] = place
                tensors.append(self._fed(place, value))
        for variable, place in self.graph.outside.values():
            if (place.node, place.index) not in places:
                places[place.node, place.index] = place
                tensors.append(variable._present())
        return list(places.values()), tensors

    def _place(self, place: Any) -> Output:
        try:
            return self.graph.as_graph_element(place, allow_operation=False)
        except (KeyError, TypeError, ValueError) as error:
            raise TypeError(f"Cannot interpret feed_dict key as Tensor: {error}") from None

    def _fed(self, place: Output, value: Any) -> Tensor:
        if isinstance(value, (Output, Operation)):
            raise TypeError(
                f"The value of a feed cannot be a value of a graph: '{place.node_name}' is fed "
                f"with {value!r}; run it first"
            )
        try:
            tensor = to_tensor(value, None if isinstance(value, Tensor) else place.dtype)
            if tensor.dtype == place.dtype and _accepts(place.shape, tensor.shape):
                return tensor
            given = _text(tensor.dtype, tensor.shape)
        except errors.InvalidArgumentError:
            array = np.asarray(value)
            given = _text(as_dtype(array.dtype), array.shape)
        error = errors.InvalidArgumentError(
            f"{place.op_type} '{place.node_name}' takes {_text(place.dtype, place.shape)}; it is "
            f"fed with {given}: convert or reshape the value, or declare the placeholder otherwise"
        )
        self._locate(error)
        raise error

    # --- Running.

    def _run(self, *what: Any) -> list[Tensor]:
        return self._guarded(lambda: self._runner.run(*what))

    def _guarded(self, run: Callable[[], _T]) -> _T:
        """Runs with no default graph, and says where in the program an error comes from."""
        before, state.graph = state.graph, None
        try:
            return run()
        except errors.Error as error:
            if self._closed:
                raise errors.CancelledError(
                    f"Session::Close was called, and the run was cancelled: {error.message}"
                ) from None
            self._locate(error)
            raise
        finally:
            state.graph = before

    def _locate(self, error: errors.Error) -> None:
        """Says which operation an error comes from, and where in the program."""
        native = self.graph.native
        for op, name in nodes_named(error):
            node = native.find_node(name)
            if node >= 0 and native.node_op(node) == op:
                error.op = Operation(self.graph, node)
                break
        locate(error, native)
        add_line(error)


def _result(leaf: Any, outputs: Any) -> Any:
    if isinstance(leaf, Operation):
        return None
    return _one_or_all([_array(next(outputs)) for _ in leaf])


def _one_or_all(parts: list[Any]) -> Any:
    return parts[0] if len(parts) == 1 else tuple(parts)


def _array(value: Tensor) -> Any:
    """A NumPy array, of a scalar NumPy's scalar or bytes."""
    array = value.numpy()
    return array if array.ndim else array[()]


def _pairs(key: Any, given: Any) -> tuple[list[Any], list[Any]]:
    """What is fed under one key of a feed_dict: (places, values)."""
    if isinstance(key, IndexedSlices):
        values, indices = given[0], given[1]
        return [key.values, key.indices], [values, indices]
    if not isinstance(key, (tuple, list)):
        return [key], [given]
    return nest.flatten(key), flatten_like(key, given, "what is fed")


def make_runner(target: str, graph: Graph, config: ConfigProto) -> Runner:
    """What runs sessions of `target`: "" for this process, else "grpc://host:port"."""
    if not target:
        return LocalRunner(graph, config)
    return remote.RemoteRunner(target, graph, config)


class Session(BaseSession):
    """Runs parts of a graph (tf.compat.v1.Session): in this process, with variables, queues and
    tables that are the session's own, or on the servers of a cluster, which keep them by container
    and name.

    target: "" for this process, or the `target` of a Server, which is the session's master.
    graph: the default graph, if absent.
    config: a ConfigProto.
    """

    def __init__(self, target: str = "", graph: Graph | None = None, config: Any = None) -> None:
        super().__init__(target, graph, config)
        self._contexts: list[Any] = []

    def as_default(self) -> Any:
        """Makes it the default session while the context lasts; it stays open after it."""
        return AsDefault(self)

    def __enter__(self) -> Session:
        self._contexts += [self.graph.as_default(), AsDefault(self)]
        for context in self._contexts[-2:]:
            context.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for _unused in range(2):
            self._contexts.pop().__exit__(None, None, None)
        # What went wrong in the block goes before what follows from it.
        with contextlib.suppress(*() if kind is None else (errors.Error,)):
            self.close()


class InteractiveSession(BaseSession):
    """A session that is the default one until it is closed (tf.compat.v1.InteractiveSession)."""

    def __init__(self, target: str = "", graph: Graph | None = None, config: Any = None) -> None:
        super().__init__(target, graph, config)
        self._contexts: list[Any] = [] if graph is None else [graph.as_default()]
        self._contexts.append(AsDefault(self))
        for context in self._contexts:
            context.__enter__()

    def close(self) -> None:
        """Ends the session, which is the default no more."""
        super().close()
        while self._contexts:
            self._contexts.pop().__exit__(None, None, None)
