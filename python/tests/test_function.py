"""sidereal.function: tracing, retracing, variables, gradients through it."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import sidereal as sr
from sidereal import errors, ops


def test_a_function_is_traced_once_and_run_often() -> None:
    traces = []

    @sr.function
    def scaled(x: sr.Tensor, y: sr.Tensor) -> sr.Tensor:
        traces.append(x)
        return x * 2.0 + y

    for value in (1.0, 2.0, 3.0):
        got = scaled(sr.constant([value]), sr.constant([10.0]))
        np.testing.assert_array_equal(got.numpy(), [2 * value + 10])
    assert len(traces) == 1
    assert scaled.trace_count == 1


def test_a_trace_takes_tensors_by_their_names() -> None:
    @sr.function(input_signature=[
        sr.TensorSpec([None], sr.float32, "b"), sr.TensorSpec([None], sr.float32, "a"),
    ])  # fmt: skip
    def less(b: sr.Tensor, a: sr.Tensor) -> sr.Tensor:
        return b - a

    concrete = less.get_concrete_function()
    one, two = sr.constant([1.0]), sr.constant([2.0])
    for got in (concrete(two, one), concrete(a=one, b=two), concrete(two, a=one)):
        np.testing.assert_array_equal(got.numpy(), [1.0])
    with pytest.raises(TypeError, match="3 tensors are given"):
        concrete(two, b=one, c=one)


def test_another_extent_is_left_open_another_dtype_or_rank_is_another_trace() -> None:
    shapes = []

    @sr.function
    def double(x: sr.Tensor) -> sr.Tensor:
        shapes.append((x.dtype.name, x.shape))
        return x + x

    for n in (2, 3, 4, 5):
        assert double(sr.constant(np.ones((n, 3), np.float32))).shape == (n, 3)
    assert shapes == [("float32", (2, 3)), ("float32", (-1, 3))]
    double(sr.constant(np.ones((2, 3), np.float64)))
    double(sr.constant(np.ones(3, np.float32)))
    assert shapes[2:] == [("float64", (2, 3)), ("float32", (3,))]


def test_python_values_are_constants_of_a_trace() -> None:
    @sr.function
    def power(x: sr.Tensor, n: int = 2) -> sr.Tensor:
        result = x
        for _ in range(n - 1):
            result = result * x
        return result

    x = sr.constant(3.0)
    assert float(power(x)) == 9
    assert float(power(x, 3)) == 27
    assert float(power(x, n=2)) == 9
    assert power.trace_count == 2


def test_structures_go_in_and_come_out() -> None:
    @sr.function
    def swap(pair: dict) -> dict:
        return {"b": pair["a"], "a": (pair["b"], None, 1.0)}

    got = swap({"a": sr.constant(1.0), "b": sr.constant([2.0])})
    assert float(got["b"]) == 1
    first, nothing, one = got["a"]
    assert first.shape == (1,)
    assert nothing is None
    assert float(one) == 1


def test_an_input_signature_allows_one_trace_and_says_what_does_not_fit() -> None:
    @sr.function(input_signature=[sr.TensorSpec([None, 2], sr.float32)])
    def total(x: sr.Tensor) -> sr.Tensor:
        return ops.reduce_sum(x)

    assert float(total(np.ones((3, 2), np.float32))) == 6
    assert float(total([[1.0, 2.0]])) == 3
    assert total.trace_count == 1
    with pytest.raises(errors.InvalidArgumentError, match=r"float32\[3\].*says float32\[\?,2\]"):
        total(sr.constant([1.0, 2.0, 3.0]))
    with pytest.raises(errors.InvalidArgumentError, match="float64"):
        total(sr.constant(np.ones((1, 2))))
    with pytest.raises(TypeError, match="1 arguments; 2 are given"):
        total(sr.constant([1.0]), 2)


def test_a_warning_names_why_a_function_keeps_being_traced() -> None:
    @sr.function
    def scaled(x: sr.Tensor, rate: float) -> sr.Tensor:
        return x * rate

    with pytest.warns(sr.RetracingWarning, match="argument 'rate' is the Python number.*constant"):
        for step in range(8):
            scaled(sr.constant(1.0), 0.1 * step)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scaled(sr.constant(1.0), 77.0)


def test_captured_tensors_and_variables_are_inputs() -> None:
    w = sr.Variable([1.0, 2.0])
    b = sr.constant([10.0, 10.0])

    @sr.function
    def affine(x: sr.Tensor) -> sr.Tensor:
        return x * w + b

    x = sr.constant([1.0, 1.0])
    np.testing.assert_array_equal(affine(x).numpy(), [11, 12])
    w.assign([2.0, 3.0])
    np.testing.assert_array_equal(affine(x).numpy(), [12, 13])
    assert affine.trace_count == 1


def test_variables_are_assigned_to_when_the_call_ends() -> None:
    count = sr.Variable(0.0)

    @sr.function
    def step(x: sr.Tensor) -> sr.Tensor:
        count.assign_add(x)
        before = count.value()
        count.assign(count * 2.0)
        return before

    assert float(step(sr.constant(1.0))) == 1
    assert float(count) == 2
    assert float(step(sr.constant(3.0))) == 5
    assert float(count) == 10


def test_tapes_differentiate_through_calls() -> None:
    w = sr.Variable([2.0, 3.0])

    @sr.function
    def loss(x: sr.Tensor) -> sr.Tensor:
        return ops.reduce_sum(w * w * x)

    x = sr.constant([1.0, 4.0])
    with sr.GradientTape() as tape:
        tape.watch(x)
        y = loss(x) * 2.0
    by_w, by_x = tape.gradient(y, [w, x])
    np.testing.assert_allclose(by_w.numpy(), [8, 48])
    np.testing.assert_allclose(by_x.numpy(), [8, 18])


def test_second_derivatives_through_calls() -> None:
    @sr.function
    def cube(x: sr.Tensor) -> sr.Tensor:
        return x * x * x

    x = sr.constant([2.0, 3.0])
    with sr.GradientTape() as outer:
        outer.watch(x)
        with sr.GradientTape() as inner:
            inner.watch(x)
            y = cube(x)
        first = inner.gradient(y, x)
    np.testing.assert_allclose(first.numpy(), [12, 27])
    np.testing.assert_allclose(outer.gradient(first, x).numpy(), [12, 18])


def test_a_training_step_is_one_function() -> None:
    w = sr.Variable([1.0, 1.0])
    optimizer = sr.optimizers.SGD(0.1)

    @sr.function
    def step(x: sr.Tensor) -> sr.Tensor:
        with sr.GradientTape() as tape:
            loss = ops.reduce_sum(ops.square(w - x))
        optimizer.apply_gradients(zip(tape.gradient(loss, [w]), [w]))
        return loss

    losses = [float(step(sr.constant([3.0, -1.0]))) for _ in range(30)]
    assert step.trace_count == 1
    assert losses[-1] < 1e-4 < losses[0]
    np.testing.assert_allclose(w.numpy(), [3, -1], atol=1e-2)


def test_methods_have_traces_for_each_object() -> None:
    class Scale:
        def __init__(self, factor: float) -> None:
            self.factor = factor

        @sr.function
        def __call__(self, x: sr.Tensor) -> sr.Tensor:
            return x * self.factor

        @sr.function
        def twice(self, x: sr.Tensor) -> sr.Tensor:
            return self(self(x))

    assert float(Scale(2.0).twice(sr.constant(1.0))) == 4
    assert float(Scale(3.0).twice(sr.constant(1.0))) == 9


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (lambda x: x if x > 0.0 else -x, "sidereal.cond"),
        (lambda x: float(x), "return it from the function"),
        (lambda x: [row for row in x], "sidereal.map_fn"),  # noqa: C416 - as people write it
        (lambda x: np.sum(x), "functions of sidereal"),
        (lambda x: range(x), "sidereal.range"),
    ],
)
def test_python_that_needs_values_is_explained(code: object, advice: str) -> None:
    spec = [sr.TensorSpec([None], sr.float32)]
    traced = sr.function(code, input_signature=spec, autograph=False)
    with pytest.raises(errors.SymbolicError, match=advice):
        traced(sr.constant([1.0, 2.0]))


def test_values_do_not_leave_the_function_that_made_them() -> None:
    kept = []

    @sr.function
    def leaky(x: sr.Tensor) -> sr.Tensor:
        kept.append(x + 1.0)
        return x

    leaky(sr.constant(1.0))
    with pytest.raises(errors.InvalidArgumentError, match="return it from the function"):
        kept[0] + 1.0


def test_an_error_of_a_running_function_names_the_line_of_the_op() -> None:
    @sr.function(input_signature=[sr.TensorSpec(None, sr.float32), sr.TensorSpec(None, sr.float32)])
    def add(x: sr.Tensor, y: sr.Tensor) -> sr.Tensor:
        return x + y  # the line

    with pytest.raises(errors.InvalidArgumentError) as caught:
        add(sr.constant([1.0, 2.0]), sr.constant([1.0, 2.0, 3.0]))
    assert "float32[2], float32[3]" in str(caught.value)
    assert "return x + y  # the line" in str(caught.value)
    assert "test_function.py" in caught.value.site


def test_a_trace_shows_its_graph_and_program() -> None:
    @sr.function
    def double(x: sr.Tensor) -> sr.Tensor:
        return x + x

    concrete = double.get_concrete_function(sr.TensorSpec([None], sr.float32))
    assert "Add" in concrete.graph_text()
    assert "Add" in concrete.program_text()
    double(sr.constant([1.0, 2.0]))
    assert double.trace_count == 1


def test_a_training_step_changes_variables_in_their_own_memory() -> None:
    table = sr.Variable(np.ones((1000, 16), np.float32))
    weights = sr.Variable(np.full((16, 1), 0.5, np.float32))
    optimizer = sr.optimizers.Adam(0.1)

    @sr.function
    def step(ids: sr.Tensor) -> sr.Tensor:
        with sr.GradientTape() as tape:
            loss = sr.reduce_mean(sr.matmul(sr.gather(table, ids), weights))
        grads = tape.gradient(loss, [table, weights])
        optimizer.apply_gradients(zip(grads, [table, weights]))
        return loss

    ids = sr.constant([3, 5, 3], dtype="int64")
    step(ids)
    kept = [table, weights, *optimizer.slots(table).values(), *optimizer.slots(weights).values()]
    where = [value.numpy().__array_interface__["data"][0] for value in kept]
    for value in kept:
        value._read = None
    for _ in range(3):
        step(ids)
    assert [value.numpy().__array_interface__["data"][0] for value in kept] == where
    text = step.get_concrete_function(ids).program_text()
    assert "UpdateRows" in text
    assert "UpdateDense" in text


@pytest.mark.parametrize("kind", ["SGD", "Adagrad", "Adam"])
def test_lookups_in_many_tables_are_laid_out_without_changing_a_bit(kind: str) -> None:
    random = np.random.default_rng(5)
    first = [random.normal(size=(30, 8)).astype(np.float32) for _ in range(3)]
    ids = [sr.constant(random.integers(0, 30, (3, n))) for n in (6, 6, 9)]
    dense = [sr.constant(random.normal(size=(n, 8)).astype(np.float32)) for n in (6, 6, 9)]

    def trained(wrap: Any) -> list[np.ndarray]:
        tables = [sr.Variable(value) for value in first]
        optimizer = getattr(sr.optimizers, kind)(0.1)

        def step(ids: Any, dense: Any) -> Any:
            with sr.GradientTape() as tape:
                rows = [sr.gather(table, ids[i]) for i, table in enumerate(tables)]
                again = sr.gather(tables[0], ids[1])
                all_rows = sr.stack([dense, *rows, again], 1)
                loss = sr.reduce_sum(sr.square(sr.reduce_sum(all_rows, 1)))
            optimizer.apply_gradients(zip(tape.gradient(loss, tables), tables))
            return loss

        run = wrap(step)
        losses = [np.asarray(run(*batch)) for batch in zip(ids, dense)]
        if run is not step:
            text = run.get_concrete_function(ids[0], dense[0]).program_text()
            assert "GatherConcat" in text
            assert "UpdateJoinedRows" in text
            assert "Unstack" not in text
        return [*losses, *(table.numpy() for table in tables)]

    for got, want in zip(trained(sr.function), trained(lambda step: step)):
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_a_layer_over_a_concatenation_reads_its_parts_where_they_are() -> None:
    random = np.random.default_rng(3)
    w = sr.Variable(random.standard_normal((96, 8), np.float32))
    bias = sr.Variable(random.standard_normal(8, np.float32))

    def gradients(query: sr.Tensor, keys: sr.Tensor) -> list[sr.Tensor]:
        with sr.GradientTape() as tape:
            tape.watch([query, keys])
            spread = sr.broadcast_to(sr.expand_dims(query, 1), sr.shape(keys))
            features = sr.concat([spread, keys, spread * keys], -1)
            flat = sr.reshape(features, (-1, 96))
            y = sr.nn.relu(sr.nn.bias_add(sr.matmul(flat, w), bias))
            loss = sr.reduce_sum(sr.square(y))
        return [loss, *tape.gradient(loss, [query, keys, w, bias])]

    step = sr.function(gradients)
    specs = [sr.TensorSpec([None, 32], sr.float32), sr.TensorSpec([None, None, 32], sr.float32)]
    text = step.get_concrete_function(*specs).program_text()
    assert " = Concat(" not in text
    for op in ("ConcatMatMul", "TransposedConcatMatMul", "MatMulSplit"):
        assert f" = {op}(" in text or f" {op}(" in text
    for batch, length in ((1, 1), (40, 7), (0, 3), (700, 20)):
        query = sr.constant(random.standard_normal((batch, 32), np.float32))
        keys = sr.constant(random.standard_normal((batch, length, 32), np.float32))
        for got, want in zip(step(query, keys), gradients(query, keys)):
            scale = max(1.0, np.abs(want.numpy()).max(initial=0))
            np.testing.assert_allclose(got.numpy() / scale, want.numpy() / scale, atol=1e-5)


def test_what_was_read_from_a_variable_stays_when_a_step_changes_it() -> None:
    w = sr.Variable(np.zeros(2000, np.float32))
    optimizer = sr.optimizers.SGD(1.0)

    @sr.function
    def step() -> sr.Tensor:
        optimizer.apply_gradients([(sr.ones_like(w), w)])
        return w.value()

    before = w.value()
    results = [step() for _ in range(3)]
    after = w.value()
    step()
    assert before.numpy().max() == 0
    assert [float(result[7]) for result in results] == [-1, -2, -3]
    assert after.numpy().min() == -3
    assert w.numpy().min() == -4


def test_variables_can_take_one_anothers_values() -> None:
    a, b = sr.Variable(np.full(3000, 1.0)), sr.Variable(np.full(3000, 2.0))

    @sr.function
    def swap() -> None:
        first = a.value()
        a.assign(b)
        b.assign(first)

    for _ in range(3):
        swap()
    assert (float(a[5]), float(b[5])) == (2.0, 1.0)


def test_an_outer_tape_sees_through_a_step_that_updates() -> None:
    w = sr.Variable([2.0, 3.0])
    x = sr.constant([1.0, 2.0])
    optimizer = sr.optimizers.Momentum(0.5)

    @sr.function
    def step(x: sr.Tensor) -> sr.Tensor:
        y = sr.reduce_sum(w * x * x)
        optimizer.apply_gradients([(sr.ones_like(w), w)])
        return y

    with sr.GradientTape() as tape:
        tape.watch(x)
        y = step(x)
    np.testing.assert_allclose(tape.gradient(y, x).numpy(), [4.0, 12.0])
    np.testing.assert_allclose(w.numpy(), [1.5, 2.5])


def test_rows_outside_of_a_table_are_refused_and_nothing_changes() -> None:
    table = sr.Variable(np.ones((10, 4), np.float32))
    optimizer = sr.optimizers.Adagrad(0.1)

    @sr.function
    def step(ids: sr.Tensor) -> None:
        rows = sr.IndexedSlices(sr.ones((2, 4)), ids, (10, 4))
        optimizer.apply_gradients([(rows, table)])

    step(sr.constant([1, 2], dtype="int64"))
    before = table.numpy().copy()
    with pytest.raises(sr.errors.InvalidArgumentError, match="index 10 is not a row"):
        step(sr.constant([1, 10], dtype="int64"))
    np.testing.assert_array_equal(table.numpy(), before)


def test_threads_change_no_bit_of_a_training_step() -> None:
    def losses(threads: int) -> list[float]:
        sr.config.threading.set_intra_op_parallelism_threads(threads)
        try:
            assert sr.config.threading.get_intra_op_parallelism_threads() == threads
            rng = np.random.default_rng(3)
            first = sr.Variable(rng.normal(size=(256, 128)).astype(np.float32) * 0.1)
            second = sr.Variable(rng.normal(size=(128, 1)).astype(np.float32) * 0.1)
            x = sr.constant(rng.normal(size=(2048, 256)).astype(np.float32))
            optimizer = sr.optimizers.Adam(0.01)

            @sr.function
            def step() -> sr.Tensor:
                with sr.GradientTape() as tape:
                    loss = sr.reduce_mean(sr.square(sr.matmul(sr.tanh(x @ first), second) - 1.0))
                grads = tape.gradient(loss, [first, second])
                optimizer.apply_gradients(zip(grads, [first, second]))
                return loss

            return [float(step()) for _ in range(4)]
        finally:
            sr.config.threading.set_intra_op_parallelism_threads(1)

    assert losses(1) == losses(2) == losses(3)


@pytest.mark.parametrize("threads", [-1, 1.5, True, "2"])
def test_numbers_of_threads_are_checked(threads: object) -> None:
    with pytest.raises(ValueError, match="number of threads"):
        sr.config.threading.set_intra_op_parallelism_threads(threads)


def test_a_sum_inside_of_a_fused_loop_still_wants_one_shape() -> None:
    spec = sr.TensorSpec([None, 4], sr.float32)

    @sr.function(input_signature=[spec, spec])
    def total(x: Any, y: Any) -> Any:
        return sr.tanh(sr.add_n([-x, y, x]))

    ones = np.ones((3, 4), np.float32)
    np.testing.assert_allclose(total(ones, ones), np.tanh(ones))
    with pytest.raises(errors.InvalidArgumentError, match="must be the same"):
        total(ones, ones[:1])
