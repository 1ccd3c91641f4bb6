"""What a server of predictions counts, for Prometheus. See docs/guide/serving.md."""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

_SECONDS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


class Metrics:
    """The figures of one server, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.requests = Counter(
            "sidereal_serving_requests", "Requests that were answered, or refused.",
            ["protocol", "method", "code"], registry=self.registry,
        )  # fmt: skip
        self.seconds = Histogram(
            "sidereal_serving_request_seconds",
            "Time from a request that has come to its answer.",
            ["protocol"], buckets=_SECONDS, registry=self.registry,
        )  # fmt: skip
        self.rows = Counter(
            "sidereal_serving_rows", "Rows that the model was called with.",
            registry=self.registry,
        )  # fmt: skip
        self.batch_rows = Histogram(
            "sidereal_serving_batch_rows", "Rows of a call of the model.",
            buckets=_ROWS, registry=self.registry,
        )  # fmt: skip
        self.batch_seconds = Histogram(
            "sidereal_serving_batch_seconds", "Time of a call of the model.",
            buckets=_SECONDS, registry=self.registry,
        )  # fmt: skip
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
        self._children: dict[tuple[str, str, str], Counter] = {}
        self._timers: dict[str, Histogram] = {}

    def answered(self, protocol: str, method: str, code: str, seconds: float | None) -> None:
        """Counts a request; with the time it took, unless it was refused before it had come."""
        key = (protocol, method, code)
        counter = self._children.get(key)
        if counter is None:
            counter = self._children[key] = self.requests.labels(*key)
        counter.inc()
        if seconds is not None:
            timer = self._timers.get(protocol)
            if timer is None:
                timer = self._timers[protocol] = self.seconds.labels(protocol)
            timer.observe(seconds)

    def called(self, rows: int, seconds: float) -> None:
        """Counts a call of the model."""
        self.rows.inc(rows)
        self.batch_rows.observe(rows)
        self.batch_seconds.observe(seconds)

    def text(self) -> bytes:
        """All figures as Prometheus reads them."""
        return generate_latest(self.registry)


__all__ = ["Metrics"]
