"""Variables by name, and scopes of their names (tf.compat.v1.get_variable)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .. import errors
from ..dtypes import as_dtype, is_floating, name_of
from .graph import Graph, GraphKeys, get_default_graph
from .initializers import glorot_uniform_initializer, zeros_initializer
from .variables import Variable


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
        constraint: Any = None,
    ) -> None:  # fmt: skip
        self.reuse = reuse
        self.name = name
        self.initializer = initializer
        self.regularizer = regularizer
        self.original_name_scope = name_scope
        self.dtype = dtype
        self.custom_getter = custom_getter
        self.constraint = constraint

    def reuse_variables(self) -> None:
        """From now on, variables must be there."""
        self.reuse = True

    def set_initializer(self, initializer: Any) -> None:
        """What variables are made by that say nothing else."""
        self.initializer = initializer

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
        absent, else glorot_uniform_initializer, and zeros for integers.
    regularizer: a function of the variable whose result goes to REGULARIZATION_LOSSES.

    ValueError when it is there and must not be, or must be and is not, or has another shape or
    dtype.
    """
    if partitioner is not None:
        raise errors.UnimplementedError(
            "get_variable(partitioner=...) is not in this release: make one variable per part"
        )
    scope = get_variable_scope()
    arguments = {
        "shape": shape, "dtype": dtype, "initializer": initializer, "regularizer": regularizer,
        "trainable": trainable, "collections": collections, "validate_shape": validate_shape,
        "constraint": constraint,
    }  # fmt: skip
    getter = custom_getter or scope.custom_getter
    if getter is None:
        return _get(name, **arguments)
    return getter(_get, name, **arguments)


def _get(
    name: str, shape: Any = None, dtype: Any = None, initializer: Any = None,
    regularizer: Any = None, trainable: bool | None = None, collections: Any = None,
    validate_shape: bool = True, constraint: Any = None,
) -> Variable:  # fmt: skip
    store = _store()
    scope = store.scope
    full = f"{scope.name}/{name}" if scope.name else name
    wanted = None if dtype is None else as_dtype(dtype)
    if full in store.variables:
        if scope.reuse is False or scope.reuse is None:
            raise ValueError(
                f"Variable {full} already exists, disallowed. Did you mean to set reuse=True or "
                "reuse=sidereal.v1.AUTO_REUSE in the variable scope?"
            )
        return _shared(full, store.variables[full], shape, wanted)
    if scope.reuse is True:
        raise ValueError(
            f"Variable {full} does not exist, or was not created with get_variable(). Did you mean "
            "to set reuse=sidereal.v1.AUTO_REUSE in the variable scope?"
        )
    kind = wanted or as_dtype(scope.dtype)
    made = _made(
        full, shape, kind, wanted, initializer if initializer is not None else scope.initializer,
        trainable=trainable, collections=collections, validate_shape=validate_shape,
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


def _shared(full: str, found: Variable, shape: Any, dtype: Any) -> Variable:
    if shape is not None and found.shape is not None:
        given = _extents(shape)
        if len(given) != len(found.shape) or any(
            a is not None and a != b for a, b in zip(given, found.shape)
        ):
            raise ValueError(
                f"Trying to share variable {full}, but specified shape {given} and found shape "
                f"{found.shape}."
            )
    if dtype is not None and dtype != found.dtype:
        raise ValueError(
            f"Trying to share variable {full}, but specified dtype {name_of(dtype)} and found "
            f"dtype {name_of(found.dtype)}."
        )
    return found


def _extents(shape: Any) -> tuple[Any, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def _made(
    full: str, shape: Any, dtype: Any, wanted: Any, initializer: Any, **options: Any
) -> Variable:
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
        return Variable(
            lambda: initializer(extents, dtype=dtype), name=full, dtype=dtype, **options
        )


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
    begin with it as well. `default_name`, made unique, in the place of a name that is None."""
    if partitioner is not None:
        raise errors.UnimplementedError("variable_scope(partitioner=...) is not in this release")
    if name_or_scope is None and default_name is None:
        raise TypeError("If default_name is None then name_or_scope is required")
    graph = get_default_graph()
    store = _store(graph)
    outer = store.scope
    base = name_or_scope if isinstance(name_or_scope, VariableScope) else outer
    if isinstance(name_or_scope, VariableScope):
        name, part = name_or_scope.name, name_or_scope.name.rpartition("/")[2]
    else:
        part = name_or_scope or store.unique_scope(outer.name, default_name or "")
        name = f"{outer.name}/{part}" if outer.name else part
    store.scopes[name] = store.scopes.get(name, 0) + 1
    inner = VariableScope(
        reuse or base.reuse, name, initializer or base.initializer,
        regularizer or base.regularizer, "", dtype or base.dtype,
        custom_getter or base.custom_getter, constraint or base.constraint,
    )  # fmt: skip
    names = graph.name_scope(part if name else None) if auxiliary_name_scope else _nothing()
    with names as scope:
        inner.original_name_scope = scope or ""
        store.scope = inner
        try:
            yield inner
        finally:
            store.scope = outer


@contextmanager
def _nothing() -> Iterator[str]:
    yield ""
