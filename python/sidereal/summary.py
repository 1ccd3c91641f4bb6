"""Figures of a program for TensorBoard (tf.summary): numbers, histograms, text and images by step.

    writer = sr.summary.create_file_writer("logs")
    with writer.as_default():
        for step in range(100):
            sr.summary.scalar("loss", train(), step=step)

Without a writer nothing is written. In a `function`, what is written is written whenever it runs,
in this process. Needs the package `tensorboard`.
"""

from __future__ import annotations

import os
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np

from . import _tensorboard, dtypes, errors
from ._dispatch import convert, state
from ._native import Output, Tensor
from .ops import basic, host

__all__ = [
    "SummaryWriter",
    "create_file_writer",
    "create_noop_writer",
    "experimental",
    "flush",
    "graph",
    "histogram",
    "image",
    "record_if",
    "scalar",
    "should_record_summaries",
    "text",
    "write",
]


class _State(threading.local):
    """What this thread writes to, and whether."""

    writer: SummaryWriter | None = None
    step: Any = None
    #: A bool, a tensor of one, or a function that gives one; None: nobody has asked for anything.
    recorded: Any = None


_state = _State()


class SummaryWriter(AbstractContextManager["SummaryWriter"]):
    """Where summaries go (tf.summary.SummaryWriter): create_file_writer() makes one. At the end of
    `with writer:` it is closed; `with writer.as_default():` writes to it."""

    def __init__(self, events: _tensorboard.EventWriter | None = None) -> None:
        self._events = events

    @contextmanager
    def as_default(self, step: Any = None) -> Iterator[SummaryWriter]:
        """What this thread writes in the context goes here, and is flushed at its end. `step`: what
        set_step() sets meanwhile."""
        self._check_open()
        before = _state.writer, _state.step
        _state.writer = self
        if step is not None:
            _state.step = step
        try:
            yield self
            self.flush()
        finally:
            _state.writer = before[0]
            if step is not None:
                _state.step = before[1]

    def set_as_default(self, step: Any = None) -> None:
        """What this thread writes from now on goes here."""
        self._check_open()
        _state.writer = self
        if step is not None:
            _state.step = step

    def init(self) -> None:
        """Nothing: it is there when it is made."""

    def flush(self) -> None:
        """Waits until all that was written is in the file."""
        if self._events is not None and not self._events.is_closed:
            self._events.flush()

    def close(self) -> None:
        """Ends the file. Again: nothing."""
        if self._events is not None:
            self._events.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._events is not None and self._events.is_closed:
            raise RuntimeError(
                f"SummaryWriter of '{self._events.logdir}' is already closed; make another one"
            )

    def _add(self, summary: Any, step: int) -> None:
        self._check_open()
        if self._events is not None:
            self._events.add_summary(summary, step)


def create_file_writer(
    logdir: str | os.PathLike[str], max_queue: int | None = None, flush_millis: int | None = None,
    filename_suffix: str | None = None, name: str | None = None,
) -> SummaryWriter:  # fmt: skip
    """A SummaryWriter to a new file of events in `logdir`, which is made.

    max_queue: so many summaries wait to be written; more wait with who writes them (10).
    flush_millis: how often what is written is flushed (2 minutes).
    filename_suffix: the end of the file's name (".v2").

    Errors: UnavailableError without the package tensorboard; OSError when the file cannot be made.
    """
    del name
    if isinstance(logdir, (Tensor, Output)):
        raise errors.InvalidArgumentError("logdir is a tensor; name the folder as a string")
    return SummaryWriter(
        _tensorboard.EventWriter(
            os.fspath(logdir),
            10 if max_queue is None else int(max_queue),
            120 if flush_millis is None else flush_millis / 1000,
            ".v2" if filename_suffix is None else filename_suffix,
        )
    )


def create_noop_writer() -> SummaryWriter:
    """A SummaryWriter that writes nothing."""
    return SummaryWriter()


def flush(writer: SummaryWriter | None = None, name: str | None = None) -> None:
    """Waits until all that was written to `writer`, or to that of this thread, is in its file."""
    del name
    chosen = _state.writer if writer is None else writer
    if chosen is not None:
        chosen.flush()


@contextmanager
def record_if(condition: Any) -> Iterator[None]:
    """Summaries in the context are written when `condition` is true: a bool, a tensor, or a
    function that gives one and is asked each time."""
    before, _state.recorded = _state.recorded, condition
    try:
        yield
    finally:
        _state.recorded = before


def should_record_summaries() -> Any:
    """Whether summaries are written now: there is a writer, and record_if() says nothing else."""
    if _state.writer is None:
        return False
    recorded = _state.recorded() if callable(_state.recorded) else _state.recorded
    if recorded is None:
        return True
    return recorded if isinstance(recorded, Output) else bool(recorded)


def get_step() -> Any:
    """The step that set_step() or as_default() has said, or None."""
    return _state.step


def set_step(step: Any) -> None:
    """The step of summaries of this thread that say none: a number, or a variable, which a function
    reads whenever it runs; None: there is none."""
    _state.step = step


def _write(step: Any, made: Callable[[np.ndarray], Any], data: Any, dtype: Any = None) -> Any:
    """Writes made(array of `data`), as `dtype`; whether it was written."""
    writer = _state.writer
    if writer is None:
        return False
    step = _state.step if step is None else step
    if step is None:
        raise ValueError(
            "No step set. Please specify one either through the `step` argument or through "
            "sidereal.summary.experimental.set_step()"
        )
    recorded = should_record_summaries()
    if recorded is False:
        return False

    def add(array: np.ndarray, number: np.ndarray, is_recorded: np.ndarray) -> np.ndarray:
        if is_recorded:
            writer._add(made(array), int(number))
        return np.asarray(bool(is_recorded))

    value = convert(data)
    if dtype is not None or value.dtype == dtypes.bfloat16:  # Which NumPy does not know.
        value = basic.cast(value, dtype or dtypes.float32)
    number = step if isinstance(step, (Tensor, Output)) else convert(step)
    if state.graph is None and not any(type(x) is Output for x in (value, number, recorded)):
        return bool(add(value.numpy(), number.numpy(), np.asarray(recorded)))
    return host.numpy_function(
        add, [value, basic.cast(number, dtypes.int64), recorded], dtypes.bool_, name="summary"
    )


def scalar(name: str, data: Any, step: Any = None, description: str | None = None) -> Any:
    """Writes a number under `name` (tf.summary.scalar). Whether it was written; ValueError without
    a step.

    step: what the figure belongs to; by default that of set_step(). description: Markdown.
    """
    return _write(
        step, lambda array: _tensorboard.scalar(name, array, description), data, dtypes.float32
    )


def histogram(
    name: str, data: Any, step: Any = None, buckets: int | None = None,
    description: str | None = None,
) -> Any:  # fmt: skip
    """Writes how the numbers of a tensor of any shape lie, in so many `buckets` (30); see
    scalar(). InvalidArgumentError when some are no numbers."""
    if buckets is not None and buckets < 0:
        raise ValueError(f"histogram summary '{name}': buckets is {buckets}; at least 0")
    return _write(
        step,
        lambda array: _tensorboard.histogram(name, array, buckets, description),
        data,
        dtypes.float64,
    )


def text(name: str, data: Any, step: Any = None, description: str | None = None) -> Any:
    """Writes text, in Markdown, or a table of several; see scalar()."""
    return _write(step, lambda array: _tensorboard.text(name, array, description), data)


def image(
    name: str, data: Any, step: Any = None, max_outputs: int = 3, description: str | None = None
) -> Any:
    """Writes the first images of a tensor [images, height, width, channels]: uint8, or fractions
    from 0 to 1; see scalar()."""
    return _write(
        step, lambda array: _tensorboard.image(name, array, max_outputs, description), data
    )


def write(tag: str, tensor: Any, step: Any = None, metadata: Any = None) -> Any:
    """Writes a tensor for a plugin (tf.summary.write), which `metadata`, a SummaryMetadata of the
    package tensorboard, names; see scalar()."""

    def made(array: np.ndarray) -> Any:
        pb = _tensorboard.modules().summary_pb2
        content = _tensorboard.tensor_proto(array)
        return pb.Summary(value=[pb.Summary.Value(tag=tag, metadata=metadata, tensor=content)])

    return _write(step, made, tensor)


def graph(graph_data: Any) -> bool:
    """Writes a graph, which TensorBoard draws: a sidereal.v1.Graph, or a GraphDef of the package
    tensorboard. Whether there is a writer."""
    writer = _state.writer
    if writer is None:
        return False
    writer._check_open()
    if writer._events is not None:
        content = graph_data
        if hasattr(graph_data, "get_operations"):
            content = _tensorboard.graph_def([op.node_def for op in graph_data.get_operations()])
        writer._events.add_event(_tensorboard.graph_event(content))
    return True


experimental = types.SimpleNamespace(get_step=get_step, set_step=set_step)
