"""Losses on a cluster equal those of TensorFlow in one process, step by step: the tutorial's model
and DeepFM, from the same weights, over every protocol."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow_losses
from session_servers import PATIENCE_S
from strategies import Servers, strategy_of

import sidereal as sr
from sidereal.distribute.coordinator import ClusterCoordinator
from sidereal.distribute.experimental.partitioners import MinSizePartitioner
from sidereal.launch import PROTOCOLS

HERE = Path(__file__).parent


@pytest.fixture(scope="module", params=PROTOCOLS)
def cluster(request: pytest.FixtureRequest) -> Iterator[dict[str, list[str]]]:
    """One ps and one worker."""
    servers = Servers(1, 1, request.param)
    yield servers.cluster
    servers.stop()


def losses_on(cluster: dict[str, list[str]], name: str, steps: int) -> Any:
    """The losses of a program whose steps run one after another. Larger tables are in shards."""
    strategy = strategy_of(cluster, MinSizePartitioner(512, max_shards=2))
    with strategy.scope():
        program = tensorflow_losses.PROGRAMS[name](sr, sr.keras)
    program.start()
    coordinator = ClusterCoordinator(strategy)

    @sr.function
    def step(iterator: Any) -> Any:
        losses = strategy.run(lambda each: program.step(sr, each), args=(iterator,))
        return strategy.reduce(sr.distribute.ReduceOp.SUM, losses, axis=None)

    iterator = iter(coordinator.create_per_worker_dataset(lambda: program.data))
    return [coordinator.schedule(step, (iterator,)).fetch(PATIENCE_S) for _ in range(steps)]


def same(ours: Any, theirs: Any) -> None:
    assert theirs[-1] < 0.5 * theirs[0]
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", tensorflow_losses.PROGRAMS)
def test_losses_are_those_that_tensorflow_had(cluster: dict[str, list[str]], name: str) -> None:
    recorded = json.loads((HERE / "tensorflow_losses.json").read_text())[name]
    assert len(recorded) == tensorflow_losses.STEPS
    same(losses_on(cluster, name, tensorflow_losses.STEPS), recorded)


@pytest.mark.skipif(not find_spec("tensorflow"), reason="TensorFlow is not installed")
def test_losses_are_those_that_tensorflow_has() -> None:
    """TensorFlow as it is installed runs the programs in a process of its own."""
    steps = 20
    done = subprocess.run(
        [sys.executable, str(HERE / "tensorflow_losses.py"), str(steps)],
        env={**os.environ, "KERAS_BACKEND": "tensorflow"}, check=False, text=True,
        timeout=PATIENCE_S, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    servers = Servers(1, 1)
    for name, theirs in json.loads(done.stdout).items():
        same(losses_on(servers.cluster, name, steps), theirs)
    servers.stop()
