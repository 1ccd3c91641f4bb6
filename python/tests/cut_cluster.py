"""Parameter servers that keep standbys of each other, each in a network namespace of its own, with
voters or without, and a client that pushes to them through a worker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from network import Network, Watched
from session_servers import PATIENCE_S, PROGRAM

PS = 3
VOTERS = 3
SERVERS = [*(f"ps{task}" for task in range(PS)), "worker"]
VOTING = [f"voter{task}" for task in range(VOTERS)]
#: Another start of ps 1.
LATER = "later"
MEMBERS = [*SERVERS, LATER, *VOTING]
ADDRESSES = {name: f"10.213.78.{number}" for number, name in enumerate(MEMBERS, 1)}
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


class Cluster:
    """Servers in namespaces, and what they say in their event logs."""

    def __init__(
        self,
        network: Network,
        folder: Path,
        protocol: str,
        min_insync_replicas: int = 1,
        has_voters: bool = False,
    ) -> None:
        folder.mkdir()
        self._voting = VOTING if has_voters else []
        self._copies = [
            *("--option", "replicas=2"),
            *("--option", f"min_insync_replicas={min_insync_replicas}"),
        ]
        self._network, self._protocol, self._folder = network, protocol, folder
        (folder / "secret").write_text("0123456789abcdef0123456789abcdef")
        self.processes: dict[str, subprocess.Popen[str]] = {}
        for name in [*self._voting, *SERVERS]:
            self.serve(name)

    def serve(self, name: str) -> None:
        job = next((job for job in ("worker", "voter") if name.startswith(job)), "ps")
        options = {
            "ps": self._copies,
            "voter": ["--votes-file", str(self._folder / f"{name}.votes")],
        }.get(job, [])
        task = {"worker": "0", LATER: "1"}.get(name, name.removeprefix(job))
        ps = ["ps0", LATER if name == LATER else "ps1", "ps2"]
        jobs = {
            one: [f"{ADDRESSES[each]}:4000" for each in members]
            for one, members in (("ps", ps), ("worker", ["worker"]), ("voter", self._voting))
            if members
        }
        self.processes[name] = self._network.start(
            name, str(PROGRAM), "serve", "--cluster", json.dumps(jobs), "--job",
            job, "--task", task,
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
