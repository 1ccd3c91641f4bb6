"""A job of a cluster is one program's: who runs it, who is refused, and who takes it over."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from leftovers import serve, tasks_of
from session_servers import PATIENCE_S, PROGRAM, Processes

import sidereal as sr
from conftest import planted, small_model
from sidereal import errors, v1

#: Trains for ever as the job "ads" of Alice, says that it has begun, and what ended it.
ENDLESS = textwrap.dedent("""
    import json, sys
    import sidereal as sr
    data = sr.data.synthetic(rows=200_000_000, vocabulary_max=1000)
    model = sr.models.build("deepfm", data, hidden=[8], embedding_dim=4)
    said = []
    def begun(_):
        if not said:
            print("begun", flush=True)
            said.append(True)
    try:
        model.fit(data, cluster=sr.RemoteCluster(json.loads(sys.argv[1])), verbose=False,
                  on_progress=begun, name="ads", checkpoint_dir=sys.argv[2],
                  **json.loads(sys.argv[3]))
    except Exception as error:
        print(type(error).__name__, error, flush=True)
""")


@pytest.fixture
def processes() -> Iterator[Processes]:
    made = Processes()
    yield made
    made.end()


class Cluster:
    def __init__(self, processes: Processes, protocol: str, folder: Path) -> None:
        self.processes = processes
        self.spec = serve(processes, protocol, ps=2, worker=1)
        self.target = f"grpc://{self.spec['worker'][0]}"
        self.folder = folder / "checkpoints"

    def remote(self) -> sr.RemoteCluster:
        return sr.RemoteCluster(self.spec)

    def alice(self, **options: Any) -> subprocess.Popen[str]:
        """Her program, once it trains."""
        words = [json.dumps(self.spec), str(self.folder), json.dumps(options)]
        made = subprocess.Popen(
            [sys.executable, "-c", ENDLESS, *words], stdout=subprocess.PIPE, text=True,
            env=os.environ | {"SIDEREAL_USER": "alice"},
        )  # fmt: skip
        self.processes.all.append(made)
        assert made.stdout is not None
        assert made.stdout.readline() == "begun\n"
        return made

    def jobs(self) -> list[tuple[str, str]]:
        """(name, user) of what runs."""
        tasks = tasks_of(self.target)
        if any("jobs" not in task for task in tasks):
            return [("a task that did not answer", "")]
        return [(job["name"], job["user"]) for task in tasks for job in task["jobs"]]

    def wait_for_jobs(self, wanted: list[tuple[str, str]]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while self.jobs() != wanted:
            assert time.monotonic() < deadline, self.jobs()


@pytest.fixture(params=["grpc", "star_server"])
def cluster(
    request: pytest.FixtureRequest, processes: Processes, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Cluster:  # fmt: skip
    monkeypatch.setenv("SIDEREAL_USER", "bob")
    return Cluster(processes, request.param, tmp_path)


def test_a_second_job_of_a_name_is_refused_and_hears_of_the_first(cluster: Cluster) -> None:
    data, remote = planted(256), cluster.remote()
    first, second = small_model(), small_model()
    first.fit(data, cluster=remote, verbose=False, name="ads")
    cluster.wait_for_jobs([("ads", "bob")])
    with pytest.raises(errors.AlreadyExistsError) as refused:
        second.fit(data, cluster=remote, verbose=False, name="ads")
    for part in [
        "the job 'ads' is run by bob on host ", f"process {os.getpid()} (", " since 20",
        "wait until it has ended", "--name, name=", "--take-over, take_over=True",
    ]:  # fmt: skip
        assert part in str(refused.value)
    with pytest.raises(errors.AlreadyExistsError, match="is run by bob"):
        v1.Session(cluster.target, config=v1.ConfigProto(lease_name="ads")).run(v1.constant(1.0))
    # Others run beside it, and it goes on.
    second.fit(data, cluster=remote, verbose=False, name="feed")
    assert small_model().fit(data, cluster=remote, verbose=False).steps > 0
    assert first.fit(data, verbose=False, name="ads").steps > 0
    with pytest.raises(errors.FailedPreconditionError, match="as the job 'ads'"):
        first.fit(data, verbose=False, name="search")
    del first, second, refused  # Its traceback has the second one.
    gc.collect()
    cluster.wait_for_jobs([])


def test_the_name_is_free_when_its_program_was_killed(cluster: Cluster) -> None:
    program = cluster.alice()
    cluster.wait_for_jobs([("ads", "alice")])
    program.kill()
    program.wait()
    cluster.wait_for_jobs([])
    assert small_model().fit(
        planted(256), cluster=cluster.remote(), verbose=False, name="ads"
    ).steps  # fmt: skip


def test_a_job_is_taken_over_with_its_checkpoints(cluster: Cluster) -> None:
    program = cluster.alice(save_every="20steps")
    deadline = time.monotonic() + PATIENCE_S
    while not (cluster.folder / "checkpoint").exists():  # It names one that is whole.
        assert time.monotonic() < deadline
    data = sr.data.synthetic(rows=10_000, vocabulary_max=1000)
    model = sr.models.build("deepfm", data, hidden=[8], embedding_dim=4)
    with pytest.raises(errors.AlreadyExistsError, match="is run by alice on host "):
        model.fit(data, cluster=cluster.remote(), verbose=False, name="ads")
    # Trained for less than it has been already: nothing is left to do.
    data = sr.data.synthetic(rows=200_000_000, vocabulary_max=1000)
    result = model.fit(
        data, cluster=cluster.remote(), verbose=False, name="ads", take_over=True, steps_max=5,
        checkpoint_dir=cluster.folder,
    )  # fmt: skip
    assert result.checkpoints.resumed_from
    said = program.communicate(timeout=PATIENCE_S)[0]
    assert said.startswith("FailedPreconditionError"), said
    assert "the job 'ads' was taken over by bob on host " in said
    assert f"process {os.getpid()} (" in said
    cluster.wait_for_jobs([("ads", "bob")])


def test_a_session_that_was_taken_over_changes_nothing_any_more(cluster: Cluster) -> None:
    graph = v1.Graph()
    with graph.as_default(), v1.device("/job:ps/task:1"):
        v = v1.get_variable("v", initializer=0.0)
        up = v.assign_add(1.0)

    def session(**job: Any) -> v1.Session:
        return v1.Session(cluster.target, graph=graph, config=v1.ConfigProto(**job))

    with session(lease_name="ads") as first:
        first.run(v.initializer)
        first.run(up)
        with session(lease_name="ads", take_over=True) as second:
            assert second.run(v) == 1.0  # It is made with its first run.
            for _ in range(2):
                with pytest.raises(errors.FailedPreconditionError, match="taken over by bob on"):
                    first.run(up)
            assert second.run(v) == 1.0
    cluster.wait_for_jobs([])


def test_a_job_hears_at_once_that_its_lease_is_lost(cluster: Cluster) -> None:
    """What it runs needs nothing of the server that granted the lease."""
    graph = v1.Graph()
    with graph.as_default(), v1.device("/job:ps/task:1"):
        v = v1.get_variable("v", initializer=0.0)
        waits = v1.FIFOQueue(1, [v1.float32]).dequeue()
    lost = "/job:ps/replica:0/task:0 had granted the lease of the job 'ads', which is lost: "
    with ThreadPoolExecutor() as threads:
        first = v1.Session(cluster.target, graph=graph, config=v1.ConfigProto(lease_name="ads"))
        first.run(v.initializer)
        running = threads.submit(first.run, waits)
        cluster.processes.all[0].kill()
        with pytest.raises(errors.UnavailableError, match=lost):
            running.result(timeout=PATIENCE_S)
        with pytest.raises(errors.UnavailableError, match=lost):
            first.run(v)
        first.close()


def test_the_command_line_names_jobs_and_takes_them_over(cluster: Cluster, tmp_path: Path) -> None:
    program = cluster.alice()
    data = tmp_path / "rows.csv"
    data.write_text("label,site\n" + "0,a\n1,b\n" * 50)

    def train(*options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [PROGRAM, "train", "--data", data, "--model", "lr", "--quiet", "--cluster",
             json.dumps(cluster.spec), *options],
            capture_output=True, text=True, timeout=PATIENCE_S,
        )  # fmt: skip

    refused = train("--name", "ads")
    assert refused.returncode == 1
    assert "ALREADY_EXISTS: " in refused.stderr
    assert "the job 'ads' is run by alice on host " in refused.stderr
    assert train("--take-over").returncode != 0
    assert train("--name", "feed").returncode == 0
    shown = subprocess.run(
        [PROGRAM, "top", "--once", "--interval", "0.1", "--timeout", str(PATIENCE_S), "--target",
         cluster.target],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    (row,) = [line for line in shown.stdout.splitlines() if line.startswith("ads ")]
    assert "alice" in row and str(program.pid) in row
    taken = train("--name", "ads", "--take-over")
    assert taken.returncode == 0, taken.stderr
    said = program.communicate(timeout=PATIENCE_S)[0]
    assert "the job 'ads' was taken over by bob on host " in said
    assert "sidereal train --data" in said
    cluster.wait_for_jobs([])


def test_take_over_needs_a_name(cluster: Cluster) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="take_over is True and there is no name"):
        small_model().fit(planted(64), cluster=cluster.remote(), verbose=False, take_over=True)
    with pytest.raises(ValueError, match="lease_name"):
        v1.ConfigProto(take_over=True)
    with pytest.raises(errors.InvalidArgumentError, match="cannot be printed"):
        small_model().fit(planted(64), cluster=cluster.remote(), verbose=False, name="a\nb")
