"""Variables that each worker of a strategy has one of (TensorFlow's PerWorkerVariable)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from .. import errors
from .._dispatch import apply, convert, state
from .._native import Tensor
from ..dtypes import name_of
from ..variable import check_shape
from ._cluster_variable import ClusterVariable

if TYPE_CHECKING:
    from .parameter_server_strategy import ParameterServerStrategy


class PerWorkerVariable(ClusterVariable):
    """A variable of which each worker has one, in its memory, that functions which are scheduled
    read and change where they run.

        with strategy.scope():
            seen = sr.Variable(0, per_worker_variable=True)

    They are never made equal. The coordinator has none: read_all() gives those of all workers. A
    worker that comes back begins with the initial value again. Tapes do not watch it.

    initial_value: made by each worker; a function of it is traced.
    """

    #: What workers have is in no checkpoint.
    _checkpoint_attribute = None

    def __init__(
        self, strategy: ParameterServerStrategy, initial_value: Any, name: str, dtype: Any = None,
        shape: Any = None, trainable: bool | None = None, **options: Any,
    ) -> None:  # fmt: skip
        if state.graph is not None:
            raise ValueError(
                f"variable '{name}' of each worker is made in a function: make it outside"
            )
        self._strategy = strategy
        self._graph = strategy._graph
        self.device = "/job:worker"
        #: By which a worker makes its own.
        self._made = strategy._trace(lambda: self._make(initial_value, name, dtype, shape, options))
        for other in self._made.of_workers:
            raise errors.UnimplementedError(
                f"the initial value of variable '{name}' of each worker is made of another one, "
                f"'{other.name}': make it of values"
            )
        #: By which a worker gives it away.
        self._given = strategy._trace(lambda: self._as_tensor())

    def _make(self, initial: Any, name: str, dtype: Any, shape: Any, options: Any) -> None:
        value = convert(initial() if callable(initial) else initial, dtype)
        if value.shape is None or min(value.shape, default=0) < 0:
            raise errors.InvalidArgumentError(
                f"the initial value of variable '{name}' of each worker has shape {value.shape}, "
                "which must be known"
            )
        check_shape(value.shape, shape)
        self._describe(name, value.dtype, value.shape, False, **options)
        self._handle = self._graph.add_variable(name, "", self.dtype, self.shape)
        self._handles = [self._handle]
        apply("VariableAssign", (self._graph.enter(self._handle), value))

    # --- Where it is used.

    def read_all(self) -> list[Tensor]:
        """The values of all workers, by their number; waits for those that are not there, and for
        what each of them runs now."""
        return self._strategy._coordinator_of_models()._read_of_workers(self)

    def is_elsewhere(self) -> errors.Error:
        """Why the coordinator has no value of it."""
        return errors.FailedPreconditionError(
            f"each worker has a variable '{self.name}' of its own, and the coordinator none: use "
            "it in functions that are given to ClusterCoordinator.schedule(), or read_all() of it"
        )

    def _add(self, op: str, inputs: Sequence[Any], attrs: Any = None) -> Any:
        made = super()._add(op, inputs, attrs)
        self._graph.trace.of_workers[id(self)] = self
        return made

    def _do(self, op: str, inputs: Sequence[Any], attrs: Any = None) -> Any:
        if state.graph is None:
            raise self.is_elsewhere()
        return super()._do(op, inputs, attrs)

    def _nodes_beside(self) -> AbstractContextManager[Any]:
        # Where the function runs.
        return nullcontext()

    def _beside(self) -> AbstractContextManager[Any]:
        raise errors.UnimplementedError(
            f"a variable is made beside '{self.name}', which each worker has one of: it is none to "
            "be trained"
        )

    @property
    def _home(self) -> Any:
        return None

    def __repr__(self) -> str:
        return (
            f"<PerWorkerVariable '{self.name}' shape={self.shape} dtype={name_of(self.dtype)}>"
        )

    def _combine(self, how: str, rows: Any) -> ClusterVariable:
        if state.graph is None:
            raise self.is_elsewhere()
        return super()._combine(how, rows)


__all__ = ["PerWorkerVariable"]
