"""Graphs with their collections as files, and back (tf.compat.v1.train.export_meta_graph): JSON of
the graph's text, the collections and what a Saver runs."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import errors
from .._files import written_whole
from .._native import Output
from ..variable import SaveSliceInfo
from .coordinator import QueueRunner
from .graph import Graph, GraphKeys
from .graph_text import add_text
from .operation import Operation
from .variables import Variable

_log = logging.getLogger("sidereal")

#: Of the file's layout; readers take it and all before it.
_VERSION = 1


def meta_graph_filename(checkpoint_filename: str, meta_graph_suffix: str = "meta") -> str:
    """Where the graph of a checkpoint is."""
    return f"{checkpoint_filename}.{meta_graph_suffix}"


# --- Writing.


def export(
    graph: Graph, filename: str | os.PathLike[str] | None, collection_list: Sequence[str] | None,
    clear_devices: bool, saver: Mapping[str, Any] | None,
) -> str:  # fmt: skip
    """The text of a graph's file, which is written to `filename` if there is one. Collections are
    those of `collection_list`, by default all; what they have that only Python knows is left
    out."""
    variables: dict[int, tuple[int, dict[str, Any]]] = {}
    names = graph.get_all_collection_keys() if collection_list is None else collection_list
    collections = {}
    for name in names:
        if name == GraphKeys.SAVERS:
            continue
        items = [_written(item, variables) for item in graph.get_collection(name)]
        if None in items:
            _log.info("collection '%s' has things of Python alone, which files do not have", name)
        collections[name] = [item for item in items if item is not None]
    text = json.dumps({
        "sidereal_meta_graph": _VERSION,
        "graph": graph.native.text(),
        "clear_devices": clear_devices,
        "variables": [written for _, written in variables.values()],
        "collections": collections,
        "saver": saver,
    })  # fmt: skip
    if filename is not None:
        with written_whole(Path(filename)) as file:
            file.write(text.encode())
    return text


def _written(item: Any, variables: dict[int, tuple[int, dict[str, Any]]]) -> Any:
    """An item of a collection; None when a file cannot have it."""
    if isinstance(item, Variable):
        if id(item) not in variables:
            variables[id(item)] = len(variables), _written_variable(item)
        return {"variable": variables[id(item)][0]}
    if isinstance(item, Operation):
        return {"operation": item.name}
    if isinstance(item, Output):
        return {"tensor": item.name}
    if isinstance(item, QueueRunner):
        return {
            "queue_runner": item.name,
            "ops": [_operation_name(op) for op in item.enqueue_ops],
            "close": _operation_name(item.close_op),
            "cancel": _operation_name(item.cancel_op),
        }
    return {"value": item} if isinstance(item, (str, int, float, bool)) else None


def _operation_name(op: Any) -> str:
    return op.name if isinstance(op, Operation) else op.op.name


def _written_variable(variable: Variable) -> dict[str, Any]:
    info = variable._get_save_slice_info()
    return {
        "handle": variable.op.name,
        "initializer": variable.initializer.name,
        "initial_value": variable.initial_value.name,
        "snapshot": variable._snapshot.name,
        "reads": [value.name for value in variable.reads],
        "trainable": variable.trainable,
        "slice": None if info is None else [
            info.full_name, info.full_shape, info.var_offset, info.var_shape
        ],
    }  # fmt: skip


# --- Reading.


def import_into(
    graph: Graph, given: Any, clear_devices: bool, import_scope: str | None
) -> dict[str, Any] | None:
    """Adds what a file, or its text, has to a graph; what it says of a saver, None if nothing."""
    read = _read(given)
    prefix = f"{import_scope}/" if import_scope else ""
    add_text(graph, read["graph"], prefix, clear_devices or read["clear_devices"])
    reader = _Reader(graph, prefix)
    variables = [reader.variable(written) for written in read["variables"]]
    for name, items in read["collections"].items():
        for item in items:
            if "variable" in item:
                graph.add_to_collection(name, variables[item["variable"]])
            else:
                graph.add_to_collection(name, reader.item(item))
    saver = read["saver"]
    if saver is None or saver["prefix"] is None:
        return saver
    names = ("prefix", "saved", "restored", "base", "since")
    return saver | {key: prefix + saver[key] for key in names if saver.get(key) is not None}


def _read(given: Any) -> dict[str, Any]:
    where = "the text of a meta graph"
    text = given
    if isinstance(given, os.PathLike) or not str(given).lstrip().startswith("{"):
        where = f"'{os.fspath(given)}'"
        try:
            text = Path(given).read_text()
        except FileNotFoundError:
            raise errors.NotFoundError(
                f"there is no file {where}; Saver.save() writes it as PREFIX.meta, unless it is "
                "told not to"
            ) from None
        except UnicodeDecodeError:
            raise errors.InvalidArgumentError(
                f"{where} is no meta graph of sidereal; those of TensorFlow cannot be imported: "
                "build the graph and restore its variables"
            ) from None
    try:
        read = json.loads(text)
        version = read["sidereal_meta_graph"]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise errors.InvalidArgumentError(
            f"{where} is no meta graph of sidereal: {error}"
        ) from None
    if version > _VERSION:
        raise errors.InvalidArgumentError(
            f"{where} has version {version}; this release reads up to {_VERSION}"
        )
    return read


class _Reader:
    """Finds what a file names in the graph that it was added to."""

    def __init__(self, graph: Graph, prefix: str) -> None:
        self._graph = graph
        self._prefix = prefix

    def item(self, written: Mapping[str, Any]) -> Any:
        if "operation" in written:
            return self._operation(written["operation"])
        if "tensor" in written:
            return self._tensor(written["tensor"])
        if "queue_runner" in written:
            return QueueRunner(
                _Named(written["queue_runner"]), [self._operation(op) for op in written["ops"]],
                self._operation(written["close"]), self._operation(written["cancel"]),
            )  # fmt: skip
        return written["value"]

    def _operation(self, name: str) -> Operation:
        return self._graph.get_operation_by_name(self._prefix + name)

    def _tensor(self, name: str) -> Output:
        node, _, index = name.partition(":")
        return self._operation(node).outputs[int(index or 0)]

    def variable(self, written: Mapping[str, Any]) -> Variable:
        info = written["slice"]
        made = Variable._of_nodes(
            self._operation(written["handle"]), self._operation(written["initializer"]),
            self._tensor(written["initial_value"]),
            [self._tensor(name) for name in [written["snapshot"], *written["reads"]]],
            written["trainable"],
        )  # fmt: skip
        if info is not None:
            made._set_save_slice_info(SaveSliceInfo(*info))
        return made


class _Named:
    """Stands for a queue whose ops are known."""

    def __init__(self, name: str) -> None:
        self.name = name
