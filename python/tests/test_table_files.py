"""Tables of every format as csv() reads them, as datasets and in memory."""

from __future__ import annotations

import datetime as dt
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import json as arrow_json
from pyarrow import parquet
from table_files import FORMATS, ROWS, read, rows_of, same, spec_of, write

import sidereal as sr
from sidereal import _table_cells, _table_readers, errors
from sidereal._arrays import as_spec


@pytest.fixture
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    return read(spec_of(write(tmp_path_factory.mktemp("csv"), "csv")))


def test_csv_is_what_the_others_are_beside(expected: dict[str, np.ndarray]) -> None:
    assert expected["dense"][:, 0].tolist() == rows_of()["price"]
    assert expected["ids"].shape == (ROWS, 2)


def test_the_table_of_formats_has_a_reader_for_each() -> None:
    assert list(_table_readers.READERS) == FORMATS


@pytest.mark.parametrize("name", FORMATS)
def test_the_engine_reads_each_format_as_csv(
    name: str, tmp_path: Path, expected: dict[str, np.ndarray]
) -> None:
    same(read(spec_of(write(tmp_path, name))), expected)


def test_a_format_may_be_said_of_files_with_other_names(
    tmp_path: Path, expected: dict[str, np.ndarray]
) -> None:
    path = write(tmp_path, "parquet").rename(tmp_path / "part-0")
    same(read(spec_of(path, format="parquet")), expected)
    with pytest.raises(errors.InvalidArgumentError, match="'excel'.*parquet"):
        spec_of(path, format="excel")


def test_lists_missing_cells_and_bools_are_cells_of_csv(tmp_path: Path) -> None:
    table = pa.table(
        {
            "label": [True, False, True],
            "x": pa.array([1.5, None, float("nan")], pa.float32()),
            "tags": [["a", "b"], [], None],
            "at": pa.StructArray.from_arrays([pa.array([1, 2, 3])], ["n"]),
        }
    )
    parquet.write_table(table, tmp_path / "x.parquet")
    (tmp_path / "x.csv").write_text("label,x,tags,at.n\n1,1.5,a|b,1\n0,,,2\n1,,,3\n")
    options: dict[str, Any] = {
        "label": "label", "numeric": ["x"], "multi_hot": {"tags": ("|", 2)}, "default": {"x": 7},
    }  # fmt: skip
    expected = read(spec_of(tmp_path / "x.csv", **options))
    same(read(spec_of(tmp_path / "x.parquet", **options)), expected)


def text_of(batch: Any) -> bytes:
    return b"".join(_table_cells.text_pieces(batch, ",", True))


def test_what_is_missing_in_a_list_is_an_empty_value() -> None:
    kinds: list[tuple[str, list[Any], Any]] = [
        ("a", [["x", None, "y"], None, []], pa.list_(pa.string())),
        ("b", [[True, False], [None], [True]], pa.list_(pa.bool_())),
        ("c", [[1.5, float("nan")], [2.0, 3.0], None], pa.list_(pa.float64(), 2)),
        ("d", [[None, 1], [], [2]], pa.large_list(pa.int32())),
    ]
    table = pa.table({name: pa.array(cells, kind) for name, cells, kind in kinds})
    expected = b"a,b,c,d\nx||y,1|0,1.5|,|1\n,,2|3,\n,1,,2\n"
    assert text_of(table).replace(b'""', b"") == expected
    assert text_of(table.slice(1)).splitlines()[1:] == text_of(table).splitlines()[2:]


def test_columns_that_are_no_text_stop_nobody(tmp_path: Path) -> None:
    table = pa.table(
        {
            "click": [0, 1],
            "price": [1.0, 2.0],
            "raw": pa.array([b"\xff", b"b"], pa.binary()),
            "seen": pa.array(["a", "b"], pa.string_view()),
            "map": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int8())),
            "structs": [[{"n": 1}], []],
        }
    )
    path = tmp_path / "x.arrow"
    with pa.OSFile(str(path), "wb") as out, pa.ipc.new_file(out, table.schema) as file:
        file.write_table(table)
    assert text_of(table) == b"click,price,raw,seen\n0,1,\xff,a\n1,2,b,b\n"
    assert read(spec_of(path))["dense"][:, 0].tolist() == [1, 2]
    with pytest.raises(errors.InvalidArgumentError, match="'map'.*click, price, raw, seen"):
        spec_of(path, categorical=["map"]).inspect()
    batch = next(iter(sr.data.TableDataset(path, 2)))
    assert list(batch) == ["click", "price", "raw", "seen"]
    assert batch["raw"].numpy().tolist() == [b"\xff", b"b"]
    with pytest.raises(errors.InvalidArgumentError, match="x.arrow: column 'structs' is list"):
        sr.data.TableDataset(path, 2, ["click", "structs"])


def test_pieces_of_text_are_small_however_large_cells_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large, words = "x" * (1 << 20), pa.array(["a", "b" * (8 << 20)])
    table = pa.table(
        {
            "click": [0] * 1000 + [1] * 20,
            "text": [""] * 1000 + [large] * 20,
            # What all rows share is not counted for each.
            "word": pa.DictionaryArray.from_arrays(pa.array([0] * 1020), words),
        }
    )
    pieces = list(_table_cells.text_pieces(table, ",", True))
    assert max(map(len, pieces)) < 5 << 20
    assert len(pieces) < 30
    assert b"".join(pieces).count(b"\n") == 1021
    path = tmp_path / "x.arrow"
    with pa.OSFile(str(path), "wb") as out, pa.ipc.new_stream(out, table.schema) as stream:
        stream.write_table(table)
    found = [batch.num_rows for batch, _ in _table_readers.batches(str(path), "arrow", None, 300)]
    assert found == [0, 300, 300, 300, 120]
    monkeypatch.setattr(_table_readers, "_RECORDS_BYTES", 1000)
    path = write(tmp_path, "tfrecord")
    found = [batch.num_rows for batch, _ in _table_readers.batches(str(path), "tfrecord")]
    assert sum(found) == ROWS
    assert max(found) < 20


@pytest.mark.parametrize(
    "name", [name for name in FORMATS if name not in ("json_lines", "tfrecord")]
)
def test_a_file_without_rows_has_columns(
    name: str, tmp_path: Path, expected: dict[str, np.ndarray]
) -> None:
    for folder, rows in (("a", {key: value[:0] for key, value in rows_of().items()}), ("b", None)):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder, name, rows)
    (empty,) = (tmp_path / "a").iterdir()
    (full,) = (tmp_path / "b").iterdir()
    for files in ((empty, full), (full, empty)):
        same(read(spec_of(*files)), expected)
        batches = list(sr.data.TableDataset(list(files), 64, ["price"]))
        assert [len(batch["price"]) for batch in batches] == [64, 36]
    with pytest.raises(errors.InvalidArgumentError, match="day.*: there are no rows"):
        sr.data.TableDataset(empty, 10)


def test_json_lines_have_the_text_they_are_written_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        '{"x": 0.5, "day": "2020-01-01", "n": 18446744073709551615, "l": ["2020-01-01"], '
        '"s": {"a": 1, "b": "2020-01-01"}, "big": 1}',
        '{"x": 1e300, "day": "none", "n": 3, "l": [], "s": null, "big": -99999999999999999999}',
        '{"x": 1, "day": "2020-01-01T00:00:00Z", "n": 9007199254740993, "s": {"b": null, "a": 2}}',
        '{"day": "2020-01-01", "l": null}',
    ]
    path = tmp_path / "x.jsonl"
    path.write_text("".join(line + "\n" for line in lines))
    expected = [
        "0.5,2020-01-01,18446744073709551615,2020-01-01,1,2020-01-01,1",
        "1e+300,none,3,,,,-99999999999999999999",
        "1,2020-01-01T00:00:00Z,9007199254740993,,2,,",
        ",2020-01-01,,,,,",
    ]
    # Of all lines together, and each in a block of its own.
    for block in (8 << 20, 1):
        monkeypatch.setattr(_table_readers, "_TEXT_BLOCK", block)
        found = []
        for batch, _ in _table_readers.batches(str(path), "json_lines"):
            head, *rows = text_of(batch).decode().replace('"', "").splitlines()
            assert head == "x,day,n,l,s.a,s.b,big"
            found += rows
        assert found == expected


def test_json_lines_are_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        json.dumps({"x": i * 1e16 + 0.5, "n": i, "day": "2020-01-01 00:00:00", "l": ["2020-01-01"]})
        for i in range(8000)
    ]
    path = tmp_path / "x.jsonl"
    path.write_text("".join(line + "\n" for line in lines))
    size, parsed, read_json = path.stat().st_size, [], arrow_json.read_json

    def counted(block: pa.BufferReader, *options: Any) -> Any:
        parsed.append(block.size())
        return read_json(block, *options)

    monkeypatch.setattr(arrow_json, "read_json", counted)
    for block in (8 << 20, size // 4):
        monkeypatch.setattr(_table_readers, "_TEXT_BLOCK", block)
        parsed.clear()
        tables = list(_table_readers.batches(str(path), "json_lines"))
        assert sum(batch.num_rows for batch, _ in tables) == 8000
        assert tables[0][0].schema.names == ["x", "n", "day", "l"]
        assert {column.type for batch, _ in tables for column in [batch["day"]]} == {pa.string()}
        # But for the first lines, from which types are guessed.
        assert sum(parsed) < 1.2 * size


def test_a_column_of_json_lines_may_change_its_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": "2020-01-01"}\n{"a": 1}\n{"a": 2.5}\n{"a": "x"}\n')
    monkeypatch.setattr(_table_readers, "_TEXT_BLOCK", 1)
    batches = _table_readers.batches(str(path), "json_lines")
    found = [text_of(batch).decode().split()[1].strip('"') for batch, _ in batches]
    assert found == ["2020-01-01", "1", "2.5", "x"]


def test_a_large_integer_beside_fractions_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"click": 0, "price": 0.5}\n{"click": 1, "price": 9007199254740993}\n')
    said = r"x.jsonl:2: the column 'price' has 9007199254740993 and .*as text"
    with pytest.raises(errors.InvalidArgumentError, match=said):
        spec_of(path).inspect()


def test_a_dataset_gives_dates_and_times_as_text(tmp_path: Path) -> None:
    at = dt.datetime(2020, 1, 2, 3, 4, 5)
    table = pa.table({"day": [at.date(), None], "at": [at, at], "time": [at.time(), at.time()]})
    parquet.write_table(table, tmp_path / "x.parquet")
    batch = next(iter(sr.data.TableDataset(tmp_path / "x.parquet", 2)))
    assert batch["day"].numpy().tolist() == [b"2020-01-02", b""]
    assert batch["at"].numpy().tolist() == [b"2020-01-02 03:04:05.000000"] * 2
    assert batch["time"].numpy().tolist() == [b"03:04:05.000000"] * 2


def test_a_dataset_reads_text_with_line_ends_in_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_table_readers, "_TEXT_BLOCK", 64)
    cells = [f"line {i}\nof several\n, {i}" for i in range(20)]
    path = tmp_path / "x.csv"
    path.write_text("n,text\n" + "".join(f'{i},"{cell}"\n' for i, cell in enumerate(cells)))
    (batch,) = sr.data.TableDataset(path, 20)
    assert [cell.decode() for cell in batch["text"].numpy()] == cells


@pytest.mark.parametrize("block", [48, 100, 1 << 20])
@pytest.mark.parametrize(
    "text",
    [
        "a,b,c\n" + "".join(f"{i},x{i},{i / 2}\n" for i in range(40)),
        "a,b,c\r\n" + "".join(f"{i},x{i},{i / 2}\r\n" for i in range(40)),
        "\ufeffa,b,c\n" + "\n".join(f"{i},x{i},{i / 2}" for i in range(40)),
        '"a","b","c"\n' + "".join(f"{i},x{i},{i / 2}\n" for i in range(40)),
        "a,b,c\n" + "".join(f"{i},x{i},{i / 2}\n" for i in range(39)) + '39,"x39",19.5\n\n\n',
        "a,b,c\n" + "".join(f"{i},x{i},{i / 2}\n\n" for i in range(40)),
    ],
    ids=["lines", "crlf", "no end", "quoted names", "a quote late", "empty lines"],
)
def test_text_is_read_as_a_whole_however_it_is_cut(
    text: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_table_readers, "_TEXT_BLOCK", block)
    (tmp_path / "x.csv").write_bytes(text.encode())
    (tmp_path / "y.csv.gz").write_bytes(gzip.compress(text.encode()))
    for file in ("x.csv", "y.csv.gz"):
        data = sr.data.TableDataset(tmp_path / file, 7)
        for _ in range(2):  # The first time goes on from what was looked at.
            found = list(data)
            assert [len(one["a"]) for one in found] == [7] * 5 + [5]
            columns = {name: np.concatenate([one[name].numpy() for one in found]) for name in "abc"}
            assert columns["a"].tolist() == list(range(40))
            assert columns["b"].tolist() == [f"x{i}".encode() for i in range(40)]
            assert columns["c"].tolist() == [i / 2 for i in range(40)]
        some = next(iter(sr.data.TableDataset(tmp_path / file, 40, columns=["c"])))
        assert list(some) == ["c"] and some["c"].numpy()[39] == 19.5


def test_a_line_of_text_may_be_longer_than_what_is_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_table_readers, "_TEXT_BLOCK", 1000)
    # Of a part of a block, and of a whole one.
    for length in (400, 990):
        lines = [f"{i},{'x' * (length if i == 3 else 1)}" for i in range(6)]
        (tmp_path / "x.csv").write_text("a,b\n" + "\n".join(lines) + "\n")
        (found,) = sr.data.TableDataset(tmp_path / "x.csv", 6)
        assert [len(text) for text in found["b"].numpy()] == [1, 1, 1, length, 1, 1]
    (tmp_path / "x.csv").write_text("a,b\n" + "1," + "x" * 5000 + "\n2,y\n")
    with pytest.raises(errors.InvalidArgumentError, match=r"x\.csv.*damaged"):
        list(sr.data.TableDataset(tmp_path / "x.csv", 6))


def test_columns_of_one_name_keep_their_types(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_table_readers, "_TEXT_BLOCK", 48)
    (tmp_path / "x.csv").write_text("a,a\n" + "".join(f"{i},x{i}\n" for i in range(40)))
    found = list(sr.data.TableDataset(tmp_path / "x.csv", 40))
    assert found[0]["a"].numpy().tolist() == [f"x{i}".encode() for i in range(40)]


@pytest.mark.parametrize("name", ["x.csv", "x.tsv.gz", "x.jsonl"])
def test_a_column_that_changes_its_type_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_table_readers, "_TEXT_BLOCK", 64)
    rows = [(i, i) for i in range(100)] + [(100, 0.5)]
    if name == "x.jsonl":
        text = "".join(json.dumps({"a": a, "price": price}) + "\n" for a, price in rows)
    else:
        line = "{}\t{}\n" if ".tsv" in name else "{},{}\n"
        text = "".join(line.format(*row) for row in [("a", "price"), *rows])
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    said = f"{name}: the column 'price' begins as int64 and .*write all"
    for columns in (None, ["price"]):
        with pytest.raises(errors.InvalidArgumentError, match=said):
            list(sr.data.TableDataset(path, 10, columns))


@pytest.mark.parametrize("name", ["parquet", "json_lines"])
def test_shards_have_each_row_once(name: str, tmp_path: Path) -> None:
    spec = spec_of(write(tmp_path, name))
    found = [read(spec, num_shards=3, index=i)["dense"][:, 0] for i in range(3)]
    assert sorted(np.concatenate(found).tolist()) == rows_of()["price"]
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    files = [write(tmp_path / "a", name), write(tmp_path / "b", name)]
    assert read(spec_of(*files), num_shards=2, index=1)["label"].shape == (ROWS,)


@pytest.mark.parametrize("name", FORMATS)
def test_a_dataset_gives_columns(name: str, tmp_path: Path) -> None:
    batches = list(sr.data.TableDataset(write(tmp_path, name), 40))
    assert [len(b["click"]) for b in batches] == [40, 40, 20]
    assert set(batches[0]) == set(rows_of())
    for key, value in rows_of().items():
        found = np.concatenate([b[key].numpy() for b in batches]).tolist()
        assert found == [v.encode() if isinstance(v, str) else v for v in value]


def test_a_dataset_takes_columns_shards_and_fills(tmp_path: Path) -> None:
    path = write(tmp_path, "parquet")
    batches = list(sr.data.TableDataset(path, 40, ["price"], drop_remainder=True))
    assert [list(b) for b in batches] == [["price"]] * 2
    parts = [
        np.concatenate([b["price"].numpy() for b in sr.data.TableDataset(
            path, 7, ["price"], num_shards=3, index=i)])
        for i in range(3)
    ]  # fmt: skip
    assert parts[1].tolist() == rows_of()["price"][1::3]
    parquet.write_table(pa.table({"n": [1, None, 3]}), tmp_path / "n.parquet")
    with pytest.raises(errors.InvalidArgumentError, match="n.parquet: column 'n'.*fill="):
        sr.data.TableDataset(tmp_path / "n.parquet", 2)
    filled = sr.data.TableDataset(tmp_path / "n.parquet", 3, fill={"n": -1})
    assert next(iter(filled))["n"].numpy().tolist() == [1, -1, 3]


def test_bad_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    with pytest.raises(errors.NotFoundError, match="x.parquet: no such file"):
        spec_of(path)
    path.write_bytes(b"click,price\n1,2\n" * 10)
    with pytest.raises(errors.InvalidArgumentError, match="x.parquet: is not parquet, or damaged"):
        spec_of(path).inspect()
    lines = tmp_path / "x.jsonl"
    lines.write_text('{"click": 1, "price": 2}\nnothing\n')
    with pytest.raises(errors.InvalidArgumentError, match="x.jsonl:2: this is no JSON"):
        spec_of(lines).inspect()
    lines.write_text('{"click": 1, "price": 2}\n\n[1]\n')
    with pytest.raises(errors.InvalidArgumentError, match="x.jsonl:3: this is no JSON object"):
        spec_of(lines).inspect()
    lines.write_text('{"click": 1, "price": 2}\n{"click": 1, "price": "x"}\n')
    with pytest.raises(errors.InvalidArgumentError, match="x.jsonl: lines 1 to 2: .*one type"):
        spec_of(lines).inspect()
    records = write(tmp_path, "tfrecord")
    records.write_bytes(records.read_bytes()[:-3])
    with pytest.raises(errors.DataLossError, match="day.tfrecord.*cut off"):
        read(spec_of(records))
    with pytest.raises(errors.InvalidArgumentError, match="'klick'.*click, price, city, code"):
        spec_of(write(tmp_path, "parquet"), label="klick").inspect()


@pytest.mark.parametrize("place, said", [(3, "no record"), (14, "damaged")])
def test_records_are_checked_before_they_are_used(place: int, said: str, tmp_path: Path) -> None:
    path = write(tmp_path, "tfrecord")
    content = bytearray(path.read_bytes())
    second = 16 + int.from_bytes(content[:8], "little")
    content[second + place] ^= 0x10
    path.write_bytes(content)
    with pytest.raises(
        errors.DataLossError, match=f"day.tfrecord: .*byte {second} .*{said}.*again"
    ):
        list(_table_readers.batches(str(path), "tfrecord"))


@pytest.mark.parametrize("name", [name for name in FORMATS if name not in ("csv", "tsv")])
def test_a_file_that_is_cut_short_is_an_error(name: str, tmp_path: Path) -> None:
    path = write(tmp_path, name)
    # One more would be the end of a record.
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 3 // 5 - 1])
    with pytest.raises((errors.InvalidArgumentError, errors.DataLossError), match=path.name):
        read(spec_of(path))
    with pytest.raises((errors.InvalidArgumentError, errors.DataLossError), match=path.name):
        list(sr.data.TableDataset(path, 10))


def test_packed_lines_that_are_cut_short_are_an_error(tmp_path: Path) -> None:
    packed = gzip.compress(write(tmp_path, "json_lines").read_bytes())
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(errors.DataLossError, match="x.jsonl.gz: gzip data is damaged or cut off"):
        read(spec_of(path))


def test_what_is_wrong_of_rows_is_told_with_file_and_row(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    parquet.write_table(pa.table({"click": [0, 2], "price": [1.0, 2.0]}), path)
    with pytest.raises(errors.InvalidArgumentError, match="x.parquet: row 2: the label '2'"):
        read(spec_of(path))
    parquet.write_table(pa.table({"click": [0, 1, 1], "price": ["1", "2", "much"]}), path)
    with pytest.raises(errors.InvalidArgumentError, match="x.parquet: row 3.*'much'"):
        read(spec_of(path))


def test_a_later_file_must_have_the_columns(tmp_path: Path) -> None:
    first = write(tmp_path, "parquet")
    parquet.write_table(pa.table({"click": [1], "price": [1.0], "city": ["x"]}), tmp_path / "y.pq")
    with pytest.raises(errors.InvalidArgumentError, match="y.pq.*'code'"):
        read(spec_of(first, tmp_path / "y.pq"))


def test_vocabularies_and_sequences_are_of_lists_as_of_text(tmp_path: Path) -> None:
    data = {
        "label": [0, 1, 1, 0],
        "item": ["a", "b", "b", "d"],
        "seen": [["a", "b"], ["b"], [], ["c", "b", "a"]],
    }
    parquet.write_table(pa.table(data), tmp_path / "x.parquet")
    rows = (f"{y},{x},{'|'.join(seen)}\n" for y, x, seen in zip(*data.values()))
    (tmp_path / "x.csv").write_text("label,item,seen\n" + "".join(rows))
    options: dict[str, Any] = {
        "categorical": ["item"], "vocabularies": ["item"],
        "sequences": {"seen": sr.data.Sequence("seen", "|", 3, like="item")},
    }  # fmt: skip
    found = []
    for name in ("x.parquet", "x.csv"):
        spec = sr.data.csv(tmp_path / name, **options).with_statistics()
        assert spec.vocabularies[0].tokens == ["b", "a", "d", "c"]
        found.append(read(spec))
    same(*found)


def test_features_of_a_file_are_of_tables_too(tmp_path: Path) -> None:
    file = tmp_path / "features.toml"
    kinds = {"price": "numeric", "city": "categorical", "code": "categorical"}
    columns = "".join(f'[columns.{name}]\ntype = "{kind}"\n' for name, kind in kinds.items())
    file.write_text('label = "click"\n' + columns)
    found = []
    for name in ("parquet", "csv"):
        path = write(tmp_path, name)
        features = sr.features.load(file, path)
        found.append((features.read(path), read(features.csv(path))))
    for one, other in zip(*found):
        same(one, other)
    assert found[0][0]["price"].tolist() == rows_of()["price"]


def test_tables_in_memory_are_read_as_files(expected: dict[str, np.ndarray]) -> None:
    import pandas
    import polars

    data = rows_of()
    for one in (pa.table(data), pandas.DataFrame(data), polars.DataFrame(data), data):
        spec = sr.data.table(one, label="click", numeric=["price"], numeric_transform="none")
        same(read(spec), expected)
    halves = [{key: value[:50] for key, value in data.items()}]
    halves.append({key: value[50:] for key, value in data.items()})
    spec = sr.data.table(iter(halves), label="click", numeric=["price"], numeric_transform="none")
    same(read(spec), expected)
    with pytest.raises(TypeError, match="int is no table"):
        sr.data.table(3)


def test_a_model_is_fit_to_a_table_in_memory() -> None:
    options: dict[str, Any] = {"label": "click", "numeric": ["price"], "hash_buckets": 100}
    spec = sr.data.table(pa.table(rows_of()), **options)
    model = sr.models.build("lr", spec)
    with sr.LocalCluster(ps=1, workers=1, in_process=True) as cluster:
        assert model.fit(spec, cluster=cluster, batch_size=10).rows == ROWS
        assert model.evaluate(spec, cluster=cluster).rows == ROWS


def test_arrays_are_taken_of_tables_and_of_batches() -> None:
    inputs: list[Any] = [("x", "float32", [-1, 2]), ("label", "float32", [-1])]
    x, label = np.arange(12, dtype=np.float32).reshape(6, 2), np.array([0, 1, 0, 1, 1, 0], "f4")
    parts = [slice(0, 4), slice(4, 6)]
    table = {"x": x[:, 0], "label": label}
    one: list[Any] = [("x", "float32", [-1]), ("label", "float32", [-1])]
    for known, data, expected in (
        (inputs, {"x": x, "label": label}, x),
        (inputs, [{"x": x[p], "label": label[p]} for p in parts], x),
        (inputs, ((x[p], label[p]) for p in parts), x),
        (inputs, lambda: (({"x": x[p]}, label[p]) for p in parts), x),
        (one, pa.table(table), x[:, 0]),
        (one, (pa.table({k: v[p] for k, v in table.items()}) for p in parts), x[:, 0]),
    ):
        with as_spec(known, data) as spec:
            found = {name: np.load(file) for name, file in spec.arrays}
            np.testing.assert_array_equal(found["x"], expected)
            np.testing.assert_array_equal(found["label"], label)
    with pytest.raises(errors.InvalidArgumentError, match="batch 1 has x, and those before"):
        with as_spec(inputs, [{"x": x, "label": label}, {"x": x}]):
            pass
    with pytest.raises(errors.InvalidArgumentError, match="gave no batches"):
        with as_spec(inputs, iter(())):
            pass
