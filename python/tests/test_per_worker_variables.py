"""Variables that each worker has one of: tf.Variable(..., per_worker_variable=True) in the scope of
a ParameterServerStrategy, over every protocol."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from strategies import Servers, cluster_fixture, strategy_of

import sidereal as sr
from sidereal import errors
from sidereal.distribute.coordinator import (
    ClosureInputError,
    ClusterCoordinator,
    get_current_worker_index,
)

PATIENCE_S = 60.0

cluster = cluster_fixture(1, 3)


@pytest.fixture
def coordinator(cluster: dict[str, list[str]]) -> ClusterCoordinator:
    return ClusterCoordinator(strategy_of(cluster))


def own(coordinator: ClusterCoordinator, value: Any, **options: Any) -> Any:
    with coordinator.strategy.scope():
        return sr.Variable(value, per_worker_variable=True, **options)


def test_each_worker_reads_and_changes_its_own(coordinator: ClusterCoordinator) -> None:
    seen = own(coordinator, 0, name="seen", dtype="int64")
    with coordinator.strategy.scope():
        total = sr.Variable(0, dtype="int64")

    @sr.function
    def step(amount: Any) -> Any:
        seen.assign_add(amount)
        total.assign_add(amount)
        return get_current_worker_index(), seen.value()

    ended = [coordinator.schedule(step, (sr.constant(2, "int64"),)) for _ in range(30)]
    counts = [0, 0, 0]
    for worker, _ in coordinator.fetch(ended):
        counts[int(worker)] += 2
    coordinator.join(PATIENCE_S)
    assert [int(value) for value in seen.read_all()] == counts
    assert sum(counts) == total.numpy() == 60
    fetched = coordinator.fetch({"seen": seen})["seen"]
    assert all(isinstance(value, np.integer) for value in fetched)
    assert fetched == counts


def test_it_is_described_like_a_variable(coordinator: ClusterCoordinator) -> None:
    v = own(coordinator, [[1.0, 2.0]], name="v")
    assert (v.shape, v.dtype, v.name, v.trainable) == ((1, 2), sr.float32, "v", False)
    assert repr(v) == "<PerWorkerVariable 'v' shape=(1, 2) dtype=float32>"
    assert isinstance(v, sr.Variable)
    for value in v.read_all():
        np.testing.assert_array_equal(value.numpy(), [[1, 2]])


def test_functions_of_initial_values_run_on_each_worker(coordinator: ClusterCoordinator) -> None:
    calls = []

    with coordinator.strategy.scope():
        made = sr.Variable(0.0)

    def initial() -> Any:
        calls.append(1)
        made.assign_add(1.0)
        return sr.random.uniform([4], 1.0, 2.0)

    values = [value.numpy() for value in own(coordinator, initial).read_all()]
    assert len(calls) == 1
    assert made.numpy() == 3
    assert all(value.min() >= 1 for value in values)


def test_methods_and_control_flow_in_functions(coordinator: ClusterCoordinator) -> None:
    table = own(coordinator, np.zeros([4, 2], np.float32))
    count = own(coordinator, 0)

    @sr.function
    def step(rows: Any) -> Any:
        table.scatter_add(sr.IndexedSlices(sr.ones([2, 2]), rows))
        table.assign_sub(sr.ones([4, 2]) * 0.5)
        sr.while_loop(
            lambda i: i < 3, lambda i: (count.assign_add(1), i + 1)[1], [sr.constant(0)]
        )
        return sr.gather(table, rows), count + 0

    rows, seen = coordinator.schedule(step, (sr.constant([1, 3]),)).fetch(PATIENCE_S)
    np.testing.assert_allclose(rows, 0.5 * np.ones([2, 2]))
    assert seen == 3
    assert sorted(int(value) for value in count.read_all()) == [0, 0, 3]


def test_gradients_flow_through_its_value_and_it_is_not_watched(
    coordinator: ClusterCoordinator,
) -> None:
    factor = own(coordinator, 3.0)
    with coordinator.strategy.scope():
        weight = sr.Variable(2.0)

    @sr.function
    def step() -> Any:
        with sr.GradientTape() as tape:
            loss = weight * factor
        return tape.gradient(loss, [weight, factor])

    of_weight, of_factor = coordinator.schedule(step).fetch(PATIENCE_S)
    assert of_weight == 3
    assert of_factor is None


def test_the_coordinator_has_none(coordinator: ClusterCoordinator) -> None:
    v = own(coordinator, 1.0, name="mine")

    @sr.function
    def double() -> Any:
        return v * 2.0

    for use in (
        v.numpy, v.value, double, lambda: v + 1.0, lambda: v.assign(2.0), lambda: float(v),
        lambda: v.scatter_max(sr.IndexedSlices([1.0], [0])), lambda: f"{v:.2f}",
    ):  # fmt: skip
        with pytest.raises(errors.FailedPreconditionError, match=r"'mine'.*read_all\(\)"):
            use()
    # In functions that are scheduled it is there all the same.
    assert coordinator.schedule(double).fetch(PATIENCE_S) == 2


def test_concrete_functions_and_arguments_have_it(coordinator: ClusterCoordinator) -> None:
    v = own(coordinator, 5.0)

    @sr.function
    def step(variable: Any, x: Any) -> Any:
        return variable * x

    assert coordinator.schedule(step, (v, sr.constant(2.0))).fetch(PATIENCE_S) == 10

    @sr.function
    def of_outside(x: Any) -> Any:
        return v * x

    concrete = of_outside.get_concrete_function(sr.TensorSpec([], "float32"))
    assert coordinator.schedule(concrete, (sr.constant(3.0),)).fetch(PATIENCE_S) == 15


def test_read_all_does_not_wait_for_the_queue_and_meets_no_errors(
    coordinator: ClusterCoordinator,
) -> None:
    v = own(coordinator, 1.0)

    @sr.function
    def failing() -> Any:
        return sr.ensure_shape(sr.reshape(v, [sr.size(v)]), [2])

    coordinator.schedule(failing)
    assert [float(value) for value in v.read_all()] == [1, 1, 1]
    with pytest.raises(errors.InvalidArgumentError):
        coordinator.join(PATIENCE_S)


def test_what_cannot_be_made_fails_those_that_use_it(coordinator: ClusterCoordinator) -> None:
    with coordinator.strategy.scope():
        sizes = sr.Variable([1.0, 2.0])
    v = own(
        coordinator, lambda: sr.ensure_shape(sr.reshape(sizes, [sr.size(sizes) + 1]), [3])
    )

    @sr.function
    def use() -> Any:
        return v + 1.0

    coordinator.schedule(use)
    with pytest.raises(ClosureInputError, match="could not be made"):
        coordinator.join(PATIENCE_S)
    with pytest.raises(ClosureInputError, match="could not be made"):
        v.read_all()


def test_what_it_cannot_be_is_said(coordinator: ClusterCoordinator) -> None:
    with pytest.raises(ValueError, match=r"per_worker_variable.*ParameterServerStrategy"):
        sr.Variable(1.0, per_worker_variable=True)
    with pytest.raises(errors.InvalidArgumentError, match="shape"):
        own(coordinator, lambda: sr.boolean_mask([1.0, 2.0], [True, False]))
    with pytest.raises(ValueError, match="initial_value"):
        own(coordinator, None)
    first = own(coordinator, 1.0, name="first")
    with pytest.raises(errors.UnimplementedError, match="'first'"):
        own(coordinator, lambda: first * 2.0)
    with pytest.raises(errors.UnimplementedError, match="'first'"):
        coordinator._create_per_worker_resources(lambda: first * 2.0)
    with (
        pytest.raises(ValueError, match="colocate_vars_with"),
        coordinator.strategy.extended.colocate_vars_with(first),
    ):
        pass


def test_a_strategy_without_a_coordinator_makes_one_to_read() -> None:
    servers = Servers(1, 2)
    strategy = strategy_of(servers.cluster)
    with strategy.scope():
        v = sr.Variable(4.0, per_worker_variable=True)
    assert [float(value) for value in v.read_all()] == [4, 4]
    servers.stop()
