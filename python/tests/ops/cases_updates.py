"""Cases of the updates of variables: the formulas of optimizers, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from case import Case

#: Attributes by kind, and how many slots it has.
RULES: dict[str, tuple[dict[str, Any], int]] = {
    "sgd": ({"learning_rate": 0.1, "weight_decay": 0.01}, 0),
    "momentum": ({"learning_rate": 0.1, "momentum": 0.9}, 1),
    "adagrad": ({"learning_rate": 0.1, "epsilon": 1e-7}, 1),
    "adam": ({"learning_rate": 0.1, "beta1": 0.9, "beta2": 0.99, "epsilon": 1e-8}, 2),
    "ftrl": ({"learning_rate": 0.1, "l1": 0.1, "l2": 0.2}, 2),
}


def changed(kind: str, w: Any, g: Any, step: Any, slots: list[Any]) -> list[Any]:
    """[weights, slots...] after one update."""
    attrs = RULES[kind][0]
    rate = attrs["learning_rate"]
    g = g + attrs.get("weight_decay", 0.0) * w
    if kind == "sgd":
        return [w - rate * g]
    if kind == "momentum":
        m = attrs["momentum"] * slots[0] + g
        return [w - rate * m, m]
    if kind == "adagrad":
        total = slots[0] + g * g
        return [w - rate * g / (np.sqrt(total) + attrs["epsilon"]), total]
    if kind == "adam":
        m = attrs["beta1"] * slots[0] + (1 - attrs["beta1"]) * g
        v = attrs["beta2"] * slots[1] + (1 - attrs["beta2"]) * g * g
        root = np.sqrt(v) / np.sqrt(1 - attrs["beta2"] ** step)
        return [w - rate / (1 - attrs["beta1"] ** step) * m / (root + attrs["epsilon"]), m, v]
    n = slots[0] + g * g
    z = slots[1] + g - (np.sqrt(n) - np.sqrt(slots[0])) / rate * w
    shrunk = (np.sign(z) * attrs["l1"] - z) / (np.sqrt(n) / rate + 2 * attrs["l2"])
    return [np.where(np.abs(z) > attrs["l1"], shrunk, 0.0), n, z]


def slots_of(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> list[np.ndarray]:
    return [rng.uniform(0.1, 1, shape).astype(np.float32) for _ in range(RULES[kind][1])]


def dense(kind: str, shape: tuple[int, ...], name: str) -> Case:
    def inputs(rng: np.random.Generator) -> list[Any]:
        w, g = (rng.normal(size=shape).astype(np.float32) for _ in range(2))
        return [w, g, np.float64(3), *slots_of(rng, kind, shape)]

    def numpy(w: Any, g: Any, step: Any, *slots: Any) -> Any:
        return tuple(changed(kind, w, g, step, list(slots)))

    attrs = {"kind": kind, **RULES[kind][0]}
    return Case(inputs, attrs, numpy, dtypes=[], name=f"{kind}_{name}", atol=1e-6)


def rows(kind: str, indices: Any, name: str, dim: int = 8, dtype: str = "int64") -> Case:
    index = np.asarray(indices, dtype)

    def inputs(rng: np.random.Generator) -> list[Any]:
        w = rng.normal(size=(20, dim)).astype(np.float32)
        values = rng.normal(size=(index.size, dim)).astype(np.float32)
        return [w, index, values, np.float64(3), *slots_of(rng, kind, (20, dim))]

    def numpy(w: Any, index: Any, values: Any, step: Any, *slots: Any) -> Any:
        total = np.zeros_like(w)
        np.add.at(total, index.reshape(-1), values)
        touched = np.unique(index)
        new = changed(kind, w, total, step, list(slots))
        out = [before.copy() for before in (w, *slots)]
        for before, after in zip(out, new):
            before[touched] = after[touched]
        return tuple(out)

    attrs = {"kind": kind, **RULES[kind][0]}
    return Case(inputs, attrs, numpy, dtypes=[], name=f"{kind}_{name}", atol=1e-6)


CASES = {
    "UpdateDense": [
        *(dense(kind, (5, 7), "matrix") for kind in RULES),
        dense("adam", (), "scalar"),
        dense("adagrad", (0, 3), "empty"),
    ],
    "UpdateRows": [
        *(rows(kind, [3, 1, 3, 19, 0, 1, 3], "repeated") for kind in RULES),
        rows("adam", [4, 2, 9], "distinct", dim=5),
        rows("sgd", [7, 7], "int32", dtype="int32"),
        rows("adagrad", np.zeros((0,)), "none"),
        rows("sgd", [1, 2, 1], "one_wide", dim=1),
    ],
}
