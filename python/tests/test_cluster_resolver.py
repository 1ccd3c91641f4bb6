"""Resolvers: what TF_CONFIG and programs say of a cluster, as TensorFlow reads it."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

import sidereal as sr
from sidereal.distribute._slurm import expand_hostlist, expand_tasks_per_node
from sidereal.distribute.cluster_resolver import (
    ClusterResolver,
    SimpleClusterResolver,
    SlurmClusterResolver,
    TFConfigClusterResolver,
    UnionClusterResolver,
)
from sidereal.train import ClusterSpec

CLUSTER = {
    "chief": ["h0:2222"],
    "ps": ["h1:2222", "h2:2222"],
    "worker": ["h3:2222", "h4:2222"],
}


@pytest.fixture()
def tf_config(monkeypatch: pytest.MonkeyPatch) -> Any:
    def put(config: Any) -> None:
        text = config if isinstance(config, str) else json.dumps(config)
        monkeypatch.setenv("TF_CONFIG", text)

    monkeypatch.delenv("TF_CONFIG", raising=False)
    return put


def test_tf_config_tells_the_cluster_and_the_task(tf_config: Any) -> None:
    tf_config({"cluster": CLUSTER, "task": {"type": "worker", "index": 1}})
    resolver = TFConfigClusterResolver()
    assert resolver.cluster_spec() == ClusterSpec(CLUSTER)
    assert (resolver.task_type, resolver.task_id) == ("worker", 1)
    assert resolver.rpc_layer is None
    assert resolver.environment == ""
    assert resolver.num_accelerators() == {}
    assert resolver.master() == "h4:2222"
    assert resolver.master("ps", 0) == "h1:2222"
    assert resolver.master("ps", 0, "grpc") == "grpc://h1:2222"
    with pytest.raises(ValueError, match="No such job"):
        resolver.master("evaluator", 0)
    with pytest.raises(ValueError, match="No task with index 7"):
        resolver.master("ps", 7)


def test_tf_config_is_read_again_at_every_question(tf_config: Any) -> None:
    resolver = TFConfigClusterResolver()
    assert resolver.cluster_spec() == ClusterSpec({})
    assert (resolver.task_type, resolver.task_id, resolver.master()) == (None, None, "")
    tf_config({"cluster": CLUSTER, "task": {"type": "ps", "index": "1"}, "rpc_layer": "grpc+x"})
    assert (resolver.task_type, resolver.task_id) == ("ps", 1)
    assert resolver.master() == "grpc+x://h2:2222"
    tf_config({"environment": "google", "session_master": "there:1", "task": {"type": 7}})
    assert (resolver.environment, resolver.master(), resolver.task_type) == (
        "google",
        "there:1",
        "7",
    )


def test_arguments_and_what_is_set_stand_above_tf_config(tf_config: Any) -> None:
    tf_config({"cluster": CLUSTER, "task": {"type": "ps", "index": 0}, "rpc_layer": "a"})
    resolver = TFConfigClusterResolver("worker", 0, "grpc", "here")
    assert (resolver.task_type, resolver.task_id, resolver.environment) == ("worker", 0, "here")
    assert resolver.master() == "grpc://h3:2222"
    resolver.task_type, resolver.task_id, resolver.rpc_layer = "chief", 0, "b"
    assert resolver.master() == "b://h0:2222"


def test_a_cluster_of_one_task_is_this_process(tf_config: Any) -> None:
    tf_config({"cluster": {"worker": ["h:1"]}})
    assert TFConfigClusterResolver().master() == ""
    tf_config({"cluster": {"worker": {"3": "h:1"}, "ps": {}}, "task": {"type": "worker"}})
    with pytest.raises(ValueError, match="no 'task' with 'type' and 'index'"):
        TFConfigClusterResolver().master()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "no JSON"),
        ("[]", "expected a JSON object"),
        ('{"cluster": []}', "'cluster' in TF_CONFIG"),
        ('{"task": 3}', "'task' in TF_CONFIG"),
        ('{"task": {"type": "ps", "index": "x"}}', "'index' of 'task'"),
    ],
)
def test_a_wrong_tf_config_says_what_is_wrong(tf_config: Any, text: str, said: str) -> None:
    tf_config(text)
    resolver = TFConfigClusterResolver()
    with pytest.raises(ValueError, match=said):
        resolver.cluster_spec()
        _ = resolver.task_id


def test_a_simple_resolver_tells_what_it_was_told() -> None:
    spec = ClusterSpec(CLUSTER)
    resolver = SimpleClusterResolver(
        spec, "h0:2222", "worker", 1, "here", {"GPU": 2}, rpc_layer="grpc"
    )
    assert resolver.cluster_spec() == spec
    assert resolver.master() == "grpc://h0:2222"
    assert resolver.master("worker", 0) == "grpc://h3:2222"
    assert resolver.master("worker", 0, rpc_layer="other") == "other://h3:2222"
    assert (resolver.task_type, resolver.task_id) == ("worker", 1)
    assert (resolver.environment, resolver.num_accelerators()) == ("here", {"GPU": 2})
    resolver.task_type = "ps"
    assert resolver.task_type == "ps"
    assert SimpleClusterResolver(spec).master() == ""
    with pytest.raises(TypeError, match="ClusterSpec"):
        SimpleClusterResolver(CLUSTER)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="master"):
        SimpleClusterResolver(spec, 7)  # type: ignore[arg-type]


def simple(cluster: Any, **more: Any) -> SimpleClusterResolver:
    return SimpleClusterResolver(ClusterSpec(cluster), **more)


def test_a_union_joins_jobs() -> None:
    first = simple({"ps": ["a:1"], "worker": ["b:1"]}, master="m:1", rpc_layer="grpc")
    second = simple({"worker": ["c:1", "d:1"], "chief": []}, master="n:1")
    union = UnionClusterResolver(first, second)
    assert union.cluster_spec().as_dict() == {
        "chief": {},
        "ps": ["a:1"],
        "worker": ["b:1", "c:1", "d:1"],
    }
    assert union.master() == "grpc://m:1"
    assert union.master("worker", 2) == "grpc://d:1"
    assert UnionClusterResolver(second, first).master(rpc_layer="x") == "x://n:1"
    named = UnionClusterResolver(first, task_type="ps", task_id=0, rpc_layer="y")
    assert (named.task_type, named.task_id, named.master()) == ("ps", 0, "y://m:1")


def test_a_union_with_a_sparse_job_goes_by_index() -> None:
    union = UnionClusterResolver(
        simple({"worker": ["a:1"]}), simple({"worker": {2: "c:1"}}), simple({"worker": []})
    )
    assert union.cluster_spec().as_dict() == {"worker": {0: "a:1", 2: "c:1"}}
    sparse = simple({"worker": {0: "c:1", 5: "d"}})
    twice = UnionClusterResolver(simple({"worker": ["a:1"]}), sparse)
    with pytest.raises(KeyError, match="task 0 in job 'worker'"):
        twice.cluster_spec()


def test_a_union_refuses_what_is_no_resolver() -> None:
    with pytest.raises(ValueError, match="at least one"):
        UnionClusterResolver()
    with pytest.raises(ValueError, match="unknown arguments: zone"):
        UnionClusterResolver(simple({}), zone="x")
    with pytest.raises(TypeError, match="no ClusterResolver"):
        UnionClusterResolver("here")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        ClusterResolver()  # type: ignore[abstract]
    assert sr.distribute.cluster_resolver.ClusterResolver is ClusterResolver


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("n1", ["n1"]),
        ("n[1-2],m5,o[3-4,6,7-9]", ["n1", "n2", "m5", "o3", "o4", "o6", "o7", "o8", "o9"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("r[1-2]n[3-4]", ["r1n3", "r1n4", "r2n3", "r2n4"]),
        ("a[1]-x,b", ["a1-x", "b"]),
    ],
)
def test_lists_of_hosts_are_expanded(text: str, hosts: list[str]) -> None:
    assert expand_hostlist(text) == hosts


@pytest.mark.parametrize(
    "text", ["", "n[1-", "n1]", "n[a]", "n[3-1]", "n[[1]]", "a,,b", "n[1-9999999]"]
)
def test_what_is_no_list_of_hosts_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="list of hosts"):
        expand_hostlist(text)


def test_numbers_of_tasks_are_expanded() -> None:
    assert expand_tasks_per_node("3(x2),2,1") == [3, 3, 2, 1]
    for text in ("", "x", "3(2)", "3(x)", "1,,2"):
        with pytest.raises(ValueError, match="how many tasks"):
            expand_tasks_per_node(text)


def put_slurm(patch: pytest.MonkeyPatch, rank: int, hosts: str, tasks: str, total: int) -> None:
    patch.setenv("SLURM_PROCID", str(rank))
    patch.setenv("SLURM_STEP_NUM_TASKS", str(total))
    patch.setenv("SLURM_STEP_NODELIST", hosts)
    patch.setenv("SLURM_STEP_TASKS_PER_NODE", tasks)
    patch.setenv("CUDA_VISIBLE_DEVICES", "all")


def test_slurm_gives_hosts_to_jobs_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    put_slurm(monkeypatch, 3, "n[9-10],m5", "2,1(x2)", 4)
    resolver = SlurmClusterResolver({"worker": 3, "ps": 1}, gpus_per_node=0)
    # Hosts are sorted as text, as in TensorFlow.
    assert resolver.cluster_spec().as_dict() == {
        "ps": ["m5:8888"],
        "worker": ["n10:8888", "n9:8888", "n9:8889"],
    }
    assert resolver.get_task_info() == ("ps", 0)
    assert resolver.master() == "grpc://m5:8888"
    assert resolver.master("worker", 0, "x") == "x://n10:8888"
    assert resolver.num_accelerators() == {}
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "all"


def test_a_slurm_task_has_the_address_of_its_own_host(monkeypatch: pytest.MonkeyPatch) -> None:
    # What Slurm put where, by rank.
    hosts = ["n9", "n9", "n10", "m5"]
    seen = set()
    for rank, host in enumerate(hosts):
        put_slurm(monkeypatch, rank, "n[9-10],m5", "2,1(x2)", 4)
        resolver = SlurmClusterResolver({"worker": 3, "ps": 1}, gpus_per_node=0)
        assert resolver.master().startswith(f"grpc://{host}:")
        seen.add(resolver.master())
    assert len(seen) == len(hosts)


def test_slurm_tasks_are_workers_with_a_share_of_the_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    put_slurm(monkeypatch, 3, "n[1-2]", "2(x2)", 4)
    resolver = SlurmClusterResolver(port_base=5000, gpus_per_node=4, rpc_layer=None)
    assert resolver.cluster_spec().as_dict() == {
        "worker": ["n1:5000", "n1:5001", "n2:5000", "n2:5001"]
    }
    assert (resolver.task_type, resolver.task_id) == ("worker", 3)
    assert resolver.master() == "n2:5001"
    assert resolver.num_accelerators() == {"GPU": 2}
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "2,3"
    SlurmClusterResolver(gpus_per_node=4, gpus_per_task=1, auto_set_gpu=False)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "2,3"
    SlurmClusterResolver(gpus_per_node=4, gpus_per_task=1)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"


def test_slurm_says_what_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_PROCID", raising=False)
    with pytest.raises(RuntimeError, match="SLURM_PROCID is not set. Not running inside a SLURM"):
        SlurmClusterResolver()
    put_slurm(monkeypatch, 0, "n[1-2]", "2(x2)", 4)
    with pytest.raises(RuntimeError, match="Requested 5 tasks but only 4 were assigned."):
        SlurmClusterResolver({"ps": 2, "worker": 3}, gpus_per_node=0)
    with pytest.raises(RuntimeError, match="more GPUs per node than available"):
        SlurmClusterResolver(gpus_per_node=2, gpus_per_task=2)
    with pytest.raises(RuntimeError, match="2 hosts and tasks for 3"):
        put_slurm(monkeypatch, 0, "n[1-2]", "1(x3)", 3)
        SlurmClusterResolver(gpus_per_node=0)
