"""The job that `bench tensorflow` has coordinators do: DeepFM learns from click logs. One source
for TensorFlow and for Sidereal, but for the model, which is of layers of sidereal.keras there:
Keras 3 does not run under TensorFlow's ParameterServerStrategy, so that users of that write
variables and ops.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from _session_models import skewed_ids

#: Steps whose losses engines are compared by.
FIRST_STEPS = 4
LEARNING_RATE = 0.01
ACCUMULATOR, EPSILON = 0.1, 1e-7

#: Steps that a call of a worker makes, by how that is called.
PACKS = {"one": 1, "ten": 10}


@dataclass(frozen=True)
class Sizes:
    """Of the data and the model. rows: of each field, into which its categories are hashed."""

    fields: int = 26
    rows: int = 100_000
    dim: int = 16
    numbers: int = 13
    hidden: tuple[int, ...] = (400, 400, 400)
    batch: int = 1024
    batches: int = 64


#: The small ones show whether it works.
SIZES = {
    "full": Sizes(),
    "quick": Sizes(rows=100, hidden=(16, 16), batch=64, batches=4),
}


def clicks(sizes: Sizes) -> dict[str, np.ndarray]:
    """Examples in the shape of Criteo's logs, the same ones each time: categories by Zipf's law,
    ten of which share a row, and a click for one example in four or so."""
    random = np.random.default_rng(29)
    count = sizes.batch * sizes.batches
    categories = skewed_ids(10 * sizes.rows, (count, sizes.fields))(random)
    fields = np.arange(sizes.fields)
    hashed = (categories * 2_654_435_761 + 40_503 * fields) % (1 << 32) % sizes.rows
    numbers = np.log1p(random.lognormal(0.0, 1.0, (count, sizes.numbers))).astype(np.float32)
    chance = 1.0 / (1.0 + np.exp(2.0 - numbers[:, :1]))
    return {
        "ids": hashed + sizes.rows * fields,
        "numbers": numbers,
        "label": (random.random((count, 1)) < chance).astype(np.float32),
    }


def write_clicks(sizes: Sizes, folder: Path, writer: Any) -> None:
    """A file for each column, with a record for each batch. `writer`: io.TFRecordWriter."""
    for name, values in clicks(sizes).items():
        with writer(str(folder / name)) as file:
            for batch in np.split(values, sizes.batches):
                file.write(batch.tobytes())


def batches(tf: Any, sizes: Sizes, folder: Path) -> Any:
    """A dataset of these files, again and again, which are read once."""
    columns = {"ids": (sizes.fields, tf.int64), "numbers": (sizes.numbers, tf.float32),
               "label": (1, tf.float32)}  # fmt: skip

    def decoded(records: Any) -> Any:
        return {
            name: tf.reshape(tf.io.decode_raw(records[name], dtype), [sizes.batch, width])
            for name, (width, dtype) in columns.items()
        }

    files = {name: tf.data.TFRecordDataset(str(folder / name)) for name in columns}
    return tf.data.Dataset.zip(files).map(decoded).cache().repeat().prefetch(tf.data.AUTOTUNE)


def first_value(shape: tuple[int, ...], dtype: Any = None) -> np.ndarray:
    """What a weight of any engine begins with."""
    if len(shape) == 1:
        return np.zeros(shape, np.float32)
    scale = 0.01 if shape[0] > 10_000 else (2.0 / shape[0]) ** 0.5
    random = np.random.default_rng(shape[0] * 7919 + shape[1])
    return random.standard_normal(shape, np.float32) * np.float32(scale)


class ModelOfLayers:
    """DeepFM of layers of Keras, with its optimizer."""

    def __init__(self, tf: Any, sizes: Sizes) -> None:
        keras = tf.keras
        ids = keras.Input((sizes.fields,), dtype="int64", name="ids")
        dense = keras.Input((sizes.numbers,), name="numbers")
        vocabulary = sizes.fields * sizes.rows
        wide = keras.layers.Embedding(vocabulary, 1, first_value)(ids)
        rows = keras.layers.Embedding(vocabulary, sizes.dim, first_value)(ids)
        x = keras.layers.Concatenate()([keras.layers.Flatten()(rows), dense])
        for units in sizes.hidden:
            x = keras.layers.Dense(units, "relu", kernel_initializer=first_value)(x)
        terms = [
            tf.reduce_sum(wide, axis=1),
            keras.layers.Dense(1, kernel_initializer=first_value)(dense),
            keras.layers.FM()(rows),
            keras.layers.Dense(1, use_bias=False, kernel_initializer=first_value)(x),
        ]
        model = keras.Model({"ids": ids, "numbers": dense}, keras.layers.Add()(terms))
        self.variables = model.trainable_variables
        self._model = model
        self._optimizer = keras.optimizers.Adagrad(LEARNING_RATE, ACCUMULATOR, EPSILON)

    def logits(self, ids: Any, dense: Any) -> Any:
        return self._model({"ids": ids, "numbers": dense}, training=True)

    def apply(self, gradients: Any) -> None:
        self._optimizer.apply_gradients(zip(gradients, self.variables))


class ModelOfVariables:
    """The same of variables and ops."""

    def __init__(self, tf: Any, sizes: Sizes) -> None:
        self._tf = tf
        vocabulary = sizes.fields * sizes.rows
        widths = (sizes.fields * sizes.dim + sizes.numbers, *sizes.hidden)
        shapes: list[tuple[int, ...]] = [(vocabulary, 1), (vocabulary, sizes.dim)]
        for i, units in enumerate(sizes.hidden):
            shapes += [(widths[i], units), (units,)]
        shapes += [(sizes.numbers, 1), (1,), (widths[-1], 1)]
        self.variables = [tf.Variable(first_value(shape)) for shape in shapes]
        self._accumulators = [
            tf.Variable(tf.fill(shape, ACCUMULATOR), trainable=False) for shape in shapes
        ]

    def logits(self, ids: Any, dense: Any) -> Any:
        tf = self._tf
        wide, table, *tower, numbers, bias, head = self.variables
        rows = tf.nn.embedding_lookup(table, ids)
        x = tf.concat([tf.reshape(rows, [rows.shape[0], -1]), dense], axis=1)
        for kernel, shift in zip(tower[::2], tower[1::2]):
            x = tf.nn.relu(tf.nn.bias_add(tf.matmul(x, kernel), shift))
        of_sums = tf.square(tf.reduce_sum(rows, axis=1))
        of_squares = tf.reduce_sum(tf.square(rows), axis=1)
        pairs = 0.5 * tf.reduce_sum(of_sums - of_squares, axis=1, keepdims=True)
        linear = tf.reduce_sum(tf.nn.embedding_lookup(wide, ids), axis=1)
        linear += tf.matmul(dense, numbers) + bias
        return linear + pairs + tf.matmul(x, head)

    def apply(self, gradients: Any) -> None:
        """Adagrad, with the ops that TensorFlow's own optimizers use."""
        tf, ops = self._tf, self._tf.raw_ops
        for gradient, variable, accumulator in zip(gradients, self.variables, self._accumulators):
            places = {"var": variable.handle, "accum": accumulator.handle}
            rate = {"lr": LEARNING_RATE, "epsilon": EPSILON}
            if isinstance(gradient, tf.IndexedSlices):
                rows, of_row = tf.unique(gradient.indices)
                sums = tf.math.unsorted_segment_sum(gradient.values, of_row, tf.size(rows))
                ops.ResourceSparseApplyAdagradV2(**places, **rate, grad=sums, indices=rows)
            else:
                ops.ResourceApplyAdagradV2(**places, **rate, grad=gradient)


class Job:
    """A coordinator whose workers train the model, each from data that it reads for itself."""

    def __init__(
        self, tf: Any, strategy: Any, coordinator: Any, model_type: Any, sizes: Sizes, folder: Path
    ) -> None:
        self._coordinator = coordinator
        with strategy.scope():
            model = model_type(tf, sizes)

        def train(iterator: Any) -> Any:
            examples = next(iterator)
            with tf.GradientTape() as tape:
                logits = model.logits(examples["ids"], examples["numbers"])
                losses = tf.nn.sigmoid_cross_entropy_with_logits(
                    labels=examples["label"], logits=logits
                )
                loss = tf.reduce_mean(losses)
            model.apply(tape.gradient(loss, model.variables))
            return loss

        @tf.function
        def step(iterator: Any) -> Any:
            return train(iterator)

        @tf.function
        def ten(iterator: Any) -> Any:
            for _ in range(10):
                loss = train(iterator)
            return loss

        dataset = coordinator.create_per_worker_dataset(lambda: batches(tf, sizes, folder))
        self._iterator = iter(dataset)
        self._functions = {"one": step, "ten": ten}
        self.losses = [float(self._schedule("one").fetch()) for _ in range(FIRST_STEPS)]
        #: Steps per second, by the kind of calls.
        self._rates = {kind: self._epoch(kind, 2 * pack) for kind, pack in PACKS.items()}

    def _schedule(self, kind: str) -> Any:
        return self._coordinator.schedule(self._functions[kind], args=(self._iterator,))

    def _epoch(self, kind: str, steps: int) -> float:
        """Steps per second of so many, which are waited for together."""
        began = time.monotonic()
        for _ in range(steps // PACKS[kind]):
            self._schedule(kind)
        self._coordinator.join()
        return steps / (time.monotonic() - began)

    def window(self, kind: str, seconds: float) -> dict[str, float]:
        """Steps for about so many seconds, in calls of that kind."""
        pack = PACKS[kind]
        steps = max(round(self._rates[kind] * seconds / pack), 1) * pack
        self._rates[kind] = self._epoch(kind, steps)
        return {"steps": steps, "per_s": self._rates[kind]}
