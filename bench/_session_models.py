"""Models of sessions whose steps are measured, as users of TensorFlow 1 write them. `tf` is the
engine: sidereal.v1, or TensorFlow's own compat.v1.

wide200   W&D with 200 small variables: each has 8 floats and multiplies a batch of 16.
columns   W&D with 96 columns: a wide and a deep table for each, 2 layers; batch 64.
deepfm    DeepFM, 26 fields, tower 400-400-400-1, Adagrad; batch 256, 2 parameter servers.
dlrm      DLRM, 26 tables, bottom 128-64-16, top 128-1, SGD; batch 256, 2 parameter servers.
dense     One matrix of 64 MB, which goes to the worker, and its gradient back, in every step.
*_zipf    columns, deepfm and dlrm with batches of 1024 and ids that are skewed as those of clicks
          are: the k-th most frequent of a table is drawn in proportion to k ** -1.05.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

WARM_STEPS = 8
BATCHES = 4

Feeds = list[tuple[Any, Callable[[Any], np.ndarray]]]
Draw = Callable[[int, tuple[int, ...]], Callable[[Any], np.ndarray]]


def uniform_ids(rows: int, shape: tuple[int, ...]) -> Callable[[Any], np.ndarray]:
    return lambda random: random.integers(0, rows, shape).astype(np.int64)


def skewed_ids(rows: int, shape: tuple[int, ...]) -> Callable[[Any], np.ndarray]:
    """Ids by Zipf's law with exponent 1.05; the frequent ones are spread over the table."""
    shares = np.cumsum(np.arange(1, rows + 1) ** -1.05)
    places = np.random.default_rng(rows).permutation(rows)

    def draw(random: Any) -> np.ndarray:
        ranks = np.searchsorted(shares, random.random(shape) * shares[-1])
        return places[np.minimum(ranks, rows - 1)].astype(np.int64)

    return draw


def floats(shape: tuple[int, ...]) -> Callable[[Any], np.ndarray]:
    return lambda random: random.standard_normal(shape).astype(np.float32)


def layer(tf: Any, name: str, x: Any, rows: int, columns: int, last: bool = False) -> Any:
    scale = (2.0 / rows) ** 0.5
    random = np.random.default_rng(rows * 7919 + columns)
    weights = (random.standard_normal((rows, columns)) * scale).astype(np.float32)
    w = tf.get_variable(f"{name}/w", initializer=weights)
    b = tf.get_variable(f"{name}/b", initializer=np.zeros((columns,), np.float32))
    y = tf.matmul(x, w) + b
    return y if last else tf.nn.relu(y)


def layers(tf: Any, name: str, x: Any, widths: tuple[int, ...]) -> Any:
    for i in range(len(widths) - 1):
        last = i == len(widths) - 2
        x = layer(tf, f"{name}{i}", x, widths[i], widths[i + 1], last)
    return x


def rows_of(tf: Any, name: str, rows: int, dim: int) -> Any:
    first = np.random.default_rng(len(name)).standard_normal((rows, dim)) * 0.01
    return tf.get_variable(name, initializer=first.astype(np.float32))


def cross_entropy(tf: Any, logit: Any, labels: Any) -> Any:
    losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logit)
    return tf.reduce_mean(losses)


def wide200(tf: Any, batch: int) -> tuple[Any, Feeds]:
    x = tf.placeholder(tf.float32, [batch, 8])
    terms = []
    for i in range(200):
        v = tf.get_variable(f"v{i}", initializer=np.full((8,), 0.01 * i, np.float32))
        terms.append(tf.reduce_sum(x * v, axis=1))
    loss = tf.reduce_mean(tf.square(tf.add_n(terms)))
    return loss, [(x, floats((batch, 8)))]


def columns(tf: Any, batch: int, draw: Draw = uniform_ids) -> tuple[Any, Feeds]:
    count, rows, dim = 96, 1000, 8
    ids = tf.placeholder(tf.int64, [count, batch])
    labels = tf.placeholder(tf.float32, [batch, 1])
    wide, deep = [], []
    for i, own in enumerate(tf.unstack(ids)):
        wide.append(tf.gather(rows_of(tf, f"wide{i}", rows, 1), own))
        deep.append(tf.gather(rows_of(tf, f"deep{i}", rows, dim), own))
    tower = layers(tf, "tower", tf.concat(deep, axis=1), (count * dim, 64, 1))
    loss = cross_entropy(tf, tf.add_n([*wide, tower]), labels)
    return loss, [(ids, draw(rows, (count, batch))), (labels, zeros_and_ones(batch))]


def zeros_and_ones(batch: int) -> Callable[[Any], np.ndarray]:
    return lambda random: random.integers(0, 2, (batch, 1)).astype(np.float32)


def deepfm(tf: Any, batch: int, draw: Draw = uniform_ids) -> tuple[Any, Feeds]:
    fields, rows, dim = 26, 260_000, 16
    ids = tf.placeholder(tf.int64, [batch, fields])
    labels = tf.placeholder(tf.float32, [batch, 1])
    linear = tf.reduce_sum(tf.gather(rows_of(tf, "linear", rows, 1), ids), axis=1)
    embedded = tf.gather(rows_of(tf, "embedding", rows, dim), ids)
    total = tf.reduce_sum(embedded, axis=1)
    pairs = tf.square(total) - tf.reduce_sum(tf.square(embedded), axis=1)
    pairs = 0.5 * tf.reduce_sum(pairs, axis=1, keepdims=True)
    flat = tf.reshape(embedded, [batch, fields * dim])
    tower = layers(tf, "tower", flat, (fields * dim, 400, 400, 400, 1))
    loss = cross_entropy(tf, linear + pairs + tower, labels)
    return loss, [(ids, draw(rows, (batch, fields))), (labels, zeros_and_ones(batch))]


def dlrm(tf: Any, batch: int, draw: Draw = uniform_ids) -> tuple[Any, Feeds]:
    tables, rows, dim = 26, 10_000, 16
    dense = tf.placeholder(tf.float32, [batch, 13])
    ids = tf.placeholder(tf.int64, [tables, batch])
    labels = tf.placeholder(tf.float32, [batch, 1])
    vectors = [layers(tf, "bottom", dense, (13, 128, 64, dim))]
    for i, own in enumerate(tf.unstack(ids)):
        vectors.append(tf.gather(rows_of(tf, f"table{i}", rows, dim), own))
    stacked = tf.stack(vectors, axis=1)
    products = tf.matmul(stacked, stacked, transpose_b=True)
    flat = tf.reshape(products, [batch, (tables + 1) ** 2])
    top = layers(
        tf, "top", tf.concat([vectors[0], flat], axis=1), (dim + (tables + 1) ** 2, 128, 1)
    )
    loss = cross_entropy(tf, top, labels)
    feeds: Feeds = [(dense, floats((batch, 13))), (ids, draw(rows, (tables, batch)))]
    return loss, [*feeds, (labels, zeros_and_ones(batch))]


def dense(tf: Any, batch: int) -> tuple[Any, Feeds]:
    x = tf.placeholder(tf.float32, [batch, 4096])
    w = tf.get_variable("w", initializer=np.full((4096, 4096), 1e-3, np.float32))
    return tf.reduce_mean(tf.square(tf.matmul(x, w))), [(x, floats((batch, 4096)))]


@dataclass(frozen=True)
class Model:
    name: str
    shown: str
    build: Callable[[Any, int], tuple[Any, Feeds]]
    batch: int
    ps: int
    optimizer: Callable[[Any], Any]


MODELS = (
    Model(
        "wide200",
        "W&D, 200 small variables",
        wide200,
        16,
        1,
        lambda tf: tf.train.GradientDescentOptimizer(1e-6),
    ),
    Model("columns", "W&D, 96 columns", columns, 64, 1, lambda tf: tf.train.AdagradOptimizer(0.01)),
    Model("deepfm", "DeepFM", deepfm, 256, 2, lambda tf: tf.train.AdagradOptimizer(0.01)),
    Model("dlrm", "DLRM", dlrm, 256, 2, lambda tf: tf.train.GradientDescentOptimizer(0.01)),
    Model("dense", "64 MB dense", dense, 8, 1, lambda tf: tf.train.GradientDescentOptimizer(1e-6)),
    Model(
        "columns_zipf",
        "W&D, 96 columns, skewed",
        lambda tf, batch: columns(tf, batch, skewed_ids),
        1024,
        1,
        lambda tf: tf.train.AdagradOptimizer(0.01),
    ),
    Model(
        "deepfm_zipf",
        "DeepFM, skewed",
        lambda tf, batch: deepfm(tf, batch, skewed_ids),
        1024,
        2,
        lambda tf: tf.train.AdagradOptimizer(0.01),
    ),
    Model(
        "dlrm_zipf",
        "DLRM, skewed",
        lambda tf, batch: dlrm(tf, batch, skewed_ids),
        1024,
        2,
        lambda tf: tf.train.GradientDescentOptimizer(0.01),
    ),
)


class Trainer:
    """A session that trains a model on the servers of a cluster, one step after the other."""

    def __init__(
        self, tf: Any, model: Model, cluster: dict[str, list[str]], target: str, config: Any = None
    ) -> None:
        graph = tf.Graph()
        with graph.as_default(), tf.device(tf.train.replica_device_setter(cluster=cluster)):
            loss, feeds = model.build(tf, model.batch)
            train = model.optimizer(tf).minimize(loss)
            start = tf.global_variables_initializer()
        self._session = tf.Session(target, graph=graph, config=config)
        self._session.run(start)
        random = np.random.default_rng(17)
        self._batches = [[make(random) for _, make in feeds] for _ in range(BATCHES)]
        places = [place for place, _ in feeds]
        self._step = self._session.make_callable(train, feed_list=places)
        loss_of = self._session.make_callable(loss, feed_list=places)
        #: Of the first batch, before the first step.
        self.loss = float(loss_of(*self._batches[0]))
        for i in range(WARM_STEPS):
            self._step(*self._batches[i % BATCHES])

    def window(self, seconds: float) -> tuple[int, float]:
        """Steps until `seconds` have passed, and how many did."""
        began, steps = time.perf_counter(), 0
        while True:
            self._step(*self._batches[steps % BATCHES])
            steps += 1
            spent = time.perf_counter() - began
            if spent >= seconds:
                return steps, spent

    def close(self) -> None:
        self._session.close()
