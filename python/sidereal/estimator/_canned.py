"""Models that are there: linear, deep, and both (tf.estimator.LinearClassifier and the like)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import v1 as _v1
from ..feature_column._base import checked_columns
from ..v1.graph import GraphKeys
from ._estimator import Estimator
from ._heads import Head, RegressionHead, head_of_classes, optimizer_of, rate_for
from ._run_config import RunConfig
from ._spec import EstimatorSpec, ModeKeys

#: Tables are cut into parts of at least so many bytes.
_MIN_SLICE = 64 << 20
#: The highest learning rates, where none is given.
_LINEAR_RATE, _LINEAR_RATE_BESIDE, _DNN_RATE = 0.2, 0.005, 0.05
#: How much of the moving mean and variance of a layer stays in a step.
_BATCH_NORM_MOMENTUM = 0.999


def _partitioner(config: RunConfig, min_slice: int) -> Any:
    """Cuts what is large into a part for each ps."""
    if config.num_ps_replicas == 0:
        return None
    return _v1.min_max_variable_partitioner(
        max_partitions=config.num_ps_replicas, min_slice_size=min_slice
    )


def _linear_logits(
    features: Any, columns: Sequence[Any], units: int, combiner: str, partitioner: Any
) -> Any:
    with _v1.variable_scope("linear", partitioner=partitioner):
        return _v1.feature_column.linear_model(features, columns, units, combiner)


class _Deep:
    """The layers of a deep model."""

    def __init__(
        self, hidden_units: Sequence[int], columns: Any, activation_fn: Any, dropout: float | None,
        batch_norm: bool,
    ) -> None:  # fmt: skip
        self.columns = checked_columns(columns)
        self._units = [int(units) for units in hidden_units]
        if any(units < 1 for units in self._units):
            raise ValueError(f"hidden_units must be positive, given: {list(hidden_units)}")
        if dropout is not None and not 0 <= dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), given: {dropout}")
        self._activation = activation_fn or _v1.nn.relu
        self._dropout, self._batch_norm = dropout, batch_norm

    def logits(
        self, features: Any, width: int, mode: str, config: RunConfig, partitioner: Any
    ) -> Any:
        """[batch, width]."""
        with _v1.variable_scope("dnn", partitioner=_partitioner(config, 256 << 10)):
            with _v1.variable_scope("input_from_feature_columns", partitioner=partitioner):
                net = _v1.feature_column.input_layer(features, self.columns)
            for number, units in enumerate(self._units):
                name = f"hiddenlayer_{number}"
                net = _v1.layers.dense(net, units, self._activation, name=name)
                is_training = mode == ModeKeys.TRAIN
                if self._dropout is not None and is_training:
                    net = _v1.layers.dropout(net, self._dropout, training=True)
                if self._batch_norm:
                    with _v1.variable_scope(name):
                        net = _v1.layers.batch_normalization(
                            net, momentum=_BATCH_NORM_MOMENTUM, training=is_training,
                            name=f"batchnorm_{number}",
                        )  # fmt: skip
            return _v1.layers.dense(net, width, name="logits")


def _check_features(features: Any) -> None:
    if not isinstance(features, dict):
        raise ValueError(
            f"features should be a dictionary of `Tensor`s. Given type: {type(features)}"
        )


class _Canned(Estimator):
    """An estimator of a head, and of logits for it."""

    def _begin(
        self, head: Head, logits_of: Callable[[Any, str, RunConfig], Any],
        train_op: Callable[[Any], Any], model_dir: Any, config: Any, warm_start_from: Any,
    ) -> None:  # fmt: skip
        def with_updates(loss: Any) -> Any:
            step, updates = train_op(loss), _v1.get_collection(GraphKeys.UPDATE_OPS)
            return _v1.group(step, *updates) if updates else step

        def model_fn(features: Any, labels: Any, mode: str, config: RunConfig) -> EstimatorSpec:
            _check_features(features)
            logits = logits_of(features, mode, config)
            return head.spec(features, labels, mode, logits, with_updates)

        super().__init__(model_fn, model_dir, config, None, warm_start_from)


class _Linear(_Canned):
    """A linear model of feature columns."""

    def _build(
        self, head: Head, feature_columns: Any, optimizer: Any, partitioner: Any, combiner: str,
        model_dir: Any, config: Any, warm_start_from: Any,
    ) -> None:  # fmt: skip
        columns = checked_columns(feature_columns)

        def logits_of(features: Any, mode: str, config: RunConfig) -> Any:
            cut = partitioner or _partitioner(config, _MIN_SLICE)
            return _linear_logits(features, columns, head.logits_dimension, combiner, cut)

        def train_op(loss: Any) -> Any:
            made = optimizer_of(optimizer, rate_for(columns, _LINEAR_RATE))
            return made.minimize(loss, _v1.train.get_global_step())

        self._begin(head, logits_of, train_op, model_dir, config, warm_start_from)


class LinearClassifier(_Linear):
    """A linear model of classes (tf.estimator.LinearClassifier).

    feature_columns: of sidereal.feature_column, dense and categorical ones.
    n_classes: 2 with a sigmoid, or more with a softmax. label_vocabulary: the labels, when they are
        strings. weight_column: the key, or numeric column, of examples' weights.
    optimizer: one of sidereal.v1.train, a function that makes one, or "Ftrl", "Adagrad", "Adam",
        "RMSProp", "SGD". partitioner: cuts variables; by default large ones for the ps.
    loss_reduction: of sidereal.v1.losses.Reduction, the sum if absent.
    sparse_combiner: how the weights of an example's categories become one.
    """

    def __init__(
        self, feature_columns: Any, model_dir: Any = None, n_classes: int = 2,
        weight_column: Any = None, label_vocabulary: Sequence[str] | None = None,
        optimizer: Any = "Ftrl", config: RunConfig | None = None, partitioner: Any = None,
        warm_start_from: Any = None, loss_reduction: str = "weighted_sum",
        sparse_combiner: str = "sum",
    ) -> None:  # fmt: skip
        head = head_of_classes(n_classes, weight_column, label_vocabulary, loss_reduction)
        self._build(
            head, feature_columns, optimizer, partitioner, sparse_combiner, model_dir, config,
            warm_start_from,
        )  # fmt: skip


class LinearRegressor(_Linear):
    """A linear model of numbers (tf.estimator.LinearRegressor), `label_dimension` for each example;
    the other arguments are those of LinearClassifier."""

    def __init__(
        self, feature_columns: Any, model_dir: Any = None, label_dimension: int = 1,
        weight_column: Any = None, optimizer: Any = "Ftrl", config: RunConfig | None = None,
        partitioner: Any = None, warm_start_from: Any = None, loss_reduction: str = "weighted_sum",
        sparse_combiner: str = "sum",
    ) -> None:  # fmt: skip
        head = RegressionHead(label_dimension, weight_column, loss_reduction)
        self._build(
            head, feature_columns, optimizer, partitioner, sparse_combiner, model_dir, config,
            warm_start_from,
        )  # fmt: skip


class _DNN(_Canned):
    """A deep model of feature columns."""

    def _build(
        self, head: Head, deep: _Deep, optimizer: Any, partitioner: Any, model_dir: Any,
        config: Any, warm_start_from: Any,
    ) -> None:  # fmt: skip
        def logits_of(features: Any, mode: str, config: RunConfig) -> Any:
            cut = partitioner or _partitioner(config, _MIN_SLICE)
            return deep.logits(features, head.logits_dimension, mode, config, cut)

        def train_op(loss: Any) -> Any:
            made = optimizer_of(optimizer, _DNN_RATE)
            return made.minimize(loss, _v1.train.get_global_step())

        self._begin(head, logits_of, train_op, model_dir, config, warm_start_from)


class DNNClassifier(_DNN):
    """A deep model of classes (tf.estimator.DNNClassifier).

    hidden_units: the units of each hidden layer. feature_columns: dense ones.
    activation_fn: of hidden layers; relu if absent. dropout: which part of their outputs is zero in
        training. batch_norm: whether these outputs are normalized, by the batch in training and by
        moving averages otherwise.
    input_layer_partitioner: cuts tables; by default large ones for the ps.
    The others: as of LinearClassifier.
    """

    def __init__(
        self, hidden_units: Sequence[int], feature_columns: Any, model_dir: Any = None,
        n_classes: int = 2, weight_column: Any = None,
        label_vocabulary: Sequence[str] | None = None, optimizer: Any = "Adagrad",
        activation_fn: Any = None, dropout: float | None = None,
        input_layer_partitioner: Any = None, config: RunConfig | None = None,
        warm_start_from: Any = None, loss_reduction: str = "weighted_sum",
        batch_norm: bool = False,
    ) -> None:  # fmt: skip
        head = head_of_classes(n_classes, weight_column, label_vocabulary, loss_reduction)
        deep = _Deep(hidden_units, feature_columns, activation_fn, dropout, batch_norm)
        self._build(
            head, deep, optimizer, input_layer_partitioner, model_dir, config, warm_start_from
        )


class DNNRegressor(_DNN):
    """A deep model of numbers (tf.estimator.DNNRegressor), `label_dimension` for each example; the
    other arguments are those of DNNClassifier."""

    def __init__(
        self, hidden_units: Sequence[int], feature_columns: Any, model_dir: Any = None,
        label_dimension: int = 1, weight_column: Any = None, optimizer: Any = "Adagrad",
        activation_fn: Any = None, dropout: float | None = None,
        input_layer_partitioner: Any = None, config: RunConfig | None = None,
        warm_start_from: Any = None, loss_reduction: str = "weighted_sum",
        batch_norm: bool = False,
    ) -> None:  # fmt: skip
        head = RegressionHead(label_dimension, weight_column, loss_reduction)
        deep = _Deep(hidden_units, feature_columns, activation_fn, dropout, batch_norm)
        self._build(
            head, deep, optimizer, input_layer_partitioner, model_dir, config, warm_start_from
        )


class _Both(_Canned):
    """A linear and a deep model, added up."""

    def _build(
        self, head: Head, linear_columns: Any, linear_optimizer: Any, combiner: str,
        dnn_columns: Any, dnn_optimizer: Any, hidden_units: Any, activation_fn: Any,
        dropout: float | None, batch_norm: bool, partitioner: Any, model_dir: Any, config: Any,
        warm_start_from: Any,
    ) -> None:  # fmt: skip
        if not linear_columns and not dnn_columns:
            raise ValueError(
                "Either linear_feature_columns or dnn_feature_columns must be defined."
            )
        if dnn_columns and not hidden_units:
            raise ValueError("dnn_hidden_units must be defined when dnn_feature_columns is.")
        linear = checked_columns(linear_columns) if linear_columns else []
        deep = None
        if dnn_columns:
            deep = _Deep(hidden_units, dnn_columns, activation_fn, dropout, batch_norm)

        def logits_of(features: Any, mode: str, config: RunConfig) -> Any:
            cut = partitioner or _partitioner(config, _MIN_SLICE)
            width, made = head.logits_dimension, []
            if deep is not None:
                made.append(deep.logits(features, width, mode, config, cut))
            if linear:
                made.append(_linear_logits(features, linear, width, combiner, cut))
            return sum(made[1:], made[0])

        def train_op(loss: Any) -> Any:
            ops = []
            for scope, columns, optimizer, rate in (
                ("dnn", dnn_columns, dnn_optimizer, _DNN_RATE),
                ("linear", linear, linear_optimizer, rate_for(linear or [0], _LINEAR_RATE_BESIDE)),
            ):
                if columns:
                    variables = _v1.get_collection(GraphKeys.TRAINABLE_VARIABLES, f"{scope}/")
                    made = optimizer_of(optimizer, rate)
                    ops.append(made.minimize(loss, var_list=variables))
            with _v1.control_dependencies([_v1.group(*ops)]):
                return _v1.train.get_global_step().assign_add(1).op

        self._begin(head, logits_of, train_op, model_dir, config, warm_start_from)


class DNNLinearCombinedClassifier(_Both):
    """A wide and deep model of classes (tf.estimator.DNNLinearCombinedClassifier): the logits of a
    linear and of a deep model added up, each with columns and an optimizer of its own. The
    arguments are those of LinearClassifier and DNNClassifier."""

    def __init__(
        self, model_dir: Any = None, linear_feature_columns: Any = None,
        linear_optimizer: Any = "Ftrl", dnn_feature_columns: Any = None,
        dnn_optimizer: Any = "Adagrad", dnn_hidden_units: Sequence[int] | None = None,
        dnn_activation_fn: Any = None, dnn_dropout: float | None = None, n_classes: int = 2,
        weight_column: Any = None, label_vocabulary: Sequence[str] | None = None,
        input_layer_partitioner: Any = None, config: RunConfig | None = None,
        warm_start_from: Any = None, loss_reduction: str = "weighted_sum",
        batch_norm: bool = False, linear_sparse_combiner: str = "sum",
    ) -> None:  # fmt: skip
        head = head_of_classes(n_classes, weight_column, label_vocabulary, loss_reduction)
        self._build(
            head, linear_feature_columns, linear_optimizer, linear_sparse_combiner,
            dnn_feature_columns, dnn_optimizer, dnn_hidden_units, dnn_activation_fn, dnn_dropout,
            batch_norm, input_layer_partitioner, model_dir, config, warm_start_from,
        )  # fmt: skip


class DNNLinearCombinedRegressor(_Both):
    """As DNNLinearCombinedClassifier, of numbers (tf.estimator.DNNLinearCombinedRegressor)."""

    def __init__(
        self, model_dir: Any = None, linear_feature_columns: Any = None,
        linear_optimizer: Any = "Ftrl", dnn_feature_columns: Any = None,
        dnn_optimizer: Any = "Adagrad", dnn_hidden_units: Sequence[int] | None = None,
        dnn_activation_fn: Any = None, dnn_dropout: float | None = None, label_dimension: int = 1,
        weight_column: Any = None, input_layer_partitioner: Any = None,
        config: RunConfig | None = None, warm_start_from: Any = None,
        loss_reduction: str = "weighted_sum", batch_norm: bool = False,
        linear_sparse_combiner: str = "sum",
    ) -> None:  # fmt: skip
        head = RegressionHead(label_dimension, weight_column, loss_reduction)
        self._build(
            head, linear_feature_columns, linear_optimizer, linear_sparse_combiner,
            dnn_feature_columns, dnn_optimizer, dnn_hidden_units, dnn_activation_fn, dnn_dropout,
            batch_norm, input_layer_partitioner, model_dir, config, warm_start_from,
        )  # fmt: skip


__all__ = [
    "DNNClassifier", "DNNLinearCombinedClassifier", "DNNLinearCombinedRegressor", "DNNRegressor",
    "LinearClassifier", "LinearRegressor",
]  # fmt: skip
