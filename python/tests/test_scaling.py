"""Parts of a model go from one parameter server to another while fit() trains: each row counts
once, whatever the protocol, and commands of people say what was done."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from session_servers import PROGRAM
from test_fit_recovery import tasks_of
from test_fit_without_workers import ROWS, counting_model

import sidereal as sr

Clusters = Callable[..., sr.LocalCluster]

#: For a command that is given again when a fit has ended before it.
LONG_S = 120
#: So many that a fit has not ended before a command and a loss.
EPOCHS = 150


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`sidereal ARGUMENTS` of the cluster that this process has started."""
    return subprocess.run(
        [PROGRAM, *arguments, "--pid", str(os.getpid())],
        capture_output=True,
        text=True,
        timeout=LONG_S,
        check=False,
    )


class Commands(threading.Thread):
    """Gives commands, one after the other, each until it has been carried out."""

    def __init__(self, *commands: str) -> None:
        super().__init__()
        self.commands = commands
        self.said: list[str] = []

    def run(self) -> None:
        until = time.monotonic() + LONG_S
        for one in self.commands:
            ended = command(*one.split())
            while ended.returncode != 0 and time.monotonic() < until:
                ended = command(*one.split())
            self.said.append(ended.stdout + ended.stderr)


def train_through(model: sr.Model, cluster: sr.Cluster, commands: Commands) -> tuple[int, int]:
    """Fits until all commands have ended: epochs and moves."""
    data = {"row": np.arange(ROWS)[:, None], "one": np.zeros((ROWS, 1), np.float32)}
    options: dict[str, Any] = {"epochs": 20, "batch_size": 7, "verbose": False, "start_ps": 2}
    epochs = moves = 0
    model.fit(data, cluster=cluster, **{**options, "epochs": 1})
    commands.start()
    while commands.is_alive():
        result = model.fit(data, cluster=cluster, **options)
        assert result.rows == ROWS * 20
        epochs += 20
        moves += result.moves
    commands.join()
    return epochs + 1, moves


@pytest.mark.parametrize("protocol", ["grpc", "grpc++", "star_server", "star_server_lite"])
def test_each_row_counts_once_while_parts_move(clusters: Clusters, protocol: str) -> None:
    cluster = clusters(ps=3, workers=2, ps_lanes=2, protocol=protocol)
    model = counting_model()
    commands = Commands("scale --ps 3", "drain ps:1", "scale --ps 2")
    epochs, moves = train_through(model, cluster, commands)
    assert moves == 3, commands.said
    assert "from 2 to 3 parameter servers" in commands.said[0]
    counts = model.get_variable("counter/embeddings").ravel()
    assert counts.tolist() == [float(epochs)] * ROWS


def test_a_server_that_is_gone_is_named_and_training_goes_on(
    clusters: Clusters, capfd: pytest.CaptureFixture[str]
) -> None:
    cluster = clusters(ps=3, workers=1)
    os.kill(tasks_of(os.getpid())["ps 2"], signal.SIGKILL)
    model = counting_model()
    ended: list[subprocess.CompletedProcess[str]] = []

    def give() -> None:
        # Between two fits the job takes none.
        while not ended or "takes no commands" in ended[-1].stderr:
            ended.append(command("scale", "--ps", "3"))

    commands = Commands()
    commands.run = give  # type: ignore[method-assign]
    epochs, moves = train_through(model, cluster, commands)
    assert (ended[-1].returncode == 0, moves) == (False, 0)
    assert "/task:2" in ended[-1].stderr
    counts = model.get_variable("counter/embeddings").ravel()
    assert counts.tolist() == [float(epochs)] * ROWS
    assert "training goes on as before" in capfd.readouterr().err


def test_one_that_was_left_may_end(clusters: Clusters) -> None:
    cluster = clusters(ps=2, workers=1)
    model = counting_model()
    epochs, moves = train_through(model, cluster, Commands("drain ps:1"))
    os.kill(tasks_of(os.getpid())["ps 1"], signal.SIGKILL)
    data = {"row": np.arange(ROWS)[:, None], "one": np.zeros((ROWS, 1), np.float32)}
    model.fit(data, cluster=cluster, epochs=5, batch_size=7, verbose=False)
    counts = model.get_variable("counter/embeddings").ravel()
    assert (moves, counts.tolist()) == (1, [float(epochs + 5)] * ROWS)


def test_one_that_parts_went_to_is_lost_and_comes_back(clusters: Clusters, tmp_path: Path) -> None:
    cluster = clusters(ps=3, workers=1, on_ps_loss="restore")
    model = counting_model()
    commands = Commands("scale --ps 3")
    killed: list[int] = []

    def on_progress(progress: sr.Progress) -> None:
        if progress.steps > 0 and commands.ident is None:
            commands.start()
        if commands.said and not killed:
            killed.append(tasks_of(os.getpid())["ps 2"])
            os.kill(killed[0], signal.SIGKILL)

    data = {"row": np.arange(ROWS)[:, None], "one": np.zeros((ROWS, 1), np.float32)}
    result = model.fit(
        data, cluster=cluster, epochs=EPOCHS, batch_size=7, verbose=False, start_ps=2,
        checkpoint_dir=tmp_path, save_every="500steps", on_ps_loss="restore",
        on_progress=on_progress,
    )  # fmt: skip
    commands.join()
    assert (result.moves, result.checkpoints.recoveries, len(killed)) == (1, 1, 1), commands.said
    counts = model.get_variable("counter/embeddings").ravel()
    assert counts.tolist() == [float(EPOCHS)] * ROWS
