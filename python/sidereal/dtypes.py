"""Element types: NumPy's, under the names of the core, and bfloat16 and string, which NumPy has
not."""

from __future__ import annotations

import numpy as np


class BFloat16:
    """The upper half of a float32: 8 bits of exponent, 7 of fraction. There is one, `bfloat16`.
    NumPy has no such dtype: cast to float32 before numpy()."""

    name = "bfloat16"
    itemsize = 2
    kind = "f"

    def __repr__(self) -> str:
        return "sidereal.bfloat16"

    __str__ = __repr__

    def __reduce__(self) -> str:
        return "bfloat16"


class String:
    """Bytes of any length, the elements of text columns. There is one, `string`. NumPy arrays of
    it have the dtype object and elements of type bytes; str is taken as UTF-8."""

    name = "string"
    itemsize = 0
    kind = "S"

    def __repr__(self) -> str:
        return "sidereal.string"

    __str__ = __repr__

    def __reduce__(self) -> str:
        return "string"


bfloat16 = BFloat16()
string = String()
float16 = np.dtype(np.float16)
float32 = np.dtype(np.float32)
float64 = np.dtype(np.float64)
int8 = np.dtype(np.int8)
int16 = np.dtype(np.int16)
int32 = np.dtype(np.int32)
int64 = np.dtype(np.int64)
uint8 = np.dtype(np.uint8)
uint16 = np.dtype(np.uint16)
uint32 = np.dtype(np.uint32)
uint64 = np.dtype(np.uint64)
bool_ = np.dtype(np.bool_)

DType = np.dtype | BFloat16 | String

#: By the number of the core.
OF_NUMBER: list[DType | None] = [
    None, float32, float64, int32, int64, uint8, bool_, int8, int16, uint16, uint32, uint64,
    float16, bfloat16, string,
]

_NAMES = {dtype: dtype.name for dtype in OF_NUMBER if dtype is not None}


def as_dtype(value: object) -> DType:
    """The dtype meant by a dtype, a NumPy type, a Python type or a name ("float32")."""
    if value is bfloat16 or value == "bfloat16":
        return bfloat16
    if value is string or value == "string":
        return string
    try:
        dtype = np.dtype(value)  # type: ignore[call-overload]
    except TypeError:
        if getattr(value, "name", None) == "bfloat16":
            return bfloat16
        raise TypeError(
            f"{value!r} is not a dtype; use one such as sidereal.float32, or its name"
        ) from None
    if dtype.kind in "SU":
        return string
    if dtype not in _NAMES:
        raise TypeError(
            f"{dtype} is not a dtype of sidereal; those are {', '.join(_NAMES.values())}"
        )
    return dtype


def name_of(value: object) -> str:
    """The core's name of a dtype, from anything as_dtype() takes."""
    name = _NAMES.get(value) if isinstance(value, (np.dtype, BFloat16, String)) else None
    return name if name is not None else as_dtype(value).name


def is_floating(dtype: DType) -> bool:
    """True for dtypes through which gradients flow."""
    return dtype.kind == "f"
