"""Variables of monitored sessions go from one parameter server to another while they train: each
run counts once, whatever the protocol."""

from __future__ import annotations

import json
import logging
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from session_servers import PATIENCE_S, PROGRAM, output_of
from strategies import Tasks

import sidereal.v1 as tf
from sidereal import _native, errors
from sidereal.launch import PROTOCOLS
from sidereal.v1 import moving, session_moves
from sidereal.v1.move_board import CHIEF, Board, Head, Program, config_of

TRAINER = Path(__file__).parent / "movable_trainer.py"
COMMANDS = ("scale --ps 3", "drain ps:1", "scale --ps 1", "scale --ps 3", "rebalance")

pytestmark = pytest.mark.usefixtures("fresh_graph")


class Cluster(Tasks):
    """Three parameter servers, and workers that are servers of tests or of trainers."""

    def __init__(self, folder: Path, protocol: str, *not_yet: int, **options: Any) -> None:
        self.folder = folder
        self.has_servers = options.pop("has_servers", False)
        super().__init__(3, options.pop("workers", 2), protocol, not_yet, **options)
        self.target = f"grpc://{self.cluster['worker'][0]}"
        self.trainers: dict[int, subprocess.Popen[str]] = {}

    def start(self, job: str, task: int) -> None:
        if job == "ps" or self.has_servers:
            super().start(job, task)

    def train(self, *workers: int, **options: Any) -> None:
        """Begins trainers, or begins them again, and waits until each has made a run."""
        options = {"workers": len(self.cluster["worker"]), **options}
        for worker in workers:
            (self.folder / f"runs-{worker}").unlink(missing_ok=True)
            self.trainers[worker] = self.processes.script(
                self.cluster, "worker", worker, TRAINER, self.protocol, self.folder,
                json.dumps(options),
            )  # fmt: skip
        for worker in workers:
            self.runs_more(worker, 1)

    def runs(self, worker: int) -> int:
        """How many runs a trainer has made."""
        path = self.folder / f"runs-{worker}"
        return int((path.read_text() if path.exists() else "") or 0)

    def runs_more(self, worker: int, runs: int = 20) -> None:
        """Waits until it has made so many more."""
        before, until = self.runs(worker), time.monotonic() + PATIENCE_S
        while self.runs(worker) < before + runs:
            assert self.trainers[worker].poll() is None, self.trainers[worker].communicate()[0]
            assert time.monotonic() < until, f"worker {worker} has made {self.runs(worker)} runs"
            threading.Event().wait(0.02)

    def end(self) -> dict[int, str]:
        """What the trainers print to their end."""
        (self.folder / "stop").touch()
        return {worker: output_of(process) for worker, process in self.trainers.items()}


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Makes clusters that end with the test."""
    found: list[Cluster] = []

    def make(protocol: str = "grpc", *not_yet: int, **options: Any) -> Cluster:
        found.append(Cluster(tmp_path, protocol, *not_yet, **options))
        return found[-1]

    yield make
    for cluster in found:
        cluster.processes.end()


def seen(output: str) -> list[list[float]]:
    """The values of variables that a trainer saw last: whole, counts of workers, parts."""
    return json.loads(output.partition("sees ")[2].splitlines()[0])


def check_counts(cluster: Cluster, outputs: dict[int, str], slack: int = 0) -> None:
    """Each run of each worker counts once; of those that were killed the last may count too."""
    runs = sum(cluster.runs(worker) for worker in cluster.trainers)
    values = max((seen(output) for output in outputs.values()), key=lambda each: each[0])
    workers = len(cluster.cluster["worker"])
    for value in (values[0], *values[1 + workers :]):
        assert runs <= min(value) and max(value) <= runs + slack, (runs, slack, values)
    for worker in outputs:
        assert values[1 + worker] == [cluster.runs(worker)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_run_counts_once_while_variables_move(
    made: Callable[..., Cluster], protocol: str
) -> None:
    cluster = made(protocol, 2)
    cluster.train(0, 1)
    cluster.start("ps", 2)
    said = cluster.well("scale", "--ps", "3")
    assert "from 2 to 3 parameter servers" in said
    cluster.well("drain", "ps:1")
    # It is of no use any more.
    cluster.kill("ps", 1)
    for worker in (0, 1):
        cluster.runs_more(worker)
    cluster.well("scale", "--ps", "1")
    cluster.start("ps", 1)
    cluster.well("scale", "--ps", "3")
    cluster.well("rebalance")
    for worker in (0, 1):
        cluster.runs_more(worker)
    outputs = cluster.end()
    check_counts(cluster, outputs)
    for output in outputs.values():
        assert output.count("session") == 1 and "lost" not in output, output


def test_a_worker_that_joins_later_finds_what_has_moved(made: Callable[..., Cluster]) -> None:
    cluster = made("star_server")
    cluster.train(0)
    cluster.well("scale", "--ps", "3")
    cluster.well("drain", "ps:1")
    cluster.kill("ps", 1)
    cluster.train(1)
    cluster.well("scale", "--ps", "1")
    for worker in (0, 1):
        cluster.runs_more(worker)
    check_counts(cluster, cluster.end())


@pytest.mark.parametrize("protocol", ["grpc", "star_server_lite"])
def test_a_worker_that_was_killed_holds_up_nobody(
    made: Callable[..., Cluster], protocol: str
) -> None:
    cluster = made(protocol, workers=3)
    cluster.train(0, 1, 2)
    killed = [cluster.trainers.pop(worker) for worker in (1, 2)]
    killed[0].kill()
    # The other one is killed while the hand-over waits for it.
    killed[1].send_signal(signal.SIGSTOP)
    said: list[str] = []
    thread = threading.Thread(target=lambda: said.append(cluster.well("scale", "--ps", "3")))
    thread.start()
    cluster.runs_more(0)
    killed[1].kill()
    thread.join()
    assert "from 2 to 3 parameter servers" in said[0]
    cluster.runs_more(0)
    runs = {worker: cluster.runs(worker) for worker in (1, 2)}
    cluster.well("drain", "ps:1")
    outputs = cluster.end()
    assert re.search(r"w[12].*it has died", outputs[0]), outputs[0]
    assert outputs[0].count("session") == 1
    values = seen(outputs[0])
    for worker, count in runs.items():
        assert count <= values[1 + worker][0] <= count + 1
    total = cluster.runs(0) + sum(runs.values())
    for value in (values[0], *values[4:]):
        assert total <= min(value) and max(value) <= total + 2


def test_a_worker_that_stood_still_goes_on_where_variables_are(
    made: Callable[..., Cluster],
) -> None:
    cluster = made("star_server")
    cluster.train(0, 1)
    cluster.trainers[1].send_signal(signal.SIGSTOP)
    cluster.well("scale", "--ps", "3")
    cluster.well("drain", "ps:1")
    cluster.kill("ps", 1)
    cluster.trainers[1].send_signal(signal.SIGCONT)
    for worker in (0, 1):
        cluster.runs_more(worker)
    outputs = cluster.end()
    # Its run may have counted on some servers when it lost them, and was made again.
    values = seen(outputs[0])
    runs = cluster.runs(0) + cluster.runs(1)
    for value in (values[0], *values[3:]):
        assert runs <= min(value) and max(value) <= runs + 2, (runs, values)


def test_a_chief_that_was_killed_finds_what_has_moved(
    made: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = made("star_server")
    folder = tmp_path / "model"
    cluster.train(0, 1, checkpoint_dir=str(folder), save_checkpoint_steps=20)
    cluster.well("scale", "--ps", "3")
    cluster.well("drain", "ps:1")
    cluster.kill("ps", 1)
    cluster.trainers[0].kill()
    cluster.trainers[0].wait()
    cluster.runs_more(1)
    cluster.train(0, checkpoint_dir=str(folder), save_checkpoint_steps=20)
    cluster.start("ps", 1)
    cluster.well("scale", "--ps", "3")
    for worker in (0, 1):
        cluster.runs_more(worker)
    outputs = cluster.end()
    assert "session" in outputs[0]
    assert outputs[1].count("session") == 1, outputs[1]
    values = seen(outputs[1])
    assert len({value for part in values[3:] for value in part}) <= 3


# --- Sessions of this process.


class Training:
    """A model, and a session of this process that trains it."""

    def __init__(
        self, cluster: Cluster, optimizer: Callable[[], Any] | None = None, worker: int = 0,
        movable: bool = True, more: Callable[[], object] = lambda: None,
        worker_name: str | None = None, **options: Any,
    ) -> None:  # fmt: skip
        self.graph = tf.Graph()
        with self.graph.as_default():
            tf.set_random_seed(3)
            setter = tf.train.replica_device_setter(
                2, worker_device=f"/job:worker/task:{worker}"
            )
            with tf.device(setter):
                self.step = tf.train.get_or_create_global_step()
                first = tf.constant_initializer(0.05)
                self.table = tf.get_variable(
                    "table", [12, 4], initializer=first, partitioner=tf.fixed_size_partitioner(6)
                )
                self.weights = tf.get_variable("weights", [4], initializer=first)
                self.ids = tf.placeholder(tf.int64, [None], "ids")
                rows = tf.nn.embedding_lookup(self.table, self.ids)
                loss = tf.reduce_sum(tf.square(tf.reduce_sum(rows * self.weights, 1) - 1.0))
                made = tf.train.AdamOptimizer(0.01) if optimizer is None else optimizer()
                self.train = made.minimize(loss, self.step)
                self.more = more()
            self.saved = [*tf.global_variables()]
            target = f"grpc://{cluster.cluster['worker'][worker]}"
            self.session = tf.train.MonitoredTrainingSession(
                target, worker == 0, log_step_count_steps=0, save_summaries_steps=0,
                recovery_wait_secs=0.2, movable=movable, worker=worker_name, **options,
            )  # fmt: skip

    @property
    def places(self) -> session_moves.Places:
        return self.session._creator._creator._config._places

    def steps(self, count: int, seed: int = 0) -> None:
        drawn = np.random.default_rng(seed)
        for _ in range(count):
            self.session.run(self.train, {self.ids: drawn.integers(0, 12, 5)})

    def values(self) -> list[np.ndarray[Any, Any]]:
        return self.session.run(self.saved)

    def tasks(self) -> set[str]:
        """The parameter servers that variables are on."""
        return {device[-len("1/device:CPU:0")] for device in self.places.placement.devices.values()}

    def close(self) -> None:
        with self.graph.as_default():
            self.session.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", ["adam", "momentum"])
def test_a_model_learns_what_it_would_have_learned(
    made: Callable[..., Cluster], protocol: str, kind: str
) -> None:
    found = []
    make = {
        "adam": lambda: tf.train.AdamOptimizer(0.01),
        "momentum": lambda: tf.train.MomentumOptimizer(0.01, 0.9),
    }[kind]
    for moves in (False, True):
        cluster = made(protocol, has_servers=True, workers=1)
        training = Training(cluster, make, movable=moves)
        for seed, words in enumerate(COMMANDS):
            training.steps(10, seed)
            if moves:
                cluster.well(*words.split())
        if moves:
            assert training.tasks() <= {"0", "1", "2"}
        found.append(training.values())
        training.close()
    for without, moved in zip(*found):
        np.testing.assert_allclose(without, moved, rtol=1e-5, atol=1e-7)


def test_threads_of_one_session_run_what_workers_do(made: Callable[..., Cluster]) -> None:
    cluster = made("star_server", has_servers=True)
    runs, counts, stops = [], [0, 0], threading.Event()
    with tf.Graph().as_default():
        with tf.device(tf.train.replica_device_setter(2)):
            tf.train.get_or_create_global_step()
            zeros = tf.zeros_initializer()
            variables = [tf.get_variable(f"v{i}", [2], initializer=zeros) for i in range(6)]
        for worker in (0, 1):
            with tf.device(f"/job:worker/task:{worker}"):
                one = tf.ones([2])
                runs.append(tf.group(*(each.assign_add(one).op for each in variables)))
        with tf.train.MonitoredTrainingSession(
            cluster.target, log_step_count_steps=0, movable=True
        ) as session:

            def train(worker: int) -> None:
                while not stops.is_set():
                    session.run(runs[worker])
                    counts[worker] += 1

            threads = [threading.Thread(target=train, args=(worker,)) for worker in (0, 1)]
            for thread in threads:
                thread.start()
            for words in COMMANDS:
                cluster.well(*words.split())
            stops.set()
            for thread in threads:
                thread.join()
            for value in session.run(variables):
                np.testing.assert_array_equal(value, np.full(2, sum(counts)))
    assert min(counts) > 0


def test_it_scales_by_itself(
    made: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Rules:
        """Wants one more as soon as it has seen something, in the place of half a minute."""

        def __init__(self, text: str, ps: int) -> None:
            assert (text, ps) == ("1-3", 3)

        def look(self, now_s: float, busy: list[float]) -> int | None:
            return len(busy) + 1 if len(busy) < 3 else None

        def moved(self, now_s: float) -> None:
            pass

    monkeypatch.setattr(_native, "Autoscale", Rules)
    monkeypatch.setattr(moving, "_AUTOSCALE_LOOK_S", 0.3)
    cluster = made("star_server", has_servers=True, workers=1)
    training = Training(cluster, autoscale="1-3")
    until = time.monotonic() + PATIENCE_S
    while training.tasks() != {"0", "1", "2"} and time.monotonic() < until:
        training.steps(1)
    assert training.tasks() == {"0", "1", "2"}
    training.close()


def test_autoscale_needs_what_it_names(made: Callable[..., Cluster]) -> None:
    cluster = made(has_servers=True, workers=1)
    with pytest.raises(ValueError, match="with movable=True only"):
        Training(cluster, movable=False, autoscale="1-3")
    with pytest.raises(errors.InvalidArgumentError, match="the cluster has 3 parameter servers"):
        Training(cluster, autoscale="1-9")


@pytest.mark.parametrize("consistency", ["bounded(2)", "geo(3)"])
def test_other_kinds_of_consistency_can_do_it(
    made: Callable[..., Cluster], consistency: str
) -> None:
    cluster = made("star_server", has_servers=True)
    options = {"consistency": consistency}
    if consistency.startswith("geo"):
        dense = tf.train.GradientDescentOptimizer
        options["optimizer"] = lambda: dense(0.01)  # type: ignore[assignment]
    chief = Training(cluster, **options)
    other = Training(cluster, worker=1, **options)
    steps = 0
    for words in ("scale --ps 3", "drain ps:1", "scale --ps 2"):
        for training in (chief, other):
            training.steps(3)
        steps += 6
        cluster.well(*words.split())
        # Not a run of the chief, who would be too far ahead.
        inner = chief.session._creator.session
        assert inner is not None and int(inner.run(chief.step)) == steps
    other.close()
    chief.close()


def test_checkpoints_have_what_has_moved(made: Callable[..., Cluster], tmp_path: Path) -> None:
    cluster = made("star_server", has_servers=True, workers=1)
    training = Training(
        cluster, checkpoint_dir=str(tmp_path / "model"), save_checkpoint_steps=1000
    )
    training.steps(5)
    cluster.well("scale", "--ps", "3")
    training.steps(5)
    wanted = training.values()
    training.close()
    cluster.kill("ps", 2)
    cluster.start("ps", 2)
    # In a program that knows nothing of moves.
    again = Training(cluster, movable=False, checkpoint_dir=str(tmp_path / "model"))
    for before, after in zip(wanted, again.values()):
        np.testing.assert_array_equal(before, after)
    again.close()


def test_increments_have_what_has_moved(made: Callable[..., Cluster], tmp_path: Path) -> None:
    cluster = made("star_server", has_servers=True, workers=1)
    savers: list[Any] = []

    def more() -> None:
        savers.append(tf.train.Saver(
            incremental_save_restore=True, movable=True, max_to_keep=None
        ))  # fmt: skip
        tf.add_to_collection(tf.GraphKeys.SAVERS, savers[0])

    training = Training(cluster, more=more)
    inner = lambda: training.session._creator.session  # noqa: E731
    wanted: dict[str, list[Any]] = {}
    with training.graph.as_default():
        for number, words in enumerate(("", *COMMANDS)):
            if words:
                cluster.well(*words.split())
            training.steps(2, number)
            save = savers[0].save if number == 0 else savers[0].incremental_save
            path = save(inner(), str(tmp_path / "model.ckpt"), number)
            wanted[path] = training.values()
        training.steps(3)
        for path, values in wanted.items():
            savers[0].restore(inner(), path)
            for before, after in zip(values, training.values()):
                np.testing.assert_array_equal(before, after)
    training.close()


def test_what_a_parameter_server_loses_after_a_move_comes_back_alone(
    made: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = made("star_server", has_servers=True, workers=1)
    training = Training(
        cluster, checkpoint_dir=str(tmp_path / "model"), save_checkpoint_steps=1,
        on_ps_loss="restore",
    )  # fmt: skip
    training.steps(3)
    cluster.well("scale", "--ps", "3")
    training.steps(4)
    before = {v.op.name: x for v, x in zip(training.saved, training.values())}
    devices = training.places.placement.devices
    lost = {name for name, device in devices.items() if "task:2" in device}
    assert lost
    training.session._creator.session.run(training.step)
    cluster.kill("ps", 2)
    cluster.start("ps", 2)
    after = {v.op.name: x for v, x in zip(training.saved, training.values())}
    for name, value in before.items():
        assert after[name].shape == value.shape
        if name not in lost:
            np.testing.assert_array_equal(after[name], value)
    cluster.well("drain", "ps:1")
    training.steps(3)
    assert training.tasks() == {"0", "2"}
    training.close()


@pytest.mark.parametrize("protocol", ["grpc", "star_server"])
def test_moved_variables_have_standbys_where_they_are(
    made: Callable[..., Cluster], tmp_path: Path, protocol: str
) -> None:
    cluster = made(
        protocol, has_servers=True, workers=1, of_ps=("--option", "replicas=2")
    )
    training = Training(
        cluster, checkpoint_dir=str(tmp_path / "model"), save_checkpoint_steps=1000,
        on_ps_loss="restore",
    )  # fmt: skip
    training.steps(3)
    cluster.well("scale", "--ps", "3")
    training.steps(3)
    wanted = training.values()
    cluster.wait_for_standbys([])
    cluster.kill("ps", 2)
    cluster.start("ps", 2)
    for before, after in zip(wanted, training.values()):
        np.testing.assert_array_equal(before, after)
    training.close()


# --- What is refused.


def test_what_cannot_be_is_refused_and_changes_nothing(
    made: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = made("grpc", 2, has_servers=True, workers=1)

    def more() -> Any:
        with tf.device("/job:ps/task:1"):
            return tf.FIFOQueue(3, tf.int64, name="numbers").enqueue(tf.constant(1, tf.int64))

    training = Training(cluster, more=more)
    training.steps(3)
    wanted = training.values()
    for words, reason in (
        ("scale --ps 0", "1"),
        ("scale --ps 4", "the cluster has 3 parameter servers, and not 4"),
        ("drain ps:2", "/job:ps/task:2, which may be stopped"),
        ("drain ps:0", "grants the leases of jobs"),
        ("scale --ps 3", "/job:ps/replica:0/task:2"),
        ("drain ps:1", r"Queue 'numbers', which cannot move"),
        ("scale --ps 1", "have that on /job:ps/task:0, which no command leaves"),
    ):
        ended = cluster.command(*words.split())
        assert ended.returncode != 0, ended.stdout
        assert reason in ended.stderr, ended.stderr
    for before, after in zip(wanted, training.values()):
        np.testing.assert_array_equal(before, after)
    cluster.start("ps", 2)
    cluster.well("scale", "--ps", "3")
    training.session.run(training.more)
    training.close()


def test_what_only_a_worker_has_is_known(made: Callable[..., Cluster]) -> None:
    cluster = made("grpc", has_servers=True)

    def more() -> Any:
        with tf.device("/job:ps/task:1"):
            return tf.FIFOQueue(3, tf.int64, name="its").enqueue(tf.constant(1, tf.int64))

    chief = Training(cluster, worker_name="w0")
    worker = Training(cluster, worker=1, worker_name="w1", more=more)
    refused = cluster.command("drain", "ps:1")
    assert refused.returncode != 0
    assert "/job:ps/replica:0/task:1 has Queue 'its' of w1, which cannot move" in refused.stderr
    worker.session.run(worker.more)
    worker.close()
    cluster.well("drain", "ps:1")
    chief.close()


def test_a_run_that_lasts_keeps_variables_where_they_are(
    made: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_moves, "HOLD_S", 1.0)
    cluster = made("grpc", has_servers=True, workers=1)
    flags: list[Any] = []

    def more() -> Any:
        flag = tf.get_variable("flag", [], initializer=tf.zeros_initializer())
        flags.append(flag.assign(1.0))
        return tf.while_loop(lambda i: flag.read_value() < 1.0, lambda i: (i + 1,), (0,))

    training = Training(cluster, more=more)
    inner = training.session._creator.session
    assert inner is not None
    thread = threading.Thread(target=lambda: inner.run(training.more))
    thread.start()
    refused = cluster.command("scale", "--ps", "3")
    assert refused.returncode != 0
    assert "runs of sessions have not ended within 1 s" in refused.stderr
    inner.run(flags[0])
    thread.join()
    cluster.well("scale", "--ps", "3")
    training.close()


def test_a_training_that_cannot_move_is_refused(made: Callable[..., Cluster]) -> None:
    session = tf.train.MonitoredTrainingSession
    tf.train.get_or_create_global_step()
    for options, said in (
        ({}, "it has no master"),
        ({"config": tf.ConfigProto(lease_name="a")}, "leave lease_name out"),
        ({"config": tf.ConfigProto(isolate_session_state=True)}, "isolate_session_state"),
    ):
        master = "grpc://localhost:1" if options else ""
        with pytest.raises(ValueError, match=said):
            session(master, movable=True, **options)
    x = tf.get_variable("x", [])
    optimizer = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(0.1), 1)
    optimizer.minimize(x * x, tf.train.get_global_step())
    with pytest.raises(ValueError, match="leave SyncReplicasOptimizer out, or movable"):
        session("grpc://localhost:1", movable=True)

    cluster = made("grpc", has_servers=True, workers=1)
    training = Training(cluster, movable=False)
    refused = subprocess.run(
        [PROGRAM, "scale", "--ps", "3", "--cluster", json.dumps(cluster.cluster)],
        capture_output=True, text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    assert refused.returncode != 0 and "no job runs on this cluster" in refused.stderr
    training.close()


def test_a_graph_of_which_nothing_can_move_says_so(made: Callable[..., Cluster]) -> None:
    cluster = made("grpc", has_servers=True, workers=1)
    with tf.Graph().as_default():
        with tf.device("/job:worker/task:0"):
            step = tf.train.get_or_create_global_step()
            add = step.assign_add(1)
        with tf.device("/job:ps/task:1"), tf.container("own"):
            tf.get_variable("x", [], initializer=tf.zeros_initializer())
        with tf.train.MonitoredTrainingSession(
            cluster.target, log_step_count_steps=0, movable=True
        ) as session:
            session.run(add)
            for words in ("scale --ps 3", "rebalance"):
                refused = cluster.command(*words.split())
                assert refused.returncode != 0
                assert "the graph has nothing that can move" in refused.stderr
                assert "Variable 'x'" in refused.stderr
            assert session.run(add) == 2


# --- Who has gone.


def test_workers_go_on_without_a_chief_that_has_died_in_a_hand_over(
    made: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(session_moves, "_SILENT_S", 2.0)
    cluster = made("grpc", has_servers=True)
    chief, worker = Training(cluster), Training(cluster, worker=1)
    worker.steps(2)
    places = chief.places
    # What a chief has done that is killed before it has decided.
    places.ended.set()
    for end in places._looking:
        end()
    board = Board(cluster.target, 0, config_of(tf.ConfigProto()))
    turn = board.turn()
    board.say(Head(places.current, places.own, "closing", turn, hurries=True))
    with caplog.at_level(logging.WARNING, "sidereal"):
        held = threading.Event()
        until = time.monotonic() + PATIENCE_S
        while not held.wait(0.02) and time.monotonic() < until:
            _, programs = board.hear_all(CHIEF, Program("chief", 1))
            if any(program.held == "closing" for program in programs.values()):
                held.set()
        worker.steps(2)
    assert "the chief was not heard of for 2 s" in caplog.text
    head, _ = board.hear("program/test", Program("test"))
    assert head == Head(places.current, places.own)
    # A chief that comes back does not decide any more.
    assert board.turn() == turn + 2
    board.close()
    worker.close()


def test_a_chief_in_whose_place_another_one_has_come_runs_nothing_more(
    made: Callable[..., Cluster],
) -> None:
    cluster = made("grpc", has_servers=True, workers=1)
    first = Training(cluster)
    # It is not heard of, as a program that stands still.
    looks = first.places._looking
    first.places.ended.set()
    for end in looks:
        end()
    second = Training(cluster)
    cluster.well("scale", "--ps", "3")
    first.places.ended.clear()
    first.places.look()
    with pytest.raises(errors.FailedPreconditionError, match="end this program"):
        first.steps(1)
    second.steps(3)
    second.close()


def test_a_second_training_has_a_group_of_its_own(made: Callable[..., Cluster]) -> None:
    cluster = made("grpc", has_servers=True)
    first = Training(cluster)
    with pytest.raises(errors.AlreadyExistsError, match="give each such training a state_group"):
        Training(cluster)
    second = Training(cluster, config=tf.ConfigProto(state_group="second"))
    for training in (first, second):
        training.steps(3)
    first.close()
    cluster.well("scale", "--ps", "3")
    assert second.tasks() == {"0", "1", "2"}
    second.steps(3)
    assert int(second.session.run(second.step)) == 6
    second.close()


def test_variables_without_values_move_as_well(made: Callable[..., Cluster]) -> None:
    cluster = made("star_server", has_servers=True, workers=1)

    def more() -> Any:
        return [tf.get_variable(f"late{i}", [2], collections=["none"]) for i in range(2)]

    training = Training(cluster, more=more)
    inner = training.session._creator.session
    assert inner is not None
    for words in ("drain ps:1", "scale --ps 3"):
        cluster.well(*words.split())
    with pytest.raises(errors.FailedPreconditionError, match="uninitialized value late"):
        inner.run(training.more)
    inner.run([late.initializer for late in training.more])
    wanted = inner.run(training.more)
    cluster.well("scale", "--ps", "1")
    for before, after in zip(wanted, inner.run(training.more)):
        np.testing.assert_array_equal(before, after)
    training.close()


def test_a_saver_that_was_made_before_keeps_variables_together(
    made: Callable[..., Cluster], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = made("grpc", has_servers=True, workers=1)
    savers: list[Any] = []

    def more() -> None:
        savers.append(tf.train.Saver())
        tf.add_to_collection(tf.GraphKeys.SAVERS, savers[0])

    with caplog.at_level(logging.WARNING, "sidereal"):
        training = Training(cluster, more=more)
    assert "tf.train.Saver(movable=True)" in caplog.text
    inner = training.session._creator.session
    cluster.well("scale", "--ps", "1")
    training.steps(3)
    with training.graph.as_default():
        path = savers[0].save(inner, str(tmp_path / "model.ckpt"))
        wanted = training.values()
        training.steps(3)
        cluster.well("scale", "--ps", "3")
        savers[0].restore(inner, path)
    for before, after in zip(wanted, training.values()):
        np.testing.assert_array_equal(before, after)
    training.close()


def test_a_worker_without_a_chief_that_moves_says_so(made: Callable[..., Cluster]) -> None:
    cluster = made("grpc", has_servers=True)
    chief = Training(cluster, movable=False)
    with pytest.raises(errors.DeadlineExceededError, match="has not said where variables are"):
        Training(cluster, worker=1, max_wait_secs=1)
    chief.close()
