"""DeepFM and DLRM in PyTorch over whatever has their tables, and batches for them: what
bench/torch_tables.py trains. Dense parts are updated by Adagrad, tables by their side.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

#: Features of a row: numbers, and fields with one id each.
DENSE, FIELDS, DIM = 13, 26, 16
RATE = 0.01


def tower(*sizes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class DeepFM(nn.Module):
    """Vectors of DIM - 1 and a linear weight in a row of a table."""

    def __init__(self) -> None:
        super().__init__()
        self.tower = tower(FIELDS * (DIM - 1) + DENSE, 400, 400, 400, 1)

    def forward(self, rows: Tensor, dense: Tensor) -> Tensor:
        vectors, linear = rows[..., :-1], rows[..., -1]
        total = vectors.sum(1)
        fm = 0.5 * (total.square() - vectors.square().sum(1)).sum(1)
        deep = self.tower(torch.cat([vectors.flatten(1), dense], 1))[:, 0]
        return linear.sum(1) + fm + deep


class DLRM(nn.Module):
    """A tower of numbers, products of all pairs of vectors, and a tower of these."""

    def __init__(self) -> None:
        super().__init__()
        self.bottom = tower(DENSE, 512, 256, DIM)
        self.register_buffer("pairs", torch.tril_indices(FIELDS + 1, FIELDS + 1, -1), False)
        self.top = tower(DIM + (FIELDS + 1) * FIELDS // 2, 512, 256, 1)

    def forward(self, rows: Tensor, dense: Tensor) -> Tensor:
        one = self.bottom(dense).relu()
        every = torch.cat([one[:, None], rows], 1)
        products = torch.bmm(every, every.transpose(1, 2))
        pairs: Any = self.pairs
        return self.top(torch.cat([one, products[:, pairs[0], pairs[1]]], 1))[:, 0]


MODELS: dict[str, Callable[[], nn.Module]] = {"DeepFM": DeepFM, "DLRM": DLRM}


class Batch:
    """Ids of FIELDS fields, each of its own table, field after field; numbers and labels."""

    def __init__(self, rows: int, batch: int, pick: torch.Generator) -> None:
        # Low ids come more often, as they do in logs.
        part = torch.rand(FIELDS, batch, generator=pick) ** 3
        self.ids = (part * rows).long()
        self.dense = torch.randn(batch, DENSE, generator=pick)
        self.labels = torch.randint(0, 2, (batch,), generator=pick).float()


def batches(rows: int, batch: int, seed: int, count: int = 32) -> list[Batch]:
    pick = torch.Generator().manual_seed(seed)
    return [Batch(rows, batch, pick) for _ in range(count)]


class Training:
    """A model, and how its rows come and are updated: `look_up` gives [batch, FIELDS, DIM] of a
    batch, whose gradients `update` hands on after backward()."""

    def __init__(
        self, model: str, look_up: Callable[[Any], Tensor], update: Callable[[], None]
    ) -> None:
        torch.manual_seed(3)
        self.model = MODELS[model]()
        self.optimizer = torch.optim.Adagrad(self.model.parameters(), RATE, foreach=True)
        self.look_up, self.update = look_up, update

    def step(self, given: Any, batch: Batch) -> Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        logits = self.model(self.look_up(given), batch.dense)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, batch.labels)
        loss.backward()  # type: ignore[no-untyped-call]
        self.update()
        self.optimizer.step()
        return loss.detach()

    def window(self, source: Iterator[tuple[Any, Batch]], seconds: float) -> dict[str, float]:
        """Steps until so many seconds are over."""
        steps, began, cpu = 0, time.perf_counter(), time.process_time()
        while time.perf_counter() - began < seconds:
            self.step(*next(source))
            steps += 1
        took = time.perf_counter() - began
        return {
            "steps_per_s": steps / took,
            "cpu_ms": 1e3 * (time.process_time() - cpu) / max(steps, 1),
        }


class LocalTables:
    """The tables of all fields in this process, as one EmbeddingBag with sparse gradients."""

    def __init__(self, rows: int, seed: int = 1) -> None:
        pick = torch.Generator().manual_seed(seed)
        self.bag = nn.EmbeddingBag(FIELDS * rows, DIM, mode="sum", sparse=True)
        with torch.no_grad():
            self.bag.weight.uniform_(-0.01, 0.01, generator=pick)
        self.optimizer: Any = torch.optim.Adagrad(self.bag.parameters(), RATE)
        self.first = torch.arange(FIELDS)[:, None] * rows

    def look_up(self, batch: Batch) -> Tensor:
        ids = (batch.ids + self.first).t().reshape(-1)
        self.optimizer.zero_grad(set_to_none=True)
        found: Tensor = self.bag(ids, torch.arange(ids.numel()))
        return found.view(-1, FIELDS, DIM)

    def update(self) -> None:
        self.optimizer.step()
