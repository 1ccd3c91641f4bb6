"""KeyedJaggedTensor, JaggedTensor and KeyedTensor, and what optimizers and configs are given."""

from __future__ import annotations

import pytest
from torch_servers import jagged, st, torch

import sidereal as sr


def test_a_keyed_jagged_tensor_knows_its_features() -> None:
    made = jagged({"user": [[3], [7]], "movies": [[], [1, 5]]})
    assert made.keys() == ["user", "movies"]
    assert made.values().tolist() == [3, 7, 1, 5]
    assert made.lengths().tolist() == [1, 1, 0, 2]
    assert made.offsets().tolist() == [0, 1, 2, 2, 4]
    assert made.stride() == 2
    assert made.offset_per_key() == [0, 2, 4]
    assert made.length_per_key() == [2, 2]
    assert made.weights_or_none() is None
    parts = made.to_dict()
    assert [one.tolist() for one in parts["movies"].to_dense()] == [[], [1, 5]]
    assert made["user"].offsets().tolist() == [0, 1, 2]
    assert made.permute([1, 0]).keys() == ["movies", "user"]
    assert made.permute([1, 0]).values().tolist() == [1, 5, 3, 7]
    assert "movies" in repr(made)
    moved = made.to("cpu")
    assert torch.equal(moved.offsets(), made.offsets()) and moved.stride() == 2


def test_offsets_are_as_good_as_lengths() -> None:
    values, offsets = torch.tensor([3, 7, 1, 5]), torch.tensor([0, 1, 2, 2, 4])
    made = st.KeyedJaggedTensor.from_offsets_sync(["a", "b"], values, offsets)
    assert made.lengths().tolist() == [1, 1, 0, 2]
    lengths = torch.tensor([1, 1, 0, 2])
    same = st.KeyedJaggedTensor.from_lengths_sync(["a", "b"], values, lengths)
    assert same["b"].values().tolist() == [1, 5]


def test_features_are_put_together() -> None:
    one, two = jagged({"a": [[1], []]}), jagged({"b": [[], [2, 3]], "c": [[4], [4]]})
    made = st.KeyedJaggedTensor.concat([one, two])
    assert made.keys() == ["a", "b", "c"]
    assert made.values().tolist() == [1, 2, 3, 4, 4]
    back = st.KeyedJaggedTensor.from_jt_dict(made.to_dict())
    assert back.lengths().tolist() == made.lengths().tolist()
    weighted = jagged({"a": [[1], []]}, torch.ones(1))
    with pytest.raises(ValueError, match="some of what is put together has weights"):
        st.KeyedJaggedTensor.concat([weighted, two])
    with pytest.raises(ValueError, match="different numbers of rows"):
        st.KeyedJaggedTensor.concat([one, jagged({"b": [[1]]})])


def test_what_does_not_fit_is_refused() -> None:
    values = torch.tensor([1, 2, 3])
    with pytest.raises(ValueError, match="lengths or offsets"):
        st.KeyedJaggedTensor(["a"], values)
    with pytest.raises(ValueError, match="3 lengths are no whole number of rows"):
        st.KeyedJaggedTensor(["a", "b"], values, lengths=torch.tensor([1, 1, 1]))
    with pytest.raises(ValueError, match="add up to 2; there are 3 values"):
        st.KeyedJaggedTensor.from_lengths_sync(["a"], values, torch.tensor([1, 1]))
    with pytest.raises(ValueError, match="2 weights are given for 3 values"):
        st.KeyedJaggedTensor(["a"], values, torch.ones(2), torch.tensor([3]))
    with pytest.raises(ValueError, match="doesn't have weights"):
        jagged({"a": [[1]]}).weights()


def test_a_keyed_tensor_has_vectors_side_by_side() -> None:
    parts = [torch.ones(2, 3), torch.zeros(2, 1)]
    made = st.KeyedTensor.from_tensor_list(["a", "b"], parts)
    assert made.values().shape == (2, 4)
    assert made.offset_per_key() == [0, 3, 4]
    assert torch.equal(made["b"], parts[1])
    assert torch.equal(made.to_dict()["a"], parts[0])
    other = st.KeyedTensor(["c"], [2], torch.full((2, 2), 5.0))
    one, two = st.KeyedTensor.regroup([made, other], [["c", "a"], ["b"]])
    assert one.shape == (2, 5)
    assert one[0].tolist() == [5, 5, 1, 1, 1]
    assert two.shape == (2, 1)


def test_configs_are_checked_before_anything_is_asked_for() -> None:
    config = st.EmbeddingBagConfig
    nowhere = {"ps": ["localhost:1"]}
    for given, message in (
        ([], "tables is empty"),
        ([config(3, 2, "", ["f"])], "has no name"),
        ([config(3, 2, "t", ["f"]), config(3, 2, "t", ["g"])], "two tables are called 't'"),
        ([config(0, 2, "t", ["f"])], "'t' has 0 rows of 2"),
        ([config(3, 2, "t")], "no feature looks up table 't'"),
        ([config(3, 2, "t", ["f"], pooling=st.PoolingType.NONE)], "'t' has pooling"),
    ):
        with pytest.raises(ValueError, match=message):
            st.EmbeddingBagCollection(given, cluster=nowhere)
    tables = [config(3, 2, "t", ["f"])]
    with pytest.raises(TypeError, match="is a torch.optim.SGD"):
        sgd = torch.optim.SGD([torch.zeros(1)], 0.1)
        st.EmbeddingBagCollection(tables, cluster=nowhere, optimizer=sgd)
    with pytest.raises(ValueError, match="Invalid learning rate: -1"):
        st.optim.Adagrad(-1)
    with pytest.raises(ValueError, match="no job 'ps'"):
        st.EmbeddingBagCollection(tables, cluster={"worker": ["localhost:1"]})
    mean = [config(3, 2, "t", ["f"], pooling=st.PoolingType.MEAN)]
    with pytest.raises(ValueError, match="weights are for SUM"):
        st.EmbeddingBagCollection(mean, is_weighted=True, cluster=nowhere)


def test_tables_lie_on_a_local_cluster() -> None:
    with sr.LocalCluster(ps=2) as cluster:
        table = st.EmbeddingBagConfig(3, 2, "t", ["f"], init_fn=lambda t: t.fill_(1.0))
        tables = st.EmbeddingBagCollection([table], cluster=cluster, optimizer=st.optim.SGD(0.5))
        ids = jagged({"f": [[0, 2], [1]]})
        tables(ids).values().sum().backward()
        assert tables(ids).values().tolist() == [[1.0, 1.0], [0.5, 0.5]]
