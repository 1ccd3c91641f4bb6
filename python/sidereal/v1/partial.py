"""Runs of a graph in several parts (tf.Session.partial_run)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from .. import errors
from .._native import Output, Tensor
from .graph import Graph

#: A value of a graph: the number of its node, and which output.
Key = tuple[int, int]
#: Ops that give the same whenever they run, and need not be kept from part to part.
_REPEATABLE = {"Const", "Variable", "Queue", "Accumulator", "MutableTable"}


def _key(value: Output) -> Key:
    return value.node, value.index


class PartialRun:
    """A run in several parts: what ran in one part does not run again in the next, which gets the
    values that were made and are still needed.

    run: runs (values, targets, places, tensors). fetches, targets, feeds: all that any part may ask
    for.
    """

    def __init__(
        self,
        graph: Graph,
        run: Callable[[list[Output], list[int], list[Output], list[Tensor]], list[Tensor]],
        fetches: Iterable[Output],
        targets: Iterable[int],
        feeds: Iterable[Output],
    ) -> None:
        self._native = graph.native
        self._run = run
        self._fetches = {_key(value): value for value in fetches}
        self._targets = set(targets)
        self._feeds = {_key(value): value for value in feeds}
        self._known: dict[Key, tuple[Output, Tensor]] = {}
        self._ran: set[int] = set()

    def run(
        self,
        values: Sequence[Output],
        targets: Sequence[int],
        places: Sequence[Output],
        tensors: Sequence[Tensor],
    ) -> list[Tensor]:
        """One part. InvalidArgumentError for what was not announced, or was asked for before."""
        self._check(values, targets, places)
        for place, tensor in zip(places, tensors):
            self._known[_key(place)] = (place, tensor)
        wanted = [value for value in values if _key(value) not in self._known]
        nodes = self._needed(wanted, targets)
        for value in values:
            self._fetches.pop(_key(value), None)
        self._targets -= set(targets)
        kept = self._kept(nodes)
        asked = list({_key(value): value for value in [*wanted, *kept]}.values())
        known = list(self._known.values())
        results = self._run(
            asked, list(targets), [place for place, _ in known], [value for _, value in known]
        )
        self._known.update(
            {_key(value): (value, result) for value, result in zip(asked, results)}
        )
        self._ran |= nodes
        return [self._known[_key(value)][1] for value in values]

    def _check(
        self, values: Sequence[Output], targets: Sequence[int], places: Sequence[Output]
    ) -> None:
        for value in values:
            if _key(value) not in self._fetches:
                raise errors.InvalidArgumentError(
                    f"Tensor {value.name} was not specified in partial_run_setup, or was already "
                    "fetched"
                )
        for target in targets:
            if target not in self._targets:
                raise errors.InvalidArgumentError(
                    f"operation '{self._native.node_name(target)}' was not specified in "
                    "partial_run_setup, or already ran"
                )
        for place in places:
            if self._feeds.pop(_key(place), None) is None:
                raise errors.InvalidArgumentError(
                    f"The feed {place.name} was not specified in partial_run_setup, or was already "
                    "fed"
                )

    def _needed(self, values: Iterable[Output], targets: Iterable[int]) -> set[int]:
        """The nodes that these need and that have not run."""
        found: set[int] = set()
        todo = [value.node for value in values] + list(targets)
        while todo:
            node = todo.pop()
            if node in found:
                continue
            if node in self._ran and self._native.node_op(node) not in _REPEATABLE:
                raise errors.UnimplementedError(
                    f"a part of the run waits for '{self._native.node_name(node)}', which ran in "
                    "an earlier part, by a control dependency: ask for both in one part"
                )
            found.add(node)
            todo += [
                value.node
                for value in self._native.node_inputs(node)
                if _key(value) not in self._known
            ]
            todo += self._native.node_controls(node)
        return found

    def _kept(self, nodes: set[int]) -> list[Output]:
        """The values of `nodes`, which run now, that parts to come may read."""
        later = self._needed_later()
        kept = []
        for node in later - nodes:
            for value in self._native.node_inputs(node):
                is_made = value.node in nodes and _key(value) not in self._known
                if is_made and self._native.node_op(value.node) not in _REPEATABLE:
                    kept.append(value)
        return kept + [value for key, value in self._fetches.items() if value.node in nodes]

    def _needed_later(self) -> set[int]:
        found: set[int] = set()
        todo = [value.node for value in self._fetches.values()] + list(self._targets)
        while todo:
            node = todo.pop()
            if node not in found:
                found.add(node)
                todo += [value.node for value in self._native.node_inputs(node)]
                todo += self._native.node_controls(node)
        return found
