#!/usr/bin/env python3
"""The first losses of a model in PyTorch, float32, from given weights and batches.

    torch_reference.py INPUT.npz --model deepfm --optimizer adagrad --learning-rate 0.01

prints {"model": .., "optimizer": .., "losses": [one per step]} on one line. `--out FILE` writes it
there too, `--out-weights FILE.npz` the weights after the last step, named as in the input.
A loss is the mean binary cross entropy of a batch before the update of that step.

Arrays of INPUT.npz, for S steps of B rows with F categorical fields, embeddings of width K and D
numeric features; x is the concatenation of the numeric features, first, and of the F embeddings:

    ids                 int [S, B, F]     row of each field's table
    labels              [S, B]            0 or 1
    dense               [S, B, D]         optional: numeric features
    embedding           [rows, K]         one table for all fields; or one per field, embedding_0 ..
    linear              [rows] or [rows, 1]  weight of each id; or one per field, linear_0 ..
    bias                [1]               of the logit
    linear_dense        [D] or [D, 1]     weights of the numeric features in the linear part
    hidden_I_weight     [in, out]         tower layer I = 0, 1, ..; ReLU after each
    hidden_I_bias       [out]
    output_weight       [in] or [in, 1]   last layer: of the tower, for dcn of concat(cross, tower)
    output_bias         [1]               optional
    cross_I_weight      [D + F K]         dcn
    cross_I_bias        [D + F K]

Models (logit):
    lr      bias + sum of linear + dense . linear_dense
    fm      lr + sum over pairs of fields of the dot product of their embeddings
    wdl     lr + tower(x)
    deepfm  fm + tower(x)
    dcn     concat(cross(x), hidden(x)) . output_weight + output_bias, with
            x_{I+1} = x_0 (x_I . cross_I_weight) + cross_I_bias + x_I; no linear part
`bias`, `linear` and `linear_dense` count as zero where they are absent.

Optimizers, for one element with gradient g at step t = 1, 2, ..:
    sgd       w -= lr g                                               torch.optim.SGD
    momentum  m = mu m + g; w -= lr m                                 torch.optim.SGD(momentum=mu)
    adagrad   a += g^2; w -= lr g / (sqrt(a) + eps)                   torch.optim.Adagrad
    adam      w -= lr m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps)   torch.optim.Adam
    ftrl      n' = n + g^2; z += g - (sqrt(n') - sqrt(n)) / lr w;
              w = 0 if |z| <= l1, else (sign(z) l1 - z) / (sqrt(n') / lr + 2 l2), from z = 0
Rows of tables change only in steps that touch them, after the gradients of equal ids are added;
dense weights change in every step.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

MODELS = ("lr", "fm", "wdl", "deepfm", "dcn")
OPTIMIZERS = ("sgd", "momentum", "adagrad", "adam", "ftrl")
TABLE_PREFIXES = ("embedding", "linear")
BATCH_ARRAYS = ("ids", "labels", "dense")

Weights = dict[str, Tensor]


def is_table(name: str) -> bool:
    """embedding, embedding_3, linear, linear_0; not linear_dense."""
    prefix, _, suffix = name.partition("_")
    return prefix in TABLE_PREFIXES and (suffix == "" or suffix.isdigit())


def count_layers(weights: Weights, prefix: str) -> int:
    count = 0
    while f"{prefix}_{count}_weight" in weights:
        count += 1
    return count


def require(condition: bool, message: str) -> None:
    if not condition:
        raise SystemExit(f"torch_reference: {message}")


def look_up(weights: Weights, prefix: str, ids: Tensor) -> Tensor:
    """ids [B, F] -> [B, F, width], from one shared table or from one per field."""
    if prefix in weights:
        table = weights[prefix]
        rows = torch.nn.functional.embedding(ids, table.reshape(len(table), -1))
    else:
        fields = ids.shape[1]
        missing = [f"{prefix}_{i}" for i in range(fields) if f"{prefix}_{i}" not in weights]
        require(not missing, f"the input has neither {prefix} nor {', '.join(missing)}")
        tables = [weights[f"{prefix}_{i}"] for i in range(fields)]
        columns = [
            torch.nn.functional.embedding(ids[:, i], table.reshape(len(table), -1))
            for i, table in enumerate(tables)
        ]
        rows = torch.stack(columns, 1)
    return rows


def linear_part(weights: Weights, ids: Tensor, dense: Tensor | None) -> Tensor:
    logit = torch.zeros(len(ids))
    if "linear" in weights or "linear_0" in weights:
        logit = logit + look_up(weights, "linear", ids).sum((1, 2))
    if dense is not None and "linear_dense" in weights:
        logit = logit + dense @ weights["linear_dense"].reshape(-1)
    if "bias" in weights:
        logit = logit + weights["bias"].reshape(())
    return logit


def hidden_part(weights: Weights, x: Tensor) -> Tensor:
    for i in range(count_layers(weights, "hidden")):
        x = torch.relu(x @ weights[f"hidden_{i}_weight"] + weights[f"hidden_{i}_bias"].reshape(-1))
    return x


def cross_part(weights: Weights, x0: Tensor) -> Tensor:
    x = x0
    for i in range(count_layers(weights, "cross")):
        scale = x @ weights[f"cross_{i}_weight"].reshape(-1, 1)
        x = x0 * scale + weights[f"cross_{i}_bias"].reshape(-1) + x
    return x


def output_part(weights: Weights, x: Tensor) -> Tensor:
    logit = x @ weights["output_weight"].reshape(-1)
    return logit + weights["output_bias"].reshape(()) if "output_bias" in weights else logit


def logits_of(
    model: str, weights: Weights, ids: Tensor, dense: Tensor | None
) -> Tensor:
    """[B] logits of one batch: ids [B, F], dense [B, D] or None."""
    if model == "lr":
        return linear_part(weights, ids, dense)
    embeddings = look_up(weights, "embedding", ids)
    x = embeddings.flatten(1)
    if dense is not None:
        x = torch.cat([dense, x], 1)
    if model == "dcn":
        return output_part(
            weights, torch.cat([cross_part(weights, x), hidden_part(weights, x)], 1)
        )
    logit = linear_part(weights, ids, dense)
    if model in ("fm", "deepfm"):
        total = embeddings.sum(1)
        logit = logit + 0.5 * (total.square().sum(1) - embeddings.square().sum((1, 2)))
    if model in ("wdl", "deepfm"):
        logit = logit + output_part(weights, hidden_part(weights, x))
    return logit


def touched_rows(weights: Weights, ids: Tensor) -> dict[str, Tensor]:
    """The distinct rows of every table that a batch [B, F] reads."""
    rows = {}
    for prefix in TABLE_PREFIXES:
        rows[prefix] = torch.unique(ids)
        for i in range(ids.shape[1]):
            rows[f"{prefix}_{i}"] = torch.unique(ids[:, i])
    return {name: index for name, index in rows.items() if name in weights}


class LazyOptimizer:
    """Momentum, Adam and FTRL on the touched rows only, which torch.optim does not offer with these
    formulas. `rows` None updates the whole array."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.slots: dict[str, list[Tensor]] = {}

    def update(self, name: str, weight: Tensor, rows: Tensor | None, step: int) -> None:
        index = slice(None) if rows is None else rows
        if name not in self.slots:
            start = self.options.initial_accumulator if self.options.optimizer == "ftrl" else 0.0
            self.slots[name] = [torch.zeros_like(weight), torch.full_like(weight, start)]
        first, second = self.slots[name]
        rule = {"momentum": self._momentum, "adam": self._adam, "ftrl": self._ftrl}
        weight[index], first[index], second[index] = rule[self.options.optimizer](
            weight[index], weight.grad[index], first[index], second[index], step
        )

    def _momentum(
        self, w: Tensor, g: Tensor, m: Tensor, unused: Tensor, step: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        m = self.options.momentum * m + g
        return w - self.options.learning_rate * m, m, unused

    def _adam(
        self, w: Tensor, g: Tensor, m: Tensor, v: Tensor, step: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        o = self.options
        m = o.beta1 * m + (1 - o.beta1) * g
        v = o.beta2 * v + (1 - o.beta2) * g * g
        root = v.sqrt() / (1 - o.beta2**step) ** 0.5 + o.epsilon
        return w - o.learning_rate / (1 - o.beta1**step) * m / root, m, v

    def _ftrl(
        self, w: Tensor, g: Tensor, z: Tensor, n: Tensor, step: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        o = self.options
        new_n = n + g * g
        z = z + g - (new_n.sqrt() - n.sqrt()) / o.learning_rate * w
        shrunk = (z.sign() * o.l1 - z) / (new_n.sqrt() / o.learning_rate + 2 * o.l2)
        return torch.where(z.abs() > o.l1, shrunk, torch.zeros_like(z)), z, new_n


def make_torch_optimizer(
    options: argparse.Namespace, weights: Weights
) -> tuple[torch.optim.Optimizer | None, set[str]]:
    """torch.optim where it does what the table above says, and the names left to LazyOptimizer.

    SGD and Adagrad leave rows with zero gradient alone, so they serve tables as well."""
    tables = {name for name in weights if is_table(name)}
    dense = [weight for name, weight in weights.items() if name not in tables]
    rate = options.learning_rate
    if options.optimizer == "sgd":
        return torch.optim.SGD(list(weights.values()), lr=rate), set()
    if options.optimizer == "adagrad":
        return (
            torch.optim.Adagrad(
                list(weights.values()),
                lr=rate,
                initial_accumulator_value=options.initial_accumulator,
                eps=options.epsilon,
            ),
            set(),
        )
    if options.optimizer == "ftrl" or not dense:
        return None, set(weights)
    if options.optimizer == "momentum":
        return torch.optim.SGD(dense, lr=rate, momentum=options.momentum), tables
    betas = (options.beta1, options.beta2)
    return torch.optim.Adam(dense, lr=rate, betas=betas, eps=options.epsilon), tables


def used_by(model: str) -> Callable[[str], bool]:
    """Whether a weight of the input belongs to the model."""
    prefixes = {
        "lr": ("linear", "bias"),
        "fm": ("linear", "bias", "embedding"),
        "wdl": ("linear", "bias", "embedding", "hidden_", "output_"),
        "deepfm": ("linear", "bias", "embedding", "hidden_", "output_"),
        "dcn": ("embedding", "hidden_", "output_", "cross_"),
    }[model]
    return lambda name: name.startswith(prefixes)


def train(
    options: argparse.Namespace, arrays: dict[str, np.ndarray]
) -> tuple[list[float], Weights]:
    """Losses of the steps and the weights after them."""
    require("ids" in arrays and "labels" in arrays, "the input lacks ids or labels")
    ids = torch.from_numpy(arrays["ids"].astype(np.int64))
    labels = torch.from_numpy(arrays["labels"].astype(np.float32)).reshape(ids.shape[:2])
    dense = torch.from_numpy(arrays["dense"].astype(np.float32)) if "dense" in arrays else None
    used = used_by(options.model)
    weights = {
        name: torch.from_numpy(array.astype(np.float32)).requires_grad_()
        for name, array in arrays.items()
        if name not in BATCH_ARRAYS and used(name)
    }
    require(bool(weights), f"the input has no weights of model {options.model}")
    steps = len(ids) if options.steps is None else options.steps
    require(steps <= len(ids), f"{steps} steps wanted, the input has batches for {len(ids)}")
    optimizer, by_hand = make_torch_optimizer(options, weights)
    lazy = LazyOptimizer(options)
    losses = []
    for step in range(steps):
        for weight in weights.values():
            weight.grad = None
        numeric = None if dense is None else dense[step]
        logits = logits_of(options.model, weights, ids[step], numeric)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels[step])
        loss.backward()
        losses.append(loss.item())
        if optimizer is not None:
            optimizer.step()
        rows = touched_rows(weights, ids[step])
        with torch.no_grad():
            for name in sorted(by_hand):
                if weights[name].grad is not None:
                    lazy.update(name, weights[name], rows.get(name), step + 1)
    return losses, weights


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("input", type=Path)
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--optimizer", choices=OPTIMIZERS, required=True)
    parser.add_argument("--learning-rate", type=float, required=True)
    parser.add_argument("--steps", type=int, help="default: all batches of the input")
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--beta1", type=float, default=0.9)
    parser.add_argument("--beta2", type=float, default=0.999)
    parser.add_argument("--epsilon", type=float, help="default: adagrad 1e-7, adam 1e-8")
    parser.add_argument("--initial-accumulator", type=float, default=0.1)
    parser.add_argument("--l1", type=float, default=0.0, help="ftrl")
    parser.add_argument("--l2", type=float, default=0.0, help="ftrl")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--out-weights", type=Path)
    options = parser.parse_args(arguments)
    if options.epsilon is None:
        options.epsilon = 1e-7 if options.optimizer == "adagrad" else 1e-8
    return options


def main() -> int:
    options = parse_arguments()
    torch.set_num_threads(1)
    require(options.input.is_file(), f"no file {options.input}")
    with np.load(options.input, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    losses, weights = train(options, arrays)
    report = json.dumps(
        {"model": options.model, "optimizer": options.optimizer, "losses": losses}
    )
    print(report)
    if options.out:
        options.out.write_text(report + "\n", encoding="utf-8")
    if options.out_weights:
        final = {name: weight.detach().numpy() for name, weight in weights.items()}
        np.savez(options.out_weights, **final)
    return 0


if __name__ == "__main__":
    sys.exit(main())
