"""What columns of files become before a model sees them: scaled numbers, buckets, crosses, labels,
weights; the same in the reader, on the command line, and in what is exported."""

from __future__ import annotations

import csv
import gzip
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from session_servers import PROGRAM, ROOT

import sidereal as sr
from sidereal import _evaluate_command, _export_command, _predict_command
from sidereal.data import DataSpec
from sidereal.errors import InvalidArgumentError

ADULT = ROOT.parent / "shared" / "data" / "adult"
NAMES = [
    "age", "workclass", "fnlwgt", "education", "education_num", "marital", "occupation",
    "relationship", "race", "sex", "capital_gain", "capital_loss", "hours", "country", "income",
]  # fmt: skip
NUMERIC = ["age", "fnlwgt", "education_num", "capital_gain", "capital_loss", "hours"]
PROTOCOLS = ["grpc", "star_server"]


def adult(name: str, path: Path) -> Path:
    """A file of the data set with a header and its texts as they are, but for the dot behind the
    labels of the test rows."""
    with gzip.open(ADULT / name, "rt") as file:
        rows = [line.strip().rstrip(".").split(", ") for line in file]
    with open(path, "w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(NAMES)
        writer.writerows(row for row in rows if len(row) == len(NAMES))
    return path


def program(*words: Any) -> subprocess.CompletedProcess[str]:
    told = [str(PROGRAM), *(str(word) for word in words)]
    return subprocess.run(told, capture_output=True, text=True, timeout=300, check=False)


def train(*words: Any) -> str:
    done = program("train", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def adult_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    if not ADULT.is_dir():
        pytest.skip(f"no data at {ADULT}")
    folder = tmp_path_factory.mktemp("adult")
    return adult("adult.data.gz", folder / "train.csv"), adult("adult.test.gz", folder / "test.csv")


def predictions_of(path: Path) -> np.ndarray:
    with open(path, newline="") as file:
        return np.array([float(row["prediction"]) for row in csv.DictReader(file)])


def raw_columns(path: Path, spec: DataSpec) -> dict[str, Any]:
    """The columns of a file as the signature `columns` takes them."""
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file, delimiter=spec.delimiter))
    bucketized = [one.column for one in spec.bucketized]
    numbers = {
        name: np.array([float(row[name]) if row[name].strip() else np.nan for row in rows],
                       np.float32)
        for name in dict.fromkeys([*spec.numeric, *bucketized])
    }  # fmt: skip
    return {**numbers, **{name: [row[name] for row in rows] for name in spec.categorical}}


def check_same_predictions(folder: Path, file: Path, auc: float | None, tmp_path: Path) -> None:
    """Those of predict, evaluate, and of the saved model fed raw columns."""
    out, model = tmp_path / "out.csv", tmp_path / "m.srsm"
    assert _predict_command.main(
        ["--model", str(folder), "--data", str(file), "--out", str(out)]
    ) == 0  # fmt: skip
    found = predictions_of(out)
    assert _evaluate_command.main(
        ["--model", str(folder), "--data", str(file), "--json", str(tmp_path / "e.json")]
    ) == 0  # fmt: skip
    figures = json.loads((tmp_path / "e.json").read_text())
    if auc is not None:
        assert figures["auc"] == pytest.approx(auc, abs=1e-4)
    assert _export_command.main(["--checkpoint", str(folder), "--out", str(model)]) == 0
    description = sr.models.ModelDescription.load(folder)
    assert description.data is not None
    columns = sr.saved_model.load(model).signatures["columns"]
    given = raw_columns(file, description.data)
    assert set(columns.inputs) == set(given)
    served = columns(**given)["probability"].numpy().reshape(-1)
    np.testing.assert_allclose(served, found, atol=1e-5)
    assert figures["rows"] == len(served)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_raw_adult_needs_nothing_but_the_names_of_its_numbers(
    adult_files: tuple[Path, Path], tmp_path: Path, protocol: str
) -> None:
    train_file, test_file = adult_files
    folder = tmp_path / "checkpoints"
    train("--data", train_file, "--test", test_file, "--label", "income", "--positive", ">50K",
          "--numeric", ",".join(NUMERIC), "--model", "wdl", "--epochs", 5, "--batch-size", 256,
          "--checkpoint-dir", folder, "--json", tmp_path / "r.json", "--protocol", protocol,
          "--hash-buckets", 1000, "--hidden", "64,32", "-q")  # fmt: skip
    auc = json.loads((tmp_path / "r.json").read_text())["test_auc"]
    assert auc >= 0.90
    check_same_predictions(folder, test_file, auc, tmp_path)


def write(path: Path, rows: int, seed: int = 0, delimiter: str = ",") -> Path:
    """Rows with a number of a heavy tail, empty cells, several values in a cell, a rating that
    depends on all of it, and a weight."""
    rng = np.random.default_rng(seed)
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(["amount", "age", "tags", "city", "rating", "w", "note"])
        for i in range(rows):
            amount, age = float(np.round(np.exp(rng.normal(8, 3)), 2)), int(rng.integers(10, 90))
            tags = [f"t{k}" for k in rng.integers(0, 6, rng.integers(0, 4))]
            city = int(rng.integers(0, 5))
            score = np.log(amount) - 8 + 2 * ("t1" in tags) + np.sin(city + age // 20)
            rating = min(5, max(1, round(3 + score + rng.normal())))
            writer.writerow([
                "" if i % 11 == 5 else amount, "" if i % 7 == 3 else age, "|".join(tags),
                "" if i % 13 == 2 else f"c {city}", rating, rng.integers(0, 3), f"n{i}",
            ])  # fmt: skip
    return path


FEATURES = """
label = "rating>=4"
weight = "w"
hash_buckets = 50
crosses = [["city", "age"]]

[columns.amount]
type = "numeric"
[columns.age]
type = "numeric"
transform = "minmax"
default = 33
buckets = 4
[columns.tags]
type = "categorical"
separator = "|"
max_length = 2
[columns.city]
type = "categorical"
default = "c 0"
"""


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("transform", ["auto", "quantile", "log1p", "none"])
def test_every_kind_of_column_is_served_as_it_was_trained(
    tmp_path: Path, protocol: str, transform: str
) -> None:
    train_file, test_file = write(tmp_path / "a.csv", 2000), write(tmp_path / "b.csv", 500, 1)
    features = tmp_path / "features.toml"
    features.write_text(f'numeric_transform = "{transform}"\n' + FEATURES)
    folder = tmp_path / "checkpoints"
    train("--data", train_file, "--test", test_file, "--features", features, "--model", "deepfm",
          "--embedding-dim", 4, "--hidden", 8, "--epochs", 2, "--batch-size", 64, "--lr", "0.01",
          "--checkpoint-dir", folder, "--json", tmp_path / "r.json", "--protocol", protocol,
          "-q")  # fmt: skip
    auc = json.loads((tmp_path / "r.json").read_text())["test_auc"]
    if transform == "auto":
        assert auc > 0.8
    data = sr.models.ModelDescription.load(folder).data
    assert data is not None
    first = "log1p_standard" if transform == "auto" else transform
    assert [one.kind for one in data.transforms] == [first, "minmax"]
    check_same_predictions(folder, test_file, auc, tmp_path)


def test_options_say_what_a_file_of_features_says(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", 300, delimiter=";")
    features = tmp_path / "features.toml"
    features.write_text(FEATURES)
    by_file = sr.data.csv(file, features=features, delimiter=";")
    by_options = sr.data.csv(
        file, label="rating>=4", weight="w", numeric=["amount", "age"],
        categorical=["tags", "city"], buckets={"age": 4}, multi_hot={"tags": ("|", 2)},
        crosses=[["city", "age"]], default={"age": 33, "city": "c 0"}, hash_buckets=50,
        delimiter=";",
    )  # fmt: skip
    assert by_file.column_transforms == [("age", "minmax")]
    told = DataSpec(**{**vars(by_file), "column_transforms": []})
    assert told == by_options
    assert DataSpec.from_json(by_options.to_json()) == by_options
    known = by_file.with_statistics()
    assert [one.kind for one in known.transforms] == ["log1p_standard", "minmax"]
    assert len(known.bucketized[0].boundaries) == 3
    with pytest.raises(InvalidArgumentError, match="leave out --numeric"):
        sr.data.csv(file, features=features, numeric=["age"], delimiter=";")
    with pytest.raises(ValueError, match="leave positive out"):
        sr.data.csv(file, label="rating>=4", positive="5", delimiter=";")


def test_batches_have_what_the_spec_says(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("y,x,w\nyes,1,2\nno,3,0.5\nyes,,1\n")
    spec = sr.data.csv(file, label="y", positive="yes", weight="w", numeric=["x"], shuffle_rows=0)
    (batch,) = list(sr.data.Dataset.from_spec(spec))
    np.testing.assert_array_equal(batch["label"].numpy(), [1, 0, 1])
    np.testing.assert_array_equal(batch["sample_weight"].numpy(), [2, 0.5, 1])
    np.testing.assert_allclose(batch["dense"].numpy(), [[-1], [1], [0]], atol=1e-6)
    # Scaled as other data.
    other = tmp_path / "b.csv"
    other.write_text("y,x,w\nyes,9,2\n")
    like = sr.data.csv(other, label="y", positive="yes", weight="w", numeric=["x"])
    (batch,) = list(sr.data.Dataset.from_spec(like.with_statistics(like=spec.with_statistics())))
    np.testing.assert_allclose(batch["dense"].numpy(), [[7]], atol=1e-6)


def test_a_model_scales_all_data_as_that_it_was_trained_on(tmp_path: Path) -> None:
    train_file, test_file = write(tmp_path / "a.csv", 1000), write(tmp_path / "b.csv", 30, 1)
    options: dict[str, Any] = {
        "label": "rating>=4", "numeric": ["amount", "age"], "categorical": ["city"],
        "hash_buckets": 50,
    }  # fmt: skip
    data, few = sr.data.csv(train_file, **options), sr.data.csv(test_file, **options)
    model = sr.models.build("lr", data, optimizer=sr.optimizers.SGD(0.5))
    with sr.LocalCluster(in_process=True) as cluster:
        model.fit(data, cluster=cluster, batch_size=50, validation=few, verbose=False)
        found = model.predict(few)
        known = data.with_statistics()
        np.testing.assert_array_equal(found, model.predict(few.with_statistics(like=known)))
        assert np.abs(found - model.predict(few.with_statistics())).max() > 1e-3
        path = model.describe(tmp_path / "model.json", data)
    described = sr.models.ModelDescription.load(path).data
    assert described is not None and described.transforms == known.transforms


def test_a_row_of_weight_0_teaches_nothing(tmp_path: Path) -> None:
    rows = ["y,c,w"]
    for i in range(400):
        rows.append(f"{i % 2},c{i % 4},{1 if i % 4 < 2 else 0}")
    file = tmp_path / "a.csv"
    file.write_text("\n".join(rows) + "\n")
    spec = sr.data.csv(file, label="y", weight="w", hash_buckets=500)
    model = sr.models.build("lr", spec, optimizer=sr.optimizers.SGD(0.5))
    with sr.LocalCluster(in_process=True) as cluster:
        model.fit(spec, cluster=cluster, epochs=5, batch_size=20, shuffle=False, verbose=False)
        found = dict(zip((f"c{i}" for i in range(4)), model.predict(spec)[:4]))
        bias = 1 / (1 + np.exp(-float(model.get_variable("linear/out/bias").reshape(-1)[0])))
    assert found["c0"] < bias - 0.1 < bias + 0.1 < found["c1"]
    np.testing.assert_allclose([found["c2"], found["c3"]], bias, atol=1e-6)


def test_ids_are_those_of_the_reader(tmp_path: Path) -> None:
    texts = ["", "a", "Rome", "é", "x" * 300]
    file = tmp_path / "a.csv"
    file.write_text("label,p,q\n" + "".join(f"0,{text},{text}\n" for text in texts))
    spec = sr.data.csv(file, hash_buckets=777, shuffle_rows=0)
    (batch,) = list(sr.data.Dataset.from_spec(spec))
    made = [sr.strings.category_id(texts, field, 777).numpy() for field in range(2)]
    np.testing.assert_array_equal(batch["ids"].numpy(), np.stack(made, 1))
    with pytest.raises(InvalidArgumentError, match="field -1 of 777 buckets"):
        sr.strings.category_id(texts, -1, 777)


def test_a_high_loss_names_the_column(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", 500)
    words = ["--data", file, "--label", "rating>=4", "--numeric", "age,amount", "--model", "wdl",
             "--hidden", "8", "--hash-buckets", 100]  # fmt: skip
    told = train(*words, "--numeric-transform", "none")
    warning = re.search(r"sidereal: warning: the loss is .*column '(\w+)' has numbers up to", told)
    assert warning is not None and warning[1] == "amount", told
    assert "warning" not in train(*words)


def test_what_inspect_proposes_trains(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", 2000)
    done = program("inspect", file, "--label", "rating", "--ps", 2)
    assert done.returncode == 0, done.stderr
    text = done.stdout
    assert "with 17 numbers and what adam keeps of them: " in text and "each of 2 ps" in text
    assert re.search(r'\[columns."amount"\]  # numbers, .* % missing\ntype = "numeric"', text)
    assert re.search(r'separator = "\|"\nmax_length = 3', text)
    assert re.search(r'\[columns."note"\].*\ntype = "ignored"', text)
    features = tmp_path / "features.toml"
    features.write_text(text)
    told = train("--data", file, "--test", file, "--features", features, "--model", "lr",
                 "--epochs", 5, "--batch-size", 64, "--lr", "0.05", "-q")  # fmt: skip
    auc = re.search(r"test: auc (0\.\d+)", told)
    assert auc is not None and float(auc[1]) > 0.8


@pytest.mark.parametrize(("words", "said"), [
    (["--label", "rating>="], "must be a column, or a comparison"),
    (["--label", "rating>=4", "--positive", "5"], "leave --positive out"),
    (["--label", "rating", "--multi-hot", "tags|3"], "is not COLUMN:CHARACTER:N"),
    (["--label", "rating", "--multi-hot", "tags:·:3"], "is not COLUMN:CHARACTER:N"),
    (["--label", "rating>=4", "--buckets", "age"], "is not COLUMN=VALUE"),
    (["--label", "rating>=4", "--buckets", "age=1"], "it must be from 2 to"),
    (["--label", "rating>=4", "--numeric", "city"], "'city' has no number among the first"),
    (["--label", "rating>=4", "--cross", "city"], "two columns or more"),
    (["--label", "rating>=4", "--cross", "city*age,city*age"], "'city*age' is named twice"),
    (["--label", "rating>=4", "--features", "none.toml"], "cannot read the file of features"),
    (["--label", "rating>=4", "--weight", "kg"], "no column 'kg'"),
    (["--format", "libsvm", "--weight", "w"], "--weight is for tables with named columns"),
])  # fmt: skip
def test_wrong_options_are_told_before_anything_is_started(
    tmp_path: Path, words: list[str], said: str
) -> None:
    done = program("train", "--data", write(tmp_path / "a.csv", 20), *words)
    assert done.returncode in (1, 2) and said in done.stderr, done.stderr


def test_a_training_goes_on_with_the_columns_it_began_with(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", 300)
    words = ["--data", file, "--label", "rating>=4", "--numeric", "age,amount", "--model", "lr",
             "--hash-buckets", 50, "--checkpoint-dir", tmp_path / "c", "-q"]  # fmt: skip
    train(*words)
    before = sr.models.ModelDescription.load(tmp_path / "c").data
    # On new rows, by what is known of the old ones.
    write(file, 300, 1)
    assert "went on from" in train(*words, "--epochs", 2)
    after = sr.models.ModelDescription.load(tmp_path / "c").data
    assert before is not None and after is not None and before.transforms == after.transforms
    data = sr.data.csv(file, label="rating>=4", numeric=["age", "amount"], hash_buckets=50)
    model = sr.models.build("lr", data)
    with sr.LocalCluster(in_process=True) as cluster:
        model.fit(data, cluster=cluster, epochs=3, verbose=False, checkpoint_dir=tmp_path / "c")
    after = sr.models.ModelDescription.load(tmp_path / "c").data
    assert after is not None and before.transforms == after.transforms
    done = program("train", *words, "--epochs", 4, "--numeric-transform", "minmax")
    assert done.returncode == 1 and "--resume never" in done.stderr, done.stderr
