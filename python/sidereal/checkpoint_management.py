"""Which checkpoints a folder has: the text file `checkpoint` that lists them, whether their files
are there, and waiting for the next one. What is in a checkpoint is not looked at here, but for what
it stands on.

A checkpoint is named by its prefix, "folder/ckpt-5", and is there once `PREFIX.index` is.
"""

from __future__ import annotations

import contextlib
import glob
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from . import _events, errors
from ._files import written_whole
from ._native import checkpoint_bases

_log = logging.getLogger("sidereal")

#: The file that lists the checkpoints of a folder.
STATE_FILE = "checkpoint"
#: What this program has written to state files last.
_written_here: dict[Path, bytes] = {}
#: How data files are called behind a prefix; ours have a mark of the writing at the end.
_DATA_FILE = re.compile(r"\.data-(\d{5,})-of-(\d{5,})(\.[0-9a-f]{8})?")

_STRING = r'"(?:[^"\\\n]|\\.)*"|' + r"'(?:[^'\\\n]|\\.)*'"
_FIELD = re.compile(rf"\s*(?:#[^\n]*\n\s*)*(\w+)\s*:\s*((?:{_STRING})|[-+.\w]+)[\s;,]*")
_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.)", re.DOTALL)
_NAMED_ESCAPES = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b", b"f": b"\f",
                  b"v": b"\v"}  # fmt: skip


@dataclass
class CheckpointState:
    """What the file `checkpoint` says (tf.train.CheckpointState): the newest checkpoint, those that
    are looked after, oldest first, with the seconds at which they were made, and the time of the
    last one that was kept for ever."""

    model_checkpoint_path: str = ""
    all_model_checkpoint_paths: list[str] = field(default_factory=list)
    all_model_checkpoint_timestamps: list[float] = field(default_factory=list)
    last_preserved_timestamp: float = 0.0

    def to_text(self) -> str:
        """As TensorFlow writes it: a field a line."""
        lines = [f"model_checkpoint_path: {_quoted(self.model_checkpoint_path)}"]
        lines += [
            f"all_model_checkpoint_paths: {_quoted(path)}"
            for path in self.all_model_checkpoint_paths
        ]
        lines += [
            f"all_model_checkpoint_timestamps: {stamp!r}"
            for stamp in self.all_model_checkpoint_timestamps
        ]
        if self.last_preserved_timestamp:
            lines.append(f"last_preserved_timestamp: {self.last_preserved_timestamp!r}")
        return "".join(line + "\n" for line in lines)

    @classmethod
    def from_text(cls, text: str) -> CheckpointState:
        """The other way round; a ValueError that says what is wrong."""
        made, position = cls(), 0
        text = text.rstrip() + "\n" if text.strip() else ""
        while position < len(text):
            match = _FIELD.match(text, position)
            if match is None:
                line = text.count("\n", 0, position) + 1
                raise ValueError(f"line {line} is no `name: value`")
            _take(made, match[1], match[2])
            position = match.end()
        if not made.model_checkpoint_path:
            raise ValueError("there is no model_checkpoint_path")
        return made


def _take(state: CheckpointState, name: str, value: str) -> None:
    if name in ("model_checkpoint_path", "all_model_checkpoint_paths"):
        if value[0] not in "\"'":
            raise ValueError(f"{name} is {value}, and should be in quotes")
        path = _unquoted(value)
        if name == "model_checkpoint_path":
            state.model_checkpoint_path = path
        else:
            state.all_model_checkpoint_paths.append(path)
    elif name == "all_model_checkpoint_timestamps":
        state.all_model_checkpoint_timestamps.append(float(value))
    elif name == "last_preserved_timestamp":
        state.last_preserved_timestamp = float(value)
    else:
        raise ValueError(f"there is no field '{name}'")


def _quoted(text: str) -> str:
    out = []
    for byte in os.fsencode(text):
        if byte in b'"\\':
            out.append("\\" + chr(byte))
        elif byte == ord("\n"):
            out.append("\\n")
        elif 32 <= byte < 127:
            out.append(chr(byte))
        else:
            out.append(f"\\{byte:03o}")
    return '"' + "".join(out) + '"'


def _unquoted(quoted: str) -> str:
    def byte(match: re.Match[bytes]) -> bytes:
        said = match[1]
        if said[:1] == b"x" and len(said) > 1:
            return bytes([int(said[1:], 16)])
        if said[:1].isdigit():
            return bytes([int(said, 8) & 255])
        return _NAMED_ESCAPES.get(said, said)

    return os.fsdecode(_ESCAPE.sub(byte, os.fsencode(quoted[1:-1])))


def state_path(directory: str, latest_filename: str | None) -> Path:
    return Path(directory) / (latest_filename or STATE_FILE)


def _absolute(directory: str, path: str) -> str:
    return path if os.path.isabs(path) else os.path.join(directory, path)


def get_checkpoint_state(
    checkpoint_dir: str | os.PathLike[str], latest_filename: str | None = None
) -> CheckpointState | None:
    """What the file `checkpoint` of a folder says, its paths below the folder
    (tf.train.get_checkpoint_state); None where there is none, or one that is damaged, which is
    logged.

    latest_filename: another name of the file.
    """
    directory = os.fspath(checkpoint_dir)
    path = state_path(directory, latest_filename)
    try:
        said = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        state = CheckpointState.from_text(os.fsdecode(said))
    except ValueError as error:
        _log.warning("%s is passed over: %s", path, error)
        return None
    state.model_checkpoint_path = _absolute(directory, state.model_checkpoint_path)
    state.all_model_checkpoint_paths = [
        _absolute(directory, one) for one in state.all_model_checkpoint_paths
    ]
    return state


def update_checkpoint_state(
    save_dir: str | os.PathLike[str], model_checkpoint_path: str,
    all_model_checkpoint_paths: Sequence[str] | None = None, latest_filename: str | None = None,
    all_model_checkpoint_timestamps: Sequence[float] | None = None,
    last_preserved_timestamp: float | None = None,
) -> None:  # fmt: skip
    """Writes the file `checkpoint` of a folder, whole (tf.compat.v1.train.update_checkpoint_state).
    Checkpoints in the folder are named relative to it, so that it may be moved.

    model_checkpoint_path: the newest one; it comes last in all_model_checkpoint_paths, and is put
        there if it is not.
    all_model_checkpoint_timestamps: when they were made, in the same order.
    last_preserved_timestamp: see CheckpointState.
    """
    directory = os.fspath(save_dir)
    every = list(all_model_checkpoint_paths or ())
    stamps = list(all_model_checkpoint_timestamps or ())
    if not every or every[-1] != model_checkpoint_path:
        every.append(model_checkpoint_path)
        if stamps and len(stamps) == len(every) - 1:
            stamps.append(time.time())
    if stamps and len(stamps) != len(every):
        raise ValueError(
            f"there are {len(stamps)} all_model_checkpoint_timestamps for {len(every)} checkpoints"
        )
    state = CheckpointState(
        _relative(directory, model_checkpoint_path), [_relative(directory, one) for one in every],
        stamps, last_preserved_timestamp or 0.0,
    )  # fmt: skip
    path = state_path(directory, latest_filename)
    if os.path.basename(model_checkpoint_path) == path.name:
        raise errors.InvalidArgumentError(
            f"a checkpoint cannot be called '{model_checkpoint_path}': {path} lists checkpoints; "
            "choose another name"
        )
    said = os.fsencode(state.to_text())
    known = _written_here.get(path.absolute())
    if known is not None and _bytes_of(os.fspath(path)) not in (None, known):
        _log.warning(
            "%s was changed by another program since this one wrote it, and names the checkpoints "
            "of this one now: give each program that saves a folder of its own. No checkpoint of "
            "the other one is deleted", path,
        )  # fmt: skip
    with written_whole(path) as file:
        file.write(said)
    _written_here[path.absolute()] = said


def _relative(directory: str, path: str) -> str:
    """A path below a folder as seen from there. In an absolute folder, a relative path is seen from
    there already; in another one, it is seen from where the program runs."""
    if os.path.isabs(directory) and not os.path.isabs(path):
        return path
    inside = os.path.relpath(os.path.abspath(path), os.path.abspath(directory))
    return os.path.abspath(path) if inside.split(os.sep)[0] == os.pardir else inside


def latest_checkpoint(
    checkpoint_dir: str | os.PathLike[str], latest_filename: str | None = None
) -> str | None:
    """The prefix of a folder's newest checkpoint (tf.train.latest_checkpoint); None where there is
    none, or where its files are not there."""
    state = get_checkpoint_state(checkpoint_dir, latest_filename)
    if state is None:
        return None
    if checkpoint_exists(state.model_checkpoint_path):
        return state.model_checkpoint_path
    _log.warning(
        "%s names %s, whose files are not all there: %s is missing",
        state_path(os.fspath(checkpoint_dir), latest_filename), state.model_checkpoint_path,
        missing_files(state.model_checkpoint_path)[0],
    )  # fmt: skip
    return None


def _data_files(prefix: str) -> list[tuple[str, int, int]]:
    """The data files of a checkpoint: path, number, of how many."""
    found = []
    for path in sorted(glob.glob(glob.escape(prefix) + ".data-*")):
        match = _DATA_FILE.fullmatch(path, len(prefix))
        if match is not None:
            found.append((path, int(match[1]), int(match[2])))
    return found


def checkpoint_exists(checkpoint_prefix: str | os.PathLike[str]) -> bool:
    """Whether a checkpoint's files are all there (tf.compat.v1.train.checkpoint_exists), and those
    of what it stands on."""
    return not missing_files(checkpoint_prefix)


def missing_files(checkpoint_prefix: str | os.PathLike[str]) -> list[str]:
    """Which files of a checkpoint are not there, or of what it stands on; one at least of a
    checkpoint that is not."""
    prefix = os.fspath(checkpoint_prefix)
    return next(filter(None, map(_missing_of, (prefix, *bases_of(prefix)))), [])


def _missing_of(prefix: str) -> list[str]:
    if not os.path.isfile(prefix + ".index"):
        return [prefix + ".index"]
    numbers: dict[int, set[int]] = {}
    for _, number, count in _data_files(prefix):
        numbers.setdefault(count, set()).add(number)
    lacking = [
        [f"{prefix}.data-{one:05d}-of-{count:05d}" for one in range(count) if one not in there]
        for count, there in numbers.items()
    ]
    return min(lacking, key=len, default=[prefix + ".data-*"])


def bases_of(prefix: str) -> list[str]:
    """All that a checkpoint stands on, the nearest first, up to one that is whole or missing: one
    that has what has changed since another one needs that to be restored."""
    return [os.fsdecode(base) for base in checkpoint_bases(os.fsencode(prefix))]


def needed_by(prefixes: Iterable[str]) -> set[str]:
    """Absolute prefixes of checkpoints and of all that they stand on."""
    found: set[str] = set()
    for prefix in prefixes:
        found.update(os.path.abspath(one) for one in (prefix, *bases_of(prefix)))
    return found


def standing_on(prefix: str) -> list[str]:
    """The checkpoints beside one that stand on it."""
    sought = os.path.abspath(prefix)
    folder = os.path.dirname(prefix)
    others = glob.glob(os.path.join(glob.escape(folder), "*.index"))
    paths = sorted(one.removesuffix(".index") for one in others)
    return [one for one in paths if sought in needed_by([one]) and os.path.abspath(one) != sought]


def get_checkpoint_mtimes(checkpoint_prefixes: Iterable[str | os.PathLike[str]]) -> list[float]:
    """When checkpoints were finished, in seconds since 1970
    (tf.compat.v1.train.get_checkpoint_mtimes); those that are not there are left out."""
    times = []
    for prefix in checkpoint_prefixes:
        try:
            times.append(os.stat(os.fspath(prefix) + ".index").st_mtime)
        except FileNotFoundError:
            continue
    return times


def remove_checkpoint(
    checkpoint_prefix: str | os.PathLike[str], meta_graph_suffix: str = "meta"
) -> None:
    """Deletes a checkpoint's files (tf.compat.v1.train.remove_checkpoint); the index first, so that
    no reader takes what is left for a checkpoint."""
    prefix = os.fspath(checkpoint_prefix)
    data = [path for path, _, _ in _data_files(prefix)]
    for path in (prefix + ".index", *data, f"{prefix}.{meta_graph_suffix}"):
        Path(path).unlink(missing_ok=True)


#: What helps where a checkpoint cannot be written.
_REMEDIES: dict[type[errors.Error], str] = {
    errors.ResourceExhaustedError: "make room on that disk, or save to a folder on another one",
    errors.PermissionDeniedError: "allow the user whose process writes it to write to the folder, "
    "or save to another one",
    errors.NotFoundError: "all tasks that have variables must reach the folder under this path",
}


@contextlib.contextmanager
def writing(prefix: str) -> Iterator[None]:
    """Around what writes a checkpoint. When that fails, what was written of it is removed, a
    checkpoint of the same name that was there is as it was, and the error says what to do. What
    stands on a checkpoint of the same name goes first: it would have values of the new one."""
    before = {path for path, _, _ in _data_files(prefix)}
    index = _bytes_of(prefix + ".index")
    for other in standing_on(prefix) if index is not None else ():
        _log.warning("%s stands on %s, which is written anew: it is deleted", other, prefix)
        remove_checkpoint(other)
    begin = time.monotonic()
    _events.emit("checkpoint_begun", prefix=prefix)
    try:
        yield
    except BaseException as error:
        _events.emit(
            "checkpoint_failed", prefix=prefix, seconds=round(time.monotonic() - begin, 3),
            why=str(error) or repr(error),
        )  # fmt: skip
        if _bytes_of(prefix + ".index") == index:
            for path, _, _ in _data_files(prefix):
                if path not in before:
                    Path(path).unlink(missing_ok=True)
        remedy = _REMEDIES.get(type(error)) if isinstance(error, errors.Error) else None
        if not isinstance(error, errors.Error) or remedy is None:
            raise
        what, newline, where = error.message.partition("\n")
        said = type(error)(f"{what}; {remedy}. Older checkpoints are as they were{newline}{where}")
        said.site = error.site
        raise said from error
    _events.emit("checkpoint_written", prefix=prefix, seconds=round(time.monotonic() - begin, 3))


def _bytes_of(path: str) -> bytes | None:
    try:
        return Path(path).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


def wait_for_new_checkpoint(
    checkpoint_dir: str | os.PathLike[str], last_checkpoint: str | None = None,
    seconds_to_sleep: float = 1, timeout: float | None = None,
) -> str | None:  # fmt: skip
    """The newest checkpoint of a folder once it is another one than `last_checkpoint`; None when
    there is none within `timeout` seconds (None: it waits until there is one, which is how long the
    training takes that writes them). The folder is looked at every `seconds_to_sleep`."""
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        newest = latest_checkpoint(checkpoint_dir)
        if newest is not None and newest != last_checkpoint:
            return newest
        pause = seconds_to_sleep
        if end is not None:
            left = end - time.monotonic()
            if left <= 0:
                return None
            pause = min(pause, left)
        time.sleep(pause)


def checkpoints_iterator(
    checkpoint_dir: str | os.PathLike[str], min_interval_secs: float = 0,
    timeout: float | None = None, timeout_fn: Callable[[], bool] | None = None,
) -> Iterator[str]:  # fmt: skip
    """The checkpoints of a folder as they come (tf.train.checkpoints_iterator): always the newest
    one, so that some may be left out.

    min_interval_secs: time between two that it gives, at least.
    timeout: seconds without a new one, after which timeout_fn says whether this is the end; without
        a timeout_fn it is.
    """
    last: str | None = None
    while True:
        newest = wait_for_new_checkpoint(checkpoint_dir, last, timeout=timeout)
        if newest is None:
            if timeout_fn is None or timeout_fn():
                return
            continue
        last, begin = newest, time.monotonic()
        yield newest
        left = begin + min_interval_secs - time.monotonic()
        if left > 0:
            time.sleep(left)


__all__ = [
    "CheckpointState", "checkpoint_exists", "checkpoints_iterator", "get_checkpoint_mtimes",
    "get_checkpoint_state", "latest_checkpoint", "remove_checkpoint", "update_checkpoint_state",
    "wait_for_new_checkpoint",
]  # fmt: skip
