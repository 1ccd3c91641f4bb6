"""Memory shared with NumPy, PyTorch and JAX, and what cannot be shared."""

from __future__ import annotations

import numpy as np
import pytest

import sidereal as sr
from sidereal import errors

NAMES = ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16",
         "uint32", "uint64", "bool"]


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize("name", NAMES)
def test_arrays_of_numpy_are_shared_both_ways(name: str) -> None:
    array = (np.arange(6).reshape(2, 3) % 2).astype(name)
    tensor = sr.from_dlpack(array)
    assert tensor.dtype == array.dtype
    assert tensor.shape == (2, 3)
    assert address(tensor.numpy()) == address(array)
    back = np.from_dlpack(tensor)
    assert address(back) == address(array)
    assert not back.flags.writeable
    np.testing.assert_array_equal(back, array)


def test_the_owner_lives_as_long_as_a_view_of_it() -> None:
    tensor = sr.from_dlpack(np.arange(1000.0))
    view = np.from_dlpack(tensor * 1.0)
    kept = np.from_dlpack(tensor)
    del tensor
    assert view.sum() == kept.sum() == 499500


def test_read_only_arrays_are_shared_as_tensors_never_change() -> None:
    array = np.arange(3.0)
    array.flags.writeable = False
    assert address(sr.from_dlpack(array).numpy()) == address(array)


def test_scalars_and_empty_arrays() -> None:
    assert float(sr.from_dlpack(np.array(2.5))) == 2.5
    assert sr.from_dlpack(np.zeros((0, 3))).shape == (0, 3)
    assert np.from_dlpack(sr.constant(np.zeros((2, 0)))).shape == (2, 0)


def test_gaps_between_elements_are_named() -> None:
    for array in (np.arange(6.0)[::2], np.ones((2, 3)).T, np.ones((3, 4))[:, 1:]):
        with pytest.raises(
            errors.InvalidArgumentError, match="ascontiguousarray.*sidereal.constant"
        ):
            sr.from_dlpack(array)
    assert sr.from_dlpack(np.ones((1, 3)).T).shape == (3, 1)


def test_dtypes_that_are_not_ours_are_named() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="128 bits.*no such dtype"):
        sr.from_dlpack(np.ones(2, np.complex128))
    with pytest.raises(errors.InvalidArgumentError, match="cannot be shared"):
        sr.from_dlpack(np.array(["text"]))


def test_what_has_no_dlpack_is_named() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="a list cannot be shared.*no __dlpack__"):
        sr.from_dlpack([1.0, 2.0])
    x = sr.Model().input("x", sr.float32, ())
    with pytest.raises(errors.InvalidArgumentError, match="no memory yet"):
        sr.from_dlpack(x)


class OnDevice:
    """An array on a GPU, as far as anybody can tell from outside."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __dlpack__(self, **options: object) -> object:
        raise AssertionError("the device is asked for first")


def test_memory_of_devices_is_named() -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"OnDevice.*on a device.*x\.cpu\(\)"):
        sr.from_dlpack(OnDevice())


class Unwilling:
    """An array that cannot be exported."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, **options: object) -> object:
        raise BufferError("it requires grad")


def test_the_reason_of_the_other_library_is_passed_on() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="it requires grad.*sidereal.constant"):
        sr.from_dlpack(Unwilling())


def test_pytorch_shares_both_ways() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (./dev setup --peers)")
    theirs = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    ours = sr.from_dlpack(theirs)
    assert address(ours.numpy()) == theirs.data_ptr()
    back = torch.from_dlpack(ours)
    assert back.data_ptr() == theirs.data_ptr()
    assert sr.from_dlpack(theirs.to(torch.bfloat16)).dtype == sr.bfloat16
    assert torch.from_dlpack(sr.from_dlpack(theirs.to(torch.bfloat16))).dtype == torch.bfloat16
    np.testing.assert_array_equal((ours + theirs).numpy(), 2 * theirs.numpy())
    with pytest.raises(errors.InvalidArgumentError, match="contiguous"):
        sr.from_dlpack(theirs.T)
    with pytest.raises(errors.InvalidArgumentError, match="grad"):
        sr.from_dlpack(torch.ones(2, requires_grad=True))


def test_jax_shares_both_ways() -> None:
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    theirs = jax.numpy.arange(6, dtype="float32").reshape(2, 3)
    ours = sr.from_dlpack(theirs)
    np.testing.assert_array_equal(ours.numpy(), np.asarray(theirs))
    np.testing.assert_array_equal(np.asarray(jax.dlpack.from_dlpack(ours * 2.0)), 2 * ours.numpy())
