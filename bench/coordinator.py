#!/usr/bin/env python3
"""Closures per second of a ClusterCoordinator, beside TensorFlow's in the same run.

The functions are those of _closures.py: one source, of which TensorFlow runs the same lines. Each
engine has its parameter server and its workers in processes of their own, and its coordinator too,
TensorFlow's with grpc. Sides take turns within each round, and figures are medians of the rounds.
`./dev setup --peers` installs TensorFlow; without it ours is measured alone.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import textwrap
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import sidereal as sr
from _closures import KINDS, Closures
from common import (
    ROOT,
    Coordinating,
    Peer,
    Quiet,
    Side,
    add_report_arguments,
    lines,
    local_cluster,
    make_report,
    table,
    tensorflow_version,
    write_figures,
)
from sidereal.launch import PROTOCOLS

PEER = ROOT / "bench/peers/tensorflow_coordinator.py"
WORKERS = (1, 4, 16, 64)
#: TensorFlow has a thread for each worker, and a server takes seconds to begin.
PEER_WORKERS = (1, 4)


@contextlib.contextmanager
def sides_of(arguments: argparse.Namespace, workers: int) -> Iterator[list[Side]]:
    sides: list[Side] = []
    try:
        if tensorflow_version() is not None and workers in arguments.peer_workers:
            sides.append(Peer(local_cluster(1, workers), PEER, "coordinate"))
        for protocol in arguments.protocols:
            for in_flight in arguments.in_flight:
                name = protocol if in_flight == 1 else f"{protocol}, {in_flight} a worker"
                sides.append(Coordinating(
                    name, local_cluster(1, workers), protocol, partial(Closures, sr),
                    closures_per_worker=in_flight,
                ))  # fmt: skip
        yield sides
    finally:
        for side in sides:
            side.close()


def rows_of(side: Side, workers: int, peers: dict[str, float]) -> list[dict[str, Any]]:
    rows = []
    for kind, found in side.found.items():
        what = "ms" if kind == "latency" else "per_s"
        ours = statistics.median(one[what] for one in found)
        peer = peers.get(kind, 0.0)
        rows.append({
            "case": f"{workers} workers, {KINDS[kind]}: {side.name}",
            "workers": workers, "kind": kind, "side": side.name,
            "ours": ours, "peer": peer, "unit": "ms" if kind == "latency" else "closures/s",
            "ratio": ours / peer if peer > 0 else 0.0,
            "least": min(one[what] for one in found), "most": max(one[what] for one in found),
            "schedule_us": statistics.median(one.get("schedule_us", 0.0) for one in found),
        })  # fmt: skip
    return rows


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    version = tensorflow_version()
    conditions = (
        f"{'TensorFlow ' + version if version else 'No TensorFlow'}. Medians of {arguments.rounds}"
        f" windows of {arguments.seconds:g} s, taken in turns; all processes on {os.cpu_count()}"
        " processors, loopback TCP, one ps. Ratios are to TensorFlow with as many workers, or with"
        f" {arguments.peer_workers[-1]}."
    )
    print(conditions)
    quiet = Quiet(arguments.noisy_max)
    rows: list[dict[str, Any]] = []
    peers: dict[str, float] = {}
    for workers in arguments.workers:
        with sides_of(arguments, workers) as sides:
            for _ in range(arguments.rounds):
                for side in sides:
                    for kind in KINDS:
                        side.measure(kind, arguments.seconds, quiet)
            for side in sides:
                found = rows_of(side, workers, {} if isinstance(side, Peer) else peers)
                if isinstance(side, Peer):
                    peers = {row["kind"]: row["ours"] for row in found}
                show(found)
                rows += found
    print("\n" + quiet.summary())
    return {"rows": rows, "conditions": conditions, "quiet": quiet.summary()}


def show(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        spread = f"[{row['least']:.4g}-{row['most']:.4g}]"
        print(
            f"  {row['workers']:3d} workers {row['side']:28s} {row['kind']:8s} "
            f"{row['ours']:10.4g} {row['unit']:10s} {spread:>20s} {row['ratio']:8.2f} times"
            f"  schedule {row['schedule_us']:.1f} us",
            flush=True,
        )


def figure(value: float) -> str:
    """Four digits, or all in front of the point."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def document(report: dict[str, Any]) -> str:
    cells = [
        [
            str(row["workers"]),
            row["side"],
            KINDS[row["kind"]],
            f"{figure(row['ours'])} {row['unit']}",
            f"{figure(row['least'])} to {figure(row['most'])}",
            f"{row['ratio']:.2f}" if row["ratio"] > 0 else "",
            f"{row['schedule_us']:.1f}" if row["schedule_us"] > 0 else "",
        ]
        for row in report["rows"]
    ]
    head = ["workers", "side", "what", "median", "least to most", "times TensorFlow",
            "us of a schedule()"]  # fmt: skip
    words = textwrap.fill(f"{report['conditions']} {report['quiet']}.", 100)
    return f"{table(head, cells)}\n{words}\n"


def write(report: dict[str, Any], path: Path) -> None:
    write_figures(path, "coordinator", document(report))
    rows = [row for row in report["rows"] if row["kind"] == "value"]
    sides = list(dict.fromkeys(row["side"] for row in rows))
    series = [
        (side, [(float(row["workers"]), row["ours"]) for row in rows if row["side"] == side])
        for side in sides
    ]
    plot = lines("Closures per second, with results", "workers", "closures/s", series)
    (path.parent / "coordinator.svg").write_text(plot, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_report_arguments(parser)
    parser.add_argument("--workers", type=int, nargs="+", default=list(WORKERS))
    parser.add_argument("--peer-workers", type=int, nargs="+", default=list(PEER_WORKERS))
    parser.add_argument("--protocols", nargs="+", choices=PROTOCOLS,
                        default=["grpc", "star_server"])  # fmt: skip
    parser.add_argument("--in-flight", type=int, nargs="+", default=[1, 32],
                        help="closures that a worker has at a time")  # fmt: skip
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a window, at least")
    parser.add_argument("--noisy-max", type=int, default=40,
                        help="disturbed windows measured again at most")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="one short window: does it work?")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds, arguments.seconds, arguments.noisy_max = 1, 0.05, 0
    make_report(arguments, measure, write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
