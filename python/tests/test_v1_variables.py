"""Variables of sidereal.v1: their nodes, values, initializers, names, and optimizers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sidereal as sr
import sidereal.v1 as tf
from sidereal import errors

pytestmark = pytest.mark.usefixtures("fresh_graph")


def started() -> tf.Session:
    session = tf.Session()
    session.run(tf.global_variables_initializer())
    return session


# --- Variables.


def test_a_variable_has_no_value_before_its_initializer_runs() -> None:
    v = tf.Variable([1.0, 2.0], name="v")
    with tf.Session() as session:
        with pytest.raises(errors.FailedPreconditionError, match="uninitialized value v"):
            session.run(v)
        assert not session.run(tf.is_variable_initialized(v))
        assert session.run(tf.report_uninitialized_variables()).tolist() == [b"v"]
        assert session.run(v.initialized_value()).tolist() == [1, 2]
        session.run(v.initializer)
        assert session.run(v).tolist() == [1, 2]
        assert v.eval().tolist() == [1, 2]
        assert session.run(tf.is_variable_initialized(v))
        assert session.run(tf.report_uninitialized_variables()).shape == (0,)


def test_nodes_of_a_variable_are_called_after_it() -> None:
    v = tf.Variable(1.0, name="v")
    assert v.name == "v:0"
    assert v.op.name == "v"
    assert v.op.type == "Variable"
    assert v.initializer.name == "v/Assign"
    assert v.value().name == "v/read:0"
    assert v.initial_value.name == "v/initial_value:0"
    assert v.initial_value.op.type == "Const"
    graph = tf.get_default_graph()
    assert graph.get_tensor_by_name("v:0").name == "v/read:0"
    with tf.Session() as session:
        session.run("v/Assign")
        assert session.run("v:0") == 1


def test_names_of_variables_are_unique() -> None:
    names = [tf.Variable(0.0).name for _ in range(3)]
    assert names == ["Variable:0", "Variable_1:0", "Variable_2:0"]
    assert tf.Variable(0.0, name="Variable_1").name == "Variable_1_1:0"
    with tf.name_scope("tower"):
        assert tf.Variable(0.0, name="w").name == "tower/w:0"
    with pytest.raises(ValueError, match="not a valid node name"):
        tf.Variable(0.0, name="a:b")


def test_assignments_give_the_new_value() -> None:
    v = tf.Variable([1.0, 2.0], name="v")
    add = v.assign_add([1.0, 1.0])
    sub = tf.assign_sub(v, [0.5, 0.5])
    to = tf.placeholder(tf.float32, [2])
    with started() as session:
        assert session.run(add).tolist() == [2, 3]
        assert session.run(sub).tolist() == [1.5, 2.5]
        assert session.run(v.assign(to), {to: [7.0, 8.0]}).tolist() == [7, 8]
        assert session.run(add.op) is None
        assert session.run(v).tolist() == [8, 9]
        v.load([0.0, 0.5], session)
        assert session.run(v).tolist() == [0, 0.5]


def test_rows_are_scattered() -> None:
    v = tf.Variable(np.zeros((3, 2), np.float32))
    add = tf.scatter_add(v, [0, 2, 0], np.ones((3, 2), np.float32))
    sub = v.scatter_sub(sr.IndexedSlices(np.ones((1, 2), np.float32), [1]))
    update = tf.scatter_update(v, [2], [[5.0, 6.0]])
    with started() as session:
        assert session.run(add).tolist() == [[2, 2], [0, 0], [1, 1]]
        assert session.run(sub).tolist() == [[2, 2], [-1, -1], [1, 1]]
        assert session.run(update).tolist() == [[2, 2], [-1, -1], [5, 6]]
        with pytest.raises(errors.InvalidArgumentError, match="index 3"):
            session.run(tf.scatter_add(v, [3], [[1.0, 1.0]]))
        assert session.run(v).tolist() == [[2, 2], [-1, -1], [5, 6]]


def test_an_assignment_is_waited_for_and_waits() -> None:
    v = tf.Variable(1.0)
    with tf.control_dependencies([v.assign_add(1.0)]):
        after = v.value() * 10.0
        plain = v + 0.0
        with tf.control_dependencies(None):
            again = v.assign_add(5.0)
    with tf.control_dependencies([after]):
        done = tf.no_op()
    with started() as session:
        assert session.run(after) == 20
        assert session.run(plain) == 3
        assert session.run(again) == 8
        assert session.run(done) is None
        assert session.run(v) == 9


def test_values_that_do_not_fit_are_refused() -> None:
    v = tf.Variable([1.0, 2.0], name="v")
    with pytest.raises(errors.InvalidArgumentError, match="'v' has shape"):
        v.assign([1.0, 2.0, 3.0])
    with pytest.raises(errors.InvalidArgumentError, match="float32"):
        v.assign(tf.constant([1, 2]))
    with pytest.raises(ValueError, match="must be specified"):
        tf.Variable()
    x = tf.placeholder(tf.float32, [None])
    with pytest.raises(ValueError, match="must have a shape specified"):
        tf.Variable(x)
    loose = tf.Variable(x, validate_shape=False)
    with tf.Session() as session:
        session.run(loose.initializer, {x: [1.0, 2.0, 3.0]})
        assert session.run(loose).tolist() == [1, 2, 3]
        session.run(loose.assign(tf.zeros([2, 2])))
        assert session.run(loose).shape == (2, 2)
        y = tf.placeholder(tf.float32, None)
        session.run(v.initializer)
        with pytest.raises(errors.InvalidArgumentError, match="variable 'v'"):
            session.run(v.assign(y), {y: [1.0]})
        changed = tf.assign(v, y, validate_shape=False)
        session.run(changed, {y: [[1.0]]})


@pytest.mark.parametrize("dtype", ["int64", "bool", "string", "float16", "bfloat16", "float64"])
def test_variables_have_any_dtype(dtype: str) -> None:
    first: Any = {"bool": [True, False], "string": ["a", "bc"]}.get(dtype, [1, 2])
    second: Any = {"bool": [False, False], "string": ["d", ""]}.get(dtype, [3, 4])
    v = tf.Variable(first, dtype=dtype)
    shown = v.value() if dtype != "bfloat16" else tf.cast(v, "float32")
    set_ = v.assign(second)
    with started() as session:
        before = session.run(shown)
        session.run(set_.op)
        after = session.run(shown)
        encoded = [[x.encode() for x in y] if dtype == "string" else y for y in (first, second)]
        assert [before.tolist(), after.tolist()] == encoded


def test_what_was_read_does_not_change() -> None:
    v = tf.Variable([1.0, 2.0])
    add = v.assign_add([1.0, 1.0])
    with started() as session:
        before = session.run(v)
        session.run(add)
        assert before.tolist() == [1, 2]


def test_sessions_have_variables_of_their_own() -> None:
    v = tf.Variable(1.0)
    add = v.assign_add(1.0)
    with started() as one, started() as two:
        one.run(add)
        assert one.run(v) == 2
        assert two.run(v) == 1
    with tf.Session() as session, pytest.raises(errors.FailedPreconditionError):
        session.run(v)


def test_a_function_makes_the_initial_value_anew() -> None:
    v = tf.Variable(lambda: tf.random.normal([4]), name="v")
    assert v.initial_value.op.name.startswith("v/Initializer/")
    with tf.Session() as session:
        session.run(v.initializer)
        first = session.run(v)
        session.run(v.initializer)
        assert first.tolist() != session.run(v).tolist()


def test_initial_values_may_depend_on_other_variables() -> None:
    a = tf.Variable(tf.random_normal([3]), name="a")
    b = tf.Variable(a * 2.0, name="b")
    c = tf.Variable(tf.reduce_sum(tf.stack([a + b, b])), name="c")
    d = tf.Variable(c, name="d")
    with started() as session:
        values = session.run([a, b, c, d])
        np.testing.assert_allclose(values[1], values[0] * 2, rtol=1e-6)
        np.testing.assert_allclose(values[2], values[0].sum() * 5, rtol=1e-5)
        assert values[3] == values[2]
        session.run(a.assign([0.0, 0.0, 0.0]))
        session.run(b.initializer)
        assert session.run(b).tolist() == [0, 0, 0]


def test_collections_hold_variables() -> None:
    a = tf.Variable(1.0, name="a")
    b = tf.Variable(2.0, trainable=False, name="b")
    c = tf.Variable(3.0, trainable=False, collections=[tf.GraphKeys.LOCAL_VARIABLES], name="c")
    assert tf.global_variables() == [a, b]
    assert tf.trainable_variables() == [a]
    assert tf.local_variables() == [c]
    assert tf.global_variables(scope="b") == [b]
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        assert session.run([a, b, c]) == [1, 2, 3]
        session.run(tf.variables_initializer([]))


def test_variables_made_in_branches_and_waits_are_lifted_out() -> None:
    seen = []

    def branch() -> Any:
        seen.append(tf.Variable(5.0, name="inner"))
        return seen[0] + 1.0

    with tf.control_dependencies([tf.debugging.Assert(tf.constant(False), [])]):
        v = tf.Variable(1.0)
    y = tf.cond(tf.constant(True), branch, lambda: tf.constant(0.0))
    assert [op.name for op in v.initializer.control_inputs] == []
    assert tf.global_variables() == [v, seen[0]]
    with started() as session:
        assert session.run([v, y]) == [1, 6]


def test_branches_assign_and_read_what_they_assigned() -> None:
    v = tf.Variable(1.0)
    p = tf.placeholder(tf.bool_, [])

    def yes() -> Any:
        v.assign_add(10.0)
        before = v.read_value()
        v.assign(before * 2.0)
        return v + 0.0

    y = tf.cond(p, yes, lambda: v * 1.0)
    with started() as session:
        assert session.run(y, {p: False}) == 1
        assert session.run(y, {p: True}) == 22
        assert session.run(v) == 22


def test_branches_may_do_without_giving() -> None:
    v = tf.Variable(1.0)
    p = tf.placeholder(tf.bool_, [])
    done = tf.cond(p, lambda: (tf.group(v.assign(5.0)), tf.constant(1)),
                   lambda: (tf.no_op(), tf.constant(0)))  # fmt: skip
    with started() as session:
        assert session.run(done[1], {p: False}) == 0
        assert session.run(v) == 1
        assert session.run(done[1], {p: True}) == 1
        assert session.run(v) == 5


def test_functions_of_the_process_are_used_in_graphs() -> None:
    outside = sr.Variable([1.0, 2.0])

    @sr.function
    def scaled(x: Any) -> Any:
        return x * outside

    v = tf.Variable([3.0, 4.0])
    with tf.get_default_graph().building():
        y = scaled(v)
    (grad,) = tf.gradients(tf.reduce_sum(y), [v])
    with started() as session:
        assert session.run(y).tolist() == [3, 8]
        assert session.run(grad).tolist() == [1, 2]


def test_loops_assign() -> None:
    v = tf.Variable(0, name="v", dtype="int32")

    def body(i: Any) -> Any:
        v.assign_add(i)
        return i + 1

    last = tf.while_loop(lambda i: i < 5, body, [tf.constant(0)])
    with started() as session:
        session.run(last)
        assert session.run(v) == 10


def test_variables_of_the_process_are_fed() -> None:
    outside = sr.Variable([1.0, 2.0], name="outside")
    y = tf.reduce_sum(outside) * 2.0
    with tf.Session() as session:
        assert session.run(y) == 6
        outside.assign([2.0, 2.0])
        assert session.run(y) == 8
    with pytest.raises(errors.FailedPreconditionError, match="one of this process"):
        tf.get_default_graph().assign_variable(outside, y)


# --- Gradients and optimizers.


def test_gradients_are_summed_over_all_reads() -> None:
    v = tf.Variable([1.0, 2.0])
    with tf.control_dependencies([tf.no_op()]):
        again = v.read_value()
    y = tf.reduce_sum(v * v) + tf.reduce_sum(again * 3.0)
    (grad,) = tf.gradients(y, [v])
    (none,) = tf.gradients(tf.constant(1.0) * 2.0, [v])
    (zeros,) = tf.gradients(tf.constant(1.0) * 2.0, [v], unconnected_gradients="zero")
    assert none is None
    with started() as session:
        assert session.run(grad).tolist() == [5, 7]
        assert session.run(zeros).tolist() == [0, 0]


def test_gradients_of_lookups_stay_rows() -> None:
    table = tf.Variable(np.ones((5, 2), np.float32))
    y = tf.reduce_sum(tf.gather(table, [1, 3])) + tf.reduce_sum(tf.gather(table, [3]) * 2.0)
    (grad,) = tf.gradients(y, [table])
    assert isinstance(grad, tf.IndexedSlices)
    with started() as session:
        values, indices = session.run(grad)
        total = np.zeros((5, 2))
        np.add.at(total, indices, values)
        assert total[:, 0].tolist() == [0, 1, 0, 3, 0]


RULES: list[tuple[Any, Any]] = [
    (lambda: tf.train.GradientDescentOptimizer(0.1), sr.optimizers.SGD(0.1)),
    (lambda: tf.train.MomentumOptimizer(0.1, 0.9), sr.optimizers.Momentum(0.1, 0.9)),
    (
        lambda: tf.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
        sr.optimizers.Momentum(0.1, 0.9, nesterov=True),
    ),
    (lambda: tf.train.AdagradOptimizer(0.1), sr.optimizers.Adagrad(0.1, 0.1, 0.0)),
    (lambda: tf.train.AdamOptimizer(0.1), sr.optimizers.Adam(0.1)),
    (lambda: tf.train.FtrlOptimizer(0.1), sr.optimizers.Ftrl(0.1)),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("make, like", RULES)
def test_optimizers_update_as_those_of_the_process(
    make: Any, like: Any, rows: bool, dtype: str
) -> None:
    first = np.arange(8, dtype=dtype).reshape(4, 2) / 4
    indices, grads = [2, 0, 2], np.array([[1, 2], [3, 4], [5, 6]], dtype) / 3
    dense = np.sin(np.arange(8)).reshape(4, 2).astype(dtype)
    v = tf.Variable(first)
    change: Any = tf.IndexedSlices(grads, indices, (4, 2)) if rows else tf.constant(dense)
    train = make().apply_gradients([(change, v)])
    other = sr.Variable(first)
    with started() as session:
        for _ in range(3):
            session.run(train)
            given: Any = sr.IndexedSlices(grads, indices, (4, 2)) if rows else sr.constant(dense)
            like.__class__.apply_gradients(like, [(given, other)])
        np.testing.assert_allclose(session.run(v), other.numpy(), rtol=1e-6)
        like.__dict__.pop("_local", None)


@pytest.mark.parametrize("make, like", RULES)
def test_slots_in_the_rows_of_a_table_are_variables_as_others(make: Any, like: Any) -> None:
    # Larger than what stays an array of its own.
    first = np.sin(np.arange(300 * 8, dtype=np.float32)).reshape(300, 8)
    table = tf.get_variable("table", initializer=first)
    ids = tf.placeholder(tf.int64, [None])
    rows = tf.nn.embedding_lookup(table, ids)
    optimizer = make()
    train = optimizer.minimize(tf.reduce_sum(rows * rows))
    slots = [optimizer.get_slot(table, name) for name in optimizer.get_slot_names()]
    other = sr.Variable(first)
    with started() as session:
        for step in range(4):
            picked = np.array([7, 299, 7, step])
            held = session.run(table)
            before = held.copy()
            looked_up = session.run([rows, train], {ids: picked})[0]
            np.testing.assert_array_equal(looked_up, before[picked])
            np.testing.assert_array_equal(held, before)
            grads = sr.IndexedSlices(2 * looked_up, picked, (300, 8))
            like.__class__.apply_gradients(like, [(grads, other)])
            np.testing.assert_allclose(session.run(table), other.numpy(), rtol=1e-6)
        whole = session.run(table)
        for slot in slots:
            value = np.cos(session.run(slot)) + 2
            session.run(slot.assign(value))
            np.testing.assert_array_equal(session.run(slot), value)
            np.testing.assert_array_equal(session.run(tf.gather(slot, [299, 0])), value[[299, 0]])
        np.testing.assert_array_equal(session.run(table), whole)
        session.run(table.assign(first))
        np.testing.assert_array_equal(session.run(table.read_value()), first)
        session.run(train, {ids: [3]})
        changed = np.flatnonzero((session.run(table) != first).any(axis=1))
        assert changed.tolist() == [3]
        like.__dict__.pop("_local", None)


def test_slots_are_variables_beside_theirs() -> None:
    with tf.device("/job:ps/task:1"):
        w = tf.Variable([1.0, 2.0], name="w")
    optimizer = tf.train.AdamOptimizer(0.1)
    step = tf.train.get_or_create_global_step()
    with tf.device("/job:worker"):
        train = optimizer.minimize(tf.reduce_sum(w * w), global_step=step)
    names = [v.op.name for v in tf.global_variables()]
    assert names == ["w", "global_step", "w/Adam", "w/Adam_1", "w/Adam/step"]
    assert optimizer.get_slot(w, "m").device == w.device
    assert optimizer.get_slot(w, "m").op.colocation_groups() == [b"loc:@w"]
    assert optimizer.get_slot_names() == ["m", "v"]
    assert train.name == "Adam"
    update = tf.get_default_graph().get_operation_by_name("Adam/update_w/VariableUpdateDense")
    assert update.device == w.device
    assert update.colocation_groups() == [b"loc:@w"]
    assert w not in optimizer.variables()
    with started() as session:
        for _ in range(3):
            session.run(train)
        assert tf.train.global_step(session, step) == 3


def test_the_learning_rate_may_be_a_value() -> None:
    rate = tf.placeholder(tf.float32, [])
    w = tf.Variable([1.0, 1.0])
    train = tf.train.GradientDescentOptimizer(rate).minimize(tf.reduce_sum(w))
    with started() as session:
        session.run(train, {rate: 0.5})
        session.run(train, {rate: 0.25})
        assert session.run(w).tolist() == [0.25, 0.25]


def test_the_step_is_counted_after_the_updates() -> None:
    w = tf.Variable(4.0)
    step = tf.train.create_global_step()
    with pytest.raises(ValueError, match="already exists"):
        tf.train.create_global_step()
    assert tf.train.get_global_step() is step
    train = tf.train.GradientDescentOptimizer(0.5).minimize(w * w, global_step=step)
    with tf.control_dependencies([train]):
        after = w.read_value()
    with started() as session:
        assert session.run([after, "global_step:0"])[0] == 0
        assert session.run(step) == 1
    with pytest.raises(ValueError, match="No gradients provided"):
        tf.train.GradientDescentOptimizer(0.5).minimize(tf.constant(1.0) * 2.0, var_list=[w])


# --- get_variable.


def test_get_variable_makes_and_shares() -> None:
    with tf.variable_scope("a"):
        v = tf.get_variable("v", [2, 3])
        assert v.name == "a/v:0"
        with pytest.raises(ValueError, match="already exists, disallowed"):
            tf.get_variable("v", [2, 3])
    with tf.variable_scope("a", reuse=True):
        assert tf.get_variable("v", [2, 3]) is v
        with pytest.raises(ValueError, match="specified shape"):
            tf.get_variable("v", [3, 3])
        with pytest.raises(ValueError, match="specified dtype"):
            tf.get_variable("v", [2, 3], "float64")
        with pytest.raises(ValueError, match="does not exist"):
            tf.get_variable("w", [1])
    with tf.variable_scope("a", reuse=tf.AUTO_REUSE):
        assert tf.get_variable("v") is v
        w = tf.get_variable("w", initializer=[1.0, 2.0])
        assert tf.get_variable("w") is w
    with started() as session:
        assert session.run(w).tolist() == [1, 2]
        assert np.abs(session.run(v)).max() <= np.sqrt(6 / 5)


def test_scopes_of_variables_nest() -> None:
    with tf.variable_scope("a", initializer=tf.ones_initializer()) as outer:
        with tf.variable_scope("b"):
            v = tf.get_variable("v", [2])
            x = tf.constant(1.0, name="x") if False else tf.no_op(name="x")
        outer.reuse_variables()
        with tf.variable_scope("b"):
            assert tf.get_variable_scope().reuse
            assert tf.get_variable("v") is v
    assert v.name == "a/b/v:0"
    assert x.name == "a/b/x"
    with tf.variable_scope("c"), tf.variable_scope(outer, reuse=True):
        assert tf.get_variable("b/v") is v
    with tf.variable_scope(None, "d"):
        assert tf.get_variable("v", [1]).name == "d/v:0"
    with tf.variable_scope(None, "d"):
        assert tf.get_variable("v", [1]).name == "d_1/v:0"
    with started() as session:
        assert session.run(v).tolist() == [1, 1]


@pytest.mark.parametrize(
    "make, holds",
    [
        (tf.zeros_initializer, lambda x: (x == 0).all()),
        (tf.ones_initializer(), lambda x: (x == 1).all()),
        (tf.constant_initializer(3), lambda x: (x == 3).all()),
        (tf.random_uniform_initializer(1.0, 2.0), lambda x: ((x >= 1) & (x < 2)).all()),
        (tf.random_normal_initializer(5.0, 0.1), lambda x: abs(x.mean() - 5) < 0.1),
        (tf.truncated_normal_initializer(stddev=1.0), lambda x: np.abs(x).max() <= 2),
        (tf.glorot_normal_initializer(), lambda x: 0 < x.std() < 1),
    ],
)
def test_initializers_make_what_they_say(make: Any, holds: Any) -> None:
    v = tf.get_variable("v", [20, 30], initializer=make)
    with started() as session:
        assert holds(session.run(v))


def test_regularizers_are_collected() -> None:
    tf.get_variable("v", initializer=[3.0], regularizer=lambda v: tf.reduce_sum(v * v))
    (loss,) = tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)
    with started() as session:
        assert session.run(loss) == 9
