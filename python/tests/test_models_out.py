"""Models as files for serving, of clusters and of checkpoints: predictions stay what they were."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints_written import write_checkpoint, write_dealt
from other_process import in_another_process

import sidereal as sr
from conftest import IDS, planted, small_model
from sidereal import errors, keras
from sidereal.keras import layers
from sidereal.models import ModelDescription

runtime = pytest.importorskip("onnxruntime", reason="skipped: onnxruntime is not installed")
onnx = pytest.importorskip("onnx", reason="skipped: onnx is not installed")

Clusters = Callable[..., sr.LocalCluster]


def run_onnx(path: Path, **inputs: Any) -> np.ndarray:
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert [one.name for one in session.get_inputs()] == list(inputs)
    return session.run(None, inputs)[0]


def values_of(model: sr.Model) -> dict[str, np.ndarray]:
    return {one.name: model.get_variable(one.name) for one in model.variables()}


@pytest.mark.parametrize("protocol", ["grpc", "star_server"])
def test_predictions_of_a_cluster_are_those_of_its_exports(
    clusters: Clusters, tmp_path: Path, protocol: str
) -> None:
    model = small_model()
    model.fit(planted(2000), cluster=clusters(ps=2, in_process=True, protocol=protocol),
              epochs=3, batch_size=32, verbose=False)  # fmt: skip
    ids = planted(200, seed=3)["ids"]
    ids[5, 1] = -1  # None: zeros.
    wanted = model.predict({"ids": ids})
    assert np.ptp(wanted) > 0.1
    tables = {name: model.get_variable(f"{name}/embeddings") for name in ("weights", "vectors")}

    model.export(tmp_path / "m.srsm")
    served = sr.saved_model.load(tmp_path / "m.srsm").signatures["serving_default"](ids=ids)
    np.testing.assert_allclose(served["probability"].numpy().ravel(), wanted, atol=1e-5)
    np.save(tmp_path / "ids.npy", ids)
    printed = in_another_process(
        "import sys, numpy, sidereal as sr\n"
        "loaded = sr.saved_model.load(sys.argv[1])\n"
        "print(loaded.serve(ids=numpy.load(sys.argv[2]))['probability'].numpy().ravel().tolist())",
        tmp_path / "m.srsm", tmp_path / "ids.npy",
    )  # fmt: skip
    np.testing.assert_allclose(json.loads(printed), wanted, atol=1e-5)

    model.export(tmp_path / "m.onnx", "onnx")
    np.testing.assert_allclose(run_onnx(tmp_path / "m.onnx", ids=ids).ravel(), wanted, atol=1e-5)

    model.export(tmp_path / "t.safetensors", "tables")
    looked_up = {}
    for name in ("weights", "vectors"):
        file = sr.TableFile(tmp_path / "t.safetensors", f"{name}/embeddings")
        np.testing.assert_array_equal(file.rows, tables[name])
        looked_up[f"{name}/embeddings"] = file.lookup(ids)
    model.export(tmp_path / "v.onnx", "onnx", inputs="vectors")
    found = run_onnx(tmp_path / "v.onnx", **looked_up).ravel()
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert (tmp_path / "v.onnx").stat().st_size < IDS * 8 * 4  # Without the tables.
    model.export(tmp_path / "v.srsm", inputs="vectors")
    served = sr.saved_model.load(tmp_path / "v.srsm").signatures["serving_default"](**looked_up)
    np.testing.assert_allclose(served["probability"].numpy().ravel(), wanted, atol=1e-5)


@pytest.mark.parametrize("parts", [1, 3])
def test_a_checkpoint_becomes_a_model_without_a_cluster(
    cluster: sr.LocalCluster, tmp_path: Path, parts: int
) -> None:
    model = small_model()
    model.fit(planted(2000), cluster=cluster, verbose=False)
    ids = planted(100, seed=3)["ids"]
    wanted = model.predict({"ids": ids})
    assert model.describe(tmp_path) == str(tmp_path / "model.json")
    prefix = write_dealt(tmp_path / "model.ckpt-7", values_of(model), parts)
    np.save(tmp_path / "ids.npy", ids)
    # The process that makes it of the checkpoint has no model, and no cluster.
    printed = in_another_process(
        "import sys, numpy, sidereal as sr\n"
        "folder, prefix = sys.argv[1:]\n"
        "ids = numpy.load(folder + '/ids.npy')\n"
        "sr.models.export(folder, prefix, folder + '/m.onnx', 'onnx')\n"
        "sr.models.export(folder, folder, folder + '/v.srsm', inputs='vectors')\n"
        "sr.models.export(folder, folder, folder + '/t', 'tables', tables=['vectors/embeddings'])\n"
        "f = sr.models.ModelDescription.load(folder).function(prefix)\n"
        "print(f(ids=ids)['probability'].numpy().ravel().tolist())",
        tmp_path, prefix,
    )  # fmt: skip
    np.testing.assert_allclose(json.loads(printed), wanted, atol=1e-5)
    np.testing.assert_allclose(run_onnx(tmp_path / "m.onnx", ids=ids).ravel(), wanted, atol=1e-5)
    assert sr.TableFile.tables(tmp_path / "t") == ["vectors/embeddings"]
    np.testing.assert_array_equal(
        sr.TableFile(tmp_path / "t").rows, model.get_variable("vectors/embeddings")
    )
    served = sr.saved_model.load(tmp_path / "v.srsm").signatures["serving_default"]
    assert set(served.inputs) == {"weights/embeddings", "vectors/embeddings"}


def test_what_a_description_says(tmp_path: Path) -> None:
    model = small_model()
    data = sr.data.DataSpec("csv", categorical=["a", "b", "c", "d"], files=["x.csv"])
    described = ModelDescription.load(model.describe(tmp_path / "m.json", data))
    assert described.is_binary and described.data is not None
    assert described.data.categorical == ["a", "b", "c", "d"] and described.data.files == []
    assert described.inputs == {"ids": (sr.int64, (-1, 4))}
    assert described.tables == ["vectors/embeddings", "weights/embeddings"]
    assert {one.ids for one in described.lookups} == {"ids"}
    assert set(described.variables) == {one.name for one in model.variables()}
    again = ModelDescription.from_json(described.to_json())
    assert again.variables == described.variables and again.lookups == described.lookups


@pytest.mark.parametrize("kind", sr.models.names())
def test_click_models_are_described_by_how_they_were_built(
    cluster: sr.LocalCluster, tmp_path: Path, kind: str
) -> None:
    schema = sr.data.Schema(fields=3, rows=50, dense_width=2)
    model = sr.models.build(kind, schema, embedding_dim=4, hidden=[5], cross_layers=2, seed=3)
    rng = np.random.default_rng(0)
    data = {
        "ids": rng.integers(0, 50, (64, 3)), "dense": rng.normal(size=(64, 2)).astype("f"),
        "label": rng.integers(0, 2, 64),
    }  # fmt: skip
    model.fit(data, cluster=cluster, batch_size=16, epochs=3, verbose=False)
    (tmp_path / "model.json").write_text(json.dumps({
        "format": "sidereal.model", "version": 1,
        "click_model": {"kind": kind, "embedding_dim": 4, "hidden": [5], "cross_layers": 2,
                        "schema": {"fields": 3, "rows": 50, "dense_width": 2}},
    }))  # fmt: skip
    write_checkpoint(tmp_path / "model.ckpt-1", values_of(model))
    described = ModelDescription.load(tmp_path)
    columns = {name: data[name] for name in described.inputs}
    found = described.function(tmp_path)(**columns)["probability"].numpy()
    np.testing.assert_allclose(found.ravel(), model.predict(data), atol=1e-5)


def test_models_with_texts_and_bodies_are_described(
    cluster: sr.LocalCluster, tmp_path: Path
) -> None:
    known = sr.lookup.StaticHashTable(
        sr.lookup.KeyValueTensorInitializer(["red", "größe"], [1, 2]), default_value=0
    )
    model = sr.Model(seed=1)
    color, x = model.input("color", sr.string), model.input("x", sr.float32, (2,))
    rows = layers.Embedding(3, 4, name="e")(sr.cast(known.lookup(color), sr.int64))
    y = layers.Dense(1, name="d")(sr.concat([rows, x], axis=1))
    y = sr.cond(sr.reduce_sum(x) > 0, lambda: y * 2.0, lambda: y - 1.0)
    model.compile(y, loss=sr.reduce_mean(y**2))
    model.initialize(cluster)
    description = model.describe(tmp_path)
    write_checkpoint(tmp_path / "c-1", values_of(model))
    function = ModelDescription.load(description).function(tmp_path)
    for sign in (1, -1):
        data = {"color": np.array(["red", "größe", "?"]),
                "x": sign * np.ones((3, 2), "f")}  # fmt: skip
        color_in = sr.constant(data["color"].tolist())
        found = function(color=color_in, x=data["x"])["prediction"].numpy()
        assert len(np.unique(found)) == 3
        np.testing.assert_allclose(found, model.predict(data), atol=1e-5)
    # Ids that the model computes come with nobody's column.
    assert [(one.input, one.ids) for one in ModelDescription.load(tmp_path).lookups] == [
        ("e/embeddings", "")
    ]


def test_strings_go_in_and_come_out(tmp_path: Path) -> None:
    words = ["red", "größe", "blau"]
    look = layers.StringLookup(vocabulary=words)
    back = layers.StringLookup(vocabulary=words, invert=True)
    weights = sr.Variable(np.eye(4, dtype="f")[::-1], name="w")

    @sr.function(input_signature=[sr.TensorSpec([None], sr.string, "word")])
    def other(word: Any) -> Any:
        rows = sr.matmul(sr.one_hot(look(word), 4), weights)
        return {"word": back(sr.argmax(rows, axis=1)), "score": sr.reduce_max(rows, axis=1)}

    class Holder:
        pass

    holder: Any = Holder()
    holder.other, holder.weights = other, weights
    sr.saved_model.save(holder, tmp_path / "m.srsm", signatures={"other": other})
    wanted = other(sr.constant([*words, "?"]))["word"].numpy().tolist()
    printed = in_another_process(
        "import sys, sidereal as sr\n"
        "f = sr.saved_model.load(sys.argv[1]).signatures['other']\n"
        "found = f(word=['red', 'größe', 'blau', '?'])\n"
        "print([one.hex() for one in found['word'].numpy().tolist()])",
        tmp_path / "m.srsm",
    )  # fmt: skip
    assert [bytes.fromhex(one) for one in json.loads(printed.replace("'", '"'))] == wanted
    assert wanted[0] == "größe".encode() and len(set(wanted)) == 4


def test_a_keras_model_becomes_onnx_by_ids_and_by_vectors(tmp_path: Path) -> None:
    ids, x = keras.Input((3,), dtype="int64", name="ids"), keras.Input((2,), name="x")
    rows = layers.Flatten()(layers.Embedding(20, 4, name="e")(ids))
    y = layers.Dense(1, activation="sigmoid")(layers.Concatenate()([rows, x]))
    model = keras.Model({"ids": ids, "x": x}, y)
    rng = np.random.default_rng(0)
    data = {"ids": rng.integers(0, 20, (9, 3)), "x": rng.normal(size=(9, 2)).astype("f")}
    wanted = model.predict(data, verbose=0)
    model.export(tmp_path / "m.onnx", format="onnx")
    np.testing.assert_allclose(run_onnx(tmp_path / "m.onnx", **data), wanted, atol=1e-5)
    model.export(tmp_path / "v.onnx", format="onnx", inputs="vectors")
    model.export(tmp_path / "t", format="tables")
    table = sr.TableFile(tmp_path / "t")
    given = {"x": data["x"], table.name: table.lookup(data["ids"])}
    np.testing.assert_allclose(run_onnx(tmp_path / "v.onnx", **given), wanted, atol=1e-5)
    with pytest.raises(TypeError, match="takes no inputs"):
        model.export(tmp_path / "m.srsm", inputs="vectors")


def test_large_values_are_in_a_file_beside_the_model(
    cluster: sr.LocalCluster, tmp_path: Path
) -> None:
    model = small_model()
    model.fit(planted(500), cluster=cluster, verbose=False)
    ids = planted(50, seed=3)["ids"]
    limit = IDS * 8 * 4
    model.export(tmp_path / "m.onnx", "onnx", external_data_bytes=limit)
    data = tmp_path / "m.onnx.data"
    assert data.stat().st_size == limit
    np.testing.assert_array_equal(
        np.fromfile(data, "f").reshape(IDS, 8), model.get_variable("vectors/embeddings")
    )
    assert (tmp_path / "m.onnx").stat().st_size < limit + 4000
    wanted = model.predict({"ids": ids})
    np.testing.assert_allclose(run_onnx(tmp_path / "m.onnx", ids=ids).ravel(), wanted, atol=1e-5)
    model.export(tmp_path / "all.onnx", "onnx", external_data_bytes=1)
    np.testing.assert_allclose(run_onnx(tmp_path / "all.onnx", ids=ids).ravel(), wanted, atol=1e-5)
    stored = onnx.load(tmp_path / "all.onnx", load_external_data=False).graph.initializer
    offsets = [int(one.external_data[1].value) for one in stored if one.external_data]
    assert len(offsets) == 2 and all(at % 4096 == 0 for at in offsets)
    model.export(tmp_path / "small.onnx", "onnx")
    assert not (tmp_path / "small.onnx.data").exists()


def test_an_export_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    good = sr.Variable(np.ones((4, 4), "f"), name="w")

    @sr.function(input_signature=[sr.TensorSpec([None, 4], sr.float32)])
    def f(x: Any) -> Any:
        return sr.matmul(x, good)

    @sr.function(input_signature=[sr.TensorSpec([None, 4], sr.float32)])
    def bad(x: Any) -> Any:
        return sr.matmul(x, good) + sr.random.uniform([4])

    sr.onnx.export(f, tmp_path / "m.onnx", external_data_bytes=16)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    good.assign(np.zeros((4, 4), "f"))
    with pytest.raises(errors.UnimplementedError, match="random"):
        sr.onnx.export(bad, tmp_path / "m.onnx", external_data_bytes=16)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    with pytest.raises(errors.InvalidArgumentError, match="no rows of a table by ids"):
        sr.onnx.export(f, tmp_path / "v.onnx", inputs="vectors")


def test_errors_say_what_to_do(cluster: sr.LocalCluster, tmp_path: Path) -> None:
    model = small_model()
    model.initialize(cluster)
    values = values_of(model)
    model.describe(tmp_path)
    described = ModelDescription.load(tmp_path)
    with pytest.raises(errors.NotFoundError, match="checkpoint"):
        described.function(tmp_path)
    other = write_checkpoint(tmp_path / "a-1", {**values, "head/bias": np.zeros(3, "f")})
    with pytest.raises(errors.InvalidArgumentError, match=r"a-1: 'head/bias' is .*model\.json"):
        described.function(other)
    del values["head/bias"]
    other = write_checkpoint(tmp_path / "b-1", values)
    with pytest.raises(errors.NotFoundError, match=r"b-1 has no tensor 'head/bias', which"):
        described.function(other)
    with pytest.raises(errors.InvalidArgumentError, match="format is 'pb'"):
        model.export(tmp_path / "m", "pb")
    with pytest.raises(errors.NotFoundError, match="no table 'x'; it has: vectors/embeddings"):
        model.export(tmp_path / "t", "tables", tables=["x"])
    with pytest.raises(errors.NotFoundError, match=r"description of a model .*nothing/model\.json"):
        (tmp_path / "nothing").mkdir()
        ModelDescription.load(tmp_path / "nothing")
    text = described.to_json()
    for broken, error in (
        ("{", errors.InvalidArgumentError),
        ("[]", errors.InvalidArgumentError),
        (text.replace('"version": 1', '"version": 2'), errors.InvalidArgumentError),
        (text.replace('"graphs"', '"graph"'), errors.DataLossError),
        (text.replace('"ids/embeddings"', '"x"').replace('"features"', '"f"'),
         errors.DataLossError),
        (json.dumps({**json.loads(text), "functions": "AAAA"}), errors.Error),
    ):  # fmt: skip
        with pytest.raises(error, match="it.json"):
            ModelDescription.from_json(broken, "it.json")
