"""Callbacks that go by a figure: EarlyStopping, ReduceLROnPlateau, and what they share."""

from __future__ import annotations

import warnings

import numpy as np

from ._callback import Callback, Logs


class Monitor(Callback):
    """Base of those that look at one number, `monitor`. `mode`: "min" or "max", what is better;
    "auto" knows that of losses and of metrics of this package."""

    #: Metrics of which more is better; of others there are that measure errors less is.
    _UP = {
        "AUC", "Accuracy", "BinaryAccuracy", "CategoricalAccuracy", "CosineSimilarity",
        "Precision", "R2Score", "Recall", "SparseCategoricalAccuracy",
        "SparseTopKCategoricalAccuracy", "TopKCategoricalAccuracy", "TrueNegatives",
        "TruePositives",
    }  # fmt: skip
    _UNKNOWN = {"Mean", "MeanMetricWrapper", "Sum"}

    def __init__(self, monitor: str, mode: str, min_delta: float) -> None:
        super().__init__()
        if mode not in ("auto", "min", "max"):
            warnings.warn(
                f"{type(self).__name__}: mode is {mode!r}; it is taken as auto, not min or max",
                stacklevel=3,
            )
            mode = "auto"
        self.monitor, self.mode, self.min_delta = monitor, mode, abs(min_delta)
        self._more_is_better: bool | None = None

    def _direction(self) -> bool:
        if self.mode != "auto":
            return self.mode == "max"
        name = self.monitor.removeprefix("val_")
        if name == "loss" or name.endswith("_loss"):
            return False
        metric = self.model.metrics_by_name().get(name)
        kind = type(metric).__name__
        if metric is None or type(metric).__module__.split(".")[0] != __name__.split(".")[0] or (
            kind in self._UNKNOWN
        ):
            raise ValueError(
                f"{type(self).__name__}: whether more or less of {self.monitor} is better is not "
                "known; say mode='max' or mode='min'"
            )
        return kind in self._UP

    def _present(self, logs: Logs | None) -> float | None:
        value = (logs or {}).get(self.monitor)
        if value is None:
            warnings.warn(
                f"{type(self).__name__} looks at {self.monitor}, which is not in the logs; these "
                f"have: {', '.join(logs or {})}",
                stacklevel=3,
            )
        return value

    def _is_better(self, value: float, best: float | None) -> bool:
        if self._more_is_better is None:
            self._more_is_better = self._direction()
        if best is None:
            return True
        return value - self.min_delta > best if self._more_is_better else (
            value + self.min_delta < best
        )


class EarlyStopping(Monitor):
    """Stops training when `monitor` has not become better by more than `min_delta` for `patience`
    epochs.

    baseline: what it must be better than. start_from_epoch: epochs before are not looked at.
    restore_best_weights: the model gets the weights of the best epoch.
    """

    def __init__(
        self, monitor: str = "val_loss", min_delta: float = 0, patience: int = 0, verbose: int = 0,
        mode: str = "auto", baseline: float | None = None, restore_best_weights: bool = False,
        start_from_epoch: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(monitor, mode, min_delta)
        self.patience, self.verbose, self.baseline = patience, verbose, baseline
        self.restore_best_weights, self.start_from_epoch = restore_best_weights, start_from_epoch
        self._begin()

    def _begin(self) -> None:
        self.wait = self.stopped_epoch = self.best_epoch = 0
        self.best: float | None = None
        self.best_weights: list[np.ndarray] | None = None

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self._begin()

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        value = self._present(logs)
        if value is None or epoch < self.start_from_epoch:
            return
        if self.restore_best_weights and self.best_weights is None:
            self.best_weights, self.best_epoch = self.model.get_weights(), epoch
        self.wait += 1
        if self._is_better(value, self.best):
            self.best, self.best_epoch = value, epoch
            if self.restore_best_weights:
                self.best_weights = self.model.get_weights()
            if self.baseline is None or self._is_better(value, self.baseline):
                self.wait = 0
        elif self.wait >= self.patience and epoch > 0:
            self.stopped_epoch = epoch
            self.model.stop_training = True

    def on_train_end(self, logs: Logs | None = None) -> None:
        if self.stopped_epoch > 0 and self.verbose > 0:
            print(f"Epoch {self.stopped_epoch + 1}: training stops early")
        if self.restore_best_weights and self.best_weights is not None:
            if self.verbose > 0:
                print(f"The weights are those after epoch {self.best_epoch + 1}")
            self.model.set_weights(self.best_weights)


class ReduceLROnPlateau(Monitor):
    """Multiplies the learning rate by `factor` when `monitor` has not become better for `patience`
    epochs, down to `min_lr`; then waits for `cooldown` epochs."""

    def __init__(
        self, monitor: str = "val_loss", factor: float = 0.1, patience: int = 10, verbose: int = 0,
        mode: str = "auto", min_delta: float = 1e-4, cooldown: int = 0, min_lr: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__(monitor, mode, min_delta)
        if factor >= 1.0:
            raise ValueError(
                f"ReduceLROnPlateau: factor is {factor}; it must be less than 1"
            )
        self.factor, self.patience, self.verbose = factor, patience, verbose
        self.cooldown, self.min_lr = cooldown, min_lr
        self._begin()

    def _begin(self) -> None:
        self.best: float | None = None
        self.wait = self.cooldown_counter = 0

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self._begin()

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        logs = {} if logs is None else logs
        logs["learning_rate"] = float(self.model.optimizer.learning_rate)
        value = self._present(logs)
        if value is None:
            return
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.wait = 0
        if self._is_better(value, self.best):
            self.best, self.wait = value, 0
        elif self.cooldown_counter == 0:
            self.wait += 1
            if self.wait >= self.patience:
                self._reduce(epoch)

    def _reduce(self, epoch: int) -> None:
        optimizer = self.model.optimizer
        rate = float(optimizer.learning_rate)
        if rate <= np.float32(self.min_lr):
            return
        optimizer.learning_rate = rate = max(rate * self.factor, self.min_lr)
        if self.verbose > 0:
            print(f"\nEpoch {epoch + 1}: the learning rate is reduced to {rate}")
        self.cooldown_counter, self.wait = self.cooldown, 0
