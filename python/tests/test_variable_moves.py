"""What moves variables between parameter servers, for whoever holds them: a job's commands, what
they make of a placement, and variables that go to another ps while sessions have them."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from followed import Cluster
from leftovers import tasks_of
from session_servers import PATIENCE_S, PROGRAM

import sidereal.v1 as tf
from sidereal import _native, errors
from sidereal.security import SecurityOptions
from sidereal.server import session_options

ROWS, GROUP = 1000, "moved"


def spec_of(cluster: Cluster) -> _native.ClusterSpec:
    return _native.ClusterSpec.from_json(json.dumps(cluster.jobs))


def security() -> Any:
    return SecurityOptions.from_environment()._to_native()


class Variables:
    """Variables of a session that shares them with others of its group, by the ps that each is
    on."""

    def __init__(self, cluster: Cluster, tasks: dict[str, int]) -> None:
        graph = tf.Graph()
        with graph.as_default():
            self._all = {}
            for name, task in tasks.items():
                with tf.device(f"/job:ps/task:{task}"):
                    self._all[name] = tf.get_variable(
                        name, [ROWS, 2], initializer=tf.random_uniform_initializer(seed=3)
                    )
            self._initialize = tf.global_variables_initializer()
            ones = tf.ones([ROWS, 2])
            self._add = {name: one.assign_add(ones) for name, one in self._all.items()}
        self.session = tf.Session(
            cluster.target, graph=graph, config=tf.ConfigProto(state_group=GROUP)
        )
        # From here on the group is on all these tasks.
        self.session.list_devices()

    def initialize(self) -> None:
        self.session.run(self._initialize)

    def add(self, name: str) -> None:
        self.session.run(self._add[name])

    def values(self) -> dict[str, np.ndarray]:
        found: dict[str, np.ndarray] = self.session.run(self._all)
        return found


def wait_until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end


def are_in_sync(target: str) -> bool:
    """Whether pushes to each ps wait for its standby, and that has what it had."""
    figures = [task.get("figures", {}) for task in tasks_of(target) if "/job:ps" in task["task"]]
    return all(each.get("sidereal_standbys", 0) >= 2 for each in figures)


@contextmanager
def moving(cluster: Cluster, *routes: tuple[str, int, int]) -> Iterator[_native.VariableMoves]:
    """Until all of them are there, but for what changes."""
    moves = _native.VariableMoves.begin(spec_of(cluster), GROUP, list(routes), security())
    try:
        wait_until(lambda: moves.progress()[1])
        yield moves
    finally:
        moves.close()


@pytest.mark.parametrize("protocol", ["grpc", "star_server"])
def test_variables_go_to_several_tasks_with_what_changed_meanwhile(protocol: str) -> None:
    with Cluster(protocol, ps=3) as cluster:
        before = Variables(cluster, {"a": 0, "b": 0, "c": 1})
        before.initialize()
        with moving(cluster, ("a", 0, 1), ("b", 0, 2)) as moves:
            assert moves.progress()[0] == 2 * ROWS * 2 * 4
            with pytest.raises(errors.FailedPreconditionError):
                moves.commit()
            before.add("b")
            wanted = before.values()
            after = Variables(cluster, {"a": 1, "b": 2, "c": 1})
            moves.take(PATIENCE_S)
            moves.commit()
        found = after.values()
        for name, value in wanted.items():
            assert (found[name] == value).all(), name
        after.add("a")
        assert (after.values()["a"] == wanted["a"] + 1).all()
        before.session.close()
        after.session.close()


def test_what_is_given_up_stays_where_it_was() -> None:
    with Cluster("star_server", ps=3) as cluster:
        before = Variables(cluster, {"a": 0, "b": 0})
        before.initialize()
        with moving(cluster, ("a", 0, 1), ("b", 0, 2)) as moves:
            cluster.kill_ps(2)
            with pytest.raises(errors.Error, match="task:2"):
                moves.take(PATIENCE_S)
            # And says it again.
            with pytest.raises(errors.Error, match="task:2"):
                moves.progress()
        with pytest.raises(errors.FailedPreconditionError, match="closed"):
            moves.progress()
        before.add("a")
        with moving(cluster, ("a", 0, 1)) as moves:
            moves.take(PATIENCE_S)
            moves.commit()
        before.session.close()


def test_what_a_task_has_of_a_move_when_it_is_killed_is_in_no_ones_way() -> None:
    with Cluster("star_server", ps=3, replicas=2) as cluster:
        before = Variables(cluster, {"a": 1, "b": 2})
        before.initialize()
        wait_until(lambda: are_in_sync(cluster.target))
        with moving(cluster, ("a", 1, 2)) as moves:
            moves.take(PATIENCE_S)
            cluster.kill_ps(2)
            with pytest.raises(errors.Error, match="task:2"):
                moves.commit()
        # From its standby it has what it had taken, which the program knows nothing of.
        cluster.start_ps(2)
        again = Variables(cluster, {"a": 1, "b": 2})
        again.add("a")
        wanted = again.values()
        with moving(cluster, ("a", 1, 2)) as moves:
            moves.take(PATIENCE_S)
            moves.commit()
        after = Variables(cluster, {"a": 2, "b": 2})
        found = after.values()
        assert all((found[name] == value).all() for name, value in wanted.items())
        # It is in use there now.
        with moving(cluster, ("a", 1, 2)) as moves:
            with pytest.raises(errors.AlreadyExistsError, match="'a'"):
                moves.take(PATIENCE_S)
        assert all((found[name] == value).all() for name, value in after.values().items())
        for one in (before, again, after):
            one.session.close()


def test_moves_that_cannot_be_are_refused() -> None:
    with Cluster("star_server", ps=2) as cluster:
        for routes, text in (
            ([], "no variable"),
            ([("a", 1, 1)], "where it is"),
            ([("a", 0, 1), ("a", 1, 0)], "twice"),
        ):
            with pytest.raises(errors.InvalidArgumentError, match=text):
                _native.VariableMoves.begin(spec_of(cluster), GROUP, routes, security())
        with pytest.raises(errors.NotFoundError, match="No task with index 7 in job 'ps'"):
            _native.VariableMoves.begin(spec_of(cluster), GROUP, [("a", 0, 7)], security())
        with moving_of_nothing(cluster) as moves:
            with pytest.raises(errors.NotFoundError, match="'a'"):
                moves.take(PATIENCE_S)


@contextmanager
def moving_of_nothing(cluster: Cluster) -> Iterator[_native.VariableMoves]:
    """Of a variable that is not there, in a group that is."""
    one = Variables(cluster, {"b": 0})
    one.initialize()
    with moving(cluster, ("a", 0, 1)) as moves:
        yield moves
    one.session.close()


def command(cluster: Cluster, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(PROGRAM), *words, "--target", cluster.target],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def heard(job: _native.JobLease) -> tuple[str, int, str]:
    found: list[tuple[str, int, str]] = []

    def is_there() -> bool:
        one = job.next_command()
        if one is not None:
            found.append(one)
        return bool(found)

    wait_until(is_there)
    return found[0]


def test_a_job_hears_of_commands_and_says_how_they_ended() -> None:
    with Cluster("star_server", ps=2) as cluster:
        config = session_options(tf.ConfigProto())
        job = _native.JobLease.create(spec_of(cluster), "ads", "alice", config, security())
        with pytest.raises(errors.AlreadyExistsError, match="alice"):
            _native.JobLease.create(spec_of(cluster), "ads", "bob", config, security())
        assert job.name == "ads"
        job.check()
        assert job.next_command() is None
        given = command(cluster, "scale", "--ps", "2")
        assert heard(job) == ("scale", 2, "scale --ps 2")
        assert job.next_command() is None
        assert not job.is_cancelled()
        job.tell(1, 2)
        job.end("two tables are on 2 ps")
        out, _ = given.communicate(timeout=PATIENCE_S)
        assert given.returncode == 0
        assert "two tables are on 2 ps" in out
        for error in (errors.ResourceExhaustedError("no memory"), (8, "no memory")):
            given = command(cluster, "drain", "ps:1")
            assert heard(job) == ("drain", 1, "drain ps:1")
            job.fail(error)
            _, said = given.communicate(timeout=PATIENCE_S)
            assert given.returncode != 0
            assert "no memory" in said
        given = command(cluster, "rebalance")
        assert heard(job)[0] == "rebalance"
        job.fail(KeyError("a"))
        _, said = given.communicate(timeout=PATIENCE_S)
        assert "KeyError: 'a'" in said
        # Nothing is under way.
        job.end("")
        job.close()
        job.close()
        with pytest.raises(errors.FailedPreconditionError, match="closed"):
            job.check()


def test_a_lease_that_is_lost_says_why() -> None:
    with Cluster("star_server", ps=2) as cluster:
        config = session_options(tf.ConfigProto())
        job = _native.JobLease.create(spec_of(cluster), "ads", "alice", config, security())
        cluster.kill_ps(0)

        def is_lost() -> bool:
            try:
                job.check()
            except (errors.UnavailableError, errors.AbortedError) as error:
                assert "'ads'" in str(error)
                return True
            return False

        wait_until(is_lost)
        job.close()


def test_a_command_moves_no_more_than_it_must() -> None:
    parts = [(f"t/part_{k}", 100, k % 2) for k in range(6)]
    others = [("bias", 8, 0), ("kernel", 40, 1)]
    used, routes = _native.spread("scale", 3, 3, [0, 1], [*parts, *others], [])
    assert used == [0, 1, 2]
    moved = {name: (origin, to) for name, origin, to in routes}
    assert {to for _, to in moved.values()} == {2}
    assert sorted(origin for name, (origin, _) in moved.items() if "part_" in name) == [0, 1]
    used, routes = _native.spread("drain", 1, 3, [0, 1], [*parts, *others], [])
    assert used == [0]
    assert sorted(routes) == [("kernel", 1, 0), *((f"t/part_{k}", 1, 0) for k in (1, 3, 5))]
    used, routes = _native.spread("rebalance", 0, 3, [0, 1], parts, [3.0, 1.0])
    assert (used, {(origin, to) for _, origin, to in routes}) == ([0, 1], {(0, 1)})
    assert _native.spread("rebalance", 0, 3, [0, 1], parts, []) == ([0, 1], [])


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (("scale", 0, 2, [0], [], []), errors.InvalidArgumentError, "at least"),
        (("scale", 3, 2, [0], [], []), errors.InvalidArgumentError, "2 parameter servers"),
        (("drain", 1, 2, [0], [], []), errors.FailedPreconditionError, "may be stopped"),
        (("drain", 0, 2, [0, 1], [], []), errors.FailedPreconditionError, "leases"),
        (("drain", 0, 1, [0], [], []), errors.FailedPreconditionError, "scale to more"),
        (("move", 0, 1, [0], [], []), errors.InvalidArgumentError, "'move'"),
        (("scale", 1, 2, [], [], []), errors.InvalidArgumentError, "0 to 1"),
        (("scale", 1, 2, [2], [], []), errors.InvalidArgumentError, "0 to 1"),
        (("scale", 1, 1 << 30, [0], [], []), errors.InvalidArgumentError, "65536"),
        (("scale", 1, 2, [0], [("a", 1, 2)], []), errors.InvalidArgumentError, "'a'"),
        (("scale", 1, 2, [0], [("a", -1, 0)], []), errors.InvalidArgumentError, "'a'"),
        (("scale", 1, 2, [0], [("a", 1, 0)] * 2, []), errors.InvalidArgumentError, "'a'"),
    ],
)
def test_what_a_command_cannot_do_is_said(
    arguments: tuple[Any, ...], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        _native.spread(*arguments)
