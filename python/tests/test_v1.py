"""sidereal.v1: default graph, placeholders, sessions."""

from __future__ import annotations

import numpy as np
import pytest

import sidereal.v1 as tf
from sidereal import errors

pytestmark = pytest.mark.usefixtures("fresh_graph")


def test_a_session_runs_what_is_fetched() -> None:
    x = tf.placeholder(tf.float32, [None, 3], name="x")
    y = x * 2.0
    z = tf.ops.reduce_sum(y)
    with tf.Session() as session:
        assert session.run(z, {x: [[1.0, 2.0, 3.0]]}) == 12
        got = session.run({"a": y, "b": (z, "x:0")}, feed_dict={"x:0": np.ones((2, 3))})
        assert got["a"].tolist() == [[2, 2, 2], [2, 2, 2]]
        assert got["b"][0] == 12
        assert got["b"][1].shape == (2, 3)
    with pytest.raises(RuntimeError, match="closed Session"):
        session.run(z, {x: [[1.0, 2.0, 3.0]]})


def test_graphs_are_apart() -> None:
    graph = tf.Graph()
    with graph.as_default():
        assert tf.get_default_graph() is graph
        x = tf.constant(2.0)
        y = x + 1.0
    assert tf.get_default_graph() is not graph
    with tf.Session(graph=graph) as session:
        assert session.run(y) == 3
    with pytest.raises(RuntimeError, match="graph is empty"):
        tf.Session().run(y)
    with pytest.raises(errors.InvalidArgumentError, match="two models or graphs"):
        tf.constant(1.0) + y
    with pytest.raises(ValueError, match="not a value of this session's graph"):
        tf.Session().run(y)


def test_variables_are_trained_by_operations() -> None:
    x = tf.placeholder(tf.float32, [2])
    w = tf.Variable([5.0, -5.0], name="w")
    loss = tf.ops.reduce_sum(tf.ops.square(w - x))
    train_op = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    count = tf.Variable(0.0, trainable=False)
    init = tf.global_variables_initializer()
    step = tf.assign_add(count, 1.0)
    assert [v.name for v in tf.trainable_variables()] == ["w:0"]
    with tf.Session() as session:
        session.run(init)
        losses = [session.run([loss, train_op, step], {x: [1.0, 1.0]})[0] for _ in range(40)]
        assert losses[0] == 52
        assert losses[-1] < 1e-4
        np.testing.assert_allclose(session.run(w), [1, 1], atol=0.01)
        assert session.run(count) == 40
        session.run(init)
        assert session.run(w).tolist() == [5, -5]
        session.run(tf.group(tf.assign(w, [0.0, 0.0]), tf.assign(count, 3.0)))
        assert session.run([w, count])[1] == 3


def test_gradients_are_values_of_the_graph() -> None:
    x = tf.placeholder(tf.float64, [])
    (grad,) = tf.gradients(x * x * x, [x])
    (second,) = tf.gradients(grad, [x])
    with tf.Session() as session:
        assert session.run([grad, second], {x: 2.0}) == [12, 12]


def test_names_lead_to_values() -> None:
    tf.placeholder(tf.float32, [], name="x")
    graph = tf.get_default_graph()
    assert graph.get_tensor_by_name("x:0").name == "x:0"
    with pytest.raises(errors.NotFoundError, match="y"):
        tf.Session().run("y:0")


def test_what_is_no_fetch_is_refused() -> None:
    tf.constant(1.0)
    with pytest.raises(TypeError, match="cannot be fetched"):
        tf.Session().run(3.0)
    with pytest.raises(TypeError, match="None has invalid type"):
        tf.Session().run([None])


def test_strings_and_examples_have_their_old_names() -> None:
    from sidereal import io

    with tf.Graph().as_default(), tf.Session() as session:
        words = tf.placeholder("string", [None])
        pieces = tf.string_split(words, delimiter=", ")
        found = session.run(pieces, {words: ["a, b", "", "c"]})
        assert found.values.tolist() == [b"a", b"b", b"c"]
        assert found.indices.tolist() == [[0, 0], [0, 1], [2, 0]]
        assert found.dense_shape.tolist() == [3, 2]
        serialized = tf.placeholder("string", [None])
        made = tf.parse_example(serialized, {"x": tf.FixedLenFeature([], "int64")})
        examples = [io.encode_example({"x": x}) for x in (3, 4)]
        assert session.run(made["x"], {serialized: examples}).tolist() == [3, 4]


def test_checks_and_prints_run_when_they_are_fetched_or_waited_for(
    capfd: pytest.CaptureFixture[str],
) -> None:
    x = tf.placeholder(tf.float32, [None], name="x")
    unfed = tf.placeholder(tf.float32, [], name="unfed")
    tf.debugging.assert_positive(unfed)
    check = tf.debugging.Assert(tf.reduce_all(x > 0.0), [x])
    shown = tf.debugging.print("x is", x)
    with tf.control_dependencies([check, shown]):
        y = x * 2.0
    plain = x * 3.0
    with tf.Session() as session:
        assert session.run(plain, {x: [-1.0]}).tolist() == [-3]
        assert "x is" not in capfd.readouterr().err
        with pytest.raises(errors.InvalidArgumentError, match="Assert"):
            session.run(y, {x: [-1.0]})
        with pytest.raises(errors.InvalidArgumentError, match="Assert"):
            session.run(check, {x: [-1.0]})
        assert session.run([plain, check], {x: [1.0]})[1] is None
        capfd.readouterr()
        assert session.run(y, {x: [1.0]}).tolist() == [2]
        assert capfd.readouterr().err == "x is [1]\n"
        assert session.run(tf.group(shown, check), {x: [4.0]}) is None
        assert capfd.readouterr().err == "x is [4]\n"


def test_python_without_results_is_an_operation() -> None:
    seen = []
    x = tf.placeholder(tf.float32, [])
    note = tf.py_function(lambda value: seen.append(float(value)), [x], [])
    with tf.control_dependencies([note]):
        y = x + 1.0
    with tf.Session() as session:
        assert session.run(x * 2.0, {x: 1.0}) == 2
        assert seen == []
        assert session.run(y, {x: 2.0}) == 3
        session.run(note, {x: 3.0})
        assert seen == [2.0, 3.0]


def test_what_cannot_be_waited_for_is_refused() -> None:
    tf.constant(1.0)
    other = tf.Graph()
    with other.as_default():
        check = tf.debugging.Assert(tf.constant(True))
        empty = tf.Graph()
        with empty.as_default():
            tf.constant(1.0)
        with pytest.raises(ValueError, match="not an operation of this session's graph"):
            tf.Session(graph=empty).run(check)
    with pytest.raises(ValueError, match="not an operation of this graph"):
        with tf.control_dependencies([check]):
            pass


def test_ops_have_their_old_names() -> None:
    x = tf.random_uniform([3], 1.0, 2.0)
    assert isinstance(x, tf.Tensor)
    w = tf.Variable(tf.truncated_normal([2, 3], stddev=0.1), name="w")
    y = tf.segment_sum(tf.log(x), [0, 0, 1])
    z = tf.is_nan(tf.random_normal([4]))
    with tf.Session() as session:
        session.run(w.initializer)
        assert abs(session.run(w)).max() <= 0.2
        assert session.run(y).shape == (2,)
        assert session.run(z).dtype == tf.bool
        assert session.run(tf.mod(7, 4)) == 3
