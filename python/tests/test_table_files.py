"""Tables of every format, here and elsewhere, as csv() reads them and as datasets."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from file_servers import FileServer, file_server
from pyarrow import csv as arrow_csv
from pyarrow import feather, orc, parquet
from session_servers import PROGRAM

import sidereal as sr
from sidereal import _table_readers, errors

ROWS = 100
FORMATS = [one.name for one in sr.data.table_formats()]


@pytest.fixture(autouse=True)
def io_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIDEREAL_IO_TIMEOUT_S", "5")


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
    table = pa.table(data)
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


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    found = read(spec_of(write(tmp_path_factory.mktemp("csv"), "csv")))
    assert found["dense"][:, 0].tolist() == rows_of()["price"]
    assert found["ids"].shape == (ROWS, 2)
    return found


def test_the_table_of_formats_has_a_reader_for_each() -> None:
    assert list(_table_readers.READERS) == FORMATS


@pytest.mark.parametrize("name", FORMATS)
def test_the_engine_reads_each_format_as_csv(
    name: str, tmp_path: Path, expected: dict[str, np.ndarray]
) -> None:
    same(read(spec_of(write(tmp_path, name))), expected)


def test_a_format_may_be_said_of_files_with_other_names(
    tmp_path: Path, expected: dict[str, np.ndarray]
) -> None:
    path = write(tmp_path, "parquet").rename(tmp_path / "part-0")
    same(read(spec_of(path, format="parquet")), expected)
    with pytest.raises(errors.InvalidArgumentError, match="'excel'.*parquet"):
        spec_of(path, format="excel")


def test_lists_missing_cells_and_bools_are_cells_of_csv(tmp_path: Path) -> None:
    table = pa.table(
        {
            "label": [True, False, True],
            "x": pa.array([1.5, None, float("nan")], pa.float32()),
            "tags": [["a", "b"], [], None],
            "at": pa.StructArray.from_arrays([pa.array([1, 2, 3])], ["n"]),
        }
    )
    parquet.write_table(table, tmp_path / "x.parquet")
    (tmp_path / "x.csv").write_text("label,x,tags,at.n\n1,1.5,a|b,1\n0,,,2\n1,,,3\n")
    options: dict[str, Any] = {
        "label": "label", "numeric": ["x"], "multi_hot": {"tags": ("|", 2)}, "default": {"x": 7},
    }  # fmt: skip
    expected = read(spec_of(tmp_path / "x.csv", **options))
    same(read(spec_of(tmp_path / "x.parquet", **options)), expected)


@pytest.mark.parametrize("name", ["parquet", "json_lines"])
def test_shards_have_each_row_once(name: str, tmp_path: Path) -> None:
    spec = spec_of(write(tmp_path, name))
    found = [read(spec, num_shards=3, index=i)["dense"][:, 0] for i in range(3)]
    assert sorted(np.concatenate(found).tolist()) == rows_of()["price"]
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    files = [write(tmp_path / "a", name), write(tmp_path / "b", name)]
    assert read(spec_of(*files), num_shards=2, index=1)["label"].shape == (ROWS,)


@pytest.mark.parametrize("name", FORMATS)
def test_a_dataset_gives_columns(name: str, tmp_path: Path) -> None:
    batches = list(sr.data.TableDataset(write(tmp_path, name), 40))
    assert [len(b["click"]) for b in batches] == [40, 40, 20]
    assert set(batches[0]) == set(rows_of())
    for key, value in rows_of().items():
        found = np.concatenate([b[key].numpy() for b in batches]).tolist()
        assert found == [v.encode() if isinstance(v, str) else v for v in value]


def test_a_dataset_takes_columns_shards_and_fills(tmp_path: Path) -> None:
    path = write(tmp_path, "parquet")
    batches = list(sr.data.TableDataset(path, 40, ["price"], drop_remainder=True))
    assert [list(b) for b in batches] == [["price"]] * 2
    parts = [
        np.concatenate([b["price"].numpy() for b in sr.data.TableDataset(
            path, 7, ["price"], num_shards=3, index=i)])
        for i in range(3)
    ]  # fmt: skip
    assert parts[1].tolist() == rows_of()["price"][1::3]
    parquet.write_table(pa.table({"n": [1, None, 3]}), tmp_path / "n.parquet")
    with pytest.raises(errors.InvalidArgumentError, match="n.parquet: column 'n'.*fill="):
        sr.data.TableDataset(tmp_path / "n.parquet", 2)
    filled = sr.data.TableDataset(tmp_path / "n.parquet", 3, fill={"n": -1})
    assert next(iter(filled))["n"].numpy().tolist() == [1, -1, 3]


def test_bad_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    with pytest.raises(errors.NotFoundError, match="x.parquet: no such file"):
        spec_of(path)
    path.write_bytes(b"click,price\n1,2\n" * 10)
    with pytest.raises(errors.InvalidArgumentError, match="x.parquet: is not parquet, or damaged"):
        spec_of(path).inspect()
    lines = tmp_path / "x.jsonl"
    lines.write_text('{"click": 1, "price": 2}\nnothing\n')
    with pytest.raises(errors.InvalidArgumentError, match="x.jsonl: behind line 0.*JSON object"):
        spec_of(lines).inspect()
    records = write(tmp_path, "tfrecord")
    records.write_bytes(records.read_bytes()[:-3])
    with pytest.raises(errors.DataLossError, match="day.tfrecord.*cut off"):
        read(spec_of(records))
    with pytest.raises(errors.InvalidArgumentError, match="'klick'.*click, price, city, code"):
        spec_of(write(tmp_path, "parquet"), label="klick").inspect()


def test_a_row_that_is_wrong_is_told_with_the_file(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"click": [0, 2], "price": [1.0, 2.0]}), tmp_path / "x.parquet")
    with pytest.raises(errors.InvalidArgumentError, match="x.parquet:3: the label '2'"):
        read(spec_of(tmp_path / "x.parquet"))


def test_a_python_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, "parquet")
    code = (
        "import sidereal as sr, sys\n"
        f"sr.data.csv({os.fspath(path)!r}, label='click').inspect()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120,
        env={**os.environ, "SIDEREAL_PYTHON": "/nowhere/python"}, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "day.parquet: '/nowhere/python' cannot be started" in done.stderr


# ---- tables in memory -------------------------------------------------------------------------


def test_tables_in_memory_are_read_as_files(expected: dict[str, np.ndarray]) -> None:
    import pandas
    import polars

    data = rows_of()
    for one in (pa.table(data), pandas.DataFrame(data), polars.DataFrame(data), data):
        spec = sr.data.table(one, label="click", numeric=["price"], numeric_transform="none")
        same(read(spec), expected)
    halves = [{key: value[:50] for key, value in data.items()}]
    halves.append({key: value[50:] for key, value in data.items()})
    spec = sr.data.table(iter(halves), label="click", numeric=["price"], numeric_transform="none")
    same(read(spec), expected)
    with pytest.raises(TypeError, match="int is no table"):
        sr.data.table(3)


# ---- elsewhere --------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server() as made:
        yield made


@pytest.fixture
def s3(server: FileServer, monkeypatch: pytest.MonkeyPatch) -> FileServer:
    for name, value in {
        "AWS_ENDPOINT_URL": server.url, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    return server


@pytest.mark.parametrize("name", ["csv", "parquet", "json_lines", "tfrecord", "npz"])
def test_http_and_s3_files_are_read(
    name: str, s3: FileServer, tmp_path: Path, expected: dict[str, np.ndarray]
) -> None:
    path = write(tmp_path, name)
    s3.files[f"/bucket/{path.name}"] = path.read_bytes()
    same(fed(f"{s3.url}/bucket/{path.name}"), expected)
    same(fed(f"s3://bucket/{path.name}"), expected)


def fed(*files: str, timeout: float = 120) -> dict[str, np.ndarray]:
    """read() in a process whose feeders have the environment of now."""
    made = subprocess.run(
        [sys.executable, "-c",
         "import io, sys, numpy as np, sidereal as sr\n"
         "spec = sr.data.csv(*sys.argv[1:], label='click', numeric=['price'],"
         " numeric_transform='none').in_order()\n"
         "found = list(sr.data.Dataset.from_spec(spec, 32))\n"
         "out = io.BytesIO()\n"
         "np.savez(out, **{n: np.concatenate([b[n].numpy() for b in found]) for n in found[0]})\n"
         "sys.stdout.buffer.write(out.getvalue())\n",
         *files],
        capture_output=True, timeout=timeout, check=False,
    )  # fmt: skip
    if made.returncode:
        raise AssertionError(made.stderr.decode()[-3000:])
    return dict(np.load(io.BytesIO(made.stdout)))


def test_patterns_of_a_bucket_find_its_files(s3: FileServer, tmp_path: Path) -> None:
    text = write(tmp_path, "csv").read_bytes()
    for key in ("/bucket/d/day_1.csv.gz", "/bucket/d/day_2.csv.gz", "/bucket/d/e/day_3.csv.gz"):
        s3.files[key] = gzip.compress(text)
    s3.files["/bucket/d/other"] = b""
    assert len(fed("s3://bucket/d/day_*.csv.gz")["label"]) == 2 * ROWS
    with pytest.raises(AssertionError, match=r"no file matches 's3://bucket/d/night_\*'"):
        fed("s3://bucket/d/night_*")


def test_what_is_not_there_is_named(s3: FileServer) -> None:
    s3.files["/bucket/x"] = b""
    with pytest.raises(AssertionError, match=r"NotFound.*s3://bucket/nothing.csv: there is"):
        fed("s3://bucket/nothing.csv")
    with pytest.raises(AssertionError, match=r"NotFound.*/bucket/nothing.csv: there is"):
        fed(f"{s3.url}/bucket/nothing.csv")
    with pytest.raises(AssertionError, match=r"HTTP servers do not list"):
        fed(f"{s3.url}/bucket/*.csv")


def test_a_lost_connection_goes_on_where_it_was(
    server: FileServer, tmp_path: Path, expected: dict[str, np.ndarray]
) -> None:
    server.files["/day.csv"] = write(tmp_path, "csv").read_bytes()
    server.cuts = 2
    same(fed(f"{server.url}/day.csv"), expected)
    assert server.cuts == 0


def test_a_connection_that_is_lost_again_and_again_is_an_error(
    server: FileServer, tmp_path: Path
) -> None:
    server.files["/day.csv"] = b"click,price,city\n" + b"1,2,x\n" * 1_000_000
    server.cuts = 1000
    with pytest.raises(AssertionError, match=r"Unavailable.*/day.csv: the connection was lost at"):
        fed(f"{server.url}/day.csv")


def test_a_server_without_ranges_serves_text_and_no_parquet(
    tmp_path: Path, expected: dict[str, np.ndarray]
) -> None:
    with file_server(ranges=False) as server:
        server.files["/day.csv"] = write(tmp_path, "csv").read_bytes()
        server.files["/day.parquet"] = write(tmp_path, "parquet").read_bytes()
        same(fed(f"{server.url}/day.csv"), expected)
        with pytest.raises(AssertionError, match=r"day.parquet: the server does not send parts"):
            fed(f"{server.url}/day.parquet")


@pytest.mark.parametrize("scheme", ["http", "s3"])
def test_a_silent_server_is_not_waited_for(
    scheme: str, s3: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIDEREAL_IO_TIMEOUT_S", "1")
    s3.is_silent = True
    url = f"{s3.url}/x.csv" if scheme == "http" else "s3://bucket/x.csv"
    with pytest.raises(AssertionError, match=r"x.csv: the server is silent.*SIDEREAL_IO_TIMEOUT_S"):
        fed(url)


# ---- commands ---------------------------------------------------------------------------------


def run(*words: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "sidereal"] if words[0] == "predict" else [str(PROGRAM)]
    return subprocess.run(
        [*program, *words], capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip


def test_inspect_looks_at_all_formats(tmp_path: Path) -> None:
    found = set()
    for name in ("csv", "tsv", "parquet", "json_lines", "tfrecord"):
        done = run("inspect", os.fspath(write(tmp_path, name)), "--label", "click")
        assert done.returncode == 0, done.stderr
        # TFRecords have their features in another order.
        found.add("\n".join(sorted(done.stdout.splitlines())))
    assert len(found) == 1
    assert 'price"]' in found.pop()


@pytest.mark.parametrize("protocol", ["grpc", "star_server"])
def test_train_and_predict_read_and_write_tables(protocol: str, tmp_path: Path) -> None:
    path = os.fspath(write(tmp_path, "parquet"))
    model = os.fspath(tmp_path / "run")
    done = run(
        "train", "--data", path, "--label", "click", "--numeric", "price", "--model", "lr",
        "--batch-size", "10", "--shuffle-rows", "10", "--checkpoint-dir", model, "--test", path,
        "--protocol", protocol,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "on 100 rows" in done.stdout
    assert "shuffled by 10 rows of the 100 that a lane reads, 10 %" in done.stdout
    out = {}
    for ending in ("csv", "parquet", "jsonl", "arrow"):
        target = os.fspath(tmp_path / f"out.{ending}")
        keep = ("--keep", "code,city")
        done = run("predict", "--model", model, "--data", path, "--out", target, *keep)
        assert done.returncode == 0, done.stderr
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
    done = run("predict", "--model", model, "--data", path, "--out", os.fspath(tmp_path / "x.orc"))
    assert done.returncode == 1
    assert "x.orc: orc is not written" in done.stderr


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
