#!/usr/bin/env python3
"""Quality of Keras models that a ClusterCoordinator trains on real data: test AUC and log loss.

Click models of sr.keras on Frappe, beside what others published on the same split, and on
MovieLens-1M, where a rating of 4 or more is a click. 2 ps and 4 workers, processes of their own,
asynchronous; each worker reads its part of the examples from files, shuffled. Settings, and how
many epochs are good, were chosen by hand by the AUC of the validation split (of MovieLens: one in
twenty of the rows to train on, which is not trained on); --trace prints it after each epoch. Some
trials printed the AUC of the test split too, so that figures may be a little optimistic.

Runs that have ended are in the file of --json at once; --resume makes those that it does not have.
Exit code 1 when a mean is below what was published by more than 0.001, or a case of one seed by
more than 0.002.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import sidereal as sr
from _quality import FRAPPE, ON_FRAPPE, SEEDS, Published, auc_row, exit_without_data
from _quality_data import MOVIELENS, SETS, Columns, Data, auc, bias_only, log_loss, write_shards
from _quality_models import Shape, build
from common import (
    Coordinating,
    add_report_arguments,
    lines,
    local_cluster,
    make_report,
    table,
    write_figures,
)
from sidereal import keras
from sidereal.launch import PROTOCOLS

PS, WORKERS = 2, 4
#: How far below what was published a mean may be, and one seed, as runs differ by as much.
BELOW, BELOW_ALONE = 0.001, 0.002
#: For an epoch, and for a parameter server that does not answer.
PATIENCE_S = 300
#: How often servers of a run may be lost.
LOSSES_MAX = 8
SHOWN = {
    "frappe": "Frappe", "movielens": "MovieLens-1M", "planted": "planted", "lr": "LR", "fm": "FM",
    "deepfm": "DeepFM", "dcn": "DCN", "din": "DIN",
    "bias": "biases of users and movies alone",
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A model, what it is trained on, and how. schedule: learning rates of Adam, and for how many
    epochs each; beta_1: of Adam, less than usual, as what other workers do in between is a momentum
    too; averaged: of so many epochs at the end the weights are averaged.
    """

    data: str
    model: str
    shape: Shape
    schedule: tuple[tuple[float, int], ...]
    batch: int = 2048
    beta_1: float = 0.5
    averaged: int = 1
    protocol: str = "star_server"
    workers: int = WORKERS
    seeds: tuple[int, ...] = SEEDS

    @property
    def name(self) -> str:
        words = [self.data, self.model]
        words += [self.protocol] if self.protocol != Case.protocol else []
        words += [f"{self.workers} workers"] if self.workers != Case.workers else []
        return " ".join(words)

    @property
    def published(self) -> Published | None:
        return ON_FRAPPE[self.model] if self.data == "frappe" else None


_DEEP_ON_FRAPPE = Shape(dropout=0.2, l2=0.025, l2_linear=0.025)
_DEEP_ON_MOVIELENS = Shape(16, (200, 80), 0.2, 1e-5)
_LONG, _SHORT = ((1e-3, 6), (1e-4, 5)), ((1e-3, 2), (1e-4, 1))
FIRST = (
    Case("frappe", "lr", Shape(l2_linear=5e-6), ((1e-2, 20),), 4096),
    Case("frappe", "fm", Shape(l2=2.5e-6, l2_linear=2.5e-6), ((3e-3, 15), (5e-4, 3)), 1024),
    Case("frappe", "deepfm", _DEEP_ON_FRAPPE, _LONG, averaged=3),
    Case("frappe", "dcn", _DEEP_ON_FRAPPE, _LONG, averaged=3),
    Case("movielens", "lr", Shape(), ((2e-2, 3), (2e-3, 1))),
    Case("movielens", "fm", Shape(16, l2=1e-5), ((2e-3, 3), (2e-4, 1))),
    Case("movielens", "deepfm", _DEEP_ON_MOVIELENS, _SHORT),
    Case("movielens", "dcn", _DEEP_ON_MOVIELENS, _SHORT),
    Case("movielens", "din", _DEEP_ON_MOVIELENS, _SHORT),
)
#: One seed over each of the other protocols.
BEYOND = tuple(
    replace(case, protocol=protocol, seeds=SEEDS[:1])
    for case in FIRST
    if case.data == "frappe" or case.model == "din"
    for protocol in PROTOCOLS
    if protocol != case.protocol
)
CURVE = tuple(
    replace(case, workers=workers, seeds=SEEDS[:1])
    for case in FIRST
    if (case.data, case.model) in (("frappe", "fm"), ("frappe", "deepfm"))
    for workers in (1, 2, 8)
)
CASES = (*FIRST, *BEYOND, *CURVE)
#: Whether it works.
QUICK = tuple(
    Case("planted", model, Shape(4, (16,)), ((0.02, 4),), batch=128, seeds=SEEDS[:1])
    for model in ("lr", "din")
)


@dataclass
class Progress:
    """How many epochs are done, the weights after each, and the file of them and of what the
    optimizer keeps, with which a training goes on when a server was lost."""

    file: Path
    epochs: int = 0
    weights: list[list[np.ndarray]] = field(default_factory=list)


class Job:
    """A model on parameter servers, which workers train."""

    def __init__(
        self, strategy: Any, coordinator: Any, case: Case, seed: int, data: Data, folder: Path
    ) -> None:
        columns = data.columns if case.model == "din" else replace(data.columns, history=0)
        self._case, self._coordinator, self._width = case, coordinator, columns.width
        sr.random.set_seed(seed)
        with strategy.scope():
            self._model = build(case.model, columns, case.shape)
            self._optimizer = keras.optimizers.Adam(case.schedule[0][0], case.beta_1)
        self._model.compile(self._optimizer)
        shard = min(write_shards(data.train, columns.width, folder, case.workers,
                                 sr.io.TFRecordWriter))  # fmt: skip
        self._steps = len(data.train.labels) // case.batch
        self._step = self._made_step()
        self._iterator = iter(coordinator.create_per_worker_dataset(
            lambda: _batches(folder, columns, case, shard)
        ))  # fmt: skip

    def _made_step(self) -> Any:
        model, optimizer = self._model, self._optimizer

        @sr.function
        def step(iterator: Any) -> Any:
            ids, labels = next(iterator)
            with sr.GradientTape() as tape:
                logits = model(ids, training=True)
                losses = sr.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
                loss = sr.reduce_mean(losses)
                whole = sr.add_n([loss, *model.losses])
            weights = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(whole, weights), weights))
            return loss

        return step

    def train(self, progress: Progress, valid: Any = None) -> None:
        """The epochs that are not done. Of a validation split, the AUC is printed after each."""
        rates = [rate for rate, epochs in self._case.schedule for _ in range(epochs)]
        if progress.epochs:
            self._model.load_weights(progress.file)
        for rate in rates[progress.epochs :]:
            self._optimizer.learning_rate = rate
            losses = [
                self._coordinator.schedule(self._step, args=(self._iterator,))
                for _ in range(self._steps)
            ]
            self._coordinator.join(PATIENCE_S)
            self._model.save_weights(progress.file)
            progress.epochs += 1
            progress.weights.append(self._model.get_weights())
            if valid is not None:
                mean = float(np.mean(self._coordinator.fetch(losses)))
                self._trace(f"epoch {progress.epochs}  rate {rate:g}  loss {mean:.4f}", valid)
        if self._case.averaged > 1:
            last = progress.weights[-self._case.averaged :]
            self._model.set_weights([np.mean(each, axis=0) for each in zip(*last)])
            if valid is not None:
                self._trace("averaged", valid)

    def _trace(self, said: str, valid: Any) -> None:
        logits = self.predict(valid.ids)
        found = auc(valid.labels, logits), log_loss(valid.labels, logits)
        print(f"    {said}  validation {found[0]:.5f}  {found[1]:.4f}", flush=True)

    def predict(self, ids: np.ndarray) -> np.ndarray:
        """Logits of examples, by the workers."""
        columns = ids[:, : self._width].astype(np.int64)
        logits = self._model.predict(columns, batch_size=8192, verbose=0)
        return np.asarray(logits)[:, 0]


def _batches(folder: Path, columns: Columns, case: Case, shard: int) -> Any:
    """What the worker that asks trains on: its file, again and again, each time shuffled anew."""
    index = sr.distribute.coordinator.get_current_worker_index()
    files = sr.data.Dataset.list_files(str(folder / "*.tfrecord"), shuffle=False)
    mine = files.shard(case.workers, index).flat_map(sr.data.TFRecordDataset)

    def decoded(records: Any) -> Any:
        rows = sr.reshape(sr.io.decode_raw(records, sr.int32), [case.batch, columns.width + 1])
        return sr.cast(rows[:, :-1], sr.int64), sr.cast(rows[:, -1:], sr.float32)

    shuffled = mine.cache().shuffle(shard).repeat().batch(case.batch, drop_remainder=True)
    return shuffled.map(decoded).prefetch(sr.data.AUTOTUNE)


def trained(case: Case, seed: int, data: Data, progress: Progress, valid: Any) -> np.ndarray:
    """Logits for the test split of a model that servers of its own have trained to the end."""
    with tempfile.TemporaryDirectory() as folder:
        side = Coordinating(
            case.name, local_cluster(PS, case.workers), case.protocol,
            partial(Job, case=case, seed=seed, data=data, folder=Path(folder)),
            ps_timeout=PATIENCE_S,
        )  # fmt: skip
        try:
            side.job.train(progress, valid)
            return np.asarray(side.job.predict(data.test.ids))
        finally:
            side.close()


def run(case: Case, seed: int, data: Data, trace: bool) -> dict[str, Any]:
    """Trains one model; its row of the report."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        progress = Progress(Path(folder) / "model.weights.npz")
        for left in reversed(range(LOSSES_MAX)):
            try:
                logits = trained(case, seed, data, progress, data.valid if trace else None)
                break
            except sr.errors.UnavailableError as error:
                if left == 0:
                    raise
                print(f"    goes on after epoch {progress.epochs}: {error}", flush=True)
    seconds = time.monotonic() - began
    found, target = auc(data.test.labels, logits), 0.5
    if case.published is not None:
        target = case.published.auc - (BELOW if len(case.seeds) > 1 else BELOW_ALONE)
    return {
        **auc_row(case.name, seed, found, log_loss(data.test.labels, logits), case.published,
                  target),
        "data": case.data, "model": case.model, "protocol": case.protocol,
        "workers": case.workers, "seed": seed, "seconds": seconds,
    }  # fmt: skip


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    cases = QUICK if arguments.quick else [
        case for case in CASES if not arguments.only or case.name in arguments.only
    ]  # fmt: skip
    rows: list[dict[str, Any]] = []
    if arguments.resume and arguments.json is not None and arguments.json.exists():
        rows = json.loads(arguments.json.read_text(encoding="utf-8"))["rows"]
    known = {row["case"] for row in rows}
    if not arguments.quick:
        exit_without_data(FRAPPE, MOVIELENS)
    sets: dict[str, Data] = {}
    for case in cases:
        for seed in arguments.seeds or case.seeds:
            if f"{case.name} seed {seed}" in known:
                continue
            if case.data not in sets:
                sets = {case.data: SETS[case.data]()}
            data = sets[case.data]
            if case.data != "frappe" and f"{case.data} bias" not in known:
                rows.append(bias_row(case.data, data))
                known.add(rows[-1]["case"])
            rows.append(run(case, seed, data, arguments.trace))
            show(rows[-1])
            if arguments.json is not None:
                arguments.json.write_text(json.dumps({"rows": rows}, indent=1), encoding="utf-8")
    return {"rows": rows}


def bias_row(name: str, data: Data) -> dict[str, Any]:
    """What is reached without any model."""
    logits = bias_only(data)
    found = auc(data.test.labels, logits), log_loss(data.test.labels, logits)
    return {
        **auc_row(f"{name} bias", 0, *found, None, 0.0), "case": f"{name} bias",
        "data": name, "model": "bias", "protocol": Case.protocol, "workers": WORKERS, "seed": 0,
        "seconds": 0.0,
    }  # fmt: skip


def show(row: dict[str, Any]) -> None:
    print(
        f"{row['case']:44s} AUC {row['ours']:.5f}  log loss {row['log_loss']:.4f}"
        f"  published {row['peer']:.4f}  {row['seconds']:6.1f} s",
        flush=True,
    )


def mean(rows: Sequence[dict[str, Any]], what: str = "ours") -> float:
    return statistics.fmean(row[what] for row in rows)


def missed(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Models whose mean is too far below what was published, or no better than chance."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["case"].rpartition(" seed ")[0], []).append(row)
    return [name for name, some in found.items() if mean(some) < some[0]["target"]]


def document(report: dict[str, Any]) -> str:
    rows = report["rows"]
    models = list(dict.fromkeys((row["data"], row["model"]) for row in rows))

    def those(model: tuple[str, str], protocol: str) -> list[dict[str, Any]]:
        wanted = (*model, protocol, WORKERS)
        keys = ("data", "model", "protocol", "workers")
        return [row for row in rows if tuple(row[key] for key in keys) == wanted]

    first = []
    for model in models:
        found = those(model, Case.protocol)
        if not found:
            continue
        best, is_known = found[0], found[0]["peer"] > 0
        near = mean(found) >= best["target"]
        first.append([
            SHOWN[model[0]], SHOWN[model[1]],
            ", ".join(f"{row['ours']:.4f}" for row in found) if best["seed"] else "",
            f"{mean(found):.4f}", f"{best['peer']:.4f}" if is_known else "",
            ("yes" if near else "no") if is_known else "",
            f"{mean(found, 'log_loss'):.4f}", f"{best['peer_log_loss']:.4f}" if is_known else "",
        ])  # fmt: skip
    head = ["data", "model", "test AUC of seeds 1, 2, 3", "mean", "published AUC",
            f"at most {BELOW:g} below", "test log loss", "published log loss"]  # fmt: skip
    text = table(head, first)

    beyond = []
    for model in models:
        by = {protocol: those(model, protocol) for protocol in PROTOCOLS}
        if any(found for protocol, found in by.items() if protocol != Case.protocol):
            cells = [f"{mean(found):.4f} ({len(found)})" if found else "" for found in by.values()]
            beyond.append([SHOWN[model[0]], SHOWN[model[1]], *cells])
    if beyond:
        text += "\nTest AUC over each protocol: the mean, and of how many seeds:\n\n"
        text += table(["data", "model", *PROTOCOLS], beyond)

    curves = curves_of(rows)
    if curves:
        text += "\nTest AUC by the number of workers, as many examples each; of several seeds, the"
        text += " mean:\n\n"
        counts = sorted({workers for curve in curves.values() for workers in curve})
        cells = [
            ["Frappe", SHOWN[model], *(f"{curve[n]:.4f}" if n in curve else "" for n in counts)]
            for model, curve in curves.items()
        ]
        head = [f"{n} worker{'s' if n != 1 else ''}" for n in counts]
        text += table(["data", "model", *head], cells)
    return text


def curves_of(rows: Sequence[dict[str, Any]]) -> dict[str, dict[int, float]]:
    """The mean AUC on Frappe by the number of workers, by model, where there are several."""
    found: dict[str, dict[int, list[dict[str, Any]]]] = {}
    for row in rows:
        if (row["data"], row["protocol"]) == ("frappe", Case.protocol):
            found.setdefault(row["model"], {}).setdefault(row["workers"], []).append(row)
    return {
        model: {workers: mean(some) for workers, some in sorted(by.items())}
        for model, by in found.items()
        if len(by) > 1
    }


def write(report: dict[str, Any], path: Path) -> None:
    write_figures(path, "keras_quality", document(report))
    series = [
        (SHOWN[model], [(float(workers), value) for workers, value in curve.items()])
        for model, curve in curves_of(report["rows"]).items()
    ]
    plot = lines("Test AUC on Frappe, as many examples each", "workers", "test AUC", series,
                 y_step=0.002)  # fmt: skip
    (path.parent / "keras_quality.svg").write_text(plot, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_report_arguments(parser)
    parser.add_argument("--only", nargs="+", choices=[case.name for case in CASES], metavar="CASE",
                        help="such as 'frappe lr', 'frappe fm grpc'")  # fmt: skip
    parser.add_argument("--seeds", type=int, nargs="+", help="instead of those of each case")
    parser.add_argument("--resume", action="store_true", help="keep the runs of --json")
    parser.add_argument("--trace", action="store_true", help="print the AUC of validation")
    parser.add_argument("--quick", action="store_true", help="a small planted set: does it work?")
    arguments = parser.parse_args()
    report: dict[str, Any] = {}

    def measured(arguments: argparse.Namespace) -> dict[str, Any]:
        report.update(measure(arguments))
        return report

    make_report(arguments, measured, write)
    low = missed(report.get("rows", ()))
    if low:
        print(f"bench keras_quality: too low: {', '.join(low)}", file=sys.stderr)
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())
