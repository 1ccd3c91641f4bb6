"""What a model function gives (tf.estimator.EstimatorSpec), and how models are exported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .. import v1 as _v1
from .._native import Output
from ..ops.array import reshape


class ModeKeys:
    """What a model function is called for (tf.estimator.ModeKeys)."""

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "infer"


class ExportOutput:
    """Base of what a signature of an exported model gives (tf.estimator.export.ExportOutput)."""

    def tensors(self) -> dict[str, Any]:
        """Values by name."""
        raise NotImplementedError


def _values(given: Any, default: str) -> dict[str, Any]:
    found = dict(given) if isinstance(given, Mapping) else {default: given}
    for name, value in found.items():
        if not isinstance(name, str):
            raise ValueError(f"the names of outputs are strings; one is {name!r}")
        if not isinstance(value, Output):
            raise ValueError(f"output '{name}' is {value!r}; it must be a value of the graph")
    return found


class PredictOutput(ExportOutput):
    """A dict of values, or one that is called "output" (tf.estimator.export.PredictOutput)."""

    def __init__(self, outputs: Any) -> None:
        self.outputs = _values(outputs, "output")

    def tensors(self) -> dict[str, Any]:
        return dict(self.outputs)


class ClassificationOutput(ExportOutput):
    """Scores, classes, or both (tf.estimator.export.ClassificationOutput)."""

    def __init__(self, scores: Any = None, classes: Any = None) -> None:
        if scores is None and classes is None:
            raise ValueError("At least one of scores and classes must be set.")
        if scores is not None and scores.dtype.kind != "f":
            raise ValueError(f"Classification scores must be floating, not {scores.dtype}")
        if classes is not None and classes.dtype.name != "string":
            raise ValueError(f"Classification classes must be strings, not {classes.dtype}")
        self.scores, self.classes = scores, classes

    def tensors(self) -> dict[str, Any]:
        both = {"scores": self.scores, "classes": self.classes}
        return {name: value for name, value in both.items() if value is not None}


class RegressionOutput(ExportOutput):
    """Values (tf.estimator.export.RegressionOutput)."""

    def __init__(self, value: Any) -> None:
        if not isinstance(value, Output) or value.dtype.kind != "f":
            raise ValueError(f"Regression output value must be a floating value, not {value!r}")
        self.value = value

    def tensors(self) -> dict[str, Any]:
        return {"outputs": self.value}


class _Fields(NamedTuple):
    mode: str
    predictions: Any
    loss: Any
    train_op: Any
    eval_metric_ops: dict[str, Any]
    export_outputs: dict[str, ExportOutput] | None
    training_chief_hooks: tuple[Any, ...]
    training_hooks: tuple[Any, ...]
    scaffold: Any
    evaluation_hooks: tuple[Any, ...]
    prediction_hooks: tuple[Any, ...]


class EstimatorSpec(_Fields):
    """The operations of a model in a mode (tf.estimator.EstimatorSpec).

    mode: of ModeKeys. predictions: a value, or a dict of them; needed to predict.
    loss: a scalar, needed to train and to evaluate. train_op: what a step runs, needed to train.
    eval_metric_ops: (value, update) by name, as sidereal.v1.metrics gives them.
    export_outputs: PredictOutput and the like by the names of signatures.
    training_chief_hooks, training_hooks, evaluation_hooks, prediction_hooks: SessionRunHooks.
    scaffold: a Scaffold of the session.
    """

    __slots__ = ()

    def __new__(
        cls, mode: str, predictions: Any = None, loss: Any = None, train_op: Any = None,
        eval_metric_ops: Mapping[str, Any] | None = None,
        export_outputs: Mapping[str, ExportOutput] | None = None,
        training_chief_hooks: Sequence[Any] | None = None,
        training_hooks: Sequence[Any] | None = None, scaffold: Any = None,
        evaluation_hooks: Sequence[Any] | None = None,
        prediction_hooks: Sequence[Any] | None = None,
    ) -> EstimatorSpec:  # fmt: skip
        if mode not in (ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT):
            raise ValueError(f"mode is {mode!r}; it must be of ModeKeys: train, eval or infer")
        if mode == ModeKeys.TRAIN and train_op is None:
            raise ValueError("Missing train_op.")
        if mode in (ModeKeys.TRAIN, ModeKeys.EVAL):
            loss = _checked_loss(loss)
        if train_op is not None and not isinstance(train_op, (Output, _v1.Operation)):
            raise TypeError(f"train_op must be Operation or Tensor, given: {train_op!r}")
        if mode == ModeKeys.PREDICT and predictions is None:
            raise ValueError("Missing predictions.")
        for name, value in _named(predictions).items():
            if not isinstance(value, Output):
                raise TypeError(f"predictions['{name}'] must be Tensor, given: {value!r}")
        if scaffold is not None and not isinstance(scaffold, _v1.train.Scaffold):
            raise TypeError(f"scaffold must be tf.train.Scaffold. Given: {scaffold!r}")
        is_eval, is_predict = mode == ModeKeys.EVAL, mode == ModeKeys.PREDICT
        return super().__new__(
            cls,
            mode=mode,
            predictions={} if predictions is None else predictions,
            loss=loss,
            train_op=train_op,
            eval_metric_ops=_checked_metrics(eval_metric_ops) if is_eval else {},
            export_outputs=_checked_outputs(export_outputs, predictions) if is_predict else None,
            training_chief_hooks=_checked_hooks("training_chief_hooks", training_chief_hooks),
            training_hooks=_checked_hooks("training_hooks", training_hooks),
            scaffold=_v1.train.Scaffold() if scaffold is None else scaffold,
            evaluation_hooks=_checked_hooks("evaluation_hooks", evaluation_hooks),
            prediction_hooks=_checked_hooks("prediction_hooks", prediction_hooks),
        )


def _named(predictions: Any) -> dict[str, Any]:
    if predictions is None:
        return {}
    return dict(predictions) if isinstance(predictions, Mapping) else {"predictions": predictions}


def _checked_loss(loss: Any) -> Any:
    if loss is None:
        raise ValueError("Missing loss.")
    if not isinstance(loss, Output):
        raise TypeError(f"loss must be a value of the graph, given: {loss!r}")
    if loss.shape not in (None, (), (1,)):
        raise ValueError(f"Loss must be scalar, given: {loss!r}")
    return reshape(loss, []) if loss.shape == (1,) else loss


def _checked_metrics(given: Mapping[str, Any] | None) -> dict[str, Any]:
    metrics = dict(given or {})
    for name, pair in metrics.items():
        is_pair = isinstance(pair, tuple) and len(pair) == 2
        kinds = (Output, _v1.Operation, _v1.Variable)
        if not is_pair or not all(isinstance(each, kinds) for each in pair):
            raise TypeError(
                "Values of eval_metric_ops must be (metric_value, update_op) tuples, given: "
                f"{pair!r} for key: {name}"
            )
    return metrics


def _checked_hooks(name: str, given: Sequence[Any] | None) -> tuple[Any, ...]:
    hooks = tuple(given or ())
    for hook in hooks:
        if not isinstance(hook, _v1.train.SessionRunHook):
            raise TypeError(
                f"All hooks must be SessionRunHook instances, given in {name}: {hook!r}"
            )
    return hooks


def _checked_outputs(
    given: Mapping[str, ExportOutput] | None, predictions: Any
) -> dict[str, ExportOutput]:
    """Outputs by signature, one of which is the default one."""
    default = "serving_default"
    if given is None:
        return {default: PredictOutput(predictions)}
    if not isinstance(given, Mapping):
        raise TypeError(f"export_outputs must be dict, given: {given!r}")
    outputs = dict(given)
    for name, output in outputs.items():
        if not isinstance(output, ExportOutput):
            raise TypeError(
                "Values in export_outputs must be ExportOutput objects, given: "
                f"{output!r} for key: {name}"
            )
    if default not in outputs:
        if len(outputs) != 1:
            raise ValueError(
                f"Multiple export_outputs were provided, but none of them is specified as the "
                f"default. Do this by naming one of them with '{default}'."
            )
        outputs[default] = next(iter(outputs.values()))
    return outputs
