"""Who does the job of _deepfm_job.py in `bench tensorflow`: TensorFlow's coordinator, ours over
each protocol with products in float32 and in bfloat16, and, in the same way, fit() of the model of
sr.models with these layers. Each has one ps and one worker, in processes of their own, which use
all processors for an op, as TensorFlow's do where nobody says otherwise.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import sidereal as sr
from _deepfm_job import (
    ACCUMULATOR,
    EPSILON,
    LEARNING_RATE,
    PACKS,
    SIZES,
    Job,
    ModelOfLayers,
    Sizes,
    clicks,
    write_clicks,
)
from common import OVER_TCP, ROOT, Coordinating, Peer, Quiet, Side, local_cluster, table

PEER = ROOT / "bench/peers/tensorflow_coordinator.py"
#: What `bench tensorflow` is told and shows.
JOB = SimpleNamespace(
    name="deepfm_job", shown="DeepFM, a coordinator's job", batch=SIZES["full"].batch, ps=1
)
DTYPES = ("float32", "bfloat16")
#: How many times TensorFlow's best a step a call is wanted, by what products read; and fit().
WANTED = {"float32": 2.5, "bfloat16": 5.0}
WANTED_OF_FIT = 0.95
#: How far losses of the first steps may be from each other, as parts of one.
NEAR = {"float32": 1e-3, "bfloat16": 3e-2}
#: Kinds of work, as they are written.
SHOWN = {"one": "a step a call", "ten": "ten a call", "fit": "fit()"}
SERVER_OPTIONS = (*OVER_TCP, "--intra-op-threads", str(os.cpu_count()))


class Ours(Coordinating):
    """A coordinator in this process, which trains a model of layers."""

    server_options = SERVER_OPTIONS

    def __init__(self, protocol: str, compute_dtype: str, sizes: Sizes, folder: Path) -> None:
        self.protocol, self.compute_dtype = protocol, compute_dtype
        super().__init__(
            protocol if compute_dtype == "float32" else f"{protocol}, {compute_dtype}",
            local_cluster(1, 1),
            protocol,
            partial(Job, sr, model_type=ModelOfLayers, sizes=sizes, folder=folder),
            compute_dtype=compute_dtype,
        )
        self.first = {"losses": self.job.losses}


class Fit(Side):
    """The same model as sr.models has it, trained by fit(); from other first values."""

    server_options = SERVER_OPTIONS

    def __init__(self, protocol: str, compute_dtype: str, sizes: Sizes) -> None:
        self.protocol, self.compute_dtype = protocol, compute_dtype
        super().__init__(protocol if compute_dtype == "float32" else f"{protocol}, {compute_dtype}")
        cluster = local_cluster(1, 1)
        found = clicks(sizes)
        self._data = {
            "ids": found["ids"], "dense": found["numbers"], "label": found["label"][:, 0],
        }  # fmt: skip
        schema = sr.data.Schema(
            dense_width=sizes.numbers, fields=sizes.fields, rows=sizes.fields * sizes.rows
        )
        optimizer = sr.optimizers.Adagrad(LEARNING_RATE, ACCUMULATOR, EPSILON)
        self._model = sr.models.build(
            "deepfm", schema, optimizer=optimizer, embedding_dim=sizes.dim, hidden=sizes.hidden
        )
        self._batch = sizes.batch
        try:
            self.serve(cluster, protocol)
            self._cluster = sr.RemoteCluster(cluster)
            self._rate = self._fit(20)
        except BaseException:
            self.close()
            raise

    def _fit(self, steps: int) -> float:
        """Steps per second of so many."""
        done = self._model.fit(
            self._data, cluster=self._cluster, epochs=1 << 20, batch_size=self._batch,
            shuffle=False, steps_max=steps, compute_dtype=self.compute_dtype, verbose=False,
        )  # fmt: skip
        return done.samples_per_s / self._batch

    def window(self, kind: Any, seconds: float) -> dict[str, float]:
        steps = max(round(self._rate * seconds), 1)
        self._rate = self._fit(steps)
        return {"steps": steps, "per_s": self._rate}


def run_job(_: Any, arguments: argparse.Namespace, quiet: Quiet) -> list[dict[str, Any]]:
    """Rows of the report."""
    name = "quick" if arguments.quick else "full"
    sizes = SIZES[name]
    sides: list[Any] = []
    with tempfile.TemporaryDirectory() as folder:
        write_clicks(sizes, Path(folder), sr.io.TFRecordWriter)
        try:
            if not arguments.alone:
                sides.append(Peer(local_cluster(1, 1), PEER, "train", name, folder))
            for protocol in arguments.protocols:
                for dtype in DTYPES:
                    sides.append(Ours(protocol, dtype, sizes, Path(folder)))
                    sides.append(Fit(protocol, dtype, sizes))
            compare_losses([side for side in sides if not isinstance(side, Fit)])
            for _ in range(arguments.rounds):
                for side in sides:
                    for kind in ["fit"] if isinstance(side, Fit) else PACKS:
                        side.measure(kind, arguments.seconds, quiet)
            return rows_of(sides, sizes.batch)
        finally:
            for side in sides:
                side.close()


def compare_losses(sides: list[Any]) -> None:
    """Raises for one that does other work than the first."""
    wanted = sides[0].first["losses"]
    for side in sides[1:]:
        near = NEAR[side.compute_dtype]
        got = side.first["losses"]
        if any(abs(a - b) > near * abs(b) for a, b in zip(got, wanted)):
            raise RuntimeError(f"{JOB.name}: first losses {got} of {side.name}, not {wanted}")


def rows_of(sides: list[Any], batch: int) -> list[dict[str, Any]]:
    rates = {
        (side.name, kind): statistics.median(one["per_s"] for one in found)
        for side in sides
        for kind, found in side.found.items()
    }
    best = max((rates[side.name, kind] for side in sides for kind in side.found
                if isinstance(side, Peer)), default=0.0)  # fmt: skip
    rows = []
    for side in sides:
        for kind, found in side.found.items():
            ours = rates[side.name, kind]
            name = f"{side.name}, {SHOWN[kind]}"
            is_wanted = isinstance(side, Ours) and kind == "one"
            fit = rates[side.name, "fit"] if isinstance(side, Ours) else 0.0
            rows.append({
                "case": f"{JOB.name}: {name}", "model": JOB.name, "shown": JOB.shown, "side": name,
                "ours": ours, "peer": best, "unit": "steps/s",
                "ratio": ours / best if best else 0.0,
                "least": min(one["per_s"] for one in found),
                "most": max(one["per_s"] for one in found),
                "wanted": WANTED[side.compute_dtype] if is_wanted and best else None,
                "samples_per_s": ours * batch,
                "cpu_ms": 1e3 * statistics.median(one["cpu_s"] / one["steps"] for one in found),
                "of_fit": ours / fit if fit else 0.0,
                "wanted_of_fit": WANTED_OF_FIT if is_wanted else None,
            })  # fmt: skip
    return rows


def cells(row: dict[str, Any]) -> list[str]:
    """What a row says behind its side, but for the spread."""

    def against(value: float, wanted: float | None) -> str:
        text = f"{value:.2f}" if value else ""
        if wanted is not None:
            text += f" (wanted {wanted:g}: {'yes' if value >= wanted else 'no'})"
        return text

    return [
        f"{row['samples_per_s']:,.0f}",
        f"{row['cpu_ms']:.2f}",
        against(row["ratio"], row["wanted"]),
        against(row["of_fit"], row["wanted_of_fit"]),
    ]


def show_job(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        samples, cpu, ratio, of_fit = cells(row)
        spread = f"[{row['least']:.1f}-{row['most']:.1f}]"
        print(
            f"  {row['side']:42s} {samples:>10s} samples/s {row['ours']:8.1f} {spread:>17s}"
            f" {cpu:>8s} ms of processor a step  TensorFlow {ratio}  fit() {of_fit}",
            flush=True,
        )


def job_table(rows: list[dict[str, Any]]) -> str:
    """Markdown; of TensorFlow, its best is what others are compared with."""
    if not rows:
        return ""
    head = ["side", "samples/s", "least to most", "ms of processor per step",
            "times TensorFlow's best", "of fit()"]  # fmt: skip
    lines = []
    for row in rows:
        samples, *rest = cells(row)
        batch = row["samples_per_s"] / row["ours"]
        spread = f"{row['least'] * batch:,.0f} to {row['most'] * batch:,.0f}"
        lines.append([row["side"], samples, spread, *rest])
    return f"{rows[0]['shown']}:\n\n" + table(head, lines)
