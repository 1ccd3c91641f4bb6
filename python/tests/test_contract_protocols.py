"""What TensorFlow's sessions take and promise, over each protocol."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from session_servers import PATIENCE_S, Processes, addresses

import sidereal as sr
import sidereal.v1 as tf
from sidereal import errors
from sidereal.launch import PROTOCOLS

#: Long beside what a run takes, short beside what a wait without end takes.
SOON_S = 20.0


class Cluster:
    """Two ps and two workers in this process."""

    def __init__(self, protocol: str) -> None:
        self.protocol = protocol
        hosts = addresses(4)
        self.cluster = {"ps": hosts[:2], "worker": hosts[2:]}
        self.servers = {
            (job, index): sr.train.Server(self.cluster, job, index, protocol)
            for job in self.cluster
            for index in range(2)
        }

    def session(self, worker: int = 0, graph: tf.Graph | None = None, **config: Any) -> tf.Session:
        config = {"operation_timeout_in_ms": PATIENCE_S * 1000} | config
        target = self.servers["worker", worker].target
        return tf.Session(target, graph=graph, config=tf.ConfigProto(**config))

    def stop(self) -> None:
        for server in self.servers.values():
            server.stop()


@pytest.fixture(params=PROTOCOLS)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    made = Cluster(request.param)
    with tf.Graph().as_default():
        yield made
    made.stop()


@pytest.fixture
def lite() -> Iterator[Cluster]:
    made = Cluster("star_server_lite")
    with tf.Graph().as_default():
        yield made
    made.stop()


def ps(index: int) -> Any:
    return tf.device(f"/job:ps/task:{index}")


def worker(index: int) -> Any:
    return tf.device(f"/job:worker/task:{index}")


# --- What TensorFlow 1 programs write.


def test_a_step_of_32_bits_counts_synchronous_steps(cluster: Cluster) -> None:
    with ps(0):
        step = tf.Variable(0, name="global_step", trainable=False)
        v = tf.Variable(1.0)
    with worker(0):
        optimizer = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(0.5), 1, 1)
        train = optimizer.apply_gradients([(tf.constant(1.0), v)], step)
        hook = optimizer.make_session_run_hook(True, num_tokens=1)
    assert step.dtype == tf.int32
    hook.begin()
    coordinator = tf.train.Coordinator()
    session = cluster.session()
    session.run(tf.global_variables_initializer())
    hook.after_create_session(session, coordinator)
    # A gradient of a step that is over is dropped, so that not every run makes a step.
    deadline = time.monotonic() + SOON_S
    while session.run(step) < 4 and time.monotonic() < deadline:
        session.run(train)
    # The step is counted after its update.
    steps, value = session.run([step, v])
    while value != 1.0 - 0.5 * steps and time.monotonic() < deadline:
        steps, value = session.run([step, v])
    assert value == 1.0 - 0.5 * steps
    assert steps >= 4 and steps.dtype == np.int32
    coordinator.request_stop()
    session.close()
    coordinator.join(stop_grace_period_secs=PATIENCE_S)


def test_accumulators_take_steps_of_32_bits(cluster: Cluster) -> None:
    with ps(1):
        step = tf.Variable(3)
        dense = tf.ConditionalAccumulator(tf.float32, shape=[2])
        sparse = tf.SparseConditionalAccumulator(tf.float32, shape=[4, 1])
        to_now = [dense.set_global_step(step), sparse.set_global_step(step)]
        late = dense.apply_grad([9.0, 9.0], local_step=step - 1)
        given = [
            dense.apply_grad([1.0, 2.0], local_step=step),
            sparse.apply_grad([2], [[5.0]], local_step=step),
        ]
        dense_mean, sparse_mean = dense.take_grad(1), sparse.take_grad(1)
    with cluster.session() as session:
        session.run(step.initializer)
        session.run(to_now)
        session.run(late)
        session.run(given)
        assert session.run(dense_mean).tolist() == [1, 2]
        assert session.run(sparse_mean.indices).tolist() == [2]


def test_a_sparse_gradient_is_three_values(cluster: Cluster) -> None:
    with ps(0):
        known = tf.SparseConditionalAccumulator(tf.float32, shape=[None, 2])
        unknown = tf.SparseConditionalAccumulator(tf.float32)
        apply = [
            known.apply_grad([3, 1, 3], [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]),
            unknown.apply_grad([0], [[1.0, 2.0, 3.0]]),
        ]
        indices, values, shape = known.take_grad(1)
        other = unknown.take_grad(1)
    with cluster.session(1) as session:
        session.run(apply)
        got = session.run([indices, values, shape])
        assert [one.tolist() for one in got] == [[1, 3], [[2, 2], [4, 4]], [-1, 2]]
        got = session.run([other.indices, other.values, other.shape])
        assert [one.tolist() for one in got] == [[0], [[1, 2, 3]], [-1, 3]]


def test_variables_have_signs(cluster: Cluster) -> None:
    with ps(1):
        v = tf.Variable([1.5, -2.0])
        n = tf.Variable([3, -4])
    with worker(0):
        values = [-v, abs(v), tf.negative(v), tf.abs(n), -n]
    with cluster.session() as session:
        session.run(tf.global_variables_initializer())
        got = [value.tolist() for value in session.run(values)]
        assert got == [[-1.5, 2], [1.5, 2], [-1.5, 2], [3, 4], [-3, 4]]


def test_an_empty_list_has_the_dtype_that_is_asked_for(cluster: Cluster) -> None:
    with worker(1):
        empty = tf.constant([], tf.int64)
        nothing = tf.constant([[], []], dtype=tf.int32)
    with ps(0):
        both = tf.concat([empty, tf.constant([7], tf.int64)], 0)
    with cluster.session() as session:
        assert session.run(both).tolist() == [7]
        assert session.run(empty).dtype == np.int64
        assert session.run(nothing).shape == (2, 0)


def test_a_loss_may_be_a_variable(cluster: Cluster) -> None:
    with ps(0):
        v = tf.Variable(3.0)
        train = tf.train.GradientDescentOptimizer(0.5).minimize(v)
    with cluster.session() as session:
        session.run(v.initializer)
        session.run(train)
        assert session.run(v) == 2.5


def test_a_name_that_no_node_can_have_is_a_value_error() -> None:
    with tf.Graph().as_default():
        for name in ("a:b", "a b", "_a", "-a", "a:0"):
            with pytest.raises(ValueError, match="name"):
                tf.constant(1.0, name=name)
        assert tf.constant(1.0, name="a.b/c-d").op.name == "a.b/c-d"


def test_a_device_of_no_type_is_written_without_its_index() -> None:
    spec = tf.DeviceSpec(job="ps", task=1, device_index=3)
    assert spec.to_string() == "/job:ps/task:1"
    assert (spec.device_index, spec.device_type) == (3, None)
    assert tf.DeviceSpec(device_index=0).to_string() == ""
    assert tf.DeviceSpec(device_type="GPU", device_index=0).to_string() == "/device:GPU:0"


def test_a_constant_of_120_megabytes_is_sent_with_the_graph(cluster: Cluster) -> None:
    count = 30_000_000
    value = np.arange(count, dtype=np.float32)
    with ps(1):
        big = tf.constant(value)
        ends = tf.stack([big[0], big[count // 2], big[count - 1]])
    with cluster.session() as session:
        assert session.run(ends).tolist() == value[[0, count // 2, count - 1]].tolist()


# --- Errors.


def test_an_error_of_a_megabyte_arrives(cluster: Cluster) -> None:
    text = "".join(chr(ord("a") + i % 26) for i in range(2**20))
    with ps(1):
        check = tf.debugging.Assert(tf.constant(False), [tf.constant(text)], summarize=1)
    with cluster.session() as session:
        with pytest.raises(errors.InvalidArgumentError) as caught:
            session.run(check)
        assert text in str(caught.value)
        # The session goes on.
        assert session.run(tf.constant(1.0)) == 1.0


def test_longer_errors_are_cut_and_say_so(cluster: Cluster) -> None:
    text = "é" * 2**21
    with ps(1):
        check = tf.debugging.Assert(tf.constant(False), [tf.constant(text)], summarize=1)
    with cluster.session() as session:
        with pytest.raises(errors.InvalidArgumentError) as caught:
            session.run(check)
    said = str(caught.value)
    assert 2**20 < len(said.encode()) < 3 * 2**20
    assert re.search(r" \.\.\. \(\d+ bytes\)", said) is not None


def test_bytes_that_are_no_text_are_told(cluster: Cluster) -> None:
    with ps(0):
        data = tf.constant(np.array(b"begin\xff\xfe\x00end", dtype=object), tf.string)
        check = tf.debugging.Assert(tf.constant(False), [data])
    with cluster.session() as session:
        with pytest.raises(errors.InvalidArgumentError, match="begin") as caught:
            session.run(check)
        assert "end" in str(caught.value)


def test_a_variable_without_a_value_says_what_it_is(cluster: Cluster) -> None:
    with ps(0):
        w = tf.Variable(np.zeros((4, 1), "f"), name="w")
    with worker(0):
        read = w + 1.0
    with cluster.session() as session:
        with pytest.raises(errors.FailedPreconditionError) as caught:
            session.run(read)
    said = str(caught.value)
    assert "uninitialized value w" in said and "float32[4,1]" in said
    assert "string[]" not in said


def test_a_slot_on_another_task_than_its_variable_is_not_placed(cluster: Cluster) -> None:
    with ps(0):
        v = tf.Variable([1.0], name="v")
    optimizer = tf.train.MomentumOptimizer(0.1, 0.9)
    train = optimizer.apply_gradients([(tf.constant([1.0]), v)])
    slot = optimizer.get_slot(v, "momentum")
    graph = tf.get_default_graph()
    for node in (slot.op, slot.initializer):
        graph.native.set_device(node.node, "/job:ps/task:1")
    session = cluster.session()
    with pytest.raises(errors.InvalidArgumentError, match="Cannot colocate nodes"):
        # Nothing of the optimizer is run: it is the whole graph that is placed.
        session.run(v.initializer)
    session.close()
    with cluster.session(allow_soft_placement=True) as relaxed:
        relaxed.run(tf.global_variables_initializer())
        relaxed.run(train)
        np.testing.assert_allclose(relaxed.run(v), [0.9], rtol=1e-6)


# --- Servers.


def test_devices_that_filters_hide_are_not_listed(cluster: Cluster) -> None:
    tf.constant(1.0)
    name = "/job:{}/replica:0/task:{}/device:CPU:0".format
    with cluster.session(1, device_filters=["/job:ps/task:1"]) as session:
        listed = [device.name for device in session.list_devices()]
    assert sorted(listed) == [name("ps", 1), name("worker", 1)]
    # What is hidden need not be there.
    cluster.servers["ps", 0].stop()
    with cluster.session(1, device_filters=["/job:ps/task:1"]) as session:
        assert len(session.list_devices()) == 2


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_wrong_secret_is_refused_at_once(protocol: str) -> None:
    own = sr.SecurityOptions(secret="a" * 32)
    server = sr.train.Server({"local": ["localhost:0"]}, protocol=protocol, security=own)
    try:
        with tf.Graph().as_default():
            one = tf.constant(1.0)
            for wrong in (sr.SecurityOptions(secret="b" * 32), sr.SecurityOptions()):
                began = time.monotonic()
                with pytest.raises(errors.UnauthenticatedError):
                    tf.Session(server.target, config=tf.ConfigProto(security=wrong)).run(one)
                assert time.monotonic() - began < SOON_S
            with tf.Session(server.target, config=tf.ConfigProto(security=own)) as session:
                assert session.run(one) == 1.0
    finally:
        server.stop()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_master_that_computes_long_reaches_the_others(protocol: str) -> None:
    hosts = addresses(2)
    cluster = {"ps": hosts[:1], "worker": hosts[1:]}
    processes = Processes()
    # Well below what the computing takes.
    options = [] if protocol == "grpc" else ["--option", "connect_deadline_ms=500"]
    try:
        for job in cluster:
            processes.serve(cluster, job, 0, "--protocol", protocol, *options)
        with tf.Graph().as_default():
            with worker(0):
                x = tf.constant(np.eye(1500, dtype=np.float32))
                for _ in range(24):
                    x = tf.matmul(x, x)
                early = tf.constant(2.0)
            with ps(0):
                both = tf.reduce_sum(x) + early * 3.0
            with tf.Session(f"grpc://{hosts[1]}") as session:
                assert session.run(both) == 1506.0
    finally:
        processes.end()


# --- star_server_lite: pushes that a step does not wait for, pulls that are prefetched.


class Adding:
    """A variable of two elements on ps 0, a push of another shape, and a queue on ps 1."""

    def __init__(self) -> None:
        with ps(0):
            self.v = tf.Variable([1.0, 2.0], name="v")
            self.unshaped = tf.placeholder(tf.float32, None)
            self.push = self.v.assign_add(self.unshaped)
        with ps(1):
            self.queue = tf.FIFOQueue(4, tf.float32, shapes=(), shared_name="q")
            self.taken = self.queue.dequeue()
            self.put = self.queue.enqueue(1.0)
        self.wrong = {self.unshaped: [1.0, 2.0, 3.0]}
        self.right = {self.unshaped: [1.0, 1.0]}


def test_a_push_that_fails_is_told_by_the_next_step_or_by_close(cluster: Cluster) -> None:
    model = Adding()
    told = 0
    with cluster.session() as session:
        session.run(model.v.initializer)
    # The next step says it, whatever it does.
    session = cluster.session()
    with pytest.raises(errors.InvalidArgumentError):
        session.run(model.push.op, model.wrong)
        told = 1
        for _ in range(1000):
            session.run(model.put)
            session.run(model.taken)
    assert told == 0 or cluster.protocol == "star_server_lite"
    # It is told once.
    session.run(model.push.op, model.right)
    assert session.run(model.v).tolist() == [2.0, 3.0]
    session.close()
    # Without a next step it is close() that says it.
    session = cluster.session()
    with pytest.raises(errors.InvalidArgumentError):
        session.run(model.push.op, model.wrong)
        session.close()
    session.close()


def test_with_a_block_that_fails_its_own_error_is_raised(lite: Cluster) -> None:
    model = Adding()
    with pytest.raises(KeyError, match="mine"):
        with lite.session() as session:
            session.run(model.v.initializer)
            session.run(model.push.op, model.wrong)
            raise KeyError("mine")


def test_a_step_that_waits_ends_when_a_push_before_it_fails(lite: Cluster) -> None:
    model = Adding()
    for _ in range(20):
        with lite.session() as session:
            session.run(model.v.initializer)
            session.run(model.put)
            session.run(model.taken)
            began = time.monotonic()
            with pytest.raises(errors.InvalidArgumentError, match="push of an earlier step"):
                session.run(model.push.op, model.wrong)
                # Nobody puts anything in.
                session.run(model.taken)
            assert time.monotonic() - began < SOON_S


def in_turns(cluster: Cluster, **config: Any) -> float:
    """What a variable is after two learners have added 1 to it in strict turns, 20 times in all:
    each step computes the new value from what it has read, and assigns it."""
    with ps(0):
        v = tf.Variable(0.0, name="v")
    # What is added is computed by the task of each session.
    train = v.assign(v + 1.0)
    sessions = [cluster.session(index, **config) for index in range(2)]
    sessions[0].run(v.initializer)
    with cluster.session(1, **config) as other:
        assert other.run(v) == 0.0
    for turn in range(20):
        sessions[turn % 2].run(train.op)
    for session in sessions:
        session.close()
    with cluster.session() as session:
        return float(session.run(v))


def test_learners_in_strict_turns_lose_nothing(cluster: Cluster) -> None:
    lite = cluster.protocol == "star_server_lite"
    assert in_turns(cluster, **({"pull_prefetch_ms": 0} if lite else {})) == 20.0


def test_what_a_step_has_written_everybody_sees_when_it_has_ended(cluster: Cluster) -> None:
    lite = cluster.protocol == "star_server_lite"
    config = {"pull_prefetch_ms": 0} if lite else {}
    model = Adding()
    one, other = cluster.session(0, **config), cluster.session(1, **config)
    one.run(model.v.initializer)
    for count in range(1, 200):
        one.run(model.push.op, model.right)
        assert other.run(model.v).tolist() == [1.0 + count, 2.0 + count]
    # A push that fails is then an error of its own step.
    with pytest.raises(errors.InvalidArgumentError) as caught:
        one.run(model.push.op, model.wrong)
    assert "earlier step" not in str(caught.value)
    one.close()
    other.close()


def test_sessions_of_lite_say_what_they_do_not_promise(
    cluster: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    one = tf.constant(1.0)
    capfd.readouterr()
    with cluster.session() as session:
        session.run(one)
    said = capfd.readouterr().err
    assert ("pull_prefetch_ms=0" in said) == (cluster.protocol == "star_server_lite")
    if cluster.protocol == "star_server_lite":
        assert "up to 200 ms old" in said and "close()" in said
    with cluster.session(pull_prefetch_ms=0) as session:
        session.run(one)
    assert "pull_ahead" not in capfd.readouterr().err


def test_pushes_of_many_sessions_fail_apart(lite: Cluster) -> None:
    model = Adding()
    with lite.session() as session:
        session.run(model.v.initializer)
    failed: list[int] = []

    graph = tf.get_default_graph()

    def learn(index: int) -> None:
        with lite.session(index % 2, graph) as session:
            try:
                for _ in range(20):
                    session.run(model.push.op, model.wrong if index == 3 else model.right)
                session.close()
            except errors.InvalidArgumentError:
                failed.append(index)

    threads = [threading.Thread(target=learn, args=(index,)) for index in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert failed == [3]
    with lite.session() as session:
        assert session.run(model.v).tolist() == [101.0, 102.0]
