#!/usr/bin/env python3
"""How current a follower is under full training, how long its look-ups take, and what it costs.

Two ps have a table in two blocks, to whose rows a process of its own pushes as fast as it can:
pushes per second, and the servers' processor time for one, before there is a follower and with one.
Beside that this process pushes to one row, and looks it up in its sr.Follower until it is there;
and looks up 26 rows in it, and over gRPC in `sidereal follow --listen`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import sidereal as sr
import sidereal.v1 as tf
from common import BIN, Child, Server, local_cluster, table, tasks_of
from sidereal.launch import PROTOCOLS

PS = 2
DIM = 16
FIELDS = 26
PUSHED = 2000  #: Rows of one push.
NAME = "table"
PATIENCE_S = 60.0
#: Before anything has followed; while something does; and in the minute after that, in which a log
#: stays open.
KINDS = ("alone", "followed", "left")
#: What is pushed to be looked for is in rows that the training leaves alone, one of each part.
MARKED = 16


class Table:
    """The table, and what is pushed to it."""

    def __init__(self, rows: int) -> None:
        with tf.device(tf.train.replica_device_setter(PS, worker_device="/job:worker/task:0")):
            self.parts = list(
                tf.get_variable(
                    NAME, [rows, DIM], initializer=tf.zeros_initializer(),
                    partitioner=tf.fixed_size_partitioner(PS), trainable=False,
                )
            )  # fmt: skip
        self.block = rows // PS
        with tf.device("/job:worker/task:0"):
            self.ids = tf.placeholder("int64", [PUSHED])
            self.mark = tf.placeholder("float32", [])
            values = sr.ones([PUSHED, DIM])
            marks = sr.ones([1, DIM]) * self.mark
        self.push = tf.group(*(tf.scatter_add(part, self.ids, values) for part in self.parts))
        self.push_mark = tf.group(*(tf.scatter_update(part, [0], marks) for part in self.parts))


def train(target: str, rows: int) -> None:
    """For each line with a number of seconds, a line with the pushes in these."""
    made = Table(rows)
    random = np.random.default_rng(1)
    drawn = [random.integers(MARKED, made.block, PUSHED) for _ in range(64)]
    with tf.Session(target) as session:
        print("ready", flush=True)
        for line in sys.stdin:
            seconds = float(line)
            begin, count = time.monotonic(), 0
            while (now := time.monotonic()) < begin + seconds:
                session.run(made.push, {made.ids: drawn[count % len(drawn)]})
                count += 1
            print(json.dumps({"pushes": count, "seconds": now - begin}), flush=True)


def percentiles(times: list[float]) -> dict[str, float]:
    return {"p50": float(np.percentile(times, 50)), "p99": float(np.percentile(times, 99))}


def until(seconds: float, once: Any) -> list[float]:
    """How long each call took, in seconds, as often as it fits."""
    out = []
    end = time.perf_counter() + seconds
    while (begin := time.perf_counter()) < end:
        once()
        out.append(time.perf_counter() - begin)
    return out


class Cluster:
    """Servers, what trains on them, and a session of this process."""

    def __init__(self, protocol: str, rows: int) -> None:
        self.jobs = local_cluster(PS, 1)
        self.servers = [Server(self.jobs, job, task, protocol) for job, task in tasks_of(self.jobs)]
        self.target = f"grpc://{self.jobs['worker'][0]}"
        self.graph = tf.Graph()
        with self.graph.as_default():
            self.table = Table(rows)
            self.session = tf.Session(self.target)
            self.session.run(tf.global_variables_initializer())
        self.rows = rows
        self.spent = 0.0  #: Of the servers' processors, when a window began.
        command = [sys.executable, __file__, "--train", self.target, "--rows", str(rows)]
        self.trainer = Child(command, stdin=subprocess.PIPE)
        if self.trainer.read_line() != "ready\n":
            raise RuntimeError("the training has not begun")

    def begin(self, seconds: float) -> None:
        self.spent = sum(server.cpu_seconds() for server in self.servers)
        self.trainer.write_line(str(seconds))

    def end(self) -> tuple[float, float]:
        """Pushes per second, and milliseconds of the servers' processors for each."""
        said = json.loads(self.trainer.read_line())
        spent = sum(server.cpu_seconds() for server in self.servers) - self.spent
        return said["pushes"] / said["seconds"], 1e3 * spent / said["pushes"]

    def follower(self) -> sr.Follower:
        made = sr.Follower(self.target, parts="blocks", tables=[NAME])
        made.wait_until_current(PATIENCE_S)
        return made

    def close(self) -> None:
        self.trainer.close()
        for server in self.servers:
            server.close()


def visible(cluster: Cluster, follower: sr.Follower, seconds: float) -> list[float]:
    """From the answer to a push until its rows are found."""
    marked = [part * cluster.table.block for part in range(PS)]
    number = 0
    out = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        number += 1
        cluster.session.run(cluster.table.push_mark, {cluster.table.mark: number})
        begin = time.perf_counter()
        while (follower.lookup(NAME, marked) != number).any():
            if time.perf_counter() - begin > PATIENCE_S:
                raise RuntimeError(f"a push is not there after {PATIENCE_S} s")
            time.sleep(0.001)
        out.append(time.perf_counter() - begin)
    return out


def looked_up(cluster: Cluster, follower: sr.Follower, seconds: float) -> list[float]:
    """Of the extension, without what Python makes of its arguments."""
    ids = np.random.default_rng(2).integers(0, cluster.rows, FIELDS)
    found = np.empty(FIELDS * DIM * 4, np.uint8)
    native = follower._native
    return until(seconds, lambda: native.look_up(NAME, ids, found))


def looked_up_by_grpc(cluster: Cluster, seconds: float) -> list[float]:
    command = ["follow", "--cluster", json.dumps(cluster.jobs), "--parts", "blocks"]
    child = Child([str(BIN / "sidereal"), *command, "--listen", "127.0.0.1:0"])
    try:
        client = sr.LookupClient(child.read_line().rpartition(" ")[2].strip())
        ids = np.random.default_rng(2).integers(0, cluster.rows, FIELDS)
        deadline = time.monotonic() + PATIENCE_S
        while NAME not in client.tables:
            if time.monotonic() > deadline:
                raise RuntimeError("sidereal follow has no table")
            time.sleep(0.01)
        return until(seconds, lambda: client.lookup(NAME, ids))
    finally:
        child.close()


def measure(protocol: str, rows: int, rounds: int, seconds: float) -> list[dict[str, Any]]:
    cluster = Cluster(protocol, rows)
    try:
        rates: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
        cluster.begin(seconds)  # To get warm.
        cluster.end()
        for kind, found in rates.items():
            follower = cluster.follower() if kind == "followed" else None
            for _ in range(rounds):
                cluster.begin(seconds)
                found.append(cluster.end())
            if follower is not None:
                follower.close()
        alone, followed, left = (np.median(found, axis=0).tolist() for found in rates.values())
        with cluster.follower() as follower:
            idle = looked_up(cluster, follower, seconds)
            cluster.begin(3 * seconds + 2)
            seen = visible(cluster, follower, seconds)
            busy = looked_up(cluster, follower, seconds)
            remote = looked_up_by_grpc(cluster, seconds)
            cluster.end()
    finally:
        cluster.close()
    case = f"{protocol}, {rows} rows"
    out: list[dict[str, Any]] = [
        {"case": f"{case}: {what}, {kind}", "ours": ours[i], "peer": alone[i], "unit": unit,
         "ratio": ours[i] / alone[i]}
        for i, (what, unit) in enumerate(
            (("pushes", "pushes/s"), ("processor time of the servers", "ms/push"))
        )
        for kind, ours in (("followed", followed), ("no more followed", left))
    ]  # fmt: skip
    for what, times, factor, unit in (
        ("a push is found", seen, 1e3, "ms"),
        ("26 rows in process, nothing trains", idle, 1e6, "us"),
        ("26 rows in process, under training", busy, 1e6, "us"),
        ("26 rows over gRPC, under training", remote, 1e6, "us"),
    ):
        for name, value in percentiles(times).items():
            out.append(
                {"case": f"{case}: {what}, {name}", "ours": value * factor, "peer": None,
                 "unit": unit, "ratio": None, "of": len(times)}
            )  # fmt: skip
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PROTOCOLS, default=["grpc", "star_server"])
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the table")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5, help="of one window")
    parser.add_argument("--quick", action="store_true", help="20,000 rows, one short round")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--train", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.train is not None:
        return train(arguments.train, arguments.rows)
    if arguments.quick:
        arguments.rows, arguments.rounds, arguments.seconds = 20_000, 1, 0.5
    rows = []
    for protocol in arguments.only:
        rows += measure(protocol, arguments.rows, arguments.rounds, arguments.seconds)
    print(
        table(
            ("case", "", "never followed", "ratio"),
            [
                (row["case"], f"{row['ours']:.3g} {row['unit']}",
                 "" if row["peer"] is None else f"{row['peer']:.3g}",
                 "" if row["ratio"] is None else f"{row['ratio']:.2f}")
                for row in rows
            ],
        )
    )  # fmt: skip
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")
    return None


if __name__ == "__main__":
    main()
