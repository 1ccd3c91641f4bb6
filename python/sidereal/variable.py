"""sidereal.Variable: a value of this process that changes."""

from __future__ import annotations

import enum
import functools
import inspect
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import numpy as np

from . import _native, errors
from ._dispatch import ENGINE, apply, convert, state, to_tensor
from ._graphs import graph_of
from ._native import Output, Tensor
from ._tensor import Reference, install_shared
from ._trackable import VARIABLE_VALUE
from .device_spec import HERE
from .dtypes import DType, is_floating, name_of
from .indexed_slices import IndexedSlices
from .ops import array, indexing
from .tensor_shape import TensorShape

_numbers = itertools.count()

#: How rows of equal indices are joined, and combined with those that are there.
_COMBINED = {
    "mul": (indexing.unsorted_segment_prod, "Mul"),
    "div": (indexing.unsorted_segment_prod, "Div"),
    "min": (indexing.unsorted_segment_min, "Minimum"),
    "max": (indexing.unsorted_segment_max, "Maximum"),
}


def _check_rows(method: str, rows: Any) -> None:
    if not isinstance(rows, IndexedSlices):
        raise TypeError(f"{method}() takes IndexedSlices, not {type(rows).__name__}")


class SaveSliceInfo:
    """Which part of a variable that was cut a variable is (tf.Variable.SaveSliceInfo)."""

    def __init__(
        self, full_name: str, full_shape: Sequence[int], var_offset: Sequence[int],
        var_shape: Sequence[int],
    ) -> None:  # fmt: skip
        #: Name and shape of the whole, first element and shape of the part.
        self.full_name = full_name
        self.full_shape = list(full_shape)
        self.var_offset = list(var_offset)
        self.var_shape = list(var_shape)

    @property
    def spec(self) -> str:
        """As files say it: the shape of the whole, then "offset,extent" for each dimension."""
        whole = " ".join(map(str, self.full_shape))
        pairs = zip(self.var_offset, self.var_shape)
        return whole + " " + ":".join(f"{offset},{extent}" for offset, extent in pairs)

    def of_slot(self, name: str, rank: int) -> SaveSliceInfo:
        """Of a slot of the part that has its first `rank` dimensions."""
        return SaveSliceInfo(
            f"{self.full_name}/{name}", self.full_shape[:rank], self.var_offset[:rank],
            self.var_shape[:rank],
        )  # fmt: skip


class VariableSynchronization(enum.Enum):
    """When copies of a variable are made equal (tf.VariableSynchronization); no variable of this
    release has copies."""

    AUTO, NONE, ON_WRITE, ON_READ = range(4)


class VariableAggregation(enum.Enum):
    """How what several replicas assign to a variable becomes one value
    (tf.VariableAggregation)."""

    NONE, SUM, MEAN, ONLY_FIRST_REPLICA = range(4)


@contextmanager
def together(variables: Iterable[Any], op: str) -> Iterator[None]:
    """What is read ("VariableRead") or assigned to ("VariableAssign") of all of these, or of their
    shards, in the context and outside of graphs, is by one step, where steps run elsewhere."""
    if state.graph is not None:
        yield
        return
    shards: list[Variable] = []
    for variable in variables:
        shards += variable.variables if isinstance(variable, CutVariable) else [variable]
    homes = {id(each._home): each._home for each in shards if each._home is not None}
    with ExitStack() as stack:
        for home in homes.values():
            own = [each for each in shards if each._home is home]
            stack.enter_context(home._in_one_step(own, op))
        yield


class _Creating(threading.local):
    """Who is asked when a thread makes a Variable: creators, innermost last, and what makes it in
    the end, None: the class itself. `whole`: it is not to be cut into shards. `strategy`: whose
    scope lasts, if any."""

    creators: tuple[Callable[..., Any], ...] = ()
    maker: Callable[..., Any] | None = None
    whole: bool = False
    strategy: Any = None

    @contextmanager
    def wholes(self) -> Iterator[None]:
        """Variables made in the context are not cut."""
        before, self.whole = self.whole, True
        try:
            yield
        finally:
            self.whole = before


creating = _Creating()


@contextmanager
def variable_creator_scope(variable_creator: Callable[..., Any]) -> Iterator[None]:
    """Variables are made by `variable_creator` while the context lasts
    (tf.variable_creator_scope): it is called with the next creator, which is that of the scope
    around this one, and with the arguments of Variable by keyword, and gives the variable."""
    before = creating.creators
    creating.creators = (*before, variable_creator)
    try:
        yield
    finally:
        creating.creators = before


class _VariableType(type):
    """Asks the creators of the thread before a Variable is made."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls is not Variable or not creating.creators:
            return super().__call__(*args, **kwargs)
        given = inspect.signature(cls.__init__).bind(None, *args, **kwargs)
        given.apply_defaults()
        arguments = dict(given.arguments)
        arguments.pop("self")

        def make(**kwargs: Any) -> Any:
            if creating.maker is not None:
                return creating.maker(**kwargs)
            return type.__call__(cls, **kwargs)

        create: Callable[..., Any] = make
        for creator in creating.creators:
            create = functools.partial(creator, create)
        return create(**arguments)


def initial_tensor(initial_value: Any, dtype: Any, shape: Sequence[int] | None) -> Tensor:
    """The value that a variable is made with."""
    with state.at_once():
        value = initial_value() if callable(initial_value) else initial_value
        if isinstance(value, Output):
            raise errors.InvalidArgumentError(
                "a variable's initial value must be known when it is made, not a value of a "
                "graph; make variables outside of functions"
            )
        tensor = to_tensor(value, dtype) if not hasattr(value, "_as_tensor") else convert(value)
    check_shape(tensor.shape, shape)
    return tensor


def check_shape(found: Any, wanted: Sequence[int] | None) -> None:
    """InvalidArgumentError for an initial value of another shape than a variable is to have."""
    if wanted is not None and tuple(wanted) != found:
        raise errors.InvalidArgumentError(
            f"the initial value has shape {found}; the variable was to have {tuple(wanted)}"
        )


def _member(of: type[enum.Enum], value: Any, what: str) -> Any:
    """`value`, when it is a member of an enumeration; else a ValueError."""
    if not isinstance(value, of):
        names = ", ".join(member.name for member in of)
        raise ValueError(f"{what} is {value!r}; it is one of {of.__name__}'s: {names}")
    return value


class CutVariable:
    """Base of what is one variable to programs and several Variables, `variables`."""

    _checkpoint_attribute = VARIABLE_VALUE

    variables: list[Any]


class Variable(metaclass=_VariableType):
    """A tensor that can be given another value (tf.Variable), in the memory of this process, or,
    made in the scope of a ParameterServerStrategy, on a parameter server.

        w = sidereal.Variable([1.0, 2.0])
        w.assign_add([0.5, 0.5])
        y = w * 3.0

    Stands wherever a tensor can. What was read from it does not change when it is assigned to.
    Tapes
    watch it when it is read if it is `trainable`. Inside of a sidereal.function it is read when the
    function is called, and assignments take effect when the function ends. The variables of a Model
    are others: they live on the parameter servers of a cluster.

    initial_value: what convert_to_tensor() takes, or a function of no arguments that makes it.
    trainable: whether tapes watch it; True if absent, but for one that is synchronized ON_READ.
    synchronization, aggregation: what strategies of several replicas need to know.
    per_worker_variable: each worker of a ParameterServerStrategy has one; see PerWorkerVariable.
    """

    #: Who runs steps that read and change it outside of graphs; None: it is in this process.
    _home: Any = None
    #: Where it is.
    device = HERE

    _checkpoint_attribute: str | None = VARIABLE_VALUE

    _save_slice_info: SaveSliceInfo | None = None

    def __init__(
        self,
        initial_value: Any,
        trainable: bool | None = None,
        name: str | None = None,
        dtype: Any = None,
        shape: Sequence[int] | None = None,
        synchronization: VariableSynchronization = VariableSynchronization.AUTO,
        aggregation: VariableAggregation = VariableAggregation.NONE,
        per_worker_variable: bool = False,
    ) -> None:
        if per_worker_variable:
            raise ValueError(
                "per_worker_variable=True makes a variable of each worker: make it in the scope of "
                "a ParameterServerStrategy"
            )
        tensor = initial_tensor(initial_value, dtype, shape)
        self._cell: Any = _native.Cell(tensor)
        self._read: Tensor | None = None
        name = name if name is not None else f"Variable_{next(_numbers)}"
        self._describe(name, tensor.dtype, tensor.shape, trainable, synchronization, aggregation)

    def _describe(
        self, name: str, dtype: DType, shape: tuple[int, ...], trainable: bool | None,
        synchronization: Any, aggregation: Any,
    ) -> None:  # fmt: skip
        self.name = name
        #: What keras layers say of it: a function of the value that gives the one it is to have
        #: after an update, and one that gives a penalty.
        self.constraint: Any = None
        self.regularizer: Any = None
        self.dtype = dtype
        self.shape = TensorShape(shape)
        self.synchronization = _member(VariableSynchronization, synchronization, "synchronization")
        self.aggregation = _member(VariableAggregation, aggregation, "aggregation")
        on_read = synchronization is VariableSynchronization.ON_READ
        if on_read and trainable:
            raise ValueError(
                f"variable '{name}' is synchronized ON_READ and cannot be trainable: its copies "
                "are combined when they are read only"
            )
        wanted = not on_read if trainable is None else bool(trainable)
        self.trainable = wanted and is_floating(dtype)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def get_shape(self) -> TensorShape:
        """`shape`."""
        return self.shape

    def _present(self) -> Tensor:
        """The value now, whatever is being built."""
        if self._read is None:
            self._read = self._cell.read(ENGINE)
        return self._read

    def _as_tensor(self) -> Any:
        graph = state.graph
        value = self._present() if graph is None else graph.read_variable(self)
        for tape in state.tapes:
            within = tape._graph
            if within is graph:
                tape._read(self, value)
            elif within is not None:
                self._check_changed(tape, graph)
                # A tape around a conditional or loop sees what that takes from outside.
                tape._read(self, within.read_variable(self))
        return value

    def _check_changed(self, tape: Any, graph: Any) -> None:
        changed = getattr(graph, "has_changed", None)
        watched = self.trainable and tape._watch_variables
        if watched and changed is not None and changed(self, tape._graph):
            raise errors.UnimplementedError(
                f"variable '{self.name}' is assigned to in a branch or loop, and read there, with "
                "a GradientTape around: its gradient would leave out what is read there; assign "
                "after the tape, or read the variable before the branch or loop"
            )

    def value(self) -> Any:
        """The value: a tensor, which does not change with the variable."""
        return self._as_tensor()

    read_value = value

    def numpy(self) -> np.ndarray:
        """The value as an array, read-only."""
        return self._present().numpy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self._present().__array__(dtype, copy)

    def assign(self, value: Any) -> Variable:
        """Gives it another value of its shape and dtype."""
        value = fitting(self, value)
        graph = graph_of(value) if state.graph is None and type(value) is Output else state.graph
        if graph is not None:
            graph.assign_variable(self, value)
            return self
        self._read = None
        self._cell.assign(value)
        return self

    def assign_add(self, delta: Any) -> Variable:
        """Adds to it."""
        return self.assign(apply("Add", (self._quietly(), fitting(self, delta))))

    def assign_sub(self, delta: Any) -> Variable:
        """Subtracts from it."""
        return self.assign(apply("Sub", (self._quietly(), fitting(self, delta))))

    def scatter_add(self, sparse_delta: IndexedSlices) -> Variable:
        """Adds rows; those of equal indices one after the other."""
        return self._scatter("add", sparse_delta)

    def scatter_sub(self, sparse_delta: IndexedSlices) -> Variable:
        """Subtracts rows; those of equal indices one after the other."""
        return self._scatter("sub", sparse_delta)

    def scatter_update(self, sparse_delta: IndexedSlices) -> Variable:
        """Replaces rows; of equal indices the last one stays."""
        return self._scatter("update", sparse_delta)

    def scatter_mul(self, sparse_delta: IndexedSlices) -> Variable:
        """Multiplies by rows; by those of equal indices one after the other."""
        return self._combine("mul", sparse_delta)

    def scatter_div(self, sparse_delta: IndexedSlices) -> Variable:
        """Divides by rows, by those of equal indices by their product; integers are rounded towards
        zero."""
        return self._combine("div", sparse_delta)

    def scatter_min(self, sparse_delta: IndexedSlices) -> Variable:
        """Takes the smaller of each element and those of the rows."""
        return self._combine("min", sparse_delta)

    def scatter_max(self, sparse_delta: IndexedSlices) -> Variable:
        """Takes the greater of each element and those of the rows."""
        return self._combine("max", sparse_delta)

    def batch_scatter_update(self, sparse_delta: IndexedSlices) -> Variable:
        """Replaces rows of every example: with indices [b..., n], the part at [b..., indices[b...,
        i]] by values[b..., i]. Indices [n] are those of scatter_update()."""
        _check_rows("batch_scatter_update", sparse_delta)
        indices = sparse_delta.indices
        if indices.shape is not None and len(indices.shape) == 1:
            return self.scatter_update(sparse_delta)
        if not indices.shape or min(indices.shape) < 0:
            raise ValueError(f"the shape of the indices must be known and no scalar's: {indices!r}")
        ranges = [array.range(extent, dtype=indices.dtype) for extent in indices.shape]
        *batch, _ = array.meshgrid(*ranges, indexing="ij")
        places = array.stack([*batch, indices], axis=-1)
        values = convert(sparse_delta.values, self.dtype)
        return self.assign(array.tensor_scatter_nd_update(self._quietly(), places, values))

    def _scatter(self, how: str, rows: IndexedSlices) -> Variable:
        _check_rows(f"scatter_{how}", rows)
        values = convert(rows.values, self.dtype)
        if state.graph is not None:
            value = state.graph.read_variable(self)
            if how == "update":
                indices = array.expand_dims(rows.indices, -1)
                return self.assign(array.tensor_scatter_nd_update(value, indices, values))
            total = apply("GatherGrad", (values, rows.indices, value))
            return self.assign(apply("Add" if how == "add" else "Sub", (value, total)))
        self._read = None
        self._cell.scatter(how, rows.indices, values)
        return self

    def _combine(self, how: str, rows: IndexedSlices) -> Variable:
        """A scatter whose rows of equal indices become one row first, which those that the
        variable has there are then combined with."""
        _check_rows(f"scatter_{how}", rows)
        join, op = _COMBINED[how]
        values = convert(rows.values, self.dtype)
        distinct, places = array.unique(array.reshape(rows.indices, [-1]))
        places = apply("ReshapeLike", (places, rows.indices))
        joined = join(values, places, array.size(distinct))
        new = apply(op, (array.gather(self._quietly(), distinct), joined))
        return self._scatter("update", IndexedSlices(new, distinct))

    def _stand_in(self) -> Variable:
        """What stands for it, as an argument of a function, while this is traced."""
        return ArgumentVariable(self)

    def _in_scope(self) -> AbstractContextManager[Any]:
        """What is made in this context is where variables of this one's kind are."""
        return nullcontext()

    def _beside(self) -> AbstractContextManager[Any]:
        """Variables that are made in this context are where this one is."""
        return nullcontext()

    def _quietly(self) -> Any:
        return self._present() if state.graph is None else state.graph.read_variable(self)

    def __repr__(self) -> str:
        return (
            f"<Variable '{self.name}' shape={self.shape} dtype={name_of(self.dtype)}, "
            f"value={self._present()!r}>"
        )

    def __bool__(self) -> bool:
        return bool(self._as_tensor())

    def __int__(self) -> int:
        return int(self._as_tensor())

    def __float__(self) -> float:
        return float(self._as_tensor())

    def __len__(self) -> int:
        return len(self._present())

    def __iter__(self) -> Any:
        return iter(self._as_tensor())

    def __format__(self, spec: str) -> str:
        return format(self._present(), spec)

    def ref(self) -> Any:
        """A key for dicts and sets."""
        return Reference(self)

    def _set_save_slice_info(self, save_slice_info: SaveSliceInfo) -> None:
        self._save_slice_info = save_slice_info

    def _get_save_slice_info(self) -> SaveSliceInfo | None:
        """Which part of another variable this one is; None when it is a whole."""
        return self._save_slice_info

    def __deepcopy__(self, memo: Any) -> Variable:
        return Variable(self._present(), self.trainable, self.name)


install_shared(Variable)


def fitting(variable: Any, value: Any) -> Any:
    """A value of the dtype and shape of a variable; InvalidArgumentError if it has another one."""
    value = convert(value, variable.dtype)
    shape = value.shape
    fits = shape is None or (
        len(shape) == len(variable.shape)
        and all(n in (-1, extent) for n, extent in zip(shape, variable.shape))
    )
    if not fits:
        raise errors.InvalidArgumentError(
            f"variable '{variable.name}' has shape {variable.shape}; the value given has {shape}"
        )
    return value


class ArgumentVariable(Variable):
    """Stands for a variable that a function takes as an argument, while it is traced: it has no
    value, and each call has another variable in its place."""

    def __init__(self, like: Variable) -> None:
        self._cell = self._read = None
        self.name, self.trainable = like.name, like.trainable
        self.dtype, self.shape = like.dtype, like.shape

    def _present(self) -> Tensor:
        raise errors.FailedPreconditionError(
            f"variable '{self.name}' is an argument of a function that is being traced and has no "
            "value of its own: what is kept for variables, such as an optimizer's slots, is kept "
            "for those that the function uses from outside"
        )

    def _beside(self) -> AbstractContextManager[Any]:
        self._present()
        return super()._beside()

    def __repr__(self) -> str:
        return f"<ArgumentVariable '{self.name}' shape={self.shape} dtype={name_of(self.dtype)}>"


__all__ = [
    "ArgumentVariable", "SaveSliceInfo", "Variable", "VariableAggregation",
    "VariableSynchronization", "check_shape", "creating", "fitting", "initial_tensor",
    "variable_creator_scope",
]  # fmt: skip
