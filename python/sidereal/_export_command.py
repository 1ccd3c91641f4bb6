"""`sidereal export`: a checkpoint as a file for programs that serve."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from . import errors, models, onnx
from ._exporting import FORMATS
from ._predict_command import failed, names
from ._predictors import keras_model, kind_of
from ._usage import Parser

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def bytes_of(text: str) -> int:
    """A number of bytes: 1000, 64M, 1G."""
    number = text.rstrip("kKmMgG")
    unit = text[len(number) :].lower()
    if not number.isdecimal() or unit not in _UNITS:
        raise argparse.ArgumentTypeError(f"{text} is no number of bytes such as 1000, 64M or 1G")
    return int(number) * _UNITS[unit]


def parser() -> argparse.ArgumentParser:
    out = Parser(
        prog="sidereal export",
        description="Makes a file for programs that serve of a checkpoint, without a cluster.",
        epilog="What the model is stands in model.json beside the checkpoints, or is a .keras "
        "file.",
    )
    out.add_argument(
        "--checkpoint", metavar="PREFIX|DIR",
        help="which values; of a folder the newest. A .keras file has values itself",
    )  # fmt: skip
    out.add_argument(
        "--model", metavar="M",
        help="model.json, the folder it is in, or a .keras file (model.json beside the checkpoint)",
    )  # fmt: skip
    out.add_argument("--format", choices=FORMATS, default="saved_model", help="(saved_model)")
    out.add_argument("--out", required=True, metavar="FILE", help="the file to write")
    out.add_argument(
        "--inputs", choices=("ids", "vectors"), default="ids",
        help="vectors: rows of tables in the place of ids; the tables are not in the file (ids)",
    )  # fmt: skip
    out.add_argument(
        "--tables", type=names, metavar="NAMES",
        help="of --format tables: which, a,b (all that rows are taken from by ids)",
    )  # fmt: skip
    out.add_argument(
        "--external-data", type=bytes_of, default=onnx.EXTERNAL_DATA_BYTES, metavar="BYTES",
        help="of ONNX: tables of so many bytes are in a file OUT.data (1G)",
    )  # fmt: skip
    return out


def _model_of(options: argparse.Namespace) -> str:
    """Where the model is described."""
    if options.model is not None:
        return str(options.model)
    if options.checkpoint is None:
        raise errors.InvalidArgumentError("give --checkpoint, or --model with a .keras file")
    given = os.fspath(options.checkpoint)
    return given if os.path.isdir(given) else os.path.dirname(given) or "."


def _export_keras(path: str, options: argparse.Namespace) -> None:
    model = keras_model(path, options.checkpoint)
    if options.inputs == "vectors" and options.format != "onnx":
        raise errors.InvalidArgumentError(
            f"--inputs vectors of a Keras model is of --format onnx, and not {options.format}"
        )
    if options.tables is not None:
        raise errors.InvalidArgumentError("--tables is of models that model.json describes")
    if options.format != "onnx":
        kind = "tf_saved_model" if options.format == "saved_model" else "tables"
        model.export(options.out, format=kind)
        return
    model.export(
        options.out, format="onnx", inputs=options.inputs,
        external_data_bytes=options.external_data,
    )  # fmt: skip


def export(options: argparse.Namespace) -> None:
    """Writes the file."""
    path = _model_of(options)
    kind = kind_of(path)
    if kind == "keras":
        _export_keras(path, options)
        return
    if kind != "description":
        raise errors.InvalidArgumentError(
            f"{path} is exported already; --model is model.json or a .keras file"
        )
    description = models.ModelDescription.load(path)
    checkpoint = options.checkpoint or os.path.dirname(os.path.abspath(description.where))
    models.export(
        description, checkpoint, options.out, options.format, inputs=options.inputs,
        tables=options.tables, external_data_bytes=options.external_data,
    )  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """`sidereal export ARGUMENTS`: the exit code."""
    options = parser().parse_args(arguments)
    try:
        export(options)
    except (errors.Error, OSError, ValueError, TypeError) as error:
        return failed("export", error)
    print(options.out)
    return 0
