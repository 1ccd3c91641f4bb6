"""Takes NumPy arrays to the workers: as .npy files in memory, or in a temporary folder where there
is little of it, which every worker on this machine maps."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _native
from ._data_spec import DataSpec, LabelRule
from .errors import InvalidArgumentError

LABEL = "label"
#: What workers say of numbers that may be those of the data.
_NOT_FINITE = re.compile(r" is (nan|infinite) at step | predicts nan for ")
SHARED_MEMORY = "/dev/shm"
PREFIX = "sidereal-arrays-"

#: (name, dtype, shape with the batch first) of an input.
Input = tuple[str, str, Sequence[int]]
Arrays = Mapping[str, npt.ArrayLike]


def describe(inputs: Sequence[Input]) -> str:
    """"ids int64[?,8], label float32[?]"."""
    extents = [",".join("?" if n < 0 else str(n) for n in shape) for _, _, shape in inputs]
    return ", ".join(f"{name} {dtype}[{e}]" for (name, dtype, _), e in zip(inputs, extents))


def _texts(value: npt.ArrayLike, wanted: Input) -> np.ndarray:
    """Strings with the same room each, str as UTF-8, or InvalidArgumentError."""
    array = np.asarray(value)
    if array.dtype.kind in "SU":
        return array
    flat = [one.encode() if isinstance(one, str) else one for one in array.reshape(-1).tolist()]
    wrong = next((one for one in flat if not isinstance(one, bytes)), None)
    if wrong is not None:
        raise InvalidArgumentError(
            f"column '{wanted[0]}' has {wrong!r}; the input {describe([wanted])} takes str and "
            "bytes"
        )
    return np.array(flat, dtype=np.bytes_).reshape(array.shape)


def _column(value: npt.ArrayLike, wanted: Input) -> np.ndarray:
    """`value` as the input takes it, or InvalidArgumentError."""
    name, dtype, shape = wanted
    is_text = dtype == "string"
    array = _texts(value, wanted) if is_text else np.asarray(value)
    if not is_text and (
        array.dtype == object or not np.can_cast(array.dtype, dtype, casting="same_kind")
    ):
        raise InvalidArgumentError(
            f"column '{name}' is {array.dtype}, which the input {describe([wanted])} cannot take; "
            f"convert it with astype('{dtype}') if that is what you mean"
        )
    if name == LABEL and array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim == 1 and tuple(shape[1:]) == (1,):
        array = array[:, None]
    fits = array.ndim == len(shape) and all(
        n in (-1, extent) for n, extent in zip(shape[1:], array.shape[1:])
    )
    if not fits:
        raise InvalidArgumentError(
            f"column '{name}' has the shape {array.shape}; the input is {describe([wanted])}"
        )
    return np.ascontiguousarray(array, dtype=None if is_text else dtype)


def table_columns(data: Any) -> Any:
    """The columns of a table such as a pandas.DataFrame by name; other data as it is."""
    if isinstance(data, Mapping | DataSpec):
        return data
    # An Arrow table's `columns` are values.
    names = getattr(data, "column_names", None) or getattr(data, "columns", None)
    if names is None:
        return data
    return {str(name): np.asarray(data[name]) for name in names}


def _collected(inputs: Sequence[Input], data: Any) -> Any:
    """The columns of what gives batches (a DataLoader, a generator or a function that makes one):
    dicts by the names of inputs, or pairs of the one input, or such a dict, and the label."""
    batches = data() if callable(data) and not hasattr(data, "__iter__") else data
    if isinstance(batches, Mapping | str | bytes | np.ndarray) or not hasattr(batches, "__iter__"):
        return data
    features = [one[0] for one in inputs if one[0] != LABEL]
    parts: dict[str, list[np.ndarray]] = {}
    for number, batch in enumerate(batches):
        batch = table_columns(batch)
        if isinstance(batch, tuple | list) and len(batch) == 2:
            x = batch[0] if isinstance(batch[0], Mapping) else dict(zip(features, [batch[0]]))
            batch = {**x, LABEL: batch[1]}
        if not isinstance(batch, Mapping):
            raise TypeError(
                f"batch {number} is {type(batch).__name__}; each must be a dict of arrays by the "
                f"names of the inputs ({describe(inputs)}), or a pair of it and the label"
            )
        if parts and set(batch) != set(parts):
            raise InvalidArgumentError(
                f"batch {number} has {', '.join(map(str, batch))}, and those before "
                f"{', '.join(parts)}; all batches must have the same columns"
            )
        for name, value in batch.items():
            parts.setdefault(str(name), []).append(np.asarray(value))
    if not parts:
        raise InvalidArgumentError("the data gave no batches")
    return {name: np.concatenate(some) for name, some in parts.items()}


def _first_row(
    columns: Mapping[str, np.ndarray], kinds: str, is_bad: Callable[[np.ndarray], np.ndarray],
    what: str, among: npt.ArrayLike = True,
) -> str:  # fmt: skip
    """Where a column of some kinds is bad, in one of the rows that are meant; "" if nowhere."""
    for name, column in columns.items():
        if column.dtype.kind in kinds:
            bad = is_bad(column).reshape(len(column), -1).any(axis=1)
            rows = np.flatnonzero(np.logical_and(bad, among))
            if len(rows):
                return f"column '{name}' has {what} in row {rows[0]}"
    return ""


def _not_finite(columns: Mapping[str, np.ndarray], among: npt.ArrayLike = True) -> str:
    what = "a number that is not finite"
    place = _first_row(columns, "f", lambda column: ~np.isfinite(column), what, among)
    return place and f"{place}: fill it in, or leave the row out"


def _rows_of(error: str, columns: Mapping[str, np.ndarray]) -> str:
    """Where the columns have what a worker complains of, which knows its batch alone; "" if
    nowhere."""
    found = re.search(r"id (-?\d+) is outside", error)
    if found is not None:
        number = found[1]
        return _first_row(columns, "iu", lambda column: column == int(number), number)
    return _not_finite(columns) if _NOT_FINITE.search(error) else ""


def check_finite(spec: DataSpec, what: str, found: npt.ArrayLike) -> None:
    """InvalidArgumentError where what a model gives for each row, or for all of them, is not finite
    because arrays are not; a model may give such numbers of itself."""
    bad = ~np.isfinite(np.atleast_1d(found))
    bad = bad.reshape(len(bad), -1).any(axis=1)
    if bad.any():
        place = _not_finite({name: np.load(file, mmap_mode="r") for name, file in spec.arrays}, bad)
        if place:
            raise InvalidArgumentError(f"{what} is not finite: {place}")


def _check_schema(inputs: Sequence[Input], data: DataSpec) -> None:
    """That files have as many columns as the model's inputs "ids" and "dense" take."""
    if data.format not in ("csv", "criteo", "synthetic"):
        return
    schema = data.inspect()
    there = {
        "ids": ("categorical", schema.fields, schema.categorical),
        "dense": ("numeric", schema.dense_width, schema.numeric),
    }
    for wanted in inputs:
        name, _, shape = wanted
        if name not in there or len(shape) != 2 or shape[1] < 0:
            continue
        kind, count, names = there[name]
        if count != shape[1]:
            listed = f" ({', '.join(names)})" if names else ""
            raise InvalidArgumentError(
                f"the data has {count} {kind} columns{listed}, and the model's input is "
                f"{describe([wanted])}"
            )


def without_label(data: DataSpec) -> DataSpec:
    """Files with columns as predictions need them: new rows have no labels, weights and groups."""
    free = replace(
        data, label="", label_rule=LabelRule(), weight="", group="", targets=[], class_weights=[]
    )
    if data.categorical:
        return free
    unread = {data.label, data.weight, data.group, *data.targets}
    found = free.inspect().categorical
    return replace(free, categorical=[name for name in found if name not in unread])


def columns_for(inputs: Sequence[Input], data: Arrays, binary: bool) -> dict[str, np.ndarray]:
    """The columns of `data` a model reads, checked and converted, or InvalidArgumentError."""
    columns: dict[str, np.ndarray] = {}
    for item in inputs:
        if item[0] not in data:
            raise InvalidArgumentError(
                f"the data has no column '{item[0]}'; the model's inputs are {describe(inputs)}, "
                f"the data has: {', '.join(data) or 'nothing'}"
            )
        columns[item[0]] = _column(data[item[0]], item)
    rows = {name: len(column) for name, column in columns.items()}
    if len(set(rows.values())) > 1:
        raise InvalidArgumentError(
            "the columns differ in length: "
            + ", ".join(f"{name} has {n} rows" for name, n in rows.items())
        )
    if min(rows.values()) == 0:
        raise InvalidArgumentError("the data has no rows")
    if binary and LABEL in columns:
        values = columns[LABEL]
        bad = np.flatnonzero((values != 0) & (values != 1))
        if len(bad):
            raise InvalidArgumentError(
                f"the label of row {bad[0]} is {values[bad[0]]}; labels are 0 or 1"
            )
    return columns


def _parent(nbytes: int) -> str:
    """Memory if it has room, else the system's temporary folder."""
    with contextlib.suppress(OSError):
        free = shutil.disk_usage(SHARED_MEMORY).free
        if os.access(SHARED_MEMORY, os.W_OK | os.X_OK) and free > 2 * nbytes:
            return SHARED_MEMORY
    return tempfile.gettempdir()


def _remove_abandoned(parent: str) -> None:
    """Removes the folders of processes that were killed: nobody holds their locks."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if not entry.name.startswith(PREFIX):
                continue
            with contextlib.suppress(OSError):
                if entry.stat(follow_symlinks=False).st_uid != os.getuid():
                    continue
                handle = os.open(entry.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(entry.path, ignore_errors=True)
                finally:
                    os.close(handle)


@contextlib.contextmanager
def folder_for(nbytes: int) -> Iterator[str]:
    """A folder of this process with room for so much, locked and there as long as the context
    lasts. What killed processes have left of such folders goes before."""
    parent = _parent(nbytes)
    _remove_abandoned(parent)
    # It gets its name when it is locked: until then it is not one to be removed.
    made = tempfile.mkdtemp(prefix=f".{PREFIX}", dir=parent)
    folder = os.path.join(parent, os.path.basename(made)[1:])
    handle = os.open(made, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        os.rename(made, folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(made, ignore_errors=True)
        os.close(handle)


@contextlib.contextmanager
def _files_of(columns: Mapping[str, np.ndarray]) -> Iterator[list[tuple[str, str]]]:
    """(name, file) of each column. In memory the files have no name of their own: they end with
    this process, however it ends, and workers of this machine open them by it."""
    nbytes = sum(column.nbytes for column in columns.values())
    with contextlib.ExitStack() as opened:
        in_memory = _parent(nbytes) == SHARED_MEMORY and hasattr(os, "memfd_create")
        folder = "" if in_memory else opened.enter_context(folder_for(nbytes))
        files = []
        for index, (name, column) in enumerate(columns.items()):
            if in_memory:
                handle = os.memfd_create(f"{PREFIX}{name}"[:100])
                file = opened.enter_context(os.fdopen(handle, "wb"))
                path = f"/proc/{os.getpid()}/fd/{handle}"
            else:
                path = os.path.join(folder, f"{index}.npy")
                file = opened.enter_context(open(path, "wb"))
            np.save(file, column, allow_pickle=False)
            file.flush()
            files.append((name, path))
        yield files


@contextlib.contextmanager
def as_spec(
    inputs: Sequence[Input], data: DataSpec | Arrays, *, binary: bool = True,
    shuffle: bool = False, seed: int = 0, group: str | None = None,
) -> Iterator[DataSpec]:
    """The spec of `data`, of which `inputs` are read; arrays are in files as long as the context
    lasts. binary: labels are 0 or 1. group: a column that is there besides, int64 by row."""
    if isinstance(data, DataSpec):
        _check_schema(inputs, data)
        # Workers have working directories of their own.
        known = replace(
            data, files=[_native.absolute_name(file) for file in data.files],
            binary_label=data.binary_label and binary,
        )  # fmt: skip
        yield known if shuffle else known.in_order()
        return
    data = table_columns(data)
    if not isinstance(data, Mapping):
        data = _collected(inputs, data)
    if not isinstance(data, Mapping):
        raise TypeError(
            f"data is {type(data).__name__}; give a dict of arrays by the names of the inputs "
            f"({describe(inputs)}), a DataFrame, an Arrow table, something that gives batches, or "
            "a spec of sidereal.data"
        )
    columns = columns_for(inputs, data, binary)
    if group is not None and group not in columns:
        if group not in data:
            raise InvalidArgumentError(
                f"rows are to be grouped by '{group}', which the data does not have; its columns "
                f"are {', '.join(map(str, data))}"
            )
        columns[group] = _column(data[group], (group, "int64", [-1]))
    with _files_of(columns) as arrays:
        spec = DataSpec(format="arrays", arrays=arrays, label=LABEL if LABEL in columns else "",
                        binary_label=binary, seed=seed)
        try:
            yield replace(spec, shuffle_rows=1 if shuffle else 0)
        except InvalidArgumentError as error:
            text = str(error)
            for name, file in arrays:
                text = text.replace(file, f"column '{name}'")
            place = _rows_of(text, columns)
            if not place and text == str(error):
                raise
            raise InvalidArgumentError(f"{text}; {place}" if place else text) from None
