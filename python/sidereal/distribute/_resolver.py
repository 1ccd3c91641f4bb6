"""What all resolvers have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
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

    @abstractmethod
    def cluster_spec(self) -> ClusterSpec:
        """The tasks, as they are now: ask again rather than keep it."""

    @abstractmethod
    def master(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
    ) -> str:
        """What a session connects to: the address of the task asked for, with the protocol in
        front; "" for this process. ValueError for a task that is not there."""

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
        """Accelerators of each type that every worker has. The engine computes on processors: what
        is told is what the resolver was told."""
        del task_type, task_id, config_proto
        return {}
