#!/usr/bin/env python3
"""What it costs a training that parts of its table move to other parameter servers meanwhile.

A process trains a model with one large table, which begins on two of three ps, by fit() on two
workers. `sidereal scale --ps 3` and `--ps 2` move parts of the table and of its slots there and
back. Another process looks up rows of a table of its own on the same ps all the time: how long a
pull waits for lanes that copy. At last commands are cancelled at random points, each of which must
leave nothing behind.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

import sidereal as sr
import sidereal.v1 as tf
from common import (
    BIN,
    Child,
    Server,
    add_report_arguments,
    local_cluster,
    make_report,
    table,
    tasks_of,
    write_figures,
)
from sidereal.keras import layers
from sidereal.launch import PROTOCOLS

PS, START_PS, WORKERS = 3, 2, 2
DIM, FIELDS, BATCH = 16, 26, 256
#: Rows of data, which are read again and again.
DATA_ROWS = 1 << 16
PROBED_ROWS = 10_000
NAME = "reshard"
PATIENCE_S = 60.0


def train(cluster: dict[str, list[str]], rows: int) -> None:
    """Trains until it is killed; a line of rows so far, and when, several times a second."""
    model = sr.Model(seed=1)
    ids = model.input("ids", sr.int64, (FIELDS,))
    vectors = layers.Embedding(rows, DIM, name="items")(ids)
    model.compile(layers.FM()(vectors), optimizer=sr.optimizers.Adagrad(0.05))
    drawn = np.random.default_rng(1)
    data = {
        "ids": drawn.integers(0, rows, (DATA_ROWS, FIELDS)),
        "label": drawn.integers(0, 2, DATA_ROWS).astype(np.float32),
    }

    def tell(progress: sr.Progress) -> None:
        print(json.dumps([time.monotonic(), progress.rows]), flush=True)

    model.fit(
        data, cluster=sr.RemoteCluster(cluster), name=NAME, start_ps=START_PS,
        epochs=1 << 20, batch_size=BATCH, shuffle=False, verbose=False, on_progress=tell,
    )  # fmt: skip


def probe(target: str) -> None:
    """Looks up rows on each ps, again and again; for each line, how long the look-ups since the one
    before took, in milliseconds, by ps."""
    with tf.device("/job:worker/task:0"):
        ids = tf.placeholder("int64", [FIELDS])
    found = []
    for task in range(PS):
        with tf.device(f"/job:ps/task:{task}"):
            values = tf.get_variable(
                f"probed{task}", [PROBED_ROWS, DIM], initializer=tf.zeros_initializer(),
                trainable=False,
            )  # fmt: skip
        found.append(tf.gather(values, ids))
    drawn = np.random.default_rng(2).integers(0, PROBED_ROWS, (64, FIELDS))
    times: list[list[float]] = [[] for _ in found]
    with tf.Session(target) as session:
        session.run(tf.global_variables_initializer())
        session.run(found, {ids: drawn[0]})
        print("ready", flush=True)

        def answer() -> None:
            nonlocal times
            for _ in sys.stdin:
                taken, times = times, [[] for _ in found]
                print(json.dumps(taken), flush=True)

        threading.Thread(target=answer, daemon=True).start()
        number = 0
        while True:
            for task, rows in enumerate(found):
                begin = time.perf_counter()
                session.run(rows, {ids: drawn[number % len(drawn)]})
                times[task].append(1e3 * (time.perf_counter() - begin))
            number += 1
            # It is to show what pulls wait for, not to make them wait.
            time.sleep(0.002)


class Progress:
    """Rows that were trained, as the training says them while it goes."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._at: list[float] = []
        self._rows: list[float] = []
        self._changed = threading.Condition()
        self._has_ended = False
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while line := self._child.read_line():
            at, rows = json.loads(line)
            with self._changed:
                self._at.append(at)
                self._rows.append(rows)
                self._changed.notify_all()
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def wait_for_more(self) -> None:
        """Until more rows were trained than now."""
        with self._changed:
            before = self._rows[-1] if self._rows else 0.0
            self._changed.wait_for(
                lambda: self._has_ended or (self._rows and self._rows[-1] > before), PATIENCE_S
            )
            if not self._rows or self._rows[-1] <= before:
                raise RuntimeError("the training does not go on")

    def rate(self, begin: float, end: float) -> float:
        """Rows per second between two times."""
        self.wait_for_more()
        with self._changed:
            rows = np.interp([begin, end], self._at, self._rows)
        return float(rows[1] - rows[0]) / (end - begin)


def flat(lists: list[list[float]]) -> list[float]:
    return [value for one in lists for value in one]


class Moving:
    """Servers, what trains on them, what looks up rows beside it, and commands."""

    def __init__(self, protocol: str, rows: int, folder: Path) -> None:
        self.jobs = local_cluster(PS, WORKERS)
        self.events = folder / f"{protocol}.events"
        self.processes: list[Child] = []
        #: Commands that ended in another way than they were to.
        self.errors: list[str] = []
        try:
            for job, task in tasks_of(self.jobs):
                self.processes.append(Server(self.jobs, job, task, protocol))
            self.target = f"grpc://{self.jobs['worker'][0]}"
            os.environ["SIDEREAL_EVENT_LOG"] = str(self.events)
            trainer = self._start("--train", json.dumps(self.jobs), str(rows))
            del os.environ["SIDEREAL_EVENT_LOG"]
            self.progress = Progress(trainer)
            self.progress.wait_for_more()
            self.prober = self._start("--probe", self.target)
            if self.prober.read_line() != "ready\n":
                raise RuntimeError("nothing looks up rows")
        except BaseException:
            self.close()
            raise

    def _start(self, *arguments: str) -> Child:
        child = Child([sys.executable, __file__, *arguments], stdin=subprocess.PIPE)
        self.processes.append(child)
        return child

    def close(self) -> None:
        for process in reversed(self.processes):
            process.close()

    def pulls(self) -> list[list[float]]:
        """Milliseconds of the look-ups since this was last asked, by ps."""
        self.prober.write_line("")
        found: list[list[float]] = json.loads(self.prober.read_line())
        return found

    def told(self, event: str) -> list[dict[str, Any]]:
        """What the training has told of moves."""
        if not self.events.exists():
            return []
        lines = map(json.loads, self.events.read_text(encoding="utf-8").splitlines())
        return [line["fields"] for line in lines if line["event"] == event]

    def scale(self, ps: int) -> subprocess.Popen[str]:
        command = [str(BIN / "sidereal"), "scale", "--ps", str(ps), "--job", NAME]
        command += ["--target", self.target, "--timeout", str(PATIENCE_S)]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def move(self, ps: int, before_s: float) -> dict[str, Any]:
        """Moves to so many ps, and what that was like beside `before_s` seconds before it."""
        begin = time.monotonic()
        self.pulls()
        time.sleep(before_s)
        quiet = self.pulls()
        moves = len(self.told("move_done"))
        middle = time.monotonic()
        said, _ = (process := self.scale(ps)).communicate()
        end = time.monotonic()
        pulls = self.pulls()
        done = self.told("move_done")[moves:]
        if process.returncode != 0 or not done:
            self.errors.append(said.strip())
            return {}
        first, last = flat(pulls[:START_PS]), flat(pulls[START_PS:])
        gives, gets = (first, last) if ps == PS else (last, first)
        return {
            **done[-1],
            "quiet": flat(quiet), "gives": gives, "gets": gets,
            "rate_ratio": self.progress.rate(middle, end) / self.progress.rate(begin, middle),
        }  # fmt: skip

    def resources(self, ps: int) -> tuple[float, float]:
        """What a ps has: variables and the like, and their bytes."""
        command = [str(BIN / "sidereal"), "top", "--once", "--json", "--interval", "0.05"]
        command += ["--target", self.target, "--timeout", str(PATIENCE_S)]
        found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        for task in json.loads(found)["tasks"]:
            if task["task"] == f"/job:ps/replica:0/task:{ps}":
                figures = task["figures"]
                return figures["sidereal_task_resources"], figures["sidereal_task_resource_bytes"]
        raise RuntimeError(f"there is no ps {ps}")

    def wait_for_resources(self, ps: int, wanted: tuple[float, float]) -> bool:
        deadline = time.monotonic() + PATIENCE_S
        while self.resources(ps) != wanted:
            if time.monotonic() > deadline:
                return False
        return True

    def cancel(self, delay: float, empty: tuple[float, float]) -> str:
        """Cancels a move so many seconds after it began: how that ended."""
        process = self.scale(PS)
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate()
        how = "cancelled"
        if process.returncode == 0:
            how = "too late"
            back = self.scale(START_PS)
            said, _ = back.communicate()
            if back.returncode != 0:
                how = "an error"
        elif process.returncode not in (128 + signal.SIGINT, -signal.SIGINT):
            how = "an error"
        if not self.wait_for_resources(PS - 1, empty):
            how, said = "a trace", f"ps {PS - 1} has {self.resources(PS - 1)}, and had {empty}"
        if how in ("an error", "a trace"):
            self.errors.append(said.strip())
        self.progress.wait_for_more()
        return how


def row(case: str, ours: float, unit: str, bound: str = "", asked: float = 0) -> dict[str, Any]:
    """A figure, beside what it is to be "at most" or "at least"; "": nothing is asked."""
    is_met = {"": None, "at most": ours <= asked, "at least": ours >= asked}[bound]
    return {
        "case": case, "ours": ours, "peer": asked if bound else None, "unit": unit,
        "ratio": ours / asked if bound and asked else None, "bound": bound, "is_met": is_met,
    }  # fmt: skip


def measure_protocol(
    protocol: str, folder: Path, arguments: argparse.Namespace
) -> list[dict[str, Any]]:
    moving = Moving(protocol, arguments.rows, folder)
    try:
        empty = moving.resources(PS - 1)
        moves = []
        for _ in range(arguments.rounds):
            for ps in (PS, START_PS):
                moves.append(moving.move(ps, arguments.seconds))
        moves = [one for one in moves if one]
        if not moves:
            raise RuntimeError("; ".join(moving.errors))
        is_empty = moving.wait_for_resources(PS - 1, empty)
        usual = statistics.median(one["seconds"] for one in moves)
        drawn = random.Random(arguments.seed)
        ends = [moving.cancel(drawn.uniform(0, usual), empty) for _ in range(arguments.cancels)]
    finally:
        moving.close()
    for error in moving.errors:
        print(f"  {protocol}: {error}", file=sys.stderr)
    waits = {
        kind: float(np.percentile(np.concatenate([one[kind] for one in moves]), 99.9))
        for kind in ("quiet", "gives", "gets")
    }
    speeds = [one["bytes"] / 1e9 / one["seconds"] for one in moves]
    pauses = [1e3 * one["paused_s"] for one in moves]
    each = [pause / one["parts"] for pause, one in zip(pauses, moves, strict=True)]
    rates = [one["rate_ratio"] for one in moves]
    figures: list[tuple[Any, ...]] = [
        ("errors", len(moving.errors), "", "at most", 0),
        ("training stands still, for each part", max(each), "ms", "at most", 10),
        ("training stands still", max(pauses), "ms"),
        ("pulls of a ps that gives parts, p99.9", waits["gives"], "ms", "at most", 50),
        ("pulls of a ps that gets parts, p99.9", waits["gets"], "ms", "at most", 50),
        ("pulls before, p99.9", waits["quiet"], "ms"),
        ("rows/s while parts move, of before", statistics.median(rates), "", "at least", 0.7),
        ("moved", statistics.median(speeds), "GB/s", "at least", 0.5),
        (f"ps {PS - 1} is empty when it was left", int(is_empty), "", "at least", 1),
    ]  # fmt: skip
    if ends:
        bad = sum(how in ("a trace", "an error") for how in ends)
        figures += [
            (f"of {len(ends)} commands cancelled at random, left a trace or failed", bad, "",
             "at most", 0),
            ("of these, cancelled when all was done", ends.count("too late"), ""),
        ]  # fmt: skip
    return [row(f"{protocol}: {case}", *rest) for case, *rest in figures]


def shown(rows: list[dict[str, Any]]) -> str:
    return table(
        ("", "measured", "asked", ""),
        [
            (one["case"], f"{one['ours']:.3g} {one['unit']}".strip(),
             "" if one["peer"] is None else f"{one['bound']} {one['peer']:g}",
             {None: "", True: "met", False: "missed"}[one["is_met"]])
            for one in rows
        ],
    )  # fmt: skip


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    conditions = (
        f"A table of {arguments.rows:,} rows of {DIM} floats and the slots of Adagrad, trained by"
        f" {WORKERS} workers in batches of {BATCH} rows of {FIELDS} ids, on {START_PS} of {PS} ps;"
        f" {2 * arguments.rounds} moves to {PS} ps and back, {arguments.seconds:g} s before each to"
        f" compare with, seed {arguments.seed}; all processes on {os.cpu_count()} processors,"
        " loopback TCP."
    )
    print(conditions)
    rows = []
    with tempfile.TemporaryDirectory(prefix="sidereal-reshard-") as folder:
        for protocol in arguments.only:
            rows += measure_protocol(protocol, Path(folder), arguments)
    print(shown(rows))
    return {"rows": rows, "conditions": conditions}


def write(report: dict[str, Any], path: Path) -> None:
    text = textwrap.fill(report["conditions"], 100) + "\n\n" + shown(report["rows"])
    write_figures(path, "reshard", text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_report_arguments(parser)
    parser.add_argument("--only", nargs="+", choices=PROTOCOLS, default=["grpc", "star_server"])
    parser.add_argument("--rows", type=int, default=10_000_000, help="of the table")
    parser.add_argument("--rounds", type=int, default=3, help="each there and back")
    parser.add_argument("--seconds", type=float, default=5, help="before each move")
    parser.add_argument("--cancels", type=int, default=100, help="commands that are cancelled")
    parser.add_argument("--seed", type=int, default=1, help="of when these are")
    parser.add_argument("--quick", action="store_true", help="100,000 rows, once: does it work?")
    parser.add_argument("--train", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--probe", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.train is not None:
        cluster, rows = arguments.train
        return train(json.loads(cluster), int(rows))
    if arguments.probe is not None:
        return probe(arguments.probe)
    if arguments.quick:
        arguments.rows, arguments.rounds, arguments.seconds = 100_000, 1, 0.5
        arguments.cancels = 3
    return make_report(arguments, measure, write)


if __name__ == "__main__":
    main()
