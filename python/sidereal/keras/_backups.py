"""Callbacks that save what is trained: ModelCheckpoint, BackupAndRestore."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..checkpoint import Checkpoint, counter
from ..checkpoint_management import STATE_FILE, remove_checkpoint, update_checkpoint_state
from ..checkpoint_manager import Chain, CheckpointManager
from ._callback import Callback, Logs
from ._monitors import Monitor


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


class ModelCheckpoint(Monitor):
    """Saves the model, or with `save_weights_only` its weights, after each epoch or every so many
    batches (`save_freq`).

    filepath: its name, which ends with .keras, or with .weights.npz, or is, of weights, the prefix
        of a checkpoint (sidereal.train.Checkpoint); {epoch} in it, {batch} and the
        names of logs, {val_loss:.2f}, stand for their values. The folder is made.
    save_best_only: only when `monitor` is better than ever, or than `initial_value_threshold`.
    full_every: of checkpoints, one in so many is whole; those between have what has changed since
        the one before, of variables on parameter servers, and need it
        (sidereal.train.CheckpointManager).
    """

    def __init__(
        self, filepath: Any, monitor: str = "val_loss", verbose: int = 0,
        save_best_only: bool = False, save_weights_only: bool = False, mode: str = "auto",
        save_freq: Any = "epoch", initial_value_threshold: float | None = None, *,
        full_every: int = 1,
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
        self._chain = Chain(full_every)
        if not self._chain.is_whole and not (is_prefix and "{" in self.filepath):
            raise ValueError(
                f"ModelCheckpoint: full_every={full_every} is of checkpoints that stand on each "
                f"other, and filepath is {self.filepath!r}: with save_weights_only=True give the "
                "prefix of a checkpoint, with {epoch} or {batch} in it"
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
        if not self._chain.is_whole:
            saved = os.path.abspath(self._chain.write(Checkpoint(self.model), file))
            update_checkpoint_state(os.path.dirname(saved), saved, [saved])
            return
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
    whole. full_every: one backup in so many has all; those between have what has changed since the
    one before, of variables on parameter servers (sidereal.train.CheckpointManager).
    """

    def __init__(
        self, backup_dir: Any, save_freq: Any = "epoch", double_checkpoint: bool = False,
        delete_checkpoint: bool = True, *, full_every: int = 1,
    ) -> None:  # fmt: skip
        super().__init__()
        Chain(full_every)  # Says here what is wrong with it.
        self.full_every = full_every
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
        self._manager = CheckpointManager(
            saved, self.backup_dir, 1, checkpoint_name="backup", full_every=self.full_every
        )
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
