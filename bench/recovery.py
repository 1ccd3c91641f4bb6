#!/usr/bin/env python3
"""How long a parameter server is away that was killed, from SIGKILL to its first read.

Three ps, of which one has a table and its slots. The table is saved whole, then in increments while
rows are pushed to all three; then its server is killed under load, started again as a supervisor
would, and restored by v1.train.LostVariables, while pushes to the two others go on. Every element
that comes back is compared with the cut.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

import sidereal as sr
import sidereal.v1 as tf
from common import Server, local_cluster, table
from sidereal._dispatch import apply
from sidereal.launch import PROTOCOLS

PS = 3
LOST = 1
DIM = 16
PUSHED = 2000  #: Rows of one push.


class Cluster:
    def __init__(self, protocol: str) -> None:
        self.jobs = local_cluster(PS, 1)
        self.protocol = protocol
        self.servers = {("ps", task): self._serve("ps", task) for task in range(PS)}
        self.servers["worker", 0] = self._serve("worker", 0)
        self.target = f"grpc://{self.jobs['worker'][0]}"

    def _serve(self, job: str, task: int) -> Server:
        return Server(self.jobs, job, task, self.protocol)

    def kill(self) -> None:
        self.servers["ps", LOST].close()

    def start(self) -> None:
        self.servers["ps", LOST] = self._serve("ps", LOST)

    def close(self) -> None:
        for server in self.servers.values():
            server.close()


class Model:
    """The table and its slots, a step that changes rows of both, and what saves them."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        with tf.device("/job:ps/task:0"):
            self.step = tf.train.get_or_create_global_step()
        with tf.device(f"/job:ps/task:{LOST}"):
            self.variables = [
                tf.Variable(lambda: sr.zeros([rows, DIM]), name=name, trainable=False)
                for name in ("table", "table/Adagrad")
            ]
        with tf.device("/job:worker/task:0"):
            ids = tf.placeholder("int64", [PUSHED], "ids")
            values = sr.ones([PUSHED, DIM])
        pushes = [tf.scatter_add(variable, ids, values) for variable in self.variables]
        self.ids, self.push = ids, tf.group(*pushes, self.step.assign_add(1))
        self.lost = tf.train.LostVariables()
        self.prefix = tf.placeholder("string", [], "to")
        self.base = tf.placeholder("string", [], "base")
        self.cut = tf.placeholder("string", [], "cut")
        parts = []
        for shard, (task, own) in enumerate(((0, [self.step]), (LOST, self.variables))):
            names = {
                "names": [each.op.name for each in own], "shard": shard, "shards": 2,
                "tracks_changes": True,
            }  # fmt: skip
            handles = [each.handle for each in own]
            with tf.device(f"/job:ps/task:{task}"):
                parts.append(apply("SaveVariables", [self.prefix, self.cut, *handles], names))
        with tf.device("/job:ps/task:0"):
            self.saved = apply("CommitCheckpoint", [self.prefix, self.base, *parts], {})

    def save(self, session: Any, prefix: str, base: str, cut: str) -> str:
        fed = {self.prefix: prefix, self.base: base, self.cut: cut}
        return session.run(self.saved, fed).decode()

    def run(self, session: Any, ids: np.ndarray) -> None:
        session.run(self.push, {self.ids: ids})


class Other(threading.Thread):
    """Pushes to a ps that is not lost, all the while."""

    def __init__(self, cluster: Cluster, task: int) -> None:
        super().__init__(daemon=True)
        self.graph = tf.Graph()
        with self.graph.as_default(), tf.device(f"/job:ps/task:{task}"):
            self.counter = tf.Variable(0, dtype="int64", name=f"other{task}")
            self.push = self.counter.assign_add(1).op
        config = tf.ConfigProto(device_filters=[f"/job:ps/task:{task}"])
        self.session = tf.Session(f"grpc://{cluster.jobs['ps'][task]}", self.graph, config)
        self.session.run(self.counter.initializer)
        self.stopping = threading.Event()
        self.times: list[float] = []

    def run(self) -> None:
        while not self.stopping.is_set():
            self.session.run(self.push)
            self.times.append(time.monotonic())

    def end(self, begin: float, end: float) -> tuple[int, float]:
        """(pushes of the time between, the longest pause of it in seconds)."""
        self.stopping.set()
        self.join()
        if self.session.run(self.counter) != len(self.times):
            raise RuntimeError("a ps that was not lost has lost pushes")
        times = [begin, *(at for at in self.times if begin < at < end), end]
        return len(times) - 2, max(b - a for a, b in itertools.pairwise(times))


def measure(protocol: str, megabytes: float, increments: int, folder: Path) -> dict[str, Any]:
    cluster = Cluster(protocol)
    try:
        rows = int(megabytes * 1e6 / (2 * DIM * 4))
        random = np.random.default_rng(1)
        with tf.Graph().as_default():
            model = Model(rows)
            session = tf.Session(cluster.target)
            session.run(tf.global_variables_initializer())
            base, cut = "", ""
            counts = np.zeros(rows, np.int32)
            for number in range(increments + 1):
                for _ in range(20):
                    ids = random.choice(rows, PUSHED, replace=False)
                    model.run(session, ids)
                    counts[ids] += 1
                prefix = str(folder / f"ckpt-{number}")
                cut = model.save(session, prefix, base, cut)
                base = prefix
            others = [Other(cluster, task) for task in range(PS) if task != LOST]
            for other in others:
                other.start()
            for _ in range(10):
                model.run(session, random.choice(rows, PUSHED, replace=False))
            begin = time.monotonic()
            cluster.kill()
            cluster.start()
            started = time.monotonic()
            session = tf.Session(cluster.target)
            (back,) = model.lost.restore(session, prefix)
            one = session.run(sr.gather(model.variables[0], [0]))
            end = time.monotonic()
            pushes, pauses = zip(*(other.end(begin, end) for other in others))
            for variable in model.variables:
                found = session.run(variable)
                if not (found == counts[:, None]).all():
                    raise RuntimeError(f"{variable.name} is not what the cut was")
            assert one[0, 0] == counts[0]
            return {
                "protocol": protocol, "megabytes": back.bytes / 1e6, "increments": increments,
                "started_s": started - begin, "restored_s": back.seconds, "away_s": end - begin,
                "lost_steps": back.lost_steps, "others_pushes": sum(pushes),
                "others_pause_s": max(pauses), "line": str(back),
            }  # fmt: skip
    finally:
        cluster.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PROTOCOLS, default=["grpc", "star_server"])
    parser.add_argument("--megabytes", type=float, default=1280, help="what the lost ps holds")
    parser.add_argument("--increments", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="16 MB")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    arguments = parser.parse_args()
    megabytes = 16 if arguments.quick else arguments.megabytes
    rows = []
    for protocol in arguments.only:
        folder = Path(tempfile.mkdtemp(prefix="sidereal-recovery-"))
        try:
            rows.append(measure(protocol, megabytes, arguments.increments, folder))
        finally:
            shutil.rmtree(folder)
    text = table(
        ("protocol", "MB", "process s", "restored s", "away s", "lost steps",
         "pushes of others", "their longest pause s"),
        [
            (row["protocol"], f"{row['megabytes']:.0f}", f"{row['started_s']:.2f}",
             f"{row['restored_s']:.2f}", f"{row['away_s']:.2f}", str(row["lost_steps"]),
             str(row["others_pushes"]), f"{row['others_pause_s']:.3f}")
            for row in rows
        ],
    )  # fmt: skip
    print(text)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
