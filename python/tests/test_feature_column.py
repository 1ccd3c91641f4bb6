"""Feature columns: their checks, layers of Keras, variables that are cut, training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sidereal as sr
import sidereal.v1 as tf
from sidereal.ops.sparse import SparseTensor

fc = sr.feature_column


def hashed(key: str = "text", size: int = 7) -> Any:
    return fc.categorical_column_with_hash_bucket(key, size)


WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "shape": (lambda: fc.numeric_column("a", 0), ValueError, "greater than 0"),
    "shape of floats": (lambda: fc.numeric_column("a", [1.5]), TypeError, "must be integer"),
    "key": (lambda: fc.numeric_column(["a"]), ValueError, "key must be a string"),
    "text": (lambda: fc.numeric_column("a", dtype="string"), ValueError, "convertible to float"),
    "default": (lambda: fc.numeric_column("a", 2, [1.0]), ValueError, "shape of default_value"),
    "default of text": (lambda: fc.numeric_column("a", 1, "x"), TypeError, "default_value"),
    "default of floats": (
        lambda: fc.numeric_column("a", 1, 1.5, dtype="int64"), TypeError, "default_value",
    ),
    "normalizer": (lambda: fc.numeric_column("a", normalizer_fn=3), TypeError, "callable"),
    "source": (lambda: fc.bucketized_column("a", [1]), ValueError, "source_column"),
    "boundaries": (
        lambda: fc.bucketized_column(fc.numeric_column("a"), [2, 1]), ValueError, "sorted",
    ),
    "matrix": (
        lambda: fc.bucketized_column(fc.numeric_column("a", [2, 2]), [1]), ValueError, "one-dim",
    ),
    "buckets": (lambda: hashed("a", 0), ValueError, "at least 1"),
    "float categories": (
        lambda: fc.categorical_column_with_hash_bucket("a", 3, "float32"), ValueError, "dtype",
    ),
    "identity": (lambda: fc.categorical_column_with_identity("a", 0), ValueError, "num_buckets"),
    "identity default": (
        lambda: fc.categorical_column_with_identity("a", 3, 3), ValueError, "not in range",
    ),
    "no vocabulary": (
        lambda: fc.categorical_column_with_vocabulary_list("a", []), ValueError, "non-empty",
    ),
    "twice": (
        lambda: fc.categorical_column_with_vocabulary_list("a", [1, 1]), ValueError, "Duplicate",
    ),
    "both": (
        lambda: fc.categorical_column_with_vocabulary_list("a", [1], None, 0, 2), ValueError,
        "both num_oov_buckets and default_value",
    ),
    "vocabulary dtype": (
        lambda: fc.categorical_column_with_vocabulary_list("a", ["x"], "int64"), ValueError,
        "do not match",
    ),
    "no file": (
        lambda: fc.categorical_column_with_vocabulary_file("a", "/nowhere"), ValueError, "exist",
    ),
    "one key": (lambda: fc.crossed_column(["a"], 10), ValueError, "length > 1"),
    "cross of hashes": (
        lambda: fc.crossed_column(["a", hashed()], 10), ValueError, "not supported for crossing",
    ),
    "cross of numbers": (
        lambda: fc.crossed_column(["a", fc.numeric_column("n")], 10), ValueError, "Unsupported key",
    ),
    "dimension": (lambda: fc.embedding_column(hashed(), 0), ValueError, "Invalid dimension"),
    "initializer": (lambda: fc.embedding_column(hashed(), 2, "sum", 1.0), ValueError, "callable"),
    "combiner": (lambda: fc.embedding_column(hashed(), 2, "max"), ValueError, "combiner"),
    "checkpoint": (
        lambda: fc.embedding_column(hashed(), 2, ckpt_to_load_from="x"), ValueError, "both",
    ),
    "indicator": (lambda: fc.indicator_column(fc.numeric_column("a")), ValueError, "Categorical"),
    "shared sizes": (
        lambda: fc.shared_embeddings([hashed("a", 3), hashed("b", 4)], 2), ValueError,
        "same number of buckets",
    ),
    "shared kinds": (
        lambda: fc.shared_embeddings(
            [hashed("a", 3), fc.categorical_column_with_identity("b", 3)], 2
        ),
        ValueError, "same type",
    ),
    "specs": (
        lambda: fc.make_parse_example_spec([fc.numeric_column("a"), hashed("a")]), ValueError,
        "different parse_spec for key a",
    ),
    "no column": (lambda: fc.make_parse_example_spec(["a"]), ValueError, "FeatureColumn"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(name: str) -> None:
    make, kind, said = WRONG[name]
    with pytest.raises(kind, match=said):
        make()


def layer(features: dict[str, Any], *columns: Any) -> np.ndarray:
    return sr.keras.layers.DenseFeatures(list(columns))(features).numpy()


def test_wrong_features() -> None:
    number = fc.numeric_column("a")
    with pytest.raises(ValueError, match="a is not in features dictionary"):
        layer({"b": [1.0]}, number)
    with pytest.raises(ValueError, match="rank 0"):
        layer({"a": 1.0}, number)
    with pytest.raises(ValueError, match="SparseTensor is not supported"):
        layer({"a": SparseTensor([[0, 0]], [1.0], [1, 1])}, number)
    with pytest.raises(ValueError, match="of strings, the feature of integers"):
        layer({"text": [1, 2]}, fc.indicator_column(hashed()))
    with pytest.raises(ValueError, match="not integer"):
        column = fc.categorical_column_with_identity("a", 3)
        layer({"a": ["x"]}, fc.indicator_column(column))
    with pytest.raises(ValueError, match="wrap a categorical column"):
        layer({"text": ["x"]}, hashed())
    with pytest.raises(ValueError, match="Duplicate feature column name"):
        layer({"a": [1.0]}, number, fc.numeric_column("a", 2))


def test_numbers_outside_of_an_identity() -> None:
    column = fc.indicator_column(fc.categorical_column_with_identity("a", 3))
    with pytest.raises(sr.errors.InvalidArgumentError, match="from 0 to 2"):
        layer({"a": [1, 3]}, column)
    graph = tf.Graph()
    with graph.as_default():
        place = tf.placeholder(tf.int64, [None, 1])
        made = tf.feature_column.input_layer({"a": place}, [column])
        with tf.Session(graph=graph) as session:
            assert session.run(made, {place: [[2], [-1]]}).tolist() == [[0, 0, 1], [0, 0, 0]]
            with pytest.raises(sr.errors.InvalidArgumentError, match="from 0 to 2"):
                session.run(made, {place: [[3]]})


def test_columns_are_equal_by_their_arguments() -> None:
    assert fc.embedding_column(hashed(), 3) == fc.embedding_column(hashed(), 3)
    assert fc.embedding_column(hashed(), 3) != fc.embedding_column(hashed(), 4)
    assert len({fc.numeric_column("a"), fc.numeric_column("a"), fc.numeric_column("b")}) == 2


def test_dense_features_have_tables_of_their_own() -> None:
    shared = fc.shared_embeddings([hashed("a"), hashed("b")], 2)
    made = sr.keras.layers.DenseFeatures(
        [fc.embedding_column(hashed("a"), 3), *shared, fc.numeric_column("n")], name="columns"
    )
    given: dict[Any, Any] = {}
    features = {"a": ["x", "y"], "b": ["y", "x"], "n": [1.0, 2.0]}
    found = made(features, cols_to_output_tensors=given).numpy()
    assert found.shape == (2, 8)
    assert [each.name for each in made.weights] == [
        "columns/a_embedding/embedding_weights",
        "columns/a_b_shared_embedding/embedding_weights",
    ]
    # a_embedding, a_shared_embedding, b_shared_embedding, n
    np.testing.assert_array_equal(found[:, 3:5], found[::-1, 5:7])
    np.testing.assert_array_equal(found[:, 7], [1.0, 2.0])
    np.testing.assert_array_equal(given[shared[0]].numpy(), found[:, 3:5])
    limit = 2 / np.sqrt(3)
    assert 0 < np.abs(made.weights[0].numpy()).max() <= limit


def test_gradients_of_dense_features_are_of_rows() -> None:
    made = sr.keras.layers.DenseFeatures(fc.embedding_column(hashed("a", 100), 3))
    with sr.GradientTape() as tape:
        loss = sr.reduce_sum(made({"a": ["x", "y", "x"]}))
    (gradient,) = tape.gradient(loss, made.trainable_weights)
    assert isinstance(gradient, sr.IndexedSlices)


def test_a_model_of_keras_trains_on_columns() -> None:
    rng = np.random.default_rng(0)
    words = np.array(["a", "b", "c", "d"])[rng.integers(0, 4, 400)]
    label = np.isin(words, ["a", "c"]).astype(np.float32)
    column = fc.embedding_column(
        fc.categorical_column_with_vocabulary_list("word", ["a", "b", "c"], num_oov_buckets=1), 4
    )

    class Network(sr.keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.columns = sr.keras.layers.DenseFeatures([column])
            self.head = sr.keras.layers.Dense(1, "sigmoid")

        def call(self, features: Any) -> Any:
            return self.head(self.columns(features))

    model = Network()
    model.compile(sr.keras.optimizers.Adagrad(0.5), "binary_crossentropy", metrics=["accuracy"])
    data = sr.data.Dataset.from_tensor_slices(({"word": words}, label[:, None])).batch(50)
    model.fit(data, epochs=4, verbose=0)
    assert model.evaluate(data, verbose=0, return_dict=True)["accuracy"] == 1.0


@sr.keras.saving.register_keras_serializable("test_feature_column")
def halved(x: Any) -> Any:
    return x / 2


def test_layers_of_columns_are_saved(tmp_path: Path) -> None:
    number = fc.numeric_column("n", default_value=1.5, normalizer_fn=halved)
    shared = fc.shared_embeddings([hashed("a"), hashed("b")], 2)
    whole = fc.categorical_column_with_identity("n_bucket", 3, 1)
    columns = [
        number, *shared, fc.indicator_column(fc.weighted_categorical_column(whole, "w")),
        fc.embedding_column(
            fc.crossed_column(["a", fc.bucketized_column(number, [0.0])], 9), 2,
            initializer=sr.keras.initializers.Ones(),
        ),
        fc.indicator_column(fc.categorical_column_with_vocabulary_list("b", ["x", "y"])),
    ]  # fmt: skip
    model = sr.keras.Sequential([sr.keras.layers.DenseFeatures(columns)])
    features = {
        "a": sr.constant(["x", "y"]), "b": sr.constant(["y", "x"]), "n": sr.constant([1.0, -2.0]),
        "n_bucket": sr.constant([0, 2], sr.int64), "w": sr.constant([0.5, 2.0]),
    }  # fmt: skip
    found = model(features).numpy()
    layer_ = model.layers[0]
    again = sr.keras.layers.DenseFeatures.from_config(layer_.get_config())
    assert again(features).shape == found.shape and len(again.weights) == 2
    model.save(tmp_path / "model.keras")
    loaded = sr.keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(features).numpy(), found)
    names = [column.name for column in loaded.layers[0]._feature_columns]
    assert names == [column.name for column in layer_._feature_columns]
    assert number in loaded.layers[0]._feature_columns


def test_sequences() -> None:
    words = fc.sequence_categorical_column_with_vocabulary_list("w", ["a", "b"])
    columns = [
        fc.indicator_column(words),
        fc.embedding_column(fc.sequence_categorical_column_with_identity("i", 3), 2),
        fc.sequence_numeric_column("n", normalizer_fn=None),
    ]
    made = sr.keras.layers.SequenceFeatures(columns)
    places = [[0, 0], [0, 1], [2, 0]]
    features = {
        "w": SparseTensor(places, ["a", "b", "b"], [3, 2]),
        "i": SparseTensor(places, np.array([2, 0, 1]), [3, 2]),
        "n": SparseTensor(places, [1.0, 2.0, 3.0], [3, 2]),
    }
    values, lengths = made(features)
    assert lengths.numpy().tolist() == [2, 0, 1]
    table = made.weights[0].numpy()
    found = values.numpy()
    assert found.shape == (3, 2, 5)
    np.testing.assert_allclose(found[0, :, :2], table[[2, 0]])
    np.testing.assert_allclose(found[2, 0, :2], table[1])
    assert not found[1].any() and not found[2, 1].any()
    np.testing.assert_array_equal(found[:, :, 2], [[1, 2], [0, 0], [3, 0]])
    np.testing.assert_array_equal(found[0, :, 3:], [[1, 0], [0, 1]])
    with pytest.raises(ValueError, match="must not be of type SequenceCategoricalColumn"):
        layer(features, columns[0])
    with pytest.raises(ValueError, match="must be of type SequenceCategoricalColumn"):
        sr.keras.layers.SequenceFeatures(fc.indicator_column(hashed("w")))(features)


@pytest.mark.usefixtures("fresh_graph")
def test_tables_are_cut_by_the_partitioner_of_the_scope() -> None:
    columns = [fc.embedding_column(hashed("a", 10), 3)]
    place = tf.placeholder(tf.string, [None])
    with tf.variable_scope("net", partitioner=tf.fixed_size_partitioner(2)):
        made = tf.feature_column.input_layer({"a": place}, columns)
        linear = tf.feature_column.linear_model({"a": place}, [hashed("a", 10)])
    names = [each.name for each in tf.global_variables()]
    parts = [f"net/input_layer/a_embedding/embedding_weights/part_{i}:0" for i in (0, 1)]
    assert names[:2] == parts
    assert "net/linear_model/a/weights/part_1:0" in names
    gradients = tf.gradients(tf.reduce_sum(made), tf.trainable_variables()[:2])
    assert all(isinstance(each, tf.IndexedSlices) for each in gradients)
    step = tf.train.GradientDescentOptimizer(0.5).minimize(tf.reduce_sum(linear))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        feed = {place: ["x", "y", "z", "x"]}
        table = np.concatenate([session.run(name) for name in parts])
        ids = [int(n) for n in sr.strings.to_hash_bucket_fast(feed[place], 10).numpy()]
        np.testing.assert_allclose(session.run(made, feed), table[ids])
        session.run(step, feed)
        weight = -0.5 * np.bincount(ids, minlength=10)[ids] - 0.5 * 4
        np.testing.assert_allclose(session.run(linear, feed)[:, 0], weight)


@pytest.mark.usefixtures("fresh_graph")
def test_a_layer_again_has_the_same_variables_in_a_scope_that_shares() -> None:
    columns = [fc.embedding_column(hashed("a"), 3)]
    features = {"a": tf.constant(["x"])}
    with tf.variable_scope("net", reuse=tf.AUTO_REUSE):
        tf.feature_column.input_layer(features, columns)
    with tf.variable_scope("net", reuse=tf.AUTO_REUSE):
        tf.feature_column.input_layer(features, columns)
    assert len(tf.global_variables()) == 1
    assert tf.model_variables() == tf.global_variables()


def test_parsed_examples(tmp_path: Path) -> None:
    columns = [fc.numeric_column("n", 2, default_value=0.5), fc.indicator_column(hashed("a"))]
    spec = fc.make_parse_example_spec(columns)
    # An empty tf.train.Example: no features.
    parsed = sr.io.parse_example(sr.constant([b""]), spec)
    assert layer(parsed, *columns).tolist() == [[0.0] * 7 + [0.5, 0.5]]


def test_cross_hashed_of_ragged_rows() -> None:
    text = sr.RaggedTensor.from_row_lengths(["a", "b", "c"], [2, 0, 1]).to_sparse()
    numbers = sr.constant([[1, 2], [3, 4], [5, 6]], sr.int64)
    made = sr.sparse.cross_hashed([numbers, text], 1000)
    assert made.indices.numpy().tolist() == [[0, 0], [0, 1], [0, 2], [0, 3], [2, 0], [2, 1]]
    assert made.dense_shape.numpy().tolist() == [3, 4]
    whole = sr.sparse.cross_hashed([numbers[:1], sr.constant([["a", "b"]])], 1000)
    # Sparse inputs come first: another cross.
    assert set(whole.values.numpy().tolist()) != set(made.values.numpy()[:4].tolist())
    assert sr.sparse.from_dense([[0, 3], [4, 0]]).values.numpy().tolist() == [3, 4]
