"""Model.fit() whose parameter servers and workers are killed goes on by itself: each row counts
once."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from session_servers import PROGRAM, Processes, addresses, children_of, is_running

import sidereal as sr
from conftest import planted, small_model
from sidereal import errors
from sidereal.keras import layers

Clusters = Callable[..., sr.LocalCluster]

ROWS = 1501
EPOCHS = 10
PATIENCE_S = 120
PROTOCOLS = ["grpc", "star_server"]
TASK = re.compile(r"--job (\S+) --task (\d+)")


def tasks_of(pid: int) -> dict[str, int]:
    """Process ids of the tasks that a process has started, by "ps 0"."""
    found = {pid: TASK.search(command) for pid, command in children_of(pid).items()}
    return {f"{task[1]} {task[2]}": pid for pid, task in found.items() if task is not None}


class Victims:
    """Signals one task after the other while a fit goes on: each some steps after the one before,
    as soon as it is there (again)."""

    def __init__(self, *names: str, number: int = signal.SIGKILL) -> None:
        self.left = list(names)
        self.pids: list[int] = []
        self._number = number
        self._next = 150

    def __call__(self, progress: sr.Progress) -> None:
        if not self.left or progress.steps < self._next:
            return
        pid = tasks_of(os.getpid()).get(self.left[0])
        if pid is None or pid in self.pids:
            return
        os.kill(pid, self._number)
        self.pids.append(pid)
        self.left.pop(0)
        self._next = progress.steps + 400


def counting_model() -> sr.Model:
    """Each row adds 1 to a counter of its own."""
    model = sr.Model(seed=1)
    row = model.input("row", sr.int64, (1,))
    counter = layers.Embedding(ROWS, 1, "zeros", name="counter")(row)
    model.compile(counter, sr.optimizers.SGD(1.0), loss=-sr.reduce_sum(counter))
    return model


def count(cluster: sr.Cluster, folder: Path, on_progress: Any, **options: Any) -> Any:
    """Trains the counting model; what fit() says, once the counters are right."""
    model = counting_model()
    result = model.fit(
        {"row": np.arange(ROWS)[:, None]}, cluster=cluster, epochs=EPOCHS, batch_size=7,
        checkpoint_dir=folder, save_every="47steps", keep=2, verbose=False,
        on_ps_loss="restore", on_progress=on_progress, **options,
    )  # fmt: skip
    counts = model.get_variable("counter/embeddings")
    assert (counts.min(), counts.max()) == (EPOCHS, EPOCHS)
    assert (result.rows, result.epochs) == (ROWS * EPOCHS, EPOCHS)
    assert result.checkpoints.rows_lost == 0
    return result


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "names", [("ps 1", "ps 1"), ("worker 1", "worker 0"), ("ps 0", "worker 1")]
)
def test_each_row_counts_once_whoever_is_killed(
    clusters: Clusters, tmp_path: Path, protocol: str, names: tuple[str, ...]
) -> None:
    cluster = clusters(ps=2, workers=2, ps_lanes=2, protocol=protocol, on_ps_loss="restore")
    victims = Victims(*names)
    result = count(cluster, tmp_path, victims)
    assert not victims.left
    assert result.checkpoints.recoveries == 2
    assert result.checkpoints.rows_again > 0
    assert result.checkpoints.resumed_from == ""
    assert not any(map(is_running, victims.pids))
    cluster.check_alive()


def test_one_that_is_told_to_stop_is_lost_too(clusters: Clusters, tmp_path: Path) -> None:
    cluster = clusters(ps=2, workers=2, on_ps_loss="restore")
    victims = Victims("ps 1", "worker 0", number=signal.SIGTERM)
    result = count(cluster, tmp_path, victims)
    assert not victims.left and result.checkpoints.recoveries == 2


def test_a_ps_that_hangs_is_killed_and_fit_goes_on(clusters: Clusters, tmp_path: Path) -> None:
    cluster = clusters(ps=2, workers=2, on_ps_loss="restore", silence_s=3.0)
    victims = Victims("ps 1", number=signal.SIGSTOP)
    begin = time.monotonic()
    result = count(cluster, tmp_path, victims)
    assert time.monotonic() - begin < PATIENCE_S
    assert result.checkpoints.recoveries >= 1
    assert not is_running(victims.pids[0])
    assert tasks_of(os.getpid())["ps 1"] != victims.pids[0]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_model_is_the_one_that_nothing_has_disturbed(
    clusters: Clusters, tmp_path: Path, protocol: str, capfd: pytest.CaptureFixture[str]
) -> None:
    data, valid = planted(2000), planted(2000, seed=1)
    options: dict[str, Any] = {
        "epochs": 10, "batch_size": 16, "validation": valid, "verbose": False,
        "record_losses": True,
    }  # fmt: skip
    expected = small_model()
    undisturbed = expected.fit(data, cluster=clusters(ps=2, protocol=protocol), **options)
    model = small_model()
    victims = Victims("ps 1", "worker 0")
    result = model.fit(
        data, cluster=clusters(ps=2, protocol=protocol, on_ps_loss="restore"), **options,
        checkpoint_dir=tmp_path, save_every="70steps", on_ps_loss="restore", on_progress=victims,
    )  # fmt: skip
    assert result.checkpoints.recoveries == 2
    for variable in model.variables():
        np.testing.assert_array_equal(
            model.get_variable(variable.name), expected.get_variable(variable.name)
        )
    assert [one.auc for one in result.validation] == [one.auc for one in undisturbed.validation]
    np.testing.assert_array_equal(result.losses, undisturbed.losses)
    assert (result.steps, result.updates) == (undisturbed.steps, undisturbed.updates)
    told = capfd.readouterr().err
    for task in ("/job:ps/replica:0/task:1", "/job:worker/replica:0/task:0"):
        assert f"{task} was lost and started again: all variables are as in {tmp_path}/" in told
    assert told.count("are trained again, 0 rows are lost") == 2


@pytest.mark.parametrize("consistency", ["sync", "bounded(2)", "geo(4)"])
def test_replicas_of_other_consistency_go_on_too(
    clusters: Clusters, tmp_path: Path, consistency: str
) -> None:
    cluster = clusters(ps=2, workers=2, on_ps_loss="restore")
    victims = Victims("worker 1", "ps 0")
    model = small_model()
    result = model.fit(
        planted(2000), cluster=cluster, epochs=15, batch_size=16, verbose=False,
        consistency=consistency, checkpoint_dir=tmp_path, save_every="60steps",
        on_ps_loss="restore", on_progress=victims,
    )  # fmt: skip
    assert not victims.left and result.checkpoints.recoveries == 2
    assert result.rows == 30_000
    assert result.updates == result.steps // (2 if consistency == "sync" else 1)
    assert model.evaluate(planted(2000, seed=1)).auc > 0.8


def test_what_a_fit_before_has_taught_is_not_lost(clusters: Clusters, tmp_path: Path) -> None:
    """The second fit begins with a checkpoint, as the first one has none."""
    cluster = clusters(ps=2, on_ps_loss="restore")
    model = counting_model()
    rows = {"row": np.arange(ROWS)[:, None]}
    model.fit(rows, cluster=cluster, batch_size=7, verbose=False)
    victims = Victims("ps 0")
    result = model.fit(
        rows, cluster=cluster, batch_size=7, epochs=6, verbose=False, checkpoint_dir=tmp_path,
        save_every="1h", on_ps_loss="restore", on_progress=victims,
    )  # fmt: skip
    assert (result.checkpoints.recoveries, result.rows) == (1, 6 * ROWS)
    counts = model.get_variable("counter/embeddings")
    assert (counts.min(), counts.max()) == (7, 7)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_servers_that_somebody_else_starts_again(tmp_path: Path, protocol: str) -> None:
    processes = Processes()
    spec = {"ps": addresses(2), "worker": addresses(1)}
    try:
        running = {
            (job, task): processes.serve(spec, job, task, "--protocol", protocol)
            for job, all_of_it in spec.items()
            for task in range(len(all_of_it))
        }
        left = [("ps", 1), ("worker", 0)]
        steps = [150]

        def replace(progress: sr.Progress) -> None:
            if left and progress.steps > steps[0]:
                victim = left.pop()
                running[victim].kill()
                running[victim].wait()
                running[victim] = processes.serve(spec, *victim, "--protocol", protocol)
                steps[0] = progress.steps + 400

        result = count(sr.RemoteCluster(spec), tmp_path, replace)
        assert not left and result.checkpoints.recoveries == 2

        def kill(progress: sr.Progress) -> None:
            running["ps", 1].kill()

        # Who does not come back is waited for, for so long.
        with pytest.raises(errors.DeadlineExceededError, match="within 2 s: .*/job:ps/.*task:1"):
            count(sr.RemoteCluster(spec), tmp_path / "other", kill, restart_timeout_s=2.0)
    finally:
        processes.end()


@pytest.mark.parametrize("consistency", ["async", "sync"])
def test_workers_with_different_lanes_read_each_row_once(consistency: str) -> None:
    processes = Processes()
    spec = {"ps": addresses(1), "worker": addresses(2)}
    try:
        processes.serve(spec, "ps", 0, "--protocol", "star_server")
        for task, lanes in enumerate((1, 3)):
            processes.serve(spec, "worker", task, "--protocol", "star_server", "--lanes", lanes)
        cluster, model = sr.RemoteCluster(spec), counting_model()
        data = {"row": np.arange(ROWS)[:, None]}
        result = model.fit(data, cluster=cluster, epochs=3, batch_size=7, verbose=False,
                           consistency=consistency)  # fmt: skip
        counts = model.get_variable("counter/embeddings")
        if consistency == "async":
            assert (counts.min(), counts.max()) == (3, 3)
        assert (result.rows, result.epochs) == (3 * ROWS, 3)
        assert counts.min() > 0
        assert model.evaluate(data, cluster=cluster).rows == ROWS
        found = model.predict(data, cluster=cluster)
        np.testing.assert_array_equal(np.asarray(found).reshape(-1), counts.reshape(-1))
    finally:
        processes.end()


def test_a_task_that_is_lost_too_often_ends_the_fit(clusters: Clusters, tmp_path: Path) -> None:
    cluster = clusters(ps=2, on_ps_loss="restore", restarts=1)
    victims = Victims("ps 1", "ps 1")
    with pytest.raises(errors.UnavailableError, match="/job:ps/task:1 .*signal 9"):
        count(cluster, tmp_path, victims)
    assert not victims.left
    # What it has learned is there.
    with sr.LocalCluster(ps=1) as other:
        model = counting_model()
        last = model.fit(
            {"row": np.arange(ROWS)[:, None]}, cluster=other, epochs=EPOCHS, batch_size=7,
            checkpoint_dir=tmp_path, verbose=False,
        )  # fmt: skip
        assert last.rows + last.checkpoints.rows_before == ROWS * EPOCHS
        assert set(model.get_variable("counter/embeddings").ravel()) == {float(EPOCHS)}


def test_what_cannot_be_meant_is_refused(clusters: Clusters, tmp_path: Path) -> None:
    data = planted(100)
    model = small_model()
    local = clusters(in_process=True)
    with pytest.raises(errors.InvalidArgumentError, match="on_ps_loss is 'again'"):
        model.fit(data, cluster=local, on_ps_loss="again")
    with pytest.raises(errors.InvalidArgumentError, match="no directory of them"):
        model.fit(data, cluster=local, on_ps_loss="restore", verbose=False)
    with pytest.raises(errors.InvalidArgumentError, match="restart_timeout_s is 0"):
        model.fit(data, cluster=local, checkpoint_dir=tmp_path, on_ps_loss="restore",
                  restart_timeout_s=0.0, verbose=False)  # fmt: skip
    with pytest.raises(errors.InvalidArgumentError, match="silence_s is -1"):
        clusters(on_ps_loss="restore", silence_s=-1.0)
    with pytest.raises(errors.FailedPreconditionError, match="starts no task again"):
        small_model().fit(
            data, cluster=clusters(), checkpoint_dir=tmp_path, on_ps_loss="restore", verbose=False
        )


def train(folder: Path, *more: str, victims: tuple[str, ...] = ()) -> Any:
    """The figures of a `sidereal train` whose tasks are killed."""
    command = [
        str(PROGRAM), "demo", "--rows", "40000", "--eval-rows", "4000", "--ps", "2", "--workers",
        "1", "--batch-size", "32", "--embedding-dim", "4", "--hidden", "8", "--json",
        str(folder / "result.json"), "--quiet", *more,
    ]  # fmt: skip
    checkpoints = folder / "run"
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as run:
        deadline = time.monotonic() + PATIENCE_S
        killed: list[int] = []
        seen = 0
        for name in victims:
            while True:
                assert run.poll() is None and time.monotonic() < deadline, run.communicate()
                saved = [int(path.stem.split("-")[1]) for path in checkpoints.glob("*.index")]
                pid = tasks_of(run.pid).get(name, 0)
                if max(saved, default=0) > seen and pid and pid not in killed:
                    break
                select.select([run.stdout], [], [], 0.02)
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
            seen = max(saved) + 60
        output, _ = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 0, output
    return json.loads((folder / "result.json").read_text()) | {"output": output}


def test_sidereal_train_goes_on_in_place(tmp_path: Path) -> None:
    undisturbed = train(tmp_path)
    folder = str(tmp_path / "run")
    result = train(
        tmp_path, "--checkpoint-dir", folder, "--save-every", "40steps", "--on-ps-loss",
        "restore", victims=("ps 1", "worker 0"),
    )  # fmt: skip
    report = result["checkpoints"]
    assert report["recoveries"] == 2 and report["rows_lost"] == 0 and report["rows_again"] >= 0
    assert (result["rows"], result["steps"]) == (40_000, undisturbed["steps"])
    assert abs(result["test_auc"] - undisturbed["test_auc"]) < 0.001
    assert "went on after 2 losses of tasks: " in result["output"]
    assert "/job:ps/replica:0/task:1 was lost and started again" in result["output"]


def test_options_of_the_command_are_checked() -> None:
    done = subprocess.run(
        [str(PROGRAM), "demo", "--on-ps-loss", "restore"], capture_output=True, text=True
    )
    assert done.returncode != 0 and "needs --checkpoint-dir" in done.stderr
