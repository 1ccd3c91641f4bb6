"""Clusters and planted data for the tests."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from strategies import Tasks

import sidereal as sr
import sidereal.v1 as tf
from sidereal import _native, _pushes
from sidereal.keras import layers

FIELDS, IDS = 4, 200
Data = dict[str, np.ndarray]
# Read once, by the first import of Keras, which may be TensorFlow's.
os.environ["KERAS_BACKEND"] = "torch"
COUNTS = pytest.StashKey[tuple[int, int, int]]()


@pytest.fixture(autouse=True, scope="session")
def interruptible() -> None:
    """A test run started in the background inherits a SIGINT that is ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def handlers_stay() -> Iterator[None]:
    """A test that leaves a handler of Ctrl-C behind fails, and not the ones after it."""
    before = signal.getsignal(signal.SIGINT)
    yield
    after = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, before)
    assert after is before, f"SIGINT is left to {after}"


def set_seeds(config: pytest.Config) -> None:
    """Of all that draws: the program's ops, NumPy for the order of rows in Keras' fit(), and Python
    for first weights of Keras itself."""
    seed = config.getoption("--random-seed", 0)  # There is none where tests is collected first.
    sr.random.set_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def pytest_collectstart(collector: pytest.Collector) -> None:
    """For what a module makes when it is imported."""
    set_seeds(collector.config)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """For fixtures that the tests of a module share, whichever of them comes first."""
    set_seeds(item.config)


@pytest.fixture(autouse=True)
def same_in_every_run(request: pytest.FixtureRequest) -> Iterator[None]:
    """First weights and other random values of a test do not depend on the run, or on the tests
    before it. Others: --random-seed N, to find tests that pass by luck."""
    set_seeds(request.config)
    yield
    sr.random.set_seed(None)


@pytest.fixture
def fresh_graph() -> Iterator[None]:
    """A default graph of v1 that no other test has built in."""
    tf.reset_default_graph()
    yield
    tf.reset_default_graph()


@pytest.fixture
def time_to_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers of a loaded machine say what they have that is not saved, however long it takes."""
    for limit in ("_REACH_S", "_ANSWER_S", "_BACK_S"):
        monkeypatch.setattr(_pushes, limit, 120.0)


def planted(rows: int, seed: int = 0) -> Data:
    """Each id has a score; the scores of a row decide how likely its label is 1."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, IDS, size=(rows, FIELDS))
    probability = 1 / (1 + np.exp(-2 * np.sin(ids).sum(axis=1)))
    return {"ids": ids, "label": (rng.random(rows) < probability).astype(np.float32)}


def small_model(
    seed: int = 7, optimizer: sr.optimizers.Optimizer = sr.optimizers.Adagrad(0.2)
) -> sr.Model:
    """A DeepFM over planted() data, from layers."""
    model = sr.Model(seed=seed)
    ids = model.input("ids", sr.int64, (FIELDS,))
    weights = layers.Embedding(IDS, 1, "zeros", name="weights")(ids)
    vectors = layers.Embedding(IDS, 8, name="vectors")(ids)
    hidden = layers.Dense(16, "relu", name="hidden")(layers.Flatten()(vectors))
    logit = (
        sr.reduce_sum(weights, axis=1)
        + layers.FM()(vectors)
        + layers.Dense(1, name="head")(hidden)
    )
    model.compile(logit, optimizer)
    return model


@pytest.fixture
def cluster() -> Iterator[sr.LocalCluster]:
    """One ps and one worker in this process: quick to start."""
    with sr.LocalCluster(in_process=True) as running:
        yield running


@pytest.fixture
def clusters() -> Iterator[Callable[..., sr.LocalCluster]]:
    """Starts clusters that are stopped after the test."""
    started: list[sr.LocalCluster] = []

    def start(**options: object) -> sr.LocalCluster:
        started.append(sr.LocalCluster(**options))
        return started[-1]

    yield start
    for running in started:
        running.stop()


@pytest.fixture
def tasks_of() -> Iterator[Callable[..., Tasks]]:
    """Starts parameter servers and workers in processes of their own, which end after the test."""
    started: list[Tasks] = []

    def start(*args: Any, **options: Any) -> Tasks:
        started.append(Tasks(*args, **options))
        return started[-1]

    yield start
    for tasks in started:
        tasks.processes.end()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--random-seed", type=int, default=0, help="of the program, in each test")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_configure(config: pytest.Config) -> None:
    # Nothing is captured yet. What a test process says when it crashes is captured, and lost.
    if sys.__stderr__ is not None:
        _native.report_crashes(os.dup(sys.__stderr__.fileno()))


def _conformance() -> tuple[int, int, int] | None:
    """(ops, cases, cases with gradients) of ops/test_ops.py, if this process has loaded it."""
    module = sys.modules.get("test_ops")
    if module is None:
        return None
    groups = module.CASES.values()
    with_gradient = sum(1 for group in groups for case in group if case.grad)
    return len(groups), sum(len(group) for group in groups), with_gradient


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Only the test processes load test_ops: what it has goes to the one that prints."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["conformance"] = _conformance()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """A test process has ended: keeps what pytest_sessionfinish() gave there."""
    counts = getattr(node, "workeroutput", {}).get("conformance")
    if counts is not None:
        node.config.stash[COUNTS] = counts


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Prints how much the conformance suite of ops (ops/test_ops.py) covers."""
    counts = _conformance() or config.stash.get(COUNTS, None)
    if counts is None:
        return
    ops, cases, with_gradient = counts
    reports = [
        report
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, [])
        if "test_ops.py" in report.nodeid
    ]
    terminalreporter.write_line(
        f"conformance: {ops} ops, {cases} cases ({with_gradient} with gradients), "
        f"{len(reports)} checks run"
    )
