"""`sidereal launch --on ray`, on a real cluster of Ray that is this machine."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from launches import Launch

from sidereal._launch_task import die_with_parent
from sidereal.launch import ReservedPorts

pytest.importorskip("ray", reason="skipped: no package ray")

#: Ray starts a handful of processes, each of which loads a lot: a loaded machine takes its time.
PATIENCE_S = 300
CPUS = 4

SCRIPT = """
import json, os, signal, sys

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})  # It may come as soon as facts are told.
config = json.loads(os.environ["TF_CONFIG"])
job, index = config["task"]["type"], config["task"]["index"]
secret = open(os.environ["SIDEREAL_SECRET_FILE"]).read()
print("facts", json.dumps({"pid": os.getpid(), "config": config, "secret": secret,
                           "arguments": sys.argv[2:], "cwd": os.getcwd()}), flush=True)
what = json.loads(sys.argv[1]).get(f"{job} {index}", "exit 0").split()
if what[0] == "exit":
    sys.exit(int(what[1]))
if what[0] == "told":
    signal.sigwait({signal.SIGUSR1})
if what[0] == "print":
    for i in range(int(what[1])):
        print("line", i, "x" * (i % 200))
if what[0] == "wait":
    signal.pause()
"""

#: A session on the servers of the tasks, and fit() of a model, by the worker.
TRAINING = """
import numpy as np
import sidereal as sr
from sidereal import keras, v1 as tf

resolver = sr.distribute.cluster_resolver.TFConfigClusterResolver()
server = sr.train.Server(resolver.cluster_spec(), resolver.task_type, resolver.task_id)
if resolver.task_type != "chief":
    server.join()
with tf.Graph().as_default():
    with tf.device("/job:ps/task:0"):
        total = tf.Variable(4, dtype=sr.int64)
    with tf.Session(server.target) as session:
        session.run(tf.global_variables_initializer())
        print("session", int(session.run(total.assign_add(3))), flush=True)
strategy = sr.distribute.ParameterServerStrategy(resolver)
with strategy.scope():
    model = keras.Sequential([keras.layers.Embedding(10, 4), keras.layers.Flatten(),
                              keras.layers.Dense(1)])
    model.compile("adam", loss=keras.losses.BinaryCrossentropy(from_logits=True))
ids = np.arange(200).reshape(-1, 1) % 10
dataset = sr.data.Dataset.from_tensor_slices((ids, (ids % 2).astype("float32")))
history = model.fit(dataset.repeat().batch(20), epochs=1, steps_per_epoch=5, verbose=0)
print("fit", np.isfinite(history.history["loss"][0]), flush=True)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a cluster with one node."""
    folder = Path(tempfile.mkdtemp(prefix="sr-ray-"))  # Ray's sockets want a short path.
    ports = ReservedPorts(1, range(20000, 32000, 7))  # Below are those of Ray's workers.
    log = folder / "log"
    words = [
        Path(sys.executable).parent / "ray", "start", "--head", "--block",
        "--node-ip-address=127.0.0.1", f"--port={ports.ports[0]}", f"--num-cpus={CPUS}",
        "--include-dashboard=false", "--disable-usage-stats", f"--temp-dir={folder}",
        "--object-store-memory=80000000",
    ]  # fmt: skip
    with log.open("w") as file:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=file, text=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - one call of the system
            start_new_session=True,
        )  # fmt: skip
    started = threading.Event()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if "Ray runtime started" in line:
                started.set()
        started.set()

    thread = threading.Thread(target=read)
    thread.start()
    try:
        assert started.wait(PATIENCE_S) and process.poll() is None, log.read_text()
        yield f"127.0.0.1:{ports.ports[0]}"
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        thread.join(PATIENCE_S)
        assert process.stdout is not None
        process.stdout.close()
        ports.close()
        shutil.rmtree(folder, ignore_errors=True)


def on_ray(address: str, *words: str) -> Launch:
    environment = os.environ | {"RAY_USAGE_STATS_ENABLED": "0"}
    return Launch(["--on", "ray", "--ray-address", address, *words], environment, PATIENCE_S)


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "task.py"
    path.write_text(SCRIPT)
    return str(path)


def is_over(pid: int) -> bool:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], PATIENCE_S)[0])
    finally:
        os.close(handle)


def test_tasks_know_the_cluster_and_end_as_everywhere(cluster: str, script: str) -> None:
    plan = {"ps 0": "wait", "worker 0": "told", "worker 1": "print 3000"}
    one = on_ray(cluster, "--workers", "2", "--cpus", "0.5", "--protocol", "grpc++", script,
                 json.dumps(plan), "a b")  # fmt: skip
    one.wait_for(3)
    os.kill(one.facts["worker 0"]["pid"], signal.SIGUSR1)
    assert one.end() == 0, one.errors
    assert set(one.facts) == {"ps 0", "worker 0", "worker 1"}
    spec = one.facts["ps 0"]["config"]["cluster"]
    addresses = [address for job in spec.values() for address in job]
    assert len(set(addresses)) == 3
    for name, fact in one.facts.items():
        job, index = name.split()
        assert fact["config"]["cluster"] == spec and fact["config"]["rpc_layer"] == "grpc++"
        assert fact["config"]["task"] == {"type": job, "index": int(index)}
        assert fact["arguments"] == ["a b"] and fact["cwd"] == os.getcwd()
        assert is_over(fact["pid"])
    assert len({fact["secret"] for fact in one.facts.values()}) == 1
    said = [line for line in one.lines if line.startswith("[worker 1] line")]
    assert said == [f"[worker 1] line {i} {'x' * (i % 200)}" for i in range(3000)]


def test_the_first_failure_is_named_and_ends_all(cluster: str, script: str) -> None:
    plan = {"ps 0": "wait", "worker 0": "wait", "worker 1": "exit 3"}
    one = on_ray(cluster, "--workers", "2", "--cpus", "0.5", "--grace", "1", script,
                 json.dumps(plan))  # fmt: skip
    assert one.end() == 3
    assert "worker 1 on " in one.errors and "failed first: exit code 3" in one.errors
    assert all(is_over(fact["pid"]) for fact in one.facts.values())


def test_a_ps_that_was_killed_is_started_again_at_its_address(cluster: str, script: str) -> None:
    one = on_ray(cluster, "--cpus", "0.5", "--on-ps-loss", "restore", "--silence", "0", script,
                 json.dumps({"ps 0": "wait", "worker 0": "told"}))  # fmt: skip
    one.wait_for(2)
    first = one.facts["ps 0"]
    os.kill(first["pid"], signal.SIGKILL)
    assert one.next_life("ps 0")["config"] == first["config"]
    os.kill(one.facts["worker 0"]["pid"], signal.SIGUSR1)
    assert one.end() == 0, one.errors
    assert "ps 0 is lost (killed by signal 9 (SIGKILL)) and was started again" in one.errors


def test_when_launch_is_killed_its_tasks_end(cluster: str, script: str) -> None:
    one = on_ray(cluster, "--cpus", "0.5", "--grace", "0.2", script,
                 json.dumps({"ps 0": "wait", "worker 0": "wait"}))  # fmt: skip
    one.wait_for(2)
    one.process.kill()
    one.end()
    assert all(is_over(fact["pid"]) for fact in one.facts.values())


def test_without_room_it_says_how_much_there_is(cluster: str, script: str) -> None:
    one = on_ray(cluster, "--workers", "8", "--start-timeout", "2", script, "{}")
    began = time.monotonic()
    assert one.end() == 1
    assert time.monotonic() - began < PATIENCE_S
    assert f"it has {CPUS}" in one.errors and "--cpus" in one.errors
    assert not one.facts


def test_sessions_and_fit_run_on_ray(cluster: str, tmp_path: Path) -> None:
    (tmp_path / "training.py").write_text(TRAINING)
    one = on_ray(cluster, "--chief", "--cpus", "0.5", str(tmp_path / "training.py"))
    while "[chief 0] fit True" not in one.lines:
        assert one.next_line(), one.end()
    assert "[chief 0] session 7" in one.lines
    one.process.send_signal(signal.SIGTERM)  # Servers are there until somebody ends them.
    assert one.end() == 128 + signal.SIGTERM
