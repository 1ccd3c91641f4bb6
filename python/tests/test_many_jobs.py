"""Jobs on one cluster, one after the other: what they leave behind is nothing, also when killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from session_servers import PATIENCE_S, PROGRAM, Processes, addresses

import sidereal as sr
from conftest import Data, planted, small_model
from sidereal import v1
from sidereal.launch import PROTOCOLS

JOBS = 250
#: Jobs after which everything that is kept once is there.
WARM = 100
#: Bytes that a process may grow by in the other jobs: parts of the heap that are free and not given
#: back. A job that left a session's threads and buffers would take more.
GROWTH_MAX = 16 << 20
#: gRPC keeps the threads of its pool for a while, and may have had to make some more.
SPARE_THREADS = 4
#: Trains until it is killed, and says that it has begun.
ENDLESS = textwrap.dedent("""
    import json, sys
    import sidereal as sr
    data = sr.data.synthetic(rows=20_000_000, vocabulary_max=1000)
    model = sr.models.build("deepfm", data, hidden=[8], embedding_dim=4)
    model.fit(data, cluster=sr.RemoteCluster(json.loads(sys.argv[1])), verbose=False,
              synchronous=sys.argv[2] == "in step", on_progress=lambda _: print(flush=True))
""")


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def held_by(pid: int) -> tuple[int, int]:
    """(handles, threads) of a process."""
    return len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task"))


def what_is_left(target: str) -> list[str]:
    """What each task of a cluster counts that ends with its jobs. Takes a tenth of a second."""
    command = [PROGRAM, "top", "--once", "--json", "--interval", "0.1", "--target", target]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    names = ("sessions", "programs", "resources", "resource_bytes", "steps_running")
    left = []
    for task in json.loads(done.stdout)["tasks"]:
        if "figures" not in task:  # It was slow to answer, this time.
            left.append(f"no answer of {task['task']}")
            continue
        counts = {name: task["figures"][f"sidereal_task_{name}"] for name in names}
        left += [f"{count} {name} of {task['task']}" for name, count in counts.items() if count > 0]
    return left


def shared_files() -> int:
    return sum(name.startswith("sidereal") for name in os.listdir("/dev/shm"))


def train_a_model(cluster: sr.RemoteCluster, data: Data) -> None:
    model = small_model()
    assert model.fit(data, cluster=cluster, batch_size=64, verbose=False).steps > 0


def run_a_session(target: str, number: int) -> None:
    graph = v1.Graph()
    with graph.as_default(), v1.device("/job:ps/task:0"):
        v = v1.get_variable("v", initializer=[float(number)] * 1000)
        bump = v.assign_add([1.0] * 1000)
    with v1.Session(target, graph=graph) as session:
        session.run(v.initializer)
        session.run(bump)
    v1.Session.reset(target)


@pytest.fixture
def processes() -> Iterator[Processes]:
    made = Processes()
    yield made
    made.end()


def serve(processes: Processes, protocol: str, **tasks: int) -> dict[str, list[str]]:
    """The cluster of so many tasks of each job, each a process."""
    spec = {job: addresses(count) for job, count in tasks.items()}
    for job, hosts in spec.items():
        for task in range(len(hosts)):
            processes.serve(spec, job, task, "--protocol", protocol)
    return spec


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_jobs_leave_no_memory_handle_thread_or_file_behind(
    processes: Processes, protocol: str
) -> None:
    spec = serve(processes, protocol, ps=2, worker=1)
    cluster = sr.RemoteCluster(spec)
    names = {os.getpid(): "the client"} | {one.pid: str(one.args) for one in processes.all}
    data = planted(256)
    target = f"grpc://{spec['worker'][0]}"

    def jobs(count: int) -> None:
        for number in range(count):
            if number % 2 == 0:
                train_a_model(cluster, data)
            else:
                run_a_session(target, number)

    jobs(WARM)
    before = {pid: (held_by(pid), resident_bytes(pid)) for pid in names}
    files = shared_files()
    jobs(JOBS - WARM)
    deadline = time.monotonic() + PATIENCE_S
    left = ["not looked at yet"]
    # The end of a connection or a session is seen by others a moment later.
    while left:
        assert time.monotonic() < deadline, left
        left = what_is_left(target)
        for pid, (held, _) in before.items():
            handles, threads = held_by(pid)
            if handles > held[0] or threads > held[1] + SPARE_THREADS:
                left.append(f"{names[pid]}: (handles, threads) {handles, threads}, were {held}")
        if shared_files() > files:
            left.append(f"{shared_files()} shared files, were {files}")
    for pid, (_, bytes_before) in before.items():
        grown = resident_bytes(pid) - bytes_before
        assert grown < GROWTH_MAX, (names[pid], grown)


@pytest.mark.parametrize("how", ["asynchronously", "in step"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_fit_whose_program_is_killed_leaves_nothing_behind(
    processes: Processes, protocol: str, how: str
) -> None:
    spec = serve(processes, protocol, ps=2, worker=2)
    target = f"grpc://{spec['worker'][0]}"
    command = [sys.executable, "-c", ENDLESS, json.dumps(spec), how]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as program:
        try:
            assert program.stdout is not None
            assert program.stdout.readline(), "it ended before it trained"
        finally:
            program.kill()
    deadline = time.monotonic() + PATIENCE_S
    while left := what_is_left(target):
        assert time.monotonic() < deadline, left
    train_a_model(sr.RemoteCluster(spec), planted(256))
