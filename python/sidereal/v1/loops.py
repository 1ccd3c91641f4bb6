"""Loops: steps of a session one after another, fed from data that is read where they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import errors
from .._data_spec import DataSpec
from .._dispatch import ENGINE
from .._native import Batches, Output, Tensor

#: What is kept of a fetch.
KEEPS = ("mean", "series", "each", "last")


@dataclass(frozen=True)
class LoopProgress:
    """Totals of a loop so far; times are seconds."""

    steps: int = 0
    rows: int = 0
    rows_skipped: int = 0
    #: What was wrong with the first of them.
    first_skipped: str = ""
    #: Of the data, 0 to 1.
    fraction: float = 0.0
    #: From the beginning of the first step to the end of the latest.
    seconds: float = 0.0
    #: Of the lanes that ran the steps: computing, and the rest; of that, for data.
    computed_s: float = 0.0
    waited_s: float = 0.0
    waited_for_data_s: float = 0.0
    bytes_in: int = 0
    bytes_out: int = 0
    #: Of the latest rows; 0: not asked for, or no rows yet.
    auc: float = 0.0
    #: (sum, last, steps) of each fetch that is kept as a number.
    scalars: Sequence[tuple[float, float, int]] = ()


@dataclass(frozen=True)
class LoopResult(LoopProgress):
    """How a loop ended. See BaseSession.run_loop()."""

    #: As the fetches were given: of each its mean, its numbers, a list of its values, its last
    #: value, by what was kept; None for an Operation.
    fetches: Any = None
    #: Kept columns by name, of each step.
    columns: dict[str, list[Any]] = field(default_factory=dict)
    #: Elements of Chrome's trace format, for each step that was traced.
    traces: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Loop:
    """What a runner runs."""

    values: list[Output]
    keeps: list[str]
    targets: list[int]
    #: JSON of a DataSpec, or "".
    source: str
    columns: list[tuple[Output, str]]
    places: list[Output]
    tensors: list[Tensor]
    kept_columns: list[str]
    #: (number of a fetch, column of labels)
    auc: tuple[int, str] | None
    #: Names and values as the core has them (task/loop.h).
    numbers: dict[str, Any]


#: Gets (lane, step of the lane, rows, [(number of a fetch or kept column, value)]).
OnValues = Callable[[int, int, int, list[tuple[int, Tensor]]], object]
#: What a runner gives back: (progress, series by fetch, last value by fetch or None, traces).
Raw = tuple[dict[str, Any], list[list[float]], list[Tensor | None], list[str]]


def text_of(source: DataSpec | str | None) -> str:
    """The data of a loop as the core reads it."""
    if source is None:
        return ""
    return source if isinstance(source, str) else source.with_statistics().to_json()


def keeps_of(keep: str | Sequence[str], count: int) -> list[str]:
    """What is kept of each of `count` fetches."""
    keeps = [keep] * count if isinstance(keep, str) else list(keep)
    if len(keeps) != count:
        raise ValueError(f"keep says {len(keeps)} things of {count} fetches")
    for one in keeps:
        if one not in KEEPS:
            raise ValueError(f"keep is {one!r}; it must be one of {', '.join(KEEPS)}")
    return keeps


class Kept:
    """Collects the values of steps."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._steps: list[tuple[int, int, list[tuple[int, Any]]]] = []

    def take(self, lane: int, step: int, _rows: int, values: list[tuple[int, Tensor]]) -> None:
        self._steps.append((step, lane, [(index, value.numpy()) for index, value in values]))

    def by_index(self) -> dict[int, list[Any]]:
        """Values in the order of steps, those of all lanes in turn."""
        out: dict[int, list[Any]] = {}
        for _step, _lane, values in sorted(self._steps, key=lambda one: one[:2]):
            for index, value in values:
                out.setdefault(index, []).append(value)
        return out


def result_of(loop: Loop, raw: Raw, kept: Kept) -> tuple[dict[str, Any], list[Any]]:
    """(fields of a LoopResult but its fetches, what was kept of each value)."""
    progress, series, last, traces = raw
    values = kept.by_index()
    leaves: list[Any] = []
    for index, keep in enumerate(loop.keeps):
        total, _last, steps = progress["scalars"][index]
        end = last[index]
        leaves.append({
            "mean": total / steps if steps else float("nan"),
            "series": np.asarray(series[index]),
            "each": values.get(index, []),
            "last": None if end is None else end.numpy(),
        }[keep])  # fmt: skip
    columns = {
        name: values.get(len(loop.keeps) + index, [])
        for index, name in enumerate(loop.kept_columns)
    }
    return {**progress, "columns": columns, "traces": traces}, leaves


def run_here(
    loop: Loop,
    run: Callable[[list[Output], list[int], list[Output], list[Tensor]], list[Tensor]],
    on_values: OnValues,
) -> Raw:
    """Runs a loop in this process, step by step."""
    numbers = loop.numbers
    steps_max = numbers["steps"]
    if not loop.source and not steps_max:
        raise errors.InvalidArgumentError("a loop without data must say how many steps it has")
    batches = Batches.open(loop.source, numbers) if loop.source else None
    places = [place for place, _column in loop.columns] + loop.places
    sums = [[0.0, 0.0, 0] for _ in loop.values]
    series: list[list[float]] = [[] for _ in loop.values]
    last: list[Tensor | None] = [None] * len(loop.values)
    steps = rows = 0
    while not steps_max or steps < steps_max:
        batch = batches.next(ENGINE) if batches else (0, {})
        if batch is None:
            break
        columns = batch[1]
        tensors = [_column(columns, name) for _place, name in loop.columns] + loop.tensors
        outputs = run(loop.values, loop.targets, places, tensors)
        kept = []
        for index, (keep, value) in enumerate(zip(loop.keeps, outputs)):
            if keep == "each":
                kept.append((index, value))
            elif keep == "last":
                last[index] = value
            else:
                number = _number(loop.values[index], value)
                sums[index] = [sums[index][0] + number, number, sums[index][2] + 1]
                if keep == "series":
                    series[index].append(number)
        for index, name in enumerate(loop.kept_columns):
            kept.append((len(loop.values) + index, _column(columns, name)))
        if kept:
            on_values(0, steps, batch[0], kept)
        steps += 1
        rows += batch[0]
    skipped, first, fraction = batches.stats() if batches else (0, "", 0.0)
    progress = {
        "steps": steps, "rows": rows, "rows_skipped": skipped, "first_skipped": first,
        "fraction": fraction, "scalars": [tuple(one) for one in sums],
    }  # fmt: skip
    return progress, series, last, []


def _column(columns: Mapping[str, Tensor], name: str) -> Tensor:
    if name not in columns:
        raise errors.InvalidArgumentError(
            f"the data has no column '{name}'; it has {', '.join(columns)}"
        )
    return columns[name]


def _number(fetch: Output, value: Tensor) -> float:
    array = value.numpy()
    if array.size != 1 or array.dtype.kind not in "fiub":
        raise errors.InvalidArgumentError(
            f"fetch '{fetch.name}': {array.dtype} of shape {array.shape} is not one number, and "
            "has no mean: keep each or the last"
        )
    return float(array.reshape(()))
