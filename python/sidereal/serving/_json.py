"""Requests and answers of TensorFlow Serving's REST form, as columns of arrays."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from .. import errors

Shape = tuple[int | None, ...]
Inputs = Mapping[str, tuple[str, Shape]]

#: Kinds of numbers that become others without losing anything that JSON said.
_ALLOWED = {"f": "iuf", "i": "iu", "u": "iu", "b": "b"}
_CALLED = {"f": "numbers", "i": "whole numbers", "u": "whole numbers", "b": "true or false"}


def parse(body: bytes) -> dict[str, Any]:
    """The object of a request's body."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        found = _with_infinities(body, error)
    if not isinstance(found, dict):
        raise errors.InvalidArgumentError("the body is JSON, and no object {...}")
    return found


def _with_infinities(body: bytes, error: Exception) -> Any:
    """NaN and Infinity are no JSON, but TensorFlow Serving takes and gives them."""
    if b"NaN" in body or b"Infinity" in body:
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as other:
            error = other
    raise errors.InvalidArgumentError(f"the body is no JSON: {error}") from None


def _text_of(name: str, value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"b64"}:
        try:
            return base64.b64decode(value["b64"], validate=True)
        except (binascii.Error, ValueError, TypeError) as error:
            raise errors.InvalidArgumentError(f"'{name}': bad b64: {error}") from None
    raise errors.InvalidArgumentError(
        f"'{name}' takes texts, or bytes as {{\"b64\": ...}}, and not {_short(value)}"
    )


def _texts(name: str, value: Any, rank: int) -> npt.NDArray[Any]:
    def bytes_of(part: Any, depth: int) -> Any:
        if not isinstance(part, list):
            return _text_of(name, part)
        if depth == 0:
            raise _wrong(name, f"texts in lists {rank} deep", "deeper ones")
        return [bytes_of(item, depth - 1) for item in part]

    try:
        made = np.array(bytes_of(value, rank), object)
    except ValueError as error:
        if isinstance(error, errors.Error):
            raise
        raise _wrong(name, "lists of equal lengths", str(error)) from None
    if any(type(item) is not bytes for item in made.flat):
        raise _wrong(name, "lists of equal lengths", "lists of different ones")
    return made


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _wrong(name: str, wanted: str, found: str) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(f"'{name}' takes {wanted}, and not {found}")


def _array(name: str, value: Any, kind: str, shape: Shape) -> npt.NDArray[Any]:
    """Nested lists as an array of an input's dtype and shape."""
    if kind == "string":
        made = _texts(name, value, len(shape))
    else:
        try:
            found = np.array(value)
        except (ValueError, OverflowError) as error:
            raise _wrong(name, "lists of equal lengths", f"these ({error})") from None
        dtype = np.dtype(kind)
        if found.size and found.dtype.kind not in _ALLOWED[dtype.kind]:
            raise _wrong(name, f"{_CALLED[dtype.kind]} ({kind})", _short(value))
        if dtype.kind in "iu" and found.dtype != dtype and found.size:
            limits = np.iinfo(dtype)
            if int(found.min()) < limits.min or int(found.max()) > limits.max:
                raise _wrong(name, f"numbers from {limits.min} to {limits.max} ({kind})", "others")
        with np.errstate(over="ignore"):
            made = found.astype(dtype, copy=False)
    check_shape(name, made.shape, shape)
    return made


def check_shape(name: str, found: tuple[int, ...], shape: Shape) -> None:
    """InvalidArgumentError for an array that an input does not take."""
    if len(found) == len(shape):
        for given, wanted in zip(found, shape):
            if given != wanted and wanted is not None:
                break
        else:
            return
    wanted_shape = ["?" if extent is None else extent for extent in shape]
    raise errors.InvalidArgumentError(
        f"'{name}' has the shape {list(found)}, and the model takes "
        f"[{', '.join(map(str, wanted_shape))}]"
    )


def columns_of_instances(instances: Any, inputs: Inputs) -> dict[str, npt.NDArray[Any]]:
    """Inputs of the row format: a list with an object, or the value of the only input, by row."""
    if not isinstance(instances, list) or not instances:
        raise errors.InvalidArgumentError('"instances" is to be a list with one row at least')
    if len(inputs) == 1:
        (name, (kind, shape)), = inputs.items()
        first = instances[0]
        if not isinstance(first, dict) or (first.keys() == {"b64"} and kind == "string"):
            return {name: _array(name, instances, kind, shape)}
    count = len(inputs)
    try:
        values = {name: [row[name] for row in instances] for name in inputs}
        is_whole = all(len(row) == count for row in instances)
    except (KeyError, TypeError, IndexError):
        is_whole = False
    if not is_whole:
        raise _which_row(instances, inputs)
    return {name: _array(name, values[name], *inputs[name]) for name in inputs}


def _which_row(instances: Sequence[Any], inputs: Inputs) -> errors.InvalidArgumentError:
    for number, row in enumerate(instances):
        if not isinstance(row, dict):
            return errors.InvalidArgumentError(
                f"instance {number} is {_short(row)}, and no object with {', '.join(inputs)}"
            )
        _check_names(f"instance {number}", row, inputs)
    raise AssertionError("no instance is wrong")


def _check_names(what: str, given: Mapping[str, Any], inputs: Inputs) -> None:
    for name in inputs:
        if name not in given:
            raise errors.InvalidArgumentError(
                f"{what} has no '{name}'; the inputs are {', '.join(inputs)}"
            )
    for name in given:
        if name not in inputs:
            raise errors.InvalidArgumentError(
                f"{what} has '{name}', and the inputs are {', '.join(inputs)}"
            )


def columns_of_inputs(given: Any, inputs: Inputs) -> dict[str, npt.NDArray[Any]]:
    """Inputs of the column format: an object of tensors, or the value of the only input."""
    if len(inputs) == 1 and (not isinstance(given, dict) or given.keys() == {"b64"}):
        (name, (kind, shape)), = inputs.items()
        return {name: _array(name, given, kind, shape)}
    if not isinstance(given, dict):
        raise errors.InvalidArgumentError(
            f'"inputs" is to be an object with {", ".join(inputs)}'
        )
    _check_names('"inputs"', given, inputs)
    return {name: _array(name, given[name], *inputs[name]) for name in inputs}


def columns_of_request(said: Mapping[str, Any], inputs: Inputs) -> dict[str, npt.NDArray[Any]]:
    """Inputs of a request for predictions."""
    if ("instances" in said) == ("inputs" in said):
        raise errors.InvalidArgumentError('give "instances" (rows) or "inputs" (columns)')
    if "instances" in said:
        return columns_of_instances(said["instances"], inputs)
    return columns_of_inputs(said["inputs"], inputs)


def rows_of(columns: Mapping[str, npt.NDArray[Any]], inputs: Inputs) -> int | None:
    """How many rows there are; None where inputs have no open extent, or not the same, in front."""
    rows = None
    for name, array in columns.items():
        shape = inputs[name][1]
        if not shape or shape[0] is not None or (rows is not None and len(array) != rows):
            return None
        rows = len(array)
    return rows


def _plain(name: str, array: npt.NDArray[Any]) -> Any:
    """Strings as what JSON holds: texts, or bytes in b64 where they are none or are called so."""
    if array.dtype.kind not in "OSU":
        return np.ascontiguousarray(array) if array.ndim else array.item()

    def said(value: Any) -> Any:
        if isinstance(value, list):
            return [said(item) for item in value]
        raw = value.encode() if isinstance(value, str) else bytes(value)
        if not name.endswith("_bytes"):
            try:
                return raw.decode()
            except UnicodeDecodeError:
                pass
        return {"b64": base64.b64encode(raw).decode()}

    return said(array.tolist())


def to_json(value: Any, are_finite: bool = True) -> bytes:
    """JSON of lists, objects and arrays; NaN and infinities as TensorFlow Serving writes them."""
    if are_finite:
        return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    return json.dumps(value, default=lambda array: array.tolist()).encode()


def _are_finite(outputs: Mapping[str, npt.NDArray[Any]]) -> bool:
    return all(
        array.dtype.kind != "f" or bool(np.isfinite(array).all()) for array in outputs.values()
    )


def predictions(outputs: Mapping[str, npt.NDArray[Any]], by_row: bool) -> bytes:
    """The body of an answer, in the format of the request."""
    plain = {name: _plain(name, array) for name, array in outputs.items()}
    are_finite = _are_finite(outputs)
    if not by_row:
        made = next(iter(plain.values())) if len(plain) == 1 else plain
        return to_json({"outputs": made}, are_finite)
    counts = {len(array) if array.ndim else -1 for array in outputs.values()}
    if len(counts) != 1 or -1 in counts:
        raise errors.InvalidArgumentError(
            "what the model gives is not by rows: "
            + ", ".join(f"'{name}' {list(array.shape)}" for name, array in outputs.items())
            + '; ask with "inputs"'
        )
    if len(plain) == 1:
        return to_json({"predictions": next(iter(plain.values()))}, are_finite)
    lists = [
        value if isinstance(value, list) else value.tolist() for value in plain.values()
    ]
    rows = [dict(zip(plain, row)) for row in zip(*lists)]
    return to_json({"predictions": rows}, are_finite)


__all__ = [
    "check_shape", "columns_of_instances", "columns_of_request", "parse", "predictions", "rows_of",
    "to_json",
]  # fmt: skip
