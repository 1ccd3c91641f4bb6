"""A MonitoredTrainingSession: job_monitored.py PROTOCOL DATA FOLDER. It is worker 0 of TF_CONFIG.
Its data goes on behind the rows that the checkpoint has counted."""

import sys

import job_data

import sidereal as sr
import sidereal.v1 as tf

protocol, path, folder = sys.argv[1:]
resolver = sr.distribute.cluster_resolver.TFConfigClusterResolver()
server = tf.train.Server(resolver.cluster_spec(), "worker", 0, protocol=protocol)

newest = tf.train.latest_checkpoint(folder)
done = 0 if newest is None else int(sr.train.load_variable(newest, "rows"))
data = tf.data.Dataset.from_tensor_slices(job_data.training(path)).repeat(job_data.EPOCHS)
data = data.skip(done).batch(job_data.BATCH)

with tf.device(tf.train.replica_device_setter(2, worker_device="/job:worker/task:0")):
    step = tf.train.get_or_create_global_step()
    rows = tf.get_variable("rows", [], tf.int64, tf.zeros_initializer(), trainable=False)
    table = tf.get_variable(
        "table", [job_data.FEATURES, 1], initializer=tf.zeros_initializer(),
        partitioner=tf.fixed_size_partitioner(2),
    )  # fmt: skip
    bias = tf.get_variable("bias", [], initializer=tf.zeros_initializer())
    ids, label = tf.data.make_one_shot_iterator(data).get_next()
    logit = tf.reduce_sum(tf.nn.embedding_lookup(table, ids, "div"), 1) + bias
    loss = tf.losses.sigmoid_cross_entropy(label, logit)
    train = tf.train.AdagradOptimizer(job_data.RATE).minimize(loss, step)
    counted = rows.assign_add(tf.cast(tf.shape(label)[0], tf.int64))

with tf.train.MonitoredTrainingSession(
    server.target, checkpoint_dir=folder, save_checkpoint_steps=40, log_step_count_steps=0,
    save_summaries_steps=0,
) as session:  # fmt: skip
    while not session.should_stop():
        _, found = session.run([train, counted])
        job_data.say_step(found // job_data.BATCH)

made = sr.train.load_checkpoint(folder)
job_data.say_result(path, *(made.get_tensor(name) for name in ("rows", "table", "bias")))
