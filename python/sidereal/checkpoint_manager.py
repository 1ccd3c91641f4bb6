"""Checkpoints that a program writes to a folder one after the other: which of them have what has
changed alone, and which are deleted when a new one comes."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from . import errors
from .checkpoint_management import (
    get_checkpoint_state,
    missing_files,
    needed_by,
    remove_checkpoint,
    standing_on,
    state_path,
    update_checkpoint_state,
)

_log = logging.getLogger("sidereal")


class Saved(Protocol):
    """What a CheckpointManager looks after the checkpoints of: a Checkpoint."""

    @property
    def save_counter(self) -> Any: ...

    def write(
        self, file_prefix: str, options: Any = None, *, base: Any = None,
        tracks_changes: bool = False,
    ) -> str: ...  # fmt: skip

    def restore(self, save_path: str, options: Any = None) -> Any: ...


class CheckpointList:
    """The checkpoints that one program writes to a folder, oldest first, and which of them are
    deleted: what a CheckpointManager looks after.

    max_to_keep: None: all stay. One that a newer one stands on is not counted, and goes with it.
    keep_checkpoint_every_n_hours: one that leaves the list stays on disk for ever when it is this
        much younger than the last one that did.
    clock: seconds since 1970.
    """

    def __init__(
        self, directory: str | os.PathLike[str], max_to_keep: int | None,
        keep_checkpoint_every_n_hours: float | None = None, latest_filename: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self.directory = os.fspath(directory)
        self.max_to_keep = max_to_keep
        self.latest: str | None = None
        self._hours = keep_checkpoint_every_n_hours
        self._filename = latest_filename
        self._clock = clock
        #: Those that may be deleted, with the times at which they were made.
        self._own: dict[str, float] = {}
        #: What the state file says since it was read or written here; None: there was none.
        self._known = self._said()
        state = get_checkpoint_state(self.directory, latest_filename)
        now = clock()
        if state is None:
            # A little earlier, so that what is made at once is younger.
            self._preserved = now - 1.0
            return
        self.latest = state.model_checkpoint_path
        self._preserved = state.last_preserved_timestamp
        if now < self._preserved:
            _log.warning(
                "the clock says %r, before the time %r at which the last checkpoint of %s was kept "
                "for ever: none of those that are there will be deleted",
                now, self._preserved, self.directory,
            )  # fmt: skip
            self._preserved = now
        every = state.all_model_checkpoint_paths
        stamps = state.all_model_checkpoint_timestamps or [self._preserved] * len(every)
        for path, stamp in zip(every, stamps):
            if min(stamp, now) > self._preserved:
                self._own[path] = min(stamp, now)

    @property
    def paths(self) -> list[str]:
        """Those that are looked after, oldest first."""
        return list(self._own)

    def _path(self) -> Path:
        return state_path(self.directory, self._filename)

    def _said(self) -> bytes | None:
        try:
            return self._path().read_bytes()
        except FileNotFoundError:
            return None

    def check(self) -> None:
        """AbortedError when another program has written the state file."""
        said = self._said()
        if said is not None and said != self._known:
            raise errors.AbortedError(
                f"{self._path()} was changed by another writer: two programs that save to one "
                "folder would delete each other's checkpoints. Give each a folder of its own; or, "
                "when the other one has ended, make the manager again, which reads what is there"
            )

    def add(self, prefix: str) -> None:
        """Takes a new checkpoint in, and deletes those that are too many."""
        self.check()
        self._own.pop(prefix, None)
        self._own[prefix] = self._clock()
        self.latest = prefix
        # First, so that the file never names deleted ones alone.
        self._record()
        before = len(self._own)
        self.check()
        leaving, preserved = [], []
        for old in self._no_longer_needed():
            made = self._own.pop(old)
            if self._hours and made - self._hours * 3600.0 >= self._preserved:
                self._preserved = made
                preserved.append(old)
            else:
                leaving.append(old)
        stays = needed_by(preserved)
        for old in leaving:
            if os.path.abspath(old) not in stays:
                remove_checkpoint(old)
        if len(self._own) != before:
            self._record()

    def _no_longer_needed(self) -> list[str]:
        """Those that are older than the newest ones, which do not stand on them."""
        if not self.max_to_keep or len(self._own) <= self.max_to_keep:
            return []
        every = self.paths
        needed = needed_by(every[-self.max_to_keep :])
        return [old for old in every[: -self.max_to_keep] if os.path.abspath(old) not in needed]

    def forget(self, prefixes: Sequence[str]) -> None:
        """Leaves some out, of which the files go, from the next add() on."""
        for prefix in prefixes:
            self._own.pop(prefix, None)

    def _record(self) -> None:
        assert self.latest is not None
        update_checkpoint_state(
            self.directory, self.latest, self.paths, self._filename, list(self._own.values()),
            self._preserved,
        )  # fmt: skip
        self._known = self._said()


class Chain:
    """Writes checkpoints one after the other, of which every so many are whole; of variables on
    parameter servers, those between have what has changed since the one before, and stand on that.

    full_every: 1: all are whole.
    """

    def __init__(self, full_every: int) -> None:
        if isinstance(full_every, bool) or not isinstance(full_every, int) or full_every < 1:
            raise ValueError(
                f"full_every is {full_every!r}; it is 1 for whole checkpoints alone, or how many "
                "there are from one whole one to the next"
            )
        self._full_every = full_every
        #: What the next increment stands on, and how many there are since the last whole one.
        self._base: str | None = None
        self._increments = 0

    @property
    def is_whole(self) -> bool:
        """Whether all checkpoints are."""
        return self._full_every == 1

    def write(self, checkpoint: Saved, prefix: str, options: Any = None) -> str:
        """Writes a checkpoint, or what has changed since the last one."""
        if self.is_whole:
            return checkpoint.write(prefix, options)
        base, self._base = self._base_of(prefix), None
        try:
            saved = checkpoint.write(prefix, options, base=base, tracks_changes=True)
        except BaseException:
            _log.warning("%s could not be written; the next checkpoint is a whole one", prefix)
            raise
        self._base, self._increments = saved, 0 if base is None else self._increments + 1
        return saved

    def _base_of(self, prefix: str) -> str | None:
        """What a new checkpoint may stand on; None: it is to be whole."""
        base = self._base
        if base is None or self._increments + 1 >= self._full_every:
            return None
        if os.path.dirname(os.path.abspath(base)) != os.path.dirname(os.path.abspath(prefix)):
            return None
        if os.path.abspath(prefix) in needed_by([base]):
            return None
        missing = missing_files(base)
        if missing:
            _log.warning("%s is missing: %s is a whole checkpoint", missing[0], prefix)
            return None
        return base


class CheckpointManager:
    """Checkpoints of a folder: numbered, listed in its file `checkpoint`, deleted when there are
    more than there should be (tf.train.CheckpointManager).

        manager = sidereal.train.CheckpointManager(checkpoint, "model", max_to_keep=3)
        manager.restore_or_initialize()
        for step in range(steps):
            train()
            manager.save()

    checkpoint: a sidereal.train.Checkpoint.
    max_to_keep: how many stay, and what they stand on; None: all of them.
    full_every: every so many checkpoints one is whole; of variables on parameter servers, those
        between have what has changed since the one before, and stand on that: they are deleted
        together. 1: all are whole. The first one that a program writes always is, and the one
        after one that could not be written.
    keep_checkpoint_every_n_hours: one this much younger than the last one that was kept for ever is
        kept for ever too, when its turn to be deleted comes.
    checkpoint_name: files are called "NAME-NUMBER".
    step_counter: a variable, or what int() takes, that says how many steps there were.
    checkpoint_interval: steps between two checkpoints at least; needs step_counter.
    init_fn: what restore_or_initialize() calls where there is no checkpoint.
    clock: gives the seconds since 1970.

    One program at a time writes to a folder. Files that no manager of the folder wrote are never
    deleted.
    """

    def __init__(
        self, checkpoint: Saved, directory: str | os.PathLike[str], max_to_keep: int | None,
        keep_checkpoint_every_n_hours: float | None = None, checkpoint_name: str = "ckpt",
        step_counter: Any = None, checkpoint_interval: int | None = None,
        init_fn: Callable[[], Any] | None = None, *, full_every: int = 1,
        clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        if max_to_keep is not None and max_to_keep <= 0:
            raise ValueError(
                f"max_to_keep is {max_to_keep!r}; it is a positive number, or None to keep all"
            )
        if checkpoint_interval is not None and step_counter is None:
            raise ValueError("checkpoint_interval counts steps: give a step_counter")
        self._chain = Chain(full_every)
        self._checkpoint = checkpoint
        self._list = CheckpointList(
            directory, max_to_keep, keep_checkpoint_every_n_hours, clock=clock
        )
        self._prefix = os.path.join(self.directory, checkpoint_name)
        self._step_counter = step_counter
        self._interval = checkpoint_interval
        self._init_fn = init_fn
        self._last_step: int | None = None
        self._before_save: Callable[[str], object] = lambda prefix: None

    def before_save(self, call: Callable[[str], object]) -> None:
        """Has `call` called with the prefix before each checkpoint that is written from now on."""
        self._before_save = call

    @property
    def directory(self) -> str:
        """The folder."""
        return self._list.directory

    @property
    def checkpoint(self) -> Any:
        """What is saved and restored."""
        return self._checkpoint

    @property
    def checkpoint_interval(self) -> int | None:
        """Steps between two checkpoints, at least."""
        return self._interval

    @property
    def latest_checkpoint(self) -> str | None:
        """The prefix of the newest checkpoint; None when there was none."""
        return self._list.latest

    @property
    def checkpoints(self) -> list[str]:
        """The prefixes of those that are looked after, oldest first."""
        return self._list.paths

    def save(
        self, checkpoint_number: Any = None, check_interval: bool = True, options: Any = None
    ) -> str | None:
        """Saves, and deletes what is too much then. Gives the prefix, or None when fewer steps than
        checkpoint_interval have passed.

        checkpoint_number: the number in its name; the checkpoint's save_counter if absent.
        check_interval: False: it is saved whatever the interval is.
        options: see CheckpointOptions.
        """
        step = self._steps() if self._interval is not None else None
        if check_interval and step is not None and self._interval is not None:
            last = self._last_step
            if last is not None and step - last < max(self._interval, 1):
                return None
        self._list.check()
        counter = self._checkpoint.save_counter
        counter.assign_add(1)
        number = int(counter if checkpoint_number is None else checkpoint_number)
        os.makedirs(self.directory, exist_ok=True)
        self._before_save(f"{self._prefix}-{number}")
        if not self._chain.is_whole:
            self._list.forget(standing_on(f"{self._prefix}-{number}"))
        saved = self._chain.write(self._checkpoint, f"{self._prefix}-{number}", options)
        self._list.add(saved)
        self._last_step = step
        return saved

    def restore_or_initialize(self) -> str | None:
        """Restores the newest checkpoint and gives its prefix; where there is none, calls init_fn
        and gives None."""
        newest = self.latest_checkpoint
        if newest is not None:
            self._checkpoint.restore(newest)
            if self._interval is not None:
                self._last_step = self._steps()
            return newest
        if self._init_fn is not None:
            self._init_fn()
        return None

    def sync(self) -> None:
        """Waits until what save() began is on disk: it is when save() returns."""

    def _steps(self) -> int:
        counter = self._step_counter
        return int(counter() if callable(counter) else counter)


__all__ = ["Chain", "CheckpointList", "CheckpointManager"]
