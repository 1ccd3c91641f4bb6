"""How ops on arrays are said in ONNX: shapes, slices, gathers, segments, images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ._onnx_graph import Op, Rule
from .dtypes import name_of

RULES: dict[str, Rule] = {}

_LAST = int(np.iinfo(np.int64).max)
_FIRST = int(np.iinfo(np.int64).min)


# ---- shapes --------------------------------------------------------------------------------------


def _reshape(x: Op) -> str:
    if "shape" in x.attrs:
        shape = x.attrs["shape"]
        allow = x.attrs.get("allow_zero", False) and 0 in shape
        return x.emit("Reshape", x.inputs[0], x.ints(shape), allowzero=int(allow))
    return x.emit("Reshape", x.inputs[0], x.ints_of("shape", 1), allowzero=0)


def _shape_as(x: Op, dtype: Any, value: str) -> str:
    return value if name_of(dtype) == "int64" else x.cast(value, dtype)


def _like(value: int) -> Rule:
    return lambda x: x.emit("Expand", x.number(value), x.emit("Shape", x.inputs[0]))


def _one_hot(x: Op) -> str:
    """By comparison: ONNX's OneHot takes negative indices for places from the end."""
    indices, on, off = x.inputs[:3]
    axis = x.attrs.get("axis", -1)
    rank = x.rank()
    at = rank if axis < 0 else axis
    if "depth" in x.attrs:
        places = x.ints(np.arange(x.attrs["depth"]))
    else:
        depth = x.emit("Reshape", x.cast(x.inputs[3], "int64"), x.ints([]))
        places = x.emit("Range", x.ints(0), depth, x.ints(1))
    shape = [-1] + [1] * (rank - at)
    places = x.emit("Reshape", places, x.ints(shape))
    hit = x.emit("Equal", x.emit("Unsqueeze", x.cast(indices, "int64"), x.ints([at])), places)
    return x.emit("Where", hit, on, off)


def _stack(x: Op) -> str:
    axis = x.axis(rank=x.rank() + 1)
    parts = [x.emit("Unsqueeze", value, x.ints([axis])) for value in x.inputs]
    return x.emit("Concat", *parts, axis=axis)


def _split(x: Op) -> list[str]:
    num = x.attrs["num"]
    return x.emit_many("Split", num, x.inputs[0], axis=x.axis(), num_outputs=num)


def _split_v(x: Op) -> list[str]:
    sizes = list(x.attrs["sizes"])
    axis = x.axis()
    parts = x.ints(sizes)
    if -1 in sizes:
        rest = x.emit("Sub", _extent(x, axis), x.ints([sum(sizes) + 1]))
        parts = x.emit("Where", x.emit("Less", parts, x.ints(0)), rest, parts)
    return x.emit_many("Split", len(sizes), x.inputs[0], parts, axis=axis)


def _extent(x: Op, axis: int) -> str:
    """The extent of the first input along an axis, int64 [1]."""
    return _slice(x, x.emit("Shape", x.inputs[0]), [axis], [axis + 1], [0])


def _unstack(x: Op) -> list[str]:
    axis = x.axis()
    parts = _split(x)
    return [x.emit("Squeeze", part, x.ints([axis])) for part in parts]


def _squeeze(x: Op) -> str:
    axes = x.attrs.get("axes", [])
    return x.emit("Squeeze", x.inputs[0], *([x.ints(axes)] if axes else []))


def _transpose(x: Op) -> str:
    rank = x.rank()
    perm = [axis % rank for axis in x.attrs.get("perm") or reversed(range(rank))]
    if rank < 2:
        return x.emit("Identity", x.inputs[0])
    return x.emit("Transpose", x.inputs[0], perm=perm)


def _rank(x: Op) -> str:
    return x.cast(x.emit("Size", x.emit("Shape", x.inputs[0])), "int32")


def _range(x: Op) -> str:
    return x.emit("Range", *x.inputs)


RULES["Reshape"] = _reshape
RULES["ReshapeLike"] = lambda x: x.emit(
    "Reshape", x.inputs[0], x.emit("Shape", x.inputs[1]), allowzero=1
)
RULES["BroadcastLike"] = lambda x: x.emit("Expand", x.inputs[0], x.emit("Shape", x.inputs[1]))
RULES["BroadcastTo"] = lambda x: x.emit("Expand", x.inputs[0], x.ints_of("shape", 1))
RULES["Fill"] = lambda x: x.emit("Expand", x.inputs[0], x.ints_of("shape", 1))
RULES["Tile"] = lambda x: x.emit("Tile", x.inputs[0], x.ints_of("multiples", 1))
RULES["ExpandDims"] = lambda x: x.emit("Unsqueeze", x.inputs[0], x.ints([x.attrs["axis"]]))
RULES["Concat"] = lambda x: x.emit("Concat", *x.inputs, axis=x.attrs["axis"])
RULES["Shape"] = lambda x: _shape_as(x, x.outputs[0][0], x.emit("Shape", x.inputs[0]))
RULES["Size"] = lambda x: _shape_as(x, x.outputs[0][0], x.emit("Size", x.inputs[0]))
RULES["Rank"] = _rank
RULES["ZerosLike"] = _like(0)
RULES["OnesLike"] = _like(1)
RULES["OneHot"] = _one_hot
RULES["Stack"] = _stack
RULES["Split"] = _split
RULES["SplitV"] = _split_v
RULES["Unstack"] = _unstack
RULES["Squeeze"] = _squeeze
RULES["Transpose"] = _transpose
RULES["Range"] = _range


# ---- slices, padding -----------------------------------------------------------------------------


def _slice(
    x: Op, value: str, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int],
    steps: Sequence[int] | None = None,
) -> str:  # fmt: skip
    more = [] if steps is None else [x.ints(steps)]
    return x.emit("Slice", value, x.ints(starts), x.ints(ends), x.ints(axes), *more)


def _slice_op(x: Op) -> str:
    begins = x.ints_of("begin", 1)
    if "size" in x.attrs or x.constant(2) is not None:
        sizes = x.known_ints("size", 2, "the size")
        begin = x.attrs.get("begin")
        if begin is None and x.constant(1) is not None:
            begin = [int(value) for value in x.constant(1)]  # type: ignore[union-attr]
        if begin is not None:
            ends = [_LAST if n < 0 else b + n for b, n in zip(begin, sizes)]
            return _slice(x, x.inputs[0], begin, ends, range(len(sizes)))
        if any(n < 0 for n in sizes):
            whole = [_LAST if n < 0 else 0 for n in sizes]
            rest = x.emit("Add", begins, x.ints([0 if n < 0 else n for n in sizes]))
            ends_name = x.emit("Max", rest, x.ints(whole))
            return x.emit("Slice", x.inputs[0], begins, ends_name, x.ints(range(len(sizes))))
    size = x.ints_of("size", 2)
    ends_name = x.emit("Add", begins, size)
    ends_name = x.emit("Where", x.emit("Less", size, x.ints(0)), x.ints(_LAST), ends_name)
    return x.emit("Slice", x.inputs[0], begins, ends_name)


def _slice_axis(x: Op) -> str:
    begin = x.attrs["begin"]
    return _slice(x, x.inputs[0], [begin], [begin + x.attrs["size"]], [x.axis()])


def _terms(x: Op) -> list[tuple[str, int, int, int]]:
    """The terms of a strided slice, one per dimension of the input or new axis: (kind, begin, end,
    step), the ellipsis written out."""
    attrs = x.attrs
    begin = x.known_ints("begin", 1, "where the slice begins")
    end = x.known_ints("end", 2, "where the slice ends")
    strides = x.known_ints("strides", 3, "the step of the slice")
    bits = {
        key: attrs.get(f"{key}_mask", 0)
        for key in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    }
    taking = sum(
        not (bits["ellipsis"] >> i & 1 or bits["new_axis"] >> i & 1) for i in range(len(begin))
    )
    out: list[tuple[str, int, int, int]] = []
    for i, (b, e, step) in enumerate(zip(begin, end, strides)):
        if bits["ellipsis"] >> i & 1:
            out += [("all", 0, _LAST, 1)] * (x.rank() - taking)
        elif bits["new_axis"] >> i & 1:
            out.append(("new", 0, 0, 1))
        elif bits["shrink_axis"] >> i & 1:
            out.append(("index", b, b + 1 if b != -1 else _LAST, 1))
        else:
            forward = step > 0
            first = (0 if forward else _LAST) if bits["begin"] >> i & 1 else b
            last = (_LAST if forward else _FIRST) if bits["end"] >> i & 1 else e
            out.append(("range", first, last, step))
    return out


def _computed_slice(x: Op) -> str:
    """A strided slice whose places are computed."""
    attrs = x.attrs
    if attrs.get("ellipsis_mask", 0) or attrs.get("new_axis_mask", 0):
        x.fail("its places are computed and it has an ellipsis or a new axis; slice in two steps")
    shape = x.specs[1][1]
    if shape is None or shape[0] < 0:
        x.fail("it is not known how many dimensions are sliced")
    steps = x.known_ints("strides", 3, "the step of the slice")
    begin, end = x.ints_of("begin", 1), x.ints_of("end", 2)

    def bits(name: str) -> list[bool]:
        return [bool(attrs.get(f"{name}_mask", 0) >> i & 1) for i in range(shape[0])]

    def choose(mask: list[bool], there: Any, otherwise: str) -> str:
        if not any(mask):
            return otherwise
        there = there if isinstance(there, str) else x.ints(there)
        return x.emit("Where", x.model.constant(mask, "bool"), there, otherwise)

    gone = bits("shrink_axis")
    behind = x.emit("Add", begin, x.ints(1))
    last = x.emit("Equal", begin, x.ints(-1))
    end = choose(gone, x.emit("Where", last, x.ints(_LAST), behind), end)
    end = choose(bits("end"), [_LAST if step > 0 else _FIRST for step in steps], end)
    begin = choose(bits("begin"), [0 if step > 0 else _LAST for step in steps], begin)
    value = x.emit("Slice", x.inputs[0], begin, end, x.ints(range(shape[0])), x.ints(steps))
    axes = [i for i, index in enumerate(gone) if index]
    return x.emit("Squeeze", value, x.ints(axes)) if axes else value


def _strided_slice(x: Op) -> str:
    places = [i for i, name in ((1, "begin"), (2, "end")) if name not in x.attrs]
    if any(x.constant(i) is None for i in places):
        return _computed_slice(x)
    terms = _terms(x)
    taken = [term for term in terms if term[0] != "new"]
    cut = [i for i, (kind, b, e, s) in enumerate(taken) if (kind, b, e, s) != ("all", 0, _LAST, 1)]
    cut = [i for i in cut if taken[i][1:] != (0, _LAST, 1)]
    value = x.inputs[0]
    if cut:
        starts, ends, steps = zip(*(taken[i][1:] for i in cut))
        value = _slice(x, value, starts, ends, cut, steps)
    gone = [i for i, term in enumerate(taken) if term[0] == "index"]
    if gone:
        value = x.emit("Squeeze", value, x.ints(gone))
    left = [term for term in terms if term[0] != "index"]
    new = [i for i, term in enumerate(left) if term[0] == "new"]
    if new:
        value = x.emit("Unsqueeze", value, x.ints(new))
    return value if cut or gone or new else x.emit("Identity", value)


def _pads(paddings: Sequence[int]) -> list[int]:
    """Before and after by dimension, as ONNX orders them: all before, all after."""
    return [*paddings[::2], *paddings[1::2]]


def _pad(x: Op) -> str:
    if x.specs[0][1] == ():
        return x.emit("Identity", x.inputs[0])
    if "paddings" not in x.attrs and x.constant(2) is None:
        by_side = x.emit("Transpose", x.cast(x.inputs[2], "int64"), perm=[1, 0])
        return x.emit("Pad", x.inputs[0], x.emit("Reshape", by_side, x.ints([-1])), x.inputs[1])
    known = x.known_ints("paddings", 2, "the padding")
    return x.emit("Pad", x.inputs[0], x.ints(_pads(known)), x.inputs[1])


def _pad_axis(x: Op) -> str:
    before = [0] * x.rank()
    after = [0] * x.rank()
    before[x.axis()], after[x.axis()] = x.attrs["before"], x.attrs["after"]
    return x.emit("Pad", x.inputs[0], x.ints([*before, *after]))


def _mirror_pad(x: Op) -> str:
    if x.attrs["mode"] != "reflect":
        x.fail("ONNX pads by reflection only; use mode='REFLECT'")
    known = x.known_ints("paddings", 1, "the padding")
    return x.emit("Pad", x.inputs[0], x.ints(_pads(known)), mode="reflect")


def _reverse(x: Op) -> str:
    axes = x.attrs["axes"]
    count = len(axes)
    return _slice(x, x.inputs[0], [-1] * count, [_FIRST] * count, axes, [-1] * count)


def _roll(x: Op) -> str:
    value = x.inputs[0]
    for shift, axis in zip(x.attrs["shift"], x.attrs["axes"]):
        axis %= x.rank()
        extent = x.emit("Max", _extent(x, axis), x.ints([1]))
        at = x.emit("Mod", x.ints([-shift]), extent)
        tail = x.emit("Slice", value, at, x.ints([_LAST]), x.ints([axis]))
        head = x.emit("Slice", value, x.ints([0]), at, x.ints([axis]))
        value = x.emit("Concat", tail, head, axis=axis)
    return value if value != x.inputs[0] else x.emit("Identity", value)


RULES["Slice"] = _slice_op
RULES["SliceAxis"] = _slice_axis
RULES["StridedSlice"] = _strided_slice
RULES["Pad"] = _pad
RULES["PadAxis"] = _pad_axis
RULES["MirrorPad"] = _mirror_pad
RULES["Reverse"] = _reverse
RULES["Roll"] = _roll


# ---- gathers, sorting, running sums --------------------------------------------------------------


def _gather(x: Op) -> str:
    gathered = _gather_as_is(x)
    return x.cast(gathered, x.attrs["out_type"]) if "out_type" in x.attrs else gathered


def _gather_as_is(x: Op) -> str:
    batch = x.attrs.get("batch_dims", 0)
    batch += x.rank(1) if batch < 0 else 0
    axis = x.axis()
    if batch == 0:
        return x.emit("Gather", *x.inputs, axis=axis)
    if axis != batch:
        x.fail(f"batch_dims is {batch} and axis {axis}; transpose x so that they agree")
    places = x.emit("Unsqueeze", x.cast(x.inputs[1], "int64"), x.ints([-1]))
    return x.emit("GatherND", x.inputs[0], places, batch_dims=batch)


def _gather_nd(x: Op) -> str:
    batch = x.attrs.get("batch_dims", 0)
    return x.emit("GatherND", x.inputs[0], x.cast(x.inputs[1], "int64"), batch_dims=batch)


def _top_k(x: Op) -> list[str]:
    if "k" in x.attrs:
        k = x.ints([x.attrs["k"]])
    else:
        k = x.emit("Reshape", x.cast(x.inputs[1], "int64"), x.ints([1]))
    values, places = x.emit_many("TopK", 2, x.inputs[0], k, axis=-1, largest=1, sorted=1)
    return [values, x.cast(places, "int32")]


def _sort(x: Op) -> list[str]:
    shape = x.emit("Shape", x.inputs[0])
    extent = _slice(x, shape, [-1], [_LAST], [0])
    largest = int(x.attrs.get("descending", False))
    values, places = x.emit_many("TopK", 2, x.inputs[0], extent, axis=-1, largest=largest)
    return [values, x.cast(places, "int32")]


def _cumsum(x: Op) -> str:
    return x.emit(
        "CumSum",
        x.inputs[0],
        x.ints(x.axis()),
        exclusive=int(x.attrs.get("exclusive", False)),
        reverse=int(x.attrs.get("reverse", False)),
    )


def _unique(x: Op) -> list[str]:
    values, _, places, counts = x.emit_many("Unique", 4, x.inputs[0], sorted=0)
    dtype = x.outputs[1][0]
    return [values, x.cast(places, dtype), x.cast(counts, dtype)]


RULES["Gather"] = _gather
RULES["GatherNd"] = _gather_nd
RULES["TopK"] = _top_k
RULES["Sort"] = _sort
RULES["Cumsum"] = _cumsum
RULES["UniqueWithCounts"] = _unique
RULES["Where"] = lambda x: x.emit("Transpose", x.emit("NonZero", x.inputs[0]), perm=[1, 0])


# ---- segments ------------------------------------------------------------------------------------


def _summed(x: Op, rows: str, ids: str, count: str) -> str:
    """Rows of equal ids added up; `count` is an int64 [1]. A negative id is left out."""
    outside = x.emit("Less", ids, x.ints(0))
    ids = x.emit("Where", outside, count, ids)
    shape = x.emit("Shape", rows)
    rest = _slice(x, shape, [1], [_LAST], [0])
    more = x.emit("Add", count, x.ints([1]))
    zeros = x.emit("Expand", x.number(0), x.emit("Concat", more, rest, axis=0))
    places = x.emit("Unsqueeze", ids, x.ints([-1]))
    total = x.emit("ScatterND", zeros, places, rows, reduction="add")
    return x.emit("Slice", total, x.ints([0]), count, x.ints([0]))


def _segments(kind: str, x: Op, rows: str, ids: str, count: str, rank: int) -> str:
    ids = x.cast(ids, "int64")
    total = _summed(x, rows, ids, count)
    if kind == "Sum":
        return total
    ones = x.emit("Expand", x.number(1), x.emit("Shape", ids))
    counts = x.emit("Max", _summed(x, ones, ids, count), x.number(1))
    if kind == "SqrtN":
        counts = x.emit("Sqrt", counts)
    if rank > 1:
        counts = x.emit("Unsqueeze", counts, x.ints(range(1, rank)))
    return x.emit("Div", total, counts)


def _last_and_one(x: Op, ids: str) -> str:
    """As many segments as sorted ids say; 0 without any."""
    one = x.emit("Concat", x.ints([-1]), x.cast(ids, "int64"), axis=0)
    return x.emit("Add", _slice(x, one, [-1], [_LAST], [0]), x.ints([1]))


def _sorted_segments(kind: str) -> Rule:
    return lambda x: _segments(
        kind, x, x.inputs[0], x.inputs[1], _last_and_one(x, x.inputs[1]), x.rank()
    )


def _count(x: Op, i: int) -> str | None:
    if "num_segments" in x.attrs:
        return x.ints([x.attrs["num_segments"]])
    if len(x.inputs) <= i:
        return None
    return x.emit("Reshape", x.cast(x.inputs[i], "int64"), x.ints([1]))


def _unsorted_segments(kind: str) -> Rule:
    def rule(x: Op) -> str:
        rows, ids = x.inputs[:2]
        rank, places = x.rank(), x.rank(1)
        if places != 1:
            rest = _slice(x, x.emit("Shape", rows), [places], [_LAST], [0])
            rows = x.emit("Reshape", rows, x.emit("Concat", x.ints([-1]), rest, axis=0))
            ids = x.emit("Reshape", ids, x.ints([-1]))
        return _segments(kind, x, rows, ids, str(_count(x, 2)), rank - places + 1)

    return rule


def _sparse_segments(kind: str) -> Rule:
    def rule(x: Op) -> str:
        rows = x.emit("Gather", x.inputs[0], x.inputs[1], axis=0)
        count = _count(x, 3)
        ids = x.inputs[2]
        return _segments(kind, x, rows, ids, count or _last_and_one(x, ids), x.rank())

    return rule


for _kind in ("Sum", "Mean"):
    RULES[f"Segment{_kind}"] = _sorted_segments(_kind)
for _kind in ("Sum", "Mean", "SqrtN"):
    RULES[f"UnsortedSegment{_kind}"] = _unsorted_segments(_kind)
    RULES[f"SparseSegment{_kind}"] = _sparse_segments(_kind)


# ---- images --------------------------------------------------------------------------------------


def _dilated_pads(x: Op, strides: Sequence[int], dilations: Sequence[int]) -> list[int]:
    """What padding 'same' is for a dilated filter: [top, left, bottom, right]."""
    image, filters = x.specs[0][1], x.specs[1][1]
    pads = []
    for i, (stride, dilation) in enumerate(zip(strides, dilations)):
        extent = image[i + 1] if image is not None else -1
        size = filters[i] if filters is not None else -1
        if size < 0 or (extent < 0 and stride != 1):
            x.fail("padding 'SAME' of a dilated filter needs known extents; give the paddings")
        reach = (size - 1) * dilation + 1
        if stride == 1:
            pads.append(reach - 1)
        else:
            pads.append(max((-(-extent // stride) - 1) * stride + reach - extent, 0))
    return [pads[0] // 2, pads[1] // 2, pads[0] - pads[0] // 2, pads[1] - pads[1] // 2]


def _window(x: Op) -> dict[str, Any]:
    attrs: dict[str, Any] = {"strides": x.attrs.get("strides", [1, 1])}
    padding = x.attrs["padding"]
    dilations = x.attrs.get("dilations", [1, 1])
    if padding == "same" and max(dilations) > 1:
        attrs["pads"] = _dilated_pads(x, attrs["strides"], dilations)
    elif padding == "same":
        attrs["auto_pad"] = "SAME_UPPER"
    elif padding == "explicit":
        top, bottom, left, right = x.attrs["explicit_paddings"]
        attrs["pads"] = [top, left, bottom, right]
    return attrs


def _channels_first(x: Op, value: str) -> str:
    return x.emit("Transpose", value, perm=[0, 3, 1, 2])


def _channels_last(x: Op, value: str) -> str:
    return x.emit("Transpose", value, perm=[0, 2, 3, 1])


def _conv(x: Op) -> str:
    filters = x.emit("Transpose", x.inputs[1], perm=[3, 2, 0, 1])
    made = x.emit(
        "Conv",
        _channels_first(x, x.inputs[0]),
        filters,
        dilations=x.attrs.get("dilations", [1, 1]),
        **_window(x),
    )
    return _channels_last(x, made)


def _depthwise_conv(x: Op) -> str:
    shape = x.specs[1][1]
    if shape is None or min(shape) < 0:
        x.fail("the shape of its filters is not known")
    high, wide, channels, times = shape
    filters = x.emit("Transpose", x.inputs[1], perm=[2, 3, 0, 1])
    filters = x.emit("Reshape", filters, x.ints([channels * times, 1, high, wide]))
    made = x.emit(
        "Conv",
        _channels_first(x, x.inputs[0]),
        filters,
        group=channels,
        dilations=x.attrs.get("dilations", [1, 1]),
        **_window(x),
    )
    return _channels_last(x, made)


def _pool(op: str) -> Rule:
    def rule(x: Op) -> str:
        made = x.emit(
            op, _channels_first(x, x.inputs[0]), kernel_shape=x.attrs["ksize"], **_window(x)
        )
        return _channels_last(x, made)

    return rule


RULES["Conv2D"] = _conv
RULES["DepthwiseConv2D"] = _depthwise_conv
RULES["MaxPool"] = _pool("MaxPool")
RULES["AvgPool"] = _pool("AveragePool")
