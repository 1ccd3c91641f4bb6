"""Training over GRPC++ with a MonitoredTrainingSession whose small tensors travel together, one
process a task:

    grpc_plus_plus.py --ps_hosts localhost:3333 --worker_hosts localhost:4444,localhost:4445 \\
        --job_name ps --task_index 0 [--protocol grpc++] [--model_dir DIR] [--steps N]

and the same with `--job_name worker` and each index. For data ports see star_server.py.
"""

import argparse

import numpy as np

import sidereal.v1 as tf

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--ps_hosts", required=True, help="separated by commas")
parser.add_argument("--worker_hosts", required=True, help="separated by commas")
parser.add_argument("--job_name", required=True, choices=["ps", "worker"])
parser.add_argument("--task_index", type=int, required=True)
parser.add_argument("--protocol", default="grpc++")
parser.add_argument("--model_dir", help="where checkpoints are, on a disk of all tasks")
parser.add_argument("--steps", type=int, default=300)
FLAGS = parser.parse_args()

ps_hosts, worker_hosts = FLAGS.ps_hosts.split(","), FLAGS.worker_hosts.split(",")
cluster = tf.train.ClusterSpec({"ps": ps_hosts, "worker": worker_hosts})
server = tf.train.Server(
    cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index, protocol=FLAGS.protocol
)
if FLAGS.job_name == "ps":
    server.join()

rng = np.random.default_rng(FLAGS.task_index)
features = rng.normal(size=(2048, 8)).astype(np.float32)
labels = np.abs(features).sum(1, keepdims=True)

with tf.device(
    tf.train.replica_device_setter(
        cluster=cluster, worker_device=f"/job:worker/task:{FLAGS.task_index}"
    )
):
    x, y = tf.placeholder(tf.float32, [None, 8]), tf.placeholder(tf.float32, [None, 1])
    # Many small variables, and so many sends.
    net, size = x, 8
    for number in range(4):
        w = tf.get_variable(f"w{number}", [size, 16])
        b = tf.get_variable(f"b{number}", [16], initializer=tf.zeros_initializer())
        net, size = tf.nn.relu(tf.matmul(net, w) + b), 16
    loss = tf.reduce_mean(tf.square(tf.matmul(net, tf.get_variable("w", [16, 1])) - y))
    step = tf.train.get_or_create_global_step()
    train = tf.train.AdamOptimizer(0.01).minimize(loss, global_step=step)

with tf.train.MonitoredTrainingSession(
    master=server.target,
    is_chief=FLAGS.task_index == 0,
    checkpoint_dir=FLAGS.model_dir,
    config=tf.ConfigProto(tensor_fuse=True),  # Enable Send/Recv Ops Fusion
    hooks=[tf.train.StopAtStepHook(last_step=FLAGS.steps)],
    recovery_wait_secs=1,
) as mon_sess:
    while not mon_sess.should_stop():
        rows = rng.integers(0, len(features), 128)
        found, _ = mon_sess.run([loss, train], {x: features[rows], y: labels[rows]})
print(f"loss {found:.4f}", flush=True)
