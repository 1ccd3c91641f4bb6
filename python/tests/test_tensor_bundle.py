"""`sidereal ckpt` against TensorFlow itself and NumPy: each reads what the other has written."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from session_servers import PROGRAM
from strategies import cluster_fixture, strategy_of

import sidereal as sr
from sidereal import v1
from sidereal._dispatch import apply
from sidereal.distribute.experimental.partitioners import FixedShardsPartitioner

tf = pytest.importorskip("tensorflow", reason="TensorFlow reads and writes the bundles")

cluster = cluster_fixture(2, 1, ("grpc", "star_server"))
NUMBERS = ["float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint64", "uint32"]
NUMBERS += ["uint16", "uint8"]


def ckpt(*arguments: Any, code: int = 0) -> str:
    """What `sidereal ckpt` prints; its errors when it ends with another code."""
    words = [PROGRAM, "ckpt", *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def arrays() -> dict[str, np.ndarray]:
    """Tensors of every dtype and of many shapes."""
    rng = np.random.default_rng(3)
    out: dict[str, np.ndarray] = {
        f"of/{dtype}": rng.integers(0, 100, (3, 4)).astype(dtype) for dtype in NUMBERS
    }
    out["flags"] = rng.random((2, 3, 5)) < 0.5
    out["scalar"] = np.float32(2.5)
    out["none"] = np.zeros((0, 7), np.float32)
    out["words"] = np.array([[b"one", b""], [b"\xff\x01", "drei: ä".encode()]])
    out["odd \x01 name/\xe4"] = np.arange(5)
    return out


def save(prefix: Path, tensors: dict[str, Any], slices: dict[str, str] | None = None) -> None:
    names = list(tensors)
    parts = [(slices or {}).get(name, "") for name in names]
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=names,
        shape_and_slices=parts,
        tensors=[tf.constant(tensors[name]) for name in names],
    )


def test_tensorflow_reads_what_is_converted_to_a_bundle(tmp_path: Path) -> None:
    wanted = arrays()
    np.savez(tmp_path / "x.npz", **wanted)
    ckpt("convert", tmp_path / "x.npz", tmp_path / "model.ckpt-1", "--to", "tf")
    reader = tf.train.load_checkpoint(str(tmp_path / "model.ckpt-1"))
    shapes = reader.get_variable_to_shape_map()
    assert set(shapes) == set(wanted)
    for name, value in wanted.items():
        got = reader.get_tensor(name)
        assert shapes[name] == list(value.shape)
        np.testing.assert_array_equal(got, value)
        if value.dtype.kind != "S":
            assert reader.get_variable_to_dtype_map()[name].as_numpy_dtype == value.dtype


def test_every_dtype_that_tensorflow_saves_is_read(tmp_path: Path) -> None:
    wanted = arrays()
    save(tmp_path / "m", wanted)
    assert f"{len(wanted)} tensors are whole" in ckpt("verify", tmp_path / "m")
    ckpt("convert", tmp_path / "m", tmp_path / "m.npz")
    got = np.load(tmp_path / "m.npz")
    assert set(got.files) == set(wanted)
    for name, value in wanted.items():
        assert got[name].shape == value.shape
        np.testing.assert_array_equal(got[name], value)


def test_bfloat16_goes_through_all_formats(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    x = tf.cast(tf.constant(rng.normal(size=(50, 3))), tf.bfloat16)
    save(tmp_path / "a", {"x": x})
    ckpt("convert", tmp_path / "a", tmp_path / "b.npz")
    ckpt("convert", tmp_path / "b.npz", tmp_path / "c.safetensors")
    ckpt("convert", tmp_path / "c.safetensors", tmp_path / "d", "--to", "tf")
    got = tf.train.load_checkpoint(str(tmp_path / "d")).get_tensor("x")
    assert got.dtype == x.dtype.as_numpy_dtype
    np.testing.assert_array_equal(got, x.numpy())
    bits = np.load(tmp_path / "b.npz")["x"].view(np.uint16)
    np.testing.assert_array_equal(bits, x.numpy().view(np.uint16))


def sharded(folder: Path) -> tuple[Path, dict[str, np.ndarray]]:
    """A checkpoint in two data files, with variables that were cut between them."""
    rng = np.random.default_rng(3)
    table = rng.normal(size=(300, 70)).astype(np.float32)
    wide = rng.integers(0, 9, (4, 1000))
    words = np.array([f"word {i}".encode() for i in range(200)])
    save(
        folder / "part0",
        {"table": table[:100], "wide": wide[:, :64], "words": words[:130], "step": np.int64(7)},
        {"table": "300 70 0,100:-", "wide": "4 1000 -:0,64", "words": "200 0,130"},
    )
    save(
        folder / "part1",
        {"table": table[100:], "wide": wide[:, 64:], "words": words[130:]},
        {"table": "300 70 100,200:-", "wide": "4 1000 -:64,936", "words": "200 130,70"},
    )
    parts = [str(folder / "part0"), str(folder / "part1")]
    prefix = folder / "model.ckpt-7"
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=str(prefix))
    return prefix, {"table": table, "wide": wide, "words": words, "step": np.int64(7)}


def test_slices_in_several_files_are_one_tensor(tmp_path: Path) -> None:
    prefix, wanted = sharded(tmp_path)
    assert len(list(tmp_path.glob("model.ckpt-7.data-*-of-00002"))) == 2
    ckpt("convert", prefix, tmp_path / "x.npz")
    got = np.load(tmp_path / "x.npz")
    for name, value in wanted.items():
        np.testing.assert_array_equal(got[name], value)
    assert "slice 300 70 100,200:-" in ckpt("cat", prefix, "table", "--limit", "1")
    (line,) = ckpt("rows", prefix, "wide", 2).splitlines()[1:]
    assert line == "  wide: " + " ".join(map(str, wanted["wide"][2]))
    ckpt("diff", prefix, tmp_path / "x.npz")


def test_slices_stay_slices_for_tensorflow(tmp_path: Path) -> None:
    prefix, wanted = sharded(tmp_path)
    ckpt("convert", prefix, tmp_path / "again", "--to", "tf")
    assert "slice 4 1000 -:64,936" in ckpt("cat", tmp_path / "again", "wide", "--limit", "1")
    reader = tf.train.load_checkpoint(str(tmp_path / "again"))
    for name, value in wanted.items():
        np.testing.assert_array_equal(reader.get_tensor(name), value)
    # A part that is none of those that were saved.
    (part,) = tf.raw_ops.RestoreV2(
        prefix=str(tmp_path / "again"),
        tensor_names=["table"],
        shape_and_slices=["300 70 90,20:-"],
        dtypes=[tf.float32],
    )
    np.testing.assert_array_equal(part, wanted["table"][90:110])


def test_objects_restore_from_what_was_converted(tmp_path: Path) -> None:
    def make(seed: int) -> Any:
        value = np.random.default_rng(seed).normal(size=(20, 4)).astype(np.float32)
        return tf.train.Checkpoint(
            table=tf.Variable(value), step=tf.Variable(seed), parts=[tf.Variable([True, False])]
        )

    prefix = make(1).save(str(tmp_path / "model"))
    # The folder's file `checkpoint` says which is meant.
    ckpt("convert", tmp_path, tmp_path / "again", "--to", "tf")
    restored = make(2)
    restored.restore(str(tmp_path / "again")).assert_existing_objects_matched()
    reader = tf.train.load_checkpoint(prefix)
    np.testing.assert_array_equal(
        restored.table, reader.get_tensor("table/.ATTRIBUTES/VARIABLE_VALUE")
    )
    assert int(restored.step) == 1
    # What a format has not is said.
    assert "left out: _CHECKPOINTABLE_OBJECT_GRAPH" in ckpt(
        "convert", prefix, tmp_path / "x.safetensors"
    )


def test_an_index_of_many_tensors(tmp_path: Path) -> None:
    wanted = {f"layer_{i}/weights_{i % 7}/kernel": np.float32(i) for i in range(6000)}
    save(tmp_path / "a", wanted)
    ckpt("convert", tmp_path / "a", tmp_path / "b", "--to", "tf")
    reader = tf.train.load_checkpoint(str(tmp_path / "b"))
    assert len(reader.get_variable_to_shape_map()) == len(wanted)
    for name in list(wanted)[::97]:
        assert reader.get_tensor(name) == wanted[name]


def test_what_tensorflow_has_and_sidereal_has_not_is_left_out(tmp_path: Path) -> None:
    save(tmp_path / "a", {"x": np.float32([1, 2]), "z": np.complex64([1j])})
    assert "(unknown)" in ckpt("ls", tmp_path / "a")
    assert "left out: z" in ckpt("convert", tmp_path / "a", tmp_path / "b.npz")
    assert np.load(tmp_path / "b.npz").files == ["x"]
    assert "dtype" in ckpt("cat", tmp_path / "a", "z", code=1)


def test_safetensors_are_what_the_format_says(tmp_path: Path) -> None:
    wanted = {name: value for name, value in arrays().items() if name != "words"}
    np.savez(tmp_path / "a.npz", **wanted)
    ckpt("convert", tmp_path / "a.npz", tmp_path / "a.safetensors")
    data = (tmp_path / "a.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    assert size % 8 == 0
    header = json.loads(data[8 : 8 + size])
    names = {"float32": "F32", "float64": "F64", "float16": "F16", "bool": "BOOL"}
    names |= {f"int{bits}": f"I{bits}" for bits in (8, 16, 32, 64)}
    names |= {f"uint{bits}": f"U{bits}" for bits in (8, 16, 32, 64)}
    assert set(header) == set(wanted)
    end = 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, to = entry["data_offsets"]
        assert begin == end and entry["dtype"] == names[wanted[name].dtype.name]
        assert begin % wanted[name].itemsize == 0
        got = np.frombuffer(data[8 + size + begin : 8 + size + to], wanted[name].dtype)
        np.testing.assert_array_equal(got.reshape(entry["shape"]), wanted[name])
        end = to
    assert 8 + size + end == len(data)


def test_compressed_and_unicode_arrays_of_numpy_are_read(tmp_path: Path) -> None:
    x = np.arange(100000, dtype=np.int64).reshape(1000, 100)
    text = np.array(["a", "ä€😀", ""])
    np.savez_compressed(tmp_path / "a.npz", x=x, text=text, turned=np.asfortranarray(x[:3, :3]))
    assert '"ä€😀"' in ckpt("cat", tmp_path / "a.npz", "text")
    assert ckpt("rows", tmp_path / "a.npz", "x", 999, 5).splitlines()[3].startswith("  x: 500 501 ")
    assert "Fortran" in ckpt("convert", tmp_path / "a.npz", tmp_path / "b", "--to", "tf", code=1)
    assert not list(tmp_path.glob("b*"))


def test_a_damaged_checkpoint_is_told_by_file_and_tensor(tmp_path: Path) -> None:
    prefix, _ = sharded(tmp_path)
    (data,) = tmp_path.glob("model.ckpt-7.data-00001-of-00002")
    bytes_of = bytearray(data.read_bytes())
    bytes_of[40000] ^= 1
    data.write_bytes(bytes_of)
    assert "1 of 4 tensors" in ckpt("verify", prefix, code=1)
    assert data.name in ckpt("convert", prefix, tmp_path / "x.npz", code=1)
    data.unlink()
    assert data.name in ckpt("convert", prefix, tmp_path / "x.npz", code=1)
    assert not (tmp_path / "x.npz").exists()


def save_ours(prefix: Path, parts: dict[str, tuple[str, np.ndarray]], *, name: str) -> None:
    """Variables that are parts of one tensor, and what is no variable, as a checkpoint of ours."""
    with v1.Graph().as_default(), v1.Session() as session:
        variables = [
            v1.get_variable(part, initializer=v1.constant_initializer(value), shape=value.shape)
            for part, (_, value) in parts.items()
        ]
        shards = len(parts) + 1
        saved = [
            apply(
                "SaveVariables",
                [v1.constant(str(prefix)), v1.constant(""), variable.handle],
                {"names": [name], "slices": [text], "shard": shard, "shards": shards},
            )
            for shard, (variable, (text, _)) in enumerate(
                zip(variables, parts.values(), strict=True)
            )
        ]
        notes = apply(
            "SaveTensors",
            [v1.constant(str(prefix)), v1.constant(["a", "\u2603"]), sr.constant(7, sr.int64)],
            {"names": ["note", "step"], "shard": shards - 1, "shards": shards},
        )
        cut = apply("CommitCheckpoint", [v1.constant(str(prefix)), v1.constant(""), *saved, notes])
        session.run(v1.global_variables_initializer())
        session.run(cut)


def test_tensorflow_reads_variables_that_lie_in_parts(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    table = rng.normal(size=(9, 4)).astype(np.float32)
    blocks = {"low": ("9 4 0,5:-", table[:5]), "high": ("9 4 5,4:-", table[5:])}
    # TensorFlow has no slices of every third row.
    turns = {f"turn_{i}": (f"9 4 {i},3,3:-", table[i::3]) for i in range(3)}
    for name, parts, slices in (("blocks", blocks, 2), ("turns", turns, 0)):
        ours, theirs = tmp_path / f"{name}-1", tmp_path / f"{name}-2"
        save_ours(ours, parts, name="table")
        assert ckpt("cat", ours, "table").count("slice ") == len(parts)
        assert ckpt("rows", ours, "table", 4).splitlines()[1] == "  table: " + " ".join(
            np.format_float_positional(x, trim="-") for x in table[4]
        )
        assert "3 tensors are whole" in ckpt("verify", ours)
        ckpt("convert", ours, theirs, "--to", "tf")
        reader = tf.train.load_checkpoint(str(theirs))
        np.testing.assert_array_equal(reader.get_tensor("table"), table)
        assert reader.get_tensor("note").tolist() == [b"a", "\u2603".encode()]
        assert reader.get_tensor("step") == 7
        assert ckpt("cat", theirs, "table").count("slice ") == slices
        ckpt("diff", ours, theirs)


def test_what_tensorflow_saved_becomes_a_checkpoint_of_ours(tmp_path: Path) -> None:
    prefix, wanted = sharded(tmp_path)
    ours = tmp_path / "ours"
    ckpt("convert", prefix, ours, "--to", "native")
    with v1.Graph().as_default(), v1.Session() as session:
        # Other parts than those that were saved.
        parts = [v1.get_variable(f"part_{i}", [100, 70]) for i in range(3)]
        restores = [
            apply(
                "RestoreVariables",
                [v1.constant(str(ours)), part.handle],
                {"names": ["table"], "slices": [f"300 70 {i},100,3:-"]},
            )
            for i, part in enumerate(parts)
        ]
        session.run(v1.global_variables_initializer())
        session.run(restores)
        for i, part in enumerate(session.run(parts)):
            np.testing.assert_array_equal(part, wanted["table"][i::3])
    reader = sr._native.CheckpointReader(str(ours))
    assert reader.read("step").numpy() == 7
    assert reader.read("words").tolist() == wanted["words"].tolist()


def test_objects_go_from_parameter_servers_to_tensorflow_and_back(
    cluster: Any, tmp_path: Path
) -> None:
    rng = np.random.default_rng(3)
    value = rng.normal(size=(11, 3)).astype(np.float32)
    with strategy_of(cluster, FixedShardsPartitioner(3)).scope():
        table, step = sr.Variable(value), sr.Variable(np.int64(7))
    checkpoint = sr.train.Checkpoint(net=sr.train.Checkpoint(table=table), step=step)
    checkpoint.save(str(tmp_path / "ours"))
    ckpt("convert", tmp_path, tmp_path / "theirs", "--to", "tf")
    assert ckpt("cat", tmp_path / "theirs", "net/table").count("slice ") == 3
    table_there = tf.Variable(np.zeros_like(value))
    step_there = tf.Variable(np.int64(0))
    there = tf.train.Checkpoint(net=tf.train.Checkpoint(table=table_there), step=step_there)
    there.restore(str(tmp_path / "theirs")).assert_existing_objects_matched()
    np.testing.assert_array_equal(table_there.numpy(), value)
    assert int(step_there) == 7

    table_there.assign_add(np.ones_like(value))
    saved = there.write(str(tmp_path / "back"))
    ckpt("convert", saved, tmp_path / "native", "--to", "native")
    checkpoint.read(str(tmp_path / "native")).assert_existing_objects_matched()
    np.testing.assert_array_equal(table.numpy(), value + 1)


def test_tables_go_to_tensorflow_and_back(tmp_path: Path) -> None:
    words = sr.lookup.experimental.MutableHashTable("string", "int64", -1)
    words.insert(sr.constant(["a", "b"]), sr.constant([1, 2], dtype="int64"))
    sr.train.Checkpoint(words=words).write(tmp_path / "ours")
    ckpt("convert", tmp_path / "ours", tmp_path / "theirs", "--to", "tf")
    there = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    tf.train.Checkpoint(words=there).read(str(tmp_path / "theirs")).assert_consumed()
    assert there.lookup(tf.constant(["a", "b", "c"])).numpy().tolist() == [1, 2, -1]
    there.insert(tf.constant(["b", "c"]), tf.constant([7, 8], tf.int64))
    tf.train.Checkpoint(words=there).write(str(tmp_path / "back"))
    ckpt("convert", tmp_path / "back", tmp_path / "native", "--to", "native")
    sr.train.Checkpoint(words=words).read(tmp_path / "native").assert_consumed()
    keys, values = words.export()
    assert dict(zip(keys.numpy(), values.numpy())) == {b"a": 1, b"b": 7, b"c": 8}
