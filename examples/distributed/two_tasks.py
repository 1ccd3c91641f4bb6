"""A cluster of two tasks: two_tasks.py [ADDRESS ADDRESS]

Usually each server is in a process of its own, maybe on a machine of its own. Here both are in this
one, and listen at the addresses, or at localhost:2222 and localhost:2223.
"""

import sys

import sidereal.v1 as tf

addresses = sys.argv[1:] or ["localhost:2222", "localhost:2223"]
cluster = tf.train.ClusterSpec({"local": addresses})

# In task 0:
server = tf.train.Server(cluster, job_name="local", task_index=0)
# In task 1:
other = tf.train.Server(cluster, job_name="local", task_index=1)

with tf.device("/job:local/task:0"):
    x = tf.constant([1.0, 2.0, 3.0])
with tf.device("/job:local/task:1"):
    y = tf.square(x)

with tf.Session(server.target) as sess:
    for device in sess.list_devices():
        print(device.name)
    print(sess.run(y))
