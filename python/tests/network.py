"""Networks of namespaces whose members can be cut off from each other, for tests. Making them takes
root and `ip`."""

from __future__ import annotations

import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

#: The hardware address of a station that is not there.
NOBODY = "02:00:00:00:00:77"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Network:
    """A namespace for each member, and one with a bridge between them."""

    def __init__(self, addresses: dict[str, str], number: int) -> None:
        self.addresses = addresses
        self.names = {
            name: f"sidereal-{name}-{os.getpid()}-{number}" for name in [*addresses, "hub"]
        }
        self.made: list[str] = []

    def make(self) -> None:
        for name in self.names.values():
            ip("netns", "add", name)
            self.made.append(name)
            ip("-n", name, "link", "set", "lo", "up")
        hub = self.names["hub"]
        ip("-n", hub, "link", "add", "bridge", "type", "bridge")
        ip("-n", hub, "link", "set", "bridge", "up")
        for name, address in self.addresses.items():
            ip("-n", self.names[name], "link", "add", "cable", "type", "veth",
               "peer", name, "netns", hub)  # fmt: skip
            ip("-n", hub, "link", "set", name, "master", "bridge", "up")
            ip("-n", self.names[name], "address", "add", f"{address}/24", "dev", "cable")
            ip("-n", self.names[name], "link", "set", "cable", "up")

    def remove(self) -> None:
        for name in self.made:
            ip("netns", "del", name)

    def cut(self, *cuts: tuple[str, str]) -> None:
        """What the first of a pair sends to the second goes to a station that is not there."""
        for source, to in cuts:
            ip("-n", self.names[source], "neighbour", "replace", self.addresses[to], "lladdr",
               NOBODY, "dev", "cable", "nud", "permanent")  # fmt: skip

    def heal(self, *cuts: tuple[str, str]) -> None:
        for source, to in cuts:
            ip("-n", self.names[source], "neighbour", "del", self.addresses[to], "dev", "cable")

    def start(self, name: str, *words: str, **options: object) -> subprocess.Popen[str]:
        return subprocess.Popen(  # type: ignore[call-overload,no-any-return]
            ["ip", "netns", "exec", self.names[name], *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options,
        )  # fmt: skip


@contextmanager
def making_networks(addresses: dict[str, str]) -> Iterator[Callable[[], Network]]:
    """Makes networks of these members, by name, that know nothing of each other; skips the test
    where they cannot be made."""
    made: list[Network] = []

    def make() -> Network:
        made.append(Network(addresses, len(made)))
        try:
            made[-1].make()
        except (OSError, subprocess.CalledProcessError) as error:
            why = getattr(error, "stderr", "") or error
            pytest.skip(f"network namespaces cannot be made here: {str(why).strip()}")
        return made[-1]

    try:
        yield make
    finally:
        for one in made:
            one.remove()


class Watched:
    """The lines of a process, as they come."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: queue.Queue[list[str]] = queue.Queue()
        self.seen: list[list[str]] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line.split())
        self.lines.put(["end"])

    def until(self, holds: Callable[[list[str]], bool], seconds: float) -> list[str] | None:
        """Reads lines until one for which that holds; none in that time is None."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            try:
                line = self.lines.get(timeout=left)
            except queue.Empty:
                return None
            self.seen.append(line)
            if holds(line):
                return line
            assert line != ["end"], self.seen[-20:]
        return None
