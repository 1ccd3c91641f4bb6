"""Optimizers of tables, which run on parameter servers, with PyTorch's names, arguments and
formulas: those of torch.optim on sparse gradients."""

from __future__ import annotations

from typing import Any

import torch

from .. import optimizers
from .._native import Output


class TableOptimizer:
    """Base of SGD, Adagrad and SparseAdam, and what stands for an optimizer of
    sidereal.optimizers."""

    lr: float

    def _rule(self, rate: Output) -> optimizers.Optimizer:
        """The optimizer of the parameter servers, with a learning rate that steps are given."""
        raise NotImplementedError


def _number(name: str, value: Any) -> float:
    if not isinstance(value, (int, float)) or value < 0:
        raise ValueError(f"Invalid {name}: {value!r}; it is a number from 0 on")
    return float(value)


class SGD(TableOptimizer):
    """w -= lr * g (torch.optim.SGD)."""

    def __init__(self, lr: float = 1e-3) -> None:
        self.lr = _number("learning rate", lr)

    def _rule(self, rate: Output) -> optimizers.Optimizer:
        return optimizers.SGD(rate)


class Adagrad(TableOptimizer):
    """sum += g^2; w -= lr * g / (sqrt(sum) + eps) (torch.optim.Adagrad)."""

    def __init__(
        self, lr: float = 1e-2, initial_accumulator_value: float = 0.0, eps: float = 1e-10
    ) -> None:
        self.lr = _number("learning rate", lr)
        self.eps = _number("epsilon value", eps)
        self.initial = _number("initial_accumulator_value value", initial_accumulator_value)

    def _rule(self, rate: Output) -> optimizers.Optimizer:
        return optimizers.Adagrad(
            rate, initial_accumulator_value=self.initial, epsilon=self.eps
        )


class SparseAdam(TableOptimizer):
    """Adam of the rows that a step touches, whose bias correction goes by the number of updates of
    all rows (torch.optim.SparseAdam)."""

    def __init__(
        self, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8
    ) -> None:
        self.lr = _number("learning rate", lr)
        self.eps = _number("epsilon value", eps)
        for index, beta in enumerate(betas):
            if not 0.0 <= beta < 1.0:
                raise ValueError(f"Invalid beta parameter at index {index}: {beta}")
        self.betas = (float(betas[0]), float(betas[1]))

    def _rule(self, rate: Output) -> optimizers.Optimizer:
        return optimizers.AdamAsync(
            rate, beta_1=self.betas[0], beta_2=self.betas[1], epsilon=self.eps
        )


#: Rows without gradients do not change: with tables, Adam is SparseAdam.
Adam = SparseAdam


class _Given(TableOptimizer):
    """One of sidereal.optimizers."""

    def __init__(self, given: optimizers.Optimizer) -> None:
        try:
            self.lr = float(given.learning_rate)
        except TypeError:
            raise TypeError(
                f"the learning rate of {type(given).__name__} is {given.learning_rate!r}; tables "
                "take a number, which a scheduler of torch.optim.lr_scheduler may change: "
                "collection.fused_optimizer"
            ) from None
        if any(getattr(given, name) is not None for name in ("clipnorm", "global_clipnorm")):
            raise ValueError("norms of gradients of tables are not known to their optimizer")
        self.given = given

    def _rule(self, rate: Output) -> optimizers.Optimizer:
        return type(self.given)(rate, **self.given._of_row(), clipvalue=self.given.clipvalue)


def optimizer_of(given: Any) -> TableOptimizer | None:
    """What the argument `optimizer` of collections means."""
    if given is None or isinstance(given, TableOptimizer):
        return given
    if isinstance(given, optimizers.Optimizer):
        return _Given(given)
    if isinstance(given, torch.optim.Optimizer):
        raise TypeError(
            f"optimizer is a torch.optim.{type(given).__name__}, which updates tensors of this "
            "process; tables take sidereal.torch.optim.SGD, Adagrad or SparseAdam, or one of "
            "sidereal.optimizers"
        )
    raise TypeError(f"optimizer is {given!r}; give one of sidereal.torch.optim")


class FusedOptimizer(torch.optim.Optimizer):
    """The optimizer of a collection as torch.optim sees it (torchrec's fused_optimizer): backward()
    updates tables, and step() does nothing more. Its param_groups have the learning rate, which
    schedulers of torch.optim.lr_scheduler change."""

    def __init__(self, lr: float) -> None:
        super().__init__([torch.zeros(0, requires_grad=True)], {"lr": lr})

    @property
    def rate(self) -> float:
        """The learning rate of the next update."""
        return float(self.param_groups[0]["lr"])

    def step(self, closure: Any = None) -> Any:
        """Nothing: backward() has updated the tables."""
        return None if closure is None else closure()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Nothing: gradients are not kept."""


__all__ = ["SGD", "Adagrad", "Adam", "FusedOptimizer", "SparseAdam"]
