"""Synchronous training by several clients: SyncReplicasOptimizer on servers, and threads of queue
runners. The numbers are those that TensorFlow's own optimizer gives."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from session_servers import PATIENCE_S, addresses

import sidereal as sr
import sidereal.v1 as tf
from sidereal import errors


class Replica:
    """One worker: its graph, its session, and its part in the steps."""

    def __init__(
        self, index: int, count: int, to_aggregate: int, target: str, hybrid: bool
    ) -> None:
        self.graph = tf.Graph()
        with self.graph.as_default():
            with tf.device("/job:ps/task:0"):
                self.step = tf.Variable(0, name="global_step", trainable=False, dtype=tf.int64)
                self.v0 = tf.Variable(0.0, name="v0")
            with tf.device("/job:ps/task:1"):
                self.v1 = tf.Variable(1.0, name="v1")
                self.rows = tf.Variable([[3.0], [4.0]], name="rows")
            with tf.device(f"/job:worker/task:{index}"):
                first, second = 0.1 + 0.2 * index, 0.9 + 0.2 * index
                pairs = [
                    (tf.constant(first), self.v0),
                    (tf.constant(second), self.v1),
                    (sr.IndexedSlices(tf.constant([[first]]), tf.constant([1])), self.rows),
                ]
                self.optimizer = tf.train.SyncReplicasOptimizer(
                    tf.train.GradientDescentOptimizer(2.0), to_aggregate, count, hybrid=hybrid
                )
                self.train = self.optimizer.apply_gradients(pairs, self.step)
                self.hook = self.optimizer.make_session_run_hook(index == 0, num_tokens=count)
            self.hook.begin()
            self.init = tf.global_variables_initializer()
        self.local_step = next(
            variable
            for variable in self.graph.get_collection(tf.GraphKeys.LOCAL_VARIABLES)
            if variable.op.name == "sync_rep_local_step"
        )
        self.session = tf.Session(target, graph=self.graph)

    def values(self) -> list[Any]:
        """The step, v0, v1 and the rows."""
        return self.session.run([self.step, self.v0, self.v1, self.rows])

    def start(self) -> threading.Thread:
        """Takes part in one step, in a thread of its own."""
        thread = threading.Thread(target=self.session.run, args=(self.train,), daemon=True)
        thread.start()
        return thread


class Replicas:
    """Two ps and workers in this process, and a replica for each worker."""

    def __init__(self, count: int, to_aggregate: int, hybrid: bool) -> None:
        jobs = {"ps": 2, "worker": count}
        hosts = addresses(2 + count)
        cluster = {"ps": hosts[:2], "worker": hosts[2:]}
        self.servers = [
            sr.train.Server(cluster, job, index)
            for job, size in jobs.items()
            for index in range(size)
        ]
        self.coordinator = tf.train.Coordinator()
        self.all = [
            Replica(index, count, to_aggregate, self.servers[2 + index].target, hybrid)
            for index in range(count)
        ]
        chief = self.all[0]
        chief.session.run(chief.init)
        for replica in self.all:
            replica.hook.after_create_session(replica.session, self.coordinator)

    def wait_for_step(self, step: int) -> None:
        """Until the chief's queue runner has counted so many steps."""
        look = self.all[-1]
        for _ in range(int(PATIENCE_S / 0.01)):
            if look.session.run(look.step) >= step:
                return
            threading.Event().wait(0.01)
        raise AssertionError(f"step {step} did not come")

    def stop(self) -> None:
        self.coordinator.request_stop()
        for replica in self.all:
            replica.session.close()
        self.coordinator.join(stop_grace_period_secs=PATIENCE_S)
        for server in self.servers:
            server.stop()


@pytest.fixture
def replicas() -> Iterator[Any]:
    """Makes Replicas that are stopped after the test."""
    made: list[Replicas] = []

    def make(count: int, to_aggregate: int, hybrid: bool = False) -> Replicas:
        made.append(Replicas(count, to_aggregate, hybrid))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def check(values: list[Any], step: int, v0: float, v1: float, rows: list[float]) -> None:
    assert values[0] == step
    np.testing.assert_allclose(values[1], v0, rtol=1e-5)
    np.testing.assert_allclose(values[2], v1, rtol=1e-5)
    np.testing.assert_allclose(values[3][:, 0], rows, rtol=1e-5)


def test_two_workers_take_steps_with_the_mean_of_both(replicas: Any) -> None:
    made = replicas(2, 2)
    one, two = made.all
    check(one.values(), 0, 0.0, 1.0, [3.0, 4.0])
    for thread in [one.start(), two.start()]:
        thread.join(PATIENCE_S)
    made.wait_for_step(1)
    # v0 -= 2 * (0.1 + 0.3) / 2, and so on.
    check(two.values(), 1, -0.4, -1.0, [3.0, 3.6])
    # Their first tokens were of step 0, so what they add now is too late, and dropped.
    assert [replica.session.run(replica.local_step) for replica in made.all] == [0, 0]
    for thread in [one.start(), two.start()]:
        thread.join(PATIENCE_S)
    check(one.values(), 1, -0.4, -1.0, [3.0, 3.6])
    assert [replica.session.run(replica.local_step) for replica in made.all] == [1, 1]
    for thread in [one.start(), two.start()]:
        thread.join(PATIENCE_S)
    made.wait_for_step(2)
    check(two.values(), 2, -0.8, -3.0, [3.0, 3.2])


def test_hybrid_has_each_worker_update_rows_and_the_rest_in_step(replicas: Any) -> None:
    made = replicas(2, 2, hybrid=True)
    one, two = made.all
    one.start().join(PATIENCE_S)  # There are tokens of step 0.
    # Rows are not waited with: 2 * 0.1.
    check(two.values(), 0, 0.0, 1.0, [3.0, 3.8])
    two.start().join(PATIENCE_S)
    made.wait_for_step(1)
    check(two.values(), 1, -0.4, -1.0, [3.0, 3.2])


def test_of_three_workers_the_slowest_is_not_waited_for(replicas: Any) -> None:
    made = replicas(3, 2)
    one, two, three = made.all
    for replica in (one, three):
        replica.start().join(PATIENCE_S)
    made.wait_for_step(1)
    # Means of (0.1, 0.5) and (0.9, 1.3).
    check(two.values(), 1, -0.6, -1.2, [3.0, 3.4])
    # The straggler's gradient of step 0 is dropped; it gets a token all the same.
    two.start().join(PATIENCE_S)
    check(two.values(), 1, -0.6, -1.2, [3.0, 3.4])
    # All three now take the tokens of step 1, and what two of them add makes the second step.
    for replica in (one, three):
        replica.start().join(PATIENCE_S)
    for replica in (one, two):
        replica.session.run(replica.optimizer.local_step_init_op)
        replica.start()
    made.wait_for_step(2)
    check(three.values(), 2, -1.0, -3.2, [3.0, 3.0])


def test_a_worker_that_is_ahead_waits_for_the_step(replicas: Any) -> None:
    made = replicas(2, 2)
    one, two = made.all
    for thread in [one.start(), one.start()]:
        thread.join(PATIENCE_S)  # Two tokens were there; both gradients count.
    made.wait_for_step(1)
    check(one.values(), 1, -0.2, -0.8, [3.0, 3.8])
    for thread in [one.start(), two.start()]:
        thread.join(PATIENCE_S)  # Both take tokens of step 1.
    config = tf.ConfigProto(operation_timeout_in_ms=3000)
    with tf.Session(made.servers[2].target, graph=one.graph, config=config) as other:
        with pytest.raises(errors.DeadlineExceededError, match="sync_token_q"):
            other.run(one.train)
    assert one.session.run(one.step) == 1
    # What it added counts, and the other's gradient completes the step.
    two.start().join(PATIENCE_S)
    made.wait_for_step(2)
    check(two.values(), 2, -0.6, -2.8, [3.0, 3.4])


def test_wrong_uses_are_value_errors() -> None:
    with tf.Graph().as_default():
        made = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(1.0), 3, 1)
        with pytest.raises(ValueError, match="apply_gradients"):
            made.get_init_tokens_op()
        with pytest.raises(ValueError, match="apply_gradients"):
            made.get_chief_queue_runner()
        with pytest.raises(ValueError, match="apply_gradient should be called"):
            made.make_session_run_hook(True).begin()
        with pytest.raises(ValueError, match="at least one variable"):
            made.apply_gradients([])
        variable = tf.Variable(1.0)
        with pytest.raises(ValueError, match="Global step is required"):
            made.apply_gradients([(tf.constant(1.0), variable)])
        rows = sr.IndexedSlices(tf.constant([1.0]), tf.constant([0]))
        hybrid = tf.train.SyncReplicasOptimizer(
            tf.train.GradientDescentOptimizer(1.0), 2, hybrid=True
        )
        with pytest.raises(ValueError, match=r"nothing is left .* BoundedStalenessHook\(1\)"):
            hybrid.apply_gradients([(rows, variable)], tf.train.get_or_create_global_step())
        made.minimize(variable * variable, tf.train.get_or_create_global_step())
        with pytest.raises(ValueError, match="Too few tokens"):
            made.get_init_tokens_op(1)
        assert made.get_init_tokens_op(2).type == "QueueEnqueue"
        assert made.get_init_tokens_op().type == "QueueEnqueue"


def test_gradients_that_are_not_there_are_passed_through() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        used, unused = tf.Variable(1.0, name="used"), tf.Variable(2.0, name="unused")
        step = tf.train.get_or_create_global_step()
        inner = tf.train.MomentumOptimizer(0.5, 0.9)
        made = tf.train.SyncReplicasOptimizer(inner, 1)
        train = made.minimize(used * used, step)
        assert made.get_slot(used, "momentum") is not None
        assert made.get_slot_names() == inner.get_slot_names()
        hook = made.make_session_run_hook(True)
        hook.begin()
        session.run(tf.global_variables_initializer())
        coordinator = tf.train.Coordinator()
        hook.after_create_session(session, coordinator)
        session.run(train)  # Takes the first token; the step itself is the runner's.
        session.run(train)
        assert session.run([used, unused])[1] == 2.0
        coordinator.request_stop()
        session.close()
        coordinator.join(stop_grace_period_secs=PATIENCE_S)


# --- Threads that end together.


def test_a_queue_runner_fills_its_queue_until_it_is_told_to_stop() -> None:
    with tf.Graph().as_default():
        queue = tf.FIFOQueue(2, tf.int64, shapes=())
        count = tf.Variable(0, dtype=tf.int64)
        runner = tf.train.QueueRunner(queue, [queue.enqueue(count.assign_add(1))])
        tf.train.add_queue_runner(runner)
        taken = queue.dequeue()
        with tf.Session() as session:
            session.run(count.initializer)
            coordinator = tf.train.Coordinator()
            threads = tf.train.start_queue_runners(session, coordinator)
            assert len(threads) == 2
            assert runner.create_threads(session, coordinator) == []
            assert [session.run(taken) for _ in range(5)] == [1, 2, 3, 4, 5]
            coordinator.request_stop()
            coordinator.join(threads, stop_grace_period_secs=PATIENCE_S)
            assert coordinator.joined


def test_a_queue_runner_closes_its_queue_when_there_is_no_more() -> None:
    with tf.Graph().as_default():
        source = tf.FIFOQueue(10, tf.int64, shapes=())
        queue = tf.FIFOQueue(10, tf.int64, shapes=())
        fill = source.enqueue_many(np.arange(3))
        runner = tf.train.QueueRunner(queue, [queue.enqueue(source.dequeue())] * 2)
        taken = queue.dequeue()
        with tf.Session() as session:
            session.run(fill)
            session.run(source.close())
            for thread in runner.create_threads(session, start=True):
                thread.join(PATIENCE_S)
            assert sorted(session.run(taken) for _ in range(3)) == [0, 1, 2]
            with pytest.raises(errors.OutOfRangeError):
                session.run(taken)
            assert runner.exceptions_raised == []


def test_a_coordinator_raises_the_first_error_of_its_threads() -> None:
    coordinator = tf.train.Coordinator()

    def fail() -> None:
        with coordinator.stop_on_exception():
            raise KeyError("first")

    def wait() -> None:
        coordinator.wait_for_stop()
        coordinator.request_stop(ValueError("second"))

    threads = [threading.Thread(target=target) for target in (wait, fail)]
    for thread in threads:
        thread.start()
    with pytest.raises(KeyError, match="first"):
        coordinator.join(threads)
    coordinator.clear_stop()
    assert not coordinator.should_stop()
    coordinator.request_stop(errors.OutOfRangeError("a good end"))
    coordinator.join([])


def test_a_coordinator_names_threads_that_do_not_stop() -> None:
    coordinator = tf.train.Coordinator()
    release = threading.Event()
    thread = threading.Thread(target=release.wait, name="stubborn", daemon=True)
    thread.start()
    coordinator.register_thread(thread)
    coordinator.request_stop()
    with pytest.raises(RuntimeError, match="stubborn"):
        coordinator.join(stop_grace_period_secs=0.05)
    coordinator.clear_stop()
    coordinator.request_stop()
    coordinator.join([thread], stop_grace_period_secs=0.05, ignore_live_threads=True)
    release.set()


def test_a_queue_runner_needs_a_queue() -> None:
    with tf.Graph().as_default(), pytest.raises(ValueError, match="Must provide queue"):
        tf.train.QueueRunner(None, [])


# --- Workers that end, in monitored sessions.


class _DiedError(Exception):
    """Ends a worker as a crash does."""


class Workers:
    """Workers of a monitored session each, in threads, beside one ps."""

    def __init__(
        self, count: int, to_aggregate: int, timeout_s: float = 60, protocol: str = "grpc"
    ) -> None:
        self._count = count
        self._to_aggregate = to_aggregate
        self._timeout_s = timeout_s
        ports = addresses(1 + count)
        cluster = {"ps": ports[:1], "worker": ports[1:]}
        self.servers = [
            sr.train.Server(cluster, job, index, protocol=protocol)
            for job, index in (("ps", 0), *(("worker", index) for index in range(count)))
        ]
        self.errors: list[BaseException] = []
        self.ran: dict[int, int] = {}

    def train(self, index: int, runs: int) -> None:
        """Runs `runs` steps as worker `index`; the gradient is 1. Below 0: as many, and then it
        dies, without an end."""
        try:
            with tf.Graph().as_default():
                with tf.device(
                    tf.train.replica_device_setter(1, worker_device=f"/job:worker/task:{index}")
                ):
                    step = tf.train.get_or_create_global_step()
                    v = tf.Variable(0.0, name="v")
                    optimizer = tf.train.SyncReplicasOptimizer(
                        tf.train.GradientDescentOptimizer(1.0), self._to_aggregate, self._count
                    )
                    train = optimizer.apply_gradients([(tf.constant(1.0), v)], step)
                    hook = optimizer.make_session_run_hook(
                        index == 0, replica_timeout_secs=self._timeout_s
                    )
                with tf.train.MonitoredTrainingSession(
                    self.servers[1 + index].target, index == 0, hooks=[hook],
                    recovery_wait_secs=0.1, max_wait_secs=PATIENCE_S,
                ) as session:
                    for _ in range(abs(runs)):
                        session.run(train)
                        self.ran[index] = self.ran.get(index, 0) + 1
                    if runs < 0:
                        raise _DiedError
        except _DiedError:
            pass
        except BaseException as error:  # noqa: BLE001 - the test raises it.
            self.errors.append(error)

    def run(self, runs: list[int]) -> tuple[int, float]:
        """(global step, v) when all have ended; a worker of 0 runs never starts."""
        threads = [
            threading.Thread(target=self.train, args=(index, number), daemon=True)
            for index, number in enumerate(runs)
            if number
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), f"{thread} waits for ever; {self.ran}"
        if self.errors:
            raise self.errors[0]
        with tf.Graph().as_default(), tf.Session(self.servers[0].target) as session:
            with tf.device("/job:ps/task:0"):
                step = tf.train.get_or_create_global_step()
                v = tf.Variable(0.0, name="v")
            found = session.run([step, v])
        return int(found[0]), float(found[1])


@pytest.fixture
def workers() -> Iterator[Any]:
    made: list[Workers] = []

    def make(*args: Any) -> Workers:
        made.append(Workers(*args))
        return made[-1]

    yield make
    for one in made:
        for server in one.servers:
            server.stop()


@pytest.mark.parametrize("runs", [[7, 12, 4], [3, 9, 9], [12, 2, 5]])
@pytest.mark.parametrize("to_aggregate", [3, 2, 5])
@pytest.mark.parametrize("protocol", ["grpc", "star_server"])
def test_nobody_waits_for_workers_that_have_ended(
    workers: Any, protocol: str, to_aggregate: int, runs: list[int]
) -> None:
    made = workers(3, to_aggregate, 60, protocol)
    step, v = made.run(runs)
    assert [made.ran[index] for index in range(3)] == runs
    # Means of ones: each step takes one off. How many there are depends on who comes when.
    assert v == -step and 1 <= step <= sum(runs)


@pytest.mark.parametrize("protocol", ["grpc", "star_server"])
def test_a_step_goes_on_without_a_worker_that_died(
    workers: Any, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    made = workers(3, 3, 1.0, protocol)
    step, v = made.run([8, 8, -3])
    assert re.search(r"goes on without one of the \d workers", caplog.text)
    assert v == -step and made.ran == {0: 8, 1: 8, 2: 3}


def test_at_the_end_those_that_never_came_are_not_waited_for(workers: Any) -> None:
    made = workers(4, 1, 0.5)
    step, _ = made.run([5, 0, 0, 0])
    assert made.ran == {0: 5} and step >= 1


def test_checkpoints_do_not_have_who_has_left() -> None:
    with tf.Graph().as_default():
        optimizer = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(1.0), 2)
        step = tf.train.get_or_create_global_step()
        optimizer.apply_gradients([(tf.constant(1.0), tf.Variable(0.0, name="v"))], step)
        assert [one.op.name for one in tf.global_variables()] == ["global_step", "v"]
