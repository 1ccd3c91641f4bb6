"""Where iterators of sessions are, in checkpoints: each element is trained with once, whatever is
killed; over the protocols whose sessions differ most."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from session_servers import PATIENCE_S, Processes, addresses

import sidereal as sr
import sidereal.v1 as tf
from sidereal import errors

TRAINER = Path(__file__).parent / "input_trainer.py"

pytestmark = pytest.mark.usefixtures("fresh_graph")


class Cluster:
    """Two ps that run, and a worker."""

    def __init__(self, protocol: str) -> None:
        ports = addresses(3)
        self.jobs = {"ps": ports[:2], "worker": ports[2:]}
        self.protocol = protocol
        self.processes = Processes()
        self.ps = [self.serve(task) for task in range(2)]

    def serve(self, task: int) -> subprocess.Popen[str]:
        return self.processes.serve(self.jobs, "ps", task, "--protocol", self.protocol)

    def trainer(self, folder: Path, *last: int) -> subprocess.Popen[str]:
        words = (self.protocol, folder, *last)
        return self.processes.script(self.jobs, "worker", 0, TRAINER, *words)


@pytest.fixture(params=["grpc", "star_server"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    made = Cluster(request.param)
    yield made
    made.processes.end()


def line_of(process: subprocess.Popen[str], pattern: str) -> re.Match[str]:
    """The first line that a process prints which matches."""
    assert process.stdout is not None
    passed = []
    for line in process.stdout:
        match = re.fullmatch(pattern, line.rstrip())
        if match is not None:
            return match
        passed.append(line)
    raise AssertionError("".join(passed))


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait(PATIENCE_S)


def check_each_once(trainer: subprocess.Popen[str]) -> None:
    assert line_of(trainer, "counts (.*)")[1] == "[1.0]"
    assert line_of(trainer, "table (.*)")[1] == "240 [1.0]"
    assert trainer.wait(PATIENCE_S) == 0


def test_each_element_once_though_the_worker_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    last = 0
    for until in (10, 31, 32, 75):
        trainer = cluster.trainer(tmp_path, until)
        began = int(line_of(trainer, r"began at (\d+)")[1])
        assert last - 3 <= began <= last + 1
        line_of(trainer, rf"step {until}")
        assert trainer.wait(PATIENCE_S) == -signal.SIGKILL
        last = until
    trainer = cluster.trainer(tmp_path)
    assert int(line_of(trainer, r"began at (\d+)")[1]) >= 72
    check_each_once(trainer)


def test_each_element_once_though_a_ps_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    trainer = cluster.trainer(tmp_path)
    for task, step in ((0, 8), (1, 40)):
        line_of(trainer, f"step {step}")
        kill(cluster.ps[task])
        cluster.ps[task] = cluster.serve(task)
    check_each_once(trainer)


# --- make_saveable_from_iterator().


def test_an_iterator_is_where_it_was(tmp_path: Path) -> None:
    data = tf.data.Dataset.range(100).shuffle(10, seed=1).map(lambda x: x * 2, 2).batch(3)
    iterator = tf.data.make_one_shot_iterator(data)
    following = iterator.get_next()
    saveable = tf.data.experimental.make_saveable_from_iterator(iterator)
    assert saveable.name == "DatasetIterator:0"
    tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, saveable)
    saver = tf.train.Saver()  # there need be no variables
    with tf.Session() as session:
        for _ in range(4):
            session.run(following)
        path = saver.save(session, str(tmp_path / "m"))
        rest = [session.run(following) for _ in range(30)]
        with pytest.raises(errors.OutOfRangeError):
            session.run(following)
    assert [name for name, _ in sr.train.list_variables(path)] == ["DatasetIterator:0_STATE"]
    with tf.Session() as session:
        saver.restore(session, path)
        for wanted in rest:
            np.testing.assert_array_equal(session.run(following), wanted)
        with pytest.raises(errors.OutOfRangeError):
            session.run(following)


def test_what_is_no_iterator_of_a_graph() -> None:
    here = iter(sr.data.Dataset.range(3))
    with pytest.raises(ValueError, match="takes an iterator of a graph"):
        tf.data.experimental.make_saveable_from_iterator(here)
    iterator = tf.data.make_one_shot_iterator(tf.data.Dataset.range(3))
    with pytest.raises(ValueError, match="external_state_policy is 'never'"):
        tf.data.experimental.make_saveable_from_iterator(iterator, "never")


# --- CheckpointInputPipelineHook.


def model_fn(features: Any, labels: Any, mode: str) -> Any:
    counts = tf.get_variable("counts", [40], tf.float32, tf.zeros_initializer())
    count = tf.scatter_add(counts, features, tf.ones([2]))
    with tf.control_dependencies([count]):
        train = tf.train.get_or_create_global_step().assign_add(1)
    return sr.estimator.EstimatorSpec(mode, loss=tf.constant(0.0), train_op=train)


def input_fn() -> Any:
    return tf.data.Dataset.range(40).shuffle(8, seed=5).batch(2)


def train(folder: Path, steps: int | None) -> Any:
    config = sr.estimator.RunConfig(folder, save_checkpoints_steps=2, save_summary_steps=None)
    estimator = sr.estimator.Estimator(model_fn, config=config)
    hook = tf.data.experimental.CheckpointInputPipelineHook(estimator)
    estimator.train(input_fn, hooks=[hook], steps=steps)
    return estimator


def test_the_hook_goes_on_with_the_next_element(tmp_path: Path) -> None:
    train(tmp_path, 5)
    assert sr.train.latest_checkpoint(tmp_path, "checkpoint_input") == str(
        tmp_path / "input.ckpt-5"
    )
    train(tmp_path, 6)
    estimator = train(tmp_path, None)  # to the end of the data
    assert estimator.get_variable_value("global_step") == 20
    np.testing.assert_array_equal(estimator.get_variable_value("counts"), np.ones(40))
    assert sr.train.latest_checkpoint(tmp_path) == str(tmp_path / "model.ckpt-20")


def test_the_hook_goes_where_the_model_is(tmp_path: Path) -> None:
    train(tmp_path, 5)
    # The model that is restored is an older one than the newest position.
    sr.v1.train.update_checkpoint_state(tmp_path, str(tmp_path / "model.ckpt-2"))
    estimator = train(tmp_path, None)
    assert estimator.get_variable_value("global_step") == 20
    np.testing.assert_array_equal(estimator.get_variable_value("counts"), np.ones(40))


def test_the_hook_needs_iterators(tmp_path: Path) -> None:
    config = sr.estimator.RunConfig(tmp_path, save_checkpoints_steps=2)
    estimator = sr.estimator.Estimator(model_fn, config=config)
    hook = tf.data.experimental.CheckpointInputPipelineHook(estimator)
    tf.train.get_or_create_global_step()
    with pytest.raises(ValueError, match="the graph has no iterators"):
        hook.begin()
