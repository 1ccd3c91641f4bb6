"""Conditionals and loops: at once, in graphs, and their gradients in both."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from graphs import gradients_of, in_graph

import sidereal as sr
from sidereal import errors
from sidereal._dispatch import apply
from sidereal.keras import layers
from sidereal.ops import basic as ops


def both(function: Callable[..., Any], *arrays: Any) -> list[np.ndarray]:
    """What the function gives at once, after checking that a graph gives the same bits."""
    values = [sr.constant(array) for array in arrays]
    at_once = [x.numpy() for x in sr.nest.flatten(function(*values))]
    for known in (True, False):
        traced = [x.numpy() for x in in_graph(function, values, known)]
        assert len(at_once) == len(traced)
        for a, b in zip(at_once, traced):
            np.testing.assert_array_equal(a, b)
    return at_once


def gradients_agree(function: Callable[..., Any], *arrays: Any) -> list[np.ndarray]:
    """Gradients of the sum of what the function gives: tape and graph, and finite differences."""
    values = [sr.constant(array) for array in arrays]
    with sr.GradientTape() as tape:
        tape.watch(values)
        total = function(*values)
    at_once = [g.numpy() for g in tape.gradient(total, values, unconnected_gradients="zero")]
    for a, b in zip(at_once, gradients_of(function, values)):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    for index, array in enumerate(arrays):
        flat = array.reshape(-1)
        for k in range(flat.size):
            change = np.zeros(array.size)
            change[k] = 1e-6
            ends = []
            for sign in (1, -1):
                moved = [sr.constant(a) for a in arrays]
                moved[index] = sr.constant(array + sign * change.reshape(array.shape))
                ends.append(float(np.sum(function(*moved).numpy())))
            difference = (ends[0] - ends[1]) / 2e-6
            np.testing.assert_allclose(
                at_once[index].reshape(-1)[k], difference, rtol=1e-5, atol=1e-7
            )
    return at_once


X = np.array([[0.3, -0.2], [0.5, 0.1], [-0.4, 0.7]])


def concat(values: Any, axis: int) -> Any:
    return apply("Concat", values, {"axis": axis})


def positive(x: Any) -> Any:
    return sr.cast(ops.relu(x), sr.bool_)


@pytest.mark.parametrize("flag", [1.5, -1.5])
def test_cond_takes_one_branch(flag: float) -> None:
    def choose(p: Any, x: Any) -> Any:
        return sr.cond(positive(p), lambda: {"a": x * 2.0, "b": x}, lambda: {"a": -x, "b": x * x})

    a, b = both(choose, np.float64(flag), X)
    np.testing.assert_array_equal(a, X * 2 if flag > 0 else -X)
    np.testing.assert_array_equal(b, X if flag > 0 else X * X)
    gradients_agree(
        lambda x: sr.cond(positive(sr.constant(flag)), lambda: ops.tanh(x) * x, lambda: x), X
    )


def test_cond_takes_python_bools_and_numbers() -> None:
    assert float(sr.cond(True, lambda: sr.constant(1.0), lambda: sr.constant(2.0))) == 1
    assert float(sr.cond(sr.constant(0), lambda: sr.constant(1.0), lambda: sr.constant(2.0))) == 2


def test_branches_must_agree() -> None:
    def structures(p: Any) -> Any:
        return sr.cond(p, lambda: (p, p), lambda: p)

    def types(p: Any) -> Any:
        return sr.cond(p, lambda: sr.cast(p, "float32"), lambda: p)

    flag = [sr.constant(True)]
    with pytest.raises(TypeError, match="must return the same structure"):
        in_graph(structures, flag)
    with pytest.raises(TypeError, match="float32 from true_fn and bool from false_fn; cast one"):
        in_graph(types, flag)
    with pytest.raises(TypeError, match="true_fn must be a function"):
        sr.cond(flag[0], 1, 2)


def test_case_takes_the_first_that_is_true() -> None:
    def choose(a: Any, b: Any, x: Any) -> Any:
        pairs = [(positive(a), lambda: x * 2.0), (positive(b), lambda: x * 3.0)]
        return sr.case(pairs, default=lambda: x)

    for a, b, times in [(1, 1, 2), (-1, 1, 3), (-1, -1, 1)]:
        (y,) = both(choose, np.float64(a), np.float64(b), X)
        np.testing.assert_array_equal(y, X * times)
    one = sr.constant(1.0)
    with pytest.raises(sr.errors.InvalidArgumentError, match="no predicate is true"):
        sr.case([(positive(-one), lambda: one)])
    with pytest.raises(sr.errors.InvalidArgumentError, match="2 predicates are true"):
        sr.case([(one, lambda: one), (one, lambda: one)], exclusive=True)


@pytest.mark.parametrize("index", [-1, 0, 1, 2, 9])
def test_switch_case_takes_a_branch_by_number(index: int) -> None:
    def choose(i: Any, x: Any) -> Any:
        return sr.switch_case(i, [lambda: x, lambda: x * 2.0, lambda: x * 3.0])

    def with_default(i: Any, x: Any) -> Any:
        return sr.switch_case(i, {0: lambda: x, 2: lambda: x * 3.0}, default=lambda: -x)

    at = np.int32(index)
    (y,) = both(choose, at, X)
    np.testing.assert_array_equal(y, X * {0: 1, 1: 2}.get(index, 3))
    (y,) = both(with_default, at, X)
    np.testing.assert_array_equal(y, X * {0: 1, 2: 3}.get(index, -1))


def countdown(n: Any, body: Callable[[Any], Any], x: Any, **options: Any) -> Any:
    return sr.while_loop(
        lambda i, y: positive(i), lambda i, y: (i - 1.0, body(y)), (n, x), **options
    )[1]


@pytest.mark.parametrize("n", [0, 1, 3, 100])
def test_while_loop_repeats(n: int) -> None:
    (y,) = both(lambda n, x: countdown(n, lambda y: y * 0.9 + x, x), np.float64(n), X)
    want = X
    for _ in range(n):
        want = want * 0.9 + X
    np.testing.assert_allclose(y, want, rtol=1e-14)


def test_while_loop_keeps_structure_and_dtypes() -> None:
    def loop(x: Any) -> Any:
        return sr.while_loop(
            lambda s, flag: flag,
            lambda s, flag: [{"n": s["n"] + 1, "x": s["x"] + x}, sr.cast(3 - s["n"], sr.bool_)],
            [{"n": sr.constant(0), "x": x}, sr.constant(True)],
        )

    n, x, flag = both(loop, X)
    assert n.dtype == np.int32 and n == 4 and not flag
    np.testing.assert_allclose(x, X * 5)


@pytest.mark.parametrize("limit", [0, 2])
def test_while_loop_is_bounded(limit: int) -> None:
    (y,) = both(lambda x: countdown(99.0 + 0.0 * x[0, 0], lambda y: y + 1.0, x,
                                    maximum_iterations=limit), X)
    np.testing.assert_array_equal(y, X + limit)


def test_the_bound_of_a_loop_may_be_a_value() -> None:
    def loop(n: Any, x: Any) -> Any:
        return sr.while_loop(
            lambda y: sr.constant(True), lambda y: y + 1.0, [x], maximum_iterations=n
        )

    (y,) = both(loop, np.int32(3), X)
    np.testing.assert_array_equal(y, X + 3)


def test_shapes_change_within_the_invariant() -> None:
    def grow(n: Any, x: Any) -> Any:
        return countdown(n, lambda y: concat([y, y], 0), x, shape_invariants=[(), (None, 2)])

    (y,) = both(grow, np.float64(3), X)
    assert y.shape == (24, 2)
    with pytest.raises(sr.errors.InvalidArgumentError, match="shape_invariants"):
        in_graph(lambda x: countdown(3.0, lambda y: concat([y, y], 0), x), [sr.constant(X)])


def test_loops_say_what_is_wrong() -> None:
    x = sr.constant(X)
    for run in (lambda f: f(x), lambda f: in_graph(f, [x])):
        with pytest.raises(
            TypeError, match="loop variable 1 is float64 and the body makes it float32"
        ):
            run(lambda x: countdown(3.0, lambda y: sr.cast(y, "float32"), x))
        with pytest.raises(ValueError, match="nested like loop_vars"):
            run(lambda x: sr.while_loop(lambda y: True, lambda y: (y, y), [x]))
    with pytest.raises(TypeError, match="list or tuple"):
        sr.while_loop(lambda y: False, lambda y: y, x)


def test_gradients_flow_through_loops_and_what_they_capture() -> None:
    w = np.array([[0.2, -0.3], [0.1, 0.4]])
    gradients_agree(lambda x, w: countdown(4.0, lambda y: ops.tanh(y @ w + x), x), X, w)
    gradients_agree(
        lambda x, w: countdown(
            2.0, lambda y: countdown(3.0, lambda z: ops.sigmoid(z @ w), y) * y, x
        ),
        X,
        w,
    )


def test_scan_gives_every_state() -> None:
    (y,) = both(lambda x: sr.scan(lambda a, e: a * 0.5 + e, x, sr.constant(np.zeros(2))), X)
    want, state = [], np.zeros(2)
    for row in X:
        state = state * 0.5 + row
        want.append(state)
    np.testing.assert_allclose(y, want)


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_begins_with_the_first_row(reverse: bool) -> None:
    (y,) = both(lambda x: sr.scan(lambda a, e: a + e, x, reverse=reverse), X)
    want = np.cumsum(X[::-1], axis=0)[::-1] if reverse else np.cumsum(X, axis=0)
    np.testing.assert_allclose(y, want, rtol=1e-14)


def test_scan_takes_nested_values() -> None:
    def loop(x: Any) -> Any:
        return sr.scan(
            lambda s, e: (s[0] + e["a"], s[1] * e["b"]),
            {"a": x, "b": x + 1.0},
            (sr.constant(np.zeros(2)), sr.constant(np.ones(2))),
        )

    a, b = both(loop, X)
    np.testing.assert_allclose(a, np.cumsum(X, axis=0))
    np.testing.assert_allclose(b, np.cumprod(X + 1, axis=0))
    gradients_agree(lambda x: loop(x)[0] * loop(x)[1], X)


def test_folds_give_the_last_state() -> None:
    zero = np.zeros(2)
    (left,) = both(lambda x: sr.foldl(lambda a, e: a * 2.0 + e, x, sr.constant(zero)), X)
    np.testing.assert_allclose(left, X[0] * 4 + X[1] * 2 + X[2])
    (right,) = both(lambda x: sr.foldr(lambda a, e: a * 2.0 + e, x), X)
    np.testing.assert_allclose(right, X[2] * 4 + X[1] * 2 + X[0])


def test_map_fn_works_row_by_row() -> None:
    (y,) = both(lambda x: sr.map_fn(lambda row: row * row, x), X)
    np.testing.assert_array_equal(y, X * X)
    a, b = both(lambda x: sr.map_fn(lambda e: (e[0] + e[1], e[0]), (x, x * 2.0)), X)
    np.testing.assert_allclose(a, X * 3)
    np.testing.assert_array_equal(b, X)
    gradients_agree(lambda x: sr.map_fn(lambda row: ops.tanh(row) * row, x), X)
    with pytest.raises(TypeError, match="fn_output_signature says int32"):
        sr.map_fn(lambda row: row, sr.constant(X), fn_output_signature=sr.int32)


def test_loops_over_no_rows() -> None:
    # Of loops that never run only the shapes known before are known.
    none = sr.constant(np.zeros((0, 2)))
    for loop in (
        lambda x: sr.map_fn(lambda row: row * 2.0, x),
        lambda x: sr.scan(lambda a, e: a + e, x, sr.constant(np.zeros(2))),
    ):
        assert loop(none).shape == (0, 2)
        assert in_graph(loop, [none])[0].shape == (0, 2)
    with pytest.raises(sr.errors.InvalidArgumentError, match="no rows"):
        sr.scan(lambda a, e: a + e, none)


def test_second_derivatives_of_a_loop() -> None:
    def loop(x: Any) -> Any:
        return sr.foldl(lambda a, e: a * e + a * a, x)

    x = sr.constant(X)

    def twice(x: Any) -> Any:
        with sr.GradientTape() as outer:
            outer.watch(x)
            with sr.GradientTape() as inner:
                inner.watch(x)
                y = loop(x)
            (g,) = inner.gradient(y, [x])
            g = g * g
        return outer.gradient(g, [x])

    at_once = twice(x)[0].numpy()
    traced = in_graph(twice, [x])[0].numpy()
    np.testing.assert_allclose(traced, at_once, rtol=1e-12)
    assert np.abs(at_once).max() > 0


def test_a_loop_that_never_ends_can_be_interrupted() -> None:
    @sr.function
    def forever(x: Any) -> Any:
        return sr.while_loop(lambda y: True, lambda y: y + 1.0, [x])

    signal.setitimer(signal.ITIMER_REAL, 0.2)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            forever(sr.constant(0.0))
    finally:
        signal.signal(signal.SIGALRM, before)
    # And what was interrupted can be called again.
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(KeyboardInterrupt):
            forever(sr.constant(0.0))
    finally:
        signal.signal(signal.SIGALRM, before)


def test_an_error_in_a_body_names_the_loop_and_the_iteration() -> None:
    def loop(x: Any) -> Any:
        return sr.while_loop(
            lambda y: True,
            lambda y: concat([y, y], 0),
            [x],
            shape_invariants=[(None, 2)],
            maximum_iterations=3,
        )[0] + sr.map_fn(lambda row: row, x)

    with pytest.raises(sr.errors.InvalidArgumentError):
        in_graph(loop, [sr.constant(X)])


def test_a_model_of_a_cluster_may_have_branches_and_loops() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1000, 6)).astype(np.float32)
    label = (x.sum(axis=1) > 0).astype(np.float32)
    model = sr.Model(seed=1)
    hidden = layers.Dense(8, "relu")(model.input("x", sr.float32, (6,)))
    hidden = sr.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, sr.tanh(y)), (0, hidden))[1]
    some = sr.reduce_sum(hidden) > 0.0
    hidden = sr.cond(some, lambda: sr.map_fn(lambda row: row * 2.0, hidden), lambda: hidden)
    model.compile(layers.Dense(1)(hidden), optimizer=sr.optimizers.Adagrad(0.2))
    with sr.LocalCluster(ps=2, workers=1, in_process=True) as cluster:
        result = model.fit({"x": x, "label": label}, cluster=cluster, epochs=4, batch_size=100)
    assert result.loss < 0.4


def test_variables_are_assigned_to_in_branches_and_loops() -> None:
    v, w = sr.Variable(1.0), sr.Variable([1.0, 2.0])

    @sr.function
    def run(x: Any) -> Any:
        before = v.read_value()
        sr.cond(x > 0.0, lambda: v.assign_add(x).read_value(), lambda: -x)

        def step(i: Any, total: Any) -> Any:
            w.assign(w * 2.0)
            sr.cond(total > 4.0, lambda: v.assign(0.0).read_value(), lambda: total)
            return i + 1, total + before + sr.reduce_sum(w)

        total = sr.while_loop(lambda i, total: i < 3, step, (0, v.read_value()))[1]
        return total, before, v.read_value()

    assert [float(each) for each in run(sr.constant(2.0))] == [3 + 3 + 6 + 12 + 24, 1, 0]
    assert float(v) == 0 and w.numpy().tolist() == [8, 16]
    run(sr.constant(-1.0))
    assert float(v) == 0 and w.numpy().tolist() == [64, 128]


def test_variables_that_change_in_a_loop_have_no_gradient_from_there() -> None:
    v, w = sr.Variable(3.0), sr.Variable(3.0, trainable=False)

    def run(u: Any, x: Any) -> Any:
        with sr.GradientTape() as tape:
            y = v * x

            def step(i: Any, y: Any) -> Any:
                u.assign_add(1.0)
                return i + 1, y * u

            y = sr.while_loop(lambda i, y: i < 2, step, (0, y))[1]
        return y, tape.gradient(y, v)

    assert [float(each) for each in sr.function(lambda x: run(w, x))(sr.constant(2.0))] == [120, 40]
    with pytest.raises(errors.UnimplementedError, match="read there, with a GradientTape around"):
        sr.function(lambda x: run(v, x))(sr.constant(2.0))


def test_mapped_functions_cannot_assign_to_variables() -> None:
    v = sr.Variable(1.0)
    run = sr.function(lambda x: sr.map_fn(lambda row: v.assign(row).read_value(), x))
    with pytest.raises(errors.UnimplementedError, match="mapped or scanned"):
        run(sr.constant([1.0, 2.0]))
