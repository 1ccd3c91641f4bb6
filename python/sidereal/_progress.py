"""What people are shown: how a fit is going, as a bar on a terminal and as a plain line every few
seconds elsewhere, and tables."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import TextIO

from tqdm import tqdm

from ._native import EvalResult, FitResult, Progress
from ._usage import printable

PLAIN_SECONDS = 5.0
TICKS = 1000


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns beside one another."""
    lines = [head, ["-" * len(word) for word in head]]
    lines += [[printable(word) for word in row] for row in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    lines[1] = ["-" * width for width in widths]
    return "\n".join(
        "  ".join(word.ljust(width) for word, width in zip(line, widths)).rstrip() for line in lines
    )


def _figures(progress: Progress) -> str:
    text = f"{progress.samples_per_s:,.0f} samples/s, loss {progress.loss:.4f}"
    if progress.auc > 0:
        text += f", auc {progress.auc:.4f}"
    if progress.validation is not None:
        text += f", validation {_quality(progress.validation)}"
    return text


def _quality(result: EvalResult) -> str:
    return f"auc {result.auc:.4f}" if result.auc > 0 else f"loss {result.loss:.4f}"


def _all_figures(result: EvalResult) -> str:
    """Of an epoch; what there is none of is left out."""
    figures = {
        "auc": result.auc if result.auc > 0 else math.nan,
        "loss": result.loss,
        "pr auc": result.pr_auc,
        "rmse": result.rmse,
        "calibration": result.calibration,
        "grouped auc": result.grouped_auc,
        "ndcg": result.ndcg,
        "training loss": result.training_loss,
    }
    return ", ".join(
        f"{name} {value:.4f}" for name, value in figures.items() if math.isfinite(value)
    )


class ProgressPrinter:
    """Callable with a Progress; a context manager, so that the bar is closed after errors."""

    def __init__(self, epochs: int, out: TextIO | None = None) -> None:
        self._epochs = epochs
        self._out = sys.stderr if out is None else out
        self._bar: tqdm | None = None
        self._next = PLAIN_SECONDS
        self._told: tuple[float, float] | None = None
        self._losses_told = 0

    def __enter__(self) -> ProgressPrinter:
        if self._out.isatty():
            self._bar = tqdm(
                total=TICKS, file=self._out, leave=False, dynamic_ncols=True,
                bar_format="{desc} {percentage:3.0f}%|{bar}| [{elapsed}<{remaining}{postfix}]",
            )
        return self

    def __call__(self, progress: Progress) -> None:
        epoch = f"epoch {progress.epoch + 1}/{self._epochs}"
        if progress.validation is not None:
            self._tell_once(epoch, progress.validation)
        else:
            self._tell_losses(progress.training_losses)
        if self._bar is not None:
            self._bar.set_description_str(epoch, refresh=False)
            self._bar.set_postfix_str(_figures(progress), refresh=False)
            self._bar.update(max(0, int(progress.fraction * TICKS) - self._bar.n))
        elif progress.seconds >= self._next:
            self._next = progress.seconds + PLAIN_SECONDS
            left = f", {progress.seconds_left:.0f} s left" if progress.seconds_left >= 0 else ""
            self._line(f"{epoch}: {progress.fraction:.0%}, {_figures(progress)}{left}")

    def _tell_losses(self, losses: list[float]) -> None:
        """A line for each epoch without validation data, once."""
        for number, loss in enumerate(losses[self._losses_told :], self._losses_told + 1):
            if math.isfinite(loss):
                if self._bar is not None:
                    self._bar.clear()
                self._line(f"epoch {number}/{self._epochs}: training loss {loss:.4f}")
        self._losses_told = max(self._losses_told, len(losses))

    def _tell_once(self, epoch: str, result: EvalResult) -> None:
        """A line of its own for each evaluation, which the progress after it has, too."""
        which = (result.loss, result.seconds)
        if which == self._told:
            return
        self._told = which
        if self._bar is not None:
            self._bar.clear()
        self._line(f"{epoch}: validation {_all_figures(result)}")

    def finish(self, result: FitResult) -> None:
        """The closing line."""
        self._close()
        text = (
            f"trained on {result.rows:,} rows in {result.seconds:.1f} s: {result.steps:,} steps, "
            f"{result.samples_per_s:,.0f} samples/s, loss {result.loss:.4f}"
        )
        if result.validation:
            text += f", validation {_quality(result.validation[-1])}"
        if result.restored_best:
            text += f"; the weights are those of epoch {result.best_epoch}, the best"
        if result.rows_skipped:
            text += f"; skipped {result.rows_skipped:,} bad rows ({result.first_skipped})"
        self._line(text)

    def __exit__(self, *error: object) -> None:
        self._close()

    def _line(self, text: str) -> None:
        print(text, file=self._out, flush=True)

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
