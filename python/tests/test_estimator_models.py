"""Models that are there: linear, deep, both; of classes and of numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sidereal as sr
import sidereal.v1 as tf
from sidereal import errors

est, fc = tf.estimator, tf.feature_column
WORDS = np.array(["red", "green", "blue", "gray"])
RNG = np.random.default_rng(1)
NUMBER = RNG.normal(size=400).astype(np.float32)
WORD = WORDS[RNG.integers(0, 4, 400)]
#: Needs both features: the word says which sign counts.
LABEL = ((NUMBER > 0) ^ np.isin(WORD, ["red", "blue"])).astype(np.int64)
THREE = np.where(WORD == "red", 0, np.where(NUMBER > 0, 1, 2))


def data(label: Any, epochs: int | None = None, **more: Any) -> Any:
    features = {"number": NUMBER, "word": WORD, **more}
    return lambda: tf.data.Dataset.from_tensor_slices((features, label)).repeat(epochs).batch(50)


def config(**options: Any) -> Any:
    return est.RunConfig(
        tf_random_seed=2, save_summary_steps=None, log_step_count_steps=None, **options
    )


def columns() -> dict[str, Any]:
    word = fc.categorical_column_with_vocabulary_list("word", [*WORDS])
    number = fc.numeric_column("number")
    sign = fc.bucketized_column(number, [0.0])
    return {
        "word": word, "number": number, "sign": sign,
        "cross": fc.crossed_column([sign, "word"], 50), "embedding": fc.embedding_column(word, 4),
    }  # fmt: skip


def spec_of(used: list[Any]) -> Any:
    return est.export.build_parsing_serving_input_receiver_fn(fc.make_parse_example_spec(used))


METRICS_OF_TWO = [
    "accuracy", "accuracy_baseline", "auc", "auc_precision_recall", "average_loss", "global_step",
    "label/mean", "loss", "precision", "prediction/mean", "recall",
]  # fmt: skip


def test_a_linear_classifier(tmp_path: Path) -> None:
    made = columns()
    used = [made["cross"], made["word"], made["number"]]
    model = est.LinearClassifier(used, str(tmp_path), config=config())
    model.train(data(LABEL), steps=200)
    found = model.evaluate(data(LABEL, 1))
    assert sorted(found) == METRICS_OF_TWO
    assert found["accuracy"] == 1.0 and found["auc"] > 0.999
    np.testing.assert_allclose(found["label/mean"], LABEL.mean(), rtol=1e-5)
    np.testing.assert_allclose(
        found["accuracy_baseline"], max(LABEL.mean(), 1 - LABEL.mean()), rtol=1e-5
    )
    # The loss is the sum of the losses of a batch.
    np.testing.assert_allclose(found["loss"], 50 * found["average_loss"], rtol=1e-4)
    names = model.get_variable_names()
    assert "linear/linear_model/bias_weights" in names
    assert "linear/linear_model/number_bucketized_X_word/weights" in names
    assert model.get_variable_value("linear/linear_model/word/weights").shape == (4, 1)
    first = next(model.predict(data(LABEL, 1)))
    assert sorted(first) == [
        "all_class_ids", "all_classes", "class_ids", "classes", "logistic", "logits",
        "probabilities",
    ]  # fmt: skip
    assert first["class_ids"].tolist() == [LABEL[0]]
    assert first["classes"].tolist() == [str(LABEL[0]).encode()]
    assert first["all_classes"].tolist() == [b"0", b"1"]
    np.testing.assert_allclose(first["probabilities"][1], first["logistic"][0], rtol=1e-5)


def test_a_deep_classifier_of_three(tmp_path: Path) -> None:
    made = columns()
    labels = np.array(["stop", "up", "down"])[THREE]
    model = est.DNNClassifier(
        [16, 8], [made["embedding"], made["number"]], str(tmp_path), n_classes=3,
        label_vocabulary=["stop", "up", "down"], config=config(),
        optimizer=lambda: tf.train.AdamOptimizer(0.02),
    )  # fmt: skip
    model.train(data(labels), steps=150)
    found = model.evaluate(data(labels, 1))
    assert sorted(found) == ["accuracy", "average_loss", "global_step", "loss"]
    assert found["accuracy"] > 0.97
    predicted = [each["classes"][0].decode() for each in model.predict(data(labels, 1))]
    assert np.mean(predicted == labels) == pytest.approx(found["accuracy"])
    assert {
        "dnn/hiddenlayer_0/kernel", "dnn/hiddenlayer_1/bias", "dnn/logits/kernel",
        "dnn/input_from_feature_columns/input_layer/word_embedding/embedding_weights",
    } <= set(model.get_variable_names())  # fmt: skip
    with pytest.raises(errors.InvalidArgumentError, match="not in label_vocabulary"):
        model.evaluate(data(np.full(400, "sideways"), 1))


def test_a_wide_and_deep_classifier_is_served(tmp_path: Path) -> None:
    made = columns()
    deep = [made["embedding"], made["number"]]
    model = est.DNNLinearCombinedClassifier(
        str(tmp_path), linear_feature_columns=[made["word"]], dnn_feature_columns=deep,
        dnn_hidden_units=[16], dnn_optimizer=tf.train.AdagradOptimizer(0.2), config=config(),
        linear_optimizer="SGD", dnn_dropout=0.05,
    )  # fmt: skip
    model.train(data(LABEL), steps=200)
    assert model.evaluate(data(LABEL, 1))["accuracy"] > 0.97
    assert model.get_variable_value("global_step") == 200
    names = model.get_variable_names()
    assert "dnn/logits/bias/Adagrad" in names
    assert not any(name.startswith("linear/") and "Adagrad" in name for name in names)
    receive = est.export.build_raw_serving_input_receiver_fn(
        {"number": sr.constant(NUMBER[:1]), "word": sr.constant(list(WORD[:1]))}
    )
    path = model.export_saved_model(tmp_path / "out", receive)
    served = sr.saved_model.load(path).signatures
    assert sorted(served) == ["classification", "predict", "regression", "serving_default"]
    wanted = np.array([each["logistic"][0] for each in model.predict(data(LABEL, 1))])
    found = served["regression"](number=NUMBER, word=list(WORD))["outputs"].numpy()[:, 0]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    both = served["serving_default"](number=NUMBER[:2], word=list(WORD[:2]))
    assert both["classes"].numpy().tolist() == [[b"0", b"1"]] * 2


def test_a_model_parses_examples(tmp_path: Path) -> None:
    number = fc.numeric_column("number", default_value=2.0)
    model = est.LinearRegressor([number], str(tmp_path), config=config())
    model.train(data(3 * NUMBER + 1), steps=300)
    path = model.export_saved_model(tmp_path / "out", spec_of([number]))
    serve = sr.saved_model.load(path).signatures["serving_default"]
    found = serve(examples=[b"", b""])["outputs"].numpy()
    np.testing.assert_allclose(found, [[7.0], [7.0]], atol=0.2)


def test_regressors(tmp_path: Path) -> None:
    made = columns()
    target = np.stack([2 * NUMBER - 1, np.where(WORD == "red", 1, -1)], 1).astype(np.float32)
    models = {
        "linear": est.LinearRegressor(
            [made["number"], made["word"]], str(tmp_path / "linear"), label_dimension=2,
            config=config(), optimizer=tf.train.FtrlOptimizer(0.5),
        ),
        "deep": est.DNNRegressor(
            [32], [made["number"], made["embedding"]], str(tmp_path / "deep"), label_dimension=2,
            config=config(), optimizer=tf.train.AdamOptimizer(0.02),
        ),
        "both": est.DNNLinearCombinedRegressor(
            str(tmp_path / "both"), [made["word"]], "Adam", [made["number"]], "Adam", [16],
            label_dimension=2, config=config(),
        ),
    }  # fmt: skip
    for name, model in models.items():
        model.train(data(target), steps=300)
        found = model.evaluate(data(target, 1))
        assert sorted(found) == [
            "average_loss", "global_step", "label/mean", "loss", "prediction/mean",
        ]  # fmt: skip
        assert found["average_loss"] < (1.5 if name == "both" else 0.1), name
        assert next(model.predict(data(target, 1)))["predictions"].shape == (2,)


def test_batch_norm_moves_averages_and_predicts_by_them(tmp_path: Path) -> None:
    number = fc.numeric_column("number")
    options: Any = {"batch_norm": True, "config": config()}
    still = est.DNNRegressor(
        [3, 2], [number], str(tmp_path / "still"), optimizer=tf.train.GradientDescentOptimizer(0.0),
        activation_fn=tf.nn.tanh, **options,
    )  # fmt: skip
    still.train(data(NUMBER), steps=1)
    get = still.get_variable_value
    net = NUMBER[:, None]
    for i in (0, 1):
        net = np.tanh(net @ get(f"dnn/hiddenlayer_{i}/kernel") + get(f"dnn/hiddenlayer_{i}/bias"))
        name = f"dnn/hiddenlayer_{i}/batchnorm_{i}"
        mean, variance = get(f"{name}/moving_mean"), get(f"{name}/moving_variance")
        if i == 0:
            np.testing.assert_allclose(mean, 0.001 * net[:50].mean(0), rtol=1e-3, atol=1e-7)
            np.testing.assert_allclose(variance, 0.999 + 0.001 * net[:50].var(0), rtol=1e-6)
        net = (net - mean) / np.sqrt(variance + 0.001) * get(f"{name}/gamma") + get(f"{name}/beta")
    wanted = net @ get("dnn/logits/kernel") + get("dnn/logits/bias")
    found = [each["predictions"] for each in still.predict(data(NUMBER, 1))]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)

    made = columns()
    deep = est.DNNClassifier(
        [16], [made["embedding"], number], str(tmp_path / "deep"), optimizer="Adam", **options
    )
    both = est.DNNLinearCombinedClassifier(
        str(tmp_path / "both"), [made["word"]], "Ftrl", [made["embedding"], number],
        tf.train.AdagradOptimizer(0.3), [16], **options,
    )  # fmt: skip
    for model in (deep, both):
        model.train(data(LABEL), steps=400)
        assert model.get_variable_value("global_step") == 400
        mean = model.get_variable_value("dnn/hiddenlayer_0/batchnorm_0/moving_mean")
        assert np.all(mean >= 0) and mean.max() > 0.05
        assert model.evaluate(data(LABEL, 1))["accuracy"] > 0.9


def test_weights_of_examples(tmp_path: Path) -> None:
    weight = np.where(LABEL == 1, 3.0, 0.0).astype(np.float32)
    model = est.LinearClassifier(
        [fc.numeric_column("number")], str(tmp_path), weight_column="weight", config=config(),
        loss_reduction=tf.losses.Reduction.SUM_OVER_BATCH_SIZE,
    )  # fmt: skip
    model.train(data(LABEL, weight=weight), steps=100)
    found = model.evaluate(data(LABEL, 1, weight=weight))
    # Examples of weight 0 do not count.
    assert found["accuracy"] == 1.0 and found["label/mean"] == 1.0
    np.testing.assert_allclose(
        found["loss"], found["average_loss"] * weight.mean(), rtol=1e-4
    )


def test_tables_in_parts_are_saved_as_wholes(tmp_path: Path) -> None:
    """Also when all parts are in one process; they are restored cut otherwise."""
    made = columns()
    for parts, steps in ((3, 100), (2, 1)):
        model = est.DNNClassifier(
            [8], [made["embedding"], made["number"]], str(tmp_path), config=config(),
            input_layer_partitioner=tf.fixed_size_partitioner(parts),
            optimizer=lambda: tf.train.AdagradOptimizer(0.2),
        )  # fmt: skip
        model.train(data(LABEL), steps=steps)
        name = "dnn/input_from_feature_columns/input_layer/word_embedding/embedding_weights"
        assert model.get_variable_value(name).shape == (4, 4)
        assert model.get_variable_value(f"{name}/Adagrad").shape == (4, 4)
        assert model.evaluate(data(LABEL, 1))["accuracy"] > 0.95


def test_rows_of_a_new_vocabulary_start_warm(tmp_path: Path) -> None:
    name = "dnn/input_from_feature_columns/input_layer/word_embedding/embedding_weights"
    files = {}
    for which, words in (("old", "red green blue gray"), ("new", "gray pink red green")):
        files[which] = str(tmp_path / which)
        Path(files[which]).write_text("\n".join(words.split()) + "\n")

    def model(which: str, folder: str, settings: Any = None, **options: Any) -> Any:
        word = fc.categorical_column_with_vocabulary_file(
            "word", files[which], num_oov_buckets=2 if which == "new" else 0
        )
        return est.DNNClassifier(
            [4], [fc.embedding_column(word, 3)], str(tmp_path / folder), config=config(),
            optimizer=tf.train.GradientDescentOptimizer(0.1 if settings is None else 0.0),
            warm_start_from=settings, **options,
        )  # fmt: skip

    def settings_of(size: int = 4, **more: Any) -> Any:
        info = est.VocabInfo(files["new"], size, 2, files["old"], **more)
        first = str(tmp_path / "first")
        return est.WarmStartSettings(first, var_name_to_vocab_info={name: info})

    first = model("old", "first")
    first.train(data(LABEL), steps=10)
    old = first.get_variable_value(name)
    for folder, backup, parts in (("a", None, 1), ("b", tf.constant_initializer(7.0), 4)):
        partitioner = None if parts == 1 else tf.fixed_size_partitioner(parts)
        second = model(
            "new", folder, settings_of(backup_initializer=backup),
            input_layer_partitioner=partitioner,
        )  # fmt: skip
        second.train(data(LABEL), steps=1)
        found = second.get_variable_value(name)
        np.testing.assert_array_equal(found[[0, 2, 3]], old[[3, 0, 1]])
        np.testing.assert_array_equal(found[[1, 4, 5]], 0 if backup is None else 7)
        kernel = second.get_variable_value("dnn/hiddenlayer_0/kernel")
        np.testing.assert_array_equal(kernel, first.get_variable_value("dnn/hiddenlayer_0/kernel"))
    third = model("new", "c", settings_of(old_vocab_size=1))
    third.train(data(LABEL), steps=1)
    found = third.get_variable_value(name)
    np.testing.assert_array_equal(found[2], old[0])
    np.testing.assert_array_equal(found[[0, 1, 3, 4, 5]], 0)
    with pytest.raises(ValueError, match="has 6 rows, and VocabInfo says 3 words and 2 rows more"):
        model("new", "d", settings_of(3)).train(data(LABEL), steps=1)
    with pytest.raises(ValueError, match="has 4 words, and VocabInfo says 9"):
        model("new", "e", settings_of(9)).train(data(LABEL), steps=1)
    unknown = settings_of()._replace(var_name_to_vocab_info={"other": None})
    with pytest.raises(ValueError, match="names 'other', which is not warm-started"):
        model("new", "f", unknown).train(data(LABEL), steps=1)


def test_columns_of_other_labels_start_warm(tmp_path: Path) -> None:
    """The classes of the model are columns of the weights of its logits."""
    number = fc.numeric_column("number")
    for which, words in (("old", "0 1 2"), ("new", "2 5 0 1")):
        (tmp_path / which).write_text("\n".join(words.split()))
    first = est.DNNClassifier(
        [4], [number], str(tmp_path / "first"), n_classes=3, config=config()
    )
    first.train(data(THREE), steps=5)
    info = est.VocabInfo(str(tmp_path / "new"), 4, 0, str(tmp_path / "old"), axis=1)
    settings = est.WarmStartSettings(
        str(tmp_path / "first"), ".*/kernel", {"dnn/logits/kernel": info}
    )
    second = est.DNNClassifier(
        [4], [number], str(tmp_path / "second"), n_classes=4, config=config(),
        optimizer=tf.train.GradientDescentOptimizer(0.0), warm_start_from=settings,
    )  # fmt: skip
    second.train(data(THREE), steps=1)
    old = first.get_variable_value("dnn/logits/kernel")
    found = second.get_variable_value("dnn/logits/kernel")
    np.testing.assert_array_equal(found[:, [0, 2, 3]], old[:, [2, 0, 1]])
    assert np.all(found[:, 1] == 0)


def test_labels_are_checked(tmp_path: Path) -> None:
    model = est.LinearClassifier([fc.numeric_column("number")], str(tmp_path), config=config())
    with pytest.raises(errors.InvalidArgumentError, match="labels must be from 0 to 1"):
        model.train(data(LABEL + 1), steps=10)
    with pytest.raises(ValueError, match="Mismatched label shape"):
        model.train(data(np.stack([LABEL, LABEL], 1)), steps=1)
    with pytest.raises(ValueError, match="give a label_vocabulary"):
        model.train(data(WORD), steps=1)
    with pytest.raises(ValueError, match="must provide a labels Tensor"):
        model.train(lambda: ({"number": tf.constant([1.0])}, None), steps=1)
    with pytest.raises(ValueError, match="should be a dictionary"):
        model.train(lambda: (tf.constant([1.0]), tf.constant([1.0])), steps=1)
    wrong = est.LinearClassifier(
        [fc.numeric_column("number")], str(tmp_path), optimizer="Best", config=config()
    )
    with pytest.raises(ValueError, match="Supported names are"):
        wrong.train(data(LABEL), steps=1)


def test_regularizers_count(tmp_path: Path) -> None:
    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        made = tf.layers.dense(
            tf.reshape(features["number"], [-1, 1]), 1, name="line",
            kernel_regularizer=lambda w: 0.1 * tf.reduce_sum(tf.square(w)),
        )  # fmt: skip
        loss = tf.losses.mean_squared_error(tf.reshape(labels, [-1, 1]), made)
        total = tf.losses.get_total_loss()
        step = tf.train.GradientDescentOptimizer(0.2).minimize(total, tf.train.get_global_step())
        metrics = {"plain": tf.metrics.mean(loss)}
        return est.EstimatorSpec(mode, made, total, step, metrics)

    model = est.Estimator(model_fn, str(tmp_path), config())
    model.train(data(2 * NUMBER), steps=100)
    found = model.evaluate(data(2 * NUMBER, 1))
    kernel = model.get_variable_value("line/kernel")[0, 0]
    np.testing.assert_allclose(found["loss"] - found["plain"], 0.1 * kernel**2, rtol=1e-3)
    assert 1.5 < kernel < 1.95
