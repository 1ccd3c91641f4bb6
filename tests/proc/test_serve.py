"""`sidereal serve`: servers of real processes, with a cluster and without one."""

import contextlib
import json
import re
import subprocess

import pytest
from processes import ONCE, PATIENCE_S, error_of

from sidereal.launch import PROTOCOLS


@contextlib.contextmanager
def serving(program, *words, **options):
    """A server, and the line that it prints."""
    server = subprocess.Popen([program, "serve", *map(str, words)], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, **options)
    try:
        yield server, server.stdout.readline().strip()
    finally:
        server.kill()
        server.communicate()


@pytest.mark.parametrize("cluster", [None, {"anything": {"3": "127.0.0.1:0"}}])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_server_takes_the_same_options_with_a_cluster_and_without(
        run, program, cluster, protocol):
    more = [] if cluster is None else ["--cluster", json.dumps(cluster)]
    with serving(program, "--job", "anything", "--task", 3, *more, "--protocol", protocol,
                 "--lanes", 2, "--spin-us", 10, "--drain", 1, "--metrics-port", 0,
                 "--data-listen", "127.0.0.1:0", "--option", "unproved_max=9") as (server, line):
        assert re.fullmatch(r"127\.0\.0\.1:\d+", line)
        up = next(text for text in server.stderr if " up " in text)
        assert f"target=grpc://{line} " in up and f"protocol={protocol} " in up
        assert " metrics=127.0.0.1:" in up
        finished = run(*ONCE, "--json", "--target", f"grpc://{line}")
        assert finished.returncode == 0, finished.stderr
        (task,) = json.loads(finished.stdout)["tasks"]
        assert task["task"] == "/job:anything/replica:0/task:3"
        assert (task["state"], task["protocol"]) == ("up", protocol)
        if protocol != "grpc":
            assert task["settings"]["lanes"] == "2 (option)"
        server.terminate()
        assert server.wait(PATIENCE_S) == 0


def test_without_being_told_a_server_speaks_grpc_on_loopback(program):
    with serving(program, "--job", "ps") as (server, line):
        assert line.startswith("127.0.0.1:")
        assert "protocol=grpc " in next(text for text in server.stderr if " up " in text)


@pytest.mark.parametrize("words, named", [
    (["--job", "no/job"], "no/job"),
    (["--job", "ps", "--listen", "nowhere"], "nowhere"),
    (["--job", "ps", "--option", "no_such=1"], "no_such"),
    (["--job", "ps", "--protocol", "star_server", "--data-listen", "7"], "7"),
])
def test_what_a_server_cannot_be_is_named(run, words, named):
    error = error_of(run("serve", *words))
    assert error.startswith(("INVALID_ARGUMENT", "NOT_FOUND")) and named in error
