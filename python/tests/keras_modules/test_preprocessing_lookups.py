"""StringLookup and IntegerLookup beside Keras' own: outputs in every mode, vocabularies that are
given, read and adapted to, configs, and messages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from keras_peer import QUIET, array_of, peer

import sidereal as sr
from sidereal import keras
from sidereal.keras import layers

pytest.importorskip("tensorflow", reason="Keras' layers of preprocessing need TensorFlow")
pytestmark = QUIET

WORDS = np.array([["b", "a", "x"], ["", "b", "b"], ["c", "ü", "zz"]])
KNOWN = WORDS[:, 1:2][:2]
IDS = np.array([[7, -1, 7], [0, 3, 100], [2**40, 5, -6]])
TEXT: dict[str, Any] = {"vocabulary": ["a", "b", "ü", "d"]}
INTS: dict[str, Any] = {"vocabulary": [3, 7, 0, 2**40]}
MODES = ["one_hot", "multi_hot", "count"]

CASES: list[tuple[str, dict[str, Any], Any]] = [
    *(("StringLookup", {**TEXT, **more}, WORDS)
      for more in ({}, {"num_oov_indices": 3}, {"mask_token": ""}, {"mask_token": "m"},
                   {"mask_token": "", "num_oov_indices": 2}, {"oov_token": "other"},
                   {"num_oov_indices": 5, "salt": 7}, {"num_oov_indices": 5, "salt": [7, 9]},
                   {"max_tokens": 9}, {"vocabulary": ["[UNK]", "ü", "a"]},
                   {"vocabulary": ["", "[UNK]", "ü", "a"], "mask_token": ""},
                   {"vocabulary": np.array(["ü", "a"]), "num_oov_indices": 2},
                   {"output_mode": "tf_idf", "idf_weights": [0.5, 1.0, 2.0, 0.25]},
                   {"output_mode": "tf_idf", "idf_weights": [9.0, 1.0, 2.0], "num_oov_indices": 1,
                    "vocabulary": ["[UNK]", "a", "b"]},
                   {"output_mode": "tf_idf", "idf_weights": [0.5, 1.0, 2.0, 0.25],
                    "num_oov_indices": 2, "pad_to_max_tokens": True, "max_tokens": 8})),
    *(("StringLookup", {**TEXT, "output_mode": mode, **more}, x)
      for mode in MODES
      for more in ({}, {"num_oov_indices": 2, "mask_token": ""},
                   {"max_tokens": 9, "pad_to_max_tokens": True})
      for x in (WORDS, WORDS[0], WORDS[:, :1])),
    ("StringLookup", {**TEXT, "num_oov_indices": 0}, KNOWN),
    ("StringLookup", {**TEXT, "num_oov_indices": 0, "mask_token": "x"}, WORDS[0]),
    # Of one dimension: Keras on PyTorch cannot do more.
    *(("StringLookup", {**TEXT, "invert": True, **more}, np.array([0, 1, 2, 3, 9, -1]))
      for more in ({}, {"mask_token": ""}, {"num_oov_indices": 2}, {"num_oov_indices": 0})),
    *(("IntegerLookup", {**INTS, **more}, IDS)
      for more in ({}, {"num_oov_indices": 3}, {"mask_token": -6}, {"mask_token": 0,
                   "vocabulary": [3, 7]}, {"oov_token": -9}, {"vocabulary": [-1, 3, 7]},
                   {"num_oov_indices": 4, "oov_method": "farmhash"},
                   {"num_oov_indices": 4, "oov_method": "farmhash", "salt": 3},
                   {"output_mode": "tf_idf", "idf_weights": [0.5, 1.0, 2.0, 0.25]})),
    *(("IntegerLookup", {**INTS, "output_mode": mode, **more}, IDS)
      for mode in MODES for more in ({}, {"num_oov_indices": 2, "mask_token": -1})),
    *(("IntegerLookup", {**INTS, "invert": True, **more}, np.array([[0, 1, 2], [3, 9, -1]]))
      for more in ({}, {"mask_token": -5}, {"num_oov_indices": 2})),
]  # fmt: skip


def case_id(case: tuple[str, dict[str, Any], Any]) -> str:
    name, arguments, x = case
    usual = [str(each["vocabulary"]) for each in (TEXT, INTS)]
    said = [f"{key}={value}" for key, value in arguments.items() if str(value) not in usual]
    return "-".join([name, *said, str(np.shape(x))]).replace("[", "").replace("]", "")


def text_of(values: Any) -> Any:
    """Bytes as text."""
    values = np.asarray(values)
    if values.dtype.kind != "O":
        return values.tolist()
    flat = [each.decode() if isinstance(each, bytes) else each for each in values.ravel()]
    return np.array(flat).reshape(values.shape).tolist()


def same(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, list):
        assert text_of(ours.numpy()) == theirs
        return
    theirs = array_of(theirs)
    assert (ours.numpy().shape, ours.numpy().dtype) == (theirs.shape, theirs.dtype)
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-6)


def plain(tokens: Any) -> list[Any]:
    return np.asarray(tokens).tolist()


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_outputs_are_those_of_keras(case: tuple[str, dict[str, Any], Any]) -> None:
    name, arguments, x = case
    peers = getattr(peer().layers, name)(**arguments)
    layer = getattr(layers, name)(**arguments)
    theirs = peers(x)
    same(layer(x), theirs)
    assert layer.get_vocabulary() == plain(peers.get_vocabulary())
    assert layer.get_vocabulary(False) == plain(peers.get_vocabulary(False))
    assert layer.vocabulary_size() == peers.vocabulary_size()
    again = type(layer).from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    same(again(x.tolist()), theirs)
    tensor = sr.constant(x)
    same(sr.function(layer, input_signature=[sr.TensorSpec([None, *x.shape[1:]], tensor.dtype)])(
        tensor), theirs)  # fmt: skip
    if x.ndim > 1:
        symbol = keras.Input(x.shape[1:], dtype=tensor.dtype)
        same(keras.Model(symbol, layer(symbol))(tensor), theirs)


# --- Vocabularies that are found.

DOCUMENTS = np.array([["b", "a", "b"], ["c", "c", "a"], ["", "c", "d"], ["e", "[UNK]", "c"]])
INTEGERS = np.array([[3, 3, 1], [-1, 5, 1], [2**40, 1, 0]])

ADAPTED: list[tuple[str, dict[str, Any], Any, Any]] = [
    *(("StringLookup", arguments, DOCUMENTS, WORDS)
      for arguments in ({}, {"max_tokens": 4}, {"mask_token": ""}, {"num_oov_indices": 3},
                        {"mask_token": "", "max_tokens": 4}, {"output_mode": "tf_idf"},
                        {"output_mode": "tf_idf", "max_tokens": 4, "mask_token": ""},
                        {"output_mode": "count"},
                        {"output_mode": "multi_hot", "max_tokens": 20, "pad_to_max_tokens": True},
                        {"output_mode": "tf_idf", "max_tokens": 9, "pad_to_max_tokens": True})),
    *(("IntegerLookup", arguments, INTEGERS, IDS)
      for arguments in ({}, {"max_tokens": 3}, {"mask_token": 0, "num_oov_indices": 2},
                        {"output_mode": "tf_idf"})),
]  # fmt: skip


class Batches:
    """Something that can be iterated again and again."""

    def __init__(self, *batches: Any) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches)


@pytest.mark.parametrize("case", ADAPTED, ids=lambda c: f"{c[0]}-{c[1]}")
def test_adapt_finds_what_keras_finds(case: tuple[str, dict[str, Any], Any, Any]) -> None:
    name, arguments, data, x = case
    peers = getattr(peer().layers, name)(**arguments)
    peers.adapt(data)
    theirs = peers(x)
    cut = len(data) // 2
    ragged = sr.RaggedTensor.from_row_lengths(data.ravel(), [data.shape[1]] * len(data))
    for given in (data, sr.constant(data), data.tolist(), ragged, Batches(data[:cut], data[cut:]),
                  iter([sr.constant(data[:1]), data[1:].tolist()])):  # fmt: skip
        layer = getattr(layers, name)(**arguments)
        layer.adapt(given)
        assert layer.get_vocabulary() == plain(peers.get_vocabulary())
        same(layer(x), theirs)
    layer.adapt(data)
    same(layer(x), theirs)


def test_adapt_stops_after_steps() -> None:
    layer = layers.StringLookup()
    layer.adapt(Batches(["a"], ["b"], ["c"]), steps=2)
    assert layer.get_vocabulary() == ["[UNK]", "b", "a"]
    layer.adapt(Batches(["z"]))
    assert layer.get_vocabulary() == ["[UNK]", "z"]


def test_states_are_counted_one_by_one() -> None:
    layer = layers.IntegerLookup()
    layer.update_state([1, 2])
    layer.update_state([[2, 3]])
    layer.finalize_state()
    assert layer.get_vocabulary(include_special_tokens=False) == [2, 3, 1]
    layer.reset_state()
    layer.finalize_state()
    assert layer.vocabulary_size() == 1


@pytest.mark.parametrize("end", ["\n", "", "\r\n"], ids=repr)
def test_vocabularies_are_read_from_files(tmp_path: Path, end: str) -> None:
    path = tmp_path / "words.txt"
    path.write_bytes(("a\nü\nbb" + end).encode())
    for given in (str(path), path):
        layer = layers.StringLookup(vocabulary=given)
        assert layer.get_vocabulary() == ["[UNK]", "a", "ü", "bb"]
    assert layers.StringLookup.from_config(layer.get_config()).vocabulary_size() == 4
    path.write_text("5\n-3\n")
    assert layers.IntegerLookup(vocabulary=str(path))([-3, 5, 0]).numpy().tolist() == [2, 1, 0]
    path.write_text("5\nx\n")
    with pytest.raises(ValueError, match=r"words.txt' line 2: b'x' is no int64"):
        layers.IntegerLookup(vocabulary=str(path))


@pytest.mark.parametrize("name, data", [("StringLookup", DOCUMENTS), ("IntegerLookup", INTEGERS)])
@pytest.mark.parametrize("mode", ["int", "tf_idf"])
def test_assets_are_written_and_read(tmp_path: Path, name: str, data: Any, mode: str) -> None:
    layer = getattr(layers, name)(output_mode=mode)
    layer.adapt(data)
    layer.save_assets(str(tmp_path))
    again = getattr(layers, name).from_config(layer.get_config())
    again.load_assets(str(tmp_path))
    assert again.get_vocabulary() == layer.get_vocabulary()
    np.testing.assert_array_equal(again(data), layer(data))


def test_rows_may_be_ragged_or_sparse() -> None:
    words = sr.RaggedTensor.from_row_lengths(["a", "z", "b", "b"], [1, 0, 3])
    layer = layers.StringLookup(vocabulary=["a", "b"])
    assert layer(words).to_list() == [[1], [], [0, 2, 2]]
    assert layer(words.to_sparse()).values.numpy().tolist() == [1, 0, 2, 2]
    counts = layers.StringLookup(vocabulary=["a", "b"], output_mode="count")
    wanted = [[0, 1, 0], [0, 0, 0], [1, 0, 2]]
    assert counts(words).numpy().tolist() == wanted
    assert counts(words.to_sparse()).numpy().tolist() == wanted
    run = sr.function(lambda values, splits: counts(sr.RaggedTensor(values, splits)))
    assert run(words.values, words.row_splits).numpy().tolist() == wanted


def test_a_layer_of_a_model_may_be_adapted_later() -> None:
    words = keras.Input((2,), dtype="string")
    lookup = layers.StringLookup()
    model = keras.Model(words, layers.Flatten()(layers.Embedding(9, 2)(lookup(words))))
    given = np.array([["a", "b"], ["z", "a"]])
    with pytest.raises(sr.errors.FailedPreconditionError, match="has no vocabulary"):
        model(given)
    lookup.adapt(given)
    rows = model.get_weights()[0]
    np.testing.assert_allclose(model(given)[0], rows[[1, 3]].ravel())


def test_a_model_of_text_is_trained() -> None:
    words = keras.Input((3,), dtype="string", name="words")
    lookup = layers.StringLookup(vocabulary=["a", "b", "c"], output_mode="multi_hot")
    model = keras.Model(words, layers.Dense(1)(lookup(words)))
    model.compile(keras.optimizers.Adam(0.1), "mse")
    given = np.random.default_rng(0).choice(["a", "b", "c", "x"], (64, 3))
    target = (given == "b").any(1).astype("f")
    loss = model.fit(given, target, epochs=40, verbose=0).history["loss"]
    assert loss[-1] < 1e-2


def test_bytes_that_are_no_text_keep_their_bytes() -> None:
    layer = layers.StringLookup()
    layer.adapt(np.array([b"\xff\xfe", b"a"], dtype=object))
    assert layer(np.array([b"\xff\xfe", b"a", b"b"], dtype=object)).numpy().tolist() == [1, 2, 0]


# --- Messages.


def _changed() -> Any:
    layer = layers.StringLookup(vocabulary=["a"], output_mode="count")
    layer(["a"])
    layer.set_vocabulary(["a", "b"])


def text(**arguments: Any) -> Any:
    return layers.StringLookup(**{"vocabulary": ["a", "b"], "name": "words", **arguments})


MESSAGES: dict[str, tuple[Any, type[Exception], str]] = {
    "not adapted": (
        lambda: layers.StringLookup(name="w")(["a"]), sr.errors.FailedPreconditionError,
        "layer 'w' has no vocabulary; give.*adapt",
    ),
    "not adapted, of a model": (
        lambda: layers.StringLookup(name="w", output_mode="count")(keras.Input((), dtype="string")),
        sr.errors.FailedPreconditionError, "layer 'w' has no vocabulary",
    ),
    "no file": (
        lambda: text(vocabulary="/no/such.txt"), ValueError,
        "there is no vocabulary file '/no/such.txt'",
    ),
    "repeated": (lambda: text(vocabulary=["a", "a"]), ValueError, "tokens more than once: 'a'"),
    "empty": (lambda: text(vocabulary=[]), ValueError, "'words': the vocabulary .. has no tokens"),
    "mask inside": (
        lambda: text(mask_token="b"), ValueError, "the mask token 'b' is token 1 of",
    ),
    "oov inside": (
        lambda: text(oov_token="b", invert=True), ValueError, "the OOV token 'b' is token 1",
    ),
    "too many": (
        lambda: text(max_tokens=2), ValueError, "max_tokens is 2, but the vocabulary has 3",
    ),
    "max_tokens": (lambda: text(max_tokens=1), ValueError, "max_tokens is 1"),
    "padding": (lambda: text(pad_to_max_tokens=True), ValueError, "needs max_tokens"),
    "negative": (lambda: text(num_oov_indices=-1), ValueError, "num_oov_indices is -1"),
    "mode": (lambda: text(output_mode="x"), ValueError, "output_mode is 'x'"),
    "inverse mode": (
        lambda: text(output_mode="count", invert=True), ValueError, "must be 'int', not 'count'",
    ),
    "sparse": (lambda: text(output_mode="count", sparse=True), ValueError, "sparse=True.*dense"),
    "weights": (
        lambda: text(idf_weights=[1.0, 2.0]), ValueError, "are for output_mode='tf_idf'",
    ),
    "no weights": (lambda: text(output_mode="tf_idf"), ValueError, "must come with idf_weights"),
    "other weights": (
        lambda: text(output_mode="tf_idf", idf_weights=[1.0]), ValueError,
        "there are 1 idf_weights for 2 tokens",
    ),
    "oov": (
        lambda: text(num_oov_indices=0)(["a", "zz"]), sr.errors.InvalidArgumentError,
        "'words': with num_oov_indices=0 all inputs must be in the vocabulary.*zz",
    ),
    "numbers": (lambda: text()([1]), TypeError, "'words': StringLookup is of strings; .* int32"),
    "text": (
        lambda: layers.IntegerLookup(vocabulary=[1])(["a"]), TypeError, "is of integers.*string",
    ),
    "text of numbers": (lambda: text(invert=True)(["a"]), TypeError, "invert=True.*of integers"),
    "tokens": (
        lambda: layers.IntegerLookup(vocabulary=["a"]), ValueError, "tokens of IntegerLookup must",
    ),
    "static": (lambda: text().adapt(["a"]), ValueError, "'words' was given its vocabulary"),
    "pairs": (
        lambda: layers.StringLookup().adapt(Batches((np.array(["a"]), np.array([1])))), TypeError,
        "batches of its inputs alone.*tuple",
    ),
    "changed": (_changed, RuntimeError, "vectors of 2 elements; .* make them 3"),
    "salt": (
        lambda: layers.IntegerLookup(salt=3), ValueError, "a salt is for oov_method='farmhash'",
    ),
    "salts": (lambda: text(salt=[1, 2, 3]), ValueError, r"salt is \[1, 2, 3\]"),
    "method": (lambda: layers.IntegerLookup(oov_method="x"), ValueError, "oov_method is 'x'"),
    "dtype": (
        lambda: layers.IntegerLookup(vocabulary_dtype="float32"), ValueError,
        "must be int32 or int64",
    ),
}  # fmt: skip


@pytest.mark.parametrize("which", MESSAGES)
def test_messages(which: str) -> None:
    call, error, message = MESSAGES[which]
    with pytest.raises(error, match=message):
        call()
