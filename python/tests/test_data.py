"""Data specs, and what arrays must be like. No cluster."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import sidereal as sr
from conftest import planted, small_model
from sidereal import _arrays, errors

INPUTS = [("ids", "int64", [-1, 4]), ("label", "float32", [-1])]


def write_csv(path: Path, rows: int = 3) -> Path:
    path.write_text("click,price,site\n" + "1,2.5,a\n" * rows)
    return path


def test_csv_files_are_inspected(tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv")
    write_csv(tmp_path / "b.csv")
    spec = sr.data.csv(tmp_path / "*.csv", label="click", numeric=["price"], hash_buckets=100)
    assert [os.path.basename(f) for f in spec.files] == ["a.csv", "b.csv"]
    schema = spec.inspect()
    assert (schema.dense_width, schema.fields, schema.rows) == (1, 1, 100)
    assert schema.categorical == ["site"]


def test_missing_files_and_columns_are_named(tmp_path: Path) -> None:
    with pytest.raises(errors.NotFoundError, match="nothing"):
        sr.data.csv(tmp_path / "nothing*.csv")
    path = write_csv(tmp_path / "a.csv")
    with pytest.raises(errors.Error, match="'klick'"):
        sr.data.csv(path, label="klick").inspect()
    with pytest.raises(ValueError, match="at least one file"):
        sr.data.libsvm(id_space=10)


def test_synthetic_and_criteo_have_their_shapes(tmp_path: Path) -> None:
    schema = sr.data.synthetic(rows=10, vocabulary_max=100).inspect()
    assert (schema.dense_width, schema.fields) == (13, 26)
    path = tmp_path / "day"
    path.write_text("\t".join(["1"] + ["2"] * 13 + ["x"] * 26) + "\n")
    schema = sr.data.criteo(path, hash_buckets=10).inspect()
    assert (schema.dense_width, schema.fields, schema.rows) == (13, 26, 260)


def test_arrays_are_converted_to_the_inputs() -> None:
    ids = np.arange(8, dtype=np.int32).reshape(4, 2).T
    columns = _arrays.columns_for(INPUTS, {"ids": ids, "label": [[0], [1]]}, binary=True)
    assert columns["ids"].dtype == np.int64
    assert columns["ids"].flags.c_contiguous
    np.testing.assert_array_equal(columns["ids"], ids)
    np.testing.assert_array_equal(columns["label"], np.array([0, 1], np.float32))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ids": None}, "no column 'ids'.*the model's inputs are ids int64\\[\\?,4\\].*label"),
        ({"label": None}, "no column 'label'"),
        ({"label": np.zeros(9, np.float32)}, "ids has 10 rows, label has 9 rows"),
        ({"ids": np.zeros((10, 5), np.int64)}, "shape \\(10, 5\\); the input is ids int64"),
        ({"ids": np.zeros(10, np.int64)}, "shape \\(10,\\)"),
        ({"ids": np.zeros((10, 4), np.float32)}, "'ids' is float32.*astype\\('int64'\\)"),
        ({"ids": np.array([["a"] * 4] * 10)}, "cannot take"),
        ({"ids": np.array([[None] * 4] * 10)}, "cannot take"),
        ({"label": np.full(10, 2.0)}, "label of row 0 is 2.0; labels are 0 or 1"),
        ({"label": np.full(10, np.nan)}, "label of row 0 is nan"),
        ({"ids": np.zeros((0, 4), np.int64), "label": np.zeros(0)}, "no rows"),
    ],
)
def test_wrong_arrays_are_refused_by_name(change: dict, message: str) -> None:
    data = {"ids": np.zeros((10, 4), np.int64), "label": np.zeros(10, np.float32)}
    for name, array in change.items():
        if array is None:
            del data[name]
        else:
            data[name] = array
    with pytest.raises(errors.InvalidArgumentError, match=message):
        _arrays.columns_for(INPUTS, data, binary=True)


def test_files_of_arrays_are_gone_afterwards() -> None:
    with _arrays.as_spec(INPUTS, planted(10), shuffle=True, seed=3) as spec:
        files = [file for _, file in spec.arrays]
        assert all(os.path.exists(file) for file in files)
        assert (spec.format, spec.label, spec.seed, spec.shuffle_rows > 0) == (
            "arrays", "label", 3, True,
        )
        assert spec.inspect().has_label
    assert not any(os.path.exists(file) for file in files)


def test_a_spec_is_shuffled_only_when_asked_for() -> None:
    spec = sr.data.synthetic(rows=10)
    with _arrays.as_spec([], spec) as plain, _arrays.as_spec([], spec, shuffle=True) as shuffled:
        assert plain.shuffle_rows == 0
        assert shuffled.shuffle_rows > 0


def test_data_of_another_type_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="batch 0 is int"), _arrays.as_spec(INPUTS, [1, 2]):
        pass


def test_training_needs_a_cluster_and_a_compiled_model() -> None:
    with pytest.raises(errors.FailedPreconditionError, match="on no cluster"):
        small_model().fit(planted(10))
    with pytest.raises(errors.FailedPreconditionError, match="not compiled"):
        sr.Model().fit(planted(10))
    with pytest.raises(errors.FailedPreconditionError, match="on no cluster"):
        small_model().get_variable("head/bias")
