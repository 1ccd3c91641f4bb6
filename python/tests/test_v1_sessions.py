"""Graphs and sessions of sidereal.v1: names, operations, feeds, fetches, options, limits."""

from __future__ import annotations

import threading
from collections import namedtuple

import numpy as np
import pytest

import sidereal.v1 as tf
from sidereal import errors

pytestmark = pytest.mark.usefixtures("fresh_graph")


# --- Graphs.


def test_names_are_unique_in_scopes() -> None:
    names = [tf.constant(1.0, name="c").op.name for _ in range(3)]
    assert names == ["c", "c_1", "c_2"]
    with tf.name_scope("a") as scope:
        assert scope == "a/"
        assert tf.constant(1.0, name="c").name == "a/c:0"
        with tf.name_scope("b"):
            assert tf.constant(1.0, name="c").name == "a/b/c:0"
        with tf.name_scope(None):
            assert tf.constant(1.0, name="top").name == "top:0"
    with tf.name_scope("a") as again:
        assert again == "a_1/"
    with tf.name_scope(scope):
        assert tf.constant(1.0, name="c").name == "a/c_1:0"
    with tf.name_scope(None, "default") as other:
        assert other == "default/"
    graph = tf.get_default_graph()
    assert graph.unique_name("new", mark_as_used=False) == "new"
    assert graph.unique_name("new") == "new"
    assert graph.unique_name("new") == "new_1"
    for bad in ("a:b", "_a", "a b"):
        with pytest.raises(ValueError, match="not a valid"):
            tf.placeholder(tf.float32, [], name=bad)
        with pytest.raises(ValueError, match="not a valid"):
            with tf.name_scope(bad):
                pass


def test_operations_say_what_they_are() -> None:
    x = tf.placeholder(tf.float32, [2], name="x")
    with tf.control_dependencies([tf.no_op(name="first")]):
        y = tf.add(x, x, name="y") if hasattr(tf, "add") else x + x
    op = y.op
    assert op.type == "Add"
    assert [value.name for value in op.inputs] == ["x:0", "x:0"]
    assert [before.name for before in op.control_inputs] == ["first"]
    assert [value.name for value in op.outputs] == [y.name]
    assert op.node_def.input == ["x", "x", "^first"]
    assert x.op.get_attr("dtype") == tf.float32
    with pytest.raises(ValueError, match="no attribute"):
        op.get_attr("nothing")
    assert op == tf.get_default_graph().get_operation_by_name(op.name)
    assert op in x.consumers()
    assert op.graph is tf.get_default_graph()
    assert repr(tf.no_op(name="n")) == "<Operation 'n' type=NoOp>"


def test_elements_of_graphs_are_found_by_name() -> None:
    x = tf.placeholder(tf.float32, [], name="x")
    graph = tf.get_default_graph()
    assert graph.as_graph_element("x").name == "x"
    assert graph.as_graph_element("x:0").op == x.op
    assert graph.as_graph_element(x) is x
    with pytest.raises(KeyError, match="not in the graph"):
        graph.get_operation_by_name("y")
    with pytest.raises(errors.NotFoundError, match="y"):
        graph.get_tensor_by_name("y:0")
    with pytest.raises(ValueError, match="no name of a tensor"):
        graph.get_tensor_by_name("x")
    with pytest.raises(TypeError, match="Can not convert"):
        graph.as_graph_element(3)
    assert [op.name for op in graph.get_operations()] == ["x"]


def test_a_finalized_graph_takes_nothing_more() -> None:
    x = tf.constant(1.0)
    graph = tf.get_default_graph()
    before = graph.version
    graph.finalize()
    with pytest.raises(RuntimeError, match="finalized"):
        x + 1.0
    with pytest.raises(RuntimeError, match="finalized"):
        tf.placeholder(tf.float32, [])
    assert graph.version == before
    assert tf.Session().run(x) == 1


def test_collections_keep_what_is_put_in() -> None:
    tf.add_to_collection("losses", 1)
    tf.add_to_collections(["losses", "other", "losses"], 2)
    assert tf.get_collection("losses") == [1, 2]
    tf.get_collection_ref("other").append(3)
    graph = tf.get_default_graph()
    assert graph.get_collection("other") == [2, 3]
    assert graph.get_all_collection_keys() == ["losses", "other"]
    graph.clear_collection("other")
    assert graph.get_collection("other") == []


def test_groups_join_by_device() -> None:
    with tf.device("/job:a"):
        a = tf.no_op(name="a")
    with tf.device("/job:b"):
        b = tf.no_op(name="b")
    both = tf.group(a, [b, None], name="both")
    assert both.name == "both"
    assert sorted(op.device for op in both.control_inputs) == ["/job:a", "/job:b"]
    assert tf.group(a, name="one").device == "/job:a"
    assert tf.group(name="none").control_inputs == []


# --- Fetches and feeds.


def test_fetches_nest_repeat_and_keep_their_order() -> None:
    Pair = namedtuple("Pair", "left right")
    a, b = tf.constant(1, name="a"), tf.constant([2, 3], name="b")
    done = tf.no_op(name="done")
    with tf.Session() as session:
        got = session.run([b, {"x": a, "y": [a, b]}, Pair(a, done), (), []])
        assert got[0].tolist() == [2, 3]
        assert got[1]["x"] == 1 and got[1]["y"][1].tolist() == [2, 3]
        assert got[2] == Pair(1, None)
        assert got[3] == () and got[4] == []
        assert session.run([a, a, a]) == [1, 1, 1]
        assert session.run("done") is None
        assert session.run(["a:0", "done"]) == [1, None]
        with pytest.raises(TypeError, match="None has invalid type"):
            session.run([a, None])
        with pytest.raises(KeyError):
            session.run("nothing")


def test_any_value_can_be_fed() -> None:
    x = tf.placeholder(tf.float32, [2], name="x")
    y = x * 2.0
    z = tf.reduce_sum(y)
    parts = tf.unstack(y)
    total = parts[0] * 10.0 + parts[1]
    v = tf.Variable([1.0, 2.0])
    w = v * 2.0
    with tf.Session() as session:
        assert session.run(z, {y: [1.0, 2.0]}) == 3, "x is not needed then"
        assert session.run([y, z], {y: [1.0, 2.0]})[0].tolist() == [1, 2]
        assert session.run(total, {x: [1.0, 2.0], parts[1]: 0.5}) == 20.5
        assert session.run(z, {x: [1.0, 2.0]}) == 6
        assert session.run(w, {v: [5.0, 6.0]}).tolist() == [10, 12]
        assert session.run([x, z], {(x, y): ([0.0, 0.0], [1.0, 1.0])})[1] == 2
        rows = tf.IndexedSlices(tf.constant([[1.0]]), tf.constant([0]), (1, 1))
        assert session.run(rows.values, {rows: ([[7.0]], [0])}).tolist() == [[7]]
        with pytest.raises(errors.InvalidArgumentError, match="fed twice"):
            session.run(z, {x: [1.0, 2.0], "x:0": [1.0, 2.0]})
        with pytest.raises(TypeError, match="Cannot interpret feed_dict key"):
            session.run(z, {"nothing:0": 1.0})
        with pytest.raises(TypeError, match="cannot be a value of a graph"):
            session.run(z, {x: y})
        with pytest.raises(errors.InvalidArgumentError, match="takes float32"):
            session.run(z, {y: [1.0, 2.0, 3.0]})
        with pytest.raises(ValueError, match="must be nested like"):
            session.run(z, {(x, y): ([1.0, 2.0],)})


def test_a_session_sees_what_was_added_after_it() -> None:
    x = tf.constant(1.0)
    session = tf.Session()
    assert session.run(x) == 1
    y = x + 1.0
    assert session.run([x, y]) == [1, 2]
    call = session.make_callable([y], [x])
    assert call(5.0) == [6]
    with pytest.raises(TypeError, match="1 values are to be fed"):
        call()


def test_scalars_are_scalars() -> None:
    with tf.Session() as session:
        assert isinstance(session.run(tf.constant(1.5)), np.float32)
        assert session.run(tf.constant("Hello")) == b"Hello"


def test_default_sessions_nest() -> None:
    x = tf.constant(2.0)
    assert tf.get_default_session() is None
    with pytest.raises(ValueError, match="no default session"):
        x.eval()
    outer = tf.Session()
    with outer.as_default():
        assert x.eval() == 2
        with tf.Session() as inner:
            assert tf.get_default_session() is inner
        assert tf.get_default_session() is outer
        tf.no_op().run()
    assert x.eval(session=outer) == 2
    interactive = tf.InteractiveSession()
    assert tf.get_default_session() is interactive
    interactive.close()
    assert tf.get_default_session() is None
    with pytest.raises(RuntimeError, match="closed Session"):
        interactive.run(x)


# --- Limits and state.


def test_waits_end_in_time() -> None:
    queue = tf.FIFOQueue(1, [tf.float32])
    get = queue.dequeue()
    with tf.Session(config=tf.ConfigProto(operation_timeout_in_ms=50)) as session:
        with pytest.raises(errors.DeadlineExceededError):
            session.run(get)
    with tf.Session() as session, pytest.raises(errors.DeadlineExceededError):
        session.run(get, options=tf.RunOptions(timeout_in_ms=50))
    config = tf.ConfigProto(operation_timeout_in_ms=50)
    with tf.Session(config=config) as session:
        with pytest.raises(errors.DeadlineExceededError, match="0.05 s"):
            session.run(get, options=tf.RunOptions(timeout_in_ms=60_000))


def test_loops_end_in_time() -> None:
    loop = tf.while_loop(lambda i: i >= 0, lambda i: tf.maximum(i, 0), [tf.constant(1)])
    with tf.Session() as session, pytest.raises(errors.DeadlineExceededError):
        session.run(loop, options=tf.RunOptions(timeout_in_ms=50))


def test_sessions_have_queues_of_their_own() -> None:
    queue = tf.FIFOQueue(1, [tf.float32])
    put, size = queue.enqueue([1.0]), queue.size()
    with tf.Session() as one, tf.Session() as two:
        one.run(put)
        assert one.run(size) == 1
        assert two.run(size) == 0


def test_queues_without_a_shared_name_have_that_of_their_node() -> None:
    names = []
    for _ in range(2):
        with tf.Graph().as_default():
            queues = [tf.FIFOQueue(1, [tf.float32]) for _ in range(2)]
            names.append([queue.name for queue in queues])
            assert names[-1] == [queue.handle.op.name for queue in queues]
    assert names == [["fifo_queue", "fifo_queue_1"]] * 2


def test_threads_share_a_session() -> None:
    v = tf.Variable(0, dtype="int64")
    add = v.assign_add(1)
    queue = tf.FIFOQueue(5, ["int64"])
    put, get = queue.enqueue([add]), queue.dequeue()
    with tf.Session() as session:
        session.run(v.initializer)
        workers = [
            threading.Thread(target=lambda: [session.run(put) for _ in range(25)])
            for _ in range(4)
        ]
        for worker in workers:
            worker.start()
        got = [int(session.run(get)) for _ in range(100)]
        for worker in workers:
            worker.join()
        assert sorted(got) == list(range(1, 101))
        assert session.run(v) == 100


def test_options_are_checked() -> None:
    config = tf.ConfigProto(
        allow_soft_placement=True, log_device_placement=False, device_filters=["/job:ps"],
        isolate_session_state=True, intra_op_parallelism_threads=2,
        graph_options=tf.GraphOptions(place_pruned_graph=True),
        experimental=tf.ConfigProto.Experimental(collective_group_leader=""),
    )  # fmt: skip
    assert config.device_filters == ["/job:ps"]
    assert config == tf.ConfigProto(**vars(config))
    with tf.Session(config=config) as session:
        assert session.run(tf.constant(1.0)) == 1
    with pytest.raises(TypeError):
        tf.ConfigProto(no_such_option=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="it has"):
        tf.GraphOptions(no_such_option=1)
    with pytest.raises(ValueError, match="operation_timeout_in_ms"):
        tf.ConfigProto(operation_timeout_in_ms=-1)
    with pytest.raises(ValueError, match="Unknown attribute"):
        tf.ConfigProto(device_filters=["/foo:bar"])
    with pytest.raises(TypeError, match="ConfigProto"):
        tf.Session(config={})
    with pytest.raises(TypeError, match="must be a sidereal.v1.Graph"):
        tf.Session(graph=3)  # type: ignore[arg-type]




def test_sessions_say_where_nodes_run(capfd: pytest.CaptureFixture[str]) -> None:
    x = tf.constant(1.0, name="x")
    with tf.Session(config=tf.ConfigProto(log_device_placement=True)) as session:
        session.run(x)
        device = "/job:localhost/replica:0/task:0/device:CPU:0"
        assert capfd.readouterr().err == f"x: (Const): {device}\n"
        y = tf.identity(x)
        session.run(y)
        session.run([x, y])
        assert capfd.readouterr().err.count("\n") == 1


def test_containers_keep_names_apart() -> None:
    with tf.container("mine"):
        v = tf.Variable(1.0, name="v")
        queue = tf.FIFOQueue(1, [tf.float32], shared_name="q")
    other = tf.FIFOQueue(1, [tf.float32], shared_name="q")
    assert v.op.get_attr("container") == "mine"
    assert queue.handle.op.get_attr("container") == "mine"
    with tf.Session() as session:
        session.run([v.initializer, queue.enqueue([1.0])])
        assert session.run([v, queue.size(), other.size()]) == [1, 1, 0]


def test_no_memory_stays_behind_when_sessions_go() -> None:
    import gc

    from sidereal.v1.session import LocalRunner

    def runners() -> int:
        gc.collect()
        return sum(type(thing) is LocalRunner for thing in gc.get_objects())

    before = runners()  # Of sessions that other tests have kept.
    v = tf.Variable(np.zeros(1000, np.float32))
    for _ in range(20):
        with tf.Session() as session:
            session.run(v.initializer)
            session.run(v)
    assert runners() == before + 1
    del session
    assert runners() <= before
