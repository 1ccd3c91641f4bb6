"""Synchronous training by several clients (tf.compat.v1.train.SyncReplicasOptimizer)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sidereal as _sr

from .. import accumulators, queue
from ..indexed_slices import IndexedSlices
from .coordinator import QueueRunner
from .graph import Graph, GraphKeys, building, get_default_graph, group, no_op
from .operation import Operation
from .training import Optimizer
from .variables import (
    Variable,
    assign,
    global_variables,
    report_uninitialized_variables,
)


class SyncReplicasOptimizer(Optimizer):
    """Takes one step with the mean of what several workers found
    (tf.compat.v1.train.SyncReplicasOptimizer; Chen et al., Revisiting Distributed Synchronous SGD,
    2016).

    Each worker has a client and a graph of its own; variables are shared by name. A worker's
    operation adds its gradients to an accumulator beside each variable, with the step they belong
    to, and then takes a token from a queue beside the global step: the number of the next step.
    The chief's queue runner waits until every accumulator has `replicas_to_aggregate` gradients,
    applies their means, counts the step and puts tokens in. A gradient of a step that is over is
    dropped; its worker still gets a token.

        optimizer = tf.train.SyncReplicasOptimizer(
            tf.train.GradientDescentOptimizer(0.1), replicas_to_aggregate=4)
        train = optimizer.minimize(loss, global_step=tf.train.get_or_create_global_step())
        init_tokens = optimizer.get_init_tokens_op()
        # In the chief, once variables have values:
        session.run([optimizer.chief_init_op, init_tokens])
        optimizer.get_chief_queue_runner().create_threads(session, coordinator, start=True)
        # In the others, once the chief has done that:
        session.run(optimizer.local_step_init_op)

    opt: applies the means. replicas_to_aggregate: gradients in a mean. total_num_replicas: workers;
        more than `replicas_to_aggregate`: the others are spare, and the slowest of a step are not
        waited for; fewer: some contribute to a step more than once. variable_averages,
    variables_to_average: an object whose apply(variables) is run after each step.

    What was made is known after apply_gradients(): `local_step_init_op`, `chief_init_op` (with that
    of the accumulators), `ready_for_local_init_op`.
    """

    def __init__(
        self,
        opt: Optimizer,
        replicas_to_aggregate: int,
        total_num_replicas: int | None = None,
        variable_averages: Any = None,
        variables_to_average: Sequence[Variable] | None = None,
        use_locking: bool = False,
        name: str = "sync_replicas",
    ) -> None:
        super().__init__(use_locking, name)
        total = replicas_to_aggregate if total_num_replicas is None else total_num_replicas
        for what, count in (("replicas_to_aggregate", replicas_to_aggregate),
                            ("total_num_replicas", total)):  # fmt: skip
            if count < 1:
                raise ValueError(f"{what} is {count}; it must be 1 or more")
        self._opt = opt
        self._replicas_to_aggregate = replicas_to_aggregate
        self._total_num_replicas = total
        self._tokens_per_step = max(total, replicas_to_aggregate)
        self._variable_averages = variable_averages
        self._variables_to_average = variables_to_average
        self._global_step: Variable | None = None
        self._local_step: Variable | None = None
        self._sync_token_queue: Any = None
        self._chief_queue_runner: QueueRunner | None = None
        self.local_step_init_op: Any = None
        self.chief_init_op: Any = None
        self.ready_for_local_init_op: Any = None

    # --- What is the wrapped optimizer's.

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Variable]]:
        """See Optimizer.compute_gradients()."""
        return self._opt.compute_gradients(*args, **kwargs)

    def get_slot(self, var: Variable, name: str) -> Variable | None:
        """See Optimizer.get_slot()."""
        return self._opt.get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        """See Optimizer.get_slot_names()."""
        return self._opt.get_slot_names()

    def variables(self) -> list[Variable]:
        """See Optimizer.variables()."""
        return self._opt.variables()

    # --- The step.

    def apply_gradients(
        self,
        grads_and_vars: Sequence[tuple[Any, Variable]],
        global_step: Variable | None = None,
        name: str | None = None,
    ) -> Operation:
        """A worker's operation: adds its gradients to those of the step, and waits for the next
        step. ValueError without gradients, and without a global step."""
        pairs = list(grads_and_vars)
        if not pairs:
            raise ValueError("Must supply at least one variable")
        if global_step is None:
            raise ValueError("Global step is required to check staleness")
        self._global_step = global_step
        graph = get_default_graph()
        with building():
            self._local_step = local_step = self._make_local_step(graph, global_step)
            self.local_step_init_op = assign(local_step, global_step, name="local_step_init").op
            self.ready_for_local_init_op = report_uninitialized_variables(global_variables())
            with graph.name_scope(name or self._name):
                pushes, means, resets = self._accumulate(graph, pairs, local_step)
            with graph.device(None), graph.device(global_step.device or None):
                update = self._opt.apply_gradients(means, global_step)
            with graph.colocate_with(global_step.op, ignore_existing=True):
                token = self._exchange_tokens(graph, pushes, update)
            train = graph.operation(local_step.assign(token))
            self.chief_init_op = group(self.local_step_init_op, *resets, name="chief_init")
        return train

    def _make_local_step(self, graph: Graph, global_step: Variable) -> Variable:
        """The step that this worker's gradients belong to. It lives where the worker's ops run, not
        where its variables go: all workers have one of this name."""
        here = no_op(name="worker").device
        with graph.device(None), graph.device(here or None):
            return Variable(
                lambda: _sr.zeros([], global_step.dtype), trainable=False,
                collections=[GraphKeys.LOCAL_VARIABLES], name="sync_rep_local_step",
            )  # fmt: skip

    def _accumulate(
        self, graph: Graph, pairs: Sequence[tuple[Any, Variable]], local_step: Variable
    ) -> tuple[list[Any], list[tuple[Any, Variable]], list[Any]]:
        """What adds gradients, (mean, variable), and what sets the step of each accumulator."""
        pushes, means, resets = [], [], []
        for grad, variable in pairs:
            if grad is None:
                means.append((None, variable))
                continue
            shared = f"{variable.name}/grad_accum"
            with graph.colocate_with(variable.op, ignore_existing=True):
                mean: Any
                if isinstance(grad, IndexedSlices):
                    rows = accumulators.SparseConditionalAccumulator(
                        grad.values.dtype, shape=variable.shape, shared_name=shared
                    )
                    pushes.append(rows.apply_indexed_slices_grad(grad, local_step))
                    mean = rows.take_indexed_slices_grad(self._replicas_to_aggregate)
                    resets.append(rows.set_global_step(self._global_step))
                else:
                    dense = accumulators.ConditionalAccumulator(
                        grad.dtype, shape=variable.shape, shared_name=shared
                    )
                    pushes.append(dense.apply_grad(grad, local_step))
                    mean = dense.take_grad(self._replicas_to_aggregate)
                    resets.append(dense.set_global_step(self._global_step))
            means.append((mean, variable))
        return pushes, means, resets

    def _exchange_tokens(self, graph: Graph, pushes: list[Any], update: Any) -> Any:
        """The token that a worker takes; what the chief does is in its queue runner."""
        step = self._global_step
        assert step is not None
        tokens = queue.FIFOQueue(
            -1, step.dtype, shapes=(), name="sync_token_q", shared_name="sync_token_q"
        )
        self._sync_token_queue = tokens
        with graph.control_dependencies(pushes):
            token = tokens.dequeue()
        with graph.control_dependencies([update]):
            after = _sr.fill([self._tokens_per_step], step.read_value())
            sync = tokens.enqueue_many(after)
        if self._variable_averages is not None:
            with graph.control_dependencies([sync]):
                sync = self._variable_averages.apply(self._variables_to_average)
        # Nothing goes through this queue: closing it ends the runner, and the tokens stay.
        unused = queue.FIFOQueue(1, "int32", shapes=(), name="dummy_queue")
        self._chief_queue_runner = QueueRunner(unused, [sync])
        return token

    # --- What the chief runs.

    def get_chief_queue_runner(self) -> QueueRunner:
        """What applies the means, in threads of the chief. ValueError before apply_gradients()."""
        if self._chief_queue_runner is None:
            raise ValueError("Should be called after apply_gradients().")
        return self._chief_queue_runner

    def get_init_tokens_op(self, num_tokens: int = -1) -> Operation:
        """Puts the tokens of the first step into the queue: `num_tokens`, or, if -1,
        `replicas_to_aggregate`. ValueError before apply_gradients(), and for fewer than the first
        step needs to be complete, which is the difference between `replicas_to_aggregate` and the
        number of workers."""
        if self._global_step is None or self._sync_token_queue is None:
            raise ValueError("get_init_tokens_op() should be called after apply_gradients().")
        needed = self._replicas_to_aggregate - self._total_num_replicas
        if num_tokens == -1:
            num_tokens = self._replicas_to_aggregate
        elif num_tokens < needed:
            raise ValueError(
                f"Too few tokens to finish the first step: {num_tokens} (given) vs {needed} "
                "(needed)"
            )
        if num_tokens <= 0:
            return no_op(name="no_init_tokens")
        graph = get_default_graph()
        with building(), graph.colocate_with(self._global_step.op, ignore_existing=True):
            first = _sr.fill([num_tokens], self._global_step.read_value())
            return self._sync_token_queue.enqueue_many(first)

    def make_session_run_hook(self, is_chief: bool, num_tokens: int = -1) -> SyncReplicasHook:
        """What does the above at the right time, for a training loop that calls hooks."""
        return SyncReplicasHook(self, is_chief, num_tokens)


class SyncReplicasHook:
    """Prepares a session for a SyncReplicasOptimizer: begin() before the graph is final,
    after_create_session(session, coordinator) when global variables have values."""

    def __init__(self, optimizer: SyncReplicasOptimizer, is_chief: bool, num_tokens: int) -> None:
        self._optimizer = optimizer
        self._is_chief = is_chief
        self._num_tokens = num_tokens
        self._local_init_op: Any = None
        self._init_tokens_op: Any = None
        self._runner: QueueRunner | None = None

    def begin(self) -> None:
        """Adds what is missing to the graph. ValueError before apply_gradients()."""
        optimizer = self._optimizer
        if optimizer.local_step_init_op is None:
            raise ValueError(
                "SyncReplicasOptimizer.apply_gradient should be called before using the hook."
            )
        self._local_init_op = optimizer.local_step_init_op
        if self._is_chief:
            self._local_init_op = optimizer.chief_init_op
            self._init_tokens_op = optimizer.get_init_tokens_op(self._num_tokens)
            self._runner = optimizer.get_chief_queue_runner()

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Sets this worker's step; of the chief, also the step of the accumulators, the first
        tokens, and the threads of the queue runner."""
        session.run(self._local_init_op)
        if self._runner is not None:
            session.run(self._init_tokens_op)
            self._runner.create_threads(session, coord, daemon=True, start=True)

    def before_run(self, run_context: Any) -> None:
        """Adds nothing to a run."""

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Looks at nothing."""

    def end(self, session: Any) -> None:
        """Leaves all as it is."""
