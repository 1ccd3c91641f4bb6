"""Models that are exported, and called in a process that knows nothing of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras_models
import numpy as np
import pytest
from keras_models import MODELS
from other_process import in_another_process
from strategies import Servers, strategy_of

import sidereal as sr
from sidereal import errors, keras
from sidereal.distribute.experimental.partitioners import FixedShardsPartitioner
from sidereal.keras import layers

#: Answers texts by texts; arguments: the file, and texts.
ASKS = """
import sys
import numpy as np
import sidereal as sr
model = sr.saved_model.load(sys.argv[1])
answer = model.signatures["serving_default"](words=np.array(sys.argv[2:]))
print(" ".join(each.decode() for each in answer["label"].numpy()))
"""


def reader() -> Any:
    """Points of two classes for a word of a vocabulary that was found in data."""
    lookup = layers.StringLookup()
    lookup.adapt(np.array(["good", "fine", "bad", "good"]))
    word = keras.Input((), dtype="string", name="word")
    rows = layers.Embedding(lookup.vocabulary_size(), 2, "zeros")(lookup(word))
    model = keras.Model(word, layers.Activation("softmax")(rows))
    values = np.zeros((4, 2), "f")
    for token, column in (("good", 1), ("fine", 1), ("bad", 0)):
        values[lookup.get_vocabulary().index(token), column] = 3.0
    model.set_weights([values])
    return model


def test_texts_are_answered_by_texts_in_another_process(tmp_path: Path) -> None:
    model = reader()
    names = layers.StringLookup(vocabulary=["no", "yes"], num_oov_indices=0, invert=True)

    @sr.function(input_signature=[sr.TensorSpec((None,), sr.string, "words")])
    def classify(words: Any) -> Any:
        points = model(words)
        return {"label": names(sr.argmax(points, -1)), "points": points}

    file = tmp_path / "m.srsm"
    model.export(file, signatures=classify)
    assert in_another_process(ASKS, file, "good", "bad", "fine", "new").split() == [
        "yes", "no", "yes", "no",
    ]  # fmt: skip
    loaded = sr.saved_model.load(file)
    words = np.array(["bad", "good"])
    np.testing.assert_array_equal(loaded.serve(words).numpy(), model(words).numpy())


@pytest.mark.parametrize("name", ["mlp", "normalized", "recommender", "two_outputs_by_name",
                                  "translator", "subclassed", "interests"])  # fmt: skip
def test_models_are_served_as_they_predict(tmp_path: Path, name: str) -> None:
    build, data, _ = MODELS[name]
    model, (x, _) = build(keras), data()
    wanted = sr.nest.flatten(model.predict(x, verbose=0))
    model.export(tmp_path / "m.srsm")
    loaded = sr.saved_model.load(tmp_path / "m.srsm")
    leaves = sr.nest.flatten(x)
    for size in (50, 3):
        given = sr.nest.pack(x, [each[:size] for each in leaves])
        found = sr.nest.flatten(loaded.serve(given))
        for one, other in zip(found, wanted):
            np.testing.assert_allclose(one.numpy(), other[:size], rtol=1e-5, atol=1e-6)
    serving = loaded.signatures["serving_default"]
    if name == "recommender":
        assert list(serving.inputs) == ["ids", "numbers"]
    assert [each.name for each in loaded.variables if "iterations" in each.name] == []


def test_ragged_inputs_are_served(tmp_path: Path) -> None:
    ids = keras.Input((None,), ragged=True, dtype="int64", name="ids")
    model = keras.Model(ids, layers.Embedding(9, 3, combiner="sum")(ids))
    model.export(tmp_path / "m.srsm")
    x = sr.RaggedTensor.from_row_lengths(sr.constant([1, 2, 3], "int64"), [1, 0, 2])
    loaded = sr.saved_model.load(tmp_path / "m.srsm")
    np.testing.assert_array_equal(loaded.serve(x).numpy(), model(x).numpy())
    assert list(loaded.signatures["serving_default"].inputs) == ["ids_values", "ids_row_splits"]


def test_a_model_on_a_cluster_is_exported_whole(tmp_path: Path) -> None:
    servers = Servers(2, 1)
    strategy = strategy_of(servers.cluster, FixedShardsPartitioner(2))
    with strategy.scope():
        model = reader()
    words = np.array(["bad", "good"])
    model.export(tmp_path / "m.srsm")
    loaded = sr.saved_model.load(tmp_path / "m.srsm")
    np.testing.assert_array_equal(loaded.serve(words).numpy(), model.predict(words, verbose=0))
    assert [each.shape for each in loaded.variables] == [(4, 2)]
    with pytest.raises(errors.UnimplementedError, match="outside of the scope"):
        model.export(tmp_path / "m.srsm", signatures=sr.function(lambda x: x))
    with strategy.scope(), pytest.raises(ValueError, match="outside of its scope"):
        model.export(tmp_path / "m.srsm")
    servers.stop()


def test_what_cannot_be_exported(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'tf_saved_model', 'onnx' or 'tables'"):
        keras_models.mlp(keras).export(tmp_path / "m", format="tf_graph")
    with pytest.raises(ValueError, match="has no Embedding"):
        keras_models.mlp(keras).export(tmp_path / "m", format="tables")
    with pytest.raises(ValueError, match="no signatures"):
        keras_models.mlp(keras).export(
            tmp_path / "m.onnx", format="onnx", signatures=sr.function(lambda x: x)
        )
    with pytest.raises(ValueError, match="never called"):
        keras_models.deferred(keras).export(tmp_path / "m.srsm")
    model = keras_models.deferred(keras)
    model.export(tmp_path / "m.srsm", input_signature=[sr.TensorSpec((None, 4), sr.float32)])
    loaded = sr.saved_model.load(tmp_path / "m.srsm")
    assert loaded.serve(np.zeros((3, 4), "f")).shape == (3, 1)
