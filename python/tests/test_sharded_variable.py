"""Variables in shards: what they are made of, read, changed, sliced and looked up, at once and
inside of functions, against NumPy on all rows and TensorFlow's own."""

from __future__ import annotations

import copy
import importlib.util
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import sidereal as sr
import sidereal.v1 as tf1
from sidereal.distribute.sharded_variable import ShardedVariable

with_tensorflow = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None,
    reason="TensorFlow is not installed; run ./dev setup --peers",
)


def numbers(*shape: int) -> np.ndarray:
    return np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)


def div(rows: int, shards: int) -> list[int]:
    """Rows of each of so many shards."""
    return [len(part) for part in np.array_split(np.arange(rows), shards)]


def cut(whole: np.ndarray, sizes: Sequence[int]) -> list[np.ndarray]:
    return np.split(whole, np.cumsum(sizes)[:-1])


def sharded(whole: np.ndarray, *sizes: int, name: str = "table") -> ShardedVariable:
    return ShardedVariable([sr.Variable(part) for part in cut(whole, sizes)], name)


def at_once(compute: Callable[[], Any]) -> Any:
    return compute()


def in_a_function(compute: Callable[[], Any]) -> Any:
    return sr.function(compute)()


both_ways = pytest.mark.parametrize("run", [at_once, in_a_function])


@pytest.fixture
def no_dense_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: ShardedVariable) -> Any:
        raise TypeError("the whole variable is read")

    monkeypatch.setattr(ShardedVariable, "_as_tensor", refuse)


# --- What it is made of.


def test_a_list_of_variables_is_needed() -> None:
    v = sr.Variable([1.0])
    for wrong in ([], v, None, [[1.0]], [v, sr.constant([1.0])]):
        with pytest.raises(TypeError, match="list of Variables"):
            ShardedVariable(wrong)  # type: ignore[arg-type]


def test_shards_have_one_dtype_and_one_shape_of_rows() -> None:
    with pytest.raises(ValueError, match="one dtype"):
        ShardedVariable([sr.Variable([1.0]), sr.Variable([1])])
    with pytest.raises(ValueError, match="same dimensions but the first"):
        ShardedVariable([sr.Variable(numbers(1, 2)), sr.Variable(numbers(1, 3))])
    with pytest.raises(ValueError, match="same dimensions but the first"):
        ShardedVariable([sr.Variable(1.0)])


def test_a_variable_is_a_shard_of_one_variable_only() -> None:
    v, other = sr.Variable([1.0]), sr.Variable([2.0])
    ShardedVariable([v, other])
    with pytest.raises(ValueError, match="part of another variable"):
        ShardedVariable([v, sr.Variable([2.0])])
    twice = sr.Variable([1.0])
    with pytest.raises(ValueError, match="several shards"):
        ShardedVariable([twice, twice])


def test_it_knows_its_shape_dtype_name_and_shards() -> None:
    parts = [sr.Variable(numbers(3, 2)), sr.Variable(numbers(2, 2))]
    v = ShardedVariable(parts, name="v")
    assert (v.shape, v.ndim, v.dtype, v.name) == ((5, 2), 2, sr.float32, "v")
    assert ShardedVariable([sr.Variable([1.0])]).name == "ShardedVariable"
    assert [a is b for a, b in zip(v.variables, parts)] == [True, True]
    assert [a is b for a, b in zip(v, parts)] == [True, True]
    infos = [part._get_save_slice_info() for part in parts]
    assert [info and (info.full_name, info.spec) for info in infos] == [
        ("v", "5 2 0,3:0,2"), ("v", "5 2 3,2:0,2"),
    ]  # fmt: skip
    assert "'v' shape=(5, 2) dtype=float32 shards=2" in repr(v)
    with pytest.raises(TypeError, match="x.ref()"):
        hash(v)
    assert v.ref() == v.ref() and v.ref().deref() is v


def test_a_copy_has_shards_of_its_own() -> None:
    v = sharded(numbers(5, 2), 3, 2)
    other = copy.deepcopy(v).assign(np.zeros((5, 2), np.float32))
    np.testing.assert_array_equal(v.numpy(), numbers(5, 2))
    assert not other.numpy().any()


@both_ways
@pytest.mark.parametrize("sizes", [(5,), (3, 2), (1, 0, 4)])
def test_it_is_a_tensor_wherever_one_is_expected(sizes: Any, run: Callable[..., Any]) -> None:
    whole = numbers(5, 2)
    v = sharded(whole, *sizes)
    np.testing.assert_array_equal(v.numpy(), whole)
    np.testing.assert_array_equal(np.asarray(v, np.float64), whole)
    for compute, wanted in [
        (lambda: sr.convert_to_tensor(v), whole),
        (lambda: sr.identity(v), whole),
        (lambda: sr.matmul(v, [[1.0], [2.0]]), whole @ [[1], [2]]),
        (lambda: sr.reduce_sum(v, axis=0), whole.sum(axis=0)),
        (lambda: sr.stack([v, v]), np.stack([whole, whole])),
        (lambda: sr.concat([v, [[0.0, 0.0]]], 0), np.concatenate([whole, [[0, 0]]])),
    ]:
        np.testing.assert_allclose(run(compute).numpy(), wanted)


OPERATORS = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod,
    operator.pow, operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne,
]  # fmt: skip


@both_ways
@pytest.mark.parametrize("op", OPERATORS)
def test_operators_are_of_all_rows(op: Any, run: Callable[..., Any]) -> None:
    whole, other = numbers(3), np.array([3, 2, 1], np.float32)
    v, w = sharded(whole, 2, 1), sharded(other, 1, 2)
    for compute, wanted in [
        (lambda: op(v, w), op(whole, other)),
        (lambda: op(v, 2.0), op(whole, np.float32(2))),
        (lambda: op(sr.constant(other), v), op(other, whole)),
    ]:
        np.testing.assert_allclose(run(compute).numpy(), wanted, rtol=1e-6)
    np.testing.assert_array_equal((-v).numpy(), -whole)
    np.testing.assert_array_equal(abs(v).numpy(), whole)
    np.testing.assert_allclose((2.0 / v).numpy(), 2 / whole)


def test_its_truth_is_that_of_one_element() -> None:
    assert sharded(numbers(1), 1)
    with pytest.raises(sr.errors.InvalidArgumentError, match="truth"):
        bool(sharded(numbers(2), 1, 1))


# --- Assigning.


@both_ways
def test_each_shard_is_assigned_its_rows(run: Callable[..., Any]) -> None:
    v = sharded(np.zeros((5, 2), np.float32), 3, 2)
    returned = []

    def change() -> Any:
        returned.append(v.assign(numbers(5, 2), use_locking=True, name="x", read_value=False))
        returned.append(v.assign_add(numbers(5, 2)))
        seen = sr.identity(v)
        returned.append(v.assign_sub(np.ones((5, 2), np.float32)))
        return seen

    # What is read between two changes has the first and not the second.
    np.testing.assert_array_equal(run(change).numpy(), 2 * numbers(5, 2))
    assert all(made is v for made in returned)
    np.testing.assert_array_equal(v.numpy(), 2 * numbers(5, 2) - 1)
    np.testing.assert_array_equal(v.variables[1].numpy(), (2 * numbers(5, 2) - 1)[3:])


@pytest.mark.parametrize("how", ["assign", "assign_add", "assign_sub"])
def test_values_of_another_shape_are_refused_and_nothing_changes(how: str) -> None:
    v = sharded(numbers(4, 2), 2, 2)
    for wrong in (numbers(5, 2), numbers(3, 2), numbers(4, 3), numbers(4)):
        with pytest.raises(ValueError, match="'table'"):
            getattr(v, how)(wrong)
    np.testing.assert_array_equal(v.numpy(), numbers(4, 2))


# --- Rows by index.

HOW = ["add", "sub", "mul", "div", "min", "max", "update"]


@both_ways
@pytest.mark.parametrize("sizes", [(11, 11, 10), (10, 10, 10), (7,), (1, 1, 0)])
@pytest.mark.parametrize("how", [f"scatter_{how}" for how in HOW] + ["batch_scatter_update"])
def test_rows_are_changed_in_the_shard_that_has_them(
    how: str, sizes: tuple[int, ...], run: Callable[..., Any]
) -> None:
    rng = np.random.default_rng(seed := 11)
    print("seed", seed)
    rows = sum(sizes)
    whole = rng.uniform(0.5, 2, size=(rows, 2)).astype(np.float32)
    # A Variable that is not cut says what is wanted; its own tests are against NumPy.
    v, plain = sharded(whole, *sizes), sr.Variable(whole)
    for count in (1, 5, 40):
        indices = rng.integers(rows, size=count)
        delta = sr.IndexedSlices(
            rng.uniform(0.5, 2, size=(count, 2)).astype(np.float32), indices
        )
        made = []
        run(lambda: made.append(getattr(v, how)(delta, use_locking=True, name="x")))  # noqa: B023
        getattr(plain, how)(delta)
        assert made[0] is v
        np.testing.assert_allclose(v.numpy(), plain.numpy(), rtol=1e-5)


@both_ways
@pytest.mark.usefixtures("no_dense_read")
def test_rows_are_read_in_the_order_of_their_indices(run: Callable[..., Any]) -> None:
    rng = np.random.default_rng(seed := 12)
    print("seed", seed)
    for rows, shards in [(32, 3), (30, 3), (3, 4), (9, 1), (13, 5)]:
        whole = rng.normal(size=(rows, 2)).astype(np.float32)
        v = sharded(whole, *div(rows, shards))
        for count in (0, 1, 50):
            ids = rng.integers(rows, size=count)
            found = run(lambda: v.sparse_read(ids, name="rows"))  # noqa: B023
            np.testing.assert_array_equal(found.numpy(), whole[ids])
            gathered = run(lambda: sr.gather(v, ids))  # noqa: B023
            np.testing.assert_array_equal(gathered.numpy(), whole[ids])


def test_indices_are_a_vector() -> None:
    v = sharded(numbers(4, 2), 2, 2)
    for indices, values in [([[0]], numbers(1, 1, 2)), (0, numbers(2))]:
        with pytest.raises(ValueError, match="vector"):
            v.scatter_add(sr.IndexedSlices(values, indices))
        with pytest.raises(ValueError, match="vector"):
            v.sparse_read(indices)
    with pytest.raises(TypeError, match="IndexedSlices"):
        v.scatter_add([[1.0, 1.0]])  # type: ignore[arg-type]


def test_shards_that_are_not_as_div_cuts_have_no_rows_by_index() -> None:
    for sizes in [(1, 3), (3, 1), (2, 1, 1, 2)]:
        v = sharded(numbers(sum(sizes), 2), *sizes)
        with pytest.raises(NotImplementedError, match="'div'"):
            v.sparse_read([0])
        with pytest.raises(NotImplementedError, match="'div'"):
            v.scatter_add(sr.IndexedSlices([[1.0, 1.0]], [0]))
        with pytest.raises(ValueError, match="'div'"):
            sr.nn.embedding_lookup(v, [0])
        # The rest of it works with any.
        np.testing.assert_array_equal(v[1:3].numpy(), numbers(sum(sizes), 2)[1:3])


@pytest.mark.parametrize("how", [f"scatter_{how}" for how in HOW])
def test_what_is_no_row_is_refused_before_a_shard_changes(how: str) -> None:
    v = sharded(numbers(5, 2), 3, 2)
    for index in (5, -1, 1000):
        with pytest.raises(sr.errors.InvalidArgumentError):
            getattr(v, how)(sr.IndexedSlices(numbers(2, 2), [0, index]))
    with pytest.raises(sr.errors.InvalidArgumentError):
        getattr(v, how)(sr.IndexedSlices(numbers(2, 3), [0, 4]))
    with pytest.raises(sr.errors.InvalidArgumentError):
        getattr(v, how)(sr.IndexedSlices(numbers(3, 2), [0, 4]))
    np.testing.assert_array_equal(v.numpy(), numbers(5, 2))


# --- Slices.

KEYS: list[Any] = [
    0, 2, -1, -7, np.int64(3), (0, 1), (-1, -1), (6, slice(None)), slice(None), slice(2, None),
    slice(None, -2), slice(1, 6, 2), slice(None, None, -1), slice(6, 0, -2), slice(-2, -6, -3),
    slice(3, 3), slice(5, 2), slice(100, -100, -4), slice(-100, 100, 5),
    (slice(1, 5), 0), (slice(1, 5), slice(None, None, -1)), (slice(3, 3), 0), Ellipsis,
    (Ellipsis, 0), (Ellipsis, slice(1, 2)), (Ellipsis, 3, 1), (3, Ellipsis), (3, 1, Ellipsis), (),
    None, (None, 2), (None, slice(None, None, 3)), (None, Ellipsis, 0), (slice(0, 4), None),
    (2, None, 1), (None, None), (Ellipsis, None), (slice(4, 1, -1), None, Ellipsis),
]  # fmt: skip


@both_ways
@pytest.mark.parametrize("sizes", [(7,), (3, 2, 2), (1, 0, 6), (1,) * 7])
def test_slices_are_those_of_all_rows(sizes: tuple[int, ...], run: Callable[..., Any]) -> None:
    whole = numbers(7, 2)
    v = sharded(whole, *sizes)
    for key in KEYS:
        found = run(lambda: v[key])  # noqa: B023
        np.testing.assert_array_equal(found.numpy(), whole[key], err_msg=repr(key))
        assert found.shape == whole[key].shape


def test_any_slice_is_that_of_all_rows() -> None:
    rng = np.random.default_rng(seed := 13)
    print("seed", seed)

    def bound(limit: int) -> int | None:
        return None if rng.random() < 0.2 else int(rng.integers(-limit, limit + 1))

    for _ in range(300):
        sizes = rng.integers(0, 5, size=rng.integers(1, 6)).tolist()
        rows = sum(sizes)
        whole = numbers(rows, 3)
        v = sharded(whole, *sizes)
        key = slice(bound(rows + 3), bound(rows + 3), bound(4) or None)
        np.testing.assert_array_equal(v[key].numpy(), whole[key], err_msg=f"{sizes} {key}")
        np.testing.assert_array_equal(v[key, 1].numpy(), whole[key, 1], err_msg=f"{sizes} {key}")


@both_ways
def test_a_mask_takes_the_elements_where_it_is_true(run: Callable[..., Any]) -> None:
    whole = numbers(4, 2)
    v = sharded(whole, 2, 2)
    for mask in (np.array([True, False, False, True]), whole > 3):
        for given in (mask, sr.constant(mask)):
            found = run(lambda: v[given])  # noqa: B023
            np.testing.assert_array_equal(found.numpy(), whole[mask])
    np.testing.assert_array_equal(run(lambda: v[v > 3.0]).numpy(), whole[whole > 3])


def test_slices_that_are_none_are_refused() -> None:
    v = sharded(numbers(4, 2), 2, 2)
    for index in (4, -5, (4, 0)):
        with pytest.raises(IndexError, match="4 rows"):
            v[index]
    with pytest.raises(ValueError, match="zero"):
        v[::0]
    for key in (sr.constant(1), (0, sr.constant(1)), slice(sr.constant(1), None),
                (slice(None), sr.Variable(1)), slice(None, None, sr.constant(1))):  # fmt: skip
        with pytest.raises(TypeError, match="not sliced by tensors"):
            v[key]
    for key in ("a", 1.5, True, [0, 1], slice("a", None)):
        with pytest.raises(TypeError):
            v[key]


@pytest.mark.usefixtures("no_dense_read")
def test_a_slice_reads_the_shards_that_it_needs() -> None:
    v = sharded(numbers(6, 2), 2, 2, 2)

    def read(key: Any) -> list[int]:
        with sr.GradientTape() as tape:
            v[key]
        return [i for i, part in enumerate(v) if any(part is w for w in tape.watched_variables())]

    assert [read(key) for key in (3, slice(3), slice(5, 3, -1), slice(None, None, 4))] == [
        [1], [0, 1], [2], [0, 2],
    ]  # fmt: skip


# --- Functions.


def test_a_function_is_traced_once_for_all_that_are_cut_alike() -> None:
    traces = []

    @sr.function
    def double(v: ShardedVariable, by: Any) -> Any:
        traces.append(v)
        assert isinstance(v, ShardedVariable) and len(v.variables) == 2
        v.assign(v * by)
        return sr.reduce_sum(v.variables[1])

    a, b = sharded(numbers(5, 2), 3, 2), sharded(-numbers(5, 2), 3, 2, name="other")
    two = sr.constant(2.0)
    assert float(double(a, two)) == 2 * numbers(5, 2)[3:].sum()
    assert float(double(b, two)) == -2 * numbers(5, 2)[3:].sum()
    assert float(double(a, two)) == 4 * numbers(5, 2)[3:].sum()
    assert len(traces) == 1
    np.testing.assert_array_equal(a.numpy(), 4 * numbers(5, 2))
    np.testing.assert_array_equal(b.numpy(), -2 * numbers(5, 2))
    double(sharded(numbers(5, 2), 2, 3), two)
    double(sharded(numbers(5, 3), 3, 2), two)
    assert len(traces) == 3


def test_an_argument_that_is_given_twice_is_one_variable() -> None:
    traces = []

    @sr.function
    def add(v: ShardedVariable, w: ShardedVariable) -> Any:
        traces.append(v)
        v.assign_add(w)
        return sr.identity(w)

    a, b = sharded(numbers(3), 2, 1), sharded(numbers(3), 2, 1)
    np.testing.assert_array_equal(add(a, b).numpy(), numbers(3))
    np.testing.assert_array_equal(add(b, b).numpy(), 2 * numbers(3))
    np.testing.assert_array_equal(a.numpy(), 2 * numbers(3))
    assert len(traces) == 2


def test_an_argument_cannot_be_used_from_outside_as_well() -> None:
    a, b = sharded(numbers(3), 2, 1), sharded(numbers(3), 2, 1)

    @sr.function
    def add(v: ShardedVariable) -> Any:
        return v + a

    np.testing.assert_array_equal(add(b).numpy(), 2 * numbers(3))
    with pytest.raises(sr.errors.InvalidArgumentError, match="from outside as well"):
        add(a)


def test_one_trace_of_it_is_called_with_others() -> None:
    @sr.function
    def total(pair: Any) -> Any:
        return sr.reduce_sum(pair["v"]) + pair["x"]

    a, b = sharded(numbers(3), 2, 1), sharded(2 * numbers(3), 2, 1)
    concrete = total.get_concrete_function({"v": a, "x": sr.constant(1.0)})
    assert float(concrete({"v": b, "x": sr.constant(1.0)})) == 13.0

    @sr.function
    def around(x: Any) -> Any:
        return concrete({"v": a, "x": x}) + concrete({"v": b, "x": x})

    assert float(around(sr.constant(1.0))) == 20.0
    with pytest.raises(sr.errors.InvalidArgumentError, match="other shards"):
        concrete({"v": sharded(numbers(3), 1, 2), "x": sr.constant(1.0)})


def test_what_is_kept_for_a_variable_is_not_kept_for_an_argument() -> None:
    optimizer = sr.optimizers.Adagrad(0.1)

    @sr.function
    def step(v: ShardedVariable) -> None:
        optimizer.apply_gradients([(sr.ones([2]), v.variables[0])])

    with pytest.raises(sr.errors.FailedPreconditionError, match="an optimizer's slots"):
        step(sharded(numbers(3), 2, 1))


# --- Gradients.


@both_ways
def test_gradients_are_taken_by_the_shards(run: Callable[..., Any]) -> None:
    whole = numbers(5, 2)
    v = sharded(whole, 3, 2)

    def gradients() -> Any:
        with sr.GradientTape() as tape:
            loss = sr.reduce_sum(v * v) + sr.reduce_sum(v[3])
        return tape.gradient(loss, v.variables)

    first, second = run(gradients)
    np.testing.assert_allclose(first.numpy(), 2 * whole[:3])
    np.testing.assert_allclose(second.numpy(), 2 * whole[3:] + [[1], [0]])


def test_gradients_flow_out_of_functions_that_take_one() -> None:
    @sr.function
    def loss(v: ShardedVariable) -> Any:
        return sr.reduce_sum(v * v)

    for sign in (1, -1):
        v = sharded(sign * numbers(3), 2, 1)
        with sr.GradientTape() as tape:
            made = loss(v)
        found = tape.gradient(made, v.variables)
        np.testing.assert_allclose(np.concatenate(found), sign * 2 * numbers(3))
    assert loss.trace_count == 1


def test_it_is_no_source_of_gradients_itself() -> None:
    v = ShardedVariable([sr.Variable([1.0], trainable=False), sr.Variable([2.0], trainable=False)])
    with sr.GradientTape(persistent=True) as tape:
        tape.watch(v)
        loss = sr.reduce_sum(v * v)
    with pytest.raises(TypeError, match="'variables'"):
        tape.gradient(loss, v)
    assert [grad.tolist() for grad in tape.gradient(loss, v.variables)] == [[2.0], [4.0]]


@both_ways
def test_optimizers_train_the_shards_as_they_do_a_variable(run: Callable[..., Any]) -> None:
    whole, ids = numbers(5, 2) / 10, np.array([4, 0, 4, 2])
    v, plain = sharded(whole, 3, 2), sr.Variable(whole)

    def trained(table: Any, variables: list[sr.Variable]) -> None:
        optimizer = sr.optimizers.Adagrad(0.5)

        def step() -> None:
            with sr.GradientTape() as tape:
                rows = sr.nn.embedding_lookup(table, ids)
                loss = sr.reduce_sum(rows * rows)
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

        for _ in range(3):
            run(step)

    trained(v, v.variables)
    trained(plain, [plain])
    np.testing.assert_allclose(v.numpy(), plain.numpy(), rtol=1e-6)


# --- Look-ups.


@both_ways
@pytest.mark.usefixtures("no_dense_read")
@pytest.mark.parametrize("shape", [(9,), (3, 2), (2, 3, 2), (0,), ()])
def test_rows_are_looked_up_in_the_callers_order(
    shape: tuple[int, ...], run: Callable[..., Any]
) -> None:
    rng = np.random.default_rng(seed := 14)
    print("seed", seed)
    for rows, shards, width in [(13, 5, (2,)), (10, 4, (2, 3)), (6, 1, ()), (2, 3, (2,))]:
        whole = rng.normal(size=(rows, *width)).astype(np.float32)
        v = sharded(whole, *div(rows, shards))
        ids = rng.integers(rows, size=shape)
        for lookup in (
            lambda: sr.nn.embedding_lookup(v, ids),  # noqa: B023
            lambda: sr.nn.embedding_lookup([v], ids),  # noqa: B023
            lambda: sr.gather(v, ids),  # noqa: B023
        ):
            found = run(lookup)
            assert found.shape == (*shape, *width)
            np.testing.assert_array_equal(found.numpy(), whole[ids])


@pytest.mark.usefixtures("no_dense_read")
def test_each_shard_is_asked_once() -> None:
    v = sharded(numbers(13, 2), *div(13, 5))

    @sr.function
    def lookup(ids: Any) -> Any:
        return sr.nn.embedding_lookup(v, ids)

    text = lookup.get_concrete_function(sr.constant([[3, 1], [12, 0]])).graph_text()
    assert text.count("= Gather(") == 5
    assert "= Concat(" not in text


@pytest.mark.usefixtures("no_dense_read")
def test_gradients_of_look_ups_are_rows_of_each_shard() -> None:
    v = sharded(numbers(5, 2), 3, 2)
    with sr.GradientTape() as tape:
        loss = sr.reduce_sum(sr.nn.embedding_lookup(v, [4, 0, 4]))
    first, second = tape.gradient(loss, v.variables)
    for grad, indices in [(first, [0]), (second, [1, 1])]:
        assert isinstance(grad, sr.IndexedSlices)
        assert grad.indices.tolist() == indices
        assert grad.values.tolist() == [[1.0, 1.0]] * len(indices)


@pytest.mark.usefixtures("no_dense_read")
def test_rows_longer_than_max_norm_are_shortened() -> None:
    whole = numbers(5, 2)
    found = sr.nn.embedding_lookup(sharded(whole, 3, 2), [4, 0, 1], max_norm=4.0).numpy()
    norms = np.linalg.norm(whole[[4, 0, 1]], axis=1, keepdims=True)
    np.testing.assert_allclose(found, whole[[4, 0, 1]] * np.minimum(1, 4 / norms), rtol=1e-6)


def test_ids_that_are_no_rows_are_refused() -> None:
    for sizes in [(5,), (3, 2), (2, 2, 1)]:
        v = sharded(numbers(5, 2), *sizes)
        for wrong in (5, -1, 100):
            with pytest.raises(sr.errors.InvalidArgumentError):
                sr.nn.embedding_lookup(v, [0, wrong])
            with pytest.raises(sr.errors.InvalidArgumentError):
                v.sparse_read([wrong])


def sparse_ids(*rows: Sequence[int]) -> sr.sparse.SparseTensor:
    places = [[i, j] for i, row in enumerate(rows) for j in range(len(row))]
    ids = [one for row in rows for one in row]
    return sr.sparse.SparseTensor(places, ids, [len(rows), max(map(len, rows))])


@both_ways
@pytest.mark.usefixtures("no_dense_read")
@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn", None])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("max_norm", [None, 5.0])
def test_sparse_look_ups_are_those_of_one_table(
    combiner: str | None, weighted: bool, max_norm: float | None, run: Callable[..., Any]
) -> None:
    whole = numbers(5, 2)
    ids = sparse_ids([4, 0, 4], [1], [], [2, 3])
    weights = ids._replace(values=[1.0, 0.5, 2.0, 3.0, 0.25, 1.0]) if weighted else None

    def both(table: Any) -> Any:
        arguments = {"combiner": combiner, "max_norm": max_norm}
        plain = sr.nn.embedding_lookup_sparse(table, ids, weights, **arguments)
        safe = sr.nn.safe_embedding_lookup_sparse(
            table, ids, weights, combiner or "mean", default_id=3, max_norm=max_norm
        )
        return [plain, safe]

    v = sharded(whole, 3, 2)
    for found, wanted in zip(run(lambda: both(v)), both(sr.constant(whole))):
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-5)


@pytest.mark.usefixtures("no_dense_read")
def test_safe_look_ups_prune_and_take_ids_of_any_rank() -> None:
    v = sharded(numbers(5, 2), 3, 2)
    places = [[0, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0]]
    ids = sr.sparse.SparseTensor(places, [4, -1, -7, 1], [2, 2, 2])
    flat = sr.sparse.SparseTensor(
        [[0, 0], [0, 1], [1, 0], [2, 0]], [4, -1, -7, 1], [4, 2]
    )
    weights = flat._replace(values=[1.0, 1.0, 1.0, 0.0])
    found = sr.nn.safe_embedding_lookup_sparse(v, flat)
    np.testing.assert_allclose(found.numpy(), [[9, 10], [0, 0], [3, 4], [0, 0]])
    found = sr.nn.safe_embedding_lookup_sparse(v, flat, weights, default_id=0)
    np.testing.assert_allclose(found.numpy(), [[9, 10], [1, 2], [1, 2], [1, 2]])
    found = sr.nn.safe_embedding_lookup_sparse(v, ids)
    np.testing.assert_allclose(found.numpy(), [[[9, 10], [0, 0]], [[3, 4], [0, 0]]])


def test_look_ups_refuse_what_makes_no_sense() -> None:
    v = sharded(numbers(5, 2), 3, 2)
    ids = sparse_ids([4, 0], [1])
    with pytest.raises(ValueError, match="params must be specified"):
        sr.nn.embedding_lookup(None, [0])
    with pytest.raises(ValueError, match="at least one"):
        sr.nn.embedding_lookup([], [0])
    with pytest.raises(ValueError, match="combiner"):
        sr.nn.embedding_lookup_sparse(v, ids, None, combiner="most")
    with pytest.raises(TypeError, match="SparseTensor"):
        sr.nn.embedding_lookup_sparse(v, [0, 1], None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="SparseTensor"):
        sr.nn.embedding_lookup_sparse(v, ids, [1.0, 1.0, 1.0])  # type: ignore[arg-type]
    for wrong in ([1.0, 1.0], [1.0]):
        with pytest.raises(ValueError):
            sr.nn.embedding_lookup_sparse(v, ids, ids._replace(values=wrong))


@pytest.mark.usefixtures("fresh_graph", "no_dense_read")
def test_look_ups_of_tensorflow_1_know_how_it_is_cut() -> None:
    whole = numbers(5, 2)
    v = sharded(whole, 3, 2)
    rows = tf1.nn.embedding_lookup(v, [4, 1, 0])
    total = tf1.nn.embedding_lookup_sparse(v, sparse_ids([4, 1], [3]), None, combiner="sum")
    with tf1.Session() as session:
        found, sums = session.run([rows, total])
    np.testing.assert_array_equal(found, whole[[4, 1, 0]])
    np.testing.assert_array_equal(sums, [whole[4] + whole[1], whole[3]])


# --- TensorFlow's own.


@pytest.fixture
def theirs() -> Any:
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("TensorFlow is not installed; run ./dev setup --peers")
    from tensorflow.python.distribute import sharded_variable

    import tensorflow as tf

    def make(whole: np.ndarray, *sizes: int) -> Any:
        return sharded_variable.ShardedVariable([tf.Variable(part) for part in cut(whole, sizes)])

    return make


@with_tensorflow
def test_slices_are_tensorflows(theirs: Any) -> None:
    whole = numbers(7, 2)
    ours, other = sharded(whole, 3, 2, 2), theirs(whole, 3, 2, 2)
    keys: list[Any] = [
        0, -1, slice(1, 6), slice(None, None, 2), slice(None, None, -1), slice(6, 1, -2), Ellipsis,
        (slice(2, 5), 1), (3, 0), (None, slice(None)), np.arange(7) % 2 == 0,
    ]  # fmt: skip
    for key in keys:
        np.testing.assert_array_equal(ours[key].numpy(), other[key].numpy(), err_msg=repr(key))


@with_tensorflow
@pytest.mark.parametrize("how", [f"scatter_{how}" for how in HOW] + ["batch_scatter_update"])
def test_rows_are_changed_as_tensorflow_changes_them(how: str, theirs: Any) -> None:
    import tensorflow as tf

    whole = numbers(32, 2)
    ours, other = sharded(whole, 11, 11, 10), theirs(whole, 11, 11, 10)
    indices = np.array([31, 0, 10, 11, 21, 22, 5])
    values = np.random.default_rng(0).uniform(0.5, 30, (7, 2)).astype(np.float32)
    getattr(ours, how)(sr.IndexedSlices(values, indices))
    getattr(other, how)(tf.IndexedSlices(values, tf.constant(indices)))
    np.testing.assert_allclose(ours.numpy(), other.numpy(), rtol=1e-6)


@with_tensorflow
def test_look_ups_are_tensorflows(theirs: Any) -> None:
    import tensorflow as tf

    whole = numbers(13, 2)
    ours, other = sharded(whole, *div(13, 5)), theirs(whole, *div(13, 5))
    ids = np.array([[12, 0], [3, 9]])
    for max_norm in (None, 10.0):
        np.testing.assert_allclose(
            sr.nn.embedding_lookup(ours, ids, max_norm).numpy(),
            tf.nn.embedding_lookup(other, ids, max_norm).numpy(),
            rtol=1e-6,
        )
    # Theirs groups rows by shard; of sorted indices both are the same.
    np.testing.assert_array_equal(
        ours.sparse_read([0, 3, 12]).numpy(), other.sparse_read(tf.constant([0, 3, 12])).numpy()
    )
    sparse = sparse_ids([4, 0, 4], [1], [2, 12])
    weights = sparse._replace(values=[1.0, 0.5, 2.0, 3.0, 0.25, 1.0])
    their_ids, their_weights = (tf.SparseTensor(*one) for one in (sparse, weights))
    for combiner in ("sum", "mean", "sqrtn"):
        np.testing.assert_allclose(
            sr.nn.embedding_lookup_sparse(ours, sparse, weights, combiner).numpy(),
            tf.nn.embedding_lookup_sparse(other, their_ids, their_weights, combiner).numpy(),
            rtol=1e-6,
        )
