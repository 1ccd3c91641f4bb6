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


def by_task(parts: Sequence[Part]) -> dict[str, list[Part]]:
    """The parts that each task has, by its device."""
    found: dict[str, list[Part]] = {}
    for part in parts:
        found.setdefault(part[2].device, []).append(part)
    return found


def save(
    strategy: ParameterServerStrategy, prefix: str, parts: Sequence[Part], first: int, shards: int
) -> list[Any]:
    """Has each task write its variables: data files number `first` and following of so many. Gives
    what CommitCheckpoint is to be told."""
    return _run(strategy, "SaveVariables", [prefix, ""], parts, first, shards)


def restore(strategy: ParameterServerStrategy, prefix: str, parts: Sequence[Part]) -> None:
    """Has each task read its variables."""
    _run(strategy, "RestoreVariables", [prefix], parts)


def _run(
    strategy: ParameterServerStrategy, op: str, texts: Sequence[str], parts: Sequence[Part],
    first: int = 0, shards: int = 0,
) -> list[Any]:  # fmt: skip
    tasks = by_task(parts)
    key = (op, first, shards, *((name, part, each._handle.node) for name, part, each in parts))
    graph = strategy._graph
    strategy._come_before()
    with strategy._lock:
        if key not in strategy._steps:
            with graph.tracing(op):
                places = [graph.placeholder(string, (), "text") for _ in texts]
                made = []
                for i, (device, own) in enumerate(tasks.items()):
                    attrs: dict[str, Any] = {
                        "names": [name for name, _, _ in own],
                        "slices": [part for _, part, _ in own],
                    }
                    if shards:
                        attrs |= {"shard": first + i, "shards": shards}
                    handles = [graph.enter(each._handle) for _, _, each in own]
                    with graph.device(device):
                        made.append(graph.add(op, [*places, *handles], attrs, None))
            strategy._steps[key] = (made, places)
        made, places = strategy._steps[key]
    values = [to_tensor(text) for text in texts]
    found: list[Any] = strategy._session._run(made, [], places, values)
    return found
