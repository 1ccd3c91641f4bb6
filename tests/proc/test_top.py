"""`sidereal top` on clusters of real processes."""

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import pytest
from processes import ONCE, PATIENCE_S, error_of

from sidereal.launch import ReservedPorts


@contextlib.contextmanager
def serving(program, *more):
    """Two ps and a worker that serve sessions: their cluster, and their processes."""
    reserved = ReservedPorts(3)
    addresses = [f"127.0.0.1:{port}" for port in reserved.ports]
    cluster = {"ps": addresses[:2], "worker": addresses[2:]}
    servers = []
    try:
        for job, index in (("ps", 0), ("ps", 1), ("worker", 0)):
            servers.append(subprocess.Popen(
                [program, "serve", "--job", job, "--task", str(index), "--cluster",
                 json.dumps(cluster), *map(str, more)],
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))
        for server in servers:
            assert server.stdout.readline()
        yield cluster, servers
    finally:
        for server in servers:
            server.kill()
            server.wait()
            server.stdout.close()
        reserved.close()


def states(finished):
    assert finished.returncode == 0, finished.stderr
    return {task["task"]: task["state"] for task in json.loads(finished.stdout)["tasks"]}


def test_top_shows_all_tasks_and_who_of_them_is_gone(run, program):
    with serving(program) as (cluster, servers):
        finished = run(*ONCE, "--cluster", json.dumps(cluster))
        assert finished.returncode == 0, finished.stderr
        lines = finished.stdout.splitlines()
        assert lines[0] == "3 tasks, 3 up"
        assert [line.split()[:2] for line in lines[4:7]] == [
            ["/job:ps/task:0", "up"], ["/job:ps/task:1", "up"], ["/job:worker/task:0", "up"]]
        servers[1].send_signal(signal.SIGKILL)
        servers[1].wait()
        # The others are learnt from any one of them.
        finished = run(*ONCE, "--json", "--target", f"grpc://{cluster['worker'][0]}")
        assert states(finished) == {
            "/job:ps/replica:0/task:0": "up", "/job:ps/replica:0/task:1": "down",
            "/job:worker/replica:0/task:0": "up"}
        down = json.loads(finished.stdout)["tasks"][1]
        assert cluster["ps"][1] in down["error"]


def test_a_task_that_does_not_answer_keeps_nobody_waiting(run, program):
    with serving(program) as (cluster, servers):
        servers[0].send_signal(signal.SIGSTOP)
        begun = time.monotonic()
        finished = run(*ONCE, "--json", "--timeout", "5", "--cluster", json.dumps(cluster))
        assert time.monotonic() - begun < PATIENCE_S / 2
        # It has no connection yet, and gets none.
        assert states(finished)["/job:ps/replica:0/task:0"] in ("down", "no answer")
        assert states(finished)["/job:worker/replica:0/task:0"] == "up"


def test_top_needs_the_secret_of_the_cluster(run, program, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("7f0ac3d1e2b49658c0ffee00c0ffee00")
    with serving(program, "--secret-file", secret) as (cluster, _):
        once = [*ONCE, "--json", "--cluster", json.dumps(cluster)]
        assert set(states(run(*once)).values()) == {"down"}
        finished = run(*once, "--secret-file", secret)
        assert set(states(finished).values()) == {"up"}
        for task in json.loads(finished.stdout)["tasks"]:
            assert sum(count for name, count in task["figures"].items()
                       if name.startswith("sidereal_refused_total")) > 0


def test_top_finds_the_cluster_in_tf_config(program):
    with serving(program) as (cluster, _):
        environment = {**os.environ, "TF_CONFIG": json.dumps({"cluster": cluster})}
        finished = subprocess.run(
            [program, *ONCE, "--json"], env=environment,
            capture_output=True, text=True, timeout=PATIENCE_S)
        assert len(states(finished)) == 3
    bare = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    # Programs of this user beside the tests may have clusters; this one has none.
    finished = subprocess.run([program, "top", "--once", "--pid", str(os.getpid())], env=bare,
                              capture_output=True, text=True, timeout=PATIENCE_S)
    assert "--cluster" in error_of(finished)


def test_top_shows_servers_that_do_not_know_their_cluster(run, program):
    servers, cluster = [], {"ps": [], "worker": []}
    try:
        for job in cluster:
            server = subprocess.Popen([program, "serve", "--job", job, "--listen", "127.0.0.1:0"],
                                      stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            servers.append(server)
            cluster[job].append(server.stdout.readline().strip())
        finished = run(*ONCE, "--json", "--cluster", json.dumps(cluster))
        assert set(states(finished).values()) == {"up"}
        assert [task["pid"] for task in json.loads(finished.stdout)["tasks"]] == [
            server.pid for server in servers]
        # Such a one knows itself alone, and by the address that it was asked at.
        finished = run(*ONCE, "--json", "--target", f"grpc://{cluster['worker'][0]}")
        assert states(finished) == {"/job:worker/replica:0/task:0": "up"}
    finally:
        for server in servers:
            server.kill()
            server.wait()
            server.stdout.close()


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, command, rows, columns):
        self.master, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.before = termios.tcgetattr(terminal)
        self.terminal = terminal
        self.process = subprocess.Popen([str(word) for word in command], stdin=terminal,
                                        stdout=terminal, stderr=terminal, start_new_session=True)
        self.text = ""

    def read_until(self, pattern):
        deadline = time.monotonic() + PATIENCE_S
        while not re.search(pattern, self.text, re.DOTALL):
            left = deadline - time.monotonic()
            assert left > 0, f"no {pattern!r} in {self.text!r}"
            if select.select([self.master], [], [], left)[0]:
                self.text += os.read(self.master, 65536).decode()

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.terminal)


@pytest.mark.parametrize("key", ["q", "\x03"])
def test_on_a_terminal_top_redraws_until_a_key_ends_it(program, key):
    with serving(program) as (cluster, _):
        terminal = Terminal([program, "top", "--interval", "0.1", "--cluster",
                             json.dumps(cluster)], 20, 60)
        try:
            terminal.read_until(r"(3 tasks, 3 up.*){3}")
            os.write(terminal.master, key.encode())
            assert terminal.process.wait(PATIENCE_S) == 0
            terminal.read_until(r"\x1b\[\?1049l")
            assert termios.tcgetattr(terminal.terminal) == terminal.before
            frame = terminal.text.split("\x1b[H")[2].split("\x1b[J")[0]
            rows = [re.sub(r"\x1b\[[0-9?]*[A-Za-z]|\r", "", row) for row in frame.split("\n")]
            assert len(rows) <= 20 and max(map(len, rows)) <= 60
        finally:
            terminal.close()


@contextlib.contextmanager
def training(program):
    """A training that goes on until it is killed at the end."""
    words = ["demo", "--rows", "2000000000", "--model", "lr", "--quiet"]
    with subprocess.Popen([program, *words], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as demo:
        try:
            yield demo
        finally:
            demo.kill()


def test_top_shows_what_the_tasks_of_a_training_do(run, program):
    with training(program) as demo:
        deadline = time.monotonic() + PATIENCE_S
        tasks = []
        while not tasks or any(task["per_s"]["sidereal_task_steps_total"] <= 0
                               for task in tasks):
            found = run(*ONCE, "--json", "--pid", demo.pid)
            assert time.monotonic() < deadline, found.stdout + found.stderr
            tasks = json.loads(found.stdout)["tasks"] if found.returncode == 0 else []
        assert len(tasks) == 4
        for task in tasks:
            for name in ("uptime_seconds", "memory_bytes", "threads"):
                assert task["figures"][f"sidereal_task_{name}"] > 0, task["task"]
        kept = [task["figures"]["sidereal_task_resource_bytes"] for task in tasks
                if "/job:ps/" in task["task"]]
        assert min(kept) > 0


def test_top_finds_what_a_program_of_the_same_user_runs(run, program):
    with training(program) as demo:
        deadline = time.monotonic() + PATIENCE_S
        while True:  # Until its cluster is up.
            found = run(*ONCE, "--json", "--pid", demo.pid)
            if found.returncode == 0 or time.monotonic() > deadline:
                break
        assert found.returncode == 0, found.stderr
        tasks = [task["task"] for task in json.loads(found.stdout)["tasks"]]
        assert sum("/job:ps/" in task for task in tasks) == 2
        assert sum("/job:worker/" in task for task in tasks) == 2
        # Another user's, or none, is nobody's.
        wrong = run("top", "--once", "--pid", os.getpid())
        assert "has started none" in wrong.stderr and wrong.returncode == 1
    gone = run("top", "--once", "--pid", demo.pid)
    assert "has started none" in gone.stderr
