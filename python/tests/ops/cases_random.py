"""Cases of random ops, of checks and of printing."""

from __future__ import annotations

from typing import Any

import numpy as np
from case import Case
from cases_basic import normal, values

SEEDS = {"seed": 7, "seed2": 11}

#: Ops through which nothing flows back, by definition.
NO_FLOW = {
    "RandomUniform", "RandomNormal", "TruncatedNormal", "RandomUniformInt", "Assert", "Print",
}


def nothing(rng: np.random.Generator) -> list[np.ndarray]:
    return []


def stream(rng: np.random.Generator) -> list[np.ndarray]:
    return [np.array(5)]


def shape_and_stream(rng: np.random.Generator) -> list[np.ndarray]:
    return [np.array([40, 50], np.int32), np.array(5)]


def moments(mean: float, variance: float, low: float, high: float) -> Any:
    def check(inputs: Any, outputs: Any) -> None:
        x = np.asarray(outputs[0], np.float64)
        assert x.shape == (40, 50)
        assert (x >= low).all() and (x < high).all()
        deviation = np.sqrt(variance / x.size)
        assert abs(x.mean() - mean) < 5 * deviation
        assert abs(x.var() - variance) < 0.15 * variance
        assert len(np.unique(x)) > 60
        # Neighbours do not know each other.
        flat = x.reshape(-1) - x.mean()
        assert abs(np.mean(flat[1:] * flat[:-1])) < 5 * variance / np.sqrt(x.size)

    return check


def drawn(check: Any) -> list[Case]:
    shape = {"shape": [40, 50], **SEEDS}
    out = [Case(nothing, {**shape, "dtype": dtype}, dtypes=[], name=dtype, check=check)
           for dtype in ("float32", "float64", "float16", "bfloat16")]
    return [
        *out,
        Case(stream, shape, dtypes=[], name="stream", check=check),
        Case(shape_and_stream, SEEDS, dtypes=[], name="shape_input", check=check),
    ]


def whole_numbers(inputs: Any, outputs: Any) -> None:
    x = outputs[0]
    assert x.shape == (40, 50) and x.dtype.kind == "i"
    assert x.min() == -3 and x.max() == 6
    counts = np.bincount((x + 3).reshape(-1), minlength=10)
    assert abs(counts - 200).max() < 5 * np.sqrt(200)


LIMITS = {"minval": -3, "maxval": 7, **SEEDS}


def nothing_out(inputs: Any, outputs: Any) -> None:
    assert len(outputs) == 0


CASES: dict[str, list[Case]] = {
    "RandomUniform": drawn(moments(0.5, 1 / 12, 0, 1)),
    "RandomNormal": drawn(moments(0, 1, -6, 6)),
    "TruncatedNormal": drawn(moments(0, 0.774, -2.001, 2.01)),
    "RandomUniformInt": [
        Case(nothing, {"shape": [40, 50], "dtype": dtype, **LIMITS}, dtypes=[], name=dtype,
             check=whole_numbers) for dtype in ("int32", "int64")
    ] + [Case(shape_and_stream, LIMITS, dtypes=[], name="shape_input", check=whole_numbers)],
    "CheckNumerics": [
        Case(normal((3, 4)), {"message": "x"}, lambda x: x, lambda x: x * 1, grad=[0],
             dtypes=("float32", "float64", "float16", "bfloat16")),
        Case(normal((0,)), {}, lambda x: x, name="empty"),
    ],
    "Assert": [
        Case(values(np.array([True, True]), [1.0, 2.0]), {"message": "no"}, check=nothing_out),
        Case(values(np.array(True)), {}, check=nothing_out, dtypes=[], name="no_data"),
    ],
    "Print": [
        Case(values([1.0, 2.0], np.array([1, 2])), {"template": "a {} b {}"}, check=nothing_out),
        Case(nothing, {"template": "text"}, check=nothing_out, dtypes=[], name="text"),
    ],
    "Dropout": [
        Case(lambda rng: [rng.normal(size=(40, 50)), np.array(3)],
             {"rate": 0.25, "seed": 3, "training": True}, name="stream", grad=[0],
             numpy=None, check=lambda inputs, outputs: None,
             dtypes=("float32", "float64", "float16", "bfloat16")),
    ],
}
