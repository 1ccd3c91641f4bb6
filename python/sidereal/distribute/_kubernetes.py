"""The cluster that Kubernetes runs this program in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from ..cluster_spec import ClusterSpec
from ._resolver import ClusterResolver

#: A request that is not answered in this many seconds has failed.
_REQUEST_SECONDS = 30.0


class ExecutableLocation(Enum):
    """Where the program asks from: a pod of the cluster, or a machine with a kubeconfig."""

    WITHIN_CLUSTER = 0
    OFF_CLUSTER = 1


def _client(location: ExecutableLocation) -> Any:
    try:
        from kubernetes import client, config  # noqa: PLC0415 - needed here only
    except ImportError:
        raise ImportError(
            "KubernetesClusterResolver needs the package kubernetes: pip install kubernetes"
        ) from None
    if location is ExecutableLocation.WITHIN_CLUSTER:
        config.load_incluster_config()
    else:
        config.load_kube_config()
    return client.CoreV1Api()


class KubernetesClusterResolver(ClusterResolver):
    """Pods as tasks (tf.distribute.cluster_resolver.KubernetesClusterResolver): of each job those
    that its selectors find, sorted by name for each selector; their addresses are those of the
    machines they run on. The API is asked at every cluster_spec().

    Which task this program is Kubernetes does not say: set `task_type` and `task_id`.

    job_to_label_mapping: job to label selectors; None: {"worker": ["job-name=tensorflow"]}.
    tf_server_port: the port of every task.
    override_client: a CoreV1Api to ask; None: one made for `executable_location`.

    ValueError for another location; RuntimeError from cluster_spec() for a pod that does not run.
    """

    def __init__(
        self,
        job_to_label_mapping: Mapping[str, Sequence[str]] | None = None,
        tf_server_port: int = 8470,
        rpc_layer: str | None = "grpc",
        override_client: Any = None,
        executable_location: ExecutableLocation = ExecutableLocation.WITHIN_CLUSTER,
    ) -> None:
        if not isinstance(executable_location, ExecutableLocation):
            raise ValueError(
                f"executable_location is {executable_location!r}; give ExecutableLocation."
                "WITHIN_CLUSTER or OFF_CLUSTER"
            )
        self._client = _client(executable_location) if override_client is None else override_client
        self._selectors = dict(job_to_label_mapping or {"worker": ["job-name=tensorflow"]})
        self._port = tf_server_port
        self.rpc_layer = rpc_layer

    def cluster_spec(self) -> ClusterSpec:
        return ClusterSpec(
            {
                job: [address for selector in selectors for address in self._addresses(selector)]
                for job, selectors in self._selectors.items()
            }
        )

    def _addresses(self, selector: str) -> list[str]:
        pods: list[Any] = []
        more: str | None = ""
        while more is not None:
            page = self._client.list_pod_for_all_namespaces(
                label_selector=selector,
                _request_timeout=_REQUEST_SECONDS,
                **({"_continue": more} if more else {}),
            )
            pods.extend(page.items)
            more = page.metadata._continue or None
        for pod in pods:
            if pod.status.phase != "Running":
                raise RuntimeError(
                    f'Pod "{pod.metadata.name}" is not running; phase: "{pod.status.phase}"'
                )
        pods.sort(key=lambda pod: pod.metadata.name)
        return [f"{pod.status.host_ip}:{self._port}" for pod in pods]
