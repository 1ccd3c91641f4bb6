"""Variables that went with a parameter server, and come back from a checkpoint while others stay as
they are."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .. import _events, _native, errors
from .. import checkpoint_management as _checkpoints
from .._lost import RestoredTask, size_of
from .._pushes import UnsavedPushes
from ..device_spec import DeviceSpec
from .graph import Graph, get_default_graph, group, placeholder
from .movable import name_of
from .saveable import Entry, by_group, by_task, restore_objects, saved_of
from .saver import Saver
from .session import BaseSession
from .training import get_global_step
from .variables import Variable, is_variable_initialized


@dataclass(frozen=True)
class _Task:
    """What one task holds, and what brings it back."""

    name: str
    variables: list[Variable]
    #: Whether each of them has a value.
    has_value: list[Any]
    restore: list[Any]


class LostVariables:
    """Finds the variables of tasks that were started again, which have no values any more, and
    gives them those of a checkpoint. No other variable is read or changed.

        lost = tf.train.LostVariables()          # while the graph is built
        ...
        with tf.Session(server.target) as session:     # after the old one has failed
            for task in lost.restore(session, "model"):
                print(task)

    saver: what the checkpoints are written by; one of all variables, if absent.
    target: of a server of the cluster, `server.target`: those with variables are asked meanwhile
        what is in no checkpoint, so that it is known how many pushes and rows are lost.
    """

    def __init__(self, saver: Saver | None = None, *, target: str = "") -> None:
        graph = get_default_graph()
        given = None if saver is None else saver._var_list
        self._entries, self._objects = saved_of(given)
        self._step: Any = get_global_step(graph)
        with graph.init_scope(), graph.device(None), graph.building():
            with graph.name_scope("lost_variables"):
                self._prefix = placeholder("string", [], "prefix")
                #: As the graph says; several of one task where variables may move.
                self._placed = list(self._tasks_of(graph))
                self._restore_objects = {
                    task: restore_objects(graph, self._prefix, objects)
                    for task, objects in by_task(self._objects, lambda each: each.device).items()
                }
        self._tasks = self._placed
        self._unsaved: UnsavedPushes | None = None
        jobs = [_job_of(task.name) for task in self._tasks]
        if target and any(jobs):
            self._unsaved = UnsavedPushes(target, filter(None, jobs))

    def _close(self) -> None:
        """Asks servers no more."""
        if self._unsaved is not None:
            self._unsaved.close()

    def _tasks_of(self, graph: Graph) -> Iterator[_Task]:
        for task, all_ in by_task(self._entries, lambda each: each.variable.device).items():
            for entries in by_group(all_, graph) if graph.movable else [all_]:
                yield self._of(graph, task, entries)

    def _of(self, graph: Graph, task: str, entries: Sequence[Entry]) -> _Task:
        """Variables that the graph has on a task."""
        names = {
            "names": [entry.name for entry in entries],
            "slices": [entry.slices for entry in entries],
        }
        handles = [entry.variable.handle for entry in entries]
        with graph.colocate_with(entries[0].variable.op, ignore_existing=True):
            restored = graph.add(
                "RestoreVariables", [self._prefix, *handles], names, "RestoreVariables"
            )
        variables = [entry.variable for entry in entries]
        has_value = [is_variable_initialized(variable) for variable in variables]
        return _Task(task, variables, has_value, [group(restored, name="restore")])

    def _now(self, session: BaseSession) -> list[_Task]:
        """What tasks hold where variables are now."""
        places = session._config._places
        found: dict[str, _Task] = {}
        objects = self._restore_objects
        for task in self._placed:
            name = task.name
            if places is not None:
                device = places.device_of(name_of(task.variables[0].handle), name)
                name = DeviceSpec.from_string(device).replace(
                    replica=None, device_type=None, device_index=None
                ).to_string()  # fmt: skip
            held = found.setdefault(name, _Task(name, [], [], list(objects.get(name, []))))
            held.variables.extend(task.variables)
            held.has_value.extend(task.has_value)
            held.restore.extend(task.restore)
        return list(found.values())

    def restore(
        self, session: BaseSession, checkpoint: str | os.PathLike[str], *,
        last_step: int | None = None,
    ) -> list[RestoredTask]:  # fmt: skip
        """What was lost, and is back from its standby, or from `checkpoint`: a folder, of which
        the newest is taken, or a prefix. A line of the log says it of each task. A task that holds
        a variable without a value gets all of its values from there, as it may have been lost while
        it was restored.
        last_step: what was last read of the global step, for what is said when that is lost too.

        Errors: FailedPreconditionError when there is no checkpoint; AbortedError and
        UnavailableError when the task is lost again: make another session, and call it again; those
        of Saver.restore().
        """
        self._tasks = self._now(session)
        found = session.run([task.has_value for task in self._tasks])
        lost = [task for task, has in zip(self._tasks, found) if not all(has)]
        back = [] if self._unsaved is None else self._taken(lost)
        if not lost:
            return back
        prefix = self._newest(os.fspath(checkpoint), lost)
        step, saved = self._step_now(session, lost), self._step_in(prefix)
        is_last_read = step is None and last_step is not None
        if is_last_read:
            step = last_step
        restored = (
            self._restore(session, task, prefix, step, saved, is_last_read) for task in lost
        )
        return [*back, *restored]

    def _taken(self, lost: Sequence[_Task]) -> list[RestoredTask]:
        """Those that were started again, and took all that they had from their standbys."""
        assert self._unsaved is not None
        found = []
        for task in self._tasks:
            name = _full_name(task.name)
            if task in lost or (taken := self._unsaved.taken(name)) is None:
                continue
            pushed = self._unsaved.take_lost(name, taken)
            if pushed is None:
                continue  # It is known already.
            names = tuple(variable.op.name for variable in task.variables)
            found.append(
                RestoredTask(
                    task.name, names, taken.rows, taken.bytes, "", taken.seconds, pushed=pushed,
                    standby=taken.standby,
                )
            )  # fmt: skip
            found[-1].say()
        return found

    def _restore(
        self, session: BaseSession, task: _Task, prefix: str, step: int | None, saved: int | None,
        step_is_last_read: bool,
    ) -> RestoredTask:  # fmt: skip
        begin = time.monotonic()
        _events.emit("restore_begun", task=_full_name(task.name), prefix=prefix)
        session.run(task.restore, {self._prefix: prefix})
        seconds = time.monotonic() - begin
        rows, size = size_of(
            [variable.shape or () for variable in task.variables],
            [variable.dtype.itemsize for variable in task.variables],
        )
        names = tuple(variable.op.name for variable in task.variables)
        pushed = None
        if self._unsaved is not None:
            pushed = self._unsaved.take_lost(_full_name(task.name), prefix)
        done = RestoredTask(
            task.name, names, rows, size, prefix, seconds, step, saved,
            step_is_last_read=step_is_last_read, pushed=pushed,
        )  # fmt: skip
        done.say()
        return done

    def _newest(self, checkpoint: str, lost: Sequence[_Task]) -> str:
        prefix = checkpoint
        if not _checkpoints.checkpoint_exists(checkpoint):
            prefix = _checkpoints.latest_checkpoint(checkpoint) or ""
        if prefix:
            return prefix
        raise errors.FailedPreconditionError(
            f"{', '.join(task.name for task in lost)} was started again without its variables, and "
            f"there is no checkpoint in {checkpoint} that they could be restored from: initialise "
            "all variables, and save them as soon as training begins"
        )

    def _step_now(self, session: BaseSession, lost: Sequence[_Task]) -> int | None:
        """What the counter of steps says; None: there is none, or it is lost too."""
        gone = {id(variable) for task in lost for variable in task.variables}
        if self._step is None or id(self._step) in gone:
            return None
        return int(session.run(self._step))

    def _step_in(self, prefix: str) -> int | None:
        name = next((entry.name for entry in self._entries if entry.variable is self._step), None)
        return None if name is None else int(_native.CheckpointReader(prefix).read(name))


def _job_of(task: str) -> str:
    """The job of "/job:ps/task:1"; "" without one."""
    return DeviceSpec.from_string(task).job or ""


def _full_name(task: str) -> str:
    """As tasks call themselves: "/job:ps/replica:0/task:1"."""
    spec = DeviceSpec.from_string(task)
    return f"/job:{spec.job}/replica:{spec.replica or 0}/task:{spec.task or 0}"
