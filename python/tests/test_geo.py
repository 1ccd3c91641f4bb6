"""Copies of dense variables whose differences are sent every k steps: Model.fit(consistency=)."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sidereal as sr
from sidereal.keras import layers
from sidereal.launch import PROTOCOLS

BATCH = 4
RATE = 0.05


def points(rows: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(7)
    x = random.normal(size=(rows, 3)).astype(np.float32)
    return {"x": x, "y": (x @ np.float32([1, -2, 0.5]) + 0.25).astype(np.float32)}


def line(is_linear: bool = False) -> sr.Model:
    """y = x w + b, by the mean of squared differences, or of products."""
    model = sr.Model(seed=1)
    x, y = model.input("x", sr.float32, (3,)), model.input("y", sr.float32, ())
    found = sr.reshape(layers.Dense(1, kernel_initializer="zeros", name="line")(x), [-1])
    loss = sr.reduce_mean(-found * y if is_linear else sr.square(found - y))
    model.compile(found, sr.optimizers.SGD(RATE), loss=loss)
    return model


def trained_alone(
    w: np.ndarray, data: dict[str, np.ndarray], replica: int, replicas: int
) -> np.ndarray:
    """What one replica makes in a pass over its rows of the weights, the last of which is b."""
    x, y = (data[name][replica::replicas].astype(np.float64) for name in ("x", "y"))
    ones = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    for first in range(0, len(x), BATCH):
        batch, want = ones[first : first + BATCH], y[first : first + BATCH]
        w = w - RATE * 2 / len(batch) * batch.T @ (batch @ w - want)
    return w


def weights_of(model: sr.Model) -> np.ndarray:
    kernel, bias = (model.get_variable(f"line/{name}") for name in ("kernel", "bias"))
    return np.concatenate([kernel.ravel(), bias.ravel()])


@pytest.mark.parametrize("lanes", [(2, 1), (1, 2)], ids=["workers", "lanes"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_replicas_have_learned_is_added_up(protocol: str, lanes: tuple[int, int]) -> None:
    """Gradients that do not follow from weights: whatever a replica begins from, and whenever, the
    differences are the same, those of the last window and of a batch that is not full too."""
    workers, worker_lanes = lanes
    data = points(2 * (BATCH * 5 + 1))
    model = line(is_linear=True)
    with sr.LocalCluster(
        ps=2, workers=workers, worker_lanes=worker_lanes, in_process=True, protocol=protocol
    ) as cluster:
        fitted = model.fit(
            data, cluster=cluster, batch_size=BATCH, epochs=2, validation=points(8),
            shuffle=False, verbose=False, consistency="geo(4)",
        )  # fmt: skip
        found = weights_of(model)
    assert fitted.steps == fitted.updates == 2 * 6 * 2
    want = np.zeros(4)
    for replica in range(2):
        x, y = (data[name][replica::2].astype(np.float64) for name in ("x", "y"))
        terms = np.concatenate([x, np.ones((len(x), 1))], axis=1) * y[:, None]
        for first in range(0, len(x), BATCH):
            want += 2 * RATE * terms[first : first + BATCH].mean(axis=0)
    np.testing.assert_allclose(found, want, atol=2e-5)


@pytest.mark.parametrize("window", [1, 3])
def test_one_replica_is_as_without_copies(window: int) -> None:
    data = points(BATCH * 7)
    model = line()
    with sr.LocalCluster(ps=2, in_process=True) as cluster:
        model.fit(
            data, cluster=cluster, batch_size=BATCH, shuffle=False, verbose=False,
            consistency=f"geo({window})",
        )  # fmt: skip
        found = weights_of(model)
    np.testing.assert_allclose(found, trained_alone(np.zeros(4), data, 0, 1), atol=2e-5)


def ps_bytes(data: Any, consistency: str) -> int:
    """That a step sends and receives, of one worker, without those that a loop begins and ends
    with: the difference of long and short."""
    sent = []
    with sr.LocalCluster(ps=2, in_process=True) as cluster:
        for rows in (512, 16 * 512):
            model = sr.Model(seed=1)
            x, y = model.input("x", sr.float32, (64,)), model.input("y", sr.float32, ())
            found = layers.Dense(1)(layers.Dense(64, activation="relu")(x))
            found = sr.reshape(found, [-1])
            loss = sr.reduce_mean(sr.square(found - y))
            model.compile(found, sr.optimizers.Adam(RATE), loss=loss)
            some = {name: values[:rows] for name, values in data.items()}
            fitted = model.fit(
                some, cluster=cluster, batch_size=16, verbose=False, consistency=consistency
            )
            workers = [one for one in fitted.tasks if "worker" in one.task]
            sent.append(sum(one.bytes_in + one.bytes_out for one in workers))
    return sent[1] - sent[0]


def test_windows_of_k_steps_send_a_kth_of_the_bytes() -> None:
    random = np.random.default_rng(3)
    rows = 16 * 512
    data = {
        "x": random.normal(size=(rows, 64)).astype(np.float32),
        "y": random.normal(size=rows).astype(np.float32),
    }
    each = ps_bytes(data, "async")
    assert each > 0
    for window in (4, 16):
        assert ps_bytes(data, f"geo({window})") <= 1.2 / window * each


def test_training_goes_on_from_a_checkpoint_with_what_no_window_has_sent(tmp_path: Path) -> None:
    """Windows end with the loops between which checkpoints are saved."""
    data = points(BATCH * 10)
    found = []
    for folder in (None, str(tmp_path)):
        for steps in (10,) if folder is None else (5, 10):
            model = line()
            with sr.LocalCluster(ps=2, in_process=True) as cluster:
                saving = {} if folder is None else {
                    "checkpoint_dir": folder, "save_every": "3steps", "resume": "auto",
                }  # fmt: skip
                model.fit(
                    data, cluster=cluster, batch_size=BATCH, shuffle=False, verbose=False,
                    consistency="geo(4)", steps_max=steps, **saving,
                )  # fmt: skip
                weights = weights_of(model)
        found.append(weights)
    np.testing.assert_allclose(found[1], found[0], atol=2e-5)
    np.testing.assert_allclose(found[0], trained_alone(np.zeros(4), data, 0, 1), atol=2e-5)
