#!/usr/bin/env python3
"""What saving a table costs while it is trained, and how fast it is saved, and read again.

One parameter server and one worker in processes of their own push random rows to a table with
Adagrad's slots, or train a model that looks rows up; a checkpoint is saved meanwhile, in full and
in increments. Beside it, in the same
run and folder: `dd conv=fsync` of as many bytes, and PyTorch's async_save of the same tensors
(`./dev setup --peers`). Figures are medians of the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from common import (
    ROOT,
    Server,
    add_report_arguments,
    local_cluster,
    make_report,
    table,
    tasks_of,
    write_figures,
)
from sidereal import v1
from sidereal._dispatch import apply

import sidereal as sr  # isort: skip

PEER = ROOT / "bench/peers/torch_checkpoint.py"
# The model that is trained: rows that a sample looks up, widths of its layers, samples of a step,
# and how skewed ids are: half of the look-ups are of the first (1/2)**SKEW of the rows.
COLUMNS, LAYERS, SAMPLES, SKEW = 26, (256, 128), 1024, 6
# What a save that keeps a slow pace takes.
SLOW_SECONDS = 10


def memory(pid: int, key: str) -> int:
    """Bytes that a process has in memory, VmRSS, or had at most, VmHWM."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise ValueError(key)


class Training:
    """A table on a parameter server, and steps that push rows to it."""

    def __init__(self, arguments: argparse.Namespace, paces: tuple[int, ...]) -> None:
        """`paces`: bytes a second that it may be saved with."""
        self.paces = paces
        cluster = local_cluster(1, 1)
        options = ("--lanes", str(arguments.lanes))
        self.servers = [
            Server(cluster, job, task, arguments.protocol, options=options)
            for job, task in tasks_of(cluster)
        ]
        self.ps = next(server.pid for server in self.servers if server.address in cluster["ps"])
        rows, dim, batch = arguments.rows, arguments.dim, arguments.batch
        self.graph = v1.Graph()
        with self.graph.as_default():
            self.prefix = v1.placeholder(np.str_, [], "prefix")
            self.base = v1.placeholder(np.str_, [], "base")
            self.cut = v1.placeholder(np.str_, [], "cut")
            self.some = v1.placeholder(np.int64, [None], "rows")
            with v1.device("/job:ps/task:0"):
                weights = v1.get_variable("w", [rows, dim], initializer=v1.zeros_initializer())
            with v1.device("/job:worker/task:0"):
                ids = sr.random.uniform([batch], maxval=rows, dtype=sr.int64)
                self.optimizer = v1.train.AdagradOptimizer(1.0, initial_accumulator_value=1.0)
                self.push = self._push(ids, weights, batch)
                self.push_some = self._push(self.some, weights, sr.shape(self.some)[0])
            self.train = self._train(weights, rows, dim)
            slot = self.optimizer.get_slot(weights, "accumulator")
            handles = [weights.handle, slot.handle]
            names = ["w", "w/Adagrad"]
            with v1.device("/job:ps/task:0"):
                self.saves = {}
                for pace in (0, *paces):
                    part = apply(
                        "SaveVariables",
                        [self.prefix, self.cut, *handles],
                        {"names": names, "shard": 0, "shards": 1, "tracks_changes": True,
                         "bytes_per_second": pace},
                    )  # fmt: skip
                    self.saves[pace] = apply("CommitCheckpoint", [self.prefix, self.base, part], {})
                self.restore = apply("RestoreVariables", [self.prefix, *handles], {"names": names})
            self.step = self.push
            self.session = v1.Session("grpc://" + cluster["worker"][0])
            self.session.run(v1.global_variables_initializer())

    def _push(self, ids: Any, weights: Any, count: Any) -> Any:
        grads = sr.ones([count, weights.shape[1]])
        slices = sr.IndexedSlices(grads, ids, list(weights.shape))
        return self.optimizer.apply_gradients([(slices, weights)])

    def _train(self, table: Any, rows: int, dim: int) -> Any:
        """A step of a model of many look-ups and a few dense layers."""
        with v1.device("/job:worker/task:0"):
            skewed = sr.random.uniform([SAMPLES, COLUMNS], dtype=np.float64) ** float(SKEW)
            ids = sr.cast(skewed * float(rows), np.int64)
            x = sr.reshape(v1.nn.embedding_lookup(table, ids), [SAMPLES, COLUMNS * dim])
            for i, width in enumerate((*LAYERS, 1)):
                with v1.device("/job:ps/task:0"):
                    kernel = v1.get_variable(f"kernel_{i}", [x.shape[1], width])
                x = sr.matmul(x, kernel)
                x = sr.nn.relu(x) if width > 1 else x
            labels = sr.cast(sr.random.uniform([SAMPLES, 1]) < 0.3, np.float32)
            loss = sr.reduce_mean(v1.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=x))
            return self.optimizer.minimize(loss)

    def steps(self, stop: threading.Event) -> tuple[float, float]:
        """(steps per second, the slowest in ms) until told to stop."""
        count, slowest, began = 0, 0.0, time.perf_counter()
        while not stop.is_set():
            at = time.perf_counter()
            self.session.run(self.step)
            slowest = max(slowest, time.perf_counter() - at)
            count += 1
        return count / (time.perf_counter() - began), 1e3 * slowest

    def steps_for(self, seconds: float) -> tuple[float, float]:
        stop = threading.Event()
        timer = threading.Timer(seconds, stop.set)
        timer.start()
        return self.steps(stop)

    def checkpoint(
        self, prefix: Path, base: Path | None = None, cut: str = "", pace: int = 0
    ) -> str:
        feeds = {
            self.prefix: str(prefix), self.base: "" if base is None else str(base), self.cut: cut
        }  # fmt: skip
        return self.session.run(self.saves[pace], feeds).decode()

    def checkpoint_while_training(self, prefix: Path, pace: int = 0) -> dict[str, float]:
        stop = threading.Event()
        found: list[tuple[float, float]] = []
        trainer = threading.Thread(target=lambda: found.append(self.steps(stop)))
        before = memory(self.ps, "VmRSS")
        Path(f"/proc/{self.ps}/clear_refs").write_text("5", encoding="utf-8")
        trainer.start()
        began = time.perf_counter()
        self.checkpoint(prefix, pace=pace)
        took = time.perf_counter() - began
        stop.set()
        trainer.join()
        return {
            "seconds": took,
            "steps_per_s": found[0][0],
            "slowest_ms": found[0][1],
            "extra_bytes": memory(self.ps, "VmHWM") - before,
        }

    def close(self) -> None:
        self.session.close()
        for server in self.servers:
            server.close()


def size_of(prefix: Path) -> int:
    return sum(file.stat().st_size for file in prefix.parent.glob(prefix.name + ".*"))


def remove(prefix: Path) -> None:
    for file in prefix.parent.glob(prefix.name + ".*"):
        file.unlink()


def dd_seconds(folder: Path, count: int) -> float:
    """What `dd conv=fsync` needs for so many bytes."""
    file = folder / "dd"
    began = time.perf_counter()
    subprocess.run(
        ["dd", "if=/dev/zero", f"of={file}", "bs=1M", f"count={count >> 20}", "conv=fsync"],
        check=True, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    took = time.perf_counter() - began
    file.unlink()
    return took


def read_and_insert_seconds(prefix: Path) -> float:
    """What reading the files of a checkpoint into memory needs, and copying that to new memory:
    from the system's cache, as when they are restored then."""
    files = list(prefix.parent.glob(prefix.name + ".*"))
    for file in files:
        np.fromfile(file, np.uint8)
    began = time.perf_counter()
    for file in files:
        np.fromfile(file, np.uint8).copy()
    return time.perf_counter() - began


def round_of(training: Training, arguments: argparse.Namespace, folder: Path) -> dict[str, float]:
    out: dict[str, float] = {}
    out["steps_per_s"], out["slowest_ms"] = training.steps_for(arguments.seconds)
    full = folder / "full"
    os.sync()
    out.update({f"saving_{k}": v for k, v in training.checkpoint_while_training(full).items()})
    out["bytes"] = size_of(full)
    remove(full)
    os.sync()
    paced = training.checkpoint_while_training(full, training.paces[0])
    out.update({f"paced_{key}": value for key, value in paced.items()})
    os.sync()
    remove(full)
    training.step = training.train
    out["model_steps_per_s"], _ = training.steps_for(arguments.seconds)
    for kind, pace in (("model_saving", 0), ("model_slow", training.paces[1])):
        os.sync()
        found = training.checkpoint_while_training(full, pace)
        out.update({f"{kind}_{key}": value for key, value in found.items()})
        remove(full)
    training.step = training.push
    os.sync()
    out["dd_s"] = dd_seconds(folder, int(out["bytes"]))
    began = time.perf_counter()
    cut = training.checkpoint(full)
    out["quiet_s"] = time.perf_counter() - began
    some = np.random.default_rng(1).choice(arguments.rows, arguments.rows // 100, replace=False)
    training.session.run(training.push_some, {training.some: some})
    part = folder / "part"
    began = time.perf_counter()
    training.checkpoint(part, full, cut)
    out["increment_s"] = time.perf_counter() - began
    out["increment_bytes"] = size_of(part)
    out["touched_bytes"] = len(some) * arguments.dim * 4 * 2
    out["read_and_insert_s"] = read_and_insert_seconds(full)
    began = time.perf_counter()
    training.session.run(training.restore, {training.prefix: str(full)})
    out["load_s"] = time.perf_counter() - began
    remove(full)
    remove(part)
    return out


def peer(arguments: argparse.Namespace, folder: Path) -> dict[str, float]:
    """PyTorch's figures; none where it is not installed."""
    words = [arguments.rows, arguments.dim, arguments.batch, arguments.seconds, folder / "torch"]
    done = subprocess.run(
        [sys.executable, str(PEER), *map(str, words)], capture_output=True, text=True, check=False
    )
    shutil.rmtree(folder / "torch", ignore_errors=True)
    if done.returncode != 0:
        print("PyTorch was not measured:", done.stderr.strip().splitlines()[-1:], file=sys.stderr)
        return {}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(dir=arguments.folder, prefix="bench-checkpoint-"))
    try:
        # Three quarters of what dd does: a save that is no faster leaves more to the training.
        size = arguments.rows * arguments.dim * 8
        paces = (int(0.75 * size / dd_seconds(folder, size)), int(size / SLOW_SECONDS))
        training = Training(arguments, paces)
        try:
            training.steps_for(1)
            rounds = [round_of(training, arguments, folder) for _ in range(arguments.rounds)]
        finally:
            training.close()
        peers = [peer(arguments, folder) for _ in range(arguments.rounds)]
    finally:
        shutil.rmtree(folder)
    middle = {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}
    theirs = {key: statistics.median(one[key] for one in peers) for key in peers[0] if all(peers)}
    figures = {
        "conditions": {
            "rows": arguments.rows, "dim": arguments.dim, "batch": arguments.batch,
            "protocol": arguments.protocol, "lanes": arguments.lanes, "rounds": arguments.rounds,
        },
        "ours": middle, "torch": theirs, "rounds": rounds,
    }  # fmt: skip
    print(report(figures))
    return figures


def report(figures: dict[str, Any]) -> str:
    ours, torch = figures["ours"], figures["torch"]
    table_bytes = ours["bytes"]
    saved_per_s = table_bytes / ours["saving_seconds"]

    def beside(key: str, form: str) -> str:
        return format(torch[key], form) if torch else "not installed"

    rows = [
        ("steps/s while saving, of without",
         f"{ours['saving_steps_per_s'] / ours['steps_per_s']:.2f}", "at least 0.85",
         format(torch["saving_steps_per_s"] / torch["steps_per_s"], ".2f") if torch else "-"),
        ("the same, paced at three quarters of dd",
         f"{ours['paced_steps_per_s'] / ours['steps_per_s']:.2f}", "at least 0.85", "none"),
        ("steps/s of a model while saving, of without",
         f"{ours['model_saving_steps_per_s'] / ours['model_steps_per_s']:.2f}",
         "at least 0.85", "-"),
        (f"the same, over {ours['model_slow_seconds']:.0f} seconds",
         f"{ours['model_slow_steps_per_s'] / ours['model_steps_per_s']:.2f}",
         "at least 0.85", "none"),
        ("slowest step, without, while saving and paced, ms",
         f"{ours['slowest_ms']:.0f}, {ours['saving_slowest_ms']:.0f},"
         f" {ours['paced_slowest_ms']:.0f}", "10 ms more",
         f"{torch['slowest_ms']:.0f}, {torch['saving_slowest_ms']:.0f}" if torch else "-"),
        ("extra memory, of what is saved", f"{ours['saving_extra_bytes'] / table_bytes:.3f}",
         "at most 0.10", format(torch["extra_bytes"] / table_bytes, ".2f") if torch else "-"),
        ("seconds to save while training", f"{ours['saving_seconds']:.2f}", "",
         beside("seconds", ".2f")),
        ("MB/s while training, of dd conv=fsync",
         f"{saved_per_s / 1e6:.0f}, {saved_per_s / (table_bytes / ours['dd_s']):.2f}",
         "at least 0.70",
         format(table_bytes / torch["seconds"] / (table_bytes / ours["dd_s"]), ".2f")
         if torch else "-"),
        ("the same, paced", f"{table_bytes / ours['paced_seconds'] / 1e6:.0f},"
         f" {ours['dd_s'] / ours['paced_seconds']:.2f}", "at least 0.70", "none"),
        ("seconds to save, nothing trained", f"{ours['quiet_s']:.2f}", "", ""),
        ("increment of 1 % of rows: bytes, of theirs",
         f"{ours['increment_bytes'] / ours['touched_bytes']:.2f}", "at most 1.20", "none"),
        ("its time, of a full one", f"{ours['increment_s'] / ours['quiet_s']:.3f}",
         "at most 0.030", "none"),
        ("reading and copying, of loading",
         f"{ours['read_and_insert_s'] / ours['load_s']:.2f}", "at least 0.70", "-"),
    ]  # fmt: skip
    return table(("", "Sidereal", "wanted", "async_save of PyTorch"), rows)


def write(figures: dict[str, Any], document: Path) -> None:
    conditions = figures["conditions"]
    text = textwrap.fill(
        f"{conditions['rows']:,} rows of {conditions['dim']} floats with Adagrad,"
        f" {figures['ours']['bytes'] / 1e9:.2f} GB; steps push {conditions['batch']} random rows,"
        f" those of the model look {SAMPLES * COLUMNS:,} skewed ones up and train dense layers,"
        f" one parameter server with {conditions['lanes']} lane over"
        f" {conditions['protocol']}; medians of {conditions['rounds']} rounds.",
        100,
    )
    write_figures(document, "checkpoint", f"{text}\n\n{report(figures)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--protocol", default="star_server")
    parser.add_argument("--lanes", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="of training without saving")
    parser.add_argument("--folder", default=str(ROOT / "build"), help="where checkpoints are put")
    add_report_arguments(parser)
    make_report(parser.parse_args(), measure, write)


if __name__ == "__main__":
    main()
