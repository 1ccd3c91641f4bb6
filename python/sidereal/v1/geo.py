"""Workers of sessions that train copies of dense variables, and add what so many runs changed in
them to those on parameter servers: `consistency="geo(k)"` of a MonitoredTrainingSession."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sidereal as _sr

from .. import _native
from .._dispatch import ENGINE
from .._run_metadata import RunOptions
from ..device_spec import DeviceSpec
from .checkpoint_saver_hook import CheckpointSaverListener
from .graph import Graph, building, get_default_graph, group
from .operation import Operation
from .session_run_hook import SessionRunContext, SessionRunHook, SessionRunValues
from .training import Update
from .variables import Variable


@dataclass
class _Copy:
    """Of a variable, on the worker. base: what it began from, of one whose changes are added; None
    of a slot, which stays with the worker."""

    variable: Variable
    own: Variable
    base: Variable | None

    def begin(self) -> list[Any]:
        """It is as the variable is."""
        return self._go_on_from(self.variable.read_value())

    def exchange(self) -> list[Any]:
        """The variable gets what has changed in it, and it goes on from the sum."""
        if self.base is None:
            return []
        change = self.own.read_value() - self.base.read_value()
        return self._go_on_from(self.variable.assign_add(change))

    def give(self) -> list[Any]:
        """The variable is as a slot is."""
        return [] if self.base is not None else [self.variable.assign(self.own.read_value())]

    def _go_on_from(self, value: Any) -> list[Any]:
        return [one.assign(value) for one in (self.own, self.base) if one is not None]


class GeoHook(SessionRunHook):
    """Has a worker train copies of the dense variables that optimizers of its graph update: its
    runs neither pull nor push these (GEO-SGD, as PaddlePaddle has it).

    The copies, and those of what optimizers keep, lie on the device of the worker's ops. They are
    made from the variables when the session is made, which ops of the training read and update
    from then on, and no others: savers, say. After `window` runs, before checkpoints and at the
    end, what has changed in the copies is added to the variables, and the copies go on from the
    sums. What the chief's optimizers keep is in its checkpoints.

    window: at least 1.
    """

    def __init__(self, window: int, is_chief: bool) -> None:
        self._window, self._is_chief = window, is_chief
        self._copies: list[_Copy] = []
        #: Nodes that use copies, and where these are.
        self._nodes: list[int] = []
        self._device = ""
        #: Runs since copies were sent; None as long as there are none.
        self._runs: int | None = None

    def begin(self) -> None:
        """Adds what copies need to the graph. ValueError where they cannot be."""
        graph = get_default_graph()
        updates = [each for each in graph.updates if not each.is_of_rows]
        _check(graph, updates)
        self._nodes = _reached_from(graph, updates)
        self._device = _device_of(graph, self._nodes)
        with building():
            self._copies = list(self._made(updates))
            self._begins = self._all(_Copy.begin)
            self._exchanges = self._all(_Copy.exchange)
            self._gives = self._all(_Copy.give)

    def _made(self, updates: Sequence[Update]) -> Iterator[_Copy]:
        for update in updates:
            for variable in update.variables:
                is_sent = variable is update.variable or variable is update.step
                own, base = self._like(variable, "copy"), None
                if is_sent:
                    base = self._like(variable, "base")
                yield _Copy(variable, own, base)

    def _like(self, variable: Variable, what: str) -> Variable:
        """A variable of the worker's own: it is in no collection, for no checkpoint has it."""
        if variable.shape is None or any(extent < 0 for extent in variable.shape):
            raise ValueError(
                f"consistency is 'geo(k)', and variable '{variable.op.name}' has values of any "
                "shape: workers have copies of those alone whose shape is known"
            )
        shape = list(variable.shape)
        with self._on_worker(), variable.graph.name_scope(None):
            return Variable(
                lambda: _sr.zeros(shape, variable.dtype), trainable=False, collections=[],
                name=f"geo/{variable.op.name}/{what}",
            )  # fmt: skip

    @contextmanager
    def _on_worker(self) -> Iterator[None]:
        graph = get_default_graph()
        with graph.device(None), graph.device(self._device):
            yield

    def _all(self, of: Any) -> Any:
        with self._on_worker():
            return group(*(op for copy in self._copies for op in of(copy)), name="geo")

    def redirected(self, graph: _native.GraphBase) -> _native.GraphBase:
        """The graph that the session runs: what trains uses the copies."""
        handles = {copy.variable.handle.node: copy.own.handle.node for copy in self._copies}
        return _native.Graph.redirected(ENGINE, graph, self._nodes, handles, self._device)

    # --- While it trains.

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Copies are what variables are; what a session before this one had not sent is lost."""
        session.run(self._begins)
        self._runs = 0

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Sends what has changed when that is due."""
        assert self._runs is not None
        self._runs += 1
        if self._runs >= self._window:
            self._exchange(run_context.session)

    def end(self, session: Any) -> None:
        """Sends the rest."""
        self.send(session)
        self._runs = None

    def send(self, session: Any) -> None:
        """Variables have all that this worker has learned, and of the chief what optimizers keep.
        Nothing, before there are copies."""
        if self._runs is None:
            return
        if self._runs > 0:
            self._exchange(session)
        if self._is_chief:
            session.run(self._gives, options=RunOptions(waits_for_pushes=True))

    def _exchange(self, session: Any) -> None:
        session.run(self._exchanges)
        self._runs = 0


class GeoListener(CheckpointSaverListener):
    """Has a checkpoint of the chief all that this has learned."""

    def __init__(self, hook: GeoHook) -> None:
        self._hook = hook

    def before_save(self, session: Any, global_step_value: int) -> None:
        """Sends it."""
        self._hook.send(session)


def _check(graph: Graph, updates: Sequence[Update]) -> None:
    """ValueError for a graph whose workers can have no copies."""
    if not graph.updates:
        raise ValueError(
            "consistency is 'geo(k)', and no optimizer of sidereal.v1.train has added an update to "
            "the graph"
        )
    if not updates:
        raise ValueError(
            "all variables that are trained are updated by rows, of which workers have no copies "
            "with consistency 'geo(k)'; write 'async', which is what it does for these"
        )
    rows = {id(each.variable) for each in graph.updates if each.is_of_rows}
    seen: set[int] = set()
    for update in updates:
        name = update.variable.op.name
        if id(update.variable) in rows:
            raise ValueError(
                f"consistency is 'geo(k)', and variable '{name}' is updated by rows and as a whole"
            )
        if id(update.variable) in seen:
            raise ValueError(
                f"consistency is 'geo(k)', and variable '{name}' is updated twice: give its "
                "gradients to one apply_gradients()"
            )
        seen.add(id(update.variable))


def _reached_from(graph: Graph, updates: Sequence[Update]) -> list[int]:
    """Nodes of the training: updates, and all that they need. ValueError for gradients that others
    gather."""
    native = graph.native
    todo = [update.op.node for update in updates]
    seen = set(todo)
    while todo:
        node = todo.pop()
        if native.node_op(node).startswith("Accumulator"):
            raise ValueError(
                "consistency is 'geo(k)', and the optimizer is a SyncReplicasOptimizer, which "
                "trains in step: use one of the two"
            )
        needs = [value.node for value in native.node_inputs(node)] + native.node_controls(node)
        todo += [each for each in needs if each not in seen]
        seen.update(needs)
    return sorted(seen)


def _device_of(graph: Graph, nodes: Sequence[int]) -> str:
    """That of the worker whose graph this is: where all of its training asks to run but what is
    beside a variable. ValueError where that is not one task."""
    variables = {graph.native.node_name(node) for node in graph.variables_by_handle}
    places: dict[DeviceSpec, None] = {}
    for node in nodes:
        op = Operation(graph, node)
        if op.device and variables.isdisjoint(op._colocated_with()):
            spec = DeviceSpec.from_string(op.device)
            places[DeviceSpec(job=spec.job, replica=spec.replica, task=spec.task)] = None
    if len(places) == 1:
        (place,) = places
        if place.task is not None:
            return place.to_string()
    found = ", ".join(f"'{place.to_string()}'" for place in places) or "no device of their own"
    raise ValueError(
        "consistency is 'geo(k)', and the worker whose copies of variables are to be made is not "
        f"known: ops of the training are on {found}. Build them in tf.device() of one task, as "
        "tf.train.replica_device_setter(worker_device=...) does"
    )
