"""Rows per second of one reader over one file, from disk through to batches: a JSON line for each
pass over it. `python data_readers.py READER FILE BATCH PASSES`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

NUMBERS = [f"n{i}" for i in range(8)]
TEXTS = [f"c{i}" for i in range(4)]


def ours_columns(file: str, batch: int) -> Iterator[int]:
    import sidereal as sr

    for one in sr.data.TableDataset(file, batch):
        yield len(one["label"])


def ours_training(file: str, batch: int) -> Iterator[int]:
    """As fit() reads: texts hashed to ids, numbers in one array."""
    import sidereal as sr

    spec = sr.data.csv(file, numeric=NUMBERS, numeric_transform="none").in_order()
    for one in sr.data.Dataset.from_spec(spec, batch):
        yield len(one["label"])


def _features(io: Any, float32: Any, string: Any) -> dict[str, Any]:
    features = {name: io.FixedLenFeature((), float32) for name in ["label", *NUMBERS]}
    return features | {name: io.FixedLenFeature((), string) for name in TEXTS}


def ours_records(file: str, batch: int) -> Iterator[int]:
    import sidereal as sr

    features = _features(sr.io, sr.float32, sr.string)
    data = sr.data.TFRecordDataset(file).batch(batch)
    data = data.map(lambda e: sr.io.parse_example(e, features), num_parallel_calls=2).prefetch(2)
    for one in data:
        yield len(one["label"])


def _arrow_columns(batches: Iterator[Any], batch: int) -> Iterator[int]:
    """Arrow's batches in the size of batches, as NumPy's arrays."""
    for found in batches:
        for begin in range(0, found.num_rows, batch):
            part = found.slice(begin, batch)
            arrays = [column.to_numpy(zero_copy_only=False) for column in part.columns]
            yield len(arrays[0])


def arrow_csv(file: str, batch: int) -> Iterator[int]:
    from pyarrow import csv

    yield from _arrow_columns(iter(csv.open_csv(file)), batch)


def arrow_parquet(file: str, batch: int) -> Iterator[int]:
    from pyarrow import parquet

    yield from _arrow_columns(parquet.ParquetFile(file).iter_batches(batch), batch)


def tensorflow_csv(file: str, batch: int) -> Iterator[int]:
    import tensorflow as tf

    data = tf.data.experimental.make_csv_dataset(
        file, batch, num_epochs=1, shuffle=False, num_parallel_reads=2, prefetch_buffer_size=2,
    )  # fmt: skip
    for one in data:
        yield len(one["label"])


def tensorflow_parquet(file: str, batch: int) -> Iterator[int]:
    """tf.data has no reader of Parquet: pyarrow's in a generator."""
    from pyarrow import parquet

    import tensorflow as tf

    def rows() -> Iterator[dict[str, Any]]:
        for found in parquet.ParquetFile(file).iter_batches(batch):
            yield {
                name: column.to_numpy(zero_copy_only=False)
                for name, column in zip(found.schema.names, found.columns)
            }

    signature = {name: tf.TensorSpec((None,), tf.float32) for name in ["label", *NUMBERS]}
    signature |= {name: tf.TensorSpec((None,), tf.string) for name in TEXTS}
    for one in tf.data.Dataset.from_generator(rows, output_signature=signature).prefetch(2):
        yield len(one["label"])


def tensorflow_records(file: str, batch: int) -> Iterator[int]:
    import tensorflow as tf

    features = _features(tf.io, tf.float32, tf.string)
    data = tf.data.TFRecordDataset(file).batch(batch)
    data = data.map(lambda e: tf.io.parse_example(e, features), num_parallel_calls=2).prefetch(2)
    for one in data:
        yield len(one["label"])


READERS: dict[str, Callable[[str, int], Iterator[int]]] = {
    one.__name__: one
    for one in (
        ours_columns, ours_training, ours_records, arrow_csv, arrow_parquet, tensorflow_csv,
        tensorflow_parquet, tensorflow_records,
    )
}  # fmt: skip


def main() -> None:
    # Beside this file and above it there are modules that are called as packages are.
    here = Path(__file__).resolve().parent
    sys.path[:] = [one for one in sys.path if Path(one or ".").resolve() not in (here, here.parent)]
    reader, file, batch, passes = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    for number in range(passes + 1):
        begin = time.perf_counter()
        rows = sum(READERS[reader](file, batch))
        seconds = time.perf_counter() - begin
        if number:  # The first pass loads packages and fills caches.
            print(json.dumps({"reader": reader, "rows": rows, "rows_per_s": rows / seconds}))


if __name__ == "__main__":
    main()
