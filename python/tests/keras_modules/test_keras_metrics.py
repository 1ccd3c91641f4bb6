"""sidereal.keras.metrics beside Keras: after each of three updates, with and without weights, at
once and in functions."""

from __future__ import annotations

import copy
import inspect
import math
from typing import Any

import numpy as np
import pytest
from keras_peer import QUIET, close, described, keras64, parameters, peer, public
from keras_targets import CLASSES, targets

import sidereal as sr
from sidereal.keras import losses, metrics
from sidereal.keras._configs import snake_case

pytestmark = QUIET

#: Class, arguments, and the kind of targets (keras_targets.py); None: values alone.
CASES: list[tuple[str, dict[str, Any], str | None]] = [
    ("Mean", {}, None),
    ("Sum", {}, None),
    ("Accuracy", {}, "guessed"),
    ("Accuracy", {}, "guessed (n,3,k)"),
    ("BinaryAccuracy", {}, "binary"),
    ("BinaryAccuracy", {}, "binary (n,)"),
    ("BinaryAccuracy", {"threshold": 0.7}, "binary (n,1)"),
    ("CategoricalAccuracy", {}, "one_hot"),
    ("CategoricalAccuracy", {}, "one_hot (n,3,k)"),
    ("SparseCategoricalAccuracy", {}, "classes"),
    ("SparseCategoricalAccuracy", {}, "classes (n,3,k)"),
    ("TopKCategoricalAccuracy", {}, "one_hot"),
    ("TopKCategoricalAccuracy", {"k": 2}, "one_hot"),
    ("TopKCategoricalAccuracy", {"k": 2}, "one_hot (n,3,k)"),
    ("SparseTopKCategoricalAccuracy", {"k": 3}, "classes"),
    ("SparseTopKCategoricalAccuracy", {"k": 2}, "classes (n,3,k)"),
    ("MeanSquaredError", {}, "real"),
    ("MeanSquaredError", {}, "real (n,1)"),
    ("RootMeanSquaredError", {}, "real"),
    ("RootMeanSquaredError", {}, "real (n,)"),
    ("MeanAbsoluteError", {}, "real"),
    ("MeanAbsolutePercentageError", {}, "positive"),
    ("MeanSquaredLogarithmicError", {}, "positive"),
    ("CosineSimilarity", {}, "real"),
    ("CosineSimilarity", {"axis": 1}, "real (n,3,k)"),
    ("LogCoshError", {}, "real"),
    ("Hinge", {}, "binary"),
    ("SquaredHinge", {}, "signs"),
    ("CategoricalHinge", {}, "one_hot"),
    ("KLDivergence", {}, "distribution"),
    ("Poisson", {}, "positive"),
    ("BinaryCrossentropy", {}, "binary"),
    ("BinaryCrossentropy", {"from_logits": True, "label_smoothing": 0.1}, "binary_logits"),
    ("CategoricalCrossentropy", {}, "one_hot"),
    ("CategoricalCrossentropy", {"from_logits": True, "label_smoothing": 0.2}, "one_hot_logits"),
    ("SparseCategoricalCrossentropy", {}, "classes"),
    ("SparseCategoricalCrossentropy", {"from_logits": True}, "classes_logits"),
    ("SparseCategoricalCrossentropy", {"ignore_class": 1}, "classes"),
    ("TruePositives", {}, "binary"),
    ("TruePositives", {"thresholds": [0.7, 0.2]}, "binary"),
    ("FalsePositives", {}, "binary (n,)"),
    ("FalsePositives", {"thresholds": 0.3}, "binary"),
    ("TrueNegatives", {"thresholds": [0.0, 0.5, 1.0]}, "binary (n,)"),
    ("FalseNegatives", {}, "binary (n,1)"),
    ("Precision", {}, "binary"),
    ("Precision", {"thresholds": [0.8, 0.1, 0.5]}, "binary (n,)"),
    ("Precision", {"top_k": 2}, "one_hot"),
    ("Precision", {"class_id": 3, "thresholds": 0.2}, "one_hot"),
    ("Recall", {}, "binary (n,)"),
    ("Recall", {"thresholds": [0.25, 0.75]}, "binary"),
    ("Recall", {"top_k": 3, "class_id": 1}, "one_hot"),
    ("AUC", {}, "binary"),
    ("AUC", {}, "binary (n,)"),
    ("AUC", {"from_logits": True, "num_thresholds": 31}, "binary_logits"),
    ("AUC", {"curve": "PR"}, "binary (n,1)"),
    ("AUC", {"curve": "PR", "summation_method": "minoring"}, "binary"),
    ("AUC", {"summation_method": "majoring", "num_thresholds": 5}, "binary"),
    ("AUC", {"thresholds": [0.8, 0.15, 0.4]}, "binary"),
    ("AUC", {"multi_label": True}, "binary"),
    ("AUC", {"multi_label": True, "num_labels": 5, "curve": "PR"}, "binary"),
    ("AUC", {"multi_label": True, "label_weights": [1.0, 0.5, 0.0, 2.0, 1.0]}, "binary"),
    ("AUC", {"label_weights": [1.0, 0.5, 0.0, 2.0, 1.0]}, "binary"),
    ("R2Score", {}, "real"),
    ("R2Score", {"class_aggregation": "variance_weighted_average"}, "real"),
    ("R2Score", {"class_aggregation": None}, "real"),
    ("R2Score", {"num_regressors": 2}, "real (n,1)"),
]
IDS = [f"{described(case)}-{(case[2] or '').replace(' ', '')}" for case in CASES]
SIZES = (12, 7, 20)


def batches(kind: str | None) -> list[tuple[np.ndarray, ...]]:
    if kind is None:
        return [(targets("real", seed, rows)[0],) for seed, rows in enumerate(SIZES)]
    return [targets(kind, seed, rows) for seed, rows in enumerate(SIZES)]


def weights_of(batch: tuple[np.ndarray, ...], how: str) -> Any:
    """Weights for a batch: none, or of examples."""
    if how == "none":
        return None
    rows = len(batch[0])
    made = np.random.default_rng(rows).uniform(0.0, 2.0, size=rows)
    if how == "column":
        made = made[:, None]
    return made


def made(module: Any, name: str, arguments: dict[str, Any]) -> Any:
    return getattr(module, name)(**arguments, dtype="float64")


def test_every_metric_has_a_case() -> None:
    classes = {name for name in public(metrics) if inspect.isclass(getattr(metrics, name))}
    named = {getattr(metrics, name).__name__ for name in classes}
    assert {case[0] for case in CASES} == named - {"Metric", "MeanMetricWrapper"}


@pytest.mark.parametrize("how", ["none", "examples", "column"])
@pytest.mark.parametrize("name, arguments, kind", CASES, ids=IDS)
def test_three_updates_equal_keras(
    name: str, arguments: dict[str, Any], kind: str | None, how: str
) -> None:
    with keras64() as keras:
        ours, theirs = made(metrics, name, arguments), made(keras.metrics, name, arguments)
        for batch in batches(kind):
            weights = weights_of(batch, how)
            ours.update_state(*batch, sample_weight=weights)
            if how == "column" and batch[0].ndim == 1:
                weights = weights[:, 0]  # Keras' counts want no column beside a vector.
            theirs.update_state(*batch, sample_weight=weights)
            close(ours.result(), theirs.result())
        ours.reset_state()
        theirs.reset_state()
        last = batches(kind)[-1]
        close(ours(*last), theirs(*last))


@pytest.mark.parametrize("name, arguments, kind", CASES, ids=IDS)
def test_functions_give_the_same(name: str, arguments: dict[str, Any], kind: str | None) -> None:
    eager, traced = (made(metrics, name, arguments) for _ in range(2))
    first = [np.asarray(x) for x in batches(kind)[0]]
    specs = [sr.TensorSpec([None, *x.shape[1:]], x.dtype) for x in first]
    weights = sr.TensorSpec([None], "float64")

    @sr.function(input_signature=[*specs, weights])
    def step(*values: sr.Tensor) -> sr.Tensor:
        traced.update_state(*values[:-1], sample_weight=values[-1])
        return traced.result()

    for batch in batches(kind):
        given = weights_of(batch, "examples")
        eager.update_state(*batch, sample_weight=given)
        value = step(*(sr.constant(x) for x in batch), sr.constant(given))
        np.testing.assert_allclose(value, eager.result(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(traced.result(), eager.result(), rtol=1e-12, atol=1e-12)
    sr.function(lambda: traced.reset_state())()
    assert all((variable.numpy() == 0).all() for variable in traced.variables)


def test_without_weights_functions_count_rows_of_unknown_batches() -> None:
    mean = metrics.BinaryAccuracy()
    step = sr.function(
        lambda y, p: mean.update_state(y, p),
        input_signature=[sr.TensorSpec([None], "float32"), sr.TensorSpec([None], "float32")],
    )
    step(sr.constant([1.0, 0.0, 1.0]), sr.constant([0.9, 0.8, 0.7]))
    step(sr.constant([1.0]), sr.constant([0.2]))
    assert float(mean.count) == 4 and float(mean.result()) == pytest.approx(0.5)


@pytest.mark.parametrize("name", ["Mean", "Sum"])
def test_weights_of_every_shape_equal_keras(name: str) -> None:
    rng = np.random.default_rng(1)
    shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        ((), ()), ((4,), (4,)), ((4,), (4, 1)), ((4, 1), (4,)), ((4, 3), (4,)), ((4, 3), (4, 1)),
        ((4, 3), (4, 3)), ((4, 3, 2), (4,)), ((4, 3, 2), (4, 3)), ((4, 3, 2), (4, 3, 2)),
        ((4, 3, 2), (4, 1, 1)), ((4,), ()), ((4, 3), ()),
    ]  # fmt: skip
    with keras64() as keras:
        for shape, weights_shape in shapes:
            ours, theirs = made(metrics, name, {}), made(keras.metrics, name, {})
            for _ in range(2):
                values, weights = rng.normal(size=shape), rng.uniform(size=weights_shape)
                ours.update_state(values, weights)
                theirs.update_state(values, weights)
            close(ours.result(), theirs.result())
            ours.update_state(rng.normal(size=shape))


def test_nothing_and_certain_predictions_equal_keras() -> None:
    y, p = np.array([0.0, 1.0, 1.0, 0.0]), np.array([0.0, 1.0, 0.0, 1.0])
    with keras64() as keras:
        for name in ("AUC", "Precision", "Recall", "BinaryCrossentropy", "BinaryAccuracy"):
            ours, theirs = made(metrics, name, {}), made(keras.metrics, name, {})
            close(ours.result(), theirs.result())
            close(ours(y, p), theirs(y, p))
            close(ours(0 * y, p), theirs(0 * y, p))
        for curve in ("ROC", "PR"):
            soft = made(metrics, "AUC", {"curve": curve})(y * 0.8 + 0.1, p)
            close(soft, made(keras.metrics, "AUC", {"curve": curve})(y * 0.8 + 0.1, p))


def test_many_predictions_of_equal_scores_equal_keras() -> None:
    rng = np.random.default_rng(5)
    p = rng.integers(0, 11, size=5000) / 10
    y = (rng.random(5000) < p).astype(np.float64)
    with keras64() as keras:
        for arguments in ({}, {"curve": "PR"}, {"num_thresholds": 51}):
            ours, theirs = made(metrics, "AUC", arguments), made(keras.metrics, "AUC", arguments)
            close(ours(y, p), theirs(y, p))


def test_auc_of_many_thresholds_is_that_of_ranks() -> None:
    rng = np.random.default_rng(6)
    p = rng.random(2000)
    y = rng.random(2000) < p
    ranks = p.argsort().argsort() + 1
    n, m = y.sum(), (~y).sum()
    exact = (ranks[y].sum() - n * (n + 1) / 2) / (n * m)
    assert float(metrics.AUC(num_thresholds=20000)(y, p)) == pytest.approx(exact, abs=1e-4)


def test_arguments_names_and_configs_equal_keras() -> None:
    keras = peer()
    for name, arguments, _ in CASES:
        ours, theirs = getattr(metrics, name), getattr(keras.metrics, name)
        assert parameters(ours) == [p for p in parameters(theirs) if p[0] not in ONLY_THEIRS]
        config, wanted = ours(**arguments).get_config(), theirs(**arguments).get_config()
        # Keras writes how many thresholds it has, and those in between; we what was given.
        known = set(wanted) - {"name", "thresholds", "num_thresholds"}
        assert {key: config[key] for key in known} == {key: listed(wanted[key]) for key in known}
        assert ours.from_config(config).get_config() == config
        assert config["name"].rstrip("_0123456789") == wanted["name"].rstrip("_0123456789")


#: Arguments of Keras' that change no value.
ONLY_THEIRS = {"from_sorted_ids"}


def listed(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def test_default_names_are_numbered() -> None:
    first, second = metrics.Precision(), metrics.Precision()
    stem = first.name.rstrip("_0123456789")
    assert stem == "precision" and second.name.startswith("precision_")
    assert metrics.Mean().name == "mean" and metrics.Recall(name="r").name == "r"


def test_names_are_found_as_by_keras() -> None:
    keras = peer()
    classes = {case[0] for case in CASES}
    for name in sorted({*classes, *map(snake_case, classes), *SHORT, *map(str.upper, SHORT)}):
        assert type(metrics.get(name)).__name__ == type(keras.metrics.get(name)).__name__
    assert isinstance(metrics.get("log_loss"), metrics.BinaryCrossentropy)
    assert isinstance(metrics.get("AUC"), metrics.AUC)
    assert metrics.get(None) is None


SHORT = {"bce", "mae", "mape", "mse", "msle"}


def test_state_is_variables_of_the_one_class() -> None:
    mean = metrics.Mean(name="loss")
    assert [type(variable) for variable in mean.variables] == [sr.Variable, sr.Variable]
    assert [variable.name for variable in mean.variables] == ["loss/total", "loss/count"]
    assert not any(variable.trainable for variable in mean.variables)
    assert mean.dtype == "float32" and metrics.Mean(dtype="float64").result().dtype == sr.float64


def test_a_metric_of_ones_own() -> None:
    class F1(metrics.Metric):
        def __init__(self, threshold: float = 0.5, name: str = "f1", **kwargs: Any) -> None:
            super().__init__(name=name, **kwargs)
            self.precision = metrics.Precision(threshold)
            self.recall = metrics.Recall(threshold)
            self.calls = self.add_weight(name="calls", initializer="zeros")
            self.most = self.add_variable((2,), "ones", name="most")

        def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
            self.precision.update_state(y_true, y_pred, sample_weight)
            self.recall.update_state(y_true, y_pred, sample_weight)
            self.calls.assign_add(1.0)

        def result(self) -> Any:
            p, r = self.precision.result(), self.recall.result()
            return sr.math.divide_no_nan(2 * p * r, p + r)

    f1 = F1(threshold=0.4)
    y, p = targets("binary (n,)")
    tp, fp = ((p > 0.4) & (y == 1)).sum(), ((p > 0.4) & (y == 0)).sum()
    fn = ((p <= 0.4) & (y == 1)).sum()
    assert float(f1(y, p)) == pytest.approx(2 * tp / (2 * tp + fp + fn))
    assert len(f1.variables) == 6
    again = metrics.deserialize(metrics.serialize(f1), custom_objects={"F1": F1})
    assert again.get_config() == {"threshold": 0.4, "name": "f1"}
    f1.reset_state()
    assert float(f1.calls) == 0 and float(f1.result()) == 0 and not f1.most.numpy().any()


def test_weights_of_examples_hold_for_steps_beside_ignored_classes() -> None:
    y, p = targets("classes (n,3,k)")
    weights = np.arange(len(y), dtype=np.float64)
    metric = metrics.SparseCategoricalCrossentropy(ignore_class=2, dtype="float64")
    metric.update_state(y, p, weights)
    each = np.where(y == 2, 0.0, -np.log(np.take_along_axis(p, y[..., None], -1)[..., 0]))
    share = weights[:, None] * (y != 2)
    np.testing.assert_allclose(metric.result(), (each * share).sum() / share.sum())


def test_a_copy_has_a_state_of_its_own() -> None:
    y, p = targets("binary (n,)")
    auc = metrics.AUC(num_thresholds=20)
    auc.update_state(y, p)
    again = copy.deepcopy(auc)
    np.testing.assert_array_equal(again.result(), auc.result())
    again.reset_state()
    assert float(again.result()) == 0 and float(auc.result()) > 0


def test_a_function_as_a_metric() -> None:
    y, p = targets("real")
    wrapped = metrics.MeanMetricWrapper(losses.huber, name="huber", delta=0.5)
    wrapped.update_state(y, p)
    np.testing.assert_allclose(
        wrapped.result(), losses.Huber(0.5)(y, p.astype(np.float32)), rtol=1e-6
    )
    assert wrapped.name == "huber" and not math.isnan(float(wrapped.result()))


def test_what_is_wrong_is_named() -> None:
    refused, early = sr.errors.InvalidArgumentError, sr.errors.FailedPreconditionError
    y, p = targets("one_hot")
    wrong: list[tuple[type[Exception], Any, str]] = [
        (ValueError, lambda: metrics.get("acuracy"), "keras.metrics has nothing called 'acuracy'"),
        (ValueError, lambda: metrics.AUC(curve="AOC", name="a"), "metric 'a': curve is 'AOC'; it"),
        (ValueError, lambda: metrics.AUC(num_thresholds=1), "num_thresholds is 1; it must be more"),
        (ValueError, lambda: metrics.AUC(thresholds=[0.5, 1.5]), r"are \[0.5, 1.5\]; they must be"),
        (ValueError, lambda: metrics.AUC(summation_method="sum"), "summation_method is 'sum'; it"),
        (ValueError, lambda: metrics.AUC(num_labels=3), "num_labels is for multi_label=True"),
        (ValueError, lambda: metrics.Recall(thresholds=-0.1), "thresholds are -0.1; they must be"),
        (ValueError, lambda: metrics.R2Score("mean"), "class_aggregation is 'mean'; it must be"),
        (ValueError, lambda: metrics.R2Score(num_regressors=-1), "num_regressors is -1; it must"),
        (early, lambda: metrics.R2Score().result(), "'r2_score': the number of outputs is known"),
        (early, lambda: metrics.AUC(multi_label=True).result(), "the number of labels is known"),
        (refused, lambda: metrics.AUC(name="a")(y[:, :2], p),
         r"metric 'a': y_true has shape \(12, 2\) and y_pred \(12, 5\); they must be equal"),
        (refused, lambda: metrics.AUC(multi_label=True, num_labels=4, name="a")(y, p),
         f"metric 'a': y_pred has {CLASSES} labels; the metric has 4"),
        (refused, lambda: metrics.AUC(multi_label=True)(y[:, 0], p[:, 0]), r"it has \(12,\)"),
        (refused, lambda: metrics.Precision(class_id=5, name="b")(y, p),
         "metric 'b': class_id is 5; y_pred has 5 classes"),
        (refused, lambda: metrics.Mean(name="m").update_state([1.0, 2.0], [1.0, 2.0, 3.0]),
         r"metric 'm': a value has shape \(2,\) and sample_weight \(3,\); they must broadcast"),
        (refused, lambda: metrics.R2Score()(y[:, 0], p[:, 0]), r"\[examples, outputs\]; it has"),
        (NotImplementedError, lambda: metrics.Metric().update_state(1), "Metric has no update_st"),
    ]  # fmt: skip
    for error, call, message in wrong:
        with pytest.raises(error, match=message):
            call()
