"""Python's control flow as functions, which rewritten code calls (AutoGraph).

Of values of Python, and of tensors that have a value, they do what Python does. Of values of a
graph they add branches and loops to it, of which the variables that the statement assigns to are
the results: get_state() gives these and set_state() sets them, `symbol_names` are their names.
"""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import _conversion, errors, nest
from ._bodies import Body, Spec, add_branches, add_loop, graph_for, spec_of
from ._conversion import callee, marked, status
from ._dispatch import apply, convert, state
from ._graphs import FuncGraph, Graph, graph_of
from ._native import Output, Tensor
from ._sites import describe, user_line
from .dtypes import as_dtype, bool_, name_of
from .ops import array, control, debugging, math
from .ops.basic import cast

#: Rounds that are traced of a loop of Python which a tensor may leave.
_ROUNDS_MAX = 1000


class Undefined:
    """Stands for a variable that has no value yet."""

    def __init__(self, symbol_name: str) -> None:
        self.symbol_name = symbol_name

    def read(self) -> Any:
        raise UnboundLocalError(f"'{self.symbol_name}' is used before it has a value")


class UndefinedReturnValue(Undefined):
    """Stands for what a function returns, before it has returned."""

    def __init__(self) -> None:
        super().__init__("the value returned")


class FunctionScope:
    """The body of a rewritten function."""

    def __init__(self, function_name: str, scope_name: str, options: Any) -> None:
        self._name = function_name

    def __enter__(self) -> FunctionScope:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ret(self, value: Any, did_return: Any) -> Any:
        """What the function returns."""
        if isinstance(value, Undefined):
            return None
        if symbolic(did_return):
            raise ValueError(
                _at(
                    f"{self._name}() returns a value in some cases only, which depends on a "
                    "tensor: a value must also be returned from the else branch, or at the end"
                )
            )
        return value


def with_function_scope(thunk: Callable[[Any], Any], scope_name: str, options: Any) -> Any:
    """The value of a lambda."""
    return thunk(FunctionScope("lambda", scope_name, options))


def ld(value: Any) -> Any:
    """The value of a variable."""
    return value.read() if isinstance(value, Undefined) else value


def ldu(load: Callable[[], Any], name: str) -> Any:
    """The value of what may have none."""
    try:
        return load()
    except (KeyError, AttributeError, NameError):
        return Undefined(name)


def symbolic(value: Any) -> bool:
    """Whether a value is known only when the graph runs."""
    kind = type(value)
    if kind is Output:
        return True
    return kind is not Tensor and state.graph is not None and hasattr(value, "_as_tensor")


def _at(message: str) -> str:
    site = user_line()
    return f"{message}\n  at {describe(site)}" if site else message


def _graph_of(value: Any) -> Graph:
    graph = graph_for(value)
    assert graph is not None
    return graph


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float, np.ndarray, np.generic))


def _is_tensor(value: Any) -> bool:
    return isinstance(value, (Tensor, Output)) or hasattr(value, "_as_tensor")


def _is_value(value: Any) -> bool:
    """Whether a graph may have it as a value."""
    return _is_tensor(value) or _is_number(value)


def _nesting(value: Any) -> Any:
    return nest.describe(value, lambda _: None)


def _same(a: Any, b: Any) -> bool:
    """Whether values of Python are the same, or one object."""
    if a is b:
        return True
    plain = (bool, int, float, str, bytes)
    return type(a) is type(b) and isinstance(a, plain) and a == b


# --- Branches.


def if_stmt(
    cond: Any, body: Callable[[], Any], orelse: Callable[[], Any], get_state: Callable[[], Any],
    set_state: Callable[[Any], Any], symbol_names: Sequence[str], nouts: int,
) -> None:  # fmt: skip
    """if cond: body() else: orelse(). The first `nouts` variables are used after it."""
    if not symbolic(cond):
        body() if cond else orelse()
        return
    negated = status.negated
    first = get_state()
    known: list[list[Any]] = []

    def end_of(run: Callable[[], Any]) -> list[Any]:
        set_state(first)
        run()
        known.append(list(get_state()[:nouts]))
        return known[-1]

    try:
        ends = _select(cond, symbol_names[:nouts], lambda: end_of(body), lambda: end_of(orelse))
    finally:
        set_state(first)
    for index, (name, before) in enumerate(zip(symbol_names[:nouts], first)):
        # After `if not do_return: ... return x` the function has returned in any case.
        if name.startswith("do_return") and negated[1] is cond and negated[0] is before:
            ends[index] = True if known[0][index] is True else ends[index]
    set_state((*ends, *first[nouts:]))


def _select(
    cond: Any, names: Sequence[str], yes: Callable[[], list[Any]], no: Callable[[], list[Any]]
) -> list[Any]:
    """The values that yes() gives where a value of a graph is true, else those of no()."""
    graph = _graph_of(cond)
    with graph.building():
        flag = graph.enter(_scalar(cond, "the condition"))
    ends: list[list[Any]] = []

    def traced(run: Callable[[], list[Any]]) -> list[Any]:
        ends.append(run())
        return []

    then = Body("then", lambda _: traced(yes), (), graph, gives_assigned=True)
    other = Body("else", lambda _: traced(no), (), graph, gives_assigned=True)
    # What is to be a result of the conditional is an Output here afterwards; else it stays.
    pairs = [_Pair(name, a, b) for name, a, b in zip(names, *ends)]
    for body, values in ((then, [p.yes for p in pairs]), (other, [p.no for p in pairs])):
        with body.graph.building():
            body.outputs = [
                body.graph.enter(make()) for made in values for make in made if make is not None
            ]
    rest = iter(add_branches(graph, flag, then, other, "cond"))
    return [pair.result(rest) for pair in pairs]


class _Pair:
    """What a variable is after one branch and after the other: for each leaf functions that give
    the values there, or None, where both have what is the same in Python."""

    def __init__(self, name: str, a: Any, b: Any) -> None:
        self._name = _described(name)
        self.yes: list[Any] = []
        self.no: list[Any] = []
        if a is b or (isinstance(a, Undefined) and isinstance(b, Undefined)):
            # As one leaf, whatever it is.
            self._structure: Any = None
            self._leaves, self.yes, self.no = [a], [None], [None]
            return
        for here, there, which in ((a, b, "if"), (b, a, "else")):
            if isinstance(here, Undefined) and not isinstance(here, UndefinedReturnValue):
                raise ValueError(
                    _at(
                        f"{self._name} has a value in one branch only of an if that depends on a "
                        f"tensor: it must also be initialized in the {which} branch"
                    )
                )
            if isinstance(here, UndefinedReturnValue):
                self._fill(there, which)
                return
        if _nesting(a) != _nesting(b):
            raise TypeError(
                _at(f"{self._name} must be nested in the same way in both branches of an if that "
                    f"depends on a tensor; it is {_kind(a)} in one and {_kind(b)} in the other")
            )  # fmt: skip
        self._structure, self._leaves = a, nest.flatten(a)
        for one, other in zip(self._leaves, nest.flatten(b)):
            self._add(one, other)

    def _add(self, a: Any, b: Any) -> None:
        if _same(a, b):
            self.yes.append(None)
            self.no.append(None)
            return
        for value in (a, b):
            if not _is_value(value) and not isinstance(value, (str, bytes)):
                raise (ValueError if value is None else TypeError)(
                    _at(f"{self._name} is {_kind(a)} in the first branch of an if that depends on "
                        f"a tensor, and {_kind(b)} in the else branch: only tensors and numbers "
                        "may differ there")
                )  # fmt: skip
        kinds = [as_dtype(each.dtype) if hasattr(each, "dtype") else None for each in (a, b)]
        if kinds == [None, None] and type(a) is not type(b):
            kinds = [convert(each).dtype for each in (a, b)]
        if None not in kinds and kinds[0] != kinds[1]:
            raise TypeError(
                _at(f"{self._name} must have one dtype in both branches of an if that depends on "
                    f"a tensor; it is {name_of(kinds[0])} in one and {name_of(kinds[1])} in the "
                    "other: cast one")
            )  # fmt: skip
        dtype = kinds[1] if kinds[0] is None else kinds[0]
        self.yes.append(lambda: convert(a, dtype))
        self.no.append(lambda: convert(b, dtype))

    def _fill(self, value: Any, which: str) -> None:
        """Zeros where a function has not returned, which nobody looks at."""
        self._structure, self._leaves = value, nest.flatten(value)
        for leaf in self._leaves:
            if leaf is None:
                # As a function that has not returned gives.
                self.yes.append(None)
                self.no.append(None)
                continue
            if not _is_value(leaf):
                raise ValueError(
                    _at(f"the function returns {_kind(leaf)} in one branch of an if that depends "
                        f"on a tensor: a value must also be returned from the {which} branch")
                )  # fmt: skip
            full = functools.partial(convert, leaf)
            empty = functools.partial(_zeros, *spec_of(convert(leaf)))
            self.yes.append(empty if which == "if" else full)
            self.no.append(full if which == "if" else empty)

    def result(self, made: Any) -> Any:
        """The variable after the conditional, whose results `made` gives."""
        leaves = [
            leaf if make is None else next(made) for leaf, make in zip(self._leaves, self.yes)
        ]
        return nest.pack(self._structure, leaves)


def _zeros(dtype: Any, shape: Any) -> Any:
    return array.zeros([max(extent, 0) for extent in shape or ()], dtype)


def _kind(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, (list, tuple)):
        return f"a {type(value).__name__} of {len(value)}"
    if _is_tensor(value):
        return f"a tensor of {name_of(value.dtype)}"
    return f"a {type(value).__name__}, {value!r:.40}"


def _described(name: str) -> str:
    return "the value returned" if name.startswith("retval_") else f"'{name}'"


def _scalar(value: Any, what: str) -> Any:
    """A value of a graph as a scalar bool."""
    try:
        return control.flag_of(value, what)
    except errors.InvalidArgumentError as error:
        raise ValueError(_at(f"{error.message}; use reduce_any() or reduce_all()")) from None


def if_exp(
    cond: Any, if_true: Callable[[], Any], if_false: Callable[[], Any], expr_repr: str
) -> Any:
    """if_true() if cond else if_false()."""
    if not symbolic(cond):
        return if_true() if cond else if_false()
    name = f"... if {expr_repr} else ..."
    return _select(cond, [name], lambda: [if_true()], lambda: [if_false()])[0]


# --- and, or, not, chains of comparisons.

#: Ops that may run whether or not they need to.
_CHEAP = {
    "Abs", "Add", "Arg", "Cast", "Const", "Equal", "Greater", "GreaterEqual", "Identity", "Less",
    "LessEqual", "LogicalAnd", "LogicalNot", "LogicalOr", "Mul", "Neg", "NotEqual", "Placeholder",
    "Reshape", "StopGradient", "Sub",
}  # fmt: skip


def _logical(value: Any, later: Callable[[], Any], word: str) -> Any:
    """`value and later()`, or `or`, for a `value` of a graph."""
    graph = _graph_of(value)
    found: list[Any] = []
    trial = Body("operand", lambda _: found.append(later()), (), graph, gives_assigned=True)
    native = trial.graph.native
    other = found[0]
    is_plain = isinstance(other, bool) or getattr(other, "dtype", None) == bool_
    if is_plain and not trial.assigned and as_dtype(value.dtype) == bool_:
        ops = {native.node_op(node) for node in range(len(native))}
        if ops <= _CHEAP:
            with graph.building():
                first = _scalar(value, f"the left side of '{word}'")
                second = _scalar(later(), f"the right side of '{word}'")
                return apply(f"Logical{word.title()}", (first, second))
    name = f"... {word} ..."
    if word == "and":
        return _select(value, [name], lambda: [later()], lambda: [value])[0]
    return _select(value, [name], lambda: [value], lambda: [later()])[0]


def and_(a: Callable[[], Any], b: Callable[[], Any]) -> Any:
    """a() and b()."""
    value = a()
    return _logical(value, b, "and") if symbolic(value) else value and b()


def or_(a: Callable[[], Any], b: Callable[[], Any]) -> Any:
    """a() or b()."""
    value = a()
    return _logical(value, b, "or") if symbolic(value) else value or b()


def not_(a: Any) -> Any:
    """not a; of a tensor, of each element."""
    if not symbolic(a):
        return not a
    with _graph_of(a).building():
        flags = convert(a)
        if flags.dtype != bool_:
            flags = apply("Cast", (flags,), {"dtype": "bool"})
        made = apply("LogicalNot", (flags,))
    status.negated = (a, made)
    return made


_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "Eq": operator.eq, "NotEq": operator.ne, "Lt": operator.lt, "LtE": operator.le,
    "Gt": operator.gt, "GtE": operator.ge, "Is": operator.is_, "IsNot": operator.is_not,
    "In": lambda a, b: a in b, "NotIn": lambda a, b: a not in b,
}  # fmt: skip


def chain(names: Sequence[str], first: Any, *later: Callable[[], Any]) -> Any:
    """first < later[0]() < later[1]() ..., with the operators named."""

    def rest(left: Any, index: int) -> Any:
        right = later[index]()
        found = _COMPARISONS[names[index]](left, right)
        if index + 1 == len(names):
            return found
        return and_(lambda: found, lambda: rest(right, index + 1))

    return rest(first, 0)


def caught() -> BaseException | None:
    """What is handled by the clause that calls this."""
    return sys.exc_info()[1]


def assert_stmt(test: Any, message: Callable[[], Any] | None) -> None:
    """assert test, message(); of a tensor a check whenever the graph runs."""
    if symbolic(test):
        text = "assertion failed" if message is None else message()
        data = [text] if _is_tensor(text) else []
        with _graph_of(test).building():
            debugging.check(test, "assertion failed" if data else str(text), data)
    elif not test:
        raise AssertionError() if message is None else AssertionError(message())


# --- Loops.


def while_stmt(
    test: Callable[[], Any], body: Callable[[], Any], get_state: Callable[[], Any],
    set_state: Callable[[Any], Any], symbol_names: Sequence[str], opts: dict[str, Any],
) -> None:  # fmt: skip
    """while test(): body()."""
    while True:
        flag = _tried(test)
        if symbolic(flag):
            loop = _Loop(flag, body, get_state, set_state, symbol_names, opts)
            loop.run(test)
            return
        if not flag:
            return
        body()


def _tried(test: Callable[[], Any]) -> Any:
    """What a condition is. What it adds to a graph for that nobody needs."""
    if state.graph is None:
        return test()
    with FuncGraph("test", state.graph).building():
        return test()


class _Loop:
    """A loop of a graph: what it begins with, and its steps."""

    def __init__(
        self, value: Any, body: Callable[..., Any], get_state: Callable[[], Any],
        set_state: Callable[[Any], Any], names: Sequence[str], opts: dict[str, Any],
    ) -> None:  # fmt: skip
        self._graph = state.graph if state.graph is not None else graph_of(value)
        self._body, self._get, self._set = body, get_state, set_state
        self._names, self._opts = names, opts
        #: Before the loop, with zeros where it gives variables their first values.
        self._before = list(get_state())
        self._begun: list[str] = []

    def run(self, test: Callable[[], Any] | None, rows: Any = None, source: Any = None) -> None:
        """Adds the loop: while test(), over the rows of tensors, or over what an iterator gives."""
        before = tuple(self._before)
        try:
            with self._graph.building():
                after = self._added(test, rows, source)
        finally:
            self._set(before)
        self._set(after)

    def _added(self, test: Any, rows: Any, source: Any) -> tuple[Any, ...]:
        if source is not None:
            return self._over_elements(source, test)
        if rows is None:
            return self._looped(lambda _: self._body(), lambda _: test(), [])
        leaves = [self._graph.enter(convert(leaf)) for leaf in nest.flatten(rows)]
        is_plain = not {"shape_invariants", "maximum_iterations"} & set(self._opts)
        if test is None and is_plain:
            return self._looped(lambda row: self._body(nest.pack(rows, row)), None, [], leaves)
        count = array.shape(leaves[0])[0]

        def body(index: list[Any]) -> list[Any]:
            self._body(nest.pack(rows, [array.gather(leaf, index[0]) for leaf in leaves]))
            return [index[0] + 1]

        def more(index: list[Any]) -> Any:
            within = index[0] < count
            return within if test is None else and_(lambda: within, test)

        return self._looped(body, more, [convert(0, count.dtype)])

    def _over_elements(self, source: Any, test: Callable[[], Any] | None) -> tuple[Any, ...]:
        """Over the elements of an iterator, none of which is taken after the last round."""
        there, components = source._next_or_end()

        def body(now: list[Any]) -> list[Any]:
            self._body(nest.pack(source.element_spec, now[1:]))
            if test is None:
                more, components = source._next_or_end()
            else:
                more, components = control.cond(
                    convert(test()),
                    lambda: source._next_or_end(),
                    lambda: (convert(False), list(now[1:])),
                )
            return [more, *components]

        return self._looped(body, lambda now: now[0], [there, *components])

    def _looped(
        self, body: Callable[[list[Any]], Any], test: Callable[[list[Any]], Any] | None,
        hidden: Sequence[Any], rows: Sequence[Any] = (),
    ) -> tuple[Any, ...]:  # fmt: skip
        """Adds the loop; the variables after it. `hidden` are values that it has besides."""
        if any(_is_open(each) for each in self._before):
            self._try(body, hidden, rows)
        own = len(hidden)
        if self._begun:
            hidden = [*hidden, convert(False)]
        state_ = _State(self._names, self._before, self._invariants())
        count = len(hidden)
        first = [self._graph.enter(each) for each in (*hidden, *state_.first)]
        specs = [spec_of(each) for each in first[:count]] + state_.specs

        def step(values: list[Any]) -> list[Any]:
            now, row = values[: len(first)], values[len(first) :]
            self._set(state_.packed(now[count:]))
            rest = body([*now[:own], *row]) or []
            if self._begun:
                rest = [*rest, convert(True)]
            return [*rest, *state_.following(self._get())]

        def more(values: list[Any]) -> Any:
            self._set(state_.packed(values[count:]))
            assert test is not None
            return _scalar(test(values[:own]), "the condition of the loop")

        attrs = {}
        if "maximum_iterations" in self._opts and test is not None:
            attrs["maximum_iterations"] = max(int(self._opts["maximum_iterations"]), 0)
        name = "for" if rows else "while"
        made = add_loop(
            self._graph, first, specs, step, None if test is None else more, rows, attrs, name
        )
        if self._begun:
            text = f"the loop must run at least once to give {', '.join(self._begun)} a value"
            debugging.check(made[count - 1], _at(text), [])
        return state_.packed(made[count:])

    def _try(self, body: Any, hidden: Sequence[Any], rows: Sequence[Any]) -> None:
        """Traces the body once to see what it makes of variables that have no value yet."""
        found: list[Any] = []
        state_ = _State(self._names, self._before, self._invariants())

        def once(values: list[Any]) -> list[Any]:
            now = values[: len(hidden)]
            self._set(state_.packed(values[len(hidden) : len(hidden) + len(state_.specs)]))
            body([*now, *values[len(hidden) + len(state_.specs) :]])
            found.extend(self._get())
            return []

        specs = [spec_of(self._graph.enter(each)) for each in hidden] + state_.specs
        row_specs: list[Spec] = [
            (row.dtype, None if row.shape is None else tuple(row.shape[1:])) for row in rows
        ]
        with self._graph.building():
            Body("trial", once, specs, self._graph, True, (), row_specs)
        for index, (name, before) in enumerate(zip(self._names, self._before)):
            value = found[index]
            if not _is_open(before) or _is_open(value):
                continue
            leaves = nest.flatten(value)
            if all(_is_value(leaf) for leaf in leaves):
                zeros = [_zeros_for(leaf) for leaf in leaves]
                self._before[index] = nest.pack(value, zeros)
                if not isinstance(before, UndefinedReturnValue):
                    self._begun.append(_described(name))

    def _invariants(self) -> dict[int, Any]:
        """Shapes that variables have in every round, by the ids of their first values."""
        pairs = self._opts.get("shape_invariants") or ()
        return {id(value): control.extents_of(shape) for value, shape in pairs}


def _is_open(value: Any) -> bool:
    """Whether a variable has no value before a loop that may give it one."""
    return value is None or isinstance(value, Undefined)


class _Zeros:
    """Zeros whose shape is known as far as that of a value of a body is."""

    def __init__(self, dtype: Any, shape: Any) -> None:
        self.dtype, self.shape = dtype, shape


def _zeros_for(leaf: Any) -> Any:
    made = convert(leaf)
    return _Zeros(made.dtype, None if made.shape is None else tuple(made.shape))


class _State:
    """The variables of a loop: leaves that are values of the graph, and others, which stay."""

    def __init__(
        self, names: Sequence[str], before: Sequence[Any], invariants: dict[int, Any]
    ) -> None:
        self._names, self._before = names, before
        self._leaves = [nest.flatten(each) for each in before]
        #: The first values, and their dtypes and shapes.
        self.first: list[Any] = []
        self.specs: list[Spec] = []
        for leaves, value in zip(self._leaves, before):
            for leaf in leaves:
                if isinstance(leaf, _Zeros):
                    self.first.append(_zeros(leaf.dtype, leaf.shape))
                    self.specs.append((leaf.dtype, leaf.shape))
                elif _is_value(leaf):
                    made = convert(leaf)
                    shape = invariants.get(id(leaf), invariants.get(id(value), made.shape))
                    self.first.append(made)
                    self.specs.append((made.dtype, shape))

    def packed(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """The variables, with these values of the graph."""
        rest = iter(values)
        return tuple(
            nest.pack(value, [next(rest) if _moves(leaf) else leaf for leaf in leaves])
            for value, leaves in zip(self._before, self._leaves)
        )

    def following(self, after: Sequence[Any]) -> list[Any]:
        """The values of the graph of what the variables are after a round."""
        made: list[Any] = []
        specs = iter(self.specs)
        for name, before, leaves, value in zip(self._names, self._before, self._leaves, after):
            if _nesting(value) != _nesting(before):
                raise TypeError(
                    _at(f"{_described(name)} is {_kind(before)} before a loop that depends on a "
                        f"tensor, and {_kind(value)} after a round: it must stay nested as it is")
                )  # fmt: skip
            for old, new in zip(leaves, nest.flatten(value)):
                if _moves(old):
                    made.append(_followed(name, next(specs), new))
                elif not _same(old, new) and not isinstance(old, Undefined):
                    raise TypeError(
                        _at(f"{_described(name)} is {_kind(old)} before a loop that depends on a "
                            f"tensor, and {_kind(new)} after a round: only tensors and numbers "
                            "may change in it")
                    )  # fmt: skip
        return made


def _moves(leaf: Any) -> bool:
    return isinstance(leaf, _Zeros) or _is_value(leaf)


def _followed(name: str, spec: Spec, value: Any) -> Any:
    """A variable after a round, where it has that dtype and shape."""
    dtype, shape = spec
    if not _is_value(value):
        raise TypeError(
            _at(f"{_described(name)} is a tensor of {name_of(dtype)} before a loop that depends on "
                f"a tensor, and {_kind(value)} after a round")
        )  # fmt: skip
    made = convert(value) if hasattr(value, "dtype") else _number(name, value, dtype)
    if made.dtype != dtype:
        raise TypeError(
            _at(f"{_described(name)} has dtype {name_of(dtype)} before a loop that depends on a "
                f"tensor, and dtype {name_of(made.dtype)} after a round: cast it")
        )  # fmt: skip
    extents = made.shape
    fits = shape is None or (
        extents is not None
        and len(extents) == len(shape)
        and all(known in (-1, extent) for known, extent in zip(shape, extents))
    )
    if not fits:
        raise ValueError(
            _at(f"{_described(name)} has shape {_extents(shape)} before a loop that depends on a "
                f"tensor, and shape {_extents(extents)} after a round: say what it may be, with "
                f"sidereal.autograph.experimental.set_loop_options(shape_invariants=[({name}, "
                "shape)]) at the beginning of the loop")
        )  # fmt: skip
    return made


def _extents(shape: Any) -> str:
    return "unknown" if shape is None else str(tuple(None if n < 0 else n for n in shape))


def _number(name: str, value: Any, dtype: Any) -> Any:
    try:
        return convert(value, dtype)
    except (TypeError, ValueError):
        return convert(value)


class Rows:
    """What a loop of a graph takes one row after another of: nested tensors."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows


def for_stmt(
    iter_: Any, extra_test: Callable[[], Any] | None, body: Callable[[Any], Any],
    get_state: Callable[[], Any], set_state: Callable[[Any], Any], symbol_names: Sequence[str],
    opts: dict[str, Any],
) -> None:  # fmt: skip
    """for target in iter_: body(target), while extra_test()."""
    if symbolic(iter_):
        iter_ = Rows(iter_)
    if isinstance(iter_, Rows):
        leaf = convert(nest.flatten(iter_.rows)[0])
        if leaf.shape is not None and len(leaf.shape) == 0:
            raise TypeError(_at("a scalar tensor cannot be iterated over"))
        loop = _Loop(leaf, body, get_state, set_state, symbol_names, opts)
        loop.run(extra_test, rows=iter_.rows)
    elif state.graph is not None and hasattr(iter_, "_loop_iterator"):
        source = iter_._loop_iterator()
        loop = _Loop(None, body, get_state, set_state, symbol_names, opts)
        loop.run(extra_test, source=source)
    elif extra_test is None:
        for target in iter_:
            body(target)
    else:
        _unrolled(iter(iter_), extra_test, body, get_state, set_state, symbol_names)


def _unrolled(
    elements: Any, test: Callable[[], Any], body: Callable[[Any], Any],
    get_state: Callable[[], Any], set_state: Callable[[Any], Any], names: Sequence[str],
) -> None:  # fmt: skip
    """A loop of Python that may end early; where that depends on a tensor, each of its rounds is a
    branch."""
    nothing, rounds = object(), 0
    while True:
        flag = test()
        is_open = symbolic(flag)
        target = next(elements, nothing) if is_open or flag else nothing
        if target is nothing:
            return
        if not is_open:
            body(target)
            continue
        rounds += 1
        if rounds > _ROUNDS_MAX:
            break
        round_ = functools.partial(body, target)
        if_stmt(flag, round_, lambda: None, get_state, set_state, names, len(names))
    raise errors.UnimplementedError(
        _at(f"a loop of Python, which a tensor may leave, has more than {_ROUNDS_MAX} rounds: loop "
            "over a tensor, as sidereal.range(n)")
    )  # fmt: skip


# --- Python's own functions.


def _len(s: Any) -> Any:
    if not symbolic(s):
        return len(s)
    shape = s.shape
    if shape is not None and len(shape) and shape[0] >= 0:
        return int(shape[0])
    return array.shape(s)[0]


def _range(*limits: Any) -> Any:
    if not any(symbolic(each) for each in limits):
        return range(*limits)
    start, stop, step = (0, *limits, 1) if len(limits) == 1 else (*limits, 1)[:3]
    # Where Python's is empty, sidereal.range() is an error.
    if not symbolic(step):
        stop = (math.maximum if step > 0 else math.minimum)(stop, start)
    return array.range(start, stop, step)


def _int(x: Any = 0, *base: Any) -> Any:
    return cast(x, "int32") if symbolic(x) else int(x, *base)


def _float(x: Any = 0.0) -> Any:
    return cast(x, "float32") if symbolic(x) else float(x)


def _enumerate(iterable: Any, start: Any = 0) -> Any:
    if symbolic(iterable):
        count = _len(iterable)
        return Rows((array.range(start, start + count), iterable))
    if isinstance(iterable, Rows):
        count = _len(nest.flatten(iterable.rows)[0])
        return Rows((array.range(start, start + count), iterable.rows))
    if state.graph is not None and hasattr(iterable, "_loop_iterator"):
        return iterable.enumerate(start)
    return enumerate(iterable, start)


def _zip(*iterables: Any, strict: bool = False) -> Any:
    if iterables and all(symbolic(each) or isinstance(each, Rows) for each in iterables):
        return Rows(tuple(e.rows if isinstance(e, Rows) else e for e in iterables))
    return zip(*iterables, strict=strict)


def _extreme(python: Callable[..., Any], pairwise: Callable[..., Any], reduced: Any) -> Any:
    def call(*values: Any, **kwargs: Any) -> Any:
        if not any(symbolic(each) for each in values) or kwargs:
            return python(*values, **kwargs)
        return reduced(values[0]) if len(values) == 1 else functools.reduce(pairwise, values)

    return call


def _any(iterable: Any) -> Any:
    found: Any = False
    for each in iterable:
        found = or_(lambda: found, lambda: each)  # noqa: B023 - called at once
        if not symbolic(found) and found:
            return True
    return found if symbolic(found) else False


def _all(iterable: Any) -> Any:
    found: Any = True
    for each in iterable:
        found = and_(lambda: found, lambda: each)  # noqa: B023 - called at once
        if not symbolic(found) and not found:
            return False
    return found if symbolic(found) else True


_conversion.builtins.update({
    len: _len, range: _range, int: _int, float: _float, enumerate: _enumerate, zip: _zip,
    min: _extreme(min, math.minimum, math.reduce_min),
    max: _extreme(max, math.maximum, math.reduce_max),
    any: _any, all: _all,
    map: lambda function, *iterables: map(callee(function), *iterables),
    filter: lambda function, iterable: filter(callee(function), iterable),
    functools.reduce: lambda function, *rest: functools.reduce(callee(function), *rest),
})  # fmt: skip

for _operator_ in (
    FunctionScope, Undefined, UndefinedReturnValue, and_, assert_stmt, callee, caught, chain,
    for_stmt, if_exp, if_stmt, ld, ldu, not_, or_, while_stmt, with_function_scope,
):  # fmt: skip
    setattr(_conversion.operators, _operator_.__name__, _operator_)
_conversion.operators.autograph_artifact = marked
_conversion.operators.STD = None

__all__ = ["Rows", "symbolic"]
