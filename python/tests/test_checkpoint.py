"""Objects of this process saved and restored: what is found again, what comes later, what is
missing, and what the files say."""

from __future__ import annotations

import gc
import importlib.util
import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sidereal as sr
from sidereal import _object_graph, _tensor_files, errors
from sidereal.distribute.sharded_variable import ShardedVariable
from sidereal.train import (
    Checkpoint,
    CheckpointManager,
    CheckpointOptions,
    latest_checkpoint,
    list_variables,
    load_checkpoint,
    load_variable,
)

VALUE = ".ATTRIBUTES/VARIABLE_VALUE"


def variable(value: Any, **options: Any) -> sr.Variable:
    return sr.Variable(value, **options)


def numbers(*shape: int) -> np.ndarray:
    return np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)


def sharded(whole: np.ndarray, *sizes: int) -> ShardedVariable:
    parts = np.split(whole, np.cumsum(sizes)[:-1])
    return ShardedVariable([sr.Variable(part) for part in parts], "table")


class Tower:
    """An object of one's own."""

    def __init__(self, start: float) -> None:
        self.w = variable([start, start])
        self.others = [variable(start), {"b": variable(start + 1)}]
        self.steps = 3  # nothing to be saved


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    return str(tmp_path / "ckpt")


def names_of(path: str) -> list[str]:
    return [name for name, _ in list_variables(path) if name != _object_graph.ENTRY]


# --- What is saved.


def test_a_variable_comes_back(prefix: str) -> None:
    v = variable([1.0, 2.0])
    checkpoint = Checkpoint(v=v)
    path = checkpoint.save(prefix)
    assert path == prefix + "-1"
    v.assign([3.0, 4.0])
    checkpoint.restore(path).assert_consumed()
    np.testing.assert_array_equal(v.numpy(), [1, 2])


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(2.5, "float64"), (3, "int8"), (7, "uint64"), (True, "bool"), (1.5, "bfloat16"),
     (0.5, "float16"), (b"abc", "string"), (np.zeros([0, 3], np.float32), "float32")],
)  # fmt: skip
def test_dtypes(prefix: str, value: Any, dtype: str) -> None:
    v = variable(value, dtype=dtype)
    path = Checkpoint(v=v).write(prefix)
    other = variable(sr.zeros_like(sr.convert_to_tensor(v)) if dtype != "string" else b"")
    Checkpoint(v=other).read(path).assert_consumed()
    left, right = (sr.cast(each, "float32") if dtype == "bfloat16" else sr.identity(each)
                   for each in (v, other))  # fmt: skip
    np.testing.assert_array_equal(left.numpy(), right.numpy())
    assert load_checkpoint(path).get_variable_to_dtype_map()[f"v/{VALUE}"] == sr.dtypes.as_dtype(
        dtype
    )


def test_names_say_the_way_to_an_object(prefix: str) -> None:
    checkpoint = Checkpoint(tower=Tower(1.0), more=Checkpoint(v=variable(2.0)))
    setattr(checkpoint, "odd/name.x", variable(5.0))
    path = checkpoint.save(prefix)
    assert names_of(path) == sorted(
        f"{name}/{VALUE}"
        for name in (
            "more/v", "odd.Sname..x", "save_counter", "tower/others/0", "tower/others/1/b",
            "tower/w",
        )
    )  # fmt: skip
    assert load_variable(path, f"more/v/{VALUE}") == 2.0


def test_the_graph_of_objects_says_what_is_where(prefix: str) -> None:
    shared = variable(1.0, name="shared")
    path = Checkpoint(a=shared, b=[shared]).write(prefix)
    nodes = _object_graph.decode(load_checkpoint(path).get_tensor(_object_graph.ENTRY), path)
    assert nodes[0].children == [(1, "a"), (2, "b")]
    assert nodes[1].attributes == [("VARIABLE_VALUE", "shared", f"a/{VALUE}")]
    assert nodes[2].children == [(1, "0")]


with_tensorflow = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None,
    reason="TensorFlow is not installed; run ./dev setup --peers",
)


@with_tensorflow
def test_tensorflow_reads_the_graph_of_objects() -> None:
    from tensorflow.core.protobuf import trackable_object_graph_pb2 as tf_graph

    nodes = [
        _object_graph.Node([_object_graph.Child(1, "ä"), _object_graph.Child(300, "b")]),
        *(_object_graph.Node() for _ in range(300)),
    ]
    nodes[1].attributes.append(_object_graph.Attribute("VARIABLE_VALUE", "v", "a/b"))
    nodes[0].slots.append(_object_graph.Slot(1, "m", 300))
    found = tf_graph.TrackableObjectGraph.FromString(_object_graph.encode(nodes))
    assert [(c.node_id, c.local_name) for c in found.nodes[0].children] == [(1, "ä"), (300, "b")]
    assert found.nodes[1].attributes[0].checkpoint_key == "a/b"
    assert found.nodes[1].has_checkpoint_values.value
    assert not found.nodes[2].has_checkpoint_values.value
    slot = found.nodes[0].slot_variables[0]
    assert (slot.original_variable_node_id, slot.slot_name, slot.slot_variable_node_id) == (
        1, "m", 300,
    )  # fmt: skip
    assert _object_graph.decode(found.SerializeToString(), "here") == nodes


def test_a_damaged_graph_is_an_error_or_another_graph() -> None:
    nodes = [_object_graph.Node([_object_graph.Child(1, "a")]), _object_graph.Node()]
    nodes[1].attributes.append(_object_graph.Attribute("VARIABLE_VALUE", "v", "a"))
    data = _object_graph.encode(nodes)
    rng = np.random.default_rng(0)
    seen = 0
    for _ in range(2000):
        changed = bytearray(data[: rng.integers(0, len(data) + 1)])
        for _ in range(rng.integers(0, 3)):
            if changed:
                changed[rng.integers(0, len(changed))] = rng.integers(0, 256)
        try:
            _object_graph.decode(bytes(changed), "here")
        except errors.DataLossError as error:
            seen += 1
            assert "restore another checkpoint" in str(error)
    assert seen > 100


def test_only_what_has_values_can_be_saved() -> None:
    for wrong in (3, np.zeros(3), "text", object(), lambda: None):
        with pytest.raises(ValueError, match=r"Checkpoint\(x=...\)"):
            Checkpoint(x=wrong)
    Checkpoint(x=[], y={})
    with pytest.raises(ValueError, match="root is 3"):
        Checkpoint(3)


def test_members_of_a_root_are_its_own(prefix: str) -> None:
    root = Tower(1.0)
    path = Checkpoint(root, extra=variable(9.0)).save(prefix)
    assert f"w/{VALUE}" in names_of(path) and f"extra/{VALUE}" in names_of(path)
    with pytest.raises(ValueError, match="another object called 'w'"):
        Checkpoint(root, w=variable(1.0))
    other = Checkpoint(tower=Tower(4.0))
    other.tower.w.assign([0.0, 0.0])
    again = Checkpoint(other.tower, extra=variable(0.0))
    again.restore(path).assert_consumed()
    np.testing.assert_array_equal(other.tower.w.numpy(), [1, 1])
    assert int(again.save_counter) == 1 and float(again.extra) == 9


def test_a_variable_may_be_the_root(prefix: str) -> None:
    path = Checkpoint(variable(4.0)).write(prefix)
    v = variable(0.0)
    Checkpoint(v).read(path).assert_consumed()
    assert float(v) == 4.0


def test_save_counts_and_says_what_is_newest(prefix: str, tmp_path: Path) -> None:
    checkpoint = Checkpoint(v=variable(1.0))
    assert checkpoint.save(prefix) == prefix + "-1"
    assert checkpoint.save(prefix) == prefix + "-2"
    assert latest_checkpoint(tmp_path) == prefix + "-2"
    other = Checkpoint(v=variable(0.0))
    other.restore(latest_checkpoint(tmp_path)).assert_consumed()
    assert other.save(prefix) == prefix + "-3"
    assert checkpoint.write(prefix + "x") == prefix + "x"
    other.restore(prefix + "x").assert_consumed()
    fresh = Checkpoint(v=variable(0.0))
    fresh.restore(Checkpoint(v=variable(6.0)).write(prefix)).assert_consumed()
    assert int(fresh.save_counter) == 0 and float(fresh.v) == 6
    assert latest_checkpoint(tmp_path) == prefix + "-3"


def test_the_folder_is_made(tmp_path: Path) -> None:
    path = Checkpoint(v=variable(1.0)).save(tmp_path / "a" / "b" / "ckpt")
    assert latest_checkpoint(tmp_path / "a" / "b") == path


def test_callbacks_are_told(prefix: str) -> None:
    told: list[Any] = []
    options = CheckpointOptions(
        experimental_write_callbacks=[lambda path: told.append(path), lambda: told.append("done")]
    )
    Checkpoint(v=variable(1.0)).write(prefix, options)
    assert told == [prefix, "done"]


def test_a_function_neither_saves_nor_restores(prefix: str) -> None:
    checkpoint = Checkpoint(v=variable(1.0))
    with pytest.raises(errors.FailedPreconditionError, match="call it outside"):
        sr.function(lambda: checkpoint.write(prefix))()


def test_what_was_written_of_a_checkpoint_that_failed_goes(
    prefix: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*_: Any) -> None:
        raise errors.ResourceExhaustedError("the disk is full")

    checkpoint = Checkpoint(v=variable(1.0))
    with monkeypatch.context() as patch:
        patch.setattr(_tensor_files, "commit", fail)
        with pytest.raises(errors.ResourceExhaustedError):
            checkpoint.write(prefix)
    assert list(tmp_path.iterdir()) == []
    checkpoint.write(prefix)
    # One that was there before is as it was.
    checkpoint.v.assign(2.0)
    with monkeypatch.context() as patch:
        patch.setattr(_tensor_files, "write", fail)
        with pytest.raises(errors.ResourceExhaustedError):
            checkpoint.write(prefix)
    assert load_variable(prefix, f"v/{VALUE}") == 1.0


# --- What is restored.


def test_names_of_variables_do_not_matter(prefix: str) -> None:
    path = Checkpoint(v=variable(1.0, name="a")).write(prefix)
    v = variable(0.0, name="b")
    Checkpoint(v=v).read(path).assert_consumed()
    assert float(v) == 1.0


def test_objects_that_are_not_there_yet(prefix: str) -> None:
    path = Checkpoint(tower=Tower(3.0), v=variable(5.0)).save(prefix)
    checkpoint = Checkpoint()
    status = checkpoint.restore(path)
    with pytest.raises(AssertionError, match="has no object for: .*tower/w"):
        status.assert_consumed()
    status.assert_existing_objects_matched()
    checkpoint.v = v = variable(0.0)
    assert float(v) == 5.0
    checkpoint.tower = tower = Tower(0.0)
    np.testing.assert_array_equal(tower.w.numpy(), [3, 3])
    status.assert_consumed()
    v.assign(7.0)
    checkpoint.later = variable(1.0)
    assert float(v) == 7.0  # once


def test_lists_that_grow_are_restored_when_they_are_looked_at(prefix: str) -> None:
    path = Checkpoint(v=[variable(1.0), variable(2.0)]).save(prefix)
    grown = [variable(0.0)]
    checkpoint = Checkpoint(v=grown)
    status = checkpoint.restore(path)
    assert float(grown[0]) == 1.0
    grown[0].assign(9.0)
    grown.append(variable(0.0))
    status.assert_consumed()
    assert [float(each) for each in grown] == [9.0, 2.0]


def test_a_later_restore_comes_before_an_earlier_one(prefix: str) -> None:
    first = Checkpoint(v=variable(1.0), w=variable(1.0)).save(prefix)
    second = Checkpoint(v=variable(2.0), w=variable(2.0)).save(prefix + "b")
    checkpoint = Checkpoint()
    checkpoint.restore(first)
    checkpoint.restore(second).expect_partial()
    checkpoint.v = variable(0.0)
    assert float(checkpoint.v) == 2.0


def test_what_the_program_has_more(prefix: str) -> None:
    path = Checkpoint(v=variable(1.0)).save(prefix)
    checkpoint = Checkpoint(v=variable(0.0), w=variable(0.0))
    status = checkpoint.restore(path)
    for check in (status.assert_consumed, status.assert_existing_objects_matched):
        with pytest.raises(AssertionError, match="has nothing for 1 objects of the program: w/"):
            check()
    status.assert_nontrivial_match()
    assert float(checkpoint.v) == 1.0


def test_nothing_in_common(prefix: str) -> None:
    path = Checkpoint(v=variable(1.0)).write(prefix)
    checkpoint = Checkpoint(other=variable(0.0))
    status = checkpoint.read(path).expect_partial()
    with pytest.raises(AssertionError, match="nothing but its root in common"):
        status.assert_nontrivial_match()


def test_no_checkpoint_is_no_error_until_it_is_looked_at() -> None:
    status = Checkpoint(v=variable(1.0)).restore(None)
    status.expect_partial()
    status.initialize_or_restore()
    for check in ("assert_consumed", "assert_existing_objects_matched", "assert_nontrivial_match"):
        with pytest.raises(AssertionError, match="no checkpoint was given"):
            getattr(status, check)()


def test_values_that_nobody_took_are_warned_of(
    prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = Checkpoint(v=variable(1.0), w=variable(1.0)).save(prefix)
    with caplog.at_level(logging.WARNING, "sidereal"):
        Checkpoint(v=variable(0.0)).restore(path).expect_partial()
        gc.collect()
        assert caplog.text == ""
        Checkpoint(v=variable(0.0)).restore(path)
        gc.collect()
    assert f"restored to nothing: w/{VALUE}" in caplog.text


@pytest.mark.parametrize(
    ("value", "found"), [(np.zeros([3], np.float32), r"float32\[3\]"), (1, r"int32\[\]")]
)
def test_another_shape_or_dtype_changes_nothing(prefix: str, value: Any, found: str) -> None:
    path = Checkpoint(a=variable([1.0, 2.0]), b=variable([1.0, 2.0])).save(prefix)
    checkpoint = Checkpoint(a=variable([7.0, 7.0]), b=variable(value))
    with pytest.raises(errors.InvalidArgumentError, match=rf"float32\[2\].*is {found}"):
        checkpoint.restore(path)
    np.testing.assert_array_equal(checkpoint.a.numpy(), [7, 7])


def test_a_checkpoint_that_is_not_there(prefix: str, tmp_path: Path) -> None:
    checkpoint = Checkpoint(v=variable(1.0))
    with pytest.raises(errors.NotFoundError, match="ckpt-7"):
        checkpoint.restore(prefix + "-7")
    with pytest.raises(errors.NotFoundError, match="latest_checkpoint"):
        checkpoint.restore(tmp_path)
    with pytest.raises(errors.NotFoundError, match="no checkpoint is named by"):
        load_checkpoint(tmp_path)


def test_files_that_were_damaged(prefix: str, tmp_path: Path) -> None:
    path = Checkpoint(a=variable(1.0), b=variable(numbers(100))).write(prefix)
    (data,) = tmp_path.glob("ckpt.data-*")
    whole = data.read_bytes()
    at = whole.index(numbers(100).tobytes()) + 40
    data.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    checkpoint = Checkpoint(a=variable(7.0), b=variable(numbers(100) * 0))
    with pytest.raises(errors.DataLossError, match=data.name):
        checkpoint.read(path)
    assert float(checkpoint.a) == 7.0
    data.unlink()
    with pytest.raises(errors.NotFoundError, match=data.name):
        checkpoint.read(path)
    assert latest_checkpoint(tmp_path) is None


def test_one_object_that_became_two(prefix: str, caplog: pytest.LogCaptureFixture) -> None:
    shared = variable(1.0)
    path = Checkpoint(a=shared, b=shared).write(prefix)
    checkpoint = Checkpoint(a=variable(0.0), b=variable(0.0))
    with caplog.at_level(logging.WARNING, "sidereal"):
        checkpoint.read(path).expect_partial()
    assert "are one object in the checkpoint" in caplog.text
    assert float(checkpoint.a) == 1.0


def test_objects_that_name_each_other(prefix: str) -> None:
    def ring(value: float) -> Checkpoint:
        first = Checkpoint(v=variable(value))
        first.next = Checkpoint(previous=first, v=variable(value + 1))
        return first

    path = ring(1.0).write(prefix)
    other = ring(0.0)
    other.read(path).assert_consumed()
    assert (float(other.v), float(other.next.v)) == (1.0, 2.0)


def test_tensors_by_name_go_to_variables_of_that_name(prefix: str, tmp_path: Path) -> None:
    def saved(names: dict[str, Any]) -> str:
        """As a Saver writes it."""
        part = _tensor_files.write(
            prefix, [(name, sr.convert_to_tensor(value)) for name, value in names.items()], 0, 1
        )
        _tensor_files.commit(prefix, [part])
        return prefix

    path = saved({"w": [1.0, 2.0], "table": numbers(9, 4)})
    table = sharded(np.zeros([9, 4], np.float32), 5, 4)
    checkpoint = Checkpoint(any=variable([0.0, 0.0], name="w"), other=[table])
    checkpoint.read(path).assert_consumed()
    np.testing.assert_array_equal(checkpoint.any.numpy(), [1, 2])
    np.testing.assert_array_equal(table.numpy(), numbers(9, 4))
    checkpoint.restore(path).assert_consumed()
    partial = Checkpoint(v=variable([0.0, 0.0], name="w"), more=variable(0.0, name="more"))
    status = partial.read(path).expect_partial()
    assert partial.v.numpy().tolist() == [1, 2]
    with pytest.raises(AssertionError, match="has nothing for 1 objects of the program: more/"):
        status.assert_existing_objects_matched()
    only = Checkpoint(v=variable([0.0, 0.0], name="w"))
    with pytest.raises(AssertionError, match="no object for: table"):
        only.read(path).expect_partial().assert_consumed()


# --- Variables in shards.


@pytest.mark.parametrize("saved", [(5, 4), (3, 3, 3), (9,)])
@pytest.mark.parametrize("restored", [(5, 4), (4, 5), (2, 2, 2, 2, 1), (9,)])
def test_shards_are_one_tensor(
    prefix: str, saved: tuple[int, ...], restored: tuple[int, ...]
) -> None:
    whole = numbers(9, 4)
    path = Checkpoint(table=sharded(whole, *saved)).write(prefix)
    assert list_variables(path)[1] == (f"table/{VALUE}", [9, 4])
    np.testing.assert_array_equal(load_variable(path, f"table/{VALUE}"), whole)
    other = sharded(np.zeros_like(whole), *restored)
    Checkpoint(table=other).read(path).assert_consumed()
    np.testing.assert_array_equal(other.numpy(), whole)
    plain = variable(np.zeros_like(whole))
    Checkpoint(table=plain).read(path).assert_consumed()
    np.testing.assert_array_equal(plain.numpy(), whole)


def test_shards_that_are_made_later(prefix: str) -> None:
    whole = numbers(9, 4)
    path = Checkpoint(table=variable(whole)).write(prefix)
    checkpoint = Checkpoint()
    status = checkpoint.read(path)
    checkpoint.table = sharded(np.zeros_like(whole), 5, 4)
    np.testing.assert_array_equal(checkpoint.table.numpy(), whole)
    status.assert_consumed()


# --- Optimizers.


def trained(optimizer: Any, *variables: Any) -> None:
    for v in variables:
        shards = v.variables if isinstance(v, ShardedVariable) else [v]
        optimizer.apply_gradients([(sr.ones_like(shard), shard) for shard in shards])


@pytest.mark.parametrize("make", [sr.optimizers.Adam, sr.keras.optimizers.Adam])
def test_slots_come_back(prefix: str, make: Any) -> None:
    v, optimizer = variable([1.0, 2.0]), make(0.1)
    trained(optimizer, v)
    path = Checkpoint(v=v, optimizer=optimizer).save(prefix)
    assert f"v/.OPTIMIZER_SLOT/optimizer/m/{VALUE}" in names_of(path)
    other, fresh = variable([0.0, 0.0]), make(0.1)
    Checkpoint(v=other, optimizer=fresh).restore(path).assert_consumed()
    assert int(fresh.iterations) == 1
    for name, slot in optimizer.slots(v).items():
        np.testing.assert_array_equal(fresh.slots(other)[name].numpy(), slot.numpy())
    trained(optimizer, v)
    trained(fresh, other)
    np.testing.assert_array_equal(other.numpy(), v.numpy())


def test_slots_of_variables_that_are_made_later(prefix: str) -> None:
    v, optimizer = variable([1.0, 2.0]), sr.optimizers.Momentum(0.1)
    trained(optimizer, v)
    path = Checkpoint(v=v, optimizer=optimizer).save(prefix)
    fresh = sr.optimizers.Momentum(0.1)
    checkpoint = Checkpoint(optimizer=fresh)
    status = checkpoint.restore(path)
    with pytest.raises(AssertionError, match="OPTIMIZER_SLOT"):
        status.assert_consumed()
    checkpoint.v = other = variable([0.0, 0.0])
    status.assert_consumed()
    trained(optimizer, v)
    trained(fresh, other)
    np.testing.assert_array_equal(other.numpy(), v.numpy())


@pytest.mark.parametrize("make", [sr.optimizers.Adam, sr.optimizers.RowWiseAdagrad])
def test_slots_are_cut_as_their_variables_are(prefix: str, make: Any) -> None:
    table, optimizer = sharded(numbers(9, 4), 5, 4), make(0.1)
    trained(optimizer, table)
    path = Checkpoint(table=table, optimizer=optimizer).save(prefix)
    for name, shape in list_variables(path):
        if "OPTIMIZER_SLOT" in name:
            assert shape[0] == 9
    other, fresh = sharded(np.zeros([9, 4], np.float32), 3, 3, 3), make(0.1)
    Checkpoint(table=other, optimizer=fresh).restore(path).assert_consumed()
    np.testing.assert_array_equal(other.numpy(), table.numpy())
    for name in optimizer.slots(table.variables[0]):
        left, right = (
            np.concatenate([each.slots(shard)[name].numpy() for shard in whole.variables])
            for each, whole in ((optimizer, table), (fresh, other))
        )
        np.testing.assert_array_equal(left, right)


def test_slots_may_be_left_out(prefix: str) -> None:
    v, optimizer = variable([1.0]), sr.optimizers.Adam(0.1)
    trained(optimizer, v)
    path = Checkpoint(v=v, optimizer=optimizer).write(
        prefix, CheckpointOptions(experimental_skip_slot_variables=True)
    )
    assert names_of(path) == [f"optimizer/iter/{VALUE}", f"v/{VALUE}"]


# --- Iterators.


def test_an_iterator_goes_on_where_it_was(prefix: str) -> None:
    dataset = sr.data.Dataset.range(20).shuffle(5, seed=3).batch(2)
    it = iter(dataset)
    taken = [next(it).numpy().tolist() for _ in range(3)]
    path = Checkpoint(iterator=it).save(prefix)
    rest = [each.numpy().tolist() for each in it]
    other = iter(dataset)
    Checkpoint(iterator=other).restore(path).assert_consumed()
    assert [each.numpy().tolist() for each in other] == rest
    assert len(taken) + len(rest) == 10


# --- By name, and the manager.


def test_reading_by_name(prefix: str, tmp_path: Path) -> None:
    checkpoint = Checkpoint(v=variable(numbers(2, 3)), s=variable([b"a", b"bc"]))
    path = checkpoint.save(prefix)
    for where in (path, tmp_path):
        reader = load_checkpoint(where)
        assert reader.has_tensor(f"v/{VALUE}") and not reader.has_tensor("v")
        np.testing.assert_array_equal(reader.get_tensor(f"v/{VALUE}"), numbers(2, 3))
        assert reader.get_tensor(f"s/{VALUE}").tolist() == [b"a", b"bc"]
        assert reader.get_variable_to_shape_map()[f"v/{VALUE}"] == [2, 3]
        assert reader.get_variable_to_dtype_map()[f"s/{VALUE}"] == sr.string
        assert load_variable(where, f"save_counter/{VALUE}:0") == 1
        with pytest.raises(errors.NotFoundError, match=r"no tensor 'v'.*list_variables"):
            reader.get_tensor("v")
        assert f"v/{VALUE} (float32) [2, 3]" in reader.debug_string()


def test_a_manager_saves_and_goes_on(tmp_path: Path) -> None:
    step = variable(0, dtype="int64")
    checkpoint = Checkpoint(step=step)
    manager = CheckpointManager(
        checkpoint, tmp_path, max_to_keep=2, step_counter=step, checkpoint_interval=2
    )
    assert manager.restore_or_initialize() is None
    for _ in range(9):
        manager.save()
        step.assign_add(1)
    assert manager.checkpoints == [str(tmp_path / f"ckpt-{n}") for n in (4, 5)]
    other = Checkpoint(step=variable(0, dtype="int64"))
    again = CheckpointManager(
        other, tmp_path, max_to_keep=2, step_counter=other.step, checkpoint_interval=2
    )
    assert again.restore_or_initialize() == manager.latest_checkpoint
    assert int(other.step) == 8
    assert again.save() is None
    other.step.assign_add(2)
    assert again.save() == str(tmp_path / "ckpt-6")


def test_the_programs_of_the_guide_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[2] / "docs/guide/saving.md"
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for program in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(compile(program, str(page), "exec"), names)
    assert latest_checkpoint("run") == "run/ckpt-10"
    assert set(names["found"]) == {"loss", "mae"}
    assert not Path("backup").exists()
    assert load_variable("model", "global_step") == 8
