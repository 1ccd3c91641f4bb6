"""Jobs on one cluster, one after the other: what they leave behind is nothing, also when killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator

import pytest
from leftovers import Leftovers, serve, what_is_left
from session_servers import PATIENCE_S, Processes

import sidereal as sr
from conftest import Data, planted, small_model
from sidereal import v1
from sidereal.launch import PROTOCOLS

JOBS = 250
#: Jobs after which everything that is kept once is there.
WARM = 100
#: Trains until it is killed, and says that it has begun.
ENDLESS = textwrap.dedent("""
    import json, sys
    import sidereal as sr
    data = sr.data.synthetic(rows=20_000_000, vocabulary_max=1000)
    model = sr.models.build("deepfm", data, hidden=[8], embedding_dim=4)
    model.fit(data, cluster=sr.RemoteCluster(json.loads(sys.argv[1])), verbose=False,
              consistency=sys.argv[2], on_progress=lambda _: print(flush=True))
""")


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
    before = Leftovers(names)
    jobs(JOBS - WARM)
    before.check(target)


@pytest.mark.parametrize("how", ["async", "sync", "bounded(1)"])
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
