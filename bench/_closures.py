"""What bench/coordinator.py has coordinators do: one source for TensorFlow and for Sidereal."""

from __future__ import annotations

import statistics
import time
from typing import Any

#: Closures that are scheduled before the clock is looked at.
BATCH = 200
#: Those that may wait, so that windows end soon.
WAITING_MAX = 4000

#: What a window measures, in words.
KINDS = {
    "none": "closures without a result",
    "value": "closures with a result, which is fetched",
    "latency": "one at a time, from schedule() to the value",
}


class Closures:
    """Light functions, scheduled as fast as they go: what is measured is the coordinator."""

    def __init__(self, tf: Any, strategy: Any, coordinator: Any) -> None:
        self._coordinator = coordinator
        with strategy.scope():
            self._count = tf.Variable(0.0)

        @tf.function
        def add() -> None:
            self._count.assign_add(1.0)

        @tf.function
        def value(x: Any) -> Any:
            return x + 1.0

        self._add, self._value = add, value
        self._x = tf.constant(1.0)
        for _ in range(2):
            self.window("none", 0)
            self.window("value", 0)

    def window(self, what: str, seconds: float) -> dict[str, Any]:
        """Closures in at least so many seconds; of "latency", the median of the milliseconds."""
        if what == "latency":
            return self._latency(seconds)
        begin = time.monotonic()
        made = 0
        spent_in_schedule = 0.0
        while made == 0 or time.monotonic() - begin < seconds:
            values = []
            at = time.monotonic()
            for _ in range(WAITING_MAX if seconds > 0 else BATCH):
                values.append(self._schedule(what))
            spent_in_schedule += time.monotonic() - at
            if what == "value":
                for value in values:
                    value.fetch()
            self._coordinator.join()
            made += len(values)
        spent = time.monotonic() - begin
        return {"per_s": made / spent, "schedule_us": 1e6 * spent_in_schedule / made}

    def _schedule(self, what: str) -> Any:
        if what == "none":
            return self._coordinator.schedule(self._add)
        return self._coordinator.schedule(self._value, args=(self._x,))

    def _latency(self, seconds: float) -> dict[str, Any]:
        begin = time.monotonic()
        taken = []
        while not taken or time.monotonic() - begin < seconds:
            at = time.monotonic()
            self._schedule("value").fetch()
            taken.append(time.monotonic() - at)
        return {"ms": 1e3 * statistics.median(taken)}
