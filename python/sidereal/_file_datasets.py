"""Datasets of what is in files: lines, records, rows of CSV."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, ClassVar

from . import dtypes, errors
from ._datasets import Dataset
from ._native import DatasetDefinition
from ._pipelines import parameter
from .ops.parsing import decode_csv


class _FileDataset(Dataset):
    """Base of datasets that give what files have, one after another, as strings."""

    #: What definitions call it.
    _kind: ClassVar[str]

    def __init__(
        self,
        filenames: Any,
        compression_type: str | None = None,
        buffer_size: Any = None,
        num_parallel_reads: int | None = None,
        name: str | None = None,
    ) -> None:
        _checked_compression(compression_type)
        super().__init__(DatasetDefinition.make(self._kind, [], [_names(filenames)], {}), 0)


class TextLineDataset(_FileDataset):
    """The lines of text files, without their ends (tf.data.TextLineDataset). gzip files are told
    by their content."""

    _kind = "TextLines"


class TFRecordDataset(_FileDataset):
    """The records of files of TensorFlow's format, as strings (tf.data.TFRecordDataset). gzip files
    are told by their content."""

    _kind = "Records"


class CsvDataset(Dataset):
    """The rows of CSV files as tuples of columns (tf.data.experimental.CsvDataset): what
    sidereal.io.decode_csv() makes of each line, without the first one of each file where there is
    a `header`. A field with a line end in it is not taken."""

    def __init__(
        self,
        filenames: Any,
        record_defaults: Sequence[Any],
        compression_type: str | None = None,
        buffer_size: Any = None,
        header: bool = False,
        field_delim: str = ",",
        use_quote_delim: bool = True,
        na_value: str = "",
        select_cols: Sequence[int] | None = None,
        exclude_cols: Any = None,
    ) -> None:
        if exclude_cols is not None:
            raise errors.UnimplementedError("exclude_cols is not known; name those in select_cols")
        _checked_compression(compression_type)
        is_one = isinstance(filenames, (str, bytes, os.PathLike))
        names = [filenames] if is_one else list(filenames)
        files = Dataset.from_tensor_slices(
            [os.fspath(name) if isinstance(name, os.PathLike) else name for name in names]
        )
        skipped = 1 if header else 0
        lines = files.flat_map(lambda name: TextLineDataset(name).skip(skipped))
        options: dict[str, Any] = {
            "field_delim": field_delim, "use_quote_delim": use_quote_delim, "na_value": na_value,
            "select_cols": select_cols,
        }  # fmt: skip
        rows = lines.map(lambda line: tuple(decode_csv(line, record_defaults, **options)))
        super().__init__(rows._definition, rows._spec, [rows])


def _checked_compression(compression_type: Any) -> None:
    if compression_type not in (None, "", "GZIP"):
        raise errors.UnimplementedError(
            f"compression '{compression_type}' is not known; use '' or 'GZIP'"
        )


def _names(filenames: Any) -> Any:
    """A parameter of names of files; elements of a dataset of them are taken now."""
    if isinstance(filenames, Dataset):
        filenames = [bytes(name) for name in filenames.as_numpy_iterator()]
    elif isinstance(filenames, os.PathLike):
        filenames = os.fspath(filenames)
    elif isinstance(filenames, (list, tuple)):
        filenames = [os.fspath(x) if isinstance(x, os.PathLike) else x for x in filenames]
    return parameter(filenames, dtypes.string)
