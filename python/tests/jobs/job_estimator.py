"""An Estimator: job_estimator.py PROTOCOL DATA FOLDER. It is the chief of TF_CONFIG. Its data goes
on behind the rows that the checkpoint has counted, and its end is that of the data."""

import sys

import job_data

import sidereal as sr
import sidereal.v1 as tf

protocol, path, folder = sys.argv[1:]


def input_fn():
    newest = tf.train.latest_checkpoint(folder)
    done = 0 if newest is None else int(sr.train.load_variable(newest, "rows"))
    data = tf.data.Dataset.from_tensor_slices(job_data.training(path)).repeat(job_data.EPOCHS)
    return data.skip(done).batch(job_data.BATCH)


class Says(tf.train.SessionRunHook):
    """Tells of each step."""

    def __init__(self, counted):
        self.counted = counted

    def before_run(self, run_context):
        return tf.train.SessionRunArgs(self.counted)

    def after_run(self, run_context, run_values):
        job_data.say_step(run_values.results // job_data.BATCH)


def model_fn(features, labels, mode):
    rows = tf.get_variable("rows", [], tf.int64, tf.zeros_initializer(), trainable=False)
    table = tf.get_variable(
        "table", [job_data.FEATURES, 1], initializer=tf.zeros_initializer(),
        partitioner=tf.fixed_size_partitioner(2),
    )  # fmt: skip
    bias = tf.get_variable("bias", [], initializer=tf.zeros_initializer())
    logit = tf.reduce_sum(tf.nn.embedding_lookup(table, features, "div"), 1) + bias
    loss = tf.losses.sigmoid_cross_entropy(labels, logit)
    optimizer = tf.train.AdagradOptimizer(job_data.RATE)
    counted = rows.assign_add(tf.cast(tf.shape(labels)[0], tf.int64))
    train = tf.group(optimizer.minimize(loss, tf.train.get_global_step()), counted)
    return tf.estimator.EstimatorSpec(
        mode, loss=loss, train_op=train, training_hooks=[Says(counted)]
    )


config = tf.estimator.RunConfig(
    model_dir=folder, protocol=protocol, save_checkpoints_steps=40, log_step_count_steps=1000,
    save_summary_steps=0,
)  # fmt: skip
tf.estimator.train_and_evaluate(
    tf.estimator.Estimator(model_fn, config=config),
    tf.estimator.TrainSpec(input_fn),
    tf.estimator.EvalSpec(input_fn),
)
made = sr.train.load_checkpoint(folder)
job_data.say_result(path, *(made.get_tensor(name) for name in ("rows", "table", "bias")))
