"""Arrays and TensorProto, and the numbers that TensorFlow's dtypes have."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import errors
from ._messages import messages

#: NumPy of any version has so many.
_RANK_MAX = 32
#: The number and the field of values, by the name of a dtype.
_KINDS = {
    "float32": (1, "float_val"),
    "float64": (2, "double_val"),
    "int32": (3, "int_val"),
    "uint8": (4, "int_val"),
    "int16": (5, "int_val"),
    "int8": (6, "int_val"),
    "string": (7, "string_val"),
    "int64": (9, "int64_val"),
    "bool": (10, "bool_val"),
    "uint16": (17, "int_val"),
    "float16": (19, "half_val"),
    "uint32": (22, "uint32_val"),
    "uint64": (23, "uint64_val"),
}
_NAMES = {number: name for name, (number, _) in _KINDS.items()}
#: As JSON and text formats call them.
TYPE_NAMES = {
    name: {
        "float32": "DT_FLOAT",
        "float64": "DT_DOUBLE",
        "float16": "DT_HALF",
    }.get(name, "DT_" + name.upper())
    for name in _KINDS
}


@functools.lru_cache
def kind_of(dtype: np.dtype[Any]) -> str:
    """How an array's dtype is called."""
    return "string" if dtype.kind in "OSU" else dtype.name


def number_of(kind: str) -> int:
    """The number of a dtype by its name; 0, which is none, of one that TensorFlow has not."""
    return _KINDS.get(kind, (0, ""))[0]


def _shape_of(name: str, proto: Any, bytes_max: int, itemsize: int) -> tuple[int, ...]:
    if len(proto.tensor_shape.dim) > _RANK_MAX:
        raise errors.InvalidArgumentError(
            f"input '{name}' has {len(proto.tensor_shape.dim)} dimensions, at most {_RANK_MAX}"
        )
    shape = tuple(dim.size for dim in proto.tensor_shape.dim)
    if proto.tensor_shape.unknown_rank or any(extent < 0 for extent in shape):
        raise errors.InvalidArgumentError(f"input '{name}' has no known shape")
    if math.prod(shape) * max(itemsize, 1) > bytes_max:
        raise errors.InvalidArgumentError(
            f"input '{name}' has the shape {list(shape)}, which is more than {bytes_max} bytes"
        )
    return shape


def to_array(name: str, proto: Any, bytes_max: int = 1 << 31) -> npt.NDArray[Any]:
    """The array of a TensorProto; strings are bytes in an array of objects. As in TensorFlow the
    last of too few values stands for the rest."""
    kind = _NAMES.get(proto.dtype)
    if kind is None:
        raise errors.InvalidArgumentError(
            f"input '{name}' has the dtype {proto.dtype}, which is not served; it may be "
            f"{', '.join(TYPE_NAMES.values())}"
        )
    dtype = np.dtype(object if kind == "string" else kind)
    shape = _shape_of(name, proto, bytes_max, dtype.itemsize)
    count = math.prod(shape)
    if proto.tensor_content and kind != "string":
        if len(proto.tensor_content) != count * dtype.itemsize:
            raise errors.InvalidArgumentError(
                f"input '{name}' has {len(proto.tensor_content)} bytes of content, and its shape "
                f"{list(shape)} of {kind} takes {count * dtype.itemsize}"
            )
        return np.frombuffer(proto.tensor_content, dtype).reshape(shape)
    values = getattr(proto, _KINDS[kind][1])
    if len(values) > count or (count and not len(values)):
        raise errors.InvalidArgumentError(
            f"input '{name}' has {len(values)} values for the shape {list(shape)}"
        )
    if kind == "string":
        found = np.empty(len(values), object)
        found[:] = values
    elif kind == "float16":
        found = np.fromiter(values, np.int64, len(values)).astype(np.uint16).view(np.float16)
    else:
        try:
            found = np.fromiter(values, dtype, len(values))
        except OverflowError:
            raise errors.InvalidArgumentError(
                f"input '{name}' has values that {kind} does not hold"
            ) from None
    if len(found) < count:
        found = np.concatenate([found, np.repeat(found[-1:], count - len(found))])
    return found.reshape(shape)


def fill(proto: Any, array: npt.NDArray[Any]) -> None:
    """Puts an array into a TensorProto."""
    kind = kind_of(array.dtype)
    proto.dtype = number_of(kind)
    if not proto.dtype:
        raise errors.UnimplementedError(f"an output of {kind} has no form in TensorFlow's messages")
    for extent in array.shape:
        proto.tensor_shape.dim.add(size=extent)
    if kind == "string":
        proto.string_val.extend(
            value.encode() if isinstance(value, str) else bytes(value) for value in array.flat
        )
    else:
        proto.tensor_content = array.tobytes()


def fill_info(info: Any, name: str, kind: str, shape: tuple[int | None, ...] | None) -> None:
    """Puts what is known of an input or output into a TensorInfo."""
    info.name = name
    info.dtype = number_of(kind)
    if shape is None:
        info.tensor_shape.unknown_rank = True
        return
    for extent in shape:
        info.tensor_shape.dim.add(size=-1 if extent is None else extent)


__all__ = ["TYPE_NAMES", "fill", "fill_info", "kind_of", "messages", "number_of", "to_array"]
