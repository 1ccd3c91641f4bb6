"""`sidereal train --tensorboard`, as TensorBoard's own EventAccumulator reads what it writes."""

import json
import resource
import signal
import subprocess
import sys
import time
import types

import numpy as np
import pytest
from clicks import SMALL
from processes import PATIENCE_S, Launcher

# TensorBoard without TensorFlow, which some machines have and which takes seconds to load.
sys.modules.setdefault("tensorboard.compat.notf", types.ModuleType("tensorboard.compat.notf"))

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: E402

DEEP = [*SMALL, "--model", "deepfm", "--hidden", "8", "--embedding-dim", "4"]


def accumulated(folder):
    """All that the files of a folder say: nothing is left out."""
    made = EventAccumulator(str(folder), {"scalars": 0, "tensors": 0, "histograms": 0})
    made.Reload()
    return made


@pytest.mark.parametrize("protocol", ["grpc", "star_server"])
def test_a_training_writes_its_figures(run, clicks, tmp_path, protocol):
    train, test, _ = clicks
    out, logs = tmp_path / "out.json", tmp_path / "logs" / "run"
    finished = run("train", "--data", train, *DEEP, "--epochs", "3", "--valid", test, "--test",
                   test, "--ps", "2", "--workers", "2", "--protocol", protocol, "--json", out,
                   "--tensorboard", logs)
    assert finished.returncode == 0, finished.stderr
    told, found = json.loads(out.read_text()), accumulated(logs)
    assert found.file_version == 2.0

    def points(tag):
        return [(event.step, event.value) for event in found.Scalars(tag)]

    assert [auc for _, auc in points("valid/auc")] == pytest.approx(
        [epoch["auc"] for epoch in told["valid"]], rel=1e-6)
    assert points("test/auc") == [(told["steps"], pytest.approx(told["test_auc"], rel=1e-6))]
    assert points("test/logloss")[0][1] == pytest.approx(told["test_logloss"], rel=1e-6)
    assert points("train/loss")[-1] == (told["steps"], pytest.approx(told["loss"], rel=1e-6))
    rate = pytest.approx(told["samples_per_s"], rel=1e-5)
    assert points("total/samples_per_s") == [(told["steps"], rate)]
    assert points("total/seconds")[0][1] == pytest.approx(told["seconds"], rel=1e-5)
    steps = [step for step, _ in points("train/loss")]
    assert steps == sorted(steps)
    rows = [tag for tag in found.Tags()["scalars"] if tag.startswith("rows/")]
    assert rows and all(points(tag)[0][1] >= 1000 for tag in rows)
    tables = [tag for tag in found.Tags()["histograms"] if tag.startswith("weights/")]
    for row in rows:
        [histogram] = found.Histograms(row.replace("rows/", "weights/"))
        value = histogram.histogram_value
        assert value.num == sum(value.bucket) and value.num % points(row)[0][1] == 0
        assert value.min <= value.sum / value.num <= value.max
        assert value.bucket_limit[-1] == pytest.approx(value.max)
    assert len(tables) > len(rows)
    [text] = found.Tensors("model")
    assert "| variable | shape | optimizer |" in text.tensor_proto.string_val[0].decode()


def stale_tags(found):
    """Those of tables."""
    return [tag for tag in found.Tags()["scalars"]
            if tag.startswith("staleness/") and not tag.startswith("staleness/other_variables")]


def test_workers_waiting_is_written_while_it_goes(program, clicks, tmp_path):
    launcher = Launcher([program, "train", "--data", clicks[0], *DEEP, "--epochs", "1000000",
                         "--ps", "1", "--workers", "2", "--tensorboard", tmp_path])
    try:
        launcher.wait_for_progress(3)
        until = time.monotonic() + PATIENCE_S
        found = accumulated(tmp_path)
        # Shares are those of what was between two looks.
        while ("waiting/worker_1" not in found.Tags()["scalars"]
               or not stale_tags(found)) and time.monotonic() < until:
            found = accumulated(tmp_path)
    finally:
        launcher.clean_up()
    for worker in ("worker_0", "worker_1"):
        for tag in ("waiting", "waiting_for_data"):
            shares = [event.value for event in found.Scalars(f"{tag}/{worker}")]
            assert shares and all(0 <= share <= 1 for share in shares)
        for tag in ("steps_per_s", "bytes_in_per_s", "bytes_out_per_s"):
            assert all(event.value >= 0 for event in found.Scalars(f"rates/{tag}/{worker}"))
    assert np.isfinite([event.value for event in found.Scalars("train/loss")]).all()
    assert stale_tags(found)
    for tag in stale_tags(found):
        means = {event.step: event.value for event in found.Scalars(tag)}
        for event in found.Histograms(f"histogram_of_{tag}"):
            value = event.histogram_value
            assert value.num == sum(value.bucket) > 0
            assert 0 <= value.min <= means[event.step] <= value.max <= value.bucket_limit[-1]
            assert means[event.step] == pytest.approx(value.sum / value.num, rel=1e-6)


def test_a_folder_that_cannot_be_written_ends_it_before_the_first_step(run, clicks, tmp_path):
    (tmp_path / "file").write_text("")
    finished = run("train", "--data", clicks[0], *SMALL, "--tensorboard", tmp_path / "file" / "x")
    assert finished.returncode == 1
    assert "file of events cannot be written" in finished.stderr
    assert str(tmp_path / "file" / "x") in finished.stderr and "trained on" not in finished.stdout


def test_a_disk_that_is_full_is_told_at_the_end(program, clicks, tmp_path):
    def limited():
        # A write beyond it fails, as on a full disk. The file of the run has room.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2500, 2500))

    servers, cluster = [], {"ps": [], "worker": []}
    try:
        for job in cluster:  # Their files are not limited.
            servers.append(subprocess.Popen(
                [program, "serve", "--job", job, "--listen", "127.0.0.1:0"],
                stdout=subprocess.PIPE, text=True))
            cluster[job].append(servers[-1].stdout.readline().strip())
        finished = subprocess.run(
            [program, "train", "--data", clicks[0], *SMALL, "--epochs", "30", "--quiet",
             "--cluster", json.dumps(cluster), "--tensorboard", tmp_path / "logs"],
            capture_output=True, text=True, timeout=PATIENCE_S, preexec_fn=limited)
    finally:
        for server in servers:
            server.kill()
            server.communicate()
    assert finished.returncode == 1, finished.stderr
    assert "trained on 240000 rows" in finished.stdout
    assert "the file of events cannot be written: File too large" in finished.stderr


def test_plot_is_of_the_python_package(run):
    finished = run("plot", "logs")
    assert finished.returncode == 1
    assert "write `python -m sidereal plot ...`" in finished.stderr
