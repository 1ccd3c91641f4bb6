"""`sidereal follow`: files that are what a cluster trains, bit for bit, whatever ends meanwhile."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from followed import DIM, ROWS, Cluster, Tables
from session_servers import PATIENCE_S, PROGRAM

import sidereal as sr
import sidereal.v1 as tf

pytestmark = pytest.mark.usefixtures("fresh_graph")


@pytest.fixture(params=["grpc", "star_server"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(request.param) as made:
        yield made


class Follower:
    """A running `sidereal follow` with a folder of its own, and what it has said so far."""

    def __init__(self, cluster: Cluster, folder: Path, *options: Any) -> None:
        folder.mkdir(exist_ok=True)
        self.path = folder / "tables.safetensors"
        words = [
            PROGRAM, "follow", "--cluster", json.dumps(cluster.jobs), "--out", folder,
            "--every", "0.1", "--interval", "0.1", "--cut", "2", "--parts", "blocks", *options,
        ]  # fmt: skip
        self.process = subprocess.Popen(
            [str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        cluster.processes.all.append(self.process)
        self._lines: list[str] = []
        self._said = threading.Condition()
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._said:
                self._lines.append(line)
                self._said.notify_all()

    def said(self) -> str:
        with self._said:
            return "".join(self._lines[-200:])

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Asks each time that something was said, which is ten times a second."""
        deadline = time.monotonic() + PATIENCE_S
        while not is_so():
            with self._said:
                self._said.wait(deadline - time.monotonic())
            assert time.monotonic() < deadline, self.said()

    def wait_to_say(self, text: str) -> None:
        self.wait_until(lambda: any(text in line for line in self._lines))

    def table(self, name: str = "table") -> np.ndarray:
        return np.array(sr.TableFile(self.path, name).rows)

    def has(self, wanted: np.ndarray, name: str = "table") -> bool:
        return self.path.exists() and np.array_equal(self.table(name), wanted)

    def wait_for(self, wanted: np.ndarray, name: str = "table") -> None:
        self.wait_until(lambda: self.has(wanted, name))

    def end(self, how: int) -> int:
        self.process.send_signal(how)
        code = self.process.wait(PATIENCE_S)
        self._reading.join(PATIENCE_S)
        return code


def counted(cluster: Cluster) -> list[tuple[int, int, int]]:
    """What each ps counts: followers, cuts that these are behind, bytes that they have not taken;
    it has entries, and has cut off none."""
    done = subprocess.run(
        [PROGRAM, "top", "--once", "--json", "--interval", "0.05", "--timeout", str(PATIENCE_S),
         "--target", cluster.target],
        capture_output=True, text=True, timeout=PATIENCE_S, check=True,
    )  # fmt: skip
    out = []
    for task in json.loads(done.stdout)["tasks"]:
        figures = task["figures"]
        if "/job:ps" in task["task"]:
            assert figures["sidereal_change_log_bytes"] > 0
            assert figures["sidereal_followers_cut_off_total"] == 0
            names = "followers", "follower_cuts_behind", "follower_untaken_bytes"
            followers, cuts, untaken = (int(figures[f"sidereal_{name}"]) for name in names)
            out.append((followers, cuts, untaken))
    return out


def test_a_follower_is_what_was_trained(cluster: Cluster, tmp_path: Path) -> None:
    tables = Tables()
    with tf.Session(cluster.target) as session:
        # It is there before any variable is.
        early = Follower(cluster, tmp_path / "early")
        session.run(tf.global_variables_initializer())
        tables.push(session, 50)
        late = Follower(cluster, tmp_path / "late")
        tables.push(session, 50)
        wanted, other = tables.now(session), session.run(tables.other)
        for follower in (early, late):
            follower.wait_for(wanted)
            follower.wait_for(other, "other")
            assert sorted(sr.TableFile.tables(follower.path)) == ["other", "table"]
            follower.wait_to_say("/job:ps/replica:0/task:1: 0 cuts and ")
        # The servers know it too, with the next cut: of two followers and two lanes each.
        early.wait_until(lambda: counted(cluster) == [(4, 0, 0)] * 2)
        # What it is ended with is in its last file.
        tables.push(session, 5)
        wanted = tables.now(session)
        early.wait_for(wanted)
        assert early.end(signal.SIGTERM) == 0, early.said()
        assert early.has(wanted)
        # The others do not mind, nor does the cluster.
        assert late.end(signal.SIGKILL) == -signal.SIGKILL
        again = Follower(cluster, tmp_path / "late")
        tables.push(session, 5)
        again.wait_for(tables.now(session))


def test_a_ps_that_is_lost_and_comes_back(cluster: Cluster, tmp_path: Path) -> None:
    tables = Tables()
    saver = tf.train.Saver()
    with tf.Session(cluster.target) as session:
        session.run(tf.global_variables_initializer())
        follower = Follower(cluster, tmp_path / "files")
        tables.push(session, 20)
        wanted = tables.now(session)
        follower.wait_for(wanted)
        saved = saver.save(session, str(tmp_path / "m"))
        cluster.kill_ps(1)
        follower.wait_to_say("/job:ps/replica:0/task:1 at ")
    cluster.restart_ps(1)
    # It is there, and has nothing: the file stays.
    follower.wait_to_say("tables.safetensors is not written; UNAVAILABLE: ")
    assert follower.has(wanted)
    with tf.Session(cluster.target) as session:
        saver.restore(session, saved)
        tables.push(session, 20)
        follower.wait_for(tables.now(session))
    assert follower.end(signal.SIGTERM) == 0, follower.said()


def test_who_is_too_slow_comes_back_by_a_snapshot(cluster: Cluster, tmp_path: Path) -> None:
    with tf.device("/job:ps/task:0"):
        table = tf.get_variable(
            "table", [200_000, 16], initializer=tf.zeros_initializer(), use_resource=True
        )
        fill = table.assign(tf.random_uniform([200_000, 16])).op
    with tf.Session(cluster.target) as session:
        session.run(tf.global_variables_initializer())
        follower = Follower(cluster, tmp_path / "files")
        follower.wait_for(session.run(table))
        follower.process.send_signal(signal.SIGSTOP)
        for _ in range(40):
            # More than the log keeps, together.
            session.run(fill)
        follower.process.send_signal(signal.SIGCONT)
        follower.wait_for(session.run(table))
        follower.wait_to_say("OUT_OF_RANGE")
        session.run(fill)
        follower.wait_for(session.run(table))


def test_a_follower_that_is_killed_while_rows_change(cluster: Cluster, tmp_path: Path) -> None:
    tables = Tables()
    random = np.random.default_rng(23)
    with tf.Session(cluster.target) as session:
        session.run(tf.global_variables_initializer())
        stopping, many = threading.Event(), threading.Semaphore(0)

        def train() -> None:
            while not stopping.is_set():
                tables.push(session)
                many.release()

        training = threading.Thread(target=train)
        training.start()
        try:
            for _ in range(3):
                follower = Follower(cluster, tmp_path / "files", "--keep", "2")
                follower.wait_to_say("; version ")
                for _ in range(random.integers(1, 30)):
                    assert many.acquire(timeout=PATIENCE_S)
                assert follower.end(signal.SIGKILL) == -signal.SIGKILL
                # The file is a whole one, whenever that was.
                assert follower.table().shape == (ROWS, DIM)
        finally:
            stopping.set()
            training.join()
        Follower(cluster, tmp_path / "files", "--keep", "2").wait_for(tables.now(session))


def test_a_group_of_sessions(cluster: Cluster, tmp_path: Path) -> None:
    follower = Follower(cluster, tmp_path / "files", "--group", "one")
    follower.wait_to_say("has no sessions of group 'one' now")
    tables = Tables()
    config = tf.ConfigProto(state_group="one")
    with tf.Session(cluster.target, config=config) as session:
        session.run(tf.global_variables_initializer())
        tables.push(session, 5)
        wanted = tables.now(session)
        follower.wait_for(wanted)
    follower.wait_to_say("the sessions of the group have ended")
    assert follower.has(wanted)
    with tf.Session(cluster.target, config=config) as session:
        session.run(tf.global_variables_initializer())
        tables.push(session, 7)
        follower.wait_for(tables.now(session))


def test_rows_are_looked_up_over_grpc(cluster: Cluster, tmp_path: Path) -> None:
    tables = Tables()
    # Of which an answer has room for three rows.
    with tf.device("/job:ps/task:0"):
        wide = tf.get_variable("wide", [4, 300_000], initializer=tf.random_uniform_initializer())
    with tf.Session(cluster.target) as session:
        session.run(tf.global_variables_initializer())
        tables.push(session, 20)
        wanted = tables.now(session)
        follower = Follower(cluster, tmp_path / "files", "--listen", "127.0.0.1:0")
        follower.wait_to_say("rows are looked up at ")
        follower.wait_for(wanted)
        address = follower.said().split("\n")[0].rpartition(" ")[2]
        client = sr.LookupClient(address)
        assert client.tables == {"table": (ROWS, DIM), "other": (7, 3), "wide": (4, 300_000)}
        assert [one.task[-1] for one in client.tasks] == ["0", "1"]
        assert 0 <= client.behind < math.inf
        assert np.array_equal(client.lookup("table", np.arange(ROWS)), wanted)
        found = client.lookup("table", [[5, -1]])
        assert np.array_equal(found, [[wanted[5], np.zeros(DIM)]])
        assert client.lookup("table", []).shape == (0, DIM)
        with pytest.raises(sr.errors.NotFoundError, match="there are: 'other', 'table'"):
            client.lookup("tabel", [0])
        with pytest.raises(sr.errors.InvalidArgumentError, match=f"has {ROWS} rows"):
            client.lookup("table", [ROWS])
        many = np.random.default_rng(7).integers(-1, ROWS, 3 * 65536 + 1)
        found = client.lookup("table", many)
        assert np.array_equal(found[many >= 0], wanted[many[many >= 0]])
        assert not found[many < 0].any()
        assert np.array_equal(client.lookup("wide", [3, 1, 2, 0, 3]), wide.eval()[[3, 1, 2, 0, 3]])
        many[-1] = ROWS
        with pytest.raises(sr.errors.InvalidArgumentError, match=f"has {ROWS} rows"):
            client.lookup("table", many)
        with grpc.insecure_channel(address) as channel:
            call = channel.unary_unary("/sidereal.lookup.v1.Tables/LookUp")
            with pytest.raises(grpc.RpcError, match="65537 ids at once"):
                call(b"\x0a\x05table" + b"\x12\x81\x80\x04" + bytes(65537))
            with pytest.raises(grpc.RpcError, match="4 rows of 'wide' at once; 3, of 4000000"):
                call(b"\x0a\x04wide" + b"\x12\x04" + bytes(4))
        assert follower.end(signal.SIGTERM) == 0, follower.said()
        with pytest.raises(sr.errors.UnavailableError):
            client.lookup("table", [0])


def test_files_are_kept_and_rolled_back_to(cluster: Cluster, tmp_path: Path) -> None:
    tables = Tables()
    with tf.Session(cluster.target) as session:
        session.run(tf.global_variables_initializer())
        follower = Follower(cluster, tmp_path / "files", "--keep", "3")
        tables.push(session, 3)
        follower.wait_for(tables.now(session))
        follower.wait_to_say("; version 4")
        assert follower.end(signal.SIGTERM) == 0, follower.said()
        now = tables.now(session)
        assert follower.has(now)
        kept = [path.name for path in follower.path.parent.glob("tables-*.safetensors")]
        kept.sort(key=lambda name: int(name[len("tables-") : -len(".safetensors")]))
        assert len(kept) == 3
        before = sr.TableFile(follower.path.with_name(kept[1]), "table").rows
        assert follower.path.readlink() == Path(kept[2])
        rolled = subprocess.run(
            [PROGRAM, "follow", "--roll-back", follower.path.parent], capture_output=True, text=True
        )
        assert rolled.returncode == 0, rolled.stderr
        assert rolled.stdout.startswith(f"{follower.path} is version ")
        assert follower.has(before)
        assert follower.path.readlink() == Path(kept[1])
        # It stays so.
        again = Follower(cluster, tmp_path / "files", "--keep", "3")
        again.wait_to_say(", and it stays version ")
        assert again.path.readlink() == Path(kept[1])


def test_only_who_knows_the_secret_follows(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("7f0ac3d1e2b49658c0ffee00c0ffee00")
    with Cluster("star_server", "--secret-file", secret) as cluster:
        stranger = Follower(cluster, tmp_path / "stranger")
        friend = Follower(cluster, tmp_path / "friend", "--secret-file", secret)
        friend.wait_to_say("/job:ps/replica:0/task:0: 0 cuts and ")
        stranger.wait_to_say("/job:ps/replica:0/task:0: not here as a whole yet; UNAVAILABLE")
        assert "behind" not in stranger.said()


def test_what_cannot_be_followed(tmp_path: Path) -> None:
    def error_of(*words: Any) -> str:
        ended = subprocess.run(
            [str(word) for word in (PROGRAM, "follow", *words)], capture_output=True, text=True,
            timeout=PATIENCE_S,
        )  # fmt: skip
        assert ended.returncode != 0
        return ended.stderr

    jobs = '{"ps": ["127.0.0.1:1"]}'
    assert "no job 'chief'; it has: 'ps'" in error_of("--cluster", jobs, "--job", "chief")
    assert "--out" in error_of("--cluster", jobs, "--out", tmp_path / "nowhere")
    assert "--out DIR" in error_of("--cluster", jobs, "--keep", 3)
    assert "--roll-back DIR" in error_of("--cluster", jobs, "--to", 3)
    assert "no versions of tables" in error_of("--roll-back", tmp_path)
    assert "--secret-file" in error_of("--cluster", jobs, "--listen", "0.0.0.0:0")
    assert "--parts" in error_of("--cluster", jobs, "--parts", "whole")
