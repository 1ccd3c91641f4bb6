"""Model.fit() whose workers are killed goes on with the others: each row is trained, and no more
of them twice than fit() says."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from leftovers import tasks_of as tasks_at
from test_fit_recovery import Victims, tasks_of

import sidereal as sr
from conftest import planted, small_model
from sidereal import errors
from sidereal.keras import layers

Clusters = Callable[..., sr.LocalCluster]

ROWS = 1501
#: So many that a fit has not ended before its victims are there: a second for a fast machine.
EPOCHS = 60


def epochs_of(protocol: str) -> int:
    """As many, of a protocol that is slower."""
    return {"grpc": 15, "grpc++": 40}.get(protocol, EPOCHS)


def counting_model() -> sr.Model:
    """Each row adds 1 to a counter of its own, or 1 / n where n replicas make an update by a mean.
    A dense variable is beside the table, as `hybrid` wants it."""
    model = sr.Model(seed=1)
    row = model.input("row", sr.int64, (1,))
    one = model.input("one", sr.float32, (1,))
    counter = layers.Embedding(ROWS, 1, "zeros", name="counter")(row)
    dense = layers.Dense(1, name="dense")(one)
    model.compile(
        counter, sr.optimizers.SGD(1.0), loss=-(sr.reduce_sum(counter) + sr.reduce_sum(dense))
    )
    return model


def train(cluster: sr.Cluster, on_progress: Any, **options: Any) -> tuple[Any, Any]:
    """What fit() says, and what the counters are."""
    model = counting_model()
    data = {"row": np.arange(ROWS)[:, None], "one": np.zeros((ROWS, 1), np.float32)}
    chosen = {"epochs": EPOCHS, "batch_size": 7, "on_worker_loss": "continue", **options}
    result = model.fit(data, cluster=cluster, verbose=False, on_progress=on_progress, **chosen)
    # Rows that were trained twice are counted once.
    assert (result.rows, result.epochs) == (ROWS * chosen["epochs"], chosen["epochs"])
    return result, model.get_variable("counter/embeddings").ravel()


@pytest.mark.parametrize("protocol", ["grpc", "grpc++", "star_server", "star_server_lite"])
@pytest.mark.parametrize("names", [("worker 1", "worker 2"), ("worker 0",)])
def test_each_row_is_trained_and_few_of_them_twice(
    clusters: Clusters, protocol: str, names: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    victims = Victims(*names)
    cluster = clusters(ps=2, workers=3, worker_lanes=2, protocol=protocol)
    epochs = epochs_of(protocol)
    result, counts = train(cluster, victims, epochs=epochs)
    assert not victims.left
    assert result.workers_lost == len(names)
    assert counts.min() >= epochs
    assert 0 <= counts.sum() - ROWS * epochs <= result.rows_twice_max
    told = capfd.readouterr().err
    for name in names:
        task = name.replace("worker ", "/job:worker/replica:0/task:")
        # Two may be lost at once.
        assert re.search(rf"{task}\b.* (was|were) lost \(", told), told
    goes_on = "1 worker goes on" if len(names) == 2 else "2 workers go on"
    assert f"{goes_on} with what is left" in told
    cluster.check_alive()


@pytest.mark.parametrize("consistency", ["bounded(2)", "hybrid"])
def test_replicas_do_not_wait_for_one_that_is_lost(clusters: Clusters, consistency: str) -> None:
    victims = Victims("worker 1", "worker 0")
    result, counts = train(clusters(ps=2, workers=3), victims, consistency=consistency)
    assert result.workers_lost == 2
    assert counts.min() >= EPOCHS
    assert 0 <= counts.sum() - ROWS * EPOCHS <= result.rows_twice_max


@pytest.mark.parametrize("victim", ["worker 0", "worker 2"])
def test_those_in_step_are_fewer(clusters: Clusters, victim: str) -> None:
    """An epoch: a row has 1/3 from a step of three replicas, 1/2 after the loss, and 1 where the
    other one's data has ended."""
    result, counts = train(
        clusters(ps=2, workers=3), Victims(victim), consistency="sync", batch_size=1, epochs=1
    )
    assert result.workers_lost == 1
    assert counts.min() >= 1 / 3 - 1e-6
    once = np.isclose(counts[:, None], [1 / 3, 1 / 2, 1]).any(axis=1)
    assert np.sum(~once) <= result.rows_twice_max
    assert np.sum(np.isclose(counts, 1 / 2)) > 0


def test_a_quorum_is_of_those_that_are_left(clusters: Clusters) -> None:
    result, _ = train(
        clusters(ps=2, workers=3),
        Victims("worker 2", "worker 1"),
        consistency="sync(2 of 3)",
        epochs=EPOCHS // 2,
    )
    assert result.workers_lost == 2


def test_one_that_hangs_is_lost_too(clusters: Clusters) -> None:
    cluster = clusters(ps=1, workers=2)
    victims = Victims("worker 1", number=signal.SIGSTOP)
    try:
        result, counts = train(cluster, victims)
    finally:
        for pid in victims.pids:
            os.kill(pid, signal.SIGCONT)
    assert result.workers_lost == 1
    assert counts.min() >= EPOCHS
    assert counts.sum() - ROWS * EPOCHS <= result.rows_twice_max


def test_with_validation_and_checkpoints(clusters: Clusters, tmp_path: Path) -> None:
    """The first worker is that through which they are saved."""
    model = small_model()
    victims = Victims("worker 0")
    result = model.fit(
        planted(2000), cluster=clusters(ps=2, workers=2), epochs=20, batch_size=16, verbose=False,
        validation=planted(2000, seed=1), checkpoint_dir=tmp_path, save_every="70steps",
        on_worker_loss="continue", on_progress=victims, patience=19,
    )  # fmt: skip
    assert (result.workers_lost, result.rows, len(result.validation)) == (1, 40_000, 20)
    assert result.checkpoints.rows_again == 0
    assert result.checkpoints.latest.endswith(str(result.steps))
    assert model.evaluate(planted(2000, seed=1)).auc > 0.8


def test_a_worker_that_is_there_again_trains_again(
    clusters: Clusters, capfd: pytest.CaptureFixture[str]
) -> None:
    """In the middle of what would be one loop otherwise."""
    cluster = clusters(ps=1, workers=2, on_ps_loss="restore", restarts=20)
    told = ""
    # As often as it takes: it may be there again at once, or when all is trained.
    for _ in range(10):
        _, counts = train(cluster, Victims("worker 1"), epochs=200)
        assert counts.min() >= 200
        told += capfd.readouterr().err
        if "workers that were lost are there again: 2 train from now on" in told:
            break
    else:
        raise AssertionError(told)


def test_a_worker_and_a_ps_are_lost(clusters: Clusters, tmp_path: Path) -> None:
    """Variables come from a checkpoint then."""
    cluster = clusters(ps=2, workers=2, on_ps_loss="restore")
    victims = Victims("worker 1", "ps 1")
    result, counts = train(
        cluster, victims, checkpoint_dir=tmp_path, save_every="47steps", keep=2,
        on_ps_loss="restore",
    )  # fmt: skip
    assert not victims.left
    assert result.workers_lost >= 1 and result.checkpoints.recoveries == 1
    assert counts.min() >= EPOCHS
    assert counts.sum() - ROWS * EPOCHS <= result.rows_twice_max
    later = [task for task in result.tasks if task.task.startswith("/job:worker")]
    assert len(later) == 2 and min(task.steps for task in later) > 0
    assert sorted(tasks_of(os.getpid())) == ["ps 0", "ps 1", "worker 0", "worker 1"]


def test_the_last_worker_ends_the_fit(clusters: Clusters) -> None:
    with pytest.raises(errors.UnavailableError, match=r"task:[01].*was killed by signal 9"):
        train(clusters(ps=1, workers=2), Victims("worker 1", "worker 0"))


def test_a_fit_that_does_not_go_on_needs_all_workers(clusters: Clusters) -> None:
    cluster = clusters(ps=1, workers=2)
    model = small_model()
    options: dict[str, Any] = {"epochs": 30, "batch_size": 16, "verbose": False}
    model.fit(
        planted(2000), cluster=cluster, on_worker_loss="continue", on_progress=Victims("worker 1"),
        **options,
    )  # fmt: skip
    # What needs no worker in particular goes on with those that there are.
    assert model.evaluate(planted(200)).rows == 200
    assert len(model.predict(planted(10))) == 10
    with pytest.raises(errors.UnavailableError, match="task:1 was lost in a fit before"):
        model.fit(planted(2000), **options)
    assert model.fit(planted(2000), on_worker_loss="continue", **options).rows == 60_000


def test_words_are_checked() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="'fail' or 'continue'"):
        small_model().fit(planted(10), on_worker_loss="restart")


def test_copies_that_went_with_a_worker_are_no_way_on(clusters: Clusters) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"geo\(2\).*has not sent yet"):
        small_model().fit(
            planted(10), cluster=clusters(), consistency="geo(2)", on_worker_loss="continue"
        )


class OfStandbys(Victims):
    """Those whose standbys are in sync."""

    def __init__(self, cluster: sr.LocalCluster, *names: str) -> None:
        super().__init__(*names)
        self._cluster = cluster

    def __call__(self, progress: sr.Progress) -> None:
        if self.left and self._are_in_sync():
            super().__call__(progress)

    def _are_in_sync(self) -> bool:
        # Of what sessions share, and of the model's.
        names = {"sidereal_standbys": 2, "sidereal_standby_copies": 2}
        tasks = tasks_at(f"grpc://{self._cluster.ps[0]}", self._cluster.security.secret)
        return all(
            task.get("figures", {}).get(name) == count
            for task in tasks
            if "/job:ps" in task["task"]
            for name, count in names.items()
        )


# Epochs enough for standbys to be in sync well before the end.
@pytest.mark.parametrize(
    ("protocol", "consistency", "number", "epochs"),
    [
        ("grpc", "async", 1, 25),
        ("grpc", "sync", 0, 25),
        ("star_server", "async", 0, 75),
        ("star_server", "bounded(2)", 1, 75),
    ],
)
def test_a_ps_that_is_back_has_what_its_standby_had(
    clusters: Clusters, tmp_path: Path, protocol: str, consistency: str, number: int, epochs: int,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    cluster = clusters(ps=2, workers=2, protocol=protocol, replicas=2, on_ps_loss="restore")
    victims = OfStandbys(cluster, f"ps {number}")
    result, counts = train(
        cluster, victims, checkpoint_dir=tmp_path, save_every="1h", on_ps_loss="restore",
        on_worker_loss="fail", consistency=consistency, epochs=epochs,
    )  # fmt: skip
    assert not victims.left
    done = result.checkpoints
    assert (done.taken_from_standbys, done.recoveries, done.rows_again) == (1, 0, 0)
    if consistency != "sync":
        assert counts.min() >= epochs
        assert 0 <= counts.sum() - ROWS * epochs <= result.rows_twice_max
    told = capfd.readouterr().err
    assert f"/job:ps/replica:0/task:{number} was lost and has what it had from a standby" in told


def test_over_star_server_lite_a_checkpoint_is_the_way_back(
    clusters: Clusters, tmp_path: Path
) -> None:
    """Steps end there before their pushes are answered."""
    cluster = clusters(
        ps=2, workers=1, protocol="star_server_lite", replicas=2, on_ps_loss="restore"
    )
    result, counts = train(
        cluster, Victims("ps 1"), checkpoint_dir=tmp_path, save_every="47steps",
        on_ps_loss="restore", epochs=25,
    )  # fmt: skip
    assert result.checkpoints.recoveries == 1
    assert (counts.min(), counts.max()) == (25, 25)


@pytest.mark.parametrize("protocol", ["grpc", "star_server"])
def test_one_that_is_told_to_stop_is_gone_too(clusters: Clusters, protocol: str) -> None:
    """As a machine that is taken away is told."""
    victims = Victims("worker 1", "worker 0", number=signal.SIGTERM)
    epochs = epochs_of(protocol)
    cluster = clusters(ps=2, workers=3, protocol=protocol)
    result, counts = train(cluster, victims, epochs=epochs)
    assert result.workers_lost == 2
    assert counts.min() >= epochs
    assert counts.sum() - ROWS * epochs <= result.rows_twice_max
