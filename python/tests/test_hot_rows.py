"""Rows that most steps use are found on the parameter servers that have them, and told by their
numbers in the table."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from event_files import accumulated, values_of
from strategies import cluster_fixture
from test_fit_without_workers import ROWS, counting_model
from test_scaling import Commands, command

import sidereal as sr
import sidereal.v1 as tf
from sidereal import errors

Clusters = Callable[..., sr.LocalCluster]

TABLE = "counter/embeddings"
HOT, WARM = 1234, 77
#: Of a table on 2 ps of 2 lanes.
PARTS = 16

cluster = cluster_fixture(1, 1, ["grpc"])


def skewed(rows: int = 8000) -> dict[str, np.ndarray]:
    """Half of the rows have one id, a few another one; the rest have any."""
    rng = np.random.default_rng(3)
    drawn = rng.random(rows)
    ids = np.where(drawn < 0.5, HOT, np.where(drawn < 0.54, WARM, rng.integers(0, ROWS, rows)))
    return {"row": ids[:, None], "one": np.zeros((rows, 1), np.float32)}


def check(found: list[sr.HotRow]) -> None:
    """Of steps of 16 rows, in each of which an id is pulled once."""
    assert [row.row for row in found[:2]] == [HOT, WARM], found
    hot, warm = found[:2]
    assert (hot.table, hot.part, hot.row_of_part) == (TABLE, HOT % PARTS, HOT // PARTS)
    assert hot.pulls is not None and hot.pushes is not None and warm.pulls is not None
    # About 9 ids in a step, of which the one always is one, and the other in about half.
    assert 0.07 < hot.pulls < 0.16, found
    assert 0.07 < hot.pushes < 0.16, found
    assert 0.02 < warm.pulls < 0.09, found
    assert hot.pulls_error < 0.02
    assert all((row.pulls or 0) < 0.02 for row in found[2:]), found


@pytest.mark.parametrize("protocol", ["grpc", "star_server", "star_server_lite"])
def test_the_hot_row_is_told_by_its_number(clusters: Clusters, protocol: str) -> None:
    cluster = clusters(ps=2, workers=2, ps_lanes=2, protocol=protocol)
    model = counting_model()
    model.fit(skewed(), cluster=cluster, batch_size=16, verbose=False)
    found = cluster.hot_rows()
    check(found)
    task = json.loads(command("top", "--once", "--json", "--interval", "0.1").stdout)
    [table] = [one for one in task["hot_rows"] if one["table"] == TABLE]
    assert [row["row"] for row in table["rows"][:2]] == [HOT, WARM]
    assert table["rows"][0]["task"] == found[0].task
    figures = next(one["figures"] for one in task["tasks"] if one["task"] == found[0].task)
    share = figures[f'sidereal_hottest_row_ratio{{table="{TABLE}",call="pull"}}']
    # Of what its own server has of the table, which has half of the others.
    assert found[0].pulls < share < 0.4
    ten = figures[f'sidereal_hottest_ten_rows_ratio{{table="{TABLE}",call="pull"}}']
    assert share <= ten <= 1
    lines = command("top", "--once", "--rows", "--interval", "0.1").stdout.splitlines()
    assert lines[0].split()[:2] == ["table", "row"]
    assert lines[2].split()[:2] == [TABLE, str(HOT)]
    assert command("top", "--once", "--lanes", "--interval", "0.1").stdout.count("/job:ps/") == 4
    with pytest.raises(errors.InvalidArgumentError, match="modulo"):
        cluster.hot_rows(parts="halves")


def test_no_row_is_told_to_be_hot_where_none_is(clusters: Clusters) -> None:
    cluster = clusters(ps=2, workers=1, ps_lanes=2)
    data = {"row": np.arange(ROWS)[:, None], "one": np.zeros((ROWS, 1), np.float32)}
    counting_model().fit(data, cluster=cluster, batch_size=16, epochs=20, verbose=False)
    assert all(max(row.pulls or 0, row.pushes or 0) < 0.005 for row in cluster.hot_rows(100))


def test_it_is_told_by_its_number_after_its_part_has_moved(clusters: Clusters) -> None:
    cluster = clusters(ps=2, workers=2, ps_lanes=2)
    model, commands = counting_model(), Commands("drain ps:1")
    moves, data = 0, skewed()
    options = {"batch_size": 16, "verbose": False}
    model.fit(data, cluster=cluster, **options)
    commands.start()
    while commands.is_alive():
        moves += model.fit(data, cluster=cluster, epochs=5, **options).moves
    commands.join()
    assert moves == 1, commands.said
    model.fit(data, cluster=cluster, **options)
    found = cluster.hot_rows()
    check(found)
    assert found[0].task == "/job:ps/replica:0/task:0"


def test_the_hook_writes_how_hot_the_hottest_row_of_a_table_is(
    cluster: dict[str, list[str]], tmp_path: Path
) -> None:
    target = f"grpc://{cluster['worker'][0]}"
    with tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            table = tf.get_variable("hooked", [10, 4], initializer=tf.zeros_initializer())
        step = tf.train.get_or_create_global_step()
        rows = tf.nn.embedding_lookup(table, [1, 2])
        [grad] = tf.gradients(tf.reduce_sum(rows * rows), [table])
        push = tf.train.AdagradOptimizer(0.1).apply_gradients([(grad, table)], step)
        hook = tf.train.StalenessHook(target, every_n_steps=20, output_dir=str(tmp_path))
        with tf.train.MonitoredTrainingSession(target, hooks=[hook]) as session:
            for _ in range(40):
                session.run(push)
    shares = values_of(accumulated(tmp_path), "hottest_row/hooked")
    assert shares[-1][1] == pytest.approx(0.5)
