"""Between-graph replication, synchronous: a step takes the mean of the gradients of all workers.

    sidereal launch --ps 2 --workers 2 between_graph_sync.py [--steps N] [--aggregate N]

As in between_graph.py, every worker is a client with a graph of its own. Gradients meet in
accumulators beside the variables. A thread of the chief, worker 0, waits until there are
`--aggregate` of them (by default one of each worker), applies their means, and lets the workers
go on, by tokens in a queue. With fewer than there are workers, the slowest of a step are not waited
for.
"""

import argparse
import time

import numpy as np

import sidereal as sr
import sidereal.v1 as tf

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--aggregate", type=int, default=0)
parser.add_argument("--wait", type=float, default=60, help="for the chief, in seconds")
options = parser.parse_args()

resolver = sr.distribute.cluster_resolver.TFConfigClusterResolver()
cluster, index = resolver.cluster_spec(), resolver.task_id
server = tf.train.Server(cluster, resolver.task_type, index)
if resolver.task_type == "ps":
    server.join()
workers = cluster.num_tasks("worker")

rng = np.random.default_rng(index)
features = rng.normal(size=(512, 10)).astype(np.float32)
labels = (features @ np.arange(10, dtype=np.float32) + 5)[:, None]

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
    optimizer = tf.train.SyncReplicasOptimizer(
        tf.train.GradientDescentOptimizer(0.1),
        replicas_to_aggregate=options.aggregate or workers, total_num_replicas=workers,
    )
    train = optimizer.minimize(loss, step)
    init_tokens = optimizer.get_init_tokens_op()
    # The chief sets it when the accumulators are ready and the tokens of the first step are there.
    is_ready = tf.Variable(False, trainable=False, name="is_ready")
    uninitialized = tf.report_uninitialized_variables([is_ready])
    initializers = [v.initializer for v in tf.global_variables() if v is not is_ready]
# Every worker says here that it is done, and the chief, whose thread makes the steps, waits.
with tf.device("/job:ps/task:0"):
    finished = tf.FIFOQueue(workers, tf.int64, shapes=(), shared_name="finished")
    finish, wait_for_all = finished.enqueue(index), finished.dequeue_many(workers)

coordinator = tf.train.Coordinator()
session = tf.Session(server.target)
if index == 0:
    session.run(initializers)
    session.run(optimizer.chief_init_op)
    session.run(init_tokens)
    optimizer.get_chief_queue_runner().create_threads(session, coordinator, start=True)
    session.run(is_ready.initializer)
else:
    end = time.monotonic() + options.wait
    while len(session.run(uninitialized)) > 0:
        if time.monotonic() > end:
            raise SystemExit("the chief is not ready in time")
        time.sleep(0.1)
    session.run(optimizer.local_step_init_op)

everything = {x: features, y: labels}
print(f"loss {session.run(loss, everything):.4f}", flush=True)
# The last step puts in a token for every worker, so each of them sees it.
while session.run(step) < options.steps:
    rows = rng.integers(0, 512, 32)
    session.run(train, {x: features[rows], y: labels[rows]})
print(f"loss {session.run(loss, everything):.4f} after step {session.run(step)}", flush=True)
session.run(finish)
if index == 0:
    session.run(wait_for_all)
    coordinator.request_stop()
session.close()
coordinator.join()
