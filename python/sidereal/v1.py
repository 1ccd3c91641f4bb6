"""TensorFlow 1's way: a default graph, placeholders and sessions.

    import sidereal.v1 as sr

    x = sr.placeholder(sr.float32, [None, 3], name="x")
    y = sr.reduce_sum(x * 2.0)
    with sr.Session() as session:
        session.run(y, feed_dict={x: [[1.0, 2.0, 3.0]]})

Everything of `sidereal` is here under the same name, but ops add nodes to the default graph instead
of running at once. Sessions run in this process. Results are NumPy arrays.
"""

from __future__ import annotations

import functools
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

import sidereal as _sr

from . import _native, _run_metadata, accumulators, errors, lookup, nest, optimizers, queue
from ._dispatch import ENGINE, apply, convert, state, to_tensor
from ._graphs import Graph as _Graph
from ._graphs import legal_name, locate
from ._native import Output, Tensor
from ._resources import Resource
from ._run_metadata import RunMetadata, RunOptions, Timeline
from ._sites import add_line, user_line
from .dtypes import as_dtype
from .function import TensorSpec, _accepts, _text, checked_compute_dtype
from .indexed_slices import IndexedSlices
from .variable import Variable as _Variable


class Operation:
    """Something to run for what it does: assignments to variables, changes of queues, checks,
    printing (tf.Operation). It runs when it is fetched, or before what is made under
    control_dependencies() of it."""

    def __init__(
        self,
        graph: Graph,
        assignments: list[tuple[_Variable, Output]],
        name: str,
        nodes: Sequence[int] = (),
    ) -> None:
        self.graph = graph
        self.assignments = assignments
        self.name = name
        #: Numbers of the graph's nodes that run.
        self.nodes = list(nodes)

    def run(self, feed_dict: Mapping[Any, Any] | None = None) -> None:
        """Runs it in the default session."""
        _need_session().run(self, feed_dict)

    def __repr__(self) -> str:
        return f"<Operation '{self.name}'>"


class Graph(_Graph):
    """A graph of its own (tf.Graph). `with graph.as_default():` makes it the one ops add to."""

    def __init__(self) -> None:
        super().__init__(_native.Graph(ENGINE))
        self.native.owner = self
        self.collecting: list[tuple[_Variable, Output]] | None = None
        self.variables: list[_Variable] = []
        self._reads: dict[int, Output] = {}
        self._functions: dict[Any, Any] = {}
        self._resources: list[str] = []

    @contextmanager
    def as_default(self) -> Iterator[Graph]:
        """Ops add to this graph while the context lasts."""
        _local.graphs.append(self)
        try:
            yield self
        finally:
            _local.graphs.remove(self)

    def get_tensor_by_name(self, name: str) -> Output:
        """The value called "node:0"; NotFoundError when there is none."""
        if ":" not in name:
            raise ValueError(f"'{name}' is no name of a tensor, which ends in ':' and a number")
        return self.native.find(name)

    def control_dependencies(self, control_inputs: Sequence[Any]) -> Any:
        """What is added in this context runs after `control_inputs` (values, operations) have run.
        UnimplementedError for operations that assign to variables: sessions do that at the end."""
        return self._after([node for value in control_inputs for node in self._nodes_of(value)])

    def _nodes_of(self, value: Any) -> list[int]:
        if not isinstance(value, Operation):
            return [self.enter(value).node]
        if value.graph is not self:
            raise ValueError(f"{value!r} is not an operation of this graph")
        if value.assignments:
            raise errors.UnimplementedError(
                f"{value!r} assigns to variables, which sessions do when everything else has run; "
                "nothing can wait for it: run it in a session.run() of its own, before"
            )
        return value.nodes

    def add(
        self, op: str, inputs: Sequence[Output], attrs: Mapping[str, Any] | None, name: str | None
    ) -> Any:
        """As in any graph; an Operation for a node without values."""
        made = super().add(op, inputs, attrs, name)
        if made is not None:
            return made
        return Operation(self, [], name or op, [len(self.native) - 1])

    @contextmanager
    def _after(self, nodes: list[int]) -> Iterator[None]:
        before = self.controls
        self.controls = [*before, *nodes]
        try:
            yield
        finally:
            self.controls = before

    def read_variable(self, variable: Any) -> Output:
        inside = self._reads.get(id(variable))
        if inside is None:
            inside = self.native.placeholder(
                legal_name(variable.name), variable.dtype, variable.shape
            )
            self._reads[id(variable)] = inside
            self.variables.append(variable)
        return inside

    def captured(self, value: Any) -> Output | None:
        return None

    def operation(self, value: Output) -> Operation:
        return Operation(self, [], value.node_name, [value.node])

    def own_resource(self, name: str) -> None:
        self._resources.append(name)

    def assign_variable(self, variable: Any, value: Output) -> None:
        self.read_variable(variable)
        if self.collecting is None:
            raise errors.FailedPreconditionError(
                f"variable '{variable.name}' is assigned to while a graph is built: use "
                "sidereal.v1.assign(), which makes an operation to run"
            )
        self.collecting.append((variable, self.enter(value)))

    @contextmanager
    def _collect(self) -> Iterator[list[tuple[_Variable, Output]]]:
        """Assignments made in the context become part of an operation."""
        before, self.collecting = self.collecting, []
        try:
            with self.building():
                yield self.collecting
        finally:
            self.collecting = before


class _Local(threading.local):
    """The graphs and sessions that are the default, innermost last."""

    def __init__(self) -> None:
        self.graphs: list[Graph] = [Graph()]
        self.sessions: list[Session] = []


_local = _Local()


def get_default_graph() -> Graph:
    """The graph that ops add to."""
    return _local.graphs[-1]


def reset_default_graph() -> None:
    """Begins a new default graph; not while another graph is made the default."""
    if len(_local.graphs) > 1:
        raise AssertionError("reset_default_graph() inside of as_default()")
    _local.graphs[0] = Graph()


def placeholder(
    dtype: Any, shape: Sequence[int | None] | None = None, name: str | None = None
) -> Any:
    """A value to be fed (tf.compat.v1.placeholder); extents that may differ are None."""
    graph = get_default_graph()
    spec = TensorSpec(shape, dtype)
    name = legal_name(name or "Placeholder")
    return graph.native.placeholder(name, spec.dtype, spec.shape, user_line())


def _need_session() -> Session:
    if not _local.sessions:
        raise ValueError("there is no default session; use `with Session():` or session.run()")
    return _local.sessions[-1]


def get_default_session() -> Session | None:
    """The innermost session whose context lasts."""
    return _local.sessions[-1] if _local.sessions else None


class ConfigProto:
    """Options of a session (tf.compat.v1.ConfigProto).

    compute_dtype: what products of float32 matrices are computed in; see sidereal.function().
    """

    def __init__(self, *, compute_dtype: Any = "float32") -> None:
        self.compute_dtype = checked_compute_dtype(compute_dtype)


class Session:
    """Runs parts of a graph in this process (tf.compat.v1.Session)."""

    def __init__(self, target: str = "", graph: Graph | None = None, config: Any = None) -> None:
        if target:
            raise errors.UnimplementedError(
                f"Session('{target}'): sessions run in this process; train a sidereal.Model on a "
                "cluster"
            )
        if config is not None and not isinstance(config, ConfigProto):
            raise TypeError(f"config is {config!r}; it must be a sidereal.v1.ConfigProto")
        self.graph = graph if graph is not None else get_default_graph()
        self._compute_dtype = (config or ConfigProto()).compute_dtype
        self._closed = False
        self._graph_context: Any = None

    def __enter__(self) -> Session:
        self._graph_context = self.graph.as_default()
        self._graph_context.__enter__()
        _local.sessions.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _local.sessions.remove(self)
        self._graph_context.__exit__(None, None, None)
        self.close()

    def close(self) -> None:
        """Ends the session: queues and the like of its graph that have no shared name are gone, and
        what waits for them ends with CancelledError."""
        self._closed = True
        for name in self.graph._resources:
            ENGINE.erase_resource(name)

    def run(
        self,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None = None,
        options: RunOptions | None = None,
        run_metadata: RunMetadata | None = None,
    ) -> Any:
        """Computes `fetches`: a value, its name ("y:0"), an Operation (gives None), a variable, or
        nested lists, tuples and dicts of them. `feed_dict` gives placeholders their values. With
        RunOptions(trace_level=RunOptions.FULL_TRACE), `run_metadata` gets what ran, and when.

        Errors: InvalidArgumentError naming a placeholder that is needed and not fed, or a value
        that does not fit; NotFoundError for an unknown name; RuntimeError when the session is
        closed.
        """
        if self._closed:
            raise RuntimeError("Attempted to use a closed Session.")
        leaves = [self._fetch(leaf) for leaf in nest.flatten(fetches)]
        values: list[Output] = []
        targets: list[int] = []
        for leaf in leaves:
            if isinstance(leaf, Operation):
                values += [value for _, value in leaf.assignments]
                targets += leaf.nodes
            else:
                values += leaf
        names, tensors = self._feeds(feed_dict or {})
        traced = _run_metadata.begin(options)
        try:
            outputs = iter(self._run(values, targets, names, tensors))
        finally:
            if traced:
                _run_metadata.finish(run_metadata)
        results = []
        pending = []
        for leaf in leaves:
            if isinstance(leaf, Operation):
                pending += [(variable, next(outputs)) for variable, _ in leaf.assignments]
                results.append(None)
            else:
                arrays = [next(outputs).numpy() for _ in leaf]
                results.append(arrays[0] if len(arrays) == 1 else tuple(arrays))
        for variable, value in pending:
            variable.assign(value)
        return nest.pack(fetches, results)

    def _fetch(self, leaf: Any) -> Any:
        """An Operation, or the values that make up one result."""
        if isinstance(leaf, str):
            leaf = self.graph.get_tensor_by_name(leaf if ":" in leaf else leaf + ":0")
        if isinstance(leaf, Operation):
            if leaf.graph is not self.graph:
                raise ValueError(f"{leaf!r} is not an operation of this session's graph")
            return leaf
        if isinstance(leaf, IndexedSlices):
            return [leaf.values, leaf.indices]
        if isinstance(leaf, _Variable):
            return [self.graph.read_variable(leaf)]
        if isinstance(leaf, Output) and leaf.graph is self.graph.native:
            return [leaf]
        if isinstance(leaf, Output):
            raise ValueError(f"{leaf!r} is not a value of this session's graph")
        raise TypeError(
            f"{leaf!r} ({type(leaf).__name__}) cannot be fetched; fetches are values of the graph, "
            "their names, operations and variables"
        )

    def _feeds(self, feed_dict: Mapping[Any, Any]) -> tuple[list[Output], list[Tensor]]:
        places, tensors = [], []
        for place, value in feed_dict.items():
            if isinstance(place, str):
                place = self.graph.get_tensor_by_name(place if ":" in place else place + ":0")
            if not isinstance(place, Output) or place.graph is not self.graph.native:
                raise TypeError(f"{place!r} cannot be fed: it is no placeholder of this graph")
            if place.op_type != "Placeholder":
                raise errors.InvalidArgumentError(
                    f"{place.op_type} '{place.node_name}' cannot be fed: only placeholders can"
                )
            if isinstance(value, Output):
                raise TypeError(f"placeholder '{place.node_name}' is fed with a value of a graph")
            places.append(place)
            tensors.append(self._fed(place, value))
        return places, tensors

    def _fed(self, place: Output, value: Any) -> Tensor:
        try:
            tensor = to_tensor(value, None if isinstance(value, Tensor) else place.dtype)
            if tensor.dtype == place.dtype and _accepts(place.shape, tensor.shape):
                return tensor
            given = _text(tensor.dtype, tensor.shape)
        except errors.InvalidArgumentError:
            array = np.asarray(value)
            given = _text(as_dtype(array.dtype), array.shape)
        error = errors.InvalidArgumentError(
            f"Placeholder '{place.node_name}' takes {_text(place.dtype, place.shape)}; it is fed"
            f" with {given}: convert or reshape the value, or declare the placeholder otherwise"
        )
        locate(error, self.graph.native)
        raise error

    def _run(
        self,
        values: list[Output],
        targets: list[int],
        places: list[Output],
        tensors: list[Tensor],
    ) -> list[Tensor]:
        variables = list(self.graph.variables)
        key = (
            tuple((value.node, value.index) for value in values),
            tuple(targets),
            tuple(place.node for place in places),
            len(variables),
            self._compute_dtype,
        )
        function = self.graph._functions.get(key)
        if function is None:
            inputs = [*places, *(self.graph.read_variable(variable) for variable in variables)]
            function = self.graph.native.function(
                "session", inputs, values, self._compute_dtype, targets
            )
        before, state.graph = state.graph, None
        try:
            tensors = [*tensors, *(variable._present() for variable in variables)]
            outputs = function.call(ENGINE, tensors)
        except errors.Error as error:
            locate(error, self.graph.native)
            add_line(error)
            raise
        finally:
            state.graph = before
        self.graph._functions[key] = function
        return outputs


def assign(ref: _Variable, value: Any, name: str = "assign") -> Operation:
    """An operation that gives a variable another value (tf.compat.v1.assign)."""
    graph = get_default_graph()
    with graph._collect() as assignments:
        ref.assign(value)
    return Operation(graph, assignments, name)


def assign_add(ref: _Variable, value: Any, name: str = "assign_add") -> Operation:
    """An operation that adds to a variable."""
    graph = get_default_graph()
    with graph._collect() as assignments:
        ref.assign_add(value)
    return Operation(graph, assignments, name)


def group(*operations: Operation, name: str = "group") -> Operation:
    """One operation that runs several."""
    assignments = [pair for operation in operations for pair in operation.assignments]
    nodes = [node for operation in operations for node in operation.nodes]
    return Operation(get_default_graph(), assignments, name, nodes)


def Variable(
    initial_value: Any, trainable: bool = True, name: str | None = None, dtype: Any = None
) -> Any:  # noqa: N802,E501
    """A variable of this process, used in the default graph."""
    graph = get_default_graph()
    with _eager():
        made = _Variable(initial_value, trainable, name, dtype)
    made.initial_value = made._present()  # type: ignore[attr-defined]
    graph.read_variable(made)
    return made


def global_variables() -> list[_Variable]:
    """The variables used in the default graph."""
    return list(get_default_graph().variables)


def trainable_variables() -> list[_Variable]:
    """Those that optimizers update."""
    return [variable for variable in global_variables() if variable.trainable]


def global_variables_initializer() -> Operation:
    """Gives all variables of the default graph their initial values again."""
    graph = get_default_graph()
    return Operation(
        graph,
        [
            (variable, graph.constant(variable.initial_value))
            for variable in graph.variables
            if hasattr(variable, "initial_value")
        ],
        "init",
    )


@contextmanager
def _eager() -> Iterator[None]:
    before, state.graph = state.graph, None
    try:
        yield
    finally:
        state.graph = before


def control_dependencies(control_inputs: Sequence[Any]) -> Any:
    """See Graph.control_dependencies()."""
    return get_default_graph().control_dependencies(control_inputs)


class _TrainOptimizer:
    """An optimizer whose minimize() makes an operation."""

    rule: optimizers.Optimizer

    def minimize(self, loss: Any, var_list: Sequence[_Variable] | None = None) -> Operation:
        """An operation that takes one step down from `loss`."""
        return self.apply_gradients(self.compute_gradients(loss, var_list))

    def compute_gradients(
        self, loss: Any, var_list: Sequence[_Variable] | None = None
    ) -> list[tuple[Any, _Variable]]:
        """Pairs (gradient, variable)."""
        graph = get_default_graph()
        variables = list(var_list) if var_list is not None else trainable_variables()
        with graph.building():
            found = _sr.gradients(loss, [graph.read_variable(variable) for variable in variables])
        return list(zip(found, variables))

    def apply_gradients(
        self, grads_and_vars: Sequence[tuple[Any, _Variable]], name: str = "apply_gradients"
    ) -> Operation:
        """An operation that updates the variables."""
        graph = get_default_graph()
        with graph._collect() as assignments:
            self.rule.apply_gradients(grads_and_vars)
        return Operation(graph, assignments, name)


def _train_optimizer(name: str, make: Callable[..., optimizers.Optimizer], doc: str) -> type:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        self.rule = make(*args, **kwargs)

    return type(name, (_TrainOptimizer,), {"__init__": __init__, "__doc__": doc})


train = types.SimpleNamespace(
    ClusterDef=_sr.train.ClusterDef,
    ClusterSpec=_sr.train.ClusterSpec,
    JobDef=_sr.train.JobDef,
    GradientDescentOptimizer=_train_optimizer(
        "GradientDescentOptimizer", optimizers.Sgd, "See sidereal.optimizers.Sgd."
    ),
    MomentumOptimizer=_train_optimizer(
        "MomentumOptimizer", optimizers.Momentum, "See sidereal.optimizers.Momentum."
    ),
    AdagradOptimizer=_train_optimizer(
        "AdagradOptimizer", optimizers.Adagrad, "See sidereal.optimizers.Adagrad."
    ),
    AdamOptimizer=_train_optimizer(
        "AdamOptimizer", optimizers.Adam, "See sidereal.optimizers.Adam."
    ),
    FtrlOptimizer=_train_optimizer(
        "FtrlOptimizer", optimizers.Ftrl, "See sidereal.optimizers.Ftrl."
    ),
)


timeline = types.SimpleNamespace(Timeline=Timeline)


def _in_graph(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if state.graph is not None:
            return function(*args, **kwargs)
        with get_default_graph().building():
            return function(*args, **kwargs)

    return call


class _Namespace:
    """A module whose functions add to the default graph."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return _wrapped(getattr(self._module, name))


def _wrapped(thing: Any) -> Any:
    if isinstance(thing, types.ModuleType):
        return _Namespace(thing)
    if isinstance(thing, types.FunctionType):
        return _in_graph(thing)
    if isinstance(thing, type) and issubclass(thing, _OF_OPS):
        return _graph_class(thing)
    return thing


#: Names that TensorFlow 1 had at the top, and where they are now.
_MOVED = {
    "FixedLenFeature": "io.FixedLenFeature",
    "FixedLenSequenceFeature": "io.FixedLenSequenceFeature",
    "SparseFeature": "io.SparseFeature",
    "SparseTensor": "sparse.SparseTensor",
    "VarLenFeature": "io.VarLenFeature",
    "as_string": "strings.as_string",
    "decode_csv": "io.decode_csv",
    "decode_raw": "io.decode_raw",
    "parse_example": "io.parse_example",
    "parse_single_example": "io.parse_single_example",
    "reduce_join": "strings.reduce_join",
    "regex_replace": "strings.regex_replace",
    "sparse_tensor_to_dense": "sparse.to_dense",
    "string_join": "strings.join",
    "string_strip": "strings.strip",
    "string_to_hash_bucket": "strings.to_hash_bucket",
    "string_to_hash_bucket_fast": "strings.to_hash_bucket_fast",
    "string_to_hash_bucket_strong": "strings.to_hash_bucket_strong",
    "string_to_number": "strings.to_number",
    "substr": "strings.substr",
}


@_in_graph
def string_split(
    source: Any, sep: str | None = None, skip_empty: bool = True, delimiter: str = " "
) -> _sr.sparse.SparseTensor:
    """The pieces of a vector of strings between separators (tf.string_split), as a SparseTensor:
    every character of `sep` or `delimiter`, which is ASCII, separates; '' splits into bytes."""
    attrs = {
        "separator": delimiter if sep is None else sep, "each_byte": True, "skip_empty": skip_empty
    }  # fmt: skip
    values, splits = apply("StringSplit", (convert(source),), attrs)
    return _sr.RaggedTensor(values, splits).to_sparse()


#: Classes whose methods are ops.
_OF_OPS = (Resource, lookup.StaticHashTable, lookup.StaticVocabularyTable)


@functools.cache
def _graph_class(cls: type) -> type:
    """`cls` with methods that add to the default graph."""
    methods = {
        name: _in_graph(getattr(cls, name))
        for name in dir(cls)
        if isinstance(getattr(cls, name), types.FunctionType)
        and (name in ("__init__", "__getitem__") or not name.startswith("_"))
    }
    return type(cls.__name__, (cls,), {**methods, "__doc__": cls.__doc__})


FIFOQueue = _graph_class(queue.FIFOQueue)
PaddingFIFOQueue = _graph_class(queue.PaddingFIFOQueue)
PriorityQueue = _graph_class(queue.PriorityQueue)
RandomShuffleQueue = _graph_class(queue.RandomShuffleQueue)
ConditionalAccumulator = _graph_class(accumulators.ConditionalAccumulator)
SparseConditionalAccumulator = _graph_class(accumulators.SparseConditionalAccumulator)


_HIDDEN = {"function", "GradientTape", "LocalCluster", "Model"}


def __getattr__(name: str) -> Any:
    if name in _MOVED:
        module, _, member = _MOVED[name].partition(".")
        return _wrapped(getattr(getattr(_sr, module), member))
    if name.startswith("_") or name in _HIDDEN or not hasattr(_sr, name):
        raise AttributeError(f"module 'sidereal.v1' has no attribute '{name}'")
    return _wrapped(getattr(_sr, name))


__all__ = [
    "ConditionalAccumulator", "ConfigProto", "FIFOQueue", "Graph", "Operation", "PaddingFIFOQueue",
    "PriorityQueue", "RandomShuffleQueue", "RunMetadata", "RunOptions", "Session",
    "SparseConditionalAccumulator", "Variable",
    "assign", "assign_add", "control_dependencies",
    "get_default_graph", "get_default_session", "global_variables", "global_variables_initializer",
    "group", "placeholder", "reset_default_graph", "string_split", "timeline", "train",
    "trainable_variables",
]
