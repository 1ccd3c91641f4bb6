"""Layers of click models, which Keras does not have, beside NumPy and finite differences; and
embeddings of any number of ids."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import sidereal as sr
from sidereal import keras
from sidereal.keras import layers

RNG = np.random.default_rng(0)
X = RNG.normal(size=(5, 4))
FIELDS = RNG.normal(size=(5, 3, 4))
BEHAVIOURS = RNG.normal(size=(5, 6, 4))
MASK = RNG.random((5, 6)) < 0.6


@pytest.fixture(autouse=True)
def same_weights() -> Iterator[None]:
    """Layers begin with the same weights in every run."""
    sr.random.set_seed(1)
    yield
    sr.random.set_seed(None)


def weighted(layer: Any, *inputs: Any, **kwargs: Any) -> list[np.ndarray]:
    """The weights of a layer, which are built for these inputs and made random."""
    layer(*inputs, **kwargs)
    values = [np.random.default_rng(7).normal(size=w.shape) / 2 for w in layer.weights]
    layer.set_weights(values)
    return values


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def fm(layer: Any) -> Any:
    pairs = [(i, j) for i in range(3) for j in range(i)]
    total = sum((FIELDS[:, i] * FIELDS[:, j]).sum(-1) for i, j in pairs)
    return (FIELDS,), {}, np.asarray(total)[:, None]


def fm_of_list(layer: Any) -> Any:
    return ([FIELDS[:, i] for i in range(3)],), {}, fm(layer)[2]


def cross(layer: Any) -> Any:
    w, b = weighted(layer, X)
    return (X,), {}, X * (X @ w + b) + X


def deep_cross(layer: Any) -> Any:
    u, v, b = weighted(layer, X, X * 2)
    x = X * 2
    return (X, x), {}, X * (np.tanh(x @ u @ v + b) + 0.5 * x) + x


def mixture(layer: Any) -> Any:
    kernels, bias, *gates = weighted(layer, X)
    experts = np.maximum(np.einsum("bd,due->bue", X, kernels) + bias, 0)
    made = [
        np.einsum("bue,be->bu", experts, softmax(X @ gates[2 * i] + gates[2 * i + 1]))
        for i in range(2)
    ]
    return (X,), {}, made


def pooling(layer: Any, mask: Any = None) -> Any:
    w1, b1, w2, b2 = weighted(layer, [X, BEHAVIOURS], mask=mask)
    wide = np.broadcast_to(X[:, None], BEHAVIOURS.shape)
    seen = [wide, BEHAVIOURS, wide - BEHAVIOURS, wide * BEHAVIOURS]
    hidden = 1 / (1 + np.exp(-(np.concatenate(seen, -1) @ w1 + b1)))
    scores = hidden @ w2 + b2
    if mask is not None:
        scores = scores * mask[..., None]
    return ([X, BEHAVIOURS],), {"mask": mask}, (scores * BEHAVIOURS).sum(1)


def pooling_of_padded(layer: Any) -> Any:
    return pooling(layer, MASK)


def field_aware(layer: Any) -> Any:
    rows = np.random.default_rng(3).normal(size=(5, 3, 3 * 2))
    by_field = rows.reshape(5, 3, 3, 2)
    pairs = [(i, j) for i in range(3) for j in range(i)]
    total = sum((by_field[:, i, j] * by_field[:, j, i]).sum(-1) for i, j in pairs)
    return (rows,), {}, np.asarray(total)[:, None]


def compressed(layer: Any) -> Any:
    weights = weighted(layer, FIELDS)
    halves, x, made = layer.split_half, FIELDS, []
    for i in range(0, len(weights), 2):
        pairs = np.einsum("bid,bjd->bdij", x, FIELDS).reshape(5, 4, -1)
        maps = np.maximum(pairs @ weights[i] + weights[i + 1], 0).transpose(0, 2, 1)
        kept = maps.shape[1] // 2 if halves and i + 2 < len(weights) else 0
        made.append(maps[:, kept:].sum(-1))
        x = maps[:, :kept] if kept else maps
    return (FIELDS,), {}, np.concatenate(made, -1)


def compressed_whole(layer: Any) -> Any:
    return compressed(layer)


def interacting(layer: Any) -> Any:
    query, key, value, residual = weighted(layer, FIELDS)
    heads = []
    for at in (slice(0, 3), slice(3, 6)):
        q, k, v = FIELDS @ query[:, at], FIELDS @ key[:, at], FIELDS @ value[:, at]
        heads.append(softmax(q @ k.transpose(0, 2, 1)) @ v)
    return (FIELDS,), {}, np.maximum(np.concatenate(heads, -1) + FIELDS @ residual, 0)


def vector_cross(layer: Any) -> Any:
    w, b = weighted(layer, X, X * 2)
    return (X, X * 2), {}, X * (X * 2 @ w) + b + X * 2


def extraction(layer: Any) -> Any:
    weights = iter(weighted(layer, X))
    states = [X] * 3
    for level in range(2):
        made = []
        for x in states:
            kernel, bias = next(weights), next(weights)
            made.append(np.maximum(np.einsum("bd,due->bue", x, kernel) + bias, 0))
        sights = [np.concatenate([made[i], made[2]], -1) for i in range(2)]
        sights += [np.concatenate(made, -1)] if level == 0 else []
        states = [
            np.einsum("bue,be->bu", sight, softmax(x @ next(weights)))
            for x, sight in zip(states, sights)
        ]
    return (X,), {}, states[:2]


def evolution(layer: Any) -> Any:
    scores = np.random.default_rng(4).random((5, 6))
    kernel, recurrent, bias = weighted(layer, [BEHAVIOURS, scores], mask=MASK)
    h = np.zeros((5, 3))

    def sigmoid(x: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-x))

    for t in range(6):
        x, inner = BEHAVIOURS[:, t] @ kernel + bias[0], h @ recurrent + bias[1]
        update = 1 - sigmoid(x[:, :3] + inner[:, :3])
        reset = sigmoid(x[:, 3:6] + inner[:, 3:6])
        new = np.tanh(x[:, 6:] + reset * inner[:, 6:])
        update = update * scores[:, t : t + 1] * MASK[:, t : t + 1]
        h = (1 - update) * h + update * new
    return ([BEHAVIOURS, scores],), {"mask": MASK}, h


def bias(layer: Any) -> Any:
    (b,) = weighted(layer, X)
    return (X,), {}, X + b


CASES: list[tuple[str, dict[str, Any], Any]] = [
    ("FM", {}, fm),
    ("FM", {}, fm_of_list),
    ("Cross", {}, cross),
    ("Cross", {"projection_dim": 2, "preactivation": "tanh", "diag_scale": 0.5}, deep_cross),
    ("MMoE", {"units": 3, "num_experts": 4, "num_tasks": 2}, mixture),
    ("AttentionPooling", {"hidden": (5,)}, pooling),
    ("AttentionPooling", {"hidden": (5,)}, pooling_of_padded),
    ("FieldAwareFM", {}, field_aware),
    ("CIN", {"layer_size": (4, 3)}, compressed),
    ("CIN", {"layer_size": (5, 3), "split_half": False}, compressed_whole),
    ("Interacting", {"att_embedding_size": 3, "num_heads": 2}, interacting),
    ("VectorCross", {}, vector_cross),
    (
        "PLE", {"units": 3, "num_tasks": 2, "shared_expert_num": 2, "specific_expert_num": 2},
        extraction,
    ),
    ("AUGRU", {"units": 3}, evolution),
    ("Bias", {}, bias),
]


def flat(values: Any) -> list[Any]:
    return list(values) if isinstance(values, list) else [values]


@pytest.mark.parametrize("name, arguments, reference", CASES, ids=[c[2].__name__ for c in CASES])
def test_outputs_and_gradients(name: str, arguments: dict[str, Any], reference: Any) -> None:
    layer = getattr(layers, name)(**arguments, dtype="float64")
    args, kwargs, wanted = reference(layer)
    for mine, other in zip(flat(layer(*args, **kwargs)), flat(wanted), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-12)

    def total() -> Any:
        made = flat(layer(*args, **kwargs))
        return sum(sr.reduce_sum(sr.sin(each)) for each in made)

    with sr.GradientTape() as tape:
        loss = total()
    for variable, grad in zip(layer.weights, tape.gradient(loss, layer.weights)):
        start = variable.numpy().copy()
        place = tuple(n // 2 for n in start.shape)
        found = []
        for step in (1e-6, -1e-6):
            moved = start.copy()
            moved[place] += step
            variable.assign(moved)
            found.append(float(total()))
        variable.assign(start)
        slope = (found[0] - found[1]) / 2e-6
        np.testing.assert_allclose(grad.numpy()[place], slope, rtol=1e-5, atol=1e-7)


def test_in_a_model_of_two_tasks() -> None:
    rng = np.random.default_rng(1)
    ids = keras.Input((3,), dtype="int64", name="ids")
    x = layers.Input((4,), name="x")
    rows = layers.Embedding(20, 4)(ids)
    crossed = layers.Cross()(x)
    crossed = layers.Cross()(x, crossed)
    deep = layers.Concatenate()([layers.Flatten()(rows), crossed, layers.FM()(rows)])
    a, b = layers.MMoE(6, 3, 2)(deep)
    heads = {"ctr": layers.Dense(1, "sigmoid")(a), "cvr": layers.Dense(1, "sigmoid")(b)}
    model = keras.Model({"ids": ids, "x": x}, heads)
    model.compile(keras.optimizers.Adam(0.02), "binary_crossentropy", metrics={"ctr": ["AUC"]})
    n = 64
    data = {"ids": rng.integers(0, 20, (n, 3)), "x": rng.normal(size=(n, 4))}
    target = (data["ids"][:, :1] > 9).astype("f")
    logs = model.fit(data, {"ctr": target, "cvr": 1 - target}, epochs=15, verbose=0).history
    assert logs["loss"][-1] < 0.8 * logs["loss"][0]
    assert sorted(logs) == ["ctr_AUC", "ctr_loss", "cvr_loss", "loss"]


# --- Embeddings of any number of ids.

ROWS = [[1, 2, 2], [5], [], [0, 3]]
WEIGHTS = [[0.5, 1.0, 2.0], [3.0], [], [1.0, 0.25]]


def combined(table: np.ndarray, combiner: str, weights: list[list[float]]) -> np.ndarray:
    made = []
    for ids, factors in zip(ROWS, weights):
        w = np.asarray(factors)[:, None]
        total = (table[np.asarray(ids, int)] * w).sum(0)
        size = {"sum": 1.0, "mean": w.sum(), "sqrtn": np.sqrt((w * w).sum())}[combiner]
        made.append(total / size if ids else np.zeros(table.shape[1]))
    return np.stack(made)


def ragged(rows: list[list[Any]], dtype: Any) -> Any:
    values = np.concatenate([np.asarray(row, dtype) for row in rows])
    return sr.RaggedTensor.from_row_lengths(values, [len(row) for row in rows])


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("with_weights", [False, True])
def test_combiners(combiner: str, with_weights: bool) -> None:
    layer = layers.Embedding(6, 3, combiner=combiner, dtype="float64")
    ids, factors = ragged(ROWS, np.int64), ragged(WEIGHTS, np.float64)
    ones = [[1.0] * len(row) for row in ROWS]
    weights = {"weights": factors} if with_weights else {}
    found = layer(ids, **weights)
    wanted = combined(layer.get_weights()[0], combiner, WEIGHTS if with_weights else ones)
    np.testing.assert_allclose(found, wanted, rtol=1e-9)
    sparse = {key: value.to_sparse() for key, value in weights.items()}
    np.testing.assert_allclose(layer(ids.to_sparse(), **sparse), wanted, rtol=1e-9)
    dense = np.array([[1, 2, 2], [5, 5, 0], [3, 1, 0], [0, 3, 4]])
    same = layer(dense, **({"weights": np.ones((4, 3))} if with_weights else {}))
    table = layer.get_weights()[0]
    size = {"sum": 1.0, "mean": 3.0, "sqrtn": np.sqrt(3.0)}[combiner]
    np.testing.assert_allclose(same, table[dense].sum(1) / size, rtol=1e-9)


def test_rows_of_ragged_ids_are_ragged() -> None:
    layer = layers.Embedding(6, 3)
    found = layer(ragged(ROWS, np.int64))
    assert isinstance(found, sr.RaggedTensor)
    table = layer.get_weights()[0]
    np.testing.assert_allclose(found.values, table[[1, 2, 2, 5, 0, 3]])
    assert found.row_splits.numpy().tolist() == [0, 3, 4, 4, 6]


def test_a_table_may_be_given() -> None:
    table = np.arange(6.0).reshape(3, 2)
    layer = layers.Embedding(3, 2, weights=[table])
    np.testing.assert_allclose(layer(np.array([2, 0])), table[[2, 0]])
    with pytest.raises(ValueError, match="weights are of rows that a combiner joins"):
        layer(np.array([[1]]), weights=np.array([[1.0]]))
    with pytest.raises(ValueError, match="combiner is 'max'; it must be one of sum, mean, sqrtn"):
        layers.Embedding(3, 2, combiner="max")
    with pytest.raises(sr.errors.InvalidArgumentError, match="3"):
        layer(np.array([3]))


def test_only_rows_of_a_batch_are_updated() -> None:
    ids = keras.Input((2,), dtype="int64")
    model = keras.Model(ids, layers.Dense(1)(layers.Flatten()(layers.Embedding(9, 3)(ids))))
    model.compile("adam", "mse")
    before = model.get_weights()[0]
    model.train_on_batch(np.array([[1, 4], [4, 7]]), np.ones((2, 1), "f"))
    changed = (model.get_weights()[0] != before).any(1)
    assert np.flatnonzero(changed).tolist() == [1, 4, 7]
