"""Sessions on servers, from Python."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from session_servers import PATIENCE_S, PROGRAM, free_ports

import sidereal as sr
import sidereal.v1 as tf
from sidereal import errors
from sidereal.launch import PROTOCOLS


@pytest.fixture(params=PROTOCOLS)
def servers(request: pytest.FixtureRequest) -> Iterator[list[sr.train.Server]]:
    """Two ps and a worker in this process; the worker is the last."""
    ports = free_ports(3)
    cluster = {
        "ps": [f"localhost:{port}" for port in ports[:2]],
        "worker": [f"localhost:{ports[2]}"],
    }
    made = [sr.train.Server(cluster, "ps", index, request.param) for index in range(2)]
    made.append(sr.train.Server(cluster, "worker", 0, request.param))
    with tf.Graph().as_default():
        yield made
    for server in made:
        server.stop()


def test_a_model_on_two_ps_trains_through_a_worker(servers: list[sr.train.Server]) -> None:
    rng = np.random.default_rng(1)
    with tf.device("/job:ps/task:0"):
        w1 = tf.Variable(rng.normal(0, 0.3, (4, 8)).astype("f"))
        b1 = tf.Variable(np.zeros(8, "f"))
    with tf.device("/job:ps/task:1"):
        w2 = tf.Variable(rng.normal(0, 0.3, (8, 1)).astype("f"))
    with tf.device("/job:worker/task:0"):
        x = tf.placeholder(tf.float32, [None, 4])
        y = tf.placeholder(tf.float32, [None, 1])
        hidden = tf.nn.relu(tf.matmul(x, w1) + b1)
        loss = tf.reduce_mean(tf.square(tf.matmul(hidden, w2) - y))
        train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    features = rng.normal(size=(64, 4)).astype("f")
    labels = features.sum(1, keepdims=True)
    feed = {x: features, y: labels}
    with tf.Session(servers[2].target) as session:
        session.run(tf.global_variables_initializer())
        losses = [session.run([loss, train], feed)[0] for _ in range(60)]
        assert losses[-1] < 0.1 * losses[0]
        metadata = tf.RunMetadata()
        options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
        session.run(train, feed, options, metadata)
        assert sorted(device.device for device in metadata.step_stats.dev_stats) == [
            "/job:ps/replica:0/task:0/device:CPU:0",
            "/job:ps/replica:0/task:1/device:CPU:0",
            "/job:worker/replica:0/task:0/device:CPU:0",
        ]
    # Another client, of another master, sees the same variables.
    with tf.Session(servers[0].target) as session:
        assert session.run(loss, feed) <= losses[-1]


def test_a_graph_grows_between_runs(servers: list[sr.train.Server]) -> None:
    a = tf.constant([1.0, 2.0])
    with tf.Session(servers[0].target) as session:
        assert session.run(a).tolist() == [1, 2]
        with tf.device("/job:worker"):
            b = a * 3.0
        assert session.run(b).tolist() == [3, 6]
        # Any value can be fed, also one of another task.
        with tf.device("/job:ps/task:1"):
            c = b + 1.0
        assert session.run(c, {b: [10.0, 20.0]}).tolist() == [11, 21]


def test_devices_are_listed(servers: list[sr.train.Server]) -> None:
    tf.constant(1.0)
    with tf.Session(servers[0].target) as session:
        devices = session.list_devices()
    assert [device.name for device in devices][2] == "/job:worker/replica:0/task:0/device:CPU:0"
    assert {device.device_type for device in devices} == {"CPU"}
    assert len({device.incarnation for device in devices}) == 3


@pytest.mark.parametrize("remote", [False, True])
def test_a_run_in_parts_computes_nothing_twice(
    servers: list[sr.train.Server], remote: bool
) -> None:
    a, b, c = (tf.placeholder(tf.float32, []) for _ in range(3))
    noise = tf.random.uniform([])
    first = a + b + noise
    second = first * c
    with tf.Session(servers[0].target if remote else "") as session:
        handle = session.partial_run_setup([first, second, noise], [a, b, c])
        one = session.partial_run(handle, first, {a: 1.0, b: 2.0})
        two = session.partial_run(handle, second, {c: 10.0})
        drawn = session.partial_run(handle, noise)
        assert one == pytest.approx(3 + drawn)
        assert two == pytest.approx(10 * one)
        with pytest.raises(errors.InvalidArgumentError, match="already fetched"):
            session.partial_run(handle, first)
        with pytest.raises(errors.InvalidArgumentError, match="already fed"):
            session.partial_run(handle, [], {c: 1.0})
        with pytest.raises(errors.InvalidArgumentError, match="setup"):
            session.partial_run("other", second)


def test_a_run_in_parts_says_what_was_not_announced(servers: list[sr.train.Server]) -> None:
    a, b = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [])
    with tf.Session(servers[0].target) as session:
        handle = session.partial_run_setup([a + b], [a, b])
        with pytest.raises(errors.InvalidArgumentError, match="not specified"):
            session.partial_run(handle, a * 1.0)


def test_errors_name_the_line_and_the_task(servers: list[sr.train.Server]) -> None:
    x = tf.placeholder(tf.float32, [None])
    with tf.device("/job:ps/task:1"):
        bad = tf.add(x, tf.constant([1.0, 2.0]), name="bad")
    with tf.Session(servers[0].target) as session:
        with pytest.raises(errors.InvalidArgumentError) as caught:
            session.run(bad, {x: [1.0, 2.0, 3.0]})
    assert caught.value.op.name == "bad"
    assert "/job:ps/replica:0/task:1" in str(caught.value)
    assert "test_remote_sessions.py" in str(caught.value)


def test_a_blocked_run_ends_when_its_session_is_closed(servers: list[sr.train.Server]) -> None:
    with tf.device("/job:ps/task:0"):
        queue = tf.FIFOQueue(1, [tf.float32], shapes=[()], shared_name="q")
        take = queue.dequeue()
    session = tf.Session(servers[1].target)
    session.run(queue.size())
    caught: list[Exception] = []

    def run() -> None:
        try:
            session.run(take)
        except errors.Error as error:
            caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    config = tf.ConfigProto(operation_timeout_in_ms=2000)
    with tf.Session(servers[1].target, config=config) as other:
        with pytest.raises(errors.DeadlineExceededError, match="queue 'q'"):
            other.run(take)
    session.close()
    thread.join(10)
    assert not thread.is_alive()
    assert isinstance(caught[0], errors.CancelledError)


def test_reset_forgets_containers(servers: list[sr.train.Server]) -> None:
    with tf.device("/job:ps/task:0"):
        v = tf.Variable(1.0, name="v")
    session = tf.Session(servers[2].target)
    session.run(v.initializer)
    tf.Session.reset(servers[2].target, [])
    with pytest.raises(errors.AbortedError):
        session.run(v)
    with tf.Session(servers[2].target) as again:
        with pytest.raises(errors.FailedPreconditionError):
            again.run(v)
    with pytest.raises(errors.NotFoundError):
        tf.Session.reset("nonexistent", [])
    unreachable = tf.ConfigProto(operation_timeout_in_ms=200)
    with pytest.raises(errors.DeadlineExceededError):
        tf.Session.reset(f"grpc://localhost:{free_ports(1)[0]}", [], unreachable)


def test_sessions_of_a_state_group_share_their_variables(
    servers: list[sr.train.Server],
) -> None:
    with tf.device("/job:ps/task:1"):
        v = tf.Variable([1.0, 2.0], name="v")
        add = tf.assign_add(v, [10.0, 20.0])
    group = tf.ConfigProto(state_group="a")
    with tf.Session(servers[2].target, config=group) as one:
        one.run(v.initializer)
        with tf.Session(servers[0].target, config=group) as two:
            two.run(add)
            assert two.run(v).tolist() == [11.0, 22.0]
        assert one.run(v).tolist() == [11.0, 22.0]
        for config in [None, tf.ConfigProto(state_group="b")]:
            with tf.Session(servers[2].target, config=config) as other:
                with pytest.raises(errors.FailedPreconditionError):
                    other.run(v)
    both = tf.ConfigProto(state_group="a", isolate_session_state=True)
    with pytest.raises(errors.InvalidArgumentError, match="state_group 'a'"):
        tf.Session(servers[2].target, config=both).run(v)


def test_prefetched_pulls_change_no_bit(servers: list[sr.train.Server]) -> None:
    rng = np.random.default_rng(4)
    cluster = servers[2].server_def.cluster
    with tf.device(tf.train.replica_device_setter(cluster=cluster)):
        w = tf.Variable(rng.normal(size=(4, 3)).astype("f"))
        b = tf.Variable(rng.normal(size=(3,)).astype("f"))
        x = tf.placeholder(tf.float32, [None, 4])
        loss = tf.reduce_mean(tf.square(tf.matmul(x, w) + b))
        train = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
    feed = {x: rng.normal(size=(8, 4)).astype("f")}
    results = []
    for limit in (0, None, 60_000):
        config = tf.ConfigProto(pull_prefetch_ms=limit)
        with tf.Session(servers[2].target, config=config) as session:
            session.run(tf.global_variables_initializer())
            losses = [session.run([loss, train], feed)[0] for _ in range(10)]
            results.append([*losses, *session.run([w, b])])
    for got in results[1:]:
        for one, other in zip(results[0], got):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("limit", [-1, 1.5, True])
def test_a_limit_of_pulls_that_cannot_be_is_refused(limit: Any) -> None:
    with pytest.raises(ValueError, match="pull_prefetch_ms"):
        tf.ConfigProto(pull_prefetch_ms=limit)


def test_fused_messages_change_no_bit(servers: list[sr.train.Server]) -> None:
    rng = np.random.default_rng(3)
    cluster = servers[2].server_def.cluster
    with tf.device(tf.train.replica_device_setter(cluster=cluster)):
        small = [tf.Variable(rng.normal(size=(4,)).astype("f")) for _ in range(30)]
        x = tf.placeholder(tf.float32, [None, 4])
        loss = tf.reduce_mean(tf.square(tf.add_n([tf.reduce_sum(x * v, axis=1) for v in small])))
        train = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
    feed = {x: rng.normal(size=(8, 4)).astype("f")}
    results = []
    for fuse in (False, True):
        with tf.Session(servers[2].target, config=tf.ConfigProto(tensor_fuse=fuse)) as session:
            session.run(tf.global_variables_initializer())
            losses = [session.run([loss, train], feed)[0] for _ in range(5)]
            results.append([*losses, *session.run(small)])
    for plain, fused in zip(*results, strict=True):
        np.testing.assert_array_equal(plain, fused)


@pytest.mark.parametrize("fuse", [False, True])
@pytest.mark.parametrize("protocol", ["grpc", "grpc++", "star_server_lite"])
def test_workers_that_run_the_same_code_share_the_programs_of_ps(protocol: str, fuse: bool) -> None:
    ports = free_ports(6)
    cluster = {
        "ps": [f"localhost:{port}" for port in ports[:2]],
        "worker": [f"localhost:{port}" for port in ports[2:]],
    }
    servers = [sr.train.Server(cluster, "ps", i, protocol) for i in range(2)]
    workers = [sr.train.Server(cluster, "worker", i, protocol) for i in range(4)]

    def session_of(worker: int) -> tuple[tf.Session, Any, Any, Any]:
        rng = np.random.default_rng(1)
        own = f"/job:worker/task:{worker}"
        setter = tf.train.replica_device_setter(worker_device=own, cluster=cluster)
        with tf.Graph().as_default(), tf.device(setter):
            step = tf.train.get_or_create_global_step()
            table = tf.get_variable("table", initializer=rng.normal(size=(500, 4)).astype("f"))
            w = tf.get_variable("w", initializer=rng.normal(size=(4, 1)).astype("f"))
            b = tf.get_variable("b", initializer=np.zeros(1, "f"))
            ids = tf.placeholder(tf.int64, [None])
            _, scale = tf.while_loop(
                lambda i, _: i < 3, lambda i, x: [i + 1, x + w], [tf.constant(0), w]
            )
            loss = tf.reduce_mean(tf.square(tf.matmul(tf.gather(table, ids), scale) + b))
            train = tf.train.AdagradOptimizer(0.01).minimize(loss, global_step=step)
            session = tf.Session(
                workers[worker].target,
                config=tf.ConfigProto(tensor_fuse=fuse, device_filters=["/job:ps", own]),
            )
            if worker == 0:
                session.run(tf.global_variables_initializer())
        return session, ids, [loss, train], step

    def programs() -> list[int]:
        shown = subprocess.run(
            [PROGRAM, "top", "--target", servers[0].target, "--once", "--json",
             "--interval", "0.05"],
            capture_output=True, text=True, timeout=PATIENCE_S, check=True,
        ).stdout  # fmt: skip
        tasks = json.loads(shown)["tasks"][:2]
        return [task["figures"]["sidereal_task_programs"] for task in tasks]

    made = [session_of(0)]
    try:
        counts = []
        for worker in range(4):
            if worker > 0:
                made.append(session_of(worker))
            for session, ids, training, _ in made:
                loss, _ = session.run(training, {ids: np.arange(8)})
                assert np.isfinite(loss)
            counts.append(programs())
        assert counts == [counts[0]] * 4
        assert made[0][0].run(made[0][3]) == 1 + 2 + 3 + 4
    finally:
        for session, *_ in made:
            session.close()
        for server in workers + servers:
            server.stop()


def test_servers_are_what_they_are_said_to_be() -> None:
    with pytest.raises(TypeError):
        sr.train.Server(3)
    with pytest.raises(ValueError, match="job_name"):
        sr.train.Server({"a": ["localhost:0"], "b": ["localhost:0"]})
    with pytest.raises(ValueError, match="task_index"):
        sr.train.Server({"a": ["localhost:0", "localhost:0"]})
    with pytest.raises(errors.InvalidArgumentError, match="port"):
        sr.train.Server({"a": ["localhost"]})
    for wrong in ("nohost", "a:99999"):
        with pytest.raises(errors.InvalidArgumentError, match="/job:ps/replica:0/task:0: .* port"):
            sr.train.Server({"a": ["localhost:0"], "ps": [wrong]}, "a", 0)
    with pytest.raises(errors.InvalidArgumentError, match="star_server_lite"):
        sr.train.Server({"a": ["localhost:0"]}, protocol="seastar")
    with pytest.raises(errors.FailedPreconditionError, match="secret"):
        sr.train.Server({"a": ["0.0.0.0:0"]})
    server = sr.train.Server({"local": ["localhost:0"]})
    assert server.target.startswith("grpc://localhost:")
    assert server.server_def.job_name == "local"
    with pytest.raises(errors.UnknownError, match="Could not start gRPC server"):
        sr.train.Server(server.server_def)
    assert not server.join(0.01)
    server.stop()
    assert server.join()
    target = server.target
    server.start()
    assert server.target == target
    server.stop()
