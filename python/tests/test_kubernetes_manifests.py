"""The manifests in deploy/kubernetes: valid by the schemas of Kubernetes, and of one mind."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from session_servers import PATIENCE_S, PROGRAM, Processes, free_ports

from sidereal.distribute.cluster_resolver import TFConfigClusterResolver

yaml = pytest.importorskip("yaml", reason="skipped: no package PyYAML")
jsonschema = pytest.importorskip("jsonschema", reason="skipped: no package jsonschema")
kubernetes_validate = pytest.importorskip(
    "kubernetes_validate", reason="skipped: no package kubernetes-validate"
)

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
SERVERS = FOLDER / "servers"
#: Of each folder: what the names of its objects begin with.
FOLDERS = {FOLDER: "sidereal", SERVERS: "sidereal-serve"}
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


def documents(name: str, folder: Path = FOLDER) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((folder / name).read_text()))


def resources(folder: Path = FOLDER) -> list[dict[str, Any]]:
    """What `kubectl apply -k` sends, but for the secret."""
    kustomization = documents("kustomization.yaml", folder)[0]
    return [one for name in kustomization["resources"] for one in documents(name, folder)]


def find(kind: str, name: str, folder: Path = FOLDER) -> dict[str, Any]:
    found = [r for r in resources(folder) if r["kind"] == kind and r["metadata"]["name"] == name]
    assert len(found) == 1, f"{len(found)} of {kind} {name}"
    return found[0]


def expand(text: str, variables: dict[str, str]) -> str:
    """$(NAME) in the value of a variable, as Kubernetes does it: of those before it only."""
    return re.sub(r"\$\((\w+)\)", lambda m: variables.get(m[1], m[0]), text)


def environment(pod: dict[str, Any], index: int, folder: Path = FOLDER) -> dict[str, str]:
    """The environment of a set's pod with this index."""
    out: dict[str, str] = {}
    for variable in pod["containers"][0]["env"]:
        source = variable.get("valueFrom", {})
        if "fieldRef" in source:
            assert source["fieldRef"]["fieldPath"].endswith("['apps.kubernetes.io/pod-index']")
            out[variable["name"]] = str(index)
        elif "configMapKeyRef" in source:
            reference = source["configMapKeyRef"]
            data = find("ConfigMap", reference["name"], folder)["data"]
            out[variable["name"]] = data[reference["key"]]
        else:
            out[variable["name"]] = expand(variable["value"], out)
    return out


def check_pod(pod: dict[str, Any], secret_name: str = "sidereal-secret") -> None:
    """What holds for every pod: the secret is a file that it is told of, and it has no rights."""
    (container,) = pod["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert set(mounts) == set(volumes)
    secret = volumes["secret"]["secret"]
    assert secret["secretName"] == secret_name
    assert secret["defaultMode"] & 0o007 == 0
    variables = {v["name"]: v.get("value") for v in container["env"]}
    assert variables["SIDEREAL_SECRET_FILE"] == mounts["secret"] + "/secret"
    assert "SIDEREAL_SECRET" not in variables
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["allowPrivilegeEscalation"] is False


@pytest.mark.parametrize("version", VERSIONS)
def test_resources_are_valid(version: str) -> None:
    kinds = {"ConfigMap", "Service", "StatefulSet"}
    assert {r["kind"] for r in resources()} == kinds
    assert {r["kind"] for r in resources(SERVERS)} == kinds | {"PersistentVolumeClaim"}
    for resource in [*resources(), *resources(SERVERS), *documents("train.yaml", SERVERS)]:
        kubernetes_validate.validate(resource, version, strict=True)


def test_a_wrong_field_would_be_seen() -> None:
    resource = find("StatefulSet", "sidereal-ps")
    resource["spec"]["replicsa"] = 2
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(resource, VERSIONS[0], strict=True)


@pytest.mark.parametrize(("folder", "prefix"), FOLDERS.items(), ids=["tasks", "servers"])
def test_every_manifest_is_used_and_the_secret_is_made_here(folder: Path, prefix: str) -> None:
    kustomization = documents("kustomization.yaml", folder)[0]
    files = {path.name for path in folder.glob("*.yaml")}
    by_itself = {FOLDER: "tfjob.yaml", SERVERS: "train.yaml"}[folder]
    assert files == {*kustomization["resources"], "kustomization.yaml", by_itself}
    (generator,) = kustomization["secretGenerator"]
    assert generator == {"name": f"{prefix}-secret", "files": ["secret"]}
    assert kustomization["generatorOptions"]["disableNameSuffixHash"] is True
    # Nobody's secret is in the repository, or gets there.
    assert not any(r["kind"] == "Secret" for r in resources(folder))
    ignored = subprocess.run(["git", "check-ignore", "-q", folder / "secret"], cwd=FOLDER)
    assert ignored.returncode == 0
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
@pytest.mark.parametrize(("folder", "prefix"), FOLDERS.items(), ids=["tasks", "servers"])
def test_sets_services_and_probes_belong_together(folder: Path, prefix: str, job: str) -> None:
    stateful = find("StatefulSet", f"{prefix}-{job}", folder)["spec"]
    labels = stateful["template"]["metadata"]["labels"]
    assert stateful["selector"]["matchLabels"] == labels
    service = find("Service", stateful["serviceName"], folder)["spec"]
    assert service["selector"] == labels
    assert service["clusterIP"] == "None" and service["publishNotReadyAddresses"] is True
    (container,) = stateful["template"]["spec"]["containers"]
    names = {port["name"]: port["containerPort"] for port in container["ports"]}
    for port in service["ports"]:
        assert names[port["targetPort"]] == port["port"]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["tcpSocket"]["port"] in names
    images = documents("kustomization.yaml", folder)[0]["images"]
    assert container["image"] in {image["name"] for image in images}
    check_pod(stateful["template"]["spec"], f"{prefix}-secret")


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


# --- Servers that stay, and a training on them.


def command_of(pod: dict[str, Any], index: int = 0) -> list[str]:
    """What a pod of this index runs, with the values of its environment."""
    (container,) = pod["containers"]
    variables = environment(pod, index, SERVERS)
    return [expand(word, variables) for word in [*container["command"], *container["args"]]]


def commands() -> Iterator[tuple[str, int, list[str]]]:
    """The servers' commands: job, index and words."""
    for job in SETS:
        stateful = find("StatefulSet", f"sidereal-serve-{job}", SERVERS)["spec"]
        for index in range(stateful["replicas"]):
            yield job, index, command_of(stateful["template"]["spec"], index)


def training() -> list[str]:
    (job,) = documents("train.yaml", SERVERS)
    return command_of(job["spec"]["template"]["spec"])


def value(words: list[str], option: str) -> str:
    return words[words.index(option) + 1]


def cluster_of_servers() -> dict[str, list[str]]:
    text = find("ConfigMap", "sidereal-serve-cluster", SERVERS)["data"]["cluster"]
    return {str(job): [str(one) for one in tasks] for job, tasks in json.loads(text).items()}


def test_every_server_is_the_task_whose_name_its_pod_has() -> None:
    cluster = cluster_of_servers()
    seen = dict.fromkeys(cluster, 0)
    for job, index, words in commands():
        stateful = find("StatefulSet", f"sidereal-serve-{job}", SERVERS)
        assert words[:2] == ["sidereal", "serve"]
        assert (value(words, "--job"), value(words, "--task")) == (job, str(index))
        assert json.loads(value(words, "--cluster")) == cluster
        (port,) = stateful["spec"]["template"]["spec"]["containers"][0]["ports"]
        assert value(words, "--listen") == f"0.0.0.0:{port['containerPort']}"
        name = f"{stateful['metadata']['name']}-{index}.{stateful['spec']['serviceName']}"
        assert cluster[job][index] == f"{name}:{port['containerPort']}"
        # Its own time to end in lies within that of Kubernetes.
        grace = stateful["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        assert float(value(words, "--drain")) < grace
        seen[job] += 1
    assert seen == {job: len(tasks) for job, tasks in cluster.items()}


def test_the_training_is_on_these_servers_and_on_their_volume() -> None:
    assert json.loads(value(training(), "--cluster")) == cluster_of_servers()
    (job,) = documents("train.yaml", SERVERS)
    pods = [job["spec"]["template"]["spec"]]
    pods += [
        r["spec"]["template"]["spec"] for r in resources(SERVERS) if r["kind"] == "StatefulSet"
    ]
    (claim,) = [r for r in resources(SERVERS) if r["kind"] == "PersistentVolumeClaim"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    for pod in pods:
        check_pod(pod, "sidereal-serve-secret")
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        claimed = volumes["data"]["persistentVolumeClaim"]["claimName"]
        assert claimed == claim["metadata"]["name"]
        (container,) = pod["containers"]
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert mounts["data"] == "/data"
    for option in ("--data", "--checkpoint-dir"):
        assert value(training(), option).startswith("/data/")
    images = documents("kustomization.yaml", SERVERS)[0]["images"]
    known = {f"{image['newName']}:{image['newTag']}" for image in images}
    assert pods[0]["containers"][0]["image"] in known


def test_the_commands_have_options_that_exist() -> None:
    for words in [*(words for _, _, words in commands()), training()]:
        told = subprocess.run(
            [sys.executable, "-m", "sidereal", words[1], "--help"], capture_output=True, text=True,
            timeout=60, check=True,
        ).stdout  # fmt: skip
        for word in words:
            if word.startswith("--"):
                assert f"{word} " in told, word


def test_the_commands_train_when_they_run_here(tmp_path: Path) -> None:
    """As the pods run them, but at ports of this machine, and with a folder for /data."""
    data, secret = tmp_path / "data", tmp_path / "secret"
    (data / "clicks").mkdir(parents=True)
    rows = "".join(f"{i % 2},{'ab'[i % 2]}{i % 5}\n" for i in range(4000))
    (data / "clicks" / "day_1.csv").write_text("click,site\n" + rows)
    secret.write_text("0123456789abcdef0123456789abcdef")
    variables = os.environ | {"SIDEREAL_SECRET_FILE": str(secret)}
    tasks = list(commands())
    here = dict(zip(
        itertools.chain.from_iterable(cluster_of_servers().values()),
        (f"127.0.0.1:{port}" for port in free_ports(len(tasks))), strict=True,
    ))  # fmt: skip

    def words_here(words: list[str]) -> list[str]:
        text = json.dumps([str(PROGRAM), *words[1:]]).replace('"/data/', f'"{data}/')
        for name, address in here.items():
            text = text.replace(name, address)
        return [str(word) for word in json.loads(text)]

    servers = Processes()
    try:
        for job, index, words in tasks:
            port = here[cluster_of_servers()[job][index]].rpartition(":")[2]
            words = words_here(words)
            words[words.index("--listen") + 1] = f"127.0.0.1:{port}"
            server = servers._start(words, env=variables, stderr=subprocess.DEVNULL)
            assert server.stdout is not None
            assert server.stdout.readline() == f"127.0.0.1:{port}\n"
        done = subprocess.run(
            [*words_here(training()), "--hidden", "8", "--quiet"], env=variables, text=True,
            capture_output=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
    finally:
        servers.end()
    assert done.returncode == 0, done.stderr
    assert "trained on 8000 rows" in done.stdout
    assert list((data / "runs" / "clicks").glob("model.ckpt-*"))
