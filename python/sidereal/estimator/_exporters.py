"""Exports after evaluations (tf.estimator.Exporter)."""

from __future__ import annotations

import glob
import logging
import os
import shutil
from collections.abc import Callable, Mapping
from typing import Any

from .. import _tensorboard, errors, records

_log = logging.getLogger("sidereal")


class Exporter:
    """Base of what exports models (tf.estimator.Exporter)."""

    @property
    def name(self) -> str:
        """Of the folder in model_dir/export."""
        raise NotImplementedError

    def export(
        self, estimator: Any, export_path: str, checkpoint_path: str,
        eval_result: Mapping[str, Any], is_the_final_export: bool,
    ) -> str | None:  # fmt: skip
        """Exports a checkpoint that was evaluated, or not; the path of the file."""
        raise NotImplementedError


class _SavedModel(Exporter):
    """Writes saved models."""

    def __init__(
        self, name: str, serving_input_receiver_fn: Callable[[], Any],
        assets_extra: Mapping[str, str] | None = None, as_text: bool = False,
        exports_to_keep: int | None = None,
    ) -> None:  # fmt: skip
        if exports_to_keep is not None and exports_to_keep <= 0:
            raise ValueError("`exports_to_keep`, if provided, must be positive number")
        self._name, self._receive = name, serving_input_receiver_fn
        self._assets, self._as_text, self._keep = assets_extra, as_text, exports_to_keep

    @property
    def name(self) -> str:
        return self._name

    def _write(self, estimator: Any, export_path: str, checkpoint_path: str) -> str:
        made = estimator.export_saved_model(
            export_path, self._receive, self._assets, self._as_text, checkpoint_path
        )
        if self._keep is not None:
            stamps = sorted((int(n), n) for n in os.listdir(export_path) if n.isdigit())
            for _, old in stamps[: -self._keep]:
                shutil.rmtree(os.path.join(export_path, old))
        return str(made)


class FinalExporter(_SavedModel):
    """Exports the model once, at the end (tf.estimator.FinalExporter)."""

    def __init__(
        self, name: str, serving_input_receiver_fn: Callable[[], Any],
        assets_extra: Mapping[str, str] | None = None, as_text: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(name, serving_input_receiver_fn, assets_extra, as_text)

    def export(
        self, estimator: Any, export_path: str, checkpoint_path: str,
        eval_result: Mapping[str, Any], is_the_final_export: bool,
    ) -> str | None:  # fmt: skip
        if not is_the_final_export:
            return None
        return self._write(estimator, export_path, checkpoint_path)


class LatestExporter(_SavedModel):
    """Exports the model after each evaluation, and keeps some (tf.estimator.LatestExporter)."""

    def __init__(
        self, name: str, serving_input_receiver_fn: Callable[[], Any],
        assets_extra: Mapping[str, str] | None = None, as_text: bool = False,
        exports_to_keep: int | None = 5,
    ) -> None:  # fmt: skip
        super().__init__(name, serving_input_receiver_fn, assets_extra, as_text, exports_to_keep)

    def export(
        self, estimator: Any, export_path: str, checkpoint_path: str,
        eval_result: Mapping[str, Any], is_the_final_export: bool,
    ) -> str | None:  # fmt: skip
        return self._write(estimator, export_path, checkpoint_path)


def _loss_is_smaller(
    best_eval_result: Mapping[str, Any], current_eval_result: Mapping[str, Any]
) -> bool:
    return float(current_eval_result["loss"]) < float(best_eval_result["loss"])


class BestExporter(_SavedModel):
    """Exports the model when it is the best so far (tf.estimator.BestExporter):
    compare_fn(best_eval_result, current_eval_result) says so, by default of a smaller loss.

    event_file_pattern: where in the model's folder the summaries of evaluations are, such as
        "eval/*.tfevents.*": those of earlier processes count as well then.
    """

    def __init__(
        self, name: str = "best_exporter",
        serving_input_receiver_fn: Callable[[], Any] | None = None,
        event_file_pattern: str | None = None,
        compare_fn: Callable[..., bool] = _loss_is_smaller,
        assets_extra: Mapping[str, str] | None = None, as_text: bool = False,
        exports_to_keep: int | None = 5,
    ) -> None:  # fmt: skip
        if serving_input_receiver_fn is None:
            raise ValueError("serving_input_receiver_fn must be given to BestExporter.")
        if compare_fn is None:
            raise ValueError("`compare_fn` must not be None.")
        super().__init__(name, serving_input_receiver_fn, assets_extra, as_text, exports_to_keep)
        self._is_better, self._pattern = compare_fn, event_file_pattern
        self._best: Mapping[str, Any] | None = None
        self._model_dir: str | None = None

    def export(
        self, estimator: Any, export_path: str, checkpoint_path: str,
        eval_result: Mapping[str, Any], is_the_final_export: bool,
    ) -> str | None:  # fmt: skip
        if self._pattern is not None and self._model_dir != estimator.model_dir:
            self._model_dir = estimator.model_dir
            pattern = os.path.join(estimator.model_dir, self._pattern)
            self._best = self._best_of(pattern, eval_result.get("global_step"))
        if self._best is not None and not self._is_better(
            best_eval_result=self._best, current_eval_result=eval_result
        ):
            return None
        self._best = dict(eval_result)
        return self._write(estimator, export_path, checkpoint_path)

    def _best_of(self, pattern: str, now: Any) -> Mapping[str, Any] | None:
        """The best result in files of events, but that of step `now`, which is the current one."""
        best: Mapping[str, Any] | None = None
        for path in sorted(glob.glob(pattern)):
            for step, result in sorted(_results(path).items()):
                if step != now and (
                    best is None
                    or self._is_better(best_eval_result=best, current_eval_result=result)
                ):
                    best = result
        return best


def _results(path: str) -> dict[int, dict[str, float]]:
    """The numbers that a file of events has, by steps and tags."""
    found: dict[int, dict[str, float]] = {}
    event_pb2 = _tensorboard.modules().event_pb2
    try:
        for content in records.tf_record_iterator(path):
            event = event_pb2.Event.FromString(content)
            for value in event.summary.value:
                number = _tensorboard.number_of(value)
                if number is not None:
                    found.setdefault(event.step, {})[value.tag] = number
    except errors.DataLossError as error:
        # Of a process that was killed, the last record may lack its end.
        _log.warning("%s; the evaluations before it count", error)
    return found
