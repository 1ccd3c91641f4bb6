"""Summaries as values of graphs (sidereal.v1.summary), in sessions of this process and on servers,
as TensorBoard's own EventAccumulator reads them."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from event_files import accumulated, values_of
from PIL import Image
from session_servers import Processes, addresses

import sidereal.v1 as tf
from sidereal import errors
from sidereal.launch import PROTOCOLS


@pytest.fixture(autouse=True)
def graph() -> Iterator[tf.Graph]:
    with tf.Graph().as_default() as made:
        yield made


def parsed(content: bytes) -> dict[str, Any]:
    """The values of a summary by their tags."""
    made = tf.Summary.FromString(content)
    return {value.tag: value for value in made.value}


def run(fetch: Any, feed: Any = None) -> Any:
    with tf.Session() as session:
        return session.run(fetch, feed)


def test_a_scalar_is_one_number() -> None:
    x = tf.placeholder(tf.float32, [])
    made = tf.summary.scalar("loss", x)
    assert made.dtype is tf.string and made.op.name == "loss"
    assert parsed(run(made, {x: 0.25}))["loss"].simple_value == 0.25
    assert parsed(run(tf.summary.scalar("count", tf.constant(3))))["count"].simple_value == 3
    with pytest.raises(ValueError, match=r"'loss'.*shape \[2\]"):
        tf.summary.scalar("loss", tf.constant([1.0, 2.0]))


def test_tags_are_names_in_scopes() -> None:
    with tf.name_scope("a"):
        one = tf.summary.scalar("x", 1.0)
        two = tf.summary.scalar("x", 2.0)
        three = tf.summary.scalar("y z", 3.0, family="f")
    tags = [next(iter(parsed(run(each)))) for each in (one, two, three)]
    assert tags == ["a/x", "a/x_1", "f/a/f/y_z"]
    with pytest.raises(ValueError, match="is no name of a summary"):
        tf.summary.scalar("/", 1.0)


def test_merging_has_all_in_their_order() -> None:
    assert tf.summary.merge_all() is None
    tf.summary.scalar("a", 1.0)
    tf.summary.scalar("b", 2.0)
    tf.summary.scalar("c", 3.0, collections=["mine"])
    assert list(parsed(run(tf.summary.merge_all()))) == ["a", "b"]
    assert list(parsed(run(tf.summary.merge_all("mine")))) == ["c"]
    assert list(parsed(run(tf.summary.merge_all(scope="b")))) == ["b"]
    merged = tf.summary.merge(
        [*tf.get_collection("mine"), b""], collections=["more"], name="together"
    )
    assert merged.op.name == "together"
    assert tf.get_collection("more") == [merged] and list(parsed(run(merged))) == ["c"]
    with pytest.raises(ValueError, match="no summaries"):
        tf.summary.merge([])


def test_branches_give_their_summaries_to_the_graph() -> None:
    x = tf.placeholder(tf.float32, [])
    chosen = tf.cond(
        tf.greater(x, 0.0),
        lambda: tf.summary.scalar("more", x),
        lambda: tf.summary.scalar("less", x),
    )
    assert tf.summary.merge_all() is None
    merged = tf.summary.merge([chosen, tf.summary.scalar("x", x)])
    assert list(parsed(run(merged, {x: 2.0}))) == ["more", "x"]
    assert list(parsed(run(merged, {x: -2.0}))) == ["less", "x"]


def test_histograms_count_all_values() -> None:
    x = tf.placeholder(tf.float32, None)
    made = tf.summary.histogram("h", x)
    values = np.random.default_rng(0).normal(size=(9, 50)).astype("f")
    histo = parsed(run(made, {x: values}))["h"].histo
    want, edges = np.histogram(values.astype("f8"), 30)
    assert list(histo.bucket) == want.tolist()
    np.testing.assert_allclose(histo.bucket_limit, edges[1:], rtol=1e-12)
    wide = values.astype("f8")
    np.testing.assert_allclose(
        [histo.min, histo.max, histo.num, histo.sum, histo.sum_squares],
        [wide.min(), wide.max(), wide.size, wide.sum(), (wide**2).sum()],
    )
    same = parsed(run(made, {x: [2.0, 2.0]}))["h"].histo
    assert (same.min, same.max, same.num, sum(same.bucket)) == (2, 2, 2, 2)
    none = parsed(run(made, {x: np.zeros((0, 2), "f")}))["h"].histo
    assert none.num == 0 and sum(none.bucket) == 0
    ids = parsed(run(tf.summary.histogram("ids", tf.constant([1, 1, 7]))))["ids"].histo
    assert (ids.bucket[0], ids.bucket[-1], ids.sum) == (2, 1, 9)
    with pytest.raises(errors.InvalidArgumentError, match="Nan in summary histogram for: h"):
        run(made, {x: [1.0, float("nan")]})


def test_texts_have_their_shape(tmp_path: Path) -> None:
    x = tf.placeholder(tf.string, [None, 2])
    long = "ä" * 5000
    merged = tf.summary.merge([
        tf.summary.text("table", x),
        tf.summary.text("one", tf.constant(long)),
        tf.summary.text("none", x[:0]),
    ])  # fmt: skip
    with tf.summary.FileWriter(tmp_path) as writer:
        writer.add_summary(run(merged, {x: [["a", "b"], ["", "d"]]}), 1)
    found = accumulated(tmp_path)
    assert values_of(found, "table")[0][1].tolist() == [[b"a", b"b"], [b"", b"d"]]
    assert values_of(found, "one")[0][1].item().decode() == long
    assert values_of(found, "none")[0][1].shape == (0, 2)
    assert found.SummaryMetadata("table").plugin_data.plugin_name == "text"
    with pytest.raises(ValueError, match="takes strings"):
        tf.summary.text("t", tf.constant(1))


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("width", [4, 5])
def test_images_are_files_of_pixels(channels: int, width: int) -> None:
    x = tf.placeholder(tf.uint8, [None, 3, width, channels])
    made = tf.summary.image("i", x)
    pixels = np.random.default_rng(channels).integers(0, 256, (5, 3, width, channels), "u1")
    found = parsed(run(made, {x: pixels}))
    assert list(found) == ["i/image/0", "i/image/1", "i/image/2"]
    assert list(parsed(run(made, {x: pixels[:2]}))) == ["i/image/0", "i/image/1"]
    for at, value in enumerate(found.values()):
        got = value.image
        assert (got.height, got.width, got.colorspace) == (3, width, channels)
        shown = np.asarray(Image.open(io.BytesIO(got.encoded_image_string)))
        shown = shown[..., :1] if channels == 1 else shown
        np.testing.assert_array_equal(shown.reshape(3, width, channels), pixels[at])


def test_images_of_numbers_are_scaled_each() -> None:
    x = np.zeros((3, 1, 2, 1), "f")
    x[0, 0, :, 0], x[1, 0, :, 0], x[2, 0, :, 0] = [0.5, 2.0], [-4.0, 2.0], [np.nan, 0.0]
    found = parsed(run(tf.summary.image("i", tf.constant(x)))).values()
    shown = [np.asarray(Image.open(io.BytesIO(one.image.encoded_image_string)))[0, :, 0].tolist()
             for one in found]  # fmt: skip
    assert shown == [[63, 255], [1, 191], [0, 0]]
    assert list(parsed(run(tf.summary.image("j", tf.constant(x), 1)))) == ["j/image"]
    for bad in (tf.constant(x[0]), tf.placeholder(tf.uint8, [1, None, 2, 3]), x[..., :0]):
        with pytest.raises(ValueError, match="takes .images, height"):
            tf.summary.image("k", bad)


def test_writers_write_events_graphs_and_logs(tmp_path: Path, graph: tf.Graph) -> None:
    with tf.device("/job:ps/task:0"):
        tf.constant(1.0, name="one")
    writer = tf.summary.FileWriter(tmp_path, graph, filename_suffix=".v1")
    assert writer.get_logdir() == str(tmp_path)
    writer.add_summary(tf.Summary(value=[tf.Summary.Value(tag="x", simple_value=1.0)]), 8)
    # What an earlier session wrote behind this step counts no more.
    writer.add_session_log(tf.SessionLog(status=tf.SessionLog.START), 3)
    writer.add_summary(tf.Summary(value=[tf.Summary.Value(tag="x", simple_value=2.0)]), 3)
    writer.add_summary(run(tf.summary.scalar("x", 1.5)), np.int64(4))
    writer.add_event(tf.Event(step=9, summary=tf.Summary()))
    writer.flush()
    found = accumulated(tmp_path)
    assert [(event.step, event.value) for event in found.Scalars("x")] == [(3, 2.0), (4, 1.5)]
    assert {node.name: node.device for node in found.Graph().node}["one"] == "/job:ps/task:0"
    writer.close()
    writer.close()
    with pytest.warns(UserWarning, match=r"is closed; reopen\(\)"):
        writer.add_summary(b"")
    writer.reopen()
    writer.add_summary(run(tf.summary.scalar("y", 7.0)), 5)
    writer.close()
    assert [event.value for event in accumulated(tmp_path).Scalars("y")] == [7.0]
    assert len(list(tmp_path.glob("*.v1"))) == 2
    with pytest.raises(TypeError, match="takes the bytes"):
        writer.add_summary(1.0)
    with pytest.raises(TypeError, match="takes a sidereal.v1.Graph"):
        writer.add_graph("graph")
    with pytest.raises(errors.UnimplementedError, match="leave out session"):
        tf.summary.FileWriter(tmp_path, session=object())


def test_a_cache_has_one_writer_for_each_folder(tmp_path: Path) -> None:
    tf.constant(1.0, name="one")
    a = tf.summary.FileWriterCache.get(tmp_path / "a")
    assert tf.summary.FileWriterCache.get(str(tmp_path / "a")) is a
    assert tf.summary.FileWriterCache.get(tmp_path / "b") is not a
    tf.summary.FileWriterCache.clear()
    assert [node.name for node in accumulated(tmp_path / "a").Graph().node] == ["one"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tf.summary.FileWriterCache.get(tmp_path / "a").add_summary(b"")
    tf.summary.FileWriterCache.clear()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_servers_without_python_make_summaries(tmp_path: Path, protocol: str) -> None:
    processes = Processes()
    try:
        ps, worker = addresses(2)
        cluster = {"ps": [ps], "worker": [worker]}
        processes.serve(cluster, "ps", 0, "--protocol", protocol)
        processes.serve(cluster, "worker", 0, "--protocol", protocol)
        with tf.device(tf.train.replica_device_setter(cluster=tf.train.ClusterSpec(cluster))):
            x = tf.placeholder(tf.float32, [None, 4], name="x")
            table = tf.Variable(np.arange(40, dtype="f").reshape(10, 4), name="table")
            loss = tf.reduce_mean(tf.square(tf.matmul(x, tf.transpose(table))))
            step = tf.train.get_or_create_global_step()
            train = tf.train.GradientDescentOptimizer(1e-4).minimize(loss, step)
            tf.summary.scalar("loss", loss)
            tf.summary.histogram("rows", table)
            tf.summary.text("words", tf.strings.as_string(x[0]))
            tf.summary.image("picture", tf.reshape(table, [1, 10, 4, 1]))
            merged = tf.summary.merge_all()
        feed = {x: np.ones((3, 4), "f")}
        with tf.Session(f"grpc://{worker}") as session, tf.summary.FileWriter(tmp_path) as writer:
            session.run(tf.global_variables_initializer())
            losses = []
            for _ in range(3):
                value, content, _, at = session.run([loss, merged, train, step], feed)
                losses.append(value)
                writer.add_summary(content, at)
    finally:
        processes.end()
    found = accumulated(tmp_path)
    assert [event.value for event in found.Scalars("loss")] == pytest.approx(losses)
    assert losses[0] > losses[-1]
    [first, *_] = found.Histograms("rows")
    assert first.histogram_value.num == 40
    assert values_of(found, "words")[0][1].tolist() == [b"1.000000"] * 4
    [picture, *_] = found.Images("picture/image/0")
    assert (picture.width, picture.height) == (4, 10)
