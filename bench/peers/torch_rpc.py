#!/usr/bin/env python3
"""DeepFM and DLRM of torch_models.py with tables in another process, by torch.distributed.rpc: the
trainer asks for the rows of a batch, each once, and sends their gradients, which the other process
updates them by with Adagrad. Also, without rpc, with tables in the process of the trainer.

Arguments: SIDE (local or rpc) MODEL ROWS BATCH RANK WORLD FILE CORE. The process of rank 0 has the
tables, the others train: for each line SECONDS of standard input they print one line of JSON.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from typing import Any

import torch
from torch import Tensor
from torch.distributed import rpc
from torch_models import DIM, FIELDS, RATE, LocalTables, Training, batches


class Held:
    """The tables, as one matrix with Adagrad's accumulator, in the process that has them."""

    weight = torch.zeros(0)
    sums = torch.zeros(0)


def make(rows: int) -> None:
    Held.weight = torch.empty(FIELDS * rows, DIM).uniform_(-0.01, 0.01)
    Held.sums = torch.zeros(FIELDS * rows, DIM)


def pull(ids: Tensor) -> Tensor:
    return Held.weight.index_select(0, ids)


def push(ids: Tensor, grads: Tensor) -> None:
    """Ids are there once: no sums of equal ones."""
    sums = Held.sums.index_select(0, ids).addcmul_(grads, grads)
    Held.sums.index_copy_(0, ids, sums)
    step = grads.div(sums.sqrt_().add_(1e-10))
    Held.weight.index_add_(0, ids, step, alpha=-RATE)


class RemoteTables:
    """The tables as a trainer sees them: the gradients of a step are not waited for before the
    next pull."""

    def __init__(self, rows: int) -> None:
        self.first = torch.arange(FIELDS)[:, None] * rows
        self.ids = self.rows = torch.zeros(0)
        self.pushed: Any = None

    def look_up(self, batch: Any) -> Tensor:
        self.ids, places = torch.unique((batch.ids + self.first).t(), return_inverse=True)
        if self.pushed is not None:
            self.pushed.wait()
        self.rows = rpc.rpc_sync("tables", pull, (self.ids,)).requires_grad_()
        return self.rows.index_select(0, places.reshape(-1)).view(-1, FIELDS, DIM)

    def update(self) -> None:
        assert self.rows.grad is not None
        self.pushed = rpc.rpc_async("tables", push, (self.ids, self.rows.grad))


def main() -> None:
    side, model = sys.argv[1:3]
    rows, batch, rank, world = (int(word) for word in sys.argv[3:7])
    file, core = sys.argv[7], int(sys.argv[8])
    os.sched_setaffinity(0, {core})
    torch.set_num_threads(1)
    if side == "rpc":
        options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{file}")
        name = "tables" if rank == 0 else f"trainer{rank}"
        rpc.init_rpc(name, rank=rank, world_size=world, rpc_backend_options=options)
        if rank == 0:
            make(rows)
            print(json.dumps({}), flush=True)
            sys.stdin.readline()
            return
    tables = LocalTables(rows) if side == "local" else RemoteTables(rows)
    training = Training(model, tables.look_up, tables.update)
    source = itertools.cycle([(one, one) for one in batches(rows, batch, rank)])
    print(json.dumps({}), flush=True)
    for line in sys.stdin:
        print(json.dumps(training.window(source, float(line))), flush=True)


if __name__ == "__main__":
    main()
    os._exit(0)  # Nobody waits for the others of rpc, which are killed.
