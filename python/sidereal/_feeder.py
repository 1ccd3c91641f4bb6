"""A feeder: the process that reads for the engine what it does not read itself (`python -m
sidereal._feeder`; src/sidereal/data/feeder.h). Standard input and output are a socket.

The engine asks with a line of JSON: {"op": "open", "path", "format", "columns"}, then {"op":
"next"} for each piece, {"op": "close"} to be done before the end; {"op": "size"} and {"op": "list"}
of a "path". An answer is a frame: its kind in a byte, the length of what follows (4 bytes,
little-endian), a number (8 bytes), and: of kind R a result as JSON, of D bytes of a file whose
format is "", of C rows of one that is a table (_table_columns.py), of E nothing (the file has
ended), of X the message of an error, which names the file. The number is how much of the file has
been read, of X the code of the error. Without "columns" the cells of all are sent.
While the engine understands a piece, the next one is made. The process ends with its input, and
with who started it, also while it waits for a server.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import struct
import sys
import threading
from collections.abc import Iterator
from typing import Any, BinaryIO

from . import errors
from ._remote_files import list_files, open_file, said_of, size_of
from ._table_columns import Frame, frames_of
from ._table_readers import PACKED_ERRORS, damaged, unpacked

_PIECE = 1 << 20

#: The parts of an answer, and how much of the file has been read.
Piece = tuple[Frame, float]


def _bytes_of(path: str, size: int) -> Iterator[Piece]:
    """The bytes of a file, of what gzip has packed too."""
    with open_file(path) as file:
        text = unpacked(file)
        try:
            while piece := text.read(_PIECE):
                yield [piece], min(file.tell() / max(size, 1), 1.0)
        except PACKED_ERRORS as error:
            raise damaged(path, error) from None
        except OSError as error:
            raise said_of(path, error) from None


class _Feeder:
    def __init__(self, questions: BinaryIO, answers: BinaryIO) -> None:
        self._in, self._out = questions, answers
        self._pieces: Iterator[Piece] = iter(())
        self._kind, self._size = "D", 0
        self._ahead: Piece | errors.Error | None = None

    def _answer(self, kind: str, *parts: bytes | memoryview, number: int = 0) -> None:
        self._out.write(struct.pack("<cIQ", kind.encode(), sum(map(len, parts)), number))
        for part in parts:
            self._out.write(part)
        self._out.flush()

    def _fail(self, error: errors.Error) -> None:
        self._answer("X", error.message.encode(), number=error.error_code)

    def _look_ahead(self, path: str) -> None:
        try:
            self._ahead = next(self._pieces, None)
        except Exception as error:  # noqa: BLE001 - the engine is told, whatever it was.
            self._ahead = said_of(path, error)

    def serve(self) -> None:
        path = ""
        for line in self._in:
            asked: dict[str, Any] = json.loads(line)
            op = asked["op"]
            path = asked.get("path", path)
            try:
                if op == "size":
                    self._answer("R", json.dumps(size_of(path)).encode())
                elif op == "list":
                    self._answer("R", json.dumps(list_files(path)).encode())
                elif op == "close":
                    self._pieces, self._ahead = iter(()), None
                elif op == "open":
                    self._size = size_of(path)
                    self._kind = "C" if asked["format"] else "D"
                    if asked["format"]:
                        self._pieces = frames_of(path, asked["format"], asked.get("columns"))
                    else:
                        self._pieces = _bytes_of(path, self._size)
                    self._answer("R", json.dumps({"size": self._size}).encode())
                    self._look_ahead(path)
                else:
                    self._give(path)
            except errors.Error as error:
                self._fail(said_of(path, error))

    def _give(self, path: str) -> None:
        ahead = self._ahead
        if isinstance(ahead, errors.Error):
            self._fail(ahead)
        elif ahead is None:
            self._answer("E", number=self._size)
        else:
            self._answer(self._kind, *ahead[0], number=int(ahead[1] * self._size))
            self._look_ahead(path)


def _end_with(parent: int) -> None:
    """Ends this process when its socket is closed, or its parent has ended: others that were forked
    there may have the socket too."""
    watched = select.poll()
    watched.register(0, 0)
    # Where the kernel has no handles of processes the socket is watched alone.
    with contextlib.suppress(OSError, AttributeError):
        watched.register(os.pidfd_open(parent), select.POLLIN)
    if os.getppid() == parent:
        watched.poll()
    os._exit(0)


def main() -> None:
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    # Ctrl-C is for the engine, which then closes the socket.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    # What libraries print is no answer.
    os.dup2(2, 1)
    try:
        _Feeder(sys.stdin.buffer, answers).serve()
    except (BrokenPipeError, ConnectionResetError):
        os._exit(0)


if __name__ == "__main__":
    main()
