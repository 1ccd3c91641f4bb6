"""Variables on parameter servers to checkpoints and back: each parameter server writes and reads
its own, in one step of the strategy's session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .._dispatch import to_tensor
from ..dtypes import string

if TYPE_CHECKING:
    from .parameter_server_strategy import ParameterServerStrategy

#: An entry of a checkpoint, which part of it a variable is, and the variable.
Part = tuple[str, str, Any]


def by_node(parts: Sequence[Part]) -> list[list[Part]]:
    """The parts that each node has: those of one task."""
    found: dict[str, list[Part]] = {}
    for part in parts:
        found.setdefault(part[2].device, []).append(part)
    return list(found.values())


def save(
    strategy: ParameterServerStrategy, prefix: str, parts: Sequence[Part], first: int, shards: int,
    since: str = "", tracks_changes: bool = False,
) -> list[Any]:  # fmt: skip
    """Has the tasks write their variables: data files number `first` and following of so many.
    Gives what CommitCheckpoint is to be told.

    since: a cut, of which what has changed after it is written, where that is known.
    tracks_changes: it is kept note of what changes from now on.
    """
    return _run(strategy, "SaveVariables", [prefix, since], parts, first, shards, tracks_changes)


def restore(
    strategy: ParameterServerStrategy, prefix: str, parts: Sequence[Part], session: Any = None
) -> None:
    """Has each task read its variables, in the strategy's session or another one."""
    _run(strategy, "RestoreVariables", [prefix], parts, session=session)


def have_values(
    strategy: ParameterServerStrategy, variables: Sequence[Any], session: Any
) -> bool:
    """Whether all of them have, in this session."""
    graph = strategy._graph
    key = ("VariableIsInitialized", *(each._handle.node for each in variables))
    with strategy._lock:
        if key not in strategy._steps:
            # Each is where its variable is, which may have moved.
            with graph.tracing("VariableIsInitialized"):
                made = [
                    graph.add("VariableIsInitialized", [graph.enter(each._handle)], None, None)
                    for each in variables
                ]
            strategy._steps[key] = (made, [])
        made, _ = strategy._steps[key]
    return all(bool(value) for value in session._run(made, [], [], []))


def _run(
    strategy: ParameterServerStrategy, op: str, texts: Sequence[str], parts: Sequence[Part],
    first: int = 0, shards: int = 0, tracks_changes: bool = False, session: Any = None,
) -> list[Any]:  # fmt: skip
    nodes = by_node(parts)
    which = ((name, part, each._handle.node, each.device) for name, part, each in parts)
    key = (op, first, shards, tracks_changes, *which)
    graph = strategy._graph
    if session is None:
        strategy._come_before()
    with strategy._lock:
        if key not in strategy._steps:
            with graph.tracing(op):
                places = [graph.placeholder(string, (), "text") for _ in texts]
                made = []
                for i, own in enumerate(nodes):
                    attrs: dict[str, Any] = {
                        "names": [name for name, _, _ in own],
                        "slices": [part for _, part, _ in own],
                    }
                    if shards:
                        attrs |= {"shard": first + i, "shards": shards}
                    if tracks_changes:
                        attrs["tracks_changes"] = True
                    handles = [graph.enter(each._handle) for _, _, each in own]
                    with graph.device(own[0][2].device):
                        made.append(graph.add(op, [*places, *handles], attrs, None))
            strategy._steps[key] = (made, places)
        made, places = strategy._steps[key]
    values = [to_tensor(text) for text in texts]
    if session is None:
        return strategy._step(made, [], places, values)
    found: list[Any] = session._run(made, [], places, values)
    return found
