"""MonitoredSession and those around it, in this process: the order of things, what hooks add to
runs, how training ends, and how it comes back."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from monitored import FailsOnce, Recorder, counting, saved

import sidereal.v1 as tf
from sidereal import errors
from sidereal.v1.monitored_session import _RecoverableSession

pytestmark = pytest.mark.usefixtures("fresh_graph")


def aborted() -> errors.AbortedError:
    return errors.AbortedError("task lost")


# --- Scaffold.


def test_scaffold_makes_what_is_missing() -> None:
    tf.Variable(1, name="v", collections=["a"])
    tf.Variable(2, name="w", collections=[tf.GraphKeys.GLOBAL_VARIABLES])
    tf.Variable(3, name="x", collections=[tf.GraphKeys.LOCAL_VARIABLES])
    scaffold = tf.train.Scaffold().finalize()
    assert isinstance(scaffold.init_op, tf.Operation)
    assert scaffold.init_feed_dict is None and scaffold.init_fn is None
    assert scaffold.summary_op is None
    with pytest.raises(RuntimeError, match="finalized"):
        tf.constant(1)
    with tf.Session() as session:
        assert sorted(session.run(scaffold.ready_op)) == [b"w", b"x"]
        assert list(session.run(scaffold.ready_for_local_init_op)) == [b"w"]
        session.run(scaffold.init_op)
        assert list(session.run(scaffold.ready_op)) == [b"x"]
        session.run(scaffold.local_init_op)
        assert session.run(scaffold.ready_op).size == 0


def test_scaffold_takes_what_is_given_and_what_collections_have() -> None:
    tf.Variable(0)
    ready, init = tf.constant(["here"]), tf.no_op(name="my_init")
    tf.add_to_collection(tf.GraphKeys.READY_OP, ready)
    scaffold = tf.train.Scaffold(init_op=init).finalize()
    assert scaffold.init_op is init and scaffold.ready_op is ready
    copied = tf.train.Scaffold(copy_from_scaffold=scaffold, local_init_op=init)
    assert copied.init_op is init and copied.local_init_op is init
    assert copied.saver is scaffold.saver
    with pytest.raises(TypeError, match="copy_from_scaffold is not a Scaffold instance"):
        tf.train.Scaffold(copy_from_scaffold=1)


def test_scaffold_does_not_choose_between_two_items_of_a_collection() -> None:
    tf.Variable(0)
    for _ in range(2):
        tf.add_to_collection(tf.GraphKeys.SAVERS, tf.train.Saver())
    with pytest.raises(RuntimeError, match='More than one item in the collection "savers"'):
        tf.train.Scaffold().finalize()


def test_init_fn_gets_scaffold_and_session() -> None:
    variable = tf.Variable(1, name="v")
    seen: list[Any] = []

    def init_fn(scaffold: Any, session: Any) -> None:
        seen.append(scaffold)
        variable.load(7, session)

    scaffold = tf.train.Scaffold(init_fn=init_fn)
    with tf.train.MonitoredSession(tf.train.ChiefSessionCreator(scaffold)) as session:
        assert session.run(variable) == 7
    assert seen == [scaffold]


def test_what_is_not_ready_is_named() -> None:
    tf.Variable(1, name="v")
    scaffold = tf.train.Scaffold(init_op=tf.no_op())
    with pytest.raises(RuntimeError, match="did not make model ready.*not initialized: v"):
        tf.train.MonitoredSession(tf.train.ChiefSessionCreator(scaffold))


# --- The order of things.


def test_the_order_of_things() -> None:
    _step, train = counting()
    hook = Recorder()
    with tf.train.MonitoredSession(hooks=[hook]) as session:
        assert hook.calls == ["begin", "after_create_session"]
        assert session.graph is tf.get_default_graph() and session.graph.finalized
        session.run(train)
        assert hook.calls[2:] == ["before_run", "after_run"]
        assert not session.should_stop()
    assert hook.calls[4:] == ["end"]
    assert session.should_stop() and session.graph is None
    # Who made the graph may go on with it.
    assert not tf.get_default_graph().finalized


def test_begin_may_still_add_to_the_graph() -> None:
    class Adds(tf.train.SessionRunHook):
        def begin(self) -> None:
            self.value = tf.constant(5) * 2

        def before_run(self, run_context: Any) -> Any:
            return tf.train.SessionRunArgs(self.value)

        def after_run(self, run_context: Any, run_values: Any) -> None:
            self.seen = run_values.results

    hook = Adds()
    one = tf.constant(1)
    with tf.train.MonitoredSession(hooks=[hook]) as session:
        assert session.run(one) == 1
    assert hook.seen == 10


def test_queue_runners_run_before_after_create_session() -> None:
    queue = tf.FIFOQueue(10, tf.int32, shapes=())
    tf.train.add_queue_runner(tf.train.QueueRunner(queue, [queue.enqueue(3)]))
    take = queue.dequeue()

    class Takes(tf.train.SessionRunHook):
        def after_create_session(self, session: Any, coord: Any) -> None:
            self.found = session.run(take)

    hook = Takes()
    with tf.train.MonitoredSession(hooks=[hook]) as session:
        assert hook.found == 3 and session.run(take) == 3


# --- What hooks add to runs.


def test_results_are_of_what_each_hook_fetched() -> None:
    a, b = tf.constant([0]), tf.constant([10])
    first, second = Recorder(), Recorder()
    first.request = tf.train.SessionRunArgs(a)
    second.request = tf.train.SessionRunArgs({"double": b * 2, "b": b})
    mine = {"mine": a + 1}
    with tf.train.MonitoredSession(hooks=[first, second]) as session:
        assert session.run(mine)["mine"] == [1]
    assert first.values[0].results == [0]
    assert second.values[0].results["double"] == [20]
    assert first.contexts[0].original_args.fetches is mine
    assert isinstance(first.contexts[0].session, tf.Session)


def test_feeds_of_hooks_and_user_are_joined() -> None:
    a, b, c = (tf.placeholder(tf.int32, [], name) for name in "abc")
    total = a + b + c
    hooks = [
        Recorder(tf.train.SessionRunArgs(None, feed_dict={a: 5})),
        Recorder(tf.train.SessionRunArgs(None, feed_dict={"b:0": 10})),
    ]
    with tf.train.MonitoredSession(hooks=hooks) as session:
        assert session.run(total, {c: 2}) == 17
        assert hooks[0].values[0].results is None


@pytest.mark.parametrize("name", [False, True])
def test_one_tensor_is_not_fed_twice(name: bool) -> None:
    a = tf.placeholder(tf.int32, [], "a")
    request = tf.train.SessionRunArgs(None, feed_dict={a: 5})
    with tf.train.MonitoredSession(hooks=[Recorder(request), Recorder(request)]) as session:
        with pytest.raises(RuntimeError, match="Same tensor is fed by two hooks"):
            session.run(a)
    with tf.train.MonitoredSession(hooks=[Recorder(request)]) as session:
        with pytest.raises(RuntimeError, match="Same tensor is fed by a SessionRunHook and user"):
            session.run(a, {"a:0" if name else a: 10})


def test_options_are_merged() -> None:
    def asking(**options: Any) -> Recorder:
        return Recorder(tf.train.SessionRunArgs(None, None, tf.RunOptions(**options)))

    hooks = [
        asking(trace_level=tf.RunOptions.SOFTWARE_TRACE, timeout_in_ms=60_000),
        asking(timeout_in_ms=30_000, report_tensor_allocations_upon_oom=True),
    ]
    one = tf.constant(1)
    mine = tf.RunOptions(timeout_in_ms=50_000)
    with tf.train.MonitoredSession(hooks=hooks) as session:
        session.run(one, options=mine)
    options = hooks[1].values[0].options
    assert options.trace_level == tf.RunOptions.SOFTWARE_TRACE
    assert options.timeout_in_ms == 60_000
    assert options.report_tensor_allocations_upon_oom is True
    # Of lists, such as watches of a debugger, there is all.
    merged, more = tf.RunOptions(), tf.RunOptions()
    merged.watches, more.watches = ["a"], ["b"]
    tf.train.MonitoredSession.__init__.__globals__["_merge_options"](merged, more)
    assert merged.watches == ["a", "b"]
    assert mine.trace_level == tf.RunOptions.NO_TRACE


def test_run_metadata_of_the_caller_is_filled() -> None:
    value = tf.constant(1.0) + 1
    metadata = tf.RunMetadata()
    with tf.train.MonitoredSession() as session:
        options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
        session.run(value, options=options, run_metadata=metadata)
    assert metadata.step_stats.dev_stats


# --- The end.


def test_request_stop_ends_the_training() -> None:
    _, train = counting()
    hook = Recorder()
    hook.stop_at = 3
    with tf.train.MonitoredSession(hooks=[hook]) as session:
        runs = 0
        while not session.should_stop():
            session.run(train)
            runs += 1
        with pytest.raises(RuntimeError, match="Run called even after should_stop requested"):
            session.run(train)
    assert runs == 3


def test_a_session_is_closed_once() -> None:
    tf.constant(1)
    session = tf.train.MonitoredSession()
    session.close()
    assert session.should_stop()
    with pytest.raises(RuntimeError, match=r"Session is already closed\."):
        session.close()
    with pytest.raises(RuntimeError, match=r"Session is already closed\."):
        session.run("Const:0")


@pytest.mark.parametrize("error", [errors.OutOfRangeError("no more"), StopIteration()])
@pytest.mark.parametrize("kind", ["Monitored", "Singular"])
def test_the_end_of_data_ends_well(error: Exception, kind: str) -> None:
    _, train = counting()
    hook = Recorder()
    make: Any = (
        tf.train.MonitoredSession if kind == "Monitored" else tf.train.SingularMonitoredSession
    )
    with make(hooks=[hook]) as session:
        session.run(train)
        raise error
    assert hook.calls[-1] == "end" and session.should_stop()


def test_the_end_of_a_queue_ends_well() -> None:
    queue = tf.FIFOQueue(3, tf.int32, shapes=())
    fill, close, take = queue.enqueue_many([[1, 2, 3]]), queue.close(), queue.dequeue()
    taken = []
    with tf.train.MonitoredSession() as session:
        session.run(fill)
        session.run(close)
        while not session.should_stop():
            taken.append(session.run(take))
    assert taken == [1, 2, 3]


def test_other_errors_are_raised_and_end_is_not_called() -> None:
    _, train = counting()
    hook = Recorder()
    with pytest.raises(ZeroDivisionError), tf.train.MonitoredSession(hooks=[hook]) as session:
        session.run(train)
        raise ZeroDivisionError
    assert "end" not in hook.calls and session.should_stop()


def test_errors_of_hooks_are_raised() -> None:
    _, train = counting()
    for error in (RuntimeError("a hook"), errors.InternalError("a hook")):
        hook = FailsOnce(lambda error=error: error, 1)
        with pytest.raises(type(error), match="a hook"):
            with tf.train.MonitoredSession(hooks=[hook]) as session:
                session.run(train)
                assert not session.should_stop()
                session.run(train)


class Thread(tf.train.SessionRunHook):
    """Has a thread that ends with an error when it is told to."""

    def __init__(self, error: BaseException) -> None:
        self._error = error
        self.fail = threading.Event()
        self.coords: list[Any] = []

    def after_create_session(self, session: Any, coord: Any) -> None:
        self.coords.append(coord)
        if len(self.coords) > 1:
            return

        def run() -> None:
            with coord.stop_on_exception():
                self.fail.wait(30)
                raise self._error

        self.thread = threading.Thread(target=run, daemon=True)
        coord.register_thread(self.thread)
        self.thread.start()


def test_an_error_of_a_thread_is_raised_at_the_end() -> None:
    _, train = counting()
    hook = Thread(RuntimeError("in a thread"))
    with pytest.raises(RuntimeError, match="in a thread"):
        with tf.train.MonitoredSession(hooks=[hook]) as session:
            session.run(train)
            assert not session.should_stop()
            hook.fail.set()
            hook.coords[0].wait_for_stop(30)
            assert session.should_stop()
            # Even where the loop ends well.
            raise StopIteration


def test_a_task_lost_in_a_thread_makes_a_new_session() -> None:
    step, train = counting()
    hook = Thread(aborted())
    with tf.train.MonitoredSession(hooks=[hook]) as session:
        session.run(train)
        hook.fail.set()
        hook.coords[0].wait_for_stop(30)
        assert not session.should_stop()
        assert len(hook.coords) == 2 and session.run(step) == 0


def test_a_run_that_follows_from_a_lost_task_is_made_again() -> None:
    step, train = counting()
    thread = Thread(aborted())

    class Follows(tf.train.SessionRunHook):
        def before_run(self, run_context: Any) -> None:
            if thread.fail.is_set() and len(thread.coords) == 1:
                thread.coords[0].wait_for_stop(30)
                raise errors.CancelledError("a queue was closed")

    with tf.train.MonitoredSession(hooks=[thread, Follows()]) as session:
        session.run(train)
        thread.fail.set()
        session.run(train)
        assert session.run(step) == 1


# --- Coming back.


@pytest.mark.parametrize("kind", [errors.AbortedError, errors.UnavailableError])
def test_a_lost_task_makes_a_new_session_and_the_run_is_made_again(kind: type) -> None:
    step, train = counting()
    hook = FailsOnce(lambda: kind("a task was lost"), 3)
    with tf.train.MonitoredSession(hooks=[hook]) as session:
        for _ in range(3):
            session.run(train)
        assert session.run(step) == 0  # Without a checkpoint all begins again,
        session.run(train)
        assert session.run(step) == 1  # with variables that have initial values.
    assert hook.sessions == 2


def test_it_comes_back_without_limit() -> None:
    _step, train = counting()
    hook = FailsOnce(aborted, *range(0, 40, 2))
    with tf.train.MonitoredSession(hooks=[hook]) as session:
        for _ in range(20):
            session.run(train)
    assert hook.sessions == 21


def test_it_comes_back_to_the_latest_checkpoint(tmp_path: Path) -> None:
    step, train = counting()
    hook = FailsOnce(aborted, 5)
    saver = tf.train.CheckpointSaverHook(
        str(tmp_path), save_steps=2, scaffold=(scaffold := tf.train.Scaffold())
    )
    creator = tf.train.ChiefSessionCreator(scaffold, checkpoint_dir=str(tmp_path))
    with tf.train.MonitoredSession(creator, hooks=[saver, hook]) as session:
        for _ in range(5):
            session.run(train)
            saver.wait()
        # The run is made from step 4 on, where the last checkpoint is.
        session.run(train)
        assert session.run(step) == 5
    assert saved(tmp_path) == 5


def test_a_session_that_cannot_be_made_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    step, _ = counting()

    class Creator(tf.train.SessionCreator):
        tries = 0

        def create_session(self) -> Any:
            self.tries += 1
            if self.tries < 4:
                raise errors.UnavailableError("not yet")
            return tf.train.ChiefSessionCreator().create_session()

    creator = Creator()
    with tf.train.MonitoredSession(creator) as session:
        assert session.run(step) == 0 and creator.tries == 4


def test_failures_in_a_row_come_to_an_end() -> None:
    counting()

    class Creator(tf.train.SessionCreator):
        max_wait_secs = 0.2

        def create_session(self) -> Any:
            raise errors.UnavailableError("/job:ps/task:1 does not answer")

    with pytest.raises(
        errors.DeadlineExceededError, match="no session has worked for 0.2 seconds.*ps/task:1"
    ):
        tf.train.MonitoredSession(Creator())


def test_singular_sessions_do_not_come_back() -> None:
    _, train = counting()
    hook = FailsOnce(aborted, 1)
    with pytest.raises(errors.AbortedError):
        with tf.train.SingularMonitoredSession(hooks=[hook]) as session:
            session.run(train)
            session.run(train)
    assert hook.sessions == 1


def test_singular_sessions_show_what_is_inside() -> None:
    step, train = counting()
    with tf.train.SingularMonitoredSession() as session:
        assert isinstance(session.raw_session(), tf.Session)
        session.run(train)
        assert session.raw_session().run(step) == 1
    assert session.raw_session() is None


# --- run_step_fn().


def test_step_fn_takes_a_step_context_alone() -> None:
    tf.constant(1)
    with tf.train.MonitoredSession() as session:
        for wrong in (lambda: 1, lambda step_context, more: 1, lambda context: 1):
            with pytest.raises(ValueError, match="`step_fn` may either have one `step_context`"):
                session.run_step_fn(wrong)


def test_step_fn_runs_with_and_without_hooks() -> None:
    step, train = counting()
    hook = Recorder()

    class Model:
        def step_fn(self, step_context: Any) -> Any:
            before = step_context.session.run(step)
            step_context.run_with_hooks(train)
            return before, step_context.session.run(step)

    for make in (tf.train.MonitoredSession, tf.train.SingularMonitoredSession):
        hook = Recorder()
        with make(hooks=[hook]) as session:
            assert session.run_step_fn(Model().step_fn) == (0, 1)
            assert session.run_step_fn(lambda step_context: "back") == "back"
        assert hook.calls.count("before_run") == 1


def test_step_fn_ends_the_training() -> None:
    step, train = counting()
    hook = Recorder()

    def step_fn(step_context: Any) -> None:
        if step_context.session.run(step) == 2:
            step_context.request_stop()
        step_context.run_with_hooks(train)

    with tf.train.MonitoredSession(hooks=[hook]) as session:
        while not session.should_stop():
            session.run_step_fn(step_fn)
    assert hook.calls[-1] == "end" and hook.calls.count("after_run") == 2


def test_step_fn_is_run_again_when_a_task_was_lost() -> None:
    step, train = counting()
    tries = []

    def step_fn(step_context: Any) -> Any:
        tries.append(step_context.session)
        if len(tries) == 1:
            step_context.run_with_hooks(train)
            raise aborted()
        return step_context.session.run(step)

    with tf.train.MonitoredSession() as session:
        assert session.run_step_fn(step_fn) == 0
    assert len(tries) == 2 and tries[0] is not tries[1]


# --- MonitoredTrainingSession.


def hooks_of(session: Any) -> list[Any]:
    return session._hooks


def test_the_chief_restores_the_latest_checkpoint(tmp_path: Path) -> None:
    step, train = counting()
    for first in (0, 2, 4):
        with tf.train.MonitoredTrainingSession(checkpoint_dir=str(tmp_path)) as session:
            assert session.run(step) == first
            session.run(train)
            session.run(train)
    assert saved(tmp_path) == 6
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-6")


def test_a_checkpoint_may_be_named(tmp_path: Path) -> None:
    step, train = counting()
    with tf.train.MonitoredTrainingSession(
        checkpoint_dir=str(tmp_path), save_checkpoint_steps=1, log_step_count_steps=0
    ) as session:
        for _ in range(3):
            session.run(train)
    creator = tf.train.ChiefSessionCreator(
        checkpoint_filename_with_path=str(tmp_path / "model.ckpt-0")
    )
    with tf.train.MonitoredSession(creator) as session:
        assert session.run(step) == 0
    both = tf.train.ChiefSessionCreator(
        checkpoint_dir=str(tmp_path), checkpoint_filename_with_path=str(tmp_path / "model.ckpt-0")
    )
    with pytest.raises(ValueError, match="Can not provide both checkpoint_dir and"):
        tf.train.MonitoredSession(both)


def test_which_hooks_a_chief_and_a_worker_have(tmp_path: Path) -> None:
    counting()
    mine, chiefs = Recorder(), Recorder()
    with tf.train.MonitoredTrainingSession(
        checkpoint_dir=str(tmp_path), hooks=[mine], chief_only_hooks=[chiefs]
    ) as session:
        kinds = [type(hook) for hook in hooks_of(session)]
        assert kinds == [
            Recorder, tf.train.StepCounterHook, tf.train.SummarySaverHook,
            tf.train.CheckpointSaverHook, Recorder,
        ]  # fmt: skip
        assert hooks_of(session)[0] is chiefs
        timers = [hook._timer for hook in hooks_of(session)[1:4]]
        assert [timer._every_steps for timer in timers] == [100, 100, None]
        assert timers[2]._every_secs == 600
    with tf.train.MonitoredTrainingSession(hooks=[mine]) as session:
        assert hooks_of(session) == [mine]
    creator = tf.train.WorkerSessionCreator
    seen: list[Any] = []

    def create(self: Any) -> Any:
        seen.append(self)
        return tf.train.ChiefSessionCreator(self._scaffold).create_session()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(creator, "create_session", create)
        with tf.train.MonitoredTrainingSession(
            is_chief=False, checkpoint_dir=str(tmp_path), hooks=[mine], chief_only_hooks=[chiefs],
            max_wait_secs=5,
        ) as session:  # fmt: skip
            assert hooks_of(session) == [mine] and seen[0].max_wait_secs == 5


@pytest.mark.parametrize(
    "options, steps, secs",
    [
        ({"save_checkpoint_secs": 5}, None, 5),
        ({"save_checkpoint_steps": 7}, 7, None),
        ({"save_checkpoint_steps": 7, "save_checkpoint_secs": None}, 7, None),
        ({"save_checkpoint_secs": None}, None, None),
        ({"save_checkpoint_secs": 0}, None, None),
        ({"save_checkpoint_steps": 0, "save_checkpoint_secs": 0}, None, None),
    ],
)
def test_how_often_checkpoints_are_saved(
    tmp_path: Path, options: dict[str, Any], steps: int | None, secs: int | None
) -> None:
    counting()
    with tf.train.MonitoredTrainingSession(
        checkpoint_dir=str(tmp_path), log_step_count_steps=0, save_summaries_steps=0, **options
    ) as session:
        found = [hook._timer for hook in hooks_of(session)]
    if steps is None and secs is None:
        assert found == [] and tf.train.latest_checkpoint(str(tmp_path)) is None
    else:
        assert [(timer._every_steps, timer._every_secs) for timer in found] == [(steps, secs)]


def test_a_recoverable_session_says_how_it_ended() -> None:
    _, train = counting()
    with tf.train.MonitoredSession() as session:
        assert isinstance(session._inner, _RecoverableSession)
        assert session.run(train) is None
        assert np.isscalar(session.run("global_step:0"))
