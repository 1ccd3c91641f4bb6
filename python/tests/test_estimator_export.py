"""Models that are exported to evaluate, and what is read of examples with labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sidereal as sr
import sidereal.v1 as tf
from sidereal import errors

est, fc = tf.estimator, tf.feature_column
RNG = np.random.default_rng(3)
X = RNG.normal(size=(120, 3)).astype(np.float32)
LABEL = (X.sum(1) + RNG.normal(size=120) > 0).astype(np.int64)
BOTH = {"x": sr.constant(X[:1])}, sr.constant(LABEL[:1])


def data(label: Any = LABEL, epochs: int | None = None) -> Any:
    return lambda: tf.data.Dataset.from_tensor_slices(({"x": X}, label)).repeat(epochs).batch(40)


def config() -> Any:
    return est.RunConfig(tf_random_seed=2, save_summary_steps=None, log_step_count_steps=None)


def test_a_classifier_is_evaluated_by_its_export(tmp_path: Path) -> None:
    model = est.DNNClassifier(
        [8], [fc.numeric_column("x", 3)], str(tmp_path / "model"), config=config(),
        batch_norm=True, dropout=0.5,
    )  # fmt: skip
    model.train(data(), steps=20)
    wanted = model.evaluate(data(epochs=1))
    path = model.experimental_export_all_saved_models(
        tmp_path / "out",
        {
            est.ModeKeys.EVAL: est.experimental.build_raw_supervised_input_receiver_fn(*BOTH),
            est.ModeKeys.PREDICT: est.export.build_raw_serving_input_receiver_fn(BOTH[0]),
        },
    )
    for _ in range(2):  # What was counted belongs to what was loaded.
        loaded = sr.saved_model.load(path).signatures
        assert {"eval", "predict", "serving_default"} < set(loaded)
        losses = []
        for at in (0, 40, 80):
            found = loaded["eval"](x=X[at : at + 40], label=LABEL[at : at + 40])
            losses.append(float(found["loss"]))
        assert np.mean(losses) == pytest.approx(wanted["loss"], rel=1e-5)
        names = [name for name in wanted if name not in ("loss", "global_step")]
        assert len(names) == 9
        for name in names:
            for kind in ("value", "update_op"):
                value = float(found[f"metrics/{name}/{kind}"])
                assert value == pytest.approx(wanted[name], rel=1e-4), name
        probabilities = found["predictions/probabilities"].numpy()
    served = loaded["predict"](x=X[80:])["probabilities"].numpy()
    np.testing.assert_allclose(probabilities, served, rtol=1e-5)


def own_metrics(features: Any, labels: Any, mode: str) -> Any:
    made = tf.layers.dense(
        features, 1, name="line", kernel_regularizer=lambda w: 0.5 * tf.reduce_sum(tf.square(w))
    )
    if mode == est.ModeKeys.PREDICT:
        return est.EstimatorSpec(mode, made)
    tf.losses.mean_squared_error(tf.reshape(labels, [-1, 1]), made)
    loss = tf.losses.get_total_loss()
    step = None
    if mode == est.ModeKeys.TRAIN:
        step = tf.train.GradientDescentOptimizer(0.1).minimize(loss, tf.train.get_global_step())
    batches = tf.get_local_variable("batches", [], initializer=tf.constant_initializer(10.0))
    half = tf.Variable(
        0.0, trainable=False, name="half", collections=[tf.GraphKeys.LOCAL_VARIABLES]
    )
    less = tf.get_local_variable("less", [], initializer=tf.zeros_initializer())
    with tf.control_dependencies([batches.assign_add(1.0)]):
        nothing = tf.no_op()
    metrics = {
        "batches": (batches, nothing),
        "half": (half * 2.0, half.assign((half + tf.reduce_mean(made)) / 2.0)),
        "metrics/less": (tf.identity(less), less.assign_sub(1.0)),
    }
    return est.EstimatorSpec(mode, made, loss, step, metrics)


def test_metrics_of_ones_own_are_kept(tmp_path: Path) -> None:
    model = est.Estimator(own_metrics, str(tmp_path / "model"), config())
    given = tf.data.Dataset.from_tensor_slices((X, LABEL.astype("f4"))).repeat().batch(40)
    model.train(lambda: given, steps=5)
    receive = est.experimental.build_raw_supervised_input_receiver_fn(
        sr.constant(X[:1]), {"y": sr.constant([1.0])}
    )

    def receive_alone() -> Any:
        made = receive()
        return est.experimental.SupervisedInputReceiver(
            made.features, made.labels["y"], made.receiver_tensors
        )

    path = model.export_saved_model(
        tmp_path / "out", receive_alone, experimental_mode=est.ModeKeys.EVAL
    )
    signatures = sr.saved_model.load(path).signatures
    assert list(signatures) == ["eval"]
    kernel = model.get_variable_value("line/kernel")
    made = X @ kernel + model.get_variable_value("line/bias")
    loss = np.mean((made[:, 0] - LABEL) ** 2) + 0.5 * np.sum(kernel**2)
    half = 0.0
    for count in (1, 2, 3):
        found = signatures["eval"](input=X, y=LABEL.astype("f4"))
        half = (half + made.mean()) / 2
        got = {name: np.asarray(value.numpy()) for name, value in found.items()}
        np.testing.assert_allclose(got["predictions"], made, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(got["loss"], loss, rtol=1e-4)
        assert got["metrics/batches/value"] == 10 + count
        np.testing.assert_allclose(got["metrics/half/value"], 2 * half, rtol=1e-4)
        np.testing.assert_allclose(got["metrics/half/update_op"], half, rtol=1e-4)
        assert got["metrics/less/value"] == got["metrics/less/update_op"] == -count
    assert "metrics/batches/update_op" not in found


def test_modes_that_cannot_be_exported(tmp_path: Path) -> None:
    model = est.LinearClassifier([fc.numeric_column("x", 3)], str(tmp_path), config=config())
    model.train(data(), steps=1)
    serving = est.export.build_raw_serving_input_receiver_fn(BOTH[0])
    with pytest.raises(errors.UnimplementedError, match="for the mode 'train'"):
        model.export_saved_model(tmp_path / "out", serving, experimental_mode=est.ModeKeys.TRAIN)
    with pytest.raises(ValueError, match="No modes for export"):
        model.experimental_export_all_saved_models(tmp_path / "out", {})
    with pytest.raises(ValueError, match="must give a SupervisedInputReceiver, with features, la"):
        model.export_saved_model(tmp_path / "out", serving, experimental_mode=est.ModeKeys.EVAL)
    with pytest.raises(ValueError, match="names in common: x"):
        est.experimental.build_raw_supervised_input_receiver_fn(BOTH[0], BOTH[0])
    assert not (tmp_path / "out").exists()


def test_a_model_function_of_one_tensor_is_served(tmp_path: Path) -> None:
    def receive() -> Any:
        given = tf.placeholder(tf.float32, [None, 3], name="given")
        return est.export.TensorServingInputReceiver(given, given)

    model = est.Estimator(own_metrics, str(tmp_path / "model"), config())
    given = tf.data.Dataset.from_tensor_slices((X, LABEL.astype("f4"))).repeat().batch(40)
    model.train(lambda: given, steps=1)
    path = model.export_saved_model(tmp_path / "out", receive)
    found = sr.saved_model.load(path).signatures["serving_default"](input=X)["output"]
    kernel = model.get_variable_value("line/kernel")
    np.testing.assert_allclose(
        found.numpy(), X @ kernel + model.get_variable_value("line/bias"), rtol=1e-4, atol=1e-6
    )


def test_what_is_read_of_examples_with_labels() -> None:
    a = fc.numeric_column("a")
    word = fc.categorical_column_with_hash_bucket("word", 5)
    spec = est.classifier_parse_example_spec(
        [fc.numeric_column("a", default_value=1.5), word], "label", "string", "no",
        fc.numeric_column("weight", default_value=2.0),
    )  # fmt: skip
    assert sorted(spec) == ["a", "label", "weight", "word"]
    assert spec["label"] == sr.io.FixedLenFeature((1,), "string", "no")
    assert spec["word"] == sr.io.VarLenFeature(sr.string)
    read = sr.io.parse_example([b""], spec)  # an example that has nothing
    assert read["label"].numpy().tolist() == [[b"no"]]
    assert read["weight"].numpy().tolist() == [[2.0]]
    spec = est.classifier_parse_example_spec([a], "label", label_default=0, weight_column="w")
    assert spec["label"] == sr.io.FixedLenFeature((1,), "int64", 0)
    assert spec["w"] == sr.io.FixedLenFeature((1,), sr.float32, None)
    spec = est.regressor_parse_example_spec([a], "label", label_dimension=3)
    assert spec["label"] == sr.io.FixedLenFeature((3,), "float32", None)
    with pytest.raises(ValueError, match="label should not be used as feature"):
        est.classifier_parse_example_spec([a], "a")
    with pytest.raises(ValueError, match="weight_column should not be used as feature"):
        est.regressor_parse_example_spec([a], "label", weight_column="a")
    with pytest.raises(ValueError, match="must be a key or a numeric_column"):
        est.regressor_parse_example_spec([a], "label", weight_column=word)
    with pytest.raises(ValueError, match="label_key must be the name"):
        est.regressor_parse_example_spec([a], None)


class _Exported:
    """Stands for an estimator, and keeps the checkpoints that are exported."""

    def __init__(self, model_dir: Path) -> None:
        self.model_dir, self.seen = str(model_dir), []

    def export_saved_model(self, folder: Any, receive: Any, *rest: Any) -> str:
        self.seen.append(rest[-1])
        return str(folder)


def test_the_best_of_earlier_processes_counts(tmp_path: Path) -> None:
    writer = tf.summary.FileWriter(str(tmp_path / "eval"))
    kind = tf.summary.Summary
    for step, loss in ((10, 5.0), (20, 3.0), (30, 4.0)):
        for tag, number in (("loss", loss), ("auc", 1 / loss)):
            writer.add_summary(kind(value=[kind.Value(tag=tag, simple_value=number)]), step)
    writer.close()
    (file,) = (tmp_path / "eval").iterdir()

    def exported(pattern: str | None, results: list[tuple[int, float]], **options: Any) -> Any:
        exporter = est.BestExporter("best", lambda: None, pattern, **options)
        estimator = _Exported(tmp_path)
        for step, loss in results:
            found = {"loss": loss, "auc": 1 / loss, "global_step": step}
            exporter.export(estimator, str(tmp_path), str(step), found, False)
        return estimator.seen

    pattern = "eval/*.tfevents.*"
    for _ in range(2):
        assert exported(pattern, [(40, 3.5), (50, 2.5), (60, 2.7)]) == ["50"]
        # What was written for the current step is the current result itself.
        assert exported(pattern, [(20, 3.0), (30, 2.0)]) == ["20", "30"]
        assert exported(None, [(40, 3.5), (50, 2.5)]) == ["40", "50"]
        assert exported("eval/none*", [(40, 3.5)]) == ["40"]

        def has_more(best_eval_result: Any, current_eval_result: Any) -> bool:
            return current_eval_result["auc"] > best_eval_result["auc"]

        assert exported(pattern, [(40, 3.5), (50, 2.5)], compare_fn=has_more) == ["50"]
        # The last record of a process that was killed may lack its end.
        with file.open("ab") as out:
            out.write(b"\x20\0\0")
