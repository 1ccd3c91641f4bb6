"""Between-graph replication, asynchronous: every worker is a client with a graph of its own.

    sidereal launch --ps 2 --workers 2 between_graph.py [--steps N]

The graphs name the same variables, which the ps tasks hold: each worker reads what all have made of
them, and applies its gradients when it has them. Worker 0 is the chief, which gives the variables
their first values. Nobody waits for anybody else: a worker may come later, end, or die.
"""

import argparse
import time

import numpy as np

import sidereal as sr
import sidereal.v1 as tf

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=300, help="until the global step is there")
parser.add_argument("--wait", type=float, default=60, help="for the chief, in seconds")
options = parser.parse_args()

resolver = sr.distribute.cluster_resolver.TFConfigClusterResolver()
cluster, index = resolver.cluster_spec(), resolver.task_id
server = tf.train.Server(cluster, resolver.task_type, index)
if resolver.task_type == "ps":
    server.join()

rng = np.random.default_rng(index)
features = rng.normal(size=(512, 10)).astype(np.float32)
labels = (features @ np.arange(10, dtype=np.float32) + 5)[:, None]

# Variables go round the ps tasks, all else is on this worker.
setter = tf.train.replica_device_setter(
    cluster=cluster, worker_device=f"/job:worker/task:{index}"
)
with tf.device(setter):
    x = tf.placeholder(tf.float32, [None, 10])
    y = tf.placeholder(tf.float32, [None, 1])
    w = tf.get_variable("w", [10, 1])
    b = tf.get_variable("b", [1], initializer=tf.zeros_initializer())
    step = tf.train.get_or_create_global_step()
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w) + b - y))
    train = tf.train.GradientDescentOptimizer(0.05).minimize(loss, step)
    uninitialized = tf.report_uninitialized_variables()

# A server takes part in a session when the graph uses its devices: no other worker's is.
with tf.Session(server.target) as session:
    end = time.monotonic() + options.wait
    while len(missing := session.run(uninitialized)) > 0:
        if index == 0:
            session.run(tf.global_variables_initializer())
        elif time.monotonic() > end:
            raise SystemExit(f"the chief has not given values to {missing} in time")
        else:
            time.sleep(0.1)

    everything = {x: features, y: labels}
    print(f"loss {session.run(loss, everything):.4f}", flush=True)
    mine = 0
    while True:
        rows = rng.integers(0, 512, 32)
        _, now = session.run([train, step], {x: features[rows], y: labels[rows]})
        mine += 1
        if now >= options.steps:
            break
    print(f"loss {session.run(loss, everything):.4f} after {mine} steps", flush=True)
