"""Devices of sidereal.v1: scopes, colocation, replica_device_setter (contract of TensorFlow)."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

import sidereal.v1 as tf

pytestmark = pytest.mark.usefixtures("fresh_graph")


def constant() -> Any:
    return tf.constant(1.0)


# --- Scopes.


def test_nested_scopes_merge_per_field_and_the_inner_wins() -> None:
    with tf.device("/job:worker/task:1"):
        with tf.device("/gpu:0"):
            assert constant().device == "/job:worker/task:1/device:GPU:0"
        with tf.device("/task:2"):
            assert constant().device == "/job:worker/task:2"
        assert constant().device == "/job:worker/task:1"
    assert constant().device == ""


def test_a_scope_of_none_resets() -> None:
    with tf.device("/job:worker"):
        with tf.device(None):
            assert constant().device == ""
            with tf.device("/cpu:0"):
                assert constant().device == "/device:CPU:0"
        assert constant().device == "/job:worker"


def test_scopes_take_specs_and_functions() -> None:
    with tf.device(tf.DeviceSpec(job="ps", task=1)):
        assert constant().device == "/job:ps/task:1"

    def by_type(op: tf.Operation) -> str:
        return "/gpu:0" if op.type == "MatMul" else "/cpu:0"

    with tf.device(by_type):
        x = tf.ones([2, 2])
        assert x.device == "/device:CPU:0"
        assert tf.matmul(x, x).device == "/device:GPU:0"
    with tf.device(lambda op: tf.DeviceSpec(job="a")), tf.device(lambda op: None):
        assert constant().device == "/job:a"


def test_what_is_no_device_is_refused() -> None:
    with pytest.raises(ValueError, match="Unknown attribute"):
        with tf.device("/foo:bar"):
            pass
    with pytest.raises(TypeError, match="is no device"):
        with tf.device(3):
            pass


def test_all_that_is_added_gets_a_device() -> None:
    graph = tf.get_default_graph()
    with tf.device("/job:worker/task:0"):
        x = tf.placeholder(tf.float32, [2])
        v = tf.Variable([1.0, 2.0], name="v")
        y = tf.reduce_sum(tf.cond(x[0] > 0.0, lambda: x * v, lambda: x - v))
        tf.gradients(y, [v])
        queue = tf.FIFOQueue(3, [tf.float32])
        queue.enqueue([y])
    assert {op.device for op in graph.get_operations()} == {"/job:worker/task:0"}


def test_nodes_of_bodies_get_the_device_of_their_scope() -> None:
    def body() -> Any:
        with tf.device("/job:ps/task:1"):
            return constant() * 3.0

    with tf.device("/job:worker"):
        tf.cond(tf.constant(True), body, constant)
    text = tf.get_default_graph().native.text()
    assert "/job:ps/task:1" in text
    assert "/job:worker" in text


def test_what_bodies_do_to_a_variable_is_where_it_is() -> None:
    with tf.device("/job:ps/task:1"):
        v = tf.Variable(1.0, name="v")

    def body(i: Any) -> Any:
        v.assign_add(1.0)
        return i + tf.cast(v.read_value(), tf.int32)

    with tf.device("/job:worker"):
        tf.while_loop(lambda i: i < 5, body, [tf.constant(0)])
    lines = tf.get_default_graph().native.text().splitlines()
    for op in ("VariableAssignAdd(", "VariableRead("):
        found = [line for line in lines if op in line]
        assert found and all('device="/job:ps/task:1"' in line for line in found)
    assert any("Cast(" in line and 'device="/job:worker"' in line for line in lines)


def test_gradients_ask_for_the_scope_they_are_made_in() -> None:
    with tf.device("/job:ps"):
        v = tf.Variable([1.0, 2.0])
        y = tf.reduce_sum(v * v)
    with tf.device("/job:worker"):
        (grad,) = tf.gradients(y, [v])
    assert grad.device == "/job:worker"


def test_nodes_are_colocated() -> None:
    with tf.device("/job:ps/task:1"):
        a = tf.constant(1.0, name="a")
    with tf.device("/job:worker"):
        with tf.colocate_with(a):
            b = tf.identity(a, name="b")
            with tf.device("/job:other"):
                assert constant().device == "/job:ps/task:1"
        with tf.colocate_with(b.op):
            c = constant()
        with tf.colocate_with(a), tf.colocate_with(None, ignore_existing=True):
            d = constant()
    assert b.device == c.device == a.device
    assert b.op.colocation_groups() == [b"loc:@a"]
    assert c.op.colocation_groups() == [b"loc:@a"]
    assert d.device == ""
    assert "loc:@a" in tf.get_default_graph().native.text()


def test_changes_of_a_variable_are_where_it_is() -> None:
    with tf.device("/job:ps/task:1"):
        v = tf.Variable(lambda: tf.ones([2]) * 2.0, name="v")
    with tf.device("/job:worker"):
        changed = v.assign_add([1.0, 1.0])
    assert v.device == v.initializer.device == v.value().device == "/job:ps/task:1"
    assert changed.device == "/job:ps/task:1"
    assert changed.op.colocation_groups() == [b"loc:@v"]
    assert v.initial_value.device == "/job:ps/task:1"


# --- replica_device_setter.


def test_no_ps_means_no_function() -> None:
    assert tf.train.replica_device_setter() is None
    assert tf.train.replica_device_setter(cluster={"worker": ["a:1"]}) is None
    with tf.device(tf.train.replica_device_setter()):
        assert tf.Variable(1.0).device == ""


def test_variables_go_round_and_their_initialisers_with_them() -> None:
    cluster = tf.train.ClusterSpec({"ps": ["a:1", "b:1"], "worker": ["c:1"]})
    for given in (cluster, cluster.as_dict(), cluster.as_cluster_def()):
        with tf.device(tf.train.replica_device_setter(cluster=given)):
            v = tf.Variable([1.0, 2.0])
            w = tf.Variable([2.0, 1.0])
            a = v + w
        assert v.device == v.initializer.device == "/job:ps/task:0"
        assert w.device == w.initializer.device == "/job:ps/task:1"
        assert a.device == "/job:worker"


def test_the_cluster_overrides_the_number_of_tasks() -> None:
    cluster = {"sun": ["a:1", "b:1", "c:1"], "worker": ["d:1"]}
    setter = tf.train.replica_device_setter(ps_tasks=1, ps_device="/job:sun", cluster=cluster)
    with tf.device(setter):
        assert [tf.Variable(1.0).device[-1] for _ in range(4)] == ["0", "1", "2", "0"]


def test_a_variable_that_asks_for_a_part_gets_the_rest() -> None:
    with tf.device(tf.train.replica_device_setter(ps_tasks=2)):
        with tf.device("/cpu:0"):
            v = tf.Variable([1.0, 2.0])
            w = tf.Variable([2.0, 1.0])
            a = v + w
        with tf.device("/job:worker/task:3"):
            pinned = tf.Variable(0.0)
        next_ = tf.Variable(0.0)
    assert v.device == v.initializer.device == "/job:ps/task:0/device:CPU:0"
    assert w.device == "/job:ps/task:1/device:CPU:0"
    assert a.device == "/job:worker/device:CPU:0"
    assert pinned.device == "/job:worker/task:3"
    assert next_.device == "/job:ps/task:0", "what is pinned elsewhere takes no turn"


def test_without_merging_what_asks_for_a_device_is_untouched() -> None:
    setter = tf.train.replica_device_setter(ps_tasks=2, merge_devices=False)
    with tf.device(setter):
        with tf.device("/cpu:0"):
            v = tf.Variable([1.0, 2.0])
        w = tf.Variable([1.0, 2.0])
    assert v.device == "/device:CPU:0"
    assert w.device == "/job:ps/task:0"


def test_a_ps_device_without_a_job_gets_no_task() -> None:
    with tf.device(tf.train.replica_device_setter(ps_tasks=1, ps_device="/cpu:0")):
        v = tf.Variable([1.0, 2.0])
        a = v + 1.0
    assert v.device == v.initializer.device == "/device:CPU:0"
    assert a.device == "/job:worker"


def test_other_types_of_ops_go_to_the_ps_when_asked() -> None:
    with tf.device(tf.train.replica_device_setter(ps_tasks=2, ps_ops=["Const"])):
        assert constant().device == "/job:ps/task:0"
        assert tf.placeholder(tf.float32, []).device == "/job:worker"
    with tf.device(tf.train.replica_device_setter(ps_tasks=2, ps_ops=["VarHandleOp"])):
        assert tf.Variable(1.0).device == "/job:ps/task:0"
    with tf.device(tf.train.replica_device_setter(ps_tasks=2)):
        table = tf.lookup.experimental.MutableHashTable("int64", "int64", 0)
        queue = tf.FIFOQueue(1, [tf.float32])
    assert table.handle.device == "/job:ps/task:0"
    assert queue.handle.device == "/job:worker"


def test_slots_go_where_their_variables_are() -> None:
    with tf.device(tf.train.replica_device_setter(ps_tasks=2)):
        variables = [tf.Variable([1.0]), tf.Variable([2.0])]
        optimizer = tf.train.AdagradOptimizer(0.1)
        optimizer.minimize(tf.reduce_sum(variables[0] * variables[1]))
    for variable in variables:
        assert optimizer.get_slot(variable, "accumulator").device == variable.device


def test_strategies_choose_the_task() -> None:
    with pytest.raises(TypeError, match="must be callable"):
        tf.train.replica_device_setter(ps_tasks=2, ps_strategy=3)  # type: ignore[arg-type]
    strategy = tf.contrib.training.GreedyLoadBalancingStrategy(
        2, tf.contrib.training.byte_size_load_fn
    )
    setter = tf.train.replica_device_setter(ps_tasks=2, ps_strategy=strategy)
    with tf.device(setter):
        shapes = [[2, 2], [2, 1], [2, 2], [1, 3]]
        devices = [tf.Variable(tf.zeros(shape)).device for shape in shapes]
        assert devices == [f"/job:ps/task:{task}" for task in (0, 1, 1, 0)]
        x = tf.placeholder(tf.float32, [None, 2])
        with pytest.raises(ValueError, match="not fully known"):
            tf.Variable(x, validate_shape=False)
    with pytest.raises(ValueError, match="single output"):
        tf.contrib.training.byte_size_load_fn(tf.unstack(tf.zeros([2]))[0].op)


def test_random_strategies_give_the_same_in_every_process() -> None:
    def devices(seed: int) -> list[str]:
        tf.reset_default_graph()
        strategy = tf.contrib.training.RandomStrategy(3, seed)
        with tf.device(tf.train.replica_device_setter(ps_tasks=3, ps_strategy=strategy)):
            return [tf.Variable(0.0, name=f"v{i}").device[-1] for i in range(8)]

    assert devices(0) == devices(0)
    assert devices(0) != devices(1)
    by_hash = [int(hashlib.md5(f"v{i}_0".encode()).hexdigest(), 16) % 3 for i in range(8)]
    assert devices(0) == [str(task) for task in by_hash]


# --- Values that describe servers.


def test_filters_say_what_a_task_sees() -> None:
    filters = tf.train.ClusterDeviceFilters()
    filters.set_device_filters("worker", 0, ["/job:ps", "/job:worker/replica:0/task:2"])
    full = "/replica:0/task:{}/device:CPU:0"
    assert filters.sees("worker", 0, "/job:worker" + full.format(0)), "its own devices"
    assert filters.sees("worker", 0, "/job:ps" + full.format(1))
    assert filters.sees("worker", 0, "/job:worker" + full.format(2))
    assert not filters.sees("worker", 0, "/job:worker" + full.format(1))
    assert filters.sees("worker", 1, "/job:worker" + full.format(0)), "no filters, sees everything"
    assert filters.device_filters("worker", 0) == ["/job:ps", "/job:worker/replica:0/task:2"]
    with pytest.raises(TypeError, match="list of names"):
        filters.set_device_filters("worker", 0, "/job:ps")
    with pytest.raises(ValueError, match="Unknown attribute"):
        filters.set_device_filters("worker", 0, ["/foo:1"])


def test_a_server_def_holds_a_cluster_a_task_and_filters() -> None:
    cluster = tf.train.ClusterSpec({"ps": ["a:1"], "worker": ["b:1", "c:1"]})
    filters = tf.train.ClusterDeviceFilters()
    filters.set_device_filters("worker", 1, ["/job:ps"])
    made = tf.train.ServerDef(
        cluster=cluster.as_cluster_def(), job_name="worker", task_index=1,
        cluster_device_filters=filters,
    )  # fmt: skip
    assert made.cluster == cluster.as_cluster_def()
    assert made.protocol == "" and "protocol" not in str(made)
    server = tf.train.Server(made, start=False)
    assert server.server_def.protocol == "grpc"
    assert server.server_def.cluster_device_filters == filters
