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
    "BatchNorm": "BatchNormGrad is fused",
    "LayerNorm": "LayerNormGrad is fused",
    "ReduceProd": "ProdGrad is exact where elements are 0, and fused",
    "Digamma": "the derivative of trigamma is not there",
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
            y = sr.reduce_prod(x, 1)
        grad = inner.gradient(y, x)
    with pytest.raises(sr.errors.UnimplementedError, match="ProdGrad"):
        outer.gradient(grad, x)


