"""Shapes, slices, joining and cutting, repeating. Names and arguments are TensorFlow's."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

from .. import dtypes, errors
from .._dispatch import align, apply, convert
from ..dtypes import as_dtype
from . import indexing, sorting
from ._arguments import apply_with, apply_with_int, index_tensor, rank_of, static_int, static_ints
from .indexing import *  # noqa: F403
from .indexing import boolean_mask, gather
from .sorting import *  # noqa: F403

__all__ = [
    "broadcast_to", "concat", "ensure_shape", "expand_dims", "eye", "fill", "identity", "linspace",
    "meshgrid", "one_hot", "ones", "ones_like", "pad", "range", "rank", "repeat", "reshape",
    "reverse", "reverse_sequence", "roll", "sequence_mask", "shape", "size", "slice", "split",
    "squeeze", "stack", "strided_slice", "tile", "transpose", "unstack", "zeros", "zeros_like",
]  # fmt: skip
__all__ += indexing.__all__
__all__ += sorting.__all__

_MODES = {"CONSTANT": "constant", "REFLECT": "reflect", "SYMMETRIC": "symmetric"}


# --- Questions about shapes.


def shape(input: Any, out_type: Any = "int32", name: str | None = None) -> Any:
    """The extents of a tensor as a vector of int32 or int64 (tf.shape). Known extents are also
    `input.shape`, without an op."""
    return apply("Shape", (convert(input),), {"out_type": as_dtype(out_type)}, name=name)


def size(input: Any, out_type: Any = "int32", name: str | None = None) -> Any:
    """The number of elements (tf.size)."""
    return apply("Size", (convert(input),), {"out_type": as_dtype(out_type)}, name=name)


def rank(input: Any, name: str | None = None) -> Any:
    """The number of dimensions, an int32 (tf.rank)."""
    return apply("Rank", (convert(input),), None, name=name)


def ensure_shape(x: Any, shape: Sequence[int | None] | None, name: str | None = None) -> Any:
    """`x`, known from now on to have `shape` (None: an unknown extent, or rank); an
    InvalidArgumentError when it turns out to have another (tf.ensure_shape)."""
    if shape is None:
        return identity(x, name)
    extents = [-1 if extent is None else int(extent) for extent in shape]
    return apply("EnsureShape", (convert(x),), {"shape": extents}, name=name)


# --- The same elements under another shape.


def identity(input: Any, name: str | None = None) -> Any:
    """The tensor itself, as a new one (tf.identity)."""
    return apply("Identity", (convert(input),), None, name=name)


def reshape(tensor: Any, shape: Any, name: str | None = None) -> Any:
    """The elements in the same order under another shape (tf.reshape); one extent may be -1: what
    is left. `shape` may be a tensor. InvalidArgumentError when the elements do not fit."""
    attrs = {"allow_zero": True}
    return apply_with("Reshape", (convert(tensor),), {"shape": shape}, attrs, name)


def expand_dims(input: Any, axis: int, name: str | None = None) -> Any:
    """With one more dimension of extent 1 at `axis`, negative counting from behind the last
    (tf.expand_dims)."""
    return apply("ExpandDims", (convert(input),), {"axis": int(axis)}, name=name)


def squeeze(input: Any, axis: int | Sequence[int] | None = None, name: str | None = None) -> Any:
    """Without the dimensions `axis`, which must have extent 1; None: without all that have
    (tf.squeeze)."""
    axes = [] if axis is None else static_ints(axis)
    x = convert(input)
    if axis is not None and not axes:
        return identity(x, name)
    return apply("Squeeze", (x,), {"axes": axes}, name=name)


def transpose(a: Any, perm: Sequence[int] | None = None, name: str | None = None) -> Any:
    """With the dimensions in another order (tf.transpose): dimension i of the result is perm[i] of
    `a`; None: reversed."""
    order = [] if perm is None else static_ints(perm)
    if order is None:
        raise errors.InvalidArgumentError("transpose(): perm must be known; it is a tensor")
    return apply("Transpose", (convert(a),), {"perm": order}, name=name)


# --- Tensors of a given shape.


def broadcast_to(input: Any, shape: Any, name: str | None = None) -> Any:
    """Repeated to `shape` by NumPy's rules (tf.broadcast_to)."""
    return apply_with("BroadcastTo", (convert(input),), {"shape": shape}, None, name)


def fill(dims: Any, value: Any, name: str | None = None) -> Any:
    """A tensor of shape `dims` full of the scalar `value` (tf.fill)."""
    return apply_with("Fill", (convert(value),), {"shape": dims}, None, name)


def _number(value: Any, dtype: Any) -> Any:
    """A scalar of a dtype; 0 and 1 are bools where a bool is asked for."""
    dtype = as_dtype(dtype)
    return convert(bool(value) if dtype == dtypes.bool_ and value in (0, 1) else value, dtype)


def zeros(shape: Any, dtype: Any = "float32", name: str | None = None) -> Any:
    """A tensor of zeros (tf.zeros)."""
    return fill(shape, _number(0, dtype), name)


def ones(shape: Any, dtype: Any = "float32", name: str | None = None) -> Any:
    """A tensor of ones (tf.ones)."""
    return fill(shape, _number(1, dtype), name)


def zeros_like(input: Any, dtype: Any = None, name: str | None = None) -> Any:
    """Zeros of the shape and, unless `dtype` is given, dtype of a tensor (tf.zeros_like)."""
    return _like("ZerosLike", input, dtype, name)


def ones_like(input: Any, dtype: Any = None, name: str | None = None) -> Any:
    """Ones of the shape and, unless `dtype` is given, dtype of a tensor (tf.ones_like)."""
    return _like("OnesLike", input, dtype, name)


def _like(op: str, input: Any, dtype: Any, name: str | None) -> Any:
    x = convert(input)
    if dtype is not None and x.dtype != as_dtype(dtype):
        x = apply("Cast", (x,), {"dtype": as_dtype(dtype)})
    return apply(op, (x,), None, name=name)


def eye(num_rows: int, num_columns: int | None = None, dtype: Any = "float32") -> Any:
    """The identity matrix, cut off or filled with zeros when it is not square (tf.eye)."""
    columns = num_rows if num_columns is None else num_columns
    square = apply("MatrixDiag", (ones([builtins.min(num_rows, columns)], dtype),))
    if columns == num_rows:
        return square
    smaller = builtins.min(num_rows, columns)
    return pad(square, [[0, num_rows - smaller], [0, columns - smaller]])


def range(  # noqa: A001 - TensorFlow's name
    start: Any, limit: Any = None, delta: Any = 1, dtype: Any = None, name: str | None = None
) -> Any:
    """start, start + delta, ... up to but without limit (tf.range); range(n) counts from 0. The
    dtype is that of the arguments unless given. InvalidArgumentError when delta is 0 or leads away
    from the limit."""
    if limit is None:
        start, limit = 0, start
    numbers = [start, limit, delta]
    if dtype is not None:
        made = [_cast(convert(x), as_dtype(dtype)) for x in numbers]
    else:
        made = align(*numbers)
    return apply("Range", made, None, name=name)


def _cast(x: Any, dtype: Any) -> Any:
    return x if x.dtype == dtype else apply("Cast", (x,), {"dtype": dtype})


def linspace(start: Any, stop: Any, num: int, name: str | None = None) -> Any:
    """`num` numbers from `start` to `stop`, both included, evenly apart (tf.linspace); float32
    unless the ends are of another float dtype."""
    first, last = align(start, stop)
    if first.dtype.kind != "f":
        first, last = _cast(first, dtypes.float32), _cast(last, dtypes.float32)
    if num < 1:
        raise errors.InvalidArgumentError(f"linspace(): num is {num}; it must be positive")
    if num == 1:
        return reshape(first, [1])
    steps = range(0, num, dtype=first.dtype)
    step = apply("Div", (apply("Sub", (last, first)), convert(num - 1, first.dtype)))
    return apply("Add", (first, apply("Mul", (steps, step))), None, name=name)


def one_hot(
    indices: Any, depth: Any, on_value: Any = None, off_value: Any = None,
    axis: int | None = None, dtype: Any = None, name: str | None = None,
) -> Any:  # fmt: skip
    """A new dimension of extent `depth` at `axis` (None: last) with `on_value` (1) at the index and
    `off_value` (0) elsewhere; for an index outside, `off_value` only (tf.one_hot)."""
    on = 1 if on_value is None else on_value
    off = 0 if off_value is None else off_value
    if dtype is None and on_value is None and off_value is None:
        dtype = dtypes.float32
    if dtype is not None:
        made = [_number(on, dtype), _number(off, dtype)]
    else:
        made = align(on, off)
    places = index_tensor(indices)
    attrs = {"axis": -1 if axis is None else int(axis)}
    return apply_with_int("OneHot", [places, *made], "depth", depth, attrs, name)


def sequence_mask(lengths: Any, maxlen: Any = None, dtype: Any = "bool") -> Any:
    """A last dimension of extent `maxlen` (None: the greatest length) that is true, or 1, for the
    first `lengths` places (tf.sequence_mask)."""
    lengths = convert(lengths)
    if maxlen is None:
        flat = reshape(lengths, [-1])
        maxlen = apply("ReduceMax", (flat,), {"axes": [0], "keep_dims": False})
    places = range(0, maxlen, dtype=lengths.dtype)
    mask = apply("Less", (places, expand_dims(lengths, -1)))
    return mask if as_dtype(dtype) == dtypes.bool_ else apply("Cast", (mask,), {"dtype": dtype})


def meshgrid(*args: Any, indexing: str = "xy") -> list[Any]:
    """Coordinate tensors from coordinate vectors (tf.meshgrid, numpy.meshgrid)."""
    if indexing not in ("xy", "ij"):
        raise errors.InvalidArgumentError(f"indexing is '{indexing}'; it must be 'xy' or 'ij'")
    vectors = [reshape(x, [-1]) for x in args]
    n = len(vectors)
    places = list(builtins.range(n))
    if indexing == "xy" and n > 1:
        places[0], places[1] = 1, 0
    sizes: list[Any] = [None] * n
    for vector, place in zip(vectors, places):
        known = vector.shape is not None and vector.shape[0] >= 0
        sizes[place] = vector.shape[0] if known else size(vector)
    out = []
    for vector, place in zip(vectors, places):
        extents = [1] * n
        extents[place] = -1
        out.append(broadcast_to(reshape(vector, extents), sizes))
    return out


# --- Parts.


def getitem(x: Any, key: Any) -> Any:
    """x[key] by NumPy's rules for numbers, slices, None and the ellipsis; any of them may be a
    tensor of one integer. A tensor or array of bools takes the elements where it is true, as
    boolean_mask() does. Lists of indices are gather()'s."""
    key = key if isinstance(key, tuple) else (key,)
    if len(key) == 1 and _is_mask(key[0]):
        return boolean_mask(x, key[0])
    begin: list[Any] = []
    end: list[Any] = []
    strides: list[Any] = []
    masks = dict.fromkeys(
        ["begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"], 0
    )
    for i, term in enumerate(key):
        first: Any = 0
        last: Any = 0
        step: Any = 1
        if term is Ellipsis:
            masks["ellipsis_mask"] |= 1 << i
        elif term is None:
            masks["new_axis_mask"] |= 1 << i
        elif isinstance(term, builtins.slice):
            first, last, step = term.start, term.stop, term.step
            masks["begin_mask"] |= (first is None) << i
            masks["end_mask"] |= (last is None) << i
            first = 0 if first is None else first
            last = 0 if last is None else last
            step = 1 if step is None else step
        else:
            first = _index(term)
            masks["shrink_axis_mask"] |= 1 << i
        begin.append(first)
        end.append(last)
        strides.append(step)
    attrs = {name: mask for name, mask in masks.items() if mask}
    arguments = {"begin": begin, "end": end, "strides": strides}
    return apply_with("StridedSlice", (convert(x),), arguments, attrs)


def _is_mask(term: Any) -> bool:
    dtype = getattr(term, "dtype", None)
    return dtype is not None and getattr(dtype, "kind", "") == "b"


def _index(term: Any) -> Any:
    if static_int(term) is not None:
        return term
    shape_of = getattr(term, "shape", None)
    dtype = getattr(term, "dtype", None)
    if shape_of == () and dtype is not None and dtype.kind in "iu":
        return term
    raise TypeError(
        f"{term!r} cannot stand between brackets: use integers, slices, None, ... and tensors of "
        "one integer; gather() takes lists of indices, boolean_mask() takes masks"
    )


def strided_slice(
    input_: Any, begin: Any, end: Any, strides: Any = None, begin_mask: int = 0, end_mask: int = 0,
    ellipsis_mask: int = 0, new_axis_mask: int = 0, shrink_axis_mask: int = 0,
    name: str | None = None,
) -> Any:  # fmt: skip
    """What getitem() does, spelled out (tf.strided_slice): bit i of a mask is about term i."""
    masks = {
        "begin_mask": begin_mask, "end_mask": end_mask, "ellipsis_mask": ellipsis_mask,
        "new_axis_mask": new_axis_mask, "shrink_axis_mask": shrink_axis_mask,
    }  # fmt: skip
    if strides is None:
        known = static_ints(begin)
        strides = ones_like(begin) if known is None else [1] * len(known)
    arguments = {"begin": begin, "end": end, "strides": strides}
    return apply_with("StridedSlice", (convert(input_),), arguments, masks, name)


def slice(input_: Any, begin: Any, size: Any, name: str | None = None) -> Any:  # noqa: A001
    """`size` elements from `begin` on, by dimension; a size of -1 takes what is left (tf.slice).
    InvalidArgumentError when that is not inside."""
    return apply_with("Slice", (convert(input_),), {"begin": begin, "size": size}, None, name)


# --- Joining and cutting.


def concat(values: Any, axis: int, name: str | None = None) -> Any:
    """Tensors of one dtype one after another along `axis`; the other extents must agree
    (tf.concat)."""
    if not isinstance(values, (list, tuple)):
        values = [values]
    return apply("Concat", align(*values), {"axis": int(axis)}, name=name)


def stack(values: Any, axis: int = 0, name: str | None = None) -> Any:
    """Tensors of one shape and dtype along a new dimension at `axis` (tf.stack)."""
    if not isinstance(values, (list, tuple)):
        values = unstack(values)
    return apply("Stack", align(*values), {"axis": int(axis)}, name=name)


def unstack(
    value: Any, num: int | None = None, axis: int = 0, name: str | None = None
) -> list[Any]:
    """The list of the values along `axis` (tf.unstack). `num`, its extent, is needed when a graph
    is built of a value whose extent is not known."""
    x = convert(value)
    if num is None:
        num = _known_extent(x, axis, "unstack", "num")
    if num == 0:
        return []
    return _listed(apply("Unstack", (x,), {"axis": int(axis), "num": num}, name=name))


def split(
    value: Any, num_or_size_splits: Any, axis: int = 0, num: int | None = None,
    name: str | None = None,
) -> list[Any]:  # fmt: skip
    """A list of parts along `axis` (tf.split): a number of equal ones, or parts of the given sizes,
    one of which may be -1. Errors: InvalidArgumentError when they do not fit the extent."""
    x = convert(value)
    parts = static_int(num_or_size_splits)
    if parts is not None:
        return _listed(apply("Split", (x,), {"axis": int(axis), "num": parts}, name=name))
    sizes = static_ints(num_or_size_splits)
    if sizes is None:
        raise errors.InvalidArgumentError("split(): the sizes must be known; they are a tensor")
    return _listed(apply("SplitV", (x,), {"axis": int(axis), "sizes": sizes}, name=name))


def _listed(made: Any) -> list[Any]:
    return list(made) if isinstance(made, (tuple, list)) else [made]


def _known_extent(x: Any, axis: int, function: str, argument: str) -> int:
    extents = x.shape
    if extents is None or extents[axis] is None or extents[axis] < 0:
        raise ValueError(f"{function}() of an unknown extent needs {argument}")
    return int(extents[axis])


def pad(
    tensor: Any, paddings: Any, mode: str = "CONSTANT", constant_values: Any = 0,
    name: str | None = None,
) -> Any:  # fmt: skip
    """With [before, after] elements more per dimension (tf.pad): `constant_values`, or the mirror
    image with (SYMMETRIC) or without (REFLECT) the border. `paddings` [rank, 2] may be a tensor."""
    kind = _MODES.get(mode.upper())
    if kind is None:
        raise errors.InvalidArgumentError(
            f"pad(): mode is '{mode}'; it must be one of {', '.join(_MODES)}"
        )
    x = convert(tensor)
    if kind != "constant":
        return apply_with("MirrorPad", (x,), {"paddings": paddings}, {"mode": kind}, name)
    value = convert(constant_values, x.dtype)
    return apply_with("Pad", (x, value), {"paddings": paddings}, None, name)


# --- Repeating and moving.


def tile(input: Any, multiples: Any, name: str | None = None) -> Any:
    """Again and again along each dimension, multiples[i] times (tf.tile)."""
    return apply_with("Tile", (convert(input),), {"multiples": multiples}, None, name)


def repeat(input: Any, repeats: Any, axis: int | None = None, name: str | None = None) -> Any:
    """Each element along `axis` `repeats` times in a row, a number or one per element; without an
    axis of the flat input (tf.repeat)."""
    x = convert(input)
    if axis is None:
        x, axis = reshape(x, [-1]), 0
    times = static_int(repeats)
    if times is not None:
        known = x.shape is not None and x.shape[axis] is not None and x.shape[axis] >= 0
        extent = x.shape[axis] if known else getitem(shape(x, "int64"), axis)
        repeats = fill([extent] if known else reshape(extent, [1]), convert(times, dtypes.int64))
    else:
        repeats = index_tensor(repeats)
    return gather(x, apply("RepeatIndices", (repeats,)), axis=axis, name=name)


def reverse(tensor: Any, axis: int | Sequence[int], name: str | None = None) -> Any:
    """With the order along the dimensions `axis` turned around (tf.reverse)."""
    return apply("Reverse", (convert(tensor),), {"axes": static_ints(axis)}, name=name)


def reverse_sequence(
    input: Any, seq_lengths: Any, seq_axis: int = 1, batch_axis: int = 0, name: str | None = None
) -> Any:
    """With the first seq_lengths[i] steps along `seq_axis` of each example i along `batch_axis`
    turned around, the others as they are (tf.reverse_sequence)."""
    x = convert(input)
    rank = rank_of(x, "reverse_sequence()")
    axes = [batch_axis % rank, seq_axis % rank]
    perm = [*axes, *(i for i in builtins.range(rank) if i not in axes)]
    turned = transpose(x, perm)
    lengths = expand_dims(_cast(index_tensor(seq_lengths), dtypes.int64), -1)
    steps = range(0, getitem(shape(turned, "int64"), 1), dtype=dtypes.int64)
    back = apply("Sub", (apply("Sub", (lengths, convert(1, dtypes.int64))), steps))
    places = apply("Select", (apply("Less", (steps, lengths)), back, steps))
    made = gather(turned, places, axis=1, batch_dims=1)
    inverse = sorted(builtins.range(rank), key=perm.__getitem__)
    return apply("Transpose", (made,), {"perm": inverse}, name=name)


def roll(
    input: Any, shift: int | Sequence[int], axis: int | Sequence[int] | None = None,
    name: str | None = None,
) -> Any:  # fmt: skip
    """Moved by `shift` along `axis`; what leaves at one end comes in at the other (tf.roll).
    Without an axis of the flat input, as numpy.roll."""
    x = convert(input)
    if axis is None:
        flat = roll(reshape(x, [-1]), shift, 0)
        return apply("ReshapeLike", (flat, x), None, name=name)
    shifts, axes = static_ints(shift), static_ints(axis)
    if shifts is None or axes is None:
        raise errors.InvalidArgumentError("roll(): shift and axis must be known; one is a tensor")
    if len(shifts) == 1:
        shifts = shifts * len(axes)
    return apply("Roll", (x,), {"shift": shifts, "axes": axes}, name=name)
