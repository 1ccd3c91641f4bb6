"""`sidereal compare`: in what two trainings differ, and what came of it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import _paired, errors
from ._evaluate_command import is_binary_of, labels_and_predictions
from ._paired import Compared
from ._predict_command import failed, positive
from ._predictors import Predictor, open_model
from ._progress import table
from ._runs_command import RunFile, shown
from ._usage import Parser

#: The exit code where the second one is worse, and chance does not explain it.
WORSE = 3
#: Where results lie says nothing of the model.
_PLACES = frozenset(
    ("checkpoint-dir", "json", "losses", "tensorboard", "describe", "trace", "trace-steps", "quiet",
     "resume")
)  # fmt: skip
_FACTS = ("version", "data_files", "data_bytes", "data_digest")
_FIGURES = ("auc", "log_loss", "pr_auc", "rmse", "calibration", "grouped_auc", "ndcg")


def differences(a: RunFile, b: RunFile) -> dict[str, tuple[Any, Any]]:
    """Options, and facts of data and program, that are not the same."""
    out = {}
    for name in dict.fromkeys([*a.options, *b.options]):
        values = (a.options.get(name), b.options.get(name))
        if name not in _PLACES and values[0] != values[1]:
            out[name] = values
    for name in _FACTS:
        values = (a.facts.get(name), b.facts.get(name))
        if values[0] != values[1]:
            out[name.replace("_", " ")] = values
    return out


def written_figures(a: RunFile, b: RunFile) -> dict[str, tuple[Any, Any]]:
    """What the trainings themselves have found."""
    out: dict[str, tuple[Any, Any]] = {"ended": (a.facts.get("how"), b.facts.get("how"))}
    for name in ("epochs", "best_epoch", "steps", "seconds", "samples_per_s", "training_loss"):
        out[name.replace("_", " ")] = (a.facts.get(name), b.facts.get(name))
    for which, words in (("best", "valid (best)"), ("last", "valid (last)"), ("test", "test")):
        for name in _FIGURES:
            values = (a.figure(which, name), b.figure(which, name))
            if values != (None, None):
                out[f"{words} {name.replace('_', ' ')}"] = values
    return {name: values for name, values in out.items() if values != (None, None)}


def _model(run: RunFile) -> Predictor:
    if "checkpoint-dir" not in run.options or not (run.path.parent / "model.json").exists():
        raise errors.FailedPreconditionError(
            f"{run.name} has no checkpoints beside {run.path}, whose model --data would be for: "
            "train it with --checkpoint-dir"
        )
    return open_model(run.path.parent)


def on_rows(a: RunFile, b: RunFile, options: argparse.Namespace) -> tuple[int, list[Compared]]:
    """Both models on the rows of a file: how many there are, and the figures."""
    found = []
    for run in (a, b):
        predictor = _model(run)
        known, predicted = labels_and_predictions(predictor, options)
        found.append((known, predicted, is_binary_of(predictor, known, predicted)))
    (labels, first, is_binary), (others, second, other_is_binary) = found
    if not np.array_equal(labels, others):
        raise errors.InvalidArgumentError(
            f"the runs take other labels of {options.data}: their columns or rules differ "
            "(--label, --positive); give --label"
        )
    both = is_binary and other_is_binary
    return len(labels), _paired.compare(labels, first, second, both, options.confidence)


def _confidence(text: str) -> float:
    value = float(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return value


def parser() -> argparse.ArgumentParser:
    out = Parser(
        prog="sidereal compare",
        description="Says in which options two trainings differ, and their figures beside each "
        "other; with --data also those of their models on the same rows, with confidence "
        "intervals.",
        epilog="A RUN is a run.toml, or the folder that it is in. The exit code is 3 where --data "
        "shows that the second model is worse than the first, by more than chance explains.",
    )
    out.add_argument("runs", nargs=2, metavar="RUN", help="the first one, and the other")
    out.add_argument("--data", metavar="FILE", help="rows with labels to judge both models by")
    out.add_argument("--label", metavar="COLUMN", help="of --data (as when they were trained)")
    out.add_argument("--output", metavar="NAME", help="which output, of models with several")
    out.add_argument("--batch-size", type=positive, default=4096, metavar="N", help="(4096)")
    out.add_argument(
        "--confidence", type=_confidence, default=0.95, metavar="X", help="of intervals (0.95)"
    )
    out.add_argument("--json", action="store_true", help="the same for programs")
    return out


def _interval(interval: tuple[float, float]) -> str:
    return f"[{interval[0]:.6g}, {interval[1]:.6g}]"


def _compared_rows(found: Sequence[Compared]) -> list[list[str]]:
    return [
        [
            one.name.replace("_", " "), f"{one.a:.6g} {_interval(one.a_interval)}",
            f"{one.b:.6g} {_interval(one.b_interval)}",
            f"{one.difference:+.6g} {_interval(one.interval)}", f"{one.p_value:.3g}",
            one.verdict, one.method,
        ]
        for one in found
    ]  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """`sidereal compare ARGUMENTS`: the exit code."""
    options = parser().parse_args(arguments)
    try:
        a, b = (RunFile.load(Path(path)) for path in options.runs)
        differ, written = differences(a, b), written_figures(a, b)
        rows, found = (0, []) if options.data is None else on_rows(a, b, options)
    except (errors.Error, OSError, ValueError) as error:
        return failed("compare", error)
    if options.json:
        told: dict[str, Any] = {"a": a.name, "b": b.name, "options": differ, "figures": written}
        if options.data is not None:
            told["data"] = {
                "file": options.data, "rows": rows, "confidence": options.confidence,
                "figures": [one.told() for one in found],
            }  # fmt: skip
        print(json.dumps(told, indent=1))
    else:
        lines = [[name, shown(x), shown(y)] for name, (x, y) in differ.items()]
        print(table(["differs", a.name, b.name], lines or [["nothing", "", ""]]))
        lines = [[name, shown(x), shown(y)] for name, (x, y) in written.items()]
        print("\n" + table(["figure", a.name, b.name], lines))
        if found:
            head = [f"on {rows} rows", a.name, b.name, "difference", "p", "the second is", "method"]
            print("\n" + table(head, _compared_rows(found)))
            print(f"\nintervals of {options.confidence:.4g}")
    return WORSE if any(one.verdict == "worse" for one in found) else 0
