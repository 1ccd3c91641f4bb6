"""Models as files: the graph that predicts, with the values of a checkpoint."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping, Set
from typing import Any

from .. import _native, errors, saved_model
from .. import checkpoint as checkpoint_files
from .. import v1 as _v1
from .._dispatch import ENGINE, convert, state
from .._graphs import FuncGraph
from .._native import Output
from ..function import ConcreteFunction, TensorSpec
from ..tensors import constant
from ..v1.graph import Graph, GraphKeys, building
from ..variable import Variable
from ._inputs import checked_receiver
from ._spec import EstimatorSpec, ModeKeys

#: How a file is called in its folder.
FILE_NAME = "saved_model.srsm"


class _Values:
    """Variables with the values of a checkpoint, instead of those that get_variable() makes."""

    def __init__(self, checkpoint: str) -> None:
        self._checkpoint = checkpoint
        self._reader = checkpoint_files.load_checkpoint(checkpoint)
        self._made: dict[str, Variable] = {}

    def get(self, getter: Any, name: str, *_: Any, **options: Any) -> Any:
        """A custom_getter."""
        if GraphKeys.LOCAL_VARIABLES in (options.get("collections") or ()):
            return getter(name, **options)
        outer = _v1.get_variable_scope()
        full = f"{outer.name}/{name}" if outer.name else name
        if full not in self._made:
            if not self._reader.has_tensor(full):
                raise errors.NotFoundError(
                    f"checkpoint '{self._checkpoint}' has no variable '{full}', which the model "
                    "needs: is it made in training too, under this name?"
                )
            value = self._reader.get_tensor(full)
            trained = bool(options.get("trainable", True))
            with state.at_once():
                self._made[full] = Variable(constant(value), trainable=trained, name=full)
        variable = self._made[full]
        regularizer = options.get("regularizer") or outer.regularizer
        if regularizer is not None:
            with building():
                _v1.add_to_collection(GraphKeys.REGULARIZATION_LOSSES, regularizer(variable))
        return variable


def export(
    base: str, checkpoint: str, receivers: Mapping[str, Callable[[], Any]],
    call: Callable[[Any, Any, str], EstimatorSpec], assets: Mapping[str, str],
) -> str:  # fmt: skip
    """Writes what call(features, labels, mode) gives, for each mode that has a function of
    receivers, to a new folder in `base`; gives the path of the file."""
    values = _Values(checkpoint)
    functions: dict[str, ConcreteFunction] = {}
    for mode, receive in receivers.items():
        functions |= _functions(mode, receive, call, values)
    folder = _new_folder(base)
    path = os.path.join(folder, FILE_NAME)
    try:
        for target, source in assets.items():
            place = os.path.join(folder, "assets.extra", target)
            os.makedirs(os.path.dirname(place), exist_ok=True)
            shutil.copy(source, place)
        saved_model.save(functions, path, signatures=functions)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return path


def _functions(
    mode: str, receive: Callable[[], Any], call: Callable[[Any, Any, str], EstimatorSpec],
    values: _Values,
) -> dict[str, ConcreteFunction]:  # fmt: skip
    """The functions of a mode by the names of their signatures."""
    graph = Graph()
    with graph.as_default():
        with _v1.variable_scope(_v1.get_variable_scope(), custom_getter=values.get):
            _v1.train.create_global_step(graph)
            is_supervised = mode == ModeKeys.EVAL
            features, labels, receivers = checked_receiver(receive(), is_supervised)
            spec = call(features, labels, mode)
        if not is_supervised:
            return {
                name: _function(graph, name, receivers, output.tensors())
                for name, output in (spec.export_outputs or {}).items()
            }
        with graph.building():
            results, after = _evaluated(spec)
        return {mode: _function(graph, mode, receivers, results, after)}


def _evaluated(spec: EstimatorSpec) -> tuple[dict[str, Any], dict[str, Any]]:
    """The outputs of an evaluation by their names in TensorFlow, and those that are read after its
    updates."""
    results = {"loss": spec.loss}
    named = spec.predictions
    for name, value in (named if isinstance(named, Mapping) else {"predictions": named}).items():
        results[_prefixed("predictions", name)] = value
    after = {}
    for name, (value, update) in spec.eval_metric_ops.items():
        prefix = _prefixed("metrics", name)
        after[f"{prefix}/value"] = convert(value)
        # An operation gives nothing, and runs.
        gives = not isinstance(update, _v1.Operation)
        results[f"{prefix}/update_op"] = convert(update) if gives else update
    return results, after


def _prefixed(kind: str, name: str) -> str:
    return name if name.startswith(kind) else f"{kind}/{name}"


def _new_folder(base: str) -> str:
    """A folder called by the seconds since 1970, later than all others there."""
    os.makedirs(base, exist_ok=True)
    stamp = int(time.time())
    while True:
        folder = os.path.join(base, str(stamp))
        try:
            os.mkdir(folder)
        except FileExistsError:
            stamp += 1
        else:
            return folder


def _function(
    graph: Graph, name: str, receivers: Mapping[str, Output], outputs: Mapping[str, Any],
    after: Mapping[str, Output] | None = None,
) -> ConcreteFunction:  # fmt: skip
    """A function of receivers. `outputs` may be operations, which give nothing; `after` are read
    when local variables have been changed."""
    after = after or {}
    # Dicts are flattened in the order of their keys.
    given = [receivers[key] for key in sorted(receivers)]
    wanted = [value.node for value in (*given, *outputs.values())]
    copy = _Copy(graph, name, wanted, [value.node for value in after.values()])
    results = {key: copy.of(value) for key, value in outputs.items() if isinstance(value, Output)}
    copy.read_again([value.node for value in after.values()])
    results |= {key: copy.of(value) for key, value in after.items()}
    made = FuncGraph(name, native=copy.native)
    made.outer = None
    made.arguments = [copy.of(value) for value in given]
    outside = [(variable, place) for variable, place in graph.outside.values() if copy.has(place)]
    made.captures = [(variable, copy.of(place)) for variable, place in outside]
    made.captures += [(local.variable, local.before) for local in copy.locals.values()]
    assigned = [(local.variable, local.now) for local in copy.locals.values() if local.is_changed]
    specs = {
        key: TensorSpec(receivers[key].shape, receivers[key].dtype, key)
        for key in sorted(receivers)
    }
    structure = {key: results[key] for key in sorted(results)}
    return ConcreteFunction.restore(
        made, ((), specs), structure, list(structure.values()), assigned
    )


class _Local:
    """A local variable of a graph that a function keeps: `before` is what it was when the function
    was called, `now` what it has become."""

    def __init__(self, variable: Variable, before: Output) -> None:
        self.variable, self.before, self.now = variable, before, before

    @property
    def is_changed(self) -> bool:
        return self.now is not self.before


#: What changes a variable, and the op that gives its new value of the old one.
_CHANGES = {"VariableAssign": None, "VariableAssignAdd": "Add", "VariableAssignSub": "Sub"}


class _Copy:
    """What some nodes need of a graph, in a graph of its own; `later` will be copied too."""

    def __init__(self, graph: Graph, name: str, nodes: list[int], later: list[int]) -> None:
        self._graph, self._name = graph, name
        self.native = _native.Graph(ENGINE, ordered=True)
        self._made: dict[int, list[Output]] = {}
        self._numbers: dict[int, int] = {}
        #: By the numbers of their nodes.
        self.locals: dict[int, _Local] = {}
        wanted = self._needed([*nodes, *later])
        native = graph.native
        there = [node for node in sorted(wanted) if native.node_op(node) == "Variable"]
        for node, value in zip(there, self._first_values(there)):
            with state.at_once():
                variable = Variable(constant(value), trainable=False, name=native.node_name(node))
            before = self.native.placeholder(variable.name, variable.dtype, variable.shape)
            self.locals[node] = _Local(variable, before)
        self._copy(self._needed(nodes))

    def _first_values(self, nodes: list[int]) -> list[Any]:
        """What the initializers of local variables make."""
        known = {
            variable.op.node: variable
            for variable in self._graph.get_collection(GraphKeys.LOCAL_VARIABLES)
        }
        for node in nodes:
            if node not in known:
                raise errors.UnimplementedError(
                    f"signature '{self._name}' needs the variable "
                    f"'{self._graph.native.node_name(node)}', which was not made by "
                    "get_variable(): make it so, then its value of the checkpoint is exported"
                )
        if not nodes:
            return []
        wanted = [known[node] for node in nodes]
        with _v1.Session(graph=self._graph) as session:
            session.run([variable.initializer for variable in wanted])
            return list(session.run(wanted))

    def _needed(self, waiting: list[int]) -> set[int]:
        native, seen = self._graph.native, set()
        waiting = list(waiting)
        while waiting:
            node = waiting.pop()
            if node in seen:
                continue
            seen.add(node)
            waiting += [value.node for value in native.node_inputs(node)]
            waiting += native.node_controls(node)
        return seen

    def read_again(self, nodes: list[int]) -> None:
        """Copies nodes with what local variables are now; what changes them stays as it is."""
        native = self._graph.native
        needed = self._needed(nodes)
        fresh: set[int] = set()
        # Nodes come after those that they read.
        for node in sorted(needed):
            inputs = {value.node for value in native.node_inputs(node)}
            op = native.node_op(node)
            old = set(self.locals) if op == "VariableRead" else fresh
            if op not in _CHANGES and inputs & old:
                fresh.add(node)
        self._copy(needed, fresh)

    def _copy(self, nodes: set[int], fresh: Set[int] = frozenset()) -> None:
        for node in sorted(nodes):
            if node in self.locals or (node in self._made and node not in fresh):
                continue
            self._made[node] = self._copied(node)
            self._numbers[node] = len(self.native) - 1

    def _copied(self, node: int) -> list[Output]:
        native = self._graph.native
        name, op = native.node_name(node), native.node_op(node)
        attrs = _native.attrs_of(native, node)
        if op == "Placeholder":
            return [self.native.placeholder(name, attrs["dtype"], attrs.get("shape"))]
        given = native.node_inputs(node)
        local = self.locals.get(given[0].node) if given else None
        attrs.pop("_class", None)
        controls = [self._numbers[each] for each in native.node_controls(node)]
        if local is None:
            inputs = [self.of(value) for value in given]
            # What is copied again is called as the core calls it.
            called = None if node in self._made else name
            made = self.native.add(op, inputs, attrs, called, native.site_of(name), controls)
            return list(made) if isinstance(made, tuple) else [] if made is None else [made]
        if op == "VariableRead":
            return [local.now]
        if op not in _CHANGES:
            raise errors.UnimplementedError(
                f"signature '{self._name}' changes the variable '{local.variable.name}' by {op} "
                f"'{name}': local variables of what is exported are changed by assign(), "
                "assign_add() and assign_sub()"
            )
        delta, kind = self.of(given[1]), _CHANGES[op]
        if kind is None:
            local.now = self.native.add("Identity", [delta], {}, name, "", controls)
        else:
            local.now = self.native.add(kind, [local.now, delta], {}, name, "", controls)
        return [local.now]

    def has(self, value: Output) -> bool:
        """Whether a value of the graph is here."""
        return value.node in self._made

    def of(self, value: Output) -> Output:
        """What a value of the graph is here."""
        return self._made[value.node][value.index]
