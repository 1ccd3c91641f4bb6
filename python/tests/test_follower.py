"""sr.Follower: rows that are those of a cluster that trains, whatever ends meanwhile."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from followed import DIM, ROWS, Cluster, Tables
from session_servers import PATIENCE_S

import sidereal as sr
import sidereal.v1 as tf
from sidereal import errors

TASK = "/job:ps/replica:0/task:"
#: Names of the parts of a table are numbered, and its rows in blocks: those of partitioners.
BLOCKS = {"parts": "blocks", "cut": 0.002}

pytestmark = pytest.mark.usefixtures("fresh_graph")


@pytest.fixture(params=["grpc", "star_server"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(request.param) as made:
        yield made


def wait(follower: sr.Follower) -> None:
    follower.wait_until_current(PATIENCE_S)


def test_rows_are_those_that_were_trained(cluster: Cluster) -> None:
    # It is there before any variable is, and waits for them.
    with sr.Follower(cluster.target, **BLOCKS) as early:
        wait(early)
        assert early.tables == {}
        with pytest.raises(errors.NotFoundError, match="no table 'table'; there are: none"):
            early.lookup("table", [0])
        tables = Tables()
        with tf.Session(cluster.target) as session:
            session.run(tf.global_variables_initializer())
            tables.push(session, 50)
            with sr.Follower(cluster.jobs["ps"], tables=["table"], **BLOCKS) as late:
                for _ in range(5):
                    tables.push(session, 5)
                    wanted = tables.now(session)
                    for follower in (early, late):
                        wait(follower)
                        assert np.array_equal(follower.lookup("table", np.arange(ROWS)), wanted)
                assert late.tables == {"table": (ROWS, DIM), "other": (7, 3)}
                assert np.array_equal(late.lookup("other", range(7)), session.run(tables.other))
                assert [one.task for one in late.tasks] == [f"{TASK}0", f"{TASK}1"]
                assert all(one.is_whole for one in late.tasks)
                assert 0 <= late.behind < math.inf
        # A negative id is that of no row, as in a model; ids may have any shape.
        found = early.lookup("table", [[5, -1], [ROWS - 1, 5]])
        assert found.shape == (2, 2, DIM)
        assert found.dtype == np.float32
        assert np.array_equal(found, [[wanted[5], np.zeros(DIM)], [wanted[-1], wanted[5]]])
        assert early.lookup("table", []).shape == (0, DIM)


def test_what_cannot_be_looked_up(cluster: Cluster) -> None:
    Tables()
    with tf.Session(cluster.target) as session:
        session.run(tf.global_variables_initializer())
        with sr.Follower(cluster.target, parts="modulo") as follower:
            wait(follower)
            with pytest.raises(errors.NotFoundError, match="'tabel'; there are: 'other', 'table'"):
                follower.lookup("tabel", [0])
            with pytest.raises(errors.InvalidArgumentError, match=f"id {ROWS} .* has {ROWS} rows"):
                follower.lookup("table", [0, ROWS])
            with pytest.raises(errors.InvalidArgumentError, match="'global_step' is no table"):
                follower.lookup("global_step", [0])
            with pytest.raises(errors.InvalidArgumentError, match="ids are integers"):
                follower.lookup("table", [0.5])
            with pytest.raises(errors.InvalidArgumentError, match="below"):
                follower.lookup("table", np.array([2**63], np.uint64))
        with pytest.raises(errors.FailedPreconditionError, match="closed"):
            follower.lookup("table", [0])
    with pytest.raises(errors.InvalidArgumentError, match="no job 'chief'"):
        sr.Follower(cluster.target, job="chief")
    with pytest.raises(errors.InvalidArgumentError, match="'apart', 'modulo', 'blocks'"):
        sr.Follower(cluster.target, parts="halves")
    with (
        sr.Follower(cluster.target, tables=["tabel"]) as follower,
        pytest.raises(errors.NotFoundError, match="'tabel'; there are: 'other', 'table/part_0'"),
    ):
        for limit in (0.5, 5, 20):
            # What has not come in half a second on a busy machine is told first.
            with suppress(errors.DeadlineExceededError, errors.UnavailableError):
                follower.wait_until_current(limit)


def test_a_table_is_waited_for_until_it_is_there(cluster: Cluster) -> None:
    with sr.Follower(cluster.target, tables=["table"], **BLOCKS) as follower:
        found: list[np.ndarray] = []

        def look_up() -> None:
            wait(follower)
            found.append(follower.lookup("table", [0]))

        waiting = threading.Thread(target=look_up)
        waiting.start()
        tables = Tables()
        with tf.Session(cluster.target) as session:
            session.run(tf.global_variables_initializer())
            waiting.join(PATIENCE_S)
            assert np.array_equal(found[0], tables.now(session)[:1])


def test_a_row_is_of_one_push_while_rows_change(cluster: Cluster) -> None:
    rows, dim = 64, 32
    with tf.device("/job:ps/task:0"):
        table = tf.get_variable("table", [rows, dim], initializer=tf.zeros_initializer())
    ids = tf.placeholder(tf.int64, [None])
    push = tf.scatter_add(table, ids, tf.ones([16, dim])).op
    with tf.Session(cluster.target) as session:
        session.run(tf.global_variables_initializer())
        with sr.Follower(cluster.target, tables=["table"], cut=0.001) as follower:
            wait(follower)

            def train() -> None:
                random = np.random.default_rng(3)
                for _ in range(300):
                    session.run(push, {ids: random.integers(0, rows, 16)})

            training = threading.Thread(target=train)
            training.start()
            seen = np.zeros(rows, np.float32)
            while training.is_alive():
                found = follower.lookup("table", np.arange(rows))
                assert (found == found[:, :1]).all()
                assert (found[:, 0] >= seen).all()
                seen = found[:, 0]
            training.join()
            wait(follower)
            found = follower.lookup("table", np.arange(rows))
            assert np.array_equal(found, session.run(table))
            assert found.sum() == 300 * 16 * dim


def test_what_is_deleted_is_not_found(cluster: Cluster) -> None:
    with sr.Follower(cluster.target, group="*", **BLOCKS) as follower:
        # There is no group yet, which a task says.
        with pytest.raises(errors.UnavailableError, match=f"{TASK}0 is not here as a whole"):
            follower.wait_until_current(0.1)
        assert follower.behind == math.inf
        tables = Tables()
        with tf.Session(cluster.target, config=tf.ConfigProto(state_group="one")) as session:
            session.run(tf.global_variables_initializer())
            wait(follower)
            last = follower.lookup("table", np.arange(ROWS))
            assert np.array_equal(last, tables.now(session))
        # The group has ended, with its variables; what was looked up goes on.
        assert np.array_equal(follower.lookup("table", np.arange(ROWS)), last)
    with sr.Follower(cluster.target, **BLOCKS) as follower:
        tf.Session(cluster.target).run(tf.global_variables_initializer())
        wait(follower)
        assert "table" in follower.tables
        tf.Session.reset(cluster.target)
        wait(follower)
        assert follower.tables == {}
        with pytest.raises(errors.NotFoundError, match="there are: none"):
            follower.lookup("table", [1])


def push_until_it_fails(session: tf.Session, tables: Tables, many: threading.Semaphore) -> None:
    with suppress(errors.Error):
        for _ in range(10_000):
            tables.push(session)
            many.release()


def test_a_ps_that_is_killed_while_it_trains(cluster: Cluster, tmp_path: Path) -> None:
    tables = Tables()
    saver = tf.train.Saver()
    random = np.random.default_rng(11)
    with sr.Follower(cluster.target, tables=["table", "other"], **BLOCKS) as follower:
        with tf.Session(cluster.target) as session:
            session.run(tf.global_variables_initializer())
            saved = saver.save(session, str(tmp_path / "m"))
        for life in range(3):
            with tf.Session(cluster.target) as session:
                saver.restore(session, saved)
                tables.push(session, 20)
                wait(follower)
                wanted = tables.now(session)
                assert np.array_equal(follower.lookup("table", np.arange(ROWS)), wanted)
                many = threading.Semaphore(0)
                training = threading.Thread(
                    target=push_until_it_fails, args=(session, tables, many)
                )
                training.start()
                for _ in range(random.integers(1, 30)):
                    assert many.acquire(timeout=PATIENCE_S)
                cluster.kill_ps(life % 2)
                # It goes on with what it has.
                assert follower.lookup("table", np.arange(ROWS)).shape == (ROWS, DIM)
                training.join(PATIENCE_S)
                assert not training.is_alive()
            cluster.restart_ps(life % 2)


def test_a_program_that_ends_need_not_close_it(cluster: Cluster) -> None:
    program = "import sys, sidereal as sr; f = sr.Follower(sys.argv[1]); f.wait_until_current()"
    ended = subprocess.run(
        [sys.executable, "-c", program, cluster.target], capture_output=True, text=True,
        timeout=PATIENCE_S,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, "")


def test_only_holders_of_the_secret_follow(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("7f0ac3d1e2b49658c0ffee00c0ffee00")
    with Cluster("star_server", "--secret-file", secret) as cluster:
        friendly = sr.SecurityOptions(secret_file=str(secret))
        with sr.Follower(cluster.jobs["ps"], security=friendly) as friend:
            wait(friend)
        with (
            sr.Follower(cluster.jobs["ps"]) as stranger,
            pytest.raises(errors.UnavailableError, match=f"{TASK}0 is not here as a whole"),
        ):
            stranger.wait_until_current(0.5)
