"""Two programs that TensorFlow and sidereal both run, and the losses of TensorFlow, step by step.

    cd python/tests
    KERAS_BACKEND=tensorflow python tensorflow_losses.py > tensorflow_losses.json

prints what TensorFlow, run eagerly in one process, computes (an argument: for so many steps).
test_tensorflow_equality.py runs the programs on a cluster.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

STEPS = 100
VOCABULARY = ["avenger", "ironman", "batman", "hulk", "spiderman", "kingkong", "wonder_woman"]
#: Rows of the tables of DeepFM, one for each categorical feature.
TABLES = [5 + 7 * field % 50 for field in range(26)]
NUMBERS, DIM, ROWS, BATCH = 13, 4, 256, 32


class Program:
    """What is trained: a model, the optimizer, the loss of each example of a batch, and a dataset
    that never ends."""

    def __init__(self, model: Any, optimizer: Any, losses: Callable[..., Any], data: Any) -> None:
        self.model, self.optimizer, self.losses, self.data = model, optimizer, losses, data
        #: What is done to a gradient before it is applied.
        self.summed: Callable[[Any], Any] = lambda gradient: gradient

    def start(self) -> None:
        """Weights that are the same whatever made them."""
        rng = np.random.default_rng(11)
        self.model.set_weights(
            [rng.normal(0, 0.2, each.shape).astype("float32") for each in self.model.get_weights()]
        )

    def step(self, tf: Any, iterator: Any) -> Any:
        """The loss of the next batch, before it has changed the weights."""
        features, labels = next(iterator)
        with tf.GradientTape() as tape:
            losses = self.losses(labels, self.model(features, training=True))
            loss = tf.nn.compute_average_loss(losses)
        variables = self.model.trainable_variables
        gradients = [self.summed(each) for each in tape.gradient(loss, variables)]
        self.optimizer.apply_gradients(list(zip(gradients, variables)))
        return loss


def tutorial(tf: Any, keras: Any) -> Program:
    """The model of TensorFlow's tutorial: is "avenger" one of three words?"""
    layers = keras.layers
    words = layers.StringLookup(vocabulary=VOCABULARY)
    answers = layers.StringLookup(vocabulary=["yes", "no"], num_oov_indices=0, mask_token=None)
    chooser = random.Random(1)
    features = [chooser.sample(VOCABULARY, 3) for _ in range(200)]
    label = [["yes" if "avenger" in each else "no"] for each in features]
    rows = tf.data.Dataset.from_tensor_slices({"features": features, "label": label})
    data = rows.batch(32, drop_remainder=True).map(
        lambda x: ({"features": words(x["features"])}, answers(x["label"]))
    )

    ids = keras.Input((3,), dtype="int64", name="features")
    vectors = layers.Embedding(len(words.get_vocabulary()), 20)(ids)
    mean = layers.Lambda(lambda x: tf.reduce_mean(x, axis=1), output_shape=(20,))(vectors)
    model = keras.Model({"features": ids}, layers.Dense(1, activation="sigmoid")(mean))
    losses = keras.losses.BinaryCrossentropy(reduction="none")
    return Program(model, keras.optimizers.RMSprop(0.1), losses, data.repeat())


def clicks() -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Skewed ids and numbers, and labels that depend on both."""
    rng = np.random.default_rng(3)
    ids = (np.array(TABLES) * rng.random((ROWS, len(TABLES))) ** 2).astype(np.int32)
    numbers = rng.normal(size=(ROWS, NUMBERS)).astype(np.float32)
    logit = np.sin(ids[:, :6]).sum(axis=1) + numbers[:, 0]
    label = (rng.random(ROWS) < 1 / (1 + np.exp(-logit))).astype(np.float32)
    return {"ids": ids, "numbers": numbers}, label[:, None]


def deepfm(tf: Any, keras: Any) -> Program:
    """26 tables of vectors and 26 of weights, sums of products of two fields, and a tower."""
    layers = keras.layers

    class DeepFM(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.vectors = [layers.Embedding(rows, DIM) for rows in TABLES]
            self.weights_of_ids = [layers.Embedding(rows, 1) for rows in TABLES]
            self.linear = layers.Dense(1)
            self.tower = [layers.Dense(32, "relu"), layers.Dense(16, "relu"), layers.Dense(1)]

        def call(self, inputs: Any, training: Any = None) -> Any:
            ids, numbers = inputs["ids"], inputs["numbers"]
            fields = [table(ids[:, i]) for i, table in enumerate(self.vectors)]
            weights = [table(ids[:, i]) for i, table in enumerate(self.weights_of_ids)]
            stacked = tf.stack(fields, axis=1)
            sum_of_fields = tf.reduce_sum(stacked, axis=1)
            pairs = tf.square(sum_of_fields) - tf.reduce_sum(tf.square(stacked), axis=1)
            x = tf.concat([*fields, numbers], axis=1)
            for layer in self.tower:
                x = layer(x)
            return (
                x + self.linear(numbers) + tf.add_n(weights)
                + 0.5 * tf.reduce_sum(pairs, axis=1, keepdims=True)
            )  # fmt: skip

    model = DeepFM()
    model({"ids": np.zeros((1, len(TABLES)), np.int32), "numbers": np.zeros((1, NUMBERS), "f")})
    losses = keras.losses.BinaryCrossentropy(from_logits=True, reduction="none")
    data = tf.data.Dataset.from_tensor_slices(clicks()).batch(BATCH).repeat()
    return Program(model, keras.optimizers.Adagrad(0.05), losses, data)


PROGRAMS = {"tutorial": tutorial, "deepfm": deepfm}


def losses_of(tf: Any, keras: Any, steps: int) -> Iterator[tuple[str, list[float]]]:
    """Each program's name, and its losses, eagerly."""
    for name, made in PROGRAMS.items():
        program = made(tf, keras)
        program.start()
        # Keras' optimizers take the rows of an id that is there twice as two gradients, and square
        # each of them; the gradient of the table is their sum.
        program.summed = tf.convert_to_tensor
        iterator = iter(program.data)
        yield name, [float(program.step(tf, iterator)) for _ in range(steps)]


def main() -> None:
    import tensorflow as tf

    steps = int(sys.argv[1]) if len(sys.argv) > 1 else STEPS
    losses = losses_of(tf, tf.keras, steps)
    print(json.dumps({name: [float(f"{x:.9g}") for x in each] for name, each in losses}, indent=0))


if __name__ == "__main__":
    main()
