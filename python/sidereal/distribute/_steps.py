"""Functions of a coordinator that train in step: optimizers in them give their gradients to
parameter servers, which update variables once by the means of what the functions of a step gave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .. import dtypes, errors
from .._dispatch import state
from .._native import Output
from ..accumulators import (
    ConditionalAccumulator,
    ConditionalAccumulatorBase,
    SparseConditionalAccumulator,
)
from ..function import TensorSpec
from ..indexed_slices import IndexedSlices
from ..ops.basic import cast
from ._cluster_variable import ClusterVariable, check_trained
from ._plan import Call, Plan, Plans

if TYPE_CHECKING:
    from ..optimizers import Optimizer
    from .parameter_server_strategy import ParameterServerStrategy

#: As many as accumulators may be told of: what is there is taken, whatever it is.
_ANY = 1 << 62


class _OfStep(ConditionalAccumulatorBase):
    """Of gradients of the functions of a step: their mean is over all functions, of a row too, and
    is taken at once."""

    _reductions = ("MEAN_OF_ALL",)
    _waits = False


class _OfAll(_OfStep, ConditionalAccumulator):
    """Of a whole variable."""


class _OfRows(_OfStep, SparseConditionalAccumulator):
    """Of rows."""


class _Mean:
    """The mean, over the functions of a step, of their gradients of a variable: where that is."""

    def __init__(self, variable: ClusterVariable, is_sparse: bool, name: str) -> None:
        self._variable = variable
        kind = _OfRows if is_sparse else _OfAll
        is_double = variable.dtype == dtypes.float64
        with variable._nodes_beside():
            self._sum: Any = kind(
                dtypes.float64 if is_double else dtypes.float32, variable.shape, name, "gradient",
                "MEAN_OF_ALL",
            )  # fmt: skip

    def add(self, grad: Any, step: Output) -> None:
        """The gradient of a function of this step."""
        with self._variable._nodes_beside():
            if isinstance(grad, IndexedSlices):
                self._sum.apply_grad(grad.indices, cast(grad.values, self._sum.dtype), None, step)
            else:
                self._sum.apply_grad(cast(grad, self._sum.dtype), step)

    def take(self, following: Any) -> Any:
        """The mean; `following` is the step that begins then."""
        dtype: Any = self._variable.dtype
        with self._variable._nodes_beside():
            taken = self._sum.take_grad(1)
            self._sum.set_global_step(following)
            if isinstance(self._sum, _OfAll):
                return cast(taken, dtype)
            return IndexedSlices(cast(taken.values, dtype), taken.indices, self._sum.shape)

    def forget(self, following: Any) -> None:
        """Drops what was given; `following` is the step that begins then."""
        with self._variable._nodes_beside():
            self._sum.restart(following, _ANY)


class Steps:
    """What the optimizers of a coordinator's functions do instead of updating variables.

    hybrid: gradients of rows are applied at once, each function's by itself.
    name: of the coordinator, which no other has.
    """

    def __init__(
        self, strategy: ParameterServerStrategy, native: Any, consistency: str, name: str
    ) -> None:
        #: Of functions as they are in step, which are no one else's.
        self.plans = Plans(strategy._graph)
        self._strategy = strategy
        self._native = native
        self._consistency = consistency
        self._hybrid = consistency == "hybrid"
        self._name = name
        self._means: dict[tuple[int, bool], _Mean] = {}
        #: The numbers of what ends a step, by optimizer and what it updates.
        self._known: dict[Any, int] = {}
        #: Updates of these numbers that read variables of this process.
        self._fed: dict[int, Plan] = {}
        #: What these numbers are of, alive as long as they are.
        self._plans: list[Any] = []

    def feed(self, plan: Plan) -> None:
        """Tells what updates read of this process, such as a learning rate, as it is now."""
        for number in plan.steps:
            if number in self._fed:
                self._native.feed_step(number, self._fed[number].values_outside())

    def contribute(self, optimizer: Optimizer, pairs: Sequence[tuple[Any, Any]]) -> None:
        """Takes the place of an update by pairs (gradient, variable), in a function that is
        traced."""
        graph = self._strategy._graph
        if state.graph is not graph:
            raise errors.UnimplementedError(
                f"optimizer '{optimizer.name}' is applied in a conditional or loop; with "
                f"consistency {self._consistency!r} a function gives its gradients once, at the "
                "end: apply it outside"
            )
        if id(optimizer) in graph.trace.contributed:
            raise errors.UnimplementedError(
                f"optimizer '{optimizer.name}' is applied twice in a function; with consistency "
                f"{self._consistency!r} a function is a part of one step: apply it once, to all "
                "variables, and leave steps_per_execution=1"
            )
        graph.trace.contributed[id(optimizer)] = optimizer
        check_trained([variable for _, variable in pairs], self._consistency)
        if self._hybrid:
            pairs = self._apply_rows(optimizer, pairs)
        step = graph.trace.step
        if step is None:
            with graph.init_scope():
                step = graph.trace.step = graph.placeholder("int64", (), "step")
        means = [self._mean(variable, isinstance(grad, IndexedSlices)) for grad, variable in pairs]
        for mean, (grad, _) in zip(means, pairs):
            mean.add(grad, step)
        graph.trace.steps.append(self._end_of(optimizer, means))

    def _apply_rows(
        self, optimizer: Optimizer, pairs: Sequence[tuple[Any, Any]]
    ) -> list[tuple[Any, Any]]:
        """Updates tables, and gives the pairs of other variables."""
        clipped = optimizer._clipped(pairs)
        rows = [pair for pair in clipped if isinstance(pair[0], IndexedSlices)]
        rest = [pair for pair in clipped if not isinstance(pair[0], IndexedSlices)]
        if not rest:
            raise errors.InvalidArgumentError(
                f"all variables that optimizer '{optimizer.name}' updates are tables: consistency "
                "'hybrid' has nothing to update in step; write 'async' or 'bounded(1)'"
            )
        if rows:
            optimizer._update_all(rows, clips=False, counts=False)
        return rest

    def _mean(self, variable: ClusterVariable, is_sparse: bool) -> _Mean:
        key = (id(variable), is_sparse)
        if key not in self._means:
            kind = "rows" if is_sparse else "gradient"
            name = f"{variable._handle.node_name}/{kind}/{self._name}"
            self._means[key] = _Mean(variable, is_sparse, name)
        return self._means[key]

    def _end_of(self, optimizer: Optimizer, means: Sequence[_Mean]) -> int:
        """The number of what ends a step in which `optimizer` has these means."""
        key = (id(optimizer), *(id(mean) for mean in means))
        if key not in self._known:
            spec = TensorSpec((), dtypes.int64)

            def update(following: Any) -> None:
                pairs = [(mean.take(following), mean._variable) for mean in means]
                optimizer._update_all(pairs, clips=not self._hybrid)

            def forget(following: Any) -> None:
                for mean in means:
                    mean.forget(following)

            graph = self._strategy._graph
            with state.collecting(None):
                plans = [Plan(graph, Call(end, (spec,), {})) for end in (update, forget)]
            self._plans += [optimizer, *plans]
            self._native.set_graph(graph.native)
            number = self._native.add_step(
                plans[0].feeds, plans[0].targets, plans[1].feeds, plans[1].targets
            )
            self._known[key] = number
            if len(plans[0].feeds) > 1:
                self._fed[number] = plans[0]
        return self._known[key]
