"""Lookups in constant tables."""

from __future__ import annotations

from typing import Any

import numpy as np
from case import Case


def found(table: Any, values: Any, keys: Any, default: Any) -> np.ndarray:
    """By a dict."""
    known = dict(zip(table.tolist(), values.tolist()))
    flat = [known.get(key, default.item()) for key in keys.ravel().tolist()]
    made = np.empty(len(flat), dtype=values.dtype)
    made[:] = flat
    return made.reshape(keys.shape)


def texts(*values: Any) -> np.ndarray:
    array = np.empty(len(values), dtype=object)
    array[:] = [value.encode() if isinstance(value, str) else value for value in values]
    return array


CASES = {
    "StaticTableFind": [
        Case(
            name="int64 to float",
            inputs=lambda rng: [
                rng.permutation(20).astype(np.int64), rng.normal(size=20),
                rng.integers(-5, 25, size=(3, 4)), np.float64(-7.0),
            ],
            numpy=found,
            dtypes=("float16", "bfloat16", "float32", "float64"),
        ),
        Case(
            name="strings to int32",
            inputs=lambda rng: [
                texts("red", "green", "", b"\xff\x00"), np.array([3, 1, 4, 1], np.int32),
                texts("green", "blue", "", b"\xff\x00", b"\xff"), np.int32(-1),
            ],
            numpy=found,
            dtypes=(),
        ),
        Case(
            name="int32 to strings",
            inputs=lambda rng: [
                np.array([5, -2], np.int32), texts("five", "minus two"),
                np.array([[-2, 0], [5, 5]], np.int32), np.array(b"none", dtype=object),
            ],
            numpy=found,
            dtypes=(),
        ),
        Case(
            name="an empty table, no keys",
            inputs=lambda rng: [
                np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((2, 0), np.int64),
                np.int64(1),
            ],
            numpy=found,
            dtypes=(),
        ),
        Case(
            name="an empty table, a scalar key",
            inputs=lambda rng: [
                np.zeros(0, np.int64), np.zeros(0, np.int64), np.int64(3), np.int64(1),
            ],
            numpy=found,
            dtypes=(),
        ),
    ]
}
