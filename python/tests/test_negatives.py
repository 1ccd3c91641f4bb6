"""Rows that did not happen: drawn from all items, from those of a batch, or of rows before."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from session_servers import PATIENCE_S, PROGRAM

import sidereal as sr

ITEMS, FIRST = 20, 100
sample_negatives = sr.data.experimental.sample_negatives


def batches(sampler: str, rows: int = 400, count: int = 3, **options: Any) -> list[Any]:
    rng = np.random.default_rng(0)
    data = {
        "ids": np.stack([rng.integers(0, 9, rows), FIRST + rng.integers(0, 5, rows)], 1),
        "dense": rng.normal(size=(rows, 2)).astype(np.float32),
        "label": (rng.random(rows) < 0.4).astype(np.float32),
    }
    dataset = sr.data.Dataset.from_tensor_slices(data).batch(100)
    how = sample_negatives(count, "ids", ITEMS, field=1, first=FIRST, sampler=sampler, **options)
    return list(zip(dataset, dataset.apply(how)))


@pytest.mark.parametrize("sampler", ["uniform", "log_uniform", "in_batch"])
def test_each_positive_row_gets_negatives_with_another_item(sampler: str) -> None:
    items = []
    for given, made in batches(sampler):
        before = {name: value.numpy() for name, value in given.items()}
        after = {name: value.numpy() for name, value in made.items()}
        positive = np.flatnonzero(before["label"] > 0)
        source = np.repeat(positive, 3)
        for name, value in before.items():
            np.testing.assert_array_equal(after[name][:100], value)
            assert after[name].dtype == value.dtype
        negatives = after["ids"][100:]
        assert len(negatives) == len(source) and (after["label"][100:] == 0).all()
        np.testing.assert_array_equal(negatives[:, 0], before["ids"][source, 0])
        np.testing.assert_array_equal(after["dense"][100:], before["dense"][source])
        assert (negatives[:, 1] != before["ids"][source, 1]).all()
        assert negatives[:, 1].min() >= FIRST and negatives[:, 1].max() < FIRST + ITEMS
        items.append(negatives[:, 1] - FIRST)
    share = np.bincount(np.concatenate(items), minlength=ITEMS) / sum(map(len, items))
    if sampler == "in_batch":
        # Of the five that are there, and the next one where it was the row's own.
        assert share[:6].sum() == pytest.approx(1)
    elif sampler == "uniform":
        assert share[5:].min() > 0.01 and share[5:].max() < 0.12
    else:
        wanted = np.log((np.arange(ITEMS) + 2) / (np.arange(ITEMS) + 1)) / np.log(ITEMS + 1)
        np.testing.assert_allclose(share[8:], wanted[8:], atol=0.03)
        assert share[:5].sum() > 0.45


def test_weights_go_with_their_rows_and_items_may_be_a_column_of_their_own() -> None:
    data = ({"item": np.arange(6)}, np.float32([1, 0, 1, 0, 0, 0]), np.float32([1, 2, 3, 4, 5, 6]))
    dataset = sr.data.Dataset.from_tensor_slices(data).batch(6)
    (made,) = list(dataset.apply(sample_negatives(2, "item", 6, sampler="uniform")))
    inputs, labels, weights = made
    np.testing.assert_array_equal(labels.numpy(), [1, 0, 1, 0, 0, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(weights.numpy()[6:], [1, 1, 3, 3])
    assert (inputs["item"].numpy()[6:] != [0, 0, 2, 2]).all()


@pytest.mark.parametrize(("options", "said"), [
    ({"num_negatives": 0}, "must be positive"), ({"sampler": "best"}, "one of uniform"),
    ({"num_items": 1}, "another item"), ({"column": "items"}, "no column 'items'"),
])  # fmt: skip
def test_what_cannot_be_sampled_is_told(options: dict[str, Any], said: str) -> None:
    given = {"num_negatives": 2, "column": "ids", "num_items": 5, **options}
    dataset = sr.data.Dataset.from_tensor_slices({"ids": [1, 2], "label": [1.0, 0.0]}).batch(2)
    with pytest.raises(sr.errors.InvalidArgumentError, match=said):
        dataset.apply(sample_negatives(**given))


# --- Of files: --negatives and csv(negatives=).

USERS, TASTES = 10, 2


def write(path: Path, rows: int, seed: int = 0) -> Path:
    """What users took: each likes items of the parity of its number, and popular ones more."""
    rng = np.random.default_rng(seed)
    lines = ["label,user,item"]
    for _ in range(rows):
        user = int(rng.integers(0, USERS))
        lines.append(f"1,u{user},i{TASTES * min(int(rng.zipf(1.7)), 9) + user % TASTES}")
    path.write_text("\n".join(lines) + "\n")
    return path


def likes(predict: Any, features: sr.features.Features) -> tuple[float, float]:
    """What a model predicts of items that a user likes, and of the others."""
    users, items = (x.ravel() for x in np.meshgrid(np.arange(USERS), np.arange(TASTES, 20)))
    raw = {
        "user": np.array([f"u{x}" for x in users], object),
        "item": np.array([f"i{x}" for x in items], object),
    }
    ids = features.keras_model().predict(raw, verbose=0)["ids"]
    found = predict(ids=ids)["probability"].numpy().ravel()
    same = users % TASTES == items % TASTES
    return float(found[same].mean()), float(found[~same].mean())


@pytest.mark.parametrize("protocol", ["grpc", "star_server"])
@pytest.mark.parametrize("sampler", ["popularity", "uniform"])
def test_the_command_line_learns_from_what_happened_alone(
    tmp_path: Path, sampler: str, protocol: str
) -> None:
    file, folder = write(tmp_path / "a.csv", 3000), tmp_path / "c"
    told = [
        "train", "--data", file, "--valid", file, "--model", "fm", "--embedding-dim", 4,
        "--vocabulary", "item", "--negatives", f"item=4:sampler={sampler}", "--epochs", 3,
        "--batch-size", 100, "--lr", "0.05", "--checkpoint-dir", folder, "--json",
        tmp_path / "r.json", "--protocol", protocol, "-q",
    ]  # fmt: skip

    def run(*words: Any) -> Any:
        done = subprocess.run(
            [str(PROGRAM), *map(str, words)], capture_output=True, text=True, timeout=PATIENCE_S,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads((tmp_path / "r.json").read_text())

    first = run(*told)
    # The first rows have none of a value before them.
    assert 3 * 14900 < first["rows"] <= 3 * 15000
    # None are evaluated.
    assert [one["rows"] for one in first["valid"]] == [3000] * 3
    assert sr.data.DataSpec.of_dict(
        json.loads((folder / "model.json").read_text())["data"]
    ).negatives == sr.data.Negatives()  # fmt: skip
    predict = sr.models.ModelDescription.load(folder).function(folder)
    liked, others = likes(predict, sr.features.from_model(folder))
    assert liked > 2 * others
    # The file of the run has it.
    again = run("train", "--config", folder / "run.toml", "--checkpoint-dir", tmp_path / "d",
                "--epochs", 1)  # fmt: skip
    assert 14900 < again["rows"] == first["rows"] // 3


def test_fit_takes_negatives_and_evaluates_without(
    tmp_path: Path, cluster: sr.LocalCluster
) -> None:
    file = write(tmp_path / "a.csv", 1000)
    negatives = sr.data.Negatives("item", 2, "uniform")
    data = sr.data.csv(str(file), vocabularies=["item"], negatives=negatives)
    assert sr.data.DataSpec.from_json(data.to_json()) == data
    model = sr.models.build("fm", data, embedding_dim=4)
    result = model.fit(data, cluster=cluster, validation=data, epochs=2, verbose=False)
    assert result.rows == 2 * 3000 and [one.rows for one in result.validation] == [1000] * 2
    assert model.evaluate(data).rows == 1000
    assert model.predict(data).shape == (1000,)
    features = sr.features.Features(data)
    assert features.csv(str(file), negatives=negatives).inspect().fields == 2
    with pytest.raises(sr.errors.InvalidArgumentError, match="no categorical column 'price'"):
        sr.data.csv(str(file), negatives=sr.data.Negatives("price", 1)).inspect()
    with pytest.raises(sr.errors.InvalidArgumentError, match="which is a class"):
        sr.models.build("lr", data, loss="sparse_categorical_crossentropy", classes=3)
