"""The classes of errors, as tf.errors has them."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import sidereal as sr
import sidereal.v1 as tf
from sidereal import errors

#: Classes, and numbers with their names, of TensorFlow's documentation.
CLASSES = {
    "CancelledError": ("CANCELLED", 1),
    "UnknownError": ("UNKNOWN", 2),
    "InvalidArgumentError": ("INVALID_ARGUMENT", 3),
    "DeadlineExceededError": ("DEADLINE_EXCEEDED", 4),
    "NotFoundError": ("NOT_FOUND", 5),
    "AlreadyExistsError": ("ALREADY_EXISTS", 6),
    "PermissionDeniedError": ("PERMISSION_DENIED", 7),
    "ResourceExhaustedError": ("RESOURCE_EXHAUSTED", 8),
    "FailedPreconditionError": ("FAILED_PRECONDITION", 9),
    "AbortedError": ("ABORTED", 10),
    "OutOfRangeError": ("OUT_OF_RANGE", 11),
    "UnimplementedError": ("UNIMPLEMENTED", 12),
    "InternalError": ("INTERNAL", 13),
    "UnavailableError": ("UNAVAILABLE", 14),
    "DataLossError": ("DATA_LOSS", 15),
    "UnauthenticatedError": ("UNAUTHENTICATED", 16),
}


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize(
    "module", [errors, tf.errors, sr.compat.v1.errors], ids=["sidereal", "tf", "compat.v1"]
)
def test_a_class_has_its_name_and_number(name: str, module: object) -> None:
    constant, number = CLASSES[name]
    cls = getattr(module, name)
    assert cls.__name__ == name and issubclass(cls, errors.OpError)
    assert getattr(module, constant) == number == cls.code
    assert errors.exception_type_from_error_code(number) is cls
    assert errors.error_code_from_exception_type(cls) == number
    assert type(errors.from_code(number, "why")) is cls


def test_numbers_of_no_class() -> None:
    assert errors.OK == 0
    with pytest.raises(KeyError):
        errors.exception_type_from_error_code(errors.OK)
    assert isinstance(errors.from_code(99, ""), errors.UnknownError)


def test_errors_are_those_of_python_too() -> None:
    for cls, base in (
        (errors.InvalidArgumentError, ValueError),
        (errors.DeadlineExceededError, TimeoutError),
        (errors.NotFoundError, KeyError),
        (errors.OutOfRangeError, IndexError),
        (errors.UnimplementedError, NotImplementedError),
        (errors.OperatorNotAllowedInGraphError, TypeError),
        (errors.InaccessibleTensorError, ValueError),
    ):
        assert issubclass(cls, base)


@pytest.mark.parametrize("name", [*CLASSES, "OpError"])
def test_programs_raise_them_as_in_tensorflow(name: str) -> None:
    cls = getattr(errors, name)
    for made in (
        cls("the 'other' half"),
        cls(None, None, "the 'other' half"),
        cls(node_def=None, op=None, message="the 'other' half"),
    ):
        assert str(made) == made.message == "the 'other' half"
        assert made.op is None and made.node_def is None
        assert made.error_code == made.code == cls.code
    assert str(cls()) == ""
    like = errors.OpError("node", None, "m", errors.ABORTED)
    assert (like.node_def, like.error_code, cls("m").error_code) == ("node", 10, cls.code)
    copy = pickle.loads(pickle.dumps(cls("the 'other' half")))
    assert type(copy) is cls and str(copy) == "the 'other' half" and copy.code == cls.code


def test_an_error_of_a_session_has_its_operation() -> None:
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [None], name="x")
        ids = tf.placeholder(tf.int32, [None], name="ids")
        rows = tf.gather(x, ids, name="rows")
        twice = tf.add(rows, rows, name="twice")
        for feeds, name in (({x: [1.0], ids: [3]}, "rows"), ({x: [1.0]}, "ids")):
            with tf.Session() as session, pytest.raises(tf.errors.OpError) as caught:
                session.run(twice, feeds)
            error = caught.value
            assert error.op.name == name == error.node_def.name
            assert error.op.graph is graph and error.error_code == tf.errors.INVALID_ARGUMENT
            copy = pickle.loads(pickle.dumps(error))
            assert copy.op is None and (copy.site, str(copy)) == (error.site, str(error))


def test_an_error_of_an_op_at_once_has_no_operation() -> None:
    with pytest.raises(errors.InvalidArgumentError) as caught:
        sr.gather(sr.constant(np.ones(2, "f4")), [5])
    assert caught.value.op is None and caught.value.node_def is None
