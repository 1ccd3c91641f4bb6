#!/usr/bin/env python3
"""The graph engine beside PyTorch: what an instruction costs, training steps, products of matrices.

chain        1000 additions and multiplications of scalars, one instruction each (the fuse pass is
             off), beside PyTorch, op by op and compiled; as the passes fuse them; while every
             instruction is traced, and after that.
models       One training step with its optimizer of an MLP, DeepFM, DLRM and DIN, batch 1024,
             float32: a sidereal.function beside PyTorch as it is and with torch.compile, with the
             same number of threads. See graph/work.py for sizes and peers/torch_graph.py for how
             PyTorch is used. First losses are compared, so that all do the same work.
mixed        The same steps of MLP, DeepFM and DLRM on one thread with compute_dtype bfloat16 beside
             ours in float32 and PyTorch under bfloat16 autocast. What both give is float32.
products     Layers and products of gradients on one thread beside raw oneDNN, the faster of its
             matmul primitive (with bias and Relu inside) and its sgemm.
allocations  Calls of malloc() and its like per step of each model: all, Python's own included,
             the engine's, and those that oneDNN makes when it is called.

Every side is a process of its own; in each round they run one after the other, and medians over all
windows of all rounds are compared. Targets are those of the engine, printed beside each figure.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
BIN = Path(os.environ.get("SIDEREAL_BIN_DIR", HERE.parent / "build/release/bin"))
PARTS = ("chain", "models", "mixed", "products", "allocations")
MODELS = ("mlp", "deepfm", "dlrm", "din")
TIMEOUT_S = 300.0
#: How far first losses may lie apart, relative: PyTorch's SparseAdam has another epsilon.
LOSSES_APART = 2e-3
LOSSES_APART_BFLOAT16 = 5e-2
MIXED = ("mlp", "deepfm", "dlrm")
#: Against ours in float32; of PyTorch's no more is asked than to be slower.
MIXED_TARGETS = {"ours": 2.5, "eager bfloat16": 1.0, "compile bfloat16": 1.0}


class Side:
    """A process that trains when told to (see graph/side.py)."""

    #: What is compared: "seconds", or "processor_seconds" where other programs run as well.
    clock = "seconds"

    def __init__(self, name: str, script: Path, case: str, options: Sequence[str]) -> None:
        self.name = name
        self.steps = 1
        self.times: list[float] = []
        command = [sys.executable, str(script), "--case", case, *options]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        ready = self._read()
        self.losses: list[float] = ready.get("losses", [])
        self.error: str = ready.get("error", "")

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        self._process.wait()
        assert self._process.stderr is not None
        lines = [line for line in self._process.stderr.read().splitlines() if line.strip()]
        return {"error": lines[-1] if lines else f"ended with {self._process.returncode}"}

    def run(self, steps: int) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{steps}\n")
        self._process.stdin.flush()
        answer = self._read()
        if "seconds" in answer:
            self.times.append(answer[self.clock] / steps)
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()

    @property
    def seconds(self) -> float:
        return statistics.median(self.times)


def row(case: str, ours: float, peer: float | None, unit: str, **more: Any) -> dict[str, Any]:
    """A figure; `ratio` is how much faster ours is, for times."""
    ratio = None if peer is None or not ours else peer / ours
    return {"case": case, "ours": ours, "peer": peer, "unit": unit, "ratio": ratio, **more}


def show(rows: list[dict[str, Any]]) -> None:
    for one in rows:
        peer = "-" if one["peer"] is None else f"{one['peer']:12,.2f}"
        ratio = "-" if one["ratio"] is None else f"{one['ratio']:7.2f}"
        target = one.get("target")
        said = "" if target is None else f"  target {target}" + ("" if one["met"] else ", missed")
        print(
            f"  {one['case']:44s} {one['ours']:12,.2f} {peer:>12s} {one['unit']:8s} {ratio:>7s}"
            f"  {one.get('peer_name', '')}{said}",
            flush=True,
        )


def judged(one: dict[str, Any], target: float) -> dict[str, Any]:
    """With a target for its ratio."""
    return {**one, "target": target, "met": one["ratio"] is not None and one["ratio"] >= target}


def engine(only: str) -> list[dict[str, Any]]:
    """What bench_graph measures."""
    command = [str(BIN / "bench_graph"), "--only", only]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def chain(rounds: int, has_torch: bool) -> list[dict[str, Any]]:
    ours: dict[str, list[float]] = {}
    peers: dict[str, list[float]] = {}
    script = HERE / "peers" / "torch_chain.py"
    for _ in range(rounds):
        for line in engine("chain"):
            ours.setdefault(line["case"], []).append(line["seconds"] / line["ops"] * 1e9)
        if has_torch:
            command = [sys.executable, str(script)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
            for text in done.stdout.splitlines():
                line = json.loads(text) if text.startswith("{") else {}
                if "seconds" in line:
                    peers.setdefault(line["case"], []).append(line["seconds"] / line["ops"] * 1e9)
                elif "error" in line:
                    print(f"    pytorch {line['case']}: {line['error']}")
    out = []
    untraced = statistics.median(ours["chain"])
    for case in [case for case in ours if "trace" in case]:
        traced = statistics.median(ours.pop(case))
        out.append(row(case, traced, untraced, "ns/op", peer_name="ours, never traced"))
    for case, times in ours.items():
        mine = statistics.median(times)
        if not peers:
            out.append(row(case, mine, None, "ns/op"))
        for name, others in peers.items():
            one = row(case, mine, statistics.median(others), "ns/op", peer_name=f"pytorch {name}")
            out.append(judged(one, 10) if (case, name) == ("chain", "eager") else one)
    limit = row("chain, against the limit of 60 ns", untraced, 60.0, "ns/op")
    out.append(judged(limit, 1))
    return out


def start(case: str, threads: int, kinds: Sequence[str]) -> list[Side]:
    given = ["--threads", str(threads)]
    peer = HERE / "peers" / "torch_graph.py"
    made = []
    for kind in kinds:
        script = HERE / "graph" / "sidereal_side.py" if kind.startswith("ours") else peer
        more = ["--compile"] if kind.startswith("compile") else []
        more += ["--bfloat16"] if kind.endswith("bfloat16") else []
        side = Side(kind, script, case, [*given, *more])
        if side.error:
            print(f"    {case}, {threads} threads, {kind}: {side.error}", flush=True)
            side.close()
            continue
        made.append(side)
    return made


def measure(
    case: str, threads: int, kinds: Sequence[str], rounds: int, apart_max: float
) -> dict[str, float]:
    """Milliseconds of a step by kind of side; kinds that do not run are left out."""
    sides = start(case, threads, kinds)
    if not sides:
        return {}
    try:
        first = sides[0].losses
        for side in sides[1:]:
            apart = max(abs(a - b) / max(abs(a), 1e-9) for a, b in zip(first, side.losses))
            if apart > apart_max:
                raise RuntimeError(
                    f"{case}: losses of {side.name} {side.losses}, of {sides[0].name} {first}"
                )
        for side in sides:
            side.run(1)
            # A window of about a second.
            side.steps = max(2, min(100, round(1.0 / side.times[-1])))
            side.times.clear()
        for _ in range(rounds):
            for side in sides:
                side.run(side.steps)
    finally:
        for side in sides:
            side.close()
    return {side.name: side.seconds * 1e3 for side in sides}


def model(case: str, threads: int, kinds: Sequence[str], rounds: int) -> list[dict[str, Any]]:
    named = measure(case, threads, kinds, rounds, LOSSES_APART)
    targets = {"eager": 1.7, "compile": 1.2}
    name = f"{case} step, {threads} thread{'s' if threads > 1 else ''}"
    peers = [kind for kind in ("eager", "compile") if kind in named]
    if "ours" not in named:
        return []
    if not peers:
        return [row(name, named["ours"], None, "ms")]
    return [
        judged(row(name, named["ours"], named[k], "ms", peer_name=f"pytorch {k}"), targets[k])
        for k in peers
    ]


def mixed(case: str, peers: Sequence[str], rounds: int) -> list[dict[str, Any]]:
    """bfloat16 beside float32 and beside autocast."""
    kinds = ["ours", "ours bfloat16", *(f"{peer} bfloat16" for peer in peers)]
    named = measure(case, 1, kinds, rounds, LOSSES_APART_BFLOAT16)
    mine = named.pop("ours bfloat16", None)
    if mine is None:
        return []
    names = {"ours": "ours float32", "eager bfloat16": "pytorch autocast",
             "compile bfloat16": "pytorch compile autocast"}  # fmt: skip
    return [
        judged(row(f"{case} step, bfloat16", mine, ms, "ms", peer_name=names[k]), MIXED_TARGETS[k])
        for k, ms in named.items()
    ]


def products() -> list[dict[str, Any]]:
    out = []
    for line in engine("products"):
        raw = min(line["primitive"], line["sgemm"])
        kind = "layer" if line["layer"] else "product"
        name = f"{kind} {line['m']} x {line['k']} x {line['n']}"
        name += f", {line['transposed']} transposed" if line["transposed"] else ""
        gflops = line["flops"] / line["ours"] / 1e9
        one = row(name, line["ours"] * 1e3, raw * 1e3, "ms", peer_name="oneDNN", gflops=gflops)
        out.append(judged(one, 0.9))
    return out


def allocations(models: Sequence[str]) -> list[dict[str, Any]]:
    counter = BIN / "libcount_allocations.so"
    if not counter.exists():
        print("    allocations: skipped: libcount_allocations.so is not built")
        return []
    out = []
    before = os.environ.get("LD_PRELOAD")
    os.environ["LD_PRELOAD"] = str(counter)
    try:
        for case in models:
            script = HERE / "graph" / "sidereal_side.py"
            side = Side("ours", script, case, ["--threads", "1"])
            if side.error:
                print(f"    {case}: {side.error}")
                continue
            side.run(10)
            answer = side.run(20)
            side.close()
            for caller, count in answer["allocations"].items():
                one = row(f"{case} step, {caller}", count / 20, None, "mallocs")
                judge = {} if caller == "oneDNN" else {"target": 0, "met": count == 0}
                out.append({**one, **judge})
    finally:
        os.environ.pop("LD_PRELOAD")
        if before is not None:
            os.environ["LD_PRELOAD"] = before
    return out


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--only", nargs="+", choices=(*PARTS, *MODELS), default=list(PARTS))
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-compile", action="store_true", help="leave out torch.compile")
    parser.add_argument(
        "--processor-time",
        action="store_true",
        help="compare what steps take of the processor: on one thread, on a machine that is busy",
    )
    arguments = parser.parse_args()
    if arguments.processor_time:
        Side.clock = "processor_seconds"
        arguments.threads = [1]
    has_torch = True
    try:
        import torch

        version = torch.__version__
    except ImportError:
        has_torch, version = False, "not installed (./dev setup --peers)"
    started = time.perf_counter()
    models = [name for name in MODELS if name in arguments.only or "models" in arguments.only]
    wanted = set(arguments.only)
    print(f"PyTorch {version}; {os.cpu_count()} processors; load {os.getloadavg()[0]:.1f}")
    print(f"  {'case':44s} {'ours':>12s} {'peer':>12s} {'unit':8s} {'ratio':>7s}")
    rows: list[dict[str, Any]] = []

    def add(found: list[dict[str, Any]]) -> None:
        rows.extend(found)
        show(found)

    if "chain" in wanted:
        add(chain(max(1, arguments.rounds // 2), has_torch))
    peers = ["eager", *([] if arguments.no_compile else ["compile"])] if has_torch else []
    for case in models:
        for threads in arguments.threads:
            add(model(case, threads, ["ours", *peers], arguments.rounds))
    if "mixed" in wanted:
        chosen = [name for name in MIXED if name in models] or MIXED
        for case in chosen:
            add(mixed(case, peers, arguments.rounds))
    if "products" in wanted:
        add(products())
    if "allocations" in wanted:
        add(allocations(models or MODELS))
    missed = [one for one in rows if one.get("met") is False]
    print(
        f"medians; ratio: how much faster ours is; {len(missed)} of "
        f"{sum('met' in one for one in rows)} targets missed; {time.perf_counter() - started:.0f} s"
    )
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
