"""Saver: what it writes and restores, which checkpoints it keeps, and graphs in files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from monitored import saved

import sidereal.v1 as tf
from sidereal import checkpoint_management, errors
from sidereal.v1 import saver as saver_module

pytestmark = pytest.mark.usefixtures("fresh_graph")


class Clock:
    """Seconds since 1970 that pass when a test says so."""

    now = 1_000_000.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(saver_module, "time", made)
    return made


def initialised() -> tf.Session:
    session = tf.Session()
    session.run(tf.global_variables_initializer())
    return session


def restored(path: str | None, *variables: Any, **options: Any) -> list[Any]:
    """What variables are in a new session when a checkpoint was restored."""
    with tf.Session() as session:
        tf.train.Saver(list(variables), **options).restore(session, path)
        return session.run(list(variables))


# --- Saving and restoring.


def test_variables_have_the_values_they_had(tmp_path: Path) -> None:
    a, b = tf.Variable(np.arange(6.0).reshape(2, 3), name="a"), tf.Variable(7, name="scope/b")
    c = tf.Variable([True, False], name="c")
    with initialised() as session:
        session.run(a.assign_add(np.ones((2, 3))))
        path = tf.train.Saver().save(session, str(tmp_path / "model"))
    assert path == str(tmp_path / "model")
    # They need not have been initialised.
    found = restored(path, a, b, c)
    np.testing.assert_array_equal(found[0], np.arange(6.0).reshape(2, 3) + 1)
    assert found[1] == 7 and found[2].tolist() == [True, False]
    assert saved(path, "scope/b") == 7


def test_names_in_files_may_be_others(tmp_path: Path) -> None:
    a, b = tf.Variable(1.0, name="a"), tf.Variable(2.0, name="b")
    with initialised() as session:
        path = tf.train.Saver({"x": a, "y": b}).save(session, str(tmp_path / "m"))
    assert saved(path, "x") == 1 and saved(path, "y") == 2
    with tf.Session() as session:
        tf.train.Saver({"y": a}).restore(session, path)
        assert session.run(a) == 2


def test_the_step_is_in_the_name(tmp_path: Path) -> None:
    step = tf.train.get_or_create_global_step()
    with initialised() as session:
        session.run(step.assign(12))
        saver = tf.train.Saver(pad_step_number=False)
        for given in (step, 12, np.int64(12)):
            assert saver.save(session, str(tmp_path / "m"), given) == str(tmp_path / "m-12")
        padded = tf.train.Saver(pad_step_number=True)
        assert padded.save(session, str(tmp_path / "p"), step) == str(tmp_path / "p-00000012")


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="No variables to save"):
        tf.train.Saver()
    nothing = tf.train.Saver(allow_empty=True)
    a = tf.Variable(1.0, name="a")
    part = tf.get_variable("t", [2, 2], partitioner=tf.fixed_size_partitioner(2))
    for one in part:
        one._set_save_slice_info(next(iter(part))._get_save_slice_info())
    with pytest.raises(ValueError, match="At least two variables have the same name: t"):
        tf.train.Saver(list(part))
    with pytest.raises(TypeError, match="Variable to save is not a Variable"):
        tf.train.Saver([tf.constant(1)])
    with pytest.raises(ValueError, match="The same variable is saved as x and as y"):
        tf.train.Saver({"x": a, "y": a})
    with initialised() as session:
        assert nothing.save(session, str(tmp_path / "m")) is None
        nothing.restore(session, str(tmp_path / "m"))
        saver = tf.train.Saver([a])
        with pytest.raises(ValueError, match="must not contain path components"):
            saver.save(session, str(tmp_path / "m"), latest_filename="a/b")
        with pytest.raises(ValueError, match="collides with 'save_path'"):
            saver.save(session, str(tmp_path / "checkpoint"))
        with pytest.raises(TypeError, match="'sess' must be a Session"):
            saver.save(None, str(tmp_path / "m"))
        with pytest.raises(ValueError, match="Parent directory of .* doesn't exist, can't save"):
            saver.save(session, str(tmp_path / "not" / "there"))


def test_a_variable_without_a_value_cannot_be_saved(tmp_path: Path) -> None:
    tf.Variable(1.0, name="a")
    with tf.Session() as session, pytest.raises(errors.FailedPreconditionError, match="a"):
        tf.train.Saver().save(session, str(tmp_path / "m"))
    assert not (tmp_path / "m.index").exists()


def test_what_cannot_be_restored(tmp_path: Path) -> None:
    a = tf.Variable([1.0, 2.0], name="a")
    with initialised() as session:
        path = tf.train.Saver().save(session, str(tmp_path / "m"))
        with pytest.raises(ValueError, match="Can't load save_path when it is None"):
            tf.train.Saver().restore(session, None)
        with pytest.raises(ValueError, match="is not a valid checkpoint"):
            tf.train.Saver().restore(session, str(tmp_path / "other"))
        with pytest.raises(errors.NotFoundError, match="missing"):
            tf.train.Saver({"missing": a}).restore(session, path)
    with tf.Graph().as_default():
        tf.Variable([1.0, 2.0, 3.0], name="a")
        with initialised() as session, pytest.raises(errors.InvalidArgumentError, match="a"):
            tf.train.Saver().restore(session, path)


def test_bytes_that_are_not_what_was_written_are_noticed(tmp_path: Path) -> None:
    tf.Variable(np.arange(100.0), name="a")
    with initialised() as session:
        saver = tf.train.Saver()
        path = saver.save(session, str(tmp_path / "m"))
        (data,) = tmp_path.glob("m.data-*")
        written = bytearray(data.read_bytes())
        at = written.index(np.float64(50.0).tobytes())
        written[at + 6] ^= 1
        data.write_bytes(written)
        with pytest.raises(errors.DataLossError, match=re.escape(data.name)):
            saver.restore(session, path)


def test_building_may_be_deferred(tmp_path: Path) -> None:
    saver = tf.train.Saver(defer_build=True)
    a = tf.Variable(1.0, name="a")
    with initialised() as session:
        with pytest.raises(RuntimeError, match=r"`build\(\)` should be called before save"):
            saver.save(session, str(tmp_path / "m"))
        with pytest.raises(RuntimeError, match=r"`build\(\)` should be called before restore"):
            saver.restore(session, str(tmp_path / "m"))
        saver.build()
        before = tf.get_default_graph().version
        saver.build()
        assert tf.get_default_graph().version == before
        saver.save(session, str(tmp_path / "m"))
    with pytest.raises(ValueError, match="build cannot be deferred"):
        tf.train.Saver([a], defer_build=True)


def test_shapes_may_differ_where_it_is_asked_for(tmp_path: Path) -> None:
    a = tf.Variable(np.arange(6), name="a")
    with initialised() as session:
        path = tf.train.Saver([a]).save(session, str(tmp_path / "m"))
    with tf.Graph().as_default():
        wide = tf.Variable(np.zeros((2, 3), np.int64), name="a")
        assert restored(path, wide, reshape=True)[0].tolist() == [[0, 1, 2], [3, 4, 5]]


# --- Variables in parts.


def table(parts: int) -> Any:
    """A table that is cut, whose rows are told apart."""
    rows = tf.constant(np.arange(14.0, dtype=np.float32).reshape(7, 2))

    def initializer(shape: Any, dtype: Any = None, partition_info: Any = None) -> Any:
        first = 0 if partition_info is None else partition_info.var_offset[0]
        return rows[first : first + shape[0]]

    return tf.get_variable(
        "table", [7, 2], initializer=initializer,
        partitioner=tf.fixed_size_partitioner(parts) if parts else None,
    )  # fmt: skip


@pytest.mark.parametrize("before, after", [(3, 3), (3, 2), (3, 0), (0, 4)])
def test_a_variable_in_parts_is_one_tensor_of_slices(
    tmp_path: Path, before: int, after: int
) -> None:
    made = table(before)
    with initialised() as session:
        session.run(made.assign(made.as_tensor() * 10.0) if before else made.assign(made * 10.0))
        path = tf.train.Saver().save(session, str(tmp_path / "m"))
    whole = np.arange(14.0).reshape(7, 2) * 10
    np.testing.assert_array_equal(saved(path, "table"), whole)
    with tf.Graph().as_default():
        again = table(after)
        with tf.Session() as session:
            tf.train.Saver([again] if not after else None).restore(session, path)
            np.testing.assert_array_equal(session.run(again), whole)


def test_a_variable_in_parts_under_another_name(tmp_path: Path) -> None:
    made = table(3)
    with initialised() as session:
        path = tf.train.Saver({"other": made}).save(session, str(tmp_path / "m"))
        session.run(tf.global_variables_initializer())
        tf.train.Saver({"other": list(made)}).restore(session, path)
        assert session.run(made).tolist() == np.arange(14.0).reshape(7, 2).tolist()
    assert saved(path, "other").shape == (7, 2)
    with pytest.raises(ValueError, match="is no part of a variable that was cut"):
        tf.train.Saver({"x": [tf.Variable(1), tf.Variable(2)]})


# --- Which checkpoints stay.


def there(folder: Path) -> list[str]:
    return sorted(path.name.removesuffix(".index") for path in folder.glob("*.index"))


def names(paths: list[str]) -> list[str]:
    return [Path(path).name for path in paths]


def test_the_last_ones_stay(tmp_path: Path) -> None:
    tf.Variable(1.0, name="a")
    with initialised() as session:
        saver = tf.train.Saver(max_to_keep=2)
        for step in range(1, 5):
            saver.save(session, str(tmp_path / "m"), step)
        assert names(saver.last_checkpoints) == ["m-3", "m-4"] == there(tmp_path)
        # One that is written again is the newest one, and counts once.
        saver.save(session, str(tmp_path / "m"), 3)
        assert names(saver.last_checkpoints) == ["m-4", "m-3"]
        assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "m-3")
        assert not list(tmp_path.glob("m-1*")) and (tmp_path / "m-4.meta").exists()
        state = tf.train.get_checkpoint_state(str(tmp_path))
        assert names(state.all_model_checkpoint_paths) == ["m-4", "m-3"]


@pytest.mark.parametrize("most", [0, None, -1])
def test_or_all_of_them(tmp_path: Path, most: int | None) -> None:
    tf.Variable(1.0, name="a")
    with initialised() as session:
        saver = tf.train.Saver(max_to_keep=most)
        for step in range(7):
            saver.save(session, str(tmp_path / "m"), step)
        assert saver.last_checkpoints == [] and len(there(tmp_path)) == 7
        assert names(tf.train.get_checkpoint_state(str(tmp_path)).all_model_checkpoint_paths) == [
            "m-6"
        ]
    assert tf.train.Saver()._max_to_keep == 5


def test_one_in_so_many_hours_stays(tmp_path: Path, clock: Clock) -> None:
    tf.Variable(1.0, name="a")
    with initialised() as session:
        saver = tf.train.Saver(max_to_keep=2, keep_checkpoint_every_n_hours=1)
        for step in range(6):
            saver.save(session, str(tmp_path / "m"), step)
            clock.now += 25 * 60
        # After 75 minutes there was the first one later than an hour after the beginning.
        assert there(tmp_path) == ["m-3", "m-4", "m-5"]
        assert names(saver.last_checkpoints) == ["m-4", "m-5"]


def test_a_saver_takes_over_what_another_one_wrote(tmp_path: Path) -> None:
    tf.Variable(1.0, name="a")
    with initialised() as session:
        first = tf.train.Saver(max_to_keep=3)
        for step in range(3):
            first.save(session, str(tmp_path / "m"), step)
        checkpoint_management.remove_checkpoint(str(tmp_path / "m-0"))
        second = tf.train.Saver(max_to_keep=2)
        second.recover_last_checkpoints(first.last_checkpoints)
        assert names(second.last_checkpoints) == ["m-1", "m-2"]
        second.save(session, str(tmp_path / "m"), 3)
        assert there(tmp_path) == ["m-2", "m-3"]
        second.set_last_checkpoints([str(tmp_path / "m-2")])
        assert names(second.last_checkpoints) == ["m-2"]


def test_states_and_graphs_are_written_as_told(tmp_path: Path) -> None:
    tf.Variable(1.0, name="a")
    with initialised() as session:
        saver = tf.train.Saver()
        saver.save(session, str(tmp_path / "m"), 1, write_state=False, write_meta_graph=False)
        assert tf.train.latest_checkpoint(str(tmp_path)) is None and not list(
            tmp_path.glob("*.meta")
        )
        saver.save(session, str(tmp_path / "m"), 2, latest_filename="mine", meta_graph_suffix="g")
        assert tf.train.latest_checkpoint(str(tmp_path)) is None
        assert tf.train.latest_checkpoint(str(tmp_path), "mine") == str(tmp_path / "m-2")
        assert (tmp_path / "m-2.g").exists()


# --- Graphs in files.


def test_a_graph_and_its_saver_come_back(tmp_path: Path) -> None:
    x = tf.placeholder(tf.float32, [None, 2], "x")
    w = tf.Variable(np.float32([[1], [2]]), name="w")
    tf.get_variable("table", [4, 2], partitioner=tf.fixed_size_partitioner(2))
    small = tf.cond(tf.reduce_sum(x) < 10, lambda: tf.matmul(x, w), lambda: x[:, :1])
    y = tf.identity(small, name="y")
    tf.add_to_collection("outputs", y)
    tf.add_to_collection("words", "hello")
    tf.add_to_collection("init", tf.global_variables_initializer())
    before = tf.get_default_graph()
    with initialised() as session:
        session.run(w.assign(w * 10.0))
        path = tf.train.Saver(max_to_keep=3).save(session, str(tmp_path / "m"), 5)
    with tf.Graph().as_default() as graph:
        saver = tf.train.import_meta_graph(f"{path}.meta")
        assert graph.native.text() == before.native.text()
        assert tf.get_collection("words") == ["hello"]
        assert [v.op.name for v in tf.global_variables()] == [
            "w", "table/part_0", "table/part_1"
        ]  # fmt: skip
        assert tf.trainable_variables()[0] is tf.global_variables()[0]
        assert saver._max_to_keep == 3
        with tf.Session() as session:
            saver.restore(session, path)
            assert session.run(tf.get_collection("outputs")[0], {"x:0": [[1, 1]]}) == [[30]]
            assert session.run("y:0", {"x:0": [[8, 8]]}) == [[8]]
            # It can be trained and saved further.
            train = tf.train.GradientDescentOptimizer(0.1).minimize(
                tf.reduce_sum(tf.global_variables()[0]), var_list=tf.global_variables()[:1]
            )
            session.run(train)
            assert session.run("w:0").ravel() == pytest.approx([9.9, 19.9])
            session.run(tf.get_collection("init"))
            assert session.run("w:0").ravel().tolist() == [1, 2]
            saver.save(session, str(tmp_path / "m"), 6)
        assert tf.Variable(1, name="w").op.name == "w_1"


def test_a_graph_comes_back_into_a_scope_without_devices(tmp_path: Path) -> None:
    with tf.device("/job:ps/task:0"):
        v = tf.Variable(1.0, name="v")
    queue = tf.FIFOQueue(2, tf.float32, shapes=())
    tf.train.add_queue_runner(tf.train.QueueRunner(queue, [queue.enqueue(v)]))
    take = queue.dequeue(name="take")
    text = tf.train.export_meta_graph(str(tmp_path / "g"))
    assert (tmp_path / "g").read_text() == text and take is not None
    with tf.Graph().as_default():
        tf.train.import_meta_graph(text, clear_devices=True, import_scope="again")
        (again,) = tf.global_variables()
        assert again.op.name == "again/v" and again.device == ""
        assert again.op.colocation_groups() == [b"loc:@again/v"]
        with initialised() as session:
            coord = tf.train.Coordinator()
            threads = tf.train.start_queue_runners(session, coord)
            assert session.run("again/take:0") == 1
            coord.request_stop()
            coord.join(threads)
    with tf.Graph().as_default():
        tf.train.import_meta_graph(tmp_path / "g")
        assert tf.global_variables()[0].device == "/job:ps/task:0"


def test_values_of_all_dtypes_come_back() -> None:
    made = [
        np.float32([1.5, np.nan, np.inf]), np.float64([0.1]), np.float16([1.5, -2]),
        np.int8([-1]), np.uint64([2**63]), np.array([True]), np.arange(100.0),
        np.array([b'a"\n\\\xff', b""], object), np.float32(np.zeros((0, 3))),
    ]  # fmt: skip
    for number, value in enumerate(made):
        tf.constant(value, name=f"c{number}")
    text = tf.train.export_meta_graph()
    with tf.Graph().as_default(), tf.Session() as session:
        assert tf.train.import_meta_graph(text) is None
        for number, value in enumerate(made):
            found = session.run(f"c{number}:0")
            assert found.dtype == value.dtype
            np.testing.assert_array_equal(found, value)


def test_what_cannot_be_imported(tmp_path: Path) -> None:
    with pytest.raises(errors.NotFoundError, match=r"there is no file '.*/none'"):
        tf.train.import_meta_graph(tmp_path / "none")
    (tmp_path / "words").write_text("{not json")
    with pytest.raises(errors.InvalidArgumentError, match="words' is no meta graph of sidereal"):
        tf.train.import_meta_graph(tmp_path / "words")
    (tmp_path / "tf").write_bytes(b"\x0a\xff\xfe")
    with pytest.raises(errors.InvalidArgumentError, match="those of TensorFlow cannot"):
        tf.train.import_meta_graph(tmp_path / "tf")
    tf.constant(1, name="c")
    text = tf.train.export_meta_graph()
    with pytest.raises(errors.InvalidArgumentError, match="has a node 'c' already"):
        tf.train.import_meta_graph(text)
    later = re.sub(r'"sidereal_meta_graph": \d+', '"sidereal_meta_graph": 99', text)
    with pytest.raises(errors.InvalidArgumentError, match="has version 99"):
        tf.train.import_meta_graph(later)
    for bad, what in (
        ("%0 = Const(%7)", "%7 is not an earlier node"),
        ("%0 = Const() name=", "a string is missing"),
        ("%0 ! Const()", "'=' is missing"),
    ):
        broken = text.replace('%0 = Const() name=\\"c\\"', bad.replace('"', '\\"'))
        with pytest.raises(errors.InvalidArgumentError, match=f"graph text, line 2: {what}"):
            tf.train.import_meta_graph(broken, import_scope="x")
