"""`sidereal plot`: learning curves of files of events, CSVLogger and `sidereal train --json`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

import sidereal as sr
import sidereal.v1 as v1
from sidereal import _plot, keras, summary


def events(folder: Path, values: dict[str, list[float]]) -> Path:
    with summary.create_file_writer(folder) as writer, writer.as_default():
        for tag, numbers in values.items():
            for step, value in enumerate(numbers):
                summary.scalar(tag, value, step=step)
        summary.histogram("h", [1.0, 2.0], step=0)
        summary.text("t", "x", step=0)
    return folder


def plot(capsys: pytest.CaptureFixture[str], *words: Any) -> tuple[int, str, str]:
    code = _plot.main([str(word) for word in words])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_runs_are_read_from_folders_of_events(tmp_path: Path) -> None:
    events(tmp_path / "a" / "train", {"loss": [3.0, 2.0], "auc": [0.5]})
    events(tmp_path / "a", {"loss": [9.0]})
    with v1.summary.FileWriter(tmp_path / "a" / "old") as writer:
        for step in (2, 1):
            made = v1.Summary(value=[v1.Summary.Value(tag="x", simple_value=step * 10)])
            writer.add_summary(made, step)
    runs = _plot.runs_of(f"mine={tmp_path / 'a'}")
    assert list(runs) == ["mine", "mine/old", "mine/train"]
    assert [(p.step, p.value) for p in runs["mine/train"]["loss"]] == [(0, 3.0), (1, 2.0)]
    assert set(runs["mine/train"]) == {"loss", "auc"}
    assert [(p.step, p.value) for p in runs["mine/old"]["x"]] == [(1, 10.0), (2, 20.0)]
    assert all(p.time is not None for p in runs["mine"]["loss"])


def test_runs_are_read_from_files_of_csv_logger(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    for separator in ",;":
        file = tmp_path / "log.csv"
        history = model.fit(
            np.ones((8, 2), "f"), np.ones((8, 1), "f"), epochs=3, verbose=0,
            callbacks=[keras.callbacks.CSVLogger(file, separator=separator)],
        )  # fmt: skip
        [run] = _plot.runs_of(str(file)).values()
        assert [p.step for p in run["loss"]] == [0, 1, 2]
        assert [p.value for p in run["loss"]] == pytest.approx(history.history["loss"])


def test_runs_are_read_from_results_of_train(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    file.write_text(json.dumps({"valid": [{"auc": 0.7, "logloss": 0.5}, {"auc": 0.8}]}))
    [run] = _plot.runs_of(str(file)).values()
    assert [p.value for p in run["valid_auc"]] == [0.7, 0.8]
    assert [p.value for p in run["valid_logloss"]] == [0.5]


def test_a_picture_has_a_panel_for_each_figure_and_a_name_for_each_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = events(tmp_path / "a", {"loss": [3.0, 2.0, 1.0], "auc": [0.5, 0.6, 0.7]})
    b = events(tmp_path / "b", {"loss": [4.0, 2.0, 0.5], "rows": [1.0, 2.0, 3.0]})
    picture = tmp_path / "p.svg"
    words = [f"first={a}", f"second={b}", "--out", picture]
    assert plot(capsys, *words, "--title", "Both", "--smooth", "0.6") == (0, f"{picture}\n", "")
    text = picture.read_text()
    ElementTree.fromstring(text)
    for word in ("loss", "auc", "rows", "first", "second", "Both"):
        assert f">{word}</text>" in text, word
    assert plot(capsys, *words, "--tag", "lo*", "--log-y", "--log-x", "--x", "time")[0] == 0
    text = picture.read_text()
    assert all(f">{word}</text>" in text for word in ("loss", "minutes"))
    assert ">auc</text>" not in text
    before = picture.read_bytes()
    assert plot(capsys, *words, "--tag", "lo*", "--log-y", "--log-x", "--x", "time")[0] == 0
    assert picture.read_bytes() == before
    picture = tmp_path / "p.png"
    assert plot(capsys, a, b, "--out", picture)[0] == 0
    image = np.asarray(Image.open(picture).convert("RGB"))
    assert image.shape[1] > 800 and len(np.unique(image.reshape(-1, 3), axis=0)) > 50


def test_curves_are_at_their_points(tmp_path: Path) -> None:
    runs = _plot.runs_of(f"a={events(tmp_path / 'a', {'loss': [3.0, 2.0, 1.0]})}")
    options = _plot.parser().parse_args(["a", "--smooth", "0.5"])
    [panel, *_] = _plot.draw(runs, ["loss"], options).axes
    raw, smooth = panel.get_lines()
    assert raw.get_xydata().tolist() == [[0, 3], [1, 2], [2, 1]]
    np.testing.assert_allclose(smooth.get_ydata(), [3.0, 7 / 3, 11 / 7])


def test_smoothing_leaves_out_what_is_no_number() -> None:
    np.testing.assert_allclose(_plot.smoothed([4.0, 4.0, 4.0], 0.9), 4.0)
    got = _plot.smoothed([1.0, float("nan"), 3.0], 0.5)
    np.testing.assert_allclose(got, [1.0, np.nan, 7 / 3])


def test_what_there_is_can_be_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = events(tmp_path / "a", {"loss": [3.0, 2.0], "auc": [0.5]})
    assert plot(capsys, "--list", f"n={a}") == (0, "n\tauc\t1\nn\tloss\t2\n", "")


def test_a_file_that_is_cut_off_is_shown_so_far(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [file] = events(tmp_path / "a", {"loss": [3.0, 2.0]}).iterdir()
    file.write_bytes(file.read_bytes()[:-300])
    code, out, err = plot(capsys, "--list", f"n={file}")
    assert (code, out) == (0, "n\tloss\t2\n") and "what comes before is shown" in err


def test_errors_say_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*words: Any) -> str:
        code, out, err = plot(capsys, *words)
        assert code == 1 and out == ""
        return err

    (tmp_path / "empty").mkdir()
    assert "there is no such file" in said(tmp_path / "none")
    assert "no files of events" in said(tmp_path / "empty")
    (tmp_path / "a.txt").write_text("")
    assert "a run is a folder" in said(tmp_path / "a.txt")
    (tmp_path / "a.json").write_text("[]")
    assert "no file of sidereal train --json" in said(tmp_path / "a.json")
    (tmp_path / "b.json").write_text('{"valid": []}')
    assert "has ended no epoch" in said(tmp_path / "b.json")
    (tmp_path / "a.csv").write_text("a,b\nx,y\n")
    assert "no numbers" in said(tmp_path / "a.csv")
    (tmp_path / "b.csv").write_text("epoch,loss\n0,1\n")
    assert "--x time needs files of events" in said(tmp_path / "b.csv", "--x", "time")
    assert "no figure is called q; there are loss" in said(tmp_path / "b.csv", "--tag", "q")
    many = ",".join(f"f{n}" for n in range(30))
    (tmp_path / "c.csv").write_text(f"{many}\n{many.replace('f', '')}\n")
    assert "30 figures; choose at most 24 with --tag" in said(tmp_path / "c.csv")
    assert "no-folder" in said(tmp_path / "b.csv", "--out", tmp_path / "no-folder" / "p.png")
    for words in (["--smooth", "1"], ["--out", "p.gif"]):
        with pytest.raises(SystemExit):
            _plot.main([str(tmp_path / "b.csv"), *words])


def test_without_matplotlib_the_error_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "b.csv").write_text("epoch,loss\n0,1\n")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    code, _, err = plot(capsys, tmp_path / "b.csv")
    assert code == 1 and "pip install matplotlib" in err


def test_it_is_a_command_of_the_package(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("epoch,loss\n0,1\n1,0.5\n")
    words = [sys.executable, "-m", "sidereal", "plot", "b.csv"]
    subprocess.run(words, cwd=tmp_path, check=True, timeout=120)
    assert (tmp_path / "plot.png").stat().st_size > 1000
    assert sr.summary is summary
