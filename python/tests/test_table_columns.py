"""Typed columns of tables in the engine: cells of every type are what they are as csv."""

from __future__ import annotations

import datetime as dt
import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather, orc, parquet
from table_files import read, same, spec_of

import sidereal as sr
from sidereal import _table_cells, _table_columns, errors

ROOT = Path(__file__).resolve().parents[2]
NONE: Any = None


def corners() -> dict[str, Any]:
    """Columns of all types that are numbers or text, with what is special of each: 6 rows."""
    at = dt.datetime(2020, 1, 2, 3, 4, 5, 678901)
    numbers = {
        f"{sign}int{bits}": pa.array(
            [np.iinfo(f"{sign}int{bits}").max, np.iinfo(f"{sign}int{bits}").min, 0, None, 7, 7],
            f"{sign}int{bits}",
        )
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    }
    utc = pa.timestamp("ns", "UTC")
    return numbers | {
        "wide": pa.array([2**63, 2**64 - 1, 2**63 - 1, None, 0, 1], pa.uint64()),
        "float16": pa.array(np.array([1.5, np.nan, -0.0, 65504, 6e-8, 2], np.float16)),
        "float32": pa.array([0.1, np.nan, -0.0, None, 3.4e38, 1e-7], pa.float32()),
        "float64": pa.array([0.1, np.nan, 1e10, 16777217.0, -9999999999.5, 1e-6]),
        "infinite": pa.array([float("inf"), -float("inf"), 5e-324, 1e300, None, 1.0]),
        "bool": pa.array([True, False, None, True, False, True]),
        "decimal": pa.array([decimal.Decimal("-1.50"), None, *map(decimal.Decimal, "0123")]),
        "date": pa.array([at.date(), None, at.date(), dt.date(1, 1, 1), at.date(), at.date()]),
        "at": pa.array([at, None, at, at, at, at], pa.timestamp("us")),
        "zone": pa.array([at, None, at, at, at, at], utc),
        "time": pa.array([at.time(), None, at.time(), at.time(), at.time(), at.time()]),
        "duration": pa.array([1, None, -3, 4, 5, 6], pa.int64()),
        "text": pa.array(["a", "", None, 'q"u,o\nte', "ünï", "x" * 300]),
        "large": pa.array(["a", "", None, "b", "c", "d"], pa.large_string()),
        "view": pa.array(["a", "", None, "b", "longer than twelve", "d"], pa.string_view()),
        "bytes": pa.array([b"\xff\xfe", b"", None, b"\0\1", b"b", b"c"], pa.binary()),
        "fixed": pa.array([b"ab", b"\xff\xff", None, b"cd", b"ef", b"gh"], pa.binary(2)),
        "dictionary": pa.array(["a", "b", None, "a", "", "b"]).dictionary_encode(),
        "numbered": pa.array([10, 20, None, 10, 30, 20]).dictionary_encode(),
        "no type": pa.nulls(6),
        "texts": pa.array([["a", "b"], [], None, ["c", None], [""], ["d|e", "f"]]),
        "ints": pa.array([[1, 2**60], [], None, [3, None], [-4], [5]]),
        "floats": pa.array([[1.5, float("nan")], [], None, [1e-7], [2.0], [0.1]]),
        "pairs": pa.array([[1, 2], [3, 4], None, [5, 6], [7, 8], [9, 10]], pa.list_(pa.int8(), 2)),
        "nested": pa.array([[[1, 2], [3]], [], None, [[], [4]], [[5]], [None, [6]]]),
        "words": pa.array([["a"], [], None, ["b", "a"], ["b"], ["c"]]).cast(
            pa.list_(pa.dictionary(pa.int8(), pa.string()))
        ),
        "struct": pa.StructArray.from_arrays(
            [pa.array([1, None, 3, 4, 5, 6]), pa.array([["x"], [], None, ["y"], [""], ["x"]])],
            ["n", "l"],
        ),
    }  # fmt: skip


def stored(table: Any, folder: Path, name: str, rows: int = 2) -> Path:
    """A table as a file whose batches have so many rows."""
    path = folder / f"x.{name}"
    if name == "parquet":
        parquet.write_table(table, path, row_group_size=rows)
    elif name == "orc":
        orc.write_table(table, path)
    elif name == "csv":
        pieces = _table_cells.text_pieces(table, ",", True)
        path.write_bytes(b"".join(pieces))
    else:
        feather.write_feather(table, path, chunksize=rows)
    return path


def table_of(columns: dict[str, Any]) -> Any:
    rows = len(next(iter(columns.values())))
    return pa.table({"click": pa.array([i % 2 for i in range(rows)], pa.uint8()), **columns})


@pytest.mark.parametrize("name", list(corners()))
def test_cells_of_every_type_are_the_categories_of_their_text(name: str, tmp_path: Path) -> None:
    table = table_of({name: corners()[name]})
    options: dict[str, Any] = {"numeric": [], "hash_buckets": 1 << 30}
    expected = read(spec_of(stored(table, tmp_path, "csv"), **options))
    same(read(spec_of(stored(table, tmp_path, "arrow"), **options)), expected)
    # What begins in the middle of a byte of bits, or of a buffer of offsets.
    spec = sr.data.table(pa.table({"click": [1], name: [None]}, table.schema), label="click")
    assert spec.files
    (tmp_path / "cut").mkdir()
    parts = [table.slice(i, n) for i, n in ((3, 3), (0, 3))]
    joined = pa.concat_tables(parts)
    expected = read(spec_of(stored(joined, tmp_path / "cut", "csv"), **options))
    same(read(spec_of(stored(joined, tmp_path / "cut", "arrow"), **options)), expected)


@pytest.mark.parametrize("name", ["parquet", "orc"])
def test_corners_of_types_are_read_of_files_with_types(name: str, tmp_path: Path) -> None:
    left_out = {
        "parquet": ["float16", "view", "words"],
        "orc": ["uint8", "uint16", "uint32", "uint64", "wide", "float16", "view", "fixed", "pairs",
                "dictionary", "numbered", "no type", "time", "words", "zone", "date", "decimal"],
    }[name]  # fmt: skip
    table = table_of({key: value for key, value in corners().items() if key not in left_out})
    if name == "orc":
        table = table.set_column(0, "click", table["click"].cast(pa.int8()))
    options: dict[str, Any] = {"numeric": [], "hash_buckets": 1 << 30}
    path = stored(table, tmp_path, name)
    found = read(spec_of(path, **options))
    whole = orc.read_table(path) if name == "orc" else parquet.read_table(path)
    same(found, read(spec_of(stored(whole, tmp_path, "csv"), **options)))


NUMBERS = [
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "wide", "float16",
    "float32", "float64", "bool", "decimal", "numbered", "no type",
]  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_every_type_are_what_their_text_is(name: str, tmp_path: Path) -> None:
    column = corners()[name]
    if pa.types.is_floating(column.type):
        # Not all are numbers of 32 bits.
        column = column.take(pa.array([0, 1, 2, 3, 4 if name != "float16" else 3, 0]))
    table = table_of({name: column})
    options: dict[str, Any] = {
        "numeric": [name], "default": {name: -5}, "buckets": {name: [0, 10]},
    }  # fmt: skip
    found = [read(spec_of(stored(table, tmp_path, kind), **options)) for kind in ("csv", "arrow")]
    same(*found)
    assert (found[0]["dense"][column.is_null().to_numpy(zero_copy_only=False), 0] == -5).all()


def test_numbers_are_rounded_as_their_text(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    values = random.normal(size=2000) * 10.0 ** random.integers(-30, 30, 2000)
    # Half way between two floats.
    halves = values[:500].astype(np.float32).astype(np.float64)
    bits = halves.view(np.uint64) | np.uint64(1 << 28)
    table = table_of({"x": pa.array(np.concatenate([values, bits.view(np.float64)]))})
    found = [
        read(spec_of(stored(table, tmp_path, name, 512), numeric=["x"]))
        for name in ("csv", "arrow")
    ]
    same(*found)


def test_what_is_no_number_is_told_as_of_text(tmp_path: Path) -> None:
    for value, said in ((float("inf"), "'inf'"), (1e39, r"'1e\+39'")):
        path = stored(table_of({"x": pa.array([1.0, value])}), tmp_path, "parquet")
        with pytest.raises(errors.InvalidArgumentError, match=f"row 2: column 'x' is {said}, not"):
            read(spec_of(path, numeric=["x"]))
    path = stored(pa.table({"click": [0.5], "x": [1]}), tmp_path, "parquet")
    with pytest.raises(errors.InvalidArgumentError, match="row 1: the label '0.5'"):
        read(spec_of(path, numeric=["x"]))
    path = stored(pa.table({"click": pa.array([None], pa.int8()), "x": [1]}), tmp_path, "parquet")
    with pytest.raises(errors.InvalidArgumentError, match="row 1: the label ''"):
        read(spec_of(path, numeric=["x"]))


@pytest.mark.parametrize("rule", ["click", "click>=1", "click=1", "click!=1"])
def test_labels_weights_targets_and_groups_are_of_cells(rule: str, tmp_path: Path) -> None:
    table = pa.table(
        {
            "click": pa.array([0, 1, 1, 0], pa.int16()),
            "weight": [0.5, 1.0, 2.0, 0.25],
            "buy": pa.array([True, False, True, True]),
            "query": [7, 7, 8, 2**62],
            "x": [1.0, 2.0, 3.0, 4.0],
        }
    )
    options: dict[str, Any] = {
        "label": rule, "numeric": ["x"], "weight": "weight", "targets": ["buy"], "group": "query",
    }  # fmt: skip
    found = [read(spec_of(stored(table, tmp_path, kind), **options)) for kind in ("csv", "parquet")]
    same(*found)
    assert found[0]["sample_weight"].tolist() == [0.5, 1, 2, 0.25]


def test_ids_of_an_id_space_are_taken_as_they_are(tmp_path: Path) -> None:
    table = table_of({"user": pa.array([5, 0, 9], pa.uint32()), "item": ["1", " 2", "3"]})
    found = [
        read(spec_of(stored(table, tmp_path, kind), numeric=[], id_space=10))
        for kind in ("csv", "parquet")
    ]
    same(*found)
    assert found[1]["ids"].tolist() == [[5, 1], [0, 2], [9, 3]]
    path = stored(table_of({"user": pa.array([2**63], pa.uint64())}), tmp_path, "parquet")
    with pytest.raises(errors.InvalidArgumentError, match="'9223372036854775808', not an integer"):
        read(spec_of(path, numeric=[], id_space=10))


def test_statistics_are_of_cells_as_of_text(tmp_path: Path) -> None:
    table = table_of({key: value for key, value in corners().items() if key in NUMBERS})
    options: dict[str, Any] = {
        "numeric": ["int16", "float64"], "numeric_transform": "auto", "categorical": ["wide"],
        "vocabularies": ["wide"],
    }  # fmt: skip
    specs = [
        spec_of(stored(table, tmp_path, kind), **options).with_statistics()
        for kind in ("csv", "arrow")
    ]
    assert specs[0].transforms == specs[1].transforms
    assert specs[0].vocabularies == specs[1].vocabularies
    assert "18446744073709551615" in specs[1].vocabularies[0].tokens


def test_a_row_of_one_empty_cell_is_a_row(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    parquet.write_table(pa.table({"c": ["a", None, "b"]}), path)
    found = read(sr.data.csv(path, label="", categorical=["c"]))
    assert len(found["ids"]) == 3


def test_files_have_their_columns_in_their_own_order_and_types(tmp_path: Path) -> None:
    first = pa.table({"click": [0, 1], "price": [1.0, 2.0], "city": ["a", "b"], "more": [1, 2]})
    other = pa.table({"city": ["a", "b"], "price": ["1", "2"], "click": [False, True]})
    parquet.write_table(first, tmp_path / "a.parquet")
    parquet.write_table(other, tmp_path / "b.parquet")
    found = read(spec_of(tmp_path / "a.parquet", tmp_path / "b.parquet", categorical=["city"]))
    for value in found.values():
        np.testing.assert_array_equal(value[:2], value[2:])


def test_columns_that_nobody_wants_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    table = pa.table(
        {
            "click": [0, 1],
            "price": [1.0, 2.0],
            "text": ["x" * 1000] * 2,
            "s": [{"n": 1, "t": "y" * 1000}] * 2,
        }
    )
    parquet.write_table(table, path)
    ((frame, part),) = _table_columns.frames_of(str(path), "parquet", ["click", "s.n"])
    text = b"".join(frame)
    assert part == 1
    assert b"text" in text
    assert b"xxx" not in text
    assert b"yyy" not in text
    # Of none the names are sent all the same.
    frame, _ = next(_table_columns.frames_of(str(path), "parquet", []))
    assert all(name in b"".join(frame) for name in (b"price", b"s.t"))


def test_frames_are_small_however_large_cells_are(tmp_path: Path) -> None:
    large, words = "x" * (1 << 20), pa.array(["a", "b" * (8 << 20)])
    table = pa.table(
        {
            "click": [0] * 1000 + [1] * 20,
            "text": [""] * 1000 + [large] * 20,
            "word": pa.DictionaryArray.from_arrays(pa.array([0] * 1020), words),
        }
    )
    path = stored(table, tmp_path, "arrow", 2000)
    frames = [b"".join(frame) for frame, _ in _table_columns.frames_of(str(path), "arrow", None)]
    assert max(map(len, frames)) < 5 << 20
    assert len(frames) < 30
    found = read(spec_of(path, numeric=[]))
    assert found["label"].tolist() == table["click"].to_pylist()


def test_a_row_that_is_too_large_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_table_columns, "_FRAME_MAX", 1000)
    path = stored(pa.table({"text": ["x" * 2000]}), tmp_path, "parquet")
    with pytest.raises(errors.InvalidArgumentError, match="x.parquet: a row has .*1000"):
        list(_table_columns.frames_of(str(path), "parquet", None))


def test_frames_have_the_bytes_of_the_format(tmp_path: Path) -> None:
    """tests/corpus/columns has what docs/formats/columns.md says, which the engine reads."""
    table = pa.table(
        {
            "i": pa.array([1, None, -3], pa.int8()),
            "u": pa.array([0, 1, 2**64 - 1], pa.uint64()),
            "f": pa.array([0.5, None, 2.5], pa.float32()),
            "t": ["a", None, "bc"],
            "d": pa.array(["x", "y", "x"]).dictionary_encode(),
            "l": pa.array([[1, None], [], None], pa.list_(pa.int32())),
            "s": [["a"], ["b", "c"], []],
        }
    )
    path = stored(table, tmp_path, "arrow", 3)
    wanted = ["i", "u", "f", "d", "l", "s"]
    frames = [b"".join(frame) for frame, _ in _table_columns.frames_of(str(path), "arrow", wanted)]
    assert frames[0][4:8] == bytes(4)
    assert frames[1] == (ROOT / "tests/corpus/columns/of_every_kind").read_bytes()


TEXTS = ["text", "large", "view", "bytes", "fixed", "dictionary", "texts", "date", "no type"]


@pytest.mark.parametrize("shards", [1, 2])
def test_a_dataset_gives_texts_of_every_kind(shards: int, tmp_path: Path) -> None:
    table = pa.table({name: corners()[name] for name in TEXTS})
    path = stored(table, tmp_path, "arrow", 4)
    cells = {name: _table_cells.cells_of(column) for name, column in corners().items()}
    for index in range(shards):
        batches = list(sr.data.TableDataset(path, 3, num_shards=shards, index=index))
        for name in TEXTS:
            expected = [x or b"" for x in cells[name].cast(pa.binary()).to_pylist()]
            found = [x for batch in batches for x in batch[name].numpy().tolist()]
            assert found == expected[index::shards], name


def test_texts_of_offsets_are_checked() -> None:
    from sidereal._engine import ENGINE

    text = np.frombuffer(b"abcd", np.uint8)
    made = ENGINE.from_texts(np.array([1, 2, 2, 4]), text)
    assert made.numpy().tolist() == [b"b", b"", b"cd"]
    assert ENGINE.from_texts(np.array([0]), text).shape == (0,)
    for wrong in ([], [-1, 2], [0, 5], [2, 1]):
        with pytest.raises(errors.InvalidArgumentError, match="offsets do not ascend"):
            ENGINE.from_texts(np.array(wrong, np.int64), text)
