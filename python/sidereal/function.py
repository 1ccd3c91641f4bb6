"""sidereal.function: Python code traced into a graph, which runs as one program."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _native, errors, nest
from ._conversion import with_status
from ._dispatch import ENGINE, convert, state, to_tensor
from ._graphs import ElsewhereError, FuncGraph, Graph, graph_of, legal_name, locate
from ._native import LocalFunction, Output, Tensor
from ._sites import add_line, user_line
from .config import functions_run_eagerly
from .dtypes import DType, as_dtype, name_of
from .indexed_slices import IndexedSlices
from .variable import Variable

Shape = tuple[int, ...]


class RetracingWarning(UserWarning):
    """A function is traced again and again, which costs more than running its code at once."""


@dataclass(frozen=True)
class TensorSpec:
    """What is known of a tensor before it is there (tf.TensorSpec). Extents that may differ are
    None or -1; `shape` None: any number of dimensions."""

    #: A sequence of int | None, or None; kept as a tuple with -1 for None.
    shape: Any
    dtype: Any = "float32"
    name: str | None = None

    def __post_init__(self) -> None:
        shape = self.shape
        if shape is not None:
            shape = tuple(-1 if extent is None else int(extent) for extent in shape)
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "dtype", as_dtype(self.dtype))

    def accepts(self, value: Any) -> bool:
        """True when a tensor may stand where this is said."""
        return value.dtype == self.dtype and _accepts(self.shape, value.shape)

    def __repr__(self) -> str:
        return f"TensorSpec({_text(self.dtype, self.shape)})"


def _accepts(known: Any, shape: Shape) -> bool:
    return known is None or (
        len(known) == len(shape) and all(k in (-1, n) for k, n in zip(known, shape))
    )


def _text(dtype: DType, shape: Any) -> str:
    if shape is None:
        return f"{name_of(dtype)}?"
    return f"{name_of(dtype)}[{','.join('?' if n in (-1, None) else str(n) for n in shape)}]"


def by_place(arguments: tuple[Any, Any], args: Any, kwargs: Any) -> tuple[Any, Any]:
    """What is given by name, by place instead, to a trace of tensors that have names."""
    if not kwargs or arguments[1] or not all(isinstance(one, TensorSpec) for one in arguments[0]):
        return args, kwargs
    rest = [spec.name for spec in arguments[0][len(args) :]]
    if len(set(rest)) != len(rest) or set(rest) != set(kwargs):
        return args, kwargs
    return (*args, *(kwargs[name] for name in rest)), {}


class ConcreteFunction:
    """One trace of a function, for tensors of certain dtypes and shapes."""

    def __init__(
        self,
        name: str,
        python_function: Callable[..., Any],
        args: Any,
        kwargs: Any,
        shapes: list[Any],
        compute_dtype: str = "float32",
    ) -> None:
        self.name = name
        self.shapes = shapes
        self._compute_dtype = compute_dtype
        self.graph = FuncGraph(name)
        leaves = nest.flatten((args, kwargs))
        args, kwargs = nest.pack((args, kwargs), leaves := self._stand_in(leaves))
        given = iter(shapes)
        with self.graph.building():
            entered = [
                self.graph.input(leaf.dtype, next(given), f"x{index}")
                if isinstance(leaf, (Tensor, TensorSpec))
                else leaf
                for index, leaf in enumerate(leaves)
            ]
            inside_args, inside_kwargs = nest.pack((args, kwargs), entered)
            result = python_function(*inside_args, **inside_kwargs)
            flat = [_as_result(leaf, name) for leaf in _flatten_result(result)]
            outputs = [self.graph.enter(leaf) for leaf in flat if leaf is not None]
        given = iter(shapes)
        specs = [
            TensorSpec(next(given), leaf.dtype, getattr(leaf, "name", None))
            if isinstance(leaf, (Tensor, TensorSpec))
            else leaf
            for leaf in leaves
        ]
        self._finish(nest.pack((args, kwargs), specs), result, outputs, self.graph.assigned)

    def _stand_in(self, leaves: list[Any]) -> list[Any]:
        """Arguments with other variables in those that are made of variables: the trace is of no
        variables in particular."""
        made = {
            id(leaf): leaf._with_variables([one._stand_in() for one in leaf.variables])
            for leaf in leaves
            if _has_parts(leaf)
        }
        leaves = [made.get(id(leaf), leaf) for leaf in leaves]
        #: What stands for the variables of arguments, in their order.
        self._stand_ins = _variables_of(leaves)
        return leaves

    @classmethod
    def restore(
        cls,
        graph: FuncGraph,
        arguments: tuple[Any, Any],
        result: Any,
        outputs: list[Output],
        assigned: list[tuple[Variable, Output]],
    ) -> ConcreteFunction:
        """One that was traced elsewhere: `graph` has its inputs, `arguments` TensorSpecs for
        tensors, `result` an Output, IndexedSlices or None for each leaf."""
        made = cls.__new__(cls)
        made.name = graph.name
        made.graph = graph
        made._compute_dtype = "float32"
        made._stand_ins = []
        made.shapes = [
            leaf.shape for leaf in nest.flatten(arguments) if isinstance(leaf, TensorSpec)
        ]
        made._finish(arguments, result, outputs, assigned)
        return made

    def _finish(
        self,
        arguments: tuple[Any, Any],
        result: Any,
        outputs: list[Output],
        assigned: list[tuple[Variable, Output]],
    ) -> None:
        #: (args, kwargs) it was traced for, with TensorSpecs in the place of tensors.
        self.arguments = arguments
        self._result = result
        self._is_one = type(result) is Output
        self._present = [leaf is not None for leaf in _flatten_result(result)]
        self._assigned = [variable for variable, _ in assigned]
        self._count = len(outputs)
        #: Results, then the new values of the variables that it assigns to.
        self.outputs = [*outputs, *(value for _, value in assigned)]
        self._body: Any = None
        places = {
            id(value): len(self.graph.arguments) + index
            for index, (value, _) in enumerate(self.graph.captures)
        }
        self._function: LocalFunction = self.graph.native.function(
            self.name, self.graph.inputs, self.outputs, self._compute_dtype
        )
        #: Told where the variables assigned to are among the inputs, and new values among outputs.
        self._updater = self._function.updater(
            [places[id(variable)] for variable in self._assigned],
            list(range(self._count, self._count + len(self._assigned))),
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls it with arguments like those it was traced for."""
        return self.call(*self._checked(args, kwargs))

    def _checked(self, args: Any, kwargs: Any) -> tuple[list[Any], list[Variable]]:
        """The tensors and the variables of arguments, when these are like those it was traced
        for."""
        specs = [leaf for leaf in nest.flatten(self.arguments) if isinstance(leaf, TensorSpec)]
        args, kwargs = by_place(self.arguments, args, kwargs)
        leaves = nest.flatten((args, kwargs))
        tensors = [leaf for leaf in leaves if _is_value(leaf)]
        if len(leaves) != len(nest.flatten(self.arguments)) or len(tensors) != len(specs):
            raise TypeError(
                f"{self.name}() was traced for {_texts(specs)}, with as many tensors and other "
                f"values in its arguments; {len(tensors)} tensors are given"
            )
        values = [convert(value, spec.dtype) for value, spec in zip(tensors, specs)]
        if any(not spec.accepts(value) for spec, value in zip(specs, values)):
            raise errors.InvalidArgumentError(
                f"{self.name}() was traced for {_texts(specs)}; it is called with "
                f"{_texts(values)}"
            )
        variables = _variables_of(leaves)
        known = [_describe_leaf(leaf) for leaf in nest.flatten(self.arguments) if _has_parts(leaf)]
        if (
            known != [_describe_leaf(leaf) for leaf in leaves if _has_parts(leaf)]
            or _sameness(variables) != _sameness(self._stand_ins)
        ):
            raise errors.InvalidArgumentError(
                f"{self.name}() was traced for variables in other shards than those it is given"
            )
        return values, variables

    def _replaced(self, variables: Sequence[Variable]) -> dict[int, Variable]:
        """The variables of this call by the ids of those that stand for them."""
        if not self._stand_ins:
            return {}
        ids = {id(variable) for variable in variables}
        for value, _ in self.graph.captures:
            if id(value) in ids:
                raise errors.InvalidArgumentError(
                    f"variable '{value.name}' is an argument of {self.name}() that it uses from "
                    "outside as well: use one of them"
                )
        return {id(inside): variable for inside, variable in zip(self._stand_ins, variables)}

    def call(self, tensors: Sequence[Any], variables: Sequence[Variable] = ()) -> Any:
        """Runs it on the tensors, and the variables of what is made of some, among the arguments;
        in a graph, adds a call of it."""
        replaced = self._replaced(variables)
        if state.graph is not None:
            return self._call_in(state.graph, tensors, replaced)
        symbol = next((tensor for tensor in tensors if type(tensor) is Output), None)
        if symbol is not None:
            graph = graph_of(symbol)
            with graph.building():
                return self._call_in(graph, tensors, replaced)
        try:
            outputs = self._run(tensors, replaced)
        except errors.Error as error:
            locate(error, self.graph.native)
            add_line(error)
            raise
        return self._results(outputs, replaced)

    def _captured(self, replaced: dict[int, Variable]) -> list[Any]:
        """What it uses from outside, and the variables of this call."""
        if not replaced:
            return [value for value, _ in self.graph.captures]
        return [replaced.get(id(value), value) for value, _ in self.graph.captures]

    def _call_in(
        self, graph: Graph, tensors: Sequence[Any], replaced: dict[int, Variable]
    ) -> Any:
        if self._body is None:
            self._body = _native.cut_body(self.graph.native, self.graph.inputs, self.outputs)
        graph.keep(self.graph.kept)
        inputs = [graph.enter(value) for value in (*tensors, *self._captured(replaced))]
        bodies = {"function": self._body}
        name = legal_name(self.name)
        try:
            return self._results(
                _native.add_control(
                    graph.native, "FunctionCall", inputs, bodies, {}, name, user_line()
                ),
                replaced,
            )
        except errors.Error as error:
            add_line(error)
            raise

    def _results(self, outputs: Sequence[Any], replaced: dict[int, Variable]) -> Any:
        """Assigns what is to be assigned; the others in the structure of the result."""
        for variable, value in zip(self._assigned, outputs[self._count :]):
            replaced.get(id(variable), variable).assign(value)
        if self._is_one:
            return outputs[0]
        rest = iter(outputs)
        leaves = [next(rest) if present else None for present in self._present]
        return _pack_result(self._result, leaves)

    def _run(
        self, tensors: Sequence[Tensor], replaced: dict[int, Variable]
    ) -> Sequence[Tensor]:
        """The results, then new values of variables, unless these were written where they are."""
        captures = self._captured(replaced)
        if state.tapes and self.graph.kept:
            for tape in state.tapes:
                tape._keep(self.graph.kept)
        if self._assigned and not state.tapes:
            # In the variables' own memory.
            for variable in self._assigned:
                replaced.get(id(variable), variable)._read = None
            cells = (value if type(value) is Tensor else value._cell for value in captures)
            return self._updater(ENGINE, [*tensors, *cells])
        values = (value if type(value) is Tensor else value._as_tensor() for value in captures)
        return self._function.call(ENGINE, [*tensors, *values])

    def as_computation(self) -> tuple[LocalFunction, list[Tensor]] | None:
        """The native function, and the values at present of what it uses from outside, which are
        its last inputs. None where it changes variables, or is of those of its arguments."""
        if self._assigned or self._stand_ins:
            return None
        captures = (value for value, _ in self.graph.captures)
        return self._function, [
            value if type(value) is Tensor else value._as_tensor() for value in captures
        ]

    def accepts(self, tensors: list[Tensor]) -> bool:
        return all(_accepts(known, tensor.shape) for known, tensor in zip(self.shapes, tensors))

    @property
    def compute_dtype(self) -> str:
        """What products of matrices are computed in: what was asked for, or "float32" where the
        processor has no units for it."""
        return self._function.compute_dtype

    def graph_text(self) -> str:
        """The graph, one node a line."""
        return self._function.graph_text()

    def program_text(self) -> str:
        """The program it runs as, one instruction a line."""
        return self._function.program_text(ENGINE)


def _is_value(leaf: Any) -> bool:
    """True for what becomes a tensor when a function is called."""
    return isinstance(leaf, (Tensor, Output, Variable, np.ndarray)) or hasattr(leaf, "__dlpack__")


def _has_parts(leaf: Any) -> bool:
    """True for an argument made of variables, which are the arguments then (ShardedVariable)."""
    return hasattr(leaf, "_with_variables")


def _variables_of(leaves: Sequence[Any]) -> list[Variable]:
    """The variables that arguments are made of."""
    return [variable for leaf in leaves if _has_parts(leaf) for variable in leaf.variables]


def _sameness(variables: Sequence[Variable]) -> tuple[int, ...]:
    """For each variable the place where it is first: which of them are the same."""
    first: dict[int, int] = {}
    return tuple(first.setdefault(id(variable), i) for i, variable in enumerate(variables))


def _texts(values: Sequence[Any]) -> str:
    return ", ".join(_text(value.dtype, value.shape) for value in values) or "no tensors"


def _flatten_result(result: Any) -> list[Any]:
    out: list[Any] = []
    for leaf in nest.flatten(result):
        if isinstance(leaf, IndexedSlices):
            out += [leaf.values, leaf.indices]
        else:
            out.append(leaf)
    return out


def _pack_result(result: Any, leaves: list[Any]) -> Any:
    rest = iter(leaves)
    packed = [
        IndexedSlices(next(rest), next(rest), leaf.dense_shape)
        if isinstance(leaf, IndexedSlices)
        else next(rest)
        for leaf in nest.flatten(result)
    ]
    return nest.pack(result, packed)


def _as_result(leaf: Any, name: str) -> Any:
    if leaf is None:
        return None
    try:
        return convert(leaf)
    except TypeError:
        raise TypeError(
            f"function '{name}' returns {leaf!r}, which is no tensor; return tensors, numbers,"
            " None, or lists, tuples and dicts of them"
        ) from None


@dataclass(frozen=True)
class _Constant:
    """An argument that is part of the trace: compared by value, or by identity."""

    kind: type
    value: Any


def _describe_leaf(leaf: Any) -> Any:
    if isinstance(leaf, (Tensor, TensorSpec)):
        rank = None if leaf.shape is None else len(leaf.shape)
        return ("tensor", name_of(leaf.dtype), rank)
    if isinstance(leaf, Variable):
        return _Constant(Variable, id(leaf))
    if _has_parts(leaf):
        return _Constant(type(leaf), leaf._spec())
    try:
        hash(leaf)
    except TypeError:
        return _Constant(type(leaf), id(leaf))
    return _Constant(type(leaf), leaf)


class Function:
    """What @sidereal.function makes of a Python function."""

    #: A warning is given when so many of the last calls were traced.
    TRACES, CALLS = 5, 10
    #: Signatures, with all extents, whose trace is found without looking at the structure.
    EXACT_MAX = 256

    def __init__(
        self,
        python_function: Callable[..., Any],
        input_signature: Sequence[Any] | None = None,
        reduce_retracing: bool = True,
        compute_dtype: Any = "float32",
        autograph: bool = True,
    ) -> None:
        functools.update_wrapper(self, python_function)
        self.python_function = python_function
        self._autograph = bool(autograph)
        self.input_signature = None if input_signature is None else list(input_signature)
        self._name = legal_name(getattr(python_function, "__name__", "function"))
        self._relax = reduce_retracing
        self._compute_dtype = checked_compute_dtype(compute_dtype)
        self._traces: dict[Any, ConcreteFunction] = {}
        self._exact: dict[bytes, ConcreteFunction] = {}
        self._recent: deque[bool] = deque(maxlen=self.CALLS)
        self._causes: deque[str] = deque(maxlen=self.TRACES)
        self._last: tuple[list[Any], list[str]] | None = None
        self._warned = False
        #: What an ElsewhereError says, by the keys of traces that use what lives on a cluster.
        self._elsewhere: dict[Any, tuple[str, Any]] = {}
        try:
            self._signature: inspect.Signature | None = inspect.signature(python_function)
        except (TypeError, ValueError):
            self._signature = None
        self._simple = self._signature is not None and all(
            parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
            and parameter.default is inspect.Parameter.empty
            for parameter in self._signature.parameters.values()
        )

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """A method: each object has traces of its own."""
        if instance is None:
            return self
        bound = self.python_function.__get__(instance, owner)
        made = Function(
            bound, self.input_signature, self._relax, self._compute_dtype, self._autograph
        )
        # Found there from now on, before this descriptor.
        instance.__dict__[self.python_function.__name__] = made
        return made

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if functions_run_eagerly():
            return self.python_function(*args, **kwargs)
        if state.graph is not None:
            return self.traced_function(*args, **kwargs)
        exact = ENGINE.signature(args) if not kwargs and self._simple else None
        if exact is not None:
            known = self._exact.get(exact)
            if known is not None:
                self._recent.append(False)
                return known.call(args)
        args, kwargs = self._bind(args, kwargs)
        leaves = [self._as_argument(leaf) for leaf in nest.flatten((args, kwargs))]
        if any(type(leaf) is Output for leaf in leaves):
            # Values of a Model: the code adds to its graph.
            return self.traced_function(*args, **kwargs)
        args, kwargs = nest.pack((args, kwargs), leaves)
        tensors = [leaf for leaf in leaves if type(leaf) is Tensor]
        try:
            concrete = self._find(args, kwargs, leaves, tensors)
        except ElsewhereError as found:
            return found.home._run_function(self, args, kwargs)
        if exact is not None:
            if len(self._exact) >= self.EXACT_MAX:
                self._exact.clear()
            self._exact[exact] = concrete
        return concrete.call(tensors, _variables_of(leaves))

    def get_concrete_function(self, *args: Any, **kwargs: Any) -> ConcreteFunction:
        """The trace for tensors, or TensorSpecs, like these."""
        if not args and not kwargs and self.input_signature is not None:
            args = tuple(self.input_signature)
        args, kwargs = self._bind(args, kwargs)
        leaves = [
            leaf if isinstance(leaf, TensorSpec) else self._as_argument(leaf)
            for leaf in nest.flatten((args, kwargs))
        ]
        args, kwargs = nest.pack((args, kwargs), leaves)
        tensors = [leaf for leaf in leaves if isinstance(leaf, (Tensor, TensorSpec))]
        try:
            return self._find(args, kwargs, leaves, tensors)
        except ElsewhereError as found:
            return found.home._concrete_function(self, args, kwargs)

    @property
    def traced_function(self) -> Callable[..., Any]:
        """What is traced: the function with control flow that may depend on tensors, if it may."""
        return with_status(self.python_function, self._autograph)

    @property
    def trace_count(self) -> int:
        """Traces there are at present."""
        return len(self._traces)

    def _bind(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        if self._signature is None or (self._simple and not kwargs):
            bound_args, bound_kwargs = args, kwargs
        else:
            try:
                bound = self._signature.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{self._name}(): {error}") from None
            bound.apply_defaults()
            bound_args, bound_kwargs = bound.args, bound.kwargs
        if self.input_signature is not None:
            bound_args = self._fit(bound_args, bound_kwargs)
        return bound_args, bound_kwargs

    def _fit(self, args: Any, kwargs: Any) -> Any:
        """The arguments as the input signature wants them."""
        if kwargs or len(args) != len(self.input_signature or ()):
            raise TypeError(
                f"{self._name}() has an input_signature of {len(self.input_signature or ())} "
                f"arguments; {len(args) + len(kwargs)} are given"
            )
        return tuple(
            self._fit_one(index, spec, value)
            for index, (spec, value) in enumerate(zip(self.input_signature or (), args))
        )

    def _fit_one(self, index: int, spec: Any, value: Any) -> Any:
        if not isinstance(spec, TensorSpec):
            specs, leaves = nest.flatten(spec), nest.flatten(value)
            if not isinstance(spec, (list, tuple, dict)) or len(specs) != len(leaves):
                raise TypeError(
                    f"argument {index} of {self._name}() is nested otherwise than its"
                    " input_signature"
                )
            return nest.pack(value, [self._fit_one(index, s, v) for s, v in zip(specs, leaves)])
        if isinstance(value, TensorSpec):
            return value
        value = convert(value, None if isinstance(value, Tensor) else spec.dtype)
        if spec.accepts(value):
            return value
        raise errors.InvalidArgumentError(
            f"argument {index} of {self._name}() is {_text(value.dtype, value.shape)}; its "
            f"input_signature says {_text(spec.dtype, spec.shape)}"
        )

    @staticmethod
    def _as_argument(leaf: Any) -> Any:
        if isinstance(leaf, np.ndarray) or (
            hasattr(leaf, "__dlpack__") and not isinstance(leaf, (Tensor, Variable))
        ):
            return to_tensor(leaf)
        return leaf

    def _find(
        self, args: Any, kwargs: Any, leaves: list[Any], tensors: list[Any]
    ) -> ConcreteFunction:
        key = nest.describe((args, kwargs), _describe_leaf), _sameness(_variables_of(leaves))
        if key in self._elsewhere:
            raise ElsewhereError(*self._elsewhere[key])
        concrete = self._traces.get(key)
        if concrete is not None and concrete.accepts(tensors):
            self._recent.append(False)
            return concrete
        if self.input_signature is not None:
            shapes = [
                spec.shape
                for spec in nest.flatten(self.input_signature)
                if isinstance(spec, TensorSpec)
            ]
        elif concrete is not None and self._relax:
            shapes = [_merged(known, new.shape) for known, new in zip(concrete.shapes, tensors)]
        else:
            shapes = [tensor.shape for tensor in tensors]
        self._note_trace(leaves, concrete, tensors)
        try:
            made = ConcreteFunction(
                self._name, self.traced_function, args, kwargs, shapes, self._compute_dtype
            )
        except ElsewhereError as found:
            self._elsewhere[key] = found.message, found.home
            raise
        self._traces[key] = made
        self._exact.clear()
        return made

    def _note_trace(self, leaves: list[Any], known: Any, tensors: list[Any]) -> None:
        described = [_describe_leaf(leaf) for leaf in leaves]
        if known is not None:
            pairs = [
                f"{_text(new.dtype, old)} and then {_text(new.dtype, new.shape)}"
                for old, new in zip(known.shapes, tensors)
                if not _accepts(old, new.shape)
            ]
            self._causes.append(f"tensors of different shapes: {'; '.join(pairs)}")
        elif self._last is not None:
            self._causes.append(self._difference(described))
        self._last = (described, [])
        self._recent.append(True)
        if sum(self._recent) >= self.TRACES and not self._warned and self._causes:
            self._warned = True
            warnings.warn(
                f"function '{self._name}' was traced in {sum(self._recent)} of its last "
                f"{len(self._recent)} calls, which costs more than it saves. The last cause: "
                f"{self._causes[-1]}",
                RetracingWarning,
                stacklevel=4,
            )

    def _difference(self, described: list[Any]) -> str:
        assert self._last is not None
        before = self._last[0]
        if len(before) != len(described):
            return f"{len(before)} and then {len(described)} values among the arguments"
        for index, (old, new) in enumerate(zip(before, described)):
            if old == new:
                continue
            what = f"argument value {index}"
            if self._signature is not None and index < len(self._signature.parameters):
                what = f"argument '{list(self._signature.parameters)[index]}'"
            if isinstance(old, _Constant) and isinstance(new, _Constant):
                if new.kind in (int, float, bool):
                    return (
                        f"{what} is the Python number {old.value!r}, then {new.value!r}; Python "
                        "numbers are constants of the graph: pass a tensor, sidereal.constant(x)"
                    )
                return f"{what} is another {new.kind.__name__} object than before"
            if isinstance(old, tuple) and isinstance(new, tuple) and old[1] != new[1]:
                return f"{what} has dtype {old[1]}, then {new[1]}"
            if isinstance(old, tuple) and isinstance(new, tuple):
                return f"{what} has {old[2]} dimensions, then {new[2]}"
            return f"{what} is a tensor in one call and a Python value in another"
        return "the arguments are nested in another way than before"

    def __repr__(self) -> str:
        return f"<sidereal.function {self._name}>"


def checked_compute_dtype(value: Any) -> str:
    """The name of a compute_dtype; ValueError for a dtype that is none."""
    name = name_of(value)
    if name not in ("float32", "bfloat16"):
        raise ValueError(f"compute_dtype is {name}; it must be float32 or bfloat16")
    return name


def _merged(known: Any, shape: Shape) -> Any:
    if known is None or len(known) != len(shape):
        return None if known is None else shape
    return tuple(k if k == n else -1 for k, n in zip(known, shape))


def function(
    func: Callable[..., Any] | None = None,
    input_signature: Sequence[Any] | None = None,
    reduce_retracing: bool = True,
    compute_dtype: Any = "float32",
    autograph: bool = True,
    jit_compile: bool | None = None,
    experimental_relax_shapes: bool | None = None,
) -> Any:
    """Makes a Python function of tensors run as one program (tf.function). A decorator.

        @sidereal.function
        def step(x, y):
            return sidereal.reduce_mean(sidereal.square(x @ w - y))

    The first call runs the Python code once, with symbolic tensors, to get a graph, which is
    optimised and compiled. Later calls run the program. The code is traced again when the dtype or
    rank of a tensor, the structure of the arguments, or a Python value among them differs; when an
    extent differs, once more, with that extent left open. `input_signature` (TensorSpecs) fixes
    what is accepted, so that one trace serves all calls.

    So Python side effects (print, appending to a list, random numbers of Python or NumPy) happen
    when the code is traced, not at every call. Variables may be read and assigned to; assignments
    take effect at the end of the call. Tapes differentiate through calls. A function called from
    another one becomes part of its graph.

    With `autograph`, control flow of the function, and of what it calls of the program's own, may
    depend on tensors: if, while, for, break, continue, return, and, or, not, assert become
    branches and loops of the graph where their conditions are tensors, and stay Python's where
    they are not. Without it use sidereal.cond, sidereal.where and sidereal.while_loop.

    compute_dtype="bfloat16" lets products of float32 matrices read bfloat16 and sum in float32;
    activations between layers and their gradients live in bfloat16, everything else (variables,
    optimizers, losses, what is returned) stays float32. It is for processors with units for it
    (AMX, AVX512-BF16); on others it changes nothing. get_concrete_function().compute_dtype says
    which holds. Dtypes in the Python code are float32 all the same.

    `jit_compile` is taken for the sake of programs that have it, and changes nothing: every
    function is compiled. `experimental_relax_shapes` is what `reduce_retracing` was called.
    """
    if experimental_relax_shapes is not None:
        reduce_retracing = experimental_relax_shapes
    del jit_compile

    def made(python_function: Callable[..., Any]) -> Function:
        return Function(
            python_function, input_signature, reduce_retracing, compute_dtype, autograph
        )

    return made if func is None else made(func)


__all__ = ["ConcreteFunction", "Function", "RetracingWarning", "TensorSpec", "function"]
