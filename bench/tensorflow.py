#!/usr/bin/env python3
"""The training steps of `bench protocols` beside TensorFlow's own servers and sessions over grpc.

The models are those of _session_models.py: one source, of which TensorFlow runs the same lines as
sidereal.v1. Each engine has its parameter servers and its worker in processes of their own; clients
run one step after the other, TensorFlow's in a process of its own. All servers are up together;
sides take turns within each round, and figures are medians of the rounds. `./dev setup --peers`
installs TensorFlow.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import sidereal.v1 as tf
from _session_models import MODELS, Model, Trainer
from common import (
    OVER_TCP,
    ROOT,
    Child,
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
    write_figures,
)
from sidereal.launch import PROTOCOLS

#: How many times TensorFlow's steps per second are wanted, by protocol and model.
WANTED = {
    "grpc": {"wide200": 1.2, "columns": 1.2, "deepfm": 1.2, "dlrm": 1.2, "dense": 1.2},
    "grpc++": {"wide200": 7.0, "columns": 10.0, "deepfm": 2.0, "dlrm": 4.0, "dense": 2.5},
    "star_server": {"wide200": 10.0, "columns": 13.0, "deepfm": 2.5, "dlrm": 5.0, "dense": 3.0},
}
WANTED["star_server_lite"] = WANTED["star_server"]
PEER = ROOT / "bench/peers/tensorflow_task.py"


def tensorflow_version() -> str | None:
    """Of the package that is installed; None without one. Not asked of the module: here, that would
    be this file."""
    try:
        return importlib.metadata.version("tensorflow-cpu")
    except importlib.metadata.PackageNotFoundError:
        return None


def cluster_of(model: Model) -> dict[str, list[str]]:
    ports = [f"127.0.0.1:{port}" for port in free_ports(model.ps + 1)]
    return {"ps": ports[: model.ps], "worker": ports[model.ps :]}


def tasks_of(cluster: dict[str, list[str]]) -> list[tuple[str, int]]:
    return [(job, task) for job, hosts in cluster.items() for task in range(len(hosts))]


class Side:
    """An engine that trains a model, and what its windows have shown."""

    name: str
    loss: float

    def __init__(self) -> None:
        self.steps_per_s: list[float] = []
        self.processes: list[Child] = []

    def busy_seconds(self) -> float:
        return sum(process.cpu_seconds() for process in self.processes)

    def window(self, seconds: float) -> float:
        raise NotImplementedError

    def close(self) -> None:
        for process in self.processes:
            process.close()


class Ours(Side):
    """Sidereal with one protocol; the client is this process."""

    def __init__(self, model: Model, protocol: str) -> None:
        super().__init__()
        self.name = protocol
        cluster = cluster_of(model)
        try:
            for job, task in tasks_of(cluster):
                self.processes.append(Server(cluster, job, task, protocol, options=OVER_TCP))
            target = f"grpc://{cluster['worker'][0]}"
            self._trainer = Trainer(tf, model, cluster, target)
        except BaseException:
            self.close()
            raise
        self.loss = self._trainer.loss

    def window(self, seconds: float) -> float:
        steps, spent = self._trainer.window(seconds)
        return steps / spent

    def close(self) -> None:
        trainer: Trainer | None = getattr(self, "_trainer", None)
        if trainer is not None:
            trainer.close()
        super().close()


class Peer(Side):
    """TensorFlow's servers and session."""

    name = "TensorFlow, grpc"

    def __init__(self, model: Model) -> None:
        super().__init__()
        cluster = cluster_of(model)
        try:
            for job, task in tasks_of(cluster):
                self._start("serve", json.dumps(cluster), job, str(task))
            target = [self._hear(process)["target"] for process in self.processes][-1]
            self._client = self._start("train", model.name, json.dumps(cluster), target)
            self.loss = self._hear(self._client)["loss"]
        except BaseException:
            self.close()
            raise

    def _start(self, *arguments: str) -> Child:
        child = Child(
            [sys.executable, str(PEER), *arguments],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.processes.append(child)
        return child

    @staticmethod
    def _hear(child: Child) -> Any:
        line = child.read_line()
        if not line:
            raise RuntimeError("a process of TensorFlow ended before it said anything")
        return json.loads(line)

    def window(self, seconds: float) -> float:
        self._client.write_line(str(seconds))
        made = self._hear(self._client)
        return float(made["steps"] / made["seconds"])


def run_model(model: Model, arguments: argparse.Namespace, quiet: Quiet) -> list[dict[str, Any]]:
    sides: list[Side] = []
    try:
        sides.append(Peer(model))
        for protocol in PROTOCOLS:
            sides.append(Ours(model, protocol))
        first = sides[0].loss
        for side in sides[1:]:
            if abs(side.loss - first) > 1e-4 * max(1.0, abs(first)):
                raise RuntimeError(f"{model.name}: first loss {side.loss} of {side.name}, {first}")
        for _ in range(arguments.rounds):
            for side in sides:
                rate = quiet.measure(
                    lambda side=side: side.busy_seconds() + cpu_seconds(os.getpid()),
                    lambda side=side: side.window(arguments.seconds),
                )
                side.steps_per_s.append(rate)
        peer = statistics.median(sides[0].steps_per_s)
        return [row(model, side, peer) for side in sides]
    finally:
        for side in sides:
            side.close()


def row(model: Model, side: Side, peer: float) -> dict[str, Any]:
    ours = statistics.median(side.steps_per_s)
    return {
        "case": f"{model.name}: {side.name}",
        "model": model.name,
        "shown": model.shown,
        "side": side.name,
        "ours": ours,
        "peer": peer,
        "unit": "steps/s",
        "ratio": ours / peer,
        "least": min(side.steps_per_s),
        "most": max(side.steps_per_s),
        "wanted": WANTED.get(side.name, {}).get(model.name),
    }


def met(one: dict[str, Any]) -> str:
    if one["wanted"] is None:
        return ""
    return f"{one['wanted']:g}: {'yes' if one['ratio'] >= one['wanted'] else 'no'}"


def show(rows: list[dict[str, Any]]) -> None:
    for one in rows:
        spread = f"[{one['least']:.1f}-{one['most']:.1f}]"
        print(
            f"  {one['side']:18s} {one['ours']:9.1f} {spread:>17s} {one['ratio']:7.2f} times"
            f"  {met(one)}",
            flush=True,
        )


def document(report: dict[str, Any]) -> str:
    head = ["times TensorFlow", "wanted: met"]
    text = model_table(report["rows"], head, lambda one: [f"{one['ratio']:.2f}", met(one)])
    return text + f"\n{report['conditions']} {report['quiet']}.\n"


def write(report: dict[str, Any], path: Path) -> None:
    write_figures(path, "tensorflow", document(report))
    title = "Training steps per second (and times TensorFlow)"
    plot = model_bars(title, MODELS, report["rows"])
    (path.parent / "tensorflow.svg").write_text(plot, encoding="utf-8")


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    return measure_models(
        arguments,
        f"TensorFlow {tensorflow_version()}. {model_conditions(arguments)}",
        MODELS,
        lambda model, quiet: run_model(model, arguments, quiet),
        show,
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_model_arguments(parser, [model.name for model in MODELS], seconds=1.0)
    arguments = parse_model_arguments(parser)
    if tensorflow_version() is None:
        print("bench tensorflow: TensorFlow is not installed; run ./dev setup --peers")
        return 2
    make_report(arguments, measure, write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
