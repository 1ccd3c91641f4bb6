"""Servers under `sidereal launch`: they know one another by its secret, and nobody else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PATIENCE_S = 120

#: Each worker adds its number to a variable of the ps. Worker 0 waits until all have, shows the
#: sum, and asks again without the secret.
SCRIPT = """
import sidereal as sr
from sidereal import v1 as tf

resolver = sr.distribute.cluster_resolver.TFConfigClusterResolver()
cluster = resolver.cluster_spec()
server = sr.train.Server(cluster, resolver.task_type, resolver.task_id)
if resolver.task_type == "ps":
    server.join()
graph = tf.Graph()
with graph.as_default():
    with tf.device("/job:ps/task:0"):
        total = tf.Variable(0, dtype=sr.int64, name="total")
        queue = tf.FIFOQueue(10, [sr.int64], shapes=[[]], shared_name="done")
        add = total.assign_add(resolver.task_id + 1)
        with tf.control_dependencies([add]):
            done = queue.enqueue([resolver.task_id])
        one = queue.dequeue()
    init = tf.global_variables_initializer()
    missing = tf.report_uninitialized_variables()
with tf.Session(server.target, graph=graph) as session:
    if resolver.task_id == 0:
        session.run(init)
    while len(session.run(missing)):
        pass
    session.run(done)
    if resolver.task_id == 0:
        for _ in range(cluster.num_tasks("worker")):
            session.run(one)
        print("total", session.run(total))
        nonmember = tf.ConfigProto(security=sr.SecurityOptions(), operation_timeout_in_ms=1000)
        try:
            tf.Session(server.target, graph=graph, config=nonmember).run(total)
        except sr.errors.UnauthenticatedError as error:
            print("nonmember", type(error).__name__)
"""


def test_launched_servers_work_together_and_refuse_nonmembers(tmp_path: Path) -> None:
    script = tmp_path / "task.py"
    script.write_text(SCRIPT)
    finished = subprocess.run(
        [sys.executable, "-m", "sidereal", "launch", "--ps", "1", "--workers", "3", str(script)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=os.environ,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    lines = finished.stdout.splitlines()
    assert "[worker 0] total 6" in lines
    nonmembers = [line for line in lines if line.startswith("[worker 0] nonmember ")]
    assert nonmembers == ["[worker 0] nonmember UnauthenticatedError"]


def test_a_local_server_and_its_sessions_take_the_secret_of_the_environment() -> None:
    code = (
        "import sidereal as sr; from sidereal import v1 as tf\n"
        "server = sr.train.Server.create_local_server()\n"
        "value = tf.constant('hello')\n"
        "print(tf.Session(server.target).run(value))\n"
    )
    finished = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=os.environ | {"SIDEREAL_SECRET": "thirty-two bytes that nobody knows"},
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout == "b'hello'\n"
