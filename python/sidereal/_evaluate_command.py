"""`sidereal evaluate`: how good a model is on the rows of a file, or each checkpoint that comes."""

from __future__ import annotations

import argparse
import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from . import errors
from ._config_file import add_config_option, parse
from ._description import ModelDescription
from ._predict_command import add_model_options, failed, positive
from ._predictors import (
    Predictor,
    keras_model,
    keras_predictor,
    kind_of,
    of_description,
    one_output,
    open_model,
)
from ._rows import Rows
from ._usage import Parser, say
from .checkpoint_management import wait_for_new_checkpoint

#: A training has this file beside its checkpoints; it is empty when it has ended.
LOCK_FILE = "checkpoint.lock"
#: Seconds between looks at a folder.
_LOOK_S = 1.0
#: What says that a checkpoint is gone, or going.
_GONE = (errors.NotFoundError, errors.DataLossError, FileNotFoundError)


# ---- figures -------------------------------------------------------------------------------------


def auc_of(labels: npt.NDArray[Any], scores: npt.NDArray[Any]) -> float:
    """The area under the ROC curve, exact: how often a row with label 1 has the higher score, equal
    ones half; NaN where all labels are equal."""
    positive_rows = labels > 0.5
    count, rest = int(positive_rows.sum()), int((~positive_rows).sum())
    if not count or not rest:
        return float("nan")
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2.0
    above = ranks[inverse.reshape(-1)][positive_rows].sum() - count * (count + 1) / 2.0
    return float(above / (count * rest))


def figures_of(
    labels: npt.NDArray[Any], predictions: npt.NDArray[Any], is_binary: bool
) -> dict[str, float]:
    """AUC and log loss of probabilities; the mean squared and absolute error of anything else."""
    scores = predictions.astype(np.float64)
    if is_binary:
        least = np.finfo(np.float32).eps
        p = np.clip(scores, least, 1 - least)
        loss = -np.mean(np.where(labels > 0.5, np.log(p), np.log1p(-p)))
        return {"auc": auc_of(labels, predictions), "log_loss": float(loss)}
    error = scores - labels
    return {"mse": float(np.mean(error**2)), "mae": float(np.mean(np.abs(error)))}


def labels_and_predictions(
    predictor: Predictor, options: argparse.Namespace
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Of the rows of a file, in order."""
    label = options.label
    if label is None:
        label = "label" if predictor.data is None else predictor.data.label
    rows = Rows(predictor, options.data, options.batch_size, label=label)
    labels: list[npt.NDArray[Any]] = []
    predictions: list[npt.NDArray[Any]] = []
    for batch in rows:
        given = predictor.call(batch.inputs)
        found = np.asarray(given[one_output(predictor, list(given), options.output)])
        if found.dtype == object or found.size != batch.count:
            raise errors.InvalidArgumentError(
                f"{predictor.where} gives {found.dtype} {list(found.shape)} for {batch.count} "
                "rows; what is compared with labels is one number for each"
            )
        assert batch.labels is not None  # They were asked for.
        labels.append(batch.labels)
        predictions.append(found.reshape(-1))
    if not labels:
        raise errors.InvalidArgumentError(f"{options.data} has no rows")
    return np.concatenate(labels), np.concatenate(predictions)


def is_binary_of(
    predictor: Predictor, labels: npt.NDArray[Any], predictions: npt.NDArray[Any]
) -> bool:
    """Whether these are probabilities, as the model says or, where it does not, as they look."""
    if predictor.is_binary is not None:
        return predictor.is_binary
    within = bool(predictions.min() >= 0 and predictions.max() <= 1)
    return within and bool(np.isin(labels, (0, 1)).all())


def evaluate(predictor: Predictor, options: argparse.Namespace) -> dict[str, Any]:
    """The figures of a model on the rows of a file, and how many these are."""
    known, found = labels_and_predictions(predictor, options)
    return {"rows": len(known), **figures_of(known, found, is_binary_of(predictor, known, found))}


# ---- beside a training ---------------------------------------------------------------------------


class Source:
    """A model whose values come with each checkpoint."""

    def __init__(self, path: str) -> None:
        kind = kind_of(path)
        if kind not in ("description", "keras"):
            raise errors.InvalidArgumentError(
                f"{path} has its values; with --watch give model.json or a .keras file"
            )
        self._path = path
        self._description = ModelDescription.load(path) if kind == "description" else None

    def at(self, prefix: str) -> Predictor:
        """The model with the values of a checkpoint."""
        if self._description is not None:
            return of_description(self._description, prefix)
        return keras_predictor(self._path, keras_model(self._path, prefix))


@dataclass
class Watch:
    """The checkpoints of a folder as a training writes them, the newest always.

    timeout: seconds without a new one after which it is not waited any longer.
    until_step: the number of the last one, NAME-NUMBER.
    """

    directory: str
    timeout: float
    until_step: int | None = None

    def prefixes(self) -> Iterator[str]:
        """Prefixes, until the training has ended. DeadlineExceededError when none comes."""
        last, waits_since, was_over = None, time.monotonic(), False
        while True:
            # Looked at before the folder: what is written until then is seen.
            is_over = self._is_over()
            pause = 0.0 if is_over else min(_LOOK_S, self.timeout)
            newest = wait_for_new_checkpoint(self.directory, last, _LOOK_S / 4, pause)
            if newest is not None:
                last, was_over = newest, False
                yield newest
                number = re.search(r"-(\d+)$", newest)
                if self.until_step is not None and number and int(number[1]) >= self.until_step:
                    return
                waits_since = time.monotonic()
                continue
            if is_over and was_over:
                return
            if is_over:  # Whoever has just begun has an empty file for a moment, too.
                time.sleep(_LOOK_S)
            was_over = is_over
            waited = time.monotonic() - waits_since
            if waited >= self.timeout:
                raise errors.DeadlineExceededError(
                    f"there was no new checkpoint in {self.directory} for {waited:.0f} s, while "
                    "it is not known that training has ended: see whether it still runs, or give "
                    "--timeout or --until-step"
                )

    def _is_over(self) -> bool:
        try:
            return Path(self.directory, LOCK_FILE).stat().st_size == 0
        except FileNotFoundError:
            return False


# ---- the command ---------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    out = Parser(
        prog="sidereal evaluate",
        description="Says how good a model is on the rows of a file.",
        epilog="With --watch each checkpoint of a folder is evaluated as it comes, by a process "
        "beside the training, until the training has ended.",
    )
    add_model_options(out)
    add_config_option(out)
    out.add_argument("--data", required=True, metavar="FILE", help="rows with labels")
    out.add_argument(
        "--label", metavar="COLUMN", help="the labels (as when it was trained, or label)"
    )
    out.add_argument("--output", metavar="NAME", help="which output, of a model with several")
    out.add_argument("--batch-size", type=positive, default=4096, metavar="N", help="(4096)")
    out.add_argument("--json", metavar="FILE", help="also write a line of JSON for each evaluation")
    out.add_argument("--watch", metavar="DIR", help="evaluate each checkpoint that comes there")
    out.add_argument(
        "--timeout", type=float, default=3600.0, metavar="S",
        help="of --watch: seconds without a new checkpoint (3600)",
    )  # fmt: skip
    out.add_argument(
        "--until-step", type=positive, metavar="N",
        help="of --watch: end behind the checkpoint NAME-N, or a later one",
    )  # fmt: skip
    return out


def _told(found: dict[str, Any], options: argparse.Namespace, prefix: str | None) -> None:
    figures = ", ".join(
        f"{name.replace('_', ' ')} {value:.6g}" for name, value in found.items() if name != "rows"
    )
    what = "" if prefix is None else f"{os.path.basename(prefix)}: "
    print(f"{what}{figures} on {found['rows']} rows", flush=True)
    if options.json is not None:
        # JSON has no NaN.
        numbers = {key: None if value != value else value for key, value in found.items()}
        line = numbers if prefix is None else {"checkpoint": prefix, **numbers}
        with open(options.json, "a") as file:
            file.write(json.dumps(line) + "\n")


def _watch(options: argparse.Namespace) -> None:
    if options.checkpoint is not None:
        raise errors.InvalidArgumentError("give --checkpoint or --watch, and not both")
    source, seen = Source(options.model), 0
    for prefix in Watch(options.watch, options.timeout, options.until_step).prefixes():
        try:
            predictor = source.at(prefix)
        except _GONE as error:
            if Path(f"{prefix}.index").exists() and not isinstance(error, errors.DataLossError):
                raise
            say(
                "evaluate", f"{os.path.basename(prefix)} was deleted or is damaged, and is passed "
                f"over: {getattr(error, 'message', error)}",
            )  # fmt: skip
            continue
        _told(evaluate(predictor, options), options, prefix)
        seen += 1
    if not seen:
        raise errors.NotFoundError(
            f"training has ended, and no checkpoint in {options.watch} could be evaluated"
        )


def main(arguments: Sequence[str]) -> int:
    """`sidereal evaluate ARGUMENTS`: the exit code."""
    options = parse(parser(), arguments)
    try:
        if options.json is not None:
            Path(options.json).write_text("")
        if options.watch is not None:
            _watch(options)
        else:
            _told(evaluate(open_model(options.model, options.checkpoint), options), options, None)
    except (errors.Error, OSError, ValueError) as error:
        return failed("evaluate", error)
    except KeyboardInterrupt:
        return 130
    return 0
