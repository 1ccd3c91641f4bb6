"""Ranking models by one call: each learns what was planted, is saved and loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sidereal as sr
from sidereal import keras
from sidereal.keras import applications

ROWS, FIELDS, TIME, SAMPLES = 30, 3, 5, 256
#: Of each model: what it takes of Features, and its own options.
MODELS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "LR": ({}, {}),
    "FM": ({}, {"l2": 1e-5}),
    "FFM": ({"embedding_dim": 4}, {}),
    "WideDeep": ({"dense_width": 2}, {"dropout": 0.1, "batch_normalization": True}),
    "DeepFM": ({"dense_width": 2, "l2_embedding": 1e-5, "l2_linear": 1e-5}, {}),
    "DCN": ({}, {"cross_layers": 2}),
    "DCNV2": ({"dense_width": 2}, {"projection_dim": 4}),
    "XDeepFM": ({}, {"cin_layer_size": (8, 8)}),
    "AutoInt": ({}, {"att_embedding_size": 4, "hidden_units": (16,)}),
    "DIN": ({"time": TIME}, {"candidate": 1}),
    "DIEN": ({"time": TIME}, {"candidate": 1}),
    "MMoE": ({}, {"num_tasks": 2}),
    "PLE": ({}, {"num_tasks": 2}),
    "TwoTower": ({}, {"user_fields": 1, "hidden_units": (16, 8)}),
    "NCF": ({"fields": 2}, {}),
    "MatrixFactorization": ({"fields": 2}, {}),
}
SMALL = ("WideDeep", "DeepFM", "DCN", "DCNV2", "XDeepFM", "DIN", "DIEN")


@pytest.fixture(autouse=True)
def same_weights() -> Any:
    sr.random.set_seed(3)
    yield
    sr.random.set_seed(None)


def build(name: str) -> tuple[Any, dict[str, np.ndarray], Any]:
    """(a model, inputs, labels): a click is where the ids' weights and a product of two say so."""
    of_features, options = MODELS[name]
    fields = of_features.get("fields", FIELDS)
    if name in SMALL:
        options = {"hidden_units": (16, 8), **options}
    features = applications.Features(
        **{"fields": fields, "rows": ROWS, "embedding_dim": 8, **of_features}
    )
    model = getattr(applications, name)(features, **options)
    rng = np.random.default_rng(0)
    data = {"ids": rng.integers(0, ROWS // fields, (SAMPLES, fields))}
    data["ids"] += np.arange(fields) * (ROWS // fields)
    weights = rng.normal(size=ROWS)
    clicks = weights[data["ids"]].sum(1, keepdims=True) > 0
    if "dense_width" in of_features:
        data["dense"] = rng.normal(size=(SAMPLES, 2)).astype("f")
    if "time" in of_features:
        data["history"] = rng.integers(-1, ROWS, (SAMPLES, TIME))
    clicks = clicks.astype("f")
    return model, data, [clicks, 1 - clicks] if "num_tasks" in options else clicks


@pytest.mark.parametrize("name", MODELS)
def test_a_model_learns_and_is_saved(name: str, tmp_path: Path) -> None:
    model, data, labels = build(name)
    model.compile(keras.optimizers.Adam(0.02), "binary_crossentropy")
    history = model.fit(data, labels, batch_size=64, epochs=15, verbose=0).history
    assert history["loss"][-1] < 0.8 * history["loss"][0]
    before = model.predict(data, verbose=0)
    model.save(tmp_path / "model.keras")
    after = keras.models.load_model(tmp_path / "model.keras").predict(data, verbose=0)
    several = isinstance(before, list)
    for one, two in zip(before if several else [before], after if several else [after]):
        assert one.shape == (SAMPLES, 1)
        assert ((one >= 0) & (one <= 1)).all()
        np.testing.assert_allclose(one, two, rtol=1e-6, atol=1e-7)


def test_all_models_are_tried() -> None:
    assert {*MODELS, "Features"} == set(applications.__all__)


def test_a_history_of_nothing_changes_nothing() -> None:
    """-1 stands for none, wherever it is."""
    for name in ("DIN", "DIEN"):
        model, data, _ = build(name)
        none = np.full_like(data["history"], -1)
        padded = np.concatenate([data["history"][:, :2], none[:, :3]], 1)
        mixed = np.concatenate([none[:, :3], data["history"][:, :2]], 1)
        found = [model.predict({**data, "history": h}, verbose=0) for h in (padded, mixed)]
        np.testing.assert_allclose(found[0], found[1], rtol=1e-5)


def test_attention_with_softmax_is_a_mean_of_the_history() -> None:
    features = applications.Features(3, ROWS, time=TIME, embedding_dim=4)
    model = applications.DIN(features, (4,), candidate=1, attention_softmax=True)
    (pooling,) = [one for one in model.layers if isinstance(one, keras.layers.AttentionPooling)]
    assert pooling.softmax and not keras.layers.AttentionPooling().softmax
    rng = np.random.default_rng(1)
    keys = rng.normal(size=(5, TIME, 4)).astype("f")
    # Of equal behaviours it is that behaviour, however many there are.
    keys[:] = keys[:, :1]
    there = np.arange(TIME) < np.array([[1], [2], [3], [1], [TIME]])
    query = rng.normal(size=(5, 4)).astype("f")
    found = pooling([sr.constant(query), sr.constant(keys)], mask=sr.constant(there))
    np.testing.assert_allclose(found.numpy(), keys[:, 0], rtol=1e-5)


def test_what_cannot_be_is_an_error() -> None:
    features = applications.Features(3, 10)
    for call, said in (
        (lambda: applications.Features(0, 10), "fields is 0"),
        (lambda: applications.LR(3), "give a keras.applications.Features"),
        (lambda: applications.DIN(features, candidate=1), "have no history"),
        (lambda: applications.DIEN(applications.Features(3, 9, time=4), candidate=3), "columns"),
        (lambda: applications.TwoTower(features, user_fields=3), "user_fields is 3"),
        (lambda: keras.layers.CIN((3, 4)), "must be even"),
        (lambda: keras.layers.FieldAwareFM()(np.zeros((2, 3, 4), "f")), "as many for each"),
    ):
        with pytest.raises((TypeError, ValueError), match=said):
            call()
