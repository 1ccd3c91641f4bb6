"""Layers of preprocessing beside Keras' own: outputs, what adapt() finds, configs, and messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from keras_peer import QUIET, array_of, peer

import sidereal as sr
from sidereal import keras
from sidereal.keras import layers

pytest.importorskip("tensorflow", reason="Keras' layers of preprocessing need TensorFlow")
pytestmark = QUIET

RNG = np.random.default_rng(0)
WORDS = np.array([["a", "b", "a"], ["", "zz", "b"], ["ü", "x", "some longer text, 64 bytes?"]])
NUMBERS = np.array([[0, 2, 2], [1, 3, 0]])
FLOATS = RNG.normal(size=(6, 3)).astype("f") * [1, 5, 0.1] + [0, 2, 1]
CUBES = RNG.normal(size=(4, 2, 3)).astype("f")
INTEGERS = np.array([[5, -3], [2**40, 0]])

#: Layer, arguments, inputs.
CASES: list[tuple[str, dict[str, Any], Any]] = [
    ("Rescaling", {"scale": 2.0}, FLOATS),
    ("Rescaling", {"scale": 1 / 255, "offset": -1.0}, NUMBERS),
    ("Rescaling", {"scale": [1.0, 2.0, 3.0], "offset": [0.5, 0.0, 1.0]}, FLOATS),
    ("Normalization", {"mean": 1.5, "variance": 4.0, "axis": None}, FLOATS),
    ("Normalization", {"mean": [1.0, 2.0, 0.0], "variance": [1.0, 4.0, 0.0]}, FLOATS),
    ("Normalization", {"mean": [1.0, 2.0, 0.0], "variance": [1.0, 4.0, 1.0], "invert": True},
     FLOATS),
    ("Normalization", {"mean": np.ones((2, 3)), "variance": np.full((2, 3), 4.0), "axis": (1, 2)},
     RNG.normal(size=(4, 2, 3)).astype("f")),
    ("CategoryEncoding", {"num_tokens": 4}, NUMBERS),
    ("CategoryEncoding", {"num_tokens": 4}, NUMBERS[0]),
    ("CategoryEncoding", {"num_tokens": 4, "output_mode": "count"}, NUMBERS),
    ("CategoryEncoding", {"num_tokens": 4, "output_mode": "one_hot"}, NUMBERS[0]),
    ("CategoryEncoding", {"num_tokens": 4, "output_mode": "one_hot"}, NUMBERS[0][:, None]),
    ("CategoryEncoding", {"num_tokens": 4, "output_mode": "multi_hot", "dtype": "float64"},
     NUMBERS),
    *(("Discretization", {"bin_boundaries": [-1.0, 0.5, 2.0], "output_mode": mode}, x)
      for mode in ("int", "one_hot", "multi_hot", "count")
      for x in (FLOATS, np.array([-1.0, 0.5, 2.0, 2.5, -9], "f"), np.array([[-1], [7]]))),
    ("Discretization", {"bin_boundaries": [1.0]}, np.array([[[0.0, 1.0], [2.0, 1.0]]], "f")),
    *(("Hashing", {"num_bins": 7, **more}, x)
      for more in ({}, {"salt": 133}, {"salt": [133, 137]}, {"output_mode": "one_hot"},
                   {"output_mode": "multi_hot"}, {"output_mode": "count"})
      for x in (WORDS, INTEGERS, WORDS[:, :1])),
    ("Hashing", {"num_bins": 5, "mask_value": ""}, WORDS),
    ("Hashing", {"num_bins": 5, "mask_value": 0}, INTEGERS),
    ("Hashing", {"num_bins": 1, "mask_value": 0}, INTEGERS),
    ("Hashing", {"num_bins": 5}, np.array([1.5, 2.25, -7.75])),
    *(("HashedCrossing", {"num_bins": bins, "output_mode": mode}, x)
      for bins, mode in ((1 << 40, "int"), (5, "int"), (5, "one_hot"))
      for x in ((WORDS[:, 0], WORDS[:, 1]), (WORDS[:, :1], WORDS[:, 2:]),
                (INTEGERS[:, 0], INTEGERS[:, 1]),
                (INTEGERS[:, 0], WORDS[:2, 1], WORDS[:2, 2], INTEGERS[:, 1].astype("i4")))),
    ("HashedCrossing", {"num_bins": 50}, (np.array("a"), np.array(3))),
]  # fmt: skip


def case_id(case: tuple[str, dict[str, Any], Any]) -> str:
    name, arguments, x = case
    shapes = [np.shape(each) for each in (x if isinstance(x, (tuple, list)) else [x])]
    said = [f"{key}={value}" for key, value in arguments.items() if np.size(value) < 4]
    return "-".join([name, *said, *map(str, shapes)]).replace("::", ":")


def same(ours: Any, theirs: Any, rtol: float = 2e-6) -> None:
    theirs = array_of(theirs)
    ours = ours.numpy()
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=1e-6)


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_outputs_are_those_of_keras(case: tuple[str, dict[str, Any], Any]) -> None:
    name, arguments, x = case
    theirs = getattr(peer().layers, name)(**arguments)(x)
    layer = getattr(layers, name)(**arguments)
    same(layer(x), theirs)
    again = type(layer).from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    same(again(x), theirs)
    # In a function whose inputs have no known extents, and in a model.
    parts = list(x) if isinstance(x, tuple) else [x]
    tensors = [sr.constant(part) for part in parts]
    # What is built, and what replaces a last extent of 1, must know extents.
    known = name == "Normalization" or arguments.get("output_mode") == "one_hot"
    specs = [
        sr.TensorSpec([None, *part.shape[1:]] if known else [None] * part.ndim, part.dtype)
        if part.ndim else sr.TensorSpec([], part.dtype)
        for part in tensors
    ]  # fmt: skip
    call = (lambda *xs: layer(list(xs))) if isinstance(x, tuple) else layer
    same(sr.function(call, input_signature=specs)(*tensors), theirs)
    if parts[0].ndim < 1 or (parts[0].ndim == 1 and arguments.get("output_mode") in ("multi_hot",
                                                                                     "count")):
        return
    symbols = [keras.Input(part.shape[1:], dtype=part.dtype) for part in tensors]
    model = keras.Model(symbols, call(*symbols))
    if parts[0].ndim > 1 or name not in ("CategoryEncoding", "Discretization"):
        same(model(tensors), theirs)


# --- What is found.

SKEWED = np.exp(RNG.normal(size=(57, 2))).astype("f")


class Batches:
    """Something that can be iterated again and again."""

    def __init__(self, *batches: Any) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches)


@pytest.mark.parametrize(
    "axis, data",
    [(-1, FLOATS), (None, FLOATS), (-1, CUBES), (1, CUBES), ((1, 2), CUBES)],
    ids=str,
)  # fmt: skip
def test_normalization_adapts_as_keras_does(axis: Any, data: Any) -> None:
    data = data.astype("f")
    peers = peer().layers.Normalization(axis=axis)
    peers.adapt(data)
    theirs = peers(data)
    parts = Batches(data[:1], sr.constant(data[1:3]), data[3:].tolist())
    for given in (data, sr.constant(data), data.tolist(), parts, iter(parts)):
        layer = layers.Normalization(axis=axis)
        layer.adapt(given)
        same(layer(data), theirs, 2e-5)
    mean, variance, count = layer.get_weights()
    assert count == data.size // mean.size
    assert [each.name.split("/")[-1] for each in layer.weights] == ["mean", "variance", "count"]
    assert layer.trainable_weights == []
    again = layers.Normalization.from_config(layer.get_config())
    again.build(data.shape)
    again.set_weights([mean, variance, count])
    np.testing.assert_array_equal(again(data), layer(data))
    back = layers.Normalization(axis=axis, invert=True)
    back.build(data.shape)
    back.set_weights(layer.get_weights())
    np.testing.assert_allclose(back(layer(data)), data, rtol=1e-4, atol=1e-5)


def test_what_normalization_has_found_reaches_functions_and_models() -> None:
    layer = layers.Normalization()
    symbol = keras.Input((2,))
    model = keras.Model(symbol, layer(symbol))
    run = sr.function(layer)
    np.testing.assert_allclose(run(SKEWED), SKEWED, rtol=1e-6)
    layer.adapt(SKEWED)
    wanted = (SKEWED - SKEWED.mean(0)) / SKEWED.std(0)
    for made in (run(SKEWED), model(SKEWED), layer(SKEWED.tolist())):
        np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("num_bins", [2, 4, 10])
@pytest.mark.parametrize("epsilon", [0.01, 0.1])
@pytest.mark.parametrize("size", [3, 57, 1000])
def test_discretization_adapts_as_keras_does(num_bins: int, epsilon: float, size: int) -> None:
    data = np.exp(np.random.default_rng(size).normal(size=size)).astype("f")
    peers = peer().layers.Discretization(num_bins=num_bins, epsilon=epsilon)
    peers.adapt(data)
    layer = layers.Discretization(num_bins=num_bins, epsilon=epsilon)
    layer.adapt(data)
    np.testing.assert_allclose(layer.bin_boundaries, peers.bin_boundaries, rtol=1e-6)
    same(layer(data), peers(data))
    config = layer.get_config()
    again = layers.Discretization.from_config(config)
    assert again.get_config() == config
    same(again(data), peers(data))
    again.adapt(data)


def test_discretization_adapts_to_batches() -> None:
    data = np.exp(np.random.default_rng(0).normal(size=1000)).astype("f")
    layer = layers.Discretization(num_bins=4, output_mode="one_hot")
    layer.adapt(Batches(*(data[i : i + 100] for i in range(0, 1000, 100))))
    counts = layer(data).numpy().sum(0)
    assert counts.shape == (4,) and (abs(counts - 250) < 25).all()
    layer.adapt(Batches([0.0, 10.0], [20.0]), steps=1)
    assert max(layer.bin_boundaries) <= 10


def test_numbers_are_seen_batch_by_batch() -> None:
    layer = layers.Discretization(num_bins=2)
    for part in ([1.0, 2.0], [3.0, 4.0]):
        layer.update_state(part)
    layer.finalize_state()
    found = layer.bin_boundaries
    layer.adapt(Batches([1.0, 2.0], [3.0, 4.0]))
    assert layer.bin_boundaries == found
    layer.reset_state()
    layer.update_state([7.0, 7.0])
    layer.finalize_state()
    assert layer.bin_boundaries == [7.0]


def test_bins_of_a_model_may_be_found_later() -> None:
    symbol = keras.Input((2,))
    layer = layers.Discretization(num_bins=4, output_mode="count")
    model = keras.Model(symbol, layer(symbol))
    assert model.output_shape == (None, 4)
    with pytest.raises(ValueError, match="call adapt"):
        model(SKEWED)
    layer.adapt(SKEWED)
    assert model(SKEWED).numpy().sum() == SKEWED.size


def test_large_integers_are_told_apart() -> None:
    layer = layers.Discretization(bin_boundaries=[2.0**25])
    assert layer(np.array([2**25 - 1, 2**25])).numpy().tolist() == [0, 1]


# --- Ragged rows, weights, crosses.

ROWS = sr.RaggedTensor.from_row_lengths(np.array([1, 2, 2, 0]), [1, 0, 3])


@pytest.mark.parametrize("rows", [ROWS, ROWS.to_sparse()], ids=["ragged", "sparse"])
def test_rows_may_be_ragged_or_sparse(rows: Any) -> None:
    counts = [[0, 1, 0], [0, 0, 0], [1, 0, 2]]
    found = layers.CategoryEncoding(3, "count")(rows)
    assert found.numpy().tolist() == counts
    assert layers.CategoryEncoding(3)(rows).numpy().tolist() == np.minimum(counts, 1).tolist()
    found = layers.Discretization([0.5, 1.5], output_mode="count")(rows)
    assert found.numpy().tolist() == counts
    hashed = layers.Hashing(9)(rows)
    wanted = layers.Hashing(9)(ROWS.values)
    np.testing.assert_array_equal(hashed.values, wanted)


@pytest.mark.parametrize("x", [NUMBERS, NUMBERS[0]], ids=["batch", "one"])
def test_counts_are_weighted(x: Any) -> None:
    rng = np.random.default_rng(1)
    weights = rng.random(x.shape).astype("f")
    theirs = peer().layers.CategoryEncoding(4, "count")(x, count_weights=weights)
    layer = layers.CategoryEncoding(4, "count")
    same(layer(x, count_weights=weights), theirs)
    same(layer(x.tolist(), count_weights=weights.tolist()), theirs)


def test_weights_of_ragged_rows() -> None:
    weights = sr.RaggedTensor(np.array([0.5, 1, 2, 3], "f"), ROWS.row_splits)
    found = layers.CategoryEncoding(3, "count")(ROWS, count_weights=weights)
    assert found.numpy().tolist() == [[0, 0.5, 0], [0, 0, 0], [3, 0, 3]]
    sparse = layers.CategoryEncoding(3, "count")(ROWS.to_sparse(), weights.to_sparse())
    np.testing.assert_array_equal(sparse, found)
    run = sr.function(
        layers.CategoryEncoding(3, "count"),
        input_signature=[sr.TensorSpec([None, 2], "int64"), sr.TensorSpec([2, None], "float32")],
    )
    found = run(np.array([[1, 2], [0, 0]]), np.ones((2, 2), "f"))
    assert found.numpy().tolist() == [[0, 1, 1], [2, 0, 0]]


#: What TensorFlow 2.21 gives.
RECORDED: list[tuple[Any, Any, list[int]]] = [
    (layers.Hashing(5), ["a", "b"], [4, 2]),
    (layers.Hashing(5), [1, 2, 3, -4], [4, 4, 1, 0]),
    (layers.Hashing(5, salt=3), ["a", "b"], [3, 0]),
    (layers.Hashing(5, salt=[3, 4]), ["a", "b"], [3, 3]),
    (layers.Hashing(5, mask_value=""), ["", "b"], [0, 3]),
    (layers.Hashing(5, mask_value=0), [0, 3], [0, 2]),
    (layers.HashedCrossing(5), (["a", "b"], ["x", "y"]), [2, 0]),
    (layers.HashedCrossing(1000), ([1, 2], ["x", "y"]), [859, 604]),
    (layers.StringLookup(vocabulary=["a", "b"], num_oov_indices=3, salt=3),
     ["x", "y", "z", "w"], [2, 0, 0, 2]),
    (layers.StringLookup(vocabulary=["a", "b"], num_oov_indices=3), ["x", "yy", "zzz"], [2, 1, 0]),
]  # fmt: skip


@pytest.mark.parametrize("layer, x, wanted", RECORDED, ids=lambda v: "")
def test_hashes_are_those_of_tensorflow(layer: Any, x: Any, wanted: list[int]) -> None:
    assert layer(x).numpy().tolist() == wanted


CROSSES: list[tuple[dict[str, Any], Any, list[list[str]]]] = [
    ({}, (["a", "b"], [1, 2]), [["a_X_1"], ["b_X_2"]]),
    ({"separator": "-"}, ([["a", "b"]], [["x", "y"]]), [["a-x", "a-y", "b-x", "b-y"]]),
    ({"depth": 2, "separator": ""}, (["a"], ["b"], ["c"]), [["a", "b", "c", "ab", "ac", "bc"]]),
    ({"depth": (2, 3), "separator": ""}, (["a"], ["b"], ["c"]), [["ab", "ac", "bc", "abc"]]),
]


@pytest.mark.parametrize("arguments, x, wanted", CROSSES, ids=str)
def test_crosses_of_text(arguments: dict[str, Any], x: Any, wanted: list[list[str]]) -> None:
    layer = layers.CategoryCrossing(**arguments)
    bytes_wanted = [[each.encode() for each in row] for row in wanted]
    assert layer(x).numpy().tolist() == bytes_wanted
    again = layers.CategoryCrossing.from_config(layer.get_config())
    arrays = [np.asarray(each) for each in x]
    specs = [sr.TensorSpec([None] * each.ndim, sr.constant(each).dtype) for each in arrays]
    run = sr.function(lambda *xs: again(xs), input_signature=specs)
    assert run(*arrays).numpy().tolist() == bytes_wanted
    symbols = [keras.Input(each.shape[1:], dtype=sr.constant(each).dtype) for each in arrays]
    assert keras.Model(symbols, again(symbols))(arrays).numpy().tolist() == bytes_wanted


def test_a_cross_may_be_hashed_after_it_was_joined() -> None:
    a, b = keras.Input((), dtype="string"), keras.Input((), dtype="int64")
    ids = layers.Hashing(50)(layers.CategoryCrossing()([a, b]))
    model = keras.Model([a, b], layers.Embedding(50, 2)(ids))
    assert model([np.array(["x", "y"]), np.array([1, 2])]).shape == (2, 1, 2)


SHAPES: list[tuple[Any, Any, Any]] = [
    (layers.Rescaling(2.0), (None, 3), (None, 3)),
    (layers.Normalization(), (None, 3), (None, 3)),
    (layers.Discretization(num_bins=4), (None, 3), (None, 3)),
    (layers.Discretization(num_bins=4, output_mode="multi_hot"), (None, 3), (None, 4)),
    (layers.CategoryEncoding(7), (None, 3), (None, 7)),
    (layers.CategoryEncoding(7), (None, None, 3), (None, None, 7)),
    (layers.CategoryEncoding(7, "one_hot"), (None, 3), (None, 3, 7)),
    (layers.Hashing(5), (2, 3), (2, 3)),
    (layers.HashedCrossing(5, "one_hot"), [(None, 1), (None, 1)], (None, 5)),
    (layers.CategoryCrossing(), [(None, 2), (None, 3)], (None, 6)),
    (layers.StringLookup(), (None, 3), (None, 3)),
    (layers.StringLookup(output_mode="count", max_tokens=9, pad_to_max_tokens=True), (None, 3),
     (None, 9)),
    (layers.IntegerLookup(vocabulary=[1], output_mode="multi_hot"), (None, 3), (None, 2)),
    (layers.StringLookup(vocabulary=["a"], invert=True), (None, 3), (None, 3)),
    (layers.TextVectorization(output_sequence_length=4), (None,), (None, 4)),
    (layers.TextVectorization(), (None, 1), (None, None)),
]  # fmt: skip


@pytest.mark.parametrize("layer, shape, wanted", SHAPES, ids=lambda v: "")
def test_shapes_of_outputs(layer: Any, shape: Any, wanted: Any) -> None:
    assert layer.compute_output_shape(shape) == wanted


# --- Messages.

MESSAGES: dict[str, tuple[Any, type[Exception], str]] = {
    "bins of hashes": (lambda: layers.Hashing(0), ValueError, "num_bins is 0"),
    "bins of crosses": (lambda: layers.HashedCrossing(None), ValueError, "num_bins is None"),
    "mode of hashes": (
        lambda: layers.Hashing(3, output_mode="tf_idf"), ValueError, "output_mode is .tf_idf.",
    ),
    "mode of crosses": (
        lambda: layers.HashedCrossing(5, output_mode="multi_hot"), ValueError,
        "output_mode is 'multi_hot'; it must be one of int, one_hot",
    ),
    "sparse": (
        lambda: layers.Hashing(3, sparse=True, name="h"), ValueError, "layer 'h': sparse=True",
    ),
    "salt": (lambda: layers.Hashing(3, salt=[1, 2, 3]), ValueError, r"salt is \[1, 2, 3\]"),
    "mask": (
        lambda: layers.Hashing(3, mask_value=0)(["a"]), ValueError, "mask_value is 0, but.*string",
    ),
    "one input": (
        lambda: layers.HashedCrossing(5)([np.array(["a"])]), ValueError, "two inputs or more",
    ),
    "no list": (
        lambda: layers.HashedCrossing(5)(np.array(["a"])), ValueError, "called on a list of inputs",
    ),
    "floats": (
        lambda: layers.HashedCrossing(5)((["a"], [1.5])), ValueError, "input 1 is .*float",
    ),
    "wide": (
        lambda: layers.HashedCrossing(5, name="c")(([["a", "b"]], [["x", "y"]])), ValueError,
        r"layer 'c'.*shapes \[\(1, 2\), \(1, 2\)\]",
    ),
    "depth": (lambda: layers.CategoryCrossing(depth=0), ValueError, "depth is 0"),
    "depths": (
        lambda: layers.CategoryCrossing(depth=(5,))((["a"], ["b"])), ValueError,
        r"depth is \(5,\), but there are 2 inputs",
    ),
    "no tokens": (lambda: layers.CategoryEncoding(), ValueError, "num_tokens must be given"),
    "tokens": (lambda: layers.CategoryEncoding(0), ValueError, "num_tokens is 0"),
    "mode of encodings": (
        lambda: layers.CategoryEncoding(3, output_mode="int"), ValueError, "output_mode is 'int'",
    ),
    "label": (
        lambda: layers.CategoryEncoding(3, name="e")([[1, 5]]), sr.errors.InvalidArgumentError,
        "layer 'e': numbers must be from 0 to 2, below num_tokens=3; they are.*5",
    ),
    "negative label": (
        lambda: sr.function(layers.CategoryEncoding(3, "one_hot"))(np.array([-1])),
        sr.errors.InvalidArgumentError, "numbers must be from 0 to 2",
    ),
    "text": (lambda: layers.CategoryEncoding(3)(["a"]), TypeError, "inputs are strings"),
    "weights": (
        lambda: layers.CategoryEncoding(3)([1], count_weights=[1.0]), ValueError,
        "count_weights are for output_mode=.count",
    ),
    "shape of weights": (
        lambda: layers.CategoryEncoding(3, "count")([1, 2], count_weights=[[1.0, 2.0]]), ValueError,
        r"inputs has shape \(2,\) and count_weights \(1, 2\); they must be equal",
    ),
    "kind of weights": (
        lambda: layers.CategoryEncoding(3, "count")(ROWS, count_weights=[1.0]), ValueError,
        "both be tensors, or both ragged or sparse",
    ),
    "no bins": (lambda: layers.Discretization(), ValueError, "give bin_boundaries, or num_bins"),
    "both": (lambda: layers.Discretization([1.0], 2), ValueError, "num_bins is 2.*give one of"),
    "unsorted": (
        lambda: layers.Discretization([2.0, 1.0], name="d"), sr.errors.InvalidArgumentError,
        r"'d': bin_boundaries are \[2.0, 1.0\]; they must be sorted",
    ),
    "not adapted": (
        lambda: layers.Discretization(num_bins=3, name="d")([1.0]), ValueError,
        "layer 'd' has no bins yet; give bin_boundaries, or call adapt",
    ),
    "adapted": (
        lambda: layers.Discretization([1.0]).adapt([1.0]), ValueError, "given its bin_boundaries",
    ),
    "bins of text": (
        lambda: layers.Discretization([1.0])(["a"]), sr.errors.InvalidArgumentError, "of numbers",
    ),
    "adapt to text": (
        lambda: layers.Discretization(num_bins=2).adapt(["a"]), TypeError, "batch of strings",
    ),
    "adapt to nothing": (
        lambda: layers.Discretization(num_bins=2, name="d").adapt(iter([])), ValueError,
        "layer 'd' was given no data",
    ),
    "mean": (lambda: layers.Normalization(mean=1.0), ValueError, "mean is 1.0 and var.* None"),
    "static": (
        lambda: layers.Normalization(mean=1.0, variance=1.0).adapt(FLOATS), ValueError,
        "was given its mean and variance",
    ),
    "axis": (lambda: layers.Normalization(axis=2)(FLOATS), ValueError, "axis is .2,., .* have 2"),
    "shape of mean": (
        lambda: layers.Normalization(mean=[1.0, 2.0], variance=1.0, name="n")(FLOATS),
        sr.errors.InvalidArgumentError, r"'n': mean of shape \(2,\).*inputs of shape \(6, 3\)",
    ),
    "unknown extent": (
        lambda: layers.Normalization()(keras.Input((None,))), ValueError, "must be known; inputs",
    ),
    "no numbers": (lambda: layers.Normalization().adapt([["a"]]), TypeError, "batch of .*string"),
    "no data": (lambda: layers.Normalization().adapt(iter([])), ValueError, "was given no data"),
    "rank": (
        lambda: (n := layers.Normalization(), n(FLOATS), n(FLOATS[None])), ValueError,
        "built for inputs of 2 dimensions",
    ),
    "in a function": (
        lambda: sr.function(lambda x: layers.Normalization().adapt(x))(FLOATS),
        sr.errors.FailedPreconditionError, "call it outside of functions",
    ),
}  # fmt: skip


@pytest.mark.parametrize("which", MESSAGES)
def test_messages(which: str) -> None:
    call, error, message = MESSAGES[which]
    with pytest.raises(error, match=message):
        call()
