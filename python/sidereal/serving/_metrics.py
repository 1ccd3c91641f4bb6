"""What a server of predictions counts, for Prometheus. See docs/guide/serving.md."""

from __future__ import annotations

import bisect
from collections import Counter as Counts
from collections.abc import Iterator, Sequence
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

from .. import _native

#: Bounds, how many came by each, those above all last, and the sum: as the native side has them.
_Times = tuple[Sequence[float], Sequence[int], float]


class Metrics:
    """The figures of one server, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        #: What calls of the model were like.
        self.batches = _native.BatchFigures.make()
        #: gRPC, which counts its calls itself.
        self.front: _native.GrpcFront | None = None
        self.waiting = Gauge(
            "sidereal_serving_waiting_rows", "Rows that wait for a call of the model.",
            registry=self.registry,
        )  # fmt: skip
        self.version = Gauge(
            "sidereal_serving_version", "The version of the model that is served.",
            registry=self.registry,
        )  # fmt: skip
        self.loads = Counter(
            "sidereal_serving_loads", "Versions that were loaded, or could not be.",
            ["result"], registry=self.registry,
        )  # fmt: skip
        self._bounds = self.batches.seconds[0]
        self._answered: Counts[tuple[str, str, str]] = Counts()
        self._times = [0] * (len(self._bounds) + 1)
        self._seconds = 0.0
        self.registry.register(self)

    def answered(self, method: str, code: str, seconds: float | None) -> None:
        """Counts a request of REST; with the time it took, unless it was refused before it had
        come."""
        self._answered["rest", method, code] += 1
        if seconds is not None:
            self._times[bisect.bisect_left(self._bounds, seconds)] += 1
            self._seconds += seconds

    def collect(self) -> Iterator[Any]:
        """The families of figures that are counted here and in the native side."""
        requests = CounterMetricFamily(
            "sidereal_serving_requests", "Requests that were answered, or refused.",
            labels=["protocol", "method", "code"],
        )  # fmt: skip
        for key, count in self._answered.items():
            requests.add_metric(key, count)
        seconds = HistogramMetricFamily(
            "sidereal_serving_request_seconds",
            "Time from a request that has come to its answer.", labels=["protocol"],
        )  # fmt: skip
        _add(seconds, ["rest"], (self._bounds, self._times, self._seconds))
        if self.front is not None:
            for (method, code), count in self.front.answered().items():
                requests.add_metric(("grpc", method, code), count)
            _add(seconds, ["grpc"], self.front.seconds)
        yield requests
        yield seconds
        yield CounterMetricFamily(
            "sidereal_serving_rows", "Rows that the model was called with.",
            value=self.batches.rows[2],
        )  # fmt: skip
        for name, text, found in (
            ("rows", "Rows of a call of the model.", self.batches.rows),
            ("seconds", "Time of a call of the model.", self.batches.seconds),
        ):
            family = HistogramMetricFamily(f"sidereal_serving_batch_{name}", text, labels=[])
            _add(family, [], found)
            yield family

    def text(self) -> bytes:
        """All figures as Prometheus reads them."""
        return generate_latest(self.registry)


def _add(family: HistogramMetricFamily, labels: Sequence[str], found: _Times) -> None:
    bounds, counts, total = found
    buckets, count = [], 0
    for bound, more in zip((*map(repr, map(float, bounds)), "+Inf"), counts):
        count += more
        buckets.append((bound, float(count)))
    family.add_metric(labels, buckets, total)


__all__ = ["Metrics"]
