"""A worker of tests, and with it a server: input_trainer.py PROTOCOL FOLDER [LAST]. It counts on
parameter servers how often it has seen each element of its data, and saves where it is in these. It
prints the steps that it begins at and makes, and at the end the counts. It is killed after step
LAST."""

import os
import signal
import sys

import numpy as np

import sidereal as sr
import sidereal.v1 as tf

ELEMENTS = 240

protocol, folder, *last = sys.argv[1:]
resolver = sr.distribute.cluster_resolver.TFConfigClusterResolver()
server = tf.train.Server(resolver.cluster_spec(), "worker", 0, protocol=protocol)

with tf.device(tf.train.replica_device_setter(2, worker_device="/job:worker/task:0")):
    step = tf.train.get_or_create_global_step()
    counts = tf.get_variable("counts", [ELEMENTS], initializer=tf.zeros_initializer())
    table = tf.lookup.experimental.MutableHashTable("int64", "float32", 0.0)
    data = tf.data.Dataset.range(ELEMENTS).shuffle(50, seed=3).batch(2).prefetch(4)
    iterator = tf.data.make_one_shot_iterator(data)
    batch = iterator.get_next()
    seen = tf.IndexedSlices(tf.ones([2]), batch, [ELEMENTS])
    noted = table.insert(batch, table.lookup(batch) + 1.0)
    train = tf.group(tf.scatter_add(counts, seen.indices, seen.values), noted)
    with tf.control_dependencies([train]):
        train = step.assign_add(1)
    everything = table.export()

tf.add_to_collection(
    tf.GraphKeys.SAVEABLE_OBJECTS, tf.data.experimental.make_saveable_from_iterator(iterator)
)


class Counts(tf.train.SessionRunHook):
    """Says at the end what was counted."""

    def end(self, session):
        found, (keys, values) = session.run([counts, everything])
        print(f"counts {np.unique(found).tolist()}", flush=True)
        print(f"table {len(keys)} {np.unique(values).tolist()}", flush=True)


with tf.train.MonitoredTrainingSession(
    server.target, checkpoint_dir=folder, save_checkpoint_steps=3, save_summaries_steps=0,
    log_step_count_steps=0, save_incremental_checkpoint_secs=0.02, hooks=[Counts()],
) as session:  # fmt: skip
    print(f"began at {session.run(step)}", flush=True)
    while not session.should_stop():
        now = session.run(train)
        print(f"step {now}", flush=True)
        if last == [str(now)]:
            os.kill(os.getpid(), signal.SIGKILL)
