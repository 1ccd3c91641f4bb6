"""Many jobs of all kinds of two users on one cluster, at once: a name is one job at a time."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from leftovers import Leftovers, serve, tasks_of
from session_servers import PATIENCE_S, Processes

from sidereal import v1

JOBS = 250
#: Jobs after which everything that is kept once is there.
WARM = 100
USERS = ("alice", "bob")
#: Programs of each user that run jobs at the same time.
DRIVERS = 2
NAMES = ("ads", "feed", "search")
KINDS = ("fit", "train", "session", "script")
SEEDS = (1, 2)


class Driver:
    """A program of a user that runs one job after the other."""

    def __init__(self, user: str) -> None:
        self.user = user
        self.process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("job_driver.py")], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env=os.environ | {"SIDEREAL_USER": user},
        )  # fmt: skip

    def run(self, job: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        print(json.dumps(job), file=self.process.stdin, flush=True)
        said: dict[str, Any] = json.loads(self.process.stdout.readline())
        return said


@pytest.fixture
def processes() -> Iterator[Processes]:
    made = Processes()
    yield made
    made.end()


@pytest.fixture
def drivers() -> Iterator[list[Driver]]:
    made = [Driver(user) for user in USERS for _ in range(DRIVERS)]
    yield made
    for driver in made:
        driver.process.kill()
        driver.process.communicate()


def write_rows(path: Path) -> Path:
    draw = random.Random(1)
    rows = [f"{draw.randrange(2)},{draw.random():.3f},v{draw.randrange(9)}" for _ in range(128)]
    path.write_text("\n".join(["label,price,site", *rows, ""]))
    return path


@pytest.mark.parametrize("protocol", ["grpc", "star_server"])
def test_jobs_of_two_users_are_refused_or_run_and_none_is_harmed(
    processes: Processes, drivers: list[Driver], protocol: str, tmp_path: Path
) -> None:
    spec = serve(processes, protocol, ps=2, worker=1)
    target = f"grpc://{spec['worker'][0]}"
    data = write_rows(tmp_path / "rows.csv")

    def job(kind: str, seed: int, name: str, **how: bool) -> dict[str, Any]:
        return {
            "kind": kind, "seed": seed, "name": name, "spec": spec, "data": str(data),
            "folder": str(tmp_path), "take_over": False, "queues": False, **how,
        }  # fmt: skip

    alone = {}
    for kind in KINDS:
        for seed in SEEDS:
            said = drivers[0].run(job(kind, seed, "alone"))
            assert len(said.get("result", [])) >= 4, (kind, said)
            alone[kind, seed] = said["result"]
    assert len({tuple(result) for result in alone.values()}) == len(alone)

    draw = random.Random(protocol)
    waiting: Queue[Driver] = Queue()
    for driver in drivers:
        waiting.put(driver)

    def run(wanted: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        driver = waiting.get()
        try:
            return wanted, driver.run(wanted)
        finally:
            waiting.put(driver)

    def run_some(count: int) -> dict[str, int]:
        some = []
        for _ in range(count):
            how = draw.random()
            kind, seed, name = draw.choice(KINDS), draw.choice(SEEDS), draw.choice(NAMES)
            some.append(job(kind, seed, name, take_over=how < 0.05, queues=how > 0.7))
        became = {"result": 0, "refused": 0, "taken": 0}
        with ThreadPoolExecutor(len(drivers)) as pool:
            for wanted, said in pool.map(run, some):
                (what,) = said
                assert what in became, (wanted, said)
                became[what] += 1
                if what == "result":
                    assert said[what] == alone[wanted["kind"], wanted["seed"]], wanted
                    continue
                # Somebody is named, who may be another program of the same user.
                assert f"the job '{wanted['name']}' " in said[what], said
                assert any(f" by {other} on host " in said[what] for other in USERS), said
                assert ("taken over" in said[what]) or what == "refused", said
                assert not (what == "refused" and wanted["queues"])
        return became

    run_some(WARM)
    names = {one.pid: str(one.args) for one in processes.all}
    names |= {driver.process.pid: f"a program of {driver.user}" for driver in drivers}
    # What sessions share stays until it is reset.
    v1.Session.reset(target)
    before = Leftovers(names)
    became = run_some(JOBS - WARM)
    assert became["result"] > JOBS // 4, became
    assert became["refused"] > 0, became
    # A server that is slow to answer says nothing of jobs, and one to hear of an end has it still.
    deadline = time.monotonic() + PATIENCE_S
    while any(task.get("jobs", ["no answer"]) for task in tasks_of(target)):
        assert time.monotonic() < deadline, tasks_of(target)
    v1.Session.reset(target)
    before.check(target)
