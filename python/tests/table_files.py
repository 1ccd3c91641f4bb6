"""One table as files of every format, for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv
from pyarrow import feather, orc, parquet

import sidereal as sr

ROWS = 100
FORMATS = [one.name for one in sr.data.table_formats()]


def rows_of() -> dict[str, list[Any]]:
    return {
        "click": [i % 2 for i in range(ROWS)],
        "price": [i / 4 for i in range(ROWS)],
        "city": [f'c{i % 7}, "x"' if i % 10 == 0 else f"c{i % 7}" for i in range(ROWS)],
        "code": [i % 5 for i in range(ROWS)],
    }


def write(folder: Path, name: str, data: dict[str, list[Any]] | None = None) -> Path:
    """The rows as a file of a format."""
    data = data or rows_of()
    table = pa.table(data, schema=pa.table(rows_of()).schema)
    ending = next(one for one in sr.data.table_formats() if one.name == name).endings[0]
    path = folder / f"day{ending}"
    if name in ("csv", "tsv"):
        options = arrow_csv.WriteOptions(delimiter="," if name == "csv" else "\t")
        arrow_csv.write_csv(table, path, options)
    elif name == "parquet":
        parquet.write_table(table, path, row_group_size=30)
    elif name == "json_lines":
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    elif name == "arrow":
        feather.write_feather(table, path)
    elif name == "orc":
        orc.write_table(table, path)
    elif name == "tfrecord":
        with sr.io.TFRecordWriter(str(path)) as out:
            for row in table.to_pylist():
                out.write(sr.io.encode_example(row))
    elif name == "npz":
        np.savez(path, **{key: np.array(value) for key, value in data.items()})
    else:
        kinds = [("click", "i8"), ("price", "f8"), ("city", "U12"), ("code", "i8")]
        np.save(path, np.array(list(zip(*(data[key] for key, _ in kinds))), kinds))
    return path


def spec_of(*files: Any, **options: Any) -> sr.data.DataSpec:
    options = {"label": "click", "numeric": ["price"], "numeric_transform": "none", **options}
    return sr.data.csv(*files, **options)


def read(spec: sr.data.DataSpec, **options: Any) -> dict[str, np.ndarray]:
    """All that the engine makes of the rows, in the order of the file."""
    found = list(sr.data.Dataset.from_spec(spec.in_order(), 32, **options))
    return {name: np.concatenate([b[name].numpy() for b in found]) for name in found[0]}


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert set(one) == set(other)
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], name)
