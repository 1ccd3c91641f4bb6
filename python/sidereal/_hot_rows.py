"""Which rows of tables are pulled and pushed most: what parameter servers find."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from . import _tensorboard, errors
from ._native import StatusClient
from .security import SecurityOptions

_log = logging.getLogger("sidereal")

#: How long a cluster is looked for, how long its tasks have to say it, and when it is glanced at.
_REACH_S, _ANSWER_S, _GLANCE_S = 2.0, 5.0, 1.0


@dataclass(frozen=True)
class HotRow:
    """A row of a table, and what of the rows that steps pulled or pushed in the last minutes it is,
    0 to 1. Steps name each row once, however often it is in their batch."""

    table: str
    #: Of the table; None while the part of a table is not known that nobody tells of.
    row: int | None
    #: At least so much, as far as a sample tells; None: others were pulled or pushed more often.
    pulls: float | None
    pushes: float | None
    #: Each may be so much more.
    pulls_error: float
    pushes_error: float
    #: Who has it: the parameter server, and which of its lanes.
    task: str
    lane: int
    #: Of the table, and its number there; None: the table is in no parts.
    part: int | None
    row_of_part: int
    #: Of models or sessions, whose table it is; "": of all that have none.
    group: str


def of_cluster(
    target: str, security: SecurityOptions, rows: int, parts: str, limit_s: float = _ANSWER_S
) -> list[HotRow]:
    """Those of the cluster of the server at `target`."""
    client = StatusClient.create(target, security._to_native(), _REACH_S)
    return _rows_of(client, rows, parts, limit_s)


def _rows_of(client: StatusClient, rows: int, parts: str, limit_s: float) -> list[HotRow]:
    out = []
    for group, table, row, part, row_of_part, task, lane, pulls, pushes in client.hot_rows(
        limit_s, rows, parts
    ):
        out.append(
            HotRow(
                table=table,
                row=row,
                pulls=None if pulls is None else pulls[0],
                pushes=None if pushes is None else pushes[0],
                pulls_error=0.0 if pulls is None else pulls[1],
                pushes_error=0.0 if pushes is None else pushes[1],
                task=task,
                lane=lane,
                part=part,
                row_of_part=row_of_part,
                group=group,
            )
        )
    return out


class HottestRows:
    """Asks the cluster of the server at `target` what share of its calls the hottest row of each
    table has."""

    def __init__(self, target: str, security: SecurityOptions | None = None) -> None:
        self._target = target
        self._security = SecurityOptions.from_environment() if security is None else security
        self._client: StatusClient | None = None

    def summaries(self) -> Iterator[Any]:
        """A scalar for each table; nothing where the cluster does not answer, which is logged."""
        try:
            if self._client is None:
                native = self._security._to_native()
                self._client = StatusClient.create(self._target, native, _REACH_S)
            rows = _rows_of(self._client, 1, "modulo", _GLANCE_S)
        except errors.Error as error:
            _log.warning("%s does not say which rows are hot: %s", self._target, error)
            return
        shares: dict[str, float] = {}
        for row in rows:
            share = max(row.pulls or 0.0, row.pushes or 0.0)
            shares[row.table] = max(share, shares.get(row.table, 0.0))
        for table, share in shares.items():
            yield _tensorboard.scalar(f"hottest_row/{table}", share)
