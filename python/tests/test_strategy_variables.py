"""Variables of a ParameterServerStrategy in the coordinator: read, changed, in shards, many at
once."""

from __future__ import annotations

import copy
import functools
import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from strategies import cluster_fixture, equal, ps, strategy_of

import sidereal as sr
import sidereal.v1 as v1
from sidereal import errors
from sidereal.distribute import ParameterServerStrategy
from sidereal.distribute.distribute_utils import cache_variable_reads
from sidereal.distribute.experimental.partitioners import (
    FixedShardsPartitioner,
    MaxSizePartitioner,
    MinSizePartitioner,
)
from sidereal.distribute.sharded_variable import ShardedVariable
from sidereal.variable import together

cluster = cluster_fixture(3, 2, ["grpc"])


@pytest.fixture
def strategy(cluster: dict[str, list[str]]) -> ParameterServerStrategy:
    return strategy_of(cluster)


# --- Variables in the coordinator.


def test_a_variable_is_read_and_changed_at_once(strategy: ParameterServerStrategy) -> None:
    with strategy.scope():
        v = sr.Variable([[1.0, 2.0], [3.0, 4.0]], name="v")
    assert isinstance(v, sr.Variable)
    assert (v.name, v.shape, v.dtype, v.ndim, v.trainable) == ("v", (2, 2), sr.float32, 2, True)
    assert repr(v) == f"<Variable 'v' shape=(2, 2) dtype=float32, device={ps(0)}>"
    assert len(v) == 2
    equal(v + 1, [[2, 3], [4, 5]])
    equal(2 * v @ v, 2 * v.numpy() @ v.numpy())
    equal(v[1], [3, 4])
    equal(v > 2.0, [[False, False], [True, True]])
    equal([row.numpy() for row in v], [[1, 2], [3, 4]])
    before = v.read_value()
    assert v.assign([[1.0, 1.0], [1.0, 1.0]]) is v
    assert v.assign_add(np.ones((2, 2), "f"), read_value=False) is v
    assert v.assign_sub([[0.0, 1.0], [2.0, 3.0]], use_locking=True, name="sub") is v
    equal(v, [[2, 1], [0, -1]])
    equal(before, [[1, 2], [3, 4]])
    equal(np.asarray(v), v.numpy())
    with pytest.raises(errors.InvalidArgumentError, match=r"'v' has shape \(2, 2\)"):
        v.assign([1.0])
    with pytest.raises(errors.InvalidArgumentError, match="float32"):
        v.assign(sr.constant([[1, 2], [3, 4]]))
    with pytest.raises(NotImplementedError, match="cannot be copied"):
        copy.deepcopy(v)


def test_values_of_all_kinds(strategy: ParameterServerStrategy) -> None:
    with strategy.scope():
        n = sr.Variable(1, dtype="int64")
        text = sr.Variable(["a", "bc"])
        flag = sr.Variable(True)
        half = sr.Variable(np.ones(3, np.float16))
        empty = sr.Variable(np.zeros((0, 4), "f"))
        like = sr.Variable(n)
    n.assign_add(1 << 40)
    assert int(n) == (1 << 40) + 1
    assert int(like) == 1
    assert text.numpy().tolist() == [b"a", b"bc"]
    text.assign(["x", "yz"])
    assert text.numpy().tolist() == [b"x", b"yz"]
    assert bool(flag)
    assert not n.trainable
    assert half.dtype == sr.float16
    assert empty.numpy().shape == (0, 4)
    assert f"{sr.Variable(1.5):.2f}" == "1.50"


def test_initial_values(strategy: ParameterServerStrategy) -> None:
    calls = []

    def initial() -> Any:
        calls.append(1)
        return np.ones(2, "f")

    with strategy.scope():
        equal(sr.Variable(initial), [1, 1])
        assert calls == [1]
        with pytest.raises(ValueError, match="`initial_value` must be specified"):
            sr.Variable(None)
        with pytest.raises(errors.InvalidArgumentError, match=r"was to have \(3,\)"):
            sr.Variable([1.0], shape=[3])
        for kind in ("random_uniform", "glorot_normal", "zeros", "ones"):
            initializer = sr.keras.initializers.get(kind)
            made = functools.partial(initializer, (4, 3), dtype="float32")
            equal(sr.Variable(made), initializer((4, 3)))
            equal(sr.Variable(lambda f=made: f()), initializer((4, 3)))
            with pytest.raises(errors.InvalidArgumentError, match=r"was to have \(3,\)"):
                sr.Variable(made, shape=[3])


def test_initializers_run_where_the_variable_is(strategy: ParameterServerStrategy) -> None:
    initializer = sr.keras.initializers.RandomNormal(seed=3)
    with strategy.scope():
        v = sr.Variable(functools.partial(initializer, (100, 10)), name="big")
        w = sr.Variable(np.zeros((100, 10), "f"), name="sent")
    made = [
        op for op in strategy._graph.get_operations() if op.name.startswith("big/Initializer/")
    ]
    assert {op.device for op in made if "Assign" not in op.name} == {v.device}
    assert sum(op.type == "Placeholder" for op in made) == 0
    equal(v, initializer((100, 10)))
    equal(w, np.zeros((100, 10)))
    slots = sr.optimizers.Adagrad(0.1).slots(v)
    assert slots["accumulator"].device == v.device


def test_rows_are_read_and_changed_alone(strategy: ParameterServerStrategy) -> None:
    start = np.arange(12, dtype="f").reshape(4, 3)
    with strategy.scope():
        there = sr.Variable(start)
    here = sr.Variable(start)
    rows = sr.IndexedSlices([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], [2, 0])
    for method in ("add", "sub", "mul", "div", "max", "min", "update"):
        for variable in (there, here):
            getattr(variable, f"scatter_{method}")(rows)
        equal(there, here)
    for variable in (there, here):
        variable.batch_scatter_update(rows)
    equal(there, here)
    assert there.scatter_add(rows) is there
    equal(sr.gather(there, [[0, 3]]), there.numpy()[[[0, 3]]])
    equal(there.sparse_read([1, 1]), there.numpy()[[1, 1]])
    equal(sr.nn.embedding_lookup(there, [2]), there.numpy()[[2]])
    with pytest.raises(TypeError, match="takes IndexedSlices"):
        there.scatter_add([1.0])  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgumentError, match="9"):
        there.sparse_read([9])


def test_steps_of_the_coordinator_do_not_grow_the_graph(strategy: ParameterServerStrategy) -> None:
    with strategy.scope():
        v = sr.Variable(np.zeros((5, 2), "f"))

    def all_of_it(n: int) -> None:
        v.assign_add(np.ones((5, 2), "f"))
        v.scatter_add(sr.IndexedSlices(np.ones((n, 2), "f"), list(range(n))))
        v.scatter_mul(sr.IndexedSlices(np.ones((n, 2), "f"), list(range(n))))
        v.sparse_read(list(range(n)))
        v.numpy()

    all_of_it(1)
    before = strategy._graph.version
    for n in (2, 3, 4):
        all_of_it(n)
    assert strategy._graph.version == before


def test_threads_change_variables_at_once(strategy: ParameterServerStrategy) -> None:
    with strategy.scope():
        v = sr.Variable(0.0)

    def add() -> None:
        for _ in range(20):
            v.assign_add(1.0)

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal(v, 80)


def test_gradients_in_the_coordinator(strategy: ParameterServerStrategy) -> None:
    with strategy.scope():
        w = sr.Variable([1.0, 2.0])
        table = sr.Variable(np.ones((5, 2), "f"))
        optimizer = sr.optimizers.Adam(0.5)
    near = [sr.Variable([1.0, 2.0]), sr.Variable(np.ones((5, 2), "f"))]
    local = sr.optimizers.Adam(0.5)
    for variables, one in (([w, table], optimizer), (near, local)):
        for _ in range(2):
            with sr.GradientTape() as tape:
                rows = sr.nn.embedding_lookup(variables[1], [1, 3, 1])
                loss = sr.reduce_sum(rows * variables[0] * variables[0])
            grads = tape.gradient(loss, variables)
            assert isinstance(grads[1], sr.IndexedSlices)
            one.apply_gradients(zip(grads, variables))
    np.testing.assert_allclose(w.numpy(), near[0].numpy(), rtol=1e-5)
    np.testing.assert_allclose(table.numpy(), near[1].numpy(), rtol=1e-5)
    assert optimizer.iterations.numpy() == 2
    assert optimizer.iterations.device.startswith("/job:ps")
    assert {slot.device for slot in optimizer.slots(table).values()} == {table.device}


def test_functions_run_with_the_coordinator_s_session(strategy: ParameterServerStrategy) -> None:
    with strategy.scope():
        v = sr.Variable([1.0, 2.0])
    traces = []

    @sr.function
    def step(x: Any, twice: bool = False) -> Any:
        traces.append(1)
        v.assign_add(x * 2.0 if twice else x)
        return {"new": v + 0.0}

    equal(step(np.ones(2, "f"))["new"], [2, 3])
    equal(step(np.ones(2, "f"))["new"], [3, 4])
    known = len(traces)
    equal(step(np.ones(2, "f"))["new"], [4, 5])
    assert len(traces) == known
    equal(step(np.ones(2, "f"), twice=True)["new"], [6, 7])
    with sr.GradientTape(), pytest.raises(errors.UnimplementedError, match="put the tape inside"):
        step(np.ones(2, "f"))


def test_concrete_functions_run_on_the_cluster(cluster: dict[str, list[str]]) -> None:
    strategy = strategy_of(cluster, FixedShardsPartitioner(2))
    with strategy.scope():
        v, table, other = sr.Variable(1.0), sr.Variable([1.0, 2.0]), sr.Variable([1.0, 2.0])

    @sr.function
    def step(x: Any, table: Any, scale: float) -> Any:
        v.assign_add(sr.reduce_sum(x) * scale)
        return v + sr.reduce_sum(table)

    concrete = step.get_concrete_function(sr.TensorSpec([None]), table, 2.0)
    assert concrete.name == "step"
    assert concrete.arguments[0][0] == sr.TensorSpec([None])
    equal(concrete(np.ones(3, "f"), table, 2.0), 10)
    plan, values = strategy._plan(concrete, (np.ones(1, "f"), table, 2.0))
    assert plan is strategy._trace(concrete, (np.ones(1, "f"), table, 2.0))
    equal(strategy._run(plan, values), 12)
    equal(sr.function(lambda x: concrete(x, table, 2.0) * 2.0)(np.ones(1, "f")), 28)
    assert "VariableAssignAdd" in concrete.graph_text()
    with pytest.raises(errors.InvalidArgumentError, match="for other variables"):
        concrete(np.ones(3, "f"), other, 2.0)
    with pytest.raises(errors.InvalidArgumentError, match=r"float32\[\?\]"):
        concrete(np.ones((3, 1), "f"), table, 2.0)
    with pytest.raises(errors.InvalidArgumentError, match="another strategy"):
        strategy_of(cluster)._plan(concrete, (np.ones(1, "f"), table, 2.0))
    with pytest.raises(TypeError, match="0 tensors are given"):
        concrete()


def test_other_graphs_are_refused(strategy: ParameterServerStrategy) -> None:
    with strategy.scope():
        v = sr.Variable(1.0, name="v")
    with v1.Graph().as_default():
        with pytest.raises(errors.InvalidArgumentError, match="in a graph that is not its"):
            v1.reduce_sum(v)


def test_values_do_not_leave_the_function_they_are_made_in(
    strategy: ParameterServerStrategy,
) -> None:
    with strategy.scope():
        v = sr.Variable(1.0)
    kept: list[Any] = []
    strategy._trace(lambda: kept.append(v * 2.0))
    uses = [
        lambda: kept[0] + 1.0,
        lambda: sr.cond(kept[0] > 1.0, lambda: 1.0, lambda: 2.0),
        lambda: strategy._trace(lambda: kept[0] + 1.0),
        lambda: strategy._trace(lambda: sr.cond(v > 1.0, lambda: kept[0], lambda: 2.0)),
        lambda: strategy._trace(lambda: kept[0]),
    ]
    for use in uses:
        with pytest.raises(errors.InvalidArgumentError, match="return it from the function"):
            use()
    with pytest.raises(errors.Error, match="has no array yet"):
        kept[0].numpy()


def test_a_strategy_that_nobody_has_is_gone(cluster: dict[str, list[str]]) -> None:
    def used() -> list[Any]:
        strategy = strategy_of(cluster)
        with strategy.scope():
            v = sr.Variable(1.0)

        @sr.function
        def step() -> Any:
            v.assign_add(1.0)
            return v.value()

        equal(step(), 2)
        return [weakref.ref(one) for one in (strategy, strategy._session, v)]

    alive = used()
    gc.collect()
    assert [one() for one in alive] == [None] * 3


def test_a_function_makes_its_variables_once(strategy: ParameterServerStrategy) -> None:
    made: list[Any] = []

    @sr.function
    def step(x: Any) -> Any:
        if not made:
            made.append(sr.Variable([5.0, 5.0]))
        made[0].assign_add(x)
        return made[0].read_value()

    plan, values = strategy._plan(step, (np.ones(2, "f"),))
    equal(made[0], [5, 5])
    assert made[0].device == ps(0)
    equal(strategy._run(plan, values), [6, 6])
    equal(strategy._run(plan, values), [7, 7])


def test_metrics_keep_their_numbers_on_parameter_servers(
    strategy: ParameterServerStrategy,
) -> None:
    with strategy.scope():
        mean = sr.keras.metrics.Mean()
    assert {v.device for v in mean.variables} <= {ps(i) for i in range(3)}
    mean.update_state([1.0, 2.0, 6.0])
    equal(mean.result(), 3)

    def step(x: Any) -> None:
        mean.update_state(x)

    plan, values = strategy._plan(step, (np.array([11.0], "f"),))
    strategy._run(plan, values)
    equal(mean.result(), 5)


def test_reads_are_cached_in_a_scope(strategy: ParameterServerStrategy) -> None:
    with strategy.scope():
        v = sr.Variable(1.0)
    with cache_variable_reads():
        equal(v.value(), 1)
        v.assign(5.0)
        equal(v.value(), 1)
        equal(v + 1.0, 2)
        with pytest.raises(ValueError, match="cannot be nested"), cache_variable_reads():
            pass
        seen: list[Any] = []
        thread = threading.Thread(target=lambda: seen.append(v.value()))
        thread.start()
        thread.join()
        equal(seen[0], 5)
    equal(v.value(), 5)
    table = sr.function(lambda: v + 0.0)
    with cache_variable_reads():
        equal(v.value(), 5)
        equal(table(), 5)
        equal(sr.function(lambda: v * 2.0)(), 10)


# --- Variables in shards.


def sharded(cluster: dict[str, list[str]], shards: int) -> ParameterServerStrategy:
    return strategy_of(cluster, FixedShardsPartitioner(shards))


@pytest.mark.parametrize(
    ("rows", "shards", "sizes"),
    [(13, 5, [3, 3, 3, 2, 2]), (10, 4, [3, 3, 2, 2]), (5, 2, [3, 2]), (2, 5, [1, 1])],
)
def test_rows_of_shards(
    cluster: dict[str, list[str]], rows: int, shards: int, sizes: list[int]
) -> None:
    strategy = sharded(cluster, shards)
    start = np.arange(rows * 2, dtype="f").reshape(rows, 2)
    with strategy.scope():
        table = sr.Variable(start, name="table")
    assert isinstance(table, ShardedVariable)
    assert (table.name, table.shape, table.dtype) == ("table", (rows, 2), sr.float32)
    assert [shard.shape[0] for shard in table.variables] == sizes
    assert [shard.name for shard in table.variables] == [
        f"table/part_{i}" for i in range(len(sizes))
    ]
    assert [shard.device for shard in table.variables] == [ps(i % 3) for i in range(len(sizes))]
    equal(table, start)
    with strategy.scope():
        assert sr.Variable([1.0] * 9).variables[0].device == ps(len(sizes) % 3)
        whole = sr.Variable(1.0)
        assert not isinstance(whole, ShardedVariable)
        with strategy.extended.colocate_vars_with(table.variables[1]):
            beside = sr.Variable(start)
        assert beside.device == ps(1)
        assert not isinstance(beside, ShardedVariable)


def test_one_shard_is_an_ordinary_variable(cluster: dict[str, list[str]]) -> None:
    with strategy_of(cluster, MinSizePartitioner(1 << 10, 8)).scope():
        small = sr.Variable(np.zeros((10, 2), "f"))
        large = sr.Variable(np.zeros((1024, 2), "f"))
    assert small.device == ps(0)
    assert [shard.shape[0] for shard in large.variables] == [128] * 8
    with strategy_of(cluster, MaxSizePartitioner(4, 2)).scope():
        assert [shard.shape for shard in sr.Variable(np.zeros((6, 1), "f"))] == [(3, 1), (3, 1)]


@pytest.mark.parametrize("parts", [None, [], [0, 1], [2, 2], [1, 2]])
def test_partitioners_that_are_wrong(cluster: dict[str, list[str]], parts: Any) -> None:
    seen = []

    def partitioner(shape: Any, dtype: Any) -> Any:
        seen.append((tuple(shape), dtype))
        return parts

    with strategy_of(cluster, partitioner).scope():
        with pytest.raises(ValueError, match="variable_partitioner must return"):
            sr.Variable(np.zeros((4, 2), "f"))
        assert seen == [((4, 2), sr.float32)]
        assert sr.Variable(3.0).shape == ()
        with pytest.raises(ValueError, match="`initial_value` must be specified"):
            sr.Variable(None)


def test_functions_make_shards(cluster: dict[str, list[str]]) -> None:
    strategy = sharded(cluster, 2)
    rows = np.arange(10, dtype="f").reshape(5, 2)
    calls: list[Any] = []

    def by_info(shard_info: Any) -> Any:
        calls.append((shard_info.shape, shard_info.offset))
        begin = shard_info.offset[0]
        return rows[begin : begin + shard_info.shape[0]]

    def by_shape(partition_shape: Any = None, partition_offset: Any = None) -> Any:
        calls.append((tuple(partition_shape), tuple(partition_offset)))
        return rows[partition_offset[0] : partition_offset[0] + partition_shape[0]]

    def whole() -> Any:
        calls.append("whole")
        return rows

    with strategy.scope():
        for function in (by_info, by_shape):
            calls.clear()
            table = sr.Variable(function, shape=(5, 2), dtype="float32")
            assert calls == [((3, 2), (0, 0)), ((2, 2), (3, 0))]
            equal(table, rows)
        for options in ({"shape": (5, 2), "dtype": "float32"}, {}):
            calls.clear()
            equal(sr.Variable(whole, **options), rows)
            assert calls == ["whole"]


def test_initializers_make_shards_where_they_are(cluster: dict[str, list[str]]) -> None:
    strategy = sharded(cluster, 3)
    with strategy.scope():
        for kind in ("zeros", "ones", "random_normal", "glorot_uniform"):
            initializer = sr.keras.initializers.get(kind)
            before = strategy._graph.version
            table = sr.Variable(functools.partial(initializer, (300, 40), dtype="float32"))
            made = strategy._graph.get_operations()[before:]
            assert not [op for op in made if op.type == "Placeholder"]
            assert [shard.shape for shard in table.variables] == [(100, 40)] * 3
            parts = [shard.numpy() for shard in table.variables]
            if kind in ("zeros", "ones"):
                equal(table, initializer((300, 40)))
                continue
            # Each has numbers of its own, of the whole's distribution.
            assert not np.array_equal(parts[0], parts[1])
            np.testing.assert_allclose(parts[1].std(), initializer((300, 40)).numpy().std(), 0.05)
            again = sr.Variable(functools.partial(initializer, (300, 40)))
            equal(again, table)
        # What is large data is not made part of the graph.
        for initializer in (
            sr.keras.initializers.Orthogonal(seed=1), sr.keras.initializers.Constant(np.eye(6)),
        ):  # fmt: skip
            table = sr.Variable(functools.partial(initializer, (6, 6)))
            equal(table, initializer((6, 6)))
            with strategy.extended.colocate_vars_with(table):
                before = strategy._graph.version
                equal(sr.Variable(functools.partial(initializer, (6, 6))), initializer((6, 6)))
                made = strategy._graph.get_operations()[before:]
                assert [op.type for op in made if "Variable" not in op.type] == ["Placeholder"]
        with pytest.raises(errors.InvalidArgumentError, match=r"was to have \(2, 2\)"):
            sr.Variable(functools.partial(sr.keras.initializers.Zeros(), (3, 2)), shape=(2, 2))


def test_shards_in_the_coordinator(cluster: dict[str, list[str]]) -> None:
    strategy = sharded(cluster, 3)
    start = np.arange(20, dtype="f").reshape(10, 2)
    with strategy.scope():
        there = sr.Variable(start)
    here = sr.Variable(start)
    rows = sr.IndexedSlices([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], [9, 0, 4])
    for variable in (there, here):
        variable.assign_add(start)
        variable.scatter_sub(rows)
        variable.scatter_max(rows)
        variable.scatter_update(rows)
    equal(there, here)
    equal(there[2:9:3], here[2:9:3])
    equal(there.sparse_read([9, 0, 9]), here.numpy()[[9, 0, 9]])
    equal(sr.nn.embedding_lookup(there, [[7], [2]]), here.numpy()[[[7], [2]]])

    @sr.function
    def step(table: Any, scale: Any) -> Any:
        table.assign(table * scale)
        return sr.reduce_sum(table)

    equal(step(there, 2.0), 2 * here.numpy().sum())
    equal(there, 2 * here.numpy())
    local = ShardedVariable([sr.Variable(start[:5]), sr.Variable(start[5:])])
    equal(step(local, 3.0), 3 * start.sum())
    with strategy.scope():
        other = sr.Variable(start)
    equal(step(other, 2.0), 2 * start.sum())
    equal(there, 2 * here.numpy())


# --- Steps of the coordinator.


@pytest.fixture
def steps(strategy: ParameterServerStrategy, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What each step of the coordinator's session fetches and runs."""
    found: list[Any] = []
    run = strategy._session._run

    def noting(fetches: Any, targets: Any, *feeds: Any) -> Any:
        found.append((len(fetches), len(targets)))
        return run(fetches, targets, *feeds)

    monkeypatch.setattr(strategy._session, "_run", noting)
    return found


def test_first_values_of_many_variables_are_one_step(
    strategy: ParameterServerStrategy, steps: list[Any]
) -> None:
    zeros = functools.partial(sr.keras.initializers.Zeros(), (2,))
    with strategy.scope():
        made = [sr.Variable(zeros) for _ in range(4)]
    assert steps == []
    equal(made[3], 0)
    assert steps == [(0, 4), (1, 0)]


def test_variables_are_read_and_assigned_to_together(
    strategy: ParameterServerStrategy, steps: list[Any]
) -> None:
    with strategy.scope():
        v, w, other = (sr.Variable(float(i)) for i in range(3))
    own = sr.Variable(7.0)
    steps.clear()
    with together([v, w, own], "VariableAssign"):
        v.assign(3.0)
        w.assign(4.0)
        own.assign(8.0)
        assert steps == []
    assert steps == [(0, 2)]
    with together([v, w, own], "VariableRead"):
        equal([v, w.numpy(), v + 1, own], [3, 4, 4, 8])
        assert steps == [(0, 2), (2, 0)]
        # What is changed is read anew.
        v.assign_add(1.0)
        equal([v, other], [4, 2])
    w.assign_add(1.0)
    equal(w, 5)


def test_assignments_together_come_before_all_else(
    strategy: ParameterServerStrategy, steps: list[Any]
) -> None:
    with strategy.scope():
        v, w = sr.Variable(1.0), sr.Variable(2.0)

    @sr.function
    def double() -> Any:
        return w * 2.0

    with together([v, w], "VariableAssign"):
        v.assign(3.0)
        v.assign(4.0)
        equal(v, 4)
        w.assign(5.0)
        equal(double(), 10)
        v.assign(6.0)
        with together([w], "VariableRead"):
            equal(w, 5)
        with pytest.raises(ValueError, match="given up"), together([w], "VariableAssign"):
            w.assign(7.0)
            raise ValueError("given up")
    equal([v, w], [6, 7])
