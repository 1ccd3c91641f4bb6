"""Cases of gathers, scatters and segments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from case import Case

FLOATS = ["float32", "float64", "float16", "bfloat16"]

#: Ops whose gradient is nothing, by definition.
NO_FLOW = {"SegmentTies"}

Inputs = Callable[[np.random.Generator], Sequence[Any]]


def values(shape: tuple[int, ...], *ints: Any, dtype: str = "int64") -> Inputs:
    """A random tensor, then integers."""
    return lambda rng: [rng.normal(size=shape), *(np.asarray(i, dtype) for i in ints)]


def given(*arrays: Any) -> Inputs:
    return lambda rng: [np.asarray(array) for array in arrays]


# --- Gather.


def gathered(axis: int = 0, batch_dims: int = 0) -> Callable[..., np.ndarray]:
    def numpy(x: np.ndarray, indices: np.ndarray) -> np.ndarray:
        batch = batch_dims % indices.ndim if batch_dims < 0 else batch_dims
        if batch == 0:
            return np.take(x, indices, axis)
        inner = (axis % x.ndim) - 1
        rest = gathered(inner, batch - 1)
        rows = [rest(one, ids) for one, ids in zip(x, indices)]
        return np.stack(rows) if rows else np.zeros((0,))

    return numpy


def torch_rows(x: Any, indices: Any) -> Any:
    return x[indices]


GATHER = [
    Case(values((5, 3), [4, 0, 4, 2]), numpy=gathered(), torch=torch_rows, grad=[0], dtypes=FLOATS),
    Case(values((5, 3), [[4, 0], [1, 1]], dtype="int32"), numpy=gathered(), torch=None, grad=[0],
         name="int32"),
    Case(values((5,), 3), numpy=gathered(), grad=[0], name="scalar"),
    Case(values((5, 3), []), numpy=gathered(), name="no_index"),
    Case(values((2, 0), [1, 0]), numpy=gathered(), name="empty_rows"),
    *[Case(values((50, width), [4, 0, 41, 2]), {"out_type": "bfloat16"}, numpy=gathered(),
           rtol=4e-3, dtypes=["float32"], name=f"rounded_{width}") for width in (1, 3, 40)],
    Case(values((2, 5, 3), [4, 1]), {"axis": 1}, numpy=gathered(1), grad=[0], name="axis"),
    Case(values((2, 5), [[4, 1]]), {"axis": -1}, numpy=gathered(-1), grad=[0], name="last"),
    Case(values((2, 5, 3), [[4, 1], [0, 0]]), {"axis": 1, "batch_dims": 1}, grad=[0],
         numpy=gathered(1, 1), name="batch"),
    Case(values((2, 3, 4), [[[3, 1]] * 3] * 2), {"axis": -1, "batch_dims": -1}, grad=[0],
         numpy=gathered(2, 2), name="batch_last"),
    Case(values((2, 3, 4), [[1], [0]]), {"axis": 2, "batch_dims": 1}, grad=[0],
         numpy=gathered(2, 1), name="batch_axis"),
    Case(given(np.arange(5) % 2 == 0, [4, 1]), numpy=gathered(), dtypes=[], name="bool"),
    Case(given(np.arange(5, dtype=np.int16), [4, 1]), numpy=gathered(), dtypes=[], name="int16"),
    Case(given([np.nan, np.inf, 1.0], [0, 1, 0]), numpy=gathered(), name="nan_inf"),
]  # fmt: skip


def added(axis: int = 0) -> Callable[..., np.ndarray]:
    def numpy(dy: np.ndarray, indices: np.ndarray, x: np.ndarray) -> np.ndarray:
        out = np.zeros_like(x)
        key = (slice(None),) * (axis % x.ndim) + (indices,)
        np.add.at(out, key, dy)
        return out

    return numpy


def three(*shapes_and_ints: Any) -> Inputs:
    """Random tensors for shapes (tuples), integer arrays for lists."""

    def make(rng: np.random.Generator) -> list[np.ndarray]:
        return [
            rng.normal(size=entry) if isinstance(entry, tuple) else np.asarray(entry, np.int64)
            for entry in shapes_and_ints
        ]

    return make


GATHER_GRAD = [
    Case(three((4, 3), [4, 0, 4, 2], (5, 3)), numpy=added(), grad=[0], dtypes=FLOATS, rtol=1e-2),
    Case(three((2, 2, 3), [4, 4], (2, 5, 3)), {"axis": 1}, numpy=added(1), grad=[0], name="axis"),
    Case(three((0, 3), [], (5, 3)), numpy=added(), name="none"),
    Case(given(np.int32([1, 2, 3]), [1, 1, 0], np.int32([0, 0, 0])), numpy=added(), dtypes=[],
         name="int"),
]

# --- GatherNd and scatters.


def gathered_nd(x: np.ndarray, indices: np.ndarray) -> np.ndarray:
    return x[tuple(np.moveaxis(indices, -1, 0))] if indices.shape[-1] else np.broadcast_to(
        x, indices.shape[:-1] + x.shape
    )


def gathered_nd_batch(x: np.ndarray, indices: np.ndarray) -> np.ndarray:
    return np.stack([gathered_nd(one, ids) for one, ids in zip(x, indices)])


def scattered(indices: np.ndarray, updates: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    out = np.zeros([int(n) for n in shape], updates.dtype)
    np.add.at(out, tuple(np.moveaxis(indices, -1, 0)), updates)
    return out


def scatter(how: str) -> Callable[..., np.ndarray]:
    def numpy(x: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> np.ndarray:
        out = x.copy()
        key = tuple(np.moveaxis(indices, -1, 0))
        if how == "update":
            out[key] = updates
        else:
            getattr(np, how).at(out, key, updates)
        return out

    return numpy


def tensor_scatter(how: str, repeated: bool = True) -> list[Case]:
    places = [[4], [0], [4]] if repeated else [[4], [0], [1]]
    cases = [
        Case(three((5, 3), places, (3, 3)), numpy=scatter(how), grad=[0, 2], name="rows"),
        Case(three((3, 4), [[0, 1], [2, 3]], (2,)), numpy=scatter(how), grad=[0, 2],
             name="elements"),
        Case(three((3, 4), np.zeros((0, 1), np.int64), (0, 4)), numpy=scatter(how), name="none"),
        Case(given(np.int32([1, 5, 3]), [[0], [2]], np.int32([4, -4])), numpy=scatter(how),
             dtypes=[],
             name="int32"),
        Case(three((5, 3), [[4], [0]], (2, 3)), numpy=scatter(how), dtypes=["float16", "bfloat16"],
             name="half", rtol=2e-2),
    ]  # fmt: skip
    if how == "update":
        cases.append(
            Case(given([True, False], [[0]], [False]), numpy=scatter(how), dtypes=[], name="bool")
        )
    return cases


# --- Segments.

FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "Sum": lambda rows: rows.sum(0),
    "Mean": lambda rows: rows.sum(0) / len(rows),
    "SqrtN": lambda rows: rows.sum(0) / np.sqrt(len(rows)),
    "Prod": lambda rows: rows.prod(0),
    "Max": lambda rows: rows.max(0),
    "Min": lambda rows: rows.min(0),
}


def lowest(kind: str, dtype: np.dtype) -> Any:
    info = np.iinfo(dtype) if dtype.kind in "iu" else np.finfo(dtype)
    return info.min if kind == "Max" else info.max


def segments(kind: str, sorted_ids: bool) -> Callable[..., np.ndarray]:
    def numpy(data: np.ndarray, ids: np.ndarray, num: Any = None) -> np.ndarray:
        rows = data.reshape(ids.size, *data.shape[ids.ndim :])
        flat = ids.reshape(-1)
        count = (int(flat[-1]) + 1 if flat.size else 0) if num is None else int(np.ravel(num)[0])
        empty: Any = 1 if kind == "Prod" else 0
        if kind in ("Max", "Min") and not sorted_ids:
            empty = lowest(kind, data.dtype)
        out = np.full((count, *rows.shape[1:]), empty, data.dtype)
        for segment in range(count):
            mine = rows[flat == segment]
            if len(mine):
                out[segment] = FUNCTIONS[kind](mine)
        return out

    return numpy


def sorted_cases(kind: str) -> list[Case]:
    function = segments(kind, True)
    return [
        Case(values((5, 3), [0, 0, 1, 3, 3]), numpy=function, grad=[0], dtypes=FLOATS, name="rows",
             rtol=2e-2 if kind != "Max" else None),
        Case(values((4,), [0, 1, 1, 1], dtype="int32"), numpy=function, grad=[0], name="vector"),
        Case(values((0, 3), []), numpy=function, name="empty"),
        Case(given(np.int64([3, 5, 7]), [0, 0, 2]), numpy=lambda x, i: function(x,
             i).astype(np.int64),
             dtypes=[], name="int64"),
    ]  # fmt: skip


def unsorted_cases(kind: str) -> list[Case]:
    function = segments(kind, False)

    def fixed(num: int) -> Callable[..., np.ndarray]:
        return lambda data, ids: function(data, ids, num)

    # The lowest number of a dtype, where a segment is empty, has no finite differences, and is not
    # bfloat16's.
    smooth = [] if kind in ("Max", "Min") else [0]
    return [
        Case(values((5, 3), [2, 0, -1, 2, 0]), {"num_segments": 4}, numpy=fixed(4), grad=smooth,
             dtypes=["float32", "float64"], name="rows"),
        Case(values((5, 3), [1, 0, -1, 1, 0]), {"num_segments": 2}, numpy=fixed(2), dtypes=FLOATS,
             rtol=2e-2, name="half"),
        Case(values((2, 3, 2), [[2, 0, 1], [0, 0, 2]], dtype="int32"), {"num_segments": 3},
             numpy=fixed(3), grad=[0], name="matrix_of_ids"),
        Case(values((4,), [1, 1, 0, 1], 2), numpy=function, grad=[0], name="computed"),
        Case(values((0, 3), []), {"num_segments": 2}, numpy=fixed(2), name="empty"),
    ]  # fmt: skip


def with_zeros(rng: np.random.Generator) -> list[np.ndarray]:
    data = rng.normal(size=(6, 2))
    data[0, 0] = data[3, 1] = data[4, 1] = 0
    return [data, np.array([0, 0, 1, 1, 1, 2])]


def with_ties(rng: np.random.Generator) -> list[np.ndarray]:
    return [np.array([[1.0, 2], [1, 5], [4, 4], [4, 4]]), np.array([[1.0, 5], [4, 4]]),
         np.array([0, 0, 1, 1])]


def shares(x: np.ndarray, extremes: np.ndarray, ids: np.ndarray) -> np.ndarray:
    equal = (x == extremes[ids]).astype(x.dtype)
    counts = np.zeros_like(extremes)
    np.add.at(counts, ids, equal)
    return equal / np.maximum(counts[ids], 1)


def sparse(kind: str) -> Callable[..., np.ndarray]:
    function = segments(kind, True)
    return lambda data, indices, ids, num=None: function(data[indices], ids, num)


def sparse_cases(kind: str) -> list[Case]:
    function = sparse(kind)
    return [
        Case(values((6, 3), [5, 0, 5, 1], [0, 0, 1, 3]), numpy=function, grad=[0], dtypes=FLOATS,
             rtol=2e-2, name="rows"),
        Case(values((6, 3), [5, 0, 5], [0, 0, 1]), {"num_segments": 4}, grad=[0], name="more",
             numpy=lambda data, indices, ids: function(data, indices, ids, 4)),
        Case(values((6,), [5, 2], [1, 1], 3, dtype="int32"), numpy=function, grad=[0],
             name="computed"),
        Case(values((6, 3), [], []), numpy=function, name="empty"),
    ]  # fmt: skip


def spread(combiner: str) -> Callable[..., np.ndarray]:
    def numpy(g: np.ndarray, ids: np.ndarray) -> np.ndarray:
        counts = np.bincount(ids[ids >= 0].reshape(-1), minlength=len(g)).astype(g.dtype)
        power = {"sum": 0.0, "mean": 1.0, "sqrt_n": 0.5}[combiner]
        scaled = g / np.maximum(counts, 1).reshape(-1, *[1] * (g.ndim - 1)) ** power
        out = scaled[np.maximum(ids, 0)]
        out[ids < 0] = 0
        return out.astype(g.dtype)

    return numpy


CASES: dict[str, list[Case]] = {
    "Gather": GATHER,
    "GatherGrad": GATHER_GRAD,
    "GatherNd": [
        Case(values((3, 4), [[0, 1], [2, 3], [0, 1]]), numpy=gathered_nd, grad=[0], dtypes=FLOATS),
        Case(values((3, 4), [[[2]], [[0]]], dtype="int32"), numpy=gathered_nd, grad=[0],
             name="rows"),
        Case(values((2, 3), np.zeros((2, 0))), numpy=gathered_nd, grad=[0], name="whole"),
        Case(values((3, 4), np.zeros((0, 2))), numpy=gathered_nd, name="none"),
        Case(values((2, 3, 4), [[[0, 1]], [[2, 3]]]), {"batch_dims": 1}, numpy=gathered_nd_batch,
             grad=[0], name="batch"),
        Case(given(np.eye(3) > 0, [[0, 0], [0, 1]]), numpy=gathered_nd, dtypes=[], name="bool"),
    ],
    "GatherNdGrad": [
        Case(three((3,), [[0, 1], [2, 3], [0, 1]], (3, 4)), grad=[0],
             numpy=lambda dy, i, x: scattered(i, dy, x.shape)),
        Case(three((2, 4), [[2], [0]], (3, 4)), grad=[0], name="rows",
             numpy=lambda dy, i, x: scattered(i, dy, x.shape)),
    ],
    "ScatterNd": [
        Case(three([[4], [0], [4]], (3, 2)), {"shape": [5, 2]}, grad=[1],
             numpy=lambda i, u: scattered(i, u, [5, 2])),
        Case(three([[0, 1], [2, 3]], (2,), [3, 4]), numpy=scattered, grad=[1], name="computed"),
        Case(given([[1], [1]], np.int32([3, 4])), {"shape": [3]}, dtypes=[], name="int32",
             numpy=lambda i, u: scattered(i, u, [3])),
    ],
    "TensorScatterAdd": tensor_scatter("add"),
    "TensorScatterSub": tensor_scatter("subtract"),
    "TensorScatterUpdate": tensor_scatter("update", repeated=False),
    "TensorScatterMax": tensor_scatter("maximum"),
    "TensorScatterMin": tensor_scatter("minimum"),
    **{f"Segment{kind}": sorted_cases(kind) for kind in ("Sum", "Mean", "Prod", "Max", "Min")},
    **{f"UnsortedSegment{kind}": unsorted_cases(kind) for kind in FUNCTIONS},
    **{f"SparseSegment{kind}": sparse_cases(kind) for kind in ("Sum", "Mean", "SqrtN")},
    "SegmentSpread": [
        Case(values((4, 3), [0, 2, 2, -1]), {"combiner": combiner}, numpy=spread(combiner),
             grad=[0],
             dtypes=FLOATS, rtol=2e-2, name=combiner)
        for combiner in ("sum", "mean", "sqrt_n")
    ],
    "SegmentTies": [Case(with_ties, numpy=shares)],
}  # fmt: skip
CASES["SegmentProd"].append(Case(with_zeros, numpy=segments("Prod", True), grad=[0], name="zeros"))
CASES["UnsortedSegmentProd"].append(
    Case(with_zeros, {"num_segments": 4}, numpy=lambda x, i: segments("Prod", False)(x, i, 4),
         grad=[0],
         name="zeros")
)  # fmt: skip
