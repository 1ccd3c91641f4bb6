"""Where nodes are placed, what masters see, and Python functions on servers."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from session_servers import free_ports

import sidereal as sr
import sidereal.v1 as tf
from sidereal import errors

CLUSTER = {"ps": ["p0:1", "p1:1"], "worker": ["w0:1"]}


@pytest.fixture(autouse=True)
def graph() -> Iterator[tf.Graph]:
    with tf.Graph().as_default() as made:
        yield made


def test_a_report_says_where_nodes_and_variables_would_be(graph: tf.Graph) -> None:
    with tf.device("/job:ps/task:1"):
        w = tf.Variable(np.zeros((784, 10), "f"), name="w")
    y = tf.identity(w * 2.0, name="y")
    assert y.device == ""
    report = graph.placement(CLUSTER, master="/job:worker/task:0")
    assert report.devices["y"] == "/job:worker/replica:0/task:0/device:CPU:0"
    assert report.devices["w"] == "/job:ps/replica:0/task:1/device:CPU:0"
    (variable,) = report.variables
    assert (variable.name, variable.value, variable.bytes) == ("w", "float32[784,10]", 31360)
    loads = {load.task: (load.variables, load.bytes) for load in report.tasks}
    assert loads["/job:ps/replica:0/task:1"] == (1, 31360)
    assert report.imbalance >= 1
    lines = str(report).splitlines()
    assert lines[0].split() == ["task", "variables", "bytes", "nodes"]
    assert report == tf.placement_report(graph, CLUSTER, "/job:worker/task:0")


def test_what_cannot_be_placed_is_named(graph: tf.Graph) -> None:
    with tf.device("/job:ps/task:1/device:GPU:0"):
        tf.constant(1.0, name="c")
    with pytest.raises(errors.InvalidArgumentError, match="available devices"):
        graph.placement(CLUSTER)
    assert "c" in graph.placement(CLUSTER, allow_soft_placement=True).devices
    with pytest.raises(errors.InvalidArgumentError, match="/job:chief"):
        graph.placement(CLUSTER, "/job:chief", True)
    with pytest.raises(errors.InvalidArgumentError, match="no tasks"):
        graph.placement({})


@pytest.fixture
def cluster() -> dict[str, list[str]]:
    ports = free_ports(2)
    return {"ps": [f"localhost:{ports[0]}"], "worker": [f"localhost:{ports[1]}"]}


def test_clients_are_told_where_nodes_run(
    cluster: dict[str, list[str]], capfd: pytest.CaptureFixture[str]
) -> None:
    servers = [sr.train.Server(cluster, job, 0) for job in cluster]
    with tf.device("/job:ps"):
        v = tf.Variable(1.0, name="v")
    config = tf.ConfigProto(log_device_placement=True)
    with tf.Session(servers[1].target, config=config) as session:
        session.run(v.initializer)
        told = capfd.readouterr().err
        assert "v: (Variable): /job:ps/replica:0/task:0/device:CPU:0\n" in told
        assert "float32[]" in told
        session.run(tf.constant(1.0, name="later"))
        told = capfd.readouterr().err
        assert "later: (Const): /job:worker/replica:0/task:0/device:CPU:0\n" in told
        assert "v: (Variable)" not in told
    for server in servers:
        server.stop()


def test_a_master_sees_what_its_filters_let_through(cluster: dict[str, list[str]]) -> None:
    definition = tf.train.ServerDef(
        cluster=sr.train.ClusterSpec(cluster).as_cluster_def(), job_name="worker", task_index=0
    )
    filters = sr.train.ClusterDeviceFilters()
    filters.set_device_filters("worker", 0, ["/job:worker/task:7"])
    definition.cluster_device_filters = filters
    worker = sr.train.Server(definition)
    ps = sr.train.Server(cluster, "ps", 0)
    with tf.device("/job:ps"):
        far = tf.constant(1.0)
    near = tf.constant(2.0)
    with tf.Session(worker.target) as session:
        with pytest.raises(errors.InvalidArgumentError, match="available devices are"):
            session.run(far)
    # A task without filters sees all, and its own device is always seen.
    with tf.Session(ps.target) as session:
        assert session.run([far, near]) == [1.0, 2.0]
    other = tf.Graph()
    with other.as_default():
        own = tf.constant(3.0)
    with tf.Session(worker.target, graph=other) as session:
        assert session.run(own) == 3.0
    worker.stop()
    ps.stop()


def test_sessions_have_the_servers_options_where_they_ask_for_nothing() -> None:
    defaults = tf.ConfigProto(
        operation_timeout_in_ms=2000, allow_soft_placement=True, isolate_session_state=True
    )
    server = sr.train.Server.create_local_server(config=defaults)
    queue = tf.FIFOQueue(1, [tf.float32], shapes=[()])
    take = queue.dequeue()
    with tf.device("/device:GPU:0"):
        v = tf.Variable(1.0)
    with tf.Session(server.target) as session:
        with pytest.raises(errors.DeadlineExceededError):
            session.run(take)
        session.run(v.initializer)
        assert session.run(v) == 1.0
    with tf.Session(server.target) as session:
        with pytest.raises(errors.FailedPreconditionError):
            session.run(v)
    # A group is something else that they ask for.
    grouped = tf.ConfigProto(state_group="g")
    with tf.Session(server.target, config=grouped) as session:
        session.run(v.initializer)
        with tf.Session(server.target, config=grouped) as other:
            assert other.run(v) == 1.0
    server.stop()


def test_python_functions_run_on_servers_of_their_process(cluster: dict[str, list[str]]) -> None:
    servers = [sr.train.Server(cluster, job, 0) for job in cluster]
    threads: list[str] = []

    def double(x: sr.Tensor) -> sr.Tensor:
        threads.append(threading.current_thread().name)
        return x * 2.0

    x = tf.placeholder(tf.float32, [2])
    with tf.device("/job:ps"):
        y = tf.py_function(double, [x + 1.0], tf.float32)
        z = tf.numpy_function(lambda a: a[::-1], [y], [tf.float32])
    with tf.Session(servers[1].target) as session:
        for _ in range(20):
            assert session.run(z, {x: [1.0, 2.0]})[0].tolist() == [6, 4]
    assert threading.main_thread().name not in threads
    for server in servers:
        server.stop()


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (ValueError("odd"), errors.InvalidArgumentError),
        (errors.OutOfRangeError("odd"), errors.OutOfRangeError),
        (KeyError("odd"), errors.UnknownError),
    ],
)
def test_what_a_function_raises_on_a_server_ends_the_step(
    raised: Exception, expected: type[Exception]
) -> None:
    server = sr.train.Server.create_local_server()

    def fails(x: sr.Tensor) -> sr.Tensor:
        raise raised

    y = tf.py_function(fails, [tf.constant(1.0)], tf.float32)
    with tf.Session(server.target) as session:
        with pytest.raises(expected, match="odd"):
            session.run(y)
        assert session.run(tf.constant(1.0)) == 1.0
    server.stop()


def test_a_function_of_another_process_is_refused() -> None:
    server = sr.train.Server.create_local_server()
    mine = tf.py_function(lambda x: x, [tf.constant(1.0)], tf.float32)
    code = (
        "import sidereal.v1 as tf\n"
        "y = tf.py_function(lambda x: x + 1.0, [tf.constant(1.0)], tf.float32)\n"
        f"tf.Session({server.target!r}).run(y)\n"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert finished.returncode != 0
    assert "NotFoundError" in finished.stderr and "no Python function" in finished.stderr
    with tf.Session(server.target) as session:
        assert session.run(mine) == 1.0
    server.stop()


def check_that_it_ends(code: str) -> None:
    finished = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    )
    assert "ends" in finished.stdout, finished.stderr
    assert finished.returncode == 0, finished.stderr


def test_a_process_ends_while_functions_run_on_its_server() -> None:
    code = (
        "import sidereal as sr, sidereal.v1 as tf, threading\n"
        "server = sr.train.Server.create_local_server()\n"
        "def forever(i): return i + 1.0\n"
        "body = lambda i: [tf.reshape(tf.py_function(forever, [i], tf.float32), [])]\n"
        "loop = tf.while_loop(lambda i: i < 1e9, body, [tf.constant(0.0)])\n"
        "session = tf.Session(server.target)\n"
        "thread = threading.Thread(target=lambda: session.run(loop), daemon=True)\n"
        "session.run(tf.constant(1.0))\n"
        "thread.start()\n"
        "thread.join(0.3)\n"
        "print('ends')\n"
    )
    check_that_it_ends(code)


@pytest.mark.parametrize("timeout_ms", [0, 600])
def test_a_process_ends_while_its_threads_wait_for_steps(timeout_ms: int) -> None:
    # The threads come back from the wait, now and then or at its end, while Python ends.
    server = sr.train.Server.create_local_server()
    code = (
        "import sidereal.v1 as tf, threading, time\n"
        "class Slow:\n"
        "    def __del__(self, sleep=time.sleep): sleep(1.0)\n"
        f"queue = tf.FIFOQueue(1, [tf.float32], shared_name='never_{timeout_ms}')\n"
        "taken = queue.dequeue()\n"
        f"config = tf.ConfigProto(operation_timeout_in_ms={timeout_ms})\n"
        f"session = tf.Session({server.target!r}, config=config)\n"
        "session.run(tf.constant(1.0))\n"
        "waits = threading.Event()\n"
        "def wait():\n"
        "    waits.set()\n"
        "    session.run(taken)\n"
        "threading.Thread(target=wait, daemon=True).start()\n"
        "waits.wait()\n"
        "slow = Slow()\n"
        "print('ends')\n"
    )
    check_that_it_ends(code)
    server.stop()
