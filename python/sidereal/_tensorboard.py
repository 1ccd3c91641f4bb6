"""What TensorBoard reads: files of events, and the summaries in them. Of the package tensorboard,
which is needed where something is written or read, its writer and its messages."""

from __future__ import annotations

import struct
import time
import types
import weakref
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import errors

#: Buckets of a histogram.
BUCKETS = 30
#: The number of strings in messages of TensorFlow.
_DT_STRING = 7
#: Messages that programs make themselves, and the modules that they are in.
MESSAGES = {"Event": "event_pb2", "SessionLog": "event_pb2", "Summary": "summary_pb2"}


def modules() -> Any:
    """The messages (event_pb2, graph_pb2, summary_pb2, tensor_pb2) and the EventFileWriter of the
    package tensorboard; UnavailableError when it is not installed."""
    try:
        # ruff: noqa: PLC0415 - programs without summaries need no package for them.
        from tensorboard.compat import tensorflow_stub
        from tensorboard.compat.proto import event_pb2, graph_pb2, summary_pb2, tensor_pb2
        from tensorboard.summary.writer import event_file_writer
    except ImportError as error:
        raise errors.UnavailableError(
            "summaries need the package tensorboard, which is not installed: "
            f"pip install tensorboard ({error})"
        ) from error
    # Its files by its own functions also where TensorFlow is installed, which takes seconds to load
    # and then would be loaded into every process that writes a number.
    event_file_writer.tf = tensorflow_stub
    return types.SimpleNamespace(
        event_pb2=event_pb2, graph_pb2=graph_pb2, summary_pb2=summary_pb2, tensor_pb2=tensor_pb2,
        EventFileWriter=event_file_writer.EventFileWriter,
    )  # fmt: skip


def _end(writer: Any) -> None:
    try:
        writer.flush()  # Raises what the thread that writes has met; close() alone forgets it.
    finally:
        writer.close()


class EventWriter:
    """Writes events to a new file in a folder, which is made: on a thread, that begins to write
    what is added at once and flushes every `flush_secs`. A program that ends closes it."""

    def __init__(
        self, logdir: str, max_queue: int, flush_secs: float, filename_suffix: str
    ) -> None:
        self._writer = modules().EventFileWriter(logdir, max_queue, flush_secs, filename_suffix)
        self._finalizer = weakref.finalize(self, _end, self._writer)

    @property
    def logdir(self) -> str:
        return str(self._writer.get_logdir())

    @property
    def is_closed(self) -> bool:
        return not self._finalizer.alive

    def add_event(self, event: Any) -> None:
        """Waits while `max_queue` events are to be written. OSError: what kept earlier ones from
        being written."""
        self._writer.add_event(event)

    def add_summary(self, summary: Any, step: int | None, wall_time: float | None = None) -> None:
        """One event with a Summary."""
        event = modules().event_pb2.Event(
            wall_time=time.time() if wall_time is None else wall_time, summary=summary
        )
        if step is not None:
            event.step = step
        self.add_event(event)

    def flush(self) -> None:
        """Waits until all that was added is in the file."""
        self._writer.flush()

    def close(self) -> None:
        """Writes what was added and ends the file. Again: nothing."""
        self._finalizer()


# --- Summaries of TensorFlow 2: a tensor, and the plugin that shows it.


def _summary(tag: str, tensor: Any, plugin: str, data_class: str, description: str | None) -> Any:
    pb = modules().summary_pb2
    metadata = pb.SummaryMetadata(
        plugin_data=pb.SummaryMetadata.PluginData(plugin_name=plugin),
        data_class=getattr(pb, data_class) if data_class else 0,
        summary_description=description or "",
    )
    return pb.Summary(value=[pb.Summary.Value(tag=tag, metadata=metadata, tensor=tensor)])


def tensor_proto(array: np.ndarray) -> Any:
    """A TensorProto of numbers or strings."""
    made = modules().tensor_pb2.TensorProto()
    for extent in array.shape:
        made.tensor_shape.dim.add(size=extent)
    if array.dtype.kind in "OSU":
        made.dtype = _DT_STRING
        made.string_val.extend(as_bytes(item) for item in array.reshape(-1).tolist())
        return made
    made.dtype = _DTYPES[array.dtype.name]
    made.tensor_content = np.ascontiguousarray(array).tobytes()
    return made


#: Numbers of dtypes in messages of TensorFlow.
_DTYPES = {
    "float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int16": 5, "int8": 6, "int64": 9,
    "bool": 10, "uint16": 17, "float16": 19, "uint32": 22, "uint64": 23,
}  # fmt: skip


def number_of(value: Any) -> float | None:
    """The number of a value of a Summary, of TensorFlow 1 or 2; None when it is none."""
    if value.WhichOneof("value") == "simple_value":
        return float(value.simple_value)
    tensor = value.tensor
    name = next((name for name, number in _DTYPES.items() if number == tensor.dtype), None)
    if not value.HasField("tensor") or tensor.tensor_shape.dim or name is None:
        return None
    if tensor.tensor_content:
        return float(np.frombuffer(tensor.tensor_content, name)[0])
    given = [*tensor.float_val, *tensor.double_val, *tensor.int_val, *tensor.int64_val]
    return float(given[0]) if given else None


def as_bytes(text: Any) -> bytes:
    return text if isinstance(text, bytes) else str(text).encode()


def scalar(tag: str, value: Any, description: str | None = None) -> Any:
    """A Summary of one number."""
    array = np.asarray(value, "f4")
    if array.ndim:
        raise errors.InvalidArgumentError(
            f"scalar summary '{tag}' is given a value of shape {list(array.shape)}; it takes one "
            "number: take its mean, or write a histogram"
        )
    return _summary(tag, tensor_proto(array), "scalars", "DATA_CLASS_SCALAR", description)


def histogram(tag: str, values: Any, buckets: int | None, description: str | None = None) -> Any:
    """A Summary of how many values lie where: rows of (from, to, how many)."""
    count = BUCKETS if buckets is None else buckets
    values = np.asarray(values, "f8").reshape(-1)
    if not np.isfinite(values).all():
        raise errors.InvalidArgumentError(
            f"histogram summary '{tag}' is given values that are no numbers, or infinite"
        )
    rows = np.zeros((count, 3))
    if values.size and count:
        low, high = values.min(), values.max()
        if low == high:  # All lie in the last one, of no width.
            rows[:, :2], rows[-1, 2] = low, values.size
        else:
            counts, edges = np.histogram(values, count, (low, high))
            rows[:, 0], rows[:, 1], rows[:, 2] = edges[:-1], edges[1:], counts
    return _summary(tag, tensor_proto(rows), "histograms", "DATA_CLASS_TENSOR", description)


def counted(tag: str, rows: Sequence[tuple[float, float, float]]) -> Any:
    """A Summary of values that were counted before: rows of (from, to, how many)."""
    array = np.asarray(rows, "f8").reshape(-1, 3)
    return _summary(tag, tensor_proto(array), "histograms", "DATA_CLASS_TENSOR", None)


def text(tag: str, value: Any, description: str | None = None) -> Any:
    """A Summary of text, in Markdown; a table of several."""
    array = np.asarray(value, object)
    for item in array.reshape(-1).tolist():
        if not isinstance(item, (str, bytes)):
            raise errors.InvalidArgumentError(
                f"text summary '{tag}' is given {item!r:.60}; it takes strings"
            )
    return _summary(tag, tensor_proto(array), "text", "DATA_CLASS_TENSOR", description)


def image(tag: str, images: np.ndarray, max_outputs: int, description: str | None = None) -> Any:
    """A Summary of the first images of [how many, height, width, channels]: bytes, or fractions
    from 0 to 1."""
    if images.ndim != 4 or images.shape[3] not in (1, 2, 3, 4):
        raise errors.InvalidArgumentError(
            f"image summary '{tag}' is given the shape {list(images.shape)}; it takes [images, "
            "height, width, channels] with 1 to 4 channels"
        )
    if images.dtype.kind == "f":
        # As TensorFlow converts: of 256 steps the one that a fraction lies in.
        images = np.clip(np.nan_to_num(images.astype("f4")) * 255.5, 0, 255)
    elif images.dtype != np.uint8:
        raise errors.InvalidArgumentError(
            f"image summary '{tag}' is given {images.dtype}; it takes uint8, or fractions"
        )
    sizes = [str(images.shape[2]).encode(), str(images.shape[1]).encode()]
    files = [png(one) for one in images[:max_outputs].astype(np.uint8)]
    array = np.array([*sizes, *files], object)
    return _summary(
        tag, tensor_proto(array), "images", "DATA_CLASS_BLOB_SEQUENCE", description
    )


def png(pixels: np.ndarray) -> bytes:
    """The file of an image of bytes: [height, width, channels], of which 1 is grey, 2 grey and
    alpha, 3 a colour, 4 a colour and alpha."""
    height, width, channels = pixels.shape

    def chunk(name: bytes, content: bytes) -> bytes:
        head = struct.pack(">I", len(content)) + name + content
        return head + struct.pack(">I", zlib.crc32(name + content))

    kind = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    # Each row begins with the number of its filter: none.
    rows = np.zeros((height, 1 + width * channels), np.uint8)
    rows[:, 1:] = pixels.reshape(height, width * channels)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0))
        + chunk(b"IDAT", zlib.compress(rows.tobytes()))
        + chunk(b"IEND", b"")
    )


# --- Graphs.


def graph_def(nodes: Sequence[Any]) -> Any:
    """The GraphDef of nodes: of each .name, .op, .input and .device."""
    made = modules().graph_pb2.GraphDef()
    made.versions.producer = 27
    for node in nodes:
        made.node.add(name=node.name, op=node.op, input=node.input, device=node.device)
    return made


def graph_event(graph_def: Any) -> Any:
    """An Event with a GraphDef."""
    return modules().event_pb2.Event(
        wall_time=time.time(), graph_def=graph_def.SerializeToString()
    )


def keras_graph_def(config: Mapping[str, Any]) -> Any:
    """The GraphDef of the layers of a Keras model, of which `config` tells."""
    modules()
    from tensorboard.plugins.graph.keras_util import keras_model_to_graph_def

    made = keras_model_to_graph_def(config)
    for node in made.node:
        node.op = node.attr["keras_class"].s.decode()
    made.versions.producer = 27
    return made


def keras_summary(tag: str, config: str) -> Any:
    """A Summary of a Keras model, given as JSON, which is shown as a conceptual graph."""
    pb = modules().summary_pb2
    metadata = pb.SummaryMetadata(
        plugin_data=pb.SummaryMetadata.PluginData(plugin_name="graph_keras_model", content=b"1")
    )
    tensor = tensor_proto(np.array(config.encode(), object))
    return pb.Summary(value=[pb.Summary.Value(tag=tag, metadata=metadata, tensor=tensor)])
