#!/usr/bin/env python3
"""One parameter server against many workers: throughput, times of steps, fairness, memory.

The ps is a process of `sidereal serve`, alone on one core. Workers are light (bench_scale): 4
processes on another core hold all of them, and each worker has the TCP connections, the session and
the calls of a real one, but computes nothing: a step pulls 64 rows of 16 floats of each of 8 tables
and, when they have come, pushes as many gradients (Adagrad). Each worker makes one step after the
other.

star_server   a data connection, and the control connection of its session
grpc++        the same, and where the ps asks for ids and gradients: a data connection the other
              way, and a control connection that tells where
grpc          a control connection each way
alone         gRPC without an engine: the calls of a step of grpc, with as many bytes, between
              processes that do nothing else; what grpc loses here too is gRPC's

Memory is what the ps has more of (resident) for each further worker that has a session and its
connections and is idle: before it has made a step, and when all have made steps and then none for a
while, in which lanes give back what only peaks need.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import sidereal.v1 as tf
from common import (
    BIN,
    OVER_TCP,
    Child,
    Quiet,
    Server,
    add_report_arguments,
    congestion_control,
    free_ports,
    lines,
    make_report,
    table,
    write_figures,
)
from sidereal.launch import PROTOCOLS

COUNTS = (1, 8, 64, 256, 1024)
#: The ps has the first one, the workers the last one.
CORES = sorted(os.sched_getaffinity(0))
OPTIONS = ("--lanes", "1", *OVER_TCP)
PROCESSES = 4
#: Seconds without steps, before what is left is looked at: channels of gRPC close in the first 10.
REST_S = 16
TABLES, ROWS, IDS, DIM = 8, 50_000, 64, 16
#: What bench_scale calls gRPC without an engine.
ALONE = "alone"
SIDES = (*PROTOCOLS, ALONE)
#: What a step says, for whom no graph tells.
ALONE_FLAGS = ("--ids", str(IDS), "--tables", str(TABLES), "--row-bytes", str(4 * DIM))
#: Steps of each worker in a window, and before it, at least: they all begin at once, and a few
#: steps later no longer know that.
STEPS, WARM_STEPS = 10, 3
WINDOW_S_MAX = 20.0
#: As of Tally::kFineness.
FINENESS = 20
THROUGHPUT_TARGET = 0.85
FAIRNESS_TARGET = 0.5
IDLE_KIB_TARGET = 64.0


def build() -> tuple[tf.Graph, str]:
    """The graph of a session, and the node that trains. What is not on the ps asks for nothing."""
    graph = tf.Graph()
    with graph.as_default():
        losses = []
        for i in range(TABLES):
            ids = tf.placeholder(tf.int64, [IDS], name=f"ids{i}")
            with tf.device("/job:ps/task:0"):
                first = np.full((ROWS, DIM), 0.01, np.float32)
                rows = tf.get_variable(f"table{i}", initializer=first)
            losses.append(tf.reduce_sum(tf.square(tf.gather(rows, ids))))
        train = tf.train.AdagradOptimizer(0.01).minimize(tf.add_n(losses))
    return graph, train.name


class AlonePs(Child):
    """The ps of workers of gRPC alone."""

    def __init__(self) -> None:
        command = ["taskset", "-c", str(CORES[0]), str(BIN / "bench_scale"), "--serve"]
        super().__init__([*command, "--protocol", ALONE, *ALONE_FLAGS], stdin=subprocess.PIPE)
        self.address = f"127.0.0.1:{json.loads(self.read_line())['port']}"


class LightProcess(Child):
    """A process with light workers."""

    def __init__(self, protocol: str, graph: Path, target: str, first: int, count: int) -> None:
        core = str(CORES[-1])
        command = ["taskset", "-c", core, str(BIN / "bench_scale"), "--protocol", protocol]
        command += ["--graph", str(graph), "--target", target, "--first", str(first)]
        command += ["--count", str(count), "--rows", str(ROWS), "--cpu", core, *ALONE_FLAGS]
        self.count = count
        super().__init__(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.ports: list[int] = self.read()["ports"]

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def read(self) -> dict[str, Any]:
        line = self.read_line()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "a process has ended"}
        if "error" in answer:
            raise RuntimeError(f"bench_scale: {answer['error']}")
        return answer


def resident_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


def quantile(times: Sequence[int], q: float) -> float:
    """In milliseconds."""
    rank, seen = q * sum(times), 0
    for i, count in enumerate(times):
        seen += count
        if count and seen >= rank:
            return 2 ** ((i + 0.5) / FINENESS) / 1e3
    return 0.0


class Bench:
    """A ps and its workers."""

    def __init__(self, protocol: str, graph: tf.Graph, text: Path, target: str, most: int) -> None:
        self.processes: list[LightProcess] = []
        self.ps: Server | AlonePs | None = None
        each = -(-most // PROCESSES)
        try:
            for first in range(0, most, each):
                count = min(each, most - first)
                self.processes.append(LightProcess(protocol, text, target, first, count))
            self.ps = AlonePs() if protocol == ALONE else self._serve(protocol, graph)
            self.tell(f"ps {self.ps.address}")
        except BaseException:
            self.close()
            raise

    def _serve(self, protocol: str, graph: tf.Graph) -> Server:
        workers = [f"127.0.0.1:{port}" for one in self.processes for port in one.ports]
        cluster = {"ps": [f"127.0.0.1:{free_ports(1)[0]}"], "worker": workers}
        ps = Server(cluster, "ps", 0, protocol, cores=CORES[:1], options=OPTIONS)
        with tf.Session(f"grpc://{ps.address}", graph=graph) as session:
            with graph.as_default():
                session.run(tf.global_variables_initializer())
        return ps

    def shares(self, workers: int) -> list[int]:
        """How many of them each process has."""
        count = len(self.processes)
        return [
            min(one.count, (workers + count - 1 - i) // count)
            for i, one in enumerate(self.processes)
        ]

    def tell(self, command: str) -> None:
        for one in self.processes:
            one.say(command)
        for one in self.processes:
            one.read()

    def attach(self, workers: int) -> None:
        # One process after the other, so that no flood of handshakes stands before the ps.
        for one, share in zip(self.processes, self.shares(workers)):
            one.say(f"attach {share}")
            one.read()

    def own_seconds(self) -> float:
        return sum(one.cpu_seconds() for one in self.processes) + self.ps_seconds()

    def ps_seconds(self) -> float:
        assert self.ps is not None
        return self.ps.cpu_seconds()

    def memory_kib(self) -> int:
        assert self.ps is not None
        return resident_kib(self.ps.pid)

    def window(self, workers: int, seconds: float, warm_s: float = 0) -> dict[str, Any]:
        warm_ms = int(max(warm_s, seconds / 4) * 1000)
        running = [(one, n) for one, n in zip(self.processes, self.shares(workers)) if n > 0]
        began, ps, own = time.monotonic(), self.ps_seconds(), self.own_seconds()
        for one, share in running:
            one.say(f"run {share} {warm_ms} {int(seconds * 1000)}")
        answers = [one.read() for one, _ in running]
        elapsed, ps_used = time.monotonic() - began, self.ps_seconds() - ps
        worker_used = self.own_seconds() - own - ps_used
        steps = [n for answer in answers for n in answer["steps"]]
        # Those of the time before the window are not counted: as many each second.
        made = max(sum(steps), 1) * elapsed / seconds
        return {
            "steps": steps,
            "times": [sum(column) for column in zip(*(answer["times"] for answer in answers))],
            "ps_cpu": ps_used / elapsed,
            "ps_us": ps_used / made * 1e6,
            "worker_us": worker_used / made * 1e6,
        }

    def close(self) -> None:
        for one in self.processes:
            one.close()
        if self.ps is not None:
            self.ps.close()


def measure_count(
    bench: Bench, protocol: str, workers: int, rounds: int, seconds: float, quiet: Quiet
) -> dict[str, Any]:
    # The first time, workers are not connected yet.
    looks = [bench.window(workers, seconds) for _ in range(2)]
    step_s = workers * seconds / max(sum(looks[-1]["steps"]), 1)
    seconds = min(max(seconds, STEPS * step_s), WINDOW_S_MAX)
    found = [
        quiet.measure(
            bench.own_seconds, lambda: bench.window(workers, seconds, WARM_STEPS * step_s)
        )
        for _ in range(rounds)
    ]
    rates = [sum(one["steps"]) / seconds for one in found]
    times = [sum(column) for column in zip(*(one["times"] for one in found))]
    each = [sum(column) for column in zip(*(one["steps"] for one in found))]
    return {
        "case": f"{protocol}: {workers} workers",
        "protocol": protocol,
        "workers": workers,
        "ours": statistics.median(rates),
        "unit": "steps/s",
        "least": min(rates),
        "most": max(rates),
        "p50_ms": quantile(times, 0.5),
        "p99_ms": quantile(times, 0.99),
        "p999_ms": quantile(times, 0.999),
        "slowest_steps": min(each),
        "fastest_steps": max(each),
        "fairness": min(each) / max(*each, 1),
        "ps_cpu": statistics.median(one["ps_cpu"] for one in found),
        "ps_us": statistics.median(one["ps_us"] for one in found),
        "worker_us": statistics.median(one["worker_us"] for one in found),
    }


def run_protocol(
    protocol: str,
    counts: Sequence[int],
    rounds: int,
    seconds: float,
    rest: float,
    quiet: Quiet,
    graph: tf.Graph,
    text: Path,
    target: str,
) -> list[dict[str, Any]]:
    most = max(counts)
    bench = Bench(protocol, graph, text, target, most)
    rows = []
    try:
        began = time.monotonic()
        bench.attach(1)
        bench.window(1, 0.2)
        first = bench.memory_kib()
        bench.attach(most)
        time.sleep(0.5)
        idle = (bench.memory_kib() - first) / max(most - 1, 1)
        attached = time.monotonic() - began
        for workers in counts:
            rows.append(measure_count(bench, protocol, workers, rounds, seconds, quiet))
            show(rows[-1])
        time.sleep(rest)
        after = (bench.memory_kib() - first) / max(most - 1, 1)
    finally:
        bench.close()
    best = max(row["ours"] for row in rows)
    for row in rows:
        row["of_best"] = row["ours"] / best
        row["peer"], row["ratio"] = best, row["of_best"]
        row["idle_kib"], row["idle_after_kib"] = idle, after
    print(
        f"  {most} workers attached in {attached:.1f} s; the ps holds {idle:.1f} KiB for each that"
        f" is idle, {after:.1f} KiB after steps",
        flush=True,
    )
    return rows


def show(row: dict[str, Any]) -> None:
    spread = f"[{row['least']:,.0f}-{row['most']:,.0f}]"
    print(
        f"  {row['protocol']:17s} {row['workers']:5d} {row['ours']:9,.0f} {spread:>17s}"
        f" {row['p50_ms']:9.2f} {row['p99_ms']:9.2f} {row['p999_ms']:9.2f} {row['fairness']:9.2f}"
        f" {row['ps_cpu'] * 100:5.0f} {row['ps_us']:7.0f} {row['worker_us']:7.0f}",
        flush=True,
    )


def judge(rows: list[dict[str, Any]]) -> list[tuple[str, float, str, bool]]:
    """What is wanted where there are most workers: (what, figure, wanted, met)."""
    out = []
    most = max(row["workers"] for row in rows)
    for row in rows:
        if row["workers"] != most or row["protocol"] == ALONE:
            continue
        name, best, fair = row["protocol"], row["of_best"], row["fairness"]
        at_most = f"at most {IDLE_KIB_TARGET:g}"
        out += [
            (
                f"{name}: throughput of {most} workers, part of the best",
                best,
                f"at least {THROUGHPUT_TARGET}",
                best >= THROUGHPUT_TARGET,
            ),
            (
                f"{name}: slowest of {most} workers, part of the fastest",
                fair,
                f"at least {FAIRNESS_TARGET}",
                fair >= FAIRNESS_TARGET,
            ),
            (
                f"{name}: KiB on the ps for an idle worker",
                row["idle_kib"],
                at_most,
                row["idle_kib"] <= IDLE_KIB_TARGET,
            ),
            (
                f"{name}: KiB on the ps for an idle worker, after steps",
                row["idle_after_kib"],
                at_most,
                row["idle_after_kib"] <= IDLE_KIB_TARGET,
            ),
        ]
    return out


def document(report: dict[str, Any]) -> str:
    rows = report["rows"]
    shown = [
        [
            row["protocol"],
            str(row["workers"]),
            f"{row['ours']:,.0f}",
            f"{row['least']:,.0f} to {row['most']:,.0f}",
            f"{row['of_best']:.2f}",
            f"{row['p50_ms']:.2f}, {row['p99_ms']:.2f}, {row['p999_ms']:.2f}",
            f"{row['fairness']:.2f} ({row['slowest_steps']}/{row['fastest_steps']})",
            f"{row['ps_cpu'] * 100:.0f} %",
            f"{row['ps_us']:,.0f}, {row['worker_us']:,.0f}",
        ]
        for row in rows
    ]
    head = ["protocol", "workers", "steps/s", "least to most", "of the best"]
    head += ["ms: p50, p99, p99.9", "slowest/fastest (steps)", "core of the ps"]
    head.append("us of processor per step: ps, worker")
    wanted = [
        [what, f"{figure:.2f}", limit, "yes" if met else "no"]
        for what, figure, limit, met in judge(rows)
    ]
    return (
        table(head, shown)
        + "\n"
        + table(["wanted", "measured", "limit", "met"], wanted)
        + f"\n{report['conditions']} {report['quiet']}.\n"
    )


def write(report: dict[str, Any], path: Path) -> None:
    write_figures(path, "scale", document(report))
    rows = report["rows"]
    series = [
        (name, [(row["workers"], row["ours"]) for row in rows if row["protocol"] == name])
        for name in dict.fromkeys(row["protocol"] for row in rows)
    ]
    plot = lines("Steps per second of one parameter server", "workers", "steps/s", series)
    (path.parent / "scale.svg").write_text(plot, encoding="utf-8")


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    conditions = (
        f"Medians of {arguments.rounds} windows of {arguments.seconds:g} s, or longer, so that each"
        f" worker makes about {STEPS} steps; {WARM_STEPS} go before them. The ps on core"
        f" {CORES[0]}, with one lane that spins as it chooses (adaptive); workers on core"
        f" {CORES[-1]}, which do not spin; loopback TCP, cubic on data connections,"
        f" {congestion_control()} on gRPC's."
    )
    print(conditions)
    print(
        f"  {'protocol':17s} {'n':>5s} {'steps/s':>9s} {'':>17s} {'p50 ms':>9s} {'p99 ms':>9s}"
        f" {'p99.9 ms':>9s} {'slow/fast':>9s} {'ps %':>5s} {'ps us':>7s} {'w us':>7s}"
    )
    quiet = Quiet(arguments.noisy_max)
    rows: list[dict[str, Any]] = []
    graph, target = build()
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "graph.txt"
        text.write_text(tf.Session("", graph=graph).graph_def, encoding="utf-8")
        for protocol in arguments.only:
            rows += run_protocol(
                protocol,
                arguments.workers,
                arguments.rounds,
                arguments.seconds,
                arguments.rest,
                quiet,
                graph,
                text,
                target,
            )
    print()
    for what, figure, limit, met in judge(rows):
        print(f"{what:62s} {figure:8.2f} (wanted: {limit}) {'met' if met else 'NOT met'}")
    print(quiet.summary())
    return {"rows": rows, "conditions": conditions, "quiet": quiet.summary()}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_report_arguments(parser)
    parser.add_argument("--only", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--workers", nargs="+", type=int, default=list(COUNTS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of a window")
    parser.add_argument(
        "--rest", type=float, default=REST_S, help="seconds before what is left is looked at"
    )
    parser.add_argument(
        "--noisy-max", type=int, default=15, help="disturbed windows measured again at most"
    )
    parser.add_argument("--quick", action="store_true", help="few workers, short: does it work?")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds, arguments.seconds, arguments.noisy_max = 1, 0.3, 0
        arguments.rest = 0.5
        arguments.workers = [1, 4]
    make_report(arguments, measure, write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
