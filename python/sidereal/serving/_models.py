"""The versions of a model: found in a folder, loaded beside the one that is served, and swapped
while requests go on."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy.typing as npt

from .. import _native, errors, saved_model
from .._dispatch import ENGINE
from .._predictors import Predictor, kind_of, open_signatures
from ..checkpoint_management import latest_checkpoint
from . import _json
from ._batching import Batcher, BatchOptions, Done, Waiting, model_of_callable
from ._metrics import Metrics
from ._tensors import number_of

_log = logging.getLogger("sidereal")

DEFAULT_SIGNATURE = saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
#: What a version can be, beside the folder of a description.
_SUFFIXES = (".srsm", ".onnx", ".keras", ".json")
#: What methods of TensorFlow's signatures are called, by what the signature gives.
_PREDICT = "tensorflow/serving/predict"
_CLASSIFY = "tensorflow/serving/classify"
_REGRESS = "tensorflow/serving/regress"

#: States of versions: numbers of tensorflow.serving.ModelVersionStatus.State.
STATES = {"LOADING": 20, "AVAILABLE": 30, "UNLOADING": 40, "END": 50}


# ---- where versions come from --------------------------------------------------------------------


class Found(NamedTuple):
    """A version that is there. mark: changes when its files do."""

    number: int
    path: str
    checkpoint: str | None
    mark: Any


class Source(Protocol):
    """Where the versions of a model come from."""

    #: Whether there can be others than the first one.
    changes: bool

    def newest(self) -> Found:
        """The version to serve. NotFoundError when there is none."""


class FileSource:
    """A file, which is version 1."""

    changes = False

    def __init__(self, path: str) -> None:
        self._path = path

    def newest(self) -> Found:
        return Found(1, self._path, None, None)


class VersionsSource:
    """A folder with NUMBER/FILE or NUMBER.SUFFIX for each version; the greatest number counts."""

    changes = True

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def newest(self) -> Found:
        found = {}
        for entry in self._folder.iterdir():
            name = entry.name if entry.is_dir() else entry.stem
            if name.isdecimal() and (entry.is_dir() or entry.suffix in _SUFFIXES):
                found[int(name)] = entry
        if not found:
            raise errors.NotFoundError(
                f"{self._folder} has no version of a model: put files there as 1/model.srsm or "
                "1.srsm, or name a file"
            )
        number = max(found)
        path = _model_in(found[number])
        said = path.stat()
        return Found(number, str(path), None, (str(path), said.st_mtime_ns, said.st_size))


def _model_in(entry: Path) -> Path:
    """The file of a version."""
    if not entry.is_dir():
        return entry
    if (entry / "model.json").exists():
        return entry
    files = [file for file in sorted(entry.iterdir()) if file.suffix in _SUFFIXES[:-1]]
    if len(files) != 1:
        raise errors.NotFoundError(
            f"{entry} has {len(files)} models; a version is a folder with one file "
            f"({', '.join(_SUFFIXES[:-1])}), or with model.json and a checkpoint"
        )
    return files[0]


class CheckpointsSource:
    """A model whose values come with the checkpoints of a folder; versions are steps."""

    def __init__(self, path: str, folder: str, follow: bool) -> None:
        self._path, self._folder, self.changes = path, folder, follow

    def newest(self) -> Found:
        prefix = latest_checkpoint(self._folder)
        if prefix is None:
            raise errors.NotFoundError(
                f"{self._folder} has no checkpoint; `sidereal train --checkpoint-dir` writes some"
            )
        made = os.stat(prefix + ".index").st_mtime_ns
        number = re.search(r"-(\d+)$", prefix)
        version = int(number[1]) if number else made // 1_000_000_000
        return Found(version, self._path, prefix, (prefix, made))


def source_of(path: str, checkpoint: str | None = None, follow: bool = False) -> Source:
    """Where the versions of what --model names come from."""
    folder = Path(path)
    if not folder.exists():
        raise errors.NotFoundError(f"there is no model {path}")
    if folder.is_dir() and not (folder / "model.json").exists():
        if checkpoint is not None:
            raise errors.InvalidArgumentError(
                f"{path} has versions with their values; --checkpoint is for model.json and .keras "
                "files"
            )
        return VersionsSource(path)
    kind = kind_of(path)
    if kind == "description" or checkpoint is not None:
        where = checkpoint
        if where is None:
            where = path if folder.is_dir() else os.path.dirname(os.path.abspath(path))
        if os.path.isdir(where):
            return CheckpointsSource(path, where, follow)
        if follow:
            raise errors.InvalidArgumentError(
                f"{where} is one checkpoint; --follow takes a folder of them"
            )
        return _OneCheckpoint(path, where)
    if follow:
        raise errors.InvalidArgumentError(
            f"{path} has its values; --follow is for model.json or a .keras file with --checkpoint "
            "DIR. A folder of versions is always followed"
        )
    return FileSource(path)


class _OneCheckpoint(FileSource):
    def __init__(self, path: str, prefix: str) -> None:
        super().__init__(path)
        self._prefix = prefix

    def newest(self) -> Found:
        return Found(1, self._path, self._prefix, None)


# ---- versions ------------------------------------------------------------------------------------


def _model_of(predictor: Predictor) -> _native.ServedModel:
    """What is called for a predictor: its function where that needs no Python, compiled."""
    parts = None if predictor.function is None else predictor.function.as_computation()
    if parts is not None:
        try:
            return _native.ServedModel.of_function(*parts, ENGINE)
        except errors.FailedPreconditionError as error:
            _log.info("%s: called by Python, as %s", predictor.where, error.message)
    return model_of_callable(predictor.call, list(predictor.inputs), list(predictor.outputs))


class Signature:
    """What a version computes under a name, in batches."""

    def __init__(self, name: str, predictor: Predictor) -> None:
        self.name = name
        self.predictor = predictor
        self.inputs = predictor.inputs
        self.outputs = predictor.outputs
        self.model = _model_of(predictor)
        self.batcher: Batcher | None = None

    @property
    def method_name(self) -> str:
        if self.outputs and set(self.outputs) <= {"scores", "classes"}:
            return _CLASSIFY
        return _REGRESS if list(self.outputs) == ["outputs"] else _PREDICT

    def submit(
        self, columns: Mapping[str, npt.NDArray[Any]], deadline: float, done: Done
    ) -> Waiting:
        """Has columns answered, which have the dtypes and shapes of the inputs."""
        assert self.batcher is not None  # Since it is served.
        return self.batcher.submit(columns, _json.rows_of(columns, self.inputs), deadline, done)


@dataclass
class Version:
    """A version of a model, and what became of it."""

    number: int
    state: str
    signatures: dict[str, Signature]
    error: errors.Error | None = None

    def signature(self, name: str) -> Signature:
        """NotFoundError for one that is not there."""
        found = self.signatures.get(name or DEFAULT_SIGNATURE)
        if found is None:
            raise errors.NotFoundError(
                f"there is no signature '{name or DEFAULT_SIGNATURE}' but "
                f"{', '.join(self.signatures) or 'none'}; give signature_name"
            )
        return found


def _load(found: Found) -> dict[str, Signature]:
    made = {}
    for name, predictor in open_signatures(found.path, found.checkpoint).items():
        odd = [one for one, (kind, _) in predictor.inputs.items() if not number_of(kind)]
        if odd:
            _log.warning(
                "%s: signature '%s' is not served: its input '%s' is %s; save it with float32",
                found.path, name, odd[0], predictor.inputs[odd[0]][0],
            )  # fmt: skip
            continue
        made[name] = Signature(name, predictor)
    if not made:
        raise errors.InvalidArgumentError(
            f"{found.path} has no signature to serve; save it with signatures="
            f"{{'{DEFAULT_SIGNATURE}': ...}}"
        )
    return made


def _as_error(error: BaseException) -> errors.Error:
    if isinstance(error, errors.Error):
        return error
    return errors.UnknownError(f"{type(error).__name__}: {error}")


class Model:
    """A model with the version that is served, which changes when there is a newer one."""

    def __init__(
        self, name: str, source: Source, batching: BatchOptions, metrics: Metrics,
        labels: tuple[str, ...] = (), poll_s: float = 1.0,
    ) -> None:  # fmt: skip
        self.name = name
        self._source, self._batching, self._metrics = source, batching, metrics
        self.labels, self._poll_s = labels, poll_s
        self.current: Version | None = None
        #: The ones that are of interest beside the current one, newest first.
        self._others: list[Version] = []
        self._mark: Any = None
        self._failed: Any = None
        self._stopping = asyncio.Event()
        self._poller: asyncio.Task[None] | None = None
        self._unloading: set[asyncio.Task[None]] = set()
        #: Called when another version is served.
        self.on_change: Callable[[], None] = lambda: None

    async def start(self) -> None:
        """Serves the newest version; raises what keeps it from being served."""
        found = await self._on_thread(self._source.newest)
        await self._serve(found)
        if self._source.changes:
            self._poller = asyncio.create_task(self._poll())

    async def _on_thread(self, function: Callable[..., Any], *given: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(None, function, *given)

    async def _serve(self, found: Found) -> None:
        """Loads a version and has it take the place of the one before, which answers what it was
        asked."""
        version = Version(found.number, "LOADING", {})
        self._others = [version, *self._others[:3]]
        try:
            signatures = await self._on_thread(_load, found)
        except (errors.Error, OSError, ValueError, TypeError, KeyError) as error:
            version.state, version.error = "END", _as_error(error)
            self._metrics.loads.labels("failed").inc()
            raise
        for signature in signatures.values():
            signature.batcher = Batcher(
                signature.name, signature.model, list(signature.inputs), list(signature.outputs),
                self._batching, self._metrics.batches,
            )  # fmt: skip
        version.signatures, version.state = signatures, "AVAILABLE"
        before, self.current, self._mark = self.current, version, found.mark
        self._others = [one for one in self._others if one is not version]
        self._metrics.loads.labels("served").inc()
        self._metrics.version.set(version.number)
        self.on_change()
        if before is not None:
            _log.info("%s: version %d took the place of %d", self.name, version.number,
                      before.number)  # fmt: skip
            self._unload(before)

    def _unload(self, version: Version) -> None:
        version.state = "UNLOADING"
        self._others = [version, *self._others[:3]]

        async def end() -> None:
            for signature in version.signatures.values():
                assert signature.batcher is not None  # It was served.
                await signature.batcher.close()
            version.state, version.signatures = "END", {}

        task = asyncio.create_task(end())
        self._unloading.add(task)
        task.add_done_callback(self._unloading.discard)

    async def _poll(self) -> None:
        while True:
            try:
                await asyncio.wait_for(self._stopping.wait(), self._poll_s)
                return
            except asyncio.TimeoutError:
                pass
            try:
                found = await self._on_thread(self._source.newest)
            except (errors.Error, OSError) as error:
                self._said(error, str(error))
                continue
            if found.mark in (self._mark, self._failed):
                continue
            try:
                await self._serve(found)
            except (errors.Error, OSError, ValueError, TypeError, KeyError) as error:
                self._said(error, found.mark)

    def _said(self, error: Exception, what: Any) -> None:
        """Tells of a failure once, and of the same one not again."""
        if self._failed != what:
            self._failed = what
            served = "nothing" if self.current is None else f"version {self.current.number}"
            _log.warning(
                "%s: a new version is not served, and %s still is: %s", self.name, served,
                getattr(error, "message", error),
            )  # fmt: skip

    def find(
        self, name: str, version: int | None = None, label: str | None = None
    ) -> Version:
        """The version that a request means. NotFoundError for one that is not served."""
        current = self.current
        if name != self.name:
            raise errors.NotFoundError(f"there is no model '{name}' here but '{self.name}'")
        if label is not None and label not in self.labels:
            raise errors.NotFoundError(
                f"model '{name}' has no label '{label}' but {', '.join(self.labels) or 'none'} "
                "(--labels)"
            )
        if current is None or (version is not None and version != current.number):
            there = "none" if current is None else str(current.number)
            raise errors.NotFoundError(
                f"model '{name}' has no version {version} here; version {there} is served"
            )
        return current

    def statuses(self, version: int | None = None) -> list[Version]:
        """The versions there are or were, the newest first. NotFoundError for an unknown one."""
        every = [*([] if self.current is None else [self.current]), *self._others]
        newest: dict[int, Version] = {}
        for one in every:
            newest.setdefault(one.number, one)
        if version is None:
            return [newest[number] for number in sorted(newest, reverse=True)]
        if version not in newest:
            raise errors.NotFoundError(f"model '{self.name}' has no version {version}")
        return [newest[version]]

    @property
    def waiting_rows(self) -> int:
        if self.current is None:
            return 0
        return sum(
            signature.batcher.waiting_rows
            for signature in self.current.signatures.values()
            if signature.batcher is not None
        )

    async def close(self) -> None:
        """Ends when what was asked is answered."""
        self._stopping.set()
        if self._poller is not None:
            await self._poller
        if self.current is not None:
            self._unload(self.current)
            self.current = None
        if self._unloading:
            await asyncio.gather(*self._unloading)


__all__ = [
    "DEFAULT_SIGNATURE", "STATES", "BatchOptions", "Model", "Signature", "Source", "Version",
    "source_of",
]  # fmt: skip
