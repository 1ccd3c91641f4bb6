"""Which data to train on and how to read it, for data that is in files. NumPy arrays need no spec:
they go to Model.fit() as a dict.

Arrays in .npy files are columns under their names (format "arrays"): numbers, and strings (NumPy's
"S" and "U"), which are hashed where they are categorical.

File names may be patterns ("day_*.tsv.gz"); plain and gzip files are told apart by content.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from . import _native
from ._native import Schema

__all__ = ["DataSpec", "Schema", "SyntheticSpec", "criteo", "csv", "libsvm", "synthetic"]

#: Rows held in memory to shuffle files.
SHUFFLE_ROWS = 100_000


@dataclass(frozen=True)
class SyntheticSpec:
    """Which rows of the synthetic stream are meant. Two ranges that do not meet share no row."""

    rows: int = 1_000_000
    first_row: int = 0
    seed: int = 1
    vocabulary_max: int = 1_000_000


@dataclass(frozen=True)
class DataSpec:
    """Made by csv(), criteo(), libsvm() and synthetic(), which say what the fields mean."""

    format: str
    files: list[str] = field(default_factory=list)
    arrays: list[tuple[str, str]] = field(default_factory=list)
    label: str = "label"
    numeric: list[str] = field(default_factory=list)
    categorical: list[str] = field(default_factory=list)
    delimiter: str = ","
    hash_buckets: int = 100_000
    id_space: int = 0
    binary_label: bool = True
    bad_rows: str = "fail"
    shuffle_rows: int = SHUFFLE_ROWS
    seed: int = 0
    synthetic: SyntheticSpec = field(default_factory=SyntheticSpec)

    def inspect(self) -> Schema:
        """Checks that files and columns exist, and says what the rows look like."""
        return _native.inspect(self.to_json())

    def to_json(self) -> str:
        """As the core reads it."""
        return json.dumps(asdict(self))

    def in_order(self) -> DataSpec:
        """The same rows, not shuffled."""
        return replace(self, shuffle_rows=0)


Path = str | os.PathLike[str]


def _text(format_: str, files: Sequence[Path], **options: Any) -> DataSpec:
    if not files:
        raise ValueError(f"{format_}: name at least one file")
    patterns = [os.fspath(file) for file in files]
    return DataSpec(format=format_, files=_native.expand_globs(patterns), **options)


def csv(
    *files: Path,
    label: str = "label",
    numeric: Sequence[str] = (),
    categorical: Sequence[str] = (),
    delimiter: str = ",",
    hash_buckets: int = 100_000,
    id_space: int = 0,
    bad_rows: str = "fail",
    shuffle_rows: int = SHUFFLE_ROWS,
) -> DataSpec:
    """Text with a header line. `numeric` columns make up the input "dense", `categorical` ones
    (none named: all others) the input "ids".

    hash_buckets: ids per categorical column; the text of a field is hashed into them.
    id_space: if positive, fields are integers in one space [0, id_space) and nothing is hashed.
    bad_rows: "fail" or "skip" (counted in the results).
    shuffle_rows: rows held in memory for shuffling.
    """
    return _text(
        "csv", files, label=label, numeric=list(numeric), categorical=list(categorical),
        delimiter=delimiter, hash_buckets=hash_buckets, id_space=id_space, bad_rows=bad_rows,
        shuffle_rows=shuffle_rows,
    )


def criteo(
    *files: Path,
    hash_buckets: int = 100_000,
    bad_rows: str = "fail",
    shuffle_rows: int = SHUFFLE_ROWS,
) -> DataSpec:
    """Criteo's click logs: label, 13 integers ("dense"), 26 categories ("ids"), tabs, no header."""
    return _text(
        "criteo", files, hash_buckets=hash_buckets, bad_rows=bad_rows, shuffle_rows=shuffle_rows
    )


def libsvm(
    *files: Path, id_space: int, bad_rows: str = "fail", shuffle_rows: int = SHUFFLE_ROWS
) -> DataSpec:
    """"label index:value ..." with indices in [0, id_space): the inputs "ids" and "weights"."""
    return _text(
        "libsvm", files, id_space=id_space, bad_rows=bad_rows, shuffle_rows=shuffle_rows
    )


def synthetic(
    rows: int = 1_000_000, first_row: int = 0, seed: int = 1, vocabulary_max: int = 1_000_000
) -> DataSpec:
    """The built-in stream, shaped like Criteo's logs, with a planted truth: evaluations also say
    the best AUC any model can reach. Rows depend on `seed` and their number only, so take another
    `first_row`, not another seed, for rows that were never trained on."""
    return DataSpec(
        format="synthetic",
        synthetic=SyntheticSpec(
            rows=rows, first_row=first_row, seed=seed, vocabulary_max=vocabulary_max
        ),
    )
