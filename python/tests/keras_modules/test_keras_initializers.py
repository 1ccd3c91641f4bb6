"""sidereal.keras.initializers: how values are distributed, seeds, and the scales of Keras."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from keras_peer import QUIET, close, described, parameters, peer, public

import sidereal as sr
import sidereal.v1 as tf
from sidereal import _initial_values
from sidereal.keras import initializers

pytestmark = QUIET

SHAPE = (150, 80)

#: Name, arguments, and (mean, standard deviation, greatest distance from the mean) for SHAPE.
RANDOM: list[tuple[str, dict[str, Any], tuple[float, float, float]]] = [
    ("RandomUniform", {}, (0.0, 0.1 / math.sqrt(12), 0.05)),
    ("RandomUniform", {"minval": 1.0, "maxval": 4.0}, (2.5, 3 / math.sqrt(12), 1.5)),
    ("RandomNormal", {}, (0.0, 0.05, math.inf)),
    ("RandomNormal", {"mean": -1.0, "stddev": 2.0}, (-1.0, 2.0, math.inf)),
    ("TruncatedNormal", {}, (0.0, 0.05 * 0.8796, 0.1)),
    ("TruncatedNormal", {"mean": 3.0, "stddev": 0.5}, (3.0, 0.5 * 0.8796, 1.0)),
    ("GlorotUniform", {}, (0.0, math.sqrt(2 / 230), math.sqrt(6 / 230))),
    ("GlorotNormal", {}, (0.0, math.sqrt(2 / 230), 2 * math.sqrt(2 / 230) / 0.8796)),
    ("HeUniform", {}, (0.0, math.sqrt(2 / 150), math.sqrt(6 / 150))),
    ("HeNormal", {}, (0.0, math.sqrt(2 / 150), 2 * math.sqrt(2 / 150) / 0.8796)),
    ("LecunUniform", {}, (0.0, math.sqrt(1 / 150), math.sqrt(3 / 150))),
    ("LecunNormal", {}, (0.0, math.sqrt(1 / 150), 2 * math.sqrt(1 / 150) / 0.8796)),
    ("VarianceScaling", {}, (0.0, math.sqrt(1 / 150), 2 * math.sqrt(1 / 150) / 0.8796)),
    ("VarianceScaling", {"scale": 3.0, "mode": "fan_out", "distribution": "untruncated_normal"},
     (0.0, math.sqrt(3 / 80), math.inf)),
    ("VarianceScaling", {"scale": 0.5, "mode": "fan_avg", "distribution": "uniform"},
     (0.0, math.sqrt(0.5 / 115), math.sqrt(1.5 / 115))),
    ("Orthogonal", {}, (0.0, math.sqrt(1 / 150), math.inf)),
]  # fmt: skip
IDS = [described(case) for case in RANDOM]

FIXED: list[tuple[str, dict[str, Any], tuple[int, ...]]] = [
    ("Zeros", {}, (3, 2)),
    ("Ones", {}, (4,)),
    ("Constant", {}, (2, 2)),
    ("Constant", {"value": 2.5}, (2, 3)),
    ("Constant", {"value": [1.0, 2.0, 3.0]}, (2, 3)),
    ("Identity", {}, (3, 3)),
    ("Identity", {"gain": 0.5}, (2, 4)),
]

SHAPES = [(), (7,), (7, 3), (3, 7), (3, 3, 8, 16), (5, 4, 6)]
LOWER = {name for name in public(initializers) if name[0].islower()}


@pytest.fixture(autouse=True)
def no_seed() -> Iterator[None]:
    yield
    sr.random.set_seed(None)


def test_every_initializer_has_a_case() -> None:
    classes = {name for name in public(initializers) if name[0].isupper()} - {"Initializer"}
    assert {case[0] for case in [*RANDOM, *FIXED]} == classes
    assert {getattr(initializers, name).__name__ for name in LOWER} == classes


@pytest.mark.parametrize("name, arguments, shape", FIXED, ids=[described(c) for c in FIXED])
def test_fixed_values_equal_keras(
    name: str, arguments: dict[str, Any], shape: tuple[int, ...]
) -> None:
    theirs = getattr(peer().initializers, name)(**arguments)
    ours = getattr(initializers, name)(**arguments)
    close(ours(shape), theirs(shape))
    assert ours(shape).dtype == sr.float32
    assert ours(shape, dtype="float64").dtype == sr.float64


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name, arguments, expected", RANDOM, ids=IDS)
def test_random_values_are_distributed_as_said(
    name: str, arguments: dict[str, Any], expected: tuple[float, float, float], dtype: str
) -> None:
    mean, deviation, most = expected
    made = getattr(initializers, name)(**arguments, seed=11)
    value = made(SHAPE, dtype).numpy().astype(np.float64)
    n = value.size
    assert value.shape == SHAPE and made(SHAPE, dtype).dtype.name == dtype
    assert abs(value.mean() - mean) < 5 * deviation / math.sqrt(n)
    assert abs(value.std() / deviation - 1) < 5 / math.sqrt(n)
    assert np.abs(value - mean).max() <= most * 1.0001
    if most < math.inf:
        assert np.abs(value - mean).max() > most * 0.98


@pytest.mark.parametrize("name, arguments, expected", RANDOM, ids=IDS)
def test_a_seed_gives_the_same_value_at_every_call(
    name: str, arguments: dict[str, Any], expected: Any
) -> None:
    cls = getattr(initializers, name)
    made = cls(**arguments, seed=5)
    first = made((6, 4)).numpy()
    np.testing.assert_array_equal(first, made((6, 4)))
    np.testing.assert_array_equal(first, cls(**arguments, seed=5)((6, 4)))
    np.testing.assert_array_equal(first, made.clone()((6, 4)))
    np.testing.assert_array_equal(first, sr.function(lambda: made((6, 4)))())
    other = cls(**arguments, seed=6)((6, 4)).numpy()
    assert not (first == other).any()


def test_without_a_seed_it_follows_from_set_seed() -> None:
    def two() -> list[np.ndarray]:
        return [initializers.GlorotUniform()((3, 3)).numpy() for _ in range(2)]

    assert len({x.tobytes() for x in [*two(), *two()]}) == 4
    sr.random.set_seed(3)
    first = two()
    sr.random.set_seed(3)
    np.testing.assert_array_equal(first, two())
    assert not (first[0] == first[1]).any()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("mode", ["fan_in", "fan_out", "fan_avg"])
def test_scales_equal_keras(mode: str, shape: tuple[int, ...]) -> None:
    """Keras' scale is read off its values: those of one seed are in proportion to it."""
    keras = peer()
    for distribution, plain in (
        ("uniform", keras.initializers.RandomUniform(-1.0, 1.0, seed=1)),
        ("truncated_normal", keras.initializers.TruncatedNormal(0.0, 1.0, seed=1)),
        ("untruncated_normal", keras.initializers.RandomNormal(0.0, 1.0, seed=1)),
    ):
        theirs = keras.initializers.VarianceScaling(2.0, mode, distribution, seed=1)(shape)
        unit = keras.ops.convert_to_numpy(plain(shape))
        scale = np.abs(keras.ops.convert_to_numpy(theirs)).sum() / np.abs(unit).sum()
        ours = _initial_values.variance_scaling(list(shape), 2.0, mode, distribution)
        np.testing.assert_allclose(ours.second, scale, rtol=1e-5)


@pytest.mark.parametrize("axes", [((-1,), (-2,)), ((0, 1), (2,)), ((2,), (0, 1))], ids=str)
def test_fans_of_other_axes_equal_keras(axes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    keras, shape = peer(), (2, 3, 5)
    unit = keras.ops.convert_to_numpy(keras.initializers.RandomUniform(-1.0, 1.0, seed=1)(shape))
    for mode in ("fan_in", "fan_out", "fan_avg"):
        arguments = (1.0, mode, "uniform", 1, *axes)
        theirs = keras.ops.convert_to_numpy(keras.initializers.VarianceScaling(*arguments)(shape))
        ours = initializers.VarianceScaling(*arguments)._distribution(shape)
        np.testing.assert_allclose(ours.second, np.abs(theirs).sum() / np.abs(unit).sum(), 1e-5)


@pytest.mark.parametrize("shape", [(8, 3), (3, 8), (2, 3, 4), (5, 5)], ids=str)
def test_orthogonal_rows_or_columns(shape: tuple[int, ...]) -> None:
    value = initializers.Orthogonal(gain=2.0, seed=1)(shape, "float64").numpy()
    matrix = value.reshape(-1, shape[-1])
    if matrix.shape[0] < matrix.shape[1]:
        matrix = matrix.T
    product = matrix.T @ matrix
    np.testing.assert_allclose(product, 4.0 * np.eye(len(product)), atol=1e-12)


def test_initializers_of_v1_draw_from_the_same_distributions() -> None:
    for ours, theirs in (
        (initializers.GlorotUniform(seed=1), tf.glorot_uniform_initializer(seed=1)),
        (initializers.GlorotNormal(seed=1), tf.glorot_normal_initializer(seed=1)),
        (initializers.RandomUniform(seed=1), tf.random_uniform_initializer(seed=1)),
        (initializers.RandomNormal(seed=1), tf.random_normal_initializer(seed=1)),
        (initializers.TruncatedNormal(seed=1), tf.truncated_normal_initializer(seed=1)),
    ):
        assert ours._distribution(SHAPE) == theirs._distribution(list(SHAPE))


def test_arguments_and_configs_equal_keras() -> None:
    keras = peer()
    for name, arguments, _ in [*FIXED, *RANDOM]:
        ours, theirs = getattr(initializers, name), getattr(keras.initializers, name)
        assert parameters(ours) == parameters(theirs)
        config, wanted = ours(**arguments).get_config(), theirs(**arguments).get_config()
        # Keras forgets the gain of Identity.
        assert {key: config[key] for key in wanted} == wanted
        assert ours.from_config(config).get_config() == config


def test_names_and_configs_are_found() -> None:
    for name in sorted(LOWER):
        assert isinstance(initializers.get(name), getattr(initializers, name))
    assert initializers.get(None) is None
    assert isinstance(initializers.get(initializers.HeNormal), initializers.HeNormal)
    made = initializers.VarianceScaling(2.0, "fan_out", "uniform", seed=4)
    written = initializers.serialize(made)
    assert written["class_name"] == "VarianceScaling" and written["module"] == "keras.initializers"
    again = initializers.get(written)
    np.testing.assert_array_equal(again((3, 2)), made((3, 2)))
    assert initializers.get(np.arange(3.0))((3,)).numpy().tolist() == [0, 1, 2]
    function = initializers.get(lambda shape, dtype=None: sr.ones(shape))
    assert function((2,)).numpy().tolist() == [1, 1]


def test_what_is_wrong_is_named() -> None:
    cases: list[tuple[Any, str]] = [
        (lambda: initializers.get("glorot"), "keras.initializers has nothing called 'glorot'"),
        (lambda: initializers.get({"name": 3}), "a config has class_name and config; this has: n"),
        (lambda: initializers.VarianceScaling(scale=0.0), "scale is 0.0; it must be more than 0"),
        (lambda: initializers.VarianceScaling(mode="in"), "mode is 'in'; it must be one of fan_in"),
        (lambda: initializers.VarianceScaling(distribution="even"), "distribution is 'even'"),
        (lambda: initializers.RandomNormal(seed="x"), "RandomNormal: seed is 'x'"),
        (lambda: initializers.Identity()((3,)), r"Identity makes matrices; the shape is \(3,\)"),
        (lambda: initializers.Orthogonal()((3,)), r"two dimensions or more; the shape is \(3,\)"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(TypeError, match=r"Zeros\(\) takes no arguments"):
        initializers.Zeros(3)
    with pytest.raises(TypeError, match="unexpected keyword argument 'deviation'"):
        initializers.RandomNormal(deviation=3)
