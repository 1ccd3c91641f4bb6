"""Layers of preprocessing in graphs that run on the tasks of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import sidereal as sr
import sidereal.v1 as tf
from sidereal.keras import layers

WORDS = np.array(["red", "green", "blau", "größe", "unknown", ""])


def test_a_model_on_parameter_servers_begins_with_text(cluster: sr.LocalCluster) -> None:
    lookup = layers.StringLookup(num_oov_indices=2, mask_token="")
    lookup.adapt(WORDS[:4])
    bins = layers.Discretization(num_bins=4)
    ages = np.random.default_rng(1).normal(40, 10, (512, 1)).astype("f")
    bins.adapt(ages)
    normal = layers.Normalization()
    normal.adapt(ages)
    model = sr.Model(seed=1)
    color = model.input("color", sr.string, (2,))
    age = model.input("age", sr.float32, (1,))
    ids = [
        sr.cast(lookup(color), "int64"),
        layers.Hashing(50)(color),
        layers.HashedCrossing(50)([color[:, :1], sr.cast(bins(age), "int64")]),
    ]
    rows = [layers.Embedding(50, 4)(each) for each in ids]
    flat = [layers.Flatten()(each) for each in rows]
    logit = layers.Dense(1)(sr.concat([*flat, normal(age)], 1))
    model.compile(logit, sr.optimizers.Adam(0.05))
    colors = WORDS[np.random.default_rng(0).integers(0, len(WORDS), (512, 2))]
    label = (colors == "größe").any(axis=1).astype(np.float32)
    data = {"color": colors, "age": ages, "label": label}
    model.fit(data, cluster=cluster, epochs=8, batch_size=32, verbose=False)
    assert model.evaluate(data).auc > 0.99


@pytest.fixture
def worker() -> Iterator[str]:
    """The address of a worker of this process."""
    server = tf.train.Server.create_local_server()
    yield server.target
    server.stop()


def vectorize() -> Any:
    layer = layers.TextVectorization(ngrams=2, output_sequence_length=5)
    layer.adapt(["red green blau", "green blau"])
    return layer


def counts() -> Any:
    return layers.StringLookup(vocabulary=["red", "a b"], output_mode="count")


def hashed() -> Any:
    return layers.Hashing(1 << 40, salt=7)


def known() -> Any:
    return layers.StringLookup(vocabulary=["red green"], num_oov_indices=0)


@pytest.mark.parametrize("make", [vectorize, counts, hashed])
def test_sessions_run_them_on_a_worker(make: Any, worker: str, fresh_graph: None) -> None:
    layer = make()
    texts = np.array(["Red green?", "", "blau a b", "red"], dtype=object)
    wanted = layer(texts).numpy()
    x = tf.placeholder(tf.string, [None])
    y = layer(x)
    with tf.Session(worker) as session:
        np.testing.assert_array_equal(session.run(y, {x: texts}), wanted)


def test_what_is_not_known_ends_a_step_of_a_worker(worker: str, fresh_graph: None) -> None:
    x = tf.placeholder(tf.string, [None])
    y = known()(x)
    with tf.Session(worker) as session:
        assert session.run(y, {x: ["red green"]}).tolist() == [0]
        with pytest.raises(sr.errors.InvalidArgumentError, match="must be in the vocabulary.*blau"):
            session.run(y, {x: ["blau"]})
