"""A parameter server that was killed comes back with its variables, while the others stay as they
are: sessions of v1, on real processes."""

from __future__ import annotations

import logging
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from session_servers import PATIENCE_S, Processes, addresses

import sidereal.v1 as tf
from sidereal import errors
from sidereal._pushes import UnsavedPushes

pytestmark = pytest.mark.usefixtures("fresh_graph", "time_to_answer")


class Cluster:
    """Three ps and a worker."""

    def __init__(self, processes: Processes, protocol: str) -> None:
        ports = addresses(4)
        self.jobs = {"ps": ports[:3], "worker": ports[3:]}
        self._protocol = protocol
        self._processes = processes
        self._ps = [self.serve("ps", task) for task in range(3)]
        self.start_worker()
        self.target = f"grpc://{ports[3]}"

    def serve(self, job: str, task: int) -> subprocess.Popen[str]:
        return self._processes.serve(self.jobs, job, task, "--protocol", self._protocol)

    def kill(self, task: int) -> None:
        self._ps[task].send_signal(signal.SIGKILL)
        self._ps[task].wait(PATIENCE_S)

    def kill_worker(self) -> None:
        self._worker.send_signal(signal.SIGKILL)
        self._worker.wait(PATIENCE_S)

    def start_worker(self) -> None:
        self._worker = self.serve("worker", 0)

    def start(self, task: int) -> None:
        self._ps[task] = self.serve("ps", task)


@pytest.fixture(params=["grpc", "star_server"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    processes = Processes()
    yield Cluster(processes, request.param)
    processes.end()


def model() -> tuple[Any, Any, list[Any]]:
    """(global step, what trains, a variable of each ps): step n makes each of them -n."""
    with tf.device("/job:ps/task:0"):
        step = tf.train.get_or_create_global_step()
    variables = []
    for task in range(3):
        with tf.device(f"/job:ps/task:{task}"):
            variables.append(tf.Variable(np.zeros((4, 2), np.float32), name=f"v{task}"))
    with tf.device("/job:worker/task:0"):
        loss = sum(tf.reduce_sum(variable) for variable in variables)
        train = tf.train.GradientDescentOptimizer(1.0).minimize(loss, step)
    return step, train, variables


def training(cluster: Cluster, folder: Path) -> Any:
    return tf.train.MonitoredTrainingSession(
        cluster.target, checkpoint_dir=str(folder), save_checkpoint_steps=5,
        log_step_count_steps=0, save_summaries_steps=0, on_ps_loss="restore",
    )  # fmt: skip


def run(session: Any, train: Any, count: int) -> None:
    """So many steps, and all checkpoints that are due."""
    (saving,) = session._hooks
    for _ in range(count):
        session.run(train)
        saving.wait()


class Pusher:
    """Pushes to a variable of another ps all the while, in a session of its own."""

    def __init__(self, cluster: Cluster, task: int) -> None:
        self._stopping = threading.Event()
        self._changed = threading.Condition()
        self._count = 0
        self.error: BaseException | None = None
        self._graph = tf.Graph()
        with self._graph.as_default(), tf.device(f"/job:ps/task:{task}"):
            self._counter = tf.Variable(0, dtype="int64", name="counter", collections=[])
            self._push = self._counter.assign_add(1).op
        config = tf.ConfigProto(device_filters=[f"/job:ps/task:{task}"])
        self._session = tf.Session(f"grpc://{cluster.jobs['ps'][task]}", self._graph, config)
        self._session.run(self._counter.initializer)
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            while not self._stopping.is_set():
                self._session.run(self._push)
                with self._changed:
                    self._count += 1
                    self._changed.notify_all()
        except BaseException as error:  # noqa: BLE001 - the test raises it.
            with self._changed:
                self.error = error
                self._changed.notify_all()

    def wait_for_more(self, count: int) -> None:
        with self._changed:
            until = self._count + count
            assert self._changed.wait_for(
                lambda: self.error is not None or self._count >= until, PATIENCE_S
            )
        assert self.error is None, self.error

    def end(self) -> tuple[int, int]:
        """(pushes, what the ps has of them)."""
        self._stopping.set()
        self._thread.join(PATIENCE_S)
        assert self.error is None, self.error
        return self._count, int(self._session.run(self._counter))


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if "was lost and is back" in record.message]


def test_what_a_killed_ps_held_comes_back_and_the_others_go_on(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    step, train, variables = model()
    pusher = Pusher(cluster, 2)
    with caplog.at_level(logging.WARNING), training(cluster, tmp_path) as session:
        run(session, train, 7)
        assert session._creator._creator._lost._unsaved.look()
        cluster.kill(1)
        pusher.wait_for_more(100)  # While it is away.
        cluster.start(1)
        run(session, train, 1)
        now, *found = session.run([step, *variables])
    # The step that failed may have changed what the others have.
    assert now in (8, 9)
    assert (found[1] == -6).all(), "the cut of step 5, and one more"
    for other in (found[0], found[2]):
        assert (other == other[0, 0]).all() and -other[0, 0] in (8, 9)
    pushes, counted = pusher.end()
    assert pushes == counted
    (line,) = lines(caplog)
    assert "/job:ps/task:1 was lost and is back: 1 variables of 4 rows" in line
    assert f"restored from {tmp_path / 'model.ckpt-5'} in" in line
    assert "steps pushed to them, 5 to " in line
    # A push is a step's; nothing of the step that failed was answered.
    assert re.search("steps pushed to them, 5 to [78]: 2 pushes; others", line), line


def table_model() -> tuple[Any, Any]:
    """A table on ps 1, and what pushes two of its rows and to a dense variable beside it."""
    with tf.device("/job:ps/task:0"):
        step = tf.train.get_or_create_global_step()
    with tf.device("/job:ps/task:1"):
        table = tf.get_variable("table", [100, 4], initializer=tf.ones_initializer())
        dense = tf.get_variable("dense", [4], initializer=tf.ones_initializer())
    with tf.device("/job:worker/task:0"):
        rows = tf.nn.embedding_lookup(table, [1, 7])
        loss = tf.reduce_sum(rows * dense)
        train = tf.train.AdagradOptimizer(0.1).minimize(loss, step)
    return table, train


def wait_for_first_look(unsaved: UnsavedPushes, task: str) -> None:
    """Until it is known which life of a server is there: whose answers those are that come now."""
    until = time.monotonic() + PATIENCE_S
    while task not in unsaved._lives:
        assert time.monotonic() < until
        unsaved.look()


def test_pushes_and_rows_that_are_lost_are_said(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table, train = table_model()
    with caplog.at_level(logging.WARNING), training(cluster, tmp_path) as session:
        creator = session._creator._creator
        wait_for_first_look(creator._lost._unsaved, "/job:ps/replica:0/task:1")
        run(session, train, 8)  # The checkpoint is that of step 5.
        creator._lost._unsaved.look()  # Answers say how much; a reading, of which tables.
        cluster.kill(1)
        cluster.start(1)
        run(session, train, 1)
        assert session.run(table).shape == (100, 4)
        creator._lost._unsaved.look()
        # What is pushed now is lost with the next life.
        cluster.kill(1)
        cluster.start(1)
        run(session, train, 1)
    first, second = lines(caplog)
    assert "5 to " in first
    # Three steps, each with a push to the table and one to the other variable.
    assert ": 6 pushes, with 6 rows of tables (table: 6)" in first, first
    assert ": 2 pushes, with 2 rows of tables (table: 2)" in second, second


def test_pushes_of_sessions_of_ones_own_are_said_where_their_cluster_is(
    cluster: Cluster, tmp_path: Path
) -> None:
    _table, train = table_model()
    saver, lost = tf.train.Saver(), tf.train.LostVariables(target=cluster.target)
    assert lost._unsaved is not None
    with tf.Session(cluster.target) as session:
        session.run(tf.global_variables_initializer())
        saver.save(session, str(tmp_path / "model"))
        wait_for_first_look(lost._unsaved, "/job:ps/replica:0/task:1")
        for _ in range(4):
            session.run(train)
    lost._unsaved.look()  # Answers say how much; a reading, of which tables.
    cluster.kill(1)
    cluster.start(1)
    with tf.Session(cluster.target) as session:
        (task,) = lost.restore(session, tmp_path)
        assert (task.lost_pushes, task.lost_rows) == (8, 8)
        assert task.pushed is not None and task.pushed.rows_of == {"table": 8}
        assert task.pushed.is_exact
        assert lost.restore(session, tmp_path) == []


def test_of_many_who_push_all_that_was_answered_is_said(cluster: Cluster, tmp_path: Path) -> None:
    """Four sessions push while a checkpoint is written, and until the server is killed among their
    steps: what was answered to them, less what the checkpoint has, is what is said."""
    with tf.device("/job:ps/task:1"):
        counters = [tf.Variable(0, dtype="int64", name=f"c{i}") for i in range(4)]
    pushes = [counter.assign_add(1).op for counter in counters]
    saver, lost = tf.train.Saver(), tf.train.LostVariables(target=cluster.target)
    assert lost._unsaved is not None
    answered = [0] * 4
    many = threading.Semaphore(0)

    def push(i: int, session: Any) -> None:
        try:
            while True:
                session.run(pushes[i])
                answered[i] += 1
                many.release()
        except (errors.AbortedError, errors.UnavailableError):
            return

    sessions = [tf.Session(cluster.target) for _ in range(4)]
    sessions[0].run(tf.global_variables_initializer())
    wait_for_first_look(lost._unsaved, "/job:ps/replica:0/task:1")
    threads = [threading.Thread(target=push, args=at) for at in enumerate(sessions)]
    for thread in threads:
        thread.start()
    for _ in range(200):
        assert many.acquire(timeout=PATIENCE_S)
    with tf.Session(cluster.target) as session:
        saver.save(session, str(tmp_path / "model"))
    until = sum(answered) + 200
    while sum(answered) < until:
        assert many.acquire(timeout=PATIENCE_S)
    cluster.kill(1)
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    for session in sessions:
        session.close()
    cluster.start(1)
    with tf.Session(cluster.target) as session:
        (task,) = lost.restore(session, tmp_path)
        saved = sum(session.run(counters))
    assert task.pushed is not None and task.pushed.is_exact
    known = sum(answered) - saved
    # Of a step that failed nobody knows whether it was pushed before another one's that was
    # answered.
    assert task.lost_pushes is not None and known <= task.lost_pushes <= known + 4
    assert known >= 200


def test_pushes_of_who_is_lost_too_are_said_as_far_as_they_were_asked_for(
    cluster: Cluster, tmp_path: Path
) -> None:
    _table, train = table_model()
    saver, lost = tf.train.Saver(), tf.train.LostVariables(target=f"grpc://{cluster.jobs['ps'][0]}")
    assert lost._unsaved is not None
    with tf.Session(cluster.target) as session:
        session.run(tf.global_variables_initializer())
        saver.save(session, str(tmp_path / "model"))
        for _ in range(4):
            session.run(train)
        lost._unsaved.look()
        session.run(train)  # Nobody is left who knows of it, unless it was asked for since.
    cluster.kill_worker()
    cluster.kill(1)
    cluster.start(1)
    cluster.start_worker()
    with tf.Session(cluster.target) as session:
        (task,) = lost.restore(session, tmp_path)
    assert task.pushed is not None and not task.pushed.is_exact
    assert task.lost_pushes in (8, 10) and task.lost_rows == task.lost_pushes
    assert f"at least {task.lost_pushes} pushes, with {task.lost_rows} rows of tables" in str(task)


def test_each_ps_may_be_lost_again_and_again(cluster: Cluster, tmp_path: Path) -> None:
    step, train, variables = model()
    with training(cluster, tmp_path) as session:
        run(session, train, 6)
        for task in (1, 2, 1):
            cluster.kill(task)
            cluster.start(task)
            run(session, train, 1)
        now, *found = session.run([step, *variables])
    assert now >= 9
    # From the checkpoint of step 5, 1 once more.
    assert found[1][0, 0] in (-6, -7)
    assert found[2][0, 0] in (-7, -8)
    assert found[0][0, 0] <= -9


def test_of_a_ps_with_the_counter_of_steps_it_is_said_what_was_last_read(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    step, train, variables = model()
    with caplog.at_level(logging.WARNING), training(cluster, tmp_path) as session:
        run(session, train, 7)
        assert session._creator._creator._lost._unsaved.look()
        cluster.kill(0)
        cluster.start(0)
        run(session, train, 1)
        assert session.run(step) == 6
        assert (session.run(variables[0]) == -6).all()
        assert session.run(variables[1])[0, 0] in (-8, -9)
    (line,) = lines(caplog)
    # A push to the counter and one to the variable of each step.
    said = "lost is what at least [12] steps pushed to them, 5 to [67]: 4 pushes; others"
    assert re.search(said, line), line


def restoring(tmp_path: Path, cluster: Cluster) -> tuple[Any, Any, Any, Any]:
    """Two variables of ps 1, saved, and what restores them."""
    with tf.device("/job:ps/task:1"):
        a = tf.Variable(np.full(1000, 1.0, np.float32), name="a")
        b = tf.Variable(np.full((500, 2), 2.0, np.float32), name="b")
    saver, lost = tf.train.Saver(), tf.train.LostVariables()
    with tf.Session(cluster.target) as session:
        session.run(tf.global_variables_initializer())
        assert lost.restore(session, tmp_path) == [], "nothing is lost yet"
        saver.save(session, str(tmp_path / "model"))
    return a, b, lost, str(tmp_path / "model")


def test_a_ps_that_was_lost_while_it_was_restored_is_restored_whole(
    cluster: Cluster, tmp_path: Path
) -> None:
    a, b, lost, prefix = restoring(tmp_path, cluster)
    cluster.kill(1)
    cluster.start(1)
    with tf.Session(cluster.target) as session:
        session.run(a.assign(np.full(1000, 5.0, np.float32)))  # As if it had come so far.
        (task,) = lost.restore(session, tmp_path)
        assert (session.run(a) == 1).all() and (session.run(b) == 2).all()
        assert (task.rows, task.bytes, task.lost_steps) == (1500, 8000, None)
        assert task.variables == ("a", "b") and task.prefix == prefix
        assert "nobody that is left has counted it" in str(task)
        assert lost.restore(session, tmp_path) == []


def test_a_ps_may_be_killed_at_any_time_of_its_restoring(cluster: Cluster, tmp_path: Path) -> None:
    with tf.device("/job:ps/task:1"):
        big = tf.Variable(np.ones((2_000_000, 8), np.float32), name="big")
    saver, lost = tf.train.Saver(), tf.train.LostVariables()
    with tf.Session(cluster.target) as session:
        session.run(tf.global_variables_initializer())
        saver.save(session, str(tmp_path / "model"))

    def replace() -> None:
        cluster.kill(1)
        cluster.start(1)

    for delay in (0.0, 0.01, 0.05):
        replace()
        killer = threading.Timer(delay, replace)
        with tf.Session(cluster.target) as session:
            killer.start()
            try:
                lost.restore(session, tmp_path)
            except (errors.AbortedError, errors.UnavailableError) as error:
                assert "/job:ps" in str(error)
            killer.join(PATIENCE_S)
    with tf.Session(cluster.target) as session:
        lost.restore(session, tmp_path)
        assert session.run(tf.reduce_sum(big)) == 16_000_000


def test_parts_of_variables_come_back(cluster: Cluster, tmp_path: Path) -> None:
    with tf.device(tf.train.replica_device_setter(3, worker_device="/job:worker/task:0")):
        table = tf.get_variable(
            "table", [7, 2], partitioner=tf.fixed_size_partitioner(6),
            initializer=tf.random_normal_initializer(seed=1),
        )  # fmt: skip
    saver, lost = tf.train.Saver(), tf.train.LostVariables()
    with tf.Session(cluster.target) as session:
        session.run(tf.global_variables_initializer())
        before = session.run(table)
        saver.save(session, str(tmp_path / "model"))
        session.run(table.assign(before * 2))
    cluster.kill(1)
    cluster.start(1)
    with tf.Session(cluster.target) as session:
        (task,) = lost.restore(session, tmp_path / "model")
        after = session.run(table)
    own = [part for part in table if "task:1" in part.device]
    assert task.variables == tuple(part.op.name for part in own) and len(own) == 2
    ratio = after / before
    assert set(np.unique(ratio)) == {1.0, 2.0}
    assert (ratio == 1).all(axis=1).sum() == task.rows


def test_without_a_checkpoint_it_says_so(cluster: Cluster, tmp_path: Path) -> None:
    with tf.device("/job:ps/task:1"):
        tf.Variable(1.0, name="a")
    lost = tf.train.LostVariables()
    with tf.Session(cluster.target) as session:
        with pytest.raises(errors.FailedPreconditionError, match=f"ps/task:1.*{tmp_path}"):
            lost.restore(session, tmp_path)


def test_wrong_options_are_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="on_ps_loss is 'go on'"):
        tf.train.ChiefSessionCreator(checkpoint_dir=str(tmp_path), on_ps_loss="go on")
    with pytest.raises(ValueError, match="needs a checkpoint_dir"):
        tf.train.MonitoredTrainingSession(on_ps_loss="restore")


SCRIPT = """
import os, signal, sys, time
import numpy as np
import sidereal as sr
import sidereal.v1 as tf

folder = sys.argv[1]
resolver = sr.distribute.cluster_resolver.TFConfigClusterResolver()
cluster = resolver.cluster_spec()
if resolver.task_type == "ps":
    # Before it answers: who has steps of its can read it.
    with open(f"{folder}/pid-{resolver.task_id}.new", "w") as file:
        file.write(str(os.getpid()))
    os.rename(file.name, file.name[:-4])
server = tf.train.Server(cluster, resolver.task_type, resolver.task_id, protocol=resolver.rpc_layer)
if resolver.task_type == "ps":
    server.join()
is_chief = resolver.task_type == "chief"
with tf.device("/job:ps/task:0"):
    step = tf.train.get_or_create_global_step()
with tf.device("/job:ps/task:1"):
    value = tf.Variable(np.zeros((10, 2), np.float32), name="value")
train = tf.group(value.assign_add(np.ones((10, 2), np.float32)), step.assign_add(1))
with tf.train.MonitoredTrainingSession(
    server.target, is_chief, folder, save_checkpoint_steps=10, log_step_count_steps=0,
    save_summaries_steps=0, recovery_wait_secs=0.2, on_ps_loss="restore",
    hooks=[tf.train.StopAtStepHook(last_step=400)],
) as session:
    kills = 0
    while not session.should_stop():
        now = session.run([train, step])[1]
        if is_chief and kills < 2 and now > 100 * (kills + 1):
            kills += 1
            os.kill(int(open(f"{folder}/pid-1").read()), signal.SIGKILL)
print(f"ended at {now}")
"""


@pytest.mark.parametrize("protocol", ["grpc", "star_server"])
def test_launch_starts_it_and_the_chief_restores_it(tmp_path: Path, protocol: str) -> None:
    script = tmp_path / "task.py"
    script.write_text(SCRIPT)
    finished = subprocess.run(
        [sys.executable, "-m", "sidereal", "launch", "--ps", "2", "--chief", "--workers", "1",
         "--protocol", protocol, "--on-ps-loss", "restore", str(script), str(tmp_path)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=4 * PATIENCE_S,
    )  # fmt: skip
    output = finished.stdout + finished.stderr
    assert finished.returncode == 0, output
    assert finished.stderr.count("ps 1 is lost (killed by signal 9 (SIGKILL)) and was started") == 2
    back = [line for line in finished.stdout.splitlines() if "was lost and is back" in line]
    assert len(back) == 2 and all("steps pushed to them" in line for line in back), output
    ended = re.findall(r"^\[(.*)\] ended at (\d+)$", finished.stdout, re.MULTILINE)
    assert sorted(name for name, _ in ended) == ["chief 0", "worker 0"]
    assert all(int(step) >= 390 for _, step in ended), output


def test_who_asks_for_what_is_not_saved_ends_before_the_interpreter() -> None:
    program = """if True:
        import atexit, threading
        names = lambda: [one.name for one in threading.enumerate() if one.name == "unsaved"]
        atexit.register(lambda: print(names()))  # Called after what is registered later.
        from sidereal._pushes import UnsavedPushes
        kept = UnsavedPushes("grpc://127.0.0.1:1", ["ps"])
        assert names()
    """
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and done.stdout == "[]\n", done
