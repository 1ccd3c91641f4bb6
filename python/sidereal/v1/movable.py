"""What of a graph can go to other parameter servers while it runs, and which runs use that."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .. import _native, errors
from .._dispatch import ENGINE
from .._native import Output
from ..device_spec import DeviceSpec
from ..dtypes import as_dtype
from .graph import Graph
from .moving import Group, HeldVariable

#: The job whose tasks variables move between.
PS = "ps"
#: How many things an error names.
_NAMED_MAX = 3
#: What takes handles and may be anywhere.
_OF_SAVERS = ("SaveVariables", "RestoreVariables")


@functools.cache
def _makes_resource(op: str) -> bool:
    """Whether nodes of an op are handles of what tasks have by name."""
    return any(name == "shared_name" for name, *_ in _attrs_of(op))


@functools.cache
def _has_bodies(op: str) -> bool:
    """Whether nodes of an op run functions: they are nowhere in particular, for their nodes are
    where what these use is."""
    return any(kind == "function" for _, kind, *_ in _attrs_of(op))


def _attrs_of(op: str) -> list[Any]:
    try:
        return ENGINE.schema(op)["attrs"]
    except errors.Error:
        return []


def together(graph: Graph, without: Sequence[str] = ()) -> list[int]:
    """For each node the number of a node; those that must be on one device have the same: what
    takes a handle, what makes it, and what was made beside others. without: ops that may be
    anywhere, of which it is not so."""
    native = graph.native
    parents = list(range(len(native)))

    def root(node: int) -> int:
        while parents[node] != node:
            parents[node] = parents[parents[node]]
            node = parents[node]
        return node

    def join(a: int, b: int) -> None:
        x, y = root(a), root(b)
        parents[max(x, y)] = min(x, y)

    handles: set[int] = set()
    #: The first that has a name: of a resource, or of those made beside it.
    first: dict[tuple[str, str], int] = {}
    for node in range(len(native)):
        op, attrs = native.node_op(node), _native.attrs_of(native, node)
        if _makes_resource(op):
            handles.add(node)
            join(first.setdefault((op, _name_of(native, node, attrs)), node), node)
        join(first.setdefault(("", native.node_name(node)), node), node)
        for beside in attrs.get("_class") or []:
            join(first.setdefault(("", beside.removeprefix("loc:@")), node), node)
        if op in without or _has_bodies(op):
            continue
        taken = [value.node for value in native.node_inputs(node) if value.node in handles]
        for source in taken:
            join(source, node)
        if taken and op in ("Identity", "StopGradient"):
            handles.add(node)
    return [root(node) for node in range(len(native))]


def _name_of(native: _native.GraphBase, node: int, attrs: Mapping[str, Any]) -> str:
    """As tasks know a resource, with its container."""
    name = attrs.get("shared_name") or native.node_name(node)
    container = attrs.get("container") or ""
    return f"{container}/{name}" if container else name


def has_savers_that_tie(graph: Graph) -> bool:
    """Whether one node of a Saver has variables that could be on several tasks."""
    native = graph.native
    saves = [node for node in range(len(native)) if native.node_op(node) in _OF_SAVERS]
    roots = together(graph, _OF_SAVERS) if saves else []
    return any(
        len({
            roots[value.node] for value in native.node_inputs(node)
            if value.op_type == "Variable"
        }) > 1
        for node in saves
    )  # fmt: skip


def name_of(handle: Output) -> str:
    """As tasks know the variable of a handle."""
    return _name_of(handle.graph, handle.node, _native.attrs_of(handle.graph, handle.node))


class MovableGraph:
    """The variables of a graph that are on parameter servers, in groups that move as one, and what
    stays where the graph says: queues, tables, accumulators, what is in a container of its own, and
    the variables that are beside these.

    cluster: who there is. master: the task where nodes without a device run.
    Errors: those of a session that would place the graph.
    """

    def __init__(
        self, graph: Graph, cluster: _native.ClusterSpec, master: str, soft: bool
    ) -> None:
        self._native = graph.native
        self._roots = together(graph)
        self._devices = _native.placement(graph.native, cluster, master, soft)[0]
        #: What may move.
        self.groups: list[Group] = []
        #: What stays on each task, as errors name it.
        self.fixed: dict[int, list[str]] = {}
        self._uses: dict[Any, bool] = {}
        self._find(min(cluster.tasks(PS)))

    def _task_of(self, node: int) -> int | None:
        """Of a node on a parameter server."""
        return ps_task_of(self._devices[self._native.node_name(node)])

    def _find(self, first: int) -> None:
        """`first`: the task that no command leaves."""
        native = self._native
        resources: dict[int, list[int]] = {}
        for node, root in enumerate(self._roots):
            if _makes_resource(native.node_op(node)):
                resources.setdefault(root, []).append(node)
        moves: set[int] = set()
        for root, nodes in resources.items():
            task = self._task_of(nodes[0])
            if task is None:
                continue
            stays = [node for node in nodes if not self._is_movable(node)]
            if stays:
                named = (f"{native.node_op(node)} '{native.node_name(node)}'" for node in stays)
                self.fixed.setdefault(task, []).extend(named)
                continue
            moves.add(root)
            held: dict[str, HeldVariable] = {}
            for node in nodes:
                one = self._held(node)
                held.setdefault(one.name, one)
            self.groups.append(Group(next(iter(held)), task, list(held.values())))
        #: Nodes that may be elsewhere after a move: of what moves, and others of servers that may
        #: be left.
        kept = {None, first, *self.fixed}
        self._moving = [
            root in moves or (root not in resources and self._task_of(node) not in kept)
            for node, root in enumerate(self._roots)
        ]

    def _is_movable(self, node: int) -> bool:
        attrs = _native.attrs_of(self._native, node)
        return self._native.node_op(node) == "Variable" and not attrs.get("container")

    def _held(self, node: int) -> HeldVariable:
        attrs = _native.attrs_of(self._native, node)
        shape = attrs.get("shape")
        extents = tuple(-1 if extent is None else int(extent) for extent in shape or ())
        is_known = shape is not None and min(extents, default=0) >= 0
        return HeldVariable(
            _name_of(self._native, node, attrs), as_dtype(attrs["dtype"]),
            extents if is_known else None,
        )  # fmt: skip

    def places(self) -> dict[str, str]:
        """Where the graph has what may move, by name."""
        found = {}
        for node, moving in enumerate(self._moving):
            if moving and self._native.node_op(node) == "Variable":
                attrs = _native.attrs_of(self._native, node)
                name = self._native.node_name(node)
                found[_name_of(self._native, node, attrs)] = self._devices[name]
        return found

    def uses(self, values: Sequence[Output], targets: Sequence[int]) -> bool:
        """Whether a run uses what may move. What waits for others alone, as for a queue, does not,
        and need not end for a move."""
        key = (tuple(value.node for value in values), tuple(targets))
        found = self._uses.get(key)
        if found is None:
            found = self._uses[key] = self._reaches({*key[0], *key[1]})
        return found

    def _reaches(self, nodes: set[int]) -> bool:
        native, todo, seen = self._native, list(nodes), set(nodes)
        while todo:
            node = todo.pop()
            if node >= len(self._moving) or self._moving[node]:
                return True
            needs = [value.node for value in native.node_inputs(node)]
            needs += native.node_controls(node)
            todo += [each for each in dict.fromkeys(needs) if each not in seen]
            seen.update(needs)
        return False


@functools.cache
def ps_task_of(device: str) -> int | None:
    """Of "/job:ps/replica:0/task:1/device:CPU:0"; None of another job's."""
    spec = DeviceSpec.from_string(device)
    return spec.task if spec.job == PS else None


def named(things: Iterable[str]) -> str:
    """Some of them, for an error."""
    every = list(things)
    more = len(every) - _NAMED_MAX
    return ", ".join(every[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
