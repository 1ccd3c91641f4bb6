"""What `sidereal launch --on kubernetes` prints: the objects of a cluster, for `kubectl apply`.

Parameter servers and voters are StatefulSets, all others are indexed jobs, which end. Both have
headless services, so that each pod has a name from its start. The secret is one that is there
already.
"""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

from ._launch_places import script, voter

#: Where pods find their index, since Kubernetes 1.28.
_SET_INDEX = "metadata.labels['apps.kubernetes.io/pod-index']"
_JOB_INDEX = "metadata.labels['batch.kubernetes.io/job-completion-index']"
_USER = 10001

Json = dict[str, Any]


def _metadata(options: argparse.Namespace, name: str, job: str) -> Json:
    out: Json = {"name": name, "labels": _labels(options, job)}
    if options.namespace is not None:
        out["namespace"] = options.namespace
    return out


def _labels(options: argparse.Namespace, job: str) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "sidereal",
        "app.kubernetes.io/instance": options.name,
        "app.kubernetes.io/component": job,
    }


def _count(options: argparse.Namespace, job: str) -> int:
    return int(
        {"chief": options.chief, "ps": options.ps, "worker": options.workers,
         "evaluator": options.evaluator, "voter": options.voters}[job]
    )  # fmt: skip


def _cluster(options: argparse.Namespace) -> Json:
    """Members by the names that their pods have."""
    out = {}
    for job in ("chief", "ps", "voter", "worker"):
        name = f"{options.name}-{job}"
        addresses = [f"{name}-{i}.{name}:{options.port}" for i in range(_count(options, job))]
        if addresses:
            out[job] = addresses
    return out


def _environment(options: argparse.Namespace, job: str, index_at: str) -> list[Json]:
    config: Json = {"cluster": _cluster(options), "task": {"type": job, "index": "INDEX"}}
    if options.protocol is not None:
        config["rpc_layer"] = options.protocol
    # Kubernetes puts the index in, which is a number; a $ of its own would be written twice.
    text = json.dumps(config).replace("$", "$$").replace('"INDEX"', "$(POD_INDEX)")
    out: list[Json] = [
        {"name": "POD_INDEX", "valueFrom": {"fieldRef": {"fieldPath": index_at}}},
        {"name": "TF_CONFIG", "value": text},
        {"name": "SIDEREAL_SECRET_FILE", "value": "/etc/sidereal/secret"},
        {"name": "PYTHONUNBUFFERED", "value": "1"},
    ]
    for setting in options.env:
        name, equals, value = setting.partition("=")
        value = value if equals else os.environ[name]
        out.append({"name": name, "value": value.replace("$", "$$")})
    return out


def _pod(options: argparse.Namespace, job: str, index_at: str) -> Json:
    runs = script(options)
    if job == "voter":
        # The folder is the pod's, whatever process runs in it.
        cluster = json.dumps(_cluster(options)).replace("$", "$$")
        runs = voter("$(POD_INDEX)", cluster, "--votes-file", "/tmp/votes")
    requests: dict[str, str] = {"cpu": f"{options.cpus:g}"}
    limits: dict[str, str] = {}
    if options.memory is not None:
        requests["memory"] = limits["memory"] = options.memory
    container: Json = {
        "name": "task",
        "image": options.image,
        "command": ["python", *runs],
        "env": _environment(options, job, index_at),
        "resources": {"requests": requests, "limits": limits},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "secret", "mountPath": "/etc/sidereal", "readOnly": True},
            {"name": "scratch", "mountPath": "/tmp"},
        ],
    }
    if job != "evaluator":
        container["ports"] = [{"name": "grpc", "containerPort": options.port}]
    return {
        "automountServiceAccountToken": False,
        "subdomain": f"{options.name}-{job}",
        "terminationGracePeriodSeconds": max(1, int(options.grace)),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [
            {
                "name": "secret",
                "secret": {"secretName": "sidereal-secret", "defaultMode": 0o440},
            },
            {"name": "scratch", "emptyDir": {}},
        ],
    }


def _service(options: argparse.Namespace, job: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(options, f"{options.name}-{job}", job),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": _labels(options, job),
            "ports": [{"name": "grpc", "port": options.port, "targetPort": "grpc"}],
        },
    }


def _servers(options: argparse.Namespace, job: str) -> Json:
    """Those that do not end by themselves, and come back under their names."""
    pod = _pod(options, job, _SET_INDEX)
    del pod["subdomain"]  # A set says it itself.
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": _metadata(options, f"{options.name}-{job}", job),
        "spec": {
            "serviceName": f"{options.name}-{job}",
            "replicas": _count(options, job),
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": _labels(options, job)},
            "template": {"metadata": {"labels": _labels(options, job)}, "spec": pod},
        },
    }


def _job(options: argparse.Namespace, job: str) -> Json:
    count = _count(options, job)
    leader = "chief" if options.chief else "worker"
    is_restarted = (job == "worker" and options.on_worker_loss == "restart") or (
        job == leader and options.on_chief_loss == "restart"
    )
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(options, f"{options.name}-{job}", job),
        "spec": {
            "completionMode": "Indexed",
            "completions": count,
            "parallelism": count,
            "backoffLimit": options.restarts * count if is_restarted else 0,
            "template": {
                "metadata": {"labels": _labels(options, job)},
                "spec": {**_pod(options, job, _JOB_INDEX), "restartPolicy": "Never"},
            },
        },
    }


def manifests(options: argparse.Namespace) -> Json:
    """All objects, as one list."""
    items = []
    for job in ("ps", "voter", "chief", "worker", "evaluator"):
        if _count(options, job) == 0:
            continue
        if job != "evaluator":
            items.append(_service(options, job))
        is_server = job in ("ps", "voter")
        items.append(_servers(options, job) if is_server else _job(options, job))
    return {"apiVersion": "v1", "kind": "List", "items": items}
