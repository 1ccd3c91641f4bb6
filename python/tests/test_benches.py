"""Benchmarks that start servers work: one short window each."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from session_servers import PATIENCE_S, PROGRAM, ROOT

NEEDS_TENSORFLOW = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None,
    reason="TensorFlow is not installed; run ./dev setup --peers",
)


def rows_of(
    tmp_path: Path, name: str, *arguments: str, parts: tuple[str, ...] = (), has_plot: bool = True
) -> list[dict[str, Any]]:
    """What `bench/NAME.py --quick` finds. parts: of its figures, beside the main one."""
    found = tmp_path / "rows.json"
    page = tmp_path / "page.md"
    marked = [name, *(f"{name}_{part}" for part in parts)]
    page.write_text(
        "".join(f"<!-- figures:{one}:begin -->\n<!-- figures:{one}:end -->\n" for one in marked)
    )
    command = [sys.executable, str(ROOT / "bench" / f"{name}.py"), "--quick", *arguments]
    ended = subprocess.run(
        [*command, "--json", str(found), "--write", str(page)],
        env=os.environ | {"SIDEREAL_BIN_DIR": str(PROGRAM.parent)},
        check=False,
        timeout=PATIENCE_S,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    said = "\n".join(ended.stdout.splitlines()[-20:])
    assert ended.returncode == 0, f"bench {name} ended with {ended.returncode}:\n{said}"
    assert page.read_text().count("| --- |") >= len(marked)
    plot = tmp_path / f"{name}.svg"
    assert plot.read_text().startswith("<svg") if has_plot else not plot.exists()
    rows: list[dict[str, Any]] = json.loads(found.read_text())["rows"]
    return rows


def test_the_bench_of_protocols_trains_over_each_of_them(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, "protocols", "--only", "wide200")
    assert [row["side"] for row in rows if row["ours"] > 0] == [
        "grpc",
        "grpc, fused",
        "grpc++",
        "grpc++, fused",
        "star_server",
        "star_server_lite",
    ]


@pytest.mark.skipif(
    not (PROGRAM.parent / "bench_scale").exists(), reason="bench_scale is not built"
)
def test_the_bench_of_scale_counts_steps_of_light_workers(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, "scale", "--only", "grpc", "grpc++", "star_server")
    assert [(row["protocol"], row["workers"]) for row in rows if row["ours"] > 0] == [
        ("grpc", 1),
        ("grpc", 4),
        ("grpc++", 1),
        ("grpc++", 4),
        ("star_server", 1),
        ("star_server", 4),
    ]


def test_the_bench_of_coordinators_schedules_over_grpc_and_lanes(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, "coordinator", "--workers", "2", "--peer-workers", "0")
    assert [(row["side"], row["kind"]) for row in rows if row["ours"] > 0] == [
        (side, kind)
        for side in ("grpc", "grpc, 32 a worker", "star_server", "star_server, 32 a worker")
        for kind in ("none", "value", "latency")
    ]


def test_the_bench_of_a_job_trains_by_a_coordinator_and_by_fit(tmp_path: Path) -> None:
    rows = rows_of(
        tmp_path, "tensorflow", "--alone", "--protocols", "star_server", parts=("job",),
        has_plot=False,
    )  # fmt: skip
    assert [row["side"] for row in rows if row["ours"] > 0 and row["cpu_ms"] > 0] == [
        f"{side}, {kind}"
        for side in ("star_server", "star_server, bfloat16")
        for kind in ("a step a call", "ten a call", "fit()")
    ]
    assert [row["of_fit"] > 0 for row in rows] == [True, True, False] * 2


def test_the_bench_of_quality_of_keras_models_trains_what_was_planted(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, "keras_quality", parts=("protocols", "workers"))
    assert [row["case"] for row in rows] == [
        "planted bias",
        "planted lr seed 1",
        "planted din seed 1",
        "planted mmoe seed 1",
        "planted ncf seed 1",
        "planted lr grpc seed 1",
        "planted lr 1 workers seed 1",
    ]
    biases, lr, din, mmoe, ncf, over_grpc, alone = (row["ours"] for row in rows)
    # What a user likes is seen in a history and in products, and in no bias.
    assert min(lr, over_grpc, alone) > biases - 0.05
    assert min(din, mmoe, ncf) > biases + 0.05
    assert [len(row["others"]) for row in rows] == [0, 0, 0, 1, 0, 0, 0]
    assert all(row["epochs"] > 1 and row["validation"] > 0.6 for row in rows[1:])


def test_the_bench_of_modes_trains_in_each(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, "modes", parts=("auc", "bytes"))
    slow = [row for row in rows if row["part"] == "slow"]
    assert [row["consistency"] for row in slow if row["ours"] > 0 and row["peer"] > 0] == [
        "async",
        "sync",
        "sync(1 of 2)",
        "bounded(4)",
        "hybrid",
    ]
    moved = [row for row in rows if row["part"] == "bytes"]
    assert [row["consistency"] for row in moved if row["ours"] > 0] == ["async", "geo(2)"] * 2
    rows = [row for row in rows if row["part"] == "auc"]
    assert [(row["workers"], row["consistency"]) for row in rows] == [
        (1, "async"),
        (2, "bounded(1)"),
        (2, "hybrid"),
        (2, "async"),
    ]
    assert all(row["updates"] > 0 and row["changes_of_others"] >= 0 for row in rows)


def test_the_bench_of_replication_pushes_with_each_reader(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, "replication", "--only", "star_server", has_plot=False)
    ours = [row for row in rows if row["side"] == "star_server" and row["ours"] > 0]
    assert [(row["kind"], row["what"], row["reader"]) for row in ours] == [
        *(
            (kind, what, reader)
            for kind, what in (
                ("one", "p50_us"), ("one", "p99_us"), ("many", "per_s"), ("many", "cpu_us"),
            )
            for reader in ("alone", "follower", "standby")
        ),
        ("closures", "per_s", "once"),
        *(("kill", what, "away") for what in ("p50", "p99", "worst")),
    ]  # fmt: skip


def test_the_bench_of_quality_lets_the_validation_split_decide() -> None:
    """Of AUCs of .7, .6, .8, .7, .7 the third is kept; each loss divides the rate by ten."""
    sys.path.insert(0, str(ROOT / "bench"))
    try:
        bench = importlib.import_module("keras_quality")
    finally:
        sys.path.remove(str(ROOT / "bench"))
    progress = bench.Progress(Path("unused"), 1.0)
    seen = []
    for epoch, auc in enumerate((0.7, 0.6, 0.8, 0.7, 0.7)):
        progress.add(auc, [epoch])
        seen.append((round(progress.rate, 4), progress.stale))
    assert seen == [(1.0, 0), (0.1, 1), (0.1, 0), (0.01, 1), (0.001, 2)]
    assert (progress.best, progress.auc, progress.last) == ([2], 0.8, [[2], [3], [4]])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--trial", "--json", "rows.json"], "--trial: what it prints is of validation"),
        (["--set", "rate=0.1"], "add --trial"),
    ],
)
def test_the_bench_of_quality_keeps_trials_out_of_figures(arguments: list[str], said: str) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "bench" / "keras_quality.py", *arguments],
        capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 2
    assert said in done.stderr


@NEEDS_TENSORFLOW
def test_the_bench_of_a_job_trains_beside_tensorflow(tmp_path: Path) -> None:
    rows = rows_of(
        tmp_path, "tensorflow", "--only", "deepfm_job", "--protocols", "star_server",
        parts=("job",), has_plot=False,
    )  # fmt: skip
    assert [row["side"] for row in rows if row["ratio"] > 0][:3] == [
        "TensorFlow, grpc, a step a call",
        "TensorFlow, grpc, ten a call",
        "star_server, a step a call",
    ]
    assert [row["wanted"] for row in rows if row["wanted"]] == [2.5, 5.0]


@NEEDS_TENSORFLOW
def test_the_bench_beside_tensorflow_trains_on_both(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, "tensorflow", "--only", "wide200")
    assert [row["side"] for row in rows if row["ours"] > 0] == [
        "TensorFlow, grpc",
        "grpc",
        "grpc++",
        "star_server",
        "star_server_lite",
    ]


def test_the_bench_of_recovery_restores_a_killed_ps(tmp_path: Path) -> None:
    found = tmp_path / "rows.json"
    command = [sys.executable, str(ROOT / "bench" / "recovery.py"), "--quick"]
    subprocess.run(
        [*command, "--json", str(found)],
        env=os.environ | {"SIDEREAL_BIN_DIR": str(PROGRAM.parent)},
        check=True, timeout=PATIENCE_S, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    rows = json.loads(found.read_text())["rows"]
    assert [row["protocol"] for row in rows] == ["grpc", "star_server"]
    for row in rows:
        assert row["megabytes"] == 16 and row["lost_steps"] == 10
        assert row["others_pushes"] > 0 and row["away_s"] < PATIENCE_S


def test_the_bench_of_followers_finds_what_was_pushed(tmp_path: Path) -> None:
    found = tmp_path / "rows.json"
    command = [sys.executable, str(ROOT / "bench" / "follow.py"), "--quick"]
    subprocess.run(
        [*command, "--only", "star_server", "--json", str(found)],
        env=os.environ | {"SIDEREAL_BIN_DIR": str(PROGRAM.parent)},
        check=True, timeout=PATIENCE_S, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    rows = json.loads(found.read_text())["rows"]
    assert len(rows) == 12
    assert all(row["ours"] > 0 for row in rows)


def test_the_bench_of_moves_finds_no_error_and_no_trace(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, "reshard", "--only", "star_server", has_plot=False)
    found = {row["case"].partition(": ")[2]: row["ours"] for row in rows}
    assert found["errors"] == 0
    assert found["ps 2 is empty when it was left"] == 1
    assert found["moved"] > 0
    assert found["of 3 commands cancelled at random, left a trace or failed"] == 0


@pytest.mark.skipif(
    importlib.util.find_spec("torch") is None,
    reason="PyTorch is not installed; run ./dev setup --peers",
)
def test_the_bench_of_torch_trains_with_tables_in_three_places(tmp_path: Path) -> None:
    found = tmp_path / "rows.json"
    command = [sys.executable, str(ROOT / "bench" / "torch_tables.py"), "--quick"]
    subprocess.run(
        [*command, "--only", "DLRM", "--trainers", "1", "--json", str(found)],
        env=os.environ | {"SIDEREAL_BIN_DIR": str(PROGRAM.parent)},
        check=True, timeout=PATIENCE_S, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    rows = json.loads(found.read_text())["rows"]
    assert [row["side"] for row in rows if row["ours"] > 0] == [
        "in the process",
        "sidereal.torch, 1 trainer",
        "sidereal.torch, 1 trainer, 1 ahead",
        "torch.distributed.rpc, 1 trainer",
    ]
    assert all(row["gradients"] < 1e-6 and row["rows"] < 1e-6 for row in rows)


def test_the_bench_of_serving_asks_over_rest_and_grpc(tmp_path: Path) -> None:
    for package in ("onnx", "onnxruntime", "uvicorn"):
        pytest.importorskip(package, reason=f"{package} is not installed; ./dev setup --peers")
    found, page = tmp_path / "rows.json", tmp_path / "page.md"
    page.write_text("<!-- figures:serve:begin -->\n<!-- figures:serve:end -->\n")
    command = [sys.executable, str(ROOT / "bench" / "serve.py"), "--quick"]
    subprocess.run(
        [*command, "--json", str(found), "--write", str(page)],
        check=True, timeout=PATIENCE_S, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    rows = json.loads(found.read_text())["rows"]
    assert [(row["protocol"], row["rows"], row["clients"], row["side"]) for row in rows] == [
        (protocol, count, clients, side)
        for protocol in ("rest", "grpc")
        for count in (1, 32)
        for clients in (1, 4)
        for side in ("serve-model", "ONNX Runtime")
    ]
    for row in rows:
        assert 0 < row["p50_ms"] <= row["p99_ms"] and row["rows_per_s"] > 0
    assert "| grpc | 32 | 4 | serve-model |" in page.read_text()
