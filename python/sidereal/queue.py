"""Queues of tensors: sidereal.queue, with TensorFlow's names (tf.queue).

Elements are tensors, or tuples of them. What has to wait lets other threads run and ends with
DeadlineExceededError, naming the queue, when nobody changed anything for the time that
sidereal.config.set_operation_timeout() says. Queues live in this process: sessions and functions
of all its threads share them by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import dtypes, errors
from ._dispatch import convert
from ._resources import Resource, component_attrs, done

__all__ = ["FIFOQueue", "PaddingFIFOQueue", "PriorityQueue", "QueueBase", "RandomShuffleQueue"]


class QueueBase(Resource):
    """What all queues can do (tf.queue.QueueBase).

    Attributes: `dtypes`, `shapes` (None: any) and `names` (None: no names) of the components.
    """

    def __init__(
        self,
        order: str,
        capacity: int,
        dtypes_: Any,
        shapes: Any,
        names: Sequence[str] | None,
        shared_name: str | None,
        name: str,
        **attrs: Any,
    ) -> None:
        self.dtypes = [dtypes.as_dtype(dtype) for dtype in _list(dtypes_)]
        self.shapes = None if shapes is None else [tuple(shape) for shape in _shapes(shapes)]
        self.names = None if names is None else list(names)
        for what, given in (("shapes", self.shapes), ("names", self.names)):
            if given is not None and len(given) != len(self.dtypes):
                raise ValueError(
                    f"queue '{name}' has {len(self.dtypes)} dtypes and {len(given)} {what}"
                )
        super().__init__(
            "Queue",
            {
                "order": order,
                "capacity": -1 if capacity is None or capacity < 0 else int(capacity),
                **component_attrs(self.dtypes, self.shapes),
                **attrs,
            },
            name,
            shared_name,
        )

    def enqueue(self, vals: Any, name: str | None = None) -> Any:
        """Puts one element in: a tensor, a tuple of them, or with names a dict. Waits while the
        queue is full. In a sidereal.v1 graph, the operation that does it.

        Errors: CancelledError when the queue is closed, InvalidArgumentError for other dtypes or
        shapes."""
        return done(self._apply("QueueEnqueue", self._components(vals), None, name))

    def enqueue_many(self, vals: Any, name: str | None = None) -> Any:
        """As enqueue(), for as many elements as the tensors have rows."""
        return done(self._apply("QueueEnqueue", self._components(vals), {"many": True}, name))

    def dequeue(self, name: str | None = None) -> Any:
        """Takes one element out: a tensor, a list of them, or with names a dict. Waits while the
        queue is empty; OutOfRangeError once it is closed and empty."""
        return self._element(self._apply("QueueDequeue", (), self._attrs(), name))

    def dequeue_many(self, n: Any, name: str | None = None) -> Any:
        """Takes `n` elements out as a batch. Waits until there are as many; OutOfRangeError when
        the queue is closed and has fewer."""
        return self._element(self._apply("QueueDequeue", (n,), self._attrs(many=True), name))

    def dequeue_up_to(self, n: Any, name: str | None = None) -> Any:
        """As dequeue_many(), but fewer once the queue is closed, if there are any."""
        attrs = self._attrs(many=True, up_to=True)
        return self._element(self._apply("QueueDequeue", (n,), attrs, name))

    def close(self, cancel_pending_enqueues: bool = False, name: str | None = None) -> Any:
        """Lets nothing in any more; what waits to go in still does, unless
        `cancel_pending_enqueues`."""
        attrs = {"cancel_pending": cancel_pending_enqueues}
        return done(self._apply("QueueClose", (), attrs, name))

    def size(self, name: str | None = None) -> Any:
        """How many elements are in, int32 []."""
        return self._apply("QueueSize", (), None, name)

    def is_closed(self, name: str | None = None) -> Any:
        """Whether the queue is closed, bool []."""
        return self._apply("QueueIsClosed", (), None, name)

    def _attrs(self, **more: Any) -> dict[str, Any]:
        return {**component_attrs(self.dtypes, self.shapes), **more}

    def _components(self, vals: Any) -> list[Any]:
        if self.names is not None:
            if not isinstance(vals, Mapping) or sorted(vals) != sorted(self.names):
                raise ValueError(f"elements of {self!r} are dicts with the keys {self.names}")
            vals = [vals[key] for key in self.names]
        elif isinstance(vals, Mapping):
            raise ValueError(f"{self!r} was made without names; give a tensor or a tuple")
        elif not isinstance(vals, (list, tuple)):
            vals = [vals]
        if len(vals) != len(self.dtypes):
            raise ValueError(
                f"elements of {self!r} have {len(self.dtypes)} components; {len(vals)} are given"
            )
        return [convert(value, dtype) for value, dtype in zip(vals, self.dtypes)]

    def _element(self, values: Any) -> Any:
        values = list(values) if isinstance(values, (list, tuple)) else [values]
        if self.names is not None:
            return dict(zip(self.names, values))
        return values[0] if len(values) == 1 else values


class FIFOQueue(QueueBase):
    """First in, first out (tf.queue.FIFOQueue).

        queue = sr.queue.FIFOQueue(10, [sr.int32, sr.string], shapes=[(), ()])
        queue.enqueue((1, "one"))
        number, text = queue.dequeue()

    capacity: elements it holds at most; below 0: no bound. shapes: of the components, needed for
    batches. names: keys of the components. Queues of one `shared_name` are one."""

    def __init__(
        self, capacity: int, dtypes: Any, shapes: Any = None, names: Sequence[str] | None = None,
        shared_name: str | None = None, name: str = "fifo_queue",
    ) -> None:
        super().__init__("fifo", capacity, dtypes, shapes, names, shared_name, name)


class PaddingFIFOQueue(QueueBase):
    """A FIFOQueue whose components may have extents of None: batches are filled up with zeros, or
    empty strings, to the longest of them (tf.queue.PaddingFIFOQueue)."""

    def __init__(
        self, capacity: int, dtypes: Any, shapes: Any, names: Sequence[str] | None = None,
        shared_name: str | None = None, name: str = "padding_fifo_queue",
    ) -> None:
        super().__init__("fifo", capacity, dtypes, shapes, names, shared_name, name, pad=True)


class RandomShuffleQueue(QueueBase):
    """Gives its elements out at random; `min_after_dequeue` of them stay back while it is open
    (tf.queue.RandomShuffleQueue)."""

    def __init__(
        self, capacity: int, min_after_dequeue: int, dtypes: Any, shapes: Any = None,
        names: Sequence[str] | None = None, seed: int | None = None,
        shared_name: str | None = None, name: str = "random_shuffle_queue",
    ) -> None:
        super().__init__(
            "shuffled", capacity, dtypes, shapes, names, shared_name, name,
            min_after_dequeue=int(min_after_dequeue), seed=int(seed or 0),
        )


class PriorityQueue(QueueBase):
    """Gives out the element with the smallest priority, an int64 in front of the components
    `types` (tf.queue.PriorityQueue)."""

    def __init__(
        self, capacity: int, types: Any, shapes: Any = None, names: Sequence[str] | None = None,
        shared_name: str | None = None, name: str = "priority_queue",
    ) -> None:
        shapes = None if shapes is None else [(), *_shapes(shapes)]
        super().__init__(
            "priority", capacity, [dtypes.int64, *_list(types)], shapes, names, shared_name, name
        )


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _shapes(shapes: Any) -> list[Any]:
    """Shapes, from a list of them or one alone."""
    if all(extent is None or isinstance(extent, int) for extent in shapes) and shapes != []:
        return [shapes] if shapes != () else [()]
    for shape in shapes:
        if not isinstance(shape, (list, tuple)):
            raise errors.InvalidArgumentError(f"{shapes!r} are no shapes of a queue's components")
    return list(shapes)
