"""The model and the data of the estimators beside this file: clicks by user, item and hour."""

import numpy as np

import sidereal.v1 as tf

USERS, ITEMS = 200, 100


def model_fn(features, labels, mode, params, config):
    """Embeddings of categories and the hour, in parts on all ps tasks, below dense layers."""
    fc = tf.feature_column
    user = fc.categorical_column_with_hash_bucket("user", 500)
    item = fc.categorical_column_with_identity("item", ITEMS)
    columns = [
        fc.embedding_column(user, params["dimension"]),
        fc.embedding_column(item, params["dimension"]),
        fc.bucketized_column(fc.numeric_column("hour"), [6.0, 12.0, 18.0]),
    ]
    partitioner = tf.fixed_size_partitioner(max(config.num_ps_replicas, 1))
    with tf.variable_scope("columns", partitioner=partitioner):
        net = tf.feature_column.input_layer(features, columns)
    for number, units in enumerate(params["hidden_units"]):
        net = tf.layers.dense(net, units, tf.nn.relu, name=f"hidden_{number}")
    logits = tf.layers.dense(net, 1, name="logits")
    probability = tf.sigmoid(logits)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, {"probability": probability})

    labels = tf.reshape(labels, [-1, 1])
    loss = tf.losses.sigmoid_cross_entropy(labels, logits)
    metrics = {
        "auc": tf.metrics.auc(labels, probability),
        "accuracy": tf.metrics.accuracy(labels, probability > 0.5),
    }
    optimizer = tf.train.AdagradOptimizer(params["learning_rate"])
    train_op = None
    if mode == tf.estimator.ModeKeys.TRAIN:
        train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, probability, loss, train_op, metrics)


def clicks(rows, seed):
    """Some users click more than others, on some items more than on others, and all at night."""
    rng = np.random.default_rng(seed)
    user, item = rng.integers(0, USERS, rows), rng.integers(0, ITEMS, rows)
    hour = rng.uniform(0, 24, rows).astype(np.float32)
    click = (np.sin(user) + np.cos(3 * item) + (hour > 18) > 0.2).astype(np.float32)
    return {"user": [f"u{n}" for n in user], "item": item, "hour": hour}, click


def train_input_fn(config):
    features, click = clicks(20_000, 1 + (config.global_id_in_cluster or 0))
    return tf.data.Dataset.from_tensor_slices((features, click)).shuffle(20_000).repeat().batch(128)


def eval_input_fn():
    return tf.data.Dataset.from_tensor_slices(clicks(5_000, 0)).batch(500)
