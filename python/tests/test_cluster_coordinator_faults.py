"""Tasks of a coordinator's cluster that are killed, and come back, over every protocol: each row of
the table of faults."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from strategies import Tasks

import sidereal as sr
from sidereal import errors
from sidereal.distribute.coordinator import (
    ClusterCoordinator,
    PSUnavailableError,
    get_current_worker_index,
)
from sidereal.launch import PROTOCOLS

PATIENCE_S = 90.0
#: Of a process that does not answer for so long all sessions give up.
STOPPED_S = 20.0


@pytest.fixture(params=PROTOCOLS)
def tasks(request: pytest.FixtureRequest, tasks_of: Callable[..., Tasks]) -> Callable[[int], Tasks]:
    return lambda workers: tasks_of(1, workers, request.param)


def counter(coordinator: ClusterCoordinator) -> tuple[Any, Any]:
    """A variable, and a function that adds one to it and takes a while."""
    with coordinator.strategy.scope():
        count = sr.Variable(0.0)

    @sr.function
    def step() -> Any:
        x = sr.ones([60, 60])
        for _ in range(20):
            x = sr.matmul(x, x) / 60.0
        count.assign_add(x[0, 0])
        return get_current_worker_index()

    return count, step


def test_a_worker_killed_in_a_closure_is_replaced_by_others(tasks: Any) -> None:
    cluster = tasks(2)
    coordinator = cluster.coordinator()
    count, step = counter(coordinator)
    cluster.found_by(coordinator)
    values = [coordinator.schedule(step) for _ in range(300)]
    values[20].get(PATIENCE_S)
    cluster.kill("worker", 0)
    coordinator.join(PATIENCE_S)
    found = coordinator.fetch(values)
    assert 1 in found
    assert count.numpy() >= 300


@pytest.mark.parametrize("effectively_once", [False, True])
def test_what_is_tried_again_changes_variables_once_where_it_is_asked_for(
    tasks: Any, effectively_once: bool
) -> None:
    cluster = tasks(2)
    coordinator = cluster.coordinator(closures_per_worker=4, effectively_once=effectively_once)
    with coordinator.strategy.scope():
        first, in_loop, last = (sr.Variable(0.0) for _ in range(3))
        table = sr.Variable(sr.zeros([4, 2]))
    optimizer = sr.optimizers.SGD(1.0)

    @sr.function
    def step() -> Any:
        seen = first.assign_add(1.0)
        for _ in sr.range(3):
            in_loop.assign_add(1.0)
        with sr.GradientTape() as tape:
            loss = sr.reduce_sum(sr.nn.embedding_lookup(table, sr.constant([1, 1, 3])))
        optimizer.apply_gradients([(tape.gradient(loss, table), table)])
        # What follows takes a while, in which workers are killed.
        x = sr.ones([60, 60]) + 0.0 * seen
        for _ in range(20):
            x = sr.matmul(x, x) / 60.0
        last.assign_add(x[0, 0])
        return seen

    count = 300
    cluster.found_by(coordinator)
    values = [coordinator.schedule(step) for _ in range(count)]
    for kill, worker in ((20, 0), (120, 1)):
        values[kill].get(PATIENCE_S)
        cluster.kill("worker", worker)
        cluster.start("worker", worker)
    coordinator.join(PATIENCE_S)
    assert coordinator.metrics()["retried"] > 0
    assert all(float(value) <= first.numpy() for value in coordinator.fetch(values))
    found = [first.numpy(), in_loop.numpy() / 3.0, last.numpy(), *-table.numpy()[[1, 3], 0]]
    wanted = [count, count, count, 2 * count, count]
    if effectively_once:
        np.testing.assert_array_equal(found, wanted)
        np.testing.assert_array_equal(table.numpy()[[0, 2]], 0.0)
    else:
        assert all(one >= least for one, least in zip(found, wanted))


def test_a_worker_that_comes_back_goes_on(tasks: Any) -> None:
    cluster = tasks(1)
    coordinator = cluster.coordinator()
    count, step = counter(coordinator)
    assert coordinator.schedule(step).fetch(PATIENCE_S) == 0
    # Between closures: what is counted is exact.
    cluster.kill("worker", 0)
    values = [coordinator.schedule(step) for _ in range(20)]
    assert not coordinator.done()
    with pytest.raises(errors.DeadlineExceededError, match="/job:worker/replica:0/task:0"):
        coordinator.join(timeout=1.0)
    cluster.start("worker", 0)
    coordinator.join(PATIENCE_S)
    assert all(value.is_ready for value in values)
    np.testing.assert_allclose(count.numpy(), 21)


def test_all_workers_killed_at_once_and_back(tasks: Any) -> None:
    cluster = tasks(2)
    coordinator = cluster.coordinator()
    count, step = counter(coordinator)
    values = [coordinator.schedule(step) for _ in range(200)]
    values[10].get(PATIENCE_S)
    for task in range(2):
        cluster.kill("worker", task)
    for task in range(2):
        cluster.start("worker", task)
    coordinator.join(PATIENCE_S)
    assert all(value.is_ready for value in values)
    assert count.numpy() >= 200


def test_what_workers_have_is_made_anew(tasks: Any) -> None:
    cluster = tasks(1)
    coordinator = cluster.coordinator()
    with coordinator.strategy.scope():
        made = sr.Variable(0.0)

    def make() -> Any:
        made.assign_add(1.0)
        return sr.constant(7.0)

    own = coordinator._create_per_worker_resources(make)

    @sr.function
    def step(given: Any) -> Any:
        return given * 2.0

    assert coordinator.schedule(step, (own,)).fetch(PATIENCE_S) == 14
    cluster.kill("worker", 0)
    cluster.start("worker", 0)
    assert coordinator.schedule(step, (own,)).fetch(PATIENCE_S) == 14
    coordinator.join(PATIENCE_S)
    assert made.numpy() >= 2


def test_variables_of_a_worker_begin_anew_with_it(tasks: Any) -> None:
    cluster = tasks(2)
    coordinator = cluster.coordinator()
    with coordinator.strategy.scope():
        seen = sr.Variable(7.0, per_worker_variable=True)

    @sr.function
    def step() -> Any:
        return seen.assign_add(1.0).value()

    for _ in range(20):
        coordinator.schedule(step)
    coordinator.join(PATIENCE_S)
    before = [float(value) for value in seen.read_all()]
    assert sum(before) == 34
    cluster.kill("worker", 0)
    cluster.start("worker", 0)
    # Waits for the worker, which is not there yet.
    assert [float(value) for value in seen.read_all()] == [7, before[1]]


def test_a_worker_killed_while_it_makes_a_dataset_makes_it_anew(tasks: Any) -> None:
    cluster = tasks(2)
    coordinator = cluster.coordinator()
    data = np.arange(200_000).reshape(-1, 4)  # Which takes a while to read.

    @sr.function
    def step(it: Any) -> Any:
        return next(it)

    for worker in (0, 1):
        dataset = coordinator.create_per_worker_dataset(
            lambda: sr.data.Dataset.from_tensor_slices(data)
        )
        iterator = iter(dataset)
        cluster.kill("worker", worker)
        values = [coordinator.schedule(step, (iterator,)) for _ in range(20)]
        cluster.start("worker", worker)
        for value in values:
            assert value.fetch(PATIENCE_S)[0] % 4 == 0
        coordinator.join(PATIENCE_S)


#: Schedules functions until it is killed.
COORDINATOR = """
import json, sys
import sidereal as sr
from sidereal.distribute.coordinator import ClusterCoordinator
from strategies import strategy_of

coordinator = ClusterCoordinator(strategy_of(json.loads(sys.argv[1])), closures_per_worker=4)
with coordinator.strategy.scope():
    count = sr.Variable(0.0)

@sr.function
def step():
    return count.assign_add(1.0)

while True:
    values = [coordinator.schedule(step) for _ in range(100)]
    values[0].get()
    print(values[0].get(), flush=True)
"""


def test_servers_outlive_the_coordinator_and_serve_another_one(tasks: Any) -> None:
    cluster = tasks(2)
    for _ in range(2):
        command = [sys.executable, "-c", COORDINATOR, json.dumps(cluster.cluster)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parent) as first:
            assert first.stdout is not None
            for _ in range(3):
                assert first.stdout.readline()
            first.kill()
    coordinator = cluster.coordinator()
    count, step = counter(coordinator)
    values = [coordinator.schedule(step) for _ in range(40)]
    coordinator.join(PATIENCE_S)
    # Nothing of the others is left in it.
    np.testing.assert_allclose(count.numpy(), 40)
    assert set(coordinator.fetch(values)) <= {0, 1}


def test_values_outlive_the_worker_that_made_them(tasks: Any) -> None:
    cluster = tasks(1)
    coordinator = cluster.coordinator()
    _, step = counter(coordinator)
    value = coordinator.schedule(step)
    coordinator.join(PATIENCE_S)
    cluster.kill("worker", 0)
    assert value.fetch() == 0


def test_a_lost_worker_does_not_hold_up_cancelling(tasks: Any) -> None:
    cluster = tasks(2)
    coordinator = cluster.coordinator()
    _, step = counter(coordinator)

    @sr.function(input_signature=[sr.TensorSpec([None], "float32")])
    def bad(x: Any) -> Any:
        return sr.reshape(x, [7])

    values = [coordinator.schedule(step) for _ in range(100)]
    wrong = coordinator.schedule(bad, (np.ones(2, "f"),))
    with pytest.raises(errors.InvalidArgumentError):
        wrong.fetch(PATIENCE_S)
    cluster.kill("worker", 1)
    with pytest.raises(errors.InvalidArgumentError):
        coordinator.join(PATIENCE_S)
    for value in values:
        assert value.is_ready
    coordinator.join(PATIENCE_S)
    assert coordinator.schedule(step).fetch(PATIENCE_S) == 0


def test_a_lost_ps_ends_the_job(tasks: Any) -> None:
    cluster = tasks(2)
    coordinator = cluster.coordinator(ps_timeout=2.0)
    _, step = counter(coordinator)
    coordinator.schedule(step)
    coordinator.join(PATIENCE_S)
    cluster.kill("ps", 0)
    begin = time.monotonic()
    with pytest.raises(PSUnavailableError, match="/job:ps/replica:0/task:0"):
        for _ in range(10):
            coordinator.schedule(step)
        coordinator.join(PATIENCE_S)
    assert time.monotonic() - begin < PATIENCE_S
    # And by every call from then on.
    with pytest.raises(errors.UnavailableError, match="/job:ps"):
        coordinator.join()


def test_a_ps_that_is_back_before_workers_use_it_is_found_out(tasks: Any) -> None:
    cluster = tasks(1)
    coordinator = cluster.coordinator()
    _, step = counter(coordinator)
    cluster.found_by(coordinator)
    # Its session has no graph, and is not attached to the ps.
    cluster.kill("ps", 0)
    cluster.start("ps", 0)
    coordinator.schedule(step)
    with pytest.raises(PSUnavailableError, match="/job:ps/replica:0/task:0"):
        coordinator.join(PATIENCE_S)


def test_a_ps_that_is_back_before_the_coordinator_is_found_out(tasks: Any) -> None:
    cluster = tasks(1)
    strategy = cluster.strategy()
    cluster.kill("ps", 0)
    cluster.start("ps", 0)
    coordinator = ClusterCoordinator(strategy)

    @sr.function
    def step() -> Any:
        return sr.constant(1)

    with pytest.raises(PSUnavailableError, match="/job:ps/replica:0/task:0"):
        coordinator.schedule(step)
        coordinator.join(PATIENCE_S)


def test_a_ps_that_is_back_and_empty_is_found_out(tasks: Any) -> None:
    cluster = tasks(2)
    coordinator = cluster.coordinator()
    _, step = counter(coordinator)
    coordinator.schedule(step)
    coordinator.join(PATIENCE_S)
    cluster.kill("ps", 0)
    cluster.start("ps", 0)
    with pytest.raises(PSUnavailableError, match="/job:ps/replica:0/task:0"):
        for _ in range(10):
            coordinator.schedule(step)
        coordinator.join(PATIENCE_S)


@pytest.mark.parametrize("protocol", ["grpc", "star_server"])
def test_a_ps_that_all_have_given_up_is_lost_though_it_goes_on(
    tasks_of: Callable[..., Tasks], protocol: str
) -> None:
    cluster = tasks_of(2, 1, protocol)
    coordinator = cluster.coordinator()
    _, step = counter(coordinator)
    coordinator.schedule(step)
    coordinator.join(PATIENCE_S)
    cluster.all["ps", 0].send_signal(signal.SIGSTOP)
    threading.Event().wait(STOPPED_S)
    cluster.all["ps", 0].send_signal(signal.SIGCONT)
    with pytest.raises(PSUnavailableError, match="it has lost its variables"):
        coordinator.schedule(step)
        coordinator.join(PATIENCE_S)
