"""What is said of variables that went with a task, and came back from a checkpoint or from its
standby."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass

from . import _events

#: Tables that a line names.
_TABLES_SHOWN = 5


@dataclass(frozen=True)
class LostPushes:
    """What had been pushed to a task since its variables were saved."""

    pushes: int  #: To each part of a table, and each other variable, one.
    rows: int  #: Of tables.
    rows_of: dict[str, int]  #: By table, as far as that is known.
    #: Whether all who pushed are there and say what was answered to them. Else at least so much is
    #: lost.
    is_exact: bool

    def __str__(self) -> str:
        text = f"{'' if self.is_exact else 'at least '}{self.pushes} pushes"
        if not self.rows:
            return text
        if not self.rows_of:
            return f"{text}, with {self.rows} rows of tables"
        largest = sorted(self.rows_of.items(), key=lambda one: -one[1])
        named = [f"{table}: {rows}" for table, rows in largest[:_TABLES_SHOWN]]
        if len(largest) > _TABLES_SHOWN:
            named.append(f"{len(largest) - _TABLES_SHOWN} more")
        least = "at least " if sum(self.rows_of.values()) < self.rows else ""
        return f"{text}, with {self.rows} rows of tables ({least}{', '.join(named)})"


@dataclass(frozen=True)
class RestoredTask:
    """A task whose variables have the values of a checkpoint again, or those of its standby. What
    was pushed to them since then is lost; those of other tasks are as they were."""

    task: str  #: "/job:ps/replica:0/task:1".
    variables: tuple[str, ...]
    rows: int  #: Of all these; a scalar is one.
    bytes: int
    prefix: str  #: Of the checkpoint; "": a standby had them.
    seconds: float
    #: Steps that had ended when it was lost, and in the checkpoint, as far as both are known.
    step: int | None = None
    step_in_checkpoint: int | None = None
    #: Variables that are in no checkpoint and have their first values again.
    begun_anew: tuple[str, ...] = ()
    #: The counter was lost as well, and `step` is what was last read of it: there may be more.
    step_is_last_read: bool = False
    #: What had been pushed; None: nobody asked the task in time.
    pushed: LostPushes | None = None
    #: The task that had them; "": a checkpoint had.
    standby: str = ""

    @property
    def lost_pushes(self) -> int | None:
        """Pushes that are lost: all, if `pushed.is_exact`, or at least so many; None: nobody
        knows."""
        return None if self.pushed is None else self.pushed.pushes

    @property
    def lost_rows(self) -> int | None:
        """Rows of tables that these had changed, each as often as it was pushed."""
        return None if self.pushed is None else self.pushed.rows

    @property
    def lost_steps(self) -> int | None:
        """Whose pushes to this task are lost; None: nobody knows."""
        if self.step is None or self.step_in_checkpoint is None:
            return None
        return max(self.step - self.step_in_checkpoint, 0)

    def __str__(self) -> str:
        back = (
            f"{self.task} was lost and is back: {len(self.variables)} variables of {self.rows} "
            f"rows, {self.bytes / 1e6:.1f} MB,"
        )
        if self.standby:
            taken = f"from its standby {self.standby} in {self.seconds:.2f} s"
            return f"{back} {taken}; {self._missed()}"
        steps = self.lost_steps
        if steps is None:
            lost = "all that was pushed to them since then: "
            if self.pushed is None:
                lost += "nobody that is left has counted it"
        else:
            least = "at least " if self.step_is_last_read else ""
            first = self.step_in_checkpoint
            lost = f"what {least}{steps} steps pushed to them, {first} to {self.step}"
            if self.pushed is not None:
                lost += ": "
        if self.pushed is not None:
            lost += str(self.pushed)
        anew = ""
        if self.begun_anew:
            anew = f"; begun anew, as they are in no checkpoint: {', '.join(self.begun_anew)}"
        return (
            f"{back} restored from {self.prefix} in {self.seconds:.2f} s; lost is {lost}; "
            f"others are as they were{anew}"
        )

    def _missed(self) -> str:
        """What was pushed and is not in its standby."""
        if self.pushed is None:
            return "whether a push was lost nobody that is left has counted"
        if self.pushed.pushes:
            return f"lost is what the standby did not have: {self.pushed}"
        return "no push was lost" if self.pushed.is_exact else "no push is known to be lost"

    def say(self) -> None:
        """One line of the log, which is seen unless it is turned off, and its events."""
        event, source = (
            ("standby_taken", {"standby": self.standby})
            if self.standby
            else ("restore_done", {"prefix": self.prefix})
        )
        _events.emit(
            event, str(self), level=logging.WARNING, task=self.task, **source,
            variables=len(self.variables), rows=self.rows, bytes=self.bytes,
            seconds=round(self.seconds, 3),
        )  # fmt: skip
        pushed = self.pushed
        if self.standby and (pushed is None or not pushed.pushes):
            return
        _events.emit(
            "pushes_lost", task=self.task, pushes=self.lost_pushes, rows=self.lost_rows,
            is_exact=None if pushed is None else pushed.is_exact, steps=self.lost_steps,
        )  # fmt: skip


def size_of(shapes: Sequence[Sequence[int]], item_bytes: Sequence[int]) -> tuple[int, int]:
    """(rows, bytes) of variables."""
    rows = sum(shape[0] if len(shape) else 1 for shape in shapes)
    return rows, sum(math.prod(shape) * item for shape, item in zip(shapes, item_bytes))
