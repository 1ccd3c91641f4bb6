"""GRU, LSTM and attention pooling against PyTorch: outputs, losses and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sidereal as sr
from sidereal import keras
from sidereal.keras import layers

torch = pytest.importorskip("torch", reason="PyTorch is not installed (./dev setup --peers)")

BATCH, FEATURES, UNITS = 3, 5, 4
RTOL = {"float64": 1e-10, "float32": 1e-5}


def reorder(matrix: np.ndarray, order: list[int]) -> np.ndarray:
    """Columns of gates in another order, as rows, which is how PyTorch has them."""
    parts = np.split(matrix, len(order), axis=-1)
    return np.concatenate([parts[i] for i in order], axis=-1).T


def torch_like(layer: Any, dtype: str) -> Any:
    """The layer of PyTorch with the weights of ours."""
    weights = layer.get_weights()
    if isinstance(layer, layers.GRU):
        made, order = torch.nn.GRU(FEATURES, UNITS, batch_first=True), [1, 0, 2]
        inputs, states = weights[2]
    else:
        made, order = torch.nn.LSTM(FEATURES, UNITS, batch_first=True), [0, 1, 2, 3]
        inputs, states = weights[2], np.zeros_like(weights[2])
    made = made.to(getattr(torch, dtype))
    values = {
        "weight_ih_l0": reorder(weights[0], order),
        "weight_hh_l0": reorder(weights[1], order),
        "bias_ih_l0": reorder(inputs, order),
        "bias_hh_l0": reorder(states, order),
    }
    with torch.no_grad():
        for name, value in values.items():
            getattr(made, name).copy_(torch.from_numpy(np.array(value)))
    return made


def close(got: Any, want: Any, dtype: str, what: str, scale: float = 1e-30) -> None:
    """Equal relative to the largest element, or `scale`: single elements may be sums that
    cancel."""
    got = got.numpy() if hasattr(got, "numpy") else got
    want = want.detach().numpy() if hasattr(want, "detach") else want
    assert got.shape == want.shape, what
    scale = max(float(np.abs(want).max(initial=0)), scale)
    np.testing.assert_allclose(got / scale, want / scale, rtol=0, atol=RTOL[dtype], err_msg=what)


def data(dtype: str, time: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(time)
    x = rng.standard_normal((BATCH, time, FEATURES)).astype(dtype)
    return x, rng.standard_normal((BATCH, time, UNITS)).astype(dtype)


def step_of(layer: Any) -> Any:
    """Loss, outputs and gradients by inputs and weights."""

    def step(x: Any, weight: Any) -> Any:
        with sr.GradientTape() as tape:
            tape.watch(x)
            y = layer(x)
            loss = sr.reduce_mean(y * y * weight)
        return loss, y, tape.gradient(loss, [x, *layer.weights])

    return step


@pytest.mark.parametrize("time", [1, 2, 7, 33, 64])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
@pytest.mark.parametrize("how", ["graph", "unknown", "eager"])
def test_losses_and_gradients_equal_pytorchs(kind: str, dtype: str, time: int, how: str) -> None:
    layer = getattr(layers, kind)(UNITS, return_sequences=True, dtype=dtype)
    layer.build((None, None, FEATURES))
    random = np.random.default_rng(5)
    layer.set_weights([random.uniform(-0.6, 0.6, w.shape).astype(dtype) for w in layer.weights])
    x, weight = data(dtype, time)
    step = step_of(layer)
    if how != "eager":
        extents = (None, None) if how == "unknown" else (BATCH, time)
        signature = [sr.TensorSpec((*extents, n), dtype) for n in (FEATURES, UNITS)]
        step = sr.function(step, input_signature=signature)
    loss, y, grads = step(sr.constant(x), sr.constant(weight))

    peer = torch_like(layer, dtype)
    tx = torch.from_numpy(x).requires_grad_()
    ty, _ = peer(tx)
    tloss = (ty * ty * torch.from_numpy(weight)).mean()
    tloss.backward()
    close(y, ty, dtype, "outputs")
    close(loss, tloss, dtype, "loss")
    close(grads[0], tx.grad, dtype, "gradient of the inputs")
    order = [1, 0, 2] if kind == "GRU" else [0, 1, 2, 3]
    close(reorder(grads[1].numpy(), order), peer.weight_ih_l0.grad, dtype, "kernel")
    close(reorder(grads[2].numpy(), order), peer.weight_hh_l0.grad, dtype, "recurrent kernel")
    bias = grads[3].numpy()
    close(reorder(bias[0] if kind == "GRU" else bias, order), peer.bias_ih_l0.grad, dtype, "bias")
    if kind == "GRU":
        close(reorder(bias[1], order), peer.bias_hh_l0.grad, dtype, "bias of the state")


@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
def test_options_of_recurrent_layers(kind: str) -> None:
    x, _ = data("float64", 6)

    def make(**options: Any) -> Any:
        start = [keras.initializers.GlorotUniform(seed=1), keras.initializers.Orthogonal(seed=2)]
        return getattr(layers, kind)(
            UNITS, kernel_initializer=start[0], recurrent_initializer=start[1], dtype="float64",
            **options,
        )  # fmt: skip

    every = make(return_sequences=True, return_state=True)
    y, *states = every(x)
    last = make()
    np.testing.assert_array_equal(last(x).numpy(), y.numpy()[:, -1])
    np.testing.assert_array_equal(states[0].numpy(), y.numpy()[:, -1])
    # Backwards is forwards over the reversed input.
    back = make(go_backwards=True, return_sequences=True)
    np.testing.assert_allclose(back(x).numpy(), every(x[:, ::-1].copy())[0].numpy(), rtol=1e-14)
    # Going on from a state.
    _, *half = every(x[:, :3])
    np.testing.assert_allclose(
        last(x[:, 3:], initial_state=half).numpy(), last(x).numpy(), rtol=1e-14
    )
    with pytest.raises(sr.errors.InvalidArgumentError, match="were made for 5"):
        last(np.zeros((2, 3, 9)))
    with pytest.raises(ValueError, match="'step'"):
        make(activation="step")


@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
def test_masked_steps_keep_the_state(kind: str) -> None:
    layer = getattr(layers, kind)(UNITS, dtype="float64")
    x, _ = data("float64", 6)
    mask = np.arange(6)[None, :] < np.array([6, 2, 0])[:, None]

    @sr.function
    def masked(x: Any, mask: Any) -> Any:
        return layer(x, mask=mask)

    at_once = layer(x, mask=mask).numpy()
    np.testing.assert_array_equal(masked(x, mask).numpy(), at_once)
    np.testing.assert_allclose(at_once[0], layer(x).numpy()[0], rtol=1e-14)
    np.testing.assert_allclose(at_once[1], layer(x[:, :2]).numpy()[1], rtol=1e-14)
    np.testing.assert_array_equal(at_once[2], np.zeros(UNITS))


@pytest.mark.parametrize("time", [1, 2, 17, 64])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("softmax", [False, True])
@pytest.mark.parametrize("how", ["graph", "eager"])
def test_attention_pooling_equals_pytorchs(dtype: str, time: int, softmax: bool, how: str) -> None:
    layer = layers.AttentionPooling((7, 6), softmax=softmax, dtype=dtype)
    layer.build([(None, FEATURES), (None, None, FEATURES)])
    rng = np.random.default_rng(time)
    query = rng.standard_normal((BATCH, FEATURES)).astype(dtype)
    keys = rng.standard_normal((BATCH, time, FEATURES)).astype(dtype)
    mask = np.arange(time)[None, :] < np.array([time, 1, (time + 1) // 2])[:, None]

    def step(query: Any, keys: Any, mask: Any) -> Any:
        with sr.GradientTape() as tape:
            tape.watch([query, keys])
            y = layer([query, keys], mask=mask)
            loss = sr.reduce_mean(y * y)
        return loss, y, tape.gradient(loss, [query, keys, *layer.weights])

    run = sr.function(step) if how == "graph" else step
    loss, y, grads = run(*(sr.constant(v) for v in (query, keys, mask)))

    tensors = [torch.from_numpy(v).requires_grad_() for v in (query, keys)]
    weights = [torch.from_numpy(w).requires_grad_() for w in layer.get_weights()]
    tq, tk = tensors
    wide = tq[:, None].expand_as(tk)
    hidden = torch.cat([wide, tk, wide - tk, wide * tk], -1)
    for index in range(3):
        hidden = hidden @ weights[2 * index] + weights[2 * index + 1]
        hidden = torch.sigmoid(hidden) if index < 2 else hidden
    tmask = torch.from_numpy(mask)[..., None]
    if softmax:
        hidden = torch.softmax(hidden.masked_fill(~tmask, -1e9), 1)
    ty = (hidden * tmask * tk).sum(1)
    tloss = (ty * ty).mean()
    tloss.backward()
    close(y, ty, dtype, "pooled")
    close(loss, tloss, dtype, "loss")
    # Gradients through softmax are differences of almost equal numbers: relative to all of them.
    largest = max(float(x.grad.abs().max()) for x in [*tensors, *weights])
    for index, (grad, peer) in enumerate(zip(grads, [*tensors, *weights])):
        # The last bias moves all scores alike, which softmax does not see.
        if softmax and index == len(grads) - 1:
            continue
        close(grad, peer.grad, dtype, f"gradient {index}", largest if softmax else 1e-30)


def test_a_gru_learns() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((64, 8, 1)).astype(np.float32)
    target = (x.sum(axis=1) > 0).astype(np.float32)
    layer = layers.GRU(8)
    layer.build((None, None, 1))
    head = sr.Variable(rng.standard_normal((8, 1)).astype(np.float32))
    optimizer = sr.optimizers.Adam(0.05)
    weights = [*layer.weights, head]

    @sr.function
    def train(x: Any, target: Any) -> Any:
        with sr.GradientTape() as tape:
            logits = layer(x) @ head
            loss = sr.reduce_mean(
                sr.nn.sigmoid_cross_entropy_with_logits(labels=target, logits=logits)
            )
        return loss, tape.gradient(loss, weights)

    losses = []
    for _ in range(40):
        loss, grads = train(x, target)
        optimizer.apply_gradients(zip(grads, weights))
        losses.append(float(loss))
    assert losses[-1] < 0.4 * losses[0], losses[::8]


@pytest.mark.parametrize("kind", ["GRU", "LSTM", "AttentionPooling"])
def test_sequences_in_a_model_of_a_cluster(kind: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2000, 6, 2)).astype(np.float32)
    label = (x.sum(axis=(1, 2)) > 0).astype(np.float32)
    model = sr.Model(seed=1)
    rows = model.input("x", sr.float32, (6, 2))
    if kind == "AttentionPooling":
        pooled = layers.AttentionPooling((8,))([sr.reduce_mean(rows, axis=1), rows])
        names = ["attention_pooling/bias_0", "attention_pooling/kernel_0"]
    else:
        make = getattr(layers, kind)
        pooled = make(8)(make(8, return_sequences=True)(rows))
        names = [f"{kind.lower()}/kernel", f"{kind.lower()}_1/recurrent_kernel"]
    model.compile(layers.Dense(1)(pooled), optimizer=sr.optimizers.Adam(0.02))
    with sr.LocalCluster(ps=2, workers=1, in_process=True) as cluster:
        result = model.fit({"x": x, "label": label}, cluster=cluster, epochs=6, batch_size=50)
    assert result.loss < 0.35
    assert set(names) <= {variable.name for variable in model.variables()}
