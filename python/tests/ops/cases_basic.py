"""Cases of the ops that models were first built of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from case import Case

NAN_INF = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0])


def normal(*shapes: tuple[int, ...]) -> Callable[[np.random.Generator], list[np.ndarray]]:
    return lambda rng: [rng.normal(size=shape) for shape in shapes]


def positive(*shapes: tuple[int, ...]) -> Callable[[np.random.Generator], list[np.ndarray]]:
    return lambda rng: [rng.uniform(0.5, 2.0, size=shape) for shape in shapes]


def apart(*shapes: tuple[int, ...]) -> Callable[[np.random.Generator], list[np.ndarray]]:
    """Numbers away from 0, and inputs away from each other."""

    def make(rng: np.random.Generator) -> list[np.ndarray]:
        signs = [np.sign(rng.normal(size=shape)) for shape in shapes]
        return [sign * rng.uniform(0.1 + i, 0.9 + i, sign.shape) for i, sign in enumerate(signs)]

    return make


def values(*arrays: Any) -> Callable[[np.random.Generator], list[np.ndarray]]:
    return lambda rng: [np.asarray(array) for array in arrays]


def torch_function(name: str) -> Callable[..., Any]:
    def call(*tensors: Any) -> Any:
        import torch

        found = torch
        for part in name.split("."):
            found = getattr(found, part)
        return found(*tensors)

    return call


def binary(numpy: Any, torch: str, inputs: Any = normal) -> list[Case]:
    function = torch_function(torch)
    return [
        Case(inputs((3, 4), (3, 4)), numpy=numpy, torch=function, grad=[0, 1], name="same"),
        Case(inputs((2, 3, 4), (3, 1)), numpy=numpy, torch=function, grad=[0, 1], name="broadcast"),
        Case(inputs((4,), (2, 1, 4)), numpy=numpy, torch=function, grad=[0, 1], name="left"),
        Case(inputs((), (5,)), numpy=numpy, torch=function, grad=[0, 1], name="scalar"),
        Case(inputs((), ()), numpy=numpy, torch=function, grad=[0, 1], name="scalars"),
        Case(inputs((0, 3), (3,)), numpy=numpy, name="empty"),
        Case(values(NAN_INF[:, None], NAN_INF[None, :]), numpy=numpy, name="nan_inf"),
    ]


def unary(numpy: Any, torch: str, inputs: Any = normal, special: Any = NAN_INF) -> list[Case]:
    function = torch_function(torch)
    return [
        Case(inputs((3, 5)), numpy=numpy, torch=function, grad=[0], name="matrix"),
        Case(inputs((33,)), numpy=numpy, torch=function, grad=[0], name="odd"),
        Case(inputs(()), numpy=numpy, torch=function, grad=[0], name="scalar"),
        Case(inputs((0,)), numpy=numpy, name="empty"),
        Case(values(special), numpy=numpy, name="nan_inf"),
    ]


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.where(
        x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x)))
    )


def softplus(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def cross_entropy(x: np.ndarray, z: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0) - x * z + np.log1p(np.exp(-np.abs(x)))


def cross_entropy_torch(x: Any, z: Any) -> Any:
    import torch

    return torch.nn.functional.binary_cross_entropy_with_logits(x, z, reduction="none")


def fm(x: np.ndarray) -> np.ndarray:
    return 0.5 * (x.sum(1) ** 2 - (x**2).sum(1)).sum(1, keepdims=True)


def fm_torch(x: Any) -> Any:
    return 0.5 * (x.sum(1) ** 2 - (x**2).sum(1)).sum(1, keepdim=True)


def matmul_cases() -> list[Case]:
    out = []
    for ta in (False, True):
        for tb in (False, True):
            shape_a = (4, 3) if ta else (3, 4)
            shape_b = (5, 4) if tb else (4, 5)

            def product(a: Any, b: Any, ta: bool = ta, tb: bool = tb) -> Any:
                return (a.T if ta else a) @ (b.T if tb else b)

            out.append(
                Case(
                    normal(shape_a, shape_b),
                    {"transpose_a": ta, "transpose_b": tb},
                    product,
                    product,
                    grad=[0, 1],
                    name=f"{'t' if ta else 'n'}{'t' if tb else 'n'}",
                    atol=1e-6,
                    exact=False,
                )
            )
    out.append(Case(normal((0, 4), (4, 2)), numpy=lambda a, b: a @ b, name="no_rows"))
    out.append(Case(normal((3, 0), (0, 2)), numpy=lambda a, b: a @ b, name="no_inner"))
    return out


def reduction(function: Any, torch: str) -> list[Case]:

    def case(
        axes: list[int], keep: bool, shape: tuple[int, ...], name: str, grad: bool = True
    ) -> Case:
        axis = tuple(axes) if axes else None

        def call(x: Any) -> Any:
            return function(x, axis=axis, keepdims=keep)

        def reference(x: Any) -> Any:
            return torch_function(torch)(x, list(axes) or list(range(x.ndim)), keep)

        return Case(
            normal(shape),
            {"axes": axes, "keep_dims": keep},
            call,
            reference,
            grad=[0] if grad else [],
            name=name,
            atol=1e-6,
        )

    return [
        case([1], False, (3, 4, 2), "middle"),
        case([-1, 0], True, (3, 4, 2), "keep"),
        case([], False, (3, 4), "all"),
        case([0], False, (5,), "vector"),
        case([0], True, (4, 0), "empty_kept", grad=False),
    ]


def concat_torch(*parts: Any) -> Any:
    import torch

    return torch.cat(parts, dim=1)


def dropped(inputs: Any, outputs: Any) -> None:
    x, y = inputs[0], outputs[0]
    kept = y != 0
    np.testing.assert_allclose(y[kept], (x / 0.75)[kept], rtol=1e-6)
    assert 0.6 < kept.mean() < 0.9


def identity(x: np.ndarray) -> np.ndarray:
    return x


CASES: dict[str, list[Case]] = {
    "Identity": [Case(normal((2, 3)), numpy=identity, grad=[0]), Case(normal(()), numpy=identity)],
    "StopGradient": [Case(normal((2, 3)), numpy=identity)],
    "Add": binary(np.add, "add"),
    "Sub": binary(np.subtract, "sub"),
    "Mul": binary(np.multiply, "mul"),
    "Div": binary(np.divide, "div", positive),
    "Maximum": binary(np.maximum, "maximum", apart)[:-1],
    "Minimum": binary(np.minimum, "minimum", apart)[:-1],
    "Neg": unary(np.negative, "neg"),
    "Exp": unary(np.exp, "exp"),
    "Log": unary(np.log, "log", positive),
    "Log1p": unary(np.log1p, "log1p", positive),
    "Sqrt": unary(np.sqrt, "sqrt", positive),
    "Square": unary(np.square, "square"),
    "Abs": unary(np.abs, "abs", apart),
    "Sign": [Case(normal((3, 5)), numpy=np.sign), Case(values([0.0, -2.0, 3.0]), numpy=np.sign)],
    "Sigmoid": unary(sigmoid, "sigmoid", special=NAN_INF[1:]),
    "Tanh": unary(np.tanh, "tanh"),
    "Relu": unary(lambda x: np.maximum(x, 0), "relu", apart, special=NAN_INF[1:]),
    "Softplus": unary(softplus, "nn.functional.softplus", special=NAN_INF[3:]),
    "OnesLike": [Case(normal((2, 3)), numpy=np.ones_like), Case(normal((0,)), numpy=np.ones_like)],
    "ZerosLike": [Case(normal((2, 3)), numpy=np.zeros_like), Case(normal(()), numpy=np.zeros_like)],
    "ReluGrad": [Case(normal((4, 3), (4, 3)), numpy=lambda dy, y: np.where(y > 0, dy, 0))],
    "SigmoidGrad": [Case(normal((4, 3), (4, 3)), numpy=lambda dy, y: dy * y * (1 - y))],
    "TanhGrad": [Case(normal((4, 3), (4, 3)), numpy=lambda dy, y: dy * (1 - y * y), atol=1e-6)],
    "AddN": [
        Case(normal((3,), (3,), (3,)), numpy=lambda *xs: sum(xs), grad=[0, 1, 2], atol=1e-6),
        Case(normal((2, 2)), numpy=identity, grad=[0], name="one"),
    ],
    "SumToShapeOf": [
        Case(normal((2, 3, 4), (3, 1)), numpy=lambda g, x: g.sum((0, 2))[:, None], atol=1e-6),
        Case(normal((2, 3), (2, 3)), numpy=lambda g, x: g, name="same"),
    ],
    "Cast": [
        Case(normal((3, 3)), {"dtype": "float64"}, lambda x: x.astype("float64"), grad=[0]),
        Case(values([1.7, -1.7, 0.0]), {"dtype": "int32"}, lambda x: x.astype("int32"), name="int"),
        Case(values(np.array([1, 0, -3])), {"dtype": "float32"}, lambda x: x.astype("float32"),
             dtypes=[], name="from_int"),
    ],
    "ReduceSum": reduction(np.sum, "sum"),
    "ReduceMean": reduction(np.mean, "mean"),
    "BroadcastAxes": [
        Case(normal((3,), (2, 3)), {"axes": [0], "mean": True},
             lambda g, x: np.broadcast_to(g / 2, (2, 3))),
        Case(normal((2, 1), (2, 3)), {"axes": [1], "keep_dims": True},
             lambda g, x: np.broadcast_to(g, (2, 3)), name="keep"),
    ],
    "Reshape": [
        Case(normal((2, 6)), {"shape": [3, 4]}, lambda x: x.reshape(3, 4),
             lambda x: x.reshape(3, 4), grad=[0]),
        Case(normal((2, 6)), {"shape": [0, -1, 2]}, lambda x: x.reshape(2, 3, 2), grad=[0],
             name="copy"),
        Case(normal((1,)), {"shape": []}, lambda x: x.reshape(()), name="to_scalar"),
    ],
    "ReshapeLike": [
        Case(normal((2, 6), (4, 3)), numpy=lambda x, like: x.reshape(4, 3), grad=[0]),
    ],
    "Concat": [
        Case(normal((2, 1), (2, 3), (2, 2)), {"axis": 1},
             lambda *xs: np.concatenate(xs, axis=1), concat_torch, name="columns"),
        Case(normal((2, 3), (1, 3)), {"axis": 0}, lambda *xs: np.concatenate(xs), name="rows"),
        # The gradient needs known extents.
        Case(normal((2, 3), (1, 3)), {"axis": 0}, lambda *xs: np.concatenate(xs), grad=[0, 1],
             unknown=False, name="gradient"),
        Case(normal((0, 3), (2, 3)), {"axis": -2}, lambda *xs: np.concatenate(xs), name="empty"),
    ],
    "SliceAxis": [
        Case(normal((3, 5)), {"axis": 1, "begin": 1, "size": 3}, lambda x: x[:, 1:4]),
        Case(normal((3, 5)), {"axis": 1, "begin": 1, "size": 3}, lambda x: x[:, 1:4], grad=[0],
             unknown=False, name="gradient"),
        Case(normal((3, 5)), {"axis": -2, "begin": 3, "size": 0}, lambda x: x[3:3], name="none"),
    ],
    "PadAxis": [
        Case(normal((3, 2)), {"axis": 0, "before": 1, "after": 2},
             lambda x: np.pad(x, ((1, 2), (0, 0)))),
        Case(normal((3, 2)), {"axis": 0, "before": 1, "after": 2},
             lambda x: np.pad(x, ((1, 2), (0, 0))), grad=[0], unknown=False, name="gradient"),
    ],
    "MatMul": matmul_cases(),
    "BiasAdd": [
        Case(normal((3, 4), (4,)), numpy=np.add, torch=torch_function("add"), grad=[0, 1]),
        Case(normal((2, 3, 4), (4,)), numpy=np.add, grad=[0, 1], name="rank3"),
    ],
    "BiasAddGrad": [Case(normal((2, 3, 4)), numpy=lambda g: g.sum((0, 1)), atol=1e-6)],
    "SigmoidCrossEntropyWithLogits": [
        Case(lambda rng: [3 * rng.normal(size=(4, 2)), rng.random((4, 2))],
             numpy=cross_entropy, torch=cross_entropy_torch, grad=[0]),
        Case(values([200.0, -200.0, 0.0], [1.0, 0.0, 1.0]), numpy=cross_entropy, name="large"),
    ],
    "SigmoidCrossEntropyGrad": [
        Case(normal((3,), (3,), (3,)), numpy=lambda dy, x, z: dy * (sigmoid(x) - z), atol=1e-6),
    ],
    "FmInteraction": [
        Case(normal((3, 4, 2)), numpy=fm, torch=fm_torch, grad=[0], atol=1e-5),
        Case(normal((2, 1, 3)), numpy=fm, name="one_field", atol=1e-5),
    ],
    "FmInteractionGrad": [
        Case(normal((3, 1), (3, 4, 2)), atol=1e-5,
             numpy=lambda dy, x: dy[:, :, None] * (x.sum(1, keepdims=True) - x)),
    ],
    "Dropout": [
        Case(normal((3, 4)), {"rate": 0.5, "seed": 1, "training": False}, identity, grad=[0],
             name="not_training"),
        Case(normal((100, 10)), {"rate": 0.25, "seed": 1, "training": True}, check=dropped,
             name="training"),
    ],
    "Unique": [
        Case(values(np.array([5, 3, 5, -1, 3, 9])), dtypes=[],
             numpy=lambda ids: (np.array([5, 3, 9]), np.array([0, 1, 0, -1, 1, 2], np.int32))),
    ],
}
