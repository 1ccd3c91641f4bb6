"""Where an op goes: run at once, or added to the graph that is being built.

    apply("MatMul", (x, w), {"transpose_b": True})

runs the op when all inputs have values. It adds a node when one of them is symbolic, or while a
function is being traced. The names of ops, their inputs and attributes are those of the schemas of
the core (`sidereal ops` lists them).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _native, dtypes, errors
from ._native import Output, Tensor
from ._sites import add_line, user_line

if TYPE_CHECKING:
    from ._graphs import Graph

ENGINE = _native.Engine()
ENGINE.set_site(user_line)
ENGINE.watch_signals()
ENGINE.wait_unlocked()
_execute = ENGINE.execute
_number_like = ENGINE.number_like


class _State(threading.local):
    """What a thread is doing. `graph`: the graph being built, None: ops run at once. `tapes`: the
    GradientTapes that listen, outermost first."""

    graph: Graph | None = None
    tapes: tuple[Any, ...] = ()


state = _State()

_NUMBERS = {bool: "bool", int: "int32", float: "float32"}
_INT32 = np.iinfo(np.int32)


def apply(
    op: str,
    inputs: Sequence[Any],
    attrs: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
) -> Any:
    """A Tensor or Output, a tuple of them when the op has several, or None when it has none.

    Inputs that are neither are converted with convert(). Attributes that are None are left out.
    Errors are those of sidereal.errors; they name the op, the shapes of its inputs and the line of
    the program.
    """
    try:
        if state.graph is None:
            for value in inputs:
                if type(value) is not Tensor:
                    break
            else:
                return _execute(op, inputs, attrs, name)
            symbol = next((value for value in inputs if type(value) is Output), None)
            if symbol is None:
                inputs = [convert(value) for value in inputs]
                return _execute(op, inputs, attrs, name)
            graph = _graphs.graph_of(symbol)
        else:
            graph = state.graph
        return graph.add(op, [graph.enter(value) for value in inputs], attrs, name)
    except errors.Error as error:
        add_line(error)
        raise


def binary(op: str, x: Any, y: Any, name: str | None = None) -> Any:
    """apply() of an op of two inputs of one dtype; see align()."""
    if type(x) is Tensor and type(y) in _NUMBERS:
        number = _number_like(y, x)
        y = y if number is None else number
    elif type(y) is Tensor and type(x) in _NUMBERS:
        number = _number_like(x, y)
        x = x if number is None else number
    if type(x) is not Tensor or type(y) is not Tensor:
        x, y = align(x, y)
    return apply(op, (x, y), None, name=name)


def align(*values: Any) -> list[Any]:
    """Converts values that are to have one dtype, that of the first tensor among them. Python
    numbers, lists and NumPy arrays take it where they can (not a fraction as an integer); tensors
    keep theirs. Without a tensor, the first array's dtype, or what NumPy would make of the numbers
    (float32 for fractions, int32 for integers)."""
    dtype = None
    for value in values:
        if _is_tensor(value):
            dtype = value.dtype
            break
    if dtype is None:
        for value in values:
            if isinstance(value, (np.ndarray, np.generic)):
                dtype = value.dtype
                break
    if dtype is None and any(type(value) is float for value in values):
        dtype = dtypes.float32
    if state.graph is None:
        symbol = next((value for value in values if type(value) is Output), None)
        if symbol is not None:
            graph = _graphs.graph_of(symbol)
            return [
                graph.enter(value) if _is_tensor(value) else graph.constant(to_tensor(value, dtype))
                for value in values
            ]
    return [convert(value) if _is_tensor(value) else convert(value, dtype) for value in values]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, (Tensor, Output)) or hasattr(value, "_as_tensor")


def convert(value: Any, dtype: Any = None) -> Any:
    """`value` as a tensor: a Tensor, or a value of the graph being built.

    Takes tensors, variables, Python numbers and nested lists of them (float32, int32 or bool unless
    `dtype` says otherwise; integers beyond int32 are int64), NumPy arrays and scalars (which keep
    their dtype), and arrays of other libraries that have __dlpack__. Data are copied, except those
    of other libraries. A tensor of another dtype than `dtype` is an error: cast it.
    """
    if isinstance(value, (Tensor, Output)):
        if dtype is not None and value.dtype != dtypes.as_dtype(dtype):
            wanted = dtypes.name_of(dtype)
            raise errors.InvalidArgumentError(
                f"a {value.dtype} tensor was given where {wanted} is needed; cast it: "
                f"sidereal.cast(x, '{wanted}')"
            )
        return value
    as_tensor = getattr(value, "_as_tensor", None)
    if as_tensor is not None:
        return convert(as_tensor(), dtype)
    if isinstance(value, (list, tuple)) and _has_tensor(value):
        return _stack(value, dtype)
    tensor = to_tensor(value, dtype)
    return tensor if state.graph is None else state.graph.constant(tensor)


def to_tensor(value: Any, dtype: Any = None) -> Tensor:
    """A Tensor of anything that has a value, also while a graph is being built."""
    if type(value) is Tensor:
        return convert(value, dtype)
    number = _NUMBERS.get(type(value))
    if number is not None:
        made = ENGINE.from_number(value, number if dtype is None else dtypes.name_of(dtype))
        if made is not None:
            return made
    if not isinstance(value, (np.ndarray, np.generic)) and hasattr(value, "__dlpack__"):
        return convert(ENGINE.from_dlpack(value), dtype)
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
        return _execute("Cast", (_from_array(array, dtypes.float32),), {"dtype": wanted}, None)
    array = np.asarray(array, dtype=dtypes.as_dtype(wanted), order="C")
    # ascontiguousarray() would make one dimension of none.
    if not array.flags.c_contiguous:
        array = array.copy(order="C")
    return ENGINE.from_array(array.dtype, array)


def _holds_strings(value: Any, array: np.ndarray) -> bool:
    if array.dtype.kind != "O":
        return array.dtype.kind in "UST"
    # An empty array of objects is what numpy() gives of no strings.
    none = array.size == 0 and isinstance(value, np.ndarray)
    return none or array.size > 0 and all(isinstance(x, (str, bytes)) for x in array.flat)


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
    fits = np.can_cast(array.dtype, target, casting="same_kind")
    if array.dtype.kind in "iu" and np.dtype(target).kind in "iu":
        limits = np.iinfo(target)
        fits = array.size == 0 or (array.min() >= limits.min and array.max() <= limits.max)
    if not fits:
        raise errors.InvalidArgumentError(
            f"{_short(value)} ({array.dtype}) cannot become {dtypes.name_of(dtype)} without loss; "
            "cast the tensor, or convert the value first"
        )


def _has_tensor(values: Sequence[Any]) -> bool:
    return any(
        _is_tensor(value)
        or (isinstance(value, (list, tuple)) and _has_tensor(value))
        for value in values
    )


def _stack(values: Sequence[Any], dtype: Any) -> Any:
    parts = align(*values) if dtype is None else [convert(value, dtype) for value in values]
    stack = getattr(_ops_module(), "stack", None)
    if stack is not None:
        return stack(parts)
    rows = [apply("Reshape", (part,), {"shape": [1, *part.shape]}) for part in parts]
    return apply("Concat", rows, {"axis": 0})


def _ops_module() -> Any:
    from .ops import array

    return array


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


from . import _graphs  # noqa: E402 - it needs what is above
