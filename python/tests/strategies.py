"""Strategies on clusters of servers, and workers that run what is traced for them, for tests."""

from __future__ import annotations

import json
import operator
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from leftovers import tasks_of
from session_servers import PATIENCE_S, PROGRAM, Processes, addresses, free_ports

import sidereal as sr
import sidereal.v1 as v1
from sidereal.distribute import ParameterServerStrategy
from sidereal.distribute.cluster_resolver import SimpleClusterResolver
from sidereal.distribute.coordinator import ClusterCoordinator
from sidereal.launch import PROTOCOLS


class Servers:
    """Parameter servers and workers in this process."""

    def __init__(self, ps: int, workers: int, protocol: str = "grpc") -> None:
        ports = free_ports(ps + workers)
        self.cluster = {
            "ps": [f"localhost:{port}" for port in ports[:ps]],
            "worker": [f"localhost:{port}" for port in ports[ps:]],
        }
        self.all = [
            sr.train.Server(self.cluster, job, index, protocol)
            for job, count in (("ps", ps), ("worker", workers))
            for index in range(count)
        ]

    def stop(self) -> None:
        for server in self.all:
            server.stop()


class Tasks:
    """Parameter servers and workers in processes of their own, as a cluster of these; those
    parameter servers that are `not_yet` there are to be started. `of_ps`: their options."""

    def __init__(
        self, ps: int, workers: int, protocol: str = "grpc", not_yet: Sequence[int] = (),
        of_ps: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self._of_ps = of_ps
        self.cluster = {"ps": addresses(ps), "worker": addresses(workers)}
        self.protocol = protocol
        self.processes = Processes()
        self.all: dict[tuple[str, int], subprocess.Popen[str]] = {}
        for job, members in self.cluster.items():
            for task in range(len(members)):
                if job != "ps" or task not in not_yet:
                    self.start(job, task)

    def start(self, job: str, task: int) -> None:
        self.all[job, task] = self.processes.serve(
            self.cluster, job, task, "--protocol", self.protocol,
            *(self._of_ps if job == "ps" else ()),
        )  # fmt: skip

    def kill(self, job: str, task: int) -> None:
        self.all[job, task].kill()
        self.all[job, task].wait()

    def strategy(self, **options: Any) -> ParameterServerStrategy:
        return strategy_of(self.cluster, **options)

    def coordinator(self, **options: Any) -> ClusterCoordinator:
        return ClusterCoordinator(self.strategy(), **options)

    def found_by(self, coordinator: ClusterCoordinator) -> None:
        """Until all workers are there for functions."""
        until = time.monotonic() + PATIENCE_S
        while coordinator.metrics()["workers_found"] < len(self.cluster["worker"]):
            assert time.monotonic() < until

    def wait_for_standbys(self, used: Sequence[int]) -> None:
        """Until each parameter server has one in sync for what all share, and those that are used
        one for the variables of a strategy."""
        wanted = [1 + (task in used) for task in range(len(self.cluster["ps"]))]
        until = time.monotonic() + PATIENCE_S
        while True:
            tasks = tasks_of(f"grpc://{self.cluster['worker'][0]}")
            found = [one.get("figures", {}).get("sidereal_standbys", 0) for one in tasks
                     if "/job:ps" in one["task"]]  # fmt: skip
            # One that was started again keeps what it has taken for a while.
            if len(found) == len(wanted) and all(map(operator.ge, found, wanted)):
                return
            assert time.monotonic() < until, (found, wanted)

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`sidereal WORDS`, once the coordinator hears of commands."""
        until = time.monotonic() + PATIENCE_S
        while True:
            ended = subprocess.run(
                [PROGRAM, *words, "--cluster", json.dumps(self.cluster)],
                capture_output=True, text=True, timeout=PATIENCE_S, check=False,
            )  # fmt: skip
            waits = "no job" in ended.stderr or "takes no commands" in ended.stderr
            if not waits or time.monotonic() > until:
                return ended

    def well(self, *words: str) -> str:
        """What it says when it was carried out."""
        ended = self.command(*words)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def moves_while(self, train: Callable[[], int]) -> int:
        """Has variables move from the first two of three parameter servers to all, and then away
        from the second one, which is killed, while a thread calls `train()`, which says how many
        functions it has run: how many it were."""
        stops, made = threading.Event(), [0]

        def run() -> None:
            while not stops.is_set():
                made[0] += train()

        thread = threading.Thread(target=run)
        thread.start()
        try:
            self.start("ps", 2)
            self.well("scale", "--ps", "3")
            self.well("drain", "ps:1")
            self.kill("ps", 1)
            before, until = made[0], time.monotonic() + PATIENCE_S
            while made[0] < before + 80 and time.monotonic() < until:
                stops.wait(0.02)
        finally:
            stops.set()
            thread.join()
        assert made[0] > before
        return made[0]


def cluster_fixture(ps: int, workers: int, protocols: Sequence[str] = PROTOCOLS) -> Any:
    """A fixture of servers in this process that the tests of a module share, over each protocol in
    turn: who is in their cluster."""

    @pytest.fixture(scope="module", params=protocols)
    def cluster(request: pytest.FixtureRequest) -> Iterator[dict[str, list[str]]]:
        servers = Servers(ps, workers, request.param)
        yield servers.cluster
        servers.stop()

    return cluster


def strategy_of(
    cluster: dict[str, list[str]], variable_partitioner: Callable[..., Any] | None = None,
    **options: Any,
) -> ParameterServerStrategy:  # fmt: skip
    return ParameterServerStrategy(
        SimpleClusterResolver(sr.train.ClusterSpec(cluster)), variable_partitioner, **options
    )


def ps(task: int) -> str:
    return f"/job:ps/replica:0/task:{task}/device:CPU:0"


def equal(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


class Worker:
    """Runs functions as a worker of a strategy."""

    def __init__(self, strategy: ParameterServerStrategy, index: int = 0) -> None:
        self._strategy = strategy
        self.session = v1.Session(
            strategy._target("worker", index), strategy._graph,
            strategy._session_config("/job:ps"),
        )  # fmt: skip

    def run(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """The result of a function, by the names that its plan says."""
        plan, tensors = self._strategy._plan(function, args, kwargs)
        nodes = [*plan.fetches, *plan.targets]
        if not nodes:
            return plan.pack([])
        found = self.session.run(nodes, dict(zip(plan.feeds, tensors)))
        return plan.pack(found[: len(plan.fetches)])

    def close(self) -> None:
        self.session.close()
