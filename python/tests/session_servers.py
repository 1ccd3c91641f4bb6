"""Servers for sessions in processes of their own, for tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

from sidereal.launch import ReservedPorts

ROOT = Path(__file__).parents[2]
PRESET = os.environ.get("SIDEREAL_PRESET", "dev")
PROGRAM = Path(os.environ.get("SIDEREAL_BIN_DIR", ROOT / "build" / PRESET / "bin")) / "sidereal"
#: Seconds a loaded machine may take for what usually takes a few.
PATIENCE_S = 120


#: Of tests that may still run: the last ones.
_reserved: deque[ReservedPorts] = deque(maxlen=64)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens at and that no other test gets meanwhile."""
    _reserved.append(ReservedPorts(count))
    assert len(_reserved[-1].ports) == count
    return _reserved[-1].ports


def addresses(count: int) -> list[str]:
    return [f"localhost:{port}" for port in free_ports(count)]


class Processes:
    """Processes that are killed at the end of a test."""

    def __init__(self) -> None:
        self.all: list[subprocess.Popen[str]] = []

    def serve(
        self, cluster: dict[str, Any], job: str, task: int, *options: Any, **process: Any
    ) -> subprocess.Popen[str]:
        """A server without Python, which listens when this returns. `process`: for Popen."""
        what = ["--cluster", json.dumps(cluster), "--job", job, "--task", task, *options]
        process = {"stderr": subprocess.DEVNULL, **process}
        made = self._start([PROGRAM, "serve", *what], **process)
        assert made.stdout is not None
        line = made.stdout.readline()
        assert line.rstrip().rpartition(":")[2].isdigit(), line
        return made

    def script(
        self, cluster: dict[str, Any], job: str, task: int, script: Path, *arguments: Any
    ) -> subprocess.Popen[str]:
        """A Python script as a task."""
        config = {"cluster": cluster, "task": {"type": job, "index": task}}
        return self._start(
            [sys.executable, script, *arguments],
            env=os.environ | {"TF_CONFIG": json.dumps(config)}, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def _start(self, words: list[Any], **options: Any) -> subprocess.Popen[str]:
        made = subprocess.Popen(
            [str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            text=True, **options,
        )  # fmt: skip
        self.all.append(made)
        return made

    def end(self) -> None:
        for process in self.all:
            process.kill()
        for process in self.all:
            process.communicate()


def output_of(process: subprocess.Popen[str]) -> str:
    """What it prints until it ends well."""
    output = process.communicate(timeout=PATIENCE_S)[0]
    assert process.returncode == 0, output
    return output


class Tasks:
    """Two parameter servers and a worker, in processes of their own."""

    def __init__(self, protocol: str) -> None:
        self.cluster = {"ps": addresses(2), "worker": addresses(1)}
        self.processes = Processes()
        self._protocol = protocol
        self._ps = [self._serve("ps", 0), self._serve("ps", 1)]
        self._serve("worker", 0)

    def _serve(self, job: str, task: int) -> subprocess.Popen[str]:
        return self.processes.serve(self.cluster, job, task, "--protocol", self._protocol)

    def kill(self, task: int) -> None:
        """Ends a parameter server."""
        self._ps[task].kill()
        self._ps[task].wait()

    def start(self, task: int) -> None:
        """Another process in its place, which has nothing."""
        self._ps[task] = self._serve("ps", task)

    def restart(self, task: int) -> None:
        self.kill(task)
        self.start(task)


def children_of(pid: int) -> dict[int, str]:
    """Process id -> command line of the children of a process, all its threads' together. Threads
    and children may end meanwhile."""
    gone = (FileNotFoundError, ProcessLookupError)
    children: list[str] = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(*gone):
            children += (thread / "children").read_text().split()
    commands = {}
    for child in children:
        with suppress(*gone):
            words = Path(f"/proc/{child}/cmdline").read_bytes()
            commands[int(child)] = words.replace(b"\0", b" ").decode()
    return commands


def is_running(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
