"""`sidereal predict`: predictions of a model for the rows of a file."""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from . import _native, errors
from ._config_file import add_config_option, parse
from ._files import written_whole
from ._predictors import one_output, open_model
from ._remote_files import needed
from ._rows import Rows
from ._usage import Parser, say

ERROR = 1


def names(text: str) -> list[str]:
    """A list of an option: names with commas between them."""
    return [name.strip() for name in text.split(",") if name.strip()]


def positive(text: str) -> int:
    """A number of an option that is 1 or more."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return value


def add_model_options(out: argparse.ArgumentParser) -> None:
    """The options that say which model is meant."""
    out.add_argument(
        "--model", required=True, metavar="M",
        help="what `sidereal export` wrote, a .keras file, or model.json or the folder it is in",
    )  # fmt: skip
    out.add_argument(
        "--checkpoint", metavar="PREFIX|DIR",
        help="what model.json or a .keras file takes its values from; of a folder the newest",
    )  # fmt: skip


def parser() -> argparse.ArgumentParser:
    out = Parser(
        prog="sidereal predict",
        description="Writes what a model predicts for each row of a file, in order.",
        epilog="Columns become inputs as when the model was trained, where the model says how; "
        "else an input x is the column x, or the columns x_0, x_1, ... A label is not needed.",
    )
    add_model_options(out)
    add_config_option(out)
    out.add_argument(
        "--data", required=True, metavar="FILE",
        help="rows: a table in any format that train reads, here or elsewhere (s3://, http://)",
    )  # fmt: skip
    out.add_argument(
        "--out", default="-", metavar="FILE",
        help="CSV, or by its ending Parquet, JSON lines or Arrow; - is standard output (-)",
    )  # fmt: skip
    out.add_argument(
        "--keep", type=names, default=[], metavar="COLUMNS",
        help="columns that stand before the prediction: a,b or all (none)",
    )  # fmt: skip
    out.add_argument("--output", metavar="NAME", help="which output, of a model with several")
    out.add_argument("--batch-size", type=positive, default=4096, metavar="N", help="(4096)")
    return out


@contextlib.contextmanager
def _opened(path: str) -> Iterator[TextIO]:
    if path == "-":
        yield sys.stdout
        return
    with written_whole(Path(path)) as file:
        text = io.TextIOWrapper(file, "utf-8", "surrogateescape", "", write_through=True)
        yield text
        text.flush()
        text.detach()


def _text(value: Any) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


def _columns(found: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
    """Predictions as [rows, columns]."""
    if not found.ndim or len(found) != count:
        raise errors.InvalidArgumentError(
            f"the model gives {list(found.shape)} for {count} rows, and not something for each"
        )
    return found.reshape(count, -1)


class _CsvOut:
    """Predictions as CSV, or TSV."""

    def __init__(self, path: str, delimiter: str) -> None:
        self._opened = _opened(path)
        self._delimiter = delimiter

    def __enter__(self) -> _CsvOut:
        file = self._opened.__enter__()
        self._writer = csv.writer(file, delimiter=self._delimiter, lineterminator="\n")
        return self

    def __exit__(self, *error: Any) -> None:
        self._opened.__exit__(*error)

    def begin(self, kept: Sequence[str], made: Sequence[str]) -> None:
        self._writer.writerow([*kept, *made])

    def write(self, kept: Sequence[Sequence[str]], found: npt.NDArray[Any]) -> None:
        for texts, values in zip(kept, found):
            self._writer.writerow([*texts, *map(_text, values)])


def _json_value(value: Any) -> Any:
    """JSON has no NaN and no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


class _ArrowOut:
    """Predictions in a format with types: kept columns have those of the file they are from."""

    def __init__(self, path: str, format: str, types: Sequence[Any]) -> None:
        self._path, self._format, self._types = path, format, types
        self._arrow = needed("pyarrow", path)
        self._opened = contextlib.ExitStack()
        self._writer: Any = None

    def __enter__(self) -> _ArrowOut:
        self._file = self._opened.enter_context(written_whole(Path(self._path)))
        return self

    def __exit__(self, *error: Any) -> None:
        self._opened.__exit__(*error)

    def begin(self, kept: Sequence[str], made: Sequence[str]) -> None:
        self._kept, self._made = kept, made

    def write(self, kept: Sequence[Sequence[str]], found: npt.NDArray[Any]) -> None:
        columns = {}
        for at, (name, kind) in enumerate(zip(self._kept, self._types)):
            columns[name] = self._column([texts[at] for texts in kept], kind)
        for at, name in enumerate(self._made):
            values = found[:, at]
            is_text = values.dtype == object
            columns[name] = self._arrow.array(list(map(_text, values)) if is_text else values)
        table = self._arrow.table(columns)
        if self._format == "json_lines":
            for row in table.to_pylist():
                known = {name: _json_value(value) for name, value in row.items()}
                self._file.write(json.dumps(known, default=str).encode() + b"\n")
            return
        if self._writer is None:
            module = "pyarrow.parquet" if self._format == "parquet" else "pyarrow.ipc"
            kind = "ParquetWriter" if self._format == "parquet" else "RecordBatchFileWriter"
            self._writer = getattr(needed(module, self._path), kind)(self._file, table.schema)
            self._opened.callback(self._writer.close)
        self._writer.write_table(table)

    def _column(self, texts: list[str], kind: Any) -> Any:
        types = self._arrow.types
        is_plain = kind is not None and (types.is_primitive(kind) or types.is_decimal(kind))
        if not is_plain:
            return self._arrow.array(texts, self._arrow.string())
        cells = self._arrow.array([text or None for text in texts], self._arrow.string())
        # Arrow makes times of the times of days, and durations of numbers, but neither of text.
        if types.is_time(kind):
            compute = needed("pyarrow.compute", self._path)
            cells = compute.binary_join_element_wise("1970-01-01", cells, " ")
            cells = cells.cast(self._arrow.timestamp(kind.unit))
        elif types.is_duration(kind):
            cells = cells.cast(self._arrow.int64())
        return cells.cast(kind)


def _out(path: str, rows: Rows) -> _CsvOut | _ArrowOut:
    """What writes to the file, by its ending."""
    kind, place, _ = _native.table_file(path)
    if "://" in place:
        raise errors.InvalidArgumentError(
            f"--out {path}: predictions are written on this machine; copy them from there"
        )
    if path == "-" or kind in ("csv", "tsv"):
        return _CsvOut(place, "\t" if kind == "tsv" else ",")
    if kind not in ("parquet", "json_lines", "arrow"):
        raise errors.InvalidArgumentError(
            f"--out {path}: {kind} is not written; end it with .csv, .tsv, .parquet, .jsonl or "
            ".arrow"
        )
    return _ArrowOut(place, kind, rows.kept_types())


def predict(options: argparse.Namespace) -> int:
    """Writes the predictions; the number of rows."""
    predictor = open_model(options.model, options.checkpoint)
    rows = Rows(predictor, options.data, options.batch_size, keep=options.keep)
    done = 0
    with _out(options.out, rows) as out:
        for batch in rows:
            given = predictor.call(batch.inputs)
            output = one_output(predictor, list(given), options.output)
            found = _columns(np.asarray(given[output]), batch.count)
            if not done:
                width = found.shape[1]
                made = [f"prediction_{i}" for i in range(width)] if width > 1 else ["prediction"]
                for name in set(made) & set(rows.kept):
                    raise errors.InvalidArgumentError(
                        f"{options.data} has a column '{name}' itself; do not --keep it"
                    )
                out.begin(rows.kept, made)
            done += batch.count
            out.write(batch.kept, found)
        if not done:
            raise errors.InvalidArgumentError(f"{options.data} has no rows")
    return done


def failed(command: str, error: Exception) -> int:
    """Says what went wrong; the exit code."""
    say(command, f"error: {getattr(error, 'message', error)}")
    return ERROR


def main(arguments: Sequence[str]) -> int:
    """`sidereal predict ARGUMENTS`: the exit code."""
    options = parse(parser(), arguments)
    try:
        done = predict(options)
    except (errors.Error, OSError, ValueError) as error:
        return failed("predict", error)
    if options.out != "-":
        print(f"{done} rows: {options.out}")
    return 0
