"""Workers of monitored sessions that train copies: consistency="geo(k)"."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from session_servers import PATIENCE_S
from strategies import PROTOCOLS, Servers

import sidereal as sr
import sidereal.v1 as tf

pytestmark = pytest.mark.usefixtures("fresh_graph")

ROWS, DIM = 20, 4


def workers_of(cluster: dict[str, list[str]]) -> list[str]:
    return [f"grpc://{address}" for address in cluster["worker"]]


def _targets(protocols: list[str]) -> Any:
    """A fixture of two ps and two workers in this process: the targets of these."""

    @pytest.fixture(params=protocols)
    def targets(request: pytest.FixtureRequest) -> Iterator[list[str]]:
        servers = Servers(2, 2, request.param)
        yield workers_of(servers.cluster)
        servers.stop()

    return targets


targets = _targets(PROTOCOLS)
of_two_protocols = _targets(["grpc", "star_server"])


class Model:
    """Its graph as a worker builds it: an embedding whose rows are trained on parameter servers,
    and two dense layers."""

    def __init__(self, optimizer: Any, worker: int = 0, servers: bool = True) -> None:
        self.graph = tf.Graph()
        where = tf.train.replica_device_setter(2, worker_device=f"/job:worker/task:{worker}")
        with self.graph.as_default(), tf.device(where if servers else None):
            self.step = tf.train.get_or_create_global_step()
            self.ids = tf.placeholder(tf.int64, [None, 2])
            self.labels = tf.placeholder(tf.float32, [None])
            rng = np.random.default_rng(5)

            def variable(name: str, *shape: int) -> Any:
                first = rng.normal(scale=0.5, size=shape).astype(np.float32)
                return tf.get_variable(name, initializer=first)

            self.table = variable("table", ROWS, DIM)
            self.dense = [
                variable("w1", 2 * DIM, 8), variable("b1", 8), variable("w2", 8, 1),
                variable("b2", 1),
            ]  # fmt: skip
            w1, b1, w2, b2 = self.dense
            rows = tf.reshape(tf.nn.embedding_lookup(self.table, self.ids), [-1, 2 * DIM])
            hidden = tf.nn.relu(tf.matmul(rows, w1) + b1)
            logits = tf.reshape(tf.matmul(hidden, w2) + b2, [-1])
            losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=self.labels, logits=logits)
            self.loss = tf.reduce_mean(losses)
            self.optimizer = optimizer()
            self.train = self.optimizer.minimize(self.loss, self.step)

    def batches(self, count: int, seed: int = 0) -> list[dict[Any, Any]]:
        rng = np.random.default_rng(seed)
        out = []
        for _ in range(count):
            ids = rng.integers(0, ROWS, (16, 2))
            out.append({self.ids: ids, self.labels: (ids.sum(1) % 2).astype(np.float32)})
        return out

    def session(self, target: str, **options: Any) -> Any:
        options = {"log_step_count_steps": 0, "save_summaries_steps": 0, **options}
        return tf.train.MonitoredTrainingSession(target, **options)

    def trained(self, target: str, steps: int, **options: Any) -> tuple[list[float], list[Any]]:
        """(losses, the variables and all slots at the end)."""
        with self.graph.as_default():
            names = [variable.op.name for variable in tf.global_variables()]
            with self.session(target, **options) as session:
                losses = [
                    session.run([self.loss, self.train], batch)[0] for batch in self.batches(steps)
                ]
            if not target:
                return losses, []
            with tf.Session(target) as session:
                return losses, session.run([f"{name}/read:0" for name in names])


OPTIMIZERS = {
    "sgd": lambda: tf.train.GradientDescentOptimizer(0.5),
    "momentum": lambda: tf.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    "adagrad": lambda: tf.train.AdagradOptimizer(0.3),
    "adam": lambda: tf.train.AdamOptimizer(0.05),
    "ftrl": lambda: tf.train.FtrlOptimizer(0.3),
    "lamb": lambda: tf.train.RuleOptimizer(sr.optimizers.Lamb(0.05)),
}


@pytest.mark.parametrize("window", [1, 3, 100])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_one_worker_learns_what_it_does_with_async(
    targets: list[str], optimizer: str, window: int
) -> None:
    expected, _ = Model(OPTIMIZERS[optimizer], servers=False).trained("", 10)
    model = Model(OPTIMIZERS[optimizer])
    losses, kept = model.trained(targets[0], 10, consistency=f"geo({window})")
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    assert kept[0] == 10, "the global step"


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_parameter_servers_have_all_at_the_end(of_two_protocols: list[str], optimizer: str) -> None:
    model = Model(OPTIMIZERS[optimizer])
    with_async = model.trained(of_two_protocols[0], 10)
    again = Model(OPTIMIZERS[optimizer])
    with_geo = again.trained(of_two_protocols[0], 10, consistency="geo(4)")
    np.testing.assert_allclose(with_geo[0], with_async[0], rtol=1e-4)
    assert len(with_geo[1]) == len(with_async[1]) >= 6
    for ours, theirs in zip(with_geo[1], with_async[1]):
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=1e-6)


def test_runs_neither_pull_nor_push_what_has_a_copy(targets: list[str]) -> None:
    model = Model(OPTIMIZERS["sgd"])
    with model.graph.as_default(), tf.Session(targets[1], graph=model.graph) as other:
        with model.session(targets[0], consistency="geo(3)") as session:
            reads = [f"{name}/read:0" for name in ("w1", "b2", "table")]
            first = other.run(reads)
            for run, batch in enumerate(model.batches(6), 1):
                before = other.run(reads)
                session.run(model.train, batch)
                now = other.run(reads)
                is_exchanged = run % 3 == 0
                assert np.array_equal(now[0], before[0]) == (not is_exchanged), run
                assert np.array_equal(now[1], before[1]) == (not is_exchanged), run
                assert not np.array_equal(now[2], before[2]), "rows are as with async"
            session.run(model.train, batch)
            assert not np.array_equal(first[0], other.run(reads)[0])


class Counter:
    """A worker whose every run adds 1 to `a` and `b`, by a gradient of -1."""

    def __init__(self, targets: list[str], worker: int, window: int = 4, **options: Any) -> None:
        self.graph = tf.Graph()
        setter = tf.train.replica_device_setter(2, worker_device=f"/job:worker/task:{worker}")
        with self.graph.as_default(), tf.device(setter):
            step = tf.train.get_or_create_global_step()
            self.a = tf.Variable(np.zeros(3, np.float32), name="a")
            self.b = tf.Variable(0.0, name="b")
            loss = -tf.reduce_sum(self.a) - self.b
            self.train = tf.train.GradientDescentOptimizer(1.0).minimize(loss, step)
        self._make = lambda: tf.train.MonitoredTrainingSession(
            targets[worker], worker == 0, log_step_count_steps=0, save_summaries_steps=0,
            recovery_wait_secs=0.1, consistency=f"geo({window})", **options,
        )  # fmt: skip

    def session(self) -> Any:
        with self.graph.as_default():
            return self._make()

    def on_servers(self, target: str) -> list[float]:
        """One number of each variable."""
        with self.graph.as_default(), tf.Session(target) as session:
            a, b = session.run([self.a, self.b])
        assert a.min() == a.max()
        return [float(a[0]), float(b)]


def test_what_two_workers_have_learned_is_added_once(targets: list[str]) -> None:
    counters = [Counter(targets, worker) for worker in range(2)]
    runs = [37, 26]
    errors: list[BaseException] = []

    def work(worker: int) -> None:
        try:
            with counters[worker].session() as session:
                for _ in range(runs[worker]):
                    session.run(counters[worker].train)
        except BaseException as error:  # noqa: BLE001 - raised below.
            errors.append(error)

    threads = [threading.Thread(target=work, args=(worker,), daemon=True) for worker in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert not errors, errors
    assert counters[0].on_servers(targets[0]) == [63, 63]


def test_a_worker_goes_on_from_what_others_have_added(of_two_protocols: list[str]) -> None:
    first, second = (Counter(of_two_protocols, worker) for worker in range(2))
    with first.session() as one, second.session() as two:
        for _ in range(4):
            one.run(first.train)
        for _ in range(4):
            two.run(second.train)
        # Each of these is a run of its session, too.
        assert two.run(second.b) == 8
        assert one.run(first.b) == 4, "it has not heard of the second"
        for _ in range(3):
            one.run(first.train)
        assert one.run(first.b) == 4 + 4 + 3


def test_a_session_that_fails_loses_what_it_has_not_sent(of_two_protocols: list[str]) -> None:
    counter = Counter(of_two_protocols, 0)
    with pytest.raises(KeyError, match="of the program"), counter.session() as session:
        for _ in range(10):
            session.run(counter.train)
        raise KeyError("of the program")
    assert counter.on_servers(of_two_protocols[0]) == [8, 8]


def test_a_checkpoint_has_all_that_the_chief_has_learned(
    of_two_protocols: list[str], tmp_path: Path
) -> None:
    target = of_two_protocols[0]
    expected, _ = Model(OPTIMIZERS["adam"], servers=False).trained("", 12)
    model = Model(OPTIMIZERS["adam"])
    batches = model.batches(12)
    options = {"checkpoint_dir": str(tmp_path), "consistency": "geo(5)"}
    with pytest.raises(KeyError), model.graph.as_default():
        with model.session(target, save_checkpoint_steps=7, **options) as session:
            for batch in batches[:9]:
                session.run(model.train, batch)
                session._hooks[1].wait()
            raise KeyError
    again = Model(OPTIMIZERS["adam"])
    with again.graph.as_default(), again.session(target, **options) as session:
        at = session.run(again.step)
        assert at == 7
        losses = [
            session.run([again.loss, again.train], batch)[0] for batch in again.batches(12)[at:]
        ]
    np.testing.assert_allclose(losses, expected[at:], rtol=1e-3)


def test_a_ps_that_was_killed_comes_back_with_the_latest_checkpoint(
    tasks_of: Any, tmp_path: Path
) -> None:
    tasks = tasks_of(2, 2, "star_server")
    targets = workers_of(tasks.cluster)
    counter = Counter(targets, 0, checkpoint_dir=str(tmp_path), save_checkpoint_steps=5)
    with counter.session() as session:
        for _ in range(7):
            session.run(counter.train)
            session._hooks[1].wait()
        tasks.all["ps", 1].kill()
        tasks.all["ps", 1].wait(PATIENCE_S)
        tasks.start("ps", 1)
        # The second of these, which sends, finds that it is gone: it is made again after that of
        # step 5, and two others.
        for _ in range(4):
            session.run(counter.train)
    assert counter.on_servers(targets[0]) == [8, 8]


@pytest.mark.parametrize("consistency", ["geo(1)", "geo(3)"])
def test_parts_loops_and_16_bits_are_trained_as_with_async(
    of_two_protocols: list[str], consistency: str
) -> None:
    def learned(consistency: str) -> list[Any]:
        setter = tf.train.replica_device_setter(2, worker_device="/job:worker/task:1")
        rng = np.random.default_rng(3)
        with tf.Graph().as_default():
            with tf.device(setter):
                step = tf.train.get_or_create_global_step()
                with tf.variable_scope("cut", partitioner=tf.fixed_size_partitioner(2)):
                    cut = tf.get_variable("w", [6, 3], initializer=tf.ones_initializer())
                half = tf.Variable(np.full(3, 0.5), dtype=tf.bfloat16, name="half")
                scale = tf.Variable(rng.normal(size=3).astype(np.float32), name="scale")
                x = tf.constant(rng.normal(size=(8, 6)).astype(np.float32))
                y = tf.matmul(x, cut.as_tensor()) * tf.cast(half, tf.float32)
                _, y = tf.while_loop(
                    lambda i, _: i < 3, lambda i, y: (i + 1, tf.tanh(y * scale)), (0, y)
                )
                loss = tf.reduce_mean(tf.square(y - 0.3))
                rule = tf.train.RuleOptimizer(sr.optimizers.Lamb(0.05))
                train = tf.group(
                    rule.minimize(loss, step, var_list=[*cut]),
                    tf.train.AdamOptimizer(0.05).minimize(loss, var_list=[half, scale]),
                )
            with tf.train.MonitoredTrainingSession(
                of_two_protocols[1], log_step_count_steps=0, consistency=consistency
            ) as session:
                for _ in range(7):
                    session.run(train)
            with tf.Session(of_two_protocols[1]) as session:
                return list(session.run([*cut, tf.cast(half, tf.float32), scale, loss]))

    for ours, theirs in zip(learned(consistency), learned("async")):
        np.testing.assert_allclose(ours, theirs, rtol=2e-2, atol=1e-3)


# --- What it is refused for, and where it is async.


def test_a_session_of_this_process_alone_trains_as_with_async() -> None:
    expected, _ = Model(OPTIMIZERS["adam"], servers=False).trained("", 5)
    model = Model(OPTIMIZERS["adam"], servers=False)
    losses, _ = model.trained("", 5, consistency="geo(2)")
    assert losses == expected


def _made(what: str) -> None:
    """A graph of a worker that can have no copies."""
    step = tf.train.get_or_create_global_step()
    w = tf.get_variable("w", [4, 2], initializer=tf.zeros_initializer())
    descent = tf.train.GradientDescentOptimizer(1.0)
    if what == "no update":
        w.assign_add(tf.ones([4, 2]))
    elif what == "rows alone":
        descent.minimize(tf.reduce_sum(tf.nn.embedding_lookup(w, [1])), step)
    elif what == "rows and whole":
        descent.minimize(tf.reduce_sum(tf.nn.embedding_lookup(w, [1])), step)
        descent.minimize(tf.reduce_sum(w))
    elif what == "twice":
        descent.minimize(tf.reduce_sum(w), step)
        descent.minimize(tf.reduce_sum(w * w))
    elif what == "any shape":
        v = tf.Variable([1.0], validate_shape=False, name="v")
        descent.minimize(tf.reduce_sum(v), step)
    elif what == "two workers":
        descent.minimize(tf.reduce_sum(tf.get_variable("v", [2])), step)
        with tf.device("/job:worker/task:1"):
            descent.minimize(tf.reduce_sum(w * w), step)
    elif what in ("no device", "a job"):
        descent.minimize(tf.reduce_sum(w), step)
    elif what == "in step":
        tf.train.SyncReplicasOptimizer(descent, 1).minimize(tf.reduce_sum(w), step)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("no update", "no optimizer of sidereal.v1.train has added an update"),
        ("rows alone", "updated by rows, of which workers have no copies .* write 'async'"),
        ("rows and whole", "'w' is updated by rows and as a whole"),
        ("twice", "'w' is updated twice: give its gradients to one apply_gradients"),
        ("any shape", "'v' has values of any shape"),
        ("in step", "SyncReplicasOptimizer, which trains in step: use one of the two"),
        ("no device", "ops of the training are on no device of their own"),
        ("a job", "ops of the training are on '/job:worker'"),
        ("two workers", "are on '/job:worker/task:[01]', '/job:worker/task:[01]'. Build them in"),
    ],
)
def test_what_it_cannot_be_is_a_value_error(what: str, message: str) -> None:
    where: Any = tf.train.replica_device_setter(1, worker_device="/job:worker/task:0")
    where = {"no device": None, "a job": "/job:worker"}.get(what, where)
    with tf.device(where):
        _made(what)
    # Nothing is asked of a server before.
    with pytest.raises(ValueError, match=message):
        tf.train.MonitoredTrainingSession("grpc://localhost:1", consistency="geo(2)")
