"""Estimators in one process: training, evaluation, prediction, export."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sidereal as sr
import sidereal.v1 as tf
from sidereal import errors

est = tf.estimator
RNG = np.random.default_rng(3)
X = RNG.normal(size=(256, 3)).astype(np.float32)
W = np.array([[1.0], [-2.0], [0.5]], np.float32)
Y = X @ W + 0.25


def line_fn(features: Any, labels: Any, mode: str, params: Any, config: Any) -> Any:
    """A linear model that says what it was called with."""
    assert isinstance(config, est.RunConfig)
    made = tf.layers.dense(features["x"], 1, name="line")
    if mode == est.ModeKeys.PREDICT:
        assert labels is None
        return est.EstimatorSpec(mode, {"y": made, "x": tf.identity(features["x"])})
    loss = tf.losses.mean_squared_error(labels, made)
    if mode == est.ModeKeys.EVAL:
        metrics = {"error": tf.metrics.mean_absolute_error(labels, made)}
        return est.EstimatorSpec(mode, made, loss, eval_metric_ops=metrics)
    optimizer = tf.train.GradientDescentOptimizer(params["rate"])
    step = optimizer.minimize(loss, tf.train.get_global_step())
    return est.EstimatorSpec(mode, loss=loss, train_op=step)


def data(epochs: int | None = None, size: int = 32) -> Callable[[], Any]:
    def make() -> Any:
        pairs = tf.data.Dataset.from_tensor_slices(({"x": X}, Y))
        return pairs.repeat(epochs).batch(size)

    return make


def line(folder: Any, **options: Any) -> Any:
    config = est.RunConfig(
        tf_random_seed=1, save_summary_steps=None, log_step_count_steps=None, **options
    )
    return est.Estimator(line_fn, str(folder), config, {"rate": 0.3})


def names_of(folder: Any) -> list[str]:
    return sorted(name for name in os.listdir(folder) if name.endswith(".index"))


def test_a_model_is_trained_evaluated_and_predicts(tmp_path: Path) -> None:
    estimator = line(tmp_path)
    before = estimator.evaluate(data(1))
    assert before["global_step"] == 0 and before["loss"] > 1
    assert estimator.train(data(), steps=30) is estimator
    assert estimator.latest_checkpoint() == str(tmp_path / "model.ckpt-30")
    found = estimator.evaluate(data(1))
    assert sorted(found) == ["error", "global_step", "loss"]
    assert found["global_step"] == 30 and found["loss"] < 1e-4
    assert estimator.get_variable_names() == ["global_step", "line/bias", "line/kernel"]
    np.testing.assert_allclose(estimator.get_variable_value("line/kernel"), W, atol=0.01)
    predicted = list(estimator.predict(data(1, 100)))
    assert len(predicted) == 256 and sorted(predicted[0]) == ["x", "y"]
    np.testing.assert_allclose([each["y"] for each in predicted], Y, atol=0.05)
    np.testing.assert_array_equal([each["x"] for each in predicted], X)


def test_training_goes_on_where_it_was(tmp_path: Path) -> None:
    steps: list[int] = []

    class Steps(tf.train.SessionRunHook):
        def before_run(self, run_context: Any) -> Any:
            return tf.train.SessionRunArgs(tf.train.get_global_step())

        def after_run(self, run_context: Any, run_values: Any) -> None:
            steps.append(int(run_values.results))

    line(tmp_path).train(data(), steps=3)
    estimator = line(tmp_path)
    estimator.train(data(), steps=4, hooks=[Steps()])
    assert len(steps) == 4
    estimator.train(data(), max_steps=9)
    assert estimator.get_variable_value("global_step") == 9
    modified = os.stat(tmp_path / "checkpoint").st_mtime_ns
    estimator.train(data(), max_steps=9)  # Does nothing.
    assert os.stat(tmp_path / "checkpoint").st_mtime_ns == modified


def test_training_ends_with_the_data(tmp_path: Path) -> None:
    estimator = line(tmp_path)
    estimator.train(data(2, 64))
    assert estimator.get_variable_value("global_step") == 8


def test_checkpoints_are_saved_as_the_config_says(tmp_path: Path) -> None:
    told: list[Any] = []

    class Listener(tf.train.CheckpointSaverListener):
        def after_save(self, session: Any, global_step_value: int) -> None:
            told.append(global_step_value)

        def end(self, session: Any, global_step_value: int) -> None:
            told.append("end")

    estimator = line(tmp_path, save_checkpoints_steps=4, keep_checkpoint_max=2)
    estimator.train(data(), steps=10, saving_listeners=[Listener()])
    assert told[0] == 0 and told[-2:] == [10, "end"]
    assert len(names_of(tmp_path)) == 2 and "model.ckpt-10.index" in names_of(tmp_path)
    never = line(tmp_path / "never", save_checkpoints_secs=None)
    with pytest.raises(ValueError, match="There should be a CheckpointSaverHook"):
        never.train(data(), steps=1, saving_listeners=[Listener()])
    never.train(data(), steps=1)
    assert never.latest_checkpoint() is None


def test_a_seed_makes_runs_equal(tmp_path: Path) -> None:
    found = []
    for name in "ab":
        estimator = line(tmp_path / name)
        estimator.train(data(), steps=3)
        found.append(estimator.get_variable_value("line/kernel"))
    np.testing.assert_array_equal(*found)


def test_evaluation_of_a_checkpoint_and_of_some_batches(tmp_path: Path) -> None:
    estimator = line(tmp_path, save_checkpoints_steps=5)
    estimator.train(data(), steps=10)
    runs: list[int] = []

    class Counts(tf.train.SessionRunHook):
        def after_run(self, run_context: Any, run_values: Any) -> None:
            runs.append(1)

    found = estimator.evaluate(
        data(), steps=3, hooks=[Counts()], checkpoint_path=str(tmp_path / "model.ckpt-0")
    )
    assert found["global_step"] == 0 and len(runs) == 3
    assert estimator.evaluate(data(), steps=3, name="other")["global_step"] == 10
    assert estimator.eval_dir("other") == str(tmp_path / "eval_other")
    # The loss of batches is their mean.
    predicted = np.array([each["y"] for each in estimator.predict(data(1))])[:96]
    loss = np.mean((predicted - Y[:96]) ** 2)
    measured = estimator.evaluate(data(), steps=3)["loss"]
    np.testing.assert_allclose(measured, loss, rtol=1e-3, atol=1e-7)


def test_predictions_of_keys_and_batches(tmp_path: Path) -> None:
    estimator = line(tmp_path)
    estimator.train(data(), steps=1)
    (only,) = {tuple(each) for each in estimator.predict(data(1), predict_keys="y")}
    assert only == ("y",)
    batches = list(estimator.predict(data(1, 100), yield_single_examples=False))
    assert [len(each["y"]) for each in batches] == [100, 100, 56]
    with pytest.raises(ValueError, match="Expected to run at least one output"):
        next(estimator.predict(data(1), predict_keys=["z"]))
    # The default graph is the caller's between two.
    graph = tf.Graph()
    with graph.as_default():
        next(estimator.predict(data(1)))
        assert tf.get_default_graph() is graph


def test_a_model_starts_warm(tmp_path: Path) -> None:
    line(tmp_path / "first").train(data(), steps=30)
    config = est.RunConfig(save_summary_steps=None)
    for settings in (
        str(tmp_path / "first"),
        est.WarmStartSettings(str(tmp_path / "first" / "model.ckpt-30"), "line/.*"),
    ):
        folder = tmp_path / type(settings).__name__
        second = est.Estimator(line_fn, folder, config, {"rate": 0.0}, warm_start_from=settings)
        second.train(data(), steps=1)
        assert second.get_variable_value("global_step") == 1
        np.testing.assert_allclose(second.get_variable_value("line/kernel"), W, atol=0.01)
    kernel = est.WarmStartSettings(str(tmp_path / "first"), "line/kernel")
    third = est.Estimator(line_fn, tmp_path / "third", config, {"rate": 0.0}, kernel)
    third.train(data(), steps=1)
    assert third.get_variable_value("line/bias") == 0


def test_what_a_model_function_gives_is_checked(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="should return an EstimatorSpec"):
        est.Estimator(lambda features, labels: 3, tmp_path).train(data(), steps=1)
    with pytest.raises(ValueError, match="input_fn returns labels"):
        est.Estimator(lambda features: 3, tmp_path).train(data(), steps=1)

    def evaluates(features: Any, labels: Any) -> Any:
        return est.EstimatorSpec("eval", loss=tf.constant(1.0))

    with pytest.raises(ValueError, match="was called for mode 'train'"):
        est.Estimator(evaluates, tmp_path).train(data(), steps=1)

    def measures(features: Any, labels: Any, mode: str) -> Any:
        loss = tf.constant(1.0)
        return est.EstimatorSpec(mode, loss=loss, eval_metric_ops={"loss": tf.metrics.mean(loss)})

    with pytest.raises(ValueError, match="'loss' is not allowed"):
        est.Estimator(measures, tmp_path).evaluate(data(1))


def test_a_loss_that_is_no_number_ends_the_training(tmp_path: Path) -> None:
    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        loss = tf.math.log(tf.reduce_mean(labels) * 0.0 - 1.0)
        step = tf.train.get_global_step().assign_add(1)
        return est.EstimatorSpec(mode, loss=loss, train_op=step)

    with pytest.raises(est.NanLossDuringTrainingError):
        est.Estimator(model_fn, tmp_path).train(data(), steps=3)


def test_input_functions_are_told_what_they_ask_for(tmp_path: Path) -> None:
    told: dict[str, Any] = {}

    def reads(mode: str, params: Any, config: Any) -> Any:
        told.update(mode=mode, rate=params["rate"], folder=config.model_dir)
        # Values of the graph, in the place of a dataset.
        return {"x": tf.constant(X[:4])}, tf.constant(Y[:4])

    line(tmp_path).train(reads, steps=2)
    assert told == {"mode": "train", "rate": 0.3, "folder": str(tmp_path)}
    arrays = est.inputs.numpy_input_fn({"x": X}, Y, batch_size=64, shuffle=False)
    assert line(tmp_path).evaluate(arrays)["global_step"] == 2
    with pytest.raises(ValueError, match="shuffle must be provided"):
        est.inputs.numpy_input_fn(X)


def test_losses_and_metrics_are_written_for_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the package tensorboard is not installed")
    from event_files import accumulated

    config = est.RunConfig(save_summary_steps=10, log_step_count_steps=None)
    estimator = est.Estimator(line_fn, str(tmp_path), config, {"rate": 0.3})
    estimator.train(data(), steps=30)
    found = estimator.evaluate(data(1))
    losses = accumulated(tmp_path).Scalars("loss")
    assert [each.step for each in losses] == [1, 11, 21]
    (error,) = accumulated(tmp_path / "eval").Scalars("error")
    assert error.step == 30
    np.testing.assert_allclose(error.value, found["error"], rtol=1e-6)


def test_a_table_starts_as_a_checkpoint_has_it(tmp_path: Path) -> None:
    def rows_of(column: Any) -> Any:
        def model_fn(features: Any, mode: str) -> Any:
            with tf.variable_scope("rows", partitioner=tf.fixed_size_partitioner(2)):
                made = tf.feature_column.input_layer(features, [column])
            step = tf.train.get_global_step().assign_add(1)
            return est.EstimatorSpec(mode, made, tf.reduce_sum(made), step)

        return model_fn

    def input_fn() -> Any:
        return {"id": tf.constant([0, 2, 4])}

    ids = tf.feature_column.categorical_column_with_identity("id", 5)
    name = "rows/input_layer/id_embedding/embedding_weights"
    first = est.Estimator(rows_of(tf.feature_column.embedding_column(ids, 3)), tmp_path / "a")
    first.train(input_fn, steps=1)
    table = first.get_variable_value(name)
    assert isinstance(table, np.ndarray) and table.shape == (5, 3)
    column = tf.feature_column.embedding_column(
        ids, 3, ckpt_to_load_from=str(tmp_path / "a"), tensor_name_in_ckpt=name
    )
    second = est.Estimator(rows_of(column), tmp_path / "b")
    second.train(input_fn, steps=1)
    np.testing.assert_array_equal(second.get_variable_value(name), table)
    wrong = tf.feature_column.embedding_column(
        ids, 2, ckpt_to_load_from=str(tmp_path / "a"), tensor_name_in_ckpt=name
    )
    with pytest.raises(ValueError, match="the embedding has"):
        est.Estimator(rows_of(wrong), tmp_path / "c").train(input_fn, steps=1)


# --- Export.


def test_a_model_is_exported(tmp_path: Path) -> None:
    estimator = line(tmp_path)
    estimator.train(data(), steps=30)
    extra = tmp_path / "words.txt"
    extra.write_text("a\nb\n")
    receive = est.export.build_raw_serving_input_receiver_fn({"x": sr.constant(X[:1])})
    path = estimator.export_saved_model(
        tmp_path / "out", receive, assets_extra={"words/w.txt": str(extra)}
    )
    again = estimator.export_saved_model(tmp_path / "out", receive)
    assert Path(path).parent != Path(again).parent
    assert (Path(path).parent / "assets.extra" / "words" / "w.txt").read_text() == "a\nb\n"
    model = sr.saved_model.load(path)
    serve = model.signatures["serving_default"]
    assert list(serve.inputs) == ["x"] and sorted(serve.outputs) == ["x", "y"]
    found = serve(x=X)["y"].numpy()
    np.testing.assert_allclose(found, Y, atol=0.05)
    assert sorted(each.name for each in model.variables) == ["line/bias", "line/kernel"]


def test_what_cannot_be_exported(tmp_path: Path) -> None:
    estimator = line(tmp_path)
    receive = est.export.build_raw_serving_input_receiver_fn({"x": sr.constant(X[:1])})
    with pytest.raises(ValueError, match="Could not find trained model"):
        estimator.export_saved_model(tmp_path / "out", receive)
    estimator.train(data(), steps=1)
    with pytest.raises(ValueError, match="must give a ServingInputReceiver"):
        estimator.export_saved_model(tmp_path / "out", lambda: 3)

    def more(features: Any, mode: str) -> Any:
        return est.EstimatorSpec(mode, {"y": tf.layers.dense(features["x"], 1, name="other")})

    with pytest.raises(errors.NotFoundError, match="no variable 'other/kernel'"):
        est.Estimator(more, tmp_path).export_saved_model(tmp_path / "out", receive)

    def plain(features: Any, mode: str) -> Any:
        return est.EstimatorSpec(mode, {"y": features["x"] * tf.Variable(1.0, name="v")})

    with pytest.raises(errors.UnimplementedError, match="'v', which was not made by get_variable"):
        est.Estimator(plain, tmp_path).export_saved_model(tmp_path / "out", receive)
    assert not (tmp_path / "out").exists() or not os.listdir(tmp_path / "out")


# --- train_and_evaluate().


class Results(est.Exporter):
    """Keeps what it is told."""

    name = "results"

    def __init__(self) -> None:
        self.told: list[Any] = []

    def export(
        self, estimator: Any, export_path: str, checkpoint_path: str, eval_result: Any,
        is_the_final_export: bool,
    ) -> Any:  # fmt: skip
        self.told.append((int(eval_result["global_step"]), is_the_final_export))
        return checkpoint_path


class StepsWaitForSaving(tf.train.SessionRunHook):
    """Else a short training has ended before its first checkpoint is written."""

    def before_run(self, run_context: tf.train.SessionRunContext) -> None:
        for one in threading.enumerate():
            if one.name.startswith("CheckpointSaverHook"):
                one.join(60)
                assert not one.is_alive()


def test_training_and_evaluation_in_turns(tmp_path: Path) -> None:
    estimator = line(tmp_path, save_checkpoints_steps=5)
    receive = est.export.build_raw_serving_input_receiver_fn({"x": sr.constant(X[:1])})
    results = Results()
    exporters = [
        results, est.FinalExporter("final", receive),
        est.LatestExporter("latest", receive, exports_to_keep=2),
        est.BestExporter("best", receive, compare_fn=lambda best_eval_result, current_eval_result: (
            current_eval_result["loss"] < best_eval_result["loss"]
        )),
    ]  # fmt: skip
    metrics, exported = est.train_and_evaluate(
        estimator,
        est.TrainSpec(data(), max_steps=20, hooks=[StepsWaitForSaving()]),
        est.EvalSpec(data(1), exporters=exporters, throttle_secs=0),
    )
    assert metrics["global_step"] == 20 and metrics["loss"] < 0.1
    steps = [step for step, _ in results.told]
    assert steps == sorted(steps) and len(steps) > 1
    assert [final for _, final in results.told] == [False] * (len(steps) - 1) + [True]
    assert exported[0] == estimator.latest_checkpoint()
    folders = {name: os.listdir(tmp_path / "export" / name) for name in ("final", "latest")}
    assert len(folders["final"]) == 1 and len(folders["latest"]) == 2
    assert sr.saved_model.load(exported[1]).signatures["serving_default"](x=X[:3])


def test_an_evaluator_ends_with_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    estimator = line(tmp_path, save_checkpoints_steps=5)
    estimator.train(data(), max_steps=10)
    monkeypatch.setenv("TF_CONFIG", '{"task": {"type": "evaluator", "index": 0}}')
    evaluator = line(tmp_path)
    results = Results()
    metrics, exported = est.train_and_evaluate(
        evaluator,
        est.TrainSpec(data(), max_steps=10),
        est.EvalSpec(data(1), exporters=results, start_delay_secs=0, throttle_secs=0),
    )
    assert metrics["global_step"] == 10 and results.told == [(10, True)]
    assert exported == [evaluator.latest_checkpoint()]


def test_an_evaluator_leaves_out_a_checkpoint_that_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    estimator = line(tmp_path, save_checkpoints_steps=5)
    estimator.train(data(), max_steps=5)
    monkeypatch.setenv("TF_CONFIG", '{"task": {"type": "evaluator", "index": 0}}')
    evaluator = line(tmp_path)
    seen: list[str] = []
    evaluate = evaluator.evaluate

    def under_it(*args: Any, **kwargs: Any) -> Any:
        checkpoint = args[3]
        seen.append(os.path.basename(checkpoint))
        if len(seen) == 1:
            # The training goes on meanwhile, and its new checkpoint takes this one's place.
            monkeypatch.delenv("TF_CONFIG")
            line(tmp_path, keep_checkpoint_max=1).train(data(), max_steps=10)
            tf.train.remove_checkpoint(checkpoint)
        return evaluate(*args, **kwargs)

    monkeypatch.setattr(evaluator, "evaluate", under_it)
    metrics, _ = est.train_and_evaluate(
        evaluator,
        est.TrainSpec(data(), max_steps=10),
        est.EvalSpec(data(1), start_delay_secs=0, throttle_secs=0),
    )
    assert seen == ["model.ckpt-5", "model.ckpt-10"]
    assert metrics["global_step"] == 10
