"""Convolution and pooling of images [batch, height, width, channels]: members of `sidereal.nn`.
Names and arguments are TensorFlow's, data_format NHWC only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import errors
from .._dispatch import align, apply, convert

__all__ = [
    "avg_pool", "avg_pool2d", "conv2d", "depthwise_conv2d", "max_pool", "max_pool2d",
    "max_pool_with_argmax",
]  # fmt: skip


def _pair(value: Any, what: str) -> list[int]:
    """[height, width] of one number, a pair, or TensorFlow's four."""
    if isinstance(value, int):
        return [value, value]
    numbers = [int(x) for x in value]
    if len(numbers) == 1:
        return numbers * 2
    if len(numbers) == 4 and numbers[0] == numbers[3] == 1:
        return numbers[1:3]
    if len(numbers) == 2:
        return numbers
    raise errors.InvalidArgumentError(
        f"{what} is {value!r}; give one number, [height, width], or [1, height, width, 1]"
    )


def _window(strides: Any, padding: Any, data_format: str) -> dict[str, Any]:
    if data_format != "NHWC":
        raise errors.InvalidArgumentError(
            f"data_format is '{data_format}'; images are [batch, height, width, channels], 'NHWC'"
        )
    attrs: dict[str, Any] = {"strides": _pair(strides, "strides")}
    if isinstance(padding, str):
        if padding.upper() not in ("SAME", "VALID"):
            raise errors.InvalidArgumentError(
                f"padding is '{padding}'; it must be 'SAME', 'VALID' or a list of paddings"
            )
        return {**attrs, "padding": padding.lower()}
    pads = [[int(x) for x in pair] for pair in padding]
    if len(pads) == 4 and pads[0] == pads[3] == [0, 0]:
        pads = pads[1:3]
    if len(pads) != 2 or any(len(pair) != 2 for pair in pads):
        raise errors.InvalidArgumentError(
            f"padding is {padding!r}; give [[0, 0], [top, bottom], [left, right], [0, 0]]"
        )
    return {**attrs, "padding": "explicit", "explicit_paddings": [*pads[0], *pads[1]]}


def conv2d(
    input: Any, filters: Any, strides: Any = 1, padding: str | Sequence[Any] = "VALID",
    data_format: str = "NHWC", dilations: Any = 1, name: str | None = None,
) -> Any:  # fmt: skip
    """Images [batch, height, width, in] convolved by filters [height, width, in, out]
    (tf.nn.conv2d). `padding`: "SAME", "VALID", or
    [[0, 0], [top, bottom], [left, right], [0, 0]]."""
    attrs = _window(strides, padding, data_format)
    attrs["dilations"] = _pair(dilations, "dilations")
    return apply("Conv2D", align(input, filters), attrs, name=name)


def depthwise_conv2d(
    input: Any, filter: Any, strides: Any = 1, padding: str | Sequence[Any] = "VALID",
    data_format: str = "NHWC", dilations: Any = 1, name: str | None = None,
) -> Any:  # fmt: skip
    """Each channel of images convolved by filters of its own [height, width, in, multiplier]; the
    result has in * multiplier channels (tf.nn.depthwise_conv2d)."""
    attrs = _window(strides, padding, data_format)
    attrs["dilations"] = _pair(dilations, "dilations")
    return apply("DepthwiseConv2D", align(input, filter), attrs, name=name)


def max_pool2d(
    input: Any, ksize: Any, strides: Any, padding: str | Sequence[Any] = "VALID",
    data_format: str = "NHWC", name: str | None = None,
) -> Any:  # fmt: skip
    """The greatest elements under a window of `ksize` that moves by `strides` (tf.nn.max_pool2d);
    the gradient goes to the first of equals."""
    return max_pool_with_argmax(input, ksize, strides, padding, data_format, name)[0]


def max_pool_with_argmax(
    input: Any, ksize: Any, strides: Any, padding: str | Sequence[Any] = "VALID",
    data_format: str = "NHWC", name: str | None = None,
) -> tuple[Any, Any]:  # fmt: skip
    """max_pool2d(), and the int64 indices of the elements in the flat input
    (tf.nn.max_pool_with_argmax with include_batch_in_index)."""
    attrs = {**_window(strides, padding, data_format), "ksize": _pair(ksize, "ksize")}
    values, argmax = apply("MaxPool", (convert(input),), attrs, name=name)
    return values, argmax


def avg_pool2d(
    input: Any, ksize: Any, strides: Any, padding: str | Sequence[Any] = "VALID",
    data_format: str = "NHWC", name: str | None = None,
) -> Any:  # fmt: skip
    """The means of the elements under a window of `ksize` that moves by `strides`; padding does not
    count (tf.nn.avg_pool2d)."""
    attrs = {**_window(strides, padding, data_format), "ksize": _pair(ksize, "ksize")}
    return apply("AvgPool", (convert(input),), attrs, name=name)


max_pool = max_pool2d
avg_pool = avg_pool2d
