"""`sidereal train` killed at any moment, and started again by the same command."""

import json
import os
import pathlib
import random
import signal
import subprocess
import time

import pytest
from clicks import SMALL, write_clicks
from processes import PATIENCE_S, Launcher, error_of, tasks_of, wait_for_end

from sidereal.launch import PROTOCOLS

ROWS = 4000
#: So that a training is killed three times before its end; gRPC is several times slower.
EPOCHS = {"star_server": 96, "star_server_lite": 96, "grpc": 12, "grpc++": 24}
#: Of a whole one, on a loaded machine.
TRAINING_S = 5 * PATIENCE_S


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """Rows to train on, and to test on."""
    folder = tmp_path_factory.mktemp("clicks")
    write_clicks(folder / "train.csv", ROWS, 1)
    write_clicks(folder / "test.csv", 2000, 2)
    return folder / "train.csv", folder / "test.csv"


def command(logs, *words):
    return ["train", "--data", logs[0], "--test", logs[1], *SMALL, "--batch-size", 16,
            "--optimizer", "adagrad", "--epochs", 24, "--shuffle-rows", 500, "--seed", 3,
            *words]


@pytest.fixture
def train(program):
    """train(argument...) -> a Launcher; all its processes end with the test."""
    launchers = []

    def make(*words):
        launchers.append(Launcher([program, *words]))
        return launchers[-1]

    yield make
    for launcher in launchers:
        launcher.clean_up()


def kill_wholly(launcher, tasks: int) -> None:
    """All processes of a training at once, as when a machine stops."""
    launcher.tasks = tasks_of(launcher.pid)
    for pid in [launcher.pid, *launcher.tasks.values()]:
        os.kill(pid, signal.SIGKILL)
    launcher.process.wait(PATIENCE_S)
    wait_for_end(list(launcher.tasks.values()), PATIENCE_S)
    assert len(launcher.tasks) == tasks


def ends_within(launcher, seconds: float) -> bool:
    try:
        launcher.process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def wait_for_more(directory: pathlib.Path, launcher, before: str) -> str:
    """Until another checkpoint is listed; what is."""
    deadline = time.monotonic() + PATIENCE_S
    listed = directory / "checkpoint"
    while time.monotonic() < deadline and not ends_within(launcher, 0.002):
        text = listed.read_text() if listed.exists() else ""
        if text != before:
            return text
    raise AssertionError(f"no new checkpoint: {launcher.wait(PATIENCE_S)}")


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("tasks", [1, 2])
def test_killed_trainings_end_as_one_that_was_not(train, run, logs, tmp_path, protocol, tasks):
    epochs = EPOCHS[protocol]
    cluster = ["--protocol", protocol, "--ps", tasks, "--workers", tasks, "--epochs", epochs]
    expected = tmp_path / "expected.json"
    undisturbed = run(*command(logs, *cluster, "--json", expected, "-q"), timeout=TRAINING_S)
    assert undisturbed.returncode == 0, undisturbed.stderr
    directory = tmp_path / "run"
    again = command(logs, *cluster, "--checkpoint-dir", directory, "--save-every", "301steps",
                    "--keep", 2, "--json", tmp_path / "result.json")
    draw = random.Random(f"{protocol} {tasks}")
    listed = ""
    for _ in range(3):
        launcher = train(*again)
        listed = wait_for_more(directory, launcher, listed)
        # Anywhere between this checkpoint and the next one or two.
        assert not ends_within(launcher, draw.uniform(0, 0.2))
        kill_wholly(launcher, 2 * tasks)
    last = run(*again, timeout=TRAINING_S)
    assert last.returncode == 0, last.stderr
    assert "rows were trained before" not in last.stderr
    assert f"went on from {directory}/model.ckpt-" in last.stdout
    assert " 0 rows lost" in last.stdout
    result, plain = (json.loads(p.read_text()) for p in (tmp_path / "result.json", expected))
    report = result["checkpoints"]
    assert report["rows_before"] > 0 and report["failed"] == 0
    assert report["rows_before"] + result["rows"] == ROWS * epochs == plain["rows"]
    assert report["steps_before"] + result["steps"] == plain["steps"]
    if tasks == 1 and protocol != "star_server_lite":
        assert result["test_auc"] == plain["test_auc"]
        assert result["test_logloss"] == plain["test_logloss"]
    assert result["test_auc"] == pytest.approx(plain["test_auc"], abs=0.001)
    # What was left by kills went too: two checkpoints, each of an index and its data files.
    files = {path.name for path in directory.iterdir()}
    indices = {name for name in files if name.endswith(".index")}
    assert len(indices) == 2
    assert f"model.ckpt-{plain['steps']}.index" in indices
    data = [name for name in files if ".data-" in name]
    assert len(data) == 2 * (tasks + 1), files


def test_a_training_that_has_ended_has_nothing_left_to_do(run, logs, tmp_path):
    again = command(logs, "--checkpoint-dir", tmp_path / "run", "--epochs", 1)
    first = run(*again)
    assert first.returncode == 0, first.stderr
    assert "saved 1 checkpoint in" in first.stdout
    second = run(*again)
    assert second.returncode == 0, second.stderr
    assert f"{ROWS} rows in 250 steps were trained before, 0 rows lost" in second.stdout
    test = [line for line in first.stdout.splitlines() if line.startswith("test: auc")]
    assert test and test[0] in second.stdout
    more = run(*again, "--epochs", 2)
    assert f"trained on {ROWS} rows" in more.stdout
    anew = run(*again, "--resume", "never")
    assert "went on" not in anew.stdout and f"trained on {ROWS} rows" in anew.stdout


def test_one_checkpoint_in_n_is_whole(run, logs, tmp_path):
    # Of few parts: of each small one a change is as large as the whole.
    again = command(logs, "--checkpoint-dir", tmp_path, "--save-every", "100steps", "--keep", 1,
                    "--full-every", 4, "--parts-per-lane", 1)
    # What the newest one stands on stays with it, and goes with it when another one is whole.
    for epochs, steps, whole in ((1, (100, 200, 250), 100), (2, (350, 450, 500), 350)):
        done = run(*again, "--epochs", epochs)
        assert done.returncode == 0, done.stderr
        indices = {path.name: path for path in tmp_path.glob("*.index")}
        assert set(indices) == {f"model.ckpt-{step}.index" for step in steps}
        sizes = {
            step: sum(path.stat().st_size for path in tmp_path.glob(f"model.ckpt-{step}.data-*"))
            for step in steps
        }
        assert max(sizes, key=lambda step: sizes[step]) == whole
    assert "went on from" in done.stdout and " 0 rows lost" in done.stdout


def test_a_second_writer_is_refused_with_the_process_that_writes(train, run, logs, tmp_path):
    first = train(*command(logs, "--checkpoint-dir", tmp_path, "--epochs", 1_000_000))
    first.wait_for_progress(2)
    error = error_of(run(*command(logs, "--checkpoint-dir", tmp_path)))
    assert f"held by process {first.pid} on " in error
    assert "another directory" in error


def test_a_save_that_fails_names_ps_and_path_and_training_goes_on(train, logs, tmp_path):
    directory, away = tmp_path / "run", tmp_path / "away"
    launcher = train(*command(logs, "--checkpoint-dir", directory, "--save-every", "50steps",
                              "--epochs", 1_000_000))
    wait_for_more(directory, launcher, "")
    # What was a directory is none any more.
    directory.rename(away)
    directory.write_text("in the way")
    launcher.wait_for_text(b"warning: no checkpoint was saved at step ")
    launcher.wait_for_text(b"/job:ps/")
    launcher.wait_for_text(str(directory).encode())
    directory.unlink()
    away.rename(directory)
    wait_for_more(directory, launcher, (directory / "checkpoint").read_text())
    assert launcher.process.poll() is None


def test_arguments_that_cannot_be_meant_are_refused(run, logs, tmp_path):
    often = error_of(run(*command(logs, "--checkpoint-dir", tmp_path, "--save-every", "often")))
    assert "--save-every" in often and "1000steps" in often
    assert "--full-every" in error_of(run(*command(logs, "--full-every", 0)), 2)
    assert "--checkpoint-dir" in error_of(run(*command(logs, "--resume", tmp_path / "m-1")))
    missing = error_of(
        run(*command(logs, "--checkpoint-dir", tmp_path, "--resume", tmp_path / "m-1"))
    )
    assert missing.startswith("NOT_FOUND") and str(tmp_path / "m-1") in missing
