"""Estimators on servers: the programs of examples/ over every protocol, a chief with ps tasks, and
what workers and an evaluator do."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from session_servers import PATIENCE_S, PROGRAM, ROOT, Processes, addresses

import sidereal.v1 as tf
from sidereal.launch import PROTOCOLS

EXAMPLES = ROOT / "examples" / "distributed"
est, fc = tf.estimator, tf.feature_column


@pytest.fixture
def processes() -> Iterator[Processes]:
    made = Processes()
    yield made
    made.end()


def launch(script: str, folder: Path, *arguments: Any, tasks: tuple[Any, ...]) -> dict[str, str]:
    """What each task of an example printed."""
    words = [sys.executable, "-m", "sidereal", "launch", *tasks, EXAMPLES / script, folder]
    done = subprocess.run(
        [str(word) for word in (*words, *arguments)], capture_output=True, text=True,
        timeout=2 * PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    said: dict[str, str] = {}
    for task, line in re.findall(r"^\[(\w+ \d+)\] (.*)$", done.stdout, re.M):
        said[task] = said.get(task, "") + line + "\n"
    return said


def measured(text: str) -> tuple[int, float]:
    """(step, AUC) of what an example prints at its end."""
    step, auc = re.findall(r"^step (\d+): auc (\S+), loss", text, re.M)[-1]
    return int(step), float(auc)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_program_of_star_server(tmp_path: Path, protocol: str) -> None:
    said = launch(
        "estimator_star_server.py", tmp_path, "--protocol", protocol, "--steps", 400,
        tasks=("--chief", "--evaluator", "--ps", 2, "--workers", 1),
    )  # fmt: skip
    # The worker may have begun steps when the last one counted.
    step, auc = measured(said["evaluator 0"])
    assert 400 <= step <= 410 and auc > 0.9
    # Its name has the step that it was begun at.
    found = str(tf.train.latest_checkpoint(tmp_path))
    assert 400 <= int(found.rpartition("-")[2]) <= step


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_program_of_grpc_plus_plus(tmp_path: Path, protocol: str) -> None:
    said = launch(
        "estimator_grpc_plus_plus.py", tmp_path, "--protocol", protocol, "--steps", 300,
        tasks=("--chief", "--ps", 2, "--workers", 1),
    )  # fmt: skip
    step, auc = measured(said["chief 0"])
    assert 300 <= step <= 310 and auc > 0.85


# --- A chief in this process.

X = np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32)
WORD = np.array(["a", "b", "c", "d", "e"])[np.arange(200) % 5]
Y = (X[:, :1] - 2 * X[:, 1:] + (np.arange(200) % 5)[:, None]).astype(np.float32)


def data() -> Any:
    features = {"x": X, "word": WORD}
    return tf.data.Dataset.from_tensor_slices((features, Y)).repeat().batch(50)


def line_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
    column = fc.embedding_column(fc.categorical_column_with_hash_bucket("word", 20), 1, "sum")
    partitioner = tf.fixed_size_partitioner(max(config.num_ps_replicas, 1))
    with tf.variable_scope("words", partitioner=partitioner):
        words = tf.feature_column.input_layer(features, [column])
    made = tf.layers.dense(features["x"], 1, name="line") + words
    if mode == est.ModeKeys.PREDICT:
        return est.EstimatorSpec(mode, {"y": made})
    loss = tf.losses.mean_squared_error(labels, made)
    step = None
    if mode == est.ModeKeys.TRAIN:
        optimizer = tf.train.AdagradOptimizer(0.5)
        step = optimizer.minimize(loss, tf.train.get_global_step())
        devices = "".join(each.device for each in tf.global_variables())
        tasks = set(re.findall(r"/job:ps/(?:replica:0/)?task:(\d)", devices))
        assert tasks == {str(task) for task in range(config.num_ps_replicas)}
    return est.EstimatorSpec(mode, made, loss, step)


@pytest.fixture(params=["grpc", "star_server"])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def chief(processes: Processes, protocol: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A cluster of two ps tasks that run, whose chief this process is."""
    ports = addresses(4)
    cluster = {"chief": ports[:1], "worker": ports[1:2], "ps": ports[2:]}
    for task in (0, 1):
        processes.serve(cluster, "ps", task, "--protocol", protocol)
    config = {"cluster": cluster, "task": {"type": "chief", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    return cluster


def config_of(folder: Path, protocol: str | None, **options: Any) -> Any:
    return est.RunConfig(
        str(folder), protocol=protocol, save_summary_steps=None, log_step_count_steps=None,
        tf_random_seed=1, **options,
    )  # fmt: skip


def train(estimator: Any, steps: int, **options: Any) -> Any:
    return est.train_and_evaluate(
        estimator, est.TrainSpec(data, max_steps=steps, **options), est.EvalSpec(data, steps=4)
    )


@pytest.mark.usefixtures("chief")
@pytest.mark.parametrize("consistency", ["async", "bounded(1)", "geo(8)"])
def test_a_chief_trains_on_ps_tasks(
    protocol: str, consistency: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was trained in parts on two tasks is evaluated and served as a whole in this process,
    and training goes on from it."""
    config = config_of(tmp_path, protocol, consistency=consistency)
    model = est.Estimator(line_fn, config=config)
    assert train(model, 100) is None
    assert model.get_variable_value("global_step") == 100
    name = "words/input_layer/word_embedding/embedding_weights"
    assert model.get_variable_value(name).shape == (20, 1)
    monkeypatch.delenv("TF_CONFIG")
    here = est.Estimator(line_fn, config=config_of(tmp_path, None))
    found = here.evaluate(data, steps=4)
    assert found["global_step"] == 100 and found["loss"] < 0.5
    predicted = here.predict(lambda: data().take(4))
    error = np.mean((np.array([each["y"] for each in predicted]) - Y) ** 2)
    np.testing.assert_allclose(found["loss"], error, rtol=1e-3)
    here.train(data, steps=100)
    assert here.evaluate(data, steps=4)["loss"] < found["loss"]


def test_variables_of_a_chief_move_while_it_trains(
    chief: dict[str, Any], protocol: str, tmp_path: Path
) -> None:
    class Moves(tf.train.SessionRunHook):
        """Gives commands between runs."""

        def __init__(self) -> None:
            self.said: list[str] = []

        def before_run(self, run_context: Any) -> None:
            if len(self.said) < 2:
                words = ("scale", "--ps", str(2 - len(self.said)))
                words = ("rebalance",) if len(self.said) == 0 else words
                ended = subprocess.run(
                    [PROGRAM, *words, "--cluster", json.dumps(chief)], capture_output=True,
                    text=True, timeout=PATIENCE_S, check=False,
                )  # fmt: skip
                if "no job" not in ended.stderr:
                    assert ended.returncode == 0, ended.stderr
                    self.said.append(ended.stdout)

    moves = Moves()
    model = est.Estimator(line_fn, config=config_of(tmp_path, protocol, movable=True))
    train(model, 200, hooks=[moves])
    assert "from 2 to 1 parameter server" in moves.said[1]
    assert model.get_variable_value("global_step") == 200
    assert model.evaluate(data, steps=4)["loss"] < 0.5


@pytest.mark.usefixtures("chief")
def test_averages_of_batch_norm_move_on_ps_tasks(protocol: str, tmp_path: Path) -> None:
    model = est.DNNRegressor(
        [8], [fc.numeric_column("x", 2)], config=config_of(tmp_path, protocol), batch_norm=True,
        optimizer=tf.train.AdagradOptimizer(0.3),
    )  # fmt: skip
    train(model, 100)
    get = model.get_variable_value
    inside = X @ get("dnn/hiddenlayer_0/kernel") + get("dnn/hiddenlayer_0/bias")
    mean = get("dnn/hiddenlayer_0/batchnorm_0/moving_mean")
    # A step moves them by a thousandth.
    most = 1 - 0.999**100
    assert mean.max() > 0.02 and np.all((mean >= 0) & (mean < most * np.abs(inside).max(0)))
    variance = get("dnn/hiddenlayer_0/batchnorm_0/moving_variance")
    assert np.all((variance != 1) & (np.abs(variance - 1) < 1))


def test_a_chief_goes_on_from_its_checkpoint_on_new_servers(
    chief: dict[str, Any], protocol: str, tmp_path: Path, processes: Processes
) -> None:
    model = est.Estimator(line_fn, config=config_of(tmp_path, protocol))
    train(model, 60)
    kernel = model.get_variable_value("line/kernel")
    processes.end()
    processes.all.clear()
    for task in (0, 1):
        processes.serve(chief, "ps", task, "--protocol", protocol)
    first: list[Any] = []

    class Kernel(tf.train.SessionRunHook):
        def after_create_session(self, session: Any, coord: Any) -> None:
            first.append(session.run("line/kernel:0"))

    train(model, 61, hooks=[Kernel()])
    np.testing.assert_array_equal(first[0], kernel)
    assert model.get_variable_value("global_step") == 61


def test_training_goes_on_when_parameter_servers_have_died(
    chief: dict[str, Any], protocol: str, tmp_path: Path, processes: Processes
) -> None:
    """Servers that are killed and started anew have no variables: a new session restores them."""
    sessions: list[int] = []

    class Kills(tf.train.SessionRunHook):
        def after_create_session(self, session: Any, coord: Any) -> None:
            sessions.append(int(session.run("global_step:0")))

        def before_run(self, run_context: Any) -> Any:
            return tf.train.SessionRunArgs(tf.train.get_global_step())

        def after_run(self, run_context: Any, run_values: Any) -> None:
            if len(sessions) == 1 and run_values.results >= 50:
                # A thread writes it, for which a loaded machine may take more than 30 steps.
                until = time.monotonic() + PATIENCE_S
                while str(tf.train.latest_checkpoint(tmp_path)).endswith("-0"):
                    assert time.monotonic() < until
                    threading.Event().wait(0.01)
                processes.end()
                processes.all.clear()
                for task in (0, 1):
                    processes.serve(chief, "ps", task, "--protocol", protocol)

    config = config_of(tmp_path, protocol, save_checkpoints_steps=20)
    model = est.Estimator(line_fn, config=config)
    train(model, 100, hooks=[Kills()])
    assert model.get_variable_value("global_step") == 100
    assert len(sessions) == 2 and sessions[0] == 0 and 20 <= sessions[1] <= 60


SCRIPT = """
import sys
import threading
import time
from pathlib import Path
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, {tests!r})
import test_estimator_cluster as t

model = t.est.Estimator(t.line_fn, config=t.config_of(Path({folder!r}), {protocol!r}))
t.train(model, {steps})
print("ended", flush=True)
"""


def test_workers_share_the_steps_with_the_chief(
    chief: dict[str, Any], protocol: str, tmp_path: Path, processes: Processes
) -> None:
    """A worker waits for the chief to initialise, trains with it, and ends at the same step."""
    script = tmp_path / "task.py"
    tests = os.path.dirname(os.path.abspath(__file__))
    folder = tmp_path / "model"
    script.write_text(
        SCRIPT.format(tests=tests, folder=str(folder), protocol=protocol, steps=400)
    )
    worker = processes.script(chief, "worker", 0, script)
    made: list[int] = []

    class Counts(tf.train.SessionRunHook):
        def after_run(self, run_context: Any, run_values: Any) -> None:
            made.append(1)

    model = est.Estimator(line_fn, config=config_of(folder, protocol))
    train(model, 400, hooks=[Counts()])
    output = worker.communicate(timeout=PATIENCE_S)[0]
    assert worker.returncode == 0 and output.endswith("ended\n"), output
    assert 400 <= model.get_variable_value("global_step") <= 410
    # The worker connects while the chief trains; if it came too late, it found the end.
    assert 0 < len(made) <= 410
