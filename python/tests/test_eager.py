"""Tensors and variables: making them, operators, conversion rules, memory."""

from __future__ import annotations

import copy
import pickle
import threading

import numpy as np
import pytest

import sidereal as sr
from sidereal import errors, ops
from sidereal._dispatch import ENGINE


def test_numbers_and_lists_become_float32_int32_and_bool() -> None:
    assert sr.constant(1.5).dtype == sr.float32
    assert sr.constant([1, 2]).dtype == sr.int32
    assert sr.constant(2**40).dtype == sr.int64
    assert sr.constant([[True]]).dtype == sr.bool_
    assert sr.constant([]).dtype == sr.float32
    assert sr.constant(1, dtype="float64").dtype == sr.float64
    assert sr.constant([1, 2.5]).shape == (2,)
    assert sr.constant(3.0, shape=(2, 2)).numpy().tolist() == [[3, 3], [3, 3]]


@pytest.mark.parametrize(
    "name",
    [
        "float16",
        "float32",
        "float64",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "bool",
    ],
)
def test_arrays_keep_their_dtype_and_come_back(name: str) -> None:
    for shape in ((), (0,), (3,), (2, 0, 3), (2, 3, 4)):
        array = (np.arange(np.prod(shape)).reshape(shape) % 2).astype(name)
        tensor = sr.constant(array)
        assert tensor.dtype == array.dtype
        assert tensor.shape == shape
        np.testing.assert_array_equal(tensor.numpy(), array)
    np.testing.assert_array_equal(sr.constant(np.ones((3, 4), name).T[::2]).numpy(),
                                  np.ones((3, 4), name).T[::2])


def test_what_is_no_tensor_is_refused() -> None:
    with pytest.raises(TypeError, match="dict"):
        sr.constant({"a": 1})
    with pytest.raises(TypeError):
        sr.constant(None)
    with pytest.raises(errors.InvalidArgumentError, match="no tensor can be made"):
        sr.constant([[1, 2], [3]])
    with pytest.raises(errors.InvalidArgumentError, match="cannot become int32"):
        sr.constant(1.5, dtype="int32")
    with pytest.raises(errors.InvalidArgumentError, match="cannot become uint8"):
        sr.constant(300, dtype="uint8")
    with pytest.raises(TypeError, match="complex128"):
        sr.constant(np.ones(2), dtype="complex128")


def test_numpy_views_share_memory_and_cannot_be_written() -> None:
    x = sr.constant([1.0, 2.0])
    view = x.numpy()
    assert np.shares_memory(view, x.numpy())
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 7
    del x
    assert view.tolist() == [1, 2]
    assert np.asarray(sr.constant([3.0])).tolist() == [3]
    assert np.exp(sr.constant([0.0])).tolist() == [1]


def test_data_are_copied_when_a_constant_is_made() -> None:
    array = np.ones(3, np.float32)
    x = sr.constant(array)
    array[0] = 9
    assert x.numpy().tolist() == [1, 1, 1]


def test_operators_take_numbers_as_the_tensors_dtype() -> None:
    x = sr.constant([1.0, 2.0], dtype="float64")
    for y in (x + 1, 1 + x, x * 2.0, 2 - x, x / 2, 2 / x, -x, x + np.float32(1), np.ones(2) + x,
              x - [1, 2], np.array([1, 2]) * x):
        assert y.dtype == sr.float64
        assert y.shape == (2,)
    assert (x[None] @ x[:, None]).tolist() == [[5]]


def test_comparisons_and_logic_are_by_element() -> None:
    x = sr.constant([1.0, 2.0, 3.0])
    assert ((x > 1.0) & (x < 3.0)).tolist() == [False, True, False]
    assert ((x == 1.0) | (x >= 3.0)).tolist() == [True, False, True]
    assert (~(x != 2.0)).tolist() == [False, True, False]
    assert ((x > 1.0) ^ (x > 2.0)).tolist() == [False, True, False]
    assert x[1:].tolist() == [2, 3]
    assert [float(row) for row in x] == [1, 2, 3]
    bits = sr.constant([5, 6])
    assert (bits & 3).tolist() == [1, 2]
    assert (1 | bits).tolist() == [5, 7]
    assert (bits ^ bits).tolist() == [0, 0]
    assert (~bits).tolist() == [-6, -7]
    with pytest.raises(errors.InvalidArgumentError, match="float32"):
        x & x


def test_two_dtypes_are_not_mixed() -> None:
    x, y = sr.constant([1.0]), sr.constant(np.ones(1))
    with pytest.raises(errors.InvalidArgumentError, match="float32 and float64; cast"):
        x + y
    assert (sr.cast(x, sr.float64) + y).dtype == sr.float64
    with pytest.raises(TypeError):
        x + "one"


def test_scalars_are_numbers() -> None:
    x = sr.constant(2.5)
    assert float(x) == 2.5
    assert int(sr.constant(3)) == 3
    assert x.item() == 2.5
    assert [10, 20, 30][sr.constant(1)] == 20
    assert f"{x:.2f}" == "2.50"
    assert bool(sr.constant(True))
    with pytest.raises(errors.InvalidArgumentError, match="reduce"):
        bool(sr.constant([1.0, 2.0]))
    with pytest.raises(errors.InvalidArgumentError, match=r"shape \(2,\)"):
        float(sr.constant([1.0, 2.0]))
    with pytest.raises(TypeError, match="no length"):
        len(x)
    assert len(sr.constant([1.0, 2.0])) == 2
    assert sr.constant([[1, 2]]).tolist() == [[1, 2]]


def test_tensors_print_copy_and_pickle() -> None:
    x = sr.constant([1.0, 2.0])
    assert repr(x) == "<Tensor: shape=(2,), dtype=float32, numpy=[1., 2.]>"
    assert copy.deepcopy(x) is x
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(x)).numpy(), x.numpy())
    assert {x.ref(): 1}[x.ref()] == 1
    with pytest.raises(TypeError, match="ref"):
        hash(x)


def test_lists_of_tensors_are_stacked() -> None:
    x = sr.constant(1.0)
    with sr.GradientTape() as tape:
        tape.watch(x)
        y = sr.convert_to_tensor([x, 2.0, x * 3.0])
    np.testing.assert_array_equal(y.numpy(), [1, 2, 3])
    assert float(tape.gradient(y, x)) == 4


def test_programs_are_kept_by_signature() -> None:
    x = sr.constant(np.ones((3, 7), np.float32))
    _ = x + x
    before = ENGINE.programs
    for _ in range(10):
        _ = x + x
    assert ENGINE.programs == before


def test_results_are_not_overwritten_by_later_ops() -> None:
    x = sr.constant(np.arange(1000, dtype=np.float32))
    kept = [x * float(i) for i in range(20)]
    for i, value in enumerate(kept):
        assert value.numpy()[10] == 10 * i


def test_ops_can_run_in_threads() -> None:
    results: dict[int, float] = {}

    def work(number: int) -> None:
        x = sr.constant(float(number))
        for _ in range(200):
            with sr.GradientTape() as tape:
                tape.watch(x)
                y = x * x
            results[number] = float(tape.gradient(y, x))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {n: 2.0 * n for n in range(4)}


def test_a_variable_stands_where_a_tensor_can_and_changes() -> None:
    v = sr.Variable([1.0, 2.0], name="v")
    before = v.value()
    view = v.numpy()
    np.testing.assert_array_equal((v * 2 + 1).numpy(), [3, 5])
    v.assign([5.0, 6.0]).assign_add([1.0, 1.0]).assign_sub([0.0, 2.0])
    assert v.numpy().tolist() == [6, 5]
    assert before.numpy().tolist() == [1, 2]
    assert view.tolist() == [1, 2]
    assert ops.reduce_sum(v).item() == 11
    assert "'v' shape=(2,) dtype=float32" in repr(v)
    with pytest.raises(errors.InvalidArgumentError, match=r"'v' has shape \(2,\); .* \(3,\)"):
        v.assign([1.0, 2.0, 3.0])
    with pytest.raises(errors.InvalidArgumentError, match="float64"):
        v.assign(sr.constant(np.ones(2)))


def test_rows_of_a_variable_are_scattered_without_touching_what_was_read() -> None:
    v = sr.Variable(np.zeros((4, 2), np.float32))
    before = v.value()
    rows = sr.IndexedSlices([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]], [2, 0, 2], (4, 2))
    v.scatter_add(rows)
    assert v.numpy()[:, 0].tolist() == [2, 0, 4, 0]
    v.scatter_sub(rows)
    assert v.numpy().sum() == 0
    v.scatter_update(rows)
    assert v.numpy()[:, 0].tolist() == [2, 0, 3, 0]
    assert before.numpy().sum() == 0
    with pytest.raises(errors.InvalidArgumentError, match="index 9 is not a row of float32"):
        v.scatter_add(sr.IndexedSlices([[1.0, 1.0]], [9]))


RULES = {
    "sgd": sr.optimizers.SGD(0.1, weight_decay=0.01),
    "momentum": sr.optimizers.Momentum(0.1),
    "nesterov": sr.optimizers.Momentum(0.1, nesterov=True),
    "adagrad": sr.optimizers.Adagrad(0.1),
    "adam": sr.optimizers.Adam(0.05),
    "ftrl": sr.optimizers.Ftrl(
        0.1, l1_regularization_strength=0.01, l2_regularization_strength=0.01
    ),
    "ftrl_power": sr.optimizers.Ftrl(0.1, learning_rate_power=-0.7),
}


@pytest.mark.parametrize("optimizer", RULES.values(), ids=RULES)
def test_optimizers_update_alike_at_once_in_functions_and_in_float64(optimizer: object) -> None:
    start = np.array([1.0, -2.0, 0.5])
    results = []
    for dtype, traced in (("float32", False), ("float32", True), ("float64", False)):
        w = sr.Variable(start, dtype=dtype)
        rule = copy.copy(optimizer)
        rule.__dict__.pop("_local", None)

        def step(rule: object = rule, w: sr.Variable = w) -> None:
            with sr.GradientTape() as tape:
                loss = ops.reduce_sum(ops.square(w - 0.25) * w)
            rule.apply_gradients([(tape.gradient(loss, w), w)])

        run = sr.function(step) if traced else step
        for _ in range(5):
            run()
        results.append(w.numpy().astype(np.float64))
    assert np.abs(results[0] - start).max() > 1e-3
    np.testing.assert_allclose(results[1], results[0], rtol=2e-5)
    np.testing.assert_allclose(results[2], results[0], rtol=2e-4)


@pytest.mark.parametrize("optimizer", RULES.values(), ids=RULES)
def test_rows_are_updated_as_a_table_of_one_row_would_be(optimizer: object) -> None:
    def fresh() -> object:
        rule = copy.copy(optimizer)
        rule.__dict__.pop("_local", None)
        return rule

    table = sr.Variable(np.ones((5, 2), np.float32))
    row = sr.Variable(np.ones((1, 2), np.float32))
    sparse, dense = fresh(), fresh()
    for _ in range(3):
        values = [[1.0, 2.0], [0.5, -1.0]]
        sparse.apply_gradients([(sr.IndexedSlices(values, [3, 3], (5, 2)), table)])
        dense.apply_gradients([(sr.constant([[1.5, 1.0]]), row)])
    got = table.numpy()
    np.testing.assert_allclose(got[3], row.numpy()[0], rtol=1e-6)
    assert (got[[0, 1, 2, 4]] == 1).all()


def test_an_optimizer_minimizes() -> None:
    w = sr.Variable([4.0, -3.0])
    optimizer = sr.optimizers.Adam(0.3)
    for _ in range(200):
        optimizer.minimize(lambda: ops.reduce_sum(ops.square(w - 1.0)), [w])
    np.testing.assert_allclose(w.numpy(), [1, 1], atol=1e-2)
    with pytest.raises(errors.InvalidArgumentError, match="no gradient is given"):
        optimizer.apply_gradients([(None, w)])


def test_a_variable_of_this_process_is_no_part_of_a_model() -> None:
    model = sr.Model()
    with pytest.raises(errors.UnimplementedError, match="lives in this process"):
        model.input("x", sr.float32, (2,)) * sr.Variable([1.0, 2.0])
