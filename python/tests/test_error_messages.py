"""The errors a user meets: each names the op, its line of the program, the shapes, and what to
do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import sidereal as sr
import sidereal.v1 as v1
from sidereal import errors, ops
from sidereal._dispatch import apply


def shapes_at_once() -> None:
    sr.constant([[1.0, 2.0]]) @ sr.constant([[1.0, 2.0, 3.0]])  # the line


def shapes_while_traced() -> None:
    @sr.function
    def f(x: sr.Tensor, y: sr.Tensor) -> sr.Tensor:
        return x + y  # the line

    f(sr.constant([1.0, 2.0]), sr.constant([1.0, 2.0, 3.0]))


def shapes_when_run() -> None:
    @sr.function(input_signature=[sr.TensorSpec([None]), sr.TensorSpec([None])])
    def f(x: sr.Tensor, y: sr.Tensor) -> sr.Tensor:
        return x * y  # the line

    f(sr.constant([1.0, 2.0]), sr.constant([1.0, 2.0, 3.0]))


def dtypes_at_once() -> None:
    sr.constant([1.0]) + sr.constant(np.ones(1))  # the line


def dtypes_in_a_graph() -> None:
    x = v1.placeholder(v1.float32, [2], name="x")
    y = v1.placeholder(v1.float64, [2], name="y")
    x * y  # the line


def dtype_of_a_variable() -> None:
    v = sr.Variable([1.0])
    v.assign(sr.constant(np.ones(1)))


def an_unknown_op() -> None:
    apply("MatMull", (sr.constant(1.0),))  # the line


def an_unknown_attribute() -> None:
    apply("ReduceSum", (sr.constant([1.0]),), {"axes": [0], "keepdim": True})  # the line


def a_wrong_attribute() -> None:
    apply("ReduceSum", (sr.constant([1.0]),), {"axes": "zero"})  # the line


def an_axis_out_of_range() -> None:
    ops.reduce_sum(sr.constant([1.0]), [3])  # the line


def too_few_inputs() -> None:
    apply("Add", (sr.constant(1.0),))  # the line


def gradient_of_an_op_without_one_at_once() -> None:
    x = sr.constant([1.0, 2.0])
    with sr.GradientTape() as tape:
        tape.watch(x)
        y = apply(_PLAIN, (x,))  # the line
    tape.gradient(y, x)


def gradient_of_an_op_without_one_in_a_graph() -> None:
    x = v1.placeholder(v1.float32, [2], name="x")
    with v1.get_default_graph().building():
        y = apply(_PLAIN, (x,))
    v1.gradients(y, [x])  # the line


#: An op of one input that has no gradient.
_PLAIN = "Trigamma"


def a_feed_of_another_shape() -> None:
    x = v1.placeholder(v1.float32, [None, 3], name="x")  # the line
    v1.Session().run(x * 2.0, {x: np.ones((2, 2), np.float32)})


def a_feed_of_another_dtype() -> None:
    x = v1.placeholder(v1.int32, [None], name="x")  # the line
    v1.Session().run(x, {x: [1.5, 2.5]})


def a_placeholder_that_is_not_fed() -> None:
    x = v1.placeholder(v1.float32, [None, 3], name="x")  # the line
    v1.Session().run(x * 2.0)


def an_index_out_of_range() -> None:
    sr.gather(sr.constant([1.0, 2.0]), [5])  # the line


def an_index_out_of_range_when_run() -> None:
    @sr.function(input_signature=[sr.TensorSpec([None]), sr.TensorSpec([None], sr.int32)])
    def f(x: sr.Tensor, ids: sr.Tensor) -> sr.Tensor:
        return sr.gather(x, ids)  # the line

    f(sr.constant([1.0, 2.0]), sr.constant([5]))


def an_if_on_a_tensor() -> None:
    @sr.function(input_signature=[sr.TensorSpec([], sr.bool_)], autograph=False)
    def f(flag: sr.Tensor) -> sr.Tensor:
        return sr.constant(1.0) if flag else sr.constant(2.0)  # the line

    f(sr.constant(True))


def a_value_that_left_its_function() -> None:
    kept = []
    sr.function(lambda x: kept.append(x * 2.0))(sr.constant(1.0))
    kept[0] + 1.0  # the line


#: (what is done wrong, the class of the error, what the message says)
TABLE: list[tuple[Callable[[], None], type, list[str]]] = [
    (shapes_at_once, errors.InvalidArgumentError, ["MatMul", "[1,2]", "[1,3]", "inner"]),
    (shapes_while_traced, errors.InvalidArgumentError, ["Add", "[2]", "[3]", "broadcast"]),
    (shapes_when_run, errors.InvalidArgumentError, ["Mul", "[2]", "[3]", "broadcast"]),
    (dtypes_at_once, errors.InvalidArgumentError, ["Add", "float32[1]", "float64[1]", "cast"]),
    (dtypes_in_a_graph, errors.InvalidArgumentError, ["Mul", "float32[2]", "float64[2]", "cast"]),
    (dtype_of_a_variable, errors.InvalidArgumentError, ["float64", "float32", "sidereal.cast"]),
    (an_unknown_op, errors.NotFoundError, ["'MatMull'", "names like it: MatMul"]),
    (an_unknown_attribute, errors.InvalidArgumentError, ["ReduceSum", "'keepdim'", "keep_dims"]),
    (a_wrong_attribute, errors.InvalidArgumentError, ["ReduceSum", "'axes'", "'zero'", "ints"]),
    (an_axis_out_of_range, errors.InvalidArgumentError, ["ReduceSum", "axis 3", "rank 1"]),
    (too_few_inputs, errors.InvalidArgumentError, ["Add", "1 inputs given; exactly 2 needed"]),
    (gradient_of_an_op_without_one_at_once, errors.UnimplementedError,
     [_PLAIN, "[2]", "no gradient", "stop_gradient"]),
    (gradient_of_an_op_without_one_in_a_graph, errors.UnimplementedError,
     [_PLAIN, "no gradient", "StopGradient"]),
    (a_feed_of_another_shape, errors.InvalidArgumentError,
     ["Placeholder 'x'", "float32[?,3]", "float32[2,2]", "reshape"]),
    (a_feed_of_another_dtype, errors.InvalidArgumentError,
     ["Placeholder 'x'", "int32[?]", "float64[2]", "convert"]),
    (a_placeholder_that_is_not_fed, errors.InvalidArgumentError,
     ["Placeholder 'x'", "float32[?,3]", "feed it"]),
    (an_index_out_of_range, errors.InvalidArgumentError, ["Gather", "5", "[2]"]),
    (an_index_out_of_range_when_run, errors.InvalidArgumentError, ["Gather", "5", "[2]"]),
    (an_if_on_a_tensor, errors.SymbolicError, ["truth value", "sidereal.cond"]),
    (a_value_that_left_its_function, errors.InvalidArgumentError, ["float32[]", "return it"]),
]


@pytest.mark.parametrize(("wrong", "kind", "says"), TABLE, ids=lambda x: getattr(x, "__name__", ""))
def test_the_error_says_what_where_and_what_to_do(
    wrong: Callable[[], None], kind: type, says: list[str]
) -> None:
    v1.reset_default_graph()
    with pytest.raises(kind) as caught:
        wrong()
    message = str(caught.value)
    for text in says:
        assert text in message, message
    source = Path(__file__).read_text().split(f"def {wrong.__name__}()")[1].split("\n\n\n")[0]
    if "# the line" in source:
        assert "test_error_messages.py" in caught.value.site, message
        assert "# the line" in message, message
