"""Where the iterators of a worker are, saved while it trains
(tf.data.experimental.CheckpointInputPipelineHook)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from .. import checkpoint_management as _checkpoints
from .checkpoint_saver_hook import CheckpointSaverHook
from .graph import GraphKeys, get_collection
from .saveable import SaveableObject, make_saveable_from_iterator
from .saver import Saver
from .session_run_hook import SessionRunArgs, SessionRunContext, SessionRunHook, SessionRunValues


class _InputSaver(Saver):
    """Lists its checkpoints in a file of its own."""

    def __init__(self, objects: Sequence[SaveableObject], latest_filename: str) -> None:
        super().__init__(objects, sharded=True)
        self.latest_filename = latest_filename

    def save(
        self, sess: Any, save_path: str, global_step: Any = None,
        latest_filename: str | None = None, *args: Any, **kwargs: Any,
    ) -> str | None:  # fmt: skip
        """See Saver.save()."""
        name = latest_filename or self.latest_filename
        return super().save(sess, save_path, global_step, name, *args, **kwargs)


class CheckpointInputPipelineHook(SessionRunHook):
    """Saves where the iterators of this worker are, as often as an estimator saves its model, and
    has them go on there (tf.data.experimental.CheckpointInputPipelineHook):

        hook = tf.data.experimental.CheckpointInputPipelineHook(estimator)
        estimator.train(input_fn, hooks=[hook])

    Its checkpoints are beside those of the model, "input.ckpt-STEP", or, of one of several workers,
    "input_JOB_TASK.ckpt-STEP", and listed in files of their own. Each is of an instant between two
    runs. A session that is made anew goes on from the newest one that is not after the step of the
    model: the model of a chief that saves while others train may have some rows more, or fewer.

    estimator: what has the config and the model_dir. external_state_policy: see
        make_saveable_from_iterator().
    """

    def __init__(self, estimator: Any, external_state_policy: str | None = None) -> None:
        config = estimator.config
        name = "input"
        if config.num_worker_replicas > 1:
            name += f"_{config.task_type}_{config.task_id}"
        self._latest_filename = f"checkpoint_{name}"
        self._policy = external_state_policy
        self._directory = os.fspath(estimator.model_dir)
        self._hook = CheckpointSaverHook(
            self._directory, save_secs=config.save_checkpoints_secs,
            save_steps=config.save_checkpoints_steps, checkpoint_basename=f"{name}.ckpt",
            save_graph_def=False,
        )  # fmt: skip
        self._saver: _InputSaver | None = None
        self._is_first = True

    def begin(self) -> None:
        found = get_collection(GraphKeys.GLOBAL_ITERATORS)
        if not found:
            raise ValueError(
                "CheckpointInputPipelineHook: the graph has no iterators; have input_fn give a "
                "dataset, or what an iterator of one gives"
            )
        saved = [make_saveable_from_iterator(each, self._policy) for each in found]
        self._saver = _InputSaver(saved, self._latest_filename)
        self._hook._saver = self._saver
        self._hook.begin()

    def after_create_session(self, session: Any, coord: Any) -> None:
        self._hook._forget()
        # What sets iterators to their beginnings may run until then.
        self._is_first = True

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        if self._is_first:
            self._begin_at(run_context.session)
            self._is_first = False
        return self._hook.before_run(run_context)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        self._hook.after_run(run_context, run_values)

    def end(self, session: Any) -> None:
        self._hook.end(session)

    def _begin_at(self, session: Any) -> None:
        """Goes where the iterators were at the step of the session; the first time saves that."""
        assert self._saver is not None
        step = int(session.run(self._hook._step))
        state = _checkpoints.get_checkpoint_state(self._directory, self._latest_filename)
        saved = [] if state is None else state.all_model_checkpoint_paths
        there = [path for path in saved if _checkpoints.checkpoint_exists(path)]
        before = [path for path in there if int(path.rpartition("-")[2]) <= step]
        if before:
            self._saver.restore(session, before[-1])
            self._saver.recover_last_checkpoints(there)
        self._hook._begin_save(session, step)
        self._hook._finish_save(session)


__all__ = ["CheckpointInputPipelineHook"]
