"""Cases of random ops, of checks and of printing."""

from __future__ import annotations

from typing import Any

import numpy as np
from case import Case
from cases_basic import normal, values

SEEDS = {"seed": 7, "seed2": 11}

#: Ops through which nothing flows back, by definition.
NO_FLOW = {
    "RandomUniform", "RandomNormal", "TruncatedNormal", "RandomUniformInt", "InitialValue",
    "Assert", "Print",
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


def _mix(x: int) -> int:
    """The finalizer of SplitMix64 (Steele, Lea and Flood, 2014)."""
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & _WORD
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & _WORD
    return x ^ x >> 31


_WORD = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def _uniform(seed: int, stream: int, count: int, low: float, high: float) -> np.ndarray:
    """What the counter-based generator makes of the first elements of a variable: two of 24 bits
    each from a hash of 64."""
    key0 = _mix(_mix((seed + _GOLDEN) & _WORD) ^ _mix((stream + 0x6A09E667F3BCC909) & _WORD))
    key1 = _mix((key0 + 0xBB67AE8584CAA73B) & _WORD)
    drawn = []
    for pair in range((count + 1) // 2):
        bits = _mix(_mix((pair * _GOLDEN + key0) & _WORD) ^ key1)
        drawn += [bits >> 40, bits >> 8 & 0xFFFFFF]
    unit = np.array(drawn[:count], np.float64) / 2.0**24
    return (low + (high - low) * unit).astype(np.float32)


#: hash64("w"): what tells the variable of that name from others.
STREAM_OF_W = 0xACEEE8F5DE193E29


def first_value(kind: str, a: float, b: float, want: Any, **part: int) -> Case:
    attrs = {"shape": [7, 3], "kind": kind, "a": a, "b": b, "seed": 5, "name": "w", **part}
    return Case(nothing, attrs, want, dtypes=[], name="_".join([kind, *part]))


def first_moments(kind: str, mean: float, stddev: float) -> Case:
    attrs = {"shape": [40, 50], "kind": kind, "a": 2.0, "b": 3.0, "seed": 5, "name": "w"}
    check = moments(mean, stddev**2, mean - 6 * stddev, mean + 6 * stddev)
    return Case(nothing, attrs, dtypes=[], name=f"{kind}_moments", check=check)


CASES: dict[str, list[Case]] = {
    "InitialValue": [
        first_value("zeros", 0, 0, lambda: np.zeros((7, 3))),
        first_value("constant", 2.5, 0, lambda: np.full((7, 3), 2.5)),
        first_value("uniform", -1, 2,
                    lambda: _uniform(5, STREAM_OF_W, 21, -1, 2).reshape(7, 3)),
        first_value("uniform", -1, 2,
                    lambda: _uniform(5, STREAM_OF_W, 21, -1, 2).reshape(7, 3)[1::3],
                    part=1, parts=3),
        first_value("glorot_uniform", 0, 0,
                    lambda: _uniform(5, STREAM_OF_W, 21, -(0.6**0.5), 0.6**0.5).reshape(7, 3)),
        first_moments("normal", 2.0, 3.0),
        first_moments("truncated_normal", 2.0, 3.0 * 0.774**0.5),
    ],
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
