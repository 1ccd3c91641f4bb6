"""sidereal.keras.losses beside Keras: values for each reduction and kind of weights, gradients
beside finite differences."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import numpy as np
import pytest
from keras_peer import QUIET, close, described, keras64, parameters, peer, public
from keras_targets import CLASSES, ROWS, targets

import sidereal as sr
from sidereal.keras import losses
from sidereal.keras._configs import snake_case

pytestmark = QUIET

#: Class, arguments, and the kind of targets (keras_targets.py).
CASES: list[tuple[str, dict[str, Any], str]] = [
    ("MeanSquaredError", {}, "real"),
    ("MeanSquaredError", {}, "real (n,1)"),
    ("MeanSquaredError", {}, "real (n,3,k)"),
    ("MeanAbsoluteError", {}, "real"),
    ("MeanAbsolutePercentageError", {}, "positive"),
    ("MeanSquaredLogarithmicError", {}, "positive"),
    ("MeanSquaredLogarithmicError", {}, "real"),
    ("Huber", {}, "real"),
    ("Huber", {"delta": 0.4}, "real"),
    ("LogCosh", {}, "real"),
    ("Hinge", {}, "signs"),
    ("Hinge", {}, "binary"),
    ("SquaredHinge", {}, "signs"),
    ("SquaredHinge", {}, "binary"),
    ("CategoricalHinge", {}, "one_hot"),
    ("Poisson", {}, "positive"),
    ("KLDivergence", {}, "distribution"),
    ("KLDivergence", {}, "one_hot"),
    ("CosineSimilarity", {}, "real"),
    ("CosineSimilarity", {"axis": 1}, "real (n,3,k)"),
    ("BinaryCrossentropy", {}, "binary"),
    ("BinaryCrossentropy", {}, "binary (n,1)"),
    ("BinaryCrossentropy", {"from_logits": True}, "binary_logits"),
    ("BinaryCrossentropy", {"label_smoothing": 0.2}, "binary"),
    ("BinaryCrossentropy", {"from_logits": True, "label_smoothing": 0.1}, "binary_logits"),
    ("BinaryCrossentropy", {"axis": 1}, "binary (n,3,k)"),
    ("BinaryFocalCrossentropy", {}, "binary"),
    ("BinaryFocalCrossentropy", {"apply_class_balancing": True, "alpha": 0.4}, "binary"),
    ("BinaryFocalCrossentropy", {"from_logits": True, "gamma": 1.5}, "binary_logits"),
    ("BinaryFocalCrossentropy", {"label_smoothing": 0.1}, "binary"),
    ("CategoricalCrossentropy", {}, "one_hot"),
    ("CategoricalCrossentropy", {}, "one_hot (n,3,k)"),
    ("CategoricalCrossentropy", {}, "unnormalized"),
    ("CategoricalCrossentropy", {"label_smoothing": 0.3}, "one_hot"),
    ("CategoricalCrossentropy", {"from_logits": True}, "one_hot_logits"),
    ("CategoricalCrossentropy", {"from_logits": True, "label_smoothing": 0.1}, "one_hot_logits"),
    ("CategoricalCrossentropy", {"from_logits": True, "axis": 1}, "one_hot_logits (n,3,k)"),
    ("CategoricalFocalCrossentropy", {}, "one_hot"),
    ("CategoricalFocalCrossentropy", {"gamma": 1.0, "alpha": 0.6}, "one_hot (n,3,k)"),
    ("CategoricalFocalCrossentropy", {"from_logits": True}, "one_hot_logits"),
    ("CategoricalFocalCrossentropy", {"label_smoothing": 0.2}, "one_hot"),
    ("SparseCategoricalCrossentropy", {}, "classes"),
    ("SparseCategoricalCrossentropy", {}, "classes (n,3,k)"),
    ("SparseCategoricalCrossentropy", {"from_logits": True}, "classes_logits"),
    ("SparseCategoricalCrossentropy", {"ignore_class": 2}, "classes"),
    ("SparseCategoricalCrossentropy", {"ignore_class": -1, "from_logits": True}, "classes_logits"),
    ("SparseCategoricalCrossentropy", {"from_logits": True, "ignore_class": 0},
     "classes_logits (n,3,k)"),
]  # fmt: skip
IDS = [f"{described(case)}-{case[2].replace(' ', '')}" for case in CASES]
REDUCTIONS = ["sum_over_batch_size", "mean", "sum", "none", None, "mean_with_sample_weight"]


def weights_for(shape: tuple[int, ...]) -> list[Any]:
    """None, and weights that broadcast to losses of that shape."""
    rng = np.random.default_rng(9)
    whole = rng.uniform(0.0, 2.0, size=shape)
    found: list[Any] = [None, 0.7, whole, whole[..., None]]
    if len(shape) == 2:
        found.append(whole[:, :1])
    return found


def test_every_loss_has_a_case() -> None:
    classes = {name for name in public(losses) if inspect.isclass(getattr(losses, name))}
    # The loss of pairs is compared in test_objectives.py.
    assert {case[0] for case in CASES} == classes - {"Loss", "PairwiseLogistic", "Reduction"}
    functions = {getattr(losses, name).__name__ for name in public(losses) - classes}
    assert functions == {function_of(name).__name__ for name in classes - {"Loss", "Reduction"}}


def function_of(cls: str) -> Any:
    """The function that a class reduces."""
    return getattr(losses, snake_case(cls))


@pytest.mark.parametrize("name, arguments, kind", CASES, ids=IDS)
def test_classes_equal_keras(name: str, arguments: dict[str, Any], kind: str) -> None:
    y_true, y_pred = targets(kind)
    with keras64() as keras:
        own = getattr(losses, name)(**arguments, reduction="none")(y_true, y_pred)
        for weights in weights_for(own.shape):
            fits = weights is None or np.size(weights) == np.size(own)
            if "ignore_class" in arguments and not fits:
                continue  # Keras on PyTorch cannot.
            for reduction in REDUCTIONS:
                ours = getattr(losses, name)(**arguments, reduction=reduction)
                theirs = getattr(keras.losses, name)(**arguments, reduction=reduction)
                value = ours(y_true, y_pred, sample_weight=weights)
                assert value.dtype == sr.float64
                close(value, theirs(y_true, y_pred, sample_weight=weights))


@pytest.mark.parametrize("name, arguments, kind", CASES, ids=IDS)
def test_functions_equal_keras(name: str, arguments: dict[str, Any], kind: str) -> None:
    y_true, y_pred = targets(kind)
    ours = function_of(name)
    with keras64() as keras:
        theirs = getattr(keras.losses, ours.__name__)
        cast = y_true if name.startswith("Sparse") else y_true.astype(np.float64)
        close(ours(y_true, y_pred, **arguments), theirs(cast, y_pred, **arguments))


@pytest.mark.parametrize("name, arguments, kind", CASES, ids=IDS)
def test_gradients_equal_finite_differences(
    name: str, arguments: dict[str, Any], kind: str
) -> None:
    y_true, y_pred = targets(kind)
    rng = np.random.default_rng(2)
    loss = getattr(losses, name)(**arguments)
    weights = rng.uniform(0.5, 1.5, size=loss.call(y_true, sr.constant(y_pred)).shape)
    direction = rng.normal(size=y_pred.shape)
    x = sr.constant(y_pred)
    with sr.GradientTape() as tape:
        tape.watch(x)
        value = loss(y_true, x, weights)
    slope = float(sr.reduce_sum(tape.gradient(value, x) * direction))
    h = 1e-6
    above, below = (float(loss(y_true, y_pred + s * h * direction, weights)) for s in (1, -1))
    assert slope == pytest.approx((above - below) / (2 * h), rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("name, arguments, kind", CASES, ids=IDS)
def test_functions_of_unknown_batches_give_the_same(
    name: str, arguments: dict[str, Any], kind: str
) -> None:
    y_true, y_pred = targets(kind)
    loss = getattr(losses, name)(**arguments)
    specs = [
        sr.TensorSpec([None, *x.shape[1:]], x.dtype) for x in (np.asarray(y_true), y_pred)
    ]
    traced = sr.function(lambda y, p: loss(y, p), input_signature=specs)
    np.testing.assert_allclose(
        traced(sr.constant(y_true), sr.constant(y_pred)), loss(y_true, y_pred), rtol=1e-12
    )


def test_shapes_of_one_column_go_together() -> None:
    with keras64() as keras:
        for name in ("MeanSquaredError", "Hinge", "BinaryCrossentropy"):
            y, p = targets("binary (n,)")
            for a, b in ((y, p[:, None]), (y[:, None], p), (y, p)):
                for weights in (None, np.arange(ROWS), np.arange(ROWS)[:, None]):
                    ours = getattr(losses, name)(reduction="sum_over_batch_size")
                    close(
                        ours(a, b, weights), getattr(keras.losses, name)()(a, b, weights)
                    )
        y, p = targets("classes")
        close(
            losses.SparseCategoricalCrossentropy()(y[:, None], p),
            keras.losses.SparseCategoricalCrossentropy()(y, p),
        )


@pytest.mark.parametrize("dtype", ["bool", "int8", "int32", "int64", "uint8", "float32"])
def test_targets_of_any_dtype_are_cast(dtype: str) -> None:
    y, p = targets("binary")
    p = p.astype(np.float32)
    wanted = losses.BinaryCrossentropy()(y.astype(np.float32), p)
    assert wanted.dtype == sr.float32
    np.testing.assert_array_equal(losses.BinaryCrossentropy()(y.astype(dtype), p), wanted)
    np.testing.assert_array_equal(losses.binary_crossentropy(y.astype(dtype), p),
                                  losses.binary_crossentropy(y.astype(np.float32), p))
    c, q = targets("classes")
    if dtype != "bool":
        wanted = losses.SparseCategoricalCrossentropy()(c, q)
        np.testing.assert_array_equal(
            losses.SparseCategoricalCrossentropy()(c.astype(dtype), q), wanted
        )


def test_float32_is_as_near_as_float32_can_be() -> None:
    keras = peer()
    for name, arguments, kind in CASES:
        y, p = targets(kind)
        ours = getattr(losses, name)(**arguments)(y, p.astype(np.float32))
        assert ours.dtype == sr.float32
        close(ours, getattr(keras.losses, name)(**arguments)(y, p.astype(np.float32)), rtol=1e-5)


def test_certain_predictions_have_finite_losses_like_keras() -> None:
    p = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    y = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    with keras64() as keras:
        for name in ("BinaryCrossentropy", "CategoricalCrossentropy", "KLDivergence",
                     "BinaryFocalCrossentropy", "CategoricalFocalCrossentropy", "Poisson"):
            close(getattr(losses, name)()(y, p), getattr(keras.losses, name)()(y, p))
        classes = y.argmax(1)
        close(
            losses.SparseCategoricalCrossentropy()(classes, p),
            keras.losses.SparseCategoricalCrossentropy()(classes, p),
        )
        zeros = np.zeros((2, 3))
        close(losses.CosineSimilarity()(y, zeros), keras.losses.CosineSimilarity()(y, zeros))
    for dtype in ("float16", "bfloat16"):
        low = sr.cast(sr.constant(p), dtype)
        assert np.isfinite(sr.cast(losses.BinaryCrossentropy()(y, low), "float32").numpy())


def test_labels_that_are_no_class_are_named() -> None:
    _, p = targets("classes")
    wanted = rf"label {CLASSES} at position 3 is not in \[0, {CLASSES}\)"
    labels = np.zeros(ROWS, np.int64)
    labels[3] = CLASSES
    for from_logits in (False, True):
        loss = losses.SparseCategoricalCrossentropy(from_logits)
        with pytest.raises(sr.errors.InvalidArgumentError, match=wanted):
            loss(labels, p)
        with pytest.raises(sr.errors.InvalidArgumentError, match=wanted):
            sr.function(loss.call)(sr.constant(labels), sr.constant(p))
    with pytest.raises(sr.errors.InvalidArgumentError, match="label -1 at position 0"):
        losses.sparse_categorical_crossentropy(-np.ones(ROWS, np.int32), p)


def test_ignored_classes_do_not_count_in_the_mean() -> None:
    y, p = targets("classes")
    y[:4] = 255
    loss = losses.SparseCategoricalCrossentropy(ignore_class=255)
    wanted = losses.SparseCategoricalCrossentropy()(y[4:], p[4:])
    np.testing.assert_allclose(loss(y, p), wanted, rtol=1e-6)
    assert float(loss(np.full(ROWS, 255), p)) == 0.0


def test_a_loss_of_ones_own() -> None:
    class Quartic(losses.Loss):
        def __init__(self, scale: float = 1.0, name: str = "quartic", **kwargs: Any) -> None:
            super().__init__(name=name, **kwargs)
            self.scale = scale

        def call(self, y_true: Any, y_pred: Any) -> Any:
            return self.scale * sr.reduce_mean((y_true - y_pred) ** 4, axis=-1)

    y, p = targets("real")
    loss = Quartic(2.0, reduction="sum")
    np.testing.assert_allclose(loss(y, p), 2 * ((y - p) ** 4).mean(-1).sum())
    config = loss.get_config()
    assert config == {"scale": 2.0, "name": "quartic", "reduction": "sum"}
    again = losses.deserialize(losses.serialize(loss), custom_objects={"Quartic": Quartic})
    np.testing.assert_allclose(again(y, p), loss(y, p))
    with pytest.raises(NotImplementedError, match=r"Loss has no call\(y_true, y_pred\)"):
        losses.Loss()(y, p)


def test_tf_keras_names_of_reductions() -> None:
    y, p = targets("real")
    for old in ("NONE", "SUM", "SUM_OVER_BATCH_SIZE", "AUTO"):
        reduction = getattr(losses.Reduction, old)
        ours = losses.MeanSquaredError(reduction=reduction)(y, p)
        plain = {"AUTO": "sum_over_batch_size"}.get(old, reduction)
        np.testing.assert_array_equal(ours, losses.MeanSquaredError(plain)(y, p))


def test_arguments_and_configs_equal_keras() -> None:
    keras = peer()
    for name, arguments, _ in CASES:
        ours, theirs = getattr(losses, name), getattr(keras.losses, name)
        assert parameters(ours) == parameters(theirs)
        config, wanted = ours(**arguments).get_config(), theirs(**arguments).get_config()
        assert {key: config[key] for key in wanted} == wanted
        assert ours.from_config(config).get_config() == config
        function = function_of(name)
        known = getattr(keras.losses, function.__name__)
        assert list(inspect.signature(function).parameters) == list(
            inspect.signature(known).parameters
        )
    assert [losses.MeanSquaredError(name="x").name, losses.Huber().name] == ["x", "huber_loss"]


def test_names_are_found_as_by_keras() -> None:
    keras = peer()
    for name in sorted(public(losses) - {"Loss", "Reduction"}):
        found = losses.get(name)
        known = keras.losses.get(name) if name not in ONLY_OURS else None
        if known is not None:
            own = getattr(found, "__name__", type(found).__name__)
            assert own == getattr(known, "__name__", type(known).__name__)
    assert losses.get(None) is None
    assert losses.get({"class_name": "Huber", "config": {"delta": 0.5}}).delta == 0.5


#: Names that tf.keras found before Keras 3, and a loss that it does not have.
ONLY_OURS = {"PairwiseLogistic", "kullback_leibler_divergence", "logcosh", "pairwise_logistic"}


def test_ranks_that_are_not_known() -> None:
    y, p = targets("one_hot")
    spec = sr.TensorSpec(None, "float64")
    for loss in (losses.BinaryCrossentropy(), losses.CategoricalCrossentropy(label_smoothing=0.1)):
        traced = sr.function(lambda y, p: loss(y, p), input_signature=[spec, spec])  # noqa: B023
        np.testing.assert_allclose(traced(y, p), loss(y, p), rtol=1e-12)
    sparse = losses.SparseCategoricalCrossentropy()
    wanted = r"sparse_categorical_crossentropy\(\): the rank of y_pred is not known"
    with pytest.raises(ValueError, match=wanted):
        sr.function(lambda y, p: sparse(y, p), input_signature=[spec, spec])(y, p)


def test_copies() -> None:
    y, p = targets("real")
    loss = losses.Huber(0.5, name="near")
    for again in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        assert again.get_config() == loss.get_config()
        np.testing.assert_array_equal(again(y, p), loss(y, p))


def test_what_is_wrong_is_named() -> None:
    wrong: list[tuple[type[Exception], Any, str]] = [
        (ValueError, lambda: losses.get("msee"), "keras.losses has nothing called 'msee'"),
        (ValueError, lambda: losses.get(3), r"keras.losses.get\(\): 3 is none of them"),
        (ValueError, lambda: losses.MeanSquaredError(reduction="average"),
         "loss 'mean_squared_error': reduction is 'average'; it must be one of"),
        (TypeError, lambda: losses.Huber(gamma=1.0), "unexpected keyword argument 'gamma'"),
    ]
    shapes = sr.errors.InvalidArgumentError
    a, b, c = np.ones((4, 3)), np.ones((4, 2)), np.ones(3, np.int64)
    wrong += [
        (shapes, lambda: losses.mean_squared_error(a, b),
         r"mean_squared_error\(\): y_true has shape \(4, 3\) and y_pred \(4, 2\); they must broad"),
        (shapes, lambda: losses.BinaryCrossentropy()(c, a),
         r"binary_crossentropy\(\): y_true has shape \(3,\) and y_pred \(4, 3\); they must be eq"),
        (shapes, lambda: losses.SparseCategoricalCrossentropy()(c, a),
         r"y_true has shape \(3,\) and y_pred \(4, 3\); y_true has one class number for each row"),
        (shapes, lambda: losses.MeanSquaredError()(a, a, sample_weight=np.ones(7)),
         r"'mean_squared_error': a loss has shape \(4,\) and sample_weight \(7,\); they must"),
    ]  # fmt: skip
    for error, call, message in wrong:
        with pytest.raises(error, match=message):
            call()
    assert issubclass(shapes, ValueError)
