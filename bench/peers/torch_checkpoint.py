#!/usr/bin/env python3
"""PyTorch's torch.distributed.checkpoint.async_save of a table and its slots, while both change.

Arguments: ROWS DIM BATCH SECONDS FOLDER. Prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp


def resident(key: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise ValueError(key)


def main() -> None:
    rows, dim, batch = (int(word) for word in sys.argv[1:4])
    seconds, folder = float(sys.argv[4]), Path(sys.argv[5])
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{tempfile.mkdtemp()}/store", rank=0, world_size=1
    )
    w = torch.zeros(rows, dim)
    slot = torch.ones(rows, dim)
    gradient = torch.ones(batch, dim)

    def step() -> None:
        ids = torch.randint(0, rows, (batch,))
        slot.index_add_(0, ids, gradient * gradient)
        w.index_add_(0, ids, -gradient / slot[ids].sqrt())

    def train(until: float) -> tuple[int, float]:
        steps, slowest = 0, 0.0
        while (began := time.perf_counter()) < until:
            step()
            steps += 1
            slowest = max(slowest, time.perf_counter() - began)
        return steps, slowest

    train(time.perf_counter() + 1)
    base, slowest = train(time.perf_counter() + seconds)
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    began = time.perf_counter()
    saving = dcp.async_save({"w": w, "slot": slot}, checkpoint_id=str(folder))
    stall = time.perf_counter() - began
    steps, slowest_while = 0, stall
    while not saving.done():
        done, longest = train(time.perf_counter() + 0.01)
        steps += done
        slowest_while = max(slowest_while, longest)
    took = time.perf_counter() - began
    saving.result()
    print(
        json.dumps(
            {
                "steps_per_s": base / seconds,
                "saving_steps_per_s": steps / took,
                "seconds": took,
                "stall_s": stall,
                "slowest_ms": 1e3 * slowest,
                "saving_slowest_ms": 1e3 * slowest_while,
                "extra_bytes": resident("VmHWM") - before,
            }
        )
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
