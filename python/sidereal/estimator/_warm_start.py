"""What variables of a training start with, when that is another checkpoint."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from .. import errors
from .. import v1 as _v1
from ..v1.graph import GraphKeys


class WarmStartSettings(NamedTuple):
    """Which variables begin with the values of a checkpoint (tf.estimator.WarmStartSettings).

    ckpt_to_initialize_from: a checkpoint, or the folder of the latest one.
    vars_to_warm_start: a regular expression of names, a list of them, or None: none.
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
    if settings is not None and settings.var_name_to_vocab_info:
        raise errors.UnimplementedError(
            "WarmStartSettings(var_name_to_vocab_info=...): rows of tables are taken as they are; "
            "leave the table out with vars_to_warm_start, or keep the vocabulary's order"
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
