"""Exports after evaluations (tf.estimator.Exporter)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from typing import Any


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
    """Exports the model when it is the best so far of this process (tf.estimator.BestExporter):
    compare_fn(best_eval_result, current_eval_result) says so, by default of a smaller loss."""

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
        self._is_better = compare_fn
        self._best: Mapping[str, Any] | None = None

    def export(
        self, estimator: Any, export_path: str, checkpoint_path: str,
        eval_result: Mapping[str, Any], is_the_final_export: bool,
    ) -> str | None:  # fmt: skip
        if self._best is not None and not self._is_better(
            best_eval_result=self._best, current_eval_result=eval_result
        ):
            return None
        self._best = dict(eval_result)
        return self._write(estimator, export_path, checkpoint_path)
