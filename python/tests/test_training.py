"""Training on clusters in this process and in processes of their own."""

from __future__ import annotations

import io
import os
import re
import select
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from session_servers import PATIENCE_S, children_of, is_running

import sidereal as sr
from conftest import FIELDS, IDS, planted, small_model
from sidereal import _arrays, errors
from sidereal._progress import ProgressPrinter
from sidereal.accumulators import ConditionalAccumulator
from sidereal.cluster import program_path
from sidereal.keras import layers
from sidereal.launch import PROTOCOLS

Clusters = Callable[..., sr.LocalCluster]

#: More rows than any test waits for.
# Minutes of work: a fit that is not ended fails its test instead of hanging it.
ENDLESS = sr.data.synthetic(rows=20_000_000, vocabulary_max=1000)


def endless_model() -> sr.Model:
    return sr.models.build("deepfm", ENDLESS, hidden=[8], embedding_dim=4)


def test_training_in_process_improves_the_auc(cluster: sr.LocalCluster) -> None:
    model = small_model()
    test = planted(4000, seed=1)
    before = model.evaluate(test, cluster=cluster)
    result = model.fit(
        planted(20_000), epochs=2, batch_size=64, validation=test, record_losses=True
    )
    after = model.evaluate(test)
    assert before.auc < 0.6
    assert after.auc > 0.85
    assert after.log_loss < before.log_loss
    assert after.rows == 4000
    assert after.best_auc is None
    assert (result.epochs, result.rows, result.steps) == (2, 40_000, 626)
    assert result.losses.shape == (626,)
    assert result.losses.dtype == np.float32
    assert result.losses[-50:].mean() < result.losses[:50].mean()
    assert [v.auc for v in result.validation][-1] == after.auc
    assert [t.task for t in result.tasks] == ["/job:ps/task:0", "/job:worker/task:0"]
    assert result.tasks[1].rows == 40_000
    assert result.samples_per_s > 0
    assert "auc=0." in repr(after)
    assert "steps=626" in repr(result)
    assert model.task_stats()[0].task == "/job:ps/task:0"


def test_training_in_processes_with_two_of_each(clusters: Clusters) -> None:
    cluster = clusters(ps=2, workers=2, ps_lanes=2)
    assert (len(cluster.ps), len(cluster.worker)) == (2, 2)
    assert repr(cluster) == "LocalCluster(2 ps, 2 workers)"
    model = small_model()
    result = model.fit(planted(20_000), cluster=cluster, epochs=2, batch_size=64)
    assert result.rows == 40_000
    assert len(result.tasks) == 4
    assert model.evaluate(planted(4000, seed=1)).auc > 0.85
    cluster.check_alive()


def test_a_running_cluster_can_be_reached_by_address(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("what both were told of\n")
    tasks = {
        job: subprocess.Popen(
            [program_path(), "serve", "--job", job, "--secret-file", str(secret)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for job in ("ps", "worker")
    }
    try:
        spec = {job: [task.stdout.readline().strip()] for job, task in tasks.items()}
        for _ in range(2):
            with sr.RemoteCluster(
                spec, security=sr.SecurityOptions(secret_file=str(secret))
            ) as remote:
                assert small_model().fit(planted(100), cluster=remote, verbose=False).rows == 100
        with pytest.raises(errors.InvalidArgumentError, match="no tasks of job 'worker'"):
            sr.RemoteCluster({"ps": spec["ps"]})
    finally:
        for task in tasks.values():
            task.terminate()
            task.communicate(timeout=PATIENCE_S)


@pytest.mark.parametrize("in_process", [True, False])
def test_a_local_cluster_refuses_whoever_did_not_start_it(
    clusters: Clusters, in_process: bool
) -> None:
    running = clusters(in_process=in_process)
    nonmember = sr.RemoteCluster({"ps": running.ps, "worker": running.worker})
    with pytest.raises(errors.UnauthenticatedError, match="wants a secret"):
        small_model().fit(planted(100), cluster=nonmember, verbose=False)
    assert small_model().fit(planted(100), cluster=running, verbose=False).rows == 100


def test_the_secret_of_a_local_cluster_is_in_no_argument_and_no_environment(
    clusters: Clusters,
) -> None:
    clusters()
    children = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()
    texts = [
        (Path("/proc") / child / name).read_bytes()
        for child in children
        for name in ("cmdline", "environ")
    ]
    assert any(b"--secret-fd" in text for text in texts)
    for text in texts:
        assert not re.search(rb"[0-9a-f]{64}", text)
        assert b"SIDEREAL_SECRET" not in text


def test_a_second_fit_goes_on_where_the_first_ended(cluster: sr.LocalCluster) -> None:
    model = small_model()
    data = planted(5000)
    first = model.fit(data, cluster=cluster, batch_size=64, record_losses=True)
    second = model.fit(data, batch_size=64, record_losses=True)
    assert second.losses[:20].mean() < first.losses[:20].mean()


def test_the_same_seed_gives_the_same_losses(clusters: Clusters) -> None:
    losses = []
    for options in (
        {}, {"ps": 3}, {"ps": 2, "ps_lanes": 2, "protocol": "star_server_lite"},
        {"ps": 2, "protocol": "grpc"}, {"ps": 2, "protocol": "grpc++"},
    ):  # fmt: skip
        model = small_model(seed=3)
        cluster = clusters(in_process=True, **options)
        result = model.fit(
            planted(3000), cluster=cluster, epochs=2, batch_size=64, record_losses=True,
            verbose=False,
        )
        losses.append(result.losses)
    for other in losses[1:]:
        np.testing.assert_array_equal(losses[0], other)


def test_a_model_of_numbers_has_a_loss_of_its_own(cluster: sr.LocalCluster) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2000, 3)).astype(np.float32)
    weights = np.array([[1.0, -2.0], [0.5, 0.0], [0.0, 3.0]], np.float32)
    data = {"x": x, "y": x @ weights}
    model = sr.Model(seed=2)
    out = layers.Dense(2)(model.input("x", np.float32, (3,)))
    off = out - model.input("y", np.float32, (2,))
    loss = sr.math.reduce_mean(sr.math.square(off)) + 0.1 * sr.math.reduce_mean(sr.math.abs(off))
    model.compile(out, sr.optimizers.Adam(0.05), loss=loss)
    before = model.evaluate(data, cluster=cluster)
    result = model.fit(data, epochs=20, batch_size=100, validation=data, verbose=False)
    assert result.validation[-1].loss < 0.01 < before.loss
    assert "auc" not in repr(before)
    predicted = model.predict({"x": x[:5]})
    assert predicted.shape == (5, 2)
    np.testing.assert_allclose(predicted, x[:5] @ weights, atol=0.1)
    served = model.inference_function()(x=x[:5])
    np.testing.assert_allclose(np.asarray(served["prediction"]), predicted, atol=1e-5)


def test_shuffling_changes_the_order_of_rows(clusters: Clusters) -> None:
    losses = []
    for shuffle in (True, False):
        result = small_model().fit(
            planted(640), cluster=clusters(in_process=True), batch_size=64, record_losses=True,
            shuffle=shuffle, verbose=False,
        )
        losses.append(result.losses)
    assert len(losses[0]) == len(losses[1]) == 10
    assert (losses[0] != losses[1]).any()


def test_predictions_are_in_row_order(clusters: Clusters) -> None:
    model = small_model()
    model.fit(planted(5000), cluster=clusters(in_process=True, workers=2, worker_lanes=2))
    ids = planted(1001, seed=5)["ids"]
    whole = model.predict({"ids": ids}, batch_size=100)
    assert whole.shape == (1001,)
    assert whole.dtype == np.float32
    assert len(np.unique(whole)) > 500
    backwards = model.predict({"ids": ids[::-1]}, batch_size=64)
    np.testing.assert_allclose(backwards[::-1], whole, rtol=1e-6)


def test_variables_read_back_are_what_computes_the_predictions(clusters: Clusters) -> None:
    model = small_model()
    model.fit(planted(5000), cluster=clusters(in_process=True, ps=3), batch_size=64)
    values = {v.name: model.get_variable(v.name) for v in model.variables()}
    for variable in model.variables():
        assert values[variable.name].shape == variable.shape
        assert values[variable.name].dtype == variable.dtype
    ids = planted(50, seed=9)["ids"]
    rows = values["vectors/embeddings"][ids]
    hidden = rows.reshape(50, -1) @ values["hidden/kernel"] + values["hidden/bias"]
    pairs = 0.5 * (rows.sum(1) ** 2 - (rows**2).sum(1)).sum(1, keepdims=True)
    logit = (
        values["weights/embeddings"][ids].sum(1)
        + pairs
        + np.maximum(hidden, 0) @ values["head/kernel"]
        + values["head/bias"]
    )
    np.testing.assert_allclose(
        model.predict({"ids": ids}), 1 / (1 + np.exp(-logit[:, 0])), rtol=1e-4
    )
    with pytest.raises(errors.NotFoundError, match="no variable 'head/kern'.*head/kernel"):
        model.get_variable("head/kern")


def test_initial_values_do_not_depend_on_the_number_of_servers(clusters: Clusters) -> None:
    tables = []
    for options in ({"ps": 1}, {"ps": 3, "ps_lanes": 2}):
        model = small_model(seed=11)
        model.initialize(clusters(in_process=True, **options))
        tables.append(model.get_variable("vectors/embeddings"))
    np.testing.assert_array_equal(tables[0], tables[1])
    assert 0.028 < tables[0].std() < 0.03


def test_files_can_be_trained_on(cluster: sr.LocalCluster, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    data = planted(2000)
    lines = [",".join(map(str, [int(y), *x])) for y, x in zip(data["label"], data["ids"])]
    path.write_text("label,a,b,c,d\n" + "\n".join(lines) + "\nbroken,row\n")
    spec = sr.data.csv(path, id_space=IDS, bad_rows="skip")
    model = sr.models.build("lr", spec, optimizer=sr.optimizers.SGD(0.5))
    result = model.fit(spec, cluster=cluster, epochs=2, batch_size=64)
    assert result.rows == 4000
    assert result.rows_skipped > 0
    assert "rows.csv" in result.first_skipped
    assert model.predict(spec).shape == (2000,)
    with pytest.raises(errors.InvalidArgumentError, match=r"rows\.csv.*2002"):
        model.fit(sr.data.csv(path, id_space=IDS))


def test_synthetic_data_tells_the_best_auc(cluster: sr.LocalCluster) -> None:
    spec = sr.data.synthetic(rows=2000, vocabulary_max=100)
    model = sr.models.build("lr", spec)
    model.fit(spec, cluster=cluster, steps_max=3)
    result = model.evaluate(spec)
    assert result.best_auc is not None
    assert result.best_auc > result.auc


def test_an_id_beyond_the_table_is_an_error_and_no_end(cluster: sr.LocalCluster) -> None:
    model = small_model()
    data = planted(100)
    data["ids"][7, 2] = IDS
    with pytest.raises(errors.InvalidArgumentError, match=f"id {IDS} .*{IDS} rows"):
        model.fit(data, cluster=cluster)
    assert model.fit(planted(100)).rows == 100


def test_wrong_options_are_named(cluster: sr.LocalCluster) -> None:
    model = small_model()
    with pytest.raises(errors.InvalidArgumentError, match="epochs"):
        model.fit(planted(10), cluster=cluster, epochs=0)
    with pytest.raises(errors.InvalidArgumentError, match="batch"):
        model.fit(planted(10), batch_size=0)
    for count in (0, 65):
        with pytest.raises(errors.InvalidArgumentError, match="steps_in_flight"):
            model.fit(planted(10), steps_in_flight=count)
    with pytest.raises(errors.InvalidArgumentError, match='no protocol "rdma"'):
        sr.LocalCluster(protocol="rdma")
    with pytest.raises(errors.InvalidArgumentError, match="ps is 0"):
        sr.LocalCluster(ps=0)


def test_a_stopped_cluster_says_so(clusters: Clusters) -> None:
    cluster = clusters(in_process=True)
    model = small_model()
    model.fit(planted(10), cluster=cluster)
    cluster.stop()
    cluster.stop()
    assert cluster.stopped
    for use in (lambda: model.evaluate(planted(10)), cluster.check_alive, cluster.__enter__):
        with pytest.raises(errors.FailedPreconditionError, match="has been stopped"):
            use()
    assert model.fit(planted(10), cluster=clusters(in_process=True)).rows == 10


def test_models_on_one_cluster_have_variables_of_their_own(cluster: sr.LocalCluster) -> None:
    first, second = small_model(), small_model()
    first.fit(planted(1000), cluster=cluster)
    trained = first.get_variable("head/kernel")
    second.initialize(cluster)
    assert (second.get_variable("head/kernel") != trained).any()
    second.fit(planted(10))
    np.testing.assert_array_equal(first.get_variable("head/kernel"), trained)


def test_an_exception_in_on_progress_ends_the_fit(cluster: sr.LocalCluster) -> None:
    model = endless_model()

    def fail(progress: sr.Progress) -> None:
        assert progress.steps >= 0
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        model.fit(ENDLESS, cluster=cluster, verbose=False, on_progress=fail)
    assert model.fit(ENDLESS, steps_max=2).steps == 2


def test_ctrl_c_ends_the_fit_and_the_cluster_stays_usable(cluster: sr.LocalCluster) -> None:
    model = endless_model()
    with pytest.raises(KeyboardInterrupt):
        model.fit(
            ENDLESS, cluster=cluster,
            on_progress=lambda progress: signal.raise_signal(signal.SIGINT),
        )
    assert model.fit(ENDLESS, steps_max=2).steps == 2


def test_one_thread_at_a_time(cluster: sr.LocalCluster) -> None:
    model = endless_model()
    seen = []

    def also(progress: sr.Progress) -> None:
        with pytest.raises(errors.FailedPreconditionError, match="another thread") as caught:
            model.predict(ENDLESS)
        seen.append(caught.value)
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError):
        model.fit(ENDLESS, cluster=cluster, on_progress=also)
    assert seen


def test_a_lost_task_is_named(clusters: Clusters) -> None:
    cluster = clusters(ps=1, workers=2)
    tasks = {
        pid: command for pid, command in children_of(os.getpid()).items() if " serve " in command
    }
    assert len(tasks) == 3
    victim = next(pid for pid, command in tasks.items() if "--job worker --task 1" in command)
    with pytest.raises(errors.UnavailableError, match="/job:worker/task:1"):
        endless_model().fit(
            ENDLESS, cluster=cluster, verbose=False,
            on_progress=lambda progress: os.kill(victim, signal.SIGKILL),
        )
    with pytest.raises(errors.UnavailableError, match="/job:worker/task:1"):
        cluster.check_alive()


def test_a_local_cluster_starts_a_lost_ps_again(clusters: Clusters) -> None:
    with pytest.raises(ValueError, match="on_ps_loss is 'again'"):
        clusters(on_ps_loss="again")
    with pytest.raises(ValueError, match="in processes of their own"):
        clusters(on_ps_loss="restore", in_process=True)
    cluster = clusters(ps=2, workers=1, on_ps_loss="restore")

    def ps() -> int:
        tasks = children_of(os.getpid())
        return next((pid for pid, it in tasks.items() if "--job ps --task 1" in it), -1)

    victim = ps()
    alive = [victim]

    def kill(progress: sr.Progress) -> None:
        if alive:
            os.kill(alive.pop(), signal.SIGKILL)

    # A fit cannot go on without its variables; the next one has them all.
    with pytest.raises((errors.UnavailableError, errors.AbortedError), match="/job:ps/.*task:1"):
        endless_model().fit(ENDLESS, cluster=cluster, verbose=False, on_progress=kill)
    small_model().fit(planted(2000, seed=2), cluster=cluster, verbose=False)
    cluster.check_alive()
    assert ps() not in (-1, victim)


SCRIPT = """
    import sidereal as sr

    data = sr.data.synthetic(rows=2_000_000_000, vocabulary_max=1000)
    model = sr.models.build("lr", data)
    with sr.LocalCluster(ps=1, workers=1) as cluster:
        on = lambda progress: print("on", flush=True)
        model.fit(data, cluster=cluster, verbose=False, on_progress=on)
"""


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_is_left_behind(signal_number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SCRIPT)], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    ) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        assert program.stdout.readline() == "on\n", program.stderr.read()
        tasks = children_of(program.pid)
        assert len(tasks) == 2
        # A task that has ended is readable; this is how the end is waited for, with a deadline.
        watched = [os.pidfd_open(pid) for pid in tasks]
        program.send_signal(signal_number)
        errors_seen = program.communicate(timeout=PATIENCE_S)[1]
        if signal_number == signal.SIGINT:
            assert "KeyboardInterrupt" in errors_seen
        poller = select.poll()
        for task in watched:
            poller.register(task)
            assert poller.poll(PATIENCE_S * 1000), "a task outlives its launcher"
            poller.unregister(task)
            os.close(task)


HOLDER = """
    import sys
    from sidereal import _arrays

    _arrays.SHARED_MEMORY = sys.argv[1]
    with _arrays.folder_for(100) as folder:
        print(folder, flush=True)
        input()
"""


def test_what_killed_processes_leave_of_arrays_is_removed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In a place of their own: programs of other tests remove what they find, too.
    monkeypatch.setattr(_arrays, "SHARED_MEMORY", str(tmp_path))
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOLDER), tmp_path], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True,
    ) as program:
        assert program.stdout is not None
        theirs = Path(program.stdout.readline().strip())
        assert theirs.parent == tmp_path
        with _arrays.folder_for(100) as ours:
            assert theirs.is_dir(), "it is in use"
            assert Path(ours).is_dir()
        assert not Path(ours).exists()
        program.kill()
        program.wait(PATIENCE_S)
    assert theirs.is_dir()
    with _arrays.folder_for(100):
        assert not theirs.exists()


def test_progress_is_plain_lines_without_a_terminal(cluster: sr.LocalCluster) -> None:
    out = io.StringIO()
    seen: list[sr.Progress] = []
    model = endless_model()
    result = model.fit(
        ENDLESS, cluster=cluster, steps_max=50, verbose=False, on_progress=seen.append
    )
    with ProgressPrinter(2, out) as printer:
        for progress in seen:
            printer(progress)
        printer.finish(result)
    assert "trained on 51,200 rows" in out.getvalue()
    assert "\r" not in out.getvalue()


def test_progress_is_a_bar_on_a_terminal(cluster: sr.LocalCluster) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = Terminal()
    model = endless_model()
    with ProgressPrinter(1, out) as printer:
        result = model.fit(
            ENDLESS, cluster=cluster, steps_max=50, verbose=False, on_progress=printer
        )
        printer.finish(result)
    assert "%|" in out.getvalue()
    assert "trained on" in out.getvalue()


def test_a_model_without_embeddings_trains(cluster: sr.LocalCluster) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, FIELDS))
    model = sr.Model()
    model.compile(
        layers.Dense(1)(model.input("x", sr.float32, (FIELDS,))), sr.optimizers.SGD(0.5)
    )
    data = {"x": x, "label": x[:, 0] > 0}
    model.fit(data, cluster=cluster, epochs=2, batch_size=64)
    assert model.evaluate(data).auc > 0.95


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", ["object", "str", "bytes"])
def test_strings_go_through_lookup_tables_into_embeddings(protocol: str, kind: str) -> None:
    known = sr.lookup.StaticHashTable(
        sr.lookup.KeyValueTensorInitializer(["red", "green", "blau", "größe"], [0, 1, 2, 3]),
        default_value=4,
    )
    some = sr.lookup.StaticVocabularyTable(
        sr.lookup.KeyValueTensorInitializer(["red"], sr.constant([0], sr.int64)), num_oov_buckets=5
    )
    model = sr.Model(seed=1)
    color = model.input("color", sr.string, (2,))
    ids = sr.cast(known.lookup(color), sr.int64)
    rows = [layers.Embedding(5, 4)(ids), layers.Embedding(6, 4)(some.lookup(color))]
    logit = layers.Dense(1)(layers.Flatten()(layers.Add()(rows)))
    model.compile(logit, sr.optimizers.Adam(0.05))
    assert [str(one.dtype) for one in model.inputs] == ["sidereal.string", "float32"]
    words = np.array(["red", "green", "blau", "größe", "unknown", ""])
    colors = words[np.random.default_rng(0).integers(0, len(words), (512, 2))]
    label = (colors == "größe").any(axis=1).astype(np.float32)
    column: Any = colors
    if kind != "str":
        column = np.array([[word.encode() for word in row] for row in colors])
    if kind == "object":
        column = column.astype(object)
        column[::2] = colors[::2]
    data = {"color": column, "label": label}
    with sr.LocalCluster(ps=2, workers=1, in_process=True, protocol=protocol) as cluster:
        model.fit(data, cluster=cluster, epochs=8, batch_size=32, verbose=False)
        assert model.evaluate(data).auc > 0.99
        predicted = model.predict({"color": column[:64]})
        served = model.inference_function()(color=sr.constant(colors[:64].tolist()))
        np.testing.assert_allclose(np.asarray(served["probability"]).ravel(), predicted, atol=1e-5)
    with pytest.raises(errors.InvalidArgumentError, match="takes str and"):
        model.predict({"color": np.array([["red", 3]], dtype=object)})


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("consistency", ["async", "sync", "bounded(1)", "hybrid"])
def test_queues_accumulators_and_mutable_tables_are_part_of_a_model(
    protocol: str, consistency: str
) -> None:
    model = sr.Model(seed=1)
    x, y = model.input("x", sr.float32, (3,)), model.input("y", sr.float32)
    asked = model.input("asked", sr.int64)
    with model.as_default():
        queue = sr.queue.FIFOQueue(4, sr.int64, shapes=[()])
        seen = sr.lookup.experimental.MutableHashTable(sr.int64, sr.int64, default_value=0)
        sums = ConditionalAccumulator(sr.float32)
    # How many batches there were, by their rows: each goes through the queue.
    model.add_update(queue.enqueue(sr.reduce_sum(sr.ones_like(asked))))
    rows = sr.reshape(queue.dequeue(), [1])
    model.add_update(seen.insert(rows, seen.lookup(rows) + 1))
    model.add_update(sums.apply_grad(sr.reduce_sum(x), local_step=1 << 40))
    model.add_update(sums.take_grad(1))
    own = sr.queue.FIFOQueue(1, sr.int64)
    with pytest.raises(errors.InvalidArgumentError, match=r"made within model\.as_default"):
        model.add_update(own.enqueue(1))
    score = sr.reshape(layers.Dense(1)(x), [-1])
    counted = sr.cast(seen.lookup(asked), sr.float32)
    loss = sr.reduce_mean((score - y) ** 2)
    model.compile(sr.stack([score, counted], axis=1), sr.optimizers.SGD(0.1), loss=loss)
    with pytest.raises(errors.FailedPreconditionError, match="compiled"):
        model.add_update(rows)
    numbers = np.random.default_rng(0).normal(size=(80, 3))
    data = {"x": numbers, "y": numbers[:, 0], "asked": np.zeros(80, np.int64)}
    with sr.LocalCluster(
        ps=2, workers=1, worker_lanes=1, in_process=True, protocol=protocol
    ) as cluster:
        model.fit(
            data, cluster=cluster, epochs=20, batch_size=32, verbose=False, consistency=consistency
        )
        told = model.predict({"x": np.eye(3), "asked": np.array([32, 16, 7])})
    np.testing.assert_array_equal(told[:, 1], [40, 20, 0])
    np.testing.assert_allclose(told[:, 0], [1, 0, 0], atol=0.05)


class Line(layers.Layer):
    """Weights of other dtypes."""

    def build(self, input_shape: Any) -> None:
        self.wide = self.add_weight((input_shape[-1], 1), dtype=sr.float64, name="wide")
        self.shift = self.add_weight((), dtype=sr.int64, trainable=False, name="shift")

    def call(self, inputs: Any) -> Any:
        score = sr.reshape(sr.matmul(sr.cast(inputs, sr.float64), self.wide), [-1])
        return sr.cast(score + sr.cast(self.shift, sr.float64), sr.float32)


@pytest.mark.parametrize("consistency", ["async", "sync", "bounded(1)", "hybrid"])
@pytest.mark.parametrize("protocol", ["grpc", "star_server"])
def test_variables_of_other_dtypes_are_trained_and_read(protocol: str, consistency: str) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(64, 3)).astype(np.float32)
    y = (x @ [1.0, -2.0, 0.5]).astype(np.float32)
    model = sr.Model(seed=2)
    features = model.input("x", sr.float32, (3,))
    target = model.input("y", sr.float32)
    score = Line(name="line")(features)
    model.compile(
        score, sr.optimizers.Adam(0.1, clipnorm=1.0), loss=sr.reduce_mean(sr.square(score - target))
    )
    dtypes = {variable.name: variable.dtype for variable in model.variables()}
    assert dtypes == {"line/wide": np.float64, "line/shift": np.int64}
    with sr.LocalCluster(ps=2, workers=1, in_process=True, protocol=protocol) as cluster:
        model.initialize(cluster)
        wanted = sr.Variable(model.get_variable("line/wide"))
        model.fit(
            {"x": x, "y": y}, epochs=5, batch_size=16, shuffle=False, verbose=False,
            consistency=consistency,
        )  # fmt: skip
        got = model.get_variable("line/wide")
        assert got.dtype == np.float64
        assert model.get_variable("line/shift") == 0
    optimizer = sr.optimizers.Adam(0.1, clipnorm=1.0)
    for first in [*range(0, 64, 16)] * 5:
        with sr.GradientTape() as tape:
            by = sr.matmul(sr.constant(x[first : first + 16].astype(np.float64)), wanted)
            off = sr.cast(sr.reshape(by, [-1]), sr.float32) - y[first : first + 16]
            loss = sr.reduce_mean(sr.square(off))
        optimizer.apply_gradients(zip(tape.gradient(loss, [wanted]), [wanted]))
    np.testing.assert_allclose(got, wanted.numpy(), rtol=0, atol=1e-6)
    with pytest.raises(errors.InvalidArgumentError, match="must be float32 or float64"):
        other = sr.Model().input("x", sr.float16, (3,))
        layers.Dense(1, dtype=sr.float16)(other)


def test_replicas_in_step_are_one_with_all_their_rows() -> None:
    data = planted(640)
    tables = []
    for workers, batch_size in ((2, 32), (1, 64)):
        model = small_model()
        with sr.LocalCluster(ps=2, workers=workers, in_process=True) as cluster:
            result = model.fit(
                data, cluster=cluster, batch_size=batch_size, shuffle=False, verbose=False,
                consistency="sync" if workers > 1 else "async",
            )  # fmt: skip
            assert (result.steps, result.updates) == (10 * workers, 10)
            tables.append(model.get_variable(model.variables()[0].name))
            if workers > 1:
                with pytest.raises(errors.InvalidArgumentError, match="2 replicas"):
                    model.fit(data, consistency="sync(2 of 3)", verbose=False)
    np.testing.assert_allclose(tables[0], tables[1], rtol=0, atol=2e-6)


@pytest.mark.parametrize("consistency", ["sync", "bounded(1)"])
@pytest.mark.parametrize("protocol", ["grpc", "star_server"])
def test_a_worker_killed_while_another_waits_for_it_is_named(
    protocol: str, consistency: str
) -> None:
    with sr.LocalCluster(ps=1, workers=2, protocol=protocol) as cluster:
        victim = next(
            pid
            for pid, command in children_of(os.getpid()).items()
            if "--job worker --task 1" in command
        )

        def kill(progress: sr.Progress) -> None:
            if is_running(victim):
                os.kill(victim, signal.SIGKILL)

        with pytest.raises(errors.UnavailableError, match="/job:worker/task:1"):
            endless_model().fit(
                ENDLESS, cluster=cluster, batch_size=64, consistency=consistency, verbose=False,
                on_progress=kill,
            )  # fmt: skip


def test_ctrl_c_ends_a_step_in_the_middle_of_a_loop() -> None:
    model = sr.Model(seed=1)
    ids = model.input("ids", sr.int64, (2,))
    rows = layers.Embedding(10, 4)(ids)
    first = sr.cast(ids[0, 0], sr.int32)
    endless = sr.while_loop(lambda i: i < 2**31 - 1, lambda i: i + 1, [first])
    score = layers.FM()(rows)
    model.compile(score + 0.0 * sr.cast(endless, sr.float32), optimizer=sr.optimizers.SGD(0.1))
    data = {"ids": np.zeros((8, 2), np.int64), "label": np.zeros(8, np.float32)}
    with sr.LocalCluster(ps=1, workers=1, in_process=True) as cluster:
        timer = threading.Timer(1.0, os.kill, [os.getpid(), signal.SIGINT])
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            model.fit(data, cluster=cluster, batch_size=4)
        timer.join()
