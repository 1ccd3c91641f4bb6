"""What variables of a training start with, when that is another checkpoint."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from .. import checkpoint
from .. import v1 as _v1
from ..v1.graph import GraphKeys, building


class VocabInfo(NamedTuple):
    """How the rows of a variable are found again when its vocabulary is another one
    (tf.estimator.VocabInfo): by the words of two files, which have one in each line.

    new_vocab, new_vocab_size: the file of the model, and how many of its words count.
    num_oov_buckets: how many rows follow those of words.
    old_vocab, old_vocab_size: those of the checkpoint; -1: all words.
    backup_initializer: makes rows of new words and those that follow them; zeros if absent.
    axis: 0 for rows, 1 for columns, as of weights of classes.
    """

    new_vocab: str
    new_vocab_size: int
    num_oov_buckets: int
    old_vocab: str
    old_vocab_size: int = -1
    backup_initializer: Any = None
    axis: int = 0


class WarmStartSettings(NamedTuple):
    """Which variables begin with the values of a checkpoint (tf.estimator.WarmStartSettings).

    ckpt_to_initialize_from: a checkpoint, or the folder of the latest one.
    vars_to_warm_start: a regular expression of names, a list of them, or None: none.
    var_name_to_vocab_info: VocabInfo of variables whose vocabulary is another one, by name.
    var_name_to_prev_var_name: the names in the checkpoint of those that are called otherwise there.
    """

    ckpt_to_initialize_from: str
    vars_to_warm_start: Any = ".*"
    var_name_to_vocab_info: Mapping[str, Any] | None = None
    var_name_to_prev_var_name: Mapping[str, str] | None = None


def warm_start_of(given: Any) -> WarmStartSettings | None:
    """The settings that the argument warm_start_from means."""
    if given is None or isinstance(given, WarmStartSettings):
        settings = given
    elif isinstance(given, (str, os.PathLike)):
        settings = WarmStartSettings(os.fspath(given))
    else:
        raise ValueError(
            f"warm_start_from must be a string or a WarmStartSettings, given: {given!r}"
        )
    return settings


def checkpoint_at(path: str) -> str:
    """A checkpoint, or the latest one of a folder."""
    if not os.path.isdir(path):
        return path
    found = _v1.train.latest_checkpoint(path)
    if found is None:
        raise ValueError(f"there is no checkpoint in {path} to start from")
    return found


class WarmStart:
    """What variables of the default graph begin with, as settings say."""

    def __init__(self, settings: WarmStartSettings) -> None:
        self.source = checkpoint_at(settings.ckpt_to_initialize_from)
        #: Variables, or lists of parts, by their names in the checkpoint.
        self.variables = warm_variables(settings)
        self._remapped: list[_Remapped] = []
        renamed = settings.var_name_to_prev_var_name or {}
        for name, info in (settings.var_name_to_vocab_info or {}).items():
            key = renamed.get(name) or name
            if key not in self.variables:
                raise ValueError(
                    f"var_name_to_vocab_info names '{name}', which is not warm-started; names of "
                    f"the checkpoint are: {', '.join(self.variables)}"
                )
            found = self.variables.pop(key)
            parts = found if isinstance(found, list) else [found]
            self._remapped.append(_Remapped(key, parts, info))
        self._saver = None
        if self.variables:
            self._saver = _v1.train.Saver(var_list=self.variables, name="warm_start")
        self.count = len(self.variables) + len(self._remapped)

    def begin(self, session: Any) -> None:
        """Gives variables their values in a session."""
        if self._saver is not None:
            self._saver.restore(session, self.source)
        for each in self._remapped:
            each.begin(session, self.source)


class _Remapped:
    """A variable, or the parts of one, whose rows are found by words."""

    def __init__(self, key: str, parts: list[Any], info: VocabInfo) -> None:
        self._key, self._info = key, info
        new = _words(info.new_vocab, info.new_vocab_size)
        old = _words(info.old_vocab, info.old_vocab_size)
        self._old_size = len(old)
        places = {word: place for place, word in enumerate(old)}
        #: Where in the checkpoint's variable each row is; -1: nowhere.
        self._places = np.array([places.get(word, -1) for word in new], np.int64)
        self._places = np.append(self._places, np.full(info.num_oov_buckets, -1, np.int64))
        self._parts: list[tuple[Any, list[int], Any]] = []
        for part in parts:
            whole = part._save_slice_info
            shape = list(part.shape)
            extents = shape if whole is None else list(whole.full_shape)
            if extents[info.axis] != len(self._places):
                raise ValueError(
                    f"variable '{key}' has {extents[info.axis]} rows, and VocabInfo says "
                    f"{len(new)} words and {info.num_oov_buckets} rows more"
                )
            backup = None
            if info.backup_initializer is not None:
                with building():
                    backup = info.backup_initializer(shape, dtype=part.dtype)
            offset = [0] * len(shape) if whole is None else list(whole.var_offset)
            self._parts.append((part, offset, backup))

    def begin(self, session: Any, source: str) -> None:
        given = checkpoint.load_variable(source, self._key)
        old = given.numpy() if hasattr(given, "numpy") else np.asarray(given)
        axis = self._info.axis
        if old.shape[axis] < self._old_size:
            raise ValueError(
                f"'{self._key}' of {source} has {old.shape[axis]} rows, and {self._info.old_vocab} "
                f"{self._old_size} words"
            )
        for part, offset, backup in self._parts:
            shape = part.shape
            value = np.zeros(shape, old.dtype) if backup is None else np.array(session.run(backup))
            places = self._places[offset[axis] : offset[axis] + shape[axis]]
            known = np.flatnonzero(places >= 0)
            there = [slice(start, start + extent) for start, extent in zip(offset, shape)]
            there[axis] = slice(None)
            rows = np.take(old[tuple(there)], places[known], axis)
            value[(slice(None),) * axis + (known,)] = rows
            part.load(value, session)


def _words(path: str, size: int) -> list[bytes]:
    """The first words of a file, or all for -1."""
    with open(path, "rb") as file:
        words = file.read().splitlines()
    if size > len(words):
        raise ValueError(f"{path} has {len(words)} words, and VocabInfo says {size}")
    return words if size < 0 else words[:size]


def warm_variables(settings: WarmStartSettings) -> dict[str, Any]:
    """Variables by their names in the checkpoint they begin with."""
    wanted = settings.vars_to_warm_start
    patterns = [wanted] if isinstance(wanted, str) else list(wanted or [])
    renamed = dict(settings.var_name_to_prev_var_name or {})
    found: dict[str, Any] = {}
    for pattern in patterns:
        named = [pattern] if not isinstance(pattern, str) else _v1.get_collection(
            GraphKeys.TRAINABLE_VARIABLES if pattern == ".*" else GraphKeys.GLOBAL_VARIABLES,
            pattern,
        )  # fmt: skip
        for variable in named:
            whole = variable._save_slice_info
            name = variable.op.name if whole is None else whole.full_name
            key = renamed.pop(name, None) or name
            # The parts of a variable that is cut have one name.
            if whole is None:
                found[key] = variable
            elif variable not in found.setdefault(key, []):
                found[key].append(variable)
    if renamed:
        raise ValueError(
            f"var_name_to_prev_var_name names variables that are not warm-started: {list(renamed)}"
        )
    return found
