#!/usr/bin/env python3
"""Training speed of DeepFM on two cores: a ps and a worker process beside PyTorch in one process.

Same model, batch, optimizer (Adagrad) and uniform ids on both sides; see bench_train.cc and
peers/torch_deepfm.py. First every PyTorch setting runs once; the best two per batch size then run
in turn with ours, round after round, and medians over all windows are compared.

Figures of ours: with one worker lane, `in flight 1` sees every update of the step before, as
PyTorch does; `in flight 2` pulls the rows of the next step while this one computes, so a step may
miss the update of the one before. With two lanes the worker runs two steps at once, each of which
may miss the other's update (asynchronous training); the ps shares the two cores with them. Each of
these is over star_server in float32; the other protocols, and products in bfloat16, have rows with
one lane and two steps in flight.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import BIN, ROOT, add_report_arguments, make_report, table, write_figures

TORCH = ROOT / "bench/peers/torch_deepfm.py"
BINARY = BIN / "bench_train"


def json_lines(command: list[str], timeout: float) -> list[dict[str, Any]]:
    """Runs a program that prints one JSON object a line; raises with its errors if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        errors = done.stderr.strip()[-2000:]
        raise RuntimeError(f"{command[0]} failed ({done.returncode}): {errors}")
    return lines


@dataclass(frozen=True)
class Setting:
    """How we train in a row."""

    lanes: int = 1  #: Of the worker.
    in_flight: int = 2  #: Steps of each.
    protocol: str = "star_server"
    compute_dtype: str = "float32"

    @property
    def name(self) -> str:
        name = f"{self.lanes} lane{'s' if self.lanes > 1 else ''}, in flight {self.in_flight}"
        if self.protocol != Setting.protocol:
            name += f", {self.protocol}"
        if self.compute_dtype != Setting.compute_dtype:
            name += f", {self.compute_dtype}"
        return name


OURS = (
    Setting(1, 1),
    Setting(1, 2),
    Setting(2, 1),
    Setting(protocol="star_server_lite"),
    Setting(protocol="grpc++"),
    Setting(protocol="grpc"),
    Setting(compute_dtype="bfloat16"),
)


def ours(batch: int, setting: Setting, steps: int, windows: int) -> list[float]:
    """Samples per second of each window."""
    command = [str(BINARY), "--batch", str(batch), "--steps", str(steps)]
    command += ["--windows", str(windows), "--worker-lanes", str(setting.lanes)]
    command += ["--steps-in-flight", str(setting.in_flight), "--protocol", setting.protocol]
    command += ["--compute-dtype", setting.compute_dtype]
    return [line["samples_per_s"] for line in json_lines(command, 600)]


def torch(batch: int, settings: list[str], steps: int, windows: int) -> dict[str, float]:
    """Samples per second by setting; settings that cannot run are left out."""
    command = [sys.executable, str(TORCH), "--batch-size", str(batch)]
    command += ["--window-steps", str(steps), "--windows", str(windows)]
    if settings:
        command += ["--settings", ",".join(settings)]
    found = {}
    for line in json_lines(command, 3600):
        if "setting" in line and "samples_per_s" in line:
            found[line["setting"]] = line["samples_per_s"]
    return found


def compare(batch: int, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows for one batch size."""
    steps = max(20, 40_000 // batch)
    first = torch(batch, arguments.settings, max(10, steps // 2), 2)
    best = sorted(first, key=lambda name: -first[name])[:2]
    for name, speed in sorted(first.items(), key=lambda item: -item[1]):
        print(f"    pytorch {name:28s} {speed:10,.0f} samples/s", flush=True)
    figures: dict[str, list[float]] = {}
    for _ in range(arguments.rounds):
        for setting in OURS:
            figures.setdefault(setting.name, []).extend(ours(batch, setting, 4 * steps, 2))
        for name, speed in torch(batch, best, steps, 3).items():
            figures.setdefault(name, []).append(speed)
    medians = {name: statistics.median(values) for name, values in figures.items()}
    peer = max(best, key=lambda name: medians.get(name, 0))
    rows = []
    for setting in OURS:
        speed = medians[setting.name]
        values = figures[setting.name]
        rows.append(
            {
                "case": f"deepfm batch {batch}, {setting.name}",
                "ours": speed,
                "peer": medians[peer],
                "unit": "samples/s",
                "ratio": speed / medians[peer],
                "low": min(values),
                "high": max(values),
                "peer_setting": f"pytorch {peer}",
                "peer_low": min(figures[peer]),
                "peer_high": max(figures[peer]),
            }
        )
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    print(f"\n{'case':48s} {'ours':>10s} {'pytorch':>10s} {'ratio':>6s}  PyTorch setting")
    for row in rows:
        print(
            f"{row['case']:48s} {row['ours']:10,.0f} {row['peer']:10,.0f} {row['ratio']:6.2f}"
            f"  {row['peer_setting']}"
        )
    print("samples/s, medians over all windows of all rounds; target: 1.5 at batch 1024")


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    print("DeepFM 26 fields x 100,000 ids x 16, tower 416-400-400-400-1, Adagrad, float32")
    print("ours: 1 ps and 1 worker process, shared memory but for grpc, lanes spin as they choose")
    rows: list[dict[str, Any]] = []
    for batch in arguments.batches:
        print(f"  batch {batch}: every PyTorch setting once", flush=True)
        rows += compare(batch, arguments)
    show(rows)
    return {"rows": rows}


def write(report: dict[str, Any], path: Path) -> None:
    head = ["case", "Sidereal, samples/s", "least to most", "PyTorch, samples/s", "ratio"]
    rows = [
        [
            row["case"].removeprefix("deepfm "),
            f"{row['ours']:,.0f}",
            f"{row['low']:,.0f} to {row['high']:,.0f}",
            f"{row['peer']:,.0f}",
            f"{row['ratio']:.2f}",
            row["peer_setting"],
        ]
        for row in report["rows"]
    ]
    write_figures(path, "train", table([*head, "PyTorch setting"], rows))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_report_arguments(parser)
    parser.add_argument("--batches", type=int, nargs="+", default=[1024, 256, 4096])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--settings", nargs="+", default=[], help="PyTorch settings (default: all)")
    arguments = parser.parse_args()
    if arguments.take is None and importlib.util.find_spec("torch") is None:
        print("bench train: PyTorch is not installed; run ./dev setup --peers first")
        return 1
    make_report(arguments, measure, write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
