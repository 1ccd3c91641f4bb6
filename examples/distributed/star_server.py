"""Training over StarServer with a MonitoredTrainingSession, one process a task:

    star_server.py --ps_hosts localhost:3333 --worker_hosts localhost:4444,localhost:4445 \\
        --job_name ps --task_index 0 [--protocol star_server] [--model_dir DIR] [--steps N]

and the same with `--job_name worker` and each index. Another set of ports is needed for data: a
file .endpoint_map in the folder that the tasks run in has them, a line a task, such as
`localhost:3333=localhost:5555`; without one each task takes a free port.
"""

import argparse
import os

import numpy as np

import sidereal.v1 as tf

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--ps_hosts", required=True, help="separated by commas")
parser.add_argument("--worker_hosts", required=True, help="separated by commas")
parser.add_argument("--job_name", required=True, choices=["ps", "worker"])
parser.add_argument("--task_index", type=int, required=True)
parser.add_argument("--protocol", default="star_server")
parser.add_argument("--model_dir", help="where checkpoints are, on a disk of all tasks")
parser.add_argument("--steps", type=int, default=300)
FLAGS = parser.parse_args()

# Threads that poll are worth it where each has a processor of its own.
os.environ["WORKER_ENABLE_POLLING"] = "False"
os.environ["PS_ENABLE_POLLING"] = "False"
os.environ["WORKER_DISABLE_PIN_CORES"] = "True"
os.environ["PS_DISABLE_PIN_CORES"] = "True"

ps_hosts, worker_hosts = FLAGS.ps_hosts.split(","), FLAGS.worker_hosts.split(",")
cluster = tf.train.ClusterSpec({"ps": ps_hosts, "worker": worker_hosts})
server = tf.train.Server(
    cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index, protocol=FLAGS.protocol
)
if FLAGS.job_name == "ps":
    server.join()

rng = np.random.default_rng(FLAGS.task_index)
ids = rng.integers(0, 1000, (4096, 4))
labels = (np.sin(ids).sum(1, keepdims=True) > 0).astype(np.float32)

setter = tf.train.replica_device_setter(
    cluster=cluster, worker_device=f"/job:worker/task:{FLAGS.task_index}"
)
with tf.device(setter):
    x = tf.placeholder(tf.int64, [None, 4])
    y = tf.placeholder(tf.float32, [None, 1])
    table = tf.get_variable(
        "table", [1000, 8], partitioner=tf.fixed_size_partitioner(len(ps_hosts))
    )
    vectors = tf.nn.embedding_lookup(table, x, partition_strategy="div")
    w = tf.get_variable("w", [32, 1])
    logits = tf.matmul(tf.reshape(vectors, [-1, 32]), w)
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=y, logits=logits))
    step = tf.train.get_or_create_global_step()
    train = tf.train.AdagradOptimizer(0.5).minimize(loss, global_step=step)

everything = {x: ids, y: labels}
with tf.train.MonitoredTrainingSession(
    master=server.target,
    is_chief=FLAGS.task_index == 0,
    checkpoint_dir=FLAGS.model_dir,
    save_checkpoint_secs=30,
    hooks=[tf.train.StopAtStepHook(last_step=FLAGS.steps)],
    recovery_wait_secs=1,
) as mon_sess:
    while not mon_sess.should_stop():
        rows = rng.integers(0, len(ids), 256)
        found, _ = mon_sess.run([loss, train], {x: ids[rows], y: labels[rows]})
print(f"loss {found:.4f}", flush=True)
