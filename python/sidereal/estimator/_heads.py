"""Heads: what models predict, lose and measure, from logits."""

from __future__ import annotations

import math as _math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import v1 as _v1
from .._dispatch import convert
from ..feature_column._base import Features
from ..feature_column._numeric import NumericColumn
from ..lookup import KeyValueTensorInitializer, StaticHashTable
from ..ops import array, math, nn, strings
from ..ops.debugging import checked
from ..ops.indexing import gather
from ..v1.graph import building
from ._spec import (
    ClassificationOutput,
    EstimatorSpec,
    ExportOutput,
    ModeKeys,
    PredictOutput,
    RegressionOutput,
)

#: Makes what a step of training runs of the loss.
TrainOp = Callable[[Any], Any]


class Head:
    """Makes the EstimatorSpec of logits [batch, logits_dimension]."""

    #: How many numbers a prediction is made of.
    logits_dimension: int

    def __init__(self, weight_column: Any, loss_reduction: str) -> None:
        if weight_column is not None and not isinstance(weight_column, (str, NumericColumn)):
            raise TypeError(
                f"weight_column must be a key or a numeric_column, given: {weight_column!r}"
            )
        _v1.losses.Reduction.validate(loss_reduction)
        if loss_reduction == _v1.losses.Reduction.NONE:
            raise ValueError("loss_reduction must make one number of the losses, not 'none'")
        self._weight_column, self._reduction = weight_column, loss_reduction

    def spec(
        self, features: Any, labels: Any, mode: str, logits: Any, train_op: TrainOp
    ) -> EstimatorSpec:
        """The operations of a mode."""
        with building():
            predictions = self._predictions(logits)
            if mode == ModeKeys.PREDICT:
                outputs = self._exports(logits, predictions)
                return EstimatorSpec(mode, predictions, export_outputs=outputs)
            if labels is None:
                raise ValueError(
                    "You must provide a labels Tensor. Given: None. Suggested troubleshooting "
                    "steps: Check that your input_fn returns (features, labels)."
                )
            labels = self._labels(labels)
            weights = self._weights(features)
            losses = self._losses(labels, logits)
            loss = _v1.losses.compute_weighted_loss(
                losses, 1.0 if weights is None else weights, reduction=self._reduction,
                loss_collection=None,
            )  # fmt: skip
            penalties = _v1.losses.get_regularization_losses()
            total = math.add_n([loss, *penalties]) if penalties else loss
            _v1.losses.add_loss(total)
            if mode == ModeKeys.TRAIN:
                return EstimatorSpec(mode, predictions, total, train_op(total))
            metrics = self._metrics(labels, logits, predictions, losses, weights)
            if penalties:
                metrics["regularization_loss"] = _v1.metrics.mean(math.add_n(penalties))
            return EstimatorSpec(mode, predictions, total, eval_metric_ops=metrics)

    def _weights(self, features: Any) -> Any:
        column = self._weight_column
        if column is None:
            return None
        given = Features(features)
        found = given.get(column)
        return math.cast(found, "float32")

    def _predictions(self, logits: Any) -> dict[str, Any]:
        raise NotImplementedError

    def _exports(self, logits: Any, predictions: Mapping[str, Any]) -> dict[str, ExportOutput]:
        raise NotImplementedError

    def _labels(self, labels: Any) -> Any:
        raise NotImplementedError

    def _losses(self, labels: Any, logits: Any) -> Any:
        """Of each example, [batch, ...]."""
        raise NotImplementedError

    def _metrics(
        self, labels: Any, logits: Any, predictions: Mapping[str, Any], losses: Any, weights: Any
    ) -> dict[str, Any]:
        raise NotImplementedError


def _as_rows(labels: Any, width: int) -> Any:
    """Labels [batch] or [batch, width] as the latter."""
    if isinstance(labels, Mapping):
        raise ValueError(f"labels must be one tensor, not a dict of {', '.join(labels)}")
    labels = convert(labels)
    if labels.shape is None:
        return array.reshape(labels, [-1, width])
    if len(labels.shape) == 1:
        labels = array.expand_dims(labels, -1)
    if len(labels.shape) != 2 or labels.shape[1] not in (width, -1):
        raise ValueError(
            f"Mismatched label shape. Expected labels dimension={width}. Received "
            f"{tuple(labels.shape)}. Suggested fix: check your n_classes argument to the estimator "
            "and/or the shape of your label."
        )
    return labels


class _Classes(Head):
    """What heads of classes share."""

    def __init__(
        self, n_classes: int, weight_column: Any, label_vocabulary: Sequence[str] | None,
        loss_reduction: str,
    ) -> None:  # fmt: skip
        super().__init__(weight_column, loss_reduction)
        if label_vocabulary is not None:
            names = list(label_vocabulary)
            if len(names) != n_classes:
                raise ValueError(
                    f"label_vocabulary has {len(names)} labels for {n_classes} classes"
                )
            label_vocabulary = names
        self._n_classes, self._vocabulary = n_classes, label_vocabulary

    def _ids(self, labels: Any) -> Any:
        """The numbers of classes, [batch, 1]."""
        labels = _as_rows(labels, 1)
        if self._vocabulary is not None:
            if labels.dtype.name != "string":
                raise ValueError(
                    f"Labels dtype should be string, as there is a label_vocabulary; it is "
                    f"{labels.dtype}"
                )
            table = StaticHashTable(
                KeyValueTensorInitializer(
                    self._vocabulary, list(range(self._n_classes)), value_dtype="int64"
                ),
                -1,
            )
            ids = table.lookup(labels)
            message = "a label is not in label_vocabulary; numbers of labels, -1 for others, are"
        else:
            if labels.dtype.kind not in "iufb":
                raise ValueError(
                    f"Labels dtype should be a number, not {labels.dtype}; give a label_vocabulary "
                    "for strings"
                )
            ids = math.cast(labels, "int64")
            message = f"labels must be from 0 to {self._n_classes - 1}; they are"
        fits = math.logical_and(math.greater_equal(ids, 0), math.less(ids, self._n_classes))
        return checked(ids, math.reduce_all(fits), message, ids)

    def _names(self, ids: Any) -> Any:
        """The labels of classes, as text."""
        if self._vocabulary is None:
            return strings.as_string(ids)
        return gather(convert(self._vocabulary, "string"), ids)

    def _of_classes(self, probabilities: Any, class_ids: Any) -> dict[str, Any]:
        """What predictions of classes have in any case."""
        rows = array.shape(probabilities)[:1]
        every = array.expand_dims(array.range(0, self._n_classes, 1), 0)
        all_ids = array.tile(every, array.concat([rows, convert([1], rows.dtype)], 0))
        return {
            "probabilities": probabilities, "class_ids": class_ids,
            "classes": self._names(class_ids), "all_class_ids": all_ids,
            "all_classes": self._names(all_ids),
        }  # fmt: skip

    def _exports(self, logits: Any, predictions: Mapping[str, Any]) -> dict[str, ExportOutput]:
        classes = ClassificationOutput(
            scores=predictions["probabilities"], classes=predictions["all_classes"]
        )
        return {
            "serving_default": classes, "classification": classes,
            "predict": PredictOutput(dict(predictions)),
        }  # fmt: skip


class BinaryHead(_Classes):
    """Two classes, by the sigmoid of one logit."""

    logits_dimension = 1

    def __init__(
        self, weight_column: Any = None, label_vocabulary: Any = None,
        loss_reduction: str = "weighted_sum",
    ) -> None:  # fmt: skip
        super().__init__(2, weight_column, label_vocabulary, loss_reduction)

    def _predictions(self, logits: Any) -> dict[str, Any]:
        logistic = math.sigmoid(logits, name="logistic")
        both = array.concat([array.zeros_like(logits), logits], 1)
        ids = array.expand_dims(math.argmax(both, axis=-1), -1)
        return {
            "logits": logits, "logistic": logistic, **self._of_classes(nn.softmax(both), ids)
        }  # fmt: skip

    def _exports(self, logits: Any, predictions: Mapping[str, Any]) -> dict[str, ExportOutput]:
        regression = RegressionOutput(predictions["logistic"])
        return {**super()._exports(logits, predictions), "regression": regression}

    def _labels(self, labels: Any) -> Any:
        return math.cast(self._ids(labels), "float32")

    def _losses(self, labels: Any, logits: Any) -> Any:
        return nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)

    def _metrics(
        self, labels: Any, logits: Any, predictions: Mapping[str, Any], losses: Any, weights: Any
    ) -> dict[str, Any]:
        m, logistic = _v1.metrics, predictions["logistic"]
        ids = predictions["class_ids"]
        mean, update = m.mean(labels, weights, name="label/mean")
        baseline = [math.maximum(each, math.subtract(1.0, each)) for each in (mean, update)]
        return {
            "average_loss": m.mean(losses, weights, name="average_loss"),
            "accuracy": m.accuracy(labels, ids, weights, name="accuracy"),
            "precision": m.precision(labels, ids, weights, name="precision"),
            "recall": m.recall(labels, ids, weights, name="recall"),
            "prediction/mean": m.mean(logistic, weights, name="prediction/mean"),
            "label/mean": (mean, update),
            "accuracy_baseline": (baseline[0], baseline[1]),
            "auc": m.auc(labels, logistic, weights, name="auc"),
            "auc_precision_recall": m.auc(
                labels, logistic, weights, curve="PR", name="auc_precision_recall",
                summation_method="careful_interpolation",
            ),
        }  # fmt: skip


class MultiClassHead(_Classes):
    """Three classes or more, by a softmax."""

    def __init__(
        self, n_classes: int, weight_column: Any = None, label_vocabulary: Any = None,
        loss_reduction: str = "weighted_sum",
    ) -> None:  # fmt: skip
        super().__init__(n_classes, weight_column, label_vocabulary, loss_reduction)
        self.logits_dimension = n_classes

    def _predictions(self, logits: Any) -> dict[str, Any]:
        ids = array.expand_dims(math.argmax(logits, axis=-1), -1)
        return {"logits": logits, **self._of_classes(nn.softmax(logits), ids)}

    def _labels(self, labels: Any) -> Any:
        return self._ids(labels)

    def _losses(self, labels: Any, logits: Any) -> Any:
        made = nn.sparse_softmax_cross_entropy_with_logits(
            labels=array.squeeze(labels, [-1]), logits=logits
        )
        return array.expand_dims(made, -1)

    def _metrics(
        self, labels: Any, logits: Any, predictions: Mapping[str, Any], losses: Any, weights: Any
    ) -> dict[str, Any]:
        m = _v1.metrics
        return {
            "average_loss": m.mean(losses, weights, name="average_loss"),
            "accuracy": m.accuracy(labels, predictions["class_ids"], weights, name="accuracy"),
        }


class RegressionHead(Head):
    """Numbers, by the squares of differences."""

    def __init__(
        self, label_dimension: int = 1, weight_column: Any = None,
        loss_reduction: str = "weighted_sum",
    ) -> None:  # fmt: skip
        super().__init__(weight_column, loss_reduction)
        if label_dimension < 1:
            raise ValueError(f"Invalid label_dimension {label_dimension}.")
        self.logits_dimension = label_dimension

    def _predictions(self, logits: Any) -> dict[str, Any]:
        return {"predictions": logits}

    def _exports(self, logits: Any, predictions: Mapping[str, Any]) -> dict[str, ExportOutput]:
        made = RegressionOutput(logits)
        return {
            "serving_default": made, "regression": made,
            "predict": PredictOutput(dict(predictions)),
        }  # fmt: skip

    def _labels(self, labels: Any) -> Any:
        return math.cast(_as_rows(labels, self.logits_dimension), "float32")

    def _losses(self, labels: Any, logits: Any) -> Any:
        return math.square(math.subtract(logits, labels))

    def _metrics(
        self, labels: Any, logits: Any, predictions: Mapping[str, Any], losses: Any, weights: Any
    ) -> dict[str, Any]:
        m = _v1.metrics
        return {
            "average_loss": m.mean(losses, weights, name="average_loss"),
            "prediction/mean": m.mean(logits, weights, name="prediction/mean"),
            "label/mean": m.mean(labels, weights, name="label/mean"),
        }


def head_of_classes(
    n_classes: int, weight_column: Any, label_vocabulary: Any, loss_reduction: str
) -> Head:
    """The head of a classifier."""
    if n_classes < 2:
        raise ValueError(f"n_classes must be at least 2, given: {n_classes}")
    if n_classes == 2:
        return BinaryHead(weight_column, label_vocabulary, loss_reduction)
    return MultiClassHead(n_classes, weight_column, label_vocabulary, loss_reduction)


#: Optimizers by the names that canned models take.
_OPTIMIZERS = {
    "Adagrad": "AdagradOptimizer", "Adam": "AdamOptimizer", "Ftrl": "FtrlOptimizer",
    "RMSProp": "RMSPropOptimizer", "SGD": "GradientDescentOptimizer",
}  # fmt: skip


def optimizer_of(given: Any, learning_rate: float) -> Any:
    """An optimizer by name, as it is, or as a function makes it."""
    if isinstance(given, str):
        if given not in _OPTIMIZERS:
            raise ValueError(
                f"Unsupported optimizer name: {given}. Supported names are: "
                f"{', '.join(sorted(_OPTIMIZERS))}"
            )
        return getattr(_v1.train, _OPTIMIZERS[given])(learning_rate)
    if callable(given):
        given = given()
    if not isinstance(given, _v1.train.Optimizer):
        raise ValueError(f"The given object is not an Optimizer instance. Given: {given!r}")
    return given


def rate_for(columns: Sequence[Any], most: float) -> float:
    """The learning rate of a linear model."""
    return min(most, 1.0 / _math.sqrt(len(columns)))
