"""Learning rates that follow from the global step, as values of the graph
(tf.compat.v1.train.exponential_decay and its kin)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .. import schedules
from .graph import building


def _at(schedule: schedules.LearningRateSchedule, step: Any) -> Any:
    with building():
        return schedule(step)


def exponential_decay(
    learning_rate: float, global_step: Any, decay_steps: float, decay_rate: float,
    staircase: bool = False, name: str | None = None,
) -> Any:  # fmt: skip
    """learning_rate * decay_rate ^ (global_step / decay_steps)."""
    made = schedules.ExponentialDecay(learning_rate, decay_steps, decay_rate, staircase)
    return _at(made, global_step)


def natural_exp_decay(
    learning_rate: float, global_step: Any, decay_steps: float, decay_rate: float,
    staircase: bool = False, name: str | None = None,
) -> Any:  # fmt: skip
    """learning_rate * exp(-decay_rate * global_step / decay_steps)."""
    rate = math.exp(-decay_rate)
    made = schedules.ExponentialDecay(learning_rate, decay_steps, rate, staircase)
    return _at(made, global_step)


def inverse_time_decay(
    learning_rate: float, global_step: Any, decay_steps: float, decay_rate: float,
    staircase: bool = False, name: str | None = None,
) -> Any:  # fmt: skip
    """learning_rate / (1 + decay_rate * global_step / decay_steps)."""
    made = schedules.InverseTimeDecay(learning_rate, decay_steps, decay_rate, staircase)
    return _at(made, global_step)


def polynomial_decay(
    learning_rate: float, global_step: Any, decay_steps: float,
    end_learning_rate: float = 0.0001, power: float = 1.0, cycle: bool = False,
    name: str | None = None,
) -> Any:  # fmt: skip
    """From learning_rate to end_learning_rate in decay_steps, by a power of what is left."""
    made = schedules.PolynomialDecay(learning_rate, decay_steps, end_learning_rate, power, cycle)
    return _at(made, global_step)


def cosine_decay(
    learning_rate: float, global_step: Any, decay_steps: float, alpha: float = 0.0,
    name: str | None = None,
) -> Any:  # fmt: skip
    """Half a cosine from learning_rate to alpha times of it."""
    return _at(schedules.CosineDecay(learning_rate, decay_steps, alpha), global_step)


def piecewise_constant(
    x: Any, boundaries: Sequence[float], values: Sequence[float], name: str | None = None
) -> Any:
    """values[i] as long as x <= boundaries[i], and then the last one."""
    return _at(schedules.PiecewiseConstantDecay(boundaries, values), x)
