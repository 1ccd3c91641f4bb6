"""Hooks of sidereal.v1.train: what each of them does in sessions of this process."""

from __future__ import annotations

import json
import logging
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from event_files import accumulated
from monitored import Recorder, counting

import sidereal.v1 as tf
from sidereal import errors
from sidereal.v1 import basic_session_run_hooks as hooks_module

pytestmark = pytest.mark.usefixtures("fresh_graph")


class Clock:
    """Seconds that pass when a test says so, in the place of the module time."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(hooks_module, "time", made)
    return made


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "sidereal")
    return caplog


# --- SecondOrStepTimer.


def test_a_timer_takes_seconds_or_steps() -> None:
    with pytest.raises(ValueError, match="Can not provide both every_secs and every_steps"):
        tf.train.SecondOrStepTimer(every_secs=2.0, every_steps=10)
    with pytest.raises(ValueError, match="Either every_secs or every_steps should be provided"):
        tf.train.SecondOrStepTimer()


def triggered(timer: Any, steps: Any) -> list[int]:
    found = []
    for step in steps:
        if timer.should_trigger_for_step(step):
            timer.update_last_triggered_step(step)
            found.append(step)
    return found


def test_a_timer_of_steps() -> None:
    timer = tf.train.SecondOrStepTimer(every_steps=3)
    assert triggered(timer, [1, 1, 1, 2, 3, 4, 4, 5, 6, 7]) == [1, 4, 7]
    assert timer.last_triggered_step() == 7
    timer.reset()
    assert timer.last_triggered_step() is None and timer.should_trigger_for_step(7)


def test_a_timer_of_seconds(clock: Clock) -> None:
    timer = tf.train.SecondOrStepTimer(every_secs=1.0)
    assert timer.should_trigger_for_step(1)
    assert timer.update_last_triggered_step(1) == (None, None)
    assert not timer.should_trigger_for_step(1) and not timer.should_trigger_for_step(2)
    clock.now += 1.0
    # Never twice at one step, however much time has passed.
    assert not timer.should_trigger_for_step(1) and timer.should_trigger_for_step(2)
    clock.now += 1.5
    assert timer.update_last_triggered_step(4) == (2.5, 3)


# --- StopAtStepHook.


def test_where_to_stop_is_said_once() -> None:
    with pytest.raises(ValueError, match="One of num_steps or last_step must be specified"):
        tf.train.StopAtStepHook()
    with pytest.raises(ValueError, match="Only one of num_steps or last_step can be specified"):
        tf.train.StopAtStepHook(num_steps=10, last_step=20)


def test_hooks_that_count_need_a_global_step() -> None:
    tf.constant(1)
    made = [
        tf.train.StopAtStepHook(num_steps=1), tf.train.StepCounterHook(),
        tf.train.GlobalStepWaiterHook(1), tf.train.ProfilerHook(save_steps=1),
        tf.train.SummarySaverHook(save_steps=1, summary_op=tf.constant(b"")),
    ]  # fmt: skip
    for hook in made:
        name = type(hook).__name__
        with pytest.raises(RuntimeError, match=f"Global step should be created to use {name}"):
            hook.begin()


@pytest.mark.parametrize("options, end", [({"last_step": 10}, 10), ({"num_steps": 10}, 15)])
def test_training_stops_at_a_step(options: dict[str, int], end: int) -> None:
    step, train = counting()
    scaffold = tf.train.Scaffold(init_fn=lambda _, session: step.load(5, session))
    hook = tf.train.StopAtStepHook(**options)
    with tf.train.MonitoredSession(tf.train.ChiefSessionCreator(scaffold), [hook]) as session:
        ran = 0
        while not session.should_stop():
            session.run(train)
            ran += 1
        assert session._creator.session.run(step) == end and ran == end - 5


def test_a_run_that_counts_further_stops_it_too() -> None:
    _step, train = counting(by=4)
    with tf.train.MonitoredSession(hooks=[tf.train.StopAtStepHook(last_step=10)]) as session:
        ran = 0
        while not session.should_stop():
            session.run(train)
            ran += 1
    assert ran == 3


def test_runs_that_do_not_count_do_not_stop_it() -> None:
    _step, train = counting()
    one = tf.constant(1)
    with tf.train.MonitoredSession(hooks=[tf.train.StopAtStepHook(num_steps=2)]) as session:
        session.run(train)
        for _ in range(5):
            session.run(one)
        assert not session.should_stop()
        session.run(train)
        assert session.should_stop()


def test_after_a_recovery_the_end_is_where_it_was() -> None:
    step, train = counting()
    hook = tf.train.StopAtStepHook(num_steps=3)
    hook.begin()
    with tf.Session() as session:
        session.run(step.initializer)
        hook.after_create_session(session, None)
        session.run(train)
        hook.after_create_session(session, None)
    assert hook._last_step == 3


# --- NanTensorHook.


def nan_after(runs: int) -> tuple[Any, Any]:
    left = tf.Variable(float(runs), name="left")
    loss = tf.math.log(left.assign_sub(1.0)) * 1.0
    return loss, tf.train.get_or_create_global_step()


def test_a_loss_that_is_no_number_is_an_error() -> None:
    loss, _ = nan_after(2)
    with pytest.raises(tf.train.NanLossDuringTrainingError, match="Mul"):
        with tf.train.MonitoredSession(hooks=[tf.train.NanTensorHook(loss)]) as session:
            for _ in range(4):
                session.run(loss)


def test_or_the_end() -> None:
    loss, _ = nan_after(2)
    hook = tf.train.NanTensorHook(loss, fail_on_nan_loss=False)
    with tf.train.MonitoredSession(hooks=[hook]) as session:
        ran = 0
        while not session.should_stop():
            session.run(loss)
            ran += 1
    assert ran == 3
    assert str(tf.train.NanLossDuringTrainingError()) == "NaN loss during training."


# --- LoggingTensorHook.


@pytest.mark.parametrize(
    "options, text",
    [
        ({"every_n_iter": 0}, "invalid every_n_iter=0"),
        ({"every_n_iter": -10}, "invalid every_n_iter=-10"),
        ({"every_n_secs": 0}, "invalid every_n_secs=0"),
        ({"every_n_secs": -1.5}, "invalid every_n_secs=-1.5"),
        ({"every_n_iter": 5, "every_n_secs": 5}, "exactly one of every_n_iter and every_n_secs"),
        ({}, "exactly one of every_n_iter and every_n_secs"),
    ],
)
def test_how_often_to_log_is_said_once(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        tf.train.LoggingTensorHook(["t"], **options)


def runs_logged(hook: Any, count: int, logged: Any, train: Any, tick: Any = None) -> list[int]:
    """The numbers of the runs in which something was logged, and -1 for the end."""
    found = []
    with tf.train.MonitoredSession(hooks=[hook]) as session:
        logged.clear()
        for number in range(count):
            session.run(train)
            if tick is not None:
                tick()
            if re.search(r"t = ", logged.text):
                found.append(number)
            logged.clear()
    return [*found, -1] if re.search(r"t = ", logged.text) else found


def test_values_are_logged_every_so_many_runs(logged: pytest.LogCaptureFixture) -> None:
    tensor, (_, train) = tf.constant(42.0, name="t"), counting()
    hook = tf.train.LoggingTensorHook({"t": tensor}, every_n_iter=10)
    assert runs_logged(hook, 31, logged, train) == [0, 10, 20, 30]
    tf.reset_default_graph()
    tensor, (_, train) = tf.constant(42.0, name="t"), counting()
    hook = tf.train.LoggingTensorHook({"t": tensor}, every_n_iter=10, at_end=True)
    assert runs_logged(hook, 12, logged, train) == [0, 10, -1]


def test_or_only_at_the_end(logged: pytest.LogCaptureFixture) -> None:
    tensor, (_, train) = tf.constant(42.0, name="t"), counting()
    hook = tf.train.LoggingTensorHook({"t": tensor}, at_end=True)
    assert runs_logged(hook, 5, logged, train) == [-1]


def test_or_every_so_many_seconds(logged: pytest.LogCaptureFixture, clock: Clock) -> None:
    tensor, (_, train) = tf.constant(42.0, name="t"), counting()
    hook = tf.train.LoggingTensorHook({"t": tensor}, every_n_secs=1.0)

    def tick() -> None:
        clock.now += 0.3

    assert runs_logged(hook, 10, logged, train, tick) == [0, 4, 8]


def test_values_by_name_and_by_a_formatter(logged: pytest.LogCaptureFixture) -> None:
    tf.constant(42.0, name="t")
    _, train = counting()
    texts: list[dict[str, Any]] = []

    def formatter(values: dict[str, Any]) -> str:
        texts.append(values)
        return "formatted"

    hook = tf.train.LoggingTensorHook(["t", "t:0"], every_n_iter=1, formatter=formatter)
    with tf.train.MonitoredSession(hooks=[hook]) as session:
        session.run(train)
    assert texts == [{"t": 42.0, "t:0": 42.0}] and "formatted" in logged.text


# --- StepCounterHook.


def rates_of(folder: Path) -> dict[int, float]:
    events = accumulated(folder)
    return {one.step: one.value for one in events.Scalars("global_step/sec")}


def test_the_steps_in_a_second(
    tmp_path: Path, logged: pytest.LogCaptureFixture, clock: Clock
) -> None:
    _, train = counting()
    hook = tf.train.StepCounterHook(every_n_steps=10, output_dir=str(tmp_path))
    with tf.train.MonitoredSession(hooks=[hook]) as session:
        for _ in range(30):
            clock.now += 0.5
            session.run(train)
    tf.summary.FileWriterCache.clear()
    assert rates_of(tmp_path) == {11: 2.0, 21: 2.0}
    assert "global_step/sec: 2" in logged.text


def test_in_seconds(tmp_path: Path, clock: Clock) -> None:
    _, train = counting()
    hook = tf.train.StepCounterHook(
        every_n_steps=None, every_n_secs=2.0, output_dir=str(tmp_path)
    )
    with tf.train.MonitoredSession(hooks=[hook]) as session:
        for _ in range(9):
            clock.now += 0.5
            session.run(train)
    tf.summary.FileWriterCache.clear()
    assert rates_of(tmp_path) == {5: 2.0, 9: 2.0}
    for wrong in ({"every_n_steps": 5, "every_n_secs": 5}, {"every_n_steps": None}):
        with pytest.raises(ValueError, match="exactly one of every_n_steps and every_n_secs"):
            tf.train.StepCounterHook(**wrong)


def test_a_step_that_does_not_change_is_said(logged: pytest.LogCaptureFixture) -> None:
    _step, train = counting()
    one = tf.constant(1)
    hook = tf.train.StepCounterHook(every_n_steps=1)
    with tf.train.MonitoredSession(hooks=[hook]) as session:
        for _ in range(60):
            session.run(train)
        assert "has not changed" not in logged.text
        for _ in range(20):
            session.run(one)
        assert "has not changed" not in logged.text
        session.run(one)
    assert "global step 60 has not changed in 20 runs" in logged.text


# --- SummarySaverHook.


def test_summaries_are_of_a_scaffold_or_an_op() -> None:
    op = tf.constant(b"")
    for wrong in ({}, {"scaffold": tf.train.Scaffold(), "summary_op": op}):
        with pytest.raises(ValueError, match="Exactly one of scaffold or summary_op"):
            tf.train.SummarySaverHook(save_steps=1, **wrong)
    with pytest.raises(ValueError, match="Can not provide both"):
        tf.train.SummarySaverHook(save_steps=1, save_secs=1, summary_op=op)
    with pytest.raises(ValueError, match="Either every_secs or every_steps"):
        tf.train.SummarySaverHook(summary_op=op)


def test_summaries_at_the_first_step_and_every_so_many(tmp_path: Path) -> None:
    step, train = counting()
    first, second = tf.summary.scalar("first", step * 2), tf.summary.scalar("second", step * 0 + 3)
    hook = tf.train.SummarySaverHook(
        save_steps=8, output_dir=str(tmp_path), summary_op=[first, second]
    )
    with tf.train.MonitoredSession(hooks=[hook]) as session:
        for _ in range(30):
            session.run(train)
    tf.summary.FileWriterCache.clear()
    events = accumulated(tmp_path)
    assert [one.step for one in events.Scalars("first")] == [1, 9, 17, 25]
    assert [one.value for one in events.Scalars("second")] == [3, 3, 3, 3]


def test_summaries_every_so_many_seconds(tmp_path: Path, clock: Clock) -> None:
    step, train = counting()
    summary = tf.summary.scalar("s", step)
    hook = tf.train.SummarySaverHook(save_secs=2, output_dir=str(tmp_path), summary_op=summary)
    with tf.train.MonitoredSession(hooks=[hook]) as session:
        for _ in range(8):
            session.run(train)
            clock.now += 0.5
    tf.summary.FileWriterCache.clear()
    assert [one.step for one in accumulated(tmp_path).Scalars("s")] == [1, 5]


def test_a_monitored_training_session_writes_all_summaries(tmp_path: Path) -> None:
    _step, train = counting()
    tf.summary.scalar("s", tf.constant(0.5))
    with tf.train.MonitoredTrainingSession(
        summary_dir=str(tmp_path), save_summaries_steps=2, log_step_count_steps=3
    ) as session:
        for _ in range(8):
            session.run(train)
    tf.summary.FileWriterCache.clear()
    events = accumulated(tmp_path)
    assert [one.step for one in events.Scalars("s")] == [1, 3, 5, 7]
    assert list(rates_of(tmp_path)) == [4, 7]


def test_summaries_without_a_writer_are_an_error() -> None:
    step, train = counting()
    hook = tf.train.SummarySaverHook(save_steps=1, summary_op=tf.summary.scalar("s", step))
    with pytest.raises(errors.FailedPreconditionError, match="save_summaries_steps=0"):
        with tf.train.MonitoredSession(hooks=[hook]) as session:
            session.run(train)


# --- GlobalStepWaiterHook.


def test_a_worker_waits_for_a_step() -> None:
    step, train = counting()
    hook = tf.train.GlobalStepWaiterHook(wait_until_step=3)
    hook.begin()
    with tf.Session() as session:
        session.run(step.initializer)
        context = tf.train.SessionRunContext(tf.train.SessionRunArgs(train), session)
        ended = threading.Event()

        def wait() -> None:
            hook.before_run(context)
            ended.set()

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        for _ in range(2):
            session.run(train)
        assert not ended.wait(1.2)
        session.run(train)
        assert ended.wait(30)
        # Once it has trained it does not ask any more.
        session.run(step.initializer)
        hook.before_run(context)
        thread.join(30)


def test_no_step_to_wait_for() -> None:
    _step, train = counting()
    with tf.train.MonitoredSession(hooks=[tf.train.GlobalStepWaiterHook(0)]) as session:
        session.run(train)


def test_a_step_that_nobody_makes_is_an_error(clock: Clock) -> None:
    _step, train = counting()
    hook = tf.train.GlobalStepWaiterHook(5, max_wait_secs=100)
    with pytest.raises(errors.DeadlineExceededError, match="step 5 is waited for; it has been 0"):
        with tf.train.MonitoredSession(hooks=[hook]) as session:
            session.run(train)


# --- The others.


def test_final_ops() -> None:
    step, train = counting()
    x = tf.placeholder(tf.int64, [], "x")
    hook = tf.train.FinalOpsHook({"sum": step + x}, {x: 10})
    with tf.train.MonitoredSession(hooks=[hook]) as session:
        assert hook.final_ops_values is None
        session.run(train)
    assert hook.final_ops_values == {"sum": 11}
    nothing = tf.train.FinalOpsHook(None)
    with tf.train.MonitoredSession(hooks=[nothing]) as session:
        session.run(train)
    assert nothing.final_ops_values is None


@pytest.mark.usefixtures("logged")
def test_final_ops_that_read_data_that_has_ended(logged: pytest.LogCaptureFixture) -> None:
    queue = tf.FIFOQueue(1, tf.int32, shapes=())
    close, take = queue.close(), queue.dequeue()
    with pytest.raises(errors.OutOfRangeError):
        with tf.train.MonitoredSession(hooks=[tf.train.FinalOpsHook(take)]) as session:
            session.run(close)
    assert "read data that has ended" in logged.text


def test_a_function_feeds() -> None:
    x = tf.placeholder(tf.int32, [])
    numbers = iter(range(10))
    doubled = x * 2
    hook = tf.train.FeedFnHook(lambda: {x: next(numbers)})
    with tf.train.MonitoredSession(hooks=[hook]) as session:
        assert [session.run(doubled) for _ in range(3)] == [0, 2, 4]


def timelines(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("timeline-*.json"))


def test_what_ran_is_written_every_so_many_steps(tmp_path: Path) -> None:
    _, train = counting()
    folder = tmp_path / "traces"
    hook = tf.train.ProfilerHook(save_steps=2, output_dir=str(folder))
    with tf.train.MonitoredSession(hooks=[hook]) as session:
        session.run(train)
        assert timelines(folder) == []
        for _ in range(5):
            session.run(train)
    assert timelines(folder) == [f"timeline-{step}.json" for step in (2, 4, 6)]
    events = json.loads((folder / "timeline-4.json").read_text())["traceEvents"]
    assert any("global_step" in str(event) for event in events)


def test_what_ran_is_written_every_so_many_seconds(tmp_path: Path, clock: Clock) -> None:
    _, train = counting()
    hook = tf.train.ProfilerHook(save_secs=2, output_dir=str(tmp_path))
    with tf.train.MonitoredSession(hooks=[hook]) as session:
        for _ in range(6):
            session.run(train)
            clock.now += 0.5
    assert timelines(tmp_path) == ["timeline-5.json"]


def test_a_hook_may_do_nothing() -> None:
    _, train = counting()
    other = Recorder()
    with tf.train.MonitoredSession(hooks=[tf.train.SessionRunHook(), other]) as session:
        session.run(train)
    assert other.values[0].results is None
    assert np.ndim(other.values[0].options.timeout_in_ms) == 0
