"""Models and random steps over every protocol, number of ps and of lanes, fused and not, give what
one process gives, to the last bit; and what their steps cost."""

from __future__ import annotations

import functools
import itertools
import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from protocol_models import CTR_MODELS, MODELS, BuiltModel, build
from random_steps import RandomSteps
from session_servers import PROGRAM, Processes, addresses

import sidereal as sr
import sidereal.v1 as tf
from sidereal.launch import PROTOCOLS

EVERYTHING = bool(os.environ.get("CI"))
#: Random graphs for each way to run them: the same in each run, and others by --random-seed.
SEEDS = 21 if EVERYTHING else 5

Values = dict[str, np.ndarray]


class Way(NamedTuple):
    """How steps travel."""

    protocol: str
    ps: int
    lanes: int = 1
    tensor_fuse: bool = False

    def __str__(self) -> str:
        fused = "-fused" if self.tensor_fuse else ""
        return f"{self.protocol}{fused}-{self.ps}ps-{self.lanes}lanes"


def ways() -> list[Way]:
    """All of them, or those of the everyday run."""
    sizes = [(1, 1), (2, 3), (3, 4)]
    if EVERYTHING:
        sizes = list(itertools.product((1, 2, 3), (1, 2, 3, 4)))
    out = [
        Way("grpc", ps, 1, fuse) for ps in sorted({ps for ps, _ in sizes}) for fuse in (False, True)
    ]
    out += [Way("grpc++", ps, lanes, fuse) for ps, lanes in sizes for fuse in (False, True)]
    for protocol in ("star_server", "star_server_lite"):
        out += [Way(protocol, ps, lanes) for ps, lanes in sizes]
    return out


def cluster_of(ps: int) -> dict[str, list[str]]:
    hosts = addresses(ps + 1)
    return {"ps": hosts[:ps], "worker": hosts[ps:]}


@contextmanager
def running(way: Way) -> Iterator[list[str]]:
    """Servers in this process; their targets, the worker's first."""
    cluster = cluster_of(way.ps)
    lanes = None if way.protocol == "grpc" else way.lanes
    tasks = [("worker", 0), *(("ps", i) for i in range(way.ps))]
    servers = [sr.train.Server(cluster, job, i, way.protocol, lanes=lanes) for job, i in tasks]
    try:
        yield [server.target for server in servers]
    finally:
        for server in servers:
            server.stop()


def run(graph: BuiltModel | RandomSteps, target: str = "", tensor_fuse: bool = False) -> Values:
    config = tf.ConfigProto(tensor_fuse=tensor_fuse, operation_timeout_in_ms=60_000)
    with tf.Session(target, graph.graph, config) as session:
        return graph.results(session)


@functools.cache
def model(name: str, ps: int) -> tuple[BuiltModel, Values]:
    """A model, and what it gives in one process. The CTR models have no step counter."""
    made = build(name, ps, global_step=name not in CTR_MODELS)
    return made, run(made)


@functools.cache
def random_steps(seed: int, ps: int) -> tuple[RandomSteps, Values]:
    made = RandomSteps(seed, ps)
    return made, run(made)


def expect_same(got: Values, want: Values, what: str) -> None:
    """The same bits."""
    assert got.keys() == want.keys(), what
    other = [
        f"{name}: {got[name].ravel()[:4]} and not {want[name].ravel()[:4]}"
        for name in want
        if got[name].dtype != want[name].dtype
        or got[name].shape != want[name].shape
        or got[name].tobytes() != want[name].tobytes()
    ]
    assert not other, f"{what}: {len(other)} of {len(want)} differ: {'; '.join(other[:5])}"


# --- The same bits.


@pytest.mark.parametrize("name", MODELS)
def test_a_model_learns_the_same_wherever_its_variables_were_placed(name: str) -> None:
    made, want = model(name, 1)
    assert len(set(want["loss"].tolist())) == len(want["loss"])
    assert np.isfinite(want["loss"]).all()
    unplaced = build(name, 0, global_step=name not in CTR_MODELS)
    expect_same(run(unplaced), want, "without devices")
    initial = {variable.op.name for variable in made.variables.values() if variable.trainable}
    assert initial <= want.keys()


@pytest.mark.parametrize("way", ways(), ids=str)
def test_models_learn_the_same_as_in_one_process(way: Way) -> None:
    with running(way) as targets:
        for name in MODELS:
            made, want = model(name, way.ps)
            expect_same(run(made, targets[0], way.tensor_fuse), want, f"{name}, {way}")


@pytest.mark.parametrize("way", ways(), ids=str)
def test_random_steps_do_the_same_as_in_one_process(way: Way, pytestconfig: pytest.Config) -> None:
    first = 1000 * pytestconfig.getoption("--random-seed")
    with running(way) as targets:
        for seed in range(first, first + SEEDS):
            made, want = random_steps(seed, way.ps)
            got = run(made, targets[seed % len(targets)], way.tensor_fuse)  # Any may be the master.
            expect_same(got, want, f"seed {seed}, {way}")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_random_numbers_with_seeds_are_the_same_in_every_session(protocol: str) -> None:
    def more(x: Any) -> Any:
        return x * 0.5 + tf.random.uniform([2], seed=7)

    with tf.Graph().as_default() as graph:
        tf.random.set_seed(5)
        values = []
        for device in ("/job:ps/task:0", "/job:worker/task:0"):
            with tf.device(device):
                values += [tf.random.normal([2], seed=3), tf.random.uniform([2])]
                values += tf.while_loop(
                    lambda i, _: i < 3, lambda i, x: (i + 1, more(x)), [tf.constant(0), values[0]]
                )
                values.append(tf.scan(lambda x, _: more(x), tf.zeros([3]), values[1]))
        tf.random.set_seed(None)

    def drawn(target: str) -> list[Any]:
        with tf.Session(target, graph) as session:
            return [[value.tolist() for value in session.run(values)] for _ in range(3)]

    want = drawn("")
    assert want[0] != want[1]
    with running(Way(protocol, 1)) as targets:
        for target in (*targets, targets[0]):
            assert drawn(target) == want


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("dtype", [tf.int32, tf.int64], ids=["int32", "int64"])
def test_an_id_that_is_no_row_fails_the_step_and_changes_nothing(protocol: str, dtype: Any) -> None:
    with tf.Graph().as_default() as graph:
        ids = tf.placeholder(dtype, [None])
        with tf.device("/job:ps/task:0"):
            table = tf.get_variable("t", initializer=np.ones((500, 4), "f"))
        with tf.device("/job:worker/task:0"):
            rows = tf.nn.embedding_lookup(table, ids)
            loss = tf.reduce_sum(tf.square(rows))
        train = tf.train.GradientDescentOptimizer(0.25).minimize(loss)
        start = tf.global_variables_initializer()
    with running(Way(protocol, 1)) as targets, tf.Session(targets[0], graph) as session:
        session.run(start)
        for wrong in ([3, -1], [500, 3, 3]):
            with pytest.raises(tf.errors.InvalidArgumentError, match="'t'.* 500 rows"):
                session.run([loss, train], {ids: wrong})
        assert session.run(table).tolist() == np.ones((500, 4)).tolist()
        assert session.run([loss, train], {ids: [7, 7, 7]})[0] == 12
        assert session.run(rows, {ids: [7, 8]}).tolist() == [[-0.5] * 4, [1] * 4]
        none = np.zeros(0, dtype)
        assert session.run(rows, {ids: none}).shape == (0, 4)
        session.run(train, {ids: none})


@pytest.mark.parametrize("protocol", ["grpc", "star_server"])
def test_denormal_numbers_are_the_same_everywhere(protocol: str) -> None:
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [2])
        values = []
        for device in ("/job:ps/task:0", "/job:worker/task:0"):
            with tf.device(device):
                values += [x * 0.5, x * 2.0, tf.constant([3e-38]) * 0.125]
    feed = {x: np.array([1.5e-38, 1e-39], "f")}
    with tf.Session(graph=graph) as session:
        want = session.run(values, feed)
    half = feed[x] * np.float32(0.5)
    assert (half > 0).all(), "a session left its mark on the thread that called it"
    with running(Way(protocol, 1)) as targets, tf.Session(targets[0], graph) as session:
        got = session.run(values, feed)
    assert [value.tolist() for value in got] == [value.tolist() for value in want]


@pytest.mark.parametrize("protocol", ["grpc++", "star_server", "star_server_lite"])
def test_tasks_in_processes_of_their_own_do_the_same(protocol: str) -> None:
    cluster, processes = cluster_of(2), Processes()
    try:
        for job, task in (("ps", 0), ("ps", 1), ("worker", 0)):
            processes.serve(cluster, job, task, "--protocol", protocol, "--lanes", 2)
        for name in MODELS:
            made, want = model(name, 2)
            got = run(made, f"grpc://{cluster['worker'][0]}")
            expect_same(got, want, f"{name}, {protocol}")
    finally:
        processes.end()


# --- What steps cost.

_COST = re.compile(r"(?P<calls>\d+) calls? in (?P<rounds>\d+) rounds?: (?P<messages>\d+) messages")
_WAYS = (Way("grpc", 2), Way("grpc", 2, tensor_fuse=True), Way("star_server", 2),
         Way("star_server_lite", 2))  # fmt: skip


class Cost(NamedTuple):
    """What `sidereal graph dump --partition` says of a step."""

    rounds: int
    messages: int
    #: Most calls to one place; those in bodies count once.
    calls_of_a_ps: int


def cost_of(made: BuiltModel, way: Way, folder: Path) -> Cost:
    graph, cluster = folder / "graph.txt", folder / "cluster.json"
    graph.write_text(made.graph.native.text())
    cluster.write_text(json.dumps(
        {"ps": [f"ps{i}:1" for i in range(way.ps)], "worker": ["worker0:1"]}))  # fmt: skip
    words = [PROGRAM, "graph", "dump", graph, "--partition", way.protocol, "--cluster", cluster,
             "--master", "/job:worker/task:0", "--fetch", made.loss.name, "--target",
             made.train.name]  # fmt: skip
    words += ["--tensor-fuse"] if way.tensor_fuse else []
    text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    line, *parts = text.split("\n/job:ps")
    total = _COST.search(line)
    assert total is not None, text
    calls = [len(re.findall(r"^  round \d+, call", part, re.MULTILINE)) for part in parts]
    return Cost(int(total["rounds"]), int(total["messages"]), max(calls))


@pytest.mark.parametrize("name", MODELS)
def test_steps_of_click_models_are_a_pull_and_a_push(
    name: str, tmp_path: Path, record_property: Any
) -> None:
    made = build(name, 2)
    costs = {way: cost_of(made, way, tmp_path) for way in _WAYS}
    for way, cost in costs.items():
        what = f"{way.protocol}{' fused' if way.tensor_fuse else ''}"
        said = f"{cost.rounds} rounds, {cost.messages} messages"
        if way.protocol.startswith("star"):
            said += f", {cost.calls_of_a_ps} calls of a ps"
        record_property(f"{name}, {what}", said)
        print(f"{name:8}{what:18}{said}")
    star, lite = costs[_WAYS[2]], costs[_WAYS[3]]
    assert costs[_WAYS[1]].messages <= costs[_WAYS[0]].messages
    assert lite.rounds <= star.rounds <= costs[_WAYS[0]].rounds
    if name in CTR_MODELS:
        assert star.calls_of_a_ps == lite.calls_of_a_ps == star.rounds == 2


def test_a_step_counter_costs_a_round_where_there_are_several_ps(tmp_path: Path) -> None:
    """It is added to when all updates are done."""
    for ps, rounds in ((1, 2), (2, 3)):
        cost = cost_of(build("LR", ps, global_step=True), Way("star_server", ps), tmp_path)
        assert (cost.rounds, cost.calls_of_a_ps) == (rounds, rounds)
