"""In-graph replication: one client, one graph with a copy of the model on every worker task.

    sidereal launch --chief --ps 2 --workers 2 in_graph.py [--synchronous] [--steps N]

The chief is the client. The other tasks only serve: the ps tasks hold the variables, each worker
computes on its own part of the data. Asynchronously, a thread of the client drives each worker, and
applies its gradients when they are there; synchronously, a step takes the mean of the gradients of
all workers.
"""

import argparse
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import sidereal as sr
import sidereal.v1 as tf

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--synchronous", action="store_true")
parser.add_argument("--steps", type=int, default=200)
options = parser.parse_args()

resolver = sr.distribute.cluster_resolver.TFConfigClusterResolver()
cluster = resolver.cluster_spec()
server = tf.train.Server(cluster, resolver.task_type, resolver.task_id)
workers = cluster.num_tasks("worker")

# By this queue the client tells the workers that it is done.
with tf.device("/job:ps/task:0"):
    finished = tf.FIFOQueue(workers, tf.int64, shapes=(), shared_name="finished")


def tower(worker, w, b):
    """The loss of one worker, on rows that only it has."""
    rng = np.random.default_rng(worker)
    x = rng.normal(size=(512, 10)).astype(np.float32)
    y = (x @ np.arange(10, dtype=np.float32) + 5)[:, None]
    rows = tf.random.uniform([32], maxval=512, dtype=tf.int64)
    output = tf.matmul(tf.gather(tf.constant(x), rows), w) + b
    return tf.reduce_mean(tf.square(output - tf.gather(tf.constant(y), rows)))


def train():
    # Variables go round the ps tasks.
    with tf.device(tf.train.replica_device_setter(cluster=cluster)):
        w = tf.get_variable("w", [10, 1])
        b = tf.get_variable("b", [1], initializer=tf.zeros_initializer())
        step = tf.train.get_or_create_global_step()
    optimizer = tf.train.GradientDescentOptimizer(0.05)
    losses, gradients = [], []
    for worker in range(workers):
        with tf.device(f"/job:worker/task:{worker}"):
            losses.append(tower(worker, w, b))
            gradients.append(optimizer.compute_gradients(losses[-1], [w, b]))
    loss = tf.add_n(losses) / float(workers)
    if options.synchronous:
        means = [
            (tf.add_n([grad for grad, _ in pairs]) / float(workers), pairs[0][1])
            for pairs in zip(*gradients)
        ]
        operations = [optimizer.apply_gradients(means, step)]
    else:
        operations = [optimizer.apply_gradients(pairs, step) for pairs in gradients]

    with tf.Session(server.target) as session:
        session.run(tf.global_variables_initializer())
        print(f"loss {session.run(loss):.4f}")

        def repeat(operation):
            for _ in range(options.steps):
                session.run(operation)

        with ThreadPoolExecutor(len(operations)) as threads:
            list(threads.map(repeat, operations))
        print(f"loss {session.run(loss):.4f} after {session.run(step)} steps")
        session.run(finished.enqueue_many(np.arange(workers)))


if resolver.task_type == "chief":
    train()
elif resolver.task_type == "worker":
    with tf.Session(server.target) as session:
        session.run(finished.dequeue())
else:
    server.join()
