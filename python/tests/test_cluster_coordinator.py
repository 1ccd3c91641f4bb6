"""Functions that a coordinator schedules: the contract of tf.distribute.coordinator, over every
protocol, with servers of this process. Faults of processes are in
test_cluster_coordinator_faults.py."""

from __future__ import annotations

import contextlib
import gc
import json
import re
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from session_servers import addresses
from strategies import Servers, cluster_fixture, strategy_of

import sidereal as sr
from sidereal import errors
from sidereal.distribute import ParameterServerStrategy
from sidereal.distribute.coordinator import (
    ClosureInputError,
    ClusterCoordinator,
    get_current_worker_index,
)

PATIENCE_S = 60.0


cluster = cluster_fixture(2, 3)


@pytest.fixture
def strategy(cluster: dict[str, list[str]]) -> ParameterServerStrategy:
    return strategy_of(cluster)


@pytest.fixture
def coordinator(strategy: ParameterServerStrategy) -> ClusterCoordinator:
    return ClusterCoordinator(strategy)


def variable(coordinator: ClusterCoordinator, value: Any, **options: Any) -> Any:
    with coordinator.strategy.scope():
        return sr.Variable(value, **options)


# --- Construction.


def test_a_strategy_has_one_coordinator(strategy: ParameterServerStrategy) -> None:
    first = ClusterCoordinator(strategy)
    assert ClusterCoordinator(strategy) is first
    assert first.strategy is strategy


def test_only_strategies_of_parameter_servers_have_coordinators() -> None:
    with pytest.raises(ValueError, match="ParameterServerStrategy"):
        ClusterCoordinator("strategy")


def test_its_threads_end_with_the_last_reference(strategy: ParameterServerStrategy) -> None:
    coordinator = ClusterCoordinator(strategy)

    @sr.function
    def step() -> Any:
        return sr.constant(1)

    value = coordinator.schedule(step)
    assert value.fetch(PATIENCE_S) == 1
    del coordinator
    gc.collect()
    assert strategy._coordinator is not None
    assert strategy._coordinator() is None
    # What it fetched is still there.
    assert value.fetch() == 1
    assert ClusterCoordinator(strategy).schedule(step).fetch(PATIENCE_S) == 1


def test_it_ends_with_the_functions_that_refer_to_it() -> None:
    servers = Servers(1, 1)

    class Job:
        def __init__(self) -> None:
            self.coordinator = ClusterCoordinator(strategy_of(servers.cluster))
            self.count = variable(self.coordinator, 0.0)

            @sr.function
            def step() -> None:
                self.count.assign_add(1.0)

            self.step = step

        def run(self) -> None:
            self.coordinator.schedule(self.step)
            self.coordinator.join(PATIENCE_S)

    job = Job()
    job.run()
    seen = weakref.ref(job.coordinator), weakref.ref(job.coordinator.strategy)
    looking = [end.peek()[2][1] for end in job.coordinator._looking]
    assert looking and all(thread.is_alive() for thread in looking)
    del job
    gc.collect()
    assert [one() for one in seen] == [None, None]
    assert not any(thread.is_alive() for thread in looking)
    servers.stop()


def test_a_program_ends_while_its_coordinator_looks_for_servers(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        """
import atexit, json, sys, threading

@atexit.register  # First, so that it is called last.
def tell():
    main = threading.main_thread()
    print([thread.name for thread in threading.enumerate() if thread is not main])

import sidereal as sr
from sidereal.distribute.cluster_resolver import SimpleClusterResolver

cluster = json.loads(sys.argv[1])
strategy = sr.distribute.ParameterServerStrategy(
    SimpleClusterResolver(sr.train.ClusterSpec(cluster)))
coordinator = sr.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    count = sr.Variable(0.0)

@sr.function
def step():
    count.assign_add(1.0)

coordinator.schedule(step)
coordinator.join()
print("trained", flush=True)
sys.stdin.readline()
"""
    )
    servers = Servers(1, 2)
    child = subprocess.Popen(
        [sys.executable, program, json.dumps(servers.cluster)], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "trained\n", child.communicate()[1]
        servers.stop()
        said, errors_said = child.communicate("go on\n", timeout=PATIENCE_S)
    finally:
        child.kill()
    assert (child.returncode, said) == (0, "[]\n"), errors_said


# --- schedule() and RemoteValue.


def test_functions_run_once_each_and_change_variables(coordinator: ClusterCoordinator) -> None:
    v = variable(coordinator, 0.0)

    @sr.function
    def step(x: Any) -> Any:
        v.assign_add(x)
        return x * 2.0

    values = [coordinator.schedule(step, (float(i),)) for i in range(100)]
    coordinator.join()
    assert coordinator.done()
    assert all(value.is_ready for value in values)
    np.testing.assert_allclose(coordinator.fetch(values), 2.0 * np.arange(100))
    np.testing.assert_allclose(v.numpy(), 4950)


def test_results_keep_their_structure(coordinator: ClusterCoordinator) -> None:
    @sr.function
    def step(x: Any) -> Any:
        return {"a": (x, x + 1.0), "none": None, "list": [x * 3.0]}

    value = coordinator.schedule(step, args=(sr.constant([1.0, 2.0]),))
    got = value.get(PATIENCE_S)
    assert isinstance(got["a"], tuple)
    assert got["none"] is None
    assert isinstance(got["list"][0], sr.Tensor)
    fetched = value.fetch()
    assert isinstance(fetched["a"][0], np.ndarray)
    np.testing.assert_allclose(fetched["a"][1], [2, 3])


def test_a_function_without_a_result_gives_none(coordinator: ClusterCoordinator) -> None:
    v = variable(coordinator, [1.0, 2.0])

    @sr.function
    def step() -> None:
        v.assign(v * 2.0)

    value = coordinator.schedule(step)
    assert value.get(PATIENCE_S) is None
    assert value.fetch() is None
    np.testing.assert_allclose(v.numpy(), [2, 4])


def test_keyword_arguments_and_concrete_functions(coordinator: ClusterCoordinator) -> None:
    @sr.function
    def step(x: Any, scale: float = 1.0) -> Any:
        return x * scale

    assert coordinator.schedule(step, (2.0,), {"scale": 3.0}).fetch(PATIENCE_S) == 6
    concrete = step.get_concrete_function(sr.TensorSpec([], "float32"), 5.0)
    assert coordinator.schedule(concrete, (sr.constant(2.0), 5.0)).fetch(PATIENCE_S) == 10


def test_a_function_is_traced_once_not_once_a_worker(coordinator: ClusterCoordinator) -> None:
    traces = []

    @sr.function
    def step(x: Any) -> Any:
        traces.append(x)
        return x + 1.0

    for i in range(12):
        coordinator.schedule(step, (float(i),))
    coordinator.join()
    # The second time for numbers that are part of the trace: they are tensors.
    assert len(traces) <= 12
    traces.clear()
    for i in range(12):
        coordinator.schedule(step, (sr.constant(float(i)),))
    coordinator.join()
    assert len(traces) == 1


def test_functions_that_are_not_compiled_are_refused(coordinator: ClusterCoordinator) -> None:
    with pytest.raises(TypeError, match="only accepts a `tf.function`"):
        coordinator.schedule(lambda: 1)


def test_remote_values_are_no_arguments(coordinator: ClusterCoordinator) -> None:
    @sr.function
    def step(x: Any) -> Any:
        return x

    value = coordinator.schedule(step, (sr.constant(1.0),))
    with pytest.raises(ValueError, match="RemoteValue"):
        coordinator.schedule(step, ([value],))
    coordinator.join()


def test_fetch_leaves_other_values_alone(coordinator: ClusterCoordinator) -> None:
    @sr.function
    def step() -> Any:
        return sr.constant(4)

    assert coordinator.fetch({"a": coordinator.schedule(step), "b": "text", "c": 2}) == {
        "a": 4, "b": "text", "c": 2,
    }  # fmt: skip


def test_gradients_and_optimizers_run_where_variables_are(coordinator: ClusterCoordinator) -> None:
    table = variable(coordinator, np.ones((10, 2), "f"))
    with coordinator.strategy.scope():
        optimizer = sr.optimizers.Adagrad(0.1)

    @sr.function
    def step(ids: Any) -> Any:
        with sr.GradientTape() as tape:
            loss = sr.reduce_sum(sr.nn.embedding_lookup(table, ids))
        optimizer.apply_gradients([(tape.gradient(loss, table), table)])
        return loss

    assert coordinator.schedule(step, (sr.constant([1, 3, 3]),)).fetch(PATIENCE_S) == 6
    losses = [coordinator.schedule(step, (sr.constant([1, 3, 3]),)) for _ in range(5)]
    assert max(coordinator.fetch(losses)) < 6
    changed = np.nonzero(table.numpy()[:, 0] != 1)[0]
    assert changed.tolist() == [1, 3]


# --- join() and done().


def test_joining_nothing_returns_at_once_and_again(coordinator: ClusterCoordinator) -> None:
    coordinator.join()
    coordinator.join()
    assert coordinator.done()


def test_a_queue_that_is_full_makes_schedule_wait(strategy: ParameterServerStrategy) -> None:
    coordinator = ClusterCoordinator(strategy, queue_limit=2)
    v = variable(coordinator, 0.0)

    @sr.function
    def step() -> None:
        v.assign_add(1.0)

    for _ in range(200):
        coordinator.schedule(step, timeout=PATIENCE_S)
    coordinator.join()
    np.testing.assert_allclose(v.numpy(), 200)


def test_errors_come_through_a_full_queue(strategy: ParameterServerStrategy) -> None:
    coordinator = ClusterCoordinator(strategy, queue_limit=2)

    bad = failing()
    with pytest.raises(errors.InvalidArgumentError):
        for _ in range(1000):
            coordinator.schedule(bad, (np.ones(2, "f"),), timeout=PATIENCE_S)
    coordinator.join()


def test_a_queue_without_a_limit_is_warned_of(strategy: ParameterServerStrategy) -> None:
    with pytest.warns(UserWarning, match="without a limit"):
        ClusterCoordinator(strategy, queue_limit=0)


def test_what_a_conditional_in_a_loop_reads_is_what_was_assigned_before_it(
    strategy: ParameterServerStrategy,
) -> None:
    coordinator = ClusterCoordinator(strategy)
    value, other = variable(coordinator, 1.0), variable(coordinator, 0.0)

    @sr.function
    def sums(is_wanted: Any) -> Any:
        def body(i: Any, total: Any) -> Any:
            # Takes a while.
            value.assign(5.0 + 0.0 * sr.reduce_sum(sr.matmul(sr.ones([200, 200]), x)))
            read = sr.cond(is_wanted, lambda: value.read_value() * 1.0, lambda: sr.constant(0.0))
            other.assign_add(read)
            value.assign(7.0)
            return i + 1, total + read

        x = sr.ones([200, 200])
        return sr.while_loop(lambda i, _: i < 3, body, (sr.constant(0), sr.constant(0.0)))[1]

    for _ in range(5):
        assert coordinator.schedule(sums, (sr.constant(True),)).fetch() == 15.0
    assert (float(value.numpy()), float(other.numpy())) == (7.0, 75.0)


def test_a_function_misses_what_it_may_miss_of_each_other_worker(
    strategy: ParameterServerStrategy,
) -> None:
    bound = 2
    coordinator = ClusterCoordinator(strategy, consistency=f"bounded({bound})")
    count, gate = variable(coordinator, 0.0), variable(coordinator, 0.0)

    @sr.function
    def slow() -> Any:
        """What was done when it last looked before it was let go."""
        (seen,) = sr.while_loop(
            lambda _: gate.read_value() < 1.0, lambda _: [count.read_value()], [sr.constant(0.0)]
        )
        return seen

    @sr.function
    def quick() -> None:
        count.assign_add(1.0)

    seen = coordinator.schedule(slow)
    for _ in range(50):
        coordinator.schedule(quick)
    others = 2 * (bound + 1)
    deadline = time.monotonic() + PATIENCE_S
    while count.numpy() < others:
        assert time.monotonic() < deadline
    gate.assign(1.0)
    assert seen.fetch(PATIENCE_S) <= others
    coordinator.join(PATIENCE_S)
    assert count.numpy() == 50


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"consistency": "geo(4)", "effectively_once": True}, "effectively_once is of the other"),
        ({"consistency": "geo(4)", "closures_per_worker": 2}, "it runs one: the next one"),
        ({"consistency": "sync", "closures_per_worker": 2}, "it runs one: the next one"),
        ({"consistency": "bounded"}, "is no consistency; write async"),
        ({"consistency": "bounded(3)", "closures_per_worker": 8}, "it runs one: the next one"),
    ],
)
def test_a_consistency_that_functions_cannot_have_is_refused(
    strategy: ParameterServerStrategy, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=said):
        ClusterCoordinator(strategy, **options)


def test_many_closures_of_a_worker_at_once(strategy: ParameterServerStrategy) -> None:
    coordinator = ClusterCoordinator(strategy, closures_per_worker=8)
    v = variable(coordinator, 0.0)

    @sr.function
    def step(x: Any) -> Any:
        v.assign_add(1.0)
        return x

    values = [coordinator.schedule(step, (sr.constant(i),)) for i in range(500)]
    assert coordinator.fetch(values) == list(range(500))
    np.testing.assert_allclose(v.numpy(), 500)


def test_workers_compute_products_in_the_dtype_that_is_said(
    strategy: ParameterServerStrategy,
) -> None:
    coordinator = ClusterCoordinator(strategy, compute_dtype="bfloat16")
    x = np.random.default_rng(3).standard_normal((64, 64)).astype("f")
    v = variable(coordinator, x)

    @sr.function
    def square() -> Any:
        return v @ v

    here = sr.function(lambda x: x @ x, compute_dtype="bfloat16")
    lowered = here.get_concrete_function(x).compute_dtype == "bfloat16"
    got = coordinator.schedule(square).fetch(PATIENCE_S)
    assert got.dtype == np.float32
    assert np.allclose(got, x @ x, rtol=0, atol=0.3)
    assert np.allclose(got, x @ x, rtol=1e-5, atol=1e-4) != lowered


def test_a_dtype_that_no_product_has_is_refused(strategy: ParameterServerStrategy) -> None:
    with pytest.raises(ValueError, match="is float64; it must be float32 or bfloat16"):
        ClusterCoordinator(strategy, compute_dtype="float64")


# --- Errors.


def failing() -> Any:
    # Whether it fits is known when it runs.
    @sr.function(input_signature=[sr.TensorSpec([None], "float32")])
    def bad(x: Any) -> Any:
        return sr.reshape(x, [7])

    return bad


def test_join_raises_the_error_once_and_the_value_each_time(
    coordinator: ClusterCoordinator,
) -> None:
    v = variable(coordinator, 0.0)

    @sr.function
    def good() -> Any:
        v.assign_add(1.0)
        return v.read_value()

    value = coordinator.schedule(failing(), (np.ones(2, "f"),))
    with pytest.raises(errors.InvalidArgumentError, match="Reshape"):
        coordinator.join()
    for _ in range(2):
        with pytest.raises(errors.InvalidArgumentError, match="Reshape"):
            value.fetch()
    coordinator.join()
    assert coordinator.done()
    assert coordinator.schedule(good).fetch(PATIENCE_S) >= 1


@pytest.mark.parametrize("how", ["schedule", "join", "done"])
def test_what_comes_after_an_error_is_cancelled(
    strategy: ParameterServerStrategy, how: str
) -> None:
    coordinator = ClusterCoordinator(strategy)
    gate = threading.Event()

    @sr.function
    def good() -> Any:
        return sr.constant(1)

    bad = failing()
    before = coordinator.schedule(good)
    assert before.fetch(PATIENCE_S) == 1
    value = coordinator.schedule(bad, (np.ones(2, "f"),))
    with pytest.raises(errors.InvalidArgumentError):
        value.fetch(PATIENCE_S)
    with pytest.raises(errors.InvalidArgumentError):
        while not gate.is_set():
            if how == "schedule":
                coordinator.schedule(good)
            elif how == "join":
                coordinator.join()
            else:
                coordinator.done()
    assert before.fetch() == 1
    assert coordinator.schedule(good).fetch(PATIENCE_S) == 1


def test_waiting_has_an_end() -> None:
    servers = Servers(1, 1)
    # A worker that nobody starts.
    servers.cluster["worker"] = addresses(1)
    coordinator = ClusterCoordinator(strategy_of(servers.cluster))

    @sr.function
    def step() -> Any:
        return sr.constant(1)

    value = coordinator.schedule(step)
    assert not value.is_ready
    assert not coordinator.done()
    with pytest.raises(errors.DeadlineExceededError, match="/job:worker/replica:0/task:0"):
        coordinator.join(timeout=0.3)
    with pytest.raises(errors.DeadlineExceededError):
        value.fetch(timeout=0.2)
    del coordinator
    gc.collect()
    with pytest.raises(errors.CancelledError):
        value.fetch(PATIENCE_S)
    servers.stop()


# --- What each worker has.


def test_the_worker_index_is_known_where_workers_run(coordinator: ClusterCoordinator) -> None:
    @sr.function
    def step() -> Any:
        return get_current_worker_index()

    found = coordinator.fetch([coordinator.schedule(step) for _ in range(60)])
    assert set(found) <= {0, 1, 2}
    with pytest.raises(RuntimeError, match="get_current_worker_index"):
        get_current_worker_index()


def test_each_worker_makes_values_of_its_own(coordinator: ClusterCoordinator) -> None:
    own = coordinator._create_per_worker_resources(
        lambda: {"index": get_current_worker_index(), "pair": (sr.constant([1.0, 2.0]), None)}
    )

    @sr.function
    def step(given: Any, x: Any) -> Any:
        return given["index"], get_current_worker_index(), given["pair"][0] * x

    for mine, worker, pair in coordinator.fetch(
        [coordinator.schedule(step, (own, sr.constant(3.0))) for _ in range(30)]
    ):
        assert mine == worker
        np.testing.assert_allclose(pair, [3, 6])


def test_what_cannot_be_made_fails_those_that_use_it(coordinator: ClusterCoordinator) -> None:
    v = variable(coordinator, [1.0, 2.0])
    own = coordinator._create_per_worker_resources(
        lambda: sr.ensure_shape(sr.reshape(v, [sr.size(v) + 1]), [3])
    )

    @sr.function
    def use(x: Any) -> Any:
        return x + 1.0

    @sr.function
    def other() -> Any:
        return sr.constant(1)

    assert coordinator.schedule(other).fetch(PATIENCE_S) == 1
    coordinator.join()
    value = coordinator.schedule(use, (own,))
    with pytest.raises(ClosureInputError, match="could not be made"):
        coordinator.join()
    with pytest.raises(ClosureInputError):
        value.fetch()
    assert coordinator.schedule(other).fetch(PATIENCE_S) == 1


def test_values_of_workers_are_none_of_the_coordinator(coordinator: ClusterCoordinator) -> None:
    own = coordinator._create_per_worker_resources(lambda: sr.constant(1.0))
    with pytest.raises(errors.FailedPreconditionError, match="scheduled"):
        sr.convert_to_tensor(own._structure)
    with pytest.raises(errors.InvalidArgumentError, match="shape"):
        coordinator._create_per_worker_resources(lambda: sr.boolean_mask([1.0, 2.0], [True, False]))


# --- Datasets.


def test_each_worker_reads_a_dataset_of_its_own(coordinator: ClusterCoordinator) -> None:
    calls = []

    def dataset_fn() -> Any:
        calls.append(1)
        return sr.data.Dataset.range(4).map(lambda x: x * 10).repeat()

    per_worker = coordinator.create_per_worker_dataset(dataset_fn)
    assert per_worker.element_spec == sr.TensorSpec([], "int64")
    assert per_worker.build() is per_worker
    iterator = iter(per_worker)
    assert iterator.element_spec == sr.TensorSpec([], "int64")

    @sr.function
    def step(it: Any) -> Any:
        return next(it), get_current_worker_index()

    found: dict[int, list[int]] = {}
    for value, worker in coordinator.fetch(
        [coordinator.schedule(step, (iterator,)) for _ in range(40)]
    ):
        found.setdefault(int(worker), []).append(int(value))
    for values in found.values():
        counts = [values.count(x) for x in (0, 10, 20, 30)]
        assert max(counts) - min(counts) <= 1
    assert len(calls) == 1


def test_iterators_of_a_dataset_are_independent(coordinator: ClusterCoordinator) -> None:
    per_worker = coordinator.create_per_worker_dataset(sr.data.Dataset.range(100))
    first, second = iter(per_worker), iter(per_worker)

    @sr.function
    def step(a: Any, b: Any) -> Any:
        return next(a), b.get_next()

    pairs = coordinator.fetch([coordinator.schedule(step, (first, second)) for _ in range(30)])
    assert all(a == b for a, b in pairs)


def test_elements_have_structure_and_steps_may_be_packed(coordinator: ClusterCoordinator) -> None:
    v = variable(coordinator, 0.0)
    x = np.arange(12, dtype="f").reshape(6, 2)

    def dataset_fn() -> Any:
        return sr.data.Dataset.from_tensor_slices({"x": x, "y": x[:, 0]}).repeat().batch(3)

    iterator = iter(coordinator.create_per_worker_dataset(dataset_fn))

    @sr.function
    def steps(it: Any) -> None:
        for _ in range(4):
            batch = next(it)
            v.assign_add(sr.reduce_sum(batch["x"]) - sr.reduce_sum(batch["y"]))

    coordinator.schedule(steps, (iterator,))
    coordinator.join()
    # Two epochs, of which y is the first column.
    np.testing.assert_allclose(v.numpy(), 2 * x[:, 1].sum())


def test_the_end_of_a_dataset_is_an_error_of_the_function(coordinator: ClusterCoordinator) -> None:
    iterator = iter(coordinator.create_per_worker_dataset(sr.data.Dataset.range(1)))

    @sr.function
    def step(it: Any) -> Any:
        return next(it)

    for _ in range(10):
        coordinator.schedule(step, (iterator,))
    with pytest.raises(errors.OutOfRangeError):
        coordinator.join()


def test_distributed_datasets_become_those_of_workers(
    strategy: ParameterServerStrategy, coordinator: ClusterCoordinator
) -> None:
    contexts = []

    def dataset_fn(context: Any) -> Any:
        contexts.append(context)
        return sr.data.Dataset.range(5)

    made = [
        strategy.distribute_datasets_from_function(dataset_fn),
        lambda: strategy.distribute_datasets_from_function(dataset_fn),
        strategy.experimental_distribute_dataset(sr.data.Dataset.range(5)),
    ]

    @sr.function
    def step(it: Any) -> Any:
        return next(it)

    for dataset in made:
        iterator = iter(coordinator.create_per_worker_dataset(dataset))
        assert coordinator.schedule(step, (iterator,)).fetch(PATIENCE_S) == 0
    assert [one.num_input_pipelines for one in contexts] == [1, 1]


def test_workers_read_shards_of_a_dataset(coordinator: ClusterCoordinator) -> None:
    def dataset_fn() -> Any:
        index = get_current_worker_index()
        shard = sr.data.Dataset.range(1, 10).shard(3, index)
        return shard.map(lambda x: (x, index)).repeat().batch(3)

    @sr.function
    def step(it: Any) -> Any:
        values, index = next(it)
        return sr.reduce_sum(values), index[0], get_current_worker_index()

    iterator = iter(coordinator.create_per_worker_dataset(dataset_fn))
    found = coordinator.fetch([coordinator.schedule(step, (iterator,)) for _ in range(60)])
    assert all(told == worker for _, told, worker in found)
    assert {int(worker): int(total) for total, _, worker in found}.items() <= {
        (0, 1 + 4 + 7), (1, 2 + 5 + 8), (2, 3 + 6 + 9)
    }  # fmt: skip


def test_what_a_dataset_is_made_of_may_depend_on_the_worker(
    coordinator: ClusterCoordinator,
) -> None:
    def dataset_fn() -> Any:
        first = 100 * get_current_worker_index()
        files = sr.gather(sr.constant(["a", "b", "c"]), get_current_worker_index())
        numbers = sr.data.Dataset.range(first, first + 10).skip(first // 100)
        return sr.data.Dataset.zip((numbers, sr.data.Dataset.from_tensors(files).repeat()))

    @sr.function
    def step(it: Any) -> Any:
        return (*next(it), get_current_worker_index())

    iterator = iter(coordinator.create_per_worker_dataset(dataset_fn))
    for _ in range(6):
        number, letter, worker = coordinator.schedule(step, (iterator,)).fetch(PATIENCE_S)
        assert number // 100 == worker
        assert letter == b"abc"[worker : worker + 1]


def test_iterators_that_nobody_has_end_on_the_workers(coordinator: ClusterCoordinator) -> None:
    dataset = coordinator.create_per_worker_dataset(sr.data.Dataset.range(10**9).prefetch(2))

    @sr.function
    def step(it: Any) -> Any:
        return next(it)

    def threads() -> int:
        """Of the lanes of workers, and those that they begin."""
        count = 0
        for path in Path("/proc/self/task").glob("*/comm"):
            with contextlib.suppress(OSError):  # It has ended.
                count += path.read_text().startswith("worker:")
        return count

    def use(iterator: Any) -> None:
        coordinator.fetch([coordinator.schedule(step, (iterator,)) for _ in range(6)])

    before = threads()
    kept = [iter(dataset) for _ in range(10)]
    for one in kept:
        use(one)
    # One reads ahead, one is of prefetch().
    assert threads() >= 2 * len(kept)
    kept, one = [None] * len(kept), None
    for _ in range(10):
        use(iter(dataset))
    until = time.monotonic() + PATIENCE_S
    while threads() > before + len(kept):
        assert time.monotonic() < until


def test_what_is_no_dataset_is_refused(coordinator: ClusterCoordinator) -> None:
    with pytest.raises(ValueError, match="Unexpected dataset type!"):
        coordinator.create_per_worker_dataset(lambda: [1, 2])
    with pytest.raises(ValueError, match="variable is made"):
        coordinator.create_per_worker_dataset(
            lambda: sr.data.Dataset.range(1).map(lambda x: x + sr.Variable(1))
        )

    def forever() -> Iterator[int]:
        yield 1

    with pytest.raises(errors.FailedPreconditionError, match="generator"):
        coordinator.create_per_worker_dataset(
            sr.data.Dataset.from_generator(forever, output_signature=sr.TensorSpec([], "int32"))
        )


def test_iterators_of_workers_give_the_coordinator_nothing(
    coordinator: ClusterCoordinator,
) -> None:
    per_worker = coordinator.create_per_worker_dataset(sr.data.Dataset.range(1))
    with pytest.raises(NotImplementedError, match="scheduled"):
        next(iter(per_worker))

    @sr.function
    def step() -> Any:
        return iter(per_worker)

    with pytest.raises(RuntimeError, match="not supported inside of tf.function"):
        coordinator.schedule(step)


@pytest.mark.parametrize(
    "name",
    ["TF_COORDINATOR_SCHEDULE_START_DELAY", "TF_COORDINATOR_IGNORE_TRANSIENT_PS_FAILURES"],
)
def test_environment_variables_that_are_no_numbers(
    strategy: ParameterServerStrategy, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "soon")
    with pytest.raises(ValueError, match=f"{name} is 'soon'"):
        ClusterCoordinator(strategy)


# --- Figures.


def test_figures_tell_how_long_things_took(coordinator: ClusterCoordinator) -> None:
    @sr.function
    def step(x: Any) -> Any:
        return x + 1.0

    for _ in range(5):
        coordinator.schedule(step, (1.0,)).get(PATIENCE_S)
    found = coordinator.metrics()
    assert (found["queued"], found["in_flight"], found["retried"]) == (0, 0, 0)
    assert 1 <= found["workers_found"] <= 3
    # A trace is one for all calls.
    assert found["function_tracing"]["count"] == 1
    for name in ("closure_execution", "remote_value_fetch"):
        times = found[name]
        assert times["count"] == 5
        assert 0 < times["mean"] <= times["max"] <= times["sum"] < PATIENCE_S
        assert times["p50"] <= times["p99"] <= 1.25 * times["max"]
    assert found["server_def_update"]["count"] >= 1


def test_a_watch_dog_writes_stacks_when_nothing_ends(
    strategy: ParameterServerStrategy, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("TF_CLUSTER_COORDINATOR_WATCH_DOG_TIMEOUT", "0.2")
    coordinator = ClusterCoordinator(strategy)

    @sr.function
    def stuck() -> Any:
        return sr.queue.FIFOQueue(1, ["float32"], [[]], shared_name="never").dequeue()

    value = coordinator.schedule(stuck)
    written = ""
    until = time.monotonic() + PATIENCE_S
    # On a loaded machine no worker has taken it at first: then 1 is queued.
    said = r"of the coordinator has ended for 0\.2 s: 0 are queued, 1 run.*Current thread.*pytest"
    while not re.search(said, written, re.DOTALL):
        assert time.monotonic() < until, written
        written += capfd.readouterr().err
    assert not value.is_ready
