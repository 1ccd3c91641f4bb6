"""einsum and tensordot against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sidereal as sr

EQUATIONS = [
    ("ij,jk->ik", (3, 4), (4, 5)), ("ij,jk", (3, 4), (4, 5)),
    ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
    ("ij->ji", (3, 4)), ("ij->", (3, 4)), ("ij->j", (3, 4)), ("i,j->ij", (3,), (4,)),
    ("i,i->", (5,), (5,)), ("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 6, 5)),
    ("...ij,...jk->...ik", (2, 3, 4), (2, 4, 5)), ("...ij,jk->...ik", (6, 2, 3, 4), (4, 5)),
    ("...i,...i->...", (2, 3, 4), (3, 4)), ("...ij,...jk->...ik", (2, 1, 3, 4), (5, 4, 2)),
    ("abc,cd,de->abe", (2, 3, 4), (4, 5), (5, 6)), ("abc,abd->acd", (2, 3, 4), (2, 3, 5)),
    ("abcd,cdef->abef", (2, 3, 4, 5), (4, 5, 2, 3)), ("ijk,k->ij", (2, 3, 4), (4,)),
    ("ab,cd->bd", (2, 3), (4, 5)), ("ij,ij->ij", (3, 4), (3, 4)), ("b...->...", (2, 3, 4)),
]


@pytest.mark.parametrize("case", EQUATIONS, ids=lambda case: f"{case[0]}_{len(case) - 1}")
def test_einsum_is_numpys_at_once_and_in_a_function(case: Any) -> None:
    rng = np.random.default_rng(9)
    equation, *shapes = case
    arrays = [rng.normal(size=shape) for shape in shapes]
    want = np.einsum(equation, *arrays)
    np.testing.assert_allclose(sr.einsum(equation, *arrays).numpy(), want, rtol=1e-10, atol=1e-12)
    function = sr.function(lambda *xs: sr.einsum(equation, *xs))
    got = function(*[sr.constant(array) for array in arrays])
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-10, atol=1e-12)


def test_matvec_is_numpys() -> None:
    rng = np.random.default_rng(9)
    a, b = rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 4))
    want = np.einsum("bij,bj->bi", a, b)
    np.testing.assert_allclose(sr.math.matvec(a, b).numpy(), want, rtol=1e-10)


def test_einsum_with_open_extents() -> None:
    rng = np.random.default_rng(9)
    function = sr.function(
        lambda a, b: sr.einsum("bhqd,bhkd->bhqk", a, b),
        input_signature=[sr.TensorSpec([None, 2, None, 3], sr.float64),
                         sr.TensorSpec([None, 2, None, 3], sr.float64)],
    )
    a, b = rng.normal(size=(4, 2, 5, 3)), rng.normal(size=(4, 2, 6, 3))
    np.testing.assert_allclose(
        function(a, b).numpy(), np.einsum("bhqd,bhkd->bhqk", a, b), rtol=1e-10
    )


def test_einsum_of_nothing() -> None:
    got = sr.einsum("ij,jk->ik", np.zeros((0, 3)), np.zeros((3, 4)))
    assert got.shape == (0, 4)
    got = sr.einsum("abc,cd->abd", np.zeros((2, 3, 0)), np.zeros((0, 4)))
    np.testing.assert_array_equal(got.numpy(), np.zeros((2, 3, 4)))


def test_einsum_has_gradients() -> None:
    rng = np.random.default_rng(9)
    a, b = sr.constant(rng.normal(size=(2, 3, 4))), sr.constant(rng.normal(size=(2, 4, 5)))
    with sr.GradientTape() as tape:
        tape.watch([a, b])
        y = sr.reduce_sum(sr.einsum("bij,bjk->ik", a, b))
    grad_a, grad_b = tape.gradient(y, [a, b])
    ones = np.ones((3, 5))
    np.testing.assert_allclose(grad_a.numpy(), np.einsum("ik,bjk->bij", ones, b.numpy()))
    np.testing.assert_allclose(grad_b.numpy(), np.einsum("ik,bij->bjk", ones, a.numpy()))


@pytest.mark.parametrize(
    ("equation", "shapes", "message"),
    [
        ("ij,jk->ik", [(2, 3), (4, 5)], "label 'j' has extents 3 and 4"),
        ("ij->il", [(2, 3)], "'l' of the result is in no input"),
        ("ii->i", [(3, 3)], "diagonals"),
        ("ijk->i", [(3, 3)], "does not fit an input of 2 dimensions"),
        ("i$->i", [(3, 3)], "is not made of letters"),
    ],
)
def test_einsum_says_what_is_wrong(equation: str, shapes: Any, message: str) -> None:
    with pytest.raises(sr.errors.Error, match=message.replace("'", ".")):
        sr.einsum(equation, *[np.zeros(shape) for shape in shapes])


@pytest.mark.parametrize("axes", [1, 2, [[0], [1]], [[1, 2], [0, 1]]])
def test_tensordot_is_numpys(axes: Any) -> None:
    rng = np.random.default_rng(9)
    a, b = rng.normal(size=(4, 3, 3)), rng.normal(size=(3, 3, 4))
    if axes == [[0], [1]]:
        a = rng.normal(size=(3, 2, 5))
    want = np.tensordot(a, b, axes)
    np.testing.assert_allclose(sr.tensordot(a, b, axes).numpy(), want, rtol=1e-10, atol=1e-12)
