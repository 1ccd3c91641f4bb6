#!/usr/bin/env python3
"""Training steps over the four protocols, side by side: steps/s and samples/s.

Each model trains on parameter servers and one worker, which are processes of `sidereal serve`; a
client in a process of its own (this one) runs one step after the other. The servers of all
protocols are up together; sides take turns within each round, and figures are medians of the
rounds. `fused`: with ConfigProto(tensor_fuse=True).

The models are those of _session_models.py.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from pathlib import Path
from typing import Any

import sidereal.v1 as tf
from _session_models import MODELS, Model, Trainer
from common import (
    OVER_TCP,
    Quiet,
    Server,
    add_model_arguments,
    cpu_seconds,
    free_ports,
    make_report,
    measure_models,
    model_bars,
    model_conditions,
    model_table,
    parse_model_arguments,
    table,
    write_figures,
)
from sidereal.launch import PROTOCOLS

#: (protocol, tensor_fuse); the first one is what others are compared with.
SIDES = (
    ("grpc", False),
    ("grpc", True),
    ("grpc++", False),
    ("grpc++", True),
    ("star_server", False),
    ("star_server_lite", False),
)
#: How many times grpc a side has to be, and what else is wanted of the first model.
TARGETS = {"star_server": 5.0, "grpc++": 2.0}
FUSED_TARGET = 1.5


def side_name(protocol: str, fused: bool) -> str:
    return f"{protocol}, fused" if fused else protocol


class Cluster:
    """Parameter servers and a worker of one protocol."""

    def __init__(self, model: Model, protocol: str) -> None:
        ports = [f"127.0.0.1:{port}" for port in free_ports(model.ps + 1)]
        self.cluster = {"ps": ports[: model.ps], "worker": ports[model.ps :]}
        self.ps: list[Server] = []
        self.worker: Server | None = None
        try:
            for task in range(model.ps):
                self.ps.append(Server(self.cluster, "ps", task, protocol, options=OVER_TCP))
            self.worker = Server(self.cluster, "worker", 0, protocol, options=OVER_TCP)
        except BaseException:
            self.close()
            raise

    @property
    def target(self) -> str:
        return f"grpc://{self.cluster['worker'][0]}"

    def cpu_seconds(self) -> tuple[float, float]:
        """Of the parameter servers, of the worker."""
        assert self.worker is not None
        return sum(one.cpu_seconds() for one in self.ps), self.worker.cpu_seconds()

    def close(self) -> None:
        for one in [*self.ps, *([self.worker] if self.worker else [])]:
            one.close()


class Side:
    """A session that trains, and what its windows have shown."""

    def __init__(self, model: Model, cluster: Cluster, protocol: str, fused: bool) -> None:
        self.name = side_name(protocol, fused)
        self.cluster = cluster
        self.steps_per_s: list[float] = []
        self.cpu_us: list[tuple[float, float, float]] = []
        config = tf.ConfigProto(tensor_fuse=fused)
        self._trainer = Trainer(tf, model, cluster.cluster, cluster.target, config)
        self.loss = self._trainer.loss

    def own_seconds(self) -> float:
        return sum(self.cluster.cpu_seconds()) + cpu_seconds(os.getpid())

    def window(self, seconds: float) -> tuple[float, tuple[float, float, float]]:
        """Steps per second; processor time of a step of ps, worker and client in microseconds."""
        ps, worker = self.cluster.cpu_seconds()
        client = cpu_seconds(os.getpid())
        steps, spent = self._trainer.window(seconds)
        ps_now, worker_now = self.cluster.cpu_seconds()
        used = (ps_now - ps, worker_now - worker, cpu_seconds(os.getpid()) - client)
        return steps / spent, tuple(one / steps * 1e6 for one in used)  # type: ignore[return-value]

    def measure(self, quiet: Quiet, seconds: float) -> None:
        rate, cpu = quiet.measure(self.own_seconds, lambda: self.window(seconds))
        self.steps_per_s.append(rate)
        self.cpu_us.append(cpu)

    def close(self) -> None:
        self._trainer.close()

    def row(self, model: Model, peer: Side) -> dict[str, Any]:
        ours = statistics.median(self.steps_per_s)
        theirs = statistics.median(peer.steps_per_s)
        ps, worker, client = (statistics.median(one) for one in zip(*self.cpu_us))
        return {
            "case": f"{model.name}: {self.name}",
            "model": model.name,
            "shown": model.shown,
            "side": self.name,
            "ours": ours,
            "peer": theirs,
            "unit": "steps/s",
            "ratio": ours / theirs,
            "least": min(self.steps_per_s),
            "most": max(self.steps_per_s),
            "samples_per_s": ours * model.batch,
            "ps_us": ps,
            "worker_us": worker,
            "client_us": client,
        }


def run_model(model: Model, rounds: int, seconds: float, quiet: Quiet) -> list[dict[str, Any]]:
    clusters: dict[str, Cluster] = {}
    sides: list[Side] = []
    try:
        for protocol in PROTOCOLS:
            clusters[protocol] = Cluster(model, protocol)
        for protocol, fused in SIDES:
            # Variables have one name in all sessions of a cluster; the next one makes them anew.
            sides.append(Side(model, clusters[protocol], protocol, fused))
        first = sides[0].loss
        for side in sides[1:]:
            if abs(side.loss - first) > 1e-4 * max(1.0, abs(first)):
                raise RuntimeError(f"{model.name}: first loss {side.loss} of {side.name}, {first}")
        for _ in range(rounds):
            for side in sides:
                side.measure(quiet, seconds)
        return [side.row(model, sides[0]) for side in sides]
    finally:
        for side in sides:
            side.close()
        for cluster in clusters.values():
            cluster.close()


def judge(rows: list[dict[str, Any]]) -> list[tuple[str, float, float]]:
    """What is wanted of the first model: (what, figure, at least)."""
    by_side = {row["side"]: row for row in rows if row["model"] == MODELS[0].name}
    if not by_side:
        return []
    shown = MODELS[0].shown
    out = [
        (f"{shown}: {side}, times grpc", by_side[side]["ratio"], wanted)
        for side, wanted in TARGETS.items()
    ]
    for protocol in ("grpc", "grpc++"):
        ratio = by_side[f"{protocol}, fused"]["ours"] / by_side[protocol]["ours"]
        out.append((f"{shown}: {protocol} fused, times unfused", ratio, FUSED_TARGET))
    return out


def show(rows: list[dict[str, Any]]) -> None:
    print(
        f"  {'side':18s} {'steps/s':>9s} {'':>17s} {'samples/s':>10s} {'of grpc':>8s}"
        f" {'ps us':>8s} {'worker us':>9s} {'client us':>9s}"
    )
    for one in rows:
        spread = f"[{one['least']:.1f}-{one['most']:.1f}]"
        print(
            f"  {one['side']:18s} {one['ours']:9.1f} {spread:>17s} {one['samples_per_s']:10,.0f}"
            f" {one['ratio']:8.2f} {one['ps_us']:8.0f} {one['worker_us']:9.0f}"
            f" {one['client_us']:9.0f}",
            flush=True,
        )


def document(report: dict[str, Any]) -> str:
    rows = report["rows"]
    text = model_table(
        rows,
        ["samples/s", "times grpc", "us of processor per step: ps, worker, client"],
        lambda one: [
            f"{one['samples_per_s']:,.0f}",
            f"{one['ratio']:.2f}",
            f"{one['ps_us']:,.0f}, {one['worker_us']:,.0f}, {one['client_us']:,.0f}",
        ],
    )
    wanted = [
        [what, f"{figure:.2f}", f"{least:g}", "yes" if figure >= least else "no"]
        for what, figure, least in judge(rows)
    ]
    if wanted:
        text += "\n" + table(["wanted", "measured", "at least", "met"], wanted)
    return text + f"\n{report['conditions']} {report['quiet']}.\n"


def write(report: dict[str, Any], path: Path) -> None:
    write_figures(path, "protocols", document(report))
    title = "Training steps per second by protocol (and times grpc)"
    plot = model_bars(title, MODELS, report["rows"])
    (path.parent / "protocols.svg").write_text(plot, encoding="utf-8")


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    report = measure_models(
        arguments,
        model_conditions(arguments),
        MODELS,
        lambda model, quiet: run_model(model, arguments.rounds, arguments.seconds, quiet),
        show,
    )
    for what, figure, least in judge(report["rows"]):
        met = "met" if figure >= least else "NOT met"
        print(f"{what:52s} {figure:8.2f} (wanted: at least {least:g}) {met}")
    return report


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_model_arguments(parser, [model.name for model in MODELS], seconds=0.8)
    make_report(parse_model_arguments(parser), measure, write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
