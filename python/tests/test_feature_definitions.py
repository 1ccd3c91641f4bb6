"""One definition of features: what the reader, `sidereal train`, Keras layers, feature columns and
exported models make of the same rows is the same, through all kinds of columns."""

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
from sidereal import _evaluate_command, _export_command, _predict_command, keras
from sidereal.data import DataSpec, Sequence, Vocabulary
from sidereal.errors import InvalidArgumentError

PROTOCOLS = ["grpc", "star_server"]
ITEMS = [f"i{k}" for k in range(12)]
FEATURES = """
label = "click"
hash_buckets = 40
crosses = [["city", "age"], ["city", "device"]]

[columns.price]
type = "numeric"
transform = "{transform}"
[columns.age]
type = "numeric"
transform = "minmax"
default = 33
buckets = 4
[columns.dwell]
type = "bucketized"
boundaries = [0.5, 2, 8]
[columns.city]
type = "categorical"
vocabulary = "auto"
max_tokens = 5
num_oov_indices = 2
default = "c 0"
[columns.device]
type = "categorical"
[columns.tags]
type = "categorical"
separator = "|"
max_length = 3
vocabulary = "tags.txt"
[columns.genres]
type = "categorical"
separator = ";"
max_length = 2
[columns.item]
type = "categorical"
vocabulary = "auto"
[columns.history]
type = "sequence"
separator = "|"
max_length = 4
padding = "pre"
truncating = "pre"
like = "item"
[columns.words]
type = "sequence"
separator = " "
max_length = 3
"""


def write(path: Path, rows: int, seed: int = 0) -> Path:
    """Rows of which a click depends on the item, the history and the city; each kind of cell is
    empty in some."""
    rng = np.random.default_rng(seed)
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["click", "price", "age", "dwell", "city", "device", "tags", "genres",
                         "item", "history", "words", "note"])  # fmt: skip
        for i in range(rows):
            item = int(rng.zipf(1.6)) % len(ITEMS)
            history = rng.integers(0, len(ITEMS), rng.integers(0, 7))
            city = int(rng.integers(0, 7))
            score = 2 * (item in history) + np.sin(item) + (city == 2) - 1
            writer.writerow([
                int(rng.random() < 1 / (1 + np.exp(-3 * score))),
                "" if i % 11 == 5 else float(np.round(np.exp(rng.normal(4, 2)), 2)),
                "" if i % 7 == 3 else int(rng.integers(10, 90)),
                "" if i % 9 == 1 else round(float(rng.exponential(3)), 2),
                "" if i % 13 == 2 else f"c {city}", f"d{rng.integers(0, 9)}",
                "|".join(f"t{k}" for k in rng.integers(0, 6, rng.integers(0, 5))),
                ";".join(f"g{k} " for k in rng.integers(0, 4, rng.integers(0, 4))),
                ITEMS[item], "|".join(ITEMS[k] for k in history),
                " ".join(f"w{k}" for k in rng.integers(0, 30, rng.integers(0, 5))), f"n{i}",
            ])  # fmt: skip
    return path


def define(folder: Path, hash_: str = "xxh3", transform: str = "auto") -> Path:
    (folder / "tags.txt").write_text("t3\nt1\nt2\n")
    path = folder / "features.toml"
    path.write_text(f'hash = "{hash_}"\n' + FEATURES.format(transform=transform))
    return path


def read_by(spec: DataSpec) -> dict[str, np.ndarray]:
    """All rows as the reader of trainings gives them."""
    parts = list(sr.data.Dataset.from_spec(spec, 64))
    return {name: np.concatenate([p[name].numpy() for p in parts]) for name in parts[0]}


def tensors(raw: dict[str, np.ndarray]) -> dict[str, Any]:
    return {k: v if v.dtype != object else sr.constant(v.tolist()) for k, v in raw.items()}


@pytest.mark.parametrize("hash_", ["xxh3", "farmhash"])
@pytest.mark.parametrize("transform", ["auto", "quantile", "log1p", "standard", "none"])
def test_ids_are_equal_to_the_bit_and_numbers_nearly(
    tmp_path: Path, hash_: str, transform: str
) -> None:
    train_file, test_file = write(tmp_path / "a.csv", 400), write(tmp_path / "b.csv", 150, 1)
    features = sr.features.load(define(tmp_path, hash_, transform), train_file)
    wanted = read_by(features.csv(test_file, shuffle_rows=0))
    assert wanted["ids"].shape == (150, 12) and wanted["history"].shape == (150, 4)
    assert wanted["ids"].max() < features.rows and wanted["words"].max() < features.rows
    raw = features.read(test_file)
    assert set(raw) == set(features.inputs)

    made = features.keras_model().predict(raw, verbose=0)
    for name in ("ids", "history", "words"):
        np.testing.assert_array_equal(made[name], wanted[name], err_msg=name)
    np.testing.assert_allclose(made["dense"], wanted["dense"], rtol=1e-6, atol=1e-6)

    columns = features.feature_columns()
    given = tensors(raw)
    for place, name in enumerate(features.numbers):
        layer = keras.layers.DenseFeatures([columns[name]])
        np.testing.assert_allclose(layer(given).numpy()[:, 0], wanted["dense"][:, place], rtol=1e-6)
    ends = {name: (first, size) for name, first, size in features.data.fields()}
    start = 0
    for name in [*features.fields, *features.sequences]:
        first, size = ends["item" if name == "history" else name]
        key = f"{name}_ids" if name in features.numbers else name
        counts = keras.layers.DenseFeatures(
            [sr.feature_column.indicator_column(columns[key])]
        )(given).numpy()  # fmt: skip
        if name in features.sequences:
            ids = wanted[name]
        else:
            width = {"tags": 3, "genres": 2}.get(name, 1)
            ids = wanted["ids"][:, start : start + width]
            start += width
        local = [[x - first for x in row if x >= 0] for row in ids.tolist()]
        expected = np.stack([np.bincount(row, minlength=size) for row in local])
        np.testing.assert_array_equal(counts, expected, err_msg=name)


def test_farmhash_ids_are_those_of_kerass_own_layers(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", 100)
    features = sr.features.load(define(tmp_path, "farmhash"), file)
    layers = features.keras_layers()
    kinds = {name: type(layer).__name__ for name, layer in layers.items()}
    assert kinds == {
        "city": "StringLookup", "device": "Hashing", "tags": "StringLookup", "genres": "Hashing",
        "item": "StringLookup", "age": "Discretization", "dwell": "Discretization",
        "city*age": "HashedCrossing", "city*device": "HashedCrossing", "history": "StringLookup",
        "words": "Hashing", "price_number": "Normalization", "age_number": "Normalization",
    }  # fmt: skip
    wanted, raw = read_by(features.csv(file, shuffle_rows=0)), features.read(file)
    firsts = {name: first for name, first, _ in features.data.fields()}
    device = keras.layers.Hashing(40)(raw["device"]).numpy()
    np.testing.assert_array_equal(wanted["ids"][:, 1] - firsts["device"], device)
    city = np.where(raw["city"] == "", "c 0", raw["city"]).astype(object)
    both = keras.layers.HashedCrossing(40)([city, raw["device"]]).numpy()
    np.testing.assert_array_equal(wanted["ids"][:, -1] - firsts["city*device"], both)


def test_a_vocabulary_is_that_of_adapt(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", 300)
    spec = sr.data.csv(
        file, label="click", categorical=["city"],
        vocabularies={"city": Vocabulary("city", 5, 2)},
    ).with_statistics()  # fmt: skip
    with open(file, newline="") as rows:
        cities = [row["city"] for row in csv.DictReader(rows)]
    layer = keras.layers.StringLookup(max_tokens=5, num_oov_indices=2)
    layer.adapt([city for city in cities if city])
    (found,) = spec.vocabularies
    assert found.tokens == layer.get_vocabulary(include_special_tokens=False)
    assert spec.fields() == [("city", 0, 5)] and spec.inspect().rows == 5


def program(*words: Any) -> subprocess.CompletedProcess[str]:
    told = [str(PROGRAM), *(str(word) for word in words)]
    return subprocess.run(told, capture_output=True, text=True, timeout=300, check=False)


def predictions_of(path: Path) -> np.ndarray:
    with open(path, newline="") as file:
        return np.array([float(row["prediction"]) for row in csv.DictReader(file)])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_is_trained_on_the_command_line_is_served_by_raw_columns(
    tmp_path: Path, protocol: str
) -> None:
    train_file, test_file = write(tmp_path / "a.csv", 1500), write(tmp_path / "b.csv", 300, 1)
    folder = tmp_path / "checkpoints"
    done = program(
        "train", "--data", train_file, "--test", test_file, "--features", define(tmp_path),
        "--model", "deepfm", "--embedding-dim", 4, "--hidden", 8, "--epochs", 4, "--batch-size",
        64, "--lr", "0.02", "--checkpoint-dir", folder, "--json", tmp_path / "r.json",
        "--protocol", protocol, "-q",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    auc = json.loads((tmp_path / "r.json").read_text())["test_auc"]
    assert auc > 0.6
    # The vocabularies are in the description, and beside the checkpoint.
    features = sr.features.from_model(folder)
    known = {one.column: one for one in features.data.vocabularies}
    assert known["tags"].tokens == ["t3", "t1", "t2"] and len(known["city"].tokens) == 3
    assert (folder / "vocabulary_item.txt").read_text().split() == known["item"].tokens
    assert set(known["item"].tokens) == set(ITEMS)

    out, model = tmp_path / "out.csv", tmp_path / "m.srsm"
    assert _predict_command.main(
        ["--model", str(folder), "--data", str(test_file), "--out", str(out)]
    ) == 0  # fmt: skip
    found = predictions_of(out)
    assert _evaluate_command.main(
        ["--model", str(folder), "--data", str(test_file), "--json", str(tmp_path / "e.json")]
    ) == 0  # fmt: skip
    figures = json.loads((tmp_path / "e.json").read_text())
    assert figures["auc"] == pytest.approx(auc, abs=1e-4)
    assert _export_command.main(["--checkpoint", str(folder), "--out", str(model)]) == 0
    columns = sr.saved_model.load(model).signatures["columns"]
    given = {k: v.tolist() if v.dtype == object else v for k, v in features.read(test_file).items()}
    served = columns(**given)["probability"].numpy().reshape(-1)
    np.testing.assert_allclose(served, found, atol=1e-5)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_training_goes_on_with_its_vocabularies(tmp_path: Path, protocol: str) -> None:
    file = write(tmp_path / "a.csv", 300)
    words = ["train", "--data", file, "--label", "click", "--categorical", "item,city",
             "--vocabulary", "item", "--vocabulary", "city=auto:max=4", "--model", "lr",
             "--sequence", "history:|:3:truncating=pre:like=item",
             "--checkpoint-dir", tmp_path / "c", "--protocol", protocol, "-q"]  # fmt: skip
    assert program(*words).returncode == 0
    before = sr.features.from_model(tmp_path / "c").data.vocabularies
    assert before[1].max_tokens == 4 and len(before[1].tokens) == 3
    # On rows with other frequencies, by what is known of the old ones.
    write(file, 300, 7)
    done = program(*words, "--epochs", 2)
    assert done.returncode == 0 and "went on from" in done.stdout, done.stderr
    assert sr.features.from_model(tmp_path / "c").data.vocabularies == before
    other = tmp_path / "other.txt"
    other.write_text("".join(f"{token}\n" for token in reversed(before[0].tokens)))
    words[words.index("item")] = "item"
    words[words.index("--vocabulary") + 1] = f"item={other}"
    done = program(*words, "--epochs", 3)
    assert done.returncode == 1 and "another vocabulary of column 'item'" in done.stderr


def test_model_fit_takes_the_definition(tmp_path: Path) -> None:
    train_file, test_file = write(tmp_path / "a.csv", 800), write(tmp_path / "b.csv", 200, 1)
    features = sr.features.load(define(tmp_path), train_file)
    data = features.csv(train_file)
    model = sr.models.build("wdl", data, embedding_dim=4, hidden=(8,))
    with sr.LocalCluster(in_process=True) as cluster:
        model.fit(data, cluster=cluster, epochs=3, batch_size=50, verbose=False,
                  checkpoint_dir=tmp_path / "c")  # fmt: skip
        found = model.predict(features.csv(test_file))
        model.export(tmp_path / "m.srsm", data=data)
    assert (tmp_path / "c" / "vocabulary_item.txt").exists()
    columns = sr.saved_model.load(tmp_path / "m.srsm").signatures["columns"]
    raw = features.read(test_file)
    served = columns(**{k: v.tolist() if v.dtype == object else v for k, v in raw.items()})
    np.testing.assert_allclose(
        served["probability"].numpy().reshape(-1), found, atol=1e-5
    )  # fmt: skip


def test_a_vocabulary_that_build_learns_is_that_of_fit(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", 300)
    data = sr.data.csv(
        file, label="click", categorical=["item"], vocabularies=["item"],
        sequences={"history": Sequence("", "|", 3, like="item")},
    )  # fmt: skip
    model = sr.models.build("fm", data, embedding_dim=2)
    (table,) = (v for v in model.variables() if v.name == "embedding/table")
    assert table.shape == (1 + len(ITEMS), 2)
    with sr.LocalCluster(in_process=True) as cluster:
        model.fit(data, cluster=cluster, verbose=False)
        assert len(model.predict(data)) == 300


@pytest.mark.parametrize("hash_", ["xxh3", "farmhash"])
def test_a_keras_din_takes_raw_columns_where_it_is_served(tmp_path: Path, hash_: str) -> None:
    train_file, test_file = write(tmp_path / "a.csv", 600), write(tmp_path / "b.csv", 80, 1)
    features = sr.features.load(define(tmp_path, hash_), train_file)
    known = keras.applications.Features(
        12, features.rows, dense_width=2, time=4, padded=True, embedding_dim=4
    )  # fmt: skip
    # The sequence "words" is not read by it.
    candidate = 1 + 1 + 3 + 2
    model = keras.applications.DIN(known, (8,), candidate=candidate, attention_units=(8,))
    model.compile(keras.optimizers.Adam(0.02), "binary_crossentropy", metrics=["AUC"])
    history = model.fit(features.dataset(train_file, batch_size=64), epochs=4, verbose=0)
    assert history.history["loss"][-1] < history.history["loss"][0]
    inputs = read_by(features.csv(test_file, shuffle_rows=0))
    wanted = model.predict({k: inputs[k] for k in ("ids", "dense", "history")}, verbose=0)

    serving = features.serving_model(model)
    raw = features.read(test_file)
    np.testing.assert_allclose(serving.predict(raw, verbose=0), wanted, atol=1e-6)
    serving.save(tmp_path / "m.keras")
    again = keras.models.load_model(tmp_path / "m.keras")
    np.testing.assert_allclose(again.predict(raw, verbose=0), wanted, atol=1e-6)
    serving.export(tmp_path / "m.srsm")
    served = sr.saved_model.load(tmp_path / "m.srsm").signatures["serving_default"]
    assert set(served.inputs) == set(raw)
    given = {k: v.tolist() if v.dtype == object else v for k, v in raw.items()}
    (answer,) = served(**given).values()
    np.testing.assert_allclose(answer.numpy(), wanted, atol=1e-6)


def test_feature_columns_are_saved_with_their_layer(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", 50)
    features = sr.features.load(define(tmp_path), file)
    columns = features.feature_columns()
    dense = [columns["price"], sr.feature_column.embedding_column(columns["history"], 3)]
    model = keras.Sequential([keras.layers.DenseFeatures(dense), keras.layers.Dense(1)])
    given = {
        k: v if v.dtype != object else np.array(v.tolist()) for k, v in features.read(file).items()
    }
    wanted = model.predict(given, verbose=0)
    model.save(tmp_path / "m.keras")
    again = keras.models.load_model(tmp_path / "m.keras")
    np.testing.assert_allclose(again.predict(given, verbose=0), wanted, rtol=1e-6)


def test_what_a_definition_lacks_is_told(tmp_path: Path) -> None:
    path = define(tmp_path)
    with pytest.raises(InvalidArgumentError, match="leaves scales, boundaries or vocabularies"):
        sr.features.load(path)
    path.write_text('[columns.c]\ntype = "categorical"\nvocabulary = ["a", "b"]\n')
    features = sr.features.load(path)
    assert features.rows == 3 and "1 fields of 3 ids" in repr(features)
    other = keras.Sequential([keras.Input((2,), name="x"), keras.layers.Dense(1)])
    with pytest.raises(InvalidArgumentError, match="nothing could be given for x"):
        features.serving_model(other)
    again = '[columns.a]\ntype = "categorical"\n[columns.b]\ntype = "categorical"\n'
    path.write_text('crosses = [["a", "b"], ["b", "a"]]\n' + again)
    assert sr.features.load(path).fields == ["a", "b", "a*b", "b*a"]
    path.write_text('crosses = [["a", "b"], ["a", "b"]]\n' + again)
    with pytest.raises(InvalidArgumentError, match=r"the field 'a\*b' is named twice"):
        sr.features.load(path)
    # The same when data is read by it.
    (tmp_path / "rows.csv").write_text("label,a,b\n1,x,y\n")
    with pytest.raises(InvalidArgumentError, match=r"the cross 'a\*b' is named twice"):
        sr.data.csv(str(tmp_path / "rows.csv"), features=path).inspect()
    with pytest.raises(ValueError, match="max_length is 0"):
        keras.layers.SplitText("|", 0)
    with pytest.raises(ValueError, match="padding is 'left'"):
        keras.layers.SplitText("|", 3, padding="left")


@pytest.mark.parametrize(("words", "said"), [
    (["--vocabulary", "item=none.txt"], "cannot read the vocabulary file none.txt"),
    (["--vocabulary", "town"], "column 'town' has a vocabulary and is neither"),
    (["--vocabulary", "item:oov=0"], "it must be 1 or more"),
    (["--sequence", "history|5"], "is not COLUMN:CHARACTER:N"),
    (["--sequence", "history:|:5:like=town"], "no categorical column 'town'"),
    (["--format", "libsvm", "--vocabulary", "item"], "--vocabulary is for tables with named"),
    (["--class-weight", "1=-2"], "is not negative"),
    (["--targets", "price"], "mmoe learns several"),
    (["--group", "city"], "groups of rows are of the loss pairwise_logistic"),
    (["--loss", "sparse_categorical_crossentropy"], "say how many there are"),
    (["--negatives", "item"], "is not COLUMN=N"),
    (["--negatives", "price=2", "--numeric", "price"], "no categorical column 'price', which is"),
    (["--negatives", "item=2:sampler=uniform"], "from a vocabulary, and it has none"),
    (["--negatives", "item=2", "--format", "libsvm"], "--negatives is for tables with named"),
    (["--negatives", "item=2", "--loss", "sparse_categorical_crossentropy", "--classes", "3"],
     "the label 0, which is a class of"),
    (["--negatives", "item=2", "--loss", "pairwise_logistic", "--group", "city"],
     "go with no group ('city')"),
])  # fmt: skip
def test_wrong_options_are_told(tmp_path: Path, words: list[str], said: str) -> None:
    file = write(tmp_path / "a.csv", 20)
    done = program("train", "--data", file, "--label", "click", "--model", "lr", *words)
    assert done.returncode in (1, 2) and said in done.stderr, done.stderr
