"""Files of tables: the layout of safetensors, mapped into memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sidereal as sr
from sidereal import errors, table_file


def tables() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "user/embeddings": rng.normal(size=(33, 5)).astype("f"),
        "item": rng.normal(size=(7, 3)),
        "codes": rng.integers(0, 255, (50, 4)).astype(np.uint8),
        "empty": np.zeros((0, 4), "f"),
    }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    sr.write_tables(tmp_path / "t.safetensors", tables())
    return tmp_path / "t.safetensors"


def header_of(path: Path) -> tuple[dict[str, Any], bytes]:
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def test_rows_are_looked_up(path: Path) -> None:
    assert sr.TableFile.tables(path) == list(tables())
    for name, wanted in tables().items():
        table = sr.TableFile(path, name)
        assert (table.shape, table.dtype, len(table)) == (wanted.shape, wanted.dtype, len(wanted))
        np.testing.assert_array_equal(table.rows, wanted)
        table.verify()
    table, wanted = sr.TableFile(path, "item"), tables()["item"]
    assert isinstance(table.rows, np.memmap) and not table.rows.flags.writeable
    np.testing.assert_array_equal(table.lookup([6, 0, 6]), wanted[[6, 0, 6]])
    found = table.lookup(np.array([[1, -1], [2, 3]], np.int32))
    np.testing.assert_array_equal(found, [[wanted[1], np.zeros(3)], wanted[[2, 3]]])
    assert table.lookup([]).shape == (0, 3)
    assert table.lookup(4).shape == (3,)
    with pytest.raises(errors.InvalidArgumentError, match=r"id 7 .*'item'.* 7 rows"):
        table.lookup([0, 7])
    with pytest.raises(errors.InvalidArgumentError, match="integers, and not float64"):
        table.lookup([0.5])
    with pytest.raises(errors.InvalidArgumentError, match=r"has 4 tables; give .*user/embeddings"):
        sr.TableFile(path)
    with pytest.raises(errors.NotFoundError, match=r"no table 'x'; it has: user"):
        sr.TableFile(path, "x")


def test_the_layout_is_that_of_safetensors(path: Path) -> None:
    header, data = header_of(path)
    assert header["user/embeddings"]["dtype"] == "F32"
    assert header["user/embeddings"]["shape"] == [33, 5]
    assert all(type(value) is str for value in header.pop("__metadata__").values())
    # Readers refuse holes, what overlaps, and what is behind the last one.
    at = 0
    for entry in header.values():
        begin, end = entry["data_offsets"]
        assert begin == at
        at = end
    assert at == len(data)
    begins = [header[name]["data_offsets"][0] for name in tables()]
    assert all((begin + path.stat().st_size - len(data)) % 4096 == 0 for begin in begins)
    begin, end = header["item"]["data_offsets"]
    np.testing.assert_array_equal(
        np.frombuffer(data[begin:end], "<f8").reshape(7, 3), tables()["item"]
    )


def test_files_of_other_programs_are_read(tmp_path: Path) -> None:
    value = np.arange(6, dtype="<f4").reshape(3, 2)
    entry = {"dtype": "F32", "shape": [3, 2], "data_offsets": [0, 24]}
    header = json.dumps({"w": entry}).encode()
    path = tmp_path / "other.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + value.tobytes())
    table = sr.TableFile(path)
    np.testing.assert_array_equal(table.lookup([2, 1]), value[[2, 1]])
    with pytest.raises(errors.FailedPreconditionError, match="no checksums"):
        table.verify()


def test_damage_is_found(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    header, data = header_of(path)
    begin = path.stat().st_size - len(data)
    whole = path.read_bytes()
    at = begin + header["user/embeddings"]["data_offsets"][0] + 600
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    with pytest.raises(errors.DataLossError, match=r"t\.safetensors: table 'user/embeddings'"):
        sr.TableFile(path, "user/embeddings").verify()
    sr.TableFile(path, "item").verify()
    for end in (3, 100, begin, len(whole) - 1):
        path.write_bytes(whole[:end])
        with pytest.raises(errors.InvalidArgumentError, match=r"t\.safetensors"):
            sr.TableFile(path, "codes")
    path.write_bytes(whole.replace(b'"shape":[7,3]', b'"shape":[7,4]'))
    with pytest.raises(errors.InvalidArgumentError, match="'item' has 168 bytes"):
        sr.TableFile(path, "item")
    with pytest.raises(errors.NotFoundError, match="nothing"):
        sr.TableFile(path.with_name("nothing"))
    # A checksum is of a block: which one is damaged is said.
    monkeypatch.setattr(table_file, "_BLOCK", 64)
    sr.write_tables(path, tables())
    whole = path.read_bytes()
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    with pytest.raises(errors.DataLossError, match="between bytes 576 and 640"):
        sr.TableFile(path, "user/embeddings").verify()


def test_what_is_no_table_is_not_written(path: Path) -> None:
    before = path.read_bytes()
    for value in (np.zeros(3), np.array([["a"]]), np.zeros((2, 2), complex)):
        with pytest.raises(errors.InvalidArgumentError, match="table 'w' is"):
            sr.write_tables(path, {"w": value})
    with pytest.raises(errors.InvalidArgumentError, match="no table to write"):
        sr.write_tables(path, {})
    assert path.read_bytes() == before
