"""Functions of a coordinator that train copies: each worker has some of the dense variables, adds
what so many functions changed in them to those on parameter servers, and goes on from the sums."""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .. import dtypes, errors
from .._dispatch import apply, convert, state
from .._native import Output
from ..indexed_slices import IndexedSlices
from ..ops.control import cond
from ._cluster_graph import Trace
from ._cluster_variable import ClusterVariable, check_trained
from ._per_worker import RemoteValue
from ._plan import Plan, Plans

if TYPE_CHECKING:
    from ..optimizers import Optimizer
    from .coordinator import ClusterCoordinator


class OfWorkers:
    """What each worker has, in variables of its own, and makes for itself when it is found.

    first: gives the value that they all begin with, in the function that makes them.
    names: of each.
    """

    def __init__(
        self, coordinator: ClusterCoordinator, first: Callable[[], Any], names: Sequence[str]
    ) -> None:
        self._handles: list[Output] = []
        graph = coordinator.strategy._graph

        def make() -> None:
            value = first()
            self._attrs = {"dtype": value.dtype, "shape": value.shape}
            for name in names:
                self._handles.append(graph.add_variable(name, "", value.dtype, value.shape))
                apply("VariableAssign", (graph.enter(self._handles[-1]), value))

        with state.collecting(None):
            self._made = coordinator.strategy._trace(make)
        self._graph = graph

    def use(self) -> None:
        """The function that is traced uses it."""
        self._graph.trace.of_workers[id(self)] = self

    def read(self, handle: Output) -> Any:
        self.use()
        return apply("VariableRead", (_entered(handle),), self._attrs)


def _entered(handle: Output) -> Output:
    assert state.graph is not None
    return state.graph.enter(handle)


def _assign(handle: Output, value: Any) -> None:
    apply("VariableAssign", (_entered(handle), value))


def _zero() -> Any:
    return convert(0, dtypes.int64)


class _Copy(OfWorkers):
    """Of a variable. is_sent: what changes in it is added to the variable; else it is a slot, which
    stays with the worker."""

    def __init__(
        self, coordinator: ClusterCoordinator, variable: ClusterVariable, is_sent: bool
    ) -> None:
        name = variable._handle.node_name
        names = [f"{name}/copy", *([f"{name}/base"] if is_sent else [])]
        super().__init__(coordinator, variable._as_tensor, names)
        self.variable, self.is_sent = variable, is_sent
        #: Of the copy.
        self.own = self._handles[0]

    def change(self) -> Any:
        """What it has become less what it began from."""
        return self.read(self.own) - self.read(self._handles[1])

    def go_on_from(self, value: Any) -> None:
        for handle in self._handles:
            _assign(handle, value)

    def give(self) -> None:
        """The variable is as the copy is."""
        self.variable._add("VariableAssign", [self.read(self.own)])


class _Group(OfWorkers):
    """Copies that a function trains together, and how many it has made since they were sent."""

    def __init__(self, coordinator: ClusterCoordinator, copies: Sequence[_Copy]) -> None:
        super().__init__(coordinator, _zero, ["steps"])
        self.copies = copies
        self._steps = self._handles[0]

    def end(self, trace: Trace, made: int, window: int) -> None:
        """`made` more."""
        steps = self.read(self._steps) + made
        _assign(self._steps, steps)
        self._exchange_if(trace, steps >= window)

    def flush(self, trace: Trace) -> None:
        """Sends what was not sent yet."""
        self._exchange_if(trace, self.read(self._steps) > 0)

    def _exchange_if(self, trace: Trace, is_due: Any) -> None:
        def exchange() -> Any:
            sent = [copy for copy in self.copies if copy.is_sent]
            # Nodes of a body run in this order: one message to each parameter server.
            changes = [copy.change() for copy in sent]
            totals = [copy.variable._add("VariableAssignAdd", [change])
                      for copy, change in zip(sent, changes)]  # fmt: skip
            for copy, total in zip(sent, totals):
                copy.go_on_from(total)
            _assign(self._steps, _zero())
            return _zero()

        with trace.at_parameter_servers():
            cond(is_due, exchange, _zero)


class Copies:
    """What the optimizers of a coordinator's functions do instead of updating variables.

    window: of how many functions a worker sends the changes together.
    """

    def __init__(self, coordinator: ClusterCoordinator, window: int) -> None:
        #: Of functions with copies, which are no one else's.
        self.plans = Plans(coordinator.strategy._graph)
        self._coordinator: ClusterCoordinator = weakref.proxy(coordinator)
        self._window = window
        self._known: dict[int, _Copy] = {}
        self._groups: dict[tuple[int, ...], _Group] = {}
        #: Functions were scheduled whose changes have perhaps not been sent.
        self._is_unsent = False
        #: What sends them, and what gives parameter servers the slots, for so many groups.
        self._flushes: tuple[int, Plan, Plan] | None = None

    # --- Functions that are traced, twice: it is not known before what they train.

    def contribute(self, optimizer: Optimizer, pairs: Sequence[tuple[Any, Any]]) -> None:
        """Takes the place of an update by pairs (gradient, variable), in a function that is
        traced."""
        check_trained([variable for _, variable in pairs], f"geo({self._window})")
        trace = self._coordinator.strategy._graph.trace
        dense = [each for grad, each in pairs if not isinstance(grad, IndexedSlices)]
        if trace.copies is None:
            trace.trained += dense
            if not dense:
                optimizer._update_all(pairs)
            return
        for variable in dense:
            for slot in optimizer._slots_of(variable):
                trace.copies[id(slot)] = self._copy(slot, is_sent=False)
        if dense:
            with dense[0]._in_scope():
                count = optimizer.iterations
            trace.copies[id(count)] = self._copy(count, is_sent=True)
            trace.applied[id(optimizer)] = trace.applied.get(id(optimizer), 0) + 1
        optimizer._update_all(pairs)

    def of(self, trained: Sequence[ClusterVariable]) -> dict[int, Any]:
        """The copies that take the place of variables, by id()."""
        return {id(variable): self._copy(variable, is_sent=True) for variable in trained}

    def end(self, trace: Trace) -> None:
        """The last that a function does: it counts, and sends what has changed when that is due."""
        assert trace.copies is not None
        copies = list(trace.copies.values())
        key = tuple(sorted(id(copy) for copy in copies))
        if key not in self._groups:
            self._groups[key] = _Group(self._coordinator, copies)
        for copy in copies:
            copy.use()
        self._groups[key].end(trace, max(trace.applied.values()), self._window)

    def _copy(self, variable: Any, is_sent: bool) -> _Copy:
        if id(variable) not in self._known:
            self._known[id(variable)] = _Copy(self._coordinator, variable, is_sent)
        return self._known[id(variable)]

    # --- Functions that run.

    def note(self, plan: Plan) -> None:
        """The plan is scheduled."""
        if not self._is_unsent:
            self._is_unsent = any(isinstance(each, _Group) for each in plan.of_workers)

    def flush(self, until: float | None) -> None:
        """Has workers send what they have not sent yet, those that are there: what others had
        learned is lost. The slots of one are those of the parameter servers then. until: of
        time.monotonic()."""
        if not self._is_unsent:
            return
        coordinator = self._coordinator
        self._is_unsent = False
        try:
            send, give = self._plans_of_flush()
            workers = range(len(coordinator.strategy._workers))
            done = self._run_on(workers, send, until)
            self._run_on(done[:1], give, until)
        except BaseException:
            self._is_unsent = True
            raise

    def _plans_of_flush(self) -> tuple[Plan, Plan]:
        groups = list(self._groups.values())
        if self._flushes is None or self._flushes[0] != len(groups):
            graph = self._coordinator.strategy._graph

            def send() -> None:
                for group in groups:
                    group.flush(graph.trace)

            def give() -> None:
                for copy in self._known.values():
                    if not copy.is_sent:
                        copy.give()

            sends, gives = (self._coordinator._plan_of_workers(each)[0] for each in (send, give))
            self._flushes = len(groups), sends, gives
        return self._flushes[1:]

    def _run_on(self, workers: Sequence[int], plan: Plan, until: float | None) -> list[int]:
        """The workers that have run a plan."""
        coordinator = self._coordinator
        number = coordinator._number(plan)
        resources = [coordinator._own_of(each) for each in plan.of_workers]
        asked = {}
        for worker in workers:
            with contextlib.suppress(errors.UnavailableError):  # It is not there.
                run = coordinator._native.schedule_on(worker, number, [], resources, False)
                asked[worker] = RemoteValue(run, plan)
        done = []
        for worker, value in asked.items():
            try:
                value.get(None if until is None else max(until - time.monotonic(), 0.001))
                done.append(worker)
            except errors.PSUnavailableError:
                raise
            except errors.UnavailableError:
                pass  # It was lost meanwhile.
        return done


__all__ = ["Copies", "OfWorkers"]
