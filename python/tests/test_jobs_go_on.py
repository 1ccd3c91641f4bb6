"""Jobs of each kind, of which every process is killed in the middle, twice, and which the same
commands start again: each row is trained with once, and what comes out is as good as without."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs import job_data
from session_servers import PATIENCE_S, PROGRAM, ROOT, Processes, addresses

import sidereal as sr

JOBS = Path(job_data.__file__).parent
FRAPPE = ROOT.parent / "shared" / "data" / "frappe_x1"
#: What each kind is started with, the job of TF_CONFIG that it is, and where its checkpoints are.
KINDS = {
    "monitored": (["job_monitored.py"], "worker", ""),
    "estimator": (["job_estimator.py"], "chief", ""),
    "coordinator": (["job_coordinator.py"], "chief", ""),
    "keras": (["job_keras.py", "coordinator"], "chief", "backup"),
    "keras_workers": (["job_keras.py", "workers"], "chief", "backup"),
}
#: `sidereal train` is faster than the jobs in Python.
TRAIN_EPOCHS = 10


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not FRAPPE.is_dir() and os.environ.get("CI") != "true":
        pytest.skip("skipped: no data")
    return job_data.cut(FRAPPE, tmp_path_factory.mktemp("frappe"))


class Job:
    """A job with its servers: two parameter servers and a worker."""

    def __init__(self, kind: str, protocol: str, data: Path, folder: Path) -> None:
        (script, *who), self._task, below = KINDS[kind]
        self._command = [JOBS / script, *who, protocol, data, folder]
        self._protocol = protocol
        self._checkpoints = folder / below
        ports = addresses(4)
        self._cluster = {"ps": ports[:2], "worker": ports[2:3]}
        if self._task == "chief":
            self._cluster["chief"] = ports[3:]

    def _start(self, processes: Processes) -> None:
        for job, task in (("ps", 0), ("ps", 1), ("worker", 0)):
            if job != self._task:
                processes.serve(self._cluster, job, task, "--protocol", self._protocol)
        self.process = processes.script(self._cluster, self._task, 0, *self._command)

    def run(self) -> tuple[int, float]:
        """The rows that were counted, and the AUC, when nothing is killed any more."""
        processes = Processes()
        try:
            self._start(processes)
            said = self.process.communicate(timeout=2 * PATIENCE_S)[0]
        finally:
            processes.end()
        assert self.process.returncode == 0, said[-5000:]
        return self._found(said)

    def _found(self, said: str) -> tuple[int, float]:
        found = re.search(r"^rows (\d+) auc (\S+)$", said, re.M)
        assert found is not None, said[-5000:]
        return int(found[1]), float(found[2])

    def run_until_killed(self, checkpoints: int, steps: int) -> None:
        """Kills all that runs so many steps after so many checkpoints have come."""
        processes = Processes()
        try:
            self._start(processes)
            said = self._watch(checkpoints, steps)
            for process in processes.all:
                process.send_signal(signal.SIGKILL)
            assert self.process.wait(PATIENCE_S) == -signal.SIGKILL, said
        finally:
            processes.end()
        assert self._newest() is not None

    def _watch(self, checkpoints: int, steps: int) -> str:
        """Waits for so many checkpoints, and then for so many steps. The last lines it printed."""
        newest, seen = self._newest(), 0
        said: list[str] = []
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said.append(line)
            if seen < checkpoints:
                now = self._newest()
                seen, newest = seen + (now != newest), now
            elif line.startswith("step "):
                steps -= 1
            if steps < 0:
                break
        return "".join(said[-50:])

    def _newest(self) -> str | None:
        return sr.train.latest_checkpoint(self._checkpoints)


class Training(Job):
    """`sidereal train` on the same servers."""

    def __init__(self, protocol: str, data: Path, folder: Path) -> None:
        super().__init__("coordinator", protocol, data, folder)
        self._json = folder.with_suffix(".json")
        train, test = data.with_name("train.csv"), data.with_name("test.csv")
        self._options = (
            f"train --data {train} --test {test} --id-space {job_data.FEATURES} --model lr "
            f"--optimizer adagrad --lr 0.5 --batch-size {job_data.BATCH} --epochs {TRAIN_EPOCHS} "
            f"--shuffle-rows 1000 --seed 3 --checkpoint-dir {folder} --save-every 100steps "
            f"--json {self._json}"
        )

    def _start(self, processes: Processes) -> None:
        for job, task in (("ps", 0), ("ps", 1), ("worker", 0)):
            processes.serve(self._cluster, job, task, "--protocol", self._protocol)
        cluster = json.dumps({job: self._cluster[job] for job in ("ps", "worker")})
        self.process = subprocess.Popen(
            [PROGRAM, *self._options.split(), "--cluster", cluster], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        processes.all.append(self.process)

    def _watch(self, checkpoints: int, steps: int) -> str:
        """It prints no steps: kills come when a checkpoint is there, or a little later."""
        deadline = time.monotonic() + PATIENCE_S
        for _ in range(checkpoints):
            newest = self._newest()
            while self._newest() == newest:
                assert time.monotonic() < deadline
                with contextlib.suppress(subprocess.TimeoutExpired):
                    said = self.process.communicate(timeout=0.002)[0]
                    raise AssertionError(said)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(steps / 1000)
        return "it ended"

    def _found(self, said: str) -> tuple[int, float]:
        result = json.loads(self._json.read_text())
        before = result["checkpoints"]["rows_before"]
        assert before == 0 or " 0 rows lost" in said
        return before + result["rows"], result["test_auc"]


@pytest.fixture(scope="module")
def undisturbed() -> Iterator[dict[str, float]]:
    """The AUC of jobs that nobody has killed, by their kinds."""
    yield {}


def go_on(job: Job, undisturbed: float, rng: random.Random) -> tuple[int, float]:
    """What comes of a job that is killed twice."""
    job.run_until_killed(1 + rng.randrange(2), rng.randrange(30))
    job.run_until_killed(1, rng.randrange(30))
    rows, auc = job.run()
    assert abs(auc - undisturbed) < 0.001
    return rows, auc


@pytest.mark.parametrize(
    ("kind", "protocol"),
    [*((kind, "star_server") for kind in KINDS), ("monitored", "grpc"), ("coordinator", "grpc")],
)
def test_a_job_that_is_killed_goes_on(
    kind: str, protocol: str, data: Path, tmp_path: Path, undisturbed: dict[str, float]
) -> None:
    every = job_data.ROWS * job_data.EPOCHS
    if kind not in undisturbed:
        rows, undisturbed[kind] = Job(kind, protocol, data, tmp_path / "whole").run()
        assert rows == every and undisturbed[kind] > 0.87
    job = Job(kind, protocol, data, tmp_path / "killed")
    rows, _ = go_on(job, undisturbed[kind], random.Random(f"{kind} {protocol}"))
    assert rows == every


@pytest.mark.parametrize("protocol", ["star_server", "grpc"])
def test_a_training_of_the_command_line_goes_on(protocol: str, data: Path, tmp_path: Path) -> None:
    whole, auc = Training(protocol, data, tmp_path / "whole").run()
    assert whole == job_data.ROWS * TRAIN_EPOCHS and auc > 0.87
    job = Training(protocol, data, tmp_path / "killed")
    rows, _ = go_on(job, auc, random.Random(protocol))
    assert rows == whole
