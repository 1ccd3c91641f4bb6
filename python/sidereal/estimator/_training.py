"""Training and evaluation together, on all tasks of a cluster (tf.estimator.train_and_evaluate)."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .. import checkpoint_management, errors
from ..server import Server
from ..v1.checkpoint_saver_hook import CheckpointSaverListener
from ._estimator import Estimator, _checked_hooks
from ._exporters import Exporter
from ._run_config import RunConfig, TaskType

_log = logging.getLogger("sidereal")


class _TrainFields(NamedTuple):
    input_fn: Callable[..., Any]
    max_steps: int | None
    hooks: tuple[Any, ...]
    saving_listeners: tuple[Any, ...]


class TrainSpec(_TrainFields):
    """How train_and_evaluate() trains (tf.estimator.TrainSpec): the arguments of
    Estimator.train()."""

    __slots__ = ()

    def __new__(
        cls, input_fn: Callable[..., Any], max_steps: int | None = None,
        hooks: Sequence[Any] | None = None, saving_listeners: Sequence[Any] | None = None,
    ) -> TrainSpec:  # fmt: skip
        _check_input(input_fn)
        if max_steps is not None and max_steps <= 0:
            raise ValueError(f"Must specify max_steps > 0, given: {max_steps}")
        return super().__new__(
            cls, input_fn, max_steps, tuple(_checked_hooks(hooks)), tuple(saving_listeners or ())
        )


class _EvalFields(NamedTuple):
    input_fn: Callable[..., Any]
    steps: int | None
    name: str | None
    hooks: tuple[Any, ...]
    exporters: tuple[Exporter, ...]
    start_delay_secs: float
    throttle_secs: float


class EvalSpec(_EvalFields):
    """How train_and_evaluate() evaluates (tf.estimator.EvalSpec): the arguments of
    Estimator.evaluate(); `exporters`, which export after an evaluation; how long an evaluator waits
    at first, and at least between two evaluations."""

    __slots__ = ()

    def __new__(
        cls, input_fn: Callable[..., Any], steps: int | None = 100, name: str | None = None,
        hooks: Sequence[Any] | None = None, exporters: Any = None, start_delay_secs: float = 120,
        throttle_secs: float = 600,
    ) -> EvalSpec:  # fmt: skip
        _check_input(input_fn)
        if steps is not None and steps <= 0:
            raise ValueError(f"Must specify steps > 0, given: {steps}")
        if name is not None and not isinstance(name, str):
            raise TypeError(f"`name` must be string, given: {name}")
        if start_delay_secs < 0:
            raise ValueError(f"Must specify start_delay_secs >= 0, given: {start_delay_secs}")
        if throttle_secs < 0:
            raise ValueError(f"Must specify throttle_secs >= 0, given: {throttle_secs}")
        several = [exporters] if isinstance(exporters, Exporter) else list(exporters or [])
        for exporter in several:
            if not isinstance(exporter, Exporter):
                raise TypeError(f"`exporters` must be Exporters, given: {exporter!r}")
        names = [exporter.name for exporter in several]
        if len(set(names)) != len(names):
            raise ValueError(f"exporters must have names of their own, given: {names}")
        return super().__new__(
            cls, input_fn, steps, name, tuple(_checked_hooks(hooks)), tuple(several),
            start_delay_secs, throttle_secs,
        )  # fmt: skip


def _check_input(input_fn: Any) -> None:
    if not callable(input_fn):
        raise TypeError(f"input_fn must be callable, given: {input_fn!r}")


class _Evaluator:
    """Evaluates new checkpoints, and exports what was evaluated."""

    def __init__(self, estimator: Estimator, spec: EvalSpec, max_steps: int | None) -> None:
        self._estimator, self._spec, self._max_steps = estimator, spec, max_steps
        self._last: str | None = None
        self._has_exported_final = False
        #: Of the last evaluation.
        self.metrics: dict[str, Any] | None = None
        self.exported: list[Any] = []

    def evaluate(self, checkpoint: str | None) -> bool:
        """Evaluates a checkpoint, unless it is the last one that was evaluated; whether it did so.
        NotFoundError: the checkpoint has been deleted."""
        if checkpoint is None or checkpoint == self._last:
            return False
        spec = self._spec
        self.metrics = self._estimator.evaluate(
            spec.input_fn, spec.steps, spec.hooks, checkpoint, spec.name
        )
        self._last = checkpoint
        self.exported = [] if self._has_exported_final else [
            exporter.export(
                self._estimator,
                os.path.join(self._estimator.model_dir, "export", exporter.name),
                checkpoint,
                self.metrics,
                self.is_final,
            )
            for exporter in spec.exporters
        ]  # fmt: skip
        self._has_exported_final = self.is_final
        return True

    @property
    def is_final(self) -> bool:
        """Whether the last step has been evaluated."""
        if self.metrics is None or self._max_steps is None:
            return False
        return int(self.metrics["global_step"]) >= self._max_steps


class _Listener(CheckpointSaverListener):
    """Evaluates in the process that trains, after a checkpoint."""

    def __init__(self, evaluator: _Evaluator, every_secs: float) -> None:
        self._evaluator, self._every_secs = evaluator, every_secs
        self._estimator = evaluator._estimator

    def begin(self) -> None:
        self._next = time.monotonic() + self._every_secs
        self._is_first = True

    def after_save(self, session: Any, global_step_value: int) -> None:
        # The first is of the beginning; the next is due when the time has passed.
        if self._is_first:
            self._is_first = False
        elif time.monotonic() >= self._next:
            self._run()

    def end(self, session: Any, global_step_value: int) -> None:
        self._run()

    def _run(self) -> None:
        self._evaluator.evaluate(self._estimator.latest_checkpoint())
        self._next = time.monotonic() + self._every_secs


def train_and_evaluate(
    estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpec
) -> tuple[dict[str, Any] | None, list[Any]] | None:
    """Does what the task of this process has to do (tf.estimator.train_and_evaluate), which
    TF_CONFIG says; see RunConfig.

    In one process it trains, and evaluates after checkpoints; it gives (metrics, exports) of the
    last evaluation. In a cluster the chief and the workers train, each with a server of its own,
    until `max_steps` or the end of their data; a ps serves until it is stopped; the evaluator
    evaluates new checkpoints until one has `max_steps`. One that is deleted meanwhile is left out.
    """
    if not isinstance(estimator, Estimator):
        raise TypeError(f"`estimator` must have type `tf.estimator.Estimator`, given: {estimator}")
    if not isinstance(train_spec, TrainSpec):
        raise TypeError(f"`train_spec` must have type `tf.estimator.TrainSpec`, given {train_spec}")
    if not isinstance(eval_spec, EvalSpec):
        raise TypeError(f"`eval_spec` must have type `tf.estimator.EvalSpec`, given: {eval_spec}")
    config = estimator.config
    kind = config.task_type
    if not config.cluster_spec and kind != TaskType.EVALUATOR:
        return _run_here(estimator, train_spec, eval_spec)
    if kind == TaskType.PS:
        serve(config).join()
        return None
    if kind == TaskType.EVALUATOR:
        return _run_evaluator(estimator, train_spec, eval_spec)
    server = serve(config) if config.master else None
    try:
        if kind == TaskType.MASTER:
            return _run_here(estimator, train_spec, eval_spec)
        _train(estimator, train_spec, [])
        return None
    finally:
        if server is not None:
            server.stop()


def serve(config: RunConfig) -> Server:
    """The server of this process' task."""
    return Server(
        config.cluster_spec, config.task_type, config.task_id, protocol=config.protocol,
        config=config.session_config,
    )  # fmt: skip


def _train(estimator: Estimator, spec: TrainSpec, listeners: list[Any]) -> None:
    estimator.train(
        spec.input_fn, hooks=spec.hooks, max_steps=spec.max_steps,
        saving_listeners=[*spec.saving_listeners, *listeners],
    )  # fmt: skip


def _run_here(
    estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpec
) -> tuple[dict[str, Any] | None, list[Any]]:
    evaluator = _Evaluator(estimator, eval_spec, train_spec.max_steps)
    _train(estimator, train_spec, [_Listener(evaluator, eval_spec.throttle_secs)])
    return evaluator.metrics, evaluator.exported


def _run_evaluator(
    estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpec
) -> tuple[dict[str, Any] | None, list[Any]]:
    evaluator = _Evaluator(estimator, eval_spec, train_spec.max_steps)
    if eval_spec.start_delay_secs:
        _log.info("the evaluator begins in %g seconds", eval_spec.start_delay_secs)
        time.sleep(eval_spec.start_delay_secs)
    for checkpoint in checkpoint_management.checkpoints_iterator(
        estimator.model_dir, min_interval_secs=eval_spec.throttle_secs
    ):
        try:
            evaluator.evaluate(checkpoint)
        except (errors.NotFoundError, ValueError) as error:
            if checkpoint_management.checkpoint_exists(checkpoint):
                raise
            _log.warning("checkpoint %s was deleted while it was evaluated: %s", checkpoint, error)
        if evaluator.is_final:
            break
    return evaluator.metrics, evaluator.exported
