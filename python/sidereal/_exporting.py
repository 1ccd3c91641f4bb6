"""Models as files for serving: saved models, ONNX, tables; from a cluster or a checkpoint."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Sequence
from typing import Any

from . import errors, onnx, saved_model
from ._data_spec import DataSpec
from ._description import ModelDescription
from ._native import Tensor
from ._raw_columns import of_columns, takes_columns
from .function import ConcreteFunction, Function
from .table_file import write_tables
from .tensors import constant

FORMATS = ("saved_model", "onnx", "tables")
#: Of an ONNX file's metadata, and of a saved model's object: what a program is told that feeds it.
ABOUT = "sidereal"
#: Of a saved model, the signature that takes the columns of files as they stand there.
COLUMNS = "columns"


class _Exported:
    """What a saved model holds: one function, `serve`, and what is known of it."""

    def __init__(self, serve: ConcreteFunction, about: str, columns: Function | None) -> None:
        self.serve = serve
        if columns is not None:
            self.columns = columns
        self.about: Tensor = constant(about)


def about(data: DataSpec | None, is_binary: bool, lookups: Sequence[Any] = ()) -> str:
    """What is said of an exported model, as JSON."""
    return json.dumps(
        {
            "data": None if data is None else dataclasses.asdict(data),
            "is_binary": is_binary,
            "lookups": [lookup._asdict() for lookup in lookups],
        }
    )


def export(
    description: ModelDescription,
    read: Callable[[str], Any],
    path: str | os.PathLike[str],
    format: str = "saved_model",
    *,
    inputs: str = "ids",
    tables: Sequence[str] | None = None,
    external_data_bytes: int = onnx.EXTERNAL_DATA_BYTES,
) -> None:
    """Writes a model with the values of variables that `read` gives; see Model.export()."""
    if format not in FORMATS:
        raise errors.InvalidArgumentError(f"format is '{format}'; it is {', '.join(FORMATS)}")
    if tables is not None and format != "tables":
        raise errors.InvalidArgumentError(f"tables are named for format 'tables', not '{format}'")
    if format == "tables":
        _export_tables(description, read, path, tables)
        return
    if inputs == "vectors" and not description.lookups:
        raise errors.InvalidArgumentError(
            f"{description.where} takes no rows of a table by ids: there is nothing that vectors "
            "could be given for; export it with inputs='ids'"
        )
    serve = description.function(read, inputs)
    lookups = description.lookups if inputs == "vectors" else ()
    said = about(description.data, description.is_binary, lookups)
    if format == "onnx":
        onnx.export(
            serve, path, external_data_bytes=external_data_bytes, metadata={ABOUT: said}
        )
    else:
        signatures: dict[str, Any] = {saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY: serve}
        columns = None
        data = description.data
        if inputs == "ids" and data is not None and takes_columns(data, description.inputs):
            columns = of_columns(serve, description.inputs, data)
            signatures[COLUMNS] = columns.get_concrete_function()
        saved_model.save(_Exported(serve, said, columns), path, signatures)


def _export_tables(
    description: ModelDescription, read: Callable[[str], Any], path: Any,
    names: Sequence[str] | None,
) -> None:  # fmt: skip
    known = description.tables
    for name in names or ():
        if name not in description.variables:
            raise errors.NotFoundError(
                f"{description.where} has no table '{name}'; it has: {', '.join(known) or 'none'}"
            )
    if not (names or known):
        raise errors.InvalidArgumentError(f"{description.where} takes rows of no table")
    write_tables(path, {name: read(name) for name in names or known})


__all__ = ["ABOUT", "FORMATS", "about", "export"]
