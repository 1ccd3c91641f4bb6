"""Tables elsewhere, and the processes that read them: what fails there is an error soon."""

from __future__ import annotations

import gzip
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from file_servers import FileServer, file_server
from pyarrow import fs
from table_files import ROWS, read, same, spec_of, write

import sidereal as sr
from sidereal import _remote_files, errors
from sidereal._rows import Table


@pytest.fixture(scope="module", autouse=True)
def one_server() -> Iterator[FileServer]:
    """The environment is one for all tests, so that they share feeders."""
    with file_server() as made, pytest.MonkeyPatch.context() as patch:
        for name in ("http_proxy", "HTTP_PROXY"):
            patch.delenv(name, raising=False)
        for name, value in {
            "AWS_ENDPOINT_URL": made.url, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b",
            "AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
            # Long enough for a busy machine: tests of silence say less.
            "SIDEREAL_IO_TIMEOUT_S": "60",
        }.items():  # fmt: skip
            patch.setenv(name, value)
        yield made


@pytest.fixture
def server(one_server: FileServer) -> Iterator[FileServer]:
    yield one_server
    one_server.reset()


@pytest.fixture
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    return read(spec_of(write(tmp_path_factory.mktemp("csv"), "csv")))


def test_packed_text_that_is_damaged_is_an_error(server: FileServer, tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(write(tmp_path, "csv").read_bytes()))
    packed[len(packed) // 2] ^= 0x55
    path = tmp_path / "x.csv.gz"
    path.write_bytes(packed)
    server.files["/x.csv.gz"] = bytes(packed)
    for name in (str(path), f"{server.url}/x.csv.gz"):
        with pytest.raises(errors.DataLossError, match="x.csv.gz: gzip data"):
            read(spec_of(name))
        with pytest.raises(errors.DataLossError, match="x.csv.gz: gzip data"):
            list(Table(name, ",").rows())


def test_without_pyarrow_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "parquet")
    (tmp_path / "pyarrow.py").write_text("raise ImportError('none here')")
    others = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{others}")
    extra = r"day.parquet: reading it needs the package pyarrow.*pip install pyarrow"
    with pytest.raises(errors.FailedPreconditionError, match=extra):
        spec_of(path).inspect()
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(errors.FailedPreconditionError, match=extra):
        sr.data.TableDataset(path, 10)


#: Reads what nobody answers for, as long as it takes.
WAITING = "import sidereal as sr, sys\nsr.data.csv(sys.argv[1], label='click').inspect()\n"


@pytest.fixture
def waiting(silent: FileServer) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process, and the number of its feeder, which waits for a server."""
    with subprocess.Popen(
        [sys.executable, "-c", WAITING, f"{silent.url}/x.csv"], stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert silent.asked.wait(60)
            children = Path(f"/proc/{process.pid}/task").glob("*/children")
            (feeder,) = [int(one) for file in children for one in file.read_text().split()]
            yield process, feeder
        finally:
            process.kill()


@pytest.fixture
def silent(server: FileServer) -> FileServer:
    server.is_silent = True
    return server


def test_a_feeder_ends_with_who_started_it(waiting: tuple[subprocess.Popen[str], int]) -> None:
    process, feeder = waiting
    handle = os.pidfd_open(feeder)
    try:
        process.kill()
        assert select.select([handle], [], [], 60)[0]
    finally:
        os.close(handle)


def test_a_feeder_that_was_killed_is_an_error(waiting: tuple[subprocess.Popen[str], int]) -> None:
    process, feeder = waiting
    os.kill(feeder, signal.SIGKILL)
    assert process.wait(60) == 1
    assert process.stderr is not None
    said = process.stderr.read()
    assert f"/x.csv: the process that reads it (python -m sidereal._feeder, pid {feeder})" in said


def test_a_python_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, "parquet")
    code = (
        f"import sidereal as sr, sys\nsr.data.csv({os.fspath(path)!r}, label='click').inspect()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120,
        env={**os.environ, "SIDEREAL_PYTHON": "/nowhere/python"}, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "day.parquet: '/nowhere/python' cannot be started" in done.stderr


@pytest.mark.parametrize("name", ["csv", "parquet", "json_lines", "tfrecord", "npz"])
def test_http_and_s3_files_are_read(
    name: str, server: FileServer, tmp_path: Path, expected: dict[str, np.ndarray]
) -> None:
    path = write(tmp_path, name)
    server.files[f"/bucket/{path.name}"] = path.read_bytes()
    same(read(spec_of(f"{server.url}/bucket/{path.name}")), expected)
    same(read(spec_of(f"s3://bucket/{path.name}")), expected)


def test_patterns_of_a_bucket_find_its_files(server: FileServer, tmp_path: Path) -> None:
    text = write(tmp_path, "csv").read_bytes()
    for key in ("/bucket/d/day_1.csv.gz", "/bucket/d/day_2.csv.gz", "/bucket/d/e/day_3.csv.gz"):
        server.files[key] = gzip.compress(text)
    server.files["/bucket/d/other"] = b""
    assert len(read(spec_of("s3://bucket/d/day_*.csv.gz"))["label"]) == 2 * ROWS
    with pytest.raises(errors.NotFoundError, match=r"no file matches 's3://bucket/d/night_\*'"):
        read(spec_of("s3://bucket/d/night_*"))


def test_names_may_have_options(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for day in (1, 2):
        server.files[f"/bucket/d/day_{day}.csv"] = write(tmp_path, "csv").read_bytes()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    options = f"?endpoint_override={server.url.removeprefix('http://')}&scheme=http"
    for pattern in ("s3://bucket/d/day_?.csv", "s3://bucket/*/day_[12].csv"):
        assert _remote_files.list_files(pattern + options) == [
            f"s3://bucket/d/day_{day}.csv{options}" for day in (1, 2)
        ]
    assert len(read(spec_of("s3://bucket/d/day_?.csv" + options))["label"]) == 2 * ROWS
    with pytest.raises(errors.InvalidArgumentError, match=r"'regio' is not known; endp"):
        _remote_files.list_files("s3://bucket/d/x?regio=x")
    with pytest.raises(errors.InvalidArgumentError, match=r"buckets are not listed"):
        _remote_files.list_files("s3://buck*/d")


def test_patterns_are_of_names_and_not_of_what_a_system_calls_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("c/d/day_1.pq", "c/d/day_2.pq", "c/d/e/day_3.pq", "c/day_4.pq"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    def system(path: str) -> tuple[fs.FileSystem, str]:
        # As of Azure: the account is of the system, and not of the file's name.
        found = re.fullmatch(r"abfs://c@a\.dfs\.core\.windows\.net(/d)?", path)
        assert found is not None, path
        return fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), "c" + (found[1] or "")

    monkeypatch.setattr(_remote_files, "_arrow_system", system)
    place = "abfs://c@a.dfs.core.windows.net"
    for pattern, names in (
        ("/d/day_*.pq", ["/d/day_1.pq", "/d/day_2.pq"]),
        ("/d/*/day_*.pq", ["/d/e/day_3.pq"]),
        ("/*.pq", ["/day_4.pq"]),
    ):
        assert _remote_files.list_files(place + pattern) == [place + name for name in names]


def test_what_may_pass_is_tried_three_times(
    server: FileServer, tmp_path: Path, expected: dict[str, np.ndarray]
) -> None:
    server.files["/day.csv"] = write(tmp_path, "csv").read_bytes()
    url = f"{server.url}/day.csv"
    server.failures = 2
    with _remote_files.open_file(url) as file:
        assert file.read() == server.files["/day.csv"]
        assert server.failures == 0
        # Also of what is read later.
        server.failures = 2
        file.seek(0)
        file.seek(len(server.files["/day.csv"]) - 3)
        assert len(file.read()) == 3
    server.failures = 1000
    with pytest.raises(errors.UnavailableError, match="day.csv: .*503"):
        _remote_files.open_file(url)
    assert server.failures == 997
    server.failures = 2
    same(read(spec_of(url)), expected)


def test_what_is_not_there_is_named(server: FileServer) -> None:
    server.files["/bucket/x"] = b""
    with pytest.raises(errors.NotFoundError, match=r"s3://bucket/nothing.csv: there is no such"):
        read(spec_of("s3://bucket/nothing.csv"))
    with pytest.raises(errors.NotFoundError, match=r"/bucket/nothing.csv: there is no such"):
        read(spec_of(f"{server.url}/bucket/nothing.csv"))
    with pytest.raises(errors.InvalidArgumentError, match=r"HTTP servers do not list"):
        read(spec_of(f"{server.url}/bucket/*.csv"))


def test_a_lost_connection_goes_on_where_it_was(
    server: FileServer, tmp_path: Path, expected: dict[str, np.ndarray]
) -> None:
    server.files["/day.csv"] = write(tmp_path, "csv").read_bytes()
    server.cuts = {"whole"}
    same(read(spec_of(f"{server.url}/day.csv")), expected)
    assert server.parts > 0


def test_a_connection_that_is_lost_again_and_again_is_an_error(
    server: FileServer, tmp_path: Path
) -> None:
    server.files["/day.csv"] = write(tmp_path, "csv").read_bytes()
    server.cuts = {"whole", "parts"}
    with pytest.raises(errors.UnavailableError, match=r"/day.csv: the connection was lost at byte"):
        read(spec_of(f"{server.url}/day.csv"))


def test_a_server_without_ranges_serves_text_and_no_parquet(
    tmp_path: Path, expected: dict[str, np.ndarray]
) -> None:
    with file_server(ranges=False) as server:
        server.files["/day.csv"] = write(tmp_path, "csv").read_bytes()
        server.files["/day.parquet"] = write(tmp_path, "parquet").read_bytes()
        same(read(spec_of(f"{server.url}/day.csv")), expected)
        with pytest.raises(errors.FailedPreconditionError, match=r"day.parquet: the server does "):
            read(spec_of(f"{server.url}/day.parquet"))


SILENT = r"x.csv: the server is silent.*SIDEREAL_IO_TIMEOUT_S"


@pytest.mark.parametrize("scheme", ["http", "s3"])
def test_a_silent_server_is_not_waited_for(
    scheme: str, server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIDEREAL_IO_TIMEOUT_S", "0.5")
    server.is_silent = True
    url = f"{server.url}/x.csv" if scheme == "http" else "s3://bucket/x.csv"
    with pytest.raises(errors.DeadlineExceededError, match=SILENT):
        read(spec_of(url))


def test_a_server_that_falls_silent_is_not_waited_for(
    server: FileServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server.files["/x.csv"] = write(tmp_path, "csv").read_bytes()
    spec = spec_of(f"{server.url}/x.csv")
    monkeypatch.setenv("SIDEREAL_IO_TIMEOUT_S", "0.5")
    server.stalls = True
    with pytest.raises(errors.DeadlineExceededError, match=SILENT):
        read(spec)
