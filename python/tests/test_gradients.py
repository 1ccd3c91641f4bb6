"""GradientTape, gradients() and custom_gradient."""

from __future__ import annotations

import numpy as np
import pytest

import sidereal as sr
from sidereal import errors, ops
from sidereal._dispatch import apply


def test_gradients_keep_the_structure_of_the_sources() -> None:
    x, y = sr.constant([1.0, 2.0]), sr.constant(3.0)
    with sr.GradientTape() as tape:
        tape.watch([x, y])
        z = ops.reduce_sum(x * x) * y
    grads = tape.gradient(z, {"x": x, "y": (y,)})
    np.testing.assert_allclose(grads["x"].numpy(), [6, 12])
    assert float(grads["y"][0]) == 5


def test_a_tape_is_asked_once_a_persistent_one_often() -> None:
    x = sr.constant(3.0)
    with sr.GradientTape() as tape:
        tape.watch(x)
        y = x * x
    assert float(tape.gradient(y, x)) == 6
    with pytest.raises(errors.FailedPreconditionError, match="persistent=True"):
        tape.gradient(y, x)
    with sr.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = x * x
        z = y * x
    assert float(tape.gradient(y, x)) == 6
    assert float(tape.gradient(z, x)) == 27
    assert float(tape.gradient(z, y)) == 3


def test_what_is_not_watched_or_not_reached_has_no_gradient() -> None:
    x, y = sr.constant(1.0), sr.constant([1.0, 2.0])
    with sr.GradientTape(persistent=True) as tape:
        tape.watch(x)
        z = x * 2.0
    assert tape.gradient(z, y) is None
    assert tape.gradient(z, y, unconnected_gradients="zero").numpy().tolist() == [0, 0]
    with pytest.raises(ValueError, match="'none' or 'zero'"):
        tape.gradient(z, y, unconnected_gradients="nothing")


def test_output_gradients_are_weights_and_targets_are_summed() -> None:
    x = sr.constant([1.0, 2.0])
    with sr.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y, z = x * x, x * 3.0
    np.testing.assert_allclose(tape.gradient(y, x, [10.0, 100.0]).numpy(), [20, 400])
    np.testing.assert_allclose(tape.gradient([y, z], x).numpy(), [5, 7])
    with pytest.raises(errors.InvalidArgumentError, match=r"shape \(3,\)"):
        tape.gradient(y, x, [1.0, 1.0, 1.0])


def test_derivatives_of_higher_order() -> None:
    x = sr.constant(2.0)
    with sr.GradientTape() as third:
        third.watch(x)
        with sr.GradientTape() as second:
            second.watch(x)
            with sr.GradientTape() as first:
                first.watch(x)
                y = x * x * x * x
            d1 = first.gradient(y, x)
        d2 = second.gradient(d1, x)
    assert (float(d1), float(d2), float(third.gradient(d2, x))) == (32, 48, 48)


def test_variables_are_watched_when_read() -> None:
    v, w = sr.Variable(2.0), sr.Variable(3.0, trainable=False)
    with sr.GradientTape() as tape:
        y = v * v * w
        v.assign(5.0)
        y = y + v
    assert tape.watched_variables() == (v,) or [t is v for t in tape.watched_variables()] == [True]
    assert float(tape.gradient(y, v)) == 2 * 2 * 3 + 1
    with sr.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(w)
        y = v * w
    by_v, by_w = tape.gradient(y, [v, w])
    assert by_v is None
    assert float(by_w) == 5


def test_recording_can_be_stopped_and_forgotten() -> None:
    x = sr.constant(3.0)
    with sr.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = x * x
        with tape.stop_recording():
            hidden = x * x
        z = y + hidden
        assert float(tape.gradient(z, x)) == 6
        tape.reset()
        tape.watch(x)
        y = x * 4.0
    assert float(tape.gradient(y, x)) == 4


def test_jacobians() -> None:
    x = sr.constant([1.0, 2.0, 3.0])
    with sr.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = x * x
        batch = ops.reshape(x * 2.0, [3, 1])
        rows = ops.reshape(x, [3, 1])
    np.testing.assert_allclose(tape.jacobian(y, x).numpy(), np.diag([2.0, 4.0, 6.0]))
    assert tape.jacobian(batch, x).shape == (3, 1, 3)
    with sr.GradientTape() as tape:
        tape.watch(rows)
        squares = rows * rows
    np.testing.assert_allclose(tape.batch_jacobian(squares, rows).numpy().ravel(), [2, 4, 6])


def test_an_op_without_gradient_is_named_with_its_line_and_shapes() -> None:
    y = sr.constant([1.0, 2.0])
    with sr.GradientTape() as tape:
        tape.watch(y)
        z = apply("Trigamma", (y,))  # this line
    with pytest.raises(errors.UnimplementedError) as caught:
        tape.gradient(z, y)
    message = str(caught.value)
    assert "Trigamma (float32[2])" in message
    assert "# this line" in message
    assert "stop_gradient" in message


def test_integers_are_not_differentiated() -> None:
    with sr.GradientTape() as tape, pytest.raises(errors.InvalidArgumentError, match="floating"):
        tape.watch(sr.constant(1))
    x = sr.constant(1.0)
    with sr.GradientTape() as tape:
        tape.watch(x)
        y = sr.cast(x, sr.int32)
    with pytest.raises(errors.InvalidArgumentError, match="int32"):
        tape.gradient(y, x)


def test_dropout_drops_the_same_elements_of_the_gradient() -> None:
    x = sr.constant(np.ones(200, np.float32))
    with sr.GradientTape() as tape:
        tape.watch(x)
        y = apply("Dropout", (x,), {"rate": 0.5, "seed": 3, "training": True})
    np.testing.assert_array_equal(tape.gradient(y, x).numpy(), y.numpy())

    @sr.function
    def drop(x: sr.Tensor) -> sr.Tensor:
        return apply("Dropout", (x,), {"rate": 0.5, "seed": 3, "training": True})

    with sr.GradientTape() as tape:
        tape.watch(x)
        z = drop(x)
    np.testing.assert_array_equal(tape.gradient(z, x).numpy(), z.numpy())
    assert (z.numpy() != y.numpy()).any()


def test_custom_gradients_replace_those_of_the_ops() -> None:
    @sr.custom_gradient
    def clipped(x: sr.Tensor, y: sr.Tensor) -> object:
        return x * y, lambda dz: (dz * 100.0, None)

    x, y = sr.constant(2.0), sr.constant(3.0)
    with sr.GradientTape() as tape:
        tape.watch([x, y])
        z = clipped(x, y) * 2.0
    by_x, by_y = tape.gradient(z, [x, y])
    assert float(z) == 12
    assert float(by_x) == 200
    assert by_y is None


def test_custom_gradients_can_be_differentiated_and_raise() -> None:
    @sr.custom_gradient
    def square(x: sr.Tensor) -> object:
        return x * x, lambda dy: dy * 2.0 * x

    x = sr.constant(3.0)
    with sr.GradientTape() as outer:
        outer.watch(x)
        with sr.GradientTape() as inner:
            inner.watch(x)
            y = square(x)
        first = inner.gradient(y, x)
    assert float(first) == 6
    assert float(outer.gradient(first, x)) == 2

    @sr.custom_gradient
    def broken(x: sr.Tensor) -> object:
        def grad(dy: sr.Tensor) -> sr.Tensor:
            raise KeyError("mine")

        return x * x, grad

    with sr.GradientTape() as tape:
        tape.watch(x)
        y = broken(x)
    with pytest.raises(KeyError, match="mine"):
        tape.gradient(y, x)


def test_custom_gradients_in_functions() -> None:
    scale = sr.Variable(10.0)

    @sr.custom_gradient
    def odd_square(x: sr.Tensor, y: sr.Tensor) -> object:
        half = x * 0.5
        return (x * x, y * 1.0), lambda dx, dy: (dx * half * scale, None)

    @sr.function
    def f(x: sr.Tensor, y: sr.Tensor) -> sr.Tensor:
        first, second = odd_square(x, y)
        return first * 2.0 + second

    x, y = sr.constant([2.0, 4.0]), sr.constant([1.0, 1.0])
    with sr.GradientTape() as tape:
        tape.watch([x, y])
        z = f(x, y)
    by_x, by_y = tape.gradient(z, [x, y], unconnected_gradients="zero")
    np.testing.assert_allclose(z.numpy(), [9, 33])
    np.testing.assert_allclose(by_x.numpy(), [20, 40])
    np.testing.assert_allclose(by_y.numpy(), [0, 0])

    @sr.function
    def twice(x: sr.Tensor) -> sr.Tensor:
        with sr.GradientTape() as outer:
            outer.watch(x)
            with sr.GradientTape() as inner:
                inner.watch(x)
                first, _ = odd_square(x, x)
            grad = inner.gradient(first, x)
        return outer.gradient(grad, x)

    np.testing.assert_allclose(twice(x).numpy(), [5, 5])


def test_rows_are_updated_inside_of_functions() -> None:
    results = []
    for traced in (False, True):
        table = sr.Variable(np.arange(10, dtype=np.float32).reshape(5, 2))
        optimizer = sr.optimizers.Adam(0.1)

        def step(ids: sr.Tensor, table: sr.Variable = table, o: object = optimizer) -> None:
            with sr.GradientTape() as tape:
                loss = ops.reduce_sum(ops.square(sr.gather(table, ids)))
            grad = tape.gradient(loss, table)
            assert isinstance(grad, sr.IndexedSlices)
            o.apply_gradients([(grad, table)])

        run = sr.function(step) if traced else step
        for ids in ([1, 3, 1], [0, 1, 0], [4, 4, 4]):
            run(sr.constant(ids))
        results.append(table.numpy())
    np.testing.assert_allclose(results[1], results[0], rtol=1e-5)
    assert (results[0][2] == [4, 5]).all()


def test_gradients_of_graphs() -> None:
    model = sr.Model()
    x = model.input("x", sr.float32, (3,))
    y = x * x
    (grad,) = sr.gradients(y, [x])
    assert grad.shape == (-1, 3)
    with pytest.raises(errors.InvalidArgumentError, match="GradientTape"):
        sr.gradients(sr.constant(1.0), [sr.constant(1.0)])


def test_gradients_of_lookups_stay_rows() -> None:
    table = sr.Variable(np.arange(10, dtype=np.float32).reshape(5, 2))
    with sr.GradientTape() as tape:
        y = ops.reduce_sum(sr.gather(table, [1, 3, 1]) * 2.0) + ops.reduce_sum(
            sr.gather(table, [[0]])
        )
    grad = tape.gradient(y, table)
    assert isinstance(grad, sr.IndexedSlices)
    assert grad.indices.numpy().tolist() in ([0, 1, 3, 1], [1, 3, 1, 0])
    assert grad.values.shape == (4, 2)
    assert grad.dense_shape == (5, 2)
    dense = np.array([[1, 1], [4, 4], [0, 0], [2, 2], [0, 0]], np.float32)
    np.testing.assert_array_equal(grad.numpy(), dense)
    sr.optimizers.SGD(1.0).apply_gradients([(grad, table)])
    np.testing.assert_allclose(table.numpy(), np.arange(10).reshape(5, 2) - dense)
