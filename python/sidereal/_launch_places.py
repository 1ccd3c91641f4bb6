"""Where `sidereal launch` runs the tasks of a cluster, and what it has of each that runs: on this
machine, over ssh, or on the nodes of an allocation of Slurm."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from . import _launch_task

#: Seconds that Slurm has to name the nodes of an allocation.
SCONTROL_S = 60.0
#: Finds the runner of a task on another machine, without starting the package.
REMOTE_RUNNER = (
    "import importlib.util as u, os, runpy; "
    "runpy.run_path(os.path.join(os.path.dirname(u.find_spec('sidereal').origin), "
    "'_launch_task.py'), run_name='__main__')"
)


class PlaceError(Exception):
    """Why there is no place for the tasks, and what to do."""


@dataclass(frozen=True)
class Task:
    """Where one task runs and what it is."""

    job: str
    index: int
    host: str | None = None  #: None: this machine.
    address: str = ""  #: "host:port"; "" for an evaluator, which nobody calls.

    @property
    def name(self) -> str:
        return f"{self.job} {self.index}"


class Runner(Protocol):
    """What runs a task: see _launch_task."""

    output: int  #: What the task prints; reading it does not wait.
    handle: int  #: Can be read from when the runner has ended, and all is in `output`.

    def tell(self, line: bytes) -> None:
        """Sends it a line, if it is still there."""

    def kill(self) -> None:
        """Ends it at once, and with it its task."""

    def wait(self) -> int:
        """The exit code, negative for a signal, when `handle` said that it has ended."""

    def close(self) -> None:
        """Gives back what it has, when it has ended."""


class Place(Protocol):
    """Where tasks run."""

    tasks: list[Task]

    def start(self, task: Task, config: dict[str, Any]) -> Runner:
        """Runs what `config` says, for _launch_task."""

    def close(self) -> None:
        """When all have ended."""


class ReservedPorts:
    """Ports of `host` that nobody listens at, for as long as this object lives. Not of the range
    that the system gives to connections: before a task listens there, somebody's connection could
    have taken it. Each is reserved by a name of the abstract namespace of Unix sockets, which
    belongs to one process and ends with it, so that another launch takes others."""

    def __init__(
        self, count: int, candidates: Sequence[int] | None = None, host: str = "127.0.0.1"
    ) -> None:
        """Takes `count` of the candidates, in their order; without any, of all ports."""
        self._host = host
        self._names: list[socket.socket] = []
        self.ports: list[int] = []
        for port in self._all(count) if candidates is None else candidates:
            if len(self.ports) == count:
                break
            self._reserve(port)

    @staticmethod
    def _all(count: int) -> list[int]:
        try:
            lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
        except (OSError, ValueError):
            lowest = 32768
        out = list(range(min(10240, lowest - 1), lowest))
        random.SystemRandom().shuffle(out)
        return out + [0] * count  # The system's choice, should nothing else be free.

    def _reserve(self, port: int) -> None:
        name = socket.socket(socket.AF_UNIX)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((self._host, port))
            port = probe.getsockname()[1]
            name.bind(f"\0sidereal-port-{port}")
            self._names.append(name)
            self.ports.append(port)
            return
        name.close()

    def close(self) -> None:
        """Others may have them. Idempotent."""
        for name in self._names:
            name.close()
        self._names = []


def script(options: argparse.Namespace) -> list[str]:
    """What all other tasks run: the arguments of Python."""
    return [*(["-m"] if options.module else []), options.script, *options.arguments]


def voter(index: str, cluster: str, *more: str) -> list[str]:
    """What a voter runs: the arguments of Python. index: of the task. cluster, more: options of
    `sidereal serve`."""
    out = ["-m", "sidereal", "serve", "--job", "voter", "--task", index, "--cluster", cluster]
    return [*out, "--log-level", "warning", *more]


def wanted(options: argparse.Namespace) -> list[tuple[str, int]]:
    """Job and index of each member, the chief first: tasks that others wait for start early."""
    out = [("chief", 0)] * options.chief
    out += [("ps", i) for i in range(options.ps)]
    out += [("voter", i) for i in range(options.voters)]
    return out + [("worker", i) for i in range(options.workers)]


def on_hosts(options: argparse.Namespace, hosts: Sequence[str]) -> list[Task]:
    """All tasks, on these hosts in turn; ports of a host follow one another."""
    out, used = [], dict.fromkeys(hosts, 0)
    for number, (job, index) in enumerate(wanted(options)):
        host = hosts[number % len(hosts)]
        out.append(Task(job, index, host, f"{host.rpartition('@')[2]}:{options.port + used[host]}"))
        used[host] += 1
    return out + [Task("evaluator", 0, hosts[len(out) % len(hosts)])] * options.evaluator


class ProcessRunner:
    """A runner that is a process of this machine, or one that leads to another machine."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._stdin = self._process.stdin
        self.output = self._process.stdout.fileno()
        self.handle = os.pidfd_open(self._process.pid)
        os.set_blocking(self.output, False)

    def tell(self, line: bytes) -> None:
        # Where it ended at once, its output says why.
        with contextlib.suppress(OSError, ValueError):
            self._stdin.write(line)
            self._stdin.flush()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def wait(self) -> int:
        return self._process.wait()

    def close(self) -> None:
        os.close(self.handle)
        assert self._process.stdout is not None
        self._process.stdout.close()
        with contextlib.suppress(OSError):  # What is left to say to it cannot be said.
            self._stdin.close()


def _told(runner: ProcessRunner, config: dict[str, Any]) -> ProcessRunner:
    runner.tell(json.dumps(config).encode() + b"\n")
    return runner


class ThisMachine:
    """Tasks are processes here, on ports of loopback that were free."""

    def __init__(self, options: argparse.Namespace) -> None:
        members = wanted(options)
        self._ports = ReservedPorts(len(members))
        self.tasks = [
            Task(job, index, None, f"127.0.0.1:{port}")
            for (job, index), port in zip(members, self._ports.ports, strict=True)
        ] + [Task("evaluator", 0)] * options.evaluator

    def start(self, task: Task, config: dict[str, Any]) -> Runner:
        command = [sys.executable, "-I", "-S", _launch_task.__file__]
        return _told(ProcessRunner(command), {**config, "signals": True})

    def close(self) -> None:
        self._ports.close()


class OverSsh:
    """Tasks run on hosts that ssh leads to."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._way = shlex.split(options.ssh)
        self._runner = shlex.join([options.python, "-c", REMOTE_RUNNER])
        self.tasks = on_hosts(options, options.hosts.split(","))

    def start(self, task: Task, config: dict[str, Any]) -> Runner:
        assert task.host is not None
        command = [*self._way, task.host, self._runner]
        return _told(ProcessRunner(command), {**config, "signals": False})

    def close(self) -> None:
        pass


def allocated_nodes() -> list[str]:
    """Names of the nodes of the allocation that this program runs in. PlaceError without one."""
    nodes = os.environ.get("SLURM_JOB_NODELIST")
    if not nodes or "SLURM_JOB_ID" not in os.environ:
        raise PlaceError(
            "--on slurm runs in an allocation, and SLURM_JOB_ID and SLURM_JOB_NODELIST are not set "
            "here: call it under salloc, or in a script of sbatch"
        )
    command = ["scontrol", "show", "hostnames", nodes]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SCONTROL_S, check=True
        )
    except FileNotFoundError:
        raise PlaceError("--on slurm needs Slurm's scontrol and srun, which are not here") from None
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or error
        raise PlaceError(f"scontrol does not say which nodes '{nodes}' are: {said}") from None
    return done.stdout.split()


class InAllocation:
    """Tasks are steps of one task each on the nodes of an allocation of Slurm."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self.tasks = on_hosts(options, allocated_nodes())

    def start(self, task: Task, config: dict[str, Any]) -> Runner:
        assert task.host is not None
        command = [
            "srun", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={task.host}",
            f"--cpus-per-task={max(1, int(self._options.cpus))}", "--quiet", "--unbuffered",
            f"--job-name={task.job}-{task.index}",
            self._options.python, "-c", REMOTE_RUNNER,
        ]  # fmt: skip
        return _told(ProcessRunner(command), {**config, "signals": False})

    def close(self) -> None:
        pass
