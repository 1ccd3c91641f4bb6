"""Losses over many classes, or items, of which each step sees a few, and over pairs of rows:
members of sidereal.nn."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import errors
from .._dispatch import apply, convert
from . import array, math, random
from .embedding import embedding_lookup
from .indexing import gather_nd

__all__ = [
    "compute_accidental_hits", "in_batch_softmax_loss", "nce_loss", "pairwise_logistic_loss",
    "sampled_softmax_loss",
]

#: What the logit of a candidate is lowered by that is no negative of a row.
_NOT_THERE = float(np.finfo(np.float32).min)


def compute_accidental_hits(
    true_classes: Any, sampled_candidates: Any, num_true: int, seed: int | None = None,
    name: str | None = None,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Which sampled candidates are true classes (tf.nn.compute_accidental_hits): (indices int32,
    the rows of `true_classes` [batch, num_true]; ids int64, the places in `sampled_candidates`;
    weights float32, each the lowest number)."""
    del seed
    hits = _hits(convert(true_classes), convert(sampled_candidates), num_true)
    found = apply("Where", (math.greater(hits, 0.0),), None, name=name)
    counts = gather_nd(hits, found)
    weights = math.add(math.multiply(counts, 0.0), _NOT_THERE)
    return math.cast(found[:, 0], "int32"), found[:, 1], weights


def _hits(true_classes: Any, sampled: Any, num_true: int) -> Any:
    """float32 [batch, num_sampled]: 1 where a candidate is one of a row's true classes."""
    true = array.reshape(math.cast(true_classes, "int64"), [-1, num_true, 1])
    same = math.equal(true, array.reshape(sampled, [1, 1, -1]))
    return math.cast(math.reduce_any(same, axis=1), "float32")


def _sampled_logits(
    weights: Any, biases: Any, labels: Any, inputs: Any, num_sampled: int, num_classes: int,
    num_true: int, sampled_values: Any, remove_accidental_hits: bool, seed: int | None,
) -> tuple[Any, Any]:  # fmt: skip
    """Logits [batch, num_true + num_sampled], less the logarithm of how often each class was to be
    expected, and their labels."""
    labels = math.cast(array.reshape(convert(labels), [-1, num_true]), "int64")
    if sampled_values is None:
        sampled_values = random.log_uniform_candidate_sampler(
            labels, num_true, num_sampled, True, num_classes, seed
        )
    sampled, true_expected, sampled_expected = map(convert, sampled_values)
    inputs = convert(inputs)
    flat = array.reshape(labels, [-1])
    both = array.concat([flat, math.cast(sampled, "int64")], 0)
    rows, offsets = embedding_lookup(weights, both), embedding_lookup(biases, both)
    count = array.shape(flat)[0]
    width = rows.shape[-1] if rows.shape is not None else -1
    true_rows = array.reshape(rows[:count], [-1, num_true, width])
    true_logits = math.reduce_sum(
        math.multiply(true_rows, array.expand_dims(inputs, 1)), axis=-1
    )
    true_logits = math.add(true_logits, array.reshape(offsets[:count], [-1, num_true]))
    logits = apply("MatMul", (inputs, rows[count:]), {"transpose_b": True})
    logits = math.add(logits, array.reshape(offsets[count:], [1, -1]))
    if remove_accidental_hits:
        hits = _hits(labels, math.cast(sampled, "int64"), num_true)
        logits = math.add(logits, math.multiply(hits, _NOT_THERE))
    true_logits = math.subtract(true_logits, math.log(true_expected))
    logits = math.subtract(logits, math.log(array.reshape(sampled_expected, [1, -1])))
    ones = math.multiply(array.ones_like(true_logits), 1.0 / num_true)
    return (
        array.concat([true_logits, logits], 1),
        array.concat([ones, array.zeros_like(logits)], 1),
    )


def sampled_softmax_loss(
    weights: Any, biases: Any, labels: Any, inputs: Any, num_sampled: int, num_classes: int,
    num_true: int = 1, sampled_values: Any = None, remove_accidental_hits: bool = True,
    seed: int | None = None, name: str | None = None,
) -> Any:  # fmt: skip
    """The cross entropy of each row [batch] over its true classes and `num_sampled` others, with
    logits corrected by how often classes are sampled (tf.nn.sampled_softmax_loss): for training;
    to predict, all logits are computed.

    weights: [num_classes, dim], a variable or a list of its parts; biases [num_classes]. labels
    int64 [batch, num_true]; inputs [batch, dim]. sampled_values: what a candidate sampler gave;
    None: log_uniform_candidate_sampler(), for classes in the order of their popularity.
    remove_accidental_hits: sampled classes that are true ones of a row do not count there."""
    logits, targets = _sampled_logits(
        weights, biases, labels, inputs, num_sampled, num_classes, num_true, sampled_values,
        remove_accidental_hits, seed,
    )  # fmt: skip
    targets = apply("StopGradient", (targets,), None)
    return apply("SoftmaxCrossEntropyWithLogits", (logits, targets), None, name=name)[0]


def nce_loss(
    weights: Any, biases: Any, labels: Any, inputs: Any, num_sampled: int, num_classes: int,
    num_true: int = 1, sampled_values: Any = None, remove_accidental_hits: bool = False,
    name: str | None = None,
) -> Any:  # fmt: skip
    """Noise-contrastive estimation (tf.nn.nce_loss): the sum for each row [batch] of the log losses
    of its true classes and of the sampled ones. Arguments: see sampled_softmax_loss()."""
    logits, targets = _sampled_logits(
        weights, biases, labels, inputs, num_sampled, num_classes, num_true, sampled_values,
        remove_accidental_hits, None,
    )  # fmt: skip
    losses = apply("SigmoidCrossEntropyWithLogits", (logits, targets), None)
    return apply("ReduceSum", (losses,), {"axes": [1]}, name=name)


def in_batch_softmax_loss(
    queries: Any, candidates: Any, candidate_sampling_probability: Any = None,
    candidate_ids: Any = None, sample_weight: Any = None, temperature: float = 1.0,
    name: str | None = None,
) -> Any:  # fmt: skip
    """The cross entropy of each row [batch] over the candidates of all rows of the batch, of which
    its own is true (Yi et al., 2019), as of two towers `queries` and `candidates` [batch, dim].

    candidate_sampling_probability [batch]: how often each candidate is in a batch, of popular ones
        more, by whose logarithm its logit is lowered. candidate_ids [batch]: the candidate of
        another row that is the same one does not count. sample_weight [batch] multiplies."""
    if temperature <= 0:
        raise errors.InvalidArgumentError(f"temperature is {temperature}; it must be positive")
    queries, candidates = convert(queries), convert(candidates)
    logits = apply("MatMul", (queries, candidates), {"transpose_b": True})
    logits = math.multiply(logits, 1.0 / temperature)
    if candidate_sampling_probability is not None:
        share = array.reshape(convert(candidate_sampling_probability), [1, -1])
        share = math.cast(share, "float32")
        logits = math.subtract(logits, math.log(math.maximum(share, 1e-6)))
    own = array.range(convert(0), array.shape(queries)[0], convert(1))
    if candidate_ids is not None:
        ids = convert(candidate_ids)
        same = math.equal(array.reshape(ids, [-1, 1]), array.reshape(ids, [1, -1]))
        other = math.not_equal(array.reshape(own, [-1, 1]), array.reshape(own, [1, -1]))
        hits = math.cast(math.logical_and(same, other), "float32")
        logits = math.add(logits, math.multiply(hits, _NOT_THERE))
    losses = apply("SparseSoftmaxCrossEntropyWithLogits", (logits, own), None, name=name)[0]
    return losses if sample_weight is None else math.multiply(losses, sample_weight)


def pairwise_logistic_loss(
    labels: Any, logits: Any, groups: Any = None, weights: Any = None, name: str | None = None
) -> Any:
    """The mean of log(1 + exp(b - a)) over all pairs of rows of which the score a has the higher
    label and b the lower one (RankNet, Burges et al., 2005), a scalar; 0 without pairs.

    labels, logits: [batch]. groups [batch]: only rows of one group are compared, as those of one
    query. weights [batch]: what pairs count, by the row of the higher label."""
    labels, scores = convert(labels), array.reshape(convert(logits), [-1])
    pairs = math.greater(*_rows_and_columns(labels))
    if groups is not None:
        pairs = math.logical_and(pairs, math.equal(*_rows_and_columns(convert(groups))))
    counts = math.cast(pairs, "float32")
    number = math.maximum(math.reduce_sum(counts), 1.0)
    if weights is not None:
        counts = math.multiply(counts, array.reshape(convert(weights), [-1, 1]))
    higher, lower = _rows_and_columns(scores)
    losses = math.multiply(math.softplus(math.subtract(lower, higher)), counts)
    return math.divide(math.reduce_sum(losses), number, name=name)


def _rows_and_columns(x: Any) -> tuple[Any, Any]:
    return array.reshape(x, [-1, 1]), array.reshape(x, [1, -1])
