"""What estimators are told: RunConfig, TF_CONFIG, EstimatorSpec, and arguments that are wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import sidereal.v1 as tf
from sidereal import errors

CLUSTER = {
    "chief": ["host0:1"], "worker": ["host1:1", "host2:1"], "ps": ["host3:1", "host4:1"],
}  # fmt: skip
est = tf.estimator


def config_of(monkeypatch: pytest.MonkeyPatch, described: Any, **options: Any) -> Any:
    monkeypatch.setenv("TF_CONFIG", json.dumps(described))
    return est.RunConfig(**options)


def task(kind: str, index: int = 0, **cluster: Any) -> dict[str, Any]:
    return {"cluster": {**CLUSTER, **cluster}, "task": {"type": kind, "index": index}}


def test_without_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    config = est.RunConfig()
    assert (config.task_type, config.task_id, config.is_chief) == ("worker", 0, True)
    assert (config.master, config.evaluation_master) == ("", "")
    assert (config.num_ps_replicas, config.num_worker_replicas) == (0, 1)
    assert config.global_id_in_cluster == 0 and not config.cluster_spec
    assert config.save_checkpoints_secs == 600 and config.save_checkpoints_steps is None
    assert config.keep_checkpoint_max == 5 and config.log_step_count_steps == 100


@pytest.mark.parametrize(
    ("kind", "index", "address", "is_chief", "number"),
    [
        ("chief", 0, "host0:1", True, 0),
        ("worker", 1, "host2:1", False, 2),
        ("ps", 1, "host4:1", False, 4),
    ],
)
def test_a_task_of_a_cluster(
    monkeypatch: pytest.MonkeyPatch, kind: str, index: int, address: str, is_chief: bool,
    number: int,
) -> None:  # fmt: skip
    config = config_of(monkeypatch, task(kind, index))
    assert (config.task_type, config.task_id) == (kind, index)
    assert config.master == f"grpc://{address}"
    assert config.is_chief is is_chief
    assert config.global_id_in_cluster == number
    assert (config.num_ps_replicas, config.num_worker_replicas) == (2, 3)
    assert config.cluster_spec.as_dict() == CLUSTER


def test_an_evaluator_is_in_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(monkeypatch, task("evaluator"))
    assert (config.task_type, config.is_chief, config.master) == ("evaluator", False, "")
    assert not config.cluster_spec
    assert config.global_id_in_cluster is None
    assert (config.num_ps_replicas, config.num_worker_replicas) == (0, 0)


def test_a_master_in_the_place_of_the_chief(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = {"master": ["a:1"], "worker": ["b:1"], "ps": ["c:1"]}
    described = {"cluster": cluster, "task": {"type": "master", "index": 0}}
    config = config_of(monkeypatch, described)
    assert config.is_chief and config.num_worker_replicas == 2


def test_a_chief_that_is_alone_needs_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    described = {"cluster": {"chief": ["a:1"]}, "task": {"type": "chief", "index": 0}}
    assert config_of(monkeypatch, described).master == ""


def test_the_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    described = {**task("worker"), "rpc_layer": "star_server"}
    assert config_of(monkeypatch, described).protocol == "star_server"
    assert est.RunConfig(protocol="star_server").protocol == "star_server"
    with pytest.raises(errors.InvalidArgumentError, match="TF_CONFIG"):
        est.RunConfig(protocol="grpc")
    monkeypatch.delenv("TF_CONFIG")
    assert est.RunConfig(protocol="grpc++").protocol == "grpc++"
    assert est.RunConfig().protocol is None


WRONG: dict[str, tuple[Any, str]] = {
    "no chief": (
        {"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}, "one \"chief\"",
    ),
    "two chiefs": (task("chief", chief=["a:1", "b:1"]), "only one \"chief\""),
    "unknown job": (task("worker", ps_hosts=["a:1"]), "a job 'ps_hosts'"),
    "no type": ({"cluster": CLUSTER, "task": {"index": 0}}, "task type must be set"),
    "no index": ({"cluster": CLUSTER, "task": {"type": "ps"}}, "task index must be set"),
    "wrong type": (task("boss"), "'boss'"),
    "wrong index": (task("worker", 2), "2 is not a valid task_id"),
    "no cluster": ({"task": {"type": "ps", "index": 0}}, 'needs a "cluster"'),
    "second of none": ({"task": {"type": "worker", "index": 1}}, "task index must be 0"),
    "second evaluator": (task("evaluator", 1), "index of an evaluator is 0"),
    "another folder": ({"model_dir": "/there"}, "must have the same value"),
    "no folder": ({"model_dir": ""}, "non-empty"),
    "no object": ([1], "must be an object"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_descriptions(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    described, said = WRONG[name]
    with pytest.raises((ValueError, errors.InvalidArgumentError), match=said):
        config_of(monkeypatch, described, model_dir="/here")


def test_what_is_no_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", "{")
    with pytest.raises((ValueError, errors.InvalidArgumentError)):
        est.RunConfig()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"save_checkpoints_steps": 1, "save_checkpoints_secs": 1}, "Can not provide both"),
        ({"save_summary_steps": -1}, "save_summary_steps should be >= 0"),
        ({"keep_checkpoint_max": -1}, "keep_checkpoint_max should be >= 0"),
        ({"keep_checkpoint_every_n_hours": 0}, "should be > 0"),
        ({"log_step_count_steps": 0}, "should be > 0"),
        ({"session_config": {}}, "must be a sidereal.v1.ConfigProto"),
        ({"tf_random_seed": 1.5}, "must be integer"),
        ({"device_fn": "/job:ps"}, "must be callable"),
        ({"train_distribute": object()}, "take no strategy"),
        ({"session_creation_timeout_secs": 0}, "should be > 0"),
        ({"consistency": "geo(0)"}, "geo"),
        ({"consistency": "sync"}, "SyncReplicasOptimizer"),
    ],
)
def test_wrong_arguments_of_a_config(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        est.RunConfig(**options)


def test_values_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(monkeypatch, {**task("worker", 1), "model_dir": "/here"})
    other = config.replace(save_checkpoints_steps=5, model_dir="/there", tf_random_seed=3)
    assert (other.save_checkpoints_steps, other.save_checkpoints_secs) == (5, None)
    assert (other.model_dir, config.model_dir, other.tf_random_seed) == ("/there", "/here", 3)
    assert other.master == config.master == "grpc://host2:1"
    with pytest.raises(ValueError, match="Replacing task_id is not supported"):
        config.replace(task_id=3)
    with pytest.raises(ValueError, match="Can not provide both"):
        config.replace(save_checkpoints_steps=5, save_checkpoints_secs=5)


# --- EstimatorSpec.


@pytest.fixture
def loss(fresh_graph: None) -> Any:
    return tf.constant(1.0)


def test_a_spec_has_what_its_mode_needs(loss: Any) -> None:
    step = tf.no_op()
    spec = est.EstimatorSpec(est.ModeKeys.TRAIN, loss=loss, train_op=step)
    assert spec.loss is loss and spec.train_op is step and spec.predictions == {}
    assert isinstance(spec.scaffold, tf.train.Scaffold)
    assert spec.export_outputs is None
    assert spec._replace(mode="eval").loss is loss
    predicts = est.EstimatorSpec("infer", {"p": loss})
    assert list(predicts.export_outputs) == ["serving_default"]
    vector = est.EstimatorSpec("eval", loss=tf.constant([2.0]))
    assert vector.loss.shape == ()


def test_wrong_specs(loss: Any) -> None:
    make = est.EstimatorSpec
    with pytest.raises(ValueError, match="of ModeKeys"):
        make("predict", loss)
    with pytest.raises(ValueError, match="Missing train_op"):
        make("train", loss=loss)
    with pytest.raises(ValueError, match="Missing loss"):
        make("eval")
    with pytest.raises(ValueError, match="Missing predictions"):
        make("infer")
    with pytest.raises(TypeError, match="must be a value of the graph"):
        make("eval", loss=1.0)
    with pytest.raises(ValueError, match="must be scalar"):
        make("eval", loss=tf.constant([1.0, 2.0]))
    with pytest.raises(TypeError, match=r"predictions\['p'\] must be Tensor"):
        make("infer", {"p": 1.0})
    with pytest.raises(TypeError, match="metric_value, update_op"):
        make("eval", loss=loss, eval_metric_ops={"m": loss})
    with pytest.raises(TypeError, match="given in training_hooks"):
        make("train", loss=loss, train_op=tf.no_op(), training_hooks=[1])
    with pytest.raises(TypeError, match="must be ExportOutput"):
        make("infer", loss, export_outputs={"a": loss})
    outputs = {"a": est.export.PredictOutput(loss), "b": est.export.RegressionOutput(loss)}
    with pytest.raises(ValueError, match="none of them is specified as the default"):
        make("infer", loss, export_outputs=outputs)
    with pytest.raises(ValueError, match="must be floating"):
        est.export.ClassificationOutput(scores=tf.constant(1))
    with pytest.raises(ValueError, match="At least one"):
        est.export.ClassificationOutput()


# --- Estimators.


def model_fn(features: Any, labels: Any, mode: str) -> Any:
    raise AssertionError("is not called")


def test_wrong_arguments_of_an_estimator(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="with different values"):
        est.Estimator(model_fn, "/a", est.RunConfig(model_dir="/b"))
    with pytest.raises(ValueError, match="instance of RunConfig"):
        est.Estimator(model_fn, config={})
    with pytest.raises(ValueError, match="must include features"):
        est.Estimator(lambda labels: None)
    with pytest.raises(ValueError, match="does not include params"):
        est.Estimator(model_fn, params={"a": 1})
    with pytest.raises(ValueError, match="not expected args: {'speed'}"):
        est.Estimator(lambda features, speed: None)
    with pytest.raises(ValueError, match="warm_start_from must be"):
        est.Estimator(model_fn, tmp_path, warm_start_from=1)
    estimator = est.Estimator(model_fn, tmp_path)
    data = lambda: None  # noqa: E731
    with pytest.raises(ValueError, match="Can not provide both steps and max_steps"):
        estimator.train(data, steps=1, max_steps=1)
    with pytest.raises(ValueError, match="Must specify steps > 0"):
        estimator.train(data, steps=0)
    with pytest.raises(TypeError, match="Hooks must be a SessionRunHook"):
        estimator.train(data, hooks=[1])
    with pytest.raises(TypeError, match="saving_listeners"):
        estimator.train(data, saving_listeners=[1])
    with pytest.raises(TypeError, match="input_fn must be callable"):
        estimator.train(3)
    with pytest.raises(ValueError, match="len 2 tuple"):
        estimator.train(lambda: (1, 2, 3))
    with pytest.raises(ValueError, match="Could not find trained model"):
        estimator.get_variable_names()
    assert estimator.latest_checkpoint() is None


def test_a_folder_is_made_when_none_is_given() -> None:
    made = est.Estimator(model_fn)
    assert Path(made.model_dir).is_dir()
    assert made.config.model_dir == made.model_dir


def test_copies_are_given() -> None:
    params = {"sizes": [1, 2]}
    made = est.Estimator(lambda features, params: None, "/a", params=params)
    params["sizes"].append(3)
    made.params["sizes"].append(4)
    assert made.params == {"sizes": [1, 2]}


def test_wrong_arguments_of_training_and_evaluation() -> None:
    data = lambda: None  # noqa: E731
    with pytest.raises(TypeError, match="input_fn"):
        est.TrainSpec(3)
    with pytest.raises(ValueError, match="max_steps > 0"):
        est.TrainSpec(data, max_steps=0)
    with pytest.raises(ValueError, match="throttle_secs >= 0"):
        est.EvalSpec(data, throttle_secs=-1)
    with pytest.raises(TypeError, match="must be Exporters"):
        est.EvalSpec(data, exporters=[1])
    exporter = est.FinalExporter("a", data)
    with pytest.raises(ValueError, match="names of their own"):
        est.EvalSpec(data, exporters=[exporter, est.LatestExporter("a", data)])
    with pytest.raises(ValueError, match="positive number"):
        est.LatestExporter("a", data, exports_to_keep=0)
    spec = est.EvalSpec(data, exporters=exporter)
    assert spec.steps == 100 and spec.exporters == (exporter,)
    with pytest.raises(TypeError, match=r"tf\.estimator\.Estimator"):
        est.train_and_evaluate(None, est.TrainSpec(data), spec)


def test_wrong_arguments_of_models(tmp_path: Path) -> None:
    column = tf.feature_column.numeric_column("x")
    with pytest.raises(ValueError, match="n_classes must be at least 2"):
        est.LinearClassifier([column], tmp_path, 1)
    with pytest.raises(ValueError, match="2 labels for 3 classes"):
        est.LinearClassifier([column], tmp_path, 3, label_vocabulary=["a", "b"])
    with pytest.raises(ValueError, match="must be positive"):
        est.DNNClassifier([0], [column], tmp_path)
    with pytest.raises(ValueError, match="dropout"):
        est.DNNClassifier([1], [column], tmp_path, dropout=1.0)
    with pytest.raises(ValueError, match="Either linear_feature_columns"):
        est.DNNLinearCombinedClassifier(tmp_path)
    with pytest.raises(ValueError, match="dnn_hidden_units must be defined"):
        est.DNNLinearCombinedClassifier(tmp_path, dnn_feature_columns=[column])
    with pytest.raises(ValueError, match="Invalid Reduction Key"):
        est.LinearRegressor([column], tmp_path, loss_reduction="all")
    with pytest.raises(ValueError, match="feature_columns must not be empty"):
        est.LinearRegressor([], tmp_path)
