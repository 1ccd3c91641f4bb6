"""Which parameter servers have tables, and which process makes them."""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from torch import distributed

from .. import errors
from ..cluster import LocalCluster, RemoteCluster
from ..cluster_spec import ClusterSpec
from ..distribute.cluster_resolver import ClusterResolver, TFConfigClusterResolver
from ..security import SecurityOptions

#: Numbers of collections of the cluster of TF_CONFIG, whose processes make the same ones.
_numbers = itertools.count()
#: How often a process looks whether another one has made the tables.
_LOOK_S = 0.1


def parameter_servers(
    cluster: Any, security: SecurityOptions | None
) -> tuple[dict[int, str], SecurityOptions]:
    """Addresses of the parameter servers by their tasks, and what they want of who calls them."""
    if isinstance(cluster, (LocalCluster, RemoteCluster)):
        return dict(enumerate(cluster.ps)), security or cluster.security
    if cluster is None:
        cluster = TFConfigClusterResolver()
    spec = cluster.cluster_spec() if isinstance(cluster, ClusterResolver) else ClusterSpec(cluster)
    if "ps" not in spec.jobs:
        raise ValueError(
            f"the cluster has no job 'ps' but {spec.jobs or 'nothing'}: give "
            'cluster={"ps": ["host:port", ...]}, or set TF_CONFIG as `sidereal launch` does'
        )
    found = {task: spec.task_address("ps", task) for task in spec.task_indices("ps")}
    return found, security or SecurityOptions.from_environment()


def is_distributed() -> bool:
    """Whether this process is one of torch.distributed's."""
    return distributed.is_available() and distributed.is_initialized()


def common_name(name: str | None, cluster: Any) -> str:
    """What the tables are called on the parameter servers: what was given, else one that the
    processes of torch.distributed, or of TF_CONFIG, have in common and no others."""
    if name is not None:
        return name
    if is_distributed():
        names = [uuid.uuid4().hex]
        distributed.broadcast_object_list(names, 0)
        return names[0]
    return f"collection-{next(_numbers)}" if cluster is None else uuid.uuid4().hex


def is_maker(cluster: Any) -> bool:
    """Whether this process makes tables that are not there yet."""
    if is_distributed():
        return bool(distributed.get_rank() == 0)
    if cluster is not None:
        return True
    resolver = TFConfigClusterResolver()
    has_chief = "chief" in resolver.cluster_spec().jobs
    return resolver.task_type in (None, "chief") or (not has_chief and not resolver.task_id)


def wait_until(is_done: Callable[[], bool], seconds: float, what: str) -> None:
    """Looks until something is done; DeadlineExceededError after so many seconds."""
    end = time.monotonic() + seconds
    pause = threading.Event()
    while not is_done():
        if time.monotonic() > end:
            raise errors.DeadlineExceededError(f"{what} within {seconds:g} s")
        pause.wait(_LOOK_S)
