"""Loops of sessions, from Python: over servers and in the process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from session_servers import Processes, addresses

import sidereal as sr
import sidereal.v1 as tf
from sidereal import errors
from sidereal.launch import PROTOCOLS

Model = tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Operation]


@pytest.fixture
def data(tmp_path: Path) -> sr.data.DataSpec:
    """1,000 rows of two numbers and a label that follows from them."""
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(1000, 2))
    labels = (rows[:, 0] > rows[:, 1]).astype(int)
    path = tmp_path / "rows.csv"
    np.savetxt(
        path, np.column_stack([labels, rows]), delimiter=",", header="label,a,b", comments="",
        fmt=["%d", "%.6f", "%.6f"],
    )  # fmt: skip
    return sr.data.DataSpec(
        format="csv", files=[str(path)], numeric=["a", "b"], shuffle_rows=0
    )


@pytest.fixture(params=["", *PROTOCOLS])
def target(request: pytest.FixtureRequest) -> Iterator[str]:
    """Of a session: this process, or a worker beside a ps, both processes of their own."""
    if not request.param:
        with tf.Graph().as_default():
            yield ""
        return
    processes = Processes()
    ps, worker = addresses(2)
    cluster = {"ps": [ps], "worker": [worker]}
    for job in cluster:
        processes.serve(cluster, job, 0, "--protocol", request.param)
    with tf.Graph().as_default():
        yield f"grpc://{worker}"
    processes.end()


def regression(target: str) -> Model:
    """(features, label, loss, training) of a logistic regression."""
    with tf.device("/job:ps/task:0" if target else ""):
        w = tf.Variable(np.zeros((2, 1), "f"))
    x = tf.placeholder(tf.float32, [None, 2])
    y = tf.placeholder(tf.float32, [None])
    p = tf.reshape(tf.sigmoid(tf.matmul(x, w)), [-1], name="p")
    loss = tf.reduce_mean(tf.square(p - y), name="loss")
    return x, y, loss, tf.train.GradientDescentOptimizer(0.5).minimize(loss)


def test_trains_evaluates_and_predicts(target: str, data: sr.data.DataSpec) -> None:
    x, y, loss, train = regression(target)
    heard: list[int] = []
    with tf.Session(target) as session:
        session.run(tf.global_variables_initializer())
        done = session.run_loop(
            [loss, train], data, {x: "dense", y: "label"}, keep="series", batch_size=100,
            epochs=3, on_progress=lambda now: heard.append(now.steps),
        )  # fmt: skip
        assert (done.steps, done.rows) == (30, 3000)
        assert done.fetches[1] is None
        assert len(done.fetches[0]) == 30
        assert done.fetches[0][-1] < 0.5 * done.fetches[0][0]
        assert heard[-1] == 30
        told = session.run_loop({"loss": loss}, data, {x: "dense", y: "label"}, batch_size=300)
        assert told.steps == 4
        assert told.fetches["loss"] == pytest.approx(done.fetches[0][-1], rel=0.5)
        scores = session.run_loop(
            "p:0", data, {x: "dense"}, keep="each", kept_columns=["label"], batch_size=300
        )
        assert [len(part) for part in scores.fetches] == [300, 300, 300, 100]
        right = (np.concatenate(scores.fetches) > 0.5) == np.concatenate(scores.columns["label"])
        assert right.mean() > 0.95


def test_says_which_column_is_not_there(target: str, data: sr.data.DataSpec) -> None:
    x, y, loss, _train = regression(target)
    with tf.Session(target) as session:
        session.run(tf.global_variables_initializer())
        with pytest.raises(errors.InvalidArgumentError, match="no column 'ages'"):
            session.run_loop(loss, data, {x: "dense", y: "ages"})


def test_strings_are_fed_and_kept(target: str) -> None:
    s = tf.placeholder(tf.string, [None])
    with tf.Session(target) as session:
        done = session.run_loop(tf.identity(s), None, None, {s: ["a", "bc"]}, keep="last", steps=2)
    assert list(done.fetches) == [b"a", b"bc"]


def test_columns_of_strings_and_integers_are_fed_and_kept(target: str, tmp_path: Path) -> None:
    words = np.array(["a", "bc", "", "dé", "€"])
    numbers = np.array([3, -1, 2**40, 0, 7])
    texts = [b"x", b"yz", b"", b"w\0v", b"u"]
    columns = {"word": words, "number": numbers, "bytes": np.array(texts)}
    for name, column in columns.items():
        np.save(tmp_path / f"{name}.npy", column)
    data = sr.data.DataSpec(
        format="arrays", arrays=[(name, str(tmp_path / f"{name}.npy")) for name in columns],
        label="", shuffle_rows=0,
    )  # fmt: skip
    s = tf.placeholder(tf.string, [None])
    n = tf.placeholder(tf.int64, [None])
    with tf.device("/job:ps/task:0" if target else ""):
        there = tf.strings.join([s, tf.strings.as_string(n)], ":")
    with tf.Session(target) as session:
        done = session.run_loop(
            there, data, {s: "word", n: "number"}, keep="each", kept_columns=["bytes", "number"],
            batch_size=2,
        )  # fmt: skip
    want = [f"{word}:{number}".encode() for word, number in zip(words, numbers)]
    assert np.concatenate(done.fetches).tolist() == want
    assert np.concatenate(done.columns["bytes"]).tolist() == texts
    assert np.concatenate(done.columns["number"]).tolist() == numbers.tolist()


def test_an_exception_of_a_callback_ends_it(target: str, data: sr.data.DataSpec) -> None:
    x, y, loss, _train = regression(target)

    def refuse(*_: object) -> None:
        raise ZeroDivisionError("enough")

    with tf.Session(target) as session:
        session.run(tf.global_variables_initializer())
        with pytest.raises(ZeroDivisionError, match="enough"):
            session.run_loop(
                loss, data, {x: "dense", y: "label"}, keep="each", batch_size=1, epochs=1000,
                on_values=refuse,
            )  # fmt: skip
        assert session.run(loss, {x: [[0.0, 0.0]], y: [0.5]}) == 0


def test_a_killed_ps_is_named(data: sr.data.DataSpec) -> None:
    processes = Processes()
    ps, worker = addresses(2)
    cluster = {"ps": [ps], "worker": [worker]}
    killed = processes.serve(cluster, "ps", 0, "--protocol", "star_server")
    processes.serve(cluster, "worker", 0, "--protocol", "star_server")
    with tf.Graph().as_default(), pytest.raises(errors.Error, match="/job:ps/replica:0/task:0"):
        x, y, loss, train = regression("servers")
        with tf.Session(f"grpc://{worker}") as session:
            session.run(tf.global_variables_initializer())
            session.run_loop(
                [loss, train], data, {x: "dense", y: "label"}, epochs=1 << 30, batch_size=10,
                on_progress=lambda _now: killed.kill(),
            )  # fmt: skip
    processes.end()
