"""A worker of tests whose variables move, and with it a server:
movable_trainer.py PROTOCOL FOLDER OPTIONS. Worker 0 is the chief. OPTIONS is JSON: arguments of
its session, and `workers`, how many there may be. It begins on the first two parameter servers,
counts its runs in the file runs-INDEX, and ends when the folder has a file `stop`."""

import json
import sys
from pathlib import Path

import numpy as np

import sidereal as sr
import sidereal.v1 as tf

protocol, folder, text = sys.argv[1:]
given = json.loads(text)
workers = given.pop("workers", 2)
saves = given.pop("checkpoint_dir", None)
resolver = sr.distribute.cluster_resolver.TFConfigClusterResolver()
index = resolver.task_id
server = tf.train.Server(resolver.cluster_spec(), "worker", index, protocol=protocol)

with tf.device(tf.train.replica_device_setter(2, worker_device=f"/job:worker/task:{index}")):
    step = tf.train.get_or_create_global_step()
    zeros = tf.zeros_initializer()
    parts = tf.fixed_size_partitioner(6)
    table = tf.get_variable("table", [12, 4], initializer=zeros, partitioner=parts)
    whole = tf.get_variable("whole", [], initializer=zeros)
    counts = [tf.get_variable(f"count{i}", [], initializer=zeros) for i in range(workers)]
    own = tf.get_variable(
        "own", [], initializer=zeros, collections=[tf.GraphKeys.LOCAL_VARIABLES]
    )
    ones = [tf.ones(part.shape) for part in table]
    adds = [part.assign_add(one).op for part, one in zip(table, ones)]
    adds += [whole.assign_add(1.0), counts[index].assign_add(1.0), step.assign_add(1)]
    train = tf.group(*adds)


class Tells(tf.train.SessionRunHook):
    """Says that a session has begun."""

    def after_create_session(self, session, coord):
        print("session", flush=True)


with tf.train.MonitoredTrainingSession(
    server.target, is_chief=index == 0, checkpoint_dir=saves, log_step_count_steps=0,
    save_summaries_steps=0, recovery_wait_secs=0.2, hooks=[Tells()], worker=f"w{index}",
    movable=True, **given,
) as session, open(Path(folder, f"runs-{index}"), "w") as runs:  # fmt: skip
    made = 0
    while not Path(folder, "stop").exists():
        session.run(train)
        made += 1
        runs.seek(0)
        runs.write(str(made))
        runs.flush()
    seen = session.run([whole, *counts, *table])
    print("sees", json.dumps([np.asarray(each).ravel().tolist() for each in seen]), flush=True)
