"""Descriptions of clusters and names of devices, as TensorFlow has them."""

from __future__ import annotations

from typing import Any

import pytest

import sidereal as sr
import sidereal.v1 as tf
from sidereal import errors
from sidereal.train import ClusterDef, ClusterSpec, JobDef

TWO_JOBS = {
    "ps": ["ps0.example.com:2222", "ps1.example.com:2222"],
    "worker": ["w0.example.com:2222", "w1.example.com:2222", "w2.example.com:2222"],
}


def test_a_cluster_tells_its_jobs_tasks_and_addresses() -> None:
    cluster = tf.train.ClusterSpec(TWO_JOBS)
    assert cluster.jobs == ["ps", "worker"]
    assert cluster.as_dict() == TWO_JOBS
    assert cluster.job_tasks("worker") == TWO_JOBS["worker"]
    assert cluster.num_tasks("worker") == 3
    assert cluster.task_address("worker", 2) == "w2.example.com:2222"
    assert cluster.task_indices("worker") == [0, 1, 2]
    assert str(cluster) == f"ClusterSpec({TWO_JOBS})"
    assert repr(cluster) == str(cluster)


def test_a_message_of_a_cluster_prints_as_protobuf_does() -> None:
    message = ClusterSpec({"worker": {"3": 'a"b:1'}, "ps": ["p0:1", "p1:1"]}).as_cluster_def()
    assert str(message) == """job {
  name: "ps"
  tasks {
    value: "p0:1"
  }
  tasks {
    key: 1
    value: "p1:1"
  }
}
job {
  name: "worker"
  tasks {
    key: 3
    value: "a\\"b:1"
  }
}
"""
    assert message == ClusterDef(
        [JobDef("ps", {0: "p0:1", 1: "p1:1"}), JobDef("worker", {3: 'a"b:1'})]
    )
    assert ClusterSpec(message) == ClusterSpec({"worker": {3: 'a"b:1'}, "ps": ["p0:1", "p1:1"]})


def test_a_sparse_job_has_holes() -> None:
    cluster = ClusterSpec({"worker": {0: "a:1", "3": "b:1"}})
    assert cluster.as_dict() == {"worker": {0: "a:1", 3: "b:1"}}
    assert cluster.job_tasks("worker") == ["a:1", None, None, "b:1"]
    assert cluster.num_tasks("worker") == 2
    assert cluster.task_indices("worker") == [0, 3]


def test_dense_dicts_are_lists_and_the_order_of_jobs_does_not_matter() -> None:
    assert ClusterSpec({"a": {0: "x:1", 1: "y:1"}}) == ClusterSpec({"a": ["x:1", "y:1"]})
    assert ClusterSpec({"a": ("x:1", "y:1")}) == ClusterSpec({"a": ["x:1", "y:1"]})
    assert ClusterSpec({"a": ["x:1"], "b": []}) == ClusterSpec({"b": [], "a": ["x:1"]})
    assert ClusterSpec({"a": ["x:1", "y:1"]}) != ClusterSpec({"a": ["y:1", "x:1"]})
    assert ClusterSpec({"a": ["x:1"]}) != {"a": ["x:1"]}
    assert hash(ClusterSpec({"a": {0: "x:1"}})) == hash(ClusterSpec({"a": ["x:1"]}))


def test_only_a_cluster_without_jobs_is_false() -> None:
    assert not ClusterSpec({})
    assert ClusterSpec({"job": []})


def test_jobs_without_tasks_survive_every_conversion() -> None:
    cluster = ClusterSpec({"ps": [], "worker": ["w:1"]})
    assert cluster.as_dict() == {"ps": {}, "worker": ["w:1"]}
    for again in (cluster, cluster.as_dict(), cluster.as_cluster_def()):
        assert ClusterSpec(again) == cluster
    assert cluster.num_tasks("ps") == 0
    assert cluster.job_tasks("ps") == []


@pytest.mark.parametrize(
    ("cluster", "error"),
    [
        ("ps:1", TypeError),
        (None, TypeError),
        (["a:1"], TypeError),
        ({"ps": "p:1"}, TypeError),
        ({"ps": 1}, TypeError),
        ({1: ["p:1"]}, TypeError),
        ({"ps": [1]}, TypeError),
        ({"ps": {0: 5}}, TypeError),
        ({"ps": {"a": "p:1"}}, ValueError),
        ({"ps": {None: "p:1"}}, TypeError),
        ({"ps": {0: "p:1", "0": "q:1"}}, ValueError),
        ({"ps": {-1: "p:1"}}, ValueError),
        ({"p s": ["p:1"]}, ValueError),
    ],
)
def test_what_is_no_cluster_is_refused(cluster: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        ClusterSpec(cluster)


def test_asking_for_what_is_not_there_is_a_value_error() -> None:
    cluster = ClusterSpec(TWO_JOBS)
    for ask in (cluster.num_tasks, cluster.task_indices, cluster.job_tasks):
        with pytest.raises(ValueError, match="No such job in cluster: 'master'; there are: ps"):
            ask("master")
    with pytest.raises(ValueError, match="No task with index 9 in job 'ps'; there are: 0, 1"):
        cluster.task_address("ps", 9)


def test_names_of_devices_are_read_and_written() -> None:
    spec = sr.DeviceSpec.from_string("/gpu:1/task:3/job:ps")
    assert (spec.job, spec.replica, spec.task) == ("ps", None, 3)
    assert (spec.device_type, spec.device_index) == ("GPU", 1)
    assert spec.to_string() == str(spec) == "/job:ps/task:3/device:GPU:1"
    assert repr(spec) == "DeviceSpec(job='ps', task=3, device_type='GPU', device_index=1)"
    assert sr.DeviceSpec(job="ps", replica=0, task=0, device_type="CPU", device_index=0) == (
        sr.DeviceSpec.from_string("/job:ps/replica:0/task:0/device:CPU:0")
    )
    assert sr.DeviceSpec(device_type="GPU").to_string() == "/device:GPU:*"
    assert len({spec, sr.DeviceSpec.from_string(str(spec)), sr.DeviceSpec()}) == 2
    assert spec != "/job:ps/task:3/device:GPU:1"


def test_fields_of_a_device_are_replaced_and_merged() -> None:
    spec = tf.DeviceSpec(job="worker", task=1)
    assert str(spec.replace(task=2, device_type="CPU", device_index=0)) == (
        "/job:worker/task:2/device:CPU:0"
    )
    assert str(spec.replace(task=None)) == "/job:worker"
    assert str(spec.make_merged_spec(sr.DeviceSpec.from_string("/task:4/gpu:0"))) == (
        "/job:worker/task:4/device:GPU:0"
    )
    assert str(spec) == "/job:worker/task:1"
    with pytest.raises(TypeError, match="no \\['index'\\]"):
        spec.replace(index=1)
    with pytest.raises(AttributeError):
        spec.job = "ps"  # type: ignore[misc]
    for name in ("merge_from", "parse_from_string"):
        assert not hasattr(spec, name)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("/jobs:a", "Unknown attribute 'jobs'"),
        ("/cpu:0/gpu:0", "Multiple device types are not allowed"),
        ("/task:x", "expected a number"),
        ("cpu", "does not begin with '/'"),
    ],
)
def test_a_wrong_name_of_a_device_says_what_is_wrong(text: str, said: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=said) as caught:
        sr.DeviceSpec.from_string(text)
    assert isinstance(caught.value, ValueError)
    with pytest.raises(errors.InvalidArgumentError):
        sr.DeviceSpec(job="a b")
    with pytest.raises(errors.InvalidArgumentError):
        sr.DeviceSpec(task=-1)
