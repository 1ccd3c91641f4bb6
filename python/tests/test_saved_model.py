"""Functions and variables as files."""

from __future__ import annotations

import collections
from pathlib import Path

import numpy as np
import pytest

import sidereal as sr

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden"


class Tower:
    """What people save: an object with variables and functions."""

    def __init__(self):
        self.layers = [
            {"w": sr.Variable(np.full((3, 2), 0.5, np.float32), name="w0")},
            {"w": sr.Variable(np.full((2, 1), 2.0, np.float32), name="w1")},
        ]
        self.calls = sr.Variable(np.int64(0), name="calls")
        self.scale = sr.constant(3.0)
        self.title = "not saved"
        self.me = self

    @sr.function(input_signature=[sr.TensorSpec([None, 3], sr.float32, "features")])
    def predict(self, x):
        for layer in self.layers:
            x = sr.matmul(x, layer["w"])
        self.calls.assign_add(1)
        return {"score": x * self.scale, "twice": x + x}

    @sr.function
    def power(self, x, n=2):
        return x**n


pytestmark = pytest.mark.filterwarnings("ignore:function 'power' is not saved")


def saved(obj, tmp_path, **kwargs):
    path = tmp_path / "model.srsm"
    sr.saved_model.save(obj, path, **kwargs)
    assert sr.saved_model.contains_saved_model(path)
    assert [file.name for file in tmp_path.iterdir()] == ["model.srsm"]
    return sr.saved_model.load(path)


def test_an_object_comes_back_with_its_functions_and_variables(tmp_path):
    tower = Tower()
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    before = tower.predict(x)
    tower.power(sr.constant(3.0), 3)
    tower.power(sr.constant([1.0, 2.0]))
    again = saved(tower, tmp_path, signatures=tower.predict)
    after = again.predict(x)
    assert list(after) == ["score", "twice"]
    for key in before:
        np.testing.assert_array_equal(after[key].numpy(), before[key].numpy())
    assert again.predict(np.ones((5, 3), np.float32))["score"].shape == (5, 1)
    assert float(again.power(sr.constant(2.0), 3)) == 8
    assert float(again.power(x=2.0, n=3)) == 8
    np.testing.assert_array_equal(again.power(sr.constant([3.0, 4.0])).numpy(), [9, 16])
    assert again.me is again
    assert float(again.scale) == 3
    assert not hasattr(again, "title")
    assert [variable.name for variable in again.variables] == ["w0", "w1", "calls"]
    assert again.layers[0]["w"] is again.variables[0]


def test_variables_are_shared_by_functions_and_can_be_assigned_to(tmp_path):
    tower = Tower()
    tower.predict(np.ones((1, 3), np.float32))
    again = saved({"predict": tower.predict, "calls": tower.calls}, tmp_path)
    assert int(again.calls) == 1
    again.predict(np.ones((1, 3), np.float32))
    assert int(again.calls) == 2
    assert int(tower.calls) == 1
    again.variables[0].assign(np.zeros((3, 2), np.float32))
    assert float(again.predict(np.ones((1, 3), np.float32))["score"]) == 0


def test_gradients_flow_through_a_loaded_function(tmp_path):
    tower = Tower()
    x = np.ones((2, 3), np.float32)
    with sr.GradientTape() as tape:
        loss = sr.reduce_sum(tower.predict(x)["score"] ** 2.0)
    want = tape.gradient(loss, [layer["w"] for layer in tower.layers])
    again = saved(tower, tmp_path)
    with sr.GradientTape() as tape:
        loss = sr.reduce_sum(again.predict(x)["score"] ** 2.0)
    got = tape.gradient(loss, [layer["w"] for layer in again.layers])
    for a, b in zip(got, want):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6)


def test_a_loaded_function_can_be_used_in_another_and_saved_again(tmp_path):
    tower = Tower()
    again = saved(tower.predict, tmp_path)

    @sr.function(input_signature=[sr.TensorSpec([None, 3], sr.float32)])
    def outer(x):
        return again(x * 2.0)["score"] + 1.0

    x = np.ones((2, 3), np.float32)
    want = tower.predict(2 * x)["score"].numpy() + 1
    np.testing.assert_allclose(outer(x).numpy(), want, rtol=1e-6)
    assert int(again.variables[-1]) == 1
    with sr.GradientTape() as tape:
        y = outer(x)
    assert tape.gradient(y, again.variables[0]).shape == (3, 2)
    (tmp_path / "model.srsm").unlink()
    third = saved(outer, tmp_path)
    np.testing.assert_allclose(third(x).numpy(), want, rtol=1e-6)


def test_signatures_take_and_give_tensors_by_name(tmp_path):
    tower = Tower()
    again = saved(tower, tmp_path, signatures={"predict": tower.predict})
    signature = again.signatures["predict"]
    assert list(signature.inputs) == ["features"]
    assert signature.inputs["features"].shape == (-1, 3)
    assert list(signature.outputs) == ["score", "twice"]
    out = signature(features=np.ones((1, 3), np.float32))
    assert float(out["score"]) == 18
    with pytest.raises(TypeError, match="takes features; given are 0 by place and by name x"):
        signature(x=1.0)
    with pytest.raises(sr.errors.InvalidArgumentError, match="for 'features'"):
        signature(np.ones((1, 4), np.float32))


def test_the_only_function_is_what_is_served(tmp_path):
    f = sr.function(lambda a, b: [a + b, a - b])
    f(sr.constant(1.0), sr.constant(2.0))
    again = saved(f, tmp_path)
    out = again.signatures["serving_default"](a=5.0, b=3.0)
    assert {key: float(value) for key, value in out.items()} == {"output_0": 8, "output_1": 2}


Pair = collections.namedtuple("Pair", "first second")


def test_structures_of_arguments_and_results_are_kept(tmp_path):
    @sr.function
    def f(pairs, scale):
        return Pair(pairs["b"].first * scale, None), [pairs["a"][0]]

    arguments = {"b": Pair(sr.constant(2.0), sr.constant(1)), "a": (sr.constant([1.0]),)}
    f(arguments, 3.0)
    again = saved(f, tmp_path)
    result, rest = again(arguments, 3.0)
    assert result.second is None and float(result.first) == 6 and isinstance(rest, list)
    with pytest.raises(sr.errors.InvalidArgumentError, match="was saved without a trace for these"):
        again(arguments, 4.0)


def test_gradients_by_rows_come_out_as_rows(tmp_path):
    table = sr.Variable(np.ones((5, 2), np.float32), name="table")

    @sr.function(input_signature=[sr.TensorSpec([None], sr.int64)])
    def rows(ids):
        with sr.GradientTape() as tape:
            y = sr.reduce_sum(sr.gather(table, ids))
        return tape.gradient(y, table)

    want = rows(np.array([1, 3]))
    got = saved(rows, tmp_path)(np.array([1, 3]))
    assert isinstance(got, sr.IndexedSlices)
    np.testing.assert_array_equal(got.numpy(), want.numpy())


def test_control_flow_is_saved(tmp_path):
    @sr.function(input_signature=[sr.TensorSpec([], sr.float32)])
    def f(x):
        return sr.while_loop(
            lambda i, y: i < 3, lambda i, y: [i + 1, sr.cond(y > 5.0, lambda: y, lambda: y * x)],
            [sr.constant(0), x],
        )[1]

    again = saved(f, tmp_path)
    for x in (1.5, 2.0, 3.0):
        assert float(again(x)) == float(f(x))


def test_what_cannot_be_saved_is_named(tmp_path):
    path = tmp_path / "model.srsm"
    with pytest.raises(sr.errors.InvalidArgumentError, match="nothing to save in dict"):
        sr.saved_model.save({"a": 1}, path)
    f = sr.function(lambda x, how: x)
    f(sr.constant(1.0), object())
    with pytest.raises(sr.errors.InvalidArgumentError, match="neither tensor nor number"):
        sr.saved_model.save(f, path)
    g = sr.function(lambda x: x)
    with pytest.warns(UserWarning, match="has not been traced"):
        sr.saved_model.save({"g": g, "v": sr.Variable(1.0)}, path)
    with pytest.raises(sr.errors.InvalidArgumentError, match="the function has 0 traces"):
        sr.saved_model.save({"v": sr.Variable(1.0)}, path, signatures=g)
    with pytest.raises(sr.errors.InvalidArgumentError, match="is a folder"):
        sr.saved_model.save(f, tmp_path)
    with pytest.raises(sr.errors.NotFoundError, match="is no folder, in which m.srsm could be"):
        sr.saved_model.save(f, tmp_path / "none" / "m.srsm")


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "model.srsm"
    sr.saved_model.save({"v": sr.Variable(1.0)}, path)
    before = path.read_bytes()
    with pytest.raises(sr.errors.InvalidArgumentError, match="nothing to save"):
        sr.saved_model.save({}, path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_files_that_are_no_saved_model_are_refused(tmp_path):
    path = tmp_path / "model.srsm"
    with pytest.raises(sr.errors.NotFoundError, match="there is no saved model"):
        sr.saved_model.load(path)
    path.write_bytes(b"something else entirely")
    assert not sr.saved_model.contains_saved_model(path)
    with pytest.raises(sr.errors.DataLossError, match="do not start with 'SRSM'"):
        sr.saved_model.load(path)
    sr.saved_model.save({"v": sr.Variable(np.ones(100, np.float32))}, path)
    data = bytearray(path.read_bytes())
    data[-200] ^= 1
    path.write_bytes(data)
    with pytest.raises(sr.errors.DataLossError, match="model.srsm: .*checksum"):
        sr.saved_model.load(path)


def test_objects_described_in_an_unknown_way_are_refused(tmp_path):
    path = tmp_path / "model.srsm"
    engine = sr._dispatch.ENGINE
    for objects in ("", "[]", '{"root": 3, "nodes": []}', '{"root": 0, "nodes": [{}]}',
                    '{"root": 0, "nodes": [{"kind": "tuple", "items": [[0, 0]]}]}',
                    '{"root": 0, "nodes": [{"kind": "variable", "value": 7}]}'):
        model = sr._native.SavedModel()
        model.objects = objects
        path.write_bytes(model.encode(engine))
        with pytest.raises(sr.errors.DataLossError, match="described in a way"):
            sr.saved_model.load(path)


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("saved_model_*.srsm")), ids=lambda p: p.name)
def test_files_of_earlier_releases_load_and_compute_the_same(path):
    """The files are kept as they were written; golden_saved_model.py has written the latest."""
    model = sr.saved_model.load(path)
    expected = np.load(path.with_suffix(".npz"))
    out = model.signatures["serving_default"](ids=expected["ids"], history=expected["history"])
    for name, value in out.items():
        np.testing.assert_allclose(value.numpy(), expected[name], rtol=1e-5, atol=1e-6)
    assert int(model.calls) == 1
