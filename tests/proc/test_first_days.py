"""What people meet on their first days with the program: slips of the keyboard, files that are not
what they seem, results that must not be lost, and what an operator finds in the log."""

import contextlib
import json
import os
import re
import subprocess
import time
from pathlib import Path

import pytest
from clicks import SMALL
from processes import PATIENCE_S, error_of

from sidereal.launch import ReservedPorts


@pytest.mark.parametrize("words, said", [
    (["train", "--modle", "lr"], "'sidereal train' has no option '--modle'; did you mean --model?"),
    (["trian"], "'sidereal' has no command 'trian'; did you mean train?"),
    (["graph", "dmup"], "'sidereal graph' has no command 'dmup'; did you mean dump?"),
])
def test_a_typo_is_answered_with_what_was_meant(run, words, said):
    finished = run(*words)
    assert finished.returncode == 2 and said in finished.stderr


def test_help_and_version_are_where_people_look(run):
    assert run("--version").stdout == run("version").stdout
    assert run("help").stdout == run("--help").stdout
    assert run("help", "train").stdout == run("train", "--help").stdout
    launch = run("launch", "--help")
    assert launch.returncode == 0 and "python -m sidereal launch --help" in launch.stdout


@pytest.mark.parametrize("cluster, said", [
    ('{"ps": ["a:1"],\n "worker": ["b:2"', "is no JSON: line 2, column 18"),
    ('{"pss": ["a:1"], "worker": ["b:2"]}', "job 'pss' of the cluster is none of ps, worker"),
    ('{"ps": ["a:99999"], "worker": ["b:2"]}', "'a:99999' is not the address of a ps task"),
])
def test_a_wrong_cluster_is_refused_before_anything_is_said(run, clicks, cluster, said):
    finished = run("train", "--data", clicks[0], *SMALL, "--cluster", cluster)
    assert said in error_of(finished) and finished.stdout == ""


def test_what_a_file_has_in_its_header_does_not_reach_the_terminal(run, tmp_path):
    file = tmp_path / "x.csv"
    file.write_bytes(b"label,\x1b[31mred,caf\xc3\xa9\n1,2,3\n")
    error = error_of(run("train", "--data", file, "--label", "click"))
    assert "the columns are: label, \\x1b[31mred, caf\u00e9" in error
    file.write_bytes(bytes(range(1, 256)) * 40)
    error = error_of(run("train", "--data", file, "--label", "click"))
    assert error.isprintable() and len(error) < 1000


def test_what_is_proposed_for_a_file_does_not_move_the_cursor(run, tmp_path):
    file = tmp_path / "x.csv"
    file.write_bytes(b"label,\x1b[31mred,a\n1,2,3\n0,1,1\n1,4,2\n")
    proposed = run("inspect", file, "--label", "label").stdout
    assert "\\u001B[31mred" in proposed and "\x1b" not in proposed
    (tmp_path / "features.toml").write_text(proposed)
    words = ["--features", tmp_path / "features.toml", "--model", "lr", "--epochs", "1"]
    finished = run("train", "--data", file, *words)
    assert finished.returncode == 0, finished.stderr


@pytest.mark.parametrize("option", ["--json", "--losses", "--trace", "--describe"])
def test_a_file_of_results_is_tried_before_the_training(run, clicks, option):
    finished = run("train", "--data", clicks[0], *SMALL, option, "/nosuch/r.json")
    assert error_of(finished).startswith("NOT_FOUND: cannot write /nosuch/r.json")
    assert "trained on" not in finished.stdout


def test_test_data_of_one_class_has_no_auc_and_all_else(run, clicks, tmp_path):
    test, result = tmp_path / "one.csv", tmp_path / "r.json"
    header, *rows = clicks[1].read_text().splitlines()
    test.write_text("\n".join([header, *(row for row in rows if row.startswith("0"))]) + "\n")
    finished = run("train", "--data", clicks[0], *SMALL, "--test", test, "--json", result)
    assert finished.returncode == 0, finished.stderr
    told = json.loads(result.read_text())
    assert told["test_auc"] is None and told["test_logloss"] > 0 and told["steps"] > 0


def test_a_training_that_diverges_ends_with_the_reason_in_the_results_too(run, clicks, tmp_path):
    result = tmp_path / "r.json"
    words = ["--optimizer", "sgd", "--lr", "1e38", "--model", "deepfm", "--epochs", "3"]
    finished = run("train", "--data", clicks[0], *SMALL, *words, "--json", result)
    error = error_of(finished)
    assert finished.returncode == 1 and "is the learning rate too large" in error
    told = json.loads(result.read_text())
    assert told["error"]["code"] == "INVALID_ARGUMENT" and told["loss"] is None
    assert told["error"]["message"] in error


def test_data_without_a_row_is_refused(run, clicks, tmp_path):
    empty, result = tmp_path / "empty.csv", tmp_path / "r.json"
    empty.write_text(clicks[0].read_text().splitlines()[0] + "\n")
    finished = run("train", "--data", empty, *SMALL, "--json", result)
    assert f"there is no row to train on in {empty}" in error_of(finished)
    assert json.loads(result.read_text())["error"]["code"] == "INVALID_ARGUMENT"
    finished = run("train", "--data", clicks[0], *SMALL, "--test", empty, "--json", result)
    assert f"there is no row to evaluate on in {empty}" in error_of(finished)
    told = json.loads(result.read_text())
    assert told["steps"] > 0 and told["test_auc"] is None  # What was learned is told all the same.


def test_columns_of_other_files_may_stand_in_another_order(run, clicks, tmp_path):
    turned, result = tmp_path / "turned.csv", tmp_path / "r.json"
    rows = [row.split(",") for row in clicks[1].read_text().splitlines()]
    turned.write_text("".join(",".join(reversed(row)) + "\n" for row in rows))
    found = []
    for test in (clicks[1], turned):
        finished = run("train", "--data", clicks[0], *SMALL, "--test", test, "--json", result)
        assert finished.returncode == 0, finished.stderr
        found.append(json.loads(result.read_text())["test_auc"])
    assert found[1] == pytest.approx(found[0], abs=0.01) and found[0] > 0.6


@pytest.mark.parametrize("label, said", [
    ("<=50K", "is not a number; give every row a 0 or 1 as label, or say which labels are 1: "
     "--positive TEXT"),
    ("4", "is neither 0 nor 1; give every row a 0 or 1 as label, or say which labels are 1: "
     "--label 'COLUMN>=4'"),
])
def test_labels_that_are_something_else_are_answered_with_the_option(run, tmp_path, label, said):
    file = tmp_path / "x.csv"
    file.write_text(f"click,price,user\n0,1,u1\n{label},2,u2\n")
    error = error_of(run("train", "--data", file, *SMALL))
    assert f"x.csv:3: the label '{label}' {said}" in error


def test_an_error_of_a_worker_is_told_once(run, clicks):
    with open(clicks[0], "a") as file:
        file.write("maybe,0.5,v1,v2,v3\n")
    finished = run("train", "--data", clicks[0], *SMALL)
    error = error_of(finished)
    assert "the label 'maybe'" in error and "127.0.0.1:" not in error
    assert finished.stderr.count("maybe") == 1, finished.stderr


def test_help_shows_the_options_that_a_command_uses(run):
    shown = run("graph", "dump", "--help").stdout
    assert "--ps N" in shown and "--cluster" in shown
    for other in ("secret", "--cert", "processes to start", "TEXT:{"):
        assert other not in shown


@pytest.mark.parametrize("protocol", ["grpc", "star_server"])
def test_servers_of_a_cluster_are_trained_on(run, program, clicks, tmp_path, protocol):
    reserved = ReservedPorts(2)
    ports = reserved.ports
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({
        job: [f"127.0.0.1:{port}"] for job, port in zip(("ps", "worker"), ports)}))
    started = []
    try:
        for job in ("ps", "worker"):
            started.append(subprocess.Popen(
                [program, "serve", "--job", job, "--task", "0", "--cluster", file,
                 "--protocol", protocol],
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))
            assert started[-1].stdout.readline().strip() == f"127.0.0.1:{ports[len(started) - 1]}"
        finished = run("train", "--data", clicks[0], *SMALL, "--cluster", file,
                       "--protocol", protocol)
        assert finished.returncode == 0, finished.stderr
        assert "trained on 8000 rows" in finished.stdout
    finally:
        for server in started:
            server.kill()
            server.wait()
            server.stdout.close()
        reserved.close()


def test_validation_is_shown_while_the_training_goes_on(program, clicks):
    words = [program, "train", "--data", clicks[0], *SMALL, "--valid", clicks[1], "--epochs",
             "100000", "--quiet"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as training:
        try:
            line = training.stdout.readline()
            assert re.match(r"epoch 1: valid auc 0\.\d+, log loss ", line)
            assert training.poll() is None
        finally:
            training.kill()


@contextlib.contextmanager
def servers(program, folder, *more):
    """A ps and a worker: their addresses as JSON, and what the worker writes on standard error."""
    started, cluster = [], {"ps": [], "worker": []}
    log = folder / "worker.log"
    try:
        for job in cluster:
            with open(log if job == "worker" else folder / "ps.log", "w") as errors:
                server = subprocess.Popen(
                    [program, "serve", "--job", job, "--listen", "127.0.0.1:0", *more],
                    stdout=subprocess.PIPE, stderr=errors, text=True, cwd="/")
            started.append(server)
            cluster[job].append(server.stdout.readline().strip())
        yield json.dumps(cluster), log
        for server in started:
            server.terminate()
            server.wait(PATIENCE_S)
    finally:
        for server in started:
            server.kill()
            server.wait()
            server.stdout.close()


def test_relative_names_of_files_hold_where_the_training_begins(program, clicks, tmp_path):
    with servers(program, tmp_path) as (cluster, log):
        finished = subprocess.run(
            [program, "train", "--data", clicks[0].name, "--test", clicks[1].name, *SMALL,
             "--cluster", cluster],
            cwd=clicks[0].parent, capture_output=True, text=True, timeout=PATIENCE_S)
    assert finished.returncode == 0, finished.stderr
    # Of the one training: who, how long, and what came of it.
    text = log.read_text()
    date = r"^\d{4}-\d\d-\d\d [\d:.]+[+-][\d:]+ I /job:worker\S* "
    assert re.search(date + "session made ", text, re.M)
    assert re.search(r" session made session=(\w+) client=\S+ protocol=grpc$", text, re.M)
    assert re.search(r" loop ended status=OK$", text, re.M)
    assert re.search(r" session ended session=\w+ seconds=[\d.]+", text, re.M)


@contextlib.contextmanager
def memory_of(size):
    """The file into which processes write themselves that may have so much together."""
    group = Path("/sys/fs/cgroup/memory") / f"sidereal-test-{os.getpid()}"
    limit = "memory.limit_in_bytes"
    if not group.parent.is_dir():
        group, limit = Path("/sys/fs/cgroup") / group.name, "memory.max"
    try:
        group.mkdir()
        (group / limit).write_text(str(size))
    except OSError as error:
        with contextlib.suppress(OSError):
            group.rmdir()
        pytest.skip(f"no control group of memory can be made here: {error}")
    try:
        yield group / "cgroup.procs"
    finally:
        deadline = time.monotonic() + PATIENCE_S
        # The tasks end a little after who started them.
        while (group / "cgroup.procs").read_text() and time.monotonic() < deadline:
            pass
        group.rmdir()


def in_group(program, group, *words):
    command = ["sh", "-c", 'echo $$ > "$0"; exec "$@"', group, program, *words]
    return error_of(subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S))


FM = ["demo", "--rows", "20000", "--model", "fm", "--epochs", "1", "--embedding-dim"]


def test_a_model_for_which_memory_is_not_enough_is_refused_with_sizes(program):
    with memory_of(400 << 20) as group:
        error = in_group(program, group, *FM, "64")
    assert error.startswith("RESOURCE_EXHAUSTED: the variables of the model need 2.8 GiB on 2 ps")
    assert "400 MiB may be used" in error and "'embedding/table' [3847281,64]" in error


def test_a_task_that_was_killed_for_want_of_memory_says_so(program):
    # Enough for the variables, not for the processes around them.
    with memory_of(400 << 20) as group:
        error = in_group(program, group, *FM, "8")
    assert re.match(r"UNAVAILABLE: /job:ps/task:\d \(pid \d+\) was killed by the kernel, most "
                    r"likely because it was out of memory: the limit .* is 400 MiB", error)


def test_what_variables_need_is_said_before_they_are_made(run):
    finished = run("demo", "--rows", "1000", "--model", "lr", "--epochs", "1")
    assert finished.returncode == 0, finished.stderr
    assert ("\nvariables need 44.0 MiB with the optimizer's slots, 22.0 MiB on each ps; the "
            "largest: 'linear/ids/table' [3847281,1] with 2 slots: 44.0 MiB\n") in finished.stdout


def test_a_server_is_configured_by_a_file(program, tmp_path):
    (tmp_path / "serve.toml").write_text('log-level = "error"\nmetrics-port = 0\nlanes = 2\n')
    with servers(program, tmp_path, "--config", tmp_path / "serve.toml") as (_, log):
        pass
    assert log.read_text() == ""
    (tmp_path / "serve.toml").write_text('lanez = 2\n')
    wrong = subprocess.run([program, "serve", "--job", "ps", "--config", tmp_path / "serve.toml"],
                           capture_output=True, text=True, timeout=PATIENCE_S)
    assert wrong.returncode != 0 and "serve.toml:1" in wrong.stderr and "lanes" in wrong.stderr


def test_a_log_of_json_has_an_object_in_each_line(run, program, clicks, tmp_path):
    with servers(program, tmp_path, "--log-format", "json") as (cluster, log):
        finished = run("train", "--data", clicks[0], *SMALL, "--cluster", cluster)
        assert finished.returncode == 0, finished.stderr
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert {"time", "level", "task", "message"} == set(lines[-1])
    assert lines[-1]["task"] == "/job:worker/replica:0/task:0"
    assert any(line["message"].startswith("session made ") for line in lines)
