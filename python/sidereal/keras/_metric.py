"""The base of metrics, and those that are a sum or a mean."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import dtypes
from .._conversion import inside
from .._dispatch import convert
from .._trackable import is_trackable
from ..ops import array, math
from ..variable import Variable, creating
from . import initializers
from ._configs import Configured, own_name
from ._inputs import check_rank, check_shapes, extent, floating, same_rank


class Metric(Configured):
    """Base of the metrics: update_state() adds a batch to its variables, result() gives the value,
    reset_state() begins anew. All three work at once and inside of a sidereal.function. One of
    one's own has the first two.

    dtype: of its variables, float32 if absent.
    """

    def __init__(self, dtype: Any = None, name: str | None = None) -> None:
        self.name = name or own_name(self)
        self._dtype = dtypes.as_dtype("float32" if dtype is None else dtype)
        self._variables: list[Variable] = []

    @property
    def dtype(self) -> str:
        """The name of the dtype of its variables."""
        return dtypes.name_of(self._dtype)

    def add_variable(
        self, shape: Sequence[int], initializer: Any = "zeros", dtype: Any = None,
        aggregation: str | None = None, name: str | None = None,
    ) -> Variable:  # fmt: skip
        """A variable of the metric. `aggregation` changes nothing."""
        del aggregation
        make = initializers.get(initializer)
        kind = self._dtype if dtype is None else dtype
        with creating.wholes():
            made = Variable(
                functools.partial(make, tuple(shape), kind),
                trainable=False,
                name=f"{self.name}/{name or f'variable_{len(self._variables)}'}",
            )
        self._variables.append(made)
        return made

    def add_weight(
        self, shape: Sequence[int] = (), initializer: Any = "zeros", dtype: Any = None,
        name: str | None = None, aggregation: str | None = None,
    ) -> Variable:  # fmt: skip
        """add_variable(), of a single number if no shape is said."""
        return self.add_variable(shape, initializer, dtype, aggregation, name)

    @property
    def variables(self) -> list[Variable]:
        """All that is kept: by the metric, and by metrics that are members of it."""
        found = list(self._variables)
        for member in vars(self).values():
            inner = member.variables if isinstance(member, Metric) else [member]
            found += [each for each in inner if isinstance(each, Variable)]
        return list({id(each): each for each in found}.values())

    def _trackable_children(self) -> dict[str, Any]:
        """What a checkpoint has of it."""
        return {name: each for name, each in vars(self).items() if is_trackable(each)}

    def update_state(self, *args: Any, **kwargs: Any) -> None:
        """Adds a batch."""
        raise NotImplementedError(f"{type(self).__name__} has no update_state()")

    def result(self) -> Any:
        """The value for all batches since the metric was made or reset."""
        raise NotImplementedError(f"{type(self).__name__} has no result()")

    def reset_state(self) -> None:
        """Forgets all batches: its variables become 0."""
        for variable in self.variables:
            variable.assign(array.zeros(list(variable.shape), variable.dtype))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """update_state(), then result()."""
        self.update_state(*args, **kwargs)
        return self.result()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} name={self.name}>"


def per_example(
    where: str, values: Any, weights: Any, reduce: Callable[..., Any], dtype: Any
) -> tuple[Any, Any]:
    """Values times weights, and the weights (None: none), reduced to one for each example, as far
    as there is more than one."""
    values = floating(values, dtype)
    check_rank(where, values=values)
    if weights is not None:
        weights = math.cast(convert(weights), dtype)
        check_rank(where, sample_weight=weights)
        values, weights = same_rank(values, weights)
        values = _behind(len(weights.shape), values, reduce)
        check_shapes(where, ("a value", "sample_weight"), values, weights, equal=False)
        values = math.multiply(values, weights)
        weights = _behind(1, weights, reduce)
    return _behind(1, values, reduce), weights


def _behind(rank: int, x: Any, reduce: Callable[..., Any]) -> Any:
    """`x` with the dimensions from number `rank` on reduced."""
    axes = list(range(rank, len(x.shape)))
    return reduce(x, axis=axes) if axes else x


class Sum(Metric):
    """The sum of values times weights."""

    def __init__(self, name: str | None = "sum", dtype: Any = None) -> None:
        super().__init__(dtype, name)
        self.total = self.add_variable((), name="total")

    def update_state(self, values: Any, sample_weight: Any = None) -> None:
        where = f"metric '{self.name}'"
        values, _ = per_example(where, values, sample_weight, math.reduce_sum, self._dtype)
        self.total.assign_add(math.reduce_sum(values))

    def result(self) -> Any:
        return self.total.value()


class Mean(Metric):
    """The weighted mean of values, each example being the mean of its own."""

    def __init__(self, name: str | None = "mean", dtype: Any = None) -> None:
        super().__init__(dtype, name)
        self.total = self.add_variable((), name="total")
        self.count = self.add_variable((), name="count")

    def update_state(self, values: Any, sample_weight: Any = None) -> None:
        where = f"metric '{self.name}'"
        values, weights = per_example(where, values, sample_weight, math.reduce_mean, self._dtype)
        self.total.assign_add(math.reduce_sum(values))
        if weights is not None:
            added = math.reduce_sum(weights)
        else:
            added = extent(values, 0, self._dtype) if values.shape else 1.0
        self.count.assign_add(added)

    def result(self) -> Any:
        return math.divide_no_nan(self.total, self.count)


class MeanMetricWrapper(Mean):
    """The mean of what a function of (y_true, y_pred) gives, with arguments `kwargs`."""

    def __init__(
        self, fn: Callable[..., Any], name: str | None = None, dtype: Any = None, **kwargs: Any
    ) -> None:
        super().__init__(name, dtype)
        self._fn = functools.partial(fn, **kwargs) if kwargs else fn

    def update_state(  # type: ignore[override]
        self, y_true: Any, y_pred: Any, sample_weight: Any = None
    ) -> None:
        super().update_state(inside(self._fn)(y_true, y_pred), sample_weight)


def numbers(value: Any) -> list[float]:
    """A number, list or array as a list of numbers."""
    return [float(x) for x in np.reshape(value, -1)]
