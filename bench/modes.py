#!/usr/bin/env python3
"""What consistency costs and gives: `Model.fit(consistency=)` with a slow worker, and AUC.

slow: eight workers train on inputs that give batches at a stated rate, one of them at a fifth of
it: samples/s of each consistency with that worker, and without it, when all have the same rate.
Counted are samples whose gradients are in updates: with sync(7 of 8) those of seven workers. Steps
are small, so that workers wait for their inputs and not for the processors that they share.

auc: test AUC of a model by staleness, bounded(0) to bounded(16) and async, and by workers, and of
hybrid, with the same settings and as many epochs each. Frappe, or MovieLens-1M (--data movielens).
What a bound allows is not what there is: measured is also how many changes others made to dense
variables between a step's pull and its push, on average.

bytes: what a worker sends and receives in a step with async and with geo(k), of a model of dense
variables alone and of DeepFM: the difference of a long and a short training.
"""

from __future__ import annotations

import argparse
import errno
import fcntl
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import sidereal as sr
from _quality import FRAPPE, FRAPPE_IDS, exit_without_data
from _quality_data import LIKED, MOVIELENS
from common import add_report_arguments, lines, make_report, table, write_figures
from sidereal import _native
from sidereal.keras import layers

PARTS = ("slow", "auc", "bytes")
SLOWER = 5
BATCH = 64
FIELDS = 8
IDS = 10_000
#: How often a feeder looks whether it is to end, or whether its reader has come.
LOOK_S = 0.005
#: What sync with a spare worker is to keep of its rate.
SPARE_TARGET = 0.9
BOUNDS = (0, 1, 2, 4, 8, 16)
#: For all tasks to answer.
ANSWER_S = 10.0


@dataclass(frozen=True)
class Sizes:
    """Of what is measured. rate: batches that an input gives in a second; warm_s: of training
    before a window begins."""

    workers: int = 8
    rate: float = 10.0
    seconds: float = 5.0
    warm_s: float = 1.0
    rounds: int = 3
    bounds: tuple[int, ...] = BOUNDS
    auc_workers: tuple[int, ...] = (1, 2, 4, 8)
    windows: tuple[int, ...] = (1, 4, 16)
    byte_steps: int = 32


QUICK = Sizes(
    workers=2,
    rate=100.0,
    seconds=0.2,
    warm_s=0.1,
    rounds=1,
    bounds=(1,),
    auc_workers=(1, 2),
    windows=(2,),
    byte_steps=4,
)


# --- A slow worker.


class Input(threading.Thread):
    """Gives a worker batches at a rate, by a pipe with a name, until `ended`; then who reads finds
    the end of the file, until stop()."""

    def __init__(self, path: Path, rows: bytes, rate: float, ended: threading.Event) -> None:
        super().__init__(daemon=True)
        os.mkfifo(path)
        self.batches = 0
        self._path, self._rows, self._period, self._ended = path, rows, 1.0 / rate, ended
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.wait(LOOK_S):
            try:
                pipe = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK)
            except OSError as error:
                if error.errno != errno.ENXIO:  # Nobody reads.
                    raise
                continue
            try:
                self._write(pipe)
            except BrokenPipeError:
                pass
            finally:
                os.close(pipe)

    def _write(self, pipe: int) -> None:
        os.set_blocking(pipe, True)
        # A page: what is in it a slow worker has not had.
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 4096)
        due = time.monotonic()
        while not self._ended.wait(max(0.0, due - time.monotonic())):
            left = memoryview(self._rows)
            while left:
                left = left[os.write(pipe, left) :]
            self.batches += 1
            # What a worker was too slow for it does not get later.
            due = max(due + self._period, time.monotonic() - self._period)

    def stop(self) -> None:
        self._stopped.set()
        self.join()


def text_of_batch(seed: int) -> bytes:
    """Examples in the format libsvm, which is read from its first line on: a label, FIELDS ids."""
    random = np.random.default_rng(seed)
    ids, labels = random.integers(0, IDS, (BATCH, FIELDS)), random.integers(0, 2, BATCH)
    rows = (f"{label} {' '.join(f'{one}:1' for one in of)}\n" for label, of in zip(labels, ids))
    return "".join(rows).encode()


@contextmanager
def inputs(
    folder: Path, sizes: Sizes, has_slow: bool, ended: threading.Event
) -> Iterator[tuple[list[Path], list[Input]]]:
    """A file for each worker; the last one may be slow."""
    files, threads = [], []
    for worker in range(sizes.workers):
        files.append(folder / f"{worker}.libsvm")
        slower = SLOWER if has_slow and worker == sizes.workers - 1 else 1
        threads.append(Input(files[-1], text_of_batch(worker), sizes.rate / slower, ended))
    for thread in threads:
        thread.start()
    try:
        yield files, threads
    finally:
        ended.set()
        for thread in threads:
            thread.stop()


def measure_rate(cluster: Any, sizes: Sizes, consistency: str, has_slow: bool) -> float:
    """Samples in updates, in a second."""
    ended = threading.Event()
    with tempfile.TemporaryDirectory() as name:
        with inputs(Path(name), sizes, has_slow, ended) as (files, threads):
            slow = threads[-1]
            seen: list[tuple[float, int]] = []

            def look(progress: Any) -> None:
                now = time.monotonic()
                rows = progress.rows
                if has_slow and spares_of(consistency):
                    rows -= slow.batches * BATCH
                # Behind the end workers take what they had waited with.
                if progress.rows > sizes.workers * BATCH and not ended.is_set():
                    seen.append((now, rows))
                if seen and now > seen[0][0] + sizes.warm_s + sizes.seconds:
                    ended.set()

            data = sr.data.libsvm(*files, id_space=IDS, shuffle_rows=0, bad_rows="skip")
            model = sr.models.build(
                "deepfm", data, hidden=(16,), embedding_dim=8,
                optimizer=sr.optimizers.Adagrad(0.05),
            )  # fmt: skip
            model.fit(
                data, cluster=cluster, batch_size=BATCH, shuffle=False, verbose=False,
                consistency=consistency, on_progress=look,
            )  # fmt: skip
    window = [one for one in seen if one[0] >= min(seen[0][0] + sizes.warm_s, seen[-2][0])]
    (begin, before), (end, after) = window[0], window[-1]
    used = 1.0
    if not has_slow and (spares := spares_of(consistency)):
        used = (sizes.workers - spares) / sizes.workers
    return used * (after - before) / (end - begin)


def quorum(sizes: Sizes) -> str:
    return f"sync({sizes.workers - 1} of {sizes.workers})"


def spares_of(consistency: str) -> int:
    return int("of" in consistency)


def measure_slow(sizes: Sizes) -> list[dict[str, Any]]:
    modes = ("async", "sync", quorum(sizes), "bounded(4)", "hybrid")
    found: dict[tuple[str, bool], list[float]] = {}
    with sr.LocalCluster(ps=2, workers=sizes.workers) as cluster:
        for _ in range(sizes.rounds):
            for mode in modes:
                for has_slow in (False, True):
                    rate = measure_rate(cluster, sizes, mode, has_slow)
                    found.setdefault((mode, has_slow), []).append(rate)
    rows = []
    for mode in modes:
        without, slow = (statistics.median(found[mode, has_slow]) for has_slow in (False, True))
        rows.append(
            {
                "part": "slow",
                "case": f"{mode}, one of {sizes.workers} workers {SLOWER} times slower",
                "consistency": mode,
                "ours": slow,
                "peer": without,
                "unit": "samples/s",
                "ratio": slow / without,
                "least": min(found[mode, True]),
                "most": max(found[mode, True]),
                "target": SPARE_TARGET if spares_of(mode) else None,
            }
        )
        target = f"  (at least {SPARE_TARGET:g})" if spares_of(mode) else ""
        print(f"{mode:12s} {without:9,.0f} {slow:9,.0f} samples/s, times"
              f" {slow / without:.2f}{target}", flush=True)  # fmt: skip
    return rows


# --- AUC.


@dataclass(frozen=True)
class Case:
    """A training. staleness: None without a bound."""

    consistency: str
    staleness: int | None
    workers: int
    seed: int


def cases(sizes: Sizes, seeds: Sequence[int]) -> list[Case]:
    """A worker alone has no others that it may miss."""
    out = []
    for seed in seeds:
        for workers in sizes.auc_workers:
            if workers > 1:
                out += [Case(f"bounded({s})", s, workers, seed) for s in sizes.bounds]
                out.append(Case("hybrid", None, workers, seed))
            out.append(Case("async", None, workers, seed))
    return out


class Work:
    """A model and its data."""

    def __init__(self, name: str, epochs: int) -> None:
        self.name, self.epochs = name, epochs
        if name == "frappe":
            parts = (FRAPPE / "train.csv.gz", FRAPPE / "test.csv.gz")
            self.train, self.test = (sr.data.csv(one, id_space=FRAPPE_IDS) for one in parts)
        elif name == "movielens":
            parts = (MOVIELENS / "ratings_train.csv.gz", MOVIELENS / "ratings_test.csv.gz")
            self.train, self.test = (
                sr.data.csv(one, label=f"rating>={LIKED}", categorical=["user_id", "movie_id"],
                            hash_buckets=20_000)
                for one in parts
            )  # fmt: skip
        else:
            self.train = sr.data.synthetic(rows=4096, vocabulary_max=100)
            self.test = sr.data.synthetic(rows=1024, first_row=100_000, vocabulary_max=100)

    def run(self, case: Case) -> dict[str, Any]:
        model = sr.models.build(
            "deepfm", self.train, hidden=(64, 64), embedding_dim=16, dropout=0.2, seed=case.seed,
            optimizer=sr.optimizers.Adam(0.002), l2_embedding=1e-5,
        )  # fmt: skip
        with sr.LocalCluster(ps=2, workers=case.workers) as cluster:
            fitted = model.fit(
                self.train, cluster=cluster, epochs=self.epochs, batch_size=512, verbose=False,
                consistency=case.consistency,
            )  # fmt: skip
            stale = changes_of_others(cluster)
            auc = model.evaluate(self.test).auc
        bound = "async" if case.staleness is None else f"staleness {case.staleness}"
        shown = case.consistency if case.consistency == "hybrid" else bound
        print(f"{shown:13s} {case.workers} workers seed {case.seed}: AUC {auc:.4f},"
              f" {fitted.updates} updates, {stale:.1f} changes by others", flush=True)  # fmt: skip
        return {
            "part": "auc",
            "case": f"{self.name} {case.consistency} {case.workers} workers seed {case.seed}",
            "data": self.name,
            "consistency": case.consistency,
            "staleness": case.staleness,
            "workers": case.workers,
            "seed": case.seed,
            "ours": auc,
            "unit": "AUC",
            "updates": fitted.updates,
            "changes_of_others": stale,
            "epochs": self.epochs,
        }


def changes_of_others(cluster: sr.LocalCluster) -> float:
    """To dense variables, between pull and push of a step."""
    target = f"grpc://{cluster.worker[0]}"
    client = _native.StatusClient.create(target, cluster.security._to_native(), ANSWER_S)
    changes = pushes = 0
    for name, _, total, buckets in client.staleness(ANSWER_S):
        if not name:
            changes += total
            pushes += sum(count for _, _, count in buckets)
    return changes / max(pushes, 1)


def mean_of(
    rows: Sequence[dict[str, Any]], key: str, consistency: str, workers: int
) -> float | None:
    """Over seeds; a worker alone has one for all."""
    wanted = ("async" if workers == 1 else consistency, workers)
    found = [row[key] for row in rows if (row["consistency"], row["workers"]) == wanted]
    return statistics.mean(found) if found else None


# --- Bytes.

DENSE_INPUTS = 64
#: Of geo(k), of a model without tables: of a k-th of async.
BYTES_TARGET = 1.2
BYTES_SEED = 1


def dense_model() -> sr.Model:
    model = sr.Model(seed=1)
    x, y = model.input("x", sr.float32, (DENSE_INPUTS,)), model.input("y", sr.float32, ())
    for units in (256, 256):
        x = layers.Dense(units, activation="relu")(x)
    found = sr.reshape(layers.Dense(1)(x), [-1])
    loss = sr.reduce_mean(sr.square(found - y))
    model.compile(found, sr.optimizers.Adam(0.01), loss=loss)
    return model


def dense_rows(rows: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(BYTES_SEED)
    x = random.normal(size=(rows, DENSE_INPUTS))
    return {"x": x.astype(np.float32), "y": x[:, 0].astype(np.float32)}


def click_rows(rows: int) -> sr.data.DataSpec:
    return sr.data.synthetic(rows=rows, vocabulary_max=10_000)


def click_model() -> sr.Model:
    return sr.models.build(
        "deepfm", click_rows(BATCH), hidden=(64, 64), embedding_dim=16,
        optimizer=sr.optimizers.Adam(0.002),
    )  # fmt: skip


def bytes_of_a_step(
    model: Callable[[], sr.Model], rows: Callable[[int], Any], consistency: str, steps: int
) -> float:
    """Of one worker of two, without what loops begin and end with."""
    found: list[tuple[int, int]] = []
    with sr.LocalCluster(ps=2, workers=2) as cluster:
        for times in (1, 6):
            fitted = model().fit(
                rows(2 * BATCH * steps * times), cluster=cluster, batch_size=BATCH, verbose=False,
                consistency=consistency,
            )  # fmt: skip
            workers = [one for one in fitted.tasks if "worker" in one.task]
            moved = sum(one.bytes_in + one.bytes_out for one in workers)
            found.append((moved, fitted.steps))
    (less, few), (more, many) = found
    return (more - less) / (many - few)


def measure_bytes(sizes: Sizes) -> list[dict[str, Any]]:
    out = []
    for name, model, rows in (("dense", dense_model, dense_rows),
                              ("DeepFM", click_model, click_rows)):  # fmt: skip
        base = 0.0
        for window in (0, *sizes.windows):
            mode = f"geo({window})" if window else "async"
            each = bytes_of_a_step(model, rows, mode, sizes.byte_steps)
            base = base or each
            is_wanted = window > 0 and name == "dense"
            out.append(
                {
                    "part": "bytes",
                    "case": f"{name}, {mode}",
                    "model": name,
                    "consistency": mode,
                    "ours": each,
                    "peer": base,
                    "unit": "bytes/step",
                    "ratio": each / base,
                    "target": BYTES_TARGET / window if is_wanted else None,
                }
            )
            print(f"{name:8s} {mode:8s} {each:10,.0f} bytes/step, times {each / base:.3f}",
                  flush=True)  # fmt: skip
    return out


# --- Reports.


def bytes_table(rows: Sequence[dict[str, Any]]) -> str:
    cells = [
        [row["model"], row["consistency"], f"{row['ours']:,.0f}", f"{row['ratio']:.3f}",
         f"at most {row['target']:.3f}" if row["target"] else ""]
        for row in rows
    ]  # fmt: skip
    return table(["model", "consistency", "bytes/step", "times", "wanted"], cells)


def slow_table(rows: Sequence[dict[str, Any]]) -> str:
    cells = [
        [row["consistency"], f"{row['peer']:,.0f}", f"{row['ours']:,.0f}",
         f"{row['least']:,.0f} to {row['most']:,.0f}", f"{row['ratio']:.2f}",
         f"at least {row['target']:g}" if row["target"] else ""]
        for row in rows
    ]  # fmt: skip
    head = ["consistency", "samples/s", "with the slow worker", "least to most", "times", "wanted"]
    return table(head, cells)


def columns(rows: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """What a table or plot has beside each other: (consistency, name)."""
    bounds = sorted({row["staleness"] for row in rows if row["staleness"] is not None})
    return [(f"bounded({s})", str(s)) for s in bounds] + [("async", "unbounded")]


def auc_table(rows: Sequence[dict[str, Any]]) -> str:
    """AUC, and how many changes others made between pull and push."""
    shown = [*columns(rows), ("hybrid", "hybrid")]
    cells: list[list[str]] = []
    for what, key, digits in (("AUC", "ours", 4), ("changes by others", "changes_of_others", 1)):
        for workers in sorted({row["workers"] for row in rows}):
            found = [mean_of(rows, key, consistency, workers) for consistency, _ in shown]
            said = ("" if one is None else f"{one:.{digits}f}" for one in found)
            cells.append([what, str(workers), *said])
    return table(["", "workers", *(name for _, name in shown)], cells)


def auc_plot(rows: Sequence[dict[str, Any]], title: str) -> str:
    """Staleness to the right, one after the other."""
    places = {2.0**i: one for i, one in enumerate(columns(rows))}
    series = []
    for workers in sorted({row["workers"] for row in rows}):
        found = [(x, mean_of(rows, "ours", one, workers)) for x, (one, _) in places.items()]
        name = f"{workers} worker{'s' if workers > 1 else ''}"
        series.append((name, [(x, auc) for x, auc in found if auc is not None]))
    names = {x: name for x, (_, name) in places.items()}
    return lines(title, "staleness", "test AUC", series, y_step=0.002, x_names=names)


def write(report: dict[str, Any], path: Path) -> None:
    """Puts into a document what was measured."""
    slow, auc, moved = ([row for row in report["rows"] if row["part"] == part] for part in PARTS)
    if moved:
        write_figures(path, "modes_bytes", bytes_table(moved))
    if slow:
        write_figures(path, "modes", slow_table(slow))
    if auc:
        data = auc[0]["data"]
        beside = "_movielens" if data == "movielens" else ""
        write_figures(path, f"modes_auc{beside}", auc_table(auc))
        title = f"Test AUC on {data} by staleness, {auc[0]['epochs']} epochs"
        (path.parent / f"modes{beside}.svg").write_text(auc_plot(auc, title), encoding="utf-8")


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    sizes = QUICK if arguments.quick else Sizes(
        rounds=arguments.rounds, seconds=arguments.seconds, bounds=tuple(arguments.bounds),
        auc_workers=tuple(arguments.workers),
    )  # fmt: skip
    rows = []
    if "slow" in arguments.part:
        rows += measure_slow(sizes)
    if "auc" in arguments.part:
        if not arguments.quick:
            exit_without_data(MOVIELENS if arguments.data == "movielens" else FRAPPE)
        work = Work("synthetic" if arguments.quick else arguments.data, arguments.epochs)
        rows += [work.run(case) for case in cases(sizes, arguments.seeds)]
    if "bytes" in arguments.part:
        rows += measure_bytes(sizes)
    return {"rows": rows}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_report_arguments(parser)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--rounds", type=int, default=Sizes.rounds, help="slow: windows of each")
    parser.add_argument("--seconds", type=float, default=Sizes.seconds, help="slow: of a window")
    parser.add_argument("--data", choices=("frappe", "movielens"), default="frappe")
    parser.add_argument("--epochs", type=int, default=3, help="auc: of each training")
    parser.add_argument("--workers", type=int, nargs="+", default=list(Sizes.auc_workers),
                        help="auc: how many")  # fmt: skip
    parser.add_argument("--bounds", type=int, nargs="+", default=list(BOUNDS), metavar="S",
                        help="auc: of staleness")  # fmt: skip
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="auc: of models")
    parser.add_argument("--quick", action="store_true", help="small ones: does it work?")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.epochs = 1
    make_report(arguments, measure, write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
