"""A chain of 1000 additions and multiplications of scalars in PyTorch, op by op and compiled.

Prints one JSON object a line.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

OPS = 1000


def chain(x: Any, a: Any, b: Any) -> Any:
    for _ in range(OPS // 2):
        x = (x + a) * b
    return x


def seconds_of(run: Callable[[], Any]) -> float:
    run()
    begin = time.perf_counter()
    run()
    count = max(1, int(0.05 / (time.perf_counter() - begin)))
    times = []
    for _ in range(9):
        begin = time.perf_counter()
        for _ in range(count):
            run()
        times.append((time.perf_counter() - begin) / count)
    return statistics.median(times)


def main() -> None:
    torch.set_num_threads(1)
    inputs = [torch.tensor(value) for value in (1.0, 0.5, 0.99)]
    with torch.inference_mode():
        seconds = seconds_of(lambda: chain(*inputs))
        print(json.dumps({"case": "eager", "ops": OPS, "seconds": seconds}), flush=True)
        try:
            compiled = torch.compile(chain)
            seconds = seconds_of(lambda: compiled(*inputs))
            print(json.dumps({"case": "compile", "ops": OPS, "seconds": seconds}), flush=True)
        except Exception as error:  # noqa: BLE001 - whatever keeps the compiler from working
            print(json.dumps({"case": "compile", "error": str(error).splitlines()[0]}))


if __name__ == "__main__":
    main()
