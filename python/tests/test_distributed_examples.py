"""The programs in examples/distributed, on real processes: what they print, and that workers which
train asynchronously do not wait for one another."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from session_servers import PATIENCE_S, ROOT, Processes, addresses, output_of

import sidereal.v1 as tf
from sidereal.launch import PROTOCOLS

EXAMPLES = ROOT / "examples" / "distributed"


@pytest.fixture
def processes() -> Iterator[Processes]:
    made = Processes()
    yield made
    made.end()


def run(*command: object) -> str:
    """Standard output; a failure shows both outputs."""
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=PATIENCE_S,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def launch(script: str, *arguments: object, ps: int = 2, workers: int = 2, chief: bool = False):
    """{task: lines it printed} of an example under `sidereal launch`."""
    words = ["--ps", ps, "--workers", workers, *(["--chief"] if chief else [])]
    output = run(
        sys.executable, "-m", "sidereal", "launch", *words, EXAMPLES / script, *arguments
    )
    lines: dict[str, list[str]] = {}
    for task, line in re.findall(r"^\[(\w+ \d+)\] (.*)$", output, re.M):
        lines.setdefault(task, []).append(line)
    return lines


def losses_in(text: str) -> list[float]:
    return [float(loss) for loss in re.findall(r"loss (\d+\.\d+)", text)]


def test_hello() -> None:
    assert run(sys.executable, EXAMPLES / "hello.py") == "b'Hello, distributed TensorFlow!'\n"


def test_every_line_about_clusters_prints_what_it_is_said_to() -> None:
    assert "13 of 13" in run(sys.executable, EXAMPLES / "cluster_spec.py")


def test_two_tasks() -> None:
    lines = run(sys.executable, EXAMPLES / "two_tasks.py", *addresses(2)).splitlines()
    assert lines == [
        "/job:local/replica:0/task:0/device:CPU:0",
        "/job:local/replica:0/task:1/device:CPU:0",
        "[1. 4. 9.]",
    ]


def test_variables_on_two_ps_and_the_model_on_a_worker(processes: Processes) -> None:
    ports = addresses(3)
    cluster = {"ps": ports[:2], "worker": {"7": ports[2]}}
    for job, task in (("ps", 0), ("ps", 1), ("worker", 7)):
        processes.serve(cluster, job, task)
    target = f"grpc://{ports[2]}"
    before, after = losses_in(run(sys.executable, EXAMPLES / "ps_and_worker.py", target, 300))
    assert after < 0.1 * before


@pytest.mark.parametrize("how, steps", [([], 80), (["--synchronous"], 40)])
def test_in_graph_replication(how: list[str], steps: int) -> None:
    lines = launch("in_graph.py", *how, "--steps", 40, chief=True)
    assert list(lines) == ["chief 0"]
    first, last = lines["chief 0"]
    assert losses_in(last)[0] < 0.1 * losses_in(first)[0]
    assert last.endswith(f"after {steps} steps")


def test_between_graph_replication_is_asynchronous() -> None:
    lines = launch("between_graph.py", "--steps", 150)
    assert sorted(lines) == ["worker 0", "worker 1"]
    for first, last in lines.values():
        assert losses_in(last)[0] < 0.1 * max(losses_in(first)[0], 1)
    # Together they made the steps; each may have read the number before its last one counted.
    total = sum(int(re.findall(r"after (\d+) steps", last)[0]) for _, last in lines.values())
    assert 150 <= total <= 154


@pytest.mark.parametrize("aggregate", [2, 3])
def test_between_graph_replication_is_synchronous(aggregate: int) -> None:
    lines = launch(
        "between_graph_sync.py", "--steps", 60, "--aggregate", aggregate, ps=1, workers=3
    )
    assert sorted(lines) == ["worker 0", "worker 1", "worker 2"]
    for _, last in lines.values():
        assert losses_in(last)[0] < 1
        assert last.endswith("after step 60")


def step_of(cluster: dict[str, list[str]]) -> int:
    """The global step that workers have made."""
    with tf.Graph().as_default(), tf.Session(f"grpc://{cluster['ps'][0]}") as session:
        with tf.device("/job:ps/task:0"):
            # Three variables, round two tasks: the step is the third.
            step = tf.train.get_or_create_global_step()
        return int(session.run(step))


def wait_for_step(cluster: dict[str, list[str]], step: int) -> int:
    pause = threading.Event()
    for _ in range(PATIENCE_S * 20):
        now = step_of(cluster)
        if now >= step:
            return now
        pause.wait(0.05)
    raise AssertionError(f"step {step} did not come")


def test_workers_come_and_go_while_others_train(processes: Processes) -> None:
    ports = addresses(5)
    cluster = {"ps": ports[:2], "worker": ports[2:]}
    script: Path = EXAMPLES / "between_graph.py"
    for task in range(2):
        processes.serve(cluster, "ps", task)

    def worker(task: int, steps: int) -> subprocess.Popen[str]:
        return processes.script(cluster, "worker", task, script, "--steps", steps)

    # Neither of the other workers is there, nor will worker 2 be for long.
    chief = worker(0, 10**9)
    assert chief.stdout is not None
    first = losses_in(chief.stdout.readline())[0]
    now = wait_for_step(cluster, 20)
    doomed = worker(2, 10**9)
    assert doomed.stdout is not None
    assert losses_in(doomed.stdout.readline())
    doomed.send_signal(signal.SIGKILL)
    now = wait_for_step(cluster, step_of(cluster) + 20)
    # One that comes later trains to an end of its own, also when the chief is gone.
    late = worker(1, now + 10**6)
    assert late.stdout is not None
    assert losses_in(late.stdout.readline())[0] < first
    chief.send_signal(signal.SIGKILL)
    chief.wait(PATIENCE_S)
    now = wait_for_step(cluster, step_of(cluster) + 20)
    again = worker(2, now + 20)
    assert losses_in(output_of(again))[-1] < 0.1 * first
    assert late.poll() is None


def test_a_worker_says_that_the_chief_did_not_come(processes: Processes) -> None:
    ports = addresses(3)
    cluster = {"ps": ports[:1], "worker": ports[1:]}
    processes.serve(cluster, "ps", 0)
    alone = processes.script(
        cluster, "worker", 1, EXAMPLES / "between_graph.py", "--wait", "0.2"
    )
    output = alone.communicate(timeout=PATIENCE_S)[0]
    assert alone.returncode == 1
    assert "chief has not given values to [b'w' b'b' b'global_step']" in output


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("script, most", [("star_server.py", 0.69), ("grpc_plus_plus.py", 15.0)])
def test_monitored_sessions_over_all_protocols(
    processes: Processes, tmp_path: Path, script: str, most: float, protocol: str
) -> None:
    ports = addresses(3)
    hosts = ["--ps_hosts", ports[0], "--worker_hosts", ",".join(ports[1:])]
    options = ["--protocol", protocol, "--model_dir", tmp_path, "--steps", 120]

    def task(job: str, index: int) -> subprocess.Popen[str]:
        return processes.script(
            {"ps": ports[:1], "worker": ports[1:]}, job, index, EXAMPLES / script, *hosts,
            "--job_name", job, "--task_index", index, *options,
        )  # fmt: skip

    task("ps", 0)
    for worker in [task("worker", index) for index in range(2)]:
        (loss,) = losses_in(output_of(worker))
        assert loss < most
    assert 120 <= int(re.findall(r"-(\d+)$", tf.train.latest_checkpoint(tmp_path) or "")[0]) <= 123
