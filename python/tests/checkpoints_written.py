"""Checkpoints that tests write without a training."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import sidereal as sr
from sidereal import _tensor_files, v1
from sidereal._dispatch import apply
from sidereal.checkpoint_management import update_checkpoint_state


def write_checkpoint(prefix: Path, values: Mapping[str, Any]) -> str:
    """A checkpoint of one data file, which its folder then calls the newest."""
    named = [(name, sr.constant(value)) for name, value in values.items()]
    _tensor_files.commit(str(prefix), [_tensor_files.write(str(prefix), named, 0, 1)])
    update_checkpoint_state(prefix.parent, str(prefix))
    return str(prefix)


def write_dealt(prefix: Path, values: Mapping[str, Any], parts: int) -> str:
    """One in which matrices are dealt out by rows, as tables are to lanes of servers, and have
    slots beside them."""
    where, base = sr.constant(str(prefix)), sr.constant("")
    with v1.Graph().as_default(), v1.Session() as session:
        saved = []
        for k in range(parts):
            entries: list[tuple[str, Any, str]] = []
            for name, value in values.items():
                if np.ndim(value) == 2:
                    rows, dim = value.shape
                    part = value[k::parts]
                    slice_ = f"{rows} {dim} {k},{len(part)},{parts}:-"
                    entries.append((name, part, slice_))
                    entries.append((f"{name}/Adagrad", np.full_like(part, 7), slice_))
                elif k == 0:
                    entries.append((name, value, ""))
            names, _, slices = map(list, zip(*entries))
            made = [
                v1.get_variable(f"part_{k}_{i}", initializer=sr.constant(value))
                for i, (_, value, _) in enumerate(entries)
            ]
            saved.append(
                apply(
                    "SaveVariables",
                    [str(prefix), "", *(variable.handle for variable in made)],
                    {"names": names, "slices": slices, "shard": k, "shards": parts},
                )
            )
        session.run(v1.global_variables_initializer())
        written = session.run(saved)
    apply("CommitCheckpoint", [where, base, *map(sr.constant, written)], {})
    update_checkpoint_state(prefix.parent, str(prefix))
    return str(prefix)
