"""Commands that read and write tables of every format."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from file_servers import file_server
from pyarrow import csv as arrow_csv
from pyarrow import feather, parquet
from session_servers import PROGRAM
from table_files import rows_of, write

import sidereal as sr
from sidereal import _evaluate_command, _predict_command
from sidereal._rows import Table


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(PROGRAM), *words], capture_output=True, text=True, timeout=300, check=False
    )


def test_inspect_looks_at_all_formats(tmp_path: Path) -> None:
    found = set()
    for name in ("csv", "tsv", "parquet", "tfrecord"):
        done = run("inspect", os.fspath(write(tmp_path, name)), "--label", "click")
        assert done.returncode == 0, done.stderr
        # TFRecords have their features in another order.
        found.add("\n".join(sorted(done.stdout.splitlines())))
    assert len(found) == 1
    assert 'price"]' in found.pop()


@pytest.mark.parametrize("protocol", ["grpc", "star_server"])
def test_train_and_predict_read_and_write_tables(
    protocol: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = os.fspath(write(tmp_path, "parquet"))
    model = os.fspath(tmp_path / "run")
    with file_server() as server:
        server.files["/part-0"] = Path(path).read_bytes()
        done = run(
            "train", "--data", f"parquet:{server.url}/part-0", "--label", "click",
            "--numeric", "price", "--model", "lr",
            "--batch-size", "10", "--shuffle-rows", "10", "--checkpoint-dir", model, "--test", path,
            "--protocol", protocol,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "on 100 rows" in done.stdout
    assert "shuffled by 10 rows of the 100 that a lane reads, 10 %" in done.stdout
    facts = (tmp_path / "run" / "run.toml").read_text()
    assert "data_files = 1\n" in facts
    assert f"data_bytes = {os.path.getsize(path)}\n" in facts
    out = {}
    for ending in ("csv", "parquet", "jsonl", "arrow"):
        target = os.fspath(tmp_path / f"out.{ending}")
        keep = ("--keep", "code,city")
        words = ["--model", model, "--data", path, "--out", target, *keep]
        assert _predict_command.main(words) == 0, capsys.readouterr().err
        if ending == "jsonl":
            out[ending] = [json.loads(line) for line in Path(target).read_text().splitlines()]
        elif ending == "csv":
            out[ending] = arrow_csv.read_csv(target).to_pylist()
        else:
            kind = parquet.read_table if ending == "parquet" else feather.read_table
            out[ending] = kind(target).to_pylist()
    for rows in out.values():
        assert [row["code"] for row in rows] == rows_of()["code"]
        assert [row["city"] for row in rows] == rows_of()["city"]
        np.testing.assert_allclose(
            [row["prediction"] for row in rows], [row["prediction"] for row in out["parquet"]], 1e-6
        )
    words = ["--model", model, "--data", path]
    assert _evaluate_command.main(words) == 0, capsys.readouterr().err
    assert _predict_command.main([*words, "--out", os.fspath(tmp_path / "x.orc")]) == 1
    assert "x.orc: orc is not written" in capsys.readouterr().err


@pytest.mark.parametrize("ending", ["parquet", "arrow", "jsonl"])
def test_kept_columns_have_the_types_they_had(ending: str, tmp_path: Path) -> None:
    second = 10**9
    columns = {
        "s": pa.array([1, 86399, None], pa.time32("s")),
        "ms": pa.array([1001, None, 3], pa.time32("ms")),
        "us": pa.array([1, 2, None], pa.time64("us")),
        "ns": pa.array([second + 1, 2, None], pa.time64("ns")),
        "took": pa.array([-5, None, 10**10], pa.duration("us")),
        "at": pa.array([1, None, 3], pa.timestamp("us", "UTC")),
        "day": pa.array([1, None, 3], pa.date32()),
        "flag": pa.array([True, None, False]),
        "price": pa.array([1, None, 2], pa.decimal128(9, 2)),
    }
    table = pa.table(columns)
    feather.write_feather(table, tmp_path / "x.arrow")
    found = Table(str(tmp_path / "x.arrow"), ",")
    types = [found.schema().field(name).type for name in found.columns]
    path = tmp_path / f"out.{ending}"
    kind = "json_lines" if ending == "jsonl" else ending
    with _predict_command._ArrowOut(str(path), kind, types) as out:
        out.begin(found.columns, ["prediction"])
        out.write(list(found.rows()), np.array([[0.5], [1.5], [2.5]]))
    if ending == "jsonl":
        first = json.loads(path.read_text().splitlines()[0])
        assert (first["s"], first["flag"], first["day"]) == ("00:00:01", True, "1970-01-02")
        return
    kept = (parquet.read_table if ending == "parquet" else feather.read_table)(path)
    # Parquet has no seconds.
    expected = table.set_column(0, "s", columns["s"].cast(kept.schema.field("s").type))
    assert kept.drop_columns(["prediction"]).equals(expected)


@pytest.mark.parametrize("protocol", ["grpc", "star_server"])
def test_what_is_wrong_of_a_row_ends_a_training(protocol: str, tmp_path: Path) -> None:
    data = {**rows_of(), "click": [0] * 70 + [2] + [0] * 29}
    path = os.fspath(write(tmp_path, "parquet", data))
    done = run(
        "train", "--data", path, "--label", "click", "--numeric", "price", "--model", "lr",
        "--batch-size", "10", "--protocol", protocol,
    )  # fmt: skip
    assert done.returncode == 1
    assert f"{path}: row 71: the label '2'" in done.stderr


def test_help_names_all_formats() -> None:
    done = subprocess.run(
        [str(PROGRAM), "train", "--help"], capture_output=True, text=True, timeout=60, check=True
    )
    words = " ".join(done.stdout.split())
    for one in sr.data.table_formats():
        assert one.name in words
        assert " ".join(one.endings) in words


def test_the_guide_has_the_table_of_formats() -> None:
    page = Path(__file__).parents[2] / "docs/guide/tables.md"
    text = page.read_text()
    for one in sr.data.table_formats():
        endings = " ".join(f"`{ending}`" for ending in one.endings)
        assert f"| `{one.name}` | {endings} | {one.what} |" in text
