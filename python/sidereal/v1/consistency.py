"""What a MonitoredTrainingSession runs with for its `consistency`."""

from __future__ import annotations

import copy

from .. import _native
from .bounded_staleness import BoundedStalenessHook
from .config import ConfigProto
from .geo import GeoHook
from .session_run_hook import SessionRunHook


def hooks_of(consistency: str, worker: str) -> list[SessionRunHook]:
    """What a session that trains by itself has of a worker of that name. ValueError for what it
    cannot be, with what to do."""
    read = _native.parse_consistency(consistency)
    kind = read.text.partition("(")[0]
    if kind == "bounded" and not read.is_in_step:
        return [BoundedStalenessHook(read.bound, worker)]
    if read.is_in_step:
        what = ", hybrid=True" if kind == "hybrid" else ""
        raise ValueError(
            f"consistency is {consistency!r}: sessions train in step with an optimizer in a "
            f"tf.train.SyncReplicasOptimizer(optimizer, workers{what}) and its "
            "make_session_run_hook()"
        )
    return []


def geo_of(
    consistency: str, master: str, is_chief: bool, config: ConfigProto | None
) -> tuple[GeoHook | None, ConfigProto | None]:
    """The hook of a worker that trains copies, and the options of its session. A session of this
    process alone has none: there is nobody to share variables with."""
    window = _native.parse_consistency(consistency).window
    if not window or not master:
        return None, config
    hook = GeoHook(window, is_chief)
    config = copy.copy(config or ConfigProto())
    config._redirected = hook.redirected
    return hook, config
