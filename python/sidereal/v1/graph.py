"""Graphs with names, devices and collections (tf.Graph)."""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from .. import _native, errors, tensors
from .._dispatch import ENGINE, state
from .._graphs import Graph as _Graph
from .._graphs import legal_name
from .._native import Output
from .._sites import user_line
from ..function import TensorSpec
from ..indexed_slices import IndexedSlices
from .device import DeviceFunction, device_function, device_text
from .operation import Operation
from .placement import PlacementReport, placement_report

_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*")
_NAME_IN_SCOPE = re.compile(r"[A-Za-z0-9_.\\/>-]*")


def check_name(name: str) -> str:
    """`name`, when a node may have it; else a ValueError."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"'{name}' is not a valid node name: letters, digits and _.\\/>- only, "
                         "a letter, digit or dot first")  # fmt: skip
    return name


class GraphKeys:
    """Names of collections (tf.GraphKeys)."""

    GLOBAL_VARIABLES = "variables"
    LOCAL_VARIABLES = "local_variables"
    METRIC_VARIABLES = "metric_variables"
    MODEL_VARIABLES = "model_variables"
    TRAINABLE_VARIABLES = "trainable_variables"
    SUMMARIES = "summaries"
    QUEUE_RUNNERS = "queue_runners"
    TABLE_INITIALIZERS = "table_initializer"
    ASSET_FILEPATHS = "asset_filepaths"
    MOVING_AVERAGE_VARIABLES = "moving_average_variables"
    REGULARIZATION_LOSSES = "regularization_losses"
    CONCATENATED_VARIABLES = "concatenated_variables"
    SAVERS = "savers"
    WEIGHTS = "weights"
    BIASES = "biases"
    ACTIVATIONS = "activations"
    UPDATE_OPS = "update_ops"
    LOSSES = "losses"
    SAVEABLE_OBJECTS = "saveable_objects"
    GLOBAL_ITERATORS = "iterators"
    RESOURCES = "resources"
    LOCAL_RESOURCES = "local_resources"
    TRAIN_OP = "train_op"
    GLOBAL_STEP = "global_step"
    INIT_OP = "init_op"
    LOCAL_INIT_OP = "local_init_op"
    READY_OP = "ready_op"
    READY_FOR_LOCAL_INIT_OP = "ready_for_local_init_op"
    SUMMARY_OP = "summary_op"
    EVAL_STEP = "eval_step"
    COND_CONTEXT = "cond_context"
    WHILE_CONTEXT = "while_context"


class Graph(_Graph):
    """A graph of its own (tf.Graph). `with graph.as_default():` makes it the one ops add to."""

    #: Held by who adds nodes, where several threads do.
    changing: Any = None
    #: Whether variables go to other parameter servers while sessions run it.
    movable = False

    def __init__(self) -> None:
        native = _native.Graph(ENGINE)
        setattr(native, "owner", self)
        super().__init__(native)
        self.finalized = False
        #: Variables of this process that are read here, with what is fed with their values.
        self.outside: dict[int, tuple[Any, Output]] = {}
        self._scope = ""
        self._names: dict[str, int] = {}
        self._devices: list[DeviceFunction | None] = []
        self._colocated: list[Operation] = []
        self._placing = False
        self._container = ""
        self._collections: dict[Any, list[Any]] = {}
        #: Variables by the numbers of the nodes that make their handles.
        self.variables_by_handle: dict[int, Any] = {}
        #: What optimizers have added: training.Update.
        self.updates: list[Any] = []
        #: What get_variable() and variable_scope() know.
        self.variable_store: Any = None

    @contextmanager
    def as_default(self) -> Iterator[Graph]:
        """Ops add to this graph while the context lasts."""
        local.graphs.append(self)
        try:
            with state.at_once():
                yield self
        finally:
            local.graphs.remove(self)

    # --- Adding.

    def add(
        self, op: str, inputs: Sequence[Output], attrs: Mapping[str, Any] | None, name: str | None
    ) -> Any:
        """As in any graph; an Operation for a node without values."""
        self._check_open()
        made = super().add(op, inputs, attrs, name)
        return made if made is not None else Operation(self, len(self.native) - 1)

    def node_name(self, name: str | None, op: str = "") -> str | None:
        return self.unique_name(check_name(name) if name else legal_name(op or "Node"))

    def placeholder(self, dtype: Any, shape: Any, name: str | None) -> Output:
        """See sidereal.v1.placeholder()."""
        self._check_open()
        spec = TensorSpec(shape, dtype)
        first = len(self.native)
        full = self.unique_name(check_name(name or "Placeholder"))
        made = self.native.placeholder(full, spec.dtype, spec.shape, user_line())
        self.place_nodes(self.native, first)
        return made

    def place_nodes(self, native: _native.GraphBase, first: int) -> None:
        for node in range(first, len(native)):
            self._place(Operation(self, node, native))

    def _place(self, op: Operation) -> None:
        """Asks the scopes of devices, innermost first; a scope of None ends it."""
        inside = op.native is not self.native
        for function in reversed(self._devices):
            if function is None:
                break
            op._set_device(function(op))
        groups: dict[str, None] = {}
        for other in self._colocated:
            groups |= dict.fromkeys(other._colocated_with())
            if other.device:
                op._set_device(other.device)
        if groups and not inside:
            op.native.set_colocation(op.node, list(groups))

    def place_like(self, op: Operation, nodes: Iterable[int]) -> None:
        """Puts nodes where `op` is."""
        names = op._colocated_with()
        for node in nodes:
            self.native.set_device(node, op.device)
            self.native.set_colocation(node, names)

    def device_text(self, device: Any) -> str:
        """See device.device_text()."""
        return device_text(device)

    def _check_open(self) -> None:
        if self.finalized:
            raise RuntimeError("Graph is finalized and cannot be modified.")

    def finalize(self) -> None:
        """Lets nothing be added any more; a RuntimeError for who tries."""
        self.finalized = True

    @property
    def version(self) -> int:
        """Grows with every node that is added."""
        return len(self.native)

    # --- Names.

    def unique_name(self, name: str, mark_as_used: bool = True) -> str:
        """`name` in the scope of names that lasts, with _1, _2, ... if it is taken."""
        if name.endswith("/"):  # What name_scope() gives: the name itself.
            return name[:-1]
        full = f"{self._scope}/{name}" if self._scope else name
        key = full.lower()
        count = self._names.get(key, 0)
        if mark_as_used:
            self._names[key] = count + 1
        if count == 0:
            return full
        while True:
            numbered = f"{full}_{count}"
            if numbered.lower() not in self._names:
                break
            count += 1
        if mark_as_used:
            self._names[key] = count + 1
            self._names[numbered.lower()] = 1
        return numbered

    def take_name(self, full: str) -> None:
        """Makes a name, with all scopes, one that unique_name() gives to nothing else."""
        self._check_open()
        parts = full.lower().split("/")
        for end in range(1, len(parts) + 1):
            self._names.setdefault("/".join(parts[:end]), 1)

    @contextmanager
    def name_scope(self, name: str | None) -> Iterator[str]:
        """Names made in the context begin with `name`/ (tf.Graph.name_scope): a new one inside of
        the scope around it, or, if it ends in "/", just this one. None or "": outside of all."""
        before = self._scope
        if name:
            if name.endswith("/"):
                self._scope = name[:-1]
            else:
                if not (_NAME_IN_SCOPE if before else _NAME).fullmatch(name):
                    raise ValueError(f"'{name}' is not a valid scope name")
                self._scope = self.unique_name(name)
        else:
            self._scope = ""
        try:
            yield self._scope + "/" if self._scope else ""
        finally:
            self._scope = before

    def get_name_scope(self) -> str:
        """The scope of names that lasts."""
        return self._scope

    # --- Devices.

    @contextmanager
    def device(self, device_name_or_function: Any) -> Iterator[None]:
        """What is added in the context asks for a device (tf.Graph.device): by name or DeviceSpec,
        whose fields an inner scope overrides, or as a function of the Operation says. None forgets
        the scopes around it."""
        self._devices.append(device_function(device_name_or_function))
        try:
            yield
        finally:
            self._devices.pop()

    @contextmanager
    def colocate_with(self, op: Any, ignore_existing: bool = False) -> Iterator[None]:
        """What is added in the context runs where `op` does; scopes of devices around it count no
        more."""
        before = self._devices, self._colocated
        self._devices = []
        kept = [] if ignore_existing else self._colocated
        self._colocated = kept if op is None else [*kept, self._operation(op)]
        try:
            yield
        finally:
            self._devices, self._colocated = before

    @contextmanager
    def container(self, container_name: str) -> Iterator[str]:
        """Variables, queues and the like made in the context are in a container of this name."""
        before, self._container = self._container, container_name
        try:
            yield container_name
        finally:
            self._container = before

    @property
    def container_name(self) -> str:
        """The container of the scope that lasts, "" for the default one."""
        return self._container

    # --- Order.

    def control_dependencies(self, control_inputs: Sequence[Any] | None) -> Any:
        """What is added in this context runs after `control_inputs` (values, operations, variables)
        have run. None: forgets what was to be waited for."""
        if control_inputs is None:
            return self._waiting_for([])
        return self._waiting_for(
            [*self.controls, *(self._operation(value).node for value in control_inputs)]
        )

    @contextmanager
    def _waiting_for(self, nodes: list[int]) -> Iterator[None]:
        before, self.controls = self.controls, list(dict.fromkeys(nodes))
        try:
            yield
        finally:
            self.controls = before

    def _operation(self, value: Any) -> Operation:
        """The operation that `value` is, or that makes it."""
        if isinstance(value, IndexedSlices):
            value = value.values
        if not isinstance(value, Operation):
            value = getattr(value, "_as_graph_element", lambda: value)()
            value = value if isinstance(value, Operation) else self.operation(self.enter(value))
        if value.native is not self.native:
            raise ValueError(f"{value!r} is not an operation of this graph")
        return value

    # --- What was added.

    def operation(self, value: Output) -> Operation:
        return Operation(self, value.node)

    def placement(
        self, cluster: Any, master: str = "", allow_soft_placement: bool = False
    ) -> PlacementReport:
        """Where a session on the servers of `cluster` would put its nodes and variables; see
        sidereal.v1.placement_report()."""
        return placement_report(self, cluster, master, allow_soft_placement)

    def get_operations(self) -> list[Operation]:
        """All operations, in the order they were added."""
        return [Operation(self, node) for node in range(len(self.native))]

    def get_operation_by_name(self, name: str) -> Operation:
        """The operation of that name; KeyError when there is none."""
        node = self.native.find_node(name)
        if node < 0:
            raise KeyError(f"The name '{name}' refers to an Operation not in the graph.")
        return Operation(self, node)

    def get_tensor_by_name(self, name: str) -> Output:
        """The value called "node:0", of a variable its value; NotFoundError when there is none."""
        if ":" not in name:
            raise ValueError(f"'{name}' is no name of a tensor, which ends in ':' and a number")
        found = self.native.find(name)
        if found.op_type != "Variable":
            return found
        node = self.native.find_node(found.node_name + "/read")
        return found if node < 0 else self.native.node_outputs(node)[0]

    def as_graph_element(
        self, obj: Any, allow_tensor: bool = True, allow_operation: bool = True
    ) -> Any:
        """The value or operation that `obj` is or names. KeyError when the graph has none of that
        name, ValueError when it is of another graph, TypeError when it is something else."""
        obj = getattr(obj, "_as_graph_element", lambda: obj)()
        if isinstance(obj, (bytes, str)):
            return self._named(obj if isinstance(obj, str) else obj.decode(),
                               allow_tensor, allow_operation)  # fmt: skip
        if isinstance(obj, Operation) and allow_operation:
            if obj.native is not self.native:
                raise ValueError(f"{obj!r} is not an operation of this session's graph")
            return obj
        if isinstance(obj, Output) and allow_tensor:
            if obj.graph is not self.native:
                raise ValueError(f"{obj!r} is not a value of this session's graph")
            return obj
        kind = type(obj).__name__
        raise TypeError(f"Can not convert a {kind} into a value or operation: {obj!r}")

    def _named(self, name: str, allow_tensor: bool, allow_operation: bool) -> Any:
        if ":" in name:
            if not allow_tensor:
                raise ValueError(f"'{name}' names a value, not an operation")
            return self.get_tensor_by_name(name)
        if not allow_operation:
            raise ValueError(f"'{name}' names an operation; values are called '{name}:0'")
        return self.get_operation_by_name(name)

    # --- Collections.

    def add_to_collection(self, name: Any, value: Any) -> None:
        """Puts `value` at the end of a collection."""
        self._check_open()
        self._collections.setdefault(name, []).append(value)

    def add_to_collections(self, names: Any, value: Any) -> None:
        """Puts `value` into several collections, or one."""
        for name in dict.fromkeys((names,) if isinstance(names, str) else names):
            self.add_to_collection(name, value)

    def get_collection_ref(self, name: Any) -> list[Any]:
        """The collection itself."""
        return self._collections.setdefault(name, [])

    def get_collection(self, name: Any, scope: str | None = None) -> list[Any]:
        """A copy of a collection; with `scope`, what has a name that this regular expression
        matches at its beginning."""
        found = self._collections.get(name, [])
        if scope is None:
            return list(found)
        return [item for item in found if hasattr(item, "name") and re.match(scope, item.name)]

    def get_all_collection_keys(self) -> list[Any]:
        """Names of the collections."""
        return [name for name in self._collections if isinstance(name, str)]

    def clear_collection(self, name: Any) -> None:
        """Empties a collection."""
        self._collections.pop(name, None)

    # --- What belongs to this process.

    def read_variable(self, variable: Any) -> Output:
        """A sidereal.Variable: a placeholder that sessions feed with its value at each run."""
        if id(variable) not in self.outside:
            with self.init_scope():
                made = self.placeholder(variable.dtype, variable.shape, legal_name(variable.name))
            self.outside[id(variable)] = (variable, made)
        return self.outside[id(variable)][1]

    def captured(self, value: Any) -> Output | None:
        return None

    def resource_name(self, name: str, in_body: bool = False) -> str | None:
        # The name of the node that makes it: the same in the graphs of all workers.
        return self.unique_name(legal_name(name), mark_as_used=in_body)

    def assign_variable(self, variable: Any, value: Output) -> None:
        raise errors.FailedPreconditionError(
            f"variable '{variable.name}' is one of this process: graphs read it, and assign to "
            "variables of their own (sidereal.v1.Variable)"
        )

    @contextmanager
    def init_scope(self) -> Iterator[None]:
        """Out of branches, loops and control dependencies, to this graph itself."""
        before, state.graph = state.graph, self
        try:
            with self.control_dependencies(None):
                yield
        finally:
            state.graph = before

    def __repr__(self) -> str:
        return f"<Graph of {len(self.native)} operations>"


class _Local(threading.local):
    """The graphs that are the default, innermost last."""

    def __init__(self) -> None:
        self.graphs: list[Graph] = [Graph()]


local = _Local()


def get_default_graph() -> Graph:
    """The graph that ops add to."""
    return local.graphs[-1]


def reset_default_graph() -> None:
    """Begins a new default graph; not while another graph is made the default."""
    if len(local.graphs) > 1:
        raise AssertionError("reset_default_graph() inside of as_default()")
    local.graphs[0] = Graph()


def current_graph() -> _Graph:
    """The graph that is being built: the default one, or a body inside of it."""
    return state.graph if state.graph is not None else get_default_graph()


@contextmanager
def building() -> Iterator[_Graph]:
    """Ops go to current_graph() while the context lasts."""
    graph = current_graph()
    with graph.building():
        yield graph


def placeholder(
    dtype: Any, shape: Sequence[int | None] | None = None, name: str | None = None
) -> Any:
    """A value to be fed (tf.compat.v1.placeholder); extents that may differ are None."""
    return get_default_graph().placeholder(dtype, shape, name)


def constant(
    value: Any, dtype: Any = None, shape: Sequence[int] | None = None, name: str | None = "Const",
    verify_shape: bool = False,
) -> Any:  # fmt: skip
    """A value of the graph that is known with it; see sidereal.constant()."""
    with state.at_once():
        made = tensors.constant(value, dtype, shape)
    return current_graph().add("Const", (), {"value": made}, name)


def init_scope() -> Any:
    """Out of branches, loops and control dependencies, to the default graph (tf.init_scope)."""
    return get_default_graph().init_scope()


@contextmanager
def name_scope(
    name: str | None, default_name: str | None = None, values: Any = None
) -> Iterator[str]:
    """See Graph.name_scope(); `default_name` in the place of a name that is None."""
    with get_default_graph().name_scope(name if name is not None else default_name) as scope:
        yield scope


def device(device_name_or_function: Any) -> Any:
    """See Graph.device()."""
    return get_default_graph().device(device_name_or_function)


def colocate_with(op: Any, ignore_existing: bool = False) -> Any:
    """See Graph.colocate_with()."""
    return get_default_graph().colocate_with(op, ignore_existing)


def container(container_name: str) -> Any:
    """See Graph.container()."""
    return get_default_graph().container(container_name)


def control_dependencies(control_inputs: Sequence[Any] | None) -> Any:
    """See Graph.control_dependencies(). In branches and loops, which run what they do in the order
    of the program, all that was made before has run."""
    graph = current_graph()
    if isinstance(graph, Graph):
        return graph.control_dependencies(control_inputs)
    return _in_body(graph, control_inputs)


@contextmanager
def _in_body(graph: _Graph, control_inputs: Sequence[Any] | None) -> Iterator[None]:
    before = graph.controls
    graph.controls = [] if control_inputs is None else [
        *before,
        *(
            value.node if isinstance(value, Operation) else graph.enter(value).node
            for value in control_inputs
        ),
    ]  # fmt: skip
    try:
        yield
    finally:
        graph.controls = before


def add_to_collection(name: Any, value: Any) -> None:
    """See Graph.add_to_collection()."""
    get_default_graph().add_to_collection(name, value)


def add_to_collections(names: Any, value: Any) -> None:
    """See Graph.add_to_collections()."""
    get_default_graph().add_to_collections(names, value)


def get_collection(key: Any, scope: str | None = None) -> list[Any]:
    """See Graph.get_collection()."""
    return get_default_graph().get_collection(key, scope)


def get_collection_ref(key: Any) -> list[Any]:
    """See Graph.get_collection_ref()."""
    return get_default_graph().get_collection_ref(key)


def no_op(name: str | None = None) -> Any:
    """An operation that does nothing, after what is to be waited for; in a branch or loop None."""
    if not isinstance(current_graph(), Graph):
        return None
    return get_default_graph().add("NoOp", (), None, name or "NoOp")


def group(*inputs: Any, name: str | None = None) -> Any:
    """One operation that runs several (tf.group): values, operations, variables, nested lists of
    them. Those of one device are joined there. In a branch or loop, where all runs in the order of
    the program, None."""
    if not isinstance(current_graph(), Graph):
        return None
    graph = get_default_graph()
    by_device: dict[str, list[Operation]] = {}
    for item in _flat(inputs):
        op = graph._operation(item)
        by_device.setdefault(op.device, []).append(op)
    with graph.init_scope(), graph.name_scope(name or "group_deps") as scope:
        if len(by_device) <= 1:
            return _joined(graph, by_device, scope)
        joined = {device: [_joined(graph, {device: ops}, None)] for device, ops in
                  sorted(by_device.items())}  # fmt: skip
        every = [op for ops in joined.values() for op in ops]
        with graph.control_dependencies(every):
            return graph.add("NoOp", (), None, scope)


def _joined(graph: Graph, by_device: dict[str, list[Operation]], name: str | None) -> Operation:
    for device_name, ops in by_device.items():
        with graph.device(None), graph.device(device_name), graph.control_dependencies(ops):
            return graph.add("NoOp", (), None, name or "NoOp")
    return graph.add("NoOp", (), None, name or "NoOp")


def _flat(items: Any) -> list[Any]:
    if isinstance(items, (list, tuple)) and not isinstance(items, IndexedSlices):
        return [leaf for item in items for leaf in _flat(item)]
    return [] if items is None else [items]


def in_default_graph(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` with its ops in the graph that is being built."""
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if state.graph is not None:
            return function(*args, **kwargs)
        with get_default_graph().building():
            return function(*args, **kwargs)

    return call
