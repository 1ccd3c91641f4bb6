"""The event log tells the story of a failure: real processes, of which one is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from session_servers import PATIENCE_S, PROGRAM, Processes, addresses, children_of

import sidereal as sr
import sidereal.v1 as tf
from sidereal import _events, _native

pytestmark = pytest.mark.usefixtures("fresh_graph", "time_to_answer")


def events(*options: Any) -> list[dict[str, Any]]:
    """What `sidereal events` tells."""
    done = subprocess.run(
        [PROGRAM, "events", "--json", "--timeout", str(PATIENCE_S), *map(str, options)],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def wait_for(what: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < end


@pytest.fixture
def own_file(tmp_path: Path) -> Iterator[None]:
    """Has what this program tells in the folder, too."""
    file = _native.write_events(_native.event_file(str(tmp_path), "client"))
    yield
    del file


@pytest.fixture
def processes() -> Iterator[Processes]:
    out = Processes()
    yield out
    out.end()


@pytest.mark.usefixtures("own_file")
def test_the_story_of_a_ps_that_was_killed_and_restored(
    processes: Processes, tmp_path: Path
) -> None:
    ports = addresses(3)
    jobs = {"ps": ports[:2], "worker": ports[2:]}

    def serve(job: str, task: int) -> subprocess.Popen[str]:
        log = _native.event_file(str(tmp_path), f"{job}-{task}")
        return processes.serve(jobs, job, task, "--event-log", log)

    serve("ps", 0)
    doomed = serve("ps", 1)
    serve("worker", 0)
    target = f"grpc://{ports[2]}"
    with tf.device("/job:ps/task:0"):
        step = tf.train.get_or_create_global_step()
    with tf.device("/job:ps/task:1"):
        variable = tf.Variable(np.zeros((4, 2), np.float32), name="v")
    with tf.device("/job:worker/task:0"):
        loss = tf.reduce_sum(variable)
        train = tf.train.GradientDescentOptimizer(1.0).minimize(loss, step)
    with tf.train.MonitoredTrainingSession(
        target, checkpoint_dir=str(tmp_path / "model"), save_checkpoint_steps=3,
        log_step_count_steps=0, save_summaries_steps=0, on_ps_loss="restore",
    ) as session:  # fmt: skip
        for _ in range(5):
            session.run(train)
            session._hooks[0].wait()
        doomed.send_signal(signal.SIGKILL)
        doomed.wait(PATIENCE_S)
        # Its master tells it, though nobody has asked for anything since.
        wait_for(lambda: any(one["event"] == "task_lost" for one in live(target)))
        serve("ps", 1)
        session.run(train)

    story = events("--file", tmp_path)
    lost_at = next(i for i, one in enumerate(story) if one["event"] == "task_lost")
    before, after = story[:lost_at], story[lost_at:]
    told = [one["event"] for one in before]
    assert told.count("task_up") == 3
    assert "session_made" in told and "checkpoint_written" in told

    ps, worker = "/job:ps/replica:0/task:1", "/job:worker/replica:0/task:0"
    wanted = [
        ("task_lost", worker), ("task_up", ps), ("task_found", worker), ("restore_begun", "client"),
        ("restore_done", "client"), ("pushes_lost", "client"),
    ]  # fmt: skip
    names = {name for name, _ in wanted}
    found = [(one["event"], one["task"]) for one in after if one["event"] in names]
    assert found == wanted, story
    fields = {one["event"]: one["fields"] for one in after}
    assert fields["task_lost"]["task"] == ps
    assert "closed the connection" in fields["task_lost"]["why"]
    assert fields["task_found"]["is_restarted"] is True
    assert fields["restore_done"]["prefix"] == str(tmp_path / "model" / "model.ckpt-3")
    assert fields["restore_done"]["rows"] == 4
    assert {fields[name]["task"] for name in names if name != "task_up"} == {ps}
    assert fields["pushes_lost"]["pushes"] >= 1
    up = [one["incarnation"] for one in story if (one["event"], one["task"]) == ("task_up", ps)]
    assert len(set(up)) == 2


def live(target: str) -> list[dict[str, Any]]:
    """What those tell that answer."""
    return events("--target", target)


def test_a_local_cluster_tells_which_signal_ended_a_task(tmp_path: Path) -> None:
    folder = tmp_path / "events"
    with sr.LocalCluster(on_ps_loss="restore", event_dir=folder):
        (pid,) = (pid for pid, command in children_of(os.getpid()).items() if "--job ps" in command)
        os.kill(pid, signal.SIGKILL)

        def is_told() -> bool:
            return any(one["event"] == "task_restarted" for one in events("--pid", os.getpid()))

        wait_for(is_told)
        story = events("--pid", os.getpid(), "--file", folder)
    told = [(one["event"], one["task"]) for one in story]
    ps = "/job:ps/replica:0/task:0"
    down = told.index(("task_down", "launcher"))
    assert told[:down].count(("task_up", ps)) == 1
    assert told[down:].index(("task_up", ps)) < told[down:].index(("task_restarted", "launcher"))
    assert story[down]["fields"]["task"] == ps
    assert story[down]["fields"]["signal"] == signal.SIGKILL
    assert story[down]["fields"]["pid"] == pid
    assert "killed by signal 9" in story[down]["fields"]["why"]
    # Also where the tasks are gone: each event once.
    files = events("--file", folder)
    assert [one for one in files if one in story] == story


def test_events_of_this_program_are_lines_whatever_they_say() -> None:
    hostile = '"}\n\x00\x1b[2J\ud800é' + "x" * 100_000
    _events.emit("checkpoint_failed", why=hostile, seconds=np.float32(0.5), prefix=None)
    (line,) = _native.recent_events(1)
    assert "\n" not in line and len(line) < 10_000
    fields = json.loads(line)["fields"]
    assert fields["why"].startswith('"}\n') and fields["seconds"] == 0.5
    assert "prefix" not in fields
    with pytest.raises(sr.errors.InvalidArgumentError, match="no event 'other'"):
        _events.emit("other")


def test_a_folder_that_cannot_be_written_stops_nobody(tmp_path: Path) -> None:
    gone = _native.write_events(str(tmp_path / "no" / "such"))
    _events.emit("checkpoint_begun", prefix="a")
    file = _native.write_events(str(tmp_path / "log"))
    _events.emit("checkpoint_begun", prefix="b")
    del gone, file
    (line,) = (tmp_path / "log").read_text().splitlines()
    assert json.loads(line)["fields"] == {"prefix": "b"}


def test_what_is_asked_for_must_be_there(tmp_path: Path) -> None:
    for options, said in [
        (["--file", tmp_path / "x"], "no event log"),
        (["--file", tmp_path, "--since", "5"], "is no time"),
        (["--target", f"grpc://{addresses(1)[0]}"], ""),
    ]:
        done = subprocess.run(
            [PROGRAM, "events", *map(str, options)], capture_output=True, text=True,
            timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        assert done.returncode != 0 and said in done.stderr
