"""Ops on tensors and on values of graphs. What has a value is computed at once; on the values of a
Model or of a function being traced, an op adds a node. Names and arguments are TensorFlow's; those
of `math`, `array` and `control` are members of `sidereal` as well, those of `nn`, `random`,
`linalg`,
`sparse` and `strings` under these names.
"""

from __future__ import annotations

from . import (
    array,
    basic,
    contraction,
    control,
    debugging,
    host,
    linalg,
    math,
    nn,
    random,
    sparse,
    strings,
)
from .array import *  # noqa: F403
from .contraction import *  # noqa: F403
from .control import *  # noqa: F403
from .host import *  # noqa: F403
from .math import *  # noqa: F403

# isort: split
# Last: the names that the core has as well keep its arguments here.
from .basic import *  # type: ignore[assignment]  # noqa: F403

#: What `sidereal` itself exports.
exported = sorted(
    {*math.__all__, *array.__all__, *contraction.__all__, *control.__all__, *host.__all__}
)

__all__ = sorted(
    {
        *basic.__all__, *exported,
        "array", "control", "debugging", "linalg", "math", "nn", "random", "sparse",
        "strings",
    }
)
