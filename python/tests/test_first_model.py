"""The guide's page from a table to a served model: its commands, as they stand there."""

from __future__ import annotations

import csv
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from session_servers import PATIENCE_S, PROGRAM, ROOT

DATA = ROOT.parent / "shared" / "data" / "adult"
PAGE = ROOT / "docs" / "guide" / "first_model.md"


def blocks() -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.M | re.S)


def test_the_page_from_a_table_to_a_served_model(tmp_path: Path) -> None:
    if not DATA.exists():
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
        "DATA": str(DATA), "SIDEREAL_BIN_DIR": str(PROGRAM.parent),
        "PATH": f"{program.parent}:{os.environ['PATH']}",
    }  # fmt: skip

    def run(command: str) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command], cwd=folder, env=environment,
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}{done.stdout}{done.stderr}"
        return done.stdout

    make, look, train, predict, serve, ask = blocks()
    run(make)
    run(look)
    assert 'positive = ">50K"' in (folder / "features.toml").read_text()
    trained = re.search(r"^test: auc ([\d.]+)", run(train), re.M)
    assert trained is not None and float(trained[1]) > 0.9
    evaluated = re.search(r"^auc ([\d.]+)", run(predict), re.M)
    assert evaluated is not None and abs(float(evaluated[1]) - float(trained[1])) <= 5.1e-5
    with open(folder / "scores.csv", newline="") as file:
        scores = list(csv.DictReader(file))
    assert (scores[1]["age"], scores[1]["education"]) == ("38", "HS-grad")

    # Of ports, which others may have, any free one; the rest as it stands there.
    assert "8501" in serve and "8501" in ask
    server = subprocess.Popen(
        ["bash", "-euc", serve.replace("8501", "0").replace("sidereal serve-model", "exec "
         "sidereal serve-model").replace("&", "")],
        cwd=folder, env=environment, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert server.stdout is not None
        line, deadline = "", time.monotonic() + PATIENCE_S
        while not (told := re.search(r"http://127.0.0.1:(\d+)/", line)):
            left = deadline - time.monotonic()
            assert left > 0 and select.select([server.stdout], [], [], left)[0], "it says nothing"
            line = server.stdout.readline()
            assert line, f"ended with {server.wait(PATIENCE_S)}"
        answer = json.loads(run(ask.replace("8501", told[1])))
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(PATIENCE_S) == 0
    assert abs(answer["predictions"][0][0] - float(scores[1]["prediction"])) < 1e-5
