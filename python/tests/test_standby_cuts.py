"""The network between a ps and the one that keeps its standby is cut under load, both ways or one
way, and heals: it goes on alone, says so, and has a standby again. Needs the right to make network
namespaces."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from network import Network, Watched, making_networks
from session_servers import PATIENCE_S, PROGRAM

PS = 3
MEMBERS = [*(f"ps{task}" for task in range(PS)), "worker"]
#: Another start of ps 1.
LATER = "later"
ADDRESSES = {name: f"10.213.78.{number}" for number, name in enumerate([*MEMBERS, LATER], 1)}
#: What is lost: of what goes from one to the other.
CUTS = {
    "both_ways": [("ps1", "ps2"), ("ps2", "ps1")],
    "to_the_standby": [("ps1", "ps2")],
    "from_the_standby": [("ps2", "ps1")],
}

#: Pushes again and again, with a new session when one has ended; says each time how often, and at
#: the end whether all is there that was answered, and nothing twice.
CLIENT = """
import sys, threading
from contextlib import suppress
from counting import Counting
from sidereal import errors

counting = Counting(sys.argv[1], 1, 3)
counting.session.run(counting.initialize)
done = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), done.set()), daemon=True).start()
number = 0
while not done.is_set():
    try:
        counting.push()
        number += 1
        print("pushed", number, flush=True)
    except errors.Error:
        counting.close()
        counting.connect()
found = counting.now()
print("value", int((found < counting.answered).sum()), int((found > counting.sent).sum()),
      flush=True)
"""

#: How many pushes a task has of what this client pushes.
COUNT = """
import sys
from counting import PUSHED, Counting

print("has", int(Counting(sys.argv[1], 1, 3).now()[1].sum()) // PUSHED, flush=True)
"""


@pytest.fixture
def make_network() -> Iterator[Callable[[], Network]]:
    """Networks that know nothing of each other."""
    with making_networks(ADDRESSES) as make:
        yield make


class Cluster:
    """Servers in namespaces, and what they say in their event logs."""

    def __init__(
        self, network: Network, folder: Path, protocol: str, min_insync_replicas: int = 1
    ) -> None:
        folder.mkdir()
        self._copies = [
            *("--option", "replicas=2"),
            *("--option", f"min_insync_replicas={min_insync_replicas}"),
        ]
        self._network, self._protocol, self._folder = network, protocol, folder
        (folder / "secret").write_text("0123456789abcdef0123456789abcdef")
        self.processes: dict[str, subprocess.Popen[str]] = {}
        for name in MEMBERS:
            self.serve(name)

    def serve(self, name: str) -> None:
        options = self._copies if name != "worker" else []
        task = {"worker": "0", LATER: "1"}.get(name, name.removeprefix("ps"))
        ps = ["ps0", LATER if name == LATER else "ps1", "ps2"]
        jobs = {
            job: [f"{ADDRESSES[one]}:4000" for one in members]
            for job, members in (("ps", ps), ("worker", ["worker"]))
        }
        self.processes[name] = self._network.start(
            name, str(PROGRAM), "serve", "--cluster", json.dumps(jobs), "--job",
            "worker" if name == "worker" else "ps", "--task", task,
            "--protocol", self._protocol, "--lanes", "1", *options,
            "--secret-file", str(self._folder / "secret"), "--event-log", str(self.log_of(name)),
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        made = self.processes[name]
        assert made.stdout is not None and made.stdout.readline().endswith(":4000\n")

    def log_of(self, name: str) -> Path:
        return self._folder / f"{name}.jsonl"

    def events(self, name: str, event: str) -> list[dict[str, object]]:
        lines = self.log_of(name).read_text().splitlines() if self.log_of(name).exists() else []
        return [one for one in map(json.loads, lines) if one["event"] == event]

    def client(self) -> Watched:
        return self.program("client", "worker", CLIENT, f"grpc://{ADDRESSES['worker']}:4000")

    def counts(self, target: str) -> int:
        """How many pushes ps 1 has, as a server of its cluster finds it."""
        line = self.program("count", LATER, COUNT, target).until(
            lambda line: line[0] == "has", PATIENCE_S
        )
        assert line is not None
        return int(line[1])

    def program(self, name: str, member: str, text: str, target: str) -> Watched:
        self.processes[name] = self._network.start(
            member, sys.executable, "-c", text, target,
            env=os.environ | {
                "SIDEREAL_SECRET_FILE": str(self._folder / "secret"),
                "PYTHONPATH": os.pathsep.join(map(str, [Path(__file__).parent, *sys.path])),
            },
        )  # fmt: skip
        return Watched(self.processes[name])

    def end(self) -> None:
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait()


def push(client: Watched, count: int) -> None:
    for _ in range(count):
        assert client.until(lambda line: line[0] == "pushed", PATIENCE_S), client.seen[-5:]


def push_until(cluster: Cluster, client: Watched, name: str, event: str, count: int) -> None:
    """Pushes are answered all the while, until a server has said that so often."""
    while len(cluster.events(name, event)) < count:
        push(client, 1)


def wait_for(holds: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end
        threading.Event().wait(0.02)


def cut_and_heal(network: Network, cuts: list[tuple[str, str]], folder: Path) -> None:
    cluster = Cluster(network, folder, "star_server")
    try:
        client = cluster.client()
        push_until(cluster, client, "ps1", "standby_in_sync", 1)
        network.cut(*cuts)
        push_until(cluster, client, "ps1", "standby_lost", 1)
        assert "acknowledged" in str(cluster.events("ps1", "standby_lost")[0])
        push(client, 50)
        network.heal(*cuts)
        push_until(cluster, client, "ps1", "standby_in_sync", 2)
        # What was answered meanwhile is in the copy.
        cluster.processes["ps1"].kill()
        cluster.processes["ps1"].wait()
        cluster.serve("ps1")
        push(client, 50)
        assert cluster.events("ps1", "standby_taken")
        stdin = cluster.processes["client"].stdin
        assert stdin is not None
        stdin.close()
        line = client.until(lambda line: line[0] == "value", PATIENCE_S)
        assert line is not None and line[1:] == ["0", "0"], "lost, and made twice"
        assert not cluster.events("ps1", "task_deposed")
    finally:
        cluster.end()


def test_a_ps_that_is_cut_off_goes_on_alone_and_has_a_standby_again(
    make_network: Callable[[], Network], tmp_path: Path
) -> None:
    """All cuts at the same time: it is waited most of the time."""
    networks = [make_network() for _ in CUTS]
    with ThreadPoolExecutor(len(CUTS)) as pool:
        cuts = [
            pool.submit(cut_and_heal, network, cuts, tmp_path / name)
            for network, (name, cuts) in zip(networks, CUTS.items(), strict=True)
        ]
    for one in cuts:
        one.result()


def test_one_whose_place_was_taken_while_it_was_cut_off_ends_when_it_hears_of_it(
    make_network: Callable[[], Network], tmp_path: Path
) -> None:
    network = make_network()
    cluster = Cluster(network, tmp_path / "cluster", "star_server")
    try:
        client = cluster.client()
        push_until(cluster, client, "ps1", "standby_in_sync", 1)
        network.cut(*CUTS["both_ways"])
        push_until(cluster, client, "ps1", "standby_lost", 1)
        cluster.serve(LATER)
        push_until(cluster, client, LATER, "standby_taken", 1)
        push(client, 50)  # By those that reach it, and it cannot know better.
        network.heal(*CUTS["both_ways"])
        assert cluster.processes["ps1"].wait(PATIENCE_S) == 1
        (deposed,) = cluster.events("ps1", "task_deposed")
        (later,) = cluster.events(LATER, "task_up")
        assert f"'by': '{later['incarnation']}'" in str(deposed)
    finally:
        cluster.end()


def test_one_that_is_cut_off_answers_nothing_where_two_must_have_it(
    make_network: Callable[[], Network], tmp_path: Path
) -> None:
    network = make_network()
    cluster = Cluster(network, tmp_path / "cluster", "star_server", min_insync_replicas=2)

    def cut_off(times: int) -> None:
        network.cut(*CUTS["both_ways"])
        wait_for(lambda: len(cluster.events("ps1", "pushes_wait")) == times)
        # What was answered before.
        client.until(lambda line: False, 0.5)
        assert client.until(lambda line: line[0] == "pushed", 1) is None

    try:
        client = cluster.client()
        push_until(cluster, client, "ps1", "standby_in_sync", 1)
        cut_off(1)
        network.heal(*CUTS["both_ways"])
        push(client, 50)
        client.until(lambda line: False, 0.5)  # That is noticed, several times a second.
        cut_off(2)
        # What another process has that takes its place is what was answered.
        pushed = sum(line[0] == "pushed" for line in client.seen)
        cluster.serve(LATER)
        wait_for(lambda: cluster.events(LATER, "standby_taken"))
        network.heal(*CUTS["both_ways"])
        assert cluster.processes["ps1"].wait(PATIENCE_S) == 1
        assert client.until(lambda line: line[0] == "pushed", 1) is None
        found = cluster.counts(f"grpc://{ADDRESSES[LATER]}:4000")
        assert found in (pushed, pushed + 1), "the last one was made, and not answered"
    finally:
        cluster.end()
