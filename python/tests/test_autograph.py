"""Control flow of Python on tensors (autograph): TensorFlow runs the same functions beside."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from autograph_programs import BEYOND, GRADIENTS, PROGRAMS
from strategies import Servers, strategy_of

import sidereal as sr
import sidereal.v1 as v1
from sidereal import _conversion, errors
from sidereal.distribute.coordinator import ClusterCoordinator
from sidereal.keras import layers

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
needs_tensorflow = pytest.mark.skipif(find_spec("tensorflow") is None, reason="no TensorFlow")


def tensorflow() -> Any:
    import tensorflow as tf

    return tf


def results_of(tf: Any, function: Any, calls: Any) -> list[list[np.ndarray]]:
    """What calls of a function give, one after the other."""
    made = []
    for call in calls:
        arguments = [tf.constant(each) if isinstance(each, (np.ndarray, np.generic)) else each
                     for each in call]  # fmt: skip
        found = tf.nest.flatten(function(*arguments))
        made.append([np.asarray(each) for each in found])
    return made


@needs_tensorflow
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in BEYOND])
def test_functions_give_what_they_give_in_tensorflow(name: str) -> None:
    make, calls = PROGRAMS[name]
    tf = tensorflow()
    want = results_of(tf, tf.function(make(tf)), calls)
    got = results_of(sr, sr.function(make(sr)), calls)
    for ours, theirs in zip(got, want):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs):
            assert one.dtype == other.dtype
            np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "maximum_iterations"])
def test_functions_give_what_they_give_when_they_run_as_they_are(name: str) -> None:
    make, calls = PROGRAMS[name]
    got = results_of(sr, sr.function(make(sr)), calls)
    want = results_of(sr, make(sr), calls)
    for ours, theirs in zip(got, want):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs):
            np.testing.assert_allclose(one, other, rtol=1e-6)


def gradient_of(tf: Any, function: Any, value: Any) -> np.ndarray:
    x = tf.constant(value)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return np.asarray(tape.gradient(y, x))


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_finite_differences(name: str) -> None:
    make, values = GRADIENTS[name]
    function = sr.function(make(sr))
    for value in values:
        got = gradient_of(sr, function, value)
        flat = got.reshape(-1)
        for k in range(flat.size):
            change = np.zeros(flat.size)
            change[k] = 1e-6
            up, down = (
                float(function(sr.constant(value + sign * change.reshape(np.shape(value)))))
                for sign in (1, -1)
            )
            np.testing.assert_allclose(flat[k], (up - down) / 2e-6, rtol=1e-5, atol=1e-7)

        @sr.function
        def within(x: Any) -> Any:
            with sr.GradientTape() as tape:
                tape.watch(x)
                y = function(x)
            return tape.gradient(y, x)

        np.testing.assert_allclose(within(sr.constant(value)).numpy(), got, rtol=1e-12)


@needs_tensorflow
@pytest.mark.parametrize("name", [name for name in GRADIENTS if "returns" not in name])
def test_gradients_are_those_of_tensorflow(name: str) -> None:
    make, values = GRADIENTS[name]
    tf = tensorflow()
    for value in values:
        want = gradient_of(tf, tf.function(make(tf)), value)
        got = gradient_of(sr, sr.function(make(sr)), value)
        np.testing.assert_allclose(got, want, rtol=1e-12)


# --- Errors.


def one_branch(x: Any) -> Any:
    if x > 0.0:
        y = x
    return y


def other_dtype(x: Any) -> Any:
    if x > 0.0:
        y = 1
    else:
        y = 2.0
    return y


def none_in_a_branch(x: Any) -> Any:
    y = None
    if x > 0.0:
        y = x
    return y


def other_nesting(x: Any) -> Any:
    y: Any = x
    if x > 0.0:
        y = (x, x)
    return y


def no_return(x: Any) -> Any:  # noqa: RET503 - that is what it is for
    if x > 0.0:
        return x


def no_return_after_some(x: Any) -> Any:  # noqa: RET503 - that is what it is for
    if x > 5.0:
        return x
    if x > 0.0:
        if x > 1.0:
            return -x
        x = x + 1.0


def other_dtype_in_loop(x: Any) -> Any:
    y = 0
    while x > 0.0:
        y = 1.5
        x -= 1.0
    return y


def other_shape_in_loop(x: Any) -> Any:
    y = sr.constant([1.0])
    while x > 0.0:
        y = sr.concat([y, y], 0)
        x -= 1.0
    return y


def growing_tuple(x: Any) -> Any:
    y = (x,)
    while x > 0.0:
        y = (*y, x)
        x -= 1.0
    return y


def other_object(x: Any) -> Any:
    y = sr.tanh
    if x > 0.0:
        y = sr.square
    return y(x)


def vector_condition(x: Any) -> Any:
    if sr.stack([x, x]) > 0.0:
        x = -x
    return x


def name_error(x: Any) -> Any:
    for i in sr.range(3):
        if x > 0.0:
            x = x + unknown_name + i  # noqa: F821
    return x


def rows_of_a_scalar(x: Any) -> Any:
    for _ in x:
        pass
    return x


@pytest.mark.parametrize(
    ("function", "error", "line", "words"),
    [
        (one_branch, ValueError, 1, "'y' .* initialized in the else branch"),
        (other_dtype, TypeError, 1, "'y' .* one dtype .* int32 in one and float32"),
        (none_in_a_branch, ValueError, 2, "'y' is a tensor of float32 .* None in the else"),
        (other_nesting, TypeError, 2, "'y' .* nested in the same way"),
        (no_return, ValueError, 1, "returned from the else branch"),
        (no_return_after_some, ValueError, None, "returned from the else branch"),
        (other_dtype_in_loop, TypeError, 2, "'y' has dtype int32 .* float32 after a round"),
        (other_shape_in_loop, ValueError, 2, r"'y' has shape \(1,\) .* \(2,\) .*shape_invariants"),
        (growing_tuple, TypeError, 2, "'y' is a tuple of 1 .* a tuple of 2"),
        (other_object, TypeError, 2, "'y' is a function"),
        (vector_condition, ValueError, 1, r"\(2,\).*scalar"),
        (name_error, NameError, 3, "unknown_name"),
        (rows_of_a_scalar, TypeError, 1, "scalar tensor"),
    ],
)
def test_errors_name_the_variable_and_the_line(
    function: Any, error: Any, line: int | None, words: str
) -> None:
    with pytest.raises(error, match=words) as caught:
        sr.function(function)(sr.constant(2.0))
    if line is None:
        return
    at = function.__code__.co_firstlineno + line
    frames = [
        frame for frame in traceback.extract_tb(caught.value.__traceback__)
        if frame.filename == __file__ and frame.name == function.__name__
    ]  # fmt: skip
    assert frames[-1].lineno == at
    if error is not NameError:
        assert f"line {at}" in str(caught.value)


def test_assertions_are_checked_when_the_graph_runs() -> None:
    @sr.function
    def checked(x: Any, kind: str) -> Any:
        assert kind in ("a", "b"), f"kind {kind}"
        assert x > 0.0, "x must be positive"
        return x

    assert float(checked(sr.constant(2.0), "a")) == 2
    with pytest.raises(errors.InvalidArgumentError, match="x must be positive"):
        checked(sr.constant(-2.0), "a")
    with pytest.raises(AssertionError, match="kind c"):
        checked(sr.constant(2.0), "c")


def test_a_loop_that_gives_a_variable_its_value_must_run() -> None:
    @sr.function
    def last(n: Any) -> Any:
        for i in sr.range(n):
            found = i * 2
        return found

    assert int(last(sr.constant(3))) == 4
    with pytest.raises(errors.InvalidArgumentError, match="at least once to give 'found' a value"):
        last(sr.constant(0))


def test_values_of_a_loop_do_not_leave_it_by_lists() -> None:
    @sr.function
    def collected(x: Any) -> Any:
        found = []
        while x > 0.0:
            found.append(x)
            x -= 1.0
        return found[0]

    with pytest.raises(errors.InaccessibleTensorError, match="assign it to a variable"):
        collected(sr.constant(2.0))


def test_what_happens_when_a_graph_runs_has_the_line_of_the_program() -> None:
    @sr.function
    def inside(x: Any, i: Any) -> Any:
        if i >= 0:
            x = sr.gather(x, i)
        return x

    with pytest.raises(errors.InvalidArgumentError) as caught:
        inside(sr.constant([[1.0], [2.0]]), sr.constant(7))
    assert "x = sr.gather(x, i)" in str(caught.value)


# --- What is rewritten, and what is not.


def test_python_without_tensors_is_what_it_was() -> None:
    seen: list[Any] = []

    def places(*args: int, step: int = 1, **rest: Any) -> list[int]:
        found = [each * step for each in args if each % 2 or step > 1]
        for index, each in enumerate(found):
            if each > 100:
                break
            if not each:
                continue
            seen.append((index, each))
        while len(found) < 6 and rest.get("pad") is not None:
            found.append(rest["pad"])
        low, *others = sorted(found) or [0]
        return [low, *others] if 0 <= low < sum(found) < 1000 else []

    @sr.function
    def run(x: Any) -> Any:
        seen.append(places(1, 2, 3, step=2, pad=7))
        seen.append(max(places(5, 200), default=0))
        seen.append({key: value for key, value in zip("ab", range(2)) if value or key})
        try:
            seen.append(next(iter([])))
        except StopIteration:
            seen.append("end")
        with contextlib.suppress(KeyError):
            seen.append({}["x"])
        return x

    run(sr.constant(1.0))
    traced, seen[:] = list(seen), []
    run.python_function(sr.constant(1.0))
    assert traced == seen


def test_generators_and_libraries_are_not_rewritten() -> None:
    def numbers(n: int) -> Iterator[int]:
        for i in range(n):
            if i != 1:
                yield i

    @sr.function
    def run(x: Any) -> Any:
        for i in numbers(3):
            x = x + float(i) + float(np.sum(np.arange(i)))
        return x, json.dumps([1]) == "[1]"

    assert float(run(sr.constant(1.0))[0]) == 4
    assert _conversion.callee(json.dumps) is json.dumps
    assert _conversion.callee(np.sum) is np.sum
    assert _conversion.callee(sr.square) is sr.square
    assert _conversion.callee(numbers) is numbers


def test_do_not_convert_leaves_a_function_and_what_it_calls() -> None:
    def inner(x: Any) -> Any:
        return x if x > 0.0 else -x

    @sr.autograph.experimental.do_not_convert
    def outer(x: Any) -> Any:
        return inner(x)

    for function in (outer, sr.function(inner, autograph=False), sr.function(outer)):
        with pytest.raises(errors.SymbolicError, match=r"sidereal\.cond"):
            sr.function(lambda x, f=function: f(x))(sr.constant(1.0))
    assert float(sr.function(lambda x: inner(x))(sr.constant(-1.0))) == 1


def test_decorated_functions_and_methods_are_rewritten() -> None:
    def twice(function: Any) -> Any:
        @functools.wraps(function)
        def call(*args: Any) -> Any:
            once = function(*args)
            return once + function(*args) if once > 0.0 else once

        return call

    class Model(sr.Module):
        @twice
        def helper(self, x: Any) -> Any:
            if x > 1.0:
                return x * 2.0
            return x

        @sr.function
        def run(self, x: Any) -> Any:
            return self.helper(x)

        @property
        def limit(self) -> float:
            return 3.0

        def __call__(self, x: Any) -> Any:
            while x < self.limit:
                x = x + 1.0
            return x

    model = Model()
    assert [float(model.run(sr.constant(x))) for x in (2.0, 0.5, -1.0)] == [8, 1, -1]
    assert float(sr.function(model)(sr.constant(0.5))) == 3.5


@pytest.mark.skipif(sys.version_info < (3, 11), reason="code has no columns")
def test_of_lambdas_on_a_line_each_is_itself() -> None:
    one, other = lambda x: x if x > 0.0 else -x, lambda x: x * 3.0 if x > 0.0 else x
    assert [float(sr.function(each)(sr.constant(2.0))) for each in (one, other)] == [2, 6]


def test_a_function_without_source_runs_as_it_is() -> None:
    scope: dict[str, Any] = {}
    exec("def plain(x):\n  return x * 2.0\ndef choose(x):\n  return x if x > 0.0 else -x", scope)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert float(sr.function(scope["plain"])(sr.constant(2.0))) == 4
    run = sr.function(scope["choose"])
    with pytest.warns(sr.autograph.AutographWarning, match=r"choose\(\).*source is not available"):
        with pytest.raises(errors.SymbolicError):
            run(sr.constant(2.0))


def test_what_cannot_be_rewritten_is_told_of_once() -> None:
    def with_class(x: Any, names: Any) -> Any:
        class Found(dict):
            pass

        if "b" not in Found.fromkeys(names):
            x = x + 1.0
        return x

    run = sr.function(with_class)
    with pytest.warns(sr.autograph.AutographWarning, match="cannot be rewritten: ClassDef"):
        assert float(run(sr.constant(2.0), ("a",))) == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert float(run(sr.constant(2.0), ("a", "b"))) == 2


def test_code_is_rewritten_once_whatever_closures_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    rewrite = _conversion.rewrite
    monkeypatch.setattr(
        _conversion, "rewrite", lambda function: found.append(function) or rewrite(function)
    )

    def make(scale: float) -> Any:
        def scaled(x: Any) -> Any:
            return x * scale if x > 0.0 else x

        return scaled

    values = [float(sr.function(make(float(k)))(sr.constant(1.0))) for k in range(4)]
    assert values == [0, 1, 2, 3]
    assert [each.__name__ for each in found] == ["scaled"]


def test_threads_may_rewrite_one_function_at_once() -> None:
    def make() -> Any:
        def looped(x: Any, n: Any) -> Any:
            for i in sr.range(n):
                if i % 2 == 0:
                    x = x + 1.0
            return x

        return looped

    start = threading.Barrier(6)

    def run() -> float:
        start.wait(60)
        return float(sr.function(make())(sr.constant(0.0), sr.constant(5)))

    with ThreadPoolExecutor(6) as pool:
        found = [each.result(60) for each in [pool.submit(run) for _ in range(6)]]
    assert found == [3.0] * 6


def test_code_can_be_seen() -> None:
    def choose(x: Any) -> Any:
        if x > 0.0:
            x = -x
        return x

    code = sr.autograph.to_code(choose)
    assert "if_stmt" in code and "def ag__choose(x):" in code
    graph = sr.autograph.to_graph(choose)
    assert float(graph(sr.constant(2.0))) == -2
    assert float(sr.function(graph, autograph=False)(sr.constant(2.0))) == -2
    assert sr.autograph.to_code(sr.function(choose)) == code
    with pytest.raises(TypeError, match="functions"):
        sr.autograph.to_code(3)
    scope: dict[str, Any] = {}
    exec("def hidden(x):\n  return x if x > 0 else -x", scope)
    with pytest.raises(ValueError, match="source is not available"):
        sr.autograph.to_graph(scope["hidden"])


def test_functions_that_run_eagerly_run_as_they_are() -> None:
    seen = []

    @sr.function
    def run(x: Any) -> Any:
        if x > 0.0:
            seen.append(type(x))
        return x

    sr.config.run_functions_eagerly(True)
    try:
        run(sr.constant(1.0))
    finally:
        sr.config.run_functions_eagerly(False)
    assert seen == [sr.Tensor]


def test_graphs_of_v1_are_as_they_were() -> None:
    with v1.Graph().as_default():
        x = v1.placeholder("float32", [])

        def choose(value: Any) -> Any:
            return value if value > 0.0 else -value

        with pytest.raises(errors.SymbolicError):
            choose(x)
        y = sr.function(choose)(x)
        with v1.Session() as session:
            assert session.run(y, {x: -3.0}) == 3


# --- Where else functions are traced.


def test_functions_of_datasets_are_rewritten() -> None:
    def collatz(n: Any) -> Any:
        steps = sr.constant(0, "int64")
        while n > 1:
            if n % 2 == 0:
                n = n // 2
            else:
                n = n * 3 + 1
            steps += 1
        return steps

    data = sr.data.Dataset.range(1, 7).map(collatz).filter(lambda n: n > 0 and n < 8)
    assert [int(each) for each in data] == [1, 7, 2, 5]

    def plus(total: Any, each: Any) -> Any:
        if each > 2:
            total += each
        return total

    zero = sr.constant(0, "int64")
    assert int(data.reduce(zero, plus)) == 12
    assert int(sr.function(lambda: data.reduce(zero, plus))()) == 12


class Gate(layers.Layer):
    """A layer whose call() depends on values."""

    def build(self, input_shape: Any) -> None:
        self.w = self.add_weight((input_shape[-1], 2), "ones", name="w")
        self.count = self.add_weight((), "zeros", trainable=False, name="count")

    def call(self, x: Any, training: bool | None = None) -> Any:
        y = sr.matmul(x, self.w)
        if training:
            y = y * 2.0
        if sr.reduce_sum(y) > 0.0:
            y = -y
            self.count.assign_add(1.0)
        return y


def test_layers_models_and_losses_of_keras_are_rewritten() -> None:
    class Net(sr.keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.steps = Gate(), sr.Variable(0, trainable=False)

        def call(self, x: Any, training: bool | None = None) -> Any:
            y = self.gate(x, training=training)
            for i in sr.range(2):
                y = y + sr.cast(i, "float32")
            return y

        def train_step(self, data: Any) -> Any:
            x, y = data[:2]
            with sr.GradientTape() as tape:
                loss = loss_of(y, self(x, training=True))
            gradients = tape.gradient(loss, self.trainable_variables)
            if loss > 0.5:
                self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
                self.steps.assign_add(1)
            return {"loss": loss}

    def loss_of(y: Any, found: Any) -> Any:
        loss = sr.reduce_mean(sr.square(y - found))
        if loss > 1.0:
            loss = sr.sqrt(loss)
        return loss

    x, y = np.ones((8, 3), np.float32), np.zeros((8, 2), np.float32)
    found = []
    for eagerly in (False, True):
        net = Net()
        net.compile(sr.keras.optimizers.SGD(0.01), loss=loss_of, run_eagerly=eagerly)
        found.append(net.fit(x, y, batch_size=4, epochs=3, verbose=0).history["loss"])
        assert int(net.steps) == 6 and float(net.gate.count) == 6
        assert net.evaluate(x, y, verbose=0) > 0
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)

    inputs = sr.keras.Input((3,))
    doubled = layers.Lambda(lambda v: v if sr.reduce_sum(v) > 0.0 else v * 2.0)
    whole = sr.keras.Model(inputs, doubled(Gate()(inputs)))
    np.testing.assert_allclose(sr.function(whole)(sr.constant(x)).numpy(), np.full((8, 2), -6.0))


@pytest.mark.parametrize("name", ["SGD", "Adam", "Adagrad"])
def test_a_training_loop_over_a_dataset_is_one_function(name: str) -> None:
    rng = np.random.default_rng(0)
    xs = rng.normal(size=(64, 3)).astype(np.float32)
    ys = xs @ np.float32([[1.0], [2.0], [3.0]])
    ids = rng.integers(0, 9, 64)

    def trained(traced: bool) -> Any:
        w = sr.Variable(np.zeros((3, 1), np.float32))
        rows = sr.Variable(np.zeros((9, 1), np.float32))
        optimizer = getattr(sr.keras.optimizers, name)(0.1)
        data = sr.data.Dataset.from_tensor_slices((xs, ids, ys)).batch(8)

        def epoch(limit: Any) -> Any:
            loss, steps = sr.constant(0.0), 0
            for x, i, y in data:
                with sr.GradientTape() as tape:
                    found = sr.matmul(x, w) + sr.gather(rows, i)
                    loss = sr.reduce_mean(sr.square(found - y))
                gradients = tape.gradient(loss, [w, rows])
                if loss < limit:
                    break
                optimizer.apply_gradients(zip(gradients, [w, rows]))
                steps += 1
            return loss, steps

        run = sr.function(epoch) if traced else epoch
        made = [[float(each) for each in run(sr.constant(0.5))] for _ in range(8)]
        return [*made, w.numpy().ravel(), rows.numpy().ravel()]

    ours, want = trained(True), trained(False)
    assert ours[0][1] == 8 and ours[0][0] > ours[7][0]
    for one, other in zip(ours, want):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


# --- On a cluster.


@pytest.fixture(scope="module")
def coordinator() -> Iterator[ClusterCoordinator]:
    servers = Servers(1, 2)
    yield ClusterCoordinator(strategy_of(servers.cluster))
    servers.stop()


def test_scheduled_functions_are_rewritten(coordinator: ClusterCoordinator) -> None:
    strategy = coordinator.strategy
    with strategy.scope():
        w = sr.Variable([1.0, 1.0])
        steps = sr.Variable(0)

    def replica(x: Any) -> Any:
        if x > 0.0:
            w.assign_add([x, x])
            steps.assign_add(1)
        total = sr.constant(0.0)
        for each in w.read_value():
            total += each * x
        return total

    @sr.function
    def step(x: Any) -> Any:
        found = strategy.run(replica, args=(x,))
        if found > 100.0:
            return found - 100.0
        return found

    values = [coordinator.schedule(step, (sr.constant(x),)).fetch() for x in (2.0, -1.0)]
    np.testing.assert_allclose(values, [12, -6])
    coordinator.join()
    assert int(steps) == 1
    np.testing.assert_allclose(w.numpy(), [3, 3])
    # Called here, it runs with the coordinator's session.
    assert float(step(sr.constant(20.0))) == 20 * 46 - 100


def test_scheduled_functions_loop_over_iterators_of_workers(
    coordinator: ClusterCoordinator,
) -> None:
    data = coordinator.create_per_worker_dataset(lambda: sr.data.Dataset.range(5))

    @sr.function
    def total(iterator: Any) -> Any:
        found = sr.constant(0, "int64")
        for each in iterator:
            if each == 3:
                break
            found += each
        return found

    assert int(coordinator.schedule(total, (iter(data),)).fetch()) == 3
    coordinator.join()
