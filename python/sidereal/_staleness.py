"""How old what steps compute with is, as TensorBoard shows it: figures of parameter servers."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from . import _tensorboard, errors
from ._native import StatusClient
from .security import SecurityOptions

_log = logging.getLogger("sidereal")

#: How long a cluster is looked for, and how long its tasks have to answer.
_REACH_S, _ANSWER_S = 10.0, 1.0


class Staleness:
    """Asks the cluster of the server at `target` how many changes of others came between what
    steps pulled of tables and what they pushed to them, since the last time."""

    def __init__(self, target: str, security: SecurityOptions | None = None) -> None:
        self._target = target
        self._security = SecurityOptions.from_environment() if security is None else security
        self._client: StatusClient | None = None
        #: By tag: the sum, and how many there were by the bounds of buckets.
        self._before: dict[str, tuple[int, dict[tuple[int, int], int]]] = {}

    def summaries(self) -> Iterator[Any]:
        """The mean and a histogram of each table and worker that had something; nothing where the
        cluster does not answer, which is logged."""
        try:
            if self._client is None:
                self._client = StatusClient.create(
                    self._target, self._security._to_native(), _REACH_S
                )
            found = self._client.staleness(_ANSWER_S)
        except errors.Error as error:
            _log.warning("%s does not say how stale its tables are: %s", self._target, error)
            return
        for table, worker, total, buckets in found:
            tag = f"staleness/{table or 'other_variables'}/{_short(worker)}"
            counts = {(least, most): count for least, most, count in buckets}
            total_before, before = self._before.get(tag, (0, {}))
            self._before[tag] = total, counts
            lately = {where: count - before.get(where, 0) for where, count in counts.items()}
            fewer = any(counts.get(where, 0) < number for where, number in before.items())
            if fewer or total < total_before:  # Of a server, or a worker, that is another one.
                lately, total_before = counts, 0
            number = sum(lately.values())
            if not number:
                continue
            yield _tensorboard.scalar(tag, (total - total_before) / number)
            rows = [(least, most + 1, count) for (least, most), count in lately.items() if count]
            yield _tensorboard.counted(f"histogram_of_{tag}", rows)


def _short(worker: str) -> str:
    """As in "worker_0"; "others": workers that have gone, or are too many."""
    parts = dict(part.split(":", 1) for part in worker.strip("/").split("/") if ":" in part)
    return f"{parts['job']}_{parts['task']}" if {"job", "task"} <= parts.keys() else "others"
