#!/usr/bin/env python3
"""Speed of one DeepFM training step in PyTorch on the CPU, over the settings a careful user tries.

The model: `--fields` categorical fields of `--vocabulary` ids, an embedding of `--dim` and a linear
weight per id, the second-order term of a factorization machine, a ReLU tower `--hidden` over the
embeddings (and over `--dense` numeric features, if any), binary cross entropy. Adagrad updates
everything; only the rows that a batch touches change. Ids are uniform; embeddings start uniform in
[-0.01, 0.01] and denormals are flushed, so that no figure suffers from denormal arithmetic.

A setting is `tables/threads/optimizer[/compile]`:
  tables     fields: per field one EmbeddingBag(sparse=True) for embeddings, one for linear weights
             merged: one Embedding(sparse=True) for all fields, one more for the linear weights
             joined: one Embedding(sparse=True) that holds both, dim + 1 wide
             rows:   like joined, but the step gathers the distinct rows itself, differentiates with
                     respect to them and writes the Adagrad update back (no sparse tensors)
  threads    t1, t2, ...: torch.set_num_threads
  optimizer  of the dense weights: loop, foreach or fused. Sparse gradients only have `loop`.
  compile    everything after the lookup goes through torch.compile (needs a C++ compiler)

Each setting runs in a process of its own and prints one JSON line:
  {"setting": .., "samples_per_s": .., "low": .., "high": .., "foreign_cpu": .., "load": [.., ..]}
samples_per_s is the median over `--windows` windows of `--window-steps` steps after a warm-up, low
and high are the slowest and the fastest window, foreign_cpu is the share of all processors that
other processes used meanwhile. A setting that cannot run has "error" instead. The last line is
{"best": SETTING, "samples_per_s": ..}.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

DEFAULT_SETTINGS = (
    "fields/t1/loop",
    "merged/t1/loop",
    "joined/t1/fused",
    "rows/t1/fused",
    "fields/t2/loop",
    "fields/t2/fused",
    "merged/t2/loop",
    "merged/t2/foreach",
    "merged/t2/fused",
    "merged/t2/fused/compile",
    "joined/t2/fused",
    "joined/t2/fused/compile",
    "rows/t2/fused",
    "rows/t2/fused/compile",
)
TABLE_KINDS = ("fields", "merged", "joined", "rows")
OPTIMIZER_KINDS = ("loop", "foreach", "fused")
LEARNING_RATE = 0.01
EPSILON = 1e-7
INITIAL_ACCUMULATOR = 0.1
INIT_RANGE = 0.01


@dataclass(frozen=True)
class Setting:
    """One way to run the step."""

    tables: str
    threads: int
    optimizer: str
    compiled: bool

    @staticmethod
    def parse(text: str) -> Setting:
        parts = text.split("/")
        valid = (
            len(parts) in (3, 4)
            and parts[0] in TABLE_KINDS
            and parts[1][:1] == "t"
            and parts[1][1:].isdigit()
            and int(parts[1][1:]) > 0
            and parts[2] in OPTIMIZER_KINDS
            and parts[3:] in ([], ["compile"])
        )
        if not valid:
            raise argparse.ArgumentTypeError(
                f"'{text}' is not tables/threads/optimizer[/compile], such as merged/t2/fused"
            )
        return Setting(parts[0], int(parts[1][1:]), parts[2], len(parts) == 4)

    def __str__(self) -> str:
        text = f"{self.tables}/t{self.threads}/{self.optimizer}"
        return text + "/compile" if self.compiled else text


def hidden_sizes(text: str) -> list[int]:
    """Parses `400,400,400`."""
    return [int(part) for part in text.split(",") if part]


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fields", type=int, default=26, help="categorical fields")
    parser.add_argument("--vocabulary", type=int, default=100_000, help="ids per field")
    parser.add_argument("--dim", type=int, default=16, help="width of an embedding")
    parser.add_argument("--dense", type=int, default=0, help="numeric features (0: none)")
    parser.add_argument("--hidden", type=hidden_sizes, default=[400, 400, 400])
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--batches", type=int, default=64, help="distinct batches, used in turn")
    parser.add_argument("--warmup-steps", type=int, default=40)
    parser.add_argument("--windows", type=int, default=7)
    parser.add_argument("--window-steps", type=int, default=40)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument(
        "--settings",
        type=lambda text: [Setting.parse(part) for part in text.split(",")],
        default=[Setting.parse(text) for text in DEFAULT_SETTINGS],
        help=f"comma-separated (default: {','.join(DEFAULT_SETTINGS)})",
    )
    parser.add_argument(
        "--timeout", type=float, default=300.0, help="seconds for one setting before it is given up"
    )
    parser.add_argument("--in-process", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


@dataclass
class Batch:
    """ids [batch, fields] (of the merged table), dense [batch, D], labels [batch]."""

    ids: torch.Tensor
    dense: torch.Tensor
    labels: torch.Tensor


def make_batches(options: argparse.Namespace) -> list[Batch]:
    import torch

    generator = torch.Generator().manual_seed(options.seed)
    shape = (options.batch_size, options.fields)
    offsets = torch.arange(options.fields) * options.vocabulary
    return [
        Batch(
            torch.randint(options.vocabulary, shape, generator=generator) + offsets,
            torch.rand(options.batch_size, options.dense, generator=generator),
            torch.randint(2, shape[:1], generator=generator).float(),
        )
        for _ in range(options.batches)
    ]


def make_head(options: argparse.Namespace) -> torch.nn.Module:
    """Everything after the lookup: (embeddings [B, F, K], linear [B, F], dense, labels) -> loss."""
    import torch

    class Head(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias = torch.nn.Parameter(torch.zeros(1))
            self.dense_weight = torch.nn.Parameter(torch.zeros(options.dense))
            layers: list[torch.nn.Module] = []
            width = options.fields * options.dim + options.dense
            for size in options.hidden:
                layers += [torch.nn.Linear(width, size), torch.nn.ReLU()]
                width = size
            self.tower = torch.nn.Sequential(*layers, torch.nn.Linear(width, 1))

        def forward(
            self,
            embeddings: torch.Tensor,
            linear: torch.Tensor,
            dense: torch.Tensor,
            labels: torch.Tensor,
        ) -> torch.Tensor:
            total = embeddings.sum(1)
            pairs = 0.5 * (total.square().sum(1) - embeddings.square().sum((1, 2)))
            flat = embeddings.flatten(1)
            logits = self.bias + linear.sum(1) + pairs
            if options.dense:
                flat = torch.cat([dense, flat], 1)
                logits = logits + dense @ self.dense_weight
            logits = logits + self.tower(flat).squeeze(1)
            return torch.nn.functional.binary_cross_entropy_with_logits(logits, labels)

    return Head()


def adagrad(parameters: list[torch.nn.Parameter], kind: str) -> torch.optim.Optimizer:
    import torch

    return torch.optim.Adagrad(
        parameters,
        lr=LEARNING_RATE,
        eps=EPSILON,
        initial_accumulator_value=INITIAL_ACCUMULATOR,
        foreach=kind == "foreach",
        fused=True if kind == "fused" else None,
    )


def make_lookup(
    options: argparse.Namespace, tables: str
) -> tuple[list[torch.nn.Module], Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]]:
    """The embedding modules, and ids -> (embeddings [B, F, K], linear [B, F])."""
    import torch

    rows = options.fields * options.vocabulary
    if tables == "fields":
        wide, narrow = (
            [
                torch.nn.EmbeddingBag(options.vocabulary, width, mode="sum", sparse=True)
                for _ in range(options.fields)
            ]
            for width in (options.dim, 1)
        )
        offsets = [field * options.vocabulary for field in range(options.fields)]

        def by_field(ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            columns = [
                (column - offset).unsqueeze(1) for column, offset in zip(ids.unbind(1), offsets)
            ]
            embeddings = torch.stack([bag(ids) for bag, ids in zip(wide, columns)], 1)
            return embeddings, torch.cat([bag(ids) for bag, ids in zip(narrow, columns)], 1)

        return [*wide, *narrow], by_field
    if tables == "merged":
        embedding = torch.nn.Embedding(rows, options.dim, sparse=True)
        linear = torch.nn.Embedding(rows, 1, sparse=True)
        return [embedding, linear], lambda ids: (embedding(ids), linear(ids).squeeze(2))
    joined = torch.nn.Embedding(rows, options.dim + 1, sparse=True)

    def split(ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        both = joined(ids)
        return both[:, :, : options.dim], both[:, :, options.dim]

    return [joined], split


def make_step(options: argparse.Namespace, setting: Setting) -> Callable[[Batch], torch.Tensor]:
    """A function that trains on one batch and returns the loss."""
    import torch

    head = make_head(options)
    modules, lookup = make_lookup(options, setting.tables)
    tables = [parameter for module in modules for parameter in module.parameters()]
    with torch.no_grad():
        for table in tables:
            table.uniform_(-INIT_RANGE, INIT_RANGE)
    loss_of = torch.compile(head) if setting.compiled else head
    dense_optimizer = adagrad(list(head.parameters()), setting.optimizer)
    if setting.tables == "rows":
        return rows_step(options, tables[0].detach(), loss_of, dense_optimizer)
    optimizers = [dense_optimizer, adagrad(tables, "loop")]

    def step(batch: Batch) -> torch.Tensor:
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss = loss_of(*lookup(batch.ids), batch.dense, batch.labels)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        return loss.detach()

    return step


def rows_step(
    options: argparse.Namespace,
    table: torch.Tensor,
    loss_of: Callable[..., torch.Tensor],
    dense_optimizer: torch.optim.Optimizer,
) -> Callable[[Batch], torch.Tensor]:
    """The step that keeps Adagrad's accumulators of `table` itself."""
    import torch

    accumulators = torch.full_like(table, INITIAL_ACCUMULATOR)

    def step(batch: Batch) -> torch.Tensor:
        dense_optimizer.zero_grad(set_to_none=True)
        distinct, position = torch.unique(batch.ids, return_inverse=True)
        leaf = table.index_select(0, distinct).requires_grad_()
        both = torch.nn.functional.embedding(position, leaf)
        embeddings, linear = both[:, :, : options.dim], both[:, :, options.dim]
        loss = loss_of(embeddings, linear, batch.dense, batch.labels)
        loss.backward()
        dense_optimizer.step()
        with torch.no_grad():
            gradient = leaf.grad
            sums = accumulators.index_select(0, distinct).addcmul_(gradient, gradient)
            accumulators.index_copy_(0, distinct, sums)
            new_rows = leaf.addcdiv(gradient, sums.sqrt_().add_(EPSILON), value=-LEARNING_RATE)
            table.index_copy_(0, distinct, new_rows)
        return loss.detach()

    return step


def cpu_seconds() -> tuple[float, float]:
    """Busy seconds of all processors since boot, and of this process."""
    own = os.times()
    try:
        with open("/proc/stat", encoding="ascii") as stat:
            # user nice system idle iowait irq softirq steal (guest time is inside user)
            ticks = [int(word) for word in stat.readline().split()[1:9]]
    except OSError:
        return 0.0, 0.0
    busy = sum(ticks) - ticks[3] - ticks[4]
    return busy / os.sysconf("SC_CLK_TCK"), own.user + own.system


def measure(options: argparse.Namespace, setting: Setting) -> dict[str, object]:
    import torch

    torch.set_num_threads(setting.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(options.seed)
    load_before = os.getloadavg()[0]
    batches = make_batches(options)
    step = make_step(options, setting)
    turn = itertools.cycle(batches)
    for _ in range(options.warmup_steps):
        step(next(turn))
    rates: list[float] = []
    busy_start, own_start = cpu_seconds()
    start = time.perf_counter()
    for _ in range(options.windows):
        window_start = time.perf_counter()
        for _ in range(options.window_steps):
            loss = step(next(turn))
        seconds = time.perf_counter() - window_start
        rates.append(options.window_steps * options.batch_size / seconds)
    wall = time.perf_counter() - start
    busy_end, own_end = cpu_seconds()
    foreign = ((busy_end - busy_start) - (own_end - own_start)) / (wall * (os.cpu_count() or 1))
    return {
        "setting": str(setting),
        "samples_per_s": round(statistics.median(rates)),
        "low": round(min(rates)),
        "high": round(max(rates)),
        "loss": round(float(loss), 4),
        "foreign_cpu": round(max(0.0, foreign), 3),
        "load": [round(load_before, 2), round(os.getloadavg()[0], 2)],
        "torch": torch.__version__,
    }


def measure_apart(setting: Setting, arguments: list[str], timeout: float) -> dict[str, object]:
    """Runs `measure` in a process of its own, so that settings cannot disturb each other."""
    command = [sys.executable, __file__, *arguments, "--settings", str(setting), "--in-process"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return {"setting": str(setting), "error": f"no result within {timeout:g} s"}
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
    return {"setting": str(setting), "error": f"exit status {done.returncode}: {reason}"}


def main() -> int:
    options = parse_arguments()
    if options.in_process:
        print(json.dumps(measure(options, options.settings[0])))
        return 0
    results = []
    for setting in options.settings:
        results.append(measure_apart(setting, sys.argv[1:], options.timeout))
        print(json.dumps(results[-1]), flush=True)
    usable = [result for result in results if "samples_per_s" in result]
    if not usable:
        print("no setting gave a result", file=sys.stderr)
        return 1
    best = max(usable, key=lambda result: result["samples_per_s"])
    print(json.dumps({"best": best["setting"], "samples_per_s": best["samples_per_s"]}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
