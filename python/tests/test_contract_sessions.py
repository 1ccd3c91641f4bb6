"""What TensorFlow's tests pin of servers, sessions and masters, sentence by sentence. The tests of
other sentences are listed in docs/design/0002-sessions-on-servers.md."""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from session_servers import PATIENCE_S, PRESET, Processes, addresses

import sidereal as sr
import sidereal.v1 as tf
from sidereal import errors

#: Long beside what a run takes, short beside what a wait without end takes.
SOON_S = 20.0


@pytest.fixture
def targets() -> Iterator[list[str]]:
    """The targets of three tasks of a job "worker" in this process."""
    cluster = {"worker": addresses(3)}
    made = [sr.train.Server(cluster, "worker", index) for index in range(3)]
    with tf.Graph().as_default():
        yield [server.target for server in made]
    for server in made:
        server.stop()


def on(task: int) -> Any:
    return tf.device(f"/job:worker/task:{task}")


# --- Server (contract, section 3).


def test_a_local_server_is_a_job_of_one_task_whose_target_has_the_real_port() -> None:
    server = tf.train.Server.create_local_server(start=False)
    assert server.server_def.job_name == "localhost"
    assert sr.train.ClusterSpec(server.server_def.cluster).as_dict() == {
        "localhost": ["localhost:0"]
    }
    with pytest.raises(errors.FailedPreconditionError, match="start"):
        print(server.target)
    server.start()
    server.start()
    host, port = server.target.rsplit(":", 1)
    assert host == "grpc://localhost" and int(port) > 0
    server.stop()


def test_a_server_def_is_overridden_by_arguments() -> None:
    cluster = tf.train.ClusterSpec({"a": ["localhost:1"], "b": ["localhost:2", "localhost:3"]})
    given = sr.train.ServerDef(cluster.as_cluster_def(), "a", 0)
    server = sr.train.Server(given, job_name="b", task_index=1, start=False)
    assert (server.server_def.job_name, server.server_def.task_index) == ("b", 1)
    assert server.target == "grpc://localhost:3"
    assert (given.job_name, given.task_index) == ("a", 0)


def test_a_config_is_merged_into_that_of_the_server_def() -> None:
    cluster = tf.train.ClusterSpec({"a": ["localhost:0"]})
    first = tf.ConfigProto(
        device_filters=["/job:a"], operation_timeout_in_ms=5000, allow_soft_placement=True,
        device_count={"CPU": 1, "GPU": 0}, gpu_options=tf.GPUOptions(allow_growth=True),
    )  # fmt: skip
    given = sr.train.ServerDef(cluster.as_cluster_def(), default_session_config=first)
    second = tf.ConfigProto(
        device_filters=["/job:b"], operation_timeout_in_ms=7000, tensor_fuse=True,
        device_count={"GPU": 1}, gpu_options=tf.GPUOptions(visible_device_list="1"),
    )  # fmt: skip
    merged = sr.train.Server(given, config=second, start=False).server_def.default_session_config
    assert merged.device_filters == ["/job:a", "/job:b"]
    assert merged.operation_timeout_in_ms == 7000
    assert merged.allow_soft_placement and merged.tensor_fuse
    assert merged.device_count == {"CPU": 1, "GPU": 1}
    assert merged.gpu_options.allow_growth and merged.gpu_options.visible_device_list == "1"
    # Neither of the two has changed; without another config it is that of the definition.
    assert first.device_filters == ["/job:a"] and not second.allow_soft_placement
    assert given.default_session_config == first
    assert sr.train.Server(given, start=False).server_def.default_session_config == first


def test_sessions_of_a_server_share_variables_by_container_and_name(targets: list[str]) -> None:
    def variable(graph: tf.Graph, container: str, initial: float) -> Any:
        with graph.as_default(), graph.container(container), on(1):
            return tf.Variable(initial, name="v")

    graphs = [tf.Graph(), tf.Graph(), tf.Graph()]
    one = variable(graphs[0], "", 1.0)
    same = variable(graphs[1], "", 2.0)
    other = variable(graphs[2], "mine", 3.0)
    with tf.Session(targets[0], graph=graphs[0]) as session:
        session.run(one.initializer)
    with tf.Session(targets[1], graph=graphs[1]) as session:
        assert session.run(same) == 1.0
        session.run(same.assign_add(4.0))
    with tf.Session(targets[2], graph=graphs[2]) as session:
        with pytest.raises(errors.FailedPreconditionError):
            session.run(other)
        session.run(other.initializer)
    with tf.Session(targets[2], graph=graphs[0]) as session:
        assert session.run(one) == 5.0


def test_isolated_sessions_have_variables_of_their_own_of_any_shape(targets: list[str]) -> None:
    config = tf.ConfigProto(isolate_session_state=True)
    graphs = [tf.Graph(), tf.Graph()]
    made = []
    for graph, initial in zip(graphs, ([1.0], [[2.0, 3.0]])):
        with graph.as_default(), on(1):
            made.append(tf.Variable(initial, name="v"))
    with tf.Session(targets[0], graph=graphs[0], config=config) as one:
        with tf.Session(targets[0], graph=graphs[1], config=config) as two:
            one.run(made[0].initializer)
            # Reading before one's own initialisation fails.
            with pytest.raises(errors.FailedPreconditionError):
                two.run(made[1])
            two.run(made[1].initializer)
            assert one.run(made[0]).tolist() == [1.0]
            assert two.run(made[1]).tolist() == [[2.0, 3.0]]
    # A session that shares sees neither.
    with tf.Session(targets[0], graph=graphs[0]) as shared:
        with pytest.raises(errors.FailedPreconditionError):
            shared.run(made[0])


def test_resetting_another_container_leaves_variables_as_they_are(targets: list[str]) -> None:
    with on(2):
        kept = tf.Variable(1.0, name="kept")
        with tf.container("other"):
            gone = tf.Variable(2.0, name="gone")
    sessions = [tf.Session(target) for target in targets[:1] * 2]
    for session in sessions:
        session.run(tf.global_variables_initializer())
    tf.Session.reset(targets[0], ["other"])
    # All sessions of the target have ended.
    for session in sessions:
        with pytest.raises(errors.AbortedError):
            session.run(kept)
    with tf.Session(targets[0]) as session:
        assert session.run(kept) == 1.0
        with pytest.raises(errors.FailedPreconditionError):
            session.run(gone)


def test_closing_a_session_cancels_what_is_blocked_and_says_so(targets: list[str]) -> None:
    with on(1):
        queue = tf.FIFOQueue(1, tf.float32, shapes=())
        taken = queue.dequeue()
        size = queue.size()
    session = tf.Session(targets[0])
    session.run(size)
    caught: list[Exception] = []

    def run() -> None:
        with pytest.raises(errors.CancelledError) as error:
            session.run(taken)
        caught.append(error.value)

    thread = threading.Thread(target=run)
    thread.start()
    session.close()
    thread.join(SOON_S)
    assert "Session::Close" in str(caught[0]) or "was cancelled" in str(caught[0])


# --- Sessions and masters (contract, section 4).


def test_a_session_does_not_begin_without_a_task_that_its_graph_names() -> None:
    # TensorFlow waits for every task of the cluster; here one that the graph does not use may be
    # missing, and a task that comes back does not wait for others that are gone.
    cluster = {"worker": addresses(2)}
    server = sr.train.Server(cluster, "worker", 0)
    config = tf.ConfigProto(connect_timeout_in_ms=3000)
    with tf.Graph().as_default():
        here = tf.constant(1.0)
        with tf.Session(server.target, config=config) as session:
            assert session.run(here) == 1.0
        with on(1):
            there = tf.constant(2.0)
        with tf.Session(server.target, config=config) as session:
            with pytest.raises(errors.DeadlineExceededError) as caught:
                session.run(there)
    assert "CreateSession still waiting for response from worker" in str(caught.value)
    assert "/job:worker/replica:0/task:1" in str(caught.value)
    server.stop()


def test_a_node_on_a_filtered_device_is_refused(targets: list[str]) -> None:
    with on(1):
        there = tf.constant(1.0)
    config = tf.ConfigProto(device_filters=["/job:worker/task:2"])
    with tf.Session(targets[0], config=config) as session:
        with pytest.raises(errors.InvalidArgumentError, match="available devices are"):
            session.run(there)


def test_fetches_come_in_their_order_and_may_repeat(targets: list[str]) -> None:
    values = []
    for task in range(3):
        with on(task):
            values.append(tf.constant(float(task)))
    with tf.Session(targets[0]) as session:
        asked = [values[2], values[0], values[2], values[1], values[0]]
        assert session.run(asked) == [2.0, 0.0, 2.0, 1.0, 0.0]


def test_a_feed_replaces_a_value_and_one_value_is_fed_once(targets: list[str]) -> None:
    with on(1):
        x = tf.constant(1.0, name="x")
    with on(2):
        y = x + 1.0
    with tf.Session(targets[0]) as session:
        assert session.run(y, {x: 10.0}) == 11.0
        with pytest.raises(errors.InvalidArgumentError, match="fed twice"):
            session.run(y, {x: 1.0, "x:0": 2.0})


def test_of_two_timeouts_the_smaller_counts(targets: list[str]) -> None:
    with on(1):
        taken = tf.FIFOQueue(1, tf.float32, shapes=()).dequeue()
    for session_ms, run_ms in ((100, 10**7), (10**7, 100), (100, 0), (0, 100)):
        config = tf.ConfigProto(operation_timeout_in_ms=session_ms)
        with tf.Session(targets[0], config=config) as session:
            started = time.monotonic()
            with pytest.raises(errors.DeadlineExceededError):
                session.run(taken, options=tf.RunOptions(timeout_in_ms=run_ms))
            assert time.monotonic() - started < SOON_S


@pytest.mark.parametrize("racing", [1, 2, 3])
def test_when_several_tasks_fail_a_root_error_is_told(targets: list[str], racing: int) -> None:
    x = tf.placeholder(tf.float32, [None])
    results = []
    for task in range(3):
        with on(task):
            # Those that do not fail by themselves wait for the first one that does.
            wrong = x + tf.constant([1.0, 2.0]) if task < racing else tf.constant(1.0)
            results.append(tf.reduce_sum(wrong))
    total = tf.add_n([tf.identity(result) for result in results])
    with tf.Session(targets[2]) as session:
        for _ in range(10):
            with pytest.raises(errors.InvalidArgumentError) as caught:
                session.run(total, {x: [1.0, 2.0, 3.0]})
            assert "cancel" not in str(caught.value).lower()
            assert "broadcast" in str(caught.value) or "shape" in str(caught.value).lower()
        # The session goes on.
        if racing == 1:
            assert session.run(total, {x: [1.0, 2.0]}) == 8.0


def test_a_failing_part_ends_the_others_at_once(targets: list[str]) -> None:
    x = tf.placeholder(tf.float32, [None])
    with on(0):
        blocked = tf.FIFOQueue(1, tf.float32, shapes=(), shared_name="never").dequeue()
    with on(1):
        bad = x + tf.constant([1.0, 2.0])
    with tf.Session(targets[2]) as session:
        started = time.monotonic()
        with pytest.raises(errors.InvalidArgumentError):
            session.run([blocked, bad], {x: [1.0, 2.0, 3.0]})
        assert time.monotonic() - started < SOON_S


def test_a_message_of_a_megabyte_survives(targets: list[str]) -> None:
    text = "".join(chr(ord("a") + i % 26) for i in range(2**20))
    with on(2):
        check = tf.debugging.Assert(tf.constant(False), [tf.constant(text)], summarize=1)
    with tf.Session(targets[0]) as session:
        with pytest.raises(errors.InvalidArgumentError) as caught:
            session.run(check)
    assert text in str(caught.value)


def test_strings_go_between_any_two_devices(targets: list[str]) -> None:
    given = [b"", b"\x00\xff", "µ".encode(), b"x" * 100_000]
    for source, destination in itertools.permutations(range(3), 2):
        with on(source):
            text = tf.constant(given)
        with on(destination):
            joined = tf.string_join([text, tf.constant([b"!"] * 4)])
        with tf.Session(targets[0]) as session:
            assert session.run(joined).tolist() == [one + b"!" for one in given]


def test_one_value_goes_to_different_devices_in_different_runs(targets: list[str]) -> None:
    with on(0):
        source = tf.constant([1.0, 2.0]) * 3.0
    readers = []
    for task in (1, 2):
        with on(task):
            readers.append(source + float(task))
    with tf.Session(targets[0]) as session:
        for _ in range(3):
            assert session.run(readers[0]).tolist() == [4.0, 7.0]
            assert session.run(readers[1]).tolist() == [5.0, 8.0]
            assert [value.tolist() for value in session.run(readers)] == [[4, 7], [5, 8]]


def test_variables_outlive_the_session_that_made_them(targets: list[str]) -> None:
    with on(1):
        v = tf.Variable([1.0, 2.0], name="v")
    with tf.Session(targets[0]) as session:
        session.run(v.initializer)
    with tf.Session(targets[0]) as session:
        assert session.run(v).tolist() == [1.0, 2.0]
        assert session.run(tf.report_uninitialized_variables()).tolist() == []


def test_learners_that_share_a_variable_see_the_sum_of_all_increments(targets: list[str]) -> None:
    rounds = 50

    def learner(task: int) -> None:
        with tf.Graph().as_default():
            with on(0):
                v = tf.Variable(np.zeros(3, np.float32), name="shared")
            with on(task):
                delta = tf.constant([1.0, float(task), 0.5])
            with tf.Session(targets[task]) as session:
                for _ in range(rounds):
                    session.run(v.assign_add(delta) if task == 1 else v.assign_add(delta).op)

    with on(0):
        v = tf.Variable(np.zeros(3, np.float32), name="shared")
    with tf.Session(targets[0]) as session:
        session.run(v.initializer)
        threads = [threading.Thread(target=learner, args=(task,)) for task in (1, 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert session.run(v).tolist() == [2.0 * rounds, 3.0 * rounds, 1.0 * rounds]


def test_a_callable_runs_what_it_was_made_of(targets: list[str]) -> None:
    x = tf.placeholder(tf.float32, [])
    with on(1):
        y = x * 2.0
    with on(2):
        z = y + 1.0
    with tf.Session(targets[0]) as session:
        run = session.make_callable([y, z], [x])
        assert run(1.0) == [2.0, 3.0]
        assert run(5.0) == [10.0, 11.0]
        with pytest.raises(TypeError, match="1 values are to be fed"):
            run()
        # Values that stay on a device, which TensorFlow has for local sessions, do not exist here.
        with pytest.raises(TypeError):
            session.make_callable(y, [x], fetch_devices={})  # type: ignore[call-arg]
        metadata = tf.RunMetadata()
        traced = session.make_callable(z, [x], accept_options=True)
        options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
        assert traced(1.0, options=options, run_metadata=metadata) == 3.0
        assert metadata.step_stats.dev_stats


def test_devices_of_all_tasks_are_listed_with_what_is_known_of_them(targets: list[str]) -> None:
    tf.constant(1.0)
    lists = []
    for target in targets:
        with tf.Session(target) as session:
            lists.append(session.list_devices())
    assert [device.name for device in lists[0]] == [
        f"/job:worker/replica:0/task:{task}/device:CPU:0" for task in range(3)
    ]
    # Every master says the same.
    for devices in lists:
        assert [d.incarnation for d in devices] == [d.incarnation for d in lists[0]]
        assert all(d.device_type == "CPU" for d in devices)
        assert all(d.memory_limit_bytes >= 0 for d in devices)


def test_a_graph_that_is_extended_keeps_what_ran(targets: list[str]) -> None:
    with on(1):
        v = tf.Variable(1.0)
    with tf.Session(targets[0]) as session:
        session.run(v.initializer)
        for count in range(2, 6):
            with on(count % 3):
                grown = v.assign_add(1.0)
            assert session.run(grown) == float(count)


def test_a_wait_in_one_session_does_not_hold_up_another(targets: list[str]) -> None:
    with on(1):
        queue = tf.FIFOQueue(1, tf.float32, shapes=(), shared_name="handover")
        taken, put = queue.dequeue(), queue.enqueue(7.0)
    got: list[float] = []
    with tf.Session(targets[0]) as waiting, tf.Session(targets[2]) as other:
        thread = threading.Thread(target=lambda: got.append(waiting.run(taken)))
        thread.start()
        assert other.run(tf.constant(1.0) + 1.0) == 2.0
        other.run(put)
        thread.join(SOON_S)
    assert got == [7.0]


def memory_available() -> int:
    """Bytes that can be had without swapping."""
    found = re.search(r"MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text())
    return int(found[1]) * 1024 if found else 0


def test_a_tensor_of_more_than_two_gigabytes_goes_between_tasks() -> None:
    count = 2**29 + 3
    if memory_available() < 8 * 2**30 or PRESET in ("asan", "tsan"):
        pytest.skip("two copies of a tensor of 2 GB need 8 GB of memory, without sanitizers")
    cluster = {"worker": addresses(2)}
    processes = Processes()
    try:
        for task in range(2):
            processes.serve(cluster, "worker", task)
        with tf.Graph().as_default():
            with on(0):
                big = tf.range(count, dtype=tf.int32)
            with on(1):
                ends = [big[0], big[count // 2], big[-1], tf.size(big)]
            config = tf.ConfigProto(operation_timeout_in_ms=PATIENCE_S * 1000)
            with tf.Session(f"grpc://{cluster['worker'][1]}", config=config) as session:
                assert session.run(ends) == [0, count // 2, count - 1, count]
    finally:
        processes.end()
