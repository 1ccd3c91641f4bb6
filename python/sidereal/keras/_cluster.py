"""Steps of models on a cluster: workers run them for fit(), evaluate() and predict()."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from .. import errors
from .._datasets import Dataset

#: Steps that are under way or wait, for each worker.
_AHEAD = 16


class Call(NamedTuple):
    """A function that a worker is to run, and the steps that it is: the first, and how many."""

    first: int
    steps: int
    function: Callable[..., Any]
    argument: Any


class WorkerData:
    """A dataset that workers read themselves, each from its beginning and again and again. `steps`:
    batches of an epoch, whoever reads them."""

    def __init__(self, cluster: Cluster, dataset: Dataset, steps: int) -> None:
        self.steps = steps
        if not dataset.cardinality():
            raise ValueError("the data has no examples")
        self._workers = len(cluster.coordinator.strategy.extended.worker_devices)
        self._iterator = iter(cluster.coordinator.create_per_worker_dataset(dataset.repeat()))
        #: The first step of the next epoch.
        self._first = 0

    def position(self, step: int) -> Any:
        """Where all workers are, for begin_at(), when none has a step under way."""
        return self._iterator.save()

    def begin_at(self, step: int, position: Any) -> None:
        """The next epoch has the steps from this one on. Where there are other workers than those
        whose position it is, each begins anew."""
        self._first = step
        if isinstance(position, list) and len(position) == self._workers:
            self._iterator.restore(position)

    def calls(self, size: int, function: Callable[[int], Any]) -> Iterator[Call]:
        """An epoch; function(n) is one that takes n batches of an iterator."""
        begin, self._first = self._first, 0
        for first in range(begin, self.steps, size):
            count = min(size, self.steps - first)
            yield Call(first, count, function(count), self._iterator)


class Cluster:
    """The workers of a strategy, as its coordinator has them."""

    def __init__(self, coordinator: Any) -> None:
        self.coordinator = coordinator
        self._ahead = _AHEAD * len(coordinator.strategy.extended.worker_devices)
        #: What is called when no step is under way.
        self._at_rest: list[Callable[[], None]] = []

    def when_at_rest(self, call: Callable[[], None]) -> None:
        """Has run() wait for all steps that are under way, tell of their ends, and `call` this,
        before it schedules others."""
        self._at_rest.append(call)

    def data_of(self, x: Any) -> Any:
        """What makes datasets as the dataset that it makes; anything else as it is."""
        return self.coordinator._data_of_model(x)

    def read_by_workers(self, x: Any, steps: int | None) -> WorkerData | None:
        """Data that workers read themselves: a dataset that needs nothing of this process, when
        the steps of an epoch are said; None for others."""
        if steps is None or not isinstance(x, Dataset):
            return None
        try:
            x.serialize()
        except errors.FailedPreconditionError:
            return None
        return WorkerData(self, x, steps)

    def run(
        self, calls: Iterable[Call], begin: Callable[[int], None],
        end: Callable[[int, Any], bool],
    ) -> None:  # fmt: skip
        """Has workers run all of them. begin(step) is told of the first step of each before it is
        scheduled, end(step, result) of the last one when it has ended and those before it have:
        while others are under way, so that an epoch shows how far it is. No more are scheduled
        when it is True."""
        pending: deque[tuple[int, Any]] = deque()
        try:
            for call in calls:
                begin(call.first)
                value = self.coordinator.schedule(call.function, (call.argument,))
                pending.append((call.first + call.steps - 1, value))
                self._make_room(pending)
                if self._end_ready(pending, end) or self._rest(pending, end):
                    break
            self._end_all(pending, end)
            self._rest(pending, end)
        except Exception:
            self._at_rest.clear()
            with contextlib.suppress(errors.CancelledError):
                self.coordinator.join()  # Raises what had the others cancelled.
            raise

    def _rest(self, pending: deque[tuple[int, Any]], end: Callable[[int, Any], bool]) -> bool:
        """Calls what waits for when_at_rest(), if anything does. As _end_ready()."""
        if not self._at_rest:
            return False
        is_over = self._end_all(pending, end)
        waiting, self._at_rest = self._at_rest, []
        for call in waiting:
            call()
        return is_over

    def _make_room(self, pending: deque[tuple[int, Any]]) -> None:
        """Waits while too many are under way: for one amid them, as the first may be the one of a
        worker that is slow."""
        waiting = [value for _, value in pending if not value.is_ready]
        if len(waiting) >= self._ahead:
            waiting[len(waiting) // 2].get()

    def _end_ready(self, pending: deque[tuple[int, Any]], end: Callable[[int, Any], bool]) -> bool:
        is_over = False
        while pending and pending[0][1].is_ready:
            step, value = pending.popleft()
            is_over = end(step, value.get()) or is_over
        return is_over

    def _end_all(self, pending: deque[tuple[int, Any]], end: Callable[[int, Any], bool]) -> bool:
        """Waits for one after the other, then for what else the coordinator has to end."""
        is_over = False
        while pending:
            pending[0][1].get()
            is_over = self._end_ready(pending, end) or is_over
        self.coordinator.join()
        return is_over
