"""What of a graph moves as one, what stays, and which runs use what moves."""

from __future__ import annotations

from typing import Any

import pytest

import sidereal.v1 as tf
from sidereal.v1 import movable

pytestmark = pytest.mark.usefixtures("fresh_graph")

CLUSTER = {"ps": ["h0:1", "h1:1", "h2:1"], "worker": ["h3:1"]}


def found() -> movable.MovableGraph:
    """What is found in the default graph."""
    cluster = tf.train.ClusterSpec(CLUSTER)._native
    graph = tf.get_default_graph()
    return movable.MovableGraph(graph, cluster, "/job:worker/replica:0/task:0", False)


def groups(graph: movable.MovableGraph) -> dict[str, set[str]]:
    return {group.name: {each.name for each in group.variables} for group in graph.groups}


def setter() -> Any:
    return tf.device(
        tf.train.replica_device_setter(2, worker_device="/job:worker/replica:0/task:0")
    )


def test_a_variable_moves_with_its_slots_and_a_part_by_itself() -> None:
    with setter():
        parts = tf.get_variable("t", [4, 2], partitioner=tf.fixed_size_partitioner(2))
        v = tf.get_variable("v", [3])
        loss = tf.reduce_sum(v) + sum(tf.reduce_sum(part) for part in parts)
        tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    graph = found()
    assert groups(graph) == {
        "t/part_0": {"t/part_0", "t/part_0/Momentum"},
        "t/part_1": {"t/part_1", "t/part_1/Momentum"},
        "v": {"v", "v/Momentum"},
    }
    assert [(group.task, group.bytes) for group in graph.groups] == [(0, 32), (1, 32), (0, 24)]
    assert {group.task for group in graph.groups} == {0, 1} and graph.fixed == {}
    assert set(graph.places()) == set().union(*groups(graph).values())


def test_what_is_no_variable_stays_with_what_is_beside_it() -> None:
    with setter():
        moving = tf.get_variable("moving", [])
        held = tf.get_variable("held", [])
        with tf.container("own"):
            tf.get_variable("contained", [])
    with tf.get_default_graph().colocate_with(held.op):
        tf.FIFOQueue(2, tf.float32, name="queue").enqueue(tf.constant(1.0))
    with tf.device("/job:worker/task:0"):
        tf.get_variable("local", [])
    graph = found()
    assert groups(graph) == {"moving": {"moving"}}
    assert graph.fixed == {0: ["Variable 'contained'"], 1: ["Queue 'queue'"]}
    assert moving.op.name == "moving"


def test_runs_that_wait_for_others_alone_use_nothing_that_moves() -> None:
    with setter():
        v = tf.get_variable("v", [])
        with tf.device("/job:ps/task:0"):
            queue = tf.FIFOQueue(2, tf.float32, name="queue")
            enqueue = queue.enqueue(tf.constant(1.0))
            taken = queue.dequeue()
        with tf.device("/job:ps/task:1"):
            far = tf.identity(tf.constant(1.0) + tf.constant(2.0))
        here = tf.constant(1.0) * 2.0
        (loop,) = tf.while_loop(lambda i: i < 3.0, lambda i: (i + v.read_value(),), (0.0,))
        of_queue = v.assign_add(taken)
    graph = found()

    def uses(*fetches: Any) -> bool:
        ops = [getattr(each, "op", each) for each in fetches]
        return graph.uses([], [op.node for op in ops])

    assert not uses(enqueue) and not uses(here) and not uses(enqueue, here)
    assert uses(v) and uses(enqueue, v) and uses(of_queue) and uses(loop)
    # It may be on a server that is left.
    assert uses(far)


@pytest.mark.parametrize("is_movable", [False, True])
def test_a_saver_keeps_what_its_nodes_have_together(is_movable: bool) -> None:
    with setter():
        for i in range(4):
            tf.get_variable(f"v{i}", [])
    tf.train.Saver(movable=is_movable)
    assert movable.has_savers_that_tie(tf.get_default_graph()) is not is_movable
    wanted = [{f"v{i}"} for i in range(4)] if is_movable else [{"v0", "v2"}, {"v1", "v3"}]
    assert list(groups(found()).values()) == wanted


def test_two_variables_of_a_name_are_one() -> None:
    with setter():
        a = tf.get_variable("a", [])
    with tf.device("/job:ps/task:0"):
        other = tf.get_default_graph().add(
            "Variable", (), {"shared_name": "a", "dtype": a.dtype, "shape": ()}, "other"
        )
    assert other.node_name == "other"
    assert groups(found()) == {"a": {"a"}}
    assert found().places() == {"a": "/job:ps/replica:0/task:0/device:CPU:0"}
