"""What jobs leave behind in the processes of a cluster, for tests: nothing."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

from session_servers import PATIENCE_S, PROGRAM, Processes, addresses

#: Bytes that a process may grow by in many jobs: parts of the heap that are free and not given
#: back. A job that left a session's threads and buffers would take more.
GROWTH_MAX = 16 << 20
#: gRPC keeps the threads of its pool for a while, and may have had to make some more.
SPARE_THREADS = 4


def serve(processes: Processes, protocol: str, **tasks: int) -> dict[str, list[str]]:
    """The cluster of so many tasks of each job, each a process."""
    spec = {job: addresses(count) for job, count in tasks.items()}
    for job, hosts in spec.items():
        for task in range(len(hosts)):
            processes.serve(spec, job, task, "--protocol", protocol)
    return spec


def tasks_of(target: str, secret: str | None = None) -> list[dict[str, Any]]:
    """What each task of a cluster says of itself. Takes a tenth of a second. All of them are there,
    however long they take to answer."""
    command = [PROGRAM, "top", "--once", "--json", "--interval", "0.1", "--target", target]
    command += ["--timeout", str(PATIENCE_S)]
    environment = {**os.environ, **({} if secret is None else {"SIDEREAL_SECRET": secret})}
    done = subprocess.run(command, capture_output=True, check=True, text=True, env=environment)
    tasks: list[dict[str, Any]] = json.loads(done.stdout)["tasks"]
    return tasks


def what_is_left(target: str) -> list[str]:
    """What each task of a cluster counts that ends with its jobs, and jobs that still run."""
    names = ("sessions", "programs", "resources", "resource_bytes", "steps_running")
    left = []
    for task in tasks_of(target):
        if "figures" not in task:  # It was slow to answer, this time.
            left.append(f"no answer of {task['task']}")
            continue
        counts = {name: task["figures"][f"sidereal_task_{name}"] for name in names}
        left += [f"{count} {name} of {task['task']}" for name, count in counts.items() if count > 0]
        left += [f"a job: {job}" for job in task["jobs"]]
    return left


def _resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _held_by(pid: int) -> tuple[int, int, int]:
    """(handles, threads, pieces of memory shared with others) of a process."""
    shared = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").count("/memfd:sidereal")
    return len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task")), shared


class Leftovers:
    """What processes hold when it is made, after as many jobs as it takes until everything that is
    kept once is there. `names`: process id -> what it is called."""

    def __init__(self, names: dict[int, str]) -> None:
        self._names = names
        self._held = {pid: _held_by(pid) for pid in names}
        self._bytes = {pid: _resident_bytes(pid) for pid in names}

    def _grown(self) -> list[str]:
        out = []
        for pid, before in self._held.items():
            handles, threads, shared = now = _held_by(pid)
            has_grown = handles > before[0] or threads > before[1] + SPARE_THREADS
            if has_grown or shared > before[2]:
                out.append(f"{self._names[pid]}: (handles, threads, shared) {now}, were {before}")
        return out

    def check(self, target: str) -> None:
        """Jobs have left nothing on the cluster and in these processes. The end of a connection or
        a session is seen by others a moment later."""
        deadline = time.monotonic() + PATIENCE_S
        while left := what_is_left(target) + self._grown():
            assert time.monotonic() < deadline, left
        for pid, before in self._bytes.items():
            grown = _resident_bytes(pid) - before
            assert grown < GROWTH_MAX, (self._names[pid], grown)
