"""The first 50 losses equal PyTorch's for the same weights and batches; so do the weights after."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import sidereal as sr
from conftest import Data

PEERS = Path(__file__).parents[2] / "bench" / "peers"
FIELDS, IDS, NUMBERS, DIM, BATCH, STEPS = 6, 300, 3, 8, 64, 50

#: (optimizer, the options of torch_reference.py for the same)
CASES = {
    "sgd": (sr.optimizers.SGD(0.2), ["--learning-rate", "0.2"]),
    "momentum": (sr.optimizers.Momentum(0.05), ["--learning-rate", "0.05"]),
    "adagrad": (sr.optimizers.Adagrad(0.1), ["--learning-rate", "0.1"]),
    "adam": (sr.optimizers.Adam(0.01), ["--learning-rate", "0.01"]),
    "ftrl": (
        sr.optimizers.Ftrl(0.1, l1_regularization_strength=0.001, l2_regularization_strength=0.01),
        ["--learning-rate", "0.1", "--l1", "0.001", "--l2", "0.01"],
    ),
}


def rows() -> Data:
    """Skewed ids, so that every batch has equal ones."""
    rng = np.random.default_rng(3)
    ids = (IDS * rng.random((BATCH * STEPS, FIELDS)) ** 3).astype(np.int64)
    dense = rng.normal(size=(BATCH * STEPS, NUMBERS)).astype(np.float32)
    probability = 1 / (1 + np.exp(-np.sin(ids).sum(axis=1) - dense[:, 0]))
    label = (rng.random(BATCH * STEPS) < probability).astype(np.float32)
    return {"ids": ids, "dense": dense, "label": label}


def weights_of(model: sr.Model) -> Data:
    """Our variables under the reference's names; its tower sees numbers first, ours last."""
    weights = {
        "embedding": model.get_variable("embedding/table"),
        "linear": model.get_variable("linear/ids/table"),
        "linear_dense": model.get_variable("linear/dense/kernel"),
        "bias": model.get_variable("linear/out/bias"),
        "output_weight": model.get_variable("head/kernel"),
    }
    for layer in range(2):
        weights[f"hidden_{layer}_weight"] = model.get_variable(f"mlp/{layer}/kernel")
        weights[f"hidden_{layer}_bias"] = model.get_variable(f"mlp/{layer}/bias")
    first = weights["hidden_0_weight"]
    weights["hidden_0_weight"] = np.concatenate([first[FIELDS * DIM :], first[: FIELDS * DIM]])
    return weights


@pytest.mark.parametrize("name", CASES)
def test_deepfm_learns_as_in_pytorch(
    name: str, cluster: sr.LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (./dev setup --peers)")
    torch.set_num_threads(1)  # As its ops are small.
    monkeypatch.syspath_prepend(str(PEERS))
    import torch_reference

    optimizer, options = CASES[name]
    model = sr.models.build(
        "deepfm", sr.data.Schema(fields=FIELDS, rows=IDS, dense_width=NUMBERS), seed=5,
        optimizer=optimizer, embedding_dim=DIM, embedding_stddev=0.2, hidden=[32, 16],
    )
    model.initialize(cluster)
    before = weights_of(model)
    data = rows()
    result = model.fit(
        data, batch_size=BATCH, shuffle=False, steps_in_flight=1, record_losses=True, verbose=False
    )
    assert len(result.losses) == STEPS

    batches = {key: data[key].reshape(STEPS, BATCH, *data[key].shape[1:]) for key in data}
    batches["labels"] = batches.pop("label")
    arguments = ["-", "--model", "deepfm", "--optimizer", name, *options]
    losses, after = torch_reference.train(
        torch_reference.parse_arguments(arguments), {**before, **batches}
    )
    assert losses[-1] < losses[0]
    np.testing.assert_allclose(result.losses, losses, rtol=1e-4)
    ours = weights_of(model)
    assert set(ours) == set(after)
    for key, value in after.items():
        theirs = value.detach().numpy().reshape(ours[key].shape)
        np.testing.assert_allclose(ours[key], theirs, rtol=1e-3, atol=1e-4, err_msg=key)
        assert np.abs(ours[key] - before[key]).max() > 1e-4, key
