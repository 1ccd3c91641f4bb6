"""Functions of graphs made of Python functions: bodies of branches and loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import _native, errors, nest
from ._dispatch import convert, state
from ._graphs import FuncGraph, Graph, graph_of, note_bodies
from ._native import Output, Tensor
from ._sites import add_line, user_line

Spec = tuple[Any, Any]  # dtype, shape (None: unknown rank; -1 for unknown extents)


def graph_for(*values: Any) -> Graph | None:
    """The graph that control flow on these values is added to; None when it runs at once."""
    if state.graph is not None:
        return state.graph
    for value in nest.flatten(list(values)):
        if type(value) is Output:
            return graph_of(value)
    return None


class Body:
    """A Python function traced with symbolic arguments.

    `structure` is what it returned, `outputs` the values among its leaves that are not None.
    Arguments are of `specs`, then `variables`, which have these values when it begins, then `rows`;
    the function gets the first and the last. It may assign to variables with `gives_assigned`:
    whoever makes it looks at `graph.assigned`.
    """

    def __init__(
        self, name: str, function: Callable[..., Any], specs: Sequence[Spec], outer: Graph,
        gives_assigned: bool = False, variables: Sequence[Any] = (), rows: Sequence[Spec] = (),
    ) -> None:  # fmt: skip
        self.name = name
        self.graph = FuncGraph(name, outer)
        self.graph.gives_assigned = gives_assigned
        with self.graph.building():
            arguments = [self.graph.input(dtype, shape) for dtype, shape in specs]
            for variable in variables:
                self.graph.begin_with(
                    variable, self.graph.input(variable.dtype, tuple(variable.shape))
                )
            arguments += [self.graph.input(dtype, shape) for dtype, shape in rows]
            self.structure = function(arguments)
            self.leaves = [
                None if leaf is None else self.graph.enter(convert(leaf))
                for leaf in nest.flatten(self.structure)
            ]
        self.outputs = [leaf for leaf in self.leaves if leaf is not None]

    def shape_of_result(self) -> Any:
        """What two branches must have in common: nesting, and where None is."""
        return nest.describe(
            nest.pack(self.structure, self.leaves), lambda leaf: "None" if leaf is None else "value"
        )

    @property
    def assigned(self) -> list[Any]:
        """The variables that it assigns to."""
        return [variable for variable, _ in self.graph.assigned]

    def values_of(self, variables: Sequence[Any]) -> list[Output]:
        """What variables are when it has run."""
        with self.graph.building():
            return [self.graph.enter(self.graph.read_variable(each)) for each in variables]

    def pack(self, values: Sequence[Any]) -> Any:
        """`values` in the structure of the result."""
        rest = iter(values)
        return nest.pack(
            self.structure, [None if leaf is None else next(rest) for leaf in self.leaves]
        )


def add_control(
    outer: Graph,
    op: str,
    inputs: Sequence[Output],
    bodies: Mapping[str, tuple[Body, Sequence[Output]]],
    attrs: Mapping[str, Any],
    name: str | None,
) -> list[Output]:
    """Adds a node that runs bodies; its outputs. Bodies are given by attribute, with what they
    return. What any of them captures becomes an input of all."""
    captured: dict[tuple[int, int], Output] = {}
    inside: dict[str, dict[tuple[int, int], Output]] = {}
    for role, (body, _) in bodies.items():
        inside[role] = {}
        for value, placeholder in body.graph.captures:
            entered = outer.enter(value)
            key = (entered.node, entered.index)
            captured[key] = entered
            inside[role][key] = placeholder
    functions = {}
    for role, (body, outputs) in bodies.items():
        arguments: list[Any] = list(body.graph.arguments)
        for key, value in captured.items():
            arguments.append(inside[role].get(key, (value.dtype, value.shape)))
        functions[role] = _native.cut_body(body.graph.native, arguments, outputs)
    controls = outer.before_bodies([body.graph for body, _ in bodies.values()])
    first = len(outer.native)
    try:
        made = _native.add_control(
            outer.native,
            op,
            [*inputs, *captured.values()],
            functions,
            dict(attrs),
            outer.node_name(name),
            user_line(),
            controls,
        )
        outer.place_nodes(outer.native, first)
        if made:
            natives = [body.graph.native for body, _ in bodies.values()]
            note_bodies(outer.native, made[0].node_name, natives)
        return made
    except errors.Error as error:
        add_line(error)
        raise


def _assign(outer: Graph, variables: Sequence[Any], values: Sequence[Output]) -> None:
    with outer.building():
        for variable, value in zip(variables, values):
            outer.assign_variable(variable, value)


def add_branches(outer: Graph, flag: Output, yes: Body, no: Body, name: str) -> list[Output]:
    """Adds a conditional of two bodies, whose outputs have the same dtypes; its outputs. The
    variables that either assigns to are assigned to."""
    variables = list({id(each): each for body in (yes, no) for each in body.assigned}.values())
    bodies = {
        role: (body, [*body.outputs, *body.values_of(variables)])
        for role, body in (("then_branch", yes), ("else_branch", no))
    }
    made = add_control(outer, "If", [flag], bodies, {}, name)
    count = len(yes.outputs)
    _assign(outer, variables, made[count:])
    return made[:count]


def add_loop(
    outer: Graph, first: Sequence[Output], specs: Sequence[Spec], step: Callable[..., Any],
    test: Callable[..., Any] | None, rows: Sequence[Output], attrs: Mapping[str, Any], name: str,
) -> list[Output]:  # fmt: skip
    """Adds a loop of step(arguments), which gives the next ones: while test(arguments) is true, or,
    where that is None, for all rows, which are arguments as well. The last arguments. The variables
    that a step assigns to are assigned to."""
    row_specs = [(row.dtype, None if row.shape is None else tuple(row.shape[1:])) for row in rows]
    variables: list[Any] = []
    body = Body("body", step, specs, outer, True, (), row_specs)
    # What is assigned to is known when a step was traced; then it is a variable of the loop.
    while len(body.assigned) > len(variables):
        variables = body.assigned
        body = Body("body", step, specs, outer, True, variables, row_specs)
    with outer.building():
        starts = [*first, *(outer.enter(outer.read_variable(each)) for each in variables)]
    bodies = {"body": (body, [*body.outputs, *body.values_of(variables)])}
    attrs = {**attrs, "variables": len(starts)}
    if test is None:
        op, attrs["sequences"] = "Scan", len(rows)
    else:
        op, condition = "While", Body("cond", test, specs, outer, False, variables)
        bodies["cond"] = (condition, condition.outputs)
    made = add_control(outer, op, [*starts, *rows], bodies, attrs, name)
    _assign(outer, variables, made[len(first) :])
    return made[: len(first)]


def spec_of(value: Any) -> Spec:
    return value.dtype, value.shape


def flatten_like(structure: Any, other: Any, what: str) -> list[Any]:
    """For every leaf of `structure`, what stands in its place in `other`, which may be nested
    on."""
    if isinstance(structure, Mapping):
        if not isinstance(other, Mapping) or set(structure) != set(other):
            raise ValueError(f"{what} must be nested like the values: {structure!r}")
        return [
            x for key in sorted(structure) for x in flatten_like(structure[key], other[key], what)
        ]
    if isinstance(structure, (list, tuple)):
        if not isinstance(other, (list, tuple)) or len(structure) != len(other):
            raise ValueError(f"{what} must be nested like the values: {structure!r}")
        return [x for a, b in zip(structure, other) for x in flatten_like(a, b, what)]
    return [other]


def known_tensor(value: Any) -> Tensor | None:
    """`value` as a tensor if it has a value now."""
    if type(value) is Output:
        return None
    if type(value) is Tensor:
        return value
    if hasattr(value, "_as_tensor") and state.graph is not None:
        return None
    made = convert(value)
    return made if type(made) is Tensor else None
