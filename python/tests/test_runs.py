"""Files of runs: `sidereal train --config`, what a training writes about itself, `sidereal runs`
and `compare`, the weights of the best epoch, and figures of groups."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from session_servers import PATIENCE_S, PROGRAM

import sidereal as sr
from conftest import small_model
from sidereal import (
    _compare_command,
    _config_file,
    _evaluate_command,
    _plot,
    _predict_command,
    _runs_command,
)

PROTOCOLS = ("grpc", "star_server")


def write_clicks(path: Path, rows: int, seed: int, flipped: bool = False) -> Path:
    """Rows whose label follows from the city. Of `flipped` ones it is the other label: whoever
    learns gets worse at them."""
    rng = np.random.default_rng(seed)
    lines = ["user,city,label"]
    for _ in range(rows):
        city = int(rng.integers(0, 8))
        label = int(rng.random() < (0.8 if city < 4 else 0.2))
        lines.append(f"u{rng.integers(0, 30)},c{city},{1 - label if flipped else label}")
    path.write_text("\n".join(lines) + "\n")
    return path


def train(*words: Any, folder: Path, code: int = 0) -> str:
    done = subprocess.run(
        [str(PROGRAM), "train", *map(str, words)], capture_output=True, text=True, cwd=folder,
        timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def losses(folder: Path, name: str) -> list[float]:
    return [float(line) for line in (folder / name).read_text().split()]


SMALL = (
    "--model", "lr", "--hash-buckets", 64, "--batch-size", 32, "--seed", 5, "--optimizer", "sgd",
    "--lr", 0.5,
)  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    write_clicks(folder / "train.csv", 600, 1)
    write_clicks(folder / "valid.csv", 300, 2)
    write_clicks(folder / "flipped.csv", 300, 3, flipped=True)
    return folder


# --- --config and the file of a run.


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_file_of_a_run_repeats_it(files: Path, tmp_path: Path, protocol: str) -> None:
    for name in ("train.csv", "valid.csv"):
        os.symlink(files / name, tmp_path / name)
    train("--data", "train.csv", "--valid", "valid.csv", "--epochs", 2, *SMALL, "--protocol",
          protocol, "--losses", "first.txt", "--json", "first.json", folder=tmp_path)  # fmt: skip
    run = _runs_command.RunFile.load(tmp_path / "first.run.toml")
    assert run.options["data"] == ["train.csv"]
    assert run.options["protocol"] == protocol
    assert run.options["embedding-dim"] == 16  # Nobody has said it.
    assert run.facts["how"] == "done"
    assert run.facts["data_bytes"] == (files / "train.csv").stat().st_size
    told = json.loads((tmp_path / "first.json").read_text())
    assert run.figure("last", "auc") == pytest.approx(told["valid"][1]["auc"], rel=1e-6)
    assert run.facts["started"] <= run.facts["ended"]
    # The names of outputs are options as all others; here they are others.
    train("--config", "first.run.toml", "--losses", "again.txt", "--json", "again.json",
          folder=tmp_path)  # fmt: skip
    assert losses(tmp_path, "again.txt") == losses(tmp_path, "first.txt")
    again = _runs_command.RunFile.load(tmp_path / "again.run.toml")
    ours = {name: value for name, value in run.options.items() if name not in ("losses", "json")}
    assert ours.items() <= again.options.items()
    assert again.facts["data_digest"] == run.facts["data_digest"]


def test_errors_of_a_file_of_options_name_its_line(files: Path, tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    for text, said in (
        ("data = 'x.csv'\nepoch = 3\n", "run.toml:2: 'sidereal train' has no option 'epoch'; did"),
        ("data = 'x.csv'\n\nepochs = 0\n", "run.toml:3: --epochs"),
        ("data = 'x.csv'\nepochs = \n", "run.toml:2: "),
        ("data = 'x.csv'\nhidden = '3,x'\nmodel = 'wdl'\n", "run.toml:2: --hidden"),
    ):
        (tmp_path / "x.csv").write_text((files / "train.csv").read_text())
        config.write_text(text)
        is_plan = "hidden" in text
        told = train("--config", "run.toml", folder=tmp_path, code=1 if is_plan else 2)
        assert said in told, told


def test_a_training_that_fails_says_so_in_its_file(files: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text((files / "train.csv").read_text() + "u1,c1,maybe\n")
    train("--data", bad, *SMALL, "--checkpoint-dir", "run", folder=tmp_path, code=1)
    run = _runs_command.RunFile.load(tmp_path / "run")
    assert run.facts["how"] == "failed"
    assert "maybe" in run.facts["error"]


def test_python_commands_take_files_of_options(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "some.toml"
    file.write_text("model = 'm'\ndata = 'd.csv'\nkeep = ['a', 'b']\nbatch-size = 7\n")
    parser = _predict_command.parser()
    got = _config_file.parse(parser, ["--config", str(file), "--data", "other.csv"])
    assert (got.model, got.data, got.keep, got.batch_size) == ("m", "other.csv", ["a", "b"], 7)
    for text, said in (
        ("model = 'm'\nbatchsize = 7\n", "some.toml:2: sidereal evaluate has no option 'batchsize'"
         "; did you mean batch-size?"),
        ("model = 'm'\nmodel = 'n'\n", "some.toml:2: "),
        ("model = true\n", "some.toml:1: 'model' must be a text or a number"),
    ):  # fmt: skip
        file.write_text(text)
        with pytest.raises(SystemExit) as ended:
            _config_file.parse(_evaluate_command.parser(), ["--config", str(file)])
        assert ended.value.code == 2
        assert said in capsys.readouterr().err


# --- The weights of the best epoch.


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("with_dir", [True, False])
def test_patience_ends_with_the_best_weights(
    files: Path, tmp_path: Path, protocol: str, with_dir: bool
) -> None:
    words = ["--data", files / "train.csv", "--valid", files / "flipped.csv", "--test",
             files / "flipped.csv", "--epochs", 9, "--patience", 2, *SMALL, "--protocol", protocol,
             "--json", "out.json"]  # fmt: skip
    if with_dir:
        words += ["--checkpoint-dir", "run", "--save-every", "epoch"]
    told = train(*words, folder=tmp_path)
    found = json.loads((tmp_path / "out.json").read_text())
    curve = [one["auc"] for one in found["valid"]]
    best = 1 + int(np.argmax(curve))
    assert len(curve) == best + 2 and curve[best - 1] > curve[-1]
    assert f"the weights are those of epoch {best}, the best" in told
    assert (found["best_epoch"], found["restored_best"]) == (best, True)
    assert found["test_auc"] == pytest.approx(curve[best - 1], abs=1e-9)
    if with_dir:
        # Who takes the newest checkpoint has the best weights, too.
        out = tmp_path / "told.json"
        asked = ["--model", tmp_path / "run", "--data", files / "flipped.csv", "--json", out]
        assert _evaluate_command.main([str(word) for word in asked]) == 0
        assert json.loads(out.read_text())["auc"] == pytest.approx(curve[best - 1], abs=1e-6)
        # The same command has nothing left to do, and ends with the same.
        train(*words, folder=tmp_path)
        again = json.loads((tmp_path / "out.json").read_text())
        assert again["test_auc"] == pytest.approx(curve[best - 1], abs=1e-9)
        assert (again["steps"], again["best_epoch"], again["restored_best"]) == (0, best, True)
    train(*words, "--no-restore-best", "--resume", "never", folder=tmp_path)
    last = json.loads((tmp_path / "out.json").read_text())
    assert last["restored_best"] is False
    assert last["test_auc"] == pytest.approx(last["valid"][-1]["auc"], abs=1e-9)


def test_restoring_needs_what_says_which_is_best(files: Path, tmp_path: Path) -> None:
    told = train("--data", files / "train.csv", "--restore-best", folder=tmp_path, code=1)
    assert "--restore-best needs --valid" in told
    cluster = json.dumps({"ps": ["127.0.0.1:1"], "worker": ["127.0.0.1:2"]})
    told = train("--data", files / "train.csv", "--valid", files / "valid.csv", "--restore-best",
                 "--cluster", cluster, folder=tmp_path, code=1)  # fmt: skip
    assert "needs --checkpoint-dir" in told


@pytest.fixture(params=PROTOCOLS)
def cluster(request: pytest.FixtureRequest) -> Iterator[sr.LocalCluster]:
    with sr.LocalCluster(in_process=True, protocol=request.param) as started:
        yield started


def columns(rows: int, seed: int, flipped: bool = False) -> dict[str, np.ndarray]:
    """For conftest's small_model()."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, 50, (rows, 4))
    label = (ids[:, 0] < 25).astype(np.float32)
    return {"ids": ids, "label": 1 - label if flipped else label, "user": rng.integers(0, 20, rows)}


def test_fit_ends_with_the_best_weights(cluster: sr.LocalCluster) -> None:
    data, worse = columns(512, 1), columns(256, 2, flipped=True)
    del data["user"]
    model = small_model()
    result = model.fit(data, cluster=cluster, validation=worse, metrics_by="user", epochs=9,
                       patience=2, batch_size=32, verbose=False)  # fmt: skip
    assert (result.epochs, result.best_epoch, result.restored_best) == (3, 1, True)
    assert model.evaluate(worse).auc == result.validation[0].auc
    other = small_model()
    result = other.fit(data, cluster=cluster, validation=worse, metrics_by="user", epochs=9,
                       patience=2, restore_best_weights=False, batch_size=32,
                       verbose=False)  # fmt: skip
    assert (result.best_epoch, result.restored_best) == (1, False)
    assert other.evaluate(worse).auc == result.validation[-1].auc
    with pytest.raises(sr.errors.InvalidArgumentError, match="there is no validation"):
        other.fit(data, restore_best_weights=True)


# --- Figures of epochs.


def test_epochs_have_figures_of_rows_and_groups(cluster: sr.LocalCluster, capfd: Any) -> None:
    data, valid = columns(512, 1), columns(256, 2)
    model = small_model()
    result = model.fit(data, cluster=cluster, validation=valid, metrics_by="user", epochs=2,
                       record_losses=True, batch_size=32)  # fmt: skip
    found = result.validation[-1]
    scores, labels = model.predict(valid).astype(np.float64), valid["label"]
    order = np.argsort(-scores, kind="stable")
    precision = np.cumsum(labels[order]) / np.arange(1, len(labels) + 1)
    # No two scores are equal as a rule; where some are, theirs is the last one's.
    for at in range(len(order) - 2, -1, -1):
        if scores[order[at]] == scores[order[at + 1]]:
            precision[at] = precision[at + 1]
    assert found.pr_auc == pytest.approx((precision * labels[order]).sum() / labels.sum(), abs=1e-6)
    assert found.rmse == pytest.approx(np.sqrt(((scores - labels) ** 2).mean()), abs=1e-6)
    assert found.calibration == pytest.approx(scores.sum() / labels.sum(), abs=1e-5)
    areas, weights = [], []
    for user in np.unique(valid["user"]):
        here = valid["user"] == user
        auc = _evaluate_command.auc_of(labels[here], scores[here])
        if not math.isnan(auc):
            areas.append(auc)
            weights.append(here.sum())
    assert found.grouped_auc == pytest.approx(np.average(areas, weights=weights), abs=1e-6)
    assert 0 < found.ndcg <= 1
    steps = len(result.losses) // 2
    for epoch, one in enumerate(result.validation):
        own = result.losses[epoch * steps : (epoch + 1) * steps]
        assert one.training_loss == pytest.approx(own.mean(), rel=1e-4)
    assert re.search(r"validation auc .*grouped auc .*training loss", capfd.readouterr().err)
    without = model.evaluate(valid)
    assert math.isnan(without.grouped_auc) and math.isnan(without.training_loss)
    assert model.evaluate(valid, metrics_by="user").grouped_auc == found.grouped_auc


def test_without_validation_data_epochs_have_their_training_loss(
    cluster: sr.LocalCluster, capfd: Any
) -> None:
    data, heard = columns(500, 1), []
    del data["user"]
    model = small_model()
    result = model.fit(data, cluster=cluster, epochs=3, record_losses=True, batch_size=32,
                       on_progress=lambda now: heard.append(now.training_losses))  # fmt: skip
    steps = len(result.losses) // 3
    assert not result.validation and len(result.training_losses) == 3
    for epoch, loss in enumerate(result.training_losses):
        own = result.losses[epoch * steps : (epoch + 1) * steps]
        assert loss == pytest.approx(own.mean(), rel=1e-4)
    assert heard[-1] == result.training_losses
    told = re.findall(r"epoch (\d)/3: training loss ([\d.]+)", capfd.readouterr().err)
    assert told == [(str(i + 1), f"{loss:.4f}") for i, loss in enumerate(result.training_losses)]


def test_lanes_that_end_epochs_at_other_times_make_one_loss(
    clusters: Callable[..., sr.LocalCluster],
) -> None:
    data = columns(900, 1)
    del data["user"]
    running = clusters(workers=2, worker_lanes=2, in_process=True)
    result = small_model().fit(data, cluster=running, epochs=6, batch_size=16, verbose=False)
    assert len(result.training_losses) == 6 and result.steps == 6 * 4 * 15
    assert result.training_losses[-1] < result.training_losses[0] < 0.8


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_training_without_validation_data_tells_its_epochs(
    files: Path, tmp_path: Path, capsys: Any, protocol: str
) -> None:
    told = train("--data", files / "train.csv", "--epochs", 3, *SMALL, "--protocol", protocol,
                 "--losses", "all.txt", "--checkpoint-dir", "run", "--save-every", "10steps",
                 "--json", "out.json", "--tensorboard", "events", folder=tmp_path)  # fmt: skip
    found = json.loads((tmp_path / "out.json").read_text())["training_losses"]
    every = losses(tmp_path, "all.txt")
    steps = len(every) // 3
    assert len(found) == 3 and len(every) == 3 * steps
    for epoch, loss in enumerate(found):
        own = every[epoch * steps : (epoch + 1) * steps]
        assert loss == pytest.approx(np.mean(own), rel=1e-4)
        assert f"epoch {epoch + 1}: training loss {loss:.4f}" in told
    run = _runs_command.RunFile.load(tmp_path / "run")
    assert run.facts["training_loss"] == pytest.approx(found[-1], rel=1e-6)
    assert _runs_command.main([str(tmp_path / "run")]) == 0
    assert f"{run.facts['training_loss']:.6g}" in capsys.readouterr().out
    (curves,) = _plot.runs_of(str(tmp_path / "out.json")).values()
    assert [point.value for point in curves["training_loss"]] == found
    (curves,) = _plot.runs_of(str(tmp_path / "events")).values()
    assert [point.value for point in curves["train/training_loss"]] == pytest.approx(found)
    # What another process has trained is not known here.
    told = train("--data", files / "train.csv", "--epochs", 4, *SMALL, "--protocol", protocol,
                 "--checkpoint-dir", "run", "--json", "out.json", folder=tmp_path)  # fmt: skip
    found = json.loads((tmp_path / "out.json").read_text())["training_losses"]
    assert found[:3] == [None] * 3 and found[3] > 0 and "epoch 4: training loss" in told


def test_groups_of_files_are_those_of_a_column(files: Path, tmp_path: Path) -> None:
    told = train("--data", files / "train.csv", "--valid", files / "valid.csv",
                 "--metrics-by", "user",
                 *SMALL, "--json", "out.json", folder=tmp_path)  # fmt: skip
    assert re.search(r"epoch 1: valid auc .*grouped auc .*ndcg .*training loss", told)
    one = json.loads((tmp_path / "out.json").read_text())["valid"][0]
    assert 0.5 < one["grouped_auc"] < 1 and 0 < one["ndcg"] <= 1
    told = train("--data", files / "train.csv", "--valid", files / "valid.csv",
                 "--metrics-by", "nobody",
                 *SMALL, folder=tmp_path, code=1)  # fmt: skip
    assert "'nobody'" in told and "user, city" in told


def test_a_group_that_is_no_column_is_told(cluster: sr.LocalCluster) -> None:
    data = columns(64, 1)
    with pytest.raises(sr.errors.InvalidArgumentError, match=r"grouped by 'x'.*ids, label, user"):
        small_model().fit(data, cluster=cluster, validation=data, metrics_by="x", verbose=False)


def test_a_high_loss_of_fit_names_the_column(cluster: sr.LocalCluster, capfd: Any) -> None:
    model = sr.Model()
    age = model.input("age", sr.float32, (1,))
    pay = model.input("pay", sr.float32, (1,))
    model.compile(sr.keras.layers.Dense(1)(sr.concat([age, pay], 1)), "sgd")
    rng = np.random.default_rng(0)
    data = {
        "age": rng.random((512, 1), np.float32), "pay": 1e4 * rng.random((512, 1), np.float32),
        "label": rng.integers(0, 2, 512).astype(np.float32),
    }  # fmt: skip
    model.fit(data, cluster=cluster, verbose=False, batch_size=64)
    assert "column 'pay' has numbers up to" in capfd.readouterr().err


def test_the_learning_rate_warms_up(files: Path, tmp_path: Path) -> None:
    words = ["--data", files / "train.csv", *SMALL, "--shuffle-rows", 0]
    train(*words, "--losses", "plain.txt", folder=tmp_path)
    train(*words, "--warmup-steps", 1, "--losses", "one.txt", folder=tmp_path)
    assert losses(tmp_path, "one.txt") == pytest.approx(losses(tmp_path, "plain.txt"), rel=1e-6)
    train(*words, "--warmup-steps", 10000, "--losses", "slow.txt", folder=tmp_path)
    plain, slow = losses(tmp_path, "plain.txt"), losses(tmp_path, "slow.txt")
    assert slow[0] == plain[0]
    # It has hardly learned.
    assert abs(slow[-1] - math.log(2)) < 0.02 < abs(plain[-1] - math.log(2))


# --- runs and compare.


@pytest.fixture(scope="module")
def two_runs(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for name, rate in (("good", 0.5), ("poor", 0.00001)):
        train("--data", files / "train.csv", "--valid", files / "valid.csv", "--model", "lr",
              "--hash-buckets", 64, "--batch-size", 32, "--optimizer", "sgd", "--lr", rate,
              "--epochs", 2, "--checkpoint-dir", name, "-q", folder=folder)  # fmt: skip
    (folder / "half.run.toml").write_text(
        "data = ['a.csv', 'b.csv']\n[run]\nhow = 'running'\nheard = '2001-01-01T00:00:00Z'\n"
    )
    return folder


def test_runs_lists_what_is_in_a_folder(two_runs: Path, capsys: Any) -> None:
    (two_runs / "other").mkdir(exist_ok=True)
    (two_runs / "other" / "run.toml").write_text("epochs = 2\n")
    assert _runs_command.main([str(two_runs)]) == 0
    told = capsys.readouterr()
    lines = {line.split()[0]: line for line in told.out.splitlines()}
    assert "train.csv" in lines["good"] and lines["good"].endswith("done")
    assert "(epoch " in lines["good"]
    assert "running, or killed; last heard of" in lines["half"] and "a.csv +1" in lines["half"]
    assert "other" not in lines and "no table [run]" in told.err
    assert _runs_command.main([str(two_runs), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in listed] == ["half", "good", "poor"]
    assert listed[1]["run"]["steps"] == 38
    assert _runs_command.main([str(two_runs / "none")]) == 1
    assert "no such folder" in capsys.readouterr().err


def test_compare_says_what_differs_and_whether_it_is_worse(
    two_runs: Path, files: Path, capsys: Any
) -> None:
    good, poor, valid = str(two_runs / "good"), str(two_runs / "poor"), str(files / "valid.csv")
    assert _compare_command.main([good, poor]) == 0
    told = capsys.readouterr().out
    assert re.search(r"^lr +0\.5 +1e-05$", told, re.M)
    assert "checkpoint-dir" not in told
    assert re.search(r"^valid \(last\) auc", told, re.M)
    assert _compare_command.main([good, poor, "--data", valid, "--json"]) == _compare_command.WORSE
    found = json.loads(capsys.readouterr().out)
    assert set(found["options"]) == {"lr"}
    auc, log_loss = found["data"]["figures"]
    run = _runs_command.RunFile.load(Path(good))
    assert auc["a"] == pytest.approx(run.figure("last", "auc"), abs=1e-6)
    assert log_loss["verdict"] == "worse" and log_loss["interval"][0] > 0
    assert _compare_command.main([poor, good, "--data", valid]) == 0
    assert "better" in capsys.readouterr().out
    assert _compare_command.main([good, good, "--data", valid]) == 0
    assert re.search(r"^nothing$", capsys.readouterr().out, re.M)


def test_compare_says_what_it_lacks(two_runs: Path, files: Path, capsys: Any) -> None:
    good, half = str(two_runs / "good"), str(two_runs / "half.run.toml")
    assert _compare_command.main([good, str(two_runs / "none")]) == 1
    assert "is no run" in capsys.readouterr().err
    assert _compare_command.main([half, good, "--data", str(files / "valid.csv")]) == 1
    assert "train it with --checkpoint-dir" in capsys.readouterr().err
