"""What a Model minimizes, by name: losses of one or several outputs, each with its label."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from . import ops
from ._native import Output
from .errors import InvalidArgumentError
from .ops import nn

#: How a model's inputs are called that are no features.
LABEL, SAMPLE_WEIGHT, GROUP = "label", "sample_weight", "group"


def _flat(logit: Any) -> Any:
    return ops.array.reshape(logit, [-1])


def _of_classes(labels: Any, logits: Any) -> Any:
    return nn.sparse_softmax_cross_entropy_with_logits(ops.basic.cast(labels, "int64"), logits)


#: Losses of rows [b] of labels [b] and outputs, by Keras' names, and what is predicted.
_LOSSES: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any], Any]]] = {
    "binary_crossentropy": (
        lambda labels, x: nn.sigmoid_cross_entropy_with_logits(labels, _flat(x)), ops.math.sigmoid,
    ),
    "mse": (lambda labels, x: ops.math.squared_difference(_flat(x), labels), ops.basic.identity),
    "mae": (
        lambda labels, x: ops.math.abs(ops.math.subtract(_flat(x), labels)), ops.basic.identity,
    ),
    "sparse_categorical_crossentropy": (_of_classes, ops.math.softmax),
}  # fmt: skip
_PAIRS = "pairwise_logistic"


def names() -> list[str]:
    """The losses that compile() knows by name."""
    return [*_LOSSES, _PAIRS]


def objective(
    outputs: Any, losses: Any, loss_weights: Mapping[str, float] | None,
    column: Callable[[str], Output], known: Mapping[str, Output],
) -> tuple[Any, Any]:  # fmt: skip
    """(what is predicted, the loss) of an output, or of several by the names of their labels.

    column: makes the input of a label. known: the inputs that there are, by name.
    """
    by_name = dict(outputs) if isinstance(outputs, Mapping) else {LABEL: outputs}
    if isinstance(losses, Mapping) and set(losses) != set(by_name):
        raise InvalidArgumentError(
            f"compile(): there are losses of {', '.join(losses)}, and outputs of "
            f"{', '.join(by_name)}"
        )
    unknown = set(loss_weights or {}) - set(by_name)
    if unknown:
        raise InvalidArgumentError(
            f"compile(): loss_weights names {', '.join(sorted(unknown))}; outputs are "
            f"{', '.join(by_name)}"
        )
    total, predictions = None, []
    for name, output in by_name.items():
        loss = losses[name] if isinstance(losses, Mapping) else losses
        labels = known[name] if name in known else column(name)
        value, predicted = _one(name, loss, output, labels, known)
        value = ops.math.multiply(value, float((loss_weights or {}).get(name, 1.0)))
        total = value if total is None else ops.math.add(total, value)
        predictions.append(predicted)
    if len(predictions) == 1:
        return predictions[0], total
    rows = [
        ops.array.reshape(each, [-1, 1 if len(each.shape) == 1 else each.shape[1]])
        for each in predictions
    ]
    return ops.array.concat(rows, 1), total


def _one(
    name: str, loss: Any, output: Any, labels: Any, known: Mapping[str, Output]
) -> tuple[Any, Any]:
    """(the loss, what is predicted) of one output."""
    weight = known.get(SAMPLE_WEIGHT)
    if loss == _PAIRS:
        score = _flat(output)
        return nn.pairwise_logistic_loss(labels, score, known.get(GROUP), weight), score
    if callable(loss):
        rows, predict = loss, ops.basic.identity
    elif loss in _LOSSES:
        rows, predict = _LOSSES[loss]
    else:
        raise InvalidArgumentError(
            f"compile(): the loss of '{name}' is {loss!r}; it is one of {', '.join(names())}, or a "
            "function of labels and outputs"
        )
    found = rows(labels, output)
    if weight is not None:
        found = ops.math.multiply(found, weight)
    return ops.math.reduce_mean(found), predict(output)


__all__ = ["names", "objective"]
