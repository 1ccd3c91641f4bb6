"""Files of models: all of one (.keras), or its weights (.weights.npz).

m.keras is a ZIP file that is not compressed:

    metadata.json       the format and its version
    config.json         the model, and how it is compiled (_configs.serialize)
    model.weights.npz   weights and what the optimizer keeps (_weights)
    assets/0/...        what layers write themselves, vocabularies
"""

from __future__ import annotations

import io
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import errors
from .._files import written_whole
from .._native import __version__
from ..checkpoint import Checkpoint
from ..checkpoint_management import update_checkpoint_state
from ._archive import Archive, opened, write_arrays, write_members
from ._configs import deserialize, hooks, serialize
from ._layer import Layer
from ._weights import arrays_of, load_arrays, tree_of

_FORMAT, _VERSION = "sidereal.keras", 1
_METADATA, _CONFIG, _WEIGHTS = "metadata.json", "config.json", "model.weights.npz"
#: What a config that was damaged may end in, beside the errors that tell what is wrong.
_MISTAKES = (ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError)
_ENDS = (".weights.npz", ".keras")


def _path(filepath: Any) -> Path:
    return Path(os.fspath(filepath))


def _check_new(path: Path, overwrite: bool) -> None:
    if not overwrite and path.exists():
        raise ValueError(f"{path} is there already, and overwrite is False")


# --- Weights.


def is_checkpoint(path: Path) -> bool:
    """Whether a name is the prefix of a checkpoint, and not that of one file."""
    return path.suffix not in (".h5", ".hdf5", ".keras", ".npz")


def save_weights(model: Any, filepath: Any, overwrite: bool = True) -> None:
    """See Model.save_weights()."""
    path = _path(filepath)
    if is_checkpoint(path):
        _check_new(Path(f"{path}.index"), overwrite)
        Checkpoint(model).write(path)
        update_checkpoint_state(path.parent, str(path), [str(path)])
        return
    if not path.name.endswith(".weights.npz"):
        raise ValueError(
            f"save_weights(): {path} must end with .weights.npz"
            + ("; HDF5 files are not written here" if path.suffix in (".h5", ".hdf5") else "")
        )
    _check_new(path, overwrite)
    arrays = arrays_of(model)
    with written_whole(path) as file:
        write_arrays(file, arrays)


def load_weights(model: Any, filepath: Any, skip_mismatch: bool = False) -> Any:
    """See Model.load_weights()."""
    path = _path(filepath)
    if is_checkpoint(path):
        if skip_mismatch:
            raise ValueError(f"load_weights(): {path} is a checkpoint; skip_mismatch is of files")
        status = Checkpoint(model).read(path).expect_partial()
        status.assert_nontrivial_match()
        return status
    if not path.name.endswith(_ENDS):
        raise ValueError(
            f"load_weights(): {path} must end with .weights.npz, or .keras of a whole model"
            + ("; HDF5 files cannot be read here" if path.suffix in (".h5", ".hdf5") else "")
        )
    with opened(path) as archive:
        weights = _weights_in(archive) if path.suffix == ".keras" else archive
        arrays = weights.arrays()
    load_arrays(str(path), model, arrays, skip_mismatch)
    return None


def _weights_in(archive: Archive) -> Archive:
    return Archive(f"{_WEIGHTS} of {archive.where}", io.BytesIO(archive.read(_WEIGHTS)))


# --- Assets: what layers write themselves.


def _with_assets(layer: Layer) -> list[tuple[str, Any]]:
    """The layers of a tree that write files, by their paths; not what is below them."""
    found: list[tuple[str, Any]] = []
    for path, each in tree_of(layer):
        is_inside = any(path.startswith(f"{outer}/") for outer, _ in found)
        if hasattr(each, "save_assets") and not is_inside:
            found.append((path, each))
    return found


class _AssetWriter:
    """Collects the files of layers as members of the file of the model."""

    def __init__(self) -> None:
        self.members: dict[str, bytes] = {}
        self._folders = 0

    def saved(self, obj: Any, entry: dict[str, Any]) -> dict[str, Any]:
        """Changes of an entry: the folders of what no entry of its own has in it."""
        config = entry["config"]
        if not isinstance(obj, Layer) or "layers" in config:
            return {}
        listed = []
        changes: dict[str, Any] = {}
        for path, layer in _with_assets(obj):
            if layer is obj and isinstance(config.get("vocabulary"), str):
                # The name of a file that is maybe not there where the model is loaded.
                changes["config"] = {**config, "vocabulary": None, "idf_weights": None}
            elif layer is obj and config.get("vocabulary") is not None:
                continue
            listed.append([path, self._written(layer)])
        return {**changes, "assets": listed} if listed else changes

    def _written(self, layer: Any) -> str:
        folder = f"assets/{self._folders}"
        self._folders += 1
        with tempfile.TemporaryDirectory() as place:
            layer.save_assets(place)
            for file in sorted(Path(place).iterdir()):
                self.members[f"{folder}/{file.name}"] = file.read_bytes()
        return folder


class _AssetReader:
    """Gives layers the files that they wrote, as soon as they are made."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._done: set[str] = set()

    def loaded(self, made: Any, entry: Mapping[str, Any]) -> None:
        left = [each for each in entry.get("assets") or () if each[1] not in self._done]
        if not left:
            return
        layers = dict(_with_assets(made))
        for path, folder in left:
            if path in layers:
                self._done.add(folder)
                self._load(layers[path], f"{folder}/")

    def _load(self, layer: Any, prefix: str) -> None:
        with tempfile.TemporaryDirectory() as place:
            for name in self._archive.names:
                file = name.removeprefix(prefix)
                if name.startswith(prefix) and "/" not in file:
                    Path(place, file).write_bytes(self._archive.read(name))
            try:
                layer.load_assets(place)
            except FileNotFoundError as error:
                raise errors.DataLossError(
                    f"{self._archive.where} has not all files of layer '{layer.name}': {error}"
                ) from None


# --- Models.


def save_model(model: Any, filepath: Any, overwrite: bool = True, zipped: Any = None) -> None:
    """See Model.save()."""
    path = _path(filepath)
    if path.suffix != ".keras":
        raise ValueError(
            f"save(): {path} must end with .keras; for serving see export(), for weights alone "
            "save_weights()"
        )
    if zipped is False:
        raise ValueError("save(): zipped=False is not there; a model is one file")
    _check_new(path, overwrite)
    members = _members_of(model)
    with written_whole(path) as file:
        write_members(file, members)


def _members_of(model: Any) -> dict[str, Any]:
    """What the file of a model has."""
    assets = _AssetWriter()
    with hooks.changed(saved=assets.saved):
        config = json.dumps(serialize(model))
    metadata = {"format": _FORMAT, "version": _VERSION, "producer": f"sidereal {__version__}"}
    arrays = arrays_of(model)
    return {
        _METADATA: json.dumps(metadata).encode(), _CONFIG: config.encode(),
        _WEIGHTS: lambda file: write_arrays(file, arrays), **assets.members,
    }  # fmt: skip


def _json(archive: Archive, name: str) -> Any:
    try:
        return json.loads(archive.read(name))
    except (ValueError, RecursionError) as error:
        raise errors.DataLossError(f"{archive.where}: {name} is no JSON: {error}") from None


def _check_metadata(archive: Archive) -> None:
    if _METADATA not in archive.names or "model.weights.h5" in archive.names:
        raise errors.InvalidArgumentError(
            f"{archive.where} is no model that sidereal.keras has saved"
        )
    found = _json(archive, _METADATA)
    if not isinstance(found, dict) or found.get("format") != _FORMAT:
        raise errors.InvalidArgumentError(
            f"{archive.where} is no model that sidereal.keras has saved"
        )
    if found.get("version") != _VERSION:
        raise errors.InvalidArgumentError(
            f"{archive.where} is of version {found.get('version')!r} of the format; this release "
            f"reads version {_VERSION}"
        )


def load_model(
    filepath: Any, custom_objects: Mapping[str, Any] | None = None, compile: bool = True,
    safe_mode: bool = True,
) -> Any:  # fmt: skip
    """A model that Model.save() wrote, in the scope of a strategy on its parameter servers.

    custom_objects: by name the classes and functions of one's own that are not registered by
        keras.saving.register_keras_serializable(). compile: whether it is compiled as it was, so
        that fit() goes on as if it had not stopped. No code is in files: safe_mode changes nothing.

    Errors: NotFoundError; DataLossError for a file that was damaged; InvalidArgumentError for one
    of something else; TypeError for classes and functions that are not known.
    """
    del safe_mode
    path = _path(filepath)
    if path.suffix != ".keras":
        raise ValueError(
            f"load_model(): {path} must end with .keras; what export() wrote is loaded by "
            "sidereal.saved_model.load()"
        )
    with opened(path) as archive:
        return _model_in(archive, custom_objects, compile)


def copy_here(model: Any, custom_objects: Mapping[str, Any]) -> Any:
    """A model of this process, not compiled, with the weights of one that is maybe elsewhere."""
    with hooks.changed(compiles=False):
        members = _members_of(model)
    made = io.BytesIO()
    write_members(made, members)
    return _model_in(Archive(f"model '{model.name}'", made), custom_objects, compiles=False)


def _model_in(
    archive: Archive, custom_objects: Mapping[str, Any] | None, compiles: bool
) -> Any:  # fmt: skip
    where = archive.where
    _check_metadata(archive)
    arrays = _weights_in(archive).arrays()
    config = _json(archive, _CONFIG)
    # A config alone cannot have more memory taken than the file is long.
    elements = sum(each.size for name, each in arrays.items() if name.startswith("layers/"))
    try:
        with hooks.changed(
            loaded=_AssetReader(archive).loaded, compiles=compiles, elements=elements
        ):
            model = deserialize(config, custom_objects)
    except errors.Error as error:
        error.message = f"{where}: {error.message}"
        raise
    except _MISTAKES as error:
        raise errors.DataLossError(
            f"{where}: its model is described in a way that this release does not know ({error!r})"
        ) from None
    if not isinstance(model, Layer):
        raise errors.DataLossError(f"{where}: what is described is no model")
    load_arrays(where, model, arrays)
    return model
