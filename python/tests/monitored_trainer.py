"""A worker of tests, and with it a server: monitored_trainer.py PROTOCOL FOLDER STEPS. Worker 1 is
the chief. It prints the steps that it sees."""

import sys

import numpy as np

import sidereal as sr
import sidereal.v1 as tf

protocol, folder, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
resolver = sr.distribute.cluster_resolver.TFConfigClusterResolver()
index = resolver.task_id
server = tf.train.Server(
    resolver.cluster_spec(), "worker", index, protocol=protocol
)

with tf.device(tf.train.replica_device_setter(2, worker_device=f"/job:worker/task:{index}")):
    step = tf.train.get_or_create_global_step()
    a = tf.Variable(np.zeros(3, np.float32), name="a")
    b = tf.Variable(0.0, name="b")
    loss = tf.reduce_sum(a) + b
    train = tf.train.GradientDescentOptimizer(1.0).minimize(loss, step)

with tf.train.MonitoredTrainingSession(
    server.target, is_chief=index == 1, checkpoint_dir=folder, save_checkpoint_steps=20,
    log_step_count_steps=0, save_summaries_steps=0, recovery_wait_secs=0.2,
    hooks=[tf.train.StopAtStepHook(last_step=steps)],
) as session:  # fmt: skip
    print(f"began at {session.run(step)}", flush=True)
    while not session.should_stop():
        now = session.run([train, step])[1]
        if now % 20 == 0:
            print(f"step {now}", flush=True)
print(f"ended at {now}", flush=True)
