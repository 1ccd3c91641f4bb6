"""Exceptions, one class per status code of the core (tf.errors; the codes of gRPC)."""

from __future__ import annotations

from typing import Any, overload

OK = 0
CANCELLED = 1
UNKNOWN = 2
INVALID_ARGUMENT = 3
DEADLINE_EXCEEDED = 4
NOT_FOUND = 5
ALREADY_EXISTS = 6
PERMISSION_DENIED = 7
RESOURCE_EXHAUSTED = 8
FAILED_PRECONDITION = 9
ABORTED = 10
OUT_OF_RANGE = 11
UNIMPLEMENTED = 12
INTERNAL = 13
UNAVAILABLE = 14
DATA_LOSS = 15
UNAUTHENTICATED = 16


class OpError(Exception):
    """Base of everything the core raises (tf.errors.OpError).

        raise sidereal.errors.AbortedError("the other half failed")
        raise sidereal.errors.AbortedError(None, None, "the other half failed")  # as in TensorFlow

    message: what was wrong. op: the operation of a session's graph that failed, if it is known;
    node_def describes it. code: the number of the status code, also called error_code.
    site: the line of the program ("model.py:12") that the op came from, "" when it is no op's
    error.
    """

    code = UNKNOWN
    site = ""

    @overload
    def __init__(self, message: str = "", /) -> None: ...

    @overload
    def __init__(self, node_def: Any, op: Any, message: str, error_code: int = ...) -> None: ...

    def __init__(
        self, node_def: Any = None, op: Any = None, message: Any = None, error_code: Any = None
    ) -> None:
        if message is None:
            node_def, message = None, node_def or ""
        super().__init__(message)
        self.message, self.op, self._node_def = message, op, node_def
        if error_code is not None:
            self.code = error_code

    @property
    def node_def(self) -> Any:
        """What `op` is, or what the error was made with; None when neither is known."""
        return self._node_def if self.op is None else self.op.node_def

    @property
    def error_code(self) -> int:
        """The number of the status code, as in TensorFlow."""
        return self.code

    def __str__(self) -> str:
        # KeyError, a base of NotFoundError, would print its argument in quotes.
        return self.message

    def __reduce__(self) -> Any:
        # An operation belongs to the graph of its process.
        return type(self), (None, None, self.message, self.code), {"site": self.site}


Error = OpError


class CancelledError(OpError):
    """The operation was cancelled, by Ctrl-C for example."""

    code = CANCELLED


class UnknownError(OpError):
    """An error of no other class."""

    code = UNKNOWN


class InvalidArgumentError(OpError, ValueError):
    """An argument, a file or a row is not what it should be."""

    code = INVALID_ARGUMENT


class DeadlineExceededError(OpError, TimeoutError):
    """Something did not happen in the time it had."""

    code = DEADLINE_EXCEEDED


class NotFoundError(OpError, KeyError):
    """There is nothing of that name."""

    code = NOT_FOUND


class AlreadyExistsError(OpError):
    """There is something of that name already, or the port is in use."""

    code = ALREADY_EXISTS


class PermissionDeniedError(OpError):
    """The system does not allow it."""

    code = PERMISSION_DENIED


class ResourceExhaustedError(OpError):
    """Out of memory, or over a limit."""

    code = RESOURCE_EXHAUSTED


class FailedPreconditionError(OpError):
    """Not now: a model that is not compiled, a cluster that has been stopped."""

    code = FAILED_PRECONDITION


class AbortedError(OpError):
    """Given up because something else failed."""

    code = ABORTED


class OutOfRangeError(OpError, IndexError):
    """Nothing more comes: a dataset, or a queue that is closed, is at its end."""

    code = OUT_OF_RANGE


class UnimplementedError(OpError, NotImplementedError):
    """This release cannot do it."""

    code = UNIMPLEMENTED


class SymbolicError(UnimplementedError, TypeError):
    """Python asked a value of a graph for what it has only when the graph runs."""


OperatorNotAllowedInGraphError = SymbolicError


class InaccessibleTensorError(InvalidArgumentError):
    """A value of a function's graph is used outside of the function."""


class InternalError(OpError):
    """A mistake in sidereal itself."""

    code = INTERNAL


class UnavailableError(OpError):
    """A task of the cluster is lost or cannot be reached."""

    code = UNAVAILABLE


class DataLossError(OpError):
    """Bytes that are not what was written."""

    code = DATA_LOSS


class UnauthenticatedError(OpError):
    """The other side does not know who asks."""

    code = UNAUTHENTICATED


class ClosureInputError(OpError):
    """What a scheduled function takes could not be made on the worker that was to run it."""


class PSUnavailableError(UnavailableError):
    """A parameter server is lost, and what it held: the job cannot go on."""


_CLASSES: dict[int, type[OpError]] = {
    cls.code: cls
    for cls in (
        CancelledError,
        UnknownError,
        InvalidArgumentError,
        DeadlineExceededError,
        NotFoundError,
        AlreadyExistsError,
        PermissionDeniedError,
        ResourceExhaustedError,
        FailedPreconditionError,
        AbortedError,
        OutOfRangeError,
        UnimplementedError,
        InternalError,
        UnavailableError,
        DataLossError,
        UnauthenticatedError,
    )
}


def from_code(code: int, message: str) -> OpError:
    """The exception for a status of the core."""
    return _CLASSES.get(code, UnknownError)(message)


def reason_of(why: BaseException) -> str:
    """An error, as a part of a sentence."""
    return why.message if isinstance(why, OpError) else f"{type(why).__name__}: {why}"


def exception_type_from_error_code(error_code: int) -> type[OpError]:
    """The class of a status code (tf.compat.v1.errors.exception_type_from_error_code). KeyError:
    there is none of this number, as of OK."""
    return _CLASSES[error_code]


def error_code_from_exception_type(cls: type[OpError]) -> int:
    """The status code of a class (tf.compat.v1.errors.error_code_from_exception_type)."""
    return cls.code
