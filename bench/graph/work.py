"""The models that bench graph trains: sizes, first weights and batches, the same for every side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

#: Distinct batches, used in turn.
BATCHES = 8

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Layers:
    """A tower: widths from the input on, every layer but the last with `activation`."""

    name: str
    widths: tuple[int, ...]
    activation: str = "relu"


@dataclass(frozen=True)
class Table:
    """An embedding: `rows` of `dim`."""

    name: str
    rows: int
    dim: int


@dataclass(frozen=True)
class Model:
    """What a training step is made of. `optimizer` updates towers, and touched rows of tables."""

    name: str
    text: str
    optimizer: str
    rate: float
    towers: tuple[Layers, ...]
    tables: tuple[Table, ...] = ()

    def weights(self) -> Arrays:
        """First weights by name: TABLE, and TOWER/w0, TOWER/b0, ... with w of [inputs, outputs]."""
        random = np.random.default_rng(11)
        out: Arrays = {}
        for table in self.tables:
            shape = (table.rows, table.dim)
            out[table.name] = random.random(shape, dtype=np.float32) * 0.02 - 0.01
        for tower in self.towers:
            for i, (fan_in, fan_out) in enumerate(zip(tower.widths, tower.widths[1:])):
                scale = np.float32(np.sqrt(2.0 / fan_in))
                w = random.standard_normal((fan_in, fan_out), dtype=np.float32) * scale
                out[f"{tower.name}/w{i}"] = w
                out[f"{tower.name}/b{i}"] = np.zeros(fan_out, np.float32)
        return out


DLRM_TABLES, DLRM_ROWS, DLRM_DIM, DLRM_DENSE = 26, 40_000, 64, 13
DLRM_PAIRS = (DLRM_TABLES + 1) * DLRM_TABLES // 2
DEEPFM_FIELDS, DEEPFM_ROWS, DEEPFM_DIM = 39, 25_000, 16
DIN_HISTORY, DIN_ITEMS, DIN_KINDS, DIN_DIM = 50, 100_000, 1_000, 32
MLP_IN = 512

MODELS = {
    model.name: model
    for model in (
        Model(
            "mlp",
            f"{MLP_IN}-1024-512-256-1, Adam",
            "adam",
            0.001,
            (Layers("deep", (MLP_IN, 1024, 512, 256, 1)),),
        ),
        Model(
            "deepfm",
            f"{DEEPFM_FIELDS} fields x {DEEPFM_ROWS} ids x {DEEPFM_DIM}, 400-400-400-1, Adagrad",
            "adagrad",
            0.01,
            (Layers("deep", (DEEPFM_FIELDS * DEEPFM_DIM, 400, 400, 400, 1)),),
            (
                Table("embedding", DEEPFM_FIELDS * DEEPFM_ROWS, DEEPFM_DIM),
                Table("linear", DEEPFM_FIELDS * DEEPFM_ROWS, 1),
            ),
        ),
        Model(
            "dlrm",
            f"13 dense, {DLRM_TABLES} tables x {DLRM_ROWS} ids x {DLRM_DIM}, bottom 512-256-64,"
            " pairwise products, top 512-256-1, SGD",
            "sgd",
            0.05,
            (
                Layers("bottom", (DLRM_DENSE, 512, 256, DLRM_DIM)),
                Layers("top", (DLRM_DIM + DLRM_PAIRS, 512, 256, 1)),
            ),
            tuple(Table(f"table{i}", DLRM_ROWS, DLRM_DIM) for i in range(DLRM_TABLES)),
        ),
        Model(
            "din",
            f"history {DIN_HISTORY}, item and kind x {DIN_DIM}, attention 80-40-1, top 200-80-1,"
            " Adam",
            "adam",
            0.001,
            (
                Layers("attention", (8 * DIN_DIM, 80, 40, 1), "sigmoid"),
                Layers("top", (6 * DIN_DIM, 200, 80, 1)),
            ),
            (Table("item", DIN_ITEMS, DIN_DIM), Table("kind", DIN_KINDS, DIN_DIM)),
        ),
    )
}


def _ids(random: Any, rows: int, shape: tuple[int, ...]) -> np.ndarray:
    """Skewed ids: the smaller, the more frequent."""
    return (rows * random.random(shape) ** 3).astype(np.int64)


def batches(model: str, size: int) -> list[list[np.ndarray]]:
    """The inputs of each step; the last one is the labels, float32 of [size, 1]."""
    random = np.random.default_rng(23)
    out = []
    for _ in range(BATCHES):
        labels = random.integers(0, 2, (size, 1)).astype(np.float32)
        if model == "mlp":
            inputs = [random.standard_normal((size, MLP_IN), dtype=np.float32)]
        elif model == "deepfm":
            fields = np.arange(DEEPFM_FIELDS, dtype=np.int64) * DEEPFM_ROWS
            inputs = [_ids(random, DEEPFM_ROWS, (size, DEEPFM_FIELDS)) + fields]
        elif model == "dlrm":
            dense = random.standard_normal((size, DLRM_DENSE), dtype=np.float32)
            inputs = [dense, _ids(random, DLRM_ROWS, (DLRM_TABLES, size))]
        else:
            lengths = random.integers(1, DIN_HISTORY + 1, (size, 1))
            mask = (np.arange(DIN_HISTORY) < lengths).astype(np.float32)
            inputs = [
                _ids(random, DIN_ITEMS, (size,)),
                _ids(random, DIN_KINDS, (size,)),
                _ids(random, DIN_ITEMS, (size, DIN_HISTORY)),
                _ids(random, DIN_KINDS, (size, DIN_HISTORY)),
                mask,
            ]
        out.append([*inputs, labels])
    return out


def pairs() -> tuple[np.ndarray, np.ndarray]:
    """Row and column of every product of two different vectors in DLRM."""
    rows, columns = np.tril_indices(DLRM_TABLES + 1, -1)
    return rows.astype(np.int64), columns.astype(np.int64)
