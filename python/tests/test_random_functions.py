"""Random functions with conditionals and loops on a cluster do what they do in NumPy, over every
protocol: what is done to one variable is done in the order of the program."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from random_functions import GraphRunner, NumpyRunner, Program
from strategies import PATIENCE_S, Tasks, cluster_fixture, strategy_of

import sidereal as sr
from sidereal.distribute.coordinator import ClusterCoordinator

#: Of variables: on one ps, on another one, and on the worker itself.
ROWS = (1, 4, 1, 3)
PROGRAMS, CALLS = range(8, 18), 3

cluster = cluster_fixture(2, 1)


def check(coordinator: ClusterCoordinator, seed: int) -> None:
    program = Program(seed, ROWS)
    begin = [np.arange(1, rows + 1, dtype=np.float32) for rows in ROWS]
    with coordinator.strategy.scope():
        variables = [sr.Variable(value, per_worker_variable=i == 3)
                     for i, value in enumerate(begin)]  # fmt: skip
    arrays = [value.copy() for value in begin]

    @sr.function
    def function(wide: Any, *numbers: Any) -> Any:
        return GraphRunner(variables, wide).run(program.block, list(numbers))

    for call in range(CALLS):
        given = [float(call + i) for i in range(program.locals_count)]
        wanted = NumpyRunner(arrays).run(program.block, [np.float32(one) for one in given])
        arguments = [sr.ones([150, 150]), *(sr.constant(one) for one in given)]
        found = coordinator.schedule(function, arguments).fetch()
        values = [value.read_all()[0] if i == 3 else value for i, value in enumerate(variables)]
        said = f"seed {seed}, call {call}, of\n{program}"
        np.testing.assert_array_equal(found, wanted, err_msg=said)
        for value, array in zip(values, arrays):
            np.testing.assert_array_equal(value.numpy(), array, err_msg=said)


def test_random_functions_do_what_numpy_does(cluster: dict[str, list[str]]) -> None:
    coordinator = ClusterCoordinator(strategy_of(cluster))
    for seed in PROGRAMS:
        check(coordinator, seed)


@pytest.mark.parametrize("protocol", ["grpc", "star_server_lite"])
def test_random_functions_that_run_again_add_once(
    tasks_of: Callable[..., Tasks], protocol: str
) -> None:
    tasks = tasks_of(2, 2, protocol)
    calls, rows = 300, ROWS[:3]
    for seed in (9, 14):
        drawn = random.Random(seed)
        program = Program(seed, rows, only_adds=True)
        coordinator = tasks.coordinator(effectively_once=True, closures_per_worker=8)
        with coordinator.strategy.scope():
            variables = [sr.Variable(np.zeros(each, np.float32)) for each in rows]
        arrays = [np.zeros(each, np.float32) for each in rows]

        @sr.function
        def function(wide: Any, *numbers: Any) -> Any:
            return GraphRunner(variables, wide).run(program.block, list(numbers))  # noqa: B023

        tasks.found_by(coordinator)
        wide, wanted, found = sr.ones([60, 60]), [], []
        for call in range(calls):
            given = [float(call % 7), float(call % 5)]
            arguments = [np.float32(one) for one in given]
            wanted.append(NumpyRunner(arrays).run(program.block, arguments))
            arguments = [wide, *(sr.constant(one) for one in given)]
            found.append(coordinator.schedule(function, arguments))
        for _ in range(5):
            found[drawn.randrange(calls - 20)].get(PATIENCE_S)
            worker = drawn.randrange(2)
            tasks.kill("worker", worker)
            tasks.start("worker", worker)
        coordinator.join(PATIENCE_S)
        assert coordinator.metrics()["retried"] > 0
        np.testing.assert_array_equal(coordinator.fetch(found), wanted)
        for value, array in zip(variables, arrays):
            np.testing.assert_array_equal(value.numpy(), array, err_msg=str(program))
