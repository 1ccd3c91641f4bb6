"""Layers that join several inputs, and that give one another shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from ... import errors
from ...ops import array, math
from .._layer import Layer
from ..backend import batch_dot
from ._shapes import extents_of, rank_of, reshaped


class _Merge(Layer):
    """Base of the layers that join a list of inputs element by element."""

    supports_masking = True

    def _joined(self, x: Any, y: Any) -> Any:
        raise NotImplementedError

    def call(self, inputs: Any) -> Any:
        aligned = _of_one_rank(self, _listed(self, inputs))
        result = aligned[0]
        for each in aligned[1:]:
            result = self._joined(result, each)
        return result

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        if previous_mask is None or any(mask is None for mask in previous_mask):
            return None
        result = previous_mask[0]
        for mask in previous_mask[1:]:
            result = math.logical_or(result, mask)
        return result


def _listed(layer: Layer, inputs: Any) -> list[Any]:
    if not isinstance(inputs, (list, tuple)) or not inputs:
        raise ValueError(
            f"layer '{layer.name}' joins a list of inputs, one at least; "
            f"{type(inputs).__name__} is given"
        )
    return list(inputs)


def _of_one_rank(layer: Layer, inputs: list[Any]) -> list[Any]:
    """Inputs with dimensions of extent 1 behind the first, where others have more dimensions."""
    ranks = [rank_of(layer.name, x) for x in inputs]
    for x, rank in zip(inputs, ranks):
        for _ in range(max(ranks) - rank):
            x = array.expand_dims(x, 1 if rank else 0)
        inputs = [*inputs[1:], x]
    return inputs


class Add(_Merge):
    """The sum of the inputs."""

    def _joined(self, x: Any, y: Any) -> Any:
        return math.add(x, y)


class Multiply(_Merge):
    """The product of the inputs, element by element."""

    def _joined(self, x: Any, y: Any) -> Any:
        return math.multiply(x, y)


class Maximum(_Merge):
    """The greatest of the inputs."""

    def _joined(self, x: Any, y: Any) -> Any:
        return math.maximum(x, y)


class Minimum(_Merge):
    """The least of the inputs."""

    def _joined(self, x: Any, y: Any) -> Any:
        return math.minimum(x, y)


class Average(Add):
    """The mean of the inputs."""

    def call(self, inputs: Any) -> Any:
        return math.multiply(super().call(inputs), 1.0 / len(inputs))


class Subtract(_Merge):
    """The first of two inputs less the second."""

    def call(self, inputs: Any) -> Any:
        if len(_listed(self, inputs)) != 2:
            raise ValueError(
                f"layer '{self.name}' takes a list of 2 inputs; {len(inputs)} are given"
            )
        return super().call(inputs)

    def _joined(self, x: Any, y: Any) -> Any:
        return math.subtract(x, y)


class Concatenate(_Merge):
    """The inputs one behind another along `axis`."""

    def __init__(self, axis: int = -1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.axis = axis

    def call(self, inputs: Any) -> Any:
        listed = _listed(self, inputs)
        return listed[0] if len(listed) == 1 else array.concat(listed, self.axis)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        if previous_mask is None or all(mask is None for mask in previous_mask):
            return None
        whole = [
            array.ones_like(x, "bool")
            if mask is None
            else math.logical_or(array.expand_dims(mask, -1), array.zeros_like(x, "bool"))
            for x, mask in zip(inputs, previous_mask)
        ]
        return math.reduce_any(array.concat(whole, self.axis), axis=-1)


class Dot(Layer):
    """The products of two inputs summed over an axis of each, example by example: of vectors one
    number each, [batch, 1]. `axes`: one, or one of each input; `normalize`: the inputs are brought
    to length 1 along it first."""

    def __init__(self, axes: int | Sequence[int], normalize: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        both = [axes, axes] if isinstance(axes, int) else list(axes)
        if len(both) != 2 or not all(isinstance(axis, int) for axis in both):
            raise ValueError(
                f"layer '{self.name}': axes is {axes!r}; it must be an integer, or one for each of "
                "both inputs"
            )
        if 0 in both:
            raise ValueError(f"layer '{self.name}': axis 0 is that of the examples; axes={axes}")
        self.axes, self.normalize = axes, normalize
        self._axes = both

    def call(self, inputs: Any) -> Any:
        if len(_listed(self, inputs)) != 2:
            raise ValueError(
                f"layer '{self.name}' takes a list of 2 inputs; {len(inputs)} are given"
            )
        x, y = inputs
        ranks = [rank_of(self.name, each) for each in inputs]
        if self.normalize:
            x, y = (
                math.l2_normalize(each, axis % rank, 1e-12)
                for each, axis, rank in zip(inputs, self._axes, ranks)
            )
        return batch_dot(x, y, self._axes)


def _function_of(layer: type[Layer], name: str) -> Callable[..., Any]:
    def function(inputs: Any, *args: Any, **kwargs: Any) -> Any:
        return layer(*args, **kwargs)(inputs)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{layer.__name__}(**kwargs)(inputs)."
    return function


add = _function_of(Add, "add")
average = _function_of(Average, "average")
concatenate = _function_of(Concatenate, "concatenate")
maximum = _function_of(Maximum, "maximum")
minimum = _function_of(Minimum, "minimum")
multiply = _function_of(Multiply, "multiply")
subtract = _function_of(Subtract, "subtract")


def dot(inputs: Any, axes: int | Sequence[int] = -1, **kwargs: Any) -> Any:
    """Dot(axes, **kwargs)(inputs)."""
    return Dot(axes, **kwargs)(inputs)


def _check_last(layer: Layer, data_format: str | None) -> None:
    if data_format not in (None, "channels_last"):
        raise errors.UnimplementedError(
            f"layer '{layer.name}': data_format is {data_format!r}; it must be channels_last"
        )


class Flatten(Layer):
    """All dimensions but the first as one."""

    def __init__(self, data_format: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        _check_last(self, data_format)
        self.data_format = data_format

    def call(self, inputs: Any) -> Any:
        if rank_of(self.name, inputs) < 2:
            return array.expand_dims(inputs, -1)
        width = 1
        for extent in inputs.shape[1:]:
            width = -1 if extent < 0 or width < 0 else width * extent
        return reshaped(inputs, [extents_of(inputs)[0], width])


class Reshape(Layer):
    """The elements of each example in another shape, one extent of which may be -1."""

    def __init__(self, target_shape: Sequence[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.target_shape = tuple(target_shape)
        if self.target_shape.count(-1) > 1:
            raise ValueError(
                f"layer '{self.name}': target_shape is {self.target_shape}; one extent at most may "
                "be -1"
            )

    def _check_size(self, extents: list[int]) -> None:
        size, wanted = prod(extents), prod(n for n in self.target_shape if n >= 0)
        if size != wanted and (-1 not in self.target_shape or wanted == 0 or size % wanted):
            raise ValueError(
                f"layer '{self.name}': an example of shape {tuple(extents)} has {size} elements, "
                f"which are not those of target_shape {self.target_shape}"
            )

    def call(self, inputs: Any) -> Any:
        rank = rank_of(self.name, inputs)
        target = list(self.target_shape)
        known = [n for n in inputs.shape[1:] if n >= 0]
        if len(known) == rank - 1:
            self._check_size(known)
        if -1 in target and len(known) == rank - 1:
            rest = 1
            for extent in target:
                rest *= max(extent, 1) if extent == -1 else extent
            size = 1
            for extent in known:
                size *= extent
            target[target.index(-1)] = size // max(rest, 1)
        first = extents_of(inputs)[0]
        if -1 in target and not isinstance(first, int):
            return array.reshape(inputs, array.stack([first, *target]))
        return reshaped(inputs, [first, *target])


class Permute(Layer):
    """The dimensions of each example in another order; they are counted from 1."""

    def __init__(self, dims: Sequence[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dims = tuple(dims)
        if sorted(self.dims) != list(range(1, len(self.dims) + 1)):
            raise ValueError(
                f"layer '{self.name}': dims is {dims}; it must have each of the numbers from 1 to "
                f"{len(self.dims)} once"
            )

    def call(self, inputs: Any) -> Any:
        return array.transpose(inputs, [0, *self.dims])


class RepeatVector(Layer):
    """[batch, d] -> [batch, n, d]."""

    def __init__(self, n: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not isinstance(n, int):
            raise TypeError(f"layer '{self.name}': n is {n!r}; it must be an integer")
        self.n = n

    def call(self, inputs: Any) -> Any:
        return array.tile(array.expand_dims(inputs, 1), [1, self.n, 1])


class GlobalAveragePooling1D(Layer):
    """The mean over time: [batch, time, d] -> [batch, d]; with a mask, of the steps where it is
    true."""

    def __init__(
        self, data_format: str | None = None, keepdims: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        _check_last(self, data_format)
        self.data_format, self.keepdims = data_format, keepdims

    def call(self, inputs: Any, mask: Any = None) -> Any:
        if mask is None:
            return math.reduce_mean(inputs, axis=1, keepdims=self.keepdims)
        mask = array.expand_dims(math.cast(mask, inputs.dtype), -1)
        total = math.reduce_sum(math.multiply(inputs, mask), axis=1, keepdims=self.keepdims)
        return math.divide(total, math.reduce_sum(mask, axis=1, keepdims=self.keepdims))


class GlobalMaxPooling1D(Layer):
    """The greatest over time: [batch, time, d] -> [batch, d]."""

    def __init__(
        self, data_format: str | None = None, keepdims: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        _check_last(self, data_format)
        self.data_format, self.keepdims = data_format, keepdims

    def call(self, inputs: Any) -> Any:
        return math.reduce_max(inputs, axis=1, keepdims=self.keepdims)
