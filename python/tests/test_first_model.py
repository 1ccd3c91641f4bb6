"""The guide's pages from a table to a served model: their commands, as they stand there."""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from session_servers import PATIENCE_S, PROGRAM, ROOT

DATA = ROOT.parent / "shared" / "data"
CRITEO = ["label", *(f"I{i}" for i in range(1, 14)), *(f"C{i}" for i in range(1, 27))]
Row = dict[str, str]


def with_header(folder: Path, data: Path) -> list[Row]:
    with open(folder / "test.csv", newline="") as file:
        return list(csv.DictReader(file))


def frappe(folder: Path, data: Path) -> list[Row]:
    with gzip.open(data / "test.csv.gz", "rt", newline="") as file:
        return list(csv.DictReader(file))


def criteo(folder: Path, data: Path) -> list[Row]:
    with open(folder / "test.tsv", newline="") as file:
        return list(csv.DictReader(file, CRITEO, delimiter="\t"))


@dataclass(frozen=True)
class Page:
    """A page, the folder of its data, what the model reaches, and the rows it is tested on."""

    name: str
    data: str
    auc: float
    rows: Callable[[Path, Path], list[Row]]
    asked: int = 0  #: Which of the rows the page asks for.

    def blocks(self) -> list[str]:
        text = (ROOT / "docs" / "guide" / self.name).read_text()
        return re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S)


PAGES = [
    Page("first_model.md", "adult", 0.9, with_header, asked=1),
    Page("first_model_ratings.md", "movielens_1m", 0.78, with_header),
    Page("first_model_ids.md", "frappe_x1", 0.96, frappe),
    Page("first_model_clicks.md", "criteo_1tb_day0_10k", 0.66, criteo),
]


@contextmanager
def serving(command: str, folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """The address of the server that a page starts, at any free port, which others may have."""
    assert "8501" in command
    command = command.replace("8501", "0").replace("&", "")
    server = subprocess.Popen(
        ["bash", "-euc", command.replace("sidereal serve-model", "exec sidereal serve-model")],
        cwd=folder, env=environment, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert server.stdout is not None
        line, deadline = "", time.monotonic() + PATIENCE_S
        while not (told := re.search(r"http://127.0.0.1:\d+/\S+", line)):
            left = deadline - time.monotonic()
            assert left > 0 and select.select([server.stdout], [], [], left)[0], "it says nothing"
            line = server.stdout.readline()
            assert line, f"ended with {server.wait(PATIENCE_S)}"
        yield told[0]
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(PATIENCE_S) == 0


def answer(address: str, request: Any = None) -> Any:
    body = None if request is None else json.dumps(request).encode()
    with urllib.request.urlopen(address, body, PATIENCE_S) as told:
        return json.load(told)


def request_of(metadata: Any) -> Callable[[list[Row]], dict[str, Any]]:
    """How rows are asked: their columns by name, or the ids as the model takes them."""
    signatures = metadata["metadata"]["signature_def"]["signature_def"]
    if "columns" not in signatures:
        return lambda rows: {
            "instances": [[int(it) for key, it in row.items() if key != "label"] for row in rows]
        }
    inputs = {key: it["dtype"] for key, it in signatures["columns"]["inputs"].items()}

    def value(row: Row, name: str) -> str | float:
        text = row[name]
        return text if inputs[name] == "DT_STRING" else float(text or 0)

    return lambda rows: {
        "signature_name": "columns",
        "instances": [{name: value(row, name) for name in inputs} for row in rows],
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_pages_from_a_table_to_a_served_model(page: Page, tmp_path: Path) -> None:
    data = DATA / page.data
    if not data.exists():
        assert "CI" not in os.environ
        pytest.skip("needs ../shared/data")
    pytest.importorskip("uvloop", reason="the extra serving is not installed")
    program = tmp_path / "bin" / "sidereal"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m sidereal "$@"\n')
    program.chmod(0o755)
    folder = tmp_path / "work"
    folder.mkdir()
    environment = os.environ | {
        "DATA": str(data), "SIDEREAL_BIN_DIR": str(PROGRAM.parent),
        "PATH": f"{program.parent}:{os.environ['PATH']}",
    }  # fmt: skip

    def run(command: str) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command], cwd=folder, env=environment,
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}{done.stdout}{done.stderr}"
        return done.stdout

    *makes, train, predict, serve, ask = page.blocks()
    for make in makes:
        run(make)
    trained = re.search(r"^test: auc ([\d.]+)", run(train), re.M)
    assert trained is not None and float(trained[1]) > page.auc
    evaluated = re.search(r"^auc ([\d.]+)", run(predict), re.M)
    assert evaluated is not None and abs(float(evaluated[1]) - float(trained[1])) <= 5.1e-5
    with open(folder / "scores.csv", newline="") as file:
        scores = list(csv.DictReader(file))
    rows = page.rows(folder, data)
    assert len(scores) == len(rows)
    for kept in scores[0].keys() - {"prediction"}:
        assert all(score[kept] == row[kept] for score, row in zip(scores, rows))
    predictions = [float(score["prediction"]) for score in scores]

    with serving(serve, folder, environment) as address:
        host = address.partition("/v1/")[0]
        told = json.loads(run(ask.replace("http://127.0.0.1:8501", host)))
        assert abs(told["predictions"][0][0] - predictions[page.asked]) < 1e-5
        request = request_of(answer(f"{address}/metadata"))
        piece = 1000
        for first in range(0, len(rows), piece):
            served = answer(f"{address}:predict", request(rows[first : first + piece]))
            for mine, other in zip(served["predictions"], predictions[first : first + piece]):
                assert abs(mine[0] - other) < 1e-5
