"""Datasets in functions that workers run: positions of their iterators, and iterators of a call,
over every protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from strategies import cluster_fixture, strategy_of

import sidereal as sr
from sidereal import errors
from sidereal.distribute.coordinator import ClusterCoordinator, get_current_worker_index

Dataset = sr.data.Dataset
PATIENCE_S = 60.0

cluster = cluster_fixture(1, 2)


@pytest.fixture
def coordinator(cluster: dict[str, list[str]]) -> ClusterCoordinator:
    return ClusterCoordinator(strategy_of(cluster))


def numbers() -> Any:
    """Another part of the numbers for each worker, in an order of its own."""
    return Dataset.range(1000).shard(2, get_current_worker_index()).shuffle(20, seed=5).prefetch(3)


@sr.function
def step(it: Any) -> Any:
    return get_current_worker_index(), next(it)


def taken(coordinator: ClusterCoordinator, iterator: Any, count: int) -> dict[int, list[int]]:
    """What workers read in `count` functions."""
    found: dict[int, list[int]] = {0: [], 1: []}
    for _ in range(count):
        worker, value = coordinator.schedule(step, (iterator,)).fetch(PATIENCE_S)
        found[int(worker)].append(int(value))
    return found


def test_all_positions_are_saved_and_restored(coordinator: ClusterCoordinator) -> None:
    iterator = iter(coordinator.create_per_worker_dataset(numbers))
    taken(coordinator, iterator, 10)
    positions = iterator.save()
    assert [type(position) for position in positions] == [bytes, bytes]
    first = taken(coordinator, iterator, 20)
    iterator.restore(positions)
    second = taken(coordinator, iterator, 20)
    # Who runs how many is the scheduler's choice.
    for worker in (0, 1):
        count = min(len(first[worker]), len(second[worker]))
        assert first[worker][:count] == second[worker][:count]
        assert all(value % 2 == worker for value in second[worker])
    # In iterators of an equal dataset too.
    other = iter(coordinator.create_per_worker_dataset(numbers))
    other.restore(positions)
    third = taken(coordinator, other, 20)
    for worker in (0, 1):
        count = min(len(first[worker]), len(third[worker]))
        assert first[worker][:count] == third[worker][:count]


def test_wrong_positions_are_refused_and_change_nothing(coordinator: ClusterCoordinator) -> None:
    iterator = iter(coordinator.create_per_worker_dataset(numbers))
    positions = iterator.save()
    with pytest.raises(ValueError, match="1 positions are given for 2 workers"):
        iterator.restore(positions[:1])
    with pytest.raises(errors.InvalidArgumentError, match="position"):
        iterator.restore([b"x", b"x"])
    with pytest.raises(TypeError, match="save"):
        iterator.restore([1, 2])
    assert iterator.save() == positions
    # It was none of the functions that were scheduled.
    coordinator.join(PATIENCE_S)


def test_functions_save_and_restore_those_of_their_worker(coordinator: ClusterCoordinator) -> None:
    iterator = iter(coordinator.create_per_worker_dataset(lambda: Dataset.range(100)))

    @sr.function
    def again(it: Any) -> Any:
        here = it.save()
        first = next(it)
        it.restore(here)
        return first, next(it)

    for _ in range(10):
        first, second = coordinator.schedule(again, (iterator,)).fetch(PATIENCE_S)
        assert first == second


def test_each_call_has_an_iterator_of_its_own(cluster: dict[str, list[str]]) -> None:
    coordinator = ClusterCoordinator(strategy_of(cluster), closures_per_worker=4)
    with coordinator.strategy.scope():
        total = sr.Variable(0, dtype="int64")

    @sr.function
    def add(start: Any) -> Any:
        it = iter(Dataset.range(start, start + 3).map(lambda x: x + start))
        total.assign_add(next(it))
        return next(it), next(it)

    values = [coordinator.schedule(add, (sr.constant(i, "int64"),)) for i in range(40)]
    assert [tuple(map(int, value)) for value in coordinator.fetch(values)] == [
        (2 * i + 1, 2 * i + 2) for i in range(40)
    ]
    assert int(total.numpy()) == sum(2 * i for i in range(40))


def test_loops_over_a_dataset_change_variables(
    coordinator: ClusterCoordinator, tmp_path: Path
) -> None:
    path = tmp_path / "rows"
    path.write_text("1\n2\n3\n4\n")
    with coordinator.strategy.scope():
        total = sr.Variable(0.0)

    @sr.function
    def epoch() -> Any:
        lines = sr.data.TextLineDataset(str(path)).batch(3)

        def train(count: Any, batch: Any) -> Any:
            total.assign_add(sr.reduce_sum(sr.strings.to_number(batch)))
            return count + 1

        return lines.reduce(0, train)

    values = [coordinator.schedule(epoch) for _ in range(6)]
    assert [int(value) for value in coordinator.fetch(values)] == [2] * 6
    assert float(total.numpy()) == 60


def test_errors_are_those_of_the_function(coordinator: ClusterCoordinator) -> None:
    @sr.function
    def short() -> Any:
        it = iter(Dataset.range(1))
        return next(it), next(it)

    coordinator.schedule(short)
    with pytest.raises(errors.OutOfRangeError, match="End of sequence"):
        coordinator.join(PATIENCE_S)

    @sr.function
    def loop() -> Any:
        return [x + 1 for x in Dataset.range(3)]

    with pytest.raises(errors.UnimplementedError, match=r"reduce\("):
        coordinator.schedule(loop)
    per_worker = coordinator.create_per_worker_dataset(Dataset.range(3))

    @sr.function
    def over(it: Any) -> Any:
        return [x + 1 for x in it]

    with pytest.raises(errors.UnimplementedError, match=r"reduce\("):
        coordinator.schedule(over, (iter(per_worker),))
