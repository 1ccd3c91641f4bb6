"""Gradients of gradients: rules are made of ops that have rules themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from case import Case, as_tuple
from test_ops import CASES, seeds_for

import sidereal as sr
from sidereal import _dispatch

#: Ops whose gradients end in a fused op without a rule, or draw.
FIRST_ONLY = {
    "Digamma": "the derivative of trigamma is not there",
    "ProdGrad": "ProdGradGrad is exact where elements are 0, and fused",
}


def _first_cases() -> list[Any]:
    out = []
    for op, group in CASES.items():
        for case in group:
            if case.grad and op not in FIRST_ONLY and case.numpy is not None:
                out.append(pytest.param(op, case, id=op))
                break
    return out


def first(op: str, case: Case, inputs: list[sr.Tensor]) -> tuple[list[Any], list[Any]]:
    with sr.GradientTape() as tape:
        for index in case.grad:
            tape.watch(inputs[index])
        outputs = as_tuple(_dispatch.apply(op, inputs, dict(case.attrs)))
        seeds = seeds_for(case, outputs)
        loss = sr.add_n([
            sr.reduce_sum(sr.multiply(sr.multiply(output, output), seed))
            for output, seed in zip(outputs, seeds) if seed is not None
        ])
    wanted = [inputs[index] for index in case.grad]
    return tape.gradient(loss, wanted, unconnected_gradients="zero"), wanted


def along(op: str, case: Case, arrays: list[np.ndarray], weights: list[np.ndarray]) -> float:
    grads, _ = first(op, case, [sr.constant(array) for array in arrays])
    return sum(float(np.sum(sr.convert_to_tensor(g).numpy() * w)) for g, w in zip(grads, weights))


@pytest.mark.parametrize(("op", "case"), _first_cases())
def test_second_derivatives_are_finite_differences(op: str, case: Case) -> None:
    arrays = case.make("float64")
    rng = np.random.default_rng(6)
    weights = [rng.normal(size=arrays[index].shape) for index in case.grad]
    with sr.GradientTape() as outer:
        inputs = [sr.constant(array) for array in arrays]
        for index in case.grad:
            outer.watch(inputs[index])
        grads, wanted = first(op, case, inputs)
        total = sr.add_n([
            sr.reduce_sum(sr.multiply(sr.convert_to_tensor(g), w)) for g, w in zip(grads, weights)
        ])
    seconds = outer.gradient(total, wanted, unconnected_gradients="zero")
    for index, second in zip(case.grad, seconds):
        flat = sr.convert_to_tensor(second).numpy().reshape(-1)
        chosen = rng.choice(flat.size, min(flat.size, 6), replace=False)
        for at in chosen:
            sides = []
            for sign in (1, -1):
                moved = [array.copy() for array in arrays]
                moved[index].reshape(-1)[at] += sign * 1e-5
                sides.append(along(op, case, moved, weights))
            want = (sides[0] - sides[1]) / 2e-5
            assert abs(flat[at] - want) <= 1e-4 * max(1.0, abs(want)), (
                f"input {index}, element {at}: {flat[at]}, difference {want}"
            )


def test_ops_without_second_derivatives_say_so() -> None:
    x = sr.constant(np.ones((2, 3)))
    with sr.GradientTape() as outer:
        outer.watch(x)
        with sr.GradientTape() as inner:
            inner.watch(x)
            y = sr.math.digamma(x)
        grad = inner.gradient(y, x)
    with pytest.raises(sr.errors.UnimplementedError, match="Trigamma"):
        outer.gradient(grad, x)


def torch_norm(x: Any, scale: Any, offset: Any, layer: bool) -> Any:
    """By its formula: to PyTorch's own functions, statistics are constants in third derivatives."""
    axes = [x.ndim - 1] if layer else list(range(x.ndim - 1))
    centred = x - x.mean(axes, keepdim=True)
    variance = (centred * centred).mean(axes, keepdim=True)
    return centred / (variance + 1e-3).sqrt() * scale + offset


@pytest.mark.parametrize("shape", [(6, 5), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("op", ["LayerNorm", "BatchNorm"])
def test_gradients_of_normalisation_up_to_the_third_are_pytorchs(
    op: str, shape: tuple[int, ...]
) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (./dev setup --peers)")
    rng = np.random.default_rng(5)
    arrays = [rng.normal(size=size) for size in (shape, shape[-1:], shape[-1:])]
    seed = rng.normal(size=shape)
    weights = [rng.normal(size=array.shape) for array in arrays]
    theirs = [torch.from_numpy(array).requires_grad_(True) for array in arrays]
    loss = (torch_norm(*theirs, op == "LayerNorm").sin() * torch.from_numpy(seed)).sum()
    ours = [sr.constant(array) for array in arrays]
    with sr.GradientTape(persistent=True) as tape:
        tape.watch(ours)
        made = _dispatch.apply(op, ours, {"epsilon": 1e-3})[0]
        value = sr.reduce_sum(sr.sin(made) * seed)
        for order in (1, 2, 3):
            grads = torch.autograd.grad(loss, theirs, create_graph=True)
            found = tape.gradient(value, ours)
            for got, want in zip(found, grads):
                np.testing.assert_allclose(
                    got.numpy(), want.detach().numpy(), rtol=1e-9, atol=1e-9, err_msg=str(order)
                )
            loss = sum((g * torch.from_numpy(w)).sum() for g, w in zip(grads, weights))
            value = sr.add_n([sr.reduce_sum(g * w) for g, w in zip(found, weights)])


@pytest.mark.parametrize("x", [[1.5, -2.0, 3.0], [0.0, 2.0, 3.0], [0.0, 2.0, 0.0]], ids=str)
def test_second_derivatives_of_products_are_pytorchs(x: list[float]) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (./dev setup --peers)")
    weights = np.array([1.0, 10.0, 100.0])
    theirs = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    (grad,) = torch.autograd.grad((theirs.prod() ** 2 + theirs.prod()), theirs, create_graph=True)
    (want,) = torch.autograd.grad((grad * torch.from_numpy(weights)).sum(), theirs)
    ours = sr.constant(np.array(x))
    with sr.GradientTape() as outer:
        outer.watch(ours)
        with sr.GradientTape() as inner:
            inner.watch(ours)
            product = sr.reduce_prod(ours)
            value = product * product + product
        total = sr.reduce_sum(inner.gradient(value, ours) * weights)
    np.testing.assert_allclose(outer.gradient(total, ours).numpy(), want.numpy(), rtol=1e-12)
