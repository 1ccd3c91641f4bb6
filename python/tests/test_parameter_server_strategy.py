"""ParameterServerStrategy in the coordinator: clusters, scopes, and variables on parameter servers,
as TensorFlow has them."""

from __future__ import annotations

import json
import logging
import threading
from typing import Any

import pytest
from strategies import cluster_fixture, equal, ps, strategy_of

import sidereal as sr
import sidereal.v1 as v1
from sidereal.distribute import (
    InputContext,
    ParameterServerStrategy,
    ReduceOp,
    get_replica_context,
    get_strategy,
    has_strategy,
    in_cross_replica_context,
)
from sidereal.distribute.cluster_resolver import SimpleClusterResolver
from sidereal.train import ClusterSpec

cluster = cluster_fixture(3, 2, ["grpc"])


@pytest.fixture
def strategy(cluster: dict[str, list[str]]) -> ParameterServerStrategy:
    return strategy_of(cluster)


# --- Clusters.

GOOD = {"chief": ["h0:1"], "ps": ["h1:1", "h2:1"], "worker": ["h3:1"]}


@pytest.mark.parametrize(
    ("spec", "task", "message"),
    [
        ({}, ("chief", 0), "Cluster spec must be non-empty"),
        (GOOD | {"master": ["h4:1"]}, ("chief", 0), "Disallowed task type found in cluster spec"),
        (GOOD, ("foobar", 0), "Unrecognized task_type: 'foobar', valid task types are"),
        ({"ps": ["h1:1"], "worker": ["h2:1"]}, ("chief", 0), "`task_type` 'chief' not found in"),
        (GOOD | {"chief": ["h0:1", "h4:1"]}, ("chief", 0), "at most one 'chief' job"),
        (GOOD | {"evaluator": ["h5:1", "h6:1"]}, ("chief", 0), "at most one 'evaluator' job"),
        (GOOD, ("chief", 1), "The `task_id` 1 exceeds the maximum id of chief"),
        (GOOD | {"ps": []}, ("chief", 0), "There must be at least one ps"),
        ({"chief": ["h0:1"], "worker": ["h1:1"]}, ("chief", 0), "There must be at least one ps"),
        (GOOD | {"worker": []}, ("chief", 0), "There must be at least one worker"),
        (GOOD, ("worker", 0), "the coordinator cannot be a 'worker'"),
        (GOOD, ("ps", 1), "the coordinator cannot be a 'ps'"),
    ],
)  # fmt: skip
def test_clusters_that_cannot_be_coordinated(
    spec: dict[str, Any], task: tuple[str, int], message: str
) -> None:
    resolver = SimpleClusterResolver(ClusterSpec(spec), task_type=task[0], task_id=task[1])
    with pytest.raises(ValueError, match=message):
        ParameterServerStrategy(resolver)


def test_the_cluster_is_tf_config_s(
    cluster: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(ValueError, match="set TF_CONFIG"):
        ParameterServerStrategy()
    config = {
        "cluster": cluster | {"chief": ["localhost:1"]}, "task": {"type": "chief", "index": 0},
        "rpc_layer": "grpc",
    }  # fmt: skip
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    strategy = ParameterServerStrategy()
    assert strategy.cluster_resolver.task_type == "chief"
    with strategy.scope():
        v = sr.Variable(3.0)
    equal(v, 3)


def test_tasks_may_have_any_numbers(cluster: dict[str, list[str]]) -> None:
    spec: dict[str, Any] = {"ps": {1: cluster["ps"][1], 2: cluster["ps"][2]}, "worker": {4: "h:1"}}
    strategy = strategy_of(spec)
    assert strategy.extended.parameter_devices == (ps(1), ps(2))
    with strategy.scope():
        made = [sr.Variable(float(i)) for i in range(3)]
    assert [v.device for v in made] == [ps(1), ps(2), ps(1)]
    equal(made[1], 1)
    with pytest.raises(TypeError, match="give a ClusterResolver"):
        ParameterServerStrategy(spec)  # type: ignore[arg-type]


@pytest.mark.parametrize("task", [(None, None), ("evaluator", 0), ("chief", 0)])
def test_who_may_coordinate(cluster: dict[str, list[str]], task: Any) -> None:
    """An evaluator is not of the cluster; and who says nothing is the coordinator."""
    spec = cluster | {"chief": ["localhost:1"]}
    resolver = SimpleClusterResolver(ClusterSpec(spec), task_type=task[0], task_id=task[1])
    with ParameterServerStrategy(resolver).scope():
        equal(sr.Variable(1.0), 1)


def test_workers_need_not_be_there(cluster: dict[str, list[str]]) -> None:
    strategy = strategy_of(cluster | {"worker": ["localhost:1"]})
    with strategy.scope():
        equal(sr.Variable(3.0), 3)


def test_experimental_has_it_too() -> None:
    assert sr.distribute.experimental.ParameterServerStrategy is ParameterServerStrategy


def test_strategies_have_variables_of_their_own(cluster: dict[str, list[str]]) -> None:
    first, second = strategy_of(cluster), strategy_of(cluster)
    with first.scope():
        v = sr.Variable(1.0, name="v")
    with second.scope():
        w = sr.Variable(2.0, name="v")
    v.assign_add(10.0)
    equal(v, 11)
    equal(w, 2)


# --- Scopes and replicas.


def test_without_a_strategy_there_is_the_default_one() -> None:
    assert not has_strategy()
    assert not in_cross_replica_context()
    default = get_strategy()
    assert default.num_replicas_in_sync == 1
    assert default.run(lambda x: x + 1, (2,)) == 3
    context = get_replica_context()
    assert context is not None
    assert context.strategy is default
    assert default.experimental_distribute_dataset([1, 2]) == [1, 2]
    with default.scope() as entered:
        assert entered is default
        assert not has_strategy()
        equal(sr.Variable(1.0), 1)


def test_a_scope_is_the_strategy_s(strategy: ParameterServerStrategy) -> None:
    with strategy.scope() as entered:
        assert entered is strategy
        assert has_strategy()
        assert get_strategy() is strategy
        assert in_cross_replica_context()
        assert get_replica_context() is None
        with strategy.scope():
            assert get_strategy() is strategy
        assert get_strategy() is strategy
        seen: list[bool] = []
        thread = threading.Thread(target=lambda: seen.append(has_strategy()))
        thread.start()
        thread.join()
        assert seen == [False]
    assert not has_strategy()
    assert strategy.num_replicas_in_sync == 1


def test_scopes_of_two_strategies_do_not_nest(cluster: dict[str, list[str]]) -> None:
    first, second = strategy_of(cluster), strategy_of(cluster)
    with first.scope(), pytest.raises(RuntimeError, match="Mixing different"):
        with second.scope():
            pass
    assert not has_strategy()


def test_run_calls_a_replica(
    strategy: ParameterServerStrategy, caplog: pytest.LogCaptureFixture
) -> None:
    with strategy.scope():
        v = sr.Variable(2.0)

    def replica(x: Any, scale: float = 1.0) -> Any:
        assert get_strategy() is strategy
        assert not in_cross_replica_context()
        context = get_replica_context()
        assert context is not None
        assert (context.num_replicas_in_sync, context.replica_id_in_sync_group) == (1, 0)
        for method in (strategy.run, strategy.reduce, strategy.gather):
            with pytest.raises(RuntimeError, match="cross-replica context"):
                method(lambda: 1, 0)  # type: ignore[operator]
        with pytest.raises(RuntimeError, match="in a replica"), strategy.scope():
            pass
        assert context.merge_call(lambda s, y: (in_cross_replica_context(), y), (3,)) == (True, 3)
        equal(context.all_reduce("sum", v.value()), 2)
        v.assign_add(x * scale)
        return v + 0.0

    with caplog.at_level(logging.WARNING):
        equal(strategy.run(replica, (1.0,), {"scale": 3.0}), 5)
    assert "invoked without using `ClusterCoordinator.schedule`" in caplog.text
    equal(v, 5)
    caplog.clear()

    def scheduled() -> Any:
        return strategy.reduce("sum", strategy.run(lambda: v * 2.0), axis=None)

    plan, values = strategy._plan(scheduled)
    assert not caplog.records
    equal(strategy._run(plan, values), 10)


def test_reduce_and_gather(
    strategy: ParameterServerStrategy, caplog: pytest.LogCaptureFixture
) -> None:
    x = sr.constant([[1.0, 2.0], [3.0, 6.0]])
    assert strategy.reduce(ReduceOp.SUM, x, axis=None) is x
    assert "invoked without using `ClusterCoordinator.schedule`" in caplog.text
    equal(strategy.reduce("SUM", x, axis=0), [4, 8])
    equal(strategy.reduce("mean", x, axis=1), [1.5, 4.5])
    equal(strategy.reduce(ReduceOp.MEAN, {"a": x}, axis=0)["a"], [2, 4])
    with pytest.raises(ValueError, match=r"ReduceOp\.SUM or ReduceOp\.MEAN"):
        strategy.reduce("max", x, axis=0)
    assert strategy.gather(x, axis=1) is x
    with pytest.raises(ValueError, match="axis 2"):
        strategy.gather(x, axis=2)
    assert strategy.experimental_local_results(x) == (x,)


def test_extended_says_where_things_are(strategy: ParameterServerStrategy) -> None:
    assert strategy.extended.parameter_devices == (ps(0), ps(1), ps(2))
    assert [d[:29] for d in strategy.extended.worker_devices] == [
        f"/job:worker/replica:0/task:{i}/" for i in range(2)
    ]
    with strategy.scope():
        v = sr.Variable(1.0)
    assert strategy.extended.variable_created_in_scope(v)
    assert not strategy.extended.variable_created_in_scope(sr.Variable(1.0))
    strategy.extended.update(v, lambda variable, x: variable.assign_add(x), (2.0,))
    equal(strategy.extended.reduce_to("sum", v, v), 3)


def test_datasets_are_for_workers(strategy: ParameterServerStrategy) -> None:
    made = strategy.distribute_datasets_from_function(
        lambda c: (c.num_input_pipelines, c.input_pipeline_id, c.num_replicas_in_sync)
    )
    for distributed in (made, strategy.experimental_distribute_dataset([1, 2])):
        with pytest.raises(ValueError, match="create_per_worker_dataset"):
            iter(distributed)
    assert made.make() == (1, 0, 1)
    data = object()
    with strategy._worker_dataset():
        assert strategy.experimental_distribute_dataset(data) is data
        assert strategy.distribute_datasets_from_function(lambda _: data) is data


def test_input_contexts() -> None:
    context = InputContext(num_input_pipelines=2, input_pipeline_id=1, num_replicas_in_sync=4)
    assert (context.num_input_pipelines, context.input_pipeline_id) == (2, 1)
    assert context.get_per_replica_batch_size(12) == 3
    with pytest.raises(ValueError, match="cannot be divided"):
        context.get_per_replica_batch_size(10)
    assert str(context) == "tf.distribute.InputContext(input pipeline id 1, total: 2)"


# --- Where variables are.


def test_variables_go_round_the_parameter_servers(strategy: ParameterServerStrategy) -> None:
    outside = sr.Variable(0.0)
    assert outside.device.startswith("/job:localhost/")
    with strategy.scope():
        made = [sr.Variable(float(i)) for i in range(4)]
    assert [v.device for v in made] == [ps(0), ps(1), ps(2), ps(0)]
    for i, v in enumerate(made):
        equal(v, i)
    # The counter is the strategy's, not the scope's.
    with strategy.scope(), v1.device("/job:ps/task:0"):
        assert sr.Variable(0.0).device == ps(1)
    with v1.device("/job:worker/task:0"), strategy.scope():
        assert sr.Variable(0.0).device == ps(2)


def test_variables_beside_others(strategy: ParameterServerStrategy) -> None:
    with strategy.scope():
        v, w = sr.Variable(0.0), sr.Variable(1.0)
        with strategy.extended.colocate_vars_with(v):
            beside = sr.Variable(2.0)
        assert beside.device == v.device == ps(0)
        assert sr.Variable(0.0).device == ps(2)
    equal(beside, 2)
    assert w.device == ps(1)
    with pytest.raises(ValueError, match="`colocate_vars_with` must only be passed a variable"):
        with strategy.extended.colocate_vars_with(sr.Variable(0.0)):
            pass


def test_creators_around_and_inside_of_scopes(strategy: ParameterServerStrategy) -> None:
    own = sr.Variable(7.0, name="own")
    seen: list[dict[str, Any]] = []

    def replace(next_creator: Any, **kwargs: Any) -> Any:
        return own

    def change(next_creator: Any, **kwargs: Any) -> Any:
        seen.append(kwargs)
        return next_creator(**(kwargs | {"name": "changed"}))

    with sr.variable_creator_scope(replace), strategy.scope():
        assert sr.Variable(0.0) is own
    with strategy.scope(), sr.variable_creator_scope(change):
        v = sr.Variable(1.0, name="v", trainable=False)
    assert v.name == "changed"
    assert v.device == ps(0)
    assert not v.trainable
    assert seen[0]["name"] == "v"
    assert {"initial_value", "trainable", "dtype", "aggregation", "synchronization"} <= set(seen[0])
    with sr.variable_creator_scope(change):
        assert sr.Variable(1.0).name == "changed"


def test_aggregation_and_synchronization(strategy: ParameterServerStrategy) -> None:
    with strategy.scope():
        for aggregation in sr.VariableAggregation:
            v = sr.Variable(1.0, aggregation=aggregation)
            assert v.aggregation is aggregation
            strategy.run(lambda variable=v: variable.assign_add(1.0))
            equal(v, 2)
        assert sr.Variable(0.0).aggregation is sr.VariableAggregation.NONE
        on_read = sr.Variable(1.0, synchronization=sr.VariableSynchronization.ON_READ)
        assert not on_read.trainable
        for wrong in ("sum", None, 1, sr.VariableSynchronization.AUTO):
            with pytest.raises(ValueError, match="aggregation is"):
                sr.Variable(1.0, aggregation=wrong)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="synchronization is"):
            sr.Variable(1.0, synchronization="auto")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="ON_READ"):
            sr.Variable(1.0, True, synchronization=sr.VariableSynchronization.ON_READ)
    with pytest.raises(ValueError, match="aggregation is"):
        sr.Variable(1.0, aggregation="sum")  # type: ignore[arg-type]
