"""Partitioners of tf.distribute.experimental: pinned values, errors, and TensorFlow's own."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sidereal as sr
import sidereal.v1 as tf1
from sidereal.distribute.experimental import partitioners

FIXED = partitioners.FixedShardsPartitioner
MIN = partitioners.MinSizePartitioner
MAX = partitioners.MaxSizePartitioner

with_tensorflow = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None,
    reason="TensorFlow is not installed; run ./dev setup --peers",
)


@pytest.mark.parametrize(
    "partitioner, shape, dtype, parts",
    [
        (FIXED(2), [10, 3], sr.float32, [2, 1]),
        (FIXED(20), [10, 3], sr.float32, [10, 1]),
        (MIN(min_shard_bytes=4, max_shards=2), [6, 1], sr.float32, [2, 1]),
        (MIN(min_shard_bytes=4, max_shards=10), [6, 1], sr.float32, [6, 1]),
        (MIN(max_shards=16), [1024, 1024], sr.float32, [16, 1]),
        (MIN(max_shards=100), [1024, 1024], sr.float32, [16, 1]),
        (MIN(), [1024, 1024], sr.float32, [1, 1]),
        (MIN(max_shards=100), [1024, 1024], sr.string, [64, 1]),
        (MIN(max_shards=100, bytes_per_string=8), [1024, 1024], sr.string, [32, 1]),
        (MAX(max_shard_bytes=4), [6, 1], sr.float32, [6, 1]),
        (MAX(max_shard_bytes=4, max_shards=2), [6, 1], sr.float32, [2, 1]),
        (MAX(max_shard_bytes=1024), [6, 1], sr.float32, [1, 1]),
        (MAX(max_shard_bytes=64, bytes_per_string=8), [4, 4], sr.string, [2, 1]),
    ],
)  # fmt: skip
def test_partitioners_count_parts_of_the_first_dimension(
    partitioner: Any, shape: list[int], dtype: Any, parts: list[int]
) -> None:
    assert isinstance(partitioner, partitioners.Partitioner)
    assert partitioner(shape, dtype) == parts
    assert partitioner(shape=shape[::-1], dtype=dtype, axis=1) == parts[::-1]


@pytest.mark.parametrize(
    "make",
    [
        lambda: FIXED(0),
        lambda: MIN(min_shard_bytes=0),
        lambda: MIN(max_shards=0),
        lambda: MIN(bytes_per_string=0),
        lambda: MAX(max_shard_bytes=0),
        lambda: MAX(8, max_shards=0),
        lambda: MAX(8, bytes_per_string=0),
    ],
)
def test_numbers_below_one_are_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        make()


@pytest.mark.parametrize("partitioner", [FIXED(2), MIN(4, 2), MAX(4)])
def test_an_axis_that_is_not_there_and_a_shape_not_known_are_refused(partitioner: Any) -> None:
    with pytest.raises(ValueError, match="axis 2"):
        partitioner([4, 2], sr.float32, axis=2)
    with pytest.raises(ValueError, match="not fully defined"):
        partitioner([None, 2], sr.float32)


def test_a_rule_of_ones_own_is_a_subclass() -> None:
    class Halves(partitioners.Partitioner):
        def __call__(self, shape: Any, dtype: Any, axis: int = 0) -> list[int]:
            return [2 if i == axis else 1 for i in range(len(shape))]

    assert Halves()([4, 4], sr.float32, axis=1) == [1, 2]
    with pytest.raises(NotImplementedError):
        partitioners.Partitioner()([4], sr.float32)


@pytest.mark.usefixtures("fresh_graph")
def test_variables_of_a_graph_take_them_too() -> None:
    w = tf1.get_variable("w", [13, 2], partitioner=FIXED(5))
    assert [part.shape[0] for part in w] == [3, 3, 3, 2, 2]


@with_tensorflow
def test_they_count_as_those_of_tensorflow() -> None:
    import tensorflow as tf

    theirs = tf.distribute.experimental.partitioners
    rng = np.random.default_rng(seed := 5)
    print("seed", seed)
    for _ in range(100):
        shape = [int(n) for n in rng.integers(1, 40, size=rng.integers(1, 4))]
        size, shards = int(rng.integers(1, 4000)), int(rng.integers(1, 12))
        dtype = str(rng.choice(["float32", "float64", "string"]))
        axis = int(rng.integers(len(shape)))
        for name, arguments in [
            ("FixedShardsPartitioner", {"num_shards": shards}),
            ("MinSizePartitioner", {"min_shard_bytes": size, "max_shards": shards}),
            ("MaxSizePartitioner", {"max_shard_bytes": size}),
            ("MaxSizePartitioner", {"max_shard_bytes": size, "max_shards": shards}),
        ]:
            ours = getattr(partitioners, name)(**arguments)(shape, dtype, axis)
            wanted = getattr(theirs, name)(**arguments)(
                tf.TensorShape(shape), tf.as_dtype(dtype), axis
            )
            assert ours == list(wanted), (name, arguments, shape, dtype, axis)
