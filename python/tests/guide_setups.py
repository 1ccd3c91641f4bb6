"""What blocks of the guide's pages take for granted: before block `n` of a page, SETUPS[page][n]
is run, and CHECKS[page][n] behind it. PS and WORKER are addresses of servers that
test_guide_snippets.py starts.
"""

from __future__ import annotations

SETUPS: dict[str, dict[int, str]] = {
    "clusters": {
        0: """
import json, os
import sidereal as sr
os.environ["TF_CONFIG"] = json.dumps({
    "cluster": {"ps": ["h0:1"], "worker": ["h1:1", "h2:1", "h3:1", "h4:1"]},
    "task": {"type": "worker", "index": 3}})
""",
        1: """
os.environ |= {
    "SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_STEP_NODELIST": "n[1-3]",
    "SLURM_STEP_NUM_TASKS": "6", "SLURM_STEP_TASKS_PER_NODE": "2(x3)", "SLURM_NTASKS": "6"}
""",
    },
    "consistency": {
        0: """
import sidereal as sr
data = sr.data.synthetic(rows=200)
model = sr.models.build("lr", data, optimizer=sr.optimizers.Adagrad(0.05))
cluster = sr.LocalCluster(workers=4, in_process=True)
""",
    },
    "datasets": {
        0: """
import numpy as np
import sidereal as sr
features, labels = np.ones((600, 2), np.float32), np.zeros(600, np.float32)
seen = []
def scale(x, y):
    return x * 2.0, y
def train_step(x, y):
    seen.append((x.shape[0], float(x[0, 0])))
""",
        1: """
files = ["a.tfrecord"]
features = {"label": sr.io.FixedLenFeature([], "int64")}
with sr.io.TFRecordWriter(files[0]) as writer:
    for i in range(3):
        writer.write(sr.io.encode_example({"label": i}))
""",
        2: "ds = sr.data.Dataset.from_tensor_slices(([1.0, 2.0], [0, 1]))",
        3: "def loss_of(x):\n    return sr.cast(x, 'float32')",
    },
    "eager": {
        0: "import sidereal as sr",
        2: """
optimizer = sr.optimizers.SGD(0.1)
w = sr.Variable([[1.0], [2.0]])
""",
        5: """
rows, mask = sr.ones((2, 5, 3)), sr.constant([[True] * 5] * 2)
candidate = sr.ones((2, 32))
""",
    },
    "graphs": {
        1: "tf.reset_default_graph()\nids = tf.constant([1, 5_000_000])",
    },
    "models_out": {
        0: """
import numpy as np
import sidereal as sr
data = sr.data.synthetic(rows=2000)
model = sr.models.build("deepfm", data, optimizer=sr.optimizers.Adagrad(0.05), hidden=(8,))
cluster = sr.LocalCluster(in_process=True)
model.fit(data, cluster=cluster, steps_max=500, batch_size=4, verbose=False, checkpoint_dir="D",
          save_every="500steps")
ids, dense = np.zeros((1, 26), np.int64), np.zeros((1, 13), np.float32)
keras_model = sr.keras.Sequential([sr.keras.Input((3,)), sr.keras.layers.Dense(1)])
f = g = sr.function(lambda x: {"y": x * 2.0}, input_signature=[sr.TensorSpec([None], sr.float32)])
obj = {"f": f}
""",
        1: """
sr.write_tables("tables.safetensors", {"vectors/embeddings": np.ones((5, 4), np.float32)})
ids = np.array([1, -1])
class session:
    run = staticmethod(lambda outputs, feeds: feeds)
""",
    },
    "python": {
        0: "import sidereal as sr",
        1: """
import numpy as np
def rows_of(count):
    ids = np.random.default_rng(count).integers(0, 10_000, (count, 8))
    return {"ids": ids, "label": (ids[:, 0] < 5000).astype("float32")}
train, valid, test = rows_of(4000), rows_of(500), rows_of(501)
""",
        2: """
model = sr.Model(seed=7)
colors_known = 2
initializer = sr.lookup.KeyValueTensorInitializer(
    sr.constant(["red", "green"]), sr.constant([0, 1], sr.int64))
""",
        3: "ids = model.input('ids', sr.int64, (8,))",
        4: """
import json, os
os.environ["TF_CONFIG"] = json.dumps({"cluster": {"ps": [PS], "worker": [WORKER]}})
""",
        5: """
data = sr.data.synthetic(rows=200)
model = sr.models.build("wdl", data, optimizer=sr.optimizers.Adagrad(0.05), hidden=(8,))
local = sr.LocalCluster(in_process=True)
model.fit(data, cluster=local, batch_size=20, verbose=False)
ids, dense = np.zeros((3, 26), np.int64), np.zeros((3, 13), np.float32)
""",
    },
    "recovery": {
        0: """
import sidereal as sr
data = sr.data.synthetic(rows=2000)
model = sr.models.build("lr", data, optimizer=sr.optimizers.Adagrad(0.05))
""",
    },
    "resuming": {
        0: """
import sidereal as sr
data = sr.data.synthetic(rows=200)
model = sr.models.build("lr", data, optimizer=sr.optimizers.Adagrad(0.05))
cluster = sr.LocalCluster(in_process=True)
""",
    },
    "sessions": {
        0: "import numpy as np\nbatches = [(np.ones((4, 10)), np.ones((4, 1)))] * 2",
        1: "tf.reset_default_graph()",
        3: """
import sidereal as sr
tf.reset_default_graph()
with open("day_0.csv", "w") as file:
    file.write("label,age,site,app\\n" + "1,20,a,b\\n0,30,c,d\\n" * 50)
x, ids, y = (tf.placeholder(sr.float32, [None, 1]), tf.placeholder(sr.int64, [None, 2]),
             tf.placeholder(sr.float32, [None]))
keep_prob = tf.placeholder(sr.float32, [])
w = tf.get_variable("w", [1, 1])
logit = tf.reshape(tf.matmul(x * keep_prob, w), [-1])
p = tf.sigmoid(tf.reshape(tf.matmul(x, w), [-1]))
loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=y, logits=logit))
train_op = tf.train.AdagradOptimizer(0.1).minimize(loss)
test = sr.data.csv("day_0.csv", numeric=["age"], categorical=["site", "app"])
""",
    },
    "strategy": {
        0: """
import json, os
os.environ["TF_CONFIG"] = json.dumps({
    "cluster": {"ps": [PS], "worker": [WORKER], "chief": ["localhost:1"]},
    "task": {"type": "chief", "index": 0}})
""",
        1: """
def dataset_fn():
    rows = sr.data.Dataset.from_tensor_slices(([[1.0, 2.0]] * 8, [[3.0]] * 8))
    return rows.repeat().batch(4)
with strategy.scope():
    weights = [sr.Variable([[1.0], [1.0]])]
def loss_of(features, labels):
    return sr.reduce_mean(sr.square(features @ weights[0] - labels))
""",
    },
    "strings": {
        0: "import sidereal as sr",
        2: "records = ['30,Bonn,1.5', '40,,2.5']",
    },
}

CHECKS: dict[str, dict[int, str]] = {
    "clusters": {
        0: "assert (job, index) == ('worker', 3) and cluster.num_tasks('worker') == 4",
        1: "assert (job, index) == ('worker', 1), (job, index)",
    },
    "datasets": {
        0: "assert seen == [(256, 2.0), (256, 2.0), (88, 2.0)]",
        1: "assert next(iter(ds))['label'].numpy().tolist() == [0, 1, 2]",
        2: "step()",
        3: "assert float(total(0, 4)) == 6.0",
    },
    "eager": {
        1: "assert grad.numpy().tolist() == [2.0, 4.0]",
        2: "y = sr.ones((2, 1)); assert float(step(x, y)) != float(step(x, y))",
        3: "assert abs(float(root(sr.constant(2.0))) - 2**0.5) < 1e-5",
        4: "assert power(sr.constant([2.0]), 3).numpy().tolist() == [8.0]",
        5: "assert states.shape == (2, 5, 32) and interest.shape == (2, 32)",
    },
    "graphs": {0: "assert 0 <= value < 100", 1: "assert rows.shape[1] == 16"},
    "models_out": {
        0: "assert predict(ids=ids, dense=dense)['probability'].shape[0] == 1",
        1: "assert table.lookup(ids).tolist() == [[1.0] * 4, [0.0] * 4]",
    },
    "python": {
        1: "assert probabilities.shape[0] == 501 and table.shape == (10_000, 16)",
        5: "import os; assert os.path.getsize('model.onnx') > 0",
    },
    "resources": {0: "assert numbers.numpy().tolist() == [1, 2, 3, 4]"},
    "resuming": {0: "import os; assert os.path.exists('run1/checkpoint')"},
    "sessions": {
        1: """
with tf.Session(servers[1].target) as session:
    assert abs(session.run(w) - 1).max() < 0.1
""",
        3: "assert done.steps > 0 and len(scores[0]) == 100",
    },
    "strategy": {1: "assert losses[-1].fetch() < 4"},
    "strings": {
        1: "assert rows.to_tensor(default_value=-1).shape == (3, 2)",
        2: "assert city.numpy().tolist() == [b'Bonn', b'unknown']",
        3: "assert features['label'].numpy().tolist() == [1]",
    },
}
