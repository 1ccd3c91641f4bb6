"""Models as files: the graph that predicts, with the values of a checkpoint."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from typing import Any

import sidereal as _sr

from .. import errors, saved_model
from .. import v1 as _v1
from .._graphs import FuncGraph
from .._native import Output
from ..function import ConcreteFunction, TensorSpec
from ..v1.graph import Graph
from ..v1.operation import Operation
from ..variable import Variable
from ._inputs import checked_receiver

#: How a file is called in its folder.
FILE_NAME = "saved_model.srsm"


class _Values:
    """Variables with the values of a checkpoint, instead of those that get_variable() makes."""

    def __init__(self, checkpoint: str) -> None:
        self._checkpoint = checkpoint
        self._reader = _sr.train.load_checkpoint(checkpoint)
        self._made: dict[str, Variable] = {}

    def get(self, getter: Any, name: str, *_: Any, **options: Any) -> Any:
        """A custom_getter."""
        scope = _v1.get_variable_scope().name
        full = f"{scope}/{name}" if scope else name
        if full not in self._made:
            if not self._reader.has_tensor(full):
                raise errors.NotFoundError(
                    f"checkpoint '{self._checkpoint}' has no variable '{full}', which the model "
                    "needs to predict: is it made in training too, under this name?"
                )
            value = self._reader.get_tensor(full)
            trained = bool(options.get("trainable", True))
            self._made[full] = Variable(_sr.constant(value), trainable=trained, name=full)
        return self._made[full]


def export(
    base: str, checkpoint: str, receive: Callable[[], Any], call: Callable[[Any], Any],
    assets: Mapping[str, str],
) -> str:  # fmt: skip
    """Writes what call(features) predicts to a new folder in `base`; gives the path of the file."""
    graph = Graph()
    values = _Values(checkpoint)
    with graph.as_default():
        with _v1.variable_scope(_v1.get_variable_scope(), custom_getter=values.get):
            _v1.train.create_global_step(graph)
            features, receivers = checked_receiver(receive())
            spec = call(features)
        functions = {
            name: _function(graph, name, receivers, output.tensors())
            for name, output in spec.export_outputs.items()
        }
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
    graph: Graph, name: str, receivers: Mapping[str, Output], outputs: Mapping[str, Output]
) -> ConcreteFunction:
    _check_variables(graph, name, outputs)
    made = FuncGraph(name, native=graph.native)
    made.outer = None
    # Dicts are flattened in the order of their keys.
    made.arguments = [receivers[key] for key in sorted(receivers)]
    made.captures = list(graph.outside.values())
    specs = {
        key: TensorSpec(receivers[key].shape, receivers[key].dtype, key)
        for key in sorted(receivers)
    }
    flat = [outputs[key] for key in sorted(outputs)]
    return ConcreteFunction.restore(made, ((), specs), dict(outputs), flat, [])


def _check_variables(graph: Graph, name: str, outputs: Mapping[str, Output]) -> None:
    """What a file has of variables are the values that get_variable() gave."""
    waiting = [Operation(graph, value.node) for value in outputs.values()]
    seen = set()
    while waiting:
        op = waiting.pop()
        if op.node in seen:
            continue
        seen.add(op.node)
        if op.type == "Variable":
            raise errors.UnimplementedError(
                f"signature '{name}' needs the variable '{op.name}', which was not made by "
                "get_variable(): make it so, then its value of the checkpoint is exported"
            )
        waiting += [Operation(graph, value.node) for value in op.inputs]
        waiting += list(op.control_inputs)
