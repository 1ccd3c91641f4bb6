"""Estimators: models that train, evaluate and predict (tf.estimator.Estimator)."""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .. import _tensorboard, checkpoint, errors
from .. import v1 as _v1
from ..ops import random
from ..v1.graph import Graph, GraphKeys
from ..v1.session_run_hook import SessionRunArgs, SessionRunHook
from . import _export
from ._inputs import features_and_labels, taken_by
from ._run_config import RunConfig, default_session_config
from ._spec import EstimatorSpec, ModeKeys
from ._warm_start import WarmStart, warm_start_of

_log = logging.getLogger("sidereal")

#: What a model function may take.
_MODEL_FN_ARGUMENTS = {"features", "labels", "mode", "params", "self", "config"}


class _StopAfterNEvals(SessionRunHook):
    """Ends an evaluation after so many batches."""

    def __init__(self, count: int) -> None:
        self._left = count

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._left -= 1
        if self._left <= 0:
            run_context.request_stop()


class _KeepLoss(SessionRunHook):
    """Keeps the loss of the last step."""

    def __init__(self, loss: Any) -> None:
        self._loss = loss
        self.last: Any = None

    def before_run(self, run_context: Any) -> Any:
        return SessionRunArgs(self._loss)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.last = run_values.results


def _steps_hook(steps: int | None, max_steps: int | None) -> list[Any]:
    if steps is not None:
        return [_v1.train.StopAtStepHook(num_steps=steps)]
    return [] if max_steps is None else [_v1.train.StopAtStepHook(last_step=max_steps)]


def _checked_hooks(hooks: Sequence[Any] | None) -> list[Any]:
    found = list(hooks or [])
    for hook in found:
        if not isinstance(hook, SessionRunHook):
            raise TypeError(f"Hooks must be a SessionRunHook, given: {hook!r}")
    return found


class Estimator:
    """A model from a function (tf.estimator.Estimator).

        def model_fn(features, labels, mode):
            logits = tf.layers.dense(features["x"], 1)
            loss = tf.losses.sigmoid_cross_entropy(labels, logits)
            step = tf.train.AdagradOptimizer(0.1).minimize(loss, tf.train.get_global_step())
            return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=step)

        tf.estimator.Estimator(model_fn, "/tmp/model").train(input_fn, steps=1000)

    Each call builds a graph anew, in which variables start with the latest checkpoint of
    `model_dir`. In a cluster (see RunConfig) variables lie on its ps; each worker trains in a
    session of its own, and the chief initialises and saves.

    model_fn: a function of features, and as far as it takes them labels, mode, params and config,
        which gives an EstimatorSpec.
    model_dir: the folder of checkpoints; the config's, or else a new one.
    config: a RunConfig. params: what model_fn is given as such.
    warm_start_from: a checkpoint, a folder of them, or WarmStartSettings: what variables start
        with in a training that has no checkpoint yet.
    """

    def __init__(
        self, model_fn: Callable[..., Any], model_dir: str | os.PathLike[str] | None = None,
        config: RunConfig | None = None, params: Mapping[str, Any] | None = None,
        warm_start_from: Any = None,
    ) -> None:  # fmt: skip
        self._config = _with_model_dir(config, model_dir)
        self._session_config = self._config.session_config or default_session_config(self._config)
        self._device_fn = self._config.device_fn or _device_fn_of(self._config)
        if model_fn is None:
            raise ValueError("model_fn must be provided to Estimator.")
        _check_model_fn(model_fn, params)
        self._model_fn = model_fn
        self._params = copy.deepcopy(dict(params or {}))
        self._warm_start = warm_start_of(warm_start_from)

    # --- What it is.

    @property
    def model_dir(self) -> str:
        """The folder of checkpoints."""
        return str(self._config.model_dir)

    @property
    def config(self) -> RunConfig:
        """A copy of its RunConfig."""
        return copy.copy(self._config)

    @property
    def params(self) -> dict[str, Any]:
        """A copy of its params."""
        return copy.deepcopy(self._params)

    @property
    def model_fn(self) -> Callable[..., EstimatorSpec]:
        """The model function, of features, labels, mode and config."""

        def call(features: Any, labels: Any, mode: str, config: RunConfig) -> EstimatorSpec:
            return self._call_model_fn(features, labels, mode, config)

        return call

    def latest_checkpoint(self) -> str | None:
        """The latest checkpoint of the model; None when there is none."""
        return _v1.train.latest_checkpoint(self.model_dir)

    def _need_checkpoint(self) -> str:
        found = self.latest_checkpoint()
        if found is None:
            raise ValueError(
                f"Could not find trained model in model_dir: {self.model_dir}. Call train() first."
            )
        return found

    def get_variable_names(self) -> list[str]:
        """Names of the variables in the latest checkpoint."""
        found = self._need_checkpoint()
        return [name for name, _ in checkpoint.list_variables(found)]

    def get_variable_value(self, name: str) -> np.ndarray:
        """The value of a variable in the latest checkpoint."""
        found = self._need_checkpoint()
        return _array(checkpoint.load_variable(found, name))

    # --- Graphs.

    def _call_model_fn(
        self, features: Any, labels: Any, mode: str, config: RunConfig
    ) -> EstimatorSpec:
        names = taken_by(self._model_fn)
        given: dict[str, Any] = {}
        if "labels" in names:
            given["labels"] = labels
        elif labels is not None:
            raise ValueError("model_fn does not take labels, but input_fn returns labels.")
        more = {"mode": mode, "params": self.params, "config": config}
        given |= {name: value for name, value in more.items() if name in names}
        made = self._model_fn(features=features, **given)
        if not isinstance(made, EstimatorSpec):
            raise ValueError(f"model_fn should return an EstimatorSpec, not {made!r}")
        if made.mode != mode:
            raise ValueError(f"model_fn was called for mode '{mode}' and gave one of '{made.mode}'")
        return made

    def _inputs(self, input_fn: Callable[..., Any], mode: str) -> Any:
        given = {"params": self.params, "config": self.config, "mode": mode}
        return features_and_labels(input_fn, given)

    @contextlib.contextmanager
    def _graph(self, is_distributed: bool = False) -> Iterator[Graph]:
        """A new default graph, with a global step."""
        graph = Graph()
        places = graph.device(self._device_fn) if is_distributed else contextlib.nullcontext()
        with graph.as_default(), places:
            if self._config.tf_random_seed is not None:
                random.set_seed(self._config.tf_random_seed)
            _v1.train.create_global_step(graph)
            yield graph

    # --- Training.

    def train(
        self, input_fn: Callable[..., Any], hooks: Sequence[Any] | None = None,
        steps: int | None = None, max_steps: int | None = None,
        saving_listeners: Sequence[Any] | None = None,
    ) -> Estimator:  # fmt: skip
        """Trains on what `input_fn` gives: (features, labels), values of the graph, or a Dataset of
        such pairs. Without `steps`, so many more, or `max_steps`, so many in all, to the end of the
        data. In a cluster all workers together do the steps.

        hooks: SessionRunHooks. saving_listeners: CheckpointSaverListeners.
        """
        if steps is not None and max_steps is not None:
            raise ValueError("Can not provide both steps and max_steps.")
        for name, value in (("steps", steps), ("max_steps", max_steps)):
            if value is not None and value <= 0:
                raise ValueError(f"Must specify {name} > 0, given: {value}")
        if max_steps is not None:
            done = _step_of(self.latest_checkpoint())
            if max_steps <= done:
                _log.info("no training: step %d of max_steps %d was saved", done, max_steps)
                return self
        hooks = [*_checked_hooks(hooks), *_steps_hook(steps, max_steps)]
        listeners = list(saving_listeners or [])
        for listener in listeners:
            if not isinstance(listener, _v1.train.CheckpointSaverListener):
                raise TypeError(
                    "saving_listeners must be a list of CheckpointSaverListener, given: "
                    f"{listener!r}"
                )
        loss = self._train_model(input_fn, hooks, listeners)
        _log.info("loss for final step: %s", loss)
        return self

    def _train_model(
        self, input_fn: Callable[..., Any], hooks: list[Any], listeners: list[Any]
    ) -> Any:
        config = self._config
        with self._graph(is_distributed=True) as graph:
            features, labels = self._inputs(input_fn, ModeKeys.TRAIN)
            spec = self._call_model_fn(features, labels, ModeKeys.TRAIN, self.config)
            if not any(each is spec.loss for each in graph.get_collection(GraphKeys.LOSSES)):
                graph.add_to_collection(GraphKeys.LOSSES, spec.loss)
            step = _v1.train.get_global_step(graph)
            keep = _KeepLoss(spec.loss)
            every = [*hooks, _v1.train.NanTensorHook(spec.loss), keep]
            if config.log_step_count_steps is not None:
                said = {"loss": spec.loss, "step": step}
                every.append(
                    _v1.train.LoggingTensorHook(said, every_n_iter=config.log_step_count_steps)
                )
            every += spec.training_hooks
            if config.is_chief and _can_write_summaries():
                _v1.summary.scalar("loss", spec.loss)
            self._warm_up(spec.scaffold)
            savers = graph.get_collection(GraphKeys.SAVERS)
            if not savers and spec.scaffold.saver is None:
                graph.add_to_collection(
                    GraphKeys.SAVERS,
                    _v1.train.Saver(
                        sharded=True, max_to_keep=config.keep_checkpoint_max,
                        keep_checkpoint_every_n_hours=config.keep_checkpoint_every_n_hours,
                        defer_build=True, save_relative_paths=True,
                    ),
                )  # fmt: skip
            chief = [*spec.training_chief_hooks, *self._saver_hooks(spec, every, listeners)]
            steps = config.save_summary_steps
            with _v1.train.MonitoredTrainingSession(
                master=config.master, is_chief=config.is_chief, checkpoint_dir=self.model_dir,
                scaffold=spec.scaffold, hooks=every, chief_only_hooks=chief,
                # The chief has a hook for it already.
                save_checkpoint_secs=None, save_checkpoint_steps=None,
                save_summaries_steps=steps, save_summaries_secs=None, config=self._session_config,
                log_step_count_steps=config.log_step_count_steps,
                max_wait_secs=config.session_creation_timeout_secs,
                save_graph_def=config.checkpoint_save_graph_def, consistency=config.consistency,
                movable=config.movable, autoscale=config.autoscale,
            ) as session:  # fmt: skip
                while not session.should_stop():
                    session.run(spec.train_op)
            if keep.last is None:
                _log.warning(
                    "training made no step: the input had no data, or the last step was reached"
                )
            return keep.last

    def _saver_hooks(
        self, spec: EstimatorSpec, hooks: Sequence[Any], listeners: list[Any]
    ) -> list[Any]:
        """What saves, with `listeners`; nothing new where a hook does already."""
        config = self._config
        kind = _v1.train.CheckpointSaverHook
        there = [hook for hook in (*hooks, *spec.training_chief_hooks) if isinstance(hook, kind)]
        if there:
            there[0]._listeners.extend(listeners)
            return []
        if not config.save_checkpoints_secs and not config.save_checkpoints_steps:
            if listeners and config.is_chief:
                raise ValueError(
                    "There should be a CheckpointSaverHook to use saving_listeners. Please set one "
                    "of the RunConfig.save_checkpoints_steps or RunConfig.save_checkpoints_secs."
                )
            return []
        return [
            kind(
                self.model_dir, save_secs=config.save_checkpoints_secs,
                save_steps=config.save_checkpoints_steps, scaffold=spec.scaffold,
                listeners=listeners, save_graph_def=config.checkpoint_save_graph_def,
            )
        ]  # fmt: skip

    def _warm_up(self, scaffold: Any) -> None:
        """Lets variables begin with the values of another checkpoint."""
        settings = self._warm_start
        if settings is None or self.latest_checkpoint() is not None or not self._config.is_chief:
            return
        warm = WarmStart(settings)
        if not warm.count:
            return
        first = scaffold.init_fn

        def begin(scaffold: Any, session: Any) -> None:
            if first is not None:
                first(scaffold, session)
            warm.begin(session)
            _log.info("%d variables begin as in %s", warm.count, warm.source)

        scaffold.init_fn = begin

    # --- Evaluation.

    def eval_dir(self, name: str | None = None) -> str:
        """The folder of summaries of an evaluation."""
        return os.path.join(self.model_dir, f"eval_{name}" if name else "eval")

    def evaluate(
        self, input_fn: Callable[..., Any], steps: int | None = None,
        hooks: Sequence[Any] | None = None, checkpoint_path: str | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """The metrics of a checkpoint, by default the latest, or of first values when there is
        none: a dict of those of the model function, "loss" and "global_step". `steps`: how many
        batches; to the end of the data if absent. `name`: of summaries; see eval_dir()."""
        if steps is not None and steps <= 0:
            raise ValueError(f"Must specify steps > 0, given: {steps}")
        found = checkpoint_path or self.latest_checkpoint()
        every = _checked_hooks(hooks)
        if steps is not None:
            every.append(_StopAfterNEvals(steps))
        with self._graph() as graph:
            features, labels = self._inputs(input_fn, ModeKeys.EVAL)
            spec = self._call_model_fn(features, labels, ModeKeys.EVAL, self.config)
            update, values = _eval_values(graph, spec)
            final = _v1.train.FinalOpsHook(values)
            creator = _v1.train.ChiefSessionCreator(
                scaffold=spec.scaffold, master=self._config.evaluation_master,
                checkpoint_filename_with_path=found, config=self._eval_session_config(),
            )  # fmt: skip
            with _v1.train.MonitoredSession(
                session_creator=creator, hooks=[*every, *spec.evaluation_hooks, final]
            ) as session:
                while not session.should_stop():
                    session.run(update)
            results = {key: _plain(value) for key, value in final.final_ops_values.items()}
        self._write_summary(results, self.eval_dir(name), found)
        return results

    def _eval_session_config(self) -> Any:
        """The session's options without filters, which are of the cluster that trains."""
        made = copy.copy(self._session_config)
        if not self._config.evaluation_master:
            made.device_filters = []
        return made

    def _write_summary(self, results: Mapping[str, Any], folder: str, source: str | None) -> None:
        step = int(results["global_step"])
        said = ", ".join(f"{name} = {value}" for name, value in sorted(results.items()))
        _log.info("evaluated step %d (%s): %s", step, source, said)
        try:
            writer = _v1.summary.FileWriterCache.get(folder)
        except errors.UnavailableError as error:
            # The metrics are given back as well, so nobody misses them.
            _log.info("no summaries are written to %s: %s", folder, error)
            return
        for name, value in results.items():
            if name != "global_step" and np.ndim(value) == 0:
                writer.add_summary(_scalar_summary(name, float(value)), step)
        writer.flush()

    # --- Prediction.

    def predict(
        self, input_fn: Callable[..., Any], predict_keys: Any = None,
        hooks: Sequence[Any] | None = None, checkpoint_path: str | None = None,
        yield_single_examples: bool = True,
    ) -> Iterator[Any]:  # fmt: skip
        """The predictions of a checkpoint, by default the latest, for what `input_fn` gives: of
        each example, or without `yield_single_examples` of each batch, a dict of arrays, or an
        array where the model function gives one. predict_keys: names of those that are wanted."""
        found = checkpoint_path or self.latest_checkpoint()
        if found is None:
            _log.info("no trained model in %s: variables have their first values", self.model_dir)
        every = _checked_hooks(hooks)
        with self._graph():
            features, _ = self._inputs(input_fn, ModeKeys.PREDICT)
            spec = self._call_model_fn(features, None, ModeKeys.PREDICT, self.config)
            wanted = _wanted_predictions(spec.predictions, predict_keys)
            creator = _v1.train.ChiefSessionCreator(
                scaffold=spec.scaffold, master=self._config.evaluation_master,
                checkpoint_filename_with_path=found, config=self._eval_session_config(),
            )  # fmt: skip
            session = _v1.train.MonitoredSession(
                session_creator=creator, hooks=[*every, *spec.prediction_hooks]
            )
        # The graph is not the default one while the caller works with what it is given.
        with session:
            while not session.should_stop():
                batch = session.run(wanted)
                if not yield_single_examples:
                    yield batch
                elif isinstance(batch, dict):
                    for i in range(_rows(batch)):
                        yield {key: value[i] for key, value in batch.items()}
                else:
                    yield from batch

    # --- Export.

    def export_saved_model(
        self, export_dir_base: str | os.PathLike[str], serving_input_receiver_fn: Callable[[], Any],
        assets_extra: Mapping[str, str] | None = None, as_text: bool = False,
        checkpoint_path: str | None = None, experimental_mode: str = ModeKeys.PREDICT,
    ) -> str:  # fmt: skip
        """Writes the model as a saved model, with the values of a checkpoint, by default the
        latest; gives the path of the file, EXPORT_DIR_BASE/TIMESTAMP/saved_model.srsm, for
        sidereal.saved_model.load(). Its signatures are the export_outputs of the model function,
        their inputs what serving_input_receiver_fn receives.

        assets_extra: files to be copied beside it, by their paths in the folder assets.extra.
        """
        if serving_input_receiver_fn is None:
            raise ValueError("An input_receiver_fn must be defined.")
        return self.experimental_export_all_saved_models(
            export_dir_base, {experimental_mode: serving_input_receiver_fn}, assets_extra, as_text,
            checkpoint_path,
        )  # fmt: skip

    export_savedmodel = export_saved_model

    def experimental_export_all_saved_models(
        self, export_dir_base: str | os.PathLike[str],
        input_receiver_fn_map: Mapping[str, Callable[[], Any]],
        assets_extra: Mapping[str, str] | None = None, as_text: bool = False,
        checkpoint_path: str | None = None,
    ) -> str:  # fmt: skip
        """As export_saved_model(), of several modes in one file
        (tf.estimator.Estimator.experimental_export_all_saved_models): functions of receivers by
        ModeKeys, PREDICT with the signatures of the model function, EVAL with the signature "eval",
        whose function of receivers gives a SupervisedInputReceiver.

        The outputs of "eval" are "loss", "predictions/NAME", and of each metric
        "metrics/NAME/update_op" and "metrics/NAME/value", which both are of all that the signature
        was called with since the file was loaded.
        """
        if as_text:
            raise errors.UnimplementedError("export_saved_model(as_text=True): the file is binary")
        known = (ModeKeys.PREDICT, ModeKeys.EVAL)
        wrong = [mode for mode in input_receiver_fn_map if mode not in known]
        if wrong:
            raise errors.UnimplementedError(
                f"models are exported to predict and to evaluate, not for the mode '{wrong[0]}'"
            )
        if not input_receiver_fn_map:
            raise ValueError("No modes for export found: input_receiver_fn_map is empty.")
        return _export.export(
            os.fspath(export_dir_base),
            checkpoint_path or self._need_checkpoint(),
            input_receiver_fn_map,
            lambda features, labels, mode: self._call_model_fn(features, labels, mode, self.config),
            assets_extra or {},
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} in {self.model_dir}>"


# --- Arguments.


def _with_model_dir(config: Any, model_dir: Any) -> RunConfig:
    """The config with a folder."""
    made = RunConfig() if config is None else config
    if not isinstance(made, RunConfig):
        raise ValueError(f"config must be an instance of RunConfig, given: {config!r}")
    given = None if model_dir is None else os.fspath(model_dir)
    if given is not None and made.model_dir is not None and given != made.model_dir:
        raise ValueError(
            "model_dir are set both in constructor and RunConfig, but with different values. In "
            f"constructor: '{given}', in RunConfig: '{made.model_dir}'"
        )
    folder = given or made.model_dir
    if folder is None:
        folder = tempfile.mkdtemp(prefix="sidereal_")
        _log.warning("no model_dir is given: %s is used", folder)
    return made if made.model_dir == folder else made.replace(model_dir=folder)


def _device_fn_of(config: RunConfig) -> Any:
    """Where operations of a training in a cluster go."""
    if config.num_ps_replicas == 0:
        return None
    return _v1.train.replica_device_setter(
        ps_tasks=config.num_ps_replicas,
        worker_device=f"/job:{config.task_type}/task:{config.task_id}",
        cluster=config.cluster_spec,
    )


def _check_model_fn(model_fn: Callable[..., Any], params: Any) -> None:
    names = taken_by(model_fn)
    if "features" not in names:
        raise ValueError(f"model_fn ({model_fn}) must include features argument.")
    if params is not None and "params" not in names:
        raise ValueError(
            f"model_fn ({model_fn}) does not include params argument, but params ({params}) is "
            "passed to Estimator."
        )
    others = names - _MODEL_FN_ARGUMENTS
    if others:
        raise ValueError(f"model_fn ({model_fn}) has following not expected args: {others}")


# --- Values.


def _can_write_summaries() -> bool:
    """Whether the package that summaries need is there; models are trained without it too."""
    try:
        _tensorboard.modules()
    except errors.UnavailableError:
        return False
    return True


def _step_of(path: str | None) -> int:
    """The global step of a checkpoint; 0 when there is none."""
    if path is None:
        return 0
    try:
        return int(_array(checkpoint.load_variable(path, GraphKeys.GLOBAL_STEP)))
    except errors.NotFoundError:
        return 0


def _eval_values(graph: Graph, spec: EstimatorSpec) -> tuple[Any, dict[str, Any]]:
    """What a batch updates, and the values at the end by name."""
    metrics = dict(spec.eval_metric_ops)
    if "loss" in metrics:
        raise ValueError(
            "Metric with name 'loss' is not allowed, because Estimator already defines a default "
            "metric with the same name."
        )
    metrics["loss"] = _v1.metrics.mean(spec.loss, name="loss")
    updates = [update for _, update in metrics.values()]
    values = {name: value for name, (value, _) in metrics.items()}
    if "global_step" in values:
        raise ValueError("Metric with name 'global_step' is not allowed: the step is given as it.")
    values["global_step"] = _v1.train.get_global_step(graph)
    return _v1.group(*updates, name="eval_op"), values


def _array(value: Any) -> np.ndarray:
    return value.numpy() if hasattr(value, "numpy") else np.asarray(value)


def _plain(value: Any) -> Any:
    return value if np.ndim(value) else np.asarray(value)[()]


def _scalar_summary(name: str, value: float) -> Any:
    kind = _v1.summary.Summary
    return kind(value=[kind.Value(tag=name, simple_value=value)])


def _wanted_predictions(predictions: Any, keys: Any) -> Any:
    if keys is None:
        return predictions
    names = [keys] if isinstance(keys, str) else list(keys)
    if not isinstance(predictions, Mapping):
        raise ValueError("predict_keys argument is not valid in case of non-dict predictions.")
    found = {name: value for name, value in predictions.items() if name in names}
    if not found:
        raise ValueError(
            f"Expected to run at least one output from {list(predictions)}, provided {names}."
        )
    return found


def _rows(batch: Mapping[str, Any]) -> int:
    sizes = {name: len(value) if np.ndim(value) else -1 for name, value in batch.items()}
    if len(set(sizes.values())) != 1 or -1 in sizes.values():
        raise ValueError(
            "Batch length of predictions should be same, or yield_single_examples False; there are "
            f"{sizes}."
        )
    return next(iter(sizes.values()))
