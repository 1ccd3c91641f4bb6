"""Variables by name, and scopes of their names (tf.compat.v1.get_variable)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import sidereal as _sr

from ..dtypes import as_dtype, is_floating, name_of
from .graph import Graph, GraphKeys, get_default_graph
from .initializers import glorot_uniform_initializer, zeros_initializer
from .partitioned import PartitionedVariable, PartitionInfo, partitions_of, slices_of
from .variables import SaveSliceInfo, Variable


class _Reuse:
    """Makes variables that are not there yet, and takes those that are (tf.AUTO_REUSE)."""

    def __repr__(self) -> str:
        return "AUTO_REUSE"


AUTO_REUSE = _Reuse()


class VariableScope:
    """What get_variable() does by default (tf.VariableScope).

    reuse: True: variables must be there; False or None: must not be; AUTO_REUSE: either.
    """

    def __init__(
        self, reuse: Any, name: str = "", initializer: Any = None, regularizer: Any = None,
        name_scope: str = "", dtype: Any = "float32", custom_getter: Any = None,
        constraint: Any = None, partitioner: Any = None,
    ) -> None:  # fmt: skip
        self.reuse = reuse
        self.name = name
        self.initializer = initializer
        self.regularizer = regularizer
        self.original_name_scope = name_scope
        self.dtype = dtype
        self.custom_getter = custom_getter
        self.constraint = constraint
        self.partitioner = partitioner

    def reuse_variables(self) -> None:
        """From now on, variables must be there."""
        self.reuse = True

    def set_initializer(self, initializer: Any) -> None:
        """What variables are made by that say nothing else."""
        self.initializer = initializer

    def set_partitioner(self, partitioner: Any) -> None:
        """What cuts variables that say nothing else; None: nothing does."""
        self.partitioner = partitioner

    def global_variables(self) -> list[Variable]:
        """Those of this scope."""
        return get_default_graph().get_collection(GraphKeys.GLOBAL_VARIABLES, self._pattern())

    def trainable_variables(self) -> list[Variable]:
        """Those of this scope."""
        return get_default_graph().get_collection(GraphKeys.TRAINABLE_VARIABLES, self._pattern())

    def _pattern(self) -> str:
        return self.name + "/" if self.name else ""


class _Store:
    """The variables of a graph that get_variable() made, and the scope that lasts."""

    def __init__(self) -> None:
        self.variables: dict[str, Variable] = {}
        #: Those whose parts are among `variables`.
        self.partitioned: dict[str, PartitionedVariable] = {}
        self.scope = VariableScope(False)
        self.scopes: dict[str, int] = {}

    def unique_scope(self, prefix: str, name: str) -> str:
        full = f"{prefix}/{name}" if prefix else name
        if full not in self.scopes:
            return name
        number = 1
        while f"{full}_{number}" in self.scopes:
            number += 1
        return f"{name}_{number}"

    def close(self, name: str) -> None:
        """Forgets the scopes inside of one."""
        inside = name + "/"
        self.scopes = {key: n for key, n in self.scopes.items() if not key.startswith(inside)}


def _store(graph: Graph | None = None) -> _Store:
    graph = graph or get_default_graph()
    if graph.variable_store is None:
        graph.variable_store = _Store()
    return graph.variable_store


def get_variable_scope() -> VariableScope:
    """The scope that lasts."""
    return _store().scope


def get_variable(
    name: str,
    shape: Sequence[int | None] | int | None = None,
    dtype: Any = None,
    initializer: Any = None,
    regularizer: Callable[[Any], Any] | None = None,
    trainable: bool | None = None,
    collections: Sequence[Any] | None = None,
    caching_device: Any = None,
    partitioner: Any = None,
    validate_shape: bool = True,
    use_resource: bool | None = None,
    custom_getter: Callable[..., Any] | None = None,
    constraint: Any = None,
) -> Any:
    """The variable of this name in the scope that lasts: a new one, or, as the scope says, one that
    is there (tf.compat.v1.get_variable).

    initializer: a value, a function of (shape, dtype=...), or a class of such; the scope's if
        absent, else glorot_uniform_initializer, and zeros for integers. A function that takes
        `partition_info` is told which part of a variable it makes.
    regularizer: a function of the variable whose result goes to REGULARIZATION_LOSSES; of each part
        of a variable that is cut.
    partitioner: a function of (shape, dtype) that gives the number of parts for each dimension, at
        most one of them above 1; the scope's if absent. The result is then a PartitionedVariable
        with the variables name/part_0, name/part_1, ... Scalars are not cut.

    ValueError when it is there and must not be, or must be and is not, or has another shape, dtype
    or partition.
    """
    scope = get_variable_scope()
    arguments = {
        "shape": shape, "dtype": dtype, "initializer": initializer, "regularizer": regularizer,
        "trainable": trainable, "collections": collections, "validate_shape": validate_shape,
        "constraint": constraint, "partitioner": partitioner or scope.partitioner,
    }  # fmt: skip
    getter = custom_getter or scope.custom_getter
    if getter is None:
        return _get(name, **arguments)
    return getter(_get, name, **arguments)


def get_local_variable(
    name: str, shape: Sequence[int | None] | int | None = None, dtype: Any = None,
    initializer: Any = None, regularizer: Any = None, trainable: bool = False,
    collections: Sequence[Any] | None = None, *args: Any, **kwargs: Any,
) -> Any:  # fmt: skip
    """As get_variable(), of a variable that is not trained and goes to LOCAL_VARIABLES besides
    `collections`, in the place of GLOBAL_VARIABLES (tf.compat.v1.get_local_variable)."""
    keys = [GraphKeys.LOCAL_VARIABLES, *(collections or ())]
    return get_variable(
        name, shape, dtype, initializer, regularizer, False, keys, *args, **kwargs
    )  # fmt: skip


def _get(name: str, shape: Any = None, partitioner: Any = None, **options: Any) -> Any:
    """A variable, or a PartitionedVariable, of a name in the scope that lasts."""
    store = _store()
    full = f"{store.scope.name}/{name}" if store.scope.name else name
    if partitioner is not None and (shape is None or _extents(shape)):
        if not callable(partitioner):
            raise ValueError(f"Partitioner must be callable, but received: {partitioner}")
        return _get_partitioned(full, shape, partitioner, **options)
    if store.scope.reuse is True and full in store.partitioned:
        return _shared_partitioned(store.partitioned[full], shape, options.get("dtype"), None)
    if f"{full}/part_0" in store.variables:
        raise ValueError(
            "No partitioner was provided, but a partitioned version of the variable was found: "
            f"{full}/part_0. Perhaps a variable of the same name was already created with "
            "partitioning?"
        )
    return _get_single(full, shape, **options)


def _check_may_share(scope: VariableScope, full: str, is_there: bool) -> None:
    """What the scope says of reuse allows for a variable that is, or is not, there."""
    if is_there and not scope.reuse:
        raise ValueError(
            f"Variable {full} already exists, disallowed. Did you mean to set reuse=True or "
            "reuse=sidereal.v1.AUTO_REUSE in the variable scope?"
        )
    if not is_there and scope.reuse is True:
        raise ValueError(
            f"Variable {full} does not exist, or was not created with get_variable(). Did you mean "
            "to set reuse=sidereal.v1.AUTO_REUSE in the variable scope?"
        )


def _get_single(
    full: str, shape: Any = None, dtype: Any = None, initializer: Any = None,
    regularizer: Any = None, trainable: bool | None = None, collections: Any = None,
    validate_shape: bool = True, constraint: Any = None, part: PartitionInfo | None = None,
) -> Variable:  # fmt: skip
    store = _store()
    scope = store.scope
    wanted = None if dtype is None else as_dtype(dtype)
    found = store.variables.get(full)
    _check_may_share(scope, full, found is not None)
    if found is not None:
        _check_same(full, found, shape, wanted)
        return found
    kind = wanted or as_dtype(scope.dtype)
    made = _made(
        full, shape, kind, wanted, initializer if initializer is not None else scope.initializer,
        part, trainable=trainable, collections=collections, validate_shape=validate_shape,
        constraint=constraint or scope.constraint,
    )  # fmt: skip
    store.variables[full] = made
    regularizer = regularizer or scope.regularizer
    if regularizer is not None:
        graph = get_default_graph()
        with graph.building(), graph.colocate_with(made.op), graph.name_scope(None):
            with graph.name_scope(full + "/Regularizer/"):
                loss = regularizer(made)
        if loss is not None:
            graph.add_to_collection(GraphKeys.REGULARIZATION_LOSSES, loss)
    return made


def _get_partitioned(
    full: str, shape: Any, partitioner: Any, dtype: Any = None, initializer: Any = None,
    **options: Any,
) -> PartitionedVariable:  # fmt: skip
    store = _store()
    scope = store.scope
    if full in store.variables:
        raise ValueError(
            "A partitioner was provided, but an unpartitioned version of the variable was found: "
            f"{full}. Perhaps a variable of the same name was already created without partitioning?"
        )
    initializer = initializer if initializer is not None else scope.initializer
    value = None
    if initializer is not None and not callable(initializer):
        value = _initial_value(full, initializer, dtype)
        shape, dtype = _same_shape(full, shape, value.shape), value.dtype
    kind = as_dtype(dtype if dtype is not None else scope.dtype)
    extents: Any = None if shape is None else _extents(shape)
    partitions = partitions_of(partitioner, extents, kind)
    found = store.partitioned.get(full)
    _check_may_share(scope, full, found is not None)
    if found is not None:
        return _shared_partitioned(found, extents, dtype, partitions)
    slices = slices_of(extents, partitions)
    _check_parts(store, full, len(slices))
    parts = []
    for i, (offset, sizes) in enumerate(slices):
        name, info = f"{full}/part_{i}", PartitionInfo(extents, offset)
        if value is None:
            made = _get_single(name, sizes, kind, initializer, part=info, **options)
        else:
            piece = _piece(name, value, offset, sizes)
            made = _get_single(name, None, kind, piece, part=info, **options)
        made._set_save_slice_info(SaveSliceInfo(full, extents, offset, sizes))
        parts.append(made)
    store.partitioned[full] = PartitionedVariable(full, extents, kind, parts, partitions)
    return store.partitioned[full]


def _initial_value(full: str, value: Any, dtype: Any) -> Any:
    """An initial value of a variable that is cut, as a value of the graph."""
    graph = get_default_graph()
    with graph.init_scope(), graph.name_scope(full + "/PartitionedInitializer/"):
        return _sr.convert_to_tensor(value, dtype)


def _piece(name: str, value: Any, offset: list[int], sizes: list[int]) -> Any:
    graph = get_default_graph()
    with graph.init_scope(), graph.name_scope(name + "/PartitionedInitializer/"):
        return _sr.slice(value, offset, sizes)


def _are_compatible(given: Sequence[int | None], found: Sequence[int]) -> bool:
    """Whether extents are the same where both are known."""
    return len(given) == len(found) and all(
        a is None or b < 0 or a == b for a, b in zip(given, found)
    )


def _same_shape(full: str, given: Any, found: Any) -> Any:
    """The shape of an initial value, which must be the one asked for, if one was."""
    if given is not None and found is not None:
        extents = _extents(given)
        if not _are_compatible(extents, found):
            raise ValueError(f"Shapes {extents} and {tuple(found)} of '{full}' are not compatible")
    return given if found is None else found


def _check_parts(store: _Store, full: str, parts: int) -> None:
    """Parts that are there without their whole must be those that the partitioner says."""
    if f"{full}/part_0" not in store.variables:
        return
    said = (
        "Partitioner returned a different partitioning than what was already found.  Partitioner "
        f"returned {parts} shards, and shard {full}/part_0 was found, but"
    )
    if f"{full}/part_{parts - 1}" not in store.variables:
        raise ValueError(f"{said} {full}/part_{parts - 1} was not.")
    if f"{full}/part_{parts}" in store.variables:
        raise ValueError(f"{said} so was the extra shard {full}/part_{parts}.")


def _shared_partitioned(
    found: PartitionedVariable, shape: Any, dtype: Any, partitions: list[int] | None
) -> PartitionedVariable:
    _check_same(found.name, found, shape, None if dtype is None else as_dtype(dtype))
    if partitions is not None and partitions != found._get_partitions():
        raise ValueError(
            f"Trying to reuse partitioned variable {found.name}, but specified partitions "
            f"{partitions} and found partitions {found._get_partitions()}."
        )
    return found


def _check_same(
    full: str, found: Variable | PartitionedVariable, shape: Any, dtype: Any
) -> None:
    """What is there has the shape and dtype asked for."""
    if shape is not None and found.shape is not None:
        given = _extents(shape)
        if not _are_compatible(given, found.shape):
            raise ValueError(
                f"Trying to share variable {full}, but specified shape {given} and found shape "
                f"{found.shape}."
            )
    if dtype is not None and dtype != found.dtype:
        raise ValueError(
            f"Trying to share variable {full}, but specified dtype {name_of(dtype)} and found "
            f"dtype {name_of(found.dtype)}."
        )


def _extents(shape: Any) -> tuple[Any, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def _made(
    full: str, shape: Any, dtype: Any, wanted: Any, initializer: Any, part: PartitionInfo | None,
    **options: Any,
) -> Variable:  # fmt: skip
    if initializer is None:
        initializer = glorot_uniform_initializer() if is_floating(dtype) else zeros_initializer()
    elif isinstance(initializer, type):
        initializer = initializer()
    with get_default_graph().name_scope(None):
        if not callable(initializer):
            if shape is not None:
                raise ValueError("If initializer is a constant, do not specify shape.")
            return Variable(initializer, name=full, dtype=wanted, **options)
        if shape is None:
            raise ValueError(
                f"Shape of a new variable ({full}) must be fully defined, but instead was None."
            )
        extents = _extents(shape)
        if any(extent is None for extent in extents):
            raise ValueError(
                f"Shape of a new variable ({full}) must be fully defined, but instead was "
                f"{extents}."
            )
        told = {"partition_info": part} if part and _asks_for_part(initializer) else {}
        return Variable(
            lambda: initializer(extents, dtype=dtype, **told), name=full, dtype=dtype, **options
        )


def _asks_for_part(initializer: Callable[..., Any]) -> bool:
    """Whether it takes the argument `partition_info`."""
    try:
        return "partition_info" in inspect.signature(initializer).parameters
    except ValueError:  # Functions of C have no signature.
        return False


@contextmanager
def variable_scope(
    name_or_scope: str | VariableScope | None,
    default_name: str | None = None,
    values: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    caching_device: Any = None,
    partitioner: Any = None,
    custom_getter: Any = None,
    reuse: Any = None,
    dtype: Any = None,
    use_resource: bool | None = None,
    constraint: Any = None,
    auxiliary_name_scope: bool = True,
) -> Iterator[VariableScope]:
    """get_variable() in the context puts name/ before names (tf.compat.v1.variable_scope), inside
    of the scope around it; a VariableScope is entered again as it was. The names of other nodes
    begin with it as well. `default_name`, made unique, in the place of a name that is None. The
    other arguments are defaults of those of get_variable()."""
    if name_or_scope is None and default_name is None:
        raise TypeError("If default_name is None then name_or_scope is required")
    graph = get_default_graph()
    store = _store(graph)
    outer = store.scope
    base = name_or_scope if isinstance(name_or_scope, VariableScope) else outer
    if isinstance(name_or_scope, VariableScope):
        name, part = name_or_scope.name, name_or_scope.name.rpartition("/")[2]
    else:
        if name_or_scope is None:
            name_or_scope = store.unique_scope(outer.name, default_name or "")
        part = name_or_scope
        name = f"{outer.name}/{part}" if outer.name else part
    before = dict(store.scopes)
    store.scopes[name] = store.scopes.get(name, 0) + 1
    inner = VariableScope(
        reuse or base.reuse, name, initializer or base.initializer,
        regularizer or base.regularizer, "", dtype or base.dtype,
        custom_getter or base.custom_getter, constraint or base.constraint,
        partitioner or base.partitioner,
    )  # fmt: skip
    names = graph.name_scope(part if name else None) if auxiliary_name_scope else _nothing()
    with names as scope:
        inner.original_name_scope = scope or ""
        store.scope = inner
        try:
            yield inner
        finally:
            store.scope = outer
            # Default names count anew when the scope is entered again.
            if isinstance(name_or_scope, VariableScope):
                store.scopes = before
            else:
                store.close(name)


@contextmanager
def _nothing() -> Iterator[str]:
    yield ""
