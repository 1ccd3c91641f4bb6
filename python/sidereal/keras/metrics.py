"""Metrics over the batches of an epoch (keras.metrics).

    auc = keras.metrics.AUC()
    for labels, predictions in batches:
        auc.update_state(labels, predictions)
    print(float(auc.result()))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import errors
from .._dispatch import convert
from ..ops import array, math
from . import losses
from ._configs import Registry, constructor, own_parameters, parameter, snake_case
from ._confusion import (
    AUC,
    FalseNegatives,
    FalsePositives,
    Precision,
    Recall,
    TrueNegatives,
    TruePositives,
)
from ._inputs import (
    check_rank,
    check_shapes,
    count,
    floating,
    is_known,
    labels_for,
    pair,
    same_rank,
    weights_like,
)
from ._metric import Mean, MeanMetricWrapper, Metric, Sum
from .losses import (
    binary_crossentropy,
    binary_focal_crossentropy,
    categorical_crossentropy,
    categorical_focal_crossentropy,
    categorical_hinge,
    hinge,
    huber,
    kl_divergence,
    log_cosh,
    mean_absolute_error,
    mean_absolute_percentage_error,
    mean_squared_error,
    mean_squared_logarithmic_error,
    poisson,
    sparse_categorical_crossentropy,
    squared_hinge,
)

# --- Functions: a number for each example.


def _as_numbers(which: Any) -> Any:
    return math.cast(which, "float32")


def accuracy(y_true: Any, y_pred: Any) -> Any:
    """1 where both are equal, else 0, element by element."""
    y_pred = convert(y_pred)
    y_true, y_pred = same_rank(math.cast(convert(y_true), y_pred.dtype), y_pred)
    check_shapes("accuracy()", ("y_true", "y_pred"), y_true, y_pred, equal=False)
    return _as_numbers(math.equal(y_true, y_pred))


def binary_accuracy(y_true: Any, y_pred: Any, threshold: float = 0.5) -> Any:
    """1 where y_true is 1 and y_pred above the threshold, or 0 and not above, else 0, element by
    element."""
    y_true, y_pred = pair("binary_accuracy()", y_true, y_pred)
    is_above = math.cast(math.greater(y_pred, threshold), y_true.dtype)
    return _as_numbers(math.equal(y_true, is_above))


def categorical_accuracy(y_true: Any, y_pred: Any) -> Any:
    """1 where both are greatest for the same class, else 0."""
    y_true, y_pred = pair("categorical_accuracy()", y_true, y_pred, equal=True)
    return _as_numbers(math.equal(math.argmax(y_true, axis=-1), math.argmax(y_pred, axis=-1)))


def sparse_categorical_accuracy(y_true: Any, y_pred: Any) -> Any:
    """1 where y_pred is greatest for the class whose number is in y_true, else 0."""
    y_pred = floating(y_pred)
    labels = labels_for("sparse_categorical_accuracy()", y_true, y_pred)
    return _as_numbers(math.equal(labels, math.argmax(y_pred, axis=-1)))


def _in_top_k(labels: Any, y_pred: Any, k: int) -> Any:
    if len(y_pred.shape) == 2:
        return _as_numbers(math.in_top_k(labels, y_pred, k))
    flat = array.reshape(y_pred, [-1, y_pred.shape[-1]])
    found = math.in_top_k(array.reshape(labels, [-1]), flat, k)
    return _as_numbers(array.reshape(found, array.shape(labels)))


def top_k_categorical_accuracy(y_true: Any, y_pred: Any, k: int = 5) -> Any:
    """1 where the class that y_true is greatest for is among the k greatest of y_pred, else 0."""
    where = "top_k_categorical_accuracy()"
    y_true, y_pred = pair(where, y_true, y_pred, equal=True)
    check_rank(where, y_pred=y_pred)
    return _in_top_k(math.argmax(y_true, axis=-1), y_pred, k)


def sparse_top_k_categorical_accuracy(y_true: Any, y_pred: Any, k: int = 5) -> Any:
    """1 where the class whose number is in y_true is among the k greatest of y_pred, else 0."""
    y_pred = floating(y_pred)
    labels = labels_for("sparse_top_k_categorical_accuracy()", y_true, y_pred)
    return _in_top_k(labels, y_pred, k)


def _cosine(y_true: Any, y_pred: Any, axis: int = -1) -> Any:
    """The cosine of the angle between both along `axis`."""
    return math.negative(losses.cosine_similarity(y_true, y_pred, axis))


# --- Classes: means of functions.


def _class(
    class_name: str, function: Callable[..., Any], name: str = "", first: tuple[str, ...] = (),
    without: tuple[str, ...] = (), base: type[MeanMetricWrapper] = MeanMetricWrapper,
) -> type[MeanMetricWrapper]:  # fmt: skip
    """The class of a function: `name`, `dtype` and the function's arguments, those named `first`
    before the others, those in `without` left out."""
    own = own_parameters(function)
    parameters = [
        *(each for each in own if each.name in first),
        parameter("name", name or snake_case(class_name)),
        parameter("dtype", None),
        *(each for each in own if each.name not in (*first, *without)),
    ]

    def init(self: Any, arguments: dict[str, Any]) -> None:
        shared = [arguments.pop(key) for key in ("name", "dtype")]
        base.__init__(self, function, *shared, **arguments)
        vars(self).update(arguments)

    members = {
        "__init__": constructor(parameters, init),
        "__doc__": f"The mean of {function.__name__.strip('_')}(). {function.__doc__}",
        "__module__": __name__,
    }
    return type(class_name, (base,), members)


class _OfClasses(MeanMetricWrapper):
    """Base of those of class numbers, of which one may be ignored: with weights it has none, and
    without it counts as 0, as in Keras."""

    ignore_class: int | None

    def update_state(  # type: ignore[override]
        self, y_true: Any, y_pred: Any, sample_weight: Any = None
    ) -> None:
        if sample_weight is not None and self.ignore_class is not None:
            where, y_pred = f"metric '{self.name}'", floating(y_pred)
            labels = labels_for(where, y_true, y_pred)
            counts = math.cast(math.not_equal(labels, self.ignore_class), self._dtype)
            sample_weight = math.multiply(weights_like(where, sample_weight, counts), counts)
        super().update_state(y_true, y_pred, sample_weight)


Accuracy = _class("Accuracy", accuracy)
BinaryAccuracy = _class("BinaryAccuracy", binary_accuracy)
CategoricalAccuracy = _class("CategoricalAccuracy", categorical_accuracy)
SparseCategoricalAccuracy = _class("SparseCategoricalAccuracy", sparse_categorical_accuracy)
TopKCategoricalAccuracy = _class(
    "TopKCategoricalAccuracy", top_k_categorical_accuracy, first=("k",)
)
SparseTopKCategoricalAccuracy = _class(
    "SparseTopKCategoricalAccuracy", sparse_top_k_categorical_accuracy, first=("k",)
)
MeanSquaredError = _class("MeanSquaredError", mean_squared_error)
MeanAbsoluteError = _class("MeanAbsoluteError", mean_absolute_error)
MeanAbsolutePercentageError = _class("MeanAbsolutePercentageError", mean_absolute_percentage_error)
MeanSquaredLogarithmicError = _class("MeanSquaredLogarithmicError", mean_squared_logarithmic_error)
CosineSimilarity = _class("CosineSimilarity", _cosine)
LogCoshError = _class("LogCoshError", log_cosh, "logcosh")
Hinge = _class("Hinge", hinge)
SquaredHinge = _class("SquaredHinge", squared_hinge)
CategoricalHinge = _class("CategoricalHinge", categorical_hinge)
KLDivergence = _class("KLDivergence", kl_divergence, "kl_divergence")
Poisson = _class("Poisson", poisson)
BinaryCrossentropy = LogLoss = _class(
    "BinaryCrossentropy", binary_crossentropy, without=("axis",)
)
CategoricalCrossentropy = _class("CategoricalCrossentropy", categorical_crossentropy)
SparseCategoricalCrossentropy = _class(
    "SparseCategoricalCrossentropy", sparse_categorical_crossentropy, base=_OfClasses
)


class RootMeanSquaredError(Mean):
    """The root of the mean of (p - y)^2."""

    def __init__(self, name: str | None = "root_mean_squared_error", dtype: Any = None) -> None:
        super().__init__(name, dtype)

    def update_state(  # type: ignore[override]
        self, y_true: Any, y_pred: Any, sample_weight: Any = None
    ) -> None:
        y_true, y_pred = pair(f"metric '{self.name}'", y_true, y_pred)
        super().update_state(math.squared_difference(y_pred, y_true), sample_weight)

    def result(self) -> Any:
        return math.sqrt(super().result())


class R2Score(Metric):
    """The share of the variance of y[examples, outputs] that predictions account for: 1 less
    sum((y - p)^2) / sum((y - mean(y))^2).

    class_aggregation: of several outputs: "uniform_average", "variance_weighted_average", or None:
        one number for each.
    num_regressors: the number of features, for the adjusted score; 0: the plain one.
    """

    def __init__(
        self, class_aggregation: str | None = "uniform_average", num_regressors: int = 0,
        name: str | None = "r2_score", dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(dtype, name)
        allowed = ("uniform_average", "variance_weighted_average", None)
        if class_aggregation not in allowed:
            raise ValueError(
                f"metric '{self.name}': class_aggregation is {class_aggregation!r}; it must be one "
                f"of {', '.join(map(str, allowed))}"
            )
        if num_regressors < 0:
            raise ValueError(
                f"metric '{self.name}': num_regressors is {num_regressors}; it must be at least 0"
            )
        self.class_aggregation, self.num_regressors = class_aggregation, num_regressors
        self.num_samples = self.add_variable((), name="num_samples")

    def _build(self, outputs: int) -> None:
        for kept in ("squared_sum", "sum", "total_mse", "count"):
            setattr(self, kept, self.add_variable((outputs,), name=kept))

    squared_sum: Any
    sum: Any
    total_mse: Any
    count: Any

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        where = f"metric '{self.name}'"
        y_pred = floating(y_pred, self._dtype)
        y_true, y_pred = pair(where, y_true, y_pred, equal=True)
        if len(y_pred.shape) != 2 or not is_known(y_pred.shape[1]):
            raise errors.InvalidArgumentError(
                f"{where}: y_pred has a shape [examples, outputs]; it has {tuple(y_pred.shape)}"
            )
        if len(self._variables) == 1:
            self._build(y_pred.shape[1])
        weights = weights_like(where, sample_weight, y_true)

        def total(x: Any) -> Any:
            return math.reduce_sum(math.multiply(x, weights), axis=0)

        self.sum.assign_add(total(y_true))
        self.squared_sum.assign_add(total(math.square(y_true)))
        self.total_mse.assign_add(total(math.squared_difference(y_true, y_pred)))
        self.count.assign_add(math.reduce_sum(weights, axis=0))
        self.num_samples.assign_add(count(y_true, self._dtype))

    def result(self) -> Any:
        if len(self._variables) == 1:
            raise errors.FailedPreconditionError(
                f"metric '{self.name}': the number of outputs is known with the first update; call "
                "update_state() before result()"
            )
        mean = math.divide(self.sum, self.count)
        total = math.subtract(self.squared_sum, math.multiply(self.sum, mean))
        scores = math.subtract(1.0, math.divide(self.total_mse, total))
        scores = math.where(math.is_inf(scores), 0.0, scores)
        if self.class_aggregation == "uniform_average":
            scores = math.reduce_mean(scores)
        elif self.class_aggregation == "variance_weighted_average":
            weighted = math.reduce_sum(math.multiply(total, scores))
            scores = math.divide(weighted, math.reduce_sum(total))
        return self._adjusted(scores) if self.num_regressors else scores

    def _adjusted(self, score: Any) -> Any:
        n = self.num_samples.value()
        left = math.subtract(n, float(self.num_regressors + 1))
        return math.subtract(
            1.0, math.divide(math.multiply(math.subtract(1.0, score), math.subtract(n, 1.0)), left)
        )


_CLASSES = (
    AUC, Accuracy, BinaryAccuracy, BinaryCrossentropy, CategoricalAccuracy,
    CategoricalCrossentropy, CategoricalHinge, CosineSimilarity, FalseNegatives, FalsePositives,
    Hinge, KLDivergence, LogCoshError, Mean, MeanAbsoluteError, MeanAbsolutePercentageError,
    MeanMetricWrapper, MeanSquaredError, MeanSquaredLogarithmicError, Poisson, Precision, R2Score,
    Recall, RootMeanSquaredError, SparseCategoricalAccuracy, SparseCategoricalCrossentropy,
    SparseTopKCategoricalAccuracy, SquaredHinge, Sum, TopKCategoricalAccuracy, TrueNegatives,
    TruePositives,
)  # fmt: skip
_ALIASES = {
    "LogLoss": LogLoss, "log_loss": LogLoss, "bce": BinaryCrossentropy, "BCE": BinaryCrossentropy,
    "mse": MeanSquaredError, "MSE": MeanSquaredError, "mae": MeanAbsoluteError,
    "MAE": MeanAbsoluteError, "mape": MeanAbsolutePercentageError,
    "MAPE": MeanAbsolutePercentageError, "msle": MeanSquaredLogarithmicError,
    "MSLE": MeanSquaredLogarithmicError,
}  # fmt: skip
_registry = Registry("keras.metrics", _CLASSES, _ALIASES)
get, serialize, deserialize = _registry.get, _registry.serialize, _registry.deserialize

__all__ = [
    "AUC", "Accuracy", "BinaryAccuracy", "BinaryCrossentropy", "CategoricalAccuracy",
    "CategoricalCrossentropy", "CategoricalHinge", "CosineSimilarity", "FalseNegatives",
    "FalsePositives", "Hinge", "KLDivergence", "LogCoshError", "LogLoss", "Mean",
    "MeanAbsoluteError", "MeanAbsolutePercentageError", "MeanMetricWrapper", "MeanSquaredError",
    "MeanSquaredLogarithmicError", "Metric", "Poisson", "Precision", "R2Score", "Recall",
    "RootMeanSquaredError", "SparseCategoricalAccuracy", "SparseCategoricalCrossentropy",
    "SparseTopKCategoricalAccuracy", "SquaredHinge", "Sum", "TopKCategoricalAccuracy",
    "TrueNegatives", "TruePositives", "accuracy", "binary_accuracy", "binary_crossentropy",
    "binary_focal_crossentropy", "categorical_accuracy", "categorical_crossentropy",
    "categorical_focal_crossentropy", "categorical_hinge", "deserialize", "get", "hinge", "huber",
    "kl_divergence", "log_cosh", "mean_absolute_error", "mean_absolute_percentage_error",
    "mean_squared_error", "mean_squared_logarithmic_error", "poisson", "serialize",
    "sparse_categorical_accuracy", "sparse_categorical_crossentropy",
    "sparse_top_k_categorical_accuracy", "squared_hinge", "top_k_categorical_accuracy",
]  # fmt: skip
