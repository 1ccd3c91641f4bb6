"""Optimizers, applied to every variable on the parameter server where it lives. Rows of embeddings
change only in steps that touch them, after the gradients of equal ids have been added.

`weight_decay` is an L2 penalty: weight_decay * w is added to the gradient of what is updated.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import ClassVar

from . import _native


@dataclass(frozen=True)
class Optimizer:
    """Base of the optimizers."""

    kind: ClassVar[str] = ""

    def _native(self) -> _native.Optimizer:
        parameters = {key: float(value) for key, value in asdict(self).items()}
        return _native.make_optimizer(self.kind, parameters)


@dataclass(frozen=True)
class Sgd(Optimizer):
    """w -= learning_rate * g."""

    kind: ClassVar[str] = "sgd"
    learning_rate: float = 0.01
    weight_decay: float = 0.0


@dataclass(frozen=True)
class Momentum(Optimizer):
    """SGD with momentum, Nesterov's if asked for."""

    kind: ClassVar[str] = "momentum"
    learning_rate: float = 0.01
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 0.0


@dataclass(frozen=True)
class Adagrad(Optimizer):
    """Duchi et al., 2011."""

    kind: ClassVar[str] = "adagrad"
    learning_rate: float = 0.05
    initial_accumulator: float = 0.1
    epsilon: float = 1e-7
    weight_decay: float = 0.0


@dataclass(frozen=True)
class Adam(Optimizer):
    """Kingma and Ba, 2015; on embeddings for the touched rows only."""

    kind: ClassVar[str] = "adam"
    learning_rate: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0


@dataclass(frozen=True)
class Ftrl(Optimizer):
    """McMahan et al., 2013."""

    kind: ClassVar[str] = "ftrl"
    learning_rate: float = 0.05
    l1: float = 0.0
    l2: float = 0.0
    lr_power: float = -0.5
    initial_accumulator: float = 0.1
    weight_decay: float = 0.0


def get(optimizer: Optimizer | str) -> Optimizer:
    """The optimizer itself, or the one of that name ("adam") with its defaults."""
    if isinstance(optimizer, Optimizer):
        return optimizer
    for cls in (Sgd, Momentum, Adagrad, Adam, Ftrl):
        if optimizer == cls.kind:
            return cls()
    names = ", ".join(_native.optimizer_names())
    raise ValueError(f"no optimizer {optimizer!r}; the optimizers are: {names}")
