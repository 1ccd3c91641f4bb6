"""A server in this process as a cluster of one task, and a session on it."""

import sidereal.v1 as tf

c = tf.constant("Hello, distributed TensorFlow!")
server = tf.train.Server.create_local_server()
sess = tf.Session(server.target)  # Create a session on the server.
print(sess.run(c))
