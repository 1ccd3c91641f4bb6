"""Lookup tables in checkpoints: of objects, of a Saver, and those that TensorFlow wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sidereal as sr
import sidereal.v1 as tf
from sidereal import errors
from sidereal.train import Checkpoint, list_variables, load_variable

MutableHashTable = sr.lookup.experimental.MutableHashTable


def words(**options: Any) -> Any:
    """A table of two words."""
    made = MutableHashTable("string", "int64", -1, **options)
    made.insert(sr.constant(["a", "b"]), sr.constant([1, 2], dtype="int64"))
    return made


def found_in(table: Any) -> dict[Any, Any]:
    keys, values = table.export()
    return dict(zip(keys.numpy().tolist(), values.numpy().tolist()))


def test_a_table_is_what_it_was(tmp_path: Path) -> None:
    table = words()
    vectors = MutableHashTable("int64", "float32", [0.0, 0.0])
    vectors.insert([7], [[1.0, 2.0]])
    checkpoint = Checkpoint(t=table, deep=[vectors])
    path = checkpoint.save(tmp_path / "ckpt")
    # As TensorFlow calls them.
    assert [name for name, _ in list_variables(path)][:4] == [
        "_CHECKPOINTABLE_OBJECT_GRAPH",
        "deep/0/.ATTRIBUTES/table-keys", "deep/0/.ATTRIBUTES/table-values",
        "save_counter/.ATTRIBUTES/VARIABLE_VALUE",
    ]  # fmt: skip
    assert load_variable(path, "t/.ATTRIBUTES/table-keys").tolist() == [b"a", b"b"]
    table.insert(sr.constant(["b", "c"]), sr.constant([5, 6], dtype="int64"))
    vectors.remove([7])
    checkpoint.restore(path).assert_consumed()
    assert found_in(table) == {b"a": 1, b"b": 2}
    assert found_in(vectors) == {7: [1.0, 2.0]}


def test_an_empty_table_is_empty_again(tmp_path: Path) -> None:
    table = MutableHashTable("string", "int64", -1)
    path = Checkpoint(t=table).write(tmp_path / "ckpt")
    table.insert(sr.constant(["a"]), sr.constant([1], dtype="int64"))
    Checkpoint(t=table).read(path).assert_consumed()
    assert found_in(table) == {}


def test_a_table_that_is_made_later(tmp_path: Path) -> None:
    path = Checkpoint(t=words()).write(tmp_path / "ckpt")
    later = Checkpoint()
    status = later.read(path)
    later.t = MutableHashTable("string", "int64", -1)
    status.assert_consumed()
    assert found_in(later.t) == {b"a": 1, b"b": 2}


def test_another_dtype_changes_nothing(tmp_path: Path) -> None:
    path = Checkpoint(t=words()).write(tmp_path / "ckpt")
    other = MutableHashTable("int64", "int64", -1)
    other.insert([3], [4])
    with pytest.raises(errors.InvalidArgumentError, match="keys of int64 and values of int64"):
        Checkpoint(t=other).read(path)
    wide = MutableHashTable("string", "int64", np.array([0, 0], np.int64))
    with pytest.raises(errors.InvalidArgumentError, match=r"values of int64\[2\]"):
        Checkpoint(t=wide).read(path)
    assert found_in(other) == {3: 4}


def test_static_tables_are_not_saved(tmp_path: Path) -> None:
    pairs = sr.lookup.KeyValueTensorInitializer(["a"], sr.constant([1], dtype="int64"))
    path = Checkpoint(
        s=sr.lookup.StaticHashTable(pairs, -1), v=sr.Variable(1.0)
    ).write(tmp_path / "ckpt")  # fmt: skip
    assert [name for name, _ in list_variables(path)] == [
        "_CHECKPOINTABLE_OBJECT_GRAPH", "v/.ATTRIBUTES/VARIABLE_VALUE",
    ]  # fmt: skip


# --- Savers.


@pytest.mark.usefixtures("fresh_graph")
class TestSaver:
    def made(self, **options: Any) -> tuple[Any, Any, Any]:
        """A table, what gives it words, and a variable."""
        table = tf.lookup.experimental.MutableHashTable("string", "int64", -1, **options)
        keys, values = tf.constant(["a", "b"]), tf.constant([1, 2], tf.int64)
        return table, table.insert(keys, values), tf.get_variable("v", [], tf.float32)

    def test_it_saves_the_tables_of_the_graph(self, tmp_path: Path) -> None:
        table, insert, _ = self.made()
        more = table.insert(tf.constant(["b", "c"]), tf.constant([9, 9], tf.int64))
        everything = table.export()
        saver = tf.train.Saver()
        with tf.Session() as session:
            session.run([tf.global_variables_initializer(), insert])
            path = saver.save(session, str(tmp_path / "m"))
            session.run(more)
            saver.restore(session, path)
            keys, values = session.run(everything)
        assert dict(zip(keys, values)) == {b"a": 1, b"b": 2}
        assert [name for name, _ in list_variables(path)] == [
            "MutableHashTable-keys", "MutableHashTable-values", "v",
        ]  # fmt: skip
        # To a table of objects, by its name.
        here = MutableHashTable("string", "int64", -1, shared_name="MutableHashTable")
        Checkpoint(t=here, v=sr.Variable(0.0, name="v")).read(path).assert_consumed()
        assert found_in(here) == {b"a": 1, b"b": 2}

    def test_one_that_asks_not_to_be_saved(self, tmp_path: Path) -> None:
        _, insert, _ = self.made(checkpoint=False)
        with tf.Session() as session:
            session.run([tf.global_variables_initializer(), insert])
            path = tf.train.Saver().save(session, str(tmp_path / "m"))
        assert [name for name, _ in list_variables(path)] == ["v"]

    def test_tables_by_name_and_from_a_meta_graph(self, tmp_path: Path) -> None:
        table, insert, v = self.made()
        everything = [each.name for each in table.export()]
        with tf.Session() as session:
            session.run([tf.global_variables_initializer(), insert])
            path = tf.train.Saver({"words": table, "v": v}).save(session, str(tmp_path / "m"))
        assert load_variable(path, "words-values").tolist() == [1, 2]
        with tf.Graph().as_default():
            saver = tf.train.import_meta_graph(f"{path}.meta")
            with tf.Session() as session:
                saver.restore(session, path)
                assert session.run(everything[1]).tolist() == [1, 2]

    def test_two_of_one_name(self) -> None:
        table, _, v = self.made()
        with pytest.raises(ValueError, match="At least two variables have the same name: x-keys"):
            tf.train.Saver({"x": table, "x-keys": v})
