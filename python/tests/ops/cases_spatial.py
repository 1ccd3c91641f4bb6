"""Cases of convolution and pooling."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from case import Case

FLOATS = ["float32", "float64", "float16", "bfloat16"]

Inputs = Callable[[np.random.Generator], Sequence[Any]]


def normal(*shapes: tuple[int, ...]) -> Inputs:
    return lambda rng: [rng.normal(size=shape) for shape in shapes]


class Window:
    """Places of a window over images, from the attributes of an op."""

    def __init__(self, attrs: Mapping[str, Any], image: tuple[int, ...], kernel: Sequence[int]):
        self.strides = attrs.get("strides", [1, 1])
        self.dilations = attrs.get("dilations", [1, 1])
        self.kernel = kernel
        self.image = image
        self.out, self.before = [], []
        for i in range(2):
            n, stride = image[1 + i], self.strides[i]
            reach = (kernel[i] - 1) * self.dilations[i] + 1
            if attrs["padding"] == "same":
                out = -(-n // stride)
                before = max((out - 1) * stride + reach - n, 0) // 2
            else:
                pads = attrs.get("explicit_paddings", [0, 0, 0, 0])[2 * i : 2 * i + 2]
                out, before = (n + sum(pads) - reach) // stride + 1, pads[0]
            self.out.append(out)
            self.before.append(before)

    def pixels(self) -> Any:
        """(y, x of the result, i, j of the window, row, column of the image) on the image."""
        for y in range(self.out[0]):
            for x in range(self.out[1]):
                for i in range(self.kernel[0]):
                    for j in range(self.kernel[1]):
                        row = y * self.strides[0] + i * self.dilations[0] - self.before[0]
                        column = x * self.strides[1] + j * self.dilations[1] - self.before[1]
                        if 0 <= row < self.image[1] and 0 <= column < self.image[2]:
                            yield y, x, i, j, row, column


def convolved(attrs: Mapping[str, Any], depthwise: bool = False) -> Callable[..., np.ndarray]:
    def numpy(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        window = Window(attrs, x.shape, w.shape[:2])
        channels = w.shape[2] * w.shape[3] if depthwise else w.shape[3]
        out = np.zeros((x.shape[0], *window.out, channels))
        for y, c, i, j, row, column in window.pixels():
            pixel = x[:, row, column].astype(np.float64)
            if depthwise:
                out[:, y, c] += (pixel[:, :, None] * w[i, j]).reshape(len(x), -1)
            else:
                out[:, y, c] += pixel @ w[i, j]
        return out.astype(x.dtype)

    return numpy


def adjoint(attrs: Mapping[str, Any], of: str, depthwise: bool) -> Callable[..., np.ndarray]:
    """The gradient of a convolution by its images or filters, from its definition."""

    def numpy(dy: np.ndarray, other: np.ndarray, like: np.ndarray) -> np.ndarray:
        x, w = (like, other) if of == "input" else (other, like)
        window = Window(attrs, x.shape, w.shape[:2])
        out = np.zeros(like.shape)
        for y, c, i, j, row, column in window.pixels():
            g = dy[:, y, c].astype(np.float64)
            if depthwise:
                g = g.reshape(len(x), w.shape[2], w.shape[3])
            pixel = x[:, row, column]
            if of == "input":
                out[:, row, column] += (g * w[i, j]).sum(-1) if depthwise else g @ w[i, j].T
            else:
                out[i, j] += (pixel[:, :, None] * g).sum(0) if depthwise else pixel.T @ g
        return out.astype(like.dtype)

    return numpy


def torch_conv(**how: Any) -> Callable[..., Any]:
    def function(x: Any, w: Any) -> Any:
        import torch

        y = torch.nn.functional.conv2d(x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1), **how)
        return y.permute(0, 2, 3, 1)

    return function


ATTRS: dict[str, tuple[dict[str, Any], tuple[int, ...], tuple[int, ...], Any]] = {
    "valid": ({"padding": "valid"}, (2, 5, 6, 3), (3, 2, 3, 4), torch_conv()),
    "same": ({"padding": "same"}, (2, 5, 6, 3), (3, 3, 3, 2), torch_conv(padding=1)),
    "same_even": ({"padding": "same", "strides": [2, 2]}, (1, 5, 6, 2), (2, 4, 2, 3), None),
    "strides": ({"padding": "valid", "strides": [2, 3]}, (2, 6, 7, 2), (3, 2, 2, 3),
                torch_conv(stride=(2, 3))),
    "dilations": ({"padding": "valid", "dilations": [2, 1]}, (1, 7, 5, 2), (3, 2, 2, 3),
                  torch_conv(dilation=(2, 1))),
    "same_dilated": ({"padding": "same", "dilations": [2, 3]}, (1, 6, 7, 1), (3, 2, 1, 2), None),
    "explicit": ({"padding": "explicit", "explicit_paddings": [2, 1, 0, 3]}, (1, 4, 5, 2), (3, 2,
         2, 3),
                 None),
    "pointwise": ({"padding": "valid"}, (2, 3, 4, 3), (1, 1, 3, 5), torch_conv()),
}  # fmt: skip


def conv_cases() -> list[Case]:
    cases = [
        Case(normal(image, filters), attrs, numpy=convolved(attrs), torch=torch, grad=[0, 1],
             name=name,
             rtol=1e-5 if name != "valid" else None, atol=1e-5)
        for name, (attrs, image, filters, torch) in ATTRS.items()
    ]  # fmt: skip
    attrs, image, filters, _ = ATTRS["same"]
    cases.append(
        Case(normal(image, filters), attrs, numpy=convolved(attrs), dtypes=["float16", "bfloat16"],
             rtol=3e-2, atol=5e-2, name="half")
    )  # fmt: skip
    cases.append(
        Case(normal((0, 4, 4, 2), (2, 2, 2, 3)), {"padding": "valid"}, name="empty",
             numpy=lambda x, w: np.zeros((0, 3, 3, 3), x.dtype))
    )  # fmt: skip
    return cases


def adjoint_cases(of: str, depthwise: bool) -> list[Case]:
    cases = []
    for name in ("same", "strides", "dilations"):
        attrs, image, filters, _ = ATTRS[name]
        out = Window(attrs, image, filters[:2]).out
        channels = filters[2] * filters[3] if depthwise else filters[3]
        dy = (image[0], *out, channels)
        shapes = (dy, filters, image) if of == "input" else (dy, image, filters)
        function = adjoint(attrs, of, depthwise)
        cases.append(
            Case(normal(*shapes), attrs, numpy=function, grad=[0, 1], name=name, rtol=1e-5,
                 atol=1e-5)
        )
    return cases


def depthwise_cases() -> list[Case]:
    return [
        Case(normal(image, filters), attrs, numpy=convolved(attrs, True), grad=[0, 1], name=name,
             rtol=1e-5, atol=1e-5)
        for name, (attrs, image, filters, _) in ATTRS.items()
    ]  # fmt: skip


# --- Pooling.


def pooled(attrs: Mapping[str, Any], most: bool) -> Callable[[np.ndarray], Any]:
    def numpy(x: np.ndarray) -> Any:
        window = Window(attrs, x.shape, attrs["ksize"])
        shape = (x.shape[0], *window.out, x.shape[3])
        places = np.arange(x.size).reshape(x.shape)
        out = np.full(shape, -np.inf) if most else np.zeros(shape)
        argmax = np.zeros(shape, np.int64)
        count = np.zeros((1, *window.out, 1))
        for y, c, _, _, row, column in window.pixels():
            value = x[:, row, column].astype(np.float64)
            if most:
                greater = value > out[:, y, c]
                out[:, y, c] = np.where(greater, value, out[:, y, c])
                argmax[:, y, c] = np.where(greater, places[:, row, column], argmax[:, y, c])
            else:
                out[:, y, c] += value
                count[0, y, c] += 1
        if most:
            return out.astype(x.dtype), argmax
        return (out / count).astype(x.dtype)

    return numpy


POOLS: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "valid": ({"ksize": [2, 2], "strides": [2, 2], "padding": "valid"}, (2, 5, 6, 3)),
    "same": ({"ksize": [3, 2], "strides": [2, 1], "padding": "same"}, (2, 5, 6, 2)),
    "explicit": (
        {"ksize": [3, 3], "padding": "explicit", "explicit_paddings": [1, 1, 0, 2]}, (1, 4, 4, 2)
    ),
}  # fmt: skip


def distinct(*shape: int) -> Inputs:
    def make(rng: np.random.Generator) -> list[np.ndarray]:
        size = int(np.prod(shape))
        return [(rng.permutation(size).reshape(shape) - size / 2) / 8]

    return make


def pool_cases(most: bool) -> list[Case]:
    return [
        Case(distinct(*image), attrs, numpy=pooled(attrs, most), grad=[0], name=name,
             dtypes=FLOATS if name == "valid" else ["float32", "float64"],
             rtol=None if most else 2e-2 if name == "valid" else 1e-6)
        for name, (attrs, image) in POOLS.items()
    ]  # fmt: skip


def spread_cases() -> list[Case]:
    def function(attrs: Mapping[str, Any]) -> Callable[..., np.ndarray]:
        def numpy(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
            window = Window(attrs, x.shape, attrs["ksize"])
            pixels = list(window.pixels())
            counts: dict[tuple[int, int], int] = {}
            for y, c, *_ in pixels:
                counts[y, c] = counts.get((y, c), 0) + 1
            out = np.zeros(x.shape)
            for y, c, _, _, row, column in pixels:
                out[:, row, column] += dy[:, y, c] / counts[y, c]
            return out.astype(x.dtype)

        return numpy

    cases = []
    for name, (attrs, image) in POOLS.items():
        out = Window(attrs, image, attrs["ksize"]).out
        inputs = normal((image[0], *out, image[3]), image)
        cases.append(Case(inputs, attrs, numpy=function(attrs), grad=[0], name=name, rtol=1e-5))
    return cases


CASES: dict[str, list[Case]] = {
    "Conv2D": conv_cases(),
    "Conv2DGradInput": adjoint_cases("input", False),
    "Conv2DGradFilter": adjoint_cases("filter", False),
    "DepthwiseConv2D": depthwise_cases(),
    "DepthwiseConv2DGradInput": adjoint_cases("input", True),
    "DepthwiseConv2DGradFilter": adjoint_cases("filter", True),
    "MaxPool": pool_cases(True),
    "AvgPool": pool_cases(False),
    "AvgPoolGrad": spread_cases(),
}
