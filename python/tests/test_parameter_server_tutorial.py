"""TensorFlow's tutorial of parameter server training: as an example, over every protocol, as a page
of the guide and as a notebook, whose code is that of the example."""

from __future__ import annotations

import json
import os
import re
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from session_servers import PATIENCE_S, ROOT, free_ports

from sidereal.distribute.cluster_resolver import TFConfigClusterResolver
from sidereal.launch import PROTOCOLS

EXAMPLE = ROOT / "examples/distributed/parameter_server_training.py"
PAGE = ROOT / "docs/guide/parameter_server_training.md"
NOTEBOOK = ROOT / "examples/notebooks/parameter_server_training.ipynb"
#: What programs of the page there are that the example does not have, by what is in them.
OF_THE_PAGE = [
    "total_steps", "CheckpointManager(", "SidecarEvaluator(", "def eval_fn", "starting_epoch",
    "def check_fn", "steps_per_invocation",
]  # fmt: skip
#: Runs the cells of a notebook one after another.
RUN = """
import json, sys
names = {}
for cell in json.load(open(sys.argv[1]))["cells"]:
    if cell["cell_type"] == "code":
        exec(compile("".join(cell["source"]), sys.argv[1], "exec"), names)
"""


class Ports(socketserver.StreamRequestHandler):
    """What portpicker asks for ports: those it finds by itself may be anybody's a moment later."""

    def handle(self) -> None:
        self.rfile.readline()  # For which process.
        self.wfile.write(f"{free_ports(1)[0]}\n".encode())


@pytest.fixture(autouse=True)
def ports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    name = f"sidereal-ports-{os.getpid()}"
    with socketserver.UnixStreamServer(f"\0{name}", Ports) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("PORTSERVER_ADDRESS", f"@{name}")
        yield
        server.shutdown()
        thread.join(PATIENCE_S)


def output_of(*words: Any) -> list[str]:
    """The lines that a Python process prints, without a cluster in its environment."""
    environment = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    done = subprocess.run(
        [sys.executable, *map(str, words)], env=environment, check=False, text=True,
        timeout=PATIENCE_S, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def learns(lines: list[str]) -> None:
    assert [line.split(",")[0] for line in lines[:4]] == [f"Finished epoch {i}" for i in range(4)]
    name, value = lines[-1].split(": ")
    assert name == "Evaluation accuracy"
    assert float(value) > 0.9


def stripped(text: str) -> str:
    """Its lines without what they are indented by, and without empty ones."""
    return "".join(f"{line.strip()}\n" for line in text.splitlines() if line.strip())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_tutorial_learns(protocol: str) -> None:
    learns(output_of(EXAMPLE, protocol))


# --- The page of the guide.


def programs() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_the_programs_of_the_page_are_those_of_the_example() -> None:
    example = stripped(EXAMPLE.read_text().split('"""', 2)[2])
    own = [each for each in programs() if any(mark in each for mark in OF_THE_PAGE)]
    assert len(own) == len(OF_THE_PAGE)
    taken = [each for each in programs() if each not in own]
    for program in taken:
        for part in program.split("\n\n"):
            assert stripped(part) in example, part
    # The page has all of it: what asks for a cluster of other processes, and what makes one here.
    shown = stripped("\n".join(taken))
    left = [line for line in example.splitlines() if line not in shown and line[0] != "#"]
    assert left == ["else:"]


def test_the_programs_of_the_page_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE)])
    names: dict[str, Any] = {}
    for program in programs():
        exec(compile(program, str(PAGE), "exec"), names)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0] for line in lines[:4]] == [f"Finished epoch {i}" for i in range(4)]
    assert names["eval_accuracy"].result() > 0.9
    assert names["worker_accuracy"].result().numpy() > 0.9
    # Four epochs of five steps, the one of the last loss, and ten more.
    assert names["eval_model"].optimizer.iterations.numpy() == 31
    assert names["starting_epoch"] == 6
    for server in names["servers"]:
        server.stop()


def test_the_cluster_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    found = re.search(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    monkeypatch.setenv("TF_CONFIG", found[1].replace(":port", ":2222"))
    resolver = TFConfigClusterResolver()
    assert (resolver.task_type, resolver.task_id) == ("worker", 1)
    spec = resolver.cluster_spec()
    assert [spec.num_tasks(job) for job in ("chief", "ps", "worker")] == [1, 2, 3]


# --- The notebook.


def test_the_notebook_learns() -> None:
    learns(output_of("-c", RUN, NOTEBOOK))


def test_the_notebook_is_the_example_without_outputs() -> None:
    notebook = json.loads(NOTEBOOK.read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    known = {line.strip() for line in EXAMPLE.read_text().splitlines()} | {'PROTOCOL = "grpc"'}
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        assert cell["outputs"] == []
        assert cell["execution_count"] is None
        for line in "".join(cell["source"]).splitlines():
            assert line.strip() in known, line
