"""Summaries as values of graphs, and who writes them (tf.compat.v1.summary).

A summary op makes the bytes of a Summary message from other ops, where the graph runs: sessions on
servers need neither Python nor the package tensorboard for it, and values are not sent to be looked
at. Bytes of messages one behind the other are one message with what all have, so that merge() joins
strings.
"""

from __future__ import annotations

import os
import re
import struct
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from .. import _tensorboard, dtypes, errors
from .._dispatch import convert
from ..ops import array, basic, debugging, math, parsing, strings
from . import graph as _graph
from .graph import Graph, GraphKeys, in_default_graph

__all__ = ["FileWriter", "FileWriterCache", "histogram", "image", "merge", "merge_all", "scalar",
           "text"]  # fmt: skip

# Numbers of fields of Summary.Value and of what it has.
_TAG, _IMAGE, _HISTO, _TENSOR, _METADATA = 1, 4, 5, 8, 9
#: What comes before the four bytes of Summary.Value.simple_value.
_SIMPLE_VALUE = b"\x15"
_BUCKETS = _tensorboard.BUCKETS
_DT_STRING = 7


def _varint(number: int) -> bytes:
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])


def _head(field: int, size: int) -> bytes:
    """What comes before `size` bytes of a field."""
    return _varint(field << 3 | 2) + _varint(size)


def _field(field: int, content: bytes) -> bytes:
    return _head(field, len(content)) + content


def _value(tag: str, head: bytes, size: int) -> bytes:
    """What comes before `size` bytes that are, behind `head`, the value of a tag."""
    inside = _field(_TAG, tag.encode()) + head
    return _head(1, len(inside) + size) + inside


def _sizes(numbers: Any) -> Any:
    """The varints of int32 numbers, each of five bytes: they are longer than they need be, so that
    it is known how long messages are."""
    steps = convert(np.array([1, 1 << 7, 1 << 14, 1 << 21, 1 << 28], "i4"))
    digits = math.floormod(math.floordiv(array.expand_dims(numbers, -1), steps), 128)
    marked = digits + convert(np.array([128, 128, 128, 128, 0], "i4"))
    return parsing.encode_raw(basic.cast(marked, dtypes.uint8))


@contextmanager
def _scope(name: str, family: str | None) -> Iterator[tuple[str, str]]:
    """(tag, name of the node) of a summary; other nodes of it are made in its scope."""
    clean = re.sub(r"[^-/\w\.]", "_", name).lstrip("/")
    if not clean:
        raise ValueError(f"'{name}' is no name of a summary; it needs a letter or a digit")
    if family is not None:
        clean = f"{re.sub(r'[^-/.A-Za-z0-9_]', '_', family)}/{clean}"
    with _graph.get_default_graph().name_scope(clean) as scope:
        made = scope.rstrip("/")
        # TensorFlow shows what is of a family below it, whatever the scopes around.
        yield (made if family is None else f"{family}/{made}"), scope


def _kept(made: Any, collections: Any) -> Any:
    if made.graph is not _graph.get_default_graph().native:
        return made  # Of a branch or loop, which gives it to the graph if it is wanted there.
    for name in [GraphKeys.SUMMARIES] if collections is None else collections:
        _graph.add_to_collection(name, made)
    return made


@in_default_graph
def scalar(name: str, tensor: Any, collections: Any = None, family: str | None = None) -> Any:
    """A summary of one number (tf.compat.v1.summary.scalar), a string in the graph.

    name: its tag, within scopes of names. collections: those it is in (GraphKeys.SUMMARIES).
    family: what its tag begins with.
    """
    x = convert(tensor)
    if x.shape:
        raise ValueError(
            f"scalar summary '{name}': the value has shape {list(x.shape)}; it takes one number: "
            "take its mean, or make a histogram"
        )
    with _scope(name, family) as (tag, scope):
        number = parsing.encode_raw(array.reshape(basic.cast(x, dtypes.float32), [1]))
        head = _value(tag, _SIMPLE_VALUE, 4)
        return _kept(strings.join([convert(head), number], name=scope), collections)


@in_default_graph
def histogram(name: str, values: Any, collections: Any = None, family: str | None = None) -> Any:
    """A summary of how the numbers of a tensor of any shape lie, in 30 buckets between the least
    and the greatest; see scalar(). InvalidArgumentError in a run where some are no numbers."""
    x = convert(values)
    with _scope(name, family) as (tag, scope):
        if dtypes.is_floating(x.dtype):
            x = debugging.check_numerics(x, f"Nan in summary histogram for: {tag}")
        x = array.reshape(basic.cast(x, dtypes.float64), [-1])
        count = array.size(x)
        # With a zero more there is a least one also of none.
        some = array.concat([x, array.zeros(array.reshape(
            basic.cast(math.equal(count, 0), dtypes.int32), [1]), dtypes.float64)], 0)  # fmt: skip
        low, high = math.reduce_min(some), math.reduce_max(some)
        width = (high - low) / float(_BUCKETS)
        step = math.where(math.greater(width, 0.0), width, array.ones_like(width))
        at = basic.cast(math.floor((x - low) / step), dtypes.int32)
        counts = math.unsorted_segment_sum(
            array.ones_like(x), math.clip_by_value(at, 0, _BUCKETS - 1), _BUCKETS
        )
        edges = low + width * np.arange(1, _BUCKETS + 1, dtype="f8")
        figures = array.stack(
            [low, high, basic.cast(count, dtypes.float64), math.reduce_sum(x),
             math.reduce_sum(x * x)]
        )  # fmt: skip
        marks = convert([bytes([field << 3 | 1]) for field in range(1, 6)])
        head = _head(6, 8 * _BUCKETS), _head(7, 8 * _BUCKETS)
        parts = [
            strings.reduce_join(strings.join(
                [marks, parsing.encode_raw(array.reshape(figures, [-1, 1]))]
            )),
            convert(head[0]), parsing.encode_raw(edges),
            convert(head[1]), parsing.encode_raw(counts),
        ]  # fmt: skip
        size = 5 * 9 + sum(map(len, head)) + 2 * 8 * _BUCKETS
        before = _value(tag, _head(_HISTO, size), size)
        return _kept(strings.join([convert(before), *parts], name=scope), collections)


@in_default_graph
def text(name: str, tensor: Any, collections: Any = None) -> Any:
    """A summary of text, in Markdown, or a table of several; see scalar()."""
    x = convert(tensor)
    if x.dtype != dtypes.string:
        raise ValueError(f"text summary '{name}' is given {x.dtype}; it takes strings")
    if x.shape is None:
        raise ValueError(f"text summary '{name}': the text has no rank; reshape it")
    rank = len(x.shape)
    with _scope(name, None) as (tag, scope):
        flat = array.reshape(x, [-1])
        extents = array.reshape(basic.cast(array.shape(x), dtypes.int32), [rank])
        # Each extent is a message of a message: of six bytes and their head.
        dims = strings.reduce_join(strings.join([_head(2, 6) + b"\x08", _sizes(extents)]))
        items = strings.reduce_join(
            strings.join([_varint(8 << 3 | 2), _sizes(strings.length(flat)), flat])
        )
        proto = strings.join(
            [b"\x08" + bytes([_DT_STRING]) + _head(2, 8 * rank), dims, items]
        )
        metadata = _field(_METADATA, _field(1, _field(1, b"text")))
        inside = strings.join(
            [_field(_TAG, tag.encode()) + metadata + _varint(_TENSOR << 3 | 2),
             _sizes(strings.length(proto)), proto]
        )  # fmt: skip
        made = strings.join(
            [convert(_varint(1 << 3 | 2)), _sizes(strings.length(inside)), inside], name=scope
        )
        return _kept(made, collections)


@in_default_graph
def image(
    name: str, tensor: Any, max_outputs: int = 3, collections: Any = None,
    family: str | None = None,
) -> Any:  # fmt: skip
    """A summary of the first images of [images, height, width, channels], with 1, 3 or 4 channels:
    uint8, or numbers that are scaled for each image: the greatest becomes 255, and with ones below
    zero, zero becomes 127. Tags are NAME/image, or NAME/image/0, ...; see scalar()."""
    x = convert(tensor)
    extents = None if x.shape is None else list(x.shape)
    if extents is None or len(extents) != 4 or -1 in extents[1:] or None in extents[1:] or (
        extents[3] not in (1, 3, 4)
    ):
        raise ValueError(
            f"image summary '{name}': the value has shape {extents}; it takes [images, height, "
            "width, channels] with 1, 3 or 4 channels, of which the first alone may be unknown"
        )
    if max_outputs < 1:
        raise ValueError(f"image summary '{name}': max_outputs is {max_outputs}; at least 1")
    height, width, channels = extents[1:]
    with _scope(name, family) as (tag, scope):
        x = x[:max_outputs]
        if x.dtype != dtypes.uint8:
            x = _scaled(basic.cast(x, dtypes.float32))
        file_head, rows = _bitmap(x, height, width, channels)
        pixels = parsing.encode_raw(rows)
        size = len(file_head) + rows.shape[1]
        figures = b"".join(
            bytes([field << 3]) + _varint(number)
            for field, number in ((1, height), (2, width), (3, channels))
        )
        message = figures + _head(4, size) + file_head
        whole = len(message) + rows.shape[1]
        tags = [f"{tag}/image"] if max_outputs == 1 else [
            f"{tag}/image/{number}" for number in range(max_outputs)
        ]  # fmt: skip
        heads = convert([_value(one, _head(_IMAGE, whole), whole) + message for one in tags])
        made = strings.join([heads[: array.shape(x)[0]], pixels])
        return _kept(strings.reduce_join(made, name=scope), collections)


def _scaled(x: Any) -> Any:
    """Images of numbers as bytes; what is no number is black."""
    x = math.where(math.is_finite(x), x, array.zeros_like(x))
    low = math.reduce_min(x, axis=[1, 2, 3], keepdims=True)
    high = math.reduce_max(x, axis=[1, 2, 3], keepdims=True)
    signed = math.less(low, 0.0)
    most = math.maximum(math.abs(low), math.abs(high))
    safe = math.where(math.greater(most, 0.0), most, array.ones_like(most))
    scale = math.where(signed, 127.0 / safe, 255.0 / safe)
    zero = math.where(signed, array.fill(array.shape(most), 128.0), array.zeros_like(most))
    return basic.cast(math.clip_by_value(x * scale + zero, 0.0, 255.0), dtypes.uint8)


def _bitmap(x: Any, height: int, width: int, channels: int) -> tuple[bytes, Any]:
    """Images as BMP files, which need no compression: what they begin with, and of each the bytes
    that follow."""
    if channels == 1:
        x, channels = array.concat([x, x, x], 3), 3
    elif channels == 3:
        x = array.reverse(x, [3])
    else:
        x = array.concat([array.reverse(x[:, :, :, :3], [3]), x[:, :, :, 3:]], 3)
    # The lowest row comes first, and each has a multiple of four bytes.
    stride = -(-width * channels // 4) * 4
    rows = array.reshape(array.reverse(x, [1]), [-1, height, width * channels])
    if stride > width * channels:
        rows = array.pad(rows, [[0, 0], [0, 0], [0, stride - width * channels]])
    flat = array.reshape(rows, [-1, height * stride])
    bits = 8 * channels
    if channels == 3:
        info = struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, 0, height * stride, 2835,
                           2835, 0, 0)  # fmt: skip
    else:  # Where colours and alpha are within four bytes.
        info = struct.pack("<IiiHHIIiiII", 108, width, height, 1, bits, 3, height * stride, 2835,
                           2835, 0, 0)  # fmt: skip
        info += struct.pack("<IIII", 0xFF0000, 0xFF00, 0xFF, 0xFF000000) + b"BGRs" + bytes(48)
    offset = 14 + len(info)
    return struct.pack("<2sIHHI", b"BM", offset + height * stride, 0, 0, offset) + info, flat


@in_default_graph
def merge(inputs: Sequence[Any], collections: Any = None, name: str | None = None) -> Any:
    """One summary of all that others have (tf.compat.v1.summary.merge)."""
    listed = [convert(one) for one in inputs]
    if not listed:
        raise ValueError("merge() is given no summaries")
    with _graph.get_default_graph().name_scope(name or "Merge") as scope:
        made = strings.join(
            [strings.reduce_join(array.reshape(each, [-1])) if each.shape else each
             for each in listed], name=scope
        )  # fmt: skip
    for key in collections or []:
        _graph.add_to_collection(key, made)
    return made


def merge_all(
    key: str = GraphKeys.SUMMARIES, scope: str | None = None, name: str | None = None
) -> Any:
    """One summary of all in a collection, of names that `scope` matches at their beginning; None
    when there are none (tf.compat.v1.summary.merge_all)."""
    found = _graph.get_collection(key, scope)
    return merge(found, name=name) if found else None


# --- Writing.


class FileWriter:
    """Writes summaries to a new file of events in `logdir` (tf.compat.v1.summary.FileWriter).

    graph: a sidereal.v1.Graph, which TensorBoard draws. max_queue: so many events wait to be
    written. flush_secs: how often they are flushed. filename_suffix: the end of the file's name.

    A context manager, which closes it. Errors: UnavailableError without the package tensorboard;
    OSError when the file cannot be made.
    """

    def __init__(
        self, logdir: str | os.PathLike[str], graph: Any = None, max_queue: int = 10,
        flush_secs: float = 120, graph_def: Any = None, filename_suffix: str | None = None,
        session: Any = None,
    ) -> None:  # fmt: skip
        if session is not None:
            raise errors.UnimplementedError(
                "FileWriter: a session writes no events; leave out session, and add_summary() what "
                "run() gives"
            )
        self._arguments = os.fspath(logdir), max_queue, flush_secs, filename_suffix or ""
        self._events: _tensorboard.EventWriter = _tensorboard.EventWriter(*self._arguments)
        if graph is not None:
            self.add_graph(graph)
        elif graph_def is not None:
            self._add_graph_def(graph_def, None)

    def __enter__(self) -> FileWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get_logdir(self) -> str:
        """The folder."""
        return self._arguments[0]

    def add_summary(self, summary: Any, global_step: Any = None) -> None:
        """Writes a summary, which run() gave as bytes, or a Summary message."""
        pb = _tensorboard.modules().summary_pb2
        if isinstance(summary, (bytes, np.ndarray, np.generic)):
            summary = pb.Summary.FromString(bytes(np.asarray(summary, object).item()))
        elif not isinstance(summary, pb.Summary):
            raise TypeError(
                f"add_summary() is given {type(summary).__name__}; it takes the bytes that run() "
                "gives for a summary, or a Summary message"
            )
        self.add_event(_tensorboard.modules().event_pb2.Event(summary=summary), global_step)

    def add_event(self, event: Any, global_step: Any = None) -> None:
        """Writes an Event message; without a time it gets that of now."""
        if self._events.is_closed:
            warnings.warn(
                f"an event for '{self.get_logdir()}' is lost: this FileWriter is closed; reopen() "
                "begins another file",
                stacklevel=2,
            )
            return
        if not event.wall_time:
            event.wall_time = time.time()
        if global_step is not None:
            event.step = int(global_step)
        self._events.add_event(event)

    def add_graph(self, graph: Any, global_step: Any = None) -> None:
        """Writes a graph, which TensorBoard draws."""
        if not isinstance(graph, Graph):
            raise TypeError(f"add_graph() is given {graph!r:.60}; it takes a sidereal.v1.Graph")
        nodes = [op.node_def for op in graph.get_operations()]
        self._add_graph_def(_tensorboard.graph_def(nodes), global_step)

    def _add_graph_def(self, graph_def: Any, global_step: Any) -> None:
        self.add_event(_tensorboard.graph_event(graph_def), global_step)

    def add_session_log(self, session_log: Any, global_step: Any = None) -> None:
        """Writes a SessionLog message: that a session began, ended or wrote a checkpoint."""
        event = _tensorboard.modules().event_pb2.Event(session_log=session_log)
        self.add_event(event, global_step)

    def flush(self) -> None:
        """Waits until all that was added is in the file."""
        if not self._events.is_closed:
            self._events.flush()

    def close(self) -> None:
        """Writes what was added and ends the file. Again: nothing."""
        self._events.close()

    def reopen(self) -> None:
        """Begins another file when it is closed."""
        if self._events.is_closed:
            self._events = _tensorboard.EventWriter(*self._arguments)


class FileWriterCache:
    """FileWriters of this process, one for each folder (tf.compat.v1.summary.FileWriterCache)."""

    _writers: dict[str, FileWriter] = {}
    _lock = threading.RLock()

    @classmethod
    def get(cls, logdir: str | os.PathLike[str]) -> FileWriter:
        """The writer of a folder, with the default graph when it is new."""
        with cls._lock:
            key = os.fspath(logdir)
            if key not in cls._writers:
                cls._writers[key] = FileWriter(key, graph=_graph.get_default_graph())
            return cls._writers[key]

    @classmethod
    def clear(cls) -> None:
        """Closes all, and forgets them."""
        with cls._lock:
            for writer in cls._writers.values():
                writer.close()
            cls._writers.clear()


def __getattr__(name: str) -> Any:
    messages = _tensorboard.MESSAGES
    if name not in messages:
        raise AttributeError(f"module 'sidereal.v1.summary' has no attribute '{name}'")
    return getattr(getattr(_tensorboard.modules(), messages[name]), name)
