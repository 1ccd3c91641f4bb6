"""The resolver of Kubernetes, with its own client over HTTP, and answers as an API server gives."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest

from sidereal.distribute.cluster_resolver import ExecutableLocation, KubernetesClusterResolver

client = pytest.importorskip("kubernetes.client", reason="skipped: no package kubernetes")


def pod(name: str, host_ip: str, phase: str = "Running") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"containers": [{"name": "task", "image": "task:1"}]},
        "status": {"phase": phase, "hostIP": host_ip, "podIP": "10.0.0.9"},
    }


class Api:
    """Answers GET /api/v1/pods as an API server does, two pods a page."""

    def __init__(self) -> None:
        self.pods: dict[str, list[dict[str, Any]]] = {}
        self.asked: list[str] = []
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                url = urlparse(self.path)
                query = {name: values[0] for name, values in parse_qs(url.query).items()}
                api.asked.append(self.path)
                status, body = api.answer(url.path, query)
                text = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()
        configuration = client.Configuration(
            host=f"http://127.0.0.1:{self.server.server_address[1]}"
        )
        self.client = client.CoreV1Api(client.ApiClient(configuration))

    def answer(self, path: str, query: dict[str, str]) -> tuple[int, dict[str, Any]]:
        if path != "/api/v1/pods":
            return 404, {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}
        found = self.pods.get(query.get("labelSelector", ""), [])
        first = int(query.get("continue", "0"))
        metadata: dict[str, Any] = {"resourceVersion": "1"}
        if first + 2 < len(found):
            metadata["continue"] = str(first + 2)
        page = found[first : first + 2]
        return 200, {"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": page}

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture()
def api() -> Iterator[Api]:
    served = Api()
    yield served
    served.close()


def test_pods_become_tasks_sorted_by_name_for_each_selector(api: Api) -> None:
    api.pods = {
        "job-name=ps": [pod("ps-1", "10.1.2.4"), pod("ps-0", "10.1.2.3")],
        "job-name=a": [pod(f"w-{i}", f"10.1.3.{i}") for i in (2, 0, 4, 1, 3)],
        "job-name=b": [pod("b-0", "10.1.4.0")],
    }
    resolver = KubernetesClusterResolver(
        {"worker": ["job-name=b", "job-name=a"], "ps": ["job-name=ps"]},
        tf_server_port=2222,
        override_client=api.client,
    )
    assert resolver.cluster_spec().as_dict() == {
        "ps": ["10.1.2.3:2222", "10.1.2.4:2222"],
        "worker": ["10.1.4.0:2222", *(f"10.1.3.{i}:2222" for i in range(5))],
    }
    assert (resolver.task_type, resolver.task_id, resolver.master()) == (None, None, "")
    assert resolver.master("worker", 1) == "grpc://10.1.3.0:2222"
    assert resolver.master("ps", 1, "x") == "x://10.1.2.4:2222"
    resolver.task_type, resolver.task_id = "worker", 0
    assert resolver.master() == "grpc://10.1.4.0:2222"
    api.pods["job-name=ps"] = []
    assert resolver.cluster_spec().num_tasks("ps") == 0


def test_workers_of_a_job_called_tensorflow_are_the_default(api: Api) -> None:
    api.pods = {"job-name=tensorflow": [pod("t-0", "10.0.0.1")]}
    resolver = KubernetesClusterResolver(override_client=api.client)
    assert resolver.cluster_spec().as_dict() == {"worker": ["10.0.0.1:8470"]}
    assert "labelSelector=job-name%3Dtensorflow" in api.asked[0]


def test_a_pod_that_does_not_run_is_named(api: Api) -> None:
    api.pods = {"job-name=tensorflow": [pod("t-0", "10.0.0.1"), pod("t-1", "", "Pending")]}
    resolver = KubernetesClusterResolver(override_client=api.client)
    with pytest.raises(RuntimeError, match='Pod "t-1" is not running; phase: "Pending"'):
        resolver.cluster_spec()


def test_an_api_that_is_gone_is_an_error_and_no_wait(api: Api) -> None:
    api.close()
    resolver = KubernetesClusterResolver(override_client=api.client)
    api.client.api_client.rest_client.pool_manager.connection_pool_kw["retries"] = False
    with pytest.raises(Exception, match="127.0.0.1"):
        resolver.cluster_spec()


def test_only_two_places_to_ask_from_are_known(api: Api) -> None:
    with pytest.raises(ValueError, match="executable_location"):
        KubernetesClusterResolver(
            override_client=api.client,
            executable_location="here",  # type: ignore[arg-type]
        )
    assert list(ExecutableLocation) == [
        ExecutableLocation.WITHIN_CLUSTER,
        ExecutableLocation.OFF_CLUSTER,
    ]
