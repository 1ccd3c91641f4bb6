"""Synchronous training by several clients (tf.compat.v1.train.SyncReplicasOptimizer)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import Any

import sidereal as _sr

from .. import accumulators, errors, queue
from ..indexed_slices import IndexedSlices
from .coordinator import QueueRunner
from .graph import Graph, GraphKeys, building, get_default_graph, group, no_op, placeholder
from .operation import Operation
from .session_run_hook import SessionRunHook
from .training import Optimizer
from .variables import (
    Variable,
    assign,
    global_variables,
    report_uninitialized_variables,
)

_log = logging.getLogger("sidereal")

#: How often the chief looks whether there are steps, in seconds, and how many times longer than the
#: longest one before it a step may take that is still waited for.
_LOOK_S, _SLOW = 1.0, 10
#: How often a chief that waits for the others says so, in seconds.
_SAY_EVERY_S = 30


class SyncReplicasOptimizer(Optimizer):
    """Takes one step with the mean of what several workers found
    (tf.compat.v1.train.SyncReplicasOptimizer; Chen et al., Revisiting Distributed Synchronous SGD,
    2016).

    Each worker has a client and a graph of its own; variables are shared by name. A worker's
    operation adds its gradients to an accumulator beside each variable, with the step they belong
    to, and then takes a token from a queue beside the global step: the number of the next step.
    The chief's queue runner waits until every accumulator has `replicas_to_aggregate` gradients,
    applies their means, counts the step and puts tokens in. A gradient of a step that is over is
    dropped; its worker still gets a token. A worker that has left is not waited for: steps need as
    many gradients fewer as it gives, and there are as many tokens fewer.

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
    variables_to_average: an object whose apply(variables) is run after each step. hybrid: gradients
    of rows (IndexedSlices) are applied by each worker at once, and only those of other variables in
    step (Lian et al., Persia, 2022): a worker's operation waits for both, and what is kept for
    tables counts their own updates.

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
        *,
        hybrid: bool = False,
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
        self._hybrid = hybrid
        self._global_step: Variable | None = None
        self._local_step: Variable | None = None
        self._sync_token_queue: Any = None
        self._chief_queue_runner: QueueRunner | None = None
        #: How many workers have left, counted beside the global step.
        self._left: Variable | None = None
        self._left_once: Any = None
        self._share: Any = None
        self._leave: Any = None
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
        rows: list[tuple[Any, Variable]] = []
        if self._hybrid:
            rows = [pair for pair in pairs if isinstance(pair[0], IndexedSlices)]
            pairs = [pair for pair in pairs if not isinstance(pair[0], IndexedSlices)]
            if all(grad is None for grad, _ in pairs):
                raise ValueError(
                    "hybrid: all gradients are of rows, and nothing is left to be updated in step; "
                    "use the optimizer itself, or BoundedStalenessHook(1)"
                )
        self._global_step = global_step
        graph = get_default_graph()
        with building():
            self._local_step = local_step = self._make_local_step(graph, global_step)
            self.local_step_init_op = assign(local_step, global_step, name="local_step_init").op
            self.ready_for_local_init_op = report_uninitialized_variables(global_variables())
            self._left = self._make_counter(graph, global_step)
            self._share = placeholder("int64", [], "sync_rep_share")
            with graph.name_scope(name or self._name):
                pushes, means, resets, leaves = self._accumulate(graph, pairs, local_step)
                if rows:
                    pushes.append(self._opt.apply_gradients(rows, name="rows"))
            with graph.device(None), graph.device(global_step.device or None):
                update = self._opt.apply_gradients(means, global_step)
            with graph.colocate_with(global_step.op, ignore_existing=True):
                token = self._exchange_tokens(graph, pushes, update)
            train = graph.operation(local_step.assign(token))
            self.chief_init_op = group(
                self.local_step_init_op, self._left.initializer, *resets, name="chief_init"
            )
            self._leave = group(*leaves, name="leave")
            self._left_once = self._left.assign_add(1)
        return train

    @staticmethod
    def _make_counter(graph: Graph, global_step: Variable) -> Variable:
        """How many workers have left. It is in no collection: checkpoints do not have it, and the
        chief sets it back."""
        with graph.device(None), graph.colocate_with(global_step.op, ignore_existing=True):
            return Variable(
                lambda: _sr.zeros([], "int64"), trainable=False, collections=[],
                name="sync_rep_left",
            )  # fmt: skip

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
    ) -> tuple[list[Any], list[tuple[Any, Variable]], list[Any], list[Any]]:
        """What adds gradients, (mean, variable), what begins each accumulator anew at the global
        step, and what takes the share of a worker off what it waits for."""
        pushes, means, resets, leaves = [], [], [], []
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
                    made: Any = rows
                else:
                    dense = accumulators.ConditionalAccumulator(
                        grad.dtype, shape=variable.shape, shared_name=shared
                    )
                    pushes.append(dense.apply_grad(grad, local_step))
                    mean = dense.take_grad(self._replicas_to_aggregate)
                    made = dense
                resets.append(made.restart(self._global_step, self._tokens_per_step))
                leaves.append(made.leave(self._share))
            means.append((mean, variable))
        return pushes, means, resets, leaves

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
            after = _sr.fill([self._tokens_of_step()], step.read_value())
            sync = tokens.enqueue_many(after)
        if self._variable_averages is not None:
            with graph.control_dependencies([sync]):
                sync = self._variable_averages.apply(self._variables_to_average)
        # Nothing goes through this queue: closing it ends the runner, and the tokens stay.
        unused = queue.FIFOQueue(1, "int32", shapes=(), name="dummy_queue")
        self._chief_queue_runner = QueueRunner(unused, [sync])
        return token

    def _tokens_of_step(self) -> Any:
        """How many tokens a step has: one for each gradient that those workers give who have not
        left."""
        assert self._left is not None
        total = self._total_num_replicas
        gone = _sr.math.minimum(self._left.read_value(), total)
        gone = _sr.math.floordiv(gone * self._tokens_per_step, total)
        return _sr.cast(_sr.math.maximum(self._tokens_per_step - gone, 1), "int32")

    def _leave_steps(self, session: Any) -> int:
        """Makes steps wait for one worker less; how many have left. Their shares of the gradients
        of a step, `_tokens_per_step`, add up to these."""
        assert self._left is not None
        number = int(session.run(self._left_once))
        per_step, total = self._tokens_per_step, self._total_num_replicas
        if number <= total:
            share = per_step * number // total - per_step * (number - 1) // total
            session.run(self._leave, {self._share: share})
        return number

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

    def make_session_run_hook(
        self, is_chief: bool, num_tokens: int = -1, *, replica_timeout_secs: float = 60
    ) -> SyncReplicasHook:
        """What does the above at the right time in a MonitoredSession, and leaves at the end.
        replica_timeout_secs: how long the chief's lets a step wait, at least, before it goes on
        without a worker, which may have died."""
        return SyncReplicasHook(self, is_chief, num_tokens, replica_timeout_secs)


class SyncReplicasHook(SessionRunHook):
    """Prepares sessions for a SyncReplicasOptimizer, and leaves at the end: steps wait for one
    worker less then.

    The chief, whose thread makes the steps, goes on with it at its end until all others have left,
    or take no steps any more. It also watches that there are steps: when one has waited for much
    longer than those before it took, it goes on without one worker. One that dies is left behind
    like that; one that was only slow, or comes again, still adds its gradients.
    """

    def __init__(
        self, optimizer: SyncReplicasOptimizer, is_chief: bool, num_tokens: int,
        replica_timeout_secs: float = 60,
    ) -> None:  # fmt: skip
        self._optimizer = optimizer
        self._is_chief = is_chief
        self._num_tokens = num_tokens
        self._timeout_s = replica_timeout_secs
        self._local_init_op: Any = None
        self._init_tokens_op: Any = None
        self._runner: QueueRunner | None = None
        self._threads: list[threading.Thread] = []
        self._watch: _Watch | None = None

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
        tokens, and the threads that make steps and watch them."""
        session.run(self._local_init_op)
        if self._runner is not None:
            session.run(self._init_tokens_op)
            self._threads = self._runner.create_threads(session, coord, daemon=True, start=True)
            self._watch = _Watch(self._optimizer, session, coord, self._timeout_s)

    def end(self, session: Any) -> None:
        """Leaves. The chief makes steps until the others have left as well."""
        left = self._optimizer._leave_steps(session)
        if self._watch is not None:
            self._watch.wait_for_others(left)


class _Watch:
    """Watches that there are steps, in a thread of the chief."""

    def __init__(
        self, optimizer: SyncReplicasOptimizer, session: Any, coord: Any, timeout_s: float
    ) -> None:
        self._optimizer = optimizer
        self._session = session
        self._coord = coord
        self._timeout_s = timeout_s
        self._ended = threading.Event()
        self._is_ending = False
        self._thread = threading.Thread(target=self._run, daemon=True, name="SyncReplicas-watch")
        coord.register_thread(self._thread)
        self._thread.start()

    def _run(self) -> None:
        optimizer = self._optimizer
        total = optimizer._total_num_replicas
        seen: int | None = None
        since, longest, left = time.monotonic(), 0.0, 0
        try:
            while left < total and not self._coord.wait_for_stop(min(_LOOK_S, self._timeout_s / 4)):
                step, left = map(
                    int, self._session.run([optimizer._global_step, optimizer._left])
                )
                now = time.monotonic()
                if step != seen:
                    longest = 0.0 if seen is None else max(longest, now - since)
                    seen, since = step, now
                elif now - since > max(self._timeout_s, _SLOW * longest) and left < total:
                    _log.warning(
                        "step %d has waited for %.0f s: it goes on without one of the %d workers "
                        "that have not left; one may have died", step, now - since, total - left,
                    )  # fmt: skip
                    left = optimizer._leave_steps(self._session)
                    # At the end one is enough to go on; if there is none, nobody is left.
                    while self._is_ending and left < total - 1:
                        left = optimizer._leave_steps(self._session)
                    since = now
        except (errors.Error, RuntimeError) as error:
            # Who trains meets it as well, unless this is the end.
            if not self._coord.should_stop():
                _log.info("the steps of the workers are not watched any more: %s", error)
        finally:
            self._ended.set()

    def wait_for_others(self, left: int) -> None:
        """Until all have left: that some never will is known after a time without steps."""
        if left >= self._optimizer._total_num_replicas:
            return
        self._is_ending = True
        waited = 0
        while not self._ended.wait(_SAY_EVERY_S):
            waited += _SAY_EVERY_S
            _log.info("this worker has ended %d s ago; it makes the steps of others until they "
                      "have, too", waited)  # fmt: skip
