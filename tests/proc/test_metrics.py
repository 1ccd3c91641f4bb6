"""`sidereal serve --metrics-port`: what Prometheus gets, from real processes."""

import contextlib
import http.client
import json
import pathlib
import re
import socket
import ssl
import subprocess

import pytest
from processes import ONCE, PATIENCE_S, error_of
from prometheus_client.parser import text_string_to_metric_families

SECRET = "3b1f0c66a7a94f6d8be2c0ffee5eed01"
ROOT = pathlib.Path(__file__).parents[2]
BOARD = ROOT / "deploy" / "grafana" / "sidereal.json"


@contextlib.contextmanager
def serving(program, *more):
    """A server with a port for Prometheus: where it serves, and that port."""
    server = subprocess.Popen(
        [program, "serve", "--job", "ps", "--cluster", '{"ps": ["127.0.0.1:0"]}',
         "--metrics-port", "0", *map(str, more)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        target = "grpc://" + server.stdout.readline().strip()
        for line in server.stderr:
            if found := re.search(r" metrics=127\.0\.0\.1:(\d+)", line):
                break
        else:
            pytest.fail("the server did not say where its figures are")
        yield target, int(found[1])
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
        server.stderr.close()


def scrape(port, context=None):
    """The text that Prometheus gets."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    with contextlib.closing(connection):
        if context is not None:
            plain = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
            connection.sock = context.wrap_socket(plain, server_hostname="cluster.sidereal")
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return answer.read().decode()


def samples_of(text):
    """Values by the name that `sidereal top` has for a figure; histograms by their parts."""
    out = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation and family.type in ("counter", "gauge", "histogram")
        for sample in family.samples:
            assert sample.labels["task"] == "/job:ps/replica:0/task:0"
            labels = [f'{name}="{value}"' for name, value in sample.labels.items()
                      if name != "task"]
            series = sample.name + ("{" + ",".join(labels) + "}" if labels else "")
            assert series not in out
            out[series] = sample.value
    return out


def test_prometheus_gets_the_figures_that_top_shows(run, program):
    with serving(program, "--protocol", "star_server", "--lanes", "2") as (target, port):
        before = samples_of(scrape(port))
        finished = run(*ONCE, "--json", "--target", target)
        after = samples_of(scrape(port))
        assert finished.returncode == 0, finished.stderr
        (task,) = json.loads(finished.stdout)["tasks"]
        histograms = {name.partition("{")[0] for name, value in task["figures"].items()
                      if isinstance(value, dict)}
        parts = re.compile("(" + "|".join(histograms) + r")_(bucket|sum|count)\b")
        limit = re.compile(r'[{,]le="[^"]*"}$')

        def figure_of(sample):
            name = parts.sub(r"\1", sample)
            found = limit.search(name)
            if found is None:
                return name
            return name[:found.start()] + ("}" if found[0][0] == "," else "")

        assert {figure_of(name) for name in after} == set(task["figures"])
        assert len(task["figures"]) > 40 and histograms
        for name, value in task["figures"].items():
            if isinstance(value, dict):
                count = "_count{".join(name.split("{")) if "{" in name else name + "_count"
                assert before[count] <= value["count"] <= after[count]
            elif "_total" in name:
                assert before[name] <= value <= after[name], name
        assert after["sidereal_scrapes_total"] == before["sidereal_scrapes_total"] + 1 == 2
        assert task["figures"]["sidereal_task_sessions"] == after["sidereal_task_sessions"] == 0
        assert set(task["per_s"]) == {name for name in task["figures"] if "_total" in name}
        shown = run(*ONCE, "--figures", "--target", target).stdout
        assert {line.split()[0] for line in shown.splitlines()[2:] if line} == set(task["figures"])


def test_a_server_says_that_it_is_healthy(program):
    with serving(program) as (target, port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        with contextlib.closing(connection):
            connection.request("GET", "/healthz")
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (200, b"ok\n")
        grpc = pytest.importorskip("grpc")
        with grpc.insecure_channel(target.removeprefix("grpc://")) as channel:
            check = channel.unary_unary("/grpc.health.v1.Health/Check")
            # HealthCheckRequest of the whole server; HealthCheckResponse with SERVING.
            assert check(b"", timeout=PATIENCE_S) == b"\x08\x01"


def test_without_being_asked_nobody_listens(program):
    server = subprocess.Popen(
        [program, "serve", "--job", "ps", "--cluster", '{"ps": ["127.0.0.1:0"]}'],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        target = "grpc://" + server.stdout.readline().strip()
        up = next(line for line in server.stderr if " up " in line)
        assert target in up and "metrics=" not in up
        with socket.create_connection(("127.0.0.1", int(target.rpartition(":")[2]))) as peer:
            peer.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            assert b"sidereal_" not in peer.recv(4096)
    finally:
        server.kill()
        server.communicate()


def test_with_a_secret_figures_are_for_members(run, program, tmp_path):
    secret, other = tmp_path / "secret", tmp_path / "other"
    secret.write_text(SECRET)
    other.write_text(SECRET[::-1])
    for name, file in (("ours", secret), ("theirs", other)):
        (tmp_path / name).mkdir()
        made = run("certificate", "--secret-file", file, "--directory", tmp_path / name)
        assert made.returncode == 0, made.stderr
    key = tmp_path / "ours" / "cluster.key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert "cluster.key" in error_of(
        run("certificate", "--secret-file", secret, "--directory", tmp_path / "ours"))

    def context(own):
        # What Prometheus does with ca_file, cert_file, key_file and server_name.
        made = ssl.create_default_context(cafile=tmp_path / "ours" / "cluster.pem")
        if own is not None:
            made.load_cert_chain(tmp_path / own / "cluster.pem", tmp_path / own / "cluster.key")
        return made

    with serving(program, "--secret-file", secret) as (_, port):
        assert "sidereal_task_steps_total" in scrape(port, context("ours"))
        for nonmember in (context("theirs"), context(None), None):
            with pytest.raises((OSError, http.client.HTTPException)):
                scrape(port, nonmember)
        counts = samples_of(scrape(port, context("ours")))
        assert counts["sidereal_scrapes_total"] == 2
        assert counts['sidereal_refused_total{why="certificate"}'] == 2
        assert counts['sidereal_refused_total{why="garbage"}'] == 1


def test_off_loopback_figures_need_a_secret_too(run):
    error = error_of(run("serve", "--job", "ps", "--cluster", '{"ps": ["0.0.0.0:0"]}',
                         "--metrics-port", "0"))
    assert error.startswith("FAILED_PRECONDITION")
    error = error_of(run("serve", "--job", "ps", "--listen", "0.0.0.0:0", "--metrics-port", "0"))
    assert error.startswith("FAILED_PRECONDITION")


def test_a_port_in_use_is_named(run):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        error = error_of(run("serve", "--job", "ps", "--cluster", '{"ps": ["127.0.0.1:0"]}',
                             "--metrics-port", port))
    assert str(port) in error


def names_in(board):
    """The figures that the panels of a board ask for."""
    asked = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    assert all(asked)
    return set(re.findall(r"\bsidereal_\w+", " ".join(asked)))


def test_the_board_asks_for_figures_that_there_are(program):
    board = json.loads(BOARD.read_text())
    with serving(program, "--protocol", "star_server_lite") as (_, port):
        there = {name.partition("{")[0] for name in samples_of(scrape(port))}
    asked = names_in(board)
    assert len(asked) > 15
    assert asked <= there, asked - there
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
