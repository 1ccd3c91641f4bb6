"""Runs the guide's pages from a table to a served model: their commands, as they stand there.

The tests do so with what is built here, and `./dev wheel --check` with a wheel alone. It uses the
standard library only, so that it runs where nothing else is.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: For one command, and for one line or answer of a server.
PATIENCE_S = 300
#: How many rows are asked at once.
PIECE = 1000
CRITEO = ["label", *(f"I{i}" for i in range(1, 14)), *(f"C{i}" for i in range(1, 27))]
Row = dict[str, str]


class PageError(AssertionError):
    """What a page promises and does not do, for a person."""


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

    def blocks(self, guide: Path) -> list[str]:
        return re.findall(r"^```sh\n(.*?)^```", (guide / self.name).read_text(), re.M | re.S)


PAGES = [
    Page("first_model.md", "adult", 0.9, with_header, asked=1),
    Page("first_model_ratings.md", "movielens_1m", 0.78, with_header),
    Page("first_model_ids.md", "frappe_x1", 0.96, frappe),
    Page("first_model_clicks.md", "criteo_1tb_day0_10k", 0.66, criteo),
]


def expect(it: object, what: str) -> None:
    if not it:
        raise PageError(what)


def found(pattern: str, text: str) -> str:
    told = re.search(pattern, text, re.M)
    if told is None:
        raise PageError(f"nothing like '{pattern}' in:\n{text}")
    return told[1]


@contextmanager
def serving(command: str, folder: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """The address of the server that a page starts, at any free port, which others may have."""
    expect("8501" in command, f"no port to change in: {command}")
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
            ready = left > 0 and select.select([server.stdout], [], [], left)[0]
            expect(ready, f"the server says no address in {PATIENCE_S} s")
            line = server.stdout.readline()
            if not line:
                raise PageError(f"the server ended with {server.wait(PATIENCE_S)}: {command}")
        yield told[0]
    finally:
        server.send_signal(signal.SIGTERM)
        ended = server.wait(PATIENCE_S)
    expect(ended == 0, f"the server, told to end, ended with {ended}")


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


def try_page(page: Page, guide: Path, data: Path, folder: Path, path: str) -> str:
    """Runs all commands of a page in an empty folder, with `path` as PATH, and asks the server for
    every row of the test: its answers, the file of predictions and what `evaluate` says must be
    the same. A line about it; PageError where they are not."""
    environment = os.environ | {"DATA": str(data / page.data), "PATH": path}

    def run(command: str) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command], cwd=folder, env=environment,
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        expect(done.returncode == 0, f"{page.name}: {command}{done.stdout}{done.stderr}")
        return done.stdout

    *makes, train, predict, serve, ask = page.blocks(guide)
    for make in makes:
        run(make)
    trained = float(found(r"^test: auc ([\d.]+)", run(train)))
    expect(trained > page.auc, f"{page.name}: an auc of {trained}, where {page.auc} is usual")
    evaluated = float(found(r"^auc ([\d.]+)", run(predict)))
    expect(
        abs(evaluated - trained) <= 5.1e-5,
        f"{page.name}: trained to an auc of {trained}, and evaluated to {evaluated}",
    )
    with open(folder / "scores.csv", newline="") as file:
        scores = list(csv.DictReader(file))
    rows = page.rows(folder, data / page.data)
    expect(len(scores) == len(rows), f"{page.name}: {len(scores)} predictions of {len(rows)} rows")
    for kept in scores[0].keys() - {"prediction"}:
        expect(all(score[kept] == row[kept] for score, row in zip(scores, rows)),
               f"{page.name}: {kept} of the predictions is not that of the rows")  # fmt: skip
    predictions = [float(score["prediction"]) for score in scores]

    def compare(served: float, index: int) -> None:
        expect(abs(served - predictions[index]) < 1e-5,
               f"{page.name}: row {index} is predicted as {predictions[index]}, and served as "
               f"{served}")  # fmt: skip

    with serving(serve, folder, environment) as address:
        host = address.partition("/v1/")[0]
        told = json.loads(run(ask.replace("http://127.0.0.1:8501", host)))
        compare(told["predictions"][0][0], page.asked)
        request = request_of(answer(f"{address}/metadata"))
        for first in range(0, len(rows), PIECE):
            served = answer(f"{address}:predict", request(rows[first : first + PIECE]))
            expect(len(served["predictions"]) == len(rows[first : first + PIECE]),
                   f"{page.name}: not an answer for each row from {first} on")  # fmt: skip
            for index, mine in enumerate(served["predictions"], first):
                compare(mine[0], index)
    return f"{page.name}: auc {evaluated}, {len(rows)} rows predicted and served alike"


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs the guide's pages with the program of PATH.")
    parser.add_argument("--guide", type=Path, required=True, help="the folder of the pages")
    parser.add_argument("--data", type=Path, required=True, help="the folder of their data")
    options = parser.parse_args()
    for page in PAGES:
        with tempfile.TemporaryDirectory() as folder:
            try:
                said = try_page(page, options.guide, options.data, Path(folder), os.environ["PATH"])
            except PageError as error:
                print(error, file=sys.stderr)
                return 1
        print(said, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
