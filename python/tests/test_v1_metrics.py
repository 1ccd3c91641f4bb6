"""Metrics, losses and layers of graphs, against those of TensorFlow."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import sidereal as sr
import sidereal.v1 as tf

RNG = np.random.default_rng(5)
LABELS = (RNG.random((3, 8)) < 0.4).astype(np.float32)
SCORES = np.clip(0.6 * LABELS + 0.7 * RNG.random((3, 8)), 0, 1).astype(np.float32)
WEIGHTS = np.round(2 * RNG.random((3, 8)), 1).astype(np.float32)
CLASSES = RNG.integers(0, 3, (3, 8))


def of_tensorflow() -> Any:
    return pytest.importorskip("tensorflow", reason="TensorFlow is not installed").compat.v1


#: Metrics by name: functions of the module, labels, predictions and weights.
METRICS: dict[str, Any] = {
    "mean": lambda m, y, p, w: m.mean(p, w),
    "accuracy": lambda m, y, p, w: m.accuracy(y, p > 0.5, w),
    "mean_absolute_error": lambda m, y, p, w: m.mean_absolute_error(y, p, w),
    "mean_squared_error": lambda m, y, p, w: m.mean_squared_error(y, p, w),
    "root_mean_squared_error": lambda m, y, p, w: m.root_mean_squared_error(y, p, w),
    "precision": lambda m, y, p, w: m.precision(y, p > 0.5, w),
    "recall": lambda m, y, p, w: m.recall(y, p > 0.5, w),
    "true_positives": lambda m, y, p, w: m.true_positives(y, p > 0.5, w),
    "false_positives": lambda m, y, p, w: m.false_positives(y, p > 0.5, w),
    "true_negatives": lambda m, y, p, w: m.true_negatives(y, p > 0.5, w),
    "false_negatives": lambda m, y, p, w: m.false_negatives(y, p > 0.5, w),
    "precision_at_thresholds": lambda m, y, p, w: m.precision_at_thresholds(y, p, [0.2, 0.7], w),
    "recall_at_thresholds": lambda m, y, p, w: m.recall_at_thresholds(y, p, [0.2, 0.7], w),
    "auc": lambda m, y, p, w: m.auc(y, p, w),
    "auc of few": lambda m, y, p, w: m.auc(y, p, w, num_thresholds=20, summation_method="minoring"),
    "auc of PR": lambda m, y, p, w: m.auc(y, p, w, curve="PR", summation_method="majoring"),
    "auc of PR, careful": lambda m, y, p, w: m.auc(
        y, p, w, curve="PR", summation_method="careful_interpolation"
    ),
}


def measured(module: Any, name: str, weighted: bool) -> Any:
    """Names of the variables of a metric, and (update, value) after each of three batches."""
    graph = module.Graph()
    with graph.as_default():
        label = module.placeholder(module.float32, [None])
        score = module.placeholder(module.float32, [None])
        weight = module.placeholder(module.float32, [None])
        made = METRICS[name](module.metrics, label, score, weight if weighted else None)
        found = []
        with module.Session(graph=graph) as session:
            session.run(module.local_variables_initializer())
            for y, p, w in zip(LABELS, SCORES, WEIGHTS):
                update = session.run(made[1], {label: y, score: p, weight: w})
                found.append((update, session.run(made[0])))
        return sorted(each.name for each in module.local_variables()), found


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", METRICS)
def test_metrics_are_those_of_tensorflow(name: str, weighted: bool) -> None:
    theirs_module = of_tensorflow()
    ours, theirs = measured(tf, name, weighted), measured(theirs_module, name, weighted)
    if "_positives" not in name and "_negatives" not in name:
        assert ours[0] == theirs[0]
    np.testing.assert_allclose(ours[1], theirs[1], rtol=2e-5, atol=1e-6)


@pytest.mark.usefixtures("fresh_graph")
def test_metrics_go_to_collections_and_know_shapes() -> None:
    value, update = tf.metrics.accuracy(
        tf.constant([[1], [2]]), tf.constant([1, 3]), metrics_collections="values",
        updates_collections=["updates"], name="right",
    )  # fmt: skip
    assert tf.get_collection("values") == [value]
    assert tf.get_collection("updates") == [update]
    assert [each.name for each in tf.local_variables()] == ["right/total:0", "right/count:0"]
    assert tf.get_collection(tf.GraphKeys.METRIC_VARIABLES) == tf.local_variables()
    with tf.Session() as session:
        session.run(tf.local_variables_initializer())
        assert session.run(value) == 0
        assert session.run(update) == 0.5
    with pytest.raises(ValueError, match="curve must be either ROC or PR"):
        tf.metrics.auc([1.0], [1.0], curve="X")
    with pytest.raises(ValueError, match="Invalid summation_method"):
        tf.metrics.auc([1.0], [1.0], summation_method="X")


LOSSES: dict[str, Any] = {
    "sigmoid": lambda m, w, r: m.sigmoid_cross_entropy(LABELS, 3 * SCORES - 1, w, reduction=r),
    "smooth": lambda m, w, r: m.sigmoid_cross_entropy(LABELS, SCORES, w, 0.2, reduction=r),
    "softmax": lambda m, w, r: m.softmax_cross_entropy(LABELS, SCORES, w[:, 0], reduction=r),
    "sparse": lambda m, w, r: m.sparse_softmax_cross_entropy(
        CLASSES[0][:3], SCORES, w[:, 0], reduction=r
    ),
    "squares": lambda m, w, r: m.mean_squared_error(LABELS, SCORES, w, reduction=r),
    "differences": lambda m, w, r: m.absolute_difference(LABELS, SCORES, w[:, :1], reduction=r),
    "log": lambda m, w, r: m.log_loss(LABELS, SCORES, w, reduction=r),
}


@pytest.mark.parametrize("reduction", tf.losses.Reduction.all())
@pytest.mark.parametrize("name", LOSSES)
def test_losses_are_those_of_tensorflow(name: str, reduction: str) -> None:
    theirs_module = of_tensorflow()
    weights = WEIGHTS * (WEIGHTS > 0.5)
    found = []
    for module in (tf, theirs_module):
        with module.Graph().as_default(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = LOSSES[name](module.losses, weights, reduction)
            assert [each.name for each in module.losses.get_losses()] == [made.name]
            total = module.losses.get_total_loss() if reduction != "none" else made
            with module.Session() as session:
                found.append(session.run(total))
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("fresh_graph")
def test_losses_and_those_of_regularizers() -> None:
    with pytest.raises(ValueError, match="Invalid Reduction Key"):
        tf.losses.mean_squared_error([1.0], [2.0], reduction="mean")
    with pytest.raises(ValueError, match="no loss has been collected"):
        tf.losses.get_total_loss()
    tf.losses.mean_squared_error([1.0], [3.0])
    tf.losses.mean_squared_error([1.0], [9.0], loss_collection=None)
    tf.get_variable(
        "w", [2], initializer=tf.ones_initializer(), regularizer=lambda w: 0.5 * tf.reduce_sum(w)
    )
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(tf.losses.get_total_loss()) == 5
        assert session.run(tf.losses.get_total_loss(add_regularization_losses=False)) == 4
        assert session.run(tf.losses.get_regularization_loss()) == 1


@pytest.mark.usefixtures("fresh_graph")
def test_layers() -> None:
    x = tf.constant(np.arange(6, dtype="f").reshape(2, 3))
    made = tf.layers.dense(x, 4, tf.nn.relu, kernel_initializer=tf.ones_initializer())
    again = tf.layers.dense(x, 2, use_bias=False, name="other")
    with tf.variable_scope("", reuse=True):
        shared = tf.layers.dense(x, 2, use_bias=False, name="other")
    flat = tf.layers.flatten(tf.constant(np.zeros((2, 3, 4), "f")))
    kept = tf.layers.dropout(x, 0.5)
    dropped = tf.layers.dropout(tf.constant(np.ones((50, 50), "f")), 0.5, training=True)
    assert [each.name for each in tf.trainable_variables()] == [
        "dense/kernel:0", "dense/bias:0", "other/kernel:0",
    ]  # fmt: skip
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(made).tolist() == [[3.0] * 4, [12.0] * 4]
        np.testing.assert_array_equal(session.run(again), session.run(shared))
        assert session.run(flat).shape == (2, 12)
        assert session.run(kept).tolist() == session.run(x).tolist()
        assert sorted(set(session.run(dropped).ravel().tolist())) == [0.0, 2.0]
    with pytest.raises(ValueError, match="last dimension"):
        tf.layers.dense(tf.placeholder(tf.float32, [None, None]), 3)
    with pytest.raises(sr.errors.UnimplementedError):
        tf.layers.dropout(x, noise_shape=[2, 1])


#: Of normalization: rows of two features.
_ROWS = np.array([[1.0, 2.0], [3.0, -2.0], [5.0, 3.0], [-1.0, 0.0]], "f")


@pytest.mark.usefixtures("fresh_graph")
@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("how", ["known", "fed"])
def test_batch_normalization(axis: int, how: str) -> None:
    rows = _ROWS if axis == -1 else np.stack([_ROWS.T, 2 * _ROWS.T + 1], 0)
    over = tuple(i for i in range(rows.ndim) if i != axis % rows.ndim)
    x = tf.placeholder(tf.float32, [None, *rows.shape[1:]])
    flag = tf.placeholder(tf.bool, [])

    def layer(training: object) -> object:
        with tf.variable_scope("", reuse=tf.AUTO_REUSE):
            return tf.layers.batch_normalization(
                x, axis, momentum=0.9, epsilon=0.01, training=training, name="norm",
                gamma_initializer=tf.constant_initializer(2.0),
                beta_initializer=tf.constant_initializer(0.5),
            )  # fmt: skip

    if how == "known":
        learns, updates = layer(True), tf.get_collection(tf.GraphKeys.UPDATE_OPS)
        serves = layer(False)
    else:
        learns = serves = layer(flag)
        updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
    assert len(tf.get_collection(tf.GraphKeys.UPDATE_OPS)) == len(updates) == 2
    assert [each.name for each in tf.trainable_variables()] == ["norm/gamma:0", "norm/beta:0"]
    names = [each.name for each in tf.global_variables()]
    assert names[2:] == ["norm/moving_mean:0", "norm/moving_variance:0"]
    shape = [1, -1, 1] if axis == 1 else [1, -1]
    mean, variance = rows.mean(over), rows.var(over)
    moved = 0.1 * mean, 0.9 + 0.1 * variance

    def normal(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        centered = rows - mean.reshape(shape)
        return 2 * centered / np.sqrt(variance.reshape(shape) + 0.01) + 0.5

    feeds = [{x: rows, flag: value} for value in (False, True)]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        first = session.run(serves, feeds[0])
        np.testing.assert_allclose(first, normal(0 * mean, 0 * mean + 1), rtol=1e-5)
        made = session.run([learns, *updates], feeds[1])[0]
        np.testing.assert_allclose(made, normal(mean, variance), rtol=1e-4, atol=1e-5)
        if how == "fed":
            session.run(updates, feeds[0])  # Nothing moves.
        found = session.run(tf.global_variables()[2:])
        np.testing.assert_allclose(found[0], moved[0], rtol=1e-5)
        np.testing.assert_allclose(found[1], moved[1], rtol=1e-5)
        np.testing.assert_allclose(session.run(serves, feeds[0]), normal(*moved), rtol=1e-4)


@pytest.mark.usefixtures("fresh_graph")
def test_batch_normalization_without_scales() -> None:
    x = tf.constant(_ROWS)
    made = tf.layers.batch_normalization(x, center=False, scale=False, training=True)
    assert tf.trainable_variables() == []
    gradient = tf.gradients(tf.reduce_sum(made * made), [x])[0]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        # Squares of what is normalized have one sum, whatever the inputs are.
        np.testing.assert_allclose(session.run(gradient), 0 * _ROWS, atol=1e-2)
    with pytest.raises(ValueError, match="dimension 1 is known"):
        tf.layers.batch_normalization(tf.placeholder(tf.float32, [None, None]), 1)
