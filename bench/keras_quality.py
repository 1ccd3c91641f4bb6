#!/usr/bin/env python3
"""Quality of Keras models that a ClusterCoordinator trains on real data: test AUC and log loss.

The models of sr.keras.applications on Frappe, beside what others published on the same split, and
on MovieLens-1M: with a rating of 4 or more as a click, and without those of 3, as others have it. 2
ps and 2 workers, processes of their own, asynchronous; each worker reads its part of the examples
from files, shuffled. The AUC of the validation split says when the learning rate falls, when a
training ends, and whether it ends with the weights of its best epoch or the mean of the last ones;
settings were chosen by it, with --trial, which does not look at the test split.

Runs that have ended are in the file of --json at once; --resume makes those that it does not have.
Exit code 1 when a mean is below what was published by more than 0.001, or a case of one seed by
more than 0.002.
"""

from __future__ import annotations

import argparse
import ast
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
from _quality import FRAPPE, IN_PAPER_OF_AUTOINT, Published, auc_row, exit_without_data
from _quality_cases import CASES, PS, PUBLISHED, QUICK, SHOWN, WORKERS, Case
from _quality_data import MOVIELENS, SETS, Data, Part, auc, bias_only, log_loss, write_shards
from _quality_models import OF_TASKS, Shape, build, seen
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

#: How far below what was published a mean may be, and one seed, as runs differ by as much.
BELOW, BELOW_ALONE = 0.001, 0.002
#: For an epoch, and for a parameter server that does not answer.
PATIENCE_S = 600
#: How often servers of a run may be lost.
LOSSES_MAX = 8
#: After so many epochs in a row without a gain the rate has fallen as often; the last one ends it.
STALE_MAX = 2
#: Of so many epochs at the end the weights are averaged.
AVERAGED = 3


@dataclass
class Progress:
    """How far a training is: its epochs, the best AUC of the validation split and the weights it
    was of, the latest weights, and the file of these and of what the optimizer keeps, with which a
    training goes on when a server was lost."""

    file: Path
    rate: float
    epochs: int = 0
    stale: int = 0
    auc: float = 0.0
    best: list[np.ndarray] = field(default_factory=list)
    last: list[list[np.ndarray]] = field(default_factory=list)

    def add(self, auc: float, weights: list[np.ndarray]) -> None:
        self.epochs += 1
        self.last = [*self.last, weights][-AVERAGED:]
        if auc > self.auc:
            self.auc, self.best, self.stale = auc, weights, 0
        else:
            self.stale += 1
            self.rate /= 10.0


class Job:
    """A model on parameter servers, which workers train."""

    def __init__(
        self, strategy: Any, coordinator: Any, case: Case, seed: int, data: Data, folder: Path
    ) -> None:
        self._case, self._coordinator, self._valid = case, coordinator, data.valid
        sr.random.set_seed(seed)
        with strategy.scope():
            self._model = build(case.model, data.columns, case.shape)
            self._optimizer = keras.optimizers.Adam(case.rate, case.beta_1)
        self._model.compile(self._optimizer)
        shard = min(write_shards(data.train, folder, case.workers, sr.io.TFRecordWriter))
        self._steps = len(data.train.labels) // case.batch
        self._step = self._made_step()
        width, tasks = data.columns.width, data.train.labels.shape[1]
        self._iterator = iter(coordinator.create_per_worker_dataset(
            lambda: _batches(folder, width, tasks, case, shard)
        ))  # fmt: skip

    def _made_step(self) -> Any:
        model, optimizer = self._model, self._optimizer
        tasks = 2 if self._case.model in OF_TASKS else 1

        @sr.function
        def step(iterator: Any) -> Any:
            ids, labels = next(iterator)
            with sr.GradientTape() as tape:
                logits = model(ids, training=True)
                logits = sr.concat(logits, 1) if tasks > 1 else logits
                losses = sr.nn.sigmoid_cross_entropy_with_logits(
                    labels=labels[:, :tasks], logits=logits
                )
                loss = sr.reduce_mean(losses)
                whole = sr.add_n([loss, *model.losses])
            weights = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(whole, weights), weights))
            return loss

        return step

    def train(self, progress: Progress, trace: bool) -> None:
        """The epochs that are not done, and what is best of them."""
        if progress.epochs:
            self._model.load_weights(progress.file)
        while progress.epochs < self._case.epochs and progress.stale < STALE_MAX:
            rate = self._optimizer.learning_rate = progress.rate
            losses = [
                self._coordinator.schedule(self._step, args=(self._iterator,))
                for _ in range(self._steps)
            ]
            self._coordinator.join(PATIENCE_S)
            self._model.save_weights(progress.file)
            found = self.evaluated(self._valid)
            progress.add(found[0], self._model.get_weights())
            if trace:
                mean = float(np.mean(self._coordinator.fetch(losses)))
                said = f"epoch {progress.epochs}  rate {rate:g}  loss {mean:.4f}"
                print(f"    {said}  validation {found[0]:.5f}  {found[1]:.4f}", flush=True)
        self._model.set_weights([np.mean(each, axis=0) for each in zip(*progress.last)])
        averaged = self.evaluated(self._valid)[0]
        if trace:
            print(f"    mean of the last {AVERAGED}  validation {averaged:.5f}", flush=True)
        if averaged > progress.auc:
            progress.auc = averaged
        else:
            self._model.set_weights(progress.best)

    def evaluated(self, part: Part) -> list[float]:
        """AUC and log loss of the first task, and the AUC of each other that the model has."""
        logits = self._model.predict(part.ids.astype(np.int64), batch_size=8192, verbose=0)
        first, *others = logits if isinstance(logits, list) else [logits]
        return [
            auc(part.clicks, first[:, 0]), log_loss(part.clicks, first[:, 0]),
            *(auc(part.labels[:, 1 + i], each[:, 0]) for i, each in enumerate(others)),
        ]  # fmt: skip


def _batches(folder: Path, width: int, tasks: int, case: Case, shard: int) -> Any:
    """What the worker that asks trains on: its file, again and again, each time shuffled anew."""
    index = sr.distribute.coordinator.get_current_worker_index()
    files = sr.data.Dataset.list_files(str(folder / "*.tfrecord"), shuffle=False)
    mine = files.shard(case.workers, index).flat_map(sr.data.TFRecordDataset)

    def decoded(records: Any) -> Any:
        rows = sr.reshape(sr.io.decode_raw(records, sr.int32), [case.batch, width + tasks])
        return sr.cast(rows[:, :width], sr.int64), sr.cast(rows[:, width:], sr.float32)

    shuffled = mine.cache().shuffle(shard).repeat().batch(case.batch, drop_remainder=True)
    return shuffled.map(decoded).prefetch(sr.data.AUTOTUNE)


def trained(case: Case, seed: int, data: Data, progress: Progress, options: Any) -> list[float]:
    """What a model that servers of its own have trained to the end has on the test split; of a
    trial, on the one to validate."""
    with tempfile.TemporaryDirectory() as folder:
        side = Coordinating(
            case.name, local_cluster(PS, case.workers), case.protocol,
            partial(Job, case=case, seed=seed, data=data, folder=Path(folder)),
            ps_timeout=PATIENCE_S,
        )  # fmt: skip
        try:
            side.job.train(progress, options.trace)
            found: list[float] = side.job.evaluated(data.valid if options.trial else data.test)
            return found
        finally:
            side.close()


def run(case: Case, seed: int, data: Data, options: Any) -> dict[str, Any]:
    """Trains one model; its row of the report."""
    began = time.monotonic()
    data = seen(data, case.model)
    with tempfile.TemporaryDirectory() as folder:
        progress = Progress(Path(folder) / "model.weights.npz", case.rate)
        for left in reversed(range(LOSSES_MAX)):
            try:
                found = trained(case, seed, data, progress, options)
                break
            except sr.errors.UnavailableError as error:
                if left == 0:
                    raise
                print(f"    goes on after epoch {progress.epochs}: {error}", flush=True)
    seconds = time.monotonic() - began
    target = 0.5
    if case.published is not None:
        target = case.published.auc - (BELOW if len(case.seeds) > 1 else BELOW_ALONE)
    return {
        **auc_row(case.name, seed, found[0], found[1], case.published, target),
        "data": case.data, "model": case.model, "protocol": case.protocol,
        "workers": case.workers, "seed": seed, "seconds": seconds, "epochs": progress.epochs,
        "validation": progress.auc, "others": found[2:],
    }  # fmt: skip


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    by_name = {case.name: case for case in CASES}
    cases = QUICK if arguments.quick else [
        by_name[name] for name in arguments.only or by_name
    ]  # fmt: skip
    cases = [changed(case, arguments.set) for case in cases]
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
            is_shown = not arguments.trial and case.data != "frappe"
            if is_shown and f"{case.data} bias" not in known:
                rows.append(bias_row(case.data, data))
                known.add(rows[-1]["case"])
            rows.append(run(case, seed, data, arguments))
            show(rows[-1])
            if arguments.json is not None:
                arguments.json.write_text(json.dumps({"rows": rows}, indent=1), encoding="utf-8")
    return {"rows": rows}


def changed(case: Case, settings: Sequence[str]) -> Case:
    """A case with other settings, NAME=VALUE, of it or of its shape."""
    for setting in settings:
        name, _, value = setting.partition("=")
        if hasattr(case.shape, name):
            shape: Shape = replace(case.shape, **{name: ast.literal_eval(value)})
            case = replace(case, shape=shape)
        else:
            case = replace(case, **{name: ast.literal_eval(value)})
    return case


def bias_row(name: str, data: Data) -> dict[str, Any]:
    """What is reached without any model."""
    logits = bias_only(data)
    found = auc(data.test.clicks, logits), log_loss(data.test.clicks, logits)
    return {
        **auc_row(f"{name} bias", 0, *found, None, 0.0), "case": f"{name} bias",
        "data": name, "model": "bias", "protocol": Case.protocol, "workers": WORKERS, "seed": 0,
        "seconds": 0.0, "epochs": 0, "validation": 0.0, "others": [],
    }  # fmt: skip


def show(row: dict[str, Any]) -> None:
    print(
        f"{row['case']:44s} AUC {row['ours']:.5f}  log loss {row['log_loss']:.4f}"
        f"  published {row['peer']:.4f}  validation {row['validation']:.5f}"
        f"  {row['epochs']} epochs  {row['seconds']:6.1f} s",
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


def document(rows: Sequence[dict[str, Any]]) -> str:
    """A table of each set, with the protocol and the workers that most have."""
    text = ""
    for data in dict.fromkeys(row["data"] for row in rows):
        models = [model for model in SHOWN if those(rows, data, model)]
        head = [SHOWN[data], "test AUC", "mean"]
        published = PUBLISHED.get(data, {})
        paper = IN_PAPER_OF_AUTOINT if data == "opinions" else {}
        head += ["published AUC", f"at most {BELOW:g} below"] if published else []
        head += ["of other columns"] if paper else []
        head += ["test log loss"] + (["published log loss"] if published else [])
        cells = [_line(model, those(rows, data, model), published, paper) for model in models]
        text += ("\n" if text else "") + table(head, cells)
    return text


def _line(
    model: str, rows: Sequence[dict[str, Any]], published: dict[str, Published],
    paper: dict[str, Published],
) -> list[str]:  # fmt: skip
    known, other = published.get(model), paper.get(model)
    cells = [SHOWN[model], ", ".join(f"{row['ours']:.4f}" for row in rows)]
    cells.append(f"{mean(rows):.4f}" if len(rows) > 1 else "")
    if published:
        is_near = mean(rows) >= rows[0]["target"]
        cells += [f"{known.auc:.4f}", "yes" if is_near else "no"] if known else ["", ""]
    if paper:
        cells.append(f"{other.auc:.4f}" if other else "")
    cells.append(f"{mean(rows, 'log_loss'):.4f}")
    if published:
        cells.append(f"{known.log_loss:.4f}" if known else "")
    return cells


def those(
    rows: Sequence[dict[str, Any]], data: str, model: str, protocol: str = Case.protocol,
    workers: int = WORKERS,
) -> list[dict[str, Any]]:  # fmt: skip
    wanted = (data, model, protocol, workers)
    keys = ("data", "model", "protocol", "workers")
    return [row for row in rows if tuple(row[key] for key in keys) == wanted]


def protocols(rows: Sequence[dict[str, Any]]) -> str:
    """The mean over each protocol, of models that were trained over several."""
    cells = []
    for data, model in dict.fromkeys((row["data"], row["model"]) for row in rows):
        by = {protocol: those(rows, data, model, protocol) for protocol in PROTOCOLS}
        if any(found for protocol, found in by.items() if protocol != Case.protocol):
            found = [f"{mean(some):.4f} ({len(some)})" if some else "" for some in by.values()]
            cells.append([SHOWN[data], SHOWN[model], *found])
    return table(["data", "model", *PROTOCOLS], cells) if cells else ""


def curves(rows: Sequence[dict[str, Any]]) -> dict[tuple[str, str], dict[int, float]]:
    """The mean AUC by the number of workers, by set and model, where there are several."""
    found: dict[tuple[str, str], dict[int, list[dict[str, Any]]]] = {}
    for row in rows:
        if row["protocol"] == Case.protocol:
            by = found.setdefault((row["data"], row["model"]), {})
            by.setdefault(row["workers"], []).append(row)
    return {
        model: {workers: mean(some) for workers, some in sorted(by.items())}
        for model, by in found.items()
        if len(by) > 1
    }


def write(report: dict[str, Any], path: Path) -> None:
    """Puts into a document what was measured: of protocols and of workers, if they were."""
    rows = report["rows"]
    write_figures(path, "keras_quality", document(rows))
    if by_protocol := protocols(rows):
        write_figures(path, "keras_quality_protocols", by_protocol)
    if not (by_model := curves(rows)):
        return
    counts = sorted({workers for curve in by_model.values() for workers in curve})
    head = [f"{n} worker{'s' if n != 1 else ''}" for n in counts]
    cells = [
        [SHOWN[data], SHOWN[model], *(f"{curve[n]:.4f}" if n in curve else "" for n in counts)]
        for (data, model), curve in by_model.items()
    ]
    write_figures(path, "keras_quality_workers", table(["data", "model", *head], cells))
    series = [
        (SHOWN[model], [(float(workers), value) for workers, value in curve.items()])
        for (_, model), curve in by_model.items()
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
    parser.add_argument("--trial", action="store_true", help="figures of validation alone")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE",
                        help="other settings, with --trial: rate=2e-3 dropout=0.3")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="a small planted set: does it work?")
    arguments = parser.parse_args()
    if arguments.trial and (arguments.json is not None or arguments.write is not None):
        parser.error("--trial: what it prints is of validation; leave out --json and --write")
    if arguments.set and not arguments.trial:
        parser.error("--set: what is reported has the settings of the cases; add --trial")
    report: dict[str, Any] = {}

    def measured(arguments: argparse.Namespace) -> dict[str, Any]:
        report.update(measure(arguments))
        return report

    make_report(arguments, measured, write)
    low = [] if arguments.trial else missed(report.get("rows", ()))
    if low:
        print(f"bench keras_quality: too low: {', '.join(low)}", file=sys.stderr)
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())
