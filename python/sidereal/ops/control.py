"""Conditionals and loops on tensors.

What has a value runs at once: the functions given are called as Python functions. On values of a
graph (in a sidereal.function, or a Model) each function is called once, with symbolic arguments,
and becomes a part of the graph that runs as often as it is needed; what it uses from outside it
captures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import errors, nest
from .._bodies import (
    Body,
    add_branches,
    add_control,
    add_loop,
    flatten_like,
    graph_for,
    spec_of,
)
from .._conversion import inside
from .._dispatch import ENGINE, apply, convert, state
from .._graphs import FuncGraph
from .._native import Output, Tensor
from ..dtypes import as_dtype, bool_, name_of
from . import array

_NO_ROWS = "elems have no rows, and there is no initializer"

Fn = Callable[..., Any]


def flag_of(value: Any, what: str) -> Any:
    """`value` as a bool scalar: a number is true when it is not 0."""
    value = convert(value)
    shape = value.shape
    if shape is not None and any(extent not in (1, -1) for extent in shape):
        raise errors.InvalidArgumentError(f"{what} has shape {shape}; it must be a scalar")
    if value.dtype != bool_:
        value = apply("Cast", (value,), {"dtype": "bool"})
    if shape is None or len(shape) > 0:
        value = apply("Reshape", (value,), {"shape": []})
    return value


def _check_callable(**functions: Any) -> None:
    for name, function in functions.items():
        if not callable(function):
            raise TypeError(f"{name} must be a function, not {type(function).__name__}")


def cond(pred: Any, true_fn: Fn, false_fn: Fn, name: str | None = None) -> Any:
    """What `true_fn()` returns where the scalar `pred` is true, else what `false_fn()` returns
    (tf.cond). In a graph both are traced, one runs; both must return values of the same dtypes,
    nested in the same way, which may have different shapes.

    Errors: TypeError when the functions are none, or return different structures.
    """
    _check_callable(true_fn=true_fn, false_fn=false_fn)
    true_fn, false_fn = inside(true_fn), inside(false_fn)
    graph = graph_for(pred)
    if graph is None or isinstance(pred, bool):
        return true_fn() if bool(flag_of(pred, "pred") if graph is None else pred) else false_fn()
    with graph.building():
        flag = graph.enter(flag_of(pred, "pred"))
    yes = Body("then", lambda _: true_fn(), (), graph, gives_assigned=True)
    no = Body("else", lambda _: false_fn(), (), graph, gives_assigned=True)
    if yes.shape_of_result() != no.shape_of_result():
        raise TypeError(
            "cond(): true_fn and false_fn must return the same structure; they return "
            f"{yes.structure!r} and {no.structure!r}"
        )
    for index, (a, b) in enumerate(zip(yes.outputs, no.outputs)):
        if a.dtype != b.dtype:
            raise TypeError(
                f"cond(): result {index} is {name_of(a.dtype)} from true_fn and {name_of(b.dtype)} "
                "from false_fn; cast one"
            )
    return yes.pack(add_branches(graph, flag, yes, no, name or "cond"))


def case(
    pred_fn_pairs: Any,
    default: Fn | None = None,
    exclusive: bool = False,
    strict: bool = False,
    name: str | None = None,
) -> Any:
    """The result of the function of the first pair (pred, fn) whose `pred` is true, of `default()`
    when none is (tf.case). `pred_fn_pairs` is a list of pairs or a dict. `exclusive`: it is an
    error when more than one is true (checked where values are known). `strict` changes nothing.

    Errors: InvalidArgumentError when nothing is true and there is no default; in a graph,
    UnimplementedError when there is no default.
    """
    del strict
    pairs = list(pred_fn_pairs.items() if isinstance(pred_fn_pairs, Mapping) else pred_fn_pairs)
    if not pairs:
        raise ValueError("case(): there are no pairs")
    pairs = [(pred.deref() if hasattr(pred, "deref") else pred, fn) for pred, fn in pairs]
    for _, function in pairs:
        _check_callable(fn=function)
    graph = graph_for(*(pred for pred, _ in pairs))
    if graph is None:
        true = [fn for pred, fn in pairs if bool(flag_of(pred, "a predicate"))]
        if exclusive and len(true) > 1:
            raise errors.InvalidArgumentError(f"case(): {len(true)} predicates are true")
        if not true and default is None:
            raise errors.InvalidArgumentError("case(): no predicate is true; give a default")
        return (true[0] if true else default)()  # type: ignore[misc]
    if default is None:
        raise errors.UnimplementedError(
            "case() in a graph needs a default: what happens when no predicate is true"
        )

    def choose(rest: Sequence[Any]) -> Any:
        if not rest:
            return default()
        return cond(rest[0][0], rest[0][1], lambda: choose(rest[1:]), name)

    return choose(pairs)


def switch_case(
    branch_index: Any, branch_fns: Any, default: Fn | None = None, name: str | None = None
) -> Any:
    """The result of `branch_fns[branch_index]()` (tf.switch_case). `branch_fns` is a list of
    functions, a list of pairs (int, function), or a dict of them. For any other index `default()`,
    or the function of the greatest index when there is none.
    """
    if isinstance(branch_fns, Mapping):
        items = sorted(branch_fns.items())
    else:
        items = [
            item if isinstance(item, tuple) else (index, item)
            for index, item in enumerate(branch_fns)
        ]
        items.sort(key=lambda item: item[0])
    if not items:
        raise ValueError("switch_case(): there are no functions")
    for _, function in items:
        _check_callable(fn=function)
    if len({index for index, _ in items}) != len(items):
        raise ValueError("switch_case(): an index is given twice")
    otherwise = items[-1][1] if default is None else default
    graph = graph_for(branch_index)
    if graph is None:
        chosen: Any = dict(items).get(int(convert(branch_index)), otherwise)
        return chosen()

    def choose(rest: Sequence[Any]) -> Any:
        if not rest:
            return otherwise()
        index, function = rest[0]
        same = apply("Equal", (branch_index, convert(index, branch_index.dtype)))
        return cond(same, function, lambda: choose(rest[1:]), name)

    with graph.building():
        return choose(items if default is not None else items[:-1])


def _results(result: Any, variables: Any) -> Any:
    """What a body returned, nested like its variables."""
    if len(variables) == 1 and not isinstance(result, (list, tuple)):
        result = [result]
    if isinstance(result, list) != isinstance(variables, list) and isinstance(
        result, (list, tuple)
    ):
        result = type(variables)(result) if not hasattr(variables, "_fields") else result
    same = nest.describe(result, lambda _: None) == nest.describe(variables, lambda _: None)
    if not same:
        raise ValueError(
            "while_loop(): body must return values nested like loop_vars; it returns "
            f"{result!r} for {variables!r}"
        )
    return result


def _like(value: Any, variable: Any, index: int) -> Any:
    """What stands for a loop variable after an iteration, in the variable's dtype."""
    if not isinstance(value, (Tensor, Output)) and not hasattr(value, "_as_tensor"):
        return convert(value, variable.dtype)
    value = convert(value)
    if value.dtype != variable.dtype:
        raise TypeError(
            f"while_loop(): loop variable {index} is {name_of(variable.dtype)} and the body makes"
            f" it {name_of(value.dtype)}; cast it"
        )
    return value


def while_loop(
    cond: Fn,
    body: Fn,
    loop_vars: Sequence[Any],
    shape_invariants: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    maximum_iterations: Any = None,
    name: str | None = None,
) -> Any:
    """Repeats `loop_vars = body(*loop_vars)` while `cond(*loop_vars)` is true, at most
    `maximum_iterations` times, and returns the variables, nested as they were given
    (tf.while_loop).

    loop_vars: a list or tuple of values, each perhaps nested. They keep their dtypes.
    shape_invariants: by variable, the shape it has in every iteration, with None for extents that
        change; without it, that of the first value. In a graph, another shape is an error.
    parallel_iterations, back_prop and swap_memory change nothing.

    Gradients flow through the variables and what the body captures. Errors: TypeError when the body
    changes a dtype; ValueError when it returns another structure; InvalidArgumentError, naming the
    variable, for shapes.
    """
    del parallel_iterations, back_prop, swap_memory
    _check_callable(cond=cond, body=body)
    cond, body = inside(cond), inside(body)
    if not isinstance(loop_vars, (list, tuple)) or not loop_vars:
        raise TypeError("loop_vars must be a list or tuple of at least one value")
    graph = graph_for(loop_vars, maximum_iterations)
    if graph is None:
        values = nest.map_structure(convert, loop_vars)
        limit = None if maximum_iterations is None else int(convert(maximum_iterations))
        iteration = 0
        while (limit is None or iteration < limit) and bool(flag_of(cond(*values), "cond")):
            result = nest.flatten(_results(body(*values), loop_vars))
            old = nest.flatten(values)
            new = [_like(value, before, i) for i, (value, before) in enumerate(zip(result, old))]
            values = nest.pack(loop_vars, new)
            iteration += 1
        return values
    if isinstance(maximum_iterations, Output):
        return _bounded_loop(
            cond, body, loop_vars, shape_invariants, maximum_iterations, name or "while"
        )
    with graph.building():
        first = [graph.enter(convert(leaf)) for leaf in nest.flatten(loop_vars)]
    specs = [spec_of(value) for value in first]
    if shape_invariants is not None:
        shapes = flatten_like(loop_vars, shape_invariants, "shape_invariants")
        specs = [(dtype, extents_of(shape)) for (dtype, _), shape in zip(specs, shapes)]

    def once(arguments: list[Output]) -> list[Any]:
        result = nest.flatten(_results(body(*nest.pack(loop_vars, arguments)), loop_vars))
        return [_like(value, before, i) for i, (value, before) in enumerate(zip(result, arguments))]

    def test(arguments: list[Output]) -> Any:
        return flag_of(cond(*nest.pack(loop_vars, arguments)), "cond")

    attrs = {}
    if maximum_iterations is not None:
        attrs["maximum_iterations"] = max(int(maximum_iterations), 0)
    made = add_loop(graph, first, specs, once, test, (), attrs, name or "while")
    return nest.pack(loop_vars, made)


def _bounded_loop(
    cond: Fn, body: Fn, loop_vars: Any, invariants: Any, limit: Output, name: str
) -> Any:
    """A loop whose bound is known only when it runs: it counts for itself."""
    count = convert(0, limit.dtype)

    def more(*variables: Any) -> Any:
        within = apply("Less", (variables[0], limit))
        return apply("LogicalAnd", (within, flag_of(cond(*variables[1:]), "cond")))

    def next_one(*variables: Any) -> Any:
        result = _results(body(*variables[1:]), loop_vars)
        one = convert(1, limit.dtype)
        return [apply("Add", (variables[0], one)), *result]

    shapes = None if invariants is None else [(), *invariants]
    counted = while_loop(more, next_one, [count, *loop_vars], shapes, name=name)
    return type(loop_vars)(counted[1:]) if not hasattr(loop_vars, "_fields") else counted[1:]


def extents_of(shape: Any) -> Any:
    """A shape invariant: a shape, a TensorSpec, or None for an unknown rank."""
    shape = getattr(shape, "shape", shape)
    return None if shape is None else tuple(-1 if n is None else int(n) for n in shape)


def _rows_of(elems: Any, what: str) -> list[Any]:
    """The leaves of `elems`, each with rows, as many as the others."""
    leaves = [convert(leaf) for leaf in nest.flatten(elems)]
    if not leaves:
        raise ValueError(f"{what}: elems is empty")
    for leaf in leaves:
        if leaf.shape is not None and len(leaf.shape) == 0:
            raise ValueError(f"{what}: elems must have at least one dimension")
    counts = {leaf.shape[0] for leaf in leaves if leaf.shape is not None} - {-1}
    if len(counts) > 1:
        raise errors.InvalidArgumentError(f"{what}: elems have {sorted(counts)} rows")
    return leaves


def _row_spec(value: Any) -> tuple[Any, Any]:
    return value.dtype, None if value.shape is None else tuple(value.shape[1:])


def _accumulated(result: Any, state: Any, what: str) -> list[Any]:
    """What fn returned as the next state: the leaves, in the dtypes of `state`."""
    same = nest.describe(result, lambda _: None) == nest.describe(state, lambda _: None)
    if not same:
        raise TypeError(
            f"{what}: fn must return what is nested like the accumulated value, {state!r}; it "
            f"returns {result!r}"
        )
    pairs = zip(nest.flatten(result), nest.flatten(state))
    return [_like(value, before, i) for i, (value, before) in enumerate(pairs)]


def _fold(
    fn: Fn, elems: Any, initializer: Any, reverse: bool, collect: bool, what: str, name: str | None
) -> Any:
    """The state after the last row and, with `collect`, the states after every row."""
    _check_callable(fn=fn)
    fn = inside(fn)
    graph = graph_for(elems, initializer)
    if graph is not None:
        with graph.building():
            return _fold_in_graph(graph, fn, elems, initializer, reverse, collect, what, name)
    rows = _rows_of(elems, what)
    elements = list(zip(*(array.unstack(row) for row in rows)))
    if reverse:
        elements.reverse()
    states = []
    if initializer is None:
        if not elements:
            raise errors.InvalidArgumentError(f"{what}: {_NO_ROWS}")
        now = nest.pack(elems, list(elements[0]))
        states.append(nest.flatten(now))
        elements = elements[1:]
    else:
        now = nest.map_structure(convert, initializer)
    if collect and not elements and not states:
        return _traced(
            lambda *xs: _fold(fn, nest.pack(elems, list(xs)), now, reverse, collect, what, name),
            rows,
        )
    for element in elements:
        leaves = _accumulated(fn(now, nest.pack(elems, list(element))), now, what)
        states.append(leaves)
        now = nest.pack(now, leaves)
    if not collect:
        return now
    if reverse:
        states.reverse()
    return nest.pack(now, [array.stack(column) for column in zip(*states)])


def _fold_in_graph(
    graph: Any,
    fn: Fn,
    elems: Any,
    initializer: Any,
    reverse: bool,
    collect: bool,
    what: str,
    name: str | None,
) -> Any:
    rows = [graph.enter(row) for row in _rows_of(elems, what)]
    heads: list[Any] = []
    if initializer is None:
        structure = elems
        count = next((row.shape[0] for row in rows if row.shape is not None), -1)
        if count == 0:
            raise errors.InvalidArgumentError(f"{what}: {_NO_ROWS}")
        at, others = (-1, slice(None, -1)) if reverse else (0, slice(1, None))
        first = [row[at] for row in rows]
        heads = [array.expand_dims(value, 0) for value in first]
        rows = [row[others] for row in rows]
    else:
        structure = initializer
        first = [graph.enter(convert(leaf)) for leaf in nest.flatten(initializer)]

    def once(arguments: list[Output]) -> list[Any]:
        now = nest.pack(structure, arguments[: len(first)])
        element = nest.pack(elems, arguments[len(first) :])
        leaves = _accumulated(fn(now, element), now, what)
        return [*leaves, *leaves] if collect else leaves

    specs = [*(spec_of(value) for value in first), *(_row_spec(row) for row in rows)]
    body = Body("body", once, specs, graph)
    attrs = {"variables": len(first), "sequences": len(rows)}
    if reverse:
        attrs["reverse"] = True
    bodies = {"body": (body, body.outputs)}
    out = add_control(graph, "Scan", [*first, *rows], bodies, attrs, name or what)
    if not collect:
        return nest.pack(structure, out[: len(first)])
    ys = out[len(first) :]
    if heads:
        pairs = [(y, head) if reverse else (head, y) for y, head in zip(ys, heads)]
        ys = [array.concat(pair, 0) for pair in pairs]
    return nest.pack(structure, ys)


def scan(
    fn: Fn,
    elems: Any,
    initializer: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    infer_shape: bool = True,
    reverse: bool = False,
    name: str | None = None,
) -> Any:
    """Every state of `state = fn(state, element)` over the rows of `elems`, stacked (tf.scan).

    elems: a tensor, or nested tensors, with as many rows each. `fn` gets rows, nested in the same
    way.
    initializer: the first state; without it, the first row is the first state, and is part of the
        result. `fn` returns what is nested like it, in the same dtypes and shapes.
    reverse: from the last row to the first; states stand at the row they were made of.
    parallel_iterations, back_prop, swap_memory and infer_shape change nothing.
    """
    del parallel_iterations, back_prop, swap_memory, infer_shape
    return _fold(fn, elems, initializer, reverse, True, "scan", name)


def foldl(
    fn: Fn,
    elems: Any,
    initializer: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    name: str | None = None,
) -> Any:
    """The last state of `state = fn(state, element)` over the rows of `elems`, from the first to
    the last (tf.foldl). Arguments as of scan()."""
    del parallel_iterations, back_prop, swap_memory
    return _fold(fn, elems, initializer, False, False, "foldl", name)


def foldr(
    fn: Fn,
    elems: Any,
    initializer: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    name: str | None = None,
) -> Any:
    """As foldl(), from the last row to the first (tf.foldr)."""
    del parallel_iterations, back_prop, swap_memory
    return _fold(fn, elems, initializer, True, False, "foldr", name)


def map_fn(
    fn: Fn,
    elems: Any,
    dtype: Any = None,
    parallel_iterations: int | None = None,
    back_prop: bool = True,
    swap_memory: bool = False,
    infer_shape: bool = True,
    name: str | None = None,
    fn_output_signature: Any = None,
) -> Any:
    """`fn` of every row of `elems`, stacked (tf.map_fn). `elems` and the result of `fn` may be
    nested. `fn_output_signature` (or `dtype`), when given, is checked against what `fn` returns:
    dtypes, or TensorSpecs. The other arguments change nothing.
    """
    del parallel_iterations, back_prop, swap_memory, infer_shape
    _check_callable(fn=fn)
    fn = inside(fn)
    wanted = fn_output_signature if fn_output_signature is not None else dtype
    graph = graph_for(elems)
    rows = _rows_of(elems, "map_fn")
    if graph is None:
        if rows[0].shape[0] == 0:
            return _traced(
                lambda *xs: map_fn(fn, nest.pack(elems, list(xs)), wanted, name=name), rows
            )
        elements = zip(*(array.unstack(row) for row in rows))
        made = [fn(nest.pack(elems, list(element))) for element in elements]
        columns = zip(*([convert(leaf) for leaf in nest.flatten(one)] for one in made))
        out = [array.stack(column) for column in columns]
        _check_signature(out, wanted)
        return nest.pack(made[0], out)
    with graph.building():
        rows = [graph.enter(row) for row in rows]
        body = Body(
            "body", lambda args: fn(nest.pack(elems, args)), [_row_spec(row) for row in rows], graph
        )
        _check_signature(body.outputs, wanted)
        attrs = {"variables": 0, "sequences": len(rows)}
        out = add_control(
            graph, "Scan", rows, {"body": (body, body.outputs)}, attrs, name or "map_fn"
        )
        return body.pack(out)


def _check_signature(outputs: Sequence[Any], wanted: Any) -> None:
    if wanted is None:
        return
    for index, (value, one) in enumerate(zip(outputs, nest.flatten(wanted))):
        dtype = as_dtype(getattr(one, "dtype", one))
        if value.dtype != dtype:
            raise TypeError(
                f"map_fn(): result {index} of fn is {name_of(value.dtype)}; "
                f"fn_output_signature says {name_of(dtype)}"
            )


def _traced(function: Fn, arguments: Sequence[Any]) -> Any:
    """`function` of tensors, run as a graph: for loops that never run, of which only a graph knows
    what they would have made."""
    graph = FuncGraph("traced")
    with graph.building():
        inputs = [graph.input(value.dtype, value.shape) for value in arguments]
        result = function(*inputs)
        outputs = [graph.enter(leaf) for leaf in nest.flatten(result)]
    runs = graph.native.function("traced", graph.inputs, outputs)
    for tape in state.tapes:
        tape._keep(graph.kept)
    values = [*arguments, *(value for value, _ in graph.captures)]
    values = [value if type(value) is Tensor else value._as_tensor() for value in values]
    return nest.pack(result, runs.call(ENGINE, values))


def vectorized_map(
    fn: Fn, elems: Any, fallback_to_while_loop: bool = True, warn: bool = True
) -> Any:
    """map_fn() (tf.vectorized_map): rows are worked on one after another."""
    return map_fn(fn, elems)


__all__ = [
    "case", "cond", "foldl", "foldr", "map_fn", "scan", "switch_case", "vectorized_map",
    "while_loop",
]  # fmt: skip
