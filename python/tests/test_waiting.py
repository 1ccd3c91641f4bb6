"""What waits or computes holds up nothing else, in local sessions and over every protocol."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from session_servers import addresses

import sidereal as sr
import sidereal.v1 as tf
from sidereal import errors
from sidereal.launch import PROTOCOLS

#: Long beside what a run takes, short beside what a wait or loop without end takes.
SOON_S = 20.0
#: More iterations than anybody waits for.
FOREVER = 1_000_000_000

_names = itertools.count()
Session = Callable[[], tf.Session]


@pytest.fixture(params=["local", *PROTOCOLS])
def session(request: pytest.FixtureRequest) -> Iterator[Session]:
    """Makes a session: of this process, or of a worker with two ps."""
    config = tf.ConfigProto(operation_timeout_in_ms=int(SOON_S * 1000))
    with contextlib.ExitStack() as stack:
        stack.enter_context(tf.Graph().as_default())
        if request.param == "local":
            target = ""
        else:
            target = stack.enter_context(running(request.param))
        yield lambda: stack.enter_context(tf.Session(target, config=config))


@contextlib.contextmanager
def running(protocol: str) -> Iterator[str]:
    """The target of a worker of a cluster with two ps."""
    cluster = {"ps": addresses(2), "worker": addresses(1)}
    tasks = [("ps", 0), ("ps", 1), ("worker", 0)]
    servers = [sr.train.Server(cluster, job, index, protocol) for job, index in tasks]
    try:
        yield servers[-1].target
    finally:
        for server in servers:
            server.stop()


PLACES = ["ps/task:0", "ps/task:1", "worker/task:0"]


@pytest.fixture
def place(request: pytest.FixtureRequest, session: Session) -> Callable[[str], Any]:
    """Puts nodes on a task; nowhere in a local session."""
    if "local" in request.node.name:
        return lambda task: contextlib.nullcontext()
    return lambda task: tf.device(f"/job:{task}")


def queue(capacity: int = 10) -> tf.FIFOQueue:
    return tf.FIFOQueue(capacity, tf.float32, shapes=(), shared_name=f"queue{next(_names)}")


@pytest.mark.parametrize("home", PLACES)
@pytest.mark.parametrize("takes_first", [True, False])
def test_what_is_taken_may_be_put_in_by_the_same_step(
    session: Session, place: Callable[[str], Any], home: str, takes_first: bool
) -> None:
    with place(home):
        q = queue()
        if takes_first:
            taken = q.dequeue()
            put = q.enqueue(1.0)
        else:
            put = q.enqueue(1.0)
            taken = q.dequeue()
    made = session()
    for _ in range(3):
        assert made.run([taken, put])[0] == 1.0


def test_what_is_put_in_may_come_from_anywhere(
    session: Session, place: Callable[[str], Any]
) -> None:
    with place("ps/task:0"):
        q = queue()
        taken = q.dequeue()
    with place("ps/task:1"):
        other = queue()
        first = other.dequeue()
    x = tf.placeholder(tf.float32, [])
    with place("worker/task:0"):
        doubled = 2.0 * x
        more = first + 1.0
    with place("ps/task:0"):
        put = q.enqueue(more)
    with place("ps/task:1"):
        begin = other.enqueue(doubled)
    made = session()
    for value in range(3):
        assert made.run([taken, put, begin], {x: value})[0] == 2 * value + 1


def test_one_of_two_that_wait_at_a_queue_feeds_the_other(
    session: Session, place: Callable[[str], Any]
) -> None:
    with place("ps/task:0"):
        q = queue()
        first = q.dequeue()
        size = q.size()
    with place("worker/task:0"):
        more = first + 10.0
    with place("ps/task:0"):
        put = q.enqueue(more)
        with tf.control_dependencies([more]):
            second = q.dequeue()
        begin = q.enqueue(1.0)
    made = session()
    assert made.run([first, second, begin, put])[:2] == [1.0, 11.0]
    assert made.run(size) == 0


@pytest.mark.parametrize("home", ["ps/task:0", "worker/task:0"])
@pytest.mark.parametrize("fails_first", [True, False])
def test_what_fails_beside_what_waits_ends_the_step(
    session: Session, place: Callable[[str], Any], home: str, fails_first: bool
) -> None:
    x = tf.placeholder(tf.float32, [])
    with place(home):
        q = queue()
        if fails_first:
            check = tf.debugging.Assert(x > 0.0, [x])
        taken = q.dequeue()
        if not fails_first:
            check = tf.debugging.Assert(x > 0.0, [x])
    made = session()
    started = time.monotonic()
    with pytest.raises(errors.InvalidArgumentError):
        made.run([taken, check], {x: -1.0})
    assert time.monotonic() - started < SOON_S / 2


def test_what_waits_lets_changes_and_reads_of_others_go_on(
    session: Session, place: Callable[[str], Any]
) -> None:
    with place("ps/task:0"):
        v = tf.get_variable(f"v{next(_names)}", [], initializer=tf.zeros_initializer())
        q = queue()
        taken = q.dequeue()
        grown = v.assign_add(1.0)
    with place("worker/task:0"):
        seen = grown + 1.0
    with place("ps/task:0"):
        put = q.enqueue(seen)
    made = session()
    made.run(tf.global_variables_initializer())
    for step in range(3):
        assert made.run([taken, put])[0] == step + 2.0


@pytest.mark.parametrize("waits_at", PLACES)
def test_what_waits_elsewhere_does_not_hold_up_the_next_round(
    session: Session, place: Callable[[str], Any], waits_at: str
) -> None:
    """Of two changes on one task, both of which come of what others send, one waits. The other one
    is what ends the wait."""
    x = tf.placeholder(tf.float32, [])
    with place(waits_at):
        q = queue()
        taken = q.dequeue()
    with place("ps/task:1"):
        v = tf.get_variable(f"v{next(_names)}", [], initializer=tf.zeros_initializer())
        near = v.read_value()
    with place("worker/task:0"):
        from_wait = taken * 2.0
        from_read = near + x
    with place("ps/task:1"):
        w = tf.get_variable(f"v{next(_names)}", [], initializer=tf.zeros_initializer())
        waits = w.assign_add(from_wait)
        goes_on = v.assign_add(from_read)
    with place("worker/task:0"):
        more = goes_on + 1.0
    with place(waits_at):
        put = q.enqueue(more)
    made = session()
    made.run(tf.global_variables_initializer())
    assert made.run([waits, goes_on, put], {x: 3.0})[:2] == [8.0, 3.0]
    assert made.run([v, w]) == [3.0, 8.0]


def test_two_that_are_taken_at_once_come_back_one_by_one(
    session: Session, place: Callable[[str], Any]
) -> None:
    with place("ps/task:0"):
        first, second = queue(), queue()
        one, two = first.dequeue(), second.dequeue()
        begin = first.enqueue(1.0)
        both = one + two
    with place("worker/task:0"):
        more = one + 10.0
    with place("ps/task:0"):
        put = second.enqueue(more)
    made = session()
    assert made.run([both, begin, put])[0] == 12.0


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("endless", ["worker/task:0", "ps/task:0"])
def test_a_loop_hears_that_another_task_failed(protocol: str, endless: str) -> None:
    failing = "ps/task:1"
    with tf.Graph().as_default(), running(protocol) as target:
        x = tf.placeholder(tf.float32, [])
        with tf.device("/job:worker/task:0"):
            sent = x + 1.0
        with tf.device(f"/job:{endless}"):
            count = tf.while_loop(lambda i: i < FOREVER, lambda i: i + 1, [tf.cast(x, tf.int32)])
        with tf.device(f"/job:{failing}"):
            check = tf.debugging.Assert(sent < 0.0, [sent])
        with tf.Session(target) as made:
            made.run(sent, {x: 1.0})
            for _ in range(2):
                started = time.monotonic()
                with pytest.raises(errors.InvalidArgumentError):
                    made.run([count, check], {x: 1.0})
                assert time.monotonic() - started < SOON_S
                # The lanes are free again.
                assert made.run(sent, {x: 1.0}) == 2.0


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("endless", ["worker/task:0", "ps/task:0"])
def test_a_loop_hears_the_deadline_of_its_step(protocol: str, endless: str) -> None:
    with tf.Graph().as_default(), running(protocol) as target:
        with tf.device(f"/job:{endless}"):
            count = tf.while_loop(lambda i: i < FOREVER, lambda i: i + 1, [tf.constant(0)])
        with tf.Session(target) as made:
            started = time.monotonic()
            with pytest.raises(errors.DeadlineExceededError):
                made.run(count, options=tf.RunOptions(timeout_in_ms=300))
            assert time.monotonic() - started < SOON_S


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_tasks_go_on_with_each_other_while_the_driver_computes(protocol: str) -> None:
    """What one task sends to another one passes by a third, which computes for ever: the failure
    that comes of it ends the step."""
    with tf.Graph().as_default(), running(protocol) as target:
        x = tf.placeholder(tf.float32, [])
        with tf.device("/job:ps/task:0"):
            sent = tf.exp(x)
        with tf.device("/job:ps/task:1"):
            more = sent * 2.0
        with tf.device("/job:ps/task:0"):
            check = tf.debugging.Assert(more < 0.0, [more])
        with tf.device("/job:worker/task:0"):
            count = tf.while_loop(lambda i: i < FOREVER, lambda i: i + 1, [tf.cast(x, tf.int32)])
        with tf.Session(target) as made:
            started = time.monotonic()
            with pytest.raises(errors.InvalidArgumentError):
                made.run([count, check], {x: 1.0})
            assert time.monotonic() - started < SOON_S
            assert made.run(more, {x: 0.0}) == 2.0


@pytest.mark.parametrize("protocol", ["grpc", "grpc++"])
def test_a_finished_tensor_leaves_while_its_task_computes(protocol: str) -> None:
    """What the other task makes of it ends the loop of the one that sent it. (With calls, what one
    of them makes comes when all of it has run.)"""
    with tf.Graph().as_default(), running(protocol) as target:
        x = tf.placeholder(tf.float32, [])
        with tf.device("/job:ps/task:0"):
            sent = tf.exp(x)
            with tf.control_dependencies([sent]):
                begin = tf.constant(0)
            count = tf.while_loop(lambda i: i < FOREVER, lambda i: i + 1, [begin])
        with tf.device("/job:ps/task:1"):
            check = tf.debugging.Assert(sent < 0.0, [sent])
        with tf.Session(target) as made:
            started = time.monotonic()
            with pytest.raises(errors.InvalidArgumentError):
                made.run([count, check], {x: 1.0})
            assert time.monotonic() - started < SOON_S
