"""Servers under `sidereal launch`: they know one another by its secret, and nobody else."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

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
        nonmember = tf.ConfigProto(security=sr.SecurityOptions())
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


#: What tasks begin with: a server each, of which a ps says its process and does nothing else.
SERVING = """
import os
import sys
import time
import sidereal as sr
from sidereal import v1 as tf

resolver = sr.distribute.cluster_resolver.TFConfigClusterResolver()
server = sr.train.Server(resolver.cluster_spec(), resolver.task_type, resolver.task_id)
if resolver.task_type == "ps":
    print("pid", os.getpid(), flush=True)
    server.join()
"""

#: The worker runs steps at the ps until one fails, and then another one in a new session. It
#: speaks when the launcher has surely asked the ps, which it does every second.
HANGING = SERVING + """
with tf.device("/job:ps/task:0"):
    number = tf.placeholder("float32", [])
    answer = tf.negative(number)
for life in (1, 2):
    with tf.Session(server.target) as session:
        value = session.run(answer, {number: 1.0})
        began = time.monotonic()
        while life == 1 and time.monotonic() < began + 4:
            session.run(answer, {number: 1.0})
        print("life", life, value, flush=True)
        while life == 1:
            try:
                session.run(answer, {number: 1.0})
            except (sr.errors.AbortedError, sr.errors.UnavailableError):
                break
"""


def test_a_ps_that_hangs_is_killed_and_started_again(tmp_path: Path) -> None:
    script = tmp_path / "task.py"
    script.write_text(HANGING)
    command = [sys.executable, "-m", "sidereal", "launch", "--on-ps-loss", "restore", "--silence"]
    with subprocess.Popen(
        # Long enough for a loaded machine to answer, while it does.
        [*command, "8", str(script)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    ) as launched:  # fmt: skip
        assert launched.stdout is not None
        deadline = threading.Timer(PATIENCE_S, launched.kill)
        deadline.start()
        pids = []
        stopped = 0
        for line in launched.stdout:
            if line.startswith("[ps 0] pid "):
                pids.append(int(line.split()[-1]))
            if line == "[worker 0] life 1 -1.0\n":
                os.kill(pids[0], signal.SIGSTOP)
                stopped += 1
            if line == "[worker 0] life 2 -1.0\n":
                break
        deadline.cancel()
        assert stopped == 1
        _, errors = launched.communicate(timeout=PATIENCE_S)
    assert launched.returncode == 0, errors
    assert len(pids) == 2 and not Path(f"/proc/{pids[0]}").exists()
    assert re.search(r"ps 0 has not answered for \d+\.\d s and is killed\n", errors), errors
    assert "ps 0 is lost (killed by signal 9 (SIGKILL)) and was started again" in errors


#: The worker counts on ps 0 when that has a standby, and reads what it has in another life.
STANDBYS = SERVING + """
sys.path.insert(0, sys.argv[1])
from leftovers import tasks_of

with tf.device("/job:ps/task:0"):
    total = tf.Variable(0.0, name="total")
    add = total.assign_add(1.0)
with tf.Session(server.target) as session:
    session.run(total.initializer)
    streams = None
    while streams != 1:
        found = {one["task"]: one for one in tasks_of(server.target)}
        ps = found["/job:ps/replica:0/task:0"]
        streams = ps.get("figures", {}).get("sidereal_standbys")
    for _ in range(5):
        session.run(add)
    print("counted", flush=True)
    try:
        while True:
            session.run(total)
    except (sr.errors.AbortedError, sr.errors.UnavailableError):
        pass
with tf.Session(server.target) as session:
    print("total", session.run(total), flush=True)
"""


@pytest.mark.parametrize("voters", [0, 3])
def test_a_ps_with_replicas_has_what_it_had(tmp_path: Path, voters: int) -> None:
    script = tmp_path / "task.py"
    script.write_text(STANDBYS)
    command = [sys.executable, "-m", "sidereal", "launch", "--on-ps-loss", "restore"]
    with subprocess.Popen(
        [*command, "--ps", "2", "--workers", "1", "--replicas", "2",
         "--voters", str(voters), str(script), str(Path(__file__).parent)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as launched:  # fmt: skip
        assert launched.stdout is not None
        deadline = threading.Timer(PATIENCE_S, launched.kill)
        deadline.start()
        pids, totals = [], []
        for line in launched.stdout:
            if line.startswith("[ps 0] pid "):
                pids.append(int(line.split()[-1]))
            if line == "[worker 0] counted\n":
                os.kill(pids[0], signal.SIGKILL)
            if line.startswith("[worker 0] total "):
                totals.append(float(line.split()[-1]))
        deadline.cancel()
        _, errors = launched.communicate(timeout=PATIENCE_S)
    assert launched.returncode == 0, errors
    assert totals == [5.0] and len(pids) == 2, errors


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
