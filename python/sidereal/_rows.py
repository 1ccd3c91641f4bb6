"""Rows of files as a model takes them: its inputs, labels, and columns that are kept."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from . import _native, errors
from ._arrays import folder_for
from ._data_spec import DataSpec, LabelRule
from ._object_tree import some
from ._predictors import Predictor
from ._remote_files import open_file, said_of
from ._table_cells import text_pieces
from ._table_readers import PACKED_ERRORS, batches, damaged, unpacked
from .data import Dataset

#: Rows that are handed to the reader at once, and what it is told that their labels are called.
_CHUNK_ROWS = 1 << 16
_LABEL = "label of the row"
#: Fields that are no UTF-8 stay the bytes that they are.
_ERRORS = "surrogateescape"
#: How many columns an error names, and how much of each: a file that is none may have anything.
_NAMES_SHOWN, _NAME_SHOWN = 50, 60


@dataclass
class Batch:
    """Some rows."""

    inputs: dict[str, npt.NDArray[Any]]
    labels: npt.NDArray[np.float32] | None
    #: Fields of the columns that are kept, row by row.
    kept: list[list[str]]
    #: The number of rows before these.
    begin: int
    count: int


class _Pieces(io.RawIOBase):
    """Pieces of bytes, one after another, as a file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._left = pieces, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._left = memoryview(piece)
        count = min(len(buffer), len(self._left))
        buffer[:count], self._left = self._left[:count], self._left[count:]
        return count


class Table:
    """A table in a file (table_formats()), as text."""

    def __init__(self, path: str, delimiter: str) -> None:
        self.path, self._delimiter = path, delimiter
        self._format, self._place, self._is_fed = _native.table_file(path)
        if self._format == "tsv" and delimiter == ",":
            self._delimiter = "\t"
        if self._format not in ("csv", "tsv"):
            self._delimiter = ","
        with self._opened() as file:
            self.columns = [name.strip() for name in next(self._known(self._lines(file)), [])]
        if not self.columns:
            raise errors.InvalidArgumentError(
                f"{path} is empty; its first line must name the columns"
            )

    def schema(self) -> Any:
        """The Arrow schema of a file that has types; None of text."""
        if self._format in ("csv", "tsv"):
            return None
        first = next(batches(self._place, self._format), None)
        return None if first is None else first[0].schema

    def _opened(self) -> TextIO:
        if self._format not in ("csv", "tsv"):
            found = batches(self._place, self._format)
            texts = (
                text
                for number, (batch, _) in enumerate(found)
                for text in text_pieces(batch, ",", not number)
            )
            return io.TextIOWrapper(io.BufferedReader(_Pieces(texts)), "utf-8", _ERRORS, "")
        if self._is_fed:
            text = unpacked(open_file(self._place))
            return io.TextIOWrapper(text, "utf-8-sig", _ERRORS, "")
        try:
            file = open(self._place, "rb")  # noqa: SIM115 - the text around it closes it.
        except FileNotFoundError:
            raise errors.NotFoundError(f"there is no file {self.path}") from None
        except IsADirectoryError:
            raise errors.InvalidArgumentError(f"{self.path} is a folder; give a file") from None
        is_packed = file.peek(2)[:2] == b"\x1f\x8b"
        return io.TextIOWrapper(
            gzip.GzipFile(fileobj=file) if is_packed else file, "utf-8-sig", _ERRORS, ""
        )

    def _lines(self, file: TextIO) -> Iterator[list[str]]:
        return (row for row in csv.reader(file, delimiter=self._delimiter) if row)

    def _known(self, lines: Iterator[list[str]]) -> Iterator[list[str]]:
        """The lines; what fails names the file."""
        try:
            yield from lines
        except PACKED_ERRORS as error:
            raise damaged(self.path, error) from None
        except OSError as error:
            raise said_of(self.path, error) from None

    def place(self, name: str, why: str) -> int:
        """The number of a column; `why` it is wanted."""
        if name not in self.columns:
            there = some([column[:_NAME_SHOWN] for column in self.columns], _NAMES_SHOWN)
            raise errors.InvalidArgumentError(
                f"{self.path} has no column '{name}', {why}; it has: {there}"
            )
        return self.columns.index(name)

    def rows(self) -> Iterator[list[str]]:
        """The fields of each row, in order."""
        with self._opened() as file:
            for number, row in enumerate(self._known(self._lines(file))):
                if len(row) != len(self.columns):
                    raise errors.InvalidArgumentError(
                        f"{self.path}: row {number} has {len(row)} fields where the header names "
                        f"{len(self.columns)} columns"
                    )
                if number:
                    yield row


class _Column:
    """One column that is a part of an input."""

    def __init__(self, table: Table, name: str, kind: str, why: str) -> None:
        self.name, self._table, self._kind = name, table, kind
        self._at = table.place(name, why)

    def values(self, rows: Sequence[list[str]], begin: int) -> Any:
        texts = [row[self._at] for row in rows]
        if self._kind == "string":
            return texts
        convert: Any = float if "float" in self._kind else int
        try:
            return [convert(text) for text in texts]
        except ValueError:
            return self._complain(texts, convert, begin)

    def _complain(self, texts: Sequence[str], convert: Any, begin: int) -> Any:
        for number, text in enumerate(texts):
            try:
                convert(text)
            except ValueError:
                raise errors.InvalidArgumentError(
                    f"{self._table.path}: row {begin + number + 1}, column '{self.name}' is "
                    f"'{text}', where the model takes {self._kind}; correct it, or leave the row "
                    "out"
                ) from None
        raise AssertionError("one of them is wrong")


class Rows:
    """The rows of a file, by batches in order.

    label: the name of the column with labels, or that of the data that the model was trained on;
        None: labels are not read.
    keep: columns whose texts are kept; "all".
    """

    def __init__(
        self, predictor: Predictor, path: str, batch_size: int, *, label: str | None = None,
        keep: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self._model, self._path, self._size = predictor, path, batch_size
        self._label, self._keep = label, list(keep)
        data = predictor.data
        has_header = data is None or data.format == "csv"
        if data is not None and data.format not in ("csv", "criteo", "libsvm"):
            raise errors.InvalidArgumentError(
                f"{predictor.where} is of data of the format {data.format}, which is in no file "
                "like " + path
            )
        if keep and not has_header:
            raise errors.InvalidArgumentError(
                f"{path}: columns have no names in this format, so that none can be kept"
            )
        delimiter = "," if data is None else data.delimiter
        self._table = Table(path, delimiter) if has_header else None
        self.kept = self._kept_names()

    def _kept_names(self) -> list[str]:
        if self._table is None:
            return []
        if self._keep == ["all"]:
            return list(self._table.columns)
        for name in self._keep:
            self._table.place(name, "which is to be kept")
        return self._keep

    def kept_types(self) -> list[Any]:
        """Arrow's types of the kept columns; None of one that is text."""
        schema = None if self._table is None or not self.kept else self._table.schema()
        if schema is None:
            return [None] * len(self.kept)
        return [schema.field(name).type if name in schema.names else None for name in self.kept]

    def __iter__(self) -> Iterator[Batch]:
        data = self._model.data
        return self._by_names() if data is None else self._by_spec(data)

    def _texts(self, rows: Sequence[list[str]]) -> list[list[str]]:
        assert self._table is not None
        places = [self._table.columns.index(name) for name in self.kept]
        return [[row[at] for at in places] for row in rows]

    # ---- an input is a column of its name, or several ---------------------------------------

    def _columns_of(self, name: str) -> list[_Column]:
        kind, shape = self._model.inputs[name]
        table, where = self._table, self._model.where
        assert table is not None
        if any(n is None for n in shape[1:]) or not shape:
            raise errors.InvalidArgumentError(
                f"{where}: its input '{name}' has the shape {list(shape)}, which no columns say; "
                "export it with a description of its data (--model model.json)"
            )
        count = math.prod(int(n or 1) for n in shape[1:])
        names = [name] if count == 1 else [f"{name}_{i}" for i in range(count)]
        why = f"which is {'a part of ' if count > 1 else ''}the input '{name}' of {where}"
        return [_Column(table, one, kind, why) for one in names]

    def _by_names(self) -> Iterator[Batch]:
        table = self._table
        assert table is not None
        columns = {name: self._columns_of(name) for name in self._model.inputs}
        label = None
        if self._label is not None:
            label = _Column(table, self._label, "float32", "which has the labels")
        rows, begin = table.rows(), 0
        while some := list(itertools.islice(rows, self._size)):
            inputs = {}
            for name, parts in columns.items():
                kind, shape = self._model.inputs[name]
                values = [part.values(some, begin) for part in parts]
                array = np.array(values, object if kind == "string" else kind)
                inputs[name] = array.T.reshape(len(some), *(int(n or 1) for n in shape[1:]))
            labels = None
            if label is not None:
                labels = np.array(label.values(some, begin), np.float32)
            yield Batch(inputs, labels, self._texts(some), begin, len(some))
            begin += len(some)

    # ---- as the model was trained -------------------------------------------------------------

    def _by_spec(self, data: DataSpec) -> Iterator[Batch]:
        spec = replace(
            data, bad_rows="fail", shuffle_rows=0, weight="", targets=[], group="",
            class_weights=[],
            binary_label=data.binary_label and self._model.is_binary is not False,
        )  # fmt: skip
        if self._table is None:
            spec = replace(spec, files=[self._path])
            for begin, known in self._read(spec, 0):
                count = len(known["label"])
                yield self._batch(known, [[] for _ in range(count)], begin)
            return
        # The reader wants labels, and knows no rows: it is given what it is to read.
        others = [one.column for one in spec.bucketized] + [one.column for one in spec.sequences]
        names = list(dict.fromkeys([*spec.numeric, *spec.categorical, *others]))
        why = f"which {self._model.where} predicts from"
        places = [self._table.place(name, why) for name in names]
        label = None
        if self._label is not None:
            label = self._table.place(self._label, "which has the labels")
        spec = replace(spec, label=_LABEL)
        if label is None:
            spec = replace(spec, label_rule=LabelRule())
        rows, begin = self._table.rows(), 0
        with folder_for(_CHUNK_ROWS * 100) as folder:
            chunk = os.path.join(folder, "rows.csv")
            spec = replace(spec, files=[chunk])
            while some := list(itertools.islice(rows, max(_CHUNK_ROWS, self._size))):
                with open(chunk, "w", encoding="utf-8", errors=_ERRORS, newline="") as out:
                    writer = csv.writer(out, delimiter=spec.delimiter, lineterminator="\n")
                    writer.writerow([_LABEL, *names])
                    for row in some:
                        known_label = "0" if label is None else row[label]
                        writer.writerow([known_label, *(row[at] for at in places)])
                try:
                    for at, known in self._read(spec, begin):
                        texts = some[at - begin : at - begin + len(known["label"])]
                        yield self._batch(known, self._texts(texts), at)
                except errors.Error as error:
                    error.message = self._said_of(chunk, begin, error.message)
                    raise
                begin += len(some)

    def _read(self, spec: DataSpec, begin: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """Batches as the reader gives them, with the number of rows before each."""
        for batch in Dataset.from_spec(spec, self._size):
            known = {name: value.numpy() for name, value in batch.items()}
            yield begin, known
            begin += len(known["label"])

    def _batch(self, known: dict[str, Any], kept: list[list[str]], begin: int) -> Batch:
        for name in self._model.inputs:
            if name not in known:
                raise errors.InvalidArgumentError(
                    f"{self._path} gives {', '.join(sorted(set(known) - {'label'}))}, and not the "
                    f"input '{name}' of {self._model.where}; a model that takes vectors is fed by "
                    "a program: export it with --inputs ids"
                )
        inputs = {name: known[name] for name in self._model.inputs}
        labels = known["label"] if self._label is not None else None
        return Batch(inputs, labels, kept, begin, len(known["label"]))

    def _said_of(self, chunk: str, begin: int, message: str) -> str:
        """What is said of rows of a chunk, as of the file."""

        def place(found: re.Match[str]) -> str:
            return f"{self._path}: row {begin + int(found[1]) - 1}"

        message = re.sub(re.escape(chunk) + r":(\d+)", place, message)
        message = message.replace(chunk, self._path)
        return message.replace(f"'{_LABEL}'", f"'{self._label}'")


__all__ = ["Batch", "Rows"]
