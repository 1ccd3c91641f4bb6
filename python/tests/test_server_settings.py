"""Protocols, endpoint maps and knobs of servers: who says them, and what comes of it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from session_servers import PROGRAM, Processes, free_ports

import sidereal as sr
import sidereal.v1 as tf
from sidereal import errors


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing in the environment, nor in the working directory."""
    for name in list(os.environ):
        if name.endswith(("_POLLING", "_PIN_CORES", "_CORE_NUMBER")) or name == "TF_CONFIG":
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def started() -> Iterator[list[sr.train.Server]]:
    servers: list[sr.train.Server] = []
    yield servers
    for server in servers:
        server.stop()


def run_on(target: str, device: str) -> float:
    with tf.Graph().as_default():
        with tf.device(device):
            x = tf.constant(3.0) * 2.0
        with tf.Session(target) as session:
            return float(session.run(x))


def settings_in(log: str) -> str:
    (line,) = [line for line in log.splitlines() if " settings " in line]
    return line


def test_rpc_layer_of_tf_config_is_the_protocol(
    monkeypatch: pytest.MonkeyPatch, started: list[sr.train.Server]
) -> None:
    cluster = {"worker": ["localhost:0"]}
    assert sr.train.Server(cluster, start=False).server_def.protocol == "grpc"
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "rpc_layer": "star_server"}))
    assert sr.train.Server(cluster, start=False).server_def.protocol == "star_server"
    same = sr.train.Server(cluster, protocol="star_server", start=False)
    assert same.server_def.protocol == "star_server"
    given = sr.train.ServerDef(sr.train.ClusterSpec(cluster).as_cluster_def())
    assert sr.train.Server(given, start=False).server_def.protocol == "star_server"
    with pytest.raises(errors.InvalidArgumentError, match='TF_CONFIG says "star_server"'):
        sr.train.Server(cluster, protocol="grpc", start=False)
    monkeypatch.setenv("TF_CONFIG", json.dumps({"rpc_layer": "rdma"}))
    with pytest.raises(errors.InvalidArgumentError, match='TF_CONFIG: rpc_layer: .*"rdma"'):
        sr.train.Server(cluster, start=False)
    monkeypatch.setenv("TF_CONFIG", "{")
    with pytest.raises(errors.InvalidArgumentError, match="no JSON object"):
        sr.train.Server(cluster, start=False)


def test_a_target_may_name_the_protocol_of_its_master(
    monkeypatch: pytest.MonkeyPatch, started: list[sr.train.Server]
) -> None:
    ports = free_ports(2)
    config = {
        "cluster": {"worker": [f"localhost:{ports[0]}"], "ps": [f"localhost:{ports[1]}"]},
        "task": {"type": "worker", "index": 0},
        "rpc_layer": "star_server_lite",
    }
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    resolver = sr.distribute.cluster_resolver.TFConfigClusterResolver()
    for job in ("worker", "ps"):
        started.append(sr.train.Server(resolver.cluster_spec(), job, 0))
    assert resolver.master() == f"star_server_lite://localhost:{ports[0]}"
    assert run_on(resolver.master(), "/job:ps/task:0") == 6
    assert run_on(started[0].target, "/job:ps/task:0") == 6
    with pytest.raises(errors.FailedPreconditionError, match='"star_server_lite".*"grpc\\+\\+"'):
        run_on(f"grpc++://localhost:{ports[0]}", "/job:ps/task:0")
    with pytest.raises(errors.NotFoundError, match="no target"):
        run_on(f"rdma://localhost:{ports[0]}", "/job:ps/task:0")


def test_the_variables_of_deeprec_are_read_and_reported(
    monkeypatch: pytest.MonkeyPatch, started: list[sr.train.Server], capfd: Any
) -> None:
    monkeypatch.setenv("WORKER_ENABLE_POLLING", "False")
    monkeypatch.setenv("PS_ENABLE_POLLING", "True")
    monkeypatch.setenv("NETWORK_PS_CORE_NUMBER", "1")
    monkeypatch.setenv("WORKER_DISABLE_PIN_CORES", "True")
    monkeypatch.setenv("NETWORK_MAX_CONNECTION_TIMEOUT", "5000")
    cluster = {job: [f"localhost:{port}"] for job, port in zip(("ps", "worker"), free_ports(2))}
    started.append(sr.train.Server(cluster, "worker", 0, protocol="grpc++"))
    line = settings_in(capfd.readouterr().err)
    assert "spin_us=adaptive (WORKER_ENABLE_POLLING)" in line
    assert "pin_cores=false (WORKER_DISABLE_PIN_CORES)" in line
    assert "connect_deadline_ms=5000 (NETWORK_MAX_CONNECTION_TIMEOUT)" in line
    assert "shared_memory=true (default)" in line
    started.append(
        sr.train.Server(cluster, "ps", 0, protocol="grpc++", polling=False, shared_memory=False)
    )
    line = settings_in(capfd.readouterr().err)
    assert "shared_memory=false (option)" in line
    assert "spin_us=adaptive (option)" in line
    assert "lanes=1 (NETWORK_PS_CORE_NUMBER)" in line
    assert "pin_cores=false (default)" in line
    assert run_on(started[0].target, "/job:ps/task:0") == 6
    monkeypatch.setenv("PS_ENABLE_POLLING", "on")
    with pytest.raises(errors.InvalidArgumentError, match="PS_ENABLE_POLLING is 'on'; it must be"):
        sr.train.Server({"ps": ["localhost:0"]}, protocol="grpc++")
    # Not looked at where there are no lanes.
    started.append(sr.train.Server({"ps": ["localhost:0"]}))
    assert " settings " not in capfd.readouterr().err


@pytest.mark.parametrize("protocol", ["grpc", "star_server"])
def test_servers_that_nobody_set_up_say_nothing_of_settings(protocol: str, capfd: Any) -> None:
    with sr.LocalCluster(in_process=True, protocol=protocol):
        assert capfd.readouterr().err == ""


def test_lanes_keep_to_processors_that_they_claim(
    started: list[sr.train.Server], capfd: Any
) -> None:
    cluster = {"ps": ["localhost:0"]}
    for _ in range(os.cpu_count() or 1):
        started.append(sr.train.Server(cluster, protocol="star_server", pin_cores=True))
    lines = [one for one in capfd.readouterr().err.splitlines() if "pinned" in one]
    pinned = [word for line in lines for word in line.split() if word.startswith("pinned_to=")]
    # Others on this machine may have taken some.
    assert len(lines) == len(started) and len(set(pinned)) == len(pinned)
    started.append(sr.train.Server(cluster, protocol="star_server", pin_cores=True))
    assert "lanes are not pinned: 0 of the processors" in capfd.readouterr().err


@pytest.mark.parametrize("protocol", ["grpc++", "star_server", "star_server_lite"])
def test_an_endpoint_map_says_where_data_ports_are(
    started: list[sr.train.Server], tmp_path: Path, protocol: str
) -> None:
    first, second, *data = free_ports(4)
    folder = tmp_path / "maps"
    folder.mkdir()
    (folder / ".endpoint_map").write_text(
        f"127.0.0.1:{first}=127.0.0.1:{data[0]}\n127.0.0.1:{second}=127.0.0.1:{data[1]}\n"
    )
    cluster = {"worker": [f"127.0.0.1:{first}"], "ps": [f"127.0.0.1:{second}"]}
    for job in ("worker", "ps"):
        server = sr.train.Server(
            cluster, job, 0, protocol=protocol, endpoint_map_path=str(folder) + "/"
        )
        started.append(server)
    assert [server._native.data_port for server in started] == data  # type: ignore[union-attr]
    assert run_on(started[0].target, "/job:ps/task:0") == 6
    (folder / ".endpoint_map").write_text("127.0.0.1:1\n")
    with pytest.raises(errors.InvalidArgumentError, match=r"maps/\.endpoint_map:1: .*is no pair"):
        sr.train.Server({"a": ["localhost:0"]}, protocol=protocol, endpoint_map_path=str(folder))


def test_a_map_in_the_working_directory_is_used_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, started: list[sr.train.Server], capfd: Any
) -> None:
    port, data, other = free_ports(3)
    line = f"localhost:{port}=localhost:{{}}\n"
    Path(".endpoint_map").write_text(line.format(data))
    cluster = {"ps": [f"localhost:{port}"]}
    started.append(sr.train.Server(cluster, protocol="star_server"))
    assert started[0]._native.data_port == data  # type: ignore[union-attr]
    said = settings_in(capfd.readouterr().err)
    assert "endpoint_map_path=. (the working directory)" in said
    started.pop().stop()
    Path("elsewhere").mkdir()
    Path("elsewhere/.endpoint_map").write_text(line.format(other))
    monkeypatch.setenv("TF_SEASTAR_ENDPOINT_MAP_PATH", "elsewhere/")
    started.append(sr.train.Server(cluster, protocol="star_server"))
    assert started[0]._native.data_port == other  # type: ignore[union-attr]
    monkeypatch.setenv("TF_SEASTAR_ENDPOINT_MAP_PATH", "nowhere")
    with pytest.raises(errors.NotFoundError, match="nowhere/.endpoint_map"):
        sr.train.Server({"ps": ["localhost:0"]}, protocol="star_server")


def test_serve_and_top_tell_protocol_and_settings(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    config = {"cluster": {"ps": [f"localhost:{port}"]}, "rpc_layer": "star_server"}
    processes = Processes()
    try:
        processes.serve(config, "ps", 0)
        top = subprocess.run(
            [PROGRAM, "top", "--target", f"grpc://localhost:{port}", "--once", "--json",
             "--interval", "0.1"],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
    finally:
        processes.end()
    (task,) = json.loads(top.stdout)["tasks"]
    assert task["protocol"] == "star_server"
    assert task["settings"]["spin_us"] == "adaptive (default)"
    assert "cpus" in task["settings"]
    serve = [PROGRAM, "serve", "--cluster", json.dumps(config), "--job", "ps", "--task", "0"]
    wrong = subprocess.run([*serve, "--protocol", "grpc"], capture_output=True, text=True)
    assert wrong.returncode != 0 and 'says "star_server" (rpc_layer)' in wrong.stderr
    knob = os.environ | {"NETWORK_PS_CORE_NUMBER": "many"}
    wrong = subprocess.run(serve, capture_output=True, text=True, env=knob)
    assert "NETWORK_PS_CORE_NUMBER is 'many'; it must be a whole number" in wrong.stderr
    wrong = subprocess.run(
        [*serve, "--endpoint-map", str(tmp_path)], capture_output=True, text=True
    )
    assert "cannot read the endpoint map" in wrong.stderr
