#!/usr/bin/env python3
"""Steps of DeepFM and DLRM in PyTorch: with their tables in the process, on a parameter server by
sidereal.torch, and in another process by torch.distributed.rpc (./dev setup --peers).

Each process keeps to one core and one thread: trainers to the first, what has tables to the last. A
second trainer shares the last one's core where there are but two. Sides take turns; figures are
medians of the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

from common import (
    ROOT,
    Child,
    Quiet,
    Server,
    Side,
    add_report_arguments,
    free_ports,
    make_report,
    table,
    write_figures,
)

PEERS = ROOT / "bench/peers"
MODELS = ("DeepFM", "DLRM")
#: Steps of ours, of those with tables in the process, and of rpc's.
LOCAL_MIN, RPC_MIN, APART_MAX = 0.9, 1.3, 1e-6


class Trainers(Side):
    """Some trainers, and what has their tables."""

    def __init__(self, name: str, local: bool = False) -> None:
        super().__init__(name)
        self.is_local = local
        self.trainers: list[Child] = []

    def start(self, script: str, *words: Any) -> Child:
        child = Child(
            [sys.executable, str(PEERS / script), *map(str, words)], stdin=subprocess.PIPE
        )
        self.processes.append(child)
        return child

    def train(self, *children: Child) -> None:
        self.trainers += children
        for child in children:
            self.hear(child)

    @staticmethod
    def hear(child: Child) -> dict[str, float]:
        line = child.read_line()
        if not line:
            raise RuntimeError("a trainer ended before it said anything")
        found: dict[str, float] = json.loads(line)
        return found

    def ask(self, what: str) -> list[dict[str, float]]:
        for child in self.trainers:
            child.write_line(what)
        return [self.hear(child) for child in self.trainers]

    def window(self, kind: Any, seconds: float) -> dict[str, float]:
        found = self.ask(f"{seconds}")
        return {
            "steps_per_s": sum(one["steps_per_s"] for one in found),
            "cpu_ms": statistics.mean(one["cpu_ms"] for one in found),
        }


def core_of(trainer: int) -> int:
    """Where trainer 1, 2, ... runs."""
    cores = sorted(os.sched_getaffinity(0))
    return cores[min(trainer, len(cores)) - 1]


def in_process(model: str, arguments: argparse.Namespace) -> Trainers:
    side = Trainers("in the process", local=True)
    words = (model, arguments.rows, arguments.batch, 1, 1, "-", core_of(1))
    side.train(side.start("torch_rpc.py", "local", *words))
    return side


def by_rpc(model: str, trainers: int, arguments: argparse.Namespace, folder: Path) -> Trainers:
    side = Trainers(f"torch.distributed.rpc, {trainers} trainer{'s' * (trainers > 1)}")
    world, file = trainers + 1, folder / f"rpc-{model}-{trainers}"
    last = max(os.sched_getaffinity(0))
    started = [
        side.start(
            "torch_rpc.py", "rpc", model, arguments.rows, arguments.batch, rank, world, file,
            core_of(rank) if rank else last,
        )
        for rank in range(world)
    ]  # fmt: skip
    side.hear(started[0])
    side.train(*started[1:])
    return side


def ours(model: str, trainers: int, depth: int, arguments: argparse.Namespace) -> Trainers:
    ahead = f", {depth} ahead" if depth else ""
    side = Trainers(f"sidereal.torch, {trainers} trainer{'s' * (trainers > 1)}{ahead}")
    cluster = {"ps": [f"127.0.0.1:{port}" for port in free_ports(1)]}
    last = max(os.sched_getaffinity(0))
    side.processes.append(Server(cluster, "ps", 0, arguments.protocol, cores=[last]))
    for rank in range(1, trainers + 1):  # The first makes the tables.
        words = (model, arguments.rows, arguments.batch, rank, cluster["ps"][0], depth)
        side.train(side.start("torch_ours.py", *words, core_of(rank)))
    return side


def measure_model(
    model: str, arguments: argparse.Namespace, quiet: Quiet, folder: Path
) -> list[dict[str, Any]]:
    sides: list[Trainers] = []
    try:
        sides.append(in_process(model, arguments))
        for trainers in arguments.trainers:
            for depth in arguments.ahead:
                sides.append(ours(model, trainers, depth, arguments))
            sides.append(by_rpc(model, trainers, arguments, folder))
        apart = sides[1].ask("check")[0]
        for side in sides:
            side.window("", min(1.0, arguments.seconds))
        for _ in range(arguments.rounds):
            for side in sides:
                side.measure("", arguments.seconds, quiet)
    finally:
        for side in sides:
            side.close()
    rows = []
    for side in sides:
        windows = side.found[""]
        rows.append(
            {
                "model": model, "side": side.name, **apart,
                "ours": statistics.median(one["steps_per_s"] for one in windows),
                "least": min(one["steps_per_s"] for one in windows),
                "most": max(one["steps_per_s"] for one in windows),
                "cpu_ms": statistics.median(one["cpu_ms"] for one in windows),
            }
        )  # fmt: skip
    return rows


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    quiet = Quiet(arguments.noisy_max)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for model in arguments.only:
            rows += measure_model(model, arguments, quiet, Path(folder))
    figures = {
        "rows": rows,
        "quiet": quiet.summary(),
        "conditions": {
            "rows": arguments.rows, "batch": arguments.batch, "protocol": arguments.protocol,
            "rounds": arguments.rounds, "seconds": arguments.seconds,
        },
    }  # fmt: skip
    print(report(figures))
    print(quiet.summary())
    return figures


def report(figures: dict[str, Any]) -> str:
    rows = figures["rows"]
    shown = []
    for i, one in enumerate(rows):
        own = [row for row in rows if row["model"] == one["model"]]
        rpc = next(
            (
                row["ours"]
                for row in own
                if "rpc" in row["side"] and row["side"].split(",")[1] == one["side"].split(",")[1]
            ),
            0.0,
        ) if "sidereal" in one["side"] else 0.0  # fmt: skip
        shown.append(
            [
                one["model"] if i == 0 or rows[i - 1]["model"] != one["model"] else "",
                one["side"], f"{one['ours']:.1f}", f"{one['least']:.1f} to {one['most']:.1f}",
                f"{one['cpu_ms']:.1f}", f"{one['ours'] / own[0]['ours']:.2f}",
                f"{one['ours'] / rpc:.2f}" if rpc else "",
            ]
        )  # fmt: skip
    head = (
        "model", "tables", "steps/s of all trainers", "least to most",
        "processor ms of a trainer's step", f"of in the process (1: {LOCAL_MIN})",
        f"times rpc ({RPC_MIN})",
    )  # fmt: skip
    apart = {row["model"]: (row["gradients"], row["rows"]) for row in rows}
    said = "; ".join(
        f"{model} {gradients:.1e} and {difference:.1e}"
        for model, (gradients, difference) in apart.items()
    )
    text = (
        f"Largest difference from tables in the process in 3 steps, of gradients of the dense part"
        f" and of rows (at most {APART_MAX:g}): {said}."
    )
    return f"{table(head, shown)}\n{textwrap.fill(text, 100)}\n"


def write(figures: dict[str, Any], document: Path) -> None:
    conditions = figures["conditions"]
    text = textwrap.fill(
        f"26 tables of {conditions['rows']:,} rows of 16 floats, one id a field, skewed; Adagrad;"
        f" batch {conditions['batch']}; the parameter server over {conditions['protocol']}. Medians"
        f" of {conditions['rounds']} windows of {conditions['seconds']:g} s. {figures['quiet']}.",
        100,
    )
    write_figures(document, "torch_tables", f"{text}\n\n{report(figures)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--rows", type=int, default=100_000, help="of each of the 26 tables")
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--trainers", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--ahead", nargs="+", type=int, default=[0, 1], help="batches")
    parser.add_argument("--protocol", default="star_server")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="of a window")
    parser.add_argument("--noisy-max", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="one short window: does it work?")
    add_report_arguments(parser)
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds, arguments.seconds, arguments.noisy_max = 1, 0.05, 0
        arguments.rows, arguments.batch = 1000, 64
    make_report(arguments, measure, write)


if __name__ == "__main__":
    main()
