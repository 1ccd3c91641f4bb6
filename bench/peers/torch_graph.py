"""One training step of a model of bench graph in PyTorch, as its users write it for speed.

Embeddings have sparse gradients; the optimizers of the towers are the fused ones; denormals are
flushed. With --compile, all but the look-ups and the optimizers goes through torch.compile, which
cannot make code for sparse gradients.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "graph"))

import work
from side import arguments, serve


class Towers(nn.Module):
    """What follows the look-ups. forward(rows, inputs): the logits."""

    def __init__(self, model: work.Model, weights: work.Arrays) -> None:
        super().__init__()
        self.model = model.name
        self.towers = nn.ModuleDict()
        for tower in model.towers:
            layers: list[nn.Module] = []
            for i, (fan_in, fan_out) in enumerate(zip(tower.widths, tower.widths[1:])):
                linear = nn.Linear(fan_in, fan_out)
                with torch.no_grad():
                    linear.weight.copy_(torch.from_numpy(weights[f"{tower.name}/w{i}"].T.copy()))
                    linear.bias.copy_(torch.from_numpy(weights[f"{tower.name}/b{i}"]))
                layers.append(linear)
                if i < len(tower.widths) - 2:
                    layers.append(nn.ReLU() if tower.activation == "relu" else nn.Sigmoid())
            self.towers[tower.name] = nn.Sequential(*layers)
        row, column = work.pairs()
        self.register_buffer("row", torch.from_numpy(row))
        self.register_buffer("column", torch.from_numpy(column))

    def forward(self, rows: list[Any], inputs: list[Any]) -> Any:
        return getattr(self, self.model)(rows, inputs)

    def mlp(self, rows: list[Any], inputs: list[Any]) -> Any:
        return self.towers["deep"](inputs[0])

    def deepfm(self, rows: list[Any], inputs: list[Any]) -> Any:
        embedded, linear = rows
        total = embedded.sum(1).square()
        second = 0.5 * (total - embedded.square().sum(1)).sum(1, keepdim=True)
        return linear.sum(1) + second + self.towers["deep"](embedded.flatten(1))

    def dlrm(self, rows: list[Any], inputs: list[Any]) -> Any:
        bottom = torch.relu(self.towers["bottom"](inputs[0]))
        vectors = torch.stack([bottom, *rows], 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        pairs = products[:, self.row, self.column]
        return self.towers["top"](torch.cat([bottom, pairs], 1))

    def din(self, rows: list[Any], inputs: list[Any]) -> Any:
        query, keys = torch.cat(rows[:2], -1), torch.cat(rows[2:], -1)
        spread = query.unsqueeze(1).expand_as(keys)
        features = torch.cat([spread, keys, spread - keys, spread * keys], -1)
        scores = self.towers["attention"](features).squeeze(-1)
        scores = scores.masked_fill(inputs[4] == 0, -1e9).softmax(-1)
        interest = torch.bmm(scores.unsqueeze(1), keys).squeeze(1)
        return self.towers["top"](torch.cat([interest, query, interest * query], 1))


def look_up(model: work.Model, tables: nn.ModuleDict, inputs: list[Any]) -> list[Any]:
    if model.name == "deepfm":
        return [tables["embedding"](inputs[0]), tables["linear"](inputs[0])]
    if model.name == "dlrm":
        return [tables[table.name](ids) for table, ids in zip(model.tables, inputs[1].unbind(0))]
    if model.name == "din":
        item, kind = tables["item"], tables["kind"]
        return [item(inputs[0]), kind(inputs[1]), item(inputs[2]), kind(inputs[3])]
    return []


def optimizers_of(model: work.Model, dense: list[Any], sparse: list[Any]) -> list[Any]:
    optim = torch.optim
    if model.optimizer == "adam":
        made = [optim.Adam(dense, model.rate, fused=True)]
        return made + ([optim.SparseAdam(sparse, model.rate)] if sparse else [])
    if model.optimizer == "adagrad":
        start = {"initial_accumulator_value": 0.1, "eps": 1e-7}
        made = [optim.Adagrad(dense, model.rate, fused=True, **start)]
        return made + ([optim.Adagrad(sparse, model.rate, **start)] if sparse else [])
    made = [optim.SGD(dense, model.rate, fused=True)]
    return made + ([optim.SGD(sparse, model.rate)] if sparse else [])


def main() -> None:
    given = arguments(__doc__)
    torch.set_num_threads(given.threads)
    torch.set_flush_denormal(True)
    model = work.MODELS[given.case]
    weights = model.weights()
    towers = Towers(model, weights)
    tables = nn.ModuleDict(
        {
            table.name: nn.Embedding.from_pretrained(
                torch.from_numpy(weights[table.name]), freeze=False, sparse=True
            )
            for table in model.tables
        }
    )
    optimizers = optimizers_of(model, list(towers.parameters()), list(tables.parameters()))
    cross_entropy = nn.functional.binary_cross_entropy_with_logits

    def loss_of(rows: list[Any], inputs: list[Any], labels: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16, enabled=given.bfloat16):
            logits = towers(rows, inputs)
        return cross_entropy(logits.float(), labels)

    if given.compile:
        loss_of = torch.compile(loss_of)
    data = [[torch.from_numpy(x) for x in batch] for batch in work.batches(model.name, given.batch)]

    def step(i: int) -> Any:
        inputs = data[i % len(data)]
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss = loss_of(look_up(model, tables, inputs), inputs[:-1], inputs[-1])
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        return loss.detach()

    serve(step, float)


if __name__ == "__main__":
    main()
