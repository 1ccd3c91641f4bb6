"""What models learn: probabilities, numbers, classes, orders, and several of these at once; by
`sidereal train`, models.build(), sidereal.Model and Keras, beside torch's numbers."""

from __future__ import annotations

import csv
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from session_servers import PROGRAM

import sidereal as sr
from sidereal import _export_command, _predict_command, keras
from sidereal.errors import InvalidArgumentError

torch = pytest.importorskip("torch")

PROTOCOLS = ["grpc", "star_server"]
ROWS, WIDTH = 64, 4


def drawn(seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    dense = rng.normal(size=(ROWS, WIDTH)).astype(np.float32)
    return {
        "dense": dense,
        "click": (dense[:, 0] + rng.normal(size=ROWS) > 0).astype(np.float32),
        "amount": (dense @ [1, -2, 0.5, 0] + 1).astype(np.float32),
        "kind": rng.integers(0, 3, ROWS).astype(np.float32),
        "grade": rng.integers(0, 4, ROWS).astype(np.float32),
        "group": rng.integers(0, 8, ROWS),
        "sample_weight": rng.random(ROWS).astype(np.float32),
    }


def torch_loss(loss: str, logits: Any, labels: Any, group: Any, weight: Any) -> Any:
    f = torch.nn.functional
    if loss == "pairwise_logistic":
        pairs = (labels[:, None] > labels[None]) & (group[:, None] == group[None])
        losses = f.softplus(logits.T - logits) * pairs * weight[:, None]
        return losses.sum() / pairs.sum().clamp(min=1)
    if loss == "sparse_categorical_crossentropy":
        rows = f.cross_entropy(logits, labels.long(), reduction="none")
    elif loss == "mse":
        rows = (logits[:, 0] - labels) ** 2
    elif loss == "mae":
        rows = (logits[:, 0] - labels).abs()
    else:
        rows = f.binary_cross_entropy_with_logits(logits[:, 0], labels, reduction="none")
    return (rows * weight).mean()


LABELS = {
    "binary_crossentropy": "click", "mse": "amount", "sparse_categorical_crossentropy": "kind",
    "pairwise_logistic": "grade",
}  # fmt: skip


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("loss", list(LABELS))
def test_a_step_of_a_built_model_is_torchs(loss: str, protocol: str) -> None:
    given = drawn()
    ranks, classes = loss == "pairwise_logistic", 3 if loss.startswith("sparse") else 0
    schema = sr.data.Schema(dense_width=WIDTH, has_sample_weight=True, has_group=ranks)
    model = sr.models.build(
        "lr", schema, optimizer=sr.optimizers.SGD(0.5), loss=loss, classes=classes
    )
    data = {name: given[name] for name in ("dense", "sample_weight")}
    data["label"] = given[LABELS[loss]]
    if ranks:
        data["group"] = given["group"]
    weights = torch.zeros((WIDTH, max(classes, 1)), requires_grad=True)
    bias = torch.zeros(max(classes, 1), requires_grad=True)
    there = {name: torch.tensor(value) for name, value in given.items()}
    for _ in range(2):
        logits = there["dense"] @ weights + bias
        value = torch_loss(
            loss, logits, torch.tensor(data["label"]), there["group"], there["sample_weight"]
        )
        grads = torch.autograd.grad(value, [weights, bias], allow_unused=True)
        with torch.no_grad():
            weights -= 0.5 * grads[0]
            bias -= 0.5 * (0 if grads[1] is None else grads[1])
    with sr.LocalCluster(protocol=protocol) as cluster:
        result = model.fit(data, cluster=cluster, epochs=2, batch_size=ROWS, shuffle=False,
                           verbose=False, record_losses=True)  # fmt: skip
        assert result.losses[-1] == pytest.approx(float(value.detach()), rel=1e-4)
        found = model.get_variable("linear/dense/kernel")
        np.testing.assert_allclose(found, weights.detach().numpy(), rtol=1e-4, atol=1e-5)
        predicted = model.predict(data)
    logits = (there["dense"] @ weights + bias).detach()
    wanted = {
        "binary_crossentropy": logits.sigmoid()[:, 0], "mse": logits[:, 0],
        "pairwise_logistic": logits[:, 0],
        "sparse_categorical_crossentropy": logits.softmax(1),
    }[loss]  # fmt: skip
    np.testing.assert_allclose(predicted, wanted.numpy(), rtol=1e-4, atol=1e-5)


def compiled(**options: Any) -> Any:
    model = sr.Model(seed=1)
    x = model.input("dense", sr.float32, (WIDTH,))
    if options.pop("weighted", False):
        model.input("sample_weight", sr.float32)
    if options.pop("grouped", False):
        model.input("group", sr.int64)
    heads = {
        name: keras.layers.Dense(units, kernel_initializer="zeros", name=f"{name}_head")(x)
        for name, units in options.pop("heads").items()
    }
    model.compile(heads if len(heads) > 1 else next(iter(heads.values())),
                  sr.optimizers.SGD(0.5), **options)  # fmt: skip
    return model


def test_several_outputs_and_losses_of_a_model_by_one_call() -> None:
    given = drawn()
    losses = {
        "click": "binary_crossentropy", "amount": "mse", "kind": "sparse_categorical_crossentropy",
        "grade": "pairwise_logistic",
    }  # fmt: skip
    model = compiled(
        heads={"click": 1, "amount": 1, "kind": 3, "grade": 1}, loss=losses,
        loss_weights={"amount": 0.25}, weighted=True, grouped=True,
    )  # fmt: skip
    there = {name: torch.tensor(value) for name, value in given.items()}
    kernels = {
        name: torch.zeros((WIDTH, 3 if name == "kind" else 1), requires_grad=True)
        for name in losses
    }
    total = 0.0
    for name, loss in losses.items():
        value = torch_loss(loss, there["dense"] @ kernels[name], there[name], there["group"],
                           there["sample_weight"])  # fmt: skip
        total = total + value * (0.25 if name == "amount" else 1)
    grads = torch.autograd.grad(total, list(kernels.values()))
    with sr.LocalCluster(in_process=True) as cluster:
        result = model.fit(given, cluster=cluster, batch_size=ROWS, shuffle=False, verbose=False,
                           record_losses=True)  # fmt: skip
        assert result.losses[0] == pytest.approx(float(total.detach()), rel=1e-5)
        for name, grad in zip(kernels, grads):
            found = model.get_variable(f"{name}_head/kernel")
            np.testing.assert_allclose(found, -0.5 * grad.numpy(), rtol=1e-4, atol=1e-6)
        predicted = model.predict(given)
        loss_now = model.evaluate(given, batch_size=ROWS).loss
    assert predicted.shape == (ROWS, 6)
    np.testing.assert_allclose(predicted[:, 2:5].sum(1), 1, rtol=1e-5)
    assert loss_now < float(total.detach())


@pytest.mark.parametrize("loss", ["mae", "function"])
def test_a_model_takes_names_and_functions(loss: str) -> None:
    given = drawn()
    data = {"dense": given["dense"], "label": given["amount"]}
    how: Any = loss
    if loss == "function":
        how = lambda labels, x: sr.abs(sr.reshape(x, [-1]) - labels)  # noqa: E731
    model = compiled(heads={"label": 1}, loss=how)
    with sr.LocalCluster(in_process=True) as cluster:
        result = model.fit(data, cluster=cluster, batch_size=ROWS, verbose=False,
                           record_losses=True)  # fmt: skip
    assert result.losses[0] == pytest.approx(np.abs(given["amount"]).mean(), rel=1e-5)


@pytest.mark.parametrize(("options", "said"), [
    ({"heads": {"a": 1}, "loss": "hinge"}, "the loss of 'label' is 'hinge'; it is one of"),
    ({"heads": {"a": 1, "b": 1}}, "come with a loss"),
    ({"heads": {"a": 1, "b": 1}, "loss": {"a": "mse"}}, "losses of a, and outputs of a, b"),
    ({"heads": {"a": 1, "b": 1}, "loss": "mse", "loss_weights": {"c": 1}}, "loss_weights names c"),
    ({"heads": {"a": 1}, "loss": "mse", "loss_weights": {"a": 1}}, "are of several outputs"),
])  # fmt: skip
def test_what_a_model_cannot_minimize_is_told(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        compiled(**options)


def write(path: Path, rows: int, seed: int = 0) -> Path:
    """Queries of eight rows, of which click, buy and stay depend on numbers and a city."""
    rng = np.random.default_rng(seed)
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["x", "y", "city", "query", "click", "buy", "price", "kind", "grade"])
        for i in range(rows):
            x, y = rng.normal(size=2)
            city = int(rng.integers(0, 4))
            score = 2 * x - y + city - 1.5
            kind = int(np.argmax([x, y, np.sin(city)]))
            writer.writerow([
                round(x, 4), round(y, 4), f"c{city}", f"q{i // 8}", int(score > 0),
                int(score + 2 * y > 1), round(score * 3 + 10, 3), kind,
                int(np.clip(np.round(score), 0, 4)),
            ])  # fmt: skip
    return path


def program(*words: Any) -> dict[str, Any]:
    told = [str(PROGRAM), "train", *(str(word) for word in words)]
    done = subprocess.run(told, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return {"said": done.stdout}


def predictions_of(folder: Path, file: Path, out: Path) -> np.ndarray:
    assert _predict_command.main(
        ["--model", str(folder), "--data", str(file), "--out", str(out)]
    ) == 0  # fmt: skip
    with open(out, newline="") as rows:
        table = list(csv.reader(rows))
    return np.array(table[1:], np.float64)


def column(file: Path, name: str) -> np.ndarray:
    with open(file, newline="") as rows:
        return np.array([float(row[name]) for row in csv.DictReader(rows)])


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("loss", ["mse", "sparse_categorical_crossentropy", "pairwise_logistic",
                                  "mmoe"])  # fmt: skip
def test_the_command_line_learns_every_objective(
    tmp_path: Path, loss: str, protocol: str
) -> None:
    train_file, test_file = write(tmp_path / "a.csv", 2400), write(tmp_path / "b.csv", 400, 1)
    folder, result = tmp_path / "c", tmp_path / "r.json"
    own = {
        "mse": ["--label", "price", "--model", "wdl", "--loss", "mse"],
        "sparse_categorical_crossentropy": [
            "--label", "kind", "--model", "wdl", "--loss", loss, "--classes", 3,
        ],
        "pairwise_logistic": [
            "--label", "grade", "--model", "deepfm", "--loss", loss, "--group", "query",
        ],
        "mmoe": ["--label", "click", "--targets", "buy", "--model", "mmoe", "--experts", 3],
    }[loss]  # fmt: skip
    program(
        "--data", train_file, "--test", test_file, "--numeric", "x,y", "--categorical", "city",
        "--vocabulary", "city", *own, "--hidden", "16,8", "--epochs", 12, "--batch-size", 64,
        "--lr", "0.02", "--embedding-dim", 4, "--checkpoint-dir", folder, "--json", result,
        "--protocol", protocol, "--shuffle-rows", 0, "-q",
    )  # fmt: skip
    figures = json.loads(result.read_text())
    found = predictions_of(folder, test_file, tmp_path / "out.csv")
    if loss == "mse":
        error = ((found[:, 0] - column(test_file, "price")) ** 2).mean()
        assert error == pytest.approx(figures["test"]["loss"], rel=1e-3)
        assert error < 0.3 * column(test_file, "price").var()
    elif loss.startswith("sparse"):
        assert found.shape == (400, 3)
        assert (found.argmax(1) == column(test_file, "kind")).mean() > 0.8
    elif loss == "mmoe":
        assert found.shape == (400, 2)
        for place, name in enumerate(["click", "buy"]):
            assert ((found[:, place] > 0.5) == column(test_file, name)).mean() > 0.85
    else:
        grades = column(test_file, "grade").reshape(-1, 8)
        scores = found[:, 0].reshape(-1, 8)
        higher = grades[:, :, None] > grades[:, None]
        assert (scores[:, :, None] > scores[:, None])[higher].mean() > 0.9
    out = tmp_path / "m.srsm"
    assert _export_command.main(["--checkpoint", str(folder), "--out", str(out)]) == 0
    features = sr.features.from_model(folder)
    raw = features.read(test_file)
    columns = sr.saved_model.load(out).signatures["columns"]
    served = columns(**{k: v.tolist() if v.dtype == object else v for k, v in raw.items()})
    (answer,) = served.values()
    np.testing.assert_allclose(answer.numpy().reshape(found.shape), found, atol=1e-5)


def test_weights_of_classes_are_those_of_rows(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", 200)
    options: dict[str, Any] = {"label": "click", "numeric": ["x", "y"], "categorical": ["city"],
                               "hash_buckets": 10, "shuffle_rows": 0}  # fmt: skip
    by_class = sr.data.csv(file, class_weight={0: 1, 1: 5}, **options)
    (batch,) = list(sr.data.Dataset.from_spec(by_class))
    label = batch["label"].numpy()
    np.testing.assert_array_equal(batch["sample_weight"].numpy(), np.where(label > 0, 5, 1))
    model = sr.models.build("lr", by_class, optimizer=sr.optimizers.SGD(0.5))
    plain = sr.models.build("lr", sr.data.csv(file, **options), optimizer=sr.optimizers.SGD(0.5))
    with sr.LocalCluster(in_process=True) as cluster:
        model.fit(by_class, cluster=cluster, epochs=3, verbose=False)
        plain.fit(sr.data.csv(file, **options), cluster=cluster, epochs=3, verbose=False)
        assert model.predict(by_class).mean() > plain.predict(by_class).mean() + 0.02


def test_keras_learns_several_labels_of_files(tmp_path: Path) -> None:
    file, path = write(tmp_path / "a.csv", 600), tmp_path / "features.toml"
    path.write_text(
        'label = "click"\n[columns.x]\ntype = "numeric"\n[columns.y]\ntype = "numeric"\n'
        '[columns.city]\ntype = "categorical"\nvocabulary = "auto"\n'
    )
    features = sr.features.load(path, file, targets=["buy", "price"], binary_label=False)
    known = keras.applications.Features(1, features.rows, dense_width=2, embedding_dim=4)
    model = keras.applications.MMoE(known, (8,), num_tasks=3, classifier_activation=None)
    bce = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.02), [bce, bce, "mse"], loss_weights=[1, 1, 0.02])
    data = features.dataset(file, batch_size=50, binary_label=False)
    history = model.fit(data, epochs=4, verbose=0).history["loss"]
    assert history[-1] < 0.7 * history[0]
