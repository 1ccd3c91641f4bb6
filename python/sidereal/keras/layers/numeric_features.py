"""Layers of numbers: Rescaling, Normalization, Discretization, CategoryEncoding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ... import errors
from ..._dispatch import convert
from ...ops import array, math
from ...ops.ragged import RaggedTensor
from ...ops.sorting import searchsorted
from .._inputs import EPSILON, check_shapes
from ._preprocessing import (
    MODES,
    Adaptable,
    Preprocessing,
    all_below,
    each_element,
    encoded,
    is_string,
    tensor_of,
)
from ._shapes import extents_of, rank_of, reshaped


class Rescaling(Preprocessing):
    """inputs * scale + offset, of numbers or of lists of numbers that broadcast."""

    def __init__(self, scale: Any, offset: Any = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.scale, self.offset = scale, offset

    def call(self, inputs: Any) -> Any:
        scale = convert(np.asarray(self.scale), None)
        offset = convert(np.asarray(self.offset), None)
        x = math.cast(inputs, self.dtype)
        return math.add(
            math.multiply(x, math.cast(scale, self.dtype)), math.cast(offset, self.dtype)
        )


class Normalization(Adaptable):
    """Inputs less their mean, divided by their standard deviation: those of each place of the
    dimensions `axis` (None: of all elements together), which are given, or found by adapt() and
    kept as weights. `invert`: the reverse. A standard deviation of 0 counts as 1e-7."""

    def __init__(
        self, axis: Any = -1, mean: Any = None, variance: Any = None, invert: bool = False,
        **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        if (mean is None) != (variance is None):
            raise ValueError(
                f"layer '{self.name}': mean is {mean} and variance is {variance}; give both, or "
                "neither and call adapt()"
            )
        self.axis = () if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
        self.invert = invert
        self._given = None if mean is None else (np.asarray(mean), np.asarray(variance))
        self.reset_state()

    def build(self, input_shape: Any) -> None:
        shape = tuple(input_shape)
        rank = len(shape)
        if any(not -rank <= axis < rank for axis in self.axis):
            raise ValueError(
                f"layer '{self.name}': axis is {self.axis}, but inputs have {rank} dimensions"
            )
        kept = sorted(axis % rank for axis in self.axis)
        if any(shape[axis] is None for axis in kept):
            raise ValueError(
                f"layer '{self.name}': extents of the dimensions axis={self.axis} must be known; "
                f"inputs have shape {shape}"
            )
        self._reduced = [i for i in range(rank) if i not in kept]
        self._wide = [shape[i] if i in kept else 1 for i in range(rank)]
        extents = [shape[i] for i in kept]
        if self._given is None:
            self.adapt_mean = self.add_weight(extents, "zeros", trainable=False, name="mean")
            self.adapt_variance = self.add_weight(extents, "ones", trainable=False, name="variance")
            self.count = self.add_weight((), "zeros", "int64", trainable=False, name="count")
            return
        try:
            mean, variance = (np.broadcast_to(x, self._wide) for x in self._given)
        except ValueError:
            raise errors.InvalidArgumentError(
                f"layer '{self.name}': mean of shape {self._given[0].shape} and variance of shape "
                f"{self._given[1].shape} do not fit axis={self.axis} of inputs of shape {shape}"
            ) from None
        self._fixed = mean.astype(self.dtype), variance.astype(self.dtype)

    def _moments(self) -> tuple[Any, Any]:
        """Mean and variance in the rank of the inputs."""
        if self._given is not None:
            return self._fixed[0], self._fixed[1]
        mean, variance = self.adapt_mean, self.adapt_variance
        return array.reshape(mean, self._wide), array.reshape(variance, self._wide)

    @property
    def mean(self) -> Any:
        return self._moments()[0]

    @property
    def variance(self) -> Any:
        return self._moments()[1]

    def call(self, inputs: Any) -> Any:
        x = math.cast(inputs, self.dtype)
        if rank_of(self.name, x) != len(self._wide):
            raise ValueError(
                f"layer '{self.name}' was built for inputs of {len(self._wide)} dimensions; these "
                f"have shape {tuple(x.shape)}"
            )
        mean, variance = self._moments()
        deviation = math.maximum(math.sqrt(convert(variance)), EPSILON)
        if self.invert:
            return math.add(mean, math.multiply(x, deviation))
        return math.divide(math.subtract(x, mean), deviation)

    def _check_adaptable(self) -> None:
        if self._given is not None:
            raise ValueError(
                f"layer '{self.name}' was given its mean and variance; adapt() is for one without"
            )

    def reset_state(self) -> None:
        #: How many numbers were seen of each place, their mean, and their variance.
        self._seen = (0, np.float64(0), np.float64(0))

    def _see(self, batch: Any) -> None:
        if isinstance(batch, RaggedTensor) or is_string(batch):
            raise TypeError(
                f"adapt() of layer '{self.name}' takes tensors of numbers, not a batch of "
                f"{'ragged rows' if isinstance(batch, RaggedTensor) else batch.dtype}"
            )
        x = batch.numpy().astype(np.float64)
        if not self.built:
            self.build(x.shape)
        if x.ndim != len(self._wide):
            raise ValueError(
                f"adapt() of layer '{self.name}': batches have {len(self._wide)} dimensions, "
                f"but one has shape {x.shape}"
            )
        axes = tuple(self._reduced)
        size = int(np.prod([x.shape[i] for i in axes]))
        if size == 0:
            return
        # Of two parts of the data: the mean of means, and of variances around it.
        count, mean, variance = self._seen
        new, total = x.mean(axes), count + size
        moved = mean + (new - mean) * (size / total)
        inner = variance * count + x.var(axes) * size
        outer = count * (mean - moved) ** 2 + size * (new - moved) ** 2
        self._seen = (total, moved, (inner + outer) / total)

    def finalize_state(self) -> None:
        """Makes mean and variance those of what was seen."""
        count, mean, variance = self._seen
        if count == 0:
            raise ValueError(f"adapt() of layer '{self.name}' was given no data")
        self.adapt_mean.assign(mean.astype(self.dtype))
        self.adapt_variance.assign(variance.astype(self.dtype))
        self.count.assign(np.int64(count))


class Discretization(Adaptable):
    """The number of the bin that each number is in: the count of `bin_boundaries` that are not
    above it. They are given, sorted, or found by adapt(): `num_bins` bins of about equally many of
    the data, within `epsilon`. `output_mode`: see CategoryEncoding."""

    def __init__(
        self, bin_boundaries: Any = None, num_bins: int | None = None, epsilon: float = 0.01,
        output_mode: str = "int", sparse: bool = False, dtype: Any = None, name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(name=name, dtype=dtype)
        self.output_mode = self._check_modes(output_mode, sparse, MODES[:4])
        if num_bins is not None and num_bins <= 0:
            raise ValueError(
                f"layer '{self.name}': num_bins is {num_bins}; it must be positive"
            )
        if num_bins is not None and bin_boundaries is not None:
            raise ValueError(
                f"layer '{self.name}': num_bins is {num_bins} and bin_boundaries are "
                f"{bin_boundaries}; give one of them"
            )
        if num_bins is None and bin_boundaries is None:
            raise ValueError(
                f"layer '{self.name}': give bin_boundaries, or num_bins that adapt() is to find"
            )
        self.num_bins, self.epsilon = num_bins, float(epsilon)
        self.reset_state()
        self.bin_boundaries: list[float] | None = None
        if bin_boundaries is not None:
            self.bin_boundaries = [float(each) for each in np.asarray(bin_boundaries).ravel()]
            if sorted(self.bin_boundaries) != self.bin_boundaries:
                raise errors.InvalidArgumentError(
                    f"layer '{self.name}': bin_boundaries are {self.bin_boundaries}; they must be "
                    "sorted"
                )

    def _check_adaptable(self) -> None:
        if self.num_bins is None:
            raise ValueError(
                f"layer '{self.name}' was given its bin_boundaries; adapt() is for one with "
                "num_bins"
            )

    def reset_state(self) -> None:
        self._summary = np.zeros((2, 0), np.float32)

    def _see(self, batch: Any) -> None:
        if is_string(batch):
            raise TypeError(f"adapt() of layer '{self.name}' takes numbers, not a batch of strings")
        flat = batch.flat_values if isinstance(batch, RaggedTensor) else batch
        part = _summarized(flat.numpy().ravel().astype(np.float32), self.epsilon)
        joined = np.concatenate([self._summary, part], 1)
        self._summary = _compressed(joined[:, np.argsort(joined[0])], self.epsilon)

    def finalize_state(self) -> None:
        """Makes the bins of what was seen."""
        if self.num_bins is None:
            return
        if self._summary.shape[1] == 0:
            raise ValueError(f"adapt() of layer '{self.name}' was given no data")
        self.bin_boundaries = _compressed(self._summary, 1.0 / self.num_bins)[0, :-1].tolist()

    def call(self, inputs: Any) -> Any:
        boundaries = self.bin_boundaries
        if boundaries is None and (not self._is_planned or self.num_bins is None):
            raise ValueError(
                f"layer '{self.name}' has no bins yet; give bin_boundaries, or call adapt() before "
                "it is used"
            )
        if is_string(inputs):
            raise errors.InvalidArgumentError(
                f"layer '{self.name}': Discretization is of numbers; inputs are strings"
            )
        count = (self.num_bins or 1) - 1 if boundaries is None else len(boundaries)

        def bins(x: Any) -> Any:
            # Integers that float32 cannot tell apart are compared in float64.
            kind = "float32" if x.dtype.name in ("float16", "bfloat16") else x.dtype.name
            kind = kind if kind.startswith("float") else "float64"
            if boundaries is None:
                sorted_ = array.zeros([count], kind)
            else:
                sorted_ = convert(np.asarray(boundaries, np.float32).astype(kind))
            flat = array.reshape(math.cast(x, kind), [-1])
            return reshaped(searchsorted(sorted_, flat, side="right"), extents_of(x))

        ids = each_element(bins, inputs)
        return encoded(self.name, ids, self.output_mode, count + 1, self.dtype)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        return {**config, "dtype": self.dtype, "bin_boundaries": self.bin_boundaries}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Any:
        given = dict(config)
        boundaries = given.get("bin_boundaries")
        if boundaries is None or given.get("num_bins") is None:
            return super().from_config(given)
        del given["bin_boundaries"]
        made = super().from_config(given)
        made.bin_boundaries = list(boundaries)
        return made


def _summarized(values: np.ndarray, epsilon: float) -> np.ndarray:
    """Quantiles of the values, and how many values each stands for."""
    step = max(len(values) / (1.0 / epsilon), 1.0)
    quantiles = np.sort(values)[int(step - 1) :: int(step)]
    return np.stack([quantiles, np.full_like(quantiles, step)])


def _compressed(summary: np.ndarray, epsilon: float) -> np.ndarray:
    """A summary of 1 / epsilon quantiles, where it has more."""
    if summary.shape[1] * epsilon < 1:
        return summary
    wanted = epsilon + np.arange(0.0, 1.0, epsilon)
    reached = summary[1].cumsum()
    share = reached / reached[-1]
    quantiles = np.interp(wanted, share, summary[0])
    reached = np.interp(wanted, share, reached)
    return np.stack([quantiles, np.diff(reached, prepend=0)]).astype(np.float32)


class CategoryEncoding(Preprocessing):
    """Numbers from 0 to num_tokens - 1 as vectors of `num_tokens` elements.

    output_mode: "one_hot", a 1 for each number: [...] -> [..., num_tokens], a last dimension of
    extent 1 replaced; "multi_hot", a 1 for each number of an example: [..., n] ->
    [..., num_tokens]; "count", how often each is there, or the sums of their `count_weights`.
    Errors: InvalidArgumentError for a number outside.
    """

    _dtype_of_inputs = "int64"

    def __init__(
        self, num_tokens: int | None = None, output_mode: str = "multi_hot", sparse: bool = False,
        **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        output_mode = "multi_hot" if output_mode == "binary" else output_mode
        self.output_mode = self._check_modes(output_mode, sparse, MODES[1:4])
        if num_tokens is None:
            raise ValueError(
                f"layer '{self.name}': num_tokens must be given; an IntegerLookup finds it by "
                "adapt()"
            )
        if num_tokens < 1:
            raise ValueError(
                f"layer '{self.name}': num_tokens is {num_tokens}; it must be at least 1"
            )
        self.num_tokens = num_tokens

    def call(self, inputs: Any, count_weights: Any = None) -> Any:
        if count_weights is not None and self.output_mode != "count":
            raise ValueError(
                f"layer '{self.name}': count_weights are for output_mode='count', not "
                f"'{self.output_mode}'"
            )
        if is_string(inputs):
            raise TypeError(
                f"layer '{self.name}': CategoryEncoding is of integers; inputs are strings. Use a "
                "StringLookup"
            )
        ids = each_element(lambda x: math.cast(x, "int64"), inputs)
        ids = all_below(self.name, ids, self.num_tokens)
        weights = None if count_weights is None else self._weights_for(ids, count_weights)
        return encoded(self.name, ids, self.output_mode, self.num_tokens, self.dtype, weights)

    def _weights_for(self, ids: Any, count_weights: Any) -> Any:
        """One weight for each number."""
        weights = tensor_of(count_weights)
        of_kind = [isinstance(each, tuple) and type(each) for each in (ids, weights)]
        if of_kind[0] is not of_kind[1]:
            raise ValueError(
                f"layer '{self.name}': inputs and count_weights must both be tensors, or both "
                "ragged or sparse"
            )
        if not of_kind[0]:
            where = f"layer '{self.name}'"
            check_shapes(where, ("inputs", "count_weights"), ids, weights, equal=True)
        return weights


