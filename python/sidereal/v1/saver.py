"""Saving and restoring variables of sessions (tf.compat.v1.train.Saver).

    saver = tf.train.Saver()
    with tf.Session(server.target) as session:
        ...
        path = saver.save(session, "model/model.ckpt", global_step=step)
        saver.restore(session, path)

What a checkpoint is made of is in docs/formats; which ones a folder has is in
checkpoint_management.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _native, errors
from .. import checkpoint_management as _checkpoints
from . import meta_graph as _meta_graph
from .graph import Graph, GraphKeys, constant, get_default_graph, group, placeholder
from .meta_graph import meta_graph_filename
from .operation import Operation
from .saveable import (
    Entry,
    SaveableObject,
    by_group,
    by_task,
    restore_objects,
    save_objects,
    saved_of,
)
from .session import BaseSession
from .variables import global_variables

_log = logging.getLogger("sidereal")


@dataclass(frozen=True)
class _Nodes:
    """What a saver runs."""

    #: Is fed with the prefix of the files.
    prefix: Any
    #: The prefix, when all is on disk.
    saved: Any
    restored: Operation
    #: What increments are to stand on: the prefix, and the cut that it is of.
    base: Any = None
    since: Any = None


class Saver:
    """Writes variables to checkpoints and gives them the values of one
    (tf.compat.v1.train.Saver).

    Each task that has variables writes a file of its own, while training goes on; an index comes
    last, so that a checkpoint is there whole or not at all. A variable in parts is saved as slices
    of one tensor, which variables that are cut otherwise, or not at all, can be restored from.

    var_list: variables, or a dict of them by the names that files are to call them by; all global
        ones, and what is in the collection SAVEABLE_OBJECTS, if absent. Makes a ValueError when
        there are none, unless `allow_empty`.
    reshape: restores tensors whose shapes differ from those of the variables, if as many elements
        fit.
    sharded: taken; every task writes what it has in any case.
    max_to_keep: how many checkpoints stay on disk; 0 or None: all.
    keep_checkpoint_every_n_hours: of those that would be deleted, one in so many hours stays.
    defer_build: build() adds the nodes, when the last variable has been made.
    pad_step_number: steps in names have eight digits, so that names sort.
    incremental_save_restore: incremental_save() writes what has changed since the last save.
    movable: variables may go to other parameter servers: each is a file of its own, with what was
        made beside it. One that a session with movable=True makes, or builds, is so in any case.
    """

    def __init__(
        self,
        var_list: Any = None,
        reshape: bool = False,
        sharded: bool = False,
        max_to_keep: int | None = 5,
        keep_checkpoint_every_n_hours: float = 10000.0,
        name: str | None = None,
        restore_sequentially: bool = False,
        saver_def: Any = None,
        builder: Any = None,
        defer_build: bool = False,
        allow_empty: bool = False,
        write_version: Any = None,
        pad_step_number: bool = False,
        save_relative_paths: bool = False,
        filename: str | None = None,
        incremental_save_restore: bool = False,
        *,
        movable: bool = False,
    ) -> None:
        for what, given in (("saver_def", saver_def), ("builder", builder)):
            if given is not None:
                raise errors.UnimplementedError(
                    f"Saver({what}=...) is not in this release; import_meta_graph() gives the "
                    "saver of a graph that was exported"
                )
        if defer_build and var_list is not None:
            raise ValueError(
                "If `var_list` is provided then build cannot be deferred. Either set "
                "defer_build=False or var_list=None."
            )
        self._var_list = var_list
        self._reshape = reshape
        self._max_to_keep = max(0, max_to_keep or 0)
        self._every_s = keep_checkpoint_every_n_hours * 3600
        self._next_kept = time.time() + self._every_s
        self._name = name
        self._allow_empty = allow_empty
        self._pad_step_number = pad_step_number
        self._lock = threading.Lock()
        #: (path, seconds at which it was made), oldest first.
        self._last: list[tuple[str, float]] = []
        self._leaving: list[tuple[str, float]] = []
        self._built = False
        self._nodes: _Nodes | None = None
        self._reshaped: list[Entry] = []
        self._is_incremental = incremental_save_restore
        self._movable = movable
        #: What the next increment stands on; None: there was no save, or the last one failed.
        self._base: str | None = None
        #: Whether there is something of which a save that steps go on beside is no one instant.
        self._has_objects = False
        if not defer_build:
            self.build()

    @classmethod
    def _of_nodes(cls, graph: Graph, written: Mapping[str, Any]) -> Saver:
        """The saver that _written() describes, whose nodes are in `graph`."""
        made = cls(defer_build=True, max_to_keep=written["max_to_keep"], allow_empty=True,
                   keep_checkpoint_every_n_hours=written["hours"])  # fmt: skip
        made._built = True
        made._has_objects = written.get("has_objects", False)
        made._is_incremental = written.get("since") is not None
        if written["prefix"] is not None:
            made._nodes = _Nodes(
                graph.get_tensor_by_name(written["prefix"]),
                graph.get_tensor_by_name(written["saved"]),
                graph.get_operation_by_name(written["restored"]),
                *(graph.get_tensor_by_name(written[name]) for name in ("base", "since")
                  if made._is_incremental),
            )  # fmt: skip
        return made

    def _written(self) -> dict[str, Any]:
        """What a meta graph has of it."""
        nodes = self._nodes
        base = since = None
        if nodes is not None and self._is_incremental:
            base, since = nodes.base.name, nodes.since.name
        return {
            "max_to_keep": self._max_to_keep, "hours": self._every_s / 3600,
            "prefix": None if nodes is None else nodes.prefix.name,
            "saved": None if nodes is None else nodes.saved.name,
            "restored": None if nodes is None else nodes.restored.name,
            "base": base,
            "since": since,
            "has_objects": self._has_objects,
        }  # fmt: skip

    # --- Nodes.

    def build(self) -> None:
        """Adds what it runs to the default graph, unless that was done."""
        if self._built:
            return
        entries, objects = saved_of(self._var_list)
        if not entries and not objects and not self._allow_empty:
            raise ValueError("No variables to save")
        self._has_objects = bool(objects)
        if entries or objects:
            self._nodes = self._add_nodes(get_default_graph(), entries, objects)
        if self._reshape:
            self._reshaped = entries
            parts = [entry.name for entry in entries if entry.slices]
            if parts:
                raise ValueError(
                    f"reshape=True restores whole variables; '{parts[0]}' is saved as slices"
                )
        self._built = True

    def _add_nodes(
        self, graph: Graph, entries: Sequence[Entry], objects: Sequence[SaveableObject]
    ) -> _Nodes:
        if self._movable or graph.movable:
            groups = by_group(entries, graph)
        else:
            groups = list(by_task(entries, lambda entry: entry.variable.device).values())
        others = list(by_task(objects, lambda each: each.device).values())
        tracks = {"tracks_changes": True} if self._is_incremental else {}
        with graph.init_scope(), graph.device(None), graph.building():
            with graph.name_scope(self._name or "save"):
                prefix = placeholder("string", [], "Const")
                base = since = constant("", name="base")
                if self._is_incremental:
                    base, since = (placeholder("string", [], name) for name in ("base", "since"))
                shards = len(groups) + len(others)
                parts, restored = [], []
                for shard, group_ in enumerate(groups):
                    names = {
                        "names": [entry.name for entry in group_],
                        "slices": [entry.slices for entry in group_],
                    }
                    where = {"shard": shard, "shards": shards}
                    handles = [entry.variable.handle for entry in group_]
                    with graph.colocate_with(group_[0].variable.op, ignore_existing=True):
                        parts.append(
                            graph.add("SaveVariables", [prefix, since, *handles],
                                      names | where | tracks, "SaveVariables")
                        )  # fmt: skip
                        restored.append(
                            graph.add("RestoreVariables", [prefix, *handles], names,
                                      "RestoreVariables")
                        )  # fmt: skip
                for shard, some in enumerate(others, len(groups)):
                    parts.append(save_objects(graph, prefix, some, shard, shards))
                    restored += restore_objects(graph, prefix, some)
                done = graph.add("CommitCheckpoint", [prefix, base, *parts], None, "Commit")
                with graph.control_dependencies([done]):
                    saved = graph.add("Identity", [prefix], None, "control_dependency")
                return _Nodes(prefix, saved, group(*restored, name="restore_all"), base, since)

    # --- Saving.

    def save(
        self,
        sess: Any,
        save_path: str,
        global_step: Any = None,
        latest_filename: str | None = None,
        meta_graph_suffix: str = "meta",
        write_meta_graph: bool = True,
        write_state: bool = True,
        strip_default_attrs: bool = False,
        save_debug_info: bool = False,
        *,
        options: Any = None,
    ) -> str | None:
        """Writes a checkpoint; its prefix, `save_path` with "-STEP" behind it if there is a
        `global_step`. Values are those of one instant on each lane of each task.

        latest_filename: another name of the file that lists checkpoints.
        write_meta_graph: whether the graph is written beside it, to "PREFIX.meta".
        write_state: whether it is listed, and old ones are deleted.
        options: RunOptions of the run that writes.

        Errors: ValueError when the folder is not there; those of Session.run(): ResourceExhausted
        when the disk is full, PermissionDenied, FailedPrecondition for a variable without a value.
        """
        return self._save(
            sess, save_path, global_step, latest_filename, meta_graph_suffix, write_meta_graph,
            write_state, options, is_increment=False,
        )  # fmt: skip

    def _save(
        self, sess: Any, save_path: str, global_step: Any, latest_filename: str | None,
        meta_graph_suffix: str, write_meta_graph: bool, write_state: bool, options: Any, *,
        is_increment: bool,
    ) -> str | None:  # fmt: skip
        if not self._built:
            raise RuntimeError("`build()` should be called before save if defer_build==True")
        latest_filename = latest_filename or _checkpoints.STATE_FILE
        if os.path.dirname(latest_filename):
            raise ValueError("'latest_filename' must not contain path components")
        if not isinstance(sess, BaseSession):
            raise TypeError(f"'sess' must be a Session; {sess}")
        save_path = os.fspath(save_path)
        path = self._path(sess, save_path, global_step)
        if global_step is None and os.path.basename(save_path) == latest_filename:
            raise ValueError(
                f"'latest_filename' collides with 'save_path': '{latest_filename}' and "
                f"'{save_path}'"
            )
        folder = os.path.dirname(save_path)
        if self._nodes is not None:
            if folder and not os.path.isdir(folder):
                raise ValueError(f"Parent directory of {save_path} doesn't exist, can't save.")
            path = self._write(sess, path, options, is_increment)
            if write_state:
                self._list(path, folder, latest_filename, meta_graph_suffix)
        if write_meta_graph:
            self.export_meta_graph(
                meta_graph_filename(path, meta_graph_suffix), graph=sess.graph
            )
        return None if self._nodes is None else path

    def incremental_save(
        self, sess: Any, save_path: str, global_step: Any = None, *, options: Any = None,
    ) -> str | None:  # fmt: skip
        """As save(), with what has changed since the last save() or incremental_save(), on which
        this checkpoint stands, and without the graph. It is a whole one where nothing was saved
        before, or the last one could not be written.

        Errors: RuntimeError unless the Saver was made with incremental_save_restore=True; those of
        save()."""
        if not self._is_incremental:
            raise RuntimeError(
                "incremental_save() is for a Saver that keeps note of what changes: make it with "
                "incremental_save_restore=True"
            )
        return self._save(
            sess, save_path, global_step, None, "meta", False, True, options, is_increment=True
        )

    def _path(self, sess: BaseSession, save_path: str, global_step: Any) -> str:
        if global_step is None:
            return save_path
        if not isinstance(global_step, (int, np.integer)):
            global_step = sess.run(global_step)
        step = f"{int(global_step):08d}" if self._pad_step_number else str(int(global_step))
        return f"{save_path}-{step}"

    def _write(self, sess: BaseSession, prefix: str, options: Any, is_increment: bool) -> str:
        """Writes the files, and gives the prefix."""
        assert self._nodes is not None
        feeds = {self._nodes.prefix: prefix}
        base, self._base = self._base_of(prefix) if is_increment else None, None
        if self._is_incremental:
            feeds[self._nodes.base] = base or ""
            feeds[self._nodes.since] = _native.CheckpointReader(base).cut if base else ""
        try:
            with _checkpoints.writing(prefix):
                written = sess.run(self._nodes.saved, feeds, options)
        except BaseException:
            if self._is_incremental:
                _log.warning("%s could not be written; the next checkpoint is a whole one", prefix)
            raise
        path = written.decode() if isinstance(written, bytes) else str(written)
        self._base = path if self._is_incremental else None
        return path

    def _base_of(self, prefix: str) -> str | None:
        """What a new checkpoint may stand on; None: it is to be whole."""
        base = self._base
        if base is None or os.path.abspath(prefix) in _checkpoints.needed_by([base]):
            return None
        if os.path.dirname(os.path.abspath(base)) != os.path.dirname(os.path.abspath(prefix)):
            return None
        missing = _checkpoints.missing_files(base)
        if missing:
            _log.warning("%s is missing: %s is a whole checkpoint", missing[0], prefix)
        return None if missing else base

    def _list(self, path: str, folder: str, latest_filename: str, suffix: str) -> None:
        """Lists a new checkpoint and deletes the oldest, if there are too many."""
        with self._lock:
            if self._max_to_keep:
                self._last = [one for one in self._last if one[0] != path]
                self._last.append((path, time.time()))
                self._take_leave()
            # First, so that what is listed is there.
            _checkpoints.update_checkpoint_state(
                folder or ".", path, [one for one, _ in self._last] or [path], latest_filename
            )
            leaving, self._leaving = self._leaving, []
            stays: set[str] = set()
            for old, made in leaving:
                if made > self._next_kept:
                    self._next_kept += self._every_s
                    stays |= _checkpoints.needed_by([old])
            for old, _ in leaving:
                if os.path.abspath(old) not in stays:
                    _checkpoints.remove_checkpoint(old, suffix)

    def _take_leave(self) -> None:
        """Takes those off the list that are too many, and that no newer one stands on."""
        newest = self._last[-self._max_to_keep :]
        needed = _checkpoints.needed_by(path for path, _ in newest)
        older = self._last[: -self._max_to_keep]
        held = [one for one in older if os.path.abspath(one[0]) in needed]
        self._leaving += [one for one in older if one not in held]
        self._last = held + newest

    def export_meta_graph(
        self,
        filename: str | None = None,
        collection_list: Sequence[str] | None = None,
        as_text: bool = False,
        export_scope: str | None = None,
        clear_devices: bool = False,
        *,
        graph: Graph | None = None,
    ) -> str:
        """Writes the graph, its collections and what this saver runs; the text of the file."""
        return _meta_graph.export(
            graph or get_default_graph(), filename, collection_list, clear_devices, self._written()
        )

    # --- Restoring.

    def restore(self, sess: Any, save_path: str | None) -> None:
        """Gives all variables the values of a checkpoint. They need not have been initialised.

        Errors: ValueError when there is no such checkpoint; NotFoundError when it lacks a variable,
        InvalidArgumentError when one has another shape or dtype in it, DataLossError when its bytes
        are not what was written."""
        if not self._built:
            raise RuntimeError("`build()` should be called before restore if defer_build==True")
        if self._nodes is None:
            return
        if save_path is None:
            raise ValueError("Can't load save_path when it is None.")
        prefix = os.fspath(save_path)
        missing = _checkpoints.missing_files(prefix)
        if missing:
            raise ValueError(
                f"The passed save_path is not a valid checkpoint: {prefix}: {missing[0]} is not "
                "there; bring it back, or restore an older checkpoint"
            )
        self._read(sess, prefix)

    def _read(self, sess: BaseSession, prefix: str) -> None:
        assert self._nodes is not None
        if not self._reshape:
            sess.run(self._nodes.restored, {self._nodes.prefix: prefix})
            return
        reader = _native.CheckpointReader(prefix)
        for entry in self._reshaped:
            value = np.asarray(reader.read(entry.name))
            if entry.variable.shape is not None:
                if value.size != math.prod(entry.variable.shape):
                    raise errors.InvalidArgumentError(
                        f"'{entry.name}' has shape {value.shape} in '{prefix}', and does not fit "
                        f"variable '{entry.variable.op.name}' of shape {entry.variable.shape}"
                    )
                value = value.reshape(entry.variable.shape)
            entry.variable.load(value, sess)

    # --- The checkpoints that it looks after.

    @property
    def last_checkpoints(self) -> list[str]:
        """Those that it may yet delete, oldest first."""
        with self._lock:
            return [path for path, _ in self._last]

    def set_last_checkpoints_with_time(self, last_checkpoints_with_time: Any) -> None:
        """Makes these, pairs of a path and the seconds at which it was made, its own."""
        with self._lock:
            self._last = [(os.fspath(path), float(made)) for path, made in
                          last_checkpoints_with_time]  # fmt: skip

    def set_last_checkpoints(self, last_checkpoints: Sequence[str]) -> None:
        """Makes these its own, as if they were as old as can be."""
        self.set_last_checkpoints_with_time([(path, float("inf")) for path in last_checkpoints])

    def recover_last_checkpoints(self, checkpoint_paths: Iterable[str]) -> None:
        """Makes those of them its own that are there: a program that goes on deletes what the one
        before it wrote."""
        found = []
        for path in checkpoint_paths:
            found += [(path, made) for made in _checkpoints.get_checkpoint_mtimes([path])]
        self.set_last_checkpoints_with_time(found)


# --- Graphs in files.


def export_meta_graph(
    filename: str | None = None,
    meta_info_def: Any = None,
    graph_def: Any = None,
    saver_def: Any = None,
    collection_list: Sequence[str] | None = None,
    as_text: bool = False,
    graph: Graph | None = None,
    export_scope: str | None = None,
    clear_devices: bool = False,
    **_unused: Any,
) -> str:
    """Writes a graph and its collections to `filename` (tf.compat.v1.train.export_meta_graph), with
    the saver that the collection SAVERS has, if it has one; the text of the file."""
    graph = graph or get_default_graph()
    savers = graph.get_collection(GraphKeys.SAVERS)
    written = savers[0]._written() if savers else None
    return _meta_graph.export(graph, filename, collection_list, clear_devices, written)


def import_meta_graph(
    meta_graph_or_file: Any,
    clear_devices: bool = False,
    import_scope: str | None = None,
    **_unused: Any,
) -> Saver | None:
    """Adds the graph of a file, and its collections, to the default graph
    (tf.compat.v1.train.import_meta_graph). Gives its saver; None when it has no variables.

        saver = tf.train.import_meta_graph("model/model.ckpt-100.meta")
        saver.restore(session, "model/model.ckpt-100")
    """
    graph = get_default_graph()
    written = _meta_graph.import_into(graph, meta_graph_or_file, clear_devices, import_scope)
    if written is not None:
        return Saver._of_nodes(graph, written)
    return Saver() if global_variables() else None
