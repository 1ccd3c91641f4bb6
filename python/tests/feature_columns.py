"""Programs of feature columns, for Sidereal and TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def features(tf: Any) -> dict[str, Any]:
    """Features of three examples, in a graph."""
    return {
        "n": tf.constant([[0.5], [-1.5], [7.0]]),
        "pair": tf.constant([[1.0, -2.0], [3.0, 4.0], [0.0, 0.25]]),
        "flat": tf.constant([3.0, 1.0, 2.0]),
        "whole": tf.constant([[4], [5], [6]], dtype=tf.int64),
        "text": tf.constant([["red", "blue"], ["green", ""], ["red", "red"]]),
        "word": tf.constant(["x", "", "yy"]),
        "ids": tf.constant([[0, 2], [1, -1], [3, 3]], dtype=tf.int64),
        "far": tf.constant([[0, 9], [1, -1], [-5, 3]], dtype=tf.int64),
        "amounts": tf.constant([[0.5, 2.0], [1.5, 0.0], [1.0, 0.25]]),
        "some": tf.SparseTensor(
            np.array([[0, 0], [0, 1], [2, 0]]), tf.constant(["a", "b", "a"]), np.array([3, 2])
        ),
        "numbers": tf.SparseTensor(
            np.array([[0, 0], [1, 0], [1, 1], [1, 2]]),
            tf.constant([5, 17, -3, 5], dtype=tf.int64),
            np.array([3, 3]),
        ),
        "weights": tf.SparseTensor(
            np.array([[0, 0], [0, 1], [2, 0]]), tf.constant([0.5, 2.0, -1.0]), np.array([3, 2])
        ),
    }


class Module:
    """The module of columns, with the dtype that columns take."""

    def __init__(self, tf: Any) -> None:
        self._module = tf.feature_column
        self.int64 = tf.int64

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _hash(fc: Any, key: str = "text", size: int = 7) -> Any:
    return fc.categorical_column_with_hash_bucket(key, size)


def _list(fc: Any, key: str = "text", **options: Any) -> Any:
    return fc.categorical_column_with_vocabulary_list(key, ["red", "green", "violet"], **options)


#: Columns by name: functions of the module of columns and the path of a vocabulary.
CATEGORICAL: dict[str, Callable[[Any, str], Any]] = {
    "hash": lambda fc, file: _hash(fc),
    "hash of one": lambda fc, file: _hash(fc, "word", 3),
    "hash of sparse": lambda fc, file: _hash(fc, "some"),
    "hash of integers": lambda fc, file: fc.categorical_column_with_hash_bucket(
        "numbers", 11, dtype=fc.int64
    ),
    "list": lambda fc, file: _list(fc),
    "list with default": lambda fc, file: _list(fc, default_value=1),
    "list with buckets": lambda fc, file: _list(fc, num_oov_buckets=4),
    "list of integers": lambda fc, file: fc.categorical_column_with_vocabulary_list(
        "numbers", [5, 6], num_oov_buckets=2
    ),
    "file": lambda fc, file: fc.categorical_column_with_vocabulary_file("text", file),
    "head of a file": lambda fc, file: fc.categorical_column_with_vocabulary_file(
        "text", file, 2, num_oov_buckets=3
    ),
    "identity": lambda fc, file: fc.categorical_column_with_identity("ids", 4),
    "identity with default": lambda fc, file: fc.categorical_column_with_identity("far", 4, 2),
    "bucketized": lambda fc, file: fc.bucketized_column(fc.numeric_column("n"), [0.0, 1.0]),
    "bucketized pair": lambda fc, file: fc.bucketized_column(
        fc.numeric_column("pair", 2), [-2.0, 0.25, 3.0]
    ),
    "weighted": lambda fc, file: fc.weighted_categorical_column(_hash(fc, "some"), "weights"),
    "weighted by a tensor": lambda fc, file: fc.weighted_categorical_column(
        fc.categorical_column_with_identity("ids", 4), "amounts"
    ),
    "crossed": lambda fc, file: fc.crossed_column(["text", "word"], 13),
    "crossed with a key": lambda fc, file: fc.crossed_column(["some", "text"], 13, hash_key=5),
    "crossed, sparse last": lambda fc, file: fc.crossed_column(["text", "some"], 1000),
    "crossed integers": lambda fc, file: fc.crossed_column(["numbers", "whole", "text"], 1000),
    "crossed columns": lambda fc, file: fc.crossed_column(
        [
            fc.bucketized_column(fc.numeric_column("pair", 2), [0.0]),
            _list(fc),
            fc.crossed_column(["word", "some"], 3),
        ],
        500,
    ),
}

DENSE: dict[str, Callable[[Any, str], list[Any]]] = {
    "numbers": lambda fc, file: [
        fc.numeric_column("pair", 2),
        fc.numeric_column("flat", normalizer_fn=lambda x: (x - 2.0) / 4.0),
        fc.numeric_column("whole", dtype=fc.int64),
    ],
    "bucketized": lambda fc, file: [CATEGORICAL["bucketized pair"](fc, file)],
    **{
        f"indicator of {name}": lambda fc, file, make=make: [fc.indicator_column(make(fc, file))]
        for name, make in CATEGORICAL.items()
        if name != "weighted"  # TensorFlow's order of equal ids.
    },
    **{
        f"embedding of {name}": lambda fc, file, make=make: [fc.embedding_column(make(fc, file), 3)]
        for name, make in CATEGORICAL.items()
    },
    "sums": lambda fc, file: [fc.embedding_column(_hash(fc), 2, combiner="sum")],
    "roots": lambda fc, file: [
        fc.embedding_column(CATEGORICAL["weighted"](fc, file), 2, combiner="sqrtn", max_norm=0.5)
    ],
    "shared": lambda fc, file: [
        *fc.shared_embedding_columns([_hash(fc), _hash(fc, "word")], 2),
        fc.numeric_column("n"),
    ],
    "shared by name": lambda fc, file: fc.shared_embedding_columns(
        [_hash(fc), CATEGORICAL["weighted"](fc, file)], 2, shared_embedding_collection_name="both"
    ),
    "several": lambda fc, file: [
        fc.embedding_column(_hash(fc), 2),
        fc.numeric_column("n"),
        fc.indicator_column(_list(fc, "word")),
        fc.embedding_column(CATEGORICAL["crossed"](fc, file), 4, combiner="sum"),
    ],
}


def run(tf: Any, layer: str, make: Any, file: str, **options: Any) -> Any:
    """Names of the variables of a layer, and what it gives when these have some numbers."""
    graph = tf.Graph()
    with graph.as_default():
        columns = make(Module(tf), file)
        of_columns: dict[Any, Any] = {}
        found = getattr(tf.feature_column, layer)(
            features(tf), columns, cols_to_vars=of_columns, **options
        )
        variables = tf.global_variables()
        changes = []
        for number, variable in enumerate(sorted(variables, key=lambda each: each.name)):
            shape = tuple(int(n) for n in variable.shape)
            values = np.sin(np.arange(int(np.prod(shape))) + number).reshape(shape)
            changes.append(variable.assign(values.astype(np.float32)))
        start = [tf.global_variables_initializer()]
        if hasattr(tf, "tables_initializer"):
            start.append(tf.tables_initializer())
        with tf.Session(graph=graph) as session:
            session.run(start)
            session.run(changes)
            value = session.run(found)
    names = {
        key if isinstance(key, str) else key.name: [each.name for each in made]
        for key, made in of_columns.items()
    }
    return names, sorted(each.name for each in variables), value
