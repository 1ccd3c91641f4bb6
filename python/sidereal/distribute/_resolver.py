"""What all resolvers have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ..cluster_spec import ClusterSpec


def format_master_url(master: str, rpc_layer: str | None = None) -> str:
    """ "grpc://host:port" of an address and a protocol, the address alone without one."""
    return f"{rpc_layer}://{master}" if rpc_layer else master


class ClusterResolver(ABC):
    """Tells who is in the cluster and which of its tasks this program is.

    `task_type` and `task_id` are the job and the index of this task, None where nobody said;
    `environment` is "" or a name such as "google"; `rpc_layer` is the protocol that addresses are
    given with. All but the environment can be set.
    """

    task_type: str | None = None
    task_id: int | None = None
    rpc_layer: str | None = None
    _num_accelerators: Mapping[str, int] = MappingProxyType({})

    @abstractmethod
    def cluster_spec(self) -> ClusterSpec:
        """The tasks, as they are now: ask again rather than keep it."""

    def master(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
    ) -> str:
        """What a session connects to, with the protocol in front: the address of the task asked
        for, else what the resolver thinks of; "" for this process. ValueError for a task that is
        not there."""
        if task_type is not None and task_id is not None:
            address = self.cluster_spec().task_address(task_type, task_id)
        else:
            address = self._default_master(task_type, task_id)
        layer = rpc_layer if rpc_layer is not None else self.rpc_layer
        return format_master_url(address, layer) if address else ""

    def _default_master(self, task_type: str | None, task_id: int | None) -> str:
        """The address of a task of which not both were given: what is missing is this task's. ""
        when that is not known."""
        job = task_type if task_type is not None else self.task_type
        index = task_id if task_id is not None else self.task_id
        if job is None or index is None:
            return ""
        return self.cluster_spec().task_address(job, index)

    @property
    def environment(self) -> str:
        """Where the program runs."""
        return ""

    def num_accelerators(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        config_proto: Any = None,
    ) -> dict[str, int]:
        """Accelerators of each type that every task has, as the resolver was told: the engine
        computes on processors and uses none."""
        del task_type, task_id, config_proto
        return dict(self._num_accelerators)


#: Of a parameter server: its incarnation, and the state of sessions there; in another life it has
#: lost their variables.
Life = tuple[int, int]
