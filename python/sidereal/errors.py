"""Exceptions, one class per status code of the core (the codes of gRPC and TensorFlow)."""

from __future__ import annotations


class Error(Exception):
    """Base of everything the core raises. `code` is the number of the status code; `site` is the
    line of the program ("model.py:12") that the op came from, "" when it is no op's error."""

    code = 2
    site = ""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        # KeyError, a base of NotFoundError, would print its argument in quotes.
        return self.message


class CancelledError(Error):
    """The operation was cancelled, by Ctrl-C for example."""

    code = 1


class UnknownError(Error):
    """An error of no other class."""

    code = 2


class InvalidArgumentError(Error, ValueError):
    """An argument, a file or a row is not what it should be."""

    code = 3


class DeadlineExceededError(Error, TimeoutError):
    """Something did not happen in the time it had."""

    code = 4


class NotFoundError(Error, KeyError):
    """There is nothing of that name."""

    code = 5


class AlreadyExistsError(Error):
    """There is something of that name already, or the port is in use."""

    code = 6


class PermissionDeniedError(Error):
    """The system does not allow it."""

    code = 7


class ResourceExhaustedError(Error):
    """Out of memory, or over a limit."""

    code = 8


class FailedPreconditionError(Error):
    """Not now: a model that is not compiled, a cluster that has been stopped."""

    code = 9


class AbortedError(Error):
    """Given up because something else failed."""

    code = 10


class OutOfRangeError(Error, IndexError):
    """Nothing more comes: a dataset, or a queue that is closed, is at its end."""

    code = 11


class UnimplementedError(Error, NotImplementedError):
    """This release cannot do it."""

    code = 12


class SymbolicError(UnimplementedError, TypeError):
    """Python asked a value of a graph for what it has only when the graph runs."""


class InternalError(Error):
    """A mistake in sidereal itself."""

    code = 13


class UnavailableError(Error):
    """A task of the cluster is lost or cannot be reached."""

    code = 14


class DataLossError(Error):
    """Bytes that are not what was written."""

    code = 15


class UnauthenticatedError(Error):
    """The other side does not know who asks."""

    code = 16


class ClosureInputError(Error):
    """What a scheduled function takes could not be made on the worker that was to run it."""


class PSUnavailableError(UnavailableError):
    """A parameter server is lost, and what it held: the job cannot go on."""


_CLASSES: dict[int, type[Error]] = {
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


def from_code(code: int, message: str) -> Error:
    """The exception for a status of the core."""
    return _CLASSES.get(code, UnknownError)(message)
