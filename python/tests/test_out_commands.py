"""`sidereal export`, `predict` and `evaluate`, on a model of clicks and the file it was trained on.
"""

from __future__ import annotations

import csv
import gzip
import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints_written import write_checkpoint

import sidereal as sr
from sidereal import _evaluate_command, _export_command, _predict_command, _rows, keras
from sidereal.checkpoint_management import remove_checkpoint

COMMANDS = {
    "evaluate": _evaluate_command.main,
    "export": _export_command.main,
    "predict": _predict_command.main,
}


@dataclass
class Trained:
    """A model with its folder of checkpoints, and a file of rows with what it predicts for them."""

    folder: Path
    file: Path
    predictions: np.ndarray
    auc: float
    log_loss: float
    values: dict[str, np.ndarray]

    @property
    def prefix(self) -> str:
        return str(self.folder / "model.ckpt-3")


def write_rows(path: Path, rows: int, seed: int) -> Path:
    rng = np.random.default_rng(seed)
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "city", "age", "device", "click"])
        for i in range(rows):
            city, device = rng.integers(0, 9), rng.integers(0, 4)
            click = int(rng.random() < 1 / (1 + np.exp(3 * np.sin(city + 2 * device))))
            words = [f"r{i}", f"city, {city}", int(rng.integers(1, 90)), f"d{device}", click]
            writer.writerow(words)
    return path


def make(folder: Path, protocol: str) -> Trained:
    file = write_rows(folder / "train.csv", 2000, 0)
    data = sr.data.csv(file, label="click", numeric=["age"], categorical=["city", "device"],
                       hash_buckets=50)  # fmt: skip
    model = sr.models.build("deepfm", data, embedding_dim=4, hidden=[8], seed=1)
    with sr.LocalCluster(ps=2, in_process=True, protocol=protocol) as cluster:
        model.fit(data, cluster=cluster, epochs=3, batch_size=64, verbose=False)
        found, predictions = model.evaluate(data), model.predict(data)
        values = {one.name: model.get_variable(one.name) for one in model.variables()}
    checkpoints = folder / "checkpoints"
    checkpoints.mkdir()
    model.describe(checkpoints, data)
    write_checkpoint(checkpoints / "model.ckpt-3", values)
    return Trained(checkpoints, file, predictions, found.auc, found.log_loss, values)


@pytest.fixture(scope="module", params=["grpc", "star_server"])
def trained(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[Trained]:
    yield make(tmp_path_factory.mktemp("trained"), request.param)


def run(capsys: pytest.CaptureFixture[str], *words: Any) -> str:
    """What a command prints, which must end well."""
    code = COMMANDS[str(words[0])]([str(word) for word in words[1:]])
    told = capsys.readouterr()
    assert code == 0, told.err
    return told.out


def fail(capsys: pytest.CaptureFixture[str], *words: Any) -> str:
    """What a command says that fails."""
    code = COMMANDS[str(words[0])]([str(word) for word in words[1:]])
    told = capsys.readouterr()
    assert code == 1 and not told.out
    start = f"sidereal {words[0]}: error: "
    assert told.err.startswith(start) and told.err.count("\n") == 1
    return told.err.removeprefix(start)


def columns_of(path: Path) -> dict[str, list[str]]:
    with open(path, newline="") as file:
        rows = list(csv.reader(file))
    return {name: [row[i] for row in rows[1:]] for i, name in enumerate(rows[0])}


def numbers(texts: Sequence[str]) -> np.ndarray:
    return np.array([float(text) for text in texts])


FILES = ("saved_model", "onnx", "checkpoint")


def exported(capsys: Any, trained: Trained, kind: str, path: Path, *words: Any) -> list[Any]:
    """The options that name a model, which is exported if need be."""
    if kind == "checkpoint":
        return ["--model", trained.folder / "model.json", "--checkpoint", trained.prefix]
    out = path / ("m.onnx" if kind == "onnx" else "m.srsm")
    told = run(capsys, "export", "--checkpoint", trained.folder, "--format", kind, "--out", out,
               *words)  # fmt: skip
    assert told == f"{out}\n"
    return ["--model", out]


@pytest.mark.parametrize("kind", FILES)
def test_predictions_of_files_are_those_of_the_cluster(
    trained: Trained, capsys: Any, tmp_path: Path, kind: str
) -> None:
    model = exported(capsys, trained, kind, tmp_path)
    out = tmp_path / "out.csv"
    told = run(capsys, "predict", *model, "--data", trained.file, "--out", out, "--keep",
               "id,city", "--batch-size", 300)  # fmt: skip
    assert told == f"2000 rows: {out}\n"
    found, given = columns_of(out), columns_of(trained.file)
    assert list(found) == ["id", "city", "prediction"]
    assert found["id"] == given["id"] and found["city"] == given["city"]
    np.testing.assert_allclose(numbers(found["prediction"]), trained.predictions, atol=1e-5)
    # Without labels, with the columns in another order, packed; nothing is kept.
    bare = tmp_path / "bare.csv.gz"
    with gzip.open(bare, "wt", newline="") as file:
        csv.writer(file).writerows(
            zip(*([name, *given[name]] for name in ("device", "id", "age", "city")))
        )
    told = run(capsys, "predict", *model, "--data", bare)
    head, *rest = told.splitlines()
    assert head == "prediction"
    np.testing.assert_allclose(numbers(rest), trained.predictions, atol=1e-5)
    # And how good they are.
    told = run(capsys, "evaluate", *model, "--data", trained.file, "--json", tmp_path / "e.json")
    line = json.loads((tmp_path / "e.json").read_text())
    assert line["rows"] == 2000
    assert line["auc"] == pytest.approx(trained.auc, abs=1e-5)
    assert line["log_loss"] == pytest.approx(trained.log_loss, abs=1e-5)
    assert told == f"auc {line['auc']:.6g}, log loss {line['log_loss']:.6g} on 2000 rows\n"


def test_a_file_is_read_piece_by_piece(
    trained: Trained, capsys: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(_rows, "_CHUNK_ROWS", 600)
    words = ["predict", "--model", trained.folder, "--batch-size", 250, "--data"]
    told = run(capsys, *words, trained.file, "--keep", "id")
    rows = [line.split(",") for line in told.splitlines()[1:]]
    assert [row[0] for row in rows] == [f"r{i}" for i in range(2000)]
    np.testing.assert_allclose(
        numbers([row[1] for row in rows]), trained.predictions, atol=1e-5
    )
    broken = tmp_path / "broken.csv"
    lines = trained.file.read_text().splitlines()
    city = lines[1234].split('"')[1]
    lines[1234] = f'r,"{city}",old,d1,1'
    broken.write_text("\n".join(lines) + "\n")
    told = fail(capsys, *words, broken, "--out", tmp_path / "out.csv")
    assert f"{broken}: row 1234: column 'age' is 'old'" in told
    lines[1234] = f'r,"{city}",3,d1,maybe'
    broken.write_text("\n".join(lines) + "\n")
    run(capsys, *words, broken, "--out", tmp_path / "out.csv")
    told = fail(capsys, "evaluate", "--model", trained.folder, "--data", broken)
    assert f"{broken}: row 1234" in told and "the label 'maybe'" in told


def test_another_process_predicts(trained: Trained, capsys: Any, tmp_path: Path) -> None:
    model = exported(capsys, trained, "onnx", tmp_path, "--external-data", 1024)
    assert (tmp_path / "m.onnx.data").stat().st_size > 1024
    words = [sys.executable, "-m", "sidereal", "predict", *model, "--data", trained.file]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = numbers(done.stdout.split()[1:])
    np.testing.assert_allclose(found, trained.predictions, atol=1e-5)


def test_tables_and_vectors_are_exported(trained: Trained, capsys: Any, tmp_path: Path) -> None:
    out = tmp_path / "t.safetensors"
    run(capsys, "export", "--checkpoint", trained.prefix, "--format", "tables", "--out", out)
    names = sr.TableFile.tables(out)
    assert len(names) == 2
    for name in names:
        np.testing.assert_array_equal(sr.TableFile(out, name).rows, trained.values[name])
    run(capsys, "export", "--checkpoint", trained.prefix, "--format", "tables", "--out", out,
        "--tables", names[1])  # fmt: skip
    assert sr.TableFile.tables(out) == [names[1]]
    model = exported(capsys, trained, "onnx", tmp_path, "--inputs", "vectors")
    told = fail(capsys, "predict", *model, "--data", trained.file)
    assert f"the input '{names[0]}'" in told or f"the input '{names[1]}'" in told
    assert "--inputs ids" in told


def test_a_model_without_a_description_takes_columns_by_name(capsys: Any, tmp_path: Path) -> None:
    @sr.function(input_signature=[
        sr.TensorSpec([None], sr.string, "word"), sr.TensorSpec([None, 2], sr.float32, "x"),
        sr.TensorSpec([None, 1], sr.int64, "n"),
    ])  # fmt: skip
    def f(word: Any, x: Any, n: Any) -> Any:
        total = sr.reduce_sum(x, axis=1) + sr.cast(sr.reshape(n, [-1]), sr.float32)
        return {"said": sr.strings.join([word, "!"]), "both": sr.stack([total, -total], axis=1)}

    sr.saved_model.save(f, tmp_path / "m.srsm")
    rows = tmp_path / "rows.csv"
    rows.write_text("n,x_1,x_0,word,label\n3,0.5,1,größe,1\n-1,2.25,0,\"a,b\",0\n")
    model = ["--model", tmp_path / "m.srsm", "--data", rows]
    told = run(capsys, "predict", *model, "--output", "both", "--keep", "all")
    assert told.splitlines() == [
        "n,x_1,x_0,word,label,prediction_0,prediction_1",
        "3,0.5,1,größe,1,4.5,-4.5", '-1,2.25,0,"a,b",0,1.25,-1.25',
    ]  # fmt: skip
    told = run(capsys, "predict", *model, "--output", "said")
    assert told.splitlines() == ["prediction", "größe!", '"a,b!"']
    told = fail(capsys, "predict", *model, "--out", tmp_path / "out.csv")
    assert "outputs both, said; name one with --output" in told
    rows.write_text("n,x_1,word\n3,0.5,a\n")
    told = fail(capsys, "predict", *model, "--output", "said")
    assert str(rows) in told and "no column 'x_0'" in told and "input 'x'" in told
    rows.write_text("n,x_1,x_0,word\n3,0.5,1,a\n2,0.5,one,a\n")
    told = fail(capsys, "predict", *model, "--output", "said")
    assert f"{rows}: row 2, column 'x_0' is 'one'" in told
    rows.write_text("n,x_1,x_0,word\n3,0.5\n")
    assert "row 1 has 2 fields" in fail(capsys, "predict", *model, "--output", "said")


def test_a_keras_model_predicts_by_a_checkpoint(capsys: Any, tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((2,), name="x"), keras.layers.Dense(1, name="d")])
    model.save(tmp_path / "m.keras")
    model.set_weights([np.array([[2.0], [3.0]], "f"), np.array([0.5], "f")])
    model.save_weights(tmp_path / "w-1")
    rows = tmp_path / "rows.csv"
    rows.write_text("x_0,x_1,label\n1,1,5\n0,2,7.5\n")
    words = ["--model", tmp_path / "m.keras", "--checkpoint", tmp_path / "w-1"]
    told = run(capsys, "predict", *words, "--data", rows)
    assert told.splitlines() == ["prediction", "5.5", "6.5"]
    assert run(capsys, "evaluate", *words, "--data", rows) == "mse 0.625, mae 0.75 on 2 rows\n"
    for kind, name in (("saved_model", "m.srsm"), ("onnx", "m.onnx")):
        run(capsys, "export", *words, "--format", kind, "--out", tmp_path / name)
        told = run(capsys, "predict", "--model", tmp_path / name, "--data", rows)
        assert told.splitlines() == ["prediction", "5.5", "6.5"]


def test_evaluations_beside_a_training(trained: Trained, capsys: Any, tmp_path: Path) -> None:
    """Each checkpoint as it comes; one is deleted under the evaluation, one damaged."""
    (tmp_path / "model.json").write_bytes((trained.folder / "model.json").read_bytes())
    lock = tmp_path / "checkpoint.lock"
    lock.write_text("process 1 on host\n")
    zeros = {name: np.zeros_like(value) for name, value in trained.values.items()}
    write_checkpoint(tmp_path / "model.ckpt-1", zeros)
    lines = tmp_path / "lines.json"
    codes = []

    def evaluated(count: int) -> None:
        """Waits until there are so many lines."""
        for _ in range(600):
            if lines.exists() and lines.read_text().count("\n") >= count:
                return
            ended.wait(0.1)
        raise AssertionError(lines.read_text())

    ended = threading.Event()

    def watch() -> None:
        codes.append(_evaluate_command.main([
            "--model", str(tmp_path), "--data", str(trained.file), "--watch", str(tmp_path),
            "--json", str(lines), "--timeout", "60",
        ]))  # fmt: skip
        ended.set()

    watching = threading.Thread(target=watch)
    watching.start()
    evaluated(1)
    # Gone as soon as it is named: passed over, by whoever looks or reads.
    write_checkpoint(tmp_path / "model.ckpt-2", trained.values)
    remove_checkpoint(tmp_path / "model.ckpt-2")
    write_checkpoint(tmp_path / "model.ckpt-3", trained.values)
    evaluated(2)
    lock.write_text("")  # It has ended.
    watching.join(60)
    assert codes == [0]
    found = [json.loads(line) for line in lines.read_text().splitlines()]
    names = [Path(one["checkpoint"]).name for one in found]
    assert names[0] == "model.ckpt-1" and names[-1] == "model.ckpt-3"
    assert found[0]["auc"] == 0.5 and found[-1]["auc"] == pytest.approx(trained.auc, abs=1e-5)
    told = capsys.readouterr()
    assert "model.ckpt-3: auc" in told.out


def test_the_last_checkpoint_is_not_missed(trained: Trained, capsys: Any, tmp_path: Path) -> None:
    """A training that ended before the evaluation began; a checkpoint that is damaged."""
    (tmp_path / "checkpoint.lock").write_text("")
    prefix = write_checkpoint(tmp_path / "model.ckpt-9", trained.values)
    words = ["evaluate", "--model", trained.folder, "--data", trained.file, "--watch", tmp_path]
    assert run(capsys, *words).startswith("model.ckpt-9: auc")
    data = next(tmp_path.glob("model.ckpt-9.data-*"))
    whole = data.read_bytes()
    data.write_bytes(bytes(len(whole)))
    code = _evaluate_command.main([str(word) for word in words[1:]])
    told = capsys.readouterr().err
    assert code == 1 and "model.ckpt-9 was deleted or is damaged, and is passed over" in told
    assert "no checkpoint in" in told
    data.write_bytes(whole)
    # One of another model is no accident.
    write_checkpoint(Path(prefix), {"x": np.zeros(3, "f")})
    assert "has no tensor" in fail(capsys, *words)


def test_the_watch_ends_by_step_or_time(trained: Trained, capsys: Any, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "model.ckpt-9", trained.values)
    words = ["evaluate", "--model", trained.folder, "--data", trained.file, "--watch", tmp_path]
    assert "ckpt-9" in run(capsys, *words, "--until-step", 9)
    code = _evaluate_command.main([str(word) for word in (*words[1:], "--timeout", 0.1)])
    told = capsys.readouterr()
    assert code == 1 and "ckpt-9" in told.out and "no new checkpoint" in told.err
    assert "--until-step" in told.err


def test_auc_is_exact() -> None:
    rng = np.random.default_rng(0)
    labels, scores = rng.integers(0, 2, 200), rng.integers(0, 20, 200)
    above = scores[labels == 1][:, None] - scores[labels == 0][None, :]
    wanted = np.mean((above > 0) + 0.5 * (above == 0))
    assert _evaluate_command.auc_of(labels, scores) == pytest.approx(wanted, abs=1e-12)
    assert np.isnan(_evaluate_command.auc_of(np.ones(3), np.arange(3)))


def test_errors_name_what_is_wrong(trained: Trained, capsys: Any, tmp_path: Path) -> None:
    data = ["--data", trained.file]
    assert "no model" in fail(capsys, "predict", "--model", tmp_path / "x.srsm", *data)
    (tmp_path / "x.txt").write_text("hello")
    assert "x.txt is no model" in fail(capsys, "predict", "--model", tmp_path / "x.txt", *data)
    told = fail(capsys, "predict", "--model", tmp_path, *data)
    assert "there is no description" in told and "model.json" in told
    model = ["--model", trained.folder]
    assert "there is no file" in fail(capsys, "predict", *model, "--data", tmp_path / "no.csv")
    told = fail(capsys, "predict", *model, *data, "--keep", "nobody")
    assert "no column 'nobody', which is to be kept; it has: id, city" in told
    rows = tmp_path / "rows.csv"
    rows.write_text("city,age\na,3\n")
    assert "no column 'device'" in fail(capsys, "predict", *model, "--data", rows)
    rows.write_text("city,age,device\na,old,d\n")
    told = fail(capsys, "predict", *model, "--data", rows, "--out", tmp_path / "out.csv")
    assert f"{rows}: row 1: column 'age' is 'old'" in told
    rows.write_text("city,age,device\n")
    assert "no rows" in fail(capsys, "predict", *model, "--data", rows)
    rows.write_text("city,age,device\na,3,d\n")
    assert "no column 'click'" in fail(capsys, "evaluate", *model, "--data", rows)
    told = fail(capsys, "export", "--checkpoint", trained.folder, "--out", tmp_path / "no" / "m")
    assert "no folder" in told
    told = fail(capsys, "export", "--checkpoint", tmp_path / "c-1", "--out", tmp_path / "m")
    assert "model.json" in told
    told = fail(capsys, "export", "--out", tmp_path / "m")
    assert "give --checkpoint" in told
    out = tmp_path / "out.csv"
    out.write_text("before")
    rows.write_text("city,age,device\na,3,d\na,x,d\n")
    fail(capsys, "predict", *model, "--data", rows, "--out", out, "--batch-size", 1)
    assert out.read_text() == "before"  # Whole, or not at all.
