"""Traces of what runs in the process."""

from __future__ import annotations

import json

import numpy as np
import pytest

import sidereal as sr
import sidereal.v1 as v1
from sidereal.keras import layers


def events_of(path):
    return json.loads(path.read_text())["traceEvents"]


def ops_of(events):
    return [event for event in events if event.get("cat") == "op"]


def assert_nested(events):
    """Events of one track are in one another or apart."""
    tracks = {}
    for event in events:
        if event["ph"] == "X":
            tracks.setdefault((event["pid"], event["tid"]), []).append(
                (event["ts"], event["ts"] + event["dur"])
            )
    for spans in tracks.values():
        spans.sort(key=lambda span: (span[0], -span[1]))
        open_spans = []
        for begin, end in spans:
            while open_spans and open_spans[-1] <= begin:
                open_spans.pop()
            assert not open_spans or end <= open_spans[-1] + 1e-3
            open_spans.append(end)


def test_every_op_that_runs_at_once_is_in_the_trace_with_its_bytes(tmp_path):
    x = sr.constant(np.ones((2, 3), np.float32))
    w = sr.constant(np.ones((3, 5), np.float32))
    path = tmp_path / "trace.json"
    with sr.profiler.trace(path):
        sr.nn.softmax(sr.matmul(x, w))
    sr.matmul(x, w)
    events = ops_of(events_of(path))
    assert [event["name"] for event in events] == ["MatMul", "Softmax"]
    args = events[0]["args"]
    assert args["inputs"] == "float32[2,3], float32[3,5]"
    assert args["input_bytes"] == 24 + 60
    assert args["outputs"] == "float32[2,5]"
    assert args["output_bytes"] == 40


def test_a_function_is_an_event_around_those_of_its_instructions(tmp_path):
    @sr.function
    def affine(x, w):
        return sr.matmul(x, w) + 1.0

    x, w = sr.constant(np.ones((4, 4), np.float32)), sr.constant(np.ones((4, 4), np.float32))
    affine(x, w)
    path = tmp_path / "trace.json"
    with sr.profiler.trace(path):
        for _ in range(3):
            affine(x, w)
    events = events_of(path)
    steps = [event for event in events if event.get("cat") == "step"]
    assert [event["name"] for event in steps] == ["affine"] * 3
    text = affine.get_concrete_function(x, w).program_text()
    instructions = sum(" = " in line for line in text.splitlines())
    assert len(ops_of(events)) == 3 * instructions
    assert_nested(events)


def test_ops_of_a_loop_are_inside_of_it(tmp_path):
    @sr.function
    def count(n):
        return sr.while_loop(lambda i: i < n, lambda i: [i + 1], [sr.constant(0)])

    count(sr.constant(2))
    with sr.profiler.trace(tmp_path):
        count(sr.constant(5))
    events = events_of(tmp_path / "trace.json")
    assert [event["name"] for event in events if event.get("cat") == "control"] == ["While"]
    assert sum(event["name"] == "Less" for event in events) == 6
    assert_nested(events)


def test_parts_of_a_program_can_be_marked(tmp_path):
    path = tmp_path / "trace.json"
    with sr.profiler.experimental.Profile(path):
        with sr.profiler.Trace("epoch", step_num=7, data=[1]):
            sr.constant(1.0) + 1.0
    regions = [event for event in events_of(path) if event.get("cat") == "region"]
    assert regions[0]["name"] == "epoch"
    assert regions[0]["args"] == {"step_num": 7, "data": "[1]"}
    assert_nested(events_of(path))
    with sr.profiler.Trace("outside"):
        pass


def test_a_trace_that_is_full_says_what_is_missing(tmp_path):
    path = tmp_path / "trace.json"
    sr.profiler.start(path, memory_bytes=2000)
    for _ in range(50):
        sr.constant(1.0) + 1.0
    with pytest.warns(UserWarning, match="events found no room"):
        sr.profiler.stop()
    assert 0 < len(ops_of(events_of(path))) < 50


def test_starting_twice_and_stopping_without_a_start_are_errors(tmp_path):
    with pytest.raises(sr.errors.UnavailableError, match="no trace is on"):
        sr.profiler.stop()
    sr.profiler.start(tmp_path)
    with pytest.raises(sr.errors.AlreadyExistsError, match="stop\\(\\) it first"):
        sr.profiler.start(tmp_path)
    sr.profiler.stop(save=False)
    assert not list(tmp_path.iterdir())
    with pytest.raises(sr.errors.NotFoundError, match="is no folder"):
        sr.profiler.start(tmp_path / "nothing" / "trace.json")


def test_a_session_tells_what_ran(tmp_path):
    with v1.Graph().as_default():
        x = v1.placeholder(sr.float32, [None, 3], name="x")
        y = v1.reduce_sum(v1.tanh(x, name="squashed") * 2.0)
        metadata = v1.RunMetadata()
        options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
        with v1.Session() as session:
            session.run(y, {x: np.ones((2, 3), np.float32)}, options, metadata)
            untouched = v1.RunMetadata()
            session.run(y, {x: np.ones((2, 3), np.float32)}, run_metadata=untouched)
    assert untouched.step_stats.dev_stats == []
    nodes = metadata.step_stats.dev_stats[0].node_stats
    assert any("squashed" in node.node_name or node.op.startswith("Fused") for node in nodes)
    assert all(node.op_end_rel_micros >= 0 for node in nodes)
    text = v1.timeline.Timeline(metadata.step_stats).generate_chrome_trace_format()
    assert len(ops_of(json.loads(text)["traceEvents"])) == len(nodes)


def test_a_fit_on_a_cluster_can_be_traced(tmp_path):
    model = sr.Model(seed=1)
    rows = layers.Embedding(50, 4)(model.input("ids", sr.int64, (3,)))
    model.compile(layers.FM()(rows), optimizer=sr.optimizers.Adagrad(0.05))
    data = {
        "ids": np.arange(600).reshape(200, 3) % 50,
        "label": (np.arange(200) % 2).astype(np.float32),
    }
    path = tmp_path / "trace.json"
    with sr.LocalCluster(in_process=True) as cluster:
        model.fit(
            data, cluster=cluster, batch_size=20, verbose=False, trace=path, trace_steps=(2, 4)
        )
    events = events_of(path)
    names = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {"/job:worker/replica:0/task:0", "/job:ps/replica:0/task:0"}
    # Steps of a session count from 1.
    assert {event["args"]["step"] for event in ops_of(events)} == {3, 4}
    assert {"send", "wait", "call"} <= {event.get("cat") for event in events}
    assert_nested(events)
