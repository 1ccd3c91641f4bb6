"""Callbacks (keras.callbacks): what is done while a model is trained, evaluated or asked."""

from __future__ import annotations

import csv
import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..checkpoint import Checkpoint, counter
from ..checkpoint_management import STATE_FILE, remove_checkpoint
from ..checkpoint_manager import CheckpointManager
from ._callback import Callback, Logs
from ._tensorboard import TensorBoard

_EVENTS = ("train", "test", "predict")


class CallbackList(Callback):
    """Several callbacks, told of everything in their order; fit() and the like make one."""

    def __init__(
        self, callbacks: Any = None, add_history: bool = False, add_progbar: bool = False,
        model: Any = None, **params: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        listed = callbacks if isinstance(callbacks, (list, tuple)) else [callbacks]
        self.callbacks: list[Callback] = [each for each in listed if each is not None]
        for each in self.callbacks:
            if not isinstance(each, Callback):
                raise ValueError(f"{each!r} is no callback; give instances of Callback")
        if add_progbar and not any(isinstance(each, ProgbarLogger) for each in self.callbacks):
            self.callbacks.append(ProgbarLogger())
        if add_history:
            found = [each for each in self.callbacks if isinstance(each, History)]
            self.history = found[0] if found else History()
            if not found:
                self.callbacks.append(self.history)
        if model is not None:
            self.set_model(model)
        self.set_params(params)

    def append(self, callback: Callback) -> None:
        """One more."""
        self.callbacks.append(callback)

    def set_params(self, params: dict[str, Any]) -> None:
        self.params = params
        for each in self.callbacks:
            each.set_params(params)

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        for each in self.callbacks:
            each.set_model(model)


def _tell_all(event: str) -> Callable[..., None]:
    def told(self: CallbackList, *args: Any) -> None:
        # Logs are one dict for all: what one callback adds the next ones see.
        *rest, logs = args if args and isinstance(args[-1], dict) else (*args, {})
        for each in self.callbacks:
            getattr(each, event)(*rest, logs)

    told.__name__ = event
    return told


for _name in dir(Callback):
    if _name.startswith("on_"):
        setattr(CallbackList, _name, _tell_all(_name))


class History(Callback):
    """What fit() gives back: `history` has a list of values for each name, one for each epoch;
    `epoch` their numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.history: dict[str, list[Any]] = {}
        self.epoch: list[int] = []

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self.epoch = []
        self.model.history = self

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        self.epoch.append(epoch)
        for name, value in (logs or {}).items():
            self.history.setdefault(name, []).append(value)


class LambdaCallback(Callback):
    """A function for each event that is given: on_epoch_end=lambda epoch, logs: ..."""

    def __init__(
        self, on_epoch_begin: Any = None, on_epoch_end: Any = None, on_train_begin: Any = None,
        on_train_end: Any = None, on_train_batch_begin: Any = None, on_train_batch_end: Any = None,
        **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        given = {
            "on_epoch_begin": on_epoch_begin, "on_epoch_end": on_epoch_end,
            "on_train_begin": on_train_begin, "on_train_end": on_train_end,
            "on_train_batch_begin": on_train_batch_begin,
            "on_train_batch_end": on_train_batch_end, **kwargs,
        }  # fmt: skip
        for name, function in given.items():
            if not hasattr(Callback, name) or not name.startswith("on_"):
                raise ValueError(f"LambdaCallback: there is no event {name}")
            if function is not None:
                setattr(self, name, function)


class TerminateOnNaN(Callback):
    """Stops training when the loss is no number any more; `raise_error`: with a RuntimeError."""

    def __init__(self, raise_error: bool = False) -> None:
        super().__init__()
        self.raise_error = raise_error

    def on_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        loss = (logs or {}).get("loss")
        if loss is None or math.isfinite(loss):
            return
        text = f"Batch {batch}: the loss is {loss}; training ends"
        if self.raise_error:
            raise RuntimeError(text)
        print(text)
        self.model.stop_training = True


class LearningRateScheduler(Callback):
    """Gives the optimizer before each epoch the learning rate schedule(epoch, rate), or
    schedule(epoch)."""

    def __init__(self, schedule: Callable[..., float], verbose: int = 0) -> None:
        super().__init__()
        self.schedule, self.verbose = schedule, verbose

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        optimizer = self.model.optimizer
        try:
            rate = self.schedule(epoch, float(optimizer.learning_rate))
        except TypeError:  # It takes the epoch alone.
            rate = self.schedule(epoch)
        if not isinstance(rate, (int, float, np.generic)):
            raise ValueError(
                f"LearningRateScheduler: schedule() gives {rate!r}; it must give a number"
            )
        optimizer.learning_rate = float(rate)
        if self.verbose > 0:
            print(f"\nEpoch {epoch + 1}: the learning rate is {rate}")

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if logs is not None:
            logs["learning_rate"] = float(self.model.optimizer.learning_rate)


class _Monitor(Callback):
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


class EarlyStopping(_Monitor):
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


class ReduceLROnPlateau(_Monitor):
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


class _Frequency:
    """Says when so many batches have ended since it last did, or never for "epoch"."""

    def __init__(self, where: str, save_freq: Any) -> None:
        is_number = isinstance(save_freq, int) and not isinstance(save_freq, bool)
        if save_freq != "epoch" and not (is_number and save_freq > 0):
            raise ValueError(
                f"{where}: save_freq is {save_freq!r}; it must be 'epoch' or a number of batches"
            )
        self.of_epochs = save_freq == "epoch"
        self._every = save_freq
        self._seen, self._last = 0, -1

    def is_due(self, batch: int) -> bool:
        """Told of the end of a batch, of steps_per_execution the last one."""
        if self.of_epochs:
            return False
        self._seen += batch - self._last if batch > self._last else batch + 1
        self._last = batch
        if self._seen < self._every:
            return False
        self._seen = 0
        return True


#: Endings of names of files: others are prefixes of checkpoints.
_FILES = (".h5", ".hdf5", ".keras", ".npz")


class ModelCheckpoint(_Monitor):
    """Saves the model, or with `save_weights_only` its weights, after each epoch or every so many
    batches (`save_freq`).

    filepath: its name, which ends with .keras, or with .weights.npz, or is, of weights, the prefix
        of a checkpoint (sidereal.train.Checkpoint); {epoch} in it, {batch} and the
        names of logs, {val_loss:.2f}, stand for their values. The folder is made.
    save_best_only: only when `monitor` is better than ever, or than `initial_value_threshold`.
    """

    def __init__(
        self, filepath: Any, monitor: str = "val_loss", verbose: int = 0,
        save_best_only: bool = False, save_weights_only: bool = False, mode: str = "auto",
        save_freq: Any = "epoch", initial_value_threshold: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__(monitor, mode, 0)
        self.filepath = os.fspath(filepath)
        ending = ".weights.npz" if save_weights_only else ".keras"
        is_prefix = save_weights_only and not self.filepath.endswith(_FILES)
        if not is_prefix and not self.filepath.endswith(ending):
            raise ValueError(
                f"ModelCheckpoint: filepath is {self.filepath!r}; with save_weights_only="
                f"{save_weights_only} it must end with {ending}"
            )
        self.verbose, self.save_freq = verbose, save_freq
        self.save_best_only, self.save_weights_only = save_best_only, save_weights_only
        self.best = initial_value_threshold
        self._frequency = _Frequency("ModelCheckpoint", save_freq)
        self._epoch = 0

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        super().on_train_batch_end(batch, logs)
        if self._frequency.is_due(batch):
            self._save(batch, logs or {})

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if self._frequency.of_epochs:
            self._save(None, logs or {})

    def _file(self, batch: int | None, logs: Logs) -> str:
        places = {"epoch": self._epoch + 1} | ({} if batch is None else {"batch": batch + 1})
        try:
            return self.filepath.format(**{**logs, **places})
        except KeyError as error:
            raise KeyError(
                f"ModelCheckpoint: filepath {self.filepath!r} has {error}, which is none of: "
                f"{', '.join([*places, *logs])}"
            ) from None

    def _is_wanted(self, logs: Logs) -> bool:
        if not self.save_best_only:
            return True
        value = self._present(logs)
        if value is None:
            return True
        if not self._is_better(value, self.best):
            return False
        self.best = value
        return True

    def _save(self, batch: int | None, logs: Logs) -> None:
        file = self._file(batch, logs)
        if not self._is_wanted(logs):
            return
        if self.verbose > 0:
            print(f"\nEpoch {self._epoch + 1}: the model is saved to {file}")
        os.makedirs(os.path.dirname(file) or ".", exist_ok=True)
        save = self.model.save_weights if self.save_weights_only else self.model.save
        save(file, overwrite=True)


class _Position:
    """Where the data is, as a part of a checkpoint."""

    _checkpoint_attribute = "ITERATOR_STATE"

    def __init__(self) -> None:
        #: That of a dataset, those of all workers, or None.
        self.now: bytes | list[bytes] | None = None

    def save(self) -> bytes | list[bytes]:
        return self.now or b""

    def restore(self, position: bytes | list[bytes]) -> None:
        self.now = position or None


class BackupAndRestore(Callback):
    """Has a fit() that was cut off go on when it is called again: what is trained is saved after
    each epoch, or every so many batches (`save_freq`), and read at the beginning; training goes on
    with the next step. Datasets go on where they were; of other data, of which an epoch had begun,
    the batches of its steps are passed over. Models of a strategy are written by its parameter
    servers (sidereal.train.Checkpoint), and may go on with others.

    backup_dir: a folder of this fit() alone, which is made. delete_checkpoint: what is in it goes
    at the end. `double_checkpoint` changes nothing: one backup is there until the next one is
    whole.
    """

    def __init__(
        self, backup_dir: Any, save_freq: Any = "epoch", double_checkpoint: bool = False,
        delete_checkpoint: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        if not backup_dir:
            raise ValueError("BackupAndRestore: backup_dir is empty; name a folder")
        self.backup_dir, self.save_freq = Path(backup_dir), save_freq
        self.double_checkpoint, self.delete_checkpoint = double_checkpoint, delete_checkpoint
        self._frequency = _Frequency("BackupAndRestore", save_freq)
        self._epoch = self._batch = 0
        self._is_due = False
        self._manager: CheckpointManager | None = None

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self._is_due = False
        self._next_epoch, self._next_step = counter("epoch"), counter("step")
        self._position = _Position()
        saved = Checkpoint(
            model=self.model, epoch=self._next_epoch, step=self._next_step, data=self._position
        )
        self._manager = CheckpointManager(saved, self.backup_dir, 1, checkpoint_name="backup")
        newest = self._manager.latest_checkpoint
        if newest is None:
            return
        status = saved.restore(newest).expect_partial()  # Weights are perhaps made later.
        status.assert_existing_objects_matched()
        self.model._begin_training_at(
            int(self._next_epoch), int(self._next_step), self._position.now
        )

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        super().on_train_batch_end(batch, logs)
        self._batch = batch
        if self._frequency.is_due(batch) and not self._is_due:
            self._is_due = True
            # Workers are steps ahead of what is known to have ended.
            self.model._when_at_rest(self._save_at_rest)

    def _save_at_rest(self) -> None:
        self._is_due = False
        self._save(self._epoch, self._batch + 1)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if self._frequency.of_epochs:
            self._save(epoch + 1, 0)

    def _save(self, epoch: int, step: int) -> None:
        """What goes on with a step of an epoch."""
        assert self._manager is not None
        self._next_epoch.assign(epoch)
        self._next_step.assign(step)
        self._position.now = self.model._position_of_training(step)
        self._manager.save()

    def on_train_end(self, logs: Logs | None = None) -> None:
        if not self.delete_checkpoint or self._manager is None or not self.backup_dir.is_dir():
            return
        for saved in self._manager.checkpoints:
            remove_checkpoint(saved)
        (self.backup_dir / STATE_FILE).unlink(missing_ok=True)
        if not any(self.backup_dir.iterdir()):
            self.backup_dir.rmdir()


class CSVLogger(Callback):
    """Writes the logs of each epoch as a row of a CSV file."""

    def __init__(self, filename: Any, separator: str = ",", append: bool = False) -> None:
        super().__init__()
        self.filename, self.separator, self.append = filename, separator, append
        self._file: Any = None
        self._keys: Sequence[str] | None = None

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self._keys = None
        self._file = open(self.filename, "a" if self.append else "w", newline="")  # noqa: SIM115
        self._begun = self.append and self._file.tell() > 0

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        logs = logs or {}
        if self._keys is None:
            self._keys = sorted(logs)
        writer = csv.writer(self._file, delimiter=self.separator, lineterminator="\n")
        if not self._begun:
            writer.writerow(["epoch", *self._keys])
            self._begun = True
        writer.writerow([epoch, *(logs.get(key, "NA") for key in self._keys)])
        self._file.flush()

    def on_train_end(self, logs: Logs | None = None) -> None:
        self._file.close()
        self._file = None


class ProgbarLogger(Callback):
    """Prints how far training, evaluation or prediction is. `verbose` of fit(): 1: a line that
    follows the steps, 2: a line for each epoch."""

    def __init__(self) -> None:
        super().__init__()
        self._in_training = False
        self._begin()

    def _begin(self) -> None:
        self._done = 0
        self._started = time.monotonic()
        self._shown = 0.0

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self._in_training = True

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        self._begin()
        if self._verbose and self.params.get("epochs", 1) > 1:
            print(f"Epoch {epoch + 1}/{self.params['epochs']}")

    @property
    def _verbose(self) -> int:
        return int(self.params.get("verbose") or 0)

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        self._step(batch, logs)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        self._show(logs, last=True)

    def on_test_begin(self, logs: Logs | None = None) -> None:
        if not self._in_training:
            self._begin()

    def on_test_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        if not self._in_training:
            self._step(batch, logs)

    def on_test_end(self, logs: Logs | None = None) -> None:
        if not self._in_training:
            self._show(logs, last=True)

    def on_predict_begin(self, logs: Logs | None = None) -> None:
        self._begin()

    def on_predict_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        self._step(batch, {})

    def on_predict_end(self, logs: Logs | None = None) -> None:
        self._show({}, last=True)

    def _step(self, batch: int, logs: Logs | None) -> None:
        self._done = batch + 1
        now = time.monotonic()
        # What nobody looks at is printed once, and often enough is not always.
        if self._verbose == 1 and sys.stdout.isatty() and now - self._shown > 0.1:
            self._shown = now
            self._show(logs, last=False)

    def _show(self, logs: Mapping[str, Any] | None, last: bool) -> None:
        if not self._verbose:
            return
        took = time.monotonic() - self._started
        total = self._done if last else self.params.get("steps") or "?"
        parts = [f"{self._done}/{total}", f"{took:.1f}s"]
        if self._done:
            parts.append(f"{1000 * took / self._done:.1f}ms/step")
        for name, value in (logs or {}).items():
            if isinstance(value, (int, float)):
                parts.append(f"{name}: {value:.4g}")
        begin = "\r" if self._verbose == 1 and sys.stdout.isatty() else ""
        print(begin + " - ".join(parts), end="\n" if last else "", flush=True)


__all__ = [
    "BackupAndRestore", "CSVLogger", "Callback", "CallbackList", "EarlyStopping", "History",
    "LambdaCallback", "LearningRateScheduler", "ModelCheckpoint", "ProgbarLogger",
    "ReduceLROnPlateau", "TensorBoard", "TerminateOnNaN",
]  # fmt: skip
