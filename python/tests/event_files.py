"""What TensorBoard reads from files of events, for tests."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

# TensorBoard without TensorFlow, which some machines have and which takes seconds to load.
sys.modules.setdefault("tensorboard.compat.notf", types.ModuleType("tensorboard.compat.notf"))

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: E402
from tensorboard.util.tensor_util import make_ndarray  # noqa: E402


def accumulated(folder: Path | str) -> Any:
    """All that the files of a folder say: nothing is left out."""
    made = EventAccumulator(
        str(folder), {"tensors": 0, "scalars": 0, "histograms": 0, "images": 0}
    )
    made.Reload()
    return made


def values_of(found: Any, tag: str) -> list[tuple[int, Any]]:
    """(step, value) of a tag: numbers, or arrays."""
    arrays = [(event.step, make_ndarray(event.tensor_proto)) for event in found.Tensors(tag)]
    return [(step, array if array.ndim or array.dtype == object else array.item())
            for step, array in arrays]  # fmt: skip
