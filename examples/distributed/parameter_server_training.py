"""Parameter server training, TensorFlow 2's tutorial: parameter_server_training.py [PROTOCOL]

A strategy with variables on two parameter servers, layers that make numbers of words, a dataset on
each of three workers, a model, a step that workers run, shards of variables, and evaluation at the
coordinator. All servers are in this process; with TF_CONFIG each task of a
cluster runs this program, and does what its task is:

    sidereal launch --ps 2 --workers 3 --chief examples/distributed/parameter_server_training.py
"""

import multiprocessing
import os
import random
import sys

import portpicker

import sidereal as tf
from sidereal import keras
from sidereal.keras.layers.experimental import preprocessing as kpl

NUM_WORKERS = 3
NUM_PS = 2
PROTOCOL = sys.argv[1] if len(sys.argv) > 1 else "grpc"


# --- Cluster setup.


def create_in_process_cluster(num_workers, num_ps):
    """Creates and starts local servers and returns the cluster_resolver."""
    worker_ports = [portpicker.pick_unused_port() for _ in range(num_workers)]
    ps_ports = [portpicker.pick_unused_port() for _ in range(num_ps)]
    cluster_dict = {"worker": [f"localhost:{port}" for port in worker_ports]}
    if num_ps > 0:
        cluster_dict["ps"] = [f"localhost:{port}" for port in ps_ports]
    cluster_spec = tf.train.ClusterSpec(cluster_dict)

    worker_config = tf.compat.v1.ConfigProto()
    if multiprocessing.cpu_count() < num_workers + 1:
        worker_config.inter_op_parallelism_threads = num_workers + 1
    for i in range(num_workers):
        servers.append(
            tf.distribute.Server(
                cluster_spec, job_name="worker", task_index=i, config=worker_config,
                protocol=PROTOCOL,
            )
        )  # fmt: skip
    for i in range(num_ps):
        servers.append(
            tf.distribute.Server(cluster_spec, job_name="ps", task_index=i, protocol=PROTOCOL)
        )
    return tf.distribute.cluster_resolver.SimpleClusterResolver(cluster_spec, rpc_layer="grpc")


#: They run as long as somebody has them.
servers = []

if "TF_CONFIG" in os.environ:
    cluster_resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if cluster_resolver.task_type in ("worker", "ps"):
        server = tf.distribute.Server(
            cluster_resolver.cluster_spec(),
            job_name=cluster_resolver.task_type,
            task_index=cluster_resolver.task_id,
            protocol=cluster_resolver.rpc_layer or PROTOCOL,
        )
        server.join()
        sys.exit()
else:
    cluster_resolver = create_in_process_cluster(NUM_WORKERS, NUM_PS)

# --- The strategy.

variable_partitioner = tf.distribute.experimental.partitioners.FixedShardsPartitioner(
    num_shards=NUM_PS
)
strategy = tf.distribute.experimental.ParameterServerStrategy(
    cluster_resolver, variable_partitioner=variable_partitioner
)

# --- The data.

feature_vocab = [
    "avenger", "ironman", "batman", "hulk", "spiderman", "kingkong", "wonder_woman",
]  # fmt: skip
label_vocab = ["yes", "no"]

with strategy.scope():
    feature_lookup_layer = kpl.StringLookup(vocabulary=feature_vocab)
    label_lookup_layer = kpl.StringLookup(
        vocabulary=label_vocab, num_oov_indices=0, mask_token=None
    )

    raw_feature_input = keras.layers.Input(shape=(3,), dtype="string", name="feature")
    feature_id_input = feature_lookup_layer(raw_feature_input)
    feature_preprocess_stage = keras.Model({"features": raw_feature_input}, feature_id_input)

    raw_label_input = keras.layers.Input(shape=(1,), dtype="string", name="label")
    label_id_input = label_lookup_layer(raw_label_input)
    label_preprocess_stage = keras.Model({"label": raw_label_input}, label_id_input)


def feature_and_label_gen(num_examples=200):
    """Words, and whether "avenger" is one of them."""
    examples = {"features": [], "label": []}
    for _ in range(num_examples):
        features = random.sample(feature_vocab, 3)
        label = ["yes"] if "avenger" in features else ["no"]
        examples["features"].append(features)
        examples["label"].append(label)
    return examples


random.seed(1)
examples = feature_and_label_gen()


def preprocess(x):
    """Words as numbers."""
    return (
        {"features": feature_preprocess_stage({"features": x["features"]})},
        label_preprocess_stage({"label": x["label"]}),
    )


def dataset_fn(_):
    raw_dataset = tf.data.Dataset.from_tensor_slices(examples)
    return raw_dataset.shuffle(200, seed=1).batch(32, drop_remainder=True).map(preprocess).repeat()


# --- The model. Its variables go to parameter servers in turn, those of two shards to both.

with strategy.scope():
    model_input = keras.layers.Input(shape=(3,), dtype="int64", name="model_input")
    emb_layer = keras.layers.Embedding(
        input_dim=len(feature_lookup_layer.get_vocabulary()), output_dim=20
    )
    emb_output = tf.reduce_mean(emb_layer(model_input), axis=1)
    dense_output = keras.layers.Dense(units=1, activation="sigmoid")(emb_output)
    model = keras.Model({"features": model_input}, dense_output)

    optimizer = keras.optimizers.RMSprop(learning_rate=0.1)
    accuracy = keras.metrics.Accuracy()

# --- The step.


@tf.function
def step_fn(iterator):
    def replica_fn(iterator):
        batch_data, labels = next(iterator)
        with tf.GradientTape() as tape:
            pred = model(batch_data, training=True)
            per_example_loss = keras.losses.BinaryCrossentropy(
                reduction=tf.keras.losses.Reduction.NONE
            )(labels, pred)
            loss = tf.nn.compute_average_loss(per_example_loss)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        actual_pred = tf.cast(tf.greater(pred, 0.5), tf.int64)
        accuracy.update_state(labels, actual_pred)
        return loss

    losses = strategy.run(replica_fn, args=(iterator,))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)


# --- Workers run it.

coordinator = tf.distribute.experimental.coordinator.ClusterCoordinator(strategy)


def per_worker_dataset_fn():
    return strategy.distribute_datasets_from_function(dataset_fn)


per_worker_dataset = coordinator.create_per_worker_dataset(per_worker_dataset_fn)
per_worker_iterator = iter(per_worker_dataset)

num_epoches = 4
steps_per_epoch = 5
for i in range(num_epoches):
    accuracy.reset_state()
    for _ in range(steps_per_epoch):
        coordinator.schedule(step_fn, args=(per_worker_iterator,))
    # Wait at epoch boundaries.
    coordinator.join()
    print(f"Finished epoch {i}, accuracy is {accuracy.result().numpy():f}.")

loss = coordinator.schedule(step_fn, args=(per_worker_iterator,))
print(f"Final loss is {loss.fetch():f}")

# --- Shards.

assert len(emb_layer.weights) == 2
assert emb_layer.weights[0].shape == (5, 20)
assert emb_layer.weights[1].shape == (4, 20)
assert emb_layer.weights[0].device == "/job:ps/replica:0/task:0/device:CPU:0"
assert emb_layer.weights[1].device == "/job:ps/replica:0/task:1/device:CPU:0"

# --- Evaluation, at the coordinator.

eval_dataset = (
    tf.data.Dataset.from_tensor_slices(feature_and_label_gen(num_examples=160))
    .batch(8)
    .map(preprocess)
)
eval_accuracy = keras.metrics.Accuracy()
for batch_data, labels in eval_dataset:
    pred = model(batch_data, training=False)
    actual_pred = tf.cast(tf.greater(pred, 0.5), tf.int64)
    eval_accuracy.update_state(labels, actual_pred)
print(f"Evaluation accuracy: {eval_accuracy.result():f}")
