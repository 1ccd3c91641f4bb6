"""Functions traced for workers: what they do to variables on parameter servers, over every
protocol."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from session_servers import Processes, addresses
from strategies import Worker, cluster_fixture, equal, strategy_of

import sidereal as sr
from sidereal import errors
from sidereal.distribute import ParameterServerStrategy
from sidereal.distribute.experimental.partitioners import FixedShardsPartitioner
from sidereal.launch import PROTOCOLS

cluster = cluster_fixture(2, 2)


@pytest.fixture
def strategy(cluster: dict[str, list[str]]) -> ParameterServerStrategy:
    return strategy_of(cluster)


@pytest.fixture
def worker(strategy: ParameterServerStrategy) -> Iterator[Worker]:
    made = Worker(strategy)
    yield made
    made.close()


def variables(strategy: ParameterServerStrategy, *values: Any, **options: Any) -> list[Any]:
    with strategy.scope():
        return [sr.Variable(value, **options) for value in values]


# --- Plans.


def test_a_plan_names_what_is_fed_fetched_and_run(strategy: ParameterServerStrategy) -> None:
    (v,) = variables(strategy, [1.0, 2.0])

    def step(x: Any, scale: float) -> Any:
        v.assign_add(x * scale)
        return {"sum": sr.reduce_sum(x), "nothing": None, "fed": x}

    plan = strategy._trace(step, (np.ones(2, "f"), 3.0))
    assert len(plan.feeds) == 1
    assert len(plan.fetches) == 2
    assert [name.rpartition("/")[2] for name in plan.targets] == ["VariableAssignAdd"]
    assert plan.specs == [sr.TensorSpec([2], "float32")]
    packed = plan.pack([sr.constant([1.0, 1.0]), sr.constant(2.0)])
    assert list(packed) == ["sum", "nothing", "fed"]
    assert packed["nothing"] is None
    equal(v, [1, 2])  # Tracing runs nothing.


def test_a_plan_runs_as_often_as_asked_on_any_worker(strategy: ParameterServerStrategy) -> None:
    v, count = variables(strategy, [1.0, 2.0], 0.0)
    workers = [Worker(strategy, index) for index in range(2)]

    @sr.function
    def step(x: Any) -> Any:
        count.assign_add(1.0)
        v.assign_add(x)
        return v * 2.0, (x, 7)

    for i, worker in enumerate([*workers, *workers], 1):
        doubled, (x, seven) = worker.run(step, np.ones(2, "f"))
        equal(doubled, [2 + 2 * i, 4 + 2 * i])
        equal(x, [1, 1])
        assert seven == 7
    equal(count, 4)
    for worker in workers:
        worker.close()


def test_plans_are_kept_by_signature(strategy: ParameterServerStrategy, worker: Worker) -> None:
    traces = []

    @sr.function
    def total(x: Any, scale: float = 1.0) -> Any:
        traces.append(x.shape)
        return sr.reduce_sum(x) * scale

    equal(worker.run(total, np.ones(2, "f")), 2)
    equal(worker.run(total, np.ones(2, "f"), scale=1.0), 2)
    assert traces == [(2,)]
    equal(worker.run(total, np.ones(3, "f")), 3)
    equal(worker.run(total, np.ones(4, "f")), 4)
    assert traces == [(2,), (-1,)]
    equal(worker.run(total, np.ones(2, "f"), 2.0), 4)
    assert len(traces) == 3


def test_input_signatures_hold(strategy: ParameterServerStrategy, worker: Worker) -> None:
    @sr.function(input_signature=[sr.TensorSpec([None], "float32")])
    def total(x: Any) -> Any:
        return sr.reduce_sum(x)

    assert strategy._trace(total, ([1.0, 2.0],)).specs[0].shape == (-1,)
    equal(worker.run(total, [1.0, 2.0, 3.0]), 6)
    with pytest.raises(errors.InvalidArgumentError, match="input_signature"):
        strategy._trace(total, (np.ones((2, 2), "f"),))


def test_variables_of_the_coordinator_are_fed(
    strategy: ParameterServerStrategy, worker: Worker
) -> None:
    rate = sr.Variable(2.0, name="rate")
    (v,) = variables(strategy, 1.0)

    def step() -> Any:
        v.assign(v * rate)
        return rate + 0.0

    equal(worker.run(step), 2)
    rate.assign(5.0)
    equal(worker.run(step), 5)
    equal(v, 10)

    def change() -> None:
        rate.assign(1.0)

    with pytest.raises(errors.FailedPreconditionError, match=r"'rate'.*strategy\.scope\(\)"):
        strategy._trace(change)


def test_what_a_function_returns_keeps_its_structure(
    strategy: ParameterServerStrategy, worker: Worker
) -> None:
    (v,) = variables(strategy, [1.0, 2.0])

    def nested() -> Any:
        return {"a": (v, [1.0]), "b": None, "rows": sr.IndexedSlices([[1.0]], [3], (5, 1))}

    found = worker.run(nested)
    equal(found["a"][0], [1, 2])
    equal(found["a"][1][0], 1)
    assert found["b"] is None
    assert isinstance(found["rows"], sr.IndexedSlices)
    equal(found["rows"].indices, [3])
    assert worker.run(lambda: None) is None
    with pytest.raises(TypeError, match="which is no tensor"):
        strategy._trace(lambda: object())


def test_functions_are_traced_while_others_run(strategy: ParameterServerStrategy) -> None:
    (v,) = variables(strategy, np.zeros(3, "f"))
    errors_seen: list[Exception] = []

    def serve(index: int) -> None:
        try:
            worker = Worker(strategy, index % 2)
            for i in range(10):
                # Each one is traced, and makes a variable.
                with strategy.scope():
                    mine = sr.Variable([float(i)] * 3)

                def step(x: Any, mine: Any = mine) -> Any:
                    v.assign_add(x)
                    return mine + x

                equal(worker.run(step, np.ones(3, "f")), [i + 1] * 3)
                v.numpy()
            worker.close()
        except Exception as error:  # noqa: BLE001 - told to the test's thread
            errors_seen.append(error)

    threads = [threading.Thread(target=serve, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors_seen == []
    equal(v, [40] * 3)


# --- Order.


def test_reads_and_writes_are_in_the_order_of_the_program(
    strategy: ParameterServerStrategy, worker: Worker
) -> None:
    v, w = variables(strategy, 1.0, 10.0)

    def step(x: Any) -> Any:
        before = v.read_value()
        v.assign(x)
        between = v + 0.0
        w.assign_sub(between)
        v.assign_add(w)
        return before, between, v.value(), w.value()

    for found, wanted in zip(worker.run(step, 3.0), (1, 3, 10, 7)):
        equal(found, wanted)
    for found, wanted in zip(worker.run(step, sr.constant(5.0)), (10, 5, 7, 2)):
        equal(found, wanted)


def test_a_hundred_writes_run_one_after_the_other(
    strategy: ParameterServerStrategy, worker: Worker
) -> None:
    (v,) = variables(strategy, 0.0)

    def step() -> Any:
        seen = []
        for i in range(100):
            v.assign(v * 0.5 + float(i))
            seen.append(v.read_value())
        return sr.stack(seen)

    wanted, now = [], 0.0
    for i in range(100):
        now = now * 0.5 + i
        wanted.append(now)
    equal(worker.run(step), np.array(wanted, "f"))


def test_what_has_nothing_in_common_is_not_ordered(strategy: ParameterServerStrategy) -> None:
    v, w = variables(strategy, 0.0, 0.0)

    def step() -> None:
        v.assign(1.0)
        w.assign(1.0)
        v.assign(2.0)

    first, other, last = strategy._trace(step).targets
    graph = strategy._graph

    def waits(name: str) -> list[str]:
        return [op.name for op in graph.get_operation_by_name(name).control_inputs]

    assert waits(first) == []
    assert waits(other) == []
    assert waits(last) == [first]
    # What another function does is not waited for either.
    assert waits(strategy._trace(step).targets[0]) == []


def test_reads_share_a_node_until_somebody_writes(strategy: ParameterServerStrategy) -> None:
    (v,) = variables(strategy, 0.0)
    nodes: list[Any] = []

    def step() -> None:
        nodes.extend(v.value() for _ in range(2))
        v.assign(1.0)
        nodes.append(v.value())

    strategy._trace(step)
    assert nodes[0].name == nodes[1].name
    assert nodes[2].name != nodes[0].name


def test_errors_end_a_step_and_are_the_function_s(
    strategy: ParameterServerStrategy, worker: Worker
) -> None:
    (v,) = variables(strategy, np.zeros((3, 2), "f"))

    def step(ids: Any) -> Any:
        return sr.gather(v, ids)

    with pytest.raises(errors.InvalidArgumentError, match="7"):
        worker.run(step, np.array([7]))
    equal(worker.run(step, np.array([1])), [[0, 0]])


# --- Conditionals and loops.


def test_branches_change_variables_in_order(
    strategy: ParameterServerStrategy, worker: Worker
) -> None:
    v, other = variables(strategy, 1.0, 5.0)

    def step(add: Any) -> Any:
        v.assign(10.0)

        def yes() -> Any:
            v.assign_add(other)
            other.assign(v)
            return v + 0.0

        inside = sr.cond(add, yes, lambda: v * 2.0)
        after = v.read_value()
        v.assign_add(100.0)
        return inside, after

    for found, wanted in zip(worker.run(step, np.array(True)), (15, 15)):
        equal(found, wanted)
    equal(v, 115)
    equal(other, 15)
    for found, wanted in zip(worker.run(step, np.array(False)), (20, 10)):
        equal(found, wanted)
    equal(v, 110)


def test_branches_without_a_result_run(strategy: ParameterServerStrategy, worker: Worker) -> None:
    (v,) = variables(strategy, 1.0)

    def step(add: Any) -> None:
        def yes() -> None:
            v.assign_add(1.0)

        sr.cond(add, yes, lambda: None)

    worker.run(step, np.array(True))
    equal(v, 2)
    worker.run(step, np.array(False))
    equal(v, 2)


def test_loops_read_what_the_iteration_before_wrote(
    strategy: ParameterServerStrategy, worker: Worker
) -> None:
    v, count = variables(strategy, 1.0, 0.0)

    def step(n: Any) -> Any:
        def body(i: Any) -> Any:
            v.assign(v * 2.0)
            count.assign_add(v)
            return i + 1

        last = sr.while_loop(lambda i: i < n, body, [sr.constant(0)])
        return last, v.read_value()

    _, found = worker.run(step, np.array(5, "i"))
    equal(found, 32)
    equal(count, 62)
    worker.run(step, np.array(1, "i"))
    equal(v, 64)


def test_a_branch_in_a_loop_is_in_order_too(
    strategy: ParameterServerStrategy, worker: Worker
) -> None:
    v, w = variables(strategy, 0.0, 0.0)

    def step() -> Any:
        def body(i: Any) -> Any:
            def odd() -> Any:
                v.assign_add(1.0)
                return 0.0

            def even() -> Any:
                w.assign_add(v)
                return 0.0

            sr.cond(sr.equal(i % 2, 1), odd, even)
            return i + 1

        sr.while_loop(lambda i: i < 6, body, [sr.constant(0)])
        return v.read_value(), w.read_value()

    for found, wanted in zip(worker.run(step), (3, 0 + 1 + 2)):
        equal(found, wanted)


@pytest.mark.parametrize("kind", [sr.optimizers.SGD, sr.optimizers.Adam])
def test_training_steps_in_a_loop(
    kind: Any, strategy: ParameterServerStrategy, worker: Worker
) -> None:
    (there,), here = variables(strategy, [0.0, 0.0]), sr.Variable([0.0, 0.0])
    far, near = kind(0.25), kind(0.25)

    def train(optimizer: Any, w: Any, n: Any) -> Any:
        def body(i: Any) -> Any:
            with sr.GradientTape() as tape:
                loss = sr.reduce_sum(sr.square(w - 2.0))
            optimizer.apply_gradients([(tape.gradient(loss, w), w)])
            return i + 1

        sr.while_loop(lambda i: i < n, body, [sr.constant(0)])
        return w.read_value()

    for n in (2, 1):
        found = worker.run(train, far, there, np.array(n, "i"))
        np.testing.assert_allclose(found, train(near, here, sr.constant(n)), rtol=1e-5)
    assert far.iterations.numpy() == 3


def test_what_a_tape_does_not_watch_may_change_in_a_branch(
    strategy: ParameterServerStrategy, worker: Worker
) -> None:
    (w,), (count,) = variables(strategy, 3.0), variables(strategy, 0.0, trainable=False)

    def step(flag: Any) -> Any:
        def yes() -> Any:
            count.assign(count + 1.0)
            return w * w

        with sr.GradientTape() as tape:
            y = sr.cond(flag, yes, lambda: w * 5.0)
        return tape.gradient(y, w), count.value()

    for found, wanted in zip(worker.run(step, np.array(True)), (6, 1)):
        equal(found, wanted)


def test_tapes_around_branches_and_loops(strategy: ParameterServerStrategy, worker: Worker) -> None:
    (w,) = variables(strategy, 3.0)

    def step(square: Any) -> Any:
        with sr.GradientTape() as tape:
            y = sr.cond(square, lambda: w * w, lambda: w * 5.0) + w
        return tape.gradient(y, w)

    equal(worker.run(step, np.array(True)), 7)
    equal(worker.run(step, np.array(False)), 6)

    def power(n: Any) -> Any:
        with sr.GradientTape() as tape:
            _, y = sr.while_loop(
                lambda i, x: i < n, lambda i, x: (i + 1, x * w),
                [sr.constant(0), sr.constant(1.0)], maximum_iterations=5,
            )  # fmt: skip
        return tape.gradient(y, w)

    equal(worker.run(power, np.array(3, "i")), 27)


def test_what_a_tape_around_a_loop_cannot_see_is_refused(
    strategy: ParameterServerStrategy,
) -> None:
    (w,) = variables(strategy, 3.0)

    def changes_after() -> Any:
        def yes() -> Any:
            y = w * w
            w.assign(1.0)
            return y

        with sr.GradientTape():
            return sr.cond(w > 1.0, yes, lambda: w * 5.0)

    def changes_before() -> Any:
        def yes() -> Any:
            w.assign(1.0)
            return w * w

        with sr.GradientTape():
            return sr.cond(w > 1.0, yes, lambda: w * 5.0)

    for function in (changes_after, changes_before):
        with pytest.raises(errors.UnimplementedError, match="put the tape inside"):
            strategy._trace(function)


# --- Rows and gradients.


def test_rows_are_changed_where_they_are(strategy: ParameterServerStrategy, worker: Worker) -> None:
    start = np.arange(8, dtype="f").reshape(4, 2)
    (there,) = variables(strategy, start)
    here = sr.Variable(start)

    def step(table: Any, indices: Any, values: Any) -> None:
        rows = sr.IndexedSlices(values, indices)
        table.scatter_add(rows)
        table.scatter_sub(sr.IndexedSlices(values * 0.5, indices))
        table.scatter_mul(rows)
        table.scatter_max(rows)
        table.scatter_min(sr.IndexedSlices(values * 10.0, indices))
        table.scatter_div(rows)
        table.scatter_update(sr.IndexedSlices(values, indices + 1))
        table.batch_scatter_update(sr.IndexedSlices(values, indices - 1))

    indices, values = np.array([1, 2]), np.array([[2, 3], [4, 5]], "f")
    worker.run(step, there, indices, values)
    step(here, sr.constant(indices), sr.constant(values))
    equal(there, here)


def test_look_ups_send_rows_only(strategy: ParameterServerStrategy, worker: Worker) -> None:
    rows = np.arange(3000, dtype="f").reshape(1000, 3)
    (table,) = variables(strategy, rows)

    def step(ids: Any) -> Any:
        return sr.nn.embedding_lookup(table, ids), sr.gather(table, ids), table.sparse_read(ids)

    for found in worker.run(step, np.array([7, 3, 7])):
        equal(found, rows[[7, 3, 7]])
    plan, tensors = strategy._plan(step, (np.array([7, 3, 7]),))
    metadata = sr.v1.RunMetadata()
    options = sr.v1.RunOptions(trace_level=sr.v1.RunOptions.FULL_TRACE)
    worker.session.run(plan.fetches, dict(zip(plan.feeds, tensors)), options, metadata)
    ran = [
        (device.device, node.timeline_label or node.node_name)
        for device in metadata.step_stats.dev_stats
        for node in device.node_stats
    ]
    assert [device for device, label in ran if "= VariableGather" in label] == [table.device]
    assert not [label for _, label in ran if "= VariableRead" in label]


def test_gradients_of_look_ups_are_rows(strategy: ParameterServerStrategy, worker: Worker) -> None:
    (table,) = variables(strategy, np.ones((10, 2), "f"))

    def step(ids: Any) -> Any:
        with sr.GradientTape() as tape:
            loss = sr.reduce_sum(sr.square(sr.nn.embedding_lookup(table, ids)))
        return tape.gradient(loss, table)

    rows = worker.run(step, np.array([3, 1, 3]))
    assert isinstance(rows, sr.IndexedSlices)
    assert rows.dense_shape == (10, 2)
    equal(rows.indices, [3, 1, 3])
    equal(rows.values, np.full((3, 2), 2.0))


def test_gradients_by_values_read_before_and_after_a_write(
    strategy: ParameterServerStrategy, worker: Worker
) -> None:
    (table,) = variables(strategy, np.ones((4, 1), "f"))

    def step() -> Any:
        with sr.GradientTape() as tape:
            y = sr.reduce_sum(sr.square(sr.gather(table, [0, 1])))
            table.scatter_add(sr.IndexedSlices([[2.0]], [1]))
            y += sr.reduce_sum(sr.square(sr.gather(table, [1])))
        return tape.gradient(y, table)

    rows = worker.run(step)
    equal(rows.indices, [0, 1, 1])
    equal(rows.values, [[2], [2], [6]])


OPTIMIZERS = [
    sr.optimizers.SGD(0.1), sr.optimizers.Momentum(0.1), sr.optimizers.Adagrad(0.1),
    sr.optimizers.Adam(0.1, global_clipnorm=1.0), sr.optimizers.Ftrl(0.1),
]  # fmt: skip


@pytest.mark.parametrize("which", range(len(OPTIMIZERS)))
def test_optimizers_update_where_variables_are(
    which: int, strategy: ParameterServerStrategy, worker: Worker
) -> None:
    def made() -> sr.optimizers.Optimizer:
        like = OPTIMIZERS[which]
        options = {name: getattr(like, name) for name in ("clipnorm", "global_clipnorm")}
        return type(like)(0.1, **options)

    start = [np.ones((6, 2), "f"), np.ones(2, "f")]
    there, here = variables(strategy, *start), [sr.Variable(value) for value in start]

    def step_of(optimizer: sr.optimizers.Optimizer, table: Any, bias: Any) -> Any:
        def step(ids: Any) -> Any:
            with sr.GradientTape() as tape:
                loss = sr.reduce_sum(sr.square(sr.nn.embedding_lookup(table, ids) - bias * 3.0))
            optimizer.apply_gradients(zip(tape.gradient(loss, [table, bias]), [table, bias]))
            return loss

        return step

    far, near = made(), made()
    step, local = step_of(far, *there), step_of(near, *here)
    for ids in ([1, 2, 1], [0, 1, 5], [3, 3, 3]):
        equal(worker.run(step, np.array(ids)), local(sr.constant(np.array(ids))))
    for a, b in zip(there, here):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5)
        assert {slot.device for slot in far.slots(a).values()} <= {a.device}
        assert list(far.slots(a)) == list(near.slots(b))
    assert far.iterations.numpy() == 3
    assert far.iterations.device.startswith("/job:ps")


def test_an_update_is_sent_nothing_but_its_gradient(strategy: ParameterServerStrategy) -> None:
    (w,) = variables(strategy, [1.0, 2.0])
    optimizer = sr.optimizers.Adagrad(0.1)

    def step(grad: Any) -> None:
        optimizer.apply_gradients([(grad, w)])

    update, count = strategy._trace(step, (np.ones(2, "f"),)).targets
    graph = strategy._graph
    numbers = [x.op for x in graph.get_operation_by_name(update).inputs[2:4]]
    assert [(op.type, op.device) for op in numbers] == [("Const", w.device)] * 2
    assert graph.get_operation_by_name(count).type == "VariableAssignAdd"


def test_an_optimizer_counts_what_all_workers_do(strategy: ParameterServerStrategy) -> None:
    (w,) = variables(strategy, 8.0)
    schedule = sr.optimizers.schedules.PiecewiseConstantDecay([1, 2], [0.5, 0.25, 0.0])
    optimizer = sr.optimizers.SGD(schedule)
    workers = [Worker(strategy, index) for index in range(2)]

    def step() -> None:
        optimizer.minimize(lambda: w * 1.0, [w])

    for worker in [*workers, *workers]:
        worker.run(step)
    assert optimizer.iterations.numpy() == 4
    equal(w, 8 - 0.5 - 0.5 - 0.25)
    for worker in workers:
        worker.close()


def test_float16_variables_are_updated(strategy: ParameterServerStrategy, worker: Worker) -> None:
    (w,) = variables(strategy, np.ones(2, np.float16))
    optimizer = sr.optimizers.SGD(0.5)

    def step() -> None:
        with sr.GradientTape() as tape:
            loss = sr.reduce_sum(w * w)
        optimizer.apply_gradients([(tape.gradient(loss, w), w)])

    worker.run(step)
    worker.run(step)
    equal(w, [0, 0])


# --- Variables in shards.


def test_a_table_in_shards_trains_as_one(cluster: dict[str, list[str]]) -> None:
    strategy = strategy_of(cluster, FixedShardsPartitioner(3))
    start = np.arange(20, dtype="f").reshape(10, 2)
    with strategy.scope():
        table = sr.Variable(start)
    whole = sr.Variable(start)
    optimizers = sr.optimizers.Adagrad(0.5), sr.optimizers.Adagrad(0.5)
    assert len(table.variables) == 3

    def step(table: Any, variables: Any, optimizer: Any, ids: Any) -> Any:
        with sr.GradientTape() as tape:
            rows = sr.nn.embedding_lookup(table, ids)
            loss = sr.reduce_mean(sr.square(rows - 1.0))
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss

    worker = Worker(strategy)
    for ids in ([0, 9, 4, 4], [9, 1, 2, 3], [8, 5, 6, 7]):
        found = worker.run(step, table, table.variables, optimizers[0], np.array(ids))
        local = step(whole, [whole], optimizers[1], sr.constant(np.array(ids)))
        equal(found, local)
    np.testing.assert_allclose(table.numpy(), whole.numpy(), rtol=1e-5)

    def change(values: Any) -> Any:
        table.assign(values)
        table.scatter_add(sr.IndexedSlices([[1.0, 1.0], [2.0, 2.0]], [9, 0]))
        table.assign_sub(values * 0.5)
        return table[2:8:3], sr.reduce_sum(table)

    some, total = worker.run(change, start)
    equal(some, start[2:8:3] / 2)
    equal(total, start.sum() / 2 + 6)
    worker.close()


# --- Tasks that are processes.


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_servers_in_processes_of_their_own(protocol: str) -> None:
    spec = {"ps": addresses(2), "worker": addresses(1)}
    processes = Processes()
    try:
        for job, tasks in spec.items():
            for task in range(len(tasks)):
                processes.serve(spec, job, task, "--protocol", protocol)
        strategy = strategy_of(spec)
        v, w = variables(strategy, [1.0, 2.0], np.zeros((5, 2), "f"))
        worker = Worker(strategy)
        optimizer = sr.optimizers.Adam(0.1)

        @sr.function
        def step(ids: Any) -> Any:
            with sr.GradientTape() as tape:
                loss = sr.reduce_sum(sr.square(sr.gather(w, ids) - v))
            optimizer.apply_gradients(zip(tape.gradient(loss, [v, w]), [v, w]))
            return loss

        losses = [worker.run(step, np.array([0, 3])) for _ in range(3)]
        assert losses[2] < losses[1] < losses[0]
        assert optimizer.iterations.numpy() == 3
        assert w.numpy()[3, 0] > 0
        worker.close()
    finally:
        processes.end()


# --- What else functions do.


def test_assertions_count_without_a_result(
    strategy: ParameterServerStrategy, worker: Worker
) -> None:
    (v,) = variables(strategy, 0.0)

    def step(x: Any) -> None:
        sr.debugging.assert_less(x, 5.0, message="x is too large")
        v.assign_add(x)

    worker.run(step, np.array(2.0, "f"))
    with pytest.raises(errors.InvalidArgumentError, match="x is too large"):
        worker.run(step, np.array(7.0, "f"))


def test_queues_are_used_in_order(strategy: ParameterServerStrategy, worker: Worker) -> None:
    (v,) = variables(strategy, 1.0)

    def step() -> Any:
        queue = sr.queue.FIFOQueue(10, ["float32"], shapes=[()])
        queue.enqueue(v)
        v.assign_add(1.0)
        queue.enqueue(v)
        first = queue.dequeue()
        size = queue.size()
        return first, size, queue.dequeue()

    for found, wanted in zip(worker.run(step), (1, 1, 2)):
        equal(found, wanted)
    for found, wanted in zip(worker.run(step), (2, 1, 3)):
        equal(found, wanted)


def test_random_numbers_differ_from_step_to_step(
    strategy: ParameterServerStrategy, worker: Worker
) -> None:
    def step() -> Any:
        return sr.random.normal([8])

    assert not np.array_equal(worker.run(step), worker.run(step))


def test_weighted_look_ups_of_shards(cluster: dict[str, list[str]]) -> None:
    strategy = strategy_of(cluster, FixedShardsPartitioner(2))
    start = np.arange(20, dtype="f").reshape(10, 2)
    with strategy.scope():
        table = sr.Variable(start)
    whole = sr.Variable(start)
    ids = sr.sparse.SparseTensor([[0, 0], [0, 1], [2, 0]], np.array([9, 1, 5]), [3, 2])
    weights = sr.sparse.SparseTensor(ids.indices, [1.0, 3.0, 2.0], [3, 2])

    def step(table: Any, variables: Any, ids: Any, weights: Any) -> Any:
        with sr.GradientTape() as tape:
            found = [
                sr.nn.embedding_lookup_sparse(table, ids, None, "sqrtn"),
                sr.nn.embedding_lookup_sparse(table, ids, weights, "mean"),
                sr.nn.safe_embedding_lookup_sparse(table, ids, weights, "sum", default_id=3),
            ]
            loss = sr.add_n([sr.reduce_sum(sr.square(one)) for one in found])
        grads = tape.gradient(loss, variables)
        return found, [sr.convert_to_tensor(grad) for grad in grads]

    worker = Worker(strategy)
    found, grads = worker.run(step, table, table.variables, ids, weights)
    wanted, (grad,) = step(whole, [whole], ids, weights)
    for one, other in zip(found, wanted):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    np.testing.assert_allclose(np.concatenate(grads), grad, rtol=1e-5)
    worker.close()


def test_functions_in_functions(strategy: ParameterServerStrategy, worker: Worker) -> None:
    (v,) = variables(strategy, 1.0)

    @sr.function
    def inner(x: Any) -> Any:
        v.assign_add(x)
        return v * 2.0

    @sr.function
    def pure(x: Any) -> Any:
        return x * x

    concrete = pure.get_concrete_function(sr.TensorSpec([]))

    @sr.function
    def outer(x: Any) -> Any:
        y = inner(x)
        return inner(x), y, concrete(v)

    for found, wanted in zip(worker.run(outer, np.array(1.0, "f")), (6, 4, 9)):
        equal(found, wanted)
    equal(v, 3)


def test_own_gradients_and_maps_use_variables(
    strategy: ParameterServerStrategy, worker: Worker
) -> None:
    (w,) = variables(strategy, [1.0, 2.0])

    @sr.custom_gradient
    def tripled(x: Any) -> Any:
        return x * 3.0, lambda dy: dy * 100.0

    def step(rows: Any) -> Any:
        with sr.GradientTape() as tape:
            mapped = sr.map_fn(lambda row: sr.reduce_sum(row * w), rows)
            loss = sr.reduce_sum(tripled(w)) + sr.reduce_sum(mapped)
        return mapped, tape.gradient(loss, w)

    mapped, grad = worker.run(step, np.array([[1, 2], [3, 4]], "f"))
    equal(mapped, [5, 11])
    equal(grad, [104, 106])


def test_metrics_of_workers_add_up(strategy: ParameterServerStrategy) -> None:
    with strategy.scope():
        auc, mean = sr.keras.metrics.AUC(num_thresholds=20), sr.keras.metrics.Mean()
    workers = [Worker(strategy, index) for index in range(2)]
    near = sr.keras.metrics.AUC(num_thresholds=20)

    def step(labels: Any, scores: Any) -> None:
        auc.update_state(labels, scores)
        mean.update_state(scores)

    rng = np.random.default_rng(1)
    for worker in [*workers, *workers]:
        labels, scores = rng.integers(0, 2, 16).astype("f"), rng.random(16, "f")
        worker.run(step, labels, scores)
        near.update_state(labels, scores)
    equal(auc.result(), near.result())
    assert float(mean.result()) > 0
    for worker in workers:
        worker.close()


# --- Programs that nobody thought of.


def random_program(rng: np.random.Generator, depth: int) -> list[tuple[Any, ...]]:
    """Statements: reads and changes of three variables, branches and loops of statements."""
    kinds = ["read", "assign", "add", "rows", "update"] + ["cond", "while"] * (depth > 0)
    made: list[tuple[Any, ...]] = []
    for _ in range(rng.integers(1, 6)):
        kind = str(rng.choice(kinds))
        if kind == "cond":
            flag = int(rng.integers(2))
            made.append((kind, flag, *(random_program(rng, depth - 1) for _ in range(2))))
        elif kind == "while":
            made.append((kind, int(rng.integers(4)), random_program(rng, depth - 1)))
        else:
            made.append((kind, *(int(i) for i in rng.integers(3, size=2)), float(rng.random())))
    return made


def interpret(program: list[tuple[Any, ...]], variables: list[Any], flags: Any, seen: Any) -> Any:
    """Runs a program; a number that depends on all that it read."""
    for kind, *rest in program:
        if kind == "cond":
            flag, *branches = rest
            seen = sr.cond(
                flags[flag], *(
                    lambda p=branch, s=seen: interpret(p, variables, flags, s)
                    for branch in branches
                )
            )  # fmt: skip
            continue
        if kind == "while":
            count, body = rest
            _, seen = sr.while_loop(
                lambda i, _, n=count: i < n,
                lambda i, s, p=body: (i + 1, interpret(p, variables, flags, s)),
                [sr.constant(0), seen],
            )
            continue
        v, w, number = variables[rest[0]], variables[rest[1]], rest[2]
        if kind == "read":
            seen = seen * 0.5 + sr.reduce_sum(v * number)
        elif kind == "assign":
            v.assign(v * 0.5 + w * 0.25 + number)
        elif kind == "add":
            v.assign_add(w * 0.125)
        elif kind == "rows":
            v.scatter_update(sr.IndexedSlices(sr.gather(w, [1]) * 0.5 + number, [0]))
        else:
            sr.optimizers.SGD(0.25).apply_gradients([(w * 0.5, v)])
    return seen


@pytest.mark.parametrize("seed", range(8))
def test_programs_do_what_they_do_at_once(
    seed: int, strategy: ParameterServerStrategy, worker: Worker
) -> None:
    rng = np.random.default_rng(seed)
    start = [rng.random((2, 1)).astype("f") for _ in range(3)]
    there, here = variables(strategy, *start), [sr.Variable(value) for value in start]
    program = random_program(rng, 2)

    def step(variables: list[Any], flags: Any, seen: Any) -> Any:
        return interpret(program, variables, flags, seen)

    for _ in range(3):
        flags, seen = rng.integers(2, size=2).astype(bool), np.array(1.0, "f")
        found = worker.run(step, there, flags, seen)
        wanted = step(here, sr.constant(flags), sr.constant(seen))
        np.testing.assert_allclose(found, wanted, rtol=1e-5, err_msg=str(program))
        for a, b in zip(there, here):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, err_msg=str(program))
