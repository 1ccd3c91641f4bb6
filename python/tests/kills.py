"""Parameter servers that are standbys of each other, workers and a coordinator under load, and what
may happen to their processes, drawn by a seed, with voters or without. What was answered must be
there, and nothing twice.

    PYTHONPATH=build/dev/python .venv/bin/python python/tests/kills.py --kills 100 --protocol grpc
"""

from __future__ import annotations

import argparse
import json
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from counting import Counting
from leftovers import tasks_of
from session_servers import PATIENCE_S, Processes, addresses
from strategies import strategy_of

import sidereal as sr
from sidereal import errors
from sidereal.distribute.coordinator import ClusterCoordinator

PS, WORKERS, PUSHERS = 3, 2, 8
STEPS = 20  #: Of the coordinator, between two looks at what they have made.
#: Seconds that a process stands still.
STOPPED_S = (0.5, 2.5)


def coordinate(cluster: dict[str, Any]) -> None:
    """The program of the coordinator: adds one to a variable of each ps in each step, and says how
    many steps have done so; ends when they have not done so once."""
    coordinator = ClusterCoordinator(
        strategy_of(cluster), on_ps_loss="restore", effectively_once=True
    )
    with coordinator.strategy.scope():
        counts = [sr.Variable(0.0, name=f"steps{task}") for task in range(PS)]

    @sr.function
    def step() -> None:
        for count in counts:
            count.assign_add(1.0)

    done = 0
    while True:
        for _ in range(STEPS):
            coordinator.schedule(step)
        coordinator.join(PATIENCE_S)
        done += STEPS
        found = [float(count.numpy()) for count in counts]
        print("steps" if found == [done] * PS else f"{found} and not", done, flush=True)


class Pusher(threading.Thread):
    """Pushes to all ps, with one session after the other, until it is told to end."""

    def __init__(self, target: str, seed: int, heard: threading.Condition) -> None:
        super().__init__(daemon=True)
        self.counting = Counting(target, seed, PS)
        self.answered_at = 0.0  #: When the latest push began that was answered.
        self.failures: list[tuple[float, str]] = []  #: When what was under way failed, and how.
        self._heard = heard

    def run(self) -> None:
        counting, connected = self.counting, True
        while not counting.ends.is_set():
            try:
                if not connected:
                    counting.close()
                    counting.connect()
                    connected = True
                began = time.monotonic()
                counting.push()
                with self._heard:
                    self.answered_at = began
                    self._heard.notify_all()
            except errors.Error as error:
                self.failures.append((time.monotonic(), str(error)))
                # A worker that is being started refuses at once.
                if not connected:
                    counting.ends.wait(0.02)
                connected = False


class Roles:
    """All processes, and what is done to them."""

    def __init__(self, protocol: str, seed: int, voters: int) -> None:
        self.random = np.random.default_rng(seed)
        self._protocol = protocol
        self._voters = voters
        self._votes = tempfile.TemporaryDirectory()
        self.jobs = {"voter": addresses(voters)} if voters else {}
        self.jobs |= {"ps": addresses(PS), "worker": addresses(WORKERS)}
        self.processes = Processes()
        self._all: dict[tuple[str, int], subprocess.Popen[str]] = {}
        for job, members in self.jobs.items():
            for task in range(len(members)):
                self.start(job, task)
        self.targets = [f"grpc://{address}" for address in self.jobs["worker"]]
        self.heard = threading.Condition()
        self.pushers = [
            Pusher(self.targets[i % WORKERS], seed + i, self.heard) for i in range(PUSHERS)
        ]
        first = self.pushers[0].counting
        first.session.run(first.initialize)
        self.reader = Counting(self.targets[0], seed, PS)
        self._copies = self._wanted = [2] * PS  # Of each ps, by number.
        self.start_coordinator()
        self.wait_until_in_sync()
        for pusher in self.pushers:
            pusher.start()
        self.away: dict[str, list[float]] = {}
        self.noticed: list[float] = []

    def start(self, job: str, task: int) -> None:
        options = {
            "ps": ["--option", "replicas=2"],
            "voter": ["--votes-file", f"{self._votes.name}/{task}"],
        }.get(job, [])
        self._all[job, task] = self.processes.serve(
            self.jobs, job, task, "--protocol", self._protocol, "--lanes", "2", *options
        )

    def signal(self, job: str, task: int, number: int) -> None:
        self._all[job, task].send_signal(number)
        if number == signal.SIGKILL:
            self._all[job, task].wait()

    def start_coordinator(self) -> None:
        words = [sys.executable, __file__, "--coordinate", json.dumps(self.jobs)]
        self._coordinator = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.processes.all.append(self._coordinator)
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(
            target=self._read, args=(self._coordinator, self._lines), daemon=True
        ).start()
        self.wait_for_steps()

    def _read(self, process: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line.strip())
        lines.put("it has ended")

    def wait_for_steps(self) -> None:
        """The coordinator makes steps, each of them once, also those that were under way."""
        with suppress(queue.Empty):
            while True:
                self._take(self._lines.get_nowait())
        for _ in range(2):
            self._take(self._lines.get(timeout=PATIENCE_S))

    def _take(self, line: str) -> None:
        assert line.startswith("steps "), f"the coordinator says: {line}"

    def wait_until_in_sync(self) -> None:
        """Each ps has a standby, of what sessions share and of the coordinator; and of what is kept
        for a while of one that was killed."""
        end = time.monotonic() + PATIENCE_S
        before: list[int] = []
        while True:
            copies = [
                task.get("figures", {}).get("sidereal_standby_copies", 0)
                for task in tasks_of(self.targets[0])
                if "/job:ps" in task["task"]
            ]
            has_all = all(has >= had for has, had in zip(copies, self._copies, strict=True))
            if copies == self._wanted or (has_all and copies == before):
                self._copies = copies
                return
            before = copies
            assert time.monotonic() < end, copies

    def wait_for_push(self, since: float) -> float:
        """Seconds until a push was answered that began after that."""
        with self.heard:
            assert self.heard.wait_for(
                lambda: any(one.answered_at >= since for one in self.pushers), PATIENCE_S
            ), [one.failures[-1:] for one in self.pushers]
        return time.monotonic() - since

    def _kill_ps(self, task: int) -> None:
        since = time.monotonic()
        self.signal("ps", task, signal.SIGKILL)
        self.start("ps", task)
        self.away.setdefault("ps", []).append(self.wait_for_push(since))
        name = f"/job:ps/replica:0/task:{task}"
        failed = [
            at - since
            for one in self.pushers
            for at, why in one.failures
            if at >= since and name in why
        ]
        assert failed, f"nobody heard of {name}"
        self.noticed.append(min(failed))
        self.wait_until_in_sync()

    def _stand_still(self, job: str, task: int) -> None:
        self.signal(job, task, signal.SIGSTOP)
        threading.Event().wait(float(self.random.uniform(*STOPPED_S)))

    def one_ps(self) -> None:
        self._kill_ps(int(self.random.integers(PS)))

    def ps_and_its_standby(self) -> None:
        task = int(self.random.integers(PS))
        self._kill_ps(task)
        self._kill_ps((task + 1) % PS)

    def ps_and_the_one_before(self) -> None:
        task = int(self.random.integers(PS))
        self._kill_ps(task)
        self._kill_ps((task - 1) % PS)

    def ps_stands_still(self) -> None:
        """Its standbys, and those that it is one of, go on alone meanwhile."""
        task = int(self.random.integers(PS))
        self._stand_still("ps", task)
        since = time.monotonic()
        self.signal("ps", task, signal.SIGCONT)
        self.away.setdefault("stopped", []).append(self.wait_for_push(since))
        self.wait_until_in_sync()

    def ps_hangs_and_is_replaced(self) -> None:
        """As launchers do it: there are never two of them."""
        task = int(self.random.integers(PS))
        self._stand_still("ps", task)
        self._kill_ps(task)

    def worker(self) -> None:
        task = int(self.random.integers(WORKERS))
        since = time.monotonic()
        self.signal("worker", task, signal.SIGKILL)
        self.start("worker", task)
        self.away.setdefault("worker", []).append(self.wait_for_push(since))

    def voter(self) -> None:
        """Nobody notices one of several; without the others nothing is answered till it is back."""
        task = int(self.random.integers(self._voters))
        since = time.monotonic()
        self.signal("voter", task, signal.SIGKILL)
        self.away.setdefault("voter", []).append(self.wait_for_push(since))
        self.start("voter", task)

    def voter_stands_still(self) -> None:
        task = int(self.random.integers(self._voters))
        self._stand_still("voter", task)
        self.signal("voter", task, signal.SIGCONT)

    def coordinator(self) -> None:
        self._coordinator.kill()
        self._coordinator.wait()
        self.start_coordinator()
        self.wait_until_in_sync()

    def check(self) -> None:
        """What was answered is there, and not more than was sent."""
        answered = sum(one.counting.answered.copy() for one in self.pushers)
        for _ in range(20):
            try:
                found = self.reader.now()
                break
            except errors.Error:
                self.reader.close()
                self.reader.connect()
        else:
            raise AssertionError("nothing can be read")
        sent = sum(one.counting.sent.copy() for one in self.pushers)
        assert (found >= answered).all(), f"lost: {np.argwhere(found < answered)[:5].tolist()}"
        assert (found <= sent).all(), f"twice: {np.argwhere(found > sent)[:5].tolist()}"

    def check_copies(self) -> None:
        """Nothing is pushed any more: each copy is what it is of, bit for bit."""
        self._coordinator.kill()
        self._coordinator.wait()
        self._copies = self._wanted = [1] * PS
        for one in self.pushers:
            one.counting.ends.set()
        for one in self.pushers:
            one.join(PATIENCE_S)
            assert not one.is_alive()
        self.check()
        for task in range(PS):
            self.wait_until_in_sync()
            before = self.reader.now()
            self.signal("ps", task, signal.SIGKILL)
            self.start("ps", task)
            self.reader.close()
            self.reader.connect()
            assert (self.reader.now() == before).all(), f"the copy of ps {task} is another one"

    def end(self) -> None:
        for one in self.pushers:
            one.counting.ends.set()
        self.processes.end()
        self._votes.cleanup()


#: What may happen, and how often.
KINDS: dict[str, tuple[Callable[[Roles], None], int]] = {
    "a ps": (Roles.one_ps, 5),
    "a ps, and its standby": (Roles.ps_and_its_standby, 3),
    "a ps, and whose standby it is": (Roles.ps_and_the_one_before, 2),
    "a ps stands still": (Roles.ps_stands_still, 2),
    "a ps hangs, and is replaced": (Roles.ps_hangs_and_is_replaced, 2),
    "a worker": (Roles.worker, 2),
    "the coordinator": (Roles.coordinator, 1),
    "a voter": (Roles.voter, 2),
    "a voter stands still": (Roles.voter_stands_still, 1),
}


def drawn(random: np.random.Generator, kills: int, voters: int) -> list[str]:
    """Each kind once, as far as these go; then by their weights."""
    names = [name for name in KINDS if voters or "voter" not in name]
    weights = np.array([KINDS[name][1] for name in names], float)
    more = random.choice(names, max(0, kills - len(names)), p=weights / weights.sum())
    return [*random.permutation(names)[:kills].tolist(), *more.tolist()]


def run(protocol: str, kills: int, seed: int, say: Callable[[str], None], voters: int = 0) -> Roles:
    """Raises AssertionError for what is wrong, once the processes have ended."""
    roles = Roles(protocol, seed, voters)
    try:
        began = time.monotonic()
        for number, name in enumerate(drawn(roles.random, kills, voters)):
            say(f"{time.monotonic() - began:.1f} s, {number}: {name}")
            KINDS[name][0](roles)
            roles.check()
            roles.wait_for_steps()
        roles.check_copies()
    finally:
        roles.end()
    return roles


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--protocol", default="grpc")
    parser.add_argument("--voters", type=int, default=0, help="0, or 3")
    parser.add_argument("--coordinate", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.coordinate is not None:
        coordinate(json.loads(arguments.coordinate))
    roles = run(
        arguments.protocol, arguments.kills, arguments.seed, lambda line: print(line),
        arguments.voters,
    )  # fmt: skip
    found = {**roles.away, "noticed": roles.noticed}
    for name, seconds in found.items():
        p50, p99 = np.percentile(seconds, (50, 99))
        print(f"{arguments.protocol} {name}: {len(seconds)} times, s p50 {p50:.3f}"
              f" p99 {p99:.3f} worst {max(seconds):.3f}")  # fmt: skip
    pushes = sum(one.counting.answered.sum() for one in roles.pushers)
    print(f"{arguments.protocol} rows pushed and answered: {pushes:.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
