"""The program as its users see it: messages, exit codes, files, and what happens when tasks die."""

import json
import os
import pty
import signal
import socket
import subprocess
import time

import pytest
from clicks import SMALL
from processes import PATIENCE_S, Launcher, children, error_of, is_running, wait_for_end

import sidereal
from sidereal.launch import PROTOCOLS, ReservedPorts

#: The promise: everything has ended this long after one of its parts was lost.
LOST_S = 10

@pytest.fixture
def launch(program):
    """launch(argument...) -> a Launcher; all its processes end with the test."""
    launchers = []

    def make(*words):
        launchers.append(Launcher([program, *words]))
        return launchers[-1]

    yield make
    for launcher in launchers:
        launcher.clean_up()


@pytest.fixture
def endless(launch, clicks):
    """A training on 2 ps and 2 workers that would not end for a long time."""
    launcher = launch("train", "--data", clicks[0], *SMALL, "--epochs", "1000000",
                      "--ps", "2", "--workers", "2")
    launcher.wait_for_progress(4)
    return launcher


def test_help_version_and_ops(run):
    assert "--embedding-dim" in run("train", "--help").stdout
    assert run("version").stdout.startswith("sidereal ")
    for command in ("launch", "export", "predict", "evaluate"):
        assert f"  {command}" in run("--help").stdout
        assert f"python -m sidereal {command}" in error_of(run(command, "--ps", "2"))
        assert f"python -m sidereal {command}" in run(command, "--ps", "2", "--help").stdout
    ops = run("ops")
    assert ops.returncode == 0
    assert "EmbeddingLookup" in ops.stdout and "MatMul" in ops.stdout


def test_a_training_describes_its_model(run, clicks, tmp_path):
    described = tmp_path / "model.json"
    words = [*SMALL, "--model", "deepfm", "--hidden", "8,4", "--embedding-dim", "3"]
    words = ["train", "--data", clicks[0], *words, "--steps-max", "2", "--describe"]
    finished = run(*words, described)
    assert finished.returncode == 0, finished.stderr
    model = sidereal.models.ModelDescription.load(described)
    data = sidereal.data.csv(clicks[0], label="click", numeric=["price"], hash_buckets=1000)
    assert model.data.files == [] and model.data.categorical == ["site", "device", "hour"]
    assert model.data.hash_buckets == 1000 and model.data.label == "click"
    built = sidereal.models.build("deepfm", data, hidden=[8, 4], embedding_dim=3)
    assert model.variables == {one.name: (one.dtype, one.shape) for one in built.variables()}
    assert set(model.inputs) == {"dense", "ids"} and model.is_binary
    error = error_of(run(*words, tmp_path / "a" / "b"))
    assert error.startswith(f"NOT_FOUND: cannot write {tmp_path / 'a' / 'b'}")


def test_one_operation_is_shown_and_a_wrong_name_gets_the_right_one(run):
    shown = run("ops", "TopK")
    assert shown.returncode == 0
    assert "outputs: as input 0; int32" in shown.stdout
    error = error_of(run("ops", "topk_v2"))
    assert error.startswith("NOT_FOUND: there is no op named 'topk_v2'; names like it: TopK")
    assert error_of(run("ops", "matmul")).endswith("names like it: MatMul")


def test_a_built_in_model_is_dumped_as_text_plan_program_and_picture(run, tmp_path):
    small = ["graph", "dump", "--model", "deepfm", "--hidden", "8,4", "--ps", "2"]
    text = run(*small)
    assert text.returncode == 0 and text.stdout.startswith("sidereal-graph 1\n")
    assert "EmbeddingUpdate" in text.stdout and "VariableUpdateRows" not in text.stdout
    planned = run(*small, "--stage", "plan")
    assert "VariableUpdateRows" in planned.stdout and "/job:ps/replica:0/task:1" in planned.stdout
    assert "\n/job:ps/replica:0/task:1/device:CPU:0:" in run(*small, "--stage", "program").stdout
    dot = run(*small, "--stage", "plan", "--format", "dot").stdout
    assert dot.startswith("digraph") and 'label="devices"' in dot
    picture = tmp_path / "it's.svg"
    drawn = run(*small, "--stage", "plan", "--output", picture)
    if "is not installed" in drawn.stderr:
        pytest.skip("skipped: Graphviz is not installed")
    assert drawn.returncode == 0
    assert picture.read_text().count("#fde2c4") > 3


def test_a_saved_function_is_dumped_and_another_file_refused(run, tmp_path):
    saved = "tests/golden/saved_model_1.srsm"
    assert "function @" in run("graph", "dump", saved).stdout
    assert "Scan" in run("graph", "dump", saved, "--stage", "program").stdout
    error = error_of(run("graph", "dump", saved, "--function", "other"))
    assert "holds 1 functions: score; choose one with --function" in error
    bad = tmp_path / "bad.srsm"
    bad.write_bytes(b"something else")
    assert "do not start with 'SRSM'" in error_of(run("graph", "dump", bad))
    assert "cannot read" in error_of(run("graph", "dump", tmp_path / "nothing"))


def test_wrong_usage_is_code_2(run, tmp_path):
    assert "--data" in error_of(run("train"), 2)
    assert "gpt" in error_of(run("train", "--data", "x", "--model", "gpt"), 2)


def test_a_missing_file_is_named(run, tmp_path):
    assert error_of(run("train", "--data", tmp_path / "day_*.csv")).startswith("NOT_FOUND")
    assert "none.csv" in error_of(run("train", "--data", tmp_path / "none.csv"))


def test_a_missing_column_is_named(run, clicks):
    error = error_of(run("train", "--data", clicks[0], "--label", "clicked"))
    assert "clicked" in error and "train.csv" in error


def test_every_protocol_trains(run, clicks):
    for protocol in PROTOCOLS:
        done = run("train", "--data", clicks[0], *SMALL, "--protocol", protocol)
        assert done.returncode == 0, done.stderr


def test_a_bad_row_fails_with_file_and_line(run, clicks):
    lines = clicks[0].read_text().splitlines()
    lines[17] = "1,0.5,v1"
    clicks[0].write_text("\n".join(lines) + "\n")
    error = error_of(run("train", "--data", clicks[0], *SMALL))
    assert "train.csv" in error and "18" in error


def test_bad_rows_are_skipped_counted_and_reported(run, clicks, tmp_path):
    lines = clicks[0].read_text().splitlines()
    lines[17] = "1,0.5,v1"
    lines[99] = "maybe,0.5,v1,v2,v3"
    clicks[0].write_text("\n".join(lines) + "\n")
    out = tmp_path / "out.json"
    finished = run("train", "--data", clicks[0], *SMALL, "--bad-rows", "skip", "--json", out)
    assert finished.returncode == 0, finished.stderr
    assert "skipped 2 bad rows" in finished.stdout
    assert "18" in finished.stdout
    assert json.loads(out.read_text())["rows_skipped"] == 2


@pytest.mark.parametrize("model", ["lr", "fm", "wdl", "deepfm", "dcn"])
def test_every_model_learns_what_there_is(run, clicks, tmp_path, model):
    train, test, best = clicks
    out = tmp_path / "out.json"
    finished = run("train", "--data", train, *SMALL, "--model", model, "--embedding-dim", "4",
                   "--hidden", "16,8", "--lr", "0.02", "--epochs", "4", "--test", test, "--valid",
                   test, "--ps", "2", "--workers", "2", "--seed", "7", "--json", out)
    assert finished.returncode == 0, finished.stderr
    result = json.loads(out.read_text())
    assert result["test_auc"] > best - 0.04
    assert 0 < result["test_logloss"] < 0.69
    assert result["rows"] == 4 * 8000
    assert result["epochs"] == 4 and len(result["valid"]) == 4
    assert result["samples_per_s"] > 0 and result["seconds"] > 0 and result["steps"] >= 4 * 63
    assert result["config"]["model"] == model
    assert [t["task"] for t in result["tasks"]] == [
        "/job:ps/task:0", "/job:ps/task:1", "/job:worker/task:0", "/job:worker/task:1"]
    assert "test: auc" in finished.stdout and "/job:worker/task:1" in finished.stdout


def test_the_losses_of_one_worker_do_not_depend_on_the_number_of_ps(run, clicks, tmp_path):
    losses = []
    for i, cluster in enumerate(([], [], ["--ps", "2"], ["--ps", "3", "--ps-lanes", "2"])):
        out = tmp_path / f"losses_{i}.txt"
        finished = run("train", "--data", clicks[0], *SMALL, "--model", "deepfm", "--hidden", "8",
                       "--embedding-dim", "4", "--steps-max", "40", "--losses", out, *cluster)
        assert finished.returncode == 0, finished.stderr
        losses.append(out.read_text())
    assert len(losses[0].splitlines()) == 40
    assert losses[0] == losses[1] == losses[2] == losses[3]


def test_the_demo_prints_the_best_possible_auc(run, tmp_path):
    out = tmp_path / "demo.json"
    finished = run("demo", "--rows", "20000", "--eval-rows", "5000", "--model", "lr", "--json", out)
    assert finished.returncode == 0, finished.stderr
    result = json.loads(out.read_text())
    assert 0.5 < result["test_auc"] < result["best_auc"] < 0.9
    assert f"{result['best_auc']:.4f}" in finished.stdout


def test_a_terminal_gets_one_live_line(program, clicks):
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [program, "train", "--data", clicks[0], *SMALL, "--epochs", "1"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    shown = b""
    while True:
        try:
            chunk = os.read(ours, 65536)
        except OSError:  # EIO: the other side is closed.
            break
        if not chunk:
            break
        shown += chunk
    os.close(ours)
    assert process.wait(PATIENCE_S) == 0, shown
    assert b"\r" in shown and b"samples/s" in shown
    # One at the end of the epoch, and one at the end.
    assert 1 <= shown.count(b"\n") <= 2


def test_a_port_in_use_is_named(run):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        error = error_of(run("serve", "--job", "ps", "--listen", address))
    assert address in error and error.startswith("UNKNOWN: Could not start")


def test_a_wrong_address_is_named(run, clicks):
    reserved = ReservedPorts(1)
    address = f"127.0.0.1:{reserved.ports[0]}"
    cluster = json.dumps({"ps": [address], "worker": [address]})
    error = error_of(run("train", "--data", clicks[0], *SMALL, "--cluster", cluster))
    reserved.close()
    assert address in error or "/job:" in error
    assert error.startswith(("UNAVAILABLE", "DEADLINE_EXCEEDED"))


def test_servers_started_by_hand_are_used_and_left_running(run, program, clicks, tmp_path):
    servers, cluster = [], {"ps": [], "worker": []}
    try:
        for job in cluster:
            server = subprocess.Popen(
                [program, "serve", "--job", job, "--listen", "127.0.0.1:0"],
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            servers.append(server)
            cluster[job].append(server.stdout.readline().strip())
        file = tmp_path / "cluster.json"
        file.write_text(json.dumps(cluster))
        for _ in range(2):
            finished = run("train", "--data", clicks[0], *SMALL, "--cluster", file,
                           "--test", clicks[1])
            assert finished.returncode == 0, finished.stderr
            assert "test: auc" in finished.stdout
        for server in servers:
            assert server.poll() is None
            server.terminate()
        assert [server.wait(PATIENCE_S) for server in servers] == [0, 0]
    finally:
        for server in servers:
            server.kill()
            server.wait()
            server.stdout.close()


@pytest.mark.parametrize("task", ["/job:worker/task:1", "/job:ps/task:1"])
def test_a_killed_task_ends_everything_and_is_named(endless, task):
    os.kill(endless.tasks[task], signal.SIGKILL)
    started = time.monotonic()
    code, errors = endless.wait(PATIENCE_S)
    wait_for_end(endless.tasks.values(), PATIENCE_S)
    seconds = time.monotonic() - started
    assert code == 1
    assert f"sidereal: error: UNAVAILABLE: {task}" in errors or (
        "sidereal: error: UNAVAILABLE" in errors and task in errors), errors
    assert seconds < LOST_S


@pytest.mark.parametrize("consistency", ["sync", "bounded(2)", "hybrid"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_worker_killed_while_others_wait_for_it_ends_everything_and_is_named(
        launch, clicks, protocol, consistency):
    launcher = launch("train", "--data", clicks[0], *SMALL, "--epochs", "1000000", "--ps", "2",
                      "--workers", "2", "--consistency", consistency, "--protocol", protocol)
    launcher.wait_for_progress(4)
    task = "/job:worker/task:1"
    os.kill(launcher.tasks[task], signal.SIGKILL)
    started = time.monotonic()
    code, errors = launcher.wait(PATIENCE_S)
    wait_for_end(launcher.tasks.values(), PATIENCE_S)
    assert code == 1
    assert "sidereal: error: UNAVAILABLE" in errors and task in errors, errors
    assert time.monotonic() - started < LOST_S


def test_in_step_worker_lanes_make_one_update_of_a_batch_each(run, clicks, tmp_path):
    result = tmp_path / "result.json"
    done = run("train", "--data", clicks[0], *SMALL, "--workers", "2", "--consistency", "sync",
               "--json", result)
    assert done.returncode == 0, done.stderr
    figures = json.loads(result.read_text())
    assert figures["config"]["consistency"] == "sync"
    assert figures["updates"] < figures["steps"] <= 2 * figures["updates"]
    for consistency, more, message in (
        ("local(2)", (), "async, sync, sync(k of n), bounded(s), hybrid, geo(k)"),
        ("sync(1 of 2)", (), "the cluster has 1 replicas"),
        ("sync", ("--steps-in-flight", "2"), "steps_in_flight is 2"),
    ):
        assert message in error_of(run("train", "--data", clicks[0], *SMALL,
                                       "--consistency", consistency, *more))


def test_a_killed_launcher_leaves_no_process_behind(endless):
    os.kill(endless.pid, signal.SIGKILL)
    assert wait_for_end(endless.tasks.values(), PATIENCE_S) < LOST_S


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_stops_cleanly(endless, number):
    os.kill(endless.pid, number)
    code, errors = endless.wait(PATIENCE_S)
    assert code == 128 + number, errors
    assert "sidereal: error: CANCELLED" in errors
    assert errors.count("error:") == 1, errors
    assert not endless.left()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_all_processes_stops_cleanly(endless, number):
    os.killpg(endless.pid, number)  # As a terminal, timeout and systemd send it.
    code, errors = endless.wait(PATIENCE_S)
    assert code == 128 + number, errors
    assert "sidereal: error: CANCELLED: interrupted" in errors
    assert errors.count("error:") == 1, errors
    assert not endless.left()


def test_a_second_interrupt_kills(endless):
    os.kill(endless.tasks["/job:ps/task:0"], signal.SIGSTOP)
    os.kill(endless.pid, signal.SIGINT)
    endless.wait_for_text(b"stopping")
    os.kill(endless.pid, signal.SIGINT)
    assert endless.process.wait(PATIENCE_S) == -signal.SIGINT
    os.kill(endless.tasks["/job:ps/task:0"], signal.SIGCONT)
    wait_for_end(endless.tasks.values(), PATIENCE_S)


def test_nothing_is_left_after_an_ordinary_end(launch, clicks):
    launcher = launch("train", "--data", clicks[0], *SMALL, "--epochs", "200", "--workers", "2")
    launcher.wait_for_progress(3)
    code, errors = launcher.wait(PATIENCE_S)
    assert code == 0, errors
    assert not launcher.left()
    assert not [pid for pid in children(os.getpid()) if is_running(pid)]
