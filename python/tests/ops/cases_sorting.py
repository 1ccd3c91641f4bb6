"""Cases of order, membership, running sums and matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from case import Case

FLOATS = ["float32", "float64", "float16", "bfloat16"]

#: Ops whose gradient is nothing, by definition.
NO_FLOW = {"InTopK", "SearchSorted", "Where"}

Inputs = Callable[[np.random.Generator], Sequence[Any]]


def given(*arrays: Any) -> Inputs:
    return lambda rng: [np.asarray(array) for array in arrays]


def distinct(*shape: int) -> Inputs:
    """Numbers that stay in order when rounded to 16 bits."""

    def make(rng: np.random.Generator) -> list[np.ndarray]:
        size = int(np.prod(shape))
        return [(rng.permutation(size).reshape(shape) - size / 2) / 8]

    return make


def top(k: int) -> Callable[..., Any]:
    def numpy(x: np.ndarray, *_: Any) -> Any:
        order = np.argsort(-x.astype(np.float64), axis=-1, kind="stable")[..., :k]
        return np.take_along_axis(x, order, -1), order.astype(np.int32)

    return numpy


def in_order(descending: bool = False) -> Callable[[np.ndarray], Any]:
    def numpy(x: np.ndarray) -> Any:
        if descending:
            order = np.argsort(-x.astype(np.float64), axis=-1, kind="stable")
        else:
            order = np.argsort(x, axis=-1, kind="stable")
        return np.take_along_axis(x, order, -1), order.astype(np.int32)

    return numpy


SORT = [
    Case(distinct(3, 7), numpy=in_order(), grad=[0], dtypes=FLOATS),
    Case(distinct(3, 7), {"descending": True}, numpy=in_order(True), grad=[0], name="descending"),
    Case(given([2, 1, 2, 1, 0]), numpy=in_order(), dtypes=[], name="ties"),
    Case(given([2, 1, 2, 1, 0]), {"descending": True}, numpy=in_order(True), dtypes=[],
         name="ties_down"),
    Case(given([1.0, np.nan, -np.inf, np.inf, 0.0]), numpy=in_order(), name="nan_inf"),
    Case(given(np.zeros((2, 0))), numpy=in_order(), name="empty"),
    Case(given(np.uint64([1 << 63, 5, 7])), numpy=in_order(), dtypes=[], name="uint64"),
]

TOP_K = [
    Case(distinct(3, 7), {"k": 3}, numpy=top(3), grad=[0], dtypes=FLOATS),
    Case(distinct(5), {"k": 5}, numpy=top(5), grad=[0], name="all"),
    Case(distinct(2, 3, 4), {"k": 1}, numpy=top(1), grad=[0], name="one"),
    Case(distinct(2, 4), {"k": 0}, numpy=top(0), name="none"),
    Case(given([3, 1, 3, 2]), {"k": 3}, numpy=top(3), dtypes=[], name="ties"),
    Case(lambda rng: [distinct(2, 4)(rng)[0], np.int32(2)], numpy=top(2), grad=[0],
         name="computed"),
]


def in_top(k: int) -> Callable[..., np.ndarray]:
    def numpy(predictions: np.ndarray, targets: np.ndarray) -> np.ndarray:
        inside = (targets >= 0) & (targets < predictions.shape[1])
        wanted = predictions[np.arange(len(targets)), np.where(inside, targets, 0)]
        finite = np.isfinite(predictions).all(1)
        return inside & finite & ((predictions > wanted[:, None]).sum(1) < k)

    return numpy


IN_TOP_K = [
    Case(given([[0.1, 0.4, 0.2], [0.5, 0.5, 0.1], [0.3, 0.2, 0.1]], [2, 1, 2]), {"k": 2},
         numpy=in_top(2)),
    Case(given([[0.1, 0.4], [0.1, np.nan], [0.3, np.inf]], [7, 0, 0]), {"k": 1}, numpy=in_top(1),
         name="nan_inf"),
    Case(given(np.zeros((0, 3)), np.zeros(0, np.int32)), {"k": 1}, numpy=in_top(1), name="empty"),
]  # fmt: skip


def searched(side: str, dtype: str = "int32") -> Callable[..., np.ndarray]:
    def numpy(rows: np.ndarray, values: np.ndarray) -> np.ndarray:
        flat = rows.reshape(-1, rows.shape[-1])
        wanted = values.reshape(-1, values.shape[-1])
        out = [np.searchsorted(row, mine, side) for row, mine in zip(flat, wanted)]
        return np.array(out, dtype).reshape(values.shape)

    return numpy


SEARCH = [
    Case(given([1.0, 3.0, 3.0, 7.0], [3.0, 0.0, 8.0]), numpy=searched("left"), dtypes=FLOATS),
    Case(given([1.0, 3.0, 3.0, 7.0], [3.0, 0.0, 8.0]), {"side": "right"}, numpy=searched("right"),
         name="right"),
    Case(given([[1, 2], [5, 9]], [[2, 0, 3], [5, 6, 10]]), {"out_type": "int64"}, dtypes=[],
         numpy=searched("left", "int64"), name="batch"),
]  # fmt: skip


def unique(dtype: str = "int32") -> Callable[[np.ndarray], Any]:
    def numpy(x: np.ndarray) -> Any:
        _, first, inverse, counts = np.unique(
            x, return_index=True, return_inverse=True, return_counts=True, equal_nan=False
        )
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        return x[first[order]], rank[inverse.reshape(-1)].astype(dtype), counts[order].astype(dtype)

    return numpy


UNIQUE = [
    Case(given([5, 3, 5, 5, -1, 3]), numpy=unique(), dtypes=[], name="int64"),
    Case(given(np.int32([5, 3, 5])), {"out_idx": "int64"}, numpy=unique("int64"), dtypes=[],
         name="idx64"),
    Case(given([2.5, 0.0, 2.5, -1.0]), numpy=unique(), dtypes=FLOATS, name="float"),
    Case(given([True, False, True]), numpy=unique(), dtypes=[], name="bool"),
    Case(given(np.zeros(0, np.int64)), numpy=unique(), dtypes=[], name="empty"),
]


def counted(minlength: int = 0, maxlength: int | None = None) -> Callable[..., np.ndarray]:
    def numpy(x: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
        flat = x.reshape(-1)
        weight = None if weights is None else weights.reshape(-1)
        out = np.bincount(flat, weight, minlength)[:maxlength]
        return out.astype(np.int32 if weights is None else weights.dtype)

    return numpy


BINCOUNT = [
    Case(given([1, 3, 1, 0]), numpy=counted(), dtypes=[]),
    Case(given(np.int32([[1, 3], [1, 0]])), {"minlength": 6}, numpy=counted(6), dtypes=[],
         name="least"),
    Case(given([1, 3, 1, 9]), {"maxlength": 3}, numpy=counted(0, 3), dtypes=[], name="most"),
    Case(given(np.zeros(0, np.int64)), {"minlength": 2}, numpy=counted(2), dtypes=[], name="empty"),
    Case(given([1, 3, 1], [0.5, 2.0, 0.25]), numpy=counted(), name="weights"),
    Case(given([1, 0, 1]), {"dtype": "float32"}, numpy=lambda x: np.float32([1, 2]), dtypes=[],
         name="float"),
]  # fmt: skip

# --- Running sums.


def running(product: bool, axis: int, exclusive: bool, reverse: bool) -> Callable[[Any], Any]:
    def numpy(x: np.ndarray) -> np.ndarray:
        y = np.flip(x, axis) if reverse else x
        y = np.moveaxis(y, axis, 0)
        done = np.cumprod(y, 0) if product else np.cumsum(y, 0)
        if exclusive:
            first = np.full_like(y[:1], 1 if product else 0)
            done = np.concatenate([first, done[:-1]]) if len(y) else done
        done = np.moveaxis(done, 0, axis)
        return (np.flip(done, axis) if reverse else done).astype(x.dtype)

    return numpy


def cumulative(product: bool) -> list[Case]:
    def positive(*shape: int) -> Inputs:
        return lambda rng: [rng.uniform(0.5, 1.5, shape)]

    cases = []
    for exclusive in (False, True):
        for reverse in (False, True):
            attrs = {"axis": 1, "exclusive": exclusive, "reverse": reverse}
            name = f"{'exclusive' if exclusive else ''}{'reverse' if reverse else ''}"
            function = running(product, 1, exclusive, reverse)
            cases.append(Case(positive(2, 4, 3), attrs, numpy=function, grad=[0], name=name))
    plain = running(product, 0, False, False)
    cases += [
        Case(positive(5), {"axis": -1}, numpy=plain, grad=[0], name="vector",
             dtypes=["float16", "bfloat16"], rtol=5e-2),
        Case(positive(0, 3), {"axis": 0}, numpy=plain, name="empty"),
        Case(given([1, 2, 3]), {"axis": 0}, numpy=plain, dtypes=[], name="int64"),
        Case(given([1.0, np.inf, np.nan, 2.0]), {"axis": 0}, numpy=plain, name="nan_inf"),
    ]  # fmt: skip
    return cases


# --- Partition and stitch.


def partitioned(num: int) -> Callable[..., Any]:
    return lambda x, ids: tuple(x[ids == i] for i in range(num))


def stitched(*inputs: np.ndarray) -> np.ndarray:
    n = len(inputs) // 2
    ids = [i.reshape(-1) for i in inputs[:n]]
    size = max([int(i.max()) + 1 for i in ids if i.size], default=0)
    row = inputs[n].shape[inputs[0].ndim :]
    out = np.zeros((size, *row), inputs[n].dtype)
    for index, data in zip(ids, inputs[n:]):
        out[index] = data.reshape(-1, *row)
    return out


def stitch_inputs(rng: np.random.Generator) -> list[np.ndarray]:
    return [
        np.array([0, 3]), np.array([[1], [2]]), rng.normal(size=(2, 3)), rng.normal(size=(2, 1, 3))
    ]  # fmt: skip


def normal(*shapes: tuple[int, ...]) -> Inputs:
    return lambda rng: [rng.normal(size=shape) for shape in shapes]


def parted(shape: tuple[int, ...], ids: Any) -> Inputs:
    return lambda rng: [rng.normal(size=shape), np.asarray(ids)]


# --- Matrices.


def on_diagonal(x: np.ndarray) -> np.ndarray:
    return np.eye(x.shape[-1], dtype=x.dtype) * x[..., None, :]


def diagonal(x: np.ndarray) -> np.ndarray:
    return np.diagonal(x, axis1=-2, axis2=-1)


def onto(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
    out = np.zeros_like(x)
    places = np.arange(dy.shape[-1])
    out[..., places, places] = dy
    return out


def band(lower: int, upper: int) -> Callable[[np.ndarray], np.ndarray]:
    def numpy(x: np.ndarray) -> np.ndarray:
        i = np.arange(x.shape[-2])[:, None]
        j = np.arange(x.shape[-1])[None, :]
        kept = ((lower < 0) | (i - j <= lower)) & ((upper < 0) | (j - i <= upper))
        return np.where(kept, x, np.zeros((), x.dtype))

    return numpy


CASES: dict[str, list[Case]] = {
    "Sort": SORT,
    "TopK": TOP_K,
    "InTopK": IN_TOP_K,
    "SearchSorted": SEARCH,
    "UniqueWithCounts": UNIQUE,
    "Bincount": BINCOUNT,
    "Where": [
        Case(given([[True, False], [True, True]]), numpy=np.argwhere, dtypes=[], name="bool"),
        Case(given([0.0, -0.0, 2.0, np.nan]), numpy=np.argwhere, dtypes=FLOATS, name="float"),
        Case(given(np.zeros((2, 0))), numpy=np.argwhere, name="empty"),
        Case(given(True), numpy=lambda x: np.zeros((1, 0), np.int64), dtypes=[], name="scalar"),
        Case(given([[0, 3, 0]]), numpy=np.argwhere, dtypes=[], name="int64"),
    ],
    "Cumsum": cumulative(False),
    "Cumprod": cumulative(True),
    "DynamicPartition": [
        Case(parted((4, 3), [1, 0, 1, 2]), {"num_partitions": 3}, numpy=partitioned(3), grad=[0],
             dtypes=FLOATS),
        Case(parted((4,), np.int32([1, 1, 1, 1])), {"num_partitions": 2}, numpy=partitioned(2),
             grad=[0],
             name="one_empty"),
        Case(parted((2, 2), [[0, 1], [1, 0]]), {"num_partitions": 2}, numpy=partitioned(2),
             grad=[0],
             name="matrix"),
        Case(parted((0, 3), np.zeros(0, np.int64)), {"num_partitions": 2}, numpy=partitioned(2),
             name="empty"),
    ],
    "DynamicStitch": [
        Case(stitch_inputs, numpy=stitched, grad=[2, 3], dtypes=FLOATS),
        Case(lambda rng: [np.int32([2, 0]), rng.normal(size=2)], numpy=stitched, grad=[1],
             name="hole"),
        Case(lambda rng: [np.int32([0, 1]), np.int32([1]), np.int64([5, 6]), np.int64([7])],
             numpy=stitched, dtypes=[], name="last_wins"),
    ],
    "MatrixDiag": [
        Case(normal((3,)), numpy=on_diagonal, grad=[0], dtypes=FLOATS),
        Case(normal((2, 3)), numpy=on_diagonal, grad=[0], name="batch"),
        Case(normal((0,)), numpy=on_diagonal, name="empty"),
    ],
    "MatrixDiagPart": [
        Case(normal((3, 3)), numpy=diagonal, grad=[0], dtypes=FLOATS),
        Case(normal((2, 4, 3)), numpy=diagonal, grad=[0], name="tall"),
        Case(normal((2, 3, 4)), numpy=diagonal, grad=[0], name="wide"),
        Case(given(np.arange(9).reshape(3, 3)), numpy=diagonal, dtypes=[], name="int64"),
    ],
    "MatrixDiagPartGrad": [Case(normal((2, 3), (2, 3, 4)), numpy=onto, grad=[0])],
    "MatrixBandPart": [
        Case(normal((4, 5)), {"lower": lower, "upper": upper}, numpy=band(lower, upper), grad=[0],
             name=f"{lower}_{upper}")
        for lower, upper in [(-1, 0), (0, -1), (1, 2), (0, 0), (-1, -1), (9, 9)]
    ] + [Case(normal((2, 3, 3)), {"lower": 1, "upper": 0}, numpy=band(1, 0), grad=[0],
         dtypes=FLOATS,
              name="batch")],
}  # fmt: skip
