"""Training in graphs: optimizers, the global step, gradients (tf.compat.v1.train)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import sidereal as _sr

from .. import errors, nest, optimizers
from .._dispatch import apply, convert
from .._native import Output
from ..dtypes import float32, float64
from ..indexed_slices import IndexedSlices
from .graph import Graph, GraphKeys, building, get_default_graph, group
from .operation import Operation
from .partitioned import PartitionedVariable, flat
from .variables import Variable, is_trainable, trainable_variables


def gradients(
    ys: Any,
    xs: Any,
    grad_ys: Any = None,
    name: str = "gradients",
    colocate_gradients_with_ops: bool = False,
    gate_gradients: bool = False,
    aggregation_method: Any = None,
    stop_gradients: Any = None,
    unconnected_gradients: str = "none",
) -> list[Any]:
    """Gradients of the sum of `ys` by each of `xs`, values of the graph or variables
    (tf.gradients): a list of values, None (or zeros) where nothing flows. By a variable that is
    read by rows only (gather, embedding_lookup) they are IndexedSlices. They ask for the devices of
    the scope they are made in."""
    if stop_gradients is not None:
        raise errors.UnimplementedError("gradients(stop_gradients=...): use stop_gradient()")
    sources = nest.flatten(xs)
    if any(isinstance(x, PartitionedVariable) for x in sources):
        raise TypeError("gradients() by a PartitionedVariable: give its parts, list(variable)")
    with building(), get_default_graph().name_scope(name):
        ys = [convert(y) for y in nest.flatten(ys)]
        groups = [list(x.reads) if isinstance(x, Variable) else [x] for x in sources]
        found = iter(
            _sr.gradients(ys, [x for reads in groups for x in reads], grad_ys,
                          unconnected_gradients="none")
        )  # fmt: skip
        sums = [_sum([next(found) for _ in reads]) for reads in groups]
        if unconnected_gradients == "none":
            return sums
        return [
            apply("ZerosLike", (reads[0],)) if grad is None else grad
            for grad, reads in zip(sums, groups)
        ]


def _sum(terms: list[Any]) -> Any:
    """The sum of what flows to the reads of one variable; rows stay rows when all are."""
    there = [term for term in terms if term is not None]
    if len(there) < 2:
        return there[0] if there else None
    if all(isinstance(term, IndexedSlices) for term in there):
        indices = [term.indices for term in there]
        if len({index.dtype for index in indices}) > 1:
            indices = [_sr.cast(index, "int64") for index in indices]
        return IndexedSlices(
            _sr.concat([term.values for term in there], 0), _sr.concat(indices, 0),
            there[0].dense_shape,
        )  # fmt: skip
    return apply("AddN", [convert(term) for term in there])


@dataclass
class Update:
    """What an optimizer has added to a graph for a variable."""

    #: The variable, its slots, and the counter of its updates, where there is one.
    variables: list[Variable]
    step: Variable | None
    is_of_rows: bool
    #: What runs it.
    op: Operation

    @property
    def variable(self) -> Variable:
        """That it updates."""
        return self.variables[0]


@dataclass
class _Change:
    """An update of a variable that is being added to a graph."""

    grad: Any
    #: The variable and its slots.
    kept: list[Variable]
    #: Counts its updates, if the rule needs their number.
    counter: Variable | None
    #: What those are, where they are of 16 bits: these are not updated in place.
    old: list[Any] | None
    step: Any
    rate: Any
    #: Of the names of its operations.
    scope: str
    #: The norms of what the variable is a part of, if anything.
    norms: list[Any] = field(default_factory=list)

    def made(self, op: Operation) -> Update:
        """It was added."""
        variables = self.kept if self.counter is None else [*self.kept, self.counter]
        return Update(variables, self.counter, isinstance(self.grad, IndexedSlices), op)

    @contextmanager
    def in_scope(self) -> Iterator[Graph]:
        """Operations of the context are beside the variable, and named as the update is."""
        graph = self.kept[0].graph
        with graph.name_scope(self.scope), graph.colocate_with(self.kept[0].op):
            yield graph


class Optimizer:
    """Base of the optimizers (tf.compat.v1.train.Optimizer). What one keeps for a variable, its
    slots, are variables beside it, called w/Adagrad and the like."""

    GATE_NONE, GATE_OP, GATE_GRAPH = 0, 1, 2

    #: The formulas: one of sidereal.optimizers, whose learning_rate may be a value of a graph.
    rule: optimizers.Optimizer

    def __init__(self, use_locking: bool, name: str) -> None:
        if not name:
            raise ValueError("Must specify the optimizer name")
        self._name = name
        self._slots: dict[int, dict[str, Variable]] = {}
        self._kept: list[Variable] = []

    def get_name(self) -> str:
        """The name it was given."""
        return self._name

    def minimize(
        self,
        loss: Any,
        global_step: Variable | None = None,
        var_list: Sequence[Variable] | None = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: Any = None,
        colocate_gradients_with_ops: bool = False,
        name: str | None = None,
        grad_loss: Any = None,
    ) -> Operation:
        """An operation that takes one step down from `loss`, and adds one to `global_step`."""
        pairs = self.compute_gradients(loss, var_list, grad_loss=grad_loss)
        return self.apply_gradients(pairs, global_step, name)

    def compute_gradients(
        self,
        loss: Any,
        var_list: Sequence[Variable] | None = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: Any = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: Any = None,
    ) -> list[tuple[Any, Variable]]:
        """Pairs (gradient, variable), by default of the trainable variables; of the parts of a
        PartitionedVariable. None where nothing flows."""
        found = flat(var_list) if var_list is not None else trainable_variables()
        variables = [variable for variable in found if is_trainable(variable)]
        if not variables:
            raise ValueError("No variables to optimize.")
        return list(zip(gradients(loss, variables, grad_loss), variables))

    def apply_gradients(
        self,
        grads_and_vars: Sequence[tuple[Any, Variable]],
        global_step: Variable | None = None,
        name: str | None = None,
    ) -> Operation:
        """An operation that updates variables, each where it lives, and then adds one to
        `global_step`. A gradient is a value of the graph or IndexedSlices, whose rows alone are
        then updated; pairs with None are left out."""
        reached = [(grad, variable) for grad, variable in grads_and_vars if grad is not None]
        if not reached:
            names = [variable.name for _, variable in grads_and_vars]
            raise ValueError(f"No gradients provided for any variable: {names}.")
        graph = get_default_graph()
        for _, variable in reached:
            self._slots_of(variable)
        with building(), graph.name_scope(name or self._name) as scope:
            changes = [self._change(*pair) for pair in self.rule._clipped(reached)]
            self._add_norms_of_whole(changes)
            updates = [self._update(change) for change in changes]
            for change, update in zip(changes, updates):
                graph.updates.append(change.made(graph._operation(update)))
            if global_step is None:
                return group(*updates, name=scope)
            with graph.control_dependencies([group(*updates, name="update")]):
                return global_step.assign_add(1, name=scope).op

    # --- Slots.

    def get_slot(self, var: Variable, name: str) -> Variable | None:
        """What is kept for a variable under a name ("momentum", "accumulator", "m", "v", ...)."""
        return self._slots.get(id(var), {}).get(name)

    def get_slot_names(self) -> list[str]:
        """Names of what is kept for a variable."""
        rule = self.rule._rule()
        return sorted(rule.slot_name(i) for i in range(rule.num_slots))

    def variables(self) -> list[Variable]:
        """All that it keeps."""
        return list(self._kept)

    def _slots_of(self, variable: Variable) -> dict[str, Variable]:
        if id(variable) not in self._slots:
            rule = self.rule._rule()
            slots = {
                rule.slot_name(i): self._slot(
                    variable, rule.initial_slot(i), self._name, rule.slot_is_of_row(i)
                )
                for i in range(rule.num_slots)
            }
            if self.rule.uses_step:
                slots["step"] = self._slot(variable, None, self._name + "/step")
            self._slots[id(variable)] = slots
        return self._slots[id(variable)]

    def _slot(
        self, variable: Variable, first: float | None, name: str, is_of_row: bool = False
    ) -> Variable:
        """A variable beside `variable`: like it, or with a number for each of its rows, full of
        `first`; or a counter."""
        graph: Graph = variable.graph

        def filled() -> Any:
            if first is None:
                return convert(0.0, float64)
            start = convert(first, variable.dtype)
            if variable.shape is not None and all(extent >= 0 for extent in variable.shape):
                return _sr.fill(list(variable.shape[:1] if is_of_row else variable.shape), start)
            like = variable.initial_value
            if is_of_row:
                return _sr.fill(_sr.shape(like)[:1], start)
            return apply("Add", (apply("ZerosLike", (like,)), start))

        with graph.init_scope(), graph.name_scope(None), graph.colocate_with(variable.op):
            made = Variable(filled, trainable=False, name=f"{variable.op.name}/{name}",
                            validate_shape=variable.shape is not None)  # fmt: skip
        whole = variable._save_slice_info
        if whole is not None and made.ndim:
            slot = made.op.name.removeprefix(variable.op.name + "/")
            made._set_save_slice_info(whole.of_slot(slot, made.ndim))
        self._kept.append(made)
        return made

    # --- Updates.

    def _change(self, grad: Any, variable: Variable) -> _Change:
        graph = variable.graph
        slots = dict(self._slots_of(variable))
        part = variable.op.name.replace("/", "_")
        with graph.name_scope(f"update_{part}") as scope, graph.colocate_with(variable.op):
            counter = slots.pop("step", None)
            step = convert(1.0, float64) if counter is None else self._step(counter)
            kept = [variable, *slots.values()]
            in_place = variable.dtype in (float32, float64)
            old = None if in_place else [one.read_value() for one in kept]
            return _Change(grad, kept, counter, old, step, self._rate(step), scope)

    def _add_norms_of_whole(self, changes: Sequence[_Change]) -> None:
        """Gives dense changes of the parts of one variable the norms of all these, where the rule
        uses norms."""
        wholes: dict[str, list[_Change]] = {}
        for change in changes if self.rule.uses_norms else ():
            whole = change.kept[0]._save_slice_info
            if whole is not None and not isinstance(change.grad, IndexedSlices):
                wholes.setdefault(whole.full_name, []).append(change)
        for parts in wholes.values():
            if len(parts) > 1:
                norms = _sr.add_n([self._norms(part) for part in parts], name="norms")
                for part in parts:
                    part.norms = [norms]

    def _norms(self, change: _Change) -> Any:
        with change.in_scope():
            if change.old is None:
                return self._op_in_place("VariableUpdateNorms", change)
            return optimizers.norms_of_values(
                self.rule, change.grad, change.old, change.step, change.rate
            )

    def _update(self, change: _Change) -> Any:
        with change.in_scope() as graph:
            if change.old is None:
                is_rows = isinstance(change.grad, IndexedSlices)
                return self._op_in_place(
                    "VariableUpdateRows" if is_rows else "VariableUpdateDense", change
                )
            new = optimizers.update_values(
                self.rule, change.grad, change.old, change.step, change.rate, change.norms
            )
            with graph.control_dependencies(change.old):
                return group(*(one.assign(value) for one, value in zip(change.kept, new)))

    def _step(self, counter: Variable) -> Any:
        """The number of the update, 1 at the first, kept beside the variable."""
        return counter.assign_add(1.0)

    def _rate(self, step: Any) -> Any:
        is_schedule = isinstance(self.rule.learning_rate, optimizers.schedules.LearningRateSchedule)
        rate = self.rule._rate(step - 1.0 if is_schedule else step)
        if isinstance(rate, (Output, Variable)):
            return _sr.cast(rate, float64)
        return convert(float(rate), float64)

    def _op_in_place(self, op: str, change: _Change) -> Any:
        variable, *slots = change.kept
        grad = change.grad
        if isinstance(grad, IndexedSlices):
            grads = [grad.indices, convert(grad.values, variable.dtype)]
        else:
            grads = [convert(grad, variable.dtype)]
        handles = [slot.handle for slot in slots]
        inputs = [variable.handle, *grads, change.step, change.rate, *handles, *change.norms]
        graph = variable.graph
        return graph.add(op, [graph.enter(value) for value in inputs], self.rule._attrs(), op)


class RuleOptimizer(Optimizer):
    """Any optimizer of sidereal.optimizers in a graph: RuleOptimizer(sr.optimizers.Lamb(0.01)). Its
    slots are called after the rule's class, w/Lamb."""

    def __init__(
        self, rule: optimizers.Optimizer, use_locking: bool = False, name: str | None = None
    ) -> None:
        super().__init__(use_locking, name or type(rule).__name__)
        self.rule = rule


class GradientDescentOptimizer(Optimizer):
    """w -= learning_rate * g. `learning_rate` may be a value of the graph, as in all of these."""

    def __init__(
        self, learning_rate: Any, use_locking: bool = False, name: str = "GradientDescent"
    ) -> None:
        super().__init__(use_locking, name)
        self.rule = optimizers.SGD(learning_rate)


class MomentumOptimizer(Optimizer):
    """Momentum, Nesterov's if asked for."""

    def __init__(
        self, learning_rate: Any, momentum: float, use_locking: bool = False,
        name: str = "Momentum", use_nesterov: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(use_locking, name)
        self.rule = optimizers.Momentum(learning_rate, momentum, use_nesterov)


class AdagradOptimizer(Optimizer):
    """Duchi et al., 2011."""

    def __init__(
        self, learning_rate: Any, initial_accumulator_value: float = 0.1,
        use_locking: bool = False, name: str = "Adagrad",
    ) -> None:  # fmt: skip
        if not initial_accumulator_value > 0:
            raise ValueError(
                f"initial_accumulator_value must be positive: {initial_accumulator_value}"
            )
        super().__init__(use_locking, name)
        self.rule = optimizers.Adagrad(learning_rate, initial_accumulator_value, epsilon=0.0)


class AdamOptimizer(Optimizer):
    """Kingma and Ba, 2015; of rows, only those with gradients."""

    def __init__(
        self, learning_rate: Any = 0.001, beta1: float = 0.9, beta2: float = 0.999,
        epsilon: float = 1e-8, use_locking: bool = False, name: str = "Adam",
    ) -> None:  # fmt: skip
        super().__init__(use_locking, name)
        self.rule = optimizers.Adam(learning_rate, beta1, beta2, epsilon)


class FtrlOptimizer(Optimizer):
    """McMahan et al., 2013."""

    def __init__(
        self, learning_rate: Any, learning_rate_power: float = -0.5,
        initial_accumulator_value: float = 0.1, l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0, use_locking: bool = False, name: str = "Ftrl",
    ) -> None:  # fmt: skip
        super().__init__(use_locking, name)
        self.rule = optimizers.Ftrl(
            learning_rate, learning_rate_power, initial_accumulator_value,
            l1_regularization_strength, l2_regularization_strength,
        )  # fmt: skip


class RMSPropOptimizer(Optimizer):
    """Hinton, 2012; centered if asked for."""

    def __init__(
        self, learning_rate: Any, decay: float = 0.9, momentum: float = 0.0,
        epsilon: float = 1e-10, use_locking: bool = False, centered: bool = False,
        name: str = "RMSProp",
    ) -> None:  # fmt: skip
        super().__init__(use_locking, name)
        self.rule = optimizers.RMSprop(
            learning_rate, decay, momentum, 0.0, centered, epsilon_inside=epsilon,
            initial_mean_square=1.0,
        )  # fmt: skip


class AdadeltaOptimizer(Optimizer):
    """Zeiler, 2012."""

    def __init__(
        self, learning_rate: Any = 0.001, rho: float = 0.95, epsilon: float = 1e-8,
        use_locking: bool = False, name: str = "Adadelta",
    ) -> None:  # fmt: skip
        super().__init__(use_locking, name)
        self.rule = optimizers.Adadelta(learning_rate, rho, epsilon)


class AdamAsyncOptimizer(Optimizer):
    """DeepRec's Adam for asynchronous training."""

    def __init__(
        self, learning_rate: Any = 0.001, beta1: float = 0.9, beta2: float = 0.999,
        epsilon: float = 1e-8, use_locking: bool = False, apply_sparse_rmsprop: bool = False,
        name: str = "AdamAsync",
    ) -> None:  # fmt: skip
        super().__init__(use_locking, name)
        self.rule = optimizers.AdamAsync(
            learning_rate, beta1, beta2, epsilon, apply_sparse_rmsprop
        )


class AdagradDecayOptimizer(Optimizer):
    """DeepRec's Adagrad that forgets. `global_step`: a variable that counts steps from 0; the
    updates of each variable are counted if absent."""

    def __init__(
        self, learning_rate: Any, global_step: Any = None, initial_accumulator_value: float = 0.1,
        accumulator_decay_step: int = 100000, accumulator_decay_rate: float = 0.9,
        use_locking: bool = False, name: str = "AdagradDecay",
    ) -> None:  # fmt: skip
        super().__init__(use_locking, name)
        self._global_step = global_step
        self.rule = optimizers.AdagradDecay(
            learning_rate, initial_accumulator_value, accumulator_decay_step,
            accumulator_decay_rate,
        )  # fmt: skip

    def _step(self, counter: Variable) -> Any:
        if self._global_step is None:
            return super()._step(counter)
        return _sr.cast(self._global_step, float64) + 1.0


# --- The global step.


def create_global_step(graph: Graph | None = None) -> Variable:
    """A variable "global_step" that counts the steps of training; ValueError when there is one."""
    graph = graph or get_default_graph()
    if get_global_step(graph) is not None:
        raise ValueError('"global_step" already exists.')
    with graph.as_default(), graph.name_scope(None):
        keys = [GraphKeys.GLOBAL_VARIABLES, GraphKeys.GLOBAL_STEP]
        return Variable(0, trainable=False, collections=keys, name="global_step", dtype="int64")


def get_global_step(graph: Graph | None = None) -> Any:
    """The global step of the graph; None when it has none."""
    graph = graph or get_default_graph()
    found = graph.get_collection(GraphKeys.GLOBAL_STEP)
    if len(found) > 1:
        raise RuntimeError(f"the collection global_step holds {len(found)} values")
    return found[0] if found else None


def get_or_create_global_step(graph: Graph | None = None) -> Any:
    """The global step of the graph, made when it has none."""
    found = get_global_step(graph)
    return found if found is not None else create_global_step(graph)


def global_step(sess: Any, global_step_tensor: Any) -> int:
    """The number of steps in a session."""
    return int(sess.run(global_step_tensor))
