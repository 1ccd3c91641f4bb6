"""SessionManager and Supervisor: sessions that are ready, and what threads do beside them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from event_files import accumulated
from monitored import counting, saved

import sidereal.v1 as tf
from sidereal import errors

#: Seconds a loaded machine may take for what usually takes much less than one.
PATIENCE_S = 30

pytestmark = pytest.mark.usefixtures("fresh_graph")


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    tf.summary.FileWriterCache.clear()


def manager(**options: Any) -> tf.train.SessionManager:
    ready = tf.report_uninitialized_variables(tf.global_variables(), name="ready")
    return tf.train.SessionManager(ready_op=ready, **options)


# --- SessionManager.


def test_a_session_is_initialised() -> None:
    v = tf.Variable(1, name="v")
    fed = tf.placeholder(tf.int32, [])
    session = manager().prepare_session(
        "", init_op=v.assign(fed), init_feed_dict={fed: 5},
        init_fn=lambda session: session.run(v.assign_add(1)),
    )  # fmt: skip
    with session:
        assert session.run(v) == 6


def test_there_must_be_a_way_to_initialise_it() -> None:
    tf.Variable(1, name="v")
    with pytest.raises(RuntimeError, match="Model is not initialized and no init_op or init_fn"):
        manager().prepare_session("")
    with pytest.raises(RuntimeError, match="did not make model ready.*not initialized: v"):
        manager().prepare_session("", init_fn=lambda session: None)
    with pytest.raises(ValueError, match="you must also pass a local_init_op"):
        tf.train.SessionManager(ready_for_local_init_op=tf.no_op())


def test_what_is_local_waits_for_what_it_needs() -> None:
    v = tf.Variable(1, name="v")
    local = tf.Variable(
        v.read_value() * 2, name="local", collections=[tf.GraphKeys.LOCAL_VARIABLES]
    )
    needs = tf.report_uninitialized_variables([v], name="needs")
    made = manager(local_init_op=local.initializer, ready_for_local_init_op=needs)
    with made.prepare_session("", init_op=v.assign(4)) as session:
        assert session.run(local) == 8
    with pytest.raises(RuntimeError, match="did not make model ready for local_init.*: v"):
        made.prepare_session("", init_op=tf.no_op())


def test_a_checkpoint_goes_before_initial_values(tmp_path: Path) -> None:
    v = tf.Variable(1, name="v")
    saver = tf.train.Saver()
    made = manager()
    _, is_ready = made.recover_session("", saver=saver, checkpoint_dir=str(tmp_path))
    assert not is_ready
    with made.prepare_session("", init_op=v.assign(7), saver=saver) as session:
        path = saver.save(session, str(tmp_path / "m"), 1)
    for where in ({"checkpoint_dir": str(tmp_path)}, {"checkpoint_filename_with_path": path}):
        with made.prepare_session("", init_op=v.initializer, saver=saver, **where) as session:
            assert session.run(v) == 7
        session, is_ready = made.recover_session("", saver=saver, **where)
        assert is_ready and session.run(v) == 7
    assert saver.last_checkpoints == [path]
    with pytest.raises(ValueError, match="Can not provide both checkpoint_dir and"):
        made.prepare_session(
            "", saver=saver, checkpoint_dir=str(tmp_path), checkpoint_filename_with_path=path
        )


def test_a_checkpoint_may_be_waited_for(tmp_path: Path) -> None:
    v = tf.Variable(1, name="v")
    saver = tf.train.Saver()
    made = manager(recovery_wait_secs=0.1)

    def save() -> None:
        with tf.Session(graph=v.graph) as session:
            session.run(v.initializer)
            saver.save(session, str(tmp_path / "m"), 1)

    threading.Timer(0.3, save).start()
    with made.prepare_session(
        "", init_op=v.assign(9), saver=saver, checkpoint_dir=str(tmp_path),
        wait_for_checkpoint=True, max_wait_secs=PATIENCE_S,
    ) as session:  # fmt: skip
        assert session.run(v) == 1
    with made.prepare_session(
        "", init_op=v.assign(9), saver=saver, checkpoint_dir=str(tmp_path / "none"),
        wait_for_checkpoint=True, max_wait_secs=0.2,
    ) as session:  # fmt: skip
        assert session.run(v) == 9


def test_a_model_that_is_ready_is_waited_for() -> None:
    tf.Variable(1, name="v")
    made = manager(recovery_wait_secs=0.1)
    with pytest.raises(
        errors.DeadlineExceededError,
        match="Session was not ready after waiting 0.3 secs for the chief.*not initialized: v",
    ):
        made.wait_for_session("", max_wait_secs=0.3)
    ready = tf.train.SessionManager(ready_op=tf.constant([], tf.string))
    ready.wait_for_session("").close()


# --- Supervisor.


def test_a_supervisor_initialises_saves_and_comes_back(tmp_path: Path) -> None:
    step, train = counting()
    summary = tf.summary.scalar("s", step)
    made = tf.train.Supervisor(
        logdir=str(tmp_path), save_model_secs=0, save_summaries_secs=1000, summary_op=summary
    )
    assert made.is_chief and made.save_path == str(tmp_path / "model.ckpt")
    assert tf.get_default_graph().finalized
    with made.managed_session() as session:
        session.run(train)
        made.saver.save(session, made.save_path, global_step=made.global_step)
    assert saved(tmp_path) == 1 and made.should_stop()
    found = accumulated(tmp_path).Scalars("s")
    assert len(found) == 1 and found[0].value in (0, 1)
    with made.managed_session(start_standard_services=False) as session:
        assert session.run(step) == 1


def test_a_supervisor_saves_now_and_then(tmp_path: Path) -> None:
    _step, train = counting()
    made = tf.train.Supervisor(logdir=str(tmp_path), save_model_secs=0.05, summary_writer=None)
    with made.managed_session() as session:
        for _ in range(3):
            session.run(train)
        for _ in range(PATIENCE_S * 20):
            if tf.train.latest_checkpoint(tmp_path) == str(tmp_path / "model.ckpt-3"):
                break
            assert not made.coord.wait_for_stop(0.05)
    assert saved(tmp_path) == 3


def test_a_supervisor_without_a_folder_and_services() -> None:
    _step, _train = counting()
    queue = tf.FIFOQueue(5, tf.int32, shapes=())
    tf.train.add_queue_runner(tf.train.QueueRunner(queue, [queue.enqueue(2)]))
    take = queue.dequeue()
    made = tf.train.Supervisor(saver=None, summary_op=None)
    assert made.saver is None and made.summary_op is None and made.summary_writer is None
    with made.managed_session() as session:
        assert session.run(take) == 2
    with pytest.raises(RuntimeError, match="requires a summary writer"):
        made.summary_computed(session)


def test_other_supervisors_wait_for_the_chief() -> None:
    counting()
    made = tf.train.Supervisor(is_chief=False, recovery_wait_secs=0.1)
    with pytest.raises(errors.DeadlineExceededError, match="not initialized: global_step"):
        made.prepare_or_wait_for_session(max_wait_secs=0.3)
    with pytest.raises(RuntimeError, match="Only chief supervisor can start standard services"):
        made.start_standard_services(None)


@pytest.mark.parametrize("error, is_raised", [(errors.OutOfRangeError, False), (KeyError, True)])
def test_how_a_managed_session_ends(error: type, is_raised: bool) -> None:
    _, train = counting()
    made = tf.train.Supervisor()
    seen = []
    try:
        with made.managed_session() as session:
            session.run(train)
            made.loop(0.01, lambda: seen.append(1))
            raise error("an end")
    except KeyError:
        assert is_raised
    else:
        assert not is_raised
    assert made.should_stop() and seen


def test_an_error_of_a_thread_ends_the_session() -> None:
    _, train = counting()
    made = tf.train.Supervisor()

    def fails() -> None:
        raise ZeroDivisionError("in a thread")

    with pytest.raises(ZeroDivisionError, match="in a thread"), made.managed_session() as session:
        session.run(train)
        made.loop(None, fails)
        made.wait_for_stop()
        assert made.should_stop()


def test_a_basic_loop() -> None:
    step, train = counting()
    made = tf.train.Supervisor()
    found = []

    def train_step(session: Any, end: int) -> None:
        session.run(train)
        found.append(int(session.run(step)))
        if found[-1] == end:
            made.request_stop()

    tf.train.basic_train_loop(made, train_step, args=(3,))
    assert found == [1, 2, 3]
