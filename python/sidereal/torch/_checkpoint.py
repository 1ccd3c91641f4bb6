"""Checkpoints of modules with tables: the dense part in a file of torch.save, tables as the
parameter servers write them, and a manifest, which comes last, of both."""

from __future__ import annotations

import contextlib
import json
import os
import uuid
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .. import _tensor_files, errors
from ._modules import TableModule
from ._tables import Tables

VERSION = 1
MANIFEST = "MANIFEST.json"


def tables_of(module: nn.Module) -> dict[str, Tables]:
    """The tables of a module, by the path of the first module that has them."""
    found: dict[str, Tables] = {}
    for path, one in module.named_modules():
        if isinstance(one, TableModule) and all(one._tables is not t for t in found.values()):
            found[path] = one._tables
    return found


def _described(tables: Tables) -> list[dict[str, Any]]:
    return [
        {
            "entry": group.name,
            "dim": group.dim,
            "tables": [
                {"name": table.name, "rows": table.rows, "begin": table.offset}
                for table in group.tables
            ],
        }
        for group in tables.groups
    ]


def _checksum(path: Path) -> int:
    sum_ = 0
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            sum_ = zlib.crc32(piece, sum_)
    return sum_


def _write_synced(path: Path, write: Any) -> None:
    with path.open("wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())


def save(
    path: str | os.PathLike[str], module: nn.Module,
    optimizer: torch.optim.Optimizer | None = None, extra: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """Writes a module, the optimizer of its dense part and its tables, with what their optimizer
    keeps, to the folder `path`. The parameter servers write tables, to the same path: they must
    reach it. The manifest comes last, so the folder has the checkpoint before or this one.

    `extra`: what load() is to return: numbers, strings, tensors, lists and dicts.

    One process saves what several train; the others wait meanwhile where all tables are to be of
    one instant (torch.distributed.barrier())."""
    folder = Path(path).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    token = uuid.uuid4().hex[:8]
    found = []
    for number, (where, tables) in enumerate(tables_of(module).items()):
        tables.flush()
        prefix = f"tables-{number}-{token}"
        pending = [shard.pushes.submit(shard.save, str(folder / prefix)) for shard in tables.shards]
        _tensor_files.commit(str(folder / prefix), [one.result() for one in pending])
        found.append({"module": where, "prefix": prefix, "groups": _described(tables)})
    dense = folder / f"dense-{token}.pt"
    values = {
        "module": module.state_dict(),
        "optimizer": None if optimizer is None else optimizer.state_dict(),
        "extra": dict(extra or {}),
    }
    _write_synced(dense, lambda file: torch.save(values, file))
    manifest = {
        "version": VERSION,
        "dense": {"file": dense.name, "crc32": _checksum(dense)},
        "tables": found,
    }
    text = json.dumps(manifest, indent=1).encode()
    written = folder / f"{MANIFEST}.{token}"
    _write_synced(written, lambda file: file.write(text))
    written.replace(folder / MANIFEST)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    _remove_others(folder, token)


def _remove_others(folder: Path, token: str) -> None:
    """Removes the files of checkpoints before, and of those that did not come to their end."""
    for pattern in ("tables-*", "dense-*.pt", f"{MANIFEST}.*"):
        for file in folder.glob(pattern):
            if token not in file.name:
                with contextlib.suppress(FileNotFoundError):
                    file.unlink()


def _read_manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise errors.NotFoundError(
            f"{folder} has no {MANIFEST}: no checkpoint of sidereal.torch.save() was finished there"
        ) from None
    except ValueError as error:
        raise errors.DataLossError(f"{folder / MANIFEST} is damaged: {error}") from None
    if manifest.get("version") != VERSION:
        raise errors.UnimplementedError(
            f"{folder / MANIFEST} is of version {manifest.get('version')}; this release reads "
            f"{VERSION}"
        )
    return manifest


def load(
    path: str | os.PathLike[str], module: nn.Module,
    optimizer: torch.optim.Optimizer | None = None, tables: bool = True,
) -> dict[str, Any]:  # fmt: skip
    """Gives a module, the optimizer of its dense part and its tables the values that save() has
    written, also to another number of parameter servers; what was given as `extra`.

    tables=False: the dense part alone, for all but one of several processes.

    Errors: NotFoundError where there is no checkpoint; DataLossError for damaged files;
    InvalidArgumentError for one of other tables. Those of PyTorch for another dense part."""
    folder = Path(path).absolute()
    manifest = _read_manifest(folder)
    dense = folder / manifest["dense"]["file"]
    if not dense.exists():
        raise errors.NotFoundError(f"{dense} is missing, which {folder / MANIFEST} names")
    if _checksum(dense) != manifest["dense"]["crc32"]:
        raise errors.DataLossError(f"{dense} is damaged: its checksum is not the manifest's")
    values = torch.load(dense, weights_only=True)
    mine = tables_of(module)
    theirs = {entry["module"]: entry for entry in manifest["tables"]}
    if set(mine) != set(theirs):
        raise errors.InvalidArgumentError(
            f"{folder} has tables of modules {sorted(theirs)}; the module has {sorted(mine)}"
        )
    for where, own in mine.items():
        if _described(own) != theirs[where]["groups"]:
            raise errors.InvalidArgumentError(
                f"{folder} has other tables for module '{where}': {theirs[where]['groups']}; the "
                f"module has {_described(own)}"
            )
    if optimizer is not None and values["optimizer"] is None:
        raise errors.InvalidArgumentError(f"{folder} has no optimizer of the dense part")
    module.load_state_dict(values["module"])
    if optimizer is not None:
        optimizer.load_state_dict(values["optimizer"])
    if tables:
        for where, own in mine.items():
            own.flush()
            prefix = str(folder / theirs[where]["prefix"])
            pending = [shard.pushes.submit(shard.restore, prefix) for shard in own.shards]
            for one in pending:
                one.result()
    extra: dict[str, Any] = values["extra"]
    return extra
