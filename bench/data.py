#!/usr/bin/env python3
"""Rows per second from disk through to batches: CSV, Parquet and TFRecord, beside pyarrow's own
readers and tf.data.

The table has a label, 8 numbers and 4 texts; batches have 1024 rows. Files are in the page cache.
Readers take turns, each in a process of its own, round after round; medians over all passes are
compared. Ours are iterated in Python, as the others are: `columns` gives the columns of the file,
`training` what fit() gets, texts hashed to ids. tf.data has no reader of Parquet: pyarrow's in a
generator stands for it. pyarrow has none of TFRecord.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import ROOT, add_report_arguments, make_report, table, write_figures

SCRIPT = ROOT / "bench/peers/data_readers.py"
#: What is to be reached, by who is beside it.
TARGETS = {"pyarrow": 1.0, "tf.data": 2.0}


@dataclass(frozen=True)
class Case:
    """A way of reading a file, and who else reads it."""

    name: str
    ending: str
    reader: str
    peers: dict[str, str]


CASES = (
    Case("csv, training", "csv", "ours_training",
         {"pyarrow": "arrow_csv", "tf.data": "tensorflow_csv"}),
    Case("csv, columns", "csv", "ours_columns",
         {"pyarrow": "arrow_csv", "tf.data": "tensorflow_csv"}),
    Case("parquet, columns", "parquet", "ours_columns",
         {"pyarrow": "arrow_parquet", "tf.data": "tensorflow_parquet"}),
    Case("parquet, training", "parquet", "ours_training",
         {"pyarrow": "arrow_parquet", "tf.data": "tensorflow_parquet"}),
    Case("tfrecord, columns", "tfrecord", "ours_records", {"tf.data": "tensorflow_records"}),
)  # fmt: skip


def write_files(folder: Path, rows: int) -> None:
    """The same table in every format."""
    import numpy as np
    import pyarrow as pa
    from pyarrow import csv, parquet

    import sidereal as sr

    random = np.random.default_rng(1)
    columns: dict[str, Any] = {"label": random.integers(0, 2, rows).astype(np.float32)}
    for i in range(8):
        columns[f"n{i}"] = np.round(random.normal(size=rows), 4).astype(np.float32)
    for i in range(4):
        words = np.array([f"word{k:06d}" for k in range(10 ** (i + 2))])
        columns[f"c{i}"] = words[random.integers(0, len(words), rows)]
    found = pa.table({name: pa.array(value) for name, value in columns.items()})
    parquet.write_table(found, folder / "x.parquet")
    csv.write_csv(found, folder / "x.csv", csv.WriteOptions(quoting_style="none"))
    with sr.io.TFRecordWriter(str(folder / "x.tfrecord")) as out:
        for row in found.to_pylist():
            out.write(sr.io.encode_example(row))


def speeds(reader: str, file: Path, arguments: argparse.Namespace) -> list[float]:
    command = [sys.executable, str(SCRIPT), reader, str(file)]
    command += [str(arguments.batch), str(arguments.passes)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        raise RuntimeError(f"{reader} failed ({done.returncode}): {done.stderr.strip()[-2000:]}")
    if any(line["rows"] != arguments.rows for line in lines):
        raise RuntimeError(f"{reader} read {lines[0]['rows']} rows of {arguments.rows}")
    return [line["rows_per_s"] for line in lines]


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    cases = [case for case in CASES if arguments.only in case.name]
    wanted = {(one.ending, name) for one in cases for name in [one.reader, *one.peers.values()]}
    figures: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        print(f"writing {arguments.rows:,} rows", flush=True)
        write_files(Path(folder), arguments.rows)
        for _ in range(arguments.rounds):
            for ending, reader in sorted(wanted):
                found = speeds(reader, Path(folder) / f"x.{ending}", arguments)
                figures.setdefault((ending, reader), []).extend(found)
                print(f"    {ending:9s} {reader:20s} {max(found):12,.0f} rows/s", flush=True)
    rows = []
    for case in cases:
        ours = figures[case.ending, case.reader]
        for peer, reader in case.peers.items():
            theirs = figures[case.ending, reader]
            rows.append(
                {
                    "case": case.name, "peer_name": peer, "unit": "rows/s",
                    "ours": statistics.median(ours), "low": min(ours), "high": max(ours),
                    "peer": statistics.median(theirs),
                    "ratio": statistics.median(ours) / statistics.median(theirs),
                    "target": TARGETS[peer],
                }
            )  # fmt: skip
    show(rows)
    return {"rows": rows}


def show(rows: list[dict[str, Any]]) -> None:
    print(f"\n{'case':20s} {'ours, rows/s':>14s} {'peer':>10s} {'rows/s':>14s} ratio (target)")
    for row in rows:
        print(
            f"{row['case']:20s} {row['ours']:14,.0f} {row['peer_name']:>10s} {row['peer']:14,.0f}"
            f" {row['ratio']:5.2f} ({row['target']:.1f})"
        )


def write(report: dict[str, Any], path: Path) -> None:
    head = ["case", "Sidereal, rows/s", "least to most", "beside", "rows/s", "ratio"]
    rows = [
        [
            row["case"], f"{row['ours']:,.0f}", f"{row['low']:,.0f} to {row['high']:,.0f}",
            row["peer_name"], f"{row['peer']:,.0f}", f"{row['ratio']:.2f}",
        ]
        for row in report["rows"]
    ]  # fmt: skip
    write_figures(path, "data", table(head, rows))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_report_arguments(parser)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--passes", type=int, default=3, help="timed ones of each process")
    parser.add_argument("--only", default="", help="cases with this in their name")
    make_report(parser.parse_args(), measure, write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
