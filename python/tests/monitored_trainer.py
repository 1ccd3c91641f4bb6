"""A worker of tests, and with it a server: monitored_trainer.py PROTOCOL FOLDER CONSISTENCY.
Worker 1 is the chief. It prints the steps that it sees, and that it came back after a failure; it
ends when the folder has a file `stop`."""

import sys
from pathlib import Path

import numpy as np

import sidereal as sr
import sidereal.v1 as tf

protocol, folder, consistency = sys.argv[1:]
resolver = sr.distribute.cluster_resolver.TFConfigClusterResolver()
index = resolver.task_id
server = tf.train.Server(resolver.cluster_spec(), "worker", index, protocol=protocol)

with tf.device(tf.train.replica_device_setter(2, worker_device=f"/job:worker/task:{index}")):
    step = tf.train.get_or_create_global_step()
    a = tf.Variable(np.zeros(3, np.float32), name="a")
    b = tf.Variable(0.0, name="b")
    loss = tf.reduce_sum(a) + b
    train = tf.train.GradientDescentOptimizer(1.0).minimize(loss, step)


class Tells(tf.train.SessionRunHook):
    """Says that a session is not the first one."""

    sessions = 0

    def after_create_session(self, session, coord):
        self.sessions += 1
        if self.sessions > 1:
            print("came back", flush=True)


with tf.train.MonitoredTrainingSession(
    server.target, is_chief=index == 1, checkpoint_dir=folder, save_checkpoint_steps=20,
    log_step_count_steps=0, save_summaries_steps=0, recovery_wait_secs=0.2, hooks=[Tells()],
    consistency=consistency,
) as session:  # fmt: skip
    now = session.run(step)
    print(f"began at {now}", flush=True)
    while not Path(folder, "stop").exists():
        now = session.run([train, step])[1]
        if now % 20 == 0:
            print(f"step {now}", flush=True)
print(f"ended at {now}", flush=True)
