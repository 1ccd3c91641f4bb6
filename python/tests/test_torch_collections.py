"""Collections of tables: results, gradients and updates equal those of torch.nn and torch.optim."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from torch_servers import PROTOCOLS, jagged, servers_fixture, st, torch

import sidereal as sr

cluster = servers_fixture(*((n, name) for name in PROTOCOLS for n in (1, 2)))

#: For each table: rows, dimension, features, pooling.
TABLES = {
    "users": (50, 4, ["user"], "SUM"),
    "goods": (31, 4, ["item", "seen"], "MEAN"),
    "shops": (7, 3, ["shop"], "SUM"),
    "none": (1, 4, ["flag"], "SUM"),
}
FEATURES = {name: table for table, (_, _, names, _) in TABLES.items() for name in names}
OPTIMIZERS: dict[str, tuple[Any, Any]] = {
    "sgd": (st.optim.SGD(0.5), lambda p: torch.optim.SGD(p, 0.5)),
    "adagrad": (st.optim.Adagrad(0.3), lambda p: torch.optim.Adagrad(p, 0.3)),
    "adam": (st.optim.Adam(0.1), lambda p: torch.optim.SparseAdam(list(p), 0.1)),
}


def configs() -> list[Any]:
    return [
        st.EmbeddingBagConfig(rows, dim, name, list(names), pooling=st.PoolingType[pooling])
        for name, (rows, dim, names, pooling) in TABLES.items()
    ]


def collection_of(cluster: Any, optimizer: Any = None, **options: Any) -> Any:
    return st.EmbeddingBagCollection(configs(), cluster=cluster, optimizer=optimizer, **options)


class Peer(torch.nn.Module):
    """The same in torch.nn."""

    def __init__(self, collection: Any) -> None:
        super().__init__()
        self.bags = torch.nn.ModuleDict(
            {
                name: torch.nn.EmbeddingBag.from_pretrained(
                    collection.read_rows(name), freeze=False, sparse=True, mode=pooling.lower(),
                    include_last_offset=True,
                )
                for name, (_, _, _, pooling) in TABLES.items()
            }
        )  # fmt: skip

    def forward(self, batch: Any, weights: Any = None) -> Any:
        out = {}
        for feature, table in FEATURES.items():
            part = batch[feature]
            out[feature] = self.bags[table](part.values(), part.offsets())
        return out


def batch_of(seed: int, rows: int = 9, longest: int = 4) -> Any:
    """Bags of 0 to so many ids, many of them equal; features in another order than tables'."""
    pick = torch.Generator().manual_seed(seed)
    bags = {}
    for feature in ("flag", "seen", "user", "shop", "item"):
        high = TABLES[FEATURES[feature]][0]
        lengths = torch.randint(0, longest + 1, (rows,), generator=pick).tolist()
        bags[feature] = [
            (torch.rand(n, generator=pick) ** 3 * high).long().tolist() for n in lengths
        ]
    return jagged(bags)


def loss_of(values: Any) -> Any:
    """With gradients that differ from value to value, and steps that do not drift apart."""
    return sum(((one - i) ** 2).sum() for i, one in enumerate(values)) / 200


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_steps_equal_those_of_torch(cluster: Any, name: str) -> None:
    ours, make = OPTIMIZERS[name]
    collection = collection_of(cluster, ours, seed=3)
    peer = Peer(collection)
    optimizer = make(peer.parameters())
    for step in range(5):
        batch = batch_of(step)
        found = collection(batch).to_dict()
        wanted = peer(batch)
        assert list(found) == list(FEATURES)
        for feature in FEATURES:
            torch.testing.assert_close(found[feature], wanted[feature], rtol=1e-6, atol=1e-6)
        optimizer.zero_grad()
        loss_of([wanted[feature] for feature in FEATURES]).backward()
        optimizer.step()
        loss_of([found[feature] for feature in FEATURES]).backward()
    for table in TABLES:
        torch.testing.assert_close(
            collection.read_rows(table), peer.bags[table].weight.detach(), rtol=1e-6, atol=1e-6
        )
    collection.close()


def test_one_id_a_row_is_a_matter_of_rows(cluster: Any) -> None:
    collection = collection_of(cluster, st.optim.SGD(1.0))
    peer = Peer(collection)
    optimizer = torch.optim.SGD(peer.parameters(), 1.0)
    bags = {f: [[k % TABLES[t][0]] for k in (5, 5, 2, 0)] for f, t in FEATURES.items()}
    found, wanted = collection(jagged(bags)).to_dict(), peer(jagged(bags))
    loss_of([found[f] for f in FEATURES]).backward()
    loss_of([wanted[f] for f in FEATURES]).backward()
    optimizer.step()
    for table in TABLES:
        torch.testing.assert_close(
            collection.read_rows(table), peer.bags[table].weight.detach(), rtol=1e-6, atol=1e-6
        )
    collection.close()


def test_weights_multiply_rows_and_have_gradients(cluster: Any) -> None:
    config = st.EmbeddingBagConfig(10, 4, "t", ["f"])
    collection = st.EmbeddingBagCollection(
        [config], is_weighted=True, cluster=cluster, optimizer=st.optim.SGD(1.0)
    )
    before = collection.read_rows("t")
    ours, theirs = (torch.tensor([0.5, 2.0, -1.0, 3.0], requires_grad=True) for _ in range(2))
    bags = {"f": [[1, 1], [], [7, 2]]}
    collection(jagged(bags, ours)).values().sin().sum().backward()
    table = before.clone().requires_grad_()
    torch.nn.functional.embedding_bag(
        torch.tensor([1, 1, 7, 2]), table, torch.tensor([0, 2, 2]), mode="sum",
        per_sample_weights=theirs,
    ).sin().sum().backward()  # fmt: skip
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(
        collection.read_rows("t"), before - table.grad, rtol=1e-6, atol=1e-6
    )
    with pytest.raises(sr.errors.InvalidArgumentError, match="has no weights"):
        collection(jagged(bags))
    collection.close()


def test_embedding_collections_give_rows(cluster: Any) -> None:
    tables = [
        st.EmbeddingConfig(20, 4, "a", ["x", "y"]),
        st.EmbeddingConfig(5, 4, "b", ["y"]),
    ]
    collection = st.EmbeddingCollection(
        tables, need_indices=True, cluster=cluster, optimizer=st.optim.SGD(1.0)
    )
    a, b = (collection.read_rows(name) for name in "ab")
    found = collection(jagged({"y": [[4], [0, 4]], "x": [[], [19, 0]]}))
    assert list(found) == ["x", "y@a", "y@b"]
    assert torch.equal(found["x"].values(), a[[19, 0]])
    assert torch.equal(found["y@a"].values(), a[[4, 0, 4]])
    assert torch.equal(found["y@b"].values(), b[[4, 0, 4]])
    assert found["x"].lengths().tolist() == [0, 2]
    assert found["y@b"].weights().tolist() == [4, 0, 4]
    (found["y@a"].values().sum() + 2 * found["x"].values().sum()).backward()
    a[[4, 4, 0]] -= torch.tensor([0.0, 2.0, 3.0])[:, None]
    a[19] -= 2
    torch.testing.assert_close(collection.read_rows("a"), a, rtol=1e-6, atol=1e-6)
    assert torch.equal(collection.read_rows("b"), b)
    collection.close()


def test_importing_sidereal_does_not_import_torch() -> None:
    code = "import sys, sidereal, sidereal.train; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
