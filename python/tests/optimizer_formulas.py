"""The formulas of optimizers, written from their papers and pages in NumPy, one step of float64
each: the reference that the core's table is compared with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray
#: By name: (weights, gradient, step, parameters, what is kept, whether of rows) -> weights.
FORMULAS: dict[str, Callable[..., Array]] = {}


def formula(name: str) -> Callable[[Callable[..., Array]], Callable[..., Array]]:
    def known(function: Callable[..., Array]) -> Callable[..., Array]:
        FORMULAS[name] = function
        return function

    return known


def kept(s: dict[str, Array], name: str, like: Array, start: float = 0.0) -> Array:
    return s.setdefault(name, np.full(like.shape, start))


@formula("sgd")
@formula("momentum")
def momentum(w: Array, g: Array, t: int, p: Any, s: Any, rows: bool) -> Array:
    if p["momentum"] == 0:
        return w - p["learning_rate"] * g
    m = s["m"] = p["momentum"] * kept(s, "m", w) + g
    return w - p["learning_rate"] * (g + p["momentum"] * m if p["nesterov"] else m)


@formula("adagrad")
def adagrad(w: Array, g: Array, t: int, p: Any, s: Any, rows: bool) -> Array:
    a = s["a"] = kept(s, "a", w, p["initial_accumulator_value"]) + g * g
    return w - p["learning_rate"] * g / (np.sqrt(a) + p["epsilon"])


@formula("rowwise_adagrad")
def rowwise_adagrad(w: Array, g: Array, t: int, p: Any, s: Any, rows: bool) -> Array:
    row = w.reshape(len(w), -1)
    start = kept(s, "a", row[:, 0], p["initial_accumulator_value"])
    a = s["a"] = start + (g.reshape(row.shape) ** 2).mean(axis=1)
    scale = 1 / (np.sqrt(a) + p["epsilon"])
    return w - p["learning_rate"] * g * scale.reshape(-1, *[1] * (w.ndim - 1))


@formula("adagrad_decay")
def adagrad_decay(w: Array, g: Array, t: int, p: Any, s: Any, rows: bool) -> Array:
    a = kept(s, "a", w, p["initial_accumulator_value"])
    power = kept(s, "power", w)
    due = (t - 1) // p["accumulator_decay_step"] > power
    less = np.maximum(a * p["accumulator_decay_rate"], p["initial_accumulator_value"])
    s["power"] = power + due
    a = s["a"] = np.where(due, less, a) + g * g
    return w - p["learning_rate"] * g / np.sqrt(a)


@formula("adam")
@formula("adamw")
def adam(w: Array, g: Array, t: int, p: Any, s: Any, rows: bool) -> Array:
    m, v = moments(w, g, p, s)
    if p["amsgrad"]:
        v = s["largest"] = np.maximum(kept(s, "largest", w), v)
    m_hat, v_hat = m / (1 - p["beta_1"] ** t), v / (1 - p["beta_2"] ** t)
    return w - p["learning_rate"] * m_hat / (np.sqrt(v_hat) + p["epsilon"])


def moments(w: Array, g: Array, p: Any, s: Any) -> tuple[Array, Array]:
    s["m"] = p["beta_1"] * kept(s, "m", w) + (1 - p["beta_1"]) * g
    s["v"] = p["beta_2"] * kept(s, "v", w) + (1 - p["beta_2"]) * g**2
    return s["m"], s["v"]


@formula("adam_async")
def adam_async(w: Array, g: Array, t: int, p: Any, s: Any, rows: bool) -> Array:
    if rows and p["apply_sparse_rmsprop"]:
        v = s["v"] = p["beta_2"] * kept(s, "v", w) + (1 - p["beta_2"]) * g**2
        step = p["learning_rate"] * g / np.sqrt(v + p["epsilon"])
        m = s["m"] = p["beta_1"] * kept(s, "m", w) + step
        return w - m
    m, v = moments(w, g, p, s)
    rate = p["learning_rate"] * np.sqrt(1 - p["beta_2"] ** t) / (1 - p["beta_1"] ** t)
    return w - rate * m / (np.sqrt(v) + p["epsilon"])


@formula("adamax")
def adamax(w: Array, g: Array, t: int, p: Any, s: Any, rows: bool) -> Array:
    m = s["m"] = p["beta_1"] * kept(s, "m", w) + (1 - p["beta_1"]) * g
    u = s["u"] = np.maximum(p["beta_2"] * kept(s, "u", w), np.abs(g) + p["epsilon"])
    return w - p["learning_rate"] / (1 - p["beta_1"] ** t) * m / u


@formula("nadam")
def nadam(w: Array, g: Array, t: int, p: Any, s: Any, rows: bool) -> Array:
    def momentum_at(i: int) -> float:
        return p["beta_1"] * (1 - 0.5 * 0.96 ** (i * p["momentum_decay"]))

    m, v = moments(w, g, p, s)
    now = np.prod([momentum_at(i) for i in range(1, t + 1)])
    later = now * momentum_at(t + 1)
    m_hat = momentum_at(t + 1) * m / (1 - later) + (1 - momentum_at(t)) * g / (1 - now)
    v_hat = v / (1 - p["beta_2"] ** t)
    return w - p["learning_rate"] * m_hat / (np.sqrt(v_hat) + p["epsilon"])


@formula("rmsprop")
def rmsprop(w: Array, g: Array, t: int, p: Any, s: Any, rows: bool) -> Array:
    rho = p["rho"]
    a = s["a"] = rho * kept(s, "a", w, p["initial_mean_square"]) + (1 - rho) * g**2
    if p["centered"]:
        b = s["b"] = rho * kept(s, "b", w) + (1 - rho) * g
        a = a - b**2
    u = p["learning_rate"] * g / (np.sqrt(a + p["epsilon_inside"]) + p["epsilon"])
    if p["momentum"]:
        u = s["m"] = p["momentum"] * kept(s, "m", w) + u
    return w - u


@formula("adadelta")
def adadelta(w: Array, g: Array, t: int, p: Any, s: Any, rows: bool) -> Array:
    a = s["a"] = p["rho"] * kept(s, "a", w) + (1 - p["rho"]) * g**2
    u = np.sqrt(kept(s, "d", w) + p["epsilon"]) / np.sqrt(a + p["epsilon"]) * g
    s["d"] = p["rho"] * s["d"] + (1 - p["rho"]) * u**2
    return w - p["learning_rate"] * u


@formula("ftrl")
def ftrl(w: Array, g: Array, t: int, p: Any, s: Any, rows: bool) -> Array:
    rate, power = p["learning_rate"], -p["learning_rate_power"]
    l1, l2 = p["l1_regularization_strength"], p["l2_regularization_strength"]
    n = kept(s, "n", w, p["initial_accumulator_value"])
    more = n + g**2
    shrunk = g + 2 * p["l2_shrinkage_regularization_strength"] * w
    z = s["z"] = kept(s, "z", w) + shrunk - (more**power - n**power) / rate * w
    s["n"] = more
    root = (more**power + p["beta"]) / rate + 2 * l2
    return np.where(np.abs(z) <= l1, 0.0, -(z - np.sign(z) * l1) / root)


def norm(x: Array, rows: bool) -> Any:
    return np.sqrt((x**2).sum(axis=tuple(range(1, x.ndim)), keepdims=True) if rows
                   else (x**2).sum())  # fmt: skip


def lamb_direction(w: Array, g: Array, t: int, p: Any, s: Any) -> Array:
    m, v = moments(w, g, p, s)
    m_hat, v_hat = m / (1 - p["beta_1"] ** t), v / (1 - p["beta_2"] ** t)
    return m_hat / (np.sqrt(v_hat) + p["epsilon"]) + p["weight_decay"] * w


@formula("lamb")
def lamb(w: Array, g: Array, t: int, p: Any, s: Any, rows: bool) -> Array:
    r = lamb_direction(w, g, t, p, s)
    of_w, of_r = norm(w, rows), norm(r, rows)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where((of_w > 0) & (of_r > 0), of_w / of_r, 1.0)
    return w - p["learning_rate"] * ratio * r


@formula("lars")
def lars(w: Array, g: Array, t: int, p: Any, s: Any, rows: bool) -> Array:
    of_w, of_g = norm(w, rows), norm(g, rows)
    below = of_g + p["weight_decay"] * of_w + p["epsilon"]
    with np.errstate(divide="ignore", invalid="ignore"):
        trust = p["trust_coefficient"] * of_w / below
    ratio = np.where((of_w > 0) & (of_g > 0), trust, 1.0)
    step = p["learning_rate"] * ratio * (g + p["weight_decay"] * w)
    m = s["m"] = p["momentum"] * kept(s, "m", w) + step
    return w - m


@formula("lion")
def lion(w: Array, g: Array, t: int, p: Any, s: Any, rows: bool) -> Array:
    m = kept(s, "m", w)
    c = p["beta_1"] * m + (1 - p["beta_1"]) * g
    s["m"] = p["beta_2"] * m + (1 - p["beta_2"]) * g
    return w - p["learning_rate"] * np.sign(c)


class Reference:
    """A variable that is updated by a formula."""

    def __init__(self, kind: str, parameters: dict[str, Any], weights: Any) -> None:
        self.kind, self.p = kind, parameters
        self.w = np.array(weights, np.float64)
        self.state: dict[str, Array] = {}

    def update(self, g: Any, t: int) -> None:
        self.w = self._changed(self.w, np.asarray(g, np.float64), t, self.state, False)

    def update_rows(self, indices: Any, values: Any, t: int) -> None:
        """Rows of equal indices are summed."""
        rows, place = np.unique(indices, return_inverse=True)
        g = np.zeros((len(rows), *self.w.shape[1:]))
        np.add.at(g, place.reshape(-1), np.asarray(values, np.float64))
        if not self.state:  # Makes what is kept, of all rows.
            self._changed(self.w, np.zeros_like(self.w), t, self.state, True)
            for name, start in self._starts().items():
                self.state[name][...] = start
        some = {name: value[rows] for name, value in self.state.items()}
        self.w[rows] = self._changed(self.w[rows], g, t, some, True)
        for name, value in some.items():
            self.state[name][rows] = value

    def _starts(self) -> dict[str, float]:
        first = self.p.get("initial_accumulator_value", self.p.get("initial_mean_square", 0.0))
        return {name: first if name in ("a", "n") else 0.0 for name in self.state}

    def _changed(self, w: Array, g: Array, t: int, state: Any, rows: bool) -> Array:
        g = g + self.p["l2_penalty"] * w
        if self.kind not in ("lamb", "lars"):
            w = w * (1 - self.p["learning_rate"] * self.p["weight_decay"])
        with np.errstate(divide="ignore", invalid="ignore"):
            return FORMULAS[self.kind](w, g, t, self.p, state, rows)
