"""`sidereal launch --on kubernetes`: what it prints, by the schemas of Kubernetes."""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
import sys
from typing import Any

import pytest

from sidereal import launch as sidereal_launch
from sidereal.distribute.cluster_resolver import TFConfigClusterResolver

kubernetes_validate = pytest.importorskip(
    "kubernetes_validate", reason="skipped: no package kubernetes-validate"
)
PATIENCE_S = 60
ALL = "--ps 2 --workers 3 --chief --evaluator --replicas 2 --voters 3"


COMMAND = ("launch", "--on", "kubernetes")


def launch(*words: str) -> subprocess.CompletedProcess[str]:
    """Without a process of its own."""
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        code = sidereal_launch.main([*COMMAND[1:], *words])
    return subprocess.CompletedProcess(words, code, out.getvalue(), errors.getvalue())


def objects(options: str, *words: str) -> dict[str, dict[str, Any]]:
    """What is printed, by kind and name."""
    done = launch(*options.split(), "--image", "example/task:1", "/app/train.py", *words)
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert (printed["apiVersion"], printed["kind"]) == ("v1", "List")
    return {f"{one['kind']} {one['metadata']['name']}": one for one in printed["items"]}


def pods(found: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {
        name: one["spec"]["template"]["spec"]
        for name, one in found.items() if not name.startswith("Service")
    }  # fmt: skip


def test_all_objects_are_valid() -> None:
    found = objects(f"{ALL} --namespace here --memory 2Gi --protocol star_server")
    assert set(found) == {
        "Service sidereal-ps", "StatefulSet sidereal-ps", "Service sidereal-voter",
        "StatefulSet sidereal-voter", "Service sidereal-chief",
        "Job sidereal-chief", "Service sidereal-worker", "Job sidereal-worker",
        "Job sidereal-evaluator",
    }  # fmt: skip
    for version in ("1.28", kubernetes_validate.latest_version()):
        for one in found.values():
            kubernetes_validate.validate(one, version, strict=True)
            assert one["metadata"]["namespace"] == "here"


def test_every_pod_finds_itself_by_the_name_that_its_service_gives_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = objects(f"{ALL} --name clicks --port 4000 --protocol grpc++")
    for job, count in {"chief": 1, "ps": 2, "worker": 3, "voter": 3}.items():
        is_server = job in ("ps", "voter")
        kind = "StatefulSet" if is_server else "Job"
        one = found[f"{kind} clicks-{job}"]
        service = found[f"Service clicks-{job}"]["spec"]
        spec, template = one["spec"], one["spec"]["template"]
        assert service["selector"] == template["metadata"]["labels"]
        assert service["clusterIP"] == "None" and service["publishNotReadyAddresses"] is True
        assert spec["replicas" if is_server else "completions"] == count
        if is_server:
            assert spec["serviceName"] == f"clicks-{job}"
            assert spec["selector"]["matchLabels"] == template["metadata"]["labels"]
        else:
            # Of an indexed job whose pods have a subdomain, names are JOB-INDEX.SUBDOMAIN.
            assert spec["completionMode"] == "Indexed" and spec["parallelism"] == count
            assert template["spec"]["subdomain"] == f"clicks-{job}"
        (container,) = template["spec"]["containers"]
        variables = {one["name"]: one for one in container["env"]}
        assert list(variables).index("POD_INDEX") < list(variables).index("TF_CONFIG")
        for index in range(count):
            text = re.sub(r"\$\(POD_INDEX\)", str(index), variables["TF_CONFIG"]["value"])
            monkeypatch.setenv("TF_CONFIG", text)
            resolver = TFConfigClusterResolver()
            assert (resolver.task_type, resolver.task_id) == (job, index)
            assert resolver.rpc_layer == "grpc++"
            address = resolver.cluster_spec().task_address(job, index)
            assert address == f"clicks-{job}-{index}.clicks-{job}:4000"


def test_voters_run_a_server_that_knows_the_cluster() -> None:
    pod = pods(objects(f"{ALL} --name clicks --port 4000"))["StatefulSet clicks-voter"]
    *command, cluster, _, _, _, votes = pod["containers"][0]["command"]
    assert command == ["python", "-m", "sidereal", "serve", "--job", "voter", "--task",
                       "$(POD_INDEX)", "--cluster"]  # fmt: skip
    assert json.loads(cluster)["voter"] == [f"clicks-voter-{i}.clicks-voter:4000" for i in range(3)]
    assert votes.startswith(pod["containers"][0]["volumeMounts"][1]["mountPath"])


def test_the_secret_is_one_that_is_there_and_pods_have_no_rights() -> None:
    done = launch(*ALL.split(), "--image", "example/task:1", "/app/train.py")
    assert '"kind": "Secret"' not in done.stdout
    for pod in pods(objects(ALL)).values():
        (container,) = pod["containers"]
        variables = {one["name"]: one.get("value") for one in container["env"]}
        assert variables["SIDEREAL_SECRET_FILE"] == "/etc/sidereal/secret"
        assert pod["volumes"][0]["secret"]["secretName"] == "sidereal-secret"
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert container["securityContext"]["allowPrivilegeEscalation"] is False


def test_the_script_its_arguments_and_variables_are_told_to_all() -> None:
    found = pods(objects("--env PRICE=5$(x) --cpus 2.5 --memory 3Gi", "--epochs", "7"))
    assert found
    for pod in found.values():
        (container,) = pod["containers"]
        assert container["command"] == ["python", "/app/train.py", "--epochs", "7"]
        assert {"name": "PRICE", "value": "5$$(x)"} in container["env"]
        assert container["resources"] == {
            "requests": {"cpu": "2.5", "memory": "3Gi"}, "limits": {"memory": "3Gi"},
        }  # fmt: skip


def test_workers_are_started_again_where_that_is_asked_for() -> None:
    assert objects("--workers 2")["Job sidereal-worker"]["spec"]["backoffLimit"] == 0
    again = objects("--workers 2 --on-worker-loss restart --restarts 3")
    assert again["Job sidereal-worker"]["spec"]["backoffLimit"] == 6


def test_without_an_image_nothing_is_printed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sidereal", *COMMAND, "/app/train.py"],
        capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert "--image" in done.stderr
