"""Servers of a cluster and who may call them: real processes, real secrets."""

from __future__ import annotations

import contextlib
import itertools
import json
import pathlib
import socket
import subprocess

import pytest
from clicks import SMALL
from processes import PATIENCE_S, arguments, error_of

SECRET = "5f0c4a1f8f8e4f0a9c7a3a0de2f1a6b7"


@pytest.fixture
def secret_file(tmp_path):
    file = tmp_path / "cluster.secret"
    file.write_text(SECRET + "\n")
    file.chmod(0o600)
    return file


@contextlib.contextmanager
def serving(program, *more, environment=None, host="127.0.0.1"):
    """A ps and a worker started by hand: the cluster's addresses as JSON, and their processes."""
    servers, cluster = [], {"ps": [], "worker": []}
    try:
        for job in cluster:
            server = subprocess.Popen(
                [program, "serve", "--job", job, "--listen", f"{host}:0", *more],
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
            servers.append(server)
            _, _, port = server.stdout.readline().strip().rpartition(":")
            cluster[job].append(f"127.0.0.1:{port}")
        yield json.dumps(cluster), servers
    finally:
        for server in servers:
            server.kill()
            server.wait()
            server.stdout.close()


def test_a_cluster_with_a_secret_serves_who_has_it_and_nobody_else(
        run, program, clicks, tmp_path, secret_file):
    other = tmp_path / "other.secret"
    other.write_text(SECRET[::-1])
    with serving(program, "--secret-file", secret_file) as (cluster, servers):
        train = ["train", "--data", clicks[0], *SMALL, "--cluster", cluster]
        for strange in (["--secret-file", other], []):
            error = error_of(run(*train, *strange))
            assert error.startswith("UNAUTHENTICATED") and "secret" in error
        finished = run(*train, "--secret-file", secret_file)
        assert finished.returncode == 0, finished.stderr
        for server in servers:
            assert SECRET not in " ".join(arguments(server.pid))


def test_random_bytes_do_not_keep_others_from_being_served(
        run, program, clicks, secret_file):
    with serving(program, "--secret-file", secret_file) as (cluster, _):
        for address in itertools.chain.from_iterable(json.loads(cluster).values()):
            host, _, port = address.rpartition(":")
            for content in (b"\x00" * 64, b"GET / HTTP/1.1\r\n\r\n"):
                with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as nonmember:
                    nonmember.sendall(content)
                    with contextlib.suppress(ConnectionResetError):
                        assert nonmember.recv(1) == b""
        finished = run("train", "--data", clicks[0], *SMALL, "--cluster", cluster,
                       "--secret-file", secret_file)
        assert finished.returncode == 0, finished.stderr


@pytest.mark.parametrize("job", ["ps", "worker"])
def test_off_loopback_a_task_says_what_it_needs(run, job):
    error = error_of(run("serve", "--job", job, "--listen", "0.0.0.0:0"))
    assert error.startswith("FAILED_PRECONDITION")
    assert "--secret-file" in error and "insecure" in error


def test_off_loopback_a_secret_guards_the_lanes_of_a_ps_too(run, program, clicks, secret_file):
    with serving(program, "--secret-file", secret_file, host="0.0.0.0") as (cluster, _):
        finished = run("train", "--data", clicks[0], *SMALL, "--cluster", cluster,
                       "--secret-file", secret_file)
        assert finished.returncode == 0, finished.stderr


def test_a_secret_that_is_too_short_is_refused_without_being_shown(run, tmp_path):
    file = tmp_path / "short"
    file.write_text("hunter2")
    finished = run("serve", "--job", "worker", "--secret-file", file)
    assert error_of(finished).startswith("INVALID_ARGUMENT")
    assert "hunter2" not in finished.stderr and pathlib.Path(file).name in finished.stderr
