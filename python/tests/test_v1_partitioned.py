"""Variables of sidereal.v1 that are cut into parts: partitioners, parts, look-ups, updates, and
parts on the lanes of servers."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from session_servers import PROGRAM, addresses

import sidereal as sr
import sidereal.v1 as tf
from sidereal.launch import PROTOCOLS

pytestmark = pytest.mark.usefixtures("fresh_graph")


def started() -> tf.Session:
    session = tf.Session()
    session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
    return session


def numbers(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


# --- Partitioners.


@pytest.mark.parametrize(
    "partitioner, shape, dtype, parts",
    [
        (tf.fixed_size_partitioner(2), (10, 3), "float32", [2, 1]),
        (tf.fixed_size_partitioner(20), (10, 3), "float32", [10, 1]),
        (tf.fixed_size_partitioner(2, axis=1), (10, 3), "float32", [1, 2]),
        (tf.min_max_variable_partitioner(2, min_slice_size=4), (6, 1), "float32", [2, 1]),
        (tf.min_max_variable_partitioner(10, min_slice_size=4), (6, 1), "float32", [6, 1]),
        (tf.min_max_variable_partitioner(100), (1024, 1024), "float32", [16, 1]),
        (tf.min_max_variable_partitioner(100), (1024, 1024), "float64", [32, 1]),
        (tf.min_max_variable_partitioner(100), (1024, 1024), "string", [64, 1]),
        (tf.min_max_variable_partitioner(100), (1, 1), "float32", [1, 1]),
        (tf.variable_axis_size_partitioner(4), (6, 1), "float32", [6, 1]),
        (tf.variable_axis_size_partitioner(4, max_shards=2), (6, 1), "float32", [2, 1]),
        (tf.variable_axis_size_partitioner(1024), (6, 1), "float32", [1, 1]),
        (tf.variable_axis_size_partitioner(64), (4, 8), "float32", [2, 1]),
        (tf.variable_axis_size_partitioner(63), (4, 8), "float32", [4, 1]),
        (tf.variable_axis_size_partitioner(64, axis=1), (4, 8), "float32", [1, 2]),
        (tf.variable_axis_size_partitioner(64, bytes_per_string_element=8), (4, 4), "string",
         [2, 1]),
    ],
)  # fmt: skip
def test_partitioners_count_parts(
    partitioner: Any, shape: tuple[int, ...], dtype: str, parts: list[int]
) -> None:
    assert partitioner(shape=shape, dtype=dtype) == parts


def test_partitioners_refuse_what_makes_no_sense() -> None:
    wrong: list[Callable[[], Any]] = [
        lambda: tf.fixed_size_partitioner(0),
        lambda: tf.variable_axis_size_partitioner(0),
        lambda: tf.variable_axis_size_partitioner(8, bytes_per_string_element=0),
        lambda: tf.variable_axis_size_partitioner(8, max_shards=0),
        lambda: tf.min_max_variable_partitioner(0),
        lambda: tf.min_max_variable_partitioner(2, min_slice_size=0),
        lambda: tf.fixed_size_partitioner(2, axis=1)(shape=(4,), dtype="float32"),
        lambda: tf.min_max_variable_partitioner(2, axis=1)(shape=(4,), dtype="float32"),
        lambda: tf.variable_axis_size_partitioner(2)(shape=(None, 2), dtype="float32"),
    ]
    for make in wrong:
        with pytest.raises(ValueError):
            make()


# --- Parts.


def test_a_partitioner_makes_variables_of_parts() -> None:
    with tf.variable_scope("a"):
        w = tf.get_variable("w", [13, 2], partitioner=tf.fixed_size_partitioner(5))
    assert isinstance(w, tf.PartitionedVariable)
    assert (w.name, w.shape, w.dtype, w.ndim) == ("a/w", (13, 2), tf.float32, 2)
    assert w.get_shape() == (13, 2)
    parts = list(w)
    assert len(w) == len(parts) == 5
    assert [part.name for part in parts] == [f"a/w/part_{i}:0" for i in range(5)]
    assert [part.shape for part in parts] == [(3, 2), (3, 2), (3, 2), (2, 2), (2, 2)]
    infos = [part._get_save_slice_info() for part in parts]
    assert [info.full_name for info in infos] == ["a/w"] * 5
    assert [info.var_offset for info in infos] == [[0, 0], [3, 0], [6, 0], [9, 0], [11, 0]]
    assert infos[3].spec == "13 2 9,2:0,2"
    assert tf.global_variables() == tf.trainable_variables() == parts
    assert "a/w" in repr(w) and "parts=5" in repr(w)
    with pytest.raises(TypeError, match="truth"):
        bool(w)
    whole = w.as_tensor()
    assert whole.name == "a/w:0"
    with started() as session:
        values = session.run(parts)
        together = np.concatenate(values)
        assert np.abs(together).max() <= np.sqrt(6 / 15)
        assert len(np.unique(together)) == together.size
        for got in session.run([whole, w, tf.convert_to_tensor(w), w + 0.0, 1.0 * w]):
            np.testing.assert_array_equal(got, together)
        before = tf.get_default_graph().version
        session.run(w)
        assert tf.get_default_graph().version == before


def test_a_variable_is_cut_along_any_dimension_and_one_part_is_the_variable() -> None:
    first = numbers(2, 5)
    w = tf.get_variable("w", initializer=first, partitioner=tf.fixed_size_partitioner(3, axis=1))
    one = tf.get_variable("one", initializer=first, partitioner=tf.fixed_size_partitioner(1))
    assert [part.shape for part in w] == [(2, 2), (2, 2), (2, 1)]
    assert [part.name for part in one] == ["one/part_0:0"]
    assert one.as_tensor().name == "one:0"
    with pytest.raises(ValueError, match="cut along axis 1"):
        tf.nn.embedding_lookup(w, [0])
    with started() as session:
        for value in session.run([w, one]):
            np.testing.assert_array_equal(value, first)


def test_scopes_hand_their_partitioner_on() -> None:
    with tf.variable_scope("a", partitioner=tf.fixed_size_partitioner(2)) as outer:
        with tf.variable_scope("b"):
            assert len(tf.get_variable("v", [4])) == 2
            assert len(tf.get_variable("own", [4], partitioner=tf.fixed_size_partitioner(4))) == 4
            assert isinstance(tf.get_variable("scalar", []), tf.Variable)
        outer.set_partitioner(None)
        assert isinstance(tf.get_variable("v", [4]), tf.Variable)


def test_custom_getters_see_the_partitioner() -> None:
    seen = []

    def getter(get: Any, name: str, **arguments: Any) -> Any:
        seen.append(arguments["partitioner"])
        return get(name, **arguments)

    cut = tf.fixed_size_partitioner(2)
    with tf.variable_scope("a", custom_getter=getter, partitioner=cut):
        assert len(tf.get_variable("v", [4])) == 2
    assert seen == [cut]


def test_local_variables_are_local() -> None:
    v = tf.get_local_variable("v", [4], partitioner=tf.fixed_size_partitioner(2))
    w = tf.get_local_variable("w", [4], collections=["mine"], initializer=tf.ones_initializer())
    assert tf.local_variables() == [*v, w]
    assert tf.get_collection("mine") == [w]
    assert tf.global_variables() == tf.trainable_variables() == []
    with started() as session:
        assert session.run(w).tolist() == [1] * 4


def test_parts_go_round_robin_over_parameter_servers() -> None:
    with tf.device(tf.train.replica_device_setter(ps_tasks=3)):
        tf.get_variable("before", [2])
        w = tf.get_variable("w", [8, 2], partitioner=tf.fixed_size_partitioner(4))
        optimizer = tf.train.AdagradOptimizer(0.1)
        optimizer.minimize(tf.reduce_sum(w * w))
    assert [part.device for part in w] == [f"/job:ps/task:{i}" for i in (1, 2, 0, 1)]
    for part in w:
        assert optimizer.get_slot(part, "accumulator").device == part.device


# --- Initial values.


def test_initial_values_are_cut() -> None:
    first = numbers(5, 2)
    cut = tf.fixed_size_partitioner(3)
    made = [
        tf.get_variable("array", initializer=first, partitioner=cut),
        tf.get_variable("list", initializer=first.tolist(), partitioner=cut),
        tf.get_variable("tensor", initializer=tf.constant(first) * 1.0, partitioner=cut),
        tf.get_variable("shape", [5, 2], initializer=first, partitioner=cut),
        tf.get_variable("constant", [5, 2], initializer=tf.constant_initializer(first),
                        partitioner=cut),
    ]  # fmt: skip
    doubled = tf.get_variable("doubled", initializer=made[0].as_tensor() * 2.0, partitioner=cut)
    assert doubled.dtype == tf.float32
    whole_numbers = tf.get_variable("int", initializer=[1, 2, 3], partitioner=cut)
    assert whole_numbers.dtype == tf.int32
    with started() as session:
        for value in session.run(made):
            np.testing.assert_array_equal(value, first)
        np.testing.assert_array_equal(session.run(doubled), 2 * first)
        assert session.run(whole_numbers).tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match="not compatible"):
        tf.get_variable("w", [4, 2], initializer=first, partitioner=cut)


def test_initializers_are_told_which_part_they_make() -> None:
    told = []

    def initializer(shape: Any, dtype: Any, partition_info: Any) -> Any:
        told.append(partition_info)
        assert partition_info.full_shape == [5, 2]
        assert partition_info.single_slice_dim(shape) == 0
        return tf.fill(shape, float(partition_info.single_offset(shape)))

    w = tf.get_variable("w", [5, 2], initializer=initializer,
                        partitioner=tf.fixed_size_partitioner(2))  # fmt: skip
    # One that is not asked is not told.
    tf.get_variable("v", [5, 2], initializer=lambda shape, dtype: tf.zeros(shape, dtype),
                    partitioner=tf.fixed_size_partitioner(2))  # fmt: skip
    assert [info.var_offset for info in told] == [[0, 0], [3, 0]]
    with started() as session:
        assert session.run(w)[:, 0].tolist() == [0, 0, 0, 3, 3]
    with pytest.raises(ValueError, match="would exceed"):
        told[1].single_slice_dim([3, 2])
    with pytest.raises(ValueError, match="could be either"):
        told[0].single_slice_dim([3, 1])
    with pytest.raises(ValueError, match="equal length"):
        told[0].single_slice_dim([3])
    assert told[0].single_slice_dim([5, 2]) is None
    assert told[0].single_offset([5, 2]) == 0


def test_random_parts_differ_and_glorot_sees_the_whole_variable() -> None:
    cut = tf.fixed_size_partitioner(4)
    w = tf.get_variable("w", [8, 3], initializer=tf.random_normal_initializer(seed=7),
                        partitioner=cut)  # fmt: skip
    v = tf.get_variable("v", [400, 100], partitioner=cut)
    with started() as session:
        parts = session.run(list(w))
        assert all((parts[0] != part).any() for part in parts[1:])
        limit = np.sqrt(6 / 500)
        assert 0.98 * limit < np.abs(session.run(v)).max() <= limit


# --- Reuse.


def test_parts_are_shared() -> None:
    cut = tf.fixed_size_partitioner(2)
    with tf.variable_scope("a"):
        w = tf.get_variable("w", [4, 2], partitioner=cut)
        with pytest.raises(ValueError, match="already exists, disallowed"):
            tf.get_variable("w", [4, 2], partitioner=cut)
    with tf.variable_scope("a", reuse=True):
        assert tf.get_variable("w", [4, 2], partitioner=cut) is w
        assert tf.get_variable("w") is w
        assert tf.get_variable("w/part_1") is list(w)[1]
        wrong: list[tuple[str, Callable[[], Any]]] = [
            ("specified shape", lambda: tf.get_variable("w", [5, 2], partitioner=cut)),
            ("specified shape", lambda: tf.get_variable("w", [5, 2])),
            ("specified dtype", lambda: tf.get_variable("w", [4, 2], tf.int32, partitioner=cut)),
            ("specified partitions",
             lambda: tf.get_variable("w", [4, 2], partitioner=tf.fixed_size_partitioner(4))),
            ("does not exist", lambda: tf.get_variable("v", [4, 2], partitioner=cut)),
        ]  # fmt: skip
        for message, get in wrong:
            with pytest.raises(ValueError, match=message):
                get()
    with tf.variable_scope("a", reuse=tf.AUTO_REUSE):
        assert tf.get_variable("w", [4, 2], partitioner=cut) is w
        v = tf.get_variable("v", [4, 2], partitioner=cut)
        assert tf.get_variable("v", [4, 2], partitioner=cut) is v
        with pytest.raises(ValueError, match="No partitioner was provided"):
            tf.get_variable("v", [4, 2])
        whole = tf.get_variable("whole", [4])
        with pytest.raises(ValueError, match="an unpartitioned version"):
            tf.get_variable("whole", [4], partitioner=cut)
        assert tf.get_variable("whole") is whole


def test_parts_that_are_there_must_be_those_of_the_partitioner() -> None:
    parts = [tf.get_variable(f"w/part_{i}", [2]) for i in range(3)]
    with tf.variable_scope("", reuse=tf.AUTO_REUSE):
        with pytest.raises(ValueError, match="so was the extra shard w/part_2"):
            tf.get_variable("w", [4], partitioner=tf.fixed_size_partitioner(2))
        with pytest.raises(ValueError, match="w/part_3 was not"):
            tf.get_variable("w", [8], partitioner=tf.fixed_size_partitioner(4))
        made = tf.get_variable("w", [6], partitioner=tf.fixed_size_partitioner(3))
    assert list(made) == parts


@pytest.mark.parametrize(
    "partitioner, shape, message",
    [
        (3, [4], "must be callable"),
        (lambda shape, dtype: 2, [4], "must return a sequence"),
        (lambda shape, dtype: [2, 1], [4], "does not match the Variable's rank"),
        (lambda shape, dtype: [0], [4], "zero partitions"),
        (lambda shape, dtype: [2, 2], [4, 4], "along one dimension"),
        (lambda shape, dtype: [2, 1], [None, 4], "fully defined"),
        (lambda shape, dtype: [2, 1], None, "fully defined"),
    ],
)
def test_partitioners_that_are_wrong_are_refused(
    partitioner: Any, shape: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        tf.get_variable("w", shape, partitioner=partitioner)
    with pytest.raises(ValueError, match="rank at least 1"):
        tf.get_variable("s", initializer=1.0, partitioner=tf.fixed_size_partitioner(2))


# --- Changing.


def test_assignments_give_each_part_its_part() -> None:
    w = tf.get_variable("w", [5, 2], initializer=tf.zeros_initializer(),
                        partitioner=tf.fixed_size_partitioner(3))  # fmt: skip
    other = tf.get_variable("o", initializer=10 * numbers(5, 2),
                            partitioner=tf.fixed_size_partitioner(3))  # fmt: skip
    to = tf.placeholder(tf.float32, [5, 2])
    assign, add, sub = w.assign(to), w.assign_add(to), w.assign_sub(numbers(5, 2))
    by_part = w.assign([numbers(2, 2), numbers(2, 2), numbers(1, 2)])
    from_other = w.assign(other, read_value=False)
    assert [op.type for op in from_other] == ["VariableAssign"] * 3
    assert len(assign) == 3
    value = numbers(5, 2)
    with started() as session:
        np.testing.assert_array_equal(np.concatenate(session.run(assign, {to: value})), value)
        session.run(add, {to: value})
        np.testing.assert_array_equal(session.run(w), 2 * value)
        session.run(sub)
        np.testing.assert_array_equal(session.run(w), value)
        session.run(by_part)
        assert session.run(w)[:, 0].tolist() == [0, 2, 0, 2, 0]
        session.run(from_other)
        np.testing.assert_array_equal(session.run(w), 10 * value)
    with pytest.raises(ValueError, match="2 values for the 3 parts"):
        w.assign([numbers(2, 2), numbers(3, 2)])


def test_reads_under_control_dependencies_and_in_branches_see_what_was_done() -> None:
    w = tf.get_variable("w", [4], initializer=tf.zeros_initializer(),
                        partitioner=tf.fixed_size_partitioner(2))  # fmt: skip
    with tf.control_dependencies(w.assign_add(numbers(4) + 1)):
        after = w.as_tensor()
    flag = tf.placeholder(tf.bool, [])
    chosen = tf.cond(flag, lambda: tf.reduce_sum(w), lambda: -tf.reduce_sum(w))
    with started() as session:
        assert session.run(after).tolist() == [1, 2, 3, 4]
        assert session.run(chosen, {flag: True}) == 10
        assert session.run(chosen, {flag: False}) == -10


# --- Look-ups.


def laid_out(table: np.ndarray, parts: int, strategy: str) -> list[np.ndarray]:
    if strategy == "div":
        return np.array_split(table, parts)
    return [table[i::parts] for i in range(parts)]


@pytest.mark.parametrize("strategy", ["mod", "div"])
@pytest.mark.parametrize("rows, parts", [(13, 5), (12, 4), (3, 3), (7, 1), (5, 4)])
def test_rows_of_parts_are_looked_up(strategy: str, rows: int, parts: int) -> None:
    table = numbers(rows, 2)
    tables = [tf.Variable(part) for part in laid_out(table, parts, strategy)]
    rng = np.random.default_rng(rows)
    with started() as session:
        for shape in ((), (6,), (0,), (2, 3), (2, 0), (1, 2, 3)):
            for kind in ("int32", "int64"):
                ids = rng.integers(0, rows, shape).astype(kind)
                got = session.run(tf.nn.embedding_lookup(tables, ids, strategy))
                assert got.shape == (*shape, 2)
                np.testing.assert_array_equal(got, table[ids])
        fed = tf.placeholder(tf.int64, [None, 3])
        rows_of_fed = tf.nn.embedding_lookup(tables, fed, strategy, max_norm=2.0)
        assert rows_of_fed.shape == (-1, 3, 2)
        ids = rng.integers(0, rows, (4, 3))
        whole = sr.nn.embedding_lookup(table, ids, max_norm=2.0).numpy()
        assert session.run(rows_of_fed, {fed: ids}).tobytes() == whole.tobytes()
        unknown = tf.placeholder(tf.int64)
        rows_of_unknown = tf.nn.embedding_lookup(tables, unknown, strategy)
        np.testing.assert_array_equal(session.run(rows_of_unknown, {unknown: ids}), table[ids])
        for wrong in (-1, rows, 3 * rows):
            with pytest.raises(sr.errors.InvalidArgumentError):
                session.run(rows_of_fed, {fed: [[0, 0, wrong]]})


def test_parts_of_variables_are_tables() -> None:
    table = numbers(13, 2)
    w = tf.get_variable("w", initializer=table, partitioner=tf.fixed_size_partitioner(5))
    ids = np.random.default_rng(3).integers(0, 13, (4, 3))
    div = tf.nn.embedding_lookup(w, ids, partition_strategy="div")
    mod = tf.nn.embedding_lookup(w, ids)
    starts = np.array([0, 3, 6, 9, 11])
    with started() as session:
        np.testing.assert_array_equal(session.run(div), table[ids])
        np.testing.assert_array_equal(session.run(mod), table[starts[ids % 5] + ids // 5])


def test_tables_of_parts_are_looked_up_at_once_and_in_functions() -> None:
    table = numbers(13, 2)
    parts = np.array_split(table, 5)
    ids = np.array([[12, 0], [3, 3]])
    np.testing.assert_array_equal(sr.nn.embedding_lookup(parts, ids).numpy(), table[ids])
    variables = [sr.Variable(part) for part in parts]
    with sr.GradientTape() as tape:
        loss = sr.reduce_sum(sr.nn.embedding_lookup(variables, ids))
    counts = [np.asarray(grad.numpy())[:, 0] for grad in tape.gradient(loss, variables)]
    np.testing.assert_array_equal(np.concatenate(counts), np.bincount(ids.ravel(), minlength=13))

    @sr.function
    def rows(ids: Any) -> Any:
        return sr.nn.embedding_lookup(variables, ids)

    np.testing.assert_array_equal(rows(ids).numpy(), table[ids])


def test_look_ups_refuse_what_is_no_table() -> None:
    two = [numbers(2, 2), numbers(2, 2)]
    uneven = [numbers(2, 2), numbers(3, 2)]
    ids = tf.SparseTensor([[0, 0]], [1], [1, 1])
    wrong: list[tuple[str, Callable[[], Any]]] = [
        ("params must be specified", lambda: tf.nn.embedding_lookup(None, [0])),
        ("at least one param", lambda: tf.nn.embedding_lookup([], [0])),
        ("at least one param", lambda: sr.nn.embedding_lookup([], [0])),
        ("partition strategy: x", lambda: tf.nn.embedding_lookup(two, [0], "x")),
        ("no table that was cut", lambda: tf.nn.embedding_lookup(uneven, [0], "div")),
        ("params must be", lambda: tf.nn.embedding_lookup_sparse(None, ids, None)),
        ("combiner is 'max'",
         lambda: tf.nn.embedding_lookup_sparse(two, ids, None, combiner="max")),
        ("combiner is 'max'",
         lambda: tf.nn.safe_embedding_lookup_sparse(two, ids, None, combiner="max")),
    ]  # fmt: skip
    for message, look_up in wrong:
        with pytest.raises(ValueError, match=message):
            look_up()
    for of_dense in (tf.nn.embedding_lookup_sparse, tf.nn.safe_embedding_lookup_sparse):
        with pytest.raises(TypeError, match="SparseTensor"):
            of_dense(two, [0], None)
        with pytest.raises(TypeError, match="SparseTensor"):
            of_dense(two, ids, [1.0])


@pytest.mark.parametrize("strategy", ["mod", "div"])
@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("max_norm", [None, 3.0])
def test_sparse_look_ups_of_parts_are_those_of_the_whole(
    strategy: str, combiner: str, max_norm: float | None
) -> None:
    table = np.random.default_rng(1).normal(size=(13, 2)).astype("f") * 3
    tables = [tf.Variable(part) for part in laid_out(table, 5, strategy)]
    places = np.array([[0, 0], [0, 1], [1, 0], [3, 0], [3, 1], [3, 2]])
    ids = tf.SparseTensor(places, np.array([1, 12, 7, 0, 1, 1]), [5, 3])
    weights = tf.SparseTensor(places, np.array([1, 2, -1, 0.5, 3, 1], "f"), [5, 3])
    made, want = [], []
    for given in (None, weights):
        made.append(tf.nn.embedding_lookup_sparse(
            tables, ids, given, strategy, combiner=combiner, max_norm=max_norm))  # fmt: skip
        want.append(sr.nn.embedding_lookup_sparse(table, ids, given, combiner, max_norm))
        for default in (None, 12):
            made.append(tf.nn.safe_embedding_lookup_sparse(
                tables, ids, given, combiner, default, partition_strategy=strategy,
                max_norm=max_norm))  # fmt: skip
            want.append(sr.nn.safe_embedding_lookup_sparse(
                table, ids, given, combiner, default, max_norm))  # fmt: skip
    with started() as session:
        for got, value in zip(session.run(made), want):
            assert got.tobytes() == value.numpy().tobytes()


# --- Training.


def test_gradients_are_of_parts_and_stay_rows() -> None:
    w = tf.get_variable("w", [13, 2], partitioner=tf.fixed_size_partitioner(5))
    ids = np.array([12, 0, 1, 0])
    loss = tf.reduce_sum(tf.nn.embedding_lookup(w, ids, "div"))
    grads = tf.gradients(loss, list(w))
    assert all(isinstance(grad, tf.IndexedSlices) for grad in grads)
    with pytest.raises(TypeError, match="give its parts"):
        tf.gradients(loss, w)
    with started() as session:
        dense = np.concatenate(session.run([tf.convert_to_tensor(grad) for grad in grads]))
    np.testing.assert_array_equal(dense[:, 0], np.bincount(ids, minlength=13))


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: tf.train.GradientDescentOptimizer(0.1),
    "momentum": lambda: tf.train.MomentumOptimizer(0.1, 0.9),
    "adagrad": lambda: tf.train.AdagradOptimizer(0.1),
    "adam": lambda: tf.train.AdamOptimizer(0.01),
    "ftrl": lambda: tf.train.FtrlOptimizer(0.1),
    # Norms are those of the whole layer, and of rows of the table.
    "lamb": lambda: tf.train.RuleOptimizer(sr.optimizers.Lamb(0.1, weight_decay=0.1)),
    "lars": lambda: tf.train.RuleOptimizer(sr.optimizers.Lars(0.5, trust_coefficient=0.1)),
}


class Model:
    """Factors of a table, and a dense layer, each cut or whole; placed on ps tasks if there are
    some."""

    rows, dim, steps = 4100, 8, 5

    def __init__(self, parts: int, optimizer: str, ps: int = 0) -> None:
        rng = np.random.default_rng(11)
        first = rng.normal(size=(self.rows, self.dim)).astype("f")
        dense = rng.normal(size=(self.dim, 64)).astype("f")
        cut = tf.fixed_size_partitioner(parts) if parts else None
        self.graph = tf.Graph()
        setter = tf.train.replica_device_setter(ps_tasks=ps)
        with self.graph.as_default(), tf.device(setter), tf.variable_scope("", partitioner=cut):
            self.ids = tf.placeholder(tf.int64, [None, 3], name="ids")
            self.table = tf.get_variable("table", initializer=first)
            self.dense = tf.get_variable("dense", initializer=dense)
            rows = tf.nn.embedding_lookup(self.table, self.ids, "div")
            y = tf.matmul(tf.reduce_sum(rows, axis=1), tf.convert_to_tensor(self.dense))
            self.loss = tf.reduce_mean(tf.tanh(y), name="loss")
            made = OPTIMIZERS[optimizer]()
            self.train = made.minimize(self.loss, var_list=[self.table, self.dense])
            self.start = tf.global_variables_initializer()
        wholes = [list(v) if parts else [v] for v in (self.table, self.dense)]
        #: Lists of parts.
        self.variables = wholes + [
            [made.get_slot(part, name) for part in whole]
            for whole in wholes for name in made.get_slot_names()
        ]  # fmt: skip
        self.feeds = rng.integers(0, self.rows, (self.steps, 8, 3))

    def results(self, target: str = "") -> list[np.ndarray]:
        """The loss of each step, and the table, the layer and their slots after the last one."""
        with tf.Session(target, self.graph) as session:
            session.run(self.start)
            losses = [session.run([self.loss, self.train], {self.ids: ids})[0]
                      for ids in self.feeds]  # fmt: skip
            values = session.run(self.variables)
        return [np.array(losses), *map(np.concatenate, values)]


def same(got: list[np.ndarray], want: list[np.ndarray]) -> bool:
    assert [x.shape for x in got] == [x.shape for x in want]
    return all(x.tobytes() == y.tobytes() for x, y in zip(got, want))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_parts_learn_what_the_whole_learns(optimizer: str) -> None:
    whole = Model(0, optimizer).results()
    assert len(set(whole[0])) == Model.steps
    assert same(Model(4, optimizer).results(), whole)
    assert same(Model(3, optimizer).results(), whole)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("rule", ["Lamb", "Lars"])
def test_norms_are_of_the_whole_along_any_dimension_and_of_any_dtype(rule: str, dtype: str) -> None:
    first = np.random.default_rng(1).normal(size=(5, 6)).astype(dtype)
    results = []
    for parts, axis in ((1, 0), (3, 0), (2, 1)):
        with tf.Graph().as_default(), tf.Session() as session:
            cut = tf.fixed_size_partitioner(parts, axis)
            w = tf.get_variable("w", initializer=first, partitioner=cut)
            loss = tf.reduce_sum(tf.tanh(tf.convert_to_tensor(w)))
            made = tf.train.RuleOptimizer(getattr(sr.optimizers, rule)(0.5, weight_decay=0.1))
            train = made.minimize(loss, var_list=[w])
            norms = [op for op in session.graph.get_operations() if "UpdateNorms" in op.type]
            assert len(norms) == (parts if parts > 1 else 0)
            session.run(tf.global_variables_initializer())
            for _ in range(3):
                session.run(train)
            results.append(session.run(tf.convert_to_tensor(w)))
    assert np.abs(results[0] - first).max() > 1e-3
    for got in results[1:]:
        np.testing.assert_allclose(got, results[0], rtol=1e-6)


def test_slots_say_which_part_of_which_slot_they_are() -> None:
    w = tf.get_variable("w", [13, 2], partitioner=tf.fixed_size_partitioner(5))
    optimizer = tf.train.AdamOptimizer(0.1)
    optimizer.minimize(tf.reduce_sum(tf.nn.embedding_lookup(w, [1])))
    slot = optimizer.get_slot(list(w)[1], "v")
    assert slot.op.name == "w/part_1/Adam_1"
    info = slot._get_save_slice_info()
    assert (info.full_name, info.spec) == ("w/Adam_1", "13 2 3,3:0,2")
    steps = [v for v in optimizer.variables() if v.op.name.endswith("/step")]
    assert [v._get_save_slice_info() for v in steps] == [None] * 5


# --- On servers.


def calls_of_a_step(model: Model, ps: int, protocol: str, lanes: int, folder: Path) -> list[int]:
    """Calls to each lane that a step calls, by name of the lane."""
    graph, cluster = folder / "graph.txt", folder / "cluster.json"
    graph.write_text(model.graph.native.text())
    cluster.write_text(json.dumps({"ps": [f"ps{i}:1" for i in range(ps)], "worker": ["w:1"]}))
    words = [PROGRAM, "graph", "dump", graph, "--partition", protocol, "--cluster", cluster,
             "--master", "/job:worker/task:0", "--lanes", lanes, "--fetch", model.loss.name,
             "--target", model.train.name]  # fmt: skip
    text = subprocess.run([str(word) for word in words], capture_output=True, text=True,
                          check=True).stdout  # fmt: skip
    _, *places = re.split(r"^/job:ps", text, flags=re.MULTILINE)
    return [len(re.findall(r"^  round \d+, call", place, re.MULTILINE)) for place in places]


@pytest.mark.parametrize("protocol", ["star_server", "star_server_lite"])
@pytest.mark.parametrize("ps", [1, 2])
def test_a_step_is_a_pull_and_a_push_for_each_lane_with_parts(
    protocol: str, ps: int, tmp_path: Path
) -> None:
    model = Model(4 * ps, "adagrad", ps)
    assert calls_of_a_step(model, ps, protocol, 4, tmp_path) == [2] * (4 * ps)
    assert calls_of_a_step(model, ps, protocol, 1, tmp_path) == [2] * ps


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("ps", [1, 2])
def test_parts_on_lanes_learn_what_one_process_learns(protocol: str, ps: int) -> None:
    hosts = addresses(ps + 1)
    cluster = {"ps": hosts[:ps], "worker": hosts[ps:]}
    lanes = None if protocol == "grpc" else 4
    tasks = [("worker", 0), *(("ps", i) for i in range(ps))]
    servers = [tf.train.Server(cluster, job, i, protocol, lanes=lanes) for job, i in tasks]
    try:
        for optimizer in ("adagrad", "adam", "lamb", "lars"):
            whole = Model(0, optimizer).results()
            for parts in (4, 5):
                got = Model(parts, optimizer, ps).results(servers[0].target)
                assert same(got, whole), (optimizer, parts)
                tf.Session.reset(servers[0].target)
    finally:
        for server in servers:
            server.stop()
