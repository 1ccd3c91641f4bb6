"""Programs that only an enemy would send: each fails, and the server goes on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from session_servers import Processes, free_ports

import sidereal.v1 as tf
from sidereal import _dispatch, errors
from sidereal.launch import PROTOCOLS

SHARD = 1 << 40  # What lies above it in a position names a part.
FLOATS = np.zeros([2, 4], np.float32)
ROWS = np.zeros([1, 4], np.float32)
IDS = np.array([1, 2], np.int64)


def outside(*index: int) -> np.ndarray:
    return np.array(index, np.int64)


PLACES = np.array([0, 1], np.int32)
#: Op, inputs, attributes.
PROGRAMS: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("SumParts", [FLOATS, outside(SHARD, 2 * SHARD), PLACES, IDS], {"dim": 4}),
    ("SumParts", [FLOATS, outside(0, 1 << 39), PLACES, IDS], {"dim": 4}),
    ("SumParts", [FLOATS, outside(0, 1), np.array([0, 1 << 30], np.int32), IDS], {"dim": 4}),
    ("GatherParts", [IDS, outside(SHARD, 2 * SHARD), PLACES, ROWS], {"dim": 4}),
    ("GatherParts", [IDS, outside(-1, -SHARD), PLACES, ROWS], {"dim": 4}),
    (
        "GatherPartsConcat",
        [IDS, outside(0, 5 * SHARD), PLACES, ROWS],
        {"shards": 1, "counts": [2], "axis": 0, "shape": [8]},
    ),
    ("PadAxis", [FLOATS], {"axis": 0, "before": 1 << 31, "after": 0}),
    (
        "DecodeRaw",
        [np.array(["a"] * 64, object)],
        {"out_type": tf.uint8, "fixed_length": 1 << 31},
    ),
]


@pytest.fixture(params=PROTOCOLS)
def session(request: pytest.FixtureRequest) -> Iterator[tf.Session]:
    processes = Processes()
    cluster = {"worker": [f"localhost:{port}" for port in free_ports(2)]}
    try:
        for task in range(2):
            processes.serve(cluster, "worker", task, "--protocol", request.param)
        with tf.Graph().as_default() as graph:
            config = tf.ConfigProto(operation_timeout_in_ms=60_000)
            with tf.Session(f"grpc://{cluster['worker'][0]}", graph, config) as made:
                yield made
        assert all(process.poll() is None for process in processes.all)
    finally:
        processes.end()


@pytest.mark.parametrize("session", ["grpc", "star_server"], indirect=True)
@pytest.mark.parametrize("op, inputs, attrs", PROGRAMS)
def test_a_program_that_names_what_is_not_there_fails(
    session: tf.Session, op: str, inputs: list[Any], attrs: dict[str, Any]
) -> None:
    with tf.device("/job:worker/task:1"):
        placeholders = [
            tf.placeholder(tf.string if x.dtype == object else x.dtype, [None] * x.ndim)
            for x in inputs
        ]
        made = _dispatch.apply(op, tuple(placeholders), attrs)
        good = tf.constant(20) + 1
    feed = dict(zip(placeholders, inputs))
    with pytest.raises((errors.InvalidArgumentError, errors.ResourceExhaustedError)):
        session.run(made, feed)
    assert session.run(good) == 21


def test_errors_with_any_bytes_arrive(session: tf.Session) -> None:
    with tf.device("/job:worker/task:1"):
        text = tf.placeholder(tf.string, [])
        number = tf.strings.to_number(text)
    with pytest.raises(errors.InvalidArgumentError, match=r"\\xff"):
        session.run(number, {text: b"\xff\xfe1"})
    assert session.run(number, {text: b"1.5"}) == 1.5
