"""Variables on two parameter servers, the model on a worker: ps_and_worker.py TARGET [STEPS]

The tasks are servers without Python, for instance, with a file cluster.json that has
{"ps": ["localhost:2222", "localhost:2223"], "worker": {"7": "localhost:2224"}}:

    sidereal serve --cluster cluster.json --job ps --task 0 &
    sidereal serve --cluster cluster.json --job ps --task 1 &
    sidereal serve --cluster cluster.json --job worker --task 7 &
    python ps_and_worker.py grpc://localhost:2224
"""

import sys

import numpy as np

import sidereal.v1 as tf

target = sys.argv[1]
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 10000
rng = np.random.default_rng(1)
features = rng.normal(size=(256, 8)).astype(np.float32)

with tf.device("/job:ps/task:0"):
    w1 = tf.Variable(rng.normal(0, 0.3, (8, 32)).astype(np.float32))
    b1 = tf.Variable(np.zeros(32, np.float32))

with tf.device("/job:ps/task:1"):
    w2 = tf.Variable(rng.uniform(0, 0.3, (32, 1)).astype(np.float32))
    b2 = tf.Variable(np.ones(1, np.float32))

with tf.device("/job:worker/task:7"):
    input, labels = tf.constant(features), tf.constant(np.abs(features).sum(1, keepdims=True))
    layer_1 = tf.nn.relu(tf.matmul(input, w1) + b1)
    logits = tf.nn.relu(tf.matmul(layer_1, w2) + b2)
    loss = tf.reduce_mean(tf.square(logits - labels))
    train_op = tf.train.GradientDescentOptimizer(0.01).minimize(loss)

with tf.Session(target) as sess:
    sess.run(tf.global_variables_initializer())
    print(f"loss {sess.run(loss):.4f}")
    for _ in range(steps):
        sess.run(train_op)
    print(f"loss {sess.run(loss):.4f}")
