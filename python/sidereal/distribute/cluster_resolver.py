"""Where the tasks of a cluster are, from the environment a program was started in
(tf.distribute.cluster_resolver)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from ..cluster_spec import ClusterSpec
from ._kubernetes import ExecutableLocation, KubernetesClusterResolver
from ._resolver import ClusterResolver
from ._slurm import SlurmClusterResolver

__all__ = [
    "ClusterResolver",
    "ExecutableLocation",
    "KubernetesClusterResolver",
    "SimpleClusterResolver",
    "SlurmClusterResolver",
    "TFConfigClusterResolver",
    "UnionClusterResolver",
]


class SimpleClusterResolver(ClusterResolver):
    """A resolver that knows what it is given.

    num_accelerators: by type, such as {"GPU": 2}. TypeError for a cluster_spec that is no
    ClusterSpec and a master that is no string.
    """

    def __init__(
        self,
        cluster_spec: ClusterSpec,
        master: str = "",
        task_type: str | None = None,
        task_id: int | None = None,
        environment: str = "",
        num_accelerators: Mapping[str, int] | None = None,
        rpc_layer: str | None = None,
    ) -> None:
        if not isinstance(cluster_spec, ClusterSpec):
            raise TypeError(f"cluster_spec is {cluster_spec!r}; give a sidereal.train.ClusterSpec")
        if not isinstance(master, str):
            raise TypeError(f"master is {master!r}; give a string such as 'grpc://host:port'")
        self.task_type = task_type
        self.task_id = task_id
        self.rpc_layer = rpc_layer
        self._cluster_spec = cluster_spec
        self._master = master
        self._environment = environment
        if num_accelerators:
            self._num_accelerators = dict(num_accelerators)

    def cluster_spec(self) -> ClusterSpec:
        return self._cluster_spec

    def _default_master(self, task_type: str | None, task_id: int | None) -> str:
        return self._master

    @property
    def environment(self) -> str:
        return self._environment


class TFConfigClusterResolver(ClusterResolver):
    """What the environment variable TF_CONFIG says, read again whenever it is asked:

        {"cluster": {"chief": ["h0:2222"], "ps": ["h1:2222"], "worker": ["h2:2222", "h3:2222"]},
         "task": {"type": "worker", "index": 1}, "rpc_layer": "grpc"}

    All of it may be missing. What is given to the constructor, or set later, is used instead of it.
    ValueError where the variable holds no JSON object, or not what is expected in it.
    """

    def __init__(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
        environment: str | None = None,
    ) -> None:
        self._task_type = task_type
        self._task_id = task_id
        self._rpc_layer = rpc_layer
        self._environment = environment

    @staticmethod
    def _config(key: str) -> Any:
        text = os.environ.get("TF_CONFIG", "{}")
        try:
            config = json.loads(text)
        except ValueError as error:
            raise ValueError(f"TF_CONFIG is no JSON: {error}: {text!r}") from None
        if not isinstance(config, dict):
            raise ValueError(f"TF_CONFIG is {text!r}; expected a JSON object")
        return config.get(key)

    def _task(self, key: str) -> Any:
        task = self._config("task")
        if task is not None and not isinstance(task, dict):
            raise ValueError(f"'task' in TF_CONFIG is {task!r}; expected an object")
        return (task or {}).get(key)

    @property
    def task_type(self) -> str | None:
        """The job of this task."""
        if self._task_type is not None:
            return self._task_type
        found = self._task("type")
        return None if found is None else str(found)

    @task_type.setter
    def task_type(self, task_type: str | None) -> None:
        self._task_type = task_type

    @property
    def task_id(self) -> int | None:
        """The index of this task in its job."""
        if self._task_id is not None:
            return self._task_id
        found = self._task("index")
        if found is None:
            return None
        try:
            return int(found)
        except (TypeError, ValueError):
            raise ValueError(f"'index' of 'task' in TF_CONFIG is {found!r}, no number") from None

    @task_id.setter
    def task_id(self, task_id: int | None) -> None:
        self._task_id = task_id

    @property
    def rpc_layer(self) -> str | None:
        """The protocol of addresses."""
        return self._rpc_layer if self._rpc_layer is not None else self._config("rpc_layer")

    @rpc_layer.setter
    def rpc_layer(self, rpc_layer: str | None) -> None:
        self._rpc_layer = rpc_layer

    @property
    def environment(self) -> str:
        if self._environment is not None:
            return self._environment
        return self._config("environment") or ""

    def cluster_spec(self) -> ClusterSpec:
        cluster = self._config("cluster")
        if cluster is None:
            return ClusterSpec({})
        if not isinstance(cluster, dict):
            raise ValueError(f"'cluster' in TF_CONFIG is {cluster!r}; expected an object")
        return ClusterSpec(cluster)

    def master(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
    ) -> str:
        """'session_master' if it is there; "" without a cluster, or with one task only; else the
        address of the task asked for, this one by default."""
        session_master = self._config("session_master")
        if session_master is not None:
            return str(session_master)
        cluster = self.cluster_spec()
        if sum(cluster.num_tasks(job) for job in cluster.jobs) <= 1 and len(cluster.jobs) <= 1:
            return ""
        found = super().master(task_type, task_id, rpc_layer)
        if not found:
            raise ValueError("TF_CONFIG has a cluster and no 'task' with 'type' and 'index' in it")
        return found


class UnionClusterResolver(ClusterResolver):
    """Several resolvers as one: jobs of the same name are joined.

    Lists of addresses follow each other; if a resolver has a sparse job, all of that job are taken
    by their indices, and an index that is there twice is a KeyError. This task, the protocol, the
    environment and the master are those of the first resolver unless they are given.
    """

    def __init__(self, *args: ClusterResolver, **kwargs: Any) -> None:
        unknown = set(kwargs) - {"rpc_layer", "task_type", "task_id"}
        if unknown:
            raise ValueError(f"unknown arguments: {', '.join(sorted(unknown))}")
        if not args:
            raise ValueError("a UnionClusterResolver needs at least one resolver")
        for resolver in args:
            if not isinstance(resolver, ClusterResolver):
                raise TypeError(f"{resolver!r} is no ClusterResolver")
        self._resolvers = args
        first = args[0]
        self.rpc_layer = kwargs.get("rpc_layer", first.rpc_layer)
        self.task_type = kwargs.get("task_type", first.task_type)
        self.task_id = kwargs.get("task_id", first.task_id)
        self._num_accelerators = first.num_accelerators()

    def cluster_spec(self) -> ClusterSpec:
        found: dict[str, list[list[str] | dict[int, str]]] = {}
        for resolver in self._resolvers:
            for job, tasks in resolver.cluster_spec().as_dict().items():
                found.setdefault(job, []).append(tasks)
        return ClusterSpec({job: _joined(job, parts) for job, parts in found.items()})

    def _default_master(self, task_type: str | None, task_id: int | None) -> str:
        return self._resolvers[0].master(rpc_layer="")

    @property
    def environment(self) -> str:
        return self._resolvers[0].environment


def _joined(job: str, parts: list[list[str] | dict[int, str]]) -> list[str] | dict[int, str]:
    """The tasks of one job in several clusters. A job without tasks joins either way."""
    lists = [part for part in parts if isinstance(part, list)]
    if len(lists) == sum(bool(part) for part in parts):
        return [address for part in lists for address in part]
    out: dict[int, str] = {}
    for part in parts:
        for index, address in enumerate(part) if isinstance(part, list) else part.items():
            if index in out:
                raise KeyError(f"two resolvers have a task {index} in job '{job}'")
            out[index] = address
    return out
