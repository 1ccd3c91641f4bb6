"""fit() of a Keras model on parameter servers: job_keras.py WHO PROTOCOL DATA FOLDER. It is the
chief of TF_CONFIG. WHO reads the data: "workers" or "coordinator"."""

import sys

import job_data

import sidereal as sr
from sidereal import keras

who, _, path, folder = sys.argv[1:]


class Counted(keras.Model):
    """A regression that counts the rows that it has been trained with."""

    def __init__(self):
        super().__init__()
        self.table = keras.layers.Embedding(job_data.FEATURES, 1, "zeros")
        self.bias = self.add_weight(shape=(), initializer="zeros", name="bias")
        self.rows = self.add_weight(
            shape=(), dtype="int64", initializer="zeros", trainable=False, name="rows"
        )

    def call(self, ids, training=False):
        if training:
            self.rows.assign_add(sr.cast(sr.shape(ids)[0], "int64"))
        return sr.reduce_sum(self.table(ids), 1) + self.bias


strategy = sr.distribute.ParameterServerStrategy(
    sr.distribute.cluster_resolver.TFConfigClusterResolver(),
    sr.distribute.experimental.partitioners.FixedShardsPartitioner(2),
)
with strategy.scope():
    model = Counted()
    model.compile(
        keras.optimizers.Adagrad(job_data.RATE), keras.losses.BinaryCrossentropy(from_logits=True)
    )
data = sr.data.Dataset.from_tensor_slices(job_data.training(path)).batch(job_data.BATCH)
steps = job_data.STEPS // job_data.EPOCHS
says = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, _: job_data.say_step(batch))
model.fit(
    data, epochs=job_data.EPOCHS, verbose=0,
    steps_per_epoch=steps if who == "workers" else None,
    callbacks=[keras.callbacks.BackupAndRestore(f"{folder}/backup", save_freq=40), says],
)  # fmt: skip
job_data.say_result(path, model.rows.numpy(), model.table.get_weights()[0], model.bias.numpy())
