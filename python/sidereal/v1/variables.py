"""Variables of graphs: nodes that hold a value in a session, or on a server
(tf.compat.v1.Variable)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import sidereal as _sr

from .. import errors
from .._dispatch import _has_tensor, convert, state
from .._native import Output
from .._tensor import Reference, install_shared
from ..dtypes import DType, as_dtype, is_floating, name_of
from ..function import TensorSpec
from ..indexed_slices import IndexedSlices
from ..variable import SaveSliceInfo
from .default_session import need_session
from .graph import (
    Graph,
    GraphKeys,
    check_name,
    constant,
    current_graph,
    get_default_graph,
    group,
    in_default_graph,
)
from .operation import Operation

#: In annotations inside of Variable, which has a member of the name.
_SliceInfo = SaveSliceInfo


class Variable:
    """A value that runs of sessions share and change (tf.compat.v1.Variable).

        w = sr.Variable([1.0, 2.0], name="w")
        step = w.assign_add([0.5, 0.5])
        with sr.Session() as session:
            session.run(sr.global_variables_initializer())
            session.run(step)

    Stands wherever a tensor can. It has no value before its initializer has run. Where it lives
    says device(); its nodes are called name, name/Assign, name/read.

    initial_value: what convert_to_tensor() takes, or a function of no arguments that makes it.
    trainable: whether optimizers update it; True if absent.
    collections: where it is put; GraphKeys.GLOBAL_VARIABLES if absent.
    validate_shape: False: values may have any shape.
    dtype: of the value; that of initial_value if absent.
    container: where its name counts; that of sr.container() if absent.
    """

    SaveSliceInfo = SaveSliceInfo
    #: Of a part of a variable that was cut.
    _save_slice_info: _SliceInfo | None = None

    def __init__(
        self,
        initial_value: Any = None,
        trainable: bool | None = None,
        collections: Sequence[Any] | None = None,
        validate_shape: bool = True,
        caching_device: Any = None,
        name: str | None = None,
        variable_def: Any = None,
        dtype: Any = None,
        expected_shape: Any = None,
        import_scope: str | None = None,
        constraint: Any = None,
        use_resource: bool | None = None,
        shape: Sequence[int | None] | None = None,
    ) -> None:
        if initial_value is None:
            raise ValueError("initial_value must be specified.")
        unused = {"variable_def": variable_def, "import_scope": import_scope}
        for what, given in unused.items():
            if given is not None:
                raise errors.UnimplementedError(f"Variable({what}=...) is not in this release")
        self.graph: Graph = get_default_graph()
        self.trainable = True if trainable is None else bool(trainable)
        self.constraint = constraint
        #: Every value that was read outside of branches and loops: gradients are of these.
        self.reads: list[Output] = []
        name = check_name(name or "Variable")
        with self.graph.init_scope(), self.graph.name_scope(name) as scope:
            self._make(initial_value, dtype, shape, validate_shape, scope)
        keys = list(collections) if collections is not None else [GraphKeys.GLOBAL_VARIABLES]
        if self.trainable and GraphKeys.TRAINABLE_VARIABLES not in keys:
            keys.append(GraphKeys.TRAINABLE_VARIABLES)
        self.graph.add_to_collections(keys, self)

    def _make(
        self, initial_value: Any, dtype: Any, shape: Any, validate_shape: bool, scope: str
    ) -> None:
        graph, name = self.graph, scope[:-1]
        first = graph.version
        if callable(initial_value):
            # Its nodes go where the variable goes, which is known when that is made.
            with graph.device(None), graph.colocate_with(None, ignore_existing=True):
                value = _made_by(graph, initial_value, dtype)
        else:
            value = _initial(initial_value, dtype)
        self.dtype: DType = value.dtype
        self.shape: tuple[int, ...] | None = _shape_of(name, shape, value.shape, validate_shape)
        attrs = {
            "shared_name": name, "container": graph.container_name or None, "dtype": self.dtype,
            "shape": self.shape,
        }  # fmt: skip
        last = graph.version
        #: The scalar string by which ops know it.
        self.handle: Output = graph.add("Variable", (), attrs, scope)
        graph.variables_by_handle[self.handle.node] = self
        if callable(initial_value):
            graph.place_like(self.op, range(first, last))
        with graph.colocate_with(self.op):
            assigned = graph.add(
                "VariableAssign", [self.handle, value],
                {"validate_shape": None if validate_shape else False}, "Assign",
            )  # fmt: skip
            self._initial_value = value
            self.initializer = graph.operation(assigned)
            self._snapshot = self._read_node("read")
        self.reads.append(self._snapshot)

    @classmethod
    def _of_nodes(
        cls, op: Operation, initializer: Operation, initial_value: Output,
        reads: Sequence[Output], trainable: bool,
    ) -> Variable:  # fmt: skip
        """The variable of nodes that are there; the first of `reads` is what all readers share."""
        made = cls.__new__(cls)
        made.graph, made.trainable, made.constraint = op.graph, trainable, None
        made.dtype, made.shape = op.get_attr("dtype"), op.node_def.attr.get("shape")
        made.handle = op.outputs[0]
        made.graph.variables_by_handle[made.handle.node] = made
        made.initializer, made._initial_value = initializer, initial_value
        made._snapshot, made.reads = reads[0], list(reads[1:])
        return made

    def _read_node(self, name: str | None = None) -> Output:
        attrs = {"dtype": self.dtype, "shape": self.shape}
        graph = current_graph()
        handle = graph.enter(self.handle)
        # In bodies too: a scope of devices around a loop does not move what the loop reads.
        with self.graph.colocate_with(self.op):
            return graph.add("VariableRead", [handle], attrs, name)

    @property
    def op(self) -> Operation:
        """The operation that holds it."""
        return self.graph.operation(self.handle)

    @property
    def name(self) -> str:
        """As a value of the graph is called: "w:0"."""
        return self.op.name + ":0"

    @property
    def device(self) -> str:
        """Where it lives; "" for anywhere."""
        return self.op.device

    @property
    def initial_value(self) -> Output:
        """What its initializer gives it."""
        return self._initial_value

    @property
    def ndim(self) -> int | None:
        return None if self.shape is None else len(self.shape)

    def get_shape(self) -> tuple[int, ...] | None:
        """Its shape; None when values may have any."""
        return self.shape

    # --- Reading.

    def value(self) -> Output:
        """Its value. Outside of control_dependencies(), one that all readers share."""
        graph = current_graph()
        if isinstance(graph, Graph) and graph.controls:
            return self.read_value()
        if not isinstance(graph, Graph) and self in _changed_in(graph):
            return self.read_value()
        return self._snapshot

    def read_value(self) -> Output:
        """Its value when what it is made under control_dependencies() of has run; in branches and
        loops, when what was made before has run."""
        graph = current_graph()
        if not isinstance(graph, Graph):
            return self._read_node()
        made = self._read_node(f"{self.op.name.rpartition('/')[2]}/read")
        self.reads.append(made)
        return made

    def initialized_value(self) -> Any:
        """Its value, or its initial value as long as it has none."""
        with in_graph(self.graph):
            return _sr.cond(
                is_variable_initialized(self), self.read_value, lambda: self.initial_value
            )

    def eval(self, session: Any = None) -> np.ndarray:
        """Its value in a session, by default the default one."""
        return self._snapshot.eval(session=session)

    def _as_tensor(self) -> Any:
        return self.value()

    def _as_graph_element(self) -> Output:
        return self._snapshot

    # --- Changing. All give the new value, which runs the change when it is fetched.

    def assign(
        self, value: Any, use_locking: bool = False, name: str | None = None,
        read_value: bool = True,
    ) -> Any:  # fmt: skip
        """Gives it another value of its shape and dtype."""
        attrs = {"validate_shape": None if self.shape is not None else False}
        return self._change("VariableAssign", [value], name or "Assign", read_value, attrs)

    def assign_add(
        self, delta: Any, use_locking: bool = False, name: str | None = None,
        read_value: bool = True,
    ) -> Any:  # fmt: skip
        """Adds to it, at once: no other change comes between its read and its write."""
        return self._change("VariableAssignAdd", [delta], name or "AssignAdd", read_value)

    def assign_sub(
        self, delta: Any, use_locking: bool = False, name: str | None = None,
        read_value: bool = True,
    ) -> Any:  # fmt: skip
        """Subtracts from it, at once."""
        return self._change("VariableAssignSub", [delta], name or "AssignSub", read_value)

    def scatter_add(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> Any:
        """Adds rows; those of equal indices one after the other."""
        return self._scatter("Add", sparse_delta, name)

    def scatter_sub(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> Any:
        """Subtracts rows; those of equal indices one after the other."""
        return self._scatter("Sub", sparse_delta, name)

    def scatter_update(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> Any:
        """Replaces rows; of equal indices the last one stays."""
        return self._scatter("Update", sparse_delta, name)

    def _scatter(self, how: str, rows: IndexedSlices, name: str | None) -> Any:
        if not isinstance(rows, IndexedSlices):
            given = type(rows).__name__
            raise TypeError(f"scatter_{how.lower()}() takes IndexedSlices, not {given}")
        with in_graph(current_graph()):
            values = convert(rows.values, self.dtype)
            indices = convert(rows.indices)
        return self._run_on("VariableScatter" + how, [indices, values], name or "Scatter" + how)

    def _change(
        self, op: str, values: list[Any], name: str, read_value: bool, attrs: Any = None
    ) -> Any:
        with in_graph(current_graph()):
            values = [self._like(value) for value in values]
        made = self._run_on(op, values, name, attrs)
        return made if read_value or state.graph is not None else self.graph.operation(made)

    def _run_on(self, op: str, values: list[Any], name: str, attrs: Any = None) -> Any:
        graph = current_graph()
        inputs = [graph.enter(value) for value in (self.handle, *values)]
        if not isinstance(graph, Graph):
            _changed_in(graph).append(self)
        with self.graph.colocate_with(self.op):
            return graph.add(op, inputs, attrs, name)

    def _like(self, value: Any) -> Any:
        value = convert(value, self.dtype)
        shape = value.shape
        if self.shape is None or shape is None:
            return value
        if len(shape) != len(self.shape) or any(
            a >= 0 and b >= 0 and a != b for a, b in zip(shape, self.shape)
        ):
            raise errors.InvalidArgumentError(
                f"variable '{self.op.name}' has shape {self.shape}; the value given has {shape}"
            )
        return value

    def load(self, value: Any, session: Any = None) -> None:
        """Gives it a value in a session, by default the default one, without adding nodes."""
        (session or need_session()).run(self.initializer, {self.initializer.inputs[1]: value})

    def _set_save_slice_info(self, save_slice_info: _SliceInfo) -> None:
        self._save_slice_info = save_slice_info

    def _get_save_slice_info(self) -> _SliceInfo | None:
        return self._save_slice_info

    # --- As a value of Python.

    def __repr__(self) -> str:
        return f"<Variable '{self.name}' shape={self.shape} dtype={name_of(self.dtype)}>"

    def __iter__(self) -> Any:
        return iter(self._as_tensor())

    def __bool__(self) -> bool:
        return bool(self._snapshot)

    def ref(self) -> Any:
        """A key for dicts and sets."""
        return Reference(self)


install_shared(Variable)
# Variables are equal to themselves only, as in TensorFlow 1.
Variable.__eq__ = object.__eq__  # type: ignore[method-assign]
Variable.__ne__ = object.__ne__  # type: ignore[method-assign]
Variable.__hash__ = object.__hash__  # type: ignore[method-assign]


def in_graph(graph: Any) -> Any:
    """Ops go to `graph` while the context lasts."""
    return graph.building()


def _changed_in(graph: Any) -> list[Variable]:
    """Variables that a body changes, whose values it must read anew."""
    if not hasattr(graph, "changed_variables"):
        graph.changed_variables = []
    return graph.changed_variables


def _initial(value: Any, dtype: Any) -> Output:
    graph = get_default_graph()
    if not _has_tensor([value]):
        return constant(value, dtype, name="initial_value")
    with graph.name_scope("initial_value"):
        return _independent(graph, graph.enter(convert(value, dtype)), {})


#: Nodes whose inputs are not looked at by _independent().
_CLOSED = {"Placeholder", "If", "While", "Scan", "FunctionCall", "WithGradient"}


def _independent(graph: Graph, value: Output, made: dict[int, Any]) -> Output:
    """`value` with the initial values of variables where these have no values yet, so that
    initializers may run in any order."""
    op = graph.operation(value)
    if op.node not in made:
        made[op.node] = _independent_outputs(graph, op, made)
    return made[op.node][value.index]


def _independent_outputs(graph: Graph, op: Operation, made: dict[int, Any]) -> Any:
    if op.type == "VariableRead":
        read = graph.variables_by_handle.get(op.inputs[0].node)
        return op.outputs if read is None else [read.initialized_value()]
    if op.type in _CLOSED or not op.inputs:
        return op.outputs
    inputs = [_independent(graph, value, made) for value in op.inputs]
    if all(a.node == b.node for a, b in zip(inputs, op.inputs)):
        return op.outputs
    attrs = {name: attr for name, attr in op.node_def.attr.items() if not name.startswith("_")}
    again = graph.add(op.type, inputs, attrs, op.name.rpartition("/")[2])
    return again if isinstance(again, tuple) else [again]


def _made_by(graph: Graph, function: Any, dtype: Any) -> Output:
    """What a function makes, without the devices around: it goes where its variable is."""
    with graph.name_scope("Initializer"):
        value = function()
        if isinstance(value, np.ndarray) and dtype is not None:
            kind: Any = as_dtype(dtype)
            value = value.astype(kind)
        return _independent(graph, graph.enter(convert(value, dtype)), {})


def _shape_of(name: str, wanted: Any, found: Any, validate_shape: bool) -> Any:
    """The shape of a variable whose initial value has shape `found`."""
    if not validate_shape:
        return None
    if wanted is not None:
        shape = TensorSpec(wanted, "float32").shape
        fits = found is None or (
            len(found) == len(shape) and all(a < 0 or b < 0 or a == b for a, b in zip(shape, found))
        )
        if not fits:
            raise ValueError(
                f"the initial value of '{name}' has shape {found}; the variable was to have {shape}"
            )
        return shape
    if found is None or any(extent < 0 for extent in found):
        raise ValueError(
            f"initial_value must have a shape specified: variable '{name}' has {found}; give "
            "validate_shape=False for one of any shape"
        )
    return found


# --- Functions on variables.


def assign(
    ref: Variable, value: Any, validate_shape: bool | None = None, use_locking: bool | None = None,
    name: str | None = None,
) -> Any:  # fmt: skip
    """Gives a variable another value when the result is run (tf.compat.v1.assign)."""
    if validate_shape is False:
        value = convert_in_graph(value, ref.dtype)
        return ref._run_on("VariableAssign", [value], name or "Assign", {"validate_shape": False})
    return ref.assign(value, name=name)


def assign_add(
    ref: Variable, value: Any, use_locking: bool | None = None, name: str | None = None
) -> Any:
    """Adds to a variable when the result is run."""
    return ref.assign_add(value, name=name)


def assign_sub(
    ref: Variable, value: Any, use_locking: bool | None = None, name: str | None = None
) -> Any:
    """Subtracts from a variable when the result is run."""
    return ref.assign_sub(value, name=name)


def scatter_add(
    ref: Variable, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
) -> Any:
    """Adds rows to a variable when the result is run."""
    return ref.scatter_add(IndexedSlices(updates, indices), name=name)


def scatter_sub(
    ref: Variable, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
) -> Any:
    """Subtracts rows from a variable when the result is run."""
    return ref.scatter_sub(IndexedSlices(updates, indices), name=name)


def scatter_update(
    ref: Variable, indices: Any, updates: Any, use_locking: bool = True, name: str | None = None
) -> Any:
    """Replaces rows of a variable when the result is run."""
    return ref.scatter_update(IndexedSlices(updates, indices), name=name)


@in_default_graph
def convert_in_graph(value: Any, dtype: Any = None) -> Any:
    """`value` as a value of the graph that is being built."""
    return current_graph().enter(convert(value, dtype))


def is_variable_initialized(variable: Variable) -> Any:
    """Whether a variable has a value, as a scalar of the graph."""
    graph = current_graph()
    inputs = [graph.enter(variable.handle)]
    if not isinstance(graph, Graph):
        return graph.add("VariableIsInitialized", inputs, None, None)
    with graph.colocate_with(variable.op):
        return graph.add("VariableIsInitialized", inputs, None, "IsVariableInitialized")


def global_variables(scope: str | None = None) -> list[Variable]:
    """Variables that tasks share; with `scope`, those whose names it matches."""
    return get_default_graph().get_collection(GraphKeys.GLOBAL_VARIABLES, scope)


def local_variables(scope: str | None = None) -> list[Variable]:
    """Variables of one task."""
    return get_default_graph().get_collection(GraphKeys.LOCAL_VARIABLES, scope)


def model_variables(scope: str | None = None) -> list[Variable]:
    """Variables that a model needs to predict."""
    return get_default_graph().get_collection(GraphKeys.MODEL_VARIABLES, scope)


def trainable_variables(scope: str | None = None) -> list[Variable]:
    """Those that optimizers update."""
    return get_default_graph().get_collection(GraphKeys.TRAINABLE_VARIABLES, scope)


def variables_initializer(var_list: Sequence[Variable], name: str = "init") -> Operation:
    """An operation that gives variables their initial values."""
    return group(*(variable.initializer for variable in var_list), name=name)


def global_variables_initializer() -> Operation:
    """An operation that gives all global variables their initial values."""
    return variables_initializer(global_variables())


def local_variables_initializer() -> Operation:
    """An operation that gives all local variables their initial values."""
    return variables_initializer(local_variables())


def tables_initializer(name: str = "init_all_tables") -> Operation:
    """An operation that initialises lookup tables: what the collection TABLE_INITIALIZERS has.
    StaticHashTable and the like are ready as they are."""
    return group(*get_default_graph().get_collection(GraphKeys.TABLE_INITIALIZERS), name=name)


@in_default_graph
def report_uninitialized_variables(
    var_list: Sequence[Variable] | None = None, name: str = "report_uninitialized_variables"
) -> Any:
    """Names of the variables without a value, by default of all global and local ones: a vector of
    strings, empty when all have one."""
    found = global_variables() + local_variables() if var_list is None else list(var_list)
    with get_default_graph().name_scope(name):
        if not found:
            return _sr.constant(np.array([], dtype=object))
        names = _sr.constant([variable.op.name for variable in found])
        missing = [_sr.logical_not(is_variable_initialized(variable)) for variable in found]
        return _sr.ops.array.boolean_mask(names, _sr.stack(missing))


def is_trainable(variable: Variable) -> bool:
    """Whether optimizers can update it."""
    return variable.trainable and is_floating(variable.dtype)


