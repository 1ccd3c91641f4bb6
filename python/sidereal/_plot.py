"""`sidereal plot RUN...`: learning curves as a picture, without a server."""

from __future__ import annotations

import argparse
import csv
import fnmatch
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from . import _tensorboard, errors, records
from ._usage import Parser, say

#: Curves of a picture, if --tag does not choose.
PANELS_MAX = 24
ERROR, USAGE_ERROR = 1, 2


class Point(NamedTuple):
    step: float
    #: Seconds since the epoch; None where it is not known.
    time: float | None
    value: float


#: What a run has: points by the names of figures, in the order of their steps.
Run = dict[str, list[Point]]


class PlotError(Exception):
    """What cannot be plotted, and what to do."""


# --- Reading.


def runs_of(given: str) -> dict[str, Run]:
    """The runs that `given` is, by their names: NAME=PATH or PATH of a file, or of a folder, in
    which every folder with files of events is one."""
    name, equals, path = given.partition("=")
    if not equals or os.path.exists(given):
        name, path = given, given
    place = Path(path)
    if place.is_dir():
        found = dict(_in_folder(place, name))
        if not found:
            raise PlotError(f"{path}: there are no files of events (*tfevents*) in this folder")
        return found
    if not place.exists():
        raise PlotError(f"{path}: there is no such file or folder")
    if "tfevents" in place.name:
        return {name: _events([place])}
    readers = {".csv": _csv, ".tsv": _csv, ".log": _csv, ".json": _json}
    if place.suffix not in readers:
        raise PlotError(
            f"{path}: a run is a folder or file of events (*tfevents*), a .csv file of CSVLogger, "
            "or the .json file of sidereal train --json"
        )
    return {name: readers[place.suffix](place)}


def _in_folder(root: Path, name: str) -> Iterator[tuple[str, Run]]:
    for folder, _, files in sorted(os.walk(root)):
        events = sorted(Path(folder, file) for file in files if "tfevents" in file)
        if events:
            inside = Path(folder).relative_to(root)
            yield str(Path(name, inside)) if inside.parts else name, _events(events)


def _events(files: Sequence[Path]) -> Run:
    run: Run = {}
    event_pb2 = _tensorboard.modules().event_pb2
    for file in files:
        try:
            for content in records.tf_record_iterator(file):
                event = event_pb2.Event.FromString(content)
                for value in event.summary.value:
                    number = _tensorboard.number_of(value)
                    if number is not None:
                        point = Point(event.step, event.wall_time, number)
                        run.setdefault(value.tag, []).append(point)
        except errors.DataLossError as error:
            # Of a program that still writes, or was killed, the last record may lack its end.
            say("plot", f"note: {error.message}; what comes before is shown")
    for points in run.values():
        points.sort(key=lambda point: point.step)
    return run


def _csv(file: Path) -> Run:
    run: Run = {}
    with open(file, newline="", encoding="utf-8") as lines:
        head = lines.readline()
        lines.seek(0)
        separator = max(",\t;", key=head.count)
        for number, row in enumerate(csv.DictReader(lines, delimiter=separator)):
            step = _number(row.get("epoch") or row.get("step"))
            for name, text in row.items():
                value = _number(text) if isinstance(text, str) else None
                if value is not None and name not in ("epoch", "step"):
                    at = number if step is None else step
                    run.setdefault(str(name), []).append(Point(at, None, value))
    if not run:
        raise PlotError(f"{file}: there are no numbers below a head with names, as CSVLogger has")
    return run


def _json(file: Path) -> Run:
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
        epochs, losses = told["valid"], told.get("training_losses", [])
    except (ValueError, KeyError, TypeError):
        raise PlotError(f"{file}: this is no file of sidereal train --json") from None
    run: Run = {}
    for epoch, figures in enumerate(epochs):
        for name in ("auc", "logloss"):
            if figures.get(name) is not None:
                run.setdefault(f"valid_{name}", []).append(Point(epoch, None, figures[name]))
    for epoch, loss in enumerate(losses):
        if loss is not None:
            run.setdefault("training_loss", []).append(Point(epoch, None, loss))
    if not run:
        raise PlotError(f"{file}: the training has ended no epoch, so there is no curve")
    return run


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


# --- Drawing.


def smoothed(values: Sequence[float], weight: float) -> np.ndarray:
    """Means of each value and those before it, which weigh less the older they are, as TensorBoard
    computes them; what is no number is left out."""
    made, mean, count = [], 0.0, 0
    for value in values:
        if not math.isfinite(value):
            made.append(math.nan)
            continue
        mean = mean * weight + (1 - weight) * value
        count += 1
        # At the beginning there are few values: the mean's start at zero is taken out.
        made.append(mean / (1 - weight**count))
    return np.asarray(made)


def panels_of(runs: Mapping[str, Run], patterns: Sequence[str]) -> list[str]:
    """The names of figures to draw, in their order; PlotError when there are none or too many."""
    names = sorted({name for run in runs.values() for name in run})
    if not names:
        raise PlotError("the runs have no numbers to draw")
    if not patterns:
        chosen = names
    else:
        chosen = [
            name for name in names if any(fnmatch.fnmatchcase(name, each) for each in patterns)
        ]
    if not chosen:
        raise PlotError(f"no figure is called {' or '.join(patterns)}; there are {_listed(names)}")
    if len(chosen) > PANELS_MAX:
        raise PlotError(
            f"there are {len(chosen)} figures; choose at most {PANELS_MAX} with --tag from "
            f"{_listed(chosen)}"
        )
    return chosen


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:40])
    return shown if len(names) <= 40 else f"{shown}, ... ({len(names)} of them)"


def _positions(points: Sequence[Point], by_time: bool) -> list[float]:
    """Where points lie: at their steps, or minutes after the first."""
    if not by_time:
        return [point.step for point in points]
    times = [point.time for point in points if point.time is not None]
    if len(times) < len(points):
        raise PlotError("--x time needs files of events: those of other runs have no times")
    return [(time - times[0]) / 60 for time in times]


def draw(runs: Mapping[str, Run], names: Sequence[str], options: argparse.Namespace) -> Any:
    """A matplotlib Figure: a panel for each name, in it the runs that have it."""
    try:
        # ruff: noqa: PLC0415 - nothing else draws.
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PlotError(
            "plot needs the package matplotlib, which is not installed: "
            f"pip install matplotlib ({error})"
        ) from None
    columns = min(3, math.ceil(math.sqrt(len(names))))
    rows = math.ceil(len(names) / columns)
    figure = Figure(figsize=(5 * columns + 1, 3.2 * rows + 0.6), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).reshape(-1)
    colors = {run: f"C{number % 10}" for number, run in enumerate(runs)}
    for panel, name in zip(panels, names):
        for label, run in runs.items():
            points = run.get(name)
            if not points:
                continue
            x, y = _positions(points, options.x == "time"), [point.value for point in points]
            marker = "o" if len(points) == 1 else None
            if options.smooth and len(points) > 1:
                panel.plot(x, y, color=colors[label], alpha=0.25, linewidth=1)
                y = list(smoothed(y, options.smooth))
            panel.plot(x, y, color=colors[label], label=label, marker=marker, linewidth=1.4)
        panel.set_title(name, fontsize=10)
        panel.set_xlabel("minutes" if options.x == "time" else "step", fontsize=8)
        panel.tick_params(labelsize=8)
        panel.grid(alpha=0.3)
        if options.log_x:
            panel.set_xscale("log")
        if options.log_y:
            panel.set_yscale("log")
    for panel in panels[len(names) :]:
        panel.set_visible(False)
    shown: dict[str, Any] = {}
    for panel in panels[: len(names)]:
        handles, labels = panel.get_legend_handles_labels()
        shown |= dict(zip(labels, handles))
    figure.legend(
        shown.values(), shown.keys(), loc="outside lower center", ncols=min(3, len(shown)),
        fontsize=8,
    )  # fmt: skip
    if options.title:
        figure.suptitle(options.title)
    return figure


def save(figure: Any, path: str) -> None:
    """Writes it, the same runs as the same bytes, with the text of an SVG as text."""
    import matplotlib

    metadata = {"Date": None} if path.endswith(".svg") else None
    with matplotlib.rc_context({"svg.hashsalt": "sidereal", "svg.fonttype": "none"}):
        figure.savefig(path, dpi=110, metadata=metadata)


# --- The command.


def _weight(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not from 0 to below 1")
    return value


def _file(text: str) -> str:
    if not text.endswith((".png", ".svg", ".pdf")):
        raise argparse.ArgumentTypeError(f"{text} does not end with .png, .svg or .pdf")
    return text


def parser() -> argparse.ArgumentParser:
    out = Parser(
        prog="sidereal plot",
        description="Draws learning curves: a panel for each figure, the runs over each other.",
        epilog="A RUN is a folder with files of events (of TensorBoard), in which each folder with "
        "such files is a run, or one such file; a .csv file of CSVLogger; or the .json file of "
        "`sidereal train --json`. NAME=PATH gives it a name.",
    )
    out.add_argument("runs", nargs="+", metavar="RUN", help="what to draw")
    out.add_argument(
        "--out", type=_file, default="plot.png", metavar="FILE",
        help="the picture: .png, .svg or .pdf (plot.png)",
    )  # fmt: skip
    out.add_argument(
        "--tag", action="append", default=[], metavar="NAME",
        help="figures to draw, by name or pattern ('*loss'); again for more (all)",
    )  # fmt: skip
    out.add_argument(
        "--smooth", type=_weight, default=0.0, metavar="WEIGHT",
        help="from 0, none, to below 1: how much of a mean is what was before (0)",
    )  # fmt: skip
    out.add_argument("--x", choices=("step", "time"), default="step", help="what is to the right")
    out.add_argument("--log-x", action="store_true", help="steps on a logarithmic axis")
    out.add_argument("--log-y", action="store_true", help="values on a logarithmic axis")
    out.add_argument("--title", default="", help="what stands above")
    out.add_argument("--list", action="store_true", help="say what there is, and draw nothing")
    return out


def main(arguments: Sequence[str]) -> int:
    """`sidereal plot ARGUMENTS`: the exit code."""
    options = parser().parse_args(arguments)
    try:
        runs: dict[str, Run] = {}
        for given in options.runs:
            runs |= runs_of(given)
        if options.list:
            for label, run in runs.items():
                for name, points in sorted(run.items()):
                    print(f"{label}\t{name}\t{len(points)}")
            return 0
        figure = draw(runs, panels_of(runs, options.tag), options)
        save(figure, options.out)
    except (PlotError, OSError, errors.Error) as error:
        say("plot", f"error: {getattr(error, 'message', error)}")
        return ERROR
    print(options.out)
    return 0
