"""`sidereal predict`: predictions of a model for the rows of a file."""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from . import errors
from ._config_file import add_config_option, parse
from ._files import written_whole
from ._predictors import one_output, open_model
from ._rows import Rows

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
    out = argparse.ArgumentParser(
        prog="sidereal predict",
        description="Writes what a model predicts for each row of a file, in order.",
        epilog="Columns become inputs as when the model was trained, where the model says how; "
        "else an input x is the column x, or the columns x_0, x_1, ... A label is not needed.",
    )
    add_model_options(out)
    add_config_option(out)
    out.add_argument("--data", required=True, metavar="FILE", help="rows, plain or gzip")
    out.add_argument("--out", default="-", metavar="FILE", help="CSV; - is standard output (-)")
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


def predict(options: argparse.Namespace) -> int:
    """Writes the predictions; the number of rows."""
    predictor = open_model(options.model, options.checkpoint)
    rows = Rows(predictor, options.data, options.batch_size, keep=options.keep)
    done = 0
    with _opened(options.out) as file:
        writer = csv.writer(file, lineterminator="\n")
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
                writer.writerow([*rows.kept, *made])
            done += batch.count
            for kept, values in zip(batch.kept, found):
                writer.writerow([*kept, *map(_text, values)])
        if not done:
            raise errors.InvalidArgumentError(f"{options.data} has no rows")
    return done


def failed(command: str, error: Exception) -> int:
    """Says what went wrong; the exit code."""
    print(f"sidereal {command}: error: {getattr(error, 'message', error)}", file=sys.stderr)
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
