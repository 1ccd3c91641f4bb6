"""The manifests in deploy/kubernetes: valid by the schemas of Kubernetes, and of one mind."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from sidereal.distribute.cluster_resolver import TFConfigClusterResolver

yaml = pytest.importorskip("yaml", reason="skipped: no package PyYAML")
jsonschema = pytest.importorskip("jsonschema", reason="skipped: no package jsonschema")
kubernetes_validate = pytest.importorskip(
    "kubernetes_validate", reason="skipped: no package kubernetes-validate"
)

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
VERSIONS = ("1.28", kubernetes_validate.latest_version())
SETS = ("ps", "worker")

#: kubeflow.org/v1 TFJob, as far as it is a matter of fields and their values; templates of pods are
#: compared with the schema of pods.
TFJOB = {
    "type": "object",
    "additionalProperties": False,
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "kubeflow.org/v1"},
        "kind": {"const": "TFJob"},
        "metadata": {"type": "object", "required": ["name"]},
        "spec": {
            "type": "object",
            "additionalProperties": False,
            "required": ["tfReplicaSpecs"],
            "properties": {
                "enableDynamicWorker": {"type": "boolean"},
                "successPolicy": {"enum": ["", "AllWorkers"]},
                "runPolicy": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "activeDeadlineSeconds": {"type": "integer", "minimum": 1},
                        "backoffLimit": {"type": "integer", "minimum": 0},
                        "cleanPodPolicy": {"enum": ["All", "Running", "None"]},
                        "schedulingPolicy": {"type": "object"},
                        "suspend": {"type": "boolean"},
                        "ttlSecondsAfterFinished": {"type": "integer", "minimum": 0},
                    },
                },
                "tfReplicaSpecs": {
                    "type": "object",
                    "additionalProperties": False,
                    "minProperties": 1,
                    "patternProperties": {
                        "^(Chief|Master|PS|Worker|Evaluator)$": {
                            "type": "object",
                            "additionalProperties": False,
                            "required": ["template"],
                            "properties": {
                                "replicas": {"type": "integer", "minimum": 0},
                                "restartPolicy": {
                                    "enum": ["Always", "OnFailure", "Never", "ExitCode"]
                                },
                                "template": {"type": "object", "required": ["spec"]},
                            },
                        }
                    },
                },
            },
        },
    },
}


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def resources() -> list[dict[str, Any]]:
    """What `kubectl apply -k` sends, but for the secret."""
    kustomization = documents("kustomization.yaml")[0]
    return [document for name in kustomization["resources"] for document in documents(name)]


def find(kind: str, name: str) -> dict[str, Any]:
    found = [r for r in resources() if r["kind"] == kind and r["metadata"]["name"] == name]
    assert len(found) == 1, f"{len(found)} of {kind} {name}"
    return found[0]


def expand(text: str, variables: dict[str, str]) -> str:
    """$(NAME) in the value of a variable, as Kubernetes does it: of those before it only."""
    return re.sub(r"\$\((\w+)\)", lambda m: variables.get(m[1], m[0]), text)


def environment(pod: dict[str, Any], index: int) -> dict[str, str]:
    """The environment of a set's pod with this index."""
    out: dict[str, str] = {}
    for variable in pod["containers"][0]["env"]:
        source = variable.get("valueFrom", {})
        if "fieldRef" in source:
            assert source["fieldRef"]["fieldPath"].endswith("['apps.kubernetes.io/pod-index']")
            out[variable["name"]] = str(index)
        elif "configMapKeyRef" in source:
            reference = source["configMapKeyRef"]
            data = find("ConfigMap", reference["name"])["data"]
            out[variable["name"]] = data[reference["key"]]
        else:
            out[variable["name"]] = expand(variable["value"], out)
    return out


def check_pod(pod: dict[str, Any]) -> None:
    """What holds for every pod: the secret is a file that it is told of, and it has no rights."""
    (container,) = pod["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert set(mounts) == set(volumes)
    secret = volumes["secret"]["secret"]
    assert secret["secretName"] == "sidereal-secret"
    assert secret["defaultMode"] & 0o007 == 0
    variables = {v["name"]: v.get("value") for v in container["env"]}
    assert variables["SIDEREAL_SECRET_FILE"] == mounts["secret"] + "/secret"
    assert "SIDEREAL_SECRET" not in variables
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["allowPrivilegeEscalation"] is False


@pytest.mark.parametrize("version", VERSIONS)
def test_resources_are_valid(version: str) -> None:
    assert {r["kind"] for r in resources()} == {"ConfigMap", "Service", "StatefulSet"}
    for resource in resources():
        kubernetes_validate.validate(resource, version, strict=True)


def test_a_wrong_field_would_be_seen() -> None:
    resource = find("StatefulSet", "sidereal-ps")
    resource["spec"]["replicsa"] = 2
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(resource, VERSIONS[0], strict=True)


def test_every_manifest_is_used_and_the_secret_is_made_here() -> None:
    kustomization = documents("kustomization.yaml")[0]
    files = {path.name for path in FOLDER.glob("*.yaml")}
    assert files == {*kustomization["resources"], "kustomization.yaml", "tfjob.yaml"}
    (generator,) = kustomization["secretGenerator"]
    assert generator == {"name": "sidereal-secret", "files": ["secret"]}
    assert kustomization["generatorOptions"]["disableNameSuffixHash"] is True
    # Nobody's secret is in the repository, or gets there.
    assert not any(r["kind"] == "Secret" for r in resources())
    assert "secret" in (FOLDER / ".gitignore").read_text().split()
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": generator["name"]},
        "data": {"secret": "YSBzZWNyZXQ="},
    }
    kubernetes_validate.validate(secret, VERSIONS[0], strict=True)


@pytest.mark.parametrize("job", SETS)
def test_every_pod_finds_itself_in_the_cluster(job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = json.loads(find("ConfigMap", "sidereal-cluster")["data"]["cluster"])
    assert set(cluster) == set(SETS)
    stateful = find("StatefulSet", f"sidereal-{job}")
    assert stateful["spec"]["replicas"] == len(cluster[job])
    pod = stateful["spec"]["template"]["spec"]
    (port,) = pod["containers"][0]["ports"]
    for index in range(stateful["spec"]["replicas"]):
        variables = environment(pod, index)
        monkeypatch.setenv("TF_CONFIG", variables["TF_CONFIG"])
        resolver = TFConfigClusterResolver()
        assert (resolver.task_type, resolver.task_id) == (job, index)
        assert resolver.cluster_spec().as_dict() == cluster
        name = f"{stateful['metadata']['name']}-{index}.{stateful['spec']['serviceName']}"
        address = resolver.cluster_spec().task_address(job, index)
        assert address == f"{name}:{port['containerPort']}"


@pytest.mark.parametrize("job", SETS)
def test_sets_services_and_probes_belong_together(job: str) -> None:
    stateful = find("StatefulSet", f"sidereal-{job}")["spec"]
    labels = stateful["template"]["metadata"]["labels"]
    assert stateful["selector"]["matchLabels"] == labels
    service = find("Service", stateful["serviceName"])["spec"]
    assert service["selector"] == labels
    assert service["clusterIP"] == "None" and service["publishNotReadyAddresses"] is True
    (container,) = stateful["template"]["spec"]["containers"]
    names = {port["name"]: port["containerPort"] for port in container["ports"]}
    for port in service["ports"]:
        assert names[port["targetPort"]] == port["port"]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["tcpSocket"]["port"] in names
    images = documents("kustomization.yaml")[0]["images"]
    assert container["image"] in {image["name"] for image in images}
    check_pod(stateful["template"]["spec"])


def test_the_job_of_kubeflow_is_valid() -> None:
    (job,) = documents("tfjob.yaml")
    jsonschema.validate(job, TFJOB)
    for replicas in job["spec"]["tfReplicaSpecs"].values():
        template = replicas["template"]["spec"]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": template}
        for version in VERSIONS:
            kubernetes_validate.validate(pod, version, strict=True)
        (container,) = template["containers"]
        # The names that the operator looks for.
        assert container["name"] == "tensorflow"
        assert [port["name"] for port in container["ports"]] == ["tfjob-port"]
        check_pod(template)
