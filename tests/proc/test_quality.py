"""The short form of `./dev bench quality`: one seed of each model reaches its target; and what
benchmarks of quality do without data."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data" / "frappe_x1"
#: With a sanitizer each step takes ten times as long: there the smallest model has to do.
SANITIZED = os.environ.get("SIDEREAL_PRESET") in ("asan", "tsan")
MODELS = ["lr"] if SANITIZED else ["lr", "fm", "deepfm"]
DEADLINE_S = 1200


@pytest.mark.slow
def test_models_reach_the_test_auc_published_for_frappe(program, tmp_path):
    if not DATA.is_dir() and os.environ.get("CI") != "true":
        pytest.skip("skipped: no data")
    figures = tmp_path / "quality.json"
    done = subprocess.run(
        [sys.executable, ROOT / "bench" / "quality.py", "--short", "--models", ",".join(MODELS),
         "--json", figures],
        env=os.environ | {"SIDEREAL_BIN_DIR": str(program.parent)},
        capture_output=True, text=True, timeout=DEADLINE_S, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(figures.read_text())["rows"]
    expected = {f"{model} seed 1" for model in MODELS}
    if "deepfm" in MODELS:
        expected |= {"deepfm bf16 seed 1", "deepfm bf16 beside float32"}
    if "fm" in MODELS:
        expected |= {f"fm {protocol} seed 1" for protocol in ("grpc", "grpc++", "star_server_lite")}
        expected |= {f"fm {protocol} sync seed 1" for protocol in ("grpc", "grpc++")}
        expected |= {"fm sync seed 1", "fm star_server_lite sync seed 1"}
    assert {row["case"] for row in rows} == expected
    for row in rows:
        assert row["ours"] >= row["target"], row
        assert row["unit"] == "AUC"
        assert row["ratio"] == pytest.approx(row["ours"] / row["peer"])


@pytest.mark.parametrize("name", ["quality", "keras_quality"])
def test_without_the_data_it_says_so_and_only_ci_fails(name, tmp_path):
    script = tmp_path / "repository" / "bench" / f"{name}.py"
    script.parent.mkdir(parents=True)
    for file in (ROOT / "bench").glob("*.py"):
        if "quality" in file.name or file.name == "common.py":
            (script.parent / file.name).write_text(file.read_text())
    for ci, code in (("", 0), ("true", 1)):
        done = subprocess.run([sys.executable, script], env=os.environ | {"CI": ci},
                              capture_output=True, text=True, timeout=60)  # fmt: skip
        assert (done.returncode, done.stdout) == (code, "skipped: no data\n"), done.stderr
