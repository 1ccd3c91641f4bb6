#!/usr/bin/env python3
"""The training steps of `bench protocols` beside TensorFlow's own servers and sessions over grpc,
and a job of a ClusterCoordinator beside TensorFlow's.

The models are those of _session_models.py: one source, of which TensorFlow runs the same lines as
sidereal.v1. Each engine has its parameter servers and its worker in processes of their own; clients
run one step after the other, TensorFlow's in a process of its own. All servers are up together, and
use all processors for an op, as TensorFlow's do where nobody says otherwise; sides take turns
within each round, and figures are medians of the rounds. `./dev setup --peers` installs TensorFlow.

The job is that of _deepfm_job.py: see _job_sides.py.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import textwrap
from pathlib import Path
from typing import Any

import sidereal.v1 as tf
from _job_sides import JOB, SERVER_OPTIONS, job_table, run_job, show_job
from _session_models import MODELS, Model, Trainer
from common import (
    ROOT,
    Peer,
    Quiet,
    Side,
    add_model_arguments,
    local_cluster,
    make_report,
    measure_models,
    model_bars,
    model_conditions,
    model_table,
    parse_model_arguments,
    tensorflow_version,
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


class Ours(Side):
    """Sidereal with one protocol; the client is this process."""

    server_options = SERVER_OPTIONS

    def __init__(self, model: Model, protocol: str) -> None:
        super().__init__(protocol)
        cluster = local_cluster(model.ps, 1)
        try:
            self.serve(cluster, protocol)
            target = f"grpc://{cluster['worker'][0]}"
            self._trainer = Trainer(tf, model, cluster, target)
        except BaseException:
            self.close()
            raise
        self.first = {"loss": self._trainer.loss}

    def window(self, kind: Any, seconds: float) -> dict[str, float]:
        steps, spent = self._trainer.window(seconds)
        return {"per_s": steps / spent}

    def close(self) -> None:
        trainer: Trainer | None = getattr(self, "_trainer", None)
        if trainer is not None:
            trainer.close()
        super().close()


def run_model(model: Model, arguments: argparse.Namespace, quiet: Quiet) -> list[dict[str, Any]]:
    sides: list[Peer | Ours] = []
    try:
        sides.append(Peer(local_cluster(model.ps, 1), PEER, "train", model.name, to_worker=True))
        for protocol in arguments.protocols:
            sides.append(Ours(model, protocol))
        first = sides[0].first["loss"]
        for side in sides[1:]:
            loss = side.first["loss"]
            if abs(loss - first) > 1e-4 * max(1.0, abs(first)):
                raise RuntimeError(f"{model.name}: first loss {loss} of {side.name}, {first}")
        for _ in range(arguments.rounds):
            for side in sides:
                side.measure("steps", arguments.seconds, quiet)
        peer = statistics.median(steps_per_s(sides[0]))
        return [row(model, side, peer) for side in sides]
    finally:
        for side in sides:
            side.close()


def steps_per_s(side: Side) -> list[float]:
    return [one["per_s"] for one in side.found["steps"]]


def row(model: Model, side: Side, peer: float) -> dict[str, Any]:
    found = steps_per_s(side)
    ours = statistics.median(found)
    return {
        "case": f"{model.name}: {side.name}",
        "model": model.name,
        "shown": model.shown,
        "side": side.name,
        "ours": ours,
        "peer": peer,
        "unit": "steps/s",
        "ratio": ours / peer,
        "least": min(found),
        "most": max(found),
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


def write(report: dict[str, Any], path: Path) -> None:
    """Leaves figures in the document of which this run has none."""
    rows = [one for one in report["rows"] if one["model"] != JOB.name]
    job = [one for one in report["rows"] if one["model"] == JOB.name]
    conditions = textwrap.fill(f"{report['conditions']} {report['quiet']}.", 100)
    if job:
        write_figures(path, "tensorflow_job", f"{job_table(job)}\n{conditions}\n")
    if not rows:
        return
    text = model_table(
        rows,
        ["times TensorFlow", "wanted: met"],
        lambda one: [f"{one['ratio']:.2f}", met(one)],
    )
    write_figures(path, "tensorflow", f"{text}\n{conditions}\n")
    title = "Training steps per second (and times TensorFlow)"
    plot = model_bars(title, MODELS, rows)
    (path.parent / "tensorflow.svg").write_text(plot, encoding="utf-8")


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    return measure_models(
        arguments,
        f"TensorFlow {tensorflow_version()}. {model_conditions(arguments)}",
        [*MODELS, JOB],
        lambda model, quiet: (run_job if model is JOB else run_model)(model, arguments, quiet),
        lambda rows: show_job(rows) if rows[0]["model"] == JOB.name else show(rows),
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_model_arguments(parser, [model.name for model in [*MODELS, JOB]], seconds=1.0)
    parser.add_argument("--protocols", nargs="+", choices=PROTOCOLS, default=list(PROTOCOLS))
    parser.add_argument("--alone", action="store_true", help="the job without TensorFlow's")
    arguments = parse_model_arguments(parser)
    if arguments.alone:
        arguments.only = [JOB.name]
    elif tensorflow_version() is None:
        print("bench tensorflow: TensorFlow is not installed; run ./dev setup --peers")
        return 2
    make_report(arguments, measure, write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
