"""Cases of the updates of variables: every optimizer of the table, beside its formula in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from case import Case
from optimizer_formulas import FORMULAS, Reference, lamb_direction

from sidereal import _native

ROWS = {row.name: row for row in _native.optimizer_rows()}
RATE = 0.1


def parameters_of(kind: str) -> dict[str, Any]:
    """The standard values, but for a rate and decays that can be seen."""
    values = {name: value for name, value, *_ in ROWS[kind].parameters}
    return values | {"learning_rate": RATE, "weight_decay": 0.01, "l2_penalty": 0.02}


def attrs_of(kind: str) -> dict[str, Any]:
    flags = {name for name, _, is_flag, *_ in ROWS[kind].parameters if is_flag}
    values = parameters_of(kind)
    del values["learning_rate"]
    return {"kind": kind} | {
        name: bool(value) if name in flags else float(value) for name, value in values.items()
    }


def slots_of(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> list[np.ndarray]:
    slots = [slot for slot in ROWS[kind].slots if not slot[2]]
    shapes = [shape[:1] if is_of_row else shape for *_, is_of_row in slots]
    return [rng.uniform(0.1, 1, shape).astype(np.float32) for shape in shapes]


def names_of(kind: str, shape: tuple[int, ...]) -> list[str]:
    """What the formula calls the slots, in their order."""
    state: dict[str, Any] = {}
    zeros = np.zeros(shape)
    with np.errstate(all="ignore"):
        FORMULAS[kind](zeros, zeros, 1, parameters_of(kind), state, True)
    return list(state)


def before(kind: str, w: Any, slots: Any) -> Reference:
    reference = Reference(kind, parameters_of(kind), w)
    for name, slot in zip(names_of(kind, (2, 2)), slots):
        # A number of a row may be kept for each element of it.
        wide = slot.reshape(-1, *[1] * (w.ndim - 1)) if slot.ndim < w.ndim else slot
        is_of_row = kind == "rowwise_adagrad"
        reference.state[name] = np.array(slot if is_of_row else wide + 0 * w, np.float64)
    return reference


def after(reference: Reference, slots: Any) -> tuple[Any, ...]:
    kept = [reference.state[name] for name in reference.state]
    narrow = [
        value if value.shape == slot.shape else value.reshape(len(value), -1)[:, 0]
        for value, slot in zip(kept, slots)
    ]
    return tuple(value.astype(np.float32) for value in (reference.w, *narrow))


def dense(kind: str, shape: tuple[int, ...], name: str) -> Case:
    def inputs(rng: np.random.Generator) -> list[Any]:
        w, g = (rng.normal(size=shape).astype(np.float32) for _ in range(2))
        return [w, g, np.float64(3), np.float64(RATE), *slots_of(rng, kind, shape)]

    def numpy(w: Any, g: Any, step: Any, rate: Any, *slots: Any) -> Any:
        reference = before(kind, w, slots)
        reference.update(g, int(step))
        return after(reference, slots)

    return Case(inputs, attrs_of(kind), numpy, dtypes=[], name=f"{kind}_{name}", atol=1e-5)


def norms(kind: str, shape: tuple[int, ...]) -> Case:
    def inputs(rng: np.random.Generator) -> list[Any]:
        w, g = (rng.normal(size=shape).astype(np.float32) for _ in range(2))
        return [w, g, np.float64(3), np.float64(RATE), *slots_of(rng, kind, shape)]

    def numpy(w: Any, g: Any, step: Any, rate: Any, *slots: Any) -> Any:
        reference = before(kind, w, slots)
        p, w = reference.p, reference.w
        measured = g + p["l2_penalty"] * w
        if kind == "lamb":
            measured = lamb_direction(w, measured, int(step), p, reference.state)
        used = kind in ("lamb", "lars")
        return np.array([(w**2).sum(), (measured**2).sum()]) * used

    return Case(inputs, attrs_of(kind), numpy, dtypes=[], name=kind, rtol=1e-5)


def rows(kind: str, indices: Any, name: str, dim: int = 8, dtype: str = "int64") -> Case:
    index = np.asarray(indices, dtype)

    def inputs(rng: np.random.Generator) -> list[Any]:
        w = rng.normal(size=(20, dim)).astype(np.float32)
        values = rng.normal(size=(index.size, dim)).astype(np.float32)
        return [w, index, values, np.float64(3), np.float64(RATE),
                *slots_of(rng, kind, (20, dim))]  # fmt: skip

    def numpy(w: Any, index: Any, values: Any, step: Any, rate: Any, *slots: Any) -> Any:
        reference = before(kind, w, slots)
        if index.size:
            reference.update_rows(index.reshape(-1), values, int(step))
        return after(reference, slots)

    return Case(inputs, attrs_of(kind), numpy, dtypes=[], name=f"{kind}_{name}", atol=1e-5)


CASES = {
    "UpdateDense": [
        *(dense(kind, (5, 7), "matrix") for kind in ROWS),
        dense("adam", (), "scalar"),
        dense("adagrad", (0, 3), "empty"),
    ],
    "UpdateNorms": [norms(kind, (5, 7)) for kind in ("lamb", "lars", "adam")],
    "UpdateRows": [
        *(rows(kind, [3, 1, 3, 19, 0, 1, 3], "repeated") for kind in ROWS),
        rows("adam", [4, 2, 9], "distinct", dim=5),
        rows("sgd", [7, 7], "int32", dtype="int32"),
        rows("adagrad", np.zeros((0,)), "none"),
        rows("sgd", [1, 2, 1], "one_wide", dim=1),
    ],
}
