"""TextVectorization beside Keras' own: standardizing, splitting, n-grams, output modes, adapt()."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from keras_peer import QUIET, array_of, peer

import sidereal as sr
from sidereal import keras
from sidereal.keras import layers

pytest.importorskip("tensorflow", reason="Keras' layers of preprocessing need TensorFlow")
pytestmark = QUIET

TEXTS = np.array([
    "Hi, you!  You there", "you you x\ty", "", "  it's a [test]: under_score-dash 100% ÜBER über ",
    "a", "back\\slash ^ ~tilde| \"q\" 'r' <b> {c} $5 #6 @7 *8 +9 =0 ;,./?`",
])  # fmt: skip
WORDS = ["hi", "you", "hi you", "you you", "its", "a", "test", "h", "y", " ", "über", "ü"]
WEIGHTS = [float(i + 1) for i in range(len(WORDS))]

#: Arguments of a layer, and texts.
CASES: list[tuple[dict[str, Any], Any]] = [
    *((more, TEXTS) for more in (
        {}, {"standardize": "lower"}, {"standardize": "strip_punctuation"}, {"standardize": None},
        {"split": "character"}, {"split": "character", "standardize": None},
        {"ngrams": 2}, {"ngrams": 3}, {"ngrams": (2,)}, {"ngrams": (3, 1)},
        {"output_sequence_length": 2}, {"output_sequence_length": 20},
        {"output_mode": "multi_hot"}, {"output_mode": "count"},
        {"output_mode": "count", "ngrams": 2},
        {"output_mode": "multi_hot", "max_tokens": 20, "pad_to_max_tokens": True},
        {"output_mode": "tf_idf", "idf_weights": WEIGHTS},
    )),
    ({}, TEXTS[:, None]),
    ({"split": None}, TEXTS),
    ({"split": None, "output_sequence_length": 2}, TEXTS[None]),
    ({"split": None, "output_sequence_length": 9}, TEXTS[None]),
    ({"split": None, "output_mode": "multi_hot"}, TEXTS[:4].reshape(2, 2)),
    ({}, np.array("hi you")), ({"ngrams": 2}, np.array("hi you x")),
    ({"output_sequence_length": 3}, np.array("hi you")),
    ({"output_mode": "count"}, np.array("hi you")),
]  # fmt: skip


def same(ours: Any, theirs: Any) -> None:
    theirs = array_of(theirs)
    assert ours.numpy().shape == theirs.shape
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-6)


@pytest.mark.parametrize("arguments, texts", CASES, ids=str)
def test_outputs_are_those_of_keras(arguments: dict[str, Any], texts: Any) -> None:
    given = {"vocabulary": WORDS, **arguments}
    theirs = peer().layers.TextVectorization(**given)(texts)
    layer = layers.TextVectorization(**given)
    same(layer(texts), theirs)
    again = layers.TextVectorization.from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    same(again(sr.constant(texts)), theirs)
    extents = [None, *texts.shape[1:]] if texts.ndim else []
    run = sr.function(layer, input_signature=[sr.TensorSpec(extents, "string")])
    same(run(sr.constant(texts)), theirs)
    if texts.ndim:
        symbol = keras.Input(texts.shape[1:], dtype="string")
        same(keras.Model(symbol, layer(symbol))(texts), theirs)


@pytest.mark.parametrize(
    "arguments",
    [{}, {"ngrams": 2}, {"max_tokens": 5}, {"split": "character"}, {"split": None},
     {"output_mode": "tf_idf"}, {"output_mode": "tf_idf", "ngrams": 2, "max_tokens": 9},
     {"output_mode": "count"}],
    ids=str,
)  # fmt: skip
def test_adapt_finds_what_keras_finds(arguments: dict[str, Any]) -> None:
    peers = peer().layers.TextVectorization(**arguments)
    peers.adapt(TEXTS)
    theirs = peers(TEXTS)
    for given in (TEXTS, TEXTS.tolist(), sr.constant(TEXTS), [TEXTS[:2], TEXTS[2:]].__iter__()):
        layer = layers.TextVectorization(**arguments)
        layer.adapt(given)
        assert layer.get_vocabulary() == np.asarray(peers.get_vocabulary()).tolist()
        assert layer.vocabulary_size() == peers.vocabulary_size()
        same(layer(TEXTS), theirs)


def test_rows_may_stay_ragged() -> None:
    layer = layers.TextVectorization(vocabulary=WORDS, ragged=True)
    assert layer(TEXTS[:3]).to_list() == [[2, 3, 3, 1], [3, 3, 1, 10], []]


def test_functions_standardize_and_split() -> None:
    layer = layers.TextVectorization(
        standardize=lambda x: sr.strings.regex_replace(x, "[0-9]+", ""),
        split=lambda x: sr.strings.split(x, ";"),
    )
    layer.adapt(["a1;b", "b22;b"])
    assert layer.get_vocabulary() == ["", "[UNK]", "b", "a"]
    assert layer(["b7;a;c"]).numpy().tolist() == [[2, 3, 1]]


def test_a_vocabulary_is_set_and_kept(tmp_path: Any) -> None:
    layer = layers.TextVectorization()
    layer.set_vocabulary(["x", "y"])
    again = layers.TextVectorization.from_config(layer.get_config())
    assert again(["y x z"]).numpy().tolist() == [[3, 2, 1]]
    layer.save_assets(str(tmp_path))
    empty = layers.TextVectorization()
    empty.load_assets(str(tmp_path))
    assert empty.get_vocabulary(False) == ["x", "y"]


def test_a_model_of_texts_is_trained() -> None:
    texts = keras.Input((), dtype="string")
    layer = layers.TextVectorization(output_sequence_length=3)
    layer.adapt(["good bad fair"])
    rows = layers.Embedding(layer.vocabulary_size(), 4, mask_zero=True)(layer(texts))
    model = keras.Model(texts, layers.Dense(1)(layers.GlobalAveragePooling1D()(rows)))
    model.compile(keras.optimizers.Adam(0.1), "mse")
    given = np.array(["good", "bad", "Good, fair!", "bad fair"] * 8)
    loss = model.fit(given, np.array([1, 0, 1, 0] * 8), epochs=20, verbose=0).history["loss"]
    assert loss[-1] < 0.05


MESSAGES: dict[str, tuple[Any, type[Exception], str]] = {
    "mode": (lambda: layers.TextVectorization(output_mode="x"), ValueError, "output_mode is 'x'"),
    "standardize": (lambda: layers.TextVectorization(standardize="x"), ValueError, "ize is 'x'"),
    "split": (lambda: layers.TextVectorization(split="x"), ValueError, "split is 'x'"),
    "ngrams": (lambda: layers.TextVectorization(ngrams="x"), ValueError, "ngrams is 'x'"),
    "ngrams of 0": (lambda: layers.TextVectorization(ngrams=0), ValueError, "ngrams is 0"),
    "ngrams of texts": (
        lambda: layers.TextVectorization(ngrams=2, split=None), ValueError, "split is None",
    ),
    "length": (
        lambda: layers.TextVectorization(output_mode="count", output_sequence_length=3), ValueError,
        "output_sequence_length=3",
    ),
    "no length": (
        lambda: layers.TextVectorization(output_sequence_length=0), ValueError, "positive integer",
    ),
    "ragged": (
        lambda: layers.TextVectorization(output_mode="count", ragged=True), ValueError,
        "ragged=True is for output_mode='int', not 'count'",
    ),
    "sparse": (lambda: layers.TextVectorization(sparse=True), ValueError, "outputs are dense"),
    "rank": (
        lambda: layers.TextVectorization(vocabulary=["a"], name="t")([["a", "b"]]), ValueError,
        r"layer 't' takes texts .*shape \(1, 2\)",
    ),
    "numbers": (lambda: layers.TextVectorization()([1]), TypeError, "is of strings; .* int32"),
    "not adapted": (
        lambda: layers.TextVectorization(name="t")(["a"]), sr.errors.FailedPreconditionError,
        "layer 't' has no vocabulary",
    ),
    "static": (
        lambda: layers.TextVectorization(vocabulary=["a"], name="t").adapt(["a"]), ValueError,
        "layer 't' was given its vocabulary",
    ),
}  # fmt: skip


@pytest.mark.parametrize("which", MESSAGES)
def test_messages(which: str) -> None:
    call, error, message = MESSAGES[which]
    with pytest.raises(error, match=message):
        call()
