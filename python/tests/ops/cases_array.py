"""Cases of shapes, slices, joining, cutting and repeating."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from case import Case

FLOATS = ["float32", "float64", "float16", "bfloat16"]

#: Ops whose gradient is nothing, by definition.
NO_FLOW = {"Shape", "Size", "Rank", "Range", "OneHot"}

Inputs = Callable[[np.random.Generator], Sequence[Any]]


def normal(*shapes: tuple[int, ...]) -> Inputs:
    return lambda rng: [rng.normal(size=shape) for shape in shapes]


def given(*values: Any) -> Inputs:
    return lambda rng: [np.asarray(value) for value in values]


def with_ints(shape: tuple[int, ...], *ints: Any, dtype: str = "int64") -> Inputs:
    """A random tensor, and arguments that are computed."""
    return lambda rng: [rng.normal(size=shape), *(np.asarray(i, dtype) for i in ints)]


def permuted(shape: tuple[int, ...], dtype: str) -> Inputs:
    def make(rng: np.random.Generator) -> list[np.ndarray]:
        size = int(np.prod(shape))
        values = rng.permutation(size).reshape(shape)
        return [values % 2 == 0 if dtype == "bool" else values.astype(dtype)]

    return make


def moves(
    shapes: Sequence[tuple[int, ...]],
    numpy: Callable[..., Any],
    attrs: Mapping[str, Any],
    name: str = "",
    torch: Callable[..., Any] | None = None,
    grad: bool = True,
) -> list[Case]:
    """An op of one input that moves elements: every shape with a gradient, the first in every
    dtype. PyTorch is given where it has the same."""
    first = shapes[0]
    out = [
        Case(
            normal(shape),
            attrs,
            numpy=numpy,
            torch=torch,
            grad=[0] if grad and np.prod(shape) else [],
            name=f"{name}{list(shape)}",
            dtypes=FLOATS if shape == first else ["float32"],
        )
        for shape in shapes
    ]
    for dtype in ("int8", "uint16", "int32", "int64", "uint64", "bool"):
        case = Case(permuted(first, dtype), attrs, numpy=numpy, dtypes=[], name=f"{name}{dtype}")
        out.append(case)
    special = np.array([np.nan, np.inf, -np.inf, -0.0])
    resized = np.resize(special, first)
    out.append(Case(given(resized), attrs, numpy=numpy, dtypes=["float32"], name=f"{name}special"))
    return out


# --- Questions.


def questions(numpy: Callable[[np.ndarray], Any]) -> list[Case]:
    shapes: list[tuple[int, ...]] = [(2, 3, 4), (), (0, 5), (7,)]
    typed = [
        Case(normal(shape), {"out_type": "int64"}, numpy=lambda x: np.int64(numpy(x)),
             name=f"64{shape}")
        for shape in shapes
    ]
    plain = [Case(normal(shape), numpy=lambda x: np.int32(numpy(x)),
         name=f"{shape}") for shape in shapes]
    return plain + typed


# --- Views.


def to_shape(*shape: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: x.reshape(shape)


def computed_shape(x: np.ndarray, shape: np.ndarray) -> np.ndarray:
    return x.reshape([int(extent) for extent in shape])


RESHAPE = [
    *moves([(2, 3, 4)], to_shape(6, 4), {"shape": [6, 4]}, torch=lambda x: x.reshape(6, 4)),
    *moves([(2, 6)], to_shape(3, -1), {"shape": [3, -1]}, name="rest"),
    Case(normal((2, 6)), {"shape": [0, 2, -1]}, numpy=to_shape(2, 2, 3), grad=[0], name="copied"),
    Case(normal((0, 4)), {"shape": [0, 2, 2]}, numpy=to_shape(0, 2, 2), name="copied_empty"),
    Case(normal((0, 4)), {"shape": [2, 0], "allow_zero": True}, numpy=to_shape(2, 0), name="zero"),
    Case(normal(()), {"shape": [1, 1]}, numpy=to_shape(1, 1), grad=[0], name="scalar"),
    Case(normal((1, 1)), {"shape": []}, numpy=to_shape(), grad=[0], name="to_scalar"),
    Case(with_ints((2, 6), [4, -1]), numpy=computed_shape, grad=[0], name="computed"),
    Case(with_ints((2, 6), [4, 3], dtype="int32"), numpy=computed_shape, grad=[0],
         name="computed32"),
]

SQUEEZE = [
    Case(normal((1, 3, 1)), {"axes": []}, numpy=np.squeeze, grad=[0], name="all"),
    Case(normal((1, 3, 1)), {"axes": [0]}, numpy=lambda x: np.squeeze(x, 0), grad=[0],
         name="first"),
    Case(normal((1, 3, 1)), {"axes": [-1, 0]}, numpy=np.squeeze, grad=[0], name="two"),
    Case(normal((2, 0, 1)), {"axes": [2]}, numpy=lambda x: np.squeeze(x, 2), name="empty"),
    Case(permuted((1, 3), "bool"), {"axes": [0]}, numpy=lambda x: x[0], dtypes=[], name="bool"),
]


def ensured(x: np.ndarray) -> np.ndarray:
    return x


# --- Values of a given shape.


def broadcast(x: np.ndarray, shape: np.ndarray) -> np.ndarray:
    return np.broadcast_to(x, [int(extent) for extent in shape])


BROADCAST_TO = [
    *moves([(3, 1)], lambda x: np.broadcast_to(x, (2, 3, 4)), {"shape": [2, 3, 4]}),
    Case(normal(()), {"shape": [2, 2]}, numpy=lambda x: np.full((2, 2), x), grad=[0],
         name="scalar"),
    Case(normal((1, 3)), {"shape": [0, 3]}, numpy=lambda x: np.zeros((0, 3), x.dtype),
         name="empty"),
    Case(normal((2, 1, 3)), {"shape": [2, 4, 3]}, grad=[0], name="middle",
         numpy=lambda x: np.broadcast_to(x, (2, 4, 3)), torch=lambda x: x.expand(2, 4, 3)),
    Case(with_ints((3, 1), [2, 3, 4]), numpy=broadcast, grad=[0], name="computed"),
]  # fmt: skip

FILL = [
    Case(normal(()), {"shape": [2, 3]}, numpy=lambda x: np.full((2, 3), x), grad=[0],
         dtypes=FLOATS),
    Case(normal(()), {"shape": []}, numpy=lambda x: x, grad=[0], name="scalar"),
    Case(normal(()), {"shape": [0, 3]}, numpy=lambda x: np.full((0, 3), x), name="empty"),
    Case(given(True), {"shape": [5]}, numpy=lambda x: np.full(5, x), dtypes=[], name="bool"),
    Case(given(np.int64(1 << 60)), {"shape": [5]}, numpy=lambda x: np.full(5, x), dtypes=[],
         name="int64"),
    Case(with_ints((), [2, 3]), numpy=lambda x, s: np.full(s, x), grad=[0], name="computed"),
]

RANGE = [
    Case(given(np.int32(0), np.int32(7), np.int32(1)), numpy=np.arange, dtypes=[], name="int32"),
    Case(given(np.int64(9), np.int64(-3), np.int64(-4)), numpy=np.arange, dtypes=[], name="down"),
    Case(given(np.int64(3), np.int64(3), np.int64(1)), numpy=np.arange, dtypes=[], name="empty"),
    Case(given(np.int8(-5), np.int8(5), np.int8(3)), numpy=np.arange, dtypes=[], name="int8"),
    Case(given(0.0, 1.0, 0.25), numpy=np.arange, dtypes=["float32", "float64"], name="float"),
    Case(given(1.0, -2.0, -0.75), numpy=np.arange, dtypes=["float32", "float64"], name="falling"),
]


def one_hot(depth: int, axis: int = -1) -> Callable[..., np.ndarray]:
    def numpy(indices: np.ndarray, on: np.ndarray, off: np.ndarray, *_: Any) -> np.ndarray:
        places = np.expand_dims(indices, axis if axis >= 0 else indices.ndim)
        shape = [1] * (indices.ndim + 1)
        shape[axis] = depth
        return np.where(places == np.arange(depth).reshape(shape), on, off)

    return numpy


ONE_HOT = [
    Case(given([0, 2, -1, 5], np.float32(1), np.float32(0)), {"depth": 3}, numpy=one_hot(3)),
    Case(given([[0, 2], [1, 1]], 5.0, -1.0), {"depth": 3, "axis": 0}, numpy=one_hot(3, 0),
         name="first"),
    Case(given([[0, 2], [1, 1]], 5.0, -1.0), {"depth": 3, "axis": 1}, numpy=one_hot(3, 1),
         name="mid"),
    Case(given(1, True, False), {"depth": 3}, numpy=one_hot(3), dtypes=[], name="bool"),
    Case(given(np.int32([1, 0]), np.int8(7), np.int8(2)), {"depth": 2}, numpy=one_hot(2), dtypes=[],
         name="int8"),
    Case(given([1, 0], 1.0, 0.0), {"depth": 0}, numpy=one_hot(0), name="none"),
    Case(given([1, 0], 1.0, 0.0, np.int32(3)), numpy=one_hot(3), name="computed"),
]  # fmt: skip

# --- Slices.


def sliced(key: Any, attrs: Mapping[str, Any], shape: tuple[int, ...], name: str) -> Case:
    return Case(normal(shape), attrs, numpy=lambda x: x[key], grad=[0], name=name)


STRIDED = {
    "begin": [1, 0, 0, -1, 0], "end": [0, 0, 0, 0, 0], "strides": [1, 1, 1, 1, -1],
    "begin_mask": 16, "end_mask": 17, "ellipsis_mask": 2, "new_axis_mask": 4, "shrink_axis_mask": 8,
}  # fmt: skip
STRIDED_KEY = np.index_exp[1:, ..., None, -1, ::-1]


def terms(begin: Any, end: Any, strides: Any, **masks: int) -> dict[str, Any]:
    return {"begin": begin, "end": end, "strides": strides, **masks}


STRIDED_SLICE = [
    *moves([(3, 2, 4, 5), (2, 4, 5)], lambda x: x[STRIDED_KEY], STRIDED, name="all_kinds"),
    sliced(np.index_exp[1:5:2], terms([1], [5], [2]), (7, 3), "rows"),
    sliced(np.index_exp[5:1:-2], terms([5], [1], [-2]), (7, 3), "back"),
    sliced(np.index_exp[-100:100], terms([-100], [100], [1]), (4,), "far"),
    sliced(np.index_exp[3:1], terms([3], [1], [1]), (4,), "none"),
    sliced(np.index_exp[2], terms([2], [3], [1], shrink_axis_mask=1), (4, 2), "index"),
    sliced(np.index_exp[:, ::3], terms([0, 0], [0, 0], [1, 3], begin_mask=3, end_mask=3), (2, 7),
         "skip"),
    sliced((), terms([], [], []), (), "scalar"),
    sliced(np.index_exp[None], terms([0], [0], [1], new_axis_mask=1), (), "scalar_axis"),
    Case(
        with_ints((5, 4), [1, 0], [4, 3], [2, 1]),
        numpy=lambda x, b, e, s: x[b[0] : e[0] : s[0], b[1] : e[1] : s[1]],
        grad=[0],
        name="computed",
    ),
    Case(
        with_ints((5, 4), [2], [0], [1], dtype="int32"),
        {"shrink_axis_mask": 1},
        numpy=lambda x, b, e, s: x[b[0]],
        grad=[0],
        name="computed_index",
    ),
]


def into_zeros(key: Any) -> Callable[..., np.ndarray]:
    def numpy(dy: np.ndarray, x: np.ndarray, *_: Any) -> np.ndarray:
        out = np.zeros_like(x)
        out[key] = dy
        return out

    return numpy


def cut(begin: Sequence[int], size: Sequence[int]) -> Callable[..., np.ndarray]:
    key = tuple(slice(b, None if s == -1 else b + s) for b, s in zip(begin, size))
    return lambda x, *_: x[key]


SLICE = [
    *moves([(4, 5)], cut([1, 2], [2, -1]), {"begin": [1, 2], "size": [2, -1]}),
    Case(normal((4, 5)), {"begin": [0, 5], "size": [4, 0]}, numpy=cut([0, 5], [4, 0]), name="none"),
    Case(with_ints((4, 5), [1, 2], [2, 3]), numpy=cut([1, 2], [2, 3]), grad=[0], name="computed"),
]


def padded(pads: Any, **how: Any) -> Callable[..., np.ndarray]:
    return lambda x, *_: np.pad(x, pads, **how)


def filled(pads: Any) -> Callable[..., np.ndarray]:
    return lambda x, value, *_: np.pad(x, pads, constant_values=value)


PAD = [
    Case(normal((2, 3), ()), {"paddings": [1, 2, 0, 3]}, numpy=filled([[1, 2], [0, 3]]), grad=[0,
         1],
         dtypes=FLOATS),
    Case(normal((0, 3), ()), {"paddings": [1, 0, 0, 0]}, numpy=filled([[1, 0], [0, 0]]),
         name="empty"),
    Case(given(np.arange(4), np.int64(9)), {"paddings": [1, 1]}, numpy=filled([1, 1]), dtypes=[],
         name="int64"),
    Case(given([True, False], False), {"paddings": [1, 1]}, numpy=filled([1, 1]), dtypes=[],
         name="bool"),
    Case(normal((), ()), {"paddings": []}, numpy=lambda x, v: x, grad=[0, 1], name="scalar"),
    Case(lambda rng: [rng.normal(size=(2, 3)), np.float64(5), np.array([[1, 2], [0, 3]])],
         numpy=filled([[1, 2], [0, 3]]), grad=[0, 1], name="computed"),
]  # fmt: skip

MIRROR = [
    *moves([(3, 4)], padded([[2, 1], [0, 3]], mode="reflect"),
           {"paddings": [2, 1, 0, 3], "mode": "reflect"}, name="reflect"),
    *moves([(3, 4)], padded([[2, 3], [4, 0]], mode="symmetric"),
           {"paddings": [2, 3, 4, 0], "mode": "symmetric"}, name="symmetric"),
    Case(normal((2, 3, 2)), {"paddings": [0, 0, 1, 1, 0, 0], "mode": "reflect"}, grad=[0],
         numpy=padded([[0, 0], [1, 1], [0, 0]], mode="reflect"), name="inner"),
    Case(with_ints((3, 4), [[2, 1], [0, 3]]), {"mode": "reflect"}, grad=[0],
         numpy=padded([[2, 1], [0, 3]], mode="reflect"), name="computed"),
]  # fmt: skip


def folded(pads: Any, mode: str) -> Callable[..., np.ndarray]:
    """The transpose of a mirror pad: dy summed where the padded value's indices come from."""

    def numpy(dy: np.ndarray, x: np.ndarray, *_: Any) -> np.ndarray:
        places = np.pad(np.arange(x.size).reshape(x.shape), pads, mode=mode)
        out = np.zeros(x.size, dy.dtype)
        np.add.at(out, places.reshape(-1), dy.reshape(-1))
        return out.reshape(x.shape)

    return numpy


# --- Joining and cutting.


def joined(axis: int) -> Callable[..., np.ndarray]:
    return lambda *xs: np.concatenate(xs, axis)


CONCAT = [
    Case(normal((2, 3), (4, 3), (1, 3)), {"axis": 0}, numpy=joined(0), grad=[0, 1, 2],
         dtypes=FLOATS,
         name="rows"),
    Case(normal((2, 3), (2, 1)), {"axis": -1}, numpy=joined(-1), grad=[0, 1], name="columns"),
    Case(normal((2, 0, 3), (2, 2, 3)), {"axis": 1}, numpy=joined(1), name="empty"),
    Case(normal((2, 3)), {"axis": 1}, numpy=joined(1), grad=[0], name="one"),
    Case(given(np.arange(3), np.arange(4)), {"axis": 0}, numpy=joined(0), dtypes=[], name="int64"),
    Case(given([True], [False, True]), {"axis": 0}, numpy=joined(0), dtypes=[], name="bool"),
]  # fmt: skip


def parts_like(axis: int) -> Callable[..., Any]:
    def numpy(dy: np.ndarray, *xs: np.ndarray) -> Any:
        ends = np.cumsum([x.shape[axis] for x in xs])[:-1]
        return tuple(np.split(dy, ends, axis))

    return numpy


def split(parts: Any, axis: int) -> Callable[[np.ndarray], Any]:
    return lambda x: tuple(np.split(x, parts, axis))


def stacked(axis: int) -> Callable[..., np.ndarray]:
    return lambda *xs: np.stack(xs, axis)


def unstacked(axis: int) -> Callable[[np.ndarray], Any]:
    return lambda x: tuple(np.moveaxis(x, axis, 0))


STACK = [
    Case(normal((2, 3), (2, 3)), {"axis": 0}, numpy=stacked(0), grad=[0, 1], dtypes=FLOATS),
    Case(normal((2, 3), (2, 3), (2, 3)), {"axis": 1}, numpy=stacked(1), grad=[0, 1, 2],
         name="middle"),
    Case(normal((2,), (2,)), {"axis": -1}, numpy=stacked(-1), grad=[0, 1], name="last"),
    Case(normal((), (), ()), {"axis": 0}, numpy=stacked(0), grad=[0, 1, 2], name="scalars"),
    Case(normal((0, 2), (0, 2)), {"axis": 0}, numpy=stacked(0), name="empty"),
    Case(given([True], [False]), {"axis": 0}, numpy=stacked(0), dtypes=[], name="bool"),
]

# --- Repeating and moving.


def tiled(*multiples: int) -> Callable[..., np.ndarray]:
    return lambda x, *_: np.tile(x, multiples)


TILE = [
    *moves([(2, 3)], tiled(2, 3), {"multiples": [2, 3]}, torch=lambda x: x.tile(2, 3)),
    *moves([(2, 3)], tiled(3, 1), {"multiples": [3, 1]}, name="rows"),
    Case(normal((2, 3)), {"multiples": [1, 1]}, numpy=tiled(1, 1), grad=[0], name="once"),
    Case(normal((2, 3)), {"multiples": [0, 2]}, numpy=tiled(0, 2), name="never"),
    Case(normal(()), {"multiples": []}, numpy=lambda x: x, grad=[0], name="scalar"),
    Case(with_ints((2, 3), [1, 2]), numpy=tiled(1, 2), grad=[0], name="computed"),
]


def untiled(dy: np.ndarray, x: np.ndarray, *_: Any) -> np.ndarray:
    out = np.zeros(x.shape, dy.dtype)
    for index in np.ndindex(*dy.shape):
        out[tuple(i % n for i, n in zip(index, x.shape))] += dy[index]
    return out


def turned(*axes: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: np.flip(x, axes)


def rolled(shift: Any, axis: Any) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: np.roll(x, shift, axis)


def permute(*perm: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: np.transpose(x, perm)


def expand(axis: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: np.expand_dims(x, axis)


CASES: dict[str, list[Case]] = {
    "Shape": questions(lambda x: x.shape),
    "Size": questions(lambda x: x.size),
    "Rank": [Case(normal(s), numpy=lambda x: np.int32(x.ndim), name=f"{s}") for s in [(2, 3), (),
         (0,)]],
    "Reshape": RESHAPE,
    "ReshapeLike": [
        Case(normal((2, 6), (3, 4)), numpy=lambda x, y: x.reshape(y.shape), grad=[0],
             dtypes=FLOATS),
        Case(normal((1,), ()), numpy=lambda x, y: x.reshape(()), grad=[0], name="scalar"),
    ],
    "ExpandDims": [
        *moves([(2, 3), (0, 2), ()], expand(0), {"axis": 0}),
        *moves([(2, 3)], expand(-1), {"axis": -1}, name="last"),
        *moves([(2, 3)], expand(1), {"axis": -2}, name="from_end"),
    ],
    "Squeeze": SQUEEZE,
    "EnsureShape": [
        Case(normal((2, 3)), {"shape": [2, 3]}, numpy=ensured, grad=[0]),
        Case(normal((2, 3)), {"shape": [-1, 3]}, numpy=ensured, grad=[0], name="partly"),
    ],
    "Transpose": [
        *moves([(2, 3, 4), (0, 3, 4), (17, 33, 5)], permute(2, 0, 1), {"perm": [2, 0, 1]},
               torch=lambda x: x.permute(2, 0, 1)),
        *moves([(2, 3, 4), (5,), ()], np.transpose, {"perm": []}, name="reversed"),
        *moves([(2, 3, 4, 5)], permute(0, 3, 1, 2), {"perm": [0, -1, 1, 2]}, name="channels"),
        *moves([(70, 90)], permute(1, 0), {"perm": [1, 0]}, name="matrix", grad=False),
    ],
    "BroadcastTo": BROADCAST_TO,
    "Fill": FILL,
    "Range": RANGE,
    "OneHot": ONE_HOT,
    "StridedSlice": STRIDED_SLICE,
    "StridedSliceGrad": [
        Case(normal((2, 2, 4, 1, 5), (3, 2, 4, 6, 5)), STRIDED, numpy=into_zeros(STRIDED_KEY),
             grad=[0]),
        Case(lambda rng: [rng.normal(size=2), rng.normal(size=5), np.array([4]), np.array([0]),
                          np.array([-2])],
             numpy=into_zeros(np.index_exp[4:0:-2]), grad=[0], name="computed"),
    ],
    "Slice": SLICE,
    "SliceGrad": [
        Case(normal((2, 3), (4, 5)), {"begin": [1, 2]}, numpy=into_zeros(np.index_exp[1:3, 2:5]),
             grad=[0]),
        Case(lambda rng: [rng.normal(size=2), rng.normal(size=5), np.array([1])],
             numpy=into_zeros(np.index_exp[1:3]), grad=[0], name="computed"),
    ],
    "Pad": PAD,
    "MirrorPad": MIRROR,
    "MirrorPadGrad": [
        Case(normal((6, 7), (3, 4)), {"paddings": [2, 1, 0, 3], "mode": "reflect"}, grad=[0],
             numpy=folded([[2, 1], [0, 3]], "reflect")),
        Case(normal((8, 8), (3, 4)), {"paddings": [2, 3, 4, 0], "mode": "symmetric"}, grad=[0],
             numpy=folded([[2, 3], [4, 0]], "symmetric"), name="symmetric"),
    ],
    "Concat": CONCAT,
    "ConcatGrad": [
        Case(normal((7, 3), (4, 3), (3, 3)), {"axis": 0}, numpy=parts_like(0), grad=[0]),
        Case(normal((2, 4), (2, 1), (2, 0), (2, 3)), {"axis": -1}, numpy=parts_like(-1), grad=[0],
             name="last"),
    ],
    "Split": [
        *moves([(6, 2)], split(3, 0), {"axis": 0, "num": 3}),
        *moves([(2, 6)], split(2, 1), {"axis": -1, "num": 2}, name="last"),
        Case(normal((0, 2)), {"axis": 0, "num": 2}, numpy=split(2, 0), name="empty"),
        Case(normal((3, 2)), {"axis": 0, "num": 1}, numpy=split(1, 0), grad=[0], name="one"),
    ],
    "SplitV": [
        *moves([(6, 2)], split([1, 3], 0), {"axis": 0, "sizes": [1, 2, 3]}),
        *moves([(2, 6)], split([1, 5], 1), {"axis": 1, "sizes": [1, -1, 1]}, name="rest"),
        Case(normal((4, 2)), {"axis": 0, "sizes": [0, 4]}, numpy=split([0], 0), grad=[0],
             name="empty"),
    ],
    "Stack": STACK,
    "Unstack": [
        *moves([(3, 2)], unstacked(0), {"axis": 0, "num": 3}),
        *moves([(2, 3, 2)], unstacked(1), {"axis": -2, "num": 3}, name="middle"),
        Case(normal((1,)), {"axis": 0, "num": 1}, numpy=unstacked(0), grad=[0], name="one"),
    ],
    "Tile": TILE,
    "TileGrad": [
        Case(normal((4, 9), (2, 3)), {"multiples": [2, 3]}, numpy=untiled, grad=[0]),
        Case(lambda rng: [rng.normal(size=6), rng.normal(size=3), np.array([2])], numpy=untiled,
             grad=[0], name="computed"),
    ],
    "RepeatIndices": [
        Case(given(repeats), numpy=lambda r: np.repeat(np.arange(len(r)), r), dtypes=[], name=name)
        for name, repeats in {
            "int64": np.int64([2, 0, 3]), "int32": np.int32([1, 1]), "none": np.int64([0, 0]),
            "empty": np.zeros(0, np.int64),
        }.items()
    ],
    "Reverse": [
        *moves([(2, 3, 4), (0, 3)], turned(0), {"axes": [0]}, name="first"),
        *moves([(2, 3, 4)], turned(0, 2), {"axes": [-1, 0]}, name="two"),
        *moves([(2, 3)], lambda x: x, {"axes": []}, name="none"),
    ],
    "Roll": [
        *moves([(5, 3), (0, 3)], rolled(2, 0), {"shift": [2], "axes": [0]}),
        *moves([(5, 3)], rolled([-7, 1], [0, 1]), {"shift": [-7, 1], "axes": [0, -1]}, name="two"),
        *moves([(5, 3)], rolled([1, 1], [0, 0]), {"shift": [1, 1], "axes": [0, 0]}, name="twice"),
    ],
}  # fmt: skip
