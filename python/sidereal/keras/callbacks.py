"""Callbacks (keras.callbacks): what is done while a model is trained, evaluated or asked."""

from __future__ import annotations

import csv
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ._backups import BackupAndRestore, ModelCheckpoint
from ._callback import Callback, Logs
from ._monitors import EarlyStopping, ReduceLROnPlateau
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
