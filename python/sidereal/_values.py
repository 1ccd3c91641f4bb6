"""Tensors of what Python programs give: numbers, text, lists, arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import dtypes, errors
from ._engine import ENGINE
from ._native import Tensor

#: The dtype of a number of Python, unless another one is asked for.
NUMBERS = {bool: "bool", int: "int32", float: "float32"}
_INT32 = np.iinfo(np.int32)


def checked_dtype(value: Any, dtype: Any) -> Any:
    """A tensor, or a value of a graph, that has `dtype` (None: any); InvalidArgumentError else."""
    if dtype is not None and value.dtype != dtypes.as_dtype(dtype):
        wanted = dtypes.name_of(dtype)
        raise errors.InvalidArgumentError(
            f"a {value.dtype} tensor was given where {wanted} is needed; cast it: "
            f"sidereal.cast(x, '{wanted}')"
        )
    return value


def to_tensor(value: Any, dtype: Any = None) -> Tensor:
    """A Tensor of anything that has a value, also while a graph is being built."""
    if type(value) is Tensor:
        return checked_dtype(value, dtype)
    number = NUMBERS.get(type(value))
    if number is not None:
        made = ENGINE.from_number(value, number if dtype is None else dtypes.name_of(dtype))
        if made is not None:
            return made
    if not isinstance(value, (np.ndarray, np.generic)) and hasattr(value, "__dlpack__"):
        return checked_dtype(ENGINE.from_dlpack(value), dtype)
    return _from_array(value, dtype)


def _from_array(value: Any, dtype: Any) -> Tensor:
    try:
        array = np.asarray(value)
    except UnicodeDecodeError:  # str and bytes mixed.
        array = np.array(value, dtype=object)
    except ValueError as error:
        raise errors.InvalidArgumentError(
            f"no tensor can be made of {_short(value)}: {error}"
        ) from None
    if _holds_strings(value, array):
        return _from_strings(value, dtype)
    if array.dtype == object or array.dtype.kind not in "biuf":
        raise TypeError(
            f"no tensor can be made of {_short(value)}, which is {type(value).__name__}; give "
            "numbers, strings, nested lists of them, or arrays"
        )
    if dtype is None:
        wanted: Any = array.dtype
        if not isinstance(value, (np.ndarray, np.generic)):
            wanted = _default_dtype(array)
    else:
        wanted = dtypes.as_dtype(dtype)
        if wanted is dtypes.string:
            if array.size == 0:
                return ENGINE.from_strings([], array.shape)
            raise errors.InvalidArgumentError(
                f"{_short(value)} is not text; for numbers as text: sidereal.strings.as_string()"
            )
        _check_conversion(value, array, wanted)
    if wanted is dtypes.bfloat16:
        widened = _from_array(array, dtypes.float32)
        return ENGINE.execute("Cast", (widened,), {"dtype": wanted}, None)
    kind: Any = dtypes.as_dtype(wanted)
    array = np.asarray(array, dtype=kind, order="C")
    # ascontiguousarray() would make one dimension of none.
    if not array.flags.c_contiguous:
        array = array.copy(order="C")
    return ENGINE.from_array(array.dtype, array)


def _holds_strings(value: Any, array: np.ndarray) -> bool:
    if array.dtype.kind != "O":
        return array.dtype.kind in "UST"
    # An empty array of objects is what numpy() gives of no strings.
    none = array.size == 0 and isinstance(value, np.ndarray)
    return none or (array.size > 0 and all(isinstance(x, (str, bytes)) for x in array.flat))


def _from_strings(value: Any, dtype: Any) -> Tensor:
    if dtype is not None and dtypes.as_dtype(dtype) is not dtypes.string:
        raise errors.InvalidArgumentError(
            f"{_short(value)} is text, where {dtypes.name_of(dtype)} is needed; for numbers "
            "written as text: sidereal.strings.to_number()"
        )
    # NumPy's own arrays of bytes drop zero bytes at the end.
    array = value if isinstance(value, np.ndarray) else np.array(value, dtype=object)
    return ENGINE.from_strings(array.ravel().tolist(), array.shape)


def _default_dtype(array: np.ndarray) -> np.dtype:
    if array.dtype.kind == "f":
        return dtypes.float32
    if array.dtype.kind in "iu" and array.size:
        fits = array.min() >= _INT32.min and array.max() <= _INT32.max
        return dtypes.int32 if fits else dtypes.int64
    if array.size == 0 and array.dtype == np.float64:
        return dtypes.float32
    return array.dtype


def _check_conversion(value: Any, array: np.ndarray, dtype: Any) -> None:
    target = np.float32 if dtype is dtypes.bfloat16 else dtype
    if array.dtype == target:
        return
    fits = np.can_cast(array.dtype, target, casting="same_kind")
    if array.dtype.kind in "iu" and np.dtype(target).kind in "iu":
        limits = np.iinfo(target)
        fits = array.size == 0 or (array.min() >= limits.min and array.max() <= limits.max)
    if not fits and array.size:
        raise errors.InvalidArgumentError(
            f"{_short(value)} ({array.dtype}) cannot become {dtypes.name_of(dtype)} without loss; "
            "cast the tensor, or convert the value first"
        )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
