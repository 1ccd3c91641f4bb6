"""Learning rates that follow from the number of a step (tf.keras.optimizers.schedules).

A schedule is called with a step, 0 at the first: a number or an integer tensor, of a graph too. It
gives a float32 scalar. An optimizer asks it at each step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ._dispatch import apply, convert
from .dtypes import float32, float64


def _number(x: Any) -> Any:
    return apply("Cast", (convert(x),), {"dtype": float64})


def _power(base: float, exponent: Any) -> Any:
    return apply("Pow", (convert(base, float64), exponent))


def _least(x: Any, most: float) -> Any:
    return apply("Minimum", (x, convert(most, float64)))


class LearningRateSchedule:
    """Base of the schedules: rate(step) says the rate, in float64."""

    def __call__(self, step: Any) -> Any:
        return apply("Cast", (self.rate(_number(step)),), {"dtype": float32})

    def rate(self, step: Any) -> Any:
        """The rate at a step, both of them float64."""
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        """The arguments it was made with."""
        return dict(vars(self))

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Any:
        """A schedule like the one that gave this config."""
        return cls(**config)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({values})"


class _Decay(LearningRateSchedule):
    def __init__(
        self, initial_learning_rate: float, decay_steps: float, decay_rate: float,
        staircase: bool = False, name: str | None = None,
    ) -> None:  # fmt: skip
        if not decay_steps > 0:
            raise ValueError(f"decay_steps is {decay_steps}; it must be more than 0")
        self.initial_learning_rate = float(initial_learning_rate)
        self.decay_steps = float(decay_steps)
        self.decay_rate = float(decay_rate)
        self.staircase = staircase

    def _periods(self, step: Any) -> Any:
        periods = step / self.decay_steps
        return apply("Floor", (periods,)) if self.staircase else periods


class ExponentialDecay(_Decay):
    """initial_learning_rate * decay_rate ^ (step / decay_steps)."""

    def rate(self, step: Any) -> Any:
        return self.initial_learning_rate * _power(self.decay_rate, self._periods(step))


class InverseTimeDecay(_Decay):
    """initial_learning_rate / (1 + decay_rate * step / decay_steps)."""

    def rate(self, step: Any) -> Any:
        return self.initial_learning_rate / (1.0 + self.decay_rate * self._periods(step))


class PolynomialDecay(LearningRateSchedule):
    """(initial - end) * (1 - step / decay_steps) ^ power + end, and end after decay_steps, or with
    `cycle` again from the beginning over the least multiple of decay_steps that is not passed."""

    def __init__(
        self, initial_learning_rate: float, decay_steps: float,
        end_learning_rate: float = 0.0001, power: float = 1.0, cycle: bool = False,
        name: str | None = None,
    ) -> None:  # fmt: skip
        if not decay_steps > 0:
            raise ValueError(f"decay_steps is {decay_steps}; it must be more than 0")
        self.initial_learning_rate = float(initial_learning_rate)
        self.decay_steps = float(decay_steps)
        self.end_learning_rate = float(end_learning_rate)
        self.power = float(power)
        self.cycle = cycle

    def rate(self, step: Any) -> Any:
        if self.cycle:
            periods = apply("Ceil", (step / self.decay_steps,))
            done = step / (self.decay_steps * apply("Maximum", (periods, convert(1.0, float64))))
        else:
            done = _least(step, self.decay_steps) / self.decay_steps
        left = apply("Pow", (1.0 - done, convert(self.power, float64)))
        return (self.initial_learning_rate - self.end_learning_rate) * left + self.end_learning_rate


class CosineDecay(LearningRateSchedule):
    """Half a cosine from initial_learning_rate to alpha times of it over decay_steps. With a
    warmup_target: first a line to that over warmup_steps, from which it then falls."""

    def __init__(
        self, initial_learning_rate: float, decay_steps: float, alpha: float = 0.0,
        name: str | None = None, warmup_target: float | None = None, warmup_steps: int = 0,
    ) -> None:  # fmt: skip
        if not decay_steps > 0:
            raise ValueError(f"decay_steps is {decay_steps}; it must be more than 0")
        self.initial_learning_rate = float(initial_learning_rate)
        self.decay_steps = float(decay_steps)
        self.alpha = float(alpha)
        self.warmup_target = None if warmup_target is None else float(warmup_target)
        self.warmup_steps = warmup_steps

    def rate(self, step: Any) -> Any:
        if self.warmup_target is None:
            return self._falling(step, self.initial_learning_rate)
        top = self.warmup_target
        falling = self._falling(step - float(self.warmup_steps), top)
        if self.warmup_steps <= 0:
            return falling
        risen = (top - self.initial_learning_rate) * (step / float(self.warmup_steps))
        is_rising = apply("Less", (step, convert(float(self.warmup_steps), float64)))
        return apply("Select", (is_rising, risen + self.initial_learning_rate, falling))

    def _falling(self, step: Any, top: float) -> Any:
        done = _least(step, self.decay_steps) / self.decay_steps
        half = 0.5 * (1.0 + apply("Cos", (math.pi * done,)))
        return top * ((1.0 - self.alpha) * half + self.alpha)


class CosineDecayRestarts(LearningRateSchedule):
    """Half a cosine over first_decay_steps from initial_learning_rate to alpha times of it, and
    then others, each t_mul times as long as the one before and beginning at m_mul times its rate
    (Loshchilov and Hutter, 2016)."""

    def __init__(
        self, initial_learning_rate: float, first_decay_steps: float, t_mul: float = 2.0,
        m_mul: float = 1.0, alpha: float = 0.0, name: str | None = None,
    ) -> None:  # fmt: skip
        if not first_decay_steps > 0 or not t_mul >= 1:
            raise ValueError(
                f"first_decay_steps is {first_decay_steps} and t_mul {t_mul}; they must be more "
                "than 0, and at least 1"
            )
        self.initial_learning_rate = float(initial_learning_rate)
        self.first_decay_steps = float(first_decay_steps)
        self.t_mul, self.m_mul, self.alpha = float(t_mul), float(m_mul), float(alpha)

    def rate(self, step: Any) -> Any:
        done = step / self.first_decay_steps
        if self.t_mul == 1:
            period = apply("Floor", (done,))
            done = done - period
        else:
            # The period that a sum of powers of t_mul has reached, and how far into it.
            powers = apply("Log", (1.0 + done * (self.t_mul - 1.0),)) / math.log(self.t_mul)
            period = apply("Floor", (powers,))
            length = _power(self.t_mul, period)
            done = (done - (length - 1.0) / (self.t_mul - 1.0)) / length
        top = self.initial_learning_rate * _power(self.m_mul, period)
        half = 0.5 * (1.0 + apply("Cos", (math.pi * done,)))
        return top * ((1.0 - self.alpha) * half) + self.initial_learning_rate * self.alpha


class PiecewiseConstantDecay(LearningRateSchedule):
    """values[i] as long as step <= boundaries[i], and then the last one."""

    def __init__(
        self, boundaries: Sequence[float], values: Sequence[float], name: str | None = None
    ) -> None:
        if len(values) != len(boundaries) + 1:
            raise ValueError(
                f"{len(boundaries)} boundaries and {len(values)} values; there must be one value "
                "more"
            )
        self.boundaries = [float(boundary) for boundary in boundaries]
        self.values = [float(value) for value in values]

    def rate(self, step: Any) -> Any:
        rate = convert(self.values[-1], float64)
        for boundary, value in reversed(list(zip(self.boundaries, self.values))):
            is_before = apply("LessEqual", (step, convert(boundary, float64)))
            rate = apply("Select", (is_before, convert(value, float64), rate))
        return rate
