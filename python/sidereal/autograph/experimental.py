"""What is said to autograph in functions (tf.autograph.experimental)."""

from __future__ import annotations

import enum
from typing import Any

from .._conversion import do_not_convert


class Feature(enum.Enum):
    """Conversions that may be asked for (tf.autograph.experimental.Feature). They change nothing:
    assertions and Python's functions are converted always, lists and names never."""

    ALL = "ALL"
    ASSERT_STATEMENTS = "ASSERT_STATEMENTS"
    AUTO_CONTROL_DEPS = "AUTO_CONTROL_DEPS"
    BUILTIN_FUNCTIONS = "BUILTIN_FUNCTIONS"
    EQUALITY_OPERATORS = "EQUALITY_OPERATORS"
    LISTS = "LISTS"
    NAME_SCOPES = "NAME_SCOPES"


def __getattr__(name: str) -> Any:
    if name != "set_loop_options":
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    # It is malt's own, by which it knows it.
    from .._rewriting import set_loop_options  # noqa: PLC0415 - needed in functions only.

    return set_loop_options


__all__ = ["Feature", "do_not_convert", "set_loop_options"]  # noqa: F822 - of __getattr__()
