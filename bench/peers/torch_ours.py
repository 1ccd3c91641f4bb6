#!/usr/bin/env python3
"""DeepFM and DLRM of torch_models.py with tables of sidereal.torch on a parameter server.

Arguments: MODEL ROWS BATCH RANK PS DEPTH CORE. DEPTH: batches pulled ahead. For each line SECONDS
of standard input it prints one line of JSON; for the line "check", how far gradients and rows are
from those of tables in this process.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch_models import DIM, FIELDS, RATE, Batch, LocalTables, Training, batches

import sidereal.torch as st


def features_of(batch: Batch) -> Any:
    lengths = torch.ones(batch.ids.numel(), dtype=torch.int64)
    names = [f"f{i}" for i in range(FIELDS)]
    return st.KeyedJaggedTensor(names, batch.ids.reshape(-1), lengths=lengths)


def collection_of(rows: int, ps: str, name: str | None, optimizer: Any) -> Any:
    return st.EmbeddingBagCollection(
        [
            st.EmbeddingBagConfig(rows, DIM, f"t{i}", [f"f{i}"], 0.01, -0.01)
            for i in range(FIELDS)
        ],
        cluster={"ps": [ps]}, optimizer=optimizer, name=name,
    )  # fmt: skip


def forever(made: list[Batch], collection: Any, depth: int) -> Iterator[tuple[Any, Batch]]:
    # A KeyedJaggedTensor for each step, as a loader makes them.
    pairs = ((features_of(one), one) for one in itertools.cycle(made))
    yield from st.prefetch(pairs, collection, depth)


def look_up(collection: Any) -> Any:
    return lambda given: collection(given).values().view(-1, FIELDS, DIM)


def check(model: str, rows: int, ps: str) -> dict[str, float]:
    """The largest difference of gradients in 3 steps: of the dense part, and of rows, by which SGD
    with the rate 1 has changed them."""
    collection = collection_of(rows, ps, None, st.optim.SGD(1.0))
    local = LocalTables(rows)
    local.optimizer = torch.optim.SGD(local.bag.parameters(), 1.0)
    for i in range(FIELDS):
        collection.write_rows(f"t{i}", local.bag.weight[i * rows : (i + 1) * rows])
    sides = [
        Training(model, local.look_up, local.update),
        Training(model, look_up(collection), lambda: None),
    ]
    apart = 0.0
    for batch in batches(rows, 256, 9, 3):
        sides[0].step(batch, batch)
        sides[1].step(features_of(batch), batch)
        for one, other in zip(*(side.model.parameters() for side in sides)):
            apart = max(apart, float((one.grad - other.grad).abs().max()))
    found = torch.cat([collection.read_rows(f"t{i}") for i in range(FIELDS)])
    difference = float((found - local.bag.weight.detach()).abs().max())
    collection.close()
    return {"gradients": apart, "rows": difference}


def main() -> None:
    model = sys.argv[1]
    rows, batch, rank = (int(word) for word in sys.argv[2:5])
    ps, depth, core = sys.argv[5], int(sys.argv[6]), int(sys.argv[7])
    os.sched_setaffinity(0, {core})
    torch.set_num_threads(1)
    collection = collection_of(rows, ps, "bench", st.optim.Adagrad(RATE))
    training = Training(model, look_up(collection), lambda: None)
    source = forever(batches(rows, batch, rank), collection, depth)
    print(json.dumps({}), flush=True)
    for line in sys.stdin:
        if line.strip() == "check":
            print(json.dumps(check(model, min(rows, 1000), ps)), flush=True)
        else:
            found = training.window(source, float(line))
            collection.flush()
            print(json.dumps(found), flush=True)
    collection.close()


if __name__ == "__main__":
    main()
