"""Cases of softmax, losses and normalisation."""

from __future__ import annotations

from typing import Any

import numpy as np
from case import Case
from cases_basic import fm, normal, torch_function, values
from cases_math import ALL_FLOATS


def softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def log_softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    shifted = x - np.max(x, axis=axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))


def along_axis(numpy: Any, torch: str) -> list[Case]:
    out = [
        Case(normal((3, 4, 5)), {"axis": axis}, lambda x, axis=axis: numpy(x, axis),
             lambda x, axis=axis: torch_function(torch)(x, axis), ALL_FLOATS, [0], f"axis{axis}",
             atol=1e-6)
        for axis in (-1, 0, 1)
    ]
    out += [
        Case(normal((70,)), {}, numpy, grad=[0], name="default", atol=1e-6),
        Case(normal((2, 0)), {"axis": -1}, lambda x: x, name="no_classes"),
        Case(normal((0, 3)), {"axis": -1}, lambda x: x, name="no_rows"),
        Case(values([[1000.0, -1000.0, 999.0], [-1e4, -1e4, -1e4]]), {}, numpy, name="large"),
        Case(values([[0.0, -np.inf, 1.0]]), {}, numpy, name="minus_inf"),
        Case(values([[0.0, np.nan, 1.0], [1.0, 2.0, 3.0]]), {}, numpy, name="nan"),
    ]
    return out


def softmax_grad(dy: np.ndarray, y: np.ndarray) -> np.ndarray:
    return y * (dy - (dy * y).sum(-1, keepdims=True))


def sparse_inputs(shape: tuple[int, ...], classes: int, dtype: str) -> Any:
    return lambda rng: [rng.normal(size=(*shape, classes)),
                        rng.integers(0, classes, size=shape).astype(dtype)]


def sparse_loss(x: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    one_hot = np.eye(x.shape[-1], dtype=x.dtype)[labels]
    return -(log_softmax(x) * one_hot).sum(-1), softmax(x) - one_hot


def sparse_loss_torch(x: Any, labels: Any) -> Any:
    import torch

    flat = x.reshape(-1, x.shape[-1])
    loss = torch.nn.functional.cross_entropy(flat, labels.reshape(-1).long(), reduction="none")
    one_hot = torch.nn.functional.one_hot(labels.long(), x.shape[-1])
    return loss.reshape(labels.shape), torch.softmax(x, -1) - one_hot


def distributions(*shape: int) -> Any:
    return lambda rng: [rng.normal(size=shape), softmax(rng.normal(size=shape))]


def dense_loss(x: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return -(log_softmax(x) * z).sum(-1), softmax(x) * z.sum(-1, keepdims=True) - z


def dense_loss_torch(x: Any, z: Any) -> Any:
    import torch

    return (-(torch.log_softmax(x, -1) * z).sum(-1),
            torch.softmax(x, -1) * z.sum(-1, keepdim=True) - z)


def layer_norm(x: np.ndarray, scale: np.ndarray, offset: np.ndarray) -> Any:
    mean = x.mean(-1, keepdims=True)
    rstd = 1 / np.sqrt(x.var(-1, keepdims=True) + 1e-3)
    return (x - mean) * rstd * scale + offset, mean[..., 0], rstd[..., 0]


def batch_norm(x: np.ndarray, scale: np.ndarray, offset: np.ndarray) -> Any:
    axes = tuple(range(x.ndim - 1))
    mean, variance = x.mean(axes), x.var(axes)
    return (x - mean) / np.sqrt(variance + 1e-3) * scale + offset, mean, variance


def norm_grad_inputs(layer: bool) -> Any:
    def make(rng: np.random.Generator) -> list[np.ndarray]:
        dy, x = rng.normal(size=(2, 5, 4))
        scale = rng.normal(size=4)
        _, first, second = (layer_norm if layer else batch_norm)(x, scale, scale)
        return [dy, x, scale, first, second]

    return make


def layer_norm_grad(dy: Any, x: Any, scale: Any, mean: Any, rstd: Any) -> Any:
    hat = (x - mean[:, None]) * rstd[:, None]
    g = dy * scale
    dx = rstd[:, None] * (g - g.mean(-1, keepdims=True) - hat * (g * hat).mean(-1, keepdims=True))
    return dx, (dy * hat).sum(0), dy.sum(0)


def batch_norm_grad(dy: Any, x: Any, scale: Any, mean: Any, variance: Any) -> Any:
    rstd = 1 / np.sqrt(variance + 1e-3)
    hat = (x - mean) * rstd
    dx = scale * rstd * (dy - dy.mean(0) - hat * (dy * hat).mean(0))
    return dx, (dy * hat).sum(0), dy.sum(0)



def norm_cases(numpy: Any) -> list[Case]:
    shapes = [((6, 5), "matrix"), ((2, 3, 70), "rank3"), ((2, 2, 3, 4), "rank4")]
    out = [Case(normal(shape, shape[-1:], shape[-1:]), {}, numpy, grad=[0, 1, 2], name=name,
                grad_outputs=[0], atol=1e-5) for shape, name in shapes]
    out.append(Case(normal((700, 3), (3,), (3,)), {"epsilon": 1e-3}, numpy, name="tall", atol=1e-5))
    out.append(Case(lambda rng: [1e3 + rng.normal(size=(8, 9)), *normal((9,), (9,))(rng)], {},
                    numpy, dtypes=["float64"], name="far_from_0", rtol=1e-8))
    return out


def halves(numpy: Any) -> Any:
    def check(inputs: Any, outputs: Any) -> None:
        wanted = numpy(*[np.asarray(x, np.float32) for x in inputs])
        for got, want in zip(outputs, wanted):
            np.testing.assert_allclose(got, want, rtol=3e-2, atol=6e-2)

    return check


def cross_entropy_grad(dy: np.ndarray, x: np.ndarray, z: np.ndarray) -> np.ndarray:
    return dy * (1 / (1 + np.exp(-x)) - z)


def fm_grad(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
    return dy[:, :, None] * (x.sum(1, keepdims=True) - x)


CASES: dict[str, list[Case]] = {
    "Softmax": along_axis(softmax, "softmax"),
    "LogSoftmax": along_axis(log_softmax, "log_softmax"),
    "SoftmaxGrad": [
        Case(normal((3, 5), (3, 5)), {}, softmax_grad, dtypes=ALL_FLOATS, grad=[0, 1], atol=6e-2),
        Case(normal((3, 70, 2), (3, 70, 2)), {"axis": 1},
             lambda dy, y: y * (dy - (dy * y).sum(1, keepdims=True)), grad=[0, 1], name="middle",
             atol=1e-5),
    ],
    "SparseSoftmaxCrossEntropyWithLogits": [
        Case(sparse_inputs((4,), 3, "int32"), {}, sparse_loss, sparse_loss_torch, ALL_FLOATS, [0],
             "int32", atol=1e-2),
        Case(sparse_inputs((2, 3), 70, "int64"), {}, sparse_loss, sparse_loss_torch, grad=[0],
             name="int64", atol=1e-5),
        Case(sparse_inputs((), 4, "int64"), {}, sparse_loss, grad=[0], name="scalar_label",
             atol=1e-6),
        Case(sparse_inputs((0,), 4, "int64"), {}, sparse_loss, name="empty"),
        Case(values([[1000.0, 0.0], [0.0, 1000.0]], np.array([0, 0])), {}, sparse_loss,
             name="large"),
    ],
    "SoftmaxCrossEntropyWithLogits": [
        Case(distributions(4, 3), {}, dense_loss, dense_loss_torch, ALL_FLOATS, [0, 1], "matrix",
             atol=2e-2),
        Case(distributions(2, 3, 70), {}, dense_loss, dense_loss_torch, grad=[0, 1], name="rank3",
             atol=1e-5),
        Case(normal((4, 3), (4, 3)), {}, dense_loss, grad=[0, 1], name="not_distributions",
             atol=1e-5),
        Case(distributions(0, 3), {}, dense_loss, name="empty"),
    ],
    "LayerNorm": [
        *norm_cases(layer_norm),
        Case(normal((6, 5), (5,), (5,)), {}, check=halves(layer_norm),
             dtypes=["float16", "bfloat16"], name="halves"),
    ],
    "BatchNorm": [
        *norm_cases(batch_norm),
        Case(normal((6, 5), (5,), (5,)), {}, check=halves(batch_norm),
             dtypes=["float16", "bfloat16"], name="halves"),
    ],
    # By x, their gradients take the statistics for functions of x: see test_second_derivatives.py.
    "LayerNormGrad": [
        Case(norm_grad_inputs(True), {}, layer_norm_grad, atol=1e-5, grad=[0, 2]),
    ],
    "BatchNormGrad": [
        Case(norm_grad_inputs(False), {}, batch_norm_grad, atol=1e-5, grad=[0, 2]),
    ],
    "BiasAddGrad": [Case(normal((2, 3, 4)), {}, lambda g: g.sum((0, 1)), dtypes=ALL_FLOATS,
                         grad=[0], name="gradient", atol=5e-2)],
    "BiasAdd": [Case(normal((2, 3, 4), (4,)), {}, np.add, dtypes=["float16", "bfloat16"],
                     name="halves")],
    "SigmoidCrossEntropyGrad": [
        Case(normal((3, 4), (3, 4), (3, 4)), {}, cross_entropy_grad, dtypes=ALL_FLOATS,
             grad=[0, 1, 2], name="gradient", atol=5e-2),
    ],
    "SigmoidCrossEntropyWithLogits": [
        Case(lambda rng: [rng.normal(size=(4, 2)), rng.random((4, 2))], {},
             lambda x, z: np.maximum(x, 0) - x * z + np.log1p(np.exp(-np.abs(x))),
             lambda x, z: torch_function("nn.functional.softplus")(x) - x * z, ALL_FLOATS, [0, 1],
             "labels", atol=1e-2),
    ],
    "FmInteraction": [Case(normal((3, 4, 2)), {}, fm, dtypes=["float16", "bfloat16"],
                           name="halves", atol=6e-2)],
    "FmInteractionGrad": [
        Case(normal((3, 1), (3, 4, 2)), {}, fm_grad, dtypes=ALL_FLOATS, grad=[0, 1],
             name="gradient", atol=6e-2),
    ],
}
