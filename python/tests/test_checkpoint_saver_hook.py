"""CheckpointSaverHook: when it saves, that training goes on meanwhile, and what becomes of
failures."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from monitored import FailsOnce, counting, saved

import sidereal.v1 as tf
from sidereal import errors
from sidereal.v1 import basic_session_run_hooks as hooks_module
from sidereal.v1 import checkpoint_saver_hook as module

pytestmark = pytest.mark.usefixtures("fresh_graph")

#: Seconds a loaded machine may take for what usually takes much less than one.
PATIENCE_S = 30


class Listener(tf.train.CheckpointSaverListener):
    """Writes down what it is told, and on which thread."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.calls: list[tuple[str, int | None]] = []
        self.threads: set[threading.Thread] = set()
        self._stop_after = stop_after

    def _note(self, what: str, step: int | None = None) -> None:
        self.calls.append((what, step))
        self.threads.add(threading.current_thread())

    def begin(self) -> None:
        self._note("begin")

    def before_save(self, session: Any, global_step_value: int) -> None:
        assert isinstance(session, tf.Session)
        self._note("before_save", global_step_value)

    def after_save(self, session: Any, global_step_value: int) -> bool:
        self._note("after_save", global_step_value)
        return self._stop_after is not None and global_step_value >= self._stop_after

    def end(self, session: Any, global_step_value: int) -> None:
        self._note("end", global_step_value)

    def saved(self) -> list[int | None]:
        return [step for what, step in self.calls if what == "after_save"]


class Gate:
    """A Saver whose save() goes on when a test says so, or fails."""

    def __init__(self, saver: Any) -> None:
        self._saver = saver
        self.open = threading.Event()
        self.open.set()
        self.began: list[int] = []
        self._begins = threading.Condition()
        self.error: BaseException | None = None
        #: Errors by steps.
        self.failing: dict[int, BaseException] = {}

    def save(self, session: Any, path: str, global_step: int, **options: Any) -> Any:
        with self._begins:
            self.began.append(global_step)
            self._begins.notify_all()
        assert self.open.wait(PATIENCE_S)
        error = self.failing.get(global_step, self.error)
        if error is not None:
            raise error
        return self._saver.save(session, path, global_step, **options)

    def wait_for(self, step: int) -> None:
        """Until the checkpoint of a step was begun, which a thread does."""
        with self._begins:
            assert self._begins.wait_for(lambda: step in self.began, PATIENCE_S)


class Trained:
    """A session that counts, with a hook that saves."""

    def __init__(self, folder: Path, listener: Any = None, **options: Any) -> None:
        self.folder = folder
        self.step, self.train = counting()
        self.gate = Gate(tf.train.Saver())
        self.listener = listener or Listener()
        self.hook = tf.train.CheckpointSaverHook(
            str(folder), saver=self.gate, listeners=[self.listener],
            **options or {"save_steps": 2},
        )  # fmt: skip
        self.session: Any = None

    def begin(self, *more: Any) -> Any:
        self.session = tf.train.MonitoredSession(hooks=[self.hook, *more])
        return self.session

    def run(self, times: int = 1, wait: bool = True) -> None:
        """Runs, and lets each checkpoint come to its end."""
        for _ in range(times):
            self.session.run(self.train)
            if wait:
                self.hook.wait()


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    tf.summary.FileWriterCache.clear()


def steps_in(folder: Path) -> list[int]:
    return sorted(int(path.stem.rpartition("-")[2]) for path in folder.glob("*.index"))


# --- When.


def test_what_it_is_given(tmp_path: Path) -> None:
    counting()
    saver = tf.train.Saver()
    for wrong, text in (
        ({"save_secs": 1, "save_steps": 1}, "Can not provide both every_secs and every_steps"),
        ({}, "Either every_secs or every_steps"),
        ({"save_steps": 1, "saver": saver, "scaffold": tf.train.Scaffold()}, "provide both saver"),
    ):
        with pytest.raises(ValueError, match=text):
            tf.train.CheckpointSaverHook(str(tmp_path), **wrong)
    hook = tf.train.CheckpointSaverHook(str(tmp_path), save_steps=1)
    with pytest.raises(RuntimeError, match="No items in collection savers"):
        hook._get_saver()
    tf.add_to_collection(tf.GraphKeys.SAVERS, saver)
    assert hook._get_saver() is saver
    tf.add_to_collection(tf.GraphKeys.SAVERS, saver)
    with pytest.raises(RuntimeError, match="More than one item in collection savers"):
        tf.train.CheckpointSaverHook(str(tmp_path), save_steps=1)._get_saver()


def test_it_needs_a_global_step(tmp_path: Path) -> None:
    tf.Variable(1)
    hook = tf.train.CheckpointSaverHook(str(tmp_path), save_steps=1, saver=tf.train.Saver())
    with pytest.raises(RuntimeError, match="Global step should be created to use Checkpoint"):
        hook.begin()


def test_it_saves_at_the_beginning_on_time_and_at_the_end(tmp_path: Path) -> None:
    made = Trained(tmp_path / "new" / "folder")
    with made.begin():
        assert steps_in(made.folder) == [0] and saved(made.folder) == 0
        made.run()
        assert steps_in(made.folder) == [0]
        made.run()
        assert steps_in(made.folder) == [0, 2] and saved(made.folder) == 2
        made.run(3)
        assert steps_in(made.folder) == [0, 2, 4]
    assert steps_in(made.folder) == [0, 2, 4, 5] and saved(made.folder) == 5
    assert (made.folder / "graph.txt").read_text().startswith("sidereal-graph")
    assert (made.folder / "model.ckpt-5.meta").exists()


def test_at_the_end_only_if_there_were_steps(tmp_path: Path) -> None:
    made = Trained(tmp_path)
    with made.begin():
        made.run(4)
    assert made.gate.began == [0, 2, 4]


def test_it_saves_every_so_many_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock:
        now = 0.0

        def monotonic(self) -> float:
            return self.now

    clock = Clock()
    monkeypatch.setattr(hooks_module, "time", clock)
    made = Trained(tmp_path, save_secs=2)
    with made.begin():
        for _ in range(7):
            made.run()
            clock.now += 0.75
    assert made.gate.began == [0, 4, 7]


def test_without_a_graph_beside_it(tmp_path: Path) -> None:
    made = Trained(tmp_path, save_steps=1, save_graph_def=False, checkpoint_basename="mine")
    with made.begin():
        made.run()
    names = sorted(path.name for path in tmp_path.glob("*.index"))
    assert names == ["mine-0.index", "mine-1.index"]
    assert not list(tmp_path.glob("*.meta")) and not (tmp_path / "graph.txt").exists()


def test_the_saver_of_a_scaffold(tmp_path: Path) -> None:
    _step, train = counting()
    scaffold = tf.train.Scaffold()
    hook = tf.train.CheckpointSaverHook(str(tmp_path), save_steps=1, scaffold=scaffold)
    with tf.train.MonitoredSession(tf.train.ChiefSessionCreator(scaffold), [hook]) as session:
        session.run(train)
    assert saved(tmp_path) == 1


# --- Listeners.


def test_listeners_are_told(tmp_path: Path) -> None:
    made = Trained(tmp_path)
    with made.begin():
        made.run(3)
    assert made.listener.calls == [
        ("begin", None),
        *[(what, step) for step in (0, 2, 3) for what in ("before_save", "after_save")],
        ("end", 3),
    ]
    assert made.listener.threads == {threading.current_thread()}


def test_a_listener_ends_the_training(tmp_path: Path) -> None:
    made = Trained(tmp_path, Listener(stop_after=4))
    with made.begin() as session:
        while not session.should_stop():
            made.run()
    # At the run after the one that began the checkpoint of step 4.
    assert made.listener.saved() == [0, 2, 4, 5]


# --- Training goes on.


def test_training_goes_on_while_a_checkpoint_is_written(tmp_path: Path) -> None:
    made = Trained(tmp_path)
    with made.begin():
        made.gate.open.clear()
        made.run(9, wait=False)
        made.gate.wait_for(2)
        # There is one at a time; it is not there yet.
        assert made.gate.began == [0, 2] and made.listener.saved() == [0]
        made.gate.open.set()
        made.hook.wait()
        made.run(1, wait=False)
        # The next one is begun when it is.
        made.gate.wait_for(10)
        assert made.listener.saved() == [0, 2] and made.gate.began == [0, 2, 10]
    assert made.listener.saved() == [0, 2, 10] and steps_in(tmp_path) == [0, 2, 10]


def test_at_the_end_it_is_waited_for(tmp_path: Path) -> None:
    made = Trained(tmp_path)
    session = made.begin()
    made.gate.open.clear()
    made.run(2, wait=False)
    threading.Timer(0.3, made.gate.open.set).start()
    session.close()
    assert steps_in(tmp_path) == [0, 2] and made.listener.saved() == [0, 2]


# --- Failures.


def full() -> errors.ResourceExhaustedError:
    return errors.ResourceExhaustedError("/job:ps/task:1: no space is left")


def test_a_failure_is_raised_by_the_next_run(tmp_path: Path) -> None:
    made = Trained(tmp_path)
    with pytest.raises(errors.ResourceExhaustedError) as raised, made.begin():
        made.gate.error = full()
        made.run(2)
        made.run(1, wait=False)
    path = tmp_path / "model.ckpt-2"
    assert str(raised.value) == (
        f"checkpoint '{path}' could not be written: /job:ps/task:1: no space is left"
    )
    assert made.listener.saved() == [0] and ("end", 2) not in made.listener.calls


def test_or_at_the_end(tmp_path: Path) -> None:
    made = Trained(tmp_path)
    with pytest.raises(errors.ResourceExhaustedError, match="model.ckpt-2' could not be written"):
        with made.begin():
            made.gate.error = full()
            made.run(2)


def test_or_at_once_in_the_beginning(tmp_path: Path) -> None:
    made = Trained(tmp_path)
    made.gate.error = OSError("not mine")
    with pytest.raises(RuntimeError, match=r"model.ckpt-0' could not be written: OSError\('not"):
        made.begin()


def test_a_failure_is_raised_once(tmp_path: Path) -> None:
    made = Trained(tmp_path)
    with made.begin():
        made.gate.error = full()
        made.run(2)
        made.gate.error = None
        with pytest.raises(errors.ResourceExhaustedError):
            made.run(1, wait=False)
        made.run(2)
    assert made.listener.saved() == [0, 4]


def test_a_task_lost_while_it_saves_makes_a_new_session(tmp_path: Path) -> None:
    made = Trained(tmp_path)
    with made.begin():
        made.run(2)
        made.gate.error = errors.UnavailableError("/job:ps/task:1 is lost")
        made.run(2)
        made.gate.error = None
        made.run(1)
        # Sessions of this process begin anew, and this one has no checkpoint_dir.
        assert made.session.run(made.step) == 1
    assert made.gate.began == [0, 2, 4, 0, 1]


def test_what_is_written_when_a_session_is_lost_is_forgotten(tmp_path: Path) -> None:
    made = Trained(tmp_path)
    lost = FailsOnce(lambda: errors.AbortedError("lost"), 2)
    with made.begin(lost):
        made.gate.open.clear()
        made.run(2, wait=False)
        made.gate.failing = {2: errors.CancelledError("Session::Close was called")}
        threading.Timer(0.3, made.gate.open.set).start()
        made.run(1)
    assert made.gate.began == [0, 2, 0, 1] and made.listener.saved() == [0, 0, 1]


def test_a_checkpoint_that_takes_too_long_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SAY_EVERY_S", 0.05)
    made = Trained(tmp_path, save_steps=1)
    with pytest.raises(errors.DeadlineExceededError, match="model.ckpt-1' has not been written"):
        with made.begin():
            made.hook._timeout_s = 0.2  # The first one is really written.
            made.gate.open.clear()
            made.run(1, wait=False)
    made.gate.open.set()
