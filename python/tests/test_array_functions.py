"""The functions of shapes, slices, indices and order: arguments, composed ones, and errors. Single
ops are compared with NumPy by tests/ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sidereal as sr

RNG = np.random.default_rng(5)


def array(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def equal(got: Any, want: Any) -> None:
    np.testing.assert_array_equal(np.asarray(got), want)
    assert tuple(got.shape) == np.shape(want)


X = array(4, 5, 6)

KEYS: list[Any] = [
    np.index_exp[1],
    np.index_exp[-1],
    np.index_exp[1:, ..., None, ::-1],
    np.index_exp[:, 2:-1, ::2],
    np.index_exp[..., -2],
    np.index_exp[None, ..., None],
    np.index_exp[3:0:-2, 1, 2:2],
    np.index_exp[np.int64(2), :, np.int32(1)],
    np.index_exp[...],
    np.index_exp[-100:100, ::-3],
]


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_brackets_take_what_numpys_do(key: Any) -> None:
    equal(sr.constant(X)[key], X[key])


def test_brackets_take_tensors_of_one_integer() -> None:
    x, i = sr.constant(X), sr.constant(2)
    equal(x[i], X[2])
    equal(x[:, i, 1:i], X[:, 2, 1:2])
    equal(x[i - 3], X[-1])


def test_brackets_take_masks() -> None:
    mask = X[:, :, 0] > 0
    equal(sr.constant(X)[sr.constant(mask)], X[mask])
    equal(sr.constant(X)[mask], X[mask])


def test_gradients_of_brackets_go_back_to_their_places() -> None:
    x = sr.constant(X)
    with sr.GradientTape() as tape:
        tape.watch(x)
        y = sr.reduce_sum(sr.square(x[1:, ..., ::-2]))
    wanted = np.zeros_like(X)
    wanted[1:, ..., ::-2] = 2 * X[1:, ..., ::-2]
    np.testing.assert_allclose(tape.gradient(y, x).numpy(), wanted)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: x[7], "index 7 is not in [-4, 4) of dimension 0"),
        (lambda x: x[0, 0, 0, 0], "4 indices or slices"),
        (lambda x: x[::0], "stride"),
        (lambda x: sr.gather(x, [1, 9]), "index 9 at [1] of the indices is not in [0, 4)"),
        (lambda x: sr.gather(x, [[1], [-1]]), "index -1 at [1,0]"),
        (lambda x: sr.gather_nd(x, [[0, 7]]), "index 7 at [0,1] of the indices is not in [0, 5)"),
        (lambda x: sr.scatter_nd([[9]], [1.0], [4]), "index 9 at [0,0]"),
        (lambda x: sr.reshape(x, [7, -1]), "120 elements"),
        (lambda x: sr.squeeze(x, 1), "dimension 1 has extent 5"),
        (lambda x: sr.concat([x, x[:, 1:]], 0), "differ"),
        (lambda x: sr.split(x, 3), "cannot be split into 3"),
        (lambda x: sr.transpose(x, [0, 0, 1]), "named twice"),
        (lambda x: sr.pad(x, [[1, 1]]), "two a dimension"),
        (lambda x: sr.broadcast_to(x, [4, 5, 7]), "cannot be broadcast"),
        (lambda x: sr.math.segment_sum(x, [0, 2, 1, 1]), "not sorted: 1 at [2] is behind 2"),
        (lambda x: sr.math.unsorted_segment_sum(x, [0, 2, 1, 1], 2), "segment id 2 at [1]"),
        (lambda x: sr.math.top_k(x, 9), "k is 9, but the last dimension has 6"),
        (lambda x: sr.range(0, 5, 0), "delta is 0"),
        (lambda x: sr.range(5, 0), "runs away"),
        (lambda x: sr.fill([1 << 40], 1.0), "bytes"),
        (lambda x: sr.ensure_shape(x, [None, 4, 6]), "differ"),
        (lambda x: sr.math.bincount([1, -1]), "negative"),
        (lambda x: sr.nn.conv2d(x, x), "rank"),
    ],
)
def test_errors_name_what_does_not_fit(call: Callable[[Any], Any], text: str) -> None:
    with pytest.raises(sr.errors.Error) as caught:
        call(sr.constant(X))
    assert text in str(caught.value), str(caught.value)


def test_an_index_outside_is_an_out_of_range_error() -> None:
    with pytest.raises(sr.errors.InvalidArgumentError, match="Gather"):
        sr.gather(sr.constant(X), [4])


def test_shapes_may_be_tensors() -> None:
    x = sr.constant(X)
    equal(sr.reshape(x, sr.constant([20, -1])), X.reshape(20, 6))
    equal(sr.reshape(x, [sr.size(x) // 6, 6]), X.reshape(20, 6))
    equal(sr.broadcast_to(sr.constant(1.0), sr.shape(x)), np.ones_like(X))
    equal(sr.tile(sr.constant([1, 2]), sr.constant([3])), np.tile([1, 2], 3))
    equal(sr.zeros(sr.shape(x)[1:]), np.zeros((5, 6), np.float32))
    equal(sr.slice(x, sr.constant([0, 1, 2]), [1, 2, -1]), X[:1, 1:3, 2:])


def test_makers() -> None:
    equal(sr.zeros([2, 3], "int64"), np.zeros((2, 3), np.int64))
    equal(sr.ones([2], sr.bool_), np.ones(2, bool))
    equal(sr.eye(3, 2), np.eye(3, 2, dtype=np.float32))
    equal(sr.range(3), np.arange(3, dtype=np.int32))
    equal(sr.range(1, 2, 0.5), np.arange(1, 2, 0.5, dtype=np.float32))
    equal(sr.one_hot([0, 2], 3), np.eye(3, dtype=np.float32)[[0, 2]])
    equal(sr.one_hot([1], 2, on_value=True, off_value=False), np.array([[False, True]]))
    np.testing.assert_allclose(sr.linspace(0.0, 1.0, 5).numpy(), np.linspace(0, 1, 5), rtol=1e-6)
    equal(sr.zeros_like(sr.constant(X), "int32"), np.zeros(X.shape, np.int32))
    equal(sr.sequence_mask([1, 3], 4), np.array([[1, 0, 0, 0], [1, 1, 1, 0]], bool))
    equal(sr.sequence_mask([1, 3]), np.array([[1, 0, 0], [1, 1, 1]], bool))
    for got, want in zip(sr.meshgrid([1, 2, 3], [4, 5]), np.meshgrid([1, 2, 3], [4, 5])):
        equal(got, want)


def test_joining_cutting_repeating() -> None:
    x = sr.constant(X)
    equal(sr.concat([x, x], -1), np.concatenate([X, X], -1))
    equal(sr.stack([x, x], 1), np.stack([X, X], 1))
    for got, want in zip(sr.unstack(x), X):
        equal(got, want)
    for got, want in zip(sr.split(x, [1, -1, 2], axis=1), np.split(X, [1, 3], 1)):
        equal(got, want)
    equal(sr.repeat(x, 2, axis=1), np.repeat(X, 2, 1))
    equal(sr.repeat(x, [0, 1, 2, 1], axis=0), np.repeat(X, [0, 1, 2, 1], 0))
    equal(sr.repeat([[1, 2], [3, 4]], 3), np.repeat([[1, 2], [3, 4]], 3))
    equal(sr.reverse(x, [-1]), X[..., ::-1])
    equal(sr.roll(x, 7), np.roll(X, 7))
    equal(sr.roll(x, [1, -2], [0, 2]), np.roll(X, [1, -2], [0, 2]))
    equal(sr.pad(x, [[1, 0], [0, 2], [0, 0]], constant_values=5), np.pad(X, [[1, 0], [0, 2], [0,
         0]],
          constant_values=5))  # fmt: skip
    equal(sr.pad(x, [[1, 0], [0, 2], [0, 0]], "symmetric"), np.pad(X, [[1, 0], [0, 2], [0, 0]],
         "symmetric"))


def test_reverse_sequence_leaves_what_is_behind_the_end() -> None:
    lengths = [0, 2, 5, 3]
    want = X.copy()
    for row, length in zip(want, lengths):
        row[:length] = row[:length][::-1]
    equal(sr.reverse_sequence(X, lengths), want)
    equal(sr.reverse_sequence(X.transpose(1, 2, 0), lengths, 0, 2), want.transpose(1, 2, 0))


def test_indices_are_integers() -> None:
    with pytest.raises(sr.errors.InvalidArgumentError, match="integers"):
        sr.gather(X, [0.5])


def test_order() -> None:
    x = sr.constant(X)
    equal(sr.sort(x, axis=1), np.sort(X, 1))
    equal(sr.sort(x, direction="DESCENDING"), -np.sort(-X))
    equal(sr.argsort(x, axis=0), np.argsort(X, 0, kind="stable").astype(np.int32))
    values, indices = sr.math.top_k(x, 2)
    equal(values, -np.sort(-X)[..., :2])
    equal(indices, np.argsort(-X, kind="stable")[..., :2].astype(np.int32))
    equal(sr.math.in_top_k([1, 0], [[0.1, 0.9], [0.2, 0.8]], 1), np.array([True, False]))
    equal(sr.searchsorted([1, 3, 5], [0, 3, 9]), np.int32([0, 1, 3]))
    y, idx, count = sr.unique_with_counts([7, 3, 7])
    equal(y, np.int32([7, 3]))
    equal(idx, np.int32([0, 1, 0]))
    equal(count, np.int32([2, 1]))
    equal(sr.cumsum(x, 1), np.cumsum(X, 1, dtype=np.float32))


def test_boolean_mask_along_an_axis() -> None:
    rng = np.random.default_rng(6)
    mask = np.array([True, False, True, True, False])
    equal(sr.boolean_mask(X, mask, axis=1), X[:, mask])
    both = rng.random((5, 6)) > 0.5
    equal(sr.boolean_mask(X, both, axis=1), X[:, both])


def test_dynamic_partition_and_stitch_are_inverse() -> None:
    ids = np.array([1, 0, 1, 2])
    parts = sr.dynamic_partition(X, ids, 3)
    places = sr.dynamic_partition(np.arange(4), ids, 3)
    equal(sr.dynamic_stitch(places, parts), X)


# --- Second derivatives.

SECOND: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
    "gather": (lambda x: sr.gather(x * x, [1, 0, 1]), RNG.normal(size=(3, 2))),
    "strided_slice": (lambda x: (x * x)[::-1, 1:], RNG.normal(size=(3, 2))),
    "concat": (lambda x: sr.concat([x * x, x], 0), RNG.normal(size=(3, 2))),
    "pad": (lambda x: sr.pad(x * x, [[1, 1], [2, 0]], "REFLECT")[1:], RNG.normal(size=(4, 3))),
    "tile": (lambda x: sr.tile(x * x, [2, 2]), RNG.normal(size=(3, 2))),
    "segment_prod": (lambda x: sr.math.segment_prod(x, [0, 0, 0]), RNG.uniform(1, 2, (3, 2))),
    "segment_mean": (lambda x: sr.math.segment_mean(x * x, [0, 0, 2]), RNG.normal(size=(3, 2))),
    "unsorted_max": (lambda x: sr.math.unsorted_segment_max(x * x, [1, 0, 1], 2),
         RNG.normal(size=(3, 2))),
    "cumprod": (lambda x: sr.math.cumprod(x), RNG.uniform(1, 2, (4, 2))),
    "top_k": (lambda x: sr.math.top_k(x * x, 2)[0], RNG.normal(size=(3, 4))),
    "sort": (lambda x: sr.sort(x * x, axis=0), RNG.normal(size=(3, 4))),
    "scatter_max": (lambda x: sr.tensor_scatter_nd_max(x * x, [[0], [2]], x[:2]),
         RNG.normal(size=(3, 2))),
    "partition": (lambda x: sr.dynamic_partition(x * x, [1, 0, 1], 2)[1], RNG.normal(size=(3, 2))),
    "conv": (lambda x: sr.nn.conv2d(x * x, sr.reshape(x, [3, 3, 1, 1]), padding="SAME"),
             RNG.normal(size=(1, 3, 3, 1))),
    "depthwise": (lambda x: sr.nn.depthwise_conv2d(x * x, sr.reshape(x, [3, 3, 1, 1]),
         padding="SAME"),
                  RNG.normal(size=(1, 3, 3, 1))),
    "max_pool": (lambda x: sr.nn.max_pool2d(x * x, 2, 1), RNG.normal(size=(1, 3, 3, 1))),
    "avg_pool": (lambda x: sr.nn.avg_pool2d(x * x, 2, 1, "SAME"), RNG.normal(size=(1, 3, 3, 1))),
    "stack": (lambda x: sr.stack(sr.unstack(x * x, axis=1)), RNG.normal(size=(3, 2))),
    "broadcast_to": (lambda x: sr.broadcast_to(x * x, [2, 3, 2]), RNG.normal(size=(3, 1))),
    "transpose": (lambda x: sr.transpose(x * x), RNG.normal(size=(3, 2))),
    "matrix": (lambda x: sr.linalg.diag(sr.linalg.diag_part(x * x)), RNG.normal(size=(3, 2))),
    "gather_nd": (lambda x: sr.gather_nd(x * x, [[0, 1], [2, 0], [0, 1]]), RNG.normal(size=(3, 2))),
}  # fmt: skip


def first_derivative(function: Callable[[Any], Any], at: Any, seed: np.ndarray) -> Any:
    with sr.GradientTape() as tape:
        tape.watch(at)
        y = function(at)
    return sr.convert_to_tensor(tape.gradient(y, at, sr.constant(seed)))


@pytest.mark.parametrize("name", SECOND)
def test_second_derivatives_are_finite_differences(name: str) -> None:
    function, x = SECOND[name]
    seed = np.random.default_rng(1).normal(size=tuple(function(sr.constant(x)).shape))
    weights = np.random.default_rng(2).normal(size=x.shape)
    at = sr.constant(x)
    with sr.GradientTape() as outer:
        outer.watch(at)
        inner = first_derivative(function, at, seed)
        scalar = sr.reduce_sum(inner * sr.constant(weights))
    second = sr.convert_to_tensor(outer.gradient(scalar, at)).numpy()
    for place in np.ndindex(*x.shape):
        sides = []
        for step in (1e-5, -1e-5):
            moved = x.copy()
            moved[place] += step
            gradient = first_derivative(function, sr.constant(moved), seed).numpy()
            sides.append((gradient * weights).sum())
        wanted = (sides[0] - sides[1]) / 2e-5
        assert abs(second[place] - wanted) <= 1e-5 * max(1.0, abs(wanted)), (place, wanted)


# --- Embeddings.

TABLE = array(6, 3)
PLACES = np.array([[0, 0], [0, 1], [2, 0], [2, 1], [2, 5]])
IDS = np.array([1, 3, 5, 5, 0])
WEIGHTS = np.array([0.5, 2.0, 1.0, -1.0, 3.0], np.float32)


def combined(combiner: str, weights: np.ndarray, rows: int) -> np.ndarray:
    out = np.zeros((rows, 3), np.float32)
    for row in range(rows):
        mine = PLACES[:, 0] == row
        if not mine.any():
            continue
        w = weights[mine]
        total = (TABLE[IDS[mine]] * w[:, None]).sum(0)
        by = {"sum": 1.0, "mean": w.sum(), "sqrtn": np.sqrt((w * w).sum())}[combiner]
        out[row] = total / by
    return out


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_embedding_lookup_sparse_combines(combiner: str) -> None:
    ids = sr.sparse.SparseTensor(PLACES, IDS, [4, 6])
    weights = sr.sparse.SparseTensor(PLACES, WEIGHTS, [4, 6])
    plain = sr.nn.embedding_lookup_sparse(TABLE, ids, None, combiner)
    np.testing.assert_allclose(plain.numpy(), combined(combiner, np.ones(5), 3), rtol=1e-5)
    weighted = sr.nn.embedding_lookup_sparse(TABLE, ids, weights, combiner)
    np.testing.assert_allclose(weighted.numpy(), combined(combiner, WEIGHTS, 3), rtol=1e-5)


def test_gradients_of_lookups_are_sparse() -> None:
    table = sr.constant(TABLE)
    ids = sr.sparse.SparseTensor(PLACES, IDS, [4, 6])
    with sr.GradientTape(persistent=True) as tape:
        tape.watch(table)
        rows = sr.nn.embedding_lookup(table, [[1, 1], [4, 0]])
        means = sr.nn.embedding_lookup_sparse(table, ids, None, "mean")
    grad = tape.gradient(rows, table)
    assert isinstance(grad, sr.IndexedSlices)
    equal(grad.indices, np.int32([1, 1, 4, 0]))
    dense = np.zeros_like(TABLE)
    np.add.at(dense, [1, 1, 4, 0], 1)
    equal(sr.convert_to_tensor(grad), dense)
    grad = tape.gradient(means, table)
    assert isinstance(grad, sr.IndexedSlices)
    dense = np.zeros_like(TABLE)
    np.add.at(dense, IDS, np.array([[0.5], [0.5], [1 / 3], [1 / 3], [1 / 3]], np.float32))
    np.testing.assert_allclose(sr.convert_to_tensor(grad).numpy(), dense, rtol=1e-6)


def test_embedding_lookup_shortens_rows() -> None:
    rows = sr.nn.embedding_lookup(TABLE, [0, 3], max_norm=0.5).numpy()
    lengths = np.linalg.norm(TABLE[[0, 3]], axis=1, keepdims=True)
    np.testing.assert_allclose(rows, TABLE[[0, 3]] * np.minimum(1, 0.5 / lengths), rtol=1e-5)


def test_safe_embedding_lookup_sparse_forgives() -> None:
    ids = sr.sparse.SparseTensor(PLACES, np.array([1, -1, 5, 5, 0]), [4, 6])
    got = sr.nn.safe_embedding_lookup_sparse(TABLE, ids, combiner="sum").numpy()
    want = np.zeros((4, 3), np.float32)
    want[0] = TABLE[1]
    want[2] = 2 * TABLE[5] + TABLE[0]
    np.testing.assert_allclose(got, want, rtol=1e-5)
    got = sr.nn.safe_embedding_lookup_sparse(TABLE, ids, combiner="sum", default_id=2).numpy()
    want[[1, 3]] = TABLE[2]
    np.testing.assert_allclose(got, want, rtol=1e-5)
    weights = sr.sparse.SparseTensor(PLACES, WEIGHTS, [4, 6])
    got = sr.nn.safe_embedding_lookup_sparse(TABLE, ids, weights, combiner="mean").numpy()
    want = np.zeros((4, 3), np.float32)
    want[0] = TABLE[1]
    want[2] = (TABLE[5] + 3 * TABLE[0]) / 4
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_safe_embedding_lookup_sparse_takes_ids_of_any_rank() -> None:
    places = np.array([[0, 0, 0], [0, 0, 2], [0, 1, 1], [1, 1, 0]])
    ids = sr.sparse.SparseTensor(places, np.array([1, 5, -1, 3]), np.array([2, 2, 3]))
    want = np.zeros((2, 2, 3), np.float32)
    want[0, 0] = TABLE[1] + TABLE[5]
    want[1, 1] = TABLE[3]

    def found(default_id: int | None = None) -> np.ndarray:
        def lookup() -> Any:
            return sr.nn.safe_embedding_lookup_sparse(
                TABLE, ids, combiner="sum", default_id=default_id
            )

        got = lookup().numpy()
        np.testing.assert_array_equal(sr.function(lookup)().numpy(), got)
        return got

    np.testing.assert_allclose(found(), want, rtol=1e-5)
    want[0, 1] = want[1, 0] = TABLE[2]
    np.testing.assert_allclose(found(default_id=2), want, rtol=1e-5)


def test_pooling_and_convolution_take_tensorflows_arguments() -> None:
    images = array(2, 6, 6, 3)
    filters = array(3, 3, 3, 4)
    one = sr.nn.conv2d(images, filters, strides=[1, 2, 2, 1], padding="SAME")
    assert one.shape == (2, 3, 3, 4)
    around = sr.nn.conv2d(images, filters, padding=[[0, 0], [1, 1], [1, 1], [0, 0]])
    same = sr.nn.conv2d(images, filters, padding="SAME")
    equal(around, same.numpy())
    equal(sr.nn.max_pool2d(images, 2, 2), images.reshape(2, 3, 2, 3, 2, 3).max((2, 4)))
    np.testing.assert_allclose(
        sr.nn.avg_pool2d(images, [1, 2, 2, 1], [1, 2, 2, 1]).numpy(),
        images.reshape(2, 3, 2, 3, 2, 3).mean((2, 4)),
        rtol=1e-5, atol=1e-6,
    )  # fmt: skip
