"""What all strategies have in common: scopes, replicas, and who is asked for the present ones
(tf.distribute)."""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from .. import nest
from .._conversion import inside
from ..ops import math
from ..variable import Variable, creating, variable_creator_scope


class ReduceOp(enum.Enum):
    """How values of several replicas become one (tf.distribute.ReduceOp)."""

    SUM = "SUM"
    MEAN = "MEAN"


def reduce_op_of(value: Any) -> ReduceOp:
    """A ReduceOp, or the one of that name in any case; ValueError for another."""
    if isinstance(value, ReduceOp):
        return value
    try:
        return ReduceOp[str(value).upper()]
    except KeyError:
        raise ValueError(f"reduce_op is {value!r}; it is ReduceOp.SUM or ReduceOp.MEAN") from None


class InputContext:
    """What a function that makes a dataset is told (tf.distribute.InputContext): how many pipelines
    feed the replicas, which of them it makes, and how many replicas train in step."""

    def __init__(
        self, num_input_pipelines: int = 1, input_pipeline_id: int = 0,
        num_replicas_in_sync: int = 1,
    ) -> None:  # fmt: skip
        self._num_input_pipelines = num_input_pipelines
        self._input_pipeline_id = input_pipeline_id
        self._num_replicas_in_sync = num_replicas_in_sync

    @property
    def num_input_pipelines(self) -> int:
        """How many pipelines there are."""
        return self._num_input_pipelines

    @property
    def input_pipeline_id(self) -> int:
        """Which of them this one is, from 0 on."""
        return self._input_pipeline_id

    @property
    def num_replicas_in_sync(self) -> int:
        """How many replicas train in step."""
        return self._num_replicas_in_sync

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        """The share of each replica; ValueError when they are not equal."""
        size, rest = divmod(global_batch_size, self._num_replicas_in_sync)
        if rest:
            raise ValueError(
                f"the global_batch_size {global_batch_size} cannot be divided among "
                f"{self._num_replicas_in_sync} replicas"
            )
        return size

    def __str__(self) -> str:
        return (
            f"tf.distribute.InputContext(input pipeline id {self._input_pipeline_id}, total: "
            f"{self._num_input_pipelines})"
        )


class ReplicaContext:
    """What a function that strategy.run() calls may ask for (tf.distribute.ReplicaContext)."""

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy

    @property
    def strategy(self) -> Strategy:
        """The strategy whose replica runs."""
        return self._strategy

    @property
    def num_replicas_in_sync(self) -> int:
        """How many replicas train in step."""
        return self._strategy.num_replicas_in_sync

    @property
    def replica_id_in_sync_group(self) -> int:
        """Which of them runs."""
        return 0

    def merge_call(
        self, merge_fn: Callable[..., Any], args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        """merge_fn(strategy, *args, **kwargs), outside of the replica."""
        with entered(self._strategy, None):
            return merge_fn(self._strategy, *args, **(kwargs or {}))

    def all_reduce(self, reduce_op: Any, value: Any, options: Any = None) -> Any:
        """The values of all replicas as one, for each of them."""
        reduce_op_of(reduce_op)
        return value

    def all_gather(self, value: Any, axis: int, options: Any = None) -> Any:
        """The values of all replicas, one behind the other."""
        return value

    def __enter__(self) -> ReplicaContext:
        _present.stack.append((self._strategy, self))
        return self

    def __exit__(self, *_: object) -> None:
        _present.stack.pop()


class StrategyExtended:
    """What libraries ask strategies for (tf.distribute.StrategyExtended)."""

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy

    @contextmanager
    def colocate_vars_with(self, colocate_with_variable: Any) -> Iterator[None]:
        """Variables made in the context are where another one is, and whole."""
        yield

    def variable_created_in_scope(self, v: Any) -> bool:
        """Whether a variable was made in the scope of this strategy."""
        return isinstance(v, Variable) and getattr(v, "_strategy", None) is self._strategy

    @property
    def worker_devices(self) -> tuple[str, ...]:
        """Where replicas run."""
        return ("/device:CPU:0",)

    @property
    def parameter_devices(self) -> tuple[str, ...]:
        """Where variables are."""
        return ("/device:CPU:0",)

    @property
    def experimental_require_static_shapes(self) -> bool:
        """Whether shapes must be known."""
        return False

    def reduce_to(self, reduce_op: Any, value: Any, destinations: Any, options: Any = None) -> Any:
        """The values of all replicas as one."""
        reduce_op_of(reduce_op)
        return value

    def batch_reduce_to(
        self, reduce_op: Any, value_destination_pairs: Sequence[tuple[Any, Any]],
        options: Any = None,
    ) -> list[Any]:  # fmt: skip
        """reduce_to() of pairs (value, destinations)."""
        return [self.reduce_to(reduce_op, value, where) for value, where in value_destination_pairs]

    def update(
        self, var: Any, fn: Callable[..., Any], args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None, group: bool = True,
    ) -> Any:  # fmt: skip
        """fn(var, *args, **kwargs) for the copies of a variable, of which there is one."""
        return fn(var, *args, **(kwargs or {}))


class Strategy:
    """Says where variables are and how often what is computed runs (tf.distribute.Strategy). The
    strategy there is without any other: everything runs once, in this process."""

    def __init__(self) -> None:
        self._extended = StrategyExtended(self)

    @property
    def extended(self) -> Any:
        """What libraries ask for."""
        return self._extended

    @property
    def num_replicas_in_sync(self) -> int:
        """How many replicas train in step."""
        return 1

    @property
    def cluster_resolver(self) -> Any:
        """Who is in the cluster; None without one."""
        return None

    @contextmanager
    def scope(self) -> Iterator[Strategy]:
        """Variables made in the context are the strategy's, and it is the one of get_strategy().
        RuntimeError inside of another strategy's."""
        current = get_strategy()
        if current is not self and has_strategy():
            raise RuntimeError(
                "Mixing different tf.distribute.Strategy objects: the scope of "
                f"{type(self).__name__} is entered inside of that of another strategy"
            )
        if current is self and not in_cross_replica_context() and has_strategy():
            raise RuntimeError("strategy.scope() is entered in a replica, in strategy.run()")
        with entered(self, None), variable_creator_scope(self._creator):
            yield self

    def _coordinator_of_models(self) -> Any:
        """What has workers run the steps of keras models; None: this process runs them."""

    def _creator(self, next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        return next_creator(**kwargs)

    def _check_cross_replica(self, method: str) -> None:
        """For methods that replicas must not call."""
        strategy, replica = _present.stack[-1] if _present.stack else (self, None)
        if strategy is self and replica is not None:
            raise RuntimeError(
                f"Method requires being in cross-replica context: {method}() is called inside of "
                "strategy.run()"
            )

    def run(
        self, fn: Callable[..., Any], args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None, options: Any = None,
    ) -> Any:  # fmt: skip
        """fn(*args, **kwargs) on each replica; the result of the one there is."""
        self._check_cross_replica("run")
        with entered(self, ReplicaContext(self)):
            return inside(fn)(*args, **(kwargs or {}))

    def reduce(self, reduce_op: Any, value: Any, axis: int | None = None) -> Any:
        """The values of all replicas as one, and, with an axis, what each has along it."""
        self._check_cross_replica("reduce")
        how = reduce_op_of(reduce_op)
        if axis is None:
            return value
        reduced = math.reduce_sum if how is ReduceOp.SUM else math.reduce_mean
        return nest.map_structure(lambda leaf: reduced(leaf, axis=axis), value)

    def gather(self, value: Any, axis: int) -> Any:
        """The values of all replicas, one behind the other along an axis."""
        self._check_cross_replica("gather")
        for leaf in nest.flatten(value):
            rank = None if leaf.shape is None else len(leaf.shape)
            if rank is not None and not -rank <= axis < rank:
                raise ValueError(f"gather() along axis {axis} of a value of shape {leaf.shape}")
        return value

    def experimental_local_results(self, value: Any) -> tuple[Any, ...]:
        """The values of the replicas."""
        return (value,)

    def experimental_distribute_dataset(self, dataset: Any, options: Any = None) -> Any:
        """A dataset for the replicas."""
        return dataset

    def distribute_datasets_from_function(
        self, dataset_fn: Callable[[InputContext], Any], options: Any = None
    ) -> Any:
        """A dataset for the replicas, as a function of an InputContext makes it."""
        return dataset_fn(InputContext(num_replicas_in_sync=self.num_replicas_in_sync))


class _Present(threading.local):
    """Strategies of this thread, each with the replica that runs, None outside of replicas."""

    def __init__(self) -> None:
        self.stack: list[tuple[Strategy, ReplicaContext | None]] = []


_present = _Present()
_default = Strategy()


@contextmanager
def entered(strategy: Strategy, replica: ReplicaContext | None) -> Iterator[None]:
    """The strategy, and the replica, of this thread while the context lasts."""
    _present.stack.append((strategy, replica))
    before, creating.strategy = creating.strategy, strategy
    try:
        yield
    finally:
        _present.stack.pop()
        creating.strategy = before


def has_strategy() -> bool:
    """Whether a strategy is present that is not the default one (tf.distribute.has_strategy)."""
    return get_strategy() is not _default


def get_strategy() -> Strategy:
    """The strategy whose scope lasts, else the default one (tf.distribute.get_strategy)."""
    return _present.stack[-1][0] if _present.stack else _default


def get_replica_context() -> ReplicaContext | None:
    """The replica that runs (tf.distribute.get_replica_context): None in strategy.scope(), the
    default strategy's where there is no other."""
    return _present.stack[-1][1] if _present.stack else ReplicaContext(_default)


def in_cross_replica_context() -> bool:
    """Whether no replica runs, in strategy.scope() (tf.distribute.in_cross_replica_context)."""
    return bool(_present.stack) and _present.stack[-1][1] is None
