"""Graphs being built: by layers (a Model's), or by tracing a function."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from . import _native, errors
from ._engine import ENGINE, state
from ._native import Output, Tensor
from ._sites import add_line, user_line
from ._values import to_tensor

#: Something that lasts and that nodes read or change: its handle, as (node, index); None: whatever
#: has none, such as what is printed. True: it is changed.
Effects = dict[tuple[int, int] | None, bool]


class ElsewhereError(errors.UnimplementedError):
    """Raised while a function is traced for this process that uses what lives on a cluster, which
    `home` knows: it has _run_function() and _concrete_function() of (function, args, kwargs)."""

    def __init__(self, message: str, home: Any) -> None:
        super().__init__(message)
        self.home = home


class Graph:
    """A graph being built. `outer` is the graph that was being built when this one was begun, None
    when ops ran at once."""

    def __init__(self, native: _native.GraphBase, outer: Graph | None = None) -> None:
        self.native = native
        self.outer = outer
        #: Numbers of the nodes that what is added now waits for.
        self.controls: list[int] = []
        #: What nodes refer to and only Python knows, there as long as the graph is.
        self.kept: list[object] = native.__dict__.setdefault("kept", [])

    def enter(self, value: Any) -> Output:
        """`value` as a value of this graph."""
        if type(value) is Output:
            return value if value.graph is self.native else self.capture(value)
        if type(value) is Tensor:
            return self.capture(value)
        if hasattr(value, "_cell"):
            # A variable. Inside of a function it is read by name of the graph being built.
            return (
                self.enter(value._as_tensor()) if state.graph is self else self.read_variable(value)
            )
        as_tensor = getattr(value, "_as_tensor", None)
        if as_tensor is not None:
            return self.enter(as_tensor())
        return self.constant(to_tensor(value))

    def constant(self, value: Tensor) -> Output:
        """A constant of the graph."""
        return self.add("Const", (), {"value": value}, None)

    def capture(self, value: Tensor | Output) -> Output:
        """A value from outside as a value of this graph."""
        if type(value) is Tensor:
            return self.constant(value)
        raise errors.InvalidArgumentError("values of two models or graphs cannot be combined")

    def read_variable(self, variable: Any) -> Output:
        """The value of a sidereal.Variable."""
        raise errors.UnimplementedError(
            f"variable '{variable.name}' lives in this process and cannot be part of a model's "
            "graph; its layers have variables of their own"
        )

    def assign_variable(self, variable: Any, value: Output) -> None:
        """Gives a sidereal.Variable another value when the graph has run."""
        self.read_variable(variable)

    def add(
        self, op: str, inputs: Sequence[Output], attrs: Mapping[str, Any] | None, name: str | None
    ) -> Any:
        """Adds a node; a value, a tuple of values or None."""
        first = len(self.native)
        made = self.native.add(
            op, inputs, attrs, self.node_name(name, op), user_line(), self.controls
        )
        self.place_nodes(self.native, first)
        return made

    def node_name(self, name: str | None, op: str = "") -> str | None:
        """What a node is called that is to be called `name`; None: as the core calls it."""
        return None if name is None else legal_name(name)

    def place_nodes(self, native: _native.GraphBase, first: int) -> None:
        """Told of what was added to this graph, or to a body inside of it: the nodes from number
        `first` on."""
        if self.outer is not None:
            self.outer.place_nodes(native, first)

    def before_bodies(self, bodies: Sequence[FuncGraph]) -> list[int]:
        """Told of a node to come that runs `bodies`; numbers of the nodes that it waits for."""
        return self.controls

    def keep(self, things: Sequence[object]) -> None:
        """Keeps what nodes refer to: Python functions."""
        self.kept += things

    def operation(self, value: Output) -> Any:
        """What stands for a node that is run for what it does: in functions nothing, as these run
        all of them in order."""
        return None

    @property
    def open_values(self) -> list[Output] | None:
        """Values that datasets which are made here leave open, by number; None where no function is
        traced."""
        return None

    @property
    def container_name(self) -> str:
        """The container of queues and the like that are made here."""
        return "" if self.outer is None else self.outer.container_name

    def resource_name(self, name: str, in_body: bool = False) -> str | None:
        """What a queue or the like that is made here, or in a body inside of it, is called when it
        has no shared name. None: as nothing else is in this process."""
        return None if self.outer is None else self.outer.resource_name(name, True)

    @contextmanager
    def building(self) -> Iterator[None]:
        """Ops are added to this graph while the context lasts."""
        before = state.graph
        state.graph = self
        try:
            yield
        finally:
            state.graph = before


class FuncGraph(Graph):
    """The graph of a function: what it uses from outside becomes an input.

        graph = FuncGraph("body")
        with graph.building():
            x = graph.input(dtype, shape)
            y = f(x)
        function = graph.native.function("body", graph.inputs, [y])

    `captures` are the pairs (value outside, input inside) in order of first use; `inputs` the
    inputs given to input(), then the captured ones.
    """

    #: Whether it never runs: only shapes and dtypes are asked for, or what was called.
    is_sketch = False

    def __init__(
        self, name: str, outer: Graph | None = None, native: _native.Graph | None = None
    ) -> None:
        super().__init__(
            _native.Graph(ENGINE, ordered=True) if native is None else native,
            outer if outer is not None else state.graph,
        )
        self.name = name
        #: Whether values of other graphs may be captured where there is none around this one.
        self.takes_outputs = False
        #: Whether whoever makes a branch or loop of it sees to the variables that it assigns to.
        self.gives_assigned = False
        self.arguments: list[Output] = []
        self._open_values: list[Output] = []
        self.captures: list[tuple[Any, Output]] = []
        self._variables: dict[int, tuple[Any, Output]] = {}
        self._assigned: dict[int, Any] = {}
        self._captured: dict[object, Output] = {}

    @property
    def effects(self) -> Effects:
        """What is read and changed in it, as far as the graph around all asked for it; handles are
        values of this graph."""
        return self.native.__dict__.setdefault("effects", {})

    @property
    def open_values(self) -> list[Output]:
        return self._open_values

    def before_bodies(self, bodies: Sequence[FuncGraph]) -> list[int]:
        add_effects(self.effects, effects_in(self, bodies))
        return super().before_bodies(bodies)

    def keep(self, things: Sequence[object]) -> None:
        super().keep(things)
        # As a branch or loop, it becomes part of the graph around it.
        if self.outer is not None:
            self.outer.keep(things)

    @property
    def inputs(self) -> list[Output]:
        return [*self.arguments, *(inside for _, inside in self.captures)]

    def input(self, dtype: Any, shape: Sequence[int] | None, name: str = "x") -> Output:
        """One more argument."""
        made = self.native.placeholder(legal_name(name), dtype, shape)
        self.arguments.append(made)
        return made

    def capture(self, value: Tensor | Output) -> Output:
        if type(value) is Output:
            if self.outer is None and not self.takes_outputs:
                raise errors.InaccessibleTensorError(
                    f"{value!r} belongs to another graph, which is finished: a value made while a "
                    "function was traced, or a branch or loop of it, cannot be used after it: "
                    "return it from the function, or assign it to a variable of the code around"
                )
            value = entered = value if self.outer is None else self.outer.enter(value)
            key: object = (id(self.outer), entered.node, entered.index)
        else:
            key = value.id  # type: ignore[union-attr]  # a Tensor
        inside = self._captured.get(key)
        if inside is None:
            # What has a value is captured under its own identity, whatever the graphs between.
            inside = self.native.placeholder("captured", value.dtype, value.shape)
            self._captured[key] = inside
            self.captures.append((value, inside))
        return inside

    def captured(self, value: Any) -> Output | None:
        """What stands for a value from outside here, None when it is not used."""
        if type(value) is Tensor:
            return self._captured.get(value.id)
        if type(value) is Output and self.outer is not None:
            return self._captured.get((id(self.outer), value.node, value.index))
        return None

    def read_variable(self, variable: Any) -> Output:
        known = self._variables.get(id(variable))
        if self.outer is not None and known is None:
            return self.enter(self.outer.read_variable(variable))
        if known is None:
            name = legal_name(variable.name)
            inside = self.native.placeholder(name, variable.dtype, variable.shape)
            # What is captured is the variable: its value is taken at each call.
            self.captures.append((variable, inside))
            known = self._variables[id(variable)] = (variable, inside)
        return known[1]

    def assign_variable(self, variable: Any, value: Output) -> None:
        if self.outer is not None and not self.gives_assigned:
            raise errors.UnimplementedError(
                f"variable '{variable.name}' is assigned to inside of a function that is mapped or "
                "scanned with; return the new value from it and assign that"
            )
        self.read_variable(variable)
        # A variable that is read again is another value to gradients.
        kept = self.add("StopGradient", [self.enter(value)], None, None)
        self._variables[id(variable)] = (variable, kept)
        self._assigned[id(variable)] = variable

    def has_changed(self, variable: Any, outer: Graph) -> bool:
        """Whether a variable may be another one here than in a graph around this one."""
        graph: Graph | None = self
        while isinstance(graph, FuncGraph) and graph is not outer:
            if id(variable) in graph._variables and graph.outer is not None:
                return True
            graph = graph.outer
        return False

    def begin_with(self, variable: Any, value: Output) -> None:
        """Says what a variable is at the beginning of a body."""
        self._variables[id(variable)] = (variable, value)

    @property
    def assigned(self) -> list[tuple[Any, Output]]:
        """The variables assigned to, each with its last value."""
        return [self._variables[key] for key in self._assigned]


def add_effects(to: Effects, more: Effects) -> None:
    """Adds effects to others."""
    for key, changes in more.items():
        to[key] = changes or to.get(key, False)


def effects_in(outer: Graph, bodies: Sequence[FuncGraph]) -> Effects:
    """The effects of bodies, with the handles that they are in the graph around them. What a body
    makes itself is nobody else's."""
    found: Effects = {}
    for body in bodies:
        if not body.effects:
            continue
        if None in body.effects:
            add_effects(found, {None: body.effects[None]})
        for value, inside in body.captures:
            key = (inside.node, inside.index)
            if key in body.effects:
                entered = outer.enter(value)
                add_effects(found, {(entered.node, entered.index): body.effects[key]})
    return found


def graph_of(value: Output) -> Graph:
    """The graph an output belongs to, when none is being built: a model's."""
    native = value.graph
    owner = getattr(native, "owner", None)
    if owner is not None:
        return owner
    if isinstance(native, _native.Graph):
        error = errors.InaccessibleTensorError(
            f"{value!r} has no value: it was made while a function was traced, and is used outside "
            "of it; return it from the function"
        )
        add_line(error)
        raise error
    return Graph(native)


def legal_name(name: str) -> str:
    """`name` with every character that node names cannot have replaced; <lambda> is lambda."""
    name = name.strip("<>") or name
    name = re.sub(r"[^A-Za-z0-9_.\\/>-]", "_", name)
    return name if re.match(r"[A-Za-z0-9.]", name) else "n" + name


_NODE = re.compile(r"\b([A-Za-z0-9]+) '([^']+)'")


def nodes_named(error: errors.Error) -> list[tuple[str, str]]:
    """(op, name) of the nodes that an error names."""
    return _NODE.findall(error.message)


def note_bodies(native: _native.GraphBase, name: str, bodies: Sequence[_native.GraphBase]) -> None:
    """Says that the node of that name runs bodies, for locate()."""
    native.__dict__.setdefault("bodies", {})[name] = bodies


def _line_within(native: _native.GraphBase, names: Sequence[str]) -> str:
    """The line that made the last of nodes, each of which is in a body of the one before; "" where
    that is not known for sure."""
    natives: Sequence[_native.GraphBase] = [native]
    for name in names[:-1]:
        natives = [body for one in natives for body in one.__dict__.get("bodies", {}).get(name, ())]
    sites = {site for one in natives if (site := one.site_of(names[-1]))}
    return sites.pop() if len(sites) == 1 else ""


def locate(error: errors.Error, native: _native.GraphBase) -> None:
    """Adds to an error of a running graph the line that made the node it names."""
    names = [name for _, name in nodes_named(error)]
    if len(names) > 1 and (line := _line_within(native, names)):
        add_line(error, line)
        return
    for _, name in nodes_named(error):
        site = native.site_of(name)
        if not site:
            for part in name.split("/"):
                if part.endswith("_grad"):
                    site = native.site_of(part[: -len("_grad")]) or site
        if site:
            add_line(error, site)
            return
