"""sidereal.io: CSV records, raw numbers, tf.train.Example messages and files of records."""

from __future__ import annotations

import contextlib
import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs import in_graph

import sidereal as sr
from sidereal import io

# --- CSV.


def test_columns_have_the_dtypes_of_their_defaults() -> None:
    columns = io.decode_csv(
        ['1,"a ""b"", c",2.5', ",,", " 7 ,x,-1e3"], [sr.constant([5], dtype="int64"), "none", 0.5]
    )
    assert [column.dtype.name for column in columns] == ["int64", "string", "float32"]
    assert columns[0].tolist() == [1, 5, 7]
    assert columns[1].tolist() == [b'a "b", c', b"none", b"x"]
    assert columns[2].tolist() == [2.5, 0.5, -1000.0]


def test_columns_may_be_selected_and_required() -> None:
    a, c = io.decode_csv(["1\t2\t3", "4\tx\t6"], [sr.int32, 0], "\t", select_cols=[0, 2])
    assert a.tolist() == [1, 4] and c.tolist() == [3, 6]
    (only,) = io.decode_csv("NA", [7], na_value="NA")
    assert int(only) == 7


@pytest.mark.parametrize(
    ("records", "defaults", "options", "message"),
    [
        (["1,2", "3"], [0, 0], {}, "record 1: 1 fields where 2 columns are expected"),
        (["1", ""], [sr.int32], {}, "record 1: field 0 is required but empty"),
        (["1,x"], [0, 0], {}, "record 0: field 1 is 'x', which is no int32"),
        (["99999999999"], [0], {}, "which is no int32"),
        (['"a'], [""], {}, "field 1 opens a quote that never closes"),
        (['"a"b'], [""], {}, "goes on after its closing quote"),
        (['a"b'], [""], {}, "has a quote in it without being in quotes"),
        (["a\nb"], [""], {}, "has a line end in it"),
        (["1"], [0], {"select_cols": [3]}, "1 fields, but field 3 is selected"),
        (["1"], [0], {"select_cols": [0, 1]}, "select_cols names 2 columns, for 1 defaults"),
        (["1"], [0, 0], {"select_cols": [1, 1]}, "must count up"),
        (["1"], [0], {"field_delim": "ab"}, "field_delim has 2 bytes"),
        (["1"], [[0, 1]], {}, "must have one element"),
        (["1"], [True], {}, "default of column 0 is bool"),
        ([1], [0], {}, "must be string"),
    ],
)
def test_records_that_are_wrong_are_named(
    records: Any, defaults: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(sr.errors.InvalidArgumentError, match=message):
        io.decode_csv(records, defaults, **options)


def test_csv_in_a_graph_outlives_its_records() -> None:
    def function(x: sr.Tensor) -> list[sr.Tensor]:
        return io.decode_csv(x, ["", 0.0])

    values = [sr.constant([f'"quoted ""{i}""",{i}' for i in range(50)])]
    words, numbers = in_graph(function, values, False)
    assert words.tolist() == [f'quoted "{i}"'.encode() for i in range(50)]
    assert numbers.tolist() == list(range(50))


# --- Raw numbers.


def test_raw_numbers_come_back() -> None:
    x = np.arange(12, dtype=np.float64).reshape(2, 2, 3)
    for little in (True, False):
        raw = io.encode_raw(x, little_endian=little)
        assert raw.shape == (2, 2)
        assert io.decode_raw(raw, "float64", little_endian=little).tolist() == x.tolist()
    assert raw.tolist()[0][0] == x[0, 0].astype(">f8").tobytes()
    with pytest.raises(sr.errors.InvalidArgumentError, match="element 1 has 2 bytes"):
        io.decode_raw(["abcd", "ab"], "int16")
    with pytest.raises(sr.errors.InvalidArgumentError, match="no whole number of int16"):
        io.decode_raw(["abc"], "int16")
    with pytest.raises(sr.errors.InvalidArgumentError, match="no multiple"):
        io.decode_raw(["abc"], "int16", fixed_length=3)
    with pytest.raises(sr.errors.ResourceExhaustedError):
        io.decode_raw(["abc"] * 100, "int16", fixed_length=1 << 40)


# --- tf.train.Example.

ROWS: list[dict[str, Any]] = [
    {"id": 7, "price": [1.5, 2.5], "name": "one", "tags": ["x", b"y\0"], "at": [3, 0],
     "what": [30.0, 10.0], "pairs": [1, 2, 3, 4]},
    {"id": [-5], "price": np.float32([3, 4]), "name": b"\xff", "at": [], "pairs": [5, 6]},
]  # fmt: skip
FEATURES: dict[str, Any] = {
    "id": io.FixedLenFeature([], "int64"),
    "price": io.FixedLenFeature([2], "float32"),
    "name": io.FixedLenFeature((1,), sr.string, "none"),
    "missing": io.FixedLenFeature([3], "float32", 0.5),
    "tags": io.VarLenFeature(sr.string),
    "pairs": io.FixedLenSequenceFeature([2], "int64", allow_missing=True, default_value=-1),
    "none": io.RaggedFeature("int64"),
    "placed": io.SparseFeature("at", "what", "float32", 4),
}


def encoded() -> list[bytes]:
    return [io.encode_example(row) for row in ROWS]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("graph", [True, False])
def test_features_are_dense_sparse_and_ragged(graph: bool, known: bool) -> None:
    def function(x: sr.Tensor) -> dict[str, Any]:
        return io.parse_example(x, FEATURES)

    values = [sr.constant(encoded())]
    made = function(*values)
    if graph:
        made = sr.nest.pack(made, in_graph(function, values, known))
    assert made["id"].tolist() == [7, -5]
    assert made["price"].tolist() == [[1.5, 2.5], [3, 4]]
    assert made["name"].tolist() == [[b"one"], [b"\xff"]]
    assert made["missing"].tolist() == [[0.5] * 3] * 2
    assert made["tags"].values.tolist() == [b"x", b"y\0"]
    assert made["tags"].indices.tolist() == [[0, 0], [0, 1]]
    assert made["tags"].dense_shape.tolist() == [2, 2]
    assert made["pairs"].tolist() == [[[1, 2], [3, 4]], [[5, 6], [-1, -1]]]
    assert made["none"].to_list() == [[], []]
    assert made["placed"].indices.tolist() == [[0, 0], [0, 3]]
    assert made["placed"].values.tolist() == [10.0, 30.0]
    assert made["placed"].dense_shape.tolist() == [2, 4]


def test_sparse_features_become_dense() -> None:
    made = io.parse_example(encoded(), FEATURES)
    assert sr.sparse.to_dense(made["placed"], -1.0).tolist() == [[10, -1, -1, 30], [-1] * 4]
    assert sr.sparse.to_dense(made["tags"]).tolist() == [[b"x", b"y\0"], [b"", b""]]
    x = sr.constant([1.0, 2.0])
    with sr.GradientTape() as tape:
        tape.watch(x)
        sparse = sr.sparse.SparseTensor([[0, 1], [1, 0]], x, [2, 2])
        loss = sr.reduce_sum(sr.sparse.to_dense(sparse) * [[1.0, 2.0], [3.0, 4.0]])
    assert tape.gradient(loss, x).tolist() == [2, 3]
    with pytest.raises(sr.errors.InvalidArgumentError):
        sr.sparse.to_dense(sr.sparse.SparseTensor([[2]], [1.0], [2]))


def test_a_single_example_has_no_rows() -> None:
    made = io.parse_single_example(encoded()[0], FEATURES)
    assert made["id"].shape == () and int(made["id"]) == 7
    assert made["price"].tolist() == [1.5, 2.5]
    assert made["tags"].indices.tolist() == [[0], [1]]
    assert made["tags"].dense_shape.tolist() == [2]
    assert made["pairs"].tolist() == [[1, 2], [3, 4]]
    assert made["none"].shape == (0,)
    assert made["placed"].indices.tolist() == [[0], [3]]


def test_features_of_no_examples_are_empty() -> None:
    made = io.parse_example(sr.constant([], dtype="string"), FEATURES)
    assert made["price"].shape == (0, 2) and made["pairs"].shape == (0, 0, 2)
    assert made["tags"].dense_shape.tolist() == [0, 0]


def test_functions_of_text_are_saved(tmp_path: Path) -> None:
    @sr.function(input_signature=[sr.TensorSpec([None], "string")])
    def parsed(x: sr.Tensor) -> tuple[sr.Tensor, ...]:
        made = io.parse_example(x, FEATURES)
        ids = sr.strings.to_hash_bucket_strong(made["tags"].values, 1000, [1, 1 << 63])
        record = sr.strings.as_string(made["id"]) + ",z\0"
        return (ids, made["name"], made["placed"].indices, *io.decode_csv(record, [sr.int64, ""]))

    sr.saved_model.save(parsed, tmp_path / "saved")
    loaded = sr.saved_model.load(tmp_path / "saved")
    examples = sr.constant(encoded())
    for ours, theirs in zip(parsed(examples), loaded(examples)):
        assert ours.tolist() == theirs.tolist()


def refused(
    message: str, feature: Any, row: dict[str, Any] | bytes, key: str = "x"
) -> None:
    content = row if isinstance(row, bytes) else io.encode_example(row)
    with pytest.raises(sr.errors.InvalidArgumentError, match=message):
        io.parse_example([io.encode_example({"x": [1, 2]}), content], {key: feature})


def test_examples_that_are_wrong_are_named() -> None:
    two = io.FixedLenFeature([2], "int64")
    refused("example 1: feature 'x': it is required but missing", two, {})
    refused("example 1: feature 'x': 1 values where shape .* needs 2", two, {"x": 1})
    refused("example 1: feature 'x': it holds a list of float, not of int64", two, {"x": 1.0})
    refused("example 1: no tf.train.Example: the 3 bytes make no sense", two, b"abc")
    refused("no whole number of rows of 2", io.FixedLenSequenceFeature([2], "int64", True),
            {"x": [1, 2, 3]})
    refused("must be float32, int64 or string", io.VarLenFeature("int32"), {})
    refused("must be float32, int64 or string", io.FixedLenFeature([2], "float64"), {})
    refused("all extents must be known", io.FixedLenFeature([None], "int64"), {})
    refused("allow_missing must be true", io.FixedLenSequenceFeature([], "int64"), {})
    refused("must be a FixedLenFeature", "int64", {})
    placed = io.SparseFeature("x", "y", "float32", 3)
    refused("different lengths", placed, {"x": [0, 1], "y": [1.0]})
    with pytest.raises(sr.errors.InvalidArgumentError, match="not below 1"):
        io.parse_example([io.encode_example({"x": [0, 1], "y": [0.5, 1.5]})],
                         {"p": io.SparseFeature("x", "y", "float32", 1)})
    with pytest.raises(sr.errors.InvalidArgumentError, match="no features"):
        io.parse_example([b""], {})


def test_the_last_of_equal_names_counts() -> None:
    both = io.encode_example({"x": 1}) + io.encode_example({"x": 2})
    made = io.parse_example([both], {"x": io.FixedLenFeature([], "int64")})
    assert made["x"].tolist() == [2]


def test_cut_and_changed_examples_are_read_or_refused() -> None:
    random = np.random.default_rng(5)
    good = encoded()[0]
    for _ in range(300):
        content = bytearray(good[: random.integers(len(good) + 1)])
        for at in random.integers(0, len(content), 2) if content else []:
            content[at] = random.integers(256)
        with contextlib.suppress(sr.errors.InvalidArgumentError):
            io.parse_example([bytes(content)], FEATURES)


def message_classes() -> Any:
    """Example, as the protobuf package makes it of the fields of TensorFlow's files."""
    pytest.importorskip("google.protobuf", reason="protobuf is not installed")
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="e.proto", package="e", syntax="proto3")
    repeated, single, message = 3, 1, 11

    def add(name: str, *fields: tuple[str, int, int, int, str]) -> Any:
        made = file.message_type.add(name=name)
        for field, number, label, kind, type_name in fields:
            one = made.field.add(name=field, number=number, label=label, type=kind)
            if type_name:
                one.type_name = type_name
        return made

    add("BytesList", ("value", 1, repeated, 12, ""))
    add("FloatList", ("value", 1, repeated, 2, ""))
    add("Int64List", ("value", 1, repeated, 3, ""))
    feature = add(
        "Feature", ("bytes_list", 1, single, message, ".e.BytesList"),
        ("float_list", 2, single, message, ".e.FloatList"),
        ("int64_list", 3, single, message, ".e.Int64List"),
    )  # fmt: skip
    feature.oneof_decl.add(name="kind")
    for field in feature.field:
        field.oneof_index = 0
    features = add("Features", ("feature", 1, repeated, message, ".e.Features.FeatureEntry"))
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=single, type=9)
    entry.field.add(name="value", number=2, label=single, type=message, type_name=".e.Feature")
    add("Example", ("features", 1, single, message, ".e.Features"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("e.Example"))


def test_protobuf_reads_what_is_written_and_writes_what_is_read() -> None:
    example_class = message_classes()
    theirs = example_class.FromString(io.encode_example(ROWS[0]))
    feature = theirs.features.feature
    assert feature["id"].int64_list.value == [7]
    assert feature["price"].float_list.value == [1.5, 2.5]
    assert feature["tags"].bytes_list.value == [b"x", b"y\0"]

    example = example_class()
    example.features.feature["big"].int64_list.value.extend([-(1 << 63), (1 << 63) - 1, 0, 300])
    example.features.feature["real"].float_list.value.extend([0.5, -0.0, 1e30])
    example.features.feature["text"].bytes_list.value.extend([b"", b"\0\xff" * 100])
    example.features.feature["empty"].float_list.SetInParent()
    made = io.parse_single_example(
        example.SerializeToString(),
        {
            "big": io.RaggedFeature("int64"), "real": io.FixedLenFeature([3], "float32"),
            "text": io.RaggedFeature(sr.string), "empty": io.RaggedFeature("float32"),
        },
    )  # fmt: skip
    assert made["big"].tolist() == [-(1 << 63), (1 << 63) - 1, 0, 300]
    assert made["real"].tolist() == np.float32([0.5, -0.0, 1e30]).tolist()
    assert made["text"].tolist() == [b"", b"\0\xff" * 100]
    assert made["empty"].shape == (0,)


def test_single_numbers_are_written_as_lists_of_one() -> None:
    for one in (0, -1, (1 << 63) - 1, 1.5, -0.0, 1e300, float("-inf"), True, np.int8(3), "x", b""):
        assert io.encode_example({"x": one}) == io.encode_example({"x": [one]}), one


@pytest.mark.parametrize("value", [1 << 63, 1j, {"a": 1}, ["x", 1], np.uint64([1 << 63])])
def test_what_no_feature_can_hold_is_refused(value: Any) -> None:
    with pytest.raises(sr.errors.InvalidArgumentError, match="feature 'x'"):
        io.encode_example({"x": value})


# --- Files of records.

RECORDS = [b"", b"one", bytes(range(256)) * 1000, encoded()[0]]


@pytest.mark.parametrize("options", [None, "GZIP"])
def test_records_come_back(tmp_path: Path, options: str | None) -> None:
    path = tmp_path / "records"
    with io.TFRecordWriter(path, options) as writer:
        for record in RECORDS:
            writer.write(record)
    assert list(io.tf_record_iterator(path, options)) == RECORDS


def test_a_file_has_the_bytes_of_tensorflows(tmp_path: Path) -> None:
    path = tmp_path / "records"
    with io.TFRecordWriter(path) as writer:
        writer.write(b"123456789")
    content = path.read_bytes()
    # CRC-32C of "123456789" is 0xE3069283.
    crc = 0xE3069283
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    assert content[:8] == struct.pack("<Q", 9)
    assert content[12:] == b"123456789" + struct.pack("<I", masked)


def test_broken_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "records"
    with io.TFRecordWriter(path) as writer:
        writer.write(b"abc")
        writer.write(b"def")
    good = path.read_bytes()
    for at, message in [(1, "byte 0: .*of a length"), (13, "byte 12: .*of a record"),
                        (33, "byte 31: .*of a record")]:  # fmt: skip
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises(sr.errors.DataLossError, match=message):
            list(io.tf_record_iterator(path))
    path.write_bytes(good[:-1])
    with pytest.raises(sr.errors.DataLossError, match="the file ends where 1 more"):
        list(io.tf_record_iterator(path))
    path.write_bytes(gzip.compress(good)[:-9])
    with pytest.raises(sr.errors.DataLossError):
        list(io.tf_record_iterator(path, "GZIP"))
    with pytest.raises(sr.errors.UnimplementedError, match="ZLIB"):
        io.TFRecordWriter(path, "ZLIB")
