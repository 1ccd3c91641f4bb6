#!/usr/bin/env python3
"""What it costs that no push is lost: of servers with a synchronous standby, and of closures whose
changes are made once; and how long a server with a standby is away that is killed.

A program pushes rows to a table of one ps: one push after the other, for how long each takes, and
eight at once, for the rate; with no reader of its changes, with a follower that is not waited for,
and with a synchronous standby. Beside it Redis (Debian's redis-server) is given as many bytes,
alone and with a replica that has them before the answer (WAIT 1). Standby, server and pusher share
the processors. A coordinator's closures run with and without effectively_once. Two ps that are
standbys of each other (replicas=2) are killed in turn and started again, while one program pushes.
`./dev setup --peers` installs Redis; without it ours is measured alone.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import sidereal as sr
import sidereal.v1 as tf
from _closures import Closures
from _failover import away_seconds
from common import (
    BIN,
    Child,
    Coordinating,
    Quiet,
    Server,
    Side,
    add_report_arguments,
    free_ports,
    local_cluster,
    make_report,
    table,
    write_figures,
)
from sidereal.launch import PROTOCOLS

ROWS, DIM = 100_000, 16
PUSHED = 256  #: Rows of one push.
DRAWN = 64  #: Pushes that are made before, and sent in turn.
AT_ONCE = 8
NAME = "table"
PATIENCE_S = 60.0
#: What reads the changes of a server.
READERS = {"alone": "nothing", "follower": "a follower", "standby": "a synchronous standby"}
#: What is said of a window, in words.
WORDS = {
    "p50_us": "us, p50", "p99_us": "us, p99", "per_s": "pushes/s",
    "cpu_us": "us of processors for one",
}  # fmt: skip
#: What a window measures: pushes that are under way at once.
KINDS = {"one": 1, "many": AT_ONCE}


def drawn_ids() -> list[np.ndarray]:
    random = np.random.default_rng(1)
    return [random.choice(ROWS, PUSHED, replace=False) for _ in range(DRAWN)]


def pushes(seconds: float, pushers: list[Callable[[int], None]]) -> dict[str, float]:
    """Has each of `pushers`, in a thread of its own, push again and again."""
    taken: list[list[float]] = [[] for _ in pushers]
    begin = time.perf_counter()

    def run(push: Callable[[int], None], times: list[float]) -> None:
        now = begin
        while now < begin + seconds:
            push(len(times) % DRAWN)
            times.append((after := time.perf_counter()) - now)
            now = after

    threads = [threading.Thread(target=run, args=two) for two in zip(pushers, taken, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spent = time.perf_counter() - begin
    times = 1e6 * np.concatenate(taken)
    p50, p99 = np.percentile(times, (50, 99)).tolist()
    return {"per_s": len(times) / spent, "p50_us": p50, "p99_us": p99, "pushes": len(times)}


def serve_windows(pushers: list[Callable[[int], None]]) -> None:
    """The program that pushes: for each line, a kind and seconds, a line of what was found."""
    print("ready", flush=True)
    for line in sys.stdin:
        kind, seconds = line.split()
        print(json.dumps(pushes(float(seconds), pushers[: KINDS[kind]])), flush=True)


def push_ours(jobs: dict[str, list[str]], protocol: str) -> None:
    server = sr.train.Server(jobs, "worker", 0, protocol=protocol, shared_memory=False)
    with tf.device("/job:ps/task:0"):
        values = tf.get_variable(
            NAME, [ROWS, DIM], initializer=tf.zeros_initializer(), trainable=False
        )
    with tf.device("/job:worker/task:0"):
        ids = tf.placeholder("int64", [PUSHED])
        push = tf.group(tf.scatter_add(values, ids, sr.ones([PUSHED, DIM])))
    session = tf.Session(server.target)
    session.run(tf.global_variables_initializer())
    drawn = drawn_ids()
    serve_windows([lambda number: session.run(push, {ids: drawn[number]})] * AT_ONCE)


def push_redis(port: int, *, waits: bool) -> None:
    import redis

    value = np.ones(DIM, np.float32).tobytes()
    commands = [[("MSET", *(w for row in ids for w in (f"{row}", value)))] for ids in drawn_ids()]

    def pusher() -> Callable[[int], None]:
        connection = redis.Connection(port=port)
        connection.connect()
        after = [("WAIT", 1, 0)] if waits else []
        packed = [connection.pack_commands(command + after) for command in commands]

        def push(number: int) -> None:
            connection.send_packed_command(packed[number])
            connection.read_response()
            if waits and connection.read_response() != 1:
                raise RuntimeError("the replica of Redis has gone")

        return push

    serve_windows([pusher() for _ in range(AT_ONCE)])


class Pushing(Side):
    """Servers, and the program that pushes to them."""

    def begin(self, *arguments: str) -> None:
        command = [sys.executable, __file__, "--push", *arguments]
        self.pusher = Child(command, stdin=subprocess.PIPE)
        self.processes.append(self.pusher)
        if self.pusher.read_line() != "ready\n":
            raise RuntimeError(f"what pushes to {self.name} has not begun")

    def window(self, kind: Any, seconds: float) -> dict[str, float]:
        self.pusher.write_line(f"{kind} {seconds}")
        found: dict[str, float] = json.loads(self.pusher.read_line())
        return found


class Ours(Pushing):
    def __init__(self, protocol: str, reader: str) -> None:
        super().__init__(protocol)
        self.reader = reader
        try:
            jobs = local_cluster(1, 1)
            self.processes.append(Server(jobs, "ps", 0, protocol, options=self.server_options))
            self.begin(json.dumps(jobs), protocol)
            if reader != "alone":
                self._follow(jobs["ps"][0], is_synchronous=reader == "standby")
        except BaseException:
            self.close()
            raise

    def _follow(self, address: str, *, is_synchronous: bool) -> None:
        command = [str(BIN / "sidereal"), "follow", "--target", f"grpc://{address}"]
        command += ["--listen", "127.0.0.1:0", *(["--synchronous"] if is_synchronous else [])]
        child = Child(command, stderr=subprocess.DEVNULL)
        self.processes.append(child)
        client = sr.LookupClient(child.read_line().rpartition(" ")[2].strip())
        deadline = time.monotonic() + PATIENCE_S
        while (
            not all(task.is_whole and task.is_in_sync >= is_synchronous for task in client.tasks)
            or NAME not in client.tables
        ):
            if time.monotonic() > deadline:
                raise RuntimeError(f"a follower is not current after {PATIENCE_S:g} s")
            time.sleep(0.01)


class Redis(Pushing):
    def __init__(self, reader: str, folder: Path) -> None:
        super().__init__("Redis")
        self.reader = reader
        try:
            ports = free_ports(2 if reader == "standby" else 1)
            for port in ports:
                self._serve(port, folder, () if port == ports[0] else (ports[0],))
            self.begin(str(ports[0]), *(["waits"] if reader == "standby" else []))
        except BaseException:
            self.close()
            raise

    def _serve(self, port: int, folder: Path, replica_of: Sequence[int]) -> None:
        import redis

        command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
        command += ["--appendonly", "no", "--repl-diskless-sync-delay", "0", "--dir", str(folder)]
        for primary in replica_of:
            command += ["--replicaof", "127.0.0.1", str(primary)]
        self.processes.append(Child(command))
        client = redis.Redis(port=port)
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            try:
                if not replica_of or client.info("replication")["master_link_status"] == "up":
                    client.ping()
                    return
            except redis.exceptions.ConnectionError:
                pass
            time.sleep(0.01)
        raise RuntimeError(f"redis-server is not there after {PATIENCE_S:g} s")


def has_redis() -> bool:
    return shutil.which("redis-server") is not None


def sides_of(protocol: str, folder: Path) -> list[Pushing]:
    """Of a protocol, or "Redis"."""
    sides: list[Pushing] = []
    try:
        for reader in READERS:
            if protocol != "Redis":
                sides.append(Ours(protocol, reader))
            elif reader != "follower":
                sides.append(Redis(reader, folder))
    except BaseException:
        for side in sides:
            side.close()
        raise
    return sides


def rows_of(sides: Sequence[Pushing]) -> list[dict[str, Any]]:
    """By what is measured, each reader beside none."""
    rows = []
    for kind, what, unit in (
        ("one", "p50_us", "us"), ("one", "p99_us", "us"), ("many", "per_s", "pushes/s"),
        ("many", "cpu_us", "us of processors"),
    ):  # fmt: skip
        alone = 0.0
        for side in sides:
            found = [
                1e6 * one["cpu_s"] / one["pushes"] if what == "cpu_us" else one[what]
                for one in side.found[kind]
            ]
            ours = statistics.median(found)
            alone = alone or ours
            rows.append({
                "case": f"{side.name}, {KINDS[kind]} at once, {what.removesuffix('_us')}:"
                        f" {READERS[side.reader]}",
                "side": side.name, "reader": side.reader, "kind": kind, "what": what,
                "ours": ours, "peer": alone, "unit": unit, "ratio": ours / alone,
                "least": min(found), "most": max(found),
            })  # fmt: skip
    return rows


def once_rows(protocol: str, arguments: argparse.Namespace, quiet: Quiet) -> list[dict[str, Any]]:
    """Of closures that add to a variable, with effectively_once beside those without."""
    sides: list[Side] = []
    try:
        for once in (False, True):
            sides.append(Coordinating(
                protocol, local_cluster(1, 2), protocol, partial(Closures, sr),
                closures_per_worker=32, effectively_once=once,
            ))  # fmt: skip
        for _ in range(arguments.rounds):
            for side in sides:
                side.measure("none", arguments.seconds, quiet)
        found = [[one["per_s"] for one in side.found["none"]] for side in sides]
    finally:
        for side in sides:
            side.close()
    without, once = map(statistics.median, found)
    return [{
        "case": f"{protocol}, closures that change a variable, effectively_once",
        "side": protocol, "reader": "once", "kind": "closures", "what": "per_s", "ours": once,
        "peer": without, "unit": "closures/s", "ratio": once / without,
        "least": min(found[1]), "most": max(found[1]),
    }]  # fmt: skip


def away_rows(protocol: str, kills: int) -> list[dict[str, Any]]:
    """From SIGKILL to the answer to the next push."""
    times = [1e3 * seconds for seconds in away_seconds(protocol, kills, ROWS, PUSHED)]
    found = {"p50": np.percentile(times, 50), "p99": np.percentile(times, 99), "worst": max(times)}
    return [
        {
            "case": f"{protocol}, a ps is killed, {what} of {kills}", "side": protocol,
            "reader": "away", "kind": "kill", "what": what, "ours": float(value), "peer": None,
            "unit": "ms", "ratio": None, "least": min(times), "most": max(times),
        }
        for what, value in found.items()
    ]  # fmt: skip


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    conditions = (
        f"Pushes of {PUSHED} rows of {DIM} floats. Medians of {arguments.rounds} windows of"
        f" {arguments.seconds:g} s, taken in turns; all processes on {os.cpu_count()} processors,"
        " loopback TCP. Ratios are to the same side with nothing that reads its changes."
    )
    print(conditions)
    quiet = Quiet(arguments.noisy_max)
    rows: list[dict[str, Any]] = []
    peers = ["Redis"] if has_redis() else []
    with tempfile.TemporaryDirectory(prefix="sidereal-replication-") as folder:
        for protocol in [*arguments.only, *peers]:
            sides = sides_of(protocol, Path(folder))
            try:
                for _ in range(arguments.rounds):
                    for side in sides:
                        for kind in KINDS:
                            side.measure(kind, arguments.seconds, quiet)
                rows += show(rows_of(sides))
            finally:
                for side in sides:
                    side.close()
    for protocol in arguments.only:
        rows += show(once_rows(protocol, arguments, quiet))
    for protocol in arguments.only if arguments.kills else ():
        rows += show(away_rows(protocol, arguments.kills))
    if not peers:
        print("no redis-server: ./dev setup --peers installs it")
    print("\n" + quiet.summary())
    return {"rows": rows, "conditions": conditions, "quiet": quiet.summary()}


def show(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for row in rows:
        spread = f"[{row['least']:.4g}-{row['most']:.4g}]"
        print(f"  {row['case']:66s} {row['ours']:9.4g} {row['unit']:16s} {spread:>18s}"
              f" {'' if row['ratio'] is None else format(row['ratio'], '.2f'):>6s}",
              flush=True)  # fmt: skip
    return rows


def document(report: dict[str, Any]) -> str:
    pushing: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for row in report["rows"]:
        if row["reader"] in READERS:
            name = f"{row['side']}, {KINDS[row['kind']]} at once"
            pushing.setdefault((name, row["what"]), {})[row["reader"]] = row
    cells = []
    for (name, what), by in pushing.items():
        found = [f"{by[reader]['ours']:,.0f}" if reader in by else "" for reader in READERS]
        ratios = f"{by['standby']['ratio']:.2f}"
        cells.append([name, WORDS[what], *found, ratios])
    head = ["pushes", "what", *READERS.values(), "standby, times nothing"]
    once = [
        [row["side"], f"{row['peer']:,.0f}", f"{row['ours']:,.0f}", f"{row['ratio']:.2f}"]
        for row in report["rows"]
        if row["reader"] == "once"
    ]
    heads = ["closures/s", "without", "with effectively_once", "times without"]
    away = {(row["side"], row["what"]): row for row in report["rows"] if row["reader"] == "away"}
    sides = dict.fromkeys(side for side, _ in away)
    lost = [
        [side, *(f"{away[side, what]['ours']:,.0f}" for what in ("p50", "p99", "worst"))]
        for side in sides
    ]
    from_kill = ["ms from SIGKILL to the next answer", "p50", "p99", "worst"]
    words = textwrap.fill(f"{report['conditions']} {report['quiet']}.", 100)
    tables = [table(head, cells), table(heads, once), *([table(from_kill, lost)] if lost else [])]
    return "\n".join([f"{words}\n", *tables])


def write(report: dict[str, Any], path: Path) -> None:
    write_figures(path, "replication", document(report))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_report_arguments(parser)
    parser.add_argument("--only", nargs="+", choices=PROTOCOLS,
                        default=["grpc", "grpc++", "star_server"])  # fmt: skip
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of a window")
    parser.add_argument("--kills", type=int, default=30, help="of parameter servers, by protocol")
    parser.add_argument("--noisy-max", type=int, default=40,
                        help="disturbed windows measured again at most")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="one short window: does it work?")
    parser.add_argument("--push", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.push is not None:
        if arguments.push[0].isdigit():
            push_redis(int(arguments.push[0]), waits=arguments.push[1:] == ["waits"])
        else:
            push_ours(json.loads(arguments.push[0]), arguments.push[1])
        return 0
    if arguments.quick:
        arguments.rounds, arguments.seconds, arguments.noisy_max = 1, 0.1, 0
        arguments.kills = 2
    make_report(arguments, measure, write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
